//! Credentials at the command line: given once, told once, listed without their tokens, and over for good.

use serde_json::Value;

use crate::world::{Ran, World};

fn document(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}\n{ran}"))
}

#[test]
fn the_first_credential_is_given_once_and_its_token_told_alone() {
    let world = World::new();

    let first = world.run(&["auth", "bootstrap"]);
    let second = world.run(&["auth", "bootstrap", "--json"]);

    assert_eq!((first.code, second.code), (0, 2), "{first}{second}");
    let token = first.stdout.strip_suffix('\n').unwrap();
    assert!(token.starts_with("formwork_") && token.len() == 106, "{first}");
    assert!(
        first.stderr.contains("for read,run,admin,worker; its token is shown this once"),
        "{first}"
    );
    assert!(!first.stderr.contains(token) && !second.stdout.contains("formwork_"), "{second}");
    let hint = document(&second)["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains("formwork auth add"), "{second}");
}

#[test]
fn a_credential_is_added_listed_rotated_and_revoked() {
    let world = World::new();
    let added = world.run(&[
        "auth",
        "add",
        "service:ci",
        "--scope",
        "read,run",
        "--expires",
        "30d",
        "--json",
    ]);
    let given = document(&added);
    let id = given["credential"]["id"].as_str().unwrap();

    let rotated = document(&world.run(&["auth", "rotate", id, "--overlap", "2h", "--json"]));
    let listed = world.run(&["auth", "list"]);
    let revoked = world.run(&["auth", "revoke", id]);
    let left = world.run(&["auth", "list"]);
    let all = document(&world.run(&["auth", "list", "--all", "--json"]));

    assert_eq!(given["credential"]["scopes"], serde_json::json!(["read", "run"]));
    assert_ne!(given["token"], rotated["token"]);
    assert!(
        listed.stdout.starts_with(id) && listed.stdout.contains("token before until"),
        "{listed}"
    );
    assert_eq!(revoked.stdout, format!("revoked {id} of service:ci\n"));
    assert!(left.stdout.contains("no credentials") && left.stdout.contains("1 more"), "{left}");
    assert_eq!(all["credentials"][0]["standing"], "revoked");
    for ran in [&listed, &revoked, &left] {
        assert!(!ran.stdout.contains("formwork_"), "{ran}");
    }
}

#[test]
fn what_nobody_is_given_is_said_with_what_would_be() {
    let world = World::new();

    let ran = [
        &["auth", "add", "ada", "--scope", "root"][..],
        &["auth", "add", "ada"],
        &["auth", "add", "a da", "--scope", "read"],
        &["auth", "add", "system:x", "--scope", "read"],
        &["auth", "add", "ada", "--scope", "read", "--expires", "soon"],
        &["auth", "revoke", "nobody"],
    ]
    .map(|arguments| world.run(arguments));

    let codes = ran.each_ref().map(|it| it.code);
    assert_eq!(
        codes,
        [64, 64, 64, 2, 64, 64],
        "{}",
        ran.each_ref().map(ToString::to_string).concat()
    );
    assert!(ran[0].stderr.contains("expected read, run, admin or worker"), "{}", ran[0]);
    assert!(ran[3].stderr.contains("is a part of Formwork"), "{}", ran[3]);
}

#[test]
fn whoever_has_no_name_on_this_machine_is_its_owner() {
    let nameless = World::new().run(&["auth", "bootstrap", "--json"]);
    let named = World::new().set("USER", "ada").run(&["auth", "bootstrap", "--json"]);

    let to = |ran: &Ran| document(ran)["credential"]["principal"].clone();
    assert_eq!((to(&nameless), to(&named)), ("user:owner".into(), "user:ada".into()));
}
