use super::*;

/// Puts a text together from parts, so that this file does not hold what looks like a secret.
fn text(parts: &[&str]) -> String {
    parts.concat()
}

fn token() -> String {
    text(&["ghp", "_", "9aB3dE7fG1hJ5kL2mN8pQ4rS6tU0vW", "xYz123"])
}

fn rules_of(bytes: &[u8]) -> Vec<String> {
    let scanned = Scanner::built_in().unwrap().scan_bytes(bytes).unwrap();
    scanned.findings.into_iter().filter(|it| !it.allowed).map(|it| it.rule).collect()
}

#[test]
fn every_rule_compiles() {
    let scanner = Scanner::built_in().unwrap();

    for rule in &scanner.rules {
        assert!(rule.regex().is_ok(), "{:?}", rule.regex());
    }
    assert!(scanner.rules.len() >= 60, "{}", scanner.rules.len());
}

#[test]
fn keys_of_many_issuers_are_found_by_their_rules() {
    let hex = "3f8a1c5e7b9d2046a1b3c5d7e9f02468ace13579bdf0";
    let mixed = "Zx9Kq2Lm4Np6Rs8Tv1Wy3Bc5Df7Gh0Jk2Mn4Pq6Rt8Uw1Xz3Ac5Eg7Hi9";
    let cases = [
        ("aws-access-key-id", text(&["id = AK", "IA", "IOSFODNN7EXAMPLE"])),
        ("aws-secret-access-key", text(&["aws_secret_access_key=", &mixed[..40]])),
        ("github-token", text(&["GH=", &token()])),
        ("gitlab-token", text(&["gl", "pat-", &mixed[..20]])),
        ("formwork-token", text(&["FW=form", "work_", &hex[..32], "_", &hex[..32], &hex[..32]])),
        ("google-api-key", text(&["AI", "za", &mixed[..35]])),
        ("openai-key", text(&["sk", "-proj-", mixed])),
        ("anthropic-key", text(&["sk-", "ant-", "api03-", mixed, mixed])),
        ("slack-token", text(&["xo", "xb-", "123456789012-123456789012-", &mixed[..24]])),
        ("stripe-key", text(&["sk", "_live_", &mixed[..24]])),
        ("npm-token", text(&["np", "m_", &mixed[..36]])),
        ("sendgrid-key", text(&["S", "G.", &mixed[..22], ".", &mixed[..43]])),
        ("huggingface-token", text(&["h", "f_", &mixed[..34]])),
        ("telegram-token", text(&["12345678", "90:A", "A", &mixed[..33]])),
        ("twilio-key", text(&["twilio: S", "K", &hex[..32]])),
        ("password-in-url", text(&["postgres://app:", "s3cr3tW0rd", "@db.internal/app"])),
        ("assigned-secret", text(&["client_secret = \"", &mixed[..32], "\""])),
        ("assigned-secret-unquoted", text(&["export DB_PASSWORD=", &mixed[..24]])),
        ("bearer-authorization", text(&["Authorization: Be", "arer ", &mixed[..40]])),
        (
            "private-key",
            text(&["-----BEGIN RSA PRI", "VATE KEY-----\n", mixed, "\n", mixed, "\n-----END"]),
        ),
        ("credit-card", text(&["pays by 4111 11", "11 1111 1111."])),
        ("iban", text(&["account DE89 3704 0", "044 0532 0130 00"])),
        ("us-social-security-number", text(&["SSN: 219-0", "9-9999"])),
    ];

    for (rule, text) in cases {
        let found = rules_of(text.as_bytes());
        assert!(found.iter().any(|it| it == rule), "{rule}: {found:?}");
    }
}

#[test]
fn placeholders_and_ordinary_code_are_no_findings() {
    for text in [
        "password = \"changeme-please-1\"",
        "api_key = \"your_api_key_here_123\"",
        "let token = std::env::var(\"GITHUB_TOKEN\")?;",
        "token: ${{ secrets.GITHUB_TOKEN }}",
        "postgres://postgres:postgres@localhost/test",
        "https://user:password@example.com",
        "secret_key = { env = \"THE_SECRET_KEY_OF_1\" }",
        "ghp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "-----BEGIN PUBLIC KEY-----",
        "card 4111 1111 1111 1112",
        "checksum = \"3f8a1c5e7b9d2046a1b3c5d7e9f02468ace13579bdf03f8a1c5e7b9d2046a1b3\"",
        "let key = map.keys().next().unwrap();",
        "PASSWORD_FILE=/run/secrets/db_password_v2",
    ] {
        assert_eq!(rules_of(text.as_bytes()), [] as [&str; 0], "{text}");
    }
}

#[test]
fn a_finding_says_where_and_holds_nothing_of_the_secret() {
    let content = format!("one\n  two {}\n", token());

    let scanned = Scanner::built_in().unwrap().scan_bytes(content.as_bytes()).unwrap();

    let [finding] = &scanned.findings[..] else { panic!("{scanned:?}") };
    assert_eq!((finding.line, finding.column), (2, 7));
    assert!(!format!("{scanned:?}").contains("9aB3"));
}

#[test]
fn a_pragma_allows_its_own_line_and_the_rules_that_it_names() {
    let found = |line: &str| rules_of(format!("{line}\n{}\n", "x").as_bytes()).len();

    assert_eq!(found(&format!("{} # formwork:allow", token())), 0);
    assert_eq!(found(&format!("{} # formwork:allow github-token", token())), 0);
    assert_eq!(found(&format!("{} # formwork:allow aws-access-key-id", token())), 1);
    assert_eq!(found(&format!("{} /* gitleaks:allow */", token())), 0);
    assert_eq!(found(&format!("# formwork:allow\n{}", token())), 1);
}

#[test]
fn a_pragma_for_a_rule_that_there_is_not_allows_nothing_and_is_told() {
    let found = |behind: &str| {
        let content = format!("{} # formwork:allow{behind}\n", token());
        let mut scanned = Scanner::built_in().unwrap().scan_bytes(content.as_bytes()).unwrap();
        let finding = scanned.findings.remove(0);
        (finding.allowed, finding.no_rule)
    };

    assert_eq!(found(" aws"), (false, Some("aws".to_owned())));
    assert_eq!(found(" github"), (false, Some("github".to_owned())));
    assert_eq!(found(" github_token"), (false, Some("github_token".to_owned())));
    assert_eq!(found("ed"), (false, Some("ed".to_owned())));
    assert_eq!(found(" aws-access-key-id"), (false, None));
    for all in ["", " */", "\\n\",", "\"}", " -- a test's own", " (void since March)", ": void"] {
        assert_eq!(found(all), (true, None), "{all}");
    }
    for named in [" github-token", " github-token, of a test", " jwt, github-token and others"] {
        assert_eq!(found(named), (true, None), "{named}");
    }
}

#[test]
fn a_key_behind_an_escape_is_found() {
    let mixed = "Zx9Kq2Lm4Np6Rs8Tv1Wy3Bc5Df7Gh0Jk2Mn4Pq6Rt8Uw1Xz3Ac5Eg7Hi9";
    let cases = [
        ("github-token", token()),
        ("aws-access-key-id", text(&["AK", "IA", "IOSFODNN7EXAMPLE"])),
        ("anthropic-key", text(&["sk-", "ant-", "api03-", mixed, mixed])),
        ("age-secret-key", text(&["AGE-SECRET", "-KEY-1", &"QPZRY9X8GF".repeat(6)[..58]])),
        ("twilio-key", text(&["twilio S", "K", "3f8a1c5e7b9d2046a1b3c5d7e9f02468"])),
        ("credit-card", text(&["4111 11", "11 1111 1111"])),
    ];

    for (rule, key) in cases {
        for escape in ["\\n", "\\t", "\\r\\n", "\\\\n"] {
            let content = format!("{{\"a\":\"x{escape}{key}{escape}\"}}\n");
            assert_eq!(rules_of(content.as_bytes()), [rule], "{content}");
        }
    }
    for escape in ["\\u001b", "\\x0a", "%3D", "%20", "\x1b[0;31m", "\\b"] {
        let content = format!("x{escape}{}", token());
        assert_eq!(rules_of(content.as_bytes()), ["github-token"], "{content}");
    }
    // What stands within a word is none.
    assert_eq!(rules_of(format!("xn{}", token()).as_bytes()), [] as [&str; 0]);
}

#[test]
fn an_escape_before_a_key_is_no_part_of_it() {
    let hash = |content: String| {
        let scanned = Scanner::built_in().unwrap().scan_bytes(content.as_bytes()).unwrap();
        scanned.findings.into_iter().map(|it| (it.column, it.hash)).collect::<Vec<_>>()
    };
    let key = text(&["AGE-SECRET", "-KEY-1", &"QPZRY9X8GF".repeat(6)[..58]]);

    let [(plain, one)] = hash(format!("  {key}"))[..] else { panic!() };
    let [(behind, other)] = hash(format!("\\n{key}"))[..] else { panic!() };

    assert_eq!((plain, one), (behind, other));
}

#[test]
fn a_secret_is_found_in_every_encoding_and_in_binaries() {
    let line = format!("first\r\nkey = {}\r\n", token());
    let utf16 = |big: bool| -> Vec<u8> {
        let unit = |unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() };
        line.encode_utf16().flat_map(unit).collect()
    };
    let utf32: Vec<u8> = line.chars().flat_map(|letter| (letter as u32).to_le_bytes()).collect();
    let latin1 = [b"caf\xe9 \xff ".as_slice(), line.as_bytes()].concat();
    let binary = [b"\x7fELF\0\0\x01".as_slice(), line.as_bytes(), b"\0\0\xfe\xff"].concat();
    let bom = [b"\xef\xbb\xbf".as_slice(), line.as_bytes()].concat();

    for content in [utf16(false), utf16(true), utf32, latin1, binary, bom] {
        assert_eq!(rules_of(&content), ["github-token"], "{content:?}");
    }
}

#[test]
fn a_secret_across_the_parts_of_a_huge_file_is_found_once() {
    for at in [(4 << 20) - 20, (4 << 20) - (32 << 10) - 3] {
        let mut content =
            b"a line of sixty-three letters, which is as long as lines are..\n".repeat(70_000);
        content.splice(at..at, format!("\n{}\n", token()).into_bytes());

        assert_eq!(rules_of(&content), ["github-token"], "{at}");
    }
}

#[test]
fn a_secret_that_begins_where_a_part_ends_and_its_name_before_is_found() {
    let line = text(&["api_", "key = \"", "q7Zk29LmX0pT", "4vB8sYw1\""]);
    let content = [vec![b'\n'; 4_161_525], line.into_bytes(), vec![b'\n'; 40 << 10]].concat();

    assert_eq!(rules_of(&content), ["assigned-secret"]);
}

#[test]
fn a_word_that_is_cut_by_the_begin_of_a_part_is_no_secret() {
    let border = window::WINDOW - window::OVERLAP;
    for begin in [border, border - window::CONTEXT] {
        let letters = format!("letters{}\n", token());
        let content = [vec![b'\n'; begin - 7], letters.into_bytes(), vec![b'\n'; 40 << 10]];

        assert_eq!(rules_of(&content.concat()), [] as [&str; 0], "{begin}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn a_secret_at_any_place_around_any_border_of_the_parts_is_found_once(
        (which, part) in (0..4_usize, 0..3_usize),
        by in -400..400_isize,
        (kind, is_wide) in (0..5_usize, proptest::bool::ANY),
        filler in "[a-z .\n]{1,9}\n",
    ) {
        const SIZE: usize = 64 << 10;
        let secret = match kind {
            0 => text(&["api_", "key = \"", "q7Zk29LmX0pT", "4vB8sYw1\""]),
            1 => token(),
            2 => text(&["postgres://app:", "s3cr3tW0rd", "@db.internal/app"]),
            3 => text(&["machine host\n  login me\n  pass", "word ", "q7Zk29LmX0pT"]),
            _ => text(&["Authorization: Be", "arer ", "Zx9Kq2Lm4Np6Rs8Tv1Wy3Bc5Df7Gh0Jk2"]),
        };
        let width = if is_wide { 2 } else { 1 };
        let step = SIZE - window::CONTEXT - window::OVERLAP;
        let borders = [0, window::CONTEXT, SIZE - window::OVERLAP, SIZE];
        let begin = (borders[which] + part * step).saturating_add_signed(by) / width;
        let mut content: Vec<u8> = filler.bytes().cycle().take(begin).collect();
        content.extend(format!("\n{secret}\n").into_bytes());
        content.extend(filler.bytes().cycle().take(50 << 10));
        let content: Vec<u8> = match is_wide {
            true => content.into_iter().flat_map(|byte| [byte, 0]).collect(),
            false => content,
        };

        let found = Scanner::built_in().unwrap().scan_by(&content[..], SIZE).unwrap();

        proptest::prop_assert_eq!(found.findings.len(), 1, "{} {}: {:?}", secret, begin, found);
        proptest::prop_assert_eq!(found.bytes, content.len() as u64);
    }
}

#[test]
fn more_findings_than_anybody_reads_are_counted() {
    let content = format!("{}\n", token()).repeat(1_000);

    let scanned = Scanner::built_in().unwrap().scan_bytes(content.as_bytes()).unwrap();

    assert_eq!((scanned.findings.len(), scanned.more), (MAX_FINDINGS, 1_000 - MAX_FINDINGS as u64));
    assert_eq!(scanned.bytes, content.len() as u64);
}

#[test]
fn what_cannot_be_read_to_its_end_is_an_error() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }

    let error = Scanner::built_in().unwrap().scan(Broken).unwrap_err();

    assert!(matches!(error, Error::Unreadable { .. }), "{error}");
}
