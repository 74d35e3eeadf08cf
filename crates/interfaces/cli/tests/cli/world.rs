//! A workspace of one's own, and the program that is run in it.

use std::{
    fmt, fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use tempfile::TempDir;

/// A workspace with folders of its own for config and state.
pub(crate) struct World {
    home: TempDir,
    variables: Vec<(&'static str, &'static str)>,
}

/// What a run of the program gave.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl World {
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("work")).unwrap();
        Self { home, variables: Vec::new() }
    }

    /// Sets a variable of the environment, of which the program otherwise sees next to nothing.
    pub(crate) fn set(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.home.path().join("work").join(below)
    }

    pub(crate) fn put(&self, below: &str, text: &str) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Returns the folder of state.
    pub(crate) fn state(&self) -> PathBuf {
        self.home.path().join("state")
    }

    /// Takes from everybody the right to write the folder of state and the log in it, or gives it back.
    pub(crate) fn only_read(&self, only: bool) {
        use std::os::unix::fs::PermissionsExt as _;
        for name in ["formwork.db-wal", "formwork.db-shm"] {
            let _ = fs::remove_file(self.state().join(name));
        }
        let modes = if only { (0o555, 0o444) } else { (0o755, 0o644) };
        for (path, mode) in [(self.state(), modes.0), (self.state().join("formwork.db"), modes.1)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    /// Runs `formwork` without the rights that root has beyond those of its owner.
    pub(crate) fn run_by_nobody(&self, arguments: &[&str]) -> Ran {
        let own = self.command(arguments);
        let mut command = Command::new("unshare");
        command.arg("--user").arg(own.get_program()).args(own.get_args());
        command.env_clear().envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(self.path("")).stdin(Stdio::null());
        self.ran(&mut command)
    }

    /// Returns `formwork` in the workspace, with these arguments.
    fn command(&self, arguments: &[&str]) -> Command {
        let home = self.home.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_formwork"));
        command
            .args(arguments)
            .current_dir(home.join("work"))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", home)
            .env("FORMWORK_CONFIG_DIR", home.join("config"))
            .env("FORMWORK_STATE_DIR", home.join("state"))
            .envs(self.variables.iter().copied())
            .stdin(Stdio::null());
        command
    }

    /// Runs `formwork` with an output whose reader has gone, and returns its code.
    pub(crate) fn run_unread(&self, arguments: &[&str]) -> i32 {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = self.command(arguments);
        command.stdout(writer).stderr(Stdio::null()).status().unwrap().code().unwrap()
    }

    /// Runs `formwork` with nothing but this home to say where its folders are.
    pub(crate) fn run_at_home(&self, home: &str, arguments: &[&str]) -> Ran {
        let mut command = self.command(arguments);
        command.env_remove("FORMWORK_CONFIG_DIR").env_remove("FORMWORK_STATE_DIR");
        self.ran(command.env("HOME", home))
    }

    /// Runs `formwork` with a file as its standard input.
    pub(crate) fn run_fed(&self, arguments: &[&str], file: &str) -> Ran {
        self.ran(self.command(arguments).stdin(fs::File::open(file).unwrap()))
    }

    /// Runs `formwork` once a script of `sh` has changed the process that it is run in.
    pub(crate) fn run_within(&self, script: &str, arguments: &[&str]) -> Ran {
        let own = self.command(arguments);
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{script}\nexec \"$@\"")).arg("sh");
        command.arg(own.get_program()).args(own.get_args()).env_clear();
        command.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(self.path("")).stdin(Stdio::null());
        self.ran(&mut command)
    }

    /// Runs `formwork` in the workspace.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.ran(&mut self.command(arguments))
    }

    fn ran(&self, command: &mut Command) -> Ran {
        let home = self.home.path();
        let output = command.output().unwrap();
        // Where the folders are is different each time.
        let real = home.canonicalize().unwrap();
        let text = |bytes: &[u8]| {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            text.replace(&*real.to_string_lossy(), "HOME").replace(&*home.to_string_lossy(), "HOME")
        };
        Ran {
            code: output.status.code().unwrap(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {}\n\n--- out\n{}\n--- err\n{}", self.code, self.stdout, self.stderr)
    }
}
