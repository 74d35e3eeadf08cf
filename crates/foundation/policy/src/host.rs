//! Which hosts may be spoken to.

use std::{fmt, sync::Arc};

use crate::Error;

/// The ports that a pattern without one covers: those of plain and of encrypted HTTP.
const USUAL_PORTS: [u16; 2] = [80, 443];

/// The longest name that the domain name system knows.
const LONGEST: usize = 253;

/// Patterns for hosts, such as `docs.rs`, `*.example.com`, `localhost:8080`, `[::1]:*` or `*`.
///
/// A name matches itself; `*.example.com` matches what lies below it and not `example.com`; `*` matches every host.
/// Without a port, a pattern covers 80 and 443; `:*` covers all. Names are compared in their ASCII form, as
/// `xn--bcher-kva.example`, and without regard to case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPatterns(Arc<[Pattern]>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    name: Name,
    port: Port,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    Any,
    Exactly(String),
    /// What ends with this, which begins with a dot.
    Below(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Port {
    Usual,
    Any,
    Exactly(u16),
}

impl HostPatterns {
    /// Parses patterns. An empty list allows nothing.
    ///
    /// # Errors
    /// [`Error::HostPattern`] names the first that cannot be read.
    pub fn parse<S: AsRef<str>>(patterns: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let parsed = patterns.into_iter().map(|pattern| Pattern::parse(pattern.as_ref()));
        Ok(Self(parsed.collect::<Result<_, _>>()?))
    }

    /// Decides on a host, given as `host:port`.
    ///
    /// # Errors
    /// Why it is refused: no pattern names it.
    pub fn check(&self, host: &str) -> Result<(), String> {
        match self.matches(host) {
            true => Ok(()),
            false => Err(format!("{host} is not on the list of hosts: {self}")),
        }
    }

    /// Says whether one of the patterns names a host, given as `host:port`. What is not of that form is named by none.
    pub fn matches(&self, host: &str) -> bool {
        let Some((name, port)) = host.rsplit_once(':') else { return false };
        let Ok(port) = port.parse() else { return false };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        !name.is_empty() && self.0.iter().any(|pattern| pattern.matches(&name, port))
    }
}

/// Says whether a port is one of those that need not be named.
pub(crate) fn is_usual(port: u16) -> bool {
    USUAL_PORTS.contains(&port)
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |reason| Error::HostPattern { pattern: text.to_owned(), reason };
        if text.contains("://") || text.contains('/') || text.contains('@') {
            return Err(wrong("it is a host with or without a port, and no address of a page"));
        }
        // An address of IPv6 has colons of its own and stands in brackets.
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (inner, behind) =
                    rest.split_once(']').ok_or_else(|| wrong("its bracket is never closed"))?;
                let address: std::net::Ipv6Addr = inner
                    .parse()
                    .map_err(|_| wrong("only an address of IPv6 stands in brackets"))?;
                let port = match behind {
                    "" => None,
                    _ => Some(behind.strip_prefix(':').ok_or_else(|| {
                        wrong("behind a bracket stands nothing, or a colon and a port")
                    })?),
                };
                (format!("[{address}]"), port)
            }
            None => match text.split_once(':') {
                Some((_, rest)) if rest.contains(':') => {
                    return Err(wrong("an address of IPv6 stands in brackets, as [::1]:8080"));
                }
                Some((name, port)) => (name.to_owned(), Some(port)),
                None => (text.to_owned(), None),
            },
        };
        let port = match port {
            None => Port::Usual,
            Some("*") => Port::Any,
            Some(port) => match port.parse::<u16>() {
                Ok(port) if port > 0 => Port::Exactly(port),
                _ => return Err(wrong("its port is a number up to 65535, or *")),
            },
        };
        let is_any = name == "*";
        let name = name.strip_suffix('.').unwrap_or(&name).to_ascii_lowercase();
        let name = if is_any {
            Name::Any
        } else if name.starts_with('[') {
            Name::Exactly(name)
        } else if let Some(below) = name.strip_prefix('*') {
            plain(below.strip_prefix('.').unwrap_or_default()).map_err(wrong)?;
            Name::Below(below.to_owned())
        } else {
            plain(&name).map_err(wrong)?;
            Name::Exactly(name)
        };
        Ok(Self { name, port })
    }

    fn matches(&self, name: &str, port: u16) -> bool {
        let port = match self.port {
            Port::Any => true,
            Port::Usual => is_usual(port),
            Port::Exactly(own) => own == port,
        };
        port && match &self.name {
            Name::Any => true,
            Name::Exactly(own) => own == name,
            Name::Below(end) => name.len() > end.len() && name.ends_with(end.as_str()),
        }
    }
}

/// Checks that a name is one that a request can bear.
fn plain(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > LONGEST || name.split('.').any(str::is_empty) {
        return Err("it is a name of 1 to 253 characters with dots between its parts");
    }
    if !name.is_ascii() {
        return Err(
            "a name with other letters is written in its ASCII form, which begins with xn--",
        );
    }
    if name.contains('*') {
        return Err(
            "a * stands alone, or in the place of the first parts of a name, as in *.example.com",
        );
    }
    match name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_')) {
        true => Ok(()),
        false => Err("a name is made of letters, digits, hyphens and dots"),
    }
}

impl fmt::Display for HostPatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("it is empty");
        }
        for (at, pattern) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            match &pattern.name {
                Name::Any => f.write_str("*")?,
                Name::Exactly(name) => f.write_str(name)?,
                Name::Below(end) => write!(f, "*{end}")?,
            }
            match pattern.port {
                Port::Usual => {}
                Port::Any => f.write_str(":*")?,
                Port::Exactly(port) => write!(f, ":{port}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_its_name_its_ports_and_nothing_beside() {
        let list = ["docs.rs", "*.Example.com.", "localhost:8080", "[::1]:*", "10.0.0.1"];
        let list = HostPatterns::parse(list).unwrap();

        for named in [
            "docs.rs:443",
            "DOCS.RS.:80",
            "a.example.com:443",
            "a.b.example.com:443",
            "localhost:8080",
            "[::1]:1",
            "10.0.0.1:80",
        ] {
            assert!(list.matches(named), "{named}");
        }
        for other in [
            "docs.rs:8080",
            "evildocs.rs:443",
            "docs.rs.evil.com:443",
            "example.com:443",
            "badexample.com:443",
            ".example.com:443",
            "localhost:80",
            "[::2]:1",
            "10.0.0.10:80",
            "docs.rs",
            ":443",
            "docs.rs:",
            "",
        ] {
            assert!(!list.matches(other), "{other}");
        }
        assert_eq!(list.to_string(), "docs.rs, *.example.com, localhost:8080, [::1]:*, 10.0.0.1");
    }

    #[test]
    fn what_is_no_pattern_is_named_with_its_reason() {
        for wrong in [
            "",
            "*.",
            "*",
            "https://a.b",
            "a.b/c",
            "u@a.b",
            "a..b",
            "a*.b",
            "a.*.b",
            "::1",
            "[::1",
            "[x]",
            "[::1]x",
            "a:0",
            "a:65536",
            "a:b",
            "a:",
            "bücher.example",
            "a b",
        ] {
            let parsed = HostPatterns::parse([wrong]);
            assert_eq!(parsed.is_err(), wrong != "*", "{wrong:?}: {parsed:?}");
        }
        let told = HostPatterns::parse(["https://docs.rs/x"]).unwrap_err().to_string();
        assert_eq!(
            told,
            "host pattern \"https://docs.rs/x\": it is a host with or without a port, and no address of a page"
        );
    }
}
