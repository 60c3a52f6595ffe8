//! Random changes to a tree under random walks, each answer checked against the tree's history.
//!
//! The same rounds run on real threads (also under Miri and the sanitizers) and, with `--cfg shuttle`, under shuttle,
//! which replaces the operating system's schedule by random ones that switch at every atomic access. Shuttle's atomics
//! are sequentially consistent whatever ordering they are given: it tests the protocols, not the orderings, in schedules
//! larger than loom can explore. Miri explores orderings too, on one schedule per seed.
#![cfg(not(loom))]

mod tree;

use rcuwalk_sync::{Blobs, Handle, Racy32, SeqCount};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tree::{Answer, ROOT, Tree};

#[cfg(shuttle)]
use shuttle::thread;
#[cfg(not(shuttle))]
use std::thread;

/// Runs `round` often enough, on schedules as different as this build can make them.
fn explore(round: fn()) {
    #[cfg(shuttle)]
    {
        shuttle::check_random(round, 10_000);
        shuttle::check_pct(round, 10_000, 4);
    }
    #[cfg(not(shuttle))]
    (0..if cfg!(miri) { 1 } else { 40 }).for_each(|_| round());
}

/// How often each actor acts in one round.
const STEPS: u32 = if cfg!(shuttle) {
    25
} else if cfg!(miri) {
    30
} else {
    2_000
};

/// Random numbers (splitmix64), different in each round and actor.
struct Random(u64);

impl Random {
    fn new() -> Random {
        #[cfg(shuttle)]
        return Random(shuttle::rand::RngCore::next_u64(&mut shuttle::rand::thread_rng()));
        #[cfg(not(shuttle))]
        {
            static NEXT: AtomicU64 = AtomicU64::new(0);
            Random(NEXT.fetch_add(1, Ordering::Relaxed) << 32)
        }
    }

    /// One of `0..n`.
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % u64::from(n)) as u32
    }
}

/// What a tree of two levels holds: directory (by inode) and name to inode.
type State = BTreeMap<(u32, u32), u32>;

fn resolve(state: &State, path: &[u32]) -> Answer {
    let inode = path.iter().try_fold(ROOT_INODE, |dir, &name| state.get(&(dir, name)).copied());
    inode.map_or(Answer::Missing, Answer::Inode)
}

const ROOT_INODE: u32 = 0;
const DIRS: u32 = 2;
const NAMES: u32 = 3;
/// Inode numbers count up by this; the rest numbers the lives of one object.
const OBJECT: u32 = 1 << 12;

/// The names of directories and files. Under Miri and shuttle they collide in the first tables.
fn dir_name(i: u32) -> u32 {
    2 + 2 * i
}

fn file_name(i: u32) -> u32 {
    100 + 2 * i
}

/// The tree, what it has held, and what was reached.
struct World {
    tree: Tree,
    /// The state after each change. A change is `begun` before it touches the tree and `ended` after.
    states: Mutex<Vec<State>>,
    begun: AtomicUsize,
    ended: AtomicUsize,
    done: AtomicBool,
}

/// How often what happened, over all rounds.
#[derive(Debug, Default)]
struct Reached {
    found: AtomicU64,
    missing: AtomicU64,
    bails: AtomicU64,
    pinned: AtomicU64,
}

static REACHED: Reached = Reached {
    found: AtomicU64::new(0),
    missing: AtomicU64::new(0),
    bails: AtomicU64::new(0),
    pinned: AtomicU64::new(0),
};

/// What the one writer knows of the tree.
struct Writer<'a> {
    world: &'a World,
    random: Random,
    next_inode: u32,
    state: State,
    /// The node of each entry.
    nodes: BTreeMap<(u32, u32), Handle>,
}

impl Writer<'_> {
    fn new(world: &World) -> Writer<'_> {
        Writer {
            world,
            random: Random::new(),
            next_inode: OBJECT,
            state: State::new(),
            nodes: BTreeMap::new(),
        }
    }

    /// Makes the history and the tree change together: what was, what is, and what is under way.
    fn change<R>(&mut self, act: impl FnOnce(&Tree, &mut tree::Lock<'_>) -> R) -> R {
        let world = self.world;
        let mut lock = world.tree.lock();
        world.states.lock().unwrap().push(self.state.clone());
        world.begun.fetch_add(1, Ordering::SeqCst);
        let result = act(&world.tree, &mut lock);
        world.ended.fetch_add(1, Ordering::SeqCst);
        result
    }

    /// The node of the directory with this inode.
    fn dir_node(&self, dir: u32) -> Handle {
        let at = self.state.iter().find(|&(_, &inode)| inode == dir);
        at.map_or(ROOT, |(entry, _)| self.nodes[entry])
    }

    fn create(&mut self, entry: (u32, u32)) {
        let inode = self.next_inode;
        self.next_inode += OBJECT;
        let dir = self.dir_node(entry.0);
        self.state.insert(entry, inode);
        let at = self.change(|tree, lock| tree.create(lock, dir, entry.1, inode));
        self.nodes.insert(entry, at);
    }

    fn unlink(&mut self, entry: (u32, u32)) {
        self.state.remove(&entry);
        let at = self.nodes.remove(&entry).unwrap();
        self.change(|tree, lock| tree.unlink(lock, at));
    }

    fn rename(&mut self, from: (u32, u32), to: (u32, u32)) {
        let (dir, at) = (self.dir_node(to.0), self.nodes.remove(&from).unwrap());
        let inode = self.state.remove(&from).unwrap();
        self.state.insert(to, inode);
        let victim = self.nodes.insert(to, at).unwrap_or(0);
        self.change(|tree, lock| tree.rename(lock, at, dir, to.1, victim));
    }

    fn set_inode(&mut self, entry: (u32, u32)) {
        let inode = self.state[&entry] + 1;
        self.state.insert(entry, inode);
        let at = self.nodes[&entry];
        self.change(|tree, lock| tree.set_inode(lock, at, inode));
    }

    /// One random change.
    fn step(&mut self) {
        let dirs: Vec<_> =
            self.state.iter().filter(|(k, _)| k.0 == ROOT_INODE).map(|(&k, &i)| (k, i)).collect();
        let mut pick = |n| self.random.below(n);
        if pick(6) == 0 {
            // A directory gets another name.
            let (entry, _) = dirs[pick(DIRS) as usize];
            let to = (ROOT_INODE, dir_name(pick(DIRS + 2)));
            if !self.state.contains_key(&to) {
                self.rename(entry, to);
            }
            return;
        }
        let mut file = || (dirs[pick(DIRS) as usize].1, file_name(pick(NAMES)));
        let (from, to) = (file(), file());
        match (self.state.contains_key(&from), pick(3)) {
            (false, _) => self.create(from),
            (true, 0) => self.unlink(from),
            (true, 1) => self.set_inode(from),
            (true, _) if from != to => self.rename(from, to),
            _ => {}
        }
    }
}

/// One actor that only reads.
struct Reader<'a> {
    world: &'a World,
    random: Random,
}

impl Reader<'_> {
    /// Asks `question`; its answer, where there is one, must have been `right` in a state of that time.
    fn ask(&self, question: impl FnOnce(&Tree) -> Answer, right: impl Fn(&State, Answer) -> bool) -> Answer {
        let world = self.world;
        let ended = world.ended.load(Ordering::SeqCst);
        let answer = question(&world.tree);
        let begun = world.begun.load(Ordering::SeqCst);
        let counter = match answer {
            Answer::Bail => &REACHED.bails,
            Answer::Missing => &REACHED.missing,
            Answer::Inode(_) => &REACHED.found,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if answer != Answer::Bail {
            let states = world.states.lock().unwrap();
            let was_right = states[ended..=begun].iter().any(|state| right(state, answer));
            assert!(was_right, "forbidden: {answer:?} was never right in changes {ended} to {begun}");
        }
        answer
    }

    fn step(&mut self) {
        let (dir, file) = (dir_name(self.random.below(DIRS + 2)), file_name(self.random.below(NAMES)));
        match self.random.below(3) {
            0 => {
                self.ask(|tree| tree.stat_in(ROOT, dir), |s, answer| resolve(s, &[dir]) == answer);
            }
            1 => {
                self.ask(|tree| tree.stat(&[dir, file]), |s, answer| resolve(s, &[dir, file]) == answer);
            }
            _ => self.open(dir, file),
        }
    }

    /// Walks, takes a reference, and looks at the directory above.
    fn open(&self, dir: u32, file: u32) {
        let mut walked = None;
        let question = |tree: &Tree| {
            let seen = tree.walk(&[dir, file]);
            walked = seen.ok();
            tree.inode(seen)
        };
        let answer = self.ask(question, |s, answer| resolve(s, &[dir, file]) == answer);
        let (Some(seen), Answer::Inode(inode)) = (walked, answer) else {
            return;
        };
        if !self.world.tree.pin(seen) {
            return;
        }
        REACHED.pinned.fetch_add(1, Ordering::Relaxed);
        let now = self.world.tree.node(seen.at).inode.get();
        assert_eq!(now / OBJECT, inode / OBJECT, "forbidden: a reference holds the next user of the slot");
        let above = |s: &State, above| s.iter().any(|(k, &i)| i == inode && above == Answer::Inode(k.0));
        self.ask(|tree| tree.inode(tree.dotdot(seen)), above);
        self.world.tree.put(seen.at);
    }
}

fn walk_round() {
    let world = Arc::new(World {
        tree: Tree::new(64, 8),
        states: Mutex::new(vec![State::new()]),
        begun: AtomicUsize::new(0),
        ended: AtomicUsize::new(0),
        done: AtomicBool::new(false),
    });
    let readers = (0..2).map(|_| {
        let world = world.clone();
        thread::spawn(move || {
            let mut reader = Reader { world: &world, random: Random::new() };
            let mut steps = 0;
            // Shuttle ends a round that has no bound of its own.
            while steps < STEPS || !cfg!(shuttle) && !world.done.load(Ordering::Relaxed) {
                reader.step();
                steps += 1;
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    let writer = {
        let world = world.clone();
        thread::spawn(move || {
            let mut writer = Writer::new(&world);
            (0..DIRS).for_each(|i| writer.create((ROOT_INODE, dir_name(i))));
            (0..STEPS).for_each(|_| writer.step());
            world.done.store(true, Ordering::Relaxed);
            writer.state.len() as u32
        })
    };
    let entries = writer.join().unwrap();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    assert_eq!(world.tree.in_use(), entries + 1, "a slot is lost, or free twice");
}

/// No walk gives an answer that was not true at some moment while it ran, and no slot is lost.
#[test]
fn every_answer_was_true_while_the_walk_ran() {
    explore(walk_round);
    println!("{REACHED:?}");
    for (what, count) in
        [("found", &REACHED.found), ("missing", &REACHED.missing), ("pinned", &REACHED.pinned)]
    {
        assert_ne!(count.load(Ordering::Relaxed), 0, "never reached: {what}");
    }
    if cfg!(shuttle) {
        assert_ne!(REACHED.bails.load(Ordering::Relaxed), 0, "never reached: a bail");
    }
}

/// A string, and the count that covers which one.
struct Owner {
    seq: SeqCount,
    blob: Racy32,
}

fn blob_round() {
    fn text(random: &mut Random) -> Vec<u8> {
        vec![random.below(256) as u8; 1 + random.below(20) as usize]
    }
    let blobs = Arc::new(Blobs::new(256).unwrap());
    let owners: Arc<Vec<Owner>> =
        Arc::new((0..2).map(|_| Owner { seq: SeqCount::default(), blob: Racy32::new(0) }).collect());
    let writers: Vec<_> = (0..2)
        .map(|i| {
            let (blobs, owners) = (blobs.clone(), owners.clone());
            thread::spawn(move || {
                let (mut random, owner) = (Random::new(), &owners[i]);
                for _ in 0..STEPS {
                    let new = blobs.alloc(&text(&mut random)).unwrap();
                    let old = owner.blob.get();
                    {
                        let _change = owner.seq.write();
                        owner.blob.set(new);
                    }
                    if old != 0 {
                        blobs.free(old);
                    }
                }
            })
        })
        .collect();
    let reader = {
        let (blobs, owners) = (blobs.clone(), owners.clone());
        thread::spawn(move || {
            let mut random = Random::new();
            for _ in 0..STEPS {
                let owner = &owners[random.below(2) as usize];
                let start = owner.seq.begin();
                let (blob, mut out) = (owner.blob.get(), Vec::new());
                if blob != 0 {
                    blobs.read(blob, &mut out).unwrap();
                }
                if !owner.seq.retry(start) {
                    assert!(out.iter().all(|&b| b == out[0]) && out.len() <= 20, "forbidden: kept {out:?}");
                }
            }
        })
    };
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    reader.join().unwrap();
    owners.iter().for_each(|owner| blobs.free(owner.blob.get()));
    assert_eq!(blobs.bytes_in_use(), 0);
}

/// A reader that keeps a string has the whole of one.
#[test]
fn every_string_is_whole() {
    explore(blob_round);
}
