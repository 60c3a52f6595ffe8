//! An engine tree in one file.
//!
//! The tree lives in the engine; the file is what it is made of again after the process ended, however it ended. [`Live`] keeps a
//! [`Vfs`] in an image while it is used: what is fsynced survives everything, and of the rest at most the last
//! seconds are lost, never the structure. [`save`] writes a whole tree at once, [`load`] reads one without touching the file, and
//! [`check`] says whether it could be.
//!
//! Every record has a checksum of its own, and the image one of all records together, above those that the store has for its
//! pages. What does not agree, and what makes no sense as a tree, is refused by name. `docs/image.md` has the format.
//!
//! ```
//! use rcuwalk::{Cred, Vfs};
//!
//! let dir = tempfile::tempdir()?;
//! let file = dir.path().join("tree.image");
//! let vfs = Vfs::new()?;
//! vfs.task(Cred::root()).mkdir(b"/srv", 0o750)?;
//! rcuwalk_image::save(&vfs, &file)?;
//!
//! let copy = Vfs::new()?;
//! let (summary, _) = rcuwalk_image::load(&file, &copy, rcuwalk_image::Contents::Keep)?;
//! assert_eq!(summary.names, 1);
//! assert_eq!(copy.task(Cred::root()).stat(b"/srv")?.mode & 0o777, 0o750);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod disk;
mod error;
mod live;
#[cfg(test)]
mod lost;
mod overlay;
mod record;
mod store;
mod tree;

pub use error::{Error, Result};
pub use live::{Live, Options};
pub use tree::{Contents, Inventory};

use error::{Fault, Outcome};
use rcuwalk::{Timespec, Vfs};
use record::Kind;
use std::path::Path;
use store::{Db, Look, distrusting};

/// What an image holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The version of its format.
    pub version: u32,
    /// How often it was committed.
    pub commits: u64,
    /// When it last was.
    pub committed: Timespec,
    /// Inodes.
    pub nodes: u64,
    /// Names; the root has none.
    pub names: u64,
    /// Pieces of contents beside those that lie with their inodes.
    pub chunks: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// How many of them the next commits can use.
    pub free_bytes: u64,
    /// Its process closed it. Else that process still has it, or was killed, or the file is a copy of one that was in use; it is as of
    /// its last commit.
    pub closed: bool,
    /// Another process keeps it: what that has not committed is not in it.
    pub in_use: bool,
}

impl Summary {
    fn of(db: &Db, file_bytes: u64) -> Outcome<Summary> {
        let state = &db.state;
        Ok(Summary {
            version: state.version,
            commits: state.commit,
            committed: Timespec { sec: state.time.0, nsec: state.time.1 },
            nodes: state.counts[Kind::Node as usize],
            names: state.counts[Kind::Name as usize],
            chunks: state.counts[Kind::Chunk as usize],
            file_bytes,
            free_bytes: file_bytes.saturating_sub(db.used()?),
            closed: true,
            in_use: false,
        })
    }
}

/// What every image file begins with: the mark of its store.
pub const MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";

/// Writes the whole tree of `vfs` into an image file, which is replaced, if there is one, only once the new one is complete. Only
/// its owner may read it. Nothing can change the tree meanwhile.
///
/// What is mounted over the tree is not in it: one image is one file system.
///
/// # Errors
///
/// [`Error::Io`]; [`Error::Engine`] with `EBUSY` if the file system is kept in an image already, which has it.
pub fn save(vfs: &Vfs, path: &Path) -> Result<Summary> {
    let write = || -> Outcome<Summary> {
        let file = tempfile::NamedTempFile::new_in(disk::dir_of(path))?;
        let (_, mut db, changes, _) = live::write_new(file.reopen()?, path, vfs)?;
        drop(changes);
        db.compact()?;
        let summary = Summary::of(&db, file.as_file().metadata()?.len())?;
        db.close()?;
        file.persist(path).map_err(|e| e.error)?;
        live::sync_dir(path)?;
        Ok(summary)
    };
    write().map_err(|fault| fault.at(path))
}

/// Loads an image into `vfs`, a fresh file system. The file stays as it is: one that was not closed is repaired in memory.
///
/// # Errors
///
/// All of [`Error`]. `vfs` is to be dropped then.
pub fn load(path: &Path, vfs: &Vfs, contents: Contents) -> Result<(Summary, Inventory)> {
    let read = || read(path, &Look::open(path, false)?, vfs, contents);
    read().map_err(|fault: Fault| fault.at(path))
}

fn read(path: &Path, look: &Look, vfs: &Vfs, contents: Contents) -> Outcome<(Summary, Inventory)> {
    let db = &look.db;
    let (_, inventory) = distrusting(|| tree::load(&db.read()?, &db.state, &mut vfs.loader(), contents))?;
    let summary = Summary::of(db, std::fs::metadata(path)?.len())?;
    Ok((Summary { closed: look.is_closed(), in_use: look.in_use, ..summary }, inventory))
}

/// How often [`check`] reads an image again that is committed meanwhile.
const TRIES: usize = 5;

/// Reads all of an image as [`load`] does, and says what it holds. One that is in use, too, as of its last commit.
///
/// # Errors
///
/// As [`load`]; [`Error::Busy`] if it is in use and is committed again and again while it is read.
pub fn check(path: &Path) -> Result<(Summary, Inventory)> {
    let once = || -> Outcome<_> {
        let vfs = Vfs::new()?;
        let look = match Look::open(path, true) {
            Err(_) if store::is_locked(path)? => return Ok(None),
            look => look?,
        };
        let found = read(path, &look, &vfs, Contents::Leave);
        if look.in_use && !look.holds()? { Ok(None) } else { found.map(Some) }
    };
    for _ in 0..TRIES {
        if let Some(found) = once().map_err(|fault| fault.at(path))? {
            return Ok(found);
        }
    }
    Err(Error::Busy { path: path.into() })
}
