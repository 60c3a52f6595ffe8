//! What `/proc` says: mounts, credentials, id maps, settings. Functions of text; [`crate::probe`] and
//! [`crate::identity`] read the files.

use std::collections::BTreeMap;

use rcuwalk::MountOptions;
use rcuwalk::cred::CapSet;
use rcuwalk::userns::IdExtent;

use crate::scene::Mount;

/// Reads `mountinfo`: the mounts by number. Lines that make no sense are passed over.
pub(crate) fn mountinfo(text: &[u8]) -> BTreeMap<u64, Mount> {
    text.split(|&b| b == b'\n').filter_map(mountinfo_line).map(|mount| (mount.id, mount)).collect()
}

fn mountinfo_line(line: &[u8]) -> Option<Mount> {
    let words: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
    let dash = words.iter().position(|word| *word == b"-")?;
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let options = text(words.get(5)?);
    let has = |wanted: &str| options.split(',').any(|option| option == wanted);
    let super_options = text(words.get(dash + 3).copied().unwrap_or_default());
    Some(Mount {
        id: text(words.first()?).parse().ok()?,
        options: MountOptions::default()
            .with_read_only(has("ro"))
            .with_noexec(has("noexec"))
            .with_nosuid(has("nosuid"))
            .with_nodev(has("nodev"))
            .with_nosymfollow(has("nosymfollow")),
        sb_read_only: super_options.split(',').any(|option| option == "ro"),
        idmapped: has("idmapped"),
        fstype: text(words.get(dash + 1)?),
        source: String::from_utf8_lossy(&unescape(words.get(dash + 2)?)).into_owned(),
        point: unescape(words.get(4)?),
        super_options,
        unseen: false,
    })
}

/// Undoes the octal escapes of `mountinfo` and `swaps`.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, behind)) = rest.split_first() {
        let octal = behind.get(..3).filter(|d| first == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)));
        match octal {
            Some(digits) => {
                out.push(digits.iter().fold(0_u8, |n, b| n.wrapping_mul(8).wrapping_add(b - b'0')));
                rest = &behind[3..];
            }
            None => {
                out.push(first);
                rest = behind;
            }
        }
    }
    out
}

/// What `status` says of the credential of a process; ids as the reader's user namespace shows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Real, effective, saved, file system.
    pub(crate) uids: [u32; 4],
    pub(crate) gids: [u32; 4],
    pub(crate) groups: Vec<u32>,
    pub(crate) umask: u32,
    pub(crate) inheritable: CapSet,
    pub(crate) permitted: CapSet,
    pub(crate) effective: CapSet,
    pub(crate) bounding: CapSet,
    pub(crate) ambient: CapSet,
    pub(crate) no_new_privs: bool,
    /// A seccomp filter or strict mode is in force.
    pub(crate) seccomp: bool,
}

/// Reads `status`. `None` if the ids are missing.
pub(crate) fn status(text: &str) -> Option<Status> {
    let mut status = Status::default();
    let mut ids = 0;
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        let caps = || u64::from_str_radix(value, 16).ok().map(|bits| CapSet(bits) & CapSet::FULL);
        match key {
            "Uid" => (status.uids, ids) = (four(value)?, ids + 1),
            "Gid" => (status.gids, ids) = (four(value)?, ids + 1),
            "Groups" => status.groups = value.split_whitespace().filter_map(|id| id.parse().ok()).collect(),
            "Umask" => status.umask = u32::from_str_radix(value, 8).ok()?,
            "CapInh" => status.inheritable = caps()?,
            "CapPrm" => status.permitted = caps()?,
            "CapEff" => status.effective = caps()?,
            "CapBnd" => status.bounding = caps()?,
            "CapAmb" => status.ambient = caps()?,
            "NoNewPrivs" => status.no_new_privs = value == "1",
            "Seccomp" => status.seccomp = value != "0",
            _ => {}
        }
    }
    (ids == 2).then_some(status)
}

fn four(value: &str) -> Option<[u32; 4]> {
    let ids: Vec<u32> = value.split_whitespace().map_while(|id| id.parse().ok()).collect();
    ids.try_into().ok()
}

/// Whether `stat` says that a process has a controlling terminal.
pub(crate) fn terminal(text: &str) -> Option<bool> {
    // The command's name may have blanks and parentheses in it.
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().nth(4)?.parse::<i32>().ok()? != 0)
}

/// A handler of `binfmt_misc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Handler {
    pub(crate) interpreter: String,
    /// The end of the name, behind its last dot; or bytes with a mask, from an offset on.
    wants: Wants,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wants {
    Extension(String),
    Magic { offset: usize, magic: Vec<u8>, mask: Option<Vec<u8>> },
}

impl Handler {
    /// Whether it runs a file of this name that begins with these bytes.
    ///
    /// Kernel: fs/binfmt_misc.c `search_binfmt_handler()`.
    pub(crate) fn takes(&self, name: &[u8], window: &[u8]) -> bool {
        match &self.wants {
            Wants::Extension(wanted) => {
                let dot = name.iter().rposition(|&byte| byte == b'.');
                dot.is_some_and(|dot| &name[dot + 1..] == wanted.as_bytes())
            }
            Wants::Magic { offset, magic, mask } => {
                let mask = |at: usize| mask.as_ref().and_then(|mask| mask.get(at)).copied().unwrap_or(0xff);
                // Behind a shorter file come zeros.
                let byte = |at: usize| window.get(at).copied().unwrap_or(0);
                magic.iter().enumerate().all(|(at, wanted)| (byte(offset + at) ^ wanted) & mask(at) == 0)
            }
        }
    }
}

/// Reads an entry of `binfmt_misc`; `None` if it is off, or makes no sense.
pub(crate) fn handler(text: &str) -> Option<Handler> {
    if text.lines().next() != Some("enabled") {
        return None;
    }
    let field = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let bytes = |hex: &str| -> Option<Vec<u8>> {
        let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
        pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
    };
    let wants = match field("extension .") {
        Some(extension) => Wants::Extension(extension.to_owned()),
        None => Wants::Magic {
            offset: field("offset ")?.parse().ok()?,
            magic: bytes(field("magic ")?)?,
            mask: match field("mask ") {
                Some(mask) => Some(bytes(mask)?),
                None => None,
            },
        },
    };
    Some(Handler { interpreter: field("interpreter ")?.to_owned(), wants })
}

/// The paths that `net/unix` says sockets are bound to that accept connections or datagrams.
pub(crate) fn bound_sockets(text: &str) -> impl Iterator<Item = &str> {
    /// `SS_UNCONNECTED`.
    const UNCONNECTED: &str = "01";
    text.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace();
        let (state, path) = (words.nth(5)?, words.nth(1)?);
        (state == UNCONNECTED && path.starts_with('/')).then_some(path)
    })
}

/// The files that `swaps` says the kernel swaps to; devices are left out.
pub(crate) fn swap_files(text: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    text.split(|&byte| byte == b'\n').skip(1).filter_map(|line| {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let (path, kind) = (words.next()?, words.next()?);
        (kind == b"file").then(|| unescape(path))
    })
}

/// Reads `uid_map` or `gid_map`.
pub(crate) fn id_map(text: &str) -> Vec<IdExtent> {
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Whether these maps leave every id as it is.
pub(crate) fn is_identity(map: &[IdExtent]) -> bool {
    matches!(map, [IdExtent { first: 0, lower: 0, count: u32::MAX }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read() {
        let text = b"27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda ro,discard\n\
            28 27 0:25 /x /a\\040b ro,nosuid,nodev,noexec,nosymfollow,idmapped - tmpfs none rw\n\
            nonsense\n";
        let mounts = mountinfo(text);
        assert_eq!(mounts.len(), 2);
        let root = &mounts[&27];
        assert!(!root.options.read_only && root.sb_read_only && root.fstype == "ext4");
        let other = &mounts[&28];
        assert_eq!(other.point, b"/a b");
        let o = other.options;
        assert!(o.read_only && o.nosuid && o.nodev && o.noexec && o.nosymfollow && other.idmapped);
        assert!(!other.sb_read_only && other.source == "none");
    }

    #[test]
    fn credentials_are_read() {
        let text = "Name:\tx\nUmask:\t0027\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nCapInh:\t0000000000000000\n\
            CapPrm:\t00000000a80425fb\nCapEff:\t0000000000000002\nNoNewPrivs:\t1\nSeccomp:\t2\n";
        let status = status(text).unwrap();
        assert_eq!((status.uids, status.gids), ([1, 2, 3, 4], [5, 6, 7, 8]));
        assert_eq!((status.groups.as_slice(), status.umask), (&[9, 10][..], 0o027));
        assert_eq!(status.effective, CapSet(2));
        assert!(status.no_new_privs && status.seccomp);
        assert_eq!(super::status("Uid:\t1\t2\t3\t4\n"), None);
    }

    #[test]
    fn handlers_of_programs_are_read() {
        let arm =
            handler("enabled\ninterpreter /usr/bin/qemu\nflags: \noffset 1\nmagic 454c46\nmask ff00ff\n")
                .unwrap();
        assert!(arm.takes(b"x", b"\x7fE?F") && !arm.takes(b"x", b"\x7fE?G") && !arm.takes(b"x", b"\x7f"));
        let java = handler("enabled\ninterpreter /usr/bin/java\nflags: \nextension .jar\n").unwrap();
        assert!(
            java.takes(b"a.b.jar", b"") && !java.takes(b"jar", b"") && java.interpreter == "/usr/bin/java"
        );
        assert_eq!(handler("disabled\ninterpreter /usr/bin/java\nflags: \nextension .jar\n"), None);
        assert_eq!(handler("enabled\nmagic zz\n"), None);
    }

    #[test]
    fn a_terminal_is_read() {
        assert_eq!(terminal("7 (a) b (c)) S 1 7 7 34816 -1 4194304"), Some(true));
        assert_eq!(terminal("7 (x) S 1 7 7 0 -1 4194304"), Some(false));
        assert_eq!(terminal("7 x"), None);
    }

    #[test]
    fn sockets_are_read() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 18098 /run/listens\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 18099 /run/accepted\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 18100\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 18101 @abstract\n";
        assert_eq!(bound_sockets(text).collect::<Vec<_>>(), ["/run/listens"]);
    }

    #[test]
    fn swap_files_are_read() {
        let text = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
            /dev/vdb                                partition\t4092\t\t0\t\t-2\n\
            /a\\040b                                file\t\t4092\t\t0\t\t-3\n";
        assert_eq!(swap_files(text).collect::<Vec<_>>(), [b"/a b"]);
    }

    #[test]
    fn maps_are_read() {
        let map = id_map("         0     100000      65536\n     65536          1  2\n");
        assert_eq!(map.len(), 2);
        assert_eq!((map[1].first, map[1].lower, map[1].count), (65536, 1, 2));
        assert!(is_identity(&id_map("0 0 4294967295\n")) && !is_identity(&map));
    }
}
