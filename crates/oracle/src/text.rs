//! Text forms of values that the kernel takes as bytes: times, hexadecimal, ACLs, file capabilities.

use crate::args::Arg;
use crate::read::{Node, Read};
use crate::words::CapSet;

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Bytes from hexadecimal; blanks are ignored.
///
/// # Errors
///
/// What is wrong with the text.
pub fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    if !digits.len().is_multiple_of(2) {
        return Err("an odd number of hexadecimal digits".to_owned());
    }
    digits
        .chunks(2)
        .map(|pair| {
            let text = std::str::from_utf8(pair).map_err(|_| "not hexadecimal".to_owned())?;
            u8::from_str_radix(text, 16).map_err(|_| format!("`{text}` is not hexadecimal"))
        })
        .collect()
}

/// `SECONDS[.NANOSECONDS]`; up to nine digits are a decimal fraction, more are a raw count of nanoseconds.
pub fn time(text: &str) -> Option<(i64, i64)> {
    let Some((sec, fraction)) = text.split_once('.') else { return Some((text.parse().ok()?, 0)) };
    if fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let padded = format!("{fraction:0<9}");
    Some((sec.parse().ok()?, padded.parse().ok()?))
}

/// The inverse of [`time`].
pub fn print_time(sec: i64, nsec: i64) -> String {
    if nsec == 0 { sec.to_string() } else { format!("{sec}.{nsec:09}") }
}

const ACL_VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;

/// Tags of ACL entries: letter, whether it has an id, tag without id, tag with id.
const TAGS: [(&str, u16, Option<u16>); 4] =
    [("u", 0x01, Some(0x02)), ("g", 0x04, Some(0x08)), ("m", 0x10, None), ("o", 0x20, None)];

/// The xattr value of an ACL written `u::rw-,u:1000:r--,g::r--,m::rw-,o::---`, entries in the order given.
///
/// # Errors
///
/// What is wrong with the text.
pub fn acl_to_xattr(text: &str) -> Result<Vec<u8>, String> {
    let mut out = ACL_VERSION.to_le_bytes().to_vec();
    for entry in text.split(',').map(str::trim).filter(|e| !e.is_empty()) {
        let (tag, perm, id) = acl_entry(entry).ok_or_else(|| {
            format!("ACL entry `{entry}`: expected u|g|m|o : id or nothing : rwx, such as u:1000:r--")
        })?;
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&perm.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    Ok(out)
}

fn acl_entry(entry: &str) -> Option<(u16, u16, u32)> {
    let mut parts = entry.split(':');
    let (letter, id, perms) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let (_, plain, named) = TAGS.iter().find(|(l, _, _)| *l == letter)?;
    let (tag, id) = if id.is_empty() { (*plain, NO_ID) } else { ((*named)?, id.parse().ok()?) };
    Some((tag, rwx(perms)?, id))
}

fn rwx(text: &str) -> Option<u16> {
    let b = text.as_bytes();
    if b.len() != 3 {
        return None;
    }
    let mut perm = 0;
    for (i, (letter, bit)) in [(b'r', 4), (b'w', 2), (b'x', 1)].into_iter().enumerate() {
        match b[i] {
            c if c == letter => perm |= bit,
            b'-' => {}
            _ => return None,
        }
    }
    Some(perm)
}

/// The text of an ACL xattr value; `None` for bytes that are no well-formed ACL.
pub fn acl_from_xattr(bytes: &[u8]) -> Option<String> {
    let (version, entries) = bytes.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != ACL_VERSION || entries.is_empty() || entries.len() % 8 != 0 {
        return None;
    }
    let mut out = Vec::new();
    for e in entries.chunks(8) {
        let tag = u16::from_le_bytes([e[0], e[1]]);
        let perm = u16::from_le_bytes([e[2], e[3]]);
        let id = u32::from_le_bytes([e[4], e[5], e[6], e[7]]);
        let bit = |b: u16, c: char| if perm & b != 0 { c } else { '-' };
        let perms: String = [bit(4, 'r'), bit(2, 'w'), bit(1, 'x')].into_iter().collect();
        if perm > 7 {
            return None;
        }
        let (letter, plain, _) =
            TAGS.iter().find(|(_, plain, named)| *plain == tag || *named == Some(tag))?;
        if *plain == tag {
            if id != NO_ID {
                return None;
            }
            out.push(format!("{letter}::{perms}"));
        } else {
            out.push(format!("{letter}:{id}:{perms}"));
        }
    }
    Some(out.join(","))
}

/// File capabilities as the `security.capability` xattr holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCaps {
    /// Permitted set.
    pub permitted: CapSet,
    /// Inheritable set.
    pub inheritable: CapSet,
    /// The effective bit.
    pub effective: bool,
    /// The root id of a version 3 value.
    pub rootid: Option<u32>,
}

impl FileCaps {
    /// Reads `{ permitted = "CAP_CHOWN", inheritable = "none", effective = true, rootid = 0 }`.
    ///
    /// # Errors
    ///
    /// What is wrong with the value, and where.
    pub fn read(node: Node<'_>) -> Read<FileCaps> {
        let mut table = node.table("`filecaps`")?;
        let permitted = table.take("permitted").map_or(Ok(CapSet::NONE), CapSet::read)?;
        let inheritable = table.take("inheritable").map_or(Ok(CapSet::NONE), CapSet::read)?;
        let effective = table.take("effective").map_or(Ok(false), |n| n.bool())?;
        let rootid = match table.take("rootid") {
            Some(n) => Some(n.int_in(0, i64::from(u32::MAX))? as u32),
            None => None,
        };
        table.finish()?;
        Ok(FileCaps { permitted, inheritable, effective, rootid })
    }

    /// The xattr value: version 3 if there is a root id, else version 2.
    pub fn to_xattr(self) -> Vec<u8> {
        let version = if self.rootid.is_some() { 0x0300_0000 } else { 0x0200_0000 };
        let mut words = vec![version | u32::from(self.effective)];
        for shift in [0, 32] {
            words.push((self.permitted.0 >> shift) as u32);
            words.push((self.inheritable.0 >> shift) as u32);
        }
        words.extend(self.rootid);
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_survives_a_round_trip() {
        let text = "u::rw-,u:1000:r--,g::r--,g:5:-w-,m::rw-,o::--x";
        let bytes = acl_to_xattr(text).expect("well-formed");
        assert_eq!(bytes.len(), 4 + 6 * 8);
        assert_eq!(acl_from_xattr(&bytes).as_deref(), Some(text));
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in ["u:x:r--", "u::rwxx", "m:5:rwx", "q::rwx", "u:1:2:rwx"] {
            assert!(acl_to_xattr(text).is_err(), "{text}");
        }
        assert!(unhex("abc").is_err());
        assert!(unhex("zz").is_err());
    }

    #[test]
    fn times_keep_their_nanoseconds() {
        assert_eq!(time("12.5"), Some((12, 500_000_000)));
        assert_eq!(time("12.000000005"), Some((12, 5)));
        assert_eq!(time("-3"), Some((-3, 0)));
        assert_eq!(time("1.1000000000"), Some((1, 1_000_000_000)));
        assert_eq!(time("now"), None);
    }

    #[test]
    fn file_capabilities_have_the_size_of_their_version() {
        let caps = FileCaps { permitted: CapSet(1), inheritable: CapSet(0), effective: true, rootid: None };
        assert_eq!(caps.to_xattr().len(), 20);
        assert_eq!(FileCaps { rootid: Some(0), ..caps }.to_xattr().len(), 24);
    }
}
