//! The one table of layers: who is in the workspace, and who may depend on whom.
//!
//! After a change here run `cargo xtask layers --write`.

/// A layer, lowest first. A crate depends on lower layers only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    /// The vocabulary that every other crate speaks.
    Protocols,
    /// One ability each.
    Foundation,
    /// Decides what happens next.
    Orchestration,
    /// Everything wired together.
    Composition,
    /// Protocols of others, translated and nothing more.
    Interfaces,
    /// What tests share: stands on the vocabulary alone, and products use it in tests only.
    Testkit,
    /// Tests of the whole, benches, examples, this program: they may use anything, nobody them.
    Workshop,
}

impl Layer {
    pub(crate) const ALL: [Self; 7] = [
        Self::Protocols,
        Self::Foundation,
        Self::Orchestration,
        Self::Composition,
        Self::Interfaces,
        Self::Testkit,
        Self::Workshop,
    ];

    /// Returns the name as it stands in text, and for a product's layer as its folder.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Protocols => "protocols",
            Self::Foundation => "foundation",
            Self::Orchestration => "orchestration",
            Self::Composition => "composition",
            Self::Interfaces => "interfaces",
            Self::Testkit => "testkit",
            Self::Workshop => "workshop",
        }
    }
}

/// A package of the workspace, its folder and its layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    pub package: &'static str,
    pub folder: &'static str,
    pub layer: Layer,
}

const fn member(package: &'static str, folder: &'static str, layer: Layer) -> Member {
    Member { package, folder, layer }
}

/// Every package of the workspace, lowest layer first.
pub(crate) const MEMBERS: &[Member] = &[
    member("formwork-protocols", "crates/protocols", Layer::Protocols),
    member("formwork-codebase", "crates/foundation/codebase", Layer::Foundation),
    member("formwork-compose", "crates/foundation/compose", Layer::Foundation),
    member("formwork-expression", "crates/foundation/expression", Layer::Foundation),
    member("formwork-secrets", "crates/foundation/secrets", Layer::Foundation),
    member("formwork-write-safety", "crates/foundation/write-safety", Layer::Foundation),
    member("formwork-sandbox", "crates/foundation/sandbox", Layer::Foundation),
    member("formwork-policy", "crates/foundation/policy", Layer::Foundation),
    member("formwork-transport", "crates/foundation/transport", Layer::Foundation),
    member("formwork-agent", "crates/foundation/agent", Layer::Foundation),
    member("formwork-context", "crates/foundation/context", Layer::Foundation),
    member("formwork-session", "crates/foundation/session", Layer::Foundation),
    member("formwork-tool", "crates/foundation/tool", Layer::Foundation),
    member("formwork-browser", "crates/foundation/browser", Layer::Foundation),
    member("formwork-verify", "crates/foundation/verify", Layer::Foundation),
    member("formwork-trace", "crates/foundation/trace", Layer::Foundation),
    member("formwork-auth", "crates/foundation/auth", Layer::Foundation),
    member("formwork-worker", "crates/foundation/worker", Layer::Foundation),
    member("formwork-scheduler", "crates/orchestration/scheduler", Layer::Orchestration),
    member("formwork-dispatch", "crates/orchestration/dispatch", Layer::Orchestration),
    member("formwork-services", "crates/composition/services", Layer::Composition),
    member("formwork-api", "crates/interfaces/api", Layer::Interfaces),
    member("formwork-mcp", "crates/interfaces/mcp", Layer::Interfaces),
    member("formwork-cli", "crates/interfaces/cli", Layer::Interfaces),
    member("formwork-testkit", "tests/support", Layer::Testkit),
    member("formwork-e2e", "tests/e2e", Layer::Workshop),
    member("formwork-bench", "tests/bench", Layer::Workshop),
    member("formwork-examples", "examples", Layer::Workshop),
    member("xtask", "tests/xtask", Layer::Workshop),
];

/// An edge between two packages of one layer, and why it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sideways {
    pub from: &'static str,
    pub to: &'static str,
    pub because: &'static str,
}

const KERNEL: &str = "the call pipeline is the one safety kernel";

/// The only edges within a layer.
pub(crate) const SIDEWAYS: &[Sideways] = &[
    sideways("formwork-agent", "formwork-compose", "a definition's prompt is composed"),
    sideways(
        "formwork-session",
        "formwork-context",
        "every model call is brought within the window",
    ),
    sideways("formwork-tool", "formwork-write-safety", KERNEL),
    sideways("formwork-tool", "formwork-sandbox", KERNEL),
    sideways("formwork-tool", "formwork-policy", KERNEL),
    sideways("formwork-tool", "formwork-secrets", KERNEL),
    sideways("formwork-browser", "formwork-tool", "a page may ask where http may"),
    sideways("formwork-worker", "formwork-tool", "the far end runs the same pipeline"),
    sideways("formwork-verify", "formwork-sandbox", "a command check is a process"),
    sideways("formwork-policy", "formwork-sandbox", "a hook is a process"),
    sideways("formwork-cli", "formwork-api", "the program serves it"),
    sideways("formwork-cli", "formwork-mcp", "the program is what a client starts"),
];

const fn sideways(from: &'static str, to: &'static str, because: &'static str) -> Sideways {
    Sideways { from, to, because }
}

/// An outside crate that has business in some places only. The workshop may use anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outside {
    pub name: &'static str,
    pub home: Home,
    pub tests: InTests,
    pub because: &'static str,
}

/// Where an outside crate may be a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// In every layer above this one.
    Above(Layer),
    /// In one layer.
    In(Layer),
    /// In these packages. No outside crate depends on it, so cargo-deny can hold it as well.
    Alone(&'static [&'static str]),
    /// In these packages. Outside crates depend on it too, so only our own edges can be held.
    Packages(&'static [&'static str]),
}

/// Whether a dev-dependency may be anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InTests {
    Anywhere,
    AtHome,
}

const CLI: Home = Home::Packages(&["formwork-cli"]);
const ONE_SERVER: &str = "one crate listens";
const NO_RUNTIME: &str = "the vocabulary has no runtime";
const TOLD_ONCE: &str = "an error is told once, where it meets a person";

/// The outside crates that are held to a place.
pub(crate) const OUTSIDE: &[Outside] = &[
    outside("tokio", Home::Above(Layer::Protocols), InTests::AtHome, NO_RUNTIME),
    outside("tokio-util", Home::Above(Layer::Protocols), InTests::AtHome, NO_RUNTIME),
    outside("tokio-stream", Home::Above(Layer::Protocols), InTests::AtHome, NO_RUNTIME),
    outside(
        "reqwest",
        Home::Packages(&["formwork-transport", "formwork-tool"]),
        InTests::Anywhere,
        "one client speaks to providers, one to where tools are let",
    ),
    outside("sqlx", Home::Alone(&["formwork-trace"]), InTests::AtHome, "one crate owns the stores"),
    outside(
        "zstd",
        Home::Alone(&["formwork-trace"]),
        InTests::AtHome,
        "one crate compresses what is kept",
    ),
    outside(
        "ring",
        Home::Packages(&["formwork-trace", "formwork-services"]),
        InTests::AtHome,
        "one crate signs what was recorded, one checks who has signed what is sent",
    ),
    outside(
        "linux-keyutils",
        Home::Alone(&["formwork-secrets", "formwork-testkit"]),
        InTests::Anywhere,
        "one crate asks the kernel for keys",
    ),
    outside(
        "jsonschema",
        Home::Alone(&["formwork-tool", "formwork-transport", "formwork-scheduler"]),
        InTests::AtHome,
        "its interface changes often",
    ),
    outside(
        "tree-sitter",
        Home::Packages(&["formwork-codebase", "formwork-policy"]),
        InTests::AtHome,
        "one crate reads languages, one the command lines of a shell",
    ),
    outside(
        "cel",
        Home::Alone(&["formwork-expression"]),
        InTests::AtHome,
        "one crate bounds what an expression can do",
    ),
    outside(
        "axum",
        Home::Packages(&["formwork-api", "formwork-cli", "formwork-worker"]),
        InTests::AtHome,
        "only interfaces serve, and one crate takes the sockets of workers",
    ),
    outside("hyper", Home::Packages(&["formwork-api"]), InTests::AtHome, ONE_SERVER),
    outside("hyper-util", Home::Packages(&["formwork-api"]), InTests::AtHome, ONE_SERVER),
    outside("http-body-util", Home::Packages(&["formwork-api"]), InTests::AtHome, ONE_SERVER),
    outside(
        "rmcp",
        Home::Alone(&["formwork-mcp"]),
        InTests::AtHome,
        "one crate speaks MCP, and asks itself as others would",
    ),
    outside(
        "tokio-tungstenite",
        Home::Packages(&["formwork-worker"]),
        InTests::AtHome,
        "one crate dials hubs",
    ),
    outside("clap", Home::In(Layer::Interfaces), InTests::AtHome, "only a program has arguments"),
    outside("clap_complete", CLI, InTests::AtHome, "only a program has completions"),
    outside("miette", CLI, InTests::AtHome, TOLD_ONCE),
    outside("anyhow", CLI, InTests::AtHome, TOLD_ONCE),
    outside("ratatui", CLI, InTests::AtHome, "only the program draws"),
    outside("crossterm", CLI, InTests::AtHome, "only the program draws"),
];

const fn outside(name: &'static str, home: Home, tests: InTests, because: &'static str) -> Outside {
    Outside { name, home, tests, because }
}

/// Returns the row of `package`.
pub(crate) fn find(package: &str) -> Option<&'static Member> {
    MEMBERS.iter().find(|member| member.package == package)
}
