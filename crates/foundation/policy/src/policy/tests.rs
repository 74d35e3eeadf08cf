use proptest::prelude::*;

use super::*;

fn name(text: &str) -> ToolName {
    ToolName::parse(text).unwrap()
}

fn call<'a>(
    tool: &'a ToolName,
    class: ToolClass,
    argv: &'a [String],
    paths: &'a [&'a str],
) -> Call<'a> {
    Call {
        tool,
        class,
        argv: (matches!(class, ToolClass::Exec | ToolClass::Shell)).then_some(argv),
        paths,
    }
}

fn decide(rules: Rules, class: ToolClass) -> Decision {
    let (tool, argv) = (name("it"), ["true".to_owned()]);
    Policy::new(rules).decide(&call(&tool, class, &argv, &["src/lib.rs"]))
}

#[test]
fn each_mode_offers_its_classes_and_all_of_the_lesser_modes() {
    let offered = |mode| {
        let policy = Policy::new(Rules::new(mode));
        let classes = ToolClass::ALL.into_iter().filter(|class| policy.offers(*class));
        classes.map(ToolClass::as_str).collect::<Vec<_>>().join(" ")
    };

    assert_eq!(offered(PermissionMode::Ask), "read lifecycle");
    assert_eq!(offered(PermissionMode::Plan), "read memory lifecycle");
    let all = "read write delete exec shell network memory lifecycle";
    assert_eq!(offered(PermissionMode::Edit), all);
    assert_eq!(offered(PermissionMode::Auto), all);
}

#[test]
fn a_mode_decides_on_what_it_offers() {
    use ToolClass::{Delete, Exec, Network, Read, Shell, Write};
    let by_mode = |mode, class| decide(Rules::new(mode), class);

    for class in [Read, Write, Delete] {
        assert_eq!(by_mode(PermissionMode::Edit, class), Decision::Allow);
    }
    for class in [Exec, Shell, Network] {
        assert!(matches!(by_mode(PermissionMode::Edit, class), Decision::Ask { .. }), "{class:?}");
        assert_eq!(by_mode(PermissionMode::Auto, class), Decision::Allow);
        assert!(matches!(by_mode(PermissionMode::Plan, class), Decision::Deny { .. }), "{class:?}");
    }
}

#[test]
fn a_tool_that_is_not_on_the_list_is_denied() {
    let mut rules = Rules::new(PermissionMode::Auto);
    rules.tools = Some([name("other")].into());

    let decision = decide(rules, ToolClass::Read);

    assert_eq!(decision, Decision::Deny { why: "tool it is not on the allow-list".into() });
}

#[test]
fn a_list_of_commands_allows_what_it_names_and_denies_the_rest() {
    let with = |pattern| {
        let mut rules = Rules::new(PermissionMode::Edit);
        rules.commands = Some(CommandPatterns::parse([pattern]).unwrap());
        decide(rules, ToolClass::Exec)
    };

    assert_eq!(with("true"), Decision::Allow);
    assert!(matches!(with("false"), Decision::Deny { .. }));
}

#[test]
fn a_protected_path_is_read_and_not_changed() {
    let with = |class| {
        let mut rules = Rules::new(PermissionMode::Auto);
        rules.protected = PathPatterns::parse(["src"]).unwrap();
        decide(rules, class)
    };

    assert_eq!(with(ToolClass::Read), Decision::Allow);
    let why = r#"path "src/lib.rs" is protected by "src""#.to_owned();
    assert_eq!(with(ToolClass::Write), Decision::Deny { why: why.clone() });
    assert_eq!(with(ToolClass::Delete), Decision::Deny { why });
}

#[test]
fn a_child_without_a_list_keeps_its_parents() {
    let mut rules = Rules::new(PermissionMode::Edit);
    rules.commands = Some(CommandPatterns::parse(["true"]).unwrap());
    let child = Policy::new(rules).narrow(Rules::new(PermissionMode::Auto));
    let tool = name("exec");
    let decide = |word: &str| child.decide(&call(&tool, ToolClass::Exec, &[word.to_owned()], &[]));

    assert_eq!(decide("true"), Decision::Allow);
    assert!(matches!(decide("false"), Decision::Deny { .. }));
    assert_eq!(child.mode(), PermissionMode::Edit);
}

#[test]
fn without_a_shell_no_program_is_given_shell_text_that_no_pattern_spells_out() {
    let decide = |shell: bool, argv: &[&str]| {
        let mut rules = Rules::new(PermissionMode::Edit);
        rules.shell = shell;
        let patterns = ["ls *", "find . -exec *", "bash -c 'ls | wc'", "bash build.sh"];
        rules.commands = Some(CommandPatterns::parse(patterns).unwrap());
        let (tool, argv): (_, Vec<String>) =
            (name("exec"), argv.iter().map(ToString::to_string).collect());
        Policy::new(rules).decide(&call(&tool, ToolClass::Exec, &argv, &[]))
    };

    for text in [
        &["bash", "-c", "ls | ls > out"][..],
        &["bash", "-lc", "ls"],
        &["timeout", "5", "bash", "-c", "ls"],
        &["find", ".", "-exec", "bash", "-c", "ls", ";"],
    ] {
        assert_eq!(decide(true, text), Decision::Allow, "{text:?}");
        assert!(matches!(decide(false, text), Decision::Deny { .. }), "{text:?}");
    }
    for spelled in [&["bash", "-c", "ls | wc"][..], &["bash", "build.sh"], &["ls"]] {
        assert_eq!(decide(false, spelled), Decision::Allow, "{spelled:?}");
    }
}

fn rules() -> impl Strategy<Value = Rules> {
    let mode = prop_oneof![
        Just(PermissionMode::Ask),
        Just(PermissionMode::Plan),
        Just(PermissionMode::Edit),
        Just(PermissionMode::Auto),
    ];
    let tools = prop::option::of(prop::collection::btree_set(prop_oneof!["a", "b"], 0..3));
    let words =
        prop_oneof![Just("x *"), Just("x y"), Just("*"), Just("timeout 1 *"), Just("env *")];
    let commands = prop::option::of(prop::collection::vec(words, 0..3));
    let protected =
        prop::collection::vec(prop_oneof![Just("src"), Just("*.md"), Just("a/**")], 0..3);
    let parts = (mode, tools, commands, prop::bool::ANY, protected);
    parts.prop_map(|(mode, tools, commands, shell, protected)| Rules {
        mode,
        shell,
        tools: tools.map(|names| names.iter().map(|text| name(text)).collect()),
        commands: commands.map(|patterns| CommandPatterns::parse(patterns).unwrap()),
        protected: PathPatterns::parse(protected).unwrap(),
    })
}

proptest! {
    #[test]
    fn a_child_is_never_allowed_what_its_parent_is_not(
        layers in prop::collection::vec(rules(), 1..4),
        child in rules(),
        tool in prop_oneof!["a", "b"],
        class in prop::sample::select(&ToolClass::ALL[..]),
        argv in prop::collection::vec(prop_oneof!["x", "y", "1", "timeout", "env"], 0..4),
        path in prop_oneof![Just("src/a"), Just("b.md"), Just("a/b"), Just("c"), Just("../c")],
    ) {
        let (first, rest) = layers.split_first().unwrap();
        let parent = rest.iter().fold(Policy::new(first.clone()), |it, rules| it.narrow(rules.clone()));
        let child = parent.narrow(child);
        let (tool, paths) = (name(&tool), [path]);
        let call = call(&tool, class, &argv, &paths);

        let (by_parent, by_child) = (parent.decide(&call), child.decide(&call));

        prop_assert!(by_child.rank() >= by_parent.rank(), "{by_parent:?} became {by_child:?}");
        prop_assert!(parent.offers(class) || !child.offers(class));
        let denied = matches!(by_child, Decision::Deny { .. });
        prop_assert!(child.offers(class) || denied);
    }
}
