//! Objects by handle: name_to_handle_at, open_by_handle_at.
//!
//! Kernel: fs/fhandle.c, fs/exportfs/expfs.c, mm/shmem.c `shmem_encode_fh()`, `shmem_fh_to_dentry()`.

use crate::base::errno::{Errno, Result};
use crate::base::flags::{HandleFlags, OFlags};
use crate::base::uapi::*;
use crate::cred::Cred;
use crate::dcache::store::Namespace;
use crate::file::fs_struct::Place;
use crate::kernel::Kernel;
use crate::kernel::mount_tree::is_anonymous;
use crate::mount::Path;
use crate::namei::Lookup;
use crate::task::Task;
use rcuwalk_sync::Handle;

/// The most bytes that a handle of any file system has. Kernel: `MAX_HANDLE_SZ`.
pub(crate) const MAX_HANDLE_SZ: usize = 128;

/// The type of handle that tmpfs gives; of a handle that it is given it looks at the bytes alone.
pub(crate) const SHMEM_FID: i32 = 1;

/// In the type of a handle: it was to be connectable. Kernel: `FILEID_IS_CONNECTABLE`.
const FILEID_IS_CONNECTABLE: i32 = 0x1_0000;
/// In the type of a handle: it is of a directory. Kernel: `FILEID_IS_DIR`.
const FILEID_IS_DIR: i32 = 0x2_0000;
const FILEID_USER_FLAGS_MASK: i32 = !0xffff;

/// What stands for an object of a file system for as long as there is one, whatever its names. Kernel: `struct file_handle`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct FileHandle {
    /// The type: 1.
    pub kind: i32,
    /// Which object: 12 bytes, which mean nothing to anybody else.
    pub bytes: Vec<u8>,
}

impl FileHandle {
    /// A handle of this type with these bytes, as it was kept or comes from elsewhere.
    pub fn new(kind: i32, bytes: Vec<u8>) -> FileHandle {
        FileHandle { kind, bytes }
    }

    /// The slot and the number of an inode, if there are as many bytes.
    fn parts(&self) -> Option<(Handle, u64)> {
        let ([slot, low, high, ..], _) = self.bytes.as_chunks::<4>() else { return None };
        let [slot, low, high] = [slot, low, high].map(|word| u32::from_ne_bytes(*word));
        Some((slot, u64::from(low) | u64::from(high) << 32))
    }
}

/// What the caller of open_by_handle_at may reach. Kernel: `struct handle_to_path_ctx`.
#[derive(Debug, Clone, Copy)]
struct Reach {
    /// The ids of the object, and of all above it, must be mapped.
    mapped: bool,
    /// It must lie below the anchor.
    below: bool,
    directory: bool,
}

impl Kernel {
    /// Lets an inode be found by handle, for as long as there is one.
    fn export(&self, ns: &mut Namespace, place: Path) -> FileHandle {
        let inode = self.store.d_inode(place.dentry);
        ns.exported.insert(inode, self.mount(place.mnt).dev.get());
        let ino = self.store.inode(inode).ino.get();
        let words = [inode, ino as u32, (ino >> 32) as u32];
        FileHandle::new(SHMEM_FID, words.map(u32::to_ne_bytes).as_flattened().to_vec())
    }

    /// A dentry of the inode that a handle stands for, held. One that has lost the name it was made with gets a dentry without
    /// any, as a file server's would in the kernel.
    fn fh_to_dentry(&self, ns: &mut Namespace, dev: u64, handle: &FileHandle) -> Result<Handle> {
        let (inode, ino) = handle.parts().ok_or(Errno::ESTALE)?;
        let store = &self.store;
        if ns.exported.get(&inode) != Some(&dev) || store.inode(inode).ino.get() != ino {
            return Err(Errno::ESTALE);
        }
        let rest = store.inode_rest(inode);
        let is_dir = s_isdir(store.inode(inode).attr().mode);
        let alias = if is_dir { rest.alias.get() } else { inode };
        if store.see(alias).meta.is_live()
            && store.d_inode(alias) == inode
            && store.links(alias).count.get_not_zero()
        {
            return Ok(alias);
        }
        // The last dentry may be about to go.
        if is_dir || rest.count.get() == 0 { Err(Errno::ESTALE) } else { store.new_dentry(ns, inode) }
    }
}

impl Task {
    /// A handle for the object at `path`, and the number of the mount. `flags`: `AT_SYMLINK_FOLLOW`, `AT_EMPTY_PATH`, `AT_HANDLE_FID`
    /// (the handle need not lead back, which makes no difference here), `AT_HANDLE_MNT_ID_UNIQUE` (the number is the one that
    /// is never used again, as statx(2) gives it with `STATX_MNT_ID_UNIQUE`).
    ///
    /// # Errors
    ///
    /// In this order: `EINVAL` (flags; `AT_HANDLE_CONNECTABLE` with `AT_HANDLE_FID` or `AT_EMPTY_PATH`); those of the walk, `EBADF`;
    /// `EOPNOTSUPP` (`AT_HANDLE_CONNECTABLE`, which tmpfs does not have; a file of `/proc`).
    ///
    /// Kernel: fs/fhandle.c `name_to_handle_at()`.  Differs: there are no handles of namespaces; and where tmpfs has a random
    /// number in a handle, there is the place of the inode in the table.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Errno, Vfs, uapi::*};
    /// # let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// root.close(root.creat(b"/f", 0o600)?)?;
    /// let (handle, _) = root.name_to_handle_at(AT_FDCWD, b"/f", 0)?;
    /// root.rename(b"/f", b"/g")?;
    /// let anchor = root.open(b"/", O_RDONLY, 0)?;
    /// let fd = root.open_by_handle_at(anchor, &handle, O_RDWR)?;
    /// assert_eq!(root.write(fd, b"hello"), Ok(5));
    /// root.close(fd)?;
    /// root.unlink(b"/g")?;
    /// assert_eq!(root.open_by_handle_at(anchor, &handle, O_RDWR), Err(Errno::ESTALE));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn name_to_handle_at(
        &self,
        dirfd: i32,
        path: &[u8],
        flags: impl Into<HandleFlags>,
    ) -> Result<(FileHandle, u64)> {
        let flags = flags.into().bits();
        const KNOWN: i32 = AT_SYMLINK_FOLLOW
            | AT_EMPTY_PATH
            | AT_HANDLE_FID
            | AT_HANDLE_MNT_ID_UNIQUE
            | AT_HANDLE_CONNECTABLE;
        let connectable = flags & AT_HANDLE_CONNECTABLE != 0;
        if flags & !KNOWN != 0 || connectable && flags & (AT_HANDLE_FID | AT_EMPTY_PATH) != 0 {
            return Err(Errno::EINVAL);
        }
        let (follow, empty) = (flags & AT_SYMLINK_FOLLOW != 0, flags & AT_EMPTY_PATH != 0);
        let lookup = Lookup { follow, empty, ..Lookup::FOLLOW };
        let place = self.with_at(dirfd, |at| self.lookup_held(at, path, lookup, |_| Ok(())))?;
        let kernel = &*self.kernel;
        let result = if connectable || path.is_empty() && self.is_node(dirfd) {
            Err(Errno::EOPNOTSUPP)
        } else {
            let unique = flags & AT_HANDLE_MNT_ID_UNIQUE != 0;
            let id = if unique { kernel.mount(place.mnt).id.get() } else { u64::from(place.mnt) };
            Ok((kernel.export(&mut kernel.store.lock(), place), id))
        };
        kernel.path_put(place);
        result
    }

    /// Opens the object that a handle stands for, with the flags of [`open`](Self::open). The mount of the descriptor `mount_fd`,
    /// or of the current directory for `AT_FDCWD`, is the one it is opened through.
    ///
    /// Without `CAP_DAC_READ_SEARCH` over the initial user namespace only directories can be opened, with `O_DIRECTORY`, and only by
    /// a task with that capability in its own user namespace and `CAP_SYS_ADMIN` over that of the file system, or over that of
    /// the mount namespace if the directory lies below `mount_fd`.
    ///
    /// # Errors
    ///
    /// In this order: `EINVAL` (no bytes or more than 128; a type with unknown flags); `EBADF` (also for `O_PATH`); `EPERM`; `ESTALE`
    /// (no such object on this file system; one that may not be reached); `EMFILE`, then as [`open`](Self::open), but those of the
    /// walk.
    ///
    /// Kernel: fs/fhandle.c `open_by_handle_at()`.
    pub fn open_by_handle_at(
        &self,
        mount_fd: i32,
        handle: &FileHandle,
        flags: impl Into<OFlags>,
    ) -> Result<i32> {
        let flags = flags.into().bits();
        let (anchor, reach) = self.may_decode(mount_fd, handle.kind, handle.bytes.len(), flags)?;
        let opened = self.handle_to_path(anchor, reach, handle).and_then(|path| self.open_place(path, flags));
        self.kernel.path_put(anchor);
        opened
    }

    /// What can be said of a handle by its type and size, and of the caller that has it, before its bytes are looked at.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `EBADF`, `EPERM`.
    pub(crate) fn check_handle(&self, mount_fd: i32, kind: i32, len: usize, flags: i32) -> Result<()> {
        self.may_decode(mount_fd, kind, len, flags).map(|(anchor, _)| self.kernel.path_put(anchor))
    }

    /// The anchor, held, and what the task may reach from there. Kernel: fs/fhandle.c `handle_to_path()`.
    fn may_decode(&self, mount_fd: i32, kind: i32, len: usize, open_flags: i32) -> Result<(Path, Reach)> {
        let user_flags = kind & FILEID_USER_FLAGS_MASK;
        if len == 0
            || len > MAX_HANDLE_SZ
            || kind < 0
            || user_flags & !(FILEID_IS_CONNECTABLE | FILEID_IS_DIR) != 0
        {
            return Err(Errno::EINVAL);
        }
        let anchor = match mount_fd {
            AT_FDCWD => self.hold(Place::Pwd),
            fd => {
                let file = self.file(fd)?;
                self.kernel.path_get(file.path);
                file.path
            }
        };
        let reach = self.may_decode_fh(anchor, open_flags).inspect_err(|_| self.kernel.path_put(anchor))?;
        Ok((
            anchor,
            Reach {
                below: reach.below || kind & FILEID_IS_CONNECTABLE != 0,
                directory: reach.directory || kind & FILEID_IS_DIR != 0,
                ..reach
            },
        ))
    }

    /// Kernel: fs/fhandle.c `may_decode_fh()`.
    fn may_decode_fh(&self, anchor: Path, open_flags: i32) -> Result<Reach> {
        if self.cred.capable(CAP_DAC_READ_SEARCH) {
            return Ok(Reach { mapped: false, below: false, directory: false });
        }
        let kernel = &*self.kernel;
        let may_bind = || {
            let mut lock = kernel.lock_mounts();
            let number = kernel.mount(anchor.mnt).ns.get();
            number != 0
                && !is_anonymous(number)
                && lock.mnt.user_ns_of(number).is_some_and(|of| self.cred.ns_capable(of, CAP_SYS_ADMIN))
                && !kernel.has_locked_children(&mut lock, anchor)
        };
        let below = if open_flags & O_DIRECTORY == 0 {
            return Err(Errno::EPERM);
        } else if self.cred.ns_capable(kernel.id_view(anchor.mnt).get().sb_ns, CAP_SYS_ADMIN) {
            false
        } else if may_bind() {
            true
        } else {
            return Err(Errno::EPERM);
        };
        if !self.cred.capable_here(CAP_DAC_READ_SEARCH) {
            return Err(Errno::EPERM);
        }
        Ok(Reach { mapped: true, below, directory: true })
    }

    /// The place that a handle stands for, held. Kernel: fs/fhandle.c `do_handle_to_path()`.
    fn handle_to_path(&self, anchor: Path, reach: Reach, handle: &FileHandle) -> Result<Path> {
        let kernel = &*self.kernel;
        let mut ns = kernel.store.lock();
        let dentry = kernel.fh_to_dentry(&mut ns, kernel.mount(anchor.mnt).dev.get(), handle)?;
        let is_dir = kernel.is_dir(dentry);
        let found = if !is_dir && reach.directory {
            None
        } else if kernel.may_reach(&self.cred, anchor, dentry, reach) {
            kernel.store.links(dentry).count.get();
            Some(dentry)
        } else {
            kernel.other_alias(&ns, &self.cred, anchor, dentry, reach)
        };
        kernel.store.put_locked(&mut ns, dentry);
        let dentry = found.ok_or(Errno::ESTALE)?;
        kernel.mntget(anchor.mnt);
        Ok(Path { mnt: anchor.mnt, dentry })
    }
}

impl Kernel {
    /// Another name of the file at `dentry` that may be reached from the anchor, held. Files do not know their names, so all that
    /// lies below the anchor is gone through: only a handle that says that it is connectable, as none of tmpfs does, leads here.
    ///
    /// Kernel: fs/exportfs/expfs.c `find_acceptable_alias()`.
    fn other_alias(
        &self,
        _: &Namespace,
        cred: &Cred,
        anchor: Path,
        dentry: Handle,
        reach: Reach,
    ) -> Option<Handle> {
        let (store, inode) = (&self.store, self.store.d_inode(dentry));
        let has_others = !self.is_dir(dentry) && self.is_dir(anchor.dentry);
        let mut dirs = if has_others { vec![anchor.dentry] } else { vec![] };
        while let Some(dir) = dirs.pop() {
            for child in store.children(store.d_inode(dir)) {
                if store.d_inode(child) == inode && self.may_reach(cred, anchor, child, reach) {
                    store.links(child).count.get();
                    return Some(child);
                }
                if self.is_dir(child) {
                    dirs.push(child);
                }
            }
        }
        None
    }

    /// Kernel: fs/fhandle.c `vfs_dentry_acceptable()`; the lock is held.
    fn may_reach(&self, cred: &Cred, anchor: Path, dentry: Handle, reach: Reach) -> bool {
        let store = &self.store;
        let is_mapped = |dentry: Handle| {
            let attr = self.attr(anchor.mnt, store.inode(store.d_inode(dentry)));
            !reach.mapped || cred.user_ns().has_uid(attr.uid) && cred.user_ns().has_gid(attr.gid)
        };
        let mut at = dentry;
        let mut mapped = is_mapped(at);
        while mapped && at != anchor.dentry {
            let parent = store.dentry(at).parent.get();
            if parent == at {
                break;
            }
            mapped = is_mapped(parent);
            at = parent;
        }
        mapped && (!reach.below || at == anchor.dentry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Vfs;

    #[test]
    fn a_handle_lasts_as_long_as_its_object() {
        let vfs = Vfs::new().expect("an engine");
        let root = vfs.task(Cred::root());
        let anchor = root.open(b"/", O_RDONLY, 0).expect("opens");
        let handle = |path: &[u8]| root.name_to_handle_at(AT_FDCWD, path, 0).expect("a handle").0;
        let open = |handle: &FileHandle| root.open_by_handle_at(anchor, handle, O_RDONLY);
        root.close(root.creat(b"/a", 0o600).expect("creates")).expect("closes");
        root.link(b"/a", b"/b").expect("links");
        let file = handle(b"/b");
        // The name that the inode was made with goes; the handle leads to it all the same.
        root.unlink(b"/a").expect("unlinks");
        let fd = open(&file).expect("opens");
        assert_eq!(root.fstat(fd).map(|s| s.nlink), Ok(1));
        root.linkat(fd, b"", AT_FDCWD, b"/c", AT_EMPTY_PATH).expect("links");
        root.unlink(b"/b").expect("unlinks");
        root.unlink(b"/c").expect("unlinks");
        // Still open.
        let second = open(&file).expect("opens");
        root.close(fd).expect("closes");
        root.close(second).expect("closes");
        assert_eq!(open(&file), Err(Errno::ESTALE));
        // Its slot is another object's now, for which no handle was given.
        root.mkdir(b"/d", 0o700).expect("makes");
        assert_eq!(open(&file), Err(Errno::ESTALE));
        let dir = handle(b"/d");
        assert_ne!(dir, file);
        let held = root.open(b"/d", O_RDONLY, 0).expect("opens");
        root.rmdir(b"/d").expect("removes");
        root.close(open(&dir).expect("still open")).expect("closes");
        root.close(held).expect("closes");
        assert_eq!(open(&dir), Err(Errno::ESTALE));
        assert!(root.kernel.store.lock().exported.is_empty(), "what is gone is forgotten");
    }

    #[test]
    fn a_handle_is_of_one_file_system() {
        let vfs = Vfs::new().expect("an engine");
        let root = vfs.task(Cred::root());
        root.mkdir(b"/m", 0o755).expect("makes");
        root.mount(b"none", b"/m", b"tmpfs", 0, b"").expect("mounts");
        let (handle, mount) = root.name_to_handle_at(AT_FDCWD, b"/m", 0).expect("a handle");
        let id = |unique| root.name_to_handle_at(AT_FDCWD, b"/m", unique).expect("a handle").1;
        assert_eq!(id(0), mount);
        let stat = root.statx(AT_FDCWD, b"/m", 0, STATX_MNT_ID_UNIQUE).expect("stat");
        assert_eq!(id(AT_HANDLE_MNT_ID_UNIQUE), stat.mnt_id);
        let [above, here] = [b"/".as_slice(), b"/m"].map(|path| root.open(path, O_RDONLY, 0).expect("opens"));
        assert_eq!(root.open_by_handle_at(above, &handle, O_RDONLY), Err(Errno::ESTALE));
        assert!(root.open_by_handle_at(here, &handle, O_RDONLY).is_ok());
        let guess = FileHandle::new(handle.kind, [&handle.bytes[..4], &[9; 8]].concat());
        assert_eq!(root.open_by_handle_at(here, &guess, O_RDONLY), Err(Errno::ESTALE));
    }
}
