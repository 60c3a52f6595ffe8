//! Single calls on files that were made for them.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{CWD, Mode, OFlags, openat, stat, unlink};
use rustix::io::Errno;
use tempfile::TempDir;

use rcuwalk_measure::Error;

/// Clients at most, each with files of its own.
pub(super) const CLIENTS: usize = 2;

const SMALL: usize = 4096;
const LARGE: usize = 1 << 20;
/// Entries of the large directory.
const ENTRIES: usize = 10_000;

/// A call, or a few that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Stat,
    StatDeep,
    StatMissing,
    OpenClose,
    CreateUnlink,
    ReadSmall,
    WriteSmall,
    ReadLarge,
    WriteLarge,
    Readdir,
}

impl Call {
    pub(super) const ALL: &[Call] = &[
        Call::Stat,
        Call::StatDeep,
        Call::StatMissing,
        Call::OpenClose,
        Call::CreateUnlink,
        Call::ReadSmall,
        Call::WriteSmall,
        Call::ReadLarge,
        Call::WriteLarge,
        Call::Readdir,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Call::Stat => "stat",
            Call::StatDeep => "stat, 5 directories down",
            Call::StatMissing => "stat of a missing name",
            Call::OpenClose => "open, close",
            Call::CreateUnlink => "create, close, unlink",
            Call::ReadSmall => "read 4 KiB",
            Call::WriteSmall => "write 4 KiB",
            Call::ReadLarge => "read 1 MiB",
            Call::WriteLarge => "write 1 MiB",
            Call::Readdir => "readdir of 10,000 names",
        }
    }
}

/// The files in one file system; they go with this.
pub(super) struct Files {
    clients: Vec<Client>,
    _dir: TempDir,
}

/// The files of one client.
struct Client {
    file: CString,
    deep: CString,
    missing: CString,
    new: CString,
    many: PathBuf,
    large: File,
    written: File,
}

impl Files {
    pub(super) fn make(dir: &Path) -> Result<Files, Error> {
        let made = tempfile::Builder::new().prefix("rcuwalk-bench-").tempdir_in(dir).and_then(|top| {
            let clients = (0..CLIENTS).map(|i| Client::make(&top.path().join(i.to_string())));
            Ok(Files { clients: clients.collect::<io::Result<_>>()?, _dir: top })
        });
        made.map_err(|e| Error::host("making files", dir, e, "name directories where files can be made"))
    }

    /// How many calls take about so many nanoseconds.
    pub(super) fn calibrate(&self, call: Call, nanos: u64) -> u64 {
        let mut times = 1;
        loop {
            let (each, _) = self.batch(call, 0, times);
            let whole = each * times as f64;
            if whole >= nanos as f64 / 4.0 || times >= 1 << 20 {
                return ((nanos as f64 / each) as u64).clamp(1, 1 << 20);
            }
            times *= 4;
        }
    }

    /// Nanoseconds of one call, and how many of `times` were answered wrongly.
    pub(super) fn batch(&self, call: Call, client: usize, times: u64) -> (f64, usize) {
        let client = &self.clients[client];
        let mut buffer = vec![0; LARGE];
        let clock = Instant::now();
        let right = (0..times).filter(|i| client.call(call, *i, &mut buffer)).count();
        let nanos = clock.elapsed().as_nanos() as f64 / times as f64;
        // What was written must be there.
        let kept = match call {
            Call::WriteSmall | Call::WriteLarge => client.kept(),
            _ => true,
        };
        (nanos, times as usize - right + usize::from(!kept))
    }
}

/// The byte at a place of the large file.
fn pattern(offset: usize) -> u8 {
    (offset / SMALL % 251) as u8
}

impl Client {
    fn make(top: &Path) -> io::Result<Client> {
        let deep = top.join("a/b/c/d");
        fs::create_dir_all(&deep)?;
        for file in [top.join("file"), deep.join("file")] {
            fs::write(file, [1; SMALL])?;
        }
        let many = top.join("many");
        fs::create_dir(&many)?;
        for i in 0..ENTRIES {
            File::create(many.join(format!("entry-{i:05}")))?;
        }
        let open = |name: &str| {
            File::options().read(true).write(true).create(true).truncate(true).open(top.join(name))
        };
        let (large, written) = (open("large")?, open("written")?);
        large.write_all_at(&(0..LARGE).map(pattern).collect::<Vec<u8>>(), 0)?;
        let path = |path: PathBuf| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other);
        Ok(Client {
            file: path(top.join("file"))?,
            deep: path(deep.join("file"))?,
            missing: path(top.join("missing"))?,
            new: path(top.join("new"))?,
            many,
            large,
            written,
        })
    }

    /// Makes the call; whether its answer is right.
    fn call(&self, call: Call, i: u64, buffer: &mut [u8]) -> bool {
        match call {
            Call::Stat => stat(&*self.file).is_ok_and(|st| st.st_size == SMALL as i64),
            Call::StatDeep => stat(&*self.deep).is_ok_and(|st| st.st_size == SMALL as i64),
            Call::StatMissing => matches!(stat(&*self.missing), Err(Errno::NOENT)),
            Call::OpenClose => openat(CWD, &*self.file, OFlags::RDONLY, Mode::empty()).is_ok(),
            Call::CreateUnlink => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                openat(CWD, &*self.new, flags, Mode::from(0o644))
                    .map(drop)
                    .and_then(|()| unlink(&*self.new))
                    .is_ok()
            }
            Call::ReadSmall => {
                let offset = i as usize * SMALL % LARGE;
                let read = self.large.read_at(&mut buffer[..SMALL], offset as u64);
                read.is_ok_and(|n| n == SMALL)
                    && buffer[0] == pattern(offset)
                    && buffer[SMALL - 1] == buffer[0]
            }
            Call::WriteSmall => {
                let offset = i as usize * SMALL % LARGE;
                buffer[..SMALL].fill(pattern(offset));
                self.written.write_at(&buffer[..SMALL], offset as u64).is_ok_and(|n| n == SMALL)
            }
            Call::ReadLarge => {
                let read = self.large.read_at(buffer, 0);
                read.is_ok_and(|n| n == LARGE) && buffer[LARGE - 1] == pattern(LARGE - 1)
            }
            Call::WriteLarge => {
                if i == 0 {
                    buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(at));
                }
                self.written.write_at(buffer, 0).is_ok_and(|n| n == LARGE)
            }
            Call::Readdir => fs::read_dir(&self.many).is_ok_and(|names| names.flatten().count() == ENTRIES),
        }
    }

    /// Whether what was written is there: each block is empty yet, or has its pattern.
    fn kept(&self) -> bool {
        let mut found = vec![0; LARGE];
        let read = self.written.read_at(&mut found, 0);
        let right = |(at, byte): (usize, &u8)| *byte == pattern(at) || *byte == 0;
        read.is_ok_and(|n| n > 0) && found.iter().enumerate().all(right)
    }
}
