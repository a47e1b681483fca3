//! Switches in processes of their own, on DPDK ports: what they are given, and how they are started, read and ended.

pub mod ours;
pub mod ovs;
mod perf;
pub mod storm;
pub mod testpmd;
pub mod tunnel;

use anyhow::{Context, Result, bail};
use sluice_traffic::{Profile, SplitMix64};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A configuration of Open vSwitch's caches.
#[derive(Clone, Copy, Debug)]
pub struct OvsConfig {
    /// Its name.
    pub name: &'static str,
    /// Inverse probability that a flow enters the exact match cache; 0: it is off.
    emc_insert_inv_prob: u32,
    /// Whether the signature match cache is on.
    smc: bool,
}

/// Every configuration.
pub const OVS_CONFIGS: [OvsConfig; 4] = [
    OvsConfig { name: "ovs megaflow", emc_insert_inv_prob: 0, smc: false },
    OvsConfig { name: "ovs emc", emc_insert_inv_prob: 100, smc: false },
    OvsConfig { name: "ovs smc", emc_insert_inv_prob: 0, smc: true },
    OvsConfig { name: "ovs emc+smc", emc_insert_inv_prob: 100, smc: true },
];

/// Huge pages for each process, MiB.
const MEMORY_MIB: usize = 2048;
/// From the start to the measurement: caches fill, rankings settle.
const SETTLE: Duration = Duration::from_secs(3);
/// How long a daemon may take to start or end.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A capture and its rules, in a directory that goes with them.
#[derive(Clone)]
pub struct Workload(Rc<Directory>);

impl Workload {
    /// Each of `flows` flows once, in random order, evenly over `subtables` rules.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(flows: u64, subtables: u16) -> Result<Workload> {
        let directory = Directory::make()?;
        let mut profile = Profile::default();
        for (key, value) in [("flows", flows.to_string()), ("subtables", subtables.to_string())] {
            profile.set(key, &value).context("a key of a profile")??;
        }
        let stream = profile.streams(1)?.pop().context("a profile without a stream")?;
        let mut order: Vec<u32> = (0..u32::try_from(flows)?).collect();
        let mut random = SplitMix64::new(1);
        (1..order.len()).rev().for_each(|i| order.swap(i, (random.next_u64() % (i as u64 + 1)) as usize));
        let frame = |flow| {
            let mut frame = vec![0; stream.frame_size()];
            stream.writer().write(flow, &mut frame);
            frame
        };
        write_capture(&directory.0.join("in.pcap"), order.into_iter().map(frame))?;
        std::fs::write(directory.0.join("rules.txt"), crate::rules::subtables(subtables))?;
        Ok(Workload(Rc::new(directory)))
    }

    fn rules(&self) -> String {
        self.0.0.join("rules.txt").display().to_string()
    }

    /// Arguments of the two DPDK devices: ports 1 and 2.
    fn devices(&self) -> [String; 2] {
        let capture = self.0.0.join("in.pcap").display().to_string();
        [format!("eth_pcap1,rx_pcap={capture},infinite_rx=1"), "eth_null2,size=64,copy=0,no-rx=1".to_owned()]
    }
}

/// Writes a capture of frames whose times do not matter.
///
/// # Errors
/// If it cannot be written.
pub fn write_capture(path: &Path, frames: impl Iterator<Item = impl AsRef<[u8]>>) -> Result<()> {
    let mut writer = sluice_port::pcap::Writer::create(path).with_context(|| path.display().to_string())?;
    for frame in frames {
        writer.write(0, frame.as_ref())?;
    }
    Ok(writer.flush()?)
}

/// A directory of our own, removed when dropped.
pub struct Directory(PathBuf);

impl Directory {
    /// Makes one, for the caller alone.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn make() -> Result<Directory> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sluice-lab-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        // Ours alone: a switch that is started as root gives its directory to an ordinary user.
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("{}: cannot be made", path.display()))?;
        Ok(Directory(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A daemon that is ended when dropped.
pub struct Daemon(Child);

impl Daemon {
    /// Starts it; what it prints goes to the log.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: &mut Command, log: &Path) -> Result<Daemon> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let name = command.get_program().display().to_string();
        Ok(Daemon(command.spawn().with_context(|| format!("{name}: cannot be started"))?))
    }

    /// Waits for a socket of its.
    ///
    /// # Errors
    /// If it ends before, or takes too long.
    pub fn wait_for(&mut self, path: &Path, log: &Path) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while !path.exists() {
            if Instant::now() > until || self.0.try_wait()?.is_some() {
                let text = std::fs::read_to_string(log).unwrap_or_default();
                let lines: Vec<&str> = text.lines().rev().take(3).collect();
                bail!("{} did not appear: {}", path.display(), lines.join(" / "));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program in a network namespace of its own, so that the devices of a switch that runs on this machine and those of the
/// experiment do not meet. Where that cannot be (it takes root), in this one.
fn apart(program: &str) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("unshare");
    // It becomes the program: the process id is the program's.
    command.args(["--net", "--", program]);
    command
}

/// Runs a program to its end; what it printed.
///
/// # Errors
/// If it cannot be started, or says that it failed.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("{name}: cannot be started"))?;
    if !out.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Huge pages that are given back when dropped.
struct HugePages(Option<String>);

const NR_HUGEPAGES: &str = "/proc/sys/vm/nr_hugepages";

impl HugePages {
    /// As many free pages of 2 MiB as one process needs, and some.
    fn reserve() -> Result<HugePages> {
        let wanted = MEMORY_MIB / 2 + 256;
        let (total, free) = (huge_pages("HugePages_Total")?, huge_pages("HugePages_Free")?);
        if free >= wanted {
            return Ok(HugePages(None));
        }
        std::fs::write(NR_HUGEPAGES, (total - free + wanted).to_string()).context(NR_HUGEPAGES)?;
        let pages = HugePages(Some(total.to_string()));
        let had = huge_pages("HugePages_Free")?;
        if had < wanted {
            bail!("{wanted} free huge pages of 2 MiB are needed and {had} could be had: free some memory");
        }
        Ok(pages)
    }
}

/// A line of `/proc/meminfo`.
fn huge_pages(name: &str) -> Result<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|number| number.trim().parse().ok()).with_context(|| format!("/proc/meminfo has no {name}"))
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = std::fs::write(NR_HUGEPAGES, before);
        }
    }
}
