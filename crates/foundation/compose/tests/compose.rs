//! What holds for every prompt, whatever the templates and values.

use formwork_compose::{Error, Fragment, Kind, Library, Priority, Template, compose};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Renders `main` with the named includes.
fn render(main: &str, includes: &[(&str, &str)], variables: Value) -> Result<String, Error> {
    let mut library = Library::default();
    for (name, text) in includes {
        library.insert(Template::parse(name, text)?)?;
    }
    let Value::Object(variables) = variables else { panic!("variables are a table") };
    library.render(&Template::parse("main", main)?, &variables)
}

/// Returns what is wrong, a fault a line.
fn faults(main: &str, includes: &[(&str, &str)], variables: Value) -> String {
    match render(main, includes, variables) {
        Ok(text) => format!("no fault: {text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn values_are_inserted_as_they_are() {
    let rendered = render(
        "{{text}} {{{text}}} {{&text}} {{n}} {{f}} {{yes}} [{{none}}] {{list}} {{table}}",
        &[],
        json!({ "text": "<a & 'b'>{{n}}", "n": 3, "f": 1.5, "yes": true, "none": null, "list": [1, "x"],
                "table": { "b": 1, "a": 2 } }),
    );

    let text = "<a & 'b'>{{n}}";
    assert_eq!(
        rendered.unwrap(),
        format!("{text} {text} {text} 3 1.5 true [] [1,\"x\"] {{\"a\":2,\"b\":1}}")
    );
}

#[test]
fn paths_lead_into_tables_and_lists() {
    let variables = json!({ "tasks": { "build-it": { "output": ["a", { "b c": "d" }] } } });

    let rendered =
        render("{{tasks.build-it.output.1.[b c]}} {{tasks.build-it.output.[0]}}", &[], variables);

    assert_eq!(rendered.unwrap(), "d a");
}

#[test]
fn conditions_and_loops_work_as_in_handlebars() {
    let main = "{{#if a}}A{{else if b}}B{{else}}C{{/if}}\n\
                {{#each items}}\n\
                {{@index}}{{#if @first}}!{{/if}} {{name}} of {{../owner}}{{#unused}}{{/unused}}\n\
                {{/each}}\n";
    let main = main.replace("{{#unused}}{{/unused}}", "{{#if @last}}.{{/if}}");

    let rendered = render(
        &main,
        &[],
        json!({ "a": 0, "b": "x", "items": [{ "name": "one" }, { "name": "two" }], "owner": "me" }),
    );

    assert_eq!(rendered.unwrap(), "B\n0! one of me\n1 two of me.\n");
}

#[test]
fn loops_over_tables_give_keys_in_order_and_names_to_both() {
    let main = "{{#each t as |value key|}}{{key}}={{value.x}}/{{@key}};{{else}}none{{/each}}";

    assert_eq!(
        render(main, &[], json!({ "t": { "b": { "x": 1 }, "a": { "x": 2 } } })).unwrap(),
        "a=2/a;b=1/b;"
    );
    assert_eq!(render(main, &[], json!({ "t": [] })).unwrap(), "none");
}

#[test]
fn a_loop_names_a_variable_outside_of_it_from_the_root() {
    let nested = "{{#each rows}}{{#each this}}{{@../index}}{{this}}{{@root.end}}{{../../end}}{{/each}}{{/each}}";

    let rendered = render(nested, &[], json!({ "rows": [["a"], ["b", "c"]], "end": ";" }));

    assert_eq!(rendered.unwrap(), "0a;;1b;;1c;;");
}

#[test]
fn includes_see_the_context_and_are_moved_in_with_their_line() {
    let rendered = render(
        "{{#each items}}\n  {{> item}}\n{{/each}}\nand {{> inline}}.",
        &[("item", "- {{name}}\n\n  more\n"), ("inline", "{{x}}")],
        json!({ "items": [{ "name": "a" }, { "name": "b" }], "x": 1 }),
    );

    assert_eq!(rendered.unwrap(), "  - a\n\n    more\n  - b\n\n    more\nand 1.");
}

#[test]
fn placeholders_of_secrets_and_escaped_braces_are_handed_on() {
    let rendered =
        render("{{secret:API_KEY}} \\{{x}} {{! nothing }}{{!-- {{y}} --}}.", &[], json!({}));

    assert_eq!(rendered.unwrap(), "{{secret:API_KEY}} {{x}} .");
}

#[test]
fn behaviour_31_every_unresolved_and_every_unused_variable_is_named_with_its_place() {
    let shown = faults(
        "a {{spce}}\n{{#if missing}}{{also}}{{/if}}\n{{> part}}",
        &[("part", "\n\n  {{third}}")],
        json!({ "spec": 1, "unused": 2 }),
    );

    assert_eq!(
        shown,
        r#"main:1:3: unresolved variable "spce"; nearest is "spec"
main:2:1: unresolved variable "missing"; valid are "spec", "unused"
main:2:16: unresolved variable "also"; valid are "spec", "unused"
main: variable "spec" is supplied but never used; the template names "spce"
main: variable "unused" is supplied but never used
part:3:3: unresolved variable "third"; valid are "spec", "unused""#
    );
}

#[test]
fn what_is_missing_below_a_variable_is_named_where_it_is_rendered() {
    let shown = faults(
        "{{spec.titel}} {{list.7}} {{spec.title.x}}\n{{#each list}}{{end}}{{nam}}{{/each}}",
        &[],
        json!({ "spec": { "title": "t" }, "list": [{ "name": "a" }] }),
    );

    assert_eq!(
        shown,
        r#"main:1:1: unresolved variable "spec.titel"; nearest is "title"
main:1:16: unresolved variable "list.7"; the list has 1 items
main:1:27: unresolved variable "spec.title.x"; "x" is looked up in a text
main:2:15: unresolved variable "end"; the only valid one is "name"
main:2:22: unresolved variable "nam"; nearest is "name""#
    );
    assert_eq!(
        render("{{#if failure}}{{failure.text}}{{/if}}", &[], json!({ "failure": null })).unwrap(),
        ""
    );
}

#[test]
fn what_prompts_do_not_need_is_refused_by_name() {
    let shown = faults(
        "{{lookup a b}}{{#with a}}{{/with}}{{> part a=1}}{{#> part}}{{/part}}{{*d}}{{> prat}}{{@index}}{{../a}}{{#if \"x\"}}{{/if}}",
        &[("part", "")],
        json!({ "a": 3 }),
    );
    let each = faults("{{#each a}}{{/each}}", &[], json!({ "a": 3 }));

    assert_eq!(
        shown,
        r#"main:1:1: the helper "lookup" is not supported in a prompt; variables, if, each, includes and comments are
main:1:15: the block "with" is not supported in a prompt; variables, if, each, includes and comments are
main:1:35: an include with arguments is not supported in a prompt; variables, if, each, includes and comments are
main:1:49: an include with a block is not supported in a prompt; variables, if, each, includes and comments are
main:1:69: a decorator is not supported in a prompt; variables, if, each, includes and comments are
main:1:75: no template "prat" to include; nearest is "part"
main:1:85: unresolved variable "@index"
main:1:95: unresolved variable "../a"; it leads out of the template
main:1:103: the literal "x" is not supported in a prompt; variables, if, each, includes and comments are
main: variable "a" is supplied but never used"#
    );
    assert_eq!(each, r#"main:1:1: each needs a list or a table, "a" is a number"#);
}

#[test]
fn a_circle_of_includes_is_named() {
    let includes = [("a", "{{> b}}"), ("b", "{{#if x}}{{> c}}{{/if}}"), ("c", "{{> a}}")];

    let refused = render("{{> a}}", &includes, json!({ "x": false })).unwrap_err();

    assert_eq!(refused.to_string(), "templates include each other: a -> b -> c -> a");
    assert_eq!(
        render("{{> main}}", &[("main", "{{> main}}")], json!({})).unwrap_err().to_string(),
        "templates include each other: main -> main"
    );
}

#[test]
fn a_syntax_error_has_its_place() {
    let refused = Template::parse("main", "one\n{{#if a}}\ntwo").unwrap_err();

    let Error::Syntax { template, line, .. } = refused else { panic!("{refused}") };
    assert_eq!((template.as_str(), line), ("main", 3));
}

#[test]
fn bombs_are_stopped() {
    let many: Vec<u8> = vec![0; 100];
    let loops = "{{#each @root.a}}".repeat(20) + "x" + &"{{/each}}".repeat(20);
    let doubling: Vec<(String, String)> = (0..30)
        .map(|n| (format!("t{n}"), format!("{{{{> t{next}}}}}{{{{> t{next}}}}}", next = n + 1)))
        .chain([("t30".to_owned(), "x".to_owned())])
        .collect();
    let doubling: Vec<(&str, &str)> =
        doubling.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();

    let nested = render(&loops, &[], json!({ "a": many })).unwrap_err();
    let included = render("{{> t0}}", &doubling, json!({})).unwrap_err();
    let repeated = render(
        "{{#each a}}{{@root.b}}{{/each}}",
        &[],
        json!({ "a": many, "b": "x".repeat(1 << 20) }),
    );
    let long = Template::parse("long", &"x".repeat(70_000)).unwrap_err();
    let tags = Template::parse("tags", &"{{x}}".repeat(2_000)).unwrap_err();
    let deep =
        Template::parse("deep", &("{{#if a}}".repeat(500) + &"{{/if}}".repeat(500))).unwrap_err();
    let chained = Template::parse(
        "chained",
        &("{{#if a}}".to_owned() + &"{{else if b}}".repeat(900) + "{{/if}}"),
    );

    assert!(matches!(nested, Error::TooManySteps { .. }), "{nested}");
    assert!(matches!(included, Error::TooManySteps { .. }), "{included}");
    assert!(matches!(repeated, Err(Error::TooLarge { unit: "bytes of output", .. })));
    assert_eq!(long.to_string(), "template \"long\" has 70000 bytes, at most 65536 are allowed");
    assert_eq!(tags.to_string(), "template \"tags\" has 2000 tags, at most 1000 are allowed");
    assert_eq!(
        deep.to_string(),
        "template \"deep\" has 500 levels of blocks, at most 32 are allowed"
    );
    assert!(chained.is_err());
}

#[test]
fn many_conditions_beside_each_other_are_no_depth() {
    let main = "{{#if a}}1{{else if b}}2{{/if}}".repeat(60);

    assert_eq!(render(&main, &[], json!({ "a": 1, "b": 1 })).unwrap(), "1".repeat(60));
}

#[test]
fn the_variables_of_a_template_are_known_without_rendering() {
    let mut library = Library::default();
    library
        .insert(
            Template::parse("part", "{{c}}{{#each d}}{{x}}{{@root.e}}{{../f}}{{/each}}").unwrap(),
        )
        .unwrap();
    let main = Template::parse("main", "{{a.b}}{{#if g}}{{h}}{{/if}}{{> part}}").unwrap();

    let names: Vec<String> = library.variables(&main).unwrap().into_iter().collect();

    assert_eq!(names, ["a", "c", "d", "e", "f", "g", "h"]);
}

#[test]
fn behaviour_31_fragments_compose_by_kind_then_priority_then_name() {
    let prompt = compose([
        Fragment::volatile("turn", Priority::PREAMBLE, "left: 3"),
        Fragment::stable("b", Priority::PROMPT, "b {{x}}\n\n"),
        Fragment::stable("a", Priority::PROMPT, "\n  a"),
        Fragment::stable("empty", Priority::NOTEPAD, " \n"),
        Fragment::stable("late", Priority::LESSONS, "late"),
    ])
    .unwrap();

    let parts: Vec<(&str, Kind, &str)> = prompt
        .fragments()
        .iter()
        .map(|p| (p.name.as_str(), p.kind, &prompt.text()[p.range.clone()]))
        .collect();
    assert_eq!(prompt.text(), "  a\n\nb {{x}}\n\nlate\n\nleft: 3");
    assert_eq!(
        parts,
        [
            ("a", Kind::Stable, "  a"),
            ("b", Kind::Stable, "b {{x}}"),
            ("late", Kind::Stable, "late"),
            ("turn", Kind::Volatile, "left: 3"),
        ]
    );
    assert_eq!(prompt.stable(), "  a\n\nb {{x}}\n\nlate");
}

#[test]
fn two_fragments_of_one_name_are_refused() {
    let twice = [
        Fragment::stable("a", Priority::PROMPT, "x"),
        Fragment::volatile("a", Priority::LESSONS, "y"),
    ];

    assert_eq!(compose(twice).unwrap_err().to_string(), "two fragments are named \"a\"");
}

/// Text that is nearly a template: its tags in any order.
fn nearly() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "{{a}}",
        "{{a.b}}",
        "{{#if a}}",
        "{{else}}",
        "{{else if b}}",
        "{{/if}}",
        "{{#each b as |x y|}}",
        "{{#each b}}",
        "{{/each}}",
        "{{x}}",
        "{{this}}",
        "{{../a}}",
        "{{@index}}",
        "{{> p}}",
        "  {{> p}}\n",
        "{{~a~}}",
        "\n",
        " ",
        "é",
        "\\{{",
        "{{",
        "}}",
        "{{!c}}",
        "{{{a}}}",
        "{{secret:K}}",
        "[",
        "\"",
        "(",
    ]);
    prop::collection::vec(word, 0..16).prop_map(|words| words.concat())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!("{{a}}{{> p}}")),
    ];
    leaf.prop_recursive(2, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[ab]", inner, 0..3)
                .prop_map(|entries| Value::from(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #[test]
    fn no_template_panics_and_the_same_input_gives_the_same_bytes(
        main in prop_oneof![any::<String>(), nearly()],
        part in nearly(),
        a in value(),
        b in value(),
    ) {
        let variables = json!({ "a": a, "b": b });
        let first = render(&main, &[("p", &part)], variables.clone());
        prop_assert_eq!(first, render(&main, &[("p", &part)], variables));
    }

    #[test]
    fn a_value_is_never_read_as_a_template(text in ".*") {
        let rendered = render("<{{x}}>", &[], json!({ "x": text }));
        prop_assert_eq!(rendered.unwrap(), format!("<{text}>"));
    }

    #[test]
    fn plain_text_renders_to_itself(text in "[^{\\\\]*") {
        prop_assert_eq!(render(&text, &[], json!({})).unwrap(), text);
    }

    #[test]
    fn the_order_in_which_fragments_are_given_does_not_matter(
        texts in prop::collection::vec((0_u16..3, any::<bool>(), ".{0,6}"), 0..8),
        seed in any::<prop::sample::Index>(),
    ) {
        let fragments: Vec<Fragment> = texts.into_iter().enumerate().map(|(n, (priority, volatile, text))| Fragment {
            name: format!("f{n}"),
            priority: Priority(priority),
            kind: if volatile { Kind::Volatile } else { Kind::Stable },
            text,
        }).collect();
        let mut turned = fragments.clone();
        if !turned.is_empty() {
            let by = seed.index(turned.len());
            turned.rotate_left(by);
        }

        let prompt = compose(fragments).unwrap();

        prop_assert_eq!(&prompt, &compose(turned).unwrap());
        prop_assert!(prompt.text().starts_with(prompt.stable()));
    }
}
