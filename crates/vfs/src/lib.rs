//! The Linux pathname layer as a library: everything between a pathname and an inode, and the calls that stand on it.
//!
//! A [`Vfs`] is an in-memory file system with Linux's own rules: path walk, symlinks, credentials, permission bits, ACLs,
//! capabilities, sticky directories, set-id stripping. A [`Task`] is a process in it, for any virtual user, whoever runs
//! the program. Its methods are the system calls, and answer as the running kernel does, errno by errno.
//!
//! ```
//! use rcuwalk::{Cred, Errno, Vfs, uapi::*};
//!
//! let vfs = Vfs::new()?;
//! let root = vfs.task(Cred::root());
//! root.mkdir(b"/srv", 0o755)?;
//! root.mkdir(b"/srv/private", 0o750)?;
//! root.chown(b"/srv/private", 0, 27)?;
//! root.open(b"/srv/private/report", O_CREAT | O_WRONLY, 0o640)?;
//!
//! let member = vfs.task(Cred::user(1000, 1000, &[27]));
//! assert!(member.stat(b"/srv/private/report").is_ok());
//! assert_eq!(member.open(b"/srv/private/report", O_RDONLY, 0), Err(Errno::EACCES));
//!
//! let stranger = vfs.task(Cred::user(1001, 1001, &[]));
//! assert_eq!(stranger.access(b"/srv/private/report", F_OK), Err(Errno::EACCES));
//! # Ok::<(), Errno>(())
//! ```
//!
//! Lookups are lockless: they take no lock and no reference and write no shared memory, however many threads make them
//! (see `docs/pathwalk.md` in the repository). The crate makes no system call of its own but to ask for the time and for
//! memory.
#![forbid(unsafe_code)]

pub mod acl;
mod attr;
mod binfmt;
pub mod changes;
mod commoncap;
pub mod cred;
mod dcache;
mod dirops;
pub mod errno;
mod exec;
mod execvp;
mod fileattr;
mod files;
mod fork;
mod fs_struct;
mod getname;
mod inode;
mod io;
mod ispace;
mod kernel;
mod loader;
mod locks;
mod mount;
mod namei;
mod namespace;
mod open;
pub mod pages;
mod pathtable;
pub mod perm;
mod process;
mod procfs;
mod propagate;
mod security;
pub mod setattr;
mod space;
mod stamps;
mod stat;
mod statfs;
mod store;
mod survey;
pub mod syscall;
mod sysctl;
mod task;
pub mod trace;
pub mod uapi;
pub mod userns;
mod variants;
mod xattr;

pub use cred::Cred;
pub use errno::{Errno, Result};
pub use exec::{Exec, ExecFile, Interpreter};
pub use execvp::Libc;
pub use fork::{CloneFlags, Rlimit};
pub use kernel::{Clock, MountOptions, Stats, Vfs, VfsBuilder, WalkMode};
pub use loader::{Loader, MountId, NewInode, NewMount, NodeId};
pub use locks::Flock;
pub use namespace::MountAttr;
pub use pathtable::PathTableOptions;
pub use process::CapData;
pub use procfs::ProcFile;
pub use rcuwalk_sync::slab::{CacheInfo, Policy as InitOnAlloc};
pub use security::{Security, SecurityInode};
pub use statfs::Statfs;
pub use survey::{Rights, SURVEY_MAX, SurveyTotals, Surveyed};
pub use sysctl::Sysctl;
pub use task::Task;
pub use uapi::{Dirent, OpenHow, Stat, Statx, Timespec};
pub use variants::{NameBuffer, SearchCheck, Variants};
