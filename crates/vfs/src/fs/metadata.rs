//! What is known of a file.

use crate::base::errno::Errno;
use crate::base::uapi::{
    S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK, Statx, StatxTimestamp, makedev,
};
use std::fmt;
use std::io;
use std::time::{Duration, SystemTime};

/// What is known of a file, as of one moment. As [`std::fs::Metadata`] with its extension for Unix.
#[derive(Clone)]
pub struct Metadata(Statx);

/// Declares methods that give a number of the call.
macro_rules! numbers {
    ($($name:ident: $ty:ty = |$stat:ident| $value:expr, $doc:literal;)*) => {
        $(#[doc = $doc]
        pub fn $name(&self) -> $ty {
            let $stat = &self.0;
            $value
        })*
    };
}

#[expect(clippy::len_without_is_empty, reason = "std's has none either: a directory has a length too")]
impl Metadata {
    pub(super) fn new(statx: Statx) -> Metadata {
        Metadata(statx)
    }

    numbers! {
        len: u64 = |stat| stat.size, "The size in bytes.";
        mode: u32 = |stat| u32::from(stat.mode), "Type and permission bits.";
        uid: u32 = |stat| stat.uid, "The owner.";
        gid: u32 = |stat| stat.gid, "The group.";
        ino: u64 = |stat| stat.ino, "The inode number.";
        nlink: u64 = |stat| u64::from(stat.nlink), "How many names the file has.";
        dev: u64 = |stat| makedev(stat.dev_major, stat.dev_minor), "The device number of the file system.";
        rdev: u64 = |stat| makedev(stat.rdev_major, stat.rdev_minor), "The device that a device file stands for.";
        blocks: u64 = |stat| stat.blocks, "The room that the contents take, in units of 512 bytes.";
    }

    /// The type.
    pub fn file_type(&self) -> FileType {
        FileType::new(self.mode())
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// The permissions.
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.mode())
    }

    /// When the contents changed.
    ///
    /// # Errors
    ///
    /// `EOVERFLOW` if the host's [`SystemTime`] cannot say it.
    pub fn modified(&self) -> io::Result<SystemTime> {
        system_time(self.0.mtime)
    }

    /// When the contents were read, as far as the mount options record it.
    ///
    /// # Errors
    ///
    /// As [`modified`](Self::modified).
    pub fn accessed(&self) -> io::Result<SystemTime> {
        system_time(self.0.atime)
    }

    /// When the file was made.
    ///
    /// # Errors
    ///
    /// As [`modified`](Self::modified).
    pub fn created(&self) -> io::Result<SystemTime> {
        system_time(self.0.btime)
    }

    /// When the inode changed: contents, owner, permissions, names.
    ///
    /// # Errors
    ///
    /// As [`modified`](Self::modified).
    pub fn changed(&self) -> io::Result<SystemTime> {
        system_time(self.0.ctime)
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata")
            .field("file_type", &self.file_type())
            .field("permissions", &self.permissions())
            .field("uid", &self.uid())
            .field("gid", &self.gid())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

fn system_time(time: StatxTimestamp) -> io::Result<SystemTime> {
    let seconds = Duration::from_secs(time.sec.unsigned_abs());
    let second = if time.sec < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    let moment = second.and_then(|second| second.checked_add(Duration::from_nanos(u64::from(time.nsec))));
    moment.ok_or_else(|| Errno::EOVERFLOW.into())
}

/// Permissions of a file. As [`std::fs::Permissions`] with its extension for Unix.
///
/// ```
/// # use rcuwalk::{Cred, Vfs, fs::Permissions};
/// # let vfs = Vfs::new()?;
/// let fs = vfs.fs(Cred::root());
/// fs.write("/f", "")?;
/// fs.set_permissions("/f", Permissions::from_mode(0o640))?;
/// assert_eq!(fs.metadata("/f")?.permissions().mode() & 0o7777, 0o640);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Permissions(u32);

impl Permissions {
    /// Permissions with these bits.
    pub fn from_mode(mode: u32) -> Permissions {
        Permissions(mode)
    }

    /// The bits. Those of [`Metadata::permissions`] have the type of the file among them, as those of [`std::fs`] do.
    pub fn mode(&self) -> u32 {
        self.0
    }

    /// Sets the bits.
    pub fn set_mode(&mut self, mode: u32) {
        self.0 = mode;
    }

    /// Whether no write bit is set, for anybody.
    pub fn readonly(&self) -> bool {
        self.0 & 0o222 == 0
    }

    /// Takes all write bits away, or sets them all.
    pub fn set_readonly(&mut self, readonly: bool) {
        self.0 = if readonly { self.0 & !0o222 } else { self.0 | 0o222 };
    }
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permissions({:#o})", self.0)
    }
}

/// The type of a file. As [`std::fs::FileType`] with its extension for Unix.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileType(u32);

/// Declares a question for each type.
macro_rules! types {
    ($($name:ident, $ty:ident, $doc:literal;)*) => {
        impl FileType {
            pub(super) fn new(mode: u32) -> FileType {
                FileType(mode & S_IFMT)
            }

            $(#[doc = concat!("Whether it is ", $doc, ".")]
            pub fn $name(&self) -> bool {
                self.0 == $ty
            })*
        }

        impl fmt::Debug for FileType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let name = match self.0 {
                    $($ty => stringify!($ty),)*
                    _ => "unknown",
                };
                write!(f, "FileType({name})")
            }
        }
    };
}

types! {
    is_file, S_IFREG, "a regular file";
    is_dir, S_IFDIR, "a directory";
    is_symlink, S_IFLNK, "a symbolic link";
    is_fifo, S_IFIFO, "a fifo";
    is_socket, S_IFSOCK, "a socket";
    is_block_device, S_IFBLK, "a block device";
    is_char_device, S_IFCHR, "a character device";
}
