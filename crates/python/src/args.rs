//! Arguments as `os` takes them: paths of any type, descriptors, data.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyMemoryView, PySlice, PyString};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A path argument: what the caller gave, and its bytes.
#[derive(Debug)]
pub(crate) struct PathArg<'py> {
    /// As the caller gave it: what an error names.
    pub(crate) object: Bound<'py, PyAny>,
    bytes: Held<'py>,
    /// Whether answers are to be bytes, as the argument was.
    pub(crate) wants_bytes: bool,
}

#[derive(Debug)]
enum Held<'py> {
    /// ASCII, whose bytes are the same in every file system encoding.
    Str(Bound<'py, PyString>),
    Bytes(Bound<'py, PyBytes>),
    Owned(Vec<u8>),
}

/// A path, or a descriptor in its place.
#[derive(Debug)]
pub(crate) enum Target<'py> {
    Fd(i32),
    Path(PathArg<'py>),
}

impl<'py> PathArg<'py> {
    /// Takes str, bytes or a path-like object.
    ///
    /// # Errors
    ///
    /// `TypeError` for anything else, `ValueError` for a NUL, what `__fspath__` raises.
    pub(crate) fn new(call: &str, object: &Bound<'py, PyAny>) -> PyResult<PathArg<'py>> {
        PathArg::parse(call, "path", "string, bytes or os.PathLike", object)
    }

    fn parse(call: &str, what: &str, kinds: &str, object: &Bound<'py, PyAny>) -> PyResult<PathArg<'py>> {
        let refuse = || {
            let kind = object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
            PyTypeError::new_err(format!("{call}: {what} should be {kinds}, not {kind}"))
        };
        if let Some(path) = PathArg::direct(object, object)? {
            return Ok(path);
        }
        let fspath = object.get_type().getattr("__fspath__").map_err(|_| refuse())?;
        let inner = fspath.call1((object,))?;
        PathArg::direct(object, &inner)?.ok_or_else(refuse)
    }

    /// From str or bytes.
    fn direct(object: &Bound<'py, PyAny>, path: &Bound<'py, PyAny>) -> PyResult<Option<PathArg<'py>>> {
        let (bytes, wants_bytes) = if let Ok(text) = path.cast::<PyString>() {
            match text.to_str() {
                Ok(ascii) if ascii.is_ascii() => (Held::Str(text.clone()), false),
                _ => (Held::Owned(text.extract::<OsString>()?.into_vec()), false),
            }
        } else if let Ok(bytes) = path.cast::<PyBytes>() {
            (Held::Bytes(bytes.clone()), true)
        } else {
            return Ok(None);
        };
        let path = PathArg { object: object.clone(), bytes, wants_bytes };
        if path.bytes().contains(&0) {
            return Err(PyValueError::new_err("embedded null byte"));
        }
        Ok(Some(path))
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Held::Str(text) => text.to_str().unwrap_or_default().as_bytes(),
            Held::Bytes(bytes) => bytes.as_bytes(),
            Held::Owned(bytes) => bytes,
        }
    }
}

impl<'py> Target<'py> {
    /// Takes what [`PathArg::new`] takes, or an integer.
    ///
    /// # Errors
    ///
    /// As [`PathArg::new`]; `OverflowError` for an integer that is no C int.
    pub(crate) fn new(call: &str, object: &Bound<'py, PyAny>) -> PyResult<Target<'py>> {
        if object.is_instance_of::<PyInt>() {
            return object.extract().map(Target::Fd);
        }
        let plain = object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>();
        if !plain && !object.hasattr("__fspath__")? && object.hasattr("__index__")? {
            return object.extract().map(Target::Fd);
        }
        PathArg::parse(call, "path", "string, bytes, os.PathLike or integer", object).map(Target::Path)
    }

    /// As [`Target::new`]; `None` is the current directory.
    pub(crate) fn or_cwd(
        call: &str,
        object: Option<&Bound<'py, PyAny>>,
        py: Python<'py>,
    ) -> PyResult<Target<'py>> {
        match object {
            Some(object) => match object.is_none() {
                true => Target::or_cwd(call, None, py),
                false => Target::new(call, object),
            },
            None => PathArg::new(call, PyString::new(py, ".").as_any()).map(Target::Path),
        }
    }
}

/// A descriptor: an integer, or an object with `fileno()`.
pub(crate) fn fileno(object: &Bound<'_, PyAny>) -> PyResult<i32> {
    if object.is_instance_of::<PyBool>() || object.is_instance_of::<PyInt>() {
        return object.extract();
    }
    let answer = object
        .getattr("fileno")
        .map_err(|_| PyTypeError::new_err("argument must be an int, or have a fileno() method."))?
        .call0()?;
    answer.extract()
}

/// A file name as str, undecodable bytes as surrogates.
pub(crate) fn name_str<'py>(py: Python<'py>, name: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match std::str::from_utf8(name) {
        Ok(ascii) if name.is_ascii() => Ok(PyString::new(py, ascii).into_any()),
        _ => Ok(OsStr::from_bytes(name).into_pyobject(py)?.into_any()),
    }
}

/// A file name, as str or as bytes.
pub(crate) fn name_of<'py>(py: Python<'py>, name: &[u8], bytes: bool) -> PyResult<Bound<'py, PyAny>> {
    if bytes { Ok(PyBytes::new(py, name).into_any()) } else { name_str(py, name) }
}

/// Data to be written: any contiguous buffer.
#[derive(Debug)]
pub(crate) enum Data<'py> {
    Bytes(Bound<'py, PyBytes>),
    Copy(Vec<u8>),
}

impl<'py> Data<'py> {
    /// Takes a bytes-like object.
    ///
    /// # Errors
    ///
    /// `TypeError` if it is none.
    pub(crate) fn new(object: &Bound<'py, PyAny>) -> PyResult<Data<'py>> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Data::Bytes(bytes.clone()));
        }
        if object.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("a bytes-like object is required, not 'str'"));
        }
        let view = byte_view(object)?;
        view.to_vec(object.py()).map(Data::Copy)
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Data::Bytes(bytes) => bytes.as_bytes(),
            Data::Copy(bytes) => bytes,
        }
    }
}

/// The buffer of an object as bytes, whatever its items are.
fn byte_view(object: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    match PyBuffer::<u8>::get(object) {
        Ok(buffer) => Ok(buffer),
        Err(error) => {
            let view = PyMemoryView::from(object).map_err(|_| error)?;
            PyBuffer::get(&view.call_method1("cast", ("B",))?)
        }
    }
}

/// Room for data to be read, owned by Python.
#[derive(Debug)]
pub(crate) struct Room<'py> {
    buffer: PyBuffer<u8>,
    object: Bound<'py, PyAny>,
}

impl<'py> Room<'py> {
    /// Takes a writable bytes-like object.
    ///
    /// # Errors
    ///
    /// `TypeError` if it is none.
    pub(crate) fn new(object: &Bound<'py, PyAny>) -> PyResult<Room<'py>> {
        let buffer = byte_view(object)?;
        if buffer.readonly() {
            return Err(PyTypeError::new_err("read-write bytes-like object expected"));
        }
        Ok(Room { buffer, object: object.clone() })
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len_bytes()
    }

    /// Copies `data`, which must fit, to the beginning.
    ///
    /// # Errors
    ///
    /// `BufferError` if the object lays its bytes out otherwise than one after the other.
    pub(crate) fn fill(&self, data: &[u8]) -> PyResult<()> {
        let py = self.object.py();
        if data.len() == self.len() {
            return self.buffer.copy_from_slice(py, data);
        }
        if data.is_empty() {
            return Ok(());
        }
        let view = PyMemoryView::from(&self.object)?.call_method1("cast", ("B",))?;
        let head = view.get_item(PySlice::new(py, 0, data.len() as isize, 1))?;
        PyBuffer::get(&head)?.copy_from_slice(py, data)
    }
}
