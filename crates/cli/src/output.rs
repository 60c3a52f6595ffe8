//! How a command ends, and where it writes.

use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};

use anstyle::Style;

/// How a command ends other than well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The answer is no; nothing more is to be said.
    No,
    /// An error: the text goes to standard error.
    Error(String),
    /// An error that has been explained.
    Explained,
    /// Nobody reads standard output any more.
    Pipe,
}

impl Failure {
    /// The exit code, as `--help` documents it.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::No => 1,
            Failure::Error(_) | Failure::Explained => 2,
            Failure::Pipe => 141, // what a shell reports for SIGPIPE
        }
    }
}

impl From<rcuwalk_bench::Error> for Failure {
    fn from(error: rcuwalk_bench::Error) -> Failure {
        Failure::Error(error.to_string())
    }
}

/// The end of a command.
pub(crate) type Done = Result<(), Failure>;

/// Writes a complete answer to standard output.
pub(crate) fn print(bytes: &[u8]) -> Done {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Pipe),
        Err(e) => {
            let text = rcuwalk_bench::describe(&e);
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
