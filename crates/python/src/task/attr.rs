//! Attributes: chmod, chown, utime, truncate.

use super::PyTask;
use super::look::nofollow;
use crate::args::{PathArg, Target, fileno};
use pyo3::exceptions::{PyNotImplementedError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyTuple};
use rcuwalk::{Errno, Timespec};

/// A time in seconds, as `os.utime` takes it: whole, or a float, whose excess beyond a nanosecond is dropped.
fn seconds(object: &Bound<'_, PyAny>) -> PyResult<Timespec> {
    let Ok(float) = object.cast::<PyFloat>() else {
        return Ok(Timespec { sec: object.extract()?, nsec: 0 });
    };
    let value = float.value();
    if value.is_nan() {
        return Err(PyValueError::new_err("Invalid value NaN (not a number)"));
    }
    let (whole, nanos) = (value.trunc(), (value.fract() * 1e9).floor());
    let (whole, nanos) = if nanos < 0.0 { (whole - 1.0, nanos + 1e9) } else { (whole, nanos) };
    if whole.abs() >= 9.2e18 {
        return Err(PyOverflowError::new_err("timestamp out of range for platform time_t"));
    }
    Ok(Timespec { sec: whole as i64, nsec: nanos as u32 })
}

/// A time in nanoseconds.
fn nanoseconds(object: &Bound<'_, PyAny>) -> PyResult<Timespec> {
    let ns: i128 = object.extract()?;
    let sec = i64::try_from(ns.div_euclid(1_000_000_000))
        .map_err(|_| PyOverflowError::new_err("timestamp out of range for platform time_t"))?;
    Ok(Timespec { sec, nsec: ns.rem_euclid(1_000_000_000) as u32 })
}

fn pair(
    object: &Bound<'_, PyAny>,
    what: &str,
    read: fn(&Bound<'_, PyAny>) -> PyResult<Timespec>,
) -> PyResult<[Timespec; 2]> {
    let wrong = || PyTypeError::new_err(format!("utime: '{what}' must be a tuple of two ints"));
    let tuple = object.cast::<PyTuple>().map_err(|_| wrong())?;
    if tuple.len() != 2 {
        return Err(wrong());
    }
    Ok([read(&tuple.get_item(0)?)?, read(&tuple.get_item(1)?)?])
}

#[pymethods]
impl PyTask {
    /// `os.chmod`
    #[pyo3(signature = (path, mode, *, dir_fd=None, follow_symlinks=true))]
    fn chmod(
        &self,
        path: &Bound<'_, PyAny>,
        mode: u32,
        dir_fd: Option<i32>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        match Target::new("chmod", path)? {
            Target::Fd(fd) => self.on(path.py(), "chmod", fd, |task, fd| task.fchmod(fd, mode)),
            Target::Path(arg) => {
                // `os` says of a link that the platform cannot, where the call says EOPNOTSUPP.
                let (mut is_link, flags) = (false, nofollow(follow_symlinks));
                let result = self.at(&arg, ("chmod", dir_fd, follow_symlinks), |task, dir, path| {
                    let result = task.fchmodat2(dir, path, mode, flags);
                    is_link = !follow_symlinks && result == Err(Errno::EOPNOTSUPP);
                    result
                });
                match dir_fd {
                    _ if !is_link => result,
                    Some(_) => {
                        Err(PyValueError::new_err("chmod: cannot use dir_fd and follow_symlinks together"))
                    }
                    None => Err(PyNotImplementedError::new_err(
                        "chmod: follow_symlinks unavailable on this platform",
                    )),
                }
            }
        }
    }

    /// `os.fchmod`
    fn fchmod(&self, py: Python<'_>, fd: i32, mode: u32) -> PyResult<()> {
        self.on(py, "chmod", fd, |task, fd| task.fchmod(fd, mode))
    }

    /// `os.chown`; -1 leaves an id as it is.
    #[pyo3(signature = (path, uid, gid, *, dir_fd=None, follow_symlinks=true))]
    fn chown(
        &self,
        path: &Bound<'_, PyAny>,
        uid: i64,
        gid: i64,
        dir_fd: Option<i32>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let (uid, gid) = (super::ids::id(uid)?, super::ids::id(gid)?);
        match Target::new("chown", path)? {
            Target::Fd(fd) => self.on(path.py(), "chown", fd, |task, fd| task.fchown(fd, uid, gid)),
            Target::Path(path) => self.at(&path, ("chown", dir_fd, follow_symlinks), |task, dir, path| {
                task.fchownat(dir, path, uid, gid, nofollow(follow_symlinks))
            }),
        }
    }

    /// `os.lchown`
    fn lchown(&self, path: &Bound<'_, PyAny>, uid: i64, gid: i64) -> PyResult<()> {
        let (uid, gid) = (super::ids::id(uid)?, super::ids::id(gid)?);
        let path = PathArg::new("lchown", path)?;
        self.at(&path, ("chown", None, false), |task, _, path| task.lchown(path, uid, gid))
    }

    /// `os.fchown`
    fn fchown(&self, py: Python<'_>, fd: i32, uid: i64, gid: i64) -> PyResult<()> {
        let (uid, gid) = (super::ids::id(uid)?, super::ids::id(gid)?);
        self.on(py, "chown", fd, |task, fd| task.fchown(fd, uid, gid))
    }

    /// `os.utime`
    #[pyo3(signature = (path, times=None, *, ns=None, dir_fd=None, follow_symlinks=true))]
    fn utime(
        &self,
        path: &Bound<'_, PyAny>,
        times: Option<&Bound<'_, PyAny>>,
        ns: Option<&Bound<'_, PyAny>>,
        dir_fd: Option<i32>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let target = Target::new("utime", path)?;
        let times = match (times, ns) {
            (Some(_), Some(_)) => {
                let text = "utime: you may specify either 'times' or 'ns' but not both";
                return Err(PyValueError::new_err(text));
            }
            (Some(times), None) => Some(pair(times, "times", seconds)?),
            (None, Some(ns)) => Some(pair(ns, "ns", nanoseconds)?),
            (None, None) => None,
        };
        match target {
            Target::Fd(fd) => self.on(path.py(), "utime", fd, |task, fd| task.utimensat(fd, None, times, 0)),
            Target::Path(path) => self.at(&path, ("utime", dir_fd, follow_symlinks), |task, dir, path| {
                task.utimensat(dir, Some(path), times, nofollow(follow_symlinks))
            }),
        }
    }

    /// `os.truncate`
    fn truncate(&self, path: &Bound<'_, PyAny>, length: i64) -> PyResult<()> {
        match Target::new("truncate", path)? {
            Target::Fd(fd) => self.ftruncate(path.py(), fd, length),
            Target::Path(path) => {
                self.at(&path, ("truncate", None, true), |task, _, path| task.truncate(path, length))
            }
        }
    }

    /// `os.ftruncate`
    fn ftruncate(&self, py: Python<'_>, fd: i32, length: i64) -> PyResult<()> {
        self.on(py, "truncate", fd, |task, fd| task.ftruncate(fd, length))
    }

    /// `os.fsync`: everything is where it will ever be.
    fn fsync(&self, fd: &Bound<'_, PyAny>) -> PyResult<()> {
        self.on(fd.py(), "fsync", fileno(fd)?, |task, fd| task.fsync(fd))
    }

    /// `os.fdatasync`
    fn fdatasync(&self, fd: &Bound<'_, PyAny>) -> PyResult<()> {
        self.on(fd.py(), "fsync", fileno(fd)?, |task, fd| task.fdatasync(fd))
    }

    /// `os.sync`
    fn sync(&self) {}

    /// The inode flags of an open file (`FS_IOC_GETFLAGS`).
    fn getflags(&self, py: Python<'_>, fd: i32) -> PyResult<u32> {
        self.on(py, "getflags", fd, |task, fd| task.getflags(fd))
    }

    /// Sets the inode flags of an open file (`FS_IOC_SETFLAGS`).
    fn setflags(&self, py: Python<'_>, fd: i32, flags: u32) -> PyResult<()> {
        self.on(py, "setflags", fd, |task, fd| task.setflags(fd, flags))
    }
}
