//! What a file is by its first bytes, and the plain stream inside a compressed one.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::member;

/// Enough of a file's beginning to tell what it is.
pub(crate) const SNIFF_SIZE: usize = 512;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Tar,
    Gzip,
    Zstd,
    /// Something else, as a phrase that can follow "is".
    Other(&'static str),
}

/// Beginnings of files that people take for archives that we read.
const OTHERS: &[(&[u8], &str)] = &[
    (b"BZh", "compressed with bzip2, which must be unpacked first"),
    (b"\xfd7zXZ\0", "compressed with xz, which must be unpacked first"),
    (b"\x04\x22\x4d\x18", "compressed with lz4, which must be unpacked first"),
    (b"LZIP", "compressed with lzip, which must be unpacked first"),
    (b"PK\x03\x04", "a zip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"hsqs", "a squashfs image"),
    (b"070701", "a cpio archive"),
    (b"!<arch>\n", "an ar archive or a Debian package"),
    (b"\xed\xab\xee\xdb", "an RPM package"),
    (b"\x7fELF", "a program or a library"),
];

/// Judges by the first [`SNIFF_SIZE`] bytes, or all there are.
pub(crate) fn sniff(start: &[u8]) -> Format {
    if start.starts_with(b"\x1f\x8b") {
        return Format::Gzip;
    }
    // A frame, or a frame to be skipped, which some tools put first.
    if start.starts_with(b"\x28\xb5\x2f\xfd")
        || matches!(start, [low, 0x2a, 0x4d, 0x18, ..] if low & 0xf0 == 0x50)
    {
        return Format::Zstd;
    }
    if let Some((_, what)) = OTHERS.iter().find(|(magic, _)| start.starts_with(magic)) {
        return Format::Other(what);
    }
    match start.try_into() {
        Ok(block) if member::is_header(block) => Format::Tar,
        _ if start.is_empty() => Format::Other("empty"),
        _ => Format::Other("a file, but no tar archive"),
    }
}

/// The tar stream in `input`, unpacked as it is read.
///
/// `Err` with what the input is, if it is neither a tar stream nor one that is compressed with gzip or zstd.
pub(crate) fn unpack<'a>(mut input: impl Read + 'a) -> io::Result<Result<Box<dyn Read + 'a>, &'static str>> {
    let mut start = Vec::with_capacity(SNIFF_SIZE);
    input.by_ref().take(SNIFF_SIZE as u64).read_to_end(&mut start)?;
    let format = sniff(&start);
    let whole = BufReader::with_capacity(64 << 10, Cursor::new(start).chain(input));
    Ok(match format {
        Format::Tar => Ok(Box::new(whole)),
        Format::Gzip => Ok(Box::new(MultiGzDecoder::new(whole))),
        Format::Zstd => Ok(Box::new(ZstdFrames { input: whole, decoder: FrameDecoder::new() })),
        Format::Other(what) => Err(what),
    })
}

/// A sequence of zstd frames as one stream; the decoder knows single ones.
struct ZstdFrames<R> {
    input: R,
    decoder: FrameDecoder,
}

impl<R: BufRead> ZstdFrames<R> {
    /// Begins the next frame; `false` at the end of the input.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.input.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(e) => return Err(io::Error::other(e)),
            }
        }
        Ok(false)
    }

    fn check_frame(&self) -> io::Result<()> {
        match self.decoder.get_checksum_from_data() {
            Some(sum) if self.decoder.get_calculated_checksum() != Some(sum) => {
                Err(io::Error::other("a zstd frame does not have its checksum"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.decoder.can_collect() == 0 {
            if self.decoder.is_finished() {
                self.check_frame()?;
                if !self.next_frame()? {
                    return Ok(0);
                }
            } else {
                self.decoder
                    .decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(io::Error::other)?;
            }
        }
        self.decoder.read(buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    fn frames(input: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        ZstdFrames { input, decoder: FrameDecoder::new() }.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn several_zstd_frames_and_skippable_ones_are_one_stream() {
        let text = vec![b'x'; 300_000];
        let mut input = compress_to_vec(&text[..], CompressionLevel::Fastest);
        input.extend_from_slice(b"\x5a\x2a\x4d\x18\x03\0\0\0abc");
        input.extend(compress_to_vec(&b"tail"[..], CompressionLevel::Uncompressed));
        let out = frames(&input).unwrap();
        assert_eq!(out.len(), text.len() + 4);
        assert!(out.ends_with(b"xtail"));
    }

    #[test]
    fn a_cut_zstd_stream_is_an_error_wherever_it_is_cut() {
        let input = compress_to_vec(&[b'x'; 5000][..], CompressionLevel::Fastest);
        for cut in 1..input.len() {
            assert!(frames(&input[..cut]).is_err(), "cut at {cut}");
        }
        assert!(frames(b"\x5a\x2a\x4d\x18\xff\xff\xff\xff").is_err());
    }

    #[test]
    fn formats_are_told_apart() {
        assert_eq!(sniff(b""), Format::Other("empty"));
        assert_eq!(sniff(b"\x1f\x8b\x08"), Format::Gzip);
        assert_eq!(sniff(b"\x28\xb5\x2f\xfd"), Format::Zstd);
        assert_eq!(sniff(b"\x5f\x2a\x4d\x18"), Format::Zstd);
        assert_eq!(sniff(&[0; SNIFF_SIZE]), Format::Tar);
        assert_eq!(sniff(&[b'a'; SNIFF_SIZE]), Format::Other("a file, but no tar archive"));
        assert!(matches!(sniff(b"BZh91AY"), Format::Other(what) if what.contains("bzip2")));
    }
}
