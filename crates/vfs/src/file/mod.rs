//! Open files and descriptor tables.
//!
//! Kernel: include/linux/fs.h `struct file`, fs/file.c.

pub(crate) mod fs_struct;
pub(crate) mod locks;

use crate::base::errno::{Errno, Result};
use crate::base::uapi::FD_CLOEXEC;
use crate::cred::Cred;
use crate::dcache::store::Contents;
use crate::kernel::proc::ProcNode;
use crate::mount::Path;
use rcuwalk_sync::lock::{Mutex, SpinGuard, SpinLock};
use rcuwalk_sync::{Beyond, Budget, Charge, Handle, MODELLED, Racy32, Racy64, thread_number};
use std::sync::{Arc, OnceLock};

/// A counted reference to an open file. Who holds the only one finds that out by reading, not by changing the count.
pub(crate) type FileArc = triomphe::Arc<File>;

/// What an open file may be used for. Kernel: `FMODE_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FileMode {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// Opened with `O_PATH`: names a place, and nothing else.
    pub(crate) path: bool,
    /// Counts as a writer of the inode, and of the mount.
    pub(crate) writer: bool,
    /// Its detached mount goes with it. Kernel: `FMODE_NEED_UNMOUNT`.
    pub(crate) need_unmount: bool,
    /// Opening it made the file. Kernel: `FMODE_CREATED`.
    pub(crate) created: bool,
}

/// An open file: a place, and what it was opened for. Holds a reference to its dentry, which [`Kernel::fput`](crate::kernel::Kernel::fput) gives back.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: Path,
    pub(crate) inode: Handle,
    pub(crate) mode: FileMode,
    /// `O_*` as `F_GETFL` shows them.
    pub(crate) flags: Racy32,
    /// The credential at open; `linkat` asks for the very same one.
    pub(crate) cred: Arc<Cred>,
    /// The contents of a regular file, once they were needed.
    pub(crate) contents: OnceLock<Arc<Contents>>,
    /// The position, in bytes, or the offset in a directory. Changes under `seek`.
    pub(crate) pos: Racy64,
    pub(crate) seek: Mutex<()>,
    /// The entry that `getdents` goes on at; a hint.
    pub(crate) cursor: Racy32,
    /// By which number its locks are known; 0 while it never had any.
    pub(crate) lock_owner: Racy64,
    /// `F_SETSIG`. Kernel: `fown_struct.signum`.
    pub(crate) signal: Racy32,
    /// What it is of `/proc`, if it is not of the tree.
    pub(crate) proc: Option<Arc<ProcNode>>,
}

/// What a file is opened as, with the reference to its dentry.
#[derive(Debug, Clone, Default)]
pub(crate) struct Opening {
    pub(crate) path: Path,
    pub(crate) inode: Handle,
    pub(crate) mode: FileMode,
    /// `O_*` as `F_GETFL` shows them.
    pub(crate) flags: u32,
    pub(crate) proc: Option<Arc<ProcNode>>,
}

/// What a closed file leaves to be given back.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) path: Path,
    pub(crate) inode: Handle,
    pub(crate) mode: FileMode,
    pub(crate) lock_owner: u64,
    /// Kept until the rest is given back.
    _contents: OnceLock<Arc<Contents>>,
    _proc: Option<Arc<ProcNode>>,
}

impl File {
    pub(crate) fn new(opening: Opening, cred: &Arc<Cred>) -> File {
        let Opening { path, inode, mode, flags, proc } = opening;
        File {
            path,
            inode,
            mode,
            flags: Racy32::new(flags),
            cred: Arc::clone(cred),
            contents: OnceLock::new(),
            pos: Racy64::new(0),
            seek: Mutex::new(()),
            cursor: Racy32::new(0),
            lock_owner: Racy64::new(0),
            signal: Racy32::new(0),
            proc,
        }
    }

    /// The object of a [closed](Self::close) file becomes another one.
    #[inline]
    fn reopen(&mut self, opening: Opening, cred: &Arc<Cred>) {
        let Opening { path, inode, mode, flags, proc } = opening;
        (self.path, self.inode, self.mode, self.proc) = (path, inode, mode, proc);
        self.flags.set(flags);
        self.pos.set(0);
        self.cursor.set(0);
        self.lock_owner.set(0);
        self.signal.set(0);
        if !Arc::ptr_eq(&self.cred, cred) {
            self.cred = Arc::clone(cred);
        }
    }

    /// Takes what has to be given back.
    #[inline]
    pub(crate) fn close(&mut self) -> Closing {
        Closing {
            path: self.path,
            inode: self.inode,
            mode: self.mode,
            lock_owner: self.lock_owner.get(),
            _contents: std::mem::take(&mut self.contents),
            _proc: self.proc.take(),
        }
    }
}

/// One number of a descriptor table.
#[derive(Debug, Clone)]
struct Slot {
    file: FileArc,
    cloexec: bool,
}

/// A descriptor table. Tasks that were cloned with `CLONE_FILES` share one. The limit on its numbers is that of the process
/// which asks, `RLIMIT_NOFILE`.
///
/// Threads that open and close at once meet here, and what that takes is the lines of memory that go back and forth between
/// their processors. So there is one: it holds the lock and the first few descriptors, and a thread finds the objects of the
/// files that it opens where it left them itself.
#[derive(Debug, Default)]
pub(crate) struct Files {
    table: Line<SpinLock<Table>>,
    /// How many numbers there are: below a limit beyond that there is room for certain. Seldom changes.
    len: Racy32,
    memory: Option<Arc<Budget>>,
}

/// On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line<T>(T);

#[derive(Debug, Default)]
struct Table {
    /// No number below this is free.
    next: u32,
    /// How many numbers are in use, and how many objects of closed files there are.
    files: u32,
    /// The first few numbers.
    low: [Option<Slot>; LOW],
    rest: Option<Box<Rest>>,
}

const LOW: usize = 2;

const _: () =
    assert!(MODELLED || size_of::<Line<SpinLock<Table>>>() == 64, "opening a file writes one shared line");

/// What a table has besides.
#[derive(Debug, Default)]
struct Rest {
    /// The numbers from [`LOW`] on.
    high: Vec<Option<Slot>>,
    /// Objects of closed files, to be used again by the thread that closed them, whose cache they are in.
    spare: [Line<[Option<FileArc>; SPARE_FILES]>; SPARES],
    /// How many files count as memory, beyond those that every table has room for.
    counted: u32,
    /// For those, and for the room in `high`.
    charge: Charge,
}

/// What a descriptor counts for as memory: a file with the credential that opened it; bytes.
const FILE_BYTES: u64 = 512;

const _: () = assert!(
    MODELLED || size_of::<File>() + size_of::<Cred>() + size_of::<Slot>() + 64 <= FILE_BYTES as usize
);

/// So many files count with the table, and so many at once beyond.
const FILES_STEP: u32 = 8;

/// What a table counts for as memory, with the files that it always has room for; bytes.
pub(crate) const TABLE_BYTES: u64 = 1024 + FILES_STEP as u64 * FILE_BYTES;

const _: () = assert!(MODELLED || size_of::<Files>() + size_of::<Rest>() <= 1024);

/// A table of fewer numbers keeps its memory.
const MANY: usize = 4096;

/// Threads beyond these share.
const SPARES: usize = 4;

/// What a program that opens and closes one file after the other needs, and a few more.
const SPARE_FILES: usize = 8;

impl Table {
    #[inline]
    fn len(&self) -> usize {
        LOW + self.rest.as_ref().map_or(0, |rest| rest.high.len())
    }

    /// What is at number `fd`, if the table has one.
    #[inline(always)]
    fn slot(&self, fd: usize) -> Option<&Option<Slot>> {
        match self.low.get(fd) {
            Some(slot) => Some(slot),
            None => self.rest.as_ref()?.high.get(fd - LOW),
        }
    }

    #[inline(always)]
    fn slot_mut(&mut self, fd: usize) -> Option<&mut Option<Slot>> {
        match self.low.get_mut(fd) {
            Some(slot) => Some(slot),
            None => self.rest.as_mut()?.high.get_mut(fd - LOW),
        }
    }

    fn open_at(&self, fd: i32) -> Result<&Slot> {
        self.slot(number(fd)?).and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    /// All numbers, in order.
    fn slots(&self) -> impl Iterator<Item = &Option<Slot>> {
        self.low.iter().chain(self.rest.iter().flat_map(|rest| &rest.high))
    }

    #[inline]
    fn lowest_free(&self, from: usize) -> usize {
        let mut fd = from.max(self.next as usize);
        while self.slot(fd).is_some_and(Option::is_some) {
            fd += 1;
        }
        fd
    }

    /// The lowest free number not below `from`, which there is then, and for which a file is counted.
    #[inline]
    fn reserve(&mut self, from: usize, limit: usize, memory: Option<&Arc<Budget>>) -> Result<usize> {
        let fd = self.lowest_free(from);
        if fd >= limit {
            return Err(Errno::EMFILE);
        }
        if from == 0 {
            self.next = fd as u32;
        }
        self.make_room(fd, memory)?;
        Ok(fd)
    }

    /// See [`Files::install`].
    #[inline(always)]
    fn install(
        &mut self,
        file: FileArc,
        cloexec: bool,
        from: usize,
        limit: usize,
        memory: Option<&Arc<Budget>>,
    ) -> std::result::Result<i32, (Errno, FileArc)> {
        match self.reserve(from, limit, memory) {
            Ok(fd) => {
                self.put(fd, Slot { file, cloexec });
                Ok(fd as i32)
            }
            Err(errno) => Err((errno, file)),
        }
    }

    /// Makes sure that there is a number `fd`, and that a file more is counted.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[inline]
    fn make_room(&mut self, fd: usize, memory: Option<&Arc<Budget>>) -> Result<()> {
        if self.files >= FILES_STEP + self.rest.as_ref().map_or(0, |rest| rest.counted) {
            self.count_more(memory)?;
        }
        if fd >= self.len() {
            self.rest.get_or_insert_default().grow(fd + 1 - LOW, memory)?;
        }
        Ok(())
    }

    /// Counts some files more, or gives up the objects of closed ones.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[cold]
    fn count_more(&mut self, memory: Option<&Arc<Budget>>) -> Result<()> {
        let rest = self.rest.get_or_insert_default();
        match rest.charge.grow(memory, u64::from(FILES_STEP) * FILE_BYTES, Beyond::Refused) {
            Ok(()) => rest.counted += FILES_STEP,
            Err(refused) => {
                let spare = rest.spare.iter_mut().flat_map(|of| of.0.iter_mut());
                match spare.filter_map(Option::take).count() as u32 {
                    0 => return Err(refused.into()),
                    given_up => self.files -= given_up,
                }
            }
        }
        Ok(())
    }

    /// Puts a file at number `fd`, which there is; what was there comes back.
    #[inline]
    fn put(&mut self, fd: usize, slot: Slot) -> Option<Slot> {
        if fd == self.next as usize {
            self.next += 1;
        }
        let before = self.slot_mut(fd).and_then(|place| place.replace(slot));
        self.files += u32::from(before.is_none());
        before
    }

    #[inline]
    fn take(&mut self, fd: usize) -> Option<Slot> {
        let slot = self.slot_mut(fd)?.take();
        self.files -= u32::from(slot.is_some());
        self.next = self.next.min(fd as u32);
        if fd >= MANY
            && let Some(rest) = &mut self.rest
        {
            rest.shrink(self.files as usize);
        }
        slot
    }

    /// Objects of files that the calling thread closed.
    #[inline(always)]
    fn spare(&mut self) -> &mut [Option<FileArc>; SPARE_FILES] {
        &mut self.rest.get_or_insert_default().spare[thread_number() as usize % SPARES].0
    }
}

impl Rest {
    /// Makes it `len` numbers long.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[cold]
    fn grow(&mut self, len: usize, memory: Option<&Arc<Budget>>) -> Result<()> {
        let (used, room) = (self.high.len(), self.high.capacity());
        if len > room {
            let more = len.max(2 * room).max(8) - room;
            self.charge.grow(memory, (more * size_of::<Option<Slot>>()) as u64, Beyond::Refused)?;
            self.high.try_reserve_exact(room + more - used).map_err(|_| Errno::ENOMEM)?;
        }
        self.high.resize(len, None);
        Ok(())
    }

    /// Gives memory back if the last numbers are free, and few others are in use.
    #[cold]
    fn shrink(&mut self, in_use: usize) {
        let room = self.high.capacity();
        if self.high.last().is_none_or(Option::is_some) || in_use > room / 8 {
            return;
        }
        let len = self.high.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.high.truncate(len);
        if len <= room / 4 {
            self.high.shrink_to(2 * len);
            let less = room - self.high.capacity();
            self.charge.shrink((less * size_of::<Option<Slot>>()) as u64);
        }
    }
}

#[inline(always)]
fn number(fd: i32) -> Result<usize> {
    usize::try_from(fd).map_err(|_| Errno::EBADF)
}

impl Files {
    #[inline(always)]
    fn table(&self) -> SpinGuard<'_, Table> {
        self.table.0.lock()
    }

    /// Notes how long the table has become.
    #[inline(always)]
    fn note_len(&self, table: &Table) {
        let len = table.len() as u32;
        if self.len.get() != len {
            self.len.set(len);
        }
    }

    /// Makes room for one more file, for a call that cannot be taken back when there is none.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[inline]
    pub(crate) fn make_room(&self) -> Result<()> {
        if self.memory.is_none() {
            return Ok(());
        }
        let mut table = self.table();
        let fd = table.lowest_free(0);
        table.make_room(fd, self.memory.as_ref())?;
        self.note_len(&table);
        Ok(())
    }

    /// Fails as an open would that finds no free number.
    ///
    /// # Errors
    ///
    /// `EMFILE`.
    #[inline]
    pub(crate) fn check_room(&self, limit: usize) -> Result<()> {
        if (self.len.get() as usize) < limit {
            return Ok(());
        }
        if self.table().lowest_free(0) >= limit { Err(Errno::EMFILE) } else { Ok(()) }
    }

    /// Opens a file at the lowest free number. On failure it comes back, for `fput`.
    ///
    /// # Errors
    ///
    /// `EMFILE` when that number is beyond the limit, `ENOMEM`.
    ///
    /// Kernel: fs/file.c `alloc_fd()`, fs/file_table.c `alloc_empty_file()`, `fd_install()`.
    #[inline(always)]
    pub(crate) fn open(
        &self,
        opening: Opening,
        cred: &Arc<Cred>,
        cloexec: bool,
        limit: usize,
    ) -> std::result::Result<i32, (Errno, FileArc)> {
        let mut table = self.table();
        let Some(mut file) = table.spare().iter_mut().find_map(Option::take) else {
            drop(table);
            return self.install(FileArc::new(File::new(opening, cred)), cloexec, 0, limit);
        };
        match FileArc::get_mut(&mut file) {
            Some(closed) => closed.reopen(opening, cred),
            None => unreachable!("nobody else has a closed file"),
        }
        table.files -= 1;
        let fd = table.install(file, cloexec, 0, limit, self.memory.as_ref())?;
        self.note_len(&table);
        Ok(fd)
    }

    /// Puts `file` at the lowest free number not below `from`. On failure the file comes back, for `fput`.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub(crate) fn install(
        &self,
        file: FileArc,
        cloexec: bool,
        from: usize,
        limit: usize,
    ) -> std::result::Result<i32, (Errno, FileArc)> {
        let mut table = self.table();
        let fd = table.install(file, cloexec, from, limit, self.memory.as_ref())?;
        self.note_len(&table);
        Ok(fd)
    }

    /// The file behind `fd`. The caller gives it back through [`Kernel::fput`](crate::kernel::Kernel::fput).
    ///
    /// # Errors
    ///
    /// `EBADF`.
    pub(crate) fn get(&self, fd: i32) -> Result<FileArc> {
        Ok(self.table().open_at(fd)?.file.clone())
    }

    /// What `answer` says of the file behind `fd`; it must take no lock. Spares the reference that [`get`](Self::get) takes.
    ///
    /// # Errors
    ///
    /// `EBADF`.
    #[inline(always)]
    pub(crate) fn look<R>(&self, fd: i32, answer: impl FnOnce(&File) -> R) -> Result<R> {
        Ok(answer(&self.table().open_at(fd)?.file))
    }

    /// Takes `fd` out of the table, and passes what was there on to `last` if nobody else has it, and else to `shared`. The
    /// object of a file that nobody else has is kept for the next one.
    ///
    /// # Errors
    ///
    /// `EBADF`.
    ///
    /// Kernel: fs/file.c `file_close_fd()`.
    #[inline(always)]
    pub(crate) fn remove(
        &self,
        fd: i32,
        last: impl FnOnce(Closing),
        shared: impl FnOnce(FileArc),
    ) -> Result<()> {
        let fd = number(fd)?;
        let mut table = self.table();
        let mut file = table.take(fd).map(|slot| slot.file).ok_or(Errno::EBADF)?;
        if let Some(place) = table.spare().iter_mut().find(|place| place.is_none())
            && let Some(only) = FileArc::get_mut(&mut file)
        {
            let closing = only.close();
            *place = Some(file);
            table.files += 1;
            drop(table);
            last(closing);
        } else {
            drop(table);
            shared(file);
        }
        Ok(())
    }

    /// Puts the file behind `old` at `new` as well; what was at `new` comes back, for `fput`.
    ///
    /// # Errors
    ///
    /// `EBADF` for an `old` that is not open or a `new` beyond the limit, `ENOMEM`.
    ///
    /// Kernel: fs/file.c `do_dup2()`.
    pub(crate) fn dup_to(&self, old: i32, new: i32, cloexec: bool, limit: usize) -> Result<Option<FileArc>> {
        let mut table = self.table();
        let to = number(new)?;
        if to >= limit {
            return Err(Errno::EBADF);
        }
        let file = table.open_at(old)?.file.clone();
        table.make_room(to, self.memory.as_ref())?;
        let old = table.put(to, Slot { file, cloexec });
        self.note_len(&table);
        Ok(old.map(|slot| slot.file))
    }

    /// The descriptor flags of `fd`: `FD_CLOEXEC` or 0.
    pub(crate) fn fd_flags(&self, fd: i32) -> Result<i32> {
        Ok(if self.table().open_at(fd)?.cloexec { FD_CLOEXEC } else { 0 })
    }

    /// Sets the descriptor flags of `fd`.
    pub(crate) fn set_fd_flags(&self, fd: i32, flags: i32) -> Result<()> {
        let mut table = self.table();
        let slot = table.slot_mut(number(fd)?).and_then(Option::as_mut).ok_or(Errno::EBADF)?;
        slot.cloexec = flags & FD_CLOEXEC != 0;
        Ok(())
    }

    /// The numbers from `first` to `last` that are open.
    pub(crate) fn open_in(&self, first: u32, last: u32) -> Vec<i32> {
        let table = self.table();
        let end = table.len().min((last as usize).saturating_add(1));
        (first as usize..end)
            .filter(|&fd| table.slot(fd).is_some_and(Option::is_some))
            .map(|fd| fd as i32)
            .collect()
    }

    /// Every open file, as often as it is open; for `fput`.
    pub(crate) fn files(&self) -> Vec<FileArc> {
        self.table().slots().flatten().map(|slot| slot.file.clone()).collect()
    }

    /// A table without files, whose files count against `memory`.
    pub(crate) fn new(memory: Option<Arc<Budget>>) -> Files {
        Files { memory, ..Files::default() }
    }

    /// A copy of the table, as fork makes one, up to the last number in use. Kernel: fs/file.c `dup_fd()`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, unless it is counted anyway.
    pub(crate) fn duplicate(&self, beyond: Beyond) -> Result<Files> {
        let table = self.table();
        let high = table.rest.as_ref().map_or(&[][..], |rest| &rest.high);
        let high = &high[..high.iter().rposition(Option::is_some).map_or(0, |last| last + 1)];
        let files = table.low.iter().chain(high).flatten().count() as u32;
        let counted = files.saturating_sub(FILES_STEP).next_multiple_of(FILES_STEP);
        let bytes = u64::from(counted) * FILE_BYTES + size_of_val(high) as u64;
        let charge = Charge::with(self.memory.as_ref(), bytes, beyond)?;
        let rest = Rest { high: high.to_vec(), counted, charge, ..Rest::default() };
        let rest = (!rest.high.is_empty()).then(|| Box::new(rest));
        let copy = Table { next: table.next, files, low: table.low.clone(), rest };
        let memory = self.memory.clone();
        Ok(Files { len: Racy32::new(copy.len() as u32), table: Line(SpinLock::new(copy)), memory })
    }

    /// Takes out the files that do not survive execve, for `fput`. Kernel: fs/file.c `do_close_on_exec()`.
    pub(crate) fn close_on_exec(&self) -> Vec<FileArc> {
        let mut table = self.table();
        let closing = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| slot.cloexec);
        let fds: Vec<usize> = (0..table.len()).filter(|&fd| table.slot(fd).is_some_and(closing)).collect();
        fds.into_iter().filter_map(|fd| table.take(fd)).map(|slot| slot.file).collect()
    }

    /// Takes every file out, for `fput`.
    pub(crate) fn drain(&self) -> Vec<FileArc> {
        let Table { low, rest, .. } = std::mem::take(&mut *self.table());
        low.into_iter()
            .chain(rest.into_iter().flat_map(|rest| rest.high))
            .flatten()
            .map(|slot| slot.file)
            .collect()
    }
}
