//! Calls that fail because a test wants them to.

use rcuwalk::uapi::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW};
use rcuwalk::{Cred, Errno, Result, Task, Vfs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What rules can name: each call of `os` under the name of the system call that does it, whatever variant is used. `fstat` is
/// one of its own, because opening a file makes it.
pub(crate) const CALLS: [&str; 45] = [
    "access",
    "chdir",
    "chmod",
    "chown",
    "chroot",
    "close",
    "copy_file_range",
    "dup",
    "dup2",
    "dup3",
    "fadvise",
    "fallocate",
    "fchdir",
    "fcntl",
    "flock",
    "fstat",
    "fsync",
    "getcwd",
    "getdents",
    "getflags",
    "getxattr",
    "link",
    "listdir",
    "listxattr",
    "lseek",
    "mkdir",
    "mknod",
    "mount",
    "open",
    "read",
    "readlink",
    "removexattr",
    "rename",
    "rmdir",
    "sendfile",
    "setflags",
    "setxattr",
    "stat",
    "statfs",
    "symlink",
    "truncate",
    "umount",
    "unlink",
    "utime",
    "write",
];

/// The rules of one file system.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    armed: AtomicBool,
    rules: Mutex<Rules>,
}

#[derive(Debug, Default)]
struct Rules {
    next: u64,
    list: Vec<(u64, Rule)>,
}

/// When a call fails, and how.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) errno: Errno,
    /// Only calls on this file, whatever name they use; all if absent.
    pub(crate) path: Option<Vec<u8>>,
    /// Only these calls; all if empty.
    pub(crate) calls: Vec<String>,
    /// Of writes: how many bytes still succeed.
    pub(crate) after_bytes: Option<u64>,
    /// How many matching calls still succeed.
    pub(crate) after_calls: u64,
    /// How often it fails before the rule is used up; for ever if absent.
    pub(crate) times: Option<u64>,
}

/// What a call is about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Object<'a> {
    /// A path, from a directory; whether a link at its end is followed.
    Path(i32, &'a [u8], bool),
    /// An open file.
    Fd(i32),
}

/// A file, or the place where one would be.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Inode(u64, u64),
    Name(u64, u64, Vec<u8>),
}

impl Faults {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a rule; gives its number.
    pub(crate) fn add(&self, rule: Rule) -> u64 {
        let mut rules = self.rules();
        rules.next += 1;
        let number = rules.next;
        rules.list.push((number, rule));
        // Relaxed: who adds a rule and expects another thread to meet it has told that thread by other means.
        self.armed.store(true, Ordering::Relaxed);
        number
    }

    /// Removes one rule, or all; says whether there was one.
    pub(crate) fn remove(&self, number: Option<u64>) -> bool {
        let mut rules = self.rules();
        let before = rules.list.len();
        rules.list.retain(|(n, _)| number.is_some_and(|number| number != *n));
        self.armed.store(!rules.list.is_empty(), Ordering::Relaxed);
        rules.list.len() != before
    }

    /// Whether there is any rule.
    #[inline]
    pub(crate) fn armed(&self) -> bool {
        // Relaxed: see `add`.
        self.armed.load(Ordering::Relaxed)
    }

    /// Fails if a rule says that `call` on one of `objects` does. Of `bytes` to be written, gives how many may be.
    pub(crate) fn check(
        &self,
        task: &Task,
        call: &str,
        objects: &[Object<'_>],
        bytes: usize,
    ) -> Result<usize> {
        debug_assert!(CALLS.contains(&call), "{call} must be among those that rules can name");
        let mut rules = self.rules();
        for at in 0..rules.list.len() {
            let rule = &mut rules.list[at].1;
            let named = rule.calls.is_empty() || rule.calls.iter().any(|name| name == call);
            if !named || !rule.covers(task, objects) {
                continue;
            }
            if rule.after_calls != 0 {
                rule.after_calls -= 1;
                continue;
            }
            if let Some(left) = rule.after_bytes.as_mut() {
                let fit = bytes.min(usize::try_from(*left).unwrap_or(usize::MAX));
                if fit != 0 || bytes == 0 {
                    *left -= fit as u64;
                    return Ok(fit);
                }
            }
            let errno = rule.errno;
            if let Some(times) = rule.times.as_mut() {
                *times = times.saturating_sub(1);
                if *times == 0 {
                    rules.list.remove(at);
                    self.armed.store(!rules.list.is_empty(), Ordering::Relaxed);
                }
            }
            return Err(errno);
        }
        Ok(bytes)
    }
}

impl Rule {
    fn covers(&self, task: &Task, objects: &[Object<'_>]) -> bool {
        let Some(path) = &self.path else { return true };
        let all_seeing = task.vfs().task(Cred::root());
        let own = [true, false].map(|follow| place(&all_seeing, Object::Path(AT_FDCWD, path, follow)));
        objects.iter().any(|object| place(&sibling(task), *object).is_some_and(|at| own.contains(&Some(at))))
    }
}

/// The same process with every privilege: what a path means does not depend on who may walk it.
fn sibling(task: &Task) -> Task {
    let mut sibling = task.thread();
    sibling.set_cred(Cred::root());
    sibling
}

fn place(task: &Task, object: Object<'_>) -> Option<Place> {
    let (dirfd, path, follow) = match object {
        Object::Fd(fd) => (fd, b"".as_slice(), true),
        Object::Path(dirfd, path, follow) => (dirfd, path, follow),
    };
    let flags = AT_EMPTY_PATH | if follow { 0 } else { AT_SYMLINK_NOFOLLOW };
    match task.newfstatat(dirfd, path, flags) {
        Ok(stat) => Some(Place::Inode(stat.dev, stat.ino)),
        Err(Errno::ENOENT) => {
            let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
            let start = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
            let parent = if start == 0 { b".".as_slice() } else { &path[..start] };
            let stat = task.newfstatat(dirfd, parent, 0).ok()?;
            Some(Place::Name(stat.dev, stat.ino, path[start..end].to_vec()))
        }
        Err(_) => None,
    }
}

/// A file system and what tests do to it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) vfs: Vfs,
    pub(crate) faults: Faults,
    pub(crate) clock: std::sync::Arc<crate::vfs::Watch>,
    /// Something of an imported tree could not be taken in.
    pub(crate) incomplete: std::sync::atomic::AtomicBool,
}
