//! Writes the functions for the calls by name from their table, and names the shared library.

use std::path::Path;
use std::{env, fs};

const TABLE: &str = "src/door/calls.txt";

/// Stands for a register that the function does not take, and that is 0.
const UNUSED: &str = "_";

fn main() {
    // The name for the loader changes when programs must be compiled again.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librcuwalk.so.0");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={TABLE}");
    let table = fs::read_to_string(TABLE).expect(TABLE);
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let functions = lines.map(|line| {
        function(line).unwrap_or_else(|| panic!("{TABLE}: not NAME(ARGUMENTS) -> RESULT: {line}"))
    });
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("calls.rs"), functions.collect::<String>()).expect("OUT_DIR is writable");
}

/// The function for a line of the table. It is unsafe if an argument is a pointer.
fn function(line: &str) -> Option<String> {
    let (call, doc) = line.split_once(" // ").map_or((line, None), |(call, doc)| (call, Some(doc)));
    let (name, rest) = call.split_once('(')?;
    let (arguments, result) = rest.split_once(") -> ")?;
    let (result, number) = result.split_once(" = ").unwrap_or((result, ""));
    let number = if number.is_empty() { name.to_uppercase() } else { number.to_owned() };
    let doc = doc.map_or_else(|| format!("{name}(2)."), str::to_owned);
    let safety = if arguments.contains('*') { "unsafe " } else { "" };
    let arguments: Vec<&str> = arguments.split(", ").filter(|argument| !argument.is_empty()).collect();
    let mut words = Vec::new();
    for argument in &arguments {
        words.push(match *argument {
            UNUSED => "0".to_owned(),
            argument => format!("{} as u64", argument.split_once(": ")?.0),
        });
    }
    words.resize(6, "0".to_owned());
    let arguments: Vec<&str> = arguments.into_iter().filter(|argument| *argument != UNUSED).collect();
    Some(format!(
        "/// {doc}\n#[unsafe(no_mangle)]\npub {safety}extern \"C\" fn rcuwalk_{name}({}) -> {result} {{\n    \
         call(task, nr::{number}, [{}]) as {result}\n}}\n\n",
        [&["task: rcuwalk_handle"], arguments.as_slice()].concat().join(", "),
        words.join(", "),
    ))
}
