//! Where the daemon's files are: as Open vSwitch has them, and as the environment says.

use std::path::{Path, PathBuf};

/// The directories of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirs {
    /// Sockets and pidfiles: `$OVS_RUNDIR`.
    pub rundir: PathBuf,
    /// Log files: `$OVS_LOGDIR`.
    pub logdir: PathBuf,
}

impl Dirs {
    /// The directories that the environment names, else those of Debian's packages.
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var_os(name).map(PathBuf::from))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let dir = |name: &str, default: &str| variable(name).unwrap_or_else(|| default.into());
        Dirs { rundir: dir("OVS_RUNDIR", "/var/run/openvswitch"), logdir: dir("OVS_LOGDIR", "/var/log/openvswitch") }
    }

    /// The pidfile of `--pidfile` without a name.
    pub fn pidfile(&self, program: &str) -> PathBuf {
        self.rundir.join(format!("{program}.pid"))
    }

    /// The log file of `--log-file` without a name.
    pub fn log_file(&self, program: &str) -> PathBuf {
        self.logdir.join(format!("{program}.log"))
    }

    /// The control socket of this process if `--unixctl` names none. `ovs-appctl` looks there.
    pub fn control_socket(&self, program: &str) -> PathBuf {
        self.rundir.join(format!("{program}.{}.ctl", std::process::id()))
    }

    /// A file in the directory of sockets and pidfiles, unless its path is absolute.
    pub fn in_rundir(&self, file: &Path) -> PathBuf {
        self.rundir.join(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_from_the_environment_or_debians_packages() {
        let dirs = Dirs::from_variables(|_| None);
        assert_eq!(dirs.pidfile("ovs-vswitchd"), Path::new("/var/run/openvswitch/ovs-vswitchd.pid"));
        assert_eq!(dirs.log_file("ovs-vswitchd"), Path::new("/var/log/openvswitch/ovs-vswitchd.log"));
        let dirs = Dirs::from_variables(|name| Some(format!("/{name}").into()));
        assert_eq!(dirs.in_rundir("x.pid".as_ref()), Path::new("/OVS_RUNDIR/x.pid"));
        assert_eq!(dirs.in_rundir("/y/x.pid".as_ref()), Path::new("/y/x.pid"));
        let socket = dirs.control_socket("ovs-vswitchd");
        assert_eq!(socket, Path::new(&format!("/OVS_RUNDIR/ovs-vswitchd.{}.ctl", std::process::id())));
    }
}
