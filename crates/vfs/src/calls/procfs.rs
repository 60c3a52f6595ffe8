//! What `/proc/PID` has for pathnames: namespaces to join, and the maps of user namespaces to write.
//!
//! There is no `/proc` in the tree. [`Task::open_proc`] opens such a file for every holder of the other task; descriptors,
//! setns(2) and write(2) are as they are on the kernel.
//!
//! Kernel: fs/nsfs.c, kernel/nsproxy.c, kernel/user_namespace.c, fs/proc/base.c.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::*;
use crate::cred::Cred;
use crate::cred::userns::{EXTENT_BYTES, IdKind, UserNamespace};
use crate::dcache::inode::Times;
use crate::dcache::store::InodeInit;
use crate::file::{FileMode, Opening};
use crate::kernel::Kernel;
use crate::kernel::mount_tree::MntNamespace;
use crate::kernel::owners::{FileRef, FsOwner, FsUse};
use crate::kernel::proc::ProcNode;
use crate::mount::{Path, ROOTFS_MOUNT};
use crate::task::Task;
use std::sync::Arc;

/// A file of `/proc/PID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProcFile {
    /// `ns/user`: the user namespace, for [`setns`](Task::setns) and `mount_setattr`.
    UserNs,
    /// `ns/mnt`: the mount namespace, for [`setns`](Task::setns).
    MntNs,
    /// `uid_map` of the user namespace, to be written once.
    UidMap,
    /// `gid_map` of the user namespace, to be written once.
    GidMap,
    /// `setgroups` of the user namespace: `allow` or `deny` is to be written.
    Setgroups,
}

impl Task {
    /// Opens a file of `/proc/PID` of the task `of`, which may be this one: namespaces to join them, the others to write them.
    /// The namespaces are those that `of` is in now.
    ///
    /// # Errors
    ///
    /// `EACCES` (`setgroups` without `CAP_SYS_ADMIN` over the user namespace), `EMFILE`, `ENOMEM`.
    ///
    /// Kernel: fs/nsfs.c `ns_get_path()`, fs/proc/base.c `proc_id_map_open()`, `proc_setgroups_open()`.  Differs: code that has the other
    /// [`Task`] may open its files. The kernel goes by the owner of the files, and for namespaces by the rules of ptrace(2).
    ///
    /// ```
    /// use rcuwalk::{Cred, ProcFile, Vfs, uapi::*};
    /// let vfs = Vfs::new()?;
    /// let (mut outer, mut inner) = (vfs.task(Cred::root()), vfs.task(Cred::root()));
    /// inner.mkdir(b"/secret", 0o755)?;
    /// inner.unshare(CLONE_NEWNS)?;
    /// inner.mount(b"none", b"/secret", b"tmpfs", 0, b"")?;
    /// inner.creat(b"/secret/plan", 0o600)?;
    /// let fd = outer.open_proc(&inner, ProcFile::MntNs)?;
    /// outer.setns(fd, 0)?;
    /// assert!(outer.stat(b"/secret/plan").is_ok());
    /// # Ok::<(), rcuwalk::Errno>(())
    /// ```
    ///
    /// An unprivileged user maps itself to root, as `unshare --map-root-user` does:
    ///
    /// ```
    /// # use rcuwalk::{Cred, ProcFile, Vfs, uapi::*};
    /// # let vfs = Vfs::new()?;
    /// let mut user = vfs.task(Cred::user(1000, 1000, &[]));
    /// user.unshare(CLONE_NEWUSER)?;
    /// for (file, text) in [
    ///     (ProcFile::Setgroups, "deny"),
    ///     (ProcFile::UidMap, "0 1000 1"),
    ///     (ProcFile::GidMap, "0 1000 1"),
    /// ] {
    ///     let fd = user.open_proc(&user, file)?;
    ///     user.write(fd, text.as_bytes())?;
    ///     user.close(fd)?;
    /// }
    /// assert_eq!((user.getuid(), user.getgid()), (0, 0));
    /// # Ok::<(), rcuwalk::Errno>(())
    /// ```
    pub fn open_proc(&self, of: &Task, file: ProcFile) -> Result<i32> {
        let user_ns = || Arc::clone(of.cred().user_ns());
        let node = match file {
            ProcFile::UserNs => ProcNode::UserNs(user_ns()),
            ProcFile::MntNs => ProcNode::MntNs(Arc::clone(&of.fs.mnt_ns)),
            ProcFile::UidMap => ProcNode::IdMap(user_ns(), IdKind::User),
            ProcFile::GidMap => ProcNode::IdMap(user_ns(), IdKind::Group),
            ProcFile::Setgroups => ProcNode::Setgroups(user_ns()),
        };
        self.files.table.check_room(self.nofile_limit())?;
        if let ProcNode::Setgroups(ns) = &node
            && !self.cred.ns_capable(ns, CAP_SYS_ADMIN)
        {
            return Err(Errno::EACCES);
        }
        self.open_node(node, 0)
    }

    /// A descriptor of a user namespace, for `mount_setattr` and `setns`: what opening `/proc/PID/ns/user` gives. It closes on
    /// execve.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENOMEM`.
    pub fn open_user_ns(&self, ns: &Arc<UserNamespace>) -> Result<i32> {
        self.files.table.check_room(self.nofile_limit())?;
        self.open_node(ProcNode::UserNs(Arc::clone(ns)), O_CLOEXEC)
    }

    /// A descriptor that stands for `node`. As far as other calls are concerned it is one of a file without a name that can
    /// neither be read nor written.
    fn open_node(&self, node: ProcNode, flags: i32) -> Result<i32> {
        let writes = matches!(node, ProcNode::IdMap(..) | ProcNode::Setgroups(_));
        let (kernel, now) = (&*self.kernel, self.kernel.now());
        let mut ns = kernel.store.lock();
        let init = InodeInit {
            mode: S_IFREG | if writes { 0o644 } else { 0o444 },
            sb: kernel.mount(ROOTFS_MOUNT).sb.get(),
            times: Times { atime: now, mtime: now, ctime: now, btime: now },
            ..InodeInit::default()
        };
        let dentry = kernel.store.new_inode(&mut ns, &init)?;
        drop(ns);
        let access = if writes { O_WRONLY } else { O_RDONLY };
        let opening = Opening {
            path: Path { mnt: ROOTFS_MOUNT, dentry },
            inode: kernel.store.d_inode(dentry),
            mode: FileMode { path: true, read: !writes, write: writes, ..FileMode::default() },
            flags: (access | O_LARGEFILE) as u32,
            proc: Some(Arc::new(node)),
        };
        kernel.mntget(ROOTFS_MOUNT);
        self.install(opening, flags)
    }

    /// What a descriptor stands for.
    ///
    /// # Errors
    ///
    /// `EBADF` (not open, or open with `O_PATH`), `EINVAL` (a file of the tree).
    pub(crate) fn node_of(&self, fd: i32) -> Result<Arc<ProcNode>> {
        let file = self.file_any(fd)?;
        match &file.proc {
            Some(node) => Ok(Arc::clone(node)),
            None if file.mode.path => Err(Errno::EBADF),
            None => Err(Errno::EINVAL),
        }
    }

    /// The user namespace that a descriptor stands for.
    ///
    /// # Errors
    ///
    /// `EBADF`, `EINVAL` (it stands for none).
    pub fn user_ns_of(&self, fd: i32) -> Result<Arc<UserNamespace>> {
        match &*self.node_of(fd)? {
            ProcNode::UserNs(ns) => Ok(Arc::clone(ns)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Joins the namespace behind `fd`, which [`open_proc`](Self::open_proc) opened. `nstype` is what it has to be:
    /// `CLONE_NEWNS`, `CLONE_NEWUSER`, or 0 for any. In a user namespace the task then has every capability; in a mount
    /// namespace root and current directory are its root.
    ///
    /// # Errors
    ///
    /// `EBADF`; `EINVAL` (no namespace, or of another type; root and current directory, or for a user namespace the process,
    /// shared with others; the user namespace that the task is in); `EPERM` (no `CAP_SYS_ADMIN` over the namespace; for a mount
    /// namespace also no `CAP_SYS_CHROOT` or `CAP_SYS_ADMIN` in the task's own user namespace).
    ///
    /// Kernel: kernel/nsproxy.c `setns()`.  Differs: there are no pidfds to take several namespaces from.
    pub fn setns(&mut self, fd: i32, nstype: i32) -> Result<()> {
        let node = self.node_of(fd)?;
        let is = |flag: u64| nstype == 0 || nstype as u64 == flag;
        match &*node {
            ProcNode::UserNs(ns) if is(CLONE_NEWUSER) => self.enter_user_ns(ns),
            ProcNode::MntNs(ns) if is(CLONE_NEWNS) => self.enter_mnt_ns(ns),
            _ => Err(Errno::EINVAL),
        }
    }

    /// setns(2) into a user namespace, where the task then has every capability.
    ///
    /// # Errors
    ///
    /// `EINVAL` (it is there already; the process has other threads; root and current directory are shared), `EPERM` (no
    /// `CAP_SYS_ADMIN` over it).
    ///
    /// Kernel: kernel/user_namespace.c `userns_install()`.
    pub fn enter_user_ns(&mut self, ns: &Arc<UserNamespace>) -> Result<()> {
        if !self.process.has_one_thread() || !self.fs.is_sole() {
            return Err(Errno::EINVAL);
        }
        let new = self.cred.enter_user_ns(ns)?;
        self.set_cred(new);
        Ok(())
    }

    /// Kernel: fs/namespace.c `mntns_install()`.
    fn enter_mnt_ns(&mut self, mnt_ns: &Arc<MntNamespace>) -> Result<()> {
        let cred = &self.cred;
        if !cred.ns_capable(&mnt_ns.user_ns, CAP_SYS_ADMIN)
            || !cred.capable_here(CAP_SYS_CHROOT)
            || !cred.capable_here(CAP_SYS_ADMIN)
        {
            return Err(Errno::EPERM);
        }
        if !self.fs.is_sole() {
            return Err(Errno::EINVAL);
        }
        let root = self.kernel.root_of(mnt_ns);
        let umask = self.fs.fs.umask();
        let fs = FsOwner::holding(&self.kernel, [root, root], umask, Arc::clone(mnt_ns));
        self.fs = FsUse::new(fs, self.ids.tgid);
        Ok(())
    }

    /// Writes to a descriptor that is not of the tree.
    ///
    /// # Errors
    ///
    /// `EBADF`, and those of the file.
    pub(crate) fn write_node(&self, fd: i32, data: &[u8]) -> Result<usize> {
        let file = self.file_any(fd)?;
        let Some(node) = file.proc.as_ref().filter(|_| file.mode.write) else { return Err(Errno::EBADF) };
        let at_start = file.pos.get() == 0;
        match &**node {
            ProcNode::IdMap(ns, kind) => {
                write_map(&self.kernel, ns, *kind, (&file.cred, &self.cred), at_start, data)?
            }
            ProcNode::Setgroups(ns) => write_setgroups(ns, at_start, data)?,
            ProcNode::UserNs(_) | ProcNode::MntNs(_) => return Err(Errno::EBADF),
        }
        file.pos.set(data.len() as u64);
        Ok(data.len())
    }

    /// What pwrite(2) answers for what is no open file of the tree.
    pub(crate) fn node_without_offsets(&self, fd: i32) -> Errno {
        let writes = |file: FileRef<'_>| file.proc.is_some() && file.mode.write;
        if self.file_any(fd).is_ok_and(writes) { Errno::ESPIPE } else { Errno::EBADF }
    }

    /// Whether the descriptor is not of the tree.
    pub(crate) fn is_node(&self, fd: i32) -> bool {
        self.file_any(fd).is_ok_and(|file| file.proc.is_some())
    }
}

/// Writes `uid_map` or `gid_map`. Who opened the file counts as well as who writes.
///
/// Kernel: kernel/user_namespace.c `map_write()`, `proc_uid_map_write()`.
fn write_map(
    kernel: &Kernel,
    ns: &UserNamespace,
    kind: IdKind,
    (opener, writer): (&Cred, &Cred),
    at_start: bool,
    text: &[u8],
) -> Result<()> {
    const PAGE: usize = 4096;
    let from = opener.user_ns();
    match ns.parent() {
        Some(parent) if from.is(ns) || from.is(parent) => {}
        _ => return Err(Errno::EPERM),
    }
    if !at_start || text.len() >= PAGE {
        return Err(Errno::EINVAL);
    }
    if ns.map(kind).is_some() || !opener.ns_capable(ns, CAP_SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let map = crate::cred::userns::parse_map(text)?;
    if !may_map(ns, kind, (opener, writer), &map) {
        return Err(Errno::EPERM);
    }
    ns.set_counted_map(kind, &map, kernel.charge(map.len() as u64 * EXTENT_BYTES)?)
}

/// Whether these ids of the parent may be mapped. Kernel: kernel/user_namespace.c `new_idmap_permitted()`.
fn may_map(
    ns: &UserNamespace,
    kind: IdKind,
    (opener, writer): (&Cred, &Cred),
    map: &[crate::cred::userns::IdExtent],
) -> bool {
    let Some(parent) = ns.parent() else { return false };
    let maps_root = kind == IdKind::User && map.iter().any(|extent| extent.lower == 0);
    // Who could not give a file the capabilities of root outside cannot do it by a map, either.
    let may_setfcap = if opener.user_ns().is(ns) {
        ns.parent_could_setfcap()
    } else {
        opener.ns_capable(parent, CAP_SETFCAP)
    };
    if maps_root && !may_setfcap {
        return false;
    }
    if let [only] = map
        && only.count == 1
        && ns.owner() == opener.euid()
    {
        let own = match kind {
            IdKind::User => parent.make_kuid(only.lower) == opener.euid(),
            IdKind::Group => ns.setgroups_denied() && parent.make_kgid(only.lower) == opener.egid(),
        };
        if own {
            return true;
        }
    }
    let cap = if kind == IdKind::User { CAP_SETUID } else { CAP_SETGID };
    writer.ns_capable(parent, cap) && opener.ns_capable(parent, cap)
}

/// Kernel: kernel/user_namespace.c `proc_setgroups_write()`.
fn write_setgroups(ns: &UserNamespace, at_start: bool, text: &[u8]) -> Result<()> {
    const ROOM: usize = 8;
    if !at_start || text.len() >= ROOM {
        return Err(Errno::EINVAL);
    }
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let (allow, rest) = match (text.strip_prefix(b"allow"), text.strip_prefix(b"deny")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return Err(Errno::EINVAL),
    };
    if !rest.iter().all(|&byte| crate::cred::userns::is_space(byte)) {
        return Err(Errno::EINVAL);
    }
    match allow {
        false => ns.deny_setgroups(),
        true if ns.setgroups_denied() => Err(Errno::EPERM),
        true => Ok(()),
    }
}
