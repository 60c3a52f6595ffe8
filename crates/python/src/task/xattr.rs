//! Extended attributes.

use super::PyTask;
use super::kernel::follows;
use crate::args::{Data, PathArg, Target, name_str};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use rcuwalk::{Result, Task};

impl PyTask {
    /// One of the three forms of an attribute call.
    fn xattr<R: Send>(
        &self,
        name: &str,
        py: Python<'_>,
        target: &Target<'_>,
        follow: bool,
        calls: (
            impl FnOnce(&Task, i32) -> Result<R> + Send,
            impl FnOnce(&Task, &[u8]) -> Result<R> + Send,
            impl FnOnce(&Task, &[u8]) -> Result<R> + Send,
        ),
    ) -> PyResult<R> {
        match target {
            Target::Fd(fd) => self.on(py, name, *fd, calls.0),
            Target::Path(path) if follow => {
                self.at(path, (name, None, true), |task, _, path| calls.1(task, path))
            }
            Target::Path(path) => self.at(path, (name, None, false), |task, _, path| calls.2(task, path)),
        }
    }
}

#[pymethods]
impl PyTask {
    /// `os.getxattr`
    #[pyo3(signature = (path, attribute, *, follow_symlinks=true))]
    fn getxattr<'py>(
        &self,
        path: &Bound<'py, PyAny>,
        attribute: &Bound<'py, PyAny>,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (target, name) = (Target::new("getxattr", path)?, PathArg::new("getxattr", attribute)?);
        let name = name.bytes();
        let value = self.xattr(
            "getxattr",
            path.py(),
            &target,
            follow_symlinks,
            (
                |task, fd| task.fgetxattr(fd, name),
                |task, path| task.getxattr(path, name),
                |task, path| task.lgetxattr(path, name),
            ),
        )?;
        Ok(PyBytes::new(path.py(), &value))
    }

    /// `os.setxattr`
    #[pyo3(signature = (path, attribute, value, flags=0, *, follow_symlinks=true))]
    fn setxattr(
        &self,
        path: &Bound<'_, PyAny>,
        attribute: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        flags: i32,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let (target, name) = (Target::new("setxattr", path)?, PathArg::new("setxattr", attribute)?);
        let data = Data::new(value)?;
        let (name, value) = (name.bytes(), data.bytes());
        self.xattr(
            "setxattr",
            path.py(),
            &target,
            follow_symlinks,
            (
                |task, fd| task.fsetxattr(fd, name, value, flags),
                |task, path| task.setxattr(path, name, value, flags),
                |task, path| task.lsetxattr(path, name, value, flags),
            ),
        )
    }

    /// `os.removexattr`
    #[pyo3(signature = (path, attribute, *, follow_symlinks=true))]
    fn removexattr(
        &self,
        path: &Bound<'_, PyAny>,
        attribute: &Bound<'_, PyAny>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let (target, name) = (Target::new("removexattr", path)?, PathArg::new("removexattr", attribute)?);
        let name = name.bytes();
        self.xattr(
            "removexattr",
            path.py(),
            &target,
            follow_symlinks,
            (
                |task, fd| task.fremovexattr(fd, name),
                |task, path| task.removexattr(path, name),
                |task, path| task.lremovexattr(path, name),
            ),
        )
    }

    /// `os.listxattr`
    #[pyo3(signature = (path=None, *, follow_symlinks=true))]
    fn listxattr<'py>(
        &self,
        py: Python<'py>,
        path: Option<&Bound<'py, PyAny>>,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let target = Target::or_cwd("listxattr", path, py)?;
        let names = self.xattr(
            "listxattr",
            py,
            &target,
            follow_symlinks,
            (
                |task, fd| task.flistxattr(fd),
                |task, path| task.listxattr(path),
                |task, path| task.llistxattr(path),
            ),
        )?;
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        PyList::new(py, names.map(|name| name_str(py, name)).collect::<PyResult<Vec<_>>>()?)
    }

    /// setxattrat(2): `os.setxattr` from a directory, with `AT_*` flags.
    #[pyo3(signature = (path, attribute, value, flags=0, at_flags=0, *, dir_fd=None))]
    #[allow(clippy::too_many_arguments)]
    fn setxattrat(
        &self,
        path: &Bound<'_, PyAny>,
        attribute: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        flags: i32,
        at_flags: i32,
        dir_fd: Option<i32>,
    ) -> PyResult<()> {
        let (path, name) = (PathArg::new("setxattrat", path)?, PathArg::new("setxattrat", attribute)?);
        let data = Data::new(value)?;
        let (name, value) = (name.bytes(), data.bytes());
        self.at(&path, ("setxattr", dir_fd, follows(at_flags)), |task, dir, path| {
            task.setxattrat(dir, path, at_flags, name, value, flags)
        })
    }

    /// getxattrat(2): `os.getxattr` from a directory, with `AT_*` flags.
    #[pyo3(signature = (path, attribute, at_flags=0, *, dir_fd=None))]
    fn getxattrat<'py>(
        &self,
        path: &Bound<'py, PyAny>,
        attribute: &Bound<'py, PyAny>,
        at_flags: i32,
        dir_fd: Option<i32>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (arg, name) = (PathArg::new("getxattrat", path)?, PathArg::new("getxattrat", attribute)?);
        let name = name.bytes();
        let value = self.at(&arg, ("getxattr", dir_fd, follows(at_flags)), |task, dir, path| {
            task.getxattrat(dir, path, at_flags, name)
        })?;
        Ok(PyBytes::new(path.py(), &value))
    }

    /// listxattrat(2): names as bytes, from a directory, with `AT_*` flags.
    #[pyo3(signature = (path, at_flags=0, *, dir_fd=None))]
    fn listxattrat<'py>(
        &self,
        path: &Bound<'py, PyAny>,
        at_flags: i32,
        dir_fd: Option<i32>,
    ) -> PyResult<Bound<'py, PyList>> {
        let arg = PathArg::new("listxattrat", path)?;
        let names = self.at(&arg, ("listxattr", dir_fd, follows(at_flags)), |task, dir, path| {
            task.listxattrat(dir, path, at_flags)
        })?;
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        PyList::new(path.py(), names.map(|name| PyBytes::new(path.py(), name)).collect::<Vec<_>>())
    }

    /// removexattrat(2): `os.removexattr` from a directory, with `AT_*` flags.
    #[pyo3(signature = (path, attribute, at_flags=0, *, dir_fd=None))]
    fn removexattrat(
        &self,
        path: &Bound<'_, PyAny>,
        attribute: &Bound<'_, PyAny>,
        at_flags: i32,
        dir_fd: Option<i32>,
    ) -> PyResult<()> {
        let (path, name) = (PathArg::new("removexattrat", path)?, PathArg::new("removexattrat", attribute)?);
        let name = name.bytes();
        self.at(&path, ("removexattr", dir_fd, follows(at_flags)), |task, dir, path| {
            task.removexattrat(dir, path, at_flags, name)
        })
    }
}
