//! `cargo x disasm`: what a lookup executes, from the machine code.
//!
//! Each lookup of `crates/bench/examples/lookups.rs` runs one instruction at a time, and every instruction is looked at: no locked
//! read-modify-write, no fence, no system call, and no store but to the stack of the thread that makes the call. Besides,
//! whole functions of the lockless walk are searched for the first two, branches not taken included.

mod decode;
mod trace;

use crate::process::{self, Outcome, RELEASE, cargo, target_dir, works};
use decode::Instruction;
use std::path::Path;
use std::process::Command;
use trace::Step;

/// The functions of which no branch may lock or fence, whatever it is.
const PURE: [&str; 2] = [
    "rcuwalk::namei::lockless::<impl rcuwalk::namei::Walker>::walk_rcu",
    "rcuwalk::namei::steps::<impl rcuwalk::namei::nameidata::Nameidata>::prove_missing",
];

/// Calls of the probe that are no lookups, and do what lookups must not.
const CONTROL: &str = "control: ";

pub(crate) fn run() -> Outcome {
    if !works(Command::new("objdump").arg("--version")) {
        return Outcome::Skipped("objdump is not installed (package binutils)".into());
    }
    let built = process::run(&mut cargo(&format!("build --quiet {RELEASE}")));
    let probe = target_dir("release").join("examples/lookups");
    let traced = built.and_then(|()| functions(&probe)).and_then(|()| lookups(&probe));
    match traced {
        Ok(0) => Outcome::Passed,
        Ok(wrong) => Outcome::Failed(format!("{wrong} instructions that a lookup must not execute")),
        Err(error) if error.contains("EPERM") => {
            Outcome::Skipped(format!("this system forbids tracing: {error}"))
        }
        Err(error) => Outcome::Failed(error),
    }
}

/// Searches the functions in [`PURE`].
fn functions(probe: &Path) -> Result<(), String> {
    let mut objdump = Command::new("objdump");
    objdump.args(["--disassemble", "--demangle", "--no-show-raw-insn", "-M", "intel"]).arg(probe);
    let text = process::output(&mut objdump)?;
    for name in PURE {
        let (mut found, mut count, mut wrong) = (false, 0, Vec::new());
        let mut inside = false;
        for line in text.lines() {
            if let Some(symbol) = line.strip_suffix(">:").and_then(|line| Some(line.split_once('<')?.1)) {
                inside = symbol == name;
                found |= inside;
            } else if let Some(instruction) = decode::line(line).filter(|_| inside) {
                count += 1;
                if instruction.locks() || instruction.fences() {
                    wrong.push(instruction.text);
                }
            }
        }
        if !found {
            return Err(format!("{name} is not in the binary"));
        }
        println!("{name}: {count} instructions, {} locked or fences", wrong.len());
        if !wrong.is_empty() {
            return Err(format!("{name} contains {}", wrong.join("; ")));
        }
    }
    Ok(())
}

/// What is wrong with one executed instruction, if anything.
fn fault(instruction: &Instruction, step: &Step, stack: &std::ops::Range<u64>) -> Option<&'static str> {
    if instruction.locks() {
        return Some("an atomic read-modify-write");
    }
    if instruction.fences() {
        return Some("a fence");
    }
    if instruction.enters_kernel() {
        return Some("a system call");
    }
    let stores_elsewhere = instruction
        .store()
        .is_some_and(|operand| step.address(operand).is_none_or(|at| !stack.contains(&at)));
    stores_elsewhere.then_some("a store beyond the stack")
}

/// Traces all lookups; gives the number of instructions that are wrong.
fn lookups(probe: &Path) -> Result<usize, String> {
    let names = process::output(&mut Command::new(probe))?;
    println!("{:36}{:>14}{:>8}", "lookup", "instructions", "wrong");
    let mut wrong = 0;
    for name in names.lines() {
        let trace = trace::run(probe, name)?;
        let instructions = decode::all(trace.steps.iter().map(|step| step.code))?;
        let faults: Vec<_> = trace
            .steps
            .iter()
            .zip(&instructions)
            .filter_map(|(step, instruction)| {
                Some((fault(instruction, step, &trace.stack)?, step, instruction))
            })
            .collect();
        println!("{name:36}{:>14}{:>8}", trace.steps.len(), faults.len());
        if name.starts_with(CONTROL) {
            if faults.is_empty() {
                return Err(format!("`{name}` writes shared memory, and the tracer does not see it"));
            }
            continue;
        }
        for (what, step, instruction) in &faults {
            println!("    {what}: {} at {}", instruction.text, trace.place(step.at()));
        }
        wrong += faults.len();
    }
    Ok(wrong)
}
