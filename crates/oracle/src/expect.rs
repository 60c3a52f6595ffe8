//! What a row expects of a call, and how an answer is held against it.

use std::collections::BTreeMap;

use crate::args::{Arg, Dev, Id, Mem};
use crate::errno;
use crate::outcome::{DirEntry, Kind, Outcome, Stat, Time, entry_type_name, show, show_list, type_name};
use crate::read::{Node, Problem, Read, Table, alternatives, quote};
use crate::text;
use crate::words::{CapSet, Mode, StatxAttributes, StatxMask};

/// What a call must answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Expect {
    /// This error number.
    Error(i32),
    /// Success, and all of these.
    Success(Vec<Check>),
}

/// One demand on a successful answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// The number is.
    Ret(i64),
    /// The descriptor is.
    Fd(i32),
    /// The bytes are.
    Data(Vec<u8>),
    /// The number of bytes is.
    Len(i64),
    /// The names are, in any order.
    Names(Vec<Vec<u8>>),
    /// The names are, in this order.
    NamesInOrder(Vec<Vec<u8>>),
    /// The directory holds, beside `.` and `..`.
    Entries(BTreeMap<Vec<u8>, String>),
    /// The positions of the entries behind those that were read are.
    Offsets(Vec<i64>),
    /// The ids are.
    Ids(Vec<u32>),
    /// A field of stat or statx is.
    Field(&'static str, i128),
    /// The type is.
    Type(String),
    /// These attributes are set.
    Attributes(u64),
    /// These attributes are not set.
    NoAttributes(u64),
    /// Fields equal one another.
    Equal(Vec<&'static str>),
    /// Fields against an earlier answer.
    Since(String, Relation, Vec<&'static str>),
    /// Effective (0), permitted (1), inheritable (2) set is.
    Caps(usize, CapSet),
    /// The program's arguments are.
    Argv(Vec<Vec<u8>>),
    /// The program's environment is.
    Envp(Vec<Vec<u8>>),
    /// `AT_EXECFN` is.
    Execfn(Vec<u8>),
    /// The program's real, effective, saved (and filesystem) user ids are.
    Uids(Vec<u32>),
    /// The program's group ids are.
    Gids(Vec<u32>),
    /// `AT_SECURE` is.
    Secure(bool),
}

/// How a field relates to the same field of an earlier answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// It is the same.
    Same,
    /// It differs.
    Changed,
    /// It is later (or larger).
    Later,
}

impl Relation {
    fn name(self) -> &'static str {
        match self {
            Relation::Same => "same",
            Relation::Changed => "changed",
            Relation::Later => "later",
        }
    }
}

/// Fields of stat and statx that can be compared.
const FIELDS: [&str; 16] = [
    "dev",
    "ino",
    "mode",
    "nlink",
    "uid",
    "gid",
    "rdev",
    "size",
    "blksize",
    "blocks",
    "atime",
    "mtime",
    "ctime",
    "btime",
    "mask",
    "attributes_mask",
];

fn field_name(node: Node<'_>) -> Read<&'static str> {
    let name = node.str()?;
    FIELDS
        .iter()
        .find(|f| **f == name)
        .copied()
        .ok_or_else(|| node.problem(format!("unknown field `{name}`{}", alternatives(name, &FIELDS))))
}

/// A time as one number, so that it can be compared and kept like any other field.
fn ticks(time: Time) -> i128 {
    i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec)
}

/// The value of a field.
fn field(stat: &Stat, name: &str) -> Option<i128> {
    Some(match name {
        "dev" => i128::from(stat.dev),
        "ino" => i128::from(stat.ino),
        "mode" => i128::from(stat.mode & 0o7777),
        "nlink" => i128::from(stat.nlink),
        "uid" => i128::from(stat.uid),
        "gid" => i128::from(stat.gid),
        "rdev" => i128::from(stat.rdev),
        "size" => i128::from(stat.size),
        "blksize" => i128::from(stat.blksize),
        "blocks" => i128::from(stat.blocks),
        "atime" => ticks(stat.atime),
        "mtime" => ticks(stat.mtime),
        "ctime" => ticks(stat.ctime),
        "btime" => ticks(stat.extra?.btime),
        "mask" => i128::from(stat.extra?.mask),
        "attributes_mask" => i128::from(stat.extra?.attributes_mask),
        _ => return None,
    })
}

/// A field for a person.
fn show_field(name: &str, value: i128) -> String {
    match name {
        "mode" => format!("{value:04o}"),
        "rdev" | "dev" => {
            let dev = Dev::decode(value as u64);
            format!("{}:{}", dev.major, dev.minor)
        }
        "mask" | "attributes_mask" => format!("{value:#x}"),
        "atime" | "mtime" | "ctime" | "btime" => {
            text::print_time(value.div_euclid(1_000_000_000) as i64, value.rem_euclid(1_000_000_000) as i64)
        }
        _ => value.to_string(),
    }
}

impl Expect {
    /// Reads the `expect` of a call whose success has this kind.
    ///
    /// # Errors
    ///
    /// What is wrong, and where.
    pub fn read(node: Node<'_>, kind: Kind) -> Read<Expect> {
        if let Some(word) = node.as_str() {
            return match word {
                "ok" if kind == Kind::Fd => {
                    Err(node.problem("this call answers a descriptor: expect \"fd\""))
                }
                "ok" => Ok(Expect::Success(Vec::new())),
                "fd" if kind == Kind::Fd => Ok(Expect::Success(Vec::new())),
                "fd" => Err(node.problem("this call answers no descriptor: expect \"ok\" or a table")),
                name => Expect::error(name, node),
            };
        }
        let mut table = node.table("`expect`")?;
        if let Some(node) = table.take("errno") {
            let expect = Expect::error(node.str()?, node)?;
            table.finish()?;
            return Ok(expect);
        }
        let checks = match kind {
            Kind::Done => Vec::new(),
            Kind::Number => vec![Check::Ret(table.need("ret")?.int()?)],
            Kind::Fd => vec![Check::Fd(table.need("fd")?.int_in(0, i64::from(i32::MAX))? as i32)],
            Kind::Bytes => read_bytes(&mut table)?,
            Kind::Names => read_names(&mut table)?,
            Kind::Entries => read_listing(&mut table)?,
            Kind::Ids => vec![Check::Ids(read_ids(table.need("ids")?)?)],
            Kind::Caps => read_caps(&mut table)?,
            Kind::Stat | Kind::Statx => read_stat(&mut table, kind)?,
            Kind::Exec => read_exec(&mut table)?,
        };
        let at = table.at();
        table.finish()?;
        if checks.is_empty() {
            return Err(Problem::new(at, "`expect` demands nothing; write \"ok\" if any success will do"));
        }
        Ok(Expect::Success(checks))
    }

    fn error(name: &str, node: Node<'_>) -> Read<Expect> {
        let names: Vec<&str> = errno::NAMES.iter().map(|(n, _)| *n).chain(["ok", "fd"]).collect();
        errno::number(name)
            .map(Expect::Error)
            .ok_or_else(|| node.problem(format!("unknown errno `{name}`{}", alternatives(name, &names))))
    }

    /// What `outcome` demands of another system: everything that two systems must agree on. `full` are the capabilities
    /// of a task that has all.
    pub fn exactly(outcome: &Outcome, full: u64) -> Expect {
        let set = |bits| if bits == full { CapSet::FULL } else { CapSet(bits) };
        match outcome {
            Outcome::Error(errno) => Expect::Error(*errno),
            Outcome::Number(n) => Expect::Success(vec![Check::Ret(*n)]),
            Outcome::Fd(fd) => Expect::Success(vec![Check::Fd(*fd)]),
            Outcome::Bytes(bytes) => Expect::Success(vec![Check::Data(bytes.clone())]),
            Outcome::Names(names) => Expect::Success(vec![Check::NamesInOrder(names.clone())]),
            Outcome::Ids(ids) => Expect::Success(vec![Check::Ids(ids.clone())]),
            Outcome::Caps(sets) => Expect::Success((0..3).map(|i| Check::Caps(i, CapSet(sets[i]))).collect()),
            Outcome::Stat(stat) => {
                let mut checks = vec![Check::Type(type_name(stat.mode).to_owned())];
                for name in ["mode", "uid", "gid", "nlink", "size", "blocks"] {
                    checks.extend(field(stat, name).map(|v| Check::Field(name, v)));
                }
                // Later times came from a clock; those that a call has set are the same everywhere.
                const LONG_AGO: i64 = 1_600_000_000;
                for (name, time) in [("atime", stat.atime), ("mtime", stat.mtime)] {
                    if time.sec < LONG_AGO {
                        checks.push(Check::Field(name, ticks(time)));
                    }
                }
                Expect::Success(checks)
            }
            Outcome::Entries(entries) => {
                let mut checks = vec![Check::Entries(types(entries))];
                // Offsets in which a file system encodes the hashes of names are its own.
                if entries.iter().all(|entry| i32::try_from(entry.off).is_ok()) {
                    checks.push(Check::NamesInOrder(entries.iter().map(|e| e.name.clone()).collect()));
                    checks.push(Check::Offsets(entries.iter().map(|e| e.off).collect()));
                }
                Expect::Success(checks)
            }
            Outcome::Exec(exec) => {
                let mut checks: Vec<Check> = (0..2).map(|i| Check::Caps(i, set(exec.caps[i]))).collect();
                checks.push(Check::Argv(exec.argv.clone()));
                checks.push(Check::Uids(exec.uids.to_vec()));
                checks.push(Check::Gids(exec.gids.to_vec()));
                checks.push(Check::Secure(exec.secure));
                Expect::Success(checks)
            }
            Outcome::Done | Outcome::Broken(_) => Expect::Success(Vec::new()),
        }
    }

    /// The expectation as a row writes it.
    pub fn print(&self, kind: Kind) -> String {
        match self {
            Expect::Error(number) => format!("\"{}\"", errno::name(*number)),
            Expect::Success(checks) if checks.is_empty() => {
                if kind == Kind::Fd { "\"fd\"" } else { "\"ok\"" }.to_owned()
            }
            Expect::Success(checks) => {
                format!("{{ {} }}", checks.iter().map(Check::print).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Names of earlier answers that the demands refer to.
    pub fn references(&self) -> Vec<&str> {
        match self {
            Expect::Error(_) => Vec::new(),
            Expect::Success(checks) => checks
                .iter()
                .filter_map(|c| if let Check::Since(name, ..) = c { Some(name.as_str()) } else { None })
                .collect(),
        }
    }

    /// What is wrong with `outcome`; `saved` holds earlier answers, `full` the capabilities that "full" stands for.
    pub fn mismatch(&self, outcome: &Outcome, saved: &BTreeMap<String, Stat>, full: u64) -> Option<String> {
        match (self, outcome) {
            (_, Outcome::Broken(why)) => Some(format!("the backend failed: {why}")),
            (Expect::Error(wanted), Outcome::Error(got)) if wanted == got => None,
            (Expect::Error(wanted), got) => Some(format!("expected {}, got {got}", errno::name(*wanted))),
            (Expect::Success(checks), Outcome::Error(errno)) => {
                let what = if checks.is_empty() { "success" } else { "success with a certain answer" };
                Some(format!("expected {what}, got {}", errno::name(*errno)))
            }
            (Expect::Success(checks), got) => {
                let wrong: Vec<String> = checks.iter().filter_map(|c| c.mismatch(got, saved, full)).collect();
                if wrong.is_empty() { None } else { Some(wrong.join("; ")) }
            }
        }
    }
}

fn bytes(node: Node<'_>) -> Read<Vec<u8>> {
    match Mem::parse(node)? {
        Mem::Bytes(bytes) => Ok(bytes),
        _ => Err(node.problem("expected bytes, not a pointer")),
    }
}

fn byte_strings(node: Node<'_>) -> Read<Vec<Vec<u8>>> {
    node.array()?.into_iter().map(bytes).collect()
}

fn read_ids(node: Node<'_>) -> Read<Vec<u32>> {
    node.array()?.into_iter().map(|n| Id::read(n).map(|id| id.0)).collect()
}

fn read_bytes(table: &mut Table<'_>) -> Read<Vec<Check>> {
    let mut checks = Vec::new();
    if let Some(n) = table.take("data") {
        checks.push(Check::Data(bytes(n)?));
    }
    if let Some(n) = table.take("len") {
        checks.push(Check::Len(n.int()?));
    }
    Ok(checks)
}

fn read_names(table: &mut Table<'_>) -> Read<Vec<Check>> {
    let mut checks = Vec::new();
    if let Some(n) = table.take("names") {
        let mut names = byte_strings(n)?;
        names.sort();
        checks.push(Check::Names(names));
    }
    if let Some(n) = table.take("names_in_order") {
        checks.push(Check::NamesInOrder(byte_strings(n)?));
    }
    if let Some(n) = table.take("len") {
        checks.push(Check::Len(n.int()?));
    }
    Ok(checks)
}

fn file_type(node: Node<'_>) -> Read<String> {
    let name = node.str()?;
    let known: Vec<&str> = crate::outcome::TYPES.iter().map(|(_, n)| *n).collect();
    if known.contains(&name) {
        Ok(name.to_owned())
    } else {
        Err(node.problem(format!("unknown file type `{name}`{}", alternatives(name, &known))))
    }
}

/// The types of entries other than `.` and `..`, by name.
fn types(entries: &[DirEntry]) -> BTreeMap<Vec<u8>, String> {
    let real = entries.iter().filter(|entry| !entry.is_dot());
    real.map(|entry| (entry.name.clone(), entry_type_name(entry.kind).to_owned())).collect()
}

fn read_listing(table: &mut Table<'_>) -> Read<Vec<Check>> {
    let mut checks = Vec::new();
    if let Some(n) = table.take("entries") {
        checks.push(read_entries(n)?);
    }
    if let Some(n) = table.take("names_in_order") {
        checks.push(Check::NamesInOrder(byte_strings(n)?));
    }
    if let Some(n) = table.take("offsets") {
        checks.push(Check::Offsets(n.array()?.into_iter().map(|n| n.int()).collect::<Read<_>>()?));
    }
    Ok(checks)
}

fn read_entries(node: Node<'_>) -> Read<Check> {
    let mut table = node.table("`entries`")?;
    let mut entries = BTreeMap::new();
    for (name, kind) in table.rest() {
        entries.insert(name.as_bytes().to_vec(), file_type(kind)?);
    }
    Ok(Check::Entries(entries))
}

fn read_caps(table: &mut Table<'_>) -> Read<Vec<Check>> {
    let mut checks = Vec::new();
    for (i, key) in ["effective", "permitted", "inheritable"].into_iter().enumerate() {
        if let Some(n) = table.take(key) {
            checks.push(Check::Caps(i, CapSet::read(n)?));
        }
    }
    Ok(checks)
}

fn read_stat(table: &mut Table<'_>, kind: Kind) -> Read<Vec<Check>> {
    let mut checks = Vec::new();
    if let Some(n) = table.take("type") {
        checks.push(Check::Type(file_type(n)?));
    }
    if let Some(n) = table.take("mode") {
        checks.push(Check::Field("mode", i128::from(Mode::read(n)?.0)));
    }
    for key in ["uid", "gid"] {
        if let Some(n) = table.take(key) {
            checks.push(Check::Field(key, i128::from(Id::read(n)?.0)));
        }
    }
    for key in ["nlink", "size", "blksize", "blocks"] {
        if let Some(n) = table.take(key) {
            checks.push(Check::Field(key, i128::from(n.int()?)));
        }
    }
    if let Some(n) = table.take("rdev") {
        checks.push(Check::Field("rdev", i128::from(Dev::read(n)?.encode())));
    }
    let times: &[&'static str] = if kind == Kind::Statx {
        &["atime", "mtime", "ctime", "btime"]
    } else {
        &["atime", "mtime", "ctime"]
    };
    for key in times {
        if let Some(n) = table.take(key) {
            let (sec, nsec) =
                text::time(n.str()?).ok_or_else(|| n.problem("a time is \"SECONDS.NANOSECONDS\""))?;
            checks.push(Check::Field(key, i128::from(sec) * 1_000_000_000 + i128::from(nsec)));
        }
    }
    if kind == Kind::Statx {
        if let Some(n) = table.take("mask") {
            checks.push(Check::Field("mask", i128::from(StatxMask::read(n)?.0)));
        }
        if let Some(n) = table.take("attributes_mask") {
            checks.push(Check::Field("attributes_mask", i128::from(StatxAttributes::read(n)?.0)));
        }
        if let Some(n) = table.take("attributes") {
            checks.push(Check::Attributes(StatxAttributes::read(n)?.0));
        }
        if let Some(n) = table.take("no_attributes") {
            checks.push(Check::NoAttributes(StatxAttributes::read(n)?.0));
        }
    }
    if let Some(n) = table.take("equal") {
        checks.push(Check::Equal(n.array()?.into_iter().map(field_name).collect::<Read<_>>()?));
    }
    read_since(table, &mut checks)?;
    Ok(checks)
}

fn read_since(table: &mut Table<'_>, checks: &mut Vec<Check>) -> Read<()> {
    let since = table.take("since");
    let mut compared = false;
    for relation in [Relation::Same, Relation::Changed, Relation::Later] {
        let Some(node) = table.take(relation.name()) else { continue };
        let Some(since) = since else {
            return Err(node.problem("to compare with what? `since` names an earlier answer"));
        };
        let fields = node.array()?.into_iter().map(field_name).collect::<Read<_>>()?;
        checks.push(Check::Since(since.str()?.to_owned(), relation, fields));
        compared = true;
    }
    match since {
        Some(node) if !compared => Err(node.problem("`since` needs one of `same`, `changed`, `later`")),
        _ => Ok(()),
    }
}

fn read_exec(table: &mut Table<'_>) -> Read<Vec<Check>> {
    let mut checks = read_caps(table)?;
    if let Some(n) = table.take("argv") {
        checks.push(Check::Argv(byte_strings(n)?));
    }
    if let Some(n) = table.take("envp") {
        checks.push(Check::Envp(byte_strings(n)?));
    }
    if let Some(n) = table.take("execfn") {
        checks.push(Check::Execfn(bytes(n)?));
    }
    if let Some(n) = table.take("uids") {
        checks.push(Check::Uids(read_ids(n)?));
    }
    if let Some(n) = table.take("gids") {
        checks.push(Check::Gids(read_ids(n)?));
    }
    if let Some(n) = table.take("secure") {
        checks.push(Check::Secure(n.bool()?));
    }
    Ok(checks)
}

/// `None` if equal, the complaint otherwise.
fn differ<T: PartialEq>(what: &str, wanted: &T, got: &T, print: impl Fn(&T) -> String) -> Option<String> {
    if wanted == got { None } else { Some(format!("{what}: expected {}, got {}", print(wanted), print(got))) }
}

impl Check {
    fn print(&self) -> String {
        let list = |names: &[Vec<u8>]| {
            format!("[{}]", names.iter().map(|n| crate::args::print_bytes(n)).collect::<Vec<_>>().join(", "))
        };
        let ids = |key: &str, ids: &[u32]| format!("{key} = {ids:?}");
        match self {
            Check::Ret(n) => format!("ret = {n}"),
            Check::Fd(n) => format!("fd = {n}"),
            Check::Data(bytes) => format!("data = {}", crate::args::print_bytes(bytes)),
            Check::Len(n) => format!("len = {n}"),
            Check::Names(names) => format!("names = {}", list(names)),
            Check::NamesInOrder(names) => format!("names_in_order = {}", list(names)),
            Check::Entries(entries) => {
                let one = |(name, kind): (&Vec<u8>, &String)| {
                    format!("{} = \"{kind}\"", quote(&String::from_utf8_lossy(name)))
                };
                format!("entries = {{ {} }}", entries.iter().map(one).collect::<Vec<_>>().join(", "))
            }
            Check::Offsets(offsets) => format!("offsets = {offsets:?}"),
            Check::Ids(list) => ids("ids", list),
            Check::Field(name, value) => match *name {
                "mode" | "rdev" | "mask" | "attributes_mask" | "atime" | "mtime" | "ctime" | "btime" => {
                    format!("{name} = \"{}\"", show_field(name, *value))
                }
                _ => format!("{name} = {value}"),
            },
            Check::Type(name) => format!("type = \"{name}\""),
            Check::Attributes(bits) => format!("attributes = {}", StatxAttributes(*bits).print()),
            Check::NoAttributes(bits) => format!("no_attributes = {}", StatxAttributes(*bits).print()),
            Check::Equal(names) => format!("equal = {names:?}"),
            Check::Since(since, relation, names) => {
                format!("since = {}, {} = {names:?}", quote(since), relation.name())
            }
            Check::Caps(i, set) => {
                format!("{} = {}", ["effective", "permitted", "inheritable"][*i], set.print())
            }
            Check::Argv(strings) => format!("argv = {}", list(strings)),
            Check::Envp(strings) => format!("envp = {}", list(strings)),
            Check::Execfn(bytes) => format!("execfn = {}", crate::args::print_bytes(bytes)),
            Check::Uids(list) => ids("uids", list),
            Check::Gids(list) => ids("gids", list),
            Check::Secure(secure) => format!("secure = {secure}"),
        }
    }

    fn mismatch(&self, got: &Outcome, saved: &BTreeMap<String, Stat>, full: u64) -> Option<String> {
        match (self, got) {
            (Check::Ret(wanted), Outcome::Number(got)) => differ("number", wanted, got, i64::to_string),
            (Check::Fd(wanted), Outcome::Fd(got)) => differ("descriptor", wanted, got, i32::to_string),
            (Check::Data(wanted), Outcome::Bytes(got)) => {
                differ("bytes", wanted, got, |b| Outcome::Bytes(b.clone()).to_string())
            }
            (Check::Len(wanted), Outcome::Bytes(got)) => {
                differ("length", wanted, &(got.len() as i64), i64::to_string)
            }
            (Check::Len(wanted), Outcome::Names(got)) => {
                let len = got.iter().map(|n| n.len() as i64 + 1).sum();
                differ("length", wanted, &len, i64::to_string)
            }
            (Check::Len(wanted), Outcome::Number(got)) => differ("length", wanted, got, i64::to_string),
            (Check::Names(wanted), Outcome::Names(got)) => {
                let mut got = got.clone();
                got.sort();
                differ("names", wanted, &got, |n| show_list(n))
            }
            (Check::NamesInOrder(wanted), Outcome::Names(got)) => {
                differ("names", wanted, got, |n| show_list(n))
            }
            (Check::Entries(wanted), Outcome::Entries(got)) => {
                differ("entries", wanted, &types(got), show_entries)
            }
            (Check::NamesInOrder(wanted), Outcome::Entries(got)) => {
                let got = got.iter().map(|entry| entry.name.clone()).collect();
                differ("names", wanted, &got, |n| show_list(n))
            }
            (Check::Offsets(wanted), Outcome::Entries(got)) => {
                let got = got.iter().map(|entry| entry.off).collect();
                differ("offsets", wanted, &got, |o| format!("{o:?}"))
            }
            (Check::Ids(wanted), Outcome::Ids(got)) => differ("ids", wanted, got, |i| format!("{i:?}")),
            (Check::Caps(i, wanted), Outcome::Caps(got)) => caps_differ(*i, *wanted, got, full),
            (_, Outcome::Stat(stat)) => self.stat_mismatch(stat, saved),
            (_, Outcome::Exec(exec)) => self.exec_mismatch(exec, full),
            _ => Some(format!("got {got}, an answer of another kind")),
        }
    }

    fn stat_mismatch(&self, stat: &Stat, saved: &BTreeMap<String, Stat>) -> Option<String> {
        let value = |stat: &Stat, name: &str| {
            field(stat, name).ok_or_else(|| format!("the answer has no field `{name}`"))
        };
        match self {
            Check::Type(wanted) => differ("type", wanted, &type_name(stat.mode).to_owned(), String::clone),
            Check::Field(name, wanted) => match value(stat, name) {
                Ok(got) => differ(name, wanted, &got, |v| show_field(name, *v)),
                Err(message) => Some(message),
            },
            Check::Attributes(wanted) => {
                let got = stat.extra.map_or(0, |e| e.attributes);
                (got & wanted != *wanted).then(|| format!("attributes: expected {wanted:#x} in {got:#x}"))
            }
            Check::NoAttributes(unwanted) => {
                let got = stat.extra.map_or(0, |e| e.attributes);
                (got & unwanted != 0)
                    .then(|| format!("attributes: expected none of {unwanted:#x} in {got:#x}"))
            }
            Check::Equal(names) => {
                let values: Vec<Option<i128>> = names.iter().map(|n| field(stat, n)).collect();
                let shown = || {
                    let each = names.iter().zip(&values);
                    each.map(|(n, v)| format!("{n}={}", v.map_or("none".to_owned(), |v| show_field(n, v))))
                        .collect::<Vec<_>>()
                        .join(" ")
                };
                let equal = values.iter().all(|v| v.is_some() && *v == values[0]);
                (!equal).then(|| format!("expected equal fields, got {}", shown()))
            }
            Check::Since(since, relation, names) => {
                let Some(before) = saved.get(since) else {
                    return Some(format!("there is no answer `{since}`: its call failed"));
                };
                let wrong: Vec<String> = names
                    .iter()
                    .filter_map(|name| match (value(before, name), value(stat, name)) {
                        (Ok(old), Ok(new)) => relation_mismatch(*relation, name, old, new, since),
                        (Err(message), _) | (_, Err(message)) => Some(message),
                    })
                    .collect();
                (!wrong.is_empty()).then(|| wrong.join("; "))
            }
            _ => Some(format!("got {stat}, an answer of another kind")),
        }
    }

    fn exec_mismatch(&self, exec: &crate::outcome::Exec, full: u64) -> Option<String> {
        let ids = |what: &str, wanted: &Vec<u32>, got: &[u32; 4]| {
            let got = got[..wanted.len().min(4)].to_vec();
            differ(what, wanted, &got, |i| format!("{i:?}"))
        };
        match self {
            Check::Argv(wanted) => differ("argv", wanted, &exec.argv, |a| show_list(a)),
            Check::Envp(wanted) => differ("envp", wanted, &exec.envp, |a| show_list(a)),
            Check::Execfn(wanted) => differ("execfn", wanted, &exec.execfn, |a| show(a)),
            Check::Uids(wanted) => ids("uids", wanted, &exec.uids),
            Check::Gids(wanted) => ids("gids", wanted, &exec.gids),
            Check::Secure(wanted) => differ("secure", wanted, &exec.secure, bool::to_string),
            Check::Caps(i, wanted) => caps_differ(*i, *wanted, &exec.caps, full),
            _ => Some(format!("got {exec}, an answer of another kind")),
        }
    }
}

fn show_entries(entries: &BTreeMap<Vec<u8>, String>) -> String {
    let all: Vec<String> = entries.iter().map(|(name, kind)| format!("{} {kind}", show(name))).collect();
    format!("[{}]", all.join(", "))
}

fn caps_differ(i: usize, wanted: CapSet, got: &[u64; 3], full: u64) -> Option<String> {
    let name = ["effective", "permitted", "inheritable"][i];
    differ(name, &(wanted.0 & full), &(got[i] & full), |bits| {
        if *bits == full { "full".to_owned() } else { CapSet(*bits).text() }
    })
}

fn relation_mismatch(relation: Relation, name: &str, old: i128, new: i128, since: &str) -> Option<String> {
    let holds = match relation {
        Relation::Same => old == new,
        Relation::Changed => old != new,
        Relation::Later => new > old,
    };
    let complaint = || {
        format!(
            "{name}: expected {} since `{since}`, was {}, is {}",
            relation.name(),
            show_field(name, old),
            show_field(name, new)
        )
    };
    (!holds).then(complaint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml::de::DeTable;

    fn parse(text: &str, kind: Kind) -> Result<Expect, String> {
        let doc = format!("expect = {text}");
        let table = DeTable::parse(&doc).map_err(|e| e.to_string())?;
        let node = Node::new(table.get_ref().get("expect").ok_or("missing")?);
        Expect::read(node, kind).map_err(|p| p.message)
    }

    #[test]
    fn an_expectation_must_fit_its_call() {
        assert_eq!(parse("\"ENOENT\"", Kind::Done), Ok(Expect::Error(libc::ENOENT)));
        assert_eq!(parse("{ errno = \"ENOENT\" }", Kind::Stat), Ok(Expect::Error(libc::ENOENT)));
        assert!(parse("\"ok\"", Kind::Fd).is_err());
        assert!(parse("\"fd\"", Kind::Done).is_err());
        assert!(parse("{ size = 3 }", Kind::Done).expect_err("refused").contains("no key"));
        assert!(parse("{ }", Kind::Stat).expect_err("refused").contains("demands nothing"));
        assert!(parse("\"ENOET\"", Kind::Done).expect_err("refused").contains("did you mean `ENOENT`"));
        assert!(parse("{ same = [\"ino\"] }", Kind::Stat).expect_err("refused").contains("since"));
    }

    #[test]
    fn a_broken_backend_is_never_what_was_expected() {
        let broken = Outcome::Broken("gone".into());
        for expect in [Expect::Error(libc::ENOENT), Expect::Success(Vec::new())] {
            assert!(expect.mismatch(&broken, &BTreeMap::new(), 0).is_some());
        }
    }

    #[test]
    fn fields_are_compared() {
        let stat = Stat { mode: 0o100644, nlink: 2, ..Stat::default() };
        let outcome = Outcome::Stat(Box::new(stat));
        let none = BTreeMap::new();
        let good = parse("{ type = \"file\", mode = \"0644\", nlink = 2 }", Kind::Stat).expect("valid");
        assert_eq!(good.mismatch(&outcome, &none, 0), None);
        let bad = parse("{ mode = \"0600\" }", Kind::Stat).expect("valid");
        assert_eq!(bad.mismatch(&outcome, &none, 0).as_deref(), Some("mode: expected 0600, got 0644"));
    }

    #[test]
    fn a_missing_reference_is_a_mismatch() {
        let outcome = Outcome::Stat(Box::default());
        let expect = parse("{ since = \"a\", same = [\"ino\"] }", Kind::Stat).expect("valid");
        assert!(expect.mismatch(&outcome, &BTreeMap::new(), 0).is_some());
    }
}
