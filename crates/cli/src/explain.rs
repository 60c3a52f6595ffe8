//! `rcuwalk explain`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use rcuwalk_explain::report::{Check, Component, Deciding, Facts, Id, Load, Verify, Via, Walk};
use rcuwalk_explain::{Answer, Error, Explainer, Options, Report, Subject, Verdict, What};

use crate::args::ExplainArgs;
use crate::output::{Done, Failure, Terminal, escaped, print, print_json};

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(format!("explaining: {error}"))
    }
}

pub(crate) fn run(args: &ExplainArgs) -> Done {
    let mut who = match (&args.who, args.pid) {
        (Some(text), _) => Subject::of_user(text)?,
        (None, Some(pid)) => Subject::of_process(pid)?,
        (None, None) => Subject::caller()?,
    };
    if let Some(caps) = &args.caps {
        who.change_caps(caps)?;
    }
    if let Some(path) = &args.library_path {
        who.library_path = path.as_bytes().to_vec();
    }
    let explainer = Explainer::new(args.pid)?;
    let options = Options { verify: args.verify, ..Options::default() };
    let none: &Path = Path::new("");
    let paths: Vec<&Path> =
        if args.paths.is_empty() { vec![none] } else { args.paths.iter().map(AsRef::as_ref).collect() };
    let mut reports = Vec::new();
    for path in paths {
        let path = path.as_os_str().as_bytes();
        reports.push(explainer.explain(&who, path, &asked(args, path)?, options)?);
    }
    if args.json {
        print_json(&reports)?;
    } else {
        let terminal = Terminal::stdout();
        let text: Vec<String> = reports.iter().map(|report| Page::of(report, terminal, args.long)).collect();
        print(text.join("\n").as_bytes())?;
    }
    let verdicts = || reports.iter().flat_map(|report| &report.answers).map(|answer| answer.verdict);
    if verdicts().any(|verdict| verdict == Verdict::Unknown) {
        return Err(Failure::Unknown);
    }
    if verdicts().any(|verdict| verdict == Verdict::Denied) { Err(Failure::No) } else { Ok(()) }
}

/// What is asked about a path.
fn asked(args: &ExplainArgs, path: &[u8]) -> Result<Vec<What>, Failure> {
    let plain = [
        (args.stat, What::Stat),
        (args.read, What::Read),
        (args.write, What::Write),
        (args.execute, What::Execute),
        (args.create, What::Create),
        (args.delete, What::Delete),
        (args.exec, What::Exec),
        (args.connect, What::Connect),
    ];
    let mut asked: Vec<What> = plain.into_iter().filter(|(on, _)| *on).map(|(_, what)| what).collect();
    asked.extend(args.rename_to.iter().map(|new| What::RenameTo(new.as_os_str().as_bytes().to_vec())));
    asked.extend(args.access.map(What::Access));
    asked.extend(args.setxattr.iter().map(|name| What::SetXattr(name.as_bytes().to_vec())));
    asked.extend(args.mknod.map(|(mode, dev)| What::Mknod(mode, dev)));
    for call in &args.call {
        asked.push(What::Call(call_of(call, path)?));
    }
    if asked.is_empty() {
        asked.push(What::Read);
    }
    Ok(asked)
}

fn call_of(text: &str, path: &[u8]) -> Result<rcuwalk_explain::Call, Failure> {
    Ok(rcuwalk_explain::Call::parse(text, path)?)
}

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default().bold();
const DOUBT: Style = AnsiColor::Yellow.on_default();
const DIM: Style = Style::new().dimmed();
const STRONG: Style = Style::new().bold();

/// A report as text.
struct Page {
    terminal: Terminal,
    /// Every walk, and what needs what.
    long: bool,
    text: String,
}

/// A row of the table of components: what stands in front, and in its columns.
struct Row {
    bad: bool,
    cells: [String; 4],
    says: String,
}

impl Page {
    fn of(report: &Report, terminal: Terminal, long: bool) -> String {
        let mut page = Page { terminal, long, text: String::new() };
        for (at, answer) in report.answers.iter().enumerate() {
            if at > 0 {
                page.text.push('\n');
            }
            page.answer(report, answer);
        }
        page.text
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if self.terminal.colour && !style.is_plain() {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }

    fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// A labelled paragraph, wrapped on a terminal.
    fn item(&mut self, label: &str, style: Style, text: &str) {
        let indent = 10;
        let width = usize::from(self.terminal.width.unwrap_or(u16::MAX)).max(40) - indent;
        for (at, line) in wrap(text, width).iter().enumerate() {
            let label = self.paint(style, &format!("{:<indent$}", if at == 0 { label } else { "" }));
            self.line(&format!("{label}{line}"));
        }
    }

    fn answer(&mut self, report: &Report, answer: &Answer) {
        let (style, verdict) = match answer.verdict {
            Verdict::Allowed => (GOOD, "allowed".to_owned()),
            Verdict::Denied => (BAD, format!("denied, {}", answer.errno.unwrap_or("no error"))),
            Verdict::Unknown => {
                let why = answer.deciding.as_ref().map_or("", |deciding| &deciding.text);
                (DOUBT, format!("unknown, {}", escaped(why.as_bytes())))
            }
        };
        let who = &report.identity;
        let path = escaped(if report.path.0.is_empty() { answer.call.as_bytes() } else { &report.path.0 });
        let ids = ids(&who.user, &who.group, &who.groups);
        let who = if who.label.contains("process") { format!("{}, {ids}", who.label) } else { ids };
        let head = format!("{} {}: {}", answer.what, self.paint(STRONG, &path), self.paint(style, &verdict));
        self.line(&head);
        self.line(&self.paint(DIM, &format!("as {who}; {}", escaped(answer.call.as_bytes()))));
        self.line("");
        // What a program loads has one line each, and its walk only if it is refused.
        let folded = |at: &usize| {
            let load = answer.loads.iter().find(|load| load.walk == Some(*at));
            !self.long && load.is_some_and(|load| load.verdict == Verdict::Allowed)
        };
        let shown: Vec<usize> = (0..answer.walks.len()).filter(|at| !folded(at)).collect();
        for at in shown {
            self.walk(&answer.walks[at], answer.deciding.as_ref());
        }
        self.loads(&answer.loads);
        self.rest(answer);
    }

    /// What a program needs to start, a line each.
    fn loads(&mut self, loads: &[Load]) {
        if loads.is_empty() {
            return;
        }
        let rows = loads.iter().map(|load| {
            let name = escaped(&load.name.0);
            let name = match &load.path {
                Some(path) if load.name.0.is_empty() => escaped(&path.0),
                Some(path) if path != &load.name => format!("{name} => {}", escaped(&path.0)),
                _ => name,
            };
            let verdict = match load.verdict {
                Verdict::Allowed => "allowed".to_owned(),
                Verdict::Denied => format!("denied, {}", load.errno.unwrap_or("no error")),
                Verdict::Unknown => "unknown".to_owned(),
            };
            let because = load
                .because
                .as_ref()
                .map_or_else(String::new, |text| format!(": {}", escaped(text.as_bytes())));
            let by = format!("; {} needs it", escaped(&load.by.0));
            let by = if load.verdict == Verdict::Allowed && !self.long { "" } else { &by };
            let cells = [load.role.to_owned(), name, String::new(), String::new()];
            Row { bad: load.verdict != Verdict::Allowed, cells, says: format!("{verdict}{because}{by}") }
        });
        let rows: Vec<Row> = rows.collect();
        self.table(&rows);
    }

    fn rest(&mut self, answer: &Answer) {
        if let Some(deciding) = &answer.deciding {
            let text = format!("{}: {} [{}]", escaped(&deciding.path.0), deciding.text, deciding.rule);
            self.item("because", STRONG, &text);
        }
        for note in &answer.notes {
            self.item("note", DIM, note);
        }
        for (at, fix) in answer.fixes.iter().enumerate() {
            let label = if at == 0 { "fix" } else { "or" };
            // In one line, however long: it is to be copied.
            let label = self.paint(GOOD, &format!("{label:<10}"));
            self.line(&format!("{label}{}", escaped(fix.commands.join(" && ").as_bytes())));
            self.item("", DIM, &fix.opens);
        }
        for unseen in &answer.unseen {
            self.item("unseen", DOUBT, unseen);
        }
        if let Some(verify) = &answer.verify {
            self.verified(verify);
        }
    }

    fn verified(&mut self, verify: &Verify) {
        let style = match verify.outcome {
            "agrees" | "stand-in" => GOOD,
            "disagrees" => BAD,
            _ => DOUBT,
        };
        let calls: Vec<String> = verify.calls.iter().map(|it| format!("{} = {}", it.call, it.got)).collect();
        let mut text = match verify.outcome {
            "agrees" => format!("the host agrees: {}", calls.join("; ")),
            "stand-in" => format!("the host agrees about a stand-in: {}", calls.join("; ")),
            "disagrees" => format!("the host disagrees: {}", calls.join("; ")),
            _ => "not verified".to_owned(),
        };
        if let Some(why) = &verify.text {
            let _ = write!(text, "; {why}");
        }
        self.item("verify", style, &escaped(text.as_bytes()));
    }

    fn walk(&mut self, walk: &Walk, deciding: Option<&Deciding>) {
        self.table(&folded(&walk.components, deciding));
    }

    fn table(&mut self, rows: &[Row]) {
        let widths: [usize; 4] = std::array::from_fn(|column| {
            rows.iter().map(|row| row.cells[column].chars().count()).max().unwrap_or(0)
        });
        let used = widths.iter().filter(|width| **width > 0);
        let indent = 2 + used.map(|width| width + 2).sum::<usize>();
        let room =
            self.terminal.width.map_or(usize::MAX, |width| usize::from(width).saturating_sub(indent).max(24));
        for row in rows {
            let mark = if row.bad { self.paint(BAD, "> ") } else { "  ".to_owned() };
            let mut line = mark;
            for (cell, width) in row.cells.iter().zip(widths).filter(|(_, width)| *width > 0) {
                let _ = write!(line, "{cell:<width$}  ");
            }
            for (at, says) in wrap(&row.says, room).iter().enumerate() {
                let says = if row.bad { self.paint(BAD, says) } else { says.clone() };
                if at == 0 {
                    self.line(format!("{line}{says}").trim_end());
                } else {
                    self.line(&format!("{:indent$}{says}", ""));
                }
            }
        }
        self.line("");
    }
}

/// `alice (1000), group staff (50), also in audio (29)`.
fn ids(user: &Id, group: &Id, groups: &[Id]) -> String {
    let one = |id: &Id| match &id.name {
        Some(name) => format!("{name} ({})", id.id),
        None => id.id.to_string(),
    };
    let mut text = format!("uid {}, gid {}", one(user), one(group));
    let also: Vec<String> = groups.iter().filter(|it| it.id != group.id).map(one).collect();
    if !also.is_empty() {
        let _ = write!(text, ", groups {}", also.join(", "));
    }
    text
}

/// Steps of a walk that are all shown; a longer one goes round links, and what comes again and again is counted.
const MOST_STEPS: usize = 40;

/// The table of a walk.
fn folded<'a>(components: &'a [Component], deciding: Option<&Deciding>) -> Vec<Row> {
    let Some((last, before)) = components.split_last().filter(|_| components.len() > MOST_STEPS) else {
        return components.iter().flat_map(|component| rows(component, deciding)).collect();
    };
    let mut seen: HashMap<&'a [u8], usize> = HashMap::new();
    let mut comes_again = |component: &&'a Component| {
        let times = seen.entry(component.path.0.as_slice()).or_default();
        *times += 1;
        *times > 2
    };
    let (again, once): (Vec<_>, Vec<_>) = before.iter().partition(|component| comes_again(component));
    let mut all: Vec<Row> = once.into_iter().flat_map(|component| rows(component, deciding)).collect();
    if !again.is_empty() {
        let says = format!("... {} more steps to the same places", again.len());
        all.push(Row { bad: false, cells: Default::default(), says });
    }
    all.extend(rows(last, deciding));
    all
}

/// A component in the table: itself, and a row for each further question.
fn rows(component: &Component, deciding: Option<&Deciding>) -> Vec<Row> {
    let path = escaped(&component.path.0);
    let name = |id: &Id| id.name.clone().unwrap_or_else(|| id.id.to_string());
    let cells = match &component.facts {
        Some(facts) => {
            let acl = if facts.acl.is_empty() { "" } else { "+" };
            [path, format!("{}{acl}", facts.permissions), name(&facts.owner), name(&facts.group)]
        }
        None => [path, "-".to_owned(), String::new(), String::new()],
    };
    let decides = |check: &Check| !check.passed && deciding.is_some();
    let here = deciding.is_some_and(|it| it.path == component.path);
    let mut says: Vec<(bool, String)> =
        component.checks.iter().map(|check| (here && decides(check), check_text(check))).collect();
    let missing = matches!(component.via, Via::Missing | Via::Unseen);
    if missing {
        let text = if component.via == Via::Missing { "is not there" } else { "could not be seen" };
        says.push((here, text.to_owned()));
    }
    if let Some(link) = &component.link {
        says.insert(0, (false, format!("link to {}", escaped(&link.0))));
    }
    if let Some(facts) = &component.facts {
        let extra = extra_text(component, facts);
        match says.last_mut() {
            _ if extra.is_empty() => {}
            Some((_, last)) => {
                let _ = write!(last, "; {extra}");
            }
            None => says.push((here, extra)),
        }
    }
    if says.is_empty() {
        says.push((here, String::new()));
    }
    let mut rows = Vec::new();
    for (at, (bad, says)) in says.into_iter().enumerate() {
        let cells = if at == 0 { cells.clone() } else { Default::default() };
        rows.push(Row { bad, cells, says });
    }
    rows
}

/// `search: everybody has r-x`.
fn check_text(check: &Check) -> String {
    let mut text = if check.passed { check.asks.clone() } else { format!("{} refused", check.asks) };
    if let Some(because) = &check.because {
        let _ = write!(text, ": {because}");
    } else if let Some(rule) = check.refused {
        let _ = write!(text, ": {rule}");
    }
    if let Some(cap) = &check.overridden_by {
        let _ = write!(text, "; overridden by {cap}");
    }
    if !check.passed && !check.would_override.is_empty() {
        let _ = write!(text, "; {} would override", check.would_override.join(" or "));
    }
    if !check.unmapped.is_empty() {
        let _ = write!(text, "; without effect here: {}", check.unmapped.join(", "));
    }
    text
}

/// The ACL, flags, the mount that begins here, and ids in a user namespace.
fn extra_text(component: &Component, facts: &Facts) -> String {
    let mut parts = Vec::new();
    if !facts.acl.is_empty() {
        parts.push(format!("acl {}", facts.acl.join(",")));
    }
    parts.extend(facts.flags.iter().map(|flag| (*flag).to_owned()));
    if let Some(mount) = &component.mount {
        let options =
            if mount.options.is_empty() { String::new() } else { format!(" {}", mount.options.join(",")) };
        let sb = if mount.superblock_read_only { ", superblock read-only" } else { "" };
        parts.push(format!("mount {}{options}{sb}", mount.fstype));
    }
    if let Some((uid, gid)) = facts.shown_as {
        parts.push(format!("{uid}:{gid} in the user namespace"));
    }
    parts.join("; ")
}

/// Breaks text at blanks, so that no line is longer than `width` unless a word is.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().filter(|line| line.is_empty() || line.len() + 1 + word.len() <= width);
        match line {
            Some(line) => {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_at_blanks() {
        assert_eq!(wrap("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrap("abcdefgh i", 3), ["abcdefgh", "i"]);
        assert_eq!(wrap("", 10), [""]);
    }
}
