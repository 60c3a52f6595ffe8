//! POSIX access control lists.
//!
//! An ACL arrives as the value of an extended attribute, which anybody may have written. [`UncheckedAcl`] is what could
//! be read from it; [`Acl`] is a list that passed [`UncheckedAcl::validate`], and the only kind that is stored. Ids in
//! both are kernel ids ([`crate::userns`]).
//!
//! The permission test itself, [`posix_acl_permission`], takes an iterator: the lockless walk reads the entries one by
//! one from memory that may change under it, and finds out afterwards whether what it read was an ACL at all. So the test
//! accepts any entries.

use crate::cred::Cred;
use crate::errno::{Errno, Result};
use crate::uapi::{INVALID_ID, S_IRWXUGO, XATTR_SIZE_MAX};
use crate::userns::UserNamespace;

/// Tag: the owner.
pub const ACL_USER_OBJ: u16 = 0x01;
/// Tag: a named user.
pub const ACL_USER: u16 = 0x02;
/// Tag: the owning group.
pub const ACL_GROUP_OBJ: u16 = 0x04;
/// Tag: a named group.
pub const ACL_GROUP: u16 = 0x08;
/// Tag: the upper bound for named users and all groups.
pub const ACL_MASK: u16 = 0x10;
/// Tag: everybody else.
pub const ACL_OTHER: u16 = 0x20;

/// The version in the header of the attribute value.
pub const POSIX_ACL_XATTR_VERSION: u32 = 2;
/// Name of the attribute that shows the access ACL.
pub const XATTR_NAME_POSIX_ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the attribute that shows the default ACL of a directory.
pub const XATTR_NAME_POSIX_ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

const HEADER_LEN: usize = 4;
const ENTRY_LEN: usize = 8;
/// The most entries that fit into an attribute value.
const MAX_ENTRIES: usize = (XATTR_SIZE_MAX - HEADER_LEN) / ENTRY_LEN;
const RWX: u16 = 7;

/// One entry of an ACL.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AclEntry {
    /// `ACL_*`; anything else is malformed.
    pub tag: u16,
    /// Permission bits, as in a mode: read 4, write 2, execute 1.
    pub perm: u16,
    /// The user or group of `ACL_USER` and `ACL_GROUP`; [`INVALID_ID`] for the other tags.
    pub id: u32,
}

const _: () = assert!(size_of::<AclEntry>() == 8, "an entry packs into one word");

impl AclEntry {
    /// An entry without an id.
    pub const fn new(tag: u16, perm: u16) -> AclEntry {
        AclEntry { tag, perm, id: INVALID_ID }
    }

    /// An entry for a named user.
    pub const fn user(id: u32, perm: u16) -> AclEntry {
        AclEntry { tag: ACL_USER, perm, id }
    }

    /// An entry for a named group.
    pub const fn group(id: u32, perm: u16) -> AclEntry {
        AclEntry { tag: ACL_GROUP, perm, id }
    }

    /// Packs the entry into one word.
    ///
    /// ```
    /// use rcuwalk::acl::AclEntry;
    /// let entry = AclEntry::user(1000, 6);
    /// assert_eq!(AclEntry::from_word(entry.to_word()), entry);
    /// ```
    #[inline]
    pub const fn to_word(self) -> u64 {
        (self.tag as u64) << 48 | (self.perm as u64) << 32 | self.id as u64
    }

    /// Unpacks an entry. Every word is some entry, most of them malformed.
    #[inline]
    pub const fn from_word(word: u64) -> AclEntry {
        AclEntry { tag: (word >> 48) as u16, perm: (word >> 32) as u16, id: word as u32 }
    }
}

/// What a caller is granted by an ACL, as 0 or `EACCES`.
///
/// `uid` and `gid` are the owner and group of the inode, and the ids of the entries are seen through the same mount.
/// `want` is any combination of read 4, write 2 and execute 1; other bits are ignored.
///
/// # Errors
///
/// `EACCES`: not granted. `EIO`: malformed; any sequence of entries is accepted.
///
/// Kernel: `posix_acl_permission()`.
///
/// ```
/// use rcuwalk::acl::*;
/// use rcuwalk::{cred::Cred, errno::Errno};
///
/// let acl = [
///     AclEntry::new(ACL_USER_OBJ, 6),
///     AclEntry::user(1000, 6),
///     AclEntry::new(ACL_GROUP_OBJ, 0),
///     AclEntry::new(ACL_MASK, 4),
///     AclEntry::new(ACL_OTHER, 0),
/// ];
/// let user = Cred::user(1000, 1000, &[]);
/// assert_eq!(posix_acl_permission(acl.into_iter(), 0, 0, &user, 4), Ok(()));
/// assert_eq!(posix_acl_permission(acl.into_iter(), 0, 0, &user, 2), Err(Errno::EACCES), "masked");
/// ```
pub fn posix_acl_permission(
    mut entries: impl Iterator<Item = AclEntry>,
    uid: u32,
    gid: u32,
    cred: &Cred,
    want: u32,
) -> Result<()> {
    let want = want as u16 & RWX;
    let mut found = false;
    while let Some(entry) = entries.next() {
        match entry.tag {
            ACL_USER_OBJ if uid == cred.fsuid() => return granted(entry.perm, want),
            ACL_USER if entry.id == cred.fsuid() => return masked(entry.perm, entries, want),
            ACL_GROUP_OBJ | ACL_GROUP => {
                if cred.in_group(if entry.tag == ACL_GROUP { entry.id } else { gid }) {
                    found = true;
                    if want & !entry.perm == 0 {
                        return masked(entry.perm, entries, want);
                    }
                }
            }
            ACL_USER_OBJ | ACL_USER | ACL_MASK => {}
            ACL_OTHER if found => return Err(Errno::EACCES),
            ACL_OTHER => return granted(entry.perm, want),
            _ => return Err(Errno::EIO),
        }
    }
    Err(Errno::EIO)
}

/// Decides by an entry that the mask bounds; `rest` are the entries behind it.
fn masked(perm: u16, mut rest: impl Iterator<Item = AclEntry>, want: u16) -> Result<()> {
    let mask = rest.find(|entry| entry.tag == ACL_MASK).map_or(RWX, |entry| entry.perm);
    granted(perm & mask, want)
}

#[inline]
fn granted(perm: u16, want: u16) -> Result<()> {
    if want & !perm == 0 { Ok(()) } else { Err(Errno::EACCES) }
}

/// An ACL as somebody wrote it: known tags, but any order, any permission bits, perhaps ids that do not exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UncheckedAcl(Vec<AclEntry>);

impl UncheckedAcl {
    /// Collects entries.
    pub fn new(entries: impl IntoIterator<Item = AclEntry>) -> UncheckedAcl {
        UncheckedAcl(entries.into_iter().collect())
    }

    /// The entries, in stored order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.0
    }

    /// Replaces the ids, for example by what a mount's id map makes of them.
    pub fn map_ids(&mut self, uid: impl Fn(u32) -> u32, gid: impl Fn(u32) -> u32) {
        for entry in &mut self.0 {
            match entry.tag {
                ACL_USER => entry.id = uid(entry.id),
                ACL_GROUP => entry.id = gid(entry.id),
                _ => {}
            }
        }
    }

    /// Checks that it is an ACL: owner, named users, group, named groups, mask and others in this order, the unnamed ones
    /// once each, the mask present if there is a named entry, no permission bits but the three, and every id mapped in
    /// the filesystem's namespace. Named entries may be unsorted and repeated.
    ///
    /// # Errors
    ///
    /// `EINVAL`.
    ///
    /// Kernel: `posix_acl_valid()`.
    pub fn validate(self, sb_ns: &UserNamespace) -> Result<Acl> {
        let mapped = |entry: &AclEntry| match entry.tag {
            ACL_USER => sb_ns.has_uid(entry.id),
            ACL_GROUP => sb_ns.has_gid(entry.id),
            _ => true,
        };
        if !well_formed(&self.0) || !self.0.iter().all(mapped) {
            return Err(Errno::EINVAL);
        }
        Ok(Acl(self.0))
    }
}

/// The order and permission rules of [`UncheckedAcl::validate`].
fn well_formed(entries: &[AclEntry]) -> bool {
    // What may come next, as a set of tags; after `ACL_OTHER` nothing may.
    let mut next = ACL_USER_OBJ;
    let mut named = false;
    for entry in entries {
        if entry.perm & !RWX != 0 || entry.tag.count_ones() != 1 || entry.tag & next == 0 {
            return false;
        }
        named |= entry.tag & (ACL_USER | ACL_GROUP) != 0;
        let others = if named { 0 } else { ACL_OTHER };
        next = match entry.tag {
            ACL_USER_OBJ | ACL_USER => ACL_USER | ACL_GROUP_OBJ,
            ACL_GROUP_OBJ | ACL_GROUP => ACL_GROUP | ACL_MASK | others,
            ACL_MASK => ACL_OTHER,
            _ => 0,
        };
    }
    next == 0 && !entries.is_empty()
}

/// Reads the value of an ACL attribute; `None` for a value without entries, which asks for removal.
///
/// `uid` and `gid` translate the ids of `ACL_USER` and `ACL_GROUP` entries to kernel ids (`make_kuid` and `make_kgid` of
/// the caller's namespace). Ids of other entries are ignored.
///
/// # Errors
///
/// `EINVAL`: short, not a whole number of entries, an unknown tag, or an id without a mapping. `EOPNOTSUPP`: unknown
/// version. `ENOMEM`.
///
/// Kernel: `posix_acl_from_xattr()`. Differs: an empty value is taken as well, as the removal that setxattr makes of it.
pub fn posix_acl_from_xattr(
    value: &[u8],
    uid: impl Fn(u32) -> u32,
    gid: impl Fn(u32) -> u32,
) -> Result<Option<UncheckedAcl>> {
    if value.is_empty() {
        return Ok(None);
    }
    let (&version, body) = value.split_first_chunk::<HEADER_LEN>().ok_or(Errno::EINVAL)?;
    if u32::from_le_bytes(version) != POSIX_ACL_XATTR_VERSION {
        return Err(Errno::EOPNOTSUPP);
    }
    let (raw_entries, rest) = body.as_chunks::<ENTRY_LEN>();
    if !rest.is_empty() || raw_entries.len() > MAX_ENTRIES {
        return Err(Errno::EINVAL);
    }
    if raw_entries.is_empty() {
        return Ok(None);
    }
    let mut entries = Vec::new();
    entries.try_reserve_exact(raw_entries.len()).map_err(|_| Errno::ENOMEM)?;
    for &[t0, t1, p0, p1, i0, i1, i2, i3] in raw_entries {
        let raw_id = u32::from_le_bytes([i0, i1, i2, i3]);
        let tag = u16::from_le_bytes([t0, t1]);
        let id = match tag {
            ACL_USER_OBJ | ACL_GROUP_OBJ | ACL_MASK | ACL_OTHER => INVALID_ID,
            ACL_USER => mapped(uid(raw_id))?,
            ACL_GROUP => mapped(gid(raw_id))?,
            _ => return Err(Errno::EINVAL),
        };
        entries.push(AclEntry { tag, perm: u16::from_le_bytes([p0, p1]), id });
    }
    Ok(Some(UncheckedAcl(entries)))
}

fn mapped(id: u32) -> Result<u32> {
    if id == INVALID_ID { Err(Errno::EINVAL) } else { Ok(id) }
}

/// A valid ACL: first the owner, last the others, before them the mask if there is one (see
/// [`UncheckedAcl::validate`]).
///
/// ```
/// use rcuwalk::acl::*;
/// use rcuwalk::userns::UserNamespace;
///
/// let init = UserNamespace::init();
/// let value = [2, 0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 4, 0, 5, 0, 0, 0, 0, 0, 32, 0, 1, 0, 0, 0, 0, 0];
/// let acl = posix_acl_from_xattr(&value, |uid| uid, |gid| gid)?.expect("has entries").validate(&init)?;
/// assert_eq!(acl.equiv_mode(), (0o651, false), "says no more than a mode");
/// # Ok::<(), rcuwalk::errno::Errno>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl(Vec<AclEntry>);

impl Acl {
    /// The entries, in stored order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.0
    }

    /// The entries packed into words, for storage.
    pub fn to_words(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.0.iter().map(|entry| entry.to_word())
    }

    /// Reads back what [`Acl::to_words`] gave.
    ///
    /// # Errors
    ///
    /// `EIO` when these words are no ACL.
    pub fn from_words(words: impl IntoIterator<Item = u64>) -> Result<Acl> {
        let entries: Vec<AclEntry> = words.into_iter().map(AclEntry::from_word).collect();
        if well_formed(&entries) { Ok(Acl(entries)) } else { Err(Errno::EIO) }
    }

    /// The nine permission bits that stand for this ACL in a mode, and whether the ACL says more than they do (has
    /// named entries or a mask). One that does not is not stored.
    ///
    /// Kernel: `posix_acl_equiv_mode()`.
    pub fn equiv_mode(&self) -> (u32, bool) {
        let [user, group, other] = self.classes().map(|class| u32::from(self.0[class].perm));
        (user << 6 | group << 3 | other, self.0.len() > 3)
    }

    /// Sets the permissions of the three classes to those of `mode`: owner, mask (the group, if there is no mask) and
    /// others.
    ///
    /// Kernel: `__posix_acl_chmod_masq()`.
    pub fn chmod_masq(&mut self, mode: u32) {
        for (class, shift) in self.classes().into_iter().zip([6, 3, 0]) {
            self.0[class].perm = (mode >> shift) as u16 & RWX;
        }
    }

    /// Makes this copy of a default ACL the access ACL of a new object that is created with `mode`. Returns the mode
    /// of the object, and whether the ACL is to be stored (says more than the mode).
    ///
    /// Kernel: `posix_acl_create_masq()`.
    pub fn create_masq(&mut self, mode: u32) -> (u32, bool) {
        for (class, shift) in self.classes().into_iter().zip([6, 3, 0]) {
            self.0[class].perm &= (mode >> shift) as u16;
        }
        let (permissions, extended) = self.equiv_mode();
        (mode & !S_IRWXUGO | permissions, extended)
    }

    /// Where the entries are that stand for the three classes of a mode: owner, mask or else group, others.
    fn classes(&self) -> [usize; 3] {
        let last = self.0.len() - 1;
        let group = match self.0[last - 1].tag {
            ACL_MASK => last - 1,
            _ => self.0.iter().position(|entry| entry.tag == ACL_GROUP_OBJ).expect("a valid ACL has a group"),
        };
        [0, group, last]
    }

    /// The value of the attribute. `uid` and `gid` translate kernel ids to what the caller sees (`from_kuid` and
    /// `from_kgid`); an id without a mapping shows as [`INVALID_ID`].
    ///
    /// Kernel: `vfs_posix_acl_to_xattr()`.
    pub fn to_xattr(&self, uid: impl Fn(u32) -> u32, gid: impl Fn(u32) -> u32) -> Vec<u8> {
        let mut value = Vec::with_capacity(HEADER_LEN + self.0.len() * ENTRY_LEN);
        value.extend(POSIX_ACL_XATTR_VERSION.to_le_bytes());
        for entry in &self.0 {
            let id = match entry.tag {
                ACL_USER => uid(entry.id),
                ACL_GROUP => gid(entry.id),
                _ => INVALID_ID,
            };
            value.extend(entry.tag.to_le_bytes());
            value.extend(entry.perm.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }
}
