//! The engine itself under shuttle: a task walks while another changes what it walks through, switched at random at every
//! access to shared memory, and each answer is held against the moments of its call ([`history`]).
//!
//! Each race is run many times, with few switches and with many. It must have reached every answer that it was made for, since
//! a race that was never met proves nothing; and without each of the walk's checks (`RCUWALK_MUTANT`, which `cargo x mutants`
//! sets) some race must fail.
#![cfg(shuttle)]

mod history;
mod setfacl;

use history::{Answer, Ino, Object, Question, State, allowed};
use rcuwalk::uapi::*;
use rcuwalk::{Cred, Errno, MountOptions, PathTableOptions, Task, Timespec, Vfs, WalkMode};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

type Change = fn(&Task);

/// A tree, what changes in it, one thing after the other, and what another task asks meanwhile.
struct Race {
    name: &'static str,
    mode: WalkMode,
    /// Makes the tree, as root.
    tree: Change,
    changes: &'static [Change],
    /// Paths to be asked for in turn, as user 1000.
    questions: &'static [(Question, &'static str)],
    /// How many of them are asked as root, before root becomes that user.
    as_root: usize,
    /// The answers, all of them: the path, an arrow, and what was found, by the path that it had first.
    reached: &'static [&'static str],
}

/// A directory that nobody asks for, where the same tree can be seen once more with other mounts.
const ELSEWHERE: &str = "elsewhere";

/// The user who asks.
const USER: u32 = 1000;

/// A name that lives as long as the test.
fn name(bytes: &[u8]) -> &'static str {
    String::from_utf8(bytes.to_vec()).unwrap().leak()
}

fn split(path: &'static str) -> Vec<&'static str> {
    path.split('/').filter(|name| !name.is_empty()).collect()
}

fn vfs(mode: WalkMode) -> Vfs {
    let table = PathTableOptions::default().with_entries(8).with_at_first_sight(true);
    let clock = || Timespec { sec: 1_000_000, nsec: 0 };
    // Without access times, paths through links are remembered too.
    let mount = MountOptions::default().with_noatime(true);
    let builder = Vfs::builder().capacity(20).path_table(table).mount_options(mount);
    let vfs = builder.clock(Box::new(clock)).build().unwrap();
    vfs.set_walk_mode(mode);
    vfs
}

/// What there is, once nothing happens any more, and the path at which each object was found first.
#[derive(Clone, Default)]
struct Survey {
    states: Vec<State>,
    paths: BTreeMap<Ino, String>,
}

impl Survey {
    /// Adds a moment.
    fn look(&mut self, root: &Task) {
        let stat = root.stat(b"/").unwrap();
        // What is not to be found any more stays as it was.
        let objects = self.states.last().map(|state| state.objects.clone()).unwrap_or_default();
        let mut state = State { root: stat.ino, objects, mounts: BTreeMap::new() };
        self.add(root, "", &mut state);
        self.states.push(state);
    }

    fn add(&mut self, root: &Task, path: &str, state: &mut State) {
        let known_as = if path.is_empty() { "/" } else { path };
        let stat = root.lstat(known_as.as_bytes()).unwrap();
        self.paths.entry(stat.ino).or_insert_with(|| known_as.to_owned());
        let may = |mode| Survey::may(root, known_as.as_bytes(), mode);
        let object = match stat.mode & S_IFMT {
            S_IFLNK => {
                let body = root.readlink(path.as_bytes()).unwrap();
                Object::Link { absolute: body[0] == b'/', body: split(name(&body)) }
            }
            S_IFDIR => Object::Dir { open: may(R_OK | X_OK), names: self.entries(root, path, state) },
            _ => Object::File { open: may(R_OK) },
        };
        state.objects.insert(stat.ino, object);
    }

    /// Whether the user may do that to what root finds there.
    fn may(root: &Task, path: &[u8], mode: i32) -> bool {
        let mut user = root.thread();
        user.set_cred(Cred::user(USER, USER, &[]));
        let fd = root.open(path, O_PATH, 0).unwrap();
        let answer = user.faccessat2(fd, b"", mode, AT_EMPTY_PATH | AT_EACCESS);
        root.close(fd).unwrap();
        answer.is_ok()
    }

    fn entries(&mut self, root: &Task, path: &str, state: &mut State) -> BTreeMap<&'static str, Ino> {
        let fd = root.open(format!("{path}/").as_bytes(), O_RDONLY | O_DIRECTORY, 0).unwrap();
        let mut entries = Vec::new();
        while root.getdents(fd, &mut entries, 64).unwrap() != 0 {}
        root.close(fd).unwrap();
        let mut names = BTreeMap::from([("..", root.stat(format!("{path}/..").as_bytes()).unwrap().ino)]);
        let passed_over = [&b"."[..], b"..", ELSEWHERE.as_bytes()];
        // The oldest first: what has several names is told by the first one.
        for entry in entries.iter().rev().filter(|entry| !passed_over.contains(&&entry.name[..])) {
            let name = name(&entry.name);
            let child = format!("{path}/{name}");
            let seen = root.lstat(child.as_bytes()).unwrap().ino;
            if seen != entry.ino {
                state.mounts.insert(entry.ino, seen);
            }
            names.insert(name, entry.ino);
            self.add(root, &child, state);
        }
        names
    }

    fn tell(&self, answer: Answer) -> &str {
        match answer {
            Answer::Found(ino) | Answer::Opened(ino) => {
                self.paths.get(&ino).map_or("something that never had a name", String::as_str)
            }
            Answer::Refused => "refused",
            Answer::Missing => "missing",
            Answer::NotDir => "not a directory",
        }
    }
}

/// What was asked and answered, and between which moments.
struct Observation {
    as_root: bool,
    question: Question,
    path: &'static str,
    answer: Answer,
    first: usize,
    last: usize,
}

fn ask(user: &Task, question: Question, path: &str) -> Answer {
    let found = match question {
        Question::Stat => user.stat(path.as_bytes()).map(|stat| Answer::Found(stat.ino)),
        Question::Open => user.open(path.as_bytes(), O_RDONLY, 0).map(|fd| {
            let stat = user.fstat(fd).unwrap();
            assert_eq!(
                stat.dev,
                user.stat(b"/").unwrap().dev,
                "{FORBIDDEN}{path} was opened in another mount"
            );
            user.close(fd).unwrap();
            Answer::Opened(stat.ino)
        }),
    };
    found.unwrap_or_else(|errno| match errno {
        Errno::EACCES => Answer::Refused,
        Errno::ENOENT => Answer::Missing,
        Errno::ENOTDIR => Answer::NotDir,
        other => panic!("{FORBIDDEN}{path} gave {other}"),
    })
}

/// How a failure begins that is one of the engine.
const FORBIDDEN: &str = "forbidden: ";

/// Executions of each race with each way to walk on each kind of schedule. `RCUWALK_SCHEDULES` asks for more.
fn executions() -> usize {
    let wanted = std::env::var("RCUWALK_SCHEDULES");
    wanted.map_or(1_000, |count| count.parse().expect("RCUWALK_SCHEDULES is a number"))
}

fn run(scheduler: impl Scheduler + 'static, execution: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 18;
    shuttle::Runner::new(scheduler, config).run(execution);
}

/// Runs `execution` on schedules with a switch now and then, and on such with a few only.
fn explore(execution: impl Fn() + Send + Sync + 'static) {
    let execution = Arc::new(execution);
    let again = || {
        let execution = Arc::clone(&execution);
        move || execution()
    };
    run(RandomScheduler::new_from_seed(1, executions()), again());
    for depth in [2, 3, 4] {
        run(PctScheduler::new_from_seed(depth as u64, depth, executions()), again());
    }
}

impl Race {
    /// What the tree is after each change, when nobody looks meanwhile, and what the store holds in the end.
    fn survey(&'static self) -> (Survey, u32) {
        let result = Arc::new(Mutex::new(None));
        let out = Arc::clone(&result);
        run(RandomScheduler::new_from_seed(0, 1), move || {
            let vfs = vfs(self.mode);
            let root = vfs.task(Cred::root());
            (self.tree)(&root);
            let mut survey = Survey::default();
            survey.look(&root);
            for change in self.changes {
                change(&root);
                survey.look(&root);
            }
            *out.lock().unwrap() = Some((survey, vfs.stats().entries));
        });
        let mut result = result.lock().unwrap();
        result.take().unwrap()
    }

    /// Explores the race, and tells what was answered.
    fn check(&'static self) -> BTreeSet<String> {
        let (survey, entries) = self.survey();
        let reached: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let seen = Arc::clone(&reached);
        explore(move || {
            let answers = self.execute(&survey, entries);
            seen.lock().unwrap().extend(answers);
        });
        std::mem::take(&mut *reached.lock().unwrap())
    }

    /// One task as each way to walk has it, then the row of the table.
    fn check_all(races: [&'static Race; 3]) {
        let wanted: BTreeSet<&str> = races[0].reached.iter().copied().collect();
        for race in races {
            let reached = race.check();
            assert!(reached.iter().eq(&wanted), "{:?} reached {reached:?}, not {wanted:?}", race.mode);
        }
        let outcomes: Vec<&str> = wanted.into_iter().collect();
        println!("model: `{}` | {} | {}", races[0].name, races.len() * 4 * executions(), outcomes.join("; "));
    }

    /// One execution: the answers, each of which was true at some moment of its call.
    fn execute(&'static self, survey: &Survey, entries: u32) -> Vec<String> {
        let vfs = vfs(self.mode);
        let root = vfs.task(Cred::root());
        (self.tree)(&root);
        let mut user = vfs.task(if self.as_root > 0 { Cred::root() } else { Cred::user(USER, USER, &[]) });
        // Not shared memory of the engine: no switch happens here, so a change is between these two, and nothing else is.
        let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (starts, ends) = (Arc::clone(&begun), Arc::clone(&ended));
        let changer = shuttle::thread::spawn(move || {
            for change in self.changes {
                starts.fetch_add(1, Ordering::SeqCst);
                change(&root);
                ends.fetch_add(1, Ordering::SeqCst);
            }
        });
        let walker = shuttle::thread::spawn(move || {
            let observe = |(i, &(question, path)): (usize, &(Question, &'static str))| {
                if i > 0 && i == self.as_root {
                    user.setresuid(USER, USER, USER).unwrap();
                }
                let first = ended.load(Ordering::SeqCst);
                let answer = ask(&user, question, path);
                Observation {
                    as_root: i < self.as_root,
                    question,
                    path,
                    answer,
                    first,
                    last: begun.load(Ordering::SeqCst),
                }
            };
            self.questions.iter().enumerate().map(observe).collect::<Vec<_>>()
        });
        let observations = walker.join().unwrap();
        changer.join().unwrap();
        let check = |seen: Observation| {
            let Observation { path, answer, .. } = seen;
            let mut moments = survey.states[seen.first..=seen.last].to_vec();
            if seen.as_root {
                moments.iter_mut().for_each(State::open_all);
            }
            let allowed = allowed(&moments, &split(path), seen.question);
            assert!(
                allowed.contains(&answer),
                "{FORBIDDEN}{path} gave {}, which was true at no moment",
                survey.tell(answer)
            );
            format!("{path}{} → {}", if seen.as_root { " as root" } else { "" }, survey.tell(answer))
        };
        let answers = observations.into_iter().map(check).collect();
        assert_eq!(vfs.stats().entries, entries, "{FORBIDDEN}references were lost or left over");
        answers
    }
}

fn touch(task: &Task, path: &str) {
    task.close(task.creat(path.as_bytes(), 0o644).unwrap()).unwrap();
}

fn mkdir(task: &Task, path: &str) {
    task.mkdir(path.as_bytes(), 0o755).unwrap();
}

fn exchange(task: &Task, a: &str, b: &str) {
    task.renameat2(AT_FDCWD, a.as_bytes(), AT_FDCWD, b.as_bytes(), RENAME_EXCHANGE).unwrap();
}

fn bind(task: &Task, from: &str, to: &str) {
    task.mount(from.as_bytes(), to.as_bytes(), b"", MS_BIND, b"").unwrap();
}

/// Tests that run a race with the lockless walk, with whole paths remembered as well, and with references held.
macro_rules! races {
    ($($(#[$doc:meta])* $name:ident { tree: $tree:expr, changes: $changes:expr, $(as_root: $as_root:expr,)?
        questions: $questions:expr, reached: $reached:expr, })*) => {
        $($(#[$doc])* #[test]
        fn $name() {
            const fn race(mode: WalkMode) -> Race {
                Race {
                    name: stringify!($name),
                    mode,
                    tree: $tree,
                    changes: &$changes,
                    questions: &$questions,
                    as_root: 0 $(+ $as_root)?,
                    reached: &$reached,
                }
            }
            static RCU: Race = race(WalkMode::Rcu);
            static DIRECT: Race = race(WalkMode::Direct);
            static REF: Race = race(WalkMode::RefOnly);
            Race::check_all([&RCU, &DIRECT, &REF]);
        })*
    };
}

use Question::{Open, Stat};

races! {
    rename_vs_walk {
        tree: |root| {
            ["/d", "/d/s", "/e", "/e/s"].iter().for_each(|path| mkdir(root, path));
            ["/d/s/f", "/e/s/f"].iter().for_each(|path| touch(root, path));
        },
        changes: [
            |root| root.rename(b"/d/s", b"/d/t").unwrap(),
            |root| root.rename(b"/e/s", b"/d/s").unwrap(),
            |root| root.rename(b"/d", b"/g").unwrap(),
        ],
        questions: [(Stat, "/d/s/f"), (Stat, "/d/s/f")],
        reached: ["/d/s/f → /d/s/f", "/d/s/f → /e/s/f", "/d/s/f → missing"],
    }
    unlink_vs_open {
        tree: |root| {
            mkdir(root, "/d");
            touch(root, "/d/f");
        },
        changes: [
            |root| root.unlink(b"/d/f").unwrap(),
            |root| touch(root, "/d/g"),
            |root| root.rename(b"/d/g", b"/d/f").unwrap(),
            |root| root.chmod(b"/d/f", 0o600).unwrap(),
        ],
        questions: [(Open, "/d/f"), (Open, "/d/f")],
        reached: ["/d/f → /d/f", "/d/f → /d/g", "/d/f → missing", "/d/f → refused"],
    }
    /// A name comes to be just when it is remembered that there is none.
    create_vs_missing_path {
        tree: |root| mkdir(root, "/d"),
        changes: [|root| touch(root, "/d/f")],
        questions: [(Stat, "/d/f"), (Stat, "/d/f"), (Stat, "/d/f")],
        reached: ["/d/f → /d/f", "/d/f → missing"],
    }
    chmod_vs_walk {
        tree: |root| {
            mkdir(root, "/d");
            touch(root, "/d/f");
            root.chown(b"/d", USER, 0).unwrap();
            root.chmod(b"/d", 0o700).unwrap();
        },
        changes: [
            |root| root.chmod(b"/d", 0o777).unwrap(),
            |root| root.chown(b"/d", 0, 0).unwrap(),
            |root| root.chmod(b"/d", 0o700).unwrap(),
        ],
        questions: [(Stat, "/d/f"), (Stat, "/d/f")],
        reached: ["/d/f → /d/f", "/d/f → refused"],
    }
    /// An ACL closes the directory that its mode opens to everybody, and opens the one that its mode closes.
    setfacl_vs_walk {
        tree: |root| {
            mkdir(root, "/d");
            touch(root, "/d/f");
        },
        changes: [
            |root| setfacl::keep_out(root, b"/d", USER).unwrap(),
            |root| root.rename(b"/d/f", b"/d/g").unwrap(),
            |root| setfacl::clear(root, b"/d").unwrap(),
            |root| setfacl::let_in(root, b"/d", USER).unwrap(),
        ],
        questions: [(Stat, "/d/f"), (Stat, "/d/f"), (Stat, "/d/f")],
        reached: ["/d/f → /d/f", "/d/f → refused", "/d/f → missing"],
    }
    /// At no moment may the user search the directory: it is root's, or closed to everybody.
    owner_after_mode_vs_walk {
        tree: |root| {
            mkdir(root, "/d");
            touch(root, "/d/f");
            root.chmod(b"/d", 0o700).unwrap();
        },
        changes: [|root| root.chmod(b"/d", 0).unwrap(), |root| root.chown(b"/d", USER, 0).unwrap()],
        questions: [(Stat, "/d/f")],
        reached: ["/d/f → refused"],
    }
    /// The same the other way round.
    mode_after_owner_vs_walk {
        tree: |root| {
            mkdir(root, "/d");
            touch(root, "/d/f");
            root.chmod(b"/d", 0).unwrap();
            root.chown(b"/d", USER, 0).unwrap();
        },
        changes: [|root| root.chown(b"/d", 0, 0).unwrap(), |root| root.chmod(b"/d", 0o700).unwrap()],
        questions: [(Stat, "/d/f")],
        reached: ["/d/f → refused"],
    }
    /// The slot of a directory is used again, for one that is closed.
    refusal_vs_reuse {
        tree: |root| {
            mkdir(root, "/d");
            root.chown(b"/d", USER, 0).unwrap();
            root.chmod(b"/d", 0o700).unwrap();
        },
        changes: [
            |root| root.rmdir(b"/d").unwrap(),
            |root| root.mkdir(b"/x", 0o700).unwrap(),
        ],
        questions: [(Stat, "/d/f"), (Stat, "/d/f")],
        reached: ["/d/f → missing"],
    }
    /// The slots of a directory and of a file are used again, for others that have what is looked for.
    walk_vs_reuse {
        tree: |root| {
            ["/d", "/e", "/x"].iter().for_each(|path| mkdir(root, path));
            touch(root, "/e/f");
        },
        changes: [
            |root| root.rmdir(b"/d").unwrap(),
            |root| mkdir(root, "/x/y"),
            |root| touch(root, "/x/y/f"),
            |root| root.unlink(b"/e/f").unwrap(),
            |root| touch(root, "/x/g"),
        ],
        questions: [(Stat, "/d/f"), (Stat, "/e/f"), (Open, "/e/f")],
        reached: ["/d/f → missing", "/e/f → /e/f", "/e/f → missing"],
    }
    /// The table grows while a name is looked for that is there all the time, in a directory that does not change.
    walk_vs_growth {
        tree: |root| ["/a", "/b"].iter().for_each(|path| mkdir(root, path)),
        changes: [|root| touch(root, "/b/c"), |root| touch(root, "/b/d"), |root| touch(root, "/b/e")],
        questions: [(Stat, "/a"), (Stat, "/b")],
        reached: ["/a → /a", "/b → /b"],
    }
    /// What covers the directory goes, and its slot is used again for what covers another. That the directory is covered
    /// elsewhere too keeps its dentry as it is.
    mount_vs_walk {
        tree: |root| {
            ["/m", "/n", "/d", "/elsewhere"].iter().for_each(|path| mkdir(root, path));
            touch(root, "/m/f");
            touch(root, "/d/f");
            bind(root, "/", "/elsewhere");
            bind(root, "/m", "/elsewhere/d");
            bind(root, "/m", "/d");
        },
        changes: [
            |root| root.umount2(b"/d", MNT_DETACH).unwrap(),
            |root| root.mount(b"none", b"/n", b"tmpfs", 0, b"").unwrap(),
            |root| bind(root, "/m", "/d"),
        ],
        questions: [(Stat, "/d/f"), (Open, "/d/f")],
        reached: ["/d/f → /m/f", "/d/f → /d/f"],
    }
    symlink_swap_vs_walk {
        tree: |root| {
            ["/a", "/b"].iter().for_each(|path| mkdir(root, path));
            ["/a/f", "/b/g"].iter().for_each(|path| touch(root, path));
            root.symlink(b"a", b"/l").unwrap();
            root.symlink(b"/b", b"/k").unwrap();
        },
        changes: [
            |root| root.rename(b"/k", b"/l").unwrap(),
            |root| root.rename(b"/b/g", b"/b/f").unwrap(),
            |root| root.unlink(b"/l").unwrap(),
        ],
        questions: [(Stat, "/l/f"), (Stat, "/l/f")],
        reached: ["/l/f → /a/f", "/l/f → /b/g", "/l/f → missing"],
    }
    /// The directory that a path goes into and leaves again, and what it comes to.
    rmdir_vs_path_that_goes_up {
        tree: |root| {
            ["/d", "/d/e"].iter().for_each(|path| mkdir(root, path));
            touch(root, "/d/f");
        },
        changes: [|root| root.rmdir(b"/d/e").unwrap(), |root| mkdir(root, "/d/e"), |root| root.rmdir(b"/d/e").unwrap()],
        questions: [(Stat, "/d/e/../f"), (Stat, "/d/e/../f"), (Stat, "/d/e/../f")],
        reached: ["/d/e/../f → /d/f", "/d/e/../f → missing"],
    }
    exchange_vs_remembered_path {
        tree: |root| {
            ["/a", "/b"].iter().for_each(|path| mkdir(root, path));
            ["/a/f", "/b/f"].iter().for_each(|path| touch(root, path));
        },
        changes: [
            |root| exchange(root, "/a", "/b"),
            |root| exchange(root, "/a/f", "/b/f"),
            |root| exchange(root, "/a", "/b"),
        ],
        questions: [(Stat, "/a/f"), (Stat, "/a/f"), (Stat, "/a/f"), (Stat, "/b/f")],
        reached: ["/a/f → /a/f", "/a/f → /b/f", "/b/f → /a/f", "/b/f → /b/f"],
    }
    /// No directory changes, so that nothing but the files tells.
    file_exchange_vs_remembered_path {
        tree: |root| {
            mkdir(root, "/d");
            ["/d/f", "/d/g"].iter().for_each(|path| touch(root, path));
        },
        changes: [|root| exchange(root, "/d/f", "/d/g")],
        questions: [(Stat, "/d/f"), (Stat, "/d/f"), (Stat, "/d/f")],
        reached: ["/d/f → /d/f", "/d/f → /d/g"],
    }
    /// What the table learnt for root is no answer for the user that root becomes.
    setuid_vs_remembered_path {
        tree: |root| {
            ["/a", "/b"].iter().for_each(|path| mkdir(root, path));
            ["/a/f", "/b/f"].iter().for_each(|path| touch(root, path));
            root.chmod(b"/a", 0o700).unwrap();
        },
        changes: [
            |root| exchange(root, "/a", "/b"),
            |root| exchange(root, "/a", "/b"),
            |root| root.chmod(b"/a", 0o755).unwrap(),
        ],
        as_root: 2,
        questions: [(Stat, "/a/f"), (Stat, "/a/f"), (Stat, "/a/f"), (Open, "/a/f")],
        reached: [
            "/a/f as root → /a/f", "/a/f as root → /b/f", "/a/f → /a/f", "/a/f → /b/f", "/a/f → refused",
        ],
    }
}
