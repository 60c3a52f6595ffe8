//! A directory of the running machine where it is: with the directories above it, and with what its mounts forbid.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rcuwalk::uapi::{
    MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_NOSYMFOLLOW, MS_RDONLY, MS_REMOUNT, XATTR_SIZE_MAX,
};
use rcuwalk::{Cred, Errno, NodeId, Vfs};
use rustix::fs::CWD;

use crate::import::{ImportOptions, import_dir};
use crate::mountinfo::{MountEntry, mount_of, mounts};
use crate::outcome::{ImportError, Problem, Progress, Report};
use crate::scan::{meta, stat_at};

/// File systems with rules of their own about who may do what: nothing that is imported from them decides it.
const OWN_RULES: [&str; 1] = ["proc"];

/// File systems where another machine or program may decide differently.
const DECIDED_ELSEWHERE: [&str; 9] =
    ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "virtiofs", "glusterfs"];

/// A directory that was imported where it is.
#[derive(Debug)]
pub struct Live {
    /// Its path, without symbolic links; the same in the [`Vfs`].
    pub path: PathBuf,
    /// What was imported, the directories above it not counted.
    pub report: Report,
    /// Mount points that were kept empty because their file system has rules of its own.
    pub left_out: Vec<PathBuf>,
    /// Mount points where another machine or program may decide differently from what the attributes say.
    pub elsewhere: Vec<PathBuf>,
}

/// Imports the directory `dir` of the running machine to the same path in `vfs`, which should be empty, with the directories that
/// lead there (and nothing else of what is in those). Where mounts forbid something, so do mounts in `vfs`.
///
/// Left out is procfs, whose permissions are a matter of the asking process. `options.at` has no effect.
///
/// # Errors
///
/// Those of [`import_dir`].
///
/// ```
/// use rcuwalk::{Cred, Vfs};
/// use rcuwalk_host::{ImportOptions, Progress, import_live};
///
/// let vfs = Vfs::new()?;
/// let live = import_live(&vfs, "src".as_ref(), &ImportOptions::default(), &Progress::new())?;
/// assert_eq!(live.path, std::fs::canonicalize("src")?);
/// let lib = live.path.join("lib.rs");
/// assert!(vfs.task(Cred::root()).stat(lib.as_os_str().as_encoded_bytes()).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn import_live(
    vfs: &Vfs,
    dir: &Path,
    options: &ImportOptions,
    progress: &Progress,
) -> Result<Live, ImportError> {
    let open = |source| ImportError::Open { path: dir.to_path_buf(), source };
    let path = dir.canonicalize().map_err(open)?;
    let all = mounts()
        .map_err(|source| ImportError::Open { path: "/proc/thread-self/mountinfo".into(), source })?;
    let at = add_above(vfs, &path)?;
    let seen = visible(&all, &path);
    let of_types = |types: &[&str]| {
        let such = seen.iter().filter(|mount| types.contains(&&*mount.fs_type));
        such.map(|mount| mount.point.clone()).collect::<Vec<_>>()
    };
    let left_out = of_types(&OWN_RULES);
    let mut options = ImportOptions { at, ..options.clone() };
    options.skip.extend(left_out.iter().cloned());
    let report = import_dir(vfs, &path, &options, progress)?;
    let mut elsewhere = of_types(&DECIDED_ELSEWHERE);
    elsewhere.extend(seen.iter().filter(|m| m.fs_type.starts_with("fuse")).map(|m| m.point.clone()));
    let mut live = Live { path, report, left_out, elsewhere };
    if options.one_file_system {
        live.elsewhere.retain(|point| live.path.starts_with(point));
    }
    remount(vfs, &mut live, &all, &seen);
    Ok(live)
}

/// The mounts in and around `dir` that no later one hides.
fn visible<'a>(all: &'a [MountEntry], dir: &Path) -> Vec<&'a MountEntry> {
    let shown = |mount: &&MountEntry| mount_of(all, &mount.point).is_some_and(|top| top.id == mount.id);
    let mut seen: Vec<_> = all.iter().filter(|mount| mount.point.starts_with(dir)).filter(shown).collect();
    seen.sort_by_key(|mount| mount.point.components().count());
    if seen.first().is_none_or(|mount| mount.point != dir) {
        // What `dir` itself is seen through.
        seen.splice(0..0, mount_of(all, dir));
    }
    seen
}

/// Adds the directories above `path` and an empty one for it, unless it is the root.
fn add_above(vfs: &Vfs, path: &Path) -> Result<Option<NodeId>, ImportError> {
    let mut above: Vec<&Path> = path.ancestors().collect();
    above.reverse();
    let mut loader = vfs.loader();
    let mut node = None;
    for dir in above {
        let open = |e: rustix::io::Errno| ImportError::Open { path: dir.to_path_buf(), source: e.into() };
        let c_path = CString::new(dir.as_os_str().as_bytes()).map_err(|_| open(rustix::io::Errno::INVAL))?;
        let stat = stat_at(CWD, &c_path).map_err(open)?;
        let mut acl = vec![0; XATTR_SIZE_MAX];
        let name = c"system.posix_acl_access";
        let length = rustix::fs::lgetxattr(&*c_path, name, &mut acl[..]).unwrap_or(0);
        let acl: (&[u8], &[u8]) = (name.to_bytes(), &acl[..length]);
        let xattrs = if length > 0 { std::slice::from_ref(&acl) } else { &[] };
        let meta = meta(&stat);
        let inode = meta.new_inode(b"", xattrs);
        let insert = |errno| ImportError::Insert { path: dir.to_path_buf(), errno };
        node = match (node, dir.file_name()) {
            (Some(parent), Some(name)) => Some(loader.add(parent, name.as_bytes(), &inode).map_err(insert)?),
            _ => {
                loader.set_root(&inode).map_err(insert)?;
                Some(loader.root())
            }
        };
    }
    Ok(node.filter(|&node| node != loader.root()))
}

/// Restricts what the mounts restrict.
fn remount(vfs: &Vfs, live: &mut Live, all: &[MountEntry], seen: &[&MountEntry]) {
    let root = vfs.task(Cred::root());
    for mount in seen {
        let point = if live.path.starts_with(&mount.point) { &live.path } else { &mount.point };
        let flags = ms_flags(mount);
        let around = point.parent().and_then(|above| mount_of(all, above)).map_or(0, ms_flags);
        let made = if point == Path::new("/") {
            vfs.set_mount_options(
                mount.options.with_read_only(mount.options.read_only || mount.sb_read_only),
            );
            Ok(())
        } else if flags == 0 && (around == 0 || *point == live.path) {
            Ok(())
        } else {
            let at = point.as_os_str().as_bytes();
            root.mount(at, at, b"", MS_BIND, b"")
                .and_then(|()| root.mount(b"", at, b"", MS_REMOUNT | MS_BIND | flags, b""))
        };
        // What could not be read or was left out is not there to be mounted over.
        if let Err(e) = made
            && e != Errno::ENOENT
        {
            live.report.add_problem(Problem::new(point.as_os_str().as_bytes().to_vec(), "restrict mount", e));
        }
    }
}

fn ms_flags(mount: &MountEntry) -> u64 {
    let options = &mount.options;
    [
        (options.read_only || mount.sb_read_only, MS_RDONLY),
        (options.noexec, MS_NOEXEC),
        (options.nosuid, MS_NOSUID),
        (options.nodev, MS_NODEV),
        (options.nosymfollow, MS_NOSYMFOLLOW),
    ]
    .iter()
    .filter(|(on, _)| *on)
    .fold(0, |all, (_, flag)| all | flag)
}
