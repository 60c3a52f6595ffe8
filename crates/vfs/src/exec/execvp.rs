//! execvp: the search along `PATH`, as the C libraries make it.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::{NAME_MAX, PATH_MAX};
use crate::task::Task;
use crate::task::program::Exec;

/// A C library, which decides how a program is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Libc {
    /// glibc. A file that is no program is run by `/bin/sh`; without `PATH` it looks into `/bin` and `/usr/bin`.
    #[default]
    Glibc,
    /// musl. A file that is no program ends the search; without `PATH` it looks into `/usr/local/bin`, `/bin` and
    /// `/usr/bin`.
    Musl,
}

/// What runs a file that is no program.
const SHELL: &[u8] = b"/bin/sh";

impl Libc {
    fn default_path(self) -> &'static [u8] {
        match self {
            Libc::Glibc => b"/bin:/usr/bin",
            Libc::Musl => b"/usr/local/bin:/bin:/usr/bin",
        }
    }

    /// Whether the search goes on after this error of one candidate.
    fn goes_on(self, errno: Errno) -> bool {
        match errno {
            Errno::EACCES | Errno::ENOENT | Errno::ENOTDIR => true,
            Errno::ESTALE | Errno::ENODEV | Errno::ETIMEDOUT => self == Libc::Glibc,
            _ => false,
        }
    }
}

/// The elements of a search path, as `libc` goes through them, without those that are too long.
fn elements(libc: Libc, search: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(search);
    std::iter::from_fn(move || {
        loop {
            let path = rest?;
            let end = path.iter().position(|&byte| byte == b':');
            let element = &path[..end.unwrap_or(path.len())];
            let skipped = element.len() >= PATH_MAX;
            // Having skipped an element, glibc goes on at the colon behind it, and finds an empty one before that.
            let colon = usize::from(!(skipped && libc == Libc::Glibc));
            rest = end.map(|end| &path[end + colon..]);
            if !skipped {
                return Some(element);
            }
        }
    })
}

impl Task {
    /// Executes `file`, which is searched for along `search`, the value of `PATH` (`None`: not set), unless it has a slash
    /// in it. An empty element of `search` is the current directory.
    ///
    /// The search passes over `ENOENT`, `ENOTDIR` and `EACCES` of a candidate, in glibc also over `ESTALE`, `ENODEV` and
    /// `ETIMEDOUT`, and ends with any other error. It ends with `EACCES` if there was one, otherwise with the error of the
    /// last candidate. A script without its interpreter is `ENOENT`, and so passed over.
    ///
    /// # Errors
    ///
    /// `ENOENT` (no such program; the empty name; no candidate at all, where glibc leaves `errno` as it was),
    /// `ENAMETOOLONG` (in musl for more than 255 bytes; in glibc
    /// only a directory that is there finds that out), those of [`execve`](Self::execve).
    ///
    /// glibc: posix/execvpe.c `__execvpe_common()`. musl: src/process/execvp.c `__execvpe()`.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Errno, Libc, Vfs, uapi::*};
    /// # let vfs = Vfs::new()?;
    /// # let mut task = vfs.task(Cred::root());
    /// task.mkdir(b"/bin", 0o755)?;
    /// task.mkdir(b"/bin/tool", 0o755)?;
    /// let search = Some(b"/sbin:/bin:/usr/bin".as_slice());
    /// // A directory of that name cannot be executed; that is remembered.
    /// let found = task.execvpe(Libc::Glibc, search, b"tool", &[b"tool"], &[]);
    /// assert_eq!(found.unwrap_err(), Errno::EACCES);
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn execvpe(
        &mut self,
        libc: Libc,
        search: Option<&[u8]>,
        file: &[u8],
        argv: &[&[u8]],
        envp: &[&[u8]],
    ) -> Result<Exec> {
        if file.is_empty() {
            return Err(Errno::ENOENT);
        }
        if file.contains(&b'/') {
            return self.exec_or_shell(libc, file, argv, envp);
        }
        // glibc means to ask as well, but measures no further than what is allowed.
        if libc == Libc::Musl && file.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let (mut denied, mut last) = (false, Errno::ENOENT);
        let mut candidate = Vec::new();
        for element in elements(libc, search.unwrap_or(libc.default_path())) {
            candidate.clear();
            candidate.extend_from_slice(element);
            if !element.is_empty() {
                candidate.push(b'/');
            }
            candidate.extend_from_slice(file);
            match self.exec_or_shell(libc, &candidate, argv, envp) {
                Err(errno) if libc.goes_on(errno) => {
                    denied |= errno == Errno::EACCES;
                    last = errno;
                }
                ended => return ended,
            }
        }
        Err(if denied { Errno::EACCES } else { last })
    }

    /// Executes a candidate, or has the shell do it.
    fn exec_or_shell(&mut self, libc: Libc, path: &[u8], argv: &[&[u8]], envp: &[&[u8]]) -> Result<Exec> {
        match self.execve(path, argv, envp) {
            Err(Errno::ENOEXEC) if libc == Libc::Glibc => {
                let arguments = argv.get(1..).unwrap_or_default();
                let argv: Vec<&[u8]> = [SHELL, path].iter().chain(arguments).copied().collect();
                self.execve(SHELL, &argv, envp)
            }
            answer => answer,
        }
    }
}
