//! Removing what a row has left in a directory under test, whatever it is.
//!
//! It happens outside of the row's mount namespace, after the row's processes have ended: what was mounted there is gone
//! with them, and a row that was killed leaves no more than one that ended by itself.

use std::fs::{self, DirEntry};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::task::plain;
use crate::args::{Fd, SetFlags};
use crate::op::Op;
use crate::outcome::Outcome;
use crate::words::InodeFlags;

/// The name of the world of the row that process `pid` runs.
pub(super) fn name_of(pid: u32) -> String {
    format!("{PREFIX}{pid}")
}

const PREFIX: &str = "rcuwalk-oracle.";

/// Makes an empty world in `dir` that looks like a fresh tmpfs: root's, mode 0755.
///
/// # Errors
///
/// Why it cannot be made.
pub(super) fn make(dir: &Path, name: &str) -> Result<PathBuf, String> {
    use std::os::unix::fs::PermissionsExt;
    let world = dir.join(name);
    let failed = |e: io::Error| format!("{}: {e}", world.display());
    fs::create_dir(&world).map_err(failed)?;
    std::os::unix::fs::chown(&world, Some(0), Some(0)).map_err(failed)?;
    fs::set_permissions(&world, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    Ok(world)
}

/// Removes the world `dir/name`, if it is there.
///
/// # Errors
///
/// What could not be removed, and why.
pub(super) fn remove(dir: &Path, name: &str) -> Result<(), String> {
    let world = dir.join(name);
    let failed = |e: io::Error| format!("{} is left behind and could not be removed: {e}", world.display());
    match fs::symlink_metadata(&world) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(failed)?,
    };
    thaw(&world);
    flatten(&world).and_then(|()| fs::remove_dir(&world)).map_err(failed)
}

/// Removes the worlds in `dir` whose process does not exist any more: a run that was killed could not remove them.
///
/// # Errors
///
/// As [`remove`].
pub(super) fn remove_abandoned(dir: &Path) -> Result<(), String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            remove(dir, &name)?;
        }
    }
    Ok(())
}

/// Empties `top`. Directories below it are moved up and emptied there, so that no depth of theirs makes a path too long
/// or the stack too small.
fn flatten(top: &Path) -> io::Result<()> {
    let mut moved = 0_u64;
    loop {
        let entries = fs::read_dir(top)?.collect::<io::Result<Vec<DirEntry>>>()?;
        if entries.is_empty() {
            return Ok(());
        }
        for entry in entries {
            let path = entry.path();
            if !entry.file_type()?.is_dir() {
                remove_file(&entry)?;
                continue;
            }
            thaw(&path);
            for child in fs::read_dir(&path)?.collect::<io::Result<Vec<DirEntry>>>()? {
                if child.file_type()?.is_dir() {
                    thaw(&child.path());
                    moved += 1;
                    fs::rename(child.path(), free_name(top, &mut moved))?;
                } else {
                    remove_file(&child)?;
                }
            }
            fs::remove_dir(&path)?;
        }
    }
}

/// A name in `top` that nothing has.
fn free_name(top: &Path, moved: &mut u64) -> PathBuf {
    loop {
        let path = top.join(format!(".moved-{moved}"));
        if fs::symlink_metadata(&path).is_err() {
            return path;
        }
        *moved += 1;
    }
}

fn remove_file(entry: &DirEntry) -> io::Result<()> {
    let kind = entry.file_type()?;
    // Sockets and devices cannot be opened for their flags, so that nobody can have set any.
    if kind.is_file() || kind.is_fifo() {
        thaw(&entry.path());
    }
    fs::remove_file(entry.path())
}

/// Takes the immutable and the append-only flag off, where the file system knows them.
fn thaw(path: &Path) {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    if let Ok(file) = fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
        thaw_file(&file);
    }
}

/// [`thaw`] of an open file. Other flags stay: some a file system has set itself and does not let go.
pub(super) fn thaw_file(file: &fs::File) {
    // Immutable and append-only hinder; no dump and no atime would be inherited by what is made here next.
    const FROZEN: u64 = 0x10 | 0x20 | 0x40 | 0x80;
    let fd = Fd::Raw(file.as_raw_fd());
    if let Outcome::Number(flags) = plain(&Op::Getflags { fd: fd.clone() })
        && flags as u64 & FROZEN != 0
    {
        // The removal that follows shows whether it has worked.
        plain(&Op::Setflags { fd, flags: SetFlags(InodeFlags(flags as u64 & !FROZEN)) });
    }
}
