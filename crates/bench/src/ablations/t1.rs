//! T1: the step beyond: paths remembered whole.

use std::ffi::CString;

use rcuwalk::{Task, Variants, Vfs, WalkMode};

use super::{Budget, Outcome, Row, Workload, side, world};
use crate::engines::Value;
use crate::error::Error;

/// The row.
pub(super) const ROW: Row = Row {
    id: "T1",
    title: "paths remembered whole",
    published: "direct lookup with memoised prefix checks speeds up stat by 26 % and more, growing with depth, on Linux 3.14 \
                (Tsai et al., \"How to Get More Value From Your File System Directory Cache\", SOSP 2015)",
    run,
};

/// Paths that are looked up once each in one call.
const NEW: u32 = 128;

fn run(budget: &Budget<'_>) -> Result<Outcome, Error> {
    let trees = [
        world::tree(WalkMode::Rcu, Variants::default())?,
        world::tree(WalkMode::Direct, Variants::default())?,
    ];
    let [before, after] = trees.each_ref().map(|vfs| vfs.task(world::user()));
    let walk = side("walk", |path| world::stat(&before, path));
    let table = side("table", |path| world::stat(&after, path));
    let mut points = Vec::new();
    for (depth, claim) in
        [(1, None), (2, None), (4, Some(1.2)), (8, Some(1.5)), (16, Some(2.0)), (32, Some(2.5))]
    {
        let workload = Workload::new(format!("stat, {depth} components"), vec![world::deep(depth)]);
        let workload = match claim {
            Some(least) => workload.claims(least),
            None => workload,
        };
        points.extend(budget.compare(workload, &[&walk], &table)?);
    }
    let missing =
        Workload::new("stat of a missing name", vec![world::path("/usr/include/linux/none.h")]).claims(1.2);
    points.extend(budget.compare(missing, &[&walk], &table)?);
    let below = Workload::new(
        "stat through .., which is not remembered",
        vec![world::path("/usr/../usr/include/linux/fs.h")],
    );
    points.extend(budget.compare(below, &[&walk], &table)?);

    // A credential of its own makes every path new.
    let files: Vec<CString> = world::files();
    let scan = |vfs: &Vfs| -> Value {
        let task: Task = vfs.task(world::user());
        files.iter().fold(0, |sum: Value, file| sum.wrapping_add(world::stat(&task, file)))
    };
    let walk = side("walk", |_| scan(&trees[0]));
    let table = side("table", |_| scan(&trees[1]));
    let new = Workload::new("stat, every path new", vec![world::path("-")]).per(NEW).claims(0.9);
    points.extend(budget.compare(new, &[&walk], &table)?);
    let note = "The table is asked with one hash of the whole path, so that depth costs what its bytes cost. Paths with `..` \
                are walked after having been asked for in vain. Where every path is new, the table is \
                asked for one in thirty-two.";
    Ok(Outcome { points, note: note.into() })
}
