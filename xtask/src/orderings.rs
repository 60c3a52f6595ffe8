//! The orderings of crates/sync and the steps of the walk's protocols: what the models and the mutants are about.

/// An ordering, named in the sources as `[ID]` at both ends.
pub(crate) struct Ordering {
    pub(crate) id: &'static str,
    /// The function of crates/sync that has it.
    pub(crate) place: &'static str,
    pub(crate) what: &'static str,
    pub(crate) partner: &'static str,
    /// The models that must fail without it.
    pub(crate) models: &'static [&'static str],
}

/// A step of a lockless protocol: as `tests/tree` mirrors it from the engine, or the engine's own check.
pub(crate) struct Step {
    /// Its name in `without("…")`, or in `step!("…", …)`.
    pub(crate) id: &'static str,
    /// The function of the engine.
    pub(crate) place: &'static str,
    /// What the mutant leaves out.
    pub(crate) what: &'static str,
    pub(crate) models: &'static [&'static str],
}

pub(crate) const ORDERINGS: &[Ordering] = &[
    Ordering {
        id: "SEQ-1",
        place: "SeqCount::begin, wait",
        what: "load, acquire",
        partner: "SEQ-4",
        models: &["seq_begin_sees_finished_change", "seq_wait_sees_finished_change"],
    },
    Ordering {
        id: "SEQ-2",
        place: "SeqCount::retry",
        what: "fence, acquire",
        partner: "SEQ-3, BLB-1",
        models: &["seq_reader_sees_whole_states"],
    },
    Ordering {
        id: "SEQ-3",
        place: "SeqCount::write",
        what: "fence, release",
        partner: "SEQ-2",
        models: &["seq_reader_sees_whole_states"],
    },
    Ordering {
        id: "SEQ-4",
        place: "SeqWrite::drop",
        what: "store, release",
        partner: "SEQ-1",
        models: &["seq_begin_sees_finished_change", "seq_wait_sees_finished_change"],
    },
    Ordering {
        id: "REF-1",
        place: "LockRef::get_not_zero",
        what: "exchange, acquire",
        partner: "REF-2, REF-3",
        models: &["get_sees_the_object_it_pins"],
    },
    Ordering {
        id: "REF-2",
        place: "LockRef::put",
        what: "subtract, release half",
        partner: "REF-1, REF-4",
        models: &["last_put_sees_every_holder"],
    },
    Ordering {
        id: "REF-3",
        place: "LockRef::init",
        what: "store, release",
        partner: "REF-1",
        models: &["get_sees_the_object_it_pins"],
    },
    Ordering {
        id: "REF-4",
        place: "LockRef::put",
        what: "subtract, acquire half",
        partner: "REF-2",
        models: &["last_put_sees_every_holder"],
    },
    Ordering {
        id: "CHN-1",
        place: "Link::load",
        what: "load, acquire",
        partner: "CHN-2",
        models: &[
            "chain_reader_misses_nothing_that_stays",
            "chain_reader_sees_whole_nodes",
            "growing_table_loses_no_node",
        ],
    },
    Ordering {
        id: "CHN-2",
        place: "Link::store",
        what: "store, release",
        partner: "CHN-1",
        models: &[
            "chain_reader_misses_nothing_that_stays",
            "chain_reader_sees_whole_nodes",
            "growing_table_loses_no_node",
        ],
    },
    Ordering {
        id: "BLB-1",
        place: "Blobs::alloc",
        what: "fence, release",
        partner: "SEQ-2",
        models: &["blob_reuse_is_noticed"],
    },
    Ordering {
        id: "SPN-1",
        place: "SpinLock::lock",
        what: "exchange, acquire",
        partner: "SPN-2",
        models: &["spin_holder_sees_earlier_holders"],
    },
    Ordering {
        id: "SPN-2",
        place: "SpinGuard::drop",
        what: "store, release",
        partner: "SPN-1",
        models: &["spin_holder_sees_earlier_holders"],
    },
];

pub(crate) const STEPS: &[Step] = &[
    Step {
        id: "walk-parent",
        place: "lookup_fast",
        what: "after a hit, the check that the directory has not moved",
        models: &["rename_vs_walk"],
    },
    Step {
        id: "walk-order",
        place: "d_lookup_rcu",
        what: "the child's count read before, not after, the check of the directory",
        models: &["rename_vs_walk", "reuse_vs_lookup"],
    },
    Step {
        id: "walk-child",
        place: "filename_lookup",
        what: "the check of the last dentry after its inode was read",
        models: &["rename_vs_walk", "reuse_vs_lookup"],
    },
    Step {
        id: "dotdot-child",
        place: "follow_dotdot",
        what: "the check that the child is still in the directory above it",
        models: &["dotdot_vs_rename_and_reuse"],
    },
    Step {
        id: "miss-mark",
        place: "Chains::find",
        what: "the mark at the end of a chain, compared with the bucket",
        models: &["miss_vs_move_to_another_chain"],
    },
    Step {
        id: "split-mark",
        place: "ChainsWriter::split",
        what: "the mark of a chain replaced before, not after, nodes leave it",
        models: &["growing_table_loses_no_node", "miss_vs_growth"],
    },
    Step {
        id: "split-whole",
        place: "ChainsWriter::split",
        what: "a new chain put into its bucket whole, not empty first",
        models: &["growing_table_loses_no_node"],
    },
    Step {
        id: "miss-entries",
        place: "prove_missing",
        what: "after a miss, the check that the directory's entries have not changed",
        models: &["miss_vs_rename_between_directories", "miss_vs_rename_over"],
    },
    Step {
        id: "miss-parent",
        place: "prove_missing",
        what: "after a miss, the check that the directory has not moved",
        models: &["miss_vs_replaced_directory"],
    },
    Step {
        id: "pin-check",
        place: "legitimize",
        what: "the check of the count after the reference was taken",
        models: &["pin_vs_free_and_reuse"],
    },
    Step {
        id: "reuse-count",
        place: "d_drop, dentry_init",
        what: "the change of a slot's count when it is freed and used again",
        models: &["pin_vs_free_and_reuse", "reuse_vs_lookup"],
    },
    Step {
        id: "umount-count",
        place: "detach_idle",
        what: "raising and lowering the mount's count before it is looked at",
        models: &["umount_vs_pin"],
    },
];

/// The checks of the engine's own walk, and what a change does so that they notice, each in a `step!`, and the races in `crates/vfs/tests/schedules.rs` that need it.
pub(crate) const CHECKS: &[Step] = &[
    Step {
        id: "revalidate",
        place: "revalidate",
        what: "the check of a dentry's count after a refusal, and wherever else the walk asks for it",
        models: &["refusal_vs_reuse"],
    },
    Step {
        id: "permission",
        place: "permission",
        what: "the second look, if the inode changed while it was asked for permission",
        models: &["owner_after_mode_vs_walk"],
    },
    Step {
        id: "parent",
        place: "walk_names, lookup_fast",
        what: "after a hit, the check that the directory has not moved",
        models: &["walk_vs_reuse"],
    },
    Step {
        id: "missing-entries",
        place: "prove_missing",
        what: "after a miss, the check that the directory's entries have not changed",
        models: &["exchange_vs_remembered_path"],
    },
    Step {
        id: "mounts",
        place: "check_mounts",
        what: "where a mount is crossed, the check that nothing was mounted or unmounted",
        models: &["mount_vs_walk"],
    },
    Step {
        id: "confirm",
        place: "confirm",
        what: "the check of the last dentry after its inode was read",
        models: &["walk_vs_reuse"],
    },
    Step {
        id: "legitimize",
        place: "Store::legitimize",
        what: "the check of the dentry's count after the reference was taken",
        models: &["unlink_vs_open", "walk_vs_reuse"],
    },
    Step {
        id: "legitimize-mounts",
        place: "Kernel::legitimize",
        what: "the check of the mounts' count after the reference to the mount was taken",
        models: &["mount_vs_walk"],
    },
    Step {
        id: "change-bit",
        place: "change_inode",
        what: "deciding anew who may search a directory whose mode or ACL changed",
        models: &["setfacl_vs_walk", "chmod_vs_walk"],
    },
    Step {
        id: "change-paths",
        place: "change_inode",
        what: "the change of the count of what remembered paths lead through",
        models: &["setfacl_vs_walk", "chmod_vs_walk"],
    },
    Step {
        id: "remembered-stamp",
        place: "remembered",
        what: "the check that what a path led to has not changed since it was copied",
        models: &["file_exchange_vs_remembered_path"],
    },
    Step {
        id: "note-dentry",
        place: "note",
        what: "under the lock, the check that what a path led to is still the same",
        models: &["file_exchange_vs_remembered_path"],
    },
    Step {
        id: "note-missing",
        place: "note",
        what: "under the lock, the check that the directory in which a name was missing has not changed",
        models: &["create_vs_missing_path"],
    },
    Step {
        id: "note-turns",
        place: "note",
        what: "under the lock, the check that the links and directories a path turned at are still the same",
        models: &["symlink_swap_vs_walk", "rmdir_vs_path_that_goes_up"],
    },
];
