//! `rcuwalk umount`, and what umount(8) calls as `umount.fuse.rcuwalk`: unmounts a tree, and waits until its server has told how the
//! last commit went.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use clap::Args;
use rcuwalk_fuse::ABOUT;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, MemfdFlags, StatxFlags, memfd_create, statx};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::output::{Done, Failure, complain};

const HELP: &str = "\
First everything is committed; if that fails, the tree stays mounted. Exit code 0: the tree is unmounted, and what was done in it is in \
the image, if it has one. Exit code 2: standard error says what went wrong, and whether it is still mounted.

umount(8) calls this program if it is also installed as /sbin/umount.fuse.rcuwalk.

Example:
  rcuwalk umount /mnt && cp kept.image /backup";

/// A tree to be unmounted.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct UmountArgs {
    /// Where it is mounted
    #[arg(value_hint = clap::ValueHint::DirPath)]
    mountpoint: PathBuf,
    /// Take it out of sight although something uses it; then the end of the server is not waited for
    #[arg(short, long)]
    lazy: bool,
    /// Unmount although what was done cannot be committed: it is lost then
    #[arg(short, long)]
    force: bool,
}

/// Where a server leaves how it ended: a file in memory, which others reach as `/proc/PID/fd/N`.
#[derive(Debug)]
pub(crate) struct Verdict(File);

/// What a server leaves there if all is well.
const WELL: &str = "ok";

/// How the names of these files begin.
const NAME: &str = "rcuwalk-verdict-";

impl Verdict {
    pub(crate) fn new() -> io::Result<Verdict> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let name = format!(
            "{NAME}{}-{}",
            std::process::id(),
            now.tv_sec as i128 * 1_000_000_000 + now.tv_nsec as i128
        );
        Ok(Verdict(memfd_create(name, MemfdFlags::CLOEXEC)?.into()))
    }

    /// What the mounted tree tells of its server, as [`Server::find`] reads it.
    pub(crate) fn about(&self) -> io::Result<String> {
        use std::os::fd::AsRawFd;
        let own = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        let name = std::fs::read_link(own)?;
        Ok(format!("{} {} {}", std::process::id(), self.0.as_raw_fd(), name.display()))
    }

    /// Leaves word: nothing, or what went wrong.
    pub(crate) fn leave(&self, wrong: &[String]) {
        let text = if wrong.is_empty() { WELL.to_owned() } else { wrong.join("; ") };
        // A file in memory; if there is none, that no word was left is an error where it is read.
        let _ = self.0.write_all_at(text.as_bytes(), 0);
    }
}

/// The server of a mounted tree.
#[derive(Debug)]
struct Server {
    pid: Pid,
    process: OwnedFd,
    verdict: File,
}

impl Server {
    /// The process that serves what is mounted at `point`.
    fn find(point: &Path) -> io::Result<Server> {
        let mut about = [0; 256];
        let len = rustix::fs::getxattr(point, ABOUT, &mut about)?;
        let unknown = || io::Error::other("its server cannot be told: is it in another pid namespace?");
        let text = std::str::from_utf8(&about[..len]).map_err(|_| unknown())?;
        let mut words = text.splitn(3, ' ');
        let mut word = || words.next().ok_or_else(unknown);
        let (pid, fd, name) = (word()?, word()?, word()?);
        let pid = pid.parse().ok().and_then(Pid::from_raw).ok_or_else(unknown)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| unknown())?;
        let path = format!("/proc/{}/fd/{fd}", pid.as_raw_nonzero());
        // Now that the file is found under its name, the process is the one that was meant.
        if std::fs::read_link(&path)?.as_os_str() != name {
            return Err(unknown());
        }
        Ok(Server { pid, process, verdict: File::open(path)? })
    }

    /// Waits until it has ended, and says how.
    fn wait(&self) -> Result<(), String> {
        let pid = self.pid.as_raw_nonzero();
        let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
        let mut told = false;
        loop {
            match poll(&mut [PollFd::new(&self.process, PollFlags::IN)], Some(&patience)) {
                Ok(0) if !told => {
                    complain(format_args!(
                        "note: waiting for process {pid} to end; the tree may still be mounted in another mount namespace"
                    ));
                    told = true;
                }
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => break,
                Err(e) => return Err(format!("waiting for process {pid}: {e}")),
            }
        }
        match io::read_to_string(&self.verdict) {
            Ok(text) if text == WELL => Ok(()),
            Ok(text) if text.is_empty() => {
                Err(format!("its server, process {pid}, was killed; what had not been committed is lost"))
            }
            Ok(text) => Err(text),
            Err(e) => Err(format!("how process {pid} ended cannot be read: {e}")),
        }
    }
}

pub(crate) fn run(args: &UmountArgs) -> Done {
    let point = match args.mountpoint.canonicalize() {
        Ok(point) => point,
        // What the kernel says of a tree without a server.
        Err(e) if e.kind() == io::ErrorKind::NotConnected => args.mountpoint.clone(),
        Err(e) => {
            return Err(failed(
                &args.mountpoint,
                &format!("{e}; name the directory that a tree is mounted on"),
            ));
        }
    };
    let failed = |why: &str| failed(&point, why);
    let mounts = rcuwalk_host::mounts().map_err(|e| failed(&format!("/proc/self/mountinfo: {e}")))?;
    let here = mounts.iter().rev().find(|mount| mount.point == point);
    if here.is_none_or(|mount| mount.fs_type != "fuse.rcuwalk") {
        return Err(failed("no tree of rcuwalk is mounted there; see `findmnt -t fuse.rcuwalk`"));
    }
    let server = Server::find(&point);
    if server.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotConnected) {
        let gone = rcuwalk_fuse::unmount(&point, true);
        let gone =
            gone.map_or_else(|e| format!("it is still mounted: {e}"), |()| "it is unmounted now".into());
        return Err(failed(&format!("its server was gone, and what it had not committed is lost; {gone}")));
    }
    // Of the whole tree, if something keeps it.
    let synced = File::open(&point).and_then(|root| root.sync_all());
    match synced {
        Err(e) if !args.force => {
            return Err(failed(&format!(
                "it is still mounted: what was done cannot be committed: {e}; make room on the disk under the image, or lose it with --force"
            )));
        }
        _ => {}
    }
    let device = |point: &Path| {
        let st =
            statx(CWD, point, AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT, StatxFlags::empty()).ok()?;
        Some((st.stx_dev_major, st.stx_dev_minor))
    };
    let own = device(&point);
    let others = mounts.iter().filter(|mount| mount.fs_type == "fuse.rcuwalk" && mount.point != point);
    let other = others.map(|mount| &mount.point).find(|other| device(other) == own);
    rcuwalk_fuse::unmount(&point, args.lazy).map_err(|e| {
        failed(&format!("it is still mounted: {e}; end what uses it (see `fuser -vm`), or use --lazy"))
    })?;
    if let Some(other) = other {
        complain(format_args!(
            "note: {} is unmounted and committed; the same tree is mounted on {}",
            point.display(),
            other.display()
        ));
        return Ok(());
    }
    if args.lazy {
        complain(format_args!(
            "note: {} is out of sight, and what was done till now is committed; its server goes on until nothing uses the tree",
            point.display()
        ));
        return Ok(());
    }
    let server =
        server.map_err(|e| failed(&format!("it is unmounted; how its server ends is unknown: {e}")))?;
    server.wait().map_err(|why| failed(&format!("it is unmounted, but {why}")))
}

fn failed(point: &Path, why: &str) -> Failure {
    Failure::Error(format!("unmounting: {}: {why}", point.display()))
}
