//! Everything that an identity may do in a directory tree, an archive or a container image.
//!
//! An [`Audit`] asks the engine, for each of several [`Identity`]s at once, what they may do with every entry of a tree that was
//! imported before, and hands out the entries where an identity may do something as [`Row`]s. An [`Output`] writes them down; a
//! [`Rule`] finds those that must not be; a [`Diff`] compares two audits.
//!
//! ```
//! use rcuwalk::{Cred, Vfs};
//! use rcuwalk_audit::{Audit, Right, RightSet};
//! use rcuwalk_host::Identity;
//! use std::ops::ControlFlow;
//!
//! let vfs = Vfs::new()?;
//! let root = vfs.task(Cred::root());
//! root.mkdir(b"/etc", 0o755)?;
//! root.creat(b"/etc/shadow", 0o640)?;
//! root.creat(b"/etc/passwd", 0o644)?;
//!
//! let identities = [Identity::new(1000, 1000, &[])];
//! let audit = Audit::new(&vfs, b"/etc", &identities, RightSet::of(&[Right::Read]))?;
//! let mut paths = Vec::new();
//! let summary = audit.run(|_| ControlFlow::Continue(()), |row| {
//!     paths.push(row.path.clone());
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!(paths, [b"/etc".to_vec(), b"/etc/passwd".to_vec()]);
//! assert_eq!(summary.entries, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod diff;
mod output;
mod preset;
mod right;
mod rule;
mod run;
mod service;

pub use diff::{Change, Diff, Saved, SavedError};
#[cfg(feature = "parquet")]
pub use output::Parquet;
pub use output::{Csv, Head, Json, Output, Sarif, Table, permissions};
pub use preset::{any_uid, world};
pub use rcuwalk_host::Identity;
pub use right::{Right, RightSet};
pub use rule::{Rule, RuleError};
pub use run::{Audit, AuditError, Row, Summary};
pub use service::{Service, ServiceError};
