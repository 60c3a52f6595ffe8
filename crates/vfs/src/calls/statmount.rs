//! What mounts there are, and what one is: listmount, statmount.
//!
//! Kernel: fs/namespace.c.

use crate::base::errno::{Errno, Result};
use crate::base::flags::{ListmountFlags, StatmountFlags};
use crate::base::uapi::*;
use crate::calls::namespace::ATTRIBUTES;
use crate::calls::tmpfs_options::SB_FLAGS;
use crate::cred::userns::{IdExtent, IdKind, IdMap};
use crate::dcache::store::Namespace;
use crate::file::fs_struct::Place;
use crate::kernel::proc::ProcNode;
use crate::kernel::{Kernel, ram};
use crate::mount::{FIRST_MNT_ID, NamespaceInfo, Path, Source, flags};
use crate::task::Task;
use rcuwalk_sync::Handle;
use std::collections::HashMap;
use std::ops::Bound;

/// Bits of [`StatmountFlags`] that ask for text. Kernel: `STATMOUNT_STRING_REQ`.
pub(crate) const STRINGS: u64 = STATMOUNT_MNT_ROOT
    | STATMOUNT_MNT_POINT
    | STATMOUNT_FS_TYPE
    | STATMOUNT_MNT_OPTS
    | STATMOUNT_FS_SUBTYPE
    | STATMOUNT_SB_SOURCE
    | STATMOUNT_OPT_ARRAY
    | STATMOUNT_OPT_SEC_ARRAY
    | STATMOUNT_MNT_UIDMAP
    | STATMOUNT_MNT_GIDMAP;

const SUPPORTED: u64 = STRINGS
    | STATMOUNT_SB_BASIC
    | STATMOUNT_MNT_BASIC
    | STATMOUNT_PROPAGATE_FROM
    | STATMOUNT_MNT_NS_ID
    | STATMOUNT_SUPPORTED_MASK;

/// The most ids that one call lists. Kernel: `listmount()`.
const MOST_IDS: usize = 1_000_000;

/// Mounts that are looked at before others may change mounts.
const STEP: usize = 1024;

/// Which mount statmount(2) and listmount(2) are about; a mount of the task's own namespace is just its id. Kernel: `struct mnt_id_req`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct MntIdReq {
    /// The id, as [`statx`](Task::statx) gives it with [`STATX_MNT_ID_UNIQUE`]; for listmount also [`LSMT_ROOT`].
    pub mnt_id: u64,
    /// The id of another mount namespace, as statmount gives it with [`STATMOUNT_MNT_NS_ID`]; 0 for none.
    pub mnt_ns_id: u64,
    /// A descriptor of another mount namespace.
    pub mnt_ns_fd: Option<i32>,
}

impl MntIdReq {
    setters! {
        with_mnt_ns_id mnt_ns_id: u64;
        with_mnt_ns_fd mnt_ns_fd: Option<i32>;
    }
}

impl From<u64> for MntIdReq {
    fn from(mnt_id: u64) -> MntIdReq {
        MntIdReq { mnt_id, ..MntIdReq::default() }
    }
}

/// What statmount(2) reports. `mask` says which fields have something; the others are 0 or empty. Kernel: `struct statmount`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Statmount {
    /// `STATMOUNT_*`: what was asked for, and is there.
    pub mask: u64,
    /// `STATMOUNT_SB_BASIC`: major device number of the file system.
    pub sb_dev_major: u32,
    /// Minor device number.
    pub sb_dev_minor: u32,
    /// `TMPFS_MAGIC`.
    pub sb_magic: u64,
    /// `MS_RDONLY`, `MS_SYNCHRONOUS`, `MS_DIRSYNC`, `MS_LAZYTIME`.
    pub sb_flags: u32,
    /// `STATMOUNT_FS_TYPE`: `tmpfs`.
    pub fs_type: Vec<u8>,
    /// `STATMOUNT_MNT_BASIC`: the id.
    pub mnt_id: u64,
    /// The id of the mount it is on; its own if it is on none.
    pub mnt_parent_id: u64,
    /// The id that is used again.
    pub mnt_id_old: u32,
    /// That of the mount it is on.
    pub mnt_parent_id_old: u32,
    /// `MOUNT_ATTR_*`.
    pub mnt_attr: u64,
    /// `MS_SHARED`, `MS_SLAVE`, `MS_PRIVATE`, `MS_UNBINDABLE`.
    pub mnt_propagation: u64,
    /// The group that it sends to and receives from; 0 if it is not shared.
    pub mnt_peer_group: u64,
    /// The group that it only receives from; 0 if it is no slave.
    pub mnt_master: u64,
    /// `STATMOUNT_PROPAGATE_FROM`: the nearest group above that has a mount below the root directory; 0 if there is none.
    pub propagate_from: u64,
    /// `STATMOUNT_MNT_ROOT`: the path in the file system of what is seen; `//deleted` stands behind it if that was removed.
    pub mnt_root: Vec<u8>,
    /// `STATMOUNT_MNT_POINT`: the path from the root directory; absent if it is not below.
    pub mnt_point: Vec<u8>,
    /// `STATMOUNT_MNT_NS_ID`: the id of the mount namespace.
    pub mnt_ns_id: u64,
    /// `STATMOUNT_SB_SOURCE`: the source that [`mount`](Task::mount) was given; absent if that was empty.
    pub sb_source: Vec<u8>,
    /// `STATMOUNT_MNT_OPTS` (with commas between) and `STATMOUNT_OPT_ARRAY`: the options of the file system that are not as they are
    /// without options.
    pub options: Vec<Vec<u8>>,
    /// `STATMOUNT_SUPPORTED_MASK`: the bits that there are.
    pub supported_mask: u64,
    /// `STATMOUNT_MNT_UIDMAP`: the user ids of an idmapped mount, in the words of the caller's user namespace; lines that it has no
    /// words for are left out.
    pub mnt_uidmap: Vec<IdExtent>,
    /// `STATMOUNT_MNT_GIDMAP`: the group ids.
    pub mnt_gidmap: Vec<IdExtent>,
}

impl Statmount {
    /// Bytes of `struct statmount` before its text.
    pub const SIZE: usize = 512;

    /// The structure as the system call stores it, with the text behind it: reserved bytes are zero.
    pub fn to_bytes(&self) -> Vec<u8> {
        // An empty text begins it, which absent ones point to.
        let mut text: Vec<u8> = if self.mask & STRINGS == 0 { vec![] } else { vec![0] };
        let mut put = |flag: u64, pieces: &[Vec<u8>], ended: bool| {
            if self.mask & flag == 0 || pieces.is_empty() {
                return 0;
            }
            let at = text.len();
            for piece in pieces {
                text.extend_from_slice(piece);
                text.push(0);
            }
            // The kernel ends the list of ids once more.
            text.extend(ended.then_some(0));
            at as u32
        };
        let one = |bytes: &Vec<u8>| std::slice::from_ref(bytes).to_vec();
        let lines = |map: &[IdExtent]| -> Vec<Vec<u8>> {
            map.iter().map(|e| format!("{} {} {}", e.first, e.lower, e.count).into_bytes()).collect()
        };
        let (uids, gids) = (lines(&self.mnt_uidmap), lines(&self.mnt_gidmap));
        let fs_type = put(STATMOUNT_FS_TYPE, &one(&self.fs_type), false);
        let mnt_root = put(STATMOUNT_MNT_ROOT, &one(&self.mnt_root), false);
        let mnt_point = put(STATMOUNT_MNT_POINT, &one(&self.mnt_point), false);
        let mnt_opts = put(STATMOUNT_MNT_OPTS, &one(&self.options.join(&b","[..])), false);
        let opt_array = put(STATMOUNT_OPT_ARRAY, &self.options, false);
        let sb_source = put(STATMOUNT_SB_SOURCE, &one(&self.sb_source), false);
        let uidmap = put(STATMOUNT_MNT_UIDMAP, &uids, true);
        let gidmap = put(STATMOUNT_MNT_GIDMAP, &gids, true);
        let count = |flag: u64, n: usize| if self.mask & flag == 0 { 0 } else { n as u32 };
        let size = (Statmount::SIZE + text.len()) as u32;
        let mut bytes = vec![0; Statmount::SIZE];
        for (at, word) in [
            (0, size),
            (4, mnt_opts),
            (16, self.sb_dev_major),
            (20, self.sb_dev_minor),
            (32, self.sb_flags),
            (36, fs_type),
            (56, self.mnt_id_old),
            (60, self.mnt_parent_id_old),
            (104, mnt_root),
            (108, mnt_point),
            (124, sb_source),
            (128, count(STATMOUNT_OPT_ARRAY, self.options.len())),
            (132, opt_array),
            (152, count(STATMOUNT_MNT_UIDMAP, uids.len())),
            (156, uidmap),
            (160, count(STATMOUNT_MNT_GIDMAP, gids.len())),
            (164, gidmap),
        ] {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        for (at, word) in [
            (8, self.mask),
            (24, self.sb_magic),
            (40, self.mnt_id),
            (48, self.mnt_parent_id),
            (64, self.mnt_attr),
            (72, self.mnt_propagation),
            (80, self.mnt_peer_group),
            (88, self.mnt_master),
            (96, self.propagate_from),
            (112, self.mnt_ns_id),
            (144, self.supported_mask),
        ] {
            bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(&text);
        bytes
    }
}

impl Task {
    /// Describes a mount: of this task's mount namespace by its id, of another one by a [`MntIdReq`]. `mask` says what is wanted.
    ///
    /// # Errors
    ///
    /// In this order: `EINVAL` (no id of a mount; a namespace both by id and by descriptor; a descriptor of something else), `EBADF`;
    /// `ENOENT` (no such namespace); `EPERM` (another namespace by id, without `CAP_SYS_ADMIN` over it); `ENOENT` (no such mount in the
    /// namespace, detached ones included); `EPERM` (not below the root directory, or that of the other namespace, without
    /// `CAP_SYS_ADMIN` over the namespace).
    ///
    /// Kernel: fs/namespace.c `statmount()`.
    ///
    /// ```
    /// use rcuwalk::flags::StatmountFlags;
    /// use rcuwalk::{Cred, Vfs, uapi::*};
    /// let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// root.mkdir(b"/m", 0o755)?;
    /// root.mount(b"here", b"/m", b"tmpfs", MS_NOEXEC, b"size=1m")?;
    /// let id = root.statx(AT_FDCWD, b"/m", 0, STATX_MNT_ID_UNIQUE)?.mnt_id;
    /// let wanted = StatmountFlags::MNT_BASIC | StatmountFlags::MNT_POINT | StatmountFlags::MNT_OPTS | StatmountFlags::SB_SOURCE;
    /// let mount = root.statmount(id, wanted)?;
    /// assert_eq!((mount.mnt_id, mount.mnt_attr), (id, MOUNT_ATTR_NOEXEC));
    /// assert_eq!((&*mount.mnt_point, &*mount.sb_source), (&b"/m"[..], &b"here"[..]));
    /// assert_eq!(mount.options, [b"size=1024k"]);
    /// # Ok::<(), rcuwalk::Errno>(())
    /// ```
    pub fn statmount(&self, req: impl Into<MntIdReq>, mask: impl Into<StatmountFlags>) -> Result<Statmount> {
        let req = req.into();
        let ns = self.statmount_ns(req)?;
        self.do_statmount(ns, req.mnt_id, mask.into().bits())
    }

    /// Lists the ids of the mounts at and below one, itself excepted; of [`LSMT_ROOT`], at and below the root directory. They go into
    /// `ids` in the order in which they were made, those behind `last_mnt_id` unless that is 0. Gives how many there are; where the
    /// list fills the room, it may go on behind its last one. `flags`: `LISTMOUNT_REVERSE`.
    ///
    /// # Errors
    ///
    /// In this order: `EINVAL` (flags), `EOVERFLOW` (room for more than a million), `EINVAL` (as [`statmount`](Self::statmount);
    /// `last_mnt_id` is no id), `EBADF`; `ENOENT` (no such namespace, or another one by id without `CAP_SYS_ADMIN` over it; no such mount);
    /// `EPERM` (as [`statmount`](Self::statmount)).
    ///
    /// Kernel: fs/namespace.c `listmount()`.  Differs: after every 1,024 mounts it lets others change mounts; of the copies
    /// that one mount makes on several others by propagation, another one may be the oldest.
    ///
    /// ```
    /// use rcuwalk::{Cred, Vfs, uapi::*};
    /// let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// for path in [b"/a", b"/b"] {
    ///     root.mkdir(path, 0o755)?;
    ///     root.mount(b"none", path, b"tmpfs", 0, b"")?;
    /// }
    /// let mut ids = [0; 8];
    /// let n = root.listmount(LSMT_ROOT, 0, &mut ids, 0)?;
    /// let points = ids[..n].iter().map(|&id| Ok(root.statmount(id, STATMOUNT_MNT_POINT)?.mnt_point));
    /// assert_eq!(points.collect::<rcuwalk::Result<Vec<_>>>()?, [&b"/"[..], b"/a", b"/b"]);
    /// # Ok::<(), rcuwalk::Errno>(())
    /// ```
    pub fn listmount(
        &self,
        req: impl Into<MntIdReq>,
        last_mnt_id: u64,
        ids: &mut [u64],
        flags: impl Into<ListmountFlags>,
    ) -> Result<usize> {
        let flags = flags.into();
        Task::check_listmount(flags, ids.len())?;
        let found = self.do_listmount(req.into(), last_mnt_id, ids.len(), flags)?;
        ids[..found.len()].copy_from_slice(&found);
        Ok(found.len())
    }

    /// What comes before the request.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `EOVERFLOW`.
    pub(crate) fn check_listmount(flags: ListmountFlags, room: usize) -> Result<()> {
        match flags {
            flags if flags.bits() & !LISTMOUNT_REVERSE != 0 => Err(Errno::EINVAL),
            _ if room > MOST_IDS => Err(Errno::EOVERFLOW),
            _ => Ok(()),
        }
    }

    /// The number of the mount namespace that a request is about; another one by id needs privilege.
    ///
    /// # Errors
    ///
    /// Those of [`statmount`](Self::statmount) before the mount is looked for.
    pub(crate) fn statmount_ns(&self, req: MntIdReq) -> Result<u32> {
        let number = self.requested_ns(req)?;
        let ns = self.kernel.lock_mounts();
        let user_ns = ns.mnt.user_ns_of(number).ok_or(Errno::ENOENT)?;
        let foreign = req.mnt_ns_id != 0 && number != self.mnt_ns();
        if foreign && !self.cred.ns_capable(user_ns, CAP_SYS_ADMIN) { Err(Errno::EPERM) } else { Ok(number) }
    }

    /// Kernel: fs/namespace.c `copy_mnt_id_req()`, `grab_requested_mnt_ns()`.
    fn requested_ns(&self, req: MntIdReq) -> Result<u32> {
        if req.mnt_id < FIRST_MNT_ID || req.mnt_ns_id != 0 && req.mnt_ns_fd.is_some() {
            return Err(Errno::EINVAL);
        }
        match req.mnt_ns_fd {
            None if req.mnt_ns_id == 0 => Ok(self.mnt_ns()),
            None => u32::try_from(req.mnt_ns_id).map_err(|_| Errno::ENOENT),
            Some(fd) => match &*self.node_of(fd)? {
                ProcNode::MntNs(ns) => Ok(ns.id),
                _ => Err(Errno::EINVAL),
            },
        }
    }

    /// What a request in the namespace sees as root. Kernel: fs/namespace.c `grab_requested_root()`.
    fn requested_root(&self, ns: &Namespace, number: u32, info: &NamespaceInfo) -> Result<Path> {
        if number == self.mnt_ns() {
            return Ok(self.fs.fs.peek(Place::Root));
        }
        let first = ns.mnt.children(info.root).min_by_key(|&mnt| self.kernel.mount(mnt).id.get());
        let mnt = first.ok_or(Errno::ENOENT)?;
        Ok(Path { mnt, dentry: self.kernel.mount(mnt).root.get() })
    }

    /// The mount of this id, or the root, and what is the root there.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `EPERM`.
    fn requested_mount<'n>(
        &self,
        ns: &'n Namespace,
        number: u32,
        mnt_id: u64,
    ) -> Result<(&'n NamespaceInfo, Path, Path)> {
        let kernel = &*self.kernel;
        let info = ns.mnt.namespace(number).ok_or(Errno::ENOENT)?;
        let root = self.requested_root(ns, number, info)?;
        let at = if mnt_id == LSMT_ROOT {
            root
        } else {
            let mnt = *info.mounts.get(&mnt_id).ok_or(Errno::ENOENT)?;
            Path { mnt, dentry: kernel.mount(mnt).root.get() }
        };
        let seen = kernel.is_path_reachable(ns, at, root);
        if seen || self.cred.ns_capable(&info.user_ns, CAP_SYS_ADMIN) {
            Ok((info, root, at))
        } else {
            Err(Errno::EPERM)
        }
    }

    /// Kernel: fs/namespace.c `do_statmount()`.
    pub(crate) fn do_statmount(&self, number: u32, mnt_id: u64, mask: u64) -> Result<Statmount> {
        // Only listmount has a root to ask about.
        if mnt_id == LSMT_ROOT {
            return Err(Errno::ENOENT);
        }
        let kernel = &*self.kernel;
        let ns = kernel.lock_mounts();
        let (_, root, at) = self.requested_mount(&ns, number, mnt_id)?;
        let asks = |flag: u64| mask & flag != 0;
        let mut stat = Statmount::default();
        if asks(STATMOUNT_MNT_BASIC) {
            kernel.mnt_basic(&ns, at.mnt, &mut stat);
        }
        if asks(STATMOUNT_PROPAGATE_FROM) {
            stat.propagate_from = kernel.dominating_group(&ns, at.mnt, root);
        }
        if asks(STATMOUNT_MNT_ROOT) {
            stat.mnt_root = kernel.dentry_path(&ns, at.dentry);
        }
        if asks(STATMOUNT_MNT_POINT)
            && let (path, true) = kernel.prepend_path(&ns, at, root, usize::MAX)
        {
            stat.mnt_point = path;
        }
        if asks(STATMOUNT_SB_SOURCE) {
            stat.sb_source = ns.mnt.source(at.mnt).map_or(Source::NONE, |source| source.bytes()).to_vec();
        }
        self.mnt_idmap(at.mnt, mask, &mut stat);
        let sb = ns.mnt.supers.get(kernel.mount(at.mnt).sb.get()).ok_or(Errno::ESTALE)?;
        let (sb_flags, dev) = (sb.flags, sb.dev);
        let options = asks(STATMOUNT_MNT_OPTS | STATMOUNT_OPT_ARRAY).then(|| sb.options.clone());
        let memory = ns.mnt.memory.clone();
        drop(ns);
        if let Some(options) = options {
            let list = options.list(|| ram::half(memory.as_deref()));
            stat.options = list.into_iter().map(String::into_bytes).collect();
        }
        if asks(STATMOUNT_SB_BASIC) {
            (stat.sb_dev_major, stat.sb_dev_minor) = (major(dev), minor(dev));
            stat.sb_magic = TMPFS_MAGIC;
            // That there are mandatory locks is not told.
            stat.sb_flags = words(&SB_FLAGS, sb_flags & !flags::SB_MANDLOCK) as u32;
        }
        if asks(STATMOUNT_FS_TYPE) {
            stat.fs_type = b"tmpfs".to_vec();
        }
        if asks(STATMOUNT_MNT_NS_ID) {
            stat.mnt_ns_id = number.into();
        }
        if asks(STATMOUNT_SUPPORTED_MASK) {
            stat.supported_mask = SUPPORTED;
        }
        // What was asked for is there, but text that is empty.
        let absent = [
            (stat.mnt_point.is_empty(), STATMOUNT_MNT_POINT),
            (stat.sb_source.is_empty(), STATMOUNT_SB_SOURCE),
            (stat.options.is_empty(), STATMOUNT_MNT_OPTS | STATMOUNT_OPT_ARRAY),
            (!kernel.mount_has(at.mnt, flags::IDMAPPED), STATMOUNT_MNT_UIDMAP | STATMOUNT_MNT_GIDMAP),
            (true, STATMOUNT_FS_SUBTYPE | STATMOUNT_OPT_SEC_ARRAY),
        ];
        let missing = absent.into_iter().filter(|(absent, _)| *absent).fold(0, |all, (_, flag)| all | flag);
        stat.mask = mask & SUPPORTED & !missing;
        Ok(stat)
    }

    /// Kernel: fs/mnt_idmapping.c `statmount_mnt_idmap()`.
    fn mnt_idmap(&self, mnt: Handle, mask: u64, stat: &mut Statmount) {
        let view = self.kernel.id_view(mnt);
        let Some(idmap) = view.get().idmap else { return };
        let user_ns = self.cred.user_ns();
        let shown = |map: &IdMap, kind: IdKind| {
            let line = |line: &IdExtent| {
                let lower = match user_ns.map(kind) {
                    _ if user_ns.is_init() => line.lower,
                    map => map?.map_range_up(line.lower, line.count)?,
                };
                Some(IdExtent { lower, ..*line })
            };
            map.lines().iter().filter_map(line).collect()
        };
        if mask & STATMOUNT_MNT_UIDMAP != 0 {
            stat.mnt_uidmap = shown(&idmap.uid_map, IdKind::User);
        }
        if mask & STATMOUNT_MNT_GIDMAP != 0 {
            stat.mnt_gidmap = shown(&idmap.gid_map, IdKind::Group);
        }
    }

    /// Kernel: fs/namespace.c `prepare_klistmount()`, `do_listmount()`.
    pub(crate) fn do_listmount(
        &self,
        req: MntIdReq,
        last_mnt_id: u64,
        room: usize,
        flags: ListmountFlags,
    ) -> Result<Vec<u64>> {
        if last_mnt_id != 0 && last_mnt_id < FIRST_MNT_ID {
            return Err(Errno::EINVAL);
        }
        let hidden = |errno| if errno == Errno::EPERM { Errno::ENOENT } else { errno };
        let number = self.statmount_ns(req).map_err(hidden)?;
        let reverse = flags.contains(ListmountFlags::REVERSE);
        let start = (last_mnt_id != 0).then_some(last_mnt_id);
        let (mut ids, mut last) = (Vec::new(), start);
        loop {
            let ns = self.kernel.lock_mounts();
            let (info, _, at) = match self.requested_mount(&ns, number, req.mnt_id) {
                Ok(found) => found,
                // It went since the step before.
                Err(_) if last != start => return Ok(ids),
                Err(errno) => return Err(errno),
            };
            let bounds = match (last, reverse) {
                (None, _) => (Bound::Unbounded, Bound::Unbounded),
                (Some(last), false) => (Bound::Excluded(last), Bound::Unbounded),
                (Some(last), true) => (Bound::Unbounded, Bound::Excluded(last)),
            };
            let mut range = info.mounts.range(bounds);
            let mut below = HashMap::new();
            for _ in 0..STEP {
                let next = if reverse { range.next_back() } else { range.next() };
                let Some((&id, &mnt)) = next.filter(|_| ids.len() < room) else { return Ok(ids) };
                last = Some(id);
                if id != req.mnt_id && self.kernel.is_mount_below(&ns, mnt, at, &mut below) {
                    ids.push(id);
                }
            }
        }
    }
}

/// The words of the flags that are set.
fn words(table: &[(u64, u32)], flags: u32) -> u64 {
    table.iter().filter(|(_, flag)| flags & flag != 0).fold(0, |all, (word, _)| all | word)
}

impl Kernel {
    /// Kernel: fs/namespace.c `statmount_mnt_basic()`.
    fn mnt_basic(&self, ns: &Namespace, mnt: Handle, stat: &mut Statmount) {
        let m = self.mount(mnt);
        let parent = if m.parent.get() == 0 { mnt } else { m.parent.get() };
        (stat.mnt_id, stat.mnt_parent_id) = (m.id.get(), self.mount(parent).id.get());
        (stat.mnt_id_old, stat.mnt_parent_id_old) = (mnt, parent);
        let set = m.flags.get();
        let atime = match set & (flags::NOATIME | flags::RELATIME) {
            0 => MOUNT_ATTR_STRICTATIME,
            atime if atime & flags::NOATIME != 0 => MOUNT_ATTR_NOATIME,
            _ => MOUNT_ATTR_RELATIME,
        };
        let idmapped = if set & flags::IDMAPPED != 0 { MOUNT_ATTR_IDMAP } else { 0 };
        stat.mnt_attr = words(&ATTRIBUTES, set) | idmapped | atime;
        let of = ns.mnt.propagation(mnt);
        (stat.mnt_peer_group, stat.mnt_master) = (of.shared.into(), of.master.into());
        let kinds = [(of.shared != 0, MS_SHARED), (of.master != 0, MS_SLAVE), (of.unbindable, MS_UNBINDABLE)];
        let kind = kinds.into_iter().filter(|(is, _)| *is).fold(0, |all, (_, kind)| all | kind);
        stat.mnt_propagation = if kind == 0 { MS_PRIVATE } else { kind };
    }

    /// The nearest group that a slave receives from, of those with a mount of the same namespace below `root`; 0 if there is none.
    ///
    /// Kernel: fs/pnode.c `get_dominating_id()`.
    fn dominating_group(&self, ns: &Namespace, mnt: Handle, root: Path) -> u64 {
        let mnt_ns = self.mount(mnt).ns.get();
        let is_seen = |peer: Handle| {
            let m = self.mount(peer);
            m.ns.get() == mnt_ns && self.is_path_reachable(ns, Path { mnt: peer, dentry: m.root.get() }, root)
        };
        let mut group = ns.mnt.propagation(mnt).master;
        while group != 0 && !ns.mnt.peers(group).any(is_seen) {
            // Peers have one master.
            group = ns.mnt.peers(group).next().map_or(0, |peer| ns.mnt.propagation(peer).master);
        }
        group.into()
    }

    /// The path of a dentry in its file system. Kernel: fs/d_path.c `dentry_path()`.
    fn dentry_path(&self, _: &Namespace, dentry: Handle) -> Vec<u8> {
        let store = &self.store;
        let (mut at, mut names) = (dentry, Vec::new());
        while store.dentry(at).parent.get() != at {
            names.push(store.d_name(at));
            at = store.dentry(at).parent.get();
        }
        let mut path: Vec<u8> = names.iter().rev().flat_map(|name| [b"/", &name[..]].concat()).collect();
        if names.is_empty() {
            path.push(b'/');
        }
        if self.is_unlinked(dentry) {
            path.extend_from_slice(b"//deleted");
        }
        path
    }

    /// Whether the root of a mount lies at or below `at`, as [`is_path_reachable`](Self::is_path_reachable) says; `below` has what is
    /// known of mounts above others, so that each is looked at once.
    fn is_mount_below(
        &self,
        _: &Namespace,
        mnt: Handle,
        at: Path,
        below: &mut HashMap<Handle, bool>,
    ) -> bool {
        let (mut now, mut passed) = (mnt, Vec::new());
        let answer = loop {
            let m = self.mount(now);
            if now == at.mnt {
                break self.store.is_subdir(m.root.get(), at.dentry);
            }
            if let Some(&known) = below.get(&now) {
                break known;
            }
            passed.push(now);
            match m.parent.get() {
                0 => break false,
                parent if parent == at.mnt => break self.store.is_subdir(m.mountpoint.get(), at.dentry),
                parent => now = parent,
            }
        };
        below.extend(passed.into_iter().map(|mnt| (mnt, answer)));
        answer
    }
}
