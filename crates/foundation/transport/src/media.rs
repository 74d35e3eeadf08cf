//! Images and documents, looked at before they are sent: what they really are, whether they are whole, and whether the
//! provider takes them. A server would say so as well, less clearly, and may bill for it.

mod image; // What a picture is by its bytes.

use std::borrow::Cow;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use formwork_protocols::{Attachment, ModelRequest, Part, ProviderFault};

use crate::{endpoint::ProviderKind, fault::Fault};

/// What bytes are, by what stands in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is the format of its name")]
pub enum Format {
    Png,
    Jpeg,
    Gif,
    WebP,
    Pdf,
}

impl Format {
    /// Returns its media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::WebP => "image/webp",
            Self::Pdf => "application/pdf",
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::Gif => "GIF",
            Self::WebP => "WebP",
            Self::Pdf => "PDF",
        })
    }
}

/// What was found in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Media {
    /// What they are.
    pub format: Format,
    /// Width and height in pixels, of an image.
    pub pixels: Option<(u32, u32)>,
}

/// Why an image or a document is not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Unfit {
    /// It is nothing that any provider takes.
    #[error("it is no PNG, JPEG, GIF, WebP or PDF")]
    Unknown,
    /// It is something else than it is said to be.
    #[error("it is said to be {declared}, and is a {found}")]
    Other { declared: String, found: Format },
    /// A part of it is missing, or not as it was written.
    #[error("its {format} is not whole: {what}")]
    Broken { format: Format, what: &'static str },
    /// It is said to be a text, and is none.
    #[error("it is said to be {declared}, and is no text in UTF-8")]
    NoText { declared: String },
    /// It is no base64.
    #[error("it is not base64")]
    NoBase64,
    /// The provider does not take such a thing.
    #[error("{provider} takes no {format}")]
    NotTaken { provider: ProviderKind, format: Format },
    /// It is wider or higher than the provider takes.
    #[error("it has {width} × {height} pixels, and {provider} takes at most {most} on each side")]
    Large { width: u32, height: u32, provider: ProviderKind, most: u32 },
    /// It has more bytes than the provider takes.
    #[error("it has {bytes} bytes as it is sent, and {provider} takes at most {most}")]
    Heavy { bytes: usize, provider: ProviderKind, most: usize },
    /// Its bytes were not put in.
    #[error("its bytes are missing")]
    Missing,
}

/// The widest and highest that is sent to whoever says nothing of their own: what a WebP can be. Decoders make a gigabyte of
/// it; a header that says more is one that was made to be a burden.
const SIDE: u32 = 16_383;

/// What a provider takes.
struct Limits {
    formats: &'static [Format],
    side: u32,
    /// Of one image or document in base64.
    bytes: usize,
    /// Of all of a request together.
    whole: usize,
    /// How many images a request may have.
    images: usize,
}

impl Limits {
    /// Source: Google's formats and size by its page on vision, as stored copies of it had it; Anthropic's and OpenAI's numbers
    /// were written down from knowledge and not read off their pages. Where a limit is one of the whole request, no part of
    /// it may be larger.
    const fn of(kind: ProviderKind) -> Self {
        const ALL: &[Format] = &[Format::Png, Format::Jpeg, Format::Gif, Format::WebP, Format::Pdf];
        const GOOGLE: &[Format] = &[Format::Png, Format::Jpeg, Format::WebP, Format::Pdf];
        // What serves models of one's own takes no files but pictures.
        const OWN: &[Format] = &[Format::Png, Format::Jpeg, Format::Gif, Format::WebP];
        const MANY: usize = 50_000_000;
        match kind {
            ProviderKind::Anthropic => {
                Self { formats: ALL, side: 8_000, bytes: 5 << 20, whole: 32 << 20, images: 100 }
            }
            ProviderKind::Google => Self {
                formats: GOOGLE,
                side: SIDE,
                bytes: 20_000_000,
                whole: 20_000_000,
                images: 3_600,
            },
            ProviderKind::Ollama
            | ProviderKind::LlamaCpp
            | ProviderKind::LmStudio
            | ProviderKind::Vllm => {
                Self { formats: OWN, side: SIDE, bytes: MANY, whole: MANY, images: 500 }
            }
            _ => Self { formats: ALL, side: SIDE, bytes: MANY, whole: MANY, images: 500 },
        }
    }

    /// Holds against them what an image or a document is, and how many bytes it has in base64.
    fn allow(&self, provider: ProviderKind, media: Media, bytes: usize) -> Result<(), Unfit> {
        if !self.formats.contains(&media.format) {
            return Err(Unfit::NotTaken { provider, format: media.format });
        }
        if let Some((width, height)) = media.pixels
            && width.max(height) > self.side
        {
            return Err(Unfit::Large { width, height, provider, most: self.side });
        }
        let most = match (provider, media.format) {
            (ProviderKind::Anthropic, Format::Pdf) => ANTHROPIC_PDF,
            _ => self.bytes,
        };
        if bytes > most {
            return Err(Unfit::Heavy { bytes, provider, most });
        }
        Ok(())
    }
}

/// What a PDF begins with; a little may stand before it.
const PDF: &[u8] = b"%PDF-";

/// Anthropic's limit of a document is that of the request.
const ANTHROPIC_PDF: usize = 32 << 20;

/// Tells what bytes begin as, whether or not all of them are there.
pub fn begins_as(bytes: &[u8]) -> Option<Format> {
    if bytes.starts_with(PDF) {
        return Some(Format::Pdf);
    }
    match image::look(bytes) {
        Ok(media) => media.map(|media| media.format),
        Err(Unfit::Broken { format, .. }) => Some(format),
        Err(_) => None,
    }
}

/// Finds out what bytes are, by themselves, and whether they are whole.
///
/// # Errors
/// [`Unfit::Unknown`] and [`Unfit::Broken`].
pub fn look(bytes: &[u8]) -> Result<Media, Unfit> {
    if let Some(media) = image::look(bytes)? {
        return Ok(media);
    }
    let (head, tail) =
        (&bytes[..bytes.len().min(1_024)], &bytes[bytes.len().saturating_sub(1_024)..]);
    let holds = |part: &[u8], mark: &[u8]| memchr::memmem::find(part, mark).is_some();
    if !holds(head, PDF) {
        return Err(Unfit::Unknown);
    }
    match holds(tail, b"%%EOF") {
        true => Ok(Media { format: Format::Pdf, pixels: None }),
        false => Err(Unfit::Broken { format: Format::Pdf, what: "its end is missing" }),
    }
}

/// Tells whether a provider takes an image or a document, by its media type and base64 of its bytes.
///
/// # Errors
/// Why it does not.
pub fn check(provider: ProviderKind, media_type: &str, data: &str) -> Result<(), Unfit> {
    let bytes = BASE64_STANDARD.decode(data).map_err(|_| Unfit::NoBase64)?;
    check_bytes(provider, media_type, &bytes)
}

fn check_bytes(provider: ProviderKind, media_type: &str, bytes: &[u8]) -> Result<(), Unfit> {
    let declared = || media_type.to_owned();
    if is_text(media_type) {
        let is_text = std::str::from_utf8(bytes).is_ok() && !bytes.contains(&0);
        return if is_text { Ok(()) } else { Err(Unfit::NoText { declared: declared() }) };
    }
    let media = look(bytes)?;
    // Both names of it are in use.
    let is_named = media_type == media.format.media_type()
        || (media.format == Format::Jpeg && media_type == "image/jpg");
    if !is_named {
        return Err(Unfit::Other { declared: declared(), found: media.format });
    }
    Limits::of(provider).allow(provider, media, in_base64(bytes.len()))
}

/// Tells whether a provider takes what is kept, by what is known of it without its bytes.
///
/// # Errors
/// Why it does not.
pub fn allows(provider: ProviderKind, attachment: &Attachment) -> Result<(), Unfit> {
    const ALL: [Format; 5] = [Format::Png, Format::Jpeg, Format::Gif, Format::WebP, Format::Pdf];
    let format = ALL.into_iter().find(|format| format.media_type() == attachment.media_type);
    let media = Media { format: format.ok_or(Unfit::Unknown)?, pixels: attachment.pixels };
    let bytes = usize::try_from(attachment.bytes).unwrap_or(usize::MAX);
    Limits::of(provider).allow(provider, media, in_base64(bytes))
}

fn is_text(media_type: &str) -> bool {
    media_type.starts_with("text/") || media_type == "application/json"
}

/// Returns how long so many bytes are in base64.
const fn in_base64(bytes: usize) -> usize {
    bytes.div_ceil(3).saturating_mul(4)
}

/// An image or a document as a wire sends it.
#[derive(Debug)]
pub(crate) struct Sent<'a> {
    pub(crate) media_type: &'a str,
    /// Its bytes in base64.
    pub(crate) data: Cow<'a, str>,
    pub(crate) name: Option<&'a str>,
    pub(crate) is_image: bool,
}

impl Sent<'_> {
    /// Returns it as an address that holds it.
    pub(crate) fn url(&self) -> String {
        format!("data:{};base64,{}", self.media_type, self.data)
    }
}

/// Returns the image or the document that a part is, if it is one.
pub(crate) fn sent(part: &Part) -> Option<Sent<'_>> {
    Some(match part {
        Part::Image { media_type, data } => {
            Sent { media_type, data: data.into(), name: None, is_image: true }
        }
        Part::Document { media_type, data, name } => {
            Sent { media_type, data: data.into(), name: name.as_deref(), is_image: false }
        }
        Part::Attached(attachment) => attached(attachment),
        _ => return None,
    })
}

/// Returns what is attached as it is sent. That its bytes are there was seen to before.
pub(crate) fn attached(attachment: &Attachment) -> Sent<'_> {
    let bytes = attachment.content.as_deref().unwrap_or_default();
    Sent {
        media_type: &attachment.media_type,
        data: BASE64_STANDARD.encode(bytes).into(),
        name: Some(&attachment.name),
        is_image: attachment.is_image(),
    }
}

/// What was looked at of a request.
struct Looking {
    provider: ProviderKind,
    images: usize,
    documents: usize,
    bytes: usize,
}

impl Looking {
    /// Counts an image or a document and returns what it is called.
    fn count(&mut self, is_image: bool, name: Option<&str>, bytes: usize) -> String {
        self.bytes = self.bytes.saturating_add(bytes);
        let (what, number) = match is_image {
            true => ("image", &mut self.images),
            false => ("document", &mut self.documents),
        };
        *number += 1;
        match name {
            Some(name) => format!("{what} {name:?}"),
            None => format!("{what} {number}"),
        }
    }

    fn part(&mut self, part: &Part) -> Result<(), Fault> {
        let (what, checked) = match part {
            Part::Image { media_type, data } => {
                let what = self.count(true, None, data.len());
                (what, check(self.provider, media_type, data))
            }
            Part::Document { media_type, data, name } => {
                let what = self.count(false, name.as_deref(), data.len());
                (what, check(self.provider, media_type, data))
            }
            Part::Attached(attachment) => return self.attachment(attachment),
            Part::ToolResult(result) => {
                return result.attached.iter().try_for_each(|attached| self.attachment(attached));
            }
            _ => return Ok(()),
        };
        checked.map_err(|unfit| refused(&what, &unfit))
    }

    fn attachment(&mut self, attachment: &Attachment) -> Result<(), Fault> {
        let bytes = attachment.content.as_deref();
        let length = in_base64(bytes.map_or(0, <[u8]>::len));
        let what = self.count(attachment.is_image(), Some(&attachment.name), length);
        let checked = bytes.ok_or(Unfit::Missing);
        let checked =
            checked.and_then(|bytes| check_bytes(self.provider, &attachment.media_type, bytes));
        checked.map_err(|unfit| refused(&what, &unfit))
    }
}

fn refused(what: &str, unfit: &Unfit) -> Fault {
    Fault::new(ProviderFault::Invalid, format!("{what} cannot be sent: {unfit}"))
}

/// Looks at all that is no words of a request.
///
/// # Errors
/// [`ProviderFault::Invalid`], which names the part and the reason, or how many they are.
pub(crate) fn check_all(provider: ProviderKind, request: &ModelRequest) -> Result<(), Fault> {
    let mut looking = Looking { provider, images: 0, documents: 0, bytes: 0 };
    for part in request.messages.iter().flat_map(|message| &message.parts) {
        looking.part(part)?;
    }
    let limits = Limits::of(provider);
    if looking.images > limits.images {
        let message = format!(
            "the request has {} images, and {provider} takes at most {}",
            looking.images, limits.images
        );
        return Err(Fault::new(ProviderFault::Invalid, message));
    }
    if looking.bytes > limits.whole {
        let message = format!(
            "the images and documents of the request have {} bytes as they are sent, and {provider} takes at most {}",
            looking.bytes, limits.whole
        );
        return Err(Fault::new(ProviderFault::Invalid, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
