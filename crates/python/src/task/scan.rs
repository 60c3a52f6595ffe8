//! `os.scandir`.

use super::PyTask;
use super::look::stat_result;
use crate::args::{Target, name_of};
use crate::error::Answer;
use pyo3::exceptions::PyResourceWarning;
use pyo3::prelude::*;
use rcuwalk::uapi::{AT_FDCWD, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use rcuwalk::{Dirent, Errno};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// What `os.scandir` gives: an iterator, and a context manager.
#[pyclass(name = "ScandirIterator", module = "rcuwalk", frozen)]
#[derive(Debug)]
pub(crate) struct PyScan {
    task: Py<PyTask>,
    entries: Mutex<std::vec::IntoIter<Dirent>>,
    /// The directory, or the descriptor in its place.
    dir: i32,
    path: Vec<u8>,
    bytes: bool,
    /// Whether it was closed, or has told that there is no more.
    ended: AtomicBool,
}

impl Drop for PyScan {
    /// As `os` warns of an iterator that still has its directory open.
    fn drop(&mut self) {
        if *self.ended.get_mut() {
            return;
        }
        Python::attach(|py| {
            let warning = py.get_type::<PyResourceWarning>();
            if let Err(error) = PyErr::warn(py, &warning, c"unclosed scandir iterator", 1) {
                error.write_unraisable(py, None);
            }
        });
    }
}

/// An entry of a directory.
#[pyclass(name = "DirEntry", module = "rcuwalk", frozen)]
#[derive(Debug)]
pub(crate) struct PyDirEntry {
    task: Py<PyTask>,
    dir: i32,
    /// The path from `dir`.
    path: Vec<u8>,
    /// Where the name begins in it.
    name: usize,
    bytes: bool,
    kind: u32,
    ino: u64,
    /// The types of the entry and of what it leads to, once asked for; 0 for not yet.
    target: AtomicUsize,
}

#[pymethods]
impl PyTask {
    /// `os.scandir`
    #[pyo3(signature = (path=None))]
    fn scandir<'py>(slf: &Bound<'py, PyTask>, path: Option<&Bound<'py, PyAny>>) -> PyResult<PyScan> {
        let target = Target::or_cwd("scandir", path, slf.py())?;
        let (entries, bytes) = slf.get().entries(slf.py(), &target)?;
        let (dir, path) = match &target {
            Target::Fd(fd) => (slf.get().fd_in(*fd), Vec::new()),
            Target::Path(path) => {
                let mut path = path.bytes().to_vec();
                if path.last().is_some_and(|byte| *byte != b'/') {
                    path.push(b'/');
                }
                (AT_FDCWD, path)
            }
        };
        let (task, entries) = (slf.clone().unbind(), Mutex::new(entries.into_iter()));
        Ok(PyScan { task, entries, dir, path, bytes, ended: AtomicBool::new(false) })
    }
}

#[pymethods]
impl PyScan {
    fn __iter__(slf: Py<PyScan>) -> Py<PyScan> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> Option<PyDirEntry> {
        let Some(entry) = self.entries.lock().unwrap_or_else(PoisonError::into_inner).next() else {
            self.ended.store(true, Ordering::Relaxed);
            return None;
        };
        let mut path = Vec::with_capacity(self.path.len() + entry.name.len());
        path.extend_from_slice(&self.path);
        path.extend_from_slice(&entry.name);
        Some(PyDirEntry {
            task: self.task.clone_ref(py),
            dir: self.dir,
            path,
            name: self.path.len(),
            bytes: self.bytes,
            kind: u32::from(entry.kind) << 12,
            ino: entry.ino,
            target: AtomicUsize::new(0),
        })
    }

    /// Ends the iteration.
    fn close(&self) {
        // Relaxed: it guards nothing but a warning.
        self.ended.store(true, Ordering::Relaxed);
        *self.entries.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new().into_iter();
    }

    fn __enter__(slf: Py<PyScan>) -> Py<PyScan> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close();
    }
}

impl PyDirEntry {
    /// The type at the end of the path; `None` if there is nothing.
    fn kind_of(&self, follow: bool) -> rcuwalk::Result<Option<u32>> {
        if !follow || self.kind != S_IFLNK {
            return Ok(Some(self.kind));
        }
        // Relaxed: each thread would find the same.
        match self.target.load(Ordering::Relaxed) {
            0 => match self.task.get().stat_at(self.dir, &self.path, true) {
                Ok(stat) => {
                    let kind = stat.mode & S_IFMT;
                    self.target.store(kind as usize, Ordering::Relaxed);
                    Ok(Some(kind))
                }
                Err(Errno::ENOENT) => Ok(None),
                Err(errno) => Err(errno),
            },
            kind => Ok(Some(kind as u32)),
        }
    }

    fn is(&self, py: Python<'_>, kind: u32, follow: bool) -> PyResult<bool> {
        match self.kind_of(follow) {
            Ok(found) => Ok(found == Some(kind)),
            Err(errno) => Err(errno).of(&self.path(py)?),
        }
    }
}

#[pymethods]
impl PyDirEntry {
    /// The name in the directory.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        name_of(py, &self.path[self.name..], self.bytes)
    }

    /// The name with the scanned path before it.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        name_of(py, &self.path, self.bytes)
    }

    fn __fspath__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.path(py)
    }

    /// The inode number.
    fn inode(&self) -> u64 {
        self.ino
    }

    /// Whether it is a directory, or leads to one.
    #[pyo3(signature = (*, follow_symlinks=true))]
    fn is_dir(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<bool> {
        self.is(py, S_IFDIR, follow_symlinks)
    }

    /// Whether it is a regular file, or leads to one.
    #[pyo3(signature = (*, follow_symlinks=true))]
    fn is_file(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<bool> {
        self.is(py, S_IFREG, follow_symlinks)
    }

    /// Whether it is a symbolic link.
    fn is_symlink(&self) -> bool {
        self.kind == S_IFLNK
    }

    /// Whether it is a junction: never on Linux.
    fn is_junction(&self) -> bool {
        false
    }

    /// Its attributes.
    #[pyo3(signature = (*, follow_symlinks=true))]
    fn stat<'py>(&self, py: Python<'py>, follow_symlinks: bool) -> PyResult<Bound<'py, PyAny>> {
        let stat = match self.task.get().stat_at(self.dir, &self.path, follow_symlinks) {
            Ok(stat) => stat,
            Err(errno) => return Err(errno).of(&self.path(py)?),
        };
        stat_result(py, &stat)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<DirEntry {}>", self.name(py)?.repr()?))
    }
}
