use super::signature::PATH_LEN_MAX;
use super::*;
use crate::base::uapi::{S_IFDIR, S_IFREG};
use crate::dcache::store::{Capacity, Room};
use crate::mount::{MountTable, Path};
use rcuwalk_sync::SeqCount;

fn table(entries: u32, at_first_sight: bool) -> PathTable {
    let mut state = 1u64;
    PathTable::new(PathTableOptions { entries, at_first_sight }, || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        state ^ state >> 29
    })
    .unwrap()
}

const START: Path = Path { mnt: 1, dentry: 2 };
const NOW: AsOf = AsOf { path_seq: 2, m_seq: 4 };

fn store() -> Store {
    let (_, mounts) = MountTable::new(None).unwrap();
    Store::new(
        Room::new(Capacity { objects: 64, blob_words: 64 }, None).unwrap(),
        1,
        mounts,
        table(64, false),
    )
}

fn to(dentry: Handle) -> Led {
    Led::To(Seen { dentry, seq: 12, meta: Meta::new(1, S_IFREG) })
}

impl PathTable {
    /// What a task asks, if it does.
    fn asked(&self, passed: &Racy32, path: &[u8]) -> Option<Signature> {
        self.sign(1, START, path).filter(|_| !self.sleeps(passed))
    }

    /// A path was asked for in vain, and led there.
    fn walked(&self, sign: Signature, led: Led) {
        if self.admits(sign) {
            let store = store();
            self.enter(&store, &store.lock(), sign, NOW, 9, led);
        }
    }

    /// Where it leads: to what, as of when; and whether to anything.
    fn known(&self, sign: Signature, as_of: AsOf) -> Option<(Handle, u32, bool)> {
        let found = self.find(sign, as_of, || false)?;
        assert!(found.mnt() == 9 && !found.read().retry());
        Some((found.seen().dentry, found.seen().seq, !found.seen().is_missing()))
    }
}

#[test]
fn whatever_is_asked_counts_in_the_signature() {
    let table = table(64, false);
    let sign = |cred, mnt, dentry, path: &[u8]| table.signature(cred, Path { mnt, dentry }, path);
    let differ = |a: Signature, b: Signature| a.0 != b.0 && a.1 != b.1;
    let base = sign(1, 2, 3, b"/usr/include/stdio.h");
    let others = [
        sign(2, 2, 3, b"/usr/include/stdio.h"),
        sign(1, 3, 3, b"/usr/include/stdio.h"),
        sign(1, 2, 4, b"/usr/include/stdio.h"),
        sign(1, 2, 3, b"/usr/include/stdio.h\0"),
        sign(1, 2, 3, b"/usr/include/stdio"),
    ];
    for other in others {
        assert!(differ(base, other), "each sum differs");
    }
    for len in 0..40 {
        let path = vec![b'a'; len];
        let base = sign(1, 2, 3, &path);
        for at in 0..len {
            let mut other = path.clone();
            other[at] = b'b';
            assert!(differ(base, sign(1, 2, 3, &other)), "byte {at} of {len}");
        }
    }
}

#[test]
fn a_path_enters_at_second_sight_and_leaves_with_the_changes_it_is_of() {
    let table = table(64, false);
    let sign = table.sign(1, START, b"/a/b").unwrap();
    assert_eq!(table.known(sign, NOW), None);
    table.walked(sign, to(7));
    assert_eq!((table.known(sign, NOW), table.remembered()), (None, 0), "seen is not known");
    table.walked(sign, to(7));
    assert_eq!((table.known(sign, NOW), table.remembered()), (Some((7, 12, true)), 1));
    assert_eq!(table.known(sign, AsOf { path_seq: 4, ..NOW }), None);
    assert_eq!(table.known(sign, AsOf { m_seq: 6, ..NOW }), None);
    let dir = Seen { dentry: 3, seq: 2, meta: Meta::new(1, S_IFDIR) };
    table.walked(sign, Led::Missing { dir, entries: 0 });
    assert_eq!(table.known(sign, NOW), Some((3, 2, false)), "the entry is replaced");
    assert_eq!(table.taken.get(), 1);
}

#[test]
fn nothing_is_remembered_until_a_count_comes_round_again() {
    for change in [
        |store: &Store, ns: &Namespace| drop(store.open_paths(ns)),
        |store: &Store, ns: &Namespace| drop(store.open_dentry(ns, 5)),
    ] {
        let mut store = store();
        store.path_seq = SeqCount::new((1 << 30) - 4);
        store.stamps.set(5, (1 << 30) - 4);
        let sign = store.paths.sign(1, START, b"/a/b").unwrap();
        let ns = store.lock();
        store.paths.enter(&store, &ns, sign, NOW, 9, to(7));
        change(&store, &ns);
        assert!(store.paths.find(sign, NOW, || false).is_some(), "one change before");
        change(&store, &ns);
        assert!(store.paths.find(sign, NOW, || false).is_none());
        change(&store, &ns);
        store.paths.enter(&store, &ns, sign, NOW, 9, to(7));
        assert!(store.paths.find(sign, NOW, || false).is_some(), "and on it goes");
    }
}

#[test]
fn a_path_that_is_told_again_is_put_where_it_belongs() {
    let table = table(1 << 16, true);
    let sign = |i: u32| table.signature(1, START, format!("/{i}").as_bytes());
    let place = |sign: Signature| (sign.mixed().bucket(table.mask.get()), sign.mixed().first());
    let one = sign(0);
    let other = (1..).map(sign).find(|&other| place(other) == place(one)).unwrap();
    let in_place = |sign| {
        let mut in_place = true;
        table
            .find(sign, NOW, || {
                in_place = false;
                false
            })
            .map(|_| in_place)
    };
    [one, other].iter().for_each(|&sign| table.walked(sign, to(7)));
    assert_eq!([one, other].map(in_place), [Some(false), Some(true)], "both belong where the later one is");
    let store = store();
    let ns = store.lock();
    table.promote(&ns, one, NOW);
    assert_eq!([one, other].map(in_place), [Some(true), Some(false)], "they changed places");
    assert_eq!((table.taken.get(), table.remembered()), (2, 2));
    for _ in 0..100 {
        [one, other].iter().for_each(|&sign| table.promote(&ns, sign, NOW));
    }
    [one, other].iter().for_each(|&sign| table.walked(sign, to(7)));
    assert_eq!([one, other].map(in_place), [Some(true); 2], "a larger table has a place for each");
    assert!(table.mask.get() < 1 << 10 && table.taken.get() == 2);
}

#[test]
fn a_full_table_forgets_and_stays_right() {
    let table = table(64, true);
    let path = |i: u32| format!("/dir/{i}").into_bytes();
    for i in 0..10_000 {
        let sign = table.sign(1, START, &path(i)).unwrap();
        table.walked(sign, to(i));
    }
    let found: Vec<_> = (0..10_000)
        .filter_map(|i| Some((i, table.known(table.sign(1, START, &path(i)).unwrap(), NOW)?)))
        .collect();
    assert!((32..=64).contains(&found.len()), "{} of 64", found.len());
    assert!(found.iter().all(|&(i, led)| led == (i, 12, true)));
}

/// Goes through `paths` once, and says how many the table did not know.
fn unknown(table: &PathTable, paths: impl Iterator<Item = Signature>) -> usize {
    let ask = |&sign: &Signature| {
        let unknown = table.known(sign, NOW).is_none();
        if unknown {
            table.walked(sign, to(7));
        }
        unknown
    };
    paths.filter(ask).count()
}

#[test]
fn growing_forgets_little() {
    let table = table(1 << 15, true);
    let sign = |i: u32| table.signature(1, START, format!("/tree/{i:05}").as_bytes());
    let mut grown = 0;
    for i in 0..10_000 {
        let mask = table.mask.get();
        table.walked(sign(i), to(7));
        grown += u32::from(mask != table.mask.get());
    }
    assert!(grown >= 4, "grown {grown} times");
    let forgotten = unknown(&table, (0..10_000).map(sign));
    assert!(forgotten < 1000, "{forgotten} of 10,000: more than found their bucket full");
    let tags = (0..=table.mask.get()).map(|bucket| table.tags.get(bucket).get().to_le_bytes());
    let taken = tags.flat_map(|tags| tags.as_chunks::<2>().0.to_vec()).filter(|tag| *tag != [0; 2]).count();
    assert_eq!(taken, table.taken.get() as usize);
}

#[test]
fn what_nobody_asks_for_any_more_makes_room_for_what_is() {
    let table = table(1 << 12, false);
    let tree = |cred: u64| {
        let table = &table;
        (0..1000u32).map(move |i| table.signature(cred, START, format!("/tree/{i:03}").as_bytes()))
    };
    for cred in 1..10 {
        (0..8).for_each(|_| _ = unknown(&table, tree(cred)));
    }
    let rounds: Vec<usize> = (0..16).map(|_| unknown(&table, tree(10))).collect();
    assert!(rounds[15] < 50, "{rounds:?} of 1000");
    let displaced = tree(10).filter(|&sign| {
        let mut displaced = false;
        table.find(sign, NOW, || {
            displaced = true;
            false
        });
        displaced
    });
    let displaced = displaced.count();
    assert!(displaced < 200, "{displaced} of 1000 are not where they belong");
}

#[test]
fn a_hot_path_gets_into_a_full_table() {
    let table = table(64, false);
    let passed = Racy32::default();
    for i in 0..1000 {
        for _ in 0..4 {
            if let Some(sign) = table.asked(&passed, format!("/old/{i}").as_bytes()) {
                table.walked(sign, to(i));
            }
        }
    }
    for i in 0..100 {
        let path = format!("/hot/{i}").into_bytes();
        let hot = table.signature(1, START, &path);
        let asked = (0..64).take_while(|_| {
            let unknown = table.known(hot, NOW).is_none();
            if unknown {
                table.walked(hot, to(7));
            }
            unknown
        });
        assert!(asked.count() < 64, "path {i} never got in");
    }
}

#[test]
fn new_paths_alone_let_it_sleep_and_a_known_one_wakes_it() {
    let table = table(1 << 10, false);
    let passed = Racy32::default();
    let ask = |i: u32| {
        let sign = table.asked(&passed, format!("/tree/file-{i:06}").as_bytes())?;
        table.walked(sign, to(i));
        Some(())
    };
    let asked = (0..100_000).filter_map(ask).count();
    // Two different paths share a mark now and then, which wakes it for a while.
    assert!((1_600..5_000).contains(&asked), "{asked} of 100,000 asked");
    // One path again and again is asked for twice soon, and is known then.
    let first = (0..100).find(|_| ask(500_000).is_some() && ask(500_000).is_some());
    assert!(first.is_some());
    assert!((0..100).all(|_| ask(500_000).is_some()), "awake");
    // Now and then one that was asked for before keeps it awake, and one that is remembered wakes it again.
    let mixed = |first: u32, every: u32| {
        (first..first + 10_000).filter_map(|i| ask(if i % every == 0 { 500_000 } else { i })).count()
    };
    let asked = [mixed(200_000, 32), mixed(300_000, 512)];
    assert!(asked[0] == 10_000 && asked[1] < 6_000, "{asked:?} of 10,000 asked");
    let hot = table.signature(1, START, b"/hot");
    (0..2).for_each(|_| table.walked(hot, to(7)));
    assert!((400_000..500_000).filter_map(ask).count() < 10_000);
    assert!(table.doze.unknown.get() >= Doze::DROWSY);
    assert!(table.known(hot, NOW).is_some());
    assert!((0..Doze::CREDIT).all(|i| ask(600_000 + i).is_some()), "awake");
}

#[test]
fn what_is_never_remembered_lets_it_sleep_and_what_is_keeps_it_awake() {
    let table = table(1 << 10, false);
    let passed = Racy32::default();
    let hot = table.signature(1, START, b"/hot");
    (0..2).for_each(|_| table.walked(hot, to(7)));
    // One path in `every` is remembered; the others are refused.
    let asked = |every: u32| {
        let ask = |&i: &u32| {
            let asked = !table.sleeps(&passed);
            if asked && i % every == 0 {
                assert!(table.known(hot, NOW).is_some());
            } else if asked {
                table.never(&passed);
            }
            asked
        };
        (1..=20_000).filter(ask).count()
    };
    let mixed = asked(7);
    assert!(mixed > 15_000, "{mixed} of 20,000 asked");
    let refused = asked(u32::MAX);
    assert!((600..4_000).contains(&refused), "{refused} of 20,000 asked");
    assert_eq!(table.doze.unknown.get(), Doze::ASLEEP);
}

#[test]
fn growing_keeps_the_marks_that_are_there() {
    let table = table(1 << 15, false);
    let sign = |i: u32| table.signature(1, START, format!("/tree/{i:05}").as_bytes());
    let marked: Vec<u32> = (0..2 * FIRST_SEEN).filter(|&i| !table.admits(sign(i))).collect();
    // Some were driven out of their bucket of four.
    let kept: Vec<u32> = marked.into_iter().filter(|&i| table.admits(sign(i))).collect();
    assert!(kept.len() > FIRST_SEEN as usize, "{} kept", kept.len());
    let before = table.seen_mask.get();
    let again = (1000..1000 + 16 * FIRST_SEEN).filter(|&i| table.admits(sign(i))).count();
    assert!(again < 8 && table.seen_mask.get() > before, "{again} seemed marked");

    let table = self::table(1 << 15, false);
    let sign = |i: u32| table.signature(1, START, format!("/tree/{i:05}").as_bytes());
    let marked: Vec<u32> = (0..64).filter(|&i| !table.admits(sign(i))).collect();
    while table.seen_mask.get() < (1 << 13) - 1 {
        table.spread_marks(table.seen_mask.get());
    }
    let kept = marked.iter().filter(|&&i| table.admits(sign(i))).count();
    assert!(kept >= marked.len() - 1, "{kept} of {}", marked.len());
}

#[test]
fn all_paths_of_a_large_tree_are_known_after_a_few_rounds_and_almost_all_stay() {
    let table = table(1 << 15, false);
    let passed = Racy32::default();
    let round = || {
        let unknown = |&i: &u32| {
            let Some(sign) = table.asked(&passed, format!("/tree/{i:05}").as_bytes()) else {
                return true;
            };
            let unknown = table.known(sign, NOW).is_none();
            if unknown {
                table.walked(sign, to(i));
            }
            unknown
        };
        (0..10_000).filter(unknown).count()
    };
    let rounds: Vec<usize> = (0..10).map(|_| round()).collect();
    assert_eq!(rounds[..2], [10_000; 2], "{rounds:?}");
    assert!(rounds[8..].iter().all(|&unknown| unknown < 500), "{rounds:?}");
}

#[test]
fn without_entries_nothing_is_asked() {
    let table = table(0, true);
    assert!(table.sign(1, START, b"/a").is_none());
    let table = self::table(8, true);
    assert!(table.sign(0, START, b"/a").is_none(), "a credential that is made for one call");
    assert!(table.sign(1, START, &[b'a'; PATH_LEN_MAX + 1]).is_none());
    assert!(table.sign(1, START, &[b'a'; PATH_LEN_MAX]).is_some());
}
