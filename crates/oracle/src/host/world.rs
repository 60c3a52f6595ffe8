//! A world on the host kernel: a mount namespace and the processes in it.

use std::collections::BTreeMap;
#[cfg(feature = "engine")]
use std::fs;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::task::{Answer, FIRST_PRIVATE_FD, Request, Task, capabilities, must, plain, prctl, receive, send};
use super::{Place, sweep};
use crate::args::{IdMap, Name};
use crate::backend::{TaskId, World};
use crate::identity::Identity;
use crate::op::Op;
use crate::outcome::Outcome;
use crate::sys::{Frame, SingleThreaded, exit_now, move_fd, nr, wait};
use crate::words::ProcFile;

/// How many tasks a world can fork from others.
const SPARES: usize = 4;

/// The longest a call may take; rows that could block for ever are failures, not hangs.
const PATIENCE: Duration = Duration::from_secs(10);

const MS_BIND: u64 = 0x1000;
const MS_REC: u64 = 0x4000;
const MS_PRIVATE: u64 = 1 << 18;
const MNT_DETACH: u64 = 2;

/// A process that serves one task.
struct Process {
    pid: i32,
    channel: UnixStream,
}

/// This process's mount namespace and the tasks it has forked.
pub(crate) struct HostWorld {
    single: SingleThreaded,
    #[cfg(feature = "engine")]
    place: Place,
    proc: OwnedFd,
    tasks: Vec<Process>,
    /// Our ends and the tasks' ends of channels for forked tasks.
    spares: Vec<(Option<UnixStream>, UnixStream)>,
    next_spare: usize,
    full_caps: u64,
    /// Machine-wide settings to put back.
    settings: BTreeMap<String, String>,
}

/// Moves a descriptor out of the numbers that rows see.
fn private(fd: impl Into<OwnedFd>) -> Result<OwnedFd, String> {
    move_fd(fd.into(), FIRST_PRIVATE_FD).map_err(|e| e.to_string())
}

fn pair() -> Result<(UnixStream, UnixStream), String> {
    let (ours, theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
    ours.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
    Ok((private(ours)?.into(), private(theirs)?.into()))
}

impl HostWorld {
    /// Moves this process into a world of its own; there is no way back, so it is a process made for it.
    pub(crate) fn new(single: &SingleThreaded, place: &Place) -> Result<HostWorld, String> {
        let full_caps = capabilities()?[1];
        must("umask", nr::umask, |f| f.int(0))?;
        // Tasks that tasks forked are ours to wait for: until we do, they count for their users' limits.
        prctl("PR_SET_CHILD_SUBREAPER", libc::PR_SET_CHILD_SUBREAPER, [1, 0])?;
        let proc = private(File::open("/proc").map_err(|e| format!("/proc: {e}"))?)?;
        must("unshare(CLONE_NEWNS)", nr::unshare, |f| f.int(libc::CLONE_NEWNS as u64))?;
        mount("making mounts private", None, Path::new("/"), None, MS_REC | MS_PRIVATE, None)?;
        match place {
            Place::Tmpfs => {
                let at = Path::new("/tmp");
                mount_tmpfs(at)?;
                enter(at)?;
            }
            Place::Dir(dir) => {
                let world = sweep::make(dir, &sweep::name_of(std::process::id()))?;
                let path = world.to_string_lossy().into_owned();
                mount("binding the directory", Some(&path), &world, None, MS_BIND, None)?;
                enter(&world)?;
            }
        }
        let spares = (0..SPARES)
            .map(|_| pair().map(|(ours, theirs)| (Some(ours), theirs)))
            .collect::<Result<_, _>>()?;
        Ok(HostWorld {
            single: single.clone(),
            #[cfg(feature = "engine")]
            place: place.clone(),
            proc,
            tasks: Vec::new(),
            spares,
            next_spare: 0,
            full_caps,
            settings: BTreeMap::new(),
        })
    }

    /// Ends all tasks and begins with an empty tree: much cheaper than a new world.
    #[cfg(feature = "engine")]
    pub(crate) fn renew(&mut self) -> Result<(), String> {
        self.end_tasks();
        for spare in &mut self.spares[..self.next_spare] {
            let (ours, theirs) = pair()?;
            *spare = (Some(ours), theirs);
        }
        self.next_spare = 0;
        let root = Path::new("/");
        clear_flags(root);
        remove_children(root);
        if self.place == Place::Tmpfs {
            // An emptied directory knows how many names it has had: offsets show that.
            let at = Path::new("/root");
            fs::create_dir(at).map_err(|e| format!("{}: {e}", at.display()))?;
            mount_tmpfs(at)?;
            return enter(at);
        }
        must("chown", nr::chown, |f| {
            f.string(b"/");
            f.int(0);
            f.int(0);
        })?;
        remove_attributes(root)?;
        must("chmod", nr::chmod, |f| {
            f.string(b"/");
            f.int(0o755);
        })
        .map(drop)
    }

    /// Kills the tasks and waits for them.
    fn end_tasks(&mut self) {
        for process in self.tasks.drain(..) {
            kill(process.pid);
            // It may have been waited for.
            let _ = wait(process.pid, true);
        }
    }

    /// What the new process of a task keeps, and nothing else of ours.
    fn become_task(&self, channel: UnixStream) -> Result<Task, String> {
        let spares: Vec<Option<UnixStream>> = self
            .spares
            .iter()
            .map(|(_, theirs)| theirs.try_clone().map_err(|e| e.to_string()).map(Some))
            .collect::<Result<_, _>>()?;
        let spares = spares
            .into_iter()
            .map(|s| s.map(private).transpose().map(|fd| fd.map(UnixStream::from)))
            .collect::<Result<Vec<_>, _>>()?;
        let proc = private(self.proc.try_clone().map_err(|e| e.to_string())?)?;
        let mut keep: Vec<i32> = spares.iter().flatten().map(AsRawFd::as_raw_fd).collect();
        keep.extend([channel.as_raw_fd(), proc.as_raw_fd()]);
        close_all_but(&mut keep)?;
        Ok(Task {
            single: Some(self.single.clone()),
            channel,
            spares: Arc::new(Mutex::new(spares)),
            proc: Arc::new(proc),
        })
    }

    fn ask(&mut self, task: TaskId, request: &Request) -> Result<Answer, String> {
        let process = self.tasks.get_mut(task).ok_or("no such task")?;
        send(&mut process.channel, request)?;
        match receive(&mut process.channel)? {
            Some(answer) => Ok(answer),
            None => Err("the task ended".to_owned()),
        }
    }

    /// Makes calls that one task makes, in one exchange.
    fn batch(&mut self, task: TaskId, ops: &[Op]) -> Vec<Outcome> {
        let broken = |why: String| vec![Outcome::Broken(why); ops.len()];
        match self.ask(task, &Request::Calls(ops.to_vec())) {
            Ok(Answer::Outcomes(outcomes)) if outcomes.len() == ops.len() => outcomes,
            Ok(other) => broken(format!("unexpected answer {other:?}")),
            Err(why) => broken(why),
        }
    }

    fn sysctl(&mut self, name: &str, value: i64) -> Result<(), String> {
        let path = format!("sys/{}", name.replace('.', "/"));
        let old = read_at(self.proc.as_raw_fd(), &path)?;
        self.settings.entry(path.clone()).or_insert(old);
        write_at(self.proc.as_raw_fd(), &path, &value.to_string())
    }
}

/// mount(2).
fn mount(
    what: &str,
    source: Option<&str>,
    target: &Path,
    fstype: Option<&str>,
    flags: u64,
    data: Option<&str>,
) -> Result<(), String> {
    let string = |f: &mut Frame, s: Option<&str>| match s {
        Some(s) => f.string(s.as_bytes()),
        None => f.null(),
    };
    must(what, nr::mount, |f| {
        string(f, source);
        f.string(target.as_os_str().as_encoded_bytes());
        string(f, fstype);
        f.int(flags);
        string(f, data);
    })
    .map(drop)
}

fn mount_tmpfs(at: &Path) -> Result<(), String> {
    mount("mounting a tmpfs", Some("rcuwalk-oracle"), at, Some("tmpfs"), 0, Some("mode=0755"))
}

/// Makes the mount at `root` the root of this mount namespace and takes everything else away.
fn enter(root: &Path) -> Result<(), String> {
    must("chdir", nr::chdir, |f| f.string(root.as_os_str().as_encoded_bytes()))?;
    must("pivot_root (is / an initial ramfs?)", nr::pivot_root, |f| {
        f.string(b".");
        f.string(b".");
    })?;
    must("umount of the old root", nr::umount2, |f| {
        f.string(b".");
        f.int(MNT_DETACH);
    })?;
    must("chdir", nr::chdir, |f| f.string(b"/")).map(drop)
}

/// Closes every descriptor but those in `keep`.
fn close_all_but(keep: &mut [i32]) -> Result<(), String> {
    keep.sort_unstable();
    let close = |first: u64, last: u64| {
        must("close_range", nr::close_range, |f| {
            f.int(first);
            f.int(last);
            f.int(0);
        })
    };
    let mut first = 0;
    for fd in keep.iter().map(|fd| *fd as u64) {
        if first < fd {
            close(first, fd - 1)?;
        }
        first = fd + 1;
    }
    close(first, u64::from(u32::MAX)).map(drop)
}

/// Opens `path` below the directory `dir`.
fn open_at(dir: i32, path: &str, flags: i32) -> Result<OwnedFd, String> {
    let mut frame = Frame::new();
    frame.int(dir as u64);
    frame.string(path.as_bytes());
    frame.int((flags | libc::O_CLOEXEC) as u64);
    frame.int(0);
    private(frame.open(nr::openat).map_err(|errno| format!("{path}: {}", crate::errno::name(errno)))?)
}

fn read_at(dir: i32, path: &str) -> Result<String, String> {
    let mut text = String::new();
    File::from(open_at(dir, path, libc::O_RDONLY)?)
        .read_to_string(&mut text)
        .map_err(|e| format!("{path}: {e}"))?;
    Ok(text)
}

fn write_at(dir: i32, path: &str, text: &str) -> Result<(), String> {
    File::from(open_at(dir, path, libc::O_WRONLY)?)
        .write_all(text.as_bytes())
        .map_err(|e| format!("{path}: {e}"))
}

/// Writes the id maps of process `pid`; the error number of the write that failed.
fn map_ids(proc: i32, pid: i32, uid_map: &IdMap, gid_map: &IdMap) -> Result<(), i32> {
    for (name, map) in [("uid_map", uid_map), ("gid_map", gid_map)] {
        let write = || {
            let fd =
                open_at(proc, &format!("{pid}/{name}"), libc::O_WRONLY).map_err(std::io::Error::other)?;
            File::from(fd).write_all(map.text().as_bytes())
        };
        write().map_err(|e: std::io::Error| e.raw_os_error().unwrap_or(libc::EIO))?;
    }
    Ok(())
}

/// A new user namespace with these maps.
pub(super) fn open_userns(
    single: &SingleThreaded,
    proc: i32,
    uid_map: &IdMap,
    gid_map: &IdMap,
) -> Result<OwnedFd, String> {
    let (mut ready, tell) = std::io::pipe().map_err(|e| e.to_string())?;
    match single.fork().map_err(|e| e.to_string())? {
        None => {
            let made = must("unshare(CLONE_NEWUSER)", nr::unshare, |f| f.int(libc::CLONE_NEWUSER as u64));
            drop(ready);
            let mut tell = tell;
            if made.is_err() || tell.write_all(b"!").is_err() {
                exit_now(1);
            }
            // The namespace lives as long as this process; the parent ends it.
            loop {
                std::thread::sleep(PATIENCE);
            }
        }
        Some(pid) => {
            drop(tell);
            let mut byte = [0];
            let made = ready.read_exact(&mut byte).map_err(|_| "unshare(CLONE_NEWUSER) failed".to_owned());
            let opened = made
                .and_then(|()| map_ids(proc, pid, uid_map, gid_map).map_err(crate::errno::name))
                .and_then(|()| open_at(proc, &format!("{pid}/ns/user"), libc::O_RDONLY));
            kill(pid);
            let _ = wait(pid, true);
            opened
        }
    }
}

fn kill(pid: i32) {
    let mut frame = Frame::new();
    frame.int(pid as u64);
    frame.int(libc::SIGKILL as u64);
    // It may have ended by itself.
    let _ = frame.call(nr::kill);
}

impl World for HostWorld {
    fn spawn(&mut self, who: &Identity) -> Result<TaskId, String> {
        let (ours, theirs) = pair()?;
        match self.single.fork().map_err(|e| e.to_string())? {
            None => match self.become_task(theirs) {
                Ok(task) => task.serve(who),
                Err(_) => exit_now(1),
            },
            Some(pid) => {
                drop(theirs);
                self.tasks.push(Process { pid, channel: ours });
            }
        }
        let task = self.tasks.len() - 1;
        match receive(&mut self.tasks[task].channel)? {
            Some(Answer::Ready) => Ok(task),
            Some(Answer::NotReady(why)) => Err(why),
            other => Err(format!("unexpected answer {other:?}")),
        }
    }

    fn fork(&mut self, task: TaskId, flags: u64) -> Result<TaskId, Outcome> {
        let broken = |why: String| Outcome::Broken(why);
        let spare = self.next_spare;
        self.next_spare += 1;
        let pid = match self.ask(task, &Request::Fork(spare, flags)).map_err(broken)? {
            Answer::Forked(pid) => pid,
            Answer::NotForked(errno) => return Err(Outcome::Error(errno)),
            other => return Err(Outcome::Broken(format!("fork: {other:?}"))),
        };
        let channel = self.spares.get_mut(spare).and_then(|(ours, _)| ours.take());
        let mut channel = channel.ok_or_else(|| broken("no channel is left".to_owned()))?;
        match receive(&mut channel).map_err(broken)? {
            Some(Answer::Ready) => {
                self.tasks.push(Process { pid, channel });
                Ok(self.tasks.len() - 1)
            }
            other => Err(Outcome::Broken(format!("fork: {other:?}"))),
        }
    }

    fn open_proc(&mut self, task: TaskId, of: TaskId, file: ProcFile) -> Outcome {
        let pid = match self.ask(of, &Request::Open) {
            Ok(Answer::Ready) => self.tasks[of].pid,
            other => return Outcome::Broken(format!("letting others look: {other:?}")),
        };
        self.call(task, &Op::OpenProc { file, of: Name(pid.to_string()) })
    }

    fn call(&mut self, task: TaskId, op: &Op) -> Outcome {
        let done = |result: Result<(), String>| result.map_or_else(Outcome::Broken, |()| Outcome::Done);
        match op {
            Op::Sysctl { name, value } => done(self.sysctl(&name.0, value.0)),
            Op::MapIds { uid_map, gid_map } => match self.tasks.get(task) {
                Some(process) => match map_ids(self.proc.as_raw_fd(), process.pid, uid_map, gid_map) {
                    Ok(()) => Outcome::Done,
                    Err(errno) => Outcome::Error(errno),
                },
                None => Outcome::Broken("no such task".to_owned()),
            },
            op => self.batch(task, std::slice::from_ref(op)).remove(0),
        }
    }

    fn calls(&mut self, task: TaskId, ops: &[Op]) -> Vec<Outcome> {
        // Some calls are not the task's to make.
        if ops.iter().any(|op| matches!(op, Op::Sysctl { .. } | Op::MapIds { .. })) {
            return ops.iter().map(|op| self.call(task, op)).collect();
        }
        self.batch(task, ops)
    }

    fn outsider(&mut self, op: &Op) -> Outcome {
        plain(op)
    }

    fn full_caps(&self) -> u64 {
        self.full_caps
    }

    fn program(&self) -> Vec<u8> {
        super::exec::program()
    }
}

impl Drop for HostWorld {
    fn drop(&mut self) {
        self.end_tasks();
        for (path, value) in &self.settings {
            if let Err(why) = write_at(self.proc.as_raw_fd(), path, value.trim()) {
                eprintln!("could not restore {path} to {value}: {why}");
            }
        }
    }
}

/// Takes the mounts at `path` away, but for those that must stay.
#[cfg(feature = "engine")]
fn unmount(path: &Path) {
    const UMOUNT_NOFOLLOW: u64 = 8;
    let once = || {
        let mut frame = Frame::new();
        frame.string(path.as_os_str().as_encoded_bytes());
        // A link must not lead to the mount it points to: it may be the root.
        frame.int(MNT_DETACH | UMOUNT_NOFOLLOW);
        frame.call(nr::umount2)
    };
    // Most paths are no mounts; some are several.
    while once().is_ok() {}
}

/// Removes everything below `dir`, immutable objects and mounts included.
#[cfg(feature = "engine")]
fn remove_children(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        unmount(&path);
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() || kind.is_file() {
            clear_flags(&path);
        }
        if kind.is_dir() {
            remove_children(&path);
            let _ = fs::remove_dir(&path);
        } else {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Removes every extended attribute.
#[cfg(feature = "engine")]
fn remove_attributes(path: &Path) -> Result<(), String> {
    let path = path.as_os_str().as_encoded_bytes();
    let mut frame = Frame::new();
    frame.string(path);
    frame.room(65536);
    frame.int(65536);
    let len = frame.call(nr::listxattr).map_err(crate::errno::name)?;
    for name in frame.out()[..len as usize].split(|b| *b == 0).filter(|n| !n.is_empty()) {
        must("removexattr", nr::removexattr, |f| {
            f.string(path);
            f.string(name);
        })?;
    }
    Ok(())
}

#[cfg(feature = "engine")]
fn clear_flags(path: &Path) {
    let Ok(file) = File::open(path) else { return };
    sweep::thaw_file(&file);
}
