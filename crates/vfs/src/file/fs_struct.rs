//! Root, current directory and umask of a process.
//!
//! Kernel: include/linux/fs_struct.h. Threads that were cloned with `CLONE_FS` share one; a walker reads it without a
//! lock, under its sequence count.

use crate::mount::Path;
use rcuwalk_sync::lock::{Mutex, PoisonError};
use rcuwalk_sync::{Racy32, SeqCount};

/// See the module. Holds a reference to each of its two dentries.
#[derive(Debug, Default)]
pub(crate) struct FsStruct {
    seq: SeqCount,
    /// Excludes writers of the count.
    change: Mutex<()>,
    umask: Racy32,
    root: PathWords,
    pwd: PathWords,
}

#[derive(Debug, Default)]
struct PathWords {
    mnt: Racy32,
    dentry: Racy32,
}

impl PathWords {
    #[inline(always)]
    fn get(&self) -> Path {
        Path { mnt: self.mnt.get(), dentry: self.dentry.get() }
    }

    fn set(&self, path: Path) {
        self.mnt.set(path.mnt);
        self.dentry.set(path.dentry);
    }
}

/// Which of the two places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Root,
    Pwd,
}

impl FsStruct {
    /// A process that stands at `root`; the caller gives it two references to that dentry.
    pub(crate) fn new(root: Path, pwd: Path, umask: u32) -> FsStruct {
        let fs = FsStruct::default();
        fs.umask.set(umask);
        fs.root.set(root);
        fs.pwd.set(pwd);
        fs
    }

    fn words(&self, place: Place) -> &PathWords {
        match place {
            Place::Root => &self.root,
            Place::Pwd => &self.pwd,
        }
    }

    /// Starts a lockless read.
    #[inline(always)]
    pub(crate) fn begin(&self) -> u32 {
        self.seq.begin()
    }

    /// Whether root or current directory changed since `start`.
    #[inline(always)]
    pub(crate) fn retry(&self, start: u32) -> bool {
        self.seq.retry(start)
    }

    /// The place as it is now; the caller validates.
    #[inline(always)]
    pub(crate) fn peek(&self, place: Place) -> Path {
        match place {
            Place::Root => self.root.get(),
            Place::Pwd => self.pwd.get(),
        }
    }

    /// Puts `path`, whose reference passes to this process, in place; gives back what was there, with its reference.
    ///
    /// Kernel: fs/fs_struct.c `set_fs_root()`, `set_fs_pwd()`.
    pub(crate) fn replace(&self, place: Place, path: Path) -> Path {
        let _one = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let words = self.words(place);
        let old = words.get();
        let _change = self.seq.write();
        words.set(path);
        old
    }

    /// [`replace`](Self::replace), if `old` is there still.
    pub(crate) fn replace_if(&self, place: Place, old: Path, path: Path) -> bool {
        let _one = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let words = self.words(place);
        if words.get() != old {
            return false;
        }
        let _change = self.seq.write();
        words.set(path);
        true
    }

    /// The bits that new files do not get.
    pub(crate) fn umask(&self) -> u32 {
        self.umask.get()
    }

    /// Sets the umask; gives the old one.
    pub(crate) fn set_umask(&self, mask: u32) -> u32 {
        let _one = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.umask.get();
        self.umask.set(mask & 0o777);
        old
    }
}
