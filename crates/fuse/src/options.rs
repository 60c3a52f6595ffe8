//! What `-o` takes.

/// Who decides what a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The kernel, from what it sees of modes, owners and ACLs; everything is cached for long.
    #[default]
    AsSeen,
    /// The engine, as the caller. Only what everybody may search is cached.
    Engine,
}

/// How a tree is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Who decides.
    pub mode: Mode,
    /// What mount tables show as the source.
    pub source: String,
    /// Users beside the one who mounts may use it.
    pub allow_other: bool,
    /// `ro`.
    pub read_only: bool,
    /// `noexec`.
    pub noexec: bool,
    /// Not `suid`: set-id bits and file capabilities have no effect.
    pub nosuid: bool,
    /// Not `dev`: devices cannot be opened.
    pub nodev: bool,
    /// `noatime`.
    pub noatime: bool,
    /// `sync` and `dirsync`.
    pub sync: bool,
    /// The kernel collects small writes. Then it, not the engine, knows the size and times of a file that is written to; so
    /// this has no effect where the engine decides.
    pub writeback: bool,
    /// Threads that answer; 0 is one for two processors, at most [`Options::MOST_THREADS`]. The calling process waits meanwhile, and more
    /// threads than processors to spare only wake each other.
    pub threads: usize,
    /// What the attribute [`ABOUT`] of the mounted root says, by which a program can find the server; no attribute if it is empty.
    pub about: String,
}

/// The name of an extended attribute of the mounted root. It is in no list.
pub const ABOUT: &str = "system.rcuwalk";

impl Default for Options {
    /// As mount(8) takes the defaults of FUSE: `rw,exec,nosuid,nodev`; for everybody if root mounts.
    fn default() -> Options {
        Options {
            mode: Mode::default(),
            source: "rcuwalk".into(),
            allow_other: rustix::process::geteuid().is_root(),
            read_only: false,
            noexec: false,
            nosuid: true,
            nodev: true,
            noatime: false,
            sync: false,
            writeback: false,
            threads: 0,
            about: String::new(),
        }
    }
}

/// A word of `-o` that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// There is no such option.
    #[error("-o {0}: no such option; see rcuwalk mount --help")]
    Unknown(String),
    /// Its value is wrong.
    #[error("-o {0}: {1}")]
    Value(String, &'static str),
}

impl Options {
    /// The most threads that are started unasked.
    pub const MOST_THREADS: usize = 4;

    /// Takes over a list of words as mount(8) has it: `ro,noexec,allow_other`. Of two that contradict each other the later
    /// counts. What only mount(8) itself or systemd understands (`defaults`, `noauto`, `nofail`, `_netdev`, `user`, `x-...`)
    /// is passed over.
    ///
    /// # Errors
    ///
    /// [`OptionError`] for the first word that is not known.
    ///
    /// ```
    /// use rcuwalk_fuse::{Mode, Options};
    /// let mut options = Options::default();
    /// options.parse("ro,noexec,dev,engine")?;
    /// assert!(options.read_only && options.noexec && !options.nodev && options.nosuid);
    /// assert_eq!(options.mode, Mode::Engine);
    /// assert!(options.parse("rocket").is_err());
    /// # Ok::<(), rcuwalk_fuse::OptionError>(())
    /// ```
    pub fn parse(&mut self, list: &str) -> Result<(), OptionError> {
        list.split(',').filter(|word| !word.is_empty()).try_for_each(|word| self.word(word))
    }

    fn word(&mut self, word: &str) -> Result<(), OptionError> {
        match word {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "noexec" => self.noexec = true,
            "exec" => self.noexec = false,
            "nosuid" => self.nosuid = true,
            "suid" => self.nosuid = false,
            "nodev" => self.nodev = true,
            "dev" => self.nodev = false,
            "noatime" => self.noatime = true,
            "atime" | "relatime" => self.noatime = false,
            "sync" | "dirsync" => self.sync = true,
            "async" => self.sync = false,
            "allow_other" => self.allow_other = true,
            "noallow_other" => self.allow_other = false,
            "as-seen" | "default_permissions" => self.mode = Mode::AsSeen,
            "engine" => self.mode = Mode::Engine,
            "writeback" => self.writeback = true,
            "nowriteback" => self.writeback = false,
            "defaults" | "auto" | "noauto" | "nofail" | "_netdev" | "user" | "users" | "nouser" | "owner" => {
            }
            _ => match word.split_once('=') {
                Some(("fsname", name)) => self.source = name.into(),
                Some(("threads", n)) => {
                    let wrong = || OptionError::Value(word.into(), "not a number from 1 to 64");
                    self.threads = n.parse().ok().filter(|n| (1..=64).contains(n)).ok_or_else(wrong)?;
                }
                _ if word.starts_with("x-") || word.starts_with("X-") || word.starts_with("comment=") => {}
                _ => return Err(OptionError::Unknown(word.into())),
            },
        }
        Ok(())
    }

    /// How many threads are to answer.
    pub(crate) fn thread_count(&self) -> usize {
        match self.threads {
            0 => {
                let processors = std::thread::available_parallelism().map_or(1, usize::from);
                (processors / 2).clamp(1, Options::MOST_THREADS)
            }
            n => n,
        }
    }

    /// Words that the kernel's FUSE alone knows.
    pub(crate) fn data_words(&self) -> impl Iterator<Item = &'static str> {
        let words = [(self.mode == Mode::AsSeen, "default_permissions"), (self.allow_other, "allow_other")];
        words.into_iter().filter(|(on, _)| *on).map(|(_, word)| word)
    }

    /// The list of words that fusermount3 takes.
    pub(crate) fn words(&self) -> String {
        let choose = |yes, on, off| if yes { on } else { off };
        let words = [
            choose(self.read_only, "ro", "rw"),
            choose(self.noexec, "noexec", "exec"),
            choose(self.nosuid, "nosuid", "suid"),
            choose(self.nodev, "nodev", "dev"),
            choose(self.noatime, "noatime", "atime"),
            choose(self.sync, "sync", "async"),
        ];
        let mut list =
            format!("subtype=rcuwalk,fsname={}", self.source.replace('\\', r"\\").replace(',', r"\,"));
        words.into_iter().chain(self.data_words()).for_each(|word| list.extend([",", word]));
        list
    }
}

/// For how long the kernel may believe what it was told: it sees every change, being the only one to make any.
/// Seconds.
pub(crate) const LONG: u64 = 365 * 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_mount_reads_them() {
        let mut options = Options::default();
        let fstab = "defaults,noauto,x-systemd.automount,_netdev,ro,rw,suid,dev,noatime,fsname=a=b,threads=3";
        options.parse(fstab).unwrap_or_else(|e| panic!("{e}"));
        assert!(!options.read_only && !options.nosuid && !options.nodev && options.noatime);
        assert_eq!((options.source.as_str(), options.threads), ("a=b", 3));
        assert_eq!(options.parse(""), Ok(()));
    }

    #[test]
    fn fusermount_is_told_everything() {
        let options =
            Options { source: r"a,b\c".into(), allow_other: false, noexec: true, ..Options::default() };
        assert_eq!(
            options.words(),
            r"subtype=rcuwalk,fsname=a\,b\\c,rw,noexec,nosuid,nodev,atime,async,default_permissions"
        );
    }

    #[test]
    fn unknown_words_are_named() {
        let mut options = Options::default();
        assert_eq!(options.parse("ro,bogus"), Err(OptionError::Unknown("bogus".into())));
        assert!(matches!(options.parse("threads=0"), Err(OptionError::Value(..))));
        assert!(matches!(options.parse("threads=many"), Err(OptionError::Value(..))));
    }
}
