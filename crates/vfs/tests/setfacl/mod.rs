//! ACLs, set and removed as setfacl(1) does.

#![allow(dead_code, reason = "no test uses all of it")]

use rcuwalk::{Result, Task};

const ACCESS: &[u8] = b"system.posix_acl_access";

/// Tags of an ACL in an attribute.
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const MASK: u16 = 16;
const OTHER: u16 = 32;

/// Keeps `uid` out, and nobody else: `u::rwx,u:UID:---,g::r-x,m::r-x,o::r-x`. The mode says 0755.
pub(crate) fn keep_out(task: &Task, path: &[u8], uid: u32) -> Result<()> {
    set(task, path, &[(USER_OBJ, 7), (USER, 0), (GROUP_OBJ, 5), (MASK, 5), (OTHER, 5)], uid)
}

/// Lets `uid` in, and nobody else but the owner: `u::rwx,u:UID:r-x,g::---,m::r-x,o::---`. The mode says 0750.
pub(crate) fn let_in(task: &Task, path: &[u8], uid: u32) -> Result<()> {
    set(task, path, &[(USER_OBJ, 7), (USER, 5), (GROUP_OBJ, 0), (MASK, 5), (OTHER, 0)], uid)
}

/// Removes the ACL; `ENODATA` if there is none. The mode stays what the ACL made it.
pub(crate) fn clear(task: &Task, path: &[u8]) -> Result<()> {
    task.removexattr(path, ACCESS)
}

fn set(task: &Task, path: &[u8], entries: &[(u16, u16)], uid: u32) -> Result<()> {
    let mut acl = 2u32.to_le_bytes().to_vec();
    for &(tag, perm) in entries {
        let id = if tag == USER { uid } else { u32::MAX };
        acl.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    task.setxattr(path, ACCESS, &acl, 0)
}
