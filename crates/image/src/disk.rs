//! The file under an image, and the room that is kept for what comes next.
//!
//! No caller can know which of its free pages the store takes next, and a page may lie in a hole. So room is kept in a second file without a
//! name, which shrinks when the image cannot grow otherwise. Where there can be no such file, what is free is counted on instead.

use redb::{BackendError, StorageBackend};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{File, TryLockError};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An image file. Everything goes through descriptors: a path might lead into the very mount that the image keeps.
#[derive(Debug)]
pub(crate) struct Disk {
    file: File,
    ballast: Mutex<Ballast>,
}

/// Blocks of the same file system, to be given up for the image.
#[derive(Debug)]
struct Ballast {
    /// The file that has them, or why there can be none.
    file: io::Result<File>,
    /// Bytes of them.
    len: u64,
}

/// The least that is given up at a time: others may take a part of it before the image does.
const STEP: u64 = 256 << 10;

impl Disk {
    /// The image `file`, opened at `path`.
    pub(crate) fn new(file: File, path: &Path) -> Disk {
        let ballast = Ballast { file: beside(&file, path), len: 0 };
        Disk { file, ballast: Mutex::new(ballast) }
    }

    fn ballast(&self) -> MutexGuard<'_, Ballast> {
        self.ballast.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps room for so many bytes, or for as many as it can; gives how many. Where room cannot be kept, it gives how many bytes are
    /// likely to be there still.
    pub(crate) fn reserve(&self, bytes: u64) -> u64 {
        let mut ballast = self.ballast();
        let Ballast { file, len } = &mut *ballast;
        if let Ok(file) = file
            && bytes > *len
        {
            // What fails may take all there is before it does.
            if bytes - *len > self.available() {
                return *len;
            }
            match rustix::fs::fallocate(&*file, FallocateFlags::empty(), *len, bytes - *len) {
                Ok(()) => *len = bytes,
                Err(e @ (Errno::OPNOTSUPP | Errno::NOSYS)) => ballast.file = Err(e.into()),
                Err(_) => {
                    // It may have got a part.
                    let _ = file.set_len(*len);
                }
            }
        }
        if ballast.file.is_err() { bytes.min(self.available() / 4) } else { ballast.len }
    }

    /// Why no room can be kept, if that is so.
    pub(crate) fn unreserved(&self) -> Option<String> {
        self.ballast().file.as_ref().err().map(ToString::to_string)
    }

    /// Keeps room for so many bytes at most from now on.
    pub(crate) fn release_beyond(&self, bytes: u64) -> io::Result<()> {
        let mut ballast = self.ballast();
        let Ballast { file: Ok(file), len } = &mut *ballast else { return Ok(()) };
        if *len > bytes {
            file.set_len(bytes)?;
            *len = bytes;
        }
        Ok(())
    }

    /// For how many bytes room is kept.
    pub(crate) fn reserved(&self) -> u64 {
        self.ballast().len
    }

    /// Gives up room for the image. Whether there was any.
    fn give_up(&self, bytes: u64) -> bool {
        let len = self.ballast().len;
        len > 0 && self.release_beyond(len.saturating_sub(bytes.max(STEP))).is_ok()
    }

    /// Bytes that the file system under the image has left.
    fn available(&self) -> u64 {
        rustix::fs::fstatvfs(&self.file).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize))
    }

    /// Bytes of the image.
    pub(crate) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

/// A file without a name on the file system of the image `file`, which was opened at `path`.
fn beside(file: &File, path: &Path) -> io::Result<File> {
    // The path may be a symbolic link to an image that lies elsewhere.
    let ballast = tempfile::tempfile_in(dir_of(&path.canonicalize()?))?;
    if ballast.metadata()?.dev() != file.metadata()?.dev() {
        return Err(io::Error::other("the image is mounted there from another file system"));
    }
    Ok(ballast)
}

/// The directory of a file.
pub(crate) fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What the store is given: the same disk, each time it is opened.
#[derive(Debug)]
pub(crate) struct OnDisk(pub(crate) Arc<Disk>);

impl StorageBackend for OnDisk {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        loop {
            match self.0.file.write_all_at(data, offset) {
                Err(e) if is_full(&e) && self.0.give_up(data.len() as u64) => {}
                done => return done,
            }
        }
    }

    fn close(&self) -> io::Result<()> {
        self.0.file.unlock()
    }

    /// The whole file alone: one process has it.
    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        if !matches!(start, Bound::Unbounded | Bound::Included(0)) || end != Bound::Unbounded {
            return Err(BackendError::Unsupported);
        }
        match self.0.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(e)) => Err(BackendError::Io(e)),
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
