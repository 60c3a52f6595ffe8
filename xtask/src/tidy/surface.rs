//! No type of `rcuwalk-sync` is part of what users of the engine see.

use super::File;
use super::source::{code_of, words};
use std::collections::BTreeSet;

/// The crate whose types stay inside, and the folder of the one that uses it.
const INSIDE: &str = "rcuwalk_sync";
const ENGINE: &str = "crates/vfs/src/";

pub(super) fn check(file: &File, wrong: &mut Vec<String>) {
    if !file.path.starts_with(ENGINE) {
        return;
    }
    for (line, name) in leaks(&file.text) {
        wrong.push(format!("{}:{line}: `{name}` of {INSIDE} in a public signature", file.path));
    }
}

/// Lines, and the first name of the crate that a public item there shows.
fn leaks(text: &str) -> Vec<(usize, String)> {
    let code = code_of(text);
    let inside: BTreeSet<&str> = imports(&code).collect();
    let mut found = Vec::new();
    // Whether the line belongs to a public trait or enum, all of which is public.
    let mut open = false;
    let mut start = 0;
    for (i, line) in code.lines().enumerate() {
        let item = line.trim_start();
        if line.starts_with('}') {
            open = false;
        }
        let shown = match open {
            true => item.to_owned(),
            false if item.starts_with("pub ") => signature(&code[start + line.len() - item.len()..]),
            false => String::new(),
        };
        found.extend(words(&shown).find(|word| inside.contains(word)).map(|word| (i + 1, word.to_owned())));
        open |= line.starts_with("pub trait ") || line.starts_with("pub enum ");
        start += line.len() + 1;
    }
    found
}

/// The names that `use` brings in from the crate, and its own.
fn imports(code: &str) -> impl Iterator<Item = &str> {
    let uses = code.split("use ").skip(1).filter(|rest| rest.starts_with(INSIDE));
    uses.flat_map(|rest| words(rest.split(';').next().unwrap_or("")))
        // Modules and functions are no part of a signature, but parameters may have their names.
        .filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()))
        .chain([INSIDE])
}

/// What `item` shows, up to its body or its end; private fields of a tuple are not shown.
fn signature(item: &str) -> String {
    let is_field =
        item.starts_with("pub ") && item[4..].split(':').next().is_some_and(|name| words(name).count() == 1);
    let end = item.find(if is_field { [',', '\n'] } else { ['{', ';'] }).unwrap_or(item.len());
    let item = &item[..end];
    match item.strip_prefix("pub struct ").and_then(|rest| rest.split_once('(')) {
        Some((name, fields)) => {
            let shown = fields.split(',').filter(|field| field.trim_start().starts_with("pub "));
            format!("{name} {}", shown.collect::<Vec<_>>().join(","))
        }
        None => item.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_told_from_what_is_not() {
        let shown = [
            "pub use rcuwalk_sync::slab::CacheInfo;",
            "use rcuwalk_sync::Handle;\nimpl Node {\n    pub fn handle(&self) -> Handle {",
            "use rcuwalk_sync::{Budget, Handle};\npub fn of(\n    budget: &Budget,\n) {}",
            "use rcuwalk_sync::slab::Policy as Init;\npub struct Options {\n    pub init: Init,\n}",
            "use rcuwalk_sync::Handle;\npub struct Node(pub Handle, u32);",
            "use rcuwalk_sync::Handle;\npub enum Place {\n    At(Handle),\n}",
            "use rcuwalk_sync::Handle;\npub trait Walk {\n    fn to(&self, at: Handle);\n}",
            "pub fn table() -> rcuwalk_sync::Arena<u32> {",
        ];
        for text in shown {
            assert_eq!(leaks(text).len(), 1, "{text}");
        }
        let hidden = [
            "use rcuwalk_sync::Handle;\npub struct Node(Handle, u32);\npub(crate) fn handle() -> Handle {}",
            "use rcuwalk_sync::Handle;\npub struct Node {\n    handle: Handle,\n    pub name: u32,\n}\nfn at(_: Handle) {}",
            "use rcuwalk_sync::Handle;\n/// Not a Handle.\npub fn number() -> u32 {\n    let at: Handle = 1;\n}",
            "use rcuwalk_sync::Handle;\npub enum Place {\n    At,\n}\nfn at(_: Handle) {}",
            "use std::sync::Arc;\npub fn shared() -> Arc<u32> {}",
            "use rcuwalk_sync::lock::Mutex;\npub fn set(lock: u32) {}",
        ];
        for text in hidden {
            assert_eq!(leaks(text), [], "{text}");
        }
    }
}
