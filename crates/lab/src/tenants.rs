//! What one tenant's changes make another one wait: hostile sequences, on the engine and on the running kernel.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags};
use nix::sched::CloneFlags;
use rcuwalk::uapi::{CLONE_NEWNS, CLONE_NEWUSER, MNT_DETACH, MS_BIND, MS_REC, MS_SHARED, MS_SLAVE};
use rcuwalk::userns::IdExtent;
use rcuwalk::{Cred, Errno, Task, Vfs};
use serde::{Deserialize, Serialize};

use rcuwalk_measure::progress::{Bar, Observer as _};
use rcuwalk_measure::table::{Style, new_table, right};
use rcuwalk_measure::{Error, machine::Machine};

/// How long calls of one kind took. Nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Waits {
    /// How many calls there were.
    pub calls: usize,
    /// Half of them were no slower.
    pub p50: u64,
    /// 999 of 1,000 were no slower.
    pub p999: u64,
    /// The slowest.
    pub max: u64,
}

impl Waits {
    fn of(mut all: Vec<u64>) -> Waits {
        all.sort_unstable();
        let at = |part: usize| all.get((all.len() * part / 1000).min(all.len().saturating_sub(1))).copied();
        let (p50, p999) = (at(500).unwrap_or(0), at(999).unwrap_or(0));
        Waits { calls: all.len(), p50, p999, max: all.last().copied().unwrap_or(0) }
    }
}

/// A hostile sequence on the engine or on the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// How long the sequence took, without what it needs to begin. Nanoseconds.
    pub took: u64,
    /// Another tenant's stat(2) meanwhile, of a name that is there and of one that is not.
    pub stat: Waits,
    /// Another tenant's mkdir(2) meanwhile.
    pub mkdir: Waits,
    /// A few hundred instructions without any call meanwhile: what the machine makes anybody wait.
    pub machine: Waits,
}

/// A hostile sequence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What the tenant does.
    pub sequence: &'static str,
    /// On the engine.
    pub engine: Side,
    /// On the running kernel, if this user may.
    pub kernel: Option<Side>,
}

/// What a run found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where it ran.
    pub machine: Machine,
    /// Sizes were an eighth.
    pub quick: bool,
    /// Why there is nothing beside the engine's figures.
    pub no_kernel: Option<String>,
    /// Each hostile sequence.
    pub rows: Vec<Row>,
}

/// What a tenant asks for, of the engine or of the kernel. Paths begin at the tenant's root.
trait World {
    fn mkdir(&mut self, path: &str) -> Answer;
    fn create(&mut self, path: &str) -> Answer;
    fn list(&mut self, path: &str) -> Answer;
    fn tmpfs(&mut self, at: &str) -> Answer;
    /// bind, with `MS_REC`.
    fn bind(&mut self, from: &str, at: &str) -> Answer;
    /// `MS_SHARED` or `MS_SLAVE`.
    fn propagate(&mut self, at: &str, how: u64) -> Answer;
    /// `MNT_DETACH`.
    fn detach(&mut self, at: &str) -> Answer;
    /// A copy of the mount namespace, and an end of it.
    fn copy_mounts(&mut self) -> Answer;
}

type Answer = Result<(), String>;

struct Sequence {
    name: &'static str,
    size: u32,
    setup: fn(&mut dyn World, u32) -> Answer,
    hostile: fn(&mut dyn World, u32) -> Answer,
}

/// Makes `/t` a mount with so many mounts below it, each bind twice as many as the one before.
fn doubled(world: &mut dyn World, size: u32, shared: bool) -> Answer {
    world.mkdir("/t")?;
    world.mkdir("/t/a")?;
    world.bind("/t", "/t")?;
    if shared {
        world.propagate("/t", MS_SHARED)?;
    }
    (0..size.ilog2()).try_for_each(|_| world.bind("/t", "/t/a"))
}

fn files(world: &mut dyn World, size: u32) -> Answer {
    world.mkdir("/t")?;
    world.tmpfs("/t")?;
    (0..size).try_for_each(|i| world.create(&format!("/t/file-{i}")))
}

const SEQUENCES: &[Sequence] = &[
    Sequence {
        name: "bind a shared tree into itself, again and again",
        size: 1 << 9,
        setup: |_, _| Ok(()),
        hostile: |world, size| doubled(world, size, true),
    },
    Sequence {
        name: "detach that tree",
        size: 1 << 9,
        setup: |world, size| doubled(world, size, true),
        hostile: |world, _| world.detach("/t"),
    },
    Sequence {
        name: "copy a namespace of 65,536 mounts, and leave it",
        size: 1 << 16,
        setup: |world, size| doubled(world, size, false),
        hostile: |world, _| world.copy_mounts(),
    },
    Sequence {
        name: "mount 5,000 tmpfs on directories of their own, and detach them",
        size: 5_000,
        setup: |world, size| {
            world.mkdir("/t")?;
            (0..size).try_for_each(|i| world.mkdir(&format!("/t/{i}")))
        },
        hostile: |world, size| {
            (0..size).try_for_each(|i| world.tmpfs(&format!("/t/{i}")))?;
            (0..size).try_for_each(|i| world.detach(&format!("/t/{i}")))
        },
    },
    Sequence {
        name: "mount below a chain of 1,000 slaves of slaves, and detach, 20 times",
        size: 1_000,
        setup: |world, size| {
            world.mkdir("/s")?;
            world.mkdir("/s/x")?;
            world.bind("/s", "/s")?;
            world.propagate("/s", MS_SHARED)?;
            let mut last = "/s".to_owned();
            (0..size).try_for_each(|i| {
                let at = format!("/c{i}");
                world.mkdir(&at)?;
                world.bind(&last, &at)?;
                world.propagate(&at, MS_SLAVE)?;
                world.propagate(&at, MS_SHARED)?;
                last = at;
                Ok(())
            })
        },
        hostile: |world, _| {
            (0..20).try_for_each(|_| {
                world.tmpfs("/s/x")?;
                world.detach("/s/x")
            })
        },
    },
    Sequence {
        name: "make 1,000,000 files in one directory",
        size: 1_000_000,
        setup: |_, _| Ok(()),
        hostile: files,
    },
    Sequence {
        name: "list a directory of 300,000 files, 20 times",
        size: 300_000,
        setup: files,
        hostile: |world, _| (0..20).try_for_each(|_| world.list("/t")),
    },
    Sequence {
        name: "detach a tmpfs of 300,000 files",
        size: 300_000,
        setup: files,
        hostile: |world, _| world.detach("/t"),
    },
];

/// The engine, as a user with namespaces of his own sees it.
struct Engine(Task);

fn told(call: &str, path: &str) -> impl FnOnce(Errno) -> String {
    move |errno| format!("{call} {path}: {errno}")
}

impl World for Engine {
    fn mkdir(&mut self, path: &str) -> Answer {
        self.0.mkdir(path.as_bytes(), 0o755).map_err(told("mkdir", path))
    }

    fn create(&mut self, path: &str) -> Answer {
        self.0.mknod(path.as_bytes(), 0o644, 0).map_err(told("mknod", path))
    }

    fn list(&mut self, path: &str) -> Answer {
        self.0.readdir(path.as_bytes()).map(drop).map_err(told("readdir", path))
    }

    fn tmpfs(&mut self, at: &str) -> Answer {
        self.0.mount(b"none", at.as_bytes(), b"tmpfs", 0, b"").map_err(told("mount", at))
    }

    fn bind(&mut self, from: &str, at: &str) -> Answer {
        let flags = MS_BIND | MS_REC;
        self.0.mount(from.as_bytes(), at.as_bytes(), b"", flags, b"").map_err(told("bind", at))
    }

    fn propagate(&mut self, at: &str, how: u64) -> Answer {
        self.0.mount(b"", at.as_bytes(), b"", how, b"").map_err(told("propagate", at))
    }

    fn detach(&mut self, at: &str) -> Answer {
        self.0.umount2(at.as_bytes(), MNT_DETACH).map_err(told("umount2", at))
    }

    fn copy_mounts(&mut self) -> Answer {
        self.0.fork().unshare(CLONE_NEWNS).map_err(told("unshare", ""))
    }
}

/// The running kernel, as root in a mount namespace whose root is a fresh tmpfs.
struct Running;

fn failed<E: std::fmt::Display>(call: &str, path: &str) -> impl FnOnce(E) -> String {
    move |error| format!("{call} {path}: {error}")
}

impl Running {
    fn mount(from: &str, at: &str, fstype: Option<&str>, flags: MsFlags) -> Answer {
        nix::mount::mount(Some(from), at, fstype, flags, None::<&str>).map_err(failed("mount", at))
    }
}

impl World for Running {
    fn mkdir(&mut self, path: &str) -> Answer {
        std::fs::create_dir(path).map_err(failed("mkdir", path))
    }

    fn create(&mut self, path: &str) -> Answer {
        std::fs::File::create_new(path).map(drop).map_err(failed("open", path))
    }

    fn list(&mut self, path: &str) -> Answer {
        std::fs::read_dir(path).map(|entries| _ = entries.count()).map_err(failed("getdents", path))
    }

    fn tmpfs(&mut self, at: &str) -> Answer {
        Running::mount("none", at, Some("tmpfs"), MsFlags::empty())
    }

    fn bind(&mut self, from: &str, at: &str) -> Answer {
        Running::mount(from, at, None, MsFlags::MS_BIND | MsFlags::MS_REC)
    }

    fn propagate(&mut self, at: &str, how: u64) -> Answer {
        let how = if how == MS_SHARED { MsFlags::MS_SHARED } else { MsFlags::MS_SLAVE };
        Running::mount("none", at, None, how)
    }

    fn detach(&mut self, at: &str) -> Answer {
        nix::mount::umount2(at, MntFlags::MNT_DETACH).map_err(failed("umount2", at))
    }

    fn copy_mounts(&mut self) -> Answer {
        // A thread has a mount namespace of its own, which ends with it.
        let copy = || nix::sched::unshare(CloneFlags::CLONE_NEWNS);
        let copied = thread::scope(|scope| scope.spawn(copy).join());
        copied.map_err(|_| "unshare: the thread failed".to_owned())?.map_err(failed("unshare", ""))
    }
}

/// What the other tenant does again and again; the argument is the number of the round.
type Call<'a> = &'a (dyn Fn(u64) -> bool + Sync);

/// Runs the hostile part while others ask.
fn compete(
    world: &mut dyn World,
    sequence: &Sequence,
    size: u32,
    stat: Call<'_>,
    mkdir: Call<'_>,
) -> Result<Side, String> {
    (sequence.setup)(world, size)?;
    let (over, wrong) = (AtomicBool::new(false), AtomicBool::new(false));
    let repeat = |call: Call<'_>| {
        let mut waits = Vec::new();
        // Relaxed: nothing else is told by it.
        for round in 0.. {
            let begun = Instant::now();
            if !call(round) {
                wrong.store(true, Ordering::Relaxed);
            }
            waits.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
            if over.load(Ordering::Relaxed) {
                break;
            }
            thread::sleep(Duration::from_micros(50));
        }
        Waits::of(waits)
    };
    let spin = |_| {
        (0..100).for_each(|_| std::hint::spin_loop());
        true
    };
    let (took, answer, waits) = thread::scope(|scope| {
        let calls: [Call<'_>; 3] = [stat, mkdir, &spin];
        let threads = calls.map(|call| scope.spawn(move || repeat(call)));
        // They have begun by then.
        thread::sleep(Duration::from_millis(5));
        let begun = Instant::now();
        let answer = (sequence.hostile)(world, size);
        let took = begun.elapsed();
        over.store(true, Ordering::Relaxed);
        (took, answer, threads.map(|thread| thread.join().unwrap_or_default()))
    });
    answer?;
    if wrong.load(Ordering::Relaxed) {
        return Err("the other tenant got a wrong answer".to_owned());
    }
    let [stat, mkdir, machine] = waits;
    Ok(Side { took: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), stat, mkdir, machine })
}

fn on_engine(sequence: &Sequence, size: u32) -> Result<Side, String> {
    let make = || -> Result<_, Errno> {
        let vfs = Vfs::new()?;
        let root = vfs.task(Cred::root());
        root.chmod(b"/", 0o777)?;
        root.mkdir(b"/other", 0o755)?;
        let mut tenant = vfs.task(Cred::user(1000, 1000, &[]));
        tenant.unshare(CLONE_NEWUSER | CLONE_NEWNS)?;
        let all = [IdExtent { first: 0, lower: 0, count: 1 << 16 }];
        tenant.cred().user_ns().set_uid_map(&all)?;
        tenant.cred().user_ns().set_gid_map(&all)?;
        Ok((root, tenant))
    };
    let (other, tenant) = make().map_err(told("preparing", "/"))?;
    let second = other.fork();
    let stat = |_| other.stat(b"/other").is_ok() && other.stat(b"/other/missing") == Err(Errno::ENOENT);
    let mkdir = |round| second.mkdir(format!("/other/{round}").as_bytes(), 0o755).is_ok();
    compete(&mut Engine(tenant), sequence, size, &stat, &mkdir)
}

/// The kernel's side, in a process with a mount namespace of its own and an empty root.
///
/// # Errors
///
/// A call that failed, as text.
pub fn on_kernel(name: &str, quick: bool, root: &Path) -> Result<Side, String> {
    let sequence = SEQUENCES.iter().find(|sequence| sequence.name == name).ok_or("no such sequence")?;
    Running::mount("none", &root.to_string_lossy(), Some("tmpfs"), MsFlags::empty())?;
    nix::unistd::chroot(root).map_err(failed("chroot", "."))?;
    std::env::set_current_dir("/").map_err(failed("chdir", "/"))?;
    std::fs::create_dir("/other").map_err(failed("mkdir", "/other"))?;
    let missing = |path| std::fs::metadata(path).is_err_and(|error| error.raw_os_error() == Some(2));
    let stat = |_| std::fs::metadata("/other").is_ok() && missing("/other/missing");
    let mkdir = |round| std::fs::create_dir(format!("/other/{round}")).is_ok();
    compete(&mut Running, sequence, sized(sequence, quick), &stat, &mkdir)
}

fn sized(sequence: &Sequence, quick: bool) -> u32 {
    if quick { sequence.size / 8 } else { sequence.size }
}

/// Has this program run [`on_kernel`] in another process.
fn kernel(name: &str, quick: bool) -> Result<Side, String> {
    let dir = tempfile::tempdir().map_err(|error| format!("a temporary directory: {error}"))?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]).arg(program);
    command.args(["tenants", "--on-kernel", name, "--root"]).arg(dir.path());
    if quick {
        command.arg("--quick");
    }
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("unshare: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

/// Runs each sequence on the engine and, as root, on the running kernel.
///
/// # Errors
///
/// When a call of a sequence fails on the engine, or other tenants get wrong answers.
pub fn run(quick: bool, bar: &Bar) -> Result<Report, Error> {
    let mut no_kernel = (!nix::unistd::geteuid().is_root()).then(|| "mounting needs root".to_owned());
    let mut rows = Vec::new();
    for sequence in SEQUENCES {
        bar.stage(sequence.name, None);
        let engine = on_engine(sequence, sized(sequence, quick))
            .map_err(|why| Error::new("a hostile sequence", sequence.name, why, ""))?;
        let kernel = match &no_kernel {
            None => kernel(sequence.name, quick).map_err(|why| no_kernel = Some(why)).ok(),
            Some(_) => None,
        };
        rows.push(Row { sequence: sequence.name, engine, kernel });
    }
    Ok(Report { machine: Machine::read(), quick, no_kernel, rows })
}

/// The table of a report.
pub fn render(report: &Report, style: Style) -> String {
    let mut table = new_table(style);
    let head =
        ["a tenant's sequence", "on", "ms", "stat p99.9 µs", "max", "mkdir p99.9 µs", "max", "machine max"];
    table.set_header(head);
    for row in &report.rows {
        let kernel = row.kernel.map(|side| ("kernel", side));
        for (on, side) in [("engine", row.engine)].into_iter().chain(kernel) {
            let micros = |ns: u64| right(format!("{:.1}", ns as f64 / 1e3));
            let name = if on == "engine" { row.sequence } else { "" };
            table.add_row(vec![
                name.into(),
                on.into(),
                right(format!("{:.1}", side.took as f64 / 1e6)),
                micros(side.stat.p999),
                micros(side.stat.max),
                micros(side.mkdir.p999),
                micros(side.mkdir.max),
                micros(side.machine.max),
            ]);
        }
    }
    let mut out = format!("{}\n{table}\n", report.machine.summary());
    if let Some(why) = &report.no_kernel {
        let _ = writeln!(out, "nothing of the kernel: {why}");
    }
    out
}
