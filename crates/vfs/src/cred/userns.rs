//! User namespaces: which ids exist for whom.
//!
//! Inside the engine every user or group id is a *kernel id* (the kernel's `kuid_t`, `kgid_t`): a number relative to the
//! initial namespace, with [`INVALID_ID`] for "no such id". A namespace translates between kernel ids and the ids that
//! its members see. A namespace is told its maps once, after it was created; until then it maps nothing. The initial
//! namespace maps every id to itself, and recognising it costs one comparison.

use rcuwalk_sync::{Charge, Racy64};
use std::sync::{Arc, LazyLock, OnceLock};

use crate::base::errno::{Errno, Result};
use crate::base::uapi::{INVALID_ID, OVERFLOWGID, OVERFLOWUID};
use crate::cred::ucounts::Counted;
pub use crate::cred::ucounts::Ucount;

/// One line of an id map: `count` ids from `first` on stand for those from `lower` on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IdExtent {
    /// First id as seen inside.
    pub first: u32,
    /// First id outside: of the parent when a map is set, a kernel id once it is in force.
    pub lower: u32,
    /// Number of ids.
    pub count: u32,
}

impl std::str::FromStr for IdExtent {
    type Err = Errno;

    /// Reads a line of `/proc/PID/uid_map` or `gid_map`: first id inside, first id outside, number of ids.
    ///
    /// Kernel: `uid_m_show()`, which writes them. What it takes, `map_write()`, is more.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it is no line of three ids.
    ///
    /// ```
    /// use rcuwalk::userns::IdExtent;
    /// let extent = "         0     100000      65536".parse();
    /// assert_eq!(extent, Ok(IdExtent { first: 0, lower: 100_000, count: 65_536 }));
    /// assert_eq!("0 100000".parse::<IdExtent>(), Err(rcuwalk::Errno::EINVAL));
    /// ```
    fn from_str(line: &str) -> Result<IdExtent> {
        let ids: std::result::Result<Vec<u32>, _> = line.split_whitespace().map(str::parse).collect();
        match ids.as_deref() {
            Ok(&[first, lower, count]) => Ok(IdExtent { first, lower, count }),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// The most extents that one map may have (the kernel's `UID_GID_MAP_MAX_EXTENTS`).
pub const MAX_EXTENTS: usize = 340;

/// An id map: a one-to-one relation between ids inside and ids outside.
///
/// ```
/// use rcuwalk::uapi::INVALID_ID;
/// use rcuwalk::userns::{IdExtent, IdMap};
///
/// let map = IdMap::new(&[IdExtent { first: 0, lower: 100_000, count: 65_536 }])?;
/// assert_eq!(map.map_down(33), 100_033);
/// assert_eq!(map.map_up(100_033), 33);
/// assert_eq!(map.map_up(33), INVALID_ID);
/// # Ok::<(), rcuwalk::errno::Errno>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct IdMap {
    /// As they are shown: up to five as they were written, more sorted by `first`. Kernel: `UID_GID_MAP_MAX_BASE_EXTENTS`.
    lines: Box<[IdExtent]>,
    /// Sorted by `first`.
    down: Box<[IdExtent]>,
    /// The same extents sorted by `lower`.
    up: Box<[IdExtent]>,
}

impl IdMap {
    /// Checks the lines of a map and builds it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no line or more than [`MAX_EXTENTS`], an empty or overflowing line, and lines that overlap inside
    /// or outside.
    ///
    /// Kernel: the checks of `map_write()`.
    pub fn new(extents: &[IdExtent]) -> Result<IdMap> {
        if extents.is_empty() || extents.len() > MAX_EXTENTS {
            return Err(Errno::EINVAL);
        }
        for extent in extents {
            // So that INVALID_ID is in no extent.
            let wraps = extent.first.checked_add(extent.count).is_none()
                || extent.lower.checked_add(extent.count).is_none();
            if extent.count == 0 || wraps {
                return Err(Errno::EINVAL);
            }
        }
        let down = sorted_by(extents, |extent| extent.first)?;
        let up = sorted_by(extents, |extent| extent.lower)?;
        let lines = if extents.len() <= 5 { extents.into() } else { down.clone() };
        Ok(IdMap { lines, down, up })
    }

    /// The lines of the map, as the kernel shows them: up to five in the order in which they were written.
    pub(crate) fn lines(&self) -> &[IdExtent] {
        &self.lines
    }

    /// The lines of the map, sorted by the id inside.
    pub fn extents(&self) -> &[IdExtent] {
        &self.down
    }

    /// From the id inside to the id outside; [`INVALID_ID`] where nothing is mapped. Kernel: `map_id_down()`.
    pub fn map_down(&self, id: u32) -> u32 {
        let end = self.down.partition_point(|extent| extent.first <= id);
        match self.down[..end].last() {
            Some(extent) if id - extent.first < extent.count => extent.lower + (id - extent.first),
            _ => INVALID_ID,
        }
    }

    /// From the id outside to the id inside; [`INVALID_ID`] where nothing is mapped. Kernel: `map_id_up()`.
    pub fn map_up(&self, id: u32) -> u32 {
        let end = self.up.partition_point(|extent| extent.lower <= id);
        match self.up[..end].last() {
            Some(extent) if id - extent.lower < extent.count => extent.first + (id - extent.lower),
            _ => INVALID_ID,
        }
    }

    /// The outside start of a whole range, if one line covers it. Kernel: `map_id_range_down()`.
    fn map_range_down(&self, first: u32, count: u32) -> Option<u32> {
        self.down.iter().find(|e| covers(e.first, e.count, first, count)).map(|e| e.lower + (first - e.first))
    }

    /// The inside start of a whole range, if one line covers it. Kernel: `map_id_range_up()`.
    pub(crate) fn map_range_up(&self, lower: u32, count: u32) -> Option<u32> {
        self.up.iter().find(|e| covers(e.lower, e.count, lower, count)).map(|e| e.first + (lower - e.lower))
    }
}

/// Whether all of `wanted` ids from `first` on are among the `count` from `start` on.
fn covers(start: u32, count: u32, first: u32, wanted: u32) -> bool {
    let left = first.checked_sub(start).and_then(|skipped| count.checked_sub(skipped));
    left.is_some_and(|left| wanted <= left)
}

/// Sorts extents by a key and checks that the ranges that start there are disjoint.
fn sorted_by(extents: &[IdExtent], key: impl Fn(&IdExtent) -> u32) -> Result<Box<[IdExtent]>> {
    let mut sorted = extents.to_vec();
    sorted.sort_unstable_by_key(&key);
    if sorted.windows(2).any(|pair| key(&pair[1]) - key(&pair[0]) < pair[0].count) {
        return Err(Errno::EINVAL);
    }
    Ok(sorted.into_boxed_slice())
}

/// A map as `/proc/PID/uid_map` takes it, a line an extent; ids are numbers of any length, cut to 32 bits.
///
/// # Errors
///
/// `EINVAL`: as [`IdMap::new`], and for anything but three numbers in a line.
///
/// Kernel: kernel/user_namespace.c `map_write()`.
pub(crate) fn parse_map(text: &[u8]) -> Result<Vec<IdExtent>> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let extents = text.split(|&byte| byte == b'\n').map(parse_extent).collect::<Result<Vec<_>>>()?;
    IdMap::new(&extents)?;
    Ok(extents)
}

fn parse_extent(line: &[u8]) -> Result<IdExtent> {
    let mut words = line.split(|&byte| is_space(byte)).filter(|word| !word.is_empty());
    let mut number = || -> Result<u32> {
        let word = words.next().ok_or(Errno::EINVAL)?;
        let digit = |number: u64, &byte: &u8| match byte {
            b'0'..=b'9' => Ok(number.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'))),
            _ => Err(Errno::EINVAL),
        };
        Ok(word.iter().try_fold(0, digit)? as u32)
    };
    let extent = IdExtent { first: number()?, lower: number()?, count: number()? };
    if words.next().is_some() { Err(Errno::EINVAL) } else { Ok(extent) }
}

/// What the kernel takes for white space: that of ASCII, and the no-break space of Latin-1. Kernel: lib/ctype.c.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0xa0)
}

/// What a user namespace counts for as memory, and a line of one of its maps, of which there are three lists; bytes.
pub(crate) const USERNS_BYTES: u64 = 1024;
pub(crate) const EXTENT_BYTES: u64 = 3 * size_of::<IdExtent>() as u64;

/// Which ids a map is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdKind {
    User,
    Group,
}

/// A user namespace. Two are the same only if they are the same object ([`UserNamespace::is`]).
#[derive(Debug)]
pub struct UserNamespace {
    parent: Option<Arc<UserNamespace>>,
    level: u32,
    owner: u32,
    group: u32,
    parent_could_setfcap: bool,
    uid_map: OnceLock<IdMap>,
    gid_map: OnceLock<IdMap>,
    setgroups_denied: OnceLock<()>,
    /// The most tasks of its creator, those inside included. Kernel: `rlimit_max[UCOUNT_RLIMIT_NPROC]`.
    process_limit: OnceLock<u64>,
    /// The most namespaces that each of its users may have, once that was said. Kernel: `ucount_max`.
    ucount_max: OnceLock<[Racy64; Ucount::ALL.len()]>,
    /// It counts as one of its creator's, if a task made it. Kernel: `ucounts`.
    counted: OnceLock<(Counted, Charge)>,
    /// What its maps count for as memory.
    maps_charge: [OnceLock<Charge>; 2],
}

/// The deepest level at which a namespace may still have children.
const MAX_PARENT_LEVEL: u32 = 32;

static INIT_USER_NS: LazyLock<Arc<UserNamespace>> = LazyLock::new(|| {
    Arc::new(UserNamespace {
        parent: None,
        level: 0,
        owner: 0,
        group: 0,
        parent_could_setfcap: true,
        uid_map: OnceLock::new(),
        gid_map: OnceLock::new(),
        setgroups_denied: OnceLock::new(),
        process_limit: OnceLock::new(),
        ucount_max: OnceLock::new(),
        counted: OnceLock::new(),
        maps_charge: [OnceLock::new(), OnceLock::new()],
    })
});

impl UserNamespace {
    /// The initial namespace, the same object for the whole process.
    pub fn init() -> Arc<UserNamespace> {
        Arc::clone(&INIT_USER_NS)
    }

    /// A child of `parent` that maps nothing yet, owned by the kernel ids `owner` and `group`.
    ///
    /// `could_setfcap`: whether its creator had `CAP_SETFCAP` in force, which decides whether it may map the parent's
    /// id 0 for itself.
    ///
    /// # Errors
    ///
    /// `ENOSPC` beyond 33 levels; `EPERM` when an owner id is not mapped in the parent.
    ///
    /// Kernel: `create_user_ns()`. The caller's side of it is `Cred::unshare_user`.
    pub fn new_child(
        parent: &Arc<UserNamespace>,
        owner: u32,
        group: u32,
        could_setfcap: bool,
    ) -> Result<Arc<UserNamespace>> {
        if parent.level > MAX_PARENT_LEVEL {
            return Err(Errno::ENOSPC);
        }
        if !parent.has_uid(owner) || !parent.has_gid(group) {
            return Err(Errno::EPERM);
        }
        let setgroups_denied = OnceLock::new();
        if parent.setgroups_denied.get().is_some() {
            setgroups_denied.get_or_init(|| ());
        }
        Ok(Arc::new(UserNamespace {
            parent: Some(Arc::clone(parent)),
            level: parent.level + 1,
            owner,
            group,
            parent_could_setfcap: could_setfcap,
            uid_map: OnceLock::new(),
            gid_map: OnceLock::new(),
            setgroups_denied,
            process_limit: OnceLock::new(),
            ucount_max: OnceLock::new(),
            counted: OnceLock::new(),
            maps_charge: [OnceLock::new(), OnceLock::new()],
        }))
    }

    /// Has this namespace count until it goes, as one of its creator's and as memory.
    pub(crate) fn set_counted(&self, counted: Counted, charge: Charge) {
        let _ = self.counted.set((counted, charge));
    }

    /// The most namespaces of a kind that each of its users may have: see [`set_ucount_max`](Self::set_ucount_max).
    pub fn ucount_max(&self, kind: Ucount) -> u64 {
        self.ucount_max.get().map_or(Ucount::MAX, |max| max[kind as usize].get())
    }

    /// Sets the most namespaces of a kind that each user of this namespace may have, those that other users made in a namespace
    /// of his included; more are `ENOSPC`. It is [`Ucount::MAX`] until it is set. What there is already stays.
    ///
    /// Nobody gets round a limit by making namespaces in his namespaces. The limit of the initial namespace, which belongs to a
    /// [`Vfs`](crate::Vfs), is [`Sysctl::MaxUserNamespaces`](crate::Sysctl) or `MaxMntNamespaces`.
    ///
    /// No permission is checked here, as it is for a write to `/proc/sys/user/max_mnt_namespaces`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: beyond [`Ucount::MAX`]. `EPERM`: this is the initial namespace.
    ///
    /// Kernel: kernel/ucount.c `user_table`.
    ///
    /// ```
    /// use rcuwalk::userns::{Ucount, UserNamespace};
    /// use rcuwalk::{Cred, Errno, Vfs, uapi::*};
    ///
    /// let tenant = UserNamespace::new_child(&UserNamespace::init(), 1000, 1000, false)?;
    /// tenant.set_ucount_max(Ucount::MntNamespaces, 1)?;
    /// let vfs = Vfs::new()?;
    /// let mut first = vfs.task(Cred::user(1000, 1000, &[]).enter_user_ns(&tenant)?);
    /// first.unshare(CLONE_NEWNS)?;
    /// let mut second = vfs.task(Cred::user(1000, 1000, &[]).enter_user_ns(&tenant)?);
    /// assert_eq!(second.unshare(CLONE_NEWNS), Err(Errno::ENOSPC));
    /// drop(first);
    /// assert_eq!(second.unshare(CLONE_NEWNS), Ok(()));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn set_ucount_max(&self, kind: Ucount, most: u64) -> Result<()> {
        if self.is_init() {
            return Err(Errno::EPERM);
        }
        if most > Ucount::MAX {
            return Err(Errno::EINVAL);
        }
        let max = self.ucount_max.get_or_init(|| Ucount::ALL.map(|_| Racy64::new(Ucount::MAX)));
        max[kind as usize].set(most);
        Ok(())
    }

    /// The `RLIMIT_NPROC` of its creator counts for all tasks in it.
    pub(crate) fn limit_processes(&self, most: u64) {
        self.process_limit.get_or_init(|| most);
    }

    /// See [`limit_processes`](Self::limit_processes).
    pub(crate) fn process_limit(&self) -> u64 {
        self.process_limit.get().copied().unwrap_or(u64::MAX)
    }

    /// Is this the initial namespace?
    #[inline]
    pub fn is_init(&self) -> bool {
        self.level == 0
    }

    /// Are these the same namespace?
    #[inline]
    pub fn is(&self, other: &UserNamespace) -> bool {
        std::ptr::eq(self, other)
    }

    /// The namespace that this one was created in; `None` for the initial one.
    pub fn parent(&self) -> Option<&Arc<UserNamespace>> {
        self.parent.as_ref()
    }

    /// Is `ancestor` this namespace, or one that it descends from? Kernel: `in_userns()`.
    pub fn is_in(&self, ancestor: &UserNamespace) -> bool {
        let mut ns = self;
        while ns.level > ancestor.level
            && let Some(parent) = &ns.parent
        {
            ns = parent;
        }
        ns.is(ancestor)
    }

    /// Distance from the initial namespace.
    #[inline]
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Kernel id of the owner: the creator's effective user id.
    #[inline]
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Kernel id of the owning group: the creator's effective group id.
    #[inline]
    pub fn group(&self) -> u32 {
        self.group
    }

    /// Had the creator `CAP_SETFCAP`?
    pub fn parent_could_setfcap(&self) -> bool {
        self.parent_could_setfcap
    }

    /// The user-id map; `None` until it is written, and for the initial namespace.
    pub fn uid_map(&self) -> Option<&IdMap> {
        self.uid_map.get()
    }

    /// The group-id map; `None` until it is written, and for the initial namespace.
    pub fn gid_map(&self) -> Option<&IdMap> {
        self.gid_map.get()
    }

    /// Writes the user-id map; `lower` ids are those of the parent.
    ///
    /// No permission is checked here, as it is for a write to [`ProcFile::UidMap`](crate::ProcFile::UidMap).
    ///
    /// # Errors
    ///
    /// `EPERM` when it is already written (always, for the initial namespace) or a line is not covered by one line of
    /// the parent's map; `EINVAL` as [`IdMap::new`].
    ///
    /// Kernel: `map_write()`.
    pub fn set_uid_map(&self, extents: &[IdExtent]) -> Result<()> {
        self.set_map(IdKind::User, extents)
    }

    /// Writes the group-id map. Errors and differences as [`UserNamespace::set_uid_map`].
    pub fn set_gid_map(&self, extents: &[IdExtent]) -> Result<()> {
        self.set_map(IdKind::Group, extents)
    }

    fn slot(&self, kind: IdKind) -> &OnceLock<IdMap> {
        match kind {
            IdKind::User => &self.uid_map,
            IdKind::Group => &self.gid_map,
        }
    }

    /// The map of these ids, once it is written.
    pub(crate) fn map(&self, kind: IdKind) -> Option<&IdMap> {
        self.slot(kind).get()
    }

    /// [`set_map`](Self::set_map), which counts as memory until the namespace goes.
    ///
    /// # Errors
    ///
    /// As [`set_map`](Self::set_map).
    pub(crate) fn set_counted_map(&self, kind: IdKind, extents: &[IdExtent], charge: Charge) -> Result<()> {
        self.set_map(kind, extents)?;
        let _ = self.maps_charge[kind as usize].set(charge);
        Ok(())
    }

    pub(crate) fn set_map(&self, kind: IdKind, extents: &[IdExtent]) -> Result<()> {
        let Some(parent) = &self.parent else { return Err(Errno::EPERM) };
        let slot = self.slot(kind);
        if slot.get().is_some() {
            return Err(Errno::EPERM);
        }
        IdMap::new(extents)?;
        let mut absolute = extents.to_vec();
        if !parent.is_init() {
            let parent_map = parent.map(kind).ok_or(Errno::EPERM)?;
            for extent in &mut absolute {
                extent.lower = parent_map.map_range_down(extent.lower, extent.count).ok_or(Errno::EPERM)?;
            }
        }
        slot.set(IdMap::new(&absolute)?).map_err(|_| Errno::EPERM)
    }

    /// May members use setgroups(2)? Only once the group-id map is written, and unless it was denied.
    ///
    /// Kernel: `userns_may_setgroups()`.
    pub fn setgroups_allowed(&self) -> bool {
        (self.is_init() || self.gid_map.get().is_some()) && !self.setgroups_denied()
    }

    /// Was setgroups(2) denied, here or in a namespace above before this one was made?
    pub(crate) fn setgroups_denied(&self) -> bool {
        self.setgroups_denied.get().is_some()
    }

    /// Writes "deny" to the namespace's `setgroups` file.
    ///
    /// # Errors
    ///
    /// `EPERM` once the group-id map is written (always, for the initial namespace).
    ///
    /// Kernel: `proc_setgroups_write()`.
    pub fn deny_setgroups(&self) -> Result<()> {
        if self.is_init() || self.gid_map.get().is_some() {
            return Err(Errno::EPERM);
        }
        self.setgroups_denied.get_or_init(|| ());
        Ok(())
    }

    /// The kernel id of user `uid` of this namespace, or [`INVALID_ID`]. Kernel: `make_kuid()`.
    #[inline]
    pub fn make_kuid(&self, uid: u32) -> u32 {
        if self.is_init() { uid } else { self.uid_map.get().map_or(INVALID_ID, |map| map.map_down(uid)) }
    }

    /// The kernel id of group `gid` of this namespace, or [`INVALID_ID`]. Kernel: `make_kgid()`.
    #[inline]
    pub fn make_kgid(&self, gid: u32) -> u32 {
        if self.is_init() { gid } else { self.gid_map.get().map_or(INVALID_ID, |map| map.map_down(gid)) }
    }

    /// The user id of this namespace for a kernel id, or [`INVALID_ID`]. Kernel: `from_kuid()`.
    #[inline]
    pub fn from_kuid(&self, kuid: u32) -> u32 {
        if self.is_init() { kuid } else { self.uid_map.get().map_or(INVALID_ID, |map| map.map_up(kuid)) }
    }

    /// The group id of this namespace for a kernel id, or [`INVALID_ID`]. Kernel: `from_kgid()`.
    #[inline]
    pub fn from_kgid(&self, kgid: u32) -> u32 {
        if self.is_init() { kgid } else { self.gid_map.get().map_or(INVALID_ID, |map| map.map_up(kgid)) }
    }

    /// As [`UserNamespace::from_kuid`], with 65534 for an id without a mapping: what user space is told.
    #[inline]
    pub fn from_kuid_munged(&self, kuid: u32) -> u32 {
        match self.from_kuid(kuid) {
            INVALID_ID => OVERFLOWUID,
            uid => uid,
        }
    }

    /// As [`UserNamespace::from_kgid`], with 65534 for an id without a mapping: what user space is told.
    #[inline]
    pub fn from_kgid_munged(&self, kgid: u32) -> u32 {
        match self.from_kgid(kgid) {
            INVALID_ID => OVERFLOWGID,
            gid => gid,
        }
    }

    /// Has this user a number here? Kernel: `kuid_has_mapping()`.
    #[inline]
    pub fn has_uid(&self, kuid: u32) -> bool {
        self.from_kuid(kuid) != INVALID_ID
    }

    /// Has this group a number here? Kernel: `kgid_has_mapping()`.
    #[inline]
    pub fn has_gid(&self, kgid: u32) -> bool {
        self.from_kgid(kgid) != INVALID_ID
    }
}

/// The id map of a mount: a pair of maps under which the ids stored in inodes are seen through it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MountIdmap {
    /// User ids: inside is what the filesystem stores, outside what the mount shows.
    pub uid_map: IdMap,
    /// Group ids.
    pub gid_map: IdMap,
}

/// How the ids of inodes look through one mount: the filesystem's own namespace, then the mount's id map, if any.
///
/// The kernel calls the ids on the near side `vfsuid_t` and `vfsgid_t`; credentials are compared with those only.
#[derive(Clone, Copy, Debug)]
pub struct IdView<'a> {
    /// The namespace that mounted the filesystem.
    pub sb_ns: &'a UserNamespace,
    /// The id map of the mount; `None` shows ids as they are stored.
    pub idmap: Option<&'a MountIdmap>,
}

/// Where the first half of a translation has no id, the second has none either: no map has [`INVALID_ID`].
impl IdView<'_> {
    /// The owner that a stored user id shows as, or [`INVALID_ID`]. Kernel: `make_vfsuid()`.
    #[inline]
    pub fn make_vfsuid(&self, kuid: u32) -> u32 {
        match self.idmap {
            None => kuid,
            Some(idmap) => idmap.uid_map.map_down(self.sb_ns.from_kuid(kuid)),
        }
    }

    /// The group that a stored group id shows as, or [`INVALID_ID`]. Kernel: `make_vfsgid()`.
    #[inline]
    pub fn make_vfsgid(&self, kgid: u32) -> u32 {
        match self.idmap {
            None => kgid,
            Some(idmap) => idmap.gid_map.map_down(self.sb_ns.from_kgid(kgid)),
        }
    }

    /// The user id to store for an owner seen through the mount, or [`INVALID_ID`]. Kernel: `from_vfsuid()`.
    pub fn from_vfsuid(&self, vfsuid: u32) -> u32 {
        match self.idmap {
            None => vfsuid,
            Some(idmap) => self.sb_ns.make_kuid(idmap.uid_map.map_up(vfsuid)),
        }
    }

    /// The group id to store for a group seen through the mount, or [`INVALID_ID`]. Kernel: `from_vfsgid()`.
    pub fn from_vfsgid(&self, vfsgid: u32) -> u32 {
        match self.idmap {
            None => vfsgid,
            Some(idmap) => self.sb_ns.make_kgid(idmap.gid_map.map_up(vfsgid)),
        }
    }

    /// Can the filesystem store objects created by these filesystem ids? If not, creation is `EOVERFLOW`.
    ///
    /// Kernel: `fsuidgid_has_mapping()`.
    pub fn can_store(&self, fsuid: u32, fsgid: u32) -> bool {
        self.sb_ns.has_uid(self.from_vfsuid(fsuid)) && self.sb_ns.has_gid(self.from_vfsgid(fsgid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(first: u32, lower: u32, count: u32) -> IdExtent {
        IdExtent { first, lower, count }
    }

    #[test]
    fn initial_namespace_is_the_identity() {
        let init = UserNamespace::init();
        for id in [0, 1, 1000, 65534, u32::MAX - 1] {
            assert_eq!(init.make_kuid(id), id);
            assert_eq!(init.from_kgid(id), id);
            assert!(init.has_uid(id));
        }
        assert!(!init.has_gid(INVALID_ID));
        assert_eq!(init.from_kuid_munged(INVALID_ID), OVERFLOWUID);
        assert!(init.setgroups_allowed());
        assert_eq!(init.set_uid_map(&[extent(0, 0, 1)]), Err(Errno::EPERM));
        assert_eq!(init.deny_setgroups(), Err(Errno::EPERM));
    }

    #[test]
    fn map_agrees_with_a_list_of_pairs() {
        let extents = [extent(50, 7, 3), extent(0, 1000, 10), extent(20, 500, 30), extent(900, 53, 1)];
        let map = IdMap::new(&extents).unwrap();
        for id in 0..1200 {
            let pairs = || extents.iter().flat_map(|e| (0..e.count).map(move |i| (e.first + i, e.lower + i)));
            assert_eq!(map.map_down(id), pairs().find(|p| p.0 == id).map_or(INVALID_ID, |p| p.1));
            assert_eq!(map.map_up(id), pairs().find(|p| p.1 == id).map_or(INVALID_ID, |p| p.0));
        }
        assert_eq!(map.map_down(u32::MAX), INVALID_ID);
    }

    #[test]
    fn bad_maps_are_einval() {
        let bad: [&[IdExtent]; 6] = [
            &[],
            &[extent(0, 0, 0)],
            &[extent(INVALID_ID, 0, 1)],
            &[extent(5, 0, u32::MAX - 4)],
            &[extent(0, 0, 10), extent(9, 100, 1)],
            &[extent(0, 0, 10), extent(100, 9, 1)],
        ];
        for extents in bad {
            assert_eq!(IdMap::new(extents).unwrap_err(), Errno::EINVAL, "{extents:?}");
        }
        let many: Vec<_> = (0..=MAX_EXTENTS as u32).map(|i| extent(i, i, 1)).collect();
        assert_eq!(IdMap::new(&many).unwrap_err(), Errno::EINVAL);
        assert!(IdMap::new(&many[1..]).is_ok());
        assert!(IdMap::new(&[extent(0, 0, u32::MAX)]).is_ok(), "the initial namespace's own map");
    }

    /// u01: before a map is written every id is unmapped.
    #[test]
    fn child_without_maps_knows_nobody() {
        let child = UserNamespace::new_child(&UserNamespace::init(), 1000, 1000, false).unwrap();
        assert_eq!(child.make_kuid(0), INVALID_ID);
        assert_eq!(child.from_kuid_munged(1000), 65534);
        assert!(!child.setgroups_allowed(), "not before the group map is written");
        child.set_gid_map(&[extent(0, 1000, 1)]).unwrap();
        assert!(child.setgroups_allowed());
        assert_eq!(child.deny_setgroups(), Err(Errno::EPERM), "too late");
        assert_eq!(child.set_gid_map(&[extent(0, 1000, 1)]), Err(Errno::EPERM), "once");
        assert_eq!(child.set_gid_map(&[]), Err(Errno::EPERM), "whatever it would be");
    }

    #[test]
    fn nested_maps_are_relative_to_the_initial_namespace() {
        let init = UserNamespace::init();
        let outer = UserNamespace::new_child(&init, 0, 0, true).unwrap();
        outer.deny_setgroups().unwrap();
        let early = UserNamespace::new_child(&outer, 100_005, 0, false);
        assert_eq!(early.unwrap_err(), Errno::EPERM, "owner unmapped in the parent");
        outer.set_uid_map(&[extent(0, 100_000, 1000), extent(1000, 200_000, 10)]).unwrap();
        outer.set_gid_map(&[extent(0, 100_000, 1000)]).unwrap();
        let inner = UserNamespace::new_child(&outer, 100_005, 100_000, false).unwrap();
        assert_eq!(
            inner.set_uid_map(&[extent(0, 995, 10)]),
            Err(Errno::EPERM),
            "spans two lines of the parent"
        );
        assert_eq!(inner.set_uid_map(&[extent(0, 2000, 1)]), Err(Errno::EPERM), "outside of the parent");
        inner.set_uid_map(&[extent(0, 5, 3), extent(7, 1002, 2)]).unwrap();
        assert_eq!(inner.make_kuid(1), 100_006);
        assert_eq!(inner.make_kuid(8), 200_003);
        assert_eq!(inner.from_kuid(200_002), 7);
        assert_eq!(inner.from_kuid(1), INVALID_ID);
        assert!(inner.is_in(&outer) && inner.is_in(&init) && inner.is_in(&inner) && !outer.is_in(&inner));
        inner.set_gid_map(&[extent(0, 0, 1)]).unwrap();
        assert!(!inner.setgroups_allowed(), "denied by inheritance");
    }

    #[test]
    fn nesting_ends_at_level_33() {
        let mut ns = UserNamespace::init();
        for _ in 0..33 {
            ns = UserNamespace::new_child(&ns, 0, 0, true).unwrap();
            ns.set_uid_map(&[extent(0, 0, 1)]).unwrap();
            ns.set_gid_map(&[extent(0, 0, 1)]).unwrap();
        }
        assert_eq!(ns.level(), 33);
        assert_eq!(UserNamespace::new_child(&ns, 0, 0, true).unwrap_err(), Errno::ENOSPC);
    }

    /// i01: fs 0..1999 seen as 10000..11999.
    #[test]
    fn idmapped_mount_shows_and_stores_translated_ids() {
        let init = UserNamespace::init();
        let map = || IdMap::new(&[extent(0, 10_000, 2000)]).unwrap();
        let idmap = MountIdmap { uid_map: map(), gid_map: map() };
        let mapped = IdView { sb_ns: &init, idmap: Some(&idmap) };
        let plain = IdView { sb_ns: &init, idmap: None };
        let shown =
            [0, 1000, 5000].map(|id| (init.from_kuid_munged(mapped.make_vfsuid(id)), mapped.make_vfsgid(id)));
        assert_eq!(shown, [(10_000, 10_000), (11_000, 11_000), (65_534, INVALID_ID)]);
        assert_eq!(mapped.from_vfsuid(10_003), 3);
        assert_eq!(mapped.from_vfsgid(0), INVALID_ID);
        assert!(!mapped.can_store(0, 10_000), "i03: root has no id in the filesystem");
        assert!(mapped.can_store(10_000, 11_999) && plain.can_store(0, 0));
        assert_eq!((plain.make_vfsuid(5000), plain.from_vfsgid(5000)), (5000, 5000));
    }

    #[test]
    fn filesystem_of_a_namespace_stores_only_its_ids() {
        let ns = UserNamespace::new_child(&UserNamespace::init(), 0, 0, true).unwrap();
        ns.set_uid_map(&[extent(0, 100_000, 10)]).unwrap();
        ns.set_gid_map(&[extent(0, 100_000, 10)]).unwrap();
        let map = || IdMap::new(&[extent(0, 500, 5)]).unwrap();
        let idmap = MountIdmap { uid_map: map(), gid_map: map() };
        let view = IdView { sb_ns: &ns, idmap: Some(&idmap) };
        assert_eq!(view.make_vfsuid(100_004), 504);
        assert_eq!(view.make_vfsuid(100_005), INVALID_ID);
        assert_eq!(view.make_vfsuid(4), INVALID_ID, "not an id of the filesystem");
        assert_eq!(view.from_vfsuid(504), 100_004);
        let plain = IdView { sb_ns: &ns, idmap: None };
        assert!(plain.can_store(100_009, 100_000) && !plain.can_store(0, 0));
    }
}
