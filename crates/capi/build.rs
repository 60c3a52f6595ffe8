//! The shared library's name for the loader changes when programs must be compiled again.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librcuwalk.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
