//! An inode as a mount shows it, what a mount forbids, and references to mounts and places.
//!
//! Kernel: fs/namespace.c, fs/namei.c.

use crate::base::errno::{Errno, Result};
use crate::cred::Cred;
use crate::dcache::Seen;
use crate::dcache::inode::{Inode, RacyAcl};
use crate::dcache::store::Namespace;
use crate::kernel::mount_lock::STEPS;
use crate::kernel::mount_tree::Umount;
use crate::kernel::trace::Spot;
use crate::kernel::{Bail, Kernel};
use crate::mount::views::HeldView;
use crate::mount::{Mount, Path, ROOT_MOUNT, flags};
use crate::perm::fact::Rule;
use crate::perm::{self, InodeAttr, watched};
use rcuwalk_sync::{Handle, step};

impl Kernel {
    /// The mount namespace that a mount shows its tree in, the tree, and the way ids look.
    #[inline(always)]
    pub(crate) fn mount(&self, mnt: Handle) -> &Mount {
        self.mounts.get(mnt)
    }

    /// Whether the mount has any of these [`flags`].
    #[inline(always)]
    pub(crate) fn mount_has(&self, mnt: Handle, flags: u32) -> bool {
        self.mount(mnt).flags.get() & flags != 0
    }

    /// Whether the superblock of the mount is read-only.
    #[inline(always)]
    pub(crate) fn sb_rdonly(&self, mnt: Handle) -> bool {
        self.mount_has(mnt, flags::SB_RDONLY)
    }

    /// Whether nothing can be written through the mount. Kernel: fs/namespace.c `mnt_want_write()`.
    pub(crate) fn mount_rdonly(&self, mnt: Handle) -> bool {
        self.mount_has(mnt, flags::RDONLY | flags::SB_RDONLY)
    }

    /// Whether something can be written through the mount. Kernel: fs/namespace.c `mnt_want_write()`.
    pub(crate) fn want_write(&self, mnt: Handle) -> Result<()> {
        if !self.mount_rdonly(mnt) {
            return Ok(());
        }
        let rule = if self.sb_rdonly(mnt) { Rule::ReadOnlySuperblock } else { Rule::ReadOnlyMount };
        self.refuse(Path { mnt, dentry: self.mount(mnt).root.get() }, rule, Errno::EROFS)
    }

    /// How ids look through the mount.
    #[inline]
    pub(crate) fn id_view(&self, mnt: Handle) -> HeldView<'_> {
        self.mounts.view(mnt)
    }

    /// What a permission check needs of an inode, as the mount shows it.
    #[inline(always)]
    pub(crate) fn attr(&self, mnt: Handle, inode: &Inode) -> InodeAttr {
        let attr = inode.attr();
        if self.mount_has(mnt, flags::IDMAPPED) { self.map_attr(mnt, attr) } else { attr }
    }

    #[cold]
    fn map_attr(&self, mnt: Handle, attr: InodeAttr) -> InodeAttr {
        let view = self.id_view(mnt);
        let view = view.get();
        InodeAttr { uid: view.make_vfsuid(attr.uid), gid: view.make_vfsgid(attr.gid), ..attr }
    }

    /// The access ACL of an inode, as the mount shows it.
    #[inline(always)]
    pub(crate) fn racy_acl(&self, mnt: Handle, inode: &Inode) -> RacyAcl<'_> {
        let blob = inode.acl.get();
        let idmapped = blob != 0 && self.mount_has(mnt, flags::IDMAPPED);
        let view = if idmapped { self.id_view(mnt).into_shared() } else { None };
        RacyAcl { store: &self.store, blob, view }
    }

    /// Takes a reference to a mount that is held already.
    #[inline]
    pub(crate) fn mntget(&self, mnt: Handle) {
        if mnt != ROOT_MOUNT {
            self.mount(mnt).count.get();
        }
    }

    /// Takes a reference to a mount unless nobody holds it.
    #[inline]
    #[must_use]
    pub(crate) fn mntget_not_zero(&self, mnt: Handle) -> bool {
        mnt == ROOT_MOUNT || self.mount(mnt).count.get_not_zero()
    }

    /// Gives a reference back that made use of the mount, and frees it if it was the last.
    ///
    /// Kernel: fs/namespace.c `mntput()`.
    #[inline]
    pub(crate) fn mntput(&self, mnt: Handle) {
        self.mount_used(mnt);
        self.mntput_no_expire(mnt);
    }

    /// Notes that a walk ended in this mount, whatever came of it.
    #[inline(always)]
    pub(crate) fn mount_used(&self, mnt: Handle) {
        if self.mounts.marked.get() != 0 && self.mount(mnt).expiring.get() != 0 {
            self.mount(mnt).expiring.set(0);
        }
    }

    /// [`mntput`](Self::mntput) of a walk, which is no use of the mount yet.
    #[inline]
    pub(crate) fn mntput_no_expire(&self, mnt: Handle) {
        if mnt != ROOT_MOUNT && self.mount(mnt).count.put() {
            let mut ns = self.store.lock();
            ns.mnt.unused.push(mnt);
            while self.free_mounts(&mut ns, STEPS) {
                ns.pause(|| ());
            }
        }
    }

    /// [`mntput`](Self::mntput) while the lock is held. The mounts that only this one kept are freed later if they are many.
    pub(crate) fn mntput_locked(&self, ns: &mut Namespace, mnt: Handle) {
        if mnt != ROOT_MOUNT && self.mount(mnt).count.put() {
            ns.mnt.unused.push(mnt);
            self.free_mounts(ns, 1);
        }
    }

    /// References to a mount, that of the tree it is attached to included.
    pub(crate) fn mount_count(&self, mnt: Handle) -> u32 {
        self.mount(mnt).count.count()
    }

    /// Takes a reference to a place that is held already.
    pub(crate) fn path_get(&self, path: Path) {
        self.mntget(path.mnt);
        self.store.links(path.dentry).count.get();
    }

    /// Gives the references to a place back. Kernel: fs/namei.c `path_put()`.
    #[inline]
    pub(crate) fn path_put(&self, path: Path) {
        self.store.dput(path.dentry);
        self.mntput(path.mnt);
    }

    /// [`path_put`](Self::path_put) while the lock is held.
    pub(crate) fn path_put_locked(&self, ns: &mut Namespace, path: Path) {
        self.store.put_locked(ns, path.dentry);
        self.mntput_locked(ns, path.mnt);
    }

    /// Takes both references to a place that nobody may hold any more, if afterwards it is `still` the one wanted.
    #[must_use]
    pub(crate) fn hold(&self, path: Path, still: impl FnOnce() -> bool) -> bool {
        if !self.mntget_not_zero(path.mnt) {
            return false;
        }
        if !self.store.links(path.dentry).count.get_not_zero() {
            self.mntput(path.mnt);
            return false;
        }
        let held = still();
        if !held {
            self.path_put(path);
        }
        held
    }

    /// Takes both references to a place that RCU-walk came to, if it is still what it was, and no mount has changed since
    /// `m_seq`.
    ///
    /// Kernel: fs/namei.c `legitimize_path()`.
    #[inline(always)]
    pub(crate) fn legitimize(&self, mnt: Handle, seen: Seen, m_seq: u32) -> std::result::Result<(), Bail> {
        if !self.mntget_not_zero(mnt) {
            return Err(Bail::MountMoved);
        }
        if step!("legitimize-mounts", self.mounts.seq.retry(m_seq)) {
            self.mntput(mnt);
            return Err(Bail::MountMoved);
        }
        // The reference keeps the mount from being used again.
        if !self.store.legitimize(seen) {
            self.mntput(mnt);
            return Err(Bail::DentryMoved);
        }
        Ok(())
    }

    /// Where `..` goes from the root of a mount: to what it covers, and on while that is again the root of a mount.
    /// `None` beyond `root`, and where a mount is attached nowhere.
    pub(crate) fn mountpoint_above(&self, at: Path, root: Path) -> Option<Path> {
        let mut mnt = at.mnt;
        loop {
            let over = self.mounts.place(mnt);
            if over.mnt == 0 || over == root {
                return None;
            }
            if self.mount(over.mnt).root.get() != over.dentry {
                return Some(over);
            }
            mnt = over.mnt;
        }
    }

    /// Whether `cred` may do `mask` to an inode that is read meanwhile; the caller validates the inode's count.
    #[inline(always)]
    pub(crate) fn racy_permission(&self, mnt: Handle, inode: &Inode, cred: &Cred, mask: u32) -> Result<()> {
        let mnt_flags = self.mount(mnt).flags.get();
        if mnt_flags & (flags::IDMAPPED | flags::RECORDED | flags::HOOKED) != 0 {
            return self.mapped_permission(mnt, inode, cred, mask);
        }
        let acl = RacyAcl { store: &self.store, blob: inode.acl.get(), view: None };
        perm::inode_permission(mnt_flags & flags::SB_RDONLY != 0, &inode.attr(), &acl, cred, mask)
    }

    /// [`racy_permission`](Self::racy_permission) through an idmap, while it is recorded, or with a hook.
    #[cold]
    fn mapped_permission(&self, mnt: Handle, inode: &Inode, cred: &Cred, mask: u32) -> Result<()> {
        let (attr, acl) = (self.attr(mnt, inode), self.racy_acl(mnt, inode));
        let spot = Spot { mount: self.mount(mnt).id.get(), ino: inode.ino.get() };
        watched::inode_permission(self.sb_rdonly(mnt), &attr, &acl, cred, mask, &mut self.asking(spot))?;
        self.security_inode_permission(mnt, inode, cred, mask)
    }

    /// Whether for certain anybody may do `mask` to the inode, which is not writing: every class is granted it, and there is
    /// no ACL. What the answer is made of goes for any mount.
    #[inline(always)]
    pub(crate) fn everyone_may(&self, mnt: Handle, i: &Inode, mask: u32) -> bool {
        let seq = i.seq.begin();
        perm::everyone_may(i.mode.get(), i.acl.get() != 0, mask)
            && !i.seq.retry(seq)
            && !self.mount_has(mnt, flags::RECORDED | flags::HOOKED)
    }

    /// Whether `cred` may do `mask` to the inode, which has to be held.
    pub(crate) fn inode_permission(&self, mnt: Handle, inode: Handle, cred: &Cred, mask: u32) -> Result<()> {
        self.store.read_inode(inode, |i| self.racy_permission(mnt, i, cred, mask))
    }

    /// What a permission check needs of an inode, from one instant.
    #[inline(always)]
    pub(crate) fn read_attr(&self, mnt: Handle, inode: Handle) -> InodeAttr {
        self.store.read_inode(inode, |i| self.attr(mnt, i))
    }

    /// Whether `path` is a mountpoint in that mount namespace, or any other place that shows the same dentry is.
    ///
    /// Kernel: fs/namespace.c `is_local_mountpoint()`.
    pub(crate) fn is_local_mountpoint(&self, ns: &Namespace, dentry: Handle, mnt_ns: u32) -> bool {
        self.store.see(dentry).meta.is_mounted()
            && ns.mnt.covering(dentry).any(|mnt| self.mounts.ns_of(mnt) == mnt_ns)
    }

    /// Takes the mounts off a dentry that lost its name: they are other namespaces'.
    ///
    /// Kernel: fs/namespace.c `__detach_mounts()`.
    pub(crate) fn detach_mounts(&self, dentry: Handle) {
        let mut lock = self.lock_mounts();
        loop {
            let Some(mnt) = lock.mnt.covering(dentry).next() else { return };
            if self.mount(mnt).ns.get() == 0 {
                // Unmounted already, and kept where it is by a mount that is still in use.
                self.detach(&mut lock, mnt);
                self.mntput_locked(&mut lock, mnt);
            } else {
                self.umount_tree(&mut lock, mnt, Umount::Connected);
            }
            lock.step();
        }
    }

    /// The topmost place over `path`: where a walk that comes to it stands. Kernel: fs/namei.c `follow_down()`.
    pub(crate) fn topmost(&self, _: &Namespace, mut path: Path) -> Path {
        while self.store.see(path.dentry).meta.is_mounted()
            && let Some(mnt) = self.mounts.lookup(path.mnt, path.dentry)
        {
            path = Path { mnt, dentry: self.mount(mnt).root.get() };
        }
        path
    }

    /// The path of `at` as seen from `root`, and whether it lies at or below that; else it is that from the top. No more names are
    /// gone through once they have `limit` bytes. Nothing is renamed under the lock, so the names belong together.
    ///
    /// Kernel: fs/d_path.c `prepend_path()`.
    pub(crate) fn prepend_path(
        &self,
        _: &Namespace,
        mut at: Path,
        root: Path,
        limit: usize,
    ) -> (Vec<u8>, bool) {
        let store = &self.store;
        let (mut names, mut bytes) = (Vec::new(), 0);
        while at != root && bytes < limit {
            if at.dentry == self.mount(at.mnt).root.get() {
                let over = self.mounts.place(at.mnt);
                if over.mnt == 0 {
                    break;
                }
                at = over;
                continue;
            }
            let parent = store.dentry(at.dentry).parent.get();
            if parent == at.dentry {
                break;
            }
            let name = store.d_name(at.dentry);
            bytes += 1 + name.len();
            names.push(name);
            at.dentry = parent;
        }
        let mut path = Vec::with_capacity(bytes.max(1));
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        (path, at == root)
    }

    /// Whether `path` lies at or below `root`, across mounts. Kernel: fs/namespace.c `is_path_reachable()`.
    pub(crate) fn is_path_reachable(&self, _: &Namespace, path: Path, root: Path) -> bool {
        let mut at = path;
        while at.mnt != root.mnt {
            at = self.mounts.place(at.mnt);
            if at.mnt == 0 {
                return false;
            }
        }
        self.store.is_subdir(at.dentry, root.dentry)
    }
}
