//! The options of a tmpfs, as mount(2) takes them. Kernel: mm/shmem.c, lib/cmdline.c.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::*;
use crate::cred::Cred;
use crate::cred::userns::UserNamespace;
use crate::dcache::store::Namespace;
use crate::kernel::ram;
use crate::mount::flags;
use crate::tmpfs::options::ShownOptions;

/// The options of a tmpfs. Kernel: mm/shmem.c `shmem_parse_one()`.  Differs: where it takes half of the memory, there is no limit.
pub(super) struct TmpfsOptions {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// As far as given; 0 is without limit.
    pub(super) pages: Option<u64>,
    percent: Option<u64>,
    pub(super) inodes: Option<u64>,
    /// Of [`flags::SB_SETTABLE`].
    pub(super) flags: u32,
    /// `dirsync` was among them, which a remount cannot change.
    dirsync: bool,
    pub(super) source: Option<String>,
    full_inums: Option<bool>,
    huge: Option<&'static str>,
    mpol: Option<String>,
    noswap: bool,
}

impl TmpfsOptions {
    /// Parses the options of a file system of the namespace `fs_ns`.
    pub(super) fn parse(data: &[u8], ms: u64, cred: &Cred, fs_ns: &UserNamespace) -> Result<TmpfsOptions> {
        let mut options = TmpfsOptions {
            mode: S_IRWXUGO | S_ISVTX,
            uid: cred.fsuid(),
            gid: cred.fsgid(),
            pages: None,
            percent: None,
            inodes: None,
            flags: sb_flags(ms),
            dirsync: false,
            source: None,
            full_inums: None,
            huge: None,
            mpol: None,
            noswap: false,
        };
        let data = str::from_utf8(data).map_err(|_| Errno::EINVAL)?;
        for option in pieces(data).filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some((key, value)) => options.set(key, value, cred)?,
                None => options.switch(option)?,
            }
        }
        let may_keep_in_memory = fs_ns.is_init() && cred.capable(CAP_SYS_ADMIN);
        if options.noswap && !may_keep_in_memory { Err(Errno::EINVAL) } else { Ok(options) }
    }

    /// What is shown of a file system with these options, where they were not given as in `before`.
    pub(super) fn shown(&self, before: &ShownOptions) -> ShownOptions {
        ShownOptions {
            pages: self.pages.or(before.pages),
            inodes: self.inodes.or(before.inodes),
            full_inums: self.full_inums.unwrap_or(before.full_inums),
            huge: self.huge.unwrap_or(before.huge),
            mpol: self.mpol.as_ref().filter(|mpol| !mpol.is_empty()).unwrap_or(&before.mpol).clone(),
            noswap: self.noswap || before.noswap,
            ..*before
        }
    }

    /// Whether a file system that was mounted `before` can get these options, as far as they can be told.
    ///
    /// # Errors
    ///
    /// `EINVAL`.
    ///
    /// Kernel: fs/super.c `reconfigure_super()`, mm/shmem.c `shmem_reconfigure()`.
    pub(super) fn may_remount(&self, before: &ShownOptions) -> Result<()> {
        let limits =
            |now: Option<u64>, before: Option<u64>| before == Some(0) && now.is_some_and(|now| now != 0);
        let refused = self.dirsync
            || self.noswap && !before.noswap
            || limits(self.pages, before.pages)
            || limits(self.inodes, before.inodes);
        if refused { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// With a size in percent made one in pages.
    pub(super) fn resolved(self, ns: &Namespace) -> Result<TmpfsOptions> {
        let pages = self.percent.map(|percent| ram::pages_of_percent(ns, percent)).transpose()?;
        Ok(TmpfsOptions { pages: pages.or(self.pages), ..self })
    }

    /// The most pages there may be.
    pub(super) fn page_limit(&self) -> u64 {
        self.pages.filter(|&pages| pages != 0).unwrap_or(u64::MAX)
    }

    /// An option with a value.
    fn set(&mut self, key: &str, value: &str, cred: &Cred) -> Result<()> {
        match key {
            "mode" => {
                let digits = value.strip_prefix('+').unwrap_or(value);
                self.mode = u32::from_str_radix(digits, 8).map_err(|_| Errno::EINVAL)? & S_IALLUGO;
            }
            "uid" => self.uid = valid(cred.user_ns().make_kuid(number(value)?))?,
            "gid" => self.gid = valid(cred.user_ns().make_kgid(number(value)?))?,
            "size" => match value.strip_suffix('%') {
                Some("") => (self.pages, self.percent) = (Some(0), None),
                Some(percent) => self.percent = Some(memparse(percent)?),
                None => (self.pages, self.percent) = (Some(memparse(value)?.div_ceil(4096)), None),
            },
            "nr_blocks" => (self.pages, self.percent) = (Some(memparse(value)?), None),
            "nr_inodes" => self.inodes = Some(memparse(value)?),
            // Of what pages are made, and where, is shown, and has no effect.
            "huge" => self.huge = Some(huge(value).ok_or(Errno::EINVAL)?),
            "mpol" => self.mpol = Some(mempolicy(value).ok_or(Errno::EINVAL)?),
            "source" if self.source.is_none() => self.source = Some(value.to_owned()),
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// An option without a value. Kernel: also fs/fs_context.c `vfs_parse_sb_flag()`.
    fn switch(&mut self, option: &str) -> Result<()> {
        match option {
            "ro" => self.flags |= flags::SB_RDONLY,
            "rw" => self.flags &= !flags::SB_RDONLY,
            "sync" => self.flags |= flags::SB_SYNCHRONOUS,
            "async" => self.flags &= !flags::SB_SYNCHRONOUS,
            "mand" => self.flags |= flags::SB_MANDLOCK,
            "nomand" => self.flags &= !flags::SB_MANDLOCK,
            // Nothing is written back, swapped out, or too small for a number: this is only shown.
            "dirsync" => {
                self.flags |= flags::SB_DIRSYNC;
                self.dirsync = true;
            }
            "lazytime" => self.flags |= flags::SB_LAZYTIME,
            "nolazytime" => self.flags &= !flags::SB_LAZYTIME,
            "noswap" => self.noswap = true,
            "inode32" => self.full_inums = Some(false),
            "inode64" => self.full_inums = Some(true),
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }
}

/// `MS_*` and the flags of a file system that they stand for.
pub(super) const SB_FLAGS: [(u64, u32); 5] = [
    (MS_RDONLY, flags::SB_RDONLY),
    (MS_SYNCHRONOUS, flags::SB_SYNCHRONOUS),
    (MS_MANDLOCK, flags::SB_MANDLOCK),
    (MS_DIRSYNC, flags::SB_DIRSYNC),
    (MS_LAZYTIME, flags::SB_LAZYTIME),
];

/// What mount(2) asks of a file system as a whole.
fn sb_flags(ms: u64) -> u32 {
    SB_FLAGS.iter().filter(|(bit, _)| ms & bit != 0).fold(0, |all, (_, flag)| all | flag)
}

/// The options one by one. A comma before a digit is part of one, as in a list of nodes. Kernel: `shmem_next_opt()`.
fn pieces(data: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(data);
    std::iter::from_fn(move || {
        let text = rest?;
        let ends = |&(at, _): &(usize, &str)| !text[at + 1..].starts_with(|next: char| next.is_ascii_digit());
        let end = text.match_indices(',').find(ends).map(|(at, _)| at);
        rest = end.map(|at| &text[at + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

/// How huge pages are used, as it is shown. Kernel: `shmem_format_huge()`.
fn huge(value: &str) -> Option<&'static str> {
    const WAYS: [&str; 3] = ["always", "within_size", "advise"];
    if value == "never" { Some("") } else { WAYS.into_iter().find(|way| *way == value) }
}

/// A memory policy of a machine with one node, as it is shown. Kernel: mm/mempolicy.c `mpol_parse_str()`, `mpol_to_str()`.
fn mempolicy(text: &str) -> Option<String> {
    let (policy, nodes) = text.split_once(':').map_or((text, None), |(policy, nodes)| (policy, Some(nodes)));
    let (mode, how) = policy.split_once('=').map_or((policy, None), |(mode, how)| (mode, Some(how)));
    let is_node = |piece: &str| !piece.is_empty() && piece.split('-').all(|end| end == "0");
    let one_node = nodes.is_none_or(|nodes| nodes.split(',').all(is_node));
    let known = one_node && matches!(how, None | Some("static" | "relative"));
    let shown = || format!("{policy}:0");
    match mode {
        "default" => nodes.is_none().then(String::new),
        "local" => (policy == mode && nodes.is_none()).then(|| mode.to_owned()),
        "prefer" if nodes.is_none() => (policy == mode).then(|| "local".to_owned()),
        "prefer" => (known && nodes == Some("0")).then(shown),
        "bind" | "prefer (many)" => (known && nodes.is_some()).then(shown),
        "interleave" | "weighted interleave" => known.then(shown),
        _ => None,
    }
}

fn valid(id: u32) -> Result<u32> {
    if id == INVALID_ID { Err(Errno::EINVAL) } else { Ok(id) }
}

/// A number: hexadecimal behind `0x`, octal behind `0`. Kernel: lib/kstrtox.c `kstrtouint()` with base 0.
fn number(text: &str) -> Result<u32> {
    unsigned(text).and_then(|number| u32::try_from(number).ok()).ok_or(Errno::EINVAL)
}

fn unsigned(text: &str) -> Option<u64> {
    let (radix, digits) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (16, digits),
        None if text.starts_with('0') => (8, text),
        None => (10, text),
    };
    let is_number = !digits.starts_with('+');
    u64::from_str_radix(digits, radix).ok().filter(|_| is_number)
}

/// A number with one of `k`, `m`, `g`, `t`, `p` or `e` behind it. Kernel: lib/cmdline.c `memparse()`.
fn memparse(text: &str) -> Result<u64> {
    let hexadecimal = text.starts_with("0x") || text.starts_with("0X");
    let unit = text.chars().next_back().filter(|unit| !(hexadecimal && unit.is_ascii_hexdigit()));
    let shift = match unit.map(|unit| unit.to_ascii_lowercase()) {
        Some('k') => 10,
        Some('m') => 20,
        Some('g') => 30,
        Some('t') => 40,
        Some('p') => 50,
        Some('e') => 60,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    unsigned(digits).map(|number| number.saturating_mul(1 << shift)).ok_or(Errno::EINVAL)
}
