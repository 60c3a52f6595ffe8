//! The old ways give the answers of the new ones, but where they say that they differ.

mod setfacl;

use rcuwalk::syscall::{SliceMemory, UserMemory, nr};
use rcuwalk::uapi::*;
use rcuwalk::{Cred, Errno, Libc, NameBuffer, SearchCheck, Task, Variants, Vfs, WalkMode};

fn every_variant() -> Vec<Variants> {
    let plain = Variants::default();
    vec![
        plain,
        Variants { cred_copy: true, ..plain },
        Variants { args_first: true, ..plain },
        Variants { lookup_twice: true, ..plain },
        Variants { early_file: true, ..plain },
        Variants { search: SearchCheck::Mode, ..plain },
        Variants { search: SearchCheck::Always, ..plain },
        Variants { name_buffer: NameBuffer::Small, ..plain },
        Variants { name_buffer: NameBuffer::Whole, ..plain },
    ]
}

/// Directories that everybody, a group, the owner and nobody may search, and one whose mode says that everybody may but whose
/// ACL keeps a user out, with a file and a program in each.
fn tree() -> (Vfs, Vec<String>) {
    let vfs = Vfs::new().unwrap();
    let root = vfs.task(Cred::root());
    let mut paths = vec!["/missing".to_owned(), "/".to_owned()];
    for (i, mode) in [0o755, 0o711, 0o750, 0o700, 0o000, 0o076, 0o755].into_iter().enumerate() {
        let dir = format!("/d{i}");
        root.mkdir(dir.as_bytes(), mode).unwrap();
        root.chmod(dir.as_bytes(), mode).unwrap();
        root.chown(dir.as_bytes(), 5, 50).unwrap();
        root.mkdir(format!("{dir}/sub").as_bytes(), 0o755).unwrap();
        for name in ["file", "sub/file", "program"] {
            let path = format!("{dir}/{name}");
            let fd = root.open(path.as_bytes(), O_CREAT | O_WRONLY, 0o755).unwrap();
            root.write(fd, b"#!/d0/no-such-interpreter\n").unwrap();
            root.close(fd).unwrap();
            paths.push(path);
        }
        root.symlink(b"sub", format!("{dir}/link").as_bytes()).unwrap();
        paths.extend([
            dir.clone(),
            format!("{dir}/nothing"),
            format!("{dir}/link/file"),
            format!("{dir}/file/x"),
            format!("{dir}{}/file", "/.".repeat(150)),
        ]);
    }
    setfacl::keep_out(&root, b"/d6", 8).unwrap();
    assert_eq!(root.stat(b"/d6").unwrap().mode & 0o7777, 0o755);
    (vfs, paths)
}

/// All that a task learns of a path.
fn answers(task: &mut Task, path: &str) -> Vec<Result<u64, Errno>> {
    let path = path.as_bytes();
    let search = path.strip_suffix(b"/program").unwrap_or(b"/d0");
    let args: &[&[u8]] = &[b"program"];
    let mut name = [path, b"\0"].concat();
    let named = task.syscall(&mut SliceMemory::new(0x1000, &mut name), nr::ACCESS, [0x1000, 0, 0, 0, 0, 0]);
    vec![
        Ok(named as u64),
        task.stat(path).map(|stat| stat.ino),
        task.access(path, R_OK).map(|()| 0),
        task.access(path, W_OK).map(|()| 0),
        task.open(path, O_RDONLY, 0).and_then(|fd| task.close(fd)).map(|()| 0),
        task.execve(path, args, &[b"A=1"]).map(|exec| exec.argv.len() as u64),
        task.execvpe(Libc::Glibc, Some(search), b"program", args, &[]).map(|exec| exec.argv.len() as u64),
    ]
}

#[test]
fn a_variant_changes_no_answer() {
    let (vfs, paths) = tree();
    let switched = Cred::root().setresuid(u32::MAX, 7, u32::MAX).unwrap().unwrap();
    let creds = [
        Cred::root(),
        Cred::user(5, 6, &[]),
        Cred::user(6, 50, &[]),
        Cred::user(7, 7, &[50]),
        Cred::user(8, 8, &[]),
        switched,
    ];
    let mut denied = 0;
    for mode in [WalkMode::Direct, WalkMode::Rcu, WalkMode::RefOnly] {
        vfs.set_walk_mode(mode);
        for cred in &creds {
            for path in &paths {
                let ask = |variants| {
                    vfs.set_variants(variants);
                    answers(&mut vfs.task(cred.clone()), path)
                };
                let expected = ask(Variants::default());
                denied += expected.iter().filter(|answer| **answer == Err(Errno::EACCES)).count();
                for variants in every_variant() {
                    assert_eq!(ask(variants), expected, "{path} as {cred:?} with {variants:?} in {mode:?}");
                }
            }
        }
    }
    assert!(denied > 1000, "{denied} refusals");
}

#[test]
fn statx_by_fields_stores_the_same_bytes() {
    let (vfs, _) = tree();
    let mut task = vfs.task(Cred::root());
    let mut statx = |variants| {
        vfs.set_variants(variants);
        let (mut path, mut buffer) = (*b"/d0/file\0", [0xff; 256]);
        let mut memory = SliceMemory::new(0x1000, &mut path).with(0x2000, &mut buffer);
        let at = AT_FDCWD as u64;
        let rest = [0x1000, 0, u64::from(STATX_BASIC_STATS | STATX_BTIME), 0x2000, 0];
        assert_eq!(
            task.syscall(&mut memory, nr::STATX, [at, rest[0], rest[1], rest[2], rest[3], rest[4]]),
            0
        );
        drop(memory);
        buffer
    };
    let by_fields = statx(Variants { field_by_field: true, ..Variants::default() });
    assert_eq!(by_fields, statx(Variants::default()));
    assert_eq!(by_fields[188..], [0; 68], "what is reserved is zero");
}

#[test]
fn errors_differ_where_the_order_of_steps_shows() {
    let (vfs, _) = tree();
    let mut task = vfs.task(Cred::root());
    let long = vec![b'x'; 200_000];
    let mut execve = |variants| {
        vfs.set_variants(variants);
        task.execve(b"/missing", &[b"missing", &long], &[]).map(drop)
    };
    assert_eq!(execve(Variants::default()), Err(Errno::ENOENT));
    assert_eq!(execve(Variants { args_first: true, ..Variants::default() }), Err(Errno::E2BIG));

    let mut statx = |variants| {
        vfs.set_variants(variants);
        let mut memory = AllOrNothing([0xff; 100]);
        let args = [AT_FDCWD as u64, 0x1000, 0, STATX_BASIC_STATS.into(), 0x2000, 0];
        (task.syscall(&mut memory, nr::STATX, args), memory.0)
    };
    let fault = -i64::from(Errno::EFAULT.raw());
    assert_eq!(statx(Variants::default()), (fault, [0xff; 100]));
    let (answer, buffer) = statx(Variants { field_by_field: true, ..Variants::default() });
    assert_eq!(answer, fault);
    assert_ne!(buffer[..4], [0xff; 4], "the first field was stored");
}

/// A path at 0x1000, and at 0x2000 too little room for a `struct statx`; a copy that does not fit stores nothing.
struct AllOrNothing([u8; 100]);

impl UserMemory for AllOrNothing {
    fn copy_from_user(&mut self, to: &mut [u8], from: u64) -> rcuwalk::Result<()> {
        let mut path = *b"/d0/file\0";
        SliceMemory::new(0x1000, &mut path).copy_from_user(to, from)
    }

    fn copy_to_user(&mut self, to: u64, from: &[u8]) -> rcuwalk::Result<()> {
        let start = to.checked_sub(0x2000).ok_or(Errno::EFAULT)? as usize;
        let room = self.0.get_mut(start..start + from.len()).ok_or(Errno::EFAULT)?;
        room.copy_from_slice(from);
        Ok(())
    }
}

/// Each way to learn of a search permission is the one that is taken, with and without references, and knows of ACLs.
#[test]
fn every_walk_takes_the_variant() {
    let (vfs, _) = tree();
    let (kept_out, other) = (vfs.task(Cred::user(8, 8, &[])), vfs.task(Cred::user(9, 9, &[])));
    for mode in [WalkMode::Rcu, WalkMode::RefOnly] {
        vfs.set_walk_mode(mode);
        for (search, spared, checked) in
            [(SearchCheck::Stored, 5, 1), (SearchCheck::Mode, 5, 1), (SearchCheck::Always, 0, 6)]
        {
            vfs.set_variants(Variants { search, ..Variants::default() });
            vfs.set_count_searches(true);
            let before = vfs.stats();
            // "/" and "d0" and "sub", which anybody may search; "/", "d6", which has an ACL, and "sub".
            assert!(kept_out.stat(b"/d0/sub/file").is_ok());
            assert!(other.stat(b"/d6/sub/file").is_ok());
            let after = vfs.stats();
            let counts = (
                after.searches_spared - before.searches_spared,
                after.searches_checked - before.searches_checked,
            );
            assert_eq!(counts, (spared, checked), "{search:?} {mode:?}");
            for count in [true, false] {
                vfs.set_count_searches(count);
                assert_eq!(kept_out.stat(b"/d6/sub/file"), Err(Errno::EACCES), "{search:?} {mode:?}");
            }
        }
    }
}
