use std::collections::BTreeMap;

use formwork_protocols::{EventBody, Position, Timestamp, document, store::Selection};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::{Builder, Formwork, config::Config, trust};

const NOW: Timestamp = Timestamp::from_micros(1_796_126_400_000_000);

const SOURCE: &str = r#"
format_version = 1
name = "forge"
slug = "forge-7f3a"
max_bytes = 4000
secrets = ["{{secret:HOOK_NEW}}", "{{secret:HOOK_OLD}}"]
scheme = "github"

[event]
names = { push = "pushed", pull_request = "review" }
"#;

const CONFIG: &str = r#"
format_version = 1
database_url = "sqlite::memory:"
[secrets]
HOOK_NEW = { env = "NEW" }
HOOK_OLD = { env = "OLD" }
OTHER = { env = "OTHER" }
"#;

struct Place {
    _folder: TempDir,
    formwork: Formwork,
    receiver: Receiver,
}

impl Place {
    async fn with(source: &str) -> Self {
        let (folder, formwork) = place(source).await;
        let trusted = folder.path().join("workspace").canonicalize().unwrap();
        for brought in trust::brought(&trusted, &[]).unwrap() {
            trust::trust(formwork.state(), &trusted, &brought).unwrap();
        }
        let receiver = Receiver::open(&formwork).unwrap();
        assert_eq!(receiver.left_out(), []);
        Self { _folder: folder, formwork, receiver }
    }

    async fn sent(&self, headers: Headers<'_>, body: &[u8]) -> Result<Received, Refusal> {
        self.receiver.receive(Arrival { slug: "forge-7f3a", headers, body, at: NOW }).await
    }

    /// Sends a body as the forge would, of a kind, under a name, with a secret.
    async fn signed(
        &self,
        (event, delivery, secret): (&str, &str, &str),
        body: &[u8],
    ) -> Result<Received, Refusal> {
        let signature = sign(secret, body);
        let headers: Headers<'_> = &[
            ("x-github-event", event.as_bytes()),
            ("x-github-delivery", delivery.as_bytes()),
            ("x-hub-signature-256", signature.as_bytes()),
            ("content-type", b"application/json; charset=utf-8"),
        ];
        self.sent(headers, body).await
    }

    async fn log(&self) -> Vec<EventBody> {
        let selection = Selection::default();
        let events = self.formwork.store().read(Position::default(), &selection, 1_000).await;
        events.unwrap().into_iter().map(|event| event.body).collect()
    }
}

async fn place(source: &str) -> (TempDir, Formwork) {
    let folder = tempfile::tempdir().unwrap();
    let (workspace, state) = (folder.path().join("workspace"), folder.path().join("state"));
    fs::create_dir_all(workspace.join(SOURCES)).unwrap();
    fs::write(workspace.join(SOURCES).join("forge.toml"), source).unwrap();
    let config = document::parse::<Config>("config.toml", CONFIG).unwrap().value;
    let secrets = [("NEW", "hook-secret-new"), ("OLD", "hook-secret-old"), ("OTHER", "s3cr3t-key")];
    let formwork = Builder::new(workspace).state(state).config(config).environment(secrets);
    (folder, formwork.build().await.unwrap())
}

fn sign(secret: &str, body: &[u8]) -> String {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    let tag = ring::hmac::sign(&key, body);
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={hex}")
}

#[tokio::test]
async fn behaviour_38_what_is_signed_by_either_secret_is_recorded_once_under_its_own_name() {
    let place = Place::with(SOURCE).await;
    let body = br#"{"ref": "main", "token": "s3cr3t-key", "hook": "hook-secret-old"}"#;

    let first = place.signed(("push", "d-1", "hook-secret-new"), body).await.unwrap();
    let again = place.signed(("push", "d-1", "hook-secret-old"), body).await.unwrap();
    let other = place.signed(("pull_request", "d-2", "hook-secret-old"), b"{}").await.unwrap();

    assert_eq!((first.duplicate, again.duplicate, other.duplicate), (false, true, false));
    assert_eq!(first.event, again.event);
    let log = place.log().await;
    let EventBody::ExternalReceived(received) = &log[0] else { panic!("{log:?}") };
    assert_eq!((received.source.as_str(), received.name.as_str()), ("forge", "pushed"));
    assert_eq!(received.delivery, "d-1");
    // What is secret is taken out where everything passes that is recorded.
    let data = json!({ "ref": "main", "token": "[secret:OTHER]", "hook": "[secret:HOOK_OLD]" });
    assert_eq!(received.data, data);
    let EventBody::ExternalRefused(counted) = &log[1] else { panic!("{log:?}") };
    assert_eq!(counted.counts, BTreeMap::from([("duplicate".to_owned(), 1)]));
    assert_eq!(log.len(), 3);
}

#[tokio::test]
async fn behaviour_38_each_refusal_has_its_class_and_nothing_of_it_is_recorded_but_a_count() {
    let place = Place::with(SOURCE).await;
    let new = |event, delivery| (event, delivery, "hook-secret-new");
    let deep = "[".repeat(1_000) + &"]".repeat(1_000);
    let status = |result: Result<Received, Refusal>| result.unwrap_err().status();
    let form = sign("hook-secret-new", b"{}");
    let form: Headers<'_> = &[
        ("x-hub-signature-256", form.as_bytes()),
        ("content-type", b"application/x-www-form-urlencoded"),
    ];

    assert_eq!(status(place.signed(("push", "EVIL", "hook-secret-nee"), b"{}").await), 401);
    assert_eq!(status(place.sent(&[("x-github-event", b"push")], b"EVIL").await), 404);
    assert_eq!(status(place.signed(new("push", "EVIL"), &[b' '; 4_001]).await), 413);
    assert_eq!(status(place.sent(form, b"{}").await), 415);
    for body in [b"EVIL".as_slice(), b"", b"{\"a\": \"\xff\"}", b"{} {}", deep.as_bytes()] {
        assert_eq!(status(place.signed(new("push", "EVIL"), body).await), 422, "{body:?}");
    }
    assert_eq!(status(place.signed(new("star", "EVIL"), b"{}").await), 422);
    let over = place.receiver.overflowed("forge-7f3a", NOW).await;
    place.receiver.close().await;

    assert_eq!(over.status(), 413);
    let log = place.log().await;
    assert!(!format!("{log:?}").contains("EVIL"), "{log:?}");
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for body in &log {
        let EventBody::ExternalRefused(refused) = body else { panic!("{body:?}") };
        for (why, count) in &refused.counts {
            *counts.entry(why.clone()).or_default() += count;
        }
    }
    // The first at once, and all that came after it in one more.
    assert_eq!(log.len(), 2, "{log:?}");
    let told: Vec<(&str, u64)> = counts.iter().map(|(why, count)| (why.as_str(), *count)).collect();
    assert_eq!(
        told,
        [
            ("media_type", 1),
            ("not_json", 5),
            ("signature", 1),
            ("too_large", 2),
            ("unmapped", 1),
            ("unsigned", 1)
        ]
    );
}

#[tokio::test]
async fn behaviour_38_who_has_no_secret_is_not_told_which_sources_there_are_and_fills_no_log() {
    let place = Place::with(SOURCE).await;
    let arrival = |slug, at| Arrival { slug, headers: &[], body: b"{}", at };

    for minute in 0..100 {
        let at = NOW.after(formwork_protocols::Span::from_secs(minute * 60));
        let known = place.receiver.receive(arrival("forge-7f3a", at)).await.unwrap_err();
        let unknown = place.receiver.receive(arrival("forge", at)).await.unwrap_err();
        assert_eq!((known.status(), known.to_string()), (unknown.status(), unknown.to_string()));
    }

    assert_eq!(place.receiver.limit("unknown"), MAX_BYTES);
    assert_eq!(place.receiver.limit("forge-7f3a"), 4_000);
    // One at once, and then one in ten minutes.
    assert_eq!(place.log().await.len(), 10);
}

#[tokio::test]
async fn behaviour_38_what_comes_again_does_not_change_what_was_recorded() {
    let place = Place::with(SOURCE).await;
    let how = ("push", "d-1", "hook-secret-new");
    let first = place.signed(how, br#"{"n": 1}"#).await.unwrap();

    let other = place.signed(how, br#"{"n": 2}"#).await.unwrap();

    assert_eq!((other.event, other.duplicate), (first.event, true));
    let EventBody::ExternalReceived(received) = &place.log().await[0] else { panic!() };
    assert_eq!(received.data, json!({ "n": 1 }));
}

#[tokio::test]
async fn behaviour_38_where_nothing_can_be_recorded_nothing_is_said_to_be_received() {
    let place = Place::with(SOURCE).await;
    place.formwork.close().await;

    let away = place.signed(("push", "d-1", "hook-secret-new"), b"{}").await.unwrap_err();

    assert_eq!(away.status(), 503, "{away:?}");
}

#[tokio::test]
async fn a_source_that_is_not_trusted_or_has_no_secret_receives_nothing_and_says_why() {
    let (_folder, formwork) = place(SOURCE).await;
    let receiver = Receiver::open(&formwork).unwrap();
    let without = SOURCE.replace("HOOK_OLD", "HOOK_GONE");
    let (folder, other) = place(&without).await;
    let workspace = folder.path().join("workspace").canonicalize().unwrap();
    for brought in trust::brought(&workspace, &[]).unwrap() {
        trust::trust(other.state(), &workspace, &brought).unwrap();
    }

    let missing = Receiver::open(&other).unwrap();

    assert_eq!(receiver.left_out()[0].why, "it is not trusted as it stands");
    assert_eq!(
        missing.left_out()[0].why,
        "there is no secret HOOK_GONE in [secrets] of the config"
    );
    assert!(receiver.slugs().is_empty() && missing.slugs().is_empty());
}

#[test]
fn a_source_is_refused_with_every_fault_and_its_place() {
    let text = r#"format_version = 1
name = "shop"
secrets = ["hunter2-in-the-open"]
scheme = "hmac"
tolerance = "5m"
max_bytes = 30000000

[signature]
header = "X Signature"

[event]
header = "x-kind"
pointer = "/kind"

[data]
number = "pull.number"
"#;

    let faults = Source::parse("forge.toml", text).unwrap_err();

    let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(told.join("\n"));
    assert!(!told.join("\n").contains("hunter2"));
}

#[test]
fn two_sources_with_one_slug_are_both_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join(SOURCES)).unwrap();
    for name in ["forge", "fork"] {
        let text = SOURCE.replace("name = \"forge\"", &format!("name = {name:?}"));
        fs::write(folder.path().join(SOURCES).join(format!("{name}.toml")), text).unwrap();
    }

    let found = read(folder.path()).unwrap();

    for found in found {
        let faults = validate("", &found.text, folder.path());
        assert!(found.read.unwrap_err().to_string().contains("another source has the slug"));
        assert!(faults.is_err());
    }
}

#[test]
fn every_scheme_knows_where_it_says_what_an_event_is_and_which_delivery() {
    for scheme in ["github", "gitlab", "stripe", "standard-webhooks"] {
        let text = SOURCE.replace("\"github\"", &format!("{scheme:?}"));
        let source = Source::parse("forge.toml", &text).unwrap();
        assert!(source.mapping.from.is_some() && source.mapping.delivery.is_some(), "{scheme}");
        assert_eq!(source.scheme_name.as_str(), scheme);
    }
    let schema = document::schema::<SourceDocument>();
    assert_eq!(schema["properties"]["max_bytes"]["maximum"], Value::from(26_214_400));
}
