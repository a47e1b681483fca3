//! Commands that stop the control clock and move it on, for tests. Texts and errors are OVS's. Source: OVS lib/timeval.c.

use super::Reply;
use crate::process::Process;
use parking_lot::Mutex;
use std::time::Duration;

/// Held while the clock is moved on: it is one for the process.
static WARPING: Mutex<()> = Mutex::new(());

/// How long (real time) a step waits for threads that have something to do.
const STEP_PATIENCE: Duration = Duration::from_secs(1);

/// How long (real time) a step lasts at least, so that other processes read what it has made. Source: OVS,
/// `timewarp_work`.
const STEP_PAUSE: Duration = Duration::from_millis(10);

/// `time/stop`.
pub fn stop(process: &Process, _: &[&str]) -> Reply {
    sluice_clock::stop();
    // Threads that sleep until a time of the running clock find that it stands still.
    process.wait_for_turn();
    Ok(String::new())
}

/// `time/warp MSECS`, or `time/warp TOTAL MSECS` in steps of MSECS. Replies when all that has become due is done.
pub fn warp(process: &Process, args: &[&str]) -> Reply {
    let Warp { mut left_ms, step_ms } = Warp::parse(args)?;
    let _warping = WARPING.try_lock().ok_or("A previous warp in progress")?;
    while left_ms > 0 {
        let step_ms = step_ms.min(left_ms);
        left_ms -= step_ms;
        sluice_clock::warp(step_ms);
        process.wait_for_turn();
        sluice_clock::wait_for_due_timers(STEP_PATIENCE);
        process.switch().quiesce();
        std::thread::sleep(STEP_PAUSE);
    }
    // What the threads gave the main loop to do is done, too.
    process.wait_for_turn();
    Ok("warped".to_owned())
}

/// How far the clock is to be moved, and by how much at a time.
#[derive(Debug, PartialEq, Eq)]
struct Warp {
    left_ms: u64,
    step_ms: u64,
}

impl Warp {
    fn parse(args: &[&str]) -> Result<Warp, String> {
        let number = |text: &str| text.parse().ok().filter(|ms| *ms > 0).ok_or("invalid MSECS");
        match args {
            [total, step] => {
                let step_ms = number(step)?;
                // As in OVS, a total of nothing is one step.
                let left_ms = total.parse().map_err(|_| "invalid MSECS")?;
                Ok(Warp { left_ms: if left_ms == 0 { step_ms } else { left_ms }, step_ms })
            }
            [step] => number(step).map(|step_ms| Warp { left_ms: step_ms, step_ms }).map_err(str::to_owned),
            _ => Err("invalid MSECS".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warp_is_one_step_or_several() {
        assert_eq!(Warp::parse(&["500"]), Ok(Warp { left_ms: 500, step_ms: 500 }));
        assert_eq!(Warp::parse(&["6000", "1000"]), Ok(Warp { left_ms: 6000, step_ms: 1000 }));
        assert_eq!(Warp::parse(&["0", "10"]), Ok(Warp { left_ms: 10, step_ms: 10 }));
        for bad in [&["0"][..], &["-1"], &["x"], &["10", "0"], &["-5", "1"], &[]] {
            assert_eq!(Warp::parse(bad), Err("invalid MSECS".to_owned()), "{bad:?}");
        }
    }
}
