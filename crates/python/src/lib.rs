//! The extension module of the Python package `rcuwalk`: the engine's calls in the shape of `os`.
//!
//! Everything else of the package is written in Python: file objects, the pytest fixture, fsspec.
//!
//! A lookup keeps the interpreter lock, for it is over sooner than the lock could be given back; everything that may wait for
//! another thread, or take long, releases it.
#![forbid(unsafe_code)]

mod args;
mod audit;
mod cred;
mod error;
mod explain;
mod faults;
mod gate;
mod task;
mod vfs;

use pyo3::prelude::*;

/// The engine behind the package.
#[pymodule(gil_used = false)]
mod _rcuwalk {
    use super::*;

    #[pymodule_export]
    use crate::audit::{PyAudit, audit_rows};
    #[pymodule_export]
    use crate::cred::PyCred;
    #[pymodule_export]
    use crate::explain::explain_json;
    #[pymodule_export]
    use crate::task::PyTask;
    #[pymodule_export]
    use crate::task::scan::{PyDirEntry, PyScan};
    #[pymodule_export]
    use crate::vfs::PyVfs;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("CAPABILITIES", rcuwalk::cred::CAP_NAMES)
    }

    /// Waits until no engine call is under way: for `os.register_at_fork`.
    #[pyfunction]
    fn _before_fork() {
        crate::gate::before_fork();
    }

    /// Lets engine calls go on: for `os.register_at_fork`.
    #[pyfunction]
    fn _after_fork() {
        crate::gate::after_fork();
    }
}
