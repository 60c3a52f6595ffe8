//! What a program needs to start: its verdict is held against the program itself, which is run and starts or does not.
//!
//! Programs and libraries are built with cc(1). Each program calls into its libraries and exits with 0.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fastrand::Rng;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use rcuwalk_explain::report::Load;
use rcuwalk_explain::{Answer, Explainer, Options, Subject, Verdict, What};

/// Questions of the random test.
const QUESTIONS: usize = 250;

/// Why nothing can be tried here, if so.
fn unable() -> bool {
    let root = rustix::process::geteuid().is_root();
    let cc = Command::new("cc").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !root || !cc {
        println!("skipped: this takes root, to run programs as another user, and cc(1)");
    }
    !root || !cc
}

/// A directory with a file system of its own, in a mount namespace of this thread's.
struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Dir {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        let temp = tempfile::tempdir().unwrap();
        mount(Some("none"), temp.path(), Some("tmpfs"), MsFlags::empty(), Some("mode=755")).unwrap();
        let dir = Dir(temp);
        for (name, text) in [
            ("y.c", "int y(void) { return 0; }"),
            ("x.c", "int y(void); int x(void) { return y(); }"),
            ("main.c", "int x(void); int main(void) { return x(); }"),
            ("alone.c", "int main(void) { return 0; }"),
        ] {
            fs::write(dir.path(name), text).unwrap();
        }
        fs::create_dir(dir.path("built")).unwrap();
        dir.cc("-shared -fPIC -Wl,-soname,liby.so y.c -o built/liby.so");
        for (name, tags) in
            [("none", ""), ("rpath", &dir.tags("rpath", "c")), ("runpath", &dir.tags("runpath", "c"))]
        {
            dir.cc(&format!(
                "-shared -fPIC -Wl,-soname,libx.so {tags} x.c built/liby.so -o built/libx-{name}.so"
            ));
            let tags = tags.replace("/c", "/a");
            dir.cc(&format!("{tags} -Wl,-rpath-link,built main.c built/libx-{name}.so -o built/main-{name}"));
        }
        for name in ["a", "b", "c"] {
            fs::create_dir(dir.path(name)).unwrap();
        }
        dir
    }

    /// Options of cc(1) for a search path.
    fn tags(&self, kind: &str, dirs: &str) -> String {
        let new = if kind == "rpath" { "disable" } else { "enable" };
        format!("-Wl,--{new}-new-dtags,-rpath,{}", self.path(dirs).display())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn cc(&self, args: &str) {
        self.compile("cc", args);
    }

    fn compile(&self, compiler: &str, args: &str) {
        let script = format!("{compiler} {args}");
        let done = Command::new("sh").args(["-c", &script]).current_dir(self.0.path()).status().unwrap();
        assert!(done.success(), "{script}");
    }

    fn copy(&self, from: &str, to: &str, mode: u32) {
        fs::copy(self.path(from), self.path(to)).unwrap();
        self.chmod(to, mode);
    }

    fn chmod(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        nix::mount::umount2(self.0.path(), nix::mount::MntFlags::MNT_DETACH).unwrap();
    }
}

/// A fresh directory, and where the program goes; nothing if nothing can be tried here.
fn ready() -> Option<(Dir, PathBuf)> {
    let dir = (!unable()).then(Dir::new)?;
    let program = dir.path("program");
    Some((dir, program))
}

/// Whether the program starts, and runs to its end.
fn starts(path: &Path, library_path: &str) -> bool {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "3000", "--regid", "3000", "--clear-groups", "--inh-caps=-all", "--"]);
    // setpriv itself is not to load anything from there.
    command.arg("env").arg(format!("LD_LIBRARY_PATH={library_path}")).arg(path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

fn explained(path: &Path, library_path: &str) -> Answer {
    let who = Subject { library_path: library_path.into(), ..Subject::of_user("3000:3000").unwrap() };
    let options = Options { verify: true, ..Options::default() };
    let report = Explainer::new(None).unwrap().explain(
        &who,
        path.as_os_str().as_encoded_bytes(),
        &[What::Exec],
        options,
    );
    report.unwrap().answers.remove(0)
}

/// What explain says, which must be what happens.
#[track_caller]
fn judged(path: &Path, library_path: &str) -> Answer {
    let answer = explained(path, library_path);
    let started = starts(path, library_path);
    match answer.verdict {
        Verdict::Allowed => assert!(started, "it does not start: {answer:#?}"),
        Verdict::Denied => assert!(!started, "it starts: {answer:#?}"),
        Verdict::Unknown => {}
    }
    answer
}

#[track_caller]
fn allowed(path: &Path) -> Answer {
    let answer = judged(path, "");
    assert_eq!(answer.verdict, Verdict::Allowed, "{answer:#?}");
    answer
}

#[track_caller]
fn denied(path: &Path, errno: &str, rule: &str) -> Answer {
    let answer = judged(path, "");
    let by = answer.deciding.as_ref().map(|deciding| deciding.rule);
    assert_eq!((answer.verdict, answer.errno, by), (Verdict::Denied, Some(errno), Some(rule)), "{answer:#?}");
    answer
}

#[track_caller]
fn unknown(path: &Path, why: &str) {
    let answer = judged(path, "");
    let text = answer.deciding.as_ref().map_or("", |deciding| &deciding.text);
    assert!(answer.verdict == Verdict::Unknown && text.contains(why), "{answer:#?}");
}

fn library<'a>(answer: &'a Answer, name: &str) -> &'a Load {
    answer.loads.iter().find(|load| load.name.0 == name.as_bytes()).unwrap_or_else(|| panic!("{answer:#?}"))
}

#[test]
fn libraries_are_read_and_mapped() {
    let Some((dir, program)) = ready() else { return };
    dir.copy("built/main-rpath", "program", 0o711);
    dir.copy("built/libx-none.so", "a/libx.so", 0o644);
    dir.copy("built/liby.so", "a/liby.so", 0o644);
    let answer = allowed(&program);
    let shown: Vec<(&str, String)> = answer
        .loads
        .iter()
        .map(|load| (load.role, String::from_utf8_lossy(&load.name.0).into_owned()))
        .collect();
    let expected = [
        ("loader", "/lib64/ld-linux-x86-64.so.2"),
        ("library", "libx.so"),
        ("library", "libc.so.6"),
        ("library", "liby.so"),
    ];
    assert_eq!(shown, expected.map(|(role, name)| (role, name.to_owned())));
    assert_eq!(library(&answer, "liby.so").by.0, dir.path("a/libx.so").as_os_str().as_encoded_bytes());
    assert_eq!(answer.verify.as_ref().unwrap().outcome, "agrees");

    dir.chmod("a/liby.so", 0o600);
    let answer = denied(&program, "EACCES", "permission");
    assert!(answer.fixes.iter().any(|fix| fix.commands[0].starts_with("chmod o+r ")), "{:?}", answer.fixes);
    assert_eq!(library(&answer, "liby.so").verdict, Verdict::Denied);
    assert_eq!(library(&answer, "libx.so").verdict, Verdict::Allowed);
    fs::remove_file(dir.path("a/liby.so")).unwrap();
    denied(&program, "ENOENT", "missing-library");
    dir.copy("built/liby.so", "a/liby.so", 0o004);
    allowed(&program);
    dir.chmod("a", 0o700);
    denied(&program, "EACCES", "permission");
    dir.chmod("a", 0o711);
    allowed(&program);

    // A library that must not be mapped is not passed over.
    fs::create_dir(dir.path("noexec")).unwrap();
    mount(Some("none"), &dir.path("noexec"), Some("tmpfs"), MsFlags::MS_NOEXEC, Some("mode=755")).unwrap();
    dir.copy("built/liby.so", "noexec/liby.so", 0o644);
    dir.cc(&format!(
        "-shared -fPIC -Wl,-soname,libx.so {} x.c built/liby.so -o a/libx.so",
        dir.tags("rpath", "noexec")
    ));
    denied(&program, "EPERM", "noexec");
    nix::mount::umount2(&dir.path("noexec"), nix::mount::MntFlags::MNT_DETACH).unwrap();
    allowed(&program);
}

#[test]
fn a_file_that_is_no_library_ends_the_search_or_not() {
    let Some((dir, program)) = ready() else { return };
    dir.cc(&format!(
        "{} -Wl,-rpath-link,built main.c built/libx-none.so -o program",
        dir.tags("runpath", "b").replace("/b", "/b:'$ORIGIN'/a")
    ));
    dir.copy("built/libx-none.so", "a/libx.so", 0o644);
    // What libx.so needs is not found by the path of the program: DT_RUNPATH is for its own needs.
    dir.copy("built/liby.so", "a/liby.so", 0o644);
    denied(&program, "ENOENT", "missing-library");
    dir.copy("built/libx-rpath.so", "a/libx.so", 0o644);
    dir.copy("built/liby.so", "c/liby.so", 0o644);
    allowed(&program);
    fs::write(
        dir.path("b/libx.so"),
        b"\x7fELF\x01\x01\x01 of another machine, and as long as a header has to be at least........",
    )
    .unwrap();
    allowed(&program);
    fs::write(dir.path("b/libx.so"), "INPUT(libx.so.1)").unwrap();
    denied(&program, "ELIBBAD", "not-a-library");
    dir.chmod("b/libx.so", 0o600);
    allowed(&program);
    dir.cc("-pie -fPIE alone.c -o b/libx.so");
    denied(&program, "ELIBBAD", "not-a-library");
    fs::remove_file(dir.path("b/libx.so")).unwrap();
    fs::create_dir(dir.path("b/libx.so")).unwrap();
    denied(&program, "ELIBBAD", "not-a-library");
}

#[test]
fn the_environment_counts_as_far_as_it_is_given() {
    let Some((dir, program)) = ready() else { return };
    dir.copy("built/main-none", "program", 0o755);
    dir.copy("built/libx-runpath.so", "b/libx.so", 0o644);
    dir.copy("built/liby.so", "c/liby.so", 0o644);
    denied(&program, "ENOENT", "missing-library");
    let list = format!("{}:{}", dir.path("a").display(), dir.path("b").display());
    assert_eq!(judged(&program, &list).verdict, Verdict::Allowed);
    // A program with privileges does not look at it, nor at what $ORIGIN stands for.
    chown(&program, Some(0), Some(0)).unwrap();
    dir.chmod("program", 0o4755);
    assert_eq!(judged(&program, &list).verdict, Verdict::Denied);
    dir.copy("built/main-rpath", "program", 0o4755);
    dir.copy("built/libx-runpath.so", "a/libx.so", 0o600);
    let answer = allowed(&program);
    assert!(answer.notes.iter().any(|note| note.contains("user root")), "{:?}", answer.notes);
    dir.cc(&format!(
        "{} -Wl,-rpath-link,built main.c built/libx-none.so -o program",
        dir.tags("rpath", "a").replace(&*dir.path("a").to_string_lossy(), "'$ORIGIN/a'")
    ));
    allowed_with(&program, 0o755, &dir);
    dir.chmod("program", 0o4755);
    unknown(&program, "$ORIGIN");
}

#[track_caller]
fn allowed_with(program: &Path, mode: u32, dir: &Dir) {
    dir.chmod("a/libx.so", 0o644);
    fs::set_permissions(program, Permissions::from_mode(mode)).unwrap();
    allowed(program);
}

#[test]
fn the_cache_and_the_processor_choose() {
    let Some((dir, program)) = ready() else { return };
    dir.copy("built/main-none", "program", 0o755);
    dir.copy("built/libx-runpath.so", "b/libx.so", 0o644);
    dir.copy("built/liby.so", "c/liby.so", 0o644);
    fs::write(dir.path("conf"), format!("{}\n", dir.path("b").display())).unwrap();
    let made = Command::new("ldconfig")
        .arg("-C")
        .arg(dir.path("cache"))
        .arg("-f")
        .arg(dir.path("conf"))
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) || !Path::new("/etc/ld.so.cache").exists() {
        return println!("skipped: there is no ldconfig, or no cache");
    }
    denied(&program, "ENOENT", "missing-library");
    mount(Some(&dir.path("cache")), "/etc/ld.so.cache", None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .unwrap();
    let answer = allowed(&program);
    assert_eq!(
        library(&answer, "libx.so").path.as_ref().unwrap().0,
        dir.path("b/libx.so").as_os_str().as_encoded_bytes()
    );
    dir.chmod("cache", 0o600);
    denied(&program, "ENOENT", "missing-library");
    dir.chmod("cache", 0o644);
    dir.chmod("b/libx.so", 0o600);
    denied(&program, "EACCES", "permission");
    dir.chmod("b/libx.so", 0o644);
    // A library for this processor comes before the plain one: this one needs what is not there.
    let sub = dir.path("c/glibc-hwcaps/x86-64-v2");
    fs::create_dir_all(&sub).unwrap();
    dir.cc("-shared -fPIC -Wl,-soname,libgone.so alone.c -o built/libgone.so");
    dir.cc(&format!("-shared -fPIC -Wl,--no-as-needed y.c built/libgone.so -o {}/liby.so", sub.display()));
    let used = !starts(&program, "");
    println!("the processor uses x86-64-v2: {used}");
    judged(&program, "");
    assert_eq!(explained(&program, "").verdict == Verdict::Denied, used);
    // Before glibc 2.37 other names stood for processors.
    fs::remove_dir_all(dir.path("c/glibc-hwcaps")).unwrap();
    fs::create_dir(dir.path("c/haswell")).unwrap();
    unknown(&program, "suit the processor");
}

#[test]
fn scripts_are_read_by_their_interpreters() {
    let Some((dir, _)) = ready() else { return };
    let script = dir.path("script");
    fs::write(&script, "#!/bin/sh\nexit 0\n").unwrap();
    dir.chmod("script", 0o755);
    let answer = allowed(&script);
    let roles: Vec<&str> = answer.loads.iter().map(|load| load.role).collect();
    assert_eq!(roles, ["interpreter", "script", "loader", "library"], "{answer:#?}");
    dir.chmod("script", 0o711);
    let answer = denied(&script, "EACCES", "permission");
    assert!(!answer.fixes.is_empty());
    // Whether a program reads the script that it is named in is its own business.
    fs::write(&script, "#!/bin/true\n").unwrap();
    unknown(&script, "whether /bin/true reads the script");
    dir.copy("built/main-none", "interpreter", 0o755);
    fs::write(&script, format!("#!{}\n", dir.path("interpreter").display())).unwrap();
    dir.chmod("script", 0o755);
    denied(&script, "ENOENT", "missing-library");
}

#[test]
fn what_needs_no_libraries_says_so() {
    let Some((dir, program)) = ready() else { return };
    for options in ["-static", "-static-pie"] {
        dir.cc(&format!("{options} alone.c -o program"));
        let answer = allowed(&program);
        assert!(
            answer.loads.is_empty() && answer.notes.iter().any(|note| note.contains("statically")),
            "{answer:#?}"
        );
    }
    // A loader whose rules nobody knows: glibc's, without what it is known by.
    let loader = fs::read("/lib64/ld-linux-x86-64.so.2").unwrap();
    let text = b"glibc-ld.so.cache1.1";
    let at = loader.windows(text.len()).position(|it| it == text).unwrap();
    fs::write(dir.path("loader"), [&loader[..at], b"GLIBC", &loader[at + 5..]].concat()).unwrap();
    dir.chmod("loader", 0o755);
    dir.cc(&format!("-Wl,--dynamic-linker,{} alone.c -o program", dir.path("loader").display()));
    unknown(&program, "neither glibc's loader nor musl's");
}

#[test]
fn musl_looks_by_rules_of_its_own() {
    if unable() {
        return;
    }
    if Command::new("musl-gcc").arg("--version").stdout(Stdio::null()).status().is_err() {
        return println!("skipped: there is no musl-gcc");
    }
    let dir = Dir::new();
    let program = dir.path("program");
    dir.compile("musl-gcc", "-shared -fPIC -Wl,-soname,liby.so y.c -o b/liby.so");
    dir.compile("musl-gcc", "-shared -fPIC x.c b/liby.so -Wl,-soname,libx.so -o a/libx.so");
    let tags = format!("{}:'$ORIGIN/b'", dir.tags("runpath", "a"));
    dir.compile("musl-gcc", &format!("{tags} -Wl,--allow-shlib-undefined main.c a/libx.so -o program"));
    // The path of the program counts for what its libraries need, too.
    let answer = allowed(&program);
    assert_eq!(answer.loads[0].name.0, b"/lib/ld-musl-x86_64.so.1");
    assert!(answer.loads.iter().any(|load| load.name.0.ends_with(b"liby.so")), "{answer:#?}");
    dir.chmod("b/liby.so", 0o600);
    denied(&program, "EACCES", "permission");
    fs::remove_file(dir.path("b/liby.so")).unwrap();
    denied(&program, "ENOENT", "missing-library");
    assert_eq!(judged(&program, &dir.path("c").display().to_string()).verdict, Verdict::Denied);
    dir.compile("musl-gcc", "-shared -fPIC y.c -o c/liby.so");
    assert_eq!(judged(&program, &dir.path("c").display().to_string()).verdict, Verdict::Allowed);
    fs::copy(dir.path("c/liby.so"), dir.path("b/liby.so")).unwrap();
    // What is for another machine ends the search here, where glibc's goes on.
    fs::write(dir.path("a/liby.so"), [b"\x7fELF\x01".as_slice(), &[0; 100]].concat()).unwrap();
    denied(&program, "ELIBBAD", "not-a-library");
}

#[test]
fn what_is_cut_short_is_not_known_to_start() {
    let Some((dir, program)) = ready() else { return };
    let cut = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 4]).unwrap();
    };
    for options in ["", "-static"] {
        dir.cc(&format!("{options} alone.c -o program"));
        allowed(&program);
        cut(&program);
        assert!(!starts(&program, ""));
        unknown(&program, "ends before");
    }
    dir.copy("built/main-rpath", "program", 0o755);
    dir.copy("built/libx-none.so", "a/libx.so", 0o644);
    dir.copy("built/liby.so", "a/liby.so", 0o644);
    allowed(&program);
    cut(&dir.path("a/liby.so"));
    unknown(&program, "ends before");
}

/// Programs and libraries at random places, with random permissions.
#[test]
fn random_programs_start_or_not() {
    let Some((dir, _)) = ready() else { return };
    let seed = std::env::var("RCUWALK_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(15);
    println!("RCUWALK_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let mut counts = [0; 3];
    for at in 0..QUESTIONS {
        let kinds = ["none", "rpath", "runpath"];
        dir.copy(
            &format!("built/main-{}", rng.choice(kinds).unwrap()),
            "program",
            *rng.choice(&[0o755, 0o711, 0o4755]).unwrap(),
        );
        for place in ["a", "b", "c"] {
            dir.chmod(place, 0o755);
            for (name, built) in [
                ("libx.so", format!("libx-{}.so", rng.choice(kinds).unwrap())),
                ("liby.so", "liby.so".into()),
            ] {
                let to = format!("{place}/{name}");
                let _ = fs::remove_file(dir.path(&to));
                match rng.u8(..12) {
                    0..2 => {}
                    2 => fs::write(dir.path(&to), "").unwrap(),
                    3 => fs::write(dir.path(&to), [b"\x7fELF\x01".as_slice(), &[0; 100]].concat()).unwrap(),
                    4 => std::os::unix::fs::symlink("nowhere", dir.path(&to)).unwrap(),
                    _ => dir.copy(
                        &format!("built/{built}"),
                        &to,
                        *rng.choice(&[0o644, 0o644, 0o600, 0o050]).unwrap(),
                    ),
                }
            }
            dir.chmod(place, *rng.choice(&[0o755, 0o755, 0o711, 0o700]).unwrap());
        }
        let lists = ["", "b", "c", "b:c"].map(|list| {
            let dirs = list
                .split(':')
                .filter(|dir| !dir.is_empty())
                .map(|name| dir.path(name).display().to_string());
            dirs.collect::<Vec<_>>().join(":")
        });
        println!("question {at}");
        let answer = judged(&dir.path("program"), rng.choice(&lists).unwrap());
        counts[answer.verdict as usize] += 1;
    }
    println!("allowed, denied, unknown: {counts:?}");
    assert!(counts[0] > QUESTIONS / 10 && counts[1] > QUESTIONS / 10 && counts[2] == 0, "{counts:?}");
}
