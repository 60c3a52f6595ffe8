//! Calls about mounts and namespaces, and files of /proc.

use super::*;

impl Generator {
    /// The path of something that exists, but not of the root.
    pub(super) fn below_root(&mut self) -> Vec<u8> {
        let path = self.existing(if self.rng.0 & 7 == 0 { Want::File } else { Want::Dir });
        if path == b"/" { b"/a".to_vec() } else { path }
    }

    pub(super) fn mount(&mut self) -> Op {
        const BIND: u64 = 0x1000;
        const REC: u64 = 0x4000;
        let none = Mem::Bytes(Vec::new());
        let kind = if self.rng.chance(80) { Want::Dir } else { Want::File };
        let (source, target) = (self.path(kind), Mem::Bytes(self.below_root()));
        let mount = |source: Mem, flags: u64, fstype: &[u8], data: &[u8]| Op::Mount {
            source,
            target,
            fstype: Mem::Bytes(fstype.to_vec()),
            flags: MountFlags(flags),
            data: Mem::Bytes(data.to_vec()),
        };
        // What the first mount was mounted with, and where it comes from, is each world's own.
        if self.file_system == FileSystem::Tmpfs && self.rng.chance(8) {
            return self.statmount();
        }
        match self.rng.below(24) {
            20 | 21 => self.open_tree(),
            22 | 23 => self.move_mount(),
            0..7 => mount(source, BIND | self.some_of(&[REC]), b"", b""),
            7..11 => {
                // Read-only, nosuid, nodev, noexec, nosymfollow, noatime, nodiratime, strictatime.
                let flags = self.some_of(&[1, 2, 4, 8, 0x100, 0x400, 0x800, 1 << 24]);
                mount(none, BIND | 0x20 | flags, b"", b"")
            }
            11..13 => {
                let flags = self.some_of(&[1, 2, 4, 8]);
                mount(Mem::Bytes(b"none".to_vec()), flags, b"tmpfs", b"mode=0777")
            }
            13..17 => {
                // Without MNT_DETACH a task's root becomes read-only as a file system, which programs share on ext4.
                let flags: &[u64] = match self.file_system {
                    FileSystem::Tmpfs => &[0, 0, 2, 2, 4, 8, 10, 6],
                    FileSystem::Ext4 => &[2, 2, 10, 6],
                };
                let flags = *self.rng.pick(flags);
                // Not the root: without it little is left to compare.
                Op::Umount2 { target: Mem::Bytes(self.below_root()), flags: UmountFlags(flags) }
            }
            17 => {
                let propagation = *self.rng.pick(&[1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 20]);
                mount(none, propagation | self.some_of(&[REC]), b"", b"")
            }
            // On ext4 all programs share one file system, and what it suffers as a root.
            18 if self.file_system == FileSystem::Tmpfs && self.rng.chance(30) => {
                Op::PivotRoot { new_root: Mem::Bytes(self.below_root()), put_old: self.path(Want::Dir) }
            }
            18 => mount(source, 0x2000, b"", b""),
            _ => {
                let flags = self.some_of(&[1, 2, 4, 8, 0x80, 0x20_0000]);
                let cleared = self.some_of(&[1, 2, 4, 8, 0x70, 0x20_0000]);
                let attr = MountAttr {
                    set: MountAttributes(flags),
                    clr: MountAttributes(cleared),
                    propagation: MountFlags(0),
                    userns: Fd::Raw(0),
                    size: 32,
                };
                Op::MountSetattr { dirfd: Fd::CWD, path: self.path(Want::Dir), flags: AtFlags(0), attr }
            }
        }
    }

    fn statmount(&mut self) -> Op {
        let (dirfd, path) = self.at(Want::Dir);
        let id = *self.rng.pick(&[0, 0, 0, 0, -1, 5]);
        let of = MountRequest { dirfd, path, id, ..MountRequest::default() };
        if self.rng.chance(60) {
            let mask = StatmountMask(
                self.some_of(&[1, 2, 2, 4, 8, 0x10, 0x20, 0x40, 0x100, 0x1000, 0x2000, 0x4000]),
            );
            return Op::Statmount { of, mask, room: Int(65536), flags: Int(0) };
        }
        let (after, room) = (Mem::Null, Int(*self.rng.pick(&[1000, 1000, 3])));
        Op::Listmount { of, after, after_id: Int(0), room, flags: ListmountFlags(self.some_of(&[1])) }
    }

    pub(super) fn open_tree(&mut self) -> Op {
        let (dirfd, path) = self.at(Want::Dir);
        let flags = OpenTreeFlags(*self.rng.pick(&[1, 1, 1, 0x8001, 0x1001, 0x101, 0, 0x8000]));
        if flags.0 & 1 != 0 && self.rng.chance(20) {
            let attr = MountAttr {
                set: MountAttributes(self.some_of(&[1, 2, 4, 8])),
                clr: MountAttributes(0),
                propagation: MountFlags(0),
                userns: Fd::Raw(0),
                size: 32,
            };
            return Op::OpenTreeAttr { dirfd, path, flags, attr };
        }
        Op::OpenTree { dirfd, path, flags }
    }

    pub(super) fn move_mount(&mut self) -> Op {
        const EMPTY: u64 = 4;
        let to = Mem::Bytes(self.below_root());
        let flags = self.some_of(&[1, 0x10]);
        if self.rng.chance(60) {
            let (from_dirfd, from) = (self.fd(), Mem::Bytes(Vec::new()));
            let (to_dirfd, to) = if self.rng.chance(40) { self.at(Want::Dir) } else { (Fd::CWD, to) };
            let flags = MoveMountFlags(flags | EMPTY);
            return Op::MoveMount { from_dirfd, from, to_dirfd, to, flags };
        }
        let (from_dirfd, from) = self.at(Want::Dir);
        Op::MoveMount { from_dirfd, from, to_dirfd: Fd::CWD, to, flags: MoveMountFlags(flags) }
    }

    /// Begins with a shared mount, and a peer or a slave of it.
    pub(super) fn share(&mut self, root: usize) {
        const SHARED: u64 = 1 << 20;
        const SLAVE: u64 = 1 << 19;
        self.task = root;
        let [at, peer] = [self.below_root(), self.below_root()];
        let mount = |source: &[u8], target: &[u8], fstype: &[u8], flags: u64| Op::Mount {
            source: Mem::Bytes(source.to_vec()),
            target: Mem::Bytes(target.to_vec()),
            fstype: Mem::Bytes(fstype.to_vec()),
            flags: MountFlags(flags),
            data: Mem::Null,
        };
        let below =
            |name: &str| Op::Mkdir { path: Mem::Bytes([&at, name.as_bytes()].concat()), mode: Mode(0o777) };
        self.next.extend([
            mount(b"none", &at, b"tmpfs", 0),
            mount(b"", &at, b"", SHARED),
            below("/a"),
            below("/b"),
            below("/a/c"),
            mount(&at, &peer, b"", 0x1000),
        ]);
        if self.rng.chance(30) {
            self.next.push_back(mount(b"", &peer, b"", SLAVE));
        }
    }

    /// Begins with a user namespace for an idmapped mount.
    pub(super) fn open_userns(&mut self, root: usize) {
        self.task = root;
        let maps =
            [[(0, 0, 1), (1000, 1001, 2)], [(0, 10_000, 1), (1000, 1000, 2)], [(0, 1000, 1), (1000, 0, 1)]];
        let mut map = || IdMap(self.rng.pick(&maps).to_vec());
        let (uid_map, gid_map) = (map(), map());
        self.next.push_back(Op::OpenUserns { uid_map, gid_map });
    }

    /// Makes an idmapped mount of a copy with the user namespace `userns`, attaches it somewhere, and closes what stood
    /// for it all.
    pub(super) fn idmap(&mut self, userns: i32) {
        let tree = userns + 1;
        let empty = || Mem::Bytes(Vec::new());
        let attr = MountAttr {
            set: MountAttributes(0x10_0000),
            clr: MountAttributes(0),
            propagation: MountFlags(0),
            userns: Fd::Raw(userns),
            size: 32,
        };
        let (path, to) = (self.path(Want::Dir), Mem::Bytes(self.below_root()));
        self.next.extend([
            // The descriptor numbers are those that nothing between could have taken, most of the time.
            Op::OpenTree { dirfd: Fd::CWD, path, flags: OpenTreeFlags(1) },
            Op::MountSetattr {
                dirfd: Fd::Raw(tree),
                path: empty(),
                flags: AtFlags(libc::AT_EMPTY_PATH as u64),
                attr,
            },
            Op::Close { fd: Fd::Raw(userns) },
            Op::MoveMount {
                from_dirfd: Fd::Raw(tree),
                from: empty(),
                to_dirfd: Fd::CWD,
                to,
                flags: MoveMountFlags(4),
            },
        ]);
    }

    pub(super) fn namespace(&mut self) -> Op {
        match self.rng.below(10) {
            0 | 1 => return self.open_proc(),
            2..5 => {
                let nstype = *self.rng.pick(&[0, 0, 0x2_0000, 0x1000_0000]);
                let setns = |fd| Op::Setns { fd, nstype: UnshareFlags(nstype) };
                return self.proc_fd(true).map_or_else(|| self.open_proc(), setns);
            }
            5..8 => {
                let Some(fd) = self.proc_fd(false) else { return self.open_proc() };
                return self.write_proc(fd);
            }
            _ => {}
        }
        if self.unshared[self.task] {
            // Fails the second time.
            let map =
                |rng: &mut Rng| IdMap(vec![(0, *rng.pick(&IDS), 1), (5, 1001, *rng.pick(&[1, 2, 5000]))]);
            return Op::MapIds { uid_map: map(&mut self.rng), gid_map: map(&mut self.rng) };
        }
        self.unshared[self.task] = true;
        let flags = *self.rng.pick(&[0x1000_0000, 0x1000_0000, 0x1002_0000, 0x2_0000]);
        Op::Unshare { flags: UnshareFlags(flags) }
    }

    /// Opens a file of the task's own. Those to be written are the effective user's, whom the kernel asks as any other file's.
    pub(super) fn open_proc(&mut self) -> Op {
        let files = if self.own[self.task] { [0, 1, 2, 2, 3, 4] } else { [0, 0, 1, 1, 1, 1] };
        let file = *self.rng.pick(&files);
        Op::OpenProc { file: ProcFile(file), of: Name::default() }
    }

    /// A descriptor of a file of `/proc`, if there is one: a namespace, or one to be written.
    pub(super) fn proc_fd(&mut self, namespace: bool) -> Option<Fd> {
        let open: Vec<i32> = self.proc[self.task]
            .iter()
            .filter(|(_, file)| (*file < 2) == namespace)
            .map(|(fd, _)| *fd)
            .collect();
        if open.is_empty() { None } else { Some(Fd::Raw(*self.rng.pick(&open))) }
    }

    pub(super) fn write_proc(&mut self, fd: Fd) -> Op {
        let (id, group) = (*self.rng.pick(&IDS), *self.rng.pick(&GROUPS));
        let text = match self.rng.below(8) {
            0 => "deny".to_owned(),
            1 => "allow".to_owned(),
            2 => format!("0 {id} 1\n5 1001 2\n"),
            3 => format!("0 {group} 1\n1 {id}"),
            4 => format!("7 {group} 1"),
            _ => format!("0 {id} 1"),
        };
        Op::Write { fd, data: Data::of(text.into_bytes()) }
    }
}
