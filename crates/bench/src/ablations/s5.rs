//! S5: execve opens the file first, and once.

use std::ffi::{CStr, CString};
use std::sync::{Mutex, PoisonError};

use rcuwalk::{Cred, Libc, Task, Variants, Vfs, WalkMode};

use super::{Budget, Outcome, Row, Workload, side, world};
use crate::engines::{Contender, Value, error_value};
use crate::error::Error;

/// The row.
pub(super) const ROW: Row = Row {
    id: "S5",
    title: "execve opens the file first, once",
    published: "100,000 execvpe over a PATH of 7: 4.08 s of system time to 2.40, with 64 more environment variables 5.33 to \
                2.59; looking up twice wins only where nothing is found (linux-fsdevel, \"open binary before doing \
                anything else in do_execveat_common\")",
    run,
};

/// The program that is searched for.
const PROGRAM: &str = "true";

/// The searches: a name, the value of `PATH`, what is claimed of `args-first`.
struct Search {
    name: &'static str,
    path: String,
    env: usize,
    claim: Option<f64>,
}

fn searches() -> Vec<Search> {
    let seven = |last: &str| {
        let mut all: Vec<String> = (1..=6).map(|i| format!("/empty{i}")).collect();
        all.push(last.to_owned());
        all.join(":")
    };
    let long = format!("{}/empty", "/directory".repeat(16));
    let search = |name, path, env, claim| Search { name, path, env, claim };
    vec![
        search("PATH of 7, found in the last", seven("/bin"), 64, Some(1.1)),
        search("PATH of 7, found in the last, no environment", seven("/bin"), 0, None),
        search("PATH of 7, found in the first", format!("/bin:{}", seven("/empty7")), 64, None),
        search("PATH of 7, ENOENT everywhere", seven("/empty7"), 0, None),
        search("PATH of 7, ENOENT everywhere, 64 variables", seven("/empty7"), 64, Some(1.5)),
        search("PATH of 7, ENOENT everywhere, 1000 variables", seven("/empty7"), 1000, Some(3.0)),
        search(
            "entries that are files (ENOTDIR)",
            "/file:/file:/file:/file:/file:/file:/bin".into(),
            64,
            None,
        ),
        search("entries that are closed (EACCES)", "/closed:/closed:/closed:/closed:/bin".into(), 64, None),
        search(
            "long paths, found in the last",
            format!("{long}:{long}:{long}:/directory/directory/bin"),
            64,
            None,
        ),
    ]
}

/// The smallest file that the engine executes: headers, and a segment to load.
fn program() -> Vec<u8> {
    let mut file = vec![0; 64 + 56];
    file[..4].copy_from_slice(b"\x7fELF");
    // An executable for x86-64 with one program header behind this one: PT_LOAD.
    (file[16], file[18], file[32], file[54], file[56], file[64]) = (2, 62, 64, 56, 1, 1);
    file
}

/// A user's process in a fresh tree.
fn process(variants: Variants) -> Result<Mutex<Task>, Error> {
    let vfs: Vfs = world::tree(WalkMode::Direct, variants)?;
    let root = vfs.task(Cred::root());
    let made = |dir: &str, mode| world::made(dir, root.mkdir(dir.as_bytes(), mode));
    for i in 1..=7 {
        made(&format!("/empty{i}"), 0o755)?;
    }
    made("/closed", 0o700)?;
    made(&format!("{}/empty", "/directory".repeat(16)), 0o755)?;
    world::put(&root, "/file", b"", 0o644)?;
    for dir in ["/bin", "/directory/directory/bin"] {
        made(dir, 0o755)?;
        world::put(&root, &format!("{dir}/{PROGRAM}"), &program(), 0o755)?;
    }
    Ok(Mutex::new(vfs.task(world::user())))
}

/// One search along the `PATH` that `path` is, with this environment.
fn execvpe(process: &Mutex<Task>, path: &CStr, env: &[&[u8]]) -> Value {
    let mut task = process.lock().unwrap_or_else(PoisonError::into_inner);
    let args: [&[u8]; 2] = [PROGRAM.as_bytes(), b"1"];
    match task.execvpe(Libc::Glibc, Some(path.to_bytes()), PROGRAM.as_bytes(), &args, env) {
        Ok(exec) => exec.file.ino() << 16 | (exec.envp.len() + exec.argv.len()) as u64,
        Err(errno) => error_value(errno.raw()),
    }
}

fn run(budget: &Budget<'_>) -> Result<Outcome, Error> {
    let plain = Variants::default();
    let [args_first, twice, early, after] = [
        process(Variants { args_first: true, ..plain })?,
        process(Variants { lookup_twice: true, ..plain })?,
        process(Variants { early_file: true, ..plain })?,
        process(plain)?,
    ];
    let mut points = Vec::new();
    for search in searches() {
        let env: Vec<Vec<u8>> =
            (0..search.env).map(|i| format!("VARIABLE_{i:04}=some value of it").into_bytes()).collect();
        let env: Vec<&[u8]> = env.iter().map(Vec::as_slice).collect();
        let args_first = side("args-first", |path| execvpe(&args_first, path, &env));
        let twice = side("lookup-twice", |path| execvpe(&twice, path, &env));
        let early = side("early-file", |path| execvpe(&early, path, &env));
        let after = side("open first, once", |path| execvpe(&after, path, &env));
        let list = || -> Vec<CString> { vec![world::path(&search.path)] };
        let claimed = match search.claim {
            Some(least) => Workload::new(search.name, list()).claims(least),
            None => Workload::new(search.name, list()),
        };
        points.extend(budget.compare(claimed, &[&args_first], &after)?);
        let others: [&dyn Contender; 2] = [&twice, &early];
        points.extend(budget.compare(Workload::new(search.name, list()), &others, &after)?);
    }
    let note = "A call is one whole search by glibc's rules, success included: the engine decides everything up to where a \
                kernel would map the program. Looking up twice costs where something is found and gains nothing where \
                nothing is: a failed open is a failed lookup here. The whole-path table remembers that a name is missing.";
    Ok(Outcome { points, note: note.into() })
}
