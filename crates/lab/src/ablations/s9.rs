//! S9: search permission known in advance.

use rcuwalk::{Cred, SearchCheck, Security, SecurityInode, Task, Variants, Vfs, VfsBuilder, WalkMode};

use super::{Budget, Outcome, Row, Workload, side, world};
use rcuwalk_measure::Error;
use rcuwalk_measure::engines::Contender;

/// The row.
pub(super) const ROW: Row = Row {
    id: "S9",
    title: "search permission known in advance",
    published: "stat of a path of four components on Sapphire Rapids, 3.64 to 3.80 million a second (+4 %), merged form \
                +5 %; some 90 % of the lookups of a kernel build skip the check (linux-fsdevel, \"fast permission checks \
                during path lookup\")",
    run,
};

/// A hook that has nothing against anything.
struct Consent;

impl Security for Consent {
    fn inode_permission(&self, _: &Cred, _: &SecurityInode, _: u32) -> rcuwalk::Result<()> {
        Ok(())
    }
}

fn process(builder: VfsBuilder, search: SearchCheck) -> Result<Task, Error> {
    // Without the whole-path table, which would remember the answer of either way.
    let vfs = world::tree_of(builder, WalkMode::Rcu, Variants { search, ..Variants::default() })?;
    let root = vfs.task(Cred::root());
    world::made("/directory", root.chmod(b"/directory/directory", 0o750))?;
    world::made("/directory", root.chown(b"/directory/directory", 0, 1000))?;
    Ok(vfs.task(world::user()))
}

fn run(budget: &Budget<'_>) -> Result<Outcome, Error> {
    let [always, mode, stored] = [SearchCheck::Always, SearchCheck::Mode, SearchCheck::Stored]
        .map(|search| process(Vfs::builder(), search));
    let (always, mode, stored) = (always?, mode?, stored?);
    let apart = process(Vfs::builder().fastperm(false), SearchCheck::Stored)?;
    let hooked = process(Vfs::builder().security(Box::new(Consent)), SearchCheck::Stored)?;
    let always = side("checked each time", |path| world::stat(&always, path));
    let mode = side("mode and no ACL", |path| world::stat(&mode, path));
    let stored = side("stored bit", |path| world::stat(&stored, path));
    let apart = side("not opted in", |path| world::stat(&apart, path));
    let hooked = side("bit and hook", |path| world::stat(&hooked, path));
    let before: [&dyn Contender; 2] = [&always, &mode];
    let mut points = Vec::new();
    let path = vec![world::path(world::FAVOURITE)];
    points.extend(budget.compare(
        Workload::new("stat of four components", path.clone()).claims(1.0),
        &before,
        &stored,
    )?);
    let others = Workload::new("stat of four components", path.clone());
    points.extend(budget.compare(others, &[&apart, &hooked], &stored)?);
    let chained = Workload::new("stat of four components, one after the other", path).chained();
    points.extend(budget.compare(chained, &before, &stored)?);
    let deep =
        Workload::new("stat of 16 components, one of them a group's", vec![world::deep(16)]).claims(1.0);
    points.extend(budget.compare(deep, &before, &stored)?);
    let note = "The bit lies in the dentry, which the walk reads anyway; the mode lies in the inode, its neighbour. A \
                directory that not everybody may search is checked either way, and so is every directory of a file system that \
                did not opt in. With a security hook, which is called for each component, a walk takes the general way. `rcuwalk replay` counts how often the \
                bit spares the check on a trace of a real program.";
    Ok(Outcome { points, note: note.into() })
}
