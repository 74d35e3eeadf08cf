use formwork_protocols::{Cancel, Message, ModelRequest, Part, Provider as _, ProviderFault, Role};

use super::*;

/// Each of the makers' formats as an encoder writes it: a dot, or eight by eight pixels of grey.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
const JPEG: &str = "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQH/wAALCAAIAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8AP//Z";
const GIF: &str = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";
const LOSSY: &str = "UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA";
const LOSSLESS: &str = "UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==";

fn bytes(data: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(data).unwrap()
}

fn text(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// Returns a PNG whose header says so many pixels, sealed as its writer would.
fn header(width: u32, height: u32) -> Vec<u8> {
    let mut png = bytes(PNG);
    png[16..20].copy_from_slice(&width.to_be_bytes());
    png[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = image::crc(&png[12..29]);
    png[29..33].copy_from_slice(&sum.to_be_bytes());
    png
}

#[test]
fn a_picture_is_what_its_bytes_say_whole_and_of_its_size() {
    let pdf = b"%PDF-1.7\n1 0 obj\nendobj\ntrailer\n%%EOF\n";
    let all = [PNG, JPEG, GIF, LOSSY, LOSSLESS].map(|data| look(&bytes(data)).unwrap());

    let found = all.map(|media| (media.format, media.pixels.unwrap()));
    let dot = (1, 1);
    assert_eq!(
        found,
        [
            (Format::Png, dot),
            (Format::Jpeg, (8, 8)),
            (Format::Gif, dot),
            (Format::WebP, dot),
            (Format::WebP, dot),
        ]
    );
    assert_eq!(look(pdf), Ok(Media { format: Format::Pdf, pixels: None }));
    assert_eq!(look(b"<svg/>"), Err(Unfit::Unknown));
    assert_eq!(look(b""), Err(Unfit::Unknown));
}

#[test]
fn what_is_cut_anywhere_is_not_whole_and_nothing_panics() {
    for data in [PNG, JPEG, GIF, LOSSY, LOSSLESS] {
        let whole = bytes(data);
        // What came behind the end is no part of it.
        let media = look(&whole).unwrap();
        assert_eq!(look(&[&whole[..], b"more"].concat()), Ok(media));
        for end in 0..whole.len() {
            let found = look(&whole[..end]);
            assert!(
                found.is_err(),
                "{data} is whole with {end} of {} bytes: {found:?}",
                whole.len()
            );
        }
    }
    let cut = look(&bytes(JPEG)[..bytes(JPEG).len() - 2]).unwrap_err();
    assert_eq!(cut.to_string(), "its JPEG is not whole: it ends too early");
    let mut turned = bytes(PNG);
    turned[45] ^= 1;
    let told = look(&turned).unwrap_err().to_string();
    assert_eq!(told, "its PNG is not whole: a chunk is not as it was written");
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        start in 0_usize..5,
        at in 0_usize..300,
        some in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64),
    ) {
        let mut bytes = bytes([PNG, JPEG, GIF, LOSSY, LOSSLESS][start]);
        let at = at.min(bytes.len());
        bytes.splice(at.., some);
        let _ = look(&bytes);
    }
}

#[test]
fn each_provider_takes_what_it_takes_and_says_why_not() {
    let told = |kind, media_type: &str, data: &str| {
        check(kind, media_type, data).map_err(|unfit| unfit.to_string())
    };
    let anthropic = ProviderKind::Anthropic;
    let bomb = text(&header(30_000, 30_000));
    let wide = text(&header(9_000, 10));
    let heavy = {
        let mut gif = bytes(GIF);
        gif.truncate(gif.len() - 1);
        for _ in 0..17_000 {
            gif.extend([0x21, 0xfe, 255]);
            gif.extend([b' '; 255]);
            gif.push(0);
        }
        gif.push(0x3b);
        text(&gif)
    };

    assert_eq!(told(anthropic, "image/png", PNG), Ok(()));
    assert_eq!(told(anthropic, "image/jpg", JPEG), Ok(()));
    let refusals = [
        told(anthropic, "image/png", JPEG),
        told(ProviderKind::Google, "image/gif", GIF),
        told(anthropic, "image/png", &bomb),
        told(ProviderKind::OpenAiCompatible, "image/png", &bomb),
        told(anthropic, "image/png", &wide),
        told(ProviderKind::Ollama, "image/png", &wide),
        told(anthropic, "image/gif", &heavy),
        told(ProviderKind::OpenAi, "image/gif", &heavy),
        told(anthropic, "image/png", "no base64!"),
        told(anthropic, "application/pdf", &text(b"%PDF-1.7\nand no end")),
        told(anthropic, "text/plain", &text(b"a\0b")),
        told(anthropic, "text/plain", &text("é".as_bytes())),
        told(anthropic, "image/png", &text(&header(0, 1))),
    ];
    insta::assert_debug_snapshot!(refusals);
}

#[tokio::test]
async fn what_does_not_fit_is_refused_by_its_name_before_anything_is_sent() {
    let server = formwork_testkit::http::Server::start().await.unwrap();
    let image =
        |data: &str| Part::Image { media_type: "image/png".to_owned(), data: data.to_owned() };
    let whole = bytes(PNG);
    let cut = text(&whole[..whole.len() - 4]);
    let document = Part::Document {
        media_type: "application/pdf".to_owned(),
        data: PNG.to_owned(),
        name: Some("plan.pdf".to_owned()),
    };
    let mut told = Vec::new();
    for kind in [
        ProviderKind::OpenAiCompatible,
        ProviderKind::OpenAiResponses,
        ProviderKind::Anthropic,
        ProviderKind::Google,
        ProviderKind::Ollama,
    ] {
        let endpoint = crate::Endpoint::new("local".parse().unwrap(), kind, server.url());
        let client = crate::Client::new(endpoint, crate::Seams::default()).unwrap();
        for parts in [vec![image(PNG), image(&cut)], vec![document.clone()]] {
            let message = Message { role: Role::User, parts };
            let request = ModelRequest::new("m".parse().unwrap(), vec![message]);
            let error = client.complete(request, Cancel::new()).await.unwrap_err();
            assert_eq!((error.fault, error.tries), (ProviderFault::Invalid, 1));
            assert!(error.used.is_none());
            told.push(error.message);
        }
    }
    told.dedup();
    let first = told
        .iter()
        .step_by(2)
        .all(|told| told == "image 2 cannot be sent: its PNG is not whole: it ends too early");
    let second = told.iter().skip(1).step_by(2).all(|told| {
        told == "document \"plan.pdf\" cannot be sent: it is said to be application/pdf, and is a PNG"
    });
    assert!(first && second, "{told:#?}");
    assert!(server.requests().is_empty());
}
