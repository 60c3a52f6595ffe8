//! What the first bytes of a program say: scripts and ELF headers.
//!
//! Kernel: fs/binfmt_script.c, fs/binfmt_elf.c. Functions of bytes; [`crate::exec`] reads the files.

/// Bytes of a file that decide how it is executed; behind a shorter file come zeros. Kernel: `BINPRM_BUF_SIZE`.
pub(crate) const BINPRM_BUF_SIZE: usize = 256;

/// The first line of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Script<'a> {
    pub(crate) interpreter: &'a [u8],
    /// Everything behind the interpreter is one argument.
    pub(crate) arg: Option<&'a [u8]>,
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The bytes up to the first that `ends` finds.
fn until(bytes: &[u8], ends: impl Fn(u8) -> bool) -> &[u8] {
    let len = bytes.iter().position(|&byte| ends(byte)).unwrap_or(bytes.len());
    &bytes[..len]
}

fn skip_blanks(bytes: &[u8]) -> &[u8] {
    &bytes[until(bytes, |byte| !is_blank(byte)).len()..]
}

/// Without the blanks at the end.
fn trim_blanks(bytes: &[u8]) -> &[u8] {
    let kept = bytes.iter().rposition(|&byte| !is_blank(byte)).map_or(0, |at| at + 1);
    &bytes[..kept]
}

/// Reads a `#!` line. `None`: not a script, or one whose interpreter is missing or may be cut off.
///
/// Where the line does not end within the window, the window's last byte is lost. A NUL ends the interpreter and the
/// argument, but not the line: so an interpreter followed by a blank and the end of the file gets an empty argument, and
/// `#!` alone names the interpreter "".
///
/// Kernel: fs/binfmt_script.c `load_script()`.
pub(crate) fn parse_script(window: &[u8; BINPRM_BUF_SIZE]) -> Option<Script<'_>> {
    let text = window.strip_prefix(b"#!")?;
    let line = until(text, |byte| matches!(byte, b'\n' | 0));
    let line = if text.get(line.len()) == Some(&b'\n') {
        line
    } else {
        let start = skip_blanks(text);
        if start.is_empty() || until(start, |byte| is_blank(byte) || byte == 0).len() == start.len() {
            return None;
        }
        &text[..text.len() - 1]
    };
    let line = skip_blanks(trim_blanks(line));
    if line.is_empty() {
        return None;
    }
    let interpreter = until(line, |byte| is_blank(byte) || byte == 0);
    let rest = &line[interpreter.len()..];
    let arg =
        rest.first().is_some_and(|&byte| is_blank(byte)).then(|| until(skip_blanks(rest), |byte| byte == 0));
    Some(Script { interpreter, arg })
}

/// Bytes of an ELF header.
pub(crate) const EHDR_SIZE: usize = 64;
/// Bytes of one program header.
pub(crate) const PHDR_SIZE: usize = 56;
/// The most bytes of program headers that are read.
const PHDRS_MAX: usize = 65536;

const EM_X86_64: u16 = 62;
const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const PT_INTERP: u32 = 3;

/// What is needed of an ELF header. The machine is x86-64; other machines' programs are no programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ehdr {
    kind: u16,
    /// Where the program headers are, in bytes.
    pub(crate) phoff: u64,
    phentsize: u16,
    phnum: u16,
}

/// A stretch of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// A little-endian number; the caller knows that it is there.
fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + N].iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte))
}

impl Ehdr {
    /// Reads a header. `None`: not ELF, or for another machine.
    pub(crate) fn parse(bytes: &[u8; EHDR_SIZE]) -> Option<Ehdr> {
        let ours = bytes.starts_with(b"\x7fELF") && number::<2>(bytes, 18) == u64::from(EM_X86_64);
        ours.then(|| Ehdr {
            kind: number::<2>(bytes, 16) as u16,
            phoff: number::<8>(bytes, 32),
            phentsize: number::<2>(bytes, 54) as u16,
            phnum: number::<2>(bytes, 56) as u16,
        })
    }

    /// Something that execve starts, and not an object file or a core.
    pub(crate) fn is_program(&self) -> bool {
        matches!(self.kind, ET_EXEC | ET_DYN)
    }

    /// Bytes of all program headers, if they are of the right size and number.
    pub(crate) fn phdrs_size(&self) -> Option<usize> {
        let size = usize::from(self.phnum) * PHDR_SIZE;
        (usize::from(self.phentsize) == PHDR_SIZE && (1..=PHDRS_MAX).contains(&size)).then_some(size)
    }
}

/// The first segment that names a program interpreter.
pub(crate) fn interpreter_segment(phdrs: &[u8]) -> Option<Segment> {
    let phdr = phdrs.chunks_exact(PHDR_SIZE).find(|phdr| number::<4>(phdr, 0) == u64::from(PT_INTERP))?;
    Some(Segment { offset: number::<8>(phdr, 8), size: number::<8>(phdr, 32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(text: &[u8]) -> [u8; BINPRM_BUF_SIZE] {
        let mut window = [0; BINPRM_BUF_SIZE];
        let n = text.len().min(BINPRM_BUF_SIZE);
        window[..n].copy_from_slice(&text[..n]);
        window
    }

    /// e02, e03, e04, e07, and what the kernel says to some odder lines.
    #[test]
    fn lines_are_read_as_the_kernel_reads_them() {
        type Line<'a> = Option<(&'a [u8], Option<&'a [u8]>)>;
        let cases: [(&[u8], Line<'_>); 20] = [
            (b"#!/pa a b  c \n", Some((b"/pa", Some(b"a b  c")))),
            (b"#! \t /pa\n", Some((b"/pa", None))),
            (b"#!/pa", Some((b"/pa", None))),
            (b"#!/pa\targ\t\n", Some((b"/pa", Some(b"arg")))),
            (b"#!", Some((b"", None))),
            (b"#!\n", None),
            (b"#! \t\n", None),
            (b"#!  ", Some((b"", None))),
            (b"#!/pa\0junk arg\n", Some((b"/pa", None))),
            (b"#!/pa a\0b\n", Some((b"/pa", Some(b"a")))),
            (b"#!/pa ", Some((b"/pa", Some(b"")))),
            (b"#!/pa \0x\n", Some((b"/pa", Some(b"")))),
            (b"#!/pa\t \n", Some((b"/pa", None))),
            (b"#!/pa a \0\n", Some((b"/pa", Some(b"a ")))),
            (b"#!\0\n", Some((b"", None))),
            (b"#! \0/pa\n", Some((b"", None))),
            (b"#!pa\r\n", Some((b"pa\r", None))),
            (b"#!/pa\n#!/other\n", Some((b"/pa", None))),
            (b" #!/pa\n", None),
            (b"", None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|(interpreter, arg)| Script { interpreter, arg });
            assert_eq!(parse_script(&window(text)), expected, "{:?}", String::from_utf8_lossy(text));
        }
    }

    /// e05, e06: the window is all that is seen.
    #[test]
    fn the_window_cuts() {
        let path = [b"/".as_slice(), &[b'p'; 400]].concat();
        let line = |path_len: usize, rest: &[u8]| window(&[b"#!", &path[..path_len], rest].concat());
        assert_eq!(parse_script(&line(253, b"\n")).unwrap().interpreter.len(), 253, "newline at byte 255");
        assert_eq!(parse_script(&line(254, b"\n")), None, "newline beyond the window");
        assert_eq!(
            parse_script(&line(253, b" x\n")).unwrap(),
            Script { interpreter: &path[..253], arg: None }
        );
        assert_eq!(parse_script(&line(252, b" xy\n")).unwrap().arg, None, "the last byte is lost");
        assert_eq!(parse_script(&line(251, b" xy\n")).unwrap().arg, Some(b"x".as_slice()));
        assert_eq!(
            parse_script(&line(3, &[b" ", &[b'a'; 400][..]].concat())).unwrap().arg.unwrap().len(),
            249
        );
        assert_eq!(parse_script(&window(&[b"#!", &[b' '; 300][..]].concat())), None, "blanks only");
    }

    #[test]
    fn headers_of_other_machines_and_sizes_are_refused() {
        let mut bytes = [0; EHDR_SIZE];
        bytes[..4].copy_from_slice(b"\x7fELF");
        (bytes[16], bytes[18], bytes[54], bytes[56]) = (3, 62, 56, 1);
        let good = Ehdr::parse(&bytes).unwrap();
        assert!(good.is_program());
        assert_eq!(good.phdrs_size(), Some(56));
        let with = |at: usize, byte: u8| {
            let mut changed = bytes;
            changed[at] = byte;
            Ehdr::parse(&changed)
        };
        assert_eq!(with(18, 3), None, "another machine");
        assert_eq!(with(0, 0), None);
        assert!(!with(16, 1).unwrap().is_program(), "an object file");
        assert_eq!(with(56, 0).unwrap().phdrs_size(), None);
        assert_eq!(with(57, 4).unwrap().phdrs_size(), Some(57400));
        assert_eq!(with(57, 5).unwrap().phdrs_size(), None, "71,736 bytes");
        assert_eq!(with(54, 32).unwrap().phdrs_size(), None);
    }
}
