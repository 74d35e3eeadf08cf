//! Images and documents, looked at before they are sent: what they really are, whether they are whole, and whether the
//! provider takes them. A server would say so as well, less clearly, and may bill for it.

mod image; // What a picture is by its bytes.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use formwork_protocols::{ModelRequest, Part, ProviderFault};

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
}

impl Limits {
    /// Source: Google's formats and size by its page on vision, as stored copies of it had it; Anthropic's and OpenAI's numbers
    /// were written down from knowledge and not read off their pages. Where a limit is one of the whole request, no part of
    /// it may be larger.
    const fn of(kind: ProviderKind) -> Self {
        const ALL: &[Format] = &[Format::Png, Format::Jpeg, Format::Gif, Format::WebP, Format::Pdf];
        const GOOGLE: &[Format] = &[Format::Png, Format::Jpeg, Format::WebP, Format::Pdf];
        match kind {
            ProviderKind::Anthropic => Self { formats: ALL, side: 8_000, bytes: 5 << 20 },
            ProviderKind::Google => Self { formats: GOOGLE, side: SIDE, bytes: 20_000_000 },
            _ => Self { formats: ALL, side: SIDE, bytes: 50_000_000 },
        }
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
    let declared = || media_type.to_owned();
    let bytes = BASE64_STANDARD.decode(data).map_err(|_| Unfit::NoBase64)?;
    let limits = Limits::of(provider);
    if media_type.starts_with("text/") || media_type == "application/json" {
        let is_text = std::str::from_utf8(&bytes).is_ok() && !bytes.contains(&0);
        return if is_text { Ok(()) } else { Err(Unfit::NoText { declared: declared() }) };
    }
    let media = look(&bytes)?;
    // Both names of it are in use.
    let is_named = media_type == media.format.media_type()
        || (media.format == Format::Jpeg && media_type == "image/jpg");
    if !is_named {
        return Err(Unfit::Other { declared: declared(), found: media.format });
    }
    if !limits.formats.contains(&media.format) {
        return Err(Unfit::NotTaken { provider, format: media.format });
    }
    if let Some((width, height)) = media.pixels
        && width.max(height) > limits.side
    {
        return Err(Unfit::Large { width, height, provider, most: limits.side });
    }
    let most = match (provider, media.format) {
        (ProviderKind::Anthropic, Format::Pdf) => ANTHROPIC_PDF,
        _ => limits.bytes,
    };
    if data.len() > most {
        return Err(Unfit::Heavy { bytes: data.len(), provider, most });
    }
    Ok(())
}

/// Looks at all that is no words of a request.
///
/// # Errors
/// [`ProviderFault::Invalid`], which names the part and the reason.
pub(crate) fn check_all(provider: ProviderKind, request: &ModelRequest) -> Result<(), Fault> {
    let (mut images, mut documents) = (0_u32, 0_u32);
    for part in request.messages.iter().flat_map(|message| &message.parts) {
        let (what, checked) = match part {
            Part::Image { media_type, data } => {
                images += 1;
                (format!("image {images}"), check(provider, media_type, data))
            }
            Part::Document { media_type, data, name } => {
                documents += 1;
                let what = match name {
                    Some(name) => format!("document {name:?}"),
                    None => format!("document {documents}"),
                };
                (what, check(provider, media_type, data))
            }
            _ => continue,
        };
        if let Err(unfit) = checked {
            let message = format!("{what} cannot be sent: {unfit}");
            return Err(Fault::new(ProviderFault::Invalid, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
