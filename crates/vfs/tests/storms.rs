//! Storms of changes under walks without end.
//!
//! In the first, one writer keeps a record of what the tree is after each change, and every answer that readers got is
//! held against the moments of its call: see [`history`]. In the second there are many writers, and what they leave
//! behind has to add up: links, references, names.

mod history;
mod setfacl;

use history::{Answer, Object, Question, State, allowed};
use rcuwalk::uapi::*;
use rcuwalk::{Cred, Errno, PathTableOptions, Task, Vfs, WalkMode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// Few names, so that walks and changes meet.
const NAMES: [&str; 3] = ["a", "b", "c"];

fn path_of(names: &[&str]) -> Vec<u8> {
    names.iter().flat_map(|name| [b"/", name.as_bytes()].concat()).collect()
}

fn random_path(random: &mut Random) -> Vec<&'static str> {
    (0..1 + random.below(3)).map(|_| random.pick(&NAMES)).collect()
}

/// A small file system, so that slots are soon used again.
fn small(mode: WalkMode) -> Vfs {
    let table = PathTableOptions::default().with_entries(1 << 8).with_at_first_sight(true);
    let vfs = Vfs::builder().capacity(1 << 10).path_table(table).build().unwrap();
    vfs.set_walk_mode(mode);
    vfs
}

// ---- one writer, every answer checked ---------------------------------------------------------------------------------

/// What was asked and answered, and between which moments.
struct Observation {
    first: usize,
    last: usize,
    path: Vec<&'static str>,
    question: Question,
    answer: Answer,
}

/// The moments so far. A change is begun before it is made and ended after.
#[derive(Default)]
struct Log {
    begun: AtomicUsize,
    ended: AtomicUsize,
    done: AtomicBool,
}

/// Changes the tree, and knows what it is.
struct Writer<'a> {
    root: Task,
    /// A thread of root's that became the user: what one opens, the other has open.
    judge: Task,
    random: Random,
    log: &'a Log,
    states: Vec<State>,
    /// Since when objects have no name.
    gone: BTreeMap<u64, usize>,
}

/// Who asks.
const USER: u32 = 1000;

/// What the mounts show.
const SOURCE: &str = "m";

impl Writer<'_> {
    fn ino(&self, path: &[u8]) -> u64 {
        self.root.lstat(path).unwrap().ino
    }

    /// Whether the user may search and read a directory, or read a file, once it is open.
    fn is_open(&self, path: &[u8]) -> bool {
        let fd = self.root.open(path, O_PATH, 0).unwrap();
        let is_dir = self.root.fstat(fd).unwrap().mode & S_IFMT == S_IFDIR;
        let mode = if is_dir { R_OK | X_OK } else { R_OK };
        let answer = self.judge.faccessat2(fd, b"", mode, AT_EMPTY_PATH | AT_EACCESS);
        self.root.close(fd).unwrap();
        answer.is_ok()
    }

    fn state(&self) -> &State {
        &self.states[self.states.len() - 1]
    }

    /// Makes one change, or fails to.
    fn step(&mut self) {
        self.log.begun.fetch_add(1, Ordering::SeqCst);
        let (old, new) = (random_path(&mut self.random), random_path(&mut self.random));
        let mut next = self.state().clone();
        self.change(&old, &new, &mut next);
        self.forget(&mut next);
        self.states.push(next);
        if self.states.len().is_multiple_of(20) {
            self.verify();
        }
        self.log.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether the tree is what the record says.
    fn verify(&self) {
        let longer = |path: &Vec<&'static str>| NAMES.map(|name| [&path[..], &[name]].concat());
        let (mut paths, mut at) = (vec![vec![SOURCE]], vec![Vec::new()]);
        for _ in 0..3 {
            at = at.iter().flat_map(longer).collect();
            paths.extend(at.iter().cloned());
        }
        for path in paths {
            let seen = self.root.stat(&path_of(&path)).ok();
            let known = self.state().resolve(&path).map(|(_, ino)| ino);
            assert_eq!(seen.as_ref().map(|stat| stat.ino), known, "{path:?}");
            if let Some(ino) = known {
                assert_eq!(self.is_open(&path_of(&path)), self.state().is_open(ino), "{path:?}");
            }
        }
    }

    /// Leaves out what lost its last name so long ago that no walk that is judged can be in it.
    fn forget(&mut self, next: &mut State) {
        let now = self.states.len();
        let named: BTreeSet<u64> = next.all_named();
        for ino in next.objects.keys().filter(|ino| !named.contains(ino)) {
            self.gone.entry(*ino).or_insert(now);
        }
        self.gone.retain(|ino, since| {
            let old = now - *since > SPAN;
            if old {
                next.objects.remove(ino);
            }
            !old && !named.contains(ino)
        });
    }

    fn change(&mut self, old: &[&'static str], new: &[&'static str], next: &mut State) {
        let (from, to) = (path_of(old), path_of(new));
        let root = &self.root;
        let (name, parent) = old.split_last().unwrap();
        let dir = next.resolve(parent).map(|(_, dir)| dir);
        let open = self.random.below(3) != 0;
        match self.random.below(12) {
            0 | 1 => {
                if let Ok(fd) = root.open(&from, O_CREAT | O_EXCL | O_WRONLY, 0o644) {
                    let ino = root.fstat(fd).unwrap().ino;
                    root.close(fd).unwrap();
                    next.objects.insert(ino, Object::File { open: true });
                    next.names_mut(dir.unwrap()).insert(name, ino);
                }
            }
            2 | 3 => {
                if root.mkdir(&from, 0o755).is_ok() {
                    let ino = self.ino(&from);
                    next.objects.insert(ino, Object::Dir { open: true, names: BTreeMap::new() });
                    next.names_mut(dir.unwrap()).insert(name, ino);
                }
            }
            4 => {
                if root.unlink(&from).is_ok() || root.rmdir(&from).is_ok() {
                    next.names_mut(dir.unwrap()).remove(name);
                }
            }
            5 => {
                if root.link(&from, &to).is_ok() {
                    let (ino, _) = next.resolve(old).unwrap();
                    self.place(new, ino, next);
                }
            }
            6 => {
                let Some((_, ino)) = next.resolve(old) else { return };
                let is_dir = matches!(next.objects[&ino], Object::Dir { .. });
                let done = match (is_dir, self.random.below(5)) {
                    (true, 0) => setfacl::keep_out(root, &from, USER),
                    (true, 1) => setfacl::let_in(root, &from, USER),
                    (true, 2) => setfacl::clear(root, &from),
                    (true, _) => root.chmod(&from, if open { 0o755 } else { 0o700 }),
                    (false, _) => root.chmod(&from, if open { 0o644 } else { 0o600 }),
                };
                assert!(matches!(done, Ok(()) | Err(Errno::ENODATA)), "{done:?}");
                let now = self.is_open(&from);
                match next.objects.get_mut(&ino).unwrap() {
                    Object::Dir { open, .. } | Object::File { open } => *open = now,
                    Object::Link { .. } => {}
                }
            }
            7 => {
                // One over the other, and mounts within what is mounted, would have to be told apart.
                let plain =
                    (1..=old.len()).all(|n| next.resolve(&old[..n]).is_some_and(|(ino, seen)| ino == seen));
                let source = path_of(&[SOURCE]);
                if plain && next.mounts.len() < 2 && root.mount(&source, &from, b"", MS_BIND, b"").is_ok() {
                    let covered = next.resolve(old).unwrap().0;
                    next.mounts.insert(covered, next.resolve(&[SOURCE]).unwrap().0);
                }
            }
            8 => {
                if root.umount2(&from, MNT_DETACH).is_ok() {
                    let (ino, _) = next.resolve(old).unwrap();
                    next.mounts.remove(&ino);
                }
            }
            9 => self.exchange(old, new, next),
            _ => self.rename(old, new, next),
        }
    }

    fn exchange(&mut self, old: &[&'static str], new: &[&'static str], next: &mut State) {
        let (root, from, to) = (&self.root, path_of(old), path_of(new));
        if root.renameat2(AT_FDCWD, &from, AT_FDCWD, &to, RENAME_EXCHANGE).is_ok() {
            let (a, b) = (next.resolve(old).unwrap().0, next.resolve(new).unwrap().0);
            let places = [(old, b), (new, a)].map(|(path, ino)| (self.parent(path, next), path, ino));
            for (dir, path, ino) in places {
                next.names_mut(dir).insert(path[path.len() - 1], ino);
            }
        }
    }

    fn rename(&mut self, old: &[&'static str], new: &[&'static str], next: &mut State) {
        let (root, from, to) = (&self.root, path_of(old), path_of(new));
        if root.rename(&from, &to).is_ok() {
            let ino = next.resolve(old).unwrap().0;
            // To another name of the same file nothing happens.
            if next.resolve(new).is_none_or(|(target, _)| target != ino) {
                let into = self.parent(new, next);
                let out_of = self.parent(old, next);
                next.names_mut(out_of).remove(old[old.len() - 1]);
                next.names_mut(into).insert(new[new.len() - 1], ino);
            }
        }
    }

    fn parent(&self, path: &[&'static str], state: &State) -> u64 {
        state.resolve(&path[..path.len() - 1]).unwrap().1
    }

    fn place(&self, path: &[&'static str], ino: u64, state: &mut State) {
        let dir = self.parent(path, state);
        state.names_mut(dir).insert(path[path.len() - 1], ino);
    }
}

/// Ends the readers, also when the writer panics.
struct Ending<'a>(&'a Log);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::SeqCst);
    }
}

fn ask(user: &Task, path: &[&str], question: Question) -> Answer {
    let bytes = path_of(path);
    let found = match question {
        Question::Stat => user.stat(&bytes).map(|stat| Answer::Found(stat.ino)),
        Question::Open => user.open(&bytes, O_RDONLY, 0).map(|fd| {
            let ino = user.fstat(fd).unwrap().ino;
            user.close(fd).unwrap();
            Answer::Opened(ino)
        }),
    };
    found.unwrap_or_else(|errno| match errno {
        Errno::ENOENT => Answer::Missing,
        Errno::EACCES => Answer::Refused,
        Errno::ENOTDIR => Answer::NotDir,
        other => panic!("{path:?}: {other}"),
    })
}

fn read(user: &Task, seed: u64, log: &Log) -> Vec<Observation> {
    let (mut random, mut seen) = (Random(seed), Vec::new());
    while !log.done.load(Ordering::SeqCst) {
        let path = random_path(&mut random);
        let question = if random.below(3) == 0 { Question::Open } else { Question::Stat };
        let first = log.ended.load(Ordering::SeqCst);
        let answer = ask(user, &path, question);
        let last = log.begun.load(Ordering::SeqCst);
        if last - first <= SPAN && seen.len() < OBSERVATIONS {
            seen.push(Observation { first, last, path, question, answer });
        }
    }
    seen
}

/// How many changes a storm makes.
const CHANGES: usize = 1_500;

/// Answers are judged whose calls saw so many changes at most; where a reader was held up for longer, nearly anything is
/// allowed.
const SPAN: usize = 40;

/// Answers that a reader remembers.
const OBSERVATIONS: usize = 20_000;

fn storm(mode: WalkMode, seed: u64) -> [usize; 5] {
    let vfs = small(mode);
    let root = vfs.task(Cred::root());
    root.chmod(b"/", 0o755).unwrap();
    root.mkdir(b"/m", 0o755).unwrap();
    root.close(root.creat(b"/m/a", 0o644).unwrap()).unwrap();
    let ino = |path: &[u8]| root.stat(path).unwrap().ino;
    let (top, m, a) = (ino(b"/"), ino(b"/m"), ino(b"/m/a"));
    let dir = |name, child| Object::Dir { open: true, names: BTreeMap::from([(name, child)]) };
    let objects = BTreeMap::from([(top, dir(SOURCE, m)), (m, dir("a", a)), (a, Object::File { open: true })]);
    let start = State { root: top, objects, mounts: BTreeMap::new() };
    let log = Log::default();
    let readers: Vec<Task> = (0..2).map(|_| vfs.task(Cred::user(USER, USER, &[]))).collect();
    let mut judge = root.thread();
    judge.set_cred(Cred::user(USER, USER, &[]));
    let mut writer =
        Writer { root, judge, random: Random(seed), log: &log, states: vec![start], gone: BTreeMap::new() };
    let observations: Vec<Observation> = std::thread::scope(|scope| {
        let log = &log;
        let readers: Vec<_> = readers
            .iter()
            .enumerate()
            .map(|(i, user)| scope.spawn(move || read(user, seed ^ (i as u64 + 1) << 32, log)))
            .collect();
        let ending = Ending(log);
        (0..CHANGES).for_each(|_| writer.step());
        drop(ending);
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
    });
    let mut reached = [0; 5];
    for seen in &observations {
        let states = &writer.states[seen.first..=seen.last.min(writer.states.len() - 1)];
        let allowed = allowed(states, &seen.path, seen.question);
        assert!(
            allowed.contains(&seen.answer),
            "{mode:?}: {:?} of {:?} gave {:?}; moments {} to {} allow {allowed:?}",
            seen.question,
            seen.path,
            seen.answer,
            seen.first,
            seen.last
        );
        reached[match seen.answer {
            Answer::Found(_) => 0,
            Answer::Opened(_) => 1,
            Answer::Refused => 2,
            Answer::Missing => 3,
            Answer::NotDir => 4,
        }] += 1;
    }
    reached
}

#[test]
fn every_answer_was_true_at_some_moment_of_its_call() {
    for mode in [WalkMode::Direct, WalkMode::Rcu, WalkMode::RefOnly] {
        let mut reached = [0; 5];
        // Two rounds at least, and more where readers were never on a processor while something was closed.
        for seed in 0..20 {
            let round = storm(mode, seed);
            (0..5).for_each(|i| reached[i] += round[i]);
            if seed > 0 && reached.iter().all(|&n| n > 10) {
                break;
            }
        }
        assert!(
            reached.iter().all(|&n| n > 10),
            "{mode:?}: not every kind of answer was reached: {reached:?}"
        );
    }
}

// ---- many writers, the sums checked -----------------------------------------------------------------------------------

fn rampage(task: &Task, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..2_000 {
        let (old, new) = (path_of(&random_path(&mut random)), path_of(&random_path(&mut random)));
        // What cannot be done is refused; what must not go wrong shows in the end.
        let _ = match random.below(15) {
            0 => task.mkdir(&old, 0o755),
            1 => task.creat(&old, 0o644).and_then(|fd| task.close(fd)),
            2 => task.unlink(&old),
            3 => task.rmdir(&old),
            4 => task.link(&old, &new),
            5 => task.symlink(&new, &old),
            6 => task.renameat2(AT_FDCWD, &old, AT_FDCWD, &new, RENAME_EXCHANGE),
            7 => task.open(&old, O_RDONLY, 0).map(drop),
            8 => task.close(random.below(8) as i32),
            9 => task.chdir(&old),
            10 => setfacl::keep_out(task, &old, USER),
            11 => setfacl::let_in(task, &old, USER),
            12 => setfacl::clear(task, &old),
            _ => task.rename(&old, &new),
        };
    }
}

/// Counts the names of each inode below `path`, and checks what the directories say of themselves.
fn count(task: &Task, path: &[u8], names: &mut BTreeMap<u64, u64>) -> u64 {
    let here = task.stat(&[path, b"/"].concat()).unwrap();
    let fd = task.open(&[path, b"/"].concat(), O_RDONLY | O_DIRECTORY, 0).unwrap();
    let mut entries = Vec::new();
    while task.getdents(fd, &mut entries, 64).unwrap() != 0 {}
    task.close(fd).unwrap();
    let mut subdirs = 0;
    for entry in entries.iter().filter(|entry| entry.name != b"." && entry.name != b"..") {
        let child = [path, b"/", &entry.name].concat();
        let stat = task.lstat(&child).unwrap();
        assert_eq!(u32::from(entry.kind) << 12, stat.mode & S_IFMT);
        if stat.mode & S_IFMT == S_IFDIR {
            subdirs += 1;
            let parent = task.stat(&[&child[..], b"/.."].concat()).unwrap();
            assert_eq!(parent.ino, here.ino, "the parent of {}", String::from_utf8_lossy(&child));
            let below = count(task, &child, names);
            assert_eq!(stat.nlink, 2 + below, "links of {}", String::from_utf8_lossy(&child));
        } else {
            *names.entry(stat.ino).or_default() += 1;
        }
    }
    subdirs
}

fn check_links(task: &Task, path: &[u8], names: &BTreeMap<u64, u64>) {
    let fd = task.open(&[path, b"/"].concat(), O_RDONLY | O_DIRECTORY, 0).unwrap();
    let mut entries = Vec::new();
    while task.getdents(fd, &mut entries, 64).unwrap() != 0 {}
    task.close(fd).unwrap();
    for entry in entries.iter().filter(|entry| entry.name != b"." && entry.name != b"..") {
        let child = [path, b"/", &entry.name].concat();
        let stat = task.lstat(&child).unwrap();
        if stat.mode & S_IFMT == S_IFDIR {
            check_links(task, &child, names);
        } else {
            assert_eq!(stat.nlink, names[&stat.ino], "links of {}", String::from_utf8_lossy(&child));
        }
    }
}

fn remove_all(task: &Task, path: &[u8]) {
    let fd = task.open(&[path, b"/"].concat(), O_RDONLY | O_DIRECTORY, 0).unwrap();
    let mut entries = Vec::new();
    while task.getdents(fd, &mut entries, 64).unwrap() != 0 {}
    task.close(fd).unwrap();
    for entry in entries.iter().filter(|entry| entry.name != b"." && entry.name != b"..") {
        let child = [path, b"/", &entry.name].concat();
        if task.unlink(&child).is_err() {
            remove_all(task, &child);
            task.rmdir(&child).unwrap();
        }
    }
}

#[test]
fn links_and_references_add_up_after_the_storm() {
    for mode in [WalkMode::Direct, WalkMode::Rcu, WalkMode::RefOnly] {
        let vfs = small(mode);
        let before = vfs.stats();
        for round in 0..6 {
            let tasks: Vec<Task> = (0..4).map(|_| vfs.task(Cred::root())).collect();
            std::thread::scope(|scope| {
                for (i, task) in tasks.iter().enumerate() {
                    scope.spawn(move || rampage(task, round << 8 | i as u64));
                }
            });
            // Open files and current directories hold what has lost its name.
            drop(tasks);
            let root = vfs.task(Cred::root());
            let mut names = BTreeMap::new();
            let subdirs = count(&root, b"", &mut names);
            assert_eq!(root.stat(b"/").unwrap().nlink, 2 + subdirs);
            check_links(&root, b"", &names);
            if round % 2 == 1 {
                remove_all(&root, b"");
                let after = vfs.stats();
                assert_eq!(
                    (after.entries, after.blob_bytes),
                    (before.entries, before.blob_bytes),
                    "{mode:?}"
                );
            }
        }
    }
}
