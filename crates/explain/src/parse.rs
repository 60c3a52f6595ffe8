//! System calls as strace(1) writes them: `openat(AT_FDCWD, "/etc/shadow", O_RDONLY|O_CLOEXEC) = -1 EACCES (...)`.

use std::collections::BTreeMap;

use rcuwalk::uapi::*;

use rcuwalk_host::strace::{self, Arg};

use crate::call::{Call, SetTimes};
use crate::error::Error;

/// An argument.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    /// A string or a bare path.
    Text(Vec<u8>),
    /// A number, flags joined by `|`.
    Number(i64),
    /// `{name=value, ...}`, as far as the values are numbers.
    Fields(BTreeMap<String, i64>),
    /// `[...]`, as it is written.
    List(String),
    /// Names that nobody knows here, and why: only an argument that counts must be understood.
    Unknown(String),
    /// `NULL`.
    Null,
    /// Anything else: pointers, buffers.
    Opaque,
}

impl Call {
    /// Reads a call. `PATH` stands for `path`; what follows the closing parenthesis is passed over, and so are arguments
    /// that decide nothing, such as buffers.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`]: not a call, one that is not known, wrong arguments, a descriptor other than `AT_FDCWD`.
    ///
    /// ```
    /// use rcuwalk_explain::Call;
    /// use rcuwalk::uapi::{O_CLOEXEC, O_RDONLY};
    /// let call = Call::parse("openat(AT_FDCWD, \"/etc/shadow\", O_RDONLY|O_CLOEXEC) = -1 EACCES", b"")?;
    /// assert_eq!(call, Call::Open(b"/etc/shadow".to_vec(), O_RDONLY | O_CLOEXEC, 0));
    /// # Ok::<(), rcuwalk_explain::Error>(())
    /// ```
    pub fn parse(text: &str, path: &[u8]) -> Result<Call, Error> {
        let wrong = |why: String| Error::Usage(format!("--call '{text}': {why}"));
        let (name, args, _) = strace::head(text.trim().as_bytes()).ok_or_else(|| {
            wrong("this is no whole call; one looks like open(\"/f\", O_RDONLY)".to_owned())
        })?;
        let values = args.into_iter().map(|arg| value(arg, path)).collect();
        Arguments { values, at: 0 }.call(&name).map_err(wrong)
    }
}

/// The arguments that are not consumed yet.
struct Arguments {
    values: Vec<Value>,
    at: usize,
}

type Parsed<T> = Result<T, String>;

impl Arguments {
    fn next(&mut self) -> Option<Value> {
        self.at += 1;
        self.values.get(self.at - 1).cloned()
    }

    fn path(&mut self) -> Parsed<Vec<u8>> {
        match self.next() {
            Some(Value::Text(path)) => Ok(path),
            _ => Err(format!("argument {} must be a path", self.at)),
        }
    }

    fn number(&mut self) -> Parsed<i64> {
        match self.next() {
            Some(Value::Number(number)) => Ok(number),
            Some(Value::Unknown(why)) => Err(why),
            _ => Err(format!("argument {} must be a number or flags", self.at)),
        }
    }

    fn int(&mut self) -> Parsed<i32> {
        self.number().map(|number| number as i32)
    }

    /// A number that may be left out.
    fn optional(&mut self) -> Parsed<i64> {
        if self.at >= self.values.len() { Ok(0) } else { self.number() }
    }

    /// A path relative to a descriptor.
    fn at_path(&mut self) -> Parsed<Vec<u8>> {
        if self.number()? != i64::from(AT_FDCWD) {
            return Err("only AT_FDCWD can stand for a directory".to_owned());
        }
        self.path()
    }

    fn skip(&mut self) {
        self.at += 1;
    }

    fn call(mut self, name: &str) -> Parsed<Call> {
        Ok(match name {
            "access" => Call::Access(self.path()?, self.int()?, 0),
            "faccessat" => Call::Access(self.at_path()?, self.int()?, 0),
            "faccessat2" => Call::Access(self.at_path()?, self.int()?, self.int()?),
            "stat" => Call::Stat(self.path()?, 0),
            "lstat" => Call::Stat(self.path()?, AT_SYMLINK_NOFOLLOW),
            "statx" => Call::Stat(self.at_path()?, self.int()?),
            "newfstatat" | "fstatat" => {
                let path = self.at_path()?;
                self.skip();
                Call::Stat(path, self.optional()? as i32)
            }
            "readlink" => Call::Readlink(self.path()?),
            "readlinkat" => Call::Readlink(self.at_path()?),
            "open" => Call::Open(self.path()?, self.int()?, self.optional()? as u32),
            "openat" => Call::Open(self.at_path()?, self.int()?, self.optional()? as u32),
            "creat" => Call::Open(self.path()?, O_CREAT | O_WRONLY | O_TRUNC, self.int()? as u32),
            "openat2" => self.openat2()?,
            "execve" => Call::Exec(self.path()?),
            "execveat" => Call::Exec(self.at_path()?),
            "chdir" => Call::Chdir(self.path()?),
            name => return self.change(name),
        })
    }

    /// Calls that change something.
    fn change(mut self, name: &str) -> Parsed<Call> {
        Ok(match name {
            "mkdir" => Call::Mkdir(self.path()?, self.int()? as u32),
            "mkdirat" => Call::Mkdir(self.at_path()?, self.int()? as u32),
            "mknod" => Call::Mknod(self.path()?, self.int()? as u32, self.optional()? as u64),
            "mknodat" => Call::Mknod(self.at_path()?, self.int()? as u32, self.optional()? as u64),
            "symlink" => Call::Symlink(self.path()?, self.path()?),
            "symlinkat" => Call::Symlink(self.path()?, self.at_path()?),
            "link" => Call::Link(self.path()?, self.path()?, 0),
            "linkat" => Call::Link(self.at_path()?, self.at_path()?, self.int()?),
            "unlink" => Call::Unlink(self.path()?),
            "rmdir" => Call::Rmdir(self.path()?),
            "unlinkat" => {
                let path = self.at_path()?;
                if self.int()? & AT_REMOVEDIR != 0 { Call::Rmdir(path) } else { Call::Unlink(path) }
            }
            "rename" => Call::Rename(self.path()?, self.path()?, 0),
            "renameat" => Call::Rename(self.at_path()?, self.at_path()?, 0),
            "renameat2" => Call::Rename(self.at_path()?, self.at_path()?, self.int()? as u32),
            "chmod" => Call::Chmod(self.path()?, self.int()? as u32),
            "fchmodat" | "fchmodat2" => Call::Chmod(self.at_path()?, self.int()? as u32),
            "chown" => Call::Chown(self.path()?, self.int()? as u32, self.int()? as u32, 0),
            "lchown" => {
                Call::Chown(self.path()?, self.int()? as u32, self.int()? as u32, AT_SYMLINK_NOFOLLOW)
            }
            "fchownat" => Call::Chown(self.at_path()?, self.int()? as u32, self.int()? as u32, self.int()?),
            "truncate" => Call::Truncate(self.path()?, self.number()?),
            "utimensat" => Call::Utimes(self.at_path()?, self.times()?, self.optional()? as i32),
            "utime" | "utimes" => Call::Utimes(self.path()?, self.times()?, 0),
            _ => {
                let known = KNOWN.join(", ");
                return Err(format!("{name} is not known; these are, with their variants: {known}"));
            }
        })
    }

    /// Times of files: whether both are set to the present, for which write permission is enough.
    fn times(&mut self) -> Parsed<SetTimes> {
        match self.next() {
            Some(Value::Null) => Ok(SetTimes::Now),
            Some(Value::List(text)) if text.matches("UTIME_NOW").count() == 2 => Ok(SetTimes::Now),
            Some(Value::List(_) | Value::Fields(_) | Value::Opaque | Value::Unknown(_)) => {
                Ok(SetTimes::Given)
            }
            _ => Err(format!("argument {} must be times, or NULL for now", self.at)),
        }
    }

    /// `openat2(dirfd, path, {flags=..., mode=..., resolve=...}, size)`, or with the three as arguments.
    fn openat2(&mut self) -> Parsed<Call> {
        let path =
            if let Some(Value::Text(_)) = self.values.first() { self.path()? } else { self.at_path()? };
        let fields = match self.next() {
            Some(Value::Fields(fields)) => fields,
            Some(Value::Number(flags)) => {
                let (mode, resolve) = (self.optional()?, self.optional()?);
                BTreeMap::from([("flags".into(), flags), ("mode".into(), mode), ("resolve".into(), resolve)])
            }
            _ => return Err("openat2 takes {flags=O_RDONLY, mode=0, resolve=RESOLVE_BENEATH}".to_owned()),
        };
        let field = |name: &str| fields.get(name).copied().unwrap_or(0) as u64;
        Ok(Call::Open2(path, field("flags"), field("mode"), field("resolve")))
    }
}

/// Calls that [`Call::parse`] reads, without their `at` and numbered variants.
const KNOWN: [&str; 21] = [
    "access",
    "chdir",
    "chmod",
    "chown",
    "creat",
    "execve",
    "link",
    "lstat",
    "mkdir",
    "mknod",
    "open",
    "openat2",
    "readlink",
    "rename",
    "rmdir",
    "stat",
    "statx",
    "symlink",
    "truncate",
    "unlink",
    "utimensat",
];

/// What an argument says.
fn value(arg: Arg, path: &[u8]) -> Value {
    let text = match arg {
        Arg::Text(text) => return Value::Text(text),
        Arg::Word { text, .. } => text,
    };
    let number = |text: &str| {
        strace::value(text).map_err(|word| format!("'{word}' is neither a number nor a flag that is known"))
    };
    if let Some(inner) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
        let field = |field: &str| {
            let (name, value) = field.split_once('=')?;
            Some((name.trim().to_owned(), number(value.trim()).ok()?))
        };
        return Value::Fields(inner.split(',').filter_map(field).collect());
    }
    match text.as_str() {
        "PATH" => Value::Text(path.to_vec()),
        "NULL" => Value::Null,
        "..." => Value::Opaque,
        text if text.starts_with(['/', '.']) => Value::Text(text.as_bytes().to_vec()),
        list if list.starts_with('[') => Value::List(list.to_owned()),
        text => match (number(text), text.strip_prefix("makedev(").and_then(|it| it.strip_suffix(')'))) {
            (_, Some(inner)) => device(inner),
            (Ok(number), None) => Value::Number(number),
            // A pointer, with what strace says of it.
            (Err(_), None) if text.starts_with('0') => Value::Opaque,
            (Err(why), None) => Value::Unknown(why),
        },
    }
}

/// `1, 3`.
fn device(text: &str) -> Value {
    let number = |text: &str| strace::value(text.trim()).ok();
    let numbers = text.split_once(',').and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
    numbers.map_or_else(
        || Value::Unknown(format!("'makedev({text})' is no device; makedev(1, 3) is")),
        |(major, minor)| Value::Number(makedev(major as u32, minor as u32) as i64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Call {
        Call::parse(text, b"/given").unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn what_strace_writes_is_read() {
        let f = || b"/f".to_vec();
        assert_eq!(parse(r#"access("/f", R_OK|W_OK) = 0"#), Call::Access(f(), R_OK | W_OK, 0));
        assert_eq!(
            parse(
                r#"openat(AT_FDCWD</home/x>, "/f", O_WRONLY|O_CREAT|O_TRUNC, 0666) = -1 EACCES (Permission denied)"#
            ),
            Call::Open(f(), O_WRONLY | O_CREAT | O_TRUNC, 0o666)
        );
        assert_eq!(
            parse(
                r#"openat2(AT_FDCWD, "/f", {flags=O_RDONLY|O_CLOEXEC, mode=0, resolve=RESOLVE_BENEATH|RESOLVE_NO_XDEV}, 24)"#
            ),
            Call::Open2(f(), O_CLOEXEC as u64, 0, RESOLVE_BENEATH | RESOLVE_NO_XDEV)
        );
        assert_eq!(
            parse(r#"newfstatat(AT_FDCWD, "/f", 0x7ffe8a, AT_SYMLINK_NOFOLLOW) = -1 ENOENT"#),
            Call::Stat(f(), AT_SYMLINK_NOFOLLOW)
        );
        assert_eq!(parse(r#"execve("/f", ["f", "a, b)"], 0x7ffe /* 9 vars */) = 0"#), Call::Exec(f()));
        assert_eq!(parse(r#"unlinkat(AT_FDCWD, "/f", AT_REMOVEDIR)"#), Call::Rmdir(f()));
        assert_eq!(
            parse(r#"rename("/f", "a \"b\"\303\244\x01\n")"#),
            Call::Rename(f(), b"a \"b\"\xc3\xa4\x01\n".to_vec(), 0)
        );
        assert_eq!(
            parse(
                r#"statx(AT_FDCWD, "/f", AT_STATX_SYNC_AS_STAT|AT_SYMLINK_NOFOLLOW, STATX_ALL, 0x7ff0) = 0"#
            ),
            Call::Stat(f(), AT_SYMLINK_NOFOLLOW)
        );
        assert_eq!(
            parse(r#"mknod("/f", S_IFCHR|0666, makedev(0x1, 0x3)) = -1 EPERM (Operation not permitted)"#),
            Call::Mknod(f(), S_IFCHR | 0o666, makedev(1, 3))
        );
        for (times, means) in [
            ("NULL", SetTimes::Now),
            ("[UTIME_NOW, UTIME_NOW]", SetTimes::Now),
            ("[UTIME_OMIT, UTIME_NOW]", SetTimes::Given),
            ("[{tv_sec=1, tv_nsec=0} /* 1970 */, {tv_sec=1, tv_nsec=0}]", SetTimes::Given),
        ] {
            let text = format!("utimensat(AT_FDCWD, \"/f\", {times}, AT_SYMLINK_NOFOLLOW) = 0");
            assert_eq!(parse(&text), Call::Utimes(f(), means, AT_SYMLINK_NOFOLLOW), "{text}");
        }
        assert_eq!(parse("mkdir(PATH, 0755)"), Call::Mkdir(b"/given".to_vec(), 0o755));
        assert_eq!(parse("chown(./x, -1, 50)"), Call::Chown(b"./x".to_vec(), u32::MAX, 50, 0));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in [
            "open",
            "open(",
            "open()",
            "open(PATH)",
            "open(3, 4)",
            "open(PATH, O_NONSENSE)",
            "fly(PATH)",
            "openat(3, PATH, 0)",
            "open(\"x, 0)",
            "openat2(AT_FDCWD, PATH, [])",
            "mknod(PATH, S_IFCHR, makedev(1))",
            "utimensat(AT_FDCWD, PATH, 5)",
            "open(PATH, 0]",
        ] {
            assert!(matches!(Call::parse(wrong, b"/f"), Err(Error::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn what_is_said_to_be_known_is() {
        for name in KNOWN {
            let why = Call::parse(&format!("{name}()"), b"/f").unwrap_err().to_string();
            assert!(!why.contains("is not known"), "{why}");
        }
    }

    #[test]
    fn calls_are_written_as_they_are_read() {
        for text in [
            r#"faccessat2(AT_FDCWD, "/f", R_OK|X_OK, AT_EACCESS|AT_SYMLINK_NOFOLLOW)"#,
            r#"newfstatat(AT_FDCWD, "/f", AT_SYMLINK_NOFOLLOW)"#,
            r#"openat(AT_FDCWD, "/f\n", O_RDWR|O_CREAT|O_EXCL|O_SYNC|O_CLOEXEC, 0o640)"#,
            r#"openat2(AT_FDCWD, "f", {flags=O_RDONLY|O_PATH, mode=0o0, resolve=RESOLVE_IN_ROOT})"#,
            r#"renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE)"#,
            r#"fchownat(AT_FDCWD, "a", -1, 5, AT_SYMLINK_NOFOLLOW)"#,
            r#"linkat(AT_FDCWD, "a", AT_FDCWD, "b", AT_SYMLINK_FOLLOW)"#,
            r#"truncate("a", 7)"#,
            r#"utimensat(AT_FDCWD, "a", NULL, 0)"#,
        ] {
            // faccessat2's third argument stands where newfstatat has a buffer.
            let text = text.replacen("\"/f\", AT_", "\"/f\", {}, AT_", 1);
            let written = parse(&text).to_string();
            assert_eq!(written, text.replacen("{}, ", "", 1));
        }
    }
}
