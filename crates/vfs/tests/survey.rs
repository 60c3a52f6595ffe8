//! A survey says what the calls say.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use rcuwalk::acl::{ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER_OBJ, AclEntry, UncheckedAcl};
use rcuwalk::cred::CapSet;
use rcuwalk::perm::{IFLAG_APPEND, IFLAG_IMMUTABLE};
use rcuwalk::uapi::*;
use rcuwalk::userns::UserNamespace;
use rcuwalk::{Cred, Errno, MountOptions, NewInode, NodeId, Rights, SURVEY_MAX, Surveyed, Vfs};

/// A deterministic source of choices.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// An ELF file that the engine is ready to execute.
fn elf() -> Vec<u8> {
    let mut file = vec![0; 64 + 56];
    file[..4].copy_from_slice(b"\x7fELF");
    (file[16], file[18], file[32], file[54], file[56], file[64]) = (3, 62, 64, 56, 1, 1);
    file
}

const MODES: [u32; 10] = [0o755, 0o700, 0o711, 0o750, 0o777, 0o644, 0o070, 0o007, 0o1777, 0o1770];
const FILE_MODES: [u32; 10] = [0o644, 0o600, 0o755, 0o4755, 0o2755, 0o6711, 0o2644, 0o066, 0o4700, 0o000];
const IDS: [u32; 4] = [0, 1000, 1001, 50];

fn some_acl(rng: &mut Rng) -> Vec<u8> {
    let entries = [
        AclEntry::new(ACL_USER_OBJ, 7),
        AclEntry::user(rng.pick(&IDS), rng.below(8) as u16),
        AclEntry::new(ACL_GROUP_OBJ, rng.below(8) as u16),
        AclEntry::group(rng.pick(&IDS), rng.below(8) as u16),
        AclEntry::new(ACL_MASK, rng.pick(&[7, 5, 4, 0])),
        AclEntry::new(ACL_OTHER, rng.below(8) as u16),
    ];
    let acl = UncheckedAcl::new(entries).validate(&UserNamespace::init()).unwrap();
    acl.to_xattr(|uid| uid, |gid| gid)
}

/// `cap_net_raw=ep`, for the root of the first namespace.
fn file_caps(effective: bool) -> Vec<u8> {
    let words = [0x0200_0000 | u32::from(effective), 1 << CAP_NET_RAW, 0, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A tree of everything that decides about access; also its paths.
fn world(seed: u64) -> (Vfs, Vec<Vec<u8>>) {
    let vfs = Vfs::builder().capacity(1000).build().unwrap();
    let mut rng = Rng(seed);
    let mut loader = vfs.loader();
    let mut dirs: Vec<(Vec<u8>, NodeId)> = vec![(Vec::new(), loader.root())];
    let mut paths = vec![b"/".to_vec()];
    let image = elf();
    for n in 0..60 {
        let (dir, parent) = dirs[rng.below(dirs.len())].clone();
        // Some names are too long to lie in the dentry.
        let name = format!("{n}{}", if n % 7 == 0 { "x".repeat(60) } else { String::new() });
        let path = [&dir[..], b"/", name.as_bytes()].concat();
        let (acl, caps) = (some_acl(&mut rng), file_caps(rng.below(2) == 0));
        let mut xattrs: Vec<(&[u8], &[u8])> = Vec::new();
        if rng.below(4) == 0 {
            xattrs.push((b"system.posix_acl_access", &acl));
        }
        let kind = rng.pick(&[S_IFDIR, S_IFDIR, S_IFREG, S_IFREG, S_IFREG, S_IFLNK, S_IFIFO]);
        if kind == S_IFREG && rng.below(5) == 0 {
            xattrs.push((b"security.capability", &caps));
        }
        let mode = match kind {
            S_IFDIR => rng.pick(&MODES),
            S_IFLNK => 0o777,
            _ => rng.pick(&FILE_MODES),
        };
        let inode = NewInode::new(kind | mode)
            .with_uid(rng.pick(&IDS))
            .with_gid(rng.pick(&IDS))
            .with_size(if kind == S_IFREG { image.len() as u64 } else { 0 })
            .with_iflags(rng.pick(&[0, 0, 0, 0, 0, IFLAG_IMMUTABLE, IFLAG_APPEND]))
            .with_symlink(if kind == S_IFLNK { b"/nowhere" } else { b"" })
            .with_xattrs(if kind == S_IFLNK { &[] } else { &xattrs });
        let node = loader.add(parent, name.as_bytes(), &inode).unwrap();
        if kind == S_IFREG {
            loader.write(node, 0, &image).unwrap();
        } else if kind == S_IFDIR {
            dirs.push((path.clone(), node));
        }
        paths.push(path);
    }
    drop(loader);
    restrict(&vfs, &dirs, &mut rng);
    (vfs, paths)
}

/// Mounts some directories over themselves, with restrictions.
fn restrict(vfs: &Vfs, dirs: &[(Vec<u8>, NodeId)], rng: &mut Rng) {
    let root = vfs.task(Cred::root());
    for _ in 0..3 {
        let dir = &dirs[rng.below(dirs.len())].0;
        let flags = rng.pick(&[MS_RDONLY, MS_NOEXEC, MS_NOSUID, MS_RDONLY | MS_NOSUID]);
        if !dir.is_empty() {
            root.mount(dir, dir, b"", MS_BIND | MS_REC, b"").unwrap();
            root.mount(b"", dir, b"", MS_REMOUNT | MS_BIND | flags, b"").unwrap();
        }
    }
}

fn people() -> Vec<Cred> {
    let capable = |uid: u32, caps: &[u32]| {
        let caps = CapSet::of(caps);
        Cred::user(uid, uid, &[]).to_builder().permitted(caps).effective(caps).build().unwrap()
    };
    vec![
        Cred::root(),
        Cred::user(1000, 1000, &[]),
        Cred::user(1001, 50, &[1000]),
        Cred::user(7, 0, &[]),
        Cred::user(0, 0, &[]),
        capable(1000, &[CAP_DAC_READ_SEARCH]),
        capable(2000, &[CAP_DAC_OVERRIDE]),
        capable(2000, &[CAP_FOWNER]),
    ]
}

/// Reach and rights by path.
fn survey(vfs: &Vfs, top: &[u8], who: &[Cred]) -> BTreeMap<Vec<u8>, (u64, Rights)> {
    let mut seen = BTreeMap::new();
    vfs.survey(top, who, |entry| {
        assert!(seen.insert(path_of(entry), (entry.reach, entry.rights)).is_none(), "visited twice");
        ControlFlow::Continue(())
    })
    .unwrap();
    seen
}

fn path_of(entry: &Surveyed<'_>) -> Vec<u8> {
    let mut path = entry.dir().to_vec();
    path.push(b'/');
    entry.name(&mut path);
    path
}

const FLAGS: i32 = AT_EACCESS | AT_SYMLINK_NOFOLLOW;

#[test]
fn access_says_the_same_about_every_path() {
    let (mut yes, mut no) = ([0; 4], [0; 4]);
    for seed in 1..40 {
        let (vfs, paths) = world(seed);
        let who = people();
        let seen = survey(&vfs, b"/", &who);
        assert!(seen.keys().all(|path| paths.contains(path)));
        for path in &paths {
            let (reach, rights) = seen.get(path).copied().unwrap_or_default();
            let sets = [(F_OK, reach), (R_OK, rights.read), (W_OK, rights.write), (X_OK, rights.exec)];
            for (i, cred) in who.iter().enumerate() {
                let task = vfs.task(cred.clone());
                for (n, (mode, set)) in sets.into_iter().enumerate() {
                    let call = task.faccessat2(AT_FDCWD, path, mode, FLAGS);
                    let path = path.escape_ascii();
                    assert_eq!(set >> i & 1 == 1, call.is_ok(), "{seed} {path} {mode} {cred:?}: {call:?}");
                    if call.is_ok() { yes[n] += 1 } else { no[n] += 1 }
                }
            }
        }
    }
    assert!(yes.iter().chain(&no).all(|&n| n > 1000), "{yes:?} {no:?}");
}

#[test]
fn removing_and_executing_come_to_the_same() {
    let (mut removed, mut gained) = (BTreeSet::new(), BTreeSet::new());
    for seed in 1..5 {
        let (vfs, paths) = world(seed);
        let who = people();
        let seen = survey(&vfs, b"/", &who);
        for path in &paths[1..] {
            let (_, rights) = seen.get(path).copied().unwrap_or_default();
            for (i, cred) in who.iter().enumerate() {
                let what = format!("{seed} {} {cred:?}", path.escape_ascii());
                let (vfs, _) = world(seed);
                let task = vfs.task(cred.clone());
                let answer = match task.rmdir(path) {
                    Err(Errno::ENOTDIR) => task.unlink(path),
                    answer => answer,
                };
                let removable = matches!(answer, Ok(()) | Err(Errno::ENOTEMPTY));
                assert_eq!(rights.delete >> i & 1 == 1, removable, "{what}: {answer:?}");
                removed.insert(answer.is_ok());
                let gains = gains(&mut world(seed).0.task(cred.clone()), path);
                assert_eq!(rights.setid >> i & 1 == 1, gains, "{what}: set-id");
                gained.insert(gains);
            }
        }
    }
    assert_eq!((removed.len(), gained.len()), (2, 2), "both answers came");
}

/// Whether executing `path` gives what executing an ordinary program does not.
fn gains(task: &mut rcuwalk::Task, path: &[u8]) -> bool {
    let old = task.cred().clone();
    let vfs = task.vfs();
    let root = vfs.task(Cred::root());
    let fd = root.open(b"/plain", O_CREAT | O_WRONLY, 0o755).unwrap();
    root.write(fd, &elf()).unwrap();
    root.close(fd).unwrap();
    // The root directory of these trees is open to all.
    let plain = vfs.task(old.clone()).execve(b"/plain", &[b"p"], &[]).unwrap().cred;
    let Ok(exec) = task.execve(path, &[b"p"], &[]) else { return false };
    exec.cred.euid() != plain.euid()
        || !old.in_group(exec.cred.egid())
        || !exec.cred.permitted().is_subset(plain.permitted())
}

#[test]
fn a_survey_can_begin_anywhere_and_end_early() {
    let vfs = Vfs::new().unwrap();
    let root = vfs.task(Cred::root());
    for dir in [&b"/closed"[..], b"/closed/open", b"/closed/open/b", b"/closed/open/a"] {
        root.mkdir(dir, 0o755).unwrap();
    }
    root.creat(b"/closed/open/a/f", 0o644).unwrap();
    root.chmod(b"/closed", 0o700).unwrap();
    let who = [Cred::root(), Cred::user(1000, 1000, &[])];
    for top in [&b"/closed/open"[..], b"/closed/open/"] {
        let seen = survey(&vfs, top, &who);
        let paths: Vec<_> = seen.keys().map(|path| path.escape_ascii().to_string()).collect();
        assert_eq!(paths, ["/closed/open", "/closed/open/a", "/closed/open/a/f", "/closed/open/b"]);
        assert!(
            seen.values().all(|(reach, rights)| *reach == 1 && rights.read == 1),
            "what lies above counts"
        );
    }
    let mut order = Vec::new();
    let totals = vfs.survey(b"/", &who, |entry| {
        order.push(path_of(entry));
        if order.len() == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(totals.unwrap().entries, 5);
    assert_eq!(order.len(), 5);
    assert_eq!(vfs.survey(b"/", &who[1..], |_| ControlFlow::Continue(())).unwrap().closed, 1);
    assert_eq!(vfs.survey(b"/gone", &who, |_| ControlFlow::Continue(())), Err(Errno::ENOENT));
    assert_eq!(vfs.survey(b"/", &[], |_| ControlFlow::Continue(())), Err(Errno::EINVAL));
    let many = vec![Cred::root(); SURVEY_MAX + 1];
    assert_eq!(vfs.survey(b"/", &many, |_| ControlFlow::Continue(())), Err(Errno::EINVAL));
    assert_eq!(survey(&vfs, b"/", &many[1..])[&b"/"[..]].1.read, u64::MAX);
}

#[test]
fn restrictions_of_the_first_mount_count() {
    let vfs = Vfs::new().unwrap();
    let root = vfs.task(Cred::root());
    root.creat(b"/f", 0o755).unwrap();
    vfs.set_mount_options(MountOptions::default().with_read_only(true).with_noexec(true));
    let rights = survey(&vfs, b"/", &[Cred::root()])[&b"/f"[..]].1;
    assert_eq!(rights, Rights { read: 1, ..Rights::default() });
}

/// A tree made to have as many kinds of inodes as entries.
#[test]
fn more_kinds_than_are_remembered_are_answered_too() {
    let vfs = Vfs::new().unwrap();
    let mut loader = vfs.loader();
    let root = loader.root();
    let count = if cfg!(debug_assertions) { 70_000 } else { 200_000 };
    for n in 0..count {
        let acl = UncheckedAcl::new([
            AclEntry::new(ACL_USER_OBJ, 6),
            AclEntry::user(n + 1, 4),
            AclEntry::new(ACL_GROUP_OBJ, 0),
            AclEntry::new(ACL_MASK, 4),
            AclEntry::new(ACL_OTHER, 0),
        ]);
        let acl = acl.validate(&UserNamespace::init()).unwrap().to_xattr(|uid| uid, |gid| gid);
        let xattrs: [(&[u8], &[u8]); 1] = [(b"system.posix_acl_access", &acl)];
        let inode = NewInode::new(S_IFREG | 0o640).with_uid(n).with_gid(n).with_xattrs(&xattrs);
        loader.add(root, n.to_string().as_bytes(), &inode).unwrap();
    }
    drop(loader);
    let who = [Cred::user(count, count, &[]), Cred::user(5, 5, &[])];
    let seen = survey(&vfs, b"/", &who);
    assert_eq!(seen.len() as u32, count + 1);
    let readable = |who: u64| seen.iter().filter(|(_, (_, rights))| rights.read & who != 0).count();
    assert_eq!((readable(1), readable(2)), (2, 3), "the root; the file that names the user; the user's own");
}
