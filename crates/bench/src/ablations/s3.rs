//! S3: small fills without `rep stos`.

use std::ffi::CString;
use std::hint::black_box;

use rcuwalk_sync::fill::{self, Method, Site, middle_method, rep_stos_flags};

use super::{Budget, Outcome, Point, Row, Variant, Workload, side};
use crate::engines::Value;
use crate::error::Error;

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

/// Sizes that are shown one by one.
const SIZES: [usize; 8] = [8, 16, 40, 64, 128, 192, 256, 512];

/// Fills in one call.
const REPEATS: u32 = 64;

/// Room for the longest.
const ROOM: usize = 512;

static SITE: Site = Site::new("ablation S3");

fn run(budget: &Budget<'_>) -> Result<Outcome, Error> {
    let mut points = vec![];
    points.extend(mixed(budget)?);
    for size in SIZES {
        points.extend(sized(budget, size)?);
    }
    let flags = rep_stos_flags();
    let said = |yes: bool, name: &'static str| yes.then_some(name);
    let says: Vec<&str> =
        [said(flags.enhanced, "erms"), said(flags.short_copies, "fsrm"), said(flags.short_fills, "fsrs")]
            .into_iter()
            .flatten()
            .collect();
    let says = if says.is_empty() { "nothing".to_owned() } else { says.join(", ") };
    let note = format!(
        "After: 16-byte stores written out in place up to 128 bytes; beyond, {} on this processor, which says {says} of rep \
         stosb. A kernel has no vector registers at hand: its \
         choice is between the 8-byte stores and rep stos, which are both among the variants.",
        middle_method().name()
    );
    Ok(Outcome { points, note })
}

/// The published mix of sizes in random order.
fn mixed(budget: &Budget<'_>) -> Result<Vec<Point>, Error> {
    let mut sizes: Vec<usize> =
        BUILD.iter().flat_map(|&(size, count)| std::iter::repeat_n(size, count)).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut sizes);
    let calls = u32::try_from(sizes.len()).unwrap_or(1);
    let chosen = side("chosen", |_| over(&sizes, |bytes| fill::zero(bytes, &SITE)));
    let by = |method: Method| {
        side(method.name(), {
            let sizes = &sizes;
            move |_| over(sizes, |bytes| method.zero(bytes))
        })
    };
    let (rep, stores, platform) = (by(Method::RepStos), by(Method::Stores), by(Method::Platform));
    let workload = |claim: bool| {
        let workload = Workload::new("sizes of a kernel build", vec![CString::default()]).per(calls);
        if claim { workload.claims(1.2) } else { workload }
    };
    let mut points = Vec::new();
    if Method::RepStos.available() {
        points.extend(budget.compare(workload(true), &[&rep], &chosen)?);
    }
    let others: [Variant<'_>; 2] = [&stores, &platform];
    points.extend(budget.compare(workload(false), &others, &chosen)?);
    Ok(points)
}

/// Fills of `sizes`, one after the other, each in a place of its own; how many bytes are left that are not zero.
#[inline(always)]
fn over(sizes: &[usize], zero: impl Fn(&mut [u8])) -> Value {
    let mut memory = [0x5a_u8; ROOM];
    for &size in sizes {
        zero(black_box(&mut memory[..black_box(size)]));
    }
    memory.iter().filter(|&&byte| byte != 0).count() as u64
}

/// One size, every method.
fn sized(budget: &Budget<'_>, size: usize) -> Result<Vec<Point>, Error> {
    let sizes = [size; REPEATS as usize];
    let chosen = side("chosen", |_| over(&sizes, |bytes| fill::zero(bytes, &SITE)));
    let sides: Vec<_> = [Method::RepStos, Method::Stores, Method::Platform]
        .into_iter()
        .filter(|method| method.available())
        .map(|method| side(method.name(), move |_| over(&sizes, |bytes| method.zero(bytes))))
        .collect();
    let before: Vec<Variant<'_>> = sides.iter().map(|side| -> Variant<'_> { side }).collect();
    let workload = Workload::new(format!("{size} bytes"), vec![CString::default()]).per(REPEATS);
    budget.compare(workload, &before, &chosen)
}
