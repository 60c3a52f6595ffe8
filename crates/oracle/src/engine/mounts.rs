//! Mounts and namespaces on the engine.

use std::collections::HashMap;
use std::sync::Arc;

use rcuwalk::errno::{Errno, Result};
use rcuwalk::userns::{IdExtent, UserNamespace};
use rcuwalk::{MountAttr, Task, uapi};

use super::{answer, bytes, done};
use crate::args;
use crate::args::{Fd, IdMap};
use crate::backend::TaskId;
use crate::op::Op;
use crate::outcome::Outcome;

/// The user namespaces that descriptors of tasks stand for. The engine has no descriptors of its own for them.
pub(super) type Namespaces = HashMap<(TaskId, i32), Arc<UserNamespace>>;

/// Makes a call, if it is one of these.
pub(super) fn perform(task: &mut Task, id: TaskId, namespaces: &mut Namespaces, op: &Op) -> Option<Outcome> {
    Some(match op {
        Op::Mount { source, target, fstype, flags, data } => {
            done(task.mount(bytes(source), bytes(target), bytes(fstype), flags.0, bytes(data)))
        }
        Op::Umount2 { target, flags } => done(task.umount2(bytes(target), flags.0 as i32)),
        Op::MountSetattr { dirfd, path, flags, attr } => {
            let attr = mount_attr(task, id, namespaces, attr);
            done(task.mount_setattr(dirfd.raw(), bytes(path), flags.0 as i32, &attr))
        }
        Op::OpenTree { dirfd, path, flags } => {
            answer(task.open_tree(dirfd.raw(), bytes(path), flags.0 as i32), Outcome::Fd)
        }
        Op::MoveMount { from_dirfd, from, to_dirfd, to, flags } => {
            let (from_fd, to_fd) = (from_dirfd.raw(), to_dirfd.raw());
            done(task.move_mount(from_fd, bytes(from), to_fd, bytes(to), flags.0 as u32))
        }
        Op::PivotRoot { new_root, put_old } => done(task.pivot_root(bytes(new_root), bytes(put_old))),
        Op::Unshare { flags } => done(task.unshare(flags.0)),
        Op::MapIds { uid_map, gid_map } => done(map_ids(task.cred().user_ns(), uid_map, gid_map)),
        Op::OpenUserns { uid_map, gid_map } => {
            let opened = open_userns(task, uid_map, gid_map).map(|(fd, ns)| {
                namespaces.insert((id, fd), ns);
                fd
            });
            answer(opened, Outcome::Fd)
        }
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

/// A namespace, and a descriptor that stands for it.
fn open_userns(task: &Task, uid_map: &IdMap, gid_map: &IdMap) -> Result<(i32, Arc<UserNamespace>)> {
    let ns = UserNamespace::new_child(&UserNamespace::init(), 0, 0, true)?;
    map_ids(&ns, uid_map, gid_map)?;
    Ok((task.open(b"/", uapi::O_PATH, 0)?, ns))
}

/// Whether `fd` is no open file: not open, or open with `O_PATH`.
fn is_path_or_closed(task: &Task, fd: i32) -> bool {
    task.fcntl(fd, uapi::F_GETFL, 0).map_or(true, |flags| flags & uapi::O_PATH != 0)
}

fn mount_attr(task: &Task, id: TaskId, namespaces: &Namespaces, attr: &args::MountAttr) -> MountAttr {
    let fd = Fd::raw(&attr.userns);
    let userns = match namespaces.get(&(id, fd)) {
        Some(ns) if task.fstat(fd).is_ok() => Ok(Arc::clone(ns)),
        _ if is_path_or_closed(task, fd) => Err(Errno::EBADF),
        _ => Err(Errno::EINVAL),
    };
    MountAttr { set: attr.set.0, clr: attr.clr.0, propagation: attr.propagation.0, userns }
}
