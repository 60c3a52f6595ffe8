//! The steps that may leave a mount: onto what is mounted over a dentry, and up by `..`.

use super::{Nameidata, Position, Stop, Walk};
use crate::base::errno::Errno;
use crate::base::uapi::{RESOLVE_BENEATH, RESOLVE_NO_XDEV};
use crate::dcache::{Meta, Seen};
use crate::kernel::Bail;
use crate::kernel::trace::Event;
use crate::mount::Path;
use rcuwalk_sync::{Handle, step};

impl Nameidata<'_> {
    /// Steps to `child`, found in mount `mnt`, or to what is mounted over it.
    ///
    /// Kernel: fs/namei.c `handle_mounts()`.
    #[inline(always)]
    pub(crate) fn handle_mounts<const RCU: bool>(&mut self, mnt: Handle, child: Seen) -> Walk<Position> {
        if child.meta.is_mounted() {
            return self.traverse_mounts::<RCU>(mnt, child);
        }
        self.advance::<RCU>(child.dentry);
        Ok(Position { mnt, seen: child })
    }

    /// [`handle_mounts`](Self::handle_mounts) of a dentry that is a mountpoint, in this or another namespace.
    ///
    /// Kernel: fs/namei.c `__follow_mount_rcu()`, `__traverse_mounts()`.
    #[cold]
    pub(super) fn traverse_mounts<const RCU: bool>(&mut self, mnt: Handle, child: Seen) -> Walk<Position> {
        let (kernel, store) = (self.kernel, &self.kernel.store);
        let no_xdev = self.lookup.resolve & RESOLVE_NO_XDEV != 0;
        if RCU {
            let mut at = Position { mnt, seen: child };
            while at.seen.meta.is_mounted()
                && let Some(mnt) = kernel.mounts.lookup(at.mnt, at.seen.dentry)
            {
                let root = kernel.mount(mnt).root.get();
                let d = store.dentry(root);
                at = Position {
                    mnt,
                    seen: Seen { dentry: root, seq: d.seq.begin(), meta: Meta(d.meta.get()) },
                };
            }
            self.check_mounts()?;
            self.revalidate(child)?;
            if no_xdev && at.mnt != mnt {
                return Err(self.unconfirmed(Errno::EXDEV));
            }
            return Ok(at);
        }
        let from = Path { mnt, dentry: child.dentry };
        let to = {
            let ns = store.lock();
            let to = kernel.topmost(&ns, from);
            if to.mnt != mnt {
                kernel.path_get(to);
            }
            to
        };
        if to.mnt == mnt {
            self.advance_held(child.dentry);
        } else {
            store.dput(child.dentry);
            self.step_held(to);
            if no_xdev {
                return Err(self.unconfirmed(Errno::EXDEV));
            }
        }
        self.tell::<RCU>(|kernel| Event::Crossed { to: kernel.spot(to) });
        Ok(Position { mnt: to.mnt, seen: store.see(to.dentry) })
    }

    /// Whether something is mounted over `child` as seen through `mnt`.
    #[cold]
    pub(super) fn is_covered<const RCU: bool>(&self, mnt: Handle, child: Seen) -> Walk<bool> {
        let covered = self.kernel.mounts.lookup(mnt, child.dentry).is_some();
        if RCU {
            self.check_mounts()?;
        }
        Ok(covered)
    }

    /// Fails if anything was mounted or unmounted since the walk started.
    fn check_mounts(&self) -> Walk<()> {
        let moved = step!("mounts", self.kernel.mounts.seq.retry(self.m_seq));
        if moved { Err(Stop::Retry(Bail::MountMoved)) } else { Ok(()) }
    }

    /// Steps to the parent. Kernel: fs/namei.c `handle_dots()`, `follow_dotdot()`.
    pub(super) fn follow_dotdot<const RCU: bool>(&mut self, at: Position) -> Walk<Position> {
        let root = self.root::<RCU>()?;
        let from = if at.path() == root.path() {
            None
        } else if at.seen.dentry == self.kernel.mount(at.mnt).root.get() {
            self.choose_mountpoint::<RCU>(at, root)?
        } else {
            Some(at)
        };
        let parent = match from {
            None => self.stay_in_root::<RCU>(at)?,
            Some(from) => {
                if from.seen.dentry != self.up {
                    self.turn(from.seen);
                }
                let parent = self.step_up::<RCU>(from)?;
                self.path_connected::<RCU>(from, parent.seen.dentry)?;
                parent
            }
        };
        self.up = parent.seen.dentry;
        self.tell::<RCU>(|kernel| Event::Up { to: kernel.spot(parent.path()) });
        let over = self.cross::<RCU>(parent)?;
        let store = &self.kernel.store;
        let moved = store.rename_seq.retry(self.renames) || self.kernel.mounts.seq.retry(self.m_seq);
        if self.lookup.scoped() && moved {
            return Err(Stop::Fail(Errno::EAGAIN));
        }
        Ok(over)
    }

    /// `..` leads nowhere from the root of the walk, but to what is mounted over it.
    fn stay_in_root<const RCU: bool>(&self, at: Position) -> Walk<Position> {
        if self.lookup.resolve & RESOLVE_BENEATH != 0 {
            if RCU {
                self.check_mounts()?;
            }
            self.validate::<RCU>(at.seen)?;
            return Err(self.unconfirmed(Errno::EXDEV));
        }
        Ok(at)
    }

    /// From the root of a mount up to what it covers; `None` if that would pass the root of the walk, or the mount is
    /// attached nowhere.
    ///
    /// Kernel: fs/namei.c `choose_mountpoint()`.
    #[cold]
    fn choose_mountpoint<const RCU: bool>(&mut self, at: Position, root: Position) -> Walk<Option<Position>> {
        let (kernel, store) = (self.kernel, &self.kernel.store);
        let over = if RCU {
            let over = kernel.mountpoint_above(at.path(), root.path());
            let seen = over.map(|over| {
                let d = store.dentry(over.dentry);
                Seen { dentry: over.dentry, seq: d.seq.begin(), meta: Meta(d.meta.get()) }
            });
            self.check_mounts()?;
            self.revalidate(at.seen)?;
            over.zip(seen).map(|(over, seen)| Position { mnt: over.mnt, seen })
        } else {
            let _ns = store.lock();
            let over = kernel.mountpoint_above(at.path(), root.path());
            over.map(|over| {
                kernel.path_get(over);
                Position { mnt: over.mnt, seen: store.see(over.dentry) }
            })
        };
        let Some(over) = over else { return Ok(None) };
        if !RCU {
            self.step_held(over.path());
        }
        if self.lookup.resolve & RESOLVE_NO_XDEV != 0 {
            return Err(self.unconfirmed(Errno::EXDEV));
        }
        Ok(Some(over))
    }

    /// To the parent within the mount.
    fn step_up<const RCU: bool>(&mut self, at: Position) -> Walk<Position> {
        let store = &self.kernel.store;
        loop {
            let d = store.dentry(at.seen.dentry);
            let now = if RCU { at.seen.seq } else { d.seq.wait() };
            let parent = d.parent.get();
            let p = store.dentry(parent);
            let seen = Seen { dentry: parent, seq: p.seq.begin(), meta: Meta(p.meta.get()) };
            if RCU {
                self.revalidate(at.seen)?;
                return Ok(Position { mnt: at.mnt, seen });
            }
            // The child holds its parent, so the count is not zero unless the child has moved on.
            if store.links(parent).count.get_not_zero() {
                if d.seq.retry(now) {
                    store.dput(parent);
                    continue;
                }
                self.advance_held(parent);
                return Ok(Position { mnt: at.mnt, seen: store.see(parent) });
            }
        }
    }

    /// Whether `parent`, come to from `at`, is still in the tree that the mount shows: a directory can be moved out of a
    /// tree that is bound elsewhere.
    ///
    /// Kernel: fs/namei.c `path_connected()`.
    #[inline]
    fn path_connected<const RCU: bool>(&self, at: Position, parent: Handle) -> Walk<()> {
        let store = &self.kernel.store;
        let root = self.kernel.mount(at.mnt).root.get();
        if parent == root || store.dentry(root).parent.get() == root {
            return Ok(());
        }
        let connected = if RCU {
            let renames = store.rename_seq.begin();
            let connected = store.is_subdir(parent, root);
            if store.rename_seq.retry(renames) {
                return Err(Stop::Retry(Bail::DentryMoved));
            }
            self.check_mounts()?;
            self.revalidate(at.seen)?;
            connected
        } else {
            store.is_subdir_now(parent, root)
        };
        if connected { Ok(()) } else { Err(Stop::Fail(Errno::ENOENT)) }
    }

    /// What is mounted over the directory that `..` led to, which the walk holds already.
    #[inline]
    fn cross<const RCU: bool>(&mut self, at: Position) -> Walk<Position> {
        if !at.seen.meta.is_mounted() {
            return Ok(at);
        }
        if !RCU {
            self.kernel.store.links(at.seen.dentry).count.get();
        }
        self.traverse_mounts::<RCU>(at.mnt, at.seen)
    }
}
