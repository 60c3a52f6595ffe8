//! Path components, scanned, hashed and compared eight bytes at a time.
//!
//! Kernel: fs/namei.c `hash_name()`, fs/dcache.c `dentry_string_cmp()`. Differs: the hash covers the name alone, so that
//! the next component can be hashed before its parent is known, and the path is parsed where the caller has it. Copying
//! it first and loading words from the copy costs a failed store forwarding on every component.

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

/// Eight bytes of `path` from byte `at` on, zero beyond its end, without reading past it.
#[inline(always)]
fn load(path: &[u8], at: usize) -> u64 {
    let rest = path.get(at..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => load_tail(path, rest),
    }
}

/// [`load`] where fewer than eight bytes, `rest`, are left: the last eight bytes of the path, shifted.
#[inline(always)]
fn load_tail(path: &[u8], rest: &[u8]) -> u64 {
    match path.last_chunk::<8>() {
        Some(last) if !rest.is_empty() => u64::from_le_bytes(*last) >> (64 - 8 * rest.len() as u32),
        _ => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

/// The lowest bits that are below the lowest set bit of `ends`, which is the top bit of a byte: a mask of whole bytes.
#[inline(always)]
fn bytes_below(ends: u64) -> u64 {
    (ends.wrapping_sub(1) & !ends) >> 7
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
    leading(path, path.get(start..).unwrap_or_default(), seed)
}

/// The component at the beginning of `rest`, which is the end of `path`.
#[inline(always)]
pub fn leading(path: &[u8], rest: &[u8], seed: u64) -> Component {
    let (word, ends) = word_and_ends(path, rest);
    if ends == 0 {
        // Eight bytes are the commonest length of all that do not end within the word.
        if rest.get(8).is_none_or(|&byte| byte == b'/') {
            return Component { hash: (mix(mix(seed, word), 0) >> 32) as u32, len: 8, first: word };
        }
        let packed = leading_long(path, rest, mix(seed, word));
        return Component { hash: (packed >> 32) as u32, len: packed as u32, first: word };
    }
    let first = word & bytes_below(ends);
    Component { hash: (mix(seed, first) >> 32) as u32, len: ends.trailing_zeros() / 8, first }
}

/// The hash, in the high half, and length of a component whose first eight bytes hold no end. Out of line, and its
/// result in one register: the hot loop needs the others.
#[inline(never)]
fn leading_long(path: &[u8], rest: &[u8], hash: u64) -> u64 {
    let (mut hash, mut at) = (hash, 8);
    loop {
        let (word, ends) = word_and_ends(path, rest.get(at..).unwrap_or_default());
        if ends != 0 {
            let hash = mix(hash, word & bytes_below(ends));
            return hash >> 32 << 32 | (at as u64 + u64::from(ends.trailing_zeros() / 8));
        }
        hash = mix(hash, word);
        at += 8;
    }
}

/// The eight bytes at the beginning of `rest`, which is the end of `path`, and in the lowest set bit of the second word
/// the end of the name, if it lies among them.
#[inline(always)]
fn word_and_ends(path: &[u8], rest: &[u8]) -> (u64, u64) {
    match rest.first_chunk::<8>() {
        Some(bytes) => {
            let word = u64::from_le_bytes(*bytes);
            (word, slashes(word))
        }
        None => {
            let word = load_tail(path, rest);
            (word, slashes(word) | 0x80 << (8 * rest.len()))
        }
    }
}

/// In the lowest set bit, the first slash; bits above it may be false.
#[inline(always)]
fn slashes(word: u64) -> u64 {
    let zeroes = word ^ SLASHES;
    zeroes.wrapping_sub(ONES) & !zeroes & HIGHS
}

/// `word` without the bytes from `len` on.
#[inline(always)]
fn keep(word: u64, len: u32) -> u64 {
    if len >= 8 { word } else { word & ((1 << (8 * len)) - 1) }
}

/// A name alone, as a component.
pub fn whole(name: &[u8], seed: u64) -> Component {
    component(name, 0, seed)
}

/// The words of the name of `len` bytes at byte `start` of `path`, from word `from` on; zero-padded at the end.
#[inline]
pub fn words(path: &[u8], start: usize, len: u32, from: usize) -> impl Iterator<Item = u64> + '_ {
    (from * 8..len as usize).step_by(8).map(move |at| keep(load(path, start + at), len - at as u32))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Racy64;

    /// The same, a byte at a time.
    fn naive(path: &[u8], start: usize, seed: u64) -> Component {
        let name = path[start..].split(|&b| b == b'/').next().unwrap();
        // One word more than full ones: the last, perhaps empty, holds the end.
        let mut padded = name.to_vec();
        padded.resize((name.len() / 8 + 1) * 8, 0);
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
            let stored: [Racy64; 5] = Default::default();
            words(name, 0, c.len, 0).zip(&stored).for_each(|(w, s)| s.set(w));
            stored
        };
        let path = b"x/a-name-of-exactly-thirty-seven-bytes!/y";
        let c = component(path, 2, 0);
        assert_eq!(c.len, 37);
        let equal = |stored: [Racy64; 5]| words(path, 2, 37, 0).zip(&stored).all(|(w, s)| w == s.get());
        assert!(equal(stored(&path[2..39])));
        for at in 2..39 {
            let mut other = path[2..39].to_vec();
            other[at - 2] ^= 1;
            assert!(!equal(stored(&other)), "differs at {at}");
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
