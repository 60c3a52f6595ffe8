//! How a command ends, and where it writes.

use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::path::{Path, PathBuf};

use anstyle::Style;
use tempfile::NamedTempFile;

/// How a command ends other than well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The answer is no; nothing more is to be said.
    No,
    /// The answer hangs on something that could not be seen, which has been said.
    Unknown,
    /// An error: the text goes to standard error.
    Error(String),
    /// An error that has been explained.
    Explained,
    /// Nobody reads standard output any more.
    Pipe,
    /// A signal ended it, and what there is to say about it has been said.
    Signal(i32),
}

impl Failure {
    /// The exit code, as `--help` documents it.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::No => 1,
            Failure::Error(_) | Failure::Explained => 2,
            Failure::Unknown => 3,
            Failure::Pipe => 141, // what a shell reports for SIGPIPE
            Failure::Signal(signal) => 128 + *signal as u8,
        }
    }
}

impl From<rcuwalk_measure::Error> for Failure {
    fn from(error: rcuwalk_measure::Error) -> Failure {
        Failure::Error(error.to_string())
    }
}

/// The end of a command.
pub(crate) type Done = Result<(), Failure>;

/// Where a long answer goes, piece by piece: standard output, or a file that is replaced once the answer is complete.
pub(crate) enum Sink {
    Stdout(BufWriter<Stdout>),
    /// The successor, and the file it is for.
    File(BufWriter<NamedTempFile>, PathBuf),
    /// A device or pipe, which is written to as it is.
    Special(BufWriter<File>),
}

impl Sink {
    /// Opens it; standard output if there is no file.
    pub(crate) fn new(file: Option<&Path>) -> Result<Sink, Failure> {
        let Some(path) = file else { return Ok(Sink::Stdout(BufWriter::new(io::stdout()))) };
        let failed = |e: io::Error| {
            let text = rcuwalk_host::describe(&e);
            let hint = "name a file in a directory that exists and can be written";
            Failure::Error(format!("writing the output: {}: {text}; {hint}", path.display()))
        };
        match successor(path) {
            Some(parent) => {
                let file = temporary(parent).map_err(failed)?;
                Ok(Sink::File(BufWriter::new(file), path.to_path_buf()))
            }
            None => Ok(Sink::Special(BufWriter::new(File::create(path).map_err(failed)?))),
        }
    }

    /// Ends the answer, and puts it into its place.
    pub(crate) fn finish(self) -> Done {
        let done = match self {
            Sink::Stdout(mut out) => out.flush(),
            Sink::Special(mut out) => out.flush(),
            Sink::File(out, path) => out
                .into_inner()
                .map_err(io::Error::from)
                .and_then(|file| file.persist(path).map(drop).map_err(io::Error::from)),
        };
        done.map_err(|e| match e.kind() {
            io::ErrorKind::BrokenPipe => Failure::Pipe,
            _ => Failure::Error(format!("writing the output: {}; make room", rcuwalk_host::describe(&e))),
        })
    }
}

impl Write for Sink {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Stdout(out) => out.write(buf),
            Sink::File(out, _) => out.write(buf),
            Sink::Special(out) => out.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Stdout(out) => out.flush(),
            Sink::File(out, _) => out.flush(),
            Sink::Special(out) => out.flush(),
        }
    }
}

/// The place for a file's successor, and whether it is replaced at all: a device or pipe is written to instead.
pub(crate) fn successor(path: &Path) -> Option<&Path> {
    let special = std::fs::metadata(path).is_ok_and(|meta| !meta.is_file());
    let parent = path.parent().unwrap_or(Path::new("."));
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    (!special).then_some(parent)
}

/// A file that is to replace another in that directory.
pub(crate) fn temporary(parent: &Path) -> io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    tempfile::Builder::new()
        .prefix(".rcuwalk-")
        .permissions(std::fs::Permissions::from_mode(0o666)) // less the umask
        .tempfile_in(parent)
}

/// Writes a complete answer to standard output.
pub(crate) fn print(bytes: &[u8]) -> Done {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Pipe),
        Err(e) => {
            let text = rcuwalk_host::describe(&e);
            Err(Failure::Error(format!(
                "writing the output: standard output: {text}; make room, or redirect it"
            )))
        }
    }
}

/// Writes a value as JSON, indented, with a newline at the end.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Done {
    let mut text = serde_json::to_vec_pretty(value)
        .map_err(|e| Failure::Error(format!("writing the output: JSON: {e}")))?;
    text.push(b'\n');
    print(&text)
}

/// Writes a line to standard error; one that cannot be written is lost.
pub(crate) fn complain(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "rcuwalk: {text}");
}

/// What standard output is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal {
    /// A terminal: odd bytes are escaped.
    pub(crate) is_terminal: bool,
    /// Colours are wanted.
    pub(crate) colour: bool,
    /// Columns, on a terminal.
    pub(crate) width: Option<u16>,
}

impl Terminal {
    pub(crate) fn stdout() -> Terminal {
        let out = io::stdout();
        let is_terminal = out.is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let width = || {
            rustix::termios::tcgetwinsize(&out).ok().map(|size| size.ws_col).filter(|&columns| columns > 0)
        };
        Terminal {
            is_terminal,
            colour: is_terminal && !no_color && !dumb,
            width: if is_terminal { width() } else { None },
        }
    }

    /// A name, in a style. On a terminal, bytes that would steer it or that are no UTF-8 are shown as escapes;
    /// elsewhere every byte stays what it is.
    pub(crate) fn name(self, out: &mut Vec<u8>, name: &[u8], style: Style) {
        let (start, end) = self.style(style);
        out.extend_from_slice(start.as_bytes());
        if self.is_terminal {
            out.extend_from_slice(escaped(name).as_bytes());
        } else {
            out.extend_from_slice(name);
        }
        out.extend_from_slice(end.as_bytes());
    }

    /// What to write before and after styled text.
    fn style(self, style: Style) -> (String, String) {
        if self.colour && !style.is_plain() {
            (style.render().to_string(), style.render_reset().to_string())
        } else {
            (String::new(), String::new())
        }
    }
}

/// A name with everything unprintable as an escape.
pub(crate) fn escaped(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
        }
        for byte in chunk.invalid() {
            let _ = fmt::Write::write_fmt(&mut text, format_args!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_what_steers_a_terminal() {
        assert_eq!(escaped("a b\u{e4}".as_bytes()), "a b\u{e4}");
        assert_eq!(escaped(b"a\x1b[2J\n\xff"), "a\\u{1b}[2J\\n\\xff");
    }

    #[test]
    fn raw_bytes_stay_raw_off_a_terminal() {
        let plain = Terminal { is_terminal: false, colour: false, width: None };
        let mut out = Vec::new();
        plain.name(&mut out, b"\x1b\xff", anstyle::AnsiColor::Blue.on_default());
        assert_eq!(out, b"\x1b\xff");
        let colour = Terminal { is_terminal: true, colour: true, width: Some(80) };
        colour.name(&mut out, b"x", anstyle::AnsiColor::Blue.on_default());
        assert_eq!(&out[2..], b"\x1b[34mx\x1b[0m");
    }
}
