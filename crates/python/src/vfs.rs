//! `Vfs`: a file system, where trees come into it, and what tests do to it.

use crate::args::PathArg;
use crate::error::{Answer, os_error};
use crate::faults::{CALLS, Rule, Shared};
use crate::gate;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rcuwalk::perm::Protected;
use rcuwalk::{Errno, MountOptions, NodeId, Timespec, Vfs, WalkMode};
use rcuwalk_host::{ImportError, ImportOptions, Progress, Report, Source};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where inode times come from: the system's clock, or a moment that a test has set.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Nanoseconds since the epoch, 0 for the system's clock.
    set: AtomicI64,
}

impl Watch {
    fn now(&self) -> Timespec {
        // Relaxed: a single word that orders nothing.
        let nanos = match self.set.load(Ordering::Relaxed) {
            0 => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
                i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
            }
            set => set,
        };
        let nsec = u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0);
        Timespec { sec: nanos.div_euclid(1_000_000_000), nsec }
    }
}

/// A file system in memory, with Linux's rules.
#[pyclass(name = "Vfs", module = "rcuwalk", frozen, weakref, subclass)]
#[derive(Debug)]
pub(crate) struct PyVfs(pub(crate) Arc<Shared>);

#[pymethods]
impl PyVfs {
    #[new]
    #[pyo3(signature = (*, capacity=None, size_limit=None, read_only=false, noexec=false, nosuid=false, nodev=false,
        nosymfollow=false, noatime=false, strictatime=false, protected_symlinks=false, protected_hardlinks=false,
        protected_regular=0, protected_fifos=0, ref_walk_only=false))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)]
    fn new(
        py: Python<'_>,
        capacity: Option<u32>,
        size_limit: Option<u64>,
        read_only: bool,
        noexec: bool,
        nosuid: bool,
        nodev: bool,
        nosymfollow: bool,
        noatime: bool,
        strictatime: bool,
        protected_symlinks: bool,
        protected_hardlinks: bool,
        protected_regular: u8,
        protected_fifos: u8,
        ref_walk_only: bool,
    ) -> PyResult<PyVfs> {
        let clock = Arc::new(Watch::default());
        let watch = Arc::clone(&clock);
        let options = MountOptions::default()
            .with_read_only(read_only)
            .with_noexec(noexec)
            .with_nosuid(nosuid)
            .with_nodev(nodev)
            .with_nosymfollow(nosymfollow)
            .with_noatime(noatime)
            .with_strictatime(strictatime);
        let protected = Protected {
            symlinks: protected_symlinks,
            hardlinks: protected_hardlinks,
            regular: protected_regular,
            fifos: protected_fifos,
        };
        let mut builder =
            Vfs::builder().mount_options(options).protected(protected).clock(Box::new(move || watch.now()));
        if let Some(objects) = capacity {
            builder = builder.capacity(objects);
        }
        if let Some(bytes) = size_limit {
            builder = builder.size_limit(bytes);
        }
        let vfs = builder.build().plain(py)?;
        if ref_walk_only {
            vfs.set_walk_mode(WalkMode::RefOnly);
        }
        Ok(PyVfs(Arc::new(Shared { vfs, faults: Default::default(), clock, incomplete: Default::default() })))
    }

    /// Loads a directory of this machine, or a tar archive, into the root directory or the directory `at`.
    #[pyo3(signature = (source, *, at=None, contents=true, one_file_system=false, xattrs=true, threads=0))]
    #[allow(clippy::too_many_arguments)]
    fn import_tree<'py>(
        &self,
        py: Python<'py>,
        source: &Bound<'py, PyAny>,
        at: Option<&Bound<'py, PyAny>>,
        contents: bool,
        one_file_system: bool,
        xattrs: bool,
        threads: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let path = PathArg::new("import_tree", source)?;
        let at = at.map(|at| PathArg::new("import_tree", at)).transpose()?;
        let (from, to) = (Path::new(OsStr::from_bytes(path.bytes())), at.as_ref().map(PathArg::bytes));
        let vfs = &self.0.vfs;
        let imported = py.detach(|| {
            let _gate = gate::enter();
            let at = to.map(|to| find(vfs, to)).transpose().map_err(Stop::Place)?;
            let options =
                ImportOptions { contents, one_file_system, xattrs, threads, at, ..ImportOptions::default() };
            let source = rcuwalk_host::open(from).map_err(Stop::Import)?;
            if at.is_some() && !matches!(source, Source::Dir(_)) {
                return Err(Stop::Place(Errno::EINVAL));
            }
            source.import(vfs, &options, &Progress::new()).map_err(Stop::Import)
        });
        match imported {
            Ok(report) => {
                // Relaxed: a single word that orders nothing.
                self.0.incomplete.fetch_or(report.problem_count > 0 || report.partial, Ordering::Relaxed);
                told(py, &report)
            }
            Err(Stop::Place(errno)) => Err(os_error(py, errno, &[&at.map_or(path.object, |at| at.object)])),
            Err(Stop::Import(error)) => Err(import_error(py, &error, &path)),
        }
    }

    /// Makes matching calls fail with `errno`; gives the number of the rule.
    #[pyo3(signature = (errno, *, path=None, calls=Vec::new(), after_bytes=None, after_calls=0, times=None))]
    #[allow(clippy::too_many_arguments)]
    fn inject(
        &self,
        errno: i32,
        path: Option<&Bound<'_, PyAny>>,
        calls: Vec<String>,
        after_bytes: Option<u64>,
        after_calls: u64,
        times: Option<u64>,
    ) -> PyResult<u64> {
        let errno = Errno::from_raw(errno).ok_or_else(|| PyValueError::new_err("not an error number"))?;
        let path =
            path.map(|path| PathArg::new("inject", path)).transpose()?.map(|path| path.bytes().to_vec());
        if path.as_ref().is_some_and(|path| !path.starts_with(b"/")) {
            return Err(PyValueError::new_err("the path of a fault must be absolute"));
        }
        if let Some(unknown) = calls.iter().find(|name| !CALLS.contains(&name.as_str())) {
            let known = CALLS.join(", ");
            return Err(PyValueError::new_err(format!("no call is named {unknown:?}; these are: {known}")));
        }
        if times == Some(0) {
            return Err(PyValueError::new_err("a fault must happen at least once"));
        }
        Ok(self.0.faults.add(Rule { errno, path, calls, after_bytes, after_calls, times }))
    }

    /// Removes the rule of this number, or all rules; says whether there was one.
    #[pyo3(signature = (number=None))]
    fn clear_faults(&self, number: Option<u64>) -> bool {
        self.0.faults.remove(number)
    }

    /// Sets the time that inodes get, in nanoseconds since the epoch; `None` goes back to the system's clock.
    #[pyo3(signature = (ns))]
    fn set_time(&self, ns: Option<i64>) -> PyResult<()> {
        if ns == Some(0) {
            return Err(PyValueError::new_err("the time cannot be 0"));
        }
        // Relaxed: a single word that orders nothing.
        self.0.clock.set.store(ns.unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }

    /// Makes the whole file system read-only, or writable again.
    fn set_read_only(&self, py: Python<'_>, yes: bool) {
        py.detach(|| {
            let _gate = gate::enter();
            self.0.vfs.set_read_only(yes);
        });
    }

    /// What the file system holds, and how its lockless walks went.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.0.vfs.stats();
        let out = PyDict::new(py);
        out.set_item("entries", stats.entries)?;
        out.set_item("blob_bytes", stats.blob_bytes)?;
        let bails = PyDict::new(py);
        stats.bails.iter().try_for_each(|(name, count)| bails.set_item(*name, *count))?;
        out.set_item("bails", bails)?;
        Ok(out)
    }

    fn __repr__(&self) -> String {
        format!("<rcuwalk.Vfs with {} entries>", self.0.vfs.stats().entries)
    }
}

/// Why an import did not happen.
enum Stop {
    /// The place for it.
    Place(Errno),
    Import(ImportError),
}

/// The directory `path`, found by name alone.
fn find(vfs: &Vfs, path: &[u8]) -> rcuwalk::Result<NodeId> {
    let loader = vfs.loader();
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.into_iter().try_fold(loader.root(), |at, name| loader.lookup(at, name).ok_or(Errno::ENOENT))
}

fn import_error(py: Python<'_>, error: &ImportError, path: &PathArg<'_>) -> PyErr {
    if let ImportError::Open { source, .. } = error
        && let Some(errno) = source.raw_os_error().and_then(Errno::from_raw)
    {
        return os_error(py, errno, &[&path.object]);
    }
    match error {
        ImportError::NotADirectory { .. } => os_error(py, Errno::ENOTDIR, &[&path.object]),
        ImportError::Insert { errno, .. } => os_error(py, *errno, &[&path.object]),
        other => PyOSError::new_err(other.to_string()),
    }
}

/// A report as a dictionary.
fn told<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for (name, value) in [
        ("dirs", report.dirs),
        ("files", report.files),
        ("symlinks", report.symlinks),
        ("specials", report.specials),
        ("hard_links", report.hard_links),
        ("xattrs", report.xattrs),
        ("size_bytes", report.size_bytes),
        ("content_bytes", report.content_bytes),
        ("problem_count", report.problem_count),
    ] {
        out.set_item(name, value)?;
    }
    out.set_item("problems", report.problems.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    out.set_item("seconds", report.elapsed.as_secs_f64())?;
    Ok(out)
}
