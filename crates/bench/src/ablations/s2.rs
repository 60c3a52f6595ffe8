//! S2: buffers that need not be cleared.

use std::ffi::{CStr, CString};
use std::hint::black_box;

use rcuwalk::uapi::PATH_MAX;
use rcuwalk::{Cred, Vfs};
use rcuwalk_sync::fill::{Site, zero_typed};
use rcuwalk_sync::slab::{Cache, Init, Policy, Slabs};

use super::{Budget, Outcome, Row, Workload, side};
use crate::engines::{Value, attr_value, error_value};
use crate::error::Error;

/// The row.
pub(super) const ROW: Row = Row {
    id: "S2",
    title: "no clearing of path buffers",
    published: "init_on_alloc clears the 4096-byte names_cache object on every path call; a kernel build calls memset \
                36,150,671 times, 14,414,454 times once two hot callers clear a constant size inline (linux-fsdevel, \
                \"avoid duplicating creds in faccessat\", March 2023)",
    run,
};

/// What the first try of a name gets: nearly every path fits.
const EMBEDDED: usize = 192;

/// One file, four directories down.
const FILE: &[u8] = b"/usr/include/linux/fs.h";

static NAMES: Site = Site::new("names");

fn run(budget: &Budget<'_>) -> Result<Outcome, Error> {
    let vfs = tree().map_err(|e| Error::engine("making a tree", FILE, e, ""))?;
    let task = vfs.task(Cred::user(1000, 1000, &[]));
    let lookup = |name: &[u8]| match task.stat(name) {
        Ok(st) => attr_value(st.ino, st.size as u64, st.mode),
        Err(errno) => error_value(errno.raw()),
    };
    let mut points = Vec::new();
    let alone = |name: &[u8]| Value::from(name[0]) + name.len() as u64;
    points.extend(names(budget, "a name copied in", 1.5, &alone)?);
    points.extend(names(budget, "stat of 4 components", 1.1, &lookup)?);
    let note = "After: the first 192 bytes on the stack, cleared by constant-size stores, as the kernel's struct filename \
                has embedded them since 2026. zero-4096 is what init_on_alloc does; opt-out takes the same buffer from the \
                same cache and leaves it alone; zero-192 takes a cleared buffer of 192 bytes from a cache.";
    Ok(Outcome { points, note: note.into() })
}

fn tree() -> rcuwalk::Result<Vfs> {
    let vfs = Vfs::builder().capacity(1000).build()?;
    let root = vfs.task(Cred::root());
    for dir in ["/usr", "/usr/include", "/usr/include/linux"] {
        root.mkdir(dir.as_bytes(), 0o755)?;
    }
    let fd = root.creat(FILE, 0o644)?;
    root.close(fd)?;
    Ok(vfs)
}

/// Getting a name into a buffer of ours and doing `work` with it, with each kind of buffer.
fn names(
    budget: &Budget<'_>,
    name: &str,
    claim: f64,
    work: &(impl Fn(&[u8]) -> Value + Sync),
) -> Result<Vec<super::Point>, Error> {
    let (hardened, trusting) = (Slabs::new(Policy::Force), Slabs::new(Policy::On));
    let zeroed = hardened.cache(&NAMES, PATH_MAX, Init::OptOut);
    let small = hardened.cache(&NAMES, EMBEDDED, Init::OptOut);
    let opted_out = trusting.cache(&NAMES, PATH_MAX, Init::OptOut);
    let from = |cache: &Cache, path: &CStr| match cache.alloc() {
        Ok(mut buffer) => work(copied(path, &mut buffer)),
        Err(_) => error_value(rcuwalk::Errno::ENOMEM.raw()),
    };
    let zero_4096 = side("zero-4096", |path| from(&zeroed, path));
    let zero_192 = side("zero-192", |path| from(&small, path));
    let opt_out = side("opt-out", |path| from(&opted_out, path));
    let embedded = side("embedded", |path| {
        let mut buffer = [0xff; EMBEDDED];
        zero_typed(&mut buffer);
        work(copied(path, &mut buffer))
    });
    let path = || vec![CString::from_vec_with_nul([FILE, b"\0"].concat()).unwrap_or_default()];
    let mut points = Vec::new();
    let claimed = Workload::new(name, path()).claims(claim);
    points.extend(budget.compare(claimed, &[&zero_4096], &embedded)?);
    let others = Workload::new(name, path());
    points.extend(budget.compare(others, &[&opt_out, &zero_192], &embedded)?);
    let opting = Workload::new(format!("{name}, opted out"), path()).claims(1.0);
    points.extend(budget.compare(opting, &[&zero_4096], &opt_out)?);
    Ok(points)
}

/// `path` in the buffer, as copying it from a program's memory would put it there.
#[inline(always)]
fn copied<'a>(path: &CStr, buffer: &'a mut [u8]) -> &'a [u8] {
    let bytes = path.to_bytes();
    buffer[..bytes.len()].copy_from_slice(bytes);
    black_box(&buffer[..bytes.len()])
}
