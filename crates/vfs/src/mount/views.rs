//! How ids look through mounts.
//!
//! Tenants choose how many ways there are: each user namespace that mounts a file system, and each idmap, is one. Mounts that look
//! alike share one, which goes with the last of them.
//!
//! A lockless walker asks for the view of a mount that may be freed meanwhile. So it holds the view that it finds in the slot of the
//! mount's number. If the slot has been emptied or filled anew, the mount has changed, which the walker notices afterwards.

use crate::base::errno::Result;
use crate::cred::userns::{EXTENT_BYTES, IdView, MountIdmap, UserNamespace};
use arc_swap::{ArcSwapOption, Guard};
use rcuwalk_sync::{Budget, Charge};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// See [`IdView`].
#[derive(Debug)]
pub(crate) struct View {
    sb_ns: Arc<UserNamespace>,
    idmap: Option<MountIdmap>,
    _charge: Charge,
}

impl PartialEq for View {
    fn eq(&self, other: &View) -> bool {
        self.sb_ns.is(&other.sb_ns) && self.idmap == other.idmap
    }
}

impl Eq for View {}

impl Hash for View {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (Arc::as_ptr(&self.sb_ns), &self.idmap).hash(state);
    }
}

impl View {
    #[inline]
    pub(crate) fn get(&self) -> IdView<'_> {
        IdView { sb_ns: &self.sb_ns, idmap: self.idmap.as_ref() }
    }

    /// Bytes of memory that it counts for.
    fn bytes(&self) -> u64 {
        let lines = |map: &MountIdmap| map.uid_map.extents().len() + map.gid_map.extents().len();
        256 + EXTENT_BYTES * self.idmap.as_ref().map_or(0, lines) as u64
    }
}

/// How ids look through a mount, for as long as this is held.
pub(crate) enum HeldView<'a> {
    /// As they are stored in file systems of the initial namespace.
    Init(&'a UserNamespace),
    Of(Guard<Option<Arc<View>>>),
}

impl HeldView<'_> {
    #[inline]
    pub(crate) fn get(&self) -> IdView<'_> {
        match self {
            HeldView::Init(sb_ns) => IdView { sb_ns, idmap: None },
            HeldView::Of(view) => match &**view {
                Some(view) => view.get(),
                None => unreachable!("only what is in use is held"),
            },
        }
    }

    /// The view to keep, unless ids look as they are stored.
    pub(crate) fn into_shared(self) -> Option<Arc<View>> {
        match self {
            HeldView::Init(_) => None,
            HeldView::Of(view) => Guard::into_inner(view),
        }
    }
}

/// The views by number, as walkers read them. Number 0 is that of the initial namespace, without an idmap.
#[derive(Debug, Default)]
pub(super) struct ViewSlots {
    /// The chunk of number `n` is the position of its highest bit. Each mount has one number at most.
    chunks: [OnceLock<Box<[ArcSwapOption<View>]>>; super::MAX_MOUNTS.ilog2() as usize],
}

impl ViewSlots {
    fn slot(&self, number: u32) -> &ArcSwapOption<View> {
        let bit = number.ilog2();
        let chunk =
            self.chunks[bit as usize].get_or_init(|| (0..1 << bit).map(|_| ArcSwapOption::empty()).collect());
        &chunk[(number - (1 << bit)) as usize]
    }

    /// What this number stands for now, if it is in use.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Guard<Option<Arc<View>>> {
        self.slot(number).load()
    }
}

/// Which numbers are in use, for changes under the lock.
#[derive(Debug, Default)]
pub(super) struct Views {
    numbers: HashMap<Arc<View>, u32>,
    /// By number: how many mounts have it.
    mounts: Vec<u32>,
    free: Vec<u32>,
}

impl Views {
    /// The number of a view, for one more mount.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn take(
        &mut self,
        slots: &ViewSlots,
        memory: Option<&Arc<Budget>>,
        sb_ns: &Arc<UserNamespace>,
        idmap: Option<&MountIdmap>,
    ) -> Result<u32> {
        if sb_ns.is_init() && idmap.is_none() {
            return Ok(0);
        }
        let mut view = View { sb_ns: Arc::clone(sb_ns), idmap: idmap.cloned(), _charge: Charge::default() };
        if let Some(&number) = self.numbers.get(&view) {
            self.share(number);
            return Ok(number);
        }
        view._charge = Charge::new(memory, view.bytes())?;
        let view = Arc::new(view);
        if self.mounts.is_empty() {
            self.mounts.push(0);
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.mounts.push(0);
            self.mounts.len() as u32 - 1
        });
        self.mounts[number as usize] = 1;
        slots.slot(number).store(Some(Arc::clone(&view)));
        self.numbers.insert(view, number);
        Ok(number)
    }

    /// One more mount has this number.
    pub(super) fn share(&mut self, number: u32) {
        if number != 0 {
            self.mounts[number as usize] += 1;
        }
    }

    /// A mount has this number no more.
    pub(super) fn put(&mut self, slots: &ViewSlots, number: u32) {
        if number == 0 {
            return;
        }
        self.mounts[number as usize] -= 1;
        if self.mounts[number as usize] == 0
            && let Some(view) = slots.slot(number).swap(None)
        {
            self.numbers.remove(&view);
            self.free.push(number);
        }
    }
}
