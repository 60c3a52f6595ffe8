//! chmod, chown, utimensat.
//!
//! Kernel: fs/open.c `chmod_common()`, `chown_common()`, fs/utimes.c, fs/attr.c `notify_change()`.

use crate::base::errno::{Errno, Result};
use crate::base::flags::AtFlags;
use crate::base::uapi::*;
use crate::dcache::inode::Touch;
use crate::dcache::store::Namespace;
use crate::mount::Path;
use crate::namei::Lookup;
use crate::perm;
use crate::perm::acl::Acl;
use crate::perm::fact::Rule;
use crate::perm::setattr::{self, Utimes};
use crate::task::Task;
use rcuwalk_sync::Handle;

const SETATTR_FLAGS: i32 = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;

impl Task {
    /// Looks up what an attribute call names, and runs `change` on the inode with a write reference to its mount.
    pub(crate) fn setattr_at<R>(
        &self,
        dirfd: i32,
        path: &[u8],
        lookup: Lookup,
        change: impl FnOnce(Path, Handle) -> Result<R>,
    ) -> Result<R> {
        let place = self.with_at(dirfd, |at| self.lookup_held(at, path, lookup, |_| Ok(())))?;
        let result = change(place, self.kernel.store.d_inode(place.dentry));
        self.kernel.path_put(place);
        result
    }

    fn at_lookup(flags: i32) -> Result<Lookup> {
        if flags & !SETATTR_FLAGS != 0 {
            return Err(Errno::EINVAL);
        }
        let (follow, empty) = (flags & AT_SYMLINK_NOFOLLOW == 0, flags & AT_EMPTY_PATH != 0);
        Ok(Lookup { follow, empty, ..Lookup::FOLLOW })
    }

    /// Changes the permissions of `path` to `mode & 07777`.
    ///
    /// # Errors
    ///
    /// As [`fchmodat2`](Self::fchmodat2).
    pub fn chmod(&self, path: &[u8], mode: u32) -> Result<()> {
        self.fchmodat2(AT_FDCWD, path, mode, 0)
    }

    /// Changes the permissions of the open file.
    ///
    /// # Errors
    ///
    /// `EBADF` (also for `O_PATH`), `EROFS`, `EPERM`.
    pub fn fchmod(&self, fd: i32, mode: u32) -> Result<()> {
        let file = self.file(fd)?;
        self.chmod_common(file.path, file.inode, mode)
    }

    /// Changes the permissions of `path`, relative to `dirfd`. Set-group-id is dropped without an error if the caller is
    /// not in the group. `flags`: `AT_SYMLINK_NOFOLLOW`, `AT_EMPTY_PATH`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags), those of the walk, `EROFS`, `EPERM` (immutable, append-only, not the owner), `EOPNOTSUPP` (a
    /// link), `ENOSPC`.
    pub fn fchmodat2(&self, dirfd: i32, path: &[u8], mode: u32, flags: impl Into<AtFlags>) -> Result<()> {
        let lookup = Self::at_lookup(flags.into().bits())?;
        self.setattr_at(dirfd, path, lookup, |place, inode| self.chmod_common(place, inode, mode))
    }

    /// Kernel: fs/open.c `chmod_common()`.
    fn chmod_common(&self, place: Path, inode: Handle, mode: u32) -> Result<()> {
        let (kernel, store) = (&*self.kernel, &self.kernel.store);
        let _room = kernel.watch.admit();
        let (now, mut ns) = (kernel.now(), store.lock());
        self.want_write(place)?;
        let i = store.inode(inode);
        let attr = kernel.attr(place.mnt, i);
        let mode = setattr::chmod(&attr, &self.cred, mode).map_err(|errno| {
            kernel.refused_setattr(place, &attr, &self.cred, (Rule::NotOwner, CAP_FOWNER), errno)
        })?;
        let old = i.acl.get();
        // The ACL's entries of the three classes follow the mode.
        let new = if old == 0 {
            0
        } else {
            let mut acl = store.acl(old)?;
            acl.chmod_masq(mode);
            store.store_acl(acl.entries())?
        };
        store.change_inode(&mut ns, inode, |i, ns| {
            i.mode.set(i.mode.get() & !0xffff | mode);
            i.acl.set(new);
            store.touch(ns, inode, Touch::C, now);
        });
        if old != 0 {
            store.blobs.free(old);
        }
        Ok(())
    }

    /// Changes owner and group of `path`, as the task's user namespace numbers them; `u32::MAX` keeps one.
    ///
    /// # Errors
    ///
    /// As [`fchownat`](Self::fchownat).
    pub fn chown(&self, path: &[u8], uid: u32, gid: u32) -> Result<()> {
        self.fchownat(AT_FDCWD, path, uid, gid, 0)
    }

    /// [`chown`](Self::chown); of a link, the link itself.
    ///
    /// # Errors
    ///
    /// As [`fchownat`](Self::fchownat).
    pub fn lchown(&self, path: &[u8], uid: u32, gid: u32) -> Result<()> {
        self.fchownat(AT_FDCWD, path, uid, gid, AT_SYMLINK_NOFOLLOW)
    }

    /// [`chown`](Self::chown) of the open file.
    ///
    /// # Errors
    ///
    /// `EBADF` (also for `O_PATH`), those of [`fchownat`](Self::fchownat) but the walk's.
    pub fn fchown(&self, fd: i32, uid: u32, gid: u32) -> Result<()> {
        let file = self.file(fd)?;
        self.chown_common(file.path, file.inode, uid, gid)
    }

    /// Changes owner and group of `path`, relative to `dirfd`. Except on directories it strips set-id bits and file
    /// capabilities, even if neither id changes. `flags`: `AT_SYMLINK_NOFOLLOW`, `AT_EMPTY_PATH`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags; an id without a mapping), those of the walk, `EROFS`, `EPERM` (immutable, append-only, no
    /// `CAP_CHOWN` for what is asked), `EOVERFLOW`.
    pub fn fchownat(
        &self,
        dirfd: i32,
        path: &[u8],
        uid: u32,
        gid: u32,
        flags: impl Into<AtFlags>,
    ) -> Result<()> {
        let lookup = Self::at_lookup(flags.into().bits())?;
        self.setattr_at(dirfd, path, lookup, |place, inode| self.chown_common(place, inode, uid, gid))
    }

    /// Kernel: fs/open.c `chown_common()`.
    fn chown_common(&self, place: Path, inode: Handle, uid: u32, gid: u32) -> Result<()> {
        let (kernel, store) = (&*self.kernel, &self.kernel.store);
        let _room = kernel.watch.admit();
        let (now, mut ns) = (kernel.now(), store.lock());
        self.want_write(place)?;
        let i = store.inode(inode);
        let attr = kernel.attr(place.mnt, i);
        let new = setattr::chown(&attr, &self.cred, &kernel.id_view(place.mnt).get(), uid, gid).map_err(
            |errno| {
                let gives = (uid, gid) != (INVALID_ID, INVALID_ID)
                    && !perm::capable_wrt_inode_uidgid(&self.cred, &attr, CAP_CHOWN);
                let rule = if gives { (Rule::Chown, CAP_CHOWN) } else { (Rule::NotOwner, CAP_FOWNER) };
                kernel.refused_setattr(place, &attr, &self.cred, rule, errno)
            },
        )?;
        store.change_inode(&mut ns, inode, |i, ns| {
            i.uid.set(new.uid.unwrap_or(i.uid.get()));
            i.gid.set(new.gid.unwrap_or(i.gid.get()));
            i.mode.set(i.mode.get() & !0xffff | new.mode);
            store.touch(ns, inode, Touch::C, now);
        });
        if new.kill_priv {
            kernel.remove_file_caps(&mut ns, inode);
        }
        Ok(())
    }

    /// Sets access and modification time of `path`, relative to `dirfd`, or without a path of the open file `dirfd`.
    /// Without times both become the present; `UTIME_NOW` and `UTIME_OMIT` in place of nanoseconds choose for each.
    /// `flags`: `AT_SYMLINK_NOFOLLOW`, `AT_EMPTY_PATH`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags, nanoseconds), `EFAULT` (no path and `AT_FDCWD`), `EBADF`, those of the walk, `EROFS`, `EPERM`,
    /// `EACCES`.
    pub fn utimensat(
        &self,
        dirfd: i32,
        path: Option<&[u8]>,
        times: Option<[Timespec; 2]>,
        flags: impl Into<AtFlags>,
    ) -> Result<()> {
        let flags = flags.into().bits();
        if Utimes::is_noop(times) {
            return Ok(());
        }
        match path {
            None if dirfd == AT_FDCWD => Self::at_lookup(flags).and(Err(Errno::EFAULT)),
            None if flags != 0 => Err(Errno::EINVAL),
            None => {
                let file = self.file(dirfd)?;
                self.utimes_common(file.path, file.inode, times)
            }
            Some(path) => {
                let lookup = Self::at_lookup(flags)?;
                self.setattr_at(dirfd, path, lookup, |place, inode| self.utimes_common(place, inode, times))
            }
        }
    }

    /// Kernel: fs/utimes.c `vfs_utimes()`.
    fn utimes_common(&self, place: Path, inode: Handle, times: Option<[Timespec; 2]>) -> Result<()> {
        let wanted = Utimes::parse(times)?;
        let (kernel, store) = (&*self.kernel, &self.kernel.store);
        let _room = kernel.watch.admit();
        let (now, mut ns) = (kernel.now(), store.lock());
        self.want_write(place)?;
        let i = store.inode(inode);
        let (attr, acl) = (kernel.attr(place.mnt, i), kernel.racy_acl(place.mnt, i));
        let mut asking = kernel.asking(kernel.spot(place));
        wanted.may_set(kernel.sb_rdonly(place.mnt), &attr, &acl, &self.cred, &mut asking).map_err(
            |errno| kernel.refused_setattr(place, &attr, &self.cred, (Rule::NotOwner, CAP_FOWNER), errno),
        )?;
        // Others may only touch it, by the permission to write.
        if !perm::owner_or_capable(&self.cred, &attr) {
            kernel.security_inode_permission(place.mnt, i, &self.cred, perm::MAY_WRITE)?;
        }
        let mut new = store.times(&ns, inode);
        new.atime = wanted.atime.apply(new.atime, now);
        new.mtime = wanted.mtime.apply(new.mtime, now);
        new.ctime = now;
        let _change = store.open_inode(&mut ns, inode);
        store.set_times(&mut ns, inode, new);
        Ok(())
    }
}

impl crate::kernel::Kernel {
    /// Replaces an ACL of an inode, and the mode with it. The caller holds the lock and has checked that it may.
    pub(crate) fn set_acl(
        &self,
        ns: &mut Namespace,
        inode: Handle,
        ty: setattr::AclType,
        mode: u32,
        acl: Option<&Acl>,
    ) -> Result<()> {
        let (store, now) = (&self.store, self.now());
        let new = acl.map_or(Ok(0), |acl| store.store_acl(acl.entries()))?;
        let (i, rest) = (store.inode(inode), store.inode_rest(inode));
        let word = if ty == setattr::AclType::Access { &i.acl } else { &rest.default_acl };
        let old = word.get();
        store.change_inode(ns, inode, |i, ns| {
            word.set(new);
            i.mode.set(i.mode.get() & !0xffff | mode);
            store.touch(ns, inode, Touch::C, now);
        });
        if old != 0 {
            store.blobs.free(old);
        }
        Ok(())
    }
}
