//! Tells the machine's sheet which compiler built it, and from which commit.

use std::path::Path;
use std::process::Command;

/// What the program is built from.
const SOURCES: [&str; 3] = ["..", "../../Cargo.lock", "../../Cargo.toml"];

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let out = Command::new(rustc).arg("--version").output().expect("the compiler tells its version");
    println!("cargo::rustc-env=LAB_RUSTC={}", String::from_utf8_lossy(&out.stdout).trim());
    if let Some(commit) = commit() {
        println!("cargo::rustc-env=LAB_COMMIT={commit}");
    }
    // The log grows with each commit and checkout; the sources are looked at for changes that are in no commit.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|path| Path::new(path).exists());
    for path in log.iter().map(String::as_str).chain(SOURCES) {
        println!("cargo::rerun-if-changed={path}");
    }
}

/// The commit, and whether the sources differ from it; `None` without git or its directory.
fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changes = git(&[&["status", "--porcelain", "--untracked-files=no", "--"][..], &SOURCES].concat())?;
    Some(if changes.is_empty() { commit } else { commit + " and changes" })
}

fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok().filter(|out| out.status.success())?;
    Some(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}
