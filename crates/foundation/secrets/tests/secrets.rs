//! What holds for every secret: it goes in where it was asked for, and never comes out.

use std::borrow::Cow;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use formwork_protocols::Scrub;
use formwork_secrets::{Environment, Error, Registry, SecretName, Source};
use proptest::prelude::*;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

fn name(text: &str) -> SecretName {
    SecretName::parse(text).expect("the tests name secrets rightly")
}

fn registry(secrets: &[(&str, &str)]) -> Registry {
    let mut registry = Registry::default();
    for (secret, value) in secrets {
        registry.insert(name(secret), (*value).into()).expect("the tests choose fitting secrets");
    }
    registry
}

#[test]
fn placeholders_are_replaced_at_any_depth_and_keys_are_left_alone() {
    let registry = registry(&[("KEY", "a\"b\\cdef"), ("OTHER", "12345678")]);
    let mut arguments = json!({ "a": ["x {{secret:KEY}}{{secret:OTHER}}", 3], "{{secret:KEY}}": { "b": "{{secret:OTHER}}" } });

    registry.substitute(&mut arguments).unwrap();

    assert_eq!(
        arguments,
        json!({ "a": ["x a\"b\\cdef12345678", 3], "{{secret:KEY}}": { "b": "12345678" } })
    );
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest_and_changes_nothing() {
    let registry = registry(&[("API_KEY", "12345678")]);
    let mut arguments = json!(["{{secret:API_KEY}}", "{{secret:APIKEY}}"]);

    let refused = registry.substitute(&mut arguments).unwrap_err();

    assert_eq!(refused.to_string(), "no secret \"APIKEY\"; nearest is \"API_KEY\"");
    assert_eq!(arguments, json!(["{{secret:API_KEY}}", "{{secret:APIKEY}}"]));
}

#[test]
fn secrets_that_cannot_be_scrubbed_are_refused() {
    let mut registry = registry(&[("A", "12345678")]);
    let mut refuse = |secret: &str, value: &str| {
        registry.insert(name(secret), value.into()).unwrap_err().to_string()
    };

    assert_eq!(
        [refuse("B", "short"), refuse("A", "12345678"), refuse("C", "x[secret:A]x")],
        [
            "secret B has 5 bytes: scrubbing needs at least 8 to tell it from ordinary text",
            "secret A is declared twice",
            "secret C holds \"secret:\", which is what scrubbed text says",
        ]
    );
    assert!(SecretName::parse("a b").is_err());
    assert_eq!(
        [refuse("hunter22", "hunter22"), refuse("X-12345678", "other-value")],
        ["secret hunter22 is part of the name hunter22", "secret A is part of the name X-12345678"]
    );
}

#[test]
fn what_is_the_programs_own_is_scrubbed_and_never_put_in() {
    let mut registry = registry(&[("KEY", "12345678")]);
    registry.insert_apart(name("provider-x"), "its-own-key".into()).unwrap();
    let mut arguments = json!("{{secret:provider-x}}");

    let refused = registry.substitute(&mut arguments).unwrap_err();

    let told = "no secret \"provider-x\"; the only valid one is \"KEY\"";
    assert_eq!(refused.to_string(), told);
    assert_eq!(arguments, json!("{{secret:provider-x}}"));
    assert_eq!(registry.names().map(SecretName::as_str).collect::<Vec<_>>(), ["KEY"]);
    assert!(registry.get("provider-x").is_none());
    assert_eq!(registry.scrubber().scrub_text("its-own-key"), "[secret:provider-x]");
}

#[test]
fn a_secret_is_scrubbed_as_other_languages_write_it_in_json_and_html() {
    let scrubber = registry(&[("K", "a<b>&\"c'd/é")]).scrubber();

    for form in [
        // Go, Rails and PHP.
        r#"a\u003cb\u003e\u0026\"c'd/é"#,
        r#"a\u003Cb\u003E\u0026\"c'd/é"#,
        r#"a\u003cb\u003e\u0026\"c\u0027d/\u00e9"#,
        // HTML, by what writes it: elements, attributes, Go, Python, Rust and JavaScript.
        "a&lt;b&gt;&amp;\"c'd/é",
        "a&lt;b&gt;&amp;&quot;c'd/é",
        "a&lt;b&gt;&amp;&#34;c&#39;d/é",
        "a&lt;b&gt;&amp;&quot;c&#x27;d/é",
        "a&lt;b&gt;&amp;&quot;c&#39;d/é",
    ] {
        assert_eq!(scrubber.scrub_text(form), "[secret:K]", "{form}");
    }
}

#[test]
fn every_form_of_a_secret_is_scrubbed() {
    let secret = "pä/ss \"word\"\\+&x";
    let scrubber = registry(&[("K", secret)]).scrubber();
    let json = json!(secret).to_string();

    for form in [
        secret.to_owned(),
        json.clone(),
        json!(json).to_string(),
        "p\\u00e4/ss \\\"word\\\"\\\\+&x".to_owned(),
        "p%C3%A4%2Fss%20%22word%22%5C%2B%26x".to_owned(),
        "p%c3%a4%2fss%20%22word%22%5c%2b%26x".to_owned(),
        "p%C3%A4%2Fss+%22word%22%5C%2B%26x".to_owned(),
        "70c3a42f73732022776f7264225c2b2678".to_owned(),
    ] {
        let scrubbed = scrubber.scrub_text(&form).into_owned();
        assert!(scrubbed.contains("[secret:K]") && !scrubbed.contains("ss"), "{form}: {scrubbed}");
    }
}

#[test]
fn a_secret_in_letters_of_two_or_four_bytes_is_scrubbed_wherever_it_is_cut() {
    for secret in ["S3cretValue-0815", "pä/ss \"word\"\\+&x", "gänzlich-geheim-ß€𝄞"] {
        let scrubber = registry(&[("K", secret)]).scrubber();
        for (text, held) in [
            (format!("key = {secret};\r\n"), secret.to_owned()),
            (format!("\u{feff}{secret}"), secret.to_owned()),
            (
                json!({ "k": secret }).to_string(),
                json!(secret).to_string().trim_matches('"').to_owned(),
            ),
        ] {
            for encode in ENCODINGS {
                let (bytes, wide) = (encode(&text), encode(&held));
                let scrubbed = scrubber.scrub_bytes(&bytes);
                assert!(holds(&scrubbed, b"[secret:K]"), "{bytes:?}: {scrubbed:?}");
                let core = &wide[3..wide.len() - 3];
                assert!(!holds(&scrubbed, core), "{bytes:?}: {scrubbed:?}");
                // As text, which is what a model is shown and the log is given.
                let shown = String::from_utf8_lossy(&bytes).into_owned();
                assert!(scrubber.scrub_text(&shown).contains("[secret:K]"), "{shown:?}");
                for size in 1..=wide.len() {
                    let mut stream = scrubber.stream();
                    let mut streamed: Vec<u8> =
                        bytes.chunks(size).flat_map(|piece| stream.push(piece)).collect();
                    streamed.extend(stream.finish());
                    assert_eq!(streamed, *scrubbed, "in pieces of {size}");
                }
            }
        }
    }
}

/// UTF-16 and UTF-32 of both byte orders.
const ENCODINGS: [fn(&str) -> Vec<u8>; 4] = [
    |text| text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
    |text| text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
    |text| text.chars().flat_map(|it| u32::from(it).to_le_bytes()).collect(),
    |text| text.chars().flat_map(|it| u32::from(it).to_be_bytes()).collect(),
];

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|it| it == part)
}

#[test]
fn what_is_shown_of_no_letter_is_no_form_of_a_secret() {
    // Of none of its letters anything is left where its UTF-16 is shown as text.
    let scrubber = registry(&[("K", "éééééééé"), ("L", "pässwörd-12345")]).scrubber();
    let shown = |text: &str, encode: fn(&str) -> Vec<u8>| {
        String::from_utf8_lossy(&encode(text)).into_owned()
    };

    for encode in ENCODINGS {
        let other = shown("ü, öäüöäüöäü, ß", encode);
        assert_eq!(scrubber.scrub_text(&other), other);
        // What tells one from others is scrubbed as before, and so are the bytes of both.
        let left = scrubber.scrub_text(&shown("a pässwörd-12345 b", encode)).into_owned();
        assert!(left.contains("[secret:L]") && !left.contains('5'), "{left:?}");
        for secret in ["éééééééé", "pässwörd-12345"] {
            let bytes = scrubber.scrub_bytes(&encode(secret)).into_owned();
            assert!(holds(&bytes, b"[secret:"), "{bytes:?}");
        }
    }
}

#[test]
fn the_lines_of_a_key_are_scrubbed_one_by_one() {
    let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END KEY-----";
    let scrubber = registry(&[("PEM", key)]).scrubber();

    let scrubbed = scrubber.scrub_text("1  MIIEvQIBADANBgkqhkiG9w0B\n-----BEGIN KEY-----\n");

    assert_eq!(scrubbed, "1  [secret:PEM]\n-----BEGIN KEY-----\n");
}

#[test]
fn the_longest_secret_at_a_place_is_taken() {
    let scrubber = registry(&[("LONG", "abcdefgh-ijkl"), ("SHORT", "abcdefgh")]).scrubber();

    assert_eq!(
        scrubber.scrub_text("abcdefgh-ijk abcdefgh-ijkl"),
        "[secret:SHORT]-ijk [secret:LONG]"
    );
}

#[test]
fn a_value_is_scrubbed_with_its_keys_and_numbers() {
    let scrubber = registry(&[("N", "1234567890"), ("K", "hush-hush")]).scrubber();
    let mut value =
        json!({ "hush-hush": [1234567890, "a hush-hush"], "[secret:K]": true, "b": { "c": null } });

    scrubber.scrub_value(&mut value);

    assert_eq!(
        value,
        json!({ "[secret:K]": true, "[secret:K] 2": ["[secret:N]", "a [secret:K]"], "b": { "c": null } })
    );
}

#[test]
fn nothing_shows_a_secret_that_is_printed_for_debugging() {
    let registry = registry(&[("K", "hush-hush")]);

    let shown = format!("{:?} {:?} {:?}", registry, registry.scrubber(), registry.get("K"));

    assert!(!shown.contains("hush"), "{shown}");
    assert!(shown.contains("SecretName(\"K\")"), "{shown}");
}

#[test]
fn secrets_come_from_the_environment_from_files_and_from_commands() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "from-a-file\r\n").unwrap();
    let environment = |variable: &str| (variable == "TOKEN").then(|| "from-the-env\n".to_owned());
    let sources = [
        (name("ENV"), Source::Env("TOKEN".into())),
        (name("FILE"), Source::File("token".into())),
        (name("COMMAND"), Source::Command(vec!["printf".into(), "from-a-command\n".into()])),
    ];

    let registry =
        Registry::resolve(sources.iter().map(|(n, s)| (n, s)), &environment, folder.path())
            .unwrap();

    let mut value = json!("{{secret:ENV}} {{secret:FILE}} {{secret:COMMAND}}");
    registry.substitute(&mut value).unwrap();
    assert_eq!(value, "from-the-env from-a-file from-a-command");
}

#[test]
fn every_source_that_fails_is_named_with_its_reason() {
    let environment = |_: &str| None;
    let sources = [
        (name("A"), Source::Env("TOKEN".into())),
        (name("B"), Source::File("/nowhere/token".into())),
        (name("C"), Source::Command(vec!["false".into()])),
        (name("D"), Source::Command(vec!["/nowhere/program".into()])),
    ];

    let errors = Registry::resolve(
        sources.iter().map(|(n, s)| (n, s)),
        &environment as &dyn Environment,
        Path::new("/"),
    )
    .unwrap_err();

    assert_eq!(
        errors.iter().map(Error::to_string).collect::<Vec<_>>(),
        [
            "secret A comes from the environment variable \"TOKEN\", which is not set",
            "secret B comes from \"/nowhere/token\", which cannot be read",
            "secret C comes from the command \"false\", which failed (exit status: 1)",
            "secret D comes from the command \"/nowhere/program\", which could not be run",
        ]
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_secret_comes_from_the_kernels_keyring() {
    let Some(entry) = formwork_testkit::keyring::Entry::holding(b"from-the-keyring\n") else {
        return;
    };
    let name_of_it = entry.name().to_owned();
    let resolve = || {
        let source = Source::Keyring(name_of_it.clone());
        let value = source.resolve(&name("K"), &|_: &str| None, Path::new("/"));
        value.map(|value| value.expose_secret().to_owned()).map_err(|error| error.to_string())
    };

    let found = resolve();
    entry.set(b"another-of-its-own").unwrap();
    let changed = resolve();
    entry.set(b"\xff\xfe not text").unwrap();
    let no_text = resolve();
    drop(entry);
    let gone = resolve();

    assert_eq!(found, Ok("from-the-keyring".to_owned()));
    assert_eq!(changed, Ok("another-of-its-own".to_owned()));
    assert_eq!(no_text, Err("secret K is not UTF-8 text".to_owned()));
    assert_eq!(
        gone,
        Err(format!(
            "secret K comes from the entry {name_of_it:?} of the keyring, which cannot be read: neither the session's \
             keyring nor the user's has it"
        ))
    );
}

#[cfg(not(target_os = "linux"))]
#[test]
fn a_keyring_that_is_not_read_here_is_refused_by_name() {
    let source = Source::Keyring("service/user".into());

    let refused = source.resolve(&name("K"), &|_: &str| None, Path::new("/")).unwrap_err();

    assert_eq!(
        refused.to_string(),
        "secret K comes from the keyring, which is read on Linux alone; env, file and command are read here"
    );
}

/// Returns an error with its causes, in a line.
fn told(error: &Error) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |told, cause| format!("{told}: {cause}"))
}

#[test]
fn a_secret_that_cannot_be_used_is_named_with_where_it_comes_from_and_never_shown() {
    let environment = |_: &str| Some("zq7".to_owned());
    let source = Source::Env("TOKEN".into());

    let errors =
        Registry::resolve([(&name("A"), &source)], &environment, Path::new("/")).unwrap_err();

    let said: Vec<String> = errors.iter().map(told).collect();
    assert_eq!(
        said,
        [
            "what comes from the environment variable \"TOKEN\" cannot be used: secret A has 3 bytes: scrubbing needs \
             at least 8 to tell it from ordinary text"
        ]
    );
}

#[test]
fn a_key_for_a_header_has_no_newline_and_nothing_that_no_header_may_hold() {
    let folder = tempfile::tempdir().unwrap();
    let read = |value: &str| {
        std::fs::write(folder.path().join("key"), value).unwrap();
        let source = Source::File("key".into());
        let key = source.resolve_key(&name("K"), &|_: &str| None, folder.path());
        key.map(|key| key.expose_secret().to_owned()).map_err(|error| told(&error))
    };
    let refused = |what: &str| {
        Err(format!(
            "what comes from the file \"key\" cannot be used: secret K holds {what}, which no header may hold"
        ))
    };

    for whole in ["sk-zq7", "sk-zq7\n", "sk-zq7\r\n", "sk-zq7\n\n\n"] {
        assert_eq!(read(whole), Ok("sk-zq7".to_owned()), "{whole:?}");
    }
    assert_eq!(read("one two"), Ok("one two".to_owned()));
    assert_eq!(read(" sk-zq7"), refused("a blank at its beginning or end"));
    assert_eq!(read("sk-zq7 \n"), refused("a blank at its beginning or end"));
    assert_eq!(read("sk-\nzq7"), refused("a line break"));
    assert_eq!(read("sk-\u{1}zq7"), refused("a control character"));
    assert_eq!(read("sk-zq\u{fc}"), refused("a character that is not ASCII"));
}

#[test]
fn ordinary_text_of_a_stream_passes_at_once() {
    let scrubber = registry(&[("K", "hush-hush")]).scrubber();
    let mut stream = scrubber.stream();

    let shown = ["hello ", "hus", "band hush-", "hush!"].map(|piece| stream.push_text(piece));

    assert_eq!(shown, ["hello ", "", "husband ", "[secret:K]!"]);
    assert_eq!(stream.finish(), b"");
}

/// A secret as people and machines make them.
fn secret() -> impl Strategy<Value = String> {
    prop_oneof!["[A-Za-z0-9_/+=-]{8,40}", "[ -Z^-~äöü€\"\\\\]{8,24}"]
        .prop_filter("is accepted", |s| s.len() >= 8 && !s.contains("secret:"))
}

proptest! {
    #[test]
    fn a_secret_never_survives_in_any_form_at_any_place(
        secret in secret(), before in "[a-z ]{0,9}", after in "[a-z ]{0,9}",
    ) {
        let scrubber = registry(&[("K", &secret)]).scrubber();
        let whole = format!("{before}{secret}{after}");
        let quoted = json!({ "k": &whole }).to_string();

        let scrubbed = scrubber.scrub_text(&whole);
        prop_assert!(!scrubbed.contains(&secret), "{}", scrubbed);
        prop_assert!(matches!(scrubber.scrub_text(&quoted), Cow::Owned(_)));
        for encoded in [STANDARD.encode(&whole), URL_SAFE_NO_PAD.encode(&whole)] {
            let scrubbed = scrubber.scrub_text(&encoded).into_owned();
            prop_assert!(scrubbed.contains("[secret:K]"), "{} {}", encoded, scrubbed);
        }
    }

    #[test]
    fn scrubbing_twice_is_scrubbing_once(
        secrets in prop::collection::vec(secret(), 1..4), text in ".{0,40}", places in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let named: Vec<(String, &String)> = secrets.iter().enumerate().map(|(n, s)| (format!("K{n}"), s)).collect();
        let named: Vec<(&str, &str)> = named.iter().map(|(n, s)| (n.as_str(), s.as_str())).collect();
        let scrubber = registry(&named).scrubber();
        let mixed = places.iter().fold(text, |text, place| text + place.get(&secrets).as_str());

        let once = scrubber.scrub_text(&mixed).into_owned();

        prop_assert!(matches!(scrubber.scrub_text(&once), Cow::Borrowed(_)), "{}", once);
    }

    #[test]
    fn text_without_a_secret_is_returned_as_it_is(text in any::<String>()) {
        let scrubber = registry(&[("K", "xyzzy-0-plugh-1-plover")]).scrubber();
        let mut value = json!({ text.as_str(): [&text] });
        let before = value.clone();

        scrubber.scrub_value(&mut value);

        prop_assert_eq!(value, before);
        prop_assert!(matches!(scrubber.scrub_text(&text), Cow::Borrowed(same) if same == text));
    }

    #[test]
    fn a_stream_gives_what_the_whole_text_gives_wherever_it_is_cut(
        secrets in prop::collection::vec("[ab]{8,12}", 1..4),
        parts in prop::collection::vec((any::<prop::sample::Index>(), 1_usize..13, "[ab ]{0,2}"), 0..8),
        size in 1_usize..9,
    ) {
        let mut registry = Registry::default();
        for (n, secret) in secrets.iter().enumerate() {
            registry.insert(name(&format!("K{n}")), secret.as_str().into()).unwrap();
        }
        // Whole secrets and beginnings of them, run together.
        let text: String = parts
            .iter()
            .map(|(place, length, between)| {
                let secret = place.get(&secrets);
                format!("{}{between}", &secret[..secret.len().min(*length)])
            })
            .collect();
        let scrubber = registry.scrubber();
        let mut stream = scrubber.stream();

        let mut streamed: Vec<u8> = text.as_bytes().chunks(size).flat_map(|piece| stream.push(piece)).collect();
        streamed.extend(stream.finish());

        prop_assert_eq!(String::from_utf8(streamed).unwrap(), scrubber.scrub_text(&text));
    }

    #[test]
    fn what_is_substituted_is_scrubbed_again(secret in secret()) {
        let registry = registry(&[("K", &secret)]);
        let mut value: Value = json!({ "a": "{{secret:K}}" });

        registry.substitute(&mut value).unwrap();
        registry.scrubber().scrub_value(&mut value);

        prop_assert_eq!(value, json!({ "a": "[secret:K]" }));
    }
}

#[test]
fn a_secret_that_a_program_broke_over_lines_is_taken_out() {
    let secret =
        "a secret that is longer than one line of what base64 prints, for certificates are so";
    let scrubber = registry(&[("CERT", secret)]).scrubber();
    let encoded = STANDARD.encode(format!("header\n{secret}\ntrailer"));
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();

    for (text, width) in [(&encoded, 76), (&encoded, 64), (&hex, 60), (&hex, 17)] {
        for ending in ["\n", "\r\n", "\n    "] {
            let lines: Vec<_> =
                text.as_bytes().chunks(width).map(String::from_utf8_lossy).collect();
            let wrapped = format!("begin\n{}\nend\n", lines.join(ending));

            let scrubbed = scrubber.scrub_text(&wrapped).into_owned();

            assert!(scrubbed.contains("[secret:CERT]"), "{width} {ending:?}: {scrubbed}");
            assert!(scrubbed.starts_with("begin\n") && scrubbed.ends_with("\nend\n"), "{scrubbed}");
            let left = scrubbed.len() - "[secret:CERT]".len();
            assert!(left < wrapped.len() - secret.len(), "{width} {ending:?}: {scrubbed}");
        }
    }
}

#[test]
fn two_scrubbers_together_take_out_what_either_knows() {
    let one = registry(&[("ONE", "first-secret"), ("BOTH", "shared-secret")]).scrubber();
    let other = registry(&[("TWO", "second-secret"), ("ALSO", "shared-secret")]).scrubber();

    let both = one.and(&other);

    let text = both.scrub_text("first-secret second-secret shared-secret").into_owned();
    assert_eq!(text, "[secret:ONE] [secret:TWO] [secret:BOTH]");
    assert_eq!(both.and(&one).scrub_text(&text), text);
}
