//! S10: walks that write nothing.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rcuwalk::uapi::{AT_FDCWD, RENAME_EXCHANGE};
use rcuwalk::{Cred, Task, Variants, Vfs, WalkMode};

use super::{Budget, Outcome, Point, Row, Workload, side, world};
use rcuwalk_measure::Error;
use rcuwalk_measure::engines::{Value, error_value};

/// The row.
pub(super) const ROW: Row = Row {
    id: "S10",
    title: "walks without references",
    published: "a walk that takes references writes shared cache lines at every component; walks validated by sequence \
                counts write none (linux-fsdevel, all three threads on path lookup take it for granted)",
    run,
};

/// Two directories that a storm exchanges, and what both have in them.
const TWINS: [&str; 2] = ["/storm/left", "/storm/right"];
const IN_BOTH: &str = "directory/file";

/// A directory that a storm renames back and forth, beside all paths.
const BESIDE: [&str; 2] = ["/storm/a", "/storm/b"];

/// A tree with what storms need, and the inodes of the two files that a path through the twins may lead to.
struct Tree {
    vfs: Vfs,
    files: [u64; 2],
}

impl Tree {
    fn new(mode: WalkMode) -> Result<Tree, Error> {
        let vfs = world::tree(mode, Variants::default())?;
        let root = vfs.task(Cred::root());
        for dir in ["/storm", BESIDE[0], TWINS[0], TWINS[1]] {
            world::made(dir, root.mkdir(dir.as_bytes(), 0o755))?;
        }
        let mut files = [0; 2];
        for (file, twin) in files.iter_mut().zip(TWINS) {
            let dir = format!("{twin}/directory");
            world::made(&dir, root.mkdir(dir.as_bytes(), 0o755))?;
            let path = format!("{twin}/{IN_BOTH}");
            world::put(&root, &path, b"", 0o644)?;
            *file = world::made(&path, root.stat(path.as_bytes()))?.ino;
        }
        Ok(Tree { vfs, files })
    }

    /// Lockless walks that gave up so far, and were made again holding references.
    fn given_up(&self) -> u64 {
        self.vfs.stats().bails.iter().map(|(_, n)| n).sum()
    }

    /// 1 for a file that a path through the twins leads to at one moment or another.
    fn either(&self, task: &Task, path: &CStr) -> Value {
        match task.stat(path.to_bytes()) {
            Ok(stat) => Value::from(self.files.contains(&stat.ino)),
            Err(errno) => error_value(errno.raw()),
        }
    }
}

/// What a storm does to a tree, over and over.
type Change = fn(&Task) -> rcuwalk::Result<()>;

/// A directory beside what is looked up gets another name, and back.
fn beside(root: &Task) -> rcuwalk::Result<()> {
    let [one, other] = BESIDE.map(str::as_bytes);
    root.rename(one, other).and_then(|()| root.rename(other, one))
}

/// Two directories on the way to what is looked up are exchanged: each path through them leads on, to another file.
fn exchange(root: &Task) -> rcuwalk::Result<()> {
    let [one, other] = TWINS.map(str::as_bytes);
    root.renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE)
}

/// Runs `work` while a thread changes all trees in turns without pause; and how often it changed each.
fn under_storm<T>(trees: &[&Tree], change: Change, work: impl FnOnce() -> T) -> (T, u64) {
    let (stop, changes) = (AtomicBool::new(false), AtomicU64::new(0));
    let done = std::thread::scope(|scope| {
        let roots: Vec<Task> = trees.iter().map(|tree| tree.vfs.task(Cred::root())).collect();
        let (stop, changes) = (&stop, &changes);
        scope.spawn(move || {
            // Relaxed: it says only when.
            while !stop.load(Ordering::Relaxed) {
                let done = roots.iter().all(|root| change(root).is_ok());
                changes.fetch_add(u64::from(done), Ordering::Relaxed);
            }
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        done
    });
    (done, changes.into_inner())
}

fn run(budget: &Budget<'_>) -> Result<Outcome, Error> {
    let [held, rcu, direct] =
        [Tree::new(WalkMode::RefOnly)?, Tree::new(WalkMode::Rcu)?, Tree::new(WalkMode::Direct)?];
    let [holder, walker, asker] = [&held, &rcu, &direct].map(|tree| tree.vfs.task(world::user()));
    let holding = side("REF-walk", |path| world::stat(&holder, path));
    let lockless = side("RCU-walk", |path| world::stat(&walker, path));
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
    let each_count = |work: &dyn Fn(usize) -> Result<Vec<Point>, Error>| {
        budget.thread_counts().into_iter().map(work).collect::<Result<Vec<_>, _>>().map(|all| all.concat())
    };
    let (stormy, _) = under_storm(&[&held, &rcu], beside, || {
        each_count(&|threads| {
            let name = "stat of one file, while a directory beside it is renamed";
            let workload = Workload::new(name, Vec::new()).threads(threads, vec![path()]).claims(1.0);
            budget.compare(workload, &[&holding], &lockless)
        })
    });
    points.extend(stormy?);

    let through = || vec![world::path(&format!("{}/{IN_BOTH}", TWINS[0]))];
    let holding = side("REF-walk", |path| held.either(&holder, path));
    let lockless = side("RCU-walk", |path| rcu.either(&walker, path));
    let table = side("RCU-walk with the table", |path| direct.either(&asker, path));
    let before = [rcu.given_up(), direct.given_up(), direct.vfs.stats().paths_remembered];
    let (stormy, changes) = under_storm(&[&held, &rcu, &direct], exchange, || {
        each_count(&|threads| {
            let of = |name: &str| Workload::new(name, Vec::new()).threads(threads, vec![through()]);
            let name = "stat through directories that are exchanged";
            let mut points = budget.compare(of(name).claims(1.0), &[&holding], &lockless)?;
            let name = "stat through directories that are exchanged, with the table";
            points.extend(budget.compare(of(name).claims(1.0), &[&holding], &table)?);
            Ok(points)
        })
    });
    points.extend(stormy?);
    let after = [rcu.given_up(), direct.given_up(), direct.vfs.stats().paths_remembered];
    let [walks, asked, remembered] = [0, 1, 2].map(|i| after[i] - before[i]);
    let note = format!(
        "Both walks run without the whole-path table unless it is named. A storm is one thread that changes all trees in \
         turns without pause. A path through directories that are exchanged leads to one file or the other, and each is a \
         right answer. Meanwhile they were exchanged {changes} times; {walks} lockless walks gave up and were made again \
         holding references, and {asked} of those that asked the table first. Each exchange outdates all that the table \
         knows; it took paths in again {remembered} times."
    );
    Ok(Outcome { points, note })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_disturbs_walks_through_it_and_either_file_is_an_answer() {
        for mode in [WalkMode::Rcu, WalkMode::Direct] {
            let tree = Tree::new(mode).unwrap();
            let task = tree.vfs.task(world::user());
            let paths = TWINS.map(|twin| world::path(&format!("{twin}/{IN_BOTH}")));
            assert_eq!(paths.each_ref().map(|path| tree.either(&task, path)), [1, 1]);
            assert_eq!(tree.either(&task, c"/storm/left"), 0, "another file is none of both");
            let before = tree.given_up();
            let (asked, changes) = under_storm(&[&tree], exchange, || {
                let patience = std::time::Instant::now() + std::time::Duration::from_secs(30);
                let mut asked = 0_u64;
                while tree.given_up() == before && std::time::Instant::now() < patience {
                    for path in &paths {
                        (0..1000).for_each(|_| assert_eq!(tree.either(&task, path), 1));
                    }
                    asked += 1;
                }
                asked
            });
            assert!(
                tree.given_up() > before,
                "{mode:?}: no walk of {asked} × 2000 met one of {changes} exchanges"
            );
        }
    }
}
