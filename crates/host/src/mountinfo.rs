//! The mounts of the running machine, as `/proc/thread-self/mountinfo` lists them.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rcuwalk::MountOptions;

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Its number, and that of the mount it lies in.
    pub id: u32,
    /// The number of the mount it lies in.
    pub parent: u32,
    /// What of its file system it shows.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    /// What the mount forbids.
    pub options: MountOptions,
    /// Ids look different through it.
    pub idmapped: bool,
    /// The type of its file system, such as `ext4`.
    pub fs_type: String,
    /// What its file system lies on, such as a device.
    pub source: String,
    /// The whole file system is read-only, not only this mount.
    pub sb_read_only: bool,
}

/// The mounts that this process sees, in the order in which they were made, as far as the kernel tells.
///
/// # Errors
///
/// What reading `/proc/thread-self/mountinfo` answers.
///
/// ```
/// let mounts = rcuwalk_host::mounts()?;
/// assert!(mounts.iter().any(|mount| mount.point == std::path::Path::new("/")));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    Ok(parse(&std::fs::read("/proc/thread-self/mountinfo")?))
}

/// The mount through which a path without symbolic links is seen: of those at the deepest place, the last.
pub fn mount_of<'a>(mounts: &'a [MountEntry], path: &Path) -> Option<&'a MountEntry> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.components().count())
}

fn parse(text: &[u8]) -> Vec<MountEntry> {
    text.split(|&b| b == b'\n').filter_map(parse_line).collect()
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&b| b == b' ');
    let mut text = || fields.next();
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
    let (id, parent) = (number(text()?)?, number(text()?)?);
    let _device = text()?;
    let (root, point, options) = (path(text()?), path(text()?), text()?);
    // Tags such as `shared:2`, and a dash behind them.
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let lossy = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
    let (fs_type, source, sb) = (lossy(rest.next()?), lossy(rest.next()?), rest.next().unwrap_or_default());
    let has = |list: &[u8], name: &[u8]| list.split(|&b| b == b',').any(|option| option == name);
    let options_of = |name: &[u8]| has(options, name);
    Some(MountEntry {
        id,
        parent,
        root,
        point,
        options: MountOptions::default()
            .with_read_only(options_of(b"ro"))
            .with_noexec(options_of(b"noexec"))
            .with_nosuid(options_of(b"nosuid"))
            .with_nodev(options_of(b"nodev"))
            .with_nosymfollow(options_of(b"nosymfollow"))
            .with_noatime(options_of(b"noatime"))
            .with_nodiratime(options_of(b"nodiratime"))
            .with_strictatime(!options_of(b"relatime") && !options_of(b"noatime")),
        idmapped: options_of(b"idmapped"),
        fs_type,
        source,
        sb_read_only: has(sb, b"ro"),
    })
}

fn path(field: &[u8]) -> PathBuf {
    OsString::from_vec(unescape(field)).into()
}

/// Blank, tab, newline, backslash and hash stand as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        if let [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] = rest {
            out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = tail;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let text = b"22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/vda ro,discard\n\
            30 22 0:25 /a\\040b /mnt/x\\134y ro,nosuid,nodev,noexec,noatime,idmapped master:1 propagate_from:2 - tmpfs none rw\n\
            31 22 0:26 / /mnt rw,nosymfollow - 9p src rw\n\
            broken\n\
            9 9 9 9\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 3);
        assert_eq!((mounts[0].id, mounts[0].parent, mounts[0].sb_read_only), (22, 1, true));
        assert_eq!(mounts[0].options, MountOptions::default());
        let second = &mounts[1];
        assert_eq!(
            (second.root.as_path(), second.point.as_path()),
            (Path::new("/a b"), Path::new("/mnt/x\\y"))
        );
        let options = second.options;
        assert!(options.read_only && options.nosuid && options.nodev && options.noexec && options.noatime);
        assert!(second.idmapped && !second.sb_read_only);
        assert_eq!((&*second.fs_type, &*second.source), ("tmpfs", "none"));
        assert!(mounts[2].options.nosymfollow && mounts[2].options.strictatime);
        let at = |path: &str| mount_of(&mounts, Path::new(path)).map(|mount| mount.id);
        assert_eq!(
            (at("/etc"), at("/mnt/x\\y/z"), at("/mnt/x"), at("/mntx")),
            (Some(22), Some(30), Some(31), Some(22))
        );
    }
}
