//! The host's tree as the kernel shows it before the import: the list of paths that everything else works on.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rcuwalk_host::{MountEntry, mounts};
use rcuwalk_measure::Error;
use rcuwalk_measure::attr::{Attr, host_attr};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, StatxFlags, openat, statx};
use rustix::io::Errno;

/// One name and what `statx(2)` said about it before the import.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Absolute path.
    pub path: CString,
    /// Attributes, links not followed.
    pub attr: Attr,
    /// Of a link: what it leads to, or the error number of following it.
    pub target: Option<Box<Result<Attr, i32>>>,
}

impl Entry {
    fn new(path: CString, attr: Attr) -> Entry {
        let target = attr.is_symlink().then(|| Box::new(host_attr(&path, true)));
        Entry { path, attr, target }
    }
}

/// A directory tree of the running machine, on one mount.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Absolute path of the top directory, free of links.
    pub dir: CString,
    /// Every name below and including the top, parents before children.
    pub entries: Vec<Entry>,
    /// Other file systems mounted inside; they and what lies below are left out.
    pub mounts: Vec<CString>,
    /// Directories that could not be read, sorted.
    pub unreadable: Vec<CString>,
    /// Names that vanished while the tree was being read.
    pub vanished: usize,
    /// The mount that holds the top; none where `/proc` does not tell.
    pub mount: Option<MountEntry>,
    /// Every directory listed above, and those on the way from `/` to the top.
    pub dirs: HashMap<CString, Attr>,
}

impl Tree {
    /// Lists `dir`, its links resolved first.
    ///
    /// # Errors
    ///
    /// When `dir` is missing, is no directory, or cannot be read.
    pub fn read(dir: &Path) -> Result<Tree, Error> {
        const WHAT: &str = "reading the directory";
        let real = fs::canonicalize(dir)
            .map_err(|e| Error::host(WHAT, dir, e, "name a directory that exists and can be searched"))?;
        let top = CString::new(real.into_os_string().into_vec())
            .map_err(|_| Error::new(WHAT, dir.display().to_string(), "a NUL in the name", ""))?;
        let mut walk = Walk::default();
        let (attr, id) = walk
            .lookup(&top)
            .map_err(|e| Error::host(WHAT, dir, e, "name a directory that exists and can be searched"))?;
        if !attr.is_dir() {
            return Err(Error::host(WHAT, dir, Errno::NOTDIR, "name a directory, not a file"));
        }
        open_dir(&top)
            .map_err(|e| Error::host(WHAT, dir, e, "run as a user who may read it, or name another"))?;
        walk.top = id;
        walk.entries.push(Entry::new(top.clone(), attr));
        let mut next = 0;
        while next < walk.entries.len() {
            if walk.entries[next].attr.is_dir() {
                let path = walk.entries[next].path.clone();
                walk.list(&path);
            }
            next += 1;
        }
        let mount = mounts().unwrap_or_default().into_iter().find(|mount| u64::from(mount.id) == id.1);
        let Walk { entries, mounts, mut unreadable, vanished, .. } = walk;
        unreadable.sort_unstable();
        let below = entries.iter().filter(|e| e.attr.is_dir()).map(|e| (e.path.clone(), e.attr));
        let dirs = below.collect();
        let mut tree = Tree { dir: top, entries, mounts, unreadable, vanished, mount, dirs };
        for path in tree.ancestors() {
            let attr = host_attr(&path, false).map_err(|raw| {
                Error::host(WHAT, dir, io::Error::from_raw_os_error(raw), "name one that can be reached")
            })?;
            tree.dirs.insert(path, attr);
        }
        Ok(tree)
    }

    /// The directories from `/` to the parent of the top, outermost first; empty when the top is `/`.
    pub fn ancestors(&self) -> Vec<CString> {
        let dir = Path::new(OsStr::from_bytes(self.dir.to_bytes()));
        let mut up: Vec<CString> =
            dir.ancestors().skip(1).filter_map(|p| CString::new(p.as_os_str().as_bytes()).ok()).collect();
        up.reverse();
        up
    }

    /// True if resolving `path`, its final link included, meets nothing but the tree and the way down to it.
    ///
    /// Beyond, the engine has no answer to compare: it holds the tree alone.
    pub fn stays_inside(&self, path: &[u8]) -> bool {
        let mut todo: Vec<Vec<u8>> = components(path);
        let mut at: Vec<u8> = Vec::new();
        let mut links = 0;
        while let Some(name) = todo.pop() {
            if name == b".." {
                let parent = at.iter().rposition(|&b| b == b'/').unwrap_or(0);
                at.truncate(parent);
            } else {
                at.push(b'/');
                at.extend_from_slice(&name);
            }
            if !self.holds(&at) {
                return false;
            }
            let Ok(target) = rustix::fs::readlink(at.as_slice(), Vec::new()) else { continue };
            links += 1;
            if links > 40 {
                return true; // ELOOP on both sides
            }
            let target = target.to_bytes();
            if target.first() == Some(&b'/') {
                at.clear();
            } else {
                let parent = at.iter().rposition(|&b| b == b'/').unwrap_or(0);
                at.truncate(parent);
            }
            todo.extend(components(target));
        }
        true
    }

    /// True if `path` (no trailing slash; empty means `/`) lies in the tree or on the way from `/` to it.
    fn holds(&self, path: &[u8]) -> bool {
        let dir = self.dir.to_bytes();
        let below = |base: &[u8], path: &[u8]| {
            base == b"/" || (path.starts_with(base) && matches!(path.get(base.len()), None | Some(b'/')))
        };
        let on_the_way = path.is_empty() || below(path, dir);
        on_the_way || (below(dir, path) && !self.mounts.iter().any(|m| below(m.to_bytes(), path)))
    }
}

/// The components of a path, last first, without empty ones and `.`.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|&b| b == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.rev().map(<[u8]>::to_vec).collect()
}

/// Device and mount id: what tells one mount from the next, bind mounts included.
type MountKey = ((u32, u32), u64);

#[derive(Default)]
struct Walk {
    top: MountKey,
    entries: Vec<Entry>,
    mounts: Vec<CString>,
    unreadable: Vec<CString>,
    vanished: usize,
}

impl Walk {
    fn lookup(&self, path: &CStr) -> rustix::io::Result<(Attr, MountKey)> {
        lookup_at(CWD, path)
    }

    /// Appends what `path` holds.
    fn list(&mut self, path: &CStr) {
        let dir = match open_dir(path) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR) => {
                self.vanished += 1;
                return;
            }
            Err(_) => {
                self.unreadable.push(path.to_owned());
                return;
            }
        };
        let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
        let mut names = RawDir::new(&dir, &mut buffer);
        while let Some(next) = names.next() {
            let Ok(entry) = next else {
                self.unreadable.push(path.to_owned());
                return;
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match lookup_at(&dir, name) {
                Ok((_, key)) if key != self.top => self.mounts.push(join(path, name)),
                Ok((attr, _)) => self.entries.push(Entry::new(join(path, name), attr)),
                Err(_) => self.vanished += 1,
            }
        }
    }
}

fn lookup_at(dir: impl rustix::fd::AsFd, name: &CStr) -> rustix::io::Result<(Attr, MountKey)> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
    let stx = statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, mask)?;
    Ok((Attr::from(&stx), ((stx.stx_dev_major, stx.stx_dev_minor), stx.stx_mnt_id)))
}

/// Opens a directory for listing, without moving its access time where the system allows that.
pub(crate) fn open_dir(path: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(CWD, path, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => openat(CWD, path, flags, Mode::empty()),
        other => other,
    }
}

/// The sorted names in a directory, without `.` and `..`.
///
/// # Errors
///
/// The error number of `open(2)` or `getdents(2)`.
pub fn host_names(path: &CStr) -> Result<Vec<Vec<u8>>, i32> {
    let dir = open_dir(path).map_err(Errno::raw_os_error)?;
    let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
    let mut reader = RawDir::new(&dir, &mut buffer);
    let mut names = Vec::new();
    while let Some(next) = reader.next() {
        let entry = next.map_err(Errno::raw_os_error)?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_bytes().to_vec());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// `dir/name`; neither holds a NUL.
pub(crate) fn join(dir: &CStr, name: &CStr) -> CString {
    let mut path = dir.to_bytes().to_vec();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name.to_bytes());
    CString::new(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn lists_every_name_once_parents_first() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(temp.path().join("a/b")).unwrap();
        fs::write(temp.path().join("a/b/f"), "12345").unwrap();
        symlink("nowhere", temp.path().join("l")).unwrap();
        fs::write(temp.path().join(OsStr::from_bytes(b"\xff\n")), "").unwrap();
        let tree = Tree::read(temp.path()).unwrap();
        let names: Vec<_> =
            tree.entries.iter().map(|e| &e.path.to_bytes()[tree.dir.to_bytes().len()..]).collect();
        assert_eq!(names[0], b"");
        let mut sorted = names.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [&b""[..], b"/a", b"/a/b", b"/a/b/f", b"/l", b"/\xff\n"]);
        assert!(names.iter().position(|n| n == b"/a") < names.iter().position(|n| n == b"/a/b/f"));
        assert_eq!(host_names(&tree.dir).unwrap(), [b"a".to_vec(), b"l".to_vec(), b"\xff\n".to_vec()]);
        assert_eq!(tree.ancestors()[0].as_c_str(), c"/");
    }

    #[test]
    fn tells_links_that_leave_from_links_that_stay() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let top = fs::canonicalize(temp.path()).unwrap();
        fs::create_dir(top.join("d")).unwrap();
        let link = |target: &Path, name: &str| symlink(target, top.join(name)).unwrap();
        link(Path::new("d"), "stays");
        link(&top.join("d"), "absolute");
        link(Path::new("missing/x"), "dangles");
        link(Path::new("loop"), "loop");
        link(Path::new("/etc"), "leaves");
        link(Path::new("leaves/passwd"), "leaves-later");
        link(Path::new(".."), "parent");
        link(Path::new("../rcuwalk-sibling"), "sibling");
        let tree = Tree::read(&top).unwrap();
        let inside = |name: &str| tree.stays_inside(top.join(name).as_os_str().as_bytes());
        for name in ["stays", "absolute", "dangles", "loop", "parent", "d/../stays"] {
            assert!(inside(name), "{name}");
        }
        for name in ["leaves", "leaves-later", "sibling"] {
            assert!(!inside(name), "{name}");
        }
    }

    #[test]
    fn refuses_what_is_no_directory() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let file = temp.path().join("f");
        fs::write(&file, "").unwrap();
        let message = Tree::read(&file).unwrap_err().to_string();
        assert!(message.contains("ENOTDIR") && message.contains("not a file"), "{message}");
        let message = Tree::read(&temp.path().join("gone")).unwrap_err().to_string();
        assert!(message.contains("ENOENT"), "{message}");
    }
}
