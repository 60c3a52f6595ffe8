//! The smallest program that can be measured: it decrements the number in its argument and executes itself again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::error::Error;

/// The digits of its argument.
pub(super) const DIGITS: usize = 8;

/// Where it is loaded.
const BASE: u64 = 0x40_0000;

/// ELF header and one program header.
const HEADERS: usize = 64 + 56;

/// `argv[1]` has [`DIGITS`] decimal digits. Zero: leave with 0. Otherwise: one less, and `execve(argv[0], argv, envp)`; leave
/// with 1 if that fails.
#[rustfmt::skip]
const CODE: [u8; 69] = [
    0x48, 0x8b, 0x7c, 0x24, 0x08,       //    mov    rdi, [rsp + 8]             argv[0]
    0x48, 0x8d, 0x74, 0x24, 0x08,       //    lea    rsi, [rsp + 8]             argv
    0x48, 0x8b, 0x5c, 0x24, 0x10,       //    mov    rbx, [rsp + 16]            argv[1]
    0x48, 0x8b, 0x04, 0x24,             //    mov    rax, [rsp]                 argc
    0x48, 0x8d, 0x54, 0xc4, 0x10,       //    lea    rdx, [rsp + rax * 8 + 16]  envp
    0xb9, 0x07, 0x00, 0x00, 0x00,       //    mov    ecx, 7
    0x80, 0x3c, 0x0b, 0x30,             // 1: cmp    byte ptr [rbx + rcx], '0'
    0x75, 0x0c,                         //    jne    2f
    0xc6, 0x04, 0x0b, 0x39,             //    mov    byte ptr [rbx + rcx], '9'
    0xff, 0xc9,                         //    dec    ecx
    0x79, 0xf2,                         //    jns    1b
    0x31, 0xff,                         //    xor    edi, edi
    0xeb, 0x0f,                         //    jmp    3f
    0xfe, 0x0c, 0x0b,                   // 2: dec    byte ptr [rbx + rcx]
    0xb8, 0x3b, 0x00, 0x00, 0x00,       //    mov    eax, 59                    execve
    0x0f, 0x05,                         //    syscall
    0xbf, 0x01, 0x00, 0x00, 0x00,       //    mov    edi, 1
    0xb8, 0x3c, 0x00, 0x00, 0x00,       // 3: mov    eax, 60                    exit
    0x0f, 0x05,                         //    syscall
];

/// The argument for `n` executions of itself; for numbers of up to eight digits.
pub fn argument(n: u32) -> String {
    format!("{n:0width$}", width = DIGITS)
}

/// Puts the program into a file, or says why it could not be executed there.
///
/// # Errors
///
/// When the file cannot be written.
pub fn install(path: &Path) -> Result<Result<(), String>, Error> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(Err("making programs is not timed: there is a small program for x86-64 only".into()));
    }
    fs::write(path, image())
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .map_err(|e| Error::host("making a program", path, e, "set TMPDIR to a directory with room"))?;
    Ok(Command::new(path).arg(argument(1)).status().map(drop).map_err(|e| {
        format!(
            "making programs is not timed: {} cannot be executed ({}); set TMPDIR to a directory where it can",
            path.display(),
            rcuwalk_host::describe(&e)
        )
    }))
}

/// The program as a file: a static ELF executable of one segment.
fn image() -> Vec<u8> {
    let size = (HEADERS + CODE.len()) as u64;
    let mut out = Vec::with_capacity(HEADERS + CODE.len());
    // 64 bits, little endian, version 1.
    out.extend([0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let half = |out: &mut Vec<u8>, value: u16| out.extend(value.to_le_bytes());
    let word = |out: &mut Vec<u8>, value: u32| out.extend(value.to_le_bytes());
    let long = |out: &mut Vec<u8>, value: u64| out.extend(value.to_le_bytes());
    half(&mut out, 2); // executable
    half(&mut out, 62); // x86-64
    word(&mut out, 1);
    long(&mut out, BASE + HEADERS as u64); // entry
    long(&mut out, 64); // program headers
    long(&mut out, 0); // no sections
    word(&mut out, 0);
    for value in [64, 56, 1, 0, 0, 0] {
        half(&mut out, value); // sizes and numbers of headers
    }
    word(&mut out, 1); // load
    word(&mut out, 5); // read, execute
    for value in [0, BASE, BASE, size, size, 0x1000] {
        long(&mut out, value); // offset, addresses, sizes, alignment
    }
    out.extend(CODE);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_have_their_size() {
        let image = image();
        assert_eq!(image.len(), HEADERS + CODE.len());
        assert_eq!(&image[HEADERS..], CODE);
        assert_eq!(argument(1000), "00001000");
    }
}
