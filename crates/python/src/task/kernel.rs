//! The kernel's calls where `os` cannot say all of them: raw flags, empty paths, statx.

use super::PyTask;
use super::look::stat_result;
use crate::args::{PathArg, fileno, name_of};
use crate::error::Answer;
use crate::faults::Object;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rcuwalk::uapi::{AT_SYMLINK_NOFOLLOW, Statx};
use rcuwalk::{Timespec, uapi};

/// Whether a call with these `AT_*` flags follows a link at the end of its path.
pub(super) fn follows(flags: i32) -> bool {
    flags & AT_SYMLINK_NOFOLLOW == 0
}

/// What statx(2) answered, each field under its own name; times in nanoseconds.
fn statx_dict<'py>(py: Python<'py>, statx: &Statx) -> PyResult<Bound<'py, PyDict>> {
    let nanos = |time: uapi::StatxTimestamp| i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec);
    let out = PyDict::new(py);
    for (name, value) in [
        ("mask", u64::from(statx.mask)),
        ("blksize", u64::from(statx.blksize)),
        ("attributes", statx.attributes),
        ("attributes_mask", statx.attributes_mask),
        ("nlink", u64::from(statx.nlink)),
        ("uid", u64::from(statx.uid)),
        ("gid", u64::from(statx.gid)),
        ("mode", u64::from(statx.mode)),
        ("ino", statx.ino),
        ("size", statx.size),
        ("blocks", statx.blocks),
        ("dev", uapi::makedev(statx.dev_major, statx.dev_minor)),
        ("rdev", uapi::makedev(statx.rdev_major, statx.rdev_minor)),
        ("mnt_id", statx.mnt_id),
    ] {
        out.set_item(name, value)?;
    }
    for (name, time) in [
        ("atime_ns", statx.atime),
        ("mtime_ns", statx.mtime),
        ("ctime_ns", statx.ctime),
        ("btime_ns", statx.btime),
    ] {
        out.set_item(name, nanos(time))?;
    }
    Ok(out)
}

#[pymethods]
impl PyTask {
    /// statx(2)
    #[pyo3(signature = (path, flags=0, mask=0xfff, *, dir_fd=None))]
    fn statx<'py>(
        &self,
        path: &Bound<'py, PyAny>,
        flags: i32,
        mask: u32,
        dir_fd: Option<i32>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let arg = PathArg::new("statx", path)?;
        let dir = self.dir(dir_fd);
        let objects = [Object::Path(dir, arg.bytes(), follows(flags))];
        let statx = self.look("stat", &objects, |task| task.statx(dir, arg.bytes(), flags, mask)).of(path)?;
        statx_dict(path.py(), &statx)
    }

    /// newfstatat(2): `os.stat` with `AT_*` flags.
    #[pyo3(signature = (path, flags=0, *, dir_fd=None))]
    fn fstatat<'py>(
        &self,
        path: &Bound<'py, PyAny>,
        flags: i32,
        dir_fd: Option<i32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arg = PathArg::new("fstatat", path)?;
        let dir = self.dir(dir_fd);
        let objects = [Object::Path(dir, arg.bytes(), follows(flags))];
        let stat = self.look("stat", &objects, |task| task.newfstatat(dir, arg.bytes(), flags)).of(path)?;
        stat_result(path.py(), &stat)
    }

    /// faccessat2(2): `os.access` with `AT_*` flags, and with the reason if not.
    #[pyo3(signature = (path, mode, flags=0, *, dir_fd=None))]
    fn faccessat(&self, path: &Bound<'_, PyAny>, mode: i32, flags: i32, dir_fd: Option<i32>) -> PyResult<()> {
        let arg = PathArg::new("faccessat", path)?;
        let dir = self.dir(dir_fd);
        let objects = [Object::Path(dir, arg.bytes(), follows(flags))];
        self.look("access", &objects, |task| task.faccessat2(dir, arg.bytes(), mode, flags)).of(path)
    }

    /// openat(2): `os.open` that sets no flag of its own.
    #[pyo3(signature = (path, flags, mode=0, *, dir_fd=None))]
    fn openat(&self, path: &Bound<'_, PyAny>, flags: i32, mode: u32, dir_fd: Option<i32>) -> PyResult<i32> {
        let path = PathArg::new("openat", path)?;
        let fd =
            self.at(&path, ("open", dir_fd, true), |task, dir, path| task.openat(dir, path, flags, mode))?;
        Ok(self.fd_out(fd))
    }

    /// readlinkat(2) as bytes; an empty path is the link behind `dir_fd` itself.
    #[pyo3(signature = (path, *, dir_fd=None))]
    fn readlinkat<'py>(&self, path: &Bound<'py, PyAny>, dir_fd: Option<i32>) -> PyResult<Bound<'py, PyAny>> {
        let arg = PathArg::new("readlinkat", path)?;
        let dir = self.dir(dir_fd);
        let objects = [Object::Path(dir, arg.bytes(), false)];
        let body = self.look("readlink", &objects, |task| task.readlinkat(dir, arg.bytes())).of(path)?;
        name_of(path.py(), &body, true)
    }

    /// linkat(2): `os.link` with `AT_*` flags.
    #[pyo3(signature = (src, dst, flags=0, *, src_dir_fd=None, dst_dir_fd=None))]
    fn linkat(
        &self,
        src: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        flags: i32,
        src_dir_fd: Option<i32>,
        dst_dir_fd: Option<i32>,
    ) -> PyResult<()> {
        let (old, new) = (PathArg::new("linkat", src)?, PathArg::new("linkat", dst)?);
        self.between("link", (&old, src_dir_fd), (&new, dst_dir_fd), |task, from, to| {
            task.linkat(from.0, from.1, to.0, to.1, flags)
        })
    }

    /// unlinkat(2)
    #[pyo3(signature = (path, flags=0, *, dir_fd=None))]
    fn unlinkat(&self, path: &Bound<'_, PyAny>, flags: i32, dir_fd: Option<i32>) -> PyResult<()> {
        let path = PathArg::new("unlinkat", path)?;
        self.at(&path, ("unlink", dir_fd, false), |task, dir, path| task.unlinkat(dir, path, flags))
    }

    /// fchmodat2(2): `os.chmod` with `AT_*` flags.
    #[pyo3(signature = (path, mode, flags=0, *, dir_fd=None))]
    fn fchmodat(&self, path: &Bound<'_, PyAny>, mode: u32, flags: i32, dir_fd: Option<i32>) -> PyResult<()> {
        let path = PathArg::new("fchmodat", path)?;
        self.at(&path, ("chmod", dir_fd, follows(flags)), |task, dir, path| {
            task.fchmodat2(dir, path, mode, flags)
        })
    }

    /// fchownat(2): `os.chown` with `AT_*` flags.
    #[pyo3(signature = (path, uid, gid, flags=0, *, dir_fd=None))]
    fn fchownat(
        &self,
        path: &Bound<'_, PyAny>,
        uid: i64,
        gid: i64,
        flags: i32,
        dir_fd: Option<i32>,
    ) -> PyResult<()> {
        let (uid, gid) = (super::ids::id(uid)?, super::ids::id(gid)?);
        let path = PathArg::new("fchownat", path)?;
        self.at(&path, ("chown", dir_fd, follows(flags)), |task, dir, path| {
            task.fchownat(dir, path, uid, gid, flags)
        })
    }

    /// utimensat(2): two pairs of seconds and nanoseconds, or `None`; no path is the file behind `dir_fd`.
    #[pyo3(signature = (path=None, times=None, flags=0, *, dir_fd=None))]
    fn utimensat(
        &self,
        py: Python<'_>,
        path: Option<&Bound<'_, PyAny>>,
        times: Option<[(i64, u32); 2]>,
        flags: i32,
        dir_fd: Option<i32>,
    ) -> PyResult<()> {
        let times = times.map(|pair| pair.map(|(sec, nsec)| Timespec { sec, nsec }));
        let Some(path) = path else {
            let dir = self.dir(dir_fd);
            return self
                .change(py, "utime", &[Object::Fd(dir)], |task| task.utimensat(dir, None, times, flags))
                .plain(py);
        };
        let path = PathArg::new("utimensat", path)?;
        self.at(&path, ("utime", dir_fd, follows(flags)), |task, dir, path| {
            task.utimensat(dir, Some(path), times, flags)
        })
    }

    /// fcntl(2) with an integer argument.
    #[pyo3(signature = (fd, cmd, arg=0))]
    fn fcntl(&self, py: Python<'_>, fd: i32, cmd: i32, arg: i32) -> PyResult<i32> {
        use uapi::{F_DUPFD, F_DUPFD_CLOEXEC};
        let duplicates = matches!(cmd, F_DUPFD | F_DUPFD_CLOEXEC);
        let arg = if duplicates { arg.saturating_sub(self.fd_base) } else { arg };
        let answer = self.on(py, "fcntl", fd, |task, fd| task.fcntl(fd, cmd, arg))?;
        Ok(if duplicates { self.fd_out(answer) } else { answer })
    }

    /// `fcntl.flock`, which never waits: what would is `BlockingIOError`.
    fn flock(&self, fd: &Bound<'_, PyAny>, operation: i32) -> PyResult<()> {
        self.on(fd.py(), "flock", fileno(fd)?, |task, fd| task.flock(fd, operation))
    }

    /// `fcntl.lockf`, which never waits, either.
    #[pyo3(signature = (fd, cmd, len=0, start=0, whence=0))]
    fn fcntl_lockf(
        &self,
        fd: &Bound<'_, PyAny>,
        cmd: i32,
        len: i64,
        start: i64,
        whence: i16,
    ) -> PyResult<()> {
        let kind = match cmd & !uapi::LOCK_NB {
            uapi::LOCK_SH => uapi::F_RDLCK,
            uapi::LOCK_EX => uapi::F_WRLCK,
            uapi::LOCK_UN => uapi::F_UNLCK,
            _ => return Err(pyo3::exceptions::PyValueError::new_err("unrecognized lockf argument")),
        };
        let mut lock = rcuwalk::Flock { kind, whence, start, len, pid: 0 };
        self.on(fd.py(), "fcntl", fileno(fd)?, |task, fd| task.fcntl_lock(fd, uapi::F_SETLK, &mut lock))
    }

    /// dup3(2)
    fn dup3(&self, py: Python<'_>, fd: i32, fd2: i32, flags: i32) -> PyResult<i32> {
        let to = self.fd_in(fd2);
        let fd = self.on(py, "dup3", fd, |task, fd| task.dup3(fd, to, flags))?;
        Ok(self.fd_out(fd))
    }

    /// getdents64(2): name, type (`DT_*`) and inode number of the entries from the position on, `.` and `..` first.
    #[pyo3(signature = (fd, count=1024))]
    fn getdents<'py>(
        &self,
        py: Python<'py>,
        fd: i32,
        count: usize,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, u8, u64)>> {
        let entries = self.on(py, "getdents", fd, |task, fd| {
            let mut entries = Vec::new();
            task.getdents(fd, &mut entries, count).map(|_| entries)
        })?;
        entries.iter().map(|e| Ok((name_of(py, &e.name, true)?, e.kind, e.ino))).collect()
    }

    /// fallocate(2)
    #[pyo3(signature = (fd, mode, offset, length))]
    fn fallocate(&self, py: Python<'_>, fd: i32, mode: i32, offset: i64, length: i64) -> PyResult<()> {
        self.on(py, "fallocate", fd, |task, fd| task.fallocate(fd, mode, offset, length))
    }
}
