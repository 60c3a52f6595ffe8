//! Arguments of calls: how a row writes them, how they reach the kernel.

use serde::{Deserialize, Serialize};

mod buffers;
mod file;

pub use buffers::{Data, Pieces, Room, Rooms, StatRoom, StatxRoom, Struct};
pub use file::{Attributes, Fsxattr, Handle, Hint, SplitOffset};

use crate::read::{Node, Problem, Read, Table, alternatives, quote};
use crate::sys::Frame;
use crate::text;
use crate::words::{CapSet, LockKind, Mode, MountAttributes, OpenFlags, ResolveFlags, Whence, XattrFlags};

/// Kind of arguments that a row does not write.
pub const NO_KEY: &str = "result";

/// One argument of a call.
pub trait Arg: Sized {
    /// What it is called in the list of calls (`rcuwalk-oracle calls`).
    const KIND: &'static str;

    /// Reads it from a row.
    ///
    /// # Errors
    ///
    /// What is wrong with the value, and where.
    fn read(node: Node<'_>) -> Read<Self>;

    /// Prints it as a row writes it.
    fn print(&self) -> String;

    /// Appends its register or registers.
    fn lower(&self, frame: &mut Frame);

    /// Replaces names of descriptors by their numbers.
    ///
    /// # Errors
    ///
    /// The name that `lookup` does not know.
    fn resolve(&mut self, _lookup: &dyn Fn(&str) -> Option<i32>) -> Result<(), String> {
        Ok(())
    }

    /// True if it passes a pointer that is not to proper memory, or a size that is not the structure's.
    fn is_raw(&self) -> bool {
        false
    }
}

/// Bytes that a call reads: a path, a name, a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mem {
    /// These bytes (paths: with a NUL behind them).
    Bytes(#[serde(with = "crate::packed")] Vec<u8>),
    /// A pointer that faults.
    Bad,
    /// A null pointer.
    Null,
    /// These bytes, then an unmapped page.
    Unterminated(Vec<u8>),
}

impl Mem {
    /// The bytes, if the pointer is proper.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Mem::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn read_table(mut table: Table<'_>) -> Read<Mem> {
        if let Some(node) = table.take("hex") {
            let bytes = text::unhex(node.str()?).map_err(|m| node.problem(m))?;
            table.finish()?;
            return Ok(Mem::Bytes(bytes));
        }
        if let Some(node) = table.take("acl") {
            let bytes = text::acl_to_xattr(node.str()?).map_err(|m| node.problem(m))?;
            table.finish()?;
            return Ok(Mem::Bytes(bytes));
        }
        if let Some(node) = table.take("filecaps") {
            let caps = text::FileCaps::read(node)?;
            table.finish()?;
            return Ok(Mem::Bytes(caps.to_xattr()));
        }
        let mut bytes = table.take("prefix").map_or(Ok(""), |n| n.str())?.as_bytes().to_vec();
        if let Some(node) = table.take("repeat") {
            let unit = node.str()?;
            let times = table.need("times")?.int_in(0, 1 << 22)?;
            for _ in 0..times {
                bytes.extend_from_slice(unit.as_bytes());
            }
        }
        bytes.extend_from_slice(table.take("suffix").map_or(Ok(""), |n| n.str())?.as_bytes());
        let pointer = table.take("pointer");
        let at = table.at();
        table.finish()?;
        match pointer {
            None if bytes.is_empty() => {
                Err(Problem::new(at, "bytes need one of `repeat`, `hex`, `acl`, `filecaps`, `pointer`"))
            }
            None => Ok(Mem::Bytes(bytes)),
            Some(node) => match node.str()? {
                "bad" if bytes.is_empty() => Ok(Mem::Bad),
                "null" if bytes.is_empty() => Ok(Mem::Null),
                "unterminated" => Ok(Mem::Unterminated(bytes)),
                word => Err(node.problem(format!(
                    "no such pointer here{}",
                    alternatives(word, &["bad", "null", "unterminated"])
                ))),
            },
        }
    }

    /// Reads a string or one of the table forms.
    ///
    /// # Errors
    ///
    /// What is wrong with the value, and where.
    pub fn parse(node: Node<'_>) -> Read<Mem> {
        if let Some(text) = node.as_str() {
            return Ok(Mem::Bytes(text.as_bytes().to_vec()));
        }
        match node.as_table("bytes") {
            Some(table) => Mem::read_table(table),
            None => Err(node.problem("expected a string or a table such as { repeat = \"a\", times = 255 }")),
        }
    }
}

impl Default for Mem {
    fn default() -> Mem {
        Mem::Bytes(Vec::new())
    }
}

/// Prints bytes as a string, as an ACL, or in hexadecimal.
pub fn print_bytes(bytes: &[u8]) -> String {
    if let Some(acl) = text::acl_from_xattr(bytes) {
        return format!("{{ acl = {} }}", quote(&acl));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') => {
            print_repeated(text).unwrap_or_else(|| quote(text))
        }
        _ => format!("{{ hex = \"{}\" }}", text::hex(bytes)),
    }
}

/// Prints a long text that begins with one or two characters over and over.
fn print_repeated(text: &str) -> Option<String> {
    const LONG: usize = 64;
    let bytes = text.as_bytes();
    [1, 2].into_iter().find_map(|unit| {
        let pattern = bytes.get(..unit)?;
        let times = bytes.chunks(unit).take_while(|chunk| *chunk == pattern).count();
        let (head, tail) = (text.get(..unit)?, text.get(times * unit..)?);
        if times * unit < LONG {
            return None;
        }
        let suffix = if tail.is_empty() { String::new() } else { format!(", suffix = {}", quote(tail)) };
        Some(format!("{{ repeat = {}, times = {times}{suffix} }}", quote(head)))
    })
}

impl Arg for Mem {
    const KIND: &'static str = "string";

    fn read(node: Node<'_>) -> Read<Mem> {
        Mem::parse(node)
    }

    fn print(&self) -> String {
        match self {
            Mem::Bytes(bytes) => print_bytes(bytes),
            Mem::Bad => "{ pointer = \"bad\" }".to_owned(),
            Mem::Null => "{ pointer = \"null\" }".to_owned(),
            Mem::Unterminated(bytes) => format!(
                "{{ prefix = {}, pointer = \"unterminated\" }}",
                quote(&String::from_utf8_lossy(bytes))
            ),
        }
    }

    fn lower(&self, frame: &mut Frame) {
        match self {
            Mem::Bytes(bytes) => frame.string(bytes),
            Mem::Bad => frame.bad(),
            Mem::Null => frame.null(),
            Mem::Unterminated(bytes) => frame.unterminated(bytes),
        }
    }

    fn is_raw(&self) -> bool {
        !matches!(self, Mem::Bytes(_))
    }
}

/// Room for three ids, three registers: getresuid(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreeIds;

impl Arg for ThreeIds {
    const KIND: &'static str = NO_KEY;

    fn read(node: Node<'_>) -> Read<ThreeIds> {
        Err(node.problem("takes no value"))
    }

    fn print(&self) -> String {
        String::new()
    }

    fn lower(&self, frame: &mut Frame) {
        frame.room(12);
        frame.room_at(4);
        frame.room_at(8);
    }
}

/// A file descriptor: a number, or the name that an earlier call of the task bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fd {
    /// A number.
    Raw(i32),
    /// A name.
    Named(String),
}

impl Fd {
    /// `AT_FDCWD`.
    pub const CWD: Fd = Fd::Raw(libc::AT_FDCWD);

    /// The number; names must have been resolved.
    ///
    /// # Panics
    ///
    /// If it is still a name: the runner resolves names before a backend sees a call.
    pub fn raw(&self) -> i32 {
        match self {
            Fd::Raw(fd) => *fd,
            Fd::Named(name) => panic!("descriptor `{name}` was not resolved"),
        }
    }
}

impl Arg for Fd {
    const KIND: &'static str = "descriptor";

    fn read(node: Node<'_>) -> Read<Fd> {
        if node.is_int() {
            return Ok(Fd::Raw(node.int_in(i64::from(i32::MIN), i64::from(i32::MAX))? as i32));
        }
        match node.str()? {
            "AT_FDCWD" => Ok(Fd::CWD),
            name => Ok(Fd::Named(name.to_owned())),
        }
    }

    fn print(&self) -> String {
        match self {
            Fd::Raw(libc::AT_FDCWD) => "\"AT_FDCWD\"".to_owned(),
            Fd::Raw(fd) => fd.to_string(),
            Fd::Named(name) => quote(name),
        }
    }

    fn lower(&self, frame: &mut Frame) {
        frame.int(i64::from(self.raw()) as u64);
    }

    fn resolve(&mut self, lookup: &dyn Fn(&str) -> Option<i32>) -> Result<(), String> {
        if let Fd::Named(name) = self {
            *self = Fd::Raw(lookup(name).ok_or_else(|| name.clone())?);
        }
        Ok(())
    }
}

/// A plain integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Int(
    /// The value.
    pub i64,
);

impl Arg for Int {
    const KIND: &'static str = "integer";

    fn read(node: Node<'_>) -> Read<Int> {
        node.int().map(Int)
    }

    fn print(&self) -> String {
        self.0.to_string()
    }

    fn lower(&self, frame: &mut Frame) {
        frame.int(self.0 as u64);
    }
}

/// A user or group id; `-1` is `4294967295`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Id(
    /// The id.
    pub u32,
);

impl Id {
    /// "Keep" in the calls that change several ids.
    pub const KEEP: Id = Id(u32::MAX);
}

impl Arg for Id {
    const KIND: &'static str = "id";

    fn read(node: Node<'_>) -> Read<Id> {
        Ok(Id(node.int_in(-1, i64::from(u32::MAX))? as u32))
    }

    fn print(&self) -> String {
        if *self == Id::KEEP { "-1".to_owned() } else { self.0.to_string() }
    }

    fn lower(&self, frame: &mut Frame) {
        frame.int(u64::from(self.0));
    }
}

/// A list of group ids: two registers (count, pointer).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdList(
    /// The ids.
    pub Vec<u32>,
);

impl Arg for IdList {
    const KIND: &'static str = "ids";

    fn read(node: Node<'_>) -> Read<IdList> {
        node.array()?.into_iter().map(|n| Id::read(n).map(|id| id.0)).collect::<Read<_>>().map(IdList)
    }

    fn print(&self) -> String {
        let ids: Vec<String> = self.0.iter().map(u32::to_string).collect();
        format!("[{}]", ids.join(", "))
    }

    fn lower(&self, frame: &mut Frame) {
        frame.int(self.0.len() as u64);
        let bytes: Vec<u8> = self.0.iter().flat_map(|id| id.to_ne_bytes()).collect();
        frame.bytes(&bytes);
    }
}

/// Device number as `"major:minor"` (0:0 to 4095:1048575).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dev {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl Dev {
    /// Parses `major:minor`.
    pub fn parse(text: &str) -> Option<Dev> {
        let (major, minor) = text.split_once(':')?;
        let dev = Dev { major: major.parse().ok()?, minor: minor.parse().ok()? };
        (dev.major < 1 << 12 && dev.minor < 1 << 20).then_some(dev)
    }

    /// The encoding of mknod(2) and `st_rdev`.
    pub fn encode(self) -> u64 {
        let (major, minor) = (u64::from(self.major), u64::from(self.minor));
        (minor & 0xff) | major << 8 | (minor & !0xff) << 12
    }

    /// The inverse of [`Dev::encode`].
    pub fn decode(rdev: u64) -> Dev {
        Dev { major: (rdev >> 8 & 0xfff) as u32, minor: (rdev & 0xff | rdev >> 12 & 0xfff00) as u32 }
    }
}

impl Arg for Dev {
    const KIND: &'static str = "device";

    fn read(node: Node<'_>) -> Read<Dev> {
        Dev::parse(node.str()?).ok_or_else(|| node.problem("a device is \"major:minor\""))
    }

    fn print(&self) -> String {
        format!("\"{}:{}\"", self.major, self.minor)
    }

    fn lower(&self, frame: &mut Frame) {
        frame.int(self.encode());
    }
}

/// The `times` of utimensat(2): absent or `"null"` (now), `"bad"`, or two of `"now"`, `"omit"`, `"SEC.NSEC"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Times {
    /// A null pointer: both now.
    #[default]
    Null,
    /// A pointer that faults.
    Bad,
    /// Seconds and nanoseconds of atime and mtime, `UTIME_NOW` and `UTIME_OMIT` included.
    Pair([(i64, i64); 2]),
}

/// `UTIME_NOW`.
pub const UTIME_NOW: i64 = 0x3fff_ffff;
/// `UTIME_OMIT`.
pub const UTIME_OMIT: i64 = 0x3fff_fffe;

/// Reads `"now"`, `"omit"`, `"5"`, `"5.000000001"`; more than nine digits after the point are taken as they are.
fn read_time(node: Node<'_>) -> Read<(i64, i64)> {
    match node.str()? {
        "now" => Ok((0, UTIME_NOW)),
        "omit" => Ok((0, UTIME_OMIT)),
        text => text::time(text)
            .ok_or_else(|| node.problem("a time is \"now\", \"omit\" or \"SECONDS.NANOSECONDS\"")),
    }
}

impl Arg for Times {
    const KIND: &'static str = "times";

    fn read(node: Node<'_>) -> Read<Times> {
        if let Some(word) = node.as_str() {
            return match word {
                "null" => Ok(Times::Null),
                "bad" => Ok(Times::Bad),
                _ => Err(node.problem("times are \"null\", \"bad\" or an array of two")),
            };
        }
        match node.array()?[..] {
            [atime, mtime] => Ok(Times::Pair([read_time(atime)?, read_time(mtime)?])),
            _ => Err(node.problem("times are an array of two: access time, modification time")),
        }
    }

    fn print(&self) -> String {
        let one = |(sec, nsec): (i64, i64)| match nsec {
            UTIME_NOW => "\"now\"".to_owned(),
            UTIME_OMIT => "\"omit\"".to_owned(),
            _ => format!("\"{}\"", text::print_time(sec, nsec)),
        };
        match self {
            Times::Null => "\"null\"".to_owned(),
            Times::Bad => "\"bad\"".to_owned(),
            Times::Pair([a, m]) => format!("[{}, {}]", one(*a), one(*m)),
        }
    }

    fn lower(&self, frame: &mut Frame) {
        match self {
            Times::Null => frame.null(),
            Times::Bad => frame.bad(),
            Times::Pair([a, m]) => {
                let bytes: Vec<u8> = [a.0, a.1, m.0, m.1].iter().flat_map(|n| n.to_ne_bytes()).collect();
                frame.bytes(&bytes);
            }
        }
    }

    fn is_raw(&self) -> bool {
        matches!(self, Times::Bad)
    }
}

/// `struct open_how` and its size: two registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct How {
    /// Open flags.
    pub flags: OpenFlags,
    /// Mode of a created file.
    pub mode: Mode,
    /// Resolve flags.
    pub resolve: ResolveFlags,
    /// The size told to the call.
    pub size: u64,
    /// The byte that fills the structure beyond its 24 bytes, when `size` is larger.
    pub filler: u8,
    /// Whether the pointer faults.
    pub bad: bool,
}

impl Default for How {
    fn default() -> How {
        How { flags: OpenFlags(0), mode: Mode(0), resolve: ResolveFlags(0), size: 24, filler: 0, bad: false }
    }
}

impl Arg for How {
    const KIND: &'static str = "open_how";

    fn read(node: Node<'_>) -> Read<How> {
        let mut table = node.table("`how`")?;
        let mut how = How::default();
        if let Some(n) = table.take("flags") {
            how.flags = OpenFlags::read(n)?;
        }
        if let Some(n) = table.take("mode") {
            how.mode = Mode::read(n)?;
        }
        if let Some(n) = table.take("resolve") {
            how.resolve = ResolveFlags::read(n)?;
        }
        if let Some(n) = table.take("size") {
            how.size = n.int_in(0, 65536)? as u64;
        }
        if let Some(n) = table.take("filler") {
            how.filler = n.int_in(0, 255)? as u8;
        }
        if let Some(n) = table.take("pointer") {
            how.bad = n.str()? == "bad";
        }
        table.finish()?;
        Ok(how)
    }

    fn print(&self) -> String {
        let mut out = format!("{{ flags = {}", self.flags.print());
        if self.mode.0 != 0 {
            out.push_str(&format!(", mode = {}", self.mode.print()));
        }
        if self.resolve.0 != 0 {
            out.push_str(&format!(", resolve = {}", self.resolve.print()));
        }
        if self.size != 24 {
            out.push_str(&format!(", size = {}, filler = {}", self.size, self.filler));
        }
        if self.bad {
            out.push_str(", pointer = \"bad\"");
        }
        out + " }"
    }

    fn lower(&self, frame: &mut Frame) {
        if self.bad {
            frame.bad();
        } else {
            let mut bytes = Vec::with_capacity(24);
            for word in [self.flags.0, self.mode.0, self.resolve.0] {
                bytes.extend_from_slice(&word.to_ne_bytes());
            }
            bytes.resize(self.size.max(24) as usize, self.filler);
            frame.bytes(&bytes);
        }
        frame.int(self.size);
    }

    fn is_raw(&self) -> bool {
        self.bad || self.size != 24
    }
}

/// `struct xattr_args` of setxattrat(2) with its size: two registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XattrArgs {
    /// The value.
    pub value: Mem,
    /// `XATTR_CREATE`, `XATTR_REPLACE`.
    pub flags: XattrFlags,
    /// The size of the structure told to the call.
    pub usize: u64,
    /// The byte that fills the structure beyond its 16 bytes, when `usize` is larger.
    pub filler: u8,
}

impl Arg for XattrArgs {
    const KIND: &'static str = "xattr_args";

    fn read(node: Node<'_>) -> Read<XattrArgs> {
        let mut table = node.table("`args`")?;
        let value = Mem::parse(table.need("value")?)?;
        let flags = table.take("flags").map_or(Ok(XattrFlags(0)), XattrFlags::read)?;
        let usize = table.take("usize").map_or(Ok(16), |n| n.int_in(0, 65536))? as u64;
        let filler = table.take("filler").map_or(Ok(0), |n| n.int_in(0, 255))? as u8;
        table.finish()?;
        Ok(XattrArgs { value, flags, usize, filler })
    }

    fn print(&self) -> String {
        format!(
            "{{ value = {}, flags = {}, usize = {}, filler = {} }}",
            self.value.print(),
            self.flags.print(),
            self.usize,
            self.filler
        )
    }

    fn lower(&self, frame: &mut Frame) {
        let (address, len) = frame.detached(&self.value);
        let mut bytes = Vec::with_capacity(16);
        bytes.extend_from_slice(&address.to_ne_bytes());
        bytes.extend_from_slice(&len.to_ne_bytes());
        bytes.extend_from_slice(&(self.flags.0 as u32).to_ne_bytes());
        bytes.resize(self.usize.max(16) as usize, self.filler);
        frame.bytes(&bytes);
        frame.int(self.usize);
    }

    fn is_raw(&self) -> bool {
        self.value.is_raw() || self.usize != 16
    }
}

/// `struct xattr_args` of getxattrat(2): room for the value, and its size: two registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XattrRoom {
    /// Room for the value.
    pub size: u32,
    /// The `flags` member, which must be zero.
    pub flags: XattrFlags,
    /// The size of the structure told to the call.
    pub usize: u64,
}

impl Default for XattrRoom {
    fn default() -> XattrRoom {
        XattrRoom { size: 65536, flags: XattrFlags(0), usize: 16 }
    }
}

impl Arg for XattrRoom {
    const KIND: &'static str = "xattr_args";

    fn read(node: Node<'_>) -> Read<XattrRoom> {
        let mut table = node.table("`args`")?;
        let size = table.take("size").map_or(Ok(65536), |n| n.int_in(0, 65536))? as u32;
        let flags = table.take("flags").map_or(Ok(XattrFlags(0)), XattrFlags::read)?;
        let usize = table.take("usize").map_or(Ok(16), |n| n.int_in(0, 65536))? as u64;
        table.finish()?;
        Ok(XattrRoom { size, flags, usize })
    }

    fn print(&self) -> String {
        format!("{{ size = {}, flags = {}, usize = {} }}", self.size, self.flags.print(), self.usize)
    }

    fn lower(&self, frame: &mut Frame) {
        let address = frame.detached_room(self.size as usize);
        let mut bytes = Vec::with_capacity(16);
        bytes.extend_from_slice(&address.to_ne_bytes());
        bytes.extend_from_slice(&self.size.to_ne_bytes());
        bytes.extend_from_slice(&(self.flags.0 as u32).to_ne_bytes());
        bytes.resize(self.usize.max(16) as usize, 0);
        frame.bytes(&bytes);
        frame.int(self.usize);
    }

    fn is_raw(&self) -> bool {
        self.usize != 16
    }
}

/// Argument or environment vector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Vector {
    /// Strings; a `Bad` element is a pointer that faults.
    Strings(Vec<Mem>),
    /// A null pointer.
    Null,
    /// A pointer that faults.
    Bad,
}

impl Default for Vector {
    fn default() -> Vector {
        Vector::Strings(Vec::new())
    }
}

impl Arg for Vector {
    const KIND: &'static str = "strings";

    fn read(node: Node<'_>) -> Read<Vector> {
        if node.is_array() {
            return node.array()?.into_iter().map(Mem::parse).collect::<Read<_>>().map(Vector::Strings);
        }
        match Mem::parse(node)? {
            Mem::Null => Ok(Vector::Null),
            Mem::Bad => Ok(Vector::Bad),
            _ => Err(node.problem("expected an array of strings or { pointer = \"null\" | \"bad\" }")),
        }
    }

    fn print(&self) -> String {
        match self {
            Vector::Null => Mem::Null.print(),
            Vector::Bad => Mem::Bad.print(),
            Vector::Strings(list) => {
                format!("[{}]", list.iter().map(Mem::print).collect::<Vec<_>>().join(", "))
            }
        }
    }

    fn lower(&self, frame: &mut Frame) {
        match self {
            Vector::Null => frame.null(),
            Vector::Bad => frame.bad(),
            Vector::Strings(list) => {
                let strings: Vec<Option<&[u8]>> = list.iter().map(Mem::bytes).collect();
                frame.vector(&strings);
            }
        }
    }

    fn is_raw(&self) -> bool {
        match self {
            Vector::Strings(list) => list.iter().any(Mem::is_raw),
            _ => true,
        }
    }
}

/// A resource limit: a number, or `"infinity"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit(
    /// `None`: the one there is.
    pub Option<u64>,
);

impl Limit {
    /// No limit. Kernel: `RLIM_INFINITY`.
    const INFINITY: u64 = u64::MAX;
    /// The limit stays what it is.
    pub const KEPT: Limit = Limit(None);
}

impl Arg for Limit {
    const KIND: &'static str = "limit";

    fn read(node: Node<'_>) -> Read<Limit> {
        if node.is_int() {
            return Ok(Limit(Some(node.int_in(0, i64::MAX)? as u64)));
        }
        match node.str()? {
            "infinity" => Ok(Limit(Some(Limit::INFINITY))),
            _ => Err(node.problem("a limit is a number or \"infinity\"")),
        }
    }

    fn print(&self) -> String {
        match self.0 {
            Some(Limit::INFINITY) => quote("infinity"),
            limit => limit.unwrap_or_default().to_string(),
        }
    }

    fn lower(&self, frame: &mut Frame) {
        frame.int(self.0.unwrap_or_default());
    }
}

/// The three sets of capset(2): two registers (header, data).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapSets {
    /// Effective set.
    pub effective: CapSet,
    /// Permitted set.
    pub permitted: CapSet,
    /// Inheritable set.
    pub inheritable: CapSet,
}

/// Header of capset(2) and capget(2): version 3, this process.
fn cap_header(frame: &mut Frame) {
    let header: Vec<u8> = [0x2008_0522_u32, 0].iter().flat_map(|n| n.to_ne_bytes()).collect();
    frame.bytes(&header);
}

impl Arg for CapSets {
    const KIND: &'static str = "capability sets";

    fn read(node: Node<'_>) -> Read<CapSets> {
        let mut table = node.table("`sets`")?;
        let effective = CapSet::read(table.need("effective")?)?;
        let permitted = CapSet::read(table.need("permitted")?)?;
        let inheritable = table.take("inheritable").map_or(Ok(CapSet::NONE), CapSet::read)?;
        table.finish()?;
        Ok(CapSets { effective, permitted, inheritable })
    }

    fn print(&self) -> String {
        format!(
            "{{ effective = {}, permitted = {}, inheritable = {} }}",
            self.effective.print(),
            self.permitted.print(),
            self.inheritable.print()
        )
    }

    fn lower(&self, frame: &mut Frame) {
        cap_header(frame);
        let mut data = Vec::with_capacity(24);
        for shift in [0, 32] {
            for set in [self.effective, self.permitted, self.inheritable] {
                data.extend_from_slice(&((set.0 >> shift) as u32).to_ne_bytes());
            }
        }
        frame.bytes(&data);
    }
}

/// Room for the sets of capget(2): two registers (header, data).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapRoom;

impl Arg for CapRoom {
    const KIND: &'static str = NO_KEY;

    fn read(node: Node<'_>) -> Read<CapRoom> {
        Err(node.problem("takes no value"))
    }

    fn print(&self) -> String {
        String::new()
    }

    fn lower(&self, frame: &mut Frame) {
        cap_header(frame);
        frame.room(24);
    }
}

/// Inode flags behind `FS_IOC_SETFLAGS`: two registers (request, pointer).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetFlags(
    /// The flags.
    pub crate::words::InodeFlags,
);

impl Arg for SetFlags {
    const KIND: &'static str = "inode flags";

    fn read(node: Node<'_>) -> Read<SetFlags> {
        crate::words::InodeFlags::read(node).map(SetFlags)
    }

    fn print(&self) -> String {
        self.0.print()
    }

    fn lower(&self, frame: &mut Frame) {
        frame.int(0x4008_6602);
        frame.bytes(&self.0.0.to_ne_bytes());
    }
}

/// `struct mount_attr` and its size: two registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountAttr {
    /// Attributes to set.
    pub set: MountAttributes,
    /// Attributes to clear.
    pub clr: MountAttributes,
    /// Propagation type.
    pub propagation: crate::words::MountFlags,
    /// Descriptor of the user namespace of an idmap.
    pub userns: Fd,
    /// The size told to the call.
    pub size: u64,
}

impl Arg for MountAttr {
    const KIND: &'static str = "mount_attr";

    fn read(node: Node<'_>) -> Read<MountAttr> {
        let mut table = node.table("`attr`")?;
        let set = table.take("set").map_or(Ok(MountAttributes(0)), MountAttributes::read)?;
        let clr = table.take("clr").map_or(Ok(MountAttributes(0)), MountAttributes::read)?;
        let none = crate::words::MountFlags(0);
        let propagation = table.take("propagation").map_or(Ok(none), crate::words::MountFlags::read)?;
        let userns = table.take("userns").map_or(Ok(Fd::Raw(0)), Fd::read)?;
        let size = table.take("size").map_or(Ok(32), |n| n.int_in(0, 65536))? as u64;
        table.finish()?;
        Ok(MountAttr { set, clr, propagation, userns, size })
    }

    fn print(&self) -> String {
        format!(
            "{{ set = {}, clr = {}, propagation = {}, userns = {}, size = {} }}",
            self.set.print(),
            self.clr.print(),
            self.propagation.print(),
            self.userns.print(),
            self.size
        )
    }

    fn lower(&self, frame: &mut Frame) {
        let userns = i64::from(self.userns.raw()) as u64;
        let mut bytes = Vec::with_capacity(32);
        for word in [self.set.0, self.clr.0, self.propagation.0, userns] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.resize(self.size.max(32) as usize, 0);
        frame.bytes(&bytes);
        frame.int(self.size);
    }

    fn resolve(&mut self, lookup: &dyn Fn(&str) -> Option<i32>) -> Result<(), String> {
        self.userns.resolve(lookup)
    }
}

/// What statmount(2) and listmount(2) are about: the mount of a place, or an id (-1: `LSMT_ROOT`), in a mount namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountRequest {
    /// Where `path` begins.
    pub dirfd: Fd,
    /// A path, whose last link is not followed.
    pub path: Mem,
    /// An id in place of a path, or 0.
    pub id: i64,
    /// A descriptor of a mount namespace.
    pub ns: Fd,
    /// Whether that namespace is asked for by its id.
    pub by_id: bool,
    /// An id of a namespace, or 0.
    pub ns_id: i64,
    /// The size told to the call.
    pub size: u64,
}

impl Default for MountRequest {
    fn default() -> MountRequest {
        let path = Mem::Bytes(Vec::new());
        MountRequest { dirfd: Fd::CWD, path, id: 0, ns: Fd::CWD, by_id: false, ns_id: 0, size: 32 }
    }
}

impl Arg for MountRequest {
    const KIND: &'static str = "mount request";

    fn read(node: Node<'_>) -> Read<MountRequest> {
        let mut table = node.table("mount request")?;
        let none = MountRequest::default();
        let dirfd = table.take("dirfd").map_or(Ok(none.dirfd), Fd::read)?;
        let path = table.take("path").map_or(Ok(none.path), Mem::read)?;
        let id = table.take("id").map_or(Ok(0), |node| node.int())?;
        let ns = table.take("ns").map_or(Ok(none.ns), Fd::read)?;
        let by_id = table.take("by_id").map_or(Ok(0), |node| node.int_in(0, 1))? == 1;
        let ns_id = table.take("ns_id").map_or(Ok(0), |node| node.int())?;
        let size = table.take("size").map_or(Ok(32), |node| node.int_in(0, 65536))? as u64;
        table.finish()?;
        Ok(MountRequest { dirfd, path, id, ns, by_id, ns_id, size })
    }

    fn print(&self) -> String {
        let none = MountRequest::default();
        let what = if self.id == 0 {
            format!("dirfd = {}, path = {}", self.dirfd.print(), self.path.print())
        } else {
            format!("id = {}", self.id)
        };
        let ns = if self.ns == none.ns { String::new() } else { format!(", ns = {}", self.ns.print()) };
        let [by_id, ns_id] = [("by_id", i64::from(self.by_id)), ("ns_id", self.ns_id)]
            .map(|(key, word)| if word == 0 { String::new() } else { format!(", {key} = {word}") });
        let size = if self.size == none.size { String::new() } else { format!(", size = {}", self.size) };
        format!("{{ {what}{ns}{by_id}{ns_id}{size} }}")
    }

    /// Lowered by the backend, which asks for ids first.
    fn lower(&self, _: &mut Frame) {}

    fn resolve(&mut self, lookup: &dyn Fn(&str) -> Option<i32>) -> Result<(), String> {
        self.dirfd.resolve(lookup)?;
        self.ns.resolve(lookup)
    }

    fn is_raw(&self) -> bool {
        self.path.is_raw()
    }
}

/// An id map: `"FIRST LOWER COUNT"` lines as in `/proc/PID/uid_map`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMap(
    /// First id inside, first id outside, count.
    pub Vec<(u32, u32, u32)>,
);

impl IdMap {
    /// As `/proc/PID/uid_map` takes it.
    pub fn text(&self) -> String {
        self.0.iter().map(|(first, lower, count)| format!("{first} {lower} {count}\n")).collect()
    }
}

impl Arg for IdMap {
    const KIND: &'static str = "id map";

    fn read(node: Node<'_>) -> Read<IdMap> {
        let mut map = Vec::new();
        for line in node.strings()? {
            let words: Vec<u32> = line.split_whitespace().map_while(|w| w.parse().ok()).collect();
            match words[..] {
                [first, lower, count] => map.push((first, lower, count)),
                _ => return Err(node.problem("a line of an id map is \"FIRST LOWER COUNT\"")),
            }
        }
        Ok(IdMap(map))
    }

    fn print(&self) -> String {
        let lines: Vec<String> = self.0.iter().map(|(f, l, c)| format!("\"{f} {l} {c}\"")).collect();
        format!("[{}]", lines.join(", "))
    }

    fn lower(&self, frame: &mut Frame) {
        frame.bytes(self.text().as_bytes());
    }
}

/// A name: of a task, of a sysctl.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name(
    /// The name.
    pub String,
);

impl Arg for Name {
    const KIND: &'static str = "name";

    fn read(node: Node<'_>) -> Read<Name> {
        Ok(Name(node.str()?.to_owned()))
    }

    fn print(&self) -> String {
        quote(&self.0)
    }

    fn lower(&self, frame: &mut Frame) {
        frame.string(self.0.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_number_survives_its_encoding() {
        for dev in [
            Dev { major: 1, minor: 3 },
            Dev { major: 259, minor: 70_000 },
            Dev { major: 4095, minor: 1_048_575 },
        ] {
            assert_eq!(Dev::decode(dev.encode()), dev);
        }
        assert_eq!(Dev { major: 1, minor: 3 }.encode(), 0x103);
    }

    #[test]
    fn bytes_print_in_the_shortest_form_that_reads_back() {
        assert_eq!(print_bytes(b"a\"b"), "\"a\\\"b\"");
        assert_eq!(print_bytes(&[0xff, 0]), "{ hex = \"ff00\" }");
        assert_eq!(print_bytes(&[b'x'; 70]), "{ repeat = \"x\", times = 70 }");
        let path = [b"./".repeat(40), b"f".to_vec()].concat();
        assert_eq!(print_bytes(&path), "{ repeat = \"./\", times = 40, suffix = \"f\" }");
    }
}

/// A lock on a range of bytes: a pointer to `struct flock`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRange {
    /// `F_RDLCK`, `F_WRLCK`, `F_UNLCK`.
    pub kind: LockKind,
    /// What `start` counts from.
    pub whence: Whence,
    /// The first byte.
    pub start: i64,
    /// How many bytes.
    pub len: i64,
    /// The process that is named.
    pub pid: i64,
}

impl LockRange {
    /// The structure.
    pub(crate) fn bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&(self.kind.0 as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&(self.whence.0 as u16).to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.start.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.len.to_ne_bytes());
        bytes[24..28].copy_from_slice(&(self.pid as i32).to_ne_bytes());
        bytes
    }
}

impl Arg for LockRange {
    const KIND: &'static str = "lock";

    fn read(node: Node<'_>) -> Read<LockRange> {
        let mut table = node.table("`lock`")?;
        let kind = LockKind::read(table.need("kind")?)?;
        let whence = table.take("whence").map_or(Ok(Whence(0)), Whence::read)?;
        let mut number = |key| table.take(key).map_or(Ok(0), |n| n.int());
        let (start, len, pid) = (number("start")?, number("len")?, number("pid")?);
        table.finish()?;
        Ok(LockRange { kind, whence, start, len, pid })
    }

    fn print(&self) -> String {
        let mut out = format!("{{ kind = {}", self.kind.print());
        if self.whence.0 != 0 {
            out.push_str(&format!(", whence = {}", self.whence.print()));
        }
        for (key, value) in [("start", self.start), ("len", self.len), ("pid", self.pid)] {
            if value != 0 {
                out.push_str(&format!(", {key} = {value}"));
            }
        }
        out.push_str(" }");
        out
    }

    fn lower(&self, frame: &mut Frame) {
        frame.bytes(&self.bytes());
    }
}

/// A file offset that a call reads and advances, or none: a pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offset(
    /// The offset.
    pub Option<i64>,
);

impl Arg for Offset {
    const KIND: &'static str = "offset";

    fn read(node: Node<'_>) -> Read<Offset> {
        node.int().map(|offset| Offset(Some(offset)))
    }

    fn print(&self) -> String {
        self.0.unwrap_or(0).to_string()
    }

    fn lower(&self, frame: &mut Frame) {
        match self.0 {
            Some(offset) => frame.bytes(&offset.to_ne_bytes()),
            None => frame.null(),
        }
    }
}
