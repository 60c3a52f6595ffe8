//! execve: what the kernel decides before it loads a program.

use super::PyTask;
use crate::args::PathArg;
use crate::error::Answer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping};
use rcuwalk::uapi::AT_FDCWD;
use rcuwalk::{Exec, Libc};

/// Arguments.
fn strings<'py>(list: &Bound<'py, PyAny>) -> PyResult<Vec<PathArg<'py>>> {
    list.try_iter()?.map(|item| PathArg::new("execve", &item?)).collect()
}

/// An environment: a mapping of names to values as `os.execve` takes it, or the strings themselves.
fn environment(env: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Vec<u8>>> {
    let Some(env) = env else { return Ok(Vec::new()) };
    let Ok(mapping) = env.cast::<PyMapping>() else {
        return Ok(strings(env)?.iter().map(|string| string.bytes().to_vec()).collect());
    };
    let mut all = Vec::new();
    for pair in mapping.items()?.iter() {
        let (name, value) =
            (PathArg::new("execve", &pair.get_item(0)?)?, PathArg::new("execve", &pair.get_item(1)?)?);
        if name.bytes().is_empty() || name.bytes()[1..].contains(&b'=') {
            return Err(PyValueError::new_err("illegal environment variable name"));
        }
        all.push([name.bytes(), b"=", value.bytes()].concat());
    }
    Ok(all)
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
        let (argv, envp) = (strings(argv)?, environment(env)?);
        let argv: Vec<&[u8]> = argv.iter().map(PathArg::bytes).collect();
        let envp: Vec<&[u8]> = envp.iter().map(Vec::as_slice).collect();
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
        let (argv, envp) = (strings(argv)?, environment(env)?);
        let argv: Vec<&[u8]> = argv.iter().map(PathArg::bytes).collect();
        let envp: Vec<&[u8]> = envp.iter().map(Vec::as_slice).collect();
        let (dir, file) = (dir_fd.map_or(AT_FDCWD, |fd| self.fd_in(fd)), arg.bytes());
        let exec = self.become_(py, |task| task.execveat(dir, file, &argv, &envp, flags)).of(path)?;
        exec.map(|exec| program(py, &exec)).transpose()
    }

    /// execvpe(3) of `libc` ("glibc" or "musl"); `search` is the value of `PATH`, by default that of a mapping `env`.
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
        let (argv, envp) = (strings(argv)?, environment(env)?);
        let argv: Vec<&[u8]> = argv.iter().map(PathArg::bytes).collect();
        let envp: Vec<&[u8]> = envp.iter().map(Vec::as_slice).collect();
        let of_env = || {
            env.is_some_and(|env| env.cast::<PyMapping>().is_ok())
                .then(|| envp.iter().find_map(|variable| variable.strip_prefix(b"PATH=")))
        };
        let (search, name) =
            (search.as_ref().map(PathArg::bytes).or_else(|| of_env().flatten()), arg.bytes());
        let exec = self.become_(py, |task| task.execvpe(libc, search, name, &argv, &envp)).of(file)?;
        program(py, &exec)
    }
}
