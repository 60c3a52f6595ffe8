//! Trees for the tests: what is in one, and random calls that change one.

use rcuwalk::changes::{Change, ROOT_KEY};
use rcuwalk::changes::{PAGE_SIZE, PageState};
use rcuwalk::uapi::*;
use rcuwalk::{Errno, Task, Vfs};
use std::collections::BTreeMap;

/// Everything about one path: attributes, the inode among those of the tree, contents with their holes; of a directory its names in
/// their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Facts {
    pub(crate) inode: String,
    pub(crate) pages: BTreeMap<u64, (u8, Vec<u8>)>,
    pub(crate) names: Vec<Vec<u8>>,
}

/// The whole tree by path, read without leaving a trace.
pub(crate) fn snapshot(vfs: &Vfs) -> BTreeMap<Vec<u8>, Facts> {
    let changes = vfs.loader().watch(vfs, &[], 0).expect("nobody watches it");
    let mut nodes = BTreeMap::new();
    let mut names: BTreeMap<u64, Vec<(u32, Vec<u8>, u64)>> = BTreeMap::new();
    changes.drain(|change| match change {
        Change::Node(node) => {
            let mut pages = BTreeMap::new();
            if let Some(data) = node.data() {
                data.for_each_page(0..u64::MAX, |page, state| {
                    let told = match state {
                        PageState::Reserved => (0, Vec::new()),
                        PageState::Zeroed => (1, Vec::new()),
                        PageState::Data(bytes) => (2, bytes.to_vec()),
                    };
                    pages.insert(page, told);
                });
            }
            let inode = format!("{:?} {} {}", node.inode, node.nlink, node.unread);
            nodes.insert(node.key, Facts { inode, pages, names: Vec::new() });
        }
        Change::Name { dir, name, to: Some((key, order)) } => {
            names.entry(dir).or_default().push((order, name.to_vec(), key));
        }
        Change::Name { .. } | Change::Gone(_) => unreachable!("nothing was there before"),
    });
    let mut tree = BTreeMap::new();
    let mut dirs = vec![(ROOT_KEY, Vec::new())];
    while let Some((key, path)) = dirs.pop() {
        let mut below = names.remove(&key).unwrap_or_default();
        below.sort();
        let mut facts: Facts = nodes[&key].clone();
        facts.names = below.iter().map(|(_, name, _)| name.clone()).collect();
        tree.insert(path.clone(), facts);
        dirs.extend(below.into_iter().map(|(_, name, key)| (key, [&path[..], b"/", &name].concat())));
    }
    tree
}

/// Fails, telling the first difference, unless two trees are the same.
pub(crate) fn assert_same(a: &BTreeMap<Vec<u8>, Facts>, b: &BTreeMap<Vec<u8>, Facts>) {
    for (path, facts) in a {
        let path_text = String::from_utf8_lossy(path);
        let other = b.get(path).unwrap_or_else(|| panic!("{path_text} is missing"));
        assert_eq!(facts.inode, other.inode, "{path_text}");
        assert_eq!(facts.names, other.names, "{path_text}");
        assert!(facts.pages == other.pages, "the contents of {path_text} differ");
    }
    assert_eq!(a.len(), b.len(), "more is there than was");
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    pub(crate) fn path(&mut self) -> Vec<u8> {
        let mut path = Vec::new();
        for _ in 0..1 + self.below(3) {
            path.push(b'/');
            path.push(b'a' + self.below(5) as u8);
            if self.below(10) == 0 {
                path.extend([b'x'; 200]);
            }
        }
        path
    }
}

/// One random call; most succeed now and then.
pub(crate) fn call(task: &Task, random: &mut Random) -> Result<(), Errno> {
    let (a, b) = (random.path(), random.path());
    let done = |fd: i32, result: Result<(), Errno>| {
        task.close(fd)?;
        result
    };
    match random.below(18) {
        0..3 => task.mkdir(&a, 0o755),
        3 => task.rmdir(&a),
        4 => task.unlink(&a),
        5 => task.link(&a, &b),
        6 => task.symlink(&b, &a),
        7 => task.rename(&a, &b),
        8 => task.renameat2(AT_FDCWD, &a, AT_FDCWD, &b, RENAME_EXCHANGE),
        9 => task.renameat2(AT_FDCWD, &a, AT_FDCWD, &b, RENAME_WHITEOUT),
        10 => task.mknod(&a, [S_IFIFO, S_IFSOCK, S_IFBLK][random.below(3) as usize] | 0o600, makedev(8, 300)),
        11 => task.chmod(&a, random.below(0o7777) as u32),
        12 => {
            let value = vec![7; random.below(9000) as usize];
            task.setxattr(&a, [&b"user.x"[..], b"trusted.y"][random.below(2) as usize], &value, 0)
        }
        13 => {
            let fd = task.open(b"/", O_TMPFILE | O_RDWR, 0o600)?;
            task.write(fd, b"nameless")?;
            done(fd, task.linkat(fd, b"", AT_FDCWD, &a, AT_EMPTY_PATH))
        }
        14 => {
            let fd = task.open(&a, O_RDWR, 0)?;
            let (at, len) = (random.below(300_000) as i64, 1 + random.below(100_000) as i64);
            let mode = [0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE];
            done(fd, task.fallocate(fd, mode[random.below(3) as usize], at, len))
        }
        15 => task.truncate(&a, random.below(100_000) as i64),
        16 => {
            let times =
                [-5_000_000_000, random.below(1 << 40) as i64].map(|sec| Timespec { sec, nsec: 999_999_999 });
            task.utimensat(AT_FDCWD, Some(&a), Some(times), AT_SYMLINK_NOFOLLOW)
        }
        _ => {
            let fd = task.open(&a, O_CREAT | O_RDWR, 0o640)?;
            let most = [100, 3 * PAGE_SIZE as u64][random.below(2) as usize];
            let data = vec![1 + random.below(255) as u8; random.below(most) as usize];
            let at = [0, random.below(400_000)][random.below(2) as usize];
            done(fd, task.pwrite(fd, &data, at as i64).map(drop))
        }
    }
}
