//! T1: the step beyond: paths remembered whole.

use std::ffi::{CStr, CString};

use rcuwalk::{Cred, Task, Variants, Vfs, WalkMode};

use super::{Budget, Outcome, Point, Row, Workload, side, world};
use rcuwalk_measure::Error;
use rcuwalk_measure::engines::{Contender, Op, Timed, Value, each};

/// The row.
pub(super) const ROW: Row = Row {
    id: "T1",
    title: "paths remembered whole",
    published: "direct lookup with memoised prefix checks speeds up stat by 26 % and more, growing with depth, on Linux 3.14 \
                (Tsai et al., \"How to Get More Value From Your File System Directory Cache\", SOSP 2015)",
    run,
};

/// Files that are looked up once each: fewer than the table does not know before it falls asleep.
const NEW: u32 = 128;

/// The least ratio that is called "nothing slower": what two runs of one thing differ by on a shared machine.
const NOTHING_SLOWER: f64 = 0.97;

/// Whether the table asks for paths that it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Table {
    /// It does: it has known a path lately.
    Awake,
    /// It asks for one in sixty-four: of so many before it knew none.
    Asleep,
}

/// Asks for files that were never asked for before: a fresh credential asks for each of them once.
struct Scan<'a> {
    name: &'static str,
    vfs: &'a Vfs,
    files: Vec<CString>,
    /// Keeps the table awake.
    waker: Option<Waker>,
}

impl<'a> Scan<'a> {
    fn new(name: &'static str, vfs: &'a Vfs, table: Table) -> Scan<'a> {
        let waker = (table == Table::Awake).then(|| Waker::new(vfs));
        Scan { name, vfs, files: world::files(), waker }
    }

    /// Untimed, what makes all paths new, and what wakes the table.
    fn newcomer(&self) -> Task {
        self.waker.iter().for_each(Waker::wake);
        self.vfs.task(world::user())
    }
}

/// Asks for the same few paths now and then, after a change that makes the table ask for them anew. The table has seen them, so
/// it learns again that asking is worth it, and remembers no more than before.
struct Waker {
    root: Task,
    task: Task,
    paths: [CString; 4],
}

impl Waker {
    fn new(vfs: &Vfs) -> Waker {
        let waker = Waker {
            root: vfs.task(Cred::root()),
            task: vfs.task(world::user()),
            paths: [2, 3, 4, 5].map(world::deep),
        };
        // At first sight a path is only seen.
        waker.wake();
        waker
    }

    fn wake(&self) {
        for mode in [0o711, 0o755] {
            let _ = self.root.chmod(b"/directory", mode);
        }
        for path in &self.paths {
            let _ = std::hint::black_box(self.task.stat(path.to_bytes()));
        }
    }
}

impl Contender for Scan<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn batch(&self, _op: Op, _paths: &[CString], _start: usize, count: usize) -> Timed {
        (0..count).fold(Timed { nanos: 0, sum: 0 }, |all, _| {
            let task = self.newcomer();
            let one = each(&self.files, 0, self.files.len(), |path| world::stat(&task, path));
            Timed { nanos: all.nanos + one.nanos, sum: all.sum.wrapping_add(one.sum) }
        })
    }

    fn answer(&self, op: Op, _path: &CStr) -> Option<Value> {
        Some(self.batch(op, &[], 0, 1).sum)
    }
}

fn run(budget: &Budget<'_>) -> Result<Outcome, Error> {
    let trees = [
        world::tree(WalkMode::Rcu, Variants::default())?,
        world::tree(WalkMode::Direct, Variants::default())?,
    ];
    for vfs in &trees {
        world::made("/private", vfs.task(Cred::root()).mkdir(b"/private", 0o700))?;
    }
    let [before, after] = trees.each_ref().map(|vfs| vfs.task(world::user()));
    let walk = side("walk", |path| world::stat(&before, path));
    let table = side("table", |path| world::stat(&after, path));
    let mut points = Vec::new();
    for (depth, claim) in
        [(1, None), (2, None), (4, Some(1.2)), (8, Some(1.5)), (16, Some(2.0)), (32, Some(2.5))]
    {
        let workload = Workload::new(format!("stat, {depth} components"), vec![world::deep(depth)]);
        let workload = workload.claims(claim);
        points.extend(budget.compare(workload, &[&walk], &table)?);
    }
    let missing =
        Workload::new("stat of a missing name", vec![world::path("/usr/include/linux/none.h")]).claims(1.2);
    points.extend(budget.compare(missing, &[&walk], &table)?);
    let below = Workload::new("stat through ..", vec![world::path("/usr/../usr/include/linux/fs.h")]);
    points.extend(budget.compare(below.claims(1.2), &[&walk], &table)?);
    let refused =
        Workload::new("stat that is refused, which is not remembered", vec![world::path("/private/file")]);
    points.extend(budget.compare(refused.claims(NOTHING_SLOWER), &[&walk], &table)?);
    for (name, state, claim) in [
        ("stat, every path new but one in thirty-three", Table::Awake, None),
        ("stat, every path new", Table::Asleep, Some(NOTHING_SLOWER)),
    ] {
        let trees = [
            world::tree(WalkMode::Rcu, Variants::default())?,
            world::tree(WalkMode::Direct, Variants::default())?,
        ];
        let [walk, table] =
            [("walk", &trees[0]), ("table", &trees[1])].map(|(name, vfs)| Scan::new(name, vfs, state));
        let new = Workload::new(name, vec![world::path("-")]).per(NEW).claims(claim);
        points.extend(budget.compare(new, &[&walk], &table)?);
    }
    let note = format!(
        "The table is asked with one hash of the whole path, so that depth costs what its bytes cost. What is not \
         remembered is walked after having been asked for in vain. Where every path is new, one in eight is asked for in \
         vain and marked as seen, and after some hundreds of these one in sixty-four; the paths to one dentry in sixty-four are \
         marked as well; all are asked for, as long as one in some 256 was asked for before. Where every path is refused, \
         it is asked as rarely. {}",
        slower(&points)
    );
    Ok(Outcome { points, note })
}

/// Where the table costs something.
fn slower(points: &[Point]) -> String {
    let slower = points.iter().filter(|point| point.ratio < 1.0 && !point.same);
    let said: Vec<String> = slower
        .map(|point| format!("\"{}\" by {:.0} %", point.name, (1.0 / point.ratio - 1.0) * 100.0))
        .collect();
    match said[..] {
        [] => "Nothing is slower with the table than without.".to_owned(),
        _ => format!("Slower with the table than without: {}.", said.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths that the table takes in while a newcomer asks for all files a second time: those that it was asked for.
    fn asked_for(scan: &Scan<'_>) -> u64 {
        let task = scan.newcomer();
        let before = scan.vfs.stats().paths_remembered;
        for _ in 0..2 {
            each(&scan.files, 0, scan.files.len(), |path| world::stat(&task, path));
        }
        scan.vfs.stats().paths_remembered - before
    }

    #[test]
    fn new_paths_meet_a_table_that_is_awake_or_asleep_as_said() {
        for (state, all) in [(Table::Awake, true), (Table::Asleep, false)] {
            let vfs = world::tree(WalkMode::Direct, Variants::default()).unwrap();
            let scan = Scan::new("table", &vfs, state);
            // More paths than it takes to fall asleep.
            let timed = scan.batch(Op::Stat, &[], 0, 40);
            assert_eq!(Some(timed.sum), scan.answer(Op::Stat, c"-").map(|sum| sum.wrapping_mul(40)));
            let asked = asked_for(&scan);
            assert_eq!(asked > u64::from(NEW) / 2, all, "{state:?}: {asked} of {NEW}");
        }
    }

    #[test]
    fn what_is_slower_is_called_so() {
        let point = |name: &str, ratio, same| Point {
            name: name.to_owned(),
            variant: "walk",
            threads: 1,
            before: 1.0,
            after: 1.0,
            unit: "ns",
            ratio,
            spread_pct: 2.0,
            same,
            claim: None,
            scaling: None,
            check: String::new(),
            wrong: false,
        };
        assert!(slower(&[point("deep", 3.0, false), point("tie", 0.995, true)]).starts_with("Nothing"));
        let said = slower(&[point("deep", 3.0, false), point("new", 0.8, false)]);
        assert_eq!(said, "Slower with the table than without: \"new\" by 25 %.");
    }
}
