//! Workers as threads: PMDs pinned to their cores, the main worker on any.

use crate::control_cores::{PMD_NAME, allowed};
use crate::main_worker;
use crate::numa;
use crate::pmd::Pmd;
use rustix::thread::CpuSet;
use sluice_simd::tsc;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// A queue that gave this many packets keeps its PMD awake. Source: OVS, PMD_SLEEP_THRESH.
const SLEEP_BELOW: usize = 16;

/// How long a PMD without queues rests between two looks at its commands.
const NOTHING_TO_POLL: Duration = Duration::from_millis(1);

/// A worker's thread.
pub(crate) struct Started {
    pub handle: JoinHandle<Box<Pmd>>,
    /// Whether a PMD is bound to its core.
    pub pinned: io::Result<()>,
}

/// Starts a worker, a PMD on its core, or unbound if there is no such core. Returns when it runs.
pub(crate) fn start(mut pmd: Box<Pmd>) -> io::Result<Started> {
    pmd.shared.stop.store(false, Relaxed);
    let (started, has_started) = mpsc::channel();
    let core = pmd.shared.core;
    let name = core.map_or_else(|| "main-worker".to_owned(), |core| format!("{PMD_NAME}{core:02}"));
    let handle = Builder::new().name(name).spawn(move || {
        let shared = std::sync::Arc::clone(&pmd.shared);
        let _running = shared.progress.running();
        if started.send(core.map_or(Ok(()), pin)).is_ok() {
            match core {
                Some(_) => run(&mut pmd),
                None => main_worker::run(&mut pmd),
            }
            pmd.rest();
        }
        pmd
    })?;
    let pinned = has_started.recv().map_err(|_| io::Error::other("the thread ended at once"))?;
    Ok(Started { handle, pinned })
}

fn pin(core: usize) -> io::Result<()> {
    if numa::is_dummy() {
        return Ok(());
    }
    let mut cores = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        return Err(io::Error::other(format!("there is no core {core}")));
    }
    cores.set(core);
    let usable = allowed();
    rustix::thread::sched_setaffinity(None, &cores).map_err(|e| match usable.is_set(core) {
        true => io::Error::other(format!("core {core} cannot be used: {e}")),
        false => io::Error::other(format!("there is no core {core} for it, only {}", list(usable))),
    })
}

/// The numbers of some cores, as `0, 1, 2`.
fn list(cores: &CpuSet) -> String {
    (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core)).map(|core| core.to_string()).collect::<Vec<_>>().join(", ")
}

/// Idle iterations in a row after which a PMD sleeps until a packet comes, if all its queues can be waited for: some
/// milliseconds. Packets that come meanwhile wait in their device's queue, so none is lost; the first one after the
/// silence waits for the thread to wake, some ten microseconds.
const AWAKE_FOR: u32 = 1 << 14;

fn run(pmd: &mut Pmd) {
    pmd.wake();
    let (mut sleep_us, mut idle) = (0, 0_u32);
    while !pmd.shared.stop.load(Relaxed) {
        let sleep_max_us = pmd.shared.sleep_max_us.load(Relaxed);
        let fullest = pmd.run_once(sluice_clock::now_ms());
        idle = if fullest == 0 { idle.saturating_add(1) } else { 0 };
        if idle > AWAKE_FOR && pmd.can_be_woken() {
            pmd.shared.exhausted.store(pmd.is_exhausted(), Relaxed);
            main_worker::sleep(pmd);
        } else if fullest >= SLEEP_BELOW {
            sleep_us = 0;
        } else if !pmd.has_rxqs() {
            sleep(pmd, NOTHING_TO_POLL);
        } else if sleep_max_us != 0 {
            // As OVS: a microsecond longer each time, up to the limit.
            sleep_us = (sleep_us + 1).min(sleep_max_us);
            sleep(pmd, Duration::from_micros(u64::from(sleep_us)));
        }
        if fullest == 0 {
            pmd.shared.exhausted.store(pmd.is_exhausted(), Relaxed);
        }
    }
}

fn sleep(pmd: &mut Pmd, span: Duration) {
    let began = tsc::now();
    std::thread::sleep(span);
    pmd.count_sleep(tsc::now().saturating_sub(began));
    pmd.wake();
}
