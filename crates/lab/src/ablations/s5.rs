//! S5: execve opens the file first, and once.

use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

use rcuwalk::{Cred, Libc, Task, Variants, Vfs, WalkMode};

use super::{Budget, Outcome, Row, Workload, side, world};
use rcuwalk_measure::Error;
use rcuwalk_measure::engines::{Contender, Value, error_value};

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

/// A directory with it far from the root.
const DEEP: &str = "/directory/directory/directory/directory/directory/directory/directory/directory/bin";

/// Where the program is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    First,
    Last,
    Nowhere,
}

/// A search: a name, the value of `PATH`, variables in the environment, and the least ratios that are claimed.
struct Search {
    name: String,
    path: String,
    env: usize,
    args_first: Option<f64>,
    lookup_twice: Option<f64>,
    early_file: Option<f64>,
}

/// What of the old ways costs, where and as published: arguments taken in before the file is known to be there, once for each
/// entry that has it not; a file allocated for each of them. Where nothing is found, a mere lookup is less than an open, and the
/// new way is claimed to lose no more than that.
fn search(name: &str, path: &str, env: usize, place: Where) -> Search {
    let args_first = match (place, env) {
        (Where::First, _) => None,
        (Where::Last, _) => Some(1.1),
        (Where::Nowhere, 0) => Some(1.3),
        (Where::Nowhere, _) => Some(3.0),
    };
    let nowhere = place == Where::Nowhere;
    let (lookup_twice, early_file) = (nowhere.then_some(0.75), nowhere.then_some(1.1));
    let (name, path) = (format!("{name}, {env} variables"), path.to_owned());
    Search { name, path, env, args_first, lookup_twice, early_file }
}

fn searches() -> Vec<Search> {
    let seven = |last: &str| (1..=6).map(|i| format!("/empty{i}:")).collect::<String>() + last;
    let four = |last: &str| format!("{0}/empty:{0}/empty:{0}/empty:{last}", "/directory".repeat(16));
    let (missing, long_missing) = (seven("/empty7"), four("/directory/empty"));
    let mut all = Vec::new();
    for env in [64, 0, 1000] {
        all.push(search("PATH of 7, found in the last", &seven("/bin"), env, Where::Last));
        all.push(search("PATH of 7, found in the first", &format!("/bin:{missing}"), env, Where::First));
        all.push(search("PATH of 7, ENOENT everywhere", &missing, env, Where::Nowhere));
    }
    for env in [64, 0] {
        all.push(search("long paths, found in the last of 4", &four(DEEP), env, Where::Last));
        // Looking it up again is claimed to cost, where the arguments do not drown it.
        let lookup_twice = (env == 0).then_some(1.0);
        let first = search("long paths, found in the first", DEEP, env, Where::First);
        all.push(Search { lookup_twice, ..first });
        all.push(search("long paths, ENOENT everywhere", &long_missing, env, Where::Nowhere));
    }
    let files = "/file:/file:/file:/file:/file:/file:/bin";
    all.push(search("entries that are files (ENOTDIR)", files, 64, Where::Last));
    let closed = "/closed:/closed:/closed:/closed:/bin";
    all.push(search("entries that are closed (EACCES)", closed, 64, Where::Last));
    all
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
    for dir in ["/bin", DEEP] {
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
        let workload = |claim: Option<f64>| {
            Workload::new(search.name.as_str(), vec![world::path(&search.path)]).claims(claim)
        };
        let sides: [(&dyn Contender, Option<f64>); 3] =
            [(&args_first, search.args_first), (&twice, search.lookup_twice), (&early, search.early_file)];
        for (before, claim) in sides {
            points.extend(budget.compare(workload(claim), &[before], &after)?);
        }
    }
    let note = "A call is one whole search by glibc's rules, success included: the engine decides everything up to where a \
                kernel would map the program. Looking up twice is faster only where nothing is found, as its authors say: a mere \
                lookup asks nothing about an open file. Where something is found, it costs a lookup, which is little beside \
                everything else, and on a long PATH less than the misses before it gain. \
                The file is allocated late, and once: no pass of a walk needs one. It is accounted before the walk all the same \
                (ENFILE hides ENOENT), since that is what the running kernel answers. The whole-path table remembers that a name \
                is missing.";
    Ok(Outcome { points, note: note.into() })
}
