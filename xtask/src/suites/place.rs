//! Where suites run: file systems that are mounted for them, and taken away again.

use crate::process::{self, root, target_dir};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The file system that all others are held to.
pub(super) const FLOOR: &str = "tmpfs";

/// The modes of `rcuwalk mount`.
const MODES: [&str; 2] = ["as-seen", "engine"];

/// Other file systems in user space, and the command that mounts each: `SOURCE`, `UPPER`, `WORK` are empty directories.
const PEERS: [(&str, &[&str]); 3] = [
    ("bindfs", &["bindfs", "-o", "allow_other,default_permissions,dev,suid", "SOURCE", "DIR"]),
    (
        "fuse-overlayfs",
        &[
            "fuse-overlayfs",
            "-o",
            "lowerdir=SOURCE,upperdir=UPPER,workdir=WORK,allow_other,default_permissions,dev,suid",
            "DIR",
        ],
    ),
    ("mergerfs", &["mergerfs", "-o", "allow_other,cache.files=auto-full,dev,suid", "SOURCE:UPPER", "DIR"]),
];

/// How long a file system may take to appear.
const PATIENCE: Duration = Duration::from_secs(20);

/// A kind of file system.
pub(super) enum Place {
    /// A tmpfs.
    Floor,
    /// rcuwalk in that mode.
    Ours(&'static str),
    /// Another one in user space, by its number.
    Peer(usize),
    /// A directory that somebody chose.
    Directory(PathBuf),
}

/// Whether failures there count.
pub(super) fn is_judged(name: &str) -> bool {
    PEERS.iter().all(|(peer, _)| *peer != name)
}

impl Place {
    /// All that are of interest: the floor, ours in one mode or both, and others if wanted.
    pub(super) fn all(mode: Option<&str>, peers: bool) -> Vec<Place> {
        let ours = MODES.iter().filter(|m| mode.is_none_or(|mode| mode == **m)).map(|m| Place::Ours(m));
        let others = (0..PEERS.len()).filter(|_| peers).map(Place::Peer);
        [Place::Floor].into_iter().chain(ours).chain(others).collect()
    }

    pub(super) fn name(&self) -> String {
        match self {
            Place::Floor => FLOOR.into(),
            Place::Ours(mode) => (*mode).into(),
            Place::Peer(number) => PEERS[*number].0.into(),
            Place::Directory(dir) => dir.display().to_string(),
        }
    }

    pub(super) fn judged(&self) -> bool {
        is_judged(&self.name())
    }

    /// Mounts it.
    pub(super) fn prepare(&self) -> Result<Ready, String> {
        if let Place::Directory(dir) = self {
            let top = dir.join("rcuwalk-suites");
            fs::create_dir_all(&top).map_err(|error| format!("{}: {error}", top.display()))?;
            return Ok(Ready { top: scratch()?, dir: top, daemon: None, mounted: vec![] });
        }
        let top = scratch()?;
        let mut ready = Ready { dir: top.join("mount"), top, daemon: None, mounted: vec![] };
        match self {
            Place::Ours(mode) => ready.start(mode)?,
            Place::Peer(number) => ready.peer(PEERS[*number].1)?,
            _ => ready.tmpfs("mount")?,
        }
        Ok(ready)
    }
}

/// A new directory that every user can reach.
fn scratch() -> Result<PathBuf, String> {
    let made = process::output(Command::new("mktemp").args(["-d", "-t", "rcuwalk-suites.XXXXXX"]))?;
    let top = PathBuf::from(made.trim_end());
    let readable = fs::set_permissions(&top, fs::Permissions::from_mode(0o755));
    readable.map_err(|error| format!("{}: {error}", top.display()))?;
    Ok(top)
}

/// A file system that is there until this goes.
pub(super) struct Ready {
    /// What everything about it is in.
    top: PathBuf,
    dir: PathBuf,
    daemon: Option<Child>,
    mounted: Vec<PathBuf>,
}

impl Ready {
    pub(super) fn path(&self) -> &Path {
        &self.dir
    }

    /// A new directory elsewhere, for what a suite needs beside it.
    pub(super) fn scratch(&self, suite: &str) -> Result<PathBuf, String> {
        let dir = self.top.join("scratch").join(suite);
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(dir)
    }

    /// What is wrong with the file system, if something is.
    pub(super) fn broken(&mut self) -> Option<String> {
        if let Some(Ok(Some(status))) = self.daemon.as_mut().map(Child::try_wait) {
            return Some(format!("the file system ended: {status}"));
        }
        fs::metadata(&self.dir).err().map(|error| format!("the file system is gone: {error}"))
    }

    fn tmpfs(&mut self, name: &str) -> Result<(), String> {
        let dir = self.directory(name)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "mode=755", "rcuwalk-suites"]).arg(&dir);
        process::run(&mut mount)?;
        self.mounted.push(dir);
        Ok(())
    }

    fn directory(&self, name: &str) -> Result<PathBuf, String> {
        let dir = self.top.join(name);
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(dir)
    }

    /// Ours, in the foreground.
    fn start(&mut self, mode: &str) -> Result<(), String> {
        let dir = self.directory("mount")?;
        let mut mount = Command::new(root().join(target_dir("release/rcuwalk")));
        mount.arg("mount").arg(format!("--{mode}")).args(["-o", "allow_other,suid,dev"]).arg(&dir);
        println!("$ {}", process::show(&mount));
        let child = mount.stdin(Stdio::null()).spawn().map_err(|error| format!("rcuwalk mount: {error}"))?;
        self.daemon = Some(child);
        self.appears(dir)
    }

    /// Another one, over directories of a tmpfs.
    fn peer(&mut self, command: &[&str]) -> Result<(), String> {
        if !process::works(Command::new("which").arg(command[0])) {
            return Err("not installed".into());
        }
        self.tmpfs("below")?;
        let dir = self.directory("mount")?;
        let place = |word: &str| {
            let mut word = word.replace("DIR", &dir.to_string_lossy());
            for name in ["SOURCE", "UPPER", "WORK"] {
                if word.contains(name) {
                    word = word.replace(name, &self.directory(&format!("below/{name}"))?.to_string_lossy());
                }
            }
            Ok(word)
        };
        let words = command[1..].iter().map(|word| place(word)).collect::<Result<Vec<String>, String>>()?;
        process::run(Command::new(command[0]).args(words))?;
        self.appears(dir)
    }

    /// Waits until something is mounted on `dir`.
    fn appears(&mut self, dir: PathBuf) -> Result<(), String> {
        let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev());
        let start = Instant::now();
        loop {
            if device(&dir).ok() != device(&self.top).ok() {
                self.mounted.push(dir);
                return Ok(());
            }
            if let Some(why) = self.broken() {
                return Err(why);
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("nothing was mounted on {} in {} s", dir.display(), PATIENCE.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        for dir in self.mounted.drain(..).rev() {
            // Something may still be using it that a suite left behind.
            let _ = process::works(Command::new("umount").arg(&dir))
                || process::works(Command::new("umount").arg("--lazy").arg(&dir));
        }
        if let Some(mut daemon) = self.daemon.take() {
            let start = Instant::now();
            while matches!(daemon.try_wait(), Ok(None)) && start.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(20));
            }
            drop(daemon.kill());
            drop(daemon.wait());
        }
        // Nothing is mounted below any more, or this fails.
        let mut remove = Command::new("rm");
        let _ = process::works(remove.args(["-rf", "--one-file-system"]).arg(&self.top));
        if self.dir.ends_with("rcuwalk-suites") {
            drop(fs::remove_dir_all(&self.dir));
        }
    }
}
