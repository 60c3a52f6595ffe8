//! Random questions in all sorts of situations, and the real call as the judge: no answer is *allowed* or *denied* that the
//! machine answers otherwise. What is *unknown* is counted apart.
//!
//! `RCUWALK_SITUATIONS=N` asks N questions, `RCUWALK_SEED=N` others, and `RCUWALK_BLESS=1` puts the table into `docs/explain.md`. All that is mounted is mounted in a namespace of the test's own, and goes with it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use fastrand::Rng;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use rcuwalk_explain::{Explainer, Options, Subject, Verdict, What};
use rustix::fs::{CWD, FileType, IFlags, Mode, OFlags};

/// Questions, unless the environment says otherwise.
const QUESTIONS: usize = 5_200;

const IDS: [u32; 5] = [0, 3000, 3001, 3002, 3003];

/// What ends with the test.
#[derive(Default)]
struct Kept {
    listeners: Vec<UnixListener>,
    datagrams: Vec<UnixDatagram>,
    processes: Vec<Child>,
    /// What does not go by itself, as its server or its loop device keeps the namespace.
    mounts: Vec<PathBuf>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.listeners.clear();
        self.datagrams.clear();
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        for point in &self.mounts {
            assert!(sh(&format!("umount {}", point.display())), "{} is still in use", point.display());
        }
    }
}

fn set_flags(path: &Path, flags: IFlags) -> bool {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
    file.and_then(|file| rustix::fs::ioctl_setflags(&file, flags)).is_ok()
}

/// A tree of everything that a path can lead to, with random owners, modes, ACLs and flags.
fn generate(rng: &mut Rng, top: &Path, kept: &mut Kept) -> Vec<PathBuf> {
    std::fs::create_dir_all(top).unwrap();
    let (mut dirs, mut all) = (vec![top.to_owned()], Vec::new());
    for at in 0..12 {
        let dir = rng.choice(&dirs).unwrap().join(format!("d{at}"));
        std::fs::create_dir(&dir).unwrap();
        dirs.push(dir.clone());
        all.push(dir);
    }
    let node = |path: &Path, kind, dev| {
        rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o666), dev).unwrap()
    };
    for at in 0..44 {
        let path = rng.choice(&dirs).unwrap().join(format!("f{at}"));
        match at % 11 {
            0 => symlink(rng.choice(&all).unwrap(), &path).unwrap(),
            1 => std::fs::write(&path, "#!/bin/sh\n").unwrap(),
            2 => drop(std::fs::copy("/bin/true", &path).unwrap()),
            3 => std::fs::write(&path, format!("#!{}\n", rng.choice(&all).unwrap().display())).unwrap(),
            4 => node(&path, FileType::Fifo, 0),
            5 if path.as_os_str().len() < 100 && at % 2 == 1 => {
                kept.listeners.push(UnixListener::bind(&path).unwrap())
            }
            5 => kept.datagrams.push(UnixDatagram::bind(&path).unwrap()),
            6 => node(&path, FileType::CharacterDevice, rustix::fs::makedev(1, [3, 5, 1][at % 3])),
            7 => node(&path, FileType::CharacterDevice, rustix::fs::makedev(5, 0)),
            _ => std::fs::write(&path, "some text").unwrap(),
        }
        all.push(path);
    }
    let modes = [0o755, 0o750, 0o700, 0o711, 0o1777, 0o770, 0o751, 0o777, 0o055, 0o2775];
    for path in &all {
        lchown(path, Some(*rng.choice(&IDS).unwrap()), Some(*rng.choice(&IDS).unwrap())).unwrap();
        if path.is_symlink() {
            continue;
        }
        let mode = if path.is_dir() { *rng.choice(&modes).unwrap() } else { rng.usize(..0o1_000) as u32 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        if rng.usize(..4) == 0 {
            let letters: String = ["r", "w", "x"].into_iter().filter(|_| rng.usize(..2) == 0).collect();
            let entry = format!(
                "u:{}:{letters},g:{}:rx,m::{}",
                rng.choice(&IDS).unwrap(),
                rng.choice(&IDS).unwrap(),
                rng.usize(..8)
            );
            // Where there are no ACLs there are simply none.
            let _ = Command::new("setfacl").args(["-m", &entry]).arg(path).stderr(Stdio::null()).status();
        }
    }
    for path in all.iter().filter(|path| path.symlink_metadata().unwrap().is_file()) {
        let flags = match rng.usize(..8) {
            0 => IFlags::IMMUTABLE,
            1 => IFlags::APPEND,
            _ => continue,
        };
        // Where there are no such flags there are simply none.
        let _ = set_flags(path, flags);
    }
    std::fs::set_permissions(top, std::fs::Permissions::from_mode(0o777)).unwrap();
    all
}

/// A kind of situation, and paths of it.
struct Situation {
    kind: &'static str,
    paths: Vec<PathBuf>,
    /// The calls may make and move things there.
    changes: bool,
}

fn sh(script: &str) -> bool {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    if !output.status.success() {
        println!("left out: {script}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    output.status.success()
}

fn oracle() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/situations/oracle.py")
}

/// The same places below another mount.
fn moved(paths: &[PathBuf], from: &Path, to: &Path) -> Vec<PathBuf> {
    paths.iter().map(|path| to.join(path.strip_prefix(from).unwrap())).collect()
}

fn situations(rng: &mut Rng, base: &Path, kept: &mut Kept) -> Vec<Situation> {
    let mut all = Vec::new();
    let mut add = |kind, paths, changes| all.push(Situation { kind, paths, changes });
    let at = |name: &str| {
        let path = base.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    };
    let tree = at("tmpfs");
    let paths = generate(rng, &tree.join("t"), kept);
    for (kind, options) in [
        ("bind mount, ro", "ro"),
        ("bind mount, noexec", "noexec"),
        ("bind mount, nodev", "nodev"),
        ("bind mount, nosymfollow", "nosymfollow"),
    ] {
        let point = at(options);
        if sh(&format!(
            "mount --bind {0} {1}; mount -o remount,bind,{options} {1}",
            tree.display(),
            point.display()
        )) {
            add(kind, moved(&paths, &tree, &point), options != "ro");
        }
    }
    let point = at("idmapped");
    let mapper = Command::new("unshare").args(["--user", "sleep", "600"]).spawn().unwrap();
    let pid = mapper.id();
    kept.processes.push(mapper);
    let own = std::fs::read_link("/proc/self/ns/user").unwrap();
    while std::fs::read_link(format!("/proc/{pid}/ns/user")).unwrap() == own {
        std::thread::yield_now();
    }
    // 3000 and 3001 change places; all above 3003 have no id.
    for map in ["uid_map", "gid_map"] {
        std::fs::write(format!("/proc/{pid}/{map}"), "0 0 1\n3000 3001 1\n3001 3000 1\n3002 3002 1\n")
            .unwrap();
    }
    let mapped = format!(
        "/usr/bin/python3 {} idmapped {} {} {pid}",
        oracle().display(),
        tree.display(),
        point.display()
    );
    if sh(&mapped) {
        add("idmapped mount", moved(&paths, &tree, &point), true);
    }
    add("tmpfs", paths, true);
    let point = at("ext4");
    let image = base.join("image");
    let made = format!(
        "truncate -s 64M {0}; mkfs.ext4 -q {0}; mount -o loop {0} {1}; chmod 777 {1}",
        image.display(),
        point.display()
    );
    if sh(&made) {
        add("ext4", generate(rng, &point.join("t"), kept), true);
        kept.mounts.push(point);
    }
    let (lower, upper, point) = (at("lower"), at("upper"), at("overlay"));
    let paths = generate(rng, &lower.join("t"), kept);
    sh(&format!("mkdir {0}/u {0}/w; chmod 777 {0}/u", upper.display()));
    let dirs = format!("lowerdir={},upperdir={1}/u,workdir={1}/w", lower.display(), upper.display());
    if sh(&format!("mount -t overlay -o {dirs} none {}", point.display())) {
        add("overlay", moved(&paths, &lower, &point), true);
    }
    let point = at("overlay-without-upper");
    let dirs = format!("lowerdir={}:{}", lower.display(), upper.display());
    if sh(&format!("mount -t overlay -o {dirs} none {}", point.display())) {
        add("overlay without upper", moved(&paths, &lower, &point), false);
    }
    let binary = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("rcuwalk");
    if binary.exists() {
        let point = at("fuse");
        let paths = generate(rng, &at("served").join("t"), kept);
        let log = std::fs::File::create(base.join("fuse.log")).unwrap();
        let mut command = Command::new(&binary);
        command
            .arg("mount")
            .arg(base.join("served"))
            .arg(&point)
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        // The server goes on behind it, and ends when it is unmounted.
        if command.status().is_ok_and(|status| status.success()) {
            add("FUSE of root", moved(&paths, &base.join("served"), &point), false);
            kept.mounts.insert(0, point);
        } else {
            println!(
                "left out: FUSE: {}",
                std::fs::read_to_string(base.join("fuse.log")).unwrap_or_default()
            );
        }
    } else {
        println!("left out: FUSE: {} is not built", binary.display());
    }
    let list = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    let proc = [
        "/proc/version",
        "/proc/1/environ",
        "/proc/1/root",
        "/proc/self/status",
        "/proc/sys/kernel/hostname",
        "/proc/kallsyms",
        "/proc/sys/vm/drop_caches",
        "/proc/1/mem",
        "/proc",
        "/proc/1/fd",
        "/proc/sysrq-trigger",
        "/proc/meminfo",
    ];
    add("/proc", list(&proc), false);
    let sys = [
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/class",
        "/sys/power/state",
        "/sys/kernel/uevent_seqnum",
        "/sys/devices/system/cpu/online",
        "/sys/fs/cgroup/cgroup.procs",
        "/sys/kernel/notes",
    ];
    add("/sys", list(&sys), false);
    let dev = [
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/tty",
        "/dev/kmsg",
        "/dev/mem",
        "/dev/ptmx",
        "/dev/fuse",
    ];
    add("/dev", list(&dev), false);
    all
}

/// Waits for a process to be in a user namespace of its own, and gives that its maps.
fn give_maps(pid: u32, map: &str) {
    let own = std::fs::read_link("/proc/self/ns/user").unwrap();
    while std::fs::read_link(format!("/proc/{pid}/ns/user")).unwrap() == own {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    for file in ["uid_map", "gid_map"] {
        std::fs::write(format!("/proc/{pid}/{file}"), map).unwrap();
    }
}

/// A process that makes calls as a user, or as what else it was made.
struct Caller {
    kind: &'static str,
    who: Subject,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Caller {
    /// Starts the oracle behind `prefix`. With `text`, what it is is judged as such a user; otherwise as the process.
    fn start(
        kind: &'static str,
        prefix: &str,
        text: Option<&str>,
        end: &str,
        kept: &mut Kept,
    ) -> Option<Caller> {
        let script = format!("exec {prefix} /usr/bin/python3 {} {end}", oracle().display());
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let pid = child.id() as i32;
        kept.processes.push(child);
        if prefix.contains("--user") {
            give_maps(pid as u32, "0 3000 4\n");
            writeln!(input, "go").unwrap();
        }
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        if line.trim() != "ready" {
            println!("left out: {script}");
            return None;
        }
        let who = match text {
            Some(text) => Subject::of_user(text).unwrap(),
            None => Subject::of_process(pid).unwrap(),
        };
        Some(Caller { kind, who, input, output })
    }

    /// The machine's answer: 0, or an error number.
    fn ask(&mut self, op: &str, path: &Path, arg: &serde_json::Value) -> i32 {
        writeln!(self.input, "{}", serde_json::json!([op, path, arg])).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().parse().unwrap_or_else(|_| panic!("the oracle ended at {op} {}: {line}", path.display()))
    }
}

fn callers(base: &Path, kept: &mut Kept) -> Vec<Caller> {
    let ids = "--reuid 3000 --regid 3000";
    let mut all = vec![
        ("users", format!("setpriv {ids} --clear-groups --inh-caps=-all"), Some("3000:3000"), String::new()),
        (
            "users",
            format!("setpriv {ids} --groups 3001,3002 --inh-caps=-all"),
            Some("3000:3000,3001,3002"),
            String::new(),
        ),
        (
            "users",
            "setpriv --reuid 3003 --regid 3002 --clear-groups --inh-caps=-all".into(),
            Some("3003:3002"),
            String::new(),
        ),
        ("users", "setpriv --reuid 3001 --regid 3001 --groups 0 --inh-caps=-all".into(), None, String::new()),
        ("root", String::new(), Some("0:0"), String::new()),
    ];
    for (cap, text) in [
        ("dac_override", "3000:3000+dac_override"),
        ("dac_read_search", "3000:3000+dac_read_search"),
        ("fowner", "3000:3000+fowner"),
    ] {
        let prefix =
            format!("setpriv {ids} --clear-groups --inh-caps=-all,+{cap} --ambient-caps=-all,+{cap}");
        all.push(("capabilities given", prefix, Some(text), String::new()));
    }
    for caps in ["-dac_override", "-dac_override,-dac_read_search", "-all"] {
        let prefix = format!("setpriv --clear-groups --inh-caps=-all --bounding-set={caps}");
        all.push(("capabilities dropped", prefix, None, String::new()));
    }
    // It waits for its maps, and is root of its namespace then.
    let prefix = "unshare --user --keep-caps sh -c 'read go; exec setpriv --reuid 0 --regid 0 --clear-groups \"$@\"' sh";
    all.push(("user namespace", prefix.to_owned(), None, String::new()));
    let landlock = format!("landlock {}", base.join("tmpfs").display());
    all.push((
        "Landlock",
        format!("setpriv {ids} --clear-groups --inh-caps=-all --no-new-privs"),
        None,
        landlock,
    ));
    let start = |(kind, prefix, text, end): (&'static str, String, Option<&str>, String)| {
        Caller::start(kind, &prefix, text, &end, kept)
    };
    all.into_iter().filter_map(start).collect()
}

/// What is asked of explain, and of the oracle.
fn question(rng: &mut Rng, path: &Path, changes: bool) -> (What, &'static str, serde_json::Value) {
    let none = serde_json::Value::Null;
    match rng.usize(..if changes { 13 } else { 9 }) {
        0..3 => (What::Read, "read", none),
        3 | 4 if changes || !path.is_dir() => (What::Write, "write", none),
        3..6 => {
            let mode = 1 + rng.usize(..7) as i32;
            (What::Access(mode), "access", mode.into())
        }
        6 => (What::Stat, "stat", none),
        7 => (What::Connect, "connect", none),
        8 if path.starts_with("/proc") || path.starts_with("/sys") || path.starts_with("/dev") => {
            (What::Stat, "stat", none)
        }
        8 | 9 => (What::Exec, "exec", none),
        10 => (What::Create, "create", none),
        11 => (What::SetXattr(b"user.x".to_vec()), "setxattr", "user.x".into()),
        _ => {
            let to = [path.as_os_str().as_encoded_bytes(), b".moved"].concat();
            (What::RenameTo(to), "rename", none)
        }
    }
}

/// Puts back what the oracle moved, or made and could not take away.
fn undo(path: &Path, op: &str, existed: bool) {
    let made = path.join("made-by-the-oracle");
    match op {
        "rename" => {
            let to = PathBuf::from(format!("{}.moved", path.display()));
            if to.symlink_metadata().is_ok() {
                std::fs::rename(to, path).unwrap();
            }
        }
        "create" if !existed => drop(std::fs::remove_file(path)),
        "write" if made.exists() => std::fs::remove_dir(made).unwrap(),
        _ => {}
    }
}

#[derive(Default, Clone, Copy)]
struct Row {
    allowed: usize,
    denied: usize,
    unknown: usize,
    falsely_allowed: usize,
    falsely_denied: usize,
    other_error: usize,
}

fn table_of(table: &BTreeMap<(u8, &str), Row>) -> String {
    let mut text = String::from(
        "| situation | allowed | denied | unknown | falsely allowed | falsely denied | another error |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|\n");
    for ((_, kind), row) in table {
        let Row { allowed, denied, unknown, falsely_allowed, falsely_denied, other_error } = row;
        text += &format!(
            "| {kind} | {allowed} | {denied} | {unknown} | {falsely_allowed} | {falsely_denied} | {other_error} |\n"
        );
    }
    text
}

/// Puts the table into the document, between its marks.
fn write_table(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explain.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("<!-- situations -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- /situations -->").unwrap();
    std::fs::write(path, format!("{before}<!-- situations -->\n{table}<!-- /situations -->{after}")).unwrap();
}

#[test]
fn no_answer_is_false() {
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/python3").exists() {
        println!("skipped: it takes root, to mount and to ask as other users, and Python, to ask");
        return;
    }
    if let Err(e) = unshare(CloneFlags::CLONE_NEWNS) {
        println!("skipped: no mount namespace of its own: {e}");
        return;
    }
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    // A place that everybody reaches by a short path.
    let base = Path::new("/mnt");
    mount(Some("situations"), base, Some("tmpfs"), MsFlags::empty(), Some("mode=755")).unwrap();
    let count = std::env::var("RCUWALK_SITUATIONS").ok().map_or(QUESTIONS, |n| n.parse().expect("a number"));
    let seed = std::env::var("RCUWALK_SEED").ok().map_or(0, |n| n.parse::<u64>().expect("a number"));
    let (mut rng, mut kept) = (Rng::with_seed(0x5eed_0003 + seed), Kept::default());
    let situations = situations(&mut rng, base, &mut kept);
    let mut callers = callers(base, &mut kept);
    let mut table: BTreeMap<(u8, &str), Row> = BTreeMap::new();
    let mut wrong = Vec::new();
    for _ in 0..count {
        let situation = &situations[rng.usize(..situations.len())];
        let path = rng.choice(&situation.paths).unwrap().clone();
        let path = if situation.changes && rng.usize(..10) == 0 { path.join("new") } else { path };
        let caller_at = rng.usize(..callers.len());
        let caller = &mut callers[caller_at];
        let (what, op, arg) = question(&mut rng, &path, situation.changes);
        let existed = path.symlink_metadata().is_ok();
        let explainer = Explainer::new(caller.who.pid).unwrap();
        let bytes = path.as_os_str().as_encoded_bytes();
        let options = Options { fixes: false, verify: false };
        let report = explainer.explain(&caller.who, bytes, std::slice::from_ref(&what), options).unwrap();
        let answer = &report.answers[0];
        let errno = caller.ask(op, &path, &arg);
        undo(&path, op, existed);
        let mut row = Row::default();
        match (answer.verdict, errno) {
            (Verdict::Unknown, _) => row.unknown = 1,
            (Verdict::Allowed, 0) => row.allowed = 1,
            (Verdict::Allowed, _) => row.falsely_allowed = 1,
            (Verdict::Denied, 0) => row.falsely_denied = 1,
            (Verdict::Denied, errno) => {
                row.denied = 1;
                let told = rcuwalk::Errno::from_raw(errno).map(rcuwalk::Errno::name);
                row.other_error = usize::from(op != "access" && told != answer.errno);
            }
        }
        if row.falsely_allowed + row.falsely_denied + row.other_error > 0 {
            wrong.push(format!(
                "{} in {}: {what:?} {}: {:?} {:?} {:?}, and the machine says {:?}",
                caller.kind,
                situation.kind,
                path.display(),
                answer.verdict,
                answer.errno,
                answer.deciding,
                rcuwalk::Errno::from_raw(errno),
            ));
        }
        for key in [(0, situation.kind), (1, caller.kind), (2, "all")] {
            let sum = table.entry(key).or_default();
            sum.allowed += row.allowed;
            sum.denied += row.denied;
            sum.unknown += row.unknown;
            sum.falsely_allowed += row.falsely_allowed;
            sum.falsely_denied += row.falsely_denied;
            sum.other_error += row.other_error;
        }
    }
    let text = table_of(&table);
    println!("{text}");
    if std::env::var_os("RCUWALK_BLESS").is_some() {
        write_table(&text);
    }
    drop(callers);
    drop(kept);
    let all = table[&(2, "all")];
    wrong.iter().take(40).for_each(|text| println!("{text}"));
    assert_eq!((all.falsely_allowed, all.falsely_denied), (0, 0), "of {count}");
    assert!(all.allowed > count / 10 && all.denied > count / 10, "too few of one kind");
}
