//! `rcuwalk save` and `rcuwalk image`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rcuwalk::Vfs;
use rcuwalk_host::ImportOptions;
use rcuwalk_image::{Inventory, Summary};
use serde::Serialize;

use crate::output::{Done, Failure, print, print_json};
use crate::source;

/// A tree into a file.
#[derive(Debug, Args)]
pub(crate) struct SaveArgs {
    /// A directory, a tar archive (plain, gzip or zstd), a container image or a tree image
    source: PathBuf,
    /// The image file; it is replaced only once the new one is complete
    image: PathBuf,
    /// Leave the contents of files out: they cannot be read then
    #[arg(long)]
    no_contents: bool,
    /// Leave other file systems out
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    command: ImageCommand,
}

#[derive(Debug, Subcommand)]
enum ImageCommand {
    /// Read all of an image, and tell whether it is a whole tree
    ///
    /// Every page, every record and the tree as a whole are checked. The file stays as it is: what was not closed is repaired in
    /// memory, as `mount --image` does in the file. Exit code 2 and the damaged part if it cannot be mounted; 3 if it is in use: what is
    /// told is its last commit.
    Check(FileArgs),
    /// Tell what is in an image, and when it was last committed; checks it, too
    Info(FileArgs),
}

#[derive(Debug, Args)]
struct FileArgs {
    /// The image file
    image: PathBuf,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// What an image holds, as JSON has it.
#[derive(Debug, Serialize)]
struct Facts {
    version: u32,
    in_use: bool,
    closed: bool,
    commits: u64,
    committed: f64,
    entries: u64,
    dirs: u64,
    files: u64,
    symlinks: u64,
    specials: u64,
    hard_links: u64,
    xattrs: u64,
    size_bytes: u64,
    content_bytes: u64,
    file_bytes: u64,
    free_bytes: u64,
}

impl Facts {
    fn new(summary: &Summary, inventory: &Inventory) -> Facts {
        Facts {
            version: summary.version,
            in_use: summary.in_use,
            closed: summary.closed,
            commits: summary.commits,
            committed: summary.committed.sec as f64 + f64::from(summary.committed.nsec) / 1e9,
            entries: summary.names + 1,
            dirs: inventory.dirs,
            files: inventory.files,
            symlinks: inventory.symlinks,
            specials: inventory.specials,
            hard_links: inventory.hard_links,
            xattrs: inventory.xattrs,
            size_bytes: inventory.size_bytes,
            content_bytes: inventory.content_bytes,
            file_bytes: summary.file_bytes,
            free_bytes: summary.free_bytes,
        }
    }

    /// Whether it is a whole tree.
    fn verdict(&self, path: &Path) -> String {
        let (path, commit, entries) = (path.display(), self.commits, self.entries);
        match (self.in_use, self.closed) {
            (true, _) => format!(
                "{path}: in use, as of commit {commit}: {entries} entries; unmount it before you copy it (rcuwalk umount)\n"
            ),
            (_, false) => format!(
                "{path}: whole, {entries} entries, as of commit {commit}: it was not closed (its process was killed, or it was copied \
                 while it was in use)\n"
            ),
            _ => format!("{path}: whole, {entries} entries\n"),
        }
    }

    fn text(&self, path: &Path) -> String {
        let committed = jiff::Timestamp::new(self.committed as i64, 0).map_or_else(
            |_| "?".to_owned(),
            |at| at.to_zoned(jiff::tz::TimeZone::system()).strftime("%F %T %z").to_string(),
        );
        format!(
            "{}: tree image, version {}\n\
             entries    {} ({} directories, {} files, {} links, {} others, {} hard links)\n\
             attributes {}\n\
             contents   {} bytes stored, {} with holes\n\
             file       {} bytes, {} of them free\n\
             committed  {} times, last {committed}{}\n",
            path.display(),
            self.version,
            self.entries,
            self.dirs,
            self.files,
            self.symlinks,
            self.specials,
            self.hard_links,
            self.xattrs,
            self.content_bytes,
            self.size_bytes,
            self.file_bytes,
            self.free_bytes,
            self.commits,
            match (self.in_use, self.closed) {
                (true, _) => "; in use",
                (_, false) => "; not closed since",
                _ => "",
            },
        )
    }
}

fn failed(e: rcuwalk_image::Error) -> Failure {
    Failure::Error(format!("image: {e}"))
}

pub(crate) fn save(args: &SaveArgs) -> Done {
    let vfs = Vfs::new()
        .map_err(|e| Failure::Error(format!("reserving memory: {e}; raise ulimit -v, or free memory")))?;
    let options = ImportOptions {
        contents: !args.no_contents,
        one_file_system: args.one_file_system,
        inode_flags: true,
        ..ImportOptions::default()
    };
    let importing = |e| Failure::Error(format!("importing: {e}"));
    let source = rcuwalk_host::open(&args.source).map_err(importing)?;
    let report = source::watched(|progress| source.import(&vfs, &options, progress)).map_err(importing)?;
    source::complain_of(&report.problems, report.problem_count);
    let summary = rcuwalk_image::save(&vfs, &args.image).map_err(failed)?;
    if args.json {
        #[derive(Serialize)]
        struct Saved {
            entries: u64,
            file_bytes: u64,
        }
        return print_json(&Saved { entries: summary.names + 1, file_bytes: summary.file_bytes });
    }
    print(format!("{} entries in {} bytes\n", summary.names + 1, summary.file_bytes).as_bytes())
}

pub(crate) fn run(args: &ImageArgs) -> Done {
    let (file, detailed) = match &args.command {
        ImageCommand::Check(file) => (file, false),
        ImageCommand::Info(file) => (file, true),
    };
    let (summary, inventory) = rcuwalk_image::check(&file.image).map_err(failed)?;
    let facts = Facts::new(&summary, &inventory);
    match (file.json, detailed) {
        (true, _) => print_json(&facts),
        (_, true) => print(facts.text(&file.image).as_bytes()),
        _ => print(facts.verdict(&file.image).as_bytes()),
    }?;
    // What it is now hangs on the process that has it.
    if facts.in_use { Err(Failure::Unknown) } else { Ok(()) }
}
