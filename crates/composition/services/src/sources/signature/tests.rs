use proptest::prelude::*;

use super::*;

/// 2026-12-01T12:00:00Z.
const NOW: Timestamp = Timestamp::from_micros(1_796_126_400_000_000);

fn github() -> Scheme {
    let header = "x-hub-signature-256".to_owned();
    Scheme::Hmac { header, encoding: Encoding::Hex, prefix: "sha256=".to_owned() }
}

fn keys(scheme: &Scheme, secrets: &[&str]) -> Vec<Key> {
    secrets.iter().map(|secret| scheme.key(secret).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sign(secret: &[u8], message: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    hmac::sign(&key, message).as_ref().to_vec()
}

/// Source: GitHub's documentation, "Validating webhook deliveries".
#[test]
fn behaviour_38_the_example_of_githubs_own_documentation_passes() {
    let scheme = github();
    let keys = keys(&scheme, &["It's a Secret to Everybody"]);
    let signature = b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let headers: Headers<'_> = &[("X-Hub-Signature-256", signature)];

    assert_eq!(scheme.verify(&keys, headers, b"Hello, World!", NOW), Ok(()));
    assert_eq!(scheme.verify(&keys, headers, b"Hello, World?", NOW), Err(Unverified::Wrong));
}

/// Source: the specification of Standard Webhooks, and the tests of its libraries.
#[test]
fn behaviour_38_the_example_of_standard_webhooks_passes_while_it_is_fresh() {
    let scheme = Scheme::Standard { tolerance: Span::from_secs(300) };
    let keys = keys(&scheme, &["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]);
    let headers: Headers<'_> = &[
        ("webhook-id", b"msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", b"1614265330"),
        ("webhook-signature", b"v1,bm9ldHUjKzFob2VudXRob2VodWUzMjRvdWVvdW9ldQo= v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ];
    let body = br#"{"test": 2432232314}"#;
    let then = Timestamp::from_micros(1_614_265_330_000_000);

    assert_eq!(scheme.verify(&keys, headers, body, then), Ok(()));
    assert_eq!(scheme.verify(&keys, headers, body, then.after(Span::from_secs(300))), Ok(()));
    let late = then.after(Span::from_secs(301));
    assert_eq!(scheme.verify(&keys, headers, body, late), Err(Unverified::Stale));
    assert_eq!(scheme.verify(&keys, headers, b"{}", then), Err(Unverified::Wrong));
}

#[test]
fn behaviour_38_a_signature_with_a_time_cannot_be_sent_again_later_nor_its_time_be_changed() {
    let scheme = Scheme::Stripe { tolerance: Span::from_secs(300) };
    let keys = keys(&scheme, &["whsec_old", "whsec_new"]);
    let signed = |at: &str| hex(&sign(b"whsec_new", format!("{at}.{{}}").as_bytes()));
    let verify = |header: String| {
        scheme.verify(&keys, &[("Stripe-Signature", header.as_bytes())], b"{}", NOW)
    };
    let (now, old) = ("1796126400", "1796126000");

    assert_eq!(verify(format!("t={now},v1={},v0=00", signed(now))), Ok(()));
    // As while its owner changes the secret: one by each.
    assert_eq!(verify(format!("t={now},v1={},v1={}", signed(old), signed(now))), Ok(()));
    assert_eq!(verify(format!("t={old},v1={}", signed(old))), Err(Unverified::Stale));
    assert_eq!(verify(format!("t={now},v1={}", signed(old))), Err(Unverified::Wrong));
    assert_eq!(verify(format!("t={now},t={old},v1={}", signed(now))), Err(Unverified::Wrong));
    assert_eq!(verify(format!("v1={}", signed(now))), Err(Unverified::Wrong));
    assert_eq!(verify(format!("t=,v1={}", signed(""))), Err(Unverified::Wrong));
    assert_eq!(
        verify(format!("t=+{now},v1={}", signed(&format!("+{now}")))),
        Err(Unverified::Wrong)
    );
    let many = format!("t={now}{},v1={}", ",v1=00".repeat(20), signed(now));
    assert_eq!(verify(many), Err(Unverified::Wrong));
}

#[test]
fn behaviour_38_a_plain_token_is_any_of_the_secrets_and_nothing_near_them() {
    let scheme = Scheme::Token { header: "x-gitlab-token".to_owned() };
    let keys = keys(&scheme, &["token-new", "token-old"]);
    let verify = |token: &[u8]| scheme.verify(&keys, &[("X-Gitlab-Token", token)], b"{}", NOW);

    assert_eq!((verify(b"token-new"), verify(b"token-old")), (Ok(()), Ok(())));
    for token in [b"".as_slice(), b"token", b"token-new2", b"TOKEN-NEW", b"token-new\0", b"\xff"] {
        assert_eq!(verify(token), Err(Unverified::Wrong), "{token:?}");
    }
    assert_eq!(scheme.verify(&keys, &[], b"{}", NOW), Err(Unverified::Unsigned));
    let twice: Headers<'_> = &[("x-gitlab-token", b"token-new"), ("X-GitLab-Token", b"token-new")];
    assert_eq!(scheme.verify(&keys, twice, b"{}", NOW), Err(Unverified::Wrong));
}

#[test]
fn a_secret_of_standard_webhooks_that_is_no_base64_is_no_key() {
    let scheme = Scheme::Standard { tolerance: Span::from_secs(1) };

    assert!(scheme.key("whsec_!").is_err() && scheme.key("bm9ldA==").is_ok());
}

proptest! {
    #[test]
    fn behaviour_38_any_of_the_keys_passes_and_any_changed_bit_is_refused(
        secrets in prop::collection::vec("[ -~]{8,40}", 1..4),
        which in any::<prop::sample::Index>(),
        body in prop::collection::vec(any::<u8>(), 1..300),
        (bit, of_key, of_header) in any::<(prop::sample::Index, prop::sample::Index, prop::sample::Index)>(),
        is_base64 in any::<bool>(),
    ) {
        let encoding = if is_base64 { Encoding::Base64 } else { Encoding::Hex };
        let scheme = Scheme::Hmac { header: "x-sign".to_owned(), encoding, prefix: "v=".to_owned() };
        let secret = which.get(&secrets);
        let tag = sign(secret.as_bytes(), &body);
        let written = if is_base64 { STANDARD.encode(&tag) } else { hex(&tag) };
        let header = format!("v={written}").into_bytes();
        let all: Vec<&str> = secrets.iter().map(String::as_str).collect();
        let flipped = |bytes: &[u8], at: &prop::sample::Index| {
            let (mut bytes, at) = (bytes.to_vec(), at.index(bytes.len() * 8));
            bytes[at / 8] ^= 1 << (at % 8);
            bytes
        };
        let verify = |secrets: &[&str], header: &[u8], body: &[u8]| {
            scheme.verify(&keys(&scheme, secrets), &[("X-Sign", header)], body, NOW)
        };

        prop_assert_eq!(verify(&all, &header, &body), Ok(()));
        prop_assert_eq!(verify(&all, &header, &flipped(&body, &bit)), Err(Unverified::Wrong));
        let other = flipped(secret.as_bytes(), &of_key);
        let other = other.iter().map(|byte| char::from(byte & 0x7f)).collect::<String>();
        if other != *secret {
            prop_assert_eq!(verify(&[&other], &header, &body), Err(Unverified::Wrong));
        }
        let changed = flipped(&header, &of_header);
        // A digit means the same in either case, and is no other signature.
        let is_same = !is_base64 && changed.eq_ignore_ascii_case(&header) && changed.starts_with(b"v=");
        if !is_same {
            prop_assert_eq!(verify(&all, &changed, &body), Err(Unverified::Wrong));
        }
        let cut = header[..header.len() - 1].to_vec();
        prop_assert_eq!(verify(&all, &cut, &body), Err(Unverified::Wrong));
        prop_assert_eq!(verify(&all, b"", &body), Err(Unverified::Wrong));
    }

    #[test]
    fn behaviour_38_nothing_that_is_sent_makes_a_check_fail_in_another_way(
        name in prop::sample::select(vec!["stripe-signature", "webhook-signature", "webhook-id", "webhook-timestamp", "x-hub-signature-256", "x-gitlab-token"]),
        said in prop::collection::vec(any::<u8>(), 0..200),
        body in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let tolerance = Span::from_secs(300);
        let token = Scheme::Token { header: "x-gitlab-token".to_owned() };
        for scheme in [github(), token, Scheme::Stripe { tolerance }, Scheme::Standard { tolerance }] {
            let keys = keys(&scheme, &["c2VjcmV0IQ=="]);
            prop_assert!(scheme.verify(&keys, &[(name, &said)], &body, NOW).is_err());
        }
    }
}
