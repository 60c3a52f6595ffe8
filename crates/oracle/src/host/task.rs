//! A task: a process that takes on an identity and then makes the calls it is told.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::args::Arg;
use crate::host::exec;
use crate::identity::Identity;
use crate::op::Op;
use crate::outcome::{Kind, Outcome, Stat};
use crate::sys::{Frame, Nr, SingleThreaded, exit_now, nr};
use crate::words::CapSet;

/// Descriptors of the runner lie at or above this number, those of rows below.
pub(super) const FIRST_PRIVATE_FD: i32 = 900;

/// What a task is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Make these calls, answer them all.
    Calls(Vec<Op>),
    /// Fork; the child serves the spare channel of this number.
    Fork(usize),
    /// Report the state of the whole tree.
    #[cfg(feature = "engine")]
    Snapshot,
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
    /// The process id of the forked child.
    Forked(i32),
    /// The state of the whole tree.
    #[cfg(feature = "engine")]
    Snapshot(crate::fuzz::Snapshot),
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
    pub(super) single: SingleThreaded,
    pub(super) channel: UnixStream,
    /// Channels for children it may fork.
    pub(super) spares: Vec<Option<UnixStream>>,
    /// The host's `/proc`, which the world does not contain.
    pub(super) proc: OwnedFd,
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
        self.serve_requests()
    }

    fn serve_requests(&mut self) -> ! {
        loop {
            let answer = match receive(&mut self.channel) {
                Ok(Some(Request::Calls(ops))) => {
                    Answer::Outcomes(ops.iter().map(|op| self.perform(op)).collect())
                }
                Ok(Some(Request::Fork(spare))) => self.fork(spare),
                #[cfg(feature = "engine")]
                Ok(Some(Request::Snapshot)) => {
                    Answer::Snapshot(crate::fuzz::take_snapshot(&mut |op| self.perform(op)))
                }
                Ok(None) | Err(_) => exit_now(0),
            };
            if send(&mut self.channel, &answer).is_err() {
                exit_now(1);
            }
        }
    }

    fn fork(&mut self, spare: usize) -> Answer {
        let Some(channel) = self.spares.get_mut(spare).and_then(Option::take) else {
            return Answer::NotReady("no channel is left for a forked task".to_owned());
        };
        match self.single.fork() {
            Err(e) => Answer::NotReady(e.to_string()),
            Ok(Some(pid)) => Answer::Forked(pid),
            Ok(None) => {
                self.channel = channel;
                if send(&mut self.channel, &Answer::Ready).is_err() {
                    exit_now(1);
                }
                self.serve_requests()
            }
        }
    }

    /// Makes a call.
    fn perform(&self, op: &Op) -> Outcome {
        match op {
            Op::Execve { .. } | Op::Execveat { .. } | Op::Execvp { .. } => exec::perform(&self.single, op),
            Op::Getgroups {} => getgroups(),
            Op::Getflags { fd } => getflags(fd.raw()),
            Op::Setrlimit { resource, soft } => match set_soft_limit(resource.0, soft.soft) {
                Ok(_) => Outcome::Done,
                Err(errno) => Outcome::Error(errno),
            },
            Op::OpenUserns { uid_map, gid_map } => {
                match super::world::open_userns(&self.single, self.proc.as_raw_fd(), uid_map, gid_map) {
                    Ok(fd) => lowest_copy(&fd),
                    Err(why) => Outcome::Broken(why),
                }
            }
            op => syscall(op),
        }
    }
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

/// Makes a call that is one system call.
fn syscall(op: &Op) -> Outcome {
    /// How often a scoped walk is tried again.
    const PATIENCE: usize = 1000;
    let scoped =
        matches!(op, Op::Openat2 { how, .. } if how.resolve.0 & 0x18 != 0 && how.resolve.0 & 0x20 == 0);
    for _ in 0..if scoped { PATIENCE } else { 0 } {
        // A scoped walk over `..` is EAGAIN when anybody on the machine renames or mounts meanwhile; callers are meant
        // to try again.
        match once(op) {
            Outcome::Error(libc::EAGAIN) => {}
            outcome => return outcome,
        }
    }
    once(op)
}

fn once(op: &Op) -> Outcome {
    let mut frame = Frame::new();
    let Some(number) = op.lower(&mut frame) else {
        return Outcome::Broken(format!("`{}` is not for a task", op.name()));
    };
    match frame.call(number) {
        Ok(ret) => decode(op, ret, frame.out()),
        Err(errno) => Outcome::Error(errno),
    }
}

/// The answer of a successful call.
fn decode(op: &Op, ret: i64, out: &[u8]) -> Outcome {
    match op.kind() {
        Kind::Done => Outcome::Done,
        Kind::Number => Outcome::Number(ret),
        Kind::Fd => Outcome::Fd(ret as i32),
        Kind::Stat => Outcome::Stat(Box::new(Stat::from_stat(out))),
        Kind::Statx => Outcome::Stat(Box::new(Stat::from_statx(out))),
        // The length alone was asked for.
        Kind::Bytes | Kind::Names if room_of(op) == Some(0) => Outcome::Number(ret),
        Kind::Bytes => {
            let mut bytes = out[..(ret as usize).min(out.len())].to_vec();
            if matches!(op, Op::Getcwd { .. }) {
                bytes.pop();
            }
            Outcome::Bytes(bytes)
        }
        Kind::Names => {
            let bytes = &out[..(ret as usize).min(out.len())];
            Outcome::Names(bytes.split_inclusive(|b| *b == 0).map(|n| n[..n.len() - 1].to_vec()).collect())
        }
        Kind::Entries => Outcome::Entries(entries(&out[..ret as usize])),
        Kind::Ids => Outcome::Ids(out.chunks_exact(4).map(word).collect()),
        Kind::Caps => {
            let words: Vec<u64> = out.chunks_exact(4).map(|b| u64::from(word(b))).collect();
            Outcome::Caps([words[0] | words[3] << 32, words[1] | words[4] << 32, words[2] | words[5] << 32])
        }
        Kind::Exec => Outcome::Broken("execve returned".to_owned()),
    }
}

fn word(b: &[u8]) -> u32 {
    u32::from_ne_bytes([b[0], b[1], b[2], b[3]])
}

/// The room a call of kind bytes or names was given.
fn room_of(op: &Op) -> Option<i64> {
    Some(match op {
        Op::Getxattr { room, .. }
        | Op::Lgetxattr { room, .. }
        | Op::Fgetxattr { room, .. }
        | Op::Listxattr { room, .. }
        | Op::Llistxattr { room, .. }
        | Op::Flistxattr { room, .. }
        | Op::Listxattrat { room, .. } => room.size,
        Op::Getxattrat { args, .. } => i64::from(args.size),
        _ => return None,
    })
}

/// The records of getdents64.
fn entries(mut out: &[u8]) -> Vec<(Vec<u8>, u8)> {
    let mut entries = Vec::new();
    while out.len() > 19 {
        let len = usize::from(u16::from_ne_bytes([out[16], out[17]]));
        let name = &out[19..len];
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        entries.push((name[..end].to_vec(), out[18]));
        out = &out[len..];
    }
    entries
}

fn getflags(fd: i32) -> Outcome {
    const FS_IOC_GETFLAGS: u64 = 0x8008_6601;
    let mut frame = Frame::new();
    frame.int(i64::from(fd) as u64);
    frame.int(FS_IOC_GETFLAGS);
    frame.room(8);
    match frame.call(nr::ioctl) {
        Ok(_) => Outcome::Number(i64::from(word(&frame.out()[..4]))),
        Err(errno) => Outcome::Error(errno),
    }
}

fn getgroups() -> Outcome {
    const MOST: u64 = 65536;
    let mut frame = Frame::new();
    frame.int(MOST);
    frame.room(MOST as usize * 4);
    match frame.call(nr::getgroups) {
        Ok(n) => Outcome::Ids(frame.out().chunks_exact(4).take(n as usize).map(word).collect()),
        Err(errno) => Outcome::Error(errno),
    }
}

/// Sets the soft limit of a resource and keeps the hard one; the old soft limit.
pub(super) fn set_soft_limit(resource: u64, soft: u64) -> Result<u64, i32> {
    let mut frame = Frame::new();
    frame.int(0);
    frame.int(resource);
    frame.null();
    frame.room(16);
    frame.call(nr::prlimit64)?;
    let old = frame.out();
    let half = |b: &[u8]| u64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
    let (old_soft, hard) = (half(&old[..8]), half(&old[8..16]));
    let mut frame = Frame::new();
    frame.int(0);
    frame.int(resource);
    frame.bytes(&[soft.min(hard).to_ne_bytes(), hard.to_ne_bytes()].concat());
    frame.null();
    frame.call(nr::prlimit64)?;
    Ok(old_soft)
}

/// A call of the runner itself that must succeed.
pub(super) fn must(what: &str, number: Nr, fill: impl FnOnce(&mut Frame)) -> Result<i64, String> {
    let mut frame = Frame::new();
    fill(&mut frame);
    frame.call(number).map_err(|errno| format!("{what}: {}", crate::errno::name(errno)))
}

fn prctl(what: &str, option: i32, args: [u64; 2]) -> Result<i64, String> {
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
    match syscall(&Op::Capget { out: crate::args::CapRoom }) {
        Outcome::Caps(sets) => Ok(sets),
        other => Err(format!("capget: {other}")),
    }
}
