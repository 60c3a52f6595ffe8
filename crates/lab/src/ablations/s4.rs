//! S4: masks of processors whose size the compiler knows.

use std::ffi::CString;
use std::hint::black_box;

use rcuwalk_sync::PerCpu;
use rcuwalk_sync::cpumask::{CpuCount, CpuMask};
use rcuwalk_sync::fill::Site;
use rcuwalk_sync::lock::SpinLock;
use rcuwalk_sync::slab::{Init, Policy, Slabs};

use super::{Budget, Outcome, Row, Workload, side};
use rcuwalk_measure::Error;
use rcuwalk_measure::engines::Value;

/// The row.
pub(super) const ROW: Row = Row {
    id: "S4",
    title: "constant-size cpu masks",
    published: "with room for 64 processors, clearing a mask is one store instead of a call of memset (linux-kernel, \
                \"constant-sized cpumask optimizations\", 2023)",
    run,
};

/// Operations in one call: a single store is less than what a call costs.
const REPEATS: u32 = 256;

/// A mask whose every operation asks a variable how far to go. Kernel, before: include/linux/cpumask.h over
/// `nr_cpumask_bits`, a variable under `CONFIG_CPUMASK_OFFSTACK`.
struct RuntimeMask<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> RuntimeMask<WORDS> {
    #[inline(always)]
    fn clear(&mut self, bits: u32) {
        self.0[..bits.div_ceil(64) as usize].fill(0);
    }

    #[inline(always)]
    fn weight(&self, bits: u32) -> u32 {
        self.0[..bits.div_ceil(64) as usize].iter().map(|word| word.count_ones()).sum()
    }

    #[inline(always)]
    fn equal(&self, other: &Self, bits: u32) -> bool {
        let words = bits.div_ceil(64) as usize;
        self.0[..words] == other.0[..words]
    }
}

fn run(budget: &Budget<'_>) -> Result<Outcome, Error> {
    let mut points = Vec::new();
    points.extend(clear::<1>(budget, 64, Some(1.5))?);
    points.extend(clear::<3>(budget, 150, Some(1.0))?);
    points.extend(clear::<128>(budget, 64, None)?);
    points.extend(scan::<1>(budget, 64, Some(1.0))?);
    points.extend(scan::<3>(budget, 150, None)?);
    points.extend(buffers(budget)?);
    let note = "The last clearing row is the price of the remedy: where a kernel is built for 8192 processors and has \
                64, the constant upper size clears 1 KiB in which one word is ever set. The engine's counters that many threads \
                add to have a slot for each processor, found by such a mask. Its unused buffers are a thread's instead: a \
                program cannot stay on a processor, so that a slot needs a lock, which the last row shows.";
    Ok(Outcome { points, note: note.into() })
}

/// Clearing a mask and setting one processor in it, `REPEATS` times.
fn clear<const WORDS: usize>(
    budget: &Budget<'_>,
    nr: u32,
    claim: Option<f64>,
) -> Result<Vec<super::Point>, Error> {
    let cpus = count::<WORDS>(nr)?;
    let before = side("runtime-size", |_| {
        let mut mask = RuntimeMask([u64::MAX; WORDS]);
        let all = mask.weight(CpuMask::<WORDS>::BITS) - (CpuMask::<WORDS>::BITS - nr);
        for _ in 0..REPEATS {
            black_box(&mut mask).clear(black_box(nr));
        }
        Value::from(all) << 32 | Value::from(mask.weight(nr))
    });
    let after = side("constant-size", |_| {
        let mut mask = CpuMask::EMPTY;
        cpus.set_all(&mut mask);
        let all = mask.weight();
        for _ in 0..REPEATS {
            black_box(&mut mask).clear();
        }
        Value::from(all) << 32 | Value::from(mask.weight())
    });
    let name = format!("clear, {nr} processors in room for {}", CpuMask::<WORDS>::BITS);
    budget.compare(workload(name, claim), &[&before], &after)
}

/// Comparing two masks and counting one of them.
fn scan<const WORDS: usize>(
    budget: &Budget<'_>,
    nr: u32,
    claim: Option<f64>,
) -> Result<Vec<super::Point>, Error> {
    let cpus = count::<WORDS>(nr)?;
    let mut mask = CpuMask::EMPTY;
    for cpu in (0..nr).step_by(3) {
        let _ = cpus.set(&mut mask, cpu);
    }
    let old = || {
        let mut old = RuntimeMask([0_u64; WORDS]);
        mask.iter().for_each(|cpu| old.0[(cpu / 64) as usize] |= 1 << (cpu % 64));
        old
    };
    let (old, same) = (old(), old());
    let before = side("runtime-size", |_| {
        (0..REPEATS)
            .map(|_| {
                let (bits, mask) = (black_box(nr), black_box(&old));
                Value::from(mask.weight(bits)) + Value::from(mask.equal(&same, bits))
            })
            .sum()
    });
    let twin = mask;
    let after = side("constant-size", |_| {
        (0..REPEATS)
            .map(|_| {
                let mask = black_box(&mask);
                Value::from(mask.weight()) + Value::from(*mask == twin)
            })
            .sum()
    });
    let name = format!("compare and count, {nr} processors in room for {}", CpuMask::<WORDS>::BITS);
    budget.compare(workload(name, claim), &[&before], &after)
}

/// Taking a buffer and giving it back: unused ones kept by processor, each slot under a lock, and by thread, as the product does.
fn buffers(budget: &Budget<'_>) -> Result<Vec<super::Point>, Error> {
    static SITE: Site = Site::new("ablation S4");
    const SIZE: usize = 4096;
    let cache = Slabs::new(Policy::On).cache(&SITE, SIZE, Init::OptOut);
    let slots = PerCpu::<Slot>::new();
    let before = side("a slot for each processor", |_| {
        (0..REPEATS)
            .map(|_| {
                let unused = slots.here().0.lock().pop();
                let buffer = black_box(unused.unwrap_or_else(|| vec![0; SIZE].into()));
                let len = buffer.len() as Value;
                slots.here().0.lock().push(buffer);
                len
            })
            .sum()
    });
    let after = side("a slot for each thread", |_| {
        (0..REPEATS).map(|_| cache.alloc().map_or(0, |buffer| black_box(&*buffer).len() as Value)).sum()
    });
    let name = "a buffer taken and given back".to_owned();
    budget.compare(workload(name, Some(1.0)), &[&before], &after)
}

/// Unused buffers of one processor.
#[derive(Default)]
struct Slot(SpinLock<Vec<Box<[u8]>>>);

fn workload<'a>(name: String, claim: Option<f64>) -> Workload<'a> {
    Workload::new(name, vec![CString::default()]).per(REPEATS).claims(claim)
}

fn count<const WORDS: usize>(nr: u32) -> Result<CpuCount<WORDS>, Error> {
    let too_many = || Error::new("making a mask", nr.to_string(), "more processors than it has room for", "");
    CpuCount::new(nr).ok_or_else(too_many)
}
