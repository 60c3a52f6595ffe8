//! Descriptor tables, and roots with current directories, with the references that they hold and give back.

use crate::base::errno::Result;
use crate::dcache::store::Namespace;
use crate::file::fs_struct::{FsStruct, Place};
use crate::file::{Closing, FileArc, Files, TABLE_BYTES};
use crate::kernel::Kernel;
use crate::kernel::mount_tree::MntNamespace;
use crate::mount::Path;
use rcuwalk_sync::lock::{Mutex, PoisonError};
use rcuwalk_sync::{Beyond, Charge, Racy64};
use std::sync::{Arc, Weak};

/// An [`FsStruct`] with the references it holds.
#[derive(Debug)]
pub(crate) struct FsOwner {
    kernel: Arc<Kernel>,
    pub(crate) fs: FsStruct,
    /// Who shares root and current directory shares the mounts they are in.
    pub(crate) mnt_ns: Arc<MntNamespace>,
    /// The number of the process of each task that uses it. Kernel: `fs_struct.users`.
    users: Mutex<Vec<i32>>,
}

impl Drop for FsOwner {
    fn drop(&mut self) {
        for place in [Place::Root, Place::Pwd] {
            self.kernel.path_put(self.fs.peek(place));
        }
    }
}

impl FsOwner {
    /// At the root of the first mount.
    pub(crate) fn new(kernel: &Arc<Kernel>, umask: u32) -> Arc<FsOwner> {
        let root = kernel.root();
        kernel.path_get(root);
        kernel.path_get(root);
        FsOwner::holding(kernel, [root, root], umask, MntNamespace::init(kernel))
    }

    /// At `root` and `pwd`, whose references pass to the new owner.
    pub(crate) fn holding(
        kernel: &Arc<Kernel>,
        [root, pwd]: [Path; 2],
        umask: u32,
        mnt_ns: Arc<MntNamespace>,
    ) -> Arc<FsOwner> {
        let fs = FsStruct::new(root, pwd, umask);
        let owner = Arc::new(FsOwner { kernel: Arc::clone(kernel), fs, mnt_ns, users: Mutex::default() });
        kernel.fs_owners.add(&owner);
        owner
    }

    fn users(&self) -> rcuwalk_sync::lock::MutexGuard<'_, Vec<i32>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The use that one task makes of an [`FsOwner`].
#[derive(Debug)]
pub(crate) struct FsUse {
    pub(crate) owner: Arc<FsOwner>,
    tgid: i32,
}

impl FsUse {
    pub(crate) fn new(owner: Arc<FsOwner>, tgid: i32) -> FsUse {
        owner.users().push(tgid);
        FsUse { owner, tgid }
    }

    /// Whether no other task uses it.
    pub(crate) fn is_sole(&self) -> bool {
        self.owner.users().len() == 1
    }

    /// Whether a task of another process uses it, too. Kernel: fs/exec.c `check_unsafe_exec()`.
    pub(crate) fn is_shared_with_others(&self) -> bool {
        self.owner.users().iter().any(|&tgid| tgid != self.tgid)
    }
}

impl std::ops::Deref for FsUse {
    type Target = FsOwner;

    #[inline(always)]
    fn deref(&self) -> &FsOwner {
        &self.owner
    }
}

impl Drop for FsUse {
    fn drop(&mut self) {
        let mut users = self.owner.users();
        if let Some(at) = users.iter().position(|&tgid| tgid == self.tgid) {
            users.swap_remove(at);
        }
    }
}

/// Everything of a kind that the tasks of a [`Kernel`] share, for those who look at all of it.
#[derive(Debug)]
pub(crate) struct Registry<T>(Mutex<Vec<Weak<T>>>);

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Registry(Mutex::default())
    }
}

impl<T> Registry<T> {
    fn list(&self) -> rcuwalk_sync::lock::MutexGuard<'_, Vec<Weak<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, owner: &Arc<T>) {
        let mut list = self.list();
        if list.len() == list.capacity() {
            // Before it would grow: that keeps it within twice what there is.
            list.retain(|owner| owner.strong_count() != 0);
            let live = list.len();
            list.reserve(live + 8);
        }
        list.push(Arc::downgrade(owner));
    }

    /// Those that are in use. They must not be dropped under the lock of the name space, which their own drop takes.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.list().iter().filter_map(Weak::upgrade).collect()
    }
}

impl Kernel {
    /// Moves each process whose root or current directory is `from` to `to`. Kernel: fs/fs_struct.c `chroot_fs_refs()`.
    pub(crate) fn chroot_fs_refs(&self, ns: &mut Namespace, owners: &[Arc<FsOwner>], from: Path, to: Path) {
        for owner in owners {
            for place in [Place::Root, Place::Pwd] {
                self.path_get(to);
                let unused = if owner.fs.replace_if(place, from, to) { from } else { to };
                self.path_put_locked(ns, unused);
            }
        }
    }
}

/// A [`Files`] with the references it holds.
#[derive(Debug)]
pub(crate) struct FilesOwner {
    kernel: Arc<Kernel>,
    pub(crate) table: Files,
    /// By which number its POSIX locks are known; 0 while it never had any.
    pub(crate) lock_owner: Racy64,
    _charge: Charge,
}

impl Drop for FilesOwner {
    fn drop(&mut self) {
        self.table.drain().into_iter().for_each(|file| self.filp_close(file));
    }
}

impl FilesOwner {
    /// An empty table, which counts as memory without a limit.
    pub(crate) fn new(kernel: &Arc<Kernel>) -> Arc<FilesOwner> {
        let charge = Charge::with(kernel.memory.as_ref(), TABLE_BYTES, Beyond::Counted);
        FilesOwner::with(kernel, Files::new(kernel.memory.clone()), charge.unwrap_or_default())
    }

    /// A table of the same open files.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, unless it is counted anyway.
    pub(crate) fn duplicate(&self, beyond: Beyond) -> Result<Arc<FilesOwner>> {
        let charge = Charge::with(self.kernel.memory.as_ref(), TABLE_BYTES, beyond)?;
        Ok(FilesOwner::with(&self.kernel, self.table.duplicate(beyond)?, charge))
    }

    fn with(kernel: &Arc<Kernel>, table: Files, charge: Charge) -> Arc<FilesOwner> {
        let kernel = Arc::clone(kernel);
        let owner = Arc::new(FilesOwner { kernel, table, lock_owner: Racy64::new(0), _charge: charge });
        owner.kernel.files_owners.add(&owner);
        owner
    }

    /// Closes `fd`. Kernel: fs/open.c `close()`.
    ///
    /// # Errors
    ///
    /// `EBADF`.
    #[inline]
    pub(crate) fn close(&self, fd: i32) -> Result<()> {
        let last = |file: Closing| {
            self.kernel.locks.remove_posix(file.inode, file.mode, self.lock_owner.get());
            self.kernel.release(file);
        };
        self.table.remove(fd, last, |file| self.filp_close(file))
    }

    /// Gives back a file that was taken out of the table. Kernel: fs/open.c `filp_close()`.
    #[inline]
    pub(crate) fn filp_close(&self, file: FileArc) {
        self.kernel.locks.remove_posix(file.inode, file.mode, self.lock_owner.get());
        self.kernel.fput(file);
    }
}

/// A file borrowed from a table for one call.
pub(crate) struct FileRef<'a> {
    kernel: &'a Kernel,
    file: Option<FileArc>,
}

impl<'a> FileRef<'a> {
    pub(crate) fn new(kernel: &'a Kernel, file: FileArc) -> Self {
        FileRef { kernel, file: Some(file) }
    }
}

impl std::ops::Deref for FileRef<'_> {
    type Target = FileArc;

    fn deref(&self) -> &FileArc {
        match &self.file {
            Some(file) => file,
            None => unreachable!("taken only by drop"),
        }
    }
}

impl Drop for FileRef<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.kernel.fput(file);
        }
    }
}
