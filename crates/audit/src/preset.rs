//! Identities that are asked about again and again.

use rcuwalk_host::Identity;

/// An id that no file of an ordinary tree belongs to: beyond what login.defs(5), systemd and container engines give out.
const NOBODYS_ID: u32 = 4_294_836_223;

/// A container started under an arbitrary user id: user of nothing, group 0, no capability. Platforms that give each project user ids
/// of its own run every image so, unless told otherwise.
pub fn any_uid() -> Identity {
    labelled("any-uid", 0)
}

/// A user that is neither owner nor group of anything. Every user may do what this identity may, unless named by owner, group or
/// ACL.
pub fn world() -> Identity {
    labelled("world", NOBODYS_ID)
}

fn labelled(label: &str, gid: u32) -> Identity {
    Identity { label: label.to_owned(), ..Identity::new(NOBODYS_ID, gid, &[]) }
}
