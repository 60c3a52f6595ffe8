//! Open files, and how to open them.

use super::{Fs, Metadata, Permissions};
use crate::base::errno::{Errno, Result};
use crate::base::uapi::{
    AT_EMPTY_PATH, F_DUPFD_CLOEXEC, O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_EXCL, O_RDONLY, O_RDWR,
    O_TRUNC, O_WRONLY, SEEK_CUR, SEEK_END, SEEK_SET,
};
use std::io::{self, Read, Seek, SeekFrom, Write};

/// An open file, which is closed when it is dropped. As [`std::fs::File`].
///
/// It reads, writes and seeks, also through a shared reference. It keeps the task that opened it.
///
/// ```
/// # use rcuwalk::{Cred, Vfs};
/// use std::io::{Read, Seek, Write};
///
/// # let vfs = Vfs::new()?;
/// let fs = vfs.fs(Cred::root());
/// let mut file = fs.create_new("/f")?;
/// file.write_all(b"hello, world")?;
/// file.set_len(5)?;
/// file.rewind()?;
/// let mut text = String::new();
/// file.read_to_string(&mut text)?;
/// assert_eq!(text, "hello");
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct File {
    pub(super) fs: Fs,
    /// Negative once another owner has it.
    fd: i32,
}

impl File {
    /// The file behind a descriptor of the task of `fs`, which the file closes from now on.
    ///
    /// ```
    /// # use rcuwalk::fs::File;
    /// # use rcuwalk::{Cred, OpenHow, Vfs, uapi::*};
    /// # let vfs = Vfs::new()?;
    /// # let fs = vfs.fs(Cred::root());
    /// # fs.write("/f", "hello")?;
    /// let how = OpenHow::new(O_RDONLY).with_resolve(RESOLVE_NO_SYMLINKS);
    /// let file = File::from_fd(&fs, fs.task().openat2(AT_FDCWD, b"/f", &how)?);
    /// assert_eq!(file.metadata()?.len(), 5);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn from_fd(fs: &Fs, fd: i32) -> File {
        File { fs: fs.clone(), fd }
    }

    /// The descriptor, for the calls of [`Task`](crate::Task) that [`std::fs`] lacks. The file still closes it.
    pub fn fd(&self) -> i32 {
        self.fd
    }

    /// The descriptor, which the caller closes.
    pub fn into_fd(mut self) -> i32 {
        std::mem::replace(&mut self.fd, -1)
    }

    /// What is known of the file.
    ///
    /// # Errors
    ///
    /// None, unless the descriptor was closed behind the file's back: `EBADF`.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.fs.statx(self.fd, b"", AT_EMPTY_PATH)
    }

    /// Sets the size: cuts the contents, or has zeros follow them. The position stays.
    ///
    /// # Errors
    ///
    /// As [`Task::ftruncate`](crate::Task::ftruncate).
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        let size = i64::try_from(size).map_err(|_| Errno::EINVAL)?;
        Ok(self.fs.task().ftruncate(self.fd, size)?)
    }

    /// Waits until contents and metadata are on the disk, if there is one; see [`Task::fsync`](crate::Task::fsync).
    ///
    /// # Errors
    ///
    /// As [`Task::fsync`](crate::Task::fsync).
    pub fn sync_all(&self) -> io::Result<()> {
        Ok(self.fs.task().fsync(self.fd)?)
    }

    /// Waits until the contents are on the disk, if there is one; see [`Task::fdatasync`](crate::Task::fdatasync).
    ///
    /// # Errors
    ///
    /// As [`Task::fdatasync`](crate::Task::fdatasync).
    pub fn sync_data(&self) -> io::Result<()> {
        Ok(self.fs.task().fdatasync(self.fd)?)
    }

    /// Sets the permissions.
    ///
    /// # Errors
    ///
    /// As [`Task::fchmod`](crate::Task::fchmod).
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        Ok(self.fs.task().fchmod(self.fd, permissions.mode())?)
    }

    /// Another descriptor of the same open file: both have one position.
    ///
    /// # Errors
    ///
    /// As [`Task::dup`](crate::Task::dup).
    pub fn try_clone(&self) -> io::Result<File> {
        Ok(File::from_fd(&self.fs, self.fs.task().fcntl(self.fd, F_DUPFD_CLOEXEC, 0)?))
    }

    /// Reads at byte `offset`; the position stays. As [`std::os::unix::fs::FileExt::read_at`].
    ///
    /// # Errors
    ///
    /// As [`Task::pread`](crate::Task::pread).
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.fs.task().pread(self.fd, buf, offset as i64)?)
    }

    /// Writes at byte `offset`, or at the end of a file opened with [`OpenOptions::append`]; the position stays. As
    /// [`std::os::unix::fs::FileExt::write_at`].
    ///
    /// # Errors
    ///
    /// As [`Task::pwrite`](crate::Task::pwrite).
    pub fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        Ok(self.fs.task().pwrite(self.fd, data, offset as i64)?)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // There is nobody to tell an error, and the only one is that the descriptor is closed.
        let _ = self.fs.task().close(self.fd);
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.fs.task().read(self.fd, buf)?)
    }
}

impl Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(self.fs.task().write(self.fd, data)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (offset, whence) = match to {
            // Beyond what the call can say is below zero, which it refuses.
            SeekFrom::Start(offset) => (offset as i64, SEEK_SET),
            SeekFrom::Current(offset) => (offset, SEEK_CUR),
            SeekFrom::End(offset) => (offset, SEEK_END),
        };
        Ok(self.fs.task().lseek(self.fd, offset, whence)? as u64)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

/// How to open a file: [`Fs::open_with`]. As [`std::fs::OpenOptions`] with its extension for Unix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    custom_flags: i32,
    pub(super) mode: u32,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

/// Declares the options that are on or off.
macro_rules! switches {
    ($($name:ident, $doc:literal;)*) => {
        $(#[doc = $doc]
        pub fn $name(&mut self, $name: bool) -> &mut OpenOptions {
            self.$name = $name;
            self
        })*
    };
}

impl OpenOptions {
    /// Nothing is asked for yet; opening needs [`read`](Self::read), [`write`](Self::write) or [`append`](Self::append).
    pub fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            custom_flags: 0,
            mode: 0o666,
        }
    }

    switches! {
        read, "For reading.";
        write, "For writing.";
        append, "For writing, each time at the end.";
        truncate, "Empty the file; needs [`write`](Self::write).";
        create, "Make the file if it is missing; needs [`write`](Self::write) or [`append`](Self::append).";
        create_new, "Make the file, and fail if it is there; needs [`write`](Self::write) or [`append`](Self::append). \
            [`create`](Self::create) and [`truncate`](Self::truncate) mean nothing then.";
    }

    /// The mode of a file that is made, less the umask; 0666 unless set.
    pub fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.mode = mode;
        self
    }

    /// Further `O_*` flags, for example `O_NOFOLLOW`; those of the access mode count for nothing.
    pub fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.custom_flags = flags;
        self
    }

    /// The flags of open(2).
    pub(super) fn flags(&self) -> Result<i32> {
        let access = match (self.read, self.write, self.append) {
            (true, false, false) => O_RDONLY,
            (false, true, false) => O_WRONLY,
            (true, true, false) => O_RDWR,
            (false, _, true) => O_WRONLY | O_APPEND,
            (true, _, true) => O_RDWR | O_APPEND,
            (false, false, false) => return Err(Errno::EINVAL),
        };
        let makes = self.create || self.create_new;
        if !(self.write || self.append) && (self.truncate || makes)
            || self.append && self.truncate && !self.create_new
        {
            return Err(Errno::EINVAL);
        }
        let creation = match (self.create, self.truncate, self.create_new) {
            (_, _, true) => O_CREAT | O_EXCL,
            (create, truncate, false) => {
                (if create { O_CREAT } else { 0 }) | (if truncate { O_TRUNC } else { 0 })
            }
        };
        Ok(O_CLOEXEC | access | creation | self.custom_flags & !O_ACCMODE)
    }
}
