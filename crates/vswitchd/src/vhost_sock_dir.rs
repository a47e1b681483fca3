//! Where the sockets of type `dpdkvhostuser` are. Source: Open vSwitch lib/netdev-dpdk.c, `parse_vhost_config`.

use crate::plan::{Level, Note};
use crate::records::Smap;
use std::path::{Path, PathBuf};

/// The key of `Open_vSwitch.other_config`, which is the option's name, too.
pub const KEY: &str = sluice_port::VHOST_SOCKET_DIR;

/// The longest value. Source: Linux, NAME_MAX.
const LENGTH_MAX: usize = 255;

/// The directory below `rundir` that the settings name, or that itself; and what is to be logged.
pub fn vhost_sock_dir(rundir: &Path, config: &Smap) -> (PathBuf, Vec<Note>) {
    let Some(below) = config.text(KEY).filter(|below| below.len() <= LENGTH_MAX) else {
        return (rundir.to_owned(), Vec::new());
    };
    let mut notes = vec![Note::new(Level::Info, format!("User-provided {KEY} in use: {below}"))];
    let mut refuse = |why: &str| notes.push(Note::new(Level::Error, format!("vhost-user sock directory {why}")));
    // A slash at the beginning starts no other path, as in Open vSwitch.
    let dir = rundir.join(below.trim_start_matches('/'));
    if below.contains("..") {
        let (request, instead) = (dir.display(), rundir.display());
        refuse(&format!("request '{request}' has invalid characters '..' - using {instead} instead."));
        return (rundir.to_owned(), notes);
    }
    if !dir.exists() {
        refuse(&format!("'{}' does not exist.", dir.display()));
    }
    (dir, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_stay_below_the_directory_of_sockets() {
        let rundir = tempfile::tempdir().unwrap();
        let rundir = rundir.path();
        std::fs::create_dir(rundir.join("vhost")).unwrap();
        let choose = |value: &str| {
            let (dir, notes) = vhost_sock_dir(rundir, &Smap([(KEY.to_owned(), value.to_owned())].into()));
            (dir, notes.into_iter().filter(|note| note.level == Level::Error).map(|note| note.text).collect::<Vec<_>>())
        };
        assert_eq!(vhost_sock_dir(rundir, &Smap::default()), (rundir.to_owned(), Vec::new()));
        assert_eq!(choose("vhost"), (rundir.join("vhost"), Vec::new()));
        assert_eq!(choose("/vhost"), (rundir.join("vhost"), Vec::new()));
        assert_eq!(choose(&"v".repeat(256)), (rundir.to_owned(), Vec::new()));
        let (dir, errors) = choose("../etc");
        assert!(dir == rundir && errors[0].contains("'..' - using"), "{errors:?}");
        let (dir, errors) = choose("none");
        assert!(dir == rundir.join("none") && errors[0].ends_with("/none' does not exist."), "{errors:?}");
    }
}
