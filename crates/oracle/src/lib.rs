//! Behaviour rows and a differential fuzzer that hold rcuwalk to the running kernel.
