//! Random programs: small worlds with few names, so that calls meet, and identities that differ in what matters.
//!
//! A program is made while it runs on a guide, one of the engines: what exists and which descriptors are open at a point
//! is known when the next call is chosen, or most calls would end at the first missing name. The guide's answers are a
//! hint, not a judgement: a wrong one costs aim, and shows when the traces are compared.

mod namespaces;

use std::collections::VecDeque;

use crate::args::{
    Attributes, CapRoom, CapSets, Data, Dev, Fd, Fsxattr, Handle, Hint, How, Id, IdList, IdMap, Int, Limit,
    LockRange, Mem, MountAttr, MountRequest, Name, Offset, Pieces, Room, Rooms, SetFlags, SplitOffset,
    Struct, ThreeIds, Times, UTIME_NOW, UTIME_OMIT, Vector, XattrArgs, XattrRoom,
};
use crate::backend::World;
use crate::fuzz::compare::FileSystem;
use crate::fuzz::program::{Program, Run, Trace};
use crate::identity::Identity;
use crate::op::Op;
use crate::outcome::Outcome;
use crate::run::Mismatch;
use crate::text;
use crate::tree::{Contents, Entry, Object};
use crate::words::{
    AccessMode, AtFlags, CLibrary, CapSet, Capability, CloneFlags, FallocateMode, FcntlCommand,
    FlockOperation, InodeFlags, IoctlCommand, ListmountFlags, LockCommand, LockKind, Mode, MountAttributes,
    MountFlags, MoveMountFlags, OpenFlags, OpenTreeFlags, ProcFile, RenameFlags, ResolveFlags, Resource,
    RwFlags, Securebits, StatmountMask, StatxMask, UmountFlags, UnshareFlags, Whence, XFlags, XattrFlags,
};

/// Random numbers: SplitMix64.
#[derive(Clone, Debug)]
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// True `percent` times out of a hundred.
    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// Forks in a program, at most.
const FORKS: usize = 3;
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const IDS: [u32; 4] = [0, 1000, 1001, 1002];
const GROUPS: [u32; 5] = [0, 1000, 1001, 50, 51];
const MODES: [u64; 20] = [
    0, 0o777, 0o755, 0o700, 0o711, 0o644, 0o600, 0o444, 0o222, 0o111, 0o070, 0o007, 0o077, 0o1777, 0o2777,
    0o4755, 0o2755, 0o6777, 0o2666, 0o640,
];
const CAPS: [u64; 9] =
    [1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 6 | 1 << 7, 1 << 8, 1 << 21, 1 << 27 | 1 << 18];

/// Descriptors from here on are no others' than those of `/proc`.
const OUT_OF_THE_WAY: i64 = 100;
/// Sizes that no memory has.
const NO_SIZES: [i64; 4] = [-1, i64::MIN, i64::MAX, 1 << 60];
/// Calls in a program.
const STEPS: usize = 96;
/// Calls between snapshots.
const INTERVAL: usize = 24;
/// Calls one task makes in a row, at most.
const BURST: usize = 8;
/// Objects in a tree, at most.
const OBJECTS: usize = 16;

/// What kind of object a call hopes to find at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    Any,
    Dir,
    File,
    Link,
    /// Nothing: the call makes something.
    New,
}

/// What is known of an open descriptor.
#[derive(Clone, Debug)]
struct Descriptor {
    fd: i32,
    /// The path it was opened by, if that was absolute or relative to the working directory.
    path: Vec<u8>,
    /// Type bits of its mode.
    kind: u32,
}

/// Makes a program from a seed.
#[derive(Debug)]
pub struct Generator {
    rng: Rng,
    /// What exists, as the guide saw it last: path from the root, type bits.
    known: Vec<(Vec<u8>, u32)>,
    /// Open descriptors of each task.
    open: Vec<Vec<Descriptor>>,
    /// The task whose call is being made.
    task: usize,
    /// Calls that follow at once.
    next: VecDeque<Op>,
    /// How many tasks there are, with those forked,
    tasks: usize,
    /// and without.
    unforked: usize,
    /// Where the host runs it.
    file_system: FileSystem,
    /// Whether the program mounts.
    mounts: bool,
    /// Whether the program makes user namespaces.
    namespaces: bool,
    /// Whether pointers and sizes may be any.
    raw: bool,
    /// Tasks that have made one.
    unshared: Vec<bool>,
    /// Descriptors of files of `/proc` that each task has, and which file it is.
    proc: Vec<Vec<(i32, u64)>>,
    /// The file of `/proc` that was opened last.
    opened: u64,
    /// Tasks whose effective user id is the one that files are opened with.
    own: Vec<bool>,
    /// Tasks in a process with others.
    threaded: Vec<bool>,
}

impl Generator {
    /// The generator of `seed`, for programs that mean the same to this file system and to the engine; `raw`, if they are
    /// made through registers, which can point anywhere and hold any size. What a faulting write leaves, tmpfs alone decides.
    pub fn new(seed: u64, file_system: FileSystem, raw: bool) -> Generator {
        let mut rng = Rng(seed);
        let (mounts, namespaces) = (rng.chance(15), rng.chance(10));
        Generator {
            rng,
            known: Vec::new(),
            open: Vec::new(),
            task: 0,
            next: VecDeque::new(),
            tasks: 0,
            unforked: 0,
            file_system,
            mounts,
            namespaces,
            raw,
            unshared: Vec::new(),
            proc: Vec::new(),
            opened: 0,
            own: Vec::new(),
            threaded: Vec::new(),
        }
    }

    /// A whole program, made while it runs in `world`, and what that world made of it. Capability sets are limited to
    /// `full`.
    ///
    /// # Errors
    ///
    /// If the guide cannot make the tree or the tasks.
    pub fn program(&mut self, world: &mut dyn World, full: u64) -> Result<(Program, Trace), Mismatch> {
        let tree = self.tree();
        let tasks: Vec<Identity> = (0..2 + self.rng.below(3)).map(|_| self.identity()).collect();
        let program = Program { tree, tasks, steps: Vec::with_capacity(STEPS), interval: INTERVAL };
        let mut program = program.with_capabilities(full);
        let mut run = Run::start(&program, world)?;
        self.open = vec![Vec::new(); program.tasks.len()];
        self.unshared = vec![false; program.tasks.len()];
        self.proc = vec![Vec::new(); program.tasks.len()];
        self.own = program.tasks.iter().map(|who| who.uids[1] == who.uids[3]).collect();
        self.threaded = vec![false; program.tasks.len()];
        (self.tasks, self.unforked) = (program.tasks.len(), program.tasks.len());
        let root = program.tasks.iter().position(|who| who.uids == [0; 4] && who.gids == [0; 4]);
        match root.filter(|_| self.mounts) {
            Some(root) if self.rng.chance(40) => self.open_userns(root),
            Some(root) if self.rng.chance(60) => self.share(root),
            _ => {}
        }
        while program.steps.len() < STEPS {
            if self.next.is_empty() {
                self.task = match root {
                    // Who may mount.
                    Some(root) if self.mounts && self.rng.chance(40) => root,
                    _ => self.rng.below(self.tasks),
                };
            }
            let burst = 1 + self.rng.below(BURST);
            for at in 0.. {
                if program.steps.len() == STEPS || at >= burst && self.next.is_empty() {
                    break;
                }
                let op = self.next.pop_front().unwrap_or_else(|| self.op());
                let outcome = run.call(self.task, &op).clone();
                let kind = match outcome {
                    Outcome::Fd(fd) => run.kind(self.task, fd),
                    _ => 0,
                };
                self.learn(&op, &outcome, kind);
                program.steps.push((self.task, op));
                if let Some(snapshot) = run.snapshot_if_due(program.interval, program.steps.len() == STEPS) {
                    self.known =
                        snapshot.objects.iter().map(|(p, s)| (p.clone(), s.stat.mode & 0o170000)).collect();
                }
            }
        }
        Ok((program, run.finish()))
    }

    /// Takes notice of what the guide answered.
    fn learn(&mut self, op: &Op, outcome: &Outcome, kind: u32) {
        if let (Op::Fork { .. } | Op::Thread { .. }, Outcome::Done) = (op, outcome) {
            let thread = matches!(op, Op::Thread { .. });
            self.threaded[self.task] |= thread;
            self.threaded.push(thread);
            self.open.push(self.open[self.task].clone());
            self.proc.push(self.proc[self.task].clone());
            self.own.push(self.own[self.task]);
            self.unshared.push(self.unshared[self.task]);
            self.tasks += 1;
        }
        let changes_ids = matches!(
            op,
            Op::Setuid { .. } | Op::Setreuid { .. } | Op::Setresuid { .. } | Op::Setfsuid { .. }
        );
        self.own[self.task] &= !changes_ids;
        let open = &mut self.open[self.task];
        match (op, outcome) {
            // What it is is the same; what it looks like is not. It goes where nothing comes upon it by accident.
            (Op::OpenProc { file, .. }, Outcome::Fd(fd)) => {
                self.opened = file.0;
                let (fd, command) = (Fd::Raw(*fd), FcntlCommand(libc::F_DUPFD as u64));
                let fcntl = Op::Fcntl { fd: fd.clone(), command, arg: Int(OUT_OF_THE_WAY) };
                self.next.extend([fcntl, Op::Close { fd }]);
            }
            (Op::Fcntl { arg: Int(OUT_OF_THE_WAY), .. }, Outcome::Number(fd)) => {
                self.proc[self.task].push((*fd as i32, self.opened));
            }
            // The engine has nothing of its own behind that descriptor; it is for idmapped mounts alone.
            (Op::OpenUserns { .. }, Outcome::Fd(fd)) => self.idmap(*fd),
            (Op::Close { fd }, Outcome::Done) => open.retain(|known| known.fd != fd.raw()),
            (op, Outcome::Fd(fd)) => {
                let path = match op {
                    Op::Open { path, .. } | Op::Openat { path, dirfd: Fd::CWD, .. } => path.bytes(),
                    _ => None,
                };
                open.retain(|known| known.fd != *fd);
                open.push(Descriptor { fd: *fd, path: path.unwrap_or_default().to_vec(), kind });
            }
            _ => {}
        }
        let made: Option<(&Mem, u32)> = match op {
            Op::Mkdir { path, .. } => Some((path, 0o040000)),
            Op::Symlink { path, .. } => Some((path, 0o120000)),
            Op::Open { path, .. } | Op::Link { new: path, .. } | Op::Mknod { path, .. } => {
                Some((path, 0o100000))
            }
            Op::Rename { new: path, .. } => Some((path, 0o100000)),
            _ => None,
        };
        let absolute = |path: &Mem| path.bytes().and_then(|p| p.strip_prefix(b"/")).map(<[u8]>::to_vec);
        match (made.and_then(|(path, kind)| Some((absolute(path)?, kind))), outcome) {
            (_, Outcome::Error(_)) | (None, _) => {}
            (Some((path, kind)), _) => self.known.push((path, kind)),
        }
    }

    // ---- the world ---------------------------------------------------------------------------------------------

    fn tree(&mut self) -> Vec<Entry> {
        let mut root = Entry::parse("/").expect("a directory");
        root.mode = Some(Mode(*self.rng.pick(&[0o755, 0o777, 0o1777, 0o2777, 0o755])));
        let mut tree = vec![root];
        let mut dirs: Vec<Vec<u8>> = vec![Vec::new()];
        let mut files: Vec<Vec<u8>> = Vec::new();
        for _ in 0..4 + self.rng.below(OBJECTS - 4) {
            let parent = self.rng.pick(&dirs).clone();
            let mut path = parent;
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(self.rng.pick(&NAMES).as_bytes());
            if tree.iter().any(|e| e.path == path) {
                continue;
            }
            let entry = self.entry(&path, &files);
            match entry.kind {
                Object::Dir => dirs.push(path.clone()),
                Object::File(_) => files.push(path.clone()),
                _ => {}
            }
            let kind = match entry.kind {
                Object::Dir => 0o040000,
                Object::Symlink(_) => 0o120000,
                _ => 0o100000,
            };
            self.known.push((path, kind));
            tree.push(entry);
        }
        tree
    }

    fn entry(&mut self, path: &[u8], files: &[Vec<u8>]) -> Entry {
        let kind = match self.rng.below(22) {
            0..8 => Object::Dir,
            20 => Object::File(Contents::Program),
            21 => Object::File(Contents::Bytes(self.script())),
            8..14 => Object::File(Contents::Bytes(self.text())),
            14..17 => {
                let mut body = self.link_body();
                if body.is_empty() || body.len() > 200 {
                    body = b"a".to_vec();
                }
                Object::Symlink(body)
            }
            17 if !files.is_empty() => Object::Hardlink(self.rng.pick(files).clone()),
            18 => Object::Socket,
            19 => Object::Char(Dev { major: 60, minor: 0 }),
            _ => Object::File(Contents::Hole(self.rng.below(9000) as i64)),
        };
        let mut entry = Entry::parse("x").expect("a file");
        entry.path = path.to_vec();
        entry.mode = Some(Mode(*self.rng.pick(&MODES)));
        entry.owner = (Id(*self.rng.pick(&IDS)), Id(*self.rng.pick(&GROUPS)));
        if matches!(kind, Object::Symlink(_) | Object::Hardlink(_)) {
            entry.mode = None;
        } else {
            self.adorn(&mut entry, &kind);
        }
        if matches!(kind, Object::File(Contents::Program)) {
            entry.mode = Some(Mode(*self.rng.pick(&[0o755, 0o4755, 0o2755, 0o6755, 0o4711, 0o6777, 0o644])));
            if self.rng.chance(40) {
                entry.xattrs.push((b"security.capability".to_vec(), self.file_caps()));
            }
        }
        if self.file_system == FileSystem::Tmpfs
            && self.rng.chance(3)
            && matches!(kind, Object::Dir | Object::File(_))
        {
            entry.iflags = *self.rng.pick(&[0x10, 0x20, 0x80]);
        }
        // An explicit time in the past, so that accesses show.
        if self.rng.chance(50) && !matches!(kind, Object::Hardlink(_)) {
            entry.times = Some([(1000 + self.rng.below(5) as i64, 0), (1000 + self.rng.below(5) as i64, 0)]);
        }
        entry.kind = kind;
        entry
    }

    fn adorn(&mut self, entry: &mut Entry, kind: &Object) {
        let is_dir = matches!(kind, Object::Dir);
        if is_dir && self.rng.chance(70) {
            // Most directories let most people through, or nothing would be reached.
            entry.mode = Some(Mode(*self.rng.pick(&[0o755, 0o777, 0o1777, 0o2777, 0o775])));
        }
        if self.rng.chance(20) {
            entry.xattrs.push((b"system.posix_acl_access".to_vec(), self.good_acl()));
        }
        if is_dir && self.rng.chance(20) {
            entry.xattrs.push((b"system.posix_acl_default".to_vec(), self.good_acl()));
        }
        if self.rng.chance(10) && (is_dir || matches!(kind, Object::File(_))) {
            entry.xattrs.push((b"user.a".to_vec(), self.text()));
        }
    }

    fn identity(&mut self) -> Identity {
        let uid = *self.rng.pick(&[0, 0, 1000, 1000, 1001]);
        let groups: Vec<u32> = (0..self.rng.below(3)).map(|_| *self.rng.pick(&GROUPS)).collect();
        let mut who = Identity::user(uid, *self.rng.pick(&GROUPS), &groups);
        who.umask = Mode(*self.rng.pick(&[0o022, 0, 0o077, 0o027, 0o777]));
        if uid != 0 && self.rng.chance(30) {
            let caps = CapSet(*self.rng.pick(&CAPS) | *self.rng.pick(&CAPS));
            who.permitted = caps;
            who.effective = if self.rng.chance(80) { caps } else { CapSet::NONE };
        }
        if self.rng.chance(15) {
            for id in 1..4 {
                who.uids[id] = *self.rng.pick(&IDS);
                who.gids[id] = *self.rng.pick(&GROUPS);
            }
        }
        if self.rng.chance(5) {
            who.securebits = Securebits(*self.rng.pick(&[4, 1, 0x10, 0x40]));
        }
        who
    }

    // ---- arguments ---------------------------------------------------------------------------------------------

    fn text(&mut self) -> Vec<u8> {
        let len = *self.rng.pick(&[0, 1, 3, 10, 5000]);
        vec![b'x'; len]
    }

    /// The text of a script; its interpreter may exist.
    fn script(&mut self) -> Vec<u8> {
        let interpreter = self.existing(Want::File);
        let start = *self.rng.pick(&["#!", "#! ", "#!\t", ""]);
        let end = *self.rng.pick(&["\n", " arg\n", "  two args  \n", ""]);
        [start.as_bytes(), &interpreter, end.as_bytes()].concat()
    }

    /// The value of a `security.capability` attribute that the kernel accepts.
    fn file_caps(&mut self) -> Vec<u8> {
        let set = |rng: &mut Rng| CapSet(if rng.chance(50) { *rng.pick(&CAPS) } else { 0 });
        let (permitted, inheritable) = (set(&mut self.rng), set(&mut self.rng));
        let rootid = if self.rng.chance(10) { Some(0) } else { None };
        text::FileCaps { permitted, inheritable, effective: self.rng.chance(50), rootid }.to_xattr()
    }

    fn name(&mut self) -> Vec<u8> {
        match self.rng.below(40) {
            0 => vec![b'n'; 255],
            1 => vec![b'n'; 256],
            2 => b"..".to_vec(),
            3 => b".".to_vec(),
            _ => self.rng.pick(&NAMES).as_bytes().to_vec(),
        }
    }

    /// The path of something that exists, absolute; the root if nothing of the kind does.
    fn existing(&mut self, want: Want) -> Vec<u8> {
        let kind = match want {
            Want::Dir => 0o040000,
            Want::File => 0o100000,
            Want::Link => 0o120000,
            Want::Any | Want::New => 0,
        };
        let fits: Vec<&Vec<u8>> =
            self.known.iter().filter(|(_, k)| kind == 0 || *k == kind).map(|(p, _)| p).collect();
        if fits.is_empty() {
            return b"/".to_vec();
        }
        let path = fits[self.rng.below(fits.len())];
        [b"/", &path[..]].concat()
    }

    /// The path of something in an existing directory that does not exist yet, most of the time.
    fn fresh(&mut self) -> Vec<u8> {
        let mut path = Vec::new();
        for _ in 0..4 {
            path = self.existing(Want::Dir);
            if path != b"/" {
                path.push(b'/');
            }
            path.extend(self.name());
            if !self.known.iter().any(|(known, _)| path[1..] == known[..]) {
                break;
            }
        }
        path
    }

    /// A few names in a row.
    fn random_path(&mut self) -> Vec<u8> {
        let parts: Vec<Vec<u8>> = (0..1 + self.rng.below(3)).map(|_| self.name()).collect();
        parts.join(&b'/')
    }

    fn path_bytes(&mut self, want: Want) -> Vec<u8> {
        let mut path = match self.rng.below(120) {
            0 => return Vec::new(),
            1 => b"/".to_vec(),
            2 => b".".to_vec(),
            3 => b"..".to_vec(),
            4 => [b"./".repeat(2047), b"a".to_vec()].concat(),
            5 => [b"./".repeat(2048), b"a".to_vec()].concat(),
            6..16 => self.random_path(),
            16..24 => self.existing(Want::Any),
            _ if want == Want::New => self.fresh(),
            _ => self.existing(want),
        };
        if self.rng.chance(8) && path.len() > 1 && path.starts_with(b"/") {
            path.remove(0);
        }
        match self.rng.below(60) {
            0 | 1 => path.push(b'/'),
            2 => path.extend_from_slice(b"/."),
            3 => path.extend_from_slice(b"/.."),
            4 => path.extend_from_slice(b"//"),
            5 => path = [b"./", &path[..]].concat(),
            6 => path = [b"a/../", &path[..]].concat(),
            7 => path = [b"../", &path[..]].concat(),
            8 => {
                path.push(b'/');
                path.extend(self.name());
            }
            _ => {}
        }
        path
    }

    fn link_body(&mut self) -> Vec<u8> {
        match self.rng.below(12) {
            0 => b"/".to_vec(),
            1 => b"..".to_vec(),
            2 => b".".to_vec(),
            3..6 => self.rng.pick(&NAMES).as_bytes().to_vec(),
            6 => self.random_path(),
            7 => self.fresh(),
            _ => self.path_bytes(Want::Any),
        }
    }

    fn path(&mut self, want: Want) -> Mem {
        let path = self.path_bytes(want);
        if self.raw && self.rng.chance(2) {
            return self.rng.pick(&[Mem::Bad, Mem::Null, Mem::Unterminated(b"a".to_vec())]).clone();
        }
        Mem::Bytes(path)
    }

    /// Room of one of these sizes.
    fn room(&mut self, sizes: &[i64]) -> Room {
        let room = Room::of(*self.rng.pick(sizes));
        match self.rng.below(100) {
            0..3 if self.raw => Room { bad: true, ..room },
            3..6 if self.raw => Room::of(*self.rng.pick(&NO_SIZES)),
            _ => room,
        }
    }

    /// Something to write.
    fn data(&mut self) -> Data {
        let data = Data::of(self.text());
        match self.rng.below(100) {
            0..3 if self.raw => Data { bytes: Mem::Bad, told: None },
            3..6 if self.raw => Data { told: Some(*self.rng.pick(&NO_SIZES)), ..data },
            _ => data,
        }
    }

    /// A starting point and a path that makes sense from there, often.
    fn at(&mut self, want: Want) -> (Fd, Mem) {
        match self.rng.below(20) {
            0 => (Fd::Raw(-1), self.path(want)),
            1 => (self.fd(), self.path(want)),
            2 => (self.fd(), Mem::Bytes(Vec::new())),
            3..8 => {
                let fd = self.fd();
                let opened = self.open[self.task].iter().find(|known| Fd::Raw(known.fd) == fd);
                let opened = opened.map(|known| known.path.clone());
                let prefix = [opened.unwrap_or_default(), b"/".to_vec()].concat();
                let path = self.path_bytes(want);
                let below = path.strip_prefix(&prefix[..]).map(<[u8]>::to_vec);
                (fd, Mem::Bytes(below.unwrap_or_else(|| self.name())))
            }
            _ => (Fd::CWD, self.path(want)),
        }
    }

    fn fd(&mut self) -> Fd {
        let open = &self.open[self.task];
        if open.is_empty() || self.rng.chance(5) {
            Fd::Raw(self.rng.below(5) as i32 - 1)
        } else {
            Fd::Raw(open[self.rng.below(open.len())].fd)
        }
    }

    fn mode(&mut self) -> Mode {
        if self.rng.chance(10) { Mode(self.rng.next() & 0o7777) } else { Mode(*self.rng.pick(&MODES)) }
    }

    fn uid(&mut self) -> Id {
        if self.rng.chance(30) { Id::KEEP } else { Id(*self.rng.pick(&IDS)) }
    }

    fn gid(&mut self) -> Id {
        if self.rng.chance(30) { Id::KEEP } else { Id(*self.rng.pick(&GROUPS)) }
    }

    fn at_flags(&mut self, allowed: &[u64]) -> AtFlags {
        let mut flags = 0;
        for flag in allowed {
            if self.rng.chance(20) {
                flags |= flag;
            }
        }
        if self.rng.chance(2) {
            flags |= 1 << self.rng.below(16);
        }
        AtFlags(flags)
    }

    /// Open flags that never block: a FIFO somewhere must not stop the host.
    fn open_flags(&mut self) -> u64 {
        let mut flags = *self.rng.pick(&[0, 0, 0, 1, 2, 2, 3]);
        for (flag, percent) in [
            (libc::O_CREAT, 35),
            (libc::O_EXCL, 12),
            (libc::O_TRUNC, 15),
            (libc::O_APPEND, 10),
            (libc::O_DIRECTORY, 15),
            (libc::O_NOFOLLOW, 12),
            (libc::O_PATH, 12),
            (libc::O_NOATIME, 4),
            (libc::O_CLOEXEC, 5),
            (libc::O_DIRECT, 4),
        ] {
            if self.rng.chance(percent) {
                flags |= flag as u64;
            }
        }
        if self.rng.chance(8) && self.file_system == FileSystem::Tmpfs {
            flags |= libc::O_TMPFILE as u64;
        }
        if self.rng.chance(1) {
            flags |= 1 << self.rng.below(30);
        }
        // Other file systems than tmpfs want aligned buffers with O_DIRECT.
        let direct = if self.file_system == FileSystem::Ext4 { libc::O_DIRECT as u64 } else { 0 };
        (flags | libc::O_NONBLOCK as u64) & !direct
    }

    fn perms(&mut self) -> String {
        let bits = self.rng.below(8);
        let bit = |b: usize, c: char| if bits & b != 0 { c } else { '-' };
        [bit(4, 'r'), bit(2, 'w'), bit(1, 'x')].into_iter().collect()
    }

    /// The value of an ACL that the kernel accepts.
    fn good_acl(&mut self) -> Vec<u8> {
        let mut entries = vec![format!("u::{}", self.perms())];
        let (users, groups) = (self.rng.below(3), self.rng.below(3));
        for _ in 0..users {
            entries.push(format!("u:{}:{}", *self.rng.pick(&IDS), self.perms()));
        }
        entries.push(format!("g::{}", self.perms()));
        for _ in 0..groups {
            entries.push(format!("g:{}:{}", *self.rng.pick(&GROUPS), self.perms()));
        }
        if users + groups > 0 || self.rng.chance(30) {
            entries.push(format!("m::{}", self.perms()));
        }
        entries.push(format!("o::{}", self.perms()));
        text::acl_to_xattr(&entries.join(",")).expect("made of valid parts")
    }

    fn acl(&mut self) -> Vec<u8> {
        let mut acl = self.good_acl();
        if self.file_system == FileSystem::Ext4 {
            // None at all is what takes an ACL away.
            return acl;
        }
        match self.rng.below(12) {
            0 => acl.truncate(acl.len() - 8),
            1 => acl.truncate(acl.len() - 3),
            2 => {
                let at = self.rng.below(acl.len());
                acl[at] ^= 1 << self.rng.below(8);
            }
            3 => acl.clear(),
            4 => acl.truncate(4),
            _ => {}
        }
        acl
    }

    fn xattr_name(&mut self) -> Vec<u8> {
        let name: &[u8] = match self.rng.below(16) {
            0..3 => b"system.posix_acl_access",
            3..6 => b"system.posix_acl_default",
            6..9 => b"user.a",
            9 => b"user.b",
            10 => b"trusted.a",
            11 => b"security.a",
            12 => b"security.capability",
            13 => {
                self.rng.pick(&["user.", "user", "system.foo", "foo.bar", "trusted.", "security."]).as_bytes()
            }
            14 => b"",
            _ => b"user.c",
        };
        name.to_vec()
    }

    fn xattr_value(&mut self, name: &[u8]) -> Data {
        let bytes = if name.starts_with(b"system.posix_acl") {
            self.acl()
        } else if name == b"security.capability" && self.rng.chance(70) {
            self.file_caps()
        } else {
            // Never empty: the kernel's acceptance of empty file capabilities is a known divergence.
            vec![b'v'; self.rng.below(12) + usize::from(name == b"security.capability")]
        };
        Data::of(bytes)
    }

    fn times(&mut self) -> Times {
        if self.rng.chance(25) {
            return Times::Null;
        }
        let mut one = || match self.rng.below(10) {
            0..3 => (0, UTIME_NOW),
            3..5 => (0, UTIME_OMIT),
            5 => (5, 1_000_000_000),
            n => (100 + n as i64, n as i64),
        };
        Times::Pair([one(), one()])
    }

    fn length(&mut self) -> Int {
        Int(*self.rng.pick(&[0, 0, 1, 3, 100, 4096, 5000, 10_000, -1, 1 << 40]))
    }

    // ---- calls -------------------------------------------------------------------------------------------------

    fn op(&mut self) -> Op {
        if self.mounts && self.rng.chance(25) {
            return self.mount();
        }
        if self.namespaces && self.rng.chance(8) {
            return self.namespace();
        }
        match self.rng.below(100) {
            0..11 => self.look(),
            11 => self.execute(),
            12..32 => self.open(),
            32..42 => self.io(),
            42..66 => self.tree_op(),
            66..80 => self.attribute(),
            80..89 => self.xattr(),
            89..96 => self.surroundings(),
            _ => self.credential(),
        }
    }

    fn look(&mut self) -> Op {
        const NOFOLLOW: u64 = libc::AT_SYMLINK_NOFOLLOW as u64;
        const EMPTY: u64 = libc::AT_EMPTY_PATH as u64;
        let buf = Struct { bad: false };
        let (dirfd, at) = self.at(Want::Any);
        let path = self.path(Want::Any);
        let room = self.room(&[4096, 4096, 4096, 0, 1, 3]);
        match self.rng.below(11) {
            0 => Op::Stat { path, buf },
            1 => Op::Lstat { path, buf },
            2 => Op::Fstat { fd: self.fd(), buf },
            3 => Op::Newfstatat { dirfd, path: at, buf, flags: self.at_flags(&[NOFOLLOW, EMPTY]) },
            4 => {
                let mask = StatxMask(*self.rng.pick(&[0, 0x7ff, 0xfff, 0x40, 0x800]));
                let flags = self.at_flags(&[NOFOLLOW, EMPTY]);
                Op::Statx { dirfd, path: at, flags, mask, buf: Struct { bad: false } }
            }
            5..7 => Op::Access { path, mode: AccessMode(self.rng.below(8) as u64) },
            7 => {
                let flags = self.at_flags(&[NOFOLLOW, EMPTY, libc::AT_EACCESS as u64]);
                Op::Faccessat2 { dirfd, path: at, mode: AccessMode(self.rng.below(8) as u64), flags }
            }
            8 => Op::Readlink { path: self.path(Want::Link), room },
            9 => {
                let (dirfd, path) = self.at(Want::Link);
                Op::Readlinkat { dirfd, path, room }
            }
            _ => Op::Faccessat { dirfd, path: at, mode: AccessMode(self.rng.below(8) as u64) },
        }
    }

    fn open(&mut self) -> Op {
        let flags = OpenFlags(self.open_flags());
        let creating = flags.0 & (libc::O_CREAT | 0o20000000) as u64 != 0;
        let want = if flags.0 & (libc::O_DIRECTORY as u64) != 0 {
            Want::Dir
        } else if flags.0 & (libc::O_CREAT as u64) != 0 && self.rng.chance(60) {
            Want::New
        } else if self.rng.chance(60) {
            Want::File
        } else {
            Want::Any
        };
        let mode = self.mode();
        match self.rng.below(10) {
            0..5 => Op::Open { path: self.path(want), flags, mode },
            5..7 => {
                let (dirfd, path) = self.at(want);
                Op::Openat { dirfd, path, flags, mode }
            }
            7 | 8 => {
                let mode = if creating { mode } else { Mode(0) };
                let resolve = match self.rng.below(4) {
                    0 => 0,
                    1 => 1 << self.rng.below(5),
                    2 => 1 << self.rng.below(5) | 1 << self.rng.below(5),
                    _ => *self.rng.pick(&[8, 16]),
                };
                let how = How { flags, mode, resolve: ResolveFlags(resolve), ..How::default() };
                let (dirfd, path) = self.at(want);
                Op::Openat2 { dirfd, path, how }
            }
            _ => Op::Close { fd: self.fd() },
        }
    }

    fn io(&mut self) -> Op {
        let data = self.data();
        let fd = self.fd();
        let is =
            |kind| self.open[self.task].iter().any(|known| Fd::Raw(known.fd) == fd && known.kind == kind);
        let (is_dir, is_fifo) = (is(0o040000), is(0o010000));
        if is_dir && (self.file_system == FileSystem::Ext4 || self.rng.chance(70)) {
            return self.read_dir(fd);
        }
        if is_fifo {
            // What goes through a FIFO is not the engine's business.
            return Op::Pread { fd, count: Room::of(1), offset: Int(0) };
        }
        match self.rng.below(19) {
            0 => Op::Read { fd, count: self.room(&[0, 1, 2, 5, 9]) },
            1 => Op::Pread { fd, count: self.room(&[100]), offset: self.offset() },
            2 => Op::Write { fd, data },
            3 => self.allocate(fd),
            4 => Op::Pwrite { fd, data, offset: self.offset() },
            5 => {
                if self.threaded[self.task] && self.file_system == FileSystem::Ext4 {
                    // It may be a directory, whose positions are the file system's own, but for the start.
                    return Op::Lseek { fd, offset: Int(0), whence: Whence(0) };
                }
                let whence = Whence(match self.file_system {
                    FileSystem::Tmpfs => self.rng.below(6) as u64,
                    FileSystem::Ext4 => *self.rng.pick(&[0, 1, 2, 5]),
                });
                Op::Lseek {
                    fd,
                    offset: Int(*self.rng.pick(&[0, 1, -1, 5000, 100_000, self.last_offset(), i64::MIN])),
                    whence,
                }
            }
            6 => Op::Truncate { path: self.path(Want::File), length: self.length() },
            7 => Op::Ftruncate { fd, length: self.length() },
            8 => Op::Close { fd },
            9 => match self.rng.below(3) {
                0 => Op::Dup { fd },
                1 => Op::Dup2 { fd, newfd: Fd::Raw(self.rng.below(8) as i32) },
                _ => Op::Dup3 { fd, newfd: Fd::Raw(self.rng.below(8) as i32), flags: OpenFlags(0) },
            },
            10 => self.read_dir(fd),
            16 => self.vectored(fd),
            17 => self.send(fd),
            18 => self.ask(fd),
            11 if self.file_system == FileSystem::Tmpfs && self.rng.chance(30) => {
                if self.rng.chance(30) {
                    return Op::Getflags { fd };
                }
                let flags = *self.rng.pick(&[0, 0, 0x10, 0x20, 0x80, 0x40]);
                Op::Setflags { fd, flags: SetFlags(InodeFlags(flags)) }
            }
            12 | 13 => self.lock(fd),
            14 => self.copy(fd),
            15 if self.file_system == FileSystem::Tmpfs && self.rng.chance(50) => match self.rng.below(3) {
                0 => Op::Fstatfs { fd, space: Int(0) },
                _ => Op::Statfs { path: self.path(Want::Any), space: Int(0) },
            },
            15 => self.handle(),
            _ => match self.rng.below(5) {
                0 | 1 => {
                    let direct = if self.file_system == FileSystem::Tmpfs { libc::O_DIRECT } else { 0 };
                    let flags = [libc::O_APPEND, libc::O_NOATIME, libc::O_ASYNC, direct];
                    let flags = self.some_of(&flags.map(|flag| flag as u64));
                    // Without O_NONBLOCK, a FIFO would stop the host.
                    let arg = Int((flags | libc::O_NONBLOCK as u64) as i64);
                    Op::Fcntl { fd, command: FcntlCommand(4), arg }
                }
                _ => Op::Fcntl { fd, command: FcntlCommand(*self.rng.pick(&[1, 3, 3, 0])), arg: Int(0) },
            },
        }
    }

    /// Where in a file, or far behind its end.
    fn offset(&mut self) -> Int {
        let last = self.last_offset();
        Int(*self.rng.pick(&[0, 0, 1, 4095, 10_000, -1, last, last - 3]))
    }

    /// The last offset there can be. Files of ext4 end long before, and what their offsets may be depends on the blocks' size.
    fn last_offset(&self) -> i64 {
        match self.file_system {
            FileSystem::Tmpfs => i64::MAX,
            FileSystem::Ext4 => 100_000,
        }
    }

    /// The flags of a transfer; ext4 has some that tmpfs has not.
    fn rw_flags(&mut self) -> RwFlags {
        let common = self.some_of(&[1, 2, 4, 0x10, 0x20]);
        let others = match self.file_system {
            FileSystem::Tmpfs if self.rng.chance(20) => 1 << self.rng.below(12),
            _ => 0,
        };
        RwFlags(common | others)
    }

    /// Reads a directory, or seeks in it.
    fn read_dir(&mut self, fd: Fd) -> Op {
        /// The position behind all entries.
        const END: i64 = i32::MAX as i64;
        let ext4 = self.file_system == FileSystem::Ext4;
        match self.rng.below(10) {
            // On ext4 its position at the end of a directory is too far to read from.
            n if n < 2 || ext4 => Op::Getdents { fd, room: Room::of(65536) },
            2..6 => Op::Getdents { fd, room: self.room(&[24, 48, 72, 100, 200, 10, 0]) },
            _ => {
                let near = 3 + self.rng.below(12) as i64;
                let far = *self.rng.pick(&[0, 1, 2, END - 1, END, END + 1, 1 << 40, i64::MAX, -1, i64::MIN]);
                let offset = Int(if self.rng.chance(70) { near } else { far });
                let whence = Whence(if self.rng.chance(70) { 0 } else { self.rng.below(6) as u64 });
                Op::Lseek { fd, offset, whence }
            }
        }
    }

    /// A transfer through several buffers.
    fn vectored(&mut self, fd: Fd) -> Op {
        let pieces = 2 + self.rng.below(2);
        let (reads, positioned) = (self.rng.chance(50), self.rng.chance(50));
        if self.rng.chance(50) {
            let offset = SplitOffset(if positioned { self.offset().0 } else { -1 });
            let flags = self.rw_flags();
            if reads {
                let buffers = Rooms((0..pieces).map(|_| self.room(&[0, 1, 3, 100, 5000])).collect());
                return Op::Preadv2 { fd, buffers, offset, flags };
            }
            let data = Pieces((0..pieces).map(|_| self.data()).collect());
            return Op::Pwritev2 { fd, data, offset, flags };
        }
        if reads {
            let buffers = Rooms((0..pieces).map(|_| self.room(&[0, 1, 3, 100, 5000])).collect());
            return match positioned {
                true => Op::Preadv { fd, buffers, offset: self.offset() },
                false => Op::Readv { fd, buffers },
            };
        }
        let data = Pieces((0..pieces).map(|_| self.data()).collect());
        match positioned {
            true => Op::Pwritev { fd, data, offset: self.offset() },
            false => Op::Writev { fd, data },
        }
    }

    /// Sends one file to another. From a file to itself the kernel copies what it has written a moment ago, or not, as the
    /// processor's copy goes.
    fn send(&mut self, from: Fd) -> Op {
        let to = self.fd();
        let path = |fd: &Fd| {
            self.open[self.task].iter().find(|known| Fd::Raw(known.fd) == *fd).map(|known| &known.path)
        };
        if path(&from).is_some() && path(&from) == path(&to) {
            return Op::DupfdQuery { fd: from, command: FcntlCommand(1027), other: to };
        }
        let offset =
            *self.rng.pick(&[None, None, Some(0), Some(1), Some(5000), Some(-1), Some(self.last_offset())]);
        let length = Int(*self.rng.pick(&[0, 1, 3, 100, 5000]));
        Op::Sendfile { to, from, offset: Offset(offset), length }
    }

    /// Asks an open file for one thing or other, or sets it.
    fn ask(&mut self, fd: Fd) -> Op {
        let tmpfs = self.file_system == FileSystem::Tmpfs;
        let command = |command: i32| FcntlCommand(command as u64);
        match self.rng.below(12) {
            0 => Op::DupfdQuery { fd, command: command(1027), other: self.fd() },
            1 => Op::Fcntl { fd, command: command(1028), arg: Int(0) },
            2 => Op::Fcntl { fd, command: command(11), arg: Int(0) },
            3 => Op::Fcntl { fd, command: command(10), arg: Int(*self.rng.pick(&[0, 10, 64, 65, -1])) },
            4 => Op::GetRwHint { fd },
            5 => Op::SetRwHint { fd, command: command(1036), hint: Hint(self.rng.below(8) as i64) },
            6 if tmpfs => Op::Ficlone { fd, command: IoctlCommand(0x4004_9409), from: self.fd() },
            7 if tmpfs => Op::Fioqsize { fd },
            8 if tmpfs => Op::Fsgetxattr { fd },
            9 if tmpfs => {
                let attr = self.file_attr();
                let xflags = XFlags(attr.xflags.0 & u64::from(u32::MAX));
                Op::Fssetxattr { fd, attr: Fsxattr(Attributes { xflags, ..attr }) }
            }
            10 if tmpfs => {
                let (dirfd, path) = self.at(Want::Any);
                let flags = self.at_flags(&[libc::AT_SYMLINK_NOFOLLOW as u64, libc::AT_EMPTY_PATH as u64]);
                if self.rng.chance(40) {
                    return Op::FileGetattr { dirfd, path, size: Int(24), flags };
                }
                Op::FileSetattr { dirfd, path, attr: self.file_attr(), size: Int(24), flags }
            }
            _ => Op::Fionread { fd },
        }
    }

    /// An object by handle. Those of ext4 are longer, and tell more.
    fn handle(&mut self) -> Op {
        let (dirfd, path) = self.at(Want::Any);
        let mut at_flags =
            self.at_flags(&[libc::AT_SYMLINK_FOLLOW as u64, libc::AT_EMPTY_PATH as u64, 1, 0x200]);
        if self.file_system == FileSystem::Ext4 {
            // AT_HANDLE_CONNECTABLE: ext4 can, tmpfs cannot.
            at_flags.0 &= !2;
        }
        let mount = if self.rng.chance(50) { Fd::CWD } else { self.fd() };
        if self.file_system == FileSystem::Tmpfs && self.rng.chance(20) {
            let bytes = Int(*self.rng.pick(&[128, 12, 16, 11, 0, 129]));
            return Op::NameToHandleAt { dirfd, path, bytes, flags: at_flags };
        }
        let flags = OpenFlags(self.open_flags());
        if self.rng.chance(10) {
            let bytes = vec![0; *self.rng.pick(&[0, 4, 12, 128])];
            let handle = Handle { kind: *self.rng.pick(&[1, 0x2_0001, 0x4_0001, -1]), bytes, told: None };
            return Op::OpenByHandleAt { mount, handle, flags };
        }
        let kinds: &[i64] = if self.file_system == FileSystem::Tmpfs {
            &[0, 0, 0, 0x1_0000, 0x2_0000, 0x4_0000]
        } else {
            &[0]
        };
        Op::Reopen { dirfd, path, at_flags, mount, kind: Int(*self.rng.pick(kinds)), flags }
    }

    /// Attributes, of which most are none of tmpfs's.
    fn file_attr(&mut self) -> Attributes {
        let flags =
            if self.rng.chance(70) { self.some_of(&[8, 0x10, 0x40, 0x80]) } else { 1 << self.rng.below(33) };
        let mut odd = || if self.rng.chance(5) { 5 } else { 0 };
        Attributes { xflags: XFlags(flags), extsize: odd(), projid: odd(), cowextsize: odd() }
    }

    /// A lock that nobody waits for.
    fn lock(&mut self, fd: Fd) -> Op {
        const NB: u64 = 4;
        if self.rng.chance(30) {
            return Op::Flock { fd, operation: FlockOperation(*self.rng.pick(&[1, 1, 2, 2, 8, 3, 0]) | NB) };
        }
        let lock = LockRange {
            kind: LockKind(*self.rng.pick(&[0, 0, 1, 1, 1, 2, 2, 3])),
            whence: Whence(*self.rng.pick(&[0, 0, 0, 1, 2, 3])),
            start: *self.rng.pick(&[0, 0, 1, 5, 10, 4096, -1, i64::MAX]),
            len: *self.rng.pick(&[0, 0, 1, 5, 10, -1, -5, i64::MAX]),
            pid: *self.rng.pick(&[0, 0, 0, 0, 0, 1]),
        };
        let ofd = self.rng.chance(50);
        if self.rng.chance(30) {
            return Op::Getlk { fd, command: LockCommand(if ofd { 36 } else { 5 }), lock };
        }
        Op::Setlk { fd, command: LockCommand(if ofd { 37 } else { 6 }), lock }
    }

    fn copy(&mut self, from: Fd) -> Op {
        let offsets = [None, None, Some(0), Some(1), Some(5000), Some(-1)];
        Op::CopyFileRange {
            from,
            from_offset: Offset(*self.rng.pick(&offsets)),
            to: self.fd(),
            to_offset: Offset(*self.rng.pick(&offsets)),
            length: Int(*self.rng.pick(&[0, 1, 3, 100, 5000])),
            flags: Int(*self.rng.pick(&[0, 0, 0, 0, 1])),
        }
    }

    fn allocate(&mut self, fd: Fd) -> Op {
        // ext4 knows more modes, and holds RLIMIT_FSIZE against a size only if that grows.
        let modes: &[u64] = match self.file_system {
            FileSystem::Tmpfs => &[0, 0, 1, 3, 3, 2, 8, 0x10, 0x20],
            FileSystem::Ext4 => &[0, 0, 3, 3, 2],
        };
        Op::Fallocate {
            fd,
            mode: FallocateMode(*self.rng.pick(modes)),
            offset: Int(*self.rng.pick(&[0, 0, 1, 4095, 4096, 10_000, -1])),
            length: Int(*self.rng.pick(&[1, 100, 4096, 5000, 9000, 0, -1])),
        }
    }

    fn tree_op(&mut self) -> Op {
        match self.rng.below(24) {
            0..3 => Op::Mkdir { path: self.path(Want::New), mode: self.mode() },
            3 => {
                let (dirfd, path) = self.at(Want::New);
                Op::Mkdirat { dirfd, path, mode: self.mode() }
            }
            4 | 5 => {
                let kinds = [0, 0o010000, 0o100000, 0o140000, 0o020000, 0o060000, 0o040000, 0o120000];
                let mode = Mode(*self.rng.pick(&kinds) | self.mode().0);
                let dev = *self.rng.pick(&[Dev { major: 0, minor: 0 }, Dev { major: 60, minor: 0 }]);
                if self.rng.chance(30) {
                    let (dirfd, path) = self.at(Want::New);
                    return Op::Mknodat { dirfd, path, mode, dev };
                }
                Op::Mknod { path: self.path(Want::New), mode, dev }
            }
            6 | 7 => Op::Symlink { target: Mem::Bytes(self.link_body()), path: self.path(Want::New) },
            8 => {
                let (dirfd, path) = self.at(Want::New);
                Op::Symlinkat { target: Mem::Bytes(self.link_body()), dirfd, path }
            }
            9 | 10 => Op::Link { old: self.path(Want::File), new: self.path(Want::New) },
            11 => {
                let flags = self.at_flags(&[libc::AT_SYMLINK_FOLLOW as u64, libc::AT_EMPTY_PATH as u64]);
                let (olddirfd, old) = self.at(Want::Any);
                let (newdirfd, new) = self.at(Want::New);
                Op::Linkat { olddirfd, old, newdirfd, new, flags }
            }
            12 | 13 => {
                let want = if self.rng.chance(60) { Want::File } else { Want::Any };
                Op::Unlink { path: self.path(want) }
            }
            14 => {
                let flags = self.at_flags(&[libc::AT_REMOVEDIR as u64]);
                let want = if flags.0 == 0 { Want::File } else { Want::Dir };
                let (dirfd, path) = self.at(want);
                Op::Unlinkat { dirfd, path, flags }
            }
            15 | 16 => Op::Rmdir { path: self.path(Want::Dir) },
            17..20 => Op::Rename { old: self.path(Want::Any), new: self.target() },
            _ => {
                // Where a rename fails that was to leave a whiteout, ext4 has stamped the directory already.
                let flags: &[u64] = match self.file_system {
                    FileSystem::Tmpfs => &[0, 1, 2, 2, 4, 5, 3],
                    FileSystem::Ext4 => &[0, 1, 2, 2, 3],
                };
                let flags = RenameFlags(*self.rng.pick(flags));
                let (olddirfd, old) = self.at(Want::Any);
                let (newdirfd, new) = self.at(if flags.0 & 2 == 0 { Want::New } else { Want::Any });
                if flags.0 == 0 {
                    return Op::Renameat { olddirfd, old, newdirfd, new };
                }
                Op::Renameat2 { olddirfd, old, newdirfd, new, flags }
            }
        }
    }

    /// Where something is renamed to: a new name or an old one.
    fn target(&mut self) -> Mem {
        let want = if self.rng.chance(60) { Want::New } else { Want::Any };
        self.path(want)
    }

    fn attribute(&mut self) -> Op {
        const BOTH: [u64; 2] = [libc::AT_SYMLINK_NOFOLLOW as u64, libc::AT_EMPTY_PATH as u64];
        let (dirfd, at) = self.at(Want::Any);
        let (path, fd) = (self.path(Want::Any), self.fd());
        let (uid, gid) = (self.uid(), self.gid());
        match self.rng.below(12) {
            0..3 => Op::Chmod { path, mode: self.mode() },
            3 if self.rng.chance(60) => Op::Fchmod { fd, mode: self.mode() },
            3 => Op::Fchmodat { dirfd, path: at, mode: self.mode() },
            4 => Op::Fchmodat2 { dirfd, path: at, mode: self.mode(), flags: self.at_flags(&BOTH) },
            5 | 6 => Op::Chown { path, uid, gid },
            7 => Op::Lchown { path, uid, gid },
            8 => Op::Fchown { fd, uid, gid },
            9 => Op::Fchownat { dirfd, path: at, uid, gid, flags: self.at_flags(&BOTH) },
            _ => Op::Utimensat { dirfd, path: at, times: self.times(), flags: self.at_flags(&BOTH) },
        }
    }

    fn xattr(&mut self) -> Op {
        let bytes = self.xattr_name();
        let value = self.xattr_value(&bytes);
        let want = if bytes.ends_with(b"default") && self.rng.chance(80) { Want::Dir } else { Want::Any };
        let name = Mem::Bytes(bytes);
        let flags = XattrFlags(*self.rng.pick(&[0, 0, 0, 1, 2, 3, 4]));
        let room = self.room(&[65536, 65536, 65536, 0, 3, 28, 44]);
        let (path, fd) = (self.path(want), self.fd());
        if self.rng.chance(25) {
            return self.xattrat(want, name, value, flags);
        }
        match self.rng.below(16) {
            0..5 => Op::Setxattr { path, name, value, flags },
            5 => Op::Lsetxattr { path, name, value, flags },
            6 => Op::Fsetxattr { fd, name, value, flags },
            7 | 8 => Op::Getxattr { path, name, room },
            9 => Op::Lgetxattr { path, name, room },
            10 => Op::Fgetxattr { fd, name, room },
            11 if self.rng.chance(50) => Op::Llistxattr { path, room },
            11 => Op::Listxattr { path, room },
            12 => Op::Flistxattr { fd, room },
            // Where there is none to take away, ext4 does nothing, tmpfs strips the set-group-id bit.
            _ if self.file_system == FileSystem::Ext4 && name.bytes() == Some(b"system.posix_acl_access") => {
                Op::Listxattr { path, room }
            }
            13 => Op::Removexattr { path, name },
            14 => Op::Fremovexattr { fd, name },
            _ => Op::Lremovexattr { path, name },
        }
    }

    fn xattrat(&mut self, want: Want, name: Mem, value: Data, flags: XattrFlags) -> Op {
        let (dirfd, path) = self.at(want);
        let at_flags = self.at_flags(&[libc::AT_SYMLINK_NOFOLLOW as u64, libc::AT_EMPTY_PATH as u64]);
        let size = *self.rng.pick(&[65536, 65536, 0, 3, 28]);
        let removes =
            self.file_system == FileSystem::Tmpfs || name.bytes() != Some(b"system.posix_acl_access");
        match self.rng.below(6) {
            0..3 => {
                let args = XattrArgs { value: value.bytes, flags, usize: 16, filler: 0 };
                Op::Setxattrat { dirfd, path, at_flags, name, args }
            }
            3 => {
                let args = XattrRoom { size, ..XattrRoom::default() };
                Op::Getxattrat { dirfd, path, at_flags, name, args }
            }
            4 if removes => Op::Removexattrat { dirfd, path, at_flags, name },
            _ => Op::Listxattrat { dirfd, path, at_flags, room: Room::of(i64::from(size)) },
        }
    }

    fn surroundings(&mut self) -> Op {
        match self.rng.below(12) {
            0..4 => Op::Chdir { path: self.path(Want::Dir) },
            4 | 5 => Op::Fchdir { fd: self.fd() },
            6 if self.rng.chance(30) => Op::Chroot { path: self.path(Want::Dir) },
            7 | 8 => Op::Umask { mask: self.mode() },
            9 if self.rng.chance(40) => {
                let child = Name(format!("t{}", self.tasks));
                // Sharing nothing, what CLONE_FS shares, descriptors, both.
                let flags = CloneFlags(*self.rng.pick(&[0, 0, 0, 0x200, 0x400, 0x600]));
                // The host's side can fork so often.
                match self.tasks < self.unforked + FORKS {
                    true if self.rng.chance(20) => Op::Thread { child },
                    // Not where it has threads.
                    true if !self.threaded[self.task] => Op::Fork { child, flags },
                    _ => Op::Getgroups {},
                }
            }
            10 if self.rng.chance(20) => {
                let (resource, soft) =
                    *self.rng.pick(&[(1, 100), (1, 5000), (1, u64::MAX), (7, 3), (7, 8), (7, 1024)]);
                // The host's side needs some descriptors of its own.
                let hard = if resource == 1 { [100, 6000, u64::MAX] } else { [2000, 3000, 4000] };
                let hard = self.rng.chance(30).then(|| *self.rng.pick(&hard));
                let (resource, soft, hard) = (Resource(resource), Limit(Some(soft)), Limit(hard));
                Op::Setrlimit { resource, soft, hard }
            }
            // Of the others, systems start with their own.
            10 if self.rng.chance(10) => Op::Getrlimit { resource: Resource(1) },
            _ => Op::Getcwd { room: self.room(&[4096, 4096, 4096, 2, 1, 3, 0]) },
        }
    }

    /// A random choice among these flags, each with one chance in four.
    fn some_of(&mut self, flags: &[u64]) -> u64 {
        flags.iter().filter(|_| self.rng.chance(25)).fold(0, |all, flag| all | flag)
    }

    fn execute(&mut self) -> Op {
        if self.threaded[self.task] {
            return Op::Getgroups {};
        }
        let argv = Vector::Strings(vec![Mem::Bytes(b"x".to_vec()), Mem::Bytes(b"y".to_vec())]);
        let envp = Vector::default();
        if self.rng.chance(50) {
            return Op::Execve { path: self.path(Want::File), argv, envp };
        }
        // No system call.
        if !self.raw && self.rng.chance(20) {
            let file = Mem::Bytes(self.name());
            let search = *self.rng.pick(&["/", "/:/a", "/a::/b", "/b:/c/d:/", ""]);
            let search = Mem::Bytes(search.as_bytes().to_vec());
            // Of glibc and of musl.
            let libc = CLibrary(self.rng.below(2) as u64);
            return Op::Execvp { file, argv, search, libc };
        }
        let flags = self.at_flags(&[libc::AT_SYMLINK_NOFOLLOW as u64, libc::AT_EMPTY_PATH as u64, 0x10000]);
        let (dirfd, path) = self.at(Want::File);
        Op::Execveat { dirfd, path, argv, envp, flags }
    }

    /// What prctl keeps of a process besides. Opening files of `/proc` makes the host's dumpable; its first name is the
    /// runner's.
    fn process(&mut self) -> Op {
        match self.rng.below(3) {
            0 if !self.namespaces => Op::GetDumpable {},
            1 => Op::SetDumpable { on: Int(self.rng.below(3) as i64) },
            _ => {
                self.next.push_back(Op::GetName {});
                Op::SetName { name: Mem::Bytes(self.name()) }
            }
        }
    }

    fn credential(&mut self) -> Op {
        match self.rng.below(15) {
            0 => Op::Setuid { uid: self.uid() },
            1 => Op::Setgid { gid: self.gid() },
            2 => Op::Setreuid { ruid: self.uid(), euid: self.uid() },
            3 => Op::Setresuid { ruid: self.uid(), euid: self.uid(), suid: self.uid() },
            4 => Op::Setresgid { rgid: self.gid(), egid: self.gid(), sgid: self.gid() },
            5 => Op::Setregid { rgid: self.gid(), egid: self.gid() },
            6 | 7 => Op::Setfsuid { uid: self.uid() },
            8 => Op::Setfsgid { gid: self.gid() },
            9 => {
                let groups = (0..self.rng.below(3)).map(|_| *self.rng.pick(&GROUPS)).collect();
                Op::Setgroups { groups: IdList(groups) }
            }
            10 => match self.rng.below(4) {
                0 => Op::Getresuid { out: ThreeIds },
                1 => Op::Getresgid { out: ThreeIds },
                2 => Op::Getgroups {},
                _ => Op::GetSecurebits {},
            },
            11 => Op::Capget { out: CapRoom },
            12 => self.process(),
            _ => self.capability(),
        }
    }

    fn capability(&mut self) -> Op {
        let set = |rng: &mut Rng| match rng.below(3) {
            0 => CapSet(0),
            1 => CapSet(*rng.pick(&CAPS)),
            _ => CapSet(*rng.pick(&CAPS) | *rng.pick(&CAPS)),
        };
        let cap = Capability(*self.rng.pick(&[0, 1, 2, 3, 4, 6, 7, 8, 21, 63]));
        match self.rng.below(10) {
            0..3 => {
                let permitted = set(&mut self.rng);
                let effective = if self.rng.chance(70) { permitted } else { set(&mut self.rng) };
                let inheritable = set(&mut self.rng);
                Op::Capset { sets: CapSets { effective, permitted, inheritable } }
            }
            3 => Op::SetSecurebits {
                bits: Securebits(*self.rng.pick(&[0, 1, 4, 0x10, 0x40, 0x100, 5, 0xc, 0x1000])),
            },
            4 => Op::SetKeepcaps { on: Int(self.rng.below(3) as i64) },
            5 => Op::CapbsetDrop { cap },
            6 => Op::CapbsetRead { cap },
            7 => Op::AmbientRaise { cap },
            8 => match self.rng.below(3) {
                0 => Op::AmbientLower { cap },
                1 => Op::AmbientClear {},
                _ => Op::SetNoNewPrivs {},
            },
            _ => Op::AmbientIsSet { cap },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use rcuwalk::WalkMode;
    use rcuwalk::perm::Protected;

    /// Every other one of them is for the raw door.
    fn program(seed: u64) -> Program {
        let engine = Engine::for_fuzzing(WalkMode::Direct, Protected::default());
        let raw = seed % 2 == 1;
        let mut world: Box<dyn World> = match raw {
            true => Box::new(crate::door::fresh_world(&engine).expect("a world")),
            false => Box::new(engine.fresh_world().expect("a world")),
        };
        let mut generator = Generator::new(seed, FileSystem::Tmpfs, raw);
        generator.program(&mut *world, u64::MAX >> 23).expect("a program").0
    }

    #[test]
    fn a_seed_gives_one_program() {
        for seed in 0..20 {
            assert_eq!(program(seed), program(seed));
        }
        assert_ne!(program(1), program(2));
    }

    #[test]
    fn all_calls_are_made_but_these() {
        let mut never: Vec<&str> = Op::ALL.iter().map(|op| op.name).collect();
        for seed in 0..400 {
            let program = program(seed);
            never.retain(|name| program.steps.iter().all(|(_, op)| op.name() != *name));
        }
        // creat blocks on a FIFO; what reaches a disk, and when, shows in no answer; settings are the whole machine's.
        assert_eq!(never, ["creat", "fsync", "fdatasync", "syncfs", "sleep", "sysctl"]);
    }

    #[test]
    fn no_open_of_a_program_can_block() {
        for seed in 0..50 {
            for (_, op) in program(seed).steps {
                let flags = match op {
                    Op::Open { flags, .. } | Op::Openat { flags, .. } => flags.0,
                    Op::Openat2 { how, .. } => how.flags.0,
                    _ => continue,
                };
                assert!(flags & libc::O_NONBLOCK as u64 != 0);
            }
        }
    }
}
