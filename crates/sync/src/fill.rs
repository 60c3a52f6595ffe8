//! Clearing memory, when most of it is small.
//!
//! `rep stos` takes about thirty cycles before it stores anything, on processors that do not say otherwise (FSRM), and most
//! clears of a kernel at work are shorter than what could be stored meanwhile. [`zero`] therefore uses plain stores, of which the
//! last overlap the ones before, so that no length needs a loop over single bytes. Which, is chosen once for each [class of
//! sizes](BOUNDS), at run time, from what this processor says of itself ([`Choice::of`]): the same on every run, which a
//! measurement would not be. Long fills are left to the platform.
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
    /// Sixteen-byte stores, the second half of them overlapping the first.
    Vector16,
    /// Likewise of thirty-two bytes (AVX2).
    Vector32,
    /// Likewise of sixty-four bytes (AVX-512).
    Vector64,
    /// The platform's `memset`.
    Platform,
}

impl Method {
    /// All of them.
    pub const ALL: [Method; 6] = [
        Method::Stores,
        Method::RepStos,
        Method::Vector16,
        Method::Vector32,
        Method::Vector64,
        Method::Platform,
    ];

    /// The name, as tables show it.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Stores => "8-byte stores",
            Method::RepStos => "rep stosb",
            Method::Vector16 => "16-byte stores",
            Method::Vector32 => "32-byte stores",
            Method::Vector64 => "64-byte stores",
            Method::Platform => "memset",
        }
    }

    /// The word for it in [`METHOD_VARIABLE`].
    const fn word(self) -> &'static str {
        match self {
            Method::Stores => "stores",
            Method::RepStos => "rep-stos",
            Method::Vector16 => "vector16",
            Method::Vector32 => "vector32",
            Method::Vector64 => "vector64",
            Method::Platform => "memset",
        }
    }

    /// Whether this processor can.
    pub fn available(self) -> bool {
        match self {
            Method::Stores | Method::Vector16 | Method::Platform => true,
            Method::RepStos => cfg!(all(target_arch = "x86_64", not(miri))),
            Method::Vector32 => has_avx2(),
            Method::Vector64 => has_avx512(),
        }
    }

    /// Clears `bytes` this way; the platform's way where this processor cannot. A call of its own, as `memset` is.
    #[inline]
    pub fn zero(self, bytes: &mut [u8]) {
        match self {
            Method::Stores => stores(bytes),
            Method::Vector16 => vector16(bytes),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Method::RepStos => rep_stos(bytes),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: 1: just asked.
            Method::Vector32 if has_avx2() => unsafe { vector32(bytes) },
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: 1: just asked.
            Method::Vector64 if has_avx512() => unsafe { vector64(bytes) },
            _ => bytes.fill(0),
        }
    }
}

/// The classes of sizes that a method is chosen for: up to 16 bytes, up to 32, and so on.
pub const BOUNDS: [usize; 6] = [16, 32, 64, 128, 256, SMALL];

/// Longer fills are left to the platform, which knows several ways more: `cargo lab ablations --only S3`
/// shows where the lines cross.
pub const SMALL: usize = 512;

/// Up to here [`Method::Vector16`] is written out where the fill is, if it is chosen for all of these sizes: a call costs more
/// than its stores. Beyond, so many of them do.
const IN_PLACE: usize = 64;

/// The environment variable that names one method for all sizes up to [`SMALL`]: `stores`, `rep-stos`, `vector16`, `vector32`,
/// `vector64` or `memset`. Whatever else it says, or a method that this processor does not have, leaves the choice as it is: what
/// is in the memory afterwards does not depend on it.
pub const METHOD_VARIABLE: &str = "RCUWALK_FILL";

/// What decides which method is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cpu {
    /// Sixteen-byte registers, without asking: of all processors that the program is compiled for.
    pub vector16: bool,
    /// Thirty-two-byte registers.
    pub avx2: bool,
    /// Sixty-four-byte registers.
    pub avx512: bool,
    /// What it says of `rep stosb`.
    pub rep_stos: RepStosFlags,
    /// The platform's `memset` chooses among vector loops by itself, as the GNU library's does; others, such as musl's, have
    /// `rep stosq` for whatever is longer than 126 bytes.
    pub vector_memset: bool,
}

impl Cpu {
    /// This one.
    pub fn this() -> Cpu {
        Cpu {
            vector16: cfg!(any(target_feature = "sse2", target_feature = "neon")),
            avx2: has_avx2(),
            avx512: has_avx512(),
            rep_stos: rep_stos_flags(),
            vector_memset: cfg!(target_env = "gnu"),
        }
    }
}

/// A method for each of the [classes](BOUNDS).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice([Method; BOUNDS.len()]);

impl Choice {
    /// What is chosen for a processor.
    ///
    /// | it has | up to 64 bytes | up to 256 | up to 512 |
    /// |---|---|---|---|
    /// | a `memset` of vector loops | `Vector16` | `Platform` | `Platform` |
    /// | AVX-512, AVX2, or neither | `Vector16` | `Vector64`, `Vector32`, `Vector16` | likewise |
    /// | no vectors at hand, FSRS | `Stores` | `RepStos` | `RepStos` |
    /// | no vectors at hand, ERMS | `Stores` | `Stores` | `RepStos` |
    /// | no vectors at hand, neither | `Stores` | `Stores` | `Stores` |
    ///
    /// The lines are where S3 of `cargo lab ablations` has them cross: 8-byte stores take 2 ns for 64 bytes, 4 for 128 and 8
    /// for 256; `rep stosb` 2 ns where short fills are fast, and 7 to 9 for 256 bytes and more anywhere; a call of `memset` 1.2 ns
    /// for up to 128 bytes, in which there is time for the four stores of 64 bytes, but not for the eight of 128.
    ///
    /// ```
    /// use rcuwalk_sync::fill::{Choice, Cpu, Method};
    ///
    /// let musl = Cpu { vector16: true, avx2: true, ..Cpu::default() };
    /// assert_eq!(Choice::of(&musl).method(40), Method::Vector16);
    /// assert_eq!(Choice::of(&musl).method(200), Method::Vector32);
    /// ```
    pub fn of(cpu: &Cpu) -> Choice {
        let short = if cpu.vector16 { Method::Vector16 } else { Method::Stores };
        let (middle, long) = match cpu {
            Cpu { vector_memset: true, .. } => (Method::Platform, Method::Platform),
            Cpu { avx512: true, .. } => (Method::Vector64, Method::Vector64),
            Cpu { avx2: true, .. } => (Method::Vector32, Method::Vector32),
            Cpu { vector16: true, .. } => (Method::Vector16, Method::Vector16),
            Cpu { rep_stos: RepStosFlags { short_fills: true, .. }, .. } => {
                (Method::RepStos, Method::RepStos)
            }
            Cpu { rep_stos: RepStosFlags { enhanced: true, .. }, .. } => (Method::Stores, Method::RepStos),
            _ => (Method::Stores, Method::Stores),
        };
        Choice([short, short, short, middle, middle, long])
    }

    /// What the value of [`METHOD_VARIABLE`] says, if it can be had.
    fn named(word: &str) -> Option<Choice> {
        let method = Method::ALL.into_iter().find(|method| method.word() == word.trim())?;
        method.available().then_some(Choice([method; BOUNDS.len()]))
    }

    /// What this process uses.
    pub fn in_force() -> Choice {
        let state = state();
        Choice(std::array::from_fn(|class| method(state, class)))
    }

    /// How fills of `len` bytes are made.
    pub fn method(&self, len: usize) -> Method {
        if len > SMALL { Method::Platform } else { self.0[class(len)] }
    }

    /// As a word for [`STATE`].
    fn pack(self) -> u32 {
        let methods = self.0.iter().rev().fold(0, |word, &method| word << METHOD_BITS | method as u32);
        let (short, long) = self.0.split_at(class(IN_PLACE) + 1);
        let all = |of: &[Method], method, bit| if of.iter().all(|&one| one == method) { bit } else { 0 };
        methods | DECIDED | all(short, Method::Vector16, VECTORS) | all(long, Method::Platform, PLATFORM)
    }
}

/// The class of a size up to [`SMALL`].
#[inline(always)]
fn class(len: usize) -> usize {
    // 15 and 16 differ in the bit that counts once one is taken off.
    ((len.max(1) - 1) | (BOUNDS[0] - 1)).ilog2() as usize - 3
}

/// The method in each class, three bits each, and the bits below; 0 before the first fill.
static STATE: AtomicU32 = AtomicU32::new(0);
const METHOD_BITS: u32 = 3;
/// There is a choice.
const DECIDED: u32 = 1 << 24;
/// It is 16-byte stores up to [`IN_PLACE`].
const VECTORS: u32 = 1 << 25;
/// It is the platform's `memset` beyond.
const PLATFORM: u32 = 1 << 26;
/// Fills are counted.
const COUNTING: u32 = 1 << 27;

/// The method that a state has for a class.
#[inline(always)]
fn method(state: u32, class: usize) -> Method {
    match state >> (METHOD_BITS * class as u32) & ((1 << METHOD_BITS) - 1) {
        0 => Method::Stores,
        1 => Method::RepStos,
        2 => Method::Vector16,
        3 => Method::Vector32,
        4 => Method::Vector64,
        _ => Method::Platform,
    }
}

/// Clears `bytes`; `site` says where, for the counting mode.
#[inline]
pub fn zero(bytes: &mut [u8], site: &'static Site) {
    // Relaxed: the word stands for nothing but itself; a thread that sees 0 finds out again.
    let state = STATE.load(Ordering::Relaxed);
    if bytes.len() <= IN_PLACE && state & (VECTORS | COUNTING) == VECTORS {
        up_to_64(bytes);
    } else if bytes.len() > IN_PLACE && state & (PLATFORM | COUNTING) == PLATFORM {
        // What most processors come to: without another look at the choice, which costs as much as a small fill.
        bytes.fill(0);
    } else {
        by_choice(bytes, site, state);
    }
}

#[inline(never)]
fn by_choice(bytes: &mut [u8], site: &'static Site, state: u32) {
    if state & (DECIDED | COUNTING) != DECIDED {
        return counted(bytes, site);
    }
    if bytes.len() > SMALL {
        return bytes.fill(0);
    }
    method(state, class(bytes.len())).zero(bytes);
}

/// The first fill, and those that are counted.
#[cold]
fn counted(bytes: &mut [u8], site: &'static Site) {
    let state = state();
    if state & COUNTING != 0 {
        site.note(bytes.len());
    }
    Choice::in_force().method(bytes.len()).zero(bytes);
}

fn state() -> u32 {
    // Relaxed: as in `zero`.
    match STATE.load(Ordering::Relaxed) {
        state if state & DECIDED != 0 => state,
        _ => decide(),
    }
}

#[cold]
fn decide() -> u32 {
    let asked = std::env::var(METHOD_VARIABLE).ok();
    let named = asked.and_then(|word| Choice::named(&word));
    let choice = named.unwrap_or_else(|| Choice::of(&Cpu::this()));
    // Relaxed: as in `zero`. Counting may have been switched on meanwhile: keep it. Every thread decides the same.
    STATE.fetch_or(choice.pack(), Ordering::Relaxed) | choice.pack()
}

#[inline(always)]
fn has_avx2() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

#[inline(always)]
fn has_avx512() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return std::arch::is_x86_feature_detected!("avx512f");
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
        unsafe { store::<N>(opaque(at.wrapping_add(done))) };
        done += N;
    }
    // SAFETY: 1 of `store`: the last N of `len` bytes, of which there are as many by 2.
    unsafe { store::<N>(at.wrapping_add(len - N)) };
}

/// The same address, of which the compiler knows nothing: it would make a call of `memset` of a loop that clears memory.
#[inline(always)]
fn opaque(at: *mut u8) -> *mut u8 {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    {
        let mut same = at;
        // SAFETY: no instruction at all.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) same, options(nostack, preserves_flags)) };
        same
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    at
}

/// Clears `len` bytes, the first `N` and the last `N`.
///
/// # Safety
///
/// 1. `at` is valid for writing `len` bytes.
/// 2. `len >= N`.
#[inline(always)]
unsafe fn both_ends<const N: usize>(at: *mut u8, len: usize) {
    // SAFETY: 1 of `store`, each time: N of at least N bytes, by 1 and 2.
    unsafe {
        store::<N>(at);
        store::<N>(at.wrapping_add(len - N));
    }
}

/// Clears up to sixteen bytes in two overlapping stores.
#[inline(always)]
fn up_to_16(bytes: &mut [u8]) {
    let (at, len) = (bytes.as_mut_ptr(), bytes.len());
    debug_assert!(len <= 16);
    // SAFETY: 1: the slice itself. 2: just compared; and so each time.
    unsafe {
        if len >= 8 {
            both_ends::<8>(at, len);
        } else if len >= 4 {
            both_ends::<4>(at, len);
        } else if len >= 2 {
            both_ends::<2>(at, len);
        } else if len == 1 {
            store::<1>(at);
        }
    }
}

/// Clears up to 64 bytes in overlapping stores, as wide as the instructions of the caller allow.
#[inline(always)]
fn up_to_64(bytes: &mut [u8]) {
    let (at, len) = (bytes.as_mut_ptr(), bytes.len());
    debug_assert!(len <= 64);
    // SAFETY: 1: the slice itself. 2: just compared.
    unsafe {
        match len {
            0..=16 => up_to_16(bytes),
            17..=32 => both_ends::<16>(at, len),
            _ => both_ends::<32>(at, len),
        }
    }
}

#[inline(never)]
fn stores(bytes: &mut [u8]) {
    if bytes.len() <= 16 {
        return up_to_16(bytes);
    }
    // SAFETY: 1: the slice itself. 2: longer than 16.
    unsafe { with_tail::<8>(bytes.as_mut_ptr(), bytes.len()) }
}

/// Clears any number of bytes; without a loop up to 512.
#[inline(always)]
fn vectors(bytes: &mut [u8]) {
    let (at, len) = (bytes.as_mut_ptr(), bytes.len());
    // SAFETY: 1: the slice itself. 2: just compared.
    unsafe {
        match len {
            0..=64 => up_to_64(bytes),
            65..=128 => both_ends::<64>(at, len),
            129..=256 => both_ends::<128>(at, len),
            257..=512 => both_ends::<256>(at, len),
            _ => with_tail::<64>(at, len),
        }
    }
}

#[inline(never)]
fn vector16(bytes: &mut [u8]) {
    vectors(bytes);
}

/// As [`vector16`], with registers twice as wide.
///
/// # Safety
///
/// 1. The processor has AVX2.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn vector32(bytes: &mut [u8]) {
    vectors(bytes);
}

/// As [`vector16`], with registers four times as wide.
///
/// # Safety
///
/// 1. The processor has AVX-512 (its foundation).
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(never)]
#[target_feature(enable = "avx512f")]
unsafe fn vector64(bytes: &mut [u8]) {
    vectors(bytes);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(never)]
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
        const GUARD: usize = 64;
        let (sizes, offsets): (Vec<usize>, Vec<usize>) = if cfg!(miri) {
            let around = [0..=9, 15..=18, 31..=34, 63..=66, 127..=130, 255..=258, 511..=514];
            (around.into_iter().flatten().collect(), vec![0, 1, 7])
        } else {
            ((0..=SMALL + 100).collect(), (0..64).collect())
        };
        let mut memory = vec![0xa5_u8; GUARD + 64 + SMALL + 100 + GUARD];
        for method in Method::ALL {
            for &len in &sizes {
                for offset in &offsets {
                    let range = GUARD + offset..GUARD + offset + len;
                    method.zero(&mut memory[range.clone()]);
                    let outside = memory[..range.start].iter().chain(&memory[range.end..]);
                    let exact = memory[range.clone()].iter().all(|&byte| byte == 0)
                        && outside.clone().all(|&byte| byte == 0xa5);
                    assert!(exact, "{} of {len} bytes at {offset}", method.name());
                    memory[range].fill(0xa5);
                }
            }
        }
    }

    #[test]
    fn the_choice_is_what_the_table_says() {
        use Method::{Platform, RepStos, Stores, Vector16, Vector32, Vector64};
        let erms = RepStosFlags { enhanced: true, ..RepStosFlags::default() };
        let fsrm = RepStosFlags { short_copies: true, ..erms };
        let fsrs = RepStosFlags { short_fills: true, ..fsrm };
        let none = Cpu::default();
        let sse = Cpu { vector16: true, ..none };
        let table = [
            (none, [Stores, Stores, Stores]),
            (Cpu { rep_stos: erms, ..none }, [Stores, Stores, RepStos]),
            (Cpu { rep_stos: fsrm, ..none }, [Stores, Stores, RepStos]),
            (Cpu { rep_stos: fsrs, ..none }, [Stores, RepStos, RepStos]),
            (sse, [Vector16; 3]),
            (Cpu { rep_stos: fsrs, ..sse }, [Vector16; 3]),
            (Cpu { avx2: true, ..sse }, [Vector16, Vector32, Vector32]),
            (Cpu { avx2: true, avx512: true, ..sse }, [Vector16, Vector64, Vector64]),
            (Cpu { vector_memset: true, ..sse }, [Vector16, Platform, Platform]),
            (Cpu { avx2: true, avx512: true, vector_memset: true, ..sse }, [Vector16, Platform, Platform]),
        ];
        for (cpu, [short, middle, long]) in table {
            let choice = Choice::of(&cpu);
            for len in 0..=SMALL + 1 {
                let expected = match len {
                    0..=64 => short,
                    65..=256 => middle,
                    257..=SMALL => long,
                    _ => Platform,
                };
                assert_eq!(choice.method(len), expected, "{len} bytes, {cpu:?}");
            }
            let packed = choice.pack();
            assert_eq!(std::array::from_fn(|class| method(packed, class)), choice.0);
            let bits = (packed & VECTORS != 0, packed & PLATFORM != 0);
            assert_eq!(bits, (short == Vector16, middle == Platform), "{cpu:?}");
        }
    }

    #[test]
    fn the_operator_names_a_method() {
        for method in Method::ALL {
            let named = Choice::named(method.word()).map(|choice| choice.0);
            assert_eq!(named, method.available().then_some([method; BOUNDS.len()]));
        }
        assert_eq!(Choice::named("fastest"), None);
        if cfg!(miri) {
            return;
        }
        // In processes of their own: this one decides once.
        if let Ok(expected) = std::env::var("RCUWALK_TEST_EXPECTS") {
            static HERE: Site = Site::new("test three");
            let mut bytes = [1; 40];
            zero(&mut bytes, &HERE);
            assert_eq!((Choice::in_force().method(40).name(), bytes), (&*expected, [0; 40]));
            return;
        }
        let usual = Choice::of(&Cpu::this()).method(40).name();
        for (word, expected) in
            [("stores", "8-byte stores"), (" memset\n", "memset"), ("quickly", usual), ("", usual)]
        {
            let test = "fill::tests::the_operator_names_a_method";
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", test])
                .env("RCUWALK_TEST_EXPECTS", expected)
                .env(METHOD_VARIABLE, word)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&status.stdout);
            assert!(status.status.success() && said.contains("1 passed"), "{word:?}: {said}");
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
        assert!((0..=SMALL).all(|len| Choice::in_force().method(len).available()));
    }

    #[test]
    fn typed_zeroing_clears_the_whole_object() {
        let (mut words, mut bytes) = ([u64::MAX; 5], [1_u8; 3]);
        zero_typed(&mut words);
        zero_typed(&mut bytes);
        assert_eq!((words, bytes), ([0; 5], [0; 3]));
    }
}
