//! `rcuwalk stat`, `ls`, `tree`, `readlink`, `access`.

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;

use anstyle::Style;
use rcuwalk::Task;
use rcuwalk::errno::Errno;
use rcuwalk::uapi::*;
use serde::Serialize;

use crate::args::{AccessArgs, LsArgs, ReadlinkArgs, StatArgs, TreeArgs};
use crate::output::{Done, Failure, Terminal, complain, escaped, print, print_json};
use crate::render::{Facts, style};
use crate::source;

/// A name in JSON. Bytes that are no UTF-8 are replaced there, and the exact ones stand beside, hexadecimal.
#[derive(Debug, Clone, Serialize)]
struct Name {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
}

impl Name {
    fn new(bytes: &[u8]) -> Name {
        let name = String::from_utf8_lossy(bytes).into_owned();
        let hex = || bytes.iter().map(|b| format!("{b:02x}")).collect();
        let name_hex = std::str::from_utf8(bytes).is_err().then(hex);
        Name { name, name_hex }
    }
}

/// A name and what is known about it.
#[derive(Debug, Clone, Serialize)]
struct Entry {
    #[serde(flatten)]
    name: Name,
    #[serde(skip)]
    bytes: Vec<u8>,
    #[serde(flatten)]
    facts: Option<Facts>,
    /// Where a symbolic link points.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip)]
    target_bytes: Option<Vec<u8>>,
    /// Why there are no facts, or no children.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    children: Option<Vec<Entry>>,
}

impl Entry {
    fn mode(&self) -> u32 {
        self.facts.as_ref().map_or(0, |facts| facts.mode)
    }
}

fn refused(call: &str, path: &[u8], errno: Errno) -> Failure {
    let hint = match errno {
        Errno::EACCES | Errno::EPERM => "; --as 0 may",
        Errno::ENOENT => "; `rcuwalk tree SOURCE` shows what is there",
        _ => "",
    };
    Failure::Error(format!("{call}: {}: {errno}{hint}", escaped(path)))
}

/// Asks about one path; an error becomes part of the entry.
fn entry(task: &Task, path: &[u8], name: &[u8], flags: i32) -> Entry {
    let answer = task.statx(AT_FDCWD, path, flags, STATX_BASIC_STATS | STATX_BTIME);
    let target_bytes = match &answer {
        Ok(stx) if u32::from(stx.mode) & S_IFMT == S_IFLNK => task.readlink(path).ok(),
        _ => None,
    };
    Entry {
        name: Name::new(name),
        bytes: name.to_vec(),
        target: target_bytes.as_deref().map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
        target_bytes,
        error: answer.as_ref().err().map(ToString::to_string),
        facts: answer.ok().map(|stx| Facts::from(&stx)),
        children: None,
    }
}

pub(crate) fn stat(args: &StatArgs) -> Done {
    let task = source::open(&args.place)?;
    let path = args.path.as_os_str().as_bytes();
    let flags = if args.dereference { 0 } else { AT_SYMLINK_NOFOLLOW };
    if let Err(errno) = task.newfstatat(AT_FDCWD, path, flags) {
        return Err(refused("stat", path, errno));
    }
    let entry = entry(&task, path, path, flags);
    if args.place.json {
        return print_json(&entry);
    }
    let terminal = Terminal::stdout();
    let mut out = b"  File: ".to_vec();
    named(&mut out, &entry, terminal);
    out.push(b'\n');
    if let Some(facts) = &entry.facts {
        out.extend_from_slice(facts.block().as_bytes());
    }
    print(&out)
}

/// The name, and where it points if it is a link.
fn named(out: &mut Vec<u8>, entry: &Entry, terminal: Terminal) {
    terminal.name(out, &entry.bytes, style(entry.mode()));
    if let Some(target) = &entry.target_bytes {
        out.extend_from_slice(b" -> ");
        terminal.name(out, target, Style::new());
    }
}

/// The names in a directory, sorted.
fn names(task: &Task, path: &[u8], all: bool) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names: Vec<Vec<u8>> = task.readdir(path)?.into_iter().map(|entry| entry.name).collect();
    names.retain(|name| name != b"." && name != b".." && (all || !name.starts_with(b".")));
    names.sort_unstable();
    Ok(names)
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = dir.to_vec();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

pub(crate) fn ls(args: &LsArgs) -> Done {
    let task = source::open(&args.place)?;
    let path = args.path.as_os_str().as_bytes();
    let follow = task.stat(path);
    let is_dir = matches!(&follow, Ok(st) if st.mode & S_IFMT == S_IFDIR);
    let entries: Vec<Entry> = if is_dir && !args.directory {
        names(&task, path, args.all)
            .map_err(|errno| refused("ls", path, errno))?
            .iter()
            .map(|name| entry(&task, &join(path, name), name, AT_SYMLINK_NOFOLLOW))
            .collect()
    } else {
        task.lstat(path).map_err(|errno| refused("ls", path, errno))?;
        vec![entry(&task, path, path, AT_SYMLINK_NOFOLLOW)]
    };
    let unknown: Vec<&Entry> = entries.iter().filter(|entry| entry.error.is_some()).collect();
    if args.place.json {
        print_json(&entries)?
    } else {
        print(&listing(&entries, Terminal::stdout()))?
    }
    for entry in &unknown {
        let why = entry.error.as_deref().unwrap_or("");
        complain(format_args!("ls: {}: {why}; --as 0 may", escaped(&join(path, &entry.bytes))));
    }
    if unknown.is_empty() { Ok(()) } else { Err(Failure::Explained) }
}

/// As `ls -ln --time-style=long-iso`.
fn listing(entries: &[Entry], terminal: Terminal) -> Vec<u8> {
    let columns = |entry: &Entry| match &entry.facts {
        Some(f) => {
            [f.nlink.to_string(), f.uid.to_string(), f.gid.to_string(), f.size_column(), f.mtime.short()]
        }
        None => ["?", "?", "?", "?", "?"].map(str::to_owned),
    };
    let rows: Vec<_> = entries.iter().map(columns).collect();
    let widths: [usize; 5] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    let mut out = Vec::new();
    for (entry, row) in entries.iter().zip(&rows) {
        let permissions = entry.facts.as_ref().map_or("??????????", |facts| &facts.permissions);
        out.extend_from_slice(permissions.as_bytes());
        for (text, width) in row.iter().zip(widths) {
            // Writing to a Vec does not fail.
            let _ = write!(out, " {text:>width$}");
        }
        out.push(b' ');
        named(&mut out, entry, terminal);
        out.push(b'\n');
    }
    out
}

pub(crate) fn tree(args: &TreeArgs) -> Done {
    let task = source::open(&args.place)?;
    let path = args.path.as_os_str().as_bytes();
    task.stat(path).map_err(|errno| refused("tree", path, errno))?;
    let mut root = entry(&task, path, path, 0);
    let mut counts = Counts::default();
    grow(&task, path, &mut root, args.depth.unwrap_or(usize::MAX), args.all, &mut counts);
    if args.place.json {
        print_json(&root)?;
    } else {
        let terminal = Terminal::stdout();
        let mut out = Vec::new();
        branch(&mut out, &root, "", "", terminal);
        let _ = writeln!(out, "\n{} directories, {} others", counts.dirs, counts.others);
        print(&out)?;
    }
    if counts.errors > 0 {
        complain(format_args!(
            "tree: {}: {} directories or names may not be read; --as 0 may",
            escaped(path),
            counts.errors
        ));
        return Err(Failure::Explained);
    }
    Ok(())
}

#[derive(Default)]
struct Counts {
    dirs: u64,
    others: u64,
    errors: u64,
}

/// Fills in what a directory holds, down to `depth` levels. Depth is bounded by PATH_MAX: longer paths are errors.
fn grow(task: &Task, path: &[u8], entry: &mut Entry, depth: usize, all: bool, counts: &mut Counts) {
    if entry.mode() & S_IFMT != S_IFDIR || depth == 0 {
        return;
    }
    let names = match names(task, path, all) {
        Ok(names) => names,
        Err(errno) => {
            counts.errors += 1;
            entry.error = Some(errno.to_string());
            return;
        }
    };
    let mut children = Vec::with_capacity(names.len());
    for name in names {
        let below = join(path, &name);
        let mut child = self::entry(task, &below, &name, AT_SYMLINK_NOFOLLOW);
        counts.errors += u64::from(child.error.is_some());
        if child.mode() & S_IFMT == S_IFDIR {
            counts.dirs += 1
        } else {
            counts.others += 1
        }
        grow(task, &below, &mut child, depth - 1, all, counts);
        children.push(child);
    }
    entry.children = Some(children);
}

/// Draws an entry and what is below it.
fn branch(out: &mut Vec<u8>, entry: &Entry, first: &str, rest: &str, terminal: Terminal) {
    out.extend_from_slice(first.as_bytes());
    named(out, entry, terminal);
    if let Some(error) = &entry.error {
        let _ = write!(out, " [{error}]");
    }
    out.push(b'\n');
    let children = entry.children.as_deref().unwrap_or(&[]);
    for (index, child) in children.iter().enumerate() {
        let last = index + 1 == children.len();
        let (knee, line) = if last { ("└── ", "    ") } else { ("├── ", "│   ") };
        branch(out, child, &format!("{rest}{knee}"), &format!("{rest}{line}"), terminal);
    }
}

pub(crate) fn readlink(args: &ReadlinkArgs) -> Done {
    let task = source::open(&args.place)?;
    let path = args.path.as_os_str().as_bytes();
    let target = task.readlink(path).map_err(|errno| refused("readlink", path, errno))?;
    if args.place.json {
        #[derive(Serialize)]
        struct Link {
            path: Name,
            target: Name,
        }
        return print_json(&Link { path: Name::new(path), target: Name::new(&target) });
    }
    let mut out = Vec::new();
    Terminal::stdout().name(&mut out, &target, Style::new());
    out.push(b'\n');
    print(&out)
}

pub(crate) fn access(args: &AccessArgs) -> Done {
    let task = source::open(&args.place)?;
    let path = args.path.as_os_str().as_bytes();
    let asked = [(args.read, R_OK, 'r'), (args.write, W_OK, 'w'), (args.execute, X_OK, 'x')];
    let mode = asked.iter().filter(|(on, ..)| *on).fold(F_OK, |mode, (_, bit, _)| mode | bit);
    let letters: String = asked.iter().filter(|(on, ..)| *on).map(|(.., letter)| letter).collect();
    let answer = task.access(path, mode);
    report_access(args, path, &letters, answer)?;
    answer.map_err(|_| Failure::No)
}

fn report_access(args: &AccessArgs, path: &[u8], letters: &str, answer: Result<(), Errno>) -> Done {
    if args.quiet {
        return Ok(());
    }
    if args.place.json {
        #[derive(Serialize)]
        struct Answer<'a> {
            path: Name,
            mode: &'a str,
            allowed: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            errno: Option<&'static str>,
        }
        let errno = answer.err().map(Errno::name);
        return print_json(&Answer { path: Name::new(path), mode: letters, allowed: answer.is_ok(), errno });
    }
    let text = match answer {
        Ok(()) => "allowed\n".to_owned(),
        Err(errno) => format!("denied: {errno}\n"),
    };
    print(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_bytes() {
        let plain = serde_json::to_string(&Name::new(b"a")).unwrap();
        assert_eq!(plain, r#"{"name":"a"}"#);
        let odd = serde_json::to_string(&Name::new(b"a\xff")).unwrap();
        assert_eq!(odd, "{\"name\":\"a\u{fffd}\",\"name_hex\":\"61ff\"}");
        assert_eq!(join(b"/", b"x"), b"/x");
        assert_eq!(join(b"d", b"x"), b"d/x");
    }
}
