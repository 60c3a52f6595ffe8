//! Capabilities: their names, and sets of them.

use crate::base::uapi::{
    CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID, CAP_LAST_CAP,
    CAP_LINUX_IMMUTABLE, CAP_MAC_OVERRIDE, CAP_MKNOD,
};
use std::ops::{BitAnd, BitOr, Sub};

/// The names of the capabilities, by number.
///
/// ```
/// use rcuwalk::{cred::CAP_NAMES, uapi::CAP_FOWNER};
/// assert_eq!(CAP_NAMES[CAP_FOWNER as usize], "CAP_FOWNER");
/// ```
pub const CAP_NAMES: [&str; CAP_LAST_CAP as usize + 1] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// The number of the capability with this name, written with or without `CAP_`, in either case.
///
/// ```
/// use rcuwalk::{cred::cap_from_name, uapi::CAP_FOWNER};
/// assert_eq!(cap_from_name("CAP_FOWNER"), Some(CAP_FOWNER));
/// assert_eq!(cap_from_name("fowner"), Some(CAP_FOWNER));
/// assert_eq!(cap_from_name("flying"), None);
/// ```
pub fn cap_from_name(name: &str) -> Option<u32> {
    let known = |cap: &str| cap.eq_ignore_ascii_case(name) || cap["CAP_".len()..].eq_ignore_ascii_case(name);
    (0..).zip(CAP_NAMES).find(|(_, cap)| known(cap)).map(|(number, _)| number)
}

/// A set of capabilities; bit `n` is capability number `n`.
///
/// ```
/// use rcuwalk::cred::CapSet;
/// use rcuwalk::uapi::{CAP_CHOWN, CAP_FOWNER};
///
/// let set = CapSet::of(&[CAP_CHOWN, CAP_FOWNER]);
/// assert!(set.contains(CAP_FOWNER) && set.is_subset(CapSet::FULL));
/// assert_eq!(set - CapSet::of(&[CAP_CHOWN]), CapSet::of(&[CAP_FOWNER]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CapSet(pub u64);

impl CapSet {
    /// No capability.
    pub const EMPTY: CapSet = CapSet(0);
    /// Every capability that exists.
    pub const FULL: CapSet = CapSet((1 << (CAP_LAST_CAP + 1)) - 1);
    /// The capabilities that follow the filesystem user id (the kernel's `CAP_FS_SET`).
    pub const FS: CapSet = CapSet::of(&[
        CAP_CHOWN,
        CAP_DAC_OVERRIDE,
        CAP_DAC_READ_SEARCH,
        CAP_FOWNER,
        CAP_FSETID,
        CAP_LINUX_IMMUTABLE,
        CAP_MKNOD,
        CAP_MAC_OVERRIDE,
    ]);

    /// The set of these capabilities (`CAP_*`).
    ///
    /// # Panics
    ///
    /// When a number is above `CAP_LAST_CAP`.
    pub const fn of(caps: &[u32]) -> CapSet {
        let (mut bits, mut i) = (0, 0);
        while i < caps.len() {
            assert!(caps[i] <= CAP_LAST_CAP, "no such capability");
            bits |= 1 << caps[i];
            i += 1;
        }
        CapSet(bits)
    }

    /// Is this capability (`CAP_*`) in the set?
    #[inline]
    pub const fn contains(self, cap: u32) -> bool {
        cap <= CAP_LAST_CAP && self.0 >> cap & 1 != 0
    }

    /// Is the set empty?
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Is each member of this set in `other`?
    #[inline]
    pub const fn is_subset(self, other: CapSet) -> bool {
        self.0 & !other.0 == 0
    }
}

impl BitAnd for CapSet {
    type Output = CapSet;
    fn bitand(self, other: CapSet) -> CapSet {
        CapSet(self.0 & other.0)
    }
}

impl BitOr for CapSet {
    type Output = CapSet;
    fn bitor(self, other: CapSet) -> CapSet {
        CapSet(self.0 | other.0)
    }
}

impl Sub for CapSet {
    type Output = CapSet;
    fn sub(self, other: CapSet) -> CapSet {
        CapSet(self.0 & !other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_have_two_names_in_either_case() {
        for (number, name) in (0..).zip(CAP_NAMES) {
            for name in [name.to_owned(), name.to_lowercase(), name.replace("CAP_", "")] {
                assert_eq!(cap_from_name(&name), Some(number), "{name}");
            }
        }
        assert_eq!(["", "CAP_", "CAP_CAP_CHOWN", "CHOW"].map(cap_from_name), [None; 4]);
    }
}
