//! Mounts and namespaces on the engine.

use rcuwalk::errno::Result;
use rcuwalk::userns::{IdExtent, UserNamespace};
use rcuwalk::{MountAttr, ProcFile, Task};

use super::{answer, bytes, done};
use crate::args;
use crate::args::IdMap;
use crate::op::Op;
use crate::outcome::Outcome;
use crate::words;

/// Makes a call, if it is one of these.
pub(super) fn perform(task: &mut Task, op: &Op) -> Option<Outcome> {
    Some(match op {
        Op::Mount { source, target, fstype, flags, data } => {
            done(task.mount(bytes(source), bytes(target), bytes(fstype), flags.0, bytes(data)))
        }
        Op::Umount2 { target, flags } => done(task.umount2(bytes(target), flags.0 as i32)),
        Op::MountSetattr { dirfd, path, flags, attr } => {
            let attr = mount_attr(task, attr);
            done(task.mount_setattr(dirfd.raw(), bytes(path), flags.0 as i32, &attr))
        }
        Op::OpenTree { dirfd, path, flags } => {
            answer(task.open_tree(dirfd.raw(), bytes(path), flags.0 as i32), Outcome::Fd)
        }
        Op::OpenTreeAttr { dirfd, path, flags, attr } => {
            let attr = mount_attr(task, attr);
            answer(task.open_tree_attr(dirfd.raw(), bytes(path), flags.0 as i32, &attr), Outcome::Fd)
        }
        Op::MoveMount { from_dirfd, from, to_dirfd, to, flags } => {
            let (from_fd, to_fd) = (from_dirfd.raw(), to_dirfd.raw());
            done(task.move_mount(from_fd, bytes(from), to_fd, bytes(to), flags.0 as u32))
        }
        Op::PivotRoot { new_root, put_old } => done(task.pivot_root(bytes(new_root), bytes(put_old))),
        Op::Unshare { flags } => done(task.unshare(flags.0)),
        Op::MapIds { uid_map, gid_map } => done(map_ids(task.cred().user_ns(), uid_map, gid_map)),
        Op::OpenUserns { uid_map, gid_map } => answer(open_userns(task, uid_map, gid_map), Outcome::Fd),
        Op::Setns { fd, nstype } => done(task.setns(fd.raw(), nstype.0 as i32)),
        _ => return None,
    })
}

fn extents(map: &IdMap) -> Vec<IdExtent> {
    map.0.iter().map(|&(first, lower, count)| IdExtent { first, lower, count }).collect()
}

pub(crate) fn map_ids(ns: &UserNamespace, uid_map: &IdMap, gid_map: &IdMap) -> Result<()> {
    ns.set_uid_map(&extents(uid_map))?;
    ns.set_gid_map(&extents(gid_map))
}

/// A descriptor of a new namespace.
fn open_userns(task: &Task, uid_map: &IdMap, gid_map: &IdMap) -> Result<i32> {
    let ns = UserNamespace::new_child(&UserNamespace::init(), 0, 0, true)?;
    map_ids(&ns, uid_map, gid_map)?;
    task.open_user_ns(&ns)
}

pub(crate) fn proc_file(file: words::ProcFile) -> ProcFile {
    match file.0 {
        0 => ProcFile::UserNs,
        1 => ProcFile::MntNs,
        2 => ProcFile::UidMap,
        3 => ProcFile::GidMap,
        _ => ProcFile::Setgroups,
    }
}

fn mount_attr(task: &Task, attr: &args::MountAttr) -> MountAttr {
    let userns = task.user_ns_of(attr.userns.raw());
    MountAttr::default()
        .with_set(attr.set.0)
        .with_clr(attr.clr.0)
        .with_propagation(attr.propagation.0)
        .with_userns(userns)
}
