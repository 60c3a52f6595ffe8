//! File systems that are mounted for suites and benchmarks, and taken away again.

use crate::process;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The file system that all others are held to.
pub(crate) const FLOOR: &str = "tmpfs";

/// Ways to mount ours, and the options of `rcuwalk mount` that each is.
pub(crate) const OURS: [(&str, &str); 3] =
    [("as-seen", "as-seen"), ("engine", "engine"), ("writeback", "as-seen,writeback")];

/// Other file systems in user space, and the command that mounts each with all the caching that it has: `SOURCE`, `UPPER`,
/// `WORK` are empty directories of a tmpfs.
const PEERS: [(&str, &str); 3] = [
    (
        "bindfs",
        "-o allow_other,default_permissions,dev,suid,attr_timeout=86400,entry_timeout=86400,negative_timeout=86400 \
         SOURCE DIR",
    ),
    (
        "fuse-overlayfs",
        "-o allow_other,default_permissions,dev,suid,timeout=86400,lowerdir=SOURCE,upperdir=UPPER,workdir=WORK DIR",
    ),
    (
        "mergerfs",
        "-o allow_other,dev,suid,cache.files=auto-full,cache.attr=86400,cache.entry=86400,cache.negative_entry=86400,\
         cache.readdir=true SOURCE:UPPER DIR",
    ),
];

/// How long a file system may take to appear.
const PATIENCE: Duration = Duration::from_secs(20);

/// A kind of file system.
pub(crate) enum Place {
    /// A tmpfs.
    Floor,
    /// rcuwalk, by the number of the way.
    Ours(usize),
    /// Another one in user space, by its number.
    Peer(usize),
    /// A directory that the caller chose.
    Directory(PathBuf),
}

/// Whether failures there count.
pub(crate) fn is_judged(name: &str) -> bool {
    PEERS.iter().all(|(peer, _)| *peer != name)
}

impl Place {
    /// The floor, and ours mounted in these ways.
    pub(crate) fn ours(wanted: impl Fn(&str) -> bool) -> Vec<Place> {
        let ours = (0..OURS.len()).filter(|number| wanted(OURS[*number].0)).map(Place::Ours);
        [Place::Floor].into_iter().chain(ours).collect()
    }

    /// Other file systems in user space.
    pub(crate) fn peers() -> impl Iterator<Item = Place> {
        (0..PEERS.len()).map(Place::Peer)
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Place::Floor => FLOOR.into(),
            Place::Ours(number) => OURS[*number].0.into(),
            Place::Peer(number) => PEERS[*number].0.into(),
            Place::Directory(dir) => dir.display().to_string(),
        }
    }

    pub(crate) fn judged(&self) -> bool {
        is_judged(&self.name())
    }

    /// Mounts it; ours with the program `rcuwalk`.
    pub(crate) fn prepare(&self, rcuwalk: &Path) -> Result<Ready, String> {
        if let Place::Directory(dir) = self {
            let top = dir.join("rcuwalk-mounts");
            fs::create_dir_all(&top).map_err(|error| format!("{}: {error}", top.display()))?;
            return Ok(Ready { top: scratch()?, dir: top, daemon: None, mounted: vec![] });
        }
        let top = scratch()?;
        let mut ready = Ready { dir: top.join("mount"), top, daemon: None, mounted: vec![] };
        match self {
            Place::Ours(number) => ready.start(rcuwalk, OURS[*number].1)?,
            Place::Peer(number) => ready.peer(PEERS[*number].0, PEERS[*number].1)?,
            _ => ready.tmpfs("mount")?,
        }
        Ok(ready)
    }
}

/// A new directory that every user can reach.
fn scratch() -> Result<PathBuf, String> {
    let made = process::output(Command::new("mktemp").args(["-d", "-t", "rcuwalk-mounts.XXXXXX"]))?;
    let top = PathBuf::from(made.trim_end());
    let readable = fs::set_permissions(&top, fs::Permissions::from_mode(0o755));
    readable.map_err(|error| format!("{}: {error}", top.display()))?;
    Ok(top)
}

/// A file system that is there until this goes.
pub(crate) struct Ready {
    /// What everything about it is in.
    top: PathBuf,
    dir: PathBuf,
    daemon: Option<Child>,
    mounted: Vec<PathBuf>,
}

impl Ready {
    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    /// A new directory elsewhere, for what a suite needs beside it.
    pub(crate) fn scratch(&self, suite: &str) -> Result<PathBuf, String> {
        let dir = self.top.join("scratch").join(suite);
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(dir)
    }

    /// What is wrong with the file system, if something is.
    pub(crate) fn broken(&mut self) -> Option<String> {
        if let Some(Ok(Some(status))) = self.daemon.as_mut().map(Child::try_wait) {
            return Some(format!("the file system ended: {status}"));
        }
        fs::metadata(&self.dir).err().map(|error| format!("the file system is gone: {error}"))
    }

    fn tmpfs(&mut self, name: &str) -> Result<(), String> {
        let dir = self.directory(name)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "mode=755", "rcuwalk-mounts"]).arg(&dir);
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
    fn start(&mut self, rcuwalk: &Path, options: &str) -> Result<(), String> {
        let dir = self.directory("mount")?;
        let mut mount = Command::new(rcuwalk);
        mount.args(["mount", "--foreground", "-o"]).arg(format!("allow_other,suid,dev,{options}")).arg(&dir);
        println!("$ {}", process::show(&mount));
        let child = mount.stdin(Stdio::null()).spawn().map_err(|error| format!("rcuwalk mount: {error}"))?;
        self.daemon = Some(child);
        self.appears(dir)
    }

    /// Another one, over directories of a tmpfs.
    fn peer(&mut self, program: &str, arguments: &str) -> Result<(), String> {
        if !process::works(Command::new("which").arg(program)) {
            return Err("not installed".into());
        }
        self.tmpfs("below")?;
        let mut arguments = arguments.replace("DIR", &self.directory("mount")?.to_string_lossy());
        for name in ["SOURCE", "UPPER", "WORK"] {
            let dir = self.directory(&format!("below/{}", name.to_lowercase()))?;
            arguments = arguments.replace(name, &dir.to_string_lossy());
        }
        process::run(Command::new(program).args(arguments.split_whitespace()))?;
        self.appears(self.dir.clone())
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
        if self.dir.ends_with("rcuwalk-mounts") {
            drop(fs::remove_dir_all(&self.dir));
        }
    }
}
