//! The running system as input to rcuwalk: directory trees and archives.
//!
//! [`open`] looks at a path and says what it is; [`Source::import`] loads it into an empty [`rcuwalk::Vfs`]. The two
//! halves can be called directly: [`import_dir`] for a directory of this machine, [`import_tar`] for a tar stream.
//!
//! An import keeps what a file system knows about a file: mode, ids, size, blocks, the four times, inode number, link
//! count and hard links, device number, symlink body, ACLs, file capabilities and every other extended attribute, the
//! immutable, append-only and (on request) no-atime flags, and, on request, contents with their holes.
//!
//! A tree that changes while it is read, a directory that may not be read, or an archive member that makes no sense
//! does not end an import: it is counted, and the first of them are listed, in the [`Report`]. What does end one is an
//! [`ImportError`], whose text names the path, what is wrong with it and what to do.
//!
//! ```
//! use std::path::Path;
//!
//! use rcuwalk::{Cred, Vfs};
//! use rcuwalk_host::{ImportOptions, Progress, open};
//!
//! let vfs = Vfs::new()?;
//! let report = open(Path::new("src"))?.import(&vfs, &ImportOptions::default(), &Progress::new())?;
//! assert_eq!(report.problem_count, 0);
//! let size = vfs.task(Cred::root()).stat(b"/lib.rs")?.size;
//! assert_eq!(size as u64, std::fs::metadata("src/lib.rs")?.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here writes to a terminal: a [`Progress`] is a set of counters to be polled from another thread, and the
//! handle by which that thread cancels the import.
#![deny(unsafe_code)]

mod acl;
mod archive;
mod batch;
mod decompress;
mod files;
mod identity;
mod image;
mod import;
mod live;
mod member;
mod mountinfo;
mod outcome;
mod pax;
mod queue;
mod save;
mod scan;
mod source;
pub mod strace;
mod sys;

pub use archive::{ArchiveOptions, Limits, import_tar};
pub use files::Files;
pub use identity::{
    Account, FileNames, HostNames, IDENTITY_FORM, IDENTITY_HELP, Identity, IdentityError, Names, change_caps,
    parse_caps, show_caps,
};
pub use image::Image;
pub use import::{ImportOptions, import_dir};
pub use live::{Live, import_live};
pub use mountinfo::{MountEntry, mount_of, mounts};
pub use outcome::{ImportError, Problem, Progress, Report, describe};
pub use save::{Saved, save_tar};
pub use source::{Source, open};
pub use sys::ProcessMemory;
