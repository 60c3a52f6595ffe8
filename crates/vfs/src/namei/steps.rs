//! The steps of the general walk within a mount: may the directory be searched, is the name there, is what was seen still so.

use super::{Nameidata, Position, Stop, Walk};
use crate::base::errno::Errno;
use crate::base::uapi::{NAME_MAX, RESOLVE_CACHED};
use crate::base::variants::SearchCheck;
use crate::dcache::inode::flags;
use crate::dcache::store::Store;
use crate::dcache::{Look, Name, Seen};
use crate::kernel::Bail;
use crate::mount::Path;
use crate::perm::MAY_EXEC;
use rcuwalk_sync::{Handle, step};

impl Nameidata<'_> {
    /// Whether the walk may look for a name in the directory it stands in.
    ///
    /// Kernel: fs/namei.c `may_lookup()`.
    #[inline(always)]
    pub(super) fn may_lookup<const RCU: bool>(&self, at: Position) -> Walk<()> {
        let known = at.seen.meta.may_search() && self.kernel.plain_search();
        if known && (RCU || !self.kernel.is_recording()) {
            return Ok(());
        }
        self.may_lookup_slow::<RCU>(at)
    }

    /// [`may_lookup`](Self::may_lookup) of a directory that not everybody may search, or as the
    /// [variants](crate::base::variants) have it.
    #[inline(never)]
    fn may_lookup_slow<const RCU: bool>(&self, at: Position) -> Walk<()> {
        let kernel = self.kernel;
        if !kernel.plain_search() {
            let known = match kernel.variants.search() {
                SearchCheck::Stored => at.seen.meta.may_search(),
                SearchCheck::Mode => everyone_may_search(&kernel.store, at.seen.dentry),
                SearchCheck::Always => false,
            };
            if kernel.variants.count_searches() {
                kernel.searches.here()[usize::from(!known)].add(1);
            }
            if known && (RCU || !kernel.is_recording()) && !kernel.is_hooked() {
                return Ok(());
            }
        }
        match self.permission::<RCU>(at, MAY_EXEC) {
            Ok(()) => Ok(()),
            Err(stop) => {
                if RCU && matches!(stop, Stop::Fail(_)) {
                    self.revalidate(at.seen)?;
                }
                self.kernel.mount_used(at.mnt);
                match stop {
                    Stop::Fail(errno) => Err(self.unconfirmed(errno)),
                    retry => Err(retry),
                }
            }
        }
    }

    /// Whether the task may do `mask` to the inode of `seen`. A refusal in RCU-walk is not validated yet.
    ///
    /// Kernel: fs/namei.c `inode_permission()`.
    fn permission<const RCU: bool>(&self, at: Position, mask: u32) -> Walk<()> {
        let store = &self.kernel.store;
        let i = store.inode(store.d_inode(at.seen.dentry));
        loop {
            let seq = if RCU { i.seq.begin() } else { i.seq.wait() };
            let answer = self.kernel.racy_permission(at.mnt, i, self.cred, mask);
            if !step!("permission", i.seq.retry(seq)) {
                return answer.map_err(Stop::Fail);
            }
            if RCU {
                return Err(Stop::Retry(Bail::InodeChanged));
            }
        }
    }

    /// The entry `name` of the directory the walk stands in; with a reference in REF-walk.
    ///
    /// Kernel: fs/namei.c `lookup_fast()`, `lookup_slow()`.
    #[inline(always)]
    pub(crate) fn lookup_fast<const RCU: bool>(&mut self, at: Position, name: Name<'_>) -> Walk<Seen> {
        if !RCU {
            let found = self.lookup_ref(at, name);
            if self.kernel.is_recording() {
                self.kernel.tell_lookup(at.path(), name, found.as_ref().ok().map(|child| child.dentry));
            }
            return found;
        }
        let tree = self.kernel.store.tree();
        match tree.d_lookup_rcu(at.seen.dentry, name) {
            Look::Hit(_) if step!("parent", tree.retry(at.seen)) => Err(Stop::Retry(Bail::DentryMoved)),
            Look::Hit(child) => Ok(child),
            Look::Miss => self.prove_missing(at, name),
            Look::Astray => Err(Stop::Retry(Bail::Astray)),
        }
    }

    /// Looks again for a name that was not found, so that the miss can be believed: with the directory's entries unchanged from
    /// before the look to after it. The first look pays for none of this, since most names exist.
    #[inline(never)]
    pub(super) fn prove_missing(&mut self, at: Position, name: Name<'_>) -> Walk<Seen> {
        let store = &self.kernel.store;
        let dir = store.inode(store.d_inode(at.seen.dentry));
        let entries = dir.seq.begin();
        let dead = dir.mode.get() & flags::DEAD != 0;
        match store.d_lookup_rcu(at.seen.dentry, name) {
            Look::Hit(child) => {
                self.revalidate(at.seen)?;
                return Ok(child);
            }
            Look::Astray => return Err(Stop::Retry(Bail::Astray)),
            Look::Miss => {}
        }
        if step!("missing-entries", dir.seq.retry(entries)) {
            return Err(Stop::Retry(Bail::DirChanged));
        }
        self.revalidate(at.seen)?;
        self.missing = Some((at, entries));
        Err(Stop::Fail(self.missing(at, name, dead)))
    }

    /// [`lookup_fast`](Self::lookup_fast) holding references: tries without the lock, then takes it.
    fn lookup_ref(&mut self, at: Position, name: Name<'_>) -> Walk<Seen> {
        let store = &self.kernel.store;
        for _ in 0..3 {
            match store.d_lookup_rcu(at.seen.dentry, name) {
                Look::Hit(child) if store.legitimize(child) => return Ok(child),
                Look::Miss => {
                    match self.prove_missing(Position { seen: store.see(at.seen.dentry), ..at }, name) {
                        Ok(child) if store.legitimize(child) => return Ok(child),
                        Err(Stop::Fail(errno)) => return Err(Stop::Fail(errno)),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        let ns = store.lock();
        match store.d_lookup(&ns, at.seen.dentry, name) {
            Some(child) => {
                store.links(child).count.get();
                Ok(store.see(child))
            }
            None => {
                let dead = store.inode(store.d_inode(at.seen.dentry)).mode.get() & flags::DEAD != 0;
                Err(Stop::Fail(self.missing(at, name, dead)))
            }
        }
    }

    /// The error for a name that is not there. As on tmpfs nothing remembers that a name is missing, so that a walk
    /// through what is cached alone does not know.
    fn missing(&self, at: Position, name: Name<'_>, dead: bool) -> Errno {
        self.kernel.mount_used(at.mnt);
        if self.lookup.resolve & RESOLVE_CACHED != 0 { Errno::EAGAIN } else { missing(name, dead) }
    }

    /// Fails unless `seen` is still what was seen.
    #[inline(always)]
    pub(crate) fn revalidate(&self, seen: Seen) -> Walk<()> {
        if step!("revalidate", self.kernel.store.dentry(seen.dentry).seq.retry(seen.seq)) {
            return Err(Stop::Retry(Bail::DentryMoved));
        }
        Ok(())
    }

    /// [`revalidate`](Self::revalidate) in RCU-walk; in REF-walk there is nothing to check.
    pub(crate) fn validate<const RCU: bool>(&self, seen: Seen) -> Walk<()> {
        if RCU { self.revalidate(seen) } else { Ok(()) }
    }

    /// Takes the two references to a place that RCU-walk came to, if it is still what it was.
    ///
    /// Kernel: fs/namei.c `legitimize_path()`.
    #[inline(always)]
    pub(crate) fn legitimize(&self, at: Position) -> Walk<()> {
        self.kernel.legitimize(at.mnt, at.seen, self.m_seq).map_err(Stop::Retry)
    }

    /// Lets go of a child that a lookup gave; in RCU-walk makes sure that it was one.
    pub(crate) fn drop_child<const RCU: bool>(&self, child: Seen) -> Walk<()> {
        if RCU {
            return self.revalidate(child);
        }
        self.kernel.store.dput(child.dentry);
        Ok(())
    }

    /// Steps to `child`, whose reference the walk got from a lookup.
    #[inline(always)]
    pub(crate) fn advance<const RCU: bool>(&mut self, child: Handle) {
        if !RCU {
            self.advance_held(child);
        }
    }

    /// Steps to a dentry of the same mount, whose reference passes to the walk.
    pub(super) fn advance_held(&mut self, child: Handle) {
        let old = std::mem::replace(&mut self.held.dentry, child);
        if old != 0 {
            self.kernel.store.dput(old);
        }
    }

    /// Steps to a place whose two references pass to the walk.
    pub(super) fn step_held(&mut self, path: Path) {
        let old = std::mem::replace(&mut self.held, path);
        if old.dentry != 0 {
            self.kernel.store.dput(old.dentry);
            self.kernel.mntput_no_expire(old.mnt);
        }
    }
}

/// What the stored bit says, from the inode; not while that changes.
#[inline(always)]
pub(super) fn everyone_may_search(store: &Store, dentry: Handle) -> bool {
    let i = store.inode(store.d_inode(dentry));
    let seq = i.seq.begin();
    i.everyone_may_search() && !i.seq.retry(seq)
}

/// The error for a name that is not there: in a removed directory nothing can be looked up, otherwise the file system
/// would have refused the name for its length first.
fn missing(name: Name<'_>, dead: bool) -> Errno {
    if name.component.len > NAME_MAX as u32 && !dead { Errno::ENAMETOOLONG } else { Errno::ENOENT }
}
