//! Reading directories.

use super::file::{File, OpenOptions};
use super::{FileType, Fs, Metadata};
use crate::base::errno::Errno;
use crate::base::uapi::{AT_SYMLINK_NOFOLLOW, Dirent, O_DIRECTORY};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open directory, and the path that led to it.
#[derive(Debug)]
struct Dir {
    file: File,
    path: PathBuf,
}

/// The entries of a directory: [`Fs::read_dir`]. As [`std::fs::ReadDir`].
#[derive(Debug)]
pub struct ReadDir {
    dir: Arc<Dir>,
    /// Entries that were read and not yet given, the next one last.
    batch: Vec<Dirent>,
    ended: bool,
}

impl ReadDir {
    /// How many entries are read at once.
    const BATCH: usize = 256;

    pub(super) fn new(fs: &Fs, path: &Path) -> io::Result<ReadDir> {
        let file = fs.open_with(path, OpenOptions::new().read(true).custom_flags(O_DIRECTORY))?;
        let dir = Dir { file, path: path.to_owned() };
        Ok(ReadDir { dir: Arc::new(dir), batch: Vec::new(), ended: false })
    }
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        loop {
            match self.batch.pop() {
                Some(entry) if entry.name == b"." || entry.name == b".." => {}
                Some(entry) => return Some(Ok(DirEntry { dir: Arc::clone(&self.dir), entry })),
                None if self.ended => return None,
                None => {
                    let file = &self.dir.file;
                    let read = file.fs.task().getdents(file.fd(), &mut self.batch, Self::BATCH);
                    self.batch.reverse();
                    self.ended = !matches!(read, Ok(1..));
                    match read {
                        // A directory that was removed meanwhile has no entries, as readdir(3) sees it.
                        Ok(_) | Err(Errno::ENOENT) => {}
                        Err(errno) => return Some(Err(errno.into())),
                    }
                }
            }
        }
    }
}

/// An entry of a directory. As [`std::fs::DirEntry`] with its extension for Unix.
#[derive(Debug)]
pub struct DirEntry {
    dir: Arc<Dir>,
    entry: Dirent,
}

impl DirEntry {
    /// The name.
    pub fn file_name(&self) -> OsString {
        OsStr::from_bytes(&self.entry.name).to_owned()
    }

    /// The name behind the path that [`Fs::read_dir`] was given.
    pub fn path(&self) -> PathBuf {
        self.dir.path.join(self.file_name())
    }

    /// The inode number.
    pub fn ino(&self) -> u64 {
        self.entry.ino
    }

    /// The type, without following a link.
    ///
    /// # Errors
    ///
    /// None: the directory knows the type. [`std::fs`] has a `Result` here.
    pub fn file_type(&self) -> io::Result<FileType> {
        Ok(FileType::new(u32::from(self.entry.kind) << 12))
    }

    /// What is known of what has the name by now, without following a link.
    ///
    /// # Errors
    ///
    /// As [`Task::newfstatat`](crate::Task::newfstatat).
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.dir.file.fs.statx(self.dir.file.fd(), &self.entry.name, AT_SYMLINK_NOFOLLOW)
    }
}
