//! `Task`: a process, whose methods are the functions of `os`.

mod attr;
mod exec;
mod ids;
mod io;
mod kernel;
mod look;
mod mounts;
pub(crate) mod scan;
mod tree;
mod xattr;

use crate::args::{PathArg, fileno};
use crate::cred::PyCred;
use crate::error::Answer;
use crate::faults::{Object, Shared};
use crate::gate;
use crate::vfs::PyVfs;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use rcuwalk::uapi::{
    AT_FDCWD, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL, F_SETFD, F_SETFL, FD_CLOEXEC, O_CLOEXEC, O_NONBLOCK,
};
use rcuwalk::{CloneFlags, Cred, Result, Task};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// A process in a file system.
#[pyclass(name = "Task", module = "rcuwalk", frozen, subclass, weakref)]
#[derive(Debug)]
pub(crate) struct PyTask {
    /// Written to by calls that change the credential.
    task: RwLock<Task>,
    shared: Arc<Shared>,
    vfs: Py<PyVfs>,
    /// What is added to the engine's descriptors, so that they cannot be taken for the interpreter's own.
    fd_base: i32,
}

impl PyTask {
    fn held(&self) -> RwLockReadGuard<'_, Task> {
        self.task.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine's descriptor for one of the caller's: one that is never open, for what is none of ours.
    fn fd_in(&self, fd: i32) -> i32 {
        if self.fd_base == 0 || fd == AT_FDCWD {
            fd
        } else {
            fd.checked_sub(self.fd_base).filter(|fd| *fd >= 0).unwrap_or(-1)
        }
    }

    /// A directory descriptor; `None` is the current directory.
    fn dir(&self, fd: Option<i32>) -> i32 {
        fd.map_or(AT_FDCWD, |fd| self.fd_in(fd))
    }

    fn fd_out(&self, fd: i32) -> i32 {
        fd.saturating_add(self.fd_base)
    }

    /// Makes a call that neither waits nor takes long.
    fn look<R>(
        &self,
        name: &str,
        objects: &[Object<'_>],
        call: impl FnOnce(&Task) -> Result<R>,
    ) -> Result<R> {
        let _gate = gate::enter();
        let task = self.held();
        if self.shared.faults.armed() {
            self.shared.faults.check(&task, name, objects, 0)?;
        }
        call(&task)
    }

    /// Makes a call that may wait or take long: without the interpreter lock.
    fn change<R: Send>(
        &self,
        py: Python<'_>,
        name: &str,
        objects: &[Object<'_>],
        call: impl FnOnce(&Task) -> Result<R> + Send,
    ) -> Result<R> {
        py.detach(|| self.look(name, objects, call))
    }

    /// Makes a call that changes who the task is.
    fn become_<R: Send>(&self, py: Python<'_>, call: impl FnOnce(&mut Task) -> R + Send) -> R {
        py.detach(|| {
            let _gate = gate::enter();
            call(&mut self.task.write().unwrap_or_else(PoisonError::into_inner))
        })
    }

    /// A path call that changes something.
    fn at<R: Send>(
        &self,
        path: &PathArg<'_>,
        (name, dir_fd, follow): (&str, Option<i32>, bool),
        call: impl FnOnce(&Task, i32, &[u8]) -> Result<R> + Send,
    ) -> PyResult<R> {
        let (dirfd, bytes) = (self.dir(dir_fd), path.bytes());
        let objects = [Object::Path(dirfd, bytes, follow)];
        self.change(path.object.py(), name, &objects, |task| call(task, dirfd, bytes)).of(&path.object)
    }

    /// A descriptor call that changes something.
    fn on<R: Send>(
        &self,
        py: Python<'_>,
        name: &str,
        fd: i32,
        call: impl FnOnce(&Task, i32) -> Result<R> + Send,
    ) -> PyResult<R> {
        let fd = self.fd_in(fd);
        self.change(py, name, &[Object::Fd(fd)], |task| call(task, fd)).plain(py)
    }
}

#[pymethods]
impl PyTask {
    /// A new process of a file system; a child (`how="fork"`) or a thread (`how="thread"`) of a task, or what clone(2) makes
    /// with `flags` (`how="clone"`).
    #[new]
    #[pyo3(signature = (origin, cred=None, *, how="fork", flags=0, fd_base=None))]
    fn new(
        origin: &Bound<'_, PyAny>,
        cred: Option<&Bound<'_, PyCred>>,
        how: &str,
        flags: u64,
        fd_base: Option<i32>,
    ) -> PyResult<PyTask> {
        if fd_base.is_some_and(|base| base < 0) {
            return Err(PyValueError::new_err("fd_base must not be negative"));
        }
        let cred = cred.map(|cred| cred.get().0.clone());
        let _gate = gate::enter();
        if let Ok(vfs) = origin.cast::<PyVfs>() {
            let shared = Arc::clone(&vfs.get().0);
            let task = RwLock::new(shared.vfs.task(cred.unwrap_or_else(Cred::root)));
            let (vfs, fd_base) = (vfs.clone().unbind(), fd_base.unwrap_or(0));
            return Ok(PyTask { task, shared, vfs, fd_base });
        }
        let Ok(origin) = origin.cast::<PyTask>() else {
            return Err(PyTypeError::new_err("a task comes from a Vfs or from a Task"));
        };
        let (origin, py) = (origin.get(), origin.py());
        let mut task = match how {
            "fork" => origin.held().fork(),
            "thread" => origin.held().thread(),
            "clone" => {
                let cloned = CloneFlags::from_bits(flags).and_then(|flags| origin.held().clone_with(flags));
                cloned.plain(py)?
            }
            _ => return Err(PyValueError::new_err("how is \"fork\", \"thread\" or \"clone\"")),
        };
        if let Some(cred) = cred {
            task.set_cred(cred);
        }
        let (vfs, fd_base) = (origin.vfs.clone_ref(py), fd_base.unwrap_or(origin.fd_base));
        Ok(PyTask { task: RwLock::new(task), shared: Arc::clone(&origin.shared), vfs, fd_base })
    }

    /// The file system.
    #[getter]
    fn vfs(&self, py: Python<'_>) -> Py<PyVfs> {
        self.vfs.clone_ref(py)
    }

    /// Who the task is; may be set.
    #[getter]
    fn cred(&self) -> PyCred {
        PyCred(self.held().cred().clone())
    }

    #[setter]
    fn set_cred(&self, py: Python<'_>, cred: &PyCred) {
        let cred = cred.0.clone();
        self.become_(py, |task| task.set_cred(cred));
    }

    /// `os.close`
    fn close(&self, py: Python<'_>, fd: i32) -> PyResult<()> {
        self.on(py, "close", fd, |task, fd| task.close(fd))
    }

    /// `os.closerange`
    fn closerange(&self, py: Python<'_>, fd_low: i32, fd_high: i32) {
        let (low, high) = (self.fd_in(fd_low).max(0), self.fd_in(fd_high).min(1 << 20));
        py.detach(|| {
            let _gate = gate::enter();
            let task = self.held();
            // That some are not open is expected.
            for fd in low..high {
                let _ = task.close(fd);
            }
        });
    }

    /// `os.dup`
    fn dup(&self, py: Python<'_>, fd: i32) -> PyResult<i32> {
        let fd = self.on(py, "dup", fd, |task, fd| task.fcntl(fd, F_DUPFD_CLOEXEC, 0))?;
        Ok(self.fd_out(fd))
    }

    /// `os.dup2`
    #[pyo3(signature = (fd, fd2, inheritable=true))]
    fn dup2(&self, py: Python<'_>, fd: i32, fd2: i32, inheritable: bool) -> PyResult<i32> {
        let to = self.fd_in(fd2);
        let got = self.on(py, "dup2", fd, |task, fd| {
            if inheritable || fd == to { task.dup2(fd, to) } else { task.dup3(fd, to, O_CLOEXEC) }
        })?;
        Ok(self.fd_out(got))
    }

    /// `os.get_inheritable`
    fn get_inheritable(&self, py: Python<'_>, fd: i32) -> PyResult<bool> {
        Ok(self.on(py, "fcntl", fd, |task, fd| task.fcntl(fd, F_GETFD, 0))? & FD_CLOEXEC == 0)
    }

    /// `os.set_inheritable`
    fn set_inheritable(&self, py: Python<'_>, fd: i32, inheritable: bool) -> PyResult<()> {
        let flags = if inheritable { 0 } else { FD_CLOEXEC };
        self.on(py, "fcntl", fd, |task, fd| task.fcntl(fd, F_SETFD, flags).map(drop))
    }

    /// `os.get_blocking`
    fn get_blocking(&self, py: Python<'_>, fd: i32) -> PyResult<bool> {
        Ok(self.on(py, "fcntl", fd, |task, fd| task.fcntl(fd, F_GETFL, 0))? & O_NONBLOCK == 0)
    }

    /// `os.set_blocking`
    fn set_blocking(&self, py: Python<'_>, fd: i32, blocking: bool) -> PyResult<()> {
        self.on(py, "fcntl", fd, |task, fd| {
            let flags = task.fcntl(fd, F_GETFL, 0)? & !O_NONBLOCK;
            task.fcntl(fd, F_SETFL, flags | if blocking { 0 } else { O_NONBLOCK }).map(drop)
        })
    }

    /// `os.isatty`: never; there are no terminals here.
    fn isatty(&self, fd: i32) -> bool {
        let _ = fd;
        false
    }

    /// `os.umask`
    fn umask(&self, mask: i32) -> u32 {
        self.held().umask(mask as u32)
    }

    /// `os.getcwd`
    fn getcwd<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let cwd = self.change(py, "getcwd", &[], Task::getcwd).plain(py)?;
        crate::args::name_str(py, &cwd)
    }

    /// `os.getcwdb`
    fn getcwdb<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyBytes>> {
        let cwd = self.change(py, "getcwd", &[], Task::getcwd).plain(py)?;
        Ok(pyo3::types::PyBytes::new(py, &cwd))
    }

    /// `os.chdir`
    fn chdir(&self, path: &Bound<'_, PyAny>) -> PyResult<()> {
        match crate::args::Target::new("chdir", path)? {
            crate::args::Target::Fd(_) => self.fchdir(path),
            crate::args::Target::Path(path) => {
                self.at(&path, ("chdir", None, true), |task, _, path| task.chdir(path))
            }
        }
    }

    /// `os.fchdir`
    fn fchdir(&self, fd: &Bound<'_, PyAny>) -> PyResult<()> {
        self.on(fd.py(), "fchdir", fileno(fd)?, |task, fd| task.fchdir(fd))
    }

    /// `os.chroot`
    fn chroot(&self, path: &Bound<'_, PyAny>) -> PyResult<()> {
        let path = PathArg::new("chroot", path)?;
        self.at(&path, ("chroot", None, true), |task, _, path| task.chroot(path))
    }

    fn __repr__(&self) -> String {
        let task = self.held();
        format!("<rcuwalk.Task of uid {}>", task.cred().fsuid())
    }
}
