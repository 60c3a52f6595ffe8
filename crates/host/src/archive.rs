//! A tar archive into a [`Vfs`].
//!
//! A member is put where its name leads component by component from the root of the new tree, and only through
//! directories of that tree: `..` is refused, a leading `/` is dropped, and a symbolic link is no directory. So there is
//! no outside to escape to.

use std::io::Read;
use std::time::Instant;

use rcuwalk::uapi::{PATH_MAX, S_IFDIR, s_isdir, s_islnk, s_isreg};
use rcuwalk::{Errno, Loader, NewInode, NodeId, Timespec, Vfs};

use crate::decompress::unpack;
use crate::member::{Member, Members};
use crate::outcome::{ImportError, Problem, Progress, Report};

/// Contents are moved in pieces of this size.
const COPY_SIZE: usize = 64 << 10;

/// What of an archive to import, and how much at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveOptions {
    /// Keep the contents of regular files, not only their sizes.
    pub contents: bool,
    /// Keep extended attributes: ACLs, file capabilities and all others that setxattr would take.
    pub xattrs: bool,
    /// Where to stop believing the archive.
    pub limits: Limits,
}

impl Default for ArchiveOptions {
    /// No contents, extended attributes, the default limits.
    fn default() -> ArchiveOptions {
        ArchiveOptions { contents: false, xattrs: true, limits: Limits::default() }
    }
}

/// Bounds on what a small file can unpack to. Going beyond one ends the import with [`ImportError::Limit`].
///
/// Names are bounded in any case: to PATH_MAX bytes, and each component to NAME_MAX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Members, and directories that members imply.
    pub entries: u64,
    /// Bytes of the archive after decompression.
    pub bytes: u64,
    /// Bytes of one extension header: a long name, or a member's extended attributes together.
    pub header_bytes: u64,
}

impl Default for Limits {
    /// 16 Mi entries, 64 GiB, 4 MiB.
    fn default() -> Limits {
        Limits { entries: 16 << 20, bytes: 64 << 30, header_bytes: 4 << 20 }
    }
}

/// Imports a tar archive, plain or compressed with gzip or zstd, read from `input`.
///
/// `vfs` should be empty. Read are ustar, GNU and PAX archives with long names, sparse files, extended attributes
/// (`SCHILY.xattr`, `LIBARCHIVE.xattr`), ACLs as text where ids are numbers, and file flags. As in extraction, the last
/// of several members of one name counts; a directory keeps what is in it. A directory that no member describes belongs
/// to root, has mode 0755 and the time 0. Inode numbers are given by `vfs`; archives do not hold the sizes of directories,
/// which are 0 therefore. The report counts a member that a later one replaces as well.
///
/// ```
/// use rcuwalk::{Cred, Vfs};
/// use rcuwalk_host::{ArchiveOptions, Progress, import_tar};
///
/// let mut archive = tar::Builder::new(Vec::new());
/// let mut header = tar::Header::new_ustar();
/// header.set_mode(0o600);
/// header.set_size(5);
/// archive.append_data(&mut header, "root/secret", &b"12345"[..])?;
///
/// let vfs = Vfs::new()?;
/// let report = import_tar(&vfs, &archive.into_inner()?[..], &ArchiveOptions::default(), &Progress::new())?;
/// assert_eq!((report.files, report.dirs), (1, 2));
/// let user = vfs.task(Cred::user(1000, 1000, &[]));
/// assert!(user.access(b"/root/secret", rcuwalk::uapi::R_OK).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`ImportError::Archive`] if the archive is damaged or truncated, or compressed otherwise; [`ImportError::Limit`];
/// [`ImportError::Insert`] if `vfs` is full; [`ImportError::Cancelled`]. What is wrong with one member, such as a name
/// with `..` or a hard link to nothing, is a [`Problem`] in the report instead.
pub fn import_tar(
    vfs: &Vfs,
    input: impl Read,
    options: &ArchiveOptions,
    progress: &Progress,
) -> Result<Report, ImportError> {
    let started = Instant::now();
    let unreadable = |reason: String| ImportError::Archive { offset: 0, reason };
    let stream = unpack(input)
        .map_err(|e| unreadable(e.to_string()))?
        .map_err(|what| unreadable(format!("it is {what}")))?;
    let limits = &options.limits;
    let mut members = Members::new(stream, limits.bytes, limits.header_bytes);
    let mut tree = Tree::new(vfs.loader(), options, progress)?;
    while let Some(member) = members.next()? {
        if progress.is_cancelled() {
            return Err(ImportError::Cancelled);
        }
        tree.add(member, &mut members)?;
        progress.publish(&tree.report);
    }
    tree.report.elapsed = started.elapsed();
    Ok(tree.report)
}

/// Attributes of a directory that no member describes.
const IMPLIED: NewInode<'static> = {
    let time = Timespec { sec: 0, nsec: 0 };
    NewInode {
        mode: S_IFDIR | 0o755,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: None,
        ino: None,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        iflags: 0,
        symlink: b"",
        xattrs: &[],
    }
};

/// The tree that members are put into.
struct Tree<'a> {
    loader: Loader<'a>,
    options: &'a ArchiveOptions,
    progress: &'a Progress,
    report: Report,
    entries: u64,
    /// Where the last member was put: archives list a directory's members together.
    parent: (Vec<u8>, NodeId),
    buffer: Vec<u8>,
}

/// Why a member is not put into the tree.
enum Refusal {
    /// The import ends.
    Fatal(ImportError),
    /// It goes on without this member.
    Member(&'static str, Errno),
}

impl From<ImportError> for Refusal {
    fn from(e: ImportError) -> Refusal {
        Refusal::Fatal(e)
    }
}

/// For errors of the engine: no room ends the import, anything else is about this member.
fn refuse(action: &'static str, path: &[u8]) -> impl Fn(Errno) -> Refusal {
    move |errno| match errno {
        Errno::ENOSPC | Errno::ENOMEM => {
            let Problem { path, errno, .. } = Problem::new(path.to_vec(), action, errno);
            Refusal::Fatal(ImportError::Insert { path, errno })
        }
        errno => Refusal::Member(action, errno),
    }
}

/// Checks a name and takes it apart; a leading slash, empty components and `.` do not count.
fn components(path: &[u8]) -> Result<Vec<&[u8]>, Refusal> {
    if path.len() >= PATH_MAX {
        return Err(Refusal::Member("name", Errno::ENAMETOOLONG));
    }
    let parts: Vec<_> = path.split(|&b| b == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    if parts.contains(&&b".."[..]) {
        return Err(Refusal::Member("name with \"..\"", Errno::EXDEV));
    }
    Ok(parts)
}

impl<'a> Tree<'a> {
    fn new(
        mut loader: Loader<'a>,
        options: &'a ArchiveOptions,
        progress: &'a Progress,
    ) -> Result<Self, ImportError> {
        loader.set_root(&IMPLIED).map_err(|errno| ImportError::Insert { path: "/".into(), errno })?;
        let parent = (Vec::new(), loader.root());
        let mut report = Report::default();
        report.count_inode(IMPLIED.mode, 0);
        Ok(Tree { loader, options, progress, report, entries: 0, parent, buffer: vec![0; COPY_SIZE] })
    }

    /// Puts a member into the tree, or its problems into the report.
    fn add<R: Read>(&mut self, mut member: Member, members: &mut Members<R>) -> Result<(), ImportError> {
        if !self.options.xattrs {
            member.xattrs.clear();
        }
        for &(what, errno) in &member.flaws {
            self.report.add_problem(Problem::new(member.path.clone(), what, errno));
        }
        let put = match member.refused {
            Some((what, errno)) => Err(Refusal::Member(what, errno)),
            None if member.is_link => self.link(&member),
            None => self.create(&member, members),
        };
        match put {
            Ok(()) => Ok(()),
            Err(Refusal::Fatal(e)) => Err(e),
            Err(Refusal::Member(what, errno)) => {
                self.report.add_problem(Problem::new(member.path, what, errno));
                Ok(())
            }
        }
    }

    fn create<R: Read>(&mut self, member: &Member, members: &mut Members<R>) -> Result<(), Refusal> {
        let xattrs: Vec<_> = member.xattrs.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let is_dir = s_isdir(member.mode);
        let inode = NewInode {
            mode: member.mode,
            uid: member.uid,
            gid: member.gid,
            rdev: member.rdev,
            size: member.size,
            atime: member.atime,
            mtime: member.mtime,
            ctime: member.ctime,
            btime: member.btime,
            iflags: member.iflags,
            symlink: if s_islnk(member.mode) { &member.link } else { b"" },
            xattrs: &xattrs,
            ..IMPLIED
        };
        let path = components(&member.path)?;
        let Some((name, parents)) = path.split_last() else {
            if !is_dir {
                return Err(Refusal::Member("name of the root", Errno::EEXIST));
            }
            return self.describe(self.loader.root(), member, &inode);
        };
        let parent = self.parent(parents, &member.path)?;
        if let Some(old) = self.loader.lookup(parent, name) {
            if is_dir && self.loader.is_dir(old) {
                return self.describe(old, member, &inode);
            }
            self.remove(old, &member.path)?;
        }
        self.count()?;
        let node = self.loader.add(parent, name, &inode).map_err(refuse("insert", &member.path))?;
        self.report.count_inode(member.mode, member.size);
        self.report.xattrs += xattrs.len() as u64;
        if self.options.contents && s_isreg(member.mode) {
            self.copy(node, member, members)?;
        }
        Ok(())
    }

    /// Gives a directory that is there the attributes of a member.
    fn describe(&mut self, dir: NodeId, member: &Member, inode: &NewInode<'_>) -> Result<(), Refusal> {
        self.loader.dir_meta(dir, inode).map_err(refuse("set attributes", &member.path))?;
        self.report.xattrs += inode.xattrs.len() as u64;
        Ok(())
    }

    /// Makes a hard link.
    fn link(&mut self, member: &Member) -> Result<(), Refusal> {
        let path = components(&member.path)?;
        let target_path = components(&member.link)?;
        let target = target_path
            .iter()
            .try_fold(self.loader.root(), |dir, name| self.loader.lookup(dir, name))
            .ok_or(Refusal::Member("hard link to a missing member", Errno::ENOENT))?;
        let Some((name, parents)) = path.split_last() else {
            return Err(Refusal::Member("name of the root", Errno::EEXIST));
        };
        if target_path == path {
            return Ok(());
        }
        if target_path.starts_with(&path) {
            return Err(Refusal::Member("hard link in the place of its target's directory", Errno::EISDIR));
        }
        if self.loader.is_dir(target) {
            return Err(Refusal::Member("hard link to a directory", Errno::EPERM));
        }
        let parent = self.parent(parents, &member.path)?;
        if let Some(old) = self.loader.lookup(parent, name) {
            self.remove(old, &member.path)?;
        }
        self.count()?;
        self.loader.link(parent, name, target).map_err(refuse("insert", &member.path))?;
        self.report.hard_links += 1;
        Ok(())
    }

    /// The directory that a member lies in; makes what is missing of it.
    fn parent(&mut self, names: &[&[u8]], member: &[u8]) -> Result<NodeId, Refusal> {
        let path = names.join(&b'/');
        if self.parent.0 == path {
            return Ok(self.parent.1);
        }
        let mut dir = self.loader.root();
        for name in names {
            dir = match self.loader.lookup(dir, name) {
                Some(next) if self.loader.is_dir(next) => next,
                Some(_) => {
                    return Err(Refusal::Member("name below something that is no directory", Errno::ENOTDIR));
                }
                None => {
                    self.count()?;
                    let made = self.loader.add(dir, name, &IMPLIED).map_err(refuse("insert", member))?;
                    self.report.count_inode(IMPLIED.mode, 0);
                    made
                }
            };
        }
        self.parent = (path, dir);
        Ok(dir)
    }

    /// Makes room for a member of the same name.
    fn remove(&mut self, old: NodeId, path: &[u8]) -> Result<(), Refusal> {
        // The directory remembered may be in what goes away.
        self.parent = (Vec::new(), self.loader.root());
        self.loader.remove(old).map_err(refuse("replace", path))
    }

    fn count(&mut self) -> Result<(), ImportError> {
        let limit = self.options.limits.entries;
        if self.entries == limit {
            return Err(ImportError::Limit { what: "entries", limit });
        }
        self.entries += 1;
        Ok(())
    }

    /// Copies a file's contents.
    fn copy<R: Read>(
        &mut self,
        node: NodeId,
        member: &Member,
        members: &mut Members<R>,
    ) -> Result<(), Refusal> {
        for &(offset, length) in &member.segments {
            let mut done = 0;
            while done < length {
                let want = (length - done).min(COPY_SIZE as u64) as usize;
                let got = members.read_data(&mut self.buffer[..want])?;
                let data = &self.buffer[..got];
                self.loader
                    .write(node, offset + done, data)
                    .map_err(refuse("write contents", &member.path))?;
                done += got as u64;
                self.report.content_bytes += got as u64;
                if self.progress.is_cancelled() {
                    return Err(Refusal::Fatal(ImportError::Cancelled));
                }
            }
        }
        self.loader.has_contents(node).map_err(refuse("write contents", &member.path))
    }
}
