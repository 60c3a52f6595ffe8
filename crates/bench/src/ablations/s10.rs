//! S10: walks that write nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use rcuwalk::{Cred, Task, Variants, WalkMode};

use super::{Budget, Outcome, Point, Row, Workload, side, world};
use crate::error::Error;

/// The row.
pub(super) const ROW: Row = Row {
    id: "S10",
    title: "walks without references",
    published: "a walk that takes references writes shared cache lines at every component; walks validated by sequence \
                counts write none (linux-fsdevel, all three threads on path lookup take it for granted)",
    run,
};

/// A directory that is renamed back and forth, beside the paths that are looked up, until it is told to stop.
fn storm(root: &Task, stop: &AtomicBool) {
    // Relaxed: it says only when.
    while !stop.load(Ordering::Relaxed) {
        let _ = root.rename(b"/storm/a", b"/storm/b");
        let _ = root.rename(b"/storm/b", b"/storm/a");
    }
}

fn run(budget: &Budget<'_>) -> Result<Outcome, Error> {
    let trees = [
        world::tree(WalkMode::RefOnly, Variants::default())?,
        world::tree(WalkMode::Rcu, Variants::default())?,
    ];
    for vfs in &trees {
        let root = vfs.task(Cred::root());
        world::made("/storm", root.mkdir(b"/storm", 0o755))?;
        world::made("/storm/a", root.mkdir(b"/storm/a", 0o755))?;
    }
    let [before, after] = trees.each_ref().map(|vfs| vfs.task(world::user()));
    let holding = side("REF-walk", |path| world::stat(&before, path));
    let lockless = side("RCU-walk", |path| world::stat(&after, path));
    let path = || vec![world::path(world::FAVOURITE)];
    let mut points = Vec::new();
    for threads in budget.thread_counts() {
        let workload =
            Workload::new("stat of one file", Vec::new()).threads(threads, vec![path()]).claims(1.5);
        points.extend(budget.compare(workload, &[&holding], &lockless)?);
    }
    points.extend(budget.compare(
        Workload::new("stat of 16 components", vec![world::deep(16)]).claims(1.5),
        &[&holding],
        &lockless,
    )?);
    let stop = AtomicBool::new(false);
    let stormy: Result<Vec<Point>, Error> = std::thread::scope(|scope| {
        for vfs in &trees {
            let (root, stop) = (vfs.task(Cred::root()), &stop);
            scope.spawn(move || storm(&root, stop));
        }
        let stormy = |threads| {
            let name = "stat of one file, while directories are renamed";
            let workload = Workload::new(name, Vec::new()).threads(threads, vec![path()]).claims(1.0);
            budget.compare(workload, &[&holding], &lockless)
        };
        let measured: Result<Vec<Vec<Point>>, Error> =
            budget.thread_counts().into_iter().map(stormy).collect();
        stop.store(true, Ordering::Relaxed);
        measured.map(|points| points.concat())
    });
    points.extend(stormy?);
    let bails: u64 = trees[1].stats().bails.iter().map(|(_, n)| n).sum();
    let note = format!(
        "Both walks run without the whole-path table. In the storm, one thread for each tree renames a directory beside the \
         path without pause; {bails} lockless walks gave up in all and were made again holding references."
    );
    Ok(Outcome { points, note })
}
