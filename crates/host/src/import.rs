//! A directory tree of the running machine into a [`Vfs`].

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use rcuwalk::uapi::s_isdir;
use rcuwalk::{Errno, Loader, NewInode, NodeId, Vfs};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as OsErrno;

use crate::batch::{Batch, Entry, Meta, ROOT, Token};
use crate::outcome::{ImportError, Problem, Progress, Report};
use crate::scan::{Scan, meta, stat_at};

/// What of a directory tree to import, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// Keep the contents of regular files, not only their sizes; those of procfs and sysfs are never read. A file whose
    /// contents are not kept cannot be read (`ENODATA`).
    pub contents: bool,
    /// Of an archive or image, keep at least the contents of the files that say who its users, groups and services are, for
    /// [`Files`](crate::Files). Has no effect on directories: theirs can be read where they are.
    pub databases: bool,
    /// Do not go into other file systems: a directory on which another one begins is kept, and kept empty.
    pub one_file_system: bool,
    /// Keep extended attributes: ACLs, file capabilities and all others that the caller may read.
    pub xattrs: bool,
    /// Also ask for the no-atime flag, which costs opening every file. Immutable and append-only come for free.
    pub inode_flags: bool,
    /// Make a file system of its own, to be written to: inode numbers are given anew, each once, and links are counted as they
    /// are in the copy.
    pub copy: bool,
    /// Scanning threads; 0 is one for each processor. One more thread, the caller's, inserts.
    pub threads: usize,
    /// Mount points to keep empty, as paths that begin with that of the imported directory.
    pub skip: Vec<PathBuf>,
    /// The directory that takes the tree, and the attributes of the tree's top; none for the root.
    pub at: Option<NodeId>,
    /// When it is cancelled, to give what was imported until then ([`Report::partial`]) in place of the error.
    pub keep_partial: bool,
}

impl Default for ImportOptions {
    /// Everything that comes at no further cost: no contents, all file systems, extended attributes, all processors.
    fn default() -> ImportOptions {
        ImportOptions {
            contents: false,
            databases: false,
            one_file_system: false,
            xattrs: true,
            inode_flags: false,
            copy: false,
            threads: 0,
            skip: Vec::new(),
            at: None,
            keep_partial: false,
        }
    }
}

/// Imports the directory tree `dir` of the running machine; the root of `vfs`, or the directory that the options name, takes
/// the attributes of `dir` itself.
///
/// That directory should be empty. Symbolic links on the way to `dir` are followed, none below it is. Unless the options
/// ask for a [`copy`](ImportOptions::copy), inode numbers are those of the source; if other file systems are crossed, two
/// files may come to have the same one. Likewise a file keeps the link count of the source, even if some of its names
/// lie outside `dir`.
///
/// # Errors
///
/// [`ImportError::Open`] if `dir` is missing or may not be read, [`ImportError::NotADirectory`],
/// [`ImportError::Insert`] if `vfs` is full, [`ImportError::Cancelled`] after [`Progress::cancel`], unless
/// [`ImportOptions::keep_partial`]. What is wrong with
/// one entry is a [`Problem`] in the report instead.
pub fn import_dir(
    vfs: &Vfs,
    dir: &Path,
    options: &ImportOptions,
    progress: &Progress,
) -> Result<Report, ImportError> {
    let started = Instant::now();
    let open = |e: OsErrno| match e {
        OsErrno::NOTDIR if dir.exists() => ImportError::NotADirectory { path: dir.to_path_buf() },
        e => ImportError::Open { path: dir.to_path_buf(), source: e.into() },
    };
    let root = rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(open)?;
    let meta = meta(&stat_at(std::os::fd::AsFd::as_fd(&root), c".").map_err(open)?);

    let mut inserter = Inserter::new(vfs.loader(), options.copy, progress);
    inserter.set_top(options.at, &meta, dir)?;
    let threads = match options.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        n => n,
    };
    let scan = Scan::new(root, dir.as_os_str().as_bytes().to_vec(), &meta, threads, options, progress);
    let result = thread::scope(|scope| {
        let (out, batches) = sync_channel(2 * threads);
        let spawned = spawn_all(scope, &scan, threads, out);
        let result = spawned.and_then(|()| inserter.run(batches));
        // A thread that waits for a job or for room in the channel finds neither and returns.
        scan.stop();
        result
    });
    let cancelled = match result {
        Ok(()) => progress.is_cancelled(),
        Err(ImportError::Cancelled) => true,
        Err(e) => return Err(e),
    };
    if cancelled && !options.keep_partial {
        return Err(ImportError::Cancelled);
    }
    let mut report = inserter.finish()?;
    report.partial = cancelled;
    report.elapsed = started.elapsed();
    Ok(report)
}

/// Starts the scanning threads.
fn spawn_all<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    scan: &'scope Scan<'scope>,
    threads: usize,
    out: SyncSender<Batch>,
) -> Result<(), ImportError> {
    for n in 0..threads {
        let out = out.clone();
        thread::Builder::new()
            .name(format!("scan-{n}"))
            .spawn_scoped(scope, move || scan.run(out))
            .map_err(ImportError::Thread)?;
    }
    Ok(())
}

/// The form that the engine takes; without a number if the engine is to give one.
fn new_inode<'a>(
    meta: &Meta,
    copy: bool,
    symlink: &'a [u8],
    xattrs: &'a [(&'a [u8], &'a [u8])],
) -> NewInode<'a> {
    let inode = meta.new_inode(symlink, xattrs);
    inode.with_ino(inode.ino.filter(|_| !copy))
}

/// An inode with several names.
struct Shared {
    node: NodeId,
    nlink: u32,
    names: u32,
}

/// The inserting thread: holds the tree, takes batches.
struct Inserter<'a> {
    loader: Loader<'a>,
    copy: bool,
    progress: &'a Progress,
    report: Report,
    /// By token; none for what could not be inserted.
    nodes: Vec<Option<NodeId>>,
    /// By device and inode number.
    shared: HashMap<(u64, u64), Shared>,
    /// Directories, with the link count that their file system gives them: not all count subdirectories.
    dirs: Vec<(NodeId, u32)>,
}

impl<'a> Inserter<'a> {
    fn new(loader: Loader<'a>, copy: bool, progress: &'a Progress) -> Inserter<'a> {
        Inserter {
            loader,
            copy,
            progress,
            report: Report::default(),
            nodes: Vec::new(),
            shared: HashMap::new(),
            dirs: Vec::new(),
        }
    }

    fn set_top(&mut self, at: Option<NodeId>, meta: &Meta, dir: &Path) -> Result<(), ImportError> {
        let top = at.unwrap_or(self.loader.root());
        self.loader
            .dir_meta(top, &new_inode(meta, self.copy, b"", &[]))
            .map_err(|errno| ImportError::Insert { path: dir.to_path_buf(), errno })?;
        self.report.count_inode(meta.mode, meta.size);
        self.set_node(ROOT, top);
        self.dirs.push((top, meta.nlink));
        Ok(())
    }

    /// Applies batches until the scan ends.
    fn run(&mut self, batches: Receiver<Batch>) -> Result<(), ImportError> {
        for batch in batches {
            if self.progress.is_cancelled() {
                return Err(ImportError::Cancelled);
            }
            self.apply(batch)?;
            self.progress.publish(&self.report);
        }
        Ok(())
    }

    fn apply(&mut self, mut batch: Batch) -> Result<(), ImportError> {
        for entry in &batch.entries {
            self.insert(&batch, entry)?;
        }
        for refresh in &batch.refreshes {
            if let Some(node) = self.node(refresh.token) {
                let xattrs = batch.get_xattrs(refresh.xattrs);
                let inode = new_inode(&refresh.meta, self.copy, b"", &xattrs);
                if let Err(errno) = self.loader.dir_meta(node, &inode) {
                    self.refuse(batch.get(refresh.path).to_vec(), errno)?;
                }
            }
        }
        for write in &batch.writes {
            let Some(node) = self.node(write.token) else {
                continue;
            };
            let data = batch.get(write.data);
            let written = match data {
                [] => self.loader.has_contents(node),
                data => self.loader.write(node, write.offset, data),
            };
            match written {
                Ok(()) => self.report.content_bytes += data.len() as u64,
                Err(errno) => self.refuse(batch.get(write.path).to_vec(), errno)?,
            }
        }
        self.report.vanished += batch.vanished;
        self.report.mount_points += batch.mount_points;
        for problem in batch.problems.drain(..) {
            self.report.add_problem(problem);
        }
        Ok(())
    }

    fn insert(&mut self, batch: &Batch, entry: &Entry) -> Result<(), ImportError> {
        let Some(parent) = self.node(batch.parent(entry)) else {
            // The directory could not be inserted, which was reported then.
            return Ok(());
        };
        let (name, meta) = (batch.get(entry.name), &entry.meta);
        let many = meta.nlink > 1 && !s_isdir(meta.mode);
        let inserted = match self.shared.get_mut(&(meta.dev, meta.ino)) {
            Some(shared) if many => self.loader.link(parent, name, shared.node).inspect(|_| {
                shared.names += 1;
                self.report.hard_links += 1;
            }),
            _ => {
                let xattrs = batch.get_xattrs(entry.xattrs);
                let inode = new_inode(meta, self.copy, batch.get(entry.symlink), &xattrs);
                self.loader.add(parent, name, &inode).inspect(|&node| {
                    self.report.count_inode(meta.mode, meta.size);
                    self.report.xattrs += xattrs.len() as u64;
                    if many {
                        self.shared
                            .insert((meta.dev, meta.ino), Shared { node, nlink: meta.nlink, names: 1 });
                    } else if s_isdir(meta.mode) {
                        self.dirs.push((node, meta.nlink));
                    }
                })
            }
        };
        match inserted {
            Ok(node) => {
                if let Some(token) = entry.token {
                    self.set_node(token, node);
                }
                Ok(())
            }
            Err(errno) => self.refuse(batch.path(entry), errno),
        }
    }

    /// The engine does not take an entry: the end of the import if there is no more room, a problem otherwise.
    fn refuse(&mut self, path: Vec<u8>, errno: Errno) -> Result<(), ImportError> {
        let problem = Problem::new(path, "insert", errno);
        if matches!(errno, Errno::ENOSPC | Errno::ENOMEM) {
            return Err(ImportError::Insert { path: problem.path, errno });
        }
        self.report.add_problem(problem);
        Ok(())
    }

    fn node(&self, token: Token) -> Option<NodeId> {
        self.nodes.get(token as usize).copied().flatten()
    }

    fn set_node(&mut self, token: Token, node: NodeId) {
        let at = token as usize;
        if at >= self.nodes.len() {
            self.nodes.resize(at + 1, None);
        }
        self.nodes[at] = Some(node);
    }

    /// Sets the link counts of files that have names outside the tree, and of directories.
    fn finish(mut self) -> Result<Report, ImportError> {
        if self.copy {
            self.shared.clear();
            self.dirs.clear();
        }
        for shared in self.shared.values().filter(|shared| shared.names != shared.nlink) {
            self.loader.set_nlink(shared.node, shared.nlink);
        }
        for &(node, nlink) in &self.dirs {
            self.loader.set_nlink(node, nlink);
        }
        self.progress.publish(&self.report);
        Ok(self.report)
    }
}
