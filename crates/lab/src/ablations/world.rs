//! The small trees that the rows about the engine work on.

use std::ffi::CString;

use rcuwalk::uapi::{O_CREAT, O_WRONLY};
use rcuwalk::{Cred, Errno, Task, Variants, Vfs, VfsBuilder, WalkMode};

use rcuwalk_measure::Error;
use rcuwalk_measure::engines::{Value, error_value};

/// The path of four components that kernel people use.
pub(super) const FAVOURITE: &str = "/usr/include/linux/fs.h";

/// Files beside it.
const FILES: usize = 128;

/// A file system with [`FAVOURITE`], files beside it and a chain of directories, which walks in a mode and takes old ways.
pub(super) fn tree(mode: WalkMode, variants: Variants) -> Result<Vfs, Error> {
    tree_of(Vfs::builder(), mode, variants)
}

/// [`tree`] with settings of its own.
pub(super) fn tree_of(builder: VfsBuilder, mode: WalkMode, variants: Variants) -> Result<Vfs, Error> {
    let vfs = made("a file system", builder.build())?;
    let root = vfs.task(Cred::root());
    for dir in ["/usr", "/usr/include", "/usr/include/linux"] {
        made(dir, root.mkdir(dir.as_bytes(), 0o755))?;
    }
    put(&root, FAVOURITE, b"", 0o644)?;
    for path in files() {
        put(&root, &path.to_string_lossy(), b"", 0o644)?;
    }
    let mut dir = String::new();
    for depth in 1..=32 {
        put(&root, &format!("{dir}/f{depth}"), b"", 0o644)?;
        dir += "/directory";
        made(&dir, root.mkdir(dir.as_bytes(), 0o755))?;
    }
    vfs.set_walk_mode(mode);
    vfs.set_variants(variants);
    Ok(vfs)
}

/// The path of a file below `depth - 1` directories.
pub(super) fn deep(depth: usize) -> CString {
    path(&format!("{}/f{depth}", "/directory".repeat(depth - 1)))
}

/// The files beside [`FAVOURITE`].
pub(super) fn files() -> Vec<CString> {
    (0..FILES).map(|i| path(&format!("/usr/include/linux/file-{i:03}.h"))).collect()
}

/// `path` as a C string.
pub(super) fn path(path: &str) -> CString {
    CString::new(path).unwrap_or_default()
}

/// The user whose lookups are timed.
pub(super) fn user() -> Cred {
    Cred::user(1000, 1000, &[])
}

/// Makes a file with contents.
pub(super) fn put(root: &Task, path: &str, contents: &[u8], mode: u32) -> Result<(), Error> {
    let written = root.open(path.as_bytes(), O_CREAT | O_WRONLY, mode).and_then(|fd| {
        root.write(fd, contents)?;
        root.close(fd)
    });
    made(path, written)
}

/// What the engine made, or its error as ours.
pub(super) fn made<T>(what: &str, result: Result<T, Errno>) -> Result<T, Error> {
    result.map_err(|errno| Error::engine("preparing a workload", what.as_bytes(), errno, ""))
}

/// The value of a `stat` answer.
pub(super) fn stat(task: &Task, path: &std::ffi::CStr) -> Value {
    match task.stat(path.to_bytes()) {
        Ok(stat) => {
            let stat = std::hint::black_box(&stat);
            stat.ino << 8 | u64::from(stat.mode & 0o777)
        }
        Err(errno) => error_value(errno.raw()),
    }
}
