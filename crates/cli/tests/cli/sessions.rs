//! The sessions of `docs/explain.md`: their commands are run, and what `rcuwalk` says must be what the document says.
//!
//! `RCUWALK_BLESS=1` writes what it says into the document instead.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use rcuwalk::acl::{
    ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER, ACL_USER_OBJ, Acl, AclEntry, UncheckedAcl,
    posix_acl_from_xattr,
};
use rcuwalk::userns::UserNamespace;

const PLACE: &str = "/srv";
const ACL: &str = "system.posix_acl_access";

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explain.md")
}

/// A command and the lines that the document shows below it.
struct Exchange {
    command: String,
    shown: Vec<String>,
}

/// Where the block of a section begins and ends, in lines, and what is in it.
fn session(text: &str, number: usize) -> (usize, usize, Vec<Exchange>) {
    let lines: Vec<&str> = text.lines().collect();
    let find = |from: usize, wanted: &dyn Fn(&str) -> bool| {
        (from..lines.len()).find(|&at| wanted(lines[at])).expect("the document has its ten sessions")
    };
    let section = find(0, &|line| line.starts_with(&format!("### {number}. ")));
    let start = find(section, &|line| line == "```console") + 1;
    let end = find(start, &|line| line == "```");
    let mut exchanges: Vec<Exchange> = Vec::new();
    for line in &lines[start..end] {
        match line.strip_prefix("# ") {
            Some(command) => exchanges.push(Exchange { command: command.to_owned(), shown: Vec::new() }),
            None => exchanges.last_mut().expect("a command comes first").shown.push((*line).to_owned()),
        }
    }
    (start, end, exchanges)
}

/// What does not differ between machines: without column widths, process numbers, and places outside of this one.
fn essence(lines: &[String]) -> Vec<String> {
    let mut numbered = false;
    let mut word = |word: &str| {
        let digits = std::mem::replace(&mut numbered, word == "process");
        let bare = word.trim_end_matches([',', ';']);
        if digits && bare.parse::<u32>().is_ok() { word.replace(bare, "N") } else { word.to_owned() }
    };
    let lines = lines.iter().map(|line| line.split_whitespace().map(&mut word).collect::<Vec<_>>().join(" "));
    let elsewhere = |line: &str| {
        let row = line.trim_start_matches("> ");
        row.starts_with('/') && !row.starts_with(PLACE)
            || ["loader ", "library "].iter().any(|role| row.starts_with(role)) && !row.contains(PLACE)
    };
    lines.filter(|line| !line.is_empty() && !elsewhere(line)).collect()
}

/// The tools that the sessions use and that a machine may lack; `setfacl` is replaced if it is missing.
fn missing_tool(exchanges: &[Exchange]) -> Option<&str> {
    let tools = ["chattr", "setpriv", "unshare", "sysctl", "mkfifo"];
    let used =
        |tool: &&str| exchanges.iter().any(|it| it.command.split_whitespace().any(|word| word == *tool));
    tools.into_iter().filter(used).find(|tool| !has(tool))
}

fn has(tool: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output();
    found.is_ok_and(|output| output.status.success())
}

/// Runs one command in the place, and gives the lines that it writes.
fn run(command: &str) -> Vec<String> {
    if command.starts_with("setfacl ") && !has("setfacl") {
        setfacl(command);
        return Vec::new();
    }
    let bin = Path::new(env!("CARGO_BIN_EXE_rcuwalk")).parent().unwrap().display().to_string();
    let path = format!("{bin}:/usr/sbin:/sbin:{}", std::env::var("PATH").unwrap_or_default());
    let mut sh = Command::new("sh");
    sh.args(["-c", command]).current_dir(PLACE).env("PATH", path).env_remove("NO_COLOR");
    let output = sh.output().expect("a shell");
    let told = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
    let expected = if command.starts_with("rcuwalk") { [0, 1].as_slice() } else { &[0] };
    assert!(output.status.code().is_some_and(|code| expected.contains(&code)), "{command}: {told}");
    told.lines().map(str::to_owned).collect()
}

/// `setfacl -m SPEC FILE`, where the program is not installed.
fn setfacl(command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    let [_, "-m", spec, file] = words[..] else { panic!("{command}") };
    let path = Path::new(PLACE).join(file);
    let mut entries = entries_of(&path);
    let (who, perm) = spec.rsplit_once(':').unwrap();
    let perm = perm.bytes().zip([4, 2, 1]).filter(|(b, _)| *b != b'-').fold(0, |all, (_, bit)| all | bit);
    if who == "m:" {
        entries.retain(|entry| entry.tag != ACL_MASK);
        entries.push(AclEntry::new(ACL_MASK, perm));
    } else {
        let id = who.strip_prefix("u:").unwrap().parse().unwrap();
        entries.retain(|entry| entry.tag != ACL_MASK && (entry.tag, entry.id) != (ACL_USER, id));
        entries.push(AclEntry::user(id, perm));
        let bounded = entries.iter().filter(|it| !matches!(it.tag, ACL_USER_OBJ | ACL_OTHER));
        let mask = bounded.fold(0, |all, it| all | it.perm);
        entries.push(AclEntry::new(ACL_MASK, mask));
    }
    entries.sort_by_key(|entry| (entry.tag, entry.id));
    let acl: Acl = UncheckedAcl::new(entries).validate(&UserNamespace::init()).unwrap();
    let value = acl.to_xattr(|id| id, |id| id);
    rustix::fs::setxattr(&path, ACL, &value, rustix::fs::XattrFlags::empty()).unwrap();
}

fn entries_of(path: &Path) -> Vec<AclEntry> {
    use std::os::unix::fs::MetadataExt;
    let mut value = vec![0; 1024];
    if let Ok(len) = rustix::fs::getxattr(path, ACL, &mut value[..]) {
        let acl = posix_acl_from_xattr(&value[..len], |id| id, |id| id).unwrap().unwrap();
        return acl.entries().to_vec();
    }
    let mode = path.metadata().unwrap().mode();
    [(ACL_USER_OBJ, 6), (ACL_GROUP_OBJ, 3), (ACL_OTHER, 0)]
        .map(|(tag, shift)| AclEntry::new(tag, (mode >> shift & 7) as u16))
        .to_vec()
}

/// Machine-wide settings, put back however the session ends.
struct Settings(Vec<(PathBuf, String)>);

impl Settings {
    fn keep() -> Settings {
        let names = ["symlinks", "hardlinks", "regular", "fifos"];
        let paths = names.map(|name| PathBuf::from(format!("/proc/sys/fs/protected_{name}")));
        Settings(paths.into_iter().filter_map(|p| std::fs::read_to_string(&p).ok().map(|v| (p, v))).collect())
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        for (path, value) in &self.0 {
            if std::fs::read_to_string(path).ok().as_deref() != Some(value) {
                std::fs::write(path, value.trim()).expect("the setting can be put back");
            }
        }
    }
}

/// A mount namespace of this thread's own, with an empty tmpfs in the place; or why there is none.
fn enter() -> Result<(), String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("only root can mount, and ask as other users".to_owned());
    }
    unshare(CloneFlags::CLONE_NEWNS).map_err(|e| format!("unshare: {e}"))?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(|e| format!("mount: {e}"))?;
    mount(Some("demo"), PLACE, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
        .map_err(|e| format!("mounting {PLACE}: {e}"))
}

/// One session writes machine-wide settings that all of them see, and one document is written.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs the session, and compares.
fn play(number: usize) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let text = std::fs::read_to_string(document()).unwrap();
    let (start, end, exchanges) = session(&text, number);
    if let Some(tool) = missing_tool(&exchanges) {
        println!("skipped: {tool} is not installed");
        return;
    }
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let group = ["nogroup", "daemon"].into_iter().find(|name| !groups.contains(&format!("{name}:")));
    if let Some(name) = group.filter(|name| exchanges.iter().any(|it| it.command.contains(name))) {
        println!("skipped: there is no group {name}");
        return;
    }
    let _settings = Settings::keep();
    if let Err(why) = enter() {
        println!("skipped: {why}");
        return;
    }
    if std::env::var_os("RCUWALK_BLESS").is_some() {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let said =
            exchanges.iter().flat_map(|it| [vec![format!("# {}", it.command)], run(&it.command)].concat());
        lines.splice(start..end, said.collect::<Vec<_>>());
        std::fs::write(document(), lines.join("\n") + "\n").unwrap();
        return;
    }
    let mut asked = Vec::new();
    for Exchange { command, shown } in &exchanges {
        let said = run(command);
        assert_eq!(essence(&said), essence(shown), "{command}\nsaid:\n{}", said.join("\n"));
        if command.starts_with("rcuwalk") {
            asked.push(said.join("\n"));
        }
    }
    let (first, last) = (asked.first().unwrap(), asked.last().unwrap());
    assert!(first.contains(": denied, ") && first.contains("\nfix "), "a refusal, and what helps:\n{first}");
    assert!(number == 6 || last.contains(": allowed"), "what helped:\n{last}");
    assert!(asked.iter().all(|said| said.contains("verify    the host agrees")), "{asked:#?}");
}

macro_rules! sessions {
    ($($number:literal $name:ident;)*) => {
        $(#[test]
        fn $name() {
            // A thread of its own goes into the namespace, and does not come back.
            std::thread::spawn(|| play($number)).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        })*
    };
}

sessions! {
    1 a_parent_without_x;
    2 a_wrong_group;
    3 the_mask_of_an_acl;
    4 the_owners_class;
    5 a_user_namespace;
    6 noexec_and_read_only_mounts;
    7 protected_symlinks;
    8 an_immutable_file;
    9 root_without_capability;
    10 a_missing_interpreter;
}
