//! A [`Vfs`] into a tar archive, which [`import_tar`](crate::import_tar) reads back.

use std::collections::HashMap;
use std::io::{self, Write};

use rcuwalk::cred::Cred;
use rcuwalk::uapi::*;
use rcuwalk::{Errno, MountAttr, Statx, Task, Vfs};

use crate::outcome::Problem;

/// Contents are moved in pieces of this size.
const COPY_SIZE: usize = 64 << 10;
/// How many problems a [`Saved`] lists; it counts all of them.
const LISTED_PROBLEMS: usize = 100;
const BLOCK: usize = 512;

/// What was saved.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    /// Members of the archive, the root directory and hard links included.
    pub members: u64,
    /// Hard links among them.
    pub hard_links: u64,
    /// Bytes of contents that were written, holes left out.
    pub content_bytes: u64,
    /// The first things that could not be saved as they are: sockets, which archives do not have, files that were imported
    /// without contents (saved as one hole), paths of 4,096 bytes or more, what was removed meanwhile.
    pub problems: Vec<Problem>,
    /// How many there were.
    pub problem_count: u64,
}

/// Writes the whole tree, as root of a fresh task sees it, to `output`: a PAX archive with ids, times to the nanosecond,
/// extended attributes, ACLs and file capabilities, immutable and append-only flags, devices, fifos, links, hard links and
/// holes. Access times stay as they are: the tree is read through mounts of its own, with `noatime`.
///
/// ```
/// use rcuwalk::{Cred, Vfs, uapi::*};
/// use rcuwalk_host::{ArchiveOptions, Progress, import_tar, save_tar};
///
/// let vfs = Vfs::new()?;
/// let root = vfs.task(Cred::root());
/// root.mkdir(b"/home", 0o755)?;
/// root.symlink(b"home", b"/users")?;
/// let mut archive = Vec::new();
/// assert_eq!(save_tar(&vfs, &mut archive)?.members, 3);
///
/// let copy = Vfs::new()?;
/// import_tar(&copy, &archive[..], &ArchiveOptions::default(), &Progress::new())?;
/// assert_eq!(copy.task(Cred::root()).readlink(b"/users")?, b"home");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Those of writing to `output`; `ENOSPC` and `ENOMEM` of the engine if it has no room for these mounts. What is wrong with one member is a
/// [`Problem`] instead.
pub fn save_tar(vfs: &Vfs, output: impl Write) -> io::Result<Saved> {
    let mut task = vfs.task(Cred::root());
    unseen(&mut task).map_err(io::Error::from)?;
    let mut saver = Saver { task, output, saved: Saved::default(), names: HashMap::new() };
    saver.member(b"")?;
    let mut dirs = vec![Vec::new()];
    while let Some(dir) = dirs.pop() {
        for name in saver.entries(&dir) {
            let path = if dir.is_empty() { name } else { [&dir[..], b"/", &name].concat() };
            if saver.member(&path)? {
                dirs.push(path);
            }
        }
    }
    saver.output.write_all(&[0; 2 * BLOCK])?;
    saver.output.flush()?;
    Ok(saver.saved)
}

/// Gives the task mounts of its own on which nothing that it reads is stamped.
fn unseen(task: &mut Task) -> rcuwalk::Result<()> {
    task.unshare(CLONE_NEWNS)?;
    let attr = MountAttr::default().with_set(MOUNT_ATTR_NOATIME).with_clr(MOUNT_ATTR__ATIME);
    task.mount_setattr(AT_FDCWD, b"/", AT_RECURSIVE, &attr)
}

struct Saver<W> {
    task: Task,
    output: W,
    saved: Saved,
    /// The first names of inodes that have several.
    names: HashMap<(u32, u32, u64), Vec<u8>>,
}

/// A member without its contents.
struct Member<'a> {
    /// Without a slash in front; of the root, empty.
    path: &'a [u8],
    stat: Statx,
    kind: u8,
    /// Of links.
    link: Vec<u8>,
    /// PAX records.
    records: Vec<u8>,
}

impl<W: Write> Saver<W> {
    fn problem(&mut self, path: &[u8], action: &'static str, errno: Errno) {
        self.saved.problem_count += 1;
        if self.saved.problems.len() < LISTED_PROBLEMS {
            self.saved.problems.push(Problem::new(path.to_vec(), action, errno));
        }
    }

    /// The names in a directory, the one that came last behind the others: so the directory that they are unpacked into lists them as this one does.
    fn entries(&mut self, dir: &[u8]) -> Vec<Vec<u8>> {
        match self.task.readdir(&absolute(dir)) {
            Ok(entries) => entries.into_iter().rev().map(|entry| entry.name).collect(),
            Err(errno) => {
                self.problem(dir, "list directory", errno);
                Vec::new()
            }
        }
    }

    /// Saves one object; true if it is a directory.
    fn member(&mut self, path: &[u8]) -> io::Result<bool> {
        let at = absolute(path);
        let flags = AT_SYMLINK_NOFOLLOW;
        let stat = match self.task.statx(AT_FDCWD, &at, flags, STATX_BASIC_STATS | STATX_BTIME) {
            Ok(stat) => stat,
            Err(errno) => {
                self.problem(path, "stat", errno);
                return Ok(false);
            }
        };
        let file_type = u32::from(stat.mode) & S_IFMT;
        let kind = match file_type {
            S_IFREG => b'0',
            S_IFLNK => b'2',
            S_IFCHR => b'3',
            S_IFBLK => b'4',
            S_IFDIR => b'5',
            S_IFIFO => b'6',
            _ => {
                self.problem(path, "save a socket", Errno::EOPNOTSUPP);
                return Ok(false);
            }
        };
        let mut member = Member { path, stat, kind, link: Vec::new(), records: Vec::new() };
        if file_type != S_IFDIR && stat.nlink > 1 {
            let inode = (stat.dev_major, stat.dev_minor, stat.ino);
            if let Some(first) = self.names.get(&inode) {
                member.kind = b'1';
                member.link.clone_from(first);
                self.saved.hard_links += 1;
                self.header(member, 0)?;
                return Ok(false);
            }
            self.names.insert(inode, path.to_vec());
        }
        if file_type == S_IFLNK {
            match self.task.readlink(&at) {
                Ok(body) => member.link = body,
                Err(errno) => {
                    self.problem(path, "read link", errno);
                    return Ok(false);
                }
            }
        }
        self.describe(&mut member);
        if file_type == S_IFREG {
            self.contents(member)?;
        } else {
            self.header(member, 0)?;
        }
        Ok(file_type == S_IFDIR)
    }

    /// Times, flags and extended attributes, as records.
    fn describe(&mut self, member: &mut Member<'_>) {
        let stat = &member.stat;
        for (key, time) in [
            ("mtime", stat.mtime),
            ("atime", stat.atime),
            ("ctime", stat.ctime),
            ("LIBARCHIVE.creationtime", stat.btime),
        ] {
            record(&mut member.records, key.as_bytes(), decimal(time.sec, time.nsec).as_bytes());
        }
        let flags = [(STATX_ATTR_IMMUTABLE, "immutable"), (STATX_ATTR_APPEND, "append")];
        let set: Vec<&str> =
            flags.into_iter().filter(|(bit, _)| stat.attributes & bit != 0).map(|(_, name)| name).collect();
        if !set.is_empty() {
            record(&mut member.records, b"SCHILY.fflags", set.join(",").as_bytes());
        }
        let at = absolute(member.path);
        match self.task.llistxattr(&at) {
            Ok(list) => {
                for name in list.split(|&b| b == 0).filter(|name| !name.is_empty()) {
                    match self.task.lgetxattr(&at, name) {
                        Ok(value) => attribute(&mut member.records, name, &value),
                        Err(errno) => self.problem(member.path, "read extended attribute", errno),
                    }
                }
            }
            Err(errno) => self.problem(member.path, "list extended attributes", errno),
        }
    }

    /// Saves a regular file: with holes, as a sparse file of PAX version 1.0.
    fn contents(&mut self, mut member: Member<'_>) -> io::Result<()> {
        let (path, size) = (member.path, member.stat.size);
        let opened = self.task.open(&absolute(path), O_RDONLY, 0);
        let segments = opened.and_then(|fd| self.segments(fd, size).map(|segments| (fd, segments)));
        let (fd, segments) = match segments {
            Ok((fd, segments)) => (Some(fd), segments),
            Err(errno) => {
                self.problem(path, "read contents", errno);
                (None, Vec::new())
            }
        };
        let stored: u64 = segments.iter().map(|&(_, len)| len).sum();
        let mut map = Vec::new();
        if stored != size {
            let lines = segments.iter().map(|(at, len)| format!("{at}\n{len}\n"));
            map = format!("{}\n{}", segments.len(), lines.collect::<String>()).into_bytes();
            map.resize(map.len().next_multiple_of(BLOCK), 0);
            for (key, value) in
                [("major", "1".to_owned()), ("minor", "0".to_owned()), ("realsize", size.to_string())]
            {
                record(&mut member.records, format!("GNU.sparse.{key}").as_bytes(), value.as_bytes());
            }
            record(&mut member.records, b"GNU.sparse.name", path);
        }
        let total = map.len() as u64 + stored;
        self.header(member, total)?;
        self.output.write_all(&map)?;
        let mut buffer = vec![0; COPY_SIZE];
        for (at, len) in segments {
            let mut done = 0;
            while done < len {
                let want = (len - done).min(COPY_SIZE as u64) as usize;
                let read =
                    fd.map_or(Ok(0), |fd| self.task.pread(fd, &mut buffer[..want], (at + done) as i64));
                // What became shorter meanwhile is filled up: its length was told already.
                let n = read.unwrap_or(0);
                buffer[n..want].fill(0);
                self.output.write_all(&buffer[..want])?;
                done += want as u64;
            }
        }
        self.saved.content_bytes += stored;
        self.pad(total)?;
        if let Some(fd) = fd
            && let Err(errno) = self.task.close(fd)
        {
            self.problem(path, "close", errno);
        }
        Ok(())
    }

    /// Where the file has data: offsets and lengths.
    fn segments(&self, fd: i32, size: u64) -> rcuwalk::Result<Vec<(u64, u64)>> {
        let mut segments = Vec::new();
        let mut at = 0;
        while at < size as i64 {
            let start = match self.task.lseek(fd, at, SEEK_DATA) {
                Ok(start) => start,
                Err(Errno::ENXIO) => break,
                Err(errno) => return Err(errno),
            };
            let end = self.task.lseek(fd, start, SEEK_HOLE)?.min(size as i64);
            if end <= start {
                break;
            }
            segments.push((start as u64, (end - start) as u64));
            at = end;
        }
        Ok(segments)
    }

    /// Writes a member's records, if it needs any, and its header.
    fn header(&mut self, member: Member<'_>, size: u64) -> io::Result<()> {
        let Member { path, stat, kind, link, mut records } = member;
        let mut header = tar::Header::new_ustar();
        let slash: &[u8] = if kind == b'5' && !path.is_empty() { b"/" } else { b"" };
        let name = [b"./", path, slash].concat();
        let fields = header.as_old_mut();
        if !put(&mut fields.name, &name) {
            record(&mut records, b"path", &name);
        }
        if !put(&mut fields.linkname, &link) {
            record(&mut records, b"linkpath", &link);
        }
        fields.linkflag = [kind];
        /// What seven octal digits hold, and eleven.
        const SMALL: u64 = 0o777_7777;
        const LARGE: u64 = 0o777_7777_7777;
        for (key, value, most) in
            [("uid", stat.uid.into(), SMALL), ("gid", stat.gid.into(), SMALL), ("size", size, LARGE)]
        {
            if value > most {
                record(&mut records, key.as_bytes(), value.to_string().as_bytes());
            }
        }
        header.set_uid(u64::from(stat.uid).min(SMALL));
        header.set_gid(u64::from(stat.gid).min(SMALL));
        header.set_size(size.min(LARGE));
        header.set_mode(u32::from(stat.mode) & S_IALLUGO);
        header.set_mtime(u64::try_from(stat.mtime.sec).unwrap_or(0).min(LARGE));
        if matches!(kind, b'3' | b'4') {
            header.set_device_major(stat.rdev_major)?;
            header.set_device_minor(stat.rdev_minor)?;
        }
        header.set_cksum();
        if !records.is_empty() {
            let mut extension = tar::Header::new_ustar();
            put(&mut extension.as_old_mut().name, b"PaxHeaders/x");
            extension.as_old_mut().linkflag = [b'x'];
            extension.set_size(records.len() as u64);
            extension.set_mode(0o644);
            extension.set_cksum();
            self.output.write_all(extension.as_bytes())?;
            self.output.write_all(&records)?;
            self.pad(records.len() as u64)?;
        }
        self.saved.members += 1;
        self.output.write_all(header.as_bytes())
    }

    /// Fills up the last block of `len` bytes.
    fn pad(&mut self, len: u64) -> io::Result<()> {
        let rest = (len % BLOCK as u64) as usize;
        if rest == 0 { Ok(()) } else { self.output.write_all(&[0; BLOCK][rest..]) }
    }
}

fn absolute(path: &[u8]) -> Vec<u8> {
    [b"/", path].concat()
}

/// Puts bytes into a field of the header; false if they do not fit, and only the beginning is there.
fn put(field: &mut [u8], bytes: &[u8]) -> bool {
    let n = bytes.len().min(field.len());
    field[..n].copy_from_slice(&bytes[..n]);
    n == bytes.len()
}

/// Appends a PAX record. Its length counts its own digits.
fn record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    records.extend_from_slice(format!("{len} ").as_bytes());
    records.extend_from_slice(&[key, b"=", value, b"\n"].concat());
}

/// Appends an extended attribute. A name that ends where the first `=` is needs libarchive's encoding.
fn attribute(records: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if name.contains(&b'=') {
        let encoded: String = name.iter().map(|byte| format!("%{byte:02X}")).collect();
        record(records, format!("LIBARCHIVE.xattr.{encoded}").as_bytes(), base64(value).as_bytes());
    } else {
        record(records, &[b"SCHILY.xattr.", name].concat(), value);
    }
}

/// Base 64 without padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let word =
            group.iter().fold(0_u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for place in 0..=group.len() {
            text.push(char::from(DIGITS[(word >> (18 - 6 * place) & 63) as usize]));
        }
    }
    text
}

/// Seconds with nine digits behind the point, perhaps negative.
fn decimal(sec: i64, nsec: u32) -> String {
    if sec < 0 && nsec > 0 {
        let (sec, nsec) = (-(sec + 1), 1_000_000_000 - nsec);
        format!("-{sec}.{nsec:09}")
    } else {
        format!("{sec}.{nsec:09}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_their_own_digits() {
        for (value, shown) in
            [("x", "6 a=x\n"), ("12345678901", "17 a=12345678901\n"), ("1234", "9 a=1234\n")]
        {
            let mut records = Vec::new();
            record(&mut records, b"a", value.as_bytes());
            assert_eq!(String::from_utf8_lossy(&records), shown);
            assert!(shown.starts_with(&shown.len().to_string()));
        }
        let mut records = Vec::new();
        record(&mut records, b"a", b"12345");
        assert_eq!(
            records.len().to_string().as_bytes(),
            &records[..2],
            "one digit would make ten bytes, which have two"
        );
    }

    #[test]
    fn times_before_1970_and_base_64() {
        assert_eq!(decimal(-1, 750_000_000), "-0.250000000");
        assert_eq!(decimal(-7, 0), "-7.000000000");
        assert_eq!(decimal(1, 5), "1.000000005");
        assert_eq!([base64(b""), base64(b"\x01"), base64(b"\x01\x02\x03\x04")], ["", "AQ", "AQIDBA"]);
    }
}
