//! The calls that change mounts: mount, umount2, mount_setattr, open_tree, move_mount, pivot_root.
//!
//! Kernel: fs/namespace.c. Differs: the only type of file system is tmpfs.

use crate::base::errno::{Errno, Result};
use crate::base::flags::{AtFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};
use crate::base::uapi::*;
use crate::calls::tmpfs_options::TmpfsOptions;
use crate::cred::Cred;
use crate::cred::ucounts::Ucount;
use crate::cred::userns::{MountIdmap, UserNamespace};
use crate::dcache::inode::Times;
use crate::dcache::store::{InodeInit, Namespace};
use crate::file::fs_struct::Place;
use crate::file::{FileMode, Opening};
use crate::kernel::EMPTY_DIR_SIZE;
use crate::kernel::mount_lock::MountGuard;
use crate::kernel::mount_tree::{ANON_NS, Attach, Copy, MNT_NS_BYTES, MntNamespace, copies_of, is_anonymous};
use crate::kernel::owners::FsOwner;
use crate::mount::{Path, flags};
use crate::namei::getname::check_name;
use crate::namei::{At, Lookup, Step};
use crate::task::Task;
use crate::tmpfs::ispace::InodeSpace;
use crate::tmpfs::options::ShownOptions;
use crate::tmpfs::pages::PageBudget;
use rcuwalk_sync::Handle;
use std::sync::Arc;

/// What mount_setattr(2) changes. Kernel: `struct mount_attr`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MountAttr {
    /// `MOUNT_ATTR_*` to set.
    pub set: u64,
    /// `MOUNT_ATTR_*` to clear; to change how access times are kept, all of `MOUNT_ATTR__ATIME`.
    pub clr: u64,
    /// `MS_SHARED`, `MS_PRIVATE`, `MS_SLAVE`, `MS_UNBINDABLE`, or 0.
    pub propagation: u64,
    /// With `MOUNT_ATTR_IDMAP`: the namespace behind the descriptor, or the error that the descriptor gives (`EBADF` if
    /// it is closed, `EINVAL` if it is no user namespace).
    pub userns: Result<Arc<UserNamespace>>,
}

impl MountAttr {
    setters! {
        with_userns userns: Result<Arc<UserNamespace>>;
    }

    flag_setters! {
        with_set set: MountAttrFlags;
        with_clr clr: MountAttrFlags;
        with_propagation propagation: MountFlags;
    }
}

impl Default for MountAttr {
    fn default() -> Self {
        MountAttr { set: 0, clr: 0, propagation: 0, userns: Err(Errno::EBADF) }
    }
}

const PROPAGATION: u64 = MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE;
const MS_ATIMES: u64 = MS_NOATIME | MS_NODIRATIME | MS_RELATIME | MS_STRICTATIME;

/// The flags of a mount in mount(2)'s words. Kernel: fs/namespace.c `path_mount()`.
fn mnt_flags(ms: u64) -> u32 {
    let words = [
        (MS_RDONLY, flags::RDONLY),
        (MS_NOSUID, flags::NOSUID),
        (MS_NODEV, flags::NODEV),
        (MS_NOEXEC, flags::NOEXEC),
        (MS_NOSYMFOLLOW, flags::NOSYMFOLLOW),
        (MS_NOATIME, flags::NOATIME),
        (MS_NODIRATIME, flags::NODIRATIME),
    ];
    let mut mnt = words.into_iter().filter(|(bit, _)| ms & bit != 0).fold(0, |all, (_, flag)| all | flag);
    if ms & MS_NOATIME == 0 {
        mnt |= flags::RELATIME;
    }
    if ms & MS_STRICTATIME != 0 {
        mnt &= !(flags::RELATIME | flags::NOATIME);
    }
    mnt
}

/// `MOUNT_ATTR_*` and the flags of a mount that they stand for; those of access times and id maps are apart.
pub(super) const ATTRIBUTES: [(u64, u32); 6] = [
    (MOUNT_ATTR_RDONLY, flags::RDONLY),
    (MOUNT_ATTR_NOSUID, flags::NOSUID),
    (MOUNT_ATTR_NODEV, flags::NODEV),
    (MOUNT_ATTR_NOEXEC, flags::NOEXEC),
    (MOUNT_ATTR_NODIRATIME, flags::NODIRATIME),
    (MOUNT_ATTR_NOSYMFOLLOW, flags::NOSYMFOLLOW),
];

/// The flags of a mount in mount_setattr(2)'s words, access times apart.
fn attr_flags(attr: u64) -> u32 {
    ATTRIBUTES.iter().filter(|(bit, _)| attr & bit != 0).fold(0, |all, (_, flag)| all | flag)
}

/// Whether a mount with locked flags may get these instead. Kernel: `can_change_locked_flags()`.
fn may_change_locked(old: u32, new: u32) -> bool {
    let kept = [
        (flags::LOCK_READONLY, flags::RDONLY),
        (flags::LOCK_NODEV, flags::NODEV),
        (flags::LOCK_NOSUID, flags::NOSUID),
        (flags::LOCK_NOEXEC, flags::NOEXEC),
    ];
    kept.into_iter().all(|(lock, flag)| old & lock == 0 || new & flag != 0)
        && (old & flags::LOCK_ATIME == 0 || (old ^ new) & flags::ATIME == 0)
}

impl Task {
    /// The number of the mount namespace this task is in.
    pub(crate) fn mnt_ns(&self) -> u32 {
        self.fs.mnt_ns.id
    }

    /// Whether this task may mount. Kernel: `may_mount()`.
    fn may_mount(&self) -> Result<()> {
        let may = self.cred.ns_capable(&self.fs.mnt_ns.user_ns, CAP_SYS_ADMIN);
        if may { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether set-id bits and file capabilities count for programs of this mount. Kernel: `mnt_may_suid()`.
    pub(crate) fn mnt_may_suid(&self, mnt: Handle) -> bool {
        let kernel = &*self.kernel;
        !kernel.mount_has(mnt, flags::NOSUID)
            && kernel.mounts.ns_of(mnt) == self.mnt_ns()
            && self.cred.user_ns().is_in(kernel.id_view(mnt).get().sb_ns)
    }

    /// Looks up, runs `act` on the place, and lets go of it.
    fn at_path<R>(
        &self,
        dirfd: i32,
        path: &[u8],
        lookup: Lookup,
        act: impl FnOnce(Path) -> Result<R>,
    ) -> Result<R> {
        let place = self.with_at(dirfd, |at| self.lookup_held(at, path, lookup, |_| Ok(())))?;
        let result = act(place);
        self.kernel.path_put(place);
        result
    }

    /// Mounts, or changes a mount: `flags` (`MS_*`) say which. A new mount is of the type `tmpfs`, whose options `mode`,
    /// `uid`, `gid`, `size` (in percent: of [`VfsBuilder::memory_limit`](crate::VfsBuilder::memory_limit), or of the machine's memory),
    /// `nr_blocks`, `nr_inodes`, `ro`, `rw`, `sync`, `mand` are given in `data`; without limits unless given. `huge`, `mpol`, `noswap`,
    /// `inode32`, `inode64`, `dirsync` and `lazytime` have no effect but that [`statmount`](Self::statmount) shows them. `MS_BIND` shows the tree at `source`, `MS_MOVE` moves a mount from there.
    ///
    /// # Errors
    ///
    /// Those of both walks; `EPERM` (no `CAP_SYS_ADMIN` over the mount namespace; a locked flag), `EINVAL` (no source; not a
    /// mount root; not of this namespace; options), `ENODEV` (type, an empty one included), `ENOTDIR` (a file over a directory, or
    /// the other way round), `ENOENT` (the target was removed), `EBUSY` (open for writing), `ELOOP` (into itself),
    /// `ENOSPC` (too many mounts).
    ///
    /// Kernel: fs/namespace.c `path_mount()`.
    ///
    /// ```
    /// use rcuwalk::{Cred, Errno, Vfs, uapi::*};
    /// let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// root.mkdir(b"/src", 0o755)?;
    /// root.mkdir(b"/ro", 0o755)?;
    /// root.mount(b"/src", b"/ro", b"", MS_BIND, b"")?;
    /// root.mount(b"", b"/ro", b"", MS_REMOUNT | MS_BIND | MS_RDONLY, b"")?;
    /// assert_eq!(root.mkdir(b"/ro/d", 0o755), Err(Errno::EROFS));
    /// root.mkdir(b"/src/d", 0o755)?;
    /// assert!(root.stat(b"/ro/d").is_ok());
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn mount(
        &self,
        source: &[u8],
        target: &[u8],
        fstype: &[u8],
        flags: impl Into<MountFlags>,
        data: &[u8],
    ) -> Result<()> {
        self.mount_type(Some(source), target, Some(fstype), flags.into().bits(), data)
    }

    /// [`mount`](Self::mount) with a source and a type or none, which are not the same as empty ones.
    pub(crate) fn mount_type(
        &self,
        source: Option<&[u8]>,
        target: &[u8],
        fstype: Option<&[u8]>,
        flags: u64,
        data: &[u8],
    ) -> Result<()> {
        // Both are copied in before anything else is looked at. Kernel: `copy_mount_string()`.
        if [fstype, source].iter().flatten().any(|string| string.len() >= PATH_MAX) {
            return Err(Errno::EINVAL);
        }
        self.at_path(AT_FDCWD, target, Lookup::FOLLOW, |at| {
            let ms = if flags & MS_MGC_MSK == MS_MGC_VAL { flags & !MS_MGC_MSK } else { flags };
            if ms & MS_NOUSER != 0 {
                return Err(Errno::EINVAL);
            }
            self.may_mount()?;
            if ms & MS_REMOUNT != 0 {
                return self.remount(at, ms, data);
            }
            if ms & MS_BIND != 0 {
                return self.bind(source.unwrap_or_default(), at, ms & MS_REC != 0);
            }
            if ms & PROPAGATION != 0 {
                return self.change_type(at, ms);
            }
            if ms & MS_MOVE != 0 {
                return self.source(source.unwrap_or_default(), |from| self.do_move_mount(from, at));
            }
            self.new_mount(source, at, fstype, ms, data)
        })
    }

    fn source<R>(&self, source: &[u8], act: impl FnOnce(Path) -> Result<R>) -> Result<R> {
        if source.is_empty() {
            return Err(Errno::EINVAL);
        }
        self.at_path(AT_FDCWD, source, Lookup::FOLLOW, act)
    }

    /// Kernel: fs/namespace.c `do_reconfigure_mnt()`, `do_remount()`.
    fn remount(&self, at: Path, ms: u64, data: &[u8]) -> Result<()> {
        let kernel = &*self.kernel;
        let mut lock = kernel.lock_mounts();
        let m = kernel.mount(at.mnt);
        if m.ns.get() != self.mnt_ns() || !kernel.path_mounted(at) {
            return Err(Errno::EINVAL);
        }
        let mut new = mnt_flags(ms);
        if ms & MS_ATIMES == 0 {
            new = new & !flags::ATIME | m.flags.get() & flags::ATIME;
        }
        if !may_change_locked(m.flags.get(), new) {
            return Err(Errno::EPERM);
        }
        if ms & MS_BIND != 0 {
            kernel.check_writers(at.mnt, new)?;
        } else {
            let view = kernel.id_view(at.mnt);
            let sb_ns = view.get().sb_ns;
            let options = TmpfsOptions::parse(data, ms, &self.cred, sb_ns)?.resolved(&lock)?;
            if !self.cred.ns_capable(sb_ns, CAP_SYS_ADMIN) {
                return Err(Errno::EPERM);
            }
            let sb = lock.mnt.supers.get(m.sb.get()).ok_or(Errno::ESTALE)?;
            options.may_remount(&sb.options)?;
            let (budget, space) = (Arc::clone(&sb.budget), Arc::clone(&sb.space));
            let before = sb.flags & flags::SB_RDONLY;
            kernel.set_sb_rdonly(&mut lock, m.sb.get(), options.flags & flags::SB_RDONLY != 0)?;
            // Kernel: mm/shmem.c `shmem_reconfigure()`.
            if options.pages.is_some() && !budget.set_limit(options.page_limit())
                || options.inodes.is_some_and(|inodes| !space.set_inodes(inodes))
            {
                kernel.set_sb_flags(&mut lock, m.sb.get(), flags::SB_RDONLY, before);
                return Err(Errno::EINVAL);
            }
            kernel.set_sb_flags(
                &mut lock,
                m.sb.get(),
                flags::SB_REMOUNTABLE,
                options.flags & flags::SB_REMOUNTABLE,
            );
            if let Some(sb) = lock.mnt.supers.get_mut(m.sb.get()) {
                sb.options = options.shown(&sb.options);
            }
        }
        kernel.set_mnt_flags(&lock, at.mnt, new);
        Ok(())
    }

    /// Kernel: fs/namespace.c `do_loopback()`.
    fn bind(&self, source: &[u8], at: Path, recursive: bool) -> Result<()> {
        self.source(source, |from| {
            let kernel = &*self.kernel;
            let mut lock = kernel.lock_mounts();
            let at = kernel.lock_mount_in(&lock, at, self.mnt_ns())?;
            let copy = self.copy_for_bind(&mut lock, from, recursive)?;
            self.graft(&mut lock, copy, at)
        })
    }

    /// Whether a mount is of this task's namespace, or of a tree that was detached from there.
    ///
    /// Kernel: fs/namespace.c `may_use_mount()`.
    fn may_use(&self, mnt: Handle) -> bool {
        [self.mnt_ns(), ANON_NS | self.mnt_ns()].contains(&self.kernel.mount(mnt).ns.get())
    }

    /// A copy of what is at `from`, attached nowhere. Kernel: fs/namespace.c `__do_loopback()`.
    fn copy_for_bind(&self, lock: &mut MountGuard<'_>, from: Path, recursive: bool) -> Result<Vec<Handle>> {
        let kernel = &*self.kernel;
        if lock.mnt.propagation(from.mnt).unbindable
            || !self.may_use(from.mnt)
            || !recursive && kernel.has_locked_children(lock, from)
        {
            return Err(Errno::EINVAL);
        }
        if recursive {
            Ok(copies_of(&kernel.copy_tree(lock, from, Copy::Bind)?))
        } else {
            Ok(vec![kernel.copy_one(lock, from, Copy::Bind)?])
        }
    }

    /// Attaches a detached tree, or drops it if it does not fit. Kernel: fs/namespace.c `graft_tree()`.
    fn graft(&self, lock: &mut MountGuard<'_>, tree: Vec<Handle>, at: Path) -> Result<()> {
        let kernel = &*self.kernel;
        let fits = kernel.is_dir(at.dentry) == kernel.is_dir(kernel.mount(tree[0]).root.get());
        let attached =
            if fits { kernel.attach_recursive(lock, &tree, at, Attach::New) } else { Err(Errno::ENOTDIR) };
        attached.inspect_err(|_| kernel.drop_copies(lock, &[tree]))
    }

    /// Kernel: fs/namespace.c `do_change_type()`.
    fn change_type(&self, at: Path, ms: u64) -> Result<()> {
        let kernel = &*self.kernel;
        let mut lock = kernel.lock_mounts();
        let kind = ms & !(MS_REC | MS_SILENT);
        let mnt_ns = kernel.mount(at.mnt).ns.get();
        // One of the four kinds is in it.
        if !kernel.path_mounted(at) || !kind.is_power_of_two() || mnt_ns == 0 {
            return Err(Errno::EINVAL);
        }
        let user_ns = lock.mnt.user_ns_of(mnt_ns & !ANON_NS);
        if !user_ns.is_some_and(|user_ns| self.cred.ns_capable(user_ns, CAP_SYS_ADMIN)) {
            return Err(Errno::EPERM);
        }
        let tree = if ms & MS_REC != 0 { lock.subtree(at.mnt) } else { vec![at.mnt] };
        for mnt in tree {
            kernel.change_propagation(&mut lock, mnt, kind);
            lock.step();
        }
        Ok(())
    }

    /// Kernel: fs/namespace.c `do_new_mount()`.
    fn new_mount(
        &self,
        source: Option<&[u8]>,
        at: Path,
        fstype: Option<&[u8]>,
        ms: u64,
        data: &[u8],
    ) -> Result<()> {
        if fstype.ok_or(Errno::EINVAL)? != b"tmpfs" {
            return Err(Errno::ENODEV);
        }
        let options = TmpfsOptions::parse(data, ms, &self.cred, self.cred.user_ns())?;
        // Only one of both may name it.
        if source.is_some() && options.source.is_some() {
            return Err(Errno::EINVAL);
        }
        if !self.cred.capable_here(CAP_SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        let kernel = &*self.kernel;
        let now = kernel.now();
        let mut lock = kernel.lock_mounts();
        let at = kernel.lock_mount_in(&lock, at, self.mnt_ns())?;
        let options = options.resolved(&lock)?;
        let source = source.or(options.source.as_deref().map(str::as_bytes));
        let source = source.map(|source| lock.mnt.new_source(source)).transpose()?;
        let dev = lock.mnt.new_dev();
        let limits = (PageBudget::new(options.page_limit()), InodeSpace::new(options.inodes.unwrap_or(0)));
        let user_ns = Arc::clone(self.cred.user_ns());
        let sb = lock.mnt.new_super(dev, user_ns, limits.0, limits.1, kernel.fastperm)?;
        let init = InodeInit {
            mode: S_IFDIR | options.mode,
            uid: options.uid,
            gid: options.gid,
            sb,
            nlink: 2,
            size: EMPTY_DIR_SIZE,
            blocks: Some(0),
            times: Times { atime: now, mtime: now, ctime: now, btime: now },
            ..InodeInit::default()
        };
        let made = kernel.new_root(&mut lock, &init);
        let mnt = match made.and_then(|root| kernel.mount_new(&mut lock, sb, root, mnt_flags(ms))) {
            Ok(mnt) => mnt,
            Err(errno) => {
                kernel.drop_super(&mut lock, sb);
                return Err(errno);
            }
        };
        kernel.set_sb_flags(&mut lock, sb, flags::SB_SETTABLE, options.flags);
        lock.mnt.set_source(mnt, source);
        if let Some(sb) = lock.mnt.supers.get_mut(sb) {
            let new =
                ShownOptions { mode: options.mode, uid: options.uid, gid: options.gid, ..Default::default() };
            sb.options = options.shown(&new);
        }
        self.graft(&mut lock, vec![mnt], at)
    }

    /// Moves the mount at `from`, or the detached tree there. Kernel: fs/namespace.c `do_move_mount()`.
    fn do_move_mount(&self, from: Path, at: Path) -> Result<()> {
        let kernel = &*self.kernel;
        let mut lock = kernel.lock_mounts();
        if !kernel.path_mounted(from) || kernel.is_dir(at.dentry) != kernel.is_dir(from.dentry) {
            return Err(Errno::EINVAL);
        }
        let at = kernel.lock_mount(&lock, at)?;
        let m = kernel.mount(from.mnt);
        let parent = m.parent.get();
        let (from_ns, to_ns) = (m.ns.get(), kernel.mount(at.mnt).ns.get());
        let tree = lock.subtree(from.mnt);
        let movable = if from_ns == self.mnt_ns() {
            to_ns == from_ns
                && parent != 0
                && m.flags.get() & flags::LOCKED == 0
                && lock.mnt.propagation(parent).shared == 0
        } else {
            kernel.is_detached_root(from.mnt) && !tree.contains(&at.mnt) && self.may_use(at.mnt)
        };
        if !movable {
            return Err(Errno::EINVAL);
        }
        if lock.mnt.propagation(at.mnt).shared != 0
            && tree.iter().any(|&mnt| lock.mnt.propagation(mnt).unbindable)
        {
            return Err(Errno::EINVAL);
        }
        if tree.contains(&at.mnt) {
            return Err(Errno::ELOOP);
        }
        // The reference of a detached tree is the descriptor's no more.
        let how = if parent == 0 { Attach::New } else { Attach::Moved };
        kernel.attach_recursive(&mut lock, &tree, at, how)
    }

    /// Unmounts what is mounted at `target`. `flags`: `MNT_FORCE`, `MNT_DETACH` (even if it is in use), `MNT_EXPIRE`
    /// (only if it was not used since the last such call), `UMOUNT_NOFOLLOW`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags; not a mount root; not of this namespace; locked), those of the walk, `EPERM`, `EBUSY`, `EAGAIN`
    /// (the first time with `MNT_EXPIRE`).
    ///
    /// Kernel: fs/namespace.c `path_umount()`.
    pub fn umount2(&self, target: &[u8], flags: impl Into<UnmountFlags>) -> Result<()> {
        self.path_umount(target, flags.into().bits())
    }

    fn path_umount(&self, target: &[u8], flags: i32) -> Result<()> {
        if flags & !(MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW) != 0 {
            return Err(Errno::EINVAL);
        }
        let lookup = Lookup { follow: flags & UMOUNT_NOFOLLOW == 0, ..Lookup::FOLLOW };
        let kernel = &*self.kernel;
        check_name(target, false)?;
        // The walk there is no use of the mount.
        let place = self.walker().walk_ref(At::Cwd, target, lookup, |nd, at, last| {
            Ok(match nd.lookup_last::<false>(at, last)? {
                Step::Link(link) => Step::Link(link),
                Step::Done(position) => {
                    kernel.path_get(position.path());
                    Step::Done(position.path())
                }
            })
        })?;
        let mut lock = kernel.lock_mounts();
        let top = kernel.topmost(&lock, place);
        kernel.path_get(top);
        kernel.path_put_locked(&mut lock, place);
        let result = self.do_umount(&mut lock, top, flags);
        kernel.path_put_locked(&mut lock, top);
        result
    }

    /// Kernel: fs/namespace.c `can_umount()`, `do_umount()`.
    fn do_umount(&self, lock: &mut MountGuard<'_>, top: Path, how: i32) -> Result<()> {
        let kernel = &*self.kernel;
        let m = kernel.mount(top.mnt);
        self.may_mount()?;
        if !kernel.path_mounted(top) || m.ns.get() != self.mnt_ns() || m.flags.get() & flags::LOCKED != 0 {
            return Err(Errno::EINVAL);
        }
        let sb_capable = self.cred.ns_capable(kernel.id_view(top.mnt).get().sb_ns, CAP_SYS_ADMIN);
        if how & MNT_FORCE != 0 && !sb_capable {
            return Err(Errno::EPERM);
        }
        let is_root = top.mnt == self.fs.fs.peek(Place::Root).mnt;
        if how & MNT_EXPIRE != 0 {
            if is_root || how & (MNT_FORCE | MNT_DETACH) != 0 {
                return Err(Errno::EINVAL);
            }
            // The tree's and ours.
            if kernel.mount_count(top.mnt) > 2 || !lock.mnt.is_leaf(top.mnt) {
                return Err(Errno::EBUSY);
            }
            if m.expiring.get() == 0 {
                // Walks that remember where they came to shall come here again.
                let _change = kernel.open_mounts(lock);
                m.expiring.set(1);
                kernel.mounts.marked.set(1);
                return Err(Errno::EAGAIN);
            }
        }
        if is_root && how & MNT_DETACH == 0 {
            // The root cannot go; it becomes read-only instead.
            return if sb_capable { kernel.set_sb_rdonly(lock, m.sb.get(), true) } else { Err(Errno::EPERM) };
        }
        if m.parent.get() == 0 {
            return Err(Errno::EINVAL);
        }
        let lazily = how & MNT_DETACH != 0;
        if !lazily && !lock.mnt.is_leaf(top.mnt) {
            return Err(Errno::EBUSY);
        }
        kernel.propagate_umount(lock, top.mnt, lazily)
    }

    /// Changes the attributes of the mount at `path`, with `AT_RECURSIVE` of all below it. Further flags:
    /// `AT_EMPTY_PATH`, `AT_SYMLINK_NOFOLLOW`, `AT_NO_AUTOMOUNT`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags, attributes, not a mount root, an idmap for an attached mount), `EPERM` (no `CAP_SYS_ADMIN`; a
    /// locked flag; a second idmap), those of the walk, `EBADF` (the namespace's descriptor), `EBUSY` (open for writing).
    ///
    /// Kernel: fs/namespace.c `do_mount_setattr()`.
    pub fn mount_setattr(
        &self,
        dirfd: i32,
        path: &[u8],
        flags: impl Into<AtFlags>,
        attr: &MountAttr,
    ) -> Result<()> {
        const KNOWN: i32 = AT_EMPTY_PATH | AT_RECURSIVE | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
        let flags = flags.into().bits();
        if flags & !KNOWN != 0 {
            return Err(Errno::EINVAL);
        }
        self.may_mount()?;
        if attr.set == 0 && attr.clr == 0 && attr.propagation == 0 {
            return Ok(());
        }
        let change = AttrChange::new(attr, &self.cred)?;
        let lookup = Lookup {
            follow: flags & AT_SYMLINK_NOFOLLOW == 0,
            empty: flags & AT_EMPTY_PATH != 0,
            ..Lookup::FOLLOW
        };
        self.at_path(dirfd, path, lookup, |at| self.do_mount_setattr(at, flags & AT_RECURSIVE != 0, &change))
    }

    fn do_mount_setattr(&self, at: Path, recursive: bool, change: &AttrChange) -> Result<()> {
        let kernel = &*self.kernel;
        let mut lock = kernel.lock_mounts();
        let m = kernel.mount(at.mnt);
        let anonymous = is_anonymous(m.ns.get());
        if !kernel.path_mounted(at) || m.ns.get() != self.mnt_ns() && !kernel.is_detached_root(at.mnt) {
            return Err(Errno::EINVAL);
        }
        let tree = if recursive { lock.subtree(at.mnt) } else { vec![at.mnt] };
        for &mnt in &tree {
            let old = kernel.mount(mnt).flags.get();
            let new = change.apply(old);
            if !may_change_locked(old, new) {
                return Err(Errno::EPERM);
            }
            if let Some(idmap) = &change.idmap {
                self.may_idmap(mnt, idmap, anonymous)?;
            }
            kernel.check_writers(mnt, new)?;
        }
        if let Some(idmap) = &change.idmap {
            let views = kernel.idmap_views(&mut lock, &tree, &idmap.maps)?;
            tree.iter().zip(views).for_each(|(&mnt, view)| kernel.set_idmap(&mut lock, mnt, view));
        }
        for &mnt in &tree {
            kernel.set_mnt_flags(&lock, mnt, change.apply(kernel.mount(mnt).flags.get()));
            if change.propagation != 0 {
                kernel.change_propagation(&mut lock, mnt, change.propagation);
            }
        }
        Ok(())
    }

    /// Kernel: fs/namespace.c `can_idmap_mount()`.
    fn may_idmap(&self, mnt: Handle, idmap: &Idmap, anonymous: bool) -> Result<()> {
        let view = self.kernel.id_view(mnt);
        let sb_ns = view.get().sb_ns;
        if idmap.ns.is(sb_ns) {
            return Err(Errno::EINVAL);
        }
        if self.kernel.mount_has(mnt, flags::IDMAPPED) || !self.cred.ns_capable(sb_ns, CAP_SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        if anonymous { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Opens the place at `path`, with `OPEN_TREE_CLONE` a detached copy of the mount there (with `AT_RECURSIVE` of all
    /// below it, too), which goes with the descriptor unless [`move_mount`](Self::move_mount) attaches it. Further flags:
    /// `OPEN_TREE_CLOEXEC`, `AT_EMPTY_PATH`, `AT_SYMLINK_NOFOLLOW`, `AT_NO_AUTOMOUNT`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags; unbindable; not of this namespace), `EPERM`, those of the walk, `ENOSPC`, `EMFILE`.
    ///
    /// Kernel: fs/namespace.c `open_tree()`.
    pub fn open_tree(&self, dirfd: i32, path: &[u8], flags: impl Into<OpenTreeFlags>) -> Result<i32> {
        self.do_open_tree(dirfd, path, flags.into().bits())
    }

    fn do_open_tree(&self, dirfd: i32, path: &[u8], flags: i32) -> Result<i32> {
        const KNOWN: i32 = AT_EMPTY_PATH
            | AT_NO_AUTOMOUNT
            | AT_RECURSIVE
            | AT_SYMLINK_NOFOLLOW
            | OPEN_TREE_CLONE
            | OPEN_TREE_CLOEXEC;
        let clone = flags & OPEN_TREE_CLONE != 0;
        if flags & !KNOWN != 0 || flags & (AT_RECURSIVE | OPEN_TREE_CLONE) == AT_RECURSIVE {
            return Err(Errno::EINVAL);
        }
        if clone {
            self.may_mount()?;
        }
        let lookup = Lookup {
            follow: flags & AT_SYMLINK_NOFOLLOW == 0,
            empty: flags & AT_EMPTY_PATH != 0,
            ..Lookup::FOLLOW
        };
        let kernel = &*self.kernel;
        let path = self.at_path(dirfd, path, lookup, |at| {
            if !clone {
                kernel.path_get(at);
                return Ok(at);
            }
            let user_ns = &self.fs.mnt_ns.user_ns;
            let counted = kernel.count_namespace(&self.cred, user_ns, Ucount::MntNamespaces)?;
            let mut lock = kernel.lock_mounts();
            let tree = self.copy_for_bind(&mut lock, at, flags & AT_RECURSIVE != 0)?;
            for &mnt in &tree {
                kernel.set_mount_ns(&mut lock, mnt, ANON_NS | self.mnt_ns());
                lock.step();
            }
            lock.mnt.set_counted(tree[0], counted);
            let copy = Path { mnt: tree[0], dentry: at.dentry };
            kernel.path_get(copy);
            Ok(copy)
        })?;
        let mode = FileMode { path: true, need_unmount: clone, ..FileMode::default() };
        let inode = kernel.store.d_inode(path.dentry);
        let opening = Opening { path, inode, mode, flags: O_PATH as u32, proc: None };
        self.install(opening, flags & OPEN_TREE_CLOEXEC)
    }

    /// Moves the mount at `from`, or the detached tree behind a descriptor, to `to`. `flags`: `MOVE_MOUNT_F_SYMLINKS`,
    /// `MOVE_MOUNT_F_EMPTY_PATH`, `MOVE_MOUNT_T_SYMLINKS`, `MOVE_MOUNT_T_EMPTY_PATH`; links in the last component are
    /// followed only on demand.
    ///
    /// # Errors
    ///
    /// `EPERM`, `EINVAL` (flags; not a mount root; not of this namespace; locked; on a shared mount), those of both walks,
    /// `ELOOP` (into itself).
    ///
    /// Kernel: fs/namespace.c `move_mount()`.
    pub fn move_mount(
        &self,
        from_dirfd: i32,
        from: &[u8],
        to_dirfd: i32,
        to: &[u8],
        flags: impl Into<MoveMountFlags>,
    ) -> Result<()> {
        const KNOWN: u32 = MOVE_MOUNT_F_SYMLINKS
            | MOVE_MOUNT_F_EMPTY_PATH
            | MOVE_MOUNT_T_SYMLINKS
            | MOVE_MOUNT_T_EMPTY_PATH
            | MOVE_MOUNT_F_AUTOMOUNTS
            | MOVE_MOUNT_T_AUTOMOUNTS;
        let flags = flags.into().bits();
        self.may_mount()?;
        if flags & !KNOWN != 0 {
            return Err(Errno::EINVAL);
        }
        let lookup = |follow, empty| Lookup {
            follow: flags & follow != 0,
            empty: flags & empty != 0,
            ..Lookup::FOLLOW
        };
        let to_lookup = lookup(MOVE_MOUNT_T_SYMLINKS, MOVE_MOUNT_T_EMPTY_PATH);
        self.at_path(to_dirfd, to, to_lookup, |to| {
            let from_lookup = lookup(MOVE_MOUNT_F_SYMLINKS, MOVE_MOUNT_F_EMPTY_PATH);
            self.at_path(from_dirfd, from, from_lookup, |from| self.do_move_mount(from, to))
        })
    }

    /// Makes the mount at `new_root` the root of the mount namespace, and mounts the old root at `put_old`, which lies at or
    /// below `new_root`. Every process whose root or current directory is the old root moves to the new one.
    ///
    /// # Errors
    ///
    /// `EPERM`; those of both walks, `ENOTDIR`; `EINVAL` (not a mount root; not of this namespace; locked; a parent that is
    /// shared; `put_old` not below `new_root`, that not below the root; the root is not mounted on anything), `ENOENT`
    /// (removed), `EBUSY` (`new_root` or `put_old` is in the mount of the root).
    ///
    /// Kernel: fs/namespace.c `pivot_root()`.
    ///
    /// ```
    /// use rcuwalk::{Cred, Vfs, uapi::*};
    /// let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// root.mkdir(b"/new", 0o755)?;
    /// root.mount(b"none", b"/new", b"tmpfs", 0, b"")?;
    /// root.mkdir(b"/new/old", 0o755)?;
    /// root.pivot_root(b"/new", b"/new/old")?;
    /// assert!(root.stat(b"/old/new").is_ok());
    /// root.umount2(b"/old", MNT_DETACH)?;
    /// # Ok::<(), rcuwalk::Errno>(())
    /// ```
    pub fn pivot_root(&self, new_root: &[u8], put_old: &[u8]) -> Result<()> {
        self.may_mount()?;
        self.at_path(AT_FDCWD, new_root, Lookup::DIRECTORY, |new| {
            self.at_path(AT_FDCWD, put_old, Lookup::DIRECTORY, |old| self.do_pivot_root(new, old))
        })
    }

    /// Kernel: fs/namespace.c `path_pivot_root()`.
    fn do_pivot_root(&self, new: Path, old: Path) -> Result<()> {
        let kernel = &*self.kernel;
        // Let go of after the lock.
        let owners = kernel.fs_owners.all();
        let mut lock = kernel.lock_mounts();
        let root = self.fs.fs.peek(Place::Root);
        let put_old = kernel.lock_mount(&lock, old)?;
        self.may_pivot(&lock, root, new, put_old)?;
        let root_mount = kernel.mount(root.mnt);
        let base = root_mount.place();
        let locked = root_mount.flags.get() & flags::LOCKED;
        let new_flags = &kernel.mount(new.mnt).flags;
        new_flags.set(new_flags.get() | locked);
        root_mount.flags.set(root_mount.flags.get() & !flags::LOCKED);
        kernel.commit(&mut lock, 0, &[(new.mnt, base), (root.mnt, put_old)], || true);
        kernel.end_commit(&mut lock);
        kernel.chroot_fs_refs(&mut lock, &owners, root, new);
        Ok(())
    }

    fn may_pivot(&self, ns: &Namespace, root: Path, new: Path, put_old: Path) -> Result<()> {
        let kernel = &*self.kernel;
        let parent = |mnt: Handle| match kernel.mount(mnt).parent.get() {
            0 => mnt,
            parent => parent,
        };
        let shared = |mnt: Handle| ns.mnt.propagation(mnt).shared != 0;
        let ours = |mnt: Handle| kernel.mount(mnt).ns.get() == self.mnt_ns();
        if shared(put_old.mnt)
            || shared(parent(new.mnt))
            || shared(parent(root.mnt))
            || !ours(root.mnt)
            || !ours(new.mnt)
            || kernel.mount_has(new.mnt, flags::LOCKED)
        {
            return Err(Errno::EINVAL);
        }
        if kernel.is_unlinked(new.dentry) {
            return Err(Errno::ENOENT);
        }
        if new.mnt == root.mnt || put_old.mnt == root.mnt {
            return Err(Errno::EBUSY);
        }
        let attached = |path: Path| kernel.path_mounted(path) && parent(path.mnt) != path.mnt;
        if !attached(root)
            || !attached(new)
            || !kernel.is_path_reachable(ns, put_old, new)
            || !kernel.is_path_reachable(ns, new, root)
        {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// Whether the root directory is not that of the mount namespace. Kernel: fs/namespace.c `current_chrooted()`.
    pub(crate) fn chrooted(&self) -> bool {
        let ns = self.kernel.store.lock();
        let mnt = self.fs.mnt_ns.root;
        let base = Path { mnt, dentry: self.kernel.mount(mnt).root.get() };
        self.kernel.topmost(&ns, base) != self.fs.fs.peek(Place::Root)
    }

    /// Root and current directory in a copy of the whole mount tree. Kernel: fs/namespace.c `copy_mnt_ns()`.
    pub(crate) fn copy_mnt_ns(&self, user_ns: Arc<UserNamespace>) -> Result<Arc<FsOwner>> {
        let kernel = &self.kernel;
        let counted = kernel.count_namespace(&self.cred, &user_ns, Ucount::MntNamespaces)?;
        let charge = kernel.charge(MNT_NS_BYTES)?;
        let mut lock = kernel.lock_mounts();
        let (old, fs) = (&self.fs.mnt_ns, &self.fs.fs);
        let how = if user_ns.is(&old.user_ns) { Copy::Namespace } else { Copy::Unprivileged };
        let from = Path { mnt: old.root, dentry: kernel.mount(old.root).root.get() };
        let pairs = kernel.copy_tree(&mut lock, from, how)?;
        let root = pairs[0].1;
        let id = lock.mnt.new_ns(&user_ns, root);
        for &(_, copy) in &pairs {
            kernel.set_mount_ns(&mut lock, copy, id);
            lock.step();
        }
        let places = [Place::Root, Place::Pwd].map(|place| {
            let path = fs.peek(place);
            let copy = pairs.iter().find(|&&(mnt, _)| mnt == path.mnt);
            let moved = Path { mnt: copy.map_or(path.mnt, |&(_, copy)| copy), ..path };
            kernel.path_get(moved);
            moved
        });
        drop(lock);
        let mnt_ns = MntNamespace::new(kernel, id, user_ns, root, Some((counted, charge)));
        Ok(FsOwner::holding(kernel, places, fs.umask(), mnt_ns))
    }
}

/// A parsed [`MountAttr`]. Kernel: `struct mount_kattr`.
struct AttrChange {
    set: u32,
    clr: u32,
    propagation: u64,
    idmap: Option<Idmap>,
}

/// The idmap that a mount is to get.
struct Idmap {
    ns: Arc<UserNamespace>,
    maps: MountIdmap,
}

impl AttrChange {
    /// Kernel: fs/namespace.c `build_mount_kattr()`.
    fn new(attr: &MountAttr, cred: &Cred) -> Result<AttrChange> {
        const KNOWN: u64 = MOUNT_ATTR_RDONLY
            | MOUNT_ATTR_NOSUID
            | MOUNT_ATTR_NODEV
            | MOUNT_ATTR_NOEXEC
            | MOUNT_ATTR__ATIME
            | MOUNT_ATTR_NODIRATIME
            | MOUNT_ATTR_NOSYMFOLLOW
            | MOUNT_ATTR_IDMAP;
        let propagation = attr.propagation;
        if propagation & !PROPAGATION != 0
            || propagation.count_ones() > 1
            || (attr.set | attr.clr) & !KNOWN != 0
        {
            return Err(Errno::EINVAL);
        }
        let (mut set, mut clr) = (attr_flags(attr.set), attr_flags(attr.clr));
        if attr.clr & MOUNT_ATTR__ATIME != 0 {
            if attr.clr & MOUNT_ATTR__ATIME != MOUNT_ATTR__ATIME {
                return Err(Errno::EINVAL);
            }
            clr |= flags::RELATIME | flags::NOATIME;
            set |= match attr.set & MOUNT_ATTR__ATIME {
                MOUNT_ATTR_RELATIME => flags::RELATIME,
                MOUNT_ATTR_NOATIME => flags::NOATIME,
                MOUNT_ATTR_STRICTATIME => 0,
                _ => return Err(Errno::EINVAL),
            };
        } else if attr.set & MOUNT_ATTR__ATIME != 0 {
            return Err(Errno::EINVAL);
        }
        let idmap = Self::idmap(attr, cred)?;
        Ok(AttrChange { set, clr, propagation, idmap })
    }

    /// Kernel: fs/namespace.c `build_mount_idmapped()`.
    fn idmap(attr: &MountAttr, cred: &Cred) -> Result<Option<Idmap>> {
        if attr.clr & MOUNT_ATTR_IDMAP != 0 {
            return Err(Errno::EINVAL);
        }
        if attr.set & MOUNT_ATTR_IDMAP == 0 {
            return Ok(None);
        }
        let ns = attr.userns.clone()?;
        if ns.is_init() || !cred.ns_capable(&ns, CAP_SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        let (Some(uid_map), Some(gid_map)) = (ns.uid_map().cloned(), ns.gid_map().cloned()) else {
            return Err(Errno::EINVAL);
        };
        Ok(Some(Idmap { ns, maps: MountIdmap { uid_map, gid_map } }))
    }

    fn apply(&self, old: u32) -> u32 {
        (old & flags::USER_SETTABLE) & !self.clr | self.set
    }
}
