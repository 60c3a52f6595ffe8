//! execve on the host: in a child of the task, with a program that reports what it was given.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};

use super::task::{FIRST_PRIVATE_FD, must};
use crate::args::{Arg, Mem, Vector};
use crate::op::Op;
use crate::outcome::{Exec, Outcome};
use crate::raw;
use crate::sys::{Frame, SingleThreaded, execvpe, exit_now, move_fd, nr, program_code, wait};
use crate::words::CLibrary;

/// The descriptor to which the program reports.
const REPORT_FD: i32 = 998;
/// The descriptor, close-on-exec, to which a failed execve reports.
const ERRNO_FD: i32 = 997;
/// The resource of descriptor numbers.
const RLIMIT_NOFILE: u64 = 7;
/// Bytes of the report before the stack.
const REPORT: usize = 72;

/// An ELF executable that is nothing but the reporting program.
pub(crate) fn program() -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let code = program_code();
    let size = HEADERS + code.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let mut put = |bytes: &[u8]| elf.extend_from_slice(bytes);
    put(&2_u16.to_le_bytes()); // ET_EXEC
    put(&62_u16.to_le_bytes()); // EM_X86_64
    put(&1_u32.to_le_bytes());
    for word in [BASE + HEADERS, 64, 0] {
        put(&word.to_le_bytes()); // entry, program headers, section headers
    }
    put(&0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 64, 0, 0] {
        put(&half.to_le_bytes());
    }
    put(&1_u32.to_le_bytes()); // PT_LOAD
    put(&5_u32.to_le_bytes()); // read, execute
    for word in [0, BASE, BASE, size, size, 0x1000] {
        put(&word.to_le_bytes());
    }
    put(code);
    elf
}

/// A pipe out of the way of the row's descriptors.
fn pipe() -> io::Result<(PipeReader, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    let private = |fd: OwnedFd| move_fd(fd, FIRST_PRIVATE_FD);
    Ok((private(reader.into())?.into(), private(writer.into())?))
}

/// Makes an execve in a child; what the program saw, or the error.
pub(super) fn perform(single: &SingleThreaded, op: &Op) -> Outcome {
    execute(single, op).unwrap_or_else(Outcome::Broken)
}

fn execute(single: &SingleThreaded, op: &Op) -> Result<Outcome, String> {
    // A row may have exhausted the descriptors; that concerns the program, not our pipes.
    let soft =
        raw::set_soft_limit(RLIMIT_NOFILE, 4096, &mut raw::kernel).map_err(|e| format!("setrlimit: {e}"))?;
    let pipes = pipe().and_then(|report| Ok((report, pipe()?)));
    let ((mut report, report_writer), (mut errno, errno_writer)) = match pipes {
        Ok(pipes) => pipes,
        Err(e) if e.raw_os_error() == Some(libc::ENFILE) => return without_files(single, op, soft),
        Err(e) => return Err(e.to_string()),
    };
    let child = single.fork().map_err(|e| e.to_string())?;
    let Some(pid) = child else { in_child(op, soft, &report_writer, &errno_writer) };
    drop((report_writer, errno_writer));
    raw::set_soft_limit(RLIMIT_NOFILE, soft, &mut raw::kernel).map_err(|e| format!("setrlimit: {e}"))?;
    let mut failure = Vec::new();
    errno.read_to_end(&mut failure).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    report.read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    let status = wait(pid, true).map_err(|e| e.to_string())?;
    match failure[..] {
        [] => parse(&bytes).map(|exec| Outcome::Exec(Box::new(exec))).ok_or_else(|| {
            format!("the program reported {} bytes and ended with status {status:?}", bytes.len())
        }),
        [a, b, c, d] => Ok(match i32::from_ne_bytes([a, b, c, d]) {
            0 => Outcome::Done,
            errno => Outcome::Error(errno),
        }),
        _ => Err("a garbled error number from the child".to_owned()),
    }
}

/// Makes an execve in a child where the machine has no more files, not even for pipes (`fs.file-max`): the error, which is what
/// the child ends with. What is executed nevertheless has nowhere to report to.
fn without_files(single: &SingleThreaded, op: &Op, soft: u64) -> Result<Outcome, String> {
    let set_limit = || raw::set_soft_limit(RLIMIT_NOFILE, soft, &mut raw::kernel);
    let Some(pid) = single.fork().map_err(|e| e.to_string())? else {
        exit_now(set_limit().ok().and_then(|_| call(op)).unwrap_or(0))
    };
    set_limit().map_err(|e| format!("setrlimit: {e}"))?;
    match wait(pid, true).map_err(|e| e.to_string())? {
        Some(status) if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) != 0 => {
            Ok(Outcome::Error(libc::WEXITSTATUS(status)))
        }
        status => Err(format!("no file is left for a program to report to; it ended with status {status:?}")),
    }
}

/// Executes, or reports the error (0 if the call returned without one) and ends.
fn in_child(op: &Op, soft: u64, report: &OwnedFd, errno: &OwnedFd) -> ! {
    let place = |fd: &OwnedFd, at: i32, flags: i32| {
        must("dup3", nr::dup3, |f| {
            f.int(fd.as_raw_fd() as u64);
            f.int(at as u64);
            f.int(flags as u64);
        })
    };
    let prepared = place(report, REPORT_FD, 0).is_ok()
        && place(errno, ERRNO_FD, libc::O_CLOEXEC).is_ok()
        && raw::set_soft_limit(RLIMIT_NOFILE, soft, &mut raw::kernel).is_ok();
    if !prepared {
        exit_now(2);
    }
    let Some(number) = call(op) else { exit_now(2) };
    let mut frame = Frame::new();
    frame.int(ERRNO_FD as u64);
    frame.bytes(&number.to_ne_bytes());
    frame.int(4);
    let _ = frame.call(nr::write);
    exit_now(1)
}

/// The call itself, if the operation is one; its error, or 0 if it returned without one.
fn call(op: &Op) -> Option<i32> {
    if let Op::Execvp { file, argv, search, libc } = op {
        return Some(execvp(file, argv, search, *libc));
    }
    let mut frame = Frame::new();
    let call = op.lower(&mut frame)?;
    Some(frame.call(call).err().unwrap_or(0))
}

fn execvp(file: &Mem, argv: &Vector, search: &Mem, libc: CLibrary) -> i32 {
    let Vector::Strings(strings) = argv else { exit_now(2) };
    let file = file.bytes().unwrap_or_default();
    if libc != CLibrary(0) {
        return musl_execvpe(file, argv, search.bytes());
    }
    let strings: Vec<&[u8]> = strings.iter().filter_map(Mem::bytes).collect();
    execvpe(file, &strings, search.bytes())
}

/// The search of musl's execvpe(3), with the kernel's execve: this program is linked with another library.
fn musl_execvpe(file: &[u8], argv: &Vector, search: Option<&[u8]>) -> i32 {
    const DEFAULT: &[u8] = b"/usr/local/bin:/bin:/usr/bin";
    const NAME_MAX: usize = 255;
    const PATH_MAX: usize = 4096;
    let execve = |path: &[u8]| {
        let mut frame = Frame::new();
        frame.string(path);
        argv.lower(&mut frame);
        Vector::default().lower(&mut frame);
        frame.call(nr::execve).err().unwrap_or(0)
    };
    if file.is_empty() {
        return libc::ENOENT;
    }
    if file.contains(&b'/') {
        return execve(file);
    }
    if file.len() > NAME_MAX {
        return libc::ENAMETOOLONG;
    }
    let (mut denied, mut last) = (false, libc::ENOENT);
    for element in search.unwrap_or(DEFAULT).split(|b| *b == b':').filter(|e| e.len() < PATH_MAX) {
        let slash: &[u8] = if element.is_empty() { b"" } else { b"/" };
        last = execve(&[element, slash, file].concat());
        match last {
            libc::EACCES => denied = true,
            libc::ENOENT | libc::ENOTDIR => {}
            other => return other,
        }
    }
    if denied { libc::EACCES } else { last }
}

/// What the program wrote: ids, capabilities, its stack pointer and the stack from there on.
fn parse(bytes: &[u8]) -> Option<Exec> {
    let (head, stack) = bytes.split_at_checked(REPORT)?;
    let half = |i: usize| u32::from_ne_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
    let set = |i: usize| u64::from(half(40 + 4 * i)) | u64::from(half(52 + 4 * i)) << 32;
    let top = u64::from(half(64)) | u64::from(half(68)) << 32;
    let stack = Stack { top, bytes: stack };
    let argc = stack.word(0)?;
    let argv = stack.strings(1)?;
    if argv.len() as u64 != argc {
        return None;
    }
    let envp = stack.strings(argv.len() + 2)?;
    let mut exec = Exec {
        uids: [half(0), half(4), half(8), half(24)],
        gids: [half(12), half(16), half(20), half(28)],
        caps: [set(0), set(1), set(2)],
        ..Exec::default()
    };
    let mut at = argv.len() + 2 + envp.len() + 1;
    loop {
        let (key, value) = (stack.word(at)?, stack.word(at + 1)?);
        match key {
            0 => break,
            23 => exec.secure = value != 0,           // AT_SECURE
            31 => exec.execfn = stack.string(value)?, // AT_EXECFN
            _ => {}
        }
        at += 2;
    }
    Some(Exec { argv, envp, ..exec })
}

/// The memory from the initial stack pointer to the end of the stack.
struct Stack<'a> {
    top: u64,
    bytes: &'a [u8],
}

impl Stack<'_> {
    fn word(&self, index: usize) -> Option<u64> {
        let bytes = self.bytes.get(index * 8..index * 8 + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }

    fn string(&self, address: u64) -> Option<Vec<u8>> {
        let at = usize::try_from(address.checked_sub(self.top)?).ok()?;
        let rest = self.bytes.get(at..)?;
        let end = rest.iter().position(|b| *b == 0)?;
        Some(rest[..end].to_vec())
    }

    /// The strings whose addresses stand from `index` to a null pointer.
    fn strings(&self, index: usize) -> Option<Vec<Vec<u8>>> {
        let mut strings = Vec::new();
        loop {
            match self.word(index + strings.len())? {
                0 => return Some(strings),
                address => strings.push(self.string(address)?),
            }
        }
    }
}
