//! The raw door: registers and memory, good and bad.

use rcuwalk::syscall::{Event, SliceMemory, UserMemory, nr};
use rcuwalk::uapi::*;
use rcuwalk::{Cred, Errno, Result, Task, Vfs};

/// Where the memory of these tests begins.
const BASE: u64 = 0x40_0000;

/// A program: a task and one piece of memory.
struct Program {
    task: Task,
    memory: Vec<u8>,
}

impl Program {
    fn new(cred: Cred) -> Program {
        let vfs = Vfs::builder().capacity(1 << 12).build().expect("a file system");
        Program { task: vfs.task(cred), memory: vec![0; 0x4000] }
    }

    /// Puts `bytes` at `offset` and gives the address.
    fn put(&mut self, offset: usize, bytes: &[u8]) -> u64 {
        self.memory[offset..offset + bytes.len()].copy_from_slice(bytes);
        BASE + offset as u64
    }

    fn call(&mut self, number: u64, args: &[u64]) -> i64 {
        let mut registers = [0; 6];
        registers[..args.len()].copy_from_slice(args);
        self.task.syscall(&mut SliceMemory::new(BASE, &mut self.memory), number, registers)
    }

    fn u32_at(&self, offset: usize) -> u32 {
        u32::from_ne_bytes(self.memory[offset..offset + 4].try_into().expect("four bytes"))
    }
}

const BAD: u64 = 8;

fn error(errno: Errno) -> i64 {
    -i64::from(errno.raw())
}

#[test]
fn unknown_numbers_are_enosys() {
    let mut p = Program::new(Cred::root());
    for number in [7, 9, 41, 334, 449, 470, 471, 1 << 32, u64::MAX] {
        assert_eq!(p.call(number, &[]), error(Errno::ENOSYS), "{number}");
    }
    assert!(nr::ALL.windows(2).all(|pair| pair[0].0 < pair[1].0), "ascending, and none twice");
}

#[test]
fn structures_have_the_layout_of_the_system_call() {
    let mut p = Program::new(Cred::root());
    let path = p.put(0, b"/d\0");
    assert_eq!(p.call(nr::MKDIR, &[path, 0o750]), 0);
    assert_eq!(p.call(nr::CHOWN, &[path, 1000, 1001]), 0);
    p.memory[0x100..0x300].fill(0xaa);
    assert_eq!(p.call(nr::STAT, &[path, BASE + 0x100]), 0);
    assert_eq!([p.u32_at(0x118), p.u32_at(0x11c), p.u32_at(0x120)], [0o040750, 1000, 1001]);
    assert_eq!(p.u32_at(0x124), 0, "padding");
    assert_eq!(&p.memory[0x178..0x190], &[0; 24], "the reserved tail");
    assert_eq!(p.memory[0x190], 0xaa, "144 bytes and no more");

    p.memory[0x100..0x300].fill(0xaa);
    assert_eq!(p.call(nr::STATX, &[AT_FDCWD as u64, path, 0, u64::from(STATX_BASIC_STATS), BASE + 0x100]), 0);
    assert_eq!([p.u32_at(0x114), p.u32_at(0x118)], [1000, 1001]);
    let statx = p.task.statx(AT_FDCWD, b"/d", 0, STATX_BASIC_STATS).expect("it is there");
    assert_eq!(&p.memory[0x100..0x200], &statx.to_bytes());
    for (at, field) in [(0x48, 0x4c), (0x58, 0x5c), (0x68, 0x6c), (0x78, 0x7c)] {
        assert_eq!(p.u32_at(0x100 + field), 0, "reserved behind the nanoseconds at {at:#x}");
    }
    assert_eq!(p.u32_at(0x100 + 0x70), statx.mtime.sec as u32);
    assert_eq!(p.memory[0x1bc..0x200], [0; 68], "reserved");
    assert_eq!(p.memory[0x200], 0xaa, "256 bytes and no more");
    let end = BASE + p.memory.len() as u64;
    assert_eq!(p.call(nr::STATX, &[AT_FDCWD as u64, path, 0, 0, end - 255]), error(Errno::EFAULT));
}

#[test]
fn what_is_wrong_with_a_name_shows_where_the_name_is_used() {
    let mut p = Program::new(Cred::root());
    let good = p.put(0, b"/f\0");
    let missing = p.put(0x10, b"/no/x\0");
    let long = p.put(0x1000, &[b'x'; 4096]);
    let end = BASE + p.memory.len() as u64;
    p.memory[0x3ffe..].copy_from_slice(b"xx");
    assert_eq!(p.call(nr::CREAT, &[good, 0o644]), 0);
    let cwd = AT_FDCWD as u64;
    for (number, args, errno) in [
        (nr::ACCESS, vec![BAD, 0], Errno::EFAULT),
        (nr::ACCESS, vec![BAD, 8], Errno::EINVAL),
        (nr::ACCESS, vec![end - 2, 0], Errno::EFAULT),
        (nr::ACCESS, vec![long, 0], Errno::ENAMETOOLONG),
        (nr::RENAME, vec![missing, BAD], Errno::ENOENT),
        (nr::RENAME, vec![good, BAD], Errno::EFAULT),
        (nr::RENAME, vec![BAD, long], Errno::EFAULT),
        (nr::RENAME, vec![good, long], Errno::ENAMETOOLONG),
        (nr::LINK, vec![missing, BAD], Errno::ENOENT),
        (nr::SYMLINK, vec![BAD, long], Errno::EFAULT),
        (nr::SYMLINK, vec![good, BAD], Errno::EFAULT),
        (nr::UNLINKAT, vec![cwd, BAD, 1], Errno::EINVAL),
        (nr::NEWFSTATAT, vec![cwd, BAD, BASE, 1], Errno::EINVAL),
        (nr::STATX, vec![cwd, BAD, 0, 1 << 31, BASE], Errno::EINVAL),
        (nr::OPEN, vec![BAD, O_DIRECTORY as u64 | O_CREAT as u64], Errno::EINVAL),
        (nr::OPENAT2, vec![cwd, BAD, BASE + 0x100, 23], Errno::EINVAL),
        (nr::OPENAT2, vec![cwd, BAD, BAD, 24], Errno::EFAULT),
        (nr::OPENAT2, vec![cwd, BAD, BASE, 4097], Errno::E2BIG),
        (nr::STAT, vec![good, BAD], Errno::EFAULT),
        (nr::STAT, vec![missing, BAD], Errno::ENOENT),
        (nr::FACCESSAT2, vec![cwd, 0, 0, AT_EMPTY_PATH as u64], Errno::EFAULT),
        (nr::UTIMENSAT, vec![cwd, 0, 0, 0], Errno::EFAULT),
        (nr::UTIMENSAT, vec![cwd, good, BAD, 0], Errno::EFAULT),
        (nr::EXECVEAT, vec![cwd, BAD, 0, 0, 1], Errno::EFAULT),
        (nr::EXECVE, vec![missing, BAD, BAD], Errno::ENOENT),
        (nr::SETXATTR, vec![missing, BAD, 0, 0, 4], Errno::EINVAL),
        (nr::SETXATTR, vec![missing, BAD, 0, 0, 0], Errno::EFAULT),
        (nr::SETXATTR, vec![missing, good, 0, 65537, 0], Errno::E2BIG),
        (nr::WRITE, vec![7, BAD, 1], Errno::EBADF),
        (nr::WRITE, vec![0, BAD, 1], Errno::EFAULT),
        (nr::GETGROUPS, vec![u64::MAX, BASE], Errno::EINVAL),
        (nr::SETGROUPS, vec![65537, BAD], Errno::EINVAL),
        (nr::SETGROUPS, vec![1, BAD], Errno::EFAULT),
        (nr::MOUNT, vec![0, missing, BAD, 0, 0], Errno::EFAULT),
        (nr::CLOSE_RANGE, vec![2, 1, 0], Errno::EINVAL),
        (nr::CLONE, vec![0x200 | 0x20000], Errno::EINVAL),
        (nr::SETNS, vec![0, 0], Errno::EINVAL),
        (nr::SETNS, vec![9, 0], Errno::EBADF),
    ] {
        assert_eq!(p.call(number, &args), error(errno), "call {number} {args:x?}");
    }
    assert_eq!(
        p.call(nr::NEWFSTATAT, &[0, 0, BASE + 0x200, AT_EMPTY_PATH as u64]),
        0,
        "null is as good as empty"
    );
    assert_eq!(p.call(nr::UTIMENSAT, &[0, 0, 0, 0]), 0, "without a name, the open file");
}

#[test]
fn contents_move_until_memory_ends() {
    let mut p = Program::new(Cred::root());
    let path = p.put(0, b"/f\0");
    let fd = p.call(nr::OPEN, &[path, (O_CREAT | O_RDWR) as u64, 0o644]) as u64;
    let end = BASE + p.memory.len() as u64;
    p.put(0x3ff8, b"abcdefgh");
    assert_eq!(p.call(nr::WRITE, &[fd, end - 8, 100]), 8, "what could be read was written");
    assert_eq!(p.call(nr::LSEEK, &[fd, 0, 0]), 0);
    assert_eq!(p.call(nr::READ, &[fd, end - 3, 100]), 3, "what could be stored was read");
    assert_eq!(&p.memory[0x3ffd..], b"abc");
    assert_eq!(p.call(nr::LSEEK, &[fd, 0, SEEK_CUR as u64]), 3, "and no more was consumed");
    assert_eq!(p.call(nr::READ, &[fd, BAD, 1]), error(Errno::EFAULT));
    assert_eq!(p.call(nr::READ, &[fd, BAD, 0]), 0);

    let iov = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let vector = p.put(0x200, &iov(&[BASE + 0x300, 2, BASE + 0x310, 0, BASE + 0x320, 9]));
    assert_eq!(p.call(nr::PREADV, &[fd, vector, 3, 1]), 7);
    assert_eq!((&p.memory[0x300..0x303], &p.memory[0x320..0x325]), (&b"bc\0"[..], &b"defgh"[..]));
    assert_eq!(p.call(nr::WRITEV, &[fd, vector, 1]), 2, "at position 3");
    assert_eq!(p.call(nr::PREAD64, &[fd, BASE + 0x400, 8, 0]), 8);
    assert_eq!(&p.memory[0x400..0x408], b"abcbcfgh");
    assert_eq!(p.call(nr::READV, &[fd, vector, 1025]), error(Errno::EINVAL));
    assert_eq!(p.call(nr::READV, &[99, BAD, 1]), error(Errno::EBADF));
    assert_eq!(p.call(nr::READV, &[fd, BAD, 1]), error(Errno::EFAULT));
    p.put(0x200, &iov(&[BASE, u64::MAX]));
    assert_eq!(p.call(nr::READV, &[fd, vector, 1]), error(Errno::EINVAL), "a negative length");
}

#[test]
fn locks_do_not_wait_and_file_systems_describe_themselves() {
    let mut p = Program::new(Cred::root());
    let path = p.put(0, b"/f\0");
    let fd = p.call(nr::OPEN, &[path, (O_CREAT | O_RDWR) as u64, 0o644]) as u64;
    let other = p.call(nr::OPEN, &[path, O_RDWR as u64]) as u64;
    assert_eq!(p.call(nr::FLOCK, &[fd, LOCK_EX as u64]), 0);
    assert_eq!(p.call(nr::FLOCK, &[other, LOCK_EX as u64]), error(Errno::EAGAIN), "even if asked to wait");
    assert_eq!(p.call(nr::FLOCK, &[fd, LOCK_UN as u64]), 0);

    // struct flock: kind, whence, padding, start, len, pid.
    let mut lock =
        [&(F_WRLCK).to_ne_bytes()[..], &[0; 6], &7_i64.to_ne_bytes(), &3_i64.to_ne_bytes(), &[0; 8]].concat();
    let at = p.put(0x100, &lock);
    assert_eq!(p.call(nr::FCNTL, &[fd, F_OFD_SETLK as u64, at]), 0);
    assert_eq!(p.call(nr::FCNTL, &[other, F_OFD_SETLKW as u64, at]), error(Errno::EAGAIN));
    lock[8..16].copy_from_slice(&0_i64.to_ne_bytes());
    lock[16..24].copy_from_slice(&0_i64.to_ne_bytes());
    p.put(0x100, &lock);
    assert_eq!(p.call(nr::FCNTL, &[other, F_OFD_GETLK as u64, at]), 0);
    assert_eq!(p.memory[0x108], 7, "where the other's begins");
    assert_eq!(p.u32_at(0x118), u32::MAX, "held by an open file");
    assert_eq!(p.call(nr::FCNTL, &[other, F_OFD_GETLK as u64, BAD]), error(Errno::EFAULT));
    assert_eq!(p.call(nr::FCNTL, &[99, F_OFD_GETLK as u64, BAD]), error(Errno::EBADF));

    p.memory[0x200..0x300].fill(0xaa);
    assert_eq!(p.call(nr::STATFS, &[path, BASE + 0x200]), 0);
    assert_eq!([p.u32_at(0x200), p.u32_at(0x208)], [0x0102_1994, 4096]);
    assert_eq!((p.memory[0x277], p.memory[0x278]), (0, 0xaa), "120 bytes and no more");
    assert_eq!(p.call(nr::FSTATFS, &[fd, BAD]), error(Errno::EFAULT));
}

/// Names in the entries of getdents64 at `bytes`.
fn names(mut bytes: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    while !bytes.is_empty() {
        let len = usize::from(u16::from_ne_bytes([bytes[16], bytes[17]]));
        let name = bytes[19..len].split(|&b| b == 0).next().unwrap_or_default();
        names.push(String::from_utf8_lossy(name).into_owned());
        bytes = &bytes[len..];
    }
    names
}

#[test]
fn directories_are_read_in_pieces_of_any_size() {
    let mut p = Program::new(Cred::root());
    let mut wanted = vec![".".to_owned(), "..".to_owned()];
    for i in 0..40 {
        let name = "n".repeat(i + 1);
        p.task.mkdir(format!("/{name}").as_bytes(), 0o755).expect("made");
        wanted.insert(2, name);
    }
    let root = p.put(0, b"/\0");
    for room in [72, 100, 512, 0x3000] {
        let fd = p.call(nr::OPEN, &[root, 0]) as u64;
        let mut found = Vec::new();
        loop {
            match p.call(nr::GETDENTS64, &[fd, BASE + 0x100, room]) {
                0 => break,
                n => found.extend(names(&p.memory[0x100..0x100 + usize::try_from(n).expect("no error")])),
            }
        }
        assert_eq!(found, wanted, "with room for {room} bytes");
        assert_eq!(p.call(nr::LSEEK, &[fd, 0, 0]), 0);
        assert_eq!(p.call(nr::GETDENTS64, &[fd, BASE + 0x100, 23]), error(Errno::EINVAL));
        assert_eq!(p.call(nr::GETDENTS64, &[fd, BAD, room]), error(Errno::EFAULT));
        assert_eq!(p.call(nr::GETDENTS64, &[fd, BASE + 0x100, 24]), 24, "nothing was skipped");
        assert_eq!(names(&p.memory[0x100..0x118]), ["."]);
        p.call(nr::CLOSE, &[fd]);
    }
}

#[test]
fn tasks_share_what_their_flags_say() {
    const VM: u64 = 0x100;
    const SIGHAND: u64 = 0x800;
    const THREAD: u64 = 0x10000;
    let clone = |p: &mut Program, flags: u64| {
        let tid = p.call(nr::CLONE, &[flags]);
        let Some(Event::Cloned { child, flags: seen }) = p.task.take_event() else {
            panic!("no task: {tid}")
        };
        assert_eq!(seen, flags & !0xff);
        (child, tid)
    };
    let mut p = Program::new(Cred::root());
    let path = p.put(0, b"/f\0");
    let fd = p.call(nr::CREAT, &[path, 0o644]) as i32;

    let (mut forked, tid) = clone(&mut p, 17);
    let mut none = SliceMemory::default();
    assert_eq!(forked.syscall(&mut none, nr::GETPID, [0; 6]), tid);
    assert_eq!(forked.syscall(&mut none, nr::GETPPID, [0; 6]), p.call(nr::GETPID, &[]));
    p.task.close(fd).expect("open");
    assert!(forked.fstat(fd).is_ok(), "a table of its own");
    p.task.umask(0o77);
    assert_eq!(forked.umask(0), 0o22);
    assert!(forked.setuid(1000).is_ok() && p.task.getuid() == 0);

    let (mut thread, tid) = clone(&mut p, VM | SIGHAND | THREAD | CLONE_FS | CLONE_FILES);
    assert_eq!(thread.syscall(&mut none, nr::GETTID, [0; 6]), tid);
    assert_eq!(thread.syscall(&mut none, nr::GETPID, [0; 6]), p.call(nr::GETPID, &[]));
    let fd = thread.open(b"/f", O_RDONLY, 0).expect("opened");
    assert!(p.task.fstat(fd).is_ok(), "one table");
    assert_eq!(thread.umask(0o22), 0o77);
    assert_eq!(p.task.umask(0o77), 0o22);
    assert_eq!(p.task.linkat(fd, b"", AT_FDCWD, b"/by-thread", AT_EMPTY_PATH), Ok(()), "one credential");

    assert_eq!(thread.syscall(&mut none, nr::EXIT, [3, 0, 0, 0, 0, 0]), 0);
    assert!(matches!(thread.take_event(), Some(Event::Exited { status: 3, group: false })));
    assert_eq!(thread.syscall(&mut none, nr::GETTID, [0; 6]), error(Errno::ESRCH));
    assert!(p.task.fstat(fd).is_ok(), "the others keep the table");
    assert_eq!(p.call(nr::CLONE, &[0x2000_0000]), error(Errno::EINVAL), "a pid namespace");
    assert!(p.task.take_event().is_none());
}

#[test]
fn a_program_is_handed_over_with_its_strings() {
    let mut p = Program::new(Cred::root());
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    for half in [2_u16, 62] {
        elf.extend_from_slice(&half.to_le_bytes());
    }
    elf.extend_from_slice(&1_u32.to_le_bytes());
    for word in [0x40_0000_u64, 64, 0] {
        elf.extend_from_slice(&word.to_le_bytes());
    }
    elf.extend_from_slice(&0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 64, 0, 0] {
        elf.extend_from_slice(&half.to_le_bytes());
    }
    elf.resize(120, 0);
    let fd = p.task.open(b"/x", O_CREAT | O_WRONLY, 0o755).expect("made");
    p.task.write(fd, &elf).expect("written");
    p.task.close(fd).expect("open");
    let path = p.put(0, b"/x\0one\0two\0K=v\0");
    let vector: Vec<u8> =
        [path + 3, path + 7, 0, path + 11, 0].iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
    let argv = p.put(0x100, &vector);
    assert_eq!(p.call(nr::EXECVE, &[path, BAD, 0]), error(Errno::EFAULT));
    assert_eq!(p.call(nr::EXECVE, &[path, argv, argv + 24]), 0);
    let Some(Event::Executed(exec)) = p.task.take_event() else { panic!("nothing was executed") };
    assert_eq!((exec.argv, exec.envp), (vec![b"one".to_vec(), b"two".to_vec()], vec![b"K=v".to_vec()]));
    assert_eq!(exec.filename, b"/x");
}

/// A small generator; its period is long enough for a test.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Memory that is what it wants to be: each byte read is random, each copy may fail.
struct Hostile(Random);

impl UserMemory for Hostile {
    fn copy_from_user(&mut self, to: &mut [u8], _: u64) -> Result<()> {
        if self.0.below(4) == 0 {
            return Err(Errno::EFAULT);
        }
        // Large copies cost time and tell nothing that small ones do not.
        if to.len() > 1 << 16 {
            return Err(Errno::EFAULT);
        }
        const LIKELY: &[u8] = b"/./..//abc\0\0\0\x01\x10\xff";
        to.fill_with(|| LIKELY[self.0.below(LIKELY.len() as u64) as usize]);
        Ok(())
    }

    fn copy_to_user(&mut self, _: u64, _: &[u8]) -> Result<()> {
        if self.0.below(4) == 0 { Err(Errno::EFAULT) } else { Ok(()) }
    }
}

/// A register: a small number, a flag or two, an address, or anything.
fn register(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => random.below(16),
        1 => 1 << random.below(64) | 1 << random.below(32),
        2 => u64::from(AT_FDCWD as u32),
        3 => random.next(),
        4 => u64::MAX - random.below(3),
        _ => BASE + random.below(0x4000),
    }
}

/// Every directory below `/`, and how many names there are in it, must be what its link count and size say.
fn check_tree(root: &Task, path: &[u8]) -> u32 {
    let stat = root.lstat(path).expect("it was listed");
    let mut subdirs = 0;
    let entries = root.readdir(path).expect("it can be listed");
    for entry in &entries {
        let child = [if path == b"/" { b"" } else { path }, b"/", &entry.name].concat();
        let seen = root.lstat(&child).unwrap_or_else(|errno| panic!("{} is {errno:?}", child.escape_ascii()));
        assert_eq!(mode_to_dt(seen.mode), entry.kind, "{}", child.escape_ascii());
        if s_isdir(seen.mode) {
            subdirs += 1;
            if seen.dev == stat.dev && seen.ino == entry.ino {
                check_tree(root, &child);
            }
        }
    }
    assert_eq!(stat.nlink, 2 + u64::from(subdirs), "{}", path.escape_ascii());
    assert_eq!(stat.size, 40 + 20 * entries.len() as i64, "{}", path.escape_ascii());
    subdirs
}

/// Calls that would end the task, or take away what the check of the tree needs.
const SPARED: [u64; 4] = [nr::EXIT, nr::EXIT_GROUP, nr::MOUNT, nr::CHROOT];

/// `RCUWALK_FUZZ_TIMES=1000` does it so often, each time with other numbers.
#[test]
fn random_registers_and_memory_do_no_harm() {
    let times = std::env::var("RCUWALK_FUZZ_TIMES").map_or(1, |times| times.parse().expect("a number"));
    (0..times).for_each(random_calls);
}

fn random_calls(time: u64) {
    const ROUNDS: u64 = 200_000;
    let vfs = Vfs::builder().capacity(1 << 12).size_limit(8 << 20).build().expect("a file system");
    let observer = vfs.task(Cred::root());
    for name in [&b"/a"[..], b"/b", b"/c", b"/a/b"] {
        observer.mkdir(name, 0o777).expect("made");
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ time.wrapping_mul(0xd1b5_4a32_d192_ed03));
    let mut tasks = [vfs.task(Cred::root()), vfs.task(Cred::user(1000, 1000, &[])), vfs.task(Cred::root())];
    let mut memory = vec![0_u8; 0x4000];
    let (mut succeeded, mut faults) = (0, 0);
    for round in 0..ROUNDS {
        if round % 64 == 0 {
            let names =
                [&b"a\0"[..], b"/a/b\0", b"b/c\0", b"..\0", b"user.x\0", b"c\0", b"/\0", b"\0", b"a/"];
            memory.fill_with(|| random.next() as u8);
            for at in (0..0x4000 - 16).step_by(24) {
                let name = names[random.below(names.len() as u64) as usize];
                memory[at..at + name.len()].copy_from_slice(name);
            }
        }
        let number = match random.below(20) {
            0 => random.next(),
            _ => nr::ALL[random.below(nr::ALL.len() as u64) as usize].0,
        };
        if SPARED.contains(&number) {
            continue;
        }
        let args = [(); 6].map(|()| register(&mut random));
        let task = &mut tasks[random.below(3) as usize];
        let answer = if random.below(3) == 0 {
            task.syscall(&mut Hostile(Random(random.next() | 1)), number, args)
        } else {
            task.syscall(&mut SliceMemory::new(BASE, &mut memory), number, args)
        };
        let known = answer >= 0 || Errno::from_raw(-answer as i32).is_some();
        assert!(known, "time {time}, round {round}: call {number} {args:x?} answered {answer}");
        succeeded += u64::from(answer >= 0);
        faults += u64::from(answer == error(Errno::EFAULT));
        if let Some(Event::Cloned { child, .. }) = task.take_event() {
            tasks[random.below(3) as usize] = child;
        }
        if round % 4096 == 0 {
            let n = random.below(3) as usize;
            tasks[n] = vfs.task(Cred::root());
            check_tree(&observer, b"/");
        }
    }
    check_tree(&observer, b"/");
    assert!(succeeded > ROUNDS / 20 && faults > ROUNDS / 20, "{succeeded} succeeded, {faults} faulted");
}

#[test]
fn sizes_that_no_memory_has_are_efault_before_a_byte_moves() {
    const HALF: u64 = i64::MAX as u64;
    let mut p = Program::new(Cred::root());
    let path = p.put(0, b"/f\0");
    let x = p.put(0x100, b"x");
    let fd = p.call(nr::OPEN, &[path, (O_CREAT | O_RDWR) as u64, 0o644]) as u64;
    for size in [HALF, HALF + 1, u64::MAX, 1 << 47] {
        assert_eq!(p.call(nr::WRITE, &[fd, x, size]), error(Errno::EFAULT), "{size:#x}");
        assert_eq!(p.call(nr::READ, &[fd, x, size]), error(Errno::EFAULT), "{size:#x}");
        assert_eq!(p.call(nr::PWRITE64, &[fd, x, size, 0]), error(Errno::EFAULT), "{size:#x}");
        assert_eq!(p.call(nr::PREAD64, &[fd, x, size, u64::MAX]), error(Errno::EINVAL), "the offset first");
    }
    for (lengths, answer) in [
        // Of several, each counts as it was given.
        ([HALF, HALF], Errno::EFAULT),
        ([1, HALF], Errno::EFAULT),
        // A negative length is found before any address is looked at.
        ([HALF, HALF + 1], Errno::EINVAL),
    ] {
        let pairs = [x, lengths[0], x, lengths[1]].map(u64::to_ne_bytes);
        let iov = p.put(0x200, pairs.as_flattened());
        for number in [nr::READV, nr::WRITEV] {
            assert_eq!(p.call(number, &[fd, iov, 2]), error(answer), "{lengths:x?}");
        }
    }
    // A single one is cut to what one call moves: what there is, up to the end of the memory.
    let iov = p.put(0x200, [x, HALF].map(u64::to_ne_bytes).as_flattened());
    let rest = 0x4000 - 0x100;
    assert_eq!(p.call(nr::FSTAT, &[fd, BASE + 0x300]), 0);
    assert_eq!(p.u32_at(0x300 + 48), 0, "nothing was written");
    assert_eq!(p.call(nr::WRITEV, &[fd, iov, 1]), rest);
    // What the descriptor does not allow comes before the buffer, and a position that ends too late behind it.
    let reader = p.call(nr::OPEN, &[path, O_RDONLY as u64]) as u64;
    assert_eq!(p.call(nr::WRITE, &[reader, x, u64::MAX]), error(Errno::EBADF));
    assert_eq!(p.call(nr::PREAD64, &[reader, x, 2, HALF]), error(Errno::EINVAL));
    assert_eq!(p.call(nr::PREAD64, &[reader, x, 0, HALF]), 0);
    assert_eq!(p.call(nr::READ, &[99, x, u64::MAX]), error(Errno::EBADF));
}
