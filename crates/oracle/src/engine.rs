//! rcuwalk's engine as a backend: the typed interface of [`rcuwalk::Task`], RCU-walk allowed or forbidden.

use std::collections::BTreeSet;
use std::io::{IoSlice, IoSliceMut};

use rcuwalk::cred::{CapSet as EngineCaps, Cred};
use rcuwalk::errno::{Errno, Result};
use rcuwalk::perm::Protected;
use rcuwalk::{
    CapData, CloneFlags, FileHandle, OpenHow, PathTableOptions, Rlimit, Sysctl, Task, Timespec, Vfs,
    WalkMode, uapi,
};

use crate::args::{Attributes, Fd, Int, LockRange, Mem, Pieces, Room, Rooms, Times};
use crate::backend::{Backend, TaskId, World};
use crate::case::Case;
use crate::identity::Identity;
use crate::need::Need;
use crate::op::Op;
use crate::outcome::{Outcome, Stat, StatxExtra, Time, dirents};
use crate::raw;
use crate::words::{CapSet, Mode, ProcFile};

pub(crate) mod exec;
pub(crate) mod mounts;

/// The engine.
#[derive(Clone, Debug)]
pub struct Engine {
    mode: WalkMode,
    protected: Protected,
    lacking: BTreeSet<Need>,
}

/// What the engine does not offer yet. Rows that need it are skipped by name; the list is what remains to be done.
pub const UNSUPPORTED: &[(Need, &str)] =
    &[(Need::Memory, "the typed interface takes slices, not addresses"), (Need::Proc, PROC)];

/// Names the engine of this process can hold; a row's world is small.
const OBJECTS: u32 = 1 << 16;

impl Engine {
    /// The engine; `ref_only` forbids RCU-walk and the whole-path table. Rows that need any of `without` are declined as well.
    ///
    /// # Errors
    ///
    /// If the engine cannot be made.
    pub fn new(ref_only: bool, without: &[Need]) -> std::result::Result<Engine, String> {
        let mode = if ref_only { WalkMode::RefOnly } else { WalkMode::Direct };
        // What the host of the verified cases has; rows that need other settings say so.
        let protected = Protected { hardlinks: true, ..Protected::default() };
        let engine = Engine { mode, protected, lacking: without.iter().copied().collect() };
        engine.make().map_err(|errno| format!("the engine cannot be made: {errno}"))?;
        Ok(engine)
    }

    /// The engine with these settings, for programs that decline nothing.
    pub(crate) fn for_fuzzing(mode: WalkMode, protected: Protected) -> Engine {
        Engine { mode, protected, lacking: BTreeSet::new() }
    }

    /// A fresh world.
    pub(crate) fn fresh_world(&self) -> Result<EngineWorld> {
        let vfs = self.make()?;
        let outsider = vfs.task(Cred::root());
        outsider.umask(0);
        Ok(EngineWorld { vfs, outsider, tasks: Vec::new() })
    }

    /// A fresh file system.
    pub(crate) fn make(&self) -> Result<Vfs> {
        // Remembering at first sight: the second of two equal lookups is answered from the table.
        let table = PathTableOptions::default().with_entries(1 << 10).with_at_first_sight(true);
        let vfs = Vfs::builder().capacity(OBJECTS).protected(self.protected).path_table(table).build()?;
        vfs.set_walk_mode(self.mode);
        Ok(vfs)
    }
}

impl Backend for Engine {
    fn name(&self) -> String {
        if self.mode == WalkMode::RefOnly { "engine-ref" } else { "engine" }.to_owned()
    }

    fn declines(&self, case: &Case) -> Option<String> {
        if let Some((_, why)) = UNSUPPORTED.iter().find(|(need, _)| case.needs.contains(need)) {
            return Some((*why).to_owned());
        }
        if let Some(need) = case.needs.intersection(&self.lacking).next() {
            return Some(format!("needs {}", need.name()));
        }
        let steps = case.setup.iter().chain(&case.calls);
        steps.filter_map(|step| lacks(&step.op)).next().map(str::to_owned)
    }

    fn world(&self) -> std::result::Result<Box<dyn World>, String> {
        self.fresh_world().map(|world| Box::new(world) as Box<dyn World>).map_err(|errno| errno.to_string())
    }
}

const SIZE: &str = "the typed interface has no structure sizes";
const PROC: &str = "no /proc";
/// Calls and arguments that the engine does not offer yet, beside [`UNSUPPORTED`].
pub const LACKING: &[&str] = &[SIZE, PROC];

/// Why the typed interface cannot make this call, if it cannot: one of [`LACKING`].
fn lacks(op: &Op) -> Option<&'static str> {
    match op {
        Op::Mount { fstype, .. } if fstype.bytes() == Some(b"proc") => Some(PROC),
        Op::MountSetattr { attr, .. } | Op::OpenTreeAttr { attr, .. } if attr.size != 32 => Some(SIZE),
        Op::Statmount { of, room, flags, .. } if of.size != 32 || room.0 != 65536 || flags.0 != 0 => {
            Some(SIZE)
        }
        Op::Listmount { of, .. } if of.size != 32 => Some(SIZE),
        Op::FileGetattr { size, .. } | Op::FileSetattr { size, .. } if size.0 != 24 => Some(SIZE),
        _ => None,
    }
}

/// A file system and the tasks in it.
pub(crate) struct EngineWorld {
    vfs: Vfs,
    outsider: Task,
    tasks: Vec<Task>,
}

impl World for EngineWorld {
    fn spawn(&mut self, who: &Identity) -> std::result::Result<TaskId, String> {
        self.tasks.push(task_of(&self.vfs, who)?);
        Ok(self.tasks.len() - 1)
    }

    fn fork(&mut self, task: TaskId, flags: u64) -> std::result::Result<TaskId, Outcome> {
        let parent = self.tasks.get(task).ok_or_else(|| Outcome::Broken("no such task".to_owned()))?;
        let child = CloneFlags::from_bits(flags).and_then(|flags| parent.clone_with(flags));
        self.tasks.push(child.map_err(|errno| Outcome::Error(errno.raw()))?);
        Ok(self.tasks.len() - 1)
    }

    fn open_proc(&mut self, task: TaskId, of: TaskId, file: ProcFile) -> Outcome {
        match (self.tasks.get(task), self.tasks.get(of)) {
            (Some(task), Some(of)) => answer(task.open_proc(of, mounts::proc_file(file)), Outcome::Fd),
            _ => Outcome::Broken("no such task".to_owned()),
        }
    }

    fn call(&mut self, task: TaskId, op: &Op) -> Outcome {
        if let Op::OpenProc { file, .. } = op {
            return self.open_proc(task, task, *file);
        }
        if let Op::Sysctl { name, value } = op {
            return set_sysctl(&self.vfs, &name.0, value.0);
        }
        match self.tasks.get_mut(task) {
            Some(caller) => mounts::perform(caller, op).unwrap_or_else(|| perform(caller, op)),
            None => Outcome::Broken("no such task".to_owned()),
        }
    }

    fn outsider(&mut self, op: &Op) -> Outcome {
        perform(&mut self.outsider, op)
    }

    fn full_caps(&self) -> u64 {
        EngineCaps::FULL.0
    }

    fn program(&self) -> Vec<u8> {
        // The host's: file contents are compared.
        crate::host::program()
    }
}

fn caps(set: CapSet) -> EngineCaps {
    EngineCaps(set.0) & EngineCaps::FULL
}

/// Changes a setting of the file system.
pub(crate) fn set_sysctl(vfs: &Vfs, name: &str, value: i64) -> Outcome {
    match Sysctl::named(name) {
        Some(which) => done(vfs.set_sysctl(which, value as u64)),
        None => Outcome::Broken(format!("the engine has no setting `{name}`")),
    }
}

/// A task of an identity.
pub(crate) fn task_of(vfs: &Vfs, who: &Identity) -> std::result::Result<Task, String> {
    let mut task = vfs.task(Cred::root());
    task.umask(who.umask.0 as u32);
    task.chdir(&who.cwd).map_err(|errno| format!("chdir: {errno}"))?;
    task.set_cred(credential(who).map_err(|errno| format!("credential: {errno}"))?);
    if who.no_new_privs {
        task.set_no_new_privs();
    }
    Ok(task)
}

/// The credential of an identity.
fn credential(who: &Identity) -> Result<Cred> {
    let ([uid, euid, suid, fsuid], [gid, egid, sgid, fsgid]) = (who.uids, who.gids);
    Cred::builder()
        .uids(uid, euid, suid, fsuid)
        .gids(gid, egid, sgid, fsgid)
        .groups(&who.groups)
        .effective(caps(who.effective))
        .permitted(caps(who.permitted))
        .inheritable(caps(who.inheritable))
        .ambient(caps(who.ambient))
        .bounding(caps(who.bounding))
        .securebits(who.securebits.0 as u32)
        .build()
}

/// The bytes of a proper pointer; rows with others were declined.
fn bytes(mem: &Mem) -> &[u8] {
    mem.bytes().unwrap_or_default()
}

fn done(result: Result<()>) -> Outcome {
    answer(result, |()| Outcome::Done)
}

fn answer<T>(result: Result<T>, wrap: impl FnOnce(T) -> Outcome) -> Outcome {
    match result {
        Ok(value) => wrap(value),
        Err(errno) => Outcome::Error(errno.raw()),
    }
}

fn number(result: Result<usize>) -> Outcome {
    answer(result, |n| Outcome::Number(n as i64))
}

fn time(time: Timespec) -> Time {
    Time { sec: time.sec, nsec: time.nsec }
}

fn stat(result: Result<uapi::Stat>) -> Outcome {
    answer(result, |s| {
        Outcome::Stat(Box::new(Stat {
            dev: s.dev,
            ino: s.ino,
            mode: s.mode,
            nlink: s.nlink,
            uid: s.uid,
            gid: s.gid,
            rdev: s.rdev,
            size: s.size,
            blksize: s.blksize,
            blocks: s.blocks,
            atime: time(s.atime),
            mtime: time(s.mtime),
            ctime: time(s.ctime),
            extra: None,
        }))
    })
}

fn statx(result: Result<uapi::Statx>) -> Outcome {
    let dev = |major, minor| crate::args::Dev { major, minor }.encode();
    answer(result, |s| {
        Outcome::Stat(Box::new(Stat {
            dev: dev(s.dev_major, s.dev_minor),
            ino: s.ino,
            mode: u32::from(s.mode),
            nlink: u64::from(s.nlink),
            uid: s.uid,
            gid: s.gid,
            rdev: dev(s.rdev_major, s.rdev_minor),
            size: s.size as i64,
            blksize: i64::from(s.blksize),
            blocks: s.blocks as i64,
            atime: time(s.atime.into()),
            mtime: time(s.mtime.into()),
            ctime: time(s.ctime.into()),
            extra: Some(StatxExtra {
                mask: s.mask,
                attributes: s.attributes,
                attributes_mask: s.attributes_mask,
                btime: time(s.btime.into()),
            }),
        }))
    })
}

/// A list as names, unless only its length was asked for.
fn names(answer: Outcome) -> Outcome {
    match answer {
        Outcome::Bytes(list) => {
            Outcome::Names(list.split_inclusive(|b| *b == 0).map(|n| n[..n.len() - 1].to_vec()).collect())
        }
        other => other,
    }
}

fn times(times: &Times) -> Option<[Timespec; 2]> {
    match times {
        // Nanoseconds beyond 32 bits are as invalid as any above 999,999,999.
        Times::Pair(pair) => {
            Some(pair.map(|(sec, nsec)| Timespec { sec, nsec: u32::try_from(nsec).unwrap_or(u32::MAX) }))
        }
        Times::Null | Times::Bad => None,
    }
}

/// Makes a call.
fn perform(task: &mut Task, op: &Op) -> Outcome {
    look(task, op)
        .or_else(|| open_and_io(task, op))
        .or_else(|| transfer(task, op))
        .or_else(|| handles(task, op))
        .or_else(|| tree(task, op))
        .or_else(|| attributes(task, op))
        .or_else(|| xattrs(task, op))
        .or_else(|| surroundings(task, op))
        .or_else(|| credentials(task, op))
        .or_else(|| exec::perform(task, op))
        .unwrap_or_else(|| Outcome::Broken(format!("the engine has no `{}`", op.name())))
}

fn look(task: &Task, op: &Op) -> Option<Outcome> {
    Some(match op {
        Op::Access { path, mode } => done(task.access(bytes(path), mode.0 as i32)),
        Op::Faccessat { dirfd, path, mode } => done(task.faccessat(dirfd.raw(), bytes(path), mode.0 as i32)),
        Op::Faccessat2 { dirfd, path, mode, flags } => {
            done(task.faccessat2(dirfd.raw(), bytes(path), mode.0 as i32, flags.0 as i32))
        }
        Op::Stat { path, .. } => stat(task.stat(bytes(path))),
        Op::Lstat { path, .. } => stat(task.lstat(bytes(path))),
        Op::Fstat { fd, .. } => stat(task.fstat(fd.raw())),
        Op::Newfstatat { dirfd, path, flags, .. } => {
            stat(task.newfstatat(dirfd.raw(), bytes(path), flags.0 as i32))
        }
        Op::Statx { dirfd, path, flags, mask, .. } => {
            statx(task.statx(dirfd.raw(), bytes(path), flags.0 as i32, mask.0 as u32))
        }
        Op::Readlink { path, room } => {
            read_into(room, |buf| task.readlinkat_into(uapi::AT_FDCWD, bytes(path), buf))
        }
        Op::Readlinkat { dirfd, path, room } => {
            read_into(room, |buf| task.readlinkat_into(dirfd.raw(), bytes(path), buf))
        }
        _ => return None,
    })
}

fn read_into(count: &Room, read: impl FnOnce(&mut [u8]) -> Result<usize>) -> Outcome {
    let mut buf = vec![0; count.size.max(0) as usize];
    answer(read(&mut buf), |n| {
        buf.truncate(n);
        Outcome::Bytes(buf)
    })
}

fn statfs(result: Result<rcuwalk::Statfs>, space: Int) -> Outcome {
    answer(result, |fs| {
        let what = [fs.kind, fs.bsize, fs.namelen, fs.flags];
        Outcome::Bytes(raw::statfs_text(what, [fs.blocks, fs.bfree, fs.files, fs.ffree], space))
    })
}

fn range(lock: &LockRange) -> rcuwalk::Flock {
    rcuwalk::Flock {
        kind: lock.kind.0 as i16,
        whence: lock.whence.0 as i16,
        start: lock.start,
        len: lock.len,
        pid: lock.pid as i32,
    }
}

/// A transfer through several buffers, which lie side by side.
fn read_into_all(rooms: &Rooms, read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize>) -> Outcome {
    let mut bytes = vec![0; rooms.0.iter().map(|room| room.size as usize).sum()];
    let mut rest = &mut bytes[..];
    let mut buffers = Vec::new();
    for room in &rooms.0 {
        let (buffer, behind) = rest.split_at_mut(room.size as usize);
        buffers.push(IoSliceMut::new(buffer));
        rest = behind;
    }
    answer(read(&mut buffers), |n| {
        bytes.truncate(n);
        Outcome::Bytes(bytes)
    })
}

fn slices(pieces: &Pieces) -> Vec<IoSlice<'_>> {
    pieces.0.iter().map(|data| IoSlice::new(bytes(&data.bytes))).collect()
}

/// preadv(2) and pwritev(2) take no position.
fn positioned(offset: i64, transfer: impl FnOnce(i64) -> Outcome) -> Outcome {
    if offset < 0 { Outcome::Error(Errno::EINVAL.raw()) } else { transfer(offset) }
}

/// Objects by handle.
fn handles(task: &Task, op: &Op) -> Option<Outcome> {
    Some(match op {
        Op::NameToHandleAt { dirfd, path, bytes: room, flags } => {
            let handle = task.name_to_handle_at(dirfd.raw(), bytes(path), flags.0 as i32);
            answer(handle, |(handle, _)| match handle.bytes.len() {
                _ if room.0 > 128 => Outcome::Error(Errno::EINVAL.raw()),
                len if len as i64 > room.0 => Outcome::Error(Errno::EOVERFLOW.raw()),
                len => Outcome::Bytes(raw::handle_text(len as u32, handle.kind)),
            })
        }
        Op::OpenByHandleAt { mount, handle, flags } => {
            let handle = FileHandle::new(handle.kind, handle.bytes.clone());
            answer(task.open_by_handle_at(mount.raw(), &handle, flags.0 as i32), Outcome::Fd)
        }
        Op::Reopen { dirfd, path, at_flags, mount, kind, flags } => {
            let handle = task.name_to_handle_at(dirfd.raw(), bytes(path), at_flags.0 as i32);
            let opened = handle.and_then(|(handle, _)| {
                let handle = FileHandle::new(handle.kind + kind.0 as i32, handle.bytes);
                task.open_by_handle_at(mount.raw(), &handle, flags.0 as i32)
            });
            answer(opened, Outcome::Fd)
        }
        _ => return None,
    })
}

/// Transfers through several buffers, and from file to file.
fn transfer(task: &Task, op: &Op) -> Option<Outcome> {
    Some(match op {
        Op::Readv { fd, buffers } => read_into_all(buffers, |to| task.preadv2(fd.raw(), to, -1, 0)),
        Op::Preadv { fd, buffers, offset } => {
            positioned(offset.0, |at| read_into_all(buffers, |to| task.preadv2(fd.raw(), to, at, 0)))
        }
        Op::Preadv2 { fd, buffers, offset, flags } => {
            read_into_all(buffers, |to| task.preadv2(fd.raw(), to, offset.0, flags.0 as i32))
        }
        Op::Writev { fd, data } => number(task.pwritev2(fd.raw(), &slices(data), -1, 0)),
        Op::Pwritev { fd, data, offset } => {
            positioned(offset.0, |at| number(task.pwritev2(fd.raw(), &slices(data), at, 0)))
        }
        Op::Pwritev2 { fd, data, offset, flags } => {
            number(task.pwritev2(fd.raw(), &slices(data), offset.0, flags.0 as i32))
        }
        Op::Sendfile { to, from, offset, length } => {
            let mut offset = offset.0;
            number(task.sendfile(to.raw(), from.raw(), offset.as_mut(), length.0 as usize))
        }
        Op::Ficlone { fd, from, .. } => done(task.ficlone(fd.raw(), from.raw())),
        Op::Fionread { fd } => answer(task.fionread(fd.raw()), |n| Outcome::Number(i64::from(n))),
        Op::Fioqsize { fd } => answer(task.fioqsize(fd.raw()), Outcome::Number),
        Op::DupfdQuery { fd, command, other } => {
            answer(task.fcntl(fd.raw(), command.0 as i32, other.raw()), |n| Outcome::Number(i64::from(n)))
        }
        Op::SetRwHint { fd, hint, .. } => done(task.set_rw_hint(fd.raw(), hint.0 as u64)),
        Op::GetRwHint { fd } => answer(task.get_rw_hint(fd.raw()), |hint| Outcome::Number(hint as i64)),
        _ => return None,
    })
}

fn file_attr(attr: &Attributes) -> rcuwalk::FileAttr {
    let Attributes { xflags, extsize, projid, cowextsize } = *attr;
    let attr = rcuwalk::FileAttr::default().with_xflags(xflags.0).with_extsize(extsize);
    attr.with_projid(projid).with_cowextsize(cowextsize)
}

fn xflags(attr: Result<rcuwalk::FileAttr>) -> Outcome {
    answer(attr, |attr| Outcome::Number(attr.xflags as i64))
}

fn open_and_io(task: &Task, op: &Op) -> Option<Outcome> {
    Some(match op {
        Op::Open { path, flags, mode } => {
            answer(task.open(bytes(path), flags.0 as i32, mode.0 as u32), Outcome::Fd)
        }
        Op::Openat { dirfd, path, flags, mode } => {
            answer(task.openat(dirfd.raw(), bytes(path), flags.0 as i32, mode.0 as u32), Outcome::Fd)
        }
        Op::Openat2 { dirfd, path, how } => {
            let how =
                OpenHow::default().with_flags(how.flags.0).with_mode(how.mode.0).with_resolve(how.resolve.0);
            answer(task.openat2(dirfd.raw(), bytes(path), &how), Outcome::Fd)
        }
        Op::Creat { path, mode } => answer(task.creat(bytes(path), mode.0 as u32), Outcome::Fd),
        Op::Close { fd } => done(task.close(fd.raw())),
        Op::Read { fd, count } => read_into(count, |buf| task.read(fd.raw(), buf)),
        Op::Pread { fd, count, offset } => read_into(count, |buf| task.pread(fd.raw(), buf, offset.0)),
        Op::Write { fd, data } => number(task.write(fd.raw(), bytes(&data.bytes))),
        Op::Pwrite { fd, data, offset } => number(task.pwrite(fd.raw(), bytes(&data.bytes), offset.0)),
        Op::Lseek { fd, offset, whence } => {
            answer(task.lseek(fd.raw(), offset.0, whence.0 as i32), Outcome::Number)
        }
        Op::Truncate { path, length } => done(task.truncate(bytes(path), length.0)),
        Op::Ftruncate { fd, length } => done(task.ftruncate(fd.raw(), length.0)),
        Op::CopyFileRange { from, from_offset, to, to_offset, length, flags } => {
            let (mut from_offset, mut to_offset) = (from_offset.0, to_offset.0);
            number(task.copy_file_range(
                from.raw(),
                from_offset.as_mut(),
                to.raw(),
                to_offset.as_mut(),
                length.0 as usize,
                flags.0 as u32,
            ))
        }
        Op::Fsync { fd } => done(task.fsync(fd.raw())),
        Op::Fdatasync { fd } => done(task.fdatasync(fd.raw())),
        Op::Syncfs { fd } => done(task.syncfs(fd.raw())),
        Op::Statfs { path, space } => statfs(task.statfs(bytes(path)), *space),
        Op::Fstatfs { fd, space } => statfs(task.fstatfs(fd.raw()), *space),
        Op::Flock { fd, operation } => done(task.flock(fd.raw(), operation.0 as i32)),
        Op::Setlk { fd, command, lock } => {
            done(task.fcntl_lock(fd.raw(), command.0 as i32, &mut range(lock)))
        }
        Op::Getlk { fd, command, lock } => {
            let mut lock = range(lock);
            answer(task.fcntl_lock(fd.raw(), command.0 as i32, &mut lock), |()| {
                Outcome::Bytes(raw::lock_text(lock.kind as u64, lock.start, lock.len, lock.pid == -1))
            })
        }
        Op::Fallocate { fd, mode, offset, length } => {
            done(task.fallocate(fd.raw(), mode.0 as i32, offset.0, length.0))
        }
        Op::Getdents { fd, room } => match read_into(room, |buf| task.getdents64(fd.raw(), buf)) {
            Outcome::Bytes(records) => Outcome::Entries(dirents(&records)),
            other => other,
        },
        Op::Dup { fd } => answer(task.dup(fd.raw()), Outcome::Fd),
        Op::Dup2 { fd, newfd } => answer(task.dup2(fd.raw(), newfd.raw()), Outcome::Fd),
        Op::Dup3 { fd, newfd, flags } => {
            answer(task.dup3(fd.raw(), newfd.raw(), flags.0 as i32), Outcome::Fd)
        }
        Op::Fcntl { fd, command, arg } => {
            answer(task.fcntl(fd.raw(), command.0 as i32, arg.0 as i32), |n| Outcome::Number(i64::from(n)))
        }
        _ => return None,
    })
}

fn tree(task: &Task, op: &Op) -> Option<Outcome> {
    let mode32 = |mode: &Mode| mode.0 as u32;
    let rename = |odir: &Fd, old: &Mem, ndir: &Fd, new: &Mem, flags: u64| {
        done(task.renameat2(odir.raw(), bytes(old), ndir.raw(), bytes(new), flags as u32))
    };
    Some(match op {
        Op::Mkdir { path, mode } => done(task.mkdir(bytes(path), mode32(mode))),
        Op::Mkdirat { dirfd, path, mode } => done(task.mkdirat(dirfd.raw(), bytes(path), mode32(mode))),
        Op::Mknod { path, mode, dev } => done(task.mknod(bytes(path), mode32(mode), dev.encode())),
        Op::Mknodat { dirfd, path, mode, dev } => {
            done(task.mknodat(dirfd.raw(), bytes(path), mode32(mode), dev.encode()))
        }
        Op::Symlink { target, path } => done(task.symlink(bytes(target), bytes(path))),
        Op::Symlinkat { target, dirfd, path } => {
            done(task.symlinkat(bytes(target), dirfd.raw(), bytes(path)))
        }
        Op::Link { old, new } => done(task.link(bytes(old), bytes(new))),
        Op::Linkat { olddirfd, old, newdirfd, new, flags } => {
            done(task.linkat(olddirfd.raw(), bytes(old), newdirfd.raw(), bytes(new), flags.0 as i32))
        }
        Op::Unlink { path } => done(task.unlink(bytes(path))),
        Op::Unlinkat { dirfd, path, flags } => done(task.unlinkat(dirfd.raw(), bytes(path), flags.0 as i32)),
        Op::Rmdir { path } => done(task.rmdir(bytes(path))),
        Op::Rename { old, new } => done(task.rename(bytes(old), bytes(new))),
        Op::Renameat { olddirfd, old, newdirfd, new } => rename(olddirfd, old, newdirfd, new, 0),
        Op::Renameat2 { olddirfd, old, newdirfd, new, flags } => {
            rename(olddirfd, old, newdirfd, new, flags.0)
        }
        _ => return None,
    })
}

fn attributes(task: &Task, op: &Op) -> Option<Outcome> {
    let mode32 = |mode: &Mode| mode.0 as u32;
    Some(match op {
        Op::Chmod { path, mode } => done(task.chmod(bytes(path), mode32(mode))),
        Op::Fchmod { fd, mode } => done(task.fchmod(fd.raw(), mode32(mode))),
        Op::Fchmodat { dirfd, path, mode } => done(task.fchmodat2(dirfd.raw(), bytes(path), mode32(mode), 0)),
        Op::Fchmodat2 { dirfd, path, mode, flags } => {
            done(task.fchmodat2(dirfd.raw(), bytes(path), mode32(mode), flags.0 as i32))
        }
        Op::Chown { path, uid, gid } => done(task.chown(bytes(path), uid.0, gid.0)),
        Op::Lchown { path, uid, gid } => done(task.lchown(bytes(path), uid.0, gid.0)),
        Op::Getflags { fd } => answer(task.getflags(fd.raw()), |flags| Outcome::Number(i64::from(flags))),
        Op::Fssetxattr { fd, attr } => done(task.fssetxattr(fd.raw(), file_attr(&attr.0))),
        Op::Fsgetxattr { fd } => xflags(task.fsgetxattr(fd.raw())),
        Op::FileSetattr { dirfd, path, attr, flags, .. } => {
            done(task.file_setattr(dirfd.raw(), bytes(path), file_attr(attr), flags.0 as i32))
        }
        Op::FileGetattr { dirfd, path, flags, .. } => {
            xflags(task.file_getattr(dirfd.raw(), bytes(path), flags.0 as i32))
        }
        Op::Setflags { fd, flags } => done(task.setflags(fd.raw(), flags.0.0 as u32)),
        Op::Fchown { fd, uid, gid } => done(task.fchown(fd.raw(), uid.0, gid.0)),
        Op::Fchownat { dirfd, path, uid, gid, flags } => {
            done(task.fchownat(dirfd.raw(), bytes(path), uid.0, gid.0, flags.0 as i32))
        }
        Op::Utimensat { dirfd, path, times: t, flags } => {
            done(task.utimensat(dirfd.raw(), path.bytes(), times(t), flags.0 as i32))
        }
        _ => return None,
    })
}

/// Asks for a value or list; with no room for its length.
fn xattr_into(room: &Room, get: impl FnOnce(&mut [u8]) -> Result<usize>) -> Outcome {
    if room.size == 0 { number(get(&mut [])) } else { read_into(room, get) }
}

fn xattrs(task: &Task, op: &Op) -> Option<Outcome> {
    use uapi::{AT_EMPTY_PATH as EMPTY, AT_SYMLINK_NOFOLLOW as NOFOLLOW};
    Some(match op {
        Op::Setxattr { path, name, value, flags } => {
            done(task.setxattr(bytes(path), bytes(name), bytes(&value.bytes), flags.0 as i32))
        }
        Op::Lsetxattr { path, name, value, flags } => {
            done(task.lsetxattr(bytes(path), bytes(name), bytes(&value.bytes), flags.0 as i32))
        }
        Op::Fsetxattr { fd, name, value, flags } => {
            done(task.fsetxattr(fd.raw(), bytes(name), bytes(&value.bytes), flags.0 as i32))
        }
        Op::Setxattrat { dirfd, path, at_flags, name, args } => done(task.setxattrat(
            dirfd.raw(),
            bytes(path),
            at_flags.0 as i32,
            bytes(name),
            bytes(&args.value),
            args.flags.0 as i32,
        )),
        Op::Getxattr { path, name, room } => {
            xattr_into(room, |buf| task.getxattrat_into(uapi::AT_FDCWD, bytes(path), 0, bytes(name), buf))
        }
        Op::Lgetxattr { path, name, room } => xattr_into(room, |buf| {
            task.getxattrat_into(uapi::AT_FDCWD, bytes(path), NOFOLLOW, bytes(name), buf)
        }),
        Op::Fgetxattr { fd, name, room } => {
            xattr_into(room, |buf| task.getxattrat_into(fd.raw(), b"", EMPTY, bytes(name), buf))
        }
        Op::Getxattrat { args, .. } if args.flags.0 != 0 => Outcome::Error(Errno::EINVAL.raw()),
        Op::Getxattrat { dirfd, path, at_flags, name, args } => {
            xattr_into(&Room::of(i64::from(args.size)), |buf| {
                task.getxattrat_into(dirfd.raw(), bytes(path), at_flags.0 as i32, bytes(name), buf)
            })
        }
        Op::Listxattr { path, room } => {
            names(xattr_into(room, |buf| task.listxattrat_into(uapi::AT_FDCWD, bytes(path), 0, buf)))
        }
        Op::Llistxattr { path, room } => {
            names(xattr_into(room, |buf| task.listxattrat_into(uapi::AT_FDCWD, bytes(path), NOFOLLOW, buf)))
        }
        Op::Listxattrat { dirfd, path, at_flags, room } => names(xattr_into(room, |buf| {
            task.listxattrat_into(dirfd.raw(), bytes(path), at_flags.0 as i32, buf)
        })),
        Op::Flistxattr { fd, room } => names(xattr_into(room, |buf| task.flistxattr_into(fd.raw(), buf))),
        Op::Removexattrat { dirfd, path, at_flags, name } => {
            done(task.removexattrat(dirfd.raw(), bytes(path), at_flags.0 as i32, bytes(name)))
        }
        Op::Removexattr { path, name } => done(task.removexattr(bytes(path), bytes(name))),
        Op::Lremovexattr { path, name } => done(task.lremovexattr(bytes(path), bytes(name))),
        Op::Fremovexattr { fd, name } => done(task.fremovexattr(fd.raw(), bytes(name))),
        _ => return None,
    })
}

fn surroundings(task: &mut Task, op: &Op) -> Option<Outcome> {
    Some(match op {
        Op::Chdir { path } => done(task.chdir(bytes(path))),
        Op::Fchdir { fd } => done(task.fchdir(fd.raw())),
        Op::Chroot { path } => done(task.chroot(bytes(path))),
        Op::Getcwd { room } => match read_into(room, |buf| task.getcwd_into(buf)) {
            Outcome::Bytes(mut path) => {
                path.pop();
                Outcome::Bytes(path)
            }
            other => other,
        },
        Op::Umask { mask } => Outcome::Number(i64::from(task.umask(mask.0 as u32))),
        Op::Setrlimit { resource, soft, hard } => {
            let (resource, soft) = (resource.0 as u32, soft.0.unwrap_or_default());
            let set = |cur, max| task.setrlimit(resource, Rlimit { cur, max });
            done(match hard.0 {
                Some(hard) => set(soft, hard),
                None => task.getrlimit(resource).and_then(|old| set(soft.min(old.max), old.max)),
            })
        }
        Op::Getrlimit { resource } => answer(task.getrlimit(resource.0 as u32), |limit| {
            Outcome::Bytes(raw::limit_text([limit.cur, limit.max]))
        }),
        _ => return None,
    })
}

fn credentials(task: &mut Task, op: &Op) -> Option<Outcome> {
    Some(match op {
        Op::Setuid { uid } => done(task.setuid(uid.0)),
        Op::Setgid { gid } => done(task.setgid(gid.0)),
        Op::Setreuid { ruid, euid } => done(task.setreuid(ruid.0, euid.0)),
        Op::Setregid { rgid, egid } => done(task.setregid(rgid.0, egid.0)),
        Op::Setresuid { ruid, euid, suid } => done(task.setresuid(ruid.0, euid.0, suid.0)),
        Op::Setresgid { rgid, egid, sgid } => done(task.setresgid(rgid.0, egid.0, sgid.0)),
        Op::Setfsuid { uid } => Outcome::Number(i64::from(task.setfsuid(uid.0))),
        Op::Setfsgid { gid } => Outcome::Number(i64::from(task.setfsgid(gid.0))),
        Op::Setgroups { groups } => done(task.setgroups(&groups.0)),
        Op::Getresuid { .. } => Outcome::Ids(task.getresuid().to_vec()),
        Op::Getresgid { .. } => Outcome::Ids(task.getresgid().to_vec()),
        Op::Getgroups {} => Outcome::Ids(task.getgroups()),
        _ => return capabilities(task, op),
    })
}

/// capget(2), capset(2), and what prctl(2) does with privileges.
fn capabilities(task: &mut Task, op: &Op) -> Option<Outcome> {
    let flag = |is: Result<bool>| answer(is, |is| Outcome::Number(i64::from(is)));
    Some(match op {
        Op::Capset { sets } => done(task.capset(CapData {
            effective: EngineCaps(sets.effective.0),
            permitted: EngineCaps(sets.permitted.0),
            inheritable: EngineCaps(sets.inheritable.0),
        })),
        Op::Capget { .. } => {
            let CapData { effective, permitted, inheritable } = task.capget();
            Outcome::Caps([effective.0, permitted.0, inheritable.0])
        }
        Op::SetDumpable { on } => match on.0 {
            0 | 1 => {
                task.set_dumpable(on.0 == 1);
                Outcome::Done
            }
            _ => Outcome::Error(Errno::EINVAL.raw()),
        },
        Op::GetDumpable {} => Outcome::Number(i64::from(task.dumpable())),
        Op::SetName { name } => {
            task.set_name(bytes(name));
            Outcome::Done
        }
        Op::GetName {} => Outcome::Bytes(task.name().to_vec()),
        Op::SetSecurebits { bits } => done(task.set_securebits(bits.0 as u32)),
        Op::GetSecurebits {} => Outcome::Number(i64::from(task.get_securebits())),
        Op::SetKeepcaps { on } => match on.0 {
            0 | 1 => done(task.set_keepcaps(on.0 == 1)),
            _ => Outcome::Error(Errno::EINVAL.raw()),
        },
        Op::SetNoNewPrivs {} => {
            task.set_no_new_privs();
            Outcome::Done
        }
        Op::CapbsetDrop { cap } => done(task.capbset_drop(cap.0 as u32)),
        Op::CapbsetRead { cap } => flag(task.capbset_read(cap.0 as u32)),
        Op::AmbientRaise { cap } => done(task.cap_ambient_raise(cap.0 as u32)),
        Op::AmbientLower { cap } => done(task.cap_ambient_lower(cap.0 as u32)),
        Op::AmbientIsSet { cap } => flag(task.cap_ambient_is_set(cap.0 as u32)),
        Op::AmbientClear {} => {
            task.cap_ambient_clear_all();
            Outcome::Done
        }
        _ => return None,
    })
}
