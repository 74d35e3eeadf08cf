//! What a picture is by its bytes: its format, its size, and whether all of it is there.
//!
//! Each format is walked from its mark to its end, block by block; no pixel is made. A size is read and never allocated for.

use super::{Format, Media, Unfit};

/// Finds out which picture bytes are, if any.
pub(super) fn look(bytes: &[u8]) -> Result<Option<Media>, Unfit> {
    let (format, walked) = if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        (Format::Png, png(&bytes[8..]))
    } else if bytes.starts_with(b"\xff\xd8\xff") {
        (Format::Jpeg, jpeg(&bytes[2..]))
    } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
        (Format::Gif, gif(&bytes[6..]))
    } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        (Format::WebP, webp(bytes))
    } else {
        return Ok(None);
    };
    match walked {
        Ok((width, height)) if width > 0 && height > 0 => {
            Ok(Some(Media { format, pixels: Some((width, height)) }))
        }
        Ok(_) => Err(Unfit::Broken { format, what: "it has no pixels" }),
        Err(what) => Err(Unfit::Broken { format, what }),
    }
}

/// Width and height, or what is wrong.
type Walked = Result<(u32, u32), &'static str>;

const CUT: &str = "it ends too early";
const NO_SIZE: &str = "it says no size";

/// Bytes that are read from the front.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(CUT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(CUT)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, &'static str> {
        Ok(self.array::<1>()?[0])
    }

    fn u16_le(&mut self) -> Result<u32, &'static str> {
        Ok(u32::from(u16::from_le_bytes(self.array()?)))
    }

    fn u16_be(&mut self) -> Result<u32, &'static str> {
        Ok(u32::from(u16::from_be_bytes(self.array()?)))
    }

    fn u24_le(&mut self) -> Result<u32, &'static str> {
        let [low, middle, high] = self.array()?;
        Ok(u32::from_le_bytes([low, middle, high, 0]))
    }
}

/// Walks the chunks of a PNG, each of which proves itself. Source: PNG Specification, third edition.
fn png(bytes: &[u8]) -> Walked {
    let mut rest = Rest(bytes);
    let (mut size, mut has_data) = (None, false);
    loop {
        let length = u32::from_be_bytes(rest.array()?) as usize;
        let chunk = rest.take(length.checked_add(4).ok_or(CUT)?)?;
        if u32::from_be_bytes(rest.array()?) != crc(chunk) {
            return Err("a chunk is not as it was written");
        }
        let (name, data) = chunk.split_at(4);
        match name {
            b"IHDR" => {
                let mut data = Rest(data);
                let width = u32::from_be_bytes(data.array()?);
                size = Some((width, u32::from_be_bytes(data.array()?)));
            }
            b"IDAT" => has_data = true,
            b"IEND" if has_data => return size.ok_or(NO_SIZE),
            b"IEND" => return Err("it has no data"),
            _ => {}
        }
        if size.is_none() {
            return Err(NO_SIZE);
        }
    }
}

/// Walks the segments of a JPEG to its end. Source: ITU-T T.81, annex B.
fn jpeg(bytes: &[u8]) -> Walked {
    let mut rest = Rest(bytes);
    let (mut size, mut has_scan) = (None, false);
    loop {
        if rest.byte()? != 0xff {
            return Err("a segment has no mark");
        }
        let mut mark = rest.byte()?;
        // Any number of them may stand before a mark.
        while mark == 0xff {
            mark = rest.byte()?;
        }
        match mark {
            0xd9 if has_scan => return size.ok_or(NO_SIZE),
            0xd9 => return Err("it has no data"),
            0x01 | 0xd0..=0xd8 => continue,
            _ => {}
        }
        let length = rest.u16_be()?.checked_sub(2).ok_or("a segment has no length")?;
        let mut segment = Rest(rest.take(length as usize)?);
        match mark {
            // Frames; the others of this range are tables.
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                segment.byte()?;
                let height = segment.u16_be()?;
                size = Some((segment.u16_be()?, height));
            }
            // What follows goes on to the next mark: stuffed bytes and restarts are none.
            0xda => {
                has_scan = true;
                let is_mark =
                    |pair: &[u8]| pair[0] == 0xff && !matches!(pair[1], 0x00 | 0xd0..=0xd7 | 0xff);
                let end = rest.0.windows(2).position(is_mark).ok_or(CUT)?;
                rest.take(end)?;
            }
            _ => {}
        }
    }
}

/// Walks the blocks of a GIF to its trailer. Source: GIF89a Specification.
fn gif(bytes: &[u8]) -> Walked {
    let mut rest = Rest(bytes);
    let size = (rest.u16_le()?, rest.u16_le()?);
    let [flags, _, _] = rest.array()?;
    colours(&mut rest, flags)?;
    let mut has_image = false;
    loop {
        match rest.byte()? {
            0x3b if has_image => return Ok(size),
            0x3b => return Err("it has no image"),
            0x21 => {
                rest.byte()?;
            }
            0x2c => {
                has_image = true;
                let [.., flags] = rest.array::<9>()?;
                colours(&mut rest, flags)?;
                rest.byte()?;
            }
            _ => return Err("a block has no mark"),
        }
        loop {
            let length = rest.byte()?;
            if length == 0 {
                break;
            }
            rest.take(usize::from(length))?;
        }
    }
}

/// Passes over a table of colours, where the flags say that there is one.
fn colours(rest: &mut Rest<'_>, flags: u8) -> Result<(), &'static str> {
    if flags & 0x80 != 0 {
        rest.take(3 << ((flags & 7) + 1))?;
    }
    Ok(())
}

/// Walks the chunks of a WebP. Source: RFC 9649.
fn webp(bytes: &[u8]) -> Walked {
    let mut rest = Rest(bytes);
    rest.take(4)?;
    let length = u32::from_le_bytes(rest.array()?) as usize;
    let mut rest = Rest(rest.take(length)?);
    rest.take(4)?;
    let (mut size, mut has_image) = (None, false);
    while !rest.0.is_empty() {
        let name = rest.take(4)?;
        let length = u32::from_le_bytes(rest.array()?) as usize;
        let mut chunk = Rest(rest.take(length)?);
        if length % 2 == 1 && !rest.0.is_empty() {
            rest.byte()?;
        }
        let own = match name {
            b"VP8X" => {
                chunk.take(4)?;
                (chunk.u24_le()? + 1, chunk.u24_le()? + 1)
            }
            b"VP8 " => {
                has_image = true;
                chunk.take(3)?;
                if chunk.take(3)? != [0x9d, 0x01, 0x2a] {
                    return Err("a frame has no mark");
                }
                (chunk.u16_le()? & 0x3fff, chunk.u16_le()? & 0x3fff)
            }
            b"VP8L" => {
                has_image = true;
                if chunk.byte()? != 0x2f {
                    return Err("a frame has no mark");
                }
                let bits = u32::from_le_bytes(chunk.array()?);
                ((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1)
            }
            b"ANMF" => {
                has_image = true;
                continue;
            }
            _ => continue,
        };
        // The canvas of an extended one comes first, and counts.
        size.get_or_insert(own);
    }
    match size {
        Some(size) if has_image => Ok(size),
        Some(_) => Err("it has no image"),
        None => Err(NO_SIZE),
    }
}

/// The check of a PNG's chunk: CRC-32 as in ISO 3309.
pub(super) fn crc(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    let step = |crc: u32, byte: &u8| {
        let place = (crc ^ u32::from(*byte)) & 0xff;
        TABLE[place as usize] ^ (crc >> 8)
    };
    !bytes.iter().fold(u32::MAX, step)
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut place = 0;
    while place < 256 {
        let mut value = place as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        table[place] = value;
        place += 1;
    }
    table
}
