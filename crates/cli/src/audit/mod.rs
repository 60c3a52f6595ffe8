//! `rcuwalk audit`.

mod find;

use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rcuwalk::Vfs;
use rcuwalk_audit::{
    Audit, Csv, Diff, Head, Json, Output, RightSet, Rule, Sarif, Saved, Service, Summary, Table,
};
use rcuwalk_host::{
    ArchiveOptions, Files, HostNames, IDENTITY_FORM, IDENTITY_HELP, Identity, Image, ImportOptions, Names,
    Report, Source, import_live,
};

use crate::output::{Done, Failure, Sink, Terminal, complain, escaped};
use crate::{signals, source};

/// How many entries that break a rule are named.
const NAMED: u64 = 20;

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct AuditArgs {
    /// A directory of this machine, a tar archive (plain, gzip or zstd), or a container image: a directory or an archive in the OCI
    /// image layout, or what docker save writes [default: /]
    pub(crate) source: Option<PathBuf>,
    #[command(flatten)]
    who: Who,
    /// What to ask: read, write, exec, search, delete, setid, all; several with commas
    #[arg(long, value_name = "RIGHT,...", default_value = "all")]
    can: RightSet,
    /// Write JSON lines
    #[arg(long, group = "format")]
    json: bool,
    /// Write CSV, one line for each entry and identity
    #[arg(long, group = "format")]
    csv: bool,
    /// Write SARIF: what breaks the rules of --fail-on
    #[arg(long, group = "format")]
    sarif: bool,
    /// Also write an Apache Parquet file, one row for each entry and identity; it is replaced only once the audit is complete.
    /// Only a program that was built with the feature `parquet` can
    #[arg(long, value_name = "FILE", conflicts_with_all = ["diff"])]
    parquet: Option<PathBuf>,
    /// Write to a file instead of standard output; it is replaced only once the audit is complete
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write only what sums up, no entries
    #[arg(short, long, conflicts_with = "format")]
    quiet: bool,
    /// Exit with 1 if an identity may do this: RIGHT,...[@IDENTITY]:/PATTERN, such as write:/etc/** (may be repeated)
    #[arg(long, value_name = "RULE")]
    fail_on: Vec<Rule>,
    /// Compare two audits, each a file that --json wrote, or a SOURCE; exit with 1 if they differ
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"], conflicts_with_all = ["source", "csv", "sarif", "fail_on", "quiet"])]
    diff: Option<Vec<PathBuf>>,
    /// Compare with find -readable -writable -executable run as each identity, entry by entry, and time both; needs root
    #[arg(long, conflicts_with_all = ["format", "diff", "fail_on", "output", "quiet"])]
    compare_find: bool,
    /// Of an image for several platforms, the one to take: OS/ARCHITECTURE[/VARIANT] [default: this machine's]
    #[arg(long, value_name = "PLATFORM")]
    platform: Option<String>,
    /// Take a directory as the root directory: what lies above it does not matter
    #[arg(long)]
    chroot: bool,
    /// Do not go into other file systems
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// A mount point to leave out (may be repeated)
    #[arg(long, value_name = "DIR")]
    skip: Vec<PathBuf>,
}

/// Whose access is asked about.
#[derive(Debug, Args)]
struct Who {
    #[arg(long = "as", value_name = IDENTITY_FORM, help = format!("{IDENTITY_HELP} (may be repeated) [default: the caller]"))]
    who: Vec<String>,
    /// An arbitrary user id with group 0 and no capability, as containers are started on some platforms
    #[arg(long)]
    any_uid: bool,
    /// Every user that is neither owner, nor in the group, nor named in an ACL
    #[arg(long)]
    world: bool,
    /// Who a systemd service runs as, by its unit file (may be repeated)
    #[arg(long, value_name = "NAME")]
    service: Vec<String>,
    /// Who the programs of an image run as, by its configuration
    #[arg(long)]
    image_user: bool,
    /// Where names of users, groups and services are looked up [default: host for a directory, tree for an archive, or with --chroot]
    #[arg(long, value_enum, value_name = "WHERE")]
    names: Option<NamesFrom>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum NamesFrom {
    /// This machine's name service and unit files
    Host,
    /// /etc/passwd, /etc/group and the unit files of the tree itself
    Tree,
}

const AFTER_HELP: &str = "\
Only entries that an identity may do something with are shown, and only what it may do: r read, w write, x execute, s search, \
d delete or rename, u become another user by executing it. Behind the permissions, + stands for an ACL and c for file capabilities. Mount options, ACLs, capabilities, sticky directories and inode flags \
count; security modules such as SELinux or AppArmor are not asked.

Exit codes: 0 done; 1 a rule of --fail-on is broken, or --diff found a difference; 2 the audit could not be made, or is not \
complete, because something could not be looked at; 130 after Ctrl-C, which prints what was done.";

/// A tree in the engine, and where in it the audit begins.
struct Tree {
    vfs: Vfs,
    top: Vec<u8>,
    files: Files,
    names: Box<dyn Names>,
    /// Whether names are the machine's.
    host: bool,
    /// Of an image, who its programs run as.
    user: Option<String>,
    name: String,
    entries: u64,
    /// Ctrl-C came while it was imported: there would be more.
    partial: bool,
    /// Entries that are not as in the source, and what else makes the audit say less than the source holds.
    flaws: u64,
}

pub(crate) fn run(args: &AuditArgs) -> Done {
    if args.parquet.is_some() && !cfg!(feature = "parquet") {
        return Err(Failure::Error(
            "audit: --parquet: this program was built without Parquet; build it with `--features parquet`, or write --csv, which has \
             the same columns"
                .into(),
        ));
    }
    signals::ask_first();
    if let Some([old, new]) = args.diff.as_deref() {
        return diff(args, old, new);
    }
    let path = args.source.clone().unwrap_or_else(|| "/".into());
    let tree = load(args, &path)?;
    let head = head(args, &tree)?;
    if args.compare_find && !tree.partial {
        find::can_compare(&path, &head, args)?;
        drop(tree);
        return find::compare(args, &path, head);
    }
    let mut sink = Sink::new(args.output.as_deref())?;
    let mut columns_sink = args.parquet.as_deref().map(|file| Sink::new(Some(file))).transpose()?;
    let mut columns =
        columns_sink.as_mut().map(|sink| columns(&head, sink)).transpose().map_err(unwritten)?;
    let mut broken = 0;
    let mut output = output(args, &head, &mut sink).map_err(unwritten)?;
    let summary = walk(&tree, &head, |row| {
        for rule in &args.fail_on {
            for (i, can) in rule.broken_by(row, &head.identities) {
                broken += 1;
                if broken <= NAMED {
                    let who = &head.identities[i].label;
                    complain(format_args!("audit: {who} may {can} {}, against {rule}", escaped(&row.path)));
                }
            }
        }
        columns.as_mut().map_or(Ok(()), |columns| columns.row(row))?;
        if args.quiet { Ok(()) } else { output.row(row) }
    })?;
    // What was interrupted is not kept; what could not be looked at is part of the answer.
    let ended = summary.complete;
    let summary = Summary { complete: ended && tree.flaws == 0, ..summary };
    output.end(&summary).map_err(unwritten)?;
    columns.as_mut().map_or(Ok(()), |columns| columns.end(&summary)).map_err(unwritten)?;
    drop((output, columns));
    if let Some(sink) = columns_sink.filter(|_| ended) {
        sink.finish()?;
    }
    if ended || args.output.is_none() {
        sink.finish()?;
    }
    if broken > NAMED {
        complain(format_args!("audit: {} more", broken - NAMED));
    }
    stopped(&summary)?;
    if broken > 0 { Err(Failure::No) } else { whole(&tree) }
}

/// Whether the audit says all that there is to say. One that does not has passed nothing.
fn whole(tree: &Tree) -> Done {
    if tree.flaws == 0 {
        return Ok(());
    }
    complain(format_args!(
        "audit: {}: not complete, as noted above: what was not looked at may be open; as root, or with a sound archive, it would be \
         complete",
        tree.name
    ));
    Err(Failure::Explained)
}

/// If Ctrl-C came: says how far it went, and ends.
fn stopped(summary: &Summary) -> Done {
    match signals::asked() {
        Some(signal) if !summary.complete => {
            complain(format_args!(
                "interrupted after {} entries; what is above is not everything",
                summary.entries
            ));
            Err(Failure::Signal(signal))
        }
        _ => Ok(()),
    }
}

fn failed(doing: &str) -> impl Fn(String) -> Failure + '_ {
    move |why| Failure::Error(format!("{doing}: {why}"))
}

fn unwritten(e: io::Error) -> Failure {
    if e.kind() == io::ErrorKind::BrokenPipe {
        return Failure::Pipe;
    }
    let text = rcuwalk_host::describe(&e);
    Failure::Error(format!("writing the audit: {text}; make room, or name another file"))
}

/// What `--parquet` asks for.
#[cfg(feature = "parquet")]
fn columns<'a>(head: &Head, sink: &'a mut Sink) -> io::Result<Box<dyn Output + 'a>> {
    Ok(Box::new(rcuwalk_audit::Parquet::new(head, sink)?))
}

#[cfg(not(feature = "parquet"))]
fn columns(_: &Head, _: &mut Sink) -> io::Result<Box<dyn Output>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The output that was asked for.
fn output<'a>(args: &AuditArgs, head: &Head, sink: &'a mut Sink) -> io::Result<Box<dyn Output + 'a>> {
    Ok(if args.json {
        Box::new(Json::new(head, sink)?)
    } else if args.csv {
        Box::new(Csv::new(head, sink)?)
    } else if args.sarif {
        Box::new(Sarif::new(head, &args.fail_on, sink))
    } else {
        let width = if args.output.is_some() { None } else { Terminal::stdout().width.map(usize::from) };
        Box::new(Table::new(head, sink, width))
    })
}

/// Imports what is to be audited.
fn load(args: &AuditArgs, path: &Path) -> Result<Tree, Failure> {
    let importing = |why: String| match signals::asked() {
        Some(signal) => {
            complain(format_args!(
                "interrupted while importing; of an archive, nothing can be said before its end"
            ));
            Failure::Signal(signal)
        }
        None => failed("importing")(why),
    };
    let source = rcuwalk_host::open(path).map_err(|e| importing(e.to_string()))?;
    let vfs = Vfs::new().map_err(|e| {
        Failure::Error(format!("reserving memory: {}: {e}; raise ulimit -v, or free memory", path.display()))
    })?;
    let skip = |dir: &PathBuf| dir.canonicalize().unwrap_or_else(|_| dir.clone());
    let options = ImportOptions {
        one_file_system: args.one_file_system,
        skip: args.skip.iter().map(skip).collect(),
        databases: true,
        keep_partial: true,
        ..ImportOptions::default()
    };
    let is_live = matches!(source, Source::Dir(_)) && !args.chroot;
    let mut top = b"/".to_vec();
    let mut user = None;
    let report = if is_live {
        let live = source::watched(|progress| import_live(&vfs, path, &options, progress))
            .map_err(|e| importing(e.to_string()))?;
        for point in &live.elsewhere {
            complain(format_args!(
                "note: {}: another machine or program decides there, and may decide differently",
                point.display()
            ));
        }
        top = live.path.as_os_str().as_bytes().to_vec();
        live.report
    } else if let Source::Image(_) = source {
        let image = Image::open(path, args.platform.as_deref()).map_err(|e| importing(e.to_string()))?;
        user = Some(image.user().unwrap_or("0").to_owned());
        let options = ArchiveOptions { databases: true, ..ArchiveOptions::default() };
        source::watched(|progress| image.import(&vfs, &options, progress))
            .map_err(|e| importing(e.to_string()))?
    } else {
        source::watched(|progress| source.import(&vfs, &options, progress))
            .map_err(|e| importing(e.to_string()))?
    };
    note_problems(&report);
    let host = args.who.names.map_or(is_live, |names| names == NamesFrom::Host);
    let host_files = |dir: &Path| {
        Files::of_dir(dir)
            .map_err(|e| importing(format!("{}: {}", dir.display(), rcuwalk_host::describe(&e))))
    };
    let files = match &source {
        _ if host => host_files(Path::new("/"))?,
        Source::Dir(dir) => host_files(dir)?,
        Source::Archive(_) | Source::Image(_) | Source::TreeImage(_) => Files::of_vfs(&vfs),
    };
    let names: Box<dyn Names> = if host { Box::new(HostNames) } else { Box::new(files.names()) };
    let name = path.display().to_string();
    let mut flaws = report.problem_count;
    if let Source::Archive(_) = source
        && let Some(dir) = image_inside(&vfs)
    {
        flaws += 1;
        complain(format_args!(
            "note: {name}: {} looks like a container image in a directory of the archive, and its layers were not looked at; unpack the \
             archive, and audit that directory",
            escaped(&dir)
        ));
    }
    let (entries, partial) = (report.entries(), report.partial);
    Ok(Tree { vfs, top, files, names, host, user, name, entries, partial, flaws })
}

/// A directory of an archive, its top or one below, that holds the blobs of a container image.
fn image_inside(vfs: &Vfs) -> Option<Vec<u8>> {
    let task = vfs.task(rcuwalk::Cred::root());
    let names =
        task.readdir(b"/").unwrap_or_default().into_iter().map(|entry| [b"/", &entry.name[..]].concat());
    let dirs = std::iter::once(b"/".to_vec()).chain(names);
    let mut dirs = dirs.filter(|dir| !dir.ends_with(b".."));
    dirs.find(|dir| {
        let is_dir = |name: &[u8]| {
            let path = [dir, name].concat();
            task.lstat(&path).is_ok_and(|stat| stat.mode & rcuwalk::uapi::S_IFMT == rcuwalk::uapi::S_IFDIR)
        };
        is_dir(b"/blobs/sha256") || is_dir(b"/blobs/sha512")
    })
}

fn note_problems(report: &Report) {
    if let Some(first) = report.problems.first() {
        complain(format_args!(
            "note: {} entries are not as in the source, or could not be looked at; the first: {first}",
            report.problem_count
        ));
    }
}

/// Who is asked about, and what.
fn head(args: &AuditArgs, tree: &Tree) -> Result<Head, Failure> {
    let naming = failed("audit");
    let mut identities = Vec::new();
    for text in &args.who.who {
        identities
            .push(Identity::parse(text, &*tree.names).map_err(|e| naming(format!("--as {text}: {e}")))?);
    }
    if args.who.image_user {
        let user = tree.user.as_deref().ok_or_else(|| {
            naming(format!(
                "--image-user: {} is no container image, so it names no user; name one with --as",
                tree.name
            ))
        })?;
        identities.push(image_user(user, &*tree.names).map_err(|e| naming(format!("--image-user: {e}")))?);
    }
    if args.who.any_uid {
        identities.push(rcuwalk_audit::any_uid());
    }
    if args.who.world {
        identities.push(rcuwalk_audit::world());
    }
    for name in &args.who.service {
        let service =
            Service::read(name, &tree.files, &*tree.names).map_err(|e| naming(format!("--service: {e}")))?;
        if !service.narrowed_by.is_empty() {
            let directives = service.narrowed_by.join(", ");
            complain(format_args!(
                "note: {name} is narrowed by {directives}, which the audit does not know of"
            ));
        }
        identities.push(service.identity);
    }
    if identities.is_empty() {
        identities.push(caller(tree)?);
    }
    Ok(Head { source: tree.name.clone(), identities, want: args.can })
}

/// Who an image's programs run as. A number that the image does not know has group 0 there.
fn image_user(user: &str, names: &dyn Names) -> Result<Identity, rcuwalk_host::IdentityError> {
    let unknown = |uid: &u32| matches!(names.user_by_id(*uid), Ok(None));
    let mut who = match user.parse::<u32>().ok().filter(unknown) {
        Some(uid) => Identity::new(uid, 0, &[]),
        None => Identity::parse(user, names)?,
    };
    who.label = "image-user".to_owned();
    Ok(who)
}

/// Who runs this.
fn caller(tree: &Tree) -> Result<Identity, Failure> {
    let mut who = source::caller()?;
    if tree.host
        && let Ok(Some(account)) = HostNames.user_by_id(who.uid)
    {
        who.label = account.name;
    }
    Ok(who)
}

/// Makes the audit; `each` gets its rows.
fn walk(
    tree: &Tree,
    head: &Head,
    mut each: impl FnMut(&rcuwalk_audit::Row) -> io::Result<()>,
) -> Result<Summary, Failure> {
    let auditing = failed("audit");
    let audit =
        Audit::new(&tree.vfs, &tree.top, &head.identities, head.want).map_err(|e| auditing(e.to_string()))?;
    // Rows on a terminal say themselves how it goes.
    let hidden = Terminal::stdout().is_terminal;
    let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(tree.entries), target);
    let style = ProgressStyle::with_template("asking {wide_bar} {human_pos}/{human_len} {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut failure = None;
    let summary = audit.run(
        |entries| {
            bar.set_position(entries);
            let stops = !tree.partial && signals::asked().is_some();
            if stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
        |row| match each(row) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                failure = Some(e);
                ControlFlow::Break(())
            }
        },
    );
    bar.finish_and_clear();
    match failure {
        Some(e) => Err(unwritten(e)),
        None => {
            let mut summary = summary.map_err(|e| auditing(e.to_string()))?;
            summary.complete &= !tree.partial;
            Ok(summary)
        }
    }
}

/// Compares two audits.
fn diff(args: &AuditArgs, old: &Path, new: &Path) -> Done {
    let (old, new) = (saved(args, old)?, saved(args, new)?);
    let diff = Diff::new(&old, &new);
    for who in diff.not_compared() {
        complain(format_args!("note: only one of the audits asks about {who}"));
    }
    let mut sink = Sink::new(args.output.as_deref())?;
    let mut any = false;
    for change in diff.changes() {
        any = true;
        let line = if args.json { change.json().to_string() } else { change.line() };
        io::Write::write_all(&mut sink, format!("{line}\n").as_bytes()).map_err(unwritten)?;
    }
    sink.finish()?;
    if any { Err(Failure::No) } else { Ok(()) }
}

/// An audit read from a file, or made.
fn saved(args: &AuditArgs, path: &Path) -> Result<Saved, Failure> {
    if let Some(file) = json_file(path) {
        let reading = |e: rcuwalk_audit::SavedError| {
            Failure::Error(format!("reading the audit: {}: {e}", path.display()))
        };
        return Saved::read(io::BufReader::new(file)).map_err(reading);
    }
    let tree = load(args, path)?;
    let head = head(args, &tree)?;
    let mut saved = Saved::new(&head);
    let summary = walk(&tree, &head, |row| {
        saved.add(row);
        Ok(())
    })?;
    stopped(&summary)?;
    whole(&tree)?;
    Ok(saved)
}

/// The file, if it begins as JSON does.
fn json_file(path: &Path) -> Option<std::fs::File> {
    let mut start = [0];
    let is_file = std::fs::metadata(path).ok()?.is_file();
    let file = std::fs::File::open(path).ok().filter(|_| is_file)?;
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut start, 0).ok()?;
    (start == *b"{").then_some(file)
}
