//! What is asked is what people mean: opening, connecting, making; each of these was once answered by access(2) alone.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use rcuwalk::uapi::{O_APPEND, O_TRUNC, O_WRONLY};
use rcuwalk_explain::{Answer, Call, Explainer, Options, Subject, Verdict, What};
use rustix::fs::{FileType, Mode, OFlags};

const FS_APPEND_FL: u32 = 0x20;

/// A directory that everybody may write to.
fn place() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    std::fs::set_permissions(temp.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    temp
}

fn ask(who: &Subject, path: &Path, what: What) -> Answer {
    let explainer = Explainer::new(who.pid).unwrap();
    let options = Options { verify: true, ..Options::default() };
    let report =
        explainer.explain(who, path.as_os_str().as_encoded_bytes(), std::slice::from_ref(&what), options);
    report.unwrap().answers.remove(0)
}

fn user() -> Subject {
    Subject::of_user("3000:3000").unwrap()
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: only root can ask the host as other users");
    }
    root
}

#[track_caller]
fn denied(answer: &Answer, errno: &str, rule: &str) {
    let by = answer.deciding.as_ref().map(|it| it.rule);
    assert_eq!((answer.verdict, answer.errno, by), (Verdict::Denied, Some(errno), Some(rule)), "{answer:#?}");
}

#[track_caller]
fn allowed(answer: &Answer) {
    assert_eq!(answer.verdict, Verdict::Allowed, "{answer:#?}");
}

#[test]
fn a_file_that_is_append_only_is_not_opened_for_writing() {
    if !is_root() {
        return;
    }
    let temp = place();
    let path = temp.path().join("log");
    std::fs::write(&path, "").unwrap();
    let file = rustix::fs::open(&path, OFlags::RDONLY, Mode::empty()).unwrap();
    let flags = |bits| rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::from_bits_retain(bits));
    if let Err(e) = flags(FS_APPEND_FL) {
        println!("skipped: no append-only files here: {e}");
        return;
    }
    let answer = ask(&Subject::caller().unwrap(), &path, What::Write);
    flags(0).unwrap();
    denied(&answer, "EPERM", "append-only");
    assert!(answer.notes.iter().any(|note| note.contains(">> does, it is allowed")), "{:?}", answer.notes);
}

#[test]
fn a_directory_is_written_to_by_its_names() {
    if !is_root() {
        return;
    }
    let temp = place();
    let dir = temp.path().join("d");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o776)).unwrap();
    denied(&ask(&user(), &dir, What::Write), "EACCES", "permission");
    allowed(&ask(&user(), &dir, What::Access(2)));
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    allowed(&ask(&user(), &dir, What::Write));
}

/// Ended when the test is.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_program_that_runs_is_not_written_to() {
    let temp = place();
    let path = temp.path().join("sleep");
    std::fs::copy("/bin/sleep", &path).unwrap();
    let me = Subject::caller().unwrap();
    allowed(&ask(&me, &path, What::Write));
    let running = Running(Command::new(&path).arg("60").spawn().unwrap());
    let answer = ask(&me, &path, What::Write);
    denied(&answer, "ETXTBSY", "running");
    assert!(answer.deciding.unwrap().text.contains(&running.0.id().to_string()));
    assert_eq!(answer.verify.unwrap().outcome, "agrees");
    allowed(&ask(&me, &path, What::Read));
}

/// Swapped to until the test ends.
struct Swap<'a>(&'a Path);

impl Drop for Swap<'_> {
    fn drop(&mut self) {
        assert!(Command::new("swapoff").arg(self.0).status().unwrap().success());
    }
}

#[test]
fn what_the_kernel_swaps_to_stays_as_it_is() {
    if !is_root() {
        return;
    }
    let temp = place();
    let [path, new, link] = ["a swap file", "new", "link"].map(|name| temp.path().join(name));
    std::fs::write(&path, vec![0; 1 << 18]).unwrap();
    std::fs::write(&new, "").unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let script = "mkswap \"$0\" && swapon \"$0\"";
    let on = Command::new("sh").args(["-ec", script]).arg(&path).output().unwrap();
    if !on.status.success() {
        return println!("skipped: nothing can be swapped to here: {}", String::from_utf8_lossy(&on.stderr));
    }
    let swap = Swap(&path);
    let (me, bytes) =
        (Subject::caller().unwrap(), |path: &Path| path.as_os_str().as_encoded_bytes().to_vec());
    // It is opened, and nothing can be written to it then.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let refused = std::os::unix::fs::FileExt::write_at(&file, b"x", 0).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ExecutableFileBusy);
    drop(file);
    denied(&ask(&me, &path, What::Write), "ETXTBSY", "swap");
    denied(&ask(&me, &link, What::Write), "ETXTBSY", "swap");
    for flags in [O_WRONLY, O_WRONLY | O_APPEND] {
        let call = Call::Open(bytes(&path), flags, 0);
        allowed(&ask(&me, &path, What::Call(call)));
    }
    for (call, kind) in [
        (Call::Open(bytes(&path), O_WRONLY | O_TRUNC, 0), std::fs::write(&path, "").unwrap_err().kind()),
        (Call::Truncate(bytes(&path), 0), std::fs::write(&path, "").unwrap_err().kind()),
    ] {
        assert_eq!(kind, std::io::ErrorKind::ExecutableFileBusy);
        denied(&ask(&me, &path, What::Call(call)), "ETXTBSY", "swap");
    }
    // Its name stays, and no other takes its place; a link to it is nothing special.
    assert!(std::fs::remove_file(&path).is_err() && std::fs::rename(&new, &path).is_err());
    denied(&ask(&me, &path, What::Delete), "EPERM", "swap");
    denied(&ask(&me, &path, What::RenameTo(bytes(&temp.path().join("other")))), "EPERM", "swap");
    denied(&ask(&me, &new, What::RenameTo(bytes(&path))), "EPERM", "swap");
    allowed(&ask(&me, &link, What::Delete));
    allowed(&ask(&me, &new, What::Delete));
    // The list is hidden: which file it is cannot be seen.
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(Some("none"), "/proc", Some("proc"), MsFlags::empty(), Some("subset=pid")).unwrap();
    for what in [What::Write, What::Delete] {
        let answer = ask(&me, &new, what);
        let text = answer.deciding.as_ref().map_or("", |deciding| &deciding.text);
        assert!(answer.verdict == Verdict::Unknown && text.contains("swaps to it"), "{answer:#?}");
    }
    nix::mount::umount("/proc").unwrap();
    drop(swap);
    allowed(&ask(&me, &path, What::Delete));
}

#[test]
fn sockets_are_connected_to() {
    let temp = place();
    let (stream, datagram, dead) =
        (temp.path().join("stream"), temp.path().join("datagram"), temp.path().join("dead"));
    let _listener = UnixListener::bind(&stream).unwrap();
    let _bound = UnixDatagram::bind(&datagram).unwrap();
    drop(UnixListener::bind(&dead).unwrap());
    let me = Subject::caller().unwrap();
    for path in [&stream, &datagram] {
        allowed(&ask(&me, path, What::Connect));
        let read = ask(&me, path, What::Read);
        allowed(&read);
        assert!(read.call.starts_with("connect("), "{}", read.call);
    }
    let answer = ask(&me, &dead, What::Write);
    assert_eq!(answer.verdict, Verdict::Unknown, "{answer:#?}");
    assert!(answer.deciding.unwrap().text.contains("listen"));
    let file = temp.path().join("file");
    std::fs::write(&file, "").unwrap();
    denied(&ask(&me, &file, What::Connect), "ECONNREFUSED", "not-a-socket");
    if is_root() {
        std::fs::set_permissions(&stream, std::fs::Permissions::from_mode(0o755)).unwrap();
        denied(&ask(&user(), &stream, What::Read), "EACCES", "permission");
    }
}

#[test]
fn a_terminal_is_there_or_not() {
    let tty = Path::new("/dev/tty");
    if !tty.exists() {
        println!("skipped: there is no /dev/tty");
        return;
    }
    let mut me = Subject::caller().unwrap();
    me.terminal = Some(false);
    denied(&ask(&me, tty, What::Read), "ENXIO", "no-terminal");
    me.terminal = None;
    assert_eq!(ask(&me, tty, What::Read).verdict, Verdict::Unknown);
}

#[test]
fn attributes_are_set_where_there_can_be_any() {
    if !is_root() {
        return;
    }
    let temp = place();
    let (file, fifo) = (temp.path().join("file"), temp.path().join("fifo"));
    std::fs::write(&file, "").unwrap();
    chown(&file, Some(3000), Some(3000)).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    let set = |who: &Subject, path: &Path, name: &str| ask(who, path, What::SetXattr(name.into()));
    allowed(&set(&user(), &file, "user.x"));
    denied(&set(&user(), &fifo, "user.x"), "EPERM", "attribute-name");
    denied(&set(&user(), &file, "trusted.x"), "EPERM", "attribute-name");
    denied(&set(&user(), &file, "nonsense.x"), "EOPNOTSUPP", "no-attributes");
    chown(&file, Some(0), Some(0)).unwrap();
    denied(&set(&user(), &file, "user.x"), "EACCES", "permission");
    assert!(rustix::fs::listxattr(&file, &mut [0_u8; 64][..]).unwrap() == 0, "nothing was set");
}

#[test]
fn a_device_takes_a_capability_to_make() {
    if !is_root() {
        return;
    }
    let temp = place();
    let path = temp.path().join("null");
    let device = What::Mknod(0o020_666, rustix::fs::makedev(1, 3));
    let answer = ask(&user(), &path, device.clone());
    denied(&answer, "EPERM", "mknod");
    assert!(answer.deciding.as_ref().unwrap().text.contains("CAP_MKNOD"));
    assert_eq!(answer.fixes.len(), 1, "{:?}", answer.fixes);
    assert!(answer.fixes[0].commands[0].contains("+mknod"), "{:?}", answer.fixes);
    allowed(&ask(&user(), &path, What::Mknod(0o010_666, 0)));
    assert!(!path.exists(), "nothing was made");
    if Subject::of_user("0").unwrap().effective().contains(rcuwalk::uapi::CAP_MKNOD) {
        allowed(&ask(&Subject::of_user("0").unwrap(), &path, device));
    }
}

#[test]
fn a_file_of_another_in_a_sticky_directory_is_not_created_again() {
    if !is_root()
        || std::fs::read_to_string("/proc/sys/fs/protected_regular").unwrap_or_default().trim() == "0"
    {
        println!("skipped: fs.protected_regular is off");
        return;
    }
    let temp = place();
    std::fs::set_permissions(temp.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    let path = temp.path().join("file");
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    chown(&path, Some(3001), Some(3001)).unwrap();
    let answer = ask(&user(), &path, What::Write);
    allowed(&answer);
    assert!(
        answer.notes.iter().any(|note| note.contains("> does, it is denied, EACCES")),
        "{:?}",
        answer.notes
    );
}

#[test]
fn a_program_for_32_bits_is_not_told_to_fail() {
    let temp = place();
    let path = temp.path().join("i386");
    // Of this kind no kernel runs it: it has no segments. Of which kernels run such programs nothing is known.
    let header = [b"\x7fELF\x01\x01\x01".as_slice(), &[0; 9], &[2, 0, 3, 0, 1, 0, 0, 0], &[0; 28]].concat();
    std::fs::write(&path, header).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let bytes = path.as_os_str().as_encoded_bytes();
    let report = Explainer::new(None).unwrap().explain(&user(), bytes, &[What::Exec], Options::default());
    let answer = report.unwrap().answers.remove(0);
    assert_eq!(answer.verdict, Verdict::Unknown, "{answer:#?}");
    // This kernel can be asked.
    if is_root() {
        assert_eq!(ask(&user(), &path, What::Exec).errno, Some("ENOEXEC"));
    }
}

#[test]
fn a_current_directory_that_was_removed_is_empty() {
    let temp = place();
    let dir = temp.path().join("gone");
    std::fs::create_dir(&dir).unwrap();
    let running = Running(Command::new("sleep").arg("60").current_dir(&dir).spawn().unwrap());
    std::fs::remove_dir(&dir).unwrap();
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("file"), "").unwrap();
    let who = Subject::of_process(running.0.id() as i32).unwrap();
    let ask = |path: &str, what| ask(&who, &PathBuf::from(path), what);
    denied(&ask("file", What::Read), "ENOENT", "missing");
    let create = ask("new", What::Create);
    denied(&create, "ENOENT", "missing");
    assert!(create.deciding.unwrap().text.contains("was removed"));
    allowed(&ask(".", What::Stat));
    allowed(&ask("..", What::Read));
    allowed(&ask("../gone/file", What::Read));
}
