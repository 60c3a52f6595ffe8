//! flock(2), and fcntl(2)'s locks on ranges of bytes.
//!
//! Kernel: fs/locks.c.

use crate::base::errno::{Errno, Result};
use crate::base::flags::FlockOperation;
use crate::base::uapi::*;
use crate::file::File;
use crate::file::locks::{Held, Kind, Table};
use crate::task::Task;
use rcuwalk_sync::lock::{MutexGuard, PoisonError};

/// What a lock of fcntl is about. Kernel: `struct flock`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flock {
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i16,
    /// What `start` counts from: `SEEK_SET`, `SEEK_CUR` or `SEEK_END`.
    pub whence: i16,
    /// The first byte.
    pub start: i64,
    /// How many bytes; 0: to the end, wherever it moves; negative: those before `start`.
    pub len: i64,
    /// In an answer, who holds it: -1 for an open file. Must be 0 for `F_OFD_*`.
    pub pid: i32,
}

const _: () = assert!(size_of::<Flock>() == 32, "struct flock of x86-64");

/// A parsed lock command.
#[derive(Clone, Copy)]
struct Command {
    get: bool,
    wait: bool,
    /// The open file's, not the process's.
    ofd: bool,
}

impl Command {
    fn new(cmd: i32) -> Result<Command> {
        let (get, wait, ofd) = match cmd {
            F_GETLK => (true, false, false),
            F_SETLK => (false, false, false),
            F_SETLKW => (false, true, false),
            F_OFD_GETLK => (true, false, true),
            F_OFD_SETLK => (false, false, true),
            F_OFD_SETLKW => (false, true, true),
            _ => return Err(Errno::EINVAL),
        };
        Ok(Command { get, wait, ofd })
    }
}

impl Task {
    /// Locks the whole open file: `LOCK_SH` (with others), `LOCK_EX` (alone), `LOCK_UN` (no more), each with `LOCK_NB` if it
    /// shall not wait. A lock of the other kind is given up first, and lost if the new one cannot be had.
    ///
    /// # Errors
    ///
    /// `EINVAL` (operation; never with `LOCK_MAND`, which does nothing), `EBADF` (also if it is open for neither reading nor writing),
    /// `ENOMEM`, `EAGAIN` (held by another open file).
    ///
    /// Kernel: fs/locks.c `flock()`.
    pub fn flock(&self, fd: i32, operation: impl Into<FlockOperation>) -> Result<()> {
        self.do_flock(fd, operation.into().bits())
    }

    fn do_flock(&self, fd: i32, operation: i32) -> Result<()> {
        if operation & LOCK_MAND != 0 {
            return Ok(());
        }
        let exclusive = match operation & !LOCK_NB {
            LOCK_SH => Some(false),
            LOCK_EX => Some(true),
            LOCK_UN => None,
            _ => return Err(Errno::EINVAL),
        };
        let file = self.file(fd)?;
        if exclusive.is_some() && !file.mode.read && !file.mode.write {
            return Err(Errno::EBADF);
        }
        let locks = &self.kernel.locks;
        let mut table = locks.table();
        let owner = owner_of(&mut table, &file.lock_owner);
        let own = |held: &Held| held.kind == Kind::Flock && held.owner == owner;
        if exclusive.is_some()
            && table.of(file.inode).iter().any(|held| own(held) && Some(held.exclusive) == exclusive)
        {
            return Ok(());
        }
        if exclusive.is_some() {
            // Before the other kind is given up.
            table.recount(0, 1)?;
        }
        table.remove(file.inode, own);
        locks.freed.notify_all();
        let Some(exclusive) = exclusive else { return Ok(()) };
        let new = Held { kind: Kind::Flock, owner, exclusive, start: 0, end: i64::MAX, pid: -1 };
        while table.of(file.inode).iter().any(|held| held.conflicts(&new)) {
            if operation & LOCK_NB != 0 {
                table.recount(1, 0)?;
                return Err(Errno::EAGAIN);
            }
            table = locks.freed.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
        table.held.entry(file.inode).or_default().push(new);
        Ok(())
    }

    /// Locks, unlocks or asks about a range of bytes. `cmd`: `F_SETLK` (`EAGAIN` if another holds it), `F_SETLKW` (waits),
    /// `F_GETLK` (the first lock in the way, or `F_UNLCK`), for locks of this process; `F_OFD_SETLK`, `F_OFD_SETLKW`,
    /// `F_OFD_GETLK` for locks of the open file.
    ///
    /// # Errors
    ///
    /// `EBADF` (also for `O_PATH`; not open for reading, to share, or writing, to be alone), `EINVAL` (command, kind,
    /// whence; before the first byte; `pid` of `F_OFD_*`), `EOVERFLOW` (beyond the largest offset), `EAGAIN`, `EDEADLK` (the
    /// holder waits for this process), `ENOLCK` (no memory for a lock more).
    ///
    /// Kernel: fs/locks.c `fcntl_setlk()`, `fcntl_getlk()`.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Errno, Flock, Vfs, uapi::*};
    /// # let vfs = Vfs::new()?;
    /// let task = vfs.task(Cred::root());
    /// let fd = task.open(b"/f", O_CREAT | O_RDWR, 0o644)?;
    /// let mut lock = Flock { kind: F_WRLCK, start: 10, len: 5, ..Flock::default() };
    /// task.fcntl_lock(fd, F_SETLK, &mut lock)?;
    /// assert_eq!(task.fork().fcntl_lock(fd, F_SETLK, &mut lock), Err(Errno::EAGAIN));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn fcntl_lock(&self, fd: i32, cmd: i32, lock: &mut Flock) -> Result<()> {
        let command = Command::new(cmd)?;
        let file = self.file(fd)?;
        if command.get && !command.ofd && ![F_RDLCK, F_WRLCK].contains(&lock.kind) {
            return Err(Errno::EINVAL);
        }
        let (start, end) = self.lock_range(&file, lock)?;
        if !command.get {
            match lock.kind {
                F_RDLCK if !file.mode.read => return Err(Errno::EBADF),
                F_WRLCK if !file.mode.write => return Err(Errno::EBADF),
                _ => {}
            }
        }
        if command.ofd && lock.pid != 0 {
            return Err(Errno::EINVAL);
        }
        let mut table = self.kernel.locks.table();
        let word = if command.ofd { &file.lock_owner } else { &self.files.lock_owner };
        let owner = owner_of(&mut table, word);
        let pid = if command.ofd { -1 } else { self.ids.tgid };
        let new = Held { kind: Kind::Range, owner, exclusive: lock.kind == F_WRLCK, start, end, pid };
        if command.get {
            get_lock(&table, &file, &new, lock);
            return Ok(());
        }
        self.set_lock(table, &file, new, lock.kind == F_UNLCK, command)
    }

    /// The first byte and the last. Kernel: `flock64_to_posix_lock()`.
    fn lock_range(&self, file: &File, lock: &Flock) -> Result<(i64, i64)> {
        let base = match i32::from(lock.whence) {
            SEEK_SET => 0,
            SEEK_CUR => file.pos.get() as i64,
            SEEK_END => self.kernel.store.inode(file.inode).size.get() as i64,
            _ => return Err(Errno::EINVAL),
        };
        let start = base.checked_add(lock.start).ok_or(Errno::EOVERFLOW)?;
        if start < 0 {
            return Err(Errno::EINVAL);
        }
        let range = match lock.len {
            0 => (start, i64::MAX),
            len @ 1.. => (start, start.checked_add(len - 1).ok_or(Errno::EOVERFLOW)?),
            len if start.checked_add(len).is_none_or(|first| first < 0) => return Err(Errno::EINVAL),
            len => (start + len, start - 1),
        };
        if [F_RDLCK, F_WRLCK, F_UNLCK].contains(&lock.kind) { Ok(range) } else { Err(Errno::EINVAL) }
    }

    /// Kernel: `do_lock_file_wait()`.
    fn set_lock(
        &self,
        mut table: MutexGuard<'_, Table>,
        file: &File,
        new: Held,
        unlock: bool,
        command: Command,
    ) -> Result<()> {
        let locks = &self.kernel.locks;
        while !unlock && let Some(blocker) = table.of(file.inode).iter().find(|held| held.conflicts(&new)) {
            if !command.wait {
                return Err(Errno::EAGAIN);
            }
            let blocker = blocker.owner;
            if !command.ofd && table.deadlocks(new.owner, blocker) {
                return Err(Errno::EDEADLK);
            }
            table.waiting.push((new.owner, blocker));
            table = locks.freed.wait(table).unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = table.waiting.iter().position(|&pair| pair == (new.owner, blocker)) {
                table.waiting.swap_remove(at);
            }
        }
        let set = table.set_range(file.inode, new, unlock);
        drop(table);
        // Also when it was locked anew: a range may have become shared.
        locks.freed.notify_all();
        set
    }
}

/// The number of an owner, given with its first lock.
fn owner_of(table: &mut Table, word: &rcuwalk_sync::Racy64) -> u64 {
    if word.get() == 0 {
        word.set(table.next_owner());
    }
    word.get()
}

/// Says what is in the way of `new`. Kernel: `posix_test_lock()`.
fn get_lock(table: &Table, file: &File, new: &Held, lock: &mut Flock) {
    // Of an open file one may also ask for its own locks.
    let own = lock.kind == F_UNLCK;
    let found = table.of(file.inode).iter().find(|held| match own {
        true => held.kind == Kind::Range && held.owner == new.owner && held.overlaps(new),
        false => held.conflicts(new),
    });
    match found {
        None => lock.kind = F_UNLCK,
        Some(held) => {
            *lock = Flock {
                kind: if held.exclusive { F_WRLCK } else { F_RDLCK },
                whence: SEEK_SET as i16,
                start: held.start,
                len: if held.end == i64::MAX { 0 } else { held.end - held.start + 1 },
                pid: held.pid,
            };
        }
    }
}
