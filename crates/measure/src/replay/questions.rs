//! The path calls of a log as questions that can be asked again.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::path::Path;

use rcuwalk::uapi::{AT_SYMLINK_NOFOLLOW, O_PATH};

use rcuwalk_host::strace::{Arg, Call, value};

/// A call about a path that changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// newfstatat(2), which stat and lstat are, with `AT_*` flags.
    Stat { flags: i32 },
    /// statx(2).
    Statx { flags: i32 },
    /// faccessat2(2), which access is.
    Access { mode: i32, flags: i32 },
    /// openat2(2), which open is, for reading or with `O_PATH`.
    Open { flags: i32, resolve: u64 },
    /// readlinkat(2).
    Readlink,
    /// execveat(2), which execve is. It is asked with `AT_EXECVE_CHECK`, so that nothing is executed.
    Execve { flags: i32 },
    /// chdir(2).
    Chdir,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Stat { flags } if flags & AT_SYMLINK_NOFOLLOW != 0 => "lstat",
            Kind::Stat { .. } => "stat",
            Kind::Statx { .. } => "statx",
            Kind::Access { .. } => "access",
            Kind::Open { .. } => "open",
            Kind::Readlink => "readlink",
            Kind::Execve { .. } => "execve",
            Kind::Chdir => "chdir",
        }
    }

    /// Whether it opens what is at the end of the path, which some devices and pipes notice.
    pub(super) fn opens(self) -> bool {
        matches!(self, Kind::Open { flags, .. } if flags & O_PATH == 0)
    }
}

/// A path call, as the program made it: from where it stood, by the path that it gave.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) kind: Kind,
    pub(super) path: CString,
    /// Where the program stood, by number among the [`Questions::places`]. For a path that does not depend on it, where the
    /// question before left off.
    pub(super) stands: usize,
    /// The directory that the call names by a descriptor, likewise.
    pub(super) dir: Option<usize>,
    /// The same path from the root.
    pub(super) absolute: Vec<u8>,
    /// `0`, or the name of the error that the log has.
    pub(super) logged: String,
}

impl Question {
    /// The number of the place from which the path starts, if it is relative.
    pub(super) fn starts(&self) -> usize {
        self.dir.unwrap_or(self.stands)
    }
}

/// All of a log.
#[derive(Debug, Default)]
pub(super) struct Questions {
    pub(super) list: Vec<Question>,
    /// Directories from which relative paths start; the first is the root.
    pub(super) places: Vec<Vec<u8>>,
    /// Path calls that are not asked, by reason.
    pub(super) left_out: BTreeMap<&'static str, usize>,
}

impl Questions {
    /// Reads the calls of a program that was started in `cwd`.
    pub(super) fn new(calls: &[Call], cwd: &Path) -> Questions {
        let start = cwd.canonicalize().unwrap_or_else(|_| cwd.to_path_buf()).into_os_string();
        let start = std::os::unix::ffi::OsStringExt::into_vec(start);
        let mut questions = Questions { places: vec![b"/".to_vec()], ..Questions::default() };
        let mut processes = Processes { start, cwd: HashMap::new(), fds: HashMap::new() };
        for call in calls {
            let shape = shape(call);
            let place = shape.as_ref().and_then(|shape| processes.place(call.pid, shape));
            let absolute = shape.as_ref().and_then(|shape| absolute(place.as_deref(), shape.path));
            if let Some(shape) = shape
                && let Err(why) = questions.add(call, &shape, place, absolute.as_deref())
            {
                questions.leave(why);
            }
            processes.follow(call, absolute.as_deref());
        }
        questions
    }

    fn leave(&mut self, why: &'static str) {
        *self.left_out.entry(why).or_insert(0) += 1;
    }

    /// Leaves out the questions that are not kept.
    pub(super) fn retain(&mut self, why: &'static str, keep: impl FnMut(&Question) -> bool) {
        let before = self.list.len();
        self.list.retain(keep);
        if before > self.list.len() {
            *self.left_out.entry(why).or_insert(0) += before - self.list.len();
        }
    }

    /// Adds a question, or says why not.
    fn add(
        &mut self,
        call: &Call,
        shape: &Shape<'_>,
        place: Option<Vec<u8>>,
        absolute: Option<&[u8]>,
    ) -> Result<(), &'static str> {
        if shape.path.is_empty() {
            return Err("of a descriptor");
        }
        let absolute = absolute.ok_or("relative to an unknown place")?;
        let kind = shape.kind?;
        if [&b"/proc/"[..], b"/sys/", b"/dev/"].iter().any(|top| absolute.starts_with(top)) {
            return Err("in /proc, /sys or /dev");
        }
        let path = CString::new(shape.path).map_err(|_| "with a NUL in the path")?;
        let place = place.map(|place| self.place(place));
        let of_fd = matches!(shape.dirfd, Some(Arg::Word { text, .. }) if text != "AT_FDCWD");
        let before = self.list.last().map_or(0, |question| question.stands);
        self.list.push(Question {
            kind,
            path,
            stands: place.filter(|_| !of_fd).unwrap_or(before),
            dir: place.filter(|_| of_fd),
            absolute: absolute.to_vec(),
            logged: if call.result < 0 { call.error.clone().unwrap_or_default() } else { "0".to_owned() },
        });
        Ok(())
    }

    /// The number of a place.
    fn place(&mut self, path: Vec<u8>) -> usize {
        self.places.iter().position(|known| *known == path).unwrap_or_else(|| {
            self.places.push(path);
            self.places.len() - 1
        })
    }
}

/// Where each process of a log stands.
struct Processes {
    start: Vec<u8>,
    cwd: HashMap<u32, Vec<u8>>,
    fds: HashMap<(u32, i64), Vec<u8>>,
}

impl Processes {
    fn cwd(&self, pid: u32) -> &[u8] {
        self.cwd.get(&pid).unwrap_or(&self.start)
    }

    /// Where the path of a call starts; nothing if it does not matter, or is not known.
    fn place(&self, pid: u32, shape: &Shape<'_>) -> Option<Vec<u8>> {
        if shape.path.first() == Some(&b'/') {
            return None;
        }
        let dir = match shape.dirfd {
            Some(Arg::Word { path: Some(dir), .. }) => dir,
            Some(Arg::Word { text, .. }) if text != "AT_FDCWD" => self.fds.get(&(pid, text.parse().ok()?))?,
            Some(Arg::Text(_)) => return None,
            _ => self.cwd(pid),
        };
        (dir.first() == Some(&b'/')).then(|| dir.to_vec())
    }

    /// Follows what a call changes for those after it.
    fn follow(&mut self, call: &Call, path: Option<&[u8]>) {
        match (call.name.as_str(), path) {
            _ if call.result < 0 => {}
            ("chdir", Some(path)) => drop(self.cwd.insert(call.pid, path.to_vec())),
            ("fchdir", _) => {
                if let Some(Arg::Word { text, path }) = call.args.first() {
                    let known = text.parse().ok().and_then(|fd| self.fds.get(&(call.pid, fd)));
                    if let Some(path) = path.as_ref().or(known).cloned() {
                        self.cwd.insert(call.pid, path);
                    }
                }
            }
            ("open" | "openat" | "openat2" | "creat", Some(path)) => {
                self.fds.insert((call.pid, call.result), path.to_vec());
            }
            ("clone" | "clone3" | "fork" | "vfork", _) => {
                if let Ok(child) = u32::try_from(call.result) {
                    self.cwd.insert(child, self.cwd(call.pid).to_vec());
                    let copies: Vec<_> = self.fds.iter().filter(|((pid, _), _)| *pid == call.pid).collect();
                    let copies: Vec<_> =
                        copies.iter().map(|((_, fd), path)| ((child, *fd), (*path).clone())).collect();
                    self.fds.extend(copies);
                }
            }
            _ => {}
        }
    }
}

/// `path` from the root, if it is known where it starts.
fn absolute(place: Option<&[u8]>, path: &[u8]) -> Option<Vec<u8>> {
    match place {
        _ if path.first() == Some(&b'/') => Some(path.to_vec()),
        Some(place) => Some([place, b"/", path].concat()),
        None => None,
    }
}

/// What a call about a path asks, or why it is not asked again.
struct Shape<'a> {
    dirfd: Option<&'a Arg>,
    path: &'a [u8],
    kind: Result<Kind, &'static str>,
}

const CHANGES: &str = "changes something";
const UNKNOWN: &str = "with flags that are not known";

fn shape(call: &Call) -> Option<Shape<'_>> {
    let text = |i: usize| match call.args.get(i) {
        Some(Arg::Text(path)) => Some(&path[..]),
        _ => None,
    };
    let word = |i: usize| match call.args.get(i) {
        Some(Arg::Word { text, .. }) => text.as_str(),
        _ => "",
    };
    let plain = |kind| Some(Shape { dirfd: None, path: text(0)?, kind });
    let at = |kind| Some(Shape { dirfd: call.args.first(), path: text(1)?, kind });
    let at_flags = |i| bits(word(i));
    let access = |mode, flags: Result<i32, _>| {
        bits(word(mode)).and_then(|mode| Ok(Kind::Access { mode, flags: flags? }))
    };
    match call.name.as_str() {
        "stat" => plain(Ok(Kind::Stat { flags: 0 })),
        "lstat" => plain(Ok(Kind::Stat { flags: AT_SYMLINK_NOFOLLOW })),
        "newfstatat" | "fstatat64" => at(at_flags(3).map(|flags| Kind::Stat { flags })),
        "statx" => at(at_flags(2).map(|flags| Kind::Statx { flags })),
        "access" => plain(access(1, Ok(0))),
        "faccessat" => at(access(2, Ok(0))),
        "faccessat2" => at(access(2, at_flags(3))),
        "open" => plain(open(word(1), "0")),
        "openat" => at(open(word(2), "0")),
        "openat2" => at(open(field(word(2), "flags="), field(word(2), "resolve="))),
        "readlink" => plain(Ok(Kind::Readlink)),
        "readlinkat" => at(Ok(Kind::Readlink)),
        "execve" => plain(Ok(Kind::Execve { flags: 0 })),
        "execveat" => at(at_flags(4).map(|flags| Kind::Execve { flags })),
        "chdir" => plain(Ok(Kind::Chdir)),
        "mkdir" | "rmdir" | "unlink" | "rename" | "chmod" | "chown" | "lchown" | "creat" | "symlink"
        | "link" | "truncate" | "mknod" | "chroot" => plain(Err(CHANGES)),
        "mkdirat" | "unlinkat" | "renameat" | "renameat2" | "fchmodat" | "fchmodat2" | "fchownat"
        | "utimensat" | "linkat" | "mknodat" => at(Err(CHANGES)),
        _ => None,
    }
}

/// An open; one for writing changes nothing yet, but programs that watch the file are told.
fn open(flags: &str, resolve: &str) -> Result<Kind, &'static str> {
    let has = |names: &[&str]| flags.split('|').any(|flag| names.contains(&flag));
    if has(&["O_CREAT", "O_TRUNC", "O_TMPFILE", "__O_TMPFILE"]) {
        return Err(CHANGES);
    }
    if has(&["O_WRONLY", "O_RDWR"]) && !has(&["O_PATH"]) {
        return Err("opens for writing");
    }
    Ok(Kind::Open { flags: bits(flags)?, resolve: bits(resolve)? as u64 })
}

/// The bits of `A|B`. A bare number is none that strace knows, but for 0.
fn bits(word: &str) -> Result<i32, &'static str> {
    let named = |flag: &str| flag == "0" || !flag.starts_with(|c: char| c.is_ascii_digit());
    if !word.split('|').all(named) {
        return Err(UNKNOWN);
    }
    value(word).map(|bits| bits as i32).map_err(|_| UNKNOWN)
}

/// What stands behind `name` in a structure.
fn field<'a>(structure: &'a str, name: &str) -> &'a str {
    let value = structure.split_once(name).map_or("0", |(_, value)| value);
    value.split([',', '}']).next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcuwalk::uapi::{
        AT_EACCESS, O_DIRECTORY, O_NOFOLLOW, O_RDONLY, R_OK, RESOLVE_BENEATH, RESOLVE_NO_XDEV, X_OK,
    };
    use rcuwalk_host::strace;

    fn read(log: &str) -> Questions {
        Questions::new(&strace::read(log.as_bytes()).calls, Path::new("/none/such"))
    }

    #[test]
    fn calls_keep_their_flags_and_their_start() {
        let read = read(
            r#"7 openat(AT_FDCWD</d>, "a", O_RDONLY|O_NOFOLLOW|O_DIRECTORY) = 3</d/a>
7 openat(3</d/a>, "x/y", O_PATH) = 4</d/a/x/y>
7 openat2(3</d/a>, "z", {flags=O_RDONLY, resolve=RESOLVE_BENEATH|RESOLVE_NO_XDEV}, 24) = -1 EXDEV (x)
7 fchdir(4</d/a/x/y>) = 0
7 access("r", R_OK|X_OK) = 0
7 faccessat2(AT_FDCWD</d/a/x/y>, "/r", F_OK, AT_EACCESS) = 0
7 statx(AT_FDCWD</d/a/x/y>, "s", AT_STATX_SYNC_AS_STAT|AT_SYMLINK_NOFOLLOW, 0, {stx_mask=0}) = 0
7 execve("/bin/true", ["true"], 0x7ffe /* 3 vars */) = -1 ENOENT (No such file or directory)
7 chdir("/t") = 0
7 stat("u", 0x7f) = 0
7 open("w", O_RDWR) = 5
7 open("w", O_RDONLY|O_STRANGE) = 5
7 open("w", O_WRONLY|O_CREAT, 0600) = 5
7 faccessat(9, "r", R_OK) = 0
"#,
        );
        let seen: Vec<_> = read
            .list
            .iter()
            .map(|q| {
                let place = |i: usize| String::from_utf8_lossy(&read.places[i]);
                (q.kind, place(q.stands), q.dir.map(place), q.path.to_str().unwrap(), q.logged.as_str())
            })
            .collect();
        let (d, y) = ("/d".into(), "/d/a/x/y");
        let resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV;
        let first = Kind::Open { flags: O_RDONLY | O_NOFOLLOW | O_DIRECTORY, resolve: 0 };
        let [a, b] = [Some("/d/a".into()), Some("/d/a".into())];
        assert_eq!(
            seen,
            [
                (first, d, None, "a", "0"),
                (Kind::Open { flags: O_PATH, resolve: 0 }, "/d".into(), a, "x/y", "0"),
                (Kind::Open { flags: O_RDONLY, resolve }, "/d".into(), b, "z", "EXDEV"),
                (Kind::Access { mode: R_OK | X_OK, flags: 0 }, y.into(), None, "r", "0"),
                (Kind::Access { mode: 0, flags: AT_EACCESS }, y.into(), None, "/r", "0"),
                (Kind::Statx { flags: AT_SYMLINK_NOFOLLOW }, y.into(), None, "s", "0"),
                (Kind::Execve { flags: 0 }, y.into(), None, "/bin/true", "ENOENT"),
                (Kind::Chdir, y.into(), None, "/t", "0"),
                (Kind::Stat { flags: 0 }, "/t".into(), None, "u", "0"),
            ]
        );
        let left_out: Vec<_> = read.left_out.into_iter().collect();
        assert_eq!(
            left_out,
            [(CHANGES, 1), ("opens for writing", 1), ("relative to an unknown place", 1), (UNKNOWN, 1)]
        );
    }

    #[test]
    fn logs_of_real_programs_are_read_whole() {
        for name in ["make", "git", "python"] {
            let file = format!("{}/../../bench/traces/{name}.strace.gz", env!("CARGO_MANIFEST_DIR"));
            let log = strace::read(&super::super::read(Path::new(&file)).unwrap());
            assert_eq!(log.unread, 0, "{name}");
            let read = Questions::new(&log.calls, Path::new("/"));
            let known = [CHANGES, "of a descriptor", "in /proc, /sys or /dev", "opens for writing"];
            assert!(read.left_out.keys().all(|why| known.contains(why)), "{name}: {:?}", read.left_out);
            assert!(read.list.len() > 500, "{name}");
        }
    }
}
