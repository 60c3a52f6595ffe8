//! Extended attributes, ACLs among them.
//!
//! Kernel: fs/xattr.c, fs/posix_acl.c.

use crate::base::errno::{Errno, Result};
use crate::base::flags::{AtFlags, XattrFlags};
use crate::base::uapi::*;
use crate::cred::Cred;
use crate::cred::userns::IdView;
use crate::cred::userns::UserNamespace;
use crate::dcache::inode::Touch;
use crate::dcache::store::Namespace;
use crate::kernel::Kernel;
use crate::mount::Path;
use crate::namei::Lookup;
use crate::perm::acl::{XATTR_NAME_POSIX_ACL_ACCESS, XATTR_NAME_POSIX_ACL_DEFAULT, posix_acl_from_xattr};
use crate::perm::setattr::{self, AclType};
use crate::perm::{self, InodeAttr, MAY_READ, MAY_WRITE, watched};
use crate::task::Task;
use rcuwalk_sync::Handle;
use std::sync::Arc;

/// The attribute with file capabilities.
const XATTR_NAME_CAPS: &[u8] = b"security.capability";

/// The longest value, and the longest list of names, in bytes.
const XATTR_SIZE_MAX: usize = 65536;
const XATTR_LIST_MAX: usize = 65536;

/// What a name stands for. Kernel: the handlers of a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Acl(AclType),
    User,
    Trusted,
    Caps,
    Security,
    /// `system.*` other than the ACLs: no handler serves it, for any user.
    System,
    Other,
}

impl Kind {
    fn of(name: &[u8]) -> Kind {
        match name {
            XATTR_NAME_POSIX_ACL_ACCESS => Kind::Acl(AclType::Access),
            XATTR_NAME_POSIX_ACL_DEFAULT => Kind::Acl(AclType::Default),
            XATTR_NAME_CAPS => Kind::Caps,
            _ if name.starts_with(b"user.") => Kind::User,
            _ if name.starts_with(b"trusted.") => Kind::Trusted,
            _ if name.starts_with(b"security.") => Kind::Security,
            _ if name.starts_with(b"system.") => Kind::System,
            _ => Kind::Other,
        }
    }
}

/// What is done to an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Get,
    Set,
    Remove,
}

/// A name as the system call accepts it.
fn check_xattr_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX { Err(Errno::ERANGE) } else { Ok(()) }
}

/// The handler's own view of a name: something must follow the prefix.
fn check_handler(kind: Kind, name: &[u8]) -> Result<()> {
    match kind {
        Kind::System | Kind::Other => Err(Errno::EOPNOTSUPP),
        _ if name.ends_with(b".") && name.iter().filter(|&&b| b == b'.').count() == 1 => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

impl Kernel {
    /// Whether the task may do this to an attribute of that name. Kernel: fs/xattr.c `xattr_permission()`.
    fn xattr_permission(
        &self,
        task: &Task,
        place: Path,
        inode: Handle,
        kind: Kind,
        access: Access,
    ) -> Result<()> {
        let i = self.store.inode(inode);
        let (attr, acl) = (self.attr(place.mnt, i), self.racy_acl(place.mnt, i));
        let write = access != Access::Get;
        if write {
            may_write_xattr(&attr)?;
        }
        match kind {
            Kind::Security | Kind::Caps | Kind::System | Kind::Acl(_) => return Ok(()),
            Kind::Trusted if task.cred().capable(CAP_SYS_ADMIN) => return Ok(()),
            Kind::Trusted => return Err(if write { Errno::EPERM } else { Errno::ENODATA }),
            Kind::User if !s_isreg(attr.mode) && !s_isdir(attr.mode) => {
                return Err(if write { Errno::EPERM } else { Errno::ENODATA });
            }
            Kind::User => {
                let sticky = s_isdir(attr.mode) && attr.mode & S_ISVTX != 0;
                if sticky && write && !perm::owner_or_capable(task.cred(), &attr) {
                    return Err(Errno::EPERM);
                }
            }
            Kind::Other => {}
        }
        let mask = if write { MAY_WRITE } else { MAY_READ };
        let asking = &mut self.asking(self.spot(place));
        watched::inode_permission(self.sb_rdonly(place.mnt), &attr, &acl, task.cred(), mask, asking)?;
        self.security_inode_permission(place.mnt, i, task.cred(), mask)
    }

    /// Removes the file capabilities of an inode, as writing to it and changing its owner do. Tells whether there were any.
    ///
    /// Kernel: security/commoncap.c `cap_inode_killpriv()`.
    pub(crate) fn remove_file_caps(&self, ns: &mut Namespace, inode: Handle) -> bool {
        self.store.xattrs_mut(ns, inode).is_some_and(|xattrs| xattrs.remove(XATTR_NAME_CAPS))
    }

    /// The file capabilities of an inode, as they are stored.
    pub(crate) fn file_caps(&self, ns: &Namespace, inode: Handle) -> Option<Vec<u8>> {
        self.store.xattrs(ns, inode)?.get(XATTR_NAME_CAPS).cloned()
    }

    /// Whether an inode has file capabilities.
    pub(crate) fn has_file_caps(&self, ns: &Namespace, inode: Handle) -> bool {
        self.store.xattrs(ns, inode).is_some_and(|xattrs| xattrs.contains_key(XATTR_NAME_CAPS))
    }

    /// Stores an attribute that was checked before.
    pub(crate) fn store_xattr(
        &self,
        ns: &mut Namespace,
        sb: u32,
        inode: Handle,
        name: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.store.make_xattrs(ns, inode, sb)?.set(name, value)
    }
}

/// Whether an inode's attributes can be changed by anybody.
fn may_write_xattr(attr: &InodeAttr) -> Result<()> {
    let fixed = attr.iflags & (perm::IFLAG_IMMUTABLE | perm::IFLAG_APPEND) != 0;
    if fixed || attr.has_unmapped_id() { Err(Errno::EPERM) } else { Ok(()) }
}

/// The path of an attribute call: a name, or an open file.
#[derive(Clone, Copy)]
pub(crate) enum Target<'a> {
    At(i32, &'a [u8], Lookup),
    Fd(i32),
    /// What a descriptor of any kind stands for.
    Place(i32),
    /// A descriptor, or `AT_FDCWD` for the current directory: what the kernel makes of `fsetxattr` and `fgetxattr`, whose
    /// descriptor goes through the code of the `*at` calls.
    FdOrCwd(i32),
}

impl<'a> Target<'a> {
    /// What the `*at` calls mean: of an empty path with `AT_EMPTY_PATH` the open file itself, which then may not be an
    /// `O_PATH` one.
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags).
    pub(crate) fn at(dirfd: i32, path: &'a [u8], at_flags: AtFlags) -> Result<Target<'a>> {
        let at_flags = at_flags.bits();
        if at_flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
            return Err(Errno::EINVAL);
        }
        if at_flags & AT_EMPTY_PATH != 0 && path.is_empty() {
            return Ok(Target::FdOrCwd(dirfd));
        }
        let follow = at_flags & AT_SYMLINK_NOFOLLOW == 0;
        Ok(Target::At(dirfd, path, Lookup { follow, ..Lookup::FOLLOW }))
    }

    /// The same for calls that take `AT_FDCWD` for no descriptor where the open file itself is meant.
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags).
    fn at_or_open(dirfd: i32, path: &'a [u8], at_flags: AtFlags) -> Result<Target<'a>> {
        match Target::at(dirfd, path, at_flags)? {
            Target::FdOrCwd(fd) => Ok(Target::Fd(fd)),
            target => Ok(target),
        }
    }
}

/// Puts a value or list into the room for it: with no room at all only its length is told.
fn fill(buf: &mut [u8], bytes: &[u8]) -> Result<usize> {
    if !buf.is_empty() {
        buf.get_mut(..bytes.len()).ok_or(Errno::ERANGE)?.copy_from_slice(bytes);
    }
    Ok(bytes.len())
}

/// The `*at` calls, and those with room for the result.
impl Task {
    /// [`setxattr`](Self::setxattr) relative to `dirfd`. `at_flags`: `AT_SYMLINK_NOFOLLOW`, `AT_EMPTY_PATH` (with an empty
    /// path, the open file itself).
    ///
    /// # Errors
    ///
    /// `EINVAL` (`at_flags`), then as [`setxattr`](Self::setxattr); `EBADF`, also for an `O_PATH` descriptor that is meant
    /// itself.
    ///
    /// Kernel: fs/xattr.c `path_setxattrat()`.
    pub fn setxattrat(
        &self,
        dirfd: i32,
        path: &[u8],
        at_flags: impl Into<AtFlags>,
        name: &[u8],
        value: &[u8],
        flags: impl Into<XattrFlags>,
    ) -> Result<()> {
        self.do_setxattr(Target::at(dirfd, path, at_flags.into())?, name, value, flags)
    }

    /// [`getxattr`](Self::getxattr) relative to `dirfd`, with the flags of [`setxattrat`](Self::setxattrat).
    ///
    /// # Errors
    ///
    /// `EINVAL` (`at_flags`), then as [`getxattr`](Self::getxattr); `EBADF`.
    pub fn getxattrat(
        &self,
        dirfd: i32,
        path: &[u8],
        at_flags: impl Into<AtFlags>,
        name: &[u8],
    ) -> Result<Vec<u8>> {
        self.do_getxattr(Target::at(dirfd, path, at_flags.into())?, name)
    }

    /// [`getxattrat`](Self::getxattrat) into room of the caller; gives the length of the value. Without room (an empty
    /// `buf`) that is all it does. `getxattr(path, …)` is `getxattrat(AT_FDCWD, path, 0, …)`, `lgetxattr` has
    /// `AT_SYMLINK_NOFOLLOW`, `fgetxattr(fd, …)` is `getxattrat(fd, "", AT_EMPTY_PATH, …)`.
    ///
    /// # Errors
    ///
    /// As [`getxattrat`](Self::getxattrat), and `ERANGE` if the room is too small.
    pub fn getxattrat_into(
        &self,
        dirfd: i32,
        path: &[u8],
        at_flags: impl Into<AtFlags>,
        name: &[u8],
        buf: &mut [u8],
    ) -> Result<usize> {
        fill(buf, &self.getxattrat(dirfd, path, at_flags, name)?)
    }

    /// [`listxattr`](Self::listxattr) relative to `dirfd`, with the flags of [`setxattrat`](Self::setxattrat).
    ///
    /// # Errors
    ///
    /// `EINVAL` (`at_flags`), then as [`listxattr`](Self::listxattr); `EBADF`, also where the current directory would
    /// be meant by an empty path.
    pub fn listxattrat(&self, dirfd: i32, path: &[u8], at_flags: impl Into<AtFlags>) -> Result<Vec<u8>> {
        self.listxattr_of(Target::at_or_open(dirfd, path, at_flags.into())?)
    }

    /// [`listxattrat`](Self::listxattrat) into room of the caller; gives the length of the list. Without room (an empty
    /// `buf`) that is all it does.
    ///
    /// # Errors
    ///
    /// As [`listxattrat`](Self::listxattrat), and `ERANGE` if the room is too small.
    pub fn listxattrat_into(
        &self,
        dirfd: i32,
        path: &[u8],
        at_flags: impl Into<AtFlags>,
        buf: &mut [u8],
    ) -> Result<usize> {
        self.list_into(Target::at_or_open(dirfd, path, at_flags.into())?, buf)
    }

    /// [`flistxattr`](Self::flistxattr) into room of the caller, as [`listxattrat_into`](Self::listxattrat_into) does.
    ///
    /// # Errors
    ///
    /// `EBADF`, also for `AT_FDCWD`; `ERANGE` if the room is too small, `E2BIG`.
    pub fn flistxattr_into(&self, fd: i32, buf: &mut [u8]) -> Result<usize> {
        self.list_into(Target::Fd(fd), buf)
    }

    fn list_into(&self, target: Target<'_>, buf: &mut [u8]) -> Result<usize> {
        let list = self.do_listxattr(target)?;
        // With as much room as there can be, it is the list that is too long.
        let whole = if buf.len() >= XATTR_LIST_MAX { listable(list)? } else { list };
        fill(buf, &whole)
    }

    /// What [`listxattrat`](Self::listxattrat) lists, however long.
    pub(crate) fn names_at(&self, dirfd: i32, path: &[u8], at_flags: i32) -> Result<Vec<u8>> {
        self.do_listxattr(Target::at_or_open(dirfd, path, at_flags.into())?)
    }

    /// [`removexattr`](Self::removexattr) relative to `dirfd`, with the flags of [`setxattrat`](Self::setxattrat).
    ///
    /// # Errors
    ///
    /// `EINVAL` (`at_flags`), then as [`removexattr`](Self::removexattr); `EBADF`, also where the current
    /// directory would be meant by an empty path.
    pub fn removexattrat(
        &self,
        dirfd: i32,
        path: &[u8],
        at_flags: impl Into<AtFlags>,
        name: &[u8],
    ) -> Result<()> {
        self.do_removexattr(Target::at_or_open(dirfd, path, at_flags.into())?, name)
    }
}

/// What file servers call, for whom a descriptor stands for an inode.
impl Task {
    /// [`fsetxattr`](Self::fsetxattr) for any descriptor, `O_PATH` ones included: of links and special files, too.
    ///
    /// # Errors
    ///
    /// As [`setxattr`](Self::setxattr) but for the walk's; `EBADF`.
    ///
    /// Kernel: fs/xattr.c `vfs_setxattr()`.
    pub fn vfs_setxattr(
        &self,
        fd: i32,
        name: &[u8],
        value: &[u8],
        flags: impl Into<XattrFlags>,
    ) -> Result<()> {
        self.do_setxattr(Target::Place(fd), name, value, flags)
    }

    /// [`fgetxattr`](Self::fgetxattr) for any descriptor, `O_PATH` ones included.
    ///
    /// # Errors
    ///
    /// As [`getxattr`](Self::getxattr) but for the walk's; `EBADF`.
    ///
    /// Kernel: fs/xattr.c `vfs_getxattr()`.
    pub fn vfs_getxattr(&self, fd: i32, name: &[u8]) -> Result<Vec<u8>> {
        self.do_getxattr(Target::Place(fd), name)
    }

    /// [`flistxattr`](Self::flistxattr) for any descriptor, `O_PATH` ones included.
    ///
    /// # Errors
    ///
    /// `EBADF`, `E2BIG`.
    ///
    /// Kernel: fs/xattr.c `vfs_listxattr()`.
    pub fn vfs_listxattr(&self, fd: i32) -> Result<Vec<u8>> {
        self.listxattr_of(Target::Place(fd))
    }

    /// [`fremovexattr`](Self::fremovexattr) for any descriptor, `O_PATH` ones included.
    ///
    /// # Errors
    ///
    /// As [`removexattr`](Self::removexattr) but for the walk's; `EBADF`.
    ///
    /// Kernel: fs/xattr.c `vfs_removexattr()`.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Errno, Vfs, uapi::*};
    /// # let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// root.symlink(b"nowhere", b"/link")?;
    /// let link = root.open(b"/link", O_PATH | O_NOFOLLOW, 0)?;
    /// root.vfs_setxattr(link, b"trusted.x", b"1", 0)?;
    /// assert_eq!(root.vfs_getxattr(link, b"trusted.x")?, b"1");
    /// assert_eq!(root.vfs_listxattr(link)?, b"trusted.x\0");
    /// root.vfs_removexattr(link, b"trusted.x")?;
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn vfs_removexattr(&self, fd: i32, name: &[u8]) -> Result<()> {
        self.do_removexattr(Target::Place(fd), name)
    }
}

/// A list that is not longer than any room that the kernel would make for it.
fn listable(list: Vec<u8>) -> Result<Vec<u8>> {
    if list.len() > XATTR_LIST_MAX { Err(Errno::E2BIG) } else { Ok(list) }
}

impl Task {
    /// Runs `call` on the place and inode that `target` names.
    pub(crate) fn at_target<R>(
        &self,
        target: Target<'_>,
        call: impl FnOnce(Path, Handle) -> Result<R>,
    ) -> Result<R> {
        match target {
            Target::At(dirfd, path, lookup) => self.setattr_at(dirfd, path, lookup, call),
            Target::FdOrCwd(AT_FDCWD) => {
                self.setattr_at(AT_FDCWD, b"", Lookup { empty: true, ..Lookup::FOLLOW }, call)
            }
            Target::Fd(fd) | Target::FdOrCwd(fd) => {
                let file = self.file(fd)?;
                call(file.path, file.inode)
            }
            Target::Place(fd) => {
                let file = self.file_any(fd)?;
                call(file.path, file.inode)
            }
        }
    }

    fn do_setxattr(
        &self,
        target: Target<'_>,
        name: &[u8],
        value: &[u8],
        flags: impl Into<XattrFlags>,
    ) -> Result<()> {
        let flags = flags.into().bits();
        if flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
            return Err(Errno::EINVAL);
        }
        check_xattr_name(name)?;
        if value.len() > XATTR_SIZE_MAX {
            return Err(Errno::E2BIG);
        }
        self.at_target(target, |place, inode| {
            self.want_write(place)?;
            match Kind::of(name) {
                Kind::Acl(ty) => self.set_acl_xattr(place, inode, ty, value),
                kind => self.set_plain_xattr(place, inode, kind, name, value, flags),
            }
        })
    }

    fn set_plain_xattr(
        &self,
        place: Path,
        inode: Handle,
        kind: Kind,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Result<()> {
        let kernel = &*self.kernel;
        // The others are made durable with it.
        let others =
            if kernel.watch.is_on() { kernel.store.xattr_bytes(&kernel.store.lock(), inode) } else { 0 };
        let _room = kernel.watch.admit_whole(others + value.len() as u64);
        let mut ns = kernel.store.lock();
        let attr = kernel.attr(place.mnt, kernel.store.inode(inode));
        if kind == Kind::Caps {
            check_caps_value(value)?;
            if !perm::capable_wrt_inode_uidgid(&self.cred, &attr, CAP_SETFCAP) {
                return Err(Errno::EPERM);
            }
        }
        kernel.xattr_permission(self, place, inode, kind, Access::Set)?;
        if kind == Kind::Security
            && !self.cred.ns_capable(kernel.id_view(place.mnt).get().sb_ns, CAP_SYS_ADMIN)
        {
            return Err(Errno::EPERM);
        }
        check_handler(kind, name)?;
        if name.contains(&0) {
            return Err(Errno::EINVAL);
        }
        let caps;
        let value = if kind == Kind::Caps {
            caps = caps_stored_by(&self.cred, &kernel.id_view(place.mnt).get(), value)?;
            &caps
        } else {
            value
        };
        let sb = kernel.mount(place.mnt).sb.get();
        ns.mnt.supers.get(sb).map_or(Ok(()), |sb| sb.space.admit_xattr(name, value))?;
        let exists = kernel.store.xattrs(&ns, inode).is_some_and(|xattrs| xattrs.contains_key(name));
        if exists && flags & XATTR_CREATE != 0 {
            return Err(Errno::EEXIST);
        }
        if !exists && flags & XATTR_REPLACE != 0 {
            return Err(Errno::ENODATA);
        }
        kernel.watch.may_grow()?;
        kernel.store_xattr(&mut ns, sb, inode, name, value)?;
        ns.feed.iter().for_each(|feed| feed.spend((name.len() + value.len()) as u64));
        self.stamp(&mut ns, inode);
        Ok(())
    }

    fn stamp(&self, ns: &mut Namespace, inode: Handle) {
        let (store, now) = (&self.kernel.store, self.kernel.now());
        let _change = store.open_inode(ns, inode);
        store.touch(ns, inode, Touch::C, now);
    }

    /// Kernel: fs/posix_acl.c `vfs_set_acl()`, reached from `do_set_acl()`.
    fn set_acl_xattr(&self, place: Path, inode: Handle, ty: AclType, value: &[u8]) -> Result<()> {
        let (kernel, user_ns) = (&*self.kernel, self.cred.user_ns());
        let mut acl =
            posix_acl_from_xattr(value, |uid| user_ns.make_kuid(uid), |gid| user_ns.make_kgid(gid))?;
        let _room = kernel.watch.admit();
        let mut ns = kernel.store.lock();
        let attr = kernel.attr(place.mnt, kernel.store.inode(inode));
        let view = kernel.id_view(place.mnt);
        if let (Some(acl), view @ IdView { idmap: Some(_), .. }) = (&mut acl, view.get()) {
            acl.map_ids(|uid| view.from_vfsuid(uid), |gid| view.from_vfsgid(gid));
        }
        let sb_ns = view.get().sb_ns;
        if let Some(set) = setattr::set_acl(&attr, &self.cred, sb_ns, ty, acl)? {
            kernel.set_acl(&mut ns, inode, ty, set.mode, set.acl.as_ref())?;
        }
        Ok(())
    }

    fn do_getxattr(&self, target: Target<'_>, name: &[u8]) -> Result<Vec<u8>> {
        check_xattr_name(name)?;
        self.at_target(target, |place, inode| {
            let kernel = &*self.kernel;
            let kind = Kind::of(name);
            let ns = kernel.store.lock();
            if let Kind::Acl(ty) = kind {
                return self.get_acl_xattr(place, inode, ty);
            }
            kernel.xattr_permission(self, place, inode, kind, Access::Get)?;
            check_handler(kind, name)?;
            let xattrs = kernel.store.xattrs(&ns, inode);
            let value = xattrs.and_then(|xattrs| xattrs.get(name)).cloned().ok_or(Errno::ENODATA)?;
            match kind {
                Kind::Caps => caps_seen_from(self.cred.user_ns(), &kernel.id_view(place.mnt).get(), &value),
                _ => Ok(value),
            }
        })
    }

    /// The caller holds the lock.
    fn get_acl_xattr(&self, place: Path, inode: Handle, ty: AclType) -> Result<Vec<u8>> {
        let store = &self.kernel.store;
        let i = store.inode(inode);
        if s_islnk(i.attr().mode) {
            return Err(Errno::EOPNOTSUPP);
        }
        let blob = match ty {
            AclType::Access => i.acl.get(),
            AclType::Default => store.inode_rest(inode).default_acl.get(),
        };
        if blob == 0 {
            return Err(Errno::ENODATA);
        }
        let (user_ns, view) = (self.cred.user_ns(), self.kernel.id_view(place.mnt));
        let view = view.get();
        let uid = |uid| user_ns.from_kuid(view.make_vfsuid(uid));
        Ok(store.acl(blob)?.to_xattr(uid, |gid| user_ns.from_kgid(view.make_vfsgid(gid))))
    }

    fn do_listxattr(&self, target: Target<'_>) -> Result<Vec<u8>> {
        if matches!(target, Target::Fd(fd) if self.is_node(fd)) {
            return Ok(Vec::new());
        }
        self.at_target(target, |_, inode| {
            let store = &self.kernel.store;
            let ns = store.lock();
            let (i, rest) = (store.inode(inode), store.inode_rest(inode));
            let mut list = Vec::new();
            let mut add = |name: &[u8]| {
                list.extend_from_slice(name);
                list.push(0);
            };
            if i.acl.get() != 0 {
                add(XATTR_NAME_POSIX_ACL_ACCESS);
            }
            if rest.default_acl.get() != 0 {
                add(XATTR_NAME_POSIX_ACL_DEFAULT);
            }
            let trusted = self.cred.capable(CAP_SYS_ADMIN);
            // tmpfs gives them in descending order.
            for name in store.xattrs(&ns, inode).into_iter().flat_map(|xattrs| xattrs.keys().rev()) {
                if trusted || Kind::of(name) != Kind::Trusted {
                    add(name);
                }
            }
            Ok(list)
        })
    }

    fn listxattr_of(&self, target: Target<'_>) -> Result<Vec<u8>> {
        listable(self.do_listxattr(target)?)
    }

    fn do_removexattr(&self, target: Target<'_>, name: &[u8]) -> Result<()> {
        check_xattr_name(name)?;
        self.at_target(target, |place, inode| {
            self.want_write(place)?;
            let kind = Kind::of(name);
            if let Kind::Acl(ty) = kind {
                return self.set_acl_xattr(place, inode, ty, b"");
            }
            let kernel = &*self.kernel;
            let _room = kernel.watch.admit();
            let mut ns = kernel.store.lock();
            kernel.xattr_permission(self, place, inode, kind, Access::Remove)?;
            let allowed = match kind {
                Kind::Caps => {
                    let attr = kernel.attr(place.mnt, kernel.store.inode(inode));
                    perm::capable_wrt_inode_uidgid(&self.cred, &attr, CAP_SETFCAP)
                }
                Kind::Security => self.cred.ns_capable(kernel.id_view(place.mnt).get().sb_ns, CAP_SYS_ADMIN),
                _ => true,
            };
            if !allowed {
                return Err(Errno::EPERM);
            }
            check_handler(kind, name)?;
            let there = kernel.store.xattrs_mut(&mut ns, inode).is_some_and(|xattrs| xattrs.remove(name));
            if !there {
                return Err(Errno::ENODATA);
            }
            self.stamp(&mut ns, inode);
            Ok(())
        })
    }
}

/// The value of `security.capability`: version 2 of 20 bytes, or version 3 of 24.
fn check_caps_value(value: &[u8]) -> Result<()> {
    let magic = value.first_chunk::<4>().map(|magic| u32::from_le_bytes(*magic));
    match (magic.map(|magic| magic & 0xff00_0000), value.len()) {
        (Some(0x0200_0000), 20) | (Some(0x0300_0000), 24) => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

const CAPS_VERSION_2: u32 = 0x0200_0000;
const CAPS_VERSION_3: u32 = 0x0300_0000;

/// A `security.capability` value of version 3, for programs of the namespace whose root is `root`.
fn caps_of_version_3(value: &[u8], root: u32) -> Result<Vec<u8>> {
    let (Some(magic), Some(sets)) = (value.first_chunk(), value.get(4..20)) else {
        return Err(Errno::EINVAL);
    };
    let magic = CAPS_VERSION_3 | u32::from_le_bytes(*magic) & 1;
    Ok([&magic.to_le_bytes(), sets, &root.to_le_bytes()].concat())
}

/// The user that a `security.capability` value of version 3 is for, as a number.
fn caps_root(value: &[u8]) -> Option<u32> {
    value.get(20..)?.first_chunk().copied().map(u32::from_le_bytes)
}

/// What is stored when this credential sets a `security.capability` value: unless it may set file capabilities for the
/// whole file system, and the mount shows ids as they are, they count only for programs of its namespace, which version 3
/// says.
///
/// Kernel: security/commoncap.c `cap_convert_nscap()`.
fn caps_stored_by(cred: &Cred, view: &IdView<'_>, value: &[u8]) -> Result<Vec<u8>> {
    let root = caps_root(value);
    if root.is_none() && view.idmap.is_none() && cred.ns_capable(view.sb_ns, CAP_SETFCAP) {
        return Ok(value.to_vec());
    }
    let root = view.sb_ns.from_kuid(view.from_vfsuid(cred.user_ns().make_kuid(root.unwrap_or(0))));
    if root == INVALID_ID { Err(Errno::EINVAL) } else { caps_of_version_3(value, root) }
}

/// A stored `security.capability` value as a task of this namespace reads it through a mount: with the number that the root
/// it is for has here, as version 3, unless that is root here too or the root of a namespace around this one.
///
/// Kernel: security/commoncap.c `cap_inode_getsecurity()`.
fn caps_seen_from(ns: &Arc<UserNamespace>, view: &IdView<'_>, value: &[u8]) -> Result<Vec<u8>> {
    let root = view.make_vfsuid(view.sb_ns.make_kuid(caps_root(value).unwrap_or(0)));
    let seen = ns.from_kuid(root);
    if seen != INVALID_ID && seen != 0 {
        return caps_of_version_3(value, seen);
    }
    let mut around = std::iter::successors(Some(ns), |ns| ns.parent());
    if root == INVALID_ID || !around.any(|ns| ns.from_kuid(root) == 0) {
        return Err(Errno::EOVERFLOW);
    }
    let mut value = value.to_vec();
    if value.len() > 20 {
        let magic = CAPS_VERSION_2 | u32::from(value[0] & 1);
        value.truncate(20);
        value[..4].copy_from_slice(&magic.to_le_bytes());
    }
    Ok(value)
}

/// Declares the three forms of an attribute call: following links, not following, on a descriptor.
macro_rules! xattr_calls {
    ($(#[$doc:meta])* $call:ident, $lcall:ident, $fcall:ident($fd:ident) = $do:ident($($arg:ident: $ty:ty),*) -> $ret:ty) => {
        impl Task {
            $(#[$doc])*
            pub fn $call(&self, path: &[u8], $($arg: $ty),*) -> Result<$ret> {
                self.$do(Target::At(AT_FDCWD, path, Lookup::FOLLOW), $($arg),*)
            }

            #[doc = concat!("[`", stringify!($call), "`](Self::", stringify!($call), "); of a link, the link itself.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("As [`", stringify!($call), "`](Self::", stringify!($call), ").")]
            pub fn $lcall(&self, path: &[u8], $($arg: $ty),*) -> Result<$ret> {
                self.$do(Target::At(AT_FDCWD, path, Lookup::NOFOLLOW), $($arg),*)
            }

            #[doc = concat!("[`", stringify!($call), "`](Self::", stringify!($call), ") of the open file `fd`.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("As [`", stringify!($call), "`](Self::", stringify!($call), "), and `EBADF`, also for `O_PATH`.")]
            pub fn $fcall(&self, fd: i32, $($arg: $ty),*) -> Result<$ret> {
                self.$do(Target::$fd(fd), $($arg),*)
            }
        }
    };
}

xattr_calls! {
    /// Sets the attribute `name` of `path`. `flags`: `XATTR_CREATE`, `XATTR_REPLACE`. ACLs are the attributes
    /// `system.posix_acl_access` and `system.posix_acl_default`, in the kernel's binary form.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ERANGE` (name), `E2BIG` (over 65,536 bytes), those of the walk, `EROFS`, `EPERM`, `EACCES`, `EOPNOTSUPP`,
    /// `EEXIST`, `ENODATA`, `ENOSPC`.
    setxattr, lsetxattr, fsetxattr(FdOrCwd) = do_setxattr(name: &[u8], value: &[u8], flags: impl Into<XattrFlags>) -> ()
}

xattr_calls! {
    /// The value of the attribute `name` of `path`.
    ///
    /// # Errors
    ///
    /// `ERANGE` (name), those of the walk, `ENODATA`, `EACCES`, `EOPNOTSUPP`.
    getxattr, lgetxattr, fgetxattr(FdOrCwd) = do_getxattr(name: &[u8]) -> Vec<u8>
}

xattr_calls! {
    /// The names of the attributes of `path`, each followed by a NUL. `trusted.*` shows only to `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    ///
    /// Those of the walk, `E2BIG` (over 65,536 bytes).
    listxattr, llistxattr, flistxattr(Fd) = listxattr_of() -> Vec<u8>
}

xattr_calls! {
    /// Removes the attribute `name` of `path`.
    ///
    /// # Errors
    ///
    /// `ERANGE` (name), those of the walk, `EROFS`, `EPERM`, `EACCES`, `EOPNOTSUPP`, `ENODATA`.
    removexattr, lremovexattr, fremovexattr(Fd) = do_removexattr(name: &[u8]) -> ()
}
