//! Reading what strace(1) wrote, and the names that it has for flags.
//!
//! A log is a foreign text: lines that cannot be read are counted, never guessed at.

use std::collections::HashMap;

use rcuwalk::uapi::*;

/// One system call of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The thread that made it; 0 if the log does not say.
    pub pid: u32,
    /// Its name: `openat`.
    pub name: String,
    /// Its arguments.
    pub args: Vec<Arg>,
    /// The result; an error is negative.
    pub result: i64,
    /// The name of the error, if it was one: `ENOENT`.
    pub error: Option<String>,
}

/// One argument, as far as path calls need them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arg {
    /// A string, whole.
    Text(Vec<u8>),
    /// Anything else: numbers, flags, structures; a descriptor's path with `-y` stands behind it.
    Word {
        /// As it is written, up to the path of a descriptor.
        text: String,
        /// The path of a descriptor.
        path: Option<Vec<u8>>,
    },
}

/// What a log holds.
#[derive(Debug, Default)]
pub struct Log {
    /// The calls that were read, in their order.
    pub calls: Vec<Call>,
    /// Lines that are neither calls nor what strace says besides.
    pub unread: usize,
}

/// Reads a whole log, with or without process numbers and times; calls that strace had to interrupt are put together.
///
/// ```
/// let log = rcuwalk_host::strace::read(b"7 openat(AT_FDCWD, \"/etc/shadow\", O_RDONLY) = -1 EACCES (Permission denied)\n");
/// assert_eq!((log.calls[0].pid, log.calls[0].error.as_deref()), (7, Some("EACCES")));
/// ```
pub fn read(text: &[u8]) -> Log {
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
    let (name, args, behind) = head(line)?;
    let behind = std::str::from_utf8(behind.trim_ascii_start().strip_prefix(b"=")?).ok()?.trim();
    let mut words = behind.split([' ', '<']);
    let result = words.next()?;
    let result = match result.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok()?,
        None => result.parse().ok()?,
    };
    let error = words.next().filter(|word| result < 0 && word.starts_with('E')).map(str::to_owned);
    Some(Call { pid, name, args, result, error })
}

/// Reads one call up to its closing parenthesis: its name, its arguments, and what stands behind it. `None` if it is no call.
///
/// ```
/// let (name, args, behind) = rcuwalk_host::strace::head(b"close(3) = 0").unwrap();
/// assert_eq!((name.as_str(), args.len(), behind), ("close", 1, &b" = 0"[..]));
/// ```
pub fn head(line: &[u8]) -> Option<(String, Vec<Arg>, &[u8])> {
    let open = line.iter().position(|&byte| byte == b'(')?;
    let name = std::str::from_utf8(&line[..open]).ok()?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    let (args, behind) = arguments(&line[open + 1..])?;
    Some((name.to_owned(), args, behind))
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
    let word = text[start..at].split(|&byte| byte == b'<').next().unwrap_or_default().trim_ascii();
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

/// Names of values, as strace(1) writes them. Where several have bits in common, the one with more of them stands first.
pub type Names = &'static [(&'static str, i64)];

macro_rules! names {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name as i64)),*] };
}

/// `R_OK` and the like; `F_OK` is none of them.
pub const ACCESS: Names = names![R_OK, W_OK, X_OK];
/// `O_*` but `O_RDONLY`, which is none of them.
pub const OPEN: Names = names![
    O_WRONLY,
    O_RDWR,
    O_CREAT,
    O_EXCL,
    O_NOCTTY,
    O_TRUNC,
    O_APPEND,
    O_NONBLOCK,
    O_SYNC,
    O_DSYNC,
    O_ASYNC,
    O_DIRECT,
    O_LARGEFILE,
    O_TMPFILE,
    O_DIRECTORY,
    O_NOFOLLOW,
    O_NOATIME,
    O_CLOEXEC,
    O_PATH,
];
/// `AT_*`. `AT_EACCESS` and `AT_REMOVEDIR` are one number, so they stand with those that are read only.
pub const AT: Names = names![
    AT_SYMLINK_NOFOLLOW,
    AT_SYMLINK_FOLLOW,
    AT_NO_AUTOMOUNT,
    AT_EMPTY_PATH,
    AT_STATX_FORCE_SYNC,
    AT_STATX_DONT_SYNC,
];
/// `RESOLVE_*` of openat2(2).
pub const RESOLVE: Names = names![
    RESOLVE_NO_XDEV,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    RESOLVE_BENEATH,
    RESOLVE_IN_ROOT,
    RESOLVE_CACHED,
];
/// `RENAME_*` of renameat2(2).
pub const RENAME: Names = names![RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT];
/// Names that are read and never written: those for nothing, for numbers that have another name, and for file types.
const READ_ONLY: Names = &[
    ("F_OK", 0),
    ("O_RDONLY", 0),
    ("AT_FDCWD", AT_FDCWD as i64),
    ("AT_EACCESS", AT_EACCESS as i64),
    ("AT_REMOVEDIR", AT_REMOVEDIR as i64),
    ("AT_STATX_SYNC_AS_STAT", 0),
    ("S_IFREG", S_IFREG as i64),
    ("S_IFDIR", S_IFDIR as i64),
    ("S_IFCHR", S_IFCHR as i64),
    ("S_IFBLK", S_IFBLK as i64),
    ("S_IFIFO", S_IFIFO as i64),
    ("S_IFSOCK", S_IFSOCK as i64),
];

/// The value of `A|B`: names that stand in one of the tables here, or numbers as C writes them.
///
/// # Errors
///
/// The word that is neither.
///
/// ```
/// use rcuwalk::uapi::{O_CLOEXEC, O_CREAT};
/// use rcuwalk_host::strace::value;
/// assert_eq!(value("O_RDONLY|O_CREAT|O_CLOEXEC"), Ok(i64::from(O_CREAT | O_CLOEXEC)));
/// assert_eq!(value("S_IFIFO|0644"), Ok(0o10644));
/// assert_eq!(value("O_RDONLY|O_STRANGE"), Err("O_STRANGE"));
/// ```
pub fn value(text: &str) -> Result<i64, &str> {
    text.split('|').map(str::trim).try_fold(0, |all, word| {
        let mut names = [ACCESS, OPEN, AT, RESOLVE, RENAME, READ_ONLY].into_iter().flatten();
        let named = names.find(|(name, _)| *name == word).map(|(_, value)| *value);
        let octal =
            word.strip_prefix("0o").or_else(|| word.strip_prefix('0').filter(|rest| !rest.is_empty()));
        let number = || match (word.strip_prefix("0x"), octal) {
            (Some(hex), _) => i64::from_str_radix(hex, 16).ok(),
            (None, Some(digits)) => i64::from_str_radix(digits, 8).ok(),
            (None, None) => word.parse().ok(),
        };
        Ok(all | named.or_else(number).ok_or(word)?)
    })
}

/// A value by the names of its bits, joined by `|`; bits without a name in hexadecimal, `none` for no bit at all.
///
/// ```
/// use rcuwalk::uapi::R_OK;
/// use rcuwalk_host::strace::{ACCESS, flags};
/// assert_eq!(flags(i64::from(R_OK) | 0x40, ACCESS, "F_OK"), "R_OK|0x40");
/// assert_eq!(flags(0, ACCESS, "F_OK"), "F_OK");
/// ```
pub fn flags(mut value: i64, names: Names, none: &str) -> String {
    let mut words = Vec::new();
    for &(name, bits) in names {
        if value & bits == bits {
            words.push(name.to_owned());
            value &= !bits;
        }
    }
    if value != 0 {
        words.push(format!("{value:#x}"));
    }
    if words.is_empty() { none.to_owned() } else { words.join("|") }
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
