//! What control threads share under one lock: the state of each PMD, the ports, and the settings.

use crate::Settings;
use crate::pmd::Pmd;
use crate::pmd_shared::PmdShared;
use sluice_action::PortNo;
use sluice_fate::Snapshot;
use sluice_packet::VlanLimit;
use sluice_port::Port;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What control threads share.
pub(crate) struct Control {
    pub engines: Vec<Engine>,
    pub ports: BTreeMap<PortNo, Box<dyn Port>>,
    /// The PMD that gets the next receive queue.
    pub next_pmd: usize,
    /// What each PMD had counted when its statistics were cleared, and when that was.
    pub baselines: Vec<(Snapshot, Instant)>,
    /// How packets are looked up now.
    pub settings: Settings,
    /// How many VLAN tags are read of a packet.
    pub vlan_limit: VlanLimit,
    /// The seed of further secrets.
    pub seed: u64,
}

/// The state of a PMD.
pub(crate) enum Engine {
    Resting(Box<Pmd>),
    Running(JoinHandle<Box<Pmd>>),
    /// Its thread panicked.
    Lost,
}

impl Control {
    /// Lets resting PMDs run their commands.
    pub fn deliver(&mut self) {
        for engine in &mut self.engines {
            if let Engine::Resting(pmd) = engine {
                pmd.service_commands();
            }
        }
    }

    /// Waits for one answer from each of `pmds` PMDs that have a command, and returns the answers.
    pub fn wait_for<T>(&self, answers: &Receiver<T>, pmds: usize) -> Vec<T> {
        let mut all = Vec::with_capacity(pmds);
        while all.len() != pmds {
            match answers.recv_timeout(Duration::from_millis(50)) {
                Ok(answer) => all.push(answer),
                // A thread that has panicked does not answer; the others do.
                Err(RecvTimeoutError::Timeout) if self.all_alive() => {}
                Err(_) => break,
            }
        }
        all
    }

    fn all_alive(&self) -> bool {
        self.engines.iter().all(|engine| match engine {
            Engine::Resting(_) => true,
            Engine::Running(thread) => !thread.is_finished(),
            Engine::Lost => false,
        })
    }

    /// Stops every thread; its PMD rests.
    pub fn stop(&mut self, pmds: &[Arc<PmdShared>]) {
        pmds.iter().for_each(|pmd| pmd.stop.store(true, Relaxed));
        for engine in &mut self.engines {
            if let Engine::Running(_) = engine
                && let Engine::Running(thread) = std::mem::replace(engine, Engine::Lost)
                && let Ok(pmd) = thread.join()
            {
                *engine = Engine::Resting(pmd);
            }
        }
    }
}
