//! What can be wrong.

use rcuwalk::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Why an image could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be opened, read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The image.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another process has it open: one process may change an image, or many may read it.
    #[error("{} is in use by another process; unmount it there first", path.display())]
    Busy {
        /// The image.
        path: PathBuf,
    },
    /// It is something else.
    #[error("{} is no tree image: {found}", path.display())]
    NotAnImage {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        found: String,
    },
    /// A part of it is damaged, or makes no sense.
    #[error("{} is damaged: {what}: {reason}", path.display())]
    Corrupt {
        /// The image.
        path: PathBuf,
        /// The part.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The engine does not take the tree.
    #[error("{}: the tree does not fit: {errno}; raise the limits of the file system it is loaded into", path.display())]
    Engine {
        /// The image.
        path: PathBuf,
        /// `ENOSPC`, `ENOMEM`; `EBUSY` if the file system is kept in an image already.
        errno: Errno,
    },
}

/// What everything here returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What a call that waits for the image fails with.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull => Errno::ENOSPC,
                io::ErrorKind::QuotaExceeded => Errno::EDQUOT,
                io::ErrorKind::FileTooLarge => Errno::EFBIG,
                _ => Errno::EIO,
            },
            Error::Busy { .. } => Errno::EBUSY,
            Error::Engine { errno, .. } => *errno,
            Error::NotAnImage { .. } | Error::Corrupt { .. } => Errno::EIO,
        }
    }
}

/// What is wrong, before it is known in which file.
#[derive(Debug)]
pub(crate) enum Fault {
    Corrupt { what: String, reason: String },
    NotAnImage(String),
    Store(redb::Error),
    Io(io::Error),
    Engine(Errno),
}

pub(crate) type Outcome<T> = std::result::Result<T, Fault>;

impl Fault {
    pub(crate) fn corrupt(what: impl Into<String>, reason: impl Into<String>) -> Fault {
        Fault::Corrupt { what: what.into(), reason: reason.into() }
    }

    pub(crate) fn at(self, path: &Path) -> Error {
        let path = path.to_path_buf();
        match self {
            Fault::Corrupt { what, reason } => Error::Corrupt { path, what, reason },
            Fault::NotAnImage(found) => Error::NotAnImage { path, found },
            Fault::Io(source) | Fault::Store(redb::Error::Io(source)) => match source.kind() {
                io::ErrorKind::InvalidData => {
                    Error::NotAnImage { path, found: "it does not begin as one does".into() }
                }
                // What is beyond the end was cut off.
                io::ErrorKind::UnexpectedEof => {
                    Error::Corrupt { path, what: "the file".into(), reason: source.to_string() }
                }
                _ => Error::Io { path, source },
            },
            Fault::Store(redb::Error::DatabaseAlreadyOpen) => Error::Busy { path },
            Fault::Store(redb::Error::PreviousIo) => {
                Error::Io { path, source: io::Error::other("an earlier write failed") }
            }
            Fault::Store(error) => {
                Error::Corrupt { path, what: "the store".into(), reason: error.to_string() }
            }
            Fault::Engine(errno) => Error::Engine { path, errno },
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Io(error)
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        Fault::Engine(errno)
    }
}

macro_rules! from_store {
    ($($error:ident)*) => {
        $(impl From<redb::$error> for Fault {
            fn from(error: redb::$error) -> Fault {
                Fault::Store(error.into())
            }
        })*
    };
}

from_store! { DatabaseError TransactionError TableError StorageError CommitError }
