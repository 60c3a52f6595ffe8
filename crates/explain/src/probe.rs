//! Looking at the host: only what the engine's walk asks for, one name at a time, relative to open directories.
//!
//! No walk is made here. The engine walks an open copy of what is known so far; where it misses a name, that name is
//! looked at on the host, put into the copy, and the engine walks again. So links, `..`, mounts and interpreters lead
//! where the engine says, and a directory that is renamed meanwhile is looked at where it is now.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use rcuwalk::acl::posix_acl_from_xattr;
use rcuwalk::perm::{IFLAG_APPEND, IFLAG_IMMUTABLE, Protected};
use rcuwalk::trace::Event;
use rcuwalk::uapi::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use rcuwalk::userns::UserNamespace;
use rcuwalk::{Cred, Errno, MountOptions, Task};
use rustix::fs::{AtFlags, Mode, OFlags, StatVfsMountFlags, StatxAttributes, StatxFlags};

use crate::error::{Error, errno, io_errno};
use crate::proc;
use crate::scene::{Entry, Mount, MountIx, NodeIx, Object, Scene, View, World};

/// More names than any path leads through: 40 links of 4,095 bytes. What is asked beyond is not looked at.
const MOST_NAMES: usize = 40 * 2048;

const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Where to look: the file systems as one process sees them.
#[derive(Debug)]
pub struct Place {
    pub(crate) root: OwnedFd,
    pub(crate) cwd: OwnedFd,
    /// The path of the current directory as the root shows it; `None` if it is not below the root.
    cwd_path: Option<Vec<u8>>,
    mounts: BTreeMap<u64, Mount>,
    protected: Protected,
    /// Paths lead elsewhere than those of this process do.
    pub(crate) foreign: bool,
}

impl Place {
    /// What process `pid` sees; `None` is this process.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] if there is no such process, or its root may not be entered.
    pub fn of(pid: Option<i32>) -> Result<Place, Error> {
        let dir = pid.map_or("/proc/thread-self".to_owned(), |pid| format!("/proc/{pid}"));
        let hint = "run as root, or leave out --pid";
        let failed = |path: &str, errno| Error::Host {
            what: "looking at a process",
            path: path.to_owned(),
            errno,
            hint,
        };
        let open = |name: &str| {
            let path = format!("{dir}/{name}");
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| failed(&path, errno(e)))
        };
        let (root, cwd) = (open("root")?, open("cwd")?);
        let link = |name: &str| {
            let path = format!("{dir}/{name}");
            let body = rustix::fs::readlink(&path, Vec::new()).map_err(|e| failed(&path, errno(e)))?;
            Ok::<_, Error>(body.into_bytes())
        };
        let path = format!("{dir}/mountinfo");
        let mounts = std::fs::read(&path).map_err(|e| failed(&path, io_errno(&e)))?;
        // Mounts above the process's root are listed only to those who see them.
        let own = std::fs::read("/proc/thread-self/mountinfo").unwrap_or_default();
        let mut mounts_by_id = proc::mountinfo(&own);
        mounts_by_id.extend(proc::mountinfo(&mounts));
        let namespace = |dir: &str| std::fs::metadata(format!("{dir}/ns/mnt")).map(|m| m.ino()).ok();
        let foreign = link("root")? != b"/" || namespace(&dir) != namespace("/proc/thread-self");
        Ok(Place {
            cwd_path: below(&link("root")?, &link("cwd")?),
            root,
            cwd,
            mounts: mounts_by_id,
            foreign,
            protected: protected(),
        })
    }
}

/// `path` without the `root` in front of it.
fn below(root: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    let rest = if root == b"/" { path } else { path.strip_prefix(root)? };
    match rest {
        b"" => Some(b"/".to_vec()),
        [b'/', ..] => Some(rest.to_vec()),
        _ => None,
    }
}

/// The `fs.protected_*` settings; a kernel without them behaves as with 0.
fn protected() -> Protected {
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/fs/protected_{name}")).unwrap_or_default();
        text.trim().parse::<u8>().unwrap_or(0)
    };
    Protected {
        symlinks: read("symlinks") != 0,
        hardlinks: read("hardlinks") != 0,
        regular: read("regular"),
        fifos: read("fifos"),
    }
}

/// A scene that grows.
pub(crate) struct Probe<'a> {
    place: &'a Place,
    pub(crate) scene: Scene,
    open: World,
    looked: usize,
    /// Programs are to be executed: what is in them matters, too.
    contents: bool,
}

impl<'a> Probe<'a> {
    pub(crate) fn new(place: &'a Place, contents: bool) -> Result<Probe<'a>, Error> {
        let mut scene = Scene { protected: place.protected, ..Scene::default() };
        let failed = |errno| Error::Host {
            what: "looking at the root directory",
            path: "/".to_owned(),
            errno,
            hint: "run as root",
        };
        let root = place.root.try_clone().map_err(|e| failed(io_errno(&e)))?;
        let (object, mount_id) = look_at(root.as_fd(), false).map_err(failed)?;
        scene.mounts.push(mount_of(place, mount_id, root.as_fd()));
        scene.add(0, b"", 0, object);
        scene.nodes[0].fd = Some(root);
        let open = World::new(&scene, View::Open).map_err(|e| Error::Engine("/", e))?;
        let mut probe = Probe { place, scene, open, looked: 0, contents };
        probe.find_cwd()?;
        Ok(probe)
    }

    /// Looks at the way to the current directory, for relative paths.
    fn find_cwd(&mut self) -> Result<(), Error> {
        let Some(path) = self.place.cwd_path.clone() else { return Ok(()) };
        self.discover(|task| task.chdir(&path).unwrap_or_default())?;
        let there = self.open.vfs.task(Cred::root()).stat(&path);
        let wanted = look_at(self.place.cwd.as_fd(), false).map(|(object, _)| object.host);
        // Otherwise it was renamed, removed or mounted over, and relative paths have no start.
        if let (Ok(stat), Ok(wanted)) = (there, wanted)
            && self.scene.nodes.get(stat.ino as usize - 1).is_some_and(|node| node.object.host == wanted)
        {
            self.scene.cwd = path;
        }
        Ok(())
    }

    /// Whether there is a current directory to start relative paths from.
    pub(crate) fn has_cwd(&self) -> bool {
        !self.scene.cwd.is_empty()
    }

    /// Looks at everything that `call` comes to. The call must not change the tree.
    pub(crate) fn discover(&mut self, call: impl Fn(&mut Task)) -> Result<(), Error> {
        loop {
            let mut task = self.open.vfs.task(Cred::root());
            if !self.scene.cwd.is_empty() {
                task.chdir(&self.scene.cwd).map_err(|e| Error::Engine("the current directory", e))?;
            }
            let ((), events) = self.open.vfs.record(|| call(&mut task));
            drop(task);
            let mut found = false;
            for event in events {
                if let Event::Missing { name, dir } = event {
                    found |= self.look(World::node(dir), &name);
                }
            }
            if !found {
                return Ok(());
            }
            self.open.catch_up(&self.scene).map_err(|e| Error::Engine("what was found", e))?;
        }
    }

    /// The type of what a path leads to, its last link not followed; `None` if nothing is there.
    pub(crate) fn kind(&self, path: &[u8]) -> Option<u32> {
        let task = self.open.vfs.task(Cred::root());
        let moved = self.scene.cwd.is_empty() || task.chdir(&self.scene.cwd).is_ok();
        task.lstat(path).ok().filter(|_| moved).map(|stat| stat.mode & S_IFMT)
    }

    /// Whether a path leads to a regular file.
    pub(crate) fn leads_to_file(&self, path: &[u8]) -> bool {
        self.open.vfs.task(Cred::root()).stat(path).is_ok_and(|stat| stat.mode & S_IFMT == S_IFREG)
    }

    /// The paths, each as its walk began with it, that `call` does not find.
    pub(crate) fn missed(&self, call: impl Fn(&mut Task)) -> Vec<Vec<u8>> {
        let mut task = self.open.vfs.task(Cred::root());
        let moved = self.scene.cwd.is_empty() || task.chdir(&self.scene.cwd).is_ok();
        let ((), events) = self.open.vfs.record(|| call(&mut task));
        let (mut path, mut missed) = (Vec::new(), Vec::new());
        for event in events {
            match event {
                Event::Walk { path: walked, .. } => path = walked,
                Event::Missing { .. } if moved => missed.push(path.clone()),
                _ => {}
            }
        }
        missed
    }

    /// Looks at one entry of the directory at `path`, if it is one: whether it is empty matters to who removes it.
    pub(crate) fn look_into(&mut self, path: &[u8]) {
        let task = self.open.vfs.task(Cred::root());
        let moved = self.scene.cwd.is_empty() || task.chdir(&self.scene.cwd).is_ok();
        let Some(stat) = task.lstat(path).ok().filter(|stat| moved && stat.mode & S_IFMT == S_IFDIR) else {
            return;
        };
        let dir = stat.ino as usize - 1;
        let node = &mut self.scene.nodes[dir];
        let Some(fd) = &node.fd else { return };
        match std::fs::read_dir(format!("/proc/self/fd/{}", fd.as_raw_fd())) {
            Ok(mut entries) => {
                if let Some(Ok(entry)) = entries.next() {
                    self.look(dir, entry.file_name().as_encoded_bytes());
                }
            }
            Err(e) => {
                let errno = io_errno(&e);
                node.object.unseen.push(format!("whether it is empty could not be seen ({errno})"));
            }
        }
    }

    /// Looks at a name that was not looked at yet; says whether it is there.
    fn look(&mut self, dir: NodeIx, name: &[u8]) -> bool {
        let Some(node) = self.scene.nodes.get(dir) else { return false };
        if node.entries.contains_key(name) || self.looked == MOST_NAMES {
            return false;
        }
        self.looked += 1;
        let Some(fd) = &node.fd else { return false };
        let entry = match rustix::fs::openat(fd, name, LOOK, Mode::empty()) {
            Ok(fd) => match look_at(fd.as_fd(), self.contents) {
                Ok((object, mount)) => return self.add(dir, name, object, mount, fd),
                Err(errno) => self.closed(fd.as_fd()).map_or(Entry::Unseen(errno), Entry::Closed),
            },
            Err(e) => match errno(e) {
                Errno::ENOENT | Errno::ENAMETOOLONG | Errno::EINVAL => Entry::Missing,
                errno => Entry::Unseen(errno),
            },
        };
        self.scene.nodes[dir].entries.insert(name.to_vec(), entry);
        false
    }

    fn add(&mut self, dir: NodeIx, name: &[u8], object: Object, mount_id: u64, fd: OwnedFd) -> bool {
        let mount = self.mount(mount_id, fd.as_fd());
        let is_dir = object.kind() == S_IFDIR;
        let node = self.scene.add(dir, name, mount, object);
        if is_dir {
            self.scene.nodes[node].fd = Some(fd);
        }
        true
    }

    /// The mount of something that does not let this process look at it, if it is a FUSE file system of another user.
    fn closed(&mut self, fd: BorrowedFd<'_>) -> Option<MountIx> {
        let info = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{}", fd.as_raw_fd())).ok()?;
        let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()?;
        let mount =
            self.place.mounts.get(&id).filter(|mount| mount.is_fuse() && !mount.has("allow_other"))?;
        self.scene.mounts.push(mount.clone());
        Some(self.scene.mounts.len() - 1)
    }

    /// The number of a mount in the scene.
    fn mount(&mut self, id: u64, fd: BorrowedFd<'_>) -> MountIx {
        let known = self.scene.mounts.iter().position(|mount| mount.id == id);
        known.unwrap_or_else(|| {
            self.scene.mounts.push(mount_of(self.place, id, fd));
            self.scene.mounts.len() - 1
        })
    }
}

/// What is known of a mount. One that is not listed (it lies outside the process's root) says its flags itself.
fn mount_of(place: &Place, id: u64, fd: BorrowedFd<'_>) -> Mount {
    if let Some(mount) = place.mounts.get(&id) {
        return mount.clone();
    }
    let mut mount = Mount { id, unseen: true, fstype: "unknown".to_owned(), ..Mount::default() };
    if let Ok(stat) = rustix::fs::fstatvfs(fd) {
        let has = |flag| stat.f_flag.contains(flag);
        mount.options = MountOptions::default()
            .with_read_only(has(StatVfsMountFlags::RDONLY))
            .with_noexec(has(StatVfsMountFlags::NOEXEC))
            .with_nosuid(has(StatVfsMountFlags::NOSUID))
            .with_nodev(has(StatVfsMountFlags::NODEV));
    }
    mount
}

/// What an open object is, and in which mount. `contents`: of a regular file, the pieces that execve looks at, too.
fn look_at(fd: BorrowedFd<'_>, contents: bool) -> Result<(Object, u64), Errno> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let stat =
        rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT, mask).map_err(errno)?;
    let mut object = Object {
        mode: u32::from(stat.stx_mode),
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        rdev: rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
        host: (rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino),
        ..Object::default()
    };
    for (attribute, flag) in
        [(StatxAttributes::IMMUTABLE, IFLAG_IMMUTABLE), (StatxAttributes::APPEND, IFLAG_APPEND)]
    {
        if stat.stx_attributes.contains(attribute) {
            object.iflags |= flag;
        }
    }
    if object.kind() == S_IFLNK {
        object.body = rustix::fs::readlinkat(fd, c"", Vec::new()).map_err(errno)?.into_bytes();
        // What /proc makes up has no length of its own.
        object.size = object.body.len() as u64;
        return Ok((object, stat.stx_mnt_id));
    }
    read_attributes(fd, &mut object);
    if contents && object.kind() == S_IFREG {
        object.contents = read_program(fd, object.size);
    }
    Ok((object, stat.stx_mnt_id))
}

/// Reads the ACL and the capabilities. The descriptor has no permission for that, but the file behind it can be named.
fn read_attributes(fd: BorrowedFd<'_>, object: &mut Object) {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match attribute(&path, c"system.posix_acl_access") {
        Ok(None) => {}
        Ok(Some(value)) => match posix_acl_from_xattr(&value, |uid| uid, |gid| gid)
            .and_then(|acl| acl.map(|acl| acl.validate(&UserNamespace::init())).transpose())
        {
            Ok(acl) => object.acl = acl.filter(|acl| acl.equiv_mode().1),
            Err(errno) => object.unseen.push(format!("its ACL makes no sense ({errno})")),
        },
        Err(errno) => object.unseen.push(format!("its ACL could not be read ({errno})")),
    }
    if object.kind() == S_IFREG {
        match attribute(&path, c"security.capability") {
            Ok(value) => object.caps = value,
            Err(errno) => object.unseen.push(format!("its capabilities could not be read ({errno})")),
        }
    }
}

/// The value of an extended attribute; `None` if there is none, or the file system has none.
fn attribute(path: &str, name: &std::ffi::CStr) -> Result<Option<Vec<u8>>, Errno> {
    let mut value = vec![0; 1024];
    loop {
        match rustix::fs::getxattr(path, name, &mut value[..]) {
            Ok(len) => {
                value.truncate(len);
                return Ok(Some(value));
            }
            Err(rustix::io::Errno::RANGE) if value.len() < 65_536 => value.resize(65_536, 0),
            Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => return Ok(None),
            Err(e) => return Err(errno(e)),
        }
    }
}

/// Bytes that decide what kind of program a file is.
const WINDOW: u64 = 256;
/// The most bytes of program headers, and the longest name of an interpreter, that execve reads.
const MOST_HEADERS: u64 = 65_536;

/// The pieces of a program that execve looks at: its first bytes, and where these are an ELF header, the program headers
/// and the name of the interpreter. `None` if the file may not be read.
fn read_program(fd: BorrowedFd<'_>, size: u64) -> Option<Vec<(u64, Vec<u8>)>> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(
        rustix::fs::open(&path, flags | OFlags::NOATIME, Mode::empty())
            .or_else(|_| rustix::fs::open(&path, flags, Mode::empty()))
            .ok()?,
    );
    let piece = |offset: u64, len: u64| {
        let mut bytes = vec![0; len.min(size.saturating_sub(offset)) as usize];
        file.read_exact_at(&mut bytes, offset).ok().map(|()| (offset, bytes))
    };
    let mut pieces = vec![piece(0, WINDOW)?];
    let window = pieces[0].1.clone();
    if !window.starts_with(b"\x7fELF") || window.len() < 64 {
        return Some(pieces);
    }
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |n, &byte| n << 8 | u64::from(byte));
    let (offset, each, count) = (number(&window[32..40]), number(&window[54..56]), number(&window[56..58]));
    let headers = each * count;
    if each < 56 || headers > MOST_HEADERS || offset.checked_add(headers).is_none_or(|end| end > size) {
        return Some(pieces);
    }
    let (at, headers) = piece(offset, headers)?;
    let interpreters = headers.chunks_exact(each as usize).filter(|header| number(&header[..4]) == 3);
    for header in interpreters {
        let (offset, len) = (number(&header[8..16]), number(&header[32..40]));
        if offset < size && len <= 4096 {
            pieces.push(piece(offset, len)?);
        }
    }
    pieces.push((at, headers));
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_taken_off_a_path() {
        assert_eq!(below(b"/", b"/a"), Some(b"/a".to_vec()));
        assert_eq!(below(b"/r", b"/r"), Some(b"/".to_vec()));
        assert_eq!(below(b"/r", b"/r/x"), Some(b"/x".to_vec()));
        assert_eq!(below(b"/r", b"/rest"), None);
        assert_eq!(below(b"/r", b"/x"), None);
    }

    #[test]
    fn a_program_is_read_as_far_as_needed() {
        let file = File::open("/proc/self/exe").unwrap();
        let size = file.metadata().unwrap().len();
        let pieces = read_program(file.as_fd(), size).unwrap();
        assert!(pieces.len() == 3 && pieces[1].1.ends_with(b"\0"), "{pieces:?}");
    }
}
