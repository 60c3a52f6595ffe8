//! `rcuwalk mount`, and what mount(8) and umount(8) call as `mount.rcuwalk` and `umount.fuse.rcuwalk`.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rcuwalk::{Cred, PathTableOptions, Task, Timespec, Vfs};
use rcuwalk_fuse::{Mode, Mount, Options};
use rcuwalk_host::ImportOptions;
use rcuwalk_image::Live;

use crate::output::{Done, Failure, complain};
use crate::umount::Verdict;
use crate::{signals, source};

const HELP: &str = "\
Options of -o: ro, rw, noexec, exec, nosuid, suid, nodev, dev, noatime, sync, allow_other, noallow_other, as-seen, engine, \
writeback, fsname=NAME, threads=N, limit=SIZE, image=FILE. The defaults are rw,exec,nosuid,nodev,as-seen, and for root allow_other. \
What mount(8) and systemd understand themselves (defaults, noauto, nofail, _netdev, x-...) is passed over.

Unmount with `rcuwalk umount`, which waits until all is in the image; or with umount(8), fusermount3 -u, or a signal to the process. \
Nothing is kept then but in an image.

With --image, what was fsynced survives everything; all else is kept every five seconds and at unmount.

In /etc/fstab, with this program also installed as /sbin/mount.rcuwalk:
  none             /mnt/scratch  rcuwalk  limit=1G         0 0
  /srv/image.tar   /mnt/image    rcuwalk  ro,engine        0 0
  none             /mnt/kept     rcuwalk  image=/srv/kept  0 0

Examples:
  rcuwalk mount /mnt
  rcuwalk mount -o suid,dev --limit 2G /srv/tree /mnt
  rcuwalk mount -f --engine image.tar /mnt
  rcuwalk mount --image kept.image /mnt";

/// A tree on a directory.
#[derive(Debug, Args)]
#[command(after_help = HELP, override_usage = "rcuwalk mount [OPTIONS] [SOURCE] MOUNTPOINT")]
pub(crate) struct MountArgs {
    /// What to mount: a directory, a tar archive, a container image or a tree image, of which a copy is mounted; an empty
    /// tree if left out or `none`. Then the directory on which to mount it
    #[arg(required = true, num_args = 1..=2, value_names = ["SOURCE", "MOUNTPOINT"], value_hint = clap::ValueHint::AnyPath)]
    places: Vec<PathBuf>,
    /// The kernel decides who may do what, as it does elsewhere, and caches what it saw (the default)
    #[arg(long, conflicts_with = "engine")]
    as_seen: bool,
    /// The engine decides, with the caller's ids, groups and capabilities
    #[arg(long)]
    engine: bool,
    /// Options as of mount(8), separated by commas
    #[arg(short, long = "options", value_name = "LIST")]
    o: Vec<String>,
    /// The most bytes that files may take; more is "no space left on device". With K, M, G or T, or % of the memory
    /// [default: 50%]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    limit: Option<u64>,
    /// Keep the tree in this file; if it does not exist it is made, with a copy of SOURCE in it
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    image: Option<PathBuf>,
    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,
    /// Serve in the background of another process, which waits for a word on standard output
    #[arg(long, hide = true)]
    daemon: bool,
}

/// The command line with what mount(8) passes to `mount.rcuwalk` (`SOURCE DIR [-sfnv] [-o LIST] [-t TYPE]`) put as `rcuwalk mount`
/// has it, and what umount(8) passes to `umount.fuse.rcuwalk` (`DIR [-flnv] [-t TYPE]`) as `rcuwalk umount` has it.
pub(crate) fn arguments(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args = args.peekable();
    let name = args.peek().and_then(|name| Path::new(name).file_name()).and_then(OsStr::to_str);
    let command = match name {
        Some("mount.rcuwalk" | "mount.fuse.rcuwalk") => "mount",
        Some("umount.rcuwalk" | "umount.fuse.rcuwalk") => "umount",
        _ => return args.collect(),
    };
    let mut out: Vec<OsString> = args.by_ref().take(1).collect();
    out.push(command.into());
    while let Some(arg) = args.next() {
        match arg.to_str() {
            // Sloppy, no mtab, verbose: nothing to heed.
            Some("-s" | "-n" | "-v") => {}
            Some("-t") => drop(args.next()),
            _ => out.push(arg),
        }
    }
    out
}

/// Reads a size: bytes, or with K, M, G, T (powers of 1024), or % of the memory.
fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no size; write 64M, 2G, 50%");
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let bytes = match unit {
        "" => Some(number),
        "%" => Some((u128::from(memory()) * u128::from(number) / 100).min(u128::from(u64::MAX)) as u64),
        _ => {
            let unit = unit.strip_suffix("iB").or(unit.strip_suffix('B')).unwrap_or(unit);
            let shift = ["K", "M", "G", "T"].iter().position(|known| known.eq_ignore_ascii_case(unit));
            number.checked_mul(1 << (10 * (shift.ok_or_else(wrong)? + 1)))
        }
    };
    bytes.filter(|&bytes| bytes >= 4096).ok_or_else(|| format!("'{text}' is out of range: 4K at least"))
}

/// Bytes of memory that the machine has.
fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit.max(1)))
}

/// What the arguments come to.
struct Plan {
    source: Option<PathBuf>,
    point: PathBuf,
    options: Options,
    limit: u64,
    image: Option<PathBuf>,
}

impl MountArgs {
    fn plan(&self) -> Result<Plan, Failure> {
        let (point, source) = match &self.places[..] {
            [source, point] => (point, Some(source).filter(|source| source.as_os_str() != "none")),
            [point] => (point, None),
            _ => return Err(Failure::Error("mounting: one or two places are needed; see --help".into())),
        };
        let mut options = Options::default();
        if let Some(source) = source {
            options.source = source.display().to_string();
        }
        let mut limit = self.limit;
        let mut image = self.image.clone();
        for word in self.o.iter().flat_map(|list| list.split(',')) {
            match word.split_once('=') {
                Some(("limit" | "size", size)) => {
                    let size = parse_size(size).map_err(|e| Failure::Error(format!("-o {word}: {e}")))?;
                    limit = limit.or(Some(size));
                }
                Some(("image", file)) => image = image.or(Some(file.into())),
                _ => options.parse(word).map_err(|e| Failure::Error(e.to_string()))?,
            }
        }
        match (self.as_seen, self.engine) {
            (true, _) => options.mode = Mode::AsSeen,
            (_, true) => options.mode = Mode::Engine,
            _ => {}
        }
        if options.writeback && options.mode == Mode::Engine {
            let hint = "leave one of them out";
            return Err(Failure::Error(format!("-o writeback: does not go with --engine; {hint}")));
        }
        Ok(Plan {
            source: source.cloned(),
            point: point.clone(),
            options,
            limit: limit.unwrap_or_else(|| memory() / 2),
            image,
        })
    }
}

pub(crate) fn run(args: &MountArgs) -> Done {
    let mut plan = args.plan()?;
    if !args.foreground && !args.daemon {
        return in_background();
    }
    signals::ask_first();
    let verdict = Verdict::new().and_then(|verdict| Ok((verdict.about()?, verdict)));
    let (about, verdict) = verdict.map_err(|e| Failure::Error(format!("a file in memory: {e}")))?;
    plan.options.about = about;
    let served = plan.mount()?;
    if args.daemon {
        detach().map_err(|e| Failure::Error(format!("going into the background: {e}; use -f")))?;
    }
    serve(served, &verdict, args.daemon)
}

/// Starts this program anew to serve, and waits until it has mounted or said why not.
///
/// A process with threads cannot fork, and the shell that waits for this one is to learn that the tree is there.
fn in_background() -> Done {
    let failed = |e: io::Error| Failure::Error(format!("starting the server: {e}; use -f"));
    let mut child = Command::new("/proc/self/exe")
        .arg0("rcuwalk")
        .args(arguments(std::env::args_os()).into_iter().skip(1))
        .arg("--daemon")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut word = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut word).map_err(failed)?;
    }
    if word == READY {
        return Ok(());
    }
    // It has said why.
    child.wait().map_err(failed)?;
    Err(Failure::Explained)
}

/// What the server says when the tree is mounted.
const READY: &str = "mounted\n";

/// Leaves terminal, directory and standard streams, and says that all is well.
fn detach() -> io::Result<()> {
    // It is named after the link that it was started by.
    rustix::thread::set_name(c"rcuwalk")?;
    // Fails for the leader of a process group, who has no terminal to leave.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    let mut out = io::stdout();
    out.write_all(READY.as_bytes())?;
    out.flush()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

impl Plan {
    fn mount(&self) -> Result<Served, Failure> {
        // An inode takes about as much as a quarter of a kilobyte; they are bounded as contents are, and extended attributes
        // with them.
        let objects = (self.limit / 1024).clamp(4096, 1 << 24) as u32;
        // The kernel asks for one name at a time: no path is worth remembering.
        let mut builder = Vfs::builder()
            .size_limit(self.limit)
            .inode_limit(u64::from(objects))
            .capacity(objects)
            .path_table(PathTableOptions::default().with_entries(0));
        if self.options.writeback {
            // The kernel stamps some files itself, by this clock; the others must not be ahead of it.
            builder = builder.clock(Box::new(|| {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
                Timespec { sec: now.tv_sec, nsec: now.tv_nsec as u32 }
            }));
        }
        let vfs = builder.build().map_err(|e| {
            Failure::Error(format!("reserving memory: {e}; raise ulimit -v, or give a smaller --limit"))
        })?;
        let is_new = self.image.as_ref().is_some_and(|image| !image.exists());
        let kept = self.fill(&vfs)?;
        match Mount::new(&vfs, &self.point, &self.options) {
            Ok(mount) => Ok(Served { mount, kept, memory: Memory::new(&vfs) }),
            Err(e) => {
                let e = Failure::Error(format!("mounting: {e}"));
                drop(kept);
                if let (true, Some(image)) = (is_new, &self.image)
                    && let Err(left) = std::fs::remove_file(image)
                {
                    complain(format_args!("note: {} is left behind: {left}", image.display()));
                }
                Err(e)
            }
        }
    }

    /// Puts the tree into the file system, and has it kept where that is asked for.
    fn fill(&self, vfs: &Vfs) -> Result<Option<Live>, Failure> {
        let exists = self.image.as_ref().is_some_and(|image| image.exists());
        match (&self.source, &self.image) {
            (Some(source), Some(image)) if exists => {
                let (image, source) = (image.display(), source.display());
                return Err(Failure::Error(format!(
                    "image: {image} has a tree already; leave {source} out, or name a file that does not exist"
                )));
            }
            (Some(source), _) => self.import(source, vfs)?,
            (None, _) if exists => {}
            (None, _) => {
                // The mounting user owns an empty tree: otherwise only root could put anything there.
                let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
                let chown = vfs.task(Cred::root()).chown(b"/", uid.as_raw(), gid.as_raw());
                chown.map_err(|e| Failure::Error(format!("the owner of the tree: {e}")))?;
            }
        }
        let Some(image) = &self.image else { return Ok(None) };
        // The server leaves this directory.
        let kept = std::path::absolute(image).map_err(|e| e.to_string()).and_then(|image| {
            let options = rcuwalk_image::Options::default();
            let open = if exists { Live::open } else { Live::create };
            open(&image, vfs, &options).map_err(|e| e.to_string())
        });
        let kept = kept.map_err(|e| Failure::Error(format!("image: {e}")))?;
        if let Some(why) = kept.unreserved() {
            complain(format_args!("note: no room is kept for changes of {}: {why}", image.display()));
        }
        Ok(Some(kept))
    }

    fn import(&self, path: &Path, vfs: &Vfs) -> Done {
        let options = ImportOptions { contents: true, copy: true, ..ImportOptions::default() };
        let failed = |e| Failure::Error(format!("importing: {e}"));
        let source = rcuwalk_host::open(path).map_err(failed)?;
        let report = source::watched(|progress| source.import(vfs, &options, progress)).map_err(failed)?;
        source::complain_of(&report.problems, report.problem_count);
        Ok(())
    }
}

/// A tree that is mounted.
struct Served {
    mount: Mount,
    /// The image that keeps it.
    kept: Option<Live>,
    memory: Memory,
}

/// Gives the memory of what was removed back to the system. The allocator does not by itself, since some of each of its blocks stays in use.
struct Memory {
    /// May look at the tree.
    task: Task,
    /// What the tree took at the last look, and the most that it took since memory was given back.
    last: u64,
    most: u64,
}

impl Memory {
    /// What is worth the work; bytes.
    const WORTH: u64 = 1 << 20;

    fn new(vfs: &Vfs) -> Memory {
        Memory { task: vfs.task(Cred::root()), last: 0, most: 0 }
    }

    /// Looks whether the tree has become smaller, and goes on doing so no more or is half as large already.
    fn give_back(&mut self) {
        let Ok(space) = self.task.statfs(b"/") else { return };
        // An inode counts as what its limit is reckoned by.
        let used = (space.blocks - space.bfree) * space.bsize + (space.files - space.ffree) * 1024;
        self.most = self.most.max(used);
        if used + Memory::WORTH <= self.most && (used == self.last || used <= self.most / 2) {
            rcuwalk_measure::sys::trim_heap();
            self.most = used;
        }
        self.last = used;
    }
}

/// How often a server looks whether anybody can still reach its tree.
const LOOKS: Duration = Duration::from_secs(2);

/// Serves until the tree is unmounted, or a signal asks for that.
fn serve(served: Served, verdict: &Verdict, is_daemon: bool) -> Done {
    let Served { mount, kept, mut memory } = served;
    let (mut known, mut looked) = (None, Instant::now());
    while signals::asked().is_none() && !mount.is_over() {
        let error = kept.as_ref().and_then(Live::last_error);
        if error != known {
            match &error {
                Some(error) => {
                    report(is_daemon, format_args!("image: a commit failed, and is tried again: {error}"))
                }
                None => report(is_daemon, "image: the commit that had failed succeeded"),
            }
            known = error;
        }
        if is_daemon && looked.elapsed() >= LOOKS {
            looked = Instant::now();
            if mount.is_deserted() {
                // It goes on if the tree is still to be seen elsewhere, or in use.
                let _ = rcuwalk_fuse::unmount(mount.point(), false);
            }
        }
        memory.give_back();
        // A signal wakes this thread.
        thread::park_timeout(Duration::from_millis(250));
    }
    let point = mount.point().display().to_string();
    let unmounted = mount.unmount().map_err(|e| format!("unmounting: {point}: {e}"));
    let closed = kept.map_or(Ok(()), Live::close);
    let closed = closed.map_err(|e| format!("image: closing; what was not committed is lost: {e}"));
    let wrong: Vec<String> = [unmounted, closed].into_iter().filter_map(Result::err).collect();
    verdict.leave(&wrong);
    wrong.iter().for_each(|wrong| report(is_daemon, wrong));
    if wrong.is_empty() { Ok(()) } else { Err(Failure::Explained) }
}

/// Says what goes wrong while the tree is served: in the system's log if this is a daemon, which has no other place.
fn report(is_daemon: bool, text: impl Display) {
    if !is_daemon {
        return complain(text);
    }
    let formatter = syslog::Formatter3164 {
        facility: syslog::Facility::LOG_DAEMON,
        hostname: None,
        process: "rcuwalk".into(),
        pid: std::process::id(),
    };
    // Opened each time: the system's log may be started anew. Without one there is nowhere to say that there is none.
    let _ = syslog::unix(formatter).and_then(|mut log| log.err(text.to_string()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("2g"), Ok(2 << 30));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert_eq!(parse_size("100%"), Ok(memory()));
        for wrong in ["", "M", "1X", "-1", "1.5G", "0", "99999999999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn mount_may_call() {
        let given = |args: &[&str]| arguments(args.iter().map(OsString::from)).join(" ".as_ref());
        assert_eq!(given(&["rcuwalk", "stat", "-n"]), "rcuwalk stat -n");
        let helper = ["/sbin/mount.rcuwalk", "none", "/mnt", "-n", "-v", "-o", "rw,engine", "-t", "rcuwalk"];
        assert_eq!(given(&helper), "/sbin/mount.rcuwalk mount none /mnt -o rw,engine");
        let helper = ["/sbin/umount.fuse.rcuwalk", "/mnt", "-n", "-l", "-t", "fuse.rcuwalk"];
        assert_eq!(given(&helper), "/sbin/umount.fuse.rcuwalk umount /mnt -l");
    }
}
