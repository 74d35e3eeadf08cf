//! What a confined command tries in vain.
//!
//! The attempts that no shell can make are tests of this same program, which the others run
//! confined. All hold for root too.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use formwork_sandbox::{
    Beyond, Command, Error, Exit, Finished, Gateway, Limits, Network, NoRoute, Protection, Refusal,
    Resource, Routes, Status, probe,
};
use support::{alone, launched, run};

/// Confines to reading the system and to reading and writing `write`.
fn limits(write: &Path) -> Limits {
    Limits::new(Limits::system_roots(), [write])
}

async fn sh(script: &str, cwd: &Path, limits: Limits) -> Finished {
    let mut command = Command::new(["sh", "-c", script], cwd, Protection::Restricted(limits));
    // Longer than any limit takes to be met here, on a machine that is busy.
    command.timeout = Duration::from_secs(100);
    run(&launched(cwd), command).await.unwrap()
}

/// Runs the attempt of that name, below, and returns what it printed.
async fn attempt(name: &str, network: Network) -> String {
    attempted(name, network, &[]).await.0
}

/// Does so with some variables set, and returns how it ended as well.
async fn attempted(name: &str, network: Network, set: &[(&str, String)]) -> (String, Finished) {
    let dir = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let mut limits = Limits { network, ..limits(dir.path()) };
    limits.read_roots.push(program.clone());
    let argv = [
        program.as_os_str(),
        name.as_ref(),
        "--exact".as_ref(),
        "--ignored".as_ref(),
        "--nocapture".as_ref(),
    ];
    let mut command = Command::new(argv, dir.path(), Protection::Restricted(limits));
    command.set = set.iter().map(|(name, value)| (name.into(), value.into())).collect();

    let finished = run(&launched(dir.path()), command).await.unwrap();

    let text = finished.stdout.preview();
    let said = text.lines().find_map(|line| line.split_once("said: ").map(|(_, said)| said));
    let said = said.unwrap_or_else(|| panic!("{finished:?}: {}", finished.combined.preview()));
    (said.to_owned(), finished)
}

#[tokio::test]
async fn a_sealed_part_of_a_writable_folder_is_read_and_not_written_moved_or_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("a/kept/deep")).unwrap();
    std::fs::write(root.join("a/kept/file"), "kept").unwrap();
    std::fs::write(root.join("a/alone"), "alone").unwrap();
    let sealed = vec![root.join("a/kept"), root.join("a/alone")];
    let limits = Limits { sealed, ..limits(&root) };
    let script = "cat a/kept/file; echo > a/new && echo made > top; \
        for it in 'echo x > a/kept/file' 'echo x > a/kept/new' 'rm -rf a/kept' 'mv a/kept b' 'mv a b' \
            'ln a/kept/file link' 'echo x > a/alone' 'rm a/alone' 'mv top a/alone' 'chmod 777 a/kept/file' \
            'umount a/kept' 'mount -o remount,rw a/kept' 'unshare -m true' 'touch a/kept/deep/x'; do \
            if sh -c \"$it\" 2> /dev/null; then echo \"escaped: $it\"; fi; done";

    let finished = sh(script, &root, limits).await;

    assert_eq!(finished.combined.preview(), "kept");
    assert_eq!(std::fs::read_to_string(root.join("a/kept/file")).unwrap(), "kept");
    assert_eq!(std::fs::read_to_string(root.join("a/alone")).unwrap(), "alone");
    assert_eq!(std::fs::read_to_string(root.join("top")).unwrap(), "made\n");
    assert!(root.join("a/new").exists());
}

#[tokio::test]
async fn what_describes_a_file_beyond_the_write_roots_is_not_changed_either() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for folder in ["own/sealed/open", "beside", "own/deep"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    for file in ["beside/file", "own/file", "own/sealed/file", "own/sealed/open/file"] {
        std::fs::write(root.join(file), "kept").unwrap();
    }
    let mut limits = limits(&root.join("own"));
    limits.read_roots.push(root.clone());
    limits.write_roots.push(root.join("own/sealed/open"));
    limits.sealed = vec![root.join("own/sealed")];
    limits.beyond = Beyond::Nothing;
    let before = std::fs::metadata(root.join("beside/file")).unwrap();
    let script = "for it in beside/file beside own/sealed own/sealed/file; do \
            chmod 777 $it 2> /dev/null && echo escaped: chmod $it; \
            touch -d 2001-01-01 $it 2> /dev/null && echo escaped: touch $it; \
            chown 1:1 $it 2> /dev/null && echo escaped: chown $it; done; \
        for it in own/file own/deep own/sealed/open/file; do \
            chmod 700 $it && touch -d 2001-01-01 $it || echo kept from $it; done; \
        echo new > own/sealed/open/new; echo x > /dev/null; echo done";

    let finished = sh(script, &root, limits).await;

    assert_eq!(finished.combined.preview(), "done\n");
    let after = std::fs::metadata(root.join("beside/file")).unwrap();
    assert_eq!((before.mode(), before.mtime()), (after.mode(), after.mtime()));
    assert_eq!(std::fs::metadata(root.join("own/deep")).unwrap().mode() & 0o777, 0o700);
    assert!(root.join("own/sealed/open/new").exists());
}

#[tokio::test]
async fn a_command_is_confined_in_folders_whose_names_are_no_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap().join(std::ffi::OsStr::from_bytes(b"w\xff"));
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("kept"), "").unwrap();
    let limits = Limits { sealed: vec![root.join("kept")], ..limits(&root) };

    let finished = sh("echo x > made; echo x > kept; ls", &root, limits).await;

    assert_eq!(finished.stdout.preview(), "kept\nmade\n", "{}", finished.combined.preview());
}

#[tokio::test]
async fn each_command_has_a_temporary_folder_of_its_own_that_goes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for folder in ["work", "temporary/copy-of-another", "temporary/kept"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    let sandbox = launched(&root).with_temporary(root.join("temporary"));
    let script = "echo x > $TMPDIR/x && cat $TMPDIR/x; for it in temporary temporary/copy-of-another; do \
        echo y > ../$it/y && echo escaped; ls ../$it && echo escaped; done; echo $TMPDIR";
    let command = || {
        let limits = limits(&root.join("work"));
        Command::new(["sh", "-c", script], root.join("work"), Protection::Restricted(limits))
    };

    let (one, other) = (run(&sandbox, command()).await, run(&sandbox, command()).await);

    let told = [one, other].map(|finished| finished.unwrap().stdout.preview());
    let lines: Vec<_> = told.iter().map(|text| text.lines().collect::<Vec<_>>()).collect();
    assert_eq!((lines[0][0], lines[1][0]), ("x", "x"));
    assert_eq!((lines[0].len(), lines[1].len()), (2, 2));
    assert_ne!(lines[0][1], lines[1][1]);
    let left = std::fs::read_dir(root.join("temporary")).unwrap();
    assert_eq!(left.count(), 2);
}

#[tokio::test]
async fn a_private_folder_is_empty_writable_and_gone_with_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for folder in ["work", "shared"] {
        std::fs::create_dir(root.join(folder)).unwrap();
    }
    std::fs::write(root.join("shared/of-others"), "hunter2").unwrap();
    let mut limits = limits(&root);
    limits.private = vec![root.join("shared")];
    limits.memory = Some(64 << 20);
    let script = "ls ../shared; echo mine > ../shared/new && cat ../shared/new; cat ../shared/of-others; \
        head -c 100M /dev/zero > ../shared/large; umount ../shared";

    let finished = sh(script, &root.join("work"), limits).await;

    assert_eq!(finished.stdout.preview(), "mine\n");
    let told = finished.stderr.preview();
    assert!(told.contains("No space left") && told.contains("No such file"), "{told}");
    let names: Vec<_> = std::fs::read_dir(root.join("shared")).unwrap().flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[tokio::test]
async fn a_seal_holds_for_a_command_that_starts_in_it_or_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("a/kept/deep")).unwrap();
    std::fs::write(root.join("a/kept/file"), "kept").unwrap();
    std::os::unix::fs::symlink("a/kept", root.join("link")).unwrap();

    for (cwd, kept, script) in [
        ("a/kept", ".", "echo x > file"),
        ("a/kept", ".", "touch deep/new"),
        ("a/kept", ".", "rm file"),
        ("a/kept/deep", "..", "touch new || touch ../new"),
        ("a", "kept", "echo x > kept/file"),
        ("a", "kept", "mv kept other"),
        (".", "a/kept", "touch a/kept/new"),
        ("link", ".", "touch new || cd -P .. && touch kept/new"),
    ] {
        let limits = Limits { sealed: vec![root.join("a/kept")], ..limits(&root) };

        let finished = sh(&format!("ls {kept} && {script}"), &root.join(cwd), limits).await;

        assert!(matches!(finished.exit, Exit::Code(1..)), "{cwd}: {script}");
        assert!(finished.stdout.preview().contains("file"), "{cwd}: {finished:?}");
        assert_eq!(std::fs::read_to_string(root.join("a/kept/file")).unwrap(), "kept");
        assert!(!root.join("a/kept/new").exists(), "{cwd}: {script}");
        assert!(!root.join("a/kept/deep/new").exists(), "{cwd}: {script}");
    }
}

#[tokio::test]
async fn a_command_with_a_seal_is_not_run_in_a_folder_that_cannot_be_entered_again() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("kept")).unwrap();
    let limits = Limits { sealed: vec![root.join("kept")], ..limits(&root) };
    let command = Command::new(["touch", "it"], ".", Protection::Restricted(limits));

    let error = run(&launched(&root), command).await.unwrap_err();

    assert!(matches!(error, Error::ProtectionMissing { .. }), "{error:?}");
}

#[tokio::test]
async fn a_confined_command_works_within_its_roots() {
    let dir = tempfile::tempdir().unwrap();
    let script = "echo one > a && mkdir b && mv a b/a && cat b/a && rm -r b && ls /usr > /dev/null && echo $0";

    let finished = sh(script, dir.path(), limits(dir.path())).await;

    assert_eq!(finished.combined.preview(), "one\nsh\n");
    assert_eq!(finished.exit, Exit::Code(0));
}

#[tokio::test]
async fn nothing_outside_the_write_roots_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("inside");
    let outside = dir.path().join("outside");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(&outside, "kept").unwrap();
    std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
    let limits = || {
        let mut limits = limits(&inside);
        limits.read_roots.push(dir.path().into());
        limits
    };

    for script in [
        "echo x > ../outside",
        "echo x >> ../outside",
        "echo x > link",
        "echo x > /proc/self/root$PWD/../outside",
        "rm ../outside",
        "mv ../outside .",
        "ln ../outside hard && echo x > hard",
        "truncate -s 0 ../outside",
        "cd .. && touch new",
        "mkdir ../new",
        "cp /etc/hostname ../new",
        "mknod disk b 8 0",
        "setsid sh -c 'echo x > ../outside'",
    ] {
        let finished = sh(script, &inside, limits()).await;

        assert_ne!(finished.exit, Exit::Code(0), "{script}");
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "kept", "{script}");
        assert!(!dir.path().join("new").exists(), "{script}");
    }
}

#[tokio::test]
async fn nothing_outside_the_read_roots_is_read_or_run() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(dir.path().join("secret"), "hunter2").unwrap();
    std::os::unix::fs::symlink("../secret", inside.join("link")).unwrap();
    let program = dir.path().join("program");
    std::fs::copy("/bin/echo", &program).unwrap();

    for script in [
        "cat ../secret",
        "cat link",
        "cat /proc/self/root$PWD/../secret",
        "cat /proc/self/cwd/../secret",
        "cat /proc/1/root$PWD/../secret",
        "ls ..",
        "ln ../secret hard && cat hard",
        "../program hunter2",
    ] {
        let finished = sh(script, &inside, limits(&inside)).await;

        assert_ne!(finished.exit, Exit::Code(0), "{script}");
        assert!(!finished.stdout.preview().contains("hunter2"), "{script}");
    }
}

#[tokio::test]
async fn other_processes_are_neither_read_nor_signalled() {
    let dir = tempfile::tempdir().unwrap();
    let me = std::process::id();
    let limits = limits(dir.path());

    for script in [
        format!("cat /proc/{me}/environ"),
        format!("cat /proc/{me}/mem"),
        format!("ls /proc/{me}/fd"),
        format!("kill -0 {me}"),
        "kill -9 $PPID".into(),
        "cat /proc/$PPID/environ".into(),
    ] {
        let finished = sh(&script, dir.path(), limits.clone()).await;

        assert!(matches!(finished.exit, Exit::Code(1..)), "{script}: {:?}", finished.exit);
        assert_eq!(finished.stdout.total_bytes, 0, "{script}");
    }
}

#[tokio::test]
async fn confined_root_cannot_read_the_variables_of_others_even_where_it_sees_them() {
    if !rustix::process::geteuid().is_root() {
        return; // Only root has the capabilities that are taken from it here.
    }
    let dir = tempfile::tempdir().unwrap();
    let mut limits = limits(dir.path());
    limits.read_roots.push("/proc".into());

    let finished = sh("cat /proc/$PPID/environ /proc/$PPID/maps", dir.path(), limits).await;

    assert_eq!((finished.exit, finished.stdout.total_bytes), (Exit::Code(1), 0));
}

#[tokio::test]
async fn sockets_follow_the_network_rule() {
    let off = attempt("attempt_sockets", Network::Off).await;
    let unix = attempt("attempt_sockets", Network::Unix).await;
    let allowed = attempt("attempt_sockets", Network::Allowed).await;

    assert_eq!(off, "tcp no, udp no, unix no, pair yes, raw no, packet no");
    assert_eq!(unix, "tcp no, udp no, unix yes, pair yes, raw no, packet no");
    assert_eq!(allowed, "tcp yes, udp yes, unix yes, pair yes, raw no, packet no");
}

#[test]
#[ignore = "run confined by the test above"]
fn attempt_sockets() {
    use std::{
        net::{TcpListener, UdpSocket},
        os::unix::net::{UnixListener, UnixStream},
    };
    let word = |worked: bool| if worked { "yes" } else { "no" };
    println!(
        "said: tcp {}, udp {}, unix {}, pair {}, raw {}, packet {}",
        word(TcpListener::bind("127.0.0.1:0").is_ok()),
        word(UdpSocket::bind("127.0.0.1:0").is_ok()),
        word(UnixListener::bind("socket").is_ok()),
        word(UnixStream::pair().is_ok()),
        word(call(libc::SYS_socket, [2, 3, 1]).is_ok()),
        word(call(libc::SYS_socket, [17, 3, 0]).is_ok()),
    );
}

/// Leads some hosts to addresses and refuses all others; keeps what it was told.
#[derive(Default, Clone)]
struct Hosts {
    hosts: BTreeMap<String, SocketAddr>,
    told: Arc<Mutex<Vec<Refusal>>>,
}

#[async_trait]
impl Routes for Hosts {
    async fn addresses(&self, to: &str) -> Result<Vec<SocketAddr>, NoRoute> {
        match self.hosts.get(to) {
            Some(address) => Ok(vec![*address]),
            None => Err(NoRoute::Refused(format!("{to} is not for you"))),
        }
    }

    async fn refused(&self, refusal: &Refusal) {
        self.told.lock().unwrap().push(refusal.clone());
    }
}

/// Answers each request with a text, as a server that knows nothing of proxies.
async fn serve(listener: tokio::net::TcpListener) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    while let Ok((mut client, _)) = listener.accept().await {
        let mut bytes = vec![0; 4096];
        let read = client.read(&mut bytes).await.unwrap();
        let first = String::from_utf8_lossy(&bytes[..read]).lines().next().unwrap().to_owned();
        let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nasked {first}");
        client.write_all(answer.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn with_a_gateway_a_command_is_connected_where_that_leads_and_nowhere_else() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let mut serving = tokio::task::JoinSet::new();
    serving.spawn(serve(server));
    let routes = Hosts {
        hosts: [("allowed.example:443", address), ("allowed.example:80", address)]
            .map(|(host, address)| (host.to_owned(), address))
            .into(),
        ..Hosts::default()
    };
    let network = Network::Through(Gateway::new(routes.clone()));

    let set = [("SERVER", address.to_string())];
    let (said, finished) = attempted("attempt_gateway", network, &set).await;

    let wanted = "tunnel: asked GET /secret HTTP/1.1; plain: asked GET /a?b HTTP/1.1; other: 403; wrong token: 407; \
         no token: 407; rubbish: 400; past it: 13; by its port elsewhere: 101; another port: 13; listening: 13; \
         udp 1, raw 1, unix 1, netlink 1, packet 1, mptcp 1, sctp 1; pair yes";
    assert_eq!(said, wanted);
    let refusal = |to: &str, why: &str| Refusal {
        program: std::env::current_exe().unwrap().display().to_string(),
        to: to.to_owned(),
        why: why.to_owned(),
    };
    let refused = [
        refusal("other.example:80", "other.example:80 is not for you"),
        refusal("allowed.example:443", "its token is not that of this run"),
        refusal("", "the place that it asks for has no port"),
    ];
    assert_eq!(finished.refused, refused);
    assert_eq!(*routes.told.lock().unwrap(), refused);
    assert_eq!(finished.reached, ["allowed.example:443", "allowed.example:80"]);
}

#[test]
#[ignore = "run confined by the test above"]
#[expect(clippy::disallowed_methods, reason = "it is told by variables where its proxy is")]
fn attempt_gateway() {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream, UdpSocket},
        os::unix::net::{UnixListener, UnixStream},
    };
    let names =
        ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let values = names.map(|name| std::env::var(name).unwrap());
    assert!(values.iter().all(|value| value == &values[0]), "{values:?}");
    assert_eq!(std::env::var("NO_PROXY").unwrap() + &std::env::var("no_proxy").unwrap(), "");
    let (credentials, proxy) = values[0].strip_prefix("http://").unwrap().split_once('@').unwrap();
    let credentials =
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, credentials);
    let told = format!("Proxy-Authorization: Basic {credentials}\r\n");
    let ask = |request: &str| {
        let mut socket = TcpStream::connect(proxy).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        socket
    };
    let rest = |mut socket: TcpStream| {
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        text
    };
    let status = |text: &str| text.split(' ').nth(1).unwrap_or_default().to_owned();
    let body = |text: String| text.rsplit_once("\r\n\r\n").unwrap().1.to_owned();

    let mut tunnel = ask(&format!("CONNECT allowed.example:443 HTTP/1.1\r\n{told}\r\n"));
    let mut established = [0; 39];
    tunnel.read_exact(&mut established).unwrap();
    assert_eq!(&established, b"HTTP/1.1 200 Connection established\r\n\r\n");
    tunnel.write_all(b"GET /secret HTTP/1.1\r\n\r\n").unwrap();
    let tunnel = body(rest(tunnel));
    let plain = ask(&format!("GET http://allowed.example/a?b HTTP/1.1\r\n{told}\r\n"));
    let plain = body(rest(plain));
    let other = rest(ask(&format!("GET http://other.example/ HTTP/1.1\r\n{told}\r\n")));
    // The same again is told once.
    rest(ask(&format!("GET http://other.example/ HTTP/1.1\r\n{told}\r\n")));
    let connect = "CONNECT allowed.example:443 HTTP/1.1\r\n";
    let wrong = rest(ask(&format!("{connect}Proxy-Authorization: Basic eDp5\r\n\r\n")));
    let none = rest(ask(&format!("{connect}\r\n")));
    let rubbish = rest(ask(&format!("CONNECT allowed.example HTTP/1.1\r\n{told}\r\n")));
    let errno = |error: std::io::Error| error.raw_os_error().unwrap();
    let connects = |to: &str| errno(TcpStream::connect(to).unwrap_err());
    let past = connects(&std::env::var("SERVER").unwrap());
    // A kernel that judged ports alone would let this out.
    let elsewhere = connects(&format!("192.0.2.1:{}", proxy.rsplit_once(':').unwrap().1));
    let another = connects("127.0.0.1:3129");
    let listening = errno(TcpListener::bind("127.0.0.1:0").unwrap_err());
    let makes = |family: i64, kind: i64, protocol: i64| {
        errno(call(libc::SYS_socket, [family, kind, protocol]).unwrap_err())
    };
    println!(
        "said: tunnel: {tunnel}; plain: {plain}; other: {}; wrong token: {}; no token: {}; rubbish: {}; past it: {past}; \
         by its port elsewhere: {elsewhere}; another port: {another}; listening: {listening}; udp {}, raw {}, unix {}, \
         netlink {}, packet {}, mptcp {}, sctp {}; pair {}",
        status(&other),
        status(&wrong),
        status(&none),
        status(&rubbish),
        errno(UdpSocket::bind("127.0.0.1:0").unwrap_err()),
        makes(2, 3, 1),
        errno(UnixListener::bind("socket").unwrap_err()),
        makes(16, 2, 0),
        makes(17, 3, 0),
        makes(2, 1, 262),
        makes(2, 1, 132),
        if UnixStream::pair().is_ok() { "yes" } else { "no" },
    );
}

#[tokio::test]
async fn a_gateway_goes_with_seals_and_a_view_of_the_file_system_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("kept")).unwrap();
    let limits = Limits {
        sealed: vec![root.join("kept")],
        beyond: Beyond::Nothing,
        network: Network::Through(Gateway::new(Hosts::default())),
        ..limits(&root)
    };
    let script = "touch kept/new 2> /dev/null && echo escaped; echo ${HTTPS_PROXY%%:*}; touch new";

    let finished = sh(script, &root, limits).await;

    assert_eq!(finished.combined.preview(), "http\n");
    assert!(root.join("new").exists());
    assert_eq!((finished.refused, finished.reached), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn a_gateway_is_probed_by_running_something_below_one() {
    let dir = tempfile::tempdir().unwrap();

    let found = launched(dir.path()).gateways().await;
    let without = alone(dir.path()).gateways().await;

    assert_eq!(found, Status::Active("a network of its own, Landlock, seccomp".into()));
    assert_eq!(without, Status::Missing("no launcher was given".into()));
}

#[tokio::test]
async fn dangerous_system_calls_are_refused() {
    let said = attempt("attempt_calls", Network::Allowed).await;

    let wanted = "ptrace 1, io_uring 1, mount 1, unshare 1, setns 1, keyctl 1, bpf 1, chroot 1, \
                  clone into a namespace 1, clone3 38, openat2 38, x32 io_uring 1, a mode that lends 1, of a group 1, \
                  of a new file 1, of one without a name 1, a mode that lends nothing 9";
    assert_eq!(said, wanted);
}

#[test]
#[ignore = "run confined by the test above"]
fn attempt_calls() {
    let errno = |call: std::io::Result<()>| call.unwrap_err().raw_os_error().unwrap();
    let namespace = i64::from(libc::CLONE_NEWUSER);
    let calls = [
        ("ptrace", call(libc::SYS_ptrace, [0, 0, 0])),
        ("io_uring", call(libc::SYS_io_uring_setup, [1, 0, 0])),
        ("mount", call(libc::SYS_mount, [0, 0, 0])),
        ("unshare", call(libc::SYS_unshare, [namespace, 0, 0])),
        ("setns", call(libc::SYS_setns, [0, 0, 0])),
        ("keyctl", call(libc::SYS_keyctl, [0, 0, 0])),
        ("bpf", call(libc::SYS_bpf, [0, 0, 0])),
        ("chroot", call(libc::SYS_chroot, [0, 0, 0])),
        ("clone into a namespace", call(libc::SYS_clone, [namespace, 0, 0])),
        ("clone3", call(libc::SYS_clone3, [0, 0, 0])),
        ("openat2", call(libc::SYS_openat2, [0, 0, 0])),
        ("x32 io_uring", call(libc::SYS_io_uring_setup | 0x4000_0000, [1, 0, 0])),
        ("a mode that lends", call(libc::SYS_fchmod, [-1, 0o4755])),
        ("of a group", call(libc::SYS_fchmodat, [-1, 0, 0o2755])),
        ("of a new file", call(libc::SYS_openat, [-1, 0, i64::from(libc::O_CREAT), 0o4755])),
        (
            "of one without a name",
            call(libc::SYS_openat, [-1, 0, i64::from(libc::O_TMPFILE), 0o4755]),
        ),
        ("a mode that lends nothing", call(libc::SYS_fchmod, [-1, 0o1777])),
    ];
    let said: Vec<_> =
        calls.into_iter().map(|(name, it)| format!("{name} {}", errno(it))).collect();
    println!("said: {}", said.join(", "));
}

/// Makes a system call as it is, which is what a hostile program does.
fn call<const N: usize>(number: i64, given: [i64; N]) -> std::io::Result<()> {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&given);
    let [a, b, c, d, e, f] = all;
    #[expect(unsafe_code, reason = "the filter refuses the call before it looks at arguments")]
    // SAFETY: pointers among the arguments are null, which the kernel answers with an error, and
    // none of these calls changes the memory of this process.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

#[tokio::test]
async fn what_a_command_makes_lends_no_rights_to_whoever_runs_it_later() {
    let dir = tempfile::tempdir().unwrap();
    let script = "cp /bin/true lent; mkdir d; \
        for it in 'chmod u+s lent' 'chmod 4755 lent' 'chmod g+s lent' 'chmod 2755 d' 'install -m 6755 /bin/true other'; do \
            if $it 2> /dev/null; then echo \"escaped: $it\"; fi; done; \
        chmod 0755 lent && chmod 1777 d && echo as before";

    let finished = sh(script, dir.path(), limits(dir.path())).await;

    assert_eq!(finished.stdout.preview(), "as before\n", "{}", finished.combined.preview());
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().mode() & 0o6000, 0, "{:?}", entry.path());
    }
}

#[tokio::test]
async fn a_tree_with_too_many_processes_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { processes: Some(20), ..limits(dir.path()) };
    let script = "for i in $(seq 30); do sleep 1000 & done; wait";

    let finished = sh(script, dir.path(), limits).await;

    assert_eq!(finished.exit, Exit::OverLimit(Resource::Processes));
}

/// Doubles until there are some thousand, which a machine outlives on which no limit holds.
const BOMB: &str = "b() { test $1 -lt 12 || exec sleep 30; b $(($1+1)) & b $(($1+1)) & wait; }; ";

#[tokio::test]
async fn a_fork_bomb_is_killed_with_all_its_processes() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { processes: Some(40), ..limits(dir.path()) };

    let finished = sh(&format!("{BOMB} b 0"), dir.path(), limits).await;

    assert_eq!(finished.exit, Exit::OverLimit(Resource::Processes));
    assert_eq!(finished.unkillable, 0);
}

#[tokio::test]
async fn a_bomb_whose_first_process_has_ended_is_held_to_its_limit_too() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { processes: Some(40), ..limits(dir.path()) };
    let script = format!("{BOMB} echo $$; b 0 & exit 0");

    let finished = sh(&script, dir.path(), limits).await;

    assert_eq!(finished.exit, Exit::OverLimit(Resource::Processes));
    assert_eq!(finished.unkillable, 0);
    let group: i32 = finished.stdout.preview().trim().parse().unwrap();
    let group = rustix::process::Pid::from_raw(group).unwrap();
    let left = rustix::process::test_kill_process_group(group);
    assert_eq!(left, Err(rustix::io::Errno::SRCH), "nobody is left in its group");
}

#[tokio::test]
async fn a_memory_bomb_is_held_to_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { memory: Some(64 << 20), ..limits(dir.path()) };

    let one = sh("head -c 500M /dev/zero | tail -c 400M | wc -c", dir.path(), limits.clone()).await;
    // Each keeps to the limit, all together do not.
    let script =
        "for i in 1 2 3 4; do (head -c 40M /dev/zero; sleep 15) | tail -c 39M | wc -c & done; wait";
    let many = sh(script, dir.path(), limits).await;

    assert_eq!(one.exit, Exit::OverLimit(Resource::Memory), "{}", one.combined.preview());
    assert_eq!(many.exit, Exit::OverLimit(Resource::Memory), "{}", many.combined.preview());
}

#[tokio::test]
async fn files_processor_time_and_open_files_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    let all = limits(dir.path());
    let small = Limits { file_size: Some(1 << 20), ..all.clone() };
    let short = Limits { cpu: Some(Duration::from_millis(900)), ..all.clone() };
    let few = Limits { open_files: Some(8), ..all.clone() };

    let large_file = sh("exec head -c 2M /dev/zero > large", dir.path(), small).await;
    let loops = sh("while :; do :; done", dir.path(), short).await;
    let raised = sh("ulimit -n; ulimit -n 9", dir.path(), few).await;
    let core = sh("ulimit -c", dir.path(), all).await;

    assert_ne!(large_file.exit, Exit::Code(0));
    assert_eq!(std::fs::metadata(dir.path().join("large")).unwrap().len(), 1 << 20);
    assert!(matches!(loops.exit, Exit::Signal(9 | 24)), "{:?}", loops.exit);
    assert_eq!(raised.stdout.preview(), "8\n");
    assert_ne!(raised.exit, Exit::Code(0));
    assert_eq!(core.stdout.preview(), "0\n");
}

#[tokio::test]
async fn a_program_outside_the_roots_is_not_started() {
    let dir = tempfile::tempdir().unwrap();
    let only = Limits::new([dir.path()], [""; 0]);
    let command = Command::new(["/bin/true"], dir.path(), Protection::Restricted(only));

    let error = run(&launched(dir.path()), command).await.unwrap_err();

    assert!(matches!(error, Error::NotStarted { .. }), "{error:?}");
}

#[tokio::test]
async fn a_root_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let gone = dir.path().join("gone");
    let command = Command::new(["true"], dir.path(), Protection::Restricted(limits(&gone)));

    let error = run(&launched(dir.path()), command).await.unwrap_err();

    assert!(matches!(&error, Error::RootMissing { root, .. } if *root == gone), "{error:?}");
}

#[tokio::test]
async fn confinement_without_a_launcher_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let command =
        Command::new(["touch", "it"], dir.path(), Protection::Restricted(limits(dir.path())));

    let error = run(&alone(dir.path()), command).await.unwrap_err();

    assert!(matches!(error, Error::ProtectionMissing { .. }), "{error:?}");
    assert!(!dir.path().join("it").exists());
}

#[test]
fn this_machine_has_the_protections_that_these_tests_need() {
    let found = probe();

    let wanted = |by: &str| Status::Active(by.into());
    assert!(found.files.to_string().starts_with("active (Landlock ABI "), "{}", found.files);
    assert_eq!(found.scopes, wanted("Landlock"));
    assert_eq!(found.system_calls, wanted("seccomp"));
    assert_eq!(found.whole_tree, wanted("subreaper"));
    assert!(!matches!(found.processes, Status::Missing(_)), "{}", found.processes);
    assert_eq!(found.memory, wanted("counts"));
}
