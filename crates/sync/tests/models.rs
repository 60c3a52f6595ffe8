//! Models of every ordering and of the walk's protocols, explored by loom under the C11 memory model.
//!
//! `cargo x model` runs them; `cargo x mutants` removes each ordering, and each step of each protocol, and expects the
//! model named for it to fail. Every actor is a thread of its own: loom explores less of what its main thread does. A
//! model that never met the race it is about proves nothing, so each asserts the outcomes that it must have reached.
//!
//! Exhaustive but for the limits of loom (no load buffering) and for the models that say how often they let a thread be
//! preempted.
#![cfg(loom)]

mod tree;

use rcuwalk_sync::lock::SpinLock;
use rcuwalk_sync::{Arena, Blobs, Chains, ChainsWriter, Found, Handle, Link, LockRef, Nodes};
use rcuwalk_sync::{Racy32, SeqCount, type_stable};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tree::{Answer, ROOT, Tree};

/// What an actor came to, in words; empty where it does not matter.
type Outcome = &'static str;

/// What the actors of a model came to together, over all schedules.
#[derive(Debug)]
struct Outcomes(BTreeSet<String>);

impl Outcomes {
    /// Fails unless each of `expected` was reached.
    fn must_include(&self, expected: &[&str]) {
        for outcome in expected {
            assert!(self.0.contains(*outcome), "never reached: {outcome:?} in {:?}", self.0);
        }
    }

    /// Fails unless `expected` were reached and nothing else.
    fn must_be(&self, expected: &[&str]) {
        self.must_include(expected);
        assert_eq!(self.0.len(), expected.len(), "more outcomes than expected: {:?}", self.0);
    }
}

/// A state, and actors that meet over it.
struct Model<S> {
    setup: fn() -> S,
    preemptions: Option<usize>,
    finally: fn(&S),
}

impl<S: Send + Sync + 'static> Model<S> {
    fn of(setup: fn() -> S) -> Model<S> {
        Model { setup, preemptions: None, finally: |_| {} }
    }

    /// Leaves out the schedules in which threads are preempted more often than this.
    fn preemptions(self, most: usize) -> Model<S> {
        Model { preemptions: Some(most), ..self }
    }

    /// What must hold when all actors are done.
    fn finally(self, check: fn(&S)) -> Model<S> {
        Model { finally: check, ..self }
    }

    /// Runs `actors`, each on a thread of its own, in every schedule.
    fn run(self, actors: &'static [fn(&S) -> Outcome]) -> Outcomes {
        let reached = Arc::new(Mutex::new((BTreeSet::new(), 0)));
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = self.preemptions;
        let all = Arc::clone(&reached);
        let Model { setup, finally, .. } = self;
        builder.check(move || {
            let state = Arc::new(setup());
            let spawn = |actor: &fn(&S) -> Outcome| {
                let (state, actor) = (state.clone(), *actor);
                loom::thread::spawn(move || actor(&state))
            };
            let threads: Vec<_> = actors.iter().map(spawn).collect();
            let outcomes = threads.into_iter().map(|thread| thread.join().unwrap());
            let together = outcomes.filter(|o| !o.is_empty()).collect::<Vec<_>>().join(", ");
            finally(&state);
            let mut all = all.lock().unwrap();
            all.0.insert(together);
            all.1 += 1;
        });
        let (outcomes, schedules) = std::mem::take(&mut *reached.lock().unwrap());
        let model = std::thread::current().name().unwrap_or_default().to_owned();
        let preemptions = self.preemptions.map_or("any".to_owned(), |most| format!("up to {most}"));
        let list = outcomes.iter().map(String::as_str).collect::<Vec<_>>().join("; ");
        // `cargo x model` makes a table of these.
        println!("\nmodel: `{model}` | {schedules} | {preemptions} | {list}");
        Outcomes(outcomes)
    }
}

type_stable! {
    /// Two words under one count.
    struct Pair {
        seq: SeqCount,
        x: Racy32,
        y: Racy32,
    }
}

impl Pair {
    fn change(&self, to: u32) {
        let _change = self.seq.write();
        self.x.set(to);
        self.y.set(to);
    }
}

/// [SEQ-1] and [SEQ-4].
#[test]
fn seq_begin_sees_finished_change() {
    let outcomes = Model::of(Pair::default).run(&[
        |pair| {
            pair.change(1);
            ""
        },
        |pair| {
            if pair.seq.begin() == 0 {
                return "began before";
            }
            assert_eq!((pair.x.get(), pair.y.get()), (1, 1), "forbidden: a finished change is not seen");
            "began after"
        },
    ]);
    outcomes.must_be(&["began before", "began after"]);
}

/// [SEQ-2] and [SEQ-3].
#[test]
fn seq_reader_sees_whole_states() {
    let outcomes = Model::of(Pair::default).run(&[
        |pair| {
            pair.change(1);
            pair.change(2);
            ""
        },
        |pair| {
            let start = pair.seq.begin();
            let (x, y) = (pair.x.get(), pair.y.get());
            if pair.seq.retry(start) {
                return if x == y { "threw a whole state away" } else { "threw half a change away" };
            }
            assert_eq!((x, y), (start / 2, start / 2), "forbidden: a reader kept half a change");
            ["kept the first state", "kept the second state", "kept the third state"][x as usize]
        },
    ]);
    outcomes.must_be(&[
        "kept the first state",
        "kept the second state",
        "kept the third state",
        "threw a whole state away",
        "threw half a change away",
    ]);
}

/// [SEQ-1] and [SEQ-4], for readers that wait for a change to end.
#[test]
fn seq_wait_sees_finished_change() {
    let outcomes = Model::of(Pair::default).run(&[
        |pair| {
            pair.change(1);
            ""
        },
        |pair| match pair.seq.wait() {
            0 => "before",
            _ => {
                assert_eq!((pair.x.get(), pair.y.get()), (1, 1), "forbidden: a finished change is not seen");
                "after"
            }
        },
    ]);
    outcomes.must_be(&["before", "after"]);
}

type_stable! {
    /// What holders of a reference did, one word each.
    struct Held {
        count: LockRef,
        x: Racy32,
        y: Racy32,
    }
}

/// [REF-1] and [REF-3].
#[test]
fn get_sees_the_object_it_pins() {
    let outcomes = Model::of(Held::default).run(&[
        |held| {
            held.x.set(1);
            held.count.init();
            ""
        },
        |held| {
            if !held.count.get_not_zero() {
                return "nothing to hold";
            }
            assert_eq!(held.x.get(), 1, "forbidden: a holder sees the object before it was made");
            "held"
        },
    ]);
    outcomes.must_be(&["nothing to hold", "held"]);
}

/// [REF-2] and [REF-4].
#[test]
fn last_put_sees_every_holder() {
    fn put(held: &Held) -> Outcome {
        if !held.count.put() {
            return "";
        }
        assert_eq!(
            (held.x.get(), held.y.get()),
            (1, 1),
            "forbidden: the last holder misses what another did"
        );
        "freed"
    }
    let setup = || {
        let held = Held::default();
        held.count.init();
        held.count.get();
        held
    };
    let outcomes = Model::of(setup).run(&[
        |held| {
            held.x.set(1);
            put(held)
        },
        |held| {
            held.y.set(1);
            put(held)
        },
    ]);
    outcomes.must_be(&["freed"]);
}

/// [SPN-1] and [SPN-2].
#[test]
fn spin_holder_sees_earlier_holders() {
    fn turn(lock: &SpinLock<Racy32>) -> Outcome {
        let turns = lock.lock();
        let before = turns.get();
        turns.set(before + 1);
        ["first", "second"][before as usize]
    }
    fn check(lock: &SpinLock<Racy32>) {
        assert_eq!(lock.lock().get(), 2, "forbidden: a holder misses what another did");
    }
    let outcomes = Model::of(SpinLock::<Racy32>::default).finally(check).run(&[turn, turn]);
    outcomes.must_be(&["first, second", "second, first"]);
}

type_stable! {
    struct Item {
        key: Racy32,
        link: Link,
    }
}

struct Items(Arena<Item>);

impl Nodes for Items {
    fn link(&self, at: Handle) -> &Link {
        &self.0.get(at).link
    }
    fn hash(&self, at: Handle) -> u32 {
        self.0.get(at).key.get()
    }
}

struct Table {
    items: Items,
    chains: Chains,
    writer: Mutex<ChainsWriter>,
}

const STAYS: Handle = 1;
const COMES: Handle = 2;
const LEAVES: Handle = 3;

impl Table {
    fn new(buckets: u32) -> Table {
        let (chains, writer) = Chains::new(buckets).unwrap();
        Table { items: Items(Arena::new(4).unwrap()), chains, writer: Mutex::new(writer) }
    }

    // The writer's lock is not loom's: each model has one actor that changes the table.
    fn insert(&self, at: Handle) {
        self.writer.lock().unwrap().insert(&self.chains, &self.items, at);
    }

    fn remove(&self, at: Handle) {
        self.writer.lock().unwrap().remove(&self.chains, &self.items, at);
    }
}

/// [CHN-1] and [CHN-2], as to the links.
#[test]
fn chain_reader_misses_nothing_that_stays() {
    let setup = || {
        let table = Table::new(1);
        // The node that comes was the last of this chain before, and its link still says so.
        table.insert(COMES);
        table.remove(COMES);
        table.insert(STAYS);
        table
    };
    let outcomes = Model::of(setup).run(&[
        |table| {
            table.insert(COMES);
            table.remove(COMES);
            table.insert(COMES);
            ""
        },
        |table| {
            let mut passed = 0;
            let found = table.chains.find(&table.items, 0, |at| {
                passed += u32::from(at == COMES);
                at == STAYS
            });
            assert_eq!(found, Found::Hit(STAYS), "forbidden: a node that stays in its chain is missed");
            if passed == 0 { "came first" } else { "passed the other" }
        },
    ]);
    outcomes.must_be(&["came first", "passed the other"]);
}

/// [CHN-1] and [CHN-2], as to the nodes.
#[test]
fn chain_reader_sees_whole_nodes() {
    let outcomes = Model::of(|| Table::new(1)).run(&[
        |table| {
            table.items.0.get(COMES).key.set(2);
            table.insert(COMES);
            ""
        },
        |table| match table.chains.find(&table.items, 0, |_| true) {
            Found::Hit(at) => {
                assert_eq!(table.items.hash(at), 2, "forbidden: a node is reached before it was filled in");
                "hit"
            }
            _ => "miss",
        },
    ]);
    outcomes.must_be(&["hit", "miss"]);
}

/// [CHN-1] and [CHN-2], as to a chain that is split.
#[test]
fn growing_table_loses_no_node() {
    let outcomes = Model::of(splitting).run(&[
        |table| {
            table.insert(COMES);
            ""
        },
        |table| match table.chains.find(&table.items, 2, |at| at == LEAVES) {
            Found::Hit(_) => "hit",
            Found::Miss => panic!("forbidden: a miss is believed though the node was there all along"),
            Found::Astray => "astray",
        },
    ]);
    outcomes.must_be(&["hit", "astray"]);
}

/// A node that stays in its chain is not lost for readers that stand on one that leaves it.
#[test]
fn growing_table_keeps_what_stays() {
    let outcomes = Model::of(splitting).run(&[
        |table| {
            table.insert(COMES);
            ""
        },
        |table| match table.chains.find(&table.items, 0, |at| at == STAYS) {
            Found::Hit(_) => "hit",
            Found::Miss => panic!("forbidden: a miss is believed though the node was there all along"),
            Found::Astray => "astray",
        },
    ]);
    outcomes.must_be(&["hit", "astray"]);
}

/// A table whose chain of two nodes the next insertion splits: the first of them leaves it.
fn splitting() -> Table {
    let table = Table::new(4);
    table.items.0.get(LEAVES).key.set(2);
    table.insert(STAYS);
    table.insert(LEAVES);
    table
}

struct Owner {
    seq: SeqCount,
    blob: Racy32,
    blobs: Blobs,
}

/// [BLB-1].
#[test]
fn blob_reuse_is_noticed() {
    let setup = || {
        let blobs = Blobs::new(8).unwrap();
        let old = blobs.alloc(b"old").unwrap();
        Owner { seq: SeqCount::default(), blob: Racy32::new(old), blobs }
    };
    let outcomes = Model::of(setup).run(&[
        |owner| {
            let old = owner.blob.get();
            let change = owner.seq.write();
            owner.blob.set(0);
            drop(change);
            owner.blobs.free(old);
            ""
        },
        |owner| {
            owner.blobs.alloc(b"new").unwrap();
            ""
        },
        |owner| {
            let start = owner.seq.begin();
            let blob = owner.blob.get();
            if blob == 0 {
                return "no string";
            }
            let word = owner.blobs.word(blob, 0).to_le_bytes();
            let reused = word[..3] != *b"old";
            if owner.seq.retry(start) {
                return if reused { "threw another's string away" } else { "threw the string away" };
            }
            assert!(!reused, "forbidden: a reader kept the string of another owner");
            "kept the string"
        },
    ]);
    outcomes.must_be(&[
        "no string",
        "kept the string",
        "threw the string away",
        "threw another's string away",
    ]);
}

const A: u32 = 2;
const B: u32 = 4;
const C: u32 = 6;

fn name_of(answer: Answer) -> Outcome {
    match answer {
        Answer::Inode(inode) => ["inode 0", "inode 1", "inode 2", "inode 3"][inode as usize],
        Answer::Missing => "missing",
        Answer::Bail => "bail",
    }
}

/// A directory moves away while a walker is inside it; what comes into it then was never at the walker's path.
#[test]
fn rename_vs_walk() {
    let setup = || {
        let tree = Tree::new(3, 1);
        let dir = tree.create(&mut tree.lock(), ROOT, A, 1);
        let file = tree.create(&mut tree.lock(), dir, B, 2);
        (tree, dir, file)
    };
    let outcomes = Model::of(setup).preemptions(3).run(&[
        |(tree, dir, file)| {
            let mut lock = tree.lock();
            tree.rename(&mut lock, *dir, ROOT, C, 0);
            tree.set_inode(&mut lock, *file, 3);
            ""
        },
        |(tree, ..)| {
            let answer = tree.stat(&[A, B]);
            assert_ne!(answer, Answer::Inode(3), "forbidden: a walk ends where its path never led");
            name_of(answer)
        },
    ]);
    outcomes.must_be(&["inode 2", "missing", "bail"]);
}

/// A walker steps to the directory above, while the one it stands in moves out of it, and it becomes another.
#[test]
fn dotdot_vs_rename_and_reuse() {
    let setup = || {
        let tree = Tree::new(4, 1);
        let from = tree.create(&mut tree.lock(), ROOT, A, 1);
        let to = tree.create(&mut tree.lock(), ROOT, B, 2);
        let dir = tree.create(&mut tree.lock(), from, C, 0);
        (tree, from, to, dir)
    };
    let outcomes = Model::of(setup).preemptions(3).run(&[
        |(tree, from, to, dir)| {
            let mut lock = tree.lock();
            tree.rename(&mut lock, *dir, *to, C, 0);
            tree.unlink(&mut lock, *from);
            let again = tree.create(&mut lock, ROOT, C, 3);
            assert_eq!(again, *from, "the slot is not used again: the model is too weak");
            ""
        },
        |(tree, _, _, dir)| {
            let above = tree.inode(tree.dotdot(tree.see(*dir)));
            assert_ne!(
                above,
                Answer::Inode(3),
                "forbidden: a walk ends in a directory that was never above it"
            );
            name_of(above)
        },
    ]);
    outcomes.must_be(&["inode 1", "inode 2", "bail"]);
}

/// A name goes, and its slot becomes another name's.
#[test]
fn reuse_vs_lookup() {
    let setup = || {
        let tree = Tree::new(2, 1);
        let file = tree.create(&mut tree.lock(), ROOT, A, 1);
        (tree, file)
    };
    let outcomes = Model::of(setup).preemptions(3).run(&[
        |(tree, file)| {
            let mut lock = tree.lock();
            tree.unlink(&mut lock, *file);
            let again = tree.create(&mut lock, ROOT, B, 2);
            assert_eq!(again, *file, "the slot is not used again: the model is too weak");
            ""
        },
        |(tree, _)| {
            let answer = tree.stat(&[A]);
            assert_ne!(answer, Answer::Inode(2), "forbidden: a name leads to the next user of its slot");
            name_of(answer)
        },
    ]);
    outcomes.must_be(&["inode 1", "missing", "bail"]);
}

/// A walker takes a reference at the end of its walk, while the object goes and its slot becomes another's.
#[test]
fn pin_vs_free_and_reuse() {
    let setup = || {
        let tree = Tree::new(3, 1);
        let file = tree.create(&mut tree.lock(), ROOT, A, 1);
        (tree, file)
    };
    let slots = |(tree, _): &(Tree, Handle)| {
        assert_eq!(tree.in_use(), 2, "forbidden: a slot is lost, or free twice");
    };
    let outcomes = Model::of(setup).preemptions(3).finally(slots).run(&[
        |(tree, file)| {
            let mut lock = tree.lock();
            tree.unlink(&mut lock, *file);
            let next = tree.create(&mut lock, ROOT, B, 2);
            if next == *file { "used again" } else { "still held" }
        },
        |(tree, _)| {
            let seen = match tree.walk(&[A]) {
                Ok(seen) => seen,
                Err(answer) => return name_of(answer),
            };
            if !tree.pin(seen) {
                return "too late";
            }
            let inode = tree.node(seen.at).inode.get();
            assert_eq!(inode, 1, "forbidden: a reference holds the next user of the slot");
            tree.put(seen.at);
            "pinned"
        },
    ]);
    outcomes.must_include(&[
        "used again, pinned",
        "used again, too late",
        "used again, missing",
        "used again, bail",
        "still held, pinned",
    ]);
}

/// A file moves between directories: a walker that misses it here must find it there.
#[test]
fn miss_vs_rename_between_directories() {
    let setup = || {
        let tree = Tree::new(4, 1);
        let from = tree.create(&mut tree.lock(), ROOT, A, 1);
        let to = tree.create(&mut tree.lock(), ROOT, B, 1);
        let file = tree.create(&mut tree.lock(), from, C, 2);
        (tree, from, to, file)
    };
    let outcomes = Model::of(setup).preemptions(3).run(&[
        |(tree, _, to, file)| {
            tree.rename(&mut tree.lock(), *file, *to, C, 0);
            ""
        },
        |(tree, from, to, _)| {
            let here = tree.stat_in(*from, C);
            if here != Answer::Missing {
                return name_of(here);
            }
            let there = tree.stat_in(*to, C);
            assert_ne!(there, Answer::Missing, "forbidden: a file is in neither directory");
            if there == Answer::Bail { "missing, bail" } else { "missing, found" }
        },
    ]);
    outcomes.must_be(&["inode 2", "bail", "missing, found"]);
}

/// A file takes the place of another: its name is never missing.
#[test]
fn miss_vs_rename_over() {
    let setup = || {
        let tree = Tree::new(3, 1);
        let old = tree.create(&mut tree.lock(), ROOT, A, 1);
        let new = tree.create(&mut tree.lock(), ROOT, B, 2);
        (tree, old, new)
    };
    let outcomes = Model::of(setup).preemptions(3).run(&[
        |(tree, old, new)| {
            tree.rename(&mut tree.lock(), *new, ROOT, A, *old);
            ""
        },
        |(tree, ..)| {
            let answer = tree.stat(&[A]);
            assert_ne!(answer, Answer::Missing, "forbidden: a name is missing while it is replaced");
            name_of(answer)
        },
    ]);
    outcomes.must_be(&["inode 1", "inode 2", "bail"]);
}

/// A directory takes the place of another, which then loses its entry: the entry's path leads to one or the other.
#[test]
fn miss_vs_replaced_directory() {
    let setup = || {
        let tree = Tree::new(5, 1);
        let mut lock = tree.lock();
        let old = tree.create(&mut lock, ROOT, A, 0);
        let new = tree.create(&mut lock, ROOT, B, 0);
        let file = tree.create(&mut lock, old, C, 1);
        tree.create(&mut lock, new, C, 2);
        drop(lock);
        (tree, old, new, file)
    };
    let outcomes = Model::of(setup).preemptions(2).run(&[
        |(tree, old, new, file)| {
            let mut lock = tree.lock();
            tree.rename(&mut lock, *new, ROOT, A, *old);
            tree.unlink(&mut lock, *file);
            ""
        },
        |(tree, ..)| {
            let answer = tree.stat(&[A, C]);
            assert_ne!(
                answer,
                Answer::Missing,
                "forbidden: a name is missing in a directory that is not there"
            );
            name_of(answer)
        },
    ]);
    outcomes.must_be(&["inode 1", "inode 2", "bail"]);
}

/// The table grows for the sake of another directory: a walker that finds the new name does not miss the old one.
#[test]
fn miss_vs_growth() {
    let setup = || {
        let tree = Tree::new(4, 4);
        let dir = tree.create(&mut tree.lock(), ROOT, B, 1);
        tree.create(&mut tree.lock(), ROOT, A, 1);
        (tree, dir)
    };
    let outcomes = Model::of(setup).preemptions(3).run(&[
        |(tree, dir)| {
            tree.create(&mut tree.lock(), *dir, C, 2);
            ""
        },
        |(tree, dir)| {
            let new = tree.stat_in(*dir, C);
            let old = tree.stat(&[A]);
            assert_ne!(old, Answer::Missing, "forbidden: a name that was there all along is missing");
            match (new, old) {
                (Answer::Inode(_), Answer::Inode(_)) => "both",
                (Answer::Missing, Answer::Inode(_)) => "the old",
                (_, Answer::Bail) => "bail at the old",
                _ => "bail at the new",
            }
        },
    ]);
    outcomes.must_be(&["both", "the old", "bail at the old", "bail at the new"]);
}

/// A name of another directory moves to another chain while a walker stands on it.
#[test]
fn miss_vs_move_to_another_chain() {
    /// In the chain of `A` in the root; `C` is in the other.
    const D: u32 = 5;
    let setup = || {
        let tree = Tree::new(4, 2);
        let dir = tree.create(&mut tree.lock(), ROOT, B, 1);
        tree.create(&mut tree.lock(), ROOT, A, 2);
        let moves = tree.create(&mut tree.lock(), dir, D, 3);
        (tree, dir, moves)
    };
    let outcomes = Model::of(setup).preemptions(3).run(&[
        |(tree, dir, moves)| {
            tree.rename(&mut tree.lock(), *moves, *dir, C, 0);
            ""
        },
        |(tree, ..)| {
            let answer = tree.stat(&[A]);
            assert_ne!(answer, Answer::Missing, "forbidden: a name that was there all along is missing");
            name_of(answer)
        },
    ]);
    outcomes.must_be(&["inode 2", "bail"]);
}

/// A mount that a walker steps into while another thread unmounts it because it seems unused.
struct Mounted {
    /// Of the table of mounts.
    seq: SeqCount,
    /// One reference is the tree's.
    count: LockRef,
    held: AtomicBool,
    detached: AtomicBool,
}

/// The two references of a walker and an unmount cross: one of them must see the other.
#[test]
fn umount_vs_pin() {
    let setup = || {
        let mount = Mounted {
            seq: SeqCount::default(),
            count: LockRef::default(),
            held: AtomicBool::new(false),
            detached: AtomicBool::new(false),
        };
        mount.count.init();
        mount
    };
    // These two say what the actors did; they are not loom's, and so order nothing.
    let check = |mount: &Mounted| {
        let both = mount.held.load(Relaxed) && mount.detached.load(Relaxed);
        assert!(!both, "forbidden: a mount is taken away under a walker that holds it");
    };
    let outcomes = Model::of(setup).finally(check).run(&[
        |mount| {
            // Mirrors `legitimize`.
            let start = mount.seq.begin();
            if !mount.count.get_not_zero() {
                return "gone";
            }
            if mount.seq.retry(start) {
                assert!(!mount.count.put(), "the tree has its reference");
                return "bail";
            }
            mount.held.store(true, Relaxed);
            "held"
        },
        |mount| {
            // Mirrors `detach_idle`.
            let _change = mount.seq.write();
            if !tree::without("umount-count") {
                mount.count.get();
                assert!(!mount.count.put(), "the tree has its reference");
            }
            if mount.count.count() > 1 {
                return "busy";
            }
            mount.detached.store(true, Relaxed);
            "detached"
        },
    ]);
    outcomes.must_be(&["held, busy", "bail, detached", "bail, busy"]);
}
