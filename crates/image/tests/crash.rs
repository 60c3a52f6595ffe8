//! Killed at any moment, a process leaves an image of one of the states that its file system went through, and none that is older
//! than its last fsync.
//!
//! A child makes calls that follow from their number, syncs now and then, tells when it did, and is killed. The parent makes the
//! same calls on an engine of its own: what the image holds must be, bit for bit, what is there after one of them.
//! `RCUWALK_CRASH_ROUNDS` says how often; `cargo x crash` has hundreds.

mod common;

use common::{Facts, Random, assert_same, call, snapshot};
use rcuwalk::uapi::*;
use rcuwalk::{Cred, Task, Timespec, Vfs};
use rcuwalk_image::{Contents, Live, Options, check, load};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CHILD: &str = "RCUWALK_CRASH_CHILD";
const ROUNDS: &str = "RCUWALK_CRASH_ROUNDS";

/// A file system whose clock shows the number of the call.
fn engine() -> (Vfs, Arc<Mutex<i64>>) {
    let clock = Arc::new(Mutex::new(0));
    let shown = Arc::clone(&clock);
    let vfs = Vfs::builder()
        .clock(Box::new(move || Timespec { sec: 1000 * *shown.lock().unwrap(), nsec: 7 }))
        .build()
        .unwrap();
    (vfs, clock)
}

/// The number of the last call, which is the size of a file.
fn number(vfs: &Vfs) -> u64 {
    vfs.task(Cred::root()).stat(b"/number").unwrap().size as u64
}

/// Makes call number `n`, whatever comes of it; noting the number is another one.
fn make(task: &Task, clock: &Mutex<i64>, n: u64) {
    *clock.lock().unwrap() = n as i64;
    let mut random = Random(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    random.below(2);
    let _ = call(task, &mut random);
}

fn note(task: &Task, n: u64) {
    task.truncate(b"/number", n as i64).unwrap();
}

/// What the child does until it is killed.
#[test]
fn child() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let (vfs, clock) = engine();
    let options = Options { interval: Duration::from_millis(3), unsaved_bytes: 1 << 20 };
    let live = Live::open(Path::new(&path), &vfs, &options).unwrap();
    let task = vfs.task(Cred::root());
    let mut out = std::io::stderr();
    let mut tell = |n: u64| out.write_all(&n.to_le_bytes()).unwrap();
    let mut n = number(&vfs);
    tell(n);
    let mut pause = Random(n + 12345);
    loop {
        n += 1;
        make(&task, &clock, n);
        note(&task, n);
        if pause.below(12) == 0 {
            if pause.below(2) == 0 {
                let fd = task.open(b"/number", O_RDONLY, 0).unwrap();
                task.fsync(fd).unwrap();
                task.close(fd).unwrap();
            } else {
                live.sync().unwrap();
            }
            tell(n);
        }
        if pause.below(300) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Runs a child and kills it; gives the numbers of the last call that it had made durable.
fn run_and_kill(path: &Path, after: Duration) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(CHILD, path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stderr.take().unwrap();
    let mut told = [0; 8];
    pipe.read_exact(&mut told).unwrap();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap();
    });
    let mut synced = u64::from_le_bytes(told);
    // A number is written at once, or not at all.
    while pipe.read_exact(&mut told).is_ok() {
        synced = u64::from_le_bytes(told);
    }
    killer.join().unwrap();
    synced
}

/// The model after so many calls, and after the next one before its number was noted.
fn replay(from: &Path, to: u64) -> [BTreeMap<Vec<u8>, Facts>; 2] {
    let (vfs, clock) = engine();
    load(from, &vfs, Contents::Keep).unwrap();
    let task = vfs.task(Cred::root());
    for n in number(&vfs) + 1..=to {
        make(&task, &clock, n);
        note(&task, n);
    }
    let noted = snapshot(&vfs);
    make(&task, &clock, to + 1);
    [noted, snapshot(&vfs)]
}

#[test]
fn killed_at_any_moment() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let rounds = std::env::var(ROUNDS).map_or(40, |rounds| rounds.parse().expect("a number of rounds"));
    let dir = tempfile::tempdir().unwrap();
    let (path, before) = (dir.path().join("tree.image"), dir.path().join("before"));
    let (vfs, _) = engine();
    let task = vfs.task(Cred::root());
    task.close(task.creat(b"/number", 0o600).unwrap()).unwrap();
    Live::create(&path, &vfs, &Options::default()).unwrap().close().unwrap();
    let mut random = Random(0x5eed);
    let (mut later, mut calls) = (0, 0);
    for round in 0..rounds {
        std::fs::copy(&path, &before).unwrap();
        let synced = run_and_kill(&path, Duration::from_micros(random.below(60_000)));
        check(&path).unwrap();
        let (found, _) = engine();
        load(&path, &found, Contents::Keep).unwrap();
        let reached = number(&found);
        assert!(reached >= synced, "round {round}: {synced} was durable, and {reached} is there");
        let tree = snapshot(&found);
        let [noted, unnoted] = replay(&before, reached);
        if tree != unnoted {
            assert_same(&noted, &tree);
        }
        later += u64::from(reached > synced);
        calls = reached;
    }
    println!("{rounds} kills, {calls} calls; after {later} of them more was there than was asked for");
    assert!(calls > rounds * 3, "the children get somewhere");
}
