//! A task: a process that takes on an identity and then makes the calls it is told.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::args::Arg;
use crate::backend::THREAD;
use crate::host::exec;
use crate::identity::Identity;
use crate::op::Op;
use crate::outcome::Outcome;
use crate::raw;
use crate::sys::{Frame, Nr, SingleThreaded, exit_now, nr};
use crate::words::{CapSet, ProcFile};

/// Descriptors of the runner lie at or above this number, those of rows below.
pub(super) const FIRST_PRIVATE_FD: i32 = 900;

/// What a task is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Make these calls, answer them all.
    Calls(Vec<Op>),
    /// Fork, with these flags of clone(2); the child serves the spare channel of this number.
    Fork(usize, u64),
    /// Let other tasks look at this one as it lets itself.
    Open,
}

/// What a task answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The task has its identity.
    Ready,
    /// It has not.
    NotReady(String),
    /// The answers to the calls.
    Outcomes(Vec<Outcome>),
    /// The number of the forked child.
    Forked(i32),
    /// The error number of the clone(2).
    NotForked(i32),
}

/// Sends `message` with its length before it.
pub(crate) fn send<T: Serialize>(stream: &mut UnixStream, message: &T) -> Result<(), String> {
    let bytes = postcard::to_stdvec(message).map_err(|e| e.to_string())?;
    let mut framed = (bytes.len() as u32).to_ne_bytes().to_vec();
    framed.extend_from_slice(&bytes);
    stream.write_all(&framed).map_err(|e| format!("a task is gone: {e}"))
}

/// Receives what [`send`] sent; `None` if the other end has closed.
pub(crate) fn receive<T: DeserializeOwned>(stream: &mut UnixStream) -> Result<Option<T>, String> {
    let mut len = [0; 4];
    match stream.read_exact(&mut len) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(e) => return Err(format!("no answer from a task: {e}")),
    }
    let mut bytes = vec![0; u32::from_ne_bytes(len) as usize];
    stream.read_exact(&mut bytes).map_err(|e| format!("half an answer from a task: {e}"))?;
    postcard::from_bytes(&bytes).map(Some).map_err(|e| e.to_string())
}

/// What a task process has.
pub(super) struct Task {
    /// What makes forking safe; gone once there is a second thread.
    pub(super) single: Option<SingleThreaded>,
    pub(super) channel: UnixStream,
    /// Channels for children that it or another thread may fork.
    pub(super) spares: Arc<Mutex<Vec<Option<UnixStream>>>>,
    /// The host's `/proc`, which the world does not contain.
    pub(super) proc: Arc<OwnedFd>,
}

impl Task {
    /// Takes on `who` and serves until the channel closes. Runs in a process of its own and ends it.
    pub(super) fn serve(mut self, who: &Identity) -> ! {
        let answer = match become_identity(who) {
            Ok(()) => Answer::Ready,
            Err(why) => Answer::NotReady(why),
        };
        let ready = matches!(answer, Answer::Ready);
        if send(&mut self.channel, &answer).is_err() || !ready {
            exit_now(1);
        }
        self.serve_requests();
        exit_now(0)
    }

    /// Serves until the channel closes.
    fn serve_requests(&mut self) {
        while let Ok(Some(request)) = receive(&mut self.channel) {
            let answer = match request {
                Request::Calls(ops) => Answer::Outcomes(ops.iter().map(|op| self.perform(op)).collect()),
                Request::Fork(spare, THREAD) => self.thread(spare).unwrap_or_else(Answer::NotReady),
                Request::Fork(spare, flags) => self.fork(spare, flags),
                Request::Open => be_dumpable().map_or_else(Answer::NotReady, |()| Answer::Ready),
            };
            if send(&mut self.channel, &answer).is_err() {
                return;
            }
        }
    }

    /// Takes the spare channel of this number.
    fn spare(&self, number: usize) -> Option<UnixStream> {
        let mut spares = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        spares.get_mut(number).and_then(Option::take)
    }

    /// Starts a thread that serves the spare channel of this number. It makes its calls when it is told to, as others do.
    fn thread(&mut self, spare: usize) -> Result<Answer, String> {
        let channel = self.spare(spare).ok_or("no channel is left for a thread")?;
        let (spares, proc) = (Arc::clone(&self.spares), Arc::clone(&self.proc));
        self.single = None;
        let (tell, told) = std::sync::mpsc::channel();
        let work = move || {
            // Nobody listens only if this process is about to end.
            let _ = tell.send(must("gettid", nr::gettid, |_| ()));
            let mut task = Task { single: None, channel, spares, proc };
            if send(&mut task.channel, &Answer::Ready).is_ok() {
                task.serve_requests();
            }
        };
        std::thread::Builder::new().spawn(work).map_err(|e| e.to_string())?;
        let tid = told.recv().map_err(|e| e.to_string())??;
        Ok(Answer::Forked(tid as i32))
    }

    fn fork(&mut self, spare: usize, flags: u64) -> Answer {
        let Some(single) = &self.single else { return Answer::NotReady(THREADS.to_owned()) };
        let Some(channel) = self.spare(spare) else {
            return Answer::NotReady("no channel is left for a forked task".to_owned());
        };
        // What one closes in a shared table is closed for both.
        let shared = flags & libc::CLONE_FILES as u64 != 0;
        match single.clone_process(flags) {
            Err(e) => Answer::NotForked(e.raw_os_error().unwrap_or(libc::EIO)),
            Ok(Some(pid)) => {
                if shared {
                    let _ = channel.into_raw_fd();
                }
                Answer::Forked(pid)
            }
            Ok(None) => {
                let old = std::mem::replace(&mut self.channel, channel);
                if shared {
                    let _ = old.into_raw_fd();
                }
                if send(&mut self.channel, &Answer::Ready).is_err() {
                    exit_now(1);
                }
                self.serve_requests();
                exit_now(0)
            }
        }
    }

    /// Makes a call.
    fn perform(&self, op: &Op) -> Outcome {
        match op {
            Op::Execve { .. } | Op::Execveat { .. } | Op::Execvp { .. } => match &self.single {
                Some(single) => exec::perform(single, op),
                None => Outcome::Broken(THREADS.to_owned()),
            },
            Op::OpenUserns { uid_map, gid_map } => {
                let Some(single) = &self.single else { return Outcome::Broken(THREADS.to_owned()) };
                match super::world::open_userns(single, self.proc.as_raw_fd(), uid_map, gid_map) {
                    Ok(fd) => lowest_copy(&fd),
                    Err(why) => Outcome::Broken(why),
                }
            }
            Op::OpenProc { file, of } => self.open_proc(*file, &of.0),
            op => plain(op),
        }
    }

    /// Opens a file of the task whose number is `of`, or of this one.
    fn open_proc(&self, file: ProcFile, of: &str) -> Outcome {
        if let Err(why) = be_dumpable() {
            return Outcome::Broken(why);
        }
        let name = ProcFile::NAMES.iter().find(|(_, value)| *value == file.0).map_or("", |(name, _)| name);
        let whose = if of.is_empty() { "thread-self" } else { of };
        let mut frame = Frame::new();
        frame.int(self.proc.as_raw_fd() as u64);
        frame.string(format!("{whose}/{}", name.replace("ns_", "ns/")).as_bytes());
        let flags = if name.starts_with("ns_") { libc::O_RDONLY } else { libc::O_WRONLY };
        frame.int(flags as u64);
        frame.int(0);
        match frame.call(nr::openat) {
            Ok(fd) => Outcome::Fd(fd as i32),
            Err(errno) => Outcome::Error(errno),
        }
    }
}

/// What cannot be done any more when a process has a second thread.
const THREADS: &str = "a process with threads cannot fork here";

/// Makes what `/proc` shows of this process its own: changes of credentials have made it root's.
fn be_dumpable() -> Result<(), String> {
    prctl("PR_SET_DUMPABLE", libc::PR_SET_DUMPABLE, [1, 0]).map(drop)
}

/// A copy of `fd` at the lowest free number, as if the task had opened it.
fn lowest_copy(fd: &OwnedFd) -> Outcome {
    let mut frame = Frame::new();
    frame.int(fd.as_raw_fd() as u64);
    match frame.call(nr::dup) {
        Ok(fd) => Outcome::Fd(fd as i32),
        Err(errno) => Outcome::Error(errno),
    }
}

/// Makes a call that needs nothing but the present process.
pub(super) fn plain(op: &Op) -> Outcome {
    /// How often a scoped walk is tried again.
    const PATIENCE: usize = 1000;
    let scoped =
        matches!(op, Op::Openat2 { how, .. } if how.resolve.0 & 0x18 != 0 && how.resolve.0 & 0x20 == 0);
    for _ in 0..if scoped { PATIENCE } else { 0 } {
        // A scoped walk over `..` is EAGAIN when anybody on the machine renames or mounts meanwhile; callers are meant
        // to try again.
        match raw::plain(op, &mut raw::kernel) {
            Outcome::Error(libc::EAGAIN) => {}
            outcome => return outcome,
        }
    }
    raw::plain(op, &mut raw::kernel)
}

/// A call of the runner itself that must succeed.
pub(super) fn must(what: &str, number: Nr, fill: impl FnOnce(&mut Frame)) -> Result<i64, String> {
    let mut frame = Frame::new();
    fill(&mut frame);
    frame.call(number).map_err(|errno| format!("{what}: {}", crate::errno::name(errno)))
}

pub(super) fn prctl(what: &str, option: i32, args: [u64; 2]) -> Result<i64, String> {
    must(what, nr::prctl, |f| {
        f.int(option as u64);
        f.int(args[0]);
        f.int(args[1]);
        f.int(0);
        f.int(0);
    })
}

/// Takes on an identity, from root with every capability.
fn become_identity(who: &Identity) -> Result<(), String> {
    must("umask", nr::umask, |f| f.int(who.umask.0))?;
    must("chdir", nr::chdir, |f| f.string(&who.cwd))?;
    let full = capabilities()?[1];
    for cap in (0..64).filter(|c| full & !who.bounding.0 & 1 << c != 0) {
        prctl("dropping from the bounding set", libc::PR_CAPBSET_DROP, [cap, 0])?;
    }
    must("setgroups", nr::setgroups, |f| crate::args::IdList(who.groups.clone()).lower(f))?;
    // With NO_SETUID_FIXUP no change of ids touches the capabilities, which come last.
    const NO_SETUID_FIXUP: u64 = 4;
    prctl("PR_SET_SECUREBITS", libc::PR_SET_SECUREBITS, [NO_SETUID_FIXUP, 0])?;
    let three = |ids: [u32; 4]| move |f: &mut Frame| ids[..3].iter().for_each(|id| f.int(u64::from(*id)));
    must("setresgid", nr::setresgid, three(who.gids))?;
    must("setresuid", nr::setresuid, three(who.uids))?;
    must("setfsgid", nr::setfsgid, |f| f.int(u64::from(who.gids[3])))?;
    must("setfsuid", nr::setfsuid, |f| f.int(u64::from(who.uids[3])))?;
    prctl("PR_SET_SECUREBITS", libc::PR_SET_SECUREBITS, [who.securebits.0, 0])?;
    let within = |set: CapSet| CapSet(set.0 & full);
    let sets = crate::args::CapSets {
        effective: within(who.effective),
        permitted: within(who.permitted),
        inheritable: within(who.inheritable),
    };
    must("capset", nr::capset, |f| sets.lower(f))?;
    for cap in (0..64).filter(|c| who.ambient.0 & full & 1 << c != 0) {
        prctl("PR_CAP_AMBIENT_RAISE", libc::PR_CAP_AMBIENT, [libc::PR_CAP_AMBIENT_RAISE as u64, cap])?;
    }
    if who.no_new_privs {
        prctl("PR_SET_NO_NEW_PRIVS", libc::PR_SET_NO_NEW_PRIVS, [1, 0])?;
    }
    Ok(())
}

/// Effective, permitted, inheritable set of this process.
pub(super) fn capabilities() -> Result<[u64; 3], String> {
    match plain(&Op::Capget { out: crate::args::CapRoom }) {
        Outcome::Caps(sets) => Ok(sets),
        other => Err(format!("capget: {other}")),
    }
}
