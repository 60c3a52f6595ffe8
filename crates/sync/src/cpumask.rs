//! Sets of processors, in which the compiler knows how much there is to clear.
//!
//! A mask has two sizes. Its *upper size* is a constant of the type: clearing, scanning, comparing and counting go over
//! all of it, so that a small mask is cleared by one store instead of a call with a length that nobody knew at compile
//! time. The *exact count* of processors, [`CpuCount`], is found out at run time, and is asked where a bit is set and
//! where all are: so bits from the exact count on are always zero, and going over them changes no answer.
//!
//! Kernel: include/linux/cpumask.h, `small_cpumask_bits`, `large_cpumask_bits` and `nr_cpu_ids`. Differs: the count
//! is a value, not a global, and setting a processor beyond it is refused in every build. No complement, for nobody
//! needs one: it would be the one operation that sets upper bits.

/// A set of processor numbers below `WORDS` × 64.
///
/// ```
/// use rcuwalk_sync::cpumask::{CpuCount, CpuMask};
///
/// // Room for 150 processors takes three words; this machine has 64.
/// let cpus = CpuCount::<3>::new(64).unwrap();
/// let mut mask = CpuMask::<3>::EMPTY;
/// cpus.set_all(&mut mask);
/// assert_eq!(mask.weight(), 64);
/// assert!(!cpus.set(&mut mask, 64), "there is no processor 64");
/// mask.clear();
/// assert!(mask.is_empty());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CpuMask<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> CpuMask<WORDS> {
    /// No processor.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// The upper size: every processor number in a mask is below.
    pub const BITS: u32 = WORDS as u32 * u64::BITS;

    /// Takes every processor out.
    ///
    /// Kernel: include/linux/cpumask.h `cpumask_clear()`, over `large_cpumask_bits`.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.0 = [0; WORDS];
    }

    /// Whether `cpu` is in it; no number from [`BITS`](Self::BITS) on is.
    #[inline(always)]
    pub fn contains(&self, cpu: u32) -> bool {
        cpu < Self::BITS && self.0[(cpu / 64) as usize] >> (cpu % 64) & 1 == 1
    }

    /// Takes `cpu` out. Numbers that are not in it may be any.
    #[inline(always)]
    pub fn clear_cpu(&mut self, cpu: u32) {
        if cpu < Self::BITS {
            self.0[(cpu / 64) as usize] &= !(1 << (cpu % 64));
        }
    }

    /// Number of processors in it.
    #[inline(always)]
    pub fn weight(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether there is none in it.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.iter().fold(0, |all, word| all | word) == 0
    }

    /// The first processor in it from `from` on.
    ///
    /// Kernel: lib/find_bit.c `find_next_bit()`, over `small_cpumask_bits`.
    #[inline(always)]
    pub fn next(&self, from: u32) -> Option<u32> {
        let first = (from / 64) as usize;
        (first..WORDS).find_map(|i| {
            let keep = if i == first { u64::MAX << (from % 64) } else { u64::MAX };
            let word = self.0[i] & keep;
            (word != 0).then(|| i as u32 * 64 + word.trailing_zeros())
        })
    }

    /// Its processors, ascending.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let found = self.next(from)?;
            from = found + 1;
            Some(found)
        })
    }
}

impl<const WORDS: usize> Default for CpuMask<WORDS> {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// How many processors there are: the exact count, at most the upper size of the masks that go with it.
///
/// Kernel: kernel/smp.c `nr_cpu_ids`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuCount<const WORDS: usize>(u32);

impl<const WORDS: usize> CpuCount<WORDS> {
    /// The count `n`; none for more than a mask has room for.
    pub const fn new(n: u32) -> Option<Self> {
        if n <= CpuMask::<WORDS>::BITS { Some(Self(n)) } else { None }
    }

    /// One processor.
    pub const ONE: Self = Self(1);

    /// The number.
    #[inline(always)]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Puts `cpu` in; says false, and changes nothing, if there is no such processor.
    ///
    /// Kernel: include/linux/cpumask.h `cpumask_set_cpu()`.
    #[inline(always)]
    #[must_use = "false says that there is no such processor"]
    pub fn set(self, mask: &mut CpuMask<WORDS>, cpu: u32) -> bool {
        let exists = cpu < self.0;
        if exists {
            mask.0[(cpu / 64) as usize] |= 1 << (cpu % 64);
        }
        exists
    }

    /// Puts every processor in, and no number beyond the last.
    ///
    /// Kernel: include/linux/cpumask.h `cpumask_setall()`, over `nr_cpumask_bits`.
    #[inline(always)]
    pub fn set_all(self, mask: &mut CpuMask<WORDS>) {
        for (i, word) in mask.0.iter_mut().enumerate() {
            *word = match self.0.saturating_sub(i as u32 * 64) {
                0 => 0,
                rest @ 1..=63 => (1 << rest) - 1,
                _ => u64::MAX,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The invariant by which going over the upper size is right: bits from the exact count on are zero.
    fn upper_bits_are_zero<const WORDS: usize>(mask: &CpuMask<WORDS>, cpus: CpuCount<WORDS>) {
        for cpu in cpus.get()..CpuMask::<WORDS>::BITS + 64 {
            assert!(!mask.contains(cpu), "{cpu} of {}", cpus.get());
        }
    }

    /// Everything a mask does, beside a set of numbers, for `n` processors in `WORDS` words.
    fn agrees_with_a_set<const WORDS: usize>(n: u32) {
        let cpus = CpuCount::<WORDS>::new(n).expect("room");
        let mut mask = CpuMask::EMPTY;
        cpus.set_all(&mut mask);
        assert_eq!(mask.weight(), n);
        assert!(mask.iter().eq(0..n));
        upper_bits_are_zero(&mask, cpus);
        mask.clear();
        assert_eq!(mask, CpuMask::EMPTY);

        let mut model = std::collections::BTreeSet::new();
        let mut x = 12345_u64 + u64::from(n);
        for _ in 0..if cfg!(miri) { 20 } else { 500 } {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let cpu = (x >> 33) as u32 % (CpuMask::<WORDS>::BITS + 10);
            if x >> 63 == 0 {
                assert_eq!(cpus.set(&mut mask, cpu), cpu < n);
                if cpu < n {
                    model.insert(cpu);
                }
            } else {
                mask.clear_cpu(cpu);
                model.remove(&cpu);
            }
            assert_eq!(mask.contains(cpu), model.contains(&cpu));
            assert_eq!(mask.next(cpu), model.range(cpu..).next().copied(), "from {cpu} of {n}");
            assert_eq!((mask.weight() as usize, mask.is_empty()), (model.len(), model.is_empty()));
        }
        assert!(mask.iter().eq(model.iter().copied()));
        upper_bits_are_zero(&mask, cpus);
    }

    #[test]
    fn agrees_with_a_set_of_numbers_at_every_edge() {
        for n in [1, 2, 63, 64] {
            agrees_with_a_set::<1>(n);
        }
        for n in [1, 63, 64, 65, 127, 128, 129, 150, 191, 192] {
            agrees_with_a_set::<3>(n); // NR_CPUS 150
        }
        for n in [2, 64, 512] {
            agrees_with_a_set::<8>(n);
        }
    }

    #[test]
    fn all_of_64_in_room_for_150_weigh_64() {
        let cpus = CpuCount::<3>::new(64).unwrap();
        let mut mask = CpuMask::EMPTY;
        cpus.set_all(&mut mask);
        assert_eq!(mask.weight(), 64);
        assert_eq!(mask.next(63), Some(63));
        assert_eq!(mask.next(64), None);
        assert_eq!(CpuCount::<3>::new(193), None);
        assert_eq!(CpuCount::<1>::new(64).map(CpuCount::get), Some(64));
    }

    #[test]
    fn masks_are_compared_whole() {
        let cpus = CpuCount::<3>::new(150).unwrap();
        let (mut a, mut b) = (CpuMask::EMPTY, CpuMask::EMPTY);
        assert!(cpus.set(&mut a, 149));
        assert_ne!(a, b);
        assert!(cpus.set(&mut b, 149));
        assert_eq!(a, b);
    }
}
