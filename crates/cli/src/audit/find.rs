//! The audit beside find(1), run as the identity that is asked about.

use std::collections::HashMap;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rcuwalk_audit::{Head, Right, RightSet};
use rcuwalk_host::Identity;

use super::{AuditArgs, load, walk};
use crate::output::{Done, Failure, complain, escaped, print};

/// How often both are run; the fastest counts.
const ROUNDS: usize = 3;

/// How many differences are named.
const NAMED: usize = 10;

/// What a program found out about an entry: `access` said yes to reading, writing, executing.
type Answers = HashMap<Vec<u8>, [bool; 3]>;

/// The comparison for one identity.
struct Compared {
    who: String,
    entries: usize,
    differing: Vec<String>,
    hidden: usize,
    find: Duration,
}

/// Compares what the audit says about reading, writing, and executing or searching with what find says, entry by entry, and times
/// both. The program exits with 1 if they differ.
pub(crate) fn compare(args: &AuditArgs, path: &Path, mut head: Head) -> Done {
    head.want = RightSet::of(&[Right::Read, Right::Write, Right::Exec, Right::Search]);
    let top = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let (mut import, mut ask) = (Duration::MAX, Duration::MAX);
    let mut found: Vec<(Duration, Answers)> =
        head.identities.iter().map(|_| (Duration::MAX, Answers::new())).collect();
    let mut audited: Vec<Answers> = Vec::new();
    let mut entries = 0;
    // Turn about, so that a slow moment of the machine meets both.
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let tree = load(args, path)?;
        import = import.min(started.elapsed());
        entries = tree.entries;
        let started = Instant::now();
        walk(&tree, &head, |_| Ok(()))?;
        ask = ask.min(started.elapsed());
        audited = head.identities.iter().map(|_| Answers::new()).collect();
        walk(&tree, &head, |row| {
            for (i, answers) in audited.iter_mut().enumerate() {
                let can = row.can(i);
                let exec = can.contains(Right::Exec) || can.contains(Right::Search);
                if !can.is_empty() {
                    let said = [can.contains(Right::Read), can.contains(Right::Write), exec];
                    answers.insert(row.path.clone(), said);
                }
            }
            Ok(())
        })?;
        for (who, (time, answers)) in head.identities.iter().zip(&mut found) {
            let started = Instant::now();
            let output = run_find(who, &top, args.one_file_system)?;
            *time = (*time).min(started.elapsed());
            *answers = read_find(&output);
        }
    }
    let compared: Vec<Compared> = head
        .identities
        .iter()
        .zip(found.iter().zip(&audited))
        .map(|(who, ((find, found), audited))| compare_one(&who.label, *find, found, audited))
        .collect();
    report(path, entries, import, ask, &compared)
}

/// Runs find with the identity. It says `v` of each entry that it sees, and of links nothing: they would be followed.
fn run_find(who: &Identity, top: &Path, one_file_system: bool) -> Result<Vec<u8>, Failure> {
    let is_caller = crate::source::caller()?.uid == who.uid && who.uid == 0;
    let mut command = if is_caller {
        Command::new("find")
    } else {
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={}", who.uid)).arg(format!("--regid={}", who.gid));
        let groups: Vec<_> = who.groups.iter().map(u32::to_string).collect();
        match groups.is_empty() {
            true => command.arg("--clear-groups"),
            false => command.arg(format!("--groups={}", groups.join(","))),
        };
        command.arg("find");
        command
    };
    command.arg(top).args(one_file_system.then_some("-xdev")).current_dir("/");
    command.args(["-type", "l", "-o", "-printf", "v%p\\0", ","]);
    for (test, letter) in [("-readable", "r"), ("-writable", "w"), ("-executable", "x")] {
        let says = format!("{letter}%p\\0");
        command.args(["!", "-type", "l", test, "-printf", &says, ","]);
    }
    let output = command.arg("-true").output().map_err(|e| {
        let text = rcuwalk_host::describe(&e);
        Failure::Error(format!("comparing: find: {text}; install findutils, and util-linux for setpriv"))
    })?;
    // It also fails for directories that it may not read, which is a part of the answer.
    let said = String::from_utf8_lossy(&output.stderr);
    match said.lines().find(|line| line.starts_with("setpriv:")) {
        Some(line) => Err(Failure::Error(format!("comparing: {}: {line}; run as root", who.label))),
        None => Ok(output.stdout),
    }
}

fn read_find(output: &[u8]) -> Answers {
    let mut answers = Answers::new();
    for line in output.split(|&b| b == 0) {
        let [letter, path @ ..] = line else { continue };
        let said = answers.entry(path.to_vec()).or_default();
        if let Some(at) = b"rwx".iter().position(|known| known == letter) {
            said[at] = true;
        }
    }
    answers
}

fn compare_one(who: &str, find: Duration, found: &Answers, audited: &Answers) -> Compared {
    let show = |[r, w, x]: [bool; 3]| {
        let letter = |yes, letter| if yes { letter } else { '-' };
        [letter(r, 'r'), letter(w, 'w'), letter(x, 'x')].iter().collect::<String>()
    };
    let mut differing = Vec::new();
    for (path, &said) in found {
        let audit = audited.get(path).copied().unwrap_or_default();
        if audit != said {
            differing.push(format!("{}: find {}, audit {}", escaped(path), show(said), show(audit)));
        }
    }
    let hidden = audited.keys().filter(|path| !found.contains_key(*path)).count();
    Compared { who: who.to_owned(), entries: found.len(), differing, hidden, find }
}

fn report(path: &Path, entries: u64, import: Duration, ask: Duration, compared: &[Compared]) -> Done {
    let mut out = Vec::new();
    let ms = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1000.0);
    let _ = writeln!(
        out,
        "| {} as | entries compared | differing | reachable, but not listed by find | find |",
        path.display()
    );
    let _ = writeln!(out, "|---|---:|---:|---:|---:|");
    for c in compared {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            c.who,
            c.entries,
            c.differing.len(),
            c.hidden,
            ms(c.find)
        );
    }
    let total: Duration = compared.iter().map(|c| c.find).sum();
    let rate = entries as f64 * compared.len() as f64 / ask.as_secs_f64() / 1e6;
    let _ = writeln!(
        out,
        "\n{entries} entries: find {} for all of them; audit {}: import {} ({:.0} entries/s), asking {} ({rate:.1} M answers/s)",
        ms(total),
        ms(import + ask),
        ms(import),
        entries as f64 / import.as_secs_f64(),
        ms(ask),
    );
    print(&out)?;
    let differing: Vec<&String> = compared.iter().flat_map(|c| &c.differing).collect();
    differing.iter().take(NAMED).for_each(complain);
    if differing.is_empty() { Ok(()) } else { Err(Failure::No) }
}

/// Whether find can be run as all of them.
pub(crate) fn can_compare(path: &Path, head: &Head, args: &AuditArgs) -> Done {
    let no = |why: &str| Err(Failure::Error(format!("--compare-find: {why}")));
    if args.chroot || !path.is_dir() || path.as_os_str().as_bytes().is_empty() {
        return no("find can only look at a directory of this machine");
    }
    if head.identities.iter().any(|who| {
        *who != Identity { label: who.label.clone(), ..Identity::new(who.uid, who.gid, &who.groups) }
    }) {
        return no("find cannot be run with other capabilities; leave out +CAP");
    }
    Ok(())
}
