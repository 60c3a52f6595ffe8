//! Instructions as objdump writes them, in Intel's order of operands.

use crate::process;
use std::process::Command;

/// The longest instruction there is, with a byte to spare.
pub(super) const CODE: usize = 16;

/// One instruction.
pub(super) struct Instruction {
    pub(super) text: String,
}

/// Instructions whose first operand is only read.
const READS: [&str; 16] = [
    "cmp",
    "test",
    "push",
    "call",
    "jmp",
    "nop",
    "bt",
    "mul",
    "imul",
    "div",
    "idiv",
    "prefetcht0",
    "prefetcht1",
    "prefetcht2",
    "prefetchnta",
    "prefetchw",
];

const PREFIXES: [&str; 8] = ["lock", "rep", "repz", "repnz", "bnd", "notrack", "data16", "cs"];

impl Instruction {
    fn new(text: &str) -> Instruction {
        // What follows `#` or `<` explains an address.
        let text = text.split(['#', '<']).next().unwrap_or_default();
        Instruction { text: text.split_whitespace().collect::<Vec<_>>().join(" ") }
    }

    /// The mnemonic and its operands.
    fn parts(&self) -> (&str, &str) {
        let mut rest = self.text.as_str();
        loop {
            let (word, operands) = rest.split_once(' ').unwrap_or((rest, ""));
            if !PREFIXES.contains(&word) {
                return (word, operands);
            }
            rest = operands;
        }
    }

    /// Whether it locks memory: by its prefix, or as an exchange with memory does by itself.
    pub(super) fn locks(&self) -> bool {
        let (mnemonic, operands) = self.parts();
        self.text.split(' ').any(|word| word == "lock") || mnemonic == "xchg" && operands.contains('[')
    }

    pub(super) fn fences(&self) -> bool {
        matches!(self.parts().0, "mfence" | "sfence" | "lfence" | "serialize" | "cpuid")
    }

    pub(super) fn enters_kernel(&self) -> bool {
        matches!(self.parts().0, "syscall" | "sysenter" | "int")
    }

    /// The memory operand that it writes. The pushes of `push` and `call` go to the stack by their nature.
    pub(super) fn store(&self) -> Option<&str> {
        let (mnemonic, operands) = self.parts();
        let first = operands.split(',').next().unwrap_or_default();
        (first.contains('[') && !READS.contains(&mnemonic)).then_some(first)
    }
}

/// An instruction from a line of a disassembly: address, colon, tab, text.
pub(super) fn line(line: &str) -> Option<Instruction> {
    let (address, text) = line.split_once(":\t")?;
    u64::from_str_radix(address.trim(), 16).ok()?;
    Some(Instruction::new(text))
}

/// Decodes the first instruction of each piece of code.
pub(super) fn all(codes: impl Iterator<Item = [u8; CODE]>) -> Result<Vec<Instruction>, String> {
    const NOP: u8 = 0x90;
    // Each in a slot of its own, so long that whatever follows the instruction ends before the next slot.
    const SLOT: usize = 2 * CODE;
    let bytes: Vec<u8> = codes.flat_map(|code| code.into_iter().chain([NOP; SLOT - CODE])).collect();
    let file = process::target_dir("executed.bin");
    std::fs::write(&file, &bytes).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut objdump = Command::new("objdump");
    objdump.args(["-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel", "--no-show-raw-insn"]);
    let text = process::output(objdump.arg("--disassemble-zeroes").arg(&file))?;
    let at_slots = |line: &&str| {
        let address = line.split_once(":\t").and_then(|(at, _)| usize::from_str_radix(at.trim(), 16).ok());
        address.is_some_and(|at| at.is_multiple_of(SLOT))
    };
    let instructions: Vec<_> = text.lines().filter(at_slots).filter_map(line).collect();
    if instructions.len() * SLOT == bytes.len() {
        Ok(instructions)
    } else {
        Err(format!("objdump decoded {} of {} instructions", instructions.len(), bytes.len() / SLOT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_instruction_does_is_told_from_its_text() {
        let of = |text: &str| line(&format!("  40:\t{text}")).unwrap();
        assert!(of("lock cmpxchg DWORD PTR [rdi],ecx").locks());
        assert!(of("xchg   DWORD PTR [rdi],eax").locks());
        assert!(!of("xchg   ax,ax").locks());
        assert!(of("mfence").fences());
        assert!(of("syscall").enters_kernel());
        assert_eq!(of("mov    QWORD PTR [rsp+0x8],rax").store(), Some("QWORD PTR [rsp+0x8]"));
        assert_eq!(of("rep stos QWORD PTR es:[rdi],rax").store(), Some("QWORD PTR es:[rdi]"));
        assert_eq!(of("add    DWORD PTR [rip+0x2f],0x1        # 0x77").store(), Some("DWORD PTR [rip+0x2f]"));
        for read in [
            "mov rax,QWORD PTR [rdi]",
            "cmp BYTE PTR [rdi],0x0",
            "push QWORD PTR [rax]",
            "ret",
            "lea rax,[rdi]",
        ] {
            assert_eq!(of(read).store(), None, "{read}");
        }
    }

    #[test]
    fn code_is_decoded_piece_by_piece() {
        let code = |bytes: &[u8]| {
            let mut code = [0xff; CODE];
            code[..bytes.len()].copy_from_slice(bytes);
            code
        };
        // `lock inc dword ptr [rax]`, `ret`, and a move of eleven bytes.
        let codes =
            [code(&[0xf0, 0xff, 0x00]), code(&[0xc3]), code(&[0x48, 0xc7, 0x80, 0, 1, 0, 0, 2, 0, 0, 0])];
        let Ok(decoded) = all(codes.into_iter()) else { return };
        assert_eq!(
            decoded.iter().map(|i| i.text.as_str()).collect::<Vec<_>>(),
            ["lock inc DWORD PTR [rax]", "ret", "mov QWORD PTR [rax+0x100],0x2"]
        );
    }
}
