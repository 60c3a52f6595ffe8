//! execve: what the kernel decides before it loads a program.

use super::PyTask;
use crate::args::PathArg;
use crate::error::Answer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use rcuwalk::uapi::AT_FDCWD;
use rcuwalk::{Exec, Libc};

/// Arguments or environment strings.
fn strings<'py>(list: &Bound<'py, PyAny>) -> PyResult<Vec<PathArg<'py>>> {
    list.try_iter()?.map(|item| PathArg::new("execve", &item?)).collect()
}

/// A program that is about to run.
fn program<'py>(py: Python<'py>, exec: &Exec) -> PyResult<Bound<'py, PyDict>> {
    let list = |strings: &[Vec<u8>]| PyList::new(py, strings.iter().map(|string| PyBytes::new(py, string)));
    let out = PyDict::new(py);
    out.set_item("argv", list(&exec.argv)?)?;
    out.set_item("envp", list(&exec.envp)?)?;
    out.set_item("filename", PyBytes::new(py, &exec.filename))?;
    out.set_item("interp", PyBytes::new(py, &exec.interp))?;
    out.set_item("interpreter", exec.interpreter.as_ref().map(|at| PyBytes::new(py, &at.path)))?;
    out.set_item("secure", exec.secureexec)?;
    out.set_item("dumpable", exec.dumpable)?;
    Ok(out)
}

#[pymethods]
impl PyTask {
    /// execve(2), as far as the kernel gets before it loads the program: who the task becomes, and what would be run.
    #[pyo3(signature = (path, argv, env=None))]
    fn execve<'py>(
        &self,
        py: Python<'py>,
        path: &Bound<'py, PyAny>,
        argv: &Bound<'py, PyAny>,
        env: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let arg = PathArg::new("execve", path)?;
        let (argv, envp) = (strings(argv)?, env.map_or_else(|| Ok(Vec::new()), strings)?);
        let argv: Vec<&[u8]> = argv.iter().map(PathArg::bytes).collect();
        let envp: Vec<&[u8]> = envp.iter().map(PathArg::bytes).collect();
        let file = arg.bytes();
        let exec = self.become_(py, |task| task.execve(file, &argv, &envp)).of(path)?;
        program(py, &exec)
    }

    /// execveat(2); `None` with `AT_EXECVE_CHECK`.
    #[pyo3(signature = (path, argv, env=None, flags=0, *, dir_fd=None))]
    fn execveat<'py>(
        &self,
        path: &Bound<'py, PyAny>,
        argv: &Bound<'py, PyAny>,
        env: Option<&Bound<'py, PyAny>>,
        flags: i32,
        dir_fd: Option<i32>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (arg, py) = (PathArg::new("execveat", path)?, path.py());
        let (argv, envp) = (strings(argv)?, env.map_or_else(|| Ok(Vec::new()), strings)?);
        let argv: Vec<&[u8]> = argv.iter().map(PathArg::bytes).collect();
        let envp: Vec<&[u8]> = envp.iter().map(PathArg::bytes).collect();
        let (dir, file) = (dir_fd.map_or(AT_FDCWD, |fd| self.fd_in(fd)), arg.bytes());
        let exec = self.become_(py, |task| task.execveat(dir, file, &argv, &envp, flags)).of(path)?;
        exec.map(|exec| program(py, &exec)).transpose()
    }

    /// execvpe(3) of `libc` ("glibc" or "musl"); `search` is the value of `PATH`.
    #[pyo3(signature = (file, argv, env=None, *, search=None, libc="glibc"))]
    fn execvpe<'py>(
        &self,
        file: &Bound<'py, PyAny>,
        argv: &Bound<'py, PyAny>,
        env: Option<&Bound<'py, PyAny>>,
        search: Option<&Bound<'py, PyAny>>,
        libc: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let libc = match libc {
            "glibc" => Libc::Glibc,
            "musl" => Libc::Musl,
            _ => return Err(PyValueError::new_err("libc is \"glibc\" or \"musl\"")),
        };
        let (arg, py) = (PathArg::new("execvpe", file)?, file.py());
        let search = search.map(|search| PathArg::new("execvpe", search)).transpose()?;
        let (argv, envp) = (strings(argv)?, env.map_or_else(|| Ok(Vec::new()), strings)?);
        let argv: Vec<&[u8]> = argv.iter().map(PathArg::bytes).collect();
        let envp: Vec<&[u8]> = envp.iter().map(PathArg::bytes).collect();
        let (search, name) = (search.as_ref().map(PathArg::bytes), arg.bytes());
        let exec = self.become_(py, |task| task.execvpe(libc, search, name, &argv, &envp)).of(file)?;
        program(py, &exec)
    }
}
