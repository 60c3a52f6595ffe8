//! What tenants can make stays within the memory that the host allows, and all of it comes back.

use rcuwalk::{CloneFlags, Cred, Errno, Flock, ProcFile, Result, Task, Vfs, uapi::*};
use std::process::Command;

/// The limit of the tests; bytes.
const LIMIT: u64 = 8 << 20;

fn limited() -> (Vfs, Task) {
    let vfs = Vfs::builder().capacity(1 << 20).memory_limit(LIMIT).build().expect("an engine");
    let root = vfs.task(Cred::root());
    (vfs, root)
}

/// Makes things until that fails; says how many, and how it failed.
fn fill(make: &mut dyn FnMut(u64) -> Result<()>) -> (u64, Errno) {
    (0..).find_map(|i| make(i).err().map(|errno| (i, errno))).expect("there is a limit")
}

/// Fills the memory with one kind of thing, twice: as many of them fit again when they are gone.
#[track_caller]
fn comes_back(
    least: u64,
    make: impl Fn(&Task, u64) -> Result<()>,
    remove: impl Fn(&Task, u64) -> Result<()>,
) {
    let (vfs, root) = limited();
    let all = (0..3).map(|_| {
        let (made, errno) = fill(&mut |i| make(&root, i));
        assert_eq!(errno, Errno::ENOMEM, "after {made}");
        let full = vfs.stats().memory;
        assert!(full <= LIMIT && full > LIMIT / 8 * 7, "{made} take {full} bytes");
        // What was refused left nothing behind, and what there is works.
        assert_eq!(make(&root, made), Err(Errno::ENOMEM));
        assert!(root.stat(b"/").is_ok());
        (0..made).for_each(|i| remove(&root, i).expect("is there"));
        let left = vfs.stats().memory;
        assert!(left < LIMIT / 3, "{left} bytes are left of {full}");
        made
    });
    let all: Vec<u64> = all.collect();
    assert!(all[0] >= least && all[1] * 100 >= all[0] * 98 && all[2] >= all[1], "{all:?}");
}

fn name(i: u64) -> Vec<u8> {
    format!("/{i}").into_bytes()
}

#[test]
fn names() {
    comes_back(20_000, |root, i| root.mkdir(&name(i), 0o755), |root, i| root.rmdir(&name(i)));
}

#[test]
fn long_names() {
    let long = |i| format!("/{}{i}", "n".repeat(240)).into_bytes();
    comes_back(10_000, move |root, i| root.mkdir(&long(i), 0o755), move |root, i| root.rmdir(&long(i)));
}

#[test]
fn bodies_of_links() {
    let body = [b'x'; 4000];
    comes_back(1_500, move |root, i| root.symlink(&body, &name(i)), |root, i| root.unlink(&name(i)));
}

#[test]
fn further_names() {
    let make = |root: &Task, i: u64| match i {
        0 => root.creat(b"/0", 0o644).and_then(|fd| root.close(fd)),
        _ => root.link(b"/0", &name(i)),
    };
    comes_back(20_000, make, |root, i| root.unlink(&name(i)));
}

#[test]
fn contents() {
    let make = |root: &Task, i: u64| {
        let fd = root.open(&name(i), O_CREAT | O_RDWR, 0o644)?;
        let written = root.pwrite(fd, &[1; 3 * 4096], 5000);
        root.close(fd)?;
        written.map(|_| ())
    };
    comes_back(400, make, |root, i| root.unlink(&name(i)));
}

/// Each page of a file that is nearly all hole has nodes of its own.
#[test]
fn scattered_pages() {
    let open = |root: &Task| root.open(b"/f", O_CREAT | O_RDWR, 0o644);
    let make = move |root: &Task, i: u64| {
        let fd = open(root)?;
        let written = root.pwrite(fd, b"x", (i << 30) as i64);
        root.close(fd)?;
        written.map(|_| ())
    };
    let remove = |root: &Task, i: u64| if i == 0 { root.truncate(b"/f", 0) } else { Ok(()) };
    comes_back(1_000, make, remove);
}

#[test]
fn reservations() {
    let make = |root: &Task, i: u64| {
        let fd = root.open(&name(i), O_CREAT | O_RDWR, 0o644)?;
        let reserved = root.fallocate(fd, 0, 0, 100 << 12);
        root.close(fd)?;
        reserved
    };
    comes_back(15, make, |root, i| root.unlink(&name(i)));
    let (_vfs, root) = limited();
    let fd = root.open(b"/f", O_CREAT | O_RDWR, 0o644).expect("has room");
    assert_eq!(root.fallocate(fd, 0, 0, 64 << 40), Err(Errno::ENOMEM));
    assert_eq!(root.fstat(fd).map(|stat| (stat.size, stat.blocks)), Ok((0, 0)));
}

#[test]
fn attributes() {
    let make = |root: &Task, i: u64| {
        if i == 0 {
            root.creat(b"/f", 0o644).and_then(|fd| root.close(fd))?;
        }
        root.setxattr(b"/f", format!("user.{i}").as_bytes(), &[7; 1000], 0)
    };
    comes_back(5_000, make, |root, i| root.removexattr(b"/f", format!("user.{i}").as_bytes()));
}

#[test]
fn mounts() {
    let make = |root: &Task, i: u64| {
        let _ = root.mkdir(b"/m", 0o755);
        root.mount(b"none", b"/m", b"tmpfs", 0, b"").map_err(|errno| if i > 100 { errno } else { Errno::EIO })
    };
    comes_back(4_000, make, |root, _| root.umount2(b"/m", 0));
}

/// What is large is cleared away in steps; when the call returns, all of it is gone.
#[test]
fn large_things_go_as_a_whole() {
    let (vfs, root) = limited();
    root.mkdir(b"/m", 0o755).expect("has room");
    let before = vfs.stats().entries;
    for _ in 0..2 {
        root.mount(b"none", b"/m", b"tmpfs", 0, b"").expect("mounts");
        for i in 0..5_000 {
            root.mkdir(&[b"/m", &*name(i)].concat(), 0o755).expect("has room");
            root.mkdir(&[b"/m", &*name(i), b"/below"].concat(), 0o755).expect("has room");
        }
        root.umount2(b"/m", 0).expect("is not busy");
        assert_eq!(vfs.stats().entries, before, "after the unmount");
        // Directories that only their last child keeps, which only a task keeps.
        let down = vfs.task(Cred::root());
        for _ in 0..5_000 {
            down.mkdir(b"d", 0o755).expect("has room");
            down.chdir(b"d").expect("is there");
        }
        assert_eq!(down.getcwd(), Err(Errno::ENAMETOOLONG));
        let up = down.fork();
        for _ in 0..5_000 {
            up.chdir(b"..").expect("is there");
            up.rmdir(b"d").expect("is empty");
        }
        assert_eq!(vfs.stats().entries, before + 5_000, "they are held");
        drop(down);
        assert_eq!(vfs.stats().entries, before, "after the task");
    }
}

/// While one task unmounts a large tree, another goes on making directories.
#[test]
fn nobody_waits_for_a_large_unmount() {
    let vfs = Vfs::builder().capacity(1 << 18).build().expect("an engine");
    let root = vfs.task(Cred::root());
    ["/m", "/o"].iter().for_each(|path| root.mkdir(path.as_bytes(), 0o755).expect("has room"));
    root.mount(b"none", b"/m", b"tmpfs", 0, b"").expect("mounts");
    (0..100_000).for_each(|i| root.mkdir(&[b"/m", &*name(i)].concat(), 0o755).expect("has room"));
    let made = std::thread::scope(|scope| {
        let other = vfs.task(Cred::root());
        let gone = scope.spawn(|| root.umount2(b"/m", 0));
        let mut made = 0;
        while !gone.is_finished() {
            other.mkdir(&[b"/o", &*name(made)].concat(), 0o755).expect("has room");
            made += 1;
        }
        gone.join().expect("ends").expect("is not busy");
        made
    });
    // 800 steps, between which the lock is free.
    assert!(made > 100, "only {made} directories were made meanwhile");
    assert_eq!(u64::from(vfs.stats().entries), made + 4, "two roots, and two directories");
}

/// Writes go on as far as they can, and a later one is refused.
#[test]
fn a_write_that_meets_the_limit_is_short() {
    let (_vfs, root) = limited();
    let fd = root.open(b"/f", O_CREAT | O_RDWR, 0o644).expect("has room");
    let all = vec![3; 2 * LIMIT as usize];
    let written = root.pwrite(fd, &all, 0).expect("a part fits");
    assert!(written > LIMIT as usize / 2 && written < LIMIT as usize, "{written}");
    assert_eq!(root.pwrite(fd, &all, written as i64), Err(Errno::ENOMEM));
    assert_eq!(root.fstat(fd).map(|stat| stat.size), Ok(written as i64));
    let mut byte = [0];
    assert_eq!((root.pread(fd, &mut byte, written as i64 - 1), byte), (Ok(1), [3]));
    assert_eq!(root.mkdir(b"/d", 0o755), Ok(()), "its chunk is there already");
}

#[test]
fn a_limit_below_an_empty_file_system_is_refused() {
    assert_eq!(Vfs::builder().memory_limit(1000).build().map(|_| ()), Err(Errno::ENOMEM));
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("proc");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

/// In a process of its own, with an address space of its own size: what the system counts.
#[test]
fn the_system_gets_its_memory_back() {
    if in_a_child_with(1_500_000, "the_system_gets_its_memory_back").is_some() {
        return;
    }
    let vfs = Vfs::builder().capacity(1 << 20).memory_limit(100 << 20).build().expect("an engine");
    let root = vfs.task(Cred::root());
    let start = resident();
    for round in 0..2 {
        let (made, errno) = fill(&mut |i| root.symlink(&[b'b'; 100], &name(i)));
        let full = resident() - start;
        assert_eq!(errno, Errno::ENOMEM);
        assert!(full < 100 << 20 && full > 50 << 20, "round {round}: {made} links take {full} bytes");
        (0..made).for_each(|i| root.unlink(&name(i)).expect("is there"));
        let left = resident().saturating_sub(start);
        assert!(left < 20 << 20, "round {round}: {left} bytes of {full} stay");
        println!("{made} links: {full} bytes, then {left}");
    }
}

/// Makes things with tasks of their own until that fails with `errno`, and lets go of all of them, three times.
#[track_caller]
fn goes_with_its_task<T>(least: usize, errno: Errno, make: impl Fn(&Task, u64) -> Result<T>) {
    let (vfs, root) = limited();
    root.close(root.creat(b"/f", 0o666).expect("has room")).expect("is open");
    let mut kept = Vec::new();
    for _ in 0..3 {
        let task = root.clone_with(CloneFlags::default()).expect("has room");
        task.set_nofile_limit(1 << 20);
        let mut made = Vec::new();
        let refused = (0..).find_map(|i| make(&task, i).map(|thing| made.push(thing)).err());
        assert_eq!(refused, Some(errno), "after {}", made.len());
        assert!(made.len() >= least, "{}", made.len());
        let full = vfs.stats().memory;
        assert!(full <= LIMIT && full > LIMIT / 8 * 7, "{} take {full} bytes", made.len());
        assert_eq!(make(&task, made.len() as u64).err(), Some(errno));
        assert_eq!(vfs.stats().memory, full, "a refusal takes nothing");
        drop((made, task));
        kept.push(vfs.stats().memory);
    }
    // Some chunks of names and mounts are kept for later.
    assert!(kept[0] < LIMIT / 8 && kept[1] < LIMIT / 8 && kept[2] == kept[1], "{kept:?}");
}

#[test]
fn tasks() {
    goes_with_its_task(500, Errno::ENOMEM, |task, _| task.clone_with(CloneFlags::default()));
    let thread = CloneFlags::default().with_thread(true).with_files(true).with_fs(true);
    goes_with_its_task(2_000, Errno::ENOMEM, |task, _| task.clone_with(thread));
}

#[test]
fn namespaces() {
    let with = |flags: CloneFlags| move |task: &Task, _| task.clone_with(flags);
    goes_with_its_task(400, Errno::ENOMEM, with(CloneFlags::default().with_new_user(true)));
    goes_with_its_task(400, Errno::ENOMEM, with(CloneFlags::default().with_new_ns(true)));
    // Two maps of 300 lines are 21 KiB.
    let lines: String = (0..300).map(|i| format!("{i} {i} 1\n")).collect();
    goes_with_its_task(100, Errno::ENOMEM, |task, _| {
        let child = task.clone_with(CloneFlags::default().with_new_user(true))?;
        for file in [ProcFile::UidMap, ProcFile::GidMap] {
            let fd = task.open_proc(&child, file)?;
            let written = task.write(fd, lines.as_bytes());
            task.close(fd)?;
            written?;
        }
        Ok(child)
    });
}

#[test]
fn descriptors() {
    goes_with_its_task(10_000, Errno::ENOMEM, |task, _| task.open(b"/f", O_RDWR, 0));
    goes_with_its_task(10_000, Errno::ENOMEM, |task, i| match i {
        0 => task.open(b"/f", O_RDWR, 0),
        _ => task.dup(0),
    });
    // Numbers without files take room as well, and so do copies of the table.
    goes_with_its_task(10, Errno::ENOMEM, |task, i| {
        let child = task.clone_with(CloneFlags::default())?;
        let fd = child.open(b"/f", O_RDWR, 0)?;
        child.dup2(fd, 10_000 + i as i32)?;
        Ok(child)
    });
    goes_with_its_task(10, Errno::ENOMEM, |task, i| {
        if i == 0 {
            (0..1_000).try_for_each(|_| task.open(b"/f", O_RDWR, 0).map(|_| ()))?;
        }
        task.clone_with(CloneFlags::default())
    });
}

#[test]
fn groups_that_open_files_keep() {
    let groups = [7; 65_536];
    goes_with_its_task(20, Errno::ENOMEM, |task, _| {
        let mut child = task.clone_with(CloneFlags::default().with_files(true))?;
        child.setgroups(&groups)?;
        child.open(b"/f", O_RDWR, 0)
    });
}

/// An open that finds no room for a descriptor neither makes the file nor empties it.
#[test]
fn an_open_without_room_changes_nothing() {
    let (vfs, root) = limited();
    let fd = root.open(b"/f", O_CREAT | O_RDWR, 0o644).expect("has room");
    root.pwrite(fd, b"kept", 0).expect("has room");
    let task = root.clone_with(CloneFlags::default()).expect("has room");
    task.set_nofile_limit(1 << 20);
    let (_, errno) = fill(&mut |_| task.open(b"/f", O_RDWR, 0).map(|_| ()));
    assert_eq!(errno, Errno::ENOMEM);
    let entries = vfs.stats().entries;
    assert_eq!(task.open(b"/new", O_CREAT | O_RDWR, 0o644), Err(Errno::ENOMEM));
    assert_eq!(task.open(b"/f", O_TRUNC | O_RDWR, 0), Err(Errno::ENOMEM));
    assert_eq!((root.stat(b"/new"), vfs.stats().entries), (Err(Errno::ENOENT), entries));
    assert_eq!(root.fstat(fd).map(|stat| stat.size), Ok(4));
    task.close(100).expect("is open");
    assert_eq!(task.open(b"/new", O_CREAT | O_RDWR, 0o644), Ok(100));
}

#[test]
fn locks() {
    let lock = |kind, start, len| Flock { kind, start, len, ..Flock::default() };
    goes_with_its_task(3_000, Errno::ENOLCK, |task, i| {
        if i == 0 {
            task.open(b"/f", O_RDWR, 0)?;
        }
        // Sorting them in takes longer the more there are.
        let file = 1 + i as i32 / 100;
        if i % 100 == 0 {
            task.creat(&name(i), 0o644)?;
        }
        task.fcntl_lock(file, F_SETLK, &mut lock(F_WRLCK, 2 * (i as i64 % 100), 1)).map(|_| ())
    });
}

/// What cannot be had costs nothing that is held.
#[test]
fn a_lock_without_room_leaves_the_others() {
    let (vfs, root) = limited();
    let lock = |kind, start, len| Flock { kind, start, len, ..Flock::default() };
    let [fd, other] = [(); 2].map(|()| root.open(b"/f", O_CREAT | O_RDWR, 0o644).expect("has room"));
    root.flock(fd, LOCK_SH).expect("is free");
    root.fcntl_lock(fd, F_SETLK, &mut lock(F_WRLCK, 0, 1000)).expect("is free");
    let ballast = root.open(b"/b", O_CREAT | O_RDWR, 0o644).expect("has room");
    let (_, errno) = fill(&mut |i| root.pwrite(ballast, &[1; 4096], (i << 12) as i64).map(|_| ()));
    assert_eq!(errno, Errno::ENOMEM);
    let mut at = 2000;
    let refused = loop {
        at += 2;
        if let Err(errno) = root.fcntl_lock(fd, F_SETLK, &mut lock(F_WRLCK, at, 1)) {
            break errno;
        }
    };
    assert_eq!(refused, Errno::ENOLCK);
    assert_eq!(root.fcntl_lock(fd, F_SETLK, &mut lock(F_UNLCK, 500, 1)), Err(Errno::ENOLCK), "would be two");
    let mut seen = lock(F_WRLCK, 500, 1);
    root.fork().fcntl_lock(fd, F_GETLK, &mut seen).expect("answers");
    assert_eq!((seen.kind, seen.start, seen.len), (F_WRLCK, 0, 1000), "is whole");
    assert_eq!(root.flock(fd, LOCK_EX), Err(Errno::ENOMEM));
    assert_eq!(root.flock(other, LOCK_EX | LOCK_NB), Err(Errno::ENOMEM));
    root.fcntl_lock(fd, F_SETLK, &mut lock(F_UNLCK, at - 2, 1)).expect("gives back");
    assert_eq!(root.flock(other, LOCK_EX | LOCK_NB), Err(Errno::EAGAIN), "the shared one is still held");
    assert!(vfs.stats().memory <= LIMIT);
}

/// Runs the rest of the test of this name in a process with so many KiB of address space; `None` in that process.
fn in_a_child_with(kib: u64, test: &str) -> Option<()> {
    const CHILD: &str = "RCUWALK_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let me = std::env::current_exe().expect("a path");
    let line = format!("ulimit -v {kib}; exec \"$0\" --exact {test} --nocapture");
    let child = Command::new("sh").args(["-c", &line]).arg(me).env(CHILD, "1").output().expect("sh runs");
    let told = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && told.contains("1 passed"), "{told}");
    Some(())
}

/// What is reserved unless told otherwise gives way to a limit on the address space.
#[test]
fn a_process_with_little_address_space_has_room() {
    if in_a_child_with(1 << 20, "a_process_with_little_address_space_has_room").is_some() {
        return;
    }
    let vfs = Vfs::new().expect("smaller ones are tried");
    let root = vfs.task(Cred::root());
    let capacity = u64::from(vfs.stats().capacity);
    assert!((1 << 18..1 << 24).contains(&capacity), "{capacity}");
    (0..10_000).for_each(|i| root.mkdir(&name(i), 0o755).expect("has room"));
    let half = vec![1_u8; 256 << 20];
    assert_eq!(Vfs::builder().capacity(1 << 24).build().map(|_| ()), Err(Errno::ENOMEM), "it was told");
    let fd = root.open(b"/0/f", O_CREAT | O_RDWR, 0o644).expect("has room");
    assert_eq!(root.pwrite(fd, &half[..1 << 20], 0), Ok(1 << 20));
    let fresh = std::thread::spawn(move || vfs.stats().entries).join().expect("a thread has room");
    assert_eq!(fresh, 10_003);
}
