//! What takes many calls: directories with all above or below them, and paths without links.

use super::{File, Fs, bytes, path_of};
use crate::base::errno::{Errno, Result};
use crate::base::uapi::{
    AT_FDCWD, AT_REMOVEDIR, DT_DIR, Dirent, MAXSYMLINKS, O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_RDONLY,
    s_isdir, s_islnk,
};
use std::io;
use std::path::{Path, PathBuf};

/// A directory whose entries are being removed.
struct Emptied {
    dir: File,
    /// In the directory above, or as the caller said it.
    name: Vec<u8>,
    /// What is still to be removed.
    entries: Vec<Dirent>,
}

impl Fs {
    /// Makes a directory, and those above it that are missing. As [`std::fs::create_dir_all`]: several may do so at once.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Vfs};
    /// # let vfs = Vfs::new()?;
    /// let fs = vfs.fs(Cred::root());
    /// fs.create_dir_all("/a/b/c")?;
    /// fs.create_dir_all("/a/b")?;
    /// assert!(fs.metadata("/a/b/c")?.is_dir());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Task::mkdir`](crate::Task::mkdir), but no `EEXIST` for a directory.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        // Upwards to what is there, and down again.
        let mut missing = Vec::new();
        for path in path.ancestors().filter(|path| !path.as_os_str().is_empty()) {
            match self.mkdir_unless_there(path) {
                Ok(()) => break,
                Err(Errno::ENOENT) => missing.push(path),
                Err(errno) => return Err(errno.into()),
            }
        }
        for path in missing.iter().rev() {
            self.mkdir_unless_there(path)?;
        }
        Ok(())
    }

    fn mkdir_unless_there(&self, path: &Path) -> Result<()> {
        let path = bytes(path)?;
        self.task().mkdir(path, 0o777).or_else(|errno| match errno {
            Errno::ENOENT => Err(errno),
            _ if self.task().stat(path).is_ok_and(|stat| s_isdir(stat.mode)) => Ok(()),
            _ => Err(errno),
        })
    }

    /// Removes a directory and everything below it, or a link. As [`std::fs::remove_dir_all`]: it follows no link, however
    /// names change meanwhile, and what others remove first is no error.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Vfs};
    /// # let vfs = Vfs::new()?;
    /// let fs = vfs.fs(Cred::root());
    /// fs.create_dir_all("/old/cache")?;
    /// fs.write("/keep", "")?;
    /// fs.symlink("/keep", "/old/cache/link")?;
    /// fs.remove_dir_all("/old")?;
    /// assert!(!fs.exists("/old")?);
    /// assert!(fs.exists("/keep")?);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `ENOTDIR` for another file; as [`Task::open`](crate::Task::open), [`Task::unlink`](crate::Task::unlink) and
    /// [`Task::rmdir`](crate::Task::rmdir). What was removed until then is gone. `EMFILE` if the tree is deeper than there
    /// are descriptors: each directory on the way down takes one.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = bytes(path.as_ref())?;
        let task = self.task();
        if s_islnk(task.lstat(path)?.mode) {
            return Ok(task.unlink(path)?);
        }
        let mut above = vec![self.empty(AT_FDCWD, path)?];
        while let Some(level) = above.last_mut() {
            let dirfd = level.dir.fd();
            if let Some(entry) = level.entries.pop() {
                let removed = match entry.kind {
                    DT_DIR => self.empty(dirfd, &entry.name).map(|deeper| above.push(deeper)),
                    _ => task.unlinkat(dirfd, &entry.name, 0),
                };
                match removed {
                    // By now it is something else, or a link.
                    Err(Errno::ENOTDIR | Errno::ELOOP) => gone(task.unlinkat(dirfd, &entry.name, 0))?,
                    other => gone(other)?,
                }
            } else {
                let name = std::mem::take(&mut level.name);
                above.pop();
                match above.last() {
                    Some(parent) => gone(task.unlinkat(parent.dir.fd(), &name, AT_REMOVEDIR))?,
                    None => task.rmdir(&name)?,
                }
            }
        }
        Ok(())
    }

    /// Opens a directory, not through a link, and reads what is in it.
    fn empty(&self, dirfd: i32, name: &[u8]) -> Result<Emptied> {
        let fd = self.task().openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0)?;
        let dir = File::from_fd(self, fd);
        let mut entries = Vec::new();
        while self.task().getdents(fd, &mut entries, 1024)? != 0 {}
        entries.retain(|entry| entry.name != b"." && entry.name != b"..");
        Ok(Emptied { dir, name: name.to_owned(), entries })
    }

    /// The absolute path of something, without links, `.` and `..`. As [`std::fs::canonicalize`].
    ///
    /// ```
    /// # use rcuwalk::{Cred, Vfs};
    /// # use std::path::Path;
    /// # let vfs = Vfs::new()?;
    /// let fs = vfs.fs(Cred::root());
    /// fs.create_dir_all("/releases/2")?;
    /// fs.symlink("releases/2", "/current")?;
    /// assert_eq!(fs.canonicalize("/current/../2/.")?, Path::new("/releases/2"));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Task::stat`](crate::Task::stat) and [`Task::getcwd`](crate::Task::getcwd).
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = bytes(path.as_ref())?;
        let task = self.task();
        // Whatever is wrong with the path, the walk says it.
        task.stat(path)?;
        let mut done = if path[0] == b'/' { Vec::new() } else { task.getcwd()? };
        match &done[..] {
            b"/" => done.clear(),
            // Outside of the root directory nothing has an absolute path.
            [other, ..] if *other != b'/' => return Err(Errno::ENOENT.into()),
            _ => {}
        }
        // Components that are still to be looked at, the next one last.
        let mut rest: Vec<Vec<u8>> = path.split(|&byte| byte == b'/').rev().map(<[u8]>::to_vec).collect();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            match &name[..] {
                b"" | b"." => {}
                b".." => done.truncate(memchr::memrchr(b'/', &done).unwrap_or(0)),
                _ => {
                    let parent = done.len();
                    done.push(b'/');
                    done.extend_from_slice(&name);
                    match task.readlink(&done) {
                        Ok(body) => {
                            links += 1;
                            if links > MAXSYMLINKS {
                                return Err(Errno::ELOOP.into());
                            }
                            done.truncate(if body.first() == Some(&b'/') { 0 } else { parent });
                            rest.extend(body.split(|&byte| byte == b'/').rev().map(<[u8]>::to_vec));
                        }
                        Err(Errno::EINVAL) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
            }
        }
        if done.is_empty() {
            done.push(b'/');
        }
        Ok(path_of(done))
    }
}

/// What was to be removed may be gone.
fn gone(removed: Result<()>) -> crate::Result<()> {
    match removed {
        Err(Errno::ENOENT) => Ok(()),
        other => other,
    }
}
