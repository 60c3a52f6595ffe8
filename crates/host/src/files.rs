//! Small text files of a tree: user databases, unit files.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rcuwalk::uapi::{O_DIRECTORY, O_NONBLOCK, O_RDONLY};
use rcuwalk::{Cred, Errno, Task, Vfs};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use crate::identity::FileNames;

/// The most that is read of a file, in bytes.
const MAX_SIZE: u64 = 4 << 20;

/// The most names of a directory that are listed.
const MAX_NAMES: usize = 1 << 16;

/// A tree whose files can be read by name. Symbolic links lead nowhere out of it.
#[derive(Debug)]
pub struct Files(Place);

#[derive(Debug)]
enum Place {
    Dir(OwnedFd),
    Vfs(Box<Task>),
}

impl Files {
    /// The directory `root` of the running machine, as if it were the root directory.
    ///
    /// # Errors
    ///
    /// What opening it answers.
    pub fn of_dir(root: &Path) -> io::Result<Files> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Files(Place::Dir(rustix::fs::open(root, flags, Mode::empty())?)))
    }

    /// An imported tree. Files whose contents were not imported read as if they were missing.
    pub fn of_vfs(vfs: &Vfs) -> Files {
        Files(Place::Vfs(Box::new(vfs.task(Cred::root()))))
    }

    /// The contents of a file, cut off after 4 MiB; none if there is no such regular file, or it cannot be read.
    ///
    /// ```
    /// use rcuwalk_host::Files;
    /// let files = Files::of_dir("src".as_ref())?;
    /// assert!(files.read(b"/lib.rs").unwrap().starts_with(b"//!"));
    /// assert_eq!(files.read(b"/../Cargo.toml"), None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read(&self, path: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match &self.0 {
            Place::Dir(root) => {
                // What is no file is not even opened: a device may do something then.
                let place = open_in(root, path, OFlags::PATH).ok()?;
                if !FileType::from_raw_mode(rustix::fs::fstat(&place).ok()?.st_mode).is_file() {
                    return None;
                }
                let file = std::fs::File::open(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()?;
                file.take(MAX_SIZE).read_to_end(&mut out).ok()?;
            }
            Place::Vfs(task) => {
                let fd = task.open(path, O_RDONLY | O_NONBLOCK, 0).ok()?;
                let read = read_whole(task, fd, &mut out);
                let _ = task.close(fd);
                read.ok()?;
            }
        }
        Some(out)
    }

    /// The names in a directory, in order; none if it cannot be read.
    pub fn list(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = match &self.0 {
            Place::Dir(root) => open_in(root, path, OFlags::RDONLY | OFlags::DIRECTORY)
                .and_then(rustix::fs::Dir::read_from)
                .map(|dir| dir.flatten().take(MAX_NAMES).map(|entry| entry.file_name().to_bytes().to_vec()))
                .map_or(Vec::new(), Iterator::collect),
            Place::Vfs(task) => list(task, path).unwrap_or_default(),
        };
        names.retain(|name| name != b"." && name != b"..");
        names.sort_unstable();
        names
    }

    /// The users and groups that its `/etc/passwd` and `/etc/group` name.
    pub fn names(&self) -> FileNames {
        let read = |path| self.read(path).unwrap_or_default();
        FileNames::new(&read(b"/etc/passwd"), &read(b"/etc/group"))
    }
}

/// Opens below `root`, which links and `..` cannot leave. Without openat2 nothing is found, rather than something elsewhere.
fn open_in(root: &OwnedFd, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = Path::new(&OsString::from_vec(path.to_vec())).to_path_buf();
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat2(root, &path, flags, Mode::empty(), ResolveFlags::IN_ROOT)
}

fn read_whole(task: &Task, fd: i32, out: &mut Vec<u8>) -> Result<(), Errno> {
    let mut buf = [0; 4096];
    while (out.len() as u64) < MAX_SIZE {
        match task.read(fd, &mut buf)? {
            0 => return Ok(()),
            n => out.extend_from_slice(&buf[..n]),
        }
    }
    Ok(())
}

fn list(task: &Task, path: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
    let fd = task.open(path, O_RDONLY | O_DIRECTORY, 0)?;
    let mut entries = Vec::new();
    while entries.len() < MAX_NAMES && task.getdents(fd, &mut entries, 1000)? > 0 {}
    task.close(fd)?;
    Ok(entries.into_iter().map(|entry| entry.name).collect())
}
