//! Mounts the tree of a [`Vfs`] on the running machine, through FUSE.
//!
//! A mount comes in two kinds. With [`Mode::AsSeen`] the kernel decides every permission, from modes and ACLs that it caches
//! for as long as it likes; with [`Mode::Engine`] the engine decides, for the process that calls. `docs/mount.md` in the repository says
//! what either can do, and what neither can.
//!
//! ```no_run
//! use rcuwalk::Vfs;
//! use rcuwalk_fuse::{Mount, Options};
//!
//! let mount = Mount::new(&Vfs::new()?, "/mnt".as_ref(), &Options::default())?;
//! std::fs::write("/mnt/hello", "world")?;
//! mount.unmount()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod attr;
mod caller;
mod covers;
mod mount;
mod nodes;
mod options;
mod protocol;
mod server;
mod session;
mod sys;

pub use mount::{Mount, MountError, unmount};
pub use options::{ABOUT, Mode, OptionError, Options};
pub use rcuwalk::Vfs;
