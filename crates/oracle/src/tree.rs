//! The `tree` of a row: one line per object, made by root before anybody else acts.

use serde::{Deserialize, Serialize};

use crate::args::{Dev, Id};
use crate::read::{Node, Read, alternatives};
use crate::text;
use crate::words::Mode;

/// One object of the tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Path from the root of the row's world, without a leading or trailing slash; empty for the root itself.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Object,
    /// Permission bits; `None` for links.
    pub mode: Option<Mode>,
    /// Owner and group.
    pub owner: (Id, Id),
    /// Extended attributes, ACLs among them.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Inode flags (`FS_*_FL`), set when the whole tree stands.
    pub iflags: u64,
    /// Access and modification time, set when the whole tree stands.
    pub times: Option<[(i64, i64); 2]>,
}

/// Type of an object and what belongs to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Object {
    /// A directory.
    Dir,
    /// A regular file.
    File(Contents),
    /// A symbolic link with this body.
    Symlink(Vec<u8>),
    /// Another name of an earlier entry.
    Hardlink(Vec<u8>),
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    Char(Dev),
    /// A block device.
    Block(Dev),
}

/// Contents of a regular file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Contents {
    /// These bytes.
    Bytes(#[serde(with = "crate::packed")] Vec<u8>),
    /// A hole of this size.
    Hole(i64),
    /// The program that reports how it was executed.
    Program,
}

/// A word of a line, and whether it was quoted.
struct Word {
    text: Vec<u8>,
    quoted: bool,
}

impl Word {
    fn plain(&self) -> Option<&str> {
        if self.quoted { None } else { std::str::from_utf8(&self.text).ok() }
    }
}

/// Splits a line at blanks; `'…'` keeps blanks and knows `\n`, `\t`, `\0`, `\\`, `\'`, `\xNN`.
fn split(line: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let bytes = line.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at].is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let mut word = Word { text: Vec::new(), quoted: false };
        while at < bytes.len() && !bytes[at].is_ascii_whitespace() {
            if bytes[at] == b'\'' {
                word.quoted = word.quoted || word.text.is_empty();
                at = unquote(bytes, at + 1, &mut word.text)?;
            } else {
                word.text.push(bytes[at]);
                at += 1;
            }
        }
        words.push(word);
    }
    Ok(words)
}

/// Appends the quoted text that starts at `at`; the position behind the closing quote.
fn unquote(bytes: &[u8], mut at: usize, out: &mut Vec<u8>) -> Result<usize, String> {
    loop {
        match bytes.get(at) {
            None => return Err("a quote is not closed".to_owned()),
            Some(b'\'') => return Ok(at + 1),
            Some(b'\\') => {
                at += 1;
                match bytes.get(at) {
                    Some(b'n') => out.push(b'\n'),
                    Some(b't') => out.push(b'\t'),
                    Some(b'0') => out.push(0),
                    Some(b'x') => {
                        let digits = bytes.get(at + 1..at + 3).and_then(|d| std::str::from_utf8(d).ok());
                        out.extend(text::unhex(digits.ok_or("\\x needs two digits")?)?);
                        at += 2;
                    }
                    Some(c @ (b'\\' | b'\'')) => out.push(*c),
                    _ => return Err("unknown escape; known: \\n \\t \\0 \\\\ \\' \\xNN".to_owned()),
                }
                at += 1;
            }
            Some(c) => {
                out.push(*c);
                at += 1;
            }
        }
    }
}

/// `0644`: octal with a leading zero and at least three digits behind it.
fn as_mode(word: &str) -> Option<Mode> {
    let octal = (4..=5).contains(&word.len()) && word.starts_with('0');
    if octal { Mode::parse(word).ok() } else { None }
}

/// `1000` (user and group alike) or `1000:100`; `root` is another way to write 0.
fn as_owner(word: &str) -> Option<(Id, Id)> {
    let id = |text: &str| if text == "root" { Some(Id(0)) } else { text.parse().ok().map(Id) };
    let (uid, gid) = word.split_once(':').unwrap_or((word, word));
    Some((id(uid)?, id(gid)?))
}

const OPTIONS: [&str; 10] =
    ["acl", "default_acl", "xattr", "long_xattrs", "flags", "caps", "size", "atime", "mtime", "hex"];

impl Entry {
    fn new(path: &[u8], kind: Object) -> Entry {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let path = path.strip_suffix(b"/").unwrap_or(path);
        Entry {
            path: path.to_vec(),
            kind,
            mode: None,
            owner: (Id(0), Id(0)),
            xattrs: Vec::new(),
            iflags: 0,
            times: None,
        }
    }

    /// Parses one line.
    ///
    /// # Errors
    ///
    /// What is wrong with the line.
    pub fn parse(line: &str) -> Result<Entry, String> {
        let words = split(line)?;
        let (first, mut rest) = words.split_first().ok_or("an empty line")?;
        let path = &first.text[..];
        if path.is_empty() {
            return Err("an entry needs a path".to_owned());
        }
        let sign = rest.first().and_then(Word::plain);
        let mut entry = match sign {
            Some("->" | "=") => {
                let target = rest.get(1).ok_or("a link needs its target")?.text.clone();
                let kind =
                    if sign == Some("->") { Object::Symlink(target) } else { Object::Hardlink(target) };
                rest = &rest[2..];
                Entry::new(path, kind)
            }
            Some("fifo") => Entry::special(path, Object::Fifo, &mut rest, 1),
            Some("socket") => Entry::special(path, Object::Socket, &mut rest, 1),
            Some(word @ ("char" | "block")) => {
                let dev = rest.get(1).and_then(Word::plain).and_then(Dev::parse);
                let dev = dev.ok_or("a device needs its number, such as 1:3")?;
                let kind = if word == "char" { Object::Char(dev) } else { Object::Block(dev) };
                Entry::special(path, kind, &mut rest, 2)
            }
            _ if path.ends_with(b"/") => Entry { mode: Some(Mode(0o755)), ..Entry::new(path, Object::Dir) },
            _ => {
                let kind = Object::File(Contents::Bytes(Vec::new()));
                Entry { mode: Some(Mode(0o644)), ..Entry::new(path, kind) }
            }
        };
        entry.attributes(rest)?;
        Ok(entry)
    }

    fn special(path: &[u8], kind: Object, rest: &mut &[Word], words: usize) -> Entry {
        *rest = &rest[words..];
        Entry { mode: Some(Mode(0o644)), ..Entry::new(path, kind) }
    }

    /// Mode, owner, contents and options, in this order.
    fn attributes(&mut self, words: &[Word]) -> Result<(), String> {
        let mut words = words.iter().peekable();
        let plain = |w: Option<&&Word>| w.and_then(|w| w.plain()).map(str::to_owned);
        if let Some(mode) = plain(words.peek()).as_deref().and_then(as_mode) {
            if self.mode.is_none() {
                return Err("a link has no mode of its own".to_owned());
            }
            self.mode = Some(mode);
            words.next();
        }
        if let Some(owner) = plain(words.peek()).as_deref().and_then(as_owner) {
            self.owner = owner;
            words.next();
        }
        if let Some(word) = words.peek() {
            let contents = match word.plain() {
                Some("@program") => Some(Contents::Program),
                None if word.quoted => Some(Contents::Bytes(word.text.clone())),
                _ => None,
            };
            if let Some(contents) = contents {
                match &mut self.kind {
                    Object::File(old) => *old = contents,
                    _ => return Err("only a regular file has contents".to_owned()),
                }
                words.next();
            }
        }
        for word in words {
            self.option(word)?;
        }
        Ok(())
    }

    fn option(&mut self, word: &Word) -> Result<(), String> {
        let text = String::from_utf8_lossy(&word.text).into_owned();
        let Some((key, value)) = text.split_once('=') else {
            return Err(format!(
                "unexpected `{text}`: after the path come type, mode (0644, 01777), owner (root, 1000, 1000:100), contents \
                 ('…') and options ({}), in this order",
                OPTIONS.join("=, ") + "="
            ));
        };
        let raw = &word.text[key.len() + 1..];
        match key {
            "acl" => self.xattrs.push((b"system.posix_acl_access".to_vec(), text::acl_to_xattr(value)?)),
            "default_acl" => {
                self.xattrs.push((b"system.posix_acl_default".to_vec(), text::acl_to_xattr(value)?));
            }
            "xattr" => {
                let colon = raw.iter().position(|b| *b == b':').ok_or("xattr=NAME:VALUE")?;
                self.xattrs.push((raw[..colon].to_vec(), raw[colon + 1..].to_vec()));
            }
            "long_xattrs" => {
                let count: u32 = value.parse().map_err(|_| "long_xattrs=COUNT")?;
                self.xattrs.extend((0..count).map(|n| (format!("user.{n:0>250}").into_bytes(), Vec::new())));
            }
            "caps" => self.xattrs.push((b"security.capability".to_vec(), text::unhex(value)?)),
            "flags" => {
                for c in value.chars() {
                    self.iflags |= match c {
                        'i' => 0x10,
                        'a' => 0x20,
                        'A' => 0x80,
                        _ => {
                            return Err(
                                "flags are letters of i (immutable), a (append-only), A (no atime)".into()
                            );
                        }
                    };
                }
            }
            "size" => match &mut self.kind {
                Object::File(contents) => {
                    *contents = Contents::Hole(value.parse().map_err(|_| "size=BYTES")?);
                }
                _ => return Err("only a regular file has a size of its own".to_owned()),
            },
            "hex" => match &mut self.kind {
                Object::File(contents) => *contents = Contents::Bytes(text::unhex(value)?),
                _ => return Err("only a regular file has contents".to_owned()),
            },
            "atime" | "mtime" => {
                let time = text::time(value).ok_or("a time is SECONDS or SECONDS.NANOSECONDS")?;
                let times = self.times.get_or_insert([(0, crate::args::UTIME_OMIT); 2]);
                times[usize::from(key == "mtime")] = time;
            }
            _ => return Err(format!("unknown option `{key}`{}", alternatives(key, &OPTIONS))),
        }
        Ok(())
    }

    /// Prints the entry as a line that [`Entry::parse`] reads back; for trees of files, directories, links and devices
    /// with ACLs and attributes.
    pub fn print(&self) -> String {
        let quote = |bytes: &[u8]| {
            let mut out = String::from("'");
            for &b in bytes {
                match b {
                    b'\'' | b'\\' => out.extend(['\\', char::from(b)]),
                    0x20..=0x7e => out.push(char::from(b)),
                    _ => out.push_str(&format!("\\x{b:02x}")),
                }
            }
            out + "'"
        };
        let word = |bytes: &[u8]| {
            let simple = bytes.iter().all(|b| b.is_ascii_graphic() && !b"'\\".contains(b));
            if simple { String::from_utf8_lossy(bytes).into_owned() } else { quote(bytes) }
        };
        let slash = if self.kind == Object::Dir { "/" } else { "" };
        let mut out = format!("{}{slash}", word(&self.path));
        match &self.kind {
            Object::Symlink(target) => out.push_str(&format!(" -> {}", word(target))),
            Object::Hardlink(target) => out.push_str(&format!(" = {}", word(target))),
            Object::Fifo => out.push_str(" fifo"),
            Object::Socket => out.push_str(" socket"),
            Object::Char(dev) => out.push_str(&format!(" char {}:{}", dev.major, dev.minor)),
            Object::Block(dev) => out.push_str(&format!(" block {}:{}", dev.major, dev.minor)),
            Object::Dir | Object::File(_) => {}
        }
        if let Some(mode) = self.mode {
            // With a leading zero, which tells a mode from an owner.
            out.push_str(&format!(" 0{:03o}", mode.0));
        }
        if !matches!(self.kind, Object::Hardlink(_)) {
            match self.owner {
                (Id(0), Id(0)) => out.push_str(" root"),
                (uid, gid) => out.push_str(&format!(" {}:{}", uid.0, gid.0)),
            }
        }
        match &self.kind {
            Object::File(Contents::Bytes(bytes)) if !bytes.is_empty() => {
                out.push_str(&format!(" {}", quote(bytes)));
            }
            Object::File(Contents::Hole(size)) => out.push_str(&format!(" size={size}")),
            Object::File(Contents::Program) => out.push_str(" @program"),
            _ => {}
        }
        self.print_options(&mut out, &quote);
        out
    }

    fn print_options(&self, out: &mut String, quote: &dyn Fn(&[u8]) -> String) {
        for (name, value) in &self.xattrs {
            let acl = text::acl_from_xattr(value);
            match (name.as_slice(), acl) {
                (b"system.posix_acl_access", Some(acl)) => out.push_str(&format!(" acl={acl}")),
                (b"system.posix_acl_default", Some(acl)) => out.push_str(&format!(" default_acl={acl}")),
                (b"security.capability", _) => out.push_str(&format!(" caps={}", text::hex(value))),
                _ => out.push_str(&format!(" xattr={}:{}", String::from_utf8_lossy(name), quote(value))),
            }
        }
        let letters: String = [(0x10, 'i'), (0x20, 'a'), (0x80, 'A')]
            .iter()
            .filter(|(b, _)| self.iflags & b != 0)
            .map(|(_, c)| *c)
            .collect();
        if !letters.is_empty() {
            out.push_str(&format!(" flags={letters}"));
        }
    }
}

/// Replaces `{n}`, `{n-1}`, `{n+1}` in `line`.
fn number(line: &str, n: i64) -> String {
    line.replace("{n}", &n.to_string())
        .replace("{n-1}", &(n - 1).to_string())
        .replace("{n+1}", &(n + 1).to_string())
}

/// Reads the whole `tree`: lines, or `{ line = "l{n} -> l{n-1}", from = 1, to = 41 }`.
///
/// # Errors
///
/// What is wrong, and where.
pub fn read(node: Node<'_>) -> Read<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    for item in node.array()? {
        if let Some(line) = item.as_str() {
            entries.push(Entry::parse(line).map_err(|m| item.problem(m))?);
            continue;
        }
        let mut table = item.table("a repeated entry")?;
        let line = table.need("line")?.str()?;
        let from = table.need("from")?.int_in(0, 100_000)?;
        let to = table.need("to")?.int_in(0, 100_000)?;
        table.finish()?;
        for n in from..=to {
            entries.push(Entry::parse(&number(line, n)).map_err(|m| item.problem(m))?);
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_kinds_are_understood() {
        let dir = Entry::parse("d/ 0755 root").expect("a directory");
        assert_eq!((dir.path.as_slice(), &dir.kind, dir.mode), (&b"d"[..], &Object::Dir, Some(Mode(0o755))));
        let file = Entry::parse("'a b' 0600 1000:100 'x\\n\\x00' xattr=user.a:v flags=i").expect("a file");
        assert_eq!(file.path, b"a b");
        assert_eq!(file.kind, Object::File(Contents::Bytes(b"x\n\0".to_vec())));
        assert_eq!(file.owner, (Id(1000), Id(100)));
        assert_eq!(file.xattrs, [(b"user.a".to_vec(), b"v".to_vec())]);
        assert_eq!(file.iflags, 0x10);
        let link = Entry::parse("l -> 'a b' 1000").expect("a link");
        assert_eq!(link.kind, Object::Symlink(b"a b".to_vec()));
        assert_eq!(link.owner, (Id(1000), Id(1000)));
        let device = Entry::parse("c char 1:3 0666").expect("a device");
        assert_eq!(device.kind, Object::Char(Dev { major: 1, minor: 3 }));
        assert_eq!(Entry::parse("/ 0777 root").expect("the root").path, b"");
    }

    #[test]
    fn lines_print_as_they_are_read() {
        for line in [
            "d/ 0755 root",
            "f 0600 1000:100 'x y'",
            "s 02755 root",
            "l -> d/f root",
            "h = f",
            "c char 1:3 0666 root",
            "a 0640 root acl=u::rw-,u:1000:r--,g::r--,m::r--,o::---",
        ] {
            assert_eq!(Entry::parse(line).expect(line).print(), line);
        }
    }

    #[test]
    fn mistakes_are_named() {
        let message = |line: &str| Entry::parse(line).expect_err(line);
        assert!(message("f 0644 root bogus").contains("unexpected `bogus`"));
        assert!(message("f 0644 root acll=u::rwx").contains("did you mean `acl`?"));
        assert!(message("f 0644 'open").contains("not closed"));
        assert!(message("l -> t 0777").contains("no mode"));
        assert!(message("d/ 0755 root 'text'").contains("only a regular file"));
        assert!(message("c char 0666").contains("number"));
    }
}
