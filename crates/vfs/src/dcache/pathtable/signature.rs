//! What a path is known by: 256 bits over credential, start, length and bytes.
//!
//! They are two sums of NH with Toeplitz keys, as in UMAC, over words of 64 bits, with random keys for each table. Two different
//! questions have the same signature with a chance of 2⁻¹²⁸ at most, whatever they are.

use super::PathTable;
use crate::mount::Path;

/// Longer paths are not remembered. Bytes.
pub(super) const PATH_LEN_MAX: usize = 1024;

/// Sums in a signature, each of 128 bits.
const STREAMS: usize = 2;

/// Bits of a credential's number; the length of the path stands above them.
const CRED_BITS: u32 = 52;
const _: () = assert!(PATH_LEN_MAX < 1 << (64 - CRED_BITS));

/// Pairs of keys: one for each sixteen bytes and one for what stands before them, and as many more as there are streams
/// less one.
pub(super) const KEYS: usize = 128;
const _: () = assert!(PATH_LEN_MAX / 16 + 1 + STREAMS <= KEYS);

/// A path, asked for by a credential from a place. Two scalars: it travels in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signature(pub(super) u128, pub(super) u128);

/// A signature, mixed: which bucket of four entries it is in, which of them it takes first, and its tag.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mixed(u64);

impl Mixed {
    #[inline(always)]
    pub(super) fn bucket(self, mask: u32) -> u32 {
        (self.0 >> 32) as u32 & mask
    }

    #[inline(always)]
    pub(super) fn first(self) -> u32 {
        (self.0 >> 62) as u32
    }

    /// Never zero, which stands for none.
    #[inline(always)]
    pub(super) fn tag(self) -> u16 {
        (self.0 >> 16) as u16 | 1
    }
}

impl Signature {
    #[inline(always)]
    pub(super) fn words(self) -> [u64; 4] {
        [self.0 as u64, (self.0 >> 64) as u64, self.1 as u64, (self.1 >> 64) as u64]
    }

    /// Sums of products are universal, but not well mixed.
    #[inline(always)]
    pub(super) fn mixed(self) -> Mixed {
        let [low, high, ..] = self.words();
        Mixed((low ^ high).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

impl PathTable {
    /// Signs a question, if it is one that the table answers.
    #[inline(always)]
    pub(crate) fn sign(&self, cred: u64, start: Path, path: &[u8]) -> Option<Signature> {
        let known = cred.wrapping_sub(1) < 1 << CRED_BITS;
        if self.mask_max.is_none() || path.len() > PATH_LEN_MAX || !known {
            return None;
        }
        Some(self.signature(cred, start, path))
    }

    #[inline(always)]
    pub(super) fn signature(&self, cred: u64, start: Path, path: &[u8]) -> Signature {
        let mut sums = [0u128; STREAMS];
        let mut absorb = |[first, second]: [u64; 2], keys: &[[u64; 2]; STREAMS]| {
            for (sum, [one, two]) in sums.iter_mut().zip(keys) {
                let product = u128::from(first.wrapping_add(*one)) * u128::from(second.wrapping_add(*two));
                *sum = sum.wrapping_add(product);
            }
        };
        // Questions of different lengths differ in the first word.
        let head = cred | (path.len() as u64) << CRED_BITS;
        let mut keys = self.keys.array_windows();
        let [first, last] = ends(path);
        for pair in [[head, u64::from(start.mnt) << 32 | u64::from(start.dentry)], [first, last]] {
            if let Some(keys) = keys.next() {
                absorb(pair, keys);
            }
        }
        // Without the last sixteen bytes, or fewer, which `ends` has.
        let (pairs, _) = path[..path.len().saturating_sub(1)].as_chunks::<16>();
        for (pair, keys) in pairs.iter().zip(keys) {
            let pair = u128::from_le_bytes(*pair);
            absorb([pair as u64, (pair >> 64) as u64], keys);
        }
        let [a, b] = sums;
        Signature(a, b)
    }
}

/// The last sixteen bytes, or of a shorter path all bytes, some of them twice: different for different paths of one
/// length.
#[inline(always)]
fn ends(path: &[u8]) -> [u64; 2] {
    if let Some(last) = path.last_chunk::<16>() {
        let last = u128::from_le_bytes(*last);
        return [last as u64, (last >> 64) as u64];
    }
    if let (Some(first), Some(last)) = (path.first_chunk(), path.last_chunk()) {
        return [u64::from_le_bytes(*first), u64::from_le_bytes(*last)];
    }
    if let (Some(first), Some(last)) = (path.first_chunk(), path.last_chunk()) {
        return [u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into()];
    }
    [path.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)), 0]
}
