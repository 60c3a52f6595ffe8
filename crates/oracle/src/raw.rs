//! Calls as the kernel takes them: registers and memory in, a number and memory out. Whichever side makes the call, the
//! kernel or a door of the engine, is handed in.

pub(crate) mod mounts;

use crate::args::{Arg, Fd, Handle, Int, Limit, LockRange, Mem};
use crate::op::Op;
use crate::outcome::{Kind, Outcome, Stat, dirents};
use crate::sys::{Frame, Nr, nr};
use crate::words::{AtFlags, LockKind};

/// Makes the call of this number with the registers and memory of the frame: the answer, or the error number.
pub(crate) type Caller<'a> = &'a mut dyn FnMut(&mut Frame, Nr) -> Result<i64, i32>;

/// The kernel as caller.
pub(crate) fn kernel(frame: &mut Frame, number: Nr) -> Result<i64, i32> {
    frame.call(number)
}

/// Makes a call that needs nothing but the task that makes it.
pub(crate) fn plain(op: &Op, call: Caller<'_>) -> Outcome {
    match op {
        Op::Getgroups {} => getgroups(call),
        Op::Getflags { fd } => asked(nr::ioctl, fd.raw(), FS_IOC_GETFLAGS, 4, call),
        Op::Fsgetxattr { fd } => asked(nr::ioctl, fd.raw(), FS_IOC_FSGETXATTR, 4, call),
        Op::Fionread { fd } => asked(nr::ioctl, fd.raw(), FIONREAD, 4, call),
        Op::Fioqsize { fd } => asked(nr::ioctl, fd.raw(), FIOQSIZE, 8, call),
        Op::GetRwHint { fd } => asked(nr::fcntl, fd.raw(), F_GET_RW_HINT, 8, call),
        Op::GetName {} => {
            let mut frame = Frame::new();
            frame.int(libc::PR_GET_NAME as u64);
            frame.room(16);
            match call(&mut frame, nr::prctl) {
                Ok(_) => {
                    Outcome::Bytes(frame.out().split(|&byte| byte == 0).next().unwrap_or_default().to_vec())
                }
                Err(errno) => Outcome::Error(errno),
            }
        }
        Op::NameToHandleAt { dirfd, path, bytes, flags } => {
            match name_to_handle(dirfd, path, bytes.0 as u32, *flags, call) {
                Ok((len, kind, _)) => Outcome::Bytes(handle_text(len, kind)),
                Err(errno) => Outcome::Error(errno),
            }
        }
        Op::Reopen { dirfd, path, at_flags, mount, kind, flags } => {
            let reopened =
                name_to_handle(dirfd, path, MAX_HANDLE_SZ, *at_flags, call).and_then(|(_, of, bytes)| {
                    let mut frame = Frame::new();
                    mount.lower(&mut frame);
                    Handle { kind: of + kind.0 as i32, bytes, told: None }.lower(&mut frame);
                    flags.lower(&mut frame);
                    call(&mut frame, nr::open_by_handle_at)
                });
            reopened.map_or_else(Outcome::Error, |fd| Outcome::Fd(fd as i32))
        }
        Op::FileGetattr { dirfd, path, size, flags } => {
            let mut frame = Frame::new();
            dirfd.lower(&mut frame);
            path.lower(&mut frame);
            // More than any size that is not refused.
            frame.room(8192);
            [size.0 as u64, flags.0].into_iter().for_each(|word| frame.int(word));
            match call(&mut frame, nr::file_getattr) {
                Ok(_) => Outcome::Number(half_pair(frame.out()) as i64),
                Err(errno) => Outcome::Error(errno),
            }
        }
        Op::Getlk { fd, command, lock } => getlk(fd.raw(), command.0, lock, call),
        Op::Statfs { path, space } => statfs(nr::statfs, |frame| path.lower(frame), *space, call),
        Op::Fstatfs { fd, space } => statfs(nr::fstatfs, |frame| fd.lower(frame), *space, call),
        Op::Statmount { .. } | Op::Listmount { .. } => {
            mounts::perform(op, &mut |ask| mounts::asked(ask, call))
        }
        Op::Setrlimit { resource, soft, hard } => {
            setrlimit(resource.0, soft.0.unwrap_or_default(), hard.0, call)
        }
        Op::Getrlimit { resource } => getrlimit(resource.0, call),
        op => once(op, call),
    }
}

/// Makes a call that is one system call.
fn once(op: &Op, call: Caller<'_>) -> Outcome {
    let mut frame = Frame::new();
    let Some(number) = op.lower(&mut frame) else {
        return Outcome::Broken(format!("`{}` is not for a task", op.name()));
    };
    match call(&mut frame, number) {
        Ok(ret) => decode(op, ret, frame.out()),
        Err(errno) => Outcome::Error(errno),
    }
}

/// The answer of a successful call.
fn decode(op: &Op, ret: i64, out: &[u8]) -> Outcome {
    match op.kind() {
        Kind::Done => Outcome::Done,
        Kind::Number => Outcome::Number(ret),
        Kind::Fd => Outcome::Fd(ret as i32),
        Kind::Stat => Outcome::Stat(Box::new(Stat::from_stat(out))),
        Kind::Statx => Outcome::Stat(Box::new(Stat::from_statx(out))),
        // The length alone was asked for.
        Kind::Bytes | Kind::Names if room_of(op) == Some(0) => Outcome::Number(ret),
        Kind::Bytes => {
            let mut bytes = out[..(ret as usize).min(out.len())].to_vec();
            if matches!(op, Op::Getcwd { .. }) {
                bytes.pop();
            }
            Outcome::Bytes(bytes)
        }
        Kind::Names => {
            let bytes = &out[..(ret as usize).min(out.len())];
            Outcome::Names(bytes.split_inclusive(|b| *b == 0).map(|n| n[..n.len() - 1].to_vec()).collect())
        }
        Kind::Entries => Outcome::Entries(dirents(&out[..ret as usize])),
        Kind::Ids => Outcome::Ids(out.chunks_exact(4).map(word).collect()),
        Kind::Caps => {
            let words: Vec<u64> = out.chunks_exact(4).map(|b| u64::from(word(b))).collect();
            Outcome::Caps([words[0] | words[3] << 32, words[1] | words[4] << 32, words[2] | words[5] << 32])
        }
        Kind::Exec => Outcome::Broken("execve returned".to_owned()),
    }
}

fn word(b: &[u8]) -> u32 {
    u32::from_ne_bytes([b[0], b[1], b[2], b[3]])
}

/// The room a call of kind bytes or names was given.
fn room_of(op: &Op) -> Option<i64> {
    Some(match op {
        Op::Getxattr { room, .. }
        | Op::Lgetxattr { room, .. }
        | Op::Fgetxattr { room, .. }
        | Op::Listxattr { room, .. }
        | Op::Llistxattr { room, .. }
        | Op::Flistxattr { room, .. }
        | Op::Listxattrat { room, .. } => room.size,
        Op::Getxattrat { args, .. } => i64::from(args.size),
        _ => return None,
    })
}

/// fcntl(2) `F_GETLK`.
fn getlk(fd: i32, command: u64, lock: &LockRange, call: Caller<'_>) -> Outcome {
    let mut frame = Frame::new();
    frame.int(i64::from(fd) as u64);
    frame.int(command);
    frame.room(32);
    frame.fill(&lock.bytes());
    match call(&mut frame, nr::fcntl) {
        Ok(_) => {
            let out = frame.out();
            let [start, len] = [8, 16].map(|at| half_pair(&out[at..]) as i64);
            let kind = u16::from_ne_bytes([out[0], out[1]]);
            Outcome::Bytes(lock_text(u64::from(kind), start, len, word(&out[24..28]) == u32::MAX))
        }
        Err(errno) => Outcome::Error(errno),
    }
}

fn half_pair(b: &[u8]) -> u64 {
    u64::from(word(&b[..4])) | u64::from(word(&b[4..8])) << 32
}

/// A lock as `getlk` answers it.
pub(crate) fn lock_text(kind: u64, start: i64, len: i64, ofd: bool) -> Vec<u8> {
    let kind_name = LockKind::NAMES.iter().find(|(_, value)| *value == kind).map_or("?", |(name, _)| name);
    match kind_name {
        "F_UNLCK" => kind_name.to_owned(),
        _ => format!("{kind_name} {start} {len}{}", if ofd { " ofd" } else { "" }),
    }
    .into_bytes()
}

/// statfs(2), fstatfs(2).
fn statfs(number: Nr, what: impl FnOnce(&mut Frame), space: Int, call: Caller<'_>) -> Outcome {
    let mut frame = Frame::new();
    what(&mut frame);
    frame.room(120);
    match call(&mut frame, number) {
        Ok(_) => {
            let out = frame.out();
            let word = |at: usize| half_pair(&out[8 * at..]);
            let what = [word(0), word(1), word(8), word(10)];
            Outcome::Bytes(statfs_text(what, [word(2), word(3), word(5), word(6)], space))
        }
        Err(errno) => Outcome::Error(errno),
    }
}

/// What `statfs` answers: type, block size, longest name and flags; or blocks and free ones; or inodes and free ones.
pub(crate) fn statfs_text(what: [u64; 4], room: [u64; 4], space: Int) -> Vec<u8> {
    let [kind, bsize, namelen, flags] = what;
    let [blocks, bfree, files, ffree] = room;
    match space.0 {
        0 => format!("type={kind:#x} bsize={bsize} namelen={namelen} flags={flags:#x}"),
        1 => format!("blocks={blocks} bfree={bfree}"),
        _ => format!("files={files} ffree={ffree}"),
    }
    .into_bytes()
}

/// The most bytes that a handle has.
const MAX_HANDLE_SZ: u32 = 128;

/// name_to_handle_at(2) with room for so many bytes: how many there are, the type, the bytes.
fn name_to_handle(
    dirfd: &Fd,
    path: &Mem,
    room: u32,
    flags: AtFlags,
    call: Caller<'_>,
) -> Result<(u32, i32, Vec<u8>), i32> {
    let mut frame = Frame::new();
    dirfd.lower(&mut frame);
    path.lower(&mut frame);
    // The number of the mount lies behind the handle.
    const MOUNT: usize = 8 + 2 * MAX_HANDLE_SZ as usize;
    frame.room(MOUNT + 8);
    frame.fill(&room.to_ne_bytes());
    frame.room_at(MOUNT);
    flags.lower(&mut frame);
    call(&mut frame, nr::name_to_handle_at)?;
    let (len, kind) = (word(&frame.out()[..4]), word(&frame.out()[4..8]) as i32);
    Ok((len, kind, frame.out()[8..8 + (len.min(MAX_HANDLE_SZ) as usize)].to_vec()))
}

/// A handle as `name_to_handle_at` answers it.
pub(crate) fn handle_text(len: u32, kind: i32) -> Vec<u8> {
    format!("type={kind} bytes={len}").into_bytes()
}

const FS_IOC_GETFLAGS: u64 = 0x8008_6601;
const FS_IOC_FSGETXATTR: u64 = 0x801c_581f;
const FIONREAD: u64 = 0x541b;
const FIOQSIZE: u64 = 0x5460;
const F_GET_RW_HINT: u64 = 1035;

/// What ioctl(2) or fcntl(2) stores for this command: a number of 4 bytes, which may be negative, or of 8.
fn asked(number: Nr, fd: i32, command: u64, bytes: usize, call: Caller<'_>) -> Outcome {
    let mut frame = Frame::new();
    frame.int(i64::from(fd) as u64);
    frame.int(command);
    // As much as any of them stores.
    frame.room(32);
    match call(&mut frame, number) {
        Ok(_) if bytes == 4 => Outcome::Number(i64::from(word(&frame.out()[..4]) as i32)),
        Ok(_) => Outcome::Number(half_pair(frame.out()) as i64),
        Err(errno) => Outcome::Error(errno),
    }
}

/// getgroups(2), with room for as many as there can be.
fn getgroups(call: Caller<'_>) -> Outcome {
    const MOST: u64 = 65536;
    let mut frame = Frame::new();
    frame.int(MOST);
    frame.room(MOST as usize * 4);
    match call(&mut frame, nr::getgroups) {
        Ok(n) => Outcome::Ids(frame.out().chunks_exact(4).take(n as usize).map(word).collect()),
        Err(errno) => Outcome::Error(errno),
    }
}

/// setrlimit(2).
fn setrlimit(resource: u64, soft: u64, hard: Option<u64>, call: Caller<'_>) -> Outcome {
    let set = match hard {
        None => set_soft_limit(resource, soft, call).map(drop),
        Some(hard) => {
            let mut frame = Frame::new();
            frame.int(resource);
            frame.bytes(&[soft.to_ne_bytes(), hard.to_ne_bytes()].concat());
            call(&mut frame, nr::setrlimit).map(drop)
        }
    };
    set.map_or_else(Outcome::Error, |()| Outcome::Done)
}

/// getrlimit(2).
fn getrlimit(resource: u64, call: Caller<'_>) -> Outcome {
    let mut frame = Frame::new();
    frame.int(resource);
    frame.room(16);
    match call(&mut frame, nr::getrlimit) {
        Ok(_) => Outcome::Bytes(limit_text([0, 8].map(|at| half_pair(&frame.out()[at..])))),
        Err(errno) => Outcome::Error(errno),
    }
}

/// Limits as `getrlimit` answers them.
pub(crate) fn limit_text(limits: [u64; 2]) -> Vec<u8> {
    limits.map(|limit| Limit(Some(limit)).print().replace('"', "")).join(" ").into_bytes()
}

/// Sets the soft limit of a resource and keeps the hard one; the old soft limit.
pub(crate) fn set_soft_limit(resource: u64, soft: u64, call: Caller<'_>) -> Result<u64, i32> {
    let mut frame = Frame::new();
    frame.int(0);
    frame.int(resource);
    frame.null();
    frame.room(16);
    call(&mut frame, nr::prlimit64)?;
    let old = frame.out();
    let half = |b: &[u8]| u64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
    let (old_soft, hard) = (half(&old[..8]), half(&old[8..16]));
    let mut frame = Frame::new();
    frame.int(0);
    frame.int(resource);
    frame.bytes(&[soft.min(hard).to_ne_bytes(), hard.to_ne_bytes()].concat());
    frame.null();
    call(&mut frame, nr::prlimit64)?;
    Ok(old_soft)
}
