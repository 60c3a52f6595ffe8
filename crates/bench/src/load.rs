//! The host's tree into the engine.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rcuwalk::perm::{IFLAG_APPEND, IFLAG_IMMUTABLE};
use rcuwalk::uapi::{XATTR_LIST_MAX, XATTR_SIZE_MAX};
use rcuwalk::{MountOptions, NewInode, NodeId, Timespec, Vfs};
use rcuwalk_host::{ImportOptions, Progress, import_dir};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

use crate::attr::{Attr, Stamp, host_attr};
use crate::error::Error;
use crate::run::Observer;
use crate::tree::Tree;

/// A tree in the engine.
pub struct Loaded {
    /// The engine.
    pub vfs: Vfs,
    /// Names that were imported.
    pub entries: u64,
    /// How long that took.
    pub seconds: f64,
}

/// The tree at its own absolute path, below directories with the attributes of the host's: one and the same path
/// string means the same on both sides.
///
/// # Errors
///
/// When the tree cannot be read or does not fit.
pub fn with_ancestors(tree: &Tree, observer: &dyn Observer) -> Result<Loaded, Error> {
    let vfs = empty(tree)?;
    let clock = Instant::now();
    graft(tree, &vfs)?;
    let entries = tree.entries.len() as u64;
    observer.reached(entries);
    Ok(Loaded { vfs, entries, seconds: clock.elapsed().as_secs_f64() })
}

/// The tree alone, its top as the root.
///
/// # Errors
///
/// When the tree cannot be read or does not fit.
pub fn alone(tree: &Tree) -> Result<Vfs, Error> {
    import(tree, empty(tree)?, &()).map(|loaded| loaded.vfs)
}

/// Adds the listed names below the directories that lead to them.
fn graft(tree: &Tree, vfs: &Vfs) -> Result<(), Error> {
    let mut loader = vfs.loader();
    let mut dirs: HashMap<Vec<u8>, NodeId> = HashMap::new();
    let mut shared: HashMap<u64, NodeId> = HashMap::new();
    let way = tree.ancestors();
    let way = way.iter().filter_map(|path| tree.dirs.get(path).map(|attr| (path, attr)));
    let listed = tree.entries.iter().map(|entry| (&entry.path, &entry.attr));
    // A name on which another file system begins is kept, and kept empty.
    let mounts: Vec<(&CString, Attr)> =
        tree.mounts.iter().filter_map(|path| Some((path, host_attr(path, false).ok()?))).collect();
    let mounts = mounts.iter().map(|(path, attr)| (*path, attr));
    for (path, attr) in way.chain(listed).chain(mounts) {
        let bytes = path.to_bytes();
        let failed = |errno| Error::engine("importing", bytes, errno, "import a smaller tree");
        let cut = bytes.iter().rposition(|&b| b == b'/').unwrap_or(0);
        let name = &bytes[cut + 1..];
        let node = if name.is_empty() {
            with_inode(path, attr, |inode| loader.set_root(inode)).map_err(failed)?;
            loader.root()
        } else {
            let Some(&parent) = dirs.get(&bytes[..cut]) else { continue };
            match shared.get(&attr.ino) {
                Some(&other) if !attr.is_dir() => loader.link(parent, name, other),
                _ => with_inode(path, attr, |inode| loader.add(parent, name, inode)),
            }
            .map_err(failed)?
        };
        if attr.is_dir() {
            dirs.insert(bytes[..if name.is_empty() { 0 } else { bytes.len() }].to_vec(), node);
        } else if attr.nlink > 1 {
            shared.insert(attr.ino, node);
            loader.set_nlink(node, u32::try_from(attr.nlink).unwrap_or(u32::MAX));
        }
    }
    Ok(())
}

/// Reads what the listing has not: the body of a link, attributes, flags.
fn with_inode<T>(path: &CStr, attr: &Attr, make: impl FnOnce(&NewInode<'_>) -> T) -> T {
    let body = rustix::fs::readlink(path, Vec::new()).map(CString::into_bytes).unwrap_or_default();
    let own = xattrs(path);
    let xattrs: Vec<(&[u8], &[u8])> = own.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    let known = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    let flags = known.map_or(StatxAttributes::empty(), |stx| stx.stx_attributes);
    let flag = |host, ours| if flags.contains(host) { ours } else { 0 };
    let time = |stamp: Stamp| Timespec { sec: stamp.sec, nsec: stamp.nsec };
    make(&NewInode {
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        rdev: rustix::fs::makedev(attr.rdev_major, attr.rdev_minor),
        size: attr.size,
        blocks: Some(attr.blocks),
        ino: Some(attr.ino),
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        btime: time(attr.btime.unwrap_or_default()),
        iflags: flag(StatxAttributes::IMMUTABLE, IFLAG_IMMUTABLE)
            | flag(StatxAttributes::APPEND, IFLAG_APPEND),
        symlink: &body,
        xattrs: &xattrs,
    })
}

/// The extended attributes that can be read, ACLs among them.
fn xattrs(path: &CStr) -> Vec<(Vec<u8>, Vec<u8>)> {
    if !rustix::fs::llistxattr_query(path).is_ok_and(|length| length > 0) {
        return Vec::new();
    }
    let mut names = vec![0; XATTR_LIST_MAX];
    let length = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
    let names = names[..length].split(|&b| b == 0).filter(|name| !name.is_empty());
    names
        .filter_map(|name| {
            let mut value = vec![0; XATTR_SIZE_MAX];
            let length = rustix::fs::lgetxattr(path, name, &mut value).ok()?;
            value.truncate(length);
            Some((name.to_vec(), value))
        })
        .collect()
}

/// An engine whose mount forbids what the tree's mount forbids. Access times stand still in it: reading the tree to
/// compare it must not change it.
fn empty(tree: &Tree) -> Result<Vfs, Error> {
    const HINT: &str = "raise ulimit -v, or free memory";
    let mount = &tree.mount;
    let options = MountOptions {
        read_only: mount.read_only,
        noexec: mount.noexec,
        nosymfollow: mount.nosymfollow,
        noatime: true,
        ..MountOptions::default()
    };
    let vfs = Vfs::builder()
        .mount_options(options)
        .build()
        .map_err(|e| Error::engine("reserving memory for the tree", tree.dir.to_bytes(), e, HINT))?;
    vfs.set_read_only(mount.super_read_only);
    Ok(vfs)
}

/// Imports the tree, telling the observer how far it is.
fn import(tree: &Tree, vfs: Vfs, observer: &dyn Observer) -> Result<Loaded, Error> {
    let dir = Path::new(OsStr::from_bytes(tree.dir.to_bytes()));
    let options = ImportOptions { one_file_system: true, ..ImportOptions::default() };
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
        let report = import_dir(&vfs, dir, &options, &progress);
        finished.store(true, Ordering::Release);
        if let Some(watcher) = watcher {
            watcher.thread().unpark();
        }
        report
    });
    let seconds = clock.elapsed().as_secs_f64();
    let report = report.map_err(|e| Error::new("importing", dir.display().to_string(), e.to_string(), ""))?;
    Ok(Loaded { vfs, entries: report.entries(), seconds })
}
