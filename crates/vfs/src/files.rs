//! Open files and descriptor tables.
//!
//! Kernel: include/linux/fs.h `struct file`, fs/file.c.

use crate::cred::Cred;
use crate::errno::{Errno, Result};
use crate::kernel::Kernel;
use crate::mount::Path;
use crate::procfs::ProcNode;
use crate::store::Contents;
use crate::uapi::FD_CLOEXEC;
use rcuwalk_sync::lock::{Mutex, MutexGuard, PoisonError};
use rcuwalk_sync::{Handle, Racy32, Racy64};
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
}

/// An open file: a place, and what it was opened for. Holds a reference to its dentry, which [`Kernel::fput`] gives back.
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
    /// The child that `getdents` gave last; a hint.
    pub(crate) cursor: Racy32,
    /// By which number its locks are known; 0 while it never had any.
    pub(crate) lock_owner: Racy64,
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
#[derive(Debug, Default)]
pub(crate) struct Files {
    table: Mutex<Table>,
    /// How long the table is: below a limit beyond that there is room for certain.
    len: Racy32,
}

#[derive(Debug, Default)]
struct Table {
    slots: Vec<Option<Slot>>,
    /// No number below this is free.
    next: usize,
    /// Objects of closed files, to be used again, [`SPARE_FILES`] at most.
    spare: Vec<FileArc>,
}

/// What a program that opens and closes one file after the other needs, and a few more.
const SPARE_FILES: usize = 8;

/// A file that was taken out of the table by its number.
pub(crate) enum Removed {
    /// The last reference to it.
    Last(Closing),
    /// For `fput`.
    Shared(FileArc),
}

impl Table {
    #[inline]
    fn lowest_free(&self, from: usize) -> usize {
        let from = from.max(self.next);
        if self.slots.get(from).is_none_or(Option::is_none) {
            return from;
        }
        self.slots
            .iter()
            .skip(from)
            .position(Option::is_none)
            .map_or(self.slots.len().max(from), |at| from + at)
    }

    /// The lowest free number not below `from`, which there is then.
    #[inline]
    fn reserve(&mut self, from: usize, limit: usize) -> Result<usize> {
        let fd = self.lowest_free(from);
        if fd >= limit {
            return Err(Errno::EMFILE);
        }
        if from == 0 {
            self.next = fd;
        }
        self.grow_to(fd)?;
        Ok(fd)
    }

    /// Makes sure that there is a number `fd`.
    #[inline]
    fn grow_to(&mut self, fd: usize) -> Result<()> {
        if fd >= self.slots.len() {
            self.slots.try_reserve(fd + 1 - self.slots.len()).map_err(|_| Errno::ENOMEM)?;
            self.slots.resize(fd + 1, None);
        }
        Ok(())
    }

    /// Puts a file at number `fd`, which there is; what was there comes back.
    fn put(&mut self, fd: usize, slot: Slot) -> Option<Slot> {
        if fd == self.next {
            self.next += 1;
        }
        self.slots[fd].replace(slot)
    }

    fn take(&mut self, fd: usize) -> Option<Slot> {
        let slot = self.slots.get_mut(fd)?.take();
        self.next = self.next.min(fd);
        slot
    }
}

#[inline(always)]
fn number(fd: i32) -> Result<usize> {
    usize::try_from(fd).map_err(|_| Errno::EBADF)
}

impl Files {
    #[inline(always)]
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Opens a file at the lowest free number. On failure what there was to open comes back.
    ///
    /// # Errors
    ///
    /// `EMFILE` when that number is beyond the limit, `ENOMEM`.
    ///
    /// Kernel: fs/file.c `alloc_fd()`, fs/file_table.c `alloc_empty_file()`, `fd_install()`.
    #[inline]
    pub(crate) fn open(
        &self,
        opening: Opening,
        cred: &Arc<Cred>,
        cloexec: bool,
        limit: usize,
    ) -> std::result::Result<i32, (Errno, Opening)> {
        let mut table = self.table();
        let fd = match table.reserve(0, limit) {
            Ok(fd) => fd,
            Err(errno) => return Err((errno, opening)),
        };
        let file = match table.spare.pop() {
            Some(mut file) => {
                match FileArc::get_mut(&mut file) {
                    Some(closed) => closed.reopen(opening, cred),
                    None => unreachable!("nobody else has a closed file"),
                }
                file
            }
            None => FileArc::new(File::new(opening, cred)),
        };
        table.put(fd, Slot { file, cloexec });
        self.len.set(table.slots.len() as u32);
        Ok(fd as i32)
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
        let fd = match table.reserve(from, limit) {
            Ok(fd) => fd,
            Err(errno) => return Err((errno, file)),
        };
        table.put(fd, Slot { file, cloexec });
        self.len.set(table.slots.len() as u32);
        Ok(fd as i32)
    }

    /// The file behind `fd`. The caller gives it back through [`Kernel::fput`].
    ///
    /// # Errors
    ///
    /// `EBADF`.
    pub(crate) fn get(&self, fd: i32) -> Result<FileArc> {
        let table = self.table();
        let slot = table.slots.get(number(fd)?).and_then(Option::as_ref).ok_or(Errno::EBADF)?;
        Ok(slot.file.clone())
    }

    /// What `answer` says of the file behind `fd`; it must take no lock. Spares the reference that [`get`](Self::get) takes.
    ///
    /// # Errors
    ///
    /// `EBADF`.
    #[inline(always)]
    pub(crate) fn look<R>(&self, fd: i32, answer: impl FnOnce(&File) -> R) -> Result<R> {
        let table = self.table();
        let slot = table.slots.get(number(fd)?).and_then(Option::as_ref).ok_or(Errno::EBADF)?;
        Ok(answer(&slot.file))
    }

    /// Takes `fd` out of the table. The object of a file that nobody else has is kept for the next one.
    ///
    /// Kernel: fs/file.c `file_close_fd()`.
    #[inline]
    pub(crate) fn remove(&self, fd: i32) -> Result<Removed> {
        let fd = number(fd)?;
        let mut table = self.table();
        let mut file = table.take(fd).map(|slot| slot.file).ok_or(Errno::EBADF)?;
        if table.spare.len() < SPARE_FILES
            && let Some(last) = FileArc::get_mut(&mut file)
        {
            let closing = last.close();
            table.spare.push(file);
            return Ok(Removed::Last(closing));
        }
        Ok(Removed::Shared(file))
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
        let file = table.slots.get(number(old)?).and_then(Option::as_ref).ok_or(Errno::EBADF)?.file.clone();
        table.grow_to(to)?;
        let old = table.put(to, Slot { file, cloexec });
        self.len.set(table.slots.len() as u32);
        Ok(old.map(|slot| slot.file))
    }

    /// The descriptor flags of `fd`: `FD_CLOEXEC` or 0.
    pub(crate) fn fd_flags(&self, fd: i32) -> Result<i32> {
        let table = self.table();
        let slot = table.slots.get(number(fd)?).and_then(Option::as_ref).ok_or(Errno::EBADF)?;
        Ok(if slot.cloexec { FD_CLOEXEC } else { 0 })
    }

    /// Sets the descriptor flags of `fd`.
    pub(crate) fn set_fd_flags(&self, fd: i32, flags: i32) -> Result<()> {
        let mut table = self.table();
        let slot = table.slots.get_mut(number(fd)?).and_then(Option::as_mut).ok_or(Errno::EBADF)?;
        slot.cloexec = flags & FD_CLOEXEC != 0;
        Ok(())
    }

    /// The numbers from `first` to `last` that are open.
    pub(crate) fn open_in(&self, first: u32, last: u32) -> Vec<i32> {
        let table = self.table();
        let end = table.slots.len().min((last as usize).saturating_add(1));
        (first as usize..end).filter(|&fd| table.slots[fd].is_some()).map(|fd| fd as i32).collect()
    }

    /// Every open file, as often as it is open; for `fput`.
    pub(crate) fn files(&self) -> Vec<FileArc> {
        self.table().slots.iter().flatten().map(|slot| slot.file.clone()).collect()
    }

    /// A copy of the table, as fork makes one.
    pub(crate) fn duplicate(&self) -> Files {
        let table = self.table();
        let copy = Table { slots: table.slots.clone(), next: table.next, spare: Vec::new() };
        Files { len: Racy32::new(copy.slots.len() as u32), table: Mutex::new(copy) }
    }

    /// Takes out what is not to survive execve, for `fput`. Kernel: fs/file.c `do_close_on_exec()`.
    pub(crate) fn close_on_exec(&self) -> Vec<FileArc> {
        let mut table = self.table();
        let closing = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| slot.cloexec);
        let fds: Vec<usize> = (0..table.slots.len()).filter(|&fd| closing(&table.slots[fd])).collect();
        fds.into_iter().filter_map(|fd| table.take(fd)).map(|slot| slot.file).collect()
    }

    /// Takes every file out, for `fput`.
    pub(crate) fn drain(&self) -> Vec<FileArc> {
        let mut table = self.table();
        table.next = 0;
        std::mem::take(&mut table.slots).into_iter().flatten().map(|slot| slot.file).collect()
    }
}

/// A file borrowed from a table for one call.
pub(crate) struct FileRef<'a> {
    kernel: &'a Kernel,
    file: Option<FileArc>,
}

impl<'a> FileRef<'a> {
    pub(crate) fn new(kernel: &'a Kernel, file: FileArc) -> Self {
        FileRef { kernel, file: Some(file) }
    }
}

impl std::ops::Deref for FileRef<'_> {
    type Target = FileArc;

    fn deref(&self) -> &FileArc {
        match &self.file {
            Some(file) => file,
            None => unreachable!("taken only by drop"),
        }
    }
}

impl Drop for FileRef<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.kernel.fput(file);
        }
    }
}
