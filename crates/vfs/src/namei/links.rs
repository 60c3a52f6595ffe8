//! Following symbolic links.

use super::{Nameidata, Position, Stop, Walk};
use crate::base::errno::Errno;
use crate::base::uapi::{
    RESOLVE_BENEATH, RESOLVE_CACHED, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV, S_IFLNK, S_ISVTX, S_IWOTH,
};
use crate::dcache::Seen;
use crate::dcache::inode::Touch;
use crate::kernel::Bail;
use crate::kernel::trace::Event;
use crate::mount::{self, Path};
use crate::perm;
use crate::perm::fact::Rule;
use rcuwalk_sync::Handle;

/// The longest chain of links that is followed.
const MAXSYMLINKS: u32 = 40;

impl Nameidata<'_> {
    /// Whether `child`, found in mount `mnt`, is a link that nothing is mounted over there.
    #[inline(always)]
    pub(crate) fn is_open_link<const RCU: bool>(&self, mnt: Handle, child: Seen) -> Walk<bool> {
        Ok(child.meta.file_type() == S_IFLNK
            && (!child.meta.is_mounted() || !self.is_covered::<RCU>(mnt, child)?))
    }

    /// Follows `link`, found in `dir`: where the walk goes on, and the path from there.
    ///
    /// Kernel: fs/namei.c `pick_link()`.
    #[cold]
    pub(super) fn pick_link<const RCU: bool>(
        &mut self,
        dir: Position,
        link: Seen,
        trailing: bool,
        rest: &[u8],
    ) -> Walk<(Position, Vec<u8>)> {
        let read = self.read_link::<RCU>(dir, link, trailing, rest);
        match read {
            Err(Stop::Retry(_)) if RCU => {}
            _ => self.drop_child::<RCU>(link)?,
        }
        let path = read?;
        if path.first() != Some(&b'/') {
            // The directory is asked again, for which what was seen of it before may be too old by now.
            let seen = if RCU { dir.seen } else { self.kernel.store.see(dir.seen.dentry) };
            return Ok((Position { seen, ..dir }, path));
        }
        if self.lookup.resolve & RESOLVE_BENEATH != 0 {
            return Err(Stop::Fail(Errno::EXDEV));
        }
        // A root that the walk did not need so far counts as another mount.
        if self.lookup.resolve & RESOLVE_NO_XDEV != 0 && self.root.is_none_or(|root| root.mnt != dir.mnt) {
            return Err(Stop::Fail(Errno::EXDEV));
        }
        let root = self.root::<RCU>()?;
        if !RCU {
            self.tell::<RCU>(|kernel| Event::Walk { path: path.clone(), at: kernel.spot(root.path()) });
            self.kernel.path_get(root.path());
            self.step_held(root.path());
        }
        Ok((root, path))
    }

    /// The checks that following a link takes, in order, and its body with `rest` behind it.
    fn read_link<const RCU: bool>(
        &mut self,
        dir: Position,
        link: Seen,
        trailing: bool,
        rest: &[u8],
    ) -> Walk<Vec<u8>> {
        let place = Path { mnt: dir.mnt, dentry: link.dentry };
        if self.total_links == MAXSYMLINKS {
            return Ok(self.kernel.refuse(place, Rule::TooManyLinks, Errno::ELOOP)?);
        }
        self.total_links += 1;
        let store = &self.kernel.store;
        let inode = store.d_inode(link.dentry);
        // As long as the directory stays what it is, the link is followed, and nothing written.
        let mut certain = self.kernel.mount_has(dir.mnt, mount::flags::NOATIME);
        if trailing {
            let [link, dir] =
                [inode, store.d_inode(dir.seen.dentry)].map(|i| self.kernel.read_attr(dir.mnt, i));
            certain &= dir.mode & (S_ISVTX | S_IWOTH) != S_ISVTX | S_IWOTH;
            let may = perm::may_follow_link(self.kernel.protected(), &dir, &link, self.cred);
            may.or_else(|errno| self.kernel.refuse(place, Rule::ProtectedSymlinks, errno))?;
        }
        if self.kernel.mount_has(dir.mnt, mount::flags::NOSYMFOLLOW) {
            return Ok(self.kernel.refuse(place, Rule::NoSymFollow, Errno::ELOOP)?);
        }
        if self.lookup.resolve & RESOLVE_NO_SYMLINKS != 0 {
            return Ok(self.kernel.refuse(place, Rule::NoSymlinks, Errno::ELOOP)?);
        }
        if self.kernel.atime_needs_update(dir.mnt, inode) {
            if RCU {
                return Err(Stop::Retry(Bail::MayBlock));
            }
            if self.lookup.resolve & RESOLVE_CACHED != 0 {
                return Err(Stop::Fail(Errno::EAGAIN));
            }
            self.kernel.touch_now(inode, Touch::A);
        }
        self.turn(link);
        self.trailing |= trailing;
        self.untold |= !certain;
        let mut path = Vec::new();
        store.link_body(inode, &mut path)?;
        self.tell::<RCU>(|kernel| Event::Link { link: kernel.spot(place), body: path.clone(), trailing });
        path.try_reserve(rest.len()).map_err(|_| Errno::ENOMEM)?;
        path.extend_from_slice(rest);
        Ok(path)
    }
}
