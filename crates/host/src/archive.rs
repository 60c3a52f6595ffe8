//! A tar archive into a [`Vfs`].
//!
//! A member is put where its name leads component by component from the root of the new tree, and only through
//! directories of that tree: `..` is refused, a leading `/` is dropped, and a symbolic link is no directory. So there is
//! no outside to escape to.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::time::Instant;

use rcuwalk::acl::ACL_USER;
use rcuwalk::uapi::{PATH_MAX, S_IFDIR, s_isdir, s_islnk, s_isreg};
use rcuwalk::{Errno, Loader, NewInode, NodeId, Vfs};

use crate::acl::{self, TextError};
use crate::decompress::unpack;
use crate::files::Files;
use crate::identity::Names as _;
use crate::member::{Member, Members};
use crate::outcome::{ImportError, Problem, Progress, Report};

/// Contents are moved in pieces of this size.
const COPY_SIZE: usize = 64 << 10;

/// What of an archive to import, and how much at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveOptions {
    /// Keep the contents of regular files, not only their sizes.
    pub contents: bool,
    /// Keep at least the contents of the files that say who the users, groups and services of the tree are, for
    /// [`Files`].
    pub databases: bool,
    /// Keep extended attributes: ACLs, file capabilities and all others that setxattr would take.
    pub xattrs: bool,
    /// Where to stop believing the archive.
    pub limits: Limits,
}

impl Default for ArchiveOptions {
    /// No contents, extended attributes, the default limits.
    fn default() -> ArchiveOptions {
        ArchiveOptions { contents: false, databases: false, xattrs: true, limits: Limits::default() }
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
/// (`SCHILY.xattr`, `LIBARCHIVE.xattr`), ACLs as text, whose names are those of the tree's own users and groups, and file flags. As in extraction, the last
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
    let mut tree = Tree::new(vfs.loader(), options, progress)?;
    tree.read(stream)?;
    let mut report = tree.finish(vfs);
    report.elapsed = started.elapsed();
    Ok(report)
}

/// What is wrong with an ACL that names a user or a group that nothing in the tree knows.
const UNKNOWN_NAME: &str = "ACL as text, with a name that the tree's /etc/passwd and /etc/group do not have";

/// Type and permissions of a directory that no member describes. It is root's, and of 1970.
const IMPLIED: u32 = S_IFDIR | 0o755;

/// Units of 512 bytes that a file with data there, and holes elsewhere, takes on tmpfs.
fn blocks_of(segments: &[(u64, u64)]) -> u64 {
    const PAGE: u64 = 4096;
    let (mut pages, mut counted) = (0_u64, 0);
    for &(offset, length) in segments.iter().filter(|(_, length)| *length != 0) {
        let end = offset.saturating_add(length).div_ceil(PAGE);
        pages = pages.saturating_add(end.saturating_sub(counted.max(offset / PAGE)));
        counted = counted.max(end);
    }
    pages.saturating_mul(8)
}

/// The tree that members are put into.
pub(crate) struct Tree<'a> {
    loader: Loader<'a>,
    options: &'a ArchiveOptions,
    progress: &'a Progress,
    pub(crate) report: Report,
    entries: u64,
    /// Bytes of all streams, unpacked.
    bytes: u64,
    /// Set while the layers of an image are read.
    pub(crate) layer: Option<Layer>,
    /// Where the last member was put: archives list a directory's members together.
    parent: (Vec<u8>, NodeId),
    buffer: Vec<u8>,
    /// What has ACLs with names, which are known when all of the tree is.
    named: HashMap<NodeId, Named>,
}

/// A node with ACLs that name users and groups.
#[derive(Debug)]
struct Named {
    /// The name of the member, for messages.
    path: Vec<u8>,
    dir: NodeId,
    name: Vec<u8>,
    /// By the name of the attribute.
    acls: Vec<(&'static [u8], Vec<u8>)>,
}

/// What is remembered of the layer being read.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    /// What it has added or described: no whiteout of its own takes that away.
    pub(crate) fresh: HashSet<NodeId>,
    /// Nodes that whiteouts had to look at.
    pub(crate) pruned: u64,
}

/// A name that says which other name is gone.
enum Whiteout<'a> {
    /// Everything in its directory.
    Opaque,
    /// The entry of this name.
    Name(&'a [u8]),
    /// Bookkeeping of the file system that invented whiteouts.
    Other,
}

impl<'a> Whiteout<'a> {
    fn of(path: &'a [u8]) -> Option<Whiteout<'a>> {
        let name = path.strip_suffix(b"/").unwrap_or(path).rsplit(|&b| b == b'/').next()?;
        match name.strip_prefix(b".wh.")? {
            b".wh..opq" => Some(Whiteout::Opaque),
            rest if rest.starts_with(b".wh.") => Some(Whiteout::Other),
            rest => Some(Whiteout::Name(rest)),
        }
    }
}

/// Links followed on the way to a member of a layer, as the kernel counts them.
const MAX_LINKS: u32 = 40;

/// The largest file that is taken for a database, in bytes.
const MAX_DATABASE: u64 = 4 << 20;

/// Whether a path, without a slash in front, is that of a file that says who users, groups and services are.
fn is_database(path: &[u8]) -> bool {
    matches!(path, b"etc/passwd" | b"etc/group")
        || (path.ends_with(b".service") || path.ends_with(b".conf"))
            && path.windows(b"systemd/system/".len()).any(|part| part == b"systemd/system/")
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
    pub(crate) fn new(
        mut loader: Loader<'a>,
        options: &'a ArchiveOptions,
        progress: &'a Progress,
    ) -> Result<Self, ImportError> {
        loader
            .set_root(&NewInode::new(IMPLIED))
            .map_err(|errno| ImportError::Insert { path: "/".into(), errno })?;
        let parent = (Vec::new(), loader.root());
        let mut report = Report::default();
        report.count_inode(IMPLIED, 0);
        let buffer = vec![0; COPY_SIZE];
        let named = HashMap::new();
        Ok(Tree {
            loader,
            options,
            progress,
            report,
            entries: 0,
            bytes: 0,
            layer: None,
            parent,
            buffer,
            named,
        })
    }

    /// Gives what is left its ACLs with names, by the tree's own users and groups. A name that these do not have is a problem.
    pub(crate) fn finish(self, vfs: &Vfs) -> Report {
        let Tree { loader, mut report, named, .. } = self;
        if named.is_empty() {
            return report;
        }
        drop(loader);
        let names = Files::of_vfs(vfs).names();
        let number = |tag: u16, name: &str| match tag {
            ACL_USER => names.user(name).ok().flatten().map(|user| user.uid),
            _ => names.group(name).ok().flatten(),
        };
        let mut loader = vfs.loader();
        let mut named: Vec<(NodeId, Named)> = named.into_iter().collect();
        named.sort_by(|a, b| a.1.path.cmp(&b.1.path));
        for (node, Named { path, dir, name, acls }) in named {
            // It was replaced, or taken away by a later layer.
            if node != loader.root() && loader.lookup(dir, &name) != Some(node) {
                continue;
            }
            for (attribute, text) in acls {
                let set = match acl::from_text(&text, &number) {
                    Ok(acl) => loader
                        .set_acl(node, attribute, &acl::to_xattr(&acl))
                        .map_err(|errno| ("ACL as text", errno)),
                    Err(TextError::Malformed) => Err(("ACL as text", Errno::EINVAL)),
                    Err(TextError::UnknownName) => Err((UNKNOWN_NAME, Errno::EINVAL)),
                };
                match set {
                    Ok(()) => report.xattrs += 1,
                    Err((what, errno)) => report.add_problem(Problem::new(path.clone(), what, errno)),
                }
            }
        }
        report
    }

    /// Remembers the ACLs with names of a node, whose metadata is that of `member` now.
    fn remember(&mut self, node: NodeId, dir: NodeId, name: &[u8], member: &Member) {
        self.named.remove(&node);
        if !member.named_acls.is_empty() {
            let (path, acls) = (member.path.clone(), member.named_acls.clone());
            self.named.insert(node, Named { path, dir, name: name.to_vec(), acls });
        }
    }

    /// Puts the members of a stream, unpacked, into the tree.
    pub(crate) fn read(&mut self, stream: impl Read) -> Result<(), ImportError> {
        let limits = &self.options.limits;
        // The limit is for all streams together.
        let mut members = Members::new(stream, limits.bytes - self.bytes, limits.header_bytes);
        while let Some(member) = members.next()? {
            if self.progress.is_cancelled() {
                return Err(ImportError::Cancelled);
            }
            self.add(member, &mut members)?;
            self.progress.publish(&self.report);
        }
        self.bytes += members.offset();
        Ok(())
    }

    /// Puts a member into the tree, or its problems into the report.
    fn add<R: Read>(&mut self, mut member: Member, members: &mut Members<R>) -> Result<(), ImportError> {
        if !self.options.xattrs {
            member.xattrs.clear();
            member.named_acls.clear();
        }
        for &(what, errno) in &member.flaws {
            self.report.add_problem(Problem::new(member.path.clone(), what, errno));
        }
        let put = match member.refused {
            _ if self.layer.is_some() && Whiteout::of(&member.path).is_some() => self.whiteout(&member.path),
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
        let inode = NewInode::new(member.mode)
            .with_uid(member.uid)
            .with_gid(member.gid)
            .with_rdev(member.rdev)
            .with_size(member.size)
            .with_blocks(s_isreg(member.mode).then(|| blocks_of(&member.segments)))
            .with_atime(member.atime)
            .with_mtime(member.mtime)
            .with_ctime(member.ctime)
            .with_btime(member.btime)
            .with_iflags(member.iflags)
            .with_symlink(if s_islnk(member.mode) { &member.link } else { b"" })
            .with_xattrs(&xattrs);
        let path = components(&member.path)?;
        let wanted = s_isreg(member.mode)
            && (self.options.contents
                || self.options.databases && member.size <= MAX_DATABASE && is_database(&path.join(&b'/')));
        let Some((name, parents)) = path.split_last() else {
            if !is_dir {
                return Err(Refusal::Member("name of the root", Errno::EEXIST));
            }
            let root = self.loader.root();
            self.remember(root, root, b"", member);
            return self.describe(root, member, &inode);
        };
        let parent = self.parent(parents, &member.path)?;
        if let Some(old) = self.loader.lookup(parent, name) {
            if is_dir && self.loader.is_dir(old) {
                self.remember(old, parent, name, member);
                return self.describe(old, member, &inode);
            }
            self.remove(old, &member.path)?;
        }
        self.count()?;
        let node = self.loader.add(parent, name, &inode).map_err(refuse("insert", &member.path))?;
        self.report.count_inode(member.mode, member.size);
        self.report.xattrs += xattrs.len() as u64;
        self.remember(node, parent, name, member);
        self.freshen(node);
        if wanted {
            self.copy(node, member, members)?;
        }
        Ok(())
    }

    /// Gives a directory that is there the attributes of a member.
    fn describe(&mut self, dir: NodeId, member: &Member, inode: &NewInode<'_>) -> Result<(), Refusal> {
        self.loader.dir_meta(dir, inode).map_err(refuse("set attributes", &member.path))?;
        self.freshen(dir);
        self.report.xattrs += inode.xattrs.len() as u64;
        Ok(())
    }

    /// Makes a hard link.
    fn link(&mut self, member: &Member) -> Result<(), Refusal> {
        let path = components(&member.path)?;
        let target_path = components(&member.link)?;
        let target =
            self.find(&target_path).ok_or(Refusal::Member("hard link to a missing member", Errno::ENOENT))?;
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
        let node = self.loader.link(parent, name, target).map_err(refuse("insert", &member.path))?;
        self.named.remove(&node);
        if let Some(Named { acls, .. }) = self.named.get(&target) {
            // The first name may go, and this one stay.
            let (path, acls) = (member.path.clone(), acls.clone());
            self.named.insert(node, Named { path, dir: parent, name: name.to_vec(), acls });
        }
        self.freshen(node);
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
        let mut names: Vec<Vec<u8>> = names.iter().rev().map(|name| name.to_vec()).collect();
        let mut links = 0;
        while let Some(name) = names.pop() {
            dir = match self.loader.lookup(dir, &name) {
                // Only in the body of a link: above the root is the root.
                _ if name == b".." => self.loader.parent(dir),
                Some(next) if self.loader.is_dir(next) => next,
                Some(next) => {
                    let body = self.layer.as_ref().and_then(|_| self.loader.link_body(next));
                    links += 1;
                    let body = body.filter(|_| links <= MAX_LINKS).ok_or(Refusal::Member(
                        "name below something that is no directory",
                        Errno::ENOTDIR,
                    ))?;
                    let parts = body.split(|&b| b == b'/').filter(|part| !matches!(*part, b"" | b"."));
                    names.extend(parts.rev().map(<[u8]>::to_vec));
                    if body.starts_with(b"/") { self.loader.root() } else { dir }
                }
                None => {
                    self.count()?;
                    let made = self
                        .loader
                        .add(dir, &name, &NewInode::new(IMPLIED))
                        .map_err(refuse("insert", member))?;
                    self.report.count_inode(IMPLIED, 0);
                    self.freshen(made);
                    made
                }
            };
        }
        self.parent = (path, dir);
        Ok(dir)
    }

    /// What a path leads to, its last component not followed.
    fn find(&self, path: &[&[u8]]) -> Option<NodeId> {
        path.iter().try_fold(self.loader.root(), |dir, name| self.loader.lookup(dir, name))
    }

    /// Notes that a node comes from the layer being read.
    fn freshen(&mut self, node: NodeId) {
        if let Some(layer) = &mut self.layer {
            layer.fresh.insert(node);
        }
    }

    /// Takes away what a whiteout says is gone: things of the layers below, nothing of its own layer.
    fn whiteout(&mut self, path: &[u8]) -> Result<(), Refusal> {
        let path = components(path)?;
        let Some((name, parents)) = path.split_last() else { return Ok(()) };
        let Some(dir) = self.find(parents).filter(|&dir| self.loader.is_dir(dir)) else { return Ok(()) };
        match Whiteout::of(name) {
            Some(Whiteout::Opaque) => {
                self.loader.children(dir).into_iter().try_for_each(|node| self.prune(node))
            }
            Some(Whiteout::Name(b"" | b"." | b"..")) => {
                Err(Refusal::Member("whiteout of no name", Errno::EINVAL))
            }
            Some(Whiteout::Name(name)) => {
                self.loader.lookup(dir, name).map_or(Ok(()), |node| self.prune(node))
            }
            Some(Whiteout::Other) | None => Ok(()),
        }
    }

    /// Removes what of a node and everything below it does not come from the layer being read.
    fn prune(&mut self, node: NodeId) -> Result<(), Refusal> {
        let mut nodes = vec![node];
        let mut at = 0;
        while at < nodes.len() {
            nodes.extend(self.loader.children(nodes[at]));
            at += 1;
        }
        if let Some(layer) = &mut self.layer {
            layer.pruned += nodes.len() as u64;
            let limit = self.options.limits.entries.saturating_mul(4);
            if layer.pruned > limit {
                let what = "entries that whiteouts look at";
                return Err(ImportError::Limit { what, limit }.into());
            }
        }
        // Children come behind their parents.
        for &node in nodes.iter().rev() {
            let fresh = self.layer.as_ref().is_some_and(|layer| layer.fresh.contains(&node));
            if !fresh && (!self.loader.is_dir(node) || self.loader.is_empty_dir(node)) {
                self.remove(node, b"")?;
            }
        }
        Ok(())
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
