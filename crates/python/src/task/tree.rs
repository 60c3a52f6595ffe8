//! Names: mkdir, rename, link and the like.

use super::PyTask;
use crate::args::PathArg;
use crate::error::Answer;
use crate::faults::Object;
use pyo3::prelude::*;
use rcuwalk::uapi::{AT_REMOVEDIR, AT_SYMLINK_FOLLOW, S_IFIFO};
use rcuwalk::{Result, Task};

impl PyTask {
    /// A call about two names.
    pub(super) fn between<R: Send>(
        &self,
        name: &str,
        (old, old_dir): (&PathArg<'_>, Option<i32>),
        (new, new_dir): (&PathArg<'_>, Option<i32>),
        call: impl FnOnce(&Task, (i32, &[u8]), (i32, &[u8])) -> Result<R> + Send,
    ) -> PyResult<R> {
        let (from, to) = ((self.dir(old_dir), old.bytes()), (self.dir(new_dir), new.bytes()));
        let objects = [Object::Path(from.0, from.1, false), Object::Path(to.0, to.1, false)];
        let py = old.object.py();
        self.change(py, name, &objects, |task| call(task, from, to)).of_both(&old.object, &new.object)
    }

    fn rename_at(
        &self,
        call: &str,
        src: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        (src_dir_fd, dst_dir_fd): (Option<i32>, Option<i32>),
        flags: u32,
    ) -> PyResult<()> {
        let (old, new) = (PathArg::new(call, src)?, PathArg::new(call, dst)?);
        self.between("rename", (&old, src_dir_fd), (&new, dst_dir_fd), |task, from, to| {
            task.renameat2(from.0, from.1, to.0, to.1, flags)
        })
    }
}

#[pymethods]
impl PyTask {
    /// `os.mkdir`
    #[pyo3(signature = (path, mode=0o777, *, dir_fd=None))]
    fn mkdir(&self, path: &Bound<'_, PyAny>, mode: u32, dir_fd: Option<i32>) -> PyResult<()> {
        let path = PathArg::new("mkdir", path)?;
        self.at(&path, ("mkdir", dir_fd, false), |task, dir, path| task.mkdirat(dir, path, mode))
    }

    /// `os.mknod`
    #[pyo3(signature = (path, mode=0o600, device=0, *, dir_fd=None))]
    fn mknod(&self, path: &Bound<'_, PyAny>, mode: u32, device: u64, dir_fd: Option<i32>) -> PyResult<()> {
        let path = PathArg::new("mknod", path)?;
        self.at(&path, ("mknod", dir_fd, false), |task, dir, path| task.mknodat(dir, path, mode, device))
    }

    /// `os.mkfifo`
    #[pyo3(signature = (path, mode=0o666, *, dir_fd=None))]
    fn mkfifo(&self, path: &Bound<'_, PyAny>, mode: u32, dir_fd: Option<i32>) -> PyResult<()> {
        let path = PathArg::new("mkfifo", path)?;
        self.at(&path, ("mknod", dir_fd, false), |task, dir, path| {
            task.mknodat(dir, path, S_IFIFO | mode & 0o7777, 0)
        })
    }

    /// `os.rmdir`
    #[pyo3(signature = (path, *, dir_fd=None))]
    fn rmdir(&self, path: &Bound<'_, PyAny>, dir_fd: Option<i32>) -> PyResult<()> {
        let path = PathArg::new("rmdir", path)?;
        self.at(&path, ("rmdir", dir_fd, false), |task, dir, path| task.unlinkat(dir, path, AT_REMOVEDIR))
    }

    /// `os.unlink`
    #[pyo3(signature = (path, *, dir_fd=None))]
    fn unlink(&self, path: &Bound<'_, PyAny>, dir_fd: Option<i32>) -> PyResult<()> {
        let path = PathArg::new("unlink", path)?;
        self.at(&path, ("unlink", dir_fd, false), |task, dir, path| task.unlinkat(dir, path, 0))
    }

    /// `os.remove`
    #[pyo3(signature = (path, *, dir_fd=None))]
    fn remove(&self, path: &Bound<'_, PyAny>, dir_fd: Option<i32>) -> PyResult<()> {
        let path = PathArg::new("remove", path)?;
        self.at(&path, ("unlink", dir_fd, false), |task, dir, path| task.unlinkat(dir, path, 0))
    }

    /// `os.symlink`
    #[pyo3(signature = (src, dst, target_is_directory=false, *, dir_fd=None))]
    fn symlink(
        &self,
        src: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        target_is_directory: bool,
        dir_fd: Option<i32>,
    ) -> PyResult<()> {
        // Means something on Windows only.
        let _ = target_is_directory;
        let (body, path) = (PathArg::new("symlink", src)?, PathArg::new("symlink", dst)?);
        let (dir, target, name) = (self.dir(dir_fd), body.bytes(), path.bytes());
        let objects = [Object::Path(dir, name, false)];
        self.change(src.py(), "symlink", &objects, |task| task.symlinkat(target, dir, name)).of_both(src, dst)
    }

    /// `os.link`. As with Python's own, a link at the end of `src` is followed only if a directory descriptor is given.
    #[pyo3(signature = (src, dst, *, src_dir_fd=None, dst_dir_fd=None, follow_symlinks=true))]
    fn link(
        &self,
        src: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        src_dir_fd: Option<i32>,
        dst_dir_fd: Option<i32>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let (old, new) = (PathArg::new("link", src)?, PathArg::new("link", dst)?);
        let follows = follow_symlinks && (src_dir_fd.is_some() || dst_dir_fd.is_some());
        let flags = if follows { AT_SYMLINK_FOLLOW } else { 0 };
        self.between("link", (&old, src_dir_fd), (&new, dst_dir_fd), |task, from, to| {
            task.linkat(from.0, from.1, to.0, to.1, flags)
        })
    }

    /// `os.rename`
    #[pyo3(signature = (src, dst, *, src_dir_fd=None, dst_dir_fd=None))]
    fn rename(
        &self,
        src: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        src_dir_fd: Option<i32>,
        dst_dir_fd: Option<i32>,
    ) -> PyResult<()> {
        self.rename_at("rename", src, dst, (src_dir_fd, dst_dir_fd), 0)
    }

    /// `os.replace`
    #[pyo3(signature = (src, dst, *, src_dir_fd=None, dst_dir_fd=None))]
    fn replace(
        &self,
        src: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        src_dir_fd: Option<i32>,
        dst_dir_fd: Option<i32>,
    ) -> PyResult<()> {
        self.rename_at("replace", src, dst, (src_dir_fd, dst_dir_fd), 0)
    }

    /// renameat2(2): `os.rename` with `RENAME_NOREPLACE`, `RENAME_EXCHANGE` or `RENAME_WHITEOUT`.
    #[pyo3(signature = (src, dst, flags=0, *, src_dir_fd=None, dst_dir_fd=None))]
    fn renameat2(
        &self,
        src: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        flags: u32,
        src_dir_fd: Option<i32>,
        dst_dir_fd: Option<i32>,
    ) -> PyResult<()> {
        self.rename_at("renameat2", src, dst, (src_dir_fd, dst_dir_fd), flags)
    }
}
