//! Peers that are linked in.

use std::sync::Arc;

use axfs_ramfs::{DirNode, RamFileSystem};
use axfs_vfs::{VfsNodeOps, VfsNodeType, VfsOps};
use vfs::{FileSystem, MemoryFS, VfsFileType};

use super::{DIRECTORY, FILE, Linked, NOT_FOUND, Peer, Tree};
use rcuwalk_measure::Error;
use rcuwalk_measure::engines::Value;

/// `MemoryFS` of the crate vfs: a map from whole paths.
pub(super) struct VfsCrate(MemoryFS);

impl VfsCrate {
    pub(super) fn new(Tree { dirs, files, .. }: &Tree) -> Result<VfsCrate, Error> {
        let fs = MemoryFS::new();
        let made = dirs
            .iter()
            .try_for_each(|dir| fs.create_dir(dir))
            .and_then(|()| files.iter().try_for_each(|file| fs.create_file(file).map(drop)));
        made.map_err(|e| Error::new("making a tree", "vfs", e.to_string(), ""))?;
        Ok(VfsCrate(fs))
    }
}

impl Linked for VfsCrate {
    fn peer(&self) -> Peer {
        Peer { name: "vfs MemoryFS", leaves_out: "walk, permissions, links, `..`" }
    }

    #[inline(always)]
    fn stat(&self, path: &str) -> Value {
        match self.0.metadata(path) {
            Ok(meta) if meta.file_type == VfsFileType::Directory => DIRECTORY,
            Ok(_) => FILE,
            Err(_) => NOT_FOUND,
        }
    }

    #[inline(always)]
    fn open_close(&self, path: &str) -> Value {
        self.0.open_file(path).map_or(NOT_FOUND, |_| FILE)
    }
}

/// The RAM file system of ArceOS: a map in each directory, each behind a lock.
pub(super) struct Axfs {
    root: Arc<DirNode>,
}

impl Axfs {
    pub(super) fn new(Tree { dirs, files, .. }: &Tree) -> Result<Axfs, Error> {
        let fs = RamFileSystem::new();
        let root = fs.root_dir();
        let dirs = dirs.iter().map(|dir| (dir, VfsNodeType::Dir));
        for (path, kind) in dirs.chain(files.iter().map(|file| (file, VfsNodeType::File))) {
            root.create(path.trim_start_matches('/'), kind)
                .map_err(|e| Error::new("making a tree", "axfs_ramfs", format!("{e:?}"), ""))?;
        }
        Ok(Axfs { root: fs.root_dir_node() })
    }
}

impl Linked for Axfs {
    fn peer(&self) -> Peer {
        Peer { name: "axfs_ramfs", leaves_out: "permissions, links" }
    }

    #[inline(always)]
    fn stat(&self, path: &str) -> Value {
        match Arc::clone(&self.root).lookup(&path[1..]).and_then(|node| node.get_attr()) {
            Ok(attr) if attr.is_dir() => DIRECTORY,
            Ok(_) => FILE,
            Err(_) => NOT_FOUND,
        }
    }

    #[inline(always)]
    fn open_close(&self, path: &str) -> Value {
        let opened = Arc::clone(&self.root).lookup(&path[1..]).and_then(|node| {
            node.open()?;
            node.release()
        });
        opened.map_or(NOT_FOUND, |()| FILE)
    }
}
