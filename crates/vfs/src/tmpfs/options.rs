//! The options of a tmpfs, as they are shown.

use crate::base::uapi::{S_IRWXUGO, S_ISVTX};
use crate::tmpfs::pages::PAGE_SIZE;

/// What a tmpfs was mounted with, as far as it shows. Kernel: mm/shmem.c `struct shmem_sb_info`.
#[derive(Debug, Clone)]
pub(crate) struct ShownOptions {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// As far as given; 0 is without limit.
    pub(crate) pages: Option<u64>,
    /// As far as given; 0 is without limit.
    pub(crate) inodes: Option<u64>,
    /// `inode64`.
    pub(crate) full_inums: bool,
    /// Empty for `never`.
    pub(crate) huge: &'static str,
    /// Empty for the default.
    pub(crate) mpol: String,
    pub(crate) noswap: bool,
}

impl Default for ShownOptions {
    fn default() -> Self {
        ShownOptions {
            mode: S_IRWXUGO | S_ISVTX,
            uid: 0,
            gid: 0,
            pages: None,
            inodes: None,
            full_inums: false,
            huge: "",
            mpol: String::new(),
            noswap: false,
        }
    }
}

impl ShownOptions {
    /// The options that are not as they are anyway, in the kernel's order. `half` is half of the memory there is, in pages: what a
    /// tmpfs without options may have.
    ///
    /// Kernel: mm/shmem.c `shmem_show_options()`, of a kernel with huge pages and without `TMPFS_INODE64`.
    pub(crate) fn list(&self, half: impl FnOnce() -> Option<u64>) -> Vec<String> {
        let half = if self.pages.is_some() || self.inodes.is_some() { half() } else { None };
        let limit = |given: Option<u64>| given.filter(|_| given != half);
        let kib = PAGE_SIZE as u64 / 1024;
        let default = ShownOptions::default();
        [
            limit(self.pages).map(|pages| format!("size={}k", pages.saturating_mul(kib))),
            limit(self.inodes).map(|inodes| format!("nr_inodes={inodes}")),
            (self.mode != default.mode).then(|| format!("mode={:03o}", self.mode)),
            (self.uid != 0).then(|| format!("uid={}", self.uid)),
            (self.gid != 0).then(|| format!("gid={}", self.gid)),
            self.full_inums.then(|| "inode64".to_owned()),
            (!self.huge.is_empty()).then(|| format!("huge={}", self.huge)),
            (!self.mpol.is_empty()).then(|| format!("mpol={}", self.mpol)),
            self.noswap.then(|| "noswap".to_owned()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
