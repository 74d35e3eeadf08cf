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
        argv: (matches!(class, ToolClass::Exec | ToolClass::Shell)).then_some(argv),
        paths,
        ..Call::new(tool, class)
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
fn where_a_call_connects_to_is_listed_or_asked_about_in_every_mode() {
    let tool = name("http");
    let decide = |hosts: Option<&[&str]>, host: &str| {
        let mut rules = Rules::new(PermissionMode::Auto);
        rules.hosts = hosts.map(|list| HostPatterns::parse(list).unwrap());
        let hosts = [host.to_owned()];
        Policy::new(rules).decide(&Call { hosts: &hosts, ..Call::new(&tool, ToolClass::Network) })
    };

    assert_eq!(decide(Some(&["docs.rs"]), "docs.rs:443"), Decision::Allow);
    assert!(matches!(decide(Some(&["docs.rs"]), "evil.example:443"), Decision::Deny { .. }));
    assert!(matches!(decide(Some(&[]), "docs.rs:443"), Decision::Deny { .. }));
    assert!(matches!(decide(None, "docs.rs:443"), Decision::Ask { .. }));
}

#[test]
fn a_sink_is_asked_about_or_closed_once_something_came_from_outside_and_children_open_none() {
    let (asked, closed, other) = (name("http"), name("shell"), name("fs.read"));
    let mut rules = Rules::new(PermissionMode::Auto);
    rules.sinks.ask = [asked.clone(), closed.clone()].into();
    rules.sinks.deny = [closed.clone()].into();
    let policy = Policy::new(rules).narrow(Rules::new(PermissionMode::Auto));

    let decide = |tool| policy.after_outside(tool, "evil.example:443");

    assert!(matches!(decide(&asked), Decision::Ask { why } if why.contains("evil.example:443")));
    assert!(matches!(decide(&closed), Decision::Deny { .. }));
    assert_eq!(decide(&other), Decision::Allow);
}

#[test]
fn a_secret_goes_only_where_it_was_declared_to_go() {
    let tool = name("http");
    let decide = |host: &str, secret: &str| {
        let mut rules = Rules::new(PermissionMode::Auto);
        rules.hosts = Some(HostPatterns::parse(["*"]).unwrap());
        let api = HostPatterns::parse(["api.example.com"]).unwrap();
        rules.secrets.insert("TOKEN".to_owned(), api);
        let (hosts, secrets) = ([host.to_owned()], [secret.to_owned()]);
        let call = Call::new(&tool, ToolClass::Network);
        // A child that declares it anew gains nothing.
        let mut child = Rules::new(PermissionMode::Auto);
        child.secrets.insert("OTHER".to_owned(), HostPatterns::parse(["*"]).unwrap());
        let policy = Policy::new(rules).narrow(child);
        policy.decide(&Call { hosts: &hosts, secrets: &secrets, ..call })
    };

    assert_eq!(decide("api.example.com:443", "TOKEN"), Decision::Allow);
    for (host, secret) in [
        ("evil.example:443", "TOKEN"),
        ("api.example.com:8443", "TOKEN"),
        ("api.example.com:443", "OTHER"),
    ] {
        assert!(matches!(decide(host, secret), Decision::Deny { .. }), "{host} {secret}");
    }
}

#[test]
fn behaviour_39_where_programs_run_elsewhere_no_secret_stands_among_their_words() {
    let mut rules = Rules::new(PermissionMode::Auto);
    rules.exec_secrets.insert("DEPLOY".to_owned(), CommandPatterns::everything());
    let mut child = Rules::new(PermissionMode::Auto);
    child.exec_secrets_stay = Some("they run elsewhere".to_owned());
    let (tool, secrets) = (name("exec"), ["DEPLOY".to_owned()]);
    let argv = ["deploy".to_owned(), "{{secret:DEPLOY}}".to_owned()];
    let call = Call { argv: Some(&argv), secrets: &secrets, ..Call::new(&tool, ToolClass::Exec) };

    let here = Policy::new(rules);
    let there = here.narrow(child);

    assert_eq!(here.decide(&call), Decision::Allow);
    let why = "secret DEPLOY may not stand among the words of a program: they run elsewhere";
    assert_eq!(there.decide(&call), Decision::Deny { why: why.to_owned() });
    assert_eq!(there.decide(&Call { secrets: &[], ..call }), Decision::Allow);
}

#[test]
fn a_secret_stands_only_in_commands_that_it_was_declared_for_and_in_nothing_that_is_kept() {
    let decide = |tool: &str, class: ToolClass, words: &[&str], secret: &str| {
        let mut rules = Rules::new(PermissionMode::Auto);
        rules.commands = Some(CommandPatterns::everything());
        rules.hosts = Some(HostPatterns::parse(["*"]).unwrap());
        let api = HostPatterns::parse(["api.example.com"]).unwrap();
        rules.secrets.insert("BOUND".to_owned(), api);
        let deploy = CommandPatterns::parse(["./deploy *", "deploy --token *"]).unwrap();
        rules.exec_secrets.insert("DEPLOY".to_owned(), deploy);
        let mut child = Rules::new(PermissionMode::Auto);
        child.exec_secrets.insert("BOUND".to_owned(), CommandPatterns::everything());
        let (tool, secrets) = (name(tool), [secret.to_owned()]);
        let argv: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let argv = (!argv.is_empty()).then_some(argv.as_slice());
        let call = Call { argv, secrets: &secrets, ..Call::new(&tool, class) };
        Policy::new(rules).narrow(child).decide(&call)
    };
    let (exec, word) = (ToolClass::Exec, "{{secret:DEPLOY}}");

    assert_eq!(decide("exec", exec, &["./deploy", word], "DEPLOY"), Decision::Allow);
    assert_eq!(
        decide("exec", exec, &["timeout", "5", "./deploy", word], "DEPLOY"),
        Decision::Allow
    );
    // What goes nowhere but into the record is recorded as it is written.
    assert_eq!(decide("end_task", ToolClass::Lifecycle, &[], "DEPLOY"), Decision::Allow);
    let text = "./deploy {{secret:DEPLOY}}";
    for (tool, class, words, secret) in [
        ("exec", exec, &["curl", word][..], "DEPLOY"),
        ("exec", exec, &["./deploy", "{{secret:BOUND}}"], "BOUND"),
        ("exec", exec, &["./deploy", "{{secret:NONE}}"], "NONE"),
        ("exec", exec, &["bash", "-c", text], "DEPLOY"),
        ("shell", ToolClass::Shell, &["bash", "-c", text], "DEPLOY"),
        ("custom.deploy", exec, &["./deploy", word], "DEPLOY"),
        ("http", ToolClass::Network, &[], "DEPLOY"),
        ("fs.write", ToolClass::Write, &[], "DEPLOY"),
        ("git.commit", ToolClass::Write, &[], "DEPLOY"),
        ("fs.delete", ToolClass::Delete, &[], "DEPLOY"),
        ("fs.grep", ToolClass::Read, &[], "DEPLOY"),
        ("notepad.add", ToolClass::Memory, &[], "DEPLOY"),
    ] {
        let decided = decide(tool, class, words, secret);
        let is_denied = matches!(&decided, Decision::Deny { why } if why.contains(secret));
        assert!(is_denied, "{tool} {words:?}: {decided:?}");
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
    let list = || prop::option::of(prop::collection::vec(prop_oneof![Just("h"), Just("*")], 0..2));
    let given = prop::option::of(prop::collection::vec(prop_oneof![Just("x *"), Just("*")], 0..2));
    let stay = prop::option::of(Just("they stay".to_owned()));
    let parts = (mode, tools, commands, prop::bool::ANY, protected, list(), (list(), given, stay));
    parts.prop_map(|(mode, tools, commands, shell, protected, hosts, (secret, given, stay))| {
        Rules {
            hosts: hosts.map(|list| HostPatterns::parse(list).unwrap()),
            secrets: secret
                .iter()
                .map(|list| ("KEY".to_owned(), HostPatterns::parse(list).unwrap()))
                .collect(),
            exec_secrets: given
                .iter()
                .map(|list| ("KEY".to_owned(), CommandPatterns::parse(list).unwrap()))
                .collect(),
            exec_secrets_stay: stay,
            mode,
            shell,
            tools: tools.map(|names| names.iter().map(|text| name(text)).collect()),
            commands: commands.map(|patterns| CommandPatterns::parse(patterns).unwrap()),
            sinks: Sinks::default(),
            protected: PathPatterns::parse(protected).unwrap(),
        }
    })
}

proptest! {
    #[test]
    fn a_child_is_never_allowed_what_its_parent_is_not(
        layers in prop::collection::vec(rules(), 1..4),
        child in rules(),
        tool in prop_oneof!["a", "b", "exec"],
        class in prop::sample::select(&ToolClass::ALL[..]),
        argv in prop::collection::vec(prop_oneof!["x", "y", "1", "timeout", "env"], 0..4),
        path in prop_oneof![Just("src/a"), Just("b.md"), Just("a/b"), Just("c"), Just("../c")],
        hosts in prop::collection::vec(prop_oneof!["h:443", "i:80"], 0..3),
        asks_for_secret in prop::bool::ANY,
    ) {
        let (first, rest) = layers.split_first().unwrap();
        let parent = rest.iter().fold(Policy::new(first.clone()), |it, rules| it.narrow(rules.clone()));
        let child = parent.narrow(child);
        let (tool, paths) = (name(&tool), [path]);
        let secrets = if asks_for_secret { vec!["KEY".to_owned()] } else { Vec::new() };
        let call = Call { hosts: &hosts, secrets: &secrets, ..call(&tool, class, &argv, &paths) };

        let (by_parent, by_child) = (parent.decide(&call), child.decide(&call));

        prop_assert!(by_child.rank() >= by_parent.rank(), "{by_parent:?} became {by_child:?}");
        prop_assert!(parent.offers(class) || !child.offers(class));
        let denied = matches!(by_child, Decision::Deny { .. });
        prop_assert!(child.offers(class) || denied);
    }
}
