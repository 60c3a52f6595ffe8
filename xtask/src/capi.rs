//! The C interface as its users get it: installed into a prefix, its header held to the source, its examples run.

use crate::process::{self, Outcome, WORKSPACE, cargo, root, target_dir, works};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The programs in crates/capi/examples, with what is defined for them.
const EXAMPLES: &[(&str, &[&str])] =
    &[("tour", &[]), ("guest", &[]), ("hostile", &["-pthread"]), ("portable", &["-DON_RCUWALK"])];

const WARNINGS: &[&str] = &["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"];

fn source(path: &str) -> PathBuf {
    root().join("crates/capi").join(path)
}

/// Installs into `prefix`: header, shared and static library, pkg-config file, manual page.
pub(crate) fn install(prefix: &Path, release: bool) -> Result<(), String> {
    let build = if release {
        "build --quiet --release --package rcuwalk-capi".to_owned()
    } else {
        format!("build --quiet {WORKSPACE} --lib")
    };
    process::run(&mut cargo(&build))?;
    let built = target_dir(if release { "release" } else { "debug" });
    let version = env!("CARGO_PKG_VERSION_MAJOR");
    let soname = format!("librcuwalk.so.{version}");
    let files = [
        (built.join("librcuwalk_capi.so"), format!("lib/{soname}")),
        (built.join("librcuwalk_capi.a"), "lib/librcuwalk.a".to_owned()),
        (source("include/rcuwalk.h"), "include/rcuwalk.h".to_owned()),
        (source("man/rcuwalk.3"), "share/man/man3/rcuwalk.3".to_owned()),
    ];
    for (from, to) in files {
        let to = prefix.join(to);
        let done =
            to.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::copy(&from, &to));
        done.map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))?;
    }
    let link = prefix.join("lib/librcuwalk.so");
    // It may be there from the last time.
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&soname, &link).map_err(|error| format!("{}: {error}", link.display()))?;
    let template = read(&source("rcuwalk.pc.in"))?;
    let manifest = read(&root().join("Cargo.toml"))?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = ")).unwrap_or("\"\"");
    let text = template
        .replace("@prefix@", &prefix.display().to_string())
        .replace("@version@", version.trim_matches('"'));
    let file = prefix.join("lib/pkgconfig/rcuwalk.pc");
    let written =
        std::fs::create_dir_all(prefix.join("lib/pkgconfig")).and_then(|()| std::fs::write(&file, text));
    written.map_err(|error| format!("{}: {error}", file.display()))
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Runs cbindgen; `verify` only compares. It reads no macros, so it gets the module with the calls written out.
pub(crate) fn header(verify: bool) -> Result<(), String> {
    const INCLUDED: &str = r#"include!(concat!(env!("OUT_DIR"), "/calls.rs"));"#;
    let door = read(&source("src/door/mod.rs"))?;
    if !door.contains(INCLUDED) {
        return Err(format!("crates/capi/src/door/mod.rs lacks `{INCLUDED}`"));
    }
    let whole = target_dir("capi-door.rs");
    let text = door.replace(INCLUDED, &read(&generated()?.join("calls.rs"))?);
    std::fs::write(&whole, text).map_err(|error| format!("{}: {error}", whole.display()))?;
    let mut cbindgen = Command::new("cbindgen");
    cbindgen.args(["--quiet", "--config"]).arg(source("cbindgen.toml"));
    if verify {
        cbindgen.arg("--verify");
    }
    cbindgen.arg("--output").arg(source("include/rcuwalk.h")).arg(whole);
    process::run(&mut cbindgen)
}

/// Where the build script has written.
fn generated() -> Result<PathBuf, String> {
    let build = format!("build --quiet {WORKSPACE} --lib --message-format json");
    let messages = process::output(&mut cargo(&build))?;
    let ran = |message: &Value| {
        let ours = message["package_id"].as_str().is_some_and(|id| id.contains("crates/capi"));
        (ours && message["reason"] == "build-script-executed")
            .then(|| message["out_dir"].as_str().map(PathBuf::from))?
    };
    let mut messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
    messages
        .find_map(|message| ran(&message))
        .ok_or_else(|| "cargo names no build script of crates/capi".into())
}

/// The stage: everything that a C programmer relies on.
pub(crate) fn run() -> Outcome {
    if !works(Command::new("cc").arg("--version")) {
        return Outcome::Skipped("there is no C compiler `cc`".into());
    }
    check().into()
}

fn check() -> Result<(), String> {
    let prefix = target_dir("capi-prefix");
    install(&prefix, false)?;
    declared_is_exported(&prefix)?;
    if works(Command::new("cbindgen").arg("--version")) {
        header(true)?;
    } else {
        println!("cbindgen is not installed: of the header, only the names are compared with the library");
    }
    let manual = Command::new("man").args(["--warnings", "-l"]).arg(source("man/rcuwalk.3")).output();
    match manual {
        Ok(shown) if !shown.stderr.is_empty() => {
            return Err(String::from_utf8_lossy(&shown.stderr).into_owned());
        }
        Ok(_) => {}
        Err(_) => println!("man is not installed: the manual page is not checked"),
    }
    let valgrind = works(Command::new("valgrind").arg("--version"));
    if !valgrind {
        println!("valgrind is not installed: the examples run without it");
    }
    for (name, flags) in EXAMPLES {
        for linkage in ["shared", "static"] {
            let program = compile(&prefix, name, name, flags, linkage)?;
            // Under valgrind once: the library is the same.
            execute(&prefix, &program, valgrind && linkage == "shared")?;
        }
    }
    portable_agrees(&prefix)
}

/// What pkg-config says, or would say.
fn flags(prefix: &Path, linkage: &str) -> Vec<String> {
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(["--cflags", "--libs"]);
    if linkage == "static" {
        pkg_config.arg("--static");
    }
    let answer = pkg_config.arg("rcuwalk").output().ok().filter(|answer| answer.status.success());
    let text = match answer {
        Some(answer) => String::from_utf8_lossy(&answer.stdout).into_owned(),
        None => format!("-I{0}/include -L{0}/lib -lrcuwalk -lpthread -lm -ldl -lgcc_s", prefix.display()),
    };
    let archive = prefix.join("lib/librcuwalk.a").display().to_string();
    let words = text.split_whitespace().map(|word| match (linkage, word) {
        ("static", "-lrcuwalk") => archive.clone(),
        (_, word) => word.to_owned(),
    });
    words.collect()
}

fn compile(prefix: &Path, file: &str, name: &str, extra: &[&str], linkage: &str) -> Result<PathBuf, String> {
    let program = prefix.join(format!("{name}-{linkage}"));
    let mut cc = Command::new("cc");
    cc.args(WARNINGS).args(extra).arg(source(&format!("examples/{file}.c"))).arg("-o").arg(&program);
    process::run(cc.args(flags(prefix, linkage)))?;
    Ok(program)
}

/// A command that runs a program against the installed library.
fn against(prefix: &Path, mut command: Command) -> Command {
    command.env("LD_LIBRARY_PATH", prefix.join("lib")).current_dir(prefix);
    command
}

fn execute(prefix: &Path, program: &Path, valgrind: bool) -> Result<(), String> {
    let command = if valgrind {
        let mut valgrind = Command::new("valgrind");
        valgrind.args([
            "--quiet",
            "--error-exitcode=99",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
        ]);
        valgrind.arg(program);
        valgrind
    } else {
        Command::new(program)
    };
    process::run(&mut against(prefix, command))
}

/// The program that is written against syscall(2) says the same on the kernel and on the engine.
fn portable_agrees(prefix: &Path) -> Result<(), String> {
    let kernel = prefix.join("portable-kernel");
    let mut cc = Command::new("cc");
    cc.args(WARNINGS).arg(source("examples/portable.c")).arg("-o").arg(&kernel);
    process::run(&mut cc)?;
    let empty = prefix.join("empty");
    // What a run that failed has left.
    let _ = std::fs::remove_dir_all(&empty);
    std::fs::create_dir_all(&empty).map_err(|error| format!("{}: {error}", empty.display()))?;
    let said = |program: PathBuf| process::output(against(prefix, Command::new(program)).current_dir(&empty));
    let (kernel, engine) = (said(kernel)?, said(prefix.join("portable-shared"))?);
    if kernel == engine {
        println!("portable.c: {} lines, alike on the kernel and on the engine", kernel.lines().count());
        return Ok(());
    }
    let differ = kernel.lines().zip(engine.lines()).find(|(kernel, engine)| kernel != engine);
    let (kernel, engine) = differ.unwrap_or(("one says more than the other", ""));
    Err(format!("portable.c differs: the kernel says `{kernel}`, the engine `{engine}`"))
}

/// The header declares what the library exports, and nothing else.
fn declared_is_exported(prefix: &Path) -> Result<(), String> {
    let header = read(&source("include/rcuwalk.h"))?;
    let code: String =
        header.lines().filter(|line| !line.starts_with("//")).map(|line| format!("{line}\n")).collect();
    let declared: BTreeSet<&str> = code
        .match_indices("rcuwalk_")
        .map(|(at, _)| &code[at..])
        .filter_map(|rest| rest.split_once(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .filter(|(name, rest)| code.contains(&format!("{name}(")) && !rest.is_empty())
        .map(|(name, _)| name)
        .collect();
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--defined-only"]).arg(prefix.join("lib/librcuwalk.so"));
    if !works(Command::new("nm").arg("--version")) {
        println!("nm is not installed: the header is not compared with the library");
        return Ok(());
    }
    let symbols = process::output(&mut nm)?;
    let exported: BTreeSet<&str> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .filter(|name| name.starts_with("rcuwalk_"))
        .collect();
    let differ: Vec<&&str> = declared.symmetric_difference(&exported).collect();
    if differ.is_empty() {
        println!("rcuwalk.h: {} functions, all of them exported", exported.len());
        Ok(())
    } else {
        Err(format!("in the header or in the library, but not in both: {differ:?}"))
    }
}
