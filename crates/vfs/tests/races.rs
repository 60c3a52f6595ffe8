//! Races replayed by hand: a walk is stopped half-way, something changes, the walk goes on.
//!
//! The pause point is the clock. A walk that follows a link whose access time is due asks for the time, holding
//! references and no lock; the clock of these tests then makes the change. What the walk has behind it stands, what it
//! has before it is found as it is then.
//!
//! A walk that stamps a link is not remembered in the whole-path table. Paths that are, are asked for before each change,
//! right after it, and when the walk is through.

mod setfacl;

use rcuwalk::uapi::*;
use rcuwalk::{Cred, Errno, OpenHow, PathTableOptions, Task, Timespec, Vfs, WalkMode};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

type Change = Box<dyn FnOnce() + Send>;

/// The user who asks.
const USER: u32 = 1000;

/// Paths without a link whose following would leave a stamp.
const REMEMBERED: [&str; 8] = ["/d", "/d/s", "/d/s/f", "/d/t/f", "/d/s/none", "/m/f", "/e/s/f", "/p/d/s/f"];

/// Asks for each path twice, so that the table knows it, and makes sure that it answers as the walk does.
fn remember(user: &Task, mode: WalkMode) {
    let ask = || REMEMBERED.map(|path| user.stat(path.as_bytes()));
    let answers = [ask(), ask()];
    user.vfs().set_walk_mode(WalkMode::RefOnly);
    let walked = ask();
    user.vfs().set_walk_mode(mode);
    for answers in answers {
        for (i, answer) in answers.iter().enumerate() {
            assert_eq!(*answer, walked[i], "{} in {mode:?}", REMEMBERED[i]);
        }
    }
}

/// A tree with a link on the way, and what is to happen when it is followed.
///
/// `/d/l` leads to `s`; `/d/s/f`, `/d/t/f` and `/m/f` are files.
struct Stage {
    vfs: Vfs,
    mode: WalkMode,
    root: Task,
    user: Task,
    pending: Arc<Mutex<Option<Change>>>,
}

impl Stage {
    fn new(mode: WalkMode) -> Stage {
        let pending: Arc<Mutex<Option<Change>>> = Arc::default();
        let (due, now) = (Arc::clone(&pending), AtomicI64::new(1_000_000));
        let clock = move || {
            let change = due.lock().unwrap().take();
            if let Some(change) = change {
                change();
            }
            Timespec { sec: now.fetch_add(1, Ordering::Relaxed), nsec: 0 }
        };
        let table = PathTableOptions::default().with_entries(1 << 8).with_at_first_sight(true);
        let vfs = Vfs::builder().clock(Box::new(clock)).path_table(table).build().unwrap();
        vfs.set_walk_mode(mode);
        let (root, user) = (vfs.task(Cred::root()), vfs.task(Cred::user(USER, USER, &[])));
        for dir in ["/d", "/d/s", "/d/t", "/m"] {
            root.mkdir(dir.as_bytes(), 0o755).unwrap();
        }
        for file in ["/d/s/f", "/d/t/f", "/m/f"] {
            touch(&root, file);
        }
        root.symlink(b"s", b"/d/l").unwrap();
        Stage { vfs, mode, root, user, pending }
    }

    fn ino(&self, path: &str) -> u64 {
        self.root.stat(path.as_bytes()).unwrap().ino
    }

    /// Lets `change` happen in the middle of `walk`, right before the body of the link is walked.
    fn during<R>(&self, change: impl FnOnce(&Task) + Send + 'static, walk: impl FnOnce(&Stage) -> R) -> R {
        let (root, user, mode) = (self.vfs.task(Cred::root()), self.user.fork(), self.mode);
        let before = self.vfs.stats().paths_remembered;
        remember(&self.user, mode);
        let known = self.vfs.stats().paths_remembered - before;
        assert!(known >= 4 || mode != WalkMode::Direct, "{known} paths remembered");
        *self.pending.lock().unwrap() = Some(Box::new(move || {
            change(&root);
            remember(&user, mode);
        }));
        let result = walk(self);
        assert!(self.pending.lock().unwrap().is_none(), "the walk did not come to its pause point");
        remember(&self.user, mode);
        result
    }

    /// What the user's stat of `/d/l/f` gives if `change` happens half-way.
    fn stat_during(&self, change: impl FnOnce(&Task) + Send + 'static) -> Result<u64, Errno> {
        self.during(change, |stage| stage.user.stat(b"/d/l/f").map(|stat| stat.ino))
    }
}

fn touch(task: &Task, path: &str) {
    task.close(task.creat(path.as_bytes(), 0o644).unwrap()).unwrap();
}

/// Runs a test with each way to walk.
fn each(test: impl Fn(&Stage)) {
    for mode in [WalkMode::Direct, WalkMode::Rcu, WalkMode::RefOnly] {
        test(&Stage::new(mode));
    }
}

#[test]
fn rename_against_walk() {
    each(|stage| {
        let f = stage.ino("/d/s/f");
        // Where the walk is has another name now, and is the same place.
        assert_eq!(stage.stat_during(|root| root.rename(b"/d", b"/e").unwrap()), Ok(f));
        assert_eq!(stage.user.stat(b"/d/l/f"), Err(Errno::ENOENT));
    });
    each(|stage| {
        assert_eq!(stage.stat_during(|root| root.rename(b"/d/s", b"/d/u").unwrap()), Err(Errno::ENOENT));
    });
    each(|stage| {
        let t = stage.ino("/d/t/f");
        let exchange =
            |root: &Task| root.renameat2(AT_FDCWD, b"/d/s", AT_FDCWD, b"/d/t", RENAME_EXCHANGE).unwrap();
        assert_eq!(stage.stat_during(exchange), Ok(t));
    });
    each(|stage| {
        let old = stage.ino("/d/s/f");
        let replaced = stage.stat_during(|root| {
            root.rename(b"/d/s", b"/u").unwrap();
            root.mkdir(b"/d/s", 0o755).unwrap();
            touch(root, "/d/s/f");
        });
        assert_eq!(replaced, Ok(stage.ino("/d/s/f")));
        assert_ne!(replaced, Ok(old));
    });
}

#[test]
fn unlink_against_open() {
    each(|stage| {
        let open = |stage: &Stage| stage.user.open(b"/d/l/f", O_RDONLY, 0);
        assert_eq!(stage.during(|root| root.unlink(b"/d/s/f").unwrap(), open), Err(Errno::ENOENT));
    });
    each(|stage| {
        let t = stage.ino("/d/t/f");
        let open = |stage: &Stage| stage.user.open(b"/d/l/f", O_RDONLY, 0).unwrap();
        let fd = stage.during(|root| root.rename(b"/d/t/f", b"/d/s/f").unwrap(), open);
        let stat = stage.user.fstat(fd).unwrap();
        assert_eq!((stat.ino, stat.nlink), (t, 1));
        stage.root.unlink(b"/d/s/f").unwrap();
        assert_eq!(stage.user.fstat(fd).unwrap().nlink, 0);
    });
    each(|stage| {
        let old = stage.ino("/d/s/f");
        let open = |stage: &Stage| stage.root.open(b"/d/l/f", O_CREAT | O_RDWR, 0o600).unwrap();
        let fd = stage.during(|root| root.unlink(b"/d/s/f").unwrap(), open);
        assert_ne!(stage.root.fstat(fd).unwrap().ino, old);
        assert_eq!(stage.root.fstat(fd).unwrap().ino, stage.ino("/d/s/f"));
    });
    each(|stage| {
        // The directory itself goes while the walk is in it: nothing is found or made there any more.
        let remove = |root: &Task| {
            for path in ["/d/s/f", "/d/t/f", "/d/l"] {
                root.unlink(path.as_bytes()).unwrap();
            }
            for path in ["/d/s", "/d/t", "/d"] {
                root.rmdir(path.as_bytes()).unwrap();
            }
        };
        let open = |stage: &Stage| stage.root.open(b"/d/l", O_CREAT | O_RDWR, 0o600);
        assert_eq!(stage.during(remove, open), Err(Errno::ENOENT));
    });
}

#[test]
fn chmod_against_walk() {
    for path in ["/d", "/d/s"] {
        each(|stage| {
            let close = |root: &Task| root.chmod(path.as_bytes(), 0o700).unwrap();
            assert_eq!(stage.stat_during(close), Err(Errno::EACCES), "{path}");
        });
    }
    each(|stage| {
        stage.root.chmod(b"/d/s", 0o700).unwrap();
        let f = stage.ino("/d/s/f");
        assert_eq!(stage.stat_during(|root| root.chmod(b"/d/s", 0o755).unwrap()), Ok(f));
    });
    each(|stage| {
        // The way in is closed behind the walk, which does not go there again.
        let f = stage.ino("/d/s/f");
        let close = |root: &Task| {
            root.mkdir(b"/p", 0o700).unwrap();
            root.rename(b"/d", b"/p/d").unwrap();
        };
        assert_eq!(stage.stat_during(close), Ok(f));
        assert_eq!(stage.user.stat(b"/p/d/s/f"), Err(Errno::EACCES));
    });
    each(|stage| {
        let open = |stage: &Stage| stage.user.open(b"/d/l/f", O_RDONLY, 0);
        let close = |root: &Task| root.chmod(b"/d/s/f", 0o600).unwrap();
        assert_eq!(stage.during(close, open), Err(Errno::EACCES));
    });
}

#[test]
fn setfacl_against_walk() {
    for path in [b"/d".as_slice(), b"/d/s"] {
        each(|stage| {
            let close = move |root: &Task| setfacl::keep_out(root, path, USER).unwrap();
            assert_eq!(stage.stat_during(close), Err(Errno::EACCES));
        });
        each(|stage| {
            setfacl::keep_out(&stage.root, path, USER).unwrap();
            assert_eq!(stage.user.stat(b"/d/s/f"), Err(Errno::EACCES));
            setfacl::clear(&stage.root, path).unwrap();
            let f = stage.ino("/d/s/f");
            // Its mode closes the directory to everybody, which the ACL does not to the user.
            let narrow = move |root: &Task| setfacl::let_in(root, path, USER).unwrap();
            assert_eq!(stage.stat_during(narrow), Ok(f));
        });
    }
    each(|stage| {
        setfacl::keep_out(&stage.root, b"/d/s", USER).unwrap();
        let f = stage.ino("/d/s/f");
        let open = |root: &Task| setfacl::clear(root, b"/d/s").unwrap();
        assert_eq!(stage.stat_during(open), Ok(f));
    });
    each(|stage| {
        setfacl::let_in(&stage.root, b"/d/s", USER).unwrap();
        let close = |root: &Task| setfacl::clear(root, b"/d/s").unwrap();
        assert_eq!(stage.stat_during(close), Err(Errno::EACCES), "the mode is what the ACL left");
    });
}

#[test]
fn mount_against_walk() {
    const BIND: u64 = MS_BIND;
    let bind = |at: &'static [u8]| move |root: &Task| root.mount(b"/m", at, b"", BIND, b"").unwrap();
    each(|stage| {
        let m = stage.ino("/m/f");
        assert_eq!(stage.stat_during(bind(b"/d/s")), Ok(m));
    });
    each(|stage| {
        // The walk is below already.
        let f = stage.ino("/d/s/f");
        assert_eq!(stage.stat_during(bind(b"/d")), Ok(f));
        assert_eq!(stage.user.stat(b"/d/l/f"), Err(Errno::ENOENT));
    });
    each(|stage| {
        let entries = stage.vfs.stats().entries;
        stage.root.mkdir(b"/n", 0o755).unwrap();
        stage.root.mount(b"/d", b"/n", b"", BIND, b"").unwrap();
        let f = stage.ino("/d/s/f");
        let walk = |stage: &Stage| stage.user.stat(b"/n/l/f").map(|stat| stat.ino);
        // The mount goes while the walk is in it, which holds it until it is through.
        let unmount = |root: &Task| root.umount2(b"/n", MNT_DETACH).unwrap();
        assert_eq!(stage.during(unmount, walk), Ok(f));
        assert_eq!(stage.user.stat(b"/n/l/f"), Err(Errno::ENOENT));
        stage.root.rmdir(b"/n").unwrap();
        assert_eq!(stage.vfs.stats().entries, entries);
    });
    each(|stage| {
        stage.root.mkdir(b"/n", 0o755).unwrap();
        stage.root.mount(b"/d", b"/n", b"", BIND, b"").unwrap();
        let walk = |stage: &Stage| stage.root.open(b"/n/l/f", O_WRONLY, 0);
        let freeze = |root: &Task| root.mount(b"", b"/n", b"", MS_REMOUNT | BIND | MS_RDONLY, b"").unwrap();
        assert_eq!(stage.during(freeze, walk), Err(Errno::EROFS));
    });
}

/// What moves while a scoped walk goes on may not take it out of its scope.
#[test]
fn scoped_walk_against_changes() {
    fn openat2(path: &str, scope: u64, change: impl Fn(&Task) + Copy + Send + 'static, answers: &[Errno]) {
        each(|stage| {
            stage.root.symlink(b".", b"/d/s/here").unwrap();
            let dir = stage.root.open(b"/d", O_PATH, 0).unwrap();
            let how = OpenHow::new(O_PATH).with_resolve(scope);
            let open = |stage: &Stage| stage.root.openat2(dir, path.as_bytes(), &how);
            let opened = stage.during(change, open);
            assert_eq!(opened.err().as_slice(), answers, "{path}");
        });
    }
    for scope in [RESOLVE_BENEATH, RESOLVE_IN_ROOT] {
        openat2("s/here/f", scope, |root| root.rename(b"/d/s", b"/u").unwrap(), &[Errno::EXDEV]);
        openat2("s/here/f", scope, |root| root.rename(b"/d/s", b"/d/u").unwrap(), &[]);
        // Where `..` leads cannot be told while anything moves.
        openat2("s/here/../t", scope, |root| root.rename(b"/m", b"/n").unwrap(), &[Errno::EAGAIN]);
        let mount = |root: &Task| root.mount(b"/m", b"/m", b"", MS_BIND, b"").unwrap();
        openat2("s/here/../t", scope, mount, &[Errno::EAGAIN]);
    }
}
