//! The host's tree into the engine.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rcuwalk::{MountOptions, NodeId, Vfs};
use rcuwalk_host::{ImportOptions, Progress, import_dir};
use rcuwalk_measure::Error;
use rcuwalk_measure::attr::with_inode;
use rcuwalk_measure::memory::resident_bytes;
use rcuwalk_measure::progress::Observer;

use crate::tree::Tree;

/// A tree in the engine.
pub struct Loaded {
    /// The engine.
    pub vfs: Vfs,
    /// Names that were imported.
    pub entries: u64,
    /// How long that took.
    pub seconds: f64,
    /// Resident memory that the empty engine took, in bytes.
    pub empty_bytes: u64,
    /// Resident memory that the tree took.
    pub resident_bytes: u64,
}

/// The tree at its own absolute path, below directories with the attributes of the host's: one and the same path
/// string means the same on both sides.
///
/// # Errors
///
/// When the tree cannot be read or does not fit.
pub fn with_ancestors(tree: &Tree, observer: &dyn Observer) -> Result<Loaded, Error> {
    let before = resident_bytes();
    let vfs = empty(tree)?;
    let top = make_way(tree, &vfs)?;
    let empty = resident_bytes();
    let (entries, seconds) = import(tree, &vfs, Some(top), observer)?;
    let resident_bytes = resident_bytes().saturating_sub(empty);
    Ok(Loaded { vfs, entries, seconds, empty_bytes: empty.saturating_sub(before), resident_bytes })
}

/// The tree alone, its top as the root.
///
/// # Errors
///
/// When the tree cannot be read or does not fit.
pub fn alone(tree: &Tree) -> Result<Vfs, Error> {
    let vfs = empty(tree)?;
    import(tree, &vfs, None, &())?;
    Ok(vfs)
}

/// Makes the directories that lead to the tree, and gives the one that will hold it.
fn make_way(tree: &Tree, vfs: &Vfs) -> Result<NodeId, Error> {
    let mut loader = vfs.loader();
    let mut at = loader.root();
    for path in tree.ancestors().iter().chain([&tree.dir]) {
        let bytes = path.to_bytes();
        let failed = |errno| Error::engine("importing", bytes, errno, "import a smaller tree");
        let Some(attr) = tree.dirs.get(path) else { continue };
        let name = bytes.rsplit(|&b| b == b'/').next().unwrap_or_default();
        if name.is_empty() {
            with_inode(path, attr, None, |inode| loader.dir_meta(at, inode)).map_err(failed)?;
        } else {
            at = with_inode(path, attr, None, |inode| loader.add(at, name, inode)).map_err(failed)?;
        }
        loader.set_nlink(at, u32::try_from(attr.nlink).unwrap_or(u32::MAX));
    }
    Ok(at)
}

/// An engine whose mount forbids what the tree's mount forbids. Access times stand still in it: reading the tree to
/// compare it must not change it.
fn empty(tree: &Tree) -> Result<Vfs, Error> {
    const HINT: &str = "raise ulimit -v, or free memory";
    let forbids = tree.mount.as_ref().map_or_else(MountOptions::default, |mount| mount.options);
    let vfs = Vfs::builder()
        .mount_options(forbids.with_noatime(true))
        .build()
        .map_err(|e| Error::engine("reserving memory for the tree", tree.dir.to_bytes(), e, HINT))?;
    vfs.set_read_only(tree.mount.as_ref().is_some_and(|mount| mount.sb_read_only));
    Ok(vfs)
}

/// Imports the tree, telling the observer how far it is. Gives the number of entries and the seconds.
fn import(tree: &Tree, vfs: &Vfs, at: Option<NodeId>, observer: &dyn Observer) -> Result<(u64, f64), Error> {
    let dir = Path::new(OsStr::from_bytes(tree.dir.to_bytes()));
    let options = ImportOptions { one_file_system: true, at, ..ImportOptions::default() };
    let progress = Progress::new();
    let finished = AtomicBool::new(false);
    let clock = Instant::now();
    let report = thread::scope(|scope| {
        let watch = || {
            while !finished.load(Ordering::Acquire) {
                observer.reached(progress.entries());
                thread::park_timeout(Duration::from_millis(50));
            }
        };
        // Without this thread there is no progress bar, and nothing else is lost.
        let watcher = thread::Builder::new().name("progress".into()).spawn_scoped(scope, watch).ok();
        let report = import_dir(vfs, dir, &options, &progress);
        finished.store(true, Ordering::Release);
        if let Some(watcher) = watcher {
            watcher.thread().unpark();
        }
        report
    });
    let seconds = clock.elapsed().as_secs_f64();
    let report = report.map_err(|e| Error::new("importing", dir.display().to_string(), e.to_string(), ""))?;
    Ok((report.entries(), seconds))
}
