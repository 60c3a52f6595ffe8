//! Mounting and unmounting.

use std::env;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rcuwalk::{Errno, Vfs};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::covers::Covers;
use crate::options::Options;
use crate::server::Server;
use crate::session::Session;

/// Why nothing was mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point is missing, no directory, or cannot be looked at.
    #[error("{point}: {why}; name a directory that exists, as in `mkdir -p {point}`")]
    Point {
        /// Where it was to be mounted.
        point: PathBuf,
        /// What is wrong there.
        why: String,
    },
    /// The kernel has no FUSE, or the device may not be opened.
    #[error("/dev/fuse: {0}; `modprobe fuse`, or give this container the device (--device /dev/fuse)")]
    Device(io::Error),
    /// The kernel, or fusermount3, refuses.
    #[error("{point}: {why}; {hint}")]
    Refused {
        /// Where it was to be mounted.
        point: PathBuf,
        /// What they say.
        why: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// The engine has no room for the server's own descriptors.
    #[error("starting the server: {0}")]
    Engine(#[from] Errno),
}

/// A mounted tree, served by threads of this process. Dropping it unmounts.
#[derive(Debug)]
pub struct Mount {
    session: Option<Session>,
    covers: Arc<Covers>,
    point: PathBuf,
}

impl Mount {
    /// Mounts the tree of `vfs` on the directory `point`. What other tasks of `vfs` change while it is mounted, the kernel may
    /// not see.
    ///
    /// # Errors
    ///
    /// [`MountError`].
    pub fn new(vfs: &Vfs, point: &Path, options: &Options) -> Result<Mount, MountError> {
        let point = check_point(point)?;
        check_flags(&point, options)?;
        let device = if rustix::process::geteuid().is_root() {
            mount_as_root(&point, options)?
        } else {
            mount_as_user(&point, options)?
        };
        let (device, covers) = (Arc::new(device), Arc::<Covers>::default());
        let start = || -> Result<Session, MountError> {
            let server = Server::new(vfs, options, Arc::clone(&device), Arc::clone(&covers))?;
            Session::start(server, &device, options.thread_count())
                .map_err(|e| refused(&point, &e.to_string()))
        };
        match start() {
            Ok(session) => {
                // Answered by the session. Where it fails, names are forgotten as if something were mounted within the tree.
                let _ = rustix::fs::stat(&point).map(|st| covers.set_device(st.st_dev));
                Ok(Mount { session: Some(session), covers, point })
            }
            Err(e) => {
                // No thread serves what was mounted.
                let _ = unmount(&point, true);
                Err(e)
            }
        }
    }

    /// Where it is mounted: an absolute path without links.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Whether the mount is served no more, because it was unmounted from outside.
    pub fn is_over(&self) -> bool {
        self.session.as_ref().is_none_or(Session::is_over)
    }

    /// Whether no other process of the machine sees the tree, as when this one alone is left in its mount namespace and nothing keeps that.
    pub fn is_deserted(&self) -> bool {
        self.covers.is_deserted()
    }

    /// Unmounts. What is busy goes out of sight at once; processes that have files open there keep them until this process ends.
    ///
    /// # Errors
    ///
    /// What the session ended with, or why it cannot be unmounted.
    pub fn unmount(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(mut session) = self.session.take() else { return Ok(()) };
        let ended = session.ended();
        // It is gone; another process mounted what is there now.
        if !matches!(ended, Some(Ok(()))) && unmount(&self.point, false).is_err() {
            // The threads serve those who still use it, for as long as the process lives.
            return unmount(&self.point, true);
        }
        let rest = session.join();
        ended.unwrap_or(Ok(())).and(rest)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A drop returns no error.
        let _ = self.end();
    }
}

/// Mounts without a helper, so that the type in mount tables is `fuse.rcuwalk` and errors are the kernel's. Gives the connection.
fn mount_as_root(point: &Path, options: &Options) -> Result<OwnedFd, MountError> {
    let device = File::options().read(true).write(true).open("/dev/fuse").map_err(MountError::Device)?;
    let mut data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    options.data_words().for_each(|word| data.extend([",", word]));
    let flags = [
        (options.read_only, MountFlags::RDONLY),
        (options.noexec, MountFlags::NOEXEC),
        (options.nosuid, MountFlags::NOSUID),
        (options.nodev, MountFlags::NODEV),
        (options.noatime, MountFlags::NOATIME),
        (options.sync, MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC),
    ];
    let flags = flags.iter().filter(|(on, _)| *on).fold(MountFlags::empty(), |all, (_, flag)| all | *flag);
    let mounted = CString::new(data).map_err(io::Error::from).and_then(|data| {
        Ok(rustix::mount::mount(options.source.as_str(), point, "fuse.rcuwalk", flags, &*data)?)
    });
    mounted.map_err(|e| refused(point, &e.to_string()))?;
    Ok(device.into())
}

/// The program that mounts and unmounts for users who may not: `fusermount3`, or what `FUSERMOUNT_PATH` names.
fn fusermount() -> Command {
    Command::new(env::var_os("FUSERMOUNT_PATH").unwrap_or_else(|| "fusermount3".into()))
}

/// Has fusermount3 mount, which opens the device and passes it back through a socket. Gives the connection.
fn mount_as_user(point: &Path, options: &Options) -> Result<OwnedFd, MountError> {
    let failed = |e: io::Error| refused(point, &e.to_string());
    if let Err(e) = File::open("/dev/fuse")
        && e.kind() == io::ErrorKind::NotFound
    {
        return Err(MountError::Device(e));
    }
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let child = fusermount()
        .arg("-o")
        .arg(options.words())
        .arg("--")
        .arg(point)
        // The socket is its standard input: a descriptor that is passed on without further ado.
        .stdin(OwnedFd::from(theirs))
        .env("_FUSE_COMMFD", "0")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| refused(point, &format!("fusermount3: {e}")))?;
    let device = receive_descriptor(&ours).map_err(failed);
    let output = child.wait_with_output().map_err(failed)?;
    match device? {
        Some(device) if output.status.success() => Ok(device),
        _ => Err(refused(point, &String::from_utf8_lossy(&output.stderr))),
    }
}

/// The descriptor that comes through a socket, if one does before its other end is closed.
fn receive_descriptor(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let parts = &mut [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.flatten().next())
}

/// Unmounts what is mounted at `point`, with fusermount3 where the kernel refuses; if `lazy` also what is busy, which then goes out of
/// sight.
///
/// # Errors
///
/// Those of umount2(2), such as `EBUSY`; what fusermount3 says.
pub fn unmount(point: &Path, lazy: bool) -> io::Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(point, flags | UnmountFlags::NOFOLLOW) {
        Err(rustix::io::Errno::PERM) => {}
        done => return Ok(done?),
    }
    let how: &[&str] = if lazy { &["-u", "-q", "-z", "--"] } else { &["-u", "-q", "--"] };
    let output = fusermount().args(how).arg(point).stdin(Stdio::null()).output()?;
    let why = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(io::Error::other(why())) }
}

/// The user namespace that the machine has from its start. Kernel: `PROC_USER_INIT_INO`.
const FIRST_USER_NS: &str = "user:[4026531837]";

/// Refuses what would be passed over without a word: set-id bits and devices that only root may bring into force.
fn check_flags(point: &Path, options: &Options) -> Result<(), MountError> {
    let refuse =
        |why: &str, hint| Err(MountError::Refused { point: point.to_path_buf(), why: why.into(), hint });
    if !rustix::process::geteuid().is_root() && (!options.nosuid || !options.nodev) {
        return refuse(
            "suid and dev are for root alone: fusermount3 takes neither",
            "leave them out, or mount as root",
        );
    }
    let user_ns = std::fs::read_link("/proc/self/ns/user");
    if !options.nodev && user_ns.is_ok_and(|link| link.as_os_str() != FIRST_USER_NS) {
        return refuse(
            "the kernel opens no devices in a mount of a user namespace",
            "leave dev out, or mount outside of it",
        );
    }
    Ok(())
}

fn check_point(point: &Path) -> Result<PathBuf, MountError> {
    let wrong = |why: String| MountError::Point { point: point.to_path_buf(), why };
    let looked_at = point.canonicalize().and_then(|real| Ok((real.metadata()?.is_dir(), real)));
    let (is_dir, real) = looked_at.map_err(|e| match e.raw_os_error() {
        Some(107) => MountError::Refused {
            point: point.to_path_buf(),
            why: "the server of what is mounted there is gone (ENOTCONN)".into(),
            hint: "unmount it first, as in `fusermount3 -u` or `umount -l`",
        },
        _ => wrong(e.to_string()),
    })?;
    if is_dir { Ok(real) } else { Err(wrong("not a directory (ENOTDIR)".into())) }
}

fn refused(point: &Path, why: &str) -> MountError {
    let hint = if why.contains("user_allow_other") {
        "leave allow_other out, or have root write user_allow_other into /etc/fuse.conf"
    } else if why.contains("EBUSY") || why.contains("busy") {
        "something uses the directory: choose another one, or unmount what is there"
    } else if why.contains("open /dev/fuse") {
        "mount as root, or have root let everybody open it: chmod 666 /dev/fuse"
    } else if why.contains("No such file") {
        "install fusermount3 (package fuse3), or mount as root"
    } else {
        "mount as root, or on a directory of your own with fusermount3 (package fuse3) installed"
    };
    MountError::Refused { point: point.to_path_buf(), why: why.trim().to_owned(), hint }
}
