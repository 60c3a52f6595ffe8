//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use rcuwalk::uapi::{R_OK, S_IFBLK, S_IFCHR, S_IFIFO, S_IFSOCK, W_OK, X_OK, makedev};
use rcuwalk_host::{IDENTITY_FORM, IDENTITY_HELP};

const EXIT_CODES: &str = "\
Exit codes:
  0    done, and the answer is yes
  1    the answer is no: access denied; answers that differ from the kernel's; with --check-targets, a target missed
  2    wrong usage, or the command could not be carried out
  3    the answer is unknown: it hangs on something that could not be seen, which the first line names
  129, 130, 143    ended by SIGHUP, SIGINT (Ctrl-C), SIGTERM
  141  the reader of standard output went away

Environment:
  NO_COLOR               not empty: no colours; without it, colours and progress bars appear on terminals only
  RCUWALK_INIT_ON_ALLOC  which buffers are cleared before they are used: on (all but those of caches that opted out; the
                         default), off, force (all), skip=NAME,... (all but those of the opted-out caches named); whatever
                         else it says is taken as force
  RCUWALK_FILL           how small pieces of memory are cleared, instead of what the processor is thought to do best: stores,
                         rep-stos, vector16, vector32, vector64, memset";

/// The Linux pathname layer, beside the kernel's own.
#[derive(Debug, Parser)]
#[command(name = "rcuwalk", bin_name = "rcuwalk", version = version(), after_help = EXIT_CODES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Version, compiler and, where it is known, commit.
fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let rustc = rcuwalk_measure::machine::RUSTC.split(" (").next().unwrap_or_default();
    match rcuwalk_measure::machine::COMMIT {
        Some(commit) => format!("{version} ({commit}, {rustc})"),
        None => format!("{version} ({rustc})"),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Import a directory, hold every answer against the kernel's, and time both
    Bench(BenchArgs),
    /// Show what stat(2) says about a path in a tree
    Stat(StatArgs),
    /// List a directory of a tree
    Ls(LsArgs),
    /// Show a tree as a tree
    Tree(TreeArgs),
    /// Show where a symbolic link points
    Readlink(ReadlinkArgs),
    /// Tell whether a user may read, write or execute a path in a tree
    Access(AccessArgs),
    /// Show everything that a user may do in a directory tree, an archive or a container image
    Audit(Box<crate::audit::AuditArgs>),
    /// Explain why a user may, or may not, do something with a path of this machine
    Explain(ExplainArgs),
    /// Ask the path calls of an strace log of the engine and of the kernel
    Replay(ReplayArgs),
    /// Write a tree to an image file, which is accepted wherever a SOURCE is, and which `mount --image` keeps
    Save(crate::image::SaveArgs),
    /// Look at an image file, or check all of it
    Image(crate::image::ImageArgs),
    /// Mount a tree, so that any program can use it
    Mount(crate::mount::MountArgs),
    /// Unmount a tree, and wait until all of it is in its image
    Umount(crate::umount::UmountArgs),
    /// Tell which remedies the running kernel has, and what else its lookups pay for
    Doctor {
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write those of all commands into a directory
    Man {
        /// Write rcuwalk.1, rcuwalk-bench.1, ... here
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The directory [default: /usr/include, else /usr/share]
    pub(crate) dir: Option<PathBuf>,
    /// Write the record as JSON instead of a table
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Write the rows as CSV, one dated line each
    #[arg(long)]
    pub(crate) csv: bool,
    /// Write to a file instead of standard output; it is replaced only once the run is complete
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Fewer and shorter rounds: under 10 seconds for the default directory
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seed of the random order
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Most threads at once [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) threads: Option<u16>,
    /// Check the answers and time nothing
    #[arg(long)]
    pub(crate) check_only: bool,
    /// Exit with 1 if a performance target is missed
    #[arg(long, conflicts_with = "check_only")]
    pub(crate) check_targets: bool,
    /// Say how each remedy is timed with and without it, which takes a program of its own
    #[arg(long, conflicts_with_all = ["dir", "csv", "check_only", "check_targets", "seed"])]
    pub(crate) ablations: bool,
}

/// Where to look, and as whom.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// A directory, a tar archive (plain, gzip or zstd), a container image or a tree image
    pub(crate) source: PathBuf,
    #[arg(long = "as", value_name = IDENTITY_FORM, help = format!("{IDENTITY_HELP}. Names are this machine's for a directory, \
        and the tree's own otherwise [default: the caller]"))]
    pub(crate) who: Option<String>,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The path; the root is the top of SOURCE
    pub(crate) path: PathBuf,
    /// Follow a link at the end of the path
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The path; the root is the top of SOURCE
    #[arg(default_value = "/")]
    pub(crate) path: PathBuf,
    /// Also show names that begin with a dot
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Show the directory itself, not what it holds
    #[arg(short, long)]
    pub(crate) directory: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The path; the root is the top of SOURCE
    #[arg(default_value = "/")]
    pub(crate) path: PathBuf,
    /// Levels to go down
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<usize>,
    /// Also show names that begin with a dot
    #[arg(short, long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReadlinkArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The path; the root is the top of SOURCE
    pub(crate) path: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct AccessArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The path; the root is the top of SOURCE
    pub(crate) path: PathBuf,
    /// May it be read?
    #[arg(short, long)]
    pub(crate) read: bool,
    /// May it be written?
    #[arg(short, long)]
    pub(crate) write: bool,
    /// May it be executed, or searched if it is a directory?
    #[arg(short = 'x', long)]
    pub(crate) execute: bool,
    /// Can it be reached? This is asked anyway
    #[arg(short, long)]
    pub(crate) exists: bool,
    /// Print nothing: the exit code is the answer
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
}

/// Who wants what with which paths of the running machine.
#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_HELP)]
pub(crate) struct ExplainArgs {
    /// Paths of this machine; relative ones start at the current directory, with --pid at that of the process
    #[arg(required_unless_present = "call")]
    pub(crate) paths: Vec<PathBuf>,
    #[arg(long = "as", value_name = IDENTITY_FORM, conflicts_with = "pid", help = format!("{IDENTITY_HELP} [default: this process]"))]
    pub(crate) who: Option<String>,
    /// A process: its ids, capabilities, user namespace, mounts, root and current directory
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: Option<i32>,
    /// Change the capabilities of the process, as --as does those of a user
    #[arg(long, value_name = "[+CAP,...][-CAP,...]", allow_hyphen_values = true, conflicts_with = "who")]
    pub(crate) caps: Option<String>,
    /// May it be opened for reading? For a socket: may a process connect to it? This is asked if nothing else is
    #[arg(short, long, help_heading = "What")]
    pub(crate) read: bool,
    /// May it be opened for writing? For a directory: may names be added and removed?
    #[arg(short, long, help_heading = "What")]
    pub(crate) write: bool,
    /// Has it execute permission, which for a directory is search permission? See --exec, too
    #[arg(short = 'x', long, help_heading = "What")]
    pub(crate) execute: bool,
    /// What does access(2) say, with effective ids? MODE is of r, w, x, or f for existence alone
    #[arg(long, value_name = "MODE", value_parser = access_mode, help_heading = "What")]
    pub(crate) access: Option<i32>,
    /// Can it be reached?
    #[arg(long, help_heading = "What")]
    pub(crate) stat: bool,
    /// May it be created?
    #[arg(long, help_heading = "What")]
    pub(crate) create: bool,
    /// May it be deleted?
    #[arg(long, help_heading = "What")]
    pub(crate) delete: bool,
    /// May it be renamed to NEW?
    #[arg(long, value_name = "NEW", help_heading = "What")]
    pub(crate) rename_to: Option<PathBuf>,
    /// Can it be run, with its interpreters, its loader and the shared libraries that it needs to start?
    #[arg(long, help_heading = "What")]
    pub(crate) exec: bool,
    /// May a process connect to it, a Unix socket?
    #[arg(long, help_heading = "What")]
    pub(crate) connect: bool,
    /// May its extended attribute NAME be set?
    #[arg(long, value_name = "NAME", help_heading = "What")]
    pub(crate) setxattr: Option<OsString>,
    /// May it be made as a device, fifo or socket?
    #[arg(long, value_name = "c:MAJOR:MINOR|b:MAJOR:MINOR|p|s", value_parser = device_node, help_heading = "What")]
    pub(crate) mknod: Option<(u32, u64)>,
    /// Does this system call succeed? As strace(1) writes it; PATH in it stands for the path
    #[arg(long, value_name = "CALL", help_heading = "What")]
    pub(crate) call: Vec<String>,
    /// Make the call on this machine, too, or one that asks the same and changes nothing
    #[arg(long)]
    pub(crate) verify: bool,
    /// With --exec, the LD_LIBRARY_PATH of the program [default: none]
    #[arg(long, value_name = "DIRS", requires = "exec")]
    pub(crate) library_path: Option<OsString>,
    /// With --exec, show the way to each interpreter, loader and library, and what needs it
    #[arg(long)]
    pub(crate) long: bool,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What access(2) is to be asked.
fn access_mode(text: &str) -> Result<i32, String> {
    let bit = |letter| match letter {
        'r' => Ok(R_OK),
        'w' => Ok(W_OK),
        'x' => Ok(X_OK),
        'f' => Ok(0),
        other => Err(format!("'{other}' is none of r, w, x and f")),
    };
    text.chars().try_fold(0, |mode, letter| Ok(mode | bit(letter)?))
}

/// Type and permissions, and device, for mknod(2).
fn device_node(text: &str) -> Result<(u32, u64), String> {
    let (kind, numbers) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
    let device = || {
        let (major, minor) =
            numbers.and_then(|it| it.split_once(':')).ok_or("a device is c:MAJOR:MINOR or b:MAJOR:MINOR")?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| format!("'{text}' is no device number"));
        Ok::<u64, String>(makedev(number(major)?, number(minor)?))
    };
    match (kind, numbers) {
        ("c", _) => Ok((S_IFCHR | 0o666, device()?)),
        ("b", _) => Ok((S_IFBLK | 0o666, device()?)),
        ("p", None) => Ok((S_IFIFO | 0o666, 0)),
        ("s", None) => Ok((S_IFSOCK | 0o666, 0)),
        _ => Err("it is none of c:MAJOR:MINOR, b:MAJOR:MINOR, p (fifo) and s (socket)".to_owned()),
    }
}

const EXPLAIN_HELP: &str = "\
Exit codes: 0 everything is allowed, 1 something is denied, 2 wrong usage, or nothing could be found out, 3 something is unknown: \
it hangs on what could not be seen, or --verify was answered otherwise.

Examples:
  rcuwalk explain --as www-data -r /srv/www/index.html
  rcuwalk explain --pid $(pidof -s nginx) --exec /usr/local/bin/hook --verify
  rcuwalk explain --as alice --call 'openat(AT_FDCWD, \"/etc/shadow\", O_RDONLY) = -1 EACCES'";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The log: of `strace -f -y -o LOG PROGRAM`, compressed with gzip or not
    #[arg(value_hint = clap::ValueHint::FilePath)]
    pub trace: PathBuf,
    /// Where the program was started
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    pub cwd: PathBuf,
    /// How often to replay it for the times; 0 only compares
    #[arg(long, value_name = "N", default_value_t = 21)]
    pub rounds: usize,
    /// Print the record as JSON
    #[arg(long)]
    pub json: bool,
    /// Write to a file instead of standard output
    #[arg(long, short, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub output: Option<PathBuf>,
}
