//! Reading what `strace -f` wrote.
//!
//! A log is somebody else's text: lines that cannot be read are counted, never guessed at.

use std::collections::HashMap;

/// One system call of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) args: Vec<Arg>,
    /// The result; an error is negative.
    pub(super) result: i64,
    /// The name of the error, if it was one: `ENOENT`.
    pub(super) error: Option<String>,
}

/// One argument, as far as path calls need them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Arg {
    /// A string, whole.
    Text(Vec<u8>),
    /// Anything else: numbers, flags, structures; a descriptor's path with `-y` stands behind it.
    Word { text: String, path: Option<Vec<u8>> },
}

/// What a log holds.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) calls: Vec<Call>,
    /// Lines that are neither calls nor what strace says besides.
    pub(super) unread: usize,
}

/// Reads a whole log.
pub(super) fn read(text: &[u8]) -> Log {
    let mut log = Log::default();
    let mut begun: HashMap<u32, Vec<u8>> = HashMap::new();
    for line in text.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii();
        let (pid, rest) = prefix(line);
        if rest.is_empty()
            || rest.starts_with(b"+++")
            || rest.starts_with(b"---")
            || rest.starts_with(b"strace:")
        {
            continue;
        }
        // `vfork( <unfinished ...>`, and later `<... vfork resumed>) = 7`.
        let whole = if let Some(head) = rest.strip_suffix(b"<unfinished ...>") {
            begun.insert(pid, head.to_vec());
            continue;
        } else if let Some(tail) = rest.strip_prefix(b"<... ") {
            let tail = tail.windows(8).position(|window| window == b"resumed>").map(|at| &tail[at + 8..]);
            match (begun.remove(&pid), tail) {
                (Some(mut head), Some(tail)) => {
                    head.extend_from_slice(tail);
                    head
                }
                _ => Vec::new(),
            }
        } else {
            rest.to_vec()
        };
        match call(pid, &whole) {
            Some(call) => log.calls.push(call),
            None => log.unread += 1,
        }
    }
    log
}

/// The process, and what stands behind it and behind a time: `[pid 7]`, `7`, `12:30:01.5`, `1700000000.5`.
fn prefix(line: &[u8]) -> (u32, &[u8]) {
    let (mut pid, mut rest) = (0, line);
    if let Some(tail) = rest.strip_prefix(b"[pid ")
        && let Some(end) = tail.iter().position(|&byte| byte == b']')
    {
        pid = number(tail[..end].trim_ascii()).unwrap_or(0);
        rest = tail[end + 1..].trim_ascii_start();
    }
    while let Some(end) = rest.iter().position(|&byte| byte == b' ') {
        let word = &rest[..end];
        if !word.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b':' | b'.')) {
            break;
        }
        if pid == 0 && word.iter().all(u8::is_ascii_digit) {
            pid = number(word).unwrap_or(0);
        }
        rest = rest[end..].trim_ascii_start();
    }
    (pid, rest)
}

fn number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// `name(args) = result ERROR (text)`.
fn call(pid: u32, line: &[u8]) -> Option<Call> {
    let open = line.iter().position(|&byte| byte == b'(')?;
    let name = std::str::from_utf8(&line[..open]).ok()?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    let (args, behind) = arguments(&line[open + 1..])?;
    let behind = std::str::from_utf8(behind.trim_ascii_start().strip_prefix(b"=")?).ok()?.trim();
    let mut words = behind.split([' ', '<']);
    let result = words.next()?;
    let result = match result.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok()?,
        None => result.parse().ok()?,
    };
    let error = words.next().filter(|word| result < 0 && word.starts_with('E')).map(str::to_owned);
    Some(Call { pid, name: name.to_owned(), args, result, error })
}

/// The arguments up to the closing parenthesis, and what stands behind that.
fn arguments(text: &[u8]) -> Option<(Vec<Arg>, &[u8])> {
    let (mut args, mut at) = (Vec::new(), 0);
    loop {
        while text.get(at) == Some(&b' ') {
            at += 1;
        }
        if text.get(at) == Some(&b')') {
            return Some((args, &text[at + 1..]));
        }
        let (arg, end) = argument(text, at)?;
        args.push(arg);
        at = end + usize::from(text.get(end) == Some(&b','));
    }
}

/// The argument that begins at `start`, and where it ends.
fn argument(text: &[u8], start: usize) -> Option<(Arg, usize)> {
    if text[start..].first() == Some(&b'"') {
        let (string, end) = string(text, start)?;
        if !text[end..].starts_with(b"...") {
            return Some((Arg::Text(string), end));
        }
    }
    let (mut depth, mut at, mut path) = (0_u32, start, None);
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => {
                at = string(text, at)?.1;
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b',' if depth == 0 => break,
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            b'<' if depth == 0 => {
                let end = at + text[at..].iter().position(|&byte| byte == b'>')?;
                path = Some(text[at + 1..end].to_vec());
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
    text.get(at)?;
    let word = text[start..at].split(|&byte| byte == b'<').next().unwrap_or_default();
    Some((Arg::Word { text: String::from_utf8_lossy(word).into_owned(), path }, at))
}

/// The string in quotes that begins at `start`, as C writes it, and where it ends.
fn string(text: &[u8], start: usize) -> Option<(Vec<u8>, usize)> {
    let (mut out, mut at) = (Vec::new(), start + 1);
    loop {
        match *text.get(at)? {
            b'"' => return Some((out, at + 1)),
            b'\\' => {
                at += 1;
                let escape = *text.get(at)?;
                at += 1;
                out.push(match escape {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    b'v' => 0x0b,
                    b'f' => 0x0c,
                    b'x' => {
                        let digits = std::str::from_utf8(text.get(at..at + 2)?).ok()?;
                        at += 2;
                        u8::from_str_radix(digits, 16).ok()?
                    }
                    b'0'..=b'7' => {
                        let more =
                            text[at..].iter().take(2).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
                        let digits = std::str::from_utf8(&text[at - 1..at + more]).ok()?;
                        at += more;
                        u8::from_str_radix(digits, 8).ok()?
                    }
                    other => other,
                });
            }
            byte => {
                out.push(byte);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> Arg {
        Arg::Text(bytes.to_vec())
    }

    #[test]
    fn reads_what_strace_writes() {
        let log = read(
            br#"7 openat(AT_FDCWD</home>, "a\"b\n\303\x41", O_RDONLY|O_CLOEXEC) = 3</home/a>
[pid  8] 12:00:01.5 access("/x", R_OK)  = -1 ENOENT (No such file or directory)
8 vfork( <unfinished ...>
7 newfstatat(3</home/a>, "", {st_mode=S_IFREG|0644, st_size=5, ...}, AT_EMPTY_PATH) = 0
8 <... vfork resumed>) = 9
9 execve("/bin/true", ["true", "x, y"], 0x7ff /* 46 vars */) = 0
9 +++ exited with 0 +++
7 --- SIGCHLD {si_signo=SIGCHLD} ---
7 what is this
7 brk(NULL) = 0x5581
"#,
        );
        let names: Vec<&str> = log.calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(names, ["openat", "access", "newfstatat", "vfork", "execve", "brk"]);
        assert_eq!(log.unread, 1);
        let first = &log.calls[0];
        assert_eq!((first.pid, first.result), (7, 3));
        assert_eq!(first.args[0], Arg::Word { text: "AT_FDCWD".into(), path: Some(b"/home".to_vec()) });
        assert_eq!(first.args[1], text(b"a\"b\n\xc3A"));
        let second = &log.calls[1];
        assert_eq!((second.pid, second.result, second.error.as_deref()), (8, -1, Some("ENOENT")));
        assert_eq!((log.calls[3].pid, log.calls[3].result), (8, 9));
        assert_eq!(log.calls[4].args[0], text(b"/bin/true"));
    }

    #[test]
    fn hostile_lines_end_and_are_counted() {
        for line in [
            "open(\"",
            "open(\"\\",
            "open(((((",
            "a)",
            "(",
            "open(\"x\"",
            "open(<",
            "\\x(",
            "open(\"\\x\")= 1",
        ] {
            let log = read(line.as_bytes());
            assert_eq!((log.calls.len(), log.unread), (0, 1), "{line}");
        }
    }
}
