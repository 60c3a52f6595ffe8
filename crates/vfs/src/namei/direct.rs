//! Asking the whole-path table before a walk, and telling it where the walk led.
//!
//! What lookups of one path store to words that other threads read, while the table is awake:
//!
//! - **The first** leaves a mark and counts it: three plain stores ([`PathTable::admits`]), and now and then more when
//!   the marks get more room. It takes no lock.
//! - **The second** finds the mark. It *tries* the name space lock and writes the entry, if it finds room
//!   ([`Walker::note`]). If another thread has the lock, the next lookup tries instead.
//! - **A repeated one** stores nothing and takes no lock if it finds its entry in the place where the path belongs, and the
//!   stamp stands. If the entry is in another place, one lookup in 64 tries the lock to put it there ([`Walker::promote`]).
//!   If the stamp moved, one in eight tries it to renew the copy ([`Walker::note`]). The task counts these lookups in a word of
//!   its own, which threads share only if they share the task.
//!
//! While the table dozes ([`PathTable::sleeps`]), a task asks it for one path in eight or in 64; the first answer, or the first
//! mark found, wakes it with one more store. Lookups that lead to one dentry in 64 leave a mark without asking. A lookup whose
//! result never enters, such as a refusal, may count itself ([`PathTable::never`]). No lookup waits for a lock on behalf of the
//! table.
//!
//! [`PathTable::admits`]: crate::dcache::pathtable::PathTable::admits
//! [`PathTable::sleeps`]: crate::dcache::pathtable::PathTable::sleeps
//! [`PathTable::never`]: crate::dcache::pathtable::PathTable::never

use super::{At, Lookup, Position, Walker};
use crate::dcache::Seen;
use crate::dcache::inode::Inode;
use crate::dcache::pathtable::{AsOf, Led, Remembered, Signature};
use crate::file::fs_struct::Place;
use crate::kernel::{Bail, WalkMode};
use crate::mount::Path;
use rcuwalk_sync::{Handle, SeqRead, step};

/// Where a lockless walk ended, not validated yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub(crate) position: Position,
    /// The inode, or what the whole-path table has of it.
    pub(crate) inode: &'a Inode,
    /// What vouches for position and inode.
    read: SeqRead<'a>,
    m_seq: u32,
}

/// What the whole-path table was asked in vain: it is told where the walk led.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    pub(super) from: Path,
    pub(super) sign: Signature,
    pub(super) as_of: AsOf,
}

/// What the whole-path table says of a path.
pub(crate) enum Known<'a> {
    /// It leads there.
    To(Candidate<'a>),
    /// It leads nowhere.
    Missing,
    /// Nothing.
    Unknown(Option<Question>),
}

impl<'a> Walker<'a> {
    /// Asks the whole-path table.
    ///
    /// `open`, `stat`, `statx`, `access` and `filename_lookup` each spell out what follows: answer from what it led to and confirm that,
    /// or walk with the question. One function for the five of them, which takes what differs as closures, passes their results
    /// through memory: on a remembered path of four components a stat then executes 449 instructions instead of 332, a statx 746
    /// instead of 539, an access 330 instead of 284, and open with close 885 instead of 834 (callgrind).
    #[inline(always)]
    pub(crate) fn ask(&self, at: At<'_>, path: &[u8], lookup: Lookup) -> Known<'a> {
        self.ask_as_of(at, path, lookup, self.kernel.mounts.seq.begin())
    }

    #[inline(always)]
    pub(super) fn ask_as_of(&self, at: At<'_>, path: &[u8], lookup: Lookup, m_seq: u32) -> Known<'a> {
        let paths = &self.kernel.store.paths;
        // Asleep is asked first, so that a walk which is not helped is hardly delayed.
        if self.kernel.walk_mode() == WalkMode::Direct
            && !paths.sleeps(self.passed)
            && let Some((from, sign)) = self.sign(at, path, lookup)
        {
            let as_of = AsOf { path_seq: self.kernel.store.path_seq.begin(), m_seq };
            return match self.remembered(sign, as_of, lookup) {
                Known::Unknown(_) => Known::Unknown(Some(Question { from, sign, as_of })),
                known => known,
            };
        }
        Known::Unknown(None)
    }

    /// Where a path starts and its signature, if the whole-path table answers such questions.
    #[inline(always)]
    fn sign(&self, at: At<'_>, path: &[u8], lookup: Lookup) -> Option<(Path, Signature)> {
        let from = self.start(at, path).filter(|_| lookup.resolve == 0)?;
        Some((from, self.kernel.store.paths.sign(self.cred.number(), from, path)?))
    }

    /// Marks a path that the table was not asked for as seen, so that it wakes when that one comes again.
    #[cold]
    #[inline(never)]
    pub(super) fn mark(&self, at: At<'_>, path: &[u8], lookup: Lookup) {
        if self.kernel.walk_mode() == WalkMode::Direct
            && let Some((_, sign)) = self.sign(at, path, lookup)
        {
            self.kernel.store.paths.admits(sign);
        }
    }

    /// Where a path starts, if nothing but the table of paths has to be asked.
    #[inline(always)]
    fn start(&self, at: At<'_>, path: &[u8]) -> Option<Path> {
        let place = match (path.first()?, at) {
            (b'/', _) => Place::Root,
            (_, At::Cwd) => Place::Pwd,
            (_, At::File(file)) => return Some(file.path),
            (_, At::Bad) => return None,
        };
        let seq = self.fs.begin();
        let path = self.fs.peek(place);
        (!self.fs.retry(seq)).then_some(path)
    }

    /// The answer of the whole-path table, if it has one that still holds.
    #[inline(always)]
    fn remembered(&self, sign: Signature, as_of: AsOf, lookup: Lookup) -> Known<'a> {
        let store = &self.kernel.store;
        let promoted = || self.promote(sign, as_of);
        let Some(known) = store.paths.find(sign, as_of, promoted) else { return Known::Unknown(None) };
        let position = Position { mnt: known.mnt(), seen: known.seen() };
        let seen = position.seen;
        // As long as the stamp stands, the dentry has the name and the parent it had and its inode is what it was; and if
        // nothing on the way to it changed either, up to after that was read, then this is where the path leads.
        let stale = step!("remembered-stamp", store.stamps.of(seen.dentry) != known.stamp());
        let replaced = if stale { !self.still_there(sign, as_of, known) } else { known.read().retry() };
        if replaced
            || lookup.directory && !seen.is_missing() && !seen.meta.is_dir()
            || seen.meta.is_followed() && !lookup.follow
            || store.path_seq.retry(as_of.path_seq)
        {
            return Known::Unknown(None);
        }
        if seen.is_missing() {
            return Known::Missing;
        }
        if stale {
            return Known::To(self.candidate(position, as_of.m_seq));
        }
        Known::To(Candidate { position, inode: known.inode(), read: known.read(), m_seq: as_of.m_seq })
    }

    /// Whether what the table remembers is where it was, although there is no copy of it, or one that may be out of date:
    /// what is there has to be asked itself.
    #[inline(never)]
    fn still_there(&self, sign: Signature, as_of: AsOf, known: Remembered<'_>) -> bool {
        let store = &self.kernel.store;
        let (mnt, seen) = (known.mnt(), known.seen());
        if seen.is_missing() {
            return false;
        }
        store.prefetch(seen.dentry);
        // `confirm` asks for the dentry's count again; what is plain already need not come that far.
        if store.dentry(seen.dentry).seq.begin() != seen.seq || known.read().retry() {
            return false;
        }
        if known.has_copy() && self.kernel.store.paths.renews(self.passed) {
            // What was told once is told again; `seen` says itself whether it ends a link that was followed.
            self.note(sign, as_of, mnt, Led::To(seen), &[]);
        }
        true
    }

    /// What the table remembers is not where it belongs: now and then it is put there, so that a path which is asked for all
    /// the time is found at the first look.
    #[cold]
    #[inline(never)]
    fn promote(&self, sign: Signature, as_of: AsOf) -> bool {
        let store = &self.kernel.store;
        let ns = if store.paths.promotes(self.passed) { store.try_lock() } else { None };
        ns.inspect(|ns| store.paths.promote(ns, sign, as_of)).is_some()
    }

    /// Tells the whole-path table where a path led that turned at these links and directories, if it still does.
    #[cold]
    pub(super) fn note(&self, sign: Signature, as_of: AsOf, mnt: Handle, led: Led, turns: &[Seen]) {
        let (kernel, store) = (self.kernel, &self.kernel.store);
        // Nothing changes under the lock. If another thread has it, a later lookup tries again.
        let Some(ns) = store.try_lock() else { return };
        let seen = led.seen();
        let d = store.dentry(seen.dentry);
        let added = match led {
            Led::Missing { entries, .. } => {
                step!("note-missing", store.inode(d.inode.get()).seq.retry(entries))
            }
            Led::To(_) | Led::Followed(_) => false,
        };
        let gone = |seen: &Seen| store.dentry(seen.dentry).seq.retry(seen.seq);
        let moved = store.path_seq.retry(as_of.path_seq)
            || kernel.mounts.seq.retry(as_of.m_seq)
            || step!("note-turns", turns.iter().any(gone))
            || step!("note-dentry", gone(&seen));
        if !added && !moved {
            turns.iter().for_each(|turn| store.set_remembered(&ns, turn.dentry));
            store.paths.enter(store, &ns, sign, as_of, mnt, led);
        }
    }

    /// Whether the walk still leads there, so that what was read there counts.
    #[inline(always)]
    pub(crate) fn confirm(&self, found: Candidate<'_>) -> bool {
        let moved = self.kernel.mounts.seq.retry(found.m_seq);
        if !step!("confirm", found.read.retry()) && !moved {
            self.kernel.mount_used(found.position.mnt);
            return true;
        }
        self.kernel.count_bail(if moved { Bail::MountMoved } else { Bail::DentryMoved });
        false
    }

    /// What a walk led to.
    #[inline(always)]
    pub(super) fn candidate(&self, position: Position, m_seq: u32) -> Candidate<'a> {
        let store = &self.kernel.store;
        let d = store.dentry(position.seen.dentry);
        let inode = store.inode(d.inode.get());
        Candidate { position, inode, read: d.seq.since(position.seen.seq), m_seq }
    }

    /// What was found with its inode itself, for whom a copy is not enough.
    #[inline(always)]
    pub(crate) fn itself(&self, found: Candidate<'_>) -> Candidate<'a> {
        self.kernel.store.prefetch(found.position.seen.dentry);
        self.candidate(found.position, found.m_seq)
    }

    /// Takes the references to what the table led to, if it leads there still.
    #[inline(always)]
    pub(crate) fn legitimize(&self, found: Candidate<'_>) -> bool {
        let held = self.kernel.legitimize(found.position.mnt, found.position.seen, found.m_seq);
        held.map_err(|bail| self.kernel.count_bail(bail)).is_ok()
    }
}
