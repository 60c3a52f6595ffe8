//! ACLs as archives hold them: attribute values from any source, and text.

use rcuwalk::Result;
use rcuwalk::acl::{
    ACL_GROUP, ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER, ACL_USER_OBJ, Acl, AclEntry, UncheckedAcl,
    posix_acl_from_xattr,
};
use rcuwalk::userns::UserNamespace;

/// Checks the value of an ACL attribute; `None` for one without entries.
///
/// `EINVAL` or `EOPNOTSUPP` as setxattr would answer.
pub(crate) fn from_xattr(value: &[u8]) -> Result<Option<Acl>> {
    posix_acl_from_xattr(value, |uid| uid, |gid| gid)?
        .map(|acl| acl.validate(&UserNamespace::init()))
        .transpose()
}

/// The value of the attribute.
pub(crate) fn to_xattr(acl: &Acl) -> Vec<u8> {
    acl.to_xattr(|uid| uid, |gid| gid)
}

/// Why a text is no ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextError {
    /// It makes no sense.
    Malformed,
    /// It names a user or a group of which the number is not known.
    UnknownName,
}

/// What finds the number of a user (`ACL_USER`) or group (`ACL_GROUP`) by its name.
pub(crate) type Numbers<'a> = &'a dyn Fn(u16, &str) -> Option<u32>;

/// Reads the text of an ACL: entries such as `user::rwx`, `user:1000:r-x` or `group:staff:r--:50`, separated by commas
/// or newlines. An id is taken from the fourth field, where star and bsdtar put it, from a name that is a number, or from
/// `numbers`.
pub(crate) fn from_text(text: &[u8], numbers: Numbers<'_>) -> std::result::Result<Acl, TextError> {
    let malformed = |_| TextError::Malformed;
    let text = std::str::from_utf8(text).map_err(|_| TextError::Malformed)?;
    let mut entries = text
        .split([',', '\n'])
        .map(|entry| entry.split('#').next().unwrap_or_default().trim())
        .filter(|entry| !entry.is_empty())
        .map(|entry| entry_from_text(entry, numbers))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    entries.sort_by_key(|entry| (entry.tag, entry.id));
    UncheckedAcl::new(entries).validate(&UserNamespace::init()).map_err(malformed)
}

fn entry_from_text(text: &str, numbers: Numbers<'_>) -> std::result::Result<AclEntry, TextError> {
    let mut fields = text.strip_prefix("default:").unwrap_or(text).split(':').map(str::trim);
    let mut next = || fields.next().unwrap_or_default();
    let (kind, name, perm, id) = (next(), next(), next(), next());
    let (unnamed, named) = match kind {
        "user" | "u" => (ACL_USER_OBJ, Some(ACL_USER)),
        "group" | "g" => (ACL_GROUP_OBJ, Some(ACL_GROUP)),
        "mask" | "m" => (ACL_MASK, None),
        "other" | "o" => (ACL_OTHER, None),
        _ => return Err(TextError::Malformed),
    };
    // "other:r--" is short for "other::r--".
    let perm = if named.is_none() && perm.is_empty() { name } else { perm };
    let perm = perm.bytes().try_fold(0, |perm, b| match b {
        b'r' => Ok(perm | 4),
        b'w' => Ok(perm | 2),
        b'x' => Ok(perm | 1),
        b'-' => Ok(perm),
        _ => Err(TextError::Malformed),
    })?;
    match named {
        Some(tag) if !name.is_empty() => {
            let id = match id {
                "" => name.parse().ok().or_else(|| numbers(tag, name)).ok_or(TextError::UnknownName)?,
                id => id.parse().map_err(|_| TextError::Malformed)?,
            };
            Ok(AclEntry { tag, perm, id })
        }
        _ => Ok(AclEntry::new(unnamed, perm)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(tag: u16, name: &str) -> Option<u32> {
        (tag == ACL_GROUP && name == "staff").then_some(50)
    }

    fn from_text(text: &[u8]) -> std::result::Result<Acl, TextError> {
        super::from_text(text, &numbers)
    }

    #[test]
    fn text_becomes_entries_in_stored_order() {
        let acl =
            from_text(b"user::rw-\nuser:1000:r--\ngroup:staff:r-x,group::r-x,mask::r-x,other::---").unwrap();
        let expected = [
            AclEntry::new(ACL_USER_OBJ, 6),
            AclEntry::user(1000, 4),
            AclEntry::new(ACL_GROUP_OBJ, 5),
            AclEntry::group(50, 5),
            AclEntry::new(ACL_MASK, 5),
            AclEntry::new(ACL_OTHER, 0),
        ];
        assert_eq!(acl.entries(), expected);
        assert_eq!(from_xattr(&to_xattr(&acl)), Ok(Some(acl)));
    }

    #[test]
    fn short_forms_are_read() {
        let acl = from_text(b"default:u::rwx,default:g::r-x,default:other:r--\n").unwrap();
        assert_eq!(acl.equiv_mode(), (0o754, false));
    }

    #[test]
    fn what_is_no_acl_is_refused() {
        for text in [
            &b"user::rw-"[..],
            b"user::rw-,group::r--,other::r--,user:alice:rw-:many,mask::rwx",
            b"user::rw-,group::r--,other::r--,user:1:rw-",
            b"user::rq-,group::r--,other::r--",
            b"king::rw-,group::r--,other::r--",
            b"\xff",
            b"",
        ] {
            assert_eq!(from_text(text), Err(TextError::Malformed), "{}", text.escape_ascii());
        }
        let named = b"user::rw-,group::r--,other::r--,user:staff:rw-,mask::rwx";
        assert_eq!(from_text(named), Err(TextError::UnknownName), "staff is a group");
    }
}
