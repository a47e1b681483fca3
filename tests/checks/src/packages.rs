//! What cargo says of the workspace's crates.

use crate::root;
use serde_json::Value;
use std::process::Command;

/// `cargo metadata` of the workspace, without what it takes from elsewhere.
///
/// # Panics
/// If cargo cannot tell.
pub fn metadata() -> Value {
    ask(&["--no-deps"])
}

/// The same with all that it takes from elsewhere on Linux.
///
/// # Panics
/// If cargo cannot tell.
pub fn metadata_with_dependencies() -> Value {
    // Crates for other systems need not be on this machine.
    ask(&["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"])
}

fn ask(options: &[&str]) -> Value {
    let out = Command::new(env!("CARGO"))
        // Not `--offline`: it asks for crates that no build of the tests alone has fetched.
        .args(["metadata", "--format-version", "1"])
        .args(options)
        .current_dir(root())
        .output()
        .expect("cargo metadata runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("cargo metadata prints JSON")
}
