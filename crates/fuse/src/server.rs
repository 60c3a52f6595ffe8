//! The requests of the kernel, answered by calls of the engine.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use fuser::*;
use rcuwalk::acl::XATTR_NAME_POSIX_ACL_ACCESS;
use rcuwalk::cred::Cred;
use rcuwalk::uapi::*;
use rcuwalk::{CloneFlags, Errno, MountOptions, Result, Stat, Sysctl, Task, Vfs};

use crate::attr::{error, file_attr, kind_of_entry, wanted_time};
use crate::caller::{Callers, Identity, Tasks};
use crate::nodes::{Data, Nodes};
use crate::options::{LONG, Mode, Options};

/// What a program that executes a file adds to the flags of opening it. Kernel: `__FMODE_EXEC`.
const FMODE_EXEC: i32 = 0x20;

/// Kernel: include/uapi/linux/fuse.h `enum fuse_notify_code`.
const FUSE_NOTIFY_INVAL_INODE: u32 = 2;
const FUSE_NOTIFY_INC_EPOCH: u32 = 8;

/// Kernel: include/uapi/linux/fs.h.
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;

/// `FS_*_FL` and the `FS_XFLAG_*` of the same meaning.
const XFLAGS: [(u32, u32); 4] =
    [(FS_IMMUTABLE_FL, 0x8), (FS_APPEND_FL, 0x10), (FS_NOATIME_FL, 0x40), (FS_NODUMP_FL, 0x80)];

/// `struct fsxattr` with these flags and nothing else.
fn fsxattr_of(flags: u32) -> [u8; 28] {
    let xflags = XFLAGS.iter().filter(|(flag, _)| flags & flag != 0).fold(0, |all, (_, xflag)| all | xflag);
    let mut out = [0; 28];
    out[..4].copy_from_slice(&u32::to_ne_bytes(xflags));
    out
}

/// The flags in a `struct fsxattr`; those without a counterpart become one that is refused.
fn flags_of(fsxattr: &[u8]) -> Option<u32> {
    let xflags = u32::from_ne_bytes(*fsxattr.first_chunk()?);
    let known = XFLAGS.iter().fold(0, |all, (_, xflag)| all | xflag);
    let odd = if xflags & !known != 0 { 1 << 31 } else { 0 };
    Some(XFLAGS.iter().filter(|(_, xflag)| xflags & xflag != 0).fold(odd, |all, (flag, _)| all | flag))
}

/// Entries that one READDIR request asks the engine for at a time.
const BATCH: usize = 256;

/// Answers for a mounted tree.
///
/// A node number is an inode number ([`Nodes`]). With [`Mode::AsSeen`] there are no open files: the kernel checks who may open
/// what, and I/O goes through descriptors of the node. With [`Mode::Engine`] a file handle is the number of a descriptor that
/// the caller's task opened.
#[derive(Debug)]
pub(crate) struct Server {
    mode: Mode,
    writeback: bool,
    nodes: Nodes,
    callers: Callers,
    tasks: Tasks,
    /// May do everything.
    keeper: Task,
    /// What is to be made durable, if anything keeps the tree.
    kept: Option<Vfs>,
    /// The connection, for notifications.
    device: Arc<OnceLock<OwnedFd>>,
}

impl Server {
    pub(crate) fn new(vfs: &Vfs, options: &Options) -> Result<Server> {
        const MANY: u64 = 0x7fff_ffc0;
        let keeper = vfs.task(Cred::root());
        vfs.set_sysctl(Sysctl::NrOpen, MANY)?;
        keeper.set_nofile_limit(MANY as usize);
        if options.noatime {
            vfs.set_mount_options(MountOptions { noatime: true, ..MountOptions::default() });
        }
        if options.mode == Mode::Engine {
            // Of these the kernel leaves part to the server: whether a link's source may be read and written.
            let host = std::fs::read_to_string("/proc/sys/fs/protected_hardlinks").ok();
            let value = host.and_then(|text| text.trim().parse().ok()).unwrap_or(1);
            vfs.set_sysctl(Sysctl::ProtectedHardlinks, value)?;
        }
        let share = || keeper.clone_with(CloneFlags { files: true, ..CloneFlags::default() });
        Ok(Server {
            mode: options.mode,
            // Who flushes the times of a file that somebody else wrote to is not to be judged.
            writeback: options.writeback && options.mode == Mode::AsSeen,
            nodes: Nodes::new(share()?)?,
            callers: Callers::default(),
            tasks: Tasks::new(share()?),
            kept: Some(vfs.clone()).filter(Vfs::is_kept),
            device: Arc::default(),
            keeper,
        })
    }

    /// Makes all that was done durable: what keeps the tree commits it whole.
    fn sync(&self, reply: ReplyEmpty) {
        match self.kept.as_ref().map(Vfs::sync) {
            Some(Ok(())) => reply.ok(),
            Some(Err(errno)) => reply.error(error(errno)),
            // There is no disk; the kernel need not ask again.
            None => reply.error(fuser::Errno::ENOSYS),
        }
    }

    /// Where the connection is put once there is one.
    pub(crate) fn device(&self) -> Arc<OnceLock<OwnedFd>> {
        Arc::clone(&self.device)
    }

    /// As whom the engine acts for a caller.
    fn actor(&self, req: &Request) -> Identity {
        match self.mode {
            Mode::AsSeen => Identity::owner(req),
            Mode::Engine => self.callers.identity(req),
        }
    }

    /// Runs a change as whoever asks for it.
    fn change<R>(&self, req: &Request, umask: u32, change: impl FnOnce(&Task) -> Result<R>) -> Result<R> {
        self.change_as(self.actor(req), umask, change)
    }

    /// Every request that changes something passes here.
    fn change_as<R>(&self, who: Identity, umask: u32, change: impl FnOnce(&Task) -> Result<R>) -> Result<R> {
        change(&*self.tasks.acting(who, umask)?)
    }

    /// Runs what only looks.
    fn look<R>(&self, req: &Request, look: impl FnOnce(&Task) -> Result<R>) -> Result<R> {
        match self.mode {
            Mode::AsSeen => look(&self.keeper),
            Mode::Engine => look(&*self.tasks.acting(self.callers.identity(req), 0)?),
        }
    }

    /// Who changes a file, as far as its set-id bits are concerned. The kernel leaves those to the server
    /// (`FUSE_HANDLE_KILLPRIV_V2`), but what it says of the caller fuser 0.18 passes on for writes alone.
    fn changer(&self, req: &Request, ino: INodeNo) -> Result<Identity> {
        match self.mode {
            Mode::AsSeen if !self.has_set_id(ino)? => Ok(Identity::owner(req)),
            Mode::AsSeen => {
                let who = self.callers.identity(req);
                let keeps = who.capable(CAP_FSETID);
                Ok(who.allowed(keeps))
            }
            Mode::Engine => Ok(self.callers.identity(req)),
        }
    }

    /// As whom the engine handles an attribute. Their values have the server's ids in them, whoever calls; and who may have to
    /// do with file capabilities the kernel judges in either mode.
    fn xattr_actor(&self, req: &Request, name: &OsStr) -> Identity {
        match name.as_bytes() {
            b"security.capability" => Identity::owner(req),
            _ => self.actor(req).outside(),
        }
    }

    /// The same for changing one: an access ACL may take set-group-id away.
    fn xattr_changer(&self, req: &Request, ino: INodeNo, name: &OsStr) -> Result<Identity> {
        match name.as_bytes() {
            XATTR_NAME_POSIX_ACL_ACCESS => Ok(self.changer(req, ino)?.outside()),
            _ => Ok(self.xattr_actor(req, name)),
        }
    }

    fn has_set_id(&self, ino: INodeNo) -> Result<bool> {
        Ok(self.stat(ino.0)?.mode & (S_ISUID | S_ISGID) != 0)
    }

    fn stat(&self, ino: u64) -> Result<Stat> {
        self.keeper.fstat(self.nodes.place(ino)?)
    }

    /// Names a node for the kernel: one more reference to what `place` stands for.
    fn entry(&self, place: i32) -> Result<FileAttr> {
        Ok(file_attr(&self.nodes.remember(place)?))
    }

    /// Looks `name` up and names what is there.
    fn lookup_as(&self, task: &Task, parent: i32, name: &OsStr) -> Result<FileAttr> {
        self.entry(task.openat(parent, name.as_bytes(), O_PATH | O_NOFOLLOW, 0)?)
    }

    /// For how long the kernel may use an entry of this directory without asking.
    fn entry_ttl(&self, dir: i32) -> Duration {
        if self.mode == Mode::AsSeen || self.searchable_by_all(dir) { LONG } else { Duration::ZERO }
    }

    /// Whether there is nobody who may not search the directory.
    fn searchable_by_all(&self, dir: i32) -> bool {
        let open = self.keeper.fstat(dir).is_ok_and(|st| st.mode & 0o111 == 0o111);
        open && self.keeper.vfs_getxattr(dir, XATTR_NAME_POSIX_ACL_ACCESS) == Err(Errno::ENODATA)
    }

    /// Runs a change of a directory's permissions; if it was open to everybody before and is not any more, the kernel is made
    /// to ask again for every entry it knows.
    fn tighten<R>(&self, place: i32, change: impl FnOnce() -> Result<R>) -> Result<R> {
        let was_open = self.mode == Mode::Engine && self.searchable_by_all(place);
        let done = change()?;
        if was_open && !self.searchable_by_all(place) {
            self.notify(FUSE_NOTIFY_INC_EPOCH, &[]);
        }
        Ok(done)
    }

    /// Tells the kernel to forget. This is not fuser's notifier, which can be had only when the server is gone from our hands,
    /// and does not know of epochs.
    fn notify(&self, code: u32, words: &[u64]) {
        let len = 16 + 8 * words.len() as u32;
        let mut message = Vec::with_capacity(len as usize);
        message.extend_from_slice(&len.to_ne_bytes());
        message.extend_from_slice(&code.to_ne_bytes());
        message.extend_from_slice(&[0; 8]);
        words.iter().for_each(|word| message.extend_from_slice(&word.to_ne_bytes()));
        if let Some(device) = self.device.get() {
            // A kernel older than 6.16 knows no epochs; docs/mount.md says what that means.
            let _ = rustix::io::write(device, &message);
        }
    }

    /// The descriptor for I/O: the handle's, or the node's own.
    fn io(&self, ino: INodeNo, fh: Option<FileHandle>, how: Data) -> Result<i32> {
        match (self.mode, fh) {
            (Mode::Engine, Some(fh)) => Ok(fh.0 as i32),
            _ => self.nodes.data(ino.0, how),
        }
    }

    fn setattr_of(
        &self,
        req: &Request,
        ino: INodeNo,
        new: &NewAttr,
        fh: Option<FileHandle>,
    ) -> Result<FileAttr> {
        let place = self.nodes.place(ino.0)?;
        let who = match (new.owner, new.size) {
            // That the bits have to go may be more than the caller can do, and the kernel did not ask.
            (Some(_), _) if self.has_set_id(ino)? => self.callers.identity(req),
            (_, Some(_)) => self.changer(req, ino)?,
            _ => self.actor(req),
        };
        let owner = new.owner.map(|ids| who.numbers(ids));
        self.tighten(place, || {
            self.change_as(who, 0, |task| {
                if let Some((uid, gid)) = owner {
                    task.fchownat(place, b"", uid, gid, AT_EMPTY_PATH)?;
                }
                if let Some(mode) = new.mode {
                    task.fchmodat2(place, b"", mode, AT_EMPTY_PATH)?;
                }
                if let Some(size) = new.size {
                    self.truncate(task, ino, place, size, fh)?;
                }
                if new.times.iter().any(|t| t.nsec != UTIME_OMIT) {
                    task.utimensat(place, Some(b""), Some(new.times), AT_EMPTY_PATH)?;
                }
                Ok(())
            })
        })?;
        Ok(file_attr(&self.keeper.fstat(place)?))
    }

    fn truncate(
        &self,
        task: &Task,
        ino: INodeNo,
        place: i32,
        size: u64,
        fh: Option<FileHandle>,
    ) -> Result<()> {
        let size = i64::try_from(size).map_err(|_| Errno::EFBIG)?;
        if self.mode == Mode::AsSeen || fh.is_some() {
            return task.ftruncate(self.io(ino, fh, Data::Write)?, size);
        }
        let fd = task.dentry_open(place, O_WRONLY)?;
        let done = task.ftruncate(fd, size);
        task.close(fd)?;
        done
    }

    /// Opens for a caller whom the engine judges.
    fn open_as(&self, req: &Request, ino: INodeNo, flags: i32) -> Result<FileHandle> {
        let place = self.nodes.place(ino.0)?;
        let fd = self.look(req, |task| {
            // What is executed need not be readable.
            if flags & FMODE_EXEC != 0 {
                task.faccessat2(place, b"", X_OK, AT_EMPTY_PATH | AT_EACCESS)?;
                return self.keeper.dentry_open(place, O_RDONLY);
            }
            let known = O_ACCMODE | O_APPEND | O_TRUNC | O_NOATIME | O_DIRECTORY;
            // The kernel gives the offset, also of what is appended.
            task.dentry_open(place, flags & known)
        })?;
        Ok(FileHandle(fd as u64))
    }

    fn create_as(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
    ) -> Result<(FileAttr, FileHandle)> {
        let dir = self.nodes.place(parent.0)?;
        let known = O_ACCMODE | O_APPEND | O_TRUNC | O_NOATIME | O_EXCL;
        let fd = self.change(req, umask, |task| {
            task.openat(dir, name.as_bytes(), flags & known | O_CREAT | O_NOFOLLOW, mode)
        })?;
        let entry = self.keeper.dentry_open(fd, O_PATH).and_then(|place| self.entry(place));
        if entry.is_err() {
            self.keeper.close(fd)?;
        }
        Ok((entry?, FileHandle(fd as u64)))
    }

    /// Makes something in a directory, and names it.
    fn make(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        umask: u32,
        make: impl FnOnce(&Task, i32) -> Result<()>,
    ) -> Result<(FileAttr, Duration)> {
        let dir = self.nodes.place(parent.0)?;
        self.change(req, umask, |task| make(task, dir))?;
        // Nobody else changes this directory until the kernel has the answer: it holds the lock.
        Ok((self.lookup_as(&self.keeper, dir, name)?, self.entry_ttl(dir)))
    }

    /// Runs `give` for the entries of a directory from `offset` on, until it has no more room.
    fn entries(
        &self,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut give: impl FnMut(i32, &rcuwalk::Dirent) -> Result<bool>,
    ) -> Result<()> {
        let place = self.nodes.place(ino.0)?;
        let fd = match self.mode {
            Mode::AsSeen => self.keeper.dentry_open(place, O_RDONLY | O_DIRECTORY)?,
            Mode::Engine => fh.0 as i32,
        };
        let done = self.keeper.lseek(fd, offset as i64, SEEK_SET).and_then(|_| {
            let mut batch = Vec::with_capacity(BATCH);
            loop {
                batch.clear();
                if self.keeper.getdents(fd, &mut batch, BATCH)? == 0 {
                    return Ok(());
                }
                for entry in &batch {
                    if give(place, entry)? {
                        return Ok(());
                    }
                }
            }
        });
        if self.mode == Mode::AsSeen {
            self.keeper.close(fd)?;
        }
        done
    }

    /// `FS_IOC_GETFLAGS` and its like, behind which the kernel has checked what it can.
    fn ioctl_of(&self, req: &Request, ino: INodeNo, cmd: u32, data: &[u8]) -> Result<Vec<u8>> {
        let place = self.nodes.place(ino.0)?;
        let fd = self.keeper.dentry_open(place, O_RDONLY)?;
        let done = match cmd {
            FS_IOC_GETFLAGS => self.keeper.getflags(fd).map(|flags| flags.to_ne_bytes().to_vec()),
            FS_IOC_FSGETXATTR => self.keeper.getflags(fd).map(|flags| fsxattr_of(flags).to_vec()),
            FS_IOC_SETFLAGS => {
                self.setflags(req, ino, fd, data.first_chunk().map(|b| u32::from_ne_bytes(*b)))
            }
            FS_IOC_FSSETXATTR => self.setflags(req, ino, fd, flags_of(data)),
            _ => Err(Errno::ENOTTY),
        };
        self.keeper.close(fd)?;
        done
    }

    fn setflags(&self, req: &Request, ino: INodeNo, fd: i32, flags: Option<u32>) -> Result<Vec<u8>> {
        let flags = flags.ok_or(Errno::EINVAL)?;
        // In either mode the kernel asks for the owner and for CAP_LINUX_IMMUTABLE.
        self.change_as(Identity::owner(req), 0, |task| task.setflags(fd, flags))?;
        // It does not see that this changes the time of change.
        self.notify(FUSE_NOTIFY_INVAL_INODE, &[ino.0, u64::MAX, 0]);
        Ok(Vec::new())
    }

    fn copy(&self, req: &Request, from: Range, to: Range, len: u64) -> Result<u32> {
        // A reply has 32 bits for it; the caller asks for the rest.
        let len = len.min(1 << 30) as usize;
        let source = self.io(from.ino, Some(from.fh), Data::Read)?;
        let target = self.io(to.ino, Some(to.fh), Data::Write)?;
        let (mut at, mut into) = (from.offset as i64, to.offset as i64);
        let who = self.changer(req, to.ino)?;
        self.change_as(who, 0, |task| {
            task.copy_file_range(source, Some(&mut at), target, Some(&mut into), len, 0)
        })
        .map(|n| n as u32)
    }
}

/// What a SETATTR request asks for.
struct NewAttr {
    mode: Option<u32>,
    /// Owner and group; `u32::MAX` keeps one.
    owner: Option<(u32, u32)>,
    size: Option<u64>,
    times: [rcuwalk::Timespec; 2],
}

/// One side of a copy.
struct Range {
    ino: INodeNo,
    fh: FileHandle,
    offset: u64,
}

/// Sends an entry.
fn send_entry(reply: ReplyEntry, made: Result<(FileAttr, Duration)>) {
    match made {
        Ok((attr, ttl)) => reply.entry_with_ttls(&LONG, &ttl, &attr, Generation(0)),
        Err(errno) => reply.error(error(errno)),
    }
}

fn send_empty(reply: ReplyEmpty, done: Result<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(error(errno)),
    }
}

/// Sends a value or list in the way of getxattr(2): its size if there is no room.
fn send_xattr(reply: ReplyXattr, size: u32, value: Result<Vec<u8>>) {
    match value {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(fuser::Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(error(errno)),
    }
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = vec![
            InitFlags::FUSE_DONT_MASK,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ];
        if self.mode == Mode::AsSeen {
            // Forces default_permissions.
            wanted.push(InitFlags::FUSE_POSIX_ACL);
            // An entry that comes with READDIRPLUS counts as looked up, for which the engine would have to judge each.
            wanted.extend([InitFlags::FUSE_DO_READDIRPLUS, InitFlags::FUSE_READDIRPLUS_AUTO]);
        }
        if self.writeback {
            wanted.push(InitFlags::FUSE_WRITEBACK_CACHE);
        }
        // What this kernel does not have only costs speed, or was not there for anybody.
        for flag in wanted {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.nodes.place(parent.0).and_then(|dir| {
            let ttl = self.entry_ttl(dir);
            match self.look(req, |task| self.lookup_as(task, dir, name)) {
                // Node 0 says that there is nothing, for as long.
                Err(Errno::ENOENT) if !ttl.is_zero() => {
                    Ok((FileAttr { ino: INodeNo(0), ..file_attr(&Stat::default()) }, ttl))
                }
                found => found.map(|attr| (attr, ttl)),
            }
        });
        send_entry(reply, found);
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.nodes.forget(ino.0, nlookup);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.stat(ino.0) {
            Ok(st) => reply.attr(&LONG, &file_attr(&st)),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let owner =
            (uid.is_some() || gid.is_some()).then(|| (uid.unwrap_or(u32::MAX), gid.unwrap_or(u32::MAX)));
        let new = NewAttr { mode, owner, size, times: [wanted_time(atime), wanted_time(mtime)] };
        match self.setattr_of(req, ino, &new, fh) {
            Ok(attr) => reply.attr(&LONG, &attr),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.nodes.place(ino.0).and_then(|place| self.keeper.readlinkat(place, b"")) {
            Ok(body) => reply.data(&body),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let name_ = name.as_bytes();
        let make = |task: &Task, dir| task.mknodat(dir, name_, mode, u64::from(rdev));
        send_entry(reply, self.make(req, parent, name, umask, make));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let make = |task: &Task, dir| task.mkdirat(dir, name.as_bytes(), mode);
        send_entry(reply, self.make(req, parent, name, umask, make));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let body = target.as_os_str().as_bytes();
        let make = |task: &Task, dir| task.symlinkat(body, dir, name.as_bytes());
        send_entry(reply, self.make(req, parent, name, 0, make));
    }

    fn link(&self, req: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let made = self.nodes.place(ino.0).and_then(|place| {
            let dir = self.nodes.place(parent.0)?;
            // For naming a descriptor of the server's. It opens no directory that is to be written.
            let who = self.actor(req).and(CAP_DAC_READ_SEARCH);
            self.change_as(who, 0, |task| task.linkat(place, b"", dir, name.as_bytes(), AT_EMPTY_PATH))?;
            Ok((self.lookup_as(&self.keeper, dir, name)?, self.entry_ttl(dir)))
        });
        send_entry(reply, made);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let dir = self.nodes.place(parent.0);
        let done = dir.and_then(|dir| self.change(req, 0, |task| task.unlinkat(dir, name.as_bytes(), 0)));
        send_empty(reply, done);
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let dir = self.nodes.place(parent.0);
        let remove = |task: &Task, dir| task.unlinkat(dir, name.as_bytes(), AT_REMOVEDIR);
        send_empty(reply, dir.and_then(|dir| self.change(req, 0, |task| remove(task, dir))));
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let done = self.nodes.place(parent.0).and_then(|old| {
            let new = self.nodes.place(newparent.0)?;
            self.change(req, 0, |task| {
                task.renameat2(old, name.as_bytes(), new, newname.as_bytes(), flags.bits())
            })?;
            // The kernel takes along for how long it may use the entry.
            if self.mode == Mode::Engine && self.searchable_by_all(old) != self.searchable_by_all(new) {
                self.notify(FUSE_NOTIFY_INC_EPOCH, &[]);
            }
            Ok(())
        });
        send_empty(reply, done);
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.mode == Mode::AsSeen {
            // The kernel has checked, and never asks again.
            return reply.error(fuser::Errno::ENOSYS);
        }
        match self.open_as(req, ino, flags.0) {
            Ok(fh) => reply.opened(fh, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        if self.mode == Mode::AsSeen {
            // The kernel makes do with MKNOD, and has no handle to release.
            return reply.error(fuser::Errno::ENOSYS);
        }
        match self.create_as(req, parent, name, mode, umask, flags) {
            Ok((attr, fh)) => {
                let ttl = self.nodes.place(parent.0).map_or(Duration::ZERO, |dir| self.entry_ttl(dir));
                let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
                reply.created(&ttl, &attr, Generation(0), fh, flags);
            }
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let how = if flags.0 & O_NOATIME != 0 { Data::ReadNoAtime } else { Data::Read };
        thread_local! {
            /// Pages that the thread has already.
            static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            buffer.resize(buffer.len().max(size), 0);
            let fd = self.io(ino, Some(fh), how);
            match fd.and_then(|fd| self.keeper.pread(fd, &mut buffer[..size], offset as i64)) {
                Ok(n) => reply.data(&buffer[..n]),
                Err(errno) => reply.error(error(errno)),
            }
        });
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let n = self.io(ino, Some(fh), Data::Write).and_then(|fd| {
            let kill = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
            let who = match kill && self.has_set_id(ino)? {
                true => self.callers.identity(req).allowed(false),
                false => Identity::owner(req),
            };
            self.change_as(who, 0, |task| task.pwrite(fd, data, offset as i64))
        });
        match n {
            Ok(n) => reply.written(n as u32),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Nothing is held back that close(2) could still fail to write.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        send_empty(reply, self.keeper.close(fh.0 as i32));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(reply);
    }

    fn opendir(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.mode == Mode::AsSeen {
            // The kernel has checked; it caches what it reads, and never asks again.
            return reply.error(fuser::Errno::ENOSYS);
        }
        match self.open_as(req, ino, flags.0 | O_DIRECTORY) {
            Ok(fh) => reply.opened(fh, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn readdir(&self, _: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let done = self.entries(ino, fh, offset, |_, entry| {
            let kind = kind_of_entry(entry.kind);
            Ok(reply.add(INodeNo(entry.ino), entry.off as u64, kind, OsStr::from_bytes(&entry.name)))
        });
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let done = self.entries(ino, fh, offset, |dir, entry| {
            let name = OsStr::from_bytes(&entry.name);
            // The kernel counts no reference for the two dots.
            let dots = matches!(&*entry.name, b"." | b"..");
            let attr = match dots {
                true => file_attr(&Stat { ino: entry.ino, mode: S_IFDIR, ..Stat::default() }),
                false => match self.lookup_as(&self.keeper, dir, name) {
                    // Removed meanwhile.
                    Err(Errno::ENOENT) => return Ok(false),
                    found => found?,
                },
            };
            let full = reply.add(attr.ino, entry.off as u64, name, &LONG, &attr, Generation(0));
            if full && !dots {
                self.nodes.forget(attr.ino.0, 1);
            }
            Ok(full)
        });
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        send_empty(reply, self.keeper.close(fh.0 as i32));
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(reply);
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.nodes.place(ino.0).and_then(|place| self.keeper.fstatfs(place)) {
            Ok(s) => reply.statfs(
                s.blocks,
                s.bfree,
                s.bavail,
                s.files,
                s.ffree,
                s.bsize as u32,
                s.namelen as u32,
                s.frsize as u32,
            ),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let done = self.nodes.place(ino.0).and_then(|place| {
            let who = self.xattr_changer(req, ino, name)?;
            let set = |task: &Task| task.vfs_setxattr(place, name.as_bytes(), value, flags);
            self.tighten(place, || self.change_as(who, 0, set))
        });
        send_empty(reply, done);
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.nodes.place(ino.0).and_then(|place| {
            self.tasks.acting(self.xattr_actor(req, name), 0)?.vfs_getxattr(place, name.as_bytes())
        });
        send_xattr(reply, size, value);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let list = self.nodes.place(ino.0).and_then(|place| {
            let list = self.keeper.vfs_listxattr(place)?;
            // Who may not see trusted attributes is asked only if there are any.
            let trusted = |name: &[u8]| name.starts_with(b"trusted.");
            if !list.split(|&b| b == 0).any(trusted) || self.callers.identity(req).capable(CAP_SYS_ADMIN) {
                return Ok(list);
            }
            Ok(list.split_inclusive(|&b| b == 0).filter(|name| !trusted(name)).flatten().copied().collect())
        });
        send_xattr(reply, size, list);
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.nodes.place(ino.0).and_then(|place| {
            let who = self.xattr_changer(req, ino, name)?;
            self.tighten(place, || {
                self.change_as(who, 0, |task| task.vfs_removexattr(place, name.as_bytes()))
            })
        });
        send_empty(reply, done);
    }

    fn access(&self, req: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let done = self.nodes.place(ino.0).and_then(|place| {
            // Comes from access(2), but also from chdir(2), which is about directories and X_OK alone.
            let chdir = mask.bits() == X_OK && s_isdir(self.keeper.fstat(place)?.mode);
            let who = if chdir { self.callers.identity(req) } else { self.callers.for_access(req) };
            self.tasks.acting(who, 0)?.faccessat2(place, b"", mask.bits(), AT_EMPTY_PATH | AT_EACCESS)
        });
        send_empty(reply, done);
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        cmd: u32,
        data: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        match self.ioctl_of(req, ino, cmd, data) {
            Ok(out) => reply.ioctl(0, &out),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let done = self.io(ino, Some(fh), Data::Write).and_then(|fd| {
            let who = self.changer(req, ino)?;
            self.change_as(who, 0, |task| task.fallocate(fd, mode, offset as i64, length as i64))
        });
        send_empty(reply, done);
    }

    fn lseek(&self, _: &Request, ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let fd = self.io(ino, Some(fh), Data::Read);
        match fd.and_then(|fd| self.keeper.lseek(fd, offset, whence)) {
            Ok(at) => reply.offset(at),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let from = Range { ino: ino_in, fh: fh_in, offset: offset_in };
        let to = Range { ino: ino_out, fh: fh_out, offset: offset_out };
        match self.copy(req, from, to, len) {
            Ok(n) => reply.written(n),
            Err(errno) => reply.error(error(errno)),
        }
    }
}
