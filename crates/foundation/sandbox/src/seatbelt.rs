//! Confinement on macOS: a Seatbelt profile for `sandbox-exec`.

use std::{collections::BTreeSet, fmt::Write as _, path::Path};

use crate::{Limits, Network};

/// The system's program that runs another one under a profile.
pub const PROGRAM: &str = "/usr/bin/sandbox-exec";

/// Returns the profile that holds a command to `limits`: everything is denied but what it lists.
///
/// Seatbelt judges paths by where they really are, so roots must have no symbolic links in them
/// (`/private/tmp`, not `/tmp`).
///
/// # Errors
/// When a limit has no equivalent there, or when a root is not UTF-8; the text says which.
pub fn profile(limits: &Limits) -> Result<String, String> {
    let counted = [
        ("memory", limits.memory.is_some()),
        ("processes", limits.processes.is_some()),
        ("cpu", limits.cpu.is_some()),
        ("file_size", limits.file_size.is_some()),
        ("open_files", limits.open_files.is_some()),
    ];
    if let Some((name, _)) = counted.iter().find(|(_, wanted)| *wanted) {
        return Err(format!("a Seatbelt profile cannot limit {name}"));
    }

    if let Some(folder) = limits.private.first() {
        return Err(format!("a Seatbelt profile cannot make {} private", folder.display()));
    }

    let network = match limits.network {
        Network::Off => "",
        Network::Unix => "(allow network* (local unix-socket) (remote unix-socket))\n",
        Network::Allowed => "(allow network*)\n(allow system-socket)\n",
        Network::Through(_) => return Err("it is not held to a proxy on this system".to_owned()),
    };

    let mut text = String::from(
        "(version 1)\n(deny default)\n(allow process-fork)\n(allow signal (target same-sandbox))\n\
         (allow sysctl-read)\n(allow file-read-metadata)\n",
    );
    for device in ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"] {
        let _ = writeln!(text, "(allow file-read* file-write-data (literal \"{device}\"))");
    }
    for root in &limits.read_roots {
        let root = quoted(root)?;
        let _ =
            writeln!(text, "(allow file-read* file-map-executable process-exec (subpath {root}))");
    }
    for root in &limits.write_roots {
        let root = quoted(root)?;
        let _ = writeln!(
            text,
            "(allow file-read* file-map-executable process-exec file-write* (subpath {root}))"
        );
    }
    for path in &limits.sealed {
        let path = quoted(path)?;
        let _ = writeln!(text, "(deny file-write* (subpath {path}))");
    }
    // Who moves a folder away that holds what is sealed has it under another name, which no rule fits.
    let is_within = |folder: &&Path| limits.write_roots.iter().any(|root| folder.starts_with(root));
    let above = limits.sealed.iter().flat_map(|path| path.ancestors().skip(1).filter(is_within));
    for folder in above.collect::<BTreeSet<_>>() {
        let folder = quoted(folder)?;
        let _ = writeln!(text, "(deny file-write-unlink (literal {folder}))");
    }
    // The last rule that fits decides.
    for root in &limits.write_roots {
        if limits.sealed.iter().any(|path| root != path && root.starts_with(path)) {
            let root = quoted(root)?;
            let _ = writeln!(text, "(allow file-write* (subpath {root}))");
        }
    }
    text.push_str(network);
    Ok(text)
}

/// Writes `path` as a string of the profile language, whose escapes are those of Scheme.
fn quoted(path: &Path) -> Result<String, String> {
    let text = path.to_str().ok_or_else(|| format!("root {} is not UTF-8", path.display()))?;
    if text.chars().any(char::is_control) {
        return Err(format!("root {text:?} holds a control character"));
    }
    Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_denies_all_but_the_roots() {
        let limits = Limits::new(["/usr"], ["/private/tmp/it"]);

        let text = profile(&limits).unwrap();

        let wanted = r#"(version 1)
(deny default)
(allow process-fork)
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)
(allow file-read* file-write-data (literal "/dev/null"))
(allow file-read* file-write-data (literal "/dev/zero"))
(allow file-read* file-write-data (literal "/dev/random"))
(allow file-read* file-write-data (literal "/dev/urandom"))
(allow file-read* file-map-executable process-exec (subpath "/usr"))
(allow file-read* file-map-executable process-exec file-write* (subpath "/private/tmp/it"))
"#;
        assert_eq!(text, wanted);
    }

    #[test]
    fn what_is_sealed_is_not_written_but_for_roots_below_it() {
        let sealed = vec!["/w/kept".into()];
        let limits = Limits { sealed, ..Limits::new([""; 0], ["/w", "/w/kept/tmp/one"]) };

        let text = profile(&limits).unwrap();

        let last: Vec<&str> = text.lines().rev().take(3).collect();
        let wanted = [
            r#"(allow file-write* (subpath "/w/kept/tmp/one"))"#,
            r#"(deny file-write-unlink (literal "/w"))"#,
            r#"(deny file-write* (subpath "/w/kept"))"#,
        ];
        assert_eq!(last, wanted);
    }

    #[test]
    fn no_folder_on_the_way_to_what_is_sealed_is_moved_away() {
        let sealed = vec!["/w/a/b/.git".into(), "/w/a/kept".into(), "/x/kept".into()];
        let limits = Limits { sealed, ..Limits::new([""; 0], ["/w/a"]) };

        let text = profile(&limits).unwrap();

        let denied: Vec<&str> = text.lines().filter(|it| it.contains("unlink")).collect();
        let wanted = [
            r#"(deny file-write-unlink (literal "/w/a"))"#,
            r#"(deny file-write-unlink (literal "/w/a/b"))"#,
        ];
        assert_eq!(denied, wanted);
    }

    #[test]
    fn the_network_is_named_only_when_allowed() {
        let with = |network| profile(&Limits { network, ..Limits::new([""; 0], [""; 0]) }).unwrap();

        assert!(!with(Network::Off).contains("network"));
        assert!(with(Network::Unix).ends_with("(remote unix-socket))\n"));
        assert!(with(Network::Allowed).contains("(allow network*)\n"));
    }

    #[test]
    fn a_root_cannot_end_its_own_quotes() {
        let limits = Limits::new([r#"/a")(allow default)("\"#], [""; 0]);

        let text = profile(&limits).unwrap();

        assert!(text.contains(r#"(subpath "/a\")(allow default)(\"\\"))"#), "{text}");
    }

    #[test]
    fn a_limit_without_equivalent_is_refused_by_name() {
        let limits = Limits { memory: Some(1), ..Limits::new([""; 0], [""; 0]) };

        assert_eq!(profile(&limits), Err("a Seatbelt profile cannot limit memory".into()));
    }
}
