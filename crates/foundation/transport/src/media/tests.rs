use std::sync::Arc;

use formwork_protocols::{
    BlobHash, Cancel, Message, ModelRequest, Part, Provider as _, ProviderFault, Role,
    message::{Arguments, ToolCall, ToolResult},
};
use serde_json::json;

use super::*;
use crate::replay::sent_json;

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

/// A picture as a conversation has it, with its bytes.
fn kept(name: &str, bytes: &[u8]) -> Attachment {
    let found = look(bytes).unwrap();
    Attachment {
        blob: BlobHash::of(bytes),
        media_type: found.format.media_type().to_owned(),
        bytes: bytes.len() as u64,
        pixels: found.pixels,
        name: name.to_owned(),
        content: Some(Arc::from(bytes)),
    }
}

/// A question with a picture, and two results of which the second shows one, as it is sent while the calls are new.
fn pictures() -> ModelRequest {
    let picture = |name: &str| kept(name, &bytes(PNG));
    let call = |id: &str| {
        let arguments = Arguments::Json(json!({ "path": format!("{id}.png") }));
        Part::ToolCall(ToolCall { id: id.to_owned(), name: "fs.read".to_owned(), arguments })
    };
    let result = |id: &str, content: &str, attached| {
        Part::ToolResult(ToolResult {
            call_id: id.to_owned(),
            name: "fs.read".to_owned(),
            content: content.to_owned(),
            is_error: false,
            attached,
        })
    };
    let asked = vec![
        Part::Text { text: "What is this @dot.png?".to_owned() },
        Part::Text { text: format!("\n\n[{}]", picture("dot.png")) },
        Part::Attached(picture("dot.png")),
    ];
    let results = vec![
        result("one", "# Title", Vec::new()),
        result("two", "two.png is a picture of 1 × 1 pixels", vec![picture("two.png")]),
    ];
    let messages = vec![
        Message::text(Role::System, "Rules."),
        Message { role: Role::User, parts: asked },
        Message { role: Role::Assistant, parts: vec![call("one"), call("two")] },
        Message { role: Role::Tool, parts: results },
    ];
    let mut request = ModelRequest::new("m-1".parse().unwrap(), messages);
    request.tail = Some("[left of your budget: $1]".to_owned());
    request
}

#[test]
fn a_picture_is_sent_as_each_wire_wants_it_in_what_is_asked_and_in_a_result() {
    for (kind, name) in [
        (ProviderKind::OpenAiCompatible, "openai_chat"),
        (ProviderKind::OpenAiResponses, "openai_responses"),
        (ProviderKind::Anthropic, "anthropic"),
        (ProviderKind::Google, "google"),
        (ProviderKind::Ollama, "ollama"),
    ] {
        insta::assert_json_snapshot!(name, sent_json(kind, &pictures()));
    }
    let mut older = pictures();
    older.model = "gemini-2.5-flash".parse().unwrap();
    let contents = &sent_json(ProviderKind::Google, &older)["body"]["contents"][2]["parts"];
    let keys: Vec<_> = contents
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part.as_object().unwrap().keys().next().unwrap())
        .collect();
    assert_eq!(keys, ["functionResponse", "functionResponse", "inlineData", "text"]);
    assert!(!contents.to_string().contains("\"parts\""));
}

#[test]
fn what_is_kept_is_judged_by_what_is_known_of_it() {
    let told = |kind, attachment: &Attachment| {
        allows(kind, attachment).map_err(|unfit| unfit.to_string()).err().unwrap_or_default()
    };
    let dot = kept("dot.png", &bytes(PNG));
    let gif = kept("dot.gif", &bytes(GIF));
    let plan = kept("plan.pdf", b"%PDF-1.7\n%%EOF\n");
    let wide = Attachment { pixels: Some((9_000, 10)), ..dot.clone() };
    let heavy = Attachment { bytes: 4 << 20, ..dot.clone() };
    let other = Attachment { media_type: "image/bmp".to_owned(), ..dot.clone() };
    let (anthropic, google) = (ProviderKind::Anthropic, ProviderKind::Google);

    assert_eq!([told(anthropic, &dot), told(google, &plan)], ["", ""]);
    assert_eq!(told(google, &gif), "google takes no GIF");
    assert_eq!(told(ProviderKind::Ollama, &plan), "ollama takes no PDF");
    let most = "it has 9000 × 10 pixels, and anthropic takes at most 8000 on each side";
    assert_eq!(told(anthropic, &wide), most);
    let most = "it has 5592408 bytes as it is sent, and anthropic takes at most 5242880";
    assert_eq!(told(anthropic, &heavy), most);
    assert_eq!(told(anthropic, &other), "it is no PNG, JPEG, GIF, WebP or PDF");
}

#[test]
fn a_request_with_too_much_of_it_or_without_its_bytes_is_refused_as_a_whole() {
    let told = |kind, attached: Vec<Attachment>| {
        let mut request = pictures();
        let more = attached.into_iter().map(Part::Attached).collect();
        request.messages.push(Message { role: Role::User, parts: more });
        check_all(kind, &request).map_err(|fault| fault.message).err().unwrap_or_default()
    };
    let dot = kept("dot.png", &bytes(PNG));
    let anthropic = ProviderKind::Anthropic;

    assert_eq!(told(anthropic, vec![dot.clone(); 98]), "");
    let most = "the request has 101 images, and anthropic takes at most 100";
    assert_eq!(told(anthropic, vec![dot.clone(); 99]), most);
    let pdf = kept("plan.pdf", &[&b"%PDF-1.7\n"[..], &vec![b' '; 9 << 20], b"%%EOF\n"].concat());
    let most = told(anthropic, vec![pdf.clone(), pdf.clone(), pdf]);
    assert!(
        most.ends_with(" bytes as they are sent, and anthropic takes at most 33554432"),
        "{most}"
    );
    let bare = Attachment { content: None, ..dot };
    assert_eq!(
        told(anthropic, vec![bare]),
        "image \"dot.png\" cannot be sent: its bytes are missing"
    );
}
