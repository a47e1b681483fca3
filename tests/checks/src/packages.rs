//! What cargo says of the workspace's crates.

use crate::root;
use serde_json::Value;
use std::process::Command;

/// `cargo metadata` of the workspace, without what it takes from elsewhere.
///
/// # Panics
/// If cargo cannot tell.
pub fn metadata() -> Value {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo metadata runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("cargo metadata prints JSON")
}
