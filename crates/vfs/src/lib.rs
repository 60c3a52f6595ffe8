//! The Linux pathname layer as a library: everything between a pathname and an inode, and the calls that stand on it.
//!
//! A [`Vfs`] is an in-memory file system with Linux's own rules: path walk, symlinks, credentials, permission bits, ACLs,
//! capabilities, sticky directories, set-id stripping. A [`Task`] is a process in it, for any virtual user; the
//! program needs no privilege. Its methods are the system calls, and answer as the running kernel does, errno by errno.
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
//! The [guide] shows the first steps, [`fs`] files as [`std::fs`] has them; the crate `rcuwalk-vfs` is for code that is written against the
//! `vfs` crate.
//!
//! Lookups are lockless: they wait for no lock and take no reference, however many threads make them. A repeated one writes no
//! shared memory; the first two of a path leave a mark and an entry (see `docs/pathwalk.md` in the repository). The crate
//! makes no system call of its own but to ask for the time and for memory, and how much the machine has where a size in percent
//! of it is mounted.
#![forbid(unsafe_code)]

#[macro_use]
mod base;
mod calls;
pub mod cred;
mod dcache;
mod exec;
mod file;
pub mod fs;
#[doc = include_str!("guide.md")]
pub mod guide {}
mod kernel;
mod mount;
mod namei;
pub mod perm;
pub mod syscall;
mod task;
mod tmpfs;
mod trees;

pub use base::errno::{Errno, Result};
pub use base::uapi::{Dirent, OpenHow, Stat, Statx, Timespec};
#[cfg(feature = "__variants")]
#[doc(hidden)]
pub use base::variants::{NameBuffer, SearchCheck, Variants};
pub use base::{errno, flags, uapi};
pub use calls::fileattr::FileAttr;
pub use calls::handle::FileHandle;
pub use calls::locks::Flock;
pub use calls::namespace::MountAttr;
pub use calls::procfs::ProcFile;
pub use calls::statfs::Statfs;
pub use calls::statmount::{MntIdReq, Statmount};
pub use cred::{Cred, userns};
pub use dcache::pathtable::PathTableOptions;
pub use exec::execvp::Libc;
pub use kernel::names::{CacheInfo, InitOnAlloc};
pub use kernel::security::{Security, SecurityInode};
pub use kernel::sysctl::Sysctl;
pub use kernel::vfs::{MountOptions, Stats, Vfs, VfsBuilder};
pub use kernel::{Clock, WalkMode, trace};
pub use perm::acl;
pub use task::Task;
pub use task::fork::{CloneFlags, Rlimit};
pub use task::process::CapData;
pub use task::program::{Exec, ExecFile, Interpreter};
pub use trees::changes;
pub use trees::loader::{Loader, MountId, NewInode, NewMount, NodeId};
pub use trees::survey::{Rights, SURVEY_MAX, SurveyTotals, Surveyed};
