//! The operations that change the tree: mkdir, mknod, symlink, link, unlink, rmdir, rename.
//!
//! Kernel: fs/namei.c `vfs_mkdir()` and its like, with the system calls around them.

use crate::base::errno::{Errno, Result};
use crate::base::flags::{AtFlags, RenameFlags};
use crate::base::uapi::*;
use crate::cred::Cred;
use crate::dcache::Name;
use crate::dcache::inode::{Inode, RacyAcl, Times, Touch, flags};
use crate::dcache::remains::NsGuard;
use crate::dcache::store::{InodeInit, MovesGuard, Namespace, Store};
use crate::kernel::trace::Asking;
use crate::kernel::watch::Room;
use crate::kernel::{DIRENT_SIZE, EMPTY_DIR_SIZE, Kernel};
use crate::mount::Path;
use crate::namei::{At, Last, LastType, Lookup};
use crate::perm::setattr::{self, NewAttr, NewIn};
use crate::perm::{self, InodeAttr, MAY_EXEC, MAY_WRITE, Parent, Victim, watched};
use crate::task::Task;
use rcuwalk_sync::Handle;
use std::sync::Arc;

/// A change under way: the name space lock, who makes it, and when.
pub(crate) struct Change<'a> {
    pub(crate) kernel: &'a Kernel,
    cred: &'a Cred,
    /// The mount through which the directories are seen.
    mnt: Handle,
    pub(crate) ns: NsGuard<'a>,
    /// While a directory is renamed.
    _moves: Option<MovesGuard<'a>>,
    /// Comes after the lock: it takes that of mounts, which is not to be waited for under it.
    uncovered: Uncovered<'a>,
    now: Timespec,
    _room: Option<Room<'a>>,
}

/// A dentry that lost its name while other namespaces have mounts on it, held. They are taken off it when the lock is released.
struct Uncovered<'a> {
    kernel: &'a Kernel,
    dentry: Option<Handle>,
}

impl Drop for Uncovered<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(dentry) = self.dentry {
            self.kernel.detach_mounts(dentry);
            self.kernel.store.dput(dentry);
        }
    }
}

/// What is to be created.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewNode<'a> {
    /// Type and the permissions that were asked for.
    pub(crate) mode: u32,
    pub(crate) umask: u32,
    pub(crate) rdev: u32,
    /// The body of a symlink.
    pub(crate) body: &'a [u8],
}

impl<'a> Change<'a> {
    /// Takes the lock to change what is seen through mount `mnt`, if anything can be written through it.
    ///
    /// # Errors
    ///
    /// `EROFS`.
    pub(crate) fn new(kernel: &'a Kernel, cred: &'a Cred, mnt: Handle) -> Result<Self> {
        let change = Change::look(kernel, cred, mnt);
        change.want_write()?;
        Ok(change)
    }

    /// Takes the lock, to see first.
    pub(crate) fn look(kernel: &'a Kernel, cred: &'a Cred, mnt: Handle) -> Self {
        let (room, now) = (kernel.watch.admit(), kernel.now());
        let uncovered = Uncovered { kernel, dentry: None };
        Change { kernel, cred, mnt, ns: kernel.store.lock(), _moves: None, uncovered, now, _room: room }
    }

    /// Kernel: fs/namespace.c `mnt_want_write()`.
    pub(crate) fn want_write(&self) -> Result<()> {
        self.kernel.want_write(self.mnt)
    }

    fn inode(&self, dentry: Handle) -> Handle {
        self.kernel.store.d_inode(dentry)
    }

    /// A listener to what is said of this place.
    fn asking(&self, dentry: Handle) -> Asking<'_> {
        self.kernel.asking(self.kernel.spot(Path { mnt: self.mnt, dentry }))
    }

    fn attr(&self, dentry: Handle) -> InodeAttr {
        self.kernel.attr(self.mnt, self.kernel.store.inode(self.inode(dentry)))
    }

    fn acl(&self, dentry: Handle) -> RacyAcl<'a> {
        self.kernel.racy_acl(self.mnt, self.kernel.store.inode(self.inode(dentry)))
    }

    /// Runs a permission check that asks for a directory.
    fn in_dir<R>(&self, dir: Handle, check: impl FnOnce(&Parent<'_, RacyAcl<'_>>) -> Result<R>) -> Result<R> {
        let (attr, acl) = (self.attr(dir), self.acl(dir));
        check(&Parent { sb_rdonly: self.kernel.sb_rdonly(self.mnt), attr: &attr, acl: &acl })
    }

    /// The entry `name` of `dir`, if there is one.
    ///
    /// # Errors
    ///
    /// `ENOENT` in a removed directory, `ENAMETOOLONG`.
    pub(crate) fn lookup(&self, dir: Handle, name: Name<'_>) -> Result<Option<Handle>> {
        match self.kernel.store.d_lookup(&self.ns, dir, name) {
            None if self.attr(dir).iflags & perm::IFLAG_DEAD != 0 => Err(Errno::ENOENT),
            None if name.component.len > NAME_MAX as u32 => Err(Errno::ENAMETOOLONG),
            found => {
                self.kernel.tell_lookup(Path { mnt: self.mnt, dentry: dir }, name, found);
                Ok(found)
            }
        }
    }

    /// Whether a new entry may be made in `dir`. Kernel: fs/namei.c `may_create()`.
    pub(crate) fn may_create(&self, dir: Handle) -> Result<()> {
        let can_store = self.kernel.id_view(self.mnt).get().can_store(self.cred.fsuid(), self.cred.fsgid());
        let mut asking = self.asking(dir);
        self.in_dir(dir, |parent| watched::may_create(parent, can_store, self.cred, &mut asking))?;
        self.ask_hook(dir, MAY_WRITE | MAY_EXEC)
    }

    fn ask_hook(&self, dentry: Handle, mask: u32) -> Result<()> {
        let inode = self.kernel.store.inode(self.inode(dentry));
        self.kernel.security_inode_permission(self.mnt, inode, self.cred, mask)
    }

    /// Whether `victim` may be taken out of `dir`. Kernel: fs/namei.c `may_delete()`.
    fn may_delete(&self, dir: Handle, victim: Handle, want: Victim) -> Result<()> {
        let is_root = self.kernel.store.dentry(victim).parent.get() == victim;
        let asking = [&mut self.asking(dir), &mut self.asking(victim)];
        self.in_dir(dir, |parent| {
            watched::may_delete(parent, &self.attr(victim), is_root, want, self.cred, asking)
        })?;
        self.ask_hook(dir, MAY_WRITE | MAY_EXEC)
    }

    /// Makes a node and names it in `dir`, where the caller has found that it may. Gives the dentry.
    pub(crate) fn create(&mut self, dir: Handle, name: Name<'_>, node: &NewNode<'_>) -> Result<Handle> {
        if name.bytes().contains(&0) {
            return Err(Errno::EINVAL);
        }
        let dentry = self.make(dir, node, 1)?;
        let subdirs = i64::from(s_isdir(node.mode));
        let (store, dir_inode) = (&self.kernel.store, self.inode(dir));
        let added = store.change_dir(&mut self.ns, dir_inode, self.now, |ns| {
            store.d_add(ns, dentry, dir, name)?;
            adjust_dir(store, dir, 1, subdirs);
            Ok(())
        });
        if let Err(errno) = added {
            store.put_locked(&mut self.ns, dentry);
            self.release_name();
            return Err(errno);
        }
        Ok(dentry)
    }

    /// Makes a node that is not named yet; `nlink` is what a file starts with.
    pub(crate) fn make(&mut self, dir: Handle, node: &NewNode<'_>, nlink: u32) -> Result<Handle> {
        let kernel = self.kernel;
        kernel.watch.may_grow()?;
        let default = kernel.default_acl(self.inode(dir))?;
        let attr = self.attr(dir);
        let dir_gid = kernel.store.inode(self.inode(dir)).gid.get();
        let view = kernel.id_view(self.mnt);
        let place = NewIn { dir: &attr, dir_gid, default_acl: default.as_ref(), view: view.get() };
        let new: NewAttr = setattr::new_attr(&place, self.cred, node.mode, node.umask);
        let kind = node.mode & S_IFMT;
        let (size, blocks) = match kind {
            S_IFDIR => (EMPTY_DIR_SIZE, Some(0)),
            // A body that does not fit into the inode takes a page.
            S_IFLNK => (node.body.len() as u64, (node.body.len() >= SHORT_SYMLINK).then_some(8)),
            _ => (0, None),
        };
        let init = InodeInit {
            mode: new.mode,
            iflags: kernel.store.inode(self.inode(dir)).mode.get() & flags::INHERITED,
            uid: new.uid,
            gid: new.gid,
            nlink: if kind == S_IFDIR { 2 } else { nlink },
            rdev: node.rdev,
            size,
            blocks,
            ino: None,
            sb: kernel.mount(self.mnt).sb.get(),
            times: Times { atime: self.now, mtime: self.now, ctime: self.now, btime: self.now },
            body: node.body,
            access_acl: new.access_acl.as_ref().map(|acl| acl.entries()),
            default_acl: default.as_ref().filter(|_| new.inherits_default).map(|acl| acl.entries()),
        };
        kernel.store.new_inode(&mut self.ns, &init)
    }

    /// Takes `victim` out of `dir`, where the caller has found that it may.
    fn remove(&mut self, dir: Handle, victim: Handle) -> Result<()> {
        let (store, dir_inode, now) = (&self.kernel.store, self.inode(dir), self.now);
        let subdirs = i64::from(self.is_dir(victim));
        store.change_dir(&mut self.ns, dir_inode, now, |ns| {
            store.d_drop(ns, victim);
            adjust_dir(store, dir, -1, -subdirs);
            Ok(())
        })?;
        self.drop_link(victim);
        store.put_locked(&mut self.ns, victim);
        Ok(())
    }

    /// An inode lost a name: a directory its only one.
    fn drop_link(&mut self, dentry: Handle) {
        let (store, inode) = (&self.kernel.store, self.inode(dentry));
        let i = store.inode(inode);
        {
            let _change = store.open_inode(&mut self.ns, inode);
            if i.mode.get() & S_IFMT == S_IFDIR {
                i.nlink.set(0);
                i.mode.set(i.mode.get() | flags::DEAD);
            } else {
                i.nlink.set(i.nlink.get().saturating_sub(1));
            }
            store.touch(&mut self.ns, inode, Touch::C, self.now);
        }
        if store.see(dentry).meta.is_mounted() {
            store.links(dentry).count.get();
            self.uncovered.dentry = Some(dentry);
        }
        let held = store.links(dentry).count.count() > 1 || store.inode_rest(inode).count.get() > 1;
        if i.nlink.get() == 0 && held {
            // It counts until it is freed.
            self.add_nameless(inode);
        } else {
            self.release_name();
        }
    }

    /// The file system has one name less.
    fn release_name(&self) {
        self.kernel.store.release_name(&self.ns, self.kernel.mount(self.mnt).sb.get());
    }

    /// Notes that an inode without a name is held.
    pub(crate) fn add_nameless(&mut self, inode: Handle) {
        let sb = self.kernel.mount(self.mnt).sb.get();
        self.ns.nameless.insert(inode, sb);
    }

    /// Kernel: the `EBUSY` of fs/namei.c `vfs_unlink()` and its like.
    fn not_mounted(&self, dentry: Handle, mnt_ns: u32) -> Result<()> {
        if self.kernel.is_local_mountpoint(&self.ns, dentry, mnt_ns) { Err(Errno::EBUSY) } else { Ok(()) }
    }

    fn touch(&mut self, dentry: Handle, which: Touch) {
        let inode = self.inode(dentry);
        let store = &self.kernel.store;
        let _change = store.open_inode(&mut self.ns, inode);
        store.touch(&mut self.ns, inode, which, self.now);
    }

    fn is_dir(&self, dentry: Handle) -> bool {
        self.kernel.store.see(dentry).meta.is_dir()
    }

    fn is_empty_dir(&self, dentry: Handle) -> bool {
        self.kernel.store.inode_rest(self.inode(dentry)).first_child.get() == 0
    }
}

/// Bodies shorter than this lie in the inode on tmpfs.
pub(crate) const SHORT_SYMLINK: usize = 128;

/// How a call that creates treats what it finds in place of the last component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrailingSlash {
    /// `mkdir`: what is made is a directory.
    Allowed,
    /// Anything else: there is no directory of that name to demand.
    Missing,
}

impl Task {
    /// Walks to where a new name is to be, and runs `make` there under the lock, the name being free.
    ///
    /// Kernel: fs/namei.c `filename_create()`.
    fn filename_create(
        &self,
        dirfd: i32,
        path: &[u8],
        slash: TrailingSlash,
        mut make: impl FnMut(&mut Change<'_>, Path, Name<'_>) -> Result<()>,
    ) -> Result<()> {
        self.with_at(dirfd, |at| {
            self.walker().filename_parentat(at, path, |dir, last| {
                if last.kind != LastType::Norm {
                    return Err(Errno::EEXIST);
                }
                let mut change = Change::look(&self.kernel, &self.cred, dir.mnt);
                if change.lookup(dir.dentry, last.name)?.is_some() {
                    return Err(Errno::EEXIST);
                }
                if last.slash && slash == TrailingSlash::Missing {
                    return Err(Errno::ENOENT);
                }
                change.want_write()?;
                make(&mut change, dir, last.name)
            })
        })
    }

    /// Kernel: fs/namespace.c `mnt_want_write()`.
    pub(crate) fn want_write(&self, path: Path) -> Result<()> {
        self.kernel.want_write(path.mnt)
    }

    /// Creates a directory with permissions `mode & 01777 & ~umask`.
    ///
    /// # Errors
    ///
    /// Those of the walk, `EEXIST`, `EROFS`, `EACCES`, `EPERM` (immutable directory), `ENOSPC`, `EINVAL` (NUL in the
    /// name).
    pub fn mkdir(&self, path: &[u8], mode: u32) -> Result<()> {
        self.mkdirat(AT_FDCWD, path, mode)
    }

    /// [`mkdir`](Self::mkdir) relative to `dirfd`.
    ///
    /// # Errors
    ///
    /// As [`mkdir`](Self::mkdir), and `EBADF`.
    pub fn mkdirat(&self, dirfd: i32, path: &[u8], mode: u32) -> Result<()> {
        let mode = S_IFDIR | mode & (S_IRWXUGO | S_ISVTX);
        let node = NewNode { mode, umask: self.fs.fs.umask(), rdev: 0, body: b"" };
        self.filename_create(dirfd, path, TrailingSlash::Allowed, |change, dir, name| {
            change.may_create(dir.dentry)?;
            change.create(dir.dentry, name, &node).map(drop)
        })
    }

    /// Creates a file of any type but directory and link. `mode` holds the type (0 means regular) and the permissions;
    /// `dev` is the device number, as in `st_rdev`.
    ///
    /// # Errors
    ///
    /// `EPERM` (`S_IFDIR`), `EINVAL` (another type), those of [`mkdir`](Self::mkdir), `ENOENT` (trailing slash), `EPERM`
    /// (a device, without `CAP_MKNOD`).
    pub fn mknod(&self, path: &[u8], mode: u32, dev: u64) -> Result<()> {
        self.mknodat(AT_FDCWD, path, mode, dev)
    }

    /// [`mknod`](Self::mknod) relative to `dirfd`.
    ///
    /// # Errors
    ///
    /// As [`mknod`](Self::mknod), and `EBADF`.
    pub fn mknodat(&self, dirfd: i32, path: &[u8], mode: u32, dev: u64) -> Result<()> {
        let kind = match mode & S_IFMT {
            0 => S_IFREG,
            kind @ (S_IFREG | S_IFCHR | S_IFBLK | S_IFIFO | S_IFSOCK) => kind,
            S_IFDIR => return Err(Errno::EPERM),
            _ => return Err(Errno::EINVAL),
        };
        let device = matches!(kind, S_IFCHR | S_IFBLK);
        let rdev = if device { dev as u32 } else { 0 };
        let node = NewNode { mode: kind | mode & S_IALLUGO, umask: self.fs.fs.umask(), rdev, body: b"" };
        // A whiteout is harmless, and everybody's to make.
        let privileged = device && (kind, rdev) != (S_IFCHR, 0);
        self.filename_create(dirfd, path, TrailingSlash::Missing, |change, dir, name| {
            change.may_create(dir.dentry)?;
            if privileged && !self.cred.capable(CAP_MKNOD) {
                return Err(Errno::EPERM);
            }
            change.create(dir.dentry, name, &node).map(drop)
        })
    }

    /// Creates the link `path` with the body `target`.
    ///
    /// # Errors
    ///
    /// `ENOENT` (empty target), `ENAMETOOLONG` (target over 4095 bytes), those of [`mknod`](Self::mknod).
    pub fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        self.symlinkat(target, AT_FDCWD, path)
    }

    /// [`symlink`](Self::symlink) relative to `dirfd`.
    ///
    /// # Errors
    ///
    /// As [`symlink`](Self::symlink), and `EBADF`.
    pub fn symlinkat(&self, target: &[u8], dirfd: i32, path: &[u8]) -> Result<()> {
        crate::namei::getname::check_name(target, false)?;
        if target.contains(&0) {
            return Err(Errno::EINVAL);
        }
        let node = NewNode { mode: S_IFLNK | S_IRWXUGO, umask: 0, rdev: 0, body: target };
        self.filename_create(dirfd, path, TrailingSlash::Missing, |change, dir, name| {
            change.may_create(dir.dentry)?;
            change.create(dir.dentry, name, &node).map(drop)
        })
    }

    /// Gives the file `old`, of a link the link itself, the further name `new`.
    ///
    /// # Errors
    ///
    /// As [`linkat`](Self::linkat).
    pub fn link(&self, old: &[u8], new: &[u8]) -> Result<()> {
        self.linkat(AT_FDCWD, old, AT_FDCWD, new, 0)
    }

    /// Gives the file `old` the further name `new`. `flags`: `AT_SYMLINK_FOLLOW`, `AT_EMPTY_PATH`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags), those of both walks, `EEXIST`, `EROFS`, `EXDEV`, `EPERM` (a directory, an immutable or append-only
    /// file, another's file under `protected_hardlinks`), `EACCES`, `ENOENT` (a file without a name that was not made for
    /// getting one; an empty path and a descriptor from another credential), `EMLINK`.
    pub fn linkat(
        &self,
        old_dirfd: i32,
        old: &[u8],
        new_dirfd: i32,
        new: &[u8],
        flags: impl Into<AtFlags>,
    ) -> Result<()> {
        self.do_linkat(old_dirfd, old, new_dirfd, new, flags.into().bits())
    }

    fn do_linkat(&self, old_dirfd: i32, old: &[u8], new_dirfd: i32, new: &[u8], flags: i32) -> Result<()> {
        if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
            return Err(Errno::EINVAL);
        }
        let empty = flags & AT_EMPTY_PATH != 0;
        let lookup = Lookup { follow: flags & AT_SYMLINK_FOLLOW != 0, empty, ..Lookup::FOLLOW };
        let from = self.with_at(old_dirfd, |at| {
            crate::namei::getname::check_name(old, empty)?;
            if let At::File(file) = at
                && empty
                && old.first() != Some(&b'/')
                && !Arc::ptr_eq(&file.cred, &self.cred)
                && !self.cred.ns_capable(file.cred.user_ns(), CAP_DAC_READ_SEARCH)
            {
                return Err(Errno::ENOENT);
            }
            self.lookup_held(at, old, lookup, |_| Ok(()))
        })?;
        let store = &self.kernel.store;
        let source = store.d_inode(from.dentry);
        let nameless = store.inode(source).nlink.get() == 0;
        let bytes = if nameless { store.inode_rest(source).blocks.get().saturating_mul(512) } else { 0 };
        let _room = self.kernel.watch.admit_whole(bytes);
        let linked = self.filename_create(new_dirfd, new, TrailingSlash::Missing, |change, dir, name| {
            if dir.mnt != from.mnt {
                return Err(Errno::EXDEV);
            }
            change.link(from.dentry, dir.dentry, name)
        });
        self.kernel.path_put(from);
        linked
    }

    /// Removes the name `path` of something that is no directory.
    ///
    /// # Errors
    ///
    /// Those of the walk, `EISDIR`, `ENOTDIR` (trailing slash), `EROFS`, `EACCES`, `EPERM` (sticky directory, immutable
    /// or append-only).
    pub fn unlink(&self, path: &[u8]) -> Result<()> {
        self.unlinkat(AT_FDCWD, path, 0)
    }

    /// Removes the empty directory `path`.
    ///
    /// # Errors
    ///
    /// Those of the walk, `ENOTDIR`, `ENOTEMPTY` (also for `..`), `EINVAL` (for `.`), `EBUSY` (for `/`), `EROFS`, `EACCES`,
    /// `EPERM`.
    pub fn rmdir(&self, path: &[u8]) -> Result<()> {
        self.unlinkat(AT_FDCWD, path, AT_REMOVEDIR)
    }

    /// [`unlink`](Self::unlink) relative to `dirfd`, or with `AT_REMOVEDIR` [`rmdir`](Self::rmdir).
    ///
    /// # Errors
    ///
    /// As those two, `EINVAL` for other flags, and `EBADF`.
    pub fn unlinkat(&self, dirfd: i32, path: &[u8], flags: impl Into<AtFlags>) -> Result<()> {
        self.do_unlinkat(dirfd, path, flags.into().bits())
    }

    fn do_unlinkat(&self, dirfd: i32, path: &[u8], flags: i32) -> Result<()> {
        if flags & !AT_REMOVEDIR != 0 {
            return Err(Errno::EINVAL);
        }
        self.with_at(dirfd, |at| {
            self.walker().filename_parentat(at, path, |dir, last| {
                if flags & AT_REMOVEDIR != 0 { self.do_rmdir(dir, last) } else { self.do_unlink(dir, last) }
            })
        })
    }

    /// Kernel: fs/namei.c `do_unlinkat()`.
    fn do_unlink(&self, dir: Path, last: Last<'_>) -> Result<()> {
        if last.kind != LastType::Norm {
            return Err(Errno::EISDIR);
        }
        let mut change = Change::new(&self.kernel, &self.cred, dir.mnt)?;
        let victim = change.lookup(dir.dentry, last.name)?.ok_or(Errno::ENOENT)?;
        if last.slash {
            return Err(if change.is_dir(victim) { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        change.may_delete(dir.dentry, victim, Victim::NonDirectory)?;
        change.not_mounted(victim, self.mnt_ns())?;
        change.remove(dir.dentry, victim)
    }

    /// Kernel: fs/namei.c `do_rmdir()`.
    fn do_rmdir(&self, dir: Path, last: Last<'_>) -> Result<()> {
        match last.kind {
            LastType::Norm => {}
            LastType::Dot => return Err(Errno::EINVAL),
            LastType::DotDot => return Err(Errno::ENOTEMPTY),
            LastType::Root => return Err(Errno::EBUSY),
        }
        let mut change = Change::new(&self.kernel, &self.cred, dir.mnt)?;
        let victim = change.lookup(dir.dentry, last.name)?.ok_or(Errno::ENOENT)?;
        change.may_delete(dir.dentry, victim, Victim::Directory)?;
        change.not_mounted(victim, self.mnt_ns())?;
        if !change.is_empty_dir(victim) {
            return Err(Errno::ENOTEMPTY);
        }
        change.remove(dir.dentry, victim)
    }

    /// Moves `old` to `new`, replacing what is there.
    ///
    /// # Errors
    ///
    /// As [`renameat2`](Self::renameat2).
    pub fn rename(&self, old: &[u8], new: &[u8]) -> Result<()> {
        self.renameat2(AT_FDCWD, old, AT_FDCWD, new, 0)
    }

    /// Moves `old` to `new`. `flags`: `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags; a directory into itself), those of both walks, `EXDEV`, `EBUSY` (`.`, `..`, `/`), `EROFS`, `EEXIST`,
    /// `ENOTDIR`, `EISDIR`, `ENOTEMPTY`, `EACCES`, `EPERM`, `ENOSPC`.
    pub fn renameat2(
        &self,
        old_dirfd: i32,
        old: &[u8],
        new_dirfd: i32,
        new: &[u8],
        flags: impl Into<RenameFlags>,
    ) -> Result<()> {
        self.do_renameat2([old_dirfd, new_dirfd], old, new, flags.into().bits())
    }

    /// The two descriptors are those that the paths start at.
    fn do_renameat2(
        &self,
        [old_dirfd, new_dirfd]: [i32; 2],
        old: &[u8],
        new: &[u8],
        flags: u32,
    ) -> Result<()> {
        const KNOWN: u32 = RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT;
        let exchange = flags & RENAME_EXCHANGE != 0;
        if flags & !KNOWN != 0 || exchange && flags & (RENAME_NOREPLACE | RENAME_WHITEOUT) != 0 {
            return Err(Errno::EINVAL);
        }
        self.with_at(old_dirfd, |old_at| {
            self.walker().filename_parentat(old_at, old, |old_dir, old_last| {
                self.with_at(new_dirfd, |new_at| {
                    self.walker().filename_parentat(new_at, new, |new_dir, new_last| {
                        self.do_rename(
                            Place { dir: old_dir, last: old_last },
                            Place { dir: new_dir, last: new_last },
                            flags,
                        )
                    })
                })
            })
        })
    }

    /// Kernel: fs/namei.c `do_renameat2()`.
    fn do_rename(&self, old: Place<'_>, new: Place<'_>, flags: u32) -> Result<()> {
        let no_replace = flags & RENAME_NOREPLACE != 0;
        if old.dir.mnt != new.dir.mnt {
            return Err(Errno::EXDEV);
        }
        if old.last.kind != LastType::Norm {
            return Err(Errno::EBUSY);
        }
        if new.last.kind != LastType::Norm {
            return Err(if no_replace { Errno::EEXIST } else { Errno::EBUSY });
        }
        let mut change = Change::new(&self.kernel, &self.cred, old.dir.mnt)?;
        let mut source = change.lookup(old.dir.dentry, old.last.name)?.ok_or(Errno::ENOENT)?;
        let mut target = change.lookup(new.dir.dentry, new.last.name)?;
        let mut traps = [None, None];
        if [Some(source), target].into_iter().flatten().any(|dentry| change.is_dir(dentry)) {
            drop(change);
            (change, traps) = self.lock_rename(old.dir, new.dir)?;
            source = change.find(old).ok_or(Errno::ENOENT)?;
            target = change.find(new);
        }
        let exchange = flags & RENAME_EXCHANGE != 0;
        match target {
            Some(_) if no_replace => return Err(Errno::EEXIST),
            None if exchange => return Err(Errno::ENOENT),
            Some(target) if exchange && new.last.slash && !change.is_dir(target) => {
                return Err(Errno::ENOTDIR);
            }
            _ => {}
        }
        if !change.is_dir(source) && (old.last.slash || !exchange && new.last.slash) {
            return Err(Errno::ENOTDIR);
        }
        if traps[0] == Some(source) {
            return Err(Errno::EINVAL);
        }
        if target.is_some() && traps[1] == target {
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        change.rename(Move { old, source, new, target, flags }, self.mnt_ns())
    }

    /// Takes the locks to rename a directory. Gives with them the entry of `old` that `new` is or lies below, which is not to be renamed,
    /// and that of `new` that `old` is or lies below, which is not to be replaced. Whatever their depth, only who renames directories
    /// waits meanwhile.
    ///
    /// Kernel: fs/namei.c `lock_rename()`.
    fn lock_rename(&self, old: Path, new: Path) -> Result<(Change<'_>, [Option<Handle>; 2])> {
        let store = &self.kernel.store;
        let moves = store.lock_moves();
        let ancestor = |dir: Path, above: Path| {
            if old == new { None } else { store.ancestor(&moves, dir.dentry, above.dentry) }
        };
        let traps = [ancestor(new, old), ancestor(old, new)];
        let change = Change::new(&self.kernel, &self.cred, old.mnt)?;
        Ok((Change { _moves: Some(moves), ..change }, traps))
    }
}

/// One of the two paths of a rename.
#[derive(Clone, Copy)]
struct Place<'a> {
    dir: Path,
    last: Last<'a>,
}

/// A rename whose paths make sense.
#[derive(Clone, Copy)]
struct Move<'a> {
    old: Place<'a>,
    source: Handle,
    new: Place<'a>,
    target: Option<Handle>,
    flags: u32,
}

impl Change<'_> {
    fn find(&self, place: Place<'_>) -> Option<Handle> {
        self.kernel.store.d_lookup(&self.ns, place.dir.dentry, place.last.name)
    }

    /// Kernel: fs/namei.c `vfs_link()`.
    fn link(&mut self, old: Handle, dir: Handle, name: Name<'_>) -> Result<()> {
        let (kernel, attr) = (self.kernel, self.attr(old));
        let (acl, rdonly) = (self.acl(old), kernel.sb_rdonly(self.mnt));
        let asking = &mut self.asking(old);
        watched::may_linkat(kernel.protected(), rdonly, &attr, &acl, self.cred, asking)?;
        self.may_create(dir)?;
        if attr.iflags & (perm::IFLAG_APPEND | perm::IFLAG_IMMUTABLE) != 0 || s_isdir(attr.mode) {
            return Err(Errno::EPERM);
        }
        if name.bytes().contains(&0) {
            return Err(Errno::EINVAL);
        }
        let (store, inode, dir_inode, now) = (&kernel.store, self.inode(old), self.inode(dir), self.now);
        let i: &Inode = store.inode(inode);
        if i.nlink.get() == 0 && i.mode.get() & flags::LINKABLE == 0 {
            return Err(Errno::ENOENT);
        }
        if i.nlink.get() == u32::MAX {
            return Err(Errno::EMLINK);
        }
        kernel.watch.may_grow()?;
        let sb = kernel.mount(self.mnt).sb.get();
        // A file that has no name is counted already.
        let counts = i.nlink.get() != 0;
        if counts {
            store.charge_name(&self.ns, sb)?;
        }
        let uncharge = |ns: &NsGuard<'_>| {
            if counts {
                store.release_name(ns, sb);
            }
        };
        let dentry = store.new_dentry(&mut self.ns, inode).inspect_err(|_| uncharge(&self.ns))?;
        let added = store.change_dir(&mut self.ns, dir_inode, now, |ns| {
            store.d_add(ns, dentry, dir, name)?;
            adjust_dir(store, dir, 1, 0);
            Ok(())
        });
        if let Err(errno) = added {
            store.put_locked(&mut self.ns, dentry);
            uncharge(&self.ns);
            return Err(errno);
        }
        let _change = store.open_inode(&mut self.ns, inode);
        i.nlink.set(i.nlink.get() + 1);
        self.ns.nameless.remove(&inode);
        i.mode.set(i.mode.get() & !flags::LINKABLE);
        store.touch(&mut self.ns, inode, Touch::C, now);
        Ok(())
    }

    /// Kernel: fs/namei.c `vfs_rename()`.
    fn rename(&mut self, m: Move<'_>, mnt_ns: u32) -> Result<()> {
        let (old_dir, new_dir) = (m.old.dir.dentry, m.new.dir.dentry);
        let exchange = m.flags & RENAME_EXCHANGE != 0;
        if m.target.is_some_and(|target| self.inode(target) == self.inode(m.source)) {
            return Ok(());
        }
        let victim = |is_dir: bool| if is_dir { Victim::Directory } else { Victim::NonDirectory };
        let source_is_dir = self.is_dir(m.source);
        self.may_delete(old_dir, m.source, victim(source_is_dir))?;
        match m.target {
            None => self.may_create(new_dir)?,
            Some(target) => {
                let want = victim(if exchange { self.is_dir(target) } else { source_is_dir });
                self.may_delete(new_dir, target, want)?;
            }
        }
        if old_dir != new_dir {
            // A directory that changes its parent has its `..` rewritten.
            for dir in [Some(m.source), m.target.filter(|_| exchange)].into_iter().flatten() {
                if self.is_dir(dir) {
                    self.may_write(dir)?;
                }
            }
        }
        if m.new.last.name.bytes().contains(&0) {
            return Err(Errno::EINVAL);
        }
        for dentry in [Some(m.source), m.target].into_iter().flatten() {
            self.not_mounted(dentry, mnt_ns)?;
        }
        match m.target {
            Some(target) if exchange => self.exchange(&m, target),
            Some(target) if self.is_dir(target) && !self.is_empty_dir(target) => Err(Errno::ENOTEMPTY),
            _ => self.replace(&m),
        }
    }

    fn may_write(&self, dentry: Handle) -> Result<()> {
        let (attr, acl) = (self.attr(dentry), self.acl(dentry));
        let asking = &mut self.asking(dentry);
        watched::inode_permission(
            self.kernel.sb_rdonly(self.mnt),
            &attr,
            &acl,
            self.cred,
            MAY_WRITE,
            asking,
        )?;
        self.ask_hook(dentry, MAY_WRITE)
    }

    /// Runs `change` with the entries of both directories open, and stamps both.
    fn change_dirs<R>(
        &mut self,
        old_dir: Handle,
        new_dir: Handle,
        change: impl FnOnce(&mut Namespace) -> Result<R>,
    ) -> Result<R> {
        let (store, now) = (&self.kernel.store, self.now);
        let (old_inode, new_inode) = (self.inode(old_dir), self.inode(new_dir));
        store.change_dir(&mut self.ns, old_inode, now, |ns| {
            if old_inode == new_inode { change(ns) } else { store.change_dir(ns, new_inode, now, change) }
        })
    }

    /// Moves the source to its new name, over the target if there is one.
    fn replace(&mut self, m: &Move<'_>) -> Result<()> {
        let (store, source, new_dir) = (&self.kernel.store, m.source, m.new.dir.dentry);
        // It gets its offset before the whiteout gets one, even if the whiteout fails.
        let offset = match m.target {
            Some(target) => store.dentry_offset(target),
            None => store.next_offset(&self.ns, self.inode(new_dir))?,
        };
        let whiteout = if m.flags & RENAME_WHITEOUT != 0 {
            let node = NewNode { mode: S_IFCHR, umask: 0, rdev: 0, body: b"" };
            Some(self.make(m.old.dir.dentry, &node, 1)?)
        } else {
            None
        };
        let source_dirs = i64::from(self.is_dir(source));
        let target_dirs = i64::from(m.target.is_some_and(|target| self.is_dir(target)));
        let old_dir = m.old.dir.dentry;
        let moved = self.change_dirs(old_dir, new_dir, |ns| {
            // What can fail comes first. For a moment two dentries have one name: a walker finds either.
            if let Some(whiteout) = whiteout {
                store.d_add(ns, whiteout, old_dir, m.old.last.name)?;
            }
            if let Err(errno) = store.d_move(ns, source, new_dir, m.new.last.name, offset, m.target) {
                whiteout.iter().for_each(|&whiteout| store.d_drop(ns, whiteout));
                return Err(errno);
            }
            if let Some(target) = m.target {
                store.d_drop(ns, target);
            }
            adjust_dir(store, old_dir, i64::from(whiteout.is_some()) - 1, -source_dirs);
            adjust_dir(store, new_dir, i64::from(m.target.is_none()), source_dirs - target_dirs);
            Ok(())
        });
        if let Err(errno) = moved {
            if let Some(whiteout) = whiteout {
                store.put_locked(&mut self.ns, whiteout);
                self.release_name();
            }
            return Err(errno);
        }
        self.touch(source, Touch::C);
        if let Some(target) = m.target {
            self.drop_link(target);
            store.put_locked(&mut self.ns, target);
        }
        Ok(())
    }

    /// Swaps the two names.
    fn exchange(&mut self, m: &Move<'_>, target: Handle) -> Result<()> {
        let (store, source) = (&self.kernel.store, m.source);
        let (old_dir, new_dir) = (m.old.dir.dentry, m.new.dir.dentry);
        let more_dirs = i64::from(self.is_dir(source)) - i64::from(self.is_dir(target));
        self.change_dirs(old_dir, new_dir, |ns| {
            store.d_exchange(ns, source, target)?;
            adjust_dir(store, old_dir, 0, -more_dirs);
            adjust_dir(store, new_dir, 0, more_dirs);
            Ok(())
        })?;
        self.touch(source, Touch::C);
        self.touch(target, Touch::C);
        Ok(())
    }
}

/// Adds to the size and link count of a directory whose entries are open.
fn adjust_dir(store: &Store, dir: Handle, entries: i64, subdirs: i64) {
    let d = store.inode(store.d_inode(dir));
    d.size.set(d.size.get().saturating_add_signed(entries * DIRENT_SIZE as i64));
    d.nlink.set(d.nlink.get().saturating_add_signed(subdirs as i32));
}
