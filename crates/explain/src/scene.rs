//! What is known of the host along a path, and an engine that holds exactly that.
//!
//! A [`Scene`] is a tree of what was looked at: names that are there, names that are not, names that nobody could see. A
//! [`World`] is an engine with the same tree, either as it is, to be judged, or with everything open, to find out by the
//! engine's own walk what else has to be looked at.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use rcuwalk::acl::Acl;
use rcuwalk::perm::Protected;
use rcuwalk::trace::Spot;
use rcuwalk::uapi::{S_IFDIR, S_IFMT, S_IFREG};
use rcuwalk::{Cred, Errno, Loader, MountId, MountOptions, NewInode, NewMount, NodeId, Task, Vfs};

/// The index of a node; the root of the tree is 0.
pub(crate) type NodeIx = usize;
/// The index of a mount.
pub(crate) type MountIx = usize;

/// A name in a directory that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    Node(NodeIx),
    Missing,
    /// Looking failed with this error.
    Unseen(Errno),
    /// It is in a file system that lets in the user who mounted it and no other.
    Closed(MountIx),
}

/// What a file system object is, as the mount shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Object {
    /// Type and permissions.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) rdev: u64,
    /// `IFLAG_*`.
    pub(crate) iflags: u32,
    pub(crate) acl: Option<Acl>,
    /// Its file system stores no ACLs.
    pub(crate) no_acls: bool,
    /// The body of a link.
    pub(crate) body: Vec<u8>,
    /// `security.capability`.
    pub(crate) caps: Option<Vec<u8>>,
    /// Pieces of a program that decide how it is executed, by offset; `None` if they could not be read.
    pub(crate) contents: Option<Vec<(u64, Vec<u8>)>>,
    /// Which object of the host it is: device and inode number.
    pub(crate) host: (u64, u64),
    /// What could not be found out about it, and why.
    pub(crate) unseen: Vec<String>,
    /// What may refuse to have it written or connected to, and could not be seen.
    pub(crate) may_refuse: Vec<String>,
    /// What of `MAY_READ` and `MAY_WRITE` this process's device cgroup refuses, if it is a device; `None` if it could not be
    /// asked.
    pub(crate) cgroup_refuses: Option<u32>,
    /// It is sealed by fs-verity.
    pub(crate) verity: bool,
    /// The file system cannot store the attribute that is to be set.
    pub(crate) lacks_attribute: bool,
    pub(crate) swap: Swap,
    /// A process that runs it, if it is a program that is to be written to.
    pub(crate) run_by: Option<i32>,
}

/// Whether the kernel swaps to a file that is to be changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Swap {
    #[default]
    No,
    Yes,
    /// That could not be seen, and why.
    Unseen(String),
}

impl Object {
    pub(crate) fn kind(&self) -> u32 {
        self.mode & S_IFMT
    }
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: Vec<u8>,
    pub(crate) parent: NodeIx,
    pub(crate) mount: MountIx,
    pub(crate) object: Object,
    pub(crate) entries: BTreeMap<Vec<u8>, Entry>,
    /// The host's directory, without permission to do anything with it.
    pub(crate) fd: Option<OwnedFd>,
    /// The first node that is the same object, seen through the same mount.
    pub(crate) same: NodeIx,
}

/// A mount of the host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mount {
    /// As `/proc/PID/mountinfo` numbers it.
    pub(crate) id: u64,
    pub(crate) options: MountOptions,
    pub(crate) sb_read_only: bool,
    pub(crate) idmapped: bool,
    pub(crate) fstype: String,
    pub(crate) source: String,
    pub(crate) point: Vec<u8>,
    /// Options of the superblock, as the file system writes them.
    pub(crate) super_options: String,
    /// Its flags could not be seen.
    pub(crate) unseen: bool,
}

impl Mount {
    pub(crate) fn is_fuse(&self) -> bool {
        self.fstype == "fuse" || self.fstype.starts_with("fuse.") || self.fstype == "fuseblk"
    }

    /// Whether the superblock has this option.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.super_options.split(',').any(|it| it == option)
    }

    /// Whether this is a proc file system that hides processes of other users.
    pub(crate) fn hides_processes(&self) -> bool {
        let value = self.super_options.split(',').find_map(|option| option.strip_prefix("hidepid="));
        value.is_some_and(|value| !matches!(value, "0" | "off"))
    }

    /// Whether this is a FUSE file system that does not let in a process with these real, effective and saved ids. Without
    /// `allow_other` it lets in the user who mounted it, with the group of then, and no other; root neither.
    ///
    /// Kernel: fs/fuse/dir.c `fuse_allow_current_process()`.
    pub(crate) fn shuts_out(&self, uids: [u32; 4], gids: [u32; 4]) -> bool {
        let mounter = |key: &str| {
            let value = self.super_options.split(',').find_map(|option| option.strip_prefix(key));
            value.and_then(|value| value.parse::<u32>().ok())
        };
        let is = |ids: [u32; 4], id: Option<u32>| id.is_none_or(|id| ids[..3] == [id; 3]);
        self.is_fuse()
            && !self.has("allow_other")
            && !(is(uids, mounter("user_id=")) && is(gids, mounter("group_id=")))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Scene {
    pub(crate) nodes: Vec<Node>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) protected: Protected,
    /// The path of the current directory, from the root.
    pub(crate) cwd: Vec<u8>,
    /// The current directory was removed.
    pub(crate) cwd_removed: bool,
}

impl Scene {
    /// The path by which a node was come to first.
    pub(crate) fn path(&self, node: NodeIx) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = node;
        while at != 0 {
            names.push(self.nodes[at].name.as_slice());
            at = self.nodes[at].parent;
        }
        if names.is_empty() {
            return b"/".to_vec();
        }
        names.reverse();
        names.iter().flat_map(|name| [b"/".as_slice(), name]).flatten().copied().collect()
    }

    /// Adds a node that was found under `name` in `parent`.
    pub(crate) fn add(&mut self, parent: NodeIx, name: &[u8], mount: MountIx, object: Object) -> NodeIx {
        let at = self.nodes.len();
        let same = self.nodes.iter().position(|node| node.mount == mount && node.object.host == object.host);
        self.nodes.push(Node {
            name: name.to_vec(),
            parent,
            mount,
            object,
            entries: BTreeMap::new(),
            fd: None,
            same: same.unwrap_or(at),
        });
        if at != 0 {
            self.nodes[parent].entries.insert(name.to_vec(), Entry::Node(at));
        }
        at
    }

    /// A copy to change for a trial: without the descriptors, so nothing more can be looked at.
    pub(crate) fn copy(&self) -> Scene {
        let nodes = self.nodes.iter().map(|node| Node {
            name: node.name.clone(),
            parent: node.parent,
            mount: node.mount,
            object: node.object.clone(),
            entries: node.entries.clone(),
            fd: None,
            same: node.same,
        });
        Scene {
            nodes: nodes.collect(),
            mounts: self.mounts.clone(),
            protected: self.protected,
            cwd: self.cwd.clone(),
            cwd_removed: self.cwd_removed,
        }
    }

    /// Changes an object under all its names.
    pub(crate) fn change(&mut self, node: NodeIx, change: impl Fn(&mut Object)) {
        let same = self.nodes[node].same;
        self.nodes.iter_mut().filter(|node| node.same == same).for_each(|node| change(&mut node.object));
    }
}

/// How a scene becomes an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// As it is.
    Real,
    /// Without anything that could refuse.
    Open,
}

/// See the module.
pub(crate) struct World {
    pub(crate) vfs: Vfs,
    view: View,
    nodes: Vec<NodeId>,
    mounts: Vec<Option<(MountId, u64)>>,
}

/// The longest path and the most links leave room for this many objects.
const CAPACITY: u32 = 1 << 16;

impl World {
    /// An engine with everything that the scene holds.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what a [`Loader`] says to an object that makes no sense.
    pub(crate) fn new(scene: &Scene, view: View) -> Result<World, Errno> {
        let protected = if view == View::Real { scene.protected } else { Protected::default() };
        // Access times are nobody's question, and stay as they are.
        let options = options_of(&scene.mounts[0], view).with_noatime(true);
        let vfs = Vfs::builder().capacity(CAPACITY).protected(protected).mount_options(options).build()?;
        vfs.set_read_only(view == View::Real && scene.mounts[0].sb_read_only);
        let mut world = World { vfs, view, nodes: Vec::new(), mounts: Vec::new() };
        world.catch_up(scene)?;
        Ok(world)
    }

    /// Adds what has been looked at since.
    pub(crate) fn catch_up(&mut self, scene: &Scene) -> Result<(), Errno> {
        let vfs = self.vfs.clone();
        let mut loader = vfs.loader();
        self.mounts.resize(scene.mounts.len(), None);
        for (at, node) in scene.nodes.iter().enumerate().skip(self.nodes.len()) {
            let id = self.load(&mut loader, scene, at, node)?;
            self.nodes.push(id);
        }
        Ok(())
    }

    fn load(
        &mut self,
        loader: &mut Loader<'_>,
        scene: &Scene,
        at: NodeIx,
        node: &Node,
    ) -> Result<NodeId, Errno> {
        let acl = node.object.acl.as_ref().map(|acl| acl.to_xattr(|id| id, |id| id));
        let mut xattrs: Vec<(&[u8], &[u8])> = Vec::new();
        if self.view == View::Real {
            let acl = acl.as_deref().map(|value| (b"system.posix_acl_access".as_slice(), value));
            let caps = node.object.caps.as_deref().map(|value| (b"security.capability".as_slice(), value));
            xattrs.extend(acl.into_iter().chain(caps));
        }
        let inode = new_inode(&node.object, at, self.view, &xattrs);
        if at == 0 {
            loader.set_root(&inode)?;
            let mount = loader.root_mount();
            self.mounts[0] = Some((mount, loader.mount_number(mount)));
            return Ok(loader.root());
        }
        let parent = self.nodes[node.parent];
        let id = if node.mount != scene.nodes[node.parent].mount {
            self.load_mount(loader, scene, node, inode)?
        } else if node.same != at && node.object.kind() != S_IFDIR {
            loader.link(parent, &node.name, self.nodes[node.same])?
        } else {
            loader.add(parent, &node.name, &inode)?
        };
        if node.object.kind() == S_IFREG && node.same == at {
            for (offset, bytes) in node.object.contents.iter().flatten() {
                loader.write(id, *offset, bytes)?;
            }
            if node.object.contents.is_some() {
                loader.has_contents(id)?;
            }
        }
        Ok(id)
    }

    /// Mounts what the node is the root of over a stand-in for what it covers.
    fn load_mount(
        &mut self,
        loader: &mut Loader<'_>,
        scene: &Scene,
        node: &Node,
        root: NewInode<'_>,
    ) -> Result<NodeId, Errno> {
        let covered = root.with_xattrs(&[]);
        let at = loader.add(self.nodes[node.parent], &node.name, &covered)?;
        let on = self.mounts[scene.nodes[node.parent].mount].ok_or(Errno::EINVAL)?.0;
        let mount = &scene.mounts[node.mount];
        let new = NewMount::new(root)
            .with_options(options_of(mount, self.view).with_noatime(true))
            .with_sb_read_only(self.view == View::Real && mount.sb_read_only);
        let (mount, id) = loader.mount(on, at, &new)?;
        self.mounts[node.mount] = Some((mount, loader.mount_number(mount)));
        Ok(id)
    }

    /// A task of root's in the current directory.
    ///
    /// # Errors
    ///
    /// What chdir(2) says, and what the engine says to removing the directory.
    pub(crate) fn task(&self, scene: &Scene) -> Result<Task, Errno> {
        let task = self.vfs.task(Cred::root());
        if !scene.cwd.is_empty() {
            task.chdir(&scene.cwd)?;
            if scene.cwd_removed && self.view == View::Real {
                self.vfs.task(Cred::root()).rmdir(&scene.cwd)?;
            }
        }
        Ok(task)
    }

    /// The node that was seen there.
    pub(crate) fn node(spot: Spot) -> NodeIx {
        // Inode numbers are the nodes', from 1; what the call itself creates lies above.
        (spot.ino as usize).saturating_sub(1)
    }
}

fn options_of(mount: &Mount, view: View) -> MountOptions {
    if view == View::Real { mount.options } else { MountOptions::default() }
}

fn new_inode<'a>(
    object: &'a Object,
    at: NodeIx,
    view: View,
    xattrs: &'a [(&'a [u8], &'a [u8])],
) -> NewInode<'a> {
    let open = view == View::Open;
    NewInode::new(if open { object.kind() | 0o777 } else { object.mode })
        .with_uid(if open { 0 } else { object.uid })
        .with_gid(if open { 0 } else { object.gid })
        .with_rdev(object.rdev)
        .with_size(object.size)
        .with_ino(Some(at as u64 + 1))
        .with_iflags(if open { 0 } else { object.iflags })
        .with_symlink(&object.body)
        .with_xattrs(xattrs)
}
