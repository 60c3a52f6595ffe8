//! Where the engine clears memory, and how much at a time: the histogram that remedy S3 was chosen by.

use std::fmt::Write as _;

use rcuwalk::syscall::{SliceMemory, nr};
use rcuwalk::uapi::{AT_FDCWD, O_CREAT, O_RDWR};
use rcuwalk::{Cred, Errno, InitOnAlloc, Task, Vfs};
use rcuwalk_sync::fill;
use rcuwalk_sync::slab::POLICY_VARIABLE;
use serde::Serialize;

use rcuwalk_measure::Error;
use rcuwalk_measure::table::{Style, new_table, right};

/// What one place cleared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Which buffers are cleared before they are used: the policy in force.
    pub init_on_alloc: String,
    /// The place.
    pub site: &'static str,
    /// Fills of 0–7 bytes, 8–15, …, 120–127, and of 128 or more.
    pub fills: Vec<u64>,
}

/// A cache of buffers, when the work was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CacheRow {
    /// The policy in force.
    pub init_on_alloc: String,
    /// Its name, by which [`InitOnAlloc::Skip`] knows it.
    pub name: &'static str,
    /// Bytes of a buffer.
    pub size: usize,
    /// Whether its buffers are cleared before they are used.
    pub clears: bool,
    /// Buffers that came from the system, and were not used before.
    pub fresh: u64,
}

/// What a run found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Files that were made, written, cut, stretched and read.
    pub files: u32,
    /// System calls that took.
    pub calls: u64,
    /// The places that cleared anything.
    pub rows: Vec<Row>,
    /// The caches of the engine.
    pub caches: Vec<CacheRow>,
}

const NAME: u64 = 0x1000;
const DATA: u64 = 0x10_0000;

/// The longest file, bytes.
const LONGEST: usize = 1 << 16;

/// A program behind the raw door, and the calls it made.
struct Program {
    task: Task,
    data: Vec<u8>,
    calls: u64,
}

impl Program {
    /// Makes a call with `path` at [`NAME`].
    fn call(&mut self, path: &str, number: u64, args: [u64; 4]) -> Result<u64, Error> {
        let mut name = [path.as_bytes(), b"\0"].concat();
        let mut memory = SliceMemory::new(NAME, &mut name).with(DATA, &mut self.data);
        let [a, b, c, d] = args;
        let answer = self.task.syscall(&mut memory, number, [a, b, c, d, 0, 0]);
        self.calls += 1;
        let failed = |_| Errno::from_raw(-answer as i32).unwrap_or(Errno::EINVAL);
        u64::try_from(answer).map_err(|e| Error::engine("counting fills", path.as_bytes(), failed(e), ""))
    }

    /// What an editor or a compiler does with a file: writes it, cuts it, lets it grow, reads it.
    fn work(&mut self, path: &str, size: u64) -> Result<(), Error> {
        let at = AT_FDCWD as u64;
        let fd = self.call(path, nr::OPENAT, [at, NAME, (O_CREAT | O_RDWR) as u64, 0o644])?;
        self.call(path, nr::WRITE, [fd, DATA, size, 0])?;
        self.call(path, nr::FTRUNCATE, [fd, size / 3, 0, 0])?;
        self.call(path, nr::FTRUNCATE, [fd, size, 0, 0])?;
        self.call(path, nr::PREAD64, [fd, DATA, size, 0])?;
        self.call(path, nr::CLOSE, [fd, 0, 0, 0])?;
        self.call(path, nr::STAT, [NAME, DATA, 0, 0])?;
        Ok(())
    }
}

/// Counts the fills of the same work, with the buffers cleared as the engine does (`on`) and with no opt-out heeded (`force`);
/// once, as the operator wants it, where [`POLICY_VARIABLE`] is set, which overrules both.
///
/// ```
/// let report = rcuwalk_lab::fills::run(true)?;
/// assert!(report.rows.iter().any(|row| row.site == "pages: hole"));
/// let names = |row: &&rcuwalk_lab::fills::Row| row.site == "names";
/// assert!(report.rows.iter().filter(names).all(|row| row.init_on_alloc == "force"), "they opted out");
/// # Ok::<(), rcuwalk_measure::Error>(())
/// ```
///
/// # Errors
///
/// When the engine refuses a call: without memory.
pub fn run(quick: bool) -> Result<Report, Error> {
    let files = if quick { 200 } else { 5_000 };
    let mut report = Report { files, calls: 0, rows: Vec::new(), caches: Vec::new() };
    let policies = match std::env::var_os(POLICY_VARIABLE) {
        Some(words) => vec![(words.to_string_lossy().into_owned(), InitOnAlloc::default())],
        None => vec![("on".to_owned(), InitOnAlloc::On), ("force".to_owned(), InitOnAlloc::Force)],
    };
    for (name, policy) in policies {
        let engine = |e| Error::engine("counting fills", b"/", e, "");
        let vfs = Vfs::builder().init_on_alloc(policy).build().map_err(engine)?;
        let task = vfs.task(Cred::root());
        let mut program = Program { task, data: vec![b'x'; LONGEST], calls: 0 };
        // One name in sixteen is too long for the room that most are copied into.
        let long = format!("/{}", "long-".repeat(40));
        program.task.mkdir(long.as_bytes(), 0o755).map_err(engine)?;
        let mut random = fastrand::Rng::with_seed(3);
        let before = fill::histogram();
        fill::count(true);
        let worked = (0..files).try_for_each(|i| {
            // As many files of each order of magnitude.
            let magnitude = random.u32(1..16);
            let size = random.u64(1..1 << magnitude);
            program.work(&format!("{}/file-{i}", if i % 16 == 0 { &long } else { "" }), size)
        });
        fill::count(false);
        worked?;
        report.calls += program.calls;
        for (site, counts) in fill::histogram() {
            let old = before.iter().find(|(name, _)| *name == site).map(|(_, counts)| counts);
            let fills: Vec<u64> =
                counts.iter().enumerate().map(|(i, n)| n - old.map_or(0, |old| old[i])).collect();
            if fills.iter().any(|&n| n != 0) {
                report.rows.push(Row { init_on_alloc: name.clone(), site, fills });
            }
        }
        report.caches.extend(vfs.stats().caches.iter().map(|cache| CacheRow {
            init_on_alloc: name.clone(),
            name: cache.name,
            size: cache.size,
            clears: cache.clears,
            fresh: cache.fresh,
        }));
    }
    Ok(report)
}

/// The report as text.
pub fn render(report: &Report, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "fills by place and size, bytes: {} files written, cut, stretched and read, in {} system calls behind the raw door",
        report.files, report.calls
    );
    let mut table = new_table(style);
    let last = report.rows.first().map_or(0, |row| row.fills.len().saturating_sub(1));
    let mut header = vec!["init_on_alloc".to_owned(), "place".to_owned(), "fills".to_owned()];
    // Two classes in a column, but the last, so that the table fits a terminal.
    header.extend((0..last).step_by(2).map(|i| format!("{}–{}", 8 * i, 8 * i + 15)));
    header.push(format!("{}…", 8 * last));
    table.set_header(header);
    for row in &report.rows {
        let mut cells = vec![comfy_table::Cell::new(&row.init_on_alloc), comfy_table::Cell::new(row.site)];
        cells.push(right(row.fills.iter().sum::<u64>()));
        cells.extend(row.fills[..last].chunks(2).map(|pair| right(pair.iter().sum::<u64>())));
        cells.push(right(row.fills[last]));
        table.add_row(cells);
    }
    let _ = writeln!(out, "{table}");
    for cache in &report.caches {
        let cleared = if cache.clears { "cleared before each use" } else { "not cleared" };
        let _ = writeln!(
            out,
            "{}: the cache `{}` of buffers of {} bytes, {cleared}; {} came from the system",
            cache.init_on_alloc, cache.name, cache.size, cache.fresh
        );
    }
    let _ = writeln!(
        out,
        "names up to 191 bytes need no buffer; longer ones come from a cache that opted out of clearing, which `force` overrules"
    );
    out
}
