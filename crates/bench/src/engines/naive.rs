//! What one writes first: a map in every directory and one lock around them all.
//!
//! Mode bits are checked for owner, group and others; there are no capabilities and no ACLs. It is here to show what
//! the engine's care buys, and where it buys nothing.

use std::collections::HashMap;
use std::ffi::CStr;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError, RwLock};

use rcuwalk_host::Identity;
use rcuwalk_measure::attr::Attr;
use rcuwalk_measure::engines::{Engine, Value, attr_value, error_value, unit_value};

use crate::tree::{Entry, Tree};

const ENOENT: i32 = 2;
const EBADF: i32 = 9;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;
const ELOOP: i32 = 40;

const EXEC: u32 = 1;
const READ: u32 = 4;

type Id = usize;
const ROOT: Id = 0;

struct Node {
    attr: Attr,
    parent: Id,
    children: HashMap<Vec<u8>, Id>,
    target: Vec<u8>,
}

/// A tree of maps behind one lock, seen by one identity.
pub struct Naive {
    nodes: RwLock<Vec<Node>>,
    files: Mutex<Vec<Option<Id>>>,
    who: Identity,
}

impl Naive {
    /// An empty tree whose root has the attributes `root`.
    pub fn new(root: Attr, who: &Identity) -> Naive {
        let root = Node { attr: root, parent: ROOT, children: HashMap::new(), target: Vec::new() };
        Naive { nodes: RwLock::new(vec![root]), files: Mutex::new(Vec::new()), who: who.clone() }
    }

    /// The host's tree, with the directories that lead to it.
    pub fn of(tree: &Tree, who: &Identity) -> Naive {
        let attr =
            |path: &CStr| rcuwalk_measure::attr::host_attr(path, false).unwrap_or(tree.entries[0].attr);
        let naive = Naive::new(attr(c"/"), who);
        for path in tree.ancestors().iter().skip(1) {
            naive.insert(path.to_bytes(), attr(path), Vec::new());
        }
        for entry in tree.entries.iter().filter(|e| e.path.to_bytes() != b"/") {
            naive.insert(entry.path.to_bytes(), entry.attr, target_of(entry));
        }
        naive
    }

    /// The host's tree alone, its top as the root.
    pub fn below(tree: &Tree, who: &Identity) -> Naive {
        let naive = Naive::new(tree.entries[0].attr, who);
        for entry in &tree.entries[1..] {
            let path = &entry.path.to_bytes()[tree.dir.to_bytes().len()..];
            naive.insert(path, entry.attr, target_of(entry));
        }
        naive
    }

    /// Adds `path`, whose parent exists; a path without one is ignored.
    pub fn insert(&self, path: &[u8], attr: Attr, target: Vec<u8>) {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let cut = path.iter().rposition(|&b| b == b'/').unwrap_or(0);
        let (parent, name) = (&path[..cut], &path[cut..]);
        let mut at = ROOT;
        for step in parent.split(|&b| b == b'/').filter(|step| !step.is_empty()) {
            match nodes[at].children.get(step) {
                Some(&next) => at = next,
                None => return,
            }
        }
        let id = nodes.len();
        nodes.push(Node { attr, parent: at, children: HashMap::new(), target });
        let name = name.strip_prefix(b"/").unwrap_or(name);
        nodes[at].children.insert(name.to_vec(), id);
    }

    fn may(&self, attr: &Attr, want: u32) -> bool {
        if self.who.uid == 0 {
            return true;
        }
        let shift = if attr.uid == self.who.uid {
            6
        } else if attr.gid == self.who.gid || self.who.groups.contains(&attr.gid) {
            3
        } else {
            0
        };
        attr.mode >> shift & want == want
    }

    fn resolve(&self, nodes: &[Node], path: &[u8]) -> Result<Id, i32> {
        self.resolve_from(nodes, ROOT, path, &mut 0)
    }

    fn resolve_from(&self, nodes: &[Node], from: Id, path: &[u8], links: &mut u32) -> Result<Id, i32> {
        if path.is_empty() {
            return Err(ENOENT);
        }
        let mut at = if path[0] == b'/' { ROOT } else { from };
        for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            let node = &nodes[at];
            if !node.attr.is_dir() {
                return Err(ENOTDIR);
            }
            if !self.may(&node.attr, EXEC) {
                return Err(EACCES);
            }
            if name == b"." {
                continue;
            }
            if name == b".." {
                at = node.parent;
                continue;
            }
            let next = *node.children.get(name).ok_or(ENOENT)?;
            if nodes[next].attr.is_symlink() {
                *links += 1;
                if *links > 40 {
                    return Err(ELOOP);
                }
                at = self.resolve_from(nodes, at, &nodes[next].target, links)?;
            } else {
                at = next;
            }
        }
        if path.ends_with(b"/") && !nodes[at].attr.is_dir() {
            return Err(ENOTDIR);
        }
        Ok(at)
    }

    /// The attributes of `path`, links followed.
    ///
    /// # Errors
    ///
    /// The error number: ENOENT, ENOTDIR, EACCES, ELOOP.
    pub fn attr(&self, path: &[u8]) -> Result<Attr, i32> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        Ok(nodes[self.resolve(&nodes, path)?].attr)
    }

    fn open(&self, path: &[u8]) -> Result<usize, i32> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        let id = self.resolve(&nodes, path)?;
        if !self.may(&nodes[id].attr, READ) {
            return Err(EACCES);
        }
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let fd = files.iter().position(Option::is_none).unwrap_or_else(|| {
            files.push(None);
            files.len() - 1
        });
        files[fd] = Some(id);
        Ok(fd)
    }

    fn close(&self, fd: usize) -> Result<(), i32> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get_mut(fd).and_then(Option::take).map(drop).ok_or(EBADF)
    }
}

fn target_of(entry: &Entry) -> Vec<u8> {
    let read = || rustix::fs::readlink(&entry.path, Vec::new()).map_or_else(|_| Vec::new(), Into::into);
    if entry.attr.is_symlink() { read() } else { Vec::new() }
}

impl Engine for Naive {
    fn name(&self) -> &'static str {
        "naive"
    }

    #[inline(always)]
    fn stat(&self, path: &CStr) -> Value {
        match self.attr(path.to_bytes()) {
            Ok(attr) => {
                let attr = black_box(&attr);
                attr_value(attr.ino, attr.size, attr.mode)
            }
            Err(errno) => error_value(errno),
        }
    }

    #[inline(always)]
    fn statx(&self, path: &CStr) -> Value {
        self.stat(path)
    }

    #[inline(always)]
    fn access(&self, path: &CStr) -> Value {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        let allowed = self
            .resolve(&nodes, path.to_bytes())
            .and_then(|id| if self.may(&nodes[id].attr, READ) { Ok(()) } else { Err(EACCES) });
        unit_value(allowed, |errno| errno)
    }

    #[inline(always)]
    fn open_close(&self, path: &CStr) -> Value {
        let closed = self.open(path.to_bytes()).and_then(|fd| self.close(fd));
        unit_value(closed, |errno| errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcuwalk_measure::attr::host_attr;

    fn sample(uid: u32) -> Naive {
        let dir = Attr { mode: 0o040_755, uid: 0, gid: 0, ..host_attr(c"/", false).unwrap() };
        let file = Attr { mode: 0o100_640, uid: 5, gid: 7, ino: 99, ..dir };
        let link = Attr { mode: 0o120_777, ..dir };
        let naive = Naive::new(dir, &Identity::new(uid, uid, &[]));
        naive.insert(b"/d", dir, Vec::new());
        naive.insert(b"/d/f", file, Vec::new());
        naive.insert(b"/d/l", link, b"../d/./f".to_vec());
        naive.insert(b"/loop", link, b"/loop".to_vec());
        naive.insert(b"/shut", Attr { mode: 0o040_700, ..dir }, Vec::new());
        naive.insert(b"/shut/f", file, Vec::new());
        naive
    }

    #[test]
    fn walks_links_and_checks_modes() {
        let naive = sample(1000);
        assert_eq!(naive.attr(b"/d/l").unwrap().ino, 99);
        assert_eq!(naive.attr(b"/d/f/x"), Err(ENOTDIR));
        assert_eq!(naive.attr(b"/d/f/"), Err(ENOTDIR));
        assert_eq!(naive.attr(b"/no"), Err(ENOENT));
        assert_eq!(naive.attr(b"/loop"), Err(ELOOP));
        assert_eq!(naive.attr(b"/shut/f"), Err(EACCES));
        assert_eq!(naive.access(c"/d/f"), error_value(EACCES));
        assert_eq!(sample(5).access(c"/d/f"), 1);
        assert_eq!(sample(7).access(c"/d/l"), 1);
        assert_eq!(sample(0).attr(b"/shut/f").unwrap().ino, 99);
    }

    #[test]
    fn reuses_descriptors() {
        let naive = sample(5);
        assert_eq!(naive.open_close(c"/d/f"), 1);
        assert_eq!(naive.open(b"/d/f"), Ok(0));
        assert_eq!(naive.open(b"/d/f"), Ok(1));
        assert_eq!(naive.close(0), Ok(()));
        assert_eq!(naive.close(0), Err(EBADF));
        assert_eq!(naive.open(b"/d/f"), Ok(0));
    }
}
