//! Settings of the whole file system that can change while tasks run, as `/proc/sys` has them.
//!
//! Kernel: fs/file_table.c, fs/file.c, fs/namei.c, fs/namespace.c, kernel/ucount.c.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::CAP_SYS_ADMIN;
use crate::cred::Cred;
use crate::cred::ucounts::{Counted, Ucount};
use crate::cred::userns::UserNamespace;
use crate::file::FileArc;
use crate::kernel::Kernel;
use crate::kernel::vfs::Vfs;
use crate::perm::Protected;
use rcuwalk_sync::Racy64;
use std::collections::HashSet;
use std::sync::Arc;

/// A setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sysctl {
    /// `fs.protected_symlinks`, 0 or 1: links of others in sticky directories are not followed.
    ProtectedSymlinks,
    /// `fs.protected_hardlinks`, 0 or 1: files of others cannot be linked.
    ProtectedHardlinks,
    /// `fs.protected_regular`, 0 to 2: files of others in sticky directories are not opened with `O_CREAT`.
    ProtectedRegular,
    /// `fs.protected_fifos`, 0 to 2: likewise fifos.
    ProtectedFifos,
    /// `fs.file-max`: the most open files, running programs among them; more are `ENFILE` without `CAP_SYS_ADMIN`.
    FileMax,
    /// `fs.nr_open`: descriptors are numbered below it, whatever `RLIMIT_NOFILE` says.
    NrOpen,
    /// `fs.mount-max`: the most mounts in a mount namespace; more are `ENOSPC`.
    MountMax,
    /// `user.max_user_namespaces`: the most user namespaces that tasks of each user may make, those that others make in one of
    /// his included; more are `ENOSPC`. Differs from the kernel, which starts with a limit that hangs on the memory of the machine.
    MaxUserNamespaces,
    /// `user.max_mnt_namespaces`: likewise mount namespaces, and trees that open_tree(2) made and that are mounted nowhere yet.
    MaxMntNamespaces,
}

impl Sysctl {
    /// Each with its name, the least and the largest value, and the one it starts with.
    const ALL: [(Sysctl, &str, u64, u64, u64); 9] = [
        (Sysctl::ProtectedSymlinks, "fs.protected_symlinks", 0, 1, 0),
        (Sysctl::ProtectedHardlinks, "fs.protected_hardlinks", 0, 1, 0),
        (Sysctl::ProtectedRegular, "fs.protected_regular", 0, 2, 0),
        (Sysctl::ProtectedFifos, "fs.protected_fifos", 0, 2, 0),
        (Sysctl::FileMax, "fs.file-max", 0, i64::MAX as u64, i64::MAX as u64),
        (Sysctl::NrOpen, "fs.nr_open", 64, 0x7fff_ffc0, 1 << 20),
        (Sysctl::MountMax, "fs.mount-max", 1, i32::MAX as u64, 100_000),
        (Sysctl::MaxUserNamespaces, "user.max_user_namespaces", 0, Ucount::MAX, Ucount::MAX),
        (Sysctl::MaxMntNamespaces, "user.max_mnt_namespaces", 0, Ucount::MAX, Ucount::MAX),
    ];

    /// The setting of this name, as sysctl(8) writes it.
    ///
    /// ```
    /// use rcuwalk::Sysctl;
    /// assert_eq!(Sysctl::named("fs.file-max"), Some(Sysctl::FileMax));
    /// ```
    pub fn named(name: &str) -> Option<Sysctl> {
        Sysctl::ALL.iter().find(|(_, known, ..)| *known == name).map(|&(which, ..)| which)
    }
}

/// The settings of a [`Kernel`].
#[derive(Debug)]
pub(crate) struct Settings([Racy64; Sysctl::ALL.len()]);

impl Settings {
    pub(crate) fn new(protected: Protected) -> Settings {
        let settings = Settings(Sysctl::ALL.map(|(.., start)| Racy64::new(start)));
        let protect = [
            (Sysctl::ProtectedSymlinks, u64::from(protected.symlinks)),
            (Sysctl::ProtectedHardlinks, u64::from(protected.hardlinks)),
            (Sysctl::ProtectedRegular, u64::from(protected.regular)),
            (Sysctl::ProtectedFifos, u64::from(protected.fifos)),
        ];
        protect.into_iter().for_each(|(which, value)| settings.0[which as usize].set(value));
        settings
    }

    pub(crate) fn get(&self, which: Sysctl) -> u64 {
        self.0[which as usize].get()
    }

    pub(crate) fn protected(&self) -> Protected {
        Protected {
            symlinks: self.get(Sysctl::ProtectedSymlinks) != 0,
            hardlinks: self.get(Sysctl::ProtectedHardlinks) != 0,
            regular: self.get(Sysctl::ProtectedRegular) as u8,
            fifos: self.get(Sysctl::ProtectedFifos) as u8,
        }
    }
}

impl Vfs {
    /// The value of a setting.
    pub fn sysctl(&self, which: Sysctl) -> u64 {
        self.0.settings.get(which)
    }

    /// Changes a setting, for all tasks from now on.
    ///
    /// # Errors
    ///
    /// `EINVAL`: out of its range.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Errno, Sysctl, Vfs};
    /// let vfs = Vfs::new()?;
    /// vfs.set_sysctl(Sysctl::FileMax, 0)?;
    /// let user = vfs.task(Cred::user(1000, 1000, &[]));
    /// assert_eq!(user.open(b"/", 0, 0), Err(Errno::ENFILE));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn set_sysctl(&self, which: Sysctl, value: u64) -> Result<()> {
        let (_, _, least, most, _) = Sysctl::ALL[which as usize];
        if !(least..=most).contains(&value) {
            return Err(Errno::EINVAL);
        }
        let ns = self.0.store.lock();
        self.0.settings.0[which as usize].set(value);
        // What a walk may follow is part of what the path table remembers.
        let _change = self.0.store.open_paths(&ns);
        Ok(())
    }
}

impl Kernel {
    /// Counts one more namespace that the effective user of a task makes, in that user namespace.
    ///
    /// # Errors
    ///
    /// `ENOSPC`.
    ///
    /// Kernel: kernel/ucount.c `inc_ucount()`.
    pub(crate) fn count_namespace(
        &self,
        cred: &Cred,
        user_ns: &Arc<UserNamespace>,
        kind: Ucount,
    ) -> Result<Counted> {
        let most = match kind {
            Ucount::UserNamespaces => Sysctl::MaxUserNamespaces,
            Ucount::MntNamespaces => Sysctl::MaxMntNamespaces,
        };
        self.users.get(user_ns, cred.euid()).count_namespace(kind, self.settings.get(most))
    }

    /// Whether one more file may be opened. They are counted when there is a limit, in all descriptor tables, and with them those
    /// that programs are executed from.
    ///
    /// It is asked before the walk, by open and by execve, so that `ENFILE` hides whatever is wrong with the path. Only the
    /// account is early: nothing is allocated before the file is found (S5).
    ///
    /// # Errors
    ///
    /// `ENFILE`.
    ///
    /// Kernel: fs/namei.c `path_openat()`, which calls fs/file_table.c `alloc_empty_file()` first.
    #[inline]
    pub(crate) fn may_open_file(&self, cred: &Cred) -> Result<()> {
        let most = self.settings.get(Sysctl::FileMax);
        if most == i64::MAX as u64 { Ok(()) } else { self.check_file_max(cred, most) }
    }

    #[cold]
    fn check_file_max(&self, cred: &Cred, most: u64) -> Result<()> {
        if cred.capable(CAP_SYS_ADMIN) {
            return Ok(());
        }
        let tables = self.files_owners.all();
        let open: HashSet<usize> = tables
            .iter()
            .flat_map(|files| files.table.files())
            .map(|file| {
                let at = FileArc::as_ptr(&file) as usize;
                self.fput(file);
                at
            })
            .collect();
        let executed = u64::from(self.exec_files.get());
        if open.len() as u64 + executed >= most { Err(Errno::ENFILE) } else { Ok(()) }
    }
}
