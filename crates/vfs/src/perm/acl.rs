//! POSIX access control lists.
//!
//! An ACL arrives as the value of an extended attribute, which anybody may have written. [`UncheckedAcl`] is what could
//! be read from it; [`Acl`] is a list that passed [`UncheckedAcl::validate`], and the only kind that is stored. Ids in
//! both are kernel ids ([`crate::cred::userns`]).
//!
//! The permission test itself, [`posix_acl_permission`], takes an iterator: the lockless walk reads the entries one by
//! one from memory that may change under it, and finds out afterwards whether what it read was an ACL at all. So the test
//! accepts any entries.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::{INVALID_ID, S_IRWXUGO, XATTR_SIZE_MAX};
use crate::cred::Cred;
use crate::cred::userns::UserNamespace;
use crate::perm::fact::{Class, Fact, Unwatched, Watch};

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
    #[inline]
    pub(crate) const fn to_word(self) -> u64 {
        (self.tag as u64) << 48 | (self.perm as u64) << 32 | self.id as u64
    }

    /// Unpacks an entry. Every word is some entry, most of them malformed.
    #[inline]
    pub(crate) const fn from_word(word: u64) -> AclEntry {
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
    entries: impl Iterator<Item = AclEntry>,
    uid: u32,
    gid: u32,
    cred: &Cred,
    want: u32,
) -> Result<()> {
    watched_acl_permission(entries, uid, gid, cred, want, &mut Unwatched)
}

/// [`posix_acl_permission`], telling which entry speaks for the caller.
pub(crate) fn watched_acl_permission(
    mut entries: impl Iterator<Item = AclEntry>,
    uid: u32,
    gid: u32,
    cred: &Cred,
    want: u32,
    w: &mut impl Watch,
) -> Result<()> {
    let want = want as u16 & RWX;
    let mut found = false;
    while let Some(entry) = entries.next() {
        let perm = entry.perm;
        match entry.tag {
            ACL_USER_OBJ if uid == cred.fsuid() => return granted(Class::Owner, perm, None, want, w),
            ACL_USER if entry.id == cred.fsuid() => {
                return granted(Class::NamedUser(entry.id), perm, mask_of(entries), want, w);
            }
            ACL_GROUP_OBJ | ACL_GROUP => {
                let named = entry.tag == ACL_GROUP;
                if cred.in_group(if named { entry.id } else { gid }) {
                    found = true;
                    if want & !perm == 0 {
                        let class = if named { Class::NamedGroup(entry.id) } else { Class::Group };
                        return granted(class, perm, mask_of(entries), want, w);
                    }
                }
            }
            ACL_USER_OBJ | ACL_USER | ACL_MASK => {}
            ACL_OTHER if found => {
                w.see(|| Fact::Class { class: Class::NoGroupEntry, bits: 0, mask: None, granted: false });
                return Err(Errno::EACCES);
            }
            ACL_OTHER => return granted(Class::Other, perm, None, want, w),
            _ => return Err(Errno::EIO),
        }
    }
    Err(Errno::EIO)
}

/// The mask, which stands somewhere in `rest`, the entries behind one that it bounds.
fn mask_of(mut rest: impl Iterator<Item = AclEntry>) -> Option<u16> {
    rest.find(|entry| entry.tag == ACL_MASK).map(|entry| entry.perm)
}

/// Decides by an entry, as far as the mask lets it.
#[inline]
fn granted(class: Class, perm: u16, mask: Option<u16>, want: u16, w: &mut impl Watch) -> Result<()> {
    let granted = want & !(perm & mask.unwrap_or(RWX)) == 0;
    w.see(|| Fact::Class { class, bits: u32::from(perm), mask: mask.map(u32::from), granted });
    if granted { Ok(()) } else { Err(Errno::EACCES) }
}

/// An ACL as it was written: known tags, but any order, any permission bits, perhaps ids that do not exist.
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
    next == 0
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

    /// The ACL whose entries are stored as these words.
    ///
    /// # Errors
    ///
    /// `EIO` when these words are no ACL.
    pub(crate) fn from_words(words: impl IntoIterator<Item = u64>) -> Result<Acl> {
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cred::userns::IdExtent;

    /// What is stored of an ACL.
    fn words(acl: &Acl) -> Vec<u64> {
        acl.entries().iter().map(|entry| entry.to_word()).collect()
    }

    /// A deterministic source of test inputs.
    #[derive(Debug)]
    pub(crate) struct XorShift(pub(crate) u64);

    impl XorShift {
        pub(crate) fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
        }

        pub(crate) fn below(&mut self, n: u32) -> u32 {
            (((self.next() >> 32) * u64::from(n)) >> 32) as u32
        }

        pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
            from[self.below(from.len() as u32) as usize]
        }
    }

    /// A random valid ACL over a few ids.
    pub(crate) fn random_acl(rng: &mut XorShift, ids: &[u32]) -> Acl {
        let mut entries = vec![AclEntry::new(ACL_USER_OBJ, rng.below(8) as u16)];
        for _ in 0..rng.below(3) {
            entries.push(AclEntry::user(rng.pick(ids), rng.below(8) as u16));
        }
        entries.push(AclEntry::new(ACL_GROUP_OBJ, rng.below(8) as u16));
        for _ in 0..rng.below(3) {
            entries.push(AclEntry::group(rng.pick(ids), rng.below(8) as u16));
        }
        if entries.len() > 2 || rng.below(2) == 0 {
            entries.push(AclEntry::new(ACL_MASK, rng.below(8) as u16));
        }
        entries.push(AclEntry::new(ACL_OTHER, rng.below(8) as u16));
        UncheckedAcl::new(entries).validate(&UserNamespace::init()).unwrap()
    }

    /// What the ACL grants, by looking at each kind of entry in turn.
    pub(crate) fn model_acl(acl: &[AclEntry], uid: u32, gid: u32, cred: &Cred, want: u32) -> bool {
        let all = |tag: u16| acl.iter().filter(move |e| e.tag == tag);
        let want = want as u16 & 7;
        let mask = all(ACL_MASK).next().map_or(7, |e| e.perm);
        let grants = |perm: u16| perm & want == want;
        if cred.fsuid() == uid {
            return grants(all(ACL_USER_OBJ).next().unwrap().perm);
        }
        if let Some(named) = all(ACL_USER).find(|e| e.id == cred.fsuid()) {
            return grants(named.perm & mask);
        }
        let own_group = all(ACL_GROUP_OBJ).filter(|_| cred.in_group(gid));
        let mine: Vec<_> = own_group.chain(all(ACL_GROUP).filter(|e| cred.in_group(e.id))).collect();
        match mine.is_empty() {
            true => grants(all(ACL_OTHER).next().unwrap().perm),
            false => mine.iter().any(|e| grants(e.perm)) && grants(mask),
        }
    }

    #[test]
    fn permission_agrees_with_the_model() {
        let mut rng = XorShift(1);
        let ids = [0, 1000, 1001, 50, 60];
        for _ in 0..200_000 {
            let acl = random_acl(&mut rng, &ids);
            let groups: Vec<u32> = (0..rng.below(3)).map(|_| rng.pick(&ids)).collect();
            let cred = Cred::user(rng.pick(&ids), rng.pick(&ids), &groups);
            let (uid, gid, want) = (rng.pick(&ids), rng.pick(&[0, 50, 60, INVALID_ID]), rng.below(16));
            let got = posix_acl_permission(acl.entries().iter().copied(), uid, gid, &cred, want);
            let model = model_acl(acl.entries(), uid, gid, &cred, want);
            assert_eq!(got, if model { Ok(()) } else { Err(Errno::EACCES) }, "{acl:?} {cred:?}");
        }
    }

    #[test]
    fn any_words_get_an_answer() {
        let mut rng = XorShift(2);
        let mut seen = [0; 3];
        for _ in 0..200_000 {
            // Half of the words have a proper tag, so that a walk through them gets somewhere.
            let words = (0..rng.below(6)).map(|_| {
                let word = rng.next();
                if rng.below(4) == 0 { word } else { word & 0xffff_ffff_ffff | 1 << (48 + rng.below(6)) }
            });
            let words: Vec<u64> = words.collect();
            let cred = Cred::user(rng.below(2), rng.below(2), &[]);
            let entries = words.iter().map(|&word| AclEntry::from_word(word));
            match posix_acl_permission(entries, rng.below(3), rng.below(3), &cred, rng.below(8)) {
                Ok(()) => seen[0] += 1,
                Err(Errno::EACCES) => seen[1] += 1,
                Err(errno) => {
                    assert_eq!(errno, Errno::EIO);
                    seen[2] += 1;
                }
            }
            if let Ok(acl) = Acl::from_words(words.iter().copied()) {
                assert_eq!(self::words(&acl), words, "only those of an ACL");
            }
        }
        assert!(seen.iter().all(|&n| n > 1000), "{seen:?}");
    }

    #[test]
    fn words_keep_every_entry() {
        let mut rng = XorShift(3);
        for _ in 0..1000 {
            let word = rng.next();
            assert_eq!(AclEntry::from_word(word).to_word(), word);
            let acl = random_acl(&mut rng, &[1, 2, 3]);
            assert_eq!(Acl::from_words(words(&acl)).unwrap(), acl);
        }
        assert_eq!(Acl::from_words([]), Err(Errno::EIO));
        assert_eq!(Acl::from_words([AclEntry::new(ACL_OTHER, 7).to_word()]), Err(Errno::EIO));
    }

    fn identity(id: u32) -> u32 {
        id
    }

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = 2u32.to_le_bytes().to_vec();
        for &(tag, perm, id) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(perm.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    #[test]
    fn attribute_values_are_parsed_in_the_kernels_order() {
        let parse = |value: &[u8]| posix_acl_from_xattr(value, identity, identity);
        let base = [(1, 6, 0), (4, 4, 0), (32, 0, 0)];
        assert_eq!(parse(&[]), Ok(None));
        assert_eq!(parse(&[2, 0, 0]), Err(Errno::EINVAL), "short header");
        assert_eq!(parse(&[2, 0, 0, 0]), Ok(None), "no entries");
        assert_eq!(parse(&[1, 0, 0, 0]), Err(Errno::EOPNOTSUPP), "version");
        assert_eq!(parse(&[3, 0, 0, 0, 9]), Err(Errno::EOPNOTSUPP), "version before length");
        assert_eq!(parse(&[2, 0, 0, 0, 9]), Err(Errno::EINVAL), "half an entry");
        assert_eq!(parse(&value(&[(3, 0, 0)])), Err(Errno::EINVAL), "tag");
        assert_eq!(parse(&value(&[(0, 0, 0)])), Err(Errno::EINVAL), "tag");
        assert_eq!(parse(&value(&[(2, 0, INVALID_ID)])), Err(Errno::EINVAL), "id");
        let parsed = parse(&value(&base)).unwrap().unwrap();
        assert!(
            parsed.entries().iter().all(|entry| entry.id == INVALID_ID),
            "ids of unnamed entries are ignored"
        );
        let wild = parse(&value(&[(1, 0xffff, 0)])).unwrap().unwrap();
        assert_eq!(wild.validate(&UserNamespace::init()), Err(Errno::EINVAL), "bits are checked later");
        assert!(parse(&value(&[(1, 0, 0); MAX_ENTRIES])).is_ok(), "as long as an attribute can be");
        let huge = value(&[(1, 0, 0); MAX_ENTRIES + 1]);
        assert_eq!(parse(&huge), Err(Errno::EINVAL), "longer than an attribute can be");
    }

    #[test]
    fn hostile_attribute_values_never_panic() {
        let mut rng = XorShift(4);
        let init = UserNamespace::init();
        let mut valid = 0;
        for _ in 0..100_000 {
            let mut bytes = random_acl(&mut rng, &[1, 2, 3]).to_xattr(identity, identity);
            for _ in 0..rng.below(3) {
                let at = rng.below(bytes.len() as u32) as usize;
                bytes[at] = rng.pick(&[0, 1, 2, 4, 8, 16, 32, 255]);
            }
            bytes.truncate(if rng.below(4) == 0 { rng.below(40) as usize } else { usize::MAX });
            let parsed = posix_acl_from_xattr(&bytes, identity, identity);
            if let Ok(Some(Ok(acl))) = parsed.map(|acl| acl.map(|acl| acl.validate(&init))) {
                valid += 1;
                let again = acl.to_xattr(identity, identity);
                assert_eq!(again.len(), bytes.len());
                let (mode, extended) = acl.equiv_mode();
                assert!(mode <= 0o777 && extended == (acl.entries().len() > 3));
            }
        }
        assert!(valid > 10_000, "{valid}");
    }

    #[test]
    fn only_ordered_lists_are_valid() {
        let init = UserNamespace::init();
        let valid = |tags: &[u16]| {
            let entries = tags.iter().map(|&tag| AclEntry { tag, perm: 7, id: 5 });
            UncheckedAcl::new(entries).validate(&init).is_ok()
        };
        let (u, nu, g, ng, m, o) = (ACL_USER_OBJ, ACL_USER, ACL_GROUP_OBJ, ACL_GROUP, ACL_MASK, ACL_OTHER);
        // Every list of up to six tags, against the sentence in the specification.
        let tags = [u, nu, g, ng, m, o, 0, 3];
        let mut lists: Vec<Vec<u16>> = vec![vec![]];
        let mut good = 0;
        while let Some(list) = lists.pop() {
            let text: String =
                list.iter().map(|tag| tags.iter().position(|t| t == tag).unwrap().to_string()).collect();
            let named = list.contains(&nu) || list.contains(&ng);
            let mut rest = text
                .strip_prefix('0')
                .unwrap_or("x")
                .trim_start_matches('1')
                .strip_prefix('2')
                .unwrap_or("x");
            rest = rest.trim_start_matches('3');
            let expected = rest == "45" || (rest == "5" && !named);
            assert_eq!(valid(&list), expected, "{text}");
            good += u32::from(expected);
            if list.len() < 6 {
                lists.extend(tags.iter().map(|&tag| [&list[..], &[tag]].concat()));
            }
        }
        assert_eq!(good, 1 + 1 + 2 + 3);
        assert!(valid(&[u, nu, nu, nu, g, ng, ng, m, o]), "duplicates are accepted");
    }

    #[test]
    fn ids_must_be_mapped_in_the_filesystems_namespace() {
        let ns = UserNamespace::new_child(&UserNamespace::init(), 0, 0, true).unwrap();
        ns.set_uid_map(&[IdExtent { first: 0, lower: 1000, count: 1 }]).unwrap();
        let acl = |entry: AclEntry| {
            let rest =
                [AclEntry::new(ACL_GROUP_OBJ, 0), AclEntry::new(ACL_MASK, 0), AclEntry::new(ACL_OTHER, 0)];
            let mut entries = vec![AclEntry::new(ACL_USER_OBJ, 6), entry];
            entries.extend(rest);
            entries[1..3].sort_by_key(|entry| entry.tag);
            UncheckedAcl::new(entries)
        };
        assert!(acl(AclEntry::user(1000, 4)).validate(&ns).is_ok());
        assert_eq!(acl(AclEntry::user(0, 4)).validate(&ns), Err(Errno::EINVAL));
        assert_eq!(acl(AclEntry::group(1000, 4)).validate(&ns), Err(Errno::EINVAL), "no group is mapped");
        assert_eq!(
            acl(AclEntry::user(INVALID_ID, 4)).validate(&UserNamespace::init()),
            Err(Errno::EINVAL),
            "i07"
        );
        // i07: stored underneath what the mount shows above
        let mut shown = acl(AclEntry::user(10_003, 4));
        shown.map_ids(|uid| uid - 10_000, identity);
        assert_eq!(shown.entries()[1], AclEntry::user(3, 4));
        let back = shown.validate(&UserNamespace::init()).unwrap().to_xattr(|uid| uid + 10_000, identity);
        assert_eq!(back[12..20], [2, 0, 4, 0, 0x13, 0x27, 0, 0]);
    }

    /// a06: chmod of an extended ACL changes the mask, not the owning group.
    #[test]
    fn chmod_sets_the_mask_if_there_is_one() {
        let init = UserNamespace::init();
        let entries = [
            AclEntry::new(ACL_USER_OBJ, 7),
            AclEntry::user(1000, 7),
            AclEntry::new(ACL_GROUP_OBJ, 4),
            AclEntry::new(ACL_MASK, 7),
            AclEntry::new(ACL_OTHER, 0),
        ];
        let mut acl = UncheckedAcl::new(entries).validate(&init).unwrap();
        assert_eq!(acl.equiv_mode(), (0o770, true));
        acl.chmod_masq(0o107_651);
        assert_eq!(acl.entries().iter().map(|entry| entry.perm).collect::<Vec<_>>(), [6, 7, 4, 5, 1]);
        let plain =
            [AclEntry::new(ACL_USER_OBJ, 7), AclEntry::new(ACL_GROUP_OBJ, 4), AclEntry::new(ACL_OTHER, 0)];
        let mut acl = UncheckedAcl::new(plain).validate(&init).unwrap();
        acl.chmod_masq(0o651);
        assert_eq!(acl.equiv_mode(), (0o651, false));
    }

    #[test]
    fn inheritance_narrows_both_the_acl_and_the_mode() {
        let mut rng = XorShift(5);
        for _ in 0..50_000 {
            let default = random_acl(&mut rng, &[1, 2, 3]);
            let requested = 0o100_000 | rng.below(0o10_000);
            let mut access = default.clone();
            let (mode, extended) = access.create_masq(requested);
            assert_eq!(mode & !0o777, requested & !0o777);
            assert_eq!(mode & 0o777, requested & default.equiv_mode().0, "a09, a10: the umask has no say");
            assert_eq!(
                extended,
                default.entries().iter().any(|e| e.tag & (ACL_USER | ACL_GROUP | ACL_MASK) != 0)
            );
            assert_eq!(access.equiv_mode().0, mode & 0o777, "the two agree");
            let has_mask = default.entries().iter().any(|e| e.tag == ACL_MASK);
            for (old, new) in default.entries().iter().zip(access.entries()) {
                let untouched = match old.tag {
                    ACL_USER | ACL_GROUP => true,
                    ACL_GROUP_OBJ => has_mask,
                    _ => false,
                };
                assert_eq!((old.tag, old.id), (new.tag, new.id));
                assert!(if untouched { new.perm == old.perm } else { new.perm & !old.perm == 0 });
            }
        }
    }
}
