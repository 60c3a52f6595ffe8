//! What a descriptor of `/proc/PID` stands for.

use crate::cred::userns::{IdKind, UserNamespace};
use crate::kernel::mount_tree::MntNamespace;
use std::sync::Arc;

/// What a descriptor of [`Task::open_proc`](crate::Task::open_proc) stands for.
#[derive(Debug)]
pub(crate) enum ProcNode {
    UserNs(Arc<UserNamespace>),
    MntNs(Arc<MntNamespace>),
    IdMap(Arc<UserNamespace>, IdKind),
    Setgroups(Arc<UserNamespace>),
}
