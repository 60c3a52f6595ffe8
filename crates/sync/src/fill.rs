//! Clearing memory, when most of it is small.
//!
//! `rep stos` takes about thirty cycles before it stores anything, on processors that do not say otherwise (FSRM), and most
//! clears of a kernel at work are shorter than what could be stored meanwhile. [`zero`] therefore uses plain stores, of which the
//! last overlaps the one before it, so that no length needs a loop over single bytes. Beyond 128 bytes a method is chosen once, at
//! run time, for this processor; long fills are left to the platform.
//!
//! Where the compiler knows the size, it does better than any of this: [`zero_typed`] clears one object of a known type and
//! does not compile for a pointer that has lost its type, whose "size" would be one byte.
//!
//! Kernel: arch/x86/lib/memset_64.S, and the thread on clearing small buffers. Differs: a kernel has to do without vector
//! registers.

// Not the facade's: an instrument decides nothing that a model could explore, and a static holds no model's atomics.
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// One way to clear memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Eight-byte stores; two overlap at the end.
    Stores,
    /// `rep stosb`, the processor's own loop.
    RepStos,
    /// Sixteen-byte stores; two overlap at the end.
    Vector16,
    /// Thirty-two-byte stores; two overlap at the end.
    Vector32,
    /// The platform's `memset`.
    Platform,
}

impl Method {
    /// All of them.
    pub const ALL: [Method; 5] =
        [Method::Stores, Method::RepStos, Method::Vector16, Method::Vector32, Method::Platform];

    /// The name, as tables show it.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Stores => "8-byte stores",
            Method::RepStos => "rep stosb",
            Method::Vector16 => "16-byte stores",
            Method::Vector32 => "32-byte stores",
            Method::Platform => "memset",
        }
    }

    /// Whether this processor can.
    pub fn available(self) -> bool {
        match self {
            Method::Stores | Method::Vector16 | Method::Platform => true,
            Method::RepStos => cfg!(all(target_arch = "x86_64", not(miri))),
            Method::Vector32 => has_avx2(),
        }
    }

    /// Clears `bytes` this way; the platform's way where this processor cannot.
    #[inline]
    pub fn zero(self, bytes: &mut [u8]) {
        match self {
            Method::Stores => stores(bytes),
            Method::Vector16 => vector16(bytes),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Method::RepStos => rep_stos(bytes),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Method::Vector32 if has_avx2() => vector32_checked(bytes),
            _ => bytes.fill(0),
        }
    }
}

/// Up to here stores are written out where the fill is; no call, no choice.
const INLINE: usize = 128;

/// Longer fills are left to the platform, which knows several ways more: `cargo run --release -- bench --ablations --only S3`
/// shows where the lines cross.
pub const SMALL: usize = 512;

/// The method between [`INLINE`] and [`SMALL`] plus one; 0 before the first fill. Bit 8: fills are counted.
static STATE: AtomicU32 = AtomicU32::new(0);
const COUNTING: u32 = 1 << 8;

/// The method that fills of 129 to 512 bytes use on this processor; shorter ones are [`Method::Vector16`] everywhere.
pub fn middle_method() -> Method {
    Method::ALL[((state() & !COUNTING) - 1) as usize]
}

/// Clears `bytes`; `site` says where, for the counting mode.
#[inline]
pub fn zero(bytes: &mut [u8], site: &'static Site) {
    let state = state();
    if state & COUNTING != 0 {
        site.note(bytes.len());
    }
    if bytes.len() <= INLINE {
        vector16(bytes);
    } else if bytes.len() <= SMALL {
        Method::ALL[((state & !COUNTING) - 1) as usize].zero(bytes);
    } else {
        bytes.fill(0);
    }
}

#[inline]
fn state() -> u32 {
    // Relaxed: the word stands for nothing but itself; whoever sees 0 finds out again.
    match STATE.load(Ordering::Relaxed) {
        0 => decide(),
        state => state,
    }
}

#[cold]
fn decide() -> u32 {
    // The GNU library chooses among vector loops by itself; others, such as musl's, use rep stos.
    let best = if cfg!(target_env = "gnu") {
        Method::Platform
    } else if has_avx2() {
        Method::Vector32
    } else {
        Method::Vector16
    };
    let index = Method::ALL.iter().position(|&method| method == best).unwrap_or(0);
    // Relaxed: as in `state`. Counting may have been switched on meanwhile: keep it.
    STATE.fetch_or(index as u32 + 1, Ordering::Relaxed);
    STATE.load(Ordering::Relaxed)
}

#[inline(always)]
fn has_avx2() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

/// What a processor says of `rep stosb`, none of it measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RepStosFlags {
    /// Fast long fills (`erms`).
    pub enhanced: bool,
    /// Fast short copies (`fsrm`).
    pub short_copies: bool,
    /// Fast short fills (`fsrs`).
    pub short_fills: bool,
}

/// What this processor says of `rep stosb`.
pub fn rep_stos_flags() -> RepStosFlags {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        if __cpuid(0).eax >= 7 {
            let leaf = __cpuid_count(7, 0);
            let more = if leaf.eax >= 1 { __cpuid_count(7, 1).eax } else { 0 };
            return RepStosFlags {
                enhanced: leaf.ebx >> 9 & 1 == 1,
                short_copies: leaf.edx >> 4 & 1 == 1,
                short_fills: more >> 11 & 1 == 1,
            };
        }
    }
    RepStosFlags::default()
}

/// Clears `N` bytes at `at`.
///
/// # Safety
///
/// 1. `at` is valid for writing `N` bytes; no alignment is needed.
#[inline(always)]
unsafe fn store<const N: usize>(at: *mut u8) {
    // SAFETY: the caller's 1; `[u8; N]` has alignment 1 and takes N bytes.
    unsafe { at.cast::<[u8; N]>().write([0; N]) }
}

/// Clears `len` bytes in stores of `N`, the last overlapping the one before.
///
/// # Safety
///
/// 1. `at` is valid for writing `len` bytes.
/// 2. `len >= N`.
#[inline(always)]
unsafe fn with_tail<const N: usize>(at: *mut u8, len: usize) {
    let mut done = 0;
    while done + N < len {
        // SAFETY: 1 of `store`: done + N < len, and 1 here.
        unsafe { store::<N>(at.wrapping_add(done)) };
        done += N;
    }
    // SAFETY: 1 of `store`: the last N of `len` bytes, of which there are as many by 2.
    unsafe { store::<N>(at.wrapping_add(len - N)) };
}

/// Clears up to sixteen bytes in two overlapping stores.
#[inline(always)]
fn up_to_16(bytes: &mut [u8]) {
    let (at, len) = (bytes.as_mut_ptr(), bytes.len());
    debug_assert!(len <= 16);
    // SAFETY: 1 of `store`, each time: the first and the last N bytes of a slice that has at least N.
    unsafe {
        if len >= 8 {
            store::<8>(at);
            store::<8>(at.wrapping_add(len - 8));
        } else if len >= 4 {
            store::<4>(at);
            store::<4>(at.wrapping_add(len - 4));
        } else if len >= 2 {
            store::<2>(at);
            store::<2>(at.wrapping_add(len - 2));
        } else if len == 1 {
            store::<1>(at);
        }
    }
}

/// Clears up to 64 bytes in two overlapping stores, as wide as the instructions of the caller allow.
#[inline(always)]
fn up_to_64(bytes: &mut [u8]) {
    let (at, len) = (bytes.as_mut_ptr(), bytes.len());
    debug_assert!(len <= 64);
    match len {
        0..=16 => up_to_16(bytes),
        // SAFETY: 1 of `store`: the first and last 16 of at least 17 bytes.
        17..=32 => unsafe {
            store::<16>(at);
            store::<16>(at.wrapping_add(len - 16));
        },
        // SAFETY: 1 of `store`: the first and last 32 of at least 33 bytes.
        _ => unsafe {
            store::<32>(at);
            store::<32>(at.wrapping_add(len - 32));
        },
    }
}

fn stores(bytes: &mut [u8]) {
    if bytes.len() <= 16 {
        return up_to_16(bytes);
    }
    // SAFETY: 1: the slice itself. 2: longer than 16.
    unsafe { with_tail::<8>(bytes.as_mut_ptr(), bytes.len()) }
}

#[inline(always)]
fn vector16(bytes: &mut [u8]) {
    let (at, len) = (bytes.as_mut_ptr(), bytes.len());
    match len {
        0..=64 => up_to_64(bytes),
        // SAFETY: 1 of `store`: the first and last 64 of at least 65 bytes.
        65..=128 => unsafe {
            store::<64>(at);
            store::<64>(at.wrapping_add(len - 64));
        },
        // SAFETY: 1: the slice itself. 2: longer than 64.
        _ => unsafe { with_tail::<64>(at, len) },
    }
}

/// As [`vector16`], with registers twice as wide.
///
/// # Safety
///
/// 1. The processor has AVX2.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2")]
unsafe fn vector32(bytes: &mut [u8]) {
    let (at, len) = (bytes.as_mut_ptr(), bytes.len());
    match len {
        0..=64 => up_to_64(bytes),
        // SAFETY: 1: the slice itself. 2: longer than 64.
        _ => unsafe { with_tail::<64>(at, len) },
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn vector32_checked(bytes: &mut [u8]) {
    debug_assert!(has_avx2());
    // SAFETY: 1: the only caller asked the processor.
    unsafe { vector32(bytes) }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn rep_stos(bytes: &mut [u8]) {
    // SAFETY: stores `len` zero bytes from the start of the slice, upwards (the direction flag is clear on entry to asm),
    // and changes no register but the two that are named; the flags are kept.
    unsafe {
        std::arch::asm!(
            "rep stosb",
            inout("rcx") bytes.len() => _,
            inout("rdi") bytes.as_mut_ptr() => _,
            in("al") 0_u8,
            options(nostack, preserves_flags)
        );
    }
}

/// Types of which all-zero bytes are a value, and which are more than a single byte.
///
/// `u8`, `()` and `c_void` are left out on purpose: a reference to one of them is what is left of a pointer that lost its
/// type, and its size says nothing about how much there is to clear.
///
/// # Safety
///
/// 1. All-zero bytes are a valid value of the type.
/// 2. The type has no drop glue.
pub unsafe trait Zeroable: Sized {}

macro_rules! zeroable {
    ($($type:ty),*) => {$(
        // SAFETY: 1, 2: an integer.
        unsafe impl Zeroable for $type {}
    )*};
}

zeroable!(u16, u32, u64, u128, usize, i16, i32, i64, i128, isize);

// SAFETY: 1, 2: bytes, and their number is part of the type.
unsafe impl<const N: usize> Zeroable for [u8; N] {}
// SAFETY: 1, 2 hold for an array when they hold for its elements.
unsafe impl<T: Zeroable, const N: usize> Zeroable for [T; N] {}

/// Clears `place`, all of it, with a size that the compiler knows.
///
/// ```
/// let mut name = [0xff_u8; 192];
/// rcuwalk_sync::fill::zero_typed(&mut name);
/// assert_eq!(name, [0; 192]);
/// ```
///
/// A pointer that lost its type does not compile: one byte,
///
/// ```compile_fail
/// let mut name = [0xff_u8; 192];
/// rcuwalk_sync::fill::zero_typed(&mut name[0]);
/// ```
///
/// C's `void`,
///
/// ```compile_fail
/// let mut name = [0xff_u8; 192];
/// let untyped: &mut std::ffi::c_void = unsafe { &mut *name.as_mut_ptr().cast() };
/// rcuwalk_sync::fill::zero_typed(untyped);
/// ```
///
/// nor a slice, whose length is known at run time only ([`zero`] is for those):
///
/// ```compile_fail
/// let mut name = [0xff_u8; 192];
/// rcuwalk_sync::fill::zero_typed(&mut name[..]);
/// ```
#[inline(always)]
pub fn zero_typed<T: Zeroable>(place: &mut T) {
    const {
        assert!(
            size_of::<T>() > 1 && !std::mem::needs_drop::<T>(),
            "the size says how much there is to clear"
        )
    };
    // SAFETY: `place` is valid for writing one T, and zero bytes are a T: 1 of `Zeroable`.
    unsafe { std::ptr::from_mut(place).write_bytes(0, 1) }
}

/// Number of size classes: eight bytes wide up to 128, and one for everything beyond.
pub const CLASSES: usize = 17;

/// A place that fills memory, and how much it filled while counting was on.
///
/// ```
/// use rcuwalk_sync::fill::{self, Site};
///
/// static TAIL: Site = Site::new("example: tail");
/// fill::count(true);
/// fill::zero(&mut [1; 40], &TAIL);
/// fill::count(false);
/// let (_, counts) = fill::histogram().into_iter().find(|(name, _)| *name == "example: tail").unwrap();
/// assert_eq!(counts[40 / 8], 1);
/// ```
#[derive(Debug)]
pub struct Site {
    name: &'static str,
    classes: [AtomicU64; CLASSES],
    /// 1 once it is in the list.
    listed: AtomicU32,
}

/// The sites that filled while counting was on. An instrument, like a tracer: it decides nothing.
static SITES: Mutex<Vec<&'static Site>> = Mutex::new(Vec::new());

impl Site {
    /// The site `name`.
    pub const fn new(name: &'static str) -> Site {
        Site { name, classes: [const { AtomicU64::new(0) }; CLASSES], listed: AtomicU32::new(0) }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    #[cold]
    fn note(&'static self, len: usize) {
        // Relaxed: a statistic; the swap alone makes one thread the first.
        if self.listed.swap(1, Ordering::Relaxed) == 0 {
            SITES.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        }
        self.classes[(len / 8).min(CLASSES - 1)].fetch_add(1, Ordering::Relaxed);
    }
}

/// Switches the counting mode, for the whole process.
pub fn count(on: bool) {
    state();
    // Relaxed: a statistic.
    if on {
        STATE.fetch_or(COUNTING, Ordering::Relaxed);
    } else {
        STATE.fetch_and(!COUNTING, Ordering::Relaxed);
    }
}

/// What was counted so far: the name of each site, and the number of its fills of 0–7, 8–15, … 120–127, and 128 bytes or
/// more.
pub fn histogram() -> Vec<(&'static str, [u64; CLASSES])> {
    let sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
    // Relaxed: a statistic.
    let counts = |site: &Site| std::array::from_fn(|i| site.classes[i].load(Ordering::Relaxed));
    sites.iter().map(|site| (site.name, counts(site))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_clears_exactly_what_it_is_given() {
        let sizes: Vec<usize> = if cfg!(miri) {
            [0..=9, 15..=18, 31..=34, 63..=66, 127..=130, 511..=512].into_iter().flatten().collect()
        } else {
            (0..=600).collect()
        };
        for method in Method::ALL {
            for &len in &sizes {
                for offset in [0, 1, 7] {
                    let (mut memory, range) = (vec![0xa5_u8; len + 64], 16 + offset..16 + offset + len);
                    let mut expected = memory.clone();
                    expected[range.clone()].fill(0);
                    method.zero(&mut memory[range]);
                    assert!(memory == expected, "{} of {len} bytes at {offset}", method.name());
                }
            }
        }
    }

    #[test]
    fn fills_are_counted_by_site_and_size_only_while_asked() {
        static ONE: Site = Site::new("test one");
        static TWO: Site = Site::new("test two");
        let fill = |site: &'static Site, len: usize| zero(&mut vec![1; len], site);
        fill(&ONE, 4);
        count(true);
        [0, 7, 8, 39, 127, 128, 5000].into_iter().for_each(|len| fill(&ONE, len));
        fill(&TWO, 20);
        count(false);
        fill(&ONE, 4);
        let counts = |name| histogram().into_iter().find(|(site, _)| *site == name).map(|(_, counts)| counts);
        let mut expected = [0; CLASSES];
        (expected[0], expected[1], expected[4], expected[15], expected[16]) = (2, 1, 1, 1, 2);
        assert_eq!(counts("test one"), Some(expected));
        assert_eq!(counts("test two").map(|counts| counts[2]), Some(1));
        assert!(middle_method().available());
    }

    #[test]
    fn typed_zeroing_clears_the_whole_object() {
        let (mut words, mut bytes) = ([u64::MAX; 5], [1_u8; 3]);
        zero_typed(&mut words);
        zero_typed(&mut bytes);
        assert_eq!((words, bytes), ([0; 5], [0; 3]));
    }
}
