//! Mounts and namespaces on the engine.

use rcuwalk::errno::Result;
use rcuwalk::uapi::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, STATX_MNT_ID_UNIQUE};
use rcuwalk::userns::{IdExtent, UserNamespace};
use rcuwalk::{MntIdReq, MountAttr, ProcFile, Task};

use super::{answer, bytes, done};
use crate::args;
use crate::args::IdMap;
use crate::op::Op;
use crate::outcome::Outcome;
use crate::raw;
use crate::raw::mounts::{Ask, Request};
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
        Op::Statmount { .. } | Op::Listmount { .. } => {
            raw::mounts::perform(op, &mut |ask| asked(task, ask).map_err(rcuwalk::Errno::raw))
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

/// Asks about mounts.
fn asked(task: &Task, ask: Ask<'_>) -> Result<Vec<u8>> {
    let of = |request: Request| {
        let fd = (request.ns_fd != 0).then_some(request.ns_fd);
        MntIdReq::from(request.id).with_mnt_ns_id(request.ns_id).with_mnt_ns_fd(fd)
    };
    match ask {
        Ask::Id { dirfd, path } => {
            let flags = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
            let stat = task.statx(dirfd.raw(), bytes(path), flags, STATX_MNT_ID_UNIQUE)?;
            Ok(stat.mnt_id.to_ne_bytes().to_vec())
        }
        // A call that asks for text has an empty one in front, and counts it.
        Ask::Stat { request, mask, .. } => {
            let mut out = task.statmount(of(request), mask)?.to_bytes();
            if out.len() == 512 && mask & TEXT != 0 {
                out.push(0);
                out[..4].copy_from_slice(&513_u32.to_ne_bytes());
            }
            Ok(out)
        }
        Ask::List { request, last, room, flags } => {
            let mut ids = vec![0; room.min(1_000_001)];
            let n = task.listmount(of(request), last, &mut ids, flags as u32)?;
            Ok(ids[..n].iter().flat_map(|id| id.to_ne_bytes()).collect())
        }
    }
}

/// What of statmount's mask asks for text.
const TEXT: u64 = 0x6fb8;
