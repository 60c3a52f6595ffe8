//! The part of the host's tree that a list of paths touches, in the engine.

use std::collections::HashMap;
use std::ffi::CString;

use rcuwalk::{MountOptions, NodeId, Vfs, VfsBuilder};
use rustix::fs::readlinkat;

use crate::attr::host_attr;
use crate::attr::with_inode;
use crate::error::Error;

/// Links followed in one path.
const MAXSYMLINKS: usize = 40;

/// A tree that grows by the paths that are looked at.
pub(super) struct World<'a> {
    loader: rcuwalk::Loader<'a>,
    /// What is at each canonical path; none where the host has nothing.
    known: HashMap<Vec<u8>, Option<(NodeId, Kind)>>,
}

/// What there is at a path.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Dir,
    Link(Vec<u8>),
    File,
    /// A device, a pipe or a socket.
    Special,
}

/// An empty engine whose access times stand still.
pub(super) fn empty() -> Result<Vfs, Error> {
    let builder: VfsBuilder = Vfs::builder().mount_options(MountOptions::default().with_noatime(true));
    builder.build().map_err(|e| Error::engine("reserving memory for the tree", b"/", e, "raise ulimit -v"))
}

impl<'a> World<'a> {
    pub(super) fn new(vfs: &'a Vfs) -> Result<World<'a>, Error> {
        let mut loader = vfs.loader();
        let root = loader.root();
        if let Ok(attr) = host_attr(c"/", false) {
            with_inode(c"/", &attr, None, |inode| loader.dir_meta(root, inode))
                .map_err(|e| failed(b"/", e))?;
        }
        let known = HashMap::from([(Vec::new(), Some((root, Kind::Dir)))]);
        Ok(World { loader, known })
    }

    /// Names in the tree.
    pub(super) fn entries(&self) -> usize {
        self.known.values().flatten().count()
    }

    /// Adds all that a walk along `path`, absolute, comes to; tells what it ends at.
    pub(super) fn add(&mut self, path: &[u8]) -> Result<Option<Kind>, Error> {
        let mut todo: Vec<Vec<u8>> = components(path);
        let (mut at, mut links) = (Vec::new(), 0);
        while let Some(name) = todo.pop() {
            if name == b"." {
                continue;
            }
            if name == b".." {
                at.truncate(at.iter().rposition(|&byte| byte == b'/').unwrap_or(0));
                continue;
            }
            let child = [&at[..], b"/", &name[..]].concat();
            match self.look(&at, &name, &child)? {
                Some(Kind::Dir) => at = child,
                Some(Kind::Link(target)) => {
                    links += 1;
                    if links > MAXSYMLINKS {
                        return Ok(None);
                    }
                    if target.first() == Some(&b'/') {
                        at.clear();
                    }
                    todo.extend(components(&target));
                }
                end => return Ok(end),
            }
        }
        Ok(Some(Kind::Dir))
    }

    /// What the entry `name` of directory `at` is, added if it is new.
    fn look(&mut self, at: &[u8], name: &[u8], child: &[u8]) -> Result<Option<Kind>, Error> {
        if let Some(known) = self.known.get(child) {
            return Ok(known.as_ref().map(|(_, kind)| kind.clone()));
        }
        let Some(Some((parent, _))) = self.known.get(at) else { return Ok(None) };
        let (parent, path) = (*parent, CString::new(child.to_vec()).unwrap_or_default());
        let Ok(attr) = host_attr(&path, false) else {
            self.known.insert(child.to_vec(), None);
            return Ok(None);
        };
        let target = attr.is_symlink().then(|| readlinkat(rustix::fs::CWD, &path, Vec::new()).ok()).flatten();
        let body = target.as_ref().map(|target| target.to_bytes());
        let node = with_inode(&path, &attr, body, |inode| self.loader.add(parent, name, inode))
            .map_err(|e| failed(child, e))?;
        self.loader.set_nlink(node, u32::try_from(attr.nlink).unwrap_or(u32::MAX));
        let kind = match body {
            Some(target) => Kind::Link(target.to_vec()),
            None if attr.is_dir() => Kind::Dir,
            None if attr.is_file() => Kind::File,
            None => Kind::Special,
        };
        self.known.insert(child.to_vec(), Some((node, kind.clone())));
        Ok(Some(kind))
    }
}

fn failed(path: &[u8], errno: rcuwalk::Errno) -> Error {
    Error::engine("importing", path, errno, "")
}

/// The components of a path, the last first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).rev().map(<[u8]>::to_vec).collect()
}
