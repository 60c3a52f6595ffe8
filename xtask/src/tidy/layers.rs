//! Which folder of the engine, and which crate, may name which: only what lies below it.

use super::File;
use super::source::code_of;
use std::collections::BTreeMap;

/// The folders of `crates/vfs/src`, the lowest first. A folder names itself and those before it.
pub(super) const FOLDERS: [&str; 15] = [
    "base", "cred", "perm", "tmpfs", "mount", "dcache", "file", "kernel", "namei", "task", "exec", "calls",
    "trees", "fs", "syscall",
];

/// Paths that a folder may name although they lie above it, and why.
const EXCEPTIONS: [(&str, &str, &str); 1] = [(
    "file",
    "kernel::proc::ProcNode",
    "a file may hold a mount namespace, whose drop unmounts a tree; so it holds the kernel, which lists the tables of files",
)];

/// The crates, the lowest first. A crate depends on those before it.
pub(super) const CRATES: [&str; 15] = [
    "sync", "vfs", "adapter", "image", "host", "fuse", "explain", "audit", "measure", "bench", "lab", "capi",
    "python", "oracle", "cli",
];

const ENGINE: &str = "crates/vfs/src/";

/// Says what of the engine names something above itself, and which folders and crates have no place in the order.
pub(super) fn check(files: &[File], wrong: &mut Vec<String>) {
    let exported = files.iter().find(|file| file.path == "crates/vfs/src/lib.rs");
    let exported = exported.map(|file| exports(&file.text)).unwrap_or_default();
    for file in files {
        if let Some(folder) = folder_of(&file.path) {
            match FOLDERS.iter().position(|of| *of == folder) {
                Some(_) => check_file(file, folder, &exported, wrong),
                None => {
                    wrong.push(format!("{}: `{folder}` has no place in FOLDERS of tidy/layers.rs", file.path))
                }
            }
        }
        check_manifest(file, wrong);
        if file.path == "ARCHITECTURE.md" {
            check_tables(&file.text, wrong);
        }
    }
    for (what, prefix, listed) in [("folder", ENGINE, &FOLDERS[..]), ("crate", "crates/", &CRATES[..])] {
        for name in listed {
            let dir = format!("{prefix}{name}/");
            if !files.iter().any(|file| file.path.starts_with(&dir)) {
                wrong.push(format!("xtask/src/tidy/layers.rs: there is no {what} {dir}"));
            }
        }
    }
}

/// The tables of ARCHITECTURE.md have a row for each folder and each crate, in the order.
fn check_tables(document: &str, wrong: &mut Vec<String>) {
    let rows: Vec<&str> =
        document.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once("` |")?.0)).collect();
    for listed in [&FOLDERS[..], &CRATES[..]] {
        let found: Vec<&str> = rows.iter().copied().filter(|row| listed.contains(row)).collect();
        if found != listed {
            wrong
                .push(format!("ARCHITECTURE.md: a table has {found:?}, xtask/src/tidy/layers.rs {listed:?}"));
        }
    }
}

/// The folder of the engine that a file is in: none for `lib.rs`, which gives out what the folders have.
fn folder_of(path: &str) -> Option<&str> {
    let (folder, _) = path.strip_prefix(ENGINE)?.split_once('/')?;
    path.ends_with(".rs").then_some(folder)
}

/// What `lib.rs` gives out, and the folder it is from.
fn exports(lib: &str) -> BTreeMap<String, String> {
    let mut exported = BTreeMap::new();
    for (_, tree) in statements(&code_of(lib), "pub use ") {
        for path in expanded(&tree) {
            let (path, name) = match path.split_once(" as ") {
                Some((path, name)) => (path.to_owned(), name.trim().to_owned()),
                None => (path.clone(), path.rsplit("::").next().unwrap_or_default().to_owned()),
            };
            exported.insert(name, first(&path).to_owned());
        }
    }
    exported
}

fn check_file(file: &File, folder: &str, exported: &BTreeMap<String, String>, wrong: &mut Vec<String>) {
    let place = |name: &str| FOLDERS.iter().position(|of| *of == name);
    for (line, path) in crate_paths(without_tests(&code_of(&file.text))) {
        let head = first(&path);
        let target = exported.get(head).map_or(head, String::as_str);
        let excepted = EXCEPTIONS.iter().any(|(from, what, _)| *from == folder && *what == path);
        if place(target) > place(folder) && !excepted {
            wrong.push(format!(
                "{}:{line}: names crate::{path}; `{folder}` may name only itself and what lies below it, and `{target}` lies above",
                file.path
            ));
        }
    }
}

/// The code before the module of tests, which may name everything.
fn without_tests(code: &str) -> &str {
    let tests =
        code.match_indices("#[cfg(test)]").map(|(at, mark)| (at, code[at + mark.len()..].trim_start()));
    let module =
        |rest: &str| rest.split_whitespace().take_while(|word| *word != "{").any(|word| word == "mod");
    let mut modules =
        tests.filter(|(_, rest)| module(rest.split('{').next().unwrap_or_default()) && rest.contains('{'));
    modules.next().map_or(code, |(at, _)| &code[..at])
}

/// The lines and paths, without `crate::`, that `use` declarations and expressions name.
fn crate_paths(code: &str) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    for (at, tree) in statements(code, "crate::") {
        let line = 1 + code[..at].matches('\n').count();
        let named = expanded(&tree).into_iter();
        paths.extend(named.map(|path| (line, path.split(" as ").next().unwrap_or_default().to_owned())));
    }
    paths
}

/// What follows each `mark`, as far as it is a path or a tree of paths, with its offset.
fn statements(code: &str, mark: &str) -> Vec<(usize, String)> {
    let begins = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$');
    let marks = code.match_indices(mark).filter(|&(at, _)| begins(at));
    marks.map(|(at, mark)| (at, tree_at(&code[at + mark.len()..]))).collect()
}

/// The path, or tree of paths in braces, that `rest` begins with.
fn tree_at(rest: &str) -> String {
    let mut depth = 0;
    let mut tree = String::new();
    for c in rest.chars() {
        match c {
            '{' if depth > 0 || tree.ends_with("::") || tree.is_empty() => depth += 1,
            '}' if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            ' ' if tree.ends_with(" as") || !tree.contains(' ') && rest[tree.len()..].starts_with(" as ") => {
            }
            c if c.is_alphanumeric() || "_:*".contains(c) => {}
            _ => break,
        }
        tree.push(if c == '\n' { ' ' } else { c });
        if depth == 0 && c == '}' {
            break;
        }
    }
    tree
}

/// The paths of a tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expanded(tree: &str) -> Vec<String> {
    let Some((stem, body)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let body = body.rsplit_once('}').map_or(body, |(body, _)| body);
    let (mut depth, mut from) = (0, 0);
    let mut parts = Vec::new();
    for (at, c) in body.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&body[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&body[from..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(expanded).map(|part| format!("{}{part}", stem.trim())).collect()
}

fn first(path: &str) -> &str {
    path.split("::").next().unwrap_or_default().trim()
}

/// A crate depends on crates below it alone; what only its tests need does not count.
fn check_manifest(file: &File, wrong: &mut Vec<String>) {
    let name = file.path.strip_prefix("crates/").and_then(|path| path.strip_suffix("/Cargo.toml"));
    let Some(name) = name.filter(|name| !name.contains('/')) else { return };
    let place = |name: &str| CRATES.iter().position(|of| *of == name);
    let Some(own) = place(name) else {
        wrong.push(format!("{}: `{name}` has no place in CRATES of tidy/layers.rs", file.path));
        return;
    };
    let mut counts = false;
    for (i, line) in file.text.lines().enumerate() {
        if line.starts_with('[') {
            counts = line.ends_with("dependencies]") && !line.contains("dev-dependencies");
        }
        let named = line.split([' ', '=', '.']).next().unwrap_or_default();
        let depends = match named {
            "rcuwalk" => "vfs",
            named => named.strip_prefix("rcuwalk-").unwrap_or_default(),
        };
        if counts && place(depends).is_some_and(|at| at >= own) {
            wrong.push(format!("{}:{}: `{name}` depends on {named}, which lies above it", file.path, i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        let lib =
            "pub use task::Task;\npub use kernel::vfs::{Vfs, VfsBuilder};\npub use base::uapi as numbers;\n";
        let files = [("crates/vfs/src/lib.rs", lib), (path, text)];
        let files = files.map(|(path, text)| File { path: path.to_owned(), text: text.to_owned() });
        check(&files, &mut wrong);
        wrong.retain(|line| line.starts_with(path));
        wrong
    }

    #[test]
    fn a_path_that_leads_up_is_reported_with_its_line() {
        for upward in [
            "use crate::namei::Walker;\n",
            "use crate::{\n    base::errno::Errno,\n    namei::{Walker, At},\n};\n",
            "fn f() { let x = crate::namei::walk(); }\n",
            "pub(crate) use crate::Task;\n",
            "use crate::{base, Task as Process};\n",
            "fn f(_: &crate::Task) {}\n",
        ] {
            let text = format!("//! What it is.\n\n{upward}#[cfg(test)]\nmod tests {{}}\n");
            let wrong = complaints("crates/vfs/src/kernel/mod.rs", &text);
            assert!(!wrong.is_empty(), "{upward}");
            assert!(
                wrong.iter().all(|line| line.starts_with("crates/vfs/src/kernel/mod.rs:3: names crate::")),
                "{wrong:?}"
            );
            assert_eq!(complaints("crates/vfs/src/syscall/mod.rs", &text), [] as [&str; 0]);
        }
    }

    #[test]
    fn what_lies_below_or_is_no_code_is_not() {
        for allowed in [
            "use crate::base::errno::{Errno, Result};\n",
            "use crate::kernel::Kernel;\nuse crate::{Vfs, numbers};\n",
            "/// See [`crate::task::Task`].\n// use crate::task::Task;\nfn f() -> &'static str { \"crate::task::Task\" }\n",
            "#[cfg(test)]\nmod tests {\n    use crate::task::Task;\n}\n",
            "#[cfg(test)]\npub(crate) mod tests {\n    use crate::task::Task;\n}\n",
        ] {
            assert_eq!(complaints("crates/vfs/src/kernel/mod.rs", allowed), [] as [&str; 0], "{allowed}");
        }
    }

    #[test]
    fn the_repository_keeps_the_order() {
        let files = super::super::files().unwrap();
        let engine = files.iter().filter(|file| file.path.starts_with(ENGINE));
        let named: usize = engine.map(|file| crate_paths(without_tests(&code_of(&file.text))).len()).sum();
        assert!(named > 500, "the engine names {named} paths only: they are not read");
        let mut wrong = Vec::new();
        check(&files, &mut wrong);
        assert_eq!(wrong, [] as [&str; 0]);
    }

    #[test]
    fn an_exception_goes_for_one_folder_and_one_path() {
        for (folder, what, why) in EXCEPTIONS {
            assert!(!why.is_empty());
            let text = format!("use crate::{what};\n");
            assert_eq!(complaints(&format!("crates/vfs/src/{folder}/mod.rs"), &text), [] as [&str; 0]);
            assert_eq!(complaints("crates/vfs/src/base/mod.rs", &text).len(), 1);
            assert_eq!(
                complaints(&format!("crates/vfs/src/{folder}/mod.rs"), "use crate::kernel::Kernel;\n").len(),
                1
            );
        }
    }

    #[test]
    fn the_tables_of_the_document_have_the_order() {
        let row = |name: &&str| format!("| `{name}` | what it is |\n");
        let tables = |folders: &[&str]| -> String { CRATES.iter().chain(folders).map(row).collect() };
        assert_eq!(complaints("ARCHITECTURE.md", &tables(&FOLDERS)), [] as [&str; 0]);
        assert_eq!(complaints("ARCHITECTURE.md", &tables(&FOLDERS[1..])).len(), 1);
        let mut swapped = FOLDERS;
        swapped.swap(3, 4);
        assert_eq!(complaints("ARCHITECTURE.md", &tables(&swapped)).len(), 1);
    }

    #[test]
    fn folders_and_crates_have_a_place_and_crates_depend_downwards() {
        assert_eq!(complaints("crates/vfs/src/attic/mod.rs", "").len(), 1);
        assert_eq!(complaints("crates/attic/Cargo.toml", "").len(), 1);
        let host = |section: &str, name: &str| {
            complaints("crates/host/Cargo.toml", &format!("[{section}]\n{name} = {{ workspace = true }}\n"))
                .len()
        };
        assert_eq!(host("dependencies", "rcuwalk-explain"), 1);
        assert_eq!(host("target.'cfg(loom)'.dependencies", "rcuwalk-cli"), 1);
        assert_eq!(host("dev-dependencies", "rcuwalk-explain"), 0);
        assert_eq!(host("dependencies", "rcuwalk") + host("dependencies", "rcuwalk-image"), 0);
        assert_eq!(
            complaints("crates/vfs/Cargo.toml", "[dependencies]\nrcuwalk-host.workspace = true\n").len(),
            1
        );
    }
}
