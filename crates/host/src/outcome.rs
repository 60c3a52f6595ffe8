//! What an import says about itself: progress while it runs, a report when it is done, an error when it cannot go on.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rcuwalk::Errno;
use rcuwalk::uapi::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};

/// The text of a host error, in the engine's words where it carries an error number.
///
/// ```
/// let error = std::fs::File::open("/nowhere").unwrap_err();
/// assert_eq!(rcuwalk_host::describe(&error), rcuwalk::Errno::ENOENT.to_string());
/// ```
pub fn describe(error: &io::Error) -> String {
    match error.raw_os_error().and_then(Errno::from_raw) {
        Some(errno) => errno.to_string(),
        None => error.to_string(),
    }
}

/// How many problems a [`Report`] lists; it counts all of them.
const LISTED_PROBLEMS: usize = 100;

/// Counters of a running import, and the means to end it early.
///
/// Shared by reference with the import; any thread may read it or cancel at any time. The counters are for people to
/// look at: they are not synchronised with each other.
#[derive(Debug, Default)]
pub struct Progress {
    entries: AtomicU64,
    bytes: AtomicU64,
    problems: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress {
    /// Counters at zero, not cancelled.
    pub fn new() -> Progress {
        Progress::default()
    }

    /// Entries (names) inserted so far.
    pub fn entries(&self) -> u64 {
        self.entries.load(Relaxed)
    }

    /// Bytes of file contents kept so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Problems met so far, as counted by [`Report::problem_count`].
    pub fn problems(&self) -> u64 {
        self.problems.load(Relaxed)
    }

    /// Asks the import to stop; it then returns [`ImportError::Cancelled`] within a directory's or a member's work.
    pub fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
    }

    /// Whether [`Progress::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    /// Publishes the totals of `report`.
    pub(crate) fn publish(&self, report: &Report) {
        self.entries.store(report.entries(), Relaxed);
        self.bytes.store(report.content_bytes, Relaxed);
        self.problems.store(report.problem_count, Relaxed);
    }
}

/// One thing that could not be imported as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where: a path of the running machine, or the name of an archive member.
    pub path: PathBuf,
    /// What was being done, such as `"open directory"`.
    pub action: &'static str,
    /// How it failed: the kernel's answer, or for an archive member the error that extracting it would meet.
    pub errno: Errno,
}

impl Problem {
    pub(crate) fn new(path: Vec<u8>, action: &'static str, errno: Errno) -> Problem {
        Problem { path: OsString::from_vec(path).into(), action, errno }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.path.display(), self.action, self.errno)
    }
}

/// What was imported, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Directories, the root included.
    pub dirs: u64,
    /// Regular files, each inode once.
    pub files: u64,
    /// Symbolic links, each inode once.
    pub symlinks: u64,
    /// Devices, FIFOs and sockets, each inode once.
    pub specials: u64,
    /// Further names of an inode that was already counted.
    pub hard_links: u64,
    /// Extended attributes, ACLs and file capabilities among them.
    pub xattrs: u64,
    /// Sum of the sizes of the regular files, each inode once, in bytes.
    pub size_bytes: u64,
    /// File contents kept in memory, holes not counted, in bytes.
    pub content_bytes: u64,
    /// Names that were listed but gone, or no longer the same thing, when they were looked at.
    pub vanished: u64,
    /// Directories where another file system begins and that were kept empty for it.
    pub mount_points: u64,
    /// Everything that could not be read or inserted, unreadable directories among it.
    pub problem_count: u64,
    /// The first hundred of those.
    pub problems: Vec<Problem>,
    /// Wall-clock time of the import.
    pub elapsed: Duration,
    /// It was cancelled, and more would have come.
    pub partial: bool,
}

impl Report {
    /// Names in the imported tree, the root included.
    pub fn entries(&self) -> u64 {
        self.dirs + self.files + self.symlinks + self.specials + self.hard_links
    }

    pub(crate) fn add_problem(&mut self, problem: Problem) {
        self.problem_count += 1;
        if self.problems.len() < LISTED_PROBLEMS {
            self.problems.push(problem);
        }
    }

    /// Counts an inode by its type.
    pub(crate) fn count_inode(&mut self, mode: u32, size: u64) {
        match mode & S_IFMT {
            S_IFDIR => self.dirs += 1,
            S_IFLNK => self.symlinks += 1,
            S_IFREG => {
                self.files += 1;
                self.size_bytes = self.size_bytes.saturating_add(size);
            }
            _ => self.specials += 1,
        }
    }
}

/// Why an import ended without a usable tree. What was inserted before stays in the `Vfs`, which is best dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The directory or archive to import is missing or may not be read.
    #[error("cannot open {}: {source}; name a directory or a tar archive that you may read", path.display())]
    Open {
        /// What was to be imported.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A directory was asked for, and this is something else.
    #[error("{} is not a directory; name a directory, or a tar archive where one is accepted", path.display())]
    NotADirectory {
        /// What was to be imported.
        path: PathBuf,
    },
    /// Neither a directory nor an archive that this crate reads.
    #[error("{} is {found}; name a directory, a tar archive (plain, gzip or zstd), or an image", path.display())]
    NotATree {
        /// What was to be imported.
        path: PathBuf,
        /// What it is instead.
        found: &'static str,
    },
    /// The archive is damaged, truncated, or no archive at all.
    #[error("the archive cannot be read after {offset} bytes of unpacked data: {reason}")]
    Archive {
        /// Position in the unpacked stream, in bytes.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// A container image that does not hold together.
    #[error("the image cannot be read: {what}: {reason}")]
    Image {
        /// The part: a file of the image, or a layer.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tree image is damaged, in use, or does not fit.
    #[error(transparent)]
    TreeImage(#[from] rcuwalk_image::Error),
    /// The archive asks for more than its [`Limits`](crate::Limits) allow.
    #[error(
        "the archive goes beyond the limit of {limit} {what}; raise it in `Limits` if you trust the archive"
    )]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The tree does not fit into the `Vfs`.
    #[error("cannot insert {}: {errno}; use a `Vfs` with more capacity, or import less", path.display())]
    Insert {
        /// The entry that did not fit.
        path: PathBuf,
        /// `ENOSPC` when the `Vfs` is full, `ENOMEM` when the machine is.
        errno: Errno,
    },
    /// No thread could be started to scan with.
    #[error("cannot start a thread to scan with: {0}")]
    Thread(io::Error),
    /// [`Progress::cancel`] was called.
    #[error("the import was cancelled")]
    Cancelled,
}
