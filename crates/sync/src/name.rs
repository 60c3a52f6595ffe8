//! Path components, scanned, hashed and compared eight bytes at a time.
//!
//! Kernel: fs/namei.c `hash_name()`, fs/dcache.c `dentry_string_cmp()`. Differs: the hash covers the name alone, so that
//! the next component can be hashed before its parent is known, and the path is parsed where the caller has it. Copying
//! it first and loading words from the copy costs a failed store forwarding on every component.

use crate::Racy64;

/// One component of a path: the bytes up to the next `/` or the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Component {
    /// The hash of the name.
    pub hash: u32,
    /// The length in bytes; may exceed `NAME_MAX`.
    pub len: u32,
    /// The first eight bytes, little endian, zero beyond the name.
    pub first: u64,
}

const SLASHES: u64 = 0x2f2f_2f2f_2f2f_2f2f;
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// An odd constant with well-spread bits (the fractional part of the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes one word of a name into the hash. A product folded onto itself spreads every input bit over the whole word in
/// one multiplication; the secret start value keeps a hostile tree from choosing its collisions.
#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * u128::from(SPREAD);
    product as u64 ^ (product >> 64) as u64
}

/// Eight bytes at `at`, zero beyond the end of `path`, without reading past it.
#[inline(always)]
fn load(path: &[u8], at: usize) -> u64 {
    match path.get(at..at + 8) {
        Some(bytes) => u64::from_le_bytes(bytes.try_into().unwrap_or_default()),
        None => load_tail(path, at),
    }
}

/// [`load`] where fewer than eight bytes are left: the last eight bytes of the path, shifted.
#[inline]
fn load_tail(path: &[u8], at: usize) -> u64 {
    let left = path.len().saturating_sub(at);
    if left == 0 {
        return 0;
    }
    match path.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last) >> (8 * (8 - left)),
        None => path[at..].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

/// `word` without the bytes from `len` on.
#[inline(always)]
fn keep(word: u64, len: u32) -> u64 {
    if len >= 8 { word } else { word & ((1 << (8 * len)) - 1) }
}

/// The component of `path` that starts at byte `start`; `seed` keys the hash.
///
/// ```
/// let c = rcuwalk_sync::name::component(b"usr/include", 0, 42);
/// assert_eq!((c.len, c.first), (3, u64::from_le_bytes(*b"usr\0\0\0\0\0")));
/// assert_eq!(c.hash, rcuwalk_sync::name::component(b"usr", 0, 42).hash);
/// ```
#[inline(always)]
pub fn component(path: &[u8], start: usize, seed: u64) -> Component {
    let mut hash = seed;
    let mut at = start;
    let mut first = 0;
    loop {
        let word = load(path, at);
        let slashes = word ^ SLASHES;
        // The lowest set bit marks the first zero byte of `slashes`; bits above it may be false.
        let mut ends = slashes.wrapping_sub(ONES) & !slashes & HIGHS;
        let left = path.len() - at;
        if left < 8 {
            ends |= 0x80 << (8 * left);
        }
        if ends == 0 {
            if at == start {
                first = word;
            }
            hash = mix(hash, word);
            at += 8;
            continue;
        }
        let tail = ends.trailing_zeros() / 8;
        let word = keep(word, tail);
        if at == start {
            first = word;
        }
        if tail != 0 {
            hash = mix(hash, word);
        }
        return Component { hash: (hash >> 32) as u32, len: (at - start) as u32 + tail, first };
    }
}

/// A name alone, as a component.
pub fn whole(name: &[u8], seed: u64) -> Component {
    component(name, 0, seed)
}

impl Component {
    /// The words of the name, which starts at `start` in `path`, from word `from` on; zero-padded.
    #[inline]
    pub fn words(self, path: &[u8], start: usize, from: usize) -> impl Iterator<Item = u64> + '_ {
        (from * 8..self.len as usize)
            .step_by(8)
            .map(move |at| keep(load(path, start + at), self.len - at as u32))
    }

    /// Whether `stored`, which holds the whole of a name of this length zero-padded, equals this name beyond its first
    /// eight bytes.
    #[inline]
    pub fn rest_eq(self, path: &[u8], start: usize, stored: &[Racy64]) -> bool {
        self.words(path, start, 1).zip(&stored[1..]).all(|(word, stored)| word == stored.get())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// The same, a byte at a time.
    fn naive(path: &[u8], start: usize, seed: u64) -> Component {
        let name = path[start..].split(|&b| b == b'/').next().unwrap();
        let mut padded = name.to_vec();
        padded.resize(name.len().next_multiple_of(8), 0);
        let words: Vec<u64> = padded.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
        let hash = words.iter().fold(seed, |h, &w| mix(h, w));
        let first = words.first().copied().unwrap_or(0);
        Component { hash: (hash >> 32) as u32, len: name.len() as u32, first }
    }

    #[test]
    fn scanning_by_words_equals_scanning_by_bytes() {
        // Every position of the slash, every alignment of the end, and bytes that differ from '/' in one bit.
        for len in 0..40 {
            for slash in 0..=len {
                for filler in [b'a', 0x2e, 0xaf, 0xff, 0x80, 0x01] {
                    let mut path = vec![filler; len];
                    if slash < len {
                        path[slash] = b'/';
                    }
                    for start in 0..=slash {
                        assert_eq!(
                            component(&path, start, 7),
                            naive(&path, start, 7),
                            "{path:?} from {start}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_stored_name_equals_itself_and_no_other() {
        let stored = |name: &[u8]| {
            let c = whole(name, 0);
            let words: [Racy64; 5] = Default::default();
            c.words(name, 0, 0).zip(&words).for_each(|(w, s)| s.set(w));
            words
        };
        let path = b"x/a-name-of-exactly-thirty-seven-bytes!/y";
        let c = component(path, 2, 0);
        assert_eq!(c.len, 37);
        assert!(c.rest_eq(path, 2, &stored(&path[2..39])));
        for at in 10..39 {
            let mut other = path[2..39].to_vec();
            other[at - 2] ^= 1;
            assert!(!c.rest_eq(path, 2, &stored(&other)), "differs at {at}");
        }
    }

    #[test]
    fn hashes_of_like_names_differ() {
        let names: std::collections::HashSet<u32> =
            (0..20_000).map(|i| whole(format!("file-{i:05}.h").as_bytes(), 99).hash).collect();
        assert!(names.len() > 19_990, "{} distinct of 20,000", names.len());
        assert_ne!(whole(b"same", 1).hash, whole(b"same", 2).hash, "the seed counts");
    }
}
