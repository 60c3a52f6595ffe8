//! A user of an [`rcuwalk::Vfs`] as a file system of the [`vfs`] crate.
//!
//! Code that is written against [`vfs::VfsPath`] runs on a tree with owners, modes and ACLs, as any user:
//!
//! ```
//! use rcuwalk::{Cred, Vfs};
//! use rcuwalk_vfs::RcuwalkFs;
//! use std::io::Write;
//! use vfs::VfsPath;
//!
//! let tree = Vfs::new()?;
//! tree.task(Cred::root()).mkdir(b"/home", 0o755)?;
//! let root: VfsPath = RcuwalkFs::new(tree.fs(Cred::root())).into();
//! let alice: VfsPath = RcuwalkFs::new(tree.fs(Cred::user(1000, 1000, &[]))).into();
//!
//! root.join("home/notes")?.create_file()?.write_all(b"mine")?;
//! assert_eq!(alice.join("home/notes")?.read_to_string()?, "mine");
//! assert!(alice.join("home/notes")?.append_file().is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What the trait cannot say: names that are not UTF-8 (listing their directory is an error), links (they are followed), sockets,
//! fifos and devices (they count as files), owners and modes.
#![forbid(unsafe_code)]

use rcuwalk::fs::{Fs, OpenOptions};
use rcuwalk::uapi::{AT_FDCWD, Timespec, UTIME_OMIT};
use std::io::{self, ErrorKind};
use std::time::SystemTime;
use vfs::error::VfsErrorKind;
use vfs::{FileSystem, SeekAndRead, SeekAndWrite, VfsFileType, VfsMetadata, VfsResult};

/// The tree as a task of it sees it.
#[derive(Debug, Clone)]
pub struct RcuwalkFs(Fs);

impl RcuwalkFs {
    /// Paths start at the root directory of `fs`'s task, and the task's credential decides.
    pub fn new(fs: Fs) -> RcuwalkFs {
        RcuwalkFs(fs)
    }

    fn set_times(&self, path: &str, times: [Timespec; 2]) -> VfsResult<()> {
        let path = Some(absolute(path).as_bytes());
        Ok(self.0.task().utimensat(AT_FDCWD, path, Some(times), 0).map_err(io::Error::from)?)
    }
}

/// The trait calls the root directory "".
fn absolute(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

const OMIT: Timespec = Timespec { sec: 0, nsec: UTIME_OMIT };

fn timespec(time: SystemTime) -> Timespec {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Timespec { sec: since.as_secs() as i64, nsec: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            let (sec, nsec) = (before.as_secs() as i64, before.subsec_nanos());
            if nsec == 0 {
                Timespec { sec: -sec, nsec }
            } else {
                Timespec { sec: -sec - 1, nsec: 1_000_000_000 - nsec }
            }
        }
    }
}

/// `ENOENT` is `FileNotFound`, every other errno an `IoError` that carries it. An existing directory is `DirectoryExists` where the
/// trait tells it from a file.
impl FileSystem for RcuwalkFs {
    fn read_dir(&self, path: &str) -> VfsResult<Box<dyn Iterator<Item = String> + Send>> {
        let mut names = Vec::new();
        for entry in self.0.read_dir(absolute(path))? {
            let name = entry?.file_name().into_string().map_err(|name| {
                VfsErrorKind::Other(format!(
                    "the name {name:?} is not UTF-8, and the vfs crate has no other names"
                ))
            })?;
            names.push(name);
        }
        Ok(Box::new(names.into_iter()))
    }

    fn create_dir(&self, path: &str) -> VfsResult<()> {
        match self.0.create_dir(absolute(path)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let is_dir = self.0.symlink_metadata(absolute(path))?.is_dir();
                Err(if is_dir { VfsErrorKind::DirectoryExists } else { VfsErrorKind::FileExists }.into())
            }
            done => Ok(done?),
        }
    }

    fn open_file(&self, path: &str) -> VfsResult<Box<dyn SeekAndRead + Send>> {
        Ok(Box::new(self.0.open(absolute(path))?))
    }

    fn create_file(&self, path: &str) -> VfsResult<Box<dyn SeekAndWrite + Send>> {
        Ok(Box::new(self.0.create(absolute(path))?))
    }

    fn append_file(&self, path: &str) -> VfsResult<Box<dyn SeekAndWrite + Send>> {
        Ok(Box::new(self.0.open_with(absolute(path), OpenOptions::new().append(true))?))
    }

    fn metadata(&self, path: &str) -> VfsResult<VfsMetadata> {
        let found = self.0.metadata(absolute(path))?;
        let (file_type, len) =
            if found.is_dir() { (VfsFileType::Directory, 0) } else { (VfsFileType::File, found.len()) };
        Ok(VfsMetadata {
            file_type,
            len,
            created: found.created().ok(),
            modified: found.modified().ok(),
            accessed: found.accessed().ok(),
        })
    }

    fn set_modification_time(&self, path: &str, time: SystemTime) -> VfsResult<()> {
        self.set_times(path, [OMIT, timespec(time)])
    }

    fn set_access_time(&self, path: &str, time: SystemTime) -> VfsResult<()> {
        self.set_times(path, [timespec(time), OMIT])
    }

    fn exists(&self, path: &str) -> VfsResult<bool> {
        Ok(self.0.exists(absolute(path))?)
    }

    fn remove_file(&self, path: &str) -> VfsResult<()> {
        Ok(self.0.remove_file(absolute(path))?)
    }

    fn remove_dir(&self, path: &str) -> VfsResult<()> {
        Ok(self.0.remove_dir(absolute(path))?)
    }

    fn copy_file(&self, src: &str, dest: &str) -> VfsResult<()> {
        self.0.copy(absolute(src), absolute(dest))?;
        Ok(())
    }

    fn move_file(&self, src: &str, dest: &str) -> VfsResult<()> {
        Ok(self.0.rename(absolute(src), absolute(dest))?)
    }

    fn move_dir(&self, src: &str, dest: &str) -> VfsResult<()> {
        match self.0.rename(absolute(src), absolute(dest)) {
            // To another mount: the vfs crate copies then.
            Err(error) if error.kind() == ErrorKind::CrossesDevices => Err(VfsErrorKind::NotSupported.into()),
            done => Ok(done?),
        }
    }
}
