//! S1: access(2) without a credential of its own.

use std::ffi::CString;

use rcuwalk::uapi::R_OK;
use rcuwalk::{Errno, Variants, WalkMode};

use super::{Budget, Outcome, Row, Workload, side, world};
use rcuwalk_measure::Error;
use rcuwalk_measure::engines::unit_value;

/// The row.
pub(super) const ROW: Row = Row {
    id: "S1",
    title: "access without credential copies",
    published: "will-it-scale on Cascade Lake: access1 (a file each) 2.2 times at one thread and 13.5 times at 24, access2 \
                (one file) 2.3 times at 24 (linux-kernel, \"access(2) regressions in current mainline\")",
    run,
};

fn run(budget: &Budget<'_>) -> Result<Outcome, Error> {
    let copy = Variants { cred_copy: true, ..Variants::default() };
    let before = world::tree(WalkMode::Direct, copy)?.task(world::user());
    let after = world::tree(WalkMode::Direct, Variants::default())?.task(world::user());
    let copying = side("cred-copy", |path| unit_value(before.access(path.to_bytes(), R_OK), Errno::raw));
    let proving =
        side("override only when needed", |path| unit_value(after.access(path.to_bytes(), R_OK), Errno::raw));
    let files = world::files();
    let own: Vec<Vec<CString>> = files.iter().map(|file| vec![file.clone()]).collect();
    let mut points = Vec::new();
    for threads in budget.thread_counts() {
        for (name, lists) in [("access1, a file each", &own[..]), ("access2, one file", &own[..1])] {
            let workload = Workload::new(name, Vec::new()).threads(threads, lists.to_vec()).claims(2.0);
            points.extend(budget.compare(workload, &[&copying], &proving)?);
        }
    }
    let note = "Both sides walk the same tree as the same user. The copy takes references to the groups and the user \
                namespace, which all threads share, as the kernel's does: that is what keeps it from scaling. Here an \
                allocation is freed at once; the kernel's waits for a grace period.";
    Ok(Outcome { points, note: note.into() })
}
