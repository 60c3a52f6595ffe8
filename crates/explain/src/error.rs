//! What can prevent an explanation.

use rcuwalk::Errno;

/// Why there is no explanation. The text names the thing and says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Something of the host could not be read.
    #[error("{what}: {path}: {errno}; {hint}")]
    Host {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: String,
        /// The error.
        errno: Errno,
        /// What helps.
        hint: &'static str,
    },
    /// A user, a group, a capability or a call that does not exist, or is not understood.
    #[error("{0}")]
    Usage(String),
    /// The engine could not hold what was found.
    #[error("mirroring the path in the engine: {0}: {1}; please report this")]
    Engine(&'static str, Errno),
}

/// The engine's errno for the system's.
pub(crate) fn errno(e: rustix::io::Errno) -> Errno {
    Errno::from_raw(e.raw_os_error()).unwrap_or(Errno::EIO)
}

/// The errno of an I/O error.
pub(crate) fn io_errno(e: &std::io::Error) -> Errno {
    e.raw_os_error().and_then(Errno::from_raw).unwrap_or(Errno::EIO)
}
