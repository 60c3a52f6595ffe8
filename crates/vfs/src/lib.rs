//! The Linux pathname layer as a library: path walk, directory cache, credentials, permission checks and the calls on them.
