//! `sluice capture`: the client of `sluice/capture`, which puts a running switch's packets into a file or a pipe.

use crate::rundir;
use anyhow::{Context, Result, anyhow, bail};
use sluice_port::pcap::next_generation::{block_header, dropped, is_packet};
use sluice_unixctl::follow;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Capture a port's packets, or all that are dropped, of a running switch, as pcapng: sluice capture p1 | tcpdump -r -
#[derive(clap::Args, Debug)]
pub struct CaptureArgs {
    /// The port; DROPS captures packets that are dropped, with their reasons
    port: String,
    /// Only packets that match this, in the syntax of ovs-ofctl, such as udp,tp_dst=53
    filter: Option<String>,
    /// Write to this file in place of standard output
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// End after this number of packets
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,
    /// End after this time, in seconds
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Keep at most this many bytes of each packet
    #[arg(short, long, value_name = "BYTES")]
    snaplen: Option<u64>,
    /// The switch's control socket [default: sluice.ctl in the default rundir]
    #[arg(short, long, value_name = "SOCKET")]
    target: Option<PathBuf>,
}

/// The longest block that the switch sends.
const BLOCK_MAX: u32 = 1 << 20;

/// What a capture came to.
#[derive(Default)]
struct Captured {
    packets: u64,
    /// Packets that the switch could not keep; `None` if it did not come to say so.
    overruns: Option<u64>,
}

/// Captures until there is enough, or the reader has gone.
///
/// # Errors
/// If the switch refuses, or the file cannot be written.
pub fn run(args: &CaptureArgs) -> Result<()> {
    let target = args.target.clone().unwrap_or_else(rundir::default_control_socket);
    if args.write.is_none() && io::stdout().is_terminal() {
        bail!(
            "standard output is a terminal, and a capture is not text: pipe it to \"tcpdump -r -\", or name a file with --write"
        );
    }
    let mut words = Vec::new();
    for (option, value) in [("snaplen", args.snaplen), ("count", args.count), ("seconds", args.seconds)] {
        words.extend(value.map(|value| format!("--{option}={value}")));
    }
    words.push(args.port.clone());
    words.extend(args.filter.clone());
    let stream = follow(&target, "sluice/capture", &words)?.map_err(|error| anyhow!("{}", error.trim()))?;
    let captured = match &args.write {
        None => copy(&stream, &mut io::stdout().lock())?,
        Some(path) => {
            let file = File::create(path).with_context(|| format!("{}: cannot be written", path.display()))?;
            copy(&stream, &mut &file).with_context(|| format!("{}: cannot be written", path.display()))?
        }
    };
    let overruns = match captured.overruns {
        Some(0) | None => String::new(),
        Some(n) => format!("; {n} more came faster than they could be captured"),
    };
    eprintln!("sluice: {} packets captured{overruns}", captured.packets);
    Ok(())
}

/// Copies block by block: each is written as soon as it is whole, if no other waits.
fn copy(stream: &UnixStream, out: &mut impl Write) -> Result<Captured> {
    let mut reader = BufReader::with_capacity(1 << 16, stream);
    let (mut captured, mut waiting) = (Captured::default(), Vec::new());
    loop {
        let mut header = [0; 8];
        // The switch has ended, within a block perhaps.
        if reader.read_exact(&mut header).is_err() {
            break;
        }
        let (block_type, len) = block_header(header);
        if !(12..=BLOCK_MAX).contains(&len) {
            bail!("the switch sent a block of {len} bytes; is it of another version?");
        }
        let start = waiting.len();
        waiting.extend_from_slice(&header);
        waiting.resize(start + len as usize, 0);
        if reader.read_exact(&mut waiting[start + 8..]).is_err() {
            waiting.truncate(start);
            break;
        }
        captured.packets += u64::from(is_packet(block_type));
        captured.overruns = dropped(&waiting[start..]).or(captured.overruns);
        if reader.buffer().len() < 8 || waiting.len() > 1 << 16 {
            if !write(out, &waiting)? {
                return Ok(captured);
            }
            waiting.clear();
        }
    }
    write(out, &waiting)?;
    Ok(captured)
}

/// Writes; false if nobody reads any more.
fn write(out: &mut impl Write, bytes: &[u8]) -> Result<bool> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(e.into()),
    }
}
