//! Looking: stat, access, readlink, listdir.

use super::PyTask;
use crate::args::{PathArg, Target, name_of};
use crate::error::Answer;
use crate::faults::Object;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple, PyType};
use rcuwalk::uapi::{AT_EACCESS, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, SEEK_SET};
use rcuwalk::{Dirent, Result, Stat, Statfs, Task, Timespec};

static STAT_RESULT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static STATVFS_RESULT: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// An `os.statvfs_result`.
fn statvfs_result<'py>(py: Python<'py>, found: &Statfs) -> PyResult<Bound<'py, PyAny>> {
    let fields = [
        found.bsize,
        found.frsize,
        found.blocks,
        found.bfree,
        found.bavail,
        found.files,
        found.ffree,
        found.ffree,
        found.flags,
        found.namelen,
        found.fsid,
    ];
    STATVFS_RESULT.import(py, "os", "statvfs_result")?.call1((PyTuple::new(py, fields)?,))
}

/// An `os.stat_result`.
pub(super) fn stat_result<'py>(py: Python<'py>, stat: &Stat) -> PyResult<Bound<'py, PyAny>> {
    let class = STAT_RESULT.import(py, "os", "stat_result")?;
    let seconds = |time: Timespec| time.sec as f64 + 1e-9 * f64::from(time.nsec);
    let nanos = |time: Timespec| -> PyResult<Bound<'py, PyAny>> {
        match time.sec.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(i64::from(time.nsec))) {
            Some(ns) => Ok(ns.into_pyobject(py)?.into_any()),
            None => Ok((i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec))
                .into_pyobject(py)?
                .into_any()),
        }
    };
    macro_rules! items {
        ($($value:expr),* $(,)?) => { [$($value.into_pyobject(py)?.into_any()),*] };
    }
    let [mode, ino, dev, nlink, uid, gid, size] =
        items![stat.mode, stat.ino, stat.dev, stat.nlink, stat.uid, stat.gid, stat.size];
    let [a, m, c, atime, mtime, ctime] = items![
        stat.atime.sec,
        stat.mtime.sec,
        stat.ctime.sec,
        seconds(stat.atime),
        seconds(stat.mtime),
        seconds(stat.ctime),
    ];
    let [blksize, blocks, rdev] = items![stat.blksize, stat.blocks, stat.rdev];
    let (atime_ns, mtime_ns, ctime_ns) = (nanos(stat.atime)?, nanos(stat.mtime)?, nanos(stat.ctime)?);
    let fields = [
        mode, ino, dev, nlink, uid, gid, size, a, m, c, atime, mtime, ctime, atime_ns, mtime_ns, ctime_ns,
        blksize, blocks, rdev,
    ];
    class.call1((PyTuple::new(py, fields)?,))
}

pub(super) fn nofollow(follow: bool) -> i32 {
    if follow { 0 } else { AT_SYMLINK_NOFOLLOW }
}

impl PyTask {
    /// Attributes by path, as `os.stat` and `DirEntry.stat` need them.
    pub(super) fn stat_at(&self, dirfd: i32, path: &[u8], follow: bool) -> Result<Stat> {
        self.look("stat", &[Object::Path(dirfd, path, follow)], |task| {
            task.newfstatat(dirfd, path, nofollow(follow))
        })
    }
}

#[pymethods]
impl PyTask {
    /// `os.stat`
    #[pyo3(signature = (path, *, dir_fd=None, follow_symlinks=true))]
    fn stat<'py>(
        &self,
        path: &Bound<'py, PyAny>,
        dir_fd: Option<i32>,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        match Target::new("stat", path)? {
            Target::Fd(fd) => self.fstat(path.py(), fd),
            Target::Path(arg) => {
                let stat = self.stat_at(self.dir(dir_fd), arg.bytes(), follow_symlinks).of(path)?;
                stat_result(path.py(), &stat)
            }
        }
    }

    /// `os.lstat`
    #[pyo3(signature = (path, *, dir_fd=None))]
    fn lstat<'py>(&self, path: &Bound<'py, PyAny>, dir_fd: Option<i32>) -> PyResult<Bound<'py, PyAny>> {
        let arg = PathArg::new("lstat", path)?;
        let stat = self.stat_at(self.dir(dir_fd), arg.bytes(), false).of(path)?;
        stat_result(path.py(), &stat)
    }

    /// `os.fstat`
    fn fstat<'py>(&self, py: Python<'py>, fd: i32) -> PyResult<Bound<'py, PyAny>> {
        let fd = self.fd_in(fd);
        let stat = self.look("fstat", &[Object::Fd(fd)], |task| task.fstat(fd)).plain(py)?;
        stat_result(py, &stat)
    }

    /// `os.statvfs`
    fn statvfs<'py>(&self, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match Target::new("statvfs", path)? {
            Target::Fd(fd) => self.fstatvfs(path.py(), fd),
            Target::Path(arg) => {
                let found = self.at(&arg, ("statfs", None, true), |task, _, path| task.statfs(path))?;
                statvfs_result(path.py(), &found)
            }
        }
    }

    /// `os.fstatvfs`
    fn fstatvfs<'py>(&self, py: Python<'py>, fd: i32) -> PyResult<Bound<'py, PyAny>> {
        let found = self.on(py, "statfs", fd, |task, fd| task.fstatfs(fd))?;
        statvfs_result(py, &found)
    }

    /// `os.access`: whether, not why.
    #[pyo3(signature = (path, mode, *, dir_fd=None, effective_ids=false, follow_symlinks=true))]
    fn access(
        &self,
        path: &Bound<'_, PyAny>,
        mode: i32,
        dir_fd: Option<i32>,
        effective_ids: bool,
        follow_symlinks: bool,
    ) -> PyResult<bool> {
        let flags = nofollow(follow_symlinks) | if effective_ids { AT_EACCESS } else { 0 };
        let answer = match Target::new("access", path)? {
            Target::Fd(fd) => {
                let fd = self.fd_in(fd);
                self.look("access", &[Object::Fd(fd)], |task| {
                    task.faccessat2(fd, b"", mode, flags | AT_EMPTY_PATH)
                })
            }
            Target::Path(path) => {
                let dirfd = self.dir(dir_fd);
                let objects = [Object::Path(dirfd, path.bytes(), follow_symlinks)];
                self.look("access", &objects, |task| task.faccessat2(dirfd, path.bytes(), mode, flags))
            }
        };
        Ok(answer.is_ok())
    }

    /// `os.readlink`
    #[pyo3(signature = (path, *, dir_fd=None))]
    fn readlink<'py>(&self, path: &Bound<'py, PyAny>, dir_fd: Option<i32>) -> PyResult<Bound<'py, PyAny>> {
        let arg = PathArg::new("readlink", path)?;
        let dirfd = self.dir(dir_fd);
        let body = self
            .look("readlink", &[Object::Path(dirfd, arg.bytes(), false)], |task| {
                task.readlinkat(dirfd, arg.bytes())
            })
            .of(path)?;
        name_of(path.py(), &body, arg.wants_bytes)
    }

    /// `os.listdir`
    #[pyo3(signature = (path=None))]
    fn listdir<'py>(
        &self,
        py: Python<'py>,
        path: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let target = Target::or_cwd("listdir", path, py)?;
        let (entries, bytes) = self.entries(py, &target)?;
        let names: Vec<_> = entries.iter().map(|e| name_of(py, &e.name, bytes)).collect::<PyResult<_>>()?;
        PyList::new(py, names)
    }
}

impl PyTask {
    /// The entries of a directory without `.` and `..`, and whether their names are wanted as bytes.
    pub(super) fn entries(&self, py: Python<'_>, target: &Target<'_>) -> PyResult<(Vec<Dirent>, bool)> {
        match target {
            Target::Fd(fd) => Ok((self.on(py, "listdir", *fd, all_entries)?, false)),
            Target::Path(path) => {
                let entries = self.at(path, ("listdir", None, true), |task, _, path| task.readdir(path))?;
                Ok((entries, path.wants_bytes))
            }
        }
    }
}

/// What is in the directory behind `fd`, from the beginning; it is left there.
fn all_entries(task: &Task, fd: i32) -> Result<Vec<Dirent>> {
    let mut all = Vec::new();
    task.lseek(fd, 0, SEEK_SET)?;
    while task.getdents(fd, &mut all, 4096)? != 0 {}
    task.lseek(fd, 0, SEEK_SET)?;
    all.retain(|entry| entry.name != b"." && entry.name != b"..");
    Ok(all)
}
