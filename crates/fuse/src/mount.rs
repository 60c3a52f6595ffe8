//! Mounting and unmounting.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use fuser::{BackgroundSession, Session};
use rcuwalk::{Errno, Vfs};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::options::{Mode, Options};
use crate::server::Server;

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
    session: Option<BackgroundSession>,
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
        check_device()?;
        let server = Server::new(vfs, options)?;
        let device = server.device();
        let refused = |e: io::Error| refused(&point, &e);
        let session = if rustix::process::geteuid().is_root() {
            let connection = mount_as_root(&point, options).map_err(refused)?;
            let config = options.config();
            Session::from_fd(server, connection, config.acl, config).inspect_err(|_| {
                // Nobody serves what was mounted.
                let _ = rustix::mount::unmount(&point, UnmountFlags::DETACH);
            })
        } else {
            Session::new(server, &point, &options.config())
        };
        let session = session.map_err(refused)?;
        // The server tells the kernel what to forget through a descriptor of its own.
        let own = session.as_fd().try_clone_to_owned().map_err(refused)?;
        // Only the first to set it counts, and this is the first.
        let _ = device.set(own);
        let session = session.spawn().map_err(refused)?;
        Ok(Mount { session: Some(session), point })
    }

    /// Where it is mounted: an absolute path without links.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Whether nobody serves it any more: it was unmounted from outside.
    pub fn is_over(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.guard.is_finished())
    }

    /// Unmounts. What is busy goes out of sight at once; whoever has files open there keeps them until the process ends.
    ///
    /// # Errors
    ///
    /// What the session ended with.
    pub fn unmount(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        if session.guard.is_finished() {
            return session.umount_and_join();
        }
        // Somebody else than root has fusermount3 do it, which fuser asks.
        if rustix::mount::unmount(&self.point, UnmountFlags::NOFOLLOW) == Err(rustix::io::Errno::BUSY) {
            rustix::mount::unmount(&self.point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
            // The threads serve those who still use it, for as long as the process lives.
            std::mem::forget(session);
            return Ok(());
        }
        session.umount_and_join()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // There is nobody to tell.
        let _ = self.end();
    }
}

/// Mounts without a helper, so that the type in mount tables is `fuse.rcuwalk` and errors are the kernel's. Gives the connection.
fn mount_as_root(point: &Path, options: &Options) -> io::Result<OwnedFd> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let mut data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    if options.mode == Mode::AsSeen {
        data.push_str(",default_permissions");
    }
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let flags = [
        (options.read_only, MountFlags::RDONLY),
        (options.noexec, MountFlags::NOEXEC),
        (options.nosuid, MountFlags::NOSUID),
        (options.nodev, MountFlags::NODEV),
        (options.noatime, MountFlags::NOATIME),
        (options.sync, MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC),
    ];
    let flags = flags.iter().filter(|(on, _)| *on).fold(MountFlags::empty(), |all, (_, flag)| all | *flag);
    let data = CString::new(data)?;
    rustix::mount::mount(options.source.as_str(), point, "fuse.rcuwalk", flags, &*data)?;
    Ok(device.into())
}

fn check_point(point: &Path) -> Result<PathBuf, MountError> {
    let wrong = |why: String| MountError::Point { point: point.to_path_buf(), why };
    let real = point.canonicalize().map_err(|e| match e.raw_os_error() {
        Some(107) => MountError::Refused {
            point: point.to_path_buf(),
            why: "the server of what is mounted there is gone (ENOTCONN)".into(),
            hint: "unmount it first, as in `fusermount3 -u` or `umount -l`",
        },
        _ => wrong(e.to_string()),
    })?;
    if real.is_dir() { Ok(real) } else { Err(wrong("not a directory (ENOTDIR)".into())) }
}

fn check_device() -> Result<(), MountError> {
    File::options().read(true).write(true).open("/dev/fuse").map(drop).map_err(MountError::Device)
}

fn refused(point: &Path, e: &io::Error) -> MountError {
    let why = e.to_string();
    let hint = if why.contains("user_allow_other") {
        "leave allow_other out, or have root write user_allow_other into /etc/fuse.conf"
    } else if why.contains("EBUSY") || why.contains("busy") {
        "something uses the directory: choose another one, or unmount what is there"
    } else if e.kind() == io::ErrorKind::NotFound {
        "install fusermount3 (package fuse3), or mount as root"
    } else {
        "mount as root, or on a directory of your own with fusermount3 (package fuse3) installed"
    };
    MountError::Refused { point: point.to_path_buf(), why: why.trim().to_owned(), hint }
}
