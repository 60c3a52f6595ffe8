//! What execve decides before anything is loaded.

use rcuwalk::cred::CapSet;
use rcuwalk::uapi::*;
use rcuwalk::userns::IdExtent;
use rcuwalk::{CloneFlags, Cred, Errno, Exec, Libc, MountOptions, NewInode, Sysctl, Task, Vfs, WalkMode};

/// Runs a test in both walk modes.
fn both(test: impl Fn(&Vfs, &mut Task)) {
    for mode in [WalkMode::Direct, WalkMode::Rcu, WalkMode::RefOnly] {
        let vfs = Vfs::new().unwrap();
        vfs.set_walk_mode(mode);
        test(&vfs, &mut vfs.task(Cred::root()));
    }
}

fn user(vfs: &Vfs) -> Task {
    vfs.task(Cred::user(1000, 1000, &[]))
}

/// The start of an ELF file: a header, one program header, and the interpreter if there is one.
fn elf(interpreter: Option<&[u8]>) -> Vec<u8> {
    let mut file = vec![0; 64 + 56];
    file[..4].copy_from_slice(b"\x7fELF");
    (file[16], file[18], file[32], file[54], file[56]) = (3, 62, 64, 56, 1);
    file[64] = 1;
    if let Some(path) = interpreter {
        file[64] = 3;
        file[64 + 8] = 120;
        file[64 + 32] = path.len() as u8;
        file.extend_from_slice(path);
    }
    file
}

fn put(task: &Task, path: &[u8], mode: u32, contents: &[u8]) {
    let fd = task.open(path, O_CREAT | O_TRUNC | O_WRONLY, 0o600).unwrap();
    assert_eq!(task.write(fd, contents).unwrap(), contents.len());
    task.close(fd).unwrap();
    task.chmod(path, mode).unwrap();
}

fn run(task: &mut Task, path: &[u8]) -> Result<Exec, Errno> {
    task.execve(path, &[b"A0", b"x", b"y"], &[])
}

/// The arguments a program starts with, as `[a][b]`.
fn args(exec: Result<Exec, Errno>) -> String {
    match exec {
        Ok(exec) => exec.argv.iter().map(|arg| format!("[{}]", String::from_utf8_lossy(arg))).collect(),
        Err(errno) => errno.name().to_owned(),
    }
}

/// e01, w05.
#[test]
fn the_path_decides_first() {
    both(|vfs, root| {
        root.mkdir(b"/d", 0o755).unwrap();
        root.mkdir(b"/closed", 0o700).unwrap();
        put(root, b"/closed/f", 0o755, &elf(None));
        put(root, b"/plain", 0o644, &elf(None));
        put(root, b"/empty", 0o755, b"");
        put(root, b"/text", 0o755, b"echo hello\n");
        root.symlink(b"loop", b"/loop").unwrap();
        root.mknod(b"/fifo", S_IFIFO | 0o755, 0).unwrap();
        root.mknod(b"/sock", S_IFSOCK | 0o755, 0).unwrap();
        root.mknod(b"/chr", S_IFCHR | 0o755, makedev(1, 3)).unwrap();
        let mut task = user(vfs);
        let answers: Vec<_> = [
            "/missing",
            "/d",
            "/plain",
            "",
            "/text/",
            "/empty",
            "/text",
            "/loop",
            "/closed/f",
            "/fifo",
            "/sock",
            "/chr",
            "/d/.",
            "/text/.",
        ]
        .iter()
        .map(|path| run(&mut task, path.as_bytes()).unwrap_err().name())
        .collect();
        let expected = [
            "ENOENT", "EACCES", "EACCES", "ENOENT", "ENOTDIR", "ENOEXEC", "ENOEXEC", "ELOOP", "EACCES",
            "EACCES", "EACCES", "EACCES", "EACCES", "ENOTDIR",
        ];
        assert_eq!(answers, expected);
        let long = [b"/".as_slice(), &[b'x'; 4095]].concat();
        assert_eq!(run(&mut task, &long).unwrap_err(), Errno::ENAMETOOLONG);
        task.set_nofile_limit(0);
        put(root, b"/ok", 0o111, &elf(None));
        let exec = run(&mut task, b"/ok").unwrap();
        assert!(!exec.dumpable, "who cannot read the program cannot look into the process");
        assert_eq!((exec.file.size(), exec.file.ino()), (120, root.stat(b"/ok").unwrap().ino));
        let mut magic = [0; 4];
        assert_eq!(exec.file.read_at(&mut magic, 0).map(|n| (n, magic)), Ok((4, *b"\x7fELF")));
    });
}

/// e02 to e04, e07, e09, e11.
#[test]
fn scripts_stand_in_front_of_the_arguments() {
    both(|_, root| {
        root.mkdir(b"/w", 0o755).unwrap();
        root.mkdir(b"/w/d", 0o755).unwrap();
        root.chdir(b"/w").unwrap();
        put(root, b"pa", 0o755, &elf(None));
        put(root, b"f644", 0o644, &elf(None));
        put(root, b"text", 0o755, b"text");
        let cases: [(&[u8], &str); 16] = [
            (b"#!/w/pa a b  c \n", "[/w/pa][a b  c][./s][x][y]"),
            (b"#! \t /w/pa\n", "[/w/pa][./s][x][y]"),
            (b"#!/w/pa", "[/w/pa][./s][x][y]"),
            (b"#!/w/pa\targ\t\n", "[/w/pa][arg][./s][x][y]"),
            (b"#!", "EACCES"),
            (b"#!\n", "ENOEXEC"),
            (b"#! \t\n", "ENOEXEC"),
            (b"#!  ", "EACCES"),
            (b"#! /nope\n", "ENOENT"),
            (b"#!d\n", "EACCES"),
            (b"#!f644\n", "EACCES"),
            (b"#!text\n", "ENOEXEC"),
            (b"#!./pa\n", "[./pa][./s][x][y]"),
            (b"#!/w/pa\0junk arg\n", "[/w/pa][./s][x][y]"),
            (b"#!/w/pa a\0b\n", "[/w/pa][a][./s][x][y]"),
            (b"#!/w/pa ", "[/w/pa][][./s][x][y]"),
        ];
        for (text, expected) in cases {
            put(root, b"s", 0o755, text);
            assert_eq!(args(run(root, b"./s")), expected, "{:?}", String::from_utf8_lossy(text));
        }
        put(root, b"s1", 0o755, b"#!/w/pa one\n");
        put(root, b"s2", 0o755, b"#!./s1 two\n");
        let exec = root.execve(b"./s2", &[b"A0", b"x"], &[b"E=1", b"F=\0cut"]).unwrap();
        assert_eq!((&exec.filename[..], &exec.interp[..]), (b"./s2".as_slice(), b"/w/pa".as_slice()));
        assert_eq!(exec.envp, [b"E=1".as_slice(), b"F="]);
        assert_eq!(args(Ok(exec)), "[/w/pa][one][./s1][two][./s2][x]");
        assert_eq!(args(root.execve(b"./s1", &[], &[])), "[/w/pa][one][./s1]");
        assert_eq!(args(root.execve(b"./pa", &[], &[])), "[]");
    });
}

/// e08, e10.
#[test]
fn five_scripts_may_follow_each_other() {
    both(|_, root| {
        put(root, b"/s0", 0o755, &elf(None));
        for i in 1..=6 {
            put(root, format!("/s{i}").as_bytes(), 0o755, format!("#!/s{}\n", i - 1).as_bytes());
        }
        assert_eq!(args(root.execve(b"/s5", &[b"A0"], &[])), "[/s0][/s1][/s2][/s3][/s4][/s5]");
        assert_eq!(run(root, b"/s6").unwrap_err(), Errno::ELOOP);
        root.unlink(b"/s0").unwrap();
        assert_eq!(run(root, b"/s6").unwrap_err(), Errno::ENOENT, "the sixth interpreter is still looked up");
    });
}

/// e12, e13, e14, and what a small stack leaves (all measured on 6.18).
#[test]
fn arguments_have_limits() {
    both(|vfs, root| {
        put(root, b"/text", 0o755, b"text");
        put(root, b"/ok", 0o755, &elf(None));
        let long = vec![b'x'; 131_071];
        assert!(root.execve(b"/ok", &[&long], &[]).is_ok());
        let longer = vec![b'x'; 131_072];
        assert_eq!(root.execve(b"/text", &[&longer], &[]).unwrap_err(), Errno::E2BIG);
        assert_eq!(root.execve(b"/missing", &[&longer], &[]).unwrap_err(), Errno::ENOENT);
        assert_eq!(root.execve(b"/text", &[&long[..]; 15], &[]).unwrap_err(), Errno::ENOEXEC);
        assert_eq!(root.execve(b"/text", &[], &[&long[..]; 16]).unwrap_err(), Errno::E2BIG);
        // The largest sum of arguments beside a first one of one byte: strings, pointers, the file's name.
        for (stack, total) in
            [(8 << 20, 2_096_849), (1 << 20, 262_081), (512 << 10, 131_025), (64 << 10, 65_513)]
        {
            let mut task = vfs.task(Cred::root());
            task.mkdir(b"/t", 0o755)
                .or_else(|errno| if errno == Errno::EEXIST { Ok(()) } else { Err(errno) })
                .unwrap();
            put(&task, b"/t/ex12345", 0o755, b"text");
            task.chdir(b"/t").unwrap();
            task.set_stack_limit(stack);
            let outcome = |task: &mut Task, total: usize| {
                let strings: Vec<Vec<u8>> =
                    (0..total).step_by(60_000).map(|at| vec![b'q'; 59_999.min(total - at - 1)]).collect();
                let mut argv: Vec<&[u8]> = vec![b"z"];
                argv.extend(strings.iter().map(Vec::as_slice));
                // Thirteen bytes with the NUL, as in the measurement.
                task.execve(b".//./ex12345", &argv, &[]).unwrap_err()
            };
            assert_eq!(outcome(&mut task, total), Errno::ENOEXEC, "{stack}");
            assert_eq!(outcome(&mut task, total + 1), Errno::E2BIG, "{stack}");
        }
    });
}

/// e15, e16, y06.
#[test]
fn descriptors_lead_to_programs() {
    both(|_, root| {
        root.mkdir(b"/w", 0o755).unwrap();
        put(root, b"/w/pa", 0o755, &elf(None));
        put(root, b"/w/s", 0o755, b"#!/w/pa\n");
        put(root, b"/w/text", 0o755, b"text");
        put(root, b"/w/plain", 0o644, b"text");
        root.symlink(b"pa", b"/w/l").unwrap();
        let open = |path: &[u8], flags: i32| root.open(path, flags, 0).unwrap();
        let (binary, script) = (open(b"/w/pa", O_PATH), open(b"/w/s", O_RDONLY));
        let (dir, link) = (open(b"/w", O_RDONLY), open(b"/w/l", O_PATH | O_NOFOLLOW));
        let (closing, closing_dir) = (open(b"/w/s", O_CLOEXEC), open(b"/w", O_CLOEXEC));
        let try_at = |fd: i32, path: &[u8], flags: i32| {
            let exec = root.fork().execveat(fd, path, &[b"A0", b"q"], &[], flags);
            args(exec.map(Option::unwrap))
        };
        assert_eq!(try_at(binary, b"", AT_EMPTY_PATH), "[A0][q]");
        assert_eq!(try_at(script, b"", AT_EMPTY_PATH), format!("[/w/pa][/dev/fd/{script}][q]"));
        assert_eq!(try_at(closing, b"", AT_EMPTY_PATH), "ENOENT");
        assert_eq!(try_at(dir, b"s", 0), format!("[/w/pa][/dev/fd/{dir}/s][q]"));
        assert_eq!(try_at(closing_dir, b"s", 0), "ENOENT");
        assert_eq!(try_at(closing_dir, b"pa", 0), "[A0][q]");
        assert_eq!(try_at(closing_dir, b"/w/s", 0), "[/w/pa][/w/s][q]");
        assert_eq!(try_at(AT_FDCWD, b"/w/l", AT_SYMLINK_NOFOLLOW), "ELOOP");
        assert_eq!(try_at(link, b"", AT_EMPTY_PATH), "ELOOP");
        assert_eq!(try_at(AT_FDCWD, b"/w/pa", 1), "EINVAL");
        assert_eq!(try_at(AT_FDCWD, b"/missing", 1), "EINVAL");
        assert_eq!(try_at(AT_FDCWD, b"", 1), "ENOENT");
        assert_eq!(try_at(binary, b"x", 0), "ENOTDIR");
        assert_eq!(try_at(-1, b"x", 0), "EBADF");
        assert_eq!(try_at(-1, b"/w/pa", 0), "[A0][q]");
        assert_eq!(try_at(binary, b"", 0), "ENOENT");
        let exec = root.fork().execveat(dir, b"pa", &[], &[], 0).unwrap().unwrap();
        assert_eq!(exec.filename, format!("/dev/fd/{dir}/pa").as_bytes());

        let long = vec![b'x'; 131_072];
        let mut check = |path: &[u8], argv: &[&[u8]]| {
            let exec = root.execveat(AT_FDCWD, path, argv, &[], AT_EXECVE_CHECK);
            exec.map(|exec| assert!(exec.is_none()))
        };
        assert_eq!(check(b"/w/pa", &[]), Ok(()));
        assert_eq!(check(b"/w/plain", &[]), Err(Errno::EACCES));
        assert_eq!(check(b"/w", &[]), Err(Errno::EACCES));
        assert_eq!(check(b"/w/text", &[]), Ok(()), "its contents are not looked at");
        assert_eq!(check(b"/missing", &[]), Err(Errno::ENOENT));
        assert_eq!(check(b"/w/pa", &[&long]), Err(Errno::E2BIG));
        assert_eq!(root.fcntl(closing, F_GETFD, 0), Ok(FD_CLOEXEC), "nothing was executed");
    });
}

/// n14, n15, w25.
#[test]
fn writing_and_executing_exclude_each_other() {
    both(|vfs, root| {
        let before = vfs.stats().entries;
        put(root, b"/ld", 0o755, &elf(None));
        put(root, b"/pa", 0o755, &elf(Some(b"/ld\0")));
        put(root, b"/s", 0o755, b"#!/pa\n");
        for path in [b"/ld".as_slice(), b"/pa", b"/s"] {
            let fds = [O_WRONLY, O_RDWR].map(|flags| root.open(path, flags, 0).unwrap());
            assert_eq!(run(root, b"/s").unwrap_err(), Errno::ETXTBSY);
            root.close(fds[0]).unwrap();
            let checked = root.execveat(AT_FDCWD, path, &[], &[], AT_EXECVE_CHECK);
            assert_eq!(checked.unwrap_err(), Errno::ETXTBSY);
            root.chmod(path, 0o644).unwrap();
            assert_eq!(run(root, path).unwrap_err(), Errno::EACCES);
            root.chmod(path, 0o755).unwrap();
            root.close(fds[1]).unwrap();
        }
        let held = [O_RDONLY, O_PATH].map(|flags| root.open(b"/pa", flags, 0).unwrap());
        let mut process = root.fork();
        let exec = run(&mut process, b"/s").unwrap();
        let write = |path: &[u8]| root.open(path, O_WRONLY, 0).and_then(|fd| root.close(fd));
        assert_eq!(
            [write(b"/s"), write(b"/pa"), write(b"/ld")],
            [Ok(()), Err(Errno::ETXTBSY), Err(Errno::ETXTBSY)]
        );
        assert_eq!(root.truncate(b"/pa", 0), Err(Errno::ETXTBSY));
        assert_eq!(root.open(b"/pa", O_RDONLY | O_TRUNC, 0), Err(Errno::ETXTBSY));
        drop(exec);
        assert_eq!(
            [write(b"/pa"), write(b"/ld")],
            [Err(Errno::ETXTBSY), Ok(())],
            "the program keeps running"
        );
        let child = process.fork();
        run(&mut process, b"/ld").unwrap();
        assert_eq!([write(b"/pa"), write(b"/ld")], [Err(Errno::ETXTBSY), Err(Errno::ETXTBSY)]);
        drop((child, process));
        assert_eq!([write(b"/pa"), write(b"/ld")], [Ok(()), Ok(())]);
        held.into_iter().for_each(|fd| root.close(fd).unwrap());
        for path in [b"/ld".as_slice(), b"/pa", b"/s"] {
            root.unlink(path).unwrap();
        }
        assert_eq!(vfs.stats().entries, before, "every slot came back");
    });
}

/// e23, e24, y19.
#[test]
fn the_dynamic_loader_is_opened_too() {
    both(|_, root| {
        put(root, b"/ld", 0o755, &elf(None));
        put(root, b"/text", 0o755, b"text");
        put(root, b"/long", 0o755, &[b't'; 100]);
        put(root, b"/nox", 0o644, &elf(None));
        put(root, b"/nophdr", 0o755, &elf(None)[..64]);
        put(root, b"/object", 0o755, &[&elf(None)[..16], &[1], &elf(None)[17..]].concat());
        let with = |interpreter: &[u8]| {
            put(root, b"/pa", 0o755, &elf(Some(interpreter)));
            run(&mut root.fork(), b"/pa").map(|exec| exec.interpreter.unwrap().path)
        };
        assert_eq!(with(b"/ld\0").unwrap(), b"/ld");
        assert_eq!(with(b"/ld\0junk\0").unwrap(), b"/ld");
        assert_eq!(with(b"/object\0").unwrap(), b"/object", "its type is the loader's to judge");
        let cases: [(&[u8], Errno); 9] = [
            (b"/missing\0", Errno::ENOENT),
            (b"/nox\0", Errno::EACCES),
            (b"/text\0", Errno::EIO),
            (b"/long\0", Errno::ELIBBAD),
            (b"/nophdr\0", Errno::ELIBBAD),
            (b"/ld", Errno::ENOEXEC),
            (b"\0", Errno::ENOEXEC),
            (b"\0\0", Errno::EACCES),
            (b"/pa/\0", Errno::ENOTDIR),
        ];
        for (interpreter, errno) in cases {
            assert_eq!(with(interpreter).unwrap_err(), errno, "{:?}", String::from_utf8_lossy(interpreter));
        }
        let cut = elf(Some(b"/ld\0"));
        put(root, b"/pa", 0o755, &cut[..122]);
        assert_eq!(run(root, b"/pa").unwrap_err(), Errno::EIO);
        put(root, b"/pa", 0o755, &cut[..100]);
        assert_eq!(run(root, b"/pa").unwrap_err(), Errno::ENOEXEC, "no program header");
        let mut far = cut.clone();
        far[64 + 15] = 0x80;
        put(root, b"/pa", 0o755, &far);
        assert_eq!(run(root, b"/pa").unwrap_err(), Errno::EINVAL, "a negative offset");
        assert_eq!(run(root, b"/object").unwrap_err(), Errno::ENOEXEC);
    });
}

/// What the new program is, as `r/e/s r/e/s permitted effective secure`.
fn who(exec: &Exec) -> String {
    let c = &exec.cred;
    assert_eq!((c.fsuid(), c.fsgid()), (c.euid(), c.egid()));
    let caps = |set: CapSet| if set == CapSet::FULL { "full".to_owned() } else { format!("{:x}", set.0) };
    format!(
        "{}/{}/{} {}/{}/{} P={} E={} sec={}",
        c.uid(),
        c.euid(),
        c.suid(),
        c.gid(),
        c.egid(),
        c.sgid(),
        caps(c.permitted()),
        caps(c.effective()),
        u32::from(exec.secureexec)
    )
}

const NOTHING: &str = "1000/1000/1000 1000/1000/1000 P=0 E=0 sec=0";

/// e17, e18, y08.
#[test]
fn set_id_bits_of_the_program_count() {
    both(|vfs, root| {
        put(root, b"/pa", 0o755, &elf(None));
        put(root, b"/s", 0o6755, b"#!/pa\n");
        put(root, b"/via", 0o755, b"#!/pa\n");
        let as_user = |path: &[u8]| who(&run(&mut user(vfs), path).unwrap());
        let mode = |mode: u32, uid: u32, gid: u32| {
            root.chown(b"/pa", uid, gid).unwrap();
            root.chmod(b"/pa", mode).unwrap();
        };
        assert_eq!(as_user(b"/pa"), NOTHING);
        assert_eq!(as_user(b"/s"), NOTHING, "a script's bits do not count");
        mode(0o4755, 0, 0);
        let suid_root = "1000/0/0 1000/1000/1000 P=full E=full sec=1";
        assert_eq!([as_user(b"/pa"), as_user(b"/via")], [suid_root; 2]);
        let mut restricted = user(vfs);
        restricted.set_no_new_privs();
        assert_eq!(who(&run(&mut restricted, b"/pa").unwrap()), NOTHING);
        vfs.set_mount_options(MountOptions::default().with_nosuid(true));
        assert_eq!(as_user(b"/pa"), NOTHING);
        vfs.set_mount_options(MountOptions::default().with_noexec(true));
        assert_eq!(run(&mut user(vfs), b"/pa").unwrap_err(), Errno::EACCES);
        vfs.set_mount_options(MountOptions::default());
        mode(0o6755, 5, 6);
        assert_eq!(as_user(b"/pa"), "1000/5/5 1000/6/6 P=0 E=0 sec=1");
        mode(0o2745, 5, 6);
        assert_eq!(as_user(b"/pa"), NOTHING, "set-group-id without group execution");
        mode(0o2755, 5, 1000);
        assert_eq!(as_user(b"/pa"), NOTHING, "it is the task's group already");
        mode(0o4755, 5, 0);
        let exec = run(&mut vfs.task(Cred::root()), b"/pa").unwrap();
        assert_eq!(who(&exec), "0/5/5 0/0/0 P=full E=0 sec=1", "the real id is root's");
        assert!(!exec.dumpable && run(root, b"/via").unwrap().filename == b"/via");
    });
}

#[test]
fn set_id_bits_do_not_count_while_another_process_shares_the_current_directory() {
    both(|vfs, root| {
        put(root, b"/pa", 0o755, &elf(None));
        root.chown(b"/pa", 5, 6).unwrap();
        root.chmod(b"/pa", 0o6755).unwrap();
        let setuid = CapSet::of(&[CAP_SETUID]);
        let capable =
            Cred::user(1000, 1000, &[]).to_builder().permitted(setuid).effective(setuid).build().unwrap();
        for (cred, expected) in [
            (Cred::user(1000, 1000, &[]), "1000/1000/1000 1000/1000/1000 P=0 E=0 sec=1"),
            (capable, "1000/5/5 1000/6/6 P=0 E=0 sec=1"),
        ] {
            let parent = vfs.task(cred);
            let mut child = parent.clone_with(CloneFlags::default().with_fs(true)).unwrap();
            assert_eq!(who(&run(&mut child, b"/pa").unwrap()), expected);
            drop(parent);
        }
    });
}

fn caps_xattr(flags: u32, permitted: CapSet, inheritable: CapSet, rootid: Option<u32>) -> Vec<u8> {
    let revision = if rootid.is_some() { 0x0300_0000 } else { 0x0200_0000 };
    let (p, i) = (permitted.0, inheritable.0);
    let words = [revision | flags, p as u32, i as u32, (p >> 32) as u32, (i >> 32) as u32];
    words.into_iter().chain(rootid).flat_map(u32::to_le_bytes).collect()
}

/// e19, e20, e21.
#[test]
fn file_capabilities_give_and_demand() {
    both(|vfs, root| {
        put(root, b"/pa", 0o755, &elf(None));
        let set = |value: &[u8]| root.setxattr(b"/pa", b"security.capability", value, 0).unwrap();
        let (chown, bpf) = (CapSet::of(&[CAP_CHOWN]), CapSet::of(&[CAP_BPF]));
        let cred = |build: &dyn Fn(rcuwalk::cred::CredBuilder) -> rcuwalk::cred::CredBuilder| {
            build(Cred::user(1000, 1000, &[]).to_builder()).build().unwrap()
        };
        let try_as = |cred: Cred| run(&mut vfs.task(cred), b"/pa").map(|exec| who(&exec));
        let ids = "1000/1000/1000 1000/1000/1000";

        set(&caps_xattr(1, chown | bpf, CapSet::EMPTY, None));
        assert_eq!(try_as(cred(&|c| c)), Ok(format!("{ids} P=8000000001 E=8000000001 sec=1")));
        assert_eq!(
            try_as(cred(&|c| c.bounding(chown))),
            Err(Errno::EPERM),
            "a legacy program cannot do with less"
        );
        let mut restricted = user(vfs);
        restricted.set_no_new_privs();
        assert_eq!(run(&mut restricted, b"/pa").map(|exec| who(&exec)), Ok(format!("{ids} P=0 E=0 sec=1")));
        set(&caps_xattr(0, chown | bpf, CapSet::EMPTY, None));
        assert_eq!(try_as(cred(&|c| c)), Ok(format!("{ids} P=8000000001 E=0 sec=1")));
        assert_eq!(try_as(cred(&|c| c.bounding(chown))), Ok(format!("{ids} P=1 E=0 sec=1")));
        set(&caps_xattr(1, CapSet::EMPTY, chown, None));
        assert_eq!(
            try_as(cred(&|c| c)),
            Ok(format!("{ids} P=0 E=0 sec=1")),
            "effective, though there is nothing"
        );
        assert_eq!(try_as(cred(&|c| c.inheritable(chown | bpf))), Ok(format!("{ids} P=1 E=1 sec=1")));

        let ambient = cred(&|c| c.inheritable(bpf).permitted(bpf).ambient(bpf));
        assert_eq!(
            try_as(ambient.clone()),
            Ok(format!("{ids} P=0 E=0 sec=1")),
            "file capabilities cancel them"
        );
        root.removexattr(b"/pa", b"security.capability").unwrap();
        assert_eq!(
            try_as(ambient),
            Ok(format!("{ids} P=8000000000 E=8000000000 sec=0")),
            "ambient alone is not secure"
        );
        let mut kept = vfs.task(cred(&|c| c.permitted(chown).effective(chown).securebits(SECBIT_KEEP_CAPS)));
        assert_eq!(run(&mut kept, b"/pa").map(|exec| who(&exec)).as_deref(), Ok(NOTHING));
        assert!(!kept.get_keepcaps());

        let root_again = Ok("0/0/0 0/0/0 P=full E=full sec=0".to_owned());
        assert_eq!(try_as(Cred::builder().build().unwrap()), root_again);
        let noroot = Cred::root().to_builder().securebits(SECBIT_NOROOT).build().unwrap();
        assert_eq!(try_as(noroot), Ok("0/0/0 0/0/0 P=0 E=0 sec=0".to_owned()));

        // set-user-id root together with capabilities: just those, except for root
        root.chmod(b"/pa", 0o4755).unwrap();
        set(&caps_xattr(1, chown, CapSet::EMPTY, None));
        assert_eq!(try_as(cred(&|c| c)), Ok("1000/0/0 1000/1000/1000 P=1 E=1 sec=1".to_owned()));
        assert_eq!(try_as(Cred::root()), root_again);
    });
}

/// Capabilities of a namespace count there and below, and nowhere else; malformed ones are an error.
#[test]
fn file_capabilities_belong_to_a_namespace() {
    both(|vfs, root| {
        put(root, b"/pa", 0o755, &elf(None));
        let chown = CapSet::of(&[CAP_CHOWN]);
        root.setxattr(b"/pa", b"security.capability", &caps_xattr(1, chown, CapSet::EMPTY, Some(1000)), 0)
            .unwrap();
        let mut inside = user(vfs);
        inside.unshare(CLONE_NEWUSER).unwrap();
        let map = [
            IdExtent { first: 0, lower: 1000, count: 1 },
            IdExtent { first: 1, lower: 0, count: 1 },
            IdExtent { first: 2, lower: 2000, count: 10 },
        ];
        inside.cred().user_ns().set_uid_map(&map).unwrap();
        inside.cred().user_ns().set_gid_map(&map).unwrap();
        let mut outside = user(vfs);
        assert!(run(&mut outside, b"/pa").unwrap().cred.permitted().is_empty());
        // The file system's owner is the initial namespace, of which this one is a part: so it counts.
        let exec = run(&mut inside, b"/pa").unwrap();
        assert_eq!((exec.cred.effective(), exec.cred.uid()), (CapSet::FULL, 1000), "root of the namespace");
        let mut other = inside.fork();
        other.setuid(5).unwrap();
        assert_eq!(run(&mut other, b"/pa").unwrap().cred.effective(), chown);
        root.chown(b"/pa", 4000, 0).unwrap();
        root.chmod(b"/pa", 0o4755).unwrap();
        assert_eq!(
            run(&mut other, b"/pa").unwrap().cred.euid(),
            2003,
            "an owner without a number in the namespace"
        );

        let mut loader = vfs.loader();
        let parent = loader.root();
        for (name, value) in [("short", vec![1; 3]), ("odd", vec![2; 19]), ("long", vec![2; 25])] {
            let xattrs = [(b"security.capability".as_slice(), value.as_slice())];
            let program = elf(None);
            let inode = NewInode::new(S_IFREG | 0o755).with_size(120).with_xattrs(&xattrs);
            let node = loader.add(parent, name.as_bytes(), &inode).unwrap();
            loader.write(node, 0, &program).unwrap();
        }
        drop(loader);
        let errors = [b"/short".as_slice(), b"/odd", b"/long"].map(|path| run(root, path).unwrap_err());
        assert_eq!(errors, [Errno::EINVAL, Errno::EINVAL, Errno::ERANGE]);
    });
}

#[test]
fn a_new_program_closes_what_was_marked() {
    both(|_, root| {
        put(root, b"/pa", 0o755, &elf(None));
        let kept = root.open(b"/pa", O_RDONLY, 0).unwrap();
        let marked = root.open(b"/pa", O_RDONLY | O_CLOEXEC, 0).unwrap();
        let thread = root.thread();
        let old = std::ptr::from_ref(root.cred());
        run(root, b"/missing").unwrap_err();
        assert!(root.fstat(marked).is_ok() && std::ptr::eq(root.cred(), old));
        let exec = run(root, b"/pa").unwrap();
        assert_eq!([root.fstat(kept).err(), root.fstat(marked).err()], [None, Some(Errno::EBADF)]);
        assert!(!std::ptr::eq(root.cred(), old) && std::ptr::eq(root.cred(), &*exec.cred));
        assert_eq!(root.open(b"/pa", O_RDONLY, 0), Ok(marked), "the number is free again");
        assert!(thread.fstat(marked).is_ok(), "the table is no longer shared");
    });
}

/// What was imported without its contents can be asked about, but not be run.
#[test]
fn contents_must_be_there() {
    let vfs = Vfs::new().unwrap();
    let mut loader = vfs.loader();
    let parent = loader.root();
    let inode = NewInode::new(S_IFREG | 0o755).with_size(4096);
    loader.add(parent, b"pa", &inode).unwrap();
    drop(loader);
    let mut root = vfs.task(Cred::root());
    assert!(root.execveat(AT_FDCWD, b"/pa", &[], &[], AT_EXECVE_CHECK).unwrap().is_none());
    assert_eq!(run(&mut root, b"/pa").unwrap_err(), Errno::ENODATA);
}

/// v01 to v08.
#[test]
fn the_search_goes_on_and_ends_as_in_the_c_libraries() {
    both(|_, root| {
        root.mkdir(b"/w", 0o755).unwrap();
        root.chdir(b"/w").unwrap();
        for dir in ["a", "b", "l", "n", "dir", "dir/x", "/bin"] {
            root.mkdir(dir.as_bytes(), 0o755).unwrap();
        }
        put(root, b"f", 0o644, b"");
        put(root, b"a/x", 0o644, &elf(None));
        put(root, b"b/x", 0o755, &elf(None));
        put(root, b"n/x", 0o755, b"#!/nope\n");
        put(root, b"text", 0o755, b"echo\n");
        put(root, b"/bin/sh", 0o755, &elf(None));
        root.symlink(b"x", b"l/x").unwrap();
        let long = [&[b'y'; 5000][..], b":/none"].concat();
        put(root, b"x", 0o755, &elf(None));
        let search = |libc: Libc, path: &[u8], file: &[u8]| {
            let found = root.fork().execvpe(libc, Some(path), file, &[b"x", b"q"], &[]);
            found.map_or_else(
                |errno| errno.name().to_owned(),
                |exec| {
                    let filename = String::from_utf8_lossy(&exec.filename).into_owned();
                    format!("{filename} {}", args(Ok(exec)))
                },
            )
        };
        for libc in [Libc::Glibc, Libc::Musl] {
            assert_eq!(search(libc, b"a:b", b"x"), "b/x [x][q]");
            assert_eq!(search(libc, b"a:/none", b"x"), "EACCES");
            assert_eq!(search(libc, b"/none", b"x"), "ENOENT");
            assert_eq!(search(libc, b"f:/none", b"x"), "ENOENT");
            assert_eq!(search(libc, b"/none:f", b"x"), "ENOTDIR");
            assert_eq!(search(libc, b"l:b", b"x"), "ELOOP");
            assert_eq!(search(libc, b"b", b""), "ENOENT");
            assert_eq!(search(libc, b"b", &[b'x'; 256]), "ENAMETOOLONG");
            assert_eq!(search(libc, b"b", &[b'x'; 255]), "ENOENT");
            assert_eq!(search(libc, b"n:b", b"x"), "b/x [x][q]");
            assert_eq!(search(libc, b"dir:/none", b"x"), "EACCES");
            assert_eq!(search(libc, b"/none::", b"x"), "x [x][q]");
            assert_eq!(search(libc, b"", b"x"), "x [x][q]");
            assert_eq!(search(libc, b"b", b"./y"), "ENOENT");
            assert_eq!(search(libc, &long[..5000], b"x"), "ENOENT");
        }
        assert_eq!(
            search(Libc::Glibc, &long, b"x"),
            "x [x][q]",
            "glibc looks into the current directory instead"
        );
        assert_eq!(search(Libc::Musl, &long, b"x"), "ENOENT");
        assert_eq!(search(Libc::Glibc, b":b", b"text"), "/bin/sh [/bin/sh][text][q]");
        assert_eq!(search(Libc::Glibc, b"", b"./text"), "/bin/sh [/bin/sh][./text][q]");
        assert_eq!(search(Libc::Musl, b":b", b"text"), "ENOEXEC");
        let unset = |libc| root.fork().execvpe(libc, None, b"sh", &[], &[]).map(|exec| exec.filename);
        assert_eq!(
            [unset(Libc::Glibc), unset(Libc::Musl)],
            [Ok(b"/bin/sh".to_vec()), Ok(b"/bin/sh".to_vec())]
        );
    });
}

/// A running program's file is open, once for all processes that run it, as `/proc/sys/fs/file-nr` counts; one that could not be
/// executed is not.
#[test]
fn running_programs_are_open_files() {
    both(|vfs, root| {
        put(root, b"/x", 0o755, &elf(None));
        put(root, b"/text", 0o755, b"text");
        vfs.set_sysctl(Sysctl::FileMax, 2).unwrap();
        let mut first = user(vfs);
        let opens = |task: &Task| task.open(b"/x", O_RDONLY, 0).and_then(|fd| task.close(fd));
        drop(run(&mut first, b"/x").unwrap());
        assert_eq!((run(&mut first, b"/text").unwrap_err(), opens(&first)), (Errno::ENOEXEC, Ok(())));
        let mut second = first.fork();
        assert_eq!(opens(&second), Ok(()), "the same file");
        // The new program's file beside the old one's, which then is the first's alone.
        let exec = run(&mut second, b"/x").unwrap();
        assert_eq!([opens(&first), opens(&second)], [Err(Errno::ENFILE); 2]);
        assert_eq!(run(&mut second, b"/missing").unwrap_err(), Errno::ENFILE, "before the walk");
        assert_eq!(opens(root), Ok(()), "CAP_SYS_ADMIN");
        drop(second);
        assert_eq!(opens(&first), Err(Errno::ENFILE), "the loader has it still");
        drop(exec);
        assert_eq!(opens(&first), Ok(()));
        // What replaces a program is open before that is closed.
        vfs.set_sysctl(Sysctl::FileMax, 1).unwrap();
        assert_eq!(run(&mut first, b"/x").unwrap_err(), Errno::ENFILE);
        drop(first);
        assert_eq!(opens(&user(vfs)), Ok(()));
    });
}

#[test]
fn a_process_with_the_ids_of_two_users_is_not_dumpable() {
    both(|vfs, root| {
        put(root, b"/p", 0o755, &elf(None));
        for (euid, egid) in [(1000, 1000), (1001, 1000), (1000, 1001)] {
            let cred = Cred::builder().uids(1000, euid, euid, euid).gids(1000, egid, egid, egid).build();
            let mut task = vfs.task(cred.unwrap());
            task.set_dumpable(true);
            let exec = run(&mut task, b"/p").unwrap();
            assert_eq!((exec.dumpable, task.dumpable()), ((euid, egid) == (1000, 1000), exec.dumpable));
        }
    });
}
