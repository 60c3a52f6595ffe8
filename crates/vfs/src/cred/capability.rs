//! The names of the capabilities.

use crate::base::uapi::CAP_LAST_CAP;

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
