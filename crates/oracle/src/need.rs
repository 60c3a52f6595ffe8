//! What a row needs of the system it runs on, so that a backend can decline it by name.

use crate::read::alternatives;

macro_rules! needs {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal;)*) => {
        /// Something a row needs; most are derived from its calls and its tree.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Need {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Need {
            /// Every need with its name and meaning.
            pub const ALL: &'static [(Need, &'static str, &'static str)] =
                &[$((Need::$variant, $name, concat!($($doc),*))),*];
        }
    };
}

needs! {
    /// Extended attributes.
    Xattr = "xattr";
    /// POSIX access control lists.
    Acl = "acl";
    /// Immutable and append-only flags.
    InodeFlags = "inode-flags";
    /// Character and block device nodes.
    Device = "device";
    /// Pointers and structure sizes that a typed interface cannot pass.
    Memory = "memory";
    /// Executing a program.
    Exec = "exec";
    /// A second process that inherits from the first.
    Fork = "fork";
    /// Threads, which share memory, and what else a process has one of.
    Thread = "thread";
    /// Resource limits.
    Rlimit = "rlimit";
    /// Mount operations.
    Mount = "mount";
    /// Idmapped mounts.
    Idmap = "idmap";
    /// User namespaces.
    Userns = "userns";
    /// A mounted `/proc` with magic links.
    Proc = "proc";
    /// A machine-wide setting is changed while the row runs.
    Sysctl = "sysctl";
    /// The row states what tmpfs does where file systems differ.
    Tmpfs = "tmpfs";
    /// The order and the offsets of tmpfs's directories.
    DirOrder = "dir-order";
    /// The kernel's dentry cache and its RESOLVE_CACHED.
    Cached = "cached";
    /// File locks.
    Lock = "lock";
    /// Handles that stand for objects.
    Handle = "handle";
}

impl Need {
    /// Name in a row.
    pub fn name(self) -> &'static str {
        Need::ALL.iter().find(|(need, _, _)| *need == self).map_or("", |(_, name, _)| name)
    }

    /// The need of that name.
    ///
    /// # Errors
    ///
    /// The names there are.
    pub fn parse(name: &str) -> Result<Need, String> {
        let names: Vec<&str> = Need::ALL.iter().map(|(_, n, _)| *n).collect();
        let found = Need::ALL.iter().find(|(_, n, _)| *n == name).map(|(need, _, _)| *need);
        found.ok_or_else(|| format!("unknown need `{name}`{}", alternatives(name, &names)))
    }
}
