//! Reading directories, held to a list of names and offsets that is searched from end to end.

use rcuwalk::uapi::*;
use rcuwalk::{Cred, Errno, NewInode, Task, Vfs};

/// The position behind all entries.
const END: i64 = i32::MAX as i64;

/// A directory as tmpfs keeps it, written down as simply as can be.
#[derive(Default)]
struct Model {
    /// Names and offsets, the name that came last first.
    list: Vec<(String, i64)>,
    next: i64,
}

impl Model {
    fn at(&self, name: &str) -> Option<usize> {
        self.list.iter().position(|(n, _)| n == name)
    }

    /// Takes the next offset that is free, from 3 on after the last one.
    fn take(&mut self) -> i64 {
        let free = |offset: &i64| self.list.iter().all(|(_, o)| o != offset);
        let found = (self.next..END).chain(3..END).find(free).expect("a free offset");
        self.next = found + 1;
        found
    }

    fn add(&mut self, name: &str) {
        let offset = self.take();
        self.list.insert(0, (name.to_owned(), offset));
    }

    fn remove(&mut self, name: &str) {
        self.list.remove(self.at(name).expect("it is there"));
    }

    fn rename(&mut self, old: &str, new: &str, whiteout: bool) {
        let offset = match self.at(new) {
            Some(at) => self.list.remove(at).1,
            None => self.take(),
        };
        if whiteout {
            let offset = {
                // What the moved name gets is in use already.
                self.list.push((String::new(), offset));
                let taken = self.take();
                self.list.pop();
                taken
            };
            let at = self.at(old).expect("it is there");
            self.list.remove(at);
            self.list.insert(0, (old.to_owned(), offset));
        } else {
            self.remove(old);
        }
        self.list.insert(0, (new.to_owned(), offset));
    }

    fn exchange(&mut self, a: &str, b: &str) {
        let [offset_a, offset_b] = [a, b].map(|n| self.list[self.at(n).expect("it is there")].1);
        self.remove(a);
        self.remove(b);
        self.list.insert(0, (a.to_owned(), offset_a));
        self.list.insert(0, (b.to_owned(), offset_b));
    }

    /// What is read from a position of at least 2: names, and the position of the next one.
    fn read(&self, from: i64) -> Vec<(String, i64)> {
        let up_to = |(at, (_, offset)): (usize, &(String, i64))| (*offset <= from).then_some((*offset, at));
        let start = match from {
            2 => 0,
            END => self.list.len(),
            _ => self.list.iter().enumerate().filter_map(up_to).max().map_or(0, |(_, at)| at),
        };
        let rest = &self.list[start..];
        let behind = rest.iter().skip(1).map(|(_, offset)| *offset).chain([END]);
        rest.iter().zip(behind).map(|((name, _), next)| (name.clone(), next)).collect()
    }
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

fn read(task: &Task, fd: i32, from: i64) -> Vec<(String, i64)> {
    task.lseek(fd, from, SEEK_SET).expect("any position");
    let mut all = Vec::new();
    while task.getdents(fd, &mut all, 7).expect("getdents") != 0 {}
    assert_eq!(task.lseek(fd, 0, SEEK_CUR), Ok(END));
    all.into_iter().map(|e| (String::from_utf8(e.name).expect("as it was made"), e.off)).collect()
}

/// Changes `/d` at random in the engine and in the model, and compares them.
fn compare(task: &Task, model: &mut Model, names: usize, calls: usize, seed: u64) {
    let mut dice = Dice(seed);
    let fd = task.open(b"/d", O_RDONLY, 0).expect("open");
    let path = |name: &str| format!("/d/{name}").into_bytes();
    for call in 0..calls {
        // Waves, so that the directory is full at times, and nearly empty at others.
        let grows = (call / (3 * names)).is_multiple_of(2);
        let (a, b) = (dice.below(names).to_string(), dice.below(names).to_string());
        match (model.at(&a).is_some(), model.at(&b).is_some(), dice.below(8)) {
            (false, _, 0..=3) if grows => {
                task.mknod(&path(&a), 0o644, 0).expect("mknod");
                model.add(&a);
            }
            (true, _, 0..=3) if !grows => {
                task.unlink(&path(&a)).expect("unlink");
                model.remove(&a);
            }
            (true, _, 4 | 5) if a != b => {
                task.rename(&path(&a), &path(&b)).expect("rename");
                model.rename(&a, &b, false);
            }
            (true, true, 6) if a != b => {
                task.renameat2(AT_FDCWD, &path(&a), AT_FDCWD, &path(&b), RENAME_EXCHANGE).expect("exchange");
                model.exchange(&a, &b);
            }
            (true, _, 7) if a != b => {
                task.renameat2(AT_FDCWD, &path(&a), AT_FDCWD, &path(&b), RENAME_WHITEOUT).expect("whiteout");
                model.rename(&a, &b, true);
            }
            _ => continue,
        }
        if call % 16 == 0 {
            assert_eq!(read(task, fd, 2), model.read(2), "call {call}");
            let near = model.list.get(dice.below(model.list.len().max(1))).map_or(3, |&(_, offset)| offset);
            for from in [near - 1, near, near + 1, 3, END - 1, END, END + 1, i64::MAX] {
                let from = from.max(2);
                assert_eq!(read(task, fd, from), model.read(from), "call {call}, from {from}");
            }
        }
    }
    task.close(fd).expect("close");
}

#[test]
fn order_and_offsets_are_those_of_a_plain_list() {
    for (names, seed) in [(5, 1), (70, 2), (400, 3)] {
        let vfs = Vfs::new().expect("a file system");
        let task = vfs.task(Cred::root());
        task.mkdir(b"/d", 0o755).expect("mkdir");
        compare(&task, &mut Model { next: 3, ..Model::default() }, names, 20_000, seed);
    }
}

/// When the last offset has been given, the lowest that is free comes next.
#[test]
fn offsets_begin_again_where_one_is_free() {
    let vfs = Vfs::new().expect("a file system");
    let task = vfs.task(Cred::root());
    task.mkdir(b"/d", 0o755).expect("mkdir");
    let mut model = Model { next: 3, ..Model::default() };
    for name in 0..100 {
        task.mknod(format!("/d/{name}").as_bytes(), 0o644, 0).expect("mknod");
        model.add(&name.to_string());
    }
    {
        let mut loader = vfs.loader();
        let root = loader.root();
        let dir = loader.lookup(root, b"d").expect("it is there");
        let node = loader.add(dir, b"100", &NewInode::new(S_IFREG | 0o644)).expect("add");
        assert_eq!(loader.set_offset(node, 102), Err(Errno::EINVAL), "not behind the others");
        loader.set_offset(node, END as u32 - 5).expect("behind all");
        model.list.insert(0, ("100".to_owned(), END - 5));
        model.next = END - 4;
    }
    compare(&task, &mut model, 150, 20_000, 4);
    assert!(model.next < END - 5, "it began again");
}

/// A buffer that is too small for the next record moves the position to it all the same.
#[test]
fn position_of_an_entry_without_room() {
    let vfs = Vfs::new().expect("a file system");
    let task = vfs.task(Cred::root());
    task.mkdir(b"/d", 0o755).expect("mkdir");
    task.mknod(b"/d/a", 0o644, 0).expect("mknod");
    let fd = task.open(b"/d", O_RDONLY, 0).expect("open");
    task.lseek(fd, 2, SEEK_SET).expect("lseek");
    assert_eq!(task.getdents64(fd, &mut [0; 10]), Err(Errno::EINVAL));
    assert_eq!(task.lseek(fd, 0, SEEK_CUR), Ok(3));
    task.mknod(b"/d/b", 0o644, 0).expect("mknod");
    assert_eq!(read(&task, fd, 3), [("a".to_owned(), END)], "b came after the position");
}
