//! Errors as `os` raises them.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rcuwalk::Errno;

/// The `OSError` of this errno, of the subclass that belongs to it.
pub(crate) fn os_error(py: Python<'_>, errno: Errno, names: &[&Bound<'_, PyAny>]) -> PyErr {
    let (number, message) = (errno.raw(), errno.message());
    let class = py.get_type::<PyOSError>();
    let made = match names {
        [] => class.call1((number, message)),
        [name] => class.call1((number, message, *name)),
        [name, other, ..] => class.call1((number, message, *name, py.None(), *other)),
    };
    made.map_or_else(|error| error, PyErr::from_value)
}

/// Turns an engine's answer into the interpreter's.
pub(crate) trait Answer<T> {
    /// An error that names no file.
    fn plain(self, py: Python<'_>) -> PyResult<T>;
    /// An error with `filename`.
    fn of(self, name: &Bound<'_, PyAny>) -> PyResult<T>;
    /// An error with `filename` and `filename2`.
    fn of_both(self, name: &Bound<'_, PyAny>, other: &Bound<'_, PyAny>) -> PyResult<T>;
}

impl<T> Answer<T> for rcuwalk::Result<T> {
    fn plain(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|errno| os_error(py, errno, &[]))
    }

    fn of(self, name: &Bound<'_, PyAny>) -> PyResult<T> {
        self.map_err(|errno| os_error(name.py(), errno, &[name]))
    }

    fn of_both(self, name: &Bound<'_, PyAny>, other: &Bound<'_, PyAny>) -> PyResult<T> {
        self.map_err(|errno| os_error(name.py(), errno, &[name, other]))
    }
}
