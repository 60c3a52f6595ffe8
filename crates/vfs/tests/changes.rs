//! To apply the changes that are told is to have the tree that is there.

use rcuwalk::changes::{Change, Changes, ROOT_KEY};
use rcuwalk::changes::{PAGE_SIZE, PageState};
use rcuwalk::uapi::*;
use rcuwalk::{Cred, Errno, Task, Vfs};
use std::collections::BTreeMap;

/// A page, as it was told: 0 reserved, 1 zeroed, 2 with contents.
type Page = (u8, Vec<u8>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inode {
    facts: String,
    pages: BTreeMap<u64, Page>,
}

/// What a keeper of the tree has.
#[derive(Debug, Default)]
struct Mirror {
    nodes: BTreeMap<u64, Inode>,
    names: BTreeMap<(u64, Vec<u8>), u64>,
}

impl Mirror {
    fn follow(&mut self, changes: &Changes) {
        changes.drain(|change| match change {
            Change::Gone(key) => {
                assert!(self.nodes.remove(&key).is_some(), "only what was told of can go");
                self.names.retain(|(dir, _), _| *dir != key);
            }
            Change::Node(node) => {
                let facts = format!("{:?} {} {}", node.inode, node.nlink, node.unread);
                let mut pages = self.nodes.remove(&node.key).map_or(BTreeMap::new(), |inode| inode.pages);
                for range in node.changed_pages() {
                    pages.retain(|page, _| !range.contains(page));
                    if let Some(data) = node.data() {
                        data.for_each_page(range.clone(), |page, state| {
                            let told = match state {
                                PageState::Reserved => (0, Vec::new()),
                                PageState::Zeroed => (1, Vec::new()),
                                PageState::Data(bytes) => (2, bytes.to_vec()),
                            };
                            pages.insert(page, told);
                        });
                    }
                }
                self.nodes.insert(node.key, Inode { facts, pages });
            }
            Change::Name { dir, name, to: Some((key, _)) } => {
                self.names.insert((dir, name.to_vec()), key);
            }
            Change::Name { dir, name, to: None } => {
                self.names.remove(&(dir, name.to_vec()));
            }
        });
    }

    /// The tree by path, and how many inodes there are.
    fn tree(&self) -> (BTreeMap<Vec<u8>, Inode>, usize) {
        let mut tree = BTreeMap::from([(b"/".to_vec(), self.nodes[&ROOT_KEY].clone())]);
        let mut dirs = vec![(ROOT_KEY, Vec::new())];
        while let Some((dir, path)) = dirs.pop() {
            for ((_, name), key) in self.names.range((dir, Vec::new())..(dir + 1, Vec::new())) {
                let path = [&path[..], b"/", name].concat();
                tree.insert(path.clone(), self.nodes[key].clone());
                dirs.push((*key, path));
            }
        }
        (tree, self.nodes.len())
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn path(random: &mut Random) -> Vec<u8> {
    let mut path = Vec::new();
    for _ in 0..1 + random.below(3) {
        path.push(b'/');
        path.push(b'a' + random.below(4) as u8);
        if random.below(10) == 0 {
            path.extend([b'x'; 60]);
        }
    }
    path
}

/// One random call; most succeed now and then.
fn call(task: &Task, random: &mut Random) -> Result<(), Errno> {
    let (a, b) = (path(random), path(random));
    let rename = |flags| task.renameat2(AT_FDCWD, &a, AT_FDCWD, &b, flags);
    let open = |flags| task.open(&a, flags, 0o640);
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
        7 => rename(0),
        8 => rename(RENAME_EXCHANGE),
        9 => rename(RENAME_WHITEOUT),
        10 => task.mknod(&a, S_IFIFO | 0o600, 0),
        11 => task.chmod(&a, random.below(0o7777) as u32),
        12 => task.setxattr(&a, b"user.x", &random.0.to_le_bytes(), 0),
        13 => {
            // Made without a name, and named afterwards, or never.
            let fd = task.open(b"/", O_TMPFILE | O_RDWR, 0o600)?;
            task.write(fd, b"nameless")?;
            let linked =
                if random.below(2) == 0 { task.linkat(fd, b"", AT_FDCWD, &a, AT_EMPTY_PATH) } else { Ok(()) };
            done(fd, linked)
        }
        14 => {
            let fd = open(O_RDWR)?;
            let (at, len) = (random.below(100_000) as i64, 1 + random.below(20_000) as i64);
            let mode = [0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE];
            done(fd, task.fallocate(fd, mode[random.below(3) as usize], at, len))
        }
        15 => task.truncate(&a, random.below(50_000) as i64),
        16 => {
            // Written to after its name is gone.
            let fd = open(O_CREAT | O_RDWR)?;
            task.unlink(&a)?;
            task.write(fd, b"orphan")?;
            done(fd, Ok(()))
        }
        _ => {
            let fd = open(O_CREAT | O_RDWR)?;
            let data = vec![random.below(256) as u8; random.below(3 * PAGE_SIZE as u64) as usize];
            let written = task.pwrite(fd, &data, random.below(200_000) as i64);
            done(fd, written.map(drop))
        }
    }
}

#[test]
fn a_mirror_that_follows_has_the_tree() {
    for seed in 1..=12 {
        let vfs = Vfs::new().unwrap();
        let task = vfs.task(Cred::root());
        let mut random = Random(seed * 0x9e37_79b9_7f4a);
        for _ in 0..random.below(100) {
            let _ = call(&task, &mut random);
        }
        let changes = vfs.loader().watch(&vfs, &[], 0).unwrap();
        assert_eq!(vfs.loader().watch(&vfs, &[], 0).err(), Some(Errno::EBUSY));
        let mut mirror = Mirror::default();
        for _ in 0..60 {
            for _ in 0..random.below(60) {
                let _ = call(&task, &mut random);
            }
            mirror.follow(&changes);
        }
        mirror.follow(&changes);
        assert!(changes.is_empty() && changes.unsaved() == 0);
        drop(changes);
        let mut fresh = Mirror::default();
        let changes = vfs.loader().watch(&vfs, &[], 0).unwrap();
        fresh.follow(&changes);
        let (followed, whole) = (mirror.tree(), fresh.tree());
        assert!(followed.0.len() > 5, "something is left to compare");
        assert_eq!(followed.1, whole.1, "inodes");
        for (path, inode) in &whole.0 {
            assert_eq!(followed.0.get(path), Some(inode), "{}", String::from_utf8_lossy(path));
        }
        assert_eq!(followed.0.len(), whole.0.len());
    }
}

/// Names are put where there are none, taken away, and put there again, without end.
#[test]
fn what_comes_and_goes_leaves_nothing() {
    let vfs = Vfs::new().unwrap();
    let task = vfs.task(Cred::root());
    let changes = vfs.loader().watch(&vfs, &[], 0).unwrap();
    changes.drain(|_| ());
    for i in 0..1000 {
        let name = format!("/f{i}");
        task.close(task.creat(name.as_bytes(), 0o600).unwrap()).unwrap();
        task.unlink(name.as_bytes()).unwrap();
    }
    let mut told = Vec::new();
    changes.drain(|change| told.push(format!("{change:?}")));
    assert_eq!(told.len(), 1, "the root's times: {told:?}");
}

/// Writers that append a counter to two files, the first one first: a state between calls has at most one more in the first.
#[test]
fn what_is_told_lies_between_calls() {
    let vfs = Vfs::new().unwrap();
    let task = vfs.task(Cred::root());
    let fds = [b"/one", b"/two"].map(|path| task.open(path, O_CREAT | O_RDWR, 0o600).unwrap());
    let changes = vfs.loader().watch(&vfs, &[], 0).unwrap();
    let writer = std::thread::spawn({
        let task = task.thread();
        move || {
            for _ in 0..20_000 {
                for fd in fds {
                    task.write(fd, &[7; 3]).unwrap();
                }
            }
        }
    });
    let mut sizes = [0; 2];
    let mut rounds = 0;
    while !writer.is_finished() || rounds < 3 {
        changes.drain(|change| {
            if let Change::Node(node) = change
                && node.key != ROOT_KEY
            {
                let data = node.data().map_or(0, |data| data.size());
                assert_eq!(node.inode.size, data, "attributes and contents agree");
                sizes[(node.key - 2) as usize] = data;
            }
        });
        assert!(sizes[0] == sizes[1] || sizes[0] == sizes[1] + 3, "{sizes:?}");
        rounds += 1;
    }
    writer.join().unwrap();
}
