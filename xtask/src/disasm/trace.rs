//! Running a program one instruction at a time.

use super::decode::CODE;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The number of the system call that the probe marks the beginning and the end of a lookup with.
const SYS_GETPPID: u64 = 110;

/// The machine code of a system call.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// One instruction about to be executed.
pub(super) struct Step {
    regs: nix::libc::user_regs_struct,
    pub(super) code: [u8; CODE],
}

/// What one lookup executed.
pub(super) struct Trace {
    pub(super) steps: Vec<Step>,
    pub(super) stack: Range<u64>,
    maps: String,
}

/// Steps through the lookup `name` of the probe.
pub(super) fn run(probe: &Path, name: &str) -> Result<Trace, String> {
    let mut child = Command::new(probe)
        .arg(name)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", probe.display()))?;
    let trace = attach(&mut child).and_then(|pid| follow(pid, &mut child));
    // Whatever happened, the probe is not left behind.
    if trace.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    match trace {
        Ok(_) if !status.success() => Err(format!("the probe of `{name}` failed: {status}")),
        other => other.map_err(|error| format!("tracing `{name}`: {error}")),
    }
}

/// Waits until the probe is ready, and stops it.
fn attach(child: &mut Child) -> Result<Pid, String> {
    let pid = Pid::from_raw(child.id() as i32);
    let mut line = String::new();
    let stdout = child.stdout.as_mut().ok_or("no output")?;
    BufReader::new(stdout).read_line(&mut line).map_err(|error| error.to_string())?;
    if line != "ready\n" {
        return Err("the probe is not ready".into());
    }
    ptrace::attach(pid).map_err(|errno| errno.to_string())?;
    stopped(pid)?;
    child.stdin.as_mut().ok_or("no input")?.write_all(b"\n").map_err(|error| error.to_string())?;
    Ok(pid)
}

/// Waits until the traced process stops; gives the signal that is to be delivered to it.
fn stopped(pid: Pid) -> Result<Option<Signal>, String> {
    match waitpid(pid, None).map_err(|errno| errno.to_string())? {
        WaitStatus::Stopped(_, Signal::SIGTRAP | Signal::SIGSTOP) => Ok(None),
        WaitStatus::Stopped(_, signal) => Ok(Some(signal)),
        other => Err(format!("the probe ended: {other:?}")),
    }
}

/// Records what is executed between the two marks, then lets the process run on.
fn follow(pid: Pid, child: &mut Child) -> Result<Trace, String> {
    let text = |error: std::io::Error| error.to_string();
    let memory = File::open(format!("/proc/{}/mem", child.id())).map_err(text)?;
    let (mut steps, mut marks) = (Vec::new(), 0);
    loop {
        let regs = ptrace::getregs(pid).map_err(|errno| errno.to_string())?;
        let mut code = [0; CODE];
        // At the end of a mapping there may be fewer bytes: no instruction that is executed needs them.
        memory.read_at(&mut code, regs.rip).map_err(text)?;
        if code[..2] == SYSCALL && regs.rax == SYS_GETPPID {
            marks += 1;
            if marks == 2 {
                break;
            }
        } else if marks == 1 {
            steps.push(Step { regs, code });
        }
        let mut signal = None;
        loop {
            ptrace::step(pid, signal).map_err(|errno| errno.to_string())?;
            signal = stopped(pid)?;
            if signal.is_none() {
                break;
            }
        }
    }
    // The first step is the return from the mark itself.
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).map_err(text)?;
    let stack = maps.lines().find(|line| line.ends_with("[stack]")).and_then(range).ok_or("no stack")?;
    ptrace::detach(pid, None).map_err(|errno| errno.to_string())?;
    Ok(Trace { steps, stack, maps })
}

/// The addresses of a line of `/proc/PID/maps`.
fn range(line: &str) -> Option<Range<u64>> {
    let (from, to) = line.split(' ').next()?.split_once('-')?;
    Some(u64::from_str_radix(from, 16).ok()?..u64::from_str_radix(to, 16).ok()?)
}

impl Trace {
    /// The function and line at an address, or the mapping and the offset in it.
    pub(super) fn place(&self, at: u64) -> String {
        let line = self.maps.lines().find(|line| range(line).is_some_and(|range| range.contains(&at)));
        let found = line.and_then(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let offset = u64::from_str_radix(fields.get(2)?, 16).ok()?;
            Some((*fields.get(5)?, at - range(line)?.start + offset))
        });
        let Some((file, offset)) = found else { return format!("{at:#x}") };
        let mut addr2line = Command::new("addr2line");
        addr2line.args([
            "--demangle",
            "--functions",
            "--pretty-print",
            "--exe",
            file,
            &format!("{offset:#x}"),
        ]);
        let known = crate::process::output(&mut addr2line).unwrap_or_default();
        if known.is_empty() || known.starts_with("??") {
            format!("{file}+{offset:#x}")
        } else {
            known.trim().into()
        }
    }
}

impl Step {
    pub(super) fn at(&self) -> u64 {
        self.regs.rip
    }

    /// The address of an operand such as `QWORD PTR [rax+rcx*8-0x10]`; none for what is static or thread-local.
    pub(super) fn address(&self, operand: &str) -> Option<u64> {
        if operand.contains("fs:") || operand.contains("gs:") {
            return None;
        }
        let inside = operand.split_once('[')?.1.split_once(']')?.0;
        let signed = inside.replace('-', "+-");
        signed.split('+').filter(|term| !term.is_empty()).try_fold(0u64, |sum, term| {
            let (negative, term) = term.strip_prefix('-').map_or((false, term), |term| (true, term));
            let (base, scale) = term.split_once('*').unwrap_or((term, "1"));
            let value = match base.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok()?,
                None => self.register(base)?,
            };
            let value = value.wrapping_mul(scale.parse().ok()?);
            Some(if negative { sum.wrapping_sub(value) } else { sum.wrapping_add(value) })
        })
    }

    fn register(&self, name: &str) -> Option<u64> {
        let r = &self.regs;
        Some(match name {
            "rax" => r.rax,
            "rbx" => r.rbx,
            "rcx" => r.rcx,
            "rdx" => r.rdx,
            "rsi" => r.rsi,
            "rdi" => r.rdi,
            "rbp" => r.rbp,
            "rsp" => r.rsp,
            "r8" => r.r8,
            "r9" => r.r9,
            "r10" => r.r10,
            "r11" => r.r11,
            "r12" => r.r12,
            "r13" => r.r13,
            "r14" => r.r14,
            "r15" => r.r15,
            _ => return None,
        })
    }
}
