//! The one directory that a run makes: a chain of directories for the depth rows.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

use crate::error::Error;

/// The depths that are timed.
pub const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// The directories there are. Held while one is made or removed, so that [`remove_leftovers`] never meets half of one.
static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A private temporary directory with a file at each of [`DEPTHS`]; removed when dropped.
#[derive(Debug)]
pub struct Chain {
    dir: TempDir,
}

impl Chain {
    /// Makes the chain under `$TMPDIR` (`/tmp`).
    ///
    /// # Errors
    ///
    /// When nothing can be written there.
    pub fn new() -> Result<Chain, Error> {
        let base = std::env::temp_dir();
        let failed =
            |e| Error::host("making a temporary directory", &base, e, "set TMPDIR to a directory with room");
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::Builder::new().prefix("rcuwalk-bench-").tempdir_in(&base).map_err(failed)?;
        Chain::fill(dir.path()).map_err(failed)?;
        live.push(dir.path().to_path_buf());
        Ok(Chain { dir })
    }

    fn fill(top: &Path) -> io::Result<()> {
        let open_up = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755));
        open_up(top)?;
        let mut at = top.to_path_buf();
        for depth in 1..=DEPTHS[DEPTHS.len() - 1] {
            if DEPTHS.contains(&depth) {
                let file = at.join(file_name(depth));
                fs::write(&file, "")?;
                fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
            }
            at.push(dir_name(depth));
            fs::create_dir(&at)?;
            open_up(&at)?;
        }
        Ok(())
    }

    /// The top of the chain.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The path of `depth` components, relative to the top.
    pub fn file(depth: usize) -> String {
        let mut path: String = (1..depth).map(|level| dir_name(level) + "/").collect();
        path.push_str(&file_name(depth));
        path
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        live.retain(|path| path != self.dir.path());
        // What is left after a failure, the temporary directory itself tries again.
        let _ = fs::remove_dir_all(self.dir.path());
    }
}

/// Removes what would stay behind if the process ended now; for the handler of a signal that ends it.
pub fn remove_leftovers() {
    for path in LIVE.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        // The process ends: there is no one to report a failure to.
        let _ = fs::remove_dir_all(path);
    }
}

/// Eight characters, about what a component of `/usr` has.
fn dir_name(level: usize) -> String {
    format!("level-{level:02}")
}

fn file_name(depth: usize) -> String {
    format!("file-{depth:03}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_a_file_at_every_depth_and_goes_away() {
        let chain = Chain::new().unwrap();
        for depth in DEPTHS {
            let path = Chain::file(depth);
            assert_eq!(path.split('/').count(), depth);
            assert!(chain.path().join(path).is_file(), "{depth}");
        }
        let path = chain.path().to_path_buf();
        drop(chain);
        assert!(!path.exists());
        assert!(!LIVE.lock().unwrap().contains(&path));
    }
}
