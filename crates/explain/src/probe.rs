//! Looking at the host: only what the engine's walk asks for, one name at a time, relative to open directories.
//!
//! No walk is made here. The engine walks an open copy of what is known so far; where it misses a name, that name is
//! looked at on the host, put into the copy, and the engine walks again. So links, `..`, mounts and interpreters lead
//! where the engine says, and a directory that is renamed meanwhile is looked at where it is now.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};

use rcuwalk::acl::posix_acl_from_xattr;
use rcuwalk::perm::{IFLAG_APPEND, IFLAG_IMMUTABLE, MAY_READ, MAY_WRITE, Protected};
use rcuwalk::trace::Event;
use rcuwalk::uapi::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};
use rcuwalk::userns::UserNamespace;
use rcuwalk::{Cred, Errno, MountOptions, Task};
use rustix::fs::{Access, AtFlags, Mode, OFlags, StatVfsMountFlags, StatxAttributes, StatxFlags};

use crate::call::{Call, trimmed};
use crate::error::{Error, errno, io_errno};
use crate::proc;
use crate::scene::{Entry, Mount, MountIx, NodeIx, Object, Scene, Swap, View, World};

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
    /// The process that sees this, unless it is this one.
    pid: Option<i32>,
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
            pid,
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

/// The directory that a removed directory was in, if the path of one says that it was removed.
fn removed(path: &[u8]) -> Option<&[u8]> {
    path.strip_suffix(b" (deleted)")?;
    let slash = path.iter().rposition(|&byte| byte == b'/')?;
    Some(&path[..slash.max(1)])
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
        // A directory can have a name that looks so.
        let unlinked = rustix::fs::fstat(&self.place.cwd).is_ok_and(|stat| stat.st_nlink == 0);
        if let Some(parent) = removed(&path).filter(|_| unlinked) {
            return self.add_removed_cwd(parent, &path);
        }
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

    /// Has the scene the current directory that was removed: empty, below the directory that it was in.
    fn add_removed_cwd(&mut self, parent: &[u8], path: &[u8]) -> Result<(), Error> {
        let Ok((object, mount)) = look_at(self.place.cwd.as_fd(), false) else { return Ok(()) };
        self.discover(|task| task.chdir(parent).unwrap_or_default())?;
        let Some(dir) = self.target(parent) else { return Ok(()) };
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let mount = self.mount(mount, self.place.cwd.as_fd());
        if mount != self.scene.nodes[dir].mount {
            return Ok(());
        }
        let node = self.scene.add(dir, name, mount, object);
        self.scene.nodes[node].fd = self.place.cwd.try_clone().ok();
        (self.scene.cwd, self.scene.cwd_removed) = (path.to_vec(), true);
        self.open.catch_up(&self.scene).map_err(|e| Error::Engine("what was found", e))
    }

    /// Whether there is a current directory to start relative paths from.
    pub(crate) fn has_cwd(&self) -> bool {
        !self.scene.cwd.is_empty()
    }

    /// Looks at everything that `call` comes to. The call must not change the tree.
    pub(crate) fn discover(&mut self, call: impl Fn(&mut Task)) -> Result<(), Error> {
        loop {
            let mut task =
                self.open.task(&self.scene).map_err(|e| Error::Engine("the current directory", e))?;
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
        self.open.task(&self.scene).ok()?.lstat(path).ok().map(|stat| stat.mode & S_IFMT)
    }

    /// The type of what a path leads to, its last link followed.
    pub(crate) fn target_kind(&self, path: &[u8]) -> Option<u32> {
        self.target(path).map(|at| self.scene.nodes[at].object.kind())
    }

    /// What a path leads to, its last link followed.
    fn target(&self, path: &[u8]) -> Option<NodeIx> {
        let task = self.open.task(&self.scene).ok()?;
        let at = task.stat(path).ok()?.ino as usize - 1;
        (at < self.scene.nodes.len()).then_some(at)
    }

    /// What a path names, its last link not followed.
    fn entry(&self, path: &[u8]) -> Option<NodeIx> {
        let task = self.open.task(&self.scene).ok()?;
        let at = task.lstat(path).ok()?.ino as usize - 1;
        (at < self.scene.nodes.len()).then_some(at)
    }

    /// Looks at what else decides about `call` at what its path leads to.
    pub(crate) fn look_beside(&mut self, call: &Call) {
        self.look_for_swap(call);
        let Some(at) = self.target(call.path()) else { return };
        let object = &self.scene.nodes[at].object;
        let (kind, host) = (object.kind(), object.host);
        if kind == S_IFREG && call.wants() & MAY_WRITE != 0 && !matches!(call, Call::Access(..)) {
            match running(host) {
                Ok(pid) => self.scene.nodes[at].object.run_by = pid,
                Err(why) if object.mode & 0o111 != 0 => self.scene.nodes[at].object.may_refuse.push(why),
                Err(_) => {}
            }
        }
        if let Some(name) = call.attribute() {
            self.look_at_attribute(at, name);
        }
        if kind == S_IFSOCK && matches!(call, Call::Connect(_)) && !listens(host) {
            let text = "no process of this network namespace is seen to listen at it".to_owned();
            self.scene.nodes[at].object.may_refuse.push(text);
        }
    }

    /// Finds out whether the kernel swaps to what the call takes away or writes to.
    fn look_for_swap(&mut self, call: &Call) {
        let files: Vec<NodeIx> = match call {
            Call::Unlink(_) | Call::Rename(..) => {
                call.paths().into_iter().filter_map(|path| self.entry(trimmed(path))).collect()
            }
            Call::Access(..) => return,
            _ if call.wants() & MAY_WRITE != 0 => self.target(call.path()).into_iter().collect(),
            _ => return,
        };
        for at in files {
            let object = &mut self.scene.nodes[at].object;
            if object.kind() == S_IFREG {
                object.swap = swap(object.host);
            }
        }
    }

    /// Asks for the attribute that is to be set: where there can be none, the file system says so.
    fn look_at_attribute(&mut self, at: NodeIx, name: &[u8]) {
        let node = &self.scene.nodes[at];
        let path = match (&node.fd, &self.scene.nodes[node.parent].fd) {
            (Some(fd), _) => format!("/proc/self/fd/{}", fd.as_raw_fd()).into_bytes(),
            (None, Some(dir)) => {
                [format!("/proc/self/fd/{}/", dir.as_raw_fd()).as_bytes(), &node.name].concat()
            }
            (None, None) => return,
        };
        let mut room = [0; 1];
        match rustix::fs::getxattr(path, name, &mut room[..]).map_err(errno) {
            Err(Errno::EOPNOTSUPP) => self.scene.nodes[at].object.lacks_attribute = true,
            Ok(_) | Err(Errno::ENODATA | Errno::ERANGE) => {}
            Err(errno) => {
                let text = format!("whether it can have such an attribute could not be seen ({errno})");
                self.scene.nodes[at].object.may_refuse.push(text);
            }
        }
    }

    /// Whether a path leads to a regular file.
    pub(crate) fn leads_to_file(&self, path: &[u8]) -> bool {
        self.target_kind(path) == Some(S_IFREG)
    }

    /// The paths, each as its walk began with it, that `call` does not find.
    pub(crate) fn missed(&self, call: impl Fn(&mut Task)) -> Vec<Vec<u8>> {
        let Ok(mut task) = self.open.task(&self.scene) else { return Vec::new() };
        let ((), events) = self.open.vfs.record(|| call(&mut task));
        let (mut path, mut missed) = (Vec::new(), Vec::new());
        for event in events {
            match event {
                Event::Walk { path: walked, .. } => path = walked,
                Event::Missing { .. } => missed.push(path.clone()),
                _ => {}
            }
        }
        missed
    }

    /// A regular file, open for reading.
    ///
    /// # Errors
    ///
    /// That of open(2); `ESTALE` if something else is there by now.
    pub(crate) fn contents(&self, at: NodeIx) -> Result<File, Errno> {
        let node = &self.scene.nodes[at];
        let dir = self.scene.nodes[node.parent].fd.as_ref().ok_or(Errno::ENOENT)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, node.name.as_slice(), flags, Mode::empty()).map_err(errno)?;
        let there = rustix::fs::fstat(&file).map_err(errno)?;
        if (there.st_dev, there.st_ino) != node.object.host || node.object.kind() != S_IFREG {
            return Err(Errno::ESTALE);
        }
        Ok(File::from(file))
    }

    /// Looks at one entry of the directory at `path`, if it is one: rmdir needs to know whether it is empty.
    pub(crate) fn look_into(&mut self, path: &[u8]) {
        let stat = self.open.task(&self.scene).and_then(|task| task.lstat(path));
        let Some(stat) = stat.ok().filter(|stat| stat.mode & S_IFMT == S_IFDIR) else { return };
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

    fn add(&mut self, dir: NodeIx, name: &[u8], mut object: Object, mount_id: u64, fd: OwnedFd) -> bool {
        let mount = self.mount(mount_id, fd.as_fd());
        if let Some(pid) = self.place.pid.filter(|_| !self.place.foreign)
            && object.kind() == S_IFLNK
            && self.scene.mounts[mount].fstype == "proc"
        {
            // What looks here is this process, and it would be told its own number.
            match name {
                b"self" => object.body = pid.to_string().into_bytes(),
                b"thread-self" => object.body = format!("{pid}/task/{pid}").into_bytes(),
                _ => {}
            }
            object.size = object.body.len() as u64;
        }
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
    object.verity = stat.stx_attributes.contains(StatxAttributes::VERITY);
    if stat.stx_attributes.contains(StatxAttributes::ENCRYPTED) {
        object.unseen.push("it is encrypted, and whether its key is there could not be seen".to_owned());
    }
    if object.kind() == S_IFLNK {
        object.body = rustix::fs::readlinkat(fd, c"", Vec::new()).map_err(errno)?.into_bytes();
        // What /proc makes up has no length of its own.
        object.size = object.body.len() as u64;
        return Ok((object, stat.stx_mnt_id));
    }
    read_attributes(fd, &mut object);
    if matches!(object.kind(), S_IFCHR | S_IFBLK) {
        object.cgroup_refuses = device_cgroup(fd, &object);
    }
    if contents && object.kind() == S_IFREG {
        object.contents = read_program(fd, object.size);
    }
    Ok((object, stat.stx_mnt_id))
}

/// The process that runs this program. Only the names of programs in `/proc` tell that.
///
/// # Errors
///
/// Text: a process that may run it could not be seen.
fn running(host: (u64, u64)) -> Result<Option<i32>, String> {
    let unseen = |_| "whether a process runs it could not be seen".to_owned();
    let mut hidden = Ok(None);
    for entry in std::fs::read_dir("/proc").map_err(unseen)?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        match std::fs::metadata(format!("/proc/{pid}/exe")) {
            Ok(stat) if (stat.dev(), stat.ino()) == host => return Ok(Some(pid)),
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => hidden = Err(unseen(e)),
            // Another program; a kernel thread, or a process that has just ended.
            _ => {}
        }
    }
    hidden
}

/// Whether the kernel swaps to this file.
fn swap(host: (u64, u64)) -> Swap {
    // Without swap space there is no list to be read, and a list that is hidden matters no more.
    if rustix::system::sysinfo().totalswap == 0 {
        return Swap::No;
    }
    let unseen = |e: std::io::Error| {
        Swap::Unseen(format!("whether the kernel swaps to it could not be seen ({})", io_errno(&e)))
    };
    let list = match std::fs::read("/proc/swaps") {
        Ok(list) => list,
        Err(e) => return unseen(e),
    };
    let mut hidden = Swap::No;
    for path in proc::swap_files(&list) {
        match std::fs::metadata(OsStr::from_bytes(&path)) {
            Ok(stat) if (stat.dev(), stat.ino()) == host => return Swap::Yes,
            Ok(_) => {}
            Err(e) => hidden = unseen(e),
        }
    }
    hidden
}

/// Whether a process listens at this socket, as far as this network namespace shows it.
fn listens(host: (u64, u64)) -> bool {
    let text = std::fs::read("/proc/self/net/unix").unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    proc::bound_sockets(&text)
        .any(|path| std::fs::metadata(path).is_ok_and(|stat| (stat.dev(), stat.ino()) == host))
}

/// What the device cgroup of this process refuses. It answers `EPERM` where a mode would have answered `EACCES`; a mode that
/// refuses hides it.
fn device_cgroup(fd: BorrowedFd<'_>, object: &Object) -> Option<u32> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let refuses = |access: Access, bit: u32| match rustix::fs::accessat(
        rustix::fs::CWD,
        &path,
        access,
        AtFlags::EACCESS,
    )
    .map_err(errno)
    {
        Ok(()) => Some(0),
        Err(Errno::EPERM) if object.iflags & IFLAG_IMMUTABLE == 0 => Some(bit),
        Err(_) => None,
    };
    Some(refuses(Access::READ_OK, MAY_READ)? | refuses(Access::WRITE_OK, MAY_WRITE)?)
}

/// Reads the ACL and the capabilities. The descriptor has no permission for that, but the file behind it can be named.
fn read_attributes(fd: BorrowedFd<'_>, object: &mut Object) {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match attribute(&path, c"system.posix_acl_access") {
        Ok(None) => {}
        Err(Errno::EOPNOTSUPP) => object.no_acls = true,
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
            Err(Errno::EOPNOTSUPP) => {}
            Err(errno) => object.unseen.push(format!("its capabilities could not be read ({errno})")),
        }
    }
}

/// The value of an extended attribute; `None` if there is none.
fn attribute(path: &str, name: &std::ffi::CStr) -> Result<Option<Vec<u8>>, Errno> {
    let mut value = vec![0; 1024];
    loop {
        match rustix::fs::getxattr(path, name, &mut value[..]) {
            Ok(len) => {
                value.truncate(len);
                return Ok(Some(value));
            }
            Err(rustix::io::Errno::RANGE) if value.len() < 65_536 => value.resize(65_536, 0),
            Err(rustix::io::Errno::NODATA) => return Ok(None),
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
