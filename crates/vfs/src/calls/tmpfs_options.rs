//! The options of a tmpfs, as mount(2) takes them. Kernel: mm/shmem.c, lib/cmdline.c.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::*;
use crate::cred::Cred;
use crate::dcache::store::Namespace;
use crate::kernel::ram;
use crate::mount::flags;

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
}

impl TmpfsOptions {
    pub(super) fn parse(data: &[u8], ms: u64, cred: &Cred) -> Result<TmpfsOptions> {
        let mut options = TmpfsOptions {
            mode: S_IRWXUGO | S_ISVTX,
            uid: cred.fsuid(),
            gid: cred.fsgid(),
            pages: None,
            percent: None,
            inodes: None,
            flags: sb_flags(ms),
        };
        let data = str::from_utf8(data).map_err(|_| Errno::EINVAL)?;
        for option in data.split(',').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some((key, value)) => options.set(key, value, cred)?,
                None => options.switch(option)?,
            }
        }
        Ok(options)
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
            // Of what pages are made, and where, shows nowhere here.
            "huge" if matches!(value, "never" | "always" | "within_size" | "advise") => {}
            "mpol" if is_mempolicy(value) => {}
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
            // Nothing is written back, swapped out, or too small for a number.
            "dirsync" | "lazytime" | "nolazytime" | "noswap" | "inode32" | "inode64" => {}
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }
}

/// What mount(2) asks of a file system as a whole.
fn sb_flags(ms: u64) -> u32 {
    [
        (MS_RDONLY, flags::SB_RDONLY),
        (MS_SYNCHRONOUS, flags::SB_SYNCHRONOUS),
        (MS_MANDLOCK, flags::SB_MANDLOCK),
    ]
    .into_iter()
    .filter(|(bit, _)| ms & bit != 0)
    .fold(0, |all, (_, flag)| all | flag)
}

/// Whether a memory policy can be that of a machine with one node. Kernel: mm/mempolicy.c `mpol_parse_str()`.
fn is_mempolicy(text: &str) -> bool {
    let (policy, nodes) = text.split_once(':').map_or((text, None), |(policy, nodes)| (policy, Some(nodes)));
    let mode = policy.split_once('=').map_or(policy, |(mode, _)| mode);
    match mode {
        "default" | "local" => nodes.is_none(),
        "interleave" => matches!(nodes, None | Some("0")),
        "bind" | "prefer" => nodes == Some("0"),
        _ => false,
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
