//! One condition taken out of the engine's rules at a time: a row, a test or a random call must notice.
//!
//! A copy of the workspace is built once, with a switch at each condition; a variable of the environment names the one that is
//! off. First, all rows, tests and random calls run with nothing off, and log for which conditions being off would make a difference.
//! Then each condition is off for those programs alone that logged it, the quickest first. `judge` tells the whole of it.

use crate::lanes;
use crate::process::{self, Outcome, cargo, root, target_dir};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, geteuid};
use serde::Deserialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Where the rules are, below `crates/vfs/src`. The whole-path table has none: whether what it remembers still holds is for the
/// steps in [`PROTOCOL`] to say, and its other conditions only choose what to remember, and where.
const RULES: &[&str] = &[
    "perm",
    "namei",
    "mount",
    "cred",
    "kernel/mount_tree.rs",
    "kernel/vfsmount.rs",
    "calls/open.rs",
    "calls/dirops.rs",
    "calls/namespace.rs",
    "calls/attr.rs",
];

/// A condition with one of these is a step of the lockless walk or of the whole-path table, which only a race can tell from none:
/// `cargo x mutants` takes out those that are a `step!`. Whether a race would notice the others (in scoped walks, where the current
/// directory changes, in `..` out of a bind mount) is not found out here.
const PROTOCOL: &[&str] = &["step!(", "RCU", "legitimize(", "revalidate(", ".retry(", "seq.begin("];

/// Conditions that change no answer, each with its reason; a list of `[[condition]]`.
const EQUIVALENT: &str = "crates/vfs/tests/equivalent.toml";

/// Where the copy is, with its own `cases`.
const COPY: &str = "rules/src";

/// What names the place that is off, to the programs of the copy.
const OFF: &str = "RCUWALK_RULE_OFF";

/// What names the file to which the programs of the copy append the places that decide something.
const LOG: &str = "RCUWALK_RULE_LOG";

/// The switches' function, in the copy's `lib.rs`: whether the condition at a place holds, which `found` says, or `without` where
/// the place is off. Each process logs a place once.
const SWITCH: &str = r#"
pub(crate) fn rule(n: usize, found: bool, without: bool) -> bool {
    use std::{env::var, io::Write, sync::{LazyLock, atomic::{AtomicBool, Ordering}}};
    static OFF: LazyLock<Option<usize>> = LazyLock::new(|| var("RCUWALK_RULE_OFF").ok()?.parse().ok());
    static LOG: LazyLock<Option<String>> = LazyLock::new(|| var("RCUWALK_RULE_LOG").ok());
    static LOGGED: [AtomicBool; 10_000] = [const { AtomicBool::new(false) }; 10_000];
    if *OFF == Some(n) {
        return without;
    }
    if found != without && let Some(log) = &*LOG && !LOGGED[n].swap(true, Ordering::Relaxed) {
        let mut log = std::fs::OpenOptions::new().create(true).append(true).open(log).expect("the log");
        log.write_all(format!("{n}\n").as_bytes()).expect("the log");
    }
    found
}
"#;

/// Random calls that are compared, twice, with each place that rows and tests have not noticed.
pub(crate) const CALLS: u64 = 20_000;

/// So many of a hundred must be noticed.
const WANTED: f64 = 98.0;

/// What becomes of a place that is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Change {
    /// A side of `&&` is true.
    Holds,
    /// A side of `||`, a guard or the condition of an `if` is false.
    Fails,
    /// The error of `…?;` is dropped.
    Ignored,
    /// `<` is `<=`, `>` is `>=`, and the other way round.
    Moved,
}

#[derive(Debug)]
struct Site {
    /// Below `crates/vfs/src`.
    file: String,
    function: String,
    line: usize,
    /// In bytes of the file.
    range: Range<usize>,
    change: Change,
    text: String,
}

impl Site {
    fn describe(&self) -> String {
        let what = match self.change {
            Change::Holds => "holds",
            Change::Fails => "fails",
            Change::Ignored => "is ignored",
            Change::Moved => "is off by one",
        };
        format!("{}:{} {}: `{}` {what}", self.file, self.line, self.function, one_line(&self.text))
    }

    /// The place with its switch, in as many lines. `inner` is its text with the switches of the places in it; that of a statement
    /// has lost its `?` and its semicolon.
    fn switched(&self, number: usize, inner: &str) -> String {
        let (rule, text) = (format!("crate::rule({number}, "), one_line(&self.text));
        match self.change {
            Change::Holds => format!("{rule}{inner}, true)"),
            Change::Fails => format!("{rule}{inner}, false)"),
            Change::Ignored => {
                format!("{{ let tried = {inner}; if {rule}tried.is_err(), false) {{ tried?; }} }}")
            }
            Change::Moved => {
                let (from, to) = comparison(&text);
                format!("{rule}{inner}, {})", text.replacen(from, to, 1))
            }
        }
    }
}

fn one_line(text: &str) -> String {
    let code = |line: &'_ str| line.split("//").next().unwrap_or_default().trim().to_owned();
    text.lines().map(code).collect::<Vec<_>>().join(" ")
}

/// The comparison in the text, and the one off by one.
fn comparison(text: &str) -> (&'static str, &'static str) {
    let pairs = [(" <= ", " < "), (" >= ", " > "), (" < ", " <= "), (" > ", " >= ")];
    pairs.into_iter().find(|(from, _)| text.contains(from)).unwrap_or((" < ", " <= "))
}

/// Finds the places of a file.
struct Sites<'a> {
    file: &'a str,
    text: &'a str,
    function: String,
    found: Vec<Site>,
}

impl Sites<'_> {
    fn add(&mut self, place: &impl Spanned, change: Change) {
        let range = place.span().byte_range();
        let text = self.text[range.clone()].to_owned();
        if !PROTOCOL.iter().any(|step| text.contains(step)) {
            let (file, line) = (self.file.to_owned(), place.span().start().line);
            self.found.push(Site { file, function: self.function.clone(), line, range, change, text });
        }
    }

    fn sides(&mut self, binary: &syn::ExprBinary, change: Change) {
        for side in [&*binary.left, &*binary.right] {
            // Sides of sides are places of their own; what binds a name must stay.
            let inner = matches!(side, syn::Expr::Binary(syn::ExprBinary { op, .. }) if is_logical(op));
            if !inner && !binds(side) {
                self.add(side, change);
            }
        }
    }

    fn within(&mut self, signature: &syn::Signature, visit: impl FnOnce(&mut Self)) {
        // A switch is not constant.
        if signature.constness.is_none() {
            self.function = signature.ident.to_string();
            visit(self);
        }
    }
}

fn is_logical(op: &syn::BinOp) -> bool {
    matches!(op, syn::BinOp::And(_) | syn::BinOp::Or(_))
}

/// Whether an expression binds a name for what follows.
fn binds(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => binds(&binary.left) || binds(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Sites<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.within(&item.sig, |sites| visit::visit_item_fn(sites, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.within(&item.sig, |sites| visit::visit_impl_item_fn(sites, item));
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}

    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.ident != "tests" {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        match binary.op {
            syn::BinOp::And(_) => self.sides(binary, Change::Holds),
            syn::BinOp::Or(_) => self.sides(binary, Change::Fails),
            syn::BinOp::Lt(_) | syn::BinOp::Le(_) | syn::BinOp::Gt(_) | syn::BinOp::Ge(_) => {
                let text = &self.text[binary.span().byte_range()];
                if text.matches(comparison(text).0).count() == 1 {
                    self.add(binary, Change::Moved);
                }
            }
            _ => {}
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_if(&mut self, branch: &'ast syn::ExprIf) {
        if !binds(&branch.cond) {
            self.add(&branch.cond, Change::Fails);
        }
        visit::visit_expr_if(self, branch);
    }

    fn visit_pat_guard(&mut self, guarded: &'ast syn::PatGuard) {
        if !binds(&guarded.guard) {
            self.add(&guarded.guard, Change::Fails);
        }
        visit::visit_pat_guard(self, guarded);
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        if let syn::Stmt::Expr(syn::Expr::Try(tried), Some(_)) = statement
            && matches!(*tried.expr, syn::Expr::Call(_) | syn::Expr::MethodCall(_))
        {
            self.add(tried, Change::Ignored);
        }
        visit::visit_stmt(self, statement);
    }
}

/// For an error about a file.
fn at<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> String {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}")
}

/// Every place in the rules.
fn sites() -> Result<Vec<Site>, String> {
    let source = root().join("crates/vfs/src");
    let mut files = Vec::new();
    for rule in RULES.iter().map(|rule| source.join(rule)) {
        below(&rule, &mut files).map_err(at(&rule))?;
    }
    let mut found = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).map_err(at(&path))?;
        let syntax = syn::parse_file(&text).map_err(at(&path))?;
        let file = path.strip_prefix(&source).unwrap_or(&path).display().to_string();
        let mut sites = Sites { file: &file, text: &text, function: String::new(), found: Vec::new() };
        sites.visit_file(&syntax);
        found.extend(sites.found);
    }
    Ok(found)
}

/// The files at and below a path, by name.
fn below(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !path.is_dir() {
        files.push(path.into());
        return Ok(());
    }
    let mut entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    entries.into_iter().try_for_each(|entry| below(&entry, files))
}

/// Copies the files of the workspace to `copy`, with switches.
fn copy(sites: &BTreeMap<usize, Site>, copy: &Path) -> Result<(), String> {
    let mut list = Command::new("git");
    let files =
        process::output(list.current_dir(root()).args(["ls-files", "-z", "-co", "--exclude-standard"]))?;
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let to = copy.join(file);
        // A file that was removed is listed until that is committed.
        let Ok(mut bytes) = fs::read(root().join(file)) else { continue };
        if let Some(file) = file.strip_prefix("crates/vfs/src/") {
            let text = String::from_utf8(bytes).map_err(|error| format!("{file}: {error}"))?;
            bytes = with_switches(sites, file, text).into_bytes();
        }
        if !fs::read(&to).is_ok_and(|there| there == bytes) {
            to.parent().map_or(Ok(()), fs::create_dir_all).map_err(at(&to))?;
            fs::write(&to, bytes).map_err(at(&to))?;
        }
    }
    Ok(())
}

fn with_switches(sites: &BTreeMap<usize, Site>, file: &str, text: String) -> String {
    let mut here: Vec<_> =
        sites.iter().filter(|(_, site)| site.file == file).map(|(n, site)| (*n, site)).collect();
    here.sort_by_key(|(_, site)| (site.range.start, Reverse(site.range.end)));
    let mut text = switched(&text, 0..text.len(), &here);
    if file == "lib.rs" {
        let forbids = "#![forbid(unsafe_code)]";
        text = text.replacen(forbids, &format!("{forbids} #![allow(warnings)]"), 1) + SWITCH;
    }
    text
}

/// A part of a file with the switches of the places in it, which come in order, a place before those that lie in it.
fn switched(text: &str, part: Range<usize>, mut places: &[(usize, &Site)]) -> String {
    let (mut done, mut at) = (String::new(), part.start);
    while let Some(((number, site), rest)) = places.split_first() {
        let (start, end) = (site.range.start, site.range.end);
        let statement = usize::from(site.change == Change::Ignored);
        let (inner, after) = rest.split_at(rest.partition_point(|(_, other)| other.range.start < end));
        done += &text[at..start];
        done += &site.switched(*number, &switched(text, start..end - statement, inner));
        (at, places) = (end + statement, after);
    }
    done + &text[at..part.end]
}

/// A program of the copy that may notice that a place is off.
struct Judge {
    name: String,
    program: PathBuf,
    args: Vec<String>,
    /// How long it takes with every condition in place.
    takes: Duration,
    /// The places where it would make a difference if they were off.
    decides: BTreeSet<usize>,
}

impl Judge {
    /// Runs it with every condition in place, and learns what it takes and which places decide something.
    fn learn(&mut self, log: &Path) -> Result<(), String> {
        let begun = Instant::now();
        if !self.succeeds((LOG, log.as_os_str()), Duration::MAX) {
            return Err(format!("{}: fails with every condition in place", self.name));
        }
        self.takes = begun.elapsed();
        let Ok(numbers) = fs::read_to_string(log) else { return Ok(()) };
        self.decides = numbers.lines().filter_map(|number| number.parse().ok()).collect();
        fs::remove_file(log).map_err(at(log))
    }

    /// Whether it fails, or goes round in circles, with this place off.
    fn notices(&self, number: usize) -> bool {
        let patience = 10 * self.takes + Duration::from_secs(10);
        self.decides.contains(&number) && !self.succeeds((OFF, number.to_string().as_ref()), patience)
    }

    fn succeeds(&self, (variable, value): (&str, &OsStr), patience: Duration) -> bool {
        let mut command = Command::new(&self.program);
        command.args(&self.args).current_dir(target_dir(COPY)).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut child) = command.env(variable, value).spawn() else { return false };
        let begun = Instant::now();
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) if begun.elapsed() < patience => std::thread::sleep(Duration::from_millis(2)),
                _ => break,
            }
        }
        // Rows have process groups of their own. What has stopped starts no more of them, and has not lost its children.
        let group = Pid::from_raw(child.id() as i32);
        let _ = killpg(group, Signal::SIGSTOP);
        for process in lanes::descendants(group.as_raw()) {
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
        let _ = killpg(group, Signal::SIGKILL);
        let _ = child.wait();
        false
    }
}

/// Builds the copy. A place where a switch does not compile is left out.
fn build(sites: &mut BTreeMap<usize, Site>, calls: u64) -> Result<Vec<Judge>, String> {
    let (dir, target) = (target_dir(COPY), target_dir("rules/target"));
    let cargo = |args: &str| {
        let mut command = cargo(args);
        // Nobody looks into these programs: without what debuggers want they are built sooner, and smaller.
        command.current_dir(&dir).env("CARGO_TARGET_DIR", &target).env("CARGO_PROFILE_DEV_DEBUG", "0");
        command
    };
    println!("building a copy with {} switches in {}", sites.len(), dir.display());
    loop {
        copy(sites, &dir)?;
        let check = cargo("check --quiet --package rcuwalk --message-format short").output();
        let check = check.map_err(|error| format!("cargo: {error}"))?;
        if check.status.success() {
            break;
        }
        let errors = String::from_utf8_lossy(&check.stderr).into_owned();
        let wrong: BTreeSet<(String, usize)> = errors.lines().filter_map(place).collect();
        let before = sites.len();
        sites.retain(|_, site| {
            let lines = site.line..=site.line + site.text.matches('\n').count();
            !lines.into_iter().any(|line| wrong.contains(&(site.file.clone(), line)))
        });
        if sites.len() == before {
            return Err(format!("the copy does not compile:\n{errors}"));
        }
    }
    process::run(&mut cargo("build --quiet --package rcuwalk-oracle --features rcuwalk/__variants"))?;
    let tests = process::output(&mut cargo(
        "test --quiet --package rcuwalk --features __variants --lib --tests --no-run --message-format json",
    ))?;
    judges(&target.join("debug/rcuwalk-oracle"), &tests, calls)
}

/// `crates/vfs/src/FILE:LINE:…: error…`
fn place(line: &str) -> Option<(String, usize)> {
    let mut parts = line.strip_prefix("crates/vfs/src/")?.splitn(3, ':');
    let (file, line) = (parts.next()?, parts.next()?.parse().ok()?);
    parts.next()?.contains("error").then(|| (file.to_owned(), line))
}

/// What may notice, the quickest first. `tests` is what cargo says of the tests that it has built.
fn judges(oracle: &Path, tests: &str, calls: u64) -> Result<Vec<Judge>, String> {
    let judge = |name: String, program: &Path, args: &str| Judge {
        name,
        program: program.into(),
        args: args.split_whitespace().map(str::to_owned).collect(),
        takes: Duration::ZERO,
        decides: BTreeSet::new(),
    };
    let mut topics = Vec::new();
    let cases = root().join("cases");
    below(&cases, &mut topics).map_err(at(&cases))?;
    topics.retain(|topic| topic.extension().is_some_and(|extension| extension == "toml"));
    let rows = |backend: &str, topic: &Path| {
        let args = format!("rows --jobs 1 --patience 10 --backend {backend} --topic");
        let topic = topic.file_stem().unwrap_or_default().to_string_lossy();
        judge(format!("rows on {backend}"), oracle, &format!("{args} {topic}"))
    };
    let mut judges: Vec<Judge> = Vec::new();
    for backend in ["engine", "engine-ref", "syscall"] {
        judges.extend(topics.iter().map(|topic| rows(backend, topic)));
    }
    let executable =
        |line: &str| line.split_once(r#""executable":""#)?.1.split_once('"').map(|(path, _)| path.to_owned());
    judges.extend(tests.lines().filter_map(executable).map(|path| {
        let name = path.rsplit('/').next().unwrap_or(&path);
        judge(format!("test {}", name.rsplit_once('-').map_or(name, |(name, _)| name)), Path::new(&path), "")
    }));
    if geteuid().is_root() {
        judges.extend(
            [1, 2].map(|seed| {
                judge("random calls".into(), oracle, &format!("fuzz --ops {calls} --seed {seed}"))
            }),
        );
    }
    println!("{} programs run with every condition in place", judges.len());
    let log = target_dir("rules/log");
    judges.iter_mut().try_for_each(|judge| judge.learn(&log))?;
    judges.sort_by_key(|judge| judge.takes);
    Ok(judges)
}

/// A condition whose absence changes no answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Condition {
    /// Below `crates/vfs/src`.
    file: String,
    function: String,
    text: String,
    change: Change,
    reason: String,
}

impl Condition {
    fn is(&self, site: &Site) -> bool {
        (&self.file, &self.function, &self.text, self.change)
            == (&site.file, &site.function, &one_line(&site.text), site.change)
    }
}

#[derive(Debug, Default, Deserialize)]
struct Equivalent {
    #[serde(default)]
    condition: Vec<Condition>,
}

/// Takes all conditions out, one at a time; or those in files whose name contains `within`.
pub(crate) fn run(within: &str, calls: u64) -> Outcome {
    judge(within, calls).into()
}

fn judge(within: &str, calls: u64) -> Result<(), String> {
    lanes::end_all_on_interrupt()?;
    let path = root().join(EQUIVALENT);
    let equivalent: Equivalent =
        toml::from_str(&fs::read_to_string(&path).map_err(at(&path))?).map_err(at(&path))?;
    let all = sites()?;
    println!("{} conditions in {}", all.len(), RULES.join(", "));
    if let Some(gone) = equivalent.condition.iter().find(|known| !all.iter().any(|site| known.is(site))) {
        return Err(format!("{EQUIVALENT}: {} {}: `{}` is not there", gone.file, gone.function, gone.text));
    }
    let mut judged: BTreeMap<usize, Site> = (1..).zip(all).collect();
    judged.retain(|_, site| site.file.contains(within));
    let drawn = judged.len();
    judged.retain(|_, site| {
        let known = equivalent.condition.iter().find(|known| known.is(site));
        known.inspect(|known| println!("{}: {}", site.describe(), known.reason)).is_none()
    });
    let equal = drawn - judged.len();
    let judges = build(&mut judged, calls)?;
    let unbuilt = drawn - equal - judged.len();
    let judged: Vec<(usize, Site)> = judged.into_iter().collect();
    let by = lanes::parallel(lanes::processors(), &judged, |(number, site)| {
        let by = judges.iter().find(|judge| judge.notices(*number)).map(|judge| judge.name.as_str());
        if by.is_none() {
            let decides = judges.iter().any(|judge| judge.decides.contains(number));
            let why = if decides { "nothing noticed" } else { "decides nothing" };
            println!("{OFF}={number} {}: {why}", site.describe());
        }
        by
    });
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    by.iter().for_each(|by| *counts.entry(by.unwrap_or("nothing")).or_default() += 1);
    counts.iter().for_each(|(by, count)| println!("{count:5} noticed by {by}"));
    let missed = counts.get("nothing").copied().unwrap_or(0);
    let share = 100.0 * (judged.len() - missed) as f64 / judged.len().max(1) as f64;
    println!(
        "{} of {} noticed: {share:.1} %; {equal} more change no answer; {unbuilt} more cannot be switched",
        judged.len() - missed,
        judged.len(),
    );
    if share < WANTED { Err(format!("{missed} conditions can go and nothing fails")) } else { Ok(()) }
}
