//! PAX extended headers: what they say about a member, and which extended attributes it can have.

use rcuwalk::acl::{XATTR_NAME_POSIX_ACL_ACCESS, XATTR_NAME_POSIX_ACL_DEFAULT};
use rcuwalk::perm::{IFLAG_APPEND, IFLAG_IMMUTABLE, IFLAG_NOATIME};
use rcuwalk::uapi::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, S_IRWXUGO, XATTR_NAME_MAX, XATTR_SIZE_MAX};
use rcuwalk::{Errno, Result, Timespec};

use crate::acl::{self, TextError};
use crate::member::Member;

/// What PAX records say about a member.
#[derive(Debug, Default)]
pub(crate) struct Pax {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) uid: Option<u64>,
    pub(crate) gid: Option<u64>,
    pub(crate) dev_major: Option<u64>,
    pub(crate) dev_minor: Option<u64>,
    pub(crate) mtime: Option<Timespec>,
    pub(crate) atime: Option<Timespec>,
    pub(crate) ctime: Option<Timespec>,
    pub(crate) btime: Option<Timespec>,
    pub(crate) iflags: u32,
    pub(crate) sparse: Sparse,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Attribute name and text.
    acls: Vec<(&'static [u8], Vec<u8>)>,
}

/// GNU's sparse files.
#[derive(Debug, Default)]
pub(crate) struct Sparse {
    pub(crate) name: Option<Vec<u8>>,
    /// Present for a sparse file.
    pub(crate) size: Option<u64>,
    /// Offsets and lengths in turn.
    pub(crate) map: Vec<u64>,
    /// The map stands before the data instead.
    pub(crate) map_in_data: bool,
}

impl Pax {
    /// Takes a sequence of records `LENGTH KEY=VALUE\n`; later ones win. `Err` says what is wrong with them.
    pub(crate) fn read(&mut self, mut records: &[u8]) -> std::result::Result<(), &'static str> {
        const BAD: &str = "a PAX record without its length, key and value";
        while records.iter().any(|&b| b != 0) {
            let space = records.iter().take(20).position(|&b| b == b' ').ok_or(BAD)?;
            let length: usize = parse(&records[..space]).ok_or(BAD)?;
            let record = records.get(space + 1..length).and_then(|r| r.strip_suffix(b"\n")).ok_or(BAD)?;
            let equals = record.iter().position(|&b| b == b'=').ok_or(BAD)?;
            self.apply(&record[..equals], &record[equals + 1..]).ok_or("a PAX record with a bad value")?;
            records = &records[length..];
        }
        Ok(())
    }

    /// Takes one record; an empty value takes an earlier one back. `None` for a value that cannot be.
    fn apply(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let text = || (!value.is_empty()).then(|| value.to_vec());
        match key {
            b"path" => self.path = text(),
            b"linkpath" => self.link = text(),
            b"size" => self.size = number_or_none(value)?,
            b"uid" => self.uid = number_or_none(value)?,
            b"gid" => self.gid = number_or_none(value)?,
            b"SCHILY.devmajor" => self.dev_major = number_or_none(value)?,
            b"SCHILY.devminor" => self.dev_minor = number_or_none(value)?,
            b"mtime" => self.mtime = time_or_none(value)?,
            b"atime" => self.atime = time_or_none(value)?,
            b"ctime" => self.ctime = time_or_none(value)?,
            b"LIBARCHIVE.creationtime" => self.btime = time_or_none(value)?,
            b"SCHILY.fflags" => self.iflags = file_flags(value),
            b"SCHILY.acl.access" => self.acls.push((XATTR_NAME_POSIX_ACL_ACCESS, value.to_vec())),
            b"SCHILY.acl.default" => self.acls.push((XATTR_NAME_POSIX_ACL_DEFAULT, value.to_vec())),
            b"GNU.sparse.name" => self.sparse.name = text(),
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => self.sparse.size = number_or_none(value)?,
            b"GNU.sparse.major" => self.sparse.map_in_data = value == b"1",
            b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => self.sparse.map.push(parse(value)?),
            b"GNU.sparse.map" => {
                let numbers = value.split(|&b| b == b',').filter(|n| !n.is_empty());
                self.sparse.map = numbers.map(parse).collect::<Option<_>>()?;
            }
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.set_xattr(name.to_vec(), value.to_vec());
                } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                    self.set_xattr(percent_decode(name), base64_decode(value)?);
                }
            }
        }
        Some(())
    }

    fn set_xattr(&mut self, name: Vec<u8>, value: Vec<u8>) {
        match self.xattrs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.xattrs.push((name, value)),
        }
    }

    /// Gives a member the extended attributes that it can have; the others become flaws. As with setxattr, an access
    /// ACL sets the permission bits, and is kept only if it says more than they do.
    pub(crate) fn attach_xattrs(mut self, member: &mut Member) {
        for (name, text) in std::mem::take(&mut self.acls) {
            // The text counts only where the attribute itself is missing.
            if !self.xattrs.iter().any(|(known, _)| known == name) {
                match acl::from_text(&text, &|_, _| None) {
                    Ok(acl) => self.xattrs.push((name.to_vec(), acl::to_xattr(&acl))),
                    Err(TextError::UnknownName) => member.named_acls.push((name, text)),
                    Err(TextError::Malformed) => member.flaws.push(("ACL as text", Errno::EINVAL)),
                }
            }
        }
        for (name, value) in self.xattrs {
            match check_xattr(&name, &value, member.mode) {
                Ok((permissions, kept)) => {
                    member.mode = member.mode & !S_IRWXUGO | permissions;
                    if kept {
                        member.xattrs.push((name, value));
                    }
                }
                Err(errno) => member.flaws.push(("extended attribute", errno)),
            }
        }
    }
}

/// Whether an inode of this mode can have the attribute, which permissions it has then, and whether the attribute is
/// kept. The errors are those of setxattr.
fn check_xattr(name: &[u8], value: &[u8], mode: u32) -> Result<(u32, bool)> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX || name.contains(&0) {
        return Err(Errno::ERANGE);
    }
    if value.len() > XATTR_SIZE_MAX {
        return Err(Errno::E2BIG);
    }
    let unchanged = mode & S_IRWXUGO;
    let in_namespace = |spaces: &[&[u8]]| spaces.iter().any(|&space| name.starts_with(space));
    match (name, mode & S_IFMT) {
        (XATTR_NAME_POSIX_ACL_ACCESS | XATTR_NAME_POSIX_ACL_DEFAULT, S_IFLNK) => Err(Errno::EOPNOTSUPP),
        (XATTR_NAME_POSIX_ACL_ACCESS, _) => {
            Ok(acl::from_xattr(value)?.map_or((unchanged, false), |acl| acl.equiv_mode()))
        }
        (XATTR_NAME_POSIX_ACL_DEFAULT, S_IFDIR) => Ok((unchanged, acl::from_xattr(value)?.is_some())),
        (XATTR_NAME_POSIX_ACL_DEFAULT, _) => Err(Errno::EACCES),
        (_, S_IFREG | S_IFDIR) if in_namespace(&[b"user."]) => Ok((unchanged, true)),
        _ if in_namespace(&[b"user."]) => Err(Errno::EPERM),
        _ if in_namespace(&[b"trusted.", b"security."]) => Ok((unchanged, true)),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// A number of digits only.
fn parse<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    // `str::parse` would take a sign.
    let digits = digits.iter().all(u8::is_ascii_digit).then_some(digits)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The outer `None` is an error.
fn number_or_none(value: &[u8]) -> Option<Option<u64>> {
    if value.is_empty() { Some(None) } else { parse(value).map(Some) }
}

/// Seconds with a fraction, perhaps negative. The outer `None` is an error.
fn time_or_none(value: &[u8]) -> Option<Option<Timespec>> {
    if value.is_empty() {
        return Some(None);
    }
    let (negative, value) = value.strip_prefix(b"-").map_or((false, value), |rest| (true, rest));
    let point = value.iter().position(|&b| b == b'.').unwrap_or(value.len());
    let sec: i64 = parse(&value[..point])?;
    let fraction = value.get(point + 1..).unwrap_or_default();
    let mut nsec = 0;
    for place in 0..9 {
        nsec = nsec * 10 + fraction.get(place).map_or(Some(0), |&b| char::from(b).to_digit(10))?;
    }
    Some(Some(match (negative, nsec) {
        (false, nsec) => Timespec { sec, nsec },
        (true, 0) => Timespec { sec: -sec, nsec: 0 },
        (true, nsec) => Timespec { sec: -sec - 1, nsec: 1_000_000_000 - nsec },
    }))
}

/// File flags by their names in BSD and in libarchive.
fn file_flags(names: &[u8]) -> u32 {
    names.split(|&b| b == b',').fold(0, |flags, name| {
        flags
            | match name {
                b"immutable" | b"schg" | b"schange" | b"simmutable" => IFLAG_IMMUTABLE,
                b"append" | b"sappnd" | b"sappend" => IFLAG_APPEND,
                b"noatime" => IFLAG_NOATIME,
                _ => 0,
            }
    })
}

/// Takes `%41` for `A`; anything else stands for itself.
fn percent_decode(text: &[u8]) -> Vec<u8> {
    let digit = |at: usize| text.get(at).and_then(|&b| char::from(b).to_digit(16));
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&b) = text.get(at) {
        if let (b'%', Some(high), Some(low)) = (b, digit(at + 1), digit(at + 2)) {
            decoded.push((high * 16 + low) as u8);
            at += 3;
        } else {
            decoded.push(b);
            at += 1;
        }
    }
    decoded
}

/// Base 64 with or without the padding; `None` for anything else.
fn base64_decode(text: &[u8]) -> Option<Vec<u8>> {
    let padding = text.iter().rev().take(2).take_while(|&&b| b == b'=').count();
    let mut decoded = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0u32, 0);
    for &b in &text[..text.len() - padding] {
        let value = match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            decoded.push((bits >> held) as u8);
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Option<Timespec> {
        time_or_none(text.as_bytes()).expect("is a time")
    }

    #[test]
    fn times_are_read_to_the_nanosecond() {
        assert_eq!(time("1.5"), Some(Timespec { sec: 1, nsec: 500_000_000 }));
        assert_eq!(time("1700000000.1234567899"), Some(Timespec { sec: 1_700_000_000, nsec: 123_456_789 }));
        assert_eq!(time("-0.25"), Some(Timespec { sec: -1, nsec: 750_000_000 }));
        assert_eq!(time("-7"), Some(Timespec { sec: -7, nsec: 0 }));
        assert_eq!(time(""), None);
        assert_eq!(time_or_none(b"1.x"), None);
        assert_eq!(time_or_none(b"--1"), None);
        assert_eq!(time_or_none(b"99999999999999999999"), None);
    }

    #[test]
    fn records_are_split_by_length_not_by_newline() {
        let mut pax = Pax::default();
        pax.read(b"30 SCHILY.xattr.user.k=a\nb=\0c\n11 path=pq\n\0\0").unwrap();
        assert_eq!(pax.xattrs, [(b"user.k".to_vec(), b"a\nb=\0c".to_vec())]);
        assert_eq!(pax.path, Some(b"pq".to_vec()));
        pax.read(b"8 path=\n").unwrap();
        assert_eq!(pax.path, None, "an empty value takes the record back");
    }

    #[test]
    fn bad_records_are_errors() {
        for records in [
            &b"x"[..],
            b"0 a=b\n",
            b"3 a=b\n",
            b"99 a=b\n",
            b"6 a=b\n7 abcd\n",
            b"7 a=b\n\n8",
            b"18446744073709551616 a=b\n",
            b"11 size=-1\n",
            b"11 mtime=x\n",
        ] {
            assert!(Pax::default().read(records).is_err(), "{}", records.escape_ascii());
        }
    }

    #[test]
    fn libarchive_encodes_names_and_values() {
        let mut pax = Pax::default();
        pax.read(b"39 LIBARCHIVE.xattr.user.a%3Db=AQIDBA\n").unwrap_err();
        pax.read(b"38 LIBARCHIVE.xattr.user.a%3Db=AQIDBA\n").unwrap();
        assert_eq!(pax.xattrs, [(b"user.a=b".to_vec(), vec![1, 2, 3, 4])]);
        assert_eq!(base64_decode(b"AQ=="), Some(vec![1]));
        assert_eq!(base64_decode(b"A Q"), None);
        assert_eq!(percent_decode(b"%4"), b"%4");
    }

    #[test]
    fn attributes_are_those_that_setxattr_would_take() {
        let minimal =
            acl::to_xattr(&acl::from_text(b"user::rw-,group::r-x,other::--x", &|_, _| None).unwrap());
        let extended =
            acl::to_xattr(&acl::from_text(b"u::rwx,u:5:rw-,g::r--,m::rw-,o::---", &|_, _| None).unwrap());
        let access = XATTR_NAME_POSIX_ACL_ACCESS;
        let default = XATTR_NAME_POSIX_ACL_DEFAULT;
        assert_eq!(check_xattr(access, &minimal, S_IFREG | 0o644), Ok((0o651, false)));
        assert_eq!(check_xattr(access, &extended, S_IFREG | 0o644), Ok((0o760, true)));
        assert_eq!(check_xattr(access, &[2, 0, 0, 0], S_IFREG | 0o644), Ok((0o644, false)));
        assert_eq!(check_xattr(access, b"junk", S_IFREG), Err(Errno::EOPNOTSUPP));
        assert_eq!(check_xattr(access, &[2, 0, 0, 0, 1], S_IFREG), Err(Errno::EINVAL));
        assert_eq!(check_xattr(access, &minimal, S_IFLNK), Err(Errno::EOPNOTSUPP));
        assert_eq!(check_xattr(default, &minimal, S_IFREG), Err(Errno::EACCES));
        assert_eq!(check_xattr(default, &minimal, S_IFDIR | 0o700), Ok((0o700, true)));
        assert_eq!(check_xattr(b"user.x", b"", S_IFLNK), Err(Errno::EPERM));
        assert_eq!(check_xattr(b"mine", b"", S_IFREG), Err(Errno::EOPNOTSUPP));
        assert_eq!(check_xattr(b"user.x", &[0; XATTR_SIZE_MAX + 1], S_IFREG), Err(Errno::E2BIG));
        assert_eq!(check_xattr(&[b'x'; 256], b"", S_IFREG), Err(Errno::ERANGE));
    }
}
