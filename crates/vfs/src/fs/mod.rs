//! Files the way [`std::fs`] has them: paths of any type, errors of [`std::io`], files that close themselves.
//!
//! An [`Fs`] is a user at work in a [`Vfs`]. Its methods have the names and the behaviour of the functions in [`std::fs`], and
//! every answer comes from one of the exact calls of [`Task`]. Code that was written against `std::fs` becomes
//! testable when it takes an `&Fs`:
//!
//! ```
//! use rcuwalk::fs::{Fs, Permissions};
//! use rcuwalk::{Cred, Vfs};
//! use std::io::{self, ErrorKind};
//!
//! /// The code under test.
//! fn save_key(fs: &Fs, key: &str) -> io::Result<()> {
//!     fs.create_dir_all("/srv/app")?;
//!     fs.write("/srv/app/key", key)?;
//!     fs.set_permissions("/srv/app/key", Permissions::from_mode(0o600))
//! }
//!
//! let vfs = Vfs::new()?;
//! let root = vfs.fs(Cred::root());
//! let alice = vfs.fs(Cred::user(1000, 1000, &[]));
//!
//! save_key(&root, "secret")?;
//! assert_eq!(alice.metadata("/srv/app/key")?.len(), 6);
//! assert_eq!(alice.read("/srv/app/key").unwrap_err().kind(), ErrorKind::PermissionDenied);
//! assert_eq!(alice.write("/srv/app/other", "").unwrap_err().kind(), ErrorKind::PermissionDenied);
//!
//! root.chown("/srv/app/key", Some(1000), None)?;
//! assert_eq!(alice.read_to_string("/srv/app/key")?, "secret");
//! # io::Result::Ok(())
//! ```
//!
//! What differs from [`std::fs`]:
//!
//! * Nothing here touches the host. Paths start at the root directory of the task, relative ones at its current directory
//!   ([`Task::chdir`]).
//! * Each error carries the error number of the call ([`io::Error::raw_os_error`]). Where `std::fs` refuses bad arguments
//!   before any call, the number is `EINVAL`, whose kind is [`io::ErrorKind::InvalidInput`] too.
//! * No call is interrupted by a signal, so none fails with [`io::ErrorKind::Interrupted`].
//! * New files get mode 0666 and new directories 0777 less the umask of the task, which is 022 at first ([`Task::umask`]).
//!
//! For what std::fs lacks, [`Fs::task`] gives the task and [`File::fd`] the descriptor.

mod dir;
mod file;
mod metadata;
mod tree;

pub use dir::{DirEntry, ReadDir};
pub use file::{File, OpenOptions};
pub use metadata::{FileType, Metadata, Permissions};

use crate::base::errno::{Errno, Result};
use crate::base::uapi::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, INVALID_ID, STATX_BASIC_STATS, STATX_BTIME};
use crate::cred::Cred;
use crate::kernel::vfs::Vfs;
use crate::task::Task;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A user at work in a [`Vfs`]; see the [module](self).
///
/// A clone works as the same task, with the same current directory and umask. Any number of threads may use it.
#[derive(Debug, Clone)]
pub struct Fs(Arc<Task>);

impl Vfs {
    /// A new task with this credential, for calls like those of [`std::fs`].
    ///
    /// ```
    /// # use rcuwalk::{Cred, Vfs};
    /// let vfs = Vfs::new()?;
    /// vfs.fs(Cred::root()).write("/motd", "Welcome.\n")?;
    /// assert_eq!(vfs.fs(Cred::user(1000, 1000, &[])).read_to_string("/motd")?, "Welcome.\n");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn fs(&self, cred: Cred) -> Fs {
        Fs::new(self.task(cred))
    }
}

/// The bytes of a path, as the calls take them. A NUL cannot be in one.
fn bytes(path: &Path) -> Result<&[u8]> {
    let bytes = path.as_os_str().as_bytes();
    if memchr::memchr(0, bytes).is_some() { Err(Errno::EINVAL) } else { Ok(bytes) }
}

/// The path that consists of these bytes.
fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

impl Fs {
    /// The calls of `task`, which may be shared.
    pub fn new(task: impl Into<Arc<Task>>) -> Fs {
        Fs(task.into())
    }

    /// The task that makes the calls, for the calls that [`std::fs`] lacks.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Vfs, uapi::*};
    /// let fs = Vfs::new()?.fs(Cred::root());
    /// fs.write("/f", "")?;
    /// fs.task().setxattr(b"/f", b"user.origin", b"test", XATTR_CREATE)?;
    /// assert_eq!(fs.task().getxattr(b"/f", b"user.origin")?, b"test");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn task(&self) -> &Task {
        &self.0
    }

    /// Opens a file for reading. As [`std::fs::File::open`].
    ///
    /// # Errors
    ///
    /// As [`Task::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.open_with(path, OpenOptions::new().read(true))
    }

    /// Opens a file for writing; makes it, or empties it. As [`std::fs::File::create`].
    ///
    /// # Errors
    ///
    /// As [`Task::open`].
    pub fn create(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.open_with(path, OpenOptions::new().write(true).create(true).truncate(true))
    }

    /// Makes a file that must not be there yet, and opens it for reading and writing. As [`std::fs::File::create_new`].
    ///
    /// # Errors
    ///
    /// As [`Task::open`]; `EEXIST`.
    pub fn create_new(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.open_with(path, OpenOptions::new().read(true).write(true).create_new(true))
    }

    /// Opens a file the way `options` say. As [`std::fs::OpenOptions::open`].
    ///
    /// ```
    /// # use rcuwalk::{Cred, Vfs, fs::OpenOptions};
    /// # use std::io::Write;
    /// # let vfs = Vfs::new()?;
    /// let fs = vfs.fs(Cred::root());
    /// for line in ["one", "two"] {
    ///     writeln!(fs.open_with("/log", OpenOptions::new().append(true).create(true))?, "{line}")?;
    /// }
    /// assert_eq!(fs.read_to_string("/log")?, "one\ntwo\n");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `EINVAL` if the options contradict each other; as [`Task::open`].
    pub fn open_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> io::Result<File> {
        let fd = self.0.open(bytes(path.as_ref())?, options.flags()?, options.mode)?;
        Ok(File::from_fd(self, fd))
    }

    /// What is known of a file, links followed. As [`std::fs::metadata`].
    ///
    /// # Errors
    ///
    /// As [`Task::stat`].
    pub fn metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.statx(AT_FDCWD, bytes(path.as_ref())?, 0)
    }

    /// What is known of a file, which may be a link. As [`std::fs::symlink_metadata`].
    ///
    /// # Errors
    ///
    /// As [`Task::lstat`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.statx(AT_FDCWD, bytes(path.as_ref())?, AT_SYMLINK_NOFOLLOW)
    }

    fn statx(&self, dirfd: i32, path: &[u8], flags: i32) -> io::Result<Metadata> {
        Ok(Metadata::new(self.0.statx(dirfd, path, flags, STATX_BASIC_STATS | STATX_BTIME)?))
    }

    /// Whether there is something, links followed. As [`std::fs::exists`]: `Ok(false)` says that nothing is there, and an error
    /// that it could not be found out.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Errno, Vfs};
    /// # let vfs = Vfs::new()?;
    /// vfs.task(Cred::root()).mkdir(b"/private", 0o700)?;
    /// assert!(!vfs.fs(Cred::root()).exists("/private/key")?);
    /// assert!(vfs.fs(Cred::user(1000, 1000, &[])).exists("/private/key").is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Task::stat`], but for `ENOENT`.
    pub fn exists(&self, path: impl AsRef<Path>) -> io::Result<bool> {
        match self.0.stat(bytes(path.as_ref())?) {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The contents of a file. As [`std::fs::read`].
    ///
    /// # Errors
    ///
    /// As [`Task::open`] and [`Task::read`].
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut contents = Vec::new();
        self.open(path)?.read_to_end(&mut contents)?;
        Ok(contents)
    }

    /// The contents of a text file. As [`std::fs::read_to_string`].
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); [`io::ErrorKind::InvalidData`] if they are not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let mut contents = String::new();
        self.open(path)?.read_to_string(&mut contents)?;
        Ok(contents)
    }

    /// Makes or replaces a file with these contents. As [`std::fs::write`].
    ///
    /// # Errors
    ///
    /// As [`Task::open`] and [`Task::write`].
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
        self.create(path)?.write_all(contents.as_ref())
    }

    /// Copies contents and permissions of a file; gives the bytes. As [`std::fs::copy`]: what was in `to` is lost, even if
    /// `to` is `from`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `from` is no regular file; as [`Task::open`], [`Task::read`] and [`Task::write`].
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
        let mut from = self.open(from)?;
        let metadata = from.metadata()?;
        if !metadata.is_file() {
            return Err(Errno::EINVAL.into());
        }
        let mut options = OpenOptions::new();
        let mut to =
            self.open_with(to, options.write(true).create(true).truncate(true).mode(metadata.mode()))?;
        // The umask took from the mode of a new file, and an old one kept its own.
        if to.metadata()?.is_file() {
            to.set_permissions(metadata.permissions())?;
        }
        io::copy(&mut from, &mut to)
    }

    /// Makes a directory. As [`std::fs::create_dir`].
    ///
    /// # Errors
    ///
    /// As [`Task::mkdir`].
    pub fn create_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        Ok(self.0.mkdir(bytes(path.as_ref())?, 0o777)?)
    }

    /// Removes a file or a link. As [`std::fs::remove_file`].
    ///
    /// # Errors
    ///
    /// As [`Task::unlink`].
    pub fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        Ok(self.0.unlink(bytes(path.as_ref())?)?)
    }

    /// Removes an empty directory. As [`std::fs::remove_dir`].
    ///
    /// # Errors
    ///
    /// As [`Task::rmdir`].
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        Ok(self.0.rmdir(bytes(path.as_ref())?)?)
    }

    /// Gives something another name, and replaces what had it. As [`std::fs::rename`].
    ///
    /// # Errors
    ///
    /// As [`Task::rename`].
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        Ok(self.0.rename(bytes(from.as_ref())?, bytes(to.as_ref())?)?)
    }

    /// Gives the file `original` the further name `link`; a link in the last component of `original` is not followed. As
    /// [`std::fs::hard_link`].
    ///
    /// # Errors
    ///
    /// As [`Task::link`].
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        Ok(self.0.link(bytes(original.as_ref())?, bytes(link.as_ref())?)?)
    }

    /// Makes the symbolic link `link`, which says `original`. As [`std::os::unix::fs::symlink`].
    ///
    /// # Errors
    ///
    /// As [`Task::symlink`].
    pub fn symlink(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        Ok(self.0.symlink(bytes(original.as_ref())?, bytes(link.as_ref())?)?)
    }

    /// What a symbolic link says. As [`std::fs::read_link`].
    ///
    /// # Errors
    ///
    /// As [`Task::readlink`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        Ok(path_of(self.0.readlink(bytes(path.as_ref())?)?))
    }

    /// Sets the permissions of a file, links followed. As [`std::fs::set_permissions`].
    ///
    /// # Errors
    ///
    /// As [`Task::chmod`].
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
        Ok(self.0.chmod(bytes(path.as_ref())?, permissions.mode())?)
    }

    /// Sets owner and group of a file, links followed; `None` leaves one as it is. As [`std::os::unix::fs::chown`].
    ///
    /// # Errors
    ///
    /// As [`Task::chown`].
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let [uid, gid] = [uid, gid].map(|id| id.unwrap_or(INVALID_ID));
        Ok(self.0.chown(bytes(path.as_ref())?, uid, gid)?)
    }

    /// [`chown`](Self::chown) that does not follow a link in the last component. As [`std::os::unix::fs::lchown`].
    ///
    /// # Errors
    ///
    /// As [`Task::lchown`].
    pub fn lchown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let [uid, gid] = [uid, gid].map(|id| id.unwrap_or(INVALID_ID));
        Ok(self.0.lchown(bytes(path.as_ref())?, uid, gid)?)
    }

    /// The entries of a directory, without `.` and `..`. As [`std::fs::read_dir`].
    ///
    /// ```
    /// # use rcuwalk::{Cred, Vfs};
    /// # let vfs = Vfs::new()?;
    /// let fs = vfs.fs(Cred::root());
    /// fs.create_dir("/d")?;
    /// fs.write("/d/a", "")?;
    /// fs.symlink("a", "/d/b")?;
    /// for entry in fs.read_dir("/d")? {
    ///     let entry = entry?;
    ///     assert_eq!(entry.file_type()?.is_symlink(), entry.file_name() == "b");
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of opening it for reading. Each entry may be one of [`Task::getdents`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> io::Result<ReadDir> {
        ReadDir::new(self, path.as_ref())
    }
}
