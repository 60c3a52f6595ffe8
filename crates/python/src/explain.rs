//! Why a user may, or may not, do something with a path of the machine.

use crate::args::PathArg;
use crate::error::os_error;
use crate::gate;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rcuwalk_explain::{Call, Error, Explainer, Options, Subject, What};

/// What is asked: a word, `rename=PATH`, or `call:` and a system call.
fn what(text: &str, path: &[u8]) -> Result<What, Error> {
    Ok(match text {
        "read" => What::Read,
        "write" => What::Write,
        "execute" => What::Execute,
        "stat" => What::Stat,
        "create" => What::Create,
        "delete" => What::Delete,
        "exec" => What::Exec,
        "connect" => What::Connect,
        _ => match (text.strip_prefix("rename="), text.strip_prefix("call:")) {
            (Some(new), _) => What::RenameTo(new.as_bytes().to_vec()),
            (_, Some(call)) => What::Call(Call::parse(call, path)?),
            _ => {
                return Err(Error::Usage(format!(
                    "{text}: what is asked is read, write, execute, stat, create, delete, exec, connect, rename=PATH or call:CALL"
                )));
            }
        },
    })
}

/// The explanation of `path` as JSON, for the identity `user`, that of process `pid`, or the caller's.
#[pyfunction]
#[pyo3(signature = (path, asked, user=None, pid=None, caps=None, fixes=true, verify=false, library_path=None))]
#[expect(clippy::too_many_arguments, reason = "they are those of Python's function")]
pub(crate) fn explain_json(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    asked: Vec<String>,
    user: Option<&str>,
    pid: Option<i32>,
    caps: Option<&str>,
    fixes: bool,
    verify: bool,
    library_path: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let arg = PathArg::new("explain", path)?;
    let bytes = arg.bytes();
    let library_path = library_path.map(|dirs| PathArg::new("explain", dirs)).transpose()?;
    let library_path = library_path.as_ref().map(PathArg::bytes);
    let report = py.detach(|| {
        let _gate = gate::enter();
        let mut who = match (user, pid) {
            (Some(user), _) => Subject::of_user(user)?,
            (None, Some(pid)) => Subject::of_process(pid)?,
            (None, None) => Subject::caller()?,
        };
        if let Some(caps) = caps {
            who.change_caps(caps)?;
        }
        if let Some(dirs) = library_path {
            who.library_path = dirs.to_vec();
        }
        let asked = asked.iter().map(|text| what(text, bytes)).collect::<Result<Vec<_>, _>>()?;
        Explainer::new(pid)?.explain(&who, bytes, &asked, Options { fixes, verify })
    });
    match report {
        Ok(report) => {
            serde_json::to_string(&report).map_err(|error| PyRuntimeError::new_err(error.to_string()))
        }
        Err(Error::Host { errno, .. } | Error::Engine(_, errno)) => Err(os_error(py, errno, &[path])),
        Err(error @ Error::Usage(_)) => Err(PyValueError::new_err(error.to_string())),
    }
}
