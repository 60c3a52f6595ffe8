//! Full disks: what was accepted can be committed, and what was removed stays removed. Without root, which a small disk to fill takes, the
//! tests say so and pass.

use rcuwalk::uapi::*;
use rcuwalk::{Cred, Errno, Task, Vfs};
use rcuwalk_image::{Contents, Live, Options, load};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// A small file system of its own.
struct Disk {
    dir: TempDir,
}

impl Disk {
    fn new(size: &str) -> Option<Disk> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounting a small disk needs root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let data = std::ffi::CString::new(format!("size={size}")).unwrap();
        match mount("none", dir.path(), "tmpfs", MountFlags::empty(), &*data) {
            Ok(()) => Some(Disk { dir }),
            Err(e) => {
                eprintln!("skipped: mounting a small disk: {e}");
                None
            }
        }
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("tree.image")
    }

    /// Gives an image to user 65534, in a directory in which nobody may make files.
    fn close_directory(&self) {
        use std::os::unix::fs::{PermissionsExt, chown};
        chown(self.image(), Some(65534), Some(65534)).unwrap();
        std::fs::set_permissions(self.dir.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
    }

    /// Another program takes all that is left.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.dir.path().join("other")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(self.dir.path(), UnmountFlags::DETACH).unwrap();
    }
}

/// A file system that is larger than the disk, but not than the memory.
fn vfs() -> Vfs {
    Vfs::builder().size_limit(96 << 20).inode_limit(100_000).capacity(100_000).build().unwrap()
}

/// Nothing is committed but when there is no room for more.
fn lazily() -> Options {
    Options { interval: Duration::from_secs(3600), ..Options::default() }
}

/// Writes a file of `size` bytes as far as it is accepted; gives how far.
fn write(task: &Task, name: &str, size: usize) -> Result<usize, Errno> {
    let fd = task.open(format!("/{name}").as_bytes(), O_CREAT | O_WRONLY, 0o600)?;
    let mut done = 0;
    while done < size {
        match task.write(fd, &vec![name.len() as u8; (size - done).min(100_000)]) {
            Ok(n) => done += n,
            Err(Errno::ENOSPC) => break,
            Err(errno) => panic!("{errno}"),
        }
    }
    task.close(fd).unwrap();
    Ok(done)
}

/// Makes files until no more is accepted. What was.
fn fill(task: &Task, sizes: &[usize], prefix: &str) -> BTreeMap<String, usize> {
    let mut accepted = BTreeMap::new();
    for (n, size) in (0..1_000_000).zip(sizes.iter().cycle()) {
        let name = format!("{prefix}{n}");
        match write(task, &name, *size) {
            Ok(done) => {
                accepted.insert(name, done);
                if done < *size {
                    return accepted;
                }
            }
            Err(Errno::ENOSPC) => return accepted,
            Err(errno) => panic!("{errno}"),
        }
    }
    panic!("there is no end of it");
}

/// Runs it as user 65534, who may do no more than others.
fn as_nobody<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let nobody = scope.spawn(|| {
            let uid = rustix::process::Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            run()
        });
        nobody.join().unwrap()
    })
}

/// What the image holds.
fn kept(disk: &Disk) -> BTreeMap<String, usize> {
    let vfs = vfs();
    load(&disk.image(), &vfs, Contents::Keep).unwrap();
    let task = vfs.task(Cred::root());
    let fd = task.open(b"/", O_RDONLY | O_DIRECTORY, 0).unwrap();
    let mut entries = Vec::new();
    while task.getdents(fd, &mut entries, 1000).unwrap() != 0 {}
    entries.retain(|entry| entry.name[0] != b'.');
    entries
        .iter()
        .map(|entry| {
            let path = [b"/", &entry.name[..]].concat();
            let size = task.stat(&path).unwrap().size as usize;
            (String::from_utf8(entry.name.to_vec()).unwrap(), size)
        })
        .collect()
}

#[test]
fn what_was_accepted_is_committed_when_the_disk_is_full() {
    for sizes in [&[0][..], &[100], &[3000], &[40_000], &[2_000_000], &[10, 5000, 300_000]] {
        let Some(disk) = Disk::new("24m") else { return };
        let vfs = vfs();
        let live = Live::create(&disk.image(), &vfs, &lazily()).unwrap();
        let task = vfs.task(Cred::root());
        let accepted = fill(&task, sizes, "f");
        let bytes: usize = accepted.values().sum();
        assert!(sizes.iter().max() < Some(&3000) || bytes > 8 << 20, "{sizes:?}: {bytes} bytes fit");
        // Whatever is left, others may have it.
        disk.fill();
        live.close().unwrap();
        assert!(kept(&disk) == accepted, "{sizes:?}");
    }
}

#[test]
fn what_others_take_is_not_what_was_reserved() {
    let Some(disk) = Disk::new("24m") else { return };
    let vfs = vfs();
    let live = Live::create(&disk.image(), &vfs, &lazily()).unwrap();
    disk.fill();
    let task = vfs.task(Cred::root());
    let accepted = fill(&task, &[10, 2000, 50_000], "f");
    assert!(accepted.len() > 3, "{accepted:?}");
    let dirs = (0..10_000).take_while(|n| task.mkdir(format!("/d{n}").as_bytes(), 0o700).is_ok()).count();
    assert!(dirs < 10_000, "there is no end of it");
    live.close().unwrap();
    let mut kept = kept(&disk);
    kept.retain(|name, _| name.starts_with('f'));
    assert_eq!(kept, accepted);
}

#[test]
fn what_was_removed_stays_removed_and_makes_room() {
    for sizes in [&[0][..], &[3000], &[40_000], &[10, 5000, 300_000]] {
        let Some(disk) = Disk::new("24m") else { return };
        let vfs = vfs();
        let live = Live::create(&disk.image(), &vfs, &lazily()).unwrap();
        let task = vfs.task(Cred::root());
        let mut expected = fill(&task, sizes, "f");
        disk.fill();
        for name in expected.keys().step_by(2).cloned().collect::<Vec<_>>() {
            task.unlink(format!("/{name}").as_bytes()).unwrap();
            expected.remove(&name);
        }
        let more = fill(&task, sizes, "more");
        assert!(more.len() * 4 > expected.len(), "{sizes:?}: {} after {}", more.len(), expected.len());
        expected.extend(more);
        task.rename(b"/more0", b"/f0").unwrap();
        let size = expected.remove("more0").unwrap();
        expected.insert("f0".into(), size);
        live.close().unwrap();
        assert!(kept(&disk) == expected, "{sizes:?}");
    }
}

#[test]
fn a_file_gets_a_name_only_where_there_is_room_for_it() {
    let Some(disk) = Disk::new("24m") else { return };
    let vfs = vfs();
    let live = Live::create(&disk.image(), &vfs, &lazily()).unwrap();
    let task = vfs.task(Cred::root());
    let large = task.open(b"/", O_TMPFILE | O_RDWR, 0o600).unwrap();
    for _ in 0..10 {
        task.write(large, &[1; 1 << 20]).unwrap();
    }
    // It has no name: nothing of it is kept, and nothing waits.
    live.sync().unwrap();
    disk.fill();
    assert_eq!(task.linkat(large, b"", AT_FDCWD, b"/large", AT_EMPTY_PATH), Err(Errno::ENOSPC));
    std::fs::remove_file(disk.dir.path().join("other")).unwrap();
    assert_eq!(task.linkat(large, b"", AT_FDCWD, b"/large", AT_EMPTY_PATH), Ok(()));
    disk.fill();
    let mut attributes = 0;
    while task.setxattr(b"/large", format!("user.{attributes}").as_bytes(), &[2; 4000], 0) == Ok(()) {
        attributes += 1;
        if attributes == 100 {
            break;
        }
    }
    live.close().unwrap();
    assert_eq!(kept(&disk), BTreeMap::from([("large".to_owned(), 10 << 20)]));
}

#[test]
fn reserved_space_is_given_back() {
    let Some(disk) = Disk::new("64m") else { return };
    let vfs = vfs();
    let live = Live::create(&disk.image(), &vfs, &lazily()).unwrap();
    let task = vfs.task(Cred::root());
    write(&task, "f", 1 << 20).unwrap();
    live.sync().unwrap();
    let used = || {
        let fs = rustix::fs::statvfs(disk.dir.path()).unwrap();
        (fs.f_blocks - fs.f_bfree) * fs.f_frsize
    };
    let reserved = used();
    live.close().unwrap();
    assert!(used() + (1 << 20) <= reserved, "{reserved} bytes while it is used, {} after", used());
}

#[test]
fn an_image_is_kept_in_a_directory_that_may_not_be_written_to() {
    let Some(disk) = Disk::new("24m") else { return };
    Live::create(&disk.image(), &vfs(), &lazily()).unwrap().close().unwrap();
    disk.close_directory();
    let accepted = as_nobody(|| {
        let vfs = vfs();
        let live = Live::open(&disk.image(), &vfs, &lazily()).unwrap();
        assert!(live.unreserved().is_some_and(|why| why.contains("Permission denied")));
        let task = vfs.task(Cred::root());
        let mut expected = fill(&task, &[10, 5000, 300_000], "f");
        assert!(expected.values().sum::<usize>() > 4 << 20, "{expected:?}");
        task.unlink(b"/f0").unwrap();
        expected.remove("f0");
        live.close().unwrap();
        expected
    });
    assert!(kept(&disk) == accepted);
}

#[test]
fn a_commit_for_which_no_room_was_kept_is_told_of_and_loses_nothing() {
    let Some(disk) = Disk::new("24m") else { return };
    Live::create(&disk.image(), &vfs(), &lazily()).unwrap().close().unwrap();
    disk.close_directory();
    let vfs = vfs();
    let live = as_nobody(|| Live::open(&disk.image(), &vfs, &lazily()).unwrap());
    let task = vfs.task(Cred::root());
    assert_eq!(write(&task, "f", 2 << 20), Ok(2 << 20));
    disk.fill();
    let failed = live.sync().unwrap_err();
    assert_eq!(failed.errno(), Errno::ENOSPC, "{failed}");
    assert_eq!(write(&task, "g", 1), Err(Errno::ENOSPC));
    std::fs::remove_file(disk.dir.path().join("other")).unwrap();
    live.close().unwrap();
    assert_eq!(kept(&disk), BTreeMap::from([("f".to_owned(), 2 << 20)]));
}

#[test]
fn room_is_kept_where_the_image_is_and_not_where_a_link_to_it_is() {
    let Some(disk) = Disk::new("24m") else { return };
    Live::create(&disk.image(), &vfs(), &lazily()).unwrap().close().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link.image");
    std::os::unix::fs::symlink(disk.image(), &link).unwrap();
    let free = || rustix::fs::statvfs(disk.dir.path()).unwrap().f_bfree;
    let before = free();
    let (one, two) = (vfs(), vfs());
    let live = Live::open(&link, &one, &lazily()).unwrap();
    assert_eq!(live.unreserved(), None);
    assert!(free() < before, "no room is taken");
    live.close().unwrap();

    let bound = elsewhere.path().join("bound.image");
    std::fs::write(&bound, "").unwrap();
    mount(disk.image(), &bound, "", MountFlags::BIND, None).unwrap();
    let opened = Live::open(&bound, &two, &lazily());
    let why = opened.as_ref().ok().and_then(Live::unreserved);
    drop(opened);
    unmount(&bound, UnmountFlags::DETACH).unwrap();
    assert!(why.is_some_and(|why| why.contains("another file system")));
}

const CHILD: &str = "RCUWALK_FULL_CHILD";
const ROUNDS: &str = "RCUWALK_CRASH_ROUNDS";

/// Bytes of file number `n`.
fn size_of(n: u64) -> usize {
    [10, 700, 3000, 30_000, 150_000, 400_000][(n * 7 % 11 % 6) as usize] + n as usize % 97
}

fn name_of(n: u64) -> Vec<u8> {
    format!("/f{n}").into_bytes()
}

/// The numbers of the files that are there: one after the other.
fn numbers(task: &Task) -> Vec<u64> {
    let fd = task.open(b"/", O_RDONLY | O_DIRECTORY, 0).unwrap();
    let mut entries = Vec::new();
    while task.getdents(fd, &mut entries, 1000).unwrap() != 0 {}
    task.close(fd).unwrap();
    let number = |name: &[u8]| std::str::from_utf8(name.strip_prefix(b"f")?).ok()?.parse().ok();
    let mut numbers: Vec<u64> = entries.iter().filter_map(|entry| number(&entry.name)).collect();
    numbers.sort_unstable();
    numbers
}

/// What the child does until it is killed: makes files in turn until the disk is full, removes the oldest half, and goes on. Says what
/// is to go before it goes, and which files are durable once they are.
#[test]
fn child() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let vfs = vfs();
    let options = Options { interval: Duration::from_millis(20), ..Options::default() };
    let live = Live::open(path.as_ref(), &vfs, &options).unwrap();
    let task = vfs.task(Cred::root());
    let mut out = std::io::stderr();
    let mut tell = |what: u8, n: u64| out.write_all(&[&[what][..], &n.to_le_bytes()].concat()).unwrap();
    let there = numbers(&task);
    let (mut first, mut next) = (there.first().copied().unwrap_or(0), there.last().map_or(0, |n| n + 1));
    // The last one may have been under way when the one before was killed.
    if let Some(&last) = there.last()
        && task.stat(&name_of(last)).unwrap().size as usize != size_of(last)
    {
        task.unlink(&name_of(last)).unwrap();
        next = last;
    }
    tell(b'r', first);
    loop {
        let n = next;
        let whole = write_file(&task, n);
        if whole {
            next += 1;
        } else {
            // What was accepted of it goes, and so does the older half.
            let _ = task.unlink(&name_of(n));
            let half = first.midpoint(next);
            tell(b'r', half);
            while first < half {
                task.unlink(&name_of(first)).unwrap();
                first += 1;
            }
        }
        if n % 5 == 0 || !whole {
            live.sync().unwrap();
            tell(b's', next);
        }
    }
}

/// Writes file number `n`. Whether all of it was accepted.
fn write_file(task: &Task, n: u64) -> bool {
    let Ok(fd) = task.open(&name_of(n), O_CREAT | O_TRUNC | O_WRONLY, 0o600) else { return false };
    let mut left = size_of(n);
    while left > 0 {
        match task.write(fd, &vec![n as u8; left.min(60_000)]) {
            Ok(written) => left -= written,
            Err(Errno::ENOSPC) => break,
            Err(errno) => panic!("{errno}"),
        }
    }
    task.close(fd).unwrap();
    left == 0
}

/// Runs the child and kills it; gives how far files were to be removed, and up to which they were durable.
fn run_and_kill(image: &std::path::Path, after: Duration) -> (u64, u64) {
    use std::io::Read;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(CHILD, image)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stderr.take().unwrap();
    let (mut removed, mut durable, mut told) = (0, 0, [0; 9]);
    let mut killer = None;
    while pipe.read_exact(&mut told).is_ok() {
        let n = u64::from_le_bytes(*told.last_chunk().unwrap());
        match told[0] {
            b'r' => removed = n,
            b's' => durable = n,
            _ => panic!("the child says {told:?}"),
        }
        if killer.is_none() {
            let pid = rustix::process::Pid::from_child(&child);
            killer = Some(std::thread::spawn(move || {
                std::thread::sleep(after);
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            }));
        }
    }
    killer.expect("the child begins").join().unwrap();
    assert!(!child.wait().unwrap().success());
    (removed, durable)
}

#[test]
fn killed_on_a_full_disk() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let rounds = std::env::var(ROUNDS).map_or(12, |rounds| rounds.parse().expect("a number of rounds"));
    let Some(disk) = Disk::new("24m") else { return };
    Live::create(&disk.image(), &vfs(), &lazily()).unwrap().close().unwrap();
    let (mut reached, mut refused, mut bytes) = (0, 0, 0);
    for round in 0..rounds {
        let (removed, durable) = run_and_kill(&disk.image(), Duration::from_millis(20 + round * 37 % 400));
        let found = vfs();
        load(&disk.image(), &found, Contents::Keep).unwrap();
        let task = found.task(Cred::root());
        let there = numbers(&task);
        let (first, end) = (there.first().copied().unwrap_or(0), there.last().map_or(0, |n| n + 1));
        assert!(there.iter().copied().eq(first..end), "round {round}: {there:?}");
        assert!(
            first <= removed,
            "round {round}: {first} is gone, and only those below {removed} were to go"
        );
        assert!(end + 1 >= reached, "round {round}: {reached} were there before, and there are {end}");
        assert!(end >= durable, "round {round}: {durable} were durable, and there are {end}");
        for n in there {
            let fd = task.open(&name_of(n), O_RDONLY, 0).unwrap();
            let mut data = vec![0; size_of(n) + 1];
            let len = task.read(fd, &mut data).unwrap();
            // The last one may have been under way.
            assert!(
                len == size_of(n) || n + 1 == end && n >= durable,
                "round {round}: {len} bytes of file {n}"
            );
            assert!(data[..len].iter().all(|&byte| byte == n as u8), "round {round}: file {n}");
            task.close(fd).unwrap();
            bytes += len as u64;
        }
        (reached, refused) = (end, refused.max(removed));
    }
    println!(
        "{rounds} kills, {reached} files, {refused} of them removed again on a full disk, {bytes} bytes compared"
    );
    assert!(reached > 0 && (rounds < 10 || refused > 0), "the disk was full");
}
