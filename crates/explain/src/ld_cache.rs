//! `/etc/ld.so.cache`, which ldconfig(8) makes: where libraries are, by name.
//!
//! A header, entries of a fixed size with offsets of strings, and the strings. An older form may stand before it. Everything is
//! little-endian. The file is root's, but the root may be that of a container: what makes no sense is an error.

/// Where the newer form begins; the version is part of it.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const OLD_HEADER: usize = 16;
const OLD_ENTRY: usize = 12;
const HEADER: usize = 48;
const ENTRY: usize = 24;

/// Kinds of libraries that a program of this machine loads: those of glibc for x86-64, and those of no kind.
const KINDS: [u32; 2] = [0x0303, 1];

/// The most entries for a name that are looked at: one for each directory, and each kind of processor.
const MOST_FOUND: usize = 64;

/// An entry for a program of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cached<'a> {
    pub(crate) path: &'a [u8],
    /// It counts only where the processor has something.
    pub(crate) special: bool,
}

/// The entries for `name`, the preferred ones first; nothing if the bytes make no sense.
pub(crate) fn lookup<'a>(bytes: &'a [u8], name: &[u8]) -> Option<Vec<Cached<'a>>> {
    let bytes = match bytes.starts_with(OLD_MAGIC) {
        true => {
            let size = (number::<4>(bytes, 12)? as usize).checked_mul(OLD_ENTRY)?.checked_add(OLD_HEADER)?;
            bytes.get(size.checked_next_multiple_of(8)?..)?
        }
        false => bytes,
    };
    if !bytes.starts_with(MAGIC) {
        return None;
    }
    let count = number::<4>(bytes, MAGIC.len())? as usize;
    let entries = bytes.get(HEADER..HEADER.checked_add(count.checked_mul(ENTRY)?)?)?;
    let mut found = Vec::new();
    for entry in entries.chunks_exact(ENTRY) {
        let (kind, key, value) = (number::<4>(entry, 0)?, number::<4>(entry, 4)?, number::<4>(entry, 8)?);
        let named =
            bytes.get(key as usize..)?.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0));
        if named && KINDS.contains(&(kind as u32)) && found.len() < MOST_FOUND {
            let path = string(bytes, value as usize)?;
            found.push(Cached { path, special: number::<8>(entry, 16)? != 0 });
        }
    }
    Some(found)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(N)?)?;
    Some(bytes.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)))
}

fn string(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let rest = bytes.get(at..)?;
    Some(&rest[..rest.iter().position(|&byte| byte == 0)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> Option<Vec<u8>> {
        std::fs::read("/etc/ld.so.cache").ok()
    }

    #[test]
    fn entries_are_those_that_ldconfig_shows() {
        let (Some(bytes), Ok(shown)) = (cache(), std::process::Command::new("ldconfig").arg("-p").output())
        else {
            return println!("skipped: there is no cache, or no ldconfig");
        };
        let shown = String::from_utf8(shown.stdout).unwrap();
        let mut seen = 0;
        for line in shown.lines().filter(|line| line.contains("(libc6,x86-64")) {
            let (name, path) = (line.trim().split_once(' ').unwrap().0, line.rsplit_once(" => ").unwrap().1);
            let found = lookup(&bytes, name.as_bytes()).unwrap();
            assert!(found.iter().any(|it| it.path == path.as_bytes()), "{line}: {found:?}");
            seen += 1;
        }
        assert!(seen > 5, "{shown}");
        assert_eq!(lookup(&bytes, b"libno-such.so.7"), Some(Vec::new()));
    }

    #[test]
    fn what_makes_no_sense_is_no_cache() {
        assert_eq!(lookup(b"", b"x"), None);
        assert_eq!(lookup(b"glibc-ld.so.cache1.1\xff\xff\xff\xff", b"x"), None);
        assert_eq!(lookup(b"ld.so-1.7.0\0\xff\xff\xff\xff", b"x"), None);
        let Some(bytes) = cache() else { return };
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..300 {
            let mut damaged = bytes.clone();
            damaged.truncate(rng.usize(..=bytes.len()));
            for _ in 0..rng.usize(..64) {
                if !damaged.is_empty() {
                    let at = rng.usize(..damaged.len());
                    damaged[at] = rng.u8(..);
                }
            }
            // Whatever it says, what it names lies in it.
            for found in lookup(&damaged, b"libc.so.6").into_iter().flatten() {
                assert!(found.path.len() < damaged.len());
            }
        }
    }
}
