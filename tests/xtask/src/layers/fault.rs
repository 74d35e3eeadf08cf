//! Finds what breaks the rule of layers, from the manifests alone.

use std::fmt;

use super::table::{Home, InTests, Layer, MEMBERS, Member, OUTSIDE, Outside, SIDEWAYS, find};

/// The packages of a workspace and what they ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Graph {
    pub nodes: Vec<Node>,
}

/// A package as its manifest says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub package: String,
    pub folder: String,
    pub edges: Vec<Edge>,
}

/// A dependency by the name of the package, whatever it is renamed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edge {
    pub to: String,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Dev,
    Build,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "dependency",
            Self::Dev => "dev-dependency",
            Self::Build => "build-dependency",
        })
    }
}

/// One breach of the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A package of the workspace that the table doesn't hold, so that nothing holds it.
    Unlisted { package: String },
    /// A row of the table without a package.
    Gone { package: &'static str },
    /// A package in another folder than the table says.
    Misplaced { package: String, folder: String, wanted: &'static str },
    /// An edge to a higher layer.
    Upward { from: &'static Member, to: &'static Member, kind: Kind },
    /// An edge within a layer that is not declared.
    Sideways { from: &'static Member, to: &'static Member, kind: Kind },
    /// The test kit in what is not a test.
    KitOutsideTests { from: &'static Member, kind: Kind },
    /// An outside crate where it has no business.
    OutOfPlace { from: &'static Member, outside: &'static Outside, kind: Kind },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlisted { package } => {
                write!(f, "{package} is in the workspace and not in the table of layers")
            }
            Self::Gone { package } => {
                write!(f, "{package} is in the table of layers and not in the workspace")
            }
            Self::Misplaced { package, folder, wanted } => {
                write!(f, "{package} lies in {folder}, and its place is {wanted}")
            }
            Self::Upward { from, to, kind } => write!(
                f,
                "upward: {} ({}) has {} ({}) as a {kind}",
                from.package,
                from.layer.name(),
                to.package,
                to.layer.name()
            ),
            Self::Sideways { from, to, kind } => write!(
                f,
                "sideways: {} has {} as a {kind}, and {} declares no such edge",
                from.package,
                to.package,
                from.layer.name()
            ),
            Self::KitOutsideTests { from, kind } => {
                write!(f, "the test kit is a {kind} of {}, and only tests may use it", from.package)
            }
            Self::OutOfPlace { from, outside, kind } => write!(
                f,
                "out of place: {} has {} as a {kind}, but {}",
                from.package, outside.name, outside.because
            ),
        }
    }
}

/// Returns every breach of the rule in `graph`, in the order of its packages.
pub(crate) fn faults(graph: &Graph) -> Vec<Fault> {
    let mut faults = Vec::new();
    for node in &graph.nodes {
        let Some(member) = find(&node.package) else {
            faults.push(Fault::Unlisted { package: node.package.clone() });
            continue;
        };
        if node.folder != member.folder {
            faults.push(Fault::Misplaced {
                package: node.package.clone(),
                folder: node.folder.clone(),
                wanted: member.folder,
            });
        }
        faults.extend(node.edges.iter().filter_map(|edge| fault_of(member, edge)));
    }
    let listed = |member: &&Member| graph.nodes.iter().any(|node| node.package == member.package);
    let gone = MEMBERS.iter().filter(|member| !listed(member));
    faults.extend(gone.map(|member| Fault::Gone { package: member.package }));
    faults
}

fn fault_of(from: &'static Member, edge: &Edge) -> Option<Fault> {
    if let Some(to) = find(&edge.to) {
        return inside(from, to, edge.kind);
    }
    let outside = OUTSIDE.iter().find(|outside| outside.name == edge.to)?;
    (!at_home(from, outside, edge.kind)).then_some(Fault::OutOfPlace {
        from,
        outside,
        kind: edge.kind,
    })
}

/// Returns what is wrong with an edge between two packages of the workspace.
pub(crate) fn inside(from: &'static Member, to: &'static Member, kind: Kind) -> Option<Fault> {
    let upward = Some(Fault::Upward { from, to, kind });
    match (from.layer, to.layer) {
        (_, Layer::Workshop) => upward,
        (Layer::Workshop, _) => None,
        // The kit stands on the vocabulary, whose own tests would otherwise stand on themselves.
        (Layer::Protocols, Layer::Testkit) => upward,
        (_, Layer::Testkit) if kind == Kind::Dev => None,
        (_, Layer::Testkit) => Some(Fault::KitOutsideTests { from, kind }),
        (Layer::Testkit, Layer::Protocols) => None,
        (Layer::Testkit, _) => upward,
        (above, below) if above > below => None,
        (below, above) if below < above => upward,
        _ => {
            let declared =
                SIDEWAYS.iter().any(|edge| edge.from == from.package && edge.to == to.package);
            (!declared).then_some(Fault::Sideways { from, to, kind })
        }
    }
}

/// Returns whether `from` may have `outside` as a dependency of this kind.
pub(crate) fn at_home(from: &Member, outside: &Outside, kind: Kind) -> bool {
    if from.layer == Layer::Workshop || kind == Kind::Dev && outside.tests == InTests::Anywhere {
        return true;
    }
    match outside.home {
        Home::Above(layer) => from.layer > layer,
        Home::In(layer) => from.layer == layer,
        Home::Alone(packages) | Home::Packages(packages) => packages.contains(&from.package),
    }
}

#[cfg(test)]
mod tests {
    use super::{Edge, Fault, Graph, Kind, MEMBERS, Node, faults};

    /// The workspace as the table says, without a dependency.
    fn bare() -> Graph {
        let nodes = MEMBERS.iter().map(|member| Node {
            package: member.package.to_owned(),
            folder: member.folder.to_owned(),
            edges: Vec::new(),
        });
        Graph { nodes: nodes.collect() }
    }

    fn breaches(from: &str, to: &str, kind: Kind) -> Vec<String> {
        let mut graph = bare();
        let node = graph.nodes.iter_mut().find(|node| node.package == from).unwrap();
        node.edges.push(Edge { to: to.to_owned(), kind });
        faults(&graph).iter().map(Fault::to_string).collect()
    }

    #[test]
    fn a_bare_workspace_has_no_fault() {
        assert_eq!(faults(&bare()), []);
    }

    #[test]
    fn an_upward_edge_is_named() {
        assert_eq!(
            breaches("formwork-trace", "formwork-scheduler", Kind::Normal),
            [
                "upward: formwork-trace (foundation) has formwork-scheduler (orchestration) as a dependency"
            ]
        );
    }

    #[test]
    fn an_upward_edge_of_tests_alone_is_named() {
        assert_eq!(
            breaches("formwork-tool", "formwork-services", Kind::Dev),
            [
                "upward: formwork-tool (foundation) has formwork-services (composition) as a dev-dependency"
            ]
        );
    }

    #[test]
    fn an_undeclared_sideways_edge_is_named() {
        assert_eq!(
            breaches("formwork-sandbox", "formwork-policy", Kind::Normal),
            [
                "sideways: formwork-sandbox has formwork-policy as a dependency, and foundation declares no such edge"
            ]
        );
    }

    #[test]
    fn declared_and_downward_edges_pass() {
        let none: [&str; 0] = [];
        assert_eq!(breaches("formwork-policy", "formwork-sandbox", Kind::Normal), none);
        assert_eq!(breaches("formwork-cli", "formwork-trace", Kind::Normal), none);
        assert_eq!(breaches("formwork-examples", "formwork-cli", Kind::Dev), none);
    }

    #[test]
    fn nobody_depends_on_the_workshop() {
        assert_eq!(
            breaches("formwork-bench", "xtask", Kind::Build),
            ["upward: formwork-bench (workshop) has xtask (workshop) as a build-dependency"]
        );
    }

    #[test]
    fn the_test_kit_is_for_tests_above_the_vocabulary() {
        let none: [&str; 0] = [];
        assert_eq!(breaches("formwork-trace", "formwork-testkit", Kind::Dev), none);
        assert_eq!(breaches("formwork-e2e", "formwork-testkit", Kind::Normal), none);
        assert_eq!(
            breaches("formwork-trace", "formwork-testkit", Kind::Normal),
            ["the test kit is a dependency of formwork-trace, and only tests may use it"]
        );
        assert_eq!(
            breaches("formwork-protocols", "formwork-testkit", Kind::Dev),
            [
                "upward: formwork-protocols (protocols) has formwork-testkit (testkit) as a dev-dependency"
            ]
        );
        assert_eq!(
            breaches("formwork-testkit", "formwork-trace", Kind::Normal),
            ["upward: formwork-testkit (testkit) has formwork-trace (foundation) as a dependency"]
        );
    }

    #[test]
    fn an_outside_crate_without_business_is_named_with_its_reason() {
        assert_eq!(
            breaches("formwork-protocols", "tokio", Kind::Dev),
            [
                "out of place: formwork-protocols has tokio as a dev-dependency, but the vocabulary has no runtime"
            ]
        );
        assert_eq!(
            breaches("formwork-services", "sqlx", Kind::Normal),
            [
                "out of place: formwork-services has sqlx as a dependency, but one crate owns the stores"
            ]
        );
        assert_eq!(
            breaches("formwork-scheduler", "clap", Kind::Normal),
            [
                "out of place: formwork-scheduler has clap as a dependency, but only a program has arguments"
            ]
        );
    }

    #[test]
    fn an_outside_crate_at_home_passes() {
        let none: [&str; 0] = [];
        assert_eq!(breaches("formwork-trace", "sqlx", Kind::Normal), none);
        assert_eq!(breaches("formwork-services", "reqwest", Kind::Dev), none);
        assert_eq!(breaches("xtask", "anyhow", Kind::Normal), none);
    }

    #[test]
    fn a_package_and_a_row_that_do_not_meet_are_named() {
        let mut graph = bare();
        let node = graph.nodes.iter_mut().find(|node| node.package == "formwork-verify").unwrap();
        node.package = "formwork-judge".to_owned();

        let named: Vec<String> = faults(&graph).iter().map(Fault::to_string).collect();

        assert_eq!(
            named,
            [
                "formwork-judge is in the workspace and not in the table of layers",
                "formwork-verify is in the table of layers and not in the workspace",
            ]
        );
    }

    #[test]
    fn a_package_in_a_foreign_folder_is_named() {
        let mut graph = bare();
        let node = graph.nodes.iter_mut().find(|node| node.package == "formwork-verify").unwrap();
        node.folder = "crates/orchestration/verify".to_owned();

        let named: Vec<String> = faults(&graph).iter().map(Fault::to_string).collect();

        assert_eq!(
            named,
            [
                "formwork-verify lies in crates/orchestration/verify, and its place is crates/foundation/verify"
            ]
        );
    }

    #[test]
    fn each_folder_tells_the_layer_and_the_name() {
        for member in MEMBERS.iter().filter(|member| member.folder.starts_with("crates/")) {
            let name = member.package.strip_prefix("formwork-").unwrap();
            let layer = member.layer.name();
            let wanted = match name {
                "protocols" => "crates/protocols".to_owned(),
                _ => format!("crates/{layer}/{name}"),
            };
            assert_eq!(member.folder, wanted);
        }
    }
}
