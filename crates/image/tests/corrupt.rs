//! Files that are damaged, cut short, or were never images: refused, or the state at a commit, and never a panic.

mod common;

use common::{Random, assert_same, call, snapshot};
use rcuwalk::uapi::*;
use rcuwalk::{Cred, Vfs};
use rcuwalk_image::{Contents, Error, Live, Options, load};
use std::path::Path;

/// An image of two commits, and the trees they had.
fn image(path: &Path, seed: u64) -> [std::collections::BTreeMap<Vec<u8>, common::Facts>; 2] {
    let vfs = Vfs::new().unwrap();
    let task = vfs.task(Cred::root());
    let mut random = Random(seed * 0x9e37_79b9_7f4a);
    for _ in 0..300 {
        let _ = call(&task, &mut random);
    }
    let live = Live::create(path, &vfs, &Options::default()).unwrap();
    live.close().unwrap();
    let first = snapshot(&vfs);
    let vfs = Vfs::new().unwrap();
    let live = Live::open(path, &vfs, &Options::default()).unwrap();
    let task = vfs.task(Cred::root());
    for _ in 0..40 {
        let _ = call(&task, &mut random);
    }
    task.mkdir(b"/last", 0o700).unwrap();
    live.close().unwrap();
    [first, snapshot(&vfs)]
}

/// Loads a damaged file: what comes of it is an error, or one of the trees.
fn judge(path: &Path, trees: &[std::collections::BTreeMap<Vec<u8>, common::Facts>; 2]) -> Result<(), Error> {
    let vfs = Vfs::builder().capacity(100_000).build().unwrap();
    load(path, &vfs, Contents::Keep)?;
    let found = snapshot(&vfs);
    assert_same(if found.contains_key(&b"/last"[..]) { &trees[1] } else { &trees[0] }, &found);
    Ok(())
}

/// How often each test is made, with other numbers each time: `RCUWALK_FUZZ_TIMES`, or once.
fn times() -> u64 {
    std::env::var("RCUWALK_FUZZ_TIMES").map_or(1, |times| times.parse().expect("a number"))
}

#[test]
fn flipped_bits_and_missing_ends_never_pass_for_the_tree() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, damaged) = (dir.path().join("whole"), dir.path().join("damaged"));
    let mut random = Random(0x1234_5678_9abc);
    let (mut refused, mut harmless) = (0, 0);
    for seed in 1..=4 * times() {
        let _ = std::fs::remove_file(&whole);
        let trees = image(&whole, seed);
        let bytes = std::fs::read(&whole).unwrap();
        judge(&whole, &trees).unwrap();
        for round in 0..120 {
            let mut bytes = bytes.clone();
            match round % 6 {
                0 => bytes.truncate(random.below(bytes.len() as u64) as usize),
                1 => {
                    let at = random.below(bytes.len() as u64) as usize;
                    let end = (at + 1 + random.below(5000) as usize).min(bytes.len());
                    bytes[at..end].fill(0);
                }
                // Where the store has its roots.
                2 => bytes[random.below(400) as usize] ^= 1 << random.below(8),
                _ => {
                    for _ in 0..1 + random.below(20) {
                        let at = random.below(bytes.len() as u64) as usize;
                        bytes[at] ^= 1 << random.below(8);
                    }
                }
            }
            std::fs::write(&damaged, &bytes).unwrap();
            match judge(&damaged, &trees) {
                Ok(()) => harmless += 1,
                Err(error) => {
                    assert!(error.to_string().contains("damaged"), "it is named: {error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 100 && harmless > 10, "{refused} refused, {harmless} harmless");
}

#[test]
fn what_is_no_image_is_said_to_be_none() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let vfs = Vfs::new().unwrap();
    assert!(matches!(load(&file, &vfs, Contents::Keep), Err(Error::Io { .. })), "missing");
    for bytes in [&b""[..], b"hello", &[0; 10_000], b"redb\x1a\x0a\xa9\x0d\x0a"] {
        std::fs::write(&file, bytes).unwrap();
        let error = load(&file, &vfs, Contents::Keep).unwrap_err();
        assert!(matches!(error, Error::NotAnImage { .. } | Error::Corrupt { .. }), "{error}");
    }
    assert!(matches!(
        load(dir.path(), &vfs, Contents::Keep),
        Err(Error::NotAnImage { .. } | Error::Io { .. })
    ));
    // A store, but of something else.
    let other = redb::Database::create(dir.path().join("other")).unwrap();
    let txn = other.begin_write().unwrap();
    txn.open_table(redb::TableDefinition::<u64, u64>::new("state")).unwrap().insert(1, 2).unwrap();
    txn.commit().unwrap();
    drop(other);
    let error = load(&dir.path().join("other"), &vfs, Contents::Keep).unwrap_err();
    assert!(matches!(error, Error::NotAnImage { .. }), "{error}");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    assert!(matches!(load(&dir.path().join("fifo"), &vfs, Contents::Keep), Err(Error::NotAnImage { .. })));
}

/// Records that a program put there, with pages and checksums as they should be: the tree has to make sense itself.
#[test]
fn forged_records_are_refused() {
    const TABLES: [&str; 4] = ["nodes", "names", "chunks", "state"];
    let dir = tempfile::tempdir().unwrap();
    let (whole, forged) = (dir.path().join("whole"), dir.path().join("forged"));
    let vfs = Vfs::new().unwrap();
    let task = vfs.task(Cred::root());
    task.mkdir(b"/a", 0o700).unwrap();
    task.mkdir(b"/a/b", 0o700).unwrap();
    let fd = task.open(b"/a/b/f", O_CREAT | O_RDWR, 0o600).unwrap();
    task.write(fd, &[3; 70_000]).unwrap();
    rcuwalk_image::save(&vfs, &whole).unwrap();
    let trees = [snapshot(&vfs), snapshot(&vfs)];
    let mut random = Random(0xfeed_beef);
    for _ in 0..60 * times() {
        std::fs::copy(&whole, &forged).unwrap();
        let store = redb::Database::open(&forged).unwrap();
        let txn = store.begin_write().unwrap();
        let table = TABLES[random.below(4) as usize];
        {
            use redb::ReadableTable;
            let mut table = txn.open_table(redb::TableDefinition::<&[u8], &[u8]>::new(table)).unwrap();
            let records: Vec<(Vec<u8>, Vec<u8>)> = table
                .range::<&[u8]>(..)
                .unwrap()
                .map(|entry| {
                    entry.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())).unwrap()
                })
                .collect();
            let (key, mut value) = records[random.below(records.len() as u64) as usize].clone();
            let mut other = key.clone();
            match random.below(4) {
                // Gone; elsewhere; changed; twice.
                0 => drop(table.remove(&key[..]).unwrap()),
                1 => {
                    let at = random.below(other.len() as u64) as usize;
                    other[at] ^= 1 << random.below(8);
                    table.remove(&key[..]).unwrap();
                    table.insert(&other[..], &value[..]).unwrap();
                }
                2 => {
                    let at = random.below(value.len() as u64) as usize;
                    value[at] ^= 1 << random.below(8);
                    table.insert(&key[..], &value[..]).unwrap();
                }
                _ => {
                    let at = random.below(other.len() as u64) as usize;
                    other[at] = other[at].wrapping_add(1 + random.below(5) as u8);
                    table.insert(&other[..], &value[..]).unwrap();
                }
            }
        }
        txn.commit().unwrap();
        drop(store);
        match judge(&forged, &trees) {
            // The one record of the state, under a second key, is no part of the tree.
            Ok(()) => assert_eq!(table, "state"),
            Err(error) => assert!(matches!(error, Error::Corrupt { .. }), "{error}"),
        }
    }
}
