//! The file under an image, and the room that is kept for what comes next.
//!
//! Which of its free pages the store takes next nobody can say, and a page may lie in a hole. So room is kept in a second file without a
//! name, which shrinks when the image cannot grow otherwise.

use redb::{BackendError, StorageBackend};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{File, TryLockError};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
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
    file: File,
    /// Bytes of them.
    len: u64,
}

/// The least that is given up at a time: others may take a part of it before the image does.
const STEP: u64 = 256 << 10;

impl Disk {
    /// The image `file` in the directory of `path`.
    pub(crate) fn new(file: File, path: &Path) -> io::Result<Disk> {
        let ballast = Ballast { file: tempfile::tempfile_in(dir_of(path))?, len: 0 };
        Ok(Disk { file, ballast: Mutex::new(ballast) })
    }

    fn ballast(&self) -> MutexGuard<'_, Ballast> {
        self.ballast.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps room for so many bytes, or for as many as it can; gives how many.
    pub(crate) fn reserve(&self, bytes: u64) -> u64 {
        let mut ballast = self.ballast();
        if bytes > ballast.len {
            // What fails may take all there is before it does.
            if bytes - ballast.len > self.available() {
                return ballast.len;
            }
            match rustix::fs::fallocate(
                &ballast.file,
                FallocateFlags::empty(),
                ballast.len,
                bytes - ballast.len,
            ) {
                Ok(()) => ballast.len = bytes,
                // Room cannot be kept here. What is free now, others may take.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return bytes.min(self.available() / 4),
                Err(_) => {
                    // It may have got a part.
                    let _ = ballast.file.set_len(ballast.len);
                }
            }
        }
        ballast.len
    }

    /// Keeps room for so many bytes at most from now on.
    pub(crate) fn release_beyond(&self, bytes: u64) -> io::Result<()> {
        let mut ballast = self.ballast();
        if ballast.len > bytes {
            ballast.file.set_len(bytes)?;
            ballast.len = bytes;
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
