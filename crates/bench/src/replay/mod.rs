//! The path calls of a real program, from an `strace` log, asked of the engine and of the kernel.
//!
//! The part of the tree that the program looked at is imported as it is now, so the answers compared are those of now; how
//! many of them the log saw as well is told. Calls that change something are not made, and counted.

mod strace;
mod world;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rcuwalk::uapi::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, O_RDONLY};
use rcuwalk::{Task, Variants, Vfs, WalkMode};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use serde::Serialize;

use crate::engines::rcuwalk::cred;
use crate::engines::{Value, attr_value, error_value};
use crate::error::Error;
use crate::identity::Identity;
use crate::machine::Machine;
use crate::report::rounded;
use crate::run::Observer;
use strace::{Arg, Call};

/// What to replay.
#[derive(Debug, Clone)]
pub struct Options {
    /// The log of `strace -f`, best with `-y`.
    pub trace: PathBuf,
    /// Where the program was started; relative paths start there unless the log says where.
    pub cwd: PathBuf,
    /// Rounds of timing; 0 only compares.
    pub rounds: usize,
}

/// A question about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Stat,
    Lstat,
    Access(i32),
    Open,
    Readlink,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Stat => "stat",
            Kind::Lstat => "lstat",
            Kind::Access(_) => "access",
            Kind::Open => "open",
            Kind::Readlink => "readlink",
        }
    }
}

struct Question {
    kind: Kind,
    path: CString,
    /// What the log says it answered.
    logged: Option<String>,
}

/// What a replay found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where it ran.
    pub machine: Machine,
    /// The log.
    pub trace: String,
    /// Calls in it.
    pub calls: usize,
    /// Lines of it that could not be read.
    pub unread: usize,
    /// Calls that were replayed, by kind.
    pub kinds: BTreeMap<&'static str, usize>,
    /// Path calls that were not, by reason.
    pub left_out: BTreeMap<&'static str, usize>,
    /// Names that were imported.
    pub entries: usize,
    /// Answers that differ between engine and kernel.
    pub mismatches: Vec<Mismatch>,
    /// Answers that are, success or error, as the log has them.
    pub as_logged: usize,
    /// Percent of the answers that are `ENOENT`.
    pub enoent_pct: f64,
    /// Components of a path, on average.
    pub mean_depth: f64,
    /// Directories that were searched without a permission check, percent of all searched (S9).
    pub searches_spared_pct: f64,
    /// Nanoseconds a call, medians of whole replays: the kernel, the engine's walk, the engine with its whole-path table.
    pub ns_per_call: Option<Times>,
}

/// See [`Report::ns_per_call`].
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Times {
    /// The running kernel.
    pub host: f64,
    /// The engine, walking each path.
    pub walk: f64,
    /// The engine.
    pub rcuwalk: f64,
}

/// An answer that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The call.
    pub call: &'static str,
    /// Its path.
    pub path: String,
    /// What the kernel says, and what the engine.
    pub host: String,
    /// See above.
    pub rcuwalk: String,
}

/// Replays a log.
///
/// # Errors
///
/// When the log cannot be read or has no path call, and what importing and becoming the caller can fail with.
pub fn run(options: &Options, observer: &dyn Observer) -> Result<Report, Error> {
    const WHAT: &str = "reading the log";
    let text = std::fs::read(&options.trace)
        .map_err(|e| Error::host(WHAT, &options.trace, e, "name a file that strace -f -o wrote"))?;
    let log = strace::read(&text);
    let mut left_out = BTreeMap::new();
    let questions = questions(&log.calls, &options.cwd, &mut left_out);
    if questions.is_empty() {
        let hint = "make one with strace -f -y -o LOG PROGRAM";
        return Err(Error::new(
            WHAT,
            options.trace.display().to_string(),
            "no call about a path in it",
            hint,
        ));
    }
    observer.stage("importing", Some(questions.len() as u64));
    let vfs = world::empty()?;
    let entries = {
        let mut world = world::World::new(&vfs)?;
        for question in &questions {
            world.add(question.path.to_bytes())?;
            observer.advance(1);
        }
        world.entries()
    };
    let who = Identity::caller()?;
    let cred = cred(&who, who.assume()?).map_err(|e| Error::engine("becoming the caller", b"", e, ""))?;
    let task = vfs.task(cred);
    observer.stage("comparing", None);
    let mut report = compare(&questions, &vfs, &task);
    report.trace = options.trace.display().to_string();
    (report.calls, report.unread, report.left_out, report.entries) =
        (log.calls.len(), log.unread, left_out, entries);
    if options.rounds > 0 {
        observer.stage("timing", Some(options.rounds as u64));
        report.ns_per_call = Some(time(&questions, &vfs, &task, options.rounds, observer));
    }
    Ok(report)
}

/// Where each process of a log stands.
struct Places {
    start: Vec<u8>,
    cwd: HashMap<u32, Vec<u8>>,
    fds: HashMap<(u32, i64), Vec<u8>>,
}

impl Places {
    fn cwd(&self, pid: u32) -> &[u8] {
        self.cwd.get(&pid).unwrap_or(&self.start)
    }

    /// The absolute path that `dirfd` and `path` mean.
    fn resolve(&self, pid: u32, dirfd: Option<&Arg>, path: &[u8]) -> Option<Vec<u8>> {
        if path.first() == Some(&b'/') {
            return Some(path.to_vec());
        }
        let dir = match dirfd {
            Some(Arg::Word { path: Some(dir), .. }) => dir.clone(),
            None => self.cwd(pid).to_vec(),
            Some(Arg::Word { text, .. }) if text == "AT_FDCWD" => self.cwd(pid).to_vec(),
            Some(Arg::Word { text, .. }) => self.fds.get(&(pid, text.parse().ok()?))?.clone(),
            Some(Arg::Text(_)) => return None,
        };
        (dir.first() == Some(&b'/')).then(|| [&dir[..], b"/", path].concat())
    }

    /// Follows what a call changes for those after it.
    fn follow(&mut self, call: &Call, path: Option<&[u8]>) {
        match (call.name.as_str(), path) {
            _ if call.result < 0 => {}
            ("chdir", Some(path)) => drop(self.cwd.insert(call.pid, path.to_vec())),
            ("open" | "openat" | "openat2" | "creat", Some(path)) => {
                self.fds.insert((call.pid, call.result), path.to_vec());
            }
            ("clone" | "clone3" | "fork" | "vfork", _) => {
                if let Ok(child) = u32::try_from(call.result) {
                    self.cwd.insert(child, self.cwd(call.pid).to_vec());
                    let copies: Vec<_> = self.fds.iter().filter(|((pid, _), _)| *pid == call.pid).collect();
                    let copies: Vec<_> =
                        copies.iter().map(|((_, fd), path)| ((child, *fd), (*path).clone())).collect();
                    self.fds.extend(copies);
                }
            }
            _ => {}
        }
    }
}

/// The calls of a log as questions.
fn questions(calls: &[Call], cwd: &Path, left_out: &mut BTreeMap<&'static str, usize>) -> Vec<Question> {
    let start = cwd.canonicalize().unwrap_or_else(|_| cwd.to_path_buf()).into_os_string();
    let start = std::os::unix::ffi::OsStringExt::into_vec(start);
    let mut places = Places { start, cwd: HashMap::new(), fds: HashMap::new() };
    let mut questions = Vec::new();
    for call in calls {
        let Some(shape) = shape(call) else {
            places.follow(call, None);
            continue;
        };
        let Shape { dirfd, path, kind } = shape;
        let mut leave = |why| *left_out.entry(why).or_insert(0) += 1;
        let resolved = places.resolve(call.pid, dirfd, path);
        places.follow(call, resolved.as_deref());
        match (resolved, kind) {
            _ if path.is_empty() => leave("of a descriptor"),
            (None, _) => leave("relative to an unknown place"),
            (_, None) => leave("changes something"),
            (Some(path), Some(_))
                if [&b"/proc/"[..], b"/sys/", b"/dev/"].iter().any(|top| path.starts_with(top)) =>
            {
                leave("in /proc, /sys or /dev");
            }
            (Some(path), Some(kind)) => match CString::new(path) {
                Ok(path) => {
                    let logged = if call.result < 0 { call.error.clone() } else { Some("0".to_owned()) };
                    questions.push(Question { kind, path, logged });
                }
                Err(_) => leave("with a NUL in the path"),
            },
        }
    }
    questions
}

/// What a call about a path asks; no kind if it would change something.
struct Shape<'a> {
    dirfd: Option<&'a Arg>,
    path: &'a [u8],
    kind: Option<Kind>,
}

fn shape(call: &Call) -> Option<Shape<'_>> {
    let text = |i: usize| match call.args.get(i) {
        Some(Arg::Text(path)) => Some(&path[..]),
        _ => None,
    };
    let word = |i: usize| match call.args.get(i) {
        Some(Arg::Word { text, .. }) => text.as_str(),
        _ => "",
    };
    let plain = |kind| Some(Shape { dirfd: None, path: text(0)?, kind });
    let at = |kind| Some(Shape { dirfd: call.args.first(), path: text(1)?, kind });
    let stat = |flags: &str| if flags.contains("AT_SYMLINK_NOFOLLOW") { Kind::Lstat } else { Kind::Stat };
    let open = |flags: &str| {
        let changes =
            ["O_CREAT", "O_WRONLY", "O_RDWR", "O_TRUNC", "O_TMPFILE"].iter().any(|f| flags.contains(f));
        let odd = ["O_PATH", "O_NOFOLLOW", "O_DIRECTORY"].iter().any(|f| flags.contains(f));
        if changes {
            None
        } else if odd {
            Some(Kind::Stat)
        } else {
            Some(Kind::Open)
        }
    };
    match call.name.as_str() {
        "stat" => plain(Some(Kind::Stat)),
        "lstat" => plain(Some(Kind::Lstat)),
        "newfstatat" | "fstatat64" => at(Some(stat(word(3)))),
        "statx" => at(Some(stat(word(2)))),
        "access" => plain(Some(Kind::Access(mode(word(1))))),
        "faccessat" | "faccessat2" => at(Some(Kind::Access(mode(word(2))))),
        "open" => plain(open(word(1))),
        "openat" | "openat2" => at(open(word(2))),
        "readlink" => plain(Some(Kind::Readlink)),
        "readlinkat" => at(Some(Kind::Readlink)),
        "execve" => plain(Some(Kind::Access(1))),
        "chdir" => plain(Some(Kind::Stat)),
        "mkdir" | "rmdir" | "unlink" | "rename" | "chmod" | "chown" | "creat" | "symlink" | "link" => {
            plain(None)
        }
        "mkdirat" | "unlinkat" | "renameat" | "renameat2" | "fchmodat" | "fchownat" | "utimensat"
        | "linkat" => at(None),
        _ => None,
    }
}

fn mode(word: &str) -> i32 {
    [("R_OK", 4), ("W_OK", 2), ("X_OK", 1)]
        .iter()
        .filter(|(name, _)| word.contains(name))
        .map(|(_, bit)| bit)
        .sum()
}

/// A digest of bytes, for comparing.
fn digest(bytes: &[u8]) -> Value {
    bytes.iter().fold(bytes.len() as u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into())) >> 1
}

fn host(kind: Kind, path: &CStr) -> Value {
    let failed = |errno: rustix::io::Errno| error_value(errno.raw_os_error());
    let attr = |stat: rustix::io::Result<rustix::fs::Stat>| match stat {
        Ok(st) => attr_value(st.st_ino, st.st_size as u64, st.st_mode),
        Err(errno) => failed(errno),
    };
    match kind {
        Kind::Stat => attr(rustix::fs::stat(path)),
        Kind::Lstat => attr(rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)),
        Kind::Access(mode) => {
            rustix::fs::access(path, Access::from_bits_retain(mode as u32)).map_or_else(failed, |()| 1)
        }
        Kind::Open => rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).map_or_else(failed, |_| 1),
        Kind::Readlink => {
            rustix::fs::readlink(path, Vec::new()).map_or_else(failed, |body| digest(body.to_bytes()))
        }
    }
}

fn ours(task: &Task, kind: Kind, path: &CStr) -> Value {
    let path = path.to_bytes();
    let failed = |errno: rcuwalk::Errno| error_value(errno.raw());
    let attr = |stat: rcuwalk::Result<rcuwalk::uapi::Stat>| match stat {
        Ok(st) => attr_value(st.ino, st.size as u64, st.mode),
        Err(errno) => failed(errno),
    };
    match kind {
        Kind::Stat => attr(task.stat(path)),
        Kind::Lstat => attr(task.newfstatat(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW)),
        Kind::Access(mode) => task.access(path, mode).map_or_else(failed, |()| 1),
        Kind::Open => task.open(path, O_RDONLY, 0).and_then(|fd| task.close(fd)).map_or_else(failed, |()| 1),
        Kind::Readlink => task.readlink(path).map_or_else(failed, |body| digest(&body)),
    }
}

/// An answer in words.
fn tell(value: Value) -> String {
    match value >> 63 {
        0 => format!("{value:x}"),
        _ => error_name(value),
    }
}

fn error_name(value: Value) -> String {
    let raw = (value & 0xffff) as i32;
    rcuwalk::Errno::from_raw(raw).map_or_else(|| format!("errno {raw}"), |errno| errno.name().to_owned())
}

fn compare(questions: &[Question], vfs: &Vfs, task: &Task) -> Report {
    let mut report = Report {
        machine: Machine::read(),
        trace: String::new(),
        calls: 0,
        unread: 0,
        kinds: BTreeMap::new(),
        left_out: BTreeMap::new(),
        entries: 0,
        mismatches: Vec::new(),
        as_logged: 0,
        enoent_pct: 0.0,
        mean_depth: 0.0,
        searches_spared_pct: 0.0,
        ns_per_call: None,
    };
    vfs.set_walk_mode(WalkMode::Rcu);
    vfs.set_variants(Variants { count_searches: true, ..Variants::default() });
    let (mut missing, mut depth) = (0_usize, 0_usize);
    for question in questions {
        let Question { kind, path, logged } = question;
        *report.kinds.entry(kind.name()).or_insert(0) += 1;
        depth += path.to_bytes().split(|&byte| byte == b'/').filter(|name| !name.is_empty()).count();
        let (theirs, answer) = (host(*kind, path), ours(task, *kind, path));
        missing += usize::from(theirs == error_value(rcuwalk::Errno::ENOENT.raw()));
        let name = if theirs >> 63 == 1 { error_name(theirs) } else { "0".to_owned() };
        report.as_logged += usize::from(logged.as_deref() == Some(name.as_str()));
        // Somebody else may change the tree meanwhile: what counts is the kernel's answer before and after.
        if theirs != answer && host(*kind, path) == theirs {
            report.mismatches.push(Mismatch {
                call: kind.name(),
                path: path.to_string_lossy().into_owned(),
                host: tell(theirs),
                rcuwalk: tell(answer),
            });
        }
    }
    let stats = vfs.stats();
    let searched = (stats.searches_spared + stats.searches_checked).max(1) as f64;
    vfs.set_variants(Variants::default());
    let all = questions.len() as f64;
    report.enoent_pct = rounded(missing as f64 * 100.0 / all);
    report.mean_depth = rounded(depth as f64 / all);
    report.searches_spared_pct = rounded(stats.searches_spared as f64 * 100.0 / searched);
    report
}

fn time(questions: &[Question], vfs: &Vfs, task: &Task, rounds: usize, observer: &dyn Observer) -> Times {
    let mut samples: [Vec<f64>; 3] = Default::default();
    let replay = |answer: &dyn Fn(&Question) -> Value| {
        let clock = Instant::now();
        let sum = questions.iter().fold(0, |sum: Value, question| sum.wrapping_add(answer(question)));
        black_box(sum);
        clock.elapsed().as_nanos() as f64 / questions.len() as f64
    };
    for _ in 0..rounds {
        samples[0].push(replay(&|q| host(q.kind, &q.path)));
        for (at, mode) in [(1, WalkMode::Rcu), (2, WalkMode::Direct)] {
            vfs.set_walk_mode(mode);
            samples[at].push(replay(&|q| ours(task, q.kind, &q.path)));
        }
        observer.advance(1);
    }
    let [host, walk, rcuwalk] = samples.map(|mut samples| {
        samples.sort_unstable_by(f64::total_cmp);
        rounded(samples[samples.len() / 2])
    });
    Times { host, walk, rcuwalk }
}

impl Report {
    /// The report in plain words.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let replayed: usize = self.kinds.values().sum();
        let _ = writeln!(
            out,
            "{}: {} calls, {replayed} of them about paths and replayed",
            self.trace, self.calls
        );
        let list = |counts: &BTreeMap<&'static str, usize>| {
            counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
        };
        let _ = writeln!(out, "by kind: {}", list(&self.kinds));
        if !self.left_out.is_empty() {
            let _ = writeln!(out, "not replayed: {}", list(&self.left_out));
        }
        if self.unread > 0 {
            let _ = writeln!(out, "lines that could not be read: {}", self.unread);
        }
        let _ = writeln!(
            out,
            "{} names imported; {:.1} components a path, {:.1} % ENOENT, {:.1} % of the searches without a permission check",
            self.entries, self.mean_depth, self.enoent_pct, self.searches_spared_pct
        );
        let _ = writeln!(out, "answers that differ from the kernel's: {}", self.mismatches.len());
        for Mismatch { call, path, host, rcuwalk } in &self.mismatches {
            let _ = writeln!(out, "  {call} {path}: kernel {host}, rcuwalk {rcuwalk}");
        }
        let _ = writeln!(out, "answers as in the log: {} of {replayed}", self.as_logged);
        if let Some(Times { host, walk, rcuwalk }) = self.ns_per_call {
            let _ = writeln!(
                out,
                "ns a call: kernel {host:.0}, walk {walk:.0} ({:.1} times), with the whole-path table {rcuwalk:.0} ({:.1} times)",
                host / walk,
                host / rcuwalk
            );
        }
        out
    }
}
