//! Variables: which a shell text may set, and which may be given to a program.
//!
//! What is given to a program is a closed list: nobody knows all the names by which some program can be made to run others.
//! What only the shell sees is harmless, unless the shell itself makes something of it or its programs have it already.

/// Set by a shell itself, or read by it for what it does. Its text may set none of these, but for the two lists below.
const OWN: &[&str] = &[
    "CHILD_MAX",
    "COMPREPLY",
    "COPROC",
    "DIRSTACK",
    "EMACS",
    "ENV",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "EXECIGNORE",
    "FCEDIT",
    "FIGNORE",
    "FUNCNAME",
    "FUNCNEST",
    "GLOBIGNORE",
    "GLOBSORT",
    "GROUPS",
    "HISTCMD",
    "HISTCONTROL",
    "HISTFILE",
    "HISTFILESIZE",
    "HISTIGNORE",
    "HISTSIZE",
    "HISTTIMEFORMAT",
    "HOSTFILE",
    "HOSTTYPE",
    "IFS",
    "IGNOREEOF",
    "INPUTRC",
    "INSIDE_EMACS",
    "LINENO",
    "MACHTYPE",
    "MAIL",
    "MAILCHECK",
    "MAILPATH",
    "MAPFILE",
    "OLDPWD",
    "OPTARG",
    "OPTERR",
    "OPTIND",
    "OSTYPE",
    "PIPESTATUS",
    "POSIXLY_CORRECT",
    "POSIX_PEDANTIC",
    "PPID",
    "PROMPT_COMMAND",
    "PROMPT_DIRTRIM",
    "PS0",
    "PS1",
    "PS2",
    "PS3",
    "PS4",
    "PWD",
    "RANDOM",
    "REPLY",
    "SECONDS",
    "SHELLOPTS",
    "SHLVL",
    "SRANDOM",
    "TIMEFORMAT",
    "TMOUT",
    "UID",
    "_",
    "auto_resume",
    "histchars",
];

/// Of these, those that a text may set to anything, for a shell does nothing by their value but to part words.
const PLAIN: &[&str] = &["IFS", "OPTARG", "REPLY", "_"];

/// Of these, those that a text may set to a number: whatever else they are set to, a shell reckons, and by that runs the
/// `$(…)` of `a[$(…)]`.
const RECKONED: &[&str] = &["OPTERR", "OPTIND", "RANDOM", "SECONDS", "SRANDOM"];

/// By these, some program can be made to run what it was not told to run.
const LISTED: &[&str] = &[
    "AR",
    "AS",
    "BROWSER",
    "BUNDLE_GEMFILE",
    "CC",
    "CDPATH",
    "CLASSPATH",
    "CPP",
    "CXX",
    "EDITOR",
    "FC",
    "GEM_HOME",
    "GEM_PATH",
    "GNUMAKEFLAGS",
    "GOENV",
    "GOFLAGS",
    "GOPATH",
    "GOROOT",
    "GOTOOLCHAIN",
    "GRADLE_OPTS",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "ALL_PROXY",
    "JAVA_HOME",
    "JAVA_OPTS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LD",
    "LESS",
    "LESSCLOSE",
    "LESSOPEN",
    "LOCPATH",
    "LOGNAME",
    "LUA_CPATH",
    "LUA_INIT",
    "LUA_PATH",
    "MAKE",
    "MAKEFILES",
    "MAKEFLAGS",
    "MANPAGER",
    "MAVEN_OPTS",
    "NLSPATH",
    "NO_PROXY",
    "OPENSSL_CONF",
    "OPENSSL_MODULES",
    "OPENSSL_ENGINES",
    "PAGER",
    "PATH",
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "PYTEST_ADDOPTS",
    "PYTEST_PLUGINS",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "RIPGREP_CONFIG_PATH",
    "RSYNC_CONNECT_PROG",
    "RSYNC_RSH",
    "RUBYLIB",
    "RUBYOPT",
    "RUSTFLAGS",
    "SHELL",
    "SSH_ASKPASS",
    "TAR_OPTIONS",
    "TERMINFO",
    "USER",
    "VISUAL",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "_JAVA_OPTIONS",
];

/// The same, by what their names begin with.
const BEGINNINGS: &[&str] = &[
    "BUNDLE_",
    "CARGO_",
    "DOTNET_",
    "GIT_",
    "MSBUILD",
    "NODE_",
    "NPM_CONFIG_",
    "NUGET_",
    "PIP_",
    "PNPM_",
    "RUSTC",
    "RUSTDOC",
    "RUSTUP_",
    "TEXTDOMAIN",
    "UV_",
    "XDG_",
    "YARN_",
    "npm_",
    "pnpm_",
];

/// What may be given to any program: what it prints and how, where it is, how many tests it runs at once.
const HARMLESS: &[&str] = &[
    "CARGO_INCREMENTAL",
    "CARGO_NET_OFFLINE",
    "CARGO_TERM_COLOR",
    "CGO_ENABLED",
    "CI",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "COLUMNS",
    "DEBUG",
    "FORCE_COLOR",
    "GIT_TERMINAL_PROMPT",
    "GOARCH",
    "GOOS",
    "HOST",
    "LANG",
    "LANGUAGE",
    "LINES",
    "LOG_LEVEL",
    "NO_COLOR",
    "PORT",
    "PROPTEST_CASES",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHASHSEED",
    "PYTHONIOENCODING",
    "PYTHONUNBUFFERED",
    "PYTHONUTF8",
    "PY_COLORS",
    "RUST_BACKTRACE",
    "RUST_LIB_BACKTRACE",
    "RUST_LOG",
    "RUST_TEST_THREADS",
    "SOURCE_DATE_EPOCH",
    "TEMP",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "V",
    "VERBOSE",
];

/// What a variable is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// A number, whatever happens.
    Number,
    /// A list, written as `(…)` without quotes.
    List,
    /// A text that is known and is no list, even where it is read again.
    Text,
    /// Anything.
    Unknown,
}

/// Says whether a shell text may set a variable that its programs are not given by that.
pub(super) fn may_be_set(name: &str, value: Value, all_may_run: bool) -> bool {
    match is_own(name) {
        true => PLAIN.contains(&name) || (RECKONED.contains(&name) && value == Value::Number),
        false => !loads(name) && (all_may_run || is_harmless(name) || !is_listed(name)),
    }
}

/// Says whether a variable may be given to programs, whatever it is set to.
pub(super) fn may_be_given(name: &str, all_may_run: bool) -> bool {
    let is_any = !is_own(name) && !loads(name);
    is_any && (all_may_run || is_harmless(name))
}

/// Says whether a variable may stand in a sum, where it is only set to numbers.
pub(super) fn may_be_reckoned(name: &str, all_may_run: bool) -> bool {
    may_be_set(name, Value::Number, all_may_run) && !PLAIN.contains(&name)
}

/// Says whether a shell itself makes something of a variable.
fn is_own(name: &str) -> bool {
    OWN.contains(&name)
        || ["BASH", "COMP_", "READLINE_", "ZSH"].iter().any(|it| name.starts_with(it))
}

/// Says whether it makes every program load code of its value's choosing.
fn loads(name: &str) -> bool {
    name == "GCONV_PATH" || ["LD_", "DYLD_"].iter().any(|it| name.starts_with(it))
}

fn is_listed(name: &str) -> bool {
    LISTED.contains(&name) || BEGINNINGS.iter().any(|it| name.starts_with(it)) || is_proxy(name)
}

/// Says whether a variable is known to make no program run anything: by name, or as one of the text's own, in small
/// letters, which no program is set up by.
fn is_harmless(name: &str) -> bool {
    let is_own =
        name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_')
            && name.bytes().any(|it| it.is_ascii_lowercase());
    let is_set_up = || {
        ["npm_", "pnpm_", "yarn_", "bun_"].iter().any(|it| name.starts_with(it)) || is_proxy(name)
    };
    HARMLESS.contains(&name) || name.starts_with("LC_") || (is_own && !is_set_up())
}

fn is_proxy(name: &str) -> bool {
    name.ends_with("_proxy")
}
