//! The scanning threads: read directories, look at every entry, send [`Batch`]es.
//!
//! **Nothing is followed out of the tree.** A directory is opened relative to a directory descriptor with
//! `openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)` (component by component with `O_NOFOLLOW` where there is no
//! openat2), and must then be the inode that its parent listed; an entry is looked at relative to its directory and
//! never followed. If a directory is renamed meanwhile, or a symbolic link takes its place, that entry alone counts as
//! vanished.
//!
//! **Order.** The inserting thread must see a directory before what lies in it. A thread works through its own jobs and
//! sends its entries in that order; before it gives jobs away, it sends what it has. So the entry of a directory is
//! always in the channel before the thread that opens it has begun.
//!
//! **Descriptors.** A job names its directory by a path from an *anchor*, an open directory above it. A directory
//! becomes a new anchor when that path gets long, so depth is not bounded by PATH_MAX and the descriptors open at one
//! time are one for each thread and one for each 2 KiB of path above it.
//!
//! **Access times.** Reading a directory, a link or a file moves its access time, and a tree that is compared with the
//! kernel's answers later must hold what they then say. So things are read first and their attributes after; where that
//! is too late (a directory's attributes come with its parent), `O_NOATIME` is used, and if it is refused the attributes
//! are sent again.

use std::collections::HashSet;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use rcuwalk::perm::{IFLAG_APPEND, IFLAG_IMMUTABLE, IFLAG_NOATIME};
use rcuwalk::uapi::{PATH_MAX, XATTR_LIST_MAX, XATTR_SIZE_MAX, s_isdir, s_islnk, s_isreg};
use rcuwalk::{Errno, Timespec};
use rustix::fs::{
    AtFlags, FileType, FsWord, IFlags, Mode, OFlags, PROC_SUPER_MAGIC, RawDir, ResolveFlags, SeekFrom, Statx,
    StatxAttributes, StatxFlags, StatxTimestamp,
};
use rustix::io::Errno as OsErrno;

use crate::batch::{Batch, Dir, Entry, Meta, ROOT, Refresh, Span, Token, Write, join};
use crate::import::ImportOptions;
use crate::outcome::{Problem, Progress};
use crate::queue::{Anchor, Job, Queue};

/// A batch is sent when it holds this many entries …
const FULL_ENTRIES: usize = 256;
/// … or this many bytes.
const FULL_BYTES: usize = 512 << 10;
/// File contents are read in pieces of this size.
const READ_SIZE: usize = 256 << 10;
/// A directory whose path from its anchor is longer becomes an anchor: with one more name, still below PATH_MAX.
const ANCHOR_AT: usize = 2048;
/// Buffer of one getdents64 call.
const DIRENTS_SIZE: usize = 64 << 10;
/// First try of a listxattr call; most files have none. XATTR_LIST_MAX is the second.
const LIST_SIZE: usize = 1024;

const DIR_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// The scan must end: it was cancelled, or the inserting thread has gone.
struct Stop;

pub(crate) fn errno(e: OsErrno) -> Errno {
    Errno::from_raw(e.raw_os_error()).unwrap_or(Errno::EIO)
}

/// What all scanning threads share.
pub(crate) struct Scan<'a> {
    options: &'a ImportOptions,
    progress: &'a Progress,
    queue: Queue,
    next_token: AtomicU32,
    has_openat2: bool,
    /// Files with several names whose contents some thread reads.
    claimed: Mutex<HashSet<(u64, u64)>>,
}

impl<'a> Scan<'a> {
    /// A scan of the directory open as `root`, whose path is `path`, by `threads` threads.
    pub(crate) fn new(
        root: OwnedFd,
        path: Vec<u8>,
        meta: &Meta,
        threads: usize,
        options: &'a ImportOptions,
        progress: &'a Progress,
    ) -> Scan<'a> {
        let has_openat2 =
            rustix::fs::openat2(&root, c".", DIR_FLAGS, Mode::empty(), ResolveFlags::BENEATH).is_ok();
        let anchor = Arc::new(Anchor { fd: root, path });
        let job = Job { anchor, path: b".".to_vec(), token: ROOT, dev: meta.dev, ino: meta.ino };
        Scan {
            options,
            progress,
            queue: Queue::new(job, threads),
            next_token: AtomicU32::new(ROOT + 1),
            has_openat2,
            claimed: Mutex::default(),
        }
    }

    /// One scanning thread: takes jobs until there are none. Gives its thread a working directory of its own.
    pub(crate) fn run(&self, out: SyncSender<Batch>) {
        let _close = self.queue.close_on_panic();
        let door = if self.options.xattrs { XattrDoor::choose() } else { XattrDoor::None };
        if self.worker(out, door).work().is_err() {
            self.queue.close();
        }
    }

    fn worker(&self, out: SyncSender<Batch>, door: XattrDoor) -> Worker<'_> {
        Worker {
            scan: self,
            out,
            batch: Batch::default(),
            local: Vec::new(),
            door,
            dirents: vec![MaybeUninit::uninit(); DIRENTS_SIZE],
            body: vec![MaybeUninit::uninit(); PATH_MAX],
            list: vec![0; LIST_SIZE],
            value: vec![0; XATTR_SIZE_MAX],
        }
    }

    /// Ends the scan: waiting threads return.
    pub(crate) fn stop(&self) {
        self.queue.close();
    }
}

/// How to reach an entry's extended attributes without following it; no kernel before 6.13 has a call that takes a
/// directory descriptor, and the descriptor of an entry that may not be opened (`O_PATH`) is not accepted.
#[derive(Clone, Copy, PartialEq)]
enum XattrDoor {
    /// Stand in the directory: this thread has a working directory of its own. Measured at half the cost of the next.
    Cwd,
    /// Through /proc/self/fd: where a sandbox refuses unshare(2).
    Proc,
    /// Neither; a problem is reported once.
    Shut,
    /// Not wanted.
    None,
}

impl XattrDoor {
    fn choose() -> XattrDoor {
        if nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).is_ok() {
            XattrDoor::Cwd
        } else if rustix::fs::stat(c"/proc/self/fd").is_ok() {
            XattrDoor::Proc
        } else {
            XattrDoor::Shut
        }
    }
}

/// The directory of a job, open.
struct Opened {
    fd: OwnedFd,
    meta: Meta,
    /// Reading it leaves its access time alone.
    noatime: bool,
    /// It is not what the parent listed, but what has been mounted on that since.
    moved: bool,
}

/// The directory being read.
struct Here<'a> {
    fd: BorrowedFd<'a>,
    token: Token,
    dev: u64,
    /// The contents of its files are wanted.
    contents: bool,
    /// For messages.
    path: &'a [u8],
    /// Where jobs for its subdirectories start, and their path up to the name.
    anchor: &'a Arc<Anchor>,
    prefix: &'a [u8],
}

/// What a name in a directory is.
struct Found {
    stat: Statx,
    /// The body of a symbolic link.
    symlink: Span,
    /// A regular file whose contents this thread is to read.
    file: Option<OwnedFd>,
}

struct Worker<'a> {
    scan: &'a Scan<'a>,
    out: SyncSender<Batch>,
    batch: Batch,
    /// This thread's jobs, the next one last.
    local: Vec<Job>,
    door: XattrDoor,
    dirents: Vec<MaybeUninit<u8>>,
    body: Vec<MaybeUninit<u8>>,
    list: Vec<u8>,
    value: Vec<u8>,
}

impl Worker<'_> {
    fn work(&mut self) -> Result<(), Stop> {
        if self.door == XattrDoor::Shut {
            let path = b"/proc/self/fd".to_vec();
            self.batch.problems.push(Problem::new(path, "list extended attributes", Errno::ENOENT));
        }
        loop {
            let job = match self.local.pop() {
                Some(job) => job,
                None => {
                    self.send()?;
                    match self.scan.queue.take() {
                        Some(job) => job,
                        None => return Ok(()),
                    }
                }
            };
            self.read_dir(job)?;
            if self.scan.queue.is_hungry() && !self.local.is_empty() {
                self.send()?;
            }
        }
    }

    /// Sends the batch, then gives the older half of the jobs away if a thread waits for some.
    fn send(&mut self) -> Result<(), Stop> {
        if self.scan.progress.is_cancelled() {
            return Err(Stop);
        }
        if !self.batch.is_empty() {
            self.out.send(std::mem::take(&mut self.batch)).map_err(|_| Stop)?;
        }
        if self.scan.queue.is_hungry() && !self.local.is_empty() {
            let half = self.local.len().div_ceil(2);
            self.scan.queue.give(self.local.drain(..half));
        }
        Ok(())
    }

    /// Sends the batch if it is full. `here` is entered again in the next one.
    fn send_if_full(&mut self, here: &Here<'_>) -> Result<(), Stop> {
        if self.batch.entries.len() >= FULL_ENTRIES || self.batch.bytes.len() >= FULL_BYTES {
            self.send()?;
            self.enter(here);
        }
        Ok(())
    }

    /// Entries added from now on lie in `here`.
    fn enter(&mut self, here: &Here<'_>) {
        let path = self.batch.store(here.path);
        self.batch.dirs.push(Dir { token: here.token, path });
    }

    fn problem(&mut self, path: Vec<u8>, action: &'static str, e: OsErrno) {
        self.batch.problems.push(Problem::new(path, action, errno(e)));
    }

    fn token(&self) -> Token {
        self.scan.next_token.fetch_add(1, Relaxed)
    }

    fn read_dir(&mut self, job: Job) -> Result<(), Stop> {
        if self.scan.progress.is_cancelled() {
            return Err(Stop);
        }
        let path = job.full_path();
        let Opened { fd, meta, noatime, moved } = match self.open_job(&job) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(()),
            Err((_, e)) if is_gone(e) => {
                self.batch.vanished += 1;
                return Ok(());
            }
            Err((action, e)) => {
                self.problem(path, action, e);
                return Ok(());
            }
        };
        // From here on `anchor` and `prefix` are where this directory's own jobs start.
        let Job { mut anchor, path: mut prefix, token, .. } = job;
        let mut kept = None;
        if prefix.len() > ANCHOR_AT {
            anchor = Arc::new(Anchor { fd, path: path.clone() });
            prefix.clear();
        } else {
            if prefix == b"." {
                prefix.clear();
            }
            kept = Some(fd);
        }
        let fd = kept.as_ref().unwrap_or(&anchor.fd).as_fd();
        let contents = self.scan.options.contents && !is_pseudo(fd);
        let here = Here { fd, token, dev: meta.dev, contents, path: &path, anchor: &anchor, prefix: &prefix };
        self.enter(&here);
        self.read_entries(&here)?;
        // What stands for the directory so far: nothing (the root), what a mount has covered since, or its entry.
        let sent = (token != ROOT && !moved).then_some(meta.atime);
        if sent.is_none() || !noatime {
            self.refresh(&here, sent);
        }
        Ok(())
    }

    /// Opens the directory of a job, checks that it is the one that was listed, and goes there. `None` if it is to be kept
    /// empty; an error comes with what was being done.
    fn open_job(&mut self, job: &Job) -> Result<Option<Opened>, (&'static str, OsErrno)> {
        let (fd, noatime) = match self.open_dir(job) {
            // It became a mount point a moment ago, perhaps by being opened (an automount).
            Err(OsErrno::XDEV) => {
                self.batch.mount_points += 1;
                return Ok(None);
            }
            opened => opened.map_err(|e| ("open directory", e))?,
        };
        // By name and not by descriptor: this also asks whether the directory may be searched.
        let stat = stat_at(fd.as_fd(), c".").map_err(|e| ("search directory", e))?;
        let meta = meta(&stat);
        let moved = (meta.dev, meta.ino) != (job.dev, job.ino);
        if moved && (!is_mount_root(&stat) || self.scan.options.one_file_system) {
            return Err(("open directory", OsErrno::STALE));
        }
        if self.door == XattrDoor::Cwd {
            rustix::process::fchdir(&fd).map_err(|e| ("search directory", e))?;
        }
        Ok(Some(Opened { fd, meta, noatime, moved }))
    }

    /// Opens the directory of a job; also says whether reading it leaves its access time alone.
    fn open_dir(&self, job: &Job) -> Result<(OwnedFd, bool), OsErrno> {
        match self.open_below(&job.anchor.fd, &job.path, DIR_FLAGS | OFlags::NOATIME) {
            Ok(fd) => Ok((fd, true)),
            // Only the owner, or a holder of CAP_FOWNER, may ask for that.
            Err(OsErrno::PERM) => Ok((self.open_below(&job.anchor.fd, &job.path, DIR_FLAGS)?, false)),
            Err(e) => Err(e),
        }
    }

    /// Opens a directory by a path below `anchor` on which there are no symbolic links.
    fn open_below(&self, anchor: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, OsErrno> {
        if self.scan.has_openat2 {
            let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            if self.scan.options.one_file_system {
                resolve |= ResolveFlags::NO_XDEV;
            }
            return rustix::fs::openat2(anchor, path, flags, Mode::empty(), resolve);
        }
        let mut dir: Option<OwnedFd> = None;
        let mut components = path.split(|&b| b == b'/').peekable();
        while let Some(component) = components.next() {
            let flags = if components.peek().is_none() { flags } else { DIR_FLAGS | OFlags::PATH };
            dir = Some(rustix::fs::openat(dir.as_ref().unwrap_or(anchor), component, flags, Mode::empty())?);
        }
        dir.ok_or(OsErrno::NOENT)
    }

    /// Sends a directory's attributes again, unless its access time still is `atime`.
    fn refresh(&mut self, here: &Here<'_>, atime: Option<Timespec>) {
        let Ok(stat) = stat_at(here.fd, c".") else {
            return;
        };
        let mut meta = meta(&stat);
        if atime != Some(meta.atime) {
            meta.iflags |= self.noatime_flag(here, c".", meta.mode);
            let xattrs = self.collect_xattrs(here, c".");
            let path = self.batch.store(here.path);
            self.batch.refreshes.push(Refresh { token: here.token, path, xattrs, meta });
        }
    }

    fn read_entries(&mut self, here: &Here<'_>) -> Result<(), Stop> {
        let mut buffer = std::mem::take(&mut self.dirents);
        let mut entries = RawDir::new(here.fd, &mut buffer);
        let result = loop {
            match entries.next() {
                None => break Ok(()),
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    if name == c"." || name == c".." {
                        continue;
                    }
                    if self.add_entry(here, name, entry.file_type()).is_err() {
                        break Err(Stop);
                    }
                }
                // The directory was removed.
                Some(Err(OsErrno::NOENT)) => break Ok(()),
                Some(Err(e)) => {
                    self.problem(here.path.to_vec(), "read directory", e);
                    break Ok(());
                }
            }
        };
        self.dirents = buffer;
        result
    }

    /// Adds one name to the batch, with its contents if they are wanted.
    fn add_entry(&mut self, here: &Here<'_>, name: &CStr, kind: FileType) -> Result<(), Stop> {
        let Found { stat, symlink, file } = match self.look_at(here, name, kind) {
            Ok(found) => found,
            Err((_, e)) if is_gone(e) => {
                self.batch.vanished += 1;
                return Ok(());
            }
            Err((action, e)) => {
                self.problem(join(here.path, name.to_bytes()), action, e);
                return Ok(());
            }
        };
        let mut meta = meta(&stat);
        meta.iflags |= self.noatime_flag(here, name, meta.mode);
        let is_dir = s_isdir(meta.mode);
        let token = (is_dir || file.is_some()).then(|| self.token());
        let entry = Entry {
            dir: self.batch.dirs.len() as u32 - 1,
            token,
            name: self.batch.store(name.to_bytes()),
            symlink,
            xattrs: self.collect_xattrs(here, name),
            meta,
        };
        self.batch.entries.push(entry);
        match (file, token) {
            (Some(file), Some(token)) => self.read_file(here, name, &file, token, meta.size)?,
            (None, Some(token)) => self.plan_dir(here, name, token, &stat, &meta),
            _ => {}
        }
        self.send_if_full(here)
    }

    /// Finds out what a name is; the error comes with what was being done.
    fn look_at(
        &mut self,
        here: &Here<'_>,
        name: &CStr,
        kind: FileType,
    ) -> Result<Found, (&'static str, OsErrno)> {
        let mut symlink = None;
        if matches!(kind, FileType::Symlink | FileType::Unknown) {
            symlink = self.read_link(here, name).ok();
        }
        let mut stat = stat_at(here.fd, name).map_err(|e| ("read attributes", e))?;
        if s_islnk(stat.stx_mode.into()) && symlink.is_none() {
            // It became one between the two calls; if it no longer is, the answer is EINVAL.
            let body = self.read_link(here, name);
            symlink =
                Some(body.map_err(|e| ("read link", if e == OsErrno::INVAL { OsErrno::STALE } else { e }))?);
        }
        let mut file = None;
        if here.contents && self.wants_contents(&stat) {
            match open_file(here, name, &stat) {
                Ok((fd, now)) => {
                    file = Some(fd);
                    stat = now;
                }
                Err(e) if is_gone(e) => return Err(("open file", e)),
                // Its attributes are good.
                Err(e) => self.problem(join(here.path, name.to_bytes()), "open file", e),
            }
        }
        Ok(Found { stat, symlink: symlink.unwrap_or_default(), file })
    }

    /// Adds a job for a subdirectory, unless it is to be kept empty.
    fn plan_dir(&mut self, here: &Here<'_>, name: &CStr, token: Token, stat: &Statx, meta: &Meta) {
        // A subvolume has a device number of its own and no mount.
        let mounted = is_mount_root(stat) || meta.dev != here.dev;
        // Looking at an automount point does not mount anything; opening it would.
        let automount = stat.stx_attributes.contains(StatxAttributes::AUTOMOUNT);
        let skip = || {
            let path = join(here.path, name.to_bytes());
            self.scan.options.skip.iter().any(|skip| skip.as_os_str().as_bytes() == path)
        };
        if automount || (mounted && (self.scan.options.one_file_system || skip())) {
            self.batch.mount_points += 1;
            return;
        }
        let path = if here.prefix.is_empty() {
            name.to_bytes().to_vec()
        } else {
            join(here.prefix, name.to_bytes())
        };
        self.local.push(Job { anchor: here.anchor.clone(), path, token, dev: meta.dev, ino: meta.ino });
    }

    /// The body of a symbolic link; `EINVAL` if it is not one.
    fn read_link(&mut self, here: &Here<'_>, name: &CStr) -> Result<Span, OsErrno> {
        let (body, _) = rustix::fs::readlinkat_raw(here.fd, name, &mut self.body[..])?;
        Ok(self.batch.store(body))
    }

    /// Whether this thread is to read the contents of a regular file.
    fn wants_contents(&self, stat: &Statx) -> bool {
        s_isreg(stat.stx_mode.into()) && stat.stx_size > 0 && {
            let meta = meta(stat);
            // Of several names, the first to come reads; the inserting thread finds the node in any case.
            stat.stx_nlink < 2
                || self
                    .scan
                    .claimed
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert((meta.dev, meta.ino))
        }
    }

    /// Reads a file's contents, leaving out its holes. A file that shrinks meanwhile ends in a hole.
    fn read_file(
        &mut self,
        here: &Here<'_>,
        name: &CStr,
        file: &OwnedFd,
        token: Token,
        size: u64,
    ) -> Result<(), Stop> {
        // The file counts as read, even if no data follows: the rest is a hole.
        let path = self.batch.store(&join(here.path, name.to_bytes()));
        self.batch.writes.push(Write { token, path, offset: 0, data: Span::default() });
        let mut offset = 0;
        while offset < size {
            let data = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
                Ok(data) => data,
                // A hole up to the end.
                Err(OsErrno::NXIO) => break,
                // No holes on this file system.
                Err(_) => offset,
            };
            let hole = rustix::fs::seek(file, SeekFrom::Hole(data)).unwrap_or(size).min(size);
            offset = data;
            while offset < hole {
                let want = usize::try_from(hole - offset).map_or(READ_SIZE, |left| left.min(READ_SIZE));
                let path = self.batch.store(&join(here.path, name.to_bytes()));
                let start = self.batch.bytes.len();
                self.batch.bytes.resize(start + want, 0);
                let got = rustix::io::retry_on_intr(|| {
                    rustix::io::pread(file, &mut self.batch.bytes[start..], offset)
                });
                self.batch.bytes.truncate(start + *got.as_ref().unwrap_or(&0));
                match got {
                    Ok(0) => return Ok(()),
                    Ok(n) => {
                        let data = Span::new(start..start + n);
                        self.batch.writes.push(Write { token, path, offset, data });
                        offset += n as u64;
                    }
                    Err(e) => {
                        self.problem(join(here.path, name.to_bytes()), "read file", e);
                        return Ok(());
                    }
                }
                self.send_if_full(here)?;
            }
        }
        Ok(())
    }

    /// The no-atime flag, which statx does not tell: the file has to be opened to be asked.
    fn noatime_flag(&self, here: &Here<'_>, name: &CStr, mode: u32) -> u32 {
        if !self.scan.options.inode_flags || !(s_isreg(mode) || s_isdir(mode)) {
            return 0;
        }
        rustix::fs::openat(here.fd, name, FILE_FLAGS, Mode::empty())
            .and_then(rustix::fs::ioctl_getflags)
            .map_or(0, |flags| if flags.contains(IFlags::NOATIME) { IFLAG_NOATIME } else { 0 })
    }

    /// Adds the extended attributes of a name in `here` to the batch.
    fn collect_xattrs(&mut self, here: &Here<'_>, name: &CStr) -> Span {
        let start = self.batch.xattrs.len();
        if matches!(self.door, XattrDoor::None | XattrDoor::Shut) {
            return Span::default();
        }
        let through_proc;
        let path = if self.door == XattrDoor::Cwd {
            name
        } else {
            let mut path = format!("/proc/self/fd/{}/", here.fd.as_raw_fd()).into_bytes();
            path.extend_from_slice(name.to_bytes());
            through_proc = std::ffi::CString::new(path).unwrap_or_default();
            &through_proc
        };
        let mut listed = rustix::fs::llistxattr(path, &mut self.list[..]);
        if listed == Err(OsErrno::RANGE) && self.list.len() < XATTR_LIST_MAX {
            self.list.resize(XATTR_LIST_MAX, 0);
            listed = rustix::fs::llistxattr(path, &mut self.list[..]);
        }
        let length = match listed {
            Ok(length) => length,
            // The file system has none, or the file has gone since; its attributes are good.
            Err(OsErrno::OPNOTSUPP | OsErrno::NOSYS | OsErrno::NOENT) => 0,
            Err(e) => {
                self.problem(join(here.path, name.to_bytes()), "list extended attributes", e);
                0
            }
        };
        for attribute in self.list[..length].split_inclusive(|&b| b == 0) {
            let Ok(attribute) = CStr::from_bytes_with_nul(attribute) else {
                continue;
            };
            match rustix::fs::lgetxattr(path, attribute, &mut self.value[..]) {
                Ok(length) => {
                    let pair =
                        (self.batch.store(attribute.to_bytes()), self.batch.store(&self.value[..length]));
                    self.batch.xattrs.push(pair);
                }
                Err(OsErrno::NODATA | OsErrno::NOENT) => {}
                Err(e) => {
                    let path = join(here.path, name.to_bytes());
                    self.batch.problems.push(Problem::new(path, "read extended attribute", errno(e)));
                }
            }
        }
        Span::new(start..self.batch.xattrs.len())
    }
}

/// Opens a regular file for its contents; also its attributes as they are then.
fn open_file(here: &Here<'_>, name: &CStr, before: &Statx) -> Result<(OwnedFd, Statx), OsErrno> {
    let fd = match rustix::fs::openat(here.fd, name, FILE_FLAGS | OFlags::NOATIME, Mode::empty()) {
        Err(OsErrno::PERM) => {
            let fd = rustix::fs::openat(here.fd, name, FILE_FLAGS, Mode::empty())?;
            // The first read moves the access time; let it be before the attributes are taken.
            let _ = rustix::io::pread(&fd, &mut [0u8; 1], 0);
            fd
        }
        opened => opened?,
    };
    let now = rustix::fs::statx(&fd, c"", STAT_FLAGS | AtFlags::EMPTY_PATH, STAT_MASK)?;
    let identity = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
    if identity(before) == identity(&now) { Ok((fd, now)) } else { Err(OsErrno::STALE) }
}

/// Whether an error says that a name no longer is what it was listed as.
fn is_gone(e: OsErrno) -> bool {
    matches!(e, OsErrno::NOENT | OsErrno::NOTDIR | OsErrno::LOOP | OsErrno::STALE)
}

const STAT_FLAGS: AtFlags = AtFlags::SYMLINK_NOFOLLOW.union(AtFlags::NO_AUTOMOUNT);
const STAT_MASK: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// The attributes of a name in a directory, not followed.
pub(crate) fn stat_at(dir: BorrowedFd<'_>, name: &CStr) -> Result<Statx, OsErrno> {
    rustix::fs::statx(dir, name, STAT_FLAGS, STAT_MASK)
}

/// Whether the files of a directory are the kernel's own: such a file may claim 128 TiB, or do something when it is read.
fn is_pseudo(dir: BorrowedFd<'_>) -> bool {
    const SYSFS_MAGIC: FsWord = 0x6265_6572;
    rustix::fs::fstatfs(dir).is_ok_and(|fs| matches!(fs.f_type, PROC_SUPER_MAGIC | SYSFS_MAGIC))
}

fn is_mount_root(stat: &Statx) -> bool {
    stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

pub(crate) fn meta(stat: &Statx) -> Meta {
    let time = |t: StatxTimestamp| Timespec { sec: t.tv_sec, nsec: t.tv_nsec };
    let mut iflags = 0;
    if stat.stx_attributes.contains(StatxAttributes::IMMUTABLE) {
        iflags |= IFLAG_IMMUTABLE;
    }
    if stat.stx_attributes.contains(StatxAttributes::APPEND) {
        iflags |= IFLAG_APPEND;
    }
    Meta {
        mode: stat.stx_mode.into(),
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        nlink: stat.stx_nlink,
        iflags,
        dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        ino: stat.stx_ino,
        rdev: rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
        // Zero where the file system keeps none: the kernel leaves the field so.
        btime: time(stat.stx_btime),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::mpsc::sync_channel;

    /// Mode, link body and names of extended attributes.
    type Attributes = (u32, Vec<u8>, Vec<Vec<u8>>);

    /// What a single thread finds, by path.
    fn scan(dir: &Path, door: XattrDoor, has_openat2: bool) -> BTreeMap<Vec<u8>, Attributes> {
        let root = rustix::fs::open(dir, DIR_FLAGS, Mode::empty()).unwrap();
        let root_meta = meta(&stat_at(root.as_fd(), c".").unwrap());
        let (options, progress) = (ImportOptions::default(), Progress::new());
        let path = dir.as_os_str().as_bytes().to_vec();
        let mut scan = Scan::new(root, path, &root_meta, 1, &options, &progress);
        scan.has_openat2 = has_openat2;
        let (out, batches) = sync_channel(1000);
        // Standing in a directory is for threads with a working directory of their own.
        assert!(door != XattrDoor::Cwd);
        assert!(scan.worker(out, door).work().is_ok());
        let mut found = BTreeMap::new();
        for batch in batches {
            assert_eq!(batch.problems.iter().filter(|p| p.action != "list extended attributes").count(), 0);
            for entry in &batch.entries {
                let names =
                    batch.get_xattrs(entry.xattrs).into_iter().map(|(name, _)| name.to_vec()).collect();
                let body = batch.get(entry.symlink).to_vec();
                found.insert(batch.path(entry), (entry.meta.mode, body, names));
            }
        }
        found
    }

    #[test]
    fn old_kernels_and_sandboxes_see_the_same_tree() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("f"), b"").unwrap();
        std::os::unix::fs::symlink("/etc", deep.join("l")).unwrap();
        let settable =
            rustix::fs::setxattr(deep.join("f"), "user.k", b"v", rustix::fs::XattrFlags::empty()).is_ok();
        let found = scan(dir.path(), XattrDoor::Proc, true);
        assert_eq!(found.len(), 5);
        assert_eq!(found[deep.join("l").as_os_str().as_bytes()].1, b"/etc");
        if settable {
            assert_eq!(found[deep.join("f").as_os_str().as_bytes()].2, [b"user.k"]);
        }
        assert_eq!(scan(dir.path(), XattrDoor::Proc, false), found);
        for (path, bare) in scan(dir.path(), XattrDoor::Shut, false) {
            assert_eq!((bare.0, &bare.1), (found[&path].0, &found[&path].1));
            assert_eq!(bare.2, Vec::<Vec<u8>>::new());
        }
    }

    #[test]
    fn no_kernel_follows_a_link_on_the_way_to_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("real/sub")).unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        let anchor = rustix::fs::open(dir.path(), DIR_FLAGS, Mode::empty()).unwrap();
        let root_meta = meta(&stat_at(anchor.as_fd(), c".").unwrap());
        let (options, progress) = (ImportOptions::default(), Progress::new());
        let mut scan =
            Scan::new(anchor.try_clone().unwrap(), b"/".to_vec(), &root_meta, 1, &options, &progress);
        for has_openat2 in [scan.has_openat2, false] {
            scan.has_openat2 = has_openat2;
            let worker = scan.worker(sync_channel(1).0, XattrDoor::None);
            let open = |path: &[u8]| worker.open_below(&anchor, path, DIR_FLAGS).map(drop);
            assert_eq!(open(b"real/sub"), Ok(()));
            assert!(is_gone(open(b"link").unwrap_err()));
            assert!(is_gone(open(b"link/sub").unwrap_err()));
            assert_eq!(open(b"real/missing").unwrap_err(), OsErrno::NOENT);
        }
    }
}
