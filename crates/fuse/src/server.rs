//! The requests of the kernel, answered by calls of the engine.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::Builder;

use rcuwalk::acl::XATTR_NAME_POSIX_ACL_ACCESS;
use rcuwalk::cred::Cred;
use rcuwalk::uapi::*;
use rcuwalk::{CloneFlags, Errno, MountOptions, Result, Stat, Sysctl, Task, Vfs};
use zerocopy::IntoBytes;

use crate::attr::{attr_out, entry_out, statfs_out, wanted_times};
use crate::caller::{Callers, Identity, Strips, Tasks, has_ids};
use crate::covers::Covers;
use crate::nodes::{Data, Nodes, ROOT};
use crate::options::{ABOUT, LONG, Mode, Options};
use crate::protocol::*;

/// What a program that executes a file adds to the flags of opening it. Kernel: `__FMODE_EXEC`.
const FMODE_EXEC: i32 = 0x20;

/// The attribute that has a file's capabilities. Kernel: `XATTR_NAME_CAPS`.
const XATTR_CAPS: &[u8] = b"security.capability";

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
    device: Arc<OwnedFd>,
    /// Directories, by number, and names in them that the kernel is to ask for again; for a thread that waits for the directory's
    /// lock, which the kernel holds while a request is under way.
    expired: Sender<(u64, Box<[u8]>)>,
    covers: Arc<Covers>,
    /// [`Options::about`].
    about: String,
}

impl Server {
    pub(crate) fn new(
        vfs: &Vfs,
        options: &Options,
        device: Arc<OwnedFd>,
        covers: Arc<Covers>,
    ) -> Result<Server> {
        const MANY: u64 = 0x7fff_ffc0;
        let keeper = vfs.task(Cred::root());
        vfs.set_sysctl(Sysctl::NrOpen, MANY)?;
        keeper.set_nofile_limit(MANY as usize);
        if options.noatime {
            vfs.set_mount_options(MountOptions::default().with_noatime(true));
        }
        if options.mode == Mode::Engine {
            // Of these the kernel leaves part to the server: whether a link's source may be read and written.
            let host = std::fs::read_to_string("/proc/sys/fs/protected_hardlinks").ok();
            let value = host.and_then(|text| text.trim().parse().ok()).unwrap_or(1);
            vfs.set_sysctl(Sysctl::ProtectedHardlinks, value)?;
        }
        let (expired, to_expire) = mpsc::channel();
        let notified = Arc::clone(&device);
        // Without the thread it is as on a kernel that knows no notifications.
        let _ = Builder::new().name("rcuwalk-expire".into()).spawn(move || expire(&notified, to_expire));
        let share = || keeper.clone_with(CloneFlags::default().with_files(true));
        Ok(Server {
            mode: options.mode,
            // A caller that flushes the times of a file which another one wrote to is not to be judged.
            writeback: options.writeback && options.mode == Mode::AsSeen,
            nodes: Nodes::new(share()?)?,
            callers: Callers::default(),
            tasks: Tasks::new(share()?),
            kept: Some(vfs.clone()).filter(Vfs::is_kept),
            device,
            expired,
            covers,
            about: options.about.clone(),
            keeper,
        })
    }

    /// What the server asks the kernel for. A feature that the kernel does not offer costs speed, or is missing for all callers.
    pub(crate) fn wanted(&self) -> u64 {
        let mut wanted = init::ASYNC_READ
            | init::BIG_WRITES
            | init::DONT_MASK
            | init::HANDLE_KILLPRIV_V2
            | init::PARALLEL_DIROPS
            | init::CACHE_SYMLINKS
            | init::NO_OPEN_SUPPORT
            | init::NO_OPENDIR_SUPPORT
            | init::EXPLICIT_INVAL_DATA
            | init::ASYNC_DIO
            | init::SETXATTR_EXT
            | init::DIRECT_IO_ALLOW_MMAP;
        if self.mode == Mode::AsSeen {
            // Forces default_permissions.
            wanted |= init::POSIX_ACL;
            // An entry that comes with READDIRPLUS counts as looked up, for which the engine would have to judge each.
            wanted |= init::DO_READDIRPLUS | init::READDIRPLUS_AUTO;
        }
        if self.mode == Mode::AsSeen {
            // Without default_permissions the kernel refuses, and the mount fails.
            wanted |= init::ALLOW_IDMAP;
        }
        if self.writeback {
            wanted |= init::WRITEBACK_CACHE;
        }
        wanted
    }

    /// Makes all that was done durable: what keeps the tree commits it whole.
    fn sync(&self) -> Result<()> {
        // Without, there is no disk; the kernel need not ask again.
        self.kept.as_ref().map_or(Err(Errno::ENOSYS), Vfs::sync)
    }

    /// As whom the engine acts for a caller.
    fn actor(&self, req: &Header) -> Identity {
        match self.mode {
            Mode::AsSeen => Identity::owner(req),
            Mode::Engine => self.callers.identity(req),
        }
    }

    /// Runs a change. Every request that changes something passes here.
    fn change_as<R>(&self, who: Identity, umask: u32, change: impl FnOnce(&Task) -> Result<R>) -> Result<R> {
        change(&*self.tasks.acting(who, umask)?)
    }

    /// As whom the engine decides whether a caller may have `want` (`R_OK`, `W_OK`, `X_OK`) of what `place` stands for.
    fn asker(&self, req: &Header, place: i32, want: i32) -> Result<Identity> {
        Ok(self.bare_asker(req, place, want)?.unwrap_or_else(|| self.callers.identity(req)))
    }

    /// The same for callers whose groups and capabilities do not matter, and need not be looked up: the owner, and all if the mode allows it
    /// everybody.
    fn bare_asker(&self, req: &Header, place: i32, want: i32) -> Result<Option<Identity>> {
        let (st, want) = (self.keeper.fstat(place)?, want as u32);
        let classes = if req.uid == st.uid { want << 6 } else { want << 6 | want << 3 | want };
        let enough = st.mode & classes == classes && !self.has_acl(place);
        Ok(enough.then(|| Identity::bare(req)))
    }

    /// Whether it is the engine that judges, and an owner whom it judges.
    fn owns(&self, req: &Header) -> Result<bool> {
        Ok(self.mode == Mode::Engine && self.stat(req.nodeid)?.uid == req.uid)
    }

    /// As whom the engine adds names to a directory, and takes them away. Its owner, whom the mode allows it, needs neither groups
    /// nor capabilities for that, as long as nothing is made whose mode or type depends on them.
    fn dir_changer(&self, req: &Header, dir: i32, mode: u32) -> Result<Identity> {
        let plain = mode & S_ISGID == 0 && !matches!(mode & S_IFMT, S_IFCHR | S_IFBLK);
        if plain && self.owns(req)? { self.asker(req, dir, W_OK | X_OK) } else { Ok(self.actor(req)) }
    }

    /// Who changes a file, as far as its set-id bits are concerned, which the kernel leaves to the server
    /// (`FUSE_HANDLE_KILLPRIV_V2`): whether they have to go, if it says so.
    fn changer(&self, req: &Header, kill: Option<bool>) -> Result<Identity> {
        if self.mode == Mode::Engine {
            return Ok(self.callers.identity(req));
        }
        if kill == Some(false) || !self.has_set_id(req.nodeid)? {
            return Ok(Identity::owner(req));
        }
        // Not even then if set-group-id is without execute permission, and the group one of theirs.
        let who = self.callers.identity(req);
        let keeps = kill.is_none() && who.capable(CAP_FSETID);
        Ok(who.allowed(keeps))
    }

    /// As whom the engine reads an attribute. Who may have to do with file capabilities the kernel judges in either mode; an ACL
    /// everybody may read, and its ids are to be the server's.
    fn xattr_reader(&self, req: &Header, name: &[u8]) -> Identity {
        if name == XATTR_CAPS || has_ids(name) { Identity::owner(req) } else { self.actor(req) }
    }

    /// As whom it changes one: an access ACL may take set-group-id away.
    fn xattr_changer(&self, req: &Header, name: &[u8], kill: Option<bool>) -> Result<Identity> {
        match name {
            XATTR_CAPS => Ok(Identity::owner(req)),
            XATTR_NAME_POSIX_ACL_ACCESS => self.changer(req, kill),
            _ => Ok(self.actor(req)),
        }
    }

    fn has_set_id(&self, ino: u64) -> Result<bool> {
        Ok(self.stat(ino)?.mode & (S_ISUID | S_ISGID) != 0)
    }

    fn stat(&self, ino: u64) -> Result<Stat> {
        self.keeper.fstat(self.nodes.place(ino)?)
    }

    /// Looks `name` up and names what is there for the kernel.
    fn lookup_as(&self, task: &Task, parent: i32, name: &[u8]) -> Result<Stat> {
        self.nodes.remember(task.openat(parent, name, O_PATH | O_NOFOLLOW, 0)?)
    }

    /// For how many seconds the kernel may use an entry of this directory without asking.
    fn entry_ttl(&self, dir: i32) -> u64 {
        if self.mode == Mode::AsSeen || self.searchable_by_all(dir) { LONG } else { 0 }
    }

    /// Whether every user may search the directory.
    fn searchable_by_all(&self, place: i32) -> bool {
        let searchable = |mode: u32| mode & S_IFMT == S_IFDIR && mode & 0o111 == 0o111;
        self.keeper.fstat(place).is_ok_and(|st| searchable(st.mode)) && !self.has_acl(place)
    }

    fn has_acl(&self, place: i32) -> bool {
        self.keeper.vfs_getxattr(place, XATTR_NAME_POSIX_ACL_ACCESS) != Err(Errno::ENODATA)
    }

    /// Runs a change of a directory's permissions; if it was open to everybody before and is not any more, the kernel is made
    /// to ask again for every entry it knows.
    fn tighten<R>(&self, ino: u64, place: i32, change: impl FnOnce() -> Result<R>) -> Result<R> {
        let was_open = self.mode == Mode::Engine && self.searchable_by_all(place);
        let done = change()?;
        if was_open && !self.searchable_by_all(place) && !self.forget_all() {
            self.expire_all(ino, place)?;
        }
        Ok(done)
    }

    /// Makes the kernel ask again for every name in a directory.
    fn expire_all(&self, ino: u64, place: i32) -> Result<()> {
        let fd = self.keeper.dentry_open(place, O_RDONLY | O_DIRECTORY)?;
        let mut batch = Vec::new();
        let listed = loop {
            match self.keeper.getdents(fd, &mut batch, BATCH) {
                Ok(0) => break Ok(()),
                Ok(_) => batch.drain(..).for_each(|entry| self.expire(ino, &entry.name)),
                Err(errno) => break Err(errno),
            }
        };
        self.keeper.close(fd)?;
        listed
    }

    /// Makes the kernel ask again for everything, unless that would unmount something. Whether it did.
    fn forget_all(&self) -> bool {
        let safe = !self.covers.may_exist();
        if safe {
            self.notify(NOTIFY_INC_EPOCH, &[]);
        }
        safe
    }

    /// Makes the kernel ask again for one name, a moment after it has the answer that is under way.
    fn expire(&self, dir: u64, name: &[u8]) {
        let _ = self.expired.send((dir, name.into()));
    }

    /// Tells the kernel to forget.
    fn notify(&self, code: i32, what: &[u8]) {
        notify(&self.device, code, what);
    }

    /// The descriptor for I/O: the handle's, or the node's own.
    fn io(&self, ino: u64, fh: Option<u64>, how: Data) -> Result<i32> {
        match (self.mode, fh) {
            (Mode::Engine, Some(fh)) => Ok(fh as i32),
            _ => self.nodes.data(ino, how),
        }
    }

    fn setattr(&self, req: &Header, new: &SetattrIn) -> Result<Stat> {
        let place = self.nodes.place(req.nodeid)?;
        let has = |fields: u32| new.valid & fields != 0;
        if !has(fattr::ALL) {
            self.strip(req, place)?;
            return self.keeper.fstat(place);
        }
        let owner = has(fattr::UID | fattr::GID);
        let stacked = self.to_put_back(req, place, new)?;
        let who = match owner {
            // What the other file system does, the kernel has judged; and it does not tell the id of the user who mounted that.
            true if stacked.is_some() && self.mode == Mode::AsSeen => Identity::owner(req),
            // That the bits have to go may be more than the caller can do, and the kernel did not ask.
            true if self.has_set_id(req.nodeid)? => self.callers.identity(req),
            false if has(fattr::SIZE) => self.changer(req, Some(has(fattr::KILL_SUIDGID)))?,
            // Groups and capabilities give an owner no more than set-group-id.
            false if new.mode & S_ISGID == 0 && self.owns(req)? => Identity::bare(req),
            _ => self.actor(req),
        };
        let id = |field, id| if has(field) { id } else { u32::MAX };
        let (uid, gid) = who.numbers((id(fattr::UID, new.uid), id(fattr::GID, new.gid)));
        self.tighten(req.nodeid, place, || {
            self.change_as(who, 0, |task| {
                if owner {
                    task.fchownat(place, b"", uid, gid, AT_EMPTY_PATH)?;
                }
                if has(fattr::MODE) {
                    task.fchmodat2(place, b"", new.mode & S_IALLUGO, AT_EMPTY_PATH)?;
                }
                if has(fattr::SIZE) {
                    let fh = has(fattr::FH).then_some(new.fh);
                    self.truncate(task, req.nodeid, place, new.size, fh)?;
                }
                self.put_back(place, stacked.as_ref())?;
                let times = wanted_times(new);
                if times.iter().any(|t| t.nsec != UTIME_OMIT) {
                    task.utimensat(place, Some(b""), Some(times), AT_EMPTY_PATH)?;
                }
                Ok(())
            })
        })?;
        self.keeper.fstat(place)
    }

    /// The mode and the file capabilities that are to outlive a SETATTR. chown(2) and truncate(2) take them away; but a file system that
    /// lies over this one gives a copy that it has made its metadata, the size and the owner, too, and its requests are the same.
    fn to_put_back(
        &self,
        req: &Header,
        place: i32,
        new: &SetattrIn,
    ) -> Result<Option<(u32, Option<Vec<u8>>)>> {
        let strips = match new.valid {
            valid if valid & (fattr::UID | fattr::GID) != 0 => Strips::Chown,
            valid if valid & fattr::SIZE != 0 => Strips::Truncate,
            _ => return Ok(None),
        };
        let st = self.keeper.fstat(place)?;
        let caps = self.keeper.vfs_getxattr(place, XATTR_CAPS).ok();
        let may_lose = match strips {
            Strips::Chown => !s_isdir(st.mode) && (st.mode & (S_ISUID | S_ISGID) != 0 || caps.is_some()),
            Strips::Truncate => caps.is_some() && new.size == st.size as u64,
        };
        let mode = if new.valid & fattr::MODE != 0 { new.mode } else { st.mode };
        Ok((may_lose && !self.callers.may_be_in(req, strips)).then_some((mode & S_IALLUGO, caps)))
    }

    fn put_back(&self, place: i32, lost: Option<&(u32, Option<Vec<u8>>)>) -> Result<()> {
        let Some((mode, caps)) = lost else { return Ok(()) };
        self.keeper.fchmodat2(place, b"", *mode, AT_EMPTY_PATH)?;
        caps.as_ref().map_or(Ok(()), |caps| self.keeper.vfs_setxattr(place, XATTR_CAPS, caps, 0))
    }

    /// Takes set-id bits away for a SETATTR that names no field: what is left of a chown(2) that changes no id, and of what the
    /// kernel does before a write. The two cannot be told apart.
    fn strip(&self, req: &Header, place: i32) -> Result<()> {
        let who = self.callers.identity(req);
        let chown = |task: &Task| task.fchownat(place, b"", u32::MAX, u32::MAX, AT_EMPTY_PATH);
        match self.change_as(who.clone(), 0, chown) {
            Err(Errno::EPERM) => {}
            done => return done,
        }
        let may_write =
            self.tasks.acting(who.clone(), 0)?.faccessat2(place, b"", W_OK, AT_EMPTY_PATH | AT_EACCESS);
        match may_write {
            Ok(()) => self.change_as(who.allowed(false), 0, chown),
            // Nothing happens. If the caller writes although it could not open the file any more, the write itself strips the bits.
            Err(_) => Ok(()),
        }
    }

    fn truncate(&self, task: &Task, ino: u64, place: i32, size: u64, fh: Option<u64>) -> Result<()> {
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
    fn open_as(&self, req: &Header, flags: i32) -> Result<u64> {
        let place = self.nodes.place(req.nodeid)?;
        // What is executed need not be readable.
        if flags & FMODE_EXEC != 0 {
            let who = self.asker(req, place, X_OK)?;
            self.tasks.acting(who, 0)?.faccessat2(place, b"", X_OK, AT_EMPTY_PATH | AT_EACCESS)?;
            return Ok(self.keeper.dentry_open(place, O_RDONLY)? as u64);
        }
        let who = match flags & O_ACCMODE {
            // For the owner, or a caller with `CAP_FOWNER`.
            _ if flags & O_NOATIME != 0 => self.callers.identity(req),
            O_RDONLY => self.asker(req, place, R_OK)?,
            O_WRONLY => self.asker(req, place, W_OK)?,
            _ => self.asker(req, place, R_OK | W_OK)?,
        };
        // The kernel gives the offset, also of what is appended.
        let known = O_ACCMODE | O_APPEND | O_TRUNC | O_NOATIME | O_DIRECTORY;
        Ok(self.tasks.acting(who, 0)?.dentry_open(place, flags & known)? as u64)
    }

    /// Creates and opens a file, without a name if `name` is none; where the kernel judges, the node is all that stays.
    fn create(&self, req: &Header, new: &CreateIn, name: Option<&[u8]>, reply: &mut Reply) -> Result<()> {
        let dir = self.nodes.place(req.nodeid)?;
        let flags = new.flags & (O_ACCMODE | O_APPEND | O_TRUNC | O_NOATIME | O_EXCL);
        let fd = self.change_as(self.dir_changer(req, dir, new.mode)?, new.umask, |task| match name {
            Some(name) => task.openat(dir, name, flags | O_CREAT | O_NOFOLLOW, new.mode),
            None => task.openat(dir, b".", flags & !O_TRUNC | O_TMPFILE, new.mode),
        })?;
        let entry = self.keeper.dentry_open(fd, O_PATH).and_then(|place| self.nodes.remember(place));
        if entry.is_err() || self.mode == Mode::AsSeen {
            self.keeper.close(fd)?;
        }
        reply.put(&entry_out(&entry?, self.entry_ttl(dir), LONG));
        reply.put(&OpenOut { fh: fd as u64, open_flags: fopen::KEEP_CACHE | fopen::NOFLUSH, padding: 0 });
        Ok(())
    }

    /// Makes something in a directory, and names it for the kernel.
    fn make(
        &self,
        req: &Header,
        name: &[u8],
        (mode, umask): (u32, u32),
        reply: &mut Reply,
        make: impl FnOnce(&Task, i32) -> Result<()>,
    ) -> Result<()> {
        let dir = self.nodes.place(req.nodeid)?;
        self.change_as(self.dir_changer(req, dir, mode)?, umask, |task| make(task, dir))?;
        self.put_made(dir, name, reply)
    }

    /// Tells of a name that was just made.
    fn put_made(&self, dir: i32, name: &[u8], reply: &mut Reply) -> Result<()> {
        // No other request changes this directory until the kernel has the answer, because the kernel holds its lock.
        let made = self.lookup_as(&self.keeper, dir, name)?;
        reply.put(&entry_out(&made, self.entry_ttl(dir), LONG));
        Ok(())
    }

    /// Runs `give` for the entries of a directory from an offset on, until it has no more room.
    fn entries(
        &self,
        req: &Header,
        from: &ReadIn,
        mut give: impl FnMut(i32, &rcuwalk::Dirent) -> Result<bool>,
    ) -> Result<()> {
        let place = self.nodes.place(req.nodeid)?;
        let fd = match self.mode {
            Mode::AsSeen => self.keeper.dentry_open(place, O_RDONLY | O_DIRECTORY)?,
            Mode::Engine => from.fh as i32,
        };
        let done = self.keeper.lseek(fd, from.offset as i64, SEEK_SET).and_then(|_| {
            let mut batch = Vec::with_capacity(BATCH);
            loop {
                batch.clear();
                if self.keeper.getdents(fd, &mut batch, BATCH)? == 0 {
                    return Ok(());
                }
                for entry in &batch {
                    if !give(place, entry)? {
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
    fn ioctl(&self, req: &Header, cmd: u32, data: &[u8]) -> Result<Vec<u8>> {
        let place = self.nodes.place(req.nodeid)?;
        let fd = self.keeper.dentry_open(place, O_RDONLY)?;
        let done = match cmd {
            FS_IOC_GETFLAGS => self.keeper.getflags(fd).map(|flags| flags.to_ne_bytes().to_vec()),
            FS_IOC_FSGETXATTR => self.keeper.getflags(fd).map(|flags| fsxattr_of(flags).to_vec()),
            FS_IOC_SETFLAGS => self.setflags(req, fd, data.first_chunk().map(|b| u32::from_ne_bytes(*b))),
            FS_IOC_FSSETXATTR => self.setflags(req, fd, flags_of(data)),
            _ => Err(Errno::ENOTTY),
        };
        self.keeper.close(fd)?;
        done
    }

    fn setflags(&self, req: &Header, fd: i32, flags: Option<u32>) -> Result<Vec<u8>> {
        let flags = flags.ok_or(Errno::EINVAL)?;
        // In either mode the kernel asks for the owner and for CAP_LINUX_IMMUTABLE.
        self.change_as(Identity::owner(req), 0, |task| task.setflags(fd, flags))?;
        // It does not see that this changes the time of change.
        self.notify(NOTIFY_INVAL_INODE, NotifyInvalInodeOut { ino: req.nodeid, off: -1, len: 0 }.as_bytes());
        Ok(Vec::new())
    }

    fn copy(&self, req: &Header, copy: &CopyFileRangeIn, most: u64) -> Result<u64> {
        let source = self.io(req.nodeid, Some(copy.fh_in), Data::Read)?;
        let target = self.io(copy.nodeid_out, Some(copy.fh_out), Data::Write)?;
        let (mut at, mut into) = (copy.off_in as i64, copy.off_out as i64);
        let who = self.changer(&Header { nodeid: copy.nodeid_out, ..*req }, None)?;
        let len = copy.len.min(most) as usize;
        self.change_as(who, 0, |task| {
            task.copy_file_range(source, Some(&mut at), target, Some(&mut into), len, 0)
        })
        .map(|n| n as u64)
    }
}

/// The requests.
impl Server {
    /// Does what a request asks for, and puts what there is to say into `reply`.
    pub(crate) fn answer(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let req = &request.header;
        match request.operation? {
            Operation::Lookup { name } => self.lookup(req, name, reply),
            Operation::Forget(ForgetOne { nodeid, nlookup }) => {
                self.nodes.forget(nodeid, nlookup);
                Ok(())
            }
            Operation::BatchForget(forgets) => {
                forgets.for_each(|one| self.nodes.forget(one.nodeid, one.nlookup));
                Ok(())
            }
            Operation::Getattr => {
                reply.put(&attr_out(&self.stat(req.nodeid)?, LONG));
                Ok(())
            }
            Operation::Statx(what) => self.statx(req, &what, reply),
            Operation::Setattr(new) => {
                reply.put(&attr_out(&self.setattr(req, &new)?, LONG));
                Ok(())
            }
            Operation::Readlink => {
                reply.extend(&self.keeper.readlinkat(self.nodes.place(req.nodeid)?, b"")?);
                Ok(())
            }
            Operation::Symlink { name, target } => {
                self.make(req, name, (0, 0), reply, |task, dir| task.symlinkat(target, dir, name))
            }
            Operation::Mknod(new, name) => self.make(req, name, (new.mode, new.umask), reply, |task, dir| {
                task.mknodat(dir, name, new.mode, u64::from(new.rdev))
            }),
            Operation::Mkdir(new, name) => self
                .make(req, name, (new.mode, new.umask), reply, |task, dir| task.mkdirat(dir, name, new.mode)),
            Operation::Link(LinkIn { oldnodeid }, name) => self.link(req, oldnodeid, name, reply),
            Operation::Unlink { name } => self.remove(req, name, 0),
            Operation::Rmdir { name } => self.remove(req, name, AT_REMOVEDIR),
            Operation::Rename { name, newdir, newname, flags } => {
                self.rename(req, name, newdir, newname, flags)
            }
            Operation::Statfs => {
                reply.put(&statfs_out(&self.keeper.fstatfs(self.nodes.place(req.nodeid)?)?));
                Ok(())
            }
            Operation::Access(AccessIn { mask, .. }) => self.access(req, mask),
            Operation::Destroy => Ok(()),
            Operation::Init(..) => Err(Errno::EIO),
            operation => self.answer_open(req, operation, reply),
        }
    }

    /// The same for requests about contents and attributes of one inode.
    fn answer_open(&self, req: &Header, operation: Operation<'_>, reply: &mut Reply) -> Result<()> {
        let ino = req.nodeid;
        match operation {
            Operation::Open(OpenIn { flags, .. }) => {
                self.open(req, flags, fopen::KEEP_CACHE | fopen::NOFLUSH, reply)
            }
            Operation::Opendir(OpenIn { flags, .. }) => {
                self.open(req, flags | O_DIRECTORY, fopen::KEEP_CACHE | fopen::CACHE_DIR, reply)
            }
            // The kernel makes do with MKNOD, and has no handle to release.
            Operation::Create(..) if self.mode == Mode::AsSeen => Err(Errno::ENOSYS),
            Operation::Create(new, name) => self.create(req, &new, Some(name), reply),
            Operation::Tmpfile(new) => self.create(req, &new, None, reply),
            Operation::Release(_) | Operation::Releasedir(_) if self.mode == Mode::AsSeen => Ok(()),
            Operation::Release(ReleaseIn { fh, .. }) | Operation::Releasedir(ReleaseIn { fh, .. }) => {
                self.keeper.close(fh as i32)
            }
            Operation::Read(read) => {
                let how = if read.flags & O_NOATIME != 0 { Data::ReadNoAtime } else { Data::Read };
                let fd = self.io(ino, Some(read.fh), how)?;
                let size = (read.size as usize).min(MAX_DATA);
                reply.fill(size, |buffer| self.keeper.pread(fd, buffer, read.offset as i64))
            }
            Operation::Write(write, data) => {
                let size = self.write(req, &write, data)? as u32;
                reply.put(&WriteOut { size, padding: 0 });
                Ok(())
            }
            Operation::Readdir(from) => self.readdir(req, &from, reply),
            Operation::Readdirplus(from) => self.readdirplus(req, &from, reply),
            Operation::Fsync => self.sync(),
            Operation::Fallocate(FallocateIn { fh, offset, length, mode, .. }) => {
                let fd = self.io(ino, Some(fh), Data::Write)?;
                let who = self.changer(req, None)?;
                self.change_as(who, 0, |task| task.fallocate(fd, mode, offset as i64, length as i64))
            }
            // What the kernel still holds back would be a hole, and the end of the file not where it is.
            Operation::Lseek(_) if self.writeback => Err(Errno::ENOSYS),
            Operation::Lseek(LseekIn { fh, offset, whence, .. }) => {
                let offset = self.keeper.lseek(self.io(ino, Some(fh), Data::Read)?, offset, whence)?;
                reply.put(&LseekOut { offset });
                Ok(())
            }
            Operation::CopyFileRange(copy) => {
                // The answer has 32 bits for it; the caller asks for the rest.
                let size = self.copy(req, &copy, 1 << 30)? as u32;
                reply.put(&WriteOut { size, padding: 0 });
                Ok(())
            }
            Operation::CopyFileRange64(copy) => {
                reply.put(&CopyFileRangeOut { bytes_copied: self.copy(req, &copy, i64::MAX as u64)? });
                Ok(())
            }
            Operation::Setxattr { kill_sgid, name, value, flags } => {
                let place = self.nodes.place(ino)?;
                let who = self.xattr_changer(req, name, kill_sgid)?;
                let value = who.value(name, value);
                self.tighten(req.nodeid, place, || {
                    self.change_as(who, 0, |task| task.vfs_setxattr(place, name, &value, flags))
                })
            }
            Operation::Removexattr { name } => {
                let place = self.nodes.place(ino)?;
                let who = self.xattr_changer(req, name, None)?;
                self.tighten(req.nodeid, place, || {
                    self.change_as(who, 0, |task| task.vfs_removexattr(place, name))
                })
            }
            Operation::Getxattr(GetxattrIn { size, .. }, name)
                if ino == ROOT && name == ABOUT.as_bytes() && !self.about.is_empty() =>
            {
                put_xattr(reply, size, self.about.as_bytes())
            }
            Operation::Getxattr(GetxattrIn { size, .. }, name) => {
                let place = self.nodes.place(ino)?;
                let value = self.tasks.acting(self.xattr_reader(req, name), 0)?.vfs_getxattr(place, name)?;
                put_xattr(reply, size, &value)
            }
            Operation::Listxattr(GetxattrIn { size, .. }) => put_xattr(reply, size, &self.listxattr(req)?),
            Operation::Ioctl(ioctl, data) => {
                let out = self.ioctl(req, ioctl.cmd, data)?;
                reply.put(&IoctlOut::default());
                reply.extend(&out);
                Ok(())
            }
            _ => Err(Errno::ENOSYS),
        }
    }

    fn lookup(&self, req: &Header, name: &[u8], reply: &mut Reply) -> Result<()> {
        let dir = self.nodes.place(req.nodeid)?;
        let ttl = self.entry_ttl(dir);
        let found = match self.mode {
            Mode::AsSeen => self.lookup_as(&self.keeper, dir, name),
            Mode::Engine => {
                let who = self.asker(req, dir, X_OK)?;
                self.lookup_as(&*self.tasks.acting(who, 0)?, dir, name)
            }
        };
        match found {
            // There is nothing, for as long.
            Err(Errno::ENOENT) if ttl > 0 => reply.put(&EntryOut { entry_valid: ttl, ..EntryOut::default() }),
            found => reply.put(&entry_out(&found?, ttl, LONG)),
        }
        Ok(())
    }

    fn statx(&self, req: &Header, what: &StatxIn, reply: &mut Reply) -> Result<()> {
        let mask = what.sx_mask & (STATX_BASIC_STATS | STATX_BTIME);
        let st = self.keeper.statx(self.nodes.place(req.nodeid)?, b"", AT_EMPTY_PATH, mask)?;
        reply.put(&StatxOut { attr_valid: LONG, ..StatxOut::default() });
        // `struct fuse_statx` is `struct statx`, in which the kernel leaves alone what it knows better: devices and mounts.
        reply.extend(st.as_bytes());
        Ok(())
    }

    fn link(&self, req: &Header, old: u64, name: &[u8], reply: &mut Reply) -> Result<()> {
        let (place, dir) = (self.nodes.place(old)?, self.nodes.place(req.nodeid)?);
        self.change_as(self.actor(req), 0, |task| {
            // Who has opened a file may name it without more rights.
            let opened = task.dentry_open(place, O_PATH)?;
            let done = task.linkat(opened, b"", dir, name, AT_EMPTY_PATH);
            task.close(opened)?;
            done
        })?;
        self.put_made(dir, name, reply)
    }

    fn remove(&self, req: &Header, name: &[u8], flags: i32) -> Result<()> {
        let dir = self.nodes.place(req.nodeid)?;
        self.change_as(self.dir_changer(req, dir, 0)?, 0, |task| task.unlinkat(dir, name, flags))
    }

    fn rename(&self, req: &Header, name: &[u8], newdir: u64, newname: &[u8], flags: u32) -> Result<()> {
        let (old, new) = (self.nodes.place(req.nodeid)?, self.nodes.place(newdir)?);
        self.change_as(self.actor(req), 0, |task| task.renameat2(old, name, new, newname, flags))?;
        // The kernel takes along for how long it may use the entry.
        let closes = |from, to| self.searchable_by_all(from) && !self.searchable_by_all(to);
        let exchanged = flags & RENAME_EXCHANGE != 0;
        let moved = [(closes(old, new), newdir, newname), (exchanged && closes(new, old), req.nodeid, name)];
        if self.mode == Mode::Engine && moved.iter().any(|(closes, ..)| *closes) && !self.forget_all() {
            moved.iter().filter(|(closes, ..)| *closes).for_each(|(_, dir, name)| self.expire(*dir, name));
        }
        Ok(())
    }

    fn open(&self, req: &Header, flags: i32, open_flags: u32, reply: &mut Reply) -> Result<()> {
        if self.mode == Mode::AsSeen {
            // The kernel has checked, caches what it reads, and never asks again.
            return Err(Errno::ENOSYS);
        }
        reply.put(&OpenOut { fh: self.open_as(req, flags)?, open_flags, padding: 0 });
        Ok(())
    }

    fn write(&self, req: &Header, write: &WriteIn, data: &[u8]) -> Result<usize> {
        let fd = self.io(req.nodeid, Some(write.fh), Data::Write)?;
        let kill = write.write_flags & WRITE_KILL_SUIDGID != 0;
        let who = match kill && self.has_set_id(req.nodeid)? {
            true => self.changer(req, Some(true))?,
            false => Identity::owner(req),
        };
        self.change_as(who, 0, |task| task.pwrite(fd, data, write.offset as i64))
    }

    fn readdir(&self, req: &Header, from: &ReadIn, reply: &mut Reply) -> Result<()> {
        let size = from.size as usize;
        self.entries(req, from, |_, entry| Ok(reply.dirent(size, None, entry)))
    }

    fn readdirplus(&self, req: &Header, from: &ReadIn, reply: &mut Reply) -> Result<()> {
        let size = from.size as usize;
        self.entries(req, from, |dir, entry| {
            // The kernel counts no reference for the two dots.
            let dots = matches!(&*entry.name, b"." | b"..");
            let plus = match dots {
                true => EntryOut::default(),
                false => match self.lookup_as(&self.keeper, dir, &entry.name) {
                    // Removed meanwhile.
                    Err(Errno::ENOENT) => return Ok(true),
                    found => entry_out(&found?, LONG, LONG),
                },
            };
            let fits = reply.dirent(size, Some(&plus), entry);
            if !fits && !dots {
                self.nodes.forget(plus.nodeid, 1);
            }
            Ok(fits)
        })
    }

    fn listxattr(&self, req: &Header) -> Result<Vec<u8>> {
        let list = self.keeper.vfs_listxattr(self.nodes.place(req.nodeid)?)?;
        // Who may not see trusted attributes is asked only if there are any.
        let trusted = |name: &[u8]| name.starts_with(b"trusted.");
        if !list.split(|&b| b == 0).any(trusted) || self.callers.identity(req).capable(CAP_SYS_ADMIN) {
            return Ok(list);
        }
        Ok(list.split_inclusive(|&b| b == 0).filter(|name| !trusted(name)).flatten().copied().collect())
    }

    fn access(&self, req: &Header, mask: u32) -> Result<()> {
        let place = self.nodes.place(req.nodeid)?;
        let mask = mask as i32;
        // Comes from access(2), but also from chdir(2), which is about directories and X_OK alone.
        let chdir = mask == X_OK && s_isdir(self.keeper.fstat(place)?.mode);
        let who = self.bare_asker(req, place, mask)?.unwrap_or_else(|| match chdir {
            true => self.callers.identity(req),
            false => self.callers.for_access(req),
        });
        self.tasks.acting(who, 0)?.faccessat2(place, b"", mask, AT_EMPTY_PATH | AT_EACCESS)
    }
}

/// Sends the kernel a message that no request asked for.
fn notify(device: &OwnedFd, code: i32, what: &[u8]) {
    let len = (size_of::<OutHeader>() + what.len()) as u32;
    let header = OutHeader { len, error: code, unique: 0 };
    // It may not know what is meant; a kernel older than 6.16 knows no epochs, and docs/mount.md says what that means.
    let _ = rustix::io::write(device, &[header.as_bytes(), what].concat());
}

fn expire(device: &OwnedFd, entries: Receiver<(u64, Box<[u8]>)>) {
    for (parent, name) in entries {
        let entry = NotifyInvalEntryOut { parent, namelen: name.len() as u32, flags: EXPIRE_ONLY };
        notify(device, NOTIFY_INVAL_ENTRY, &[entry.as_bytes(), &name, b"\0"].concat());
    }
}

/// A value or list in the way of getxattr(2): its size if there is no room.
fn put_xattr(reply: &mut Reply, size: u32, value: &[u8]) -> Result<()> {
    match value.len() {
        len if size == 0 => reply.put(&GetxattrOut { size: len as u32, padding: 0 }),
        len if len > size as usize => return Err(Errno::ERANGE),
        _ => reply.extend(value),
    }
    Ok(())
}
