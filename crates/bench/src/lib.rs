//! Workloads, checks and tables for rcuwalk, measured beside the running kernel.
