//! `cargo x tidy`: format, lints, documentation, and the rules that a program can check.

mod layers;
mod source;
mod surface;

use crate::orderings::{CHECKS, ORDERINGS, STEPS};
use crate::process::{self, Outcome, cargo, root, works};
use source::{code_of, words};
use std::collections::BTreeSet;
use std::process::Command;

/// A Rust file has fewer lines.
fn max_lines(path: &str) -> usize {
    match path.strip_prefix("crates/vfs/src/") {
        Some(file) if file.starts_with("namei/") => 700,
        Some(_) => 1_000,
        None => 1_500,
    }
}

/// Where `unsafe` may stand: the primitives, the functions that C calls, and one small module for each crate that needs a
/// raw system call.
fn may_be_unsafe(path: &str) -> bool {
    path.starts_with("crates/sync/src/")
        || path.starts_with("crates/capi/src/door/")
        || (path.starts_with("crates/") && path.ends_with("/src/sys.rs"))
}

/// Which memory orderings a file may name. The engine names none; the importer counts with relaxed ones; programs and
/// tests around the core are free.
fn may_order(path: &str, ordering: &str) -> bool {
    if path.starts_with("crates/vfs/src/") {
        return false;
    }
    !path.starts_with("crates/host/src/") || ordering == "Relaxed"
}

const ATOMIC_ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

/// The beginnings of paths that one machine has and another has not.
const MACHINE_PATHS: [&str; 6] = ["/work/", "/workspace/", "/builds/", "/Users/", "/root/.", "/tmp/target"];

/// Marks of unfinished work.
const MARKS: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];

/// A file of the repository.
struct File {
    path: String,
    text: String,
}

pub(crate) fn run() -> Outcome {
    let clippy = |targets: &str| cargo(&format!("clippy --quiet {targets} -- --deny warnings"));
    // The tests that only exist for a model checker.
    let checked = |checker: &str, package: &str, test: &str| {
        let mut clippy = clippy(&format!("--package {package} --test {test}"));
        process::rustflags(&mut clippy, &format!("--cfg {checker}"));
        clippy.env("CARGO_TARGET_DIR", process::target_dir(checker));
        clippy
    };
    // The library and the program have one name, and would write into one directory.
    let mut doc = cargo(
        "doc --quiet --workspace --no-deps --document-private-items --lib --features rcuwalk-cli/parquet",
    );
    doc.env("RUSTDOCFLAGS", "--deny warnings");
    let tools = [
        cargo("fmt --all --check"),
        clippy("--workspace --all-targets --features rcuwalk-cli/parquet"),
        // The command as a plain build makes it, without Parquet.
        clippy("--package rcuwalk-cli"),
        // The runner of rows alone, for others' file systems.
        clippy("--package rcuwalk-oracle --no-default-features"),
        // The engine that users get: in the workspace as a whole, the laboratory has its old ways built in.
        clippy("--package rcuwalk --all-targets"),
        checked("loom", "rcuwalk-sync", "models"),
        checked("shuttle", "rcuwalk-sync", "stress"),
        checked("shuttle", "rcuwalk", "schedules"),
        doc,
    ];
    let mut wrong: Vec<String> =
        tools.into_iter().filter_map(|mut tool| process::run(&mut tool).err()).collect();
    if works(&mut cargo("deny --version")) {
        wrong.extend(process::run(&mut cargo("deny --log-level error check")).err());
    } else {
        println!("cargo-deny is not installed: only the licences are checked");
    }
    match files() {
        Ok(files) => check(&files, &mut wrong),
        Err(error) => wrong.push(error),
    }
    wrong.extend(licences().err());
    wrong.extend(old_ways().err());
    for line in &wrong {
        println!("{line}");
    }
    if wrong.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed(format!("{} rules are broken", wrong.len()))
    }
}

/// Packages for users have none of the old ways that the laboratory times remedies against.
fn old_ways() -> Result<(), String> {
    for package in ["rcuwalk", "rcuwalk-cli", "rcuwalk-capi", "rcuwalk-python"] {
        let mut tree = cargo(&format!("tree --package {package} --edges normal,build --format {{p}}{{f}}"));
        if process::output(&mut tree)?.contains("__variants") {
            return Err(format!(
                "{package} is built with `__variants` of rcuwalk, which is for crates/lab alone"
            ));
        }
    }
    Ok(())
}

/// Every text file that belongs to the repository, or would if it were added.
fn files() -> Result<Vec<File>, String> {
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root());
    let list = process::output(&mut list)?;
    let read = |path: &str| {
        let text = std::fs::read_to_string(root().join(path)).ok()?;
        Some(File { path: path.to_owned(), text })
    };
    Ok(list.lines().filter_map(read).collect())
}

fn check(files: &[File], wrong: &mut Vec<String>) {
    for file in files {
        let path = &file.path;
        if path.starts_with("LICENSE") || path == "Cargo.lock" {
            continue;
        }
        check_text(file, wrong);
        if path.ends_with(".rs") {
            check_rust(file, wrong);
            surface::check(file, wrong);
        } else if path.ends_with(".md") {
            check_links(file, wrong);
        } else if path.starts_with("crates/") && path.ends_with("Cargo.toml") {
            check_manifest(file, wrong);
        }
    }
    layers::check(files, wrong);
    check_roots(files, wrong);
    check_packages(files, wrong);
    check_orderings(files, wrong);
}

fn check_text(file: &File, wrong: &mut Vec<String>) {
    let File { path, text } = file;
    let mut say = |line: usize, what: &str| wrong.push(format!("{path}:{line}: {what}"));
    for (i, line) in text.lines().enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            say(i + 1, "white space at the end of the line");
        }
        if MARKS.iter().any(|mark| words(line).any(|word| word == *mark)) && path != "xtask/src/tidy.rs" {
            say(i + 1, "a mark of unfinished work");
        }
        if let Some(found) = MACHINE_PATHS.iter().find(|prefix| has_path(line, prefix)) {
            say(i + 1, &format!("{found}… is a path of one machine"));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        say(text.lines().count(), "no newline at the end of the file");
    }
}

/// Whether `line` names something that begins with `prefix`, as an absolute path.
fn has_path(line: &str, prefix: &str) -> bool {
    let absolute = |c: Option<char>| {
        c.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '_' | '.' | '-' | '/' | '}' | '>'))
    };
    let goes_on = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '-');
    line.match_indices(prefix).any(|(at, _)| {
        absolute(line[..at].chars().next_back()) && goes_on(line[at + prefix.len()..].chars().next())
    })
}

fn check_rust(file: &File, wrong: &mut Vec<String>) {
    let File { path, text } = file;
    let lines = text.lines().count();
    if lines >= max_lines(path) {
        wrong.push(format!("{path}: {lines} lines; a file there has fewer than {}", max_lines(path)));
    }
    for (i, line) in code_of(text).lines().enumerate() {
        if words(line).any(|word| word == "unsafe") && !may_be_unsafe(path) {
            wrong.push(format!("{path}:{}: `unsafe` belongs into crates/sync or a sys.rs", i + 1));
        }
        let mut named = line.match_indices("Ordering::").map(|(at, found)| &line[at + found.len()..]);
        let ordering = named.find_map(|rest| ATOMIC_ORDERINGS.iter().find(|o| rest.starts_with(**o)));
        if let Some(ordering) = ordering.filter(|ordering| !may_order(path, ordering)) {
            wrong.push(format!("{path}:{}: Ordering::{ordering} belongs into crates/sync", i + 1));
        }
    }
}

/// Links between documents lead to files of the repository.
fn check_links(file: &File, wrong: &mut Vec<String>) {
    let dir = root().join(&file.path).parent().map(|dir| dir.to_path_buf()).unwrap_or_default();
    for (i, line) in file.text.lines().enumerate() {
        for (at, _) in line.match_indices("](") {
            let Some((link, _)) = line[at + 2..].split_once(')') else { continue };
            let target = link.split('#').next().unwrap_or_default();
            // Items in a page of the documentation: rustdoc looks for them.
            if target.starts_with("crate::") {
                continue;
            }
            let inside = dir.join(target).canonicalize().is_ok_and(|to| to.starts_with(root()));
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") && !inside {
                wrong.push(format!("{}:{}: {target} leads nowhere", file.path, i + 1));
            }
        }
    }
}

/// Crates take their licence, minimum compiler and lints from the workspace.
fn check_manifest(file: &File, wrong: &mut Vec<String>) {
    for line in ["license.workspace = true", "rust-version.workspace = true", "[lints]\nworkspace = true"] {
        if !file.text.contains(line) {
            wrong.push(format!("{}: lacks `{}`", file.path, line.replace('\n', " ")));
        }
    }
}

/// The compiler keeps `unsafe` out of every crate but crates/sync.
fn check_roots(files: &[File], wrong: &mut Vec<String>) {
    let has_sys = |dir: &str| files.iter().any(|file| file.path == format!("{dir}sys.rs"));
    for file in files {
        let dir = ["lib.rs", "main.rs"].iter().find_map(|root| file.path.strip_suffix(root));
        let Some(dir) = dir.filter(|dir| dir.ends_with("/src/") && *dir != "crates/sync/src/") else {
            continue;
        };
        let forbids = file.text.contains("#![forbid(unsafe_code)]");
        let denies = file.text.contains("#![deny(unsafe_code)]") && has_sys(dir);
        if !forbids && !denies {
            wrong.push(format!("{}: lacks #![forbid(unsafe_code)]", file.path));
        }
    }
}

/// The README asks for the packages that the run on a fresh machine installs.
fn check_packages(files: &[File], wrong: &mut Vec<String>) {
    const INSTALL: &str = "apt-get install ";
    let packages = |path: &str| {
        let text = files.iter().find(|f| f.path == path).map_or("", |f| f.text.as_str());
        let line = text.lines().find_map(|line| Some(line.split_once(INSTALL)?.1));
        let words = line.unwrap_or_default().split_whitespace();
        words
            .take_while(|word| !";})|&".contains(*word))
            .map(|word| word.trim_end_matches(';'))
            .collect::<Vec<_>>()
    };
    if packages("README.md") != packages(".ci/run") {
        wrong.push(format!("README.md and .ci/run name different packages after `{INSTALL}`"));
    }
}

/// Every ordering has a partner, a model, a mutant and an argument, and nothing else claims to be one.
fn check_orderings(files: &[File], wrong: &mut Vec<String>) {
    let text_of = |path: &str| files.iter().find(|f| f.path == path).map_or("", |f| f.text.as_str());
    let (document, models) = (text_of("docs/ordering.md"), text_of("crates/sync/tests/models.rs"));
    let sources: Vec<&File> = files.iter().filter(|f| f.path.starts_with("crates/sync/src/")).collect();
    let all: String = sources.iter().map(|f| f.text.as_str()).collect();

    // Steps of a protocol that no test mirrors are left out in the code as well.
    let is_step = |id: &&str| STEPS.iter().any(|step| step.id == *id);
    let removable = ["ordering!(\"", "fence!(\"", "removed(\""].iter().flat_map(|call| quoted(&all, call));
    let (own_steps, in_code): (BTreeSet<&str>, BTreeSet<&str>) = removable.partition(is_step);
    let listed: BTreeSet<&str> = ORDERINGS.iter().map(|o| o.id).collect();
    for id in in_code.symmetric_difference(&listed) {
        wrong.push(format!(
            "{id}: in crates/sync/src and in xtask/src/orderings.rs must be the same orderings"
        ));
    }
    let in_brackets = all.match_indices('[').filter_map(|(at, _)| all[at + 1..].split_once(']'));
    let unknown: BTreeSet<&str> =
        in_brackets.map(|(id, _)| id).filter(|id| is_id(id) && !listed.contains(id)).collect();
    wrong.extend(unknown.iter().map(|id| format!("[{id}]: a comment of crates/sync/src names no ordering")));

    let named = ORDERINGS.iter().flat_map(|o| o.models).chain(STEPS.iter().flat_map(|s| s.models));
    let missing: BTreeSet<_> = named.filter(|model| !models.contains(&format!("fn {model}()"))).collect();
    wrong.extend(missing.iter().map(|model| format!("crates/sync/tests/models.rs lacks {model}")));
    for o in ORDERINGS {
        let mark = format!("[{}]", o.id);
        if all.matches(&mark).count() < 2 {
            wrong.push(format!("{mark} must stand at its own place and at its partner's"));
        }
        if !document.contains(&format!("\n### {}", o.id)) {
            wrong.push(format!("docs/ordering.md: no section ### {}", o.id));
        }
        if !o.models.iter().any(|model| all.contains(&format!("models::{model}"))) {
            wrong.push(format!("{}: no comment of crates/sync/src names its model", o.id));
        }
    }

    let tree = text_of("crates/sync/tests/tree/mod.rs");
    let mirrored = [tree, models].into_iter().flat_map(|text| quoted(text, "without(\""));
    let steps: BTreeSet<&str> = mirrored.chain(own_steps).collect();
    let listed: BTreeSet<&str> = STEPS.iter().map(|s| s.id).collect();
    for id in steps.symmetric_difference(&listed) {
        wrong.push(format!("{id}: in crates/sync and in xtask/src/orderings.rs must be the same steps"));
    }
    let engine = files.iter().filter(|file| file.path.starts_with("crates/vfs/src/"));
    let checks: BTreeSet<&str> = engine.flat_map(|file| quoted(&file.text, "step!(\"")).collect();
    let listed: BTreeSet<&str> = CHECKS.iter().map(|s| s.id).collect();
    for id in checks.symmetric_difference(&listed) {
        wrong.push(format!("{id}: in crates/vfs/src and in xtask/src/orderings.rs must be the same checks"));
    }
}

/// What follows `call` up to the next quote, wherever it occurs.
fn quoted<'a>(text: &'a str, call: &'static str) -> impl Iterator<Item = &'a str> {
    let calls = text.match_indices(call).filter_map(|(at, call)| text[at + call.len()..].split_once('"'));
    calls.map(|(id, _)| id)
}

/// Whether `text` looks like the name of an ordering: three capitals, a dash, a number.
fn is_id(text: &str) -> bool {
    text.split_once('-').is_some_and(|(name, number)| {
        name.len() == 3
            && name.bytes().all(|b| b.is_ascii_uppercase())
            && !number.is_empty()
            && number.bytes().all(|b| b.is_ascii_digit())
    })
}

/// Every dependency may be used under a licence that deny.toml allows.
fn licences() -> Result<(), String> {
    let deny =
        std::fs::read_to_string(root().join("deny.toml")).map_err(|error| format!("deny.toml: {error}"))?;
    let list = deny.split_once("\nallow = [").and_then(|(_, rest)| rest.split_once(']'));
    let allowed: BTreeSet<&str> =
        list.map(|(list, _)| list.split('"').skip(1).step_by(2).collect()).unwrap_or_default();
    let tree = process::output(&mut cargo(
        "tree --workspace --all-features --target all --prefix none --format {l};{p}",
    ))?;
    let crates: BTreeSet<&str> = tree.lines().collect();
    let refused: Vec<&str> = crates
        .into_iter()
        .filter(|line| {
            !line.is_empty() && !line.split_once(';').is_some_and(|(licence, _)| permits(licence, &allowed))
        })
        .collect();
    if refused.is_empty() {
        Ok(())
    } else {
        Err(format!("licences that deny.toml does not allow: {}", refused.join(", ")))
    }
}

/// Whether the licence expression can be met: some alternative of which every part is allowed.
fn permits(licence: &str, allowed: &BTreeSet<&str>) -> bool {
    // `A OR B` and the older `A/B`; parentheses occur only around alternatives joined by AND.
    let flat = licence.replace('/', " OR ");
    if let Some((left, right)) = flat.split_once(") AND ") {
        return permits(left.trim_start_matches('('), allowed)
            && permits(right.trim_matches(['(', ')']), allowed);
    }
    flat.split(" OR ")
        .any(|choice| choice.split(" AND ").all(|part| allowed.contains(part.trim_matches(['(', ')', ' ']))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_machine_paths_are_told_from_others() {
        let found = |line: &str| MACHINE_PATHS.iter().any(|prefix| has_path(line, prefix));
        for prefix in MACHINE_PATHS {
            assert!(found(&format!("see {prefix}x")) && found(&format!("\"{prefix}x\"")), "{prefix}");
            assert!(!found(&format!("some{prefix}x")) && !found(prefix), "{prefix}");
        }
        assert!(!found("/usr/include/linux/fs.h"));
    }

    #[test]
    fn a_licence_expression_is_met_by_one_alternative() {
        let allowed = BTreeSet::from(["MIT", "Unicode-3.0", "Apache-2.0"]);
        for good in [
            "MIT",
            "MIT OR GPL-2.0",
            "GPL-3.0/MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "MIT AND Unicode-3.0",
        ] {
            assert!(permits(good, &allowed), "{good}");
        }
        for bad in ["GPL-2.0", "MIT AND GPL-2.0", "(MIT OR Apache-2.0) AND GPL-2.0", ""] {
            assert!(!permits(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn ids_look_like_ids() {
        assert!(is_id("SEQ-1") && is_id("BLB-12"));
        assert!(!is_id("S-1") && !is_id("SEQ-") && !is_id("seq-1") && !is_id("SEQ-x"));
    }
}
