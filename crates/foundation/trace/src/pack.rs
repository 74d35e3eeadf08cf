//! How blobs are kept: compressed where that saves something, under the hash of their plain bytes.

use std::{
    io::Read as _,
    sync::{Mutex, PoisonError},
};

use formwork_protocols::{Blob, BlobHash};
use zstd::bulk::Compressor;

use crate::{changes::count, database::Arg};

/// Bytes as they are.
const PLAIN: i64 = 0;

/// A frame of zstd.
const ZSTD: i64 = 1;

/// How hard it is tried. At level 1 source code becomes a third, and two fifths in pieces of 4 KB; level 3 saves
/// a tenth more of the first and a thirtieth of the second, and the time is waited for by a turn.
const LEVEL: i32 = 1;

/// Below so many bytes the frame's own few weigh more than what is saved.
const SMALLEST: usize = 512;

/// More than so many bytes are compressed aside, so that nothing else of the thread waits for them: one to
/// three milliseconds.
const LARGE: usize = 256 * 1024;

/// How much is set aside at first for what a row says to be of some size.
const FIRST: usize = 16 * 1024 * 1024;

/// Bytes in the form in which they are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packed {
    pub(crate) hash: BlobHash,
    form: i64,
    /// How many bytes they are when plain.
    size: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Packed {
    /// Returns the row of the table of blobs.
    pub(crate) fn row(&self) -> Vec<Arg> {
        vec![
            self.hash.as_bytes().to_vec().into(),
            self.bytes.clone().into(),
            self.form.into(),
            count(self.size as u64).into(),
        ]
    }
}

/// Compresses. What is used for it is kept for the next time, as it is dear to make.
#[derive(Default)]
pub(crate) struct Packer {
    idle: Mutex<Vec<Compressor<'static>>>,
}

impl Packer {
    /// Packs blobs, large ones aside.
    pub(crate) async fn pack_all(self: &std::sync::Arc<Self>, blobs: Vec<Blob>) -> Vec<Packed> {
        if blobs.iter().map(|blob| blob.bytes().len()).sum::<usize>() <= LARGE {
            return blobs.iter().map(|blob| self.pack(blob)).collect();
        }
        let packer = std::sync::Arc::clone(self);
        let aside = blobs.clone();
        let work = move || aside.iter().map(|blob| packer.pack(blob)).collect::<Vec<_>>();
        match tokio::task::spawn_blocking(work).await {
            Ok(packed) => packed,
            // The runtime ends: whether they are compressed is no more of interest.
            Err(_) => blobs.iter().map(plain).collect(),
        }
    }

    /// Packs one blob.
    pub(crate) fn pack(&self, blob: &Blob) -> Packed {
        if blob.bytes().len() < SMALLEST {
            return plain(blob);
        }
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(mut compressor) = idle.or_else(|| Compressor::new(LEVEL).ok()) else {
            return plain(blob); // No memory for it. What is not compressed is kept as well.
        };
        let done = compressor.compress(blob.bytes());
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(compressor);
        match done {
            // Less than an eighth is not worth the time of each reading.
            Ok(bytes) if bytes.len() <= blob.bytes().len() / 8 * 7 => {
                Packed { hash: blob.hash(), form: ZSTD, size: blob.bytes().len(), bytes }
            }
            _ => plain(blob),
        }
    }
}

fn plain(blob: &Blob) -> Packed {
    let bytes = blob.bytes().to_vec();
    Packed { hash: blob.hash(), form: PLAIN, size: bytes.len(), bytes }
}

/// Returns the plain bytes of a row, not yet compared with their hash.
///
/// # Errors
/// In words, why they cannot be had. A frame that holds more than its row says is not read on.
pub(crate) fn unpack(form: i64, size: Option<i64>, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    match form {
        PLAIN => Ok(bytes),
        ZSTD => {
            let size = size.and_then(|size| usize::try_from(size).ok()).ok_or("it has no size")?;
            let mut plain = Vec::with_capacity(size.min(FIRST));
            let most = (size as u64).saturating_add(1);
            let read = zstd::stream::read::Decoder::new(bytes.as_slice())
                .and_then(|decoder| decoder.take(most).read_to_end(&mut plain));
            match read {
                Ok(read) if read == size => Ok(plain),
                Ok(_) => Err("it is not as long as its row says".to_owned()),
                Err(error) => Err(format!("it cannot be decompressed: {error}")),
            }
        }
        form => Err(format!("it is kept in the form {form}, which this version does not know")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn again(packed: &Packed) -> Vec<u8> {
        let size = i64::try_from(packed.size).unwrap();
        unpack(packed.form, Some(size), packed.bytes.clone()).unwrap()
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked_the_same(
            bytes in proptest::collection::vec(any::<u8>(), 0..4_000),
            times in 1_usize..20,
        ) {
            let blob = Blob::new(bytes.repeat(times));

            let packed = Packer::default().pack(&blob);

            prop_assert_eq!(packed.hash, blob.hash());
            prop_assert!(packed.bytes.len() <= blob.bytes().len());
            prop_assert_eq!(again(&packed), blob.bytes());
        }
    }

    #[test]
    fn text_is_compressed_and_noise_and_little_are_kept_as_they_are() {
        let text = Blob::new("fn main() { println!(\"hello\"); }\n".repeat(200).into_bytes());
        let little = Blob::new(*b"ok");
        let mut noise = vec![0; 4_096];
        blake3_fill(&mut noise);

        let packer = Packer::default();

        assert!(packer.pack(&text).bytes.len() < text.bytes().len() / 10);
        assert_eq!(
            (packer.pack(&little).form, packer.pack(&Blob::new(noise)).form),
            (PLAIN, PLAIN)
        );
    }

    /// Fills with bytes that nothing compresses.
    fn blake3_fill(noise: &mut [u8]) {
        let mut hash = BlobHash::of(b"noise");
        for chunk in noise.chunks_mut(32) {
            chunk.copy_from_slice(&hash.as_bytes()[..chunk.len()]);
            hash = BlobHash::of(hash.as_bytes());
        }
    }

    #[test]
    fn a_frame_that_says_too_little_or_of_an_unknown_form_is_refused() {
        let packed = Packer::default().pack(&Blob::new(vec![7; 100_000]));

        let small = unpack(packed.form, Some(10), packed.bytes.clone());
        let large = unpack(packed.form, Some(i64::MAX), packed.bytes.clone());
        let unknown = unpack(9, Some(10), packed.bytes.clone());
        let cut = unpack(packed.form, Some(100_000), packed.bytes[..5].to_vec());

        assert_eq!(small.unwrap_err(), "it is not as long as its row says");
        assert_eq!(large.unwrap_err(), "it is not as long as its row says");
        assert!(unknown.unwrap_err().contains("form 9"));
        assert!(cut.is_err());
    }

    #[tokio::test]
    async fn many_bytes_are_compressed_aside() {
        let packer = std::sync::Arc::new(Packer::default());
        let blob = Blob::new(b"as large as the output of a long build\n".repeat(50_000));

        let packed = packer.pack_all(vec![blob.clone()]).await;

        assert_eq!(again(&packed[0]), blob.bytes());
        assert_eq!(packed[0].form, ZSTD);
    }
}
