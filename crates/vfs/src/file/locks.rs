//! Locks on files: those of flock(2), and fcntl(2)'s on ranges of bytes, of processes (POSIX) or of open files (OFD).
//!
//! Kernel: fs/locks.c. Locks of flock belong to the open file, as OFD locks do; POSIX locks belong to the descriptor table
//! and end with the first descriptor of the file that it closes. Nothing that reads or writes asks for them.

use crate::base::errno::{Errno, Result};
use crate::file::{Closing, FileMode};
use rcuwalk_sync::lock::{Condvar, Mutex, MutexGuard, PoisonError};
use rcuwalk_sync::{Budget, Handle};
use std::collections::HashMap;
use std::sync::Arc;

/// Two kinds of locks that know nothing of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Flock,
    Range,
}

/// A lock that is held, or asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) kind: Kind,
    /// A number of [`Table::next_owner`]: an open file's or a descriptor table's.
    pub(crate) owner: u64,
    pub(crate) exclusive: bool,
    /// The first byte and the last.
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// The process that took it; -1 for an open file's.
    pub(crate) pid: i32,
}

impl Held {
    pub(crate) fn overlaps(&self, other: &Held) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    pub(crate) fn conflicts(&self, other: &Held) -> bool {
        self.kind == other.kind
            && self.owner != other.owner
            && (self.exclusive || other.exclusive)
            && self.overlaps(other)
    }
}

/// All locks.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// By inode, in the order in which they are found: one owner's next to each other, by offset.
    pub(crate) held: HashMap<Handle, Vec<Held>>,
    /// Who waits for whom, of the owners of POSIX locks.
    pub(crate) waiting: Vec<(u64, u64)>,
    last_owner: u64,
    memory: Option<Arc<Budget>>,
}

/// What a lock counts for as memory, with its part of the lists; bytes.
const LOCK_BYTES: u64 = 192;

impl Table {
    pub(crate) fn next_owner(&mut self) -> u64 {
        self.last_owner += 1;
        self.last_owner
    }

    pub(crate) fn of(&self, inode: Handle) -> &[Held] {
        self.held.get(&inode).map_or(&[], Vec::as_slice)
    }

    /// Counts that there are to be `after` locks in the place of `before`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn recount(&self, before: usize, after: usize) -> Result<()> {
        let Some(memory) = &self.memory else { return Ok(()) };
        match after.checked_sub(before) {
            None => memory.release((before - after) as u64 * LOCK_BYTES),
            Some(more) if memory.charge(more as u64 * LOCK_BYTES) => {}
            Some(_) => return Err(Errno::ENOMEM),
        }
        Ok(())
    }

    /// Takes what `is` away.
    pub(crate) fn remove(&mut self, inode: Handle, is: impl Fn(&Held) -> bool) {
        if let Some(list) = self.held.get_mut(&inode) {
            let before = list.len();
            list.retain(|held| !is(held));
            if let Some(memory) = &self.memory {
                memory.release((before - list.len()) as u64 * LOCK_BYTES);
            }
            if list.is_empty() {
                self.held.remove(&inode);
            }
        }
    }

    /// Puts the range of `new` under it, or frees it if `unlock`; what else its owner holds stays, joined with it where it
    /// is alike.
    ///
    /// # Errors
    ///
    /// `ENOLCK`: no memory for a lock more, which also unlocking the middle of one may need.
    ///
    /// Kernel: `posix_lock_inode()`.
    pub(crate) fn set_range(&mut self, inode: Handle, new: Held, unlock: bool) -> Result<()> {
        let list = self.of(inode);
        let own = |held: &Held| held.kind == Kind::Range && held.owner == new.owner;
        let at = list.iter().position(own);
        let mut parts = Vec::new();
        for held in list.iter().copied().filter(own) {
            if !held.overlaps(&new) {
                parts.push(held);
                continue;
            }
            if held.start < new.start {
                parts.push(Held { end: new.start - 1, ..held });
            }
            if held.end > new.end {
                parts.push(Held { start: new.end + 1, ..held });
            }
        }
        if !unlock {
            parts.push(new);
        }
        parts.sort_by_key(|held| held.start);
        parts.dedup_by(|next, held| {
            let joins = held.exclusive == next.exclusive && held.end.checked_add(1) == Some(next.start);
            if joins {
                held.end = next.end;
            }
            joins
        });
        self.recount(list.iter().filter(|&held| own(held)).count(), parts.len())
            .map_err(|_| Errno::ENOLCK)?;
        let list = self.held.entry(inode).or_default();
        list.retain(|held| !own(held));
        let at = at.unwrap_or(list.len()).min(list.len());
        list.splice(at..at, parts);
        if list.is_empty() {
            self.held.remove(&inode);
        }
        Ok(())
    }

    /// Whether `owner` would wait for itself if it waited for `blocker`. Kernel: `posix_locks_deadlock()`.
    pub(crate) fn deadlocks(&self, owner: u64, blocker: u64) -> bool {
        /// As far as anybody follows the chain.
        const MAX_DEADLK_ITERATIONS: usize = 10;
        let mut at = blocker;
        for _ in 0..MAX_DEADLK_ITERATIONS {
            match self.waiting.iter().find(|(who, _)| *who == at) {
                Some(&(_, whom)) if whom == owner => return true,
                Some(&(_, whom)) => at = whom,
                None => return false,
            }
        }
        false
    }
}

/// The locks of a [`Kernel`](crate::kernel::Kernel).
#[derive(Debug)]
pub(crate) struct Locks {
    table: Mutex<Table>,
    /// A lock was given back.
    pub(crate) freed: Condvar,
}

impl Locks {
    /// Locks that count against `memory`.
    pub(crate) fn new(memory: Option<Arc<Budget>>) -> Locks {
        Locks { table: Mutex::new(Table { memory, ..Table::default() }), freed: Condvar::default() }
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes away what the owner has on the inode.
    fn remove_owner(&self, inode: Handle, owner: u64) {
        self.table().remove(inode, |held| held.owner == owner);
        self.freed.notify_all();
    }

    /// The file is closed for good. Kernel: `locks_remove_file()`.
    #[inline]
    pub(crate) fn remove_file(&self, file: &Closing) {
        if file.lock_owner != 0 {
            self.remove_owner(file.inode, file.lock_owner);
        }
    }

    /// A descriptor of the file was closed. Kernel: `locks_remove_posix()`.
    #[inline]
    pub(crate) fn remove_posix(&self, inode: Handle, mode: FileMode, owner: u64) {
        if owner != 0 && !mode.path {
            self.remove_owner(inode, owner);
        }
    }
}
