//! What ends a run.

use std::fmt;
use std::io;
use std::path::Path;

use rcuwalk::errno::Errno;
use rcuwalk_host::describe;

/// A failure that a person can act on: what was being done, on what, what the system said, what may help.
///
/// `Display` gives `what: subject: cause; hint` on one line.
///
/// ```
/// use rcuwalk_measure::Error;
///
/// let error = Error::new("reading the directory", "/nowhere", "ENOENT: No such file or directory", "name another one");
/// assert_eq!(
///     error.to_string(),
///     "reading the directory: /nowhere: ENOENT: No such file or directory; name another one"
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    what: String,
    subject: String,
    cause: String,
    hint: String,
}

impl Error {
    /// An error from its four parts; an empty hint is left out.
    pub fn new(
        what: impl Into<String>,
        subject: impl Into<String>,
        cause: impl Into<String>,
        hint: impl Into<String>,
    ) -> Error {
        Error { what: what.into(), subject: subject.into(), cause: cause.into(), hint: hint.into() }
    }

    /// An error of a system call of the host on `path`.
    pub fn host(what: &str, path: impl AsRef<Path>, error: impl Into<io::Error>, hint: &str) -> Error {
        Error::new(what, path.as_ref().display().to_string(), describe(&error.into()), hint)
    }

    /// An error of the engine on `path`.
    pub fn engine(what: &str, path: &[u8], errno: Errno, hint: &str) -> Error {
        Error::new(what, String::from_utf8_lossy(path), errno.to_string(), hint)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.what, self.subject, self.cause)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", self.hint) }
    }
}

impl std::error::Error for Error {}
