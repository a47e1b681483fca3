//! The command line of `ovs-vswitchd`.

use sluice_connmgr::TlsFiles;
use sluice_daemon::options::DaemonOptions;
use sluice_vlog::LogOptions;
use std::path::PathBuf;

/// Which port types dummy devices stand in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Dummy {
    /// None: dummy devices have types of their own.
    Types,
    /// Every type but patch.
    Override,
    /// The type of the system's devices.
    System,
}

/// Open vSwitch's daemon, by Sluice
#[derive(Debug, clap::Parser)]
#[command(name = "ovs-vswitchd", infer_long_args = true, disable_version_flag = true)]
pub struct VswitchdOptions {
    /// The socket of the database server [default: unix:RUNDIR/db.sock]
    #[arg(value_name = "DATABASE")]
    pub database: Option<String>,
    #[command(flatten)]
    pub daemon: DaemonOptions,
    #[command(flatten)]
    pub log: LogOptions,
    #[command(flatten)]
    pub tls: TlsOptions,
    #[command(flatten)]
    pub datapath: DatapathOptions,
    /// The control socket [default: ovs-vswitchd.PID.ctl in the directory of sockets]; none: no control socket
    #[arg(long, value_name = "SOCKET")]
    pub unixctl: Option<PathBuf>,
    /// Lock the memory of the process
    #[arg(long)]
    pub mlockall: bool,
    /// Let OpenFlow and control sockets be anywhere, not only in the directory of sockets
    #[arg(long)]
    pub no_self_confinement: bool,
    /// Print the version
    #[arg(short = 'V', long)]
    pub version: bool,
}

/// Which devices there are.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Datapath options")]
pub struct DatapathOptions {
    /// Have dummy devices for tests; override: for every port type but patch; system: for the system's devices
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "types")]
    pub enable_dummy: Option<Dummy>,
    /// Without effect, since the kernel's datapath is never used
    #[arg(long)]
    pub disable_system: bool,
    /// Do not use the kernel's routes for tunnels
    #[arg(long)]
    pub disable_system_route: bool,
    /// The NUMA node of each core that tests pretend there is, separated by commas
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    pub dummy_numa: Vec<u32>,
    /// Keep the privilege of direct access to devices when another user runs the daemon
    #[arg(long)]
    pub hw_rawio_access: bool,
}

/// Key and certificates.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "TLS options")]
pub struct TlsOptions {
    /// The private key
    #[arg(short = 'p', long, value_name = "FILE")]
    pub private_key: Option<PathBuf>,
    /// The certificate of the private key
    #[arg(short = 'c', long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// The certificate that peers' certificates are checked with
    #[arg(short = 'C', long, value_name = "FILE")]
    pub ca_cert: Option<PathBuf>,
    /// The same; if there is no such file, the first peer is trusted, and its authority's certificate written there
    #[arg(long, value_name = "FILE", conflicts_with = "ca_cert")]
    pub bootstrap_ca_cert: Option<PathBuf>,
    /// Without effect: Sluice sends its own certificate chain only
    #[arg(long, value_name = "FILE")]
    pub peer_ca_cert: Option<PathBuf>,
    /// Without effect: TLS 1.2 and 1.3 are spoken
    #[arg(long, value_name = "PROTOCOLS")]
    pub ssl_protocols: Option<String>,
    /// Without effect: the ciphers are those that rustls thinks safe
    #[arg(long, value_name = "CIPHERS")]
    pub ssl_ciphers: Option<String>,
}

impl TlsOptions {
    /// The files, if all three are named.
    pub fn files(&self) -> Option<TlsFiles> {
        let TlsOptions { private_key, certificate, ca_cert, bootstrap_ca_cert, .. } = self;
        match (private_key, certificate, ca_cert.as_ref().or(bootstrap_ca_cert.as_ref())) {
            (Some(private_key), Some(certificate), Some(ca_cert)) => Some(TlsFiles {
                private_key: private_key.clone(),
                certificate: certificate.clone(),
                ca_cert: ca_cert.clone(),
                bootstraps_ca_cert: bootstrap_ca_cert.is_some(),
            }),
            _ => None,
        }
    }
}
