//! execve, execveat.
//!
//! Kernel: fs/exec.c, fs/binfmt_script.c, fs/binfmt_elf.c. The file is opened first, and looked up once (S5): a search
//! along `PATH` fails mostly with `ENOENT`, and then nothing else was done. Arguments are counted and copied only when
//! there is something to run; the credential is made when it is clear what.
//!
//! What happens in memory is left to the caller: [`Exec`] has everything that a loader needs.

pub(crate) mod binfmt;
pub(crate) mod execvp;

use crate::base::errno::{Errno, Result};
use crate::base::flags::AtFlags;
use crate::base::uapi::{
    AT_EMPTY_PATH, AT_EXECVE_CHECK, AT_FDCWD, AT_SYMLINK_NOFOLLOW, FD_CLOEXEC, PATH_MAX, S_ISGID, S_ISUID,
    S_IXGRP,
};
use crate::cred::Cred;
use crate::cred::commoncap::{self, FileCaps, Gives, Unsafe};
use crate::dcache::store::Namespace;
use crate::exec::binfmt::{BINPRM_BUF_SIZE, EHDR_SIZE, Ehdr, Script};
use crate::file::{File, FileArc, Opening};
use crate::kernel::Kernel;
use crate::namei::getname::check_name;
use crate::namei::{At, Lookup};
use crate::perm::{MAY_EXEC, MAY_READ};
use crate::task::Task;
use crate::task::fork::STACK_DEFAULT;
use crate::task::program::{Exec, ExecFile, Interpreter};
use rcuwalk_sync::Handle;
use std::sync::Arc;

/// The longest argument or environment string, with its NUL, in bytes.
pub(crate) const MAX_ARG_STRLEN: usize = 131_072;
/// Arguments and environment may always take this much, in bytes: the kernel's `ARG_MAX`.
const ARG_FLOOR: u64 = 131_072;
/// And never more than this: three quarters of the default stack.
pub(crate) const ARG_CEILING: u64 = STACK_DEFAULT / 4 * 3;
/// Bytes of a pointer in the new program's vectors.
const POINTER: u64 = 8;
const PAGE: u64 = 4096;
/// Files that may be replaced by their interpreter, one after the other.
const MAX_SCRIPTS: usize = 5;

impl ExecFile {
    /// The first bytes, which decide how the file is executed.
    fn window(&self) -> Result<[u8; BINPRM_BUF_SIZE]> {
        let mut window = [0; BINPRM_BUF_SIZE];
        self.read_at(&mut window, 0)?;
        Ok(window)
    }

    /// The program headers that `header` announces, if they are there.
    fn program_headers(&self, header: &Ehdr) -> Option<Vec<u8>> {
        let mut phdrs = vec![0; header.phdrs_size()?];
        self.read_exact_at(&mut phdrs, header.phoff).ok()?;
        Some(phdrs)
    }
}

/// A program under way. Kernel: `struct linux_binprm`.
struct Bprm {
    file: ExecFile,
    /// The path by which `file` was opened.
    interp: Vec<u8>,
    filename: Vec<u8>,
    args: Args,
    /// `filename` leads through a descriptor that will be closed.
    path_inaccessible: bool,
    /// It was found by a descriptor alone, and so has its own name. Kernel: `comm_from_dentry`.
    nameless: bool,
}

/// Arguments and environment, and the room they take on the new stack.
struct Args {
    argv: Vec<Vec<u8>>,
    envp: Vec<Vec<u8>>,
    /// Bytes of all strings.
    used: u64,
    limit: u64,
    /// `RLIMIT_STACK`.
    stack: u64,
}

impl Args {
    /// Copies what the caller gave, after counting it.
    ///
    /// # Errors
    ///
    /// `E2BIG`, `ENOMEM`.
    ///
    /// Kernel: fs/exec.c `bprm_stack_limits()`, `copy_strings()`.
    fn new(filename: &[u8], argv: &[&[u8]], envp: &[&[u8]], stack: u64) -> Result<Args> {
        let limit = ARG_CEILING.min(stack / 4).max(ARG_FLOOR);
        // Even without arguments there will be one.
        let pointers = (argv.len().max(1) + envp.len()) as u64 * POINTER;
        let limit = limit.checked_sub(pointers).filter(|&limit| limit != 0).ok_or(Errno::E2BIG)?;
        let mut args = Args { argv: Vec::new(), envp: Vec::new(), used: 0, limit, stack };
        args.take_room(filename)?;
        args.envp = args.copy_all(envp)?;
        args.argv = args.copy_all(if argv.is_empty() { &[b""] } else { argv })?;
        Ok(args)
    }

    /// Accounts for one string.
    fn take_room(&mut self, string: &[u8]) -> Result<()> {
        if string.len() >= MAX_ARG_STRLEN {
            return Err(Errno::E2BIG);
        }
        self.used += string.len() as u64 + 1;
        // The stack has one page from the start, and grows by pages as far as its own limit allows.
        let pages = (self.used + POINTER).next_multiple_of(PAGE);
        if self.used > self.limit || pages > PAGE && pages > self.stack {
            return Err(Errno::E2BIG);
        }
        Ok(())
    }

    /// Copies a string, up to a NUL in it, as the kernel does.
    fn copy(&mut self, string: &[u8]) -> Result<Vec<u8>> {
        let string = until_nul(string);
        self.take_room(string)?;
        owned(string)
    }

    fn copy_all(&mut self, strings: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
        strings.iter().map(|string| self.copy(string)).collect()
    }

    /// Replaces the first argument by how a script is to be run: its interpreter, perhaps an argument, and its own path.
    fn replace_first(&mut self, script: &Script<'_>, path: &[u8]) -> Result<()> {
        self.used -= self.argv[0].len() as u64 + 1;
        let path = self.copy(path)?;
        let arg = script.arg.map(|arg| self.copy(arg)).transpose()?;
        let interpreter = self.copy(script.interpreter)?;
        self.argv.splice(..1, [interpreter].into_iter().chain(arg).chain([path]));
        Ok(())
    }
}

fn until_nul(string: &[u8]) -> &[u8] {
    string.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn owned(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| Errno::ENOMEM)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

impl Task {
    /// Executes `path`: decides all that the kernel decides before it loads the program, gives the task the new credential
    /// and closes its close-on-exec descriptors. A NUL ends an argument. Programs are scripts and ELF files for x86-64.
    ///
    /// The task keeps the file busy (`ETXTBSY` for writers) until it executes another one or is dropped. Other threads of
    /// the process, which the kernel would end, keep credential, program and descriptors as they were.
    ///
    /// # Errors
    ///
    /// In this order: `ENAMETOOLONG`, `ENOENT` (the empty path); `EAGAIN` (`RLIMIT_NPROC`); those of the walk; `EACCES` (not a regular file, a
    /// `noexec` mount, no permission to execute), `ETXTBSY` (open for writing), `E2BIG`, then what the contents lead to:
    /// `ENODATA` (a file that was imported without its contents), `ENOEXEC`, `ELOOP` (more than five scripts, each the
    /// interpreter of the one before), the same errors again for interpreters, `EIO`, `EINVAL` (a file cut short;
    /// malformed file capabilities), `ELIBBAD` (an interpreter that is no ELF file), `EPERM` (file capabilities beyond the
    /// bounding set).
    ///
    /// ```
    /// # use rcuwalk::{Cred, Errno, Vfs, uapi::*};
    /// # let vfs = Vfs::new()?;
    /// let mut task = vfs.task(Cred::root());
    /// let fd = task.open(b"/script", O_CREAT | O_WRONLY, 0o755)?;
    /// task.write(fd, b"#!/bin/sh\n")?;
    /// assert_eq!(task.execve(b"/script", &[b"script"], &[]).unwrap_err(), Errno::ETXTBSY);
    /// task.close(fd)?;
    /// // The script is fine; its interpreter is not there.
    /// assert_eq!(task.execve(b"/script", &[b"script"], &[]).unwrap_err(), Errno::ENOENT);
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn execve(&mut self, path: &[u8], argv: &[&[u8]], envp: &[&[u8]]) -> Result<Exec> {
        let bprm = self.alloc_bprm(AT_FDCWD, path, 0, |name, stack| Args::new(name, argv, envp, stack))?;
        self.exec_binprm(bprm)
    }

    /// [`execve`](Self::execve) relative to `dirfd`. `flags`: `AT_EMPTY_PATH` (with an empty path, the file behind `dirfd`,
    /// which may be an `O_PATH` one), `AT_SYMLINK_NOFOLLOW` (a link is `ELOOP`), `AT_EXECVE_CHECK` (only ask whether the
    /// file may be executed, without looking into it: `None`, and nothing changes).
    ///
    /// # Errors
    ///
    /// As [`execve`](Self::execve); `EINVAL` (flags; after the errors of the name alone), `EBADF`, `ENOENT` also for a script
    /// that could be found only through a close-on-exec `dirfd`.
    pub fn execveat(
        &mut self,
        dirfd: i32,
        path: &[u8],
        argv: &[&[u8]],
        envp: &[&[u8]],
        flags: impl Into<AtFlags>,
    ) -> Result<Option<Exec>> {
        let flags = flags.into().bits();
        let bprm = self.alloc_bprm(dirfd, path, flags, |name, stack| Args::new(name, argv, envp, stack))?;
        if flags & AT_EXECVE_CHECK != 0 {
            return Ok(None);
        }
        self.exec_binprm(bprm).map(Some)
    }

    /// [`execveat`](Self::execveat) with vectors that are read, by `strings`, only when there is a file to execute (S5).
    pub(crate) fn execveat_late(
        &mut self,
        dirfd: i32,
        path: &[u8],
        flags: i32,
        strings: impl FnOnce() -> Result<[Vec<Vec<u8>>; 2]>,
    ) -> Result<Option<Exec>> {
        let bprm = self.alloc_bprm(dirfd, path, flags, |name, stack| {
            let [argv, envp] = strings()?;
            let [argv, envp] = [&argv, &envp].map(|list| list.iter().map(Vec::as_slice).collect::<Vec<_>>());
            Args::new(name, &argv, &envp, stack)
        })?;
        if flags & AT_EXECVE_CHECK != 0 {
            return Ok(None);
        }
        self.exec_binprm(bprm).map(Some)
    }

    /// Opens the file, then takes in the arguments: `args` is given the name of the program and `RLIMIT_STACK`.
    ///
    /// Kernel: fs/exec.c `do_execveat_common()`, `alloc_bprm()`.
    fn alloc_bprm(
        &self,
        dirfd: i32,
        path: &[u8],
        flags: i32,
        args: impl FnOnce(&[u8], u64) -> Result<Args>,
    ) -> Result<Bprm> {
        check_name(path, flags & AT_EMPTY_PATH != 0)?;
        self.check_nproc()?;
        if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_EXECVE_CHECK) != 0 {
            return Err(Errno::EINVAL);
        }
        let lookup = Lookup { follow: flags & AT_SYMLINK_NOFOLLOW == 0, ..Lookup::FOLLOW };
        let variants = &self.kernel.variants;
        // The old ways: S5.
        let (mut late, mut early) = (Some(args), None);
        if variants.args_first() {
            early = late.take().map(|args| args(path, self.stack_limit())).transpose()?;
        }
        if variants.lookup_twice() {
            self.with_at(dirfd, |at| self.walker().filename_lookup(at, path, lookup, |_| Ok(())))?;
        }
        let file = self.with_at(dirfd, |at| self.open_exec_file(at, path, lookup))?;
        let through_fd = dirfd != AT_FDCWD && path.first() != Some(&b'/');
        let filename = match (through_fd, path) {
            (false, _) => owned(path)?,
            (true, b"") => format!("/dev/fd/{dirfd}").into_bytes(),
            (true, _) => [format!("/dev/fd/{dirfd}/").as_bytes(), path].concat(),
        };
        let path_inaccessible = through_fd && self.files.table.fd_flags(dirfd) == Ok(FD_CLOEXEC);
        let args = match late {
            Some(args) => args(&filename, self.stack_limit())?,
            None => early.ok_or(Errno::EINVAL)?,
        };
        let nameless = through_fd && path.is_empty();
        Ok(Bprm { file, interp: owned(&filename)?, filename, args, path_inaccessible, nameless })
    }

    /// Opens a file to execute it, and keeps writers out. Kernel: fs/exec.c `open_exec()`.
    fn open_exec_file(&self, at: At<'_>, path: &[u8], lookup: Lookup) -> Result<ExecFile> {
        let file = if self.kernel.variants.early_file() {
            let mut file = FileArc::new(File::new(Opening::default(), &self.cred));
            let opening = self.open_exec(at, path, lookup)?;
            if let Some(place) = FileArc::get_mut(&mut file) {
                *place = File::new(opening, &self.cred);
            }
            file
        } else {
            FileArc::new(File::new(self.open_exec(at, path, lookup)?, &self.cred))
        };
        ExecFile::new(&self.kernel, file)
    }

    /// Opens an interpreter, relative to the current directory. The empty path is that directory.
    fn open_interpreter(&self, path: &[u8]) -> Result<ExecFile> {
        check_name(path, true)?;
        self.open_exec_file(At::Cwd, path, Lookup::FOLLOW)
    }

    /// Replaces scripts by their interpreters until there is a program, and commits to it.
    ///
    /// Kernel: fs/exec.c `exec_binprm()`, `search_binary_handler()`.
    fn exec_binprm(&mut self, mut bprm: Bprm) -> Result<Exec> {
        for _ in 0..=MAX_SCRIPTS {
            let window = bprm.file.window()?;
            if window.starts_with(b"#!") {
                self.load_script(&mut bprm, &window)?;
            } else {
                let interpreter = self.load_elf(&bprm, &window)?;
                return self.begin_new_exec(bprm, interpreter);
            }
        }
        Err(Errno::ELOOP)
    }

    /// Kernel: fs/binfmt_script.c `load_script()`.
    fn load_script(&self, bprm: &mut Bprm, window: &[u8; BINPRM_BUF_SIZE]) -> Result<()> {
        let script = binfmt::parse_script(window).ok_or(Errno::ENOEXEC)?;
        if bprm.path_inaccessible {
            return Err(Errno::ENOENT);
        }
        bprm.args.replace_first(&script, &bprm.interp)?;
        bprm.file = self.open_interpreter(script.interpreter)?;
        bprm.interp = owned(script.interpreter)?;
        Ok(())
    }

    /// Whether this is a program, and the interpreter that it asks for.
    ///
    /// Kernel: fs/binfmt_elf.c `load_elf_binary()`, as far as it can fail with an error.
    fn load_elf(&self, bprm: &Bprm, window: &[u8; BINPRM_BUF_SIZE]) -> Result<Option<Interpreter>> {
        let header = window.first_chunk::<EHDR_SIZE>().and_then(Ehdr::parse).filter(Ehdr::is_program);
        let phdrs = header.and_then(|header| bprm.file.program_headers(&header)).ok_or(Errno::ENOEXEC)?;
        let Some(segment) = binfmt::interpreter_segment(&phdrs) else { return Ok(None) };
        if !(2..=PATH_MAX as u64).contains(&segment.size) {
            return Err(Errno::ENOEXEC);
        }
        let mut path = vec![0; segment.size as usize];
        bprm.file.read_exact_at(&mut path, segment.offset)?;
        if path.last() != Some(&0) {
            return Err(Errno::ENOEXEC);
        }
        path.truncate(until_nul(&path).len());
        let file = self.open_interpreter(&path)?;
        let mut bytes = [0; EHDR_SIZE];
        file.read_exact_at(&mut bytes, 0)?;
        let header = Ehdr::parse(&bytes).ok_or(Errno::ELIBBAD)?;
        file.program_headers(&header).ok_or(Errno::ELIBBAD)?;
        Ok(Some(Interpreter { path, file }))
    }

    /// The point of no return: makes the new credential, and the task a new program.
    ///
    /// Kernel: fs/exec.c `begin_new_exec()`, `bprm_creds_from_file()`.
    fn begin_new_exec(&mut self, bprm: Bprm, interpreter: Option<Interpreter>) -> Result<Exec> {
        let gives = self.program_gives(bprm.file.file())?;
        let unsafe_exec = Unsafe { no_new_privs: self.no_new_privs, shared: self.fs.is_shared_with_others() };
        let new = commoncap::bprm_creds(&self.cred, &gives, unsafe_exec)?;
        let readable = [Some(&bprm.file), interpreter.as_ref().map(|it| &it.file)]
            .into_iter()
            .flatten()
            .map(ExecFile::file)
            .all(|file| {
                self.kernel.inode_permission(file.path.mnt, file.inode, &self.cred, MAY_READ).is_ok()
            });
        let dumpable = readable && commoncap::stays_dumpable(&self.cred, &new.cred);

        self.unshare_files()?;
        self.files.table.close_on_exec().into_iter().for_each(|file| self.files.filp_close(file));
        if new.secureexec {
            self.set_stack_limit(self.stack_limit().min(STACK_DEFAULT));
        }
        self.set_cred(new.cred);
        self.set_dumpable(dumpable);
        let name = match bprm.nameless {
            true => self.kernel.store.d_name(bprm.file.file().path.dentry),
            false => bprm.filename.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec(),
        };
        self.set_name(&name);
        let file = Arc::new(bprm.file);
        self.exe = Some(Arc::clone(&file));
        let Args { argv, envp, .. } = bprm.args;
        Ok(Exec {
            file,
            interp: bprm.interp,
            interpreter,
            argv,
            envp,
            filename: bprm.filename,
            cred: Arc::clone(&self.cred),
            secureexec: new.secureexec,
            dumpable,
        })
    }

    /// The privileges that a file gives to this task if it executes it.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ERANGE` (malformed file capabilities).
    fn program_gives(&self, file: &File) -> Result<Gives> {
        if !self.mnt_may_suid(file.path.mnt) {
            return Ok(Gives::default());
        }
        // Mode, owner, permission and capabilities of one moment.
        let ns = self.kernel.store.lock();
        self.kernel.program_gives(&ns, file.path.mnt, file.inode, &self.cred, self.no_new_privs)
    }
}

impl Kernel {
    /// The privileges that a file gives to a task that executes it, where the mount does not take them away.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ERANGE` (malformed file capabilities).
    ///
    /// Kernel: fs/exec.c `bprm_fill_uid()`, security/commoncap.c `get_file_caps()`.
    pub(crate) fn program_gives(
        &self,
        ns: &Namespace,
        mnt: Handle,
        inode: Handle,
        cred: &Cred,
        no_new_privs: bool,
    ) -> Result<Gives> {
        let mut gives = Gives::default();
        let attr = self.read_attr(mnt, inode);
        let mapped = cred.user_ns().has_uid(attr.uid) && cred.user_ns().has_gid(attr.gid);
        let permitted = || self.inode_permission(mnt, inode, cred, MAY_EXEC).is_ok();
        if attr.mode & (S_ISUID | S_ISGID) != 0 && !no_new_privs && mapped && permitted() {
            gives.uid = (attr.mode & S_ISUID != 0).then_some(attr.uid);
            gives.gid = (attr.mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP).then_some(attr.gid);
        }
        if let Some(value) = self.file_caps(ns, inode) {
            let caps = FileCaps::parse(&value, &self.id_view(mnt).get())?;
            gives.caps = caps.count_in(cred.user_ns()).then_some(caps);
        }
        Ok(gives)
    }
}
