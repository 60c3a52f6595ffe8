//! Peers in other languages, and those in Rust whose dependencies are not for this tree: programs of their own, which get the
//! tree as a list, and do a batch of calls each time they are asked to.
//!
//! A program makes its tree from the files `dirs` and `files` beside it, listens at the socket `socket` beside it, and says
//! `ready`. Each connection is a thread of it, and begins with the line `thread TID`: it is pinned to where the thread that
//! asks is pinned, as two that are woken at once would else take turns on one processor. It is told a list of paths (`list
//! COUNT`, and a path on each line), and what to do with it: `CALL START COUNT` is a call for each of `COUNT` paths from
//! number `START` on, around the end of the list; the answer is `NANOSECONDS SUM`, by its own clock and of the values of the
//! calls. An eighth of the calls is made before, untimed: it has just been woken. It ends with its standard input.

use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::{Call, Peer, Tree};
use rcuwalk_measure::Error;
use rcuwalk_measure::engines::{Contender, Op, Timed, Value};

/// A peer, and how its program is made in a folder of its own.
struct Program {
    peer: Peer,
    /// The name of that folder.
    folder: &'static str,
    make: fn(&Path) -> Result<(), String>,
    /// The command that runs it, in that folder.
    command: &'static [&'static str],
    /// Made also in a quick run: within seconds.
    quick: bool,
    /// Whether it has access(2).
    access: bool,
    /// Whether its threads run at once.
    threads: bool,
}

const PROGRAMS: &[Program] = &[
    Program {
        peer: Peer { name: "rsfs (Rust)", leaves_out: "owners, ACLs, mounts" },
        folder: "rsfs",
        make: |dir| cargo(dir, "rsfs = \"=0.4.1\"", include_str!("programs/rsfs.rs.txt")),
        command: &["target/release/peer"],
        quick: false,
        access: false,
        threads: true,
    },
    Program {
        peer: Peer { name: "wasmer virtual-fs (Rust)", leaves_out: "permissions, links" },
        folder: "virtual-fs",
        make: |dir| {
            let needs = "virtual-fs = { version = \"=0.704.2\", default-features = false }";
            cargo(dir, needs, include_str!("programs/virtual_fs.rs.txt"))
        },
        command: &["target/release/peer"],
        quick: false,
        access: false,
        threads: true,
    },
    Program {
        peer: Peer { name: "gVisor tmpfs (Go)", leaves_out: "idmapped mounts" },
        folder: "gvisor",
        make: |dir| {
            let needs = "gvisor.dev/gvisor v0.0.0-20250205023644-9414b50a5633";
            go(dir, needs, include_str!("programs/gvisor.go.txt"))
        },
        command: &["peer"],
        quick: false,
        access: true,
        threads: true,
    },
    Program {
        peer: Peer { name: "afero MemMapFs (Go)", leaves_out: "walk, permissions, links" },
        folder: "afero",
        make: |dir| go(dir, "github.com/spf13/afero v1.15.0", include_str!("programs/afero.go.txt")),
        command: &["peer"],
        quick: true,
        access: false,
        threads: true,
    },
    Program {
        peer: Peer { name: "pyfakefs (Python)", leaves_out: "ACLs, mounts; it is interpreted" },
        folder: "pyfakefs",
        make: python,
        command: &["python3", "peer.py"],
        quick: true,
        access: true,
        threads: false,
    },
];

/// The programs that run, and the folder they were made in, if that is to go with them.
pub(super) struct Programs {
    pub(super) running: Vec<Running>,
    _temporary: Option<tempfile::TempDir>,
}

impl Programs {
    /// Builds and starts the programs in folders of `built`, where what an earlier run built is used again, or in temporary
    /// ones.
    pub(super) fn start(
        quick: bool,
        built: Option<&Path>,
        tree: &Tree,
        notes: &mut Vec<String>,
    ) -> Result<Programs, Error> {
        let temporary = match built {
            Some(_) => None,
            None => Some(tempfile::Builder::new().prefix("rcuwalk-bench-").tempdir().map_err(|e| {
                let hint = "set TMPDIR to a directory with room";
                Error::host("making a temporary directory", std::env::temp_dir(), e, hint)
            })?),
        };
        let base = built.or(temporary.as_ref().map(|dir| dir.path())).unwrap_or(Path::new("."));
        // Absolute, as the programs are run in their folders.
        let made = fs::create_dir_all(base).and_then(|()| base.canonicalize());
        let base = made.map_err(|e| Error::host("making", base, e, ""))?;
        let mut running = Vec::new();
        for program in PROGRAMS {
            let name = program.peer.name;
            if quick && !program.quick {
                notes.push(format!("{name} is left out of a quick run: it has to be built"));
                continue;
            }
            let dir = base.join(program.folder);
            fs::create_dir_all(&dir)
                .and_then(|()| fs::write(dir.join("dirs"), tree.dirs.join("\n")))
                .and_then(|()| fs::write(dir.join("files"), tree.files.join("\n")))
                .map_err(|e| Error::host("writing a list of paths in", &dir, e, ""))?;
            match (program.make)(&dir).and_then(|()| Running::start(program, &dir)) {
                Ok(program) => running.push(program),
                Err(why) => notes.push(format!("{name} is left out: {why}")),
            }
        }
        Ok(Programs { running, _temporary: temporary })
    }
}

/// A program that waits to be asked.
pub(super) struct Running {
    pub(super) peer: Peer,
    access: bool,
    threads: bool,
    dir: PathBuf,
    child: Mutex<Child>,
    /// It runs as long as this is open.
    _stdin: Option<ChildStdin>,
    /// Connections that no thread uses at the moment.
    idle: Mutex<Vec<Connection>>,
}

impl Running {
    fn start(program: &Program, dir: &Path) -> Result<Running, String> {
        let said = |e: io::Error| rcuwalk_host::describe(&e);
        let own = dir.join(program.command[0]);
        let path = if own.exists() { own.as_os_str() } else { program.command[0].as_ref() };
        // Of an earlier run that was killed.
        let _ = fs::remove_file(dir.join("socket"));
        let stderr = File::create(dir.join("stderr")).map_err(said)?;
        let mut command = Command::new(path);
        command.args(&program.command[1..]).current_dir(dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().map_err(said)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let running = Running {
            peer: program.peer.clone(),
            access: program.access,
            threads: program.threads,
            dir: dir.to_owned(),
            child: Mutex::new(child),
            _stdin: stdin,
            idle: Mutex::default(),
        };
        let mut line = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut line).map_err(said)?;
        }
        if line.trim() != "ready" {
            return Err(running.stderr());
        }
        let first = running.connect().map_err(|e| format!("{}: {}", said(e), running.stderr()))?;
        running.give_back(first);
        Ok(running)
    }

    /// The program as who makes a call, by that many threads, if it can, and still runs.
    pub(super) fn asked(&self, call: Call, threads: usize) -> Option<Box<dyn Contender + '_>> {
        let can = (call != Call::Access || self.access) && (threads == 1 || self.threads);
        if !can || self.last_words().is_some() {
            return None;
        }
        // The lists of the last situation are gone, and others may lie where they lay.
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.iter_mut().for_each(|connection| connection.told = None);
        Some(Box::new(Asked { program: self, call }))
    }

    /// What it said when it ended, if it did.
    pub(super) fn last_words(&self) -> Option<String> {
        let ended = self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait();
        let ended = ended.ok().flatten()?;
        Some(format!("{} ended too early ({ended}): {}", self.peer.name, self.stderr()))
    }

    fn stderr(&self) -> String {
        last_line(&fs::read(self.dir.join("stderr")).unwrap_or_default())
    }

    fn connect(&self) -> io::Result<Connection> {
        let mut stream = BufReader::new(UnixStream::connect(self.dir.join("socket"))?);
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let thread = line.trim().strip_prefix("thread ").and_then(|tid| Pid::from_raw(tid.parse().ok()?));
        let thread = thread.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Connection { stream, thread, pinned: None, told: None })
    }

    fn give_back(&self, connection: Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }

    fn with<T>(&self, ask: impl FnOnce(&mut Connection) -> io::Result<T>) -> io::Result<T> {
        let here = sched_getaffinity(None)?;
        let idle = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let at = idle.iter().position(|connection| connection.pinned == Some(here));
            at.or(idle.len().checked_sub(1)).map(|at| idle.swap_remove(at))
        };
        let mut connection = idle.map_or_else(|| self.connect(), Ok)?;
        if connection.pinned != Some(here) {
            sched_setaffinity(Some(connection.thread), &here)?;
            connection.pinned = Some(here);
        }
        let answer = ask(&mut connection)?;
        self.give_back(connection);
        Ok(answer)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
        let _ = fs::remove_file(self.dir.join("socket"));
    }
}

/// A thread of a program.
struct Connection {
    stream: BufReader<UnixStream>,
    thread: Pid,
    /// The processors it may use.
    pinned: Option<CpuSet>,
    /// The list it knows: where it lies, and how long it is.
    told: Option<(usize, usize)>,
}

impl Connection {
    fn batch(&mut self, call: &str, paths: &[CString], start: usize, count: usize) -> io::Result<Timed> {
        let list = (paths.as_ptr().addr(), paths.len());
        let mut request = String::new();
        if self.told != Some(list) {
            let _ = writeln!(request, "list {}", paths.len());
            for path in paths {
                let _ = writeln!(request, "{}", path.to_string_lossy());
            }
            self.told = Some(list);
        }
        let _ = writeln!(request, "{call} {start} {count}");
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let words = line.trim().split_once(' ');
        let timed = words.and_then(|(nanos, sum)| Some((nanos.parse().ok()?, sum.parse().ok()?)));
        let (nanos, sum) = timed.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Timed { nanos, sum })
    }
}

/// A program in one situation, which has one list of paths for all its threads.
struct Asked<'a> {
    program: &'a Running,
    call: Call,
}

impl Asked<'_> {
    fn word(&self) -> &'static str {
        match self.call {
            Call::Stat => "stat",
            Call::Access => "access",
            Call::Open => "open",
        }
    }
}

/// No sum of values: a batch that could not be done is a wrong one.
const FAILED: Timed = Timed { nanos: 1, sum: Value::MAX };

impl Contender for Asked<'_> {
    fn name(&self) -> &'static str {
        self.program.peer.name
    }

    fn batch(&self, _op: Op, paths: &[CString], start: usize, count: usize) -> Timed {
        let ask = |connection: &mut Connection| connection.batch(self.word(), paths, start, count);
        self.program.with(ask).unwrap_or(FAILED)
    }

    fn answer(&self, _op: Op, path: &CStr) -> Option<Value> {
        let ask = |connection: &mut Connection| {
            let timed = connection.batch(self.word(), &[path.to_owned()], 0, 1);
            connection.told = None;
            timed
        };
        Some(self.program.with(ask).unwrap_or(FAILED).sum)
    }
}

/// Writes the files of a program.
fn write(dir: &Path, files: &[(&str, &str)]) -> Result<(), String> {
    files
        .iter()
        .try_for_each(|(name, text)| fs::write(dir.join(name), text))
        .map_err(|e| rcuwalk_host::describe(&e))
}

/// Builds a Go program on a module; the reason if that cannot be.
fn go(dir: &Path, needs: &str, source: &str) -> Result<(), String> {
    let module = format!("module peers\n\ngo 1.23.1\n\nrequire {needs}\n");
    write(dir, &[("go.mod", &module), ("main.go", include_str!("programs/main.go.txt")), ("fs.go", source)])?;
    quietly(Command::new("go").args(["mod", "tidy"]).current_dir(dir), "go")?;
    quietly(Command::new("go").args(["build", "-o", "peer", "."]).current_dir(dir), "go")
}

/// Builds a Rust program on a crate whose dependencies are not for this tree.
fn cargo(dir: &Path, needs: &str, source: &str) -> Result<(), String> {
    let manifest = format!(
        "[package]\nname = \"peer\"\nversion = \"0.0.0\"\nedition = \"2024\"\nrust-version = \"1.95\"\n\
         [dependencies]\n{needs}\n[workspace]\n"
    );
    fs::create_dir_all(dir.join("src")).map_err(|e| rcuwalk_host::describe(&e))?;
    let main = include_str!("programs/main.rs.txt");
    write(dir, &[("Cargo.toml", &manifest), ("src/main.rs", main), ("src/fs.rs", source)])?;
    let target = dir.join("target");
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--quiet", "--target-dir"]).arg(target).current_dir(dir);
    quietly(&mut build, "cargo")
}

fn python(dir: &Path) -> Result<(), String> {
    write(dir, &[("peer.py", include_str!("programs/pyfakefs.py.txt"))])?;
    quietly(Command::new("python3").args(["-c", "import pyfakefs"]), "python3")
        .map_err(|why| format!("{why}; `pip install pyfakefs` installs it"))
}

/// Runs a command that says nothing when all is well; the last line it said otherwise.
fn quietly(command: &mut Command, name: &str) -> Result<(), String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{name}: {}", rcuwalk_host::describe(&e)))?;
    if output.status.success() {
        return Ok(());
    }
    Err(last_line(&output.stderr))
}

/// What a program said last, before it failed.
fn last_line(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("its program failed").to_owned()
}
