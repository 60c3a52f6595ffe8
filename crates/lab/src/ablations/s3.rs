//! S3: small fills without `rep stos`.

use std::ffi::{CStr, CString};
use std::hint::black_box;

use rcuwalk_sync::fill::{self, Choice, Method, SMALL, Site, rep_stos_flags};

use super::{Budget, Outcome, Point, Row, Variant, Workload, side};
use rcuwalk_measure::Error;
use rcuwalk_measure::engines::{Contender, Value};

/// The row.
pub(super) const ROW: Row = Row {
    id: "S3",
    title: "small fills",
    published: "most clears of a kernel build are small: 9.1 M below 8 bytes, 11.0 M of 32 to 39, 1.5 M of 56 to 63, 1.7 M \
                of 104 to 111, 11.3 M of 128 and more; rep stos takes some 30 cycles to start (linux-fsdevel, March 2023)",
    run,
};

/// The published sizes and how many of each there are in a hundred-odd.
const BUILD: &[(usize, usize)] = &[(4, 29), (36, 35), (60, 5), (108, 5), (192, 36)];

/// Sizes that are shown one by one: the ends of the classes, and one within most.
const SIZES: [usize; 12] = [8, 16, 24, 32, 40, 64, 100, 128, 192, 256, 384, 512];

/// Fills in one call: so many that setting up the memory and looking at it afterwards does not count.
const REPEATS: usize = 1024;

/// The choice is claimed not to lose to any method at any size by more than a cycle or two, of some eight.
const NOT_SLOWER: f64 = 0.8;

static SITE: Site = Site::new("ablation S3");

fn run(budget: &Budget<'_>) -> Result<Outcome, Error> {
    let mut points = vec![];
    points.extend(mixed(budget)?);
    for size in SIZES {
        points.extend(sized(budget, size)?);
    }
    Ok(Outcome { points, note: note() })
}

fn note() -> String {
    let flags = rep_stos_flags();
    let said = |yes: bool, name: &'static str| yes.then_some(name);
    let says: Vec<&str> =
        [said(flags.enhanced, "erms"), said(flags.short_copies, "fsrm"), said(flags.short_fills, "fsrs")]
            .into_iter()
            .flatten()
            .collect();
    let says = if says.is_empty() { "nothing".to_owned() } else { says.join(", ") };
    let [short, middle, long] = [64, 256, SMALL].map(|len| Choice::in_force().method(len));
    let between = if middle == long { String::new() } else { format!("{} up to 256, ", middle.name()) };
    format!(
        "After: what is chosen from what the processor says of itself: {} up to 64 bytes, {between}{} beyond; it says {says} of \
         rep stosb. Before: each method for every size, as a call, as memset is one. The choice clears up to 64 bytes in place, \
         where that is 16-byte stores; beyond, it can lose what the look at it costs: where there are 64-byte stores, they are a cycle \
         faster than memset, but choosing them would take two. A kernel has no vector registers at hand: the same table would \
         choose between 8-byte stores and rep stos for it.",
        short.name(),
        long.name()
    )
}

/// The methods that this processor has, as sides: each a direct call, as one of memset is.
fn methods<'a>(sizes: &'a [usize]) -> Vec<(Method, Box<dyn Contender + 'a>)> {
    fn by<'a, const INDEX: usize>(sizes: &'a [usize]) -> (Method, Box<dyn Contender + 'a>) {
        let method = const { Method::ALL[INDEX] };
        (
            method,
            Box::new(side(method.name(), |_: &CStr| {
                over(sizes, |bytes| const { Method::ALL[INDEX] }.zero(bytes))
            })),
        )
    }
    let all =
        [by::<0>(sizes), by::<1>(sizes), by::<2>(sizes), by::<3>(sizes), by::<4>(sizes), by::<5>(sizes)];
    all.into_iter().filter(|(method, _)| method.available()).collect()
}

/// The published mix of sizes in random order.
fn mixed(budget: &Budget<'_>) -> Result<Vec<Point>, Error> {
    let mut sizes: Vec<usize> =
        BUILD.iter().flat_map(|&(size, count)| std::iter::repeat_n(size, 10 * count)).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut sizes);
    let chosen = side("chosen", |_| over(&sizes, |bytes| fill::zero(bytes, &SITE)));
    let mut points = Vec::new();
    // What the row stands for comes first.
    let mut sides = methods(&sizes);
    sides.sort_by_key(|(method, _)| *method != Method::RepStos);
    for (method, before) in &sides {
        let least = if *method == Method::RepStos { 1.2 } else { NOT_SLOWER };
        let workload = Workload::new("sizes of a kernel build", vec![CString::default()]);
        points.extend(budget.compare(
            workload.per(sizes.len() as u32).claims(least),
            &[before.as_ref()],
            &chosen,
        )?);
    }
    Ok(points)
}

/// Fills of `sizes`, one after the other, at the same place; how many bytes are left that are not zero.
#[inline(always)]
fn over(sizes: &[usize], zero: impl Fn(&mut [u8])) -> Value {
    let mut memory = [0x5a_u8; SMALL];
    for &size in sizes {
        zero(black_box(&mut memory[..black_box(size)]));
    }
    memory.iter().filter(|&&byte| byte != 0).count() as u64
}

/// One size, every method.
fn sized(budget: &Budget<'_>, size: usize) -> Result<Vec<Point>, Error> {
    let sizes = [size; REPEATS];
    let chosen = side("chosen", |_| over(&sizes, |bytes| fill::zero(bytes, &SITE)));
    let sides = methods(&sizes);
    let before: Vec<Variant<'_>> = sides.iter().map(|(_, side)| -> Variant<'_> { side.as_ref() }).collect();
    let workload = Workload::new(format!("{size} bytes"), vec![CString::default()]);
    budget.compare(workload.per(REPEATS as u32).claims(NOT_SLOWER), &before, &chosen)
}
