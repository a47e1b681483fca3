use super::*;
use std::path::{Path, PathBuf};

/// A message in the sources of the workspace.
struct SourceMessage {
    /// The file and the beginning of the message.
    place: String,
    /// What it names as its target, else that of its file.
    target: String,
}

fn name_of(target: &str) -> &'static str {
    names()[of_target(target)]
}

#[test]
fn targets_belong_to_modules() {
    assert_eq!(name_of("sluice_connmgr::connection"), "connmgr");
    assert_eq!(name_of("sluice_vswitch::ports"), "switch");
    assert_eq!(name_of("sluice_unixctl::server"), "unixctl");
    assert_eq!(name_of("sluice::run"), "sluice");
    assert_eq!(name_of("sluice::command::bridge"), "command");
    assert_eq!(name_of("sluice_vswitchd::plan"), "bridge");
    assert_eq!(name_of("sluice_port::tap"), "port");
    assert_eq!(name_of("sluice_flow::key"), "sluice", "no crate of this name has a row");
    assert_eq!(name_of("bridge"), "bridge");
    assert_eq!(name_of("elsewhere"), "sluice");
}

#[test]
fn names_are_known_in_upper_and_lower_case() {
    assert_eq!(named("vconn"), Some(Selected::Module(of_target("vconn"))));
    assert_eq!(named("VConn"), named("vconn"));
    assert_eq!(named("openflow"), named("connmgr"));
    assert_eq!(named("ctl"), named("unixctl"));
    assert_eq!(named("flow_cache"), Some(Selected::Silent));
    assert_eq!(named("nonsense"), None);
    assert!(is_own(of_target("sluice")) && !is_own(of_target("bridge")));
}

/// `ovs-appctl vlog/list` of Debian's daemon knows these and no others that are not here.
#[test]
fn modules_of_open_vswitch_are_sorted_and_named_once() {
    assert!(OPEN_VSWITCH.is_sorted_by(|a, b| a < b));
    assert!(CRATES.is_sorted_by(|a, b| a.name < b.name));
}

fn rust_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The target of messages in a file such as `port/src/tap/mod.rs` that name none.
fn target_of_file(path: &Path) -> String {
    let mut parts: Vec<_> = path.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    parts.remove(1);
    parts[0] = match parts[0].as_str() {
        "sluice" => "sluice".into(),
        name => format!("sluice_{}", name.replace('-', "_")),
    };
    parts.retain(|part| !["mod", "lib", "main"].contains(&part.as_str()));
    parts.join("::")
}

/// The messages of a file. A target that is not written as a text is left out.
fn messages_of(crates: &Path, path: &Path) -> Vec<SourceMessage> {
    let text = std::fs::read_to_string(path).unwrap();
    let own = path.strip_prefix(crates).unwrap();
    let starts = ["error!(", "warn!(", "info!(", "debug!(", "trace!("]
        .map(|name| format!("tracing::{name}"))
        .into_iter()
        .flat_map(|name| text.match_indices(&name).map(|(at, _)| at + name.len()).collect::<Vec<_>>());
    let message = |at: usize| {
        let rest = text[at..].trim_start();
        let place = format!("{}: {}", own.display(), rest.lines().next().unwrap_or_default());
        let target = match rest.strip_prefix("target:") {
            None => target_of_file(own),
            Some(named) => named.trim_start().strip_prefix('"')?.split('"').next()?.to_owned(),
        };
        Some(SourceMessage { place, target })
    };
    starts.filter_map(message).collect()
}

/// All messages of the workspace's crates.
fn messages() -> Vec<SourceMessage> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        rust_files(&entry.unwrap().path().join("src"), &mut files);
    }
    let tests = |path: &PathBuf| path.iter().any(|part| part == "tests") || path.ends_with("tests.rs");
    files.iter().filter(|path| !tests(path)).flat_map(|path| messages_of(crates, path)).collect()
}

#[test]
fn every_message_has_a_module_and_every_module_of_a_crate_messages() {
    let messages = messages();
    assert!(messages.len() > 20, "the sources are found");
    let is_known = |message: &&SourceMessage| {
        let target = message.target.as_str();
        OPEN_VSWITCH.contains(&target)
            || target.split("::").next() == Some("sluice")
            || (target.starts_with("sluice_") && name_of(target) != "sluice")
    };
    let lost = messages.iter().filter(|message| !is_known(message));
    let lost: Vec<_> = lost.map(|message| format!("{}, target {}", message.place, message.target)).collect();
    assert!(lost.is_empty(), "targets that are no module (see CRATES and OPEN_VSWITCH): {lost:#?}");
    let silent = CRATES.iter().filter(|own| !messages.iter().any(|message| name_of(&message.target) == own.name));
    assert_eq!(silent.map(|own| own.name).collect::<Vec<_>>(), Vec::<&str>::new(), "modules without messages");
}
