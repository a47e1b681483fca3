//! Target `pcap`: capture files. The input is the file.

use sluice_port::pcap::{Reader, Writer};
use std::path::Path;

/// Reading never panics nor takes more memory than the file is long; what was read is written as a file that reads the
/// same.
pub fn pcap(data: &[u8]) {
    let Ok(mut reader) = Reader::new(data, Path::new("fuzz.pcap")) else { return };
    let mut written = Writer::new(Vec::new()).expect("a Vec takes everything");
    let mut packets = Vec::new();
    let mut packet = Vec::new();
    while let Ok(Some(record)) = reader.next_packet(&mut packet) {
        assert!(packet.len() <= data.len(), "{} bytes out of {}", packet.len(), data.len());
        // The writer's clock is of microseconds in 32-bit seconds.
        let time_ns = record.time_ns / 1000 * 1000 % 1_000_000_000_000_000;
        written.write(time_ns, &packet).expect("a Vec takes everything");
        packets.push((time_ns, packet.clone()));
    }
    let file = written.finish().expect("a Vec takes everything");
    let mut reader = Reader::new(&file[..], Path::new("again.pcap")).expect("the writer's own header");
    for (time_ns, bytes) in packets {
        let record =
            reader.next_packet(&mut packet).expect("the writer's own record").expect("as many as were written");
        assert_eq!((record.time_ns, &packet), (time_ns, &bytes));
    }
    assert!(reader.next_packet(&mut packet).expect("the file's end").is_none());
}
