//! Captures: what is written is read back, errors are reported, queues share the flows.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::Write;

/// A capture file of records: seconds, fraction, captured length, original length, bytes.
fn capture(big_endian: bool, magic: u32, link: u32, packets: &[(u32, u32, u32, u32, Vec<u8>)]) -> Vec<u8> {
    let word = |w: u32| if big_endian { w.to_be_bytes() } else { w.to_le_bytes() };
    let half = |h: u16| if big_endian { h.to_be_bytes() } else { h.to_le_bytes() };
    let mut file = word(magic).to_vec();
    file.extend(half(2).iter().chain(&half(4)));
    [0, 0, 65_535, link].iter().for_each(|w| file.extend(word(*w)));
    for (seconds, fraction, captured, original, bytes) in packets {
        [seconds, fraction, captured, original].iter().for_each(|w| file.extend(word(**w)));
        file.extend(bytes);
    }
    file
}

/// A pcapng file with a packet.
fn modern_capture() -> Vec<u8> {
    let mut file = Vec::new();
    next_generation::write_section(&mut file, "test");
    next_generation::write_interface(&mut file, "p1", 0);
    let direction = next_generation::Direction::Inbound;
    let bytes = &[0; 60];
    let record =
        next_generation::PacketRecord { interface: 0, time_ns: 5, bytes, original_len: 60, direction, comment: "c" };
    next_generation::write_packet(&mut file, &record);
    file
}

fn read_all(file: &[u8]) -> Result<Vec<(Record, Vec<u8>)>, String> {
    let mut reader = Reader::new(file, Path::new("in.pcap")).map_err(|e| e.to_string())?;
    let (mut all, mut packet) = (Vec::new(), Vec::new());
    while let Some(record) = reader.next_packet(&mut packet).map_err(|e| e.to_string())? {
        all.push((record, packet.clone()));
    }
    Ok(all)
}

#[test]
fn either_byte_order_and_resolution() {
    for big_endian in [false, true] {
        for (magic, ns) in [(0xa1b2_c3d4, 5000), (0xa1b2_3c4d, 5)] {
            let file = capture(big_endian, magic, 1, &[(7, 5, 3, 9, vec![1, 2, 3]), (8, 0, 0, 0, vec![])]);
            let all = read_all(&file).unwrap();
            assert_eq!(all[0], (Record { time_ns: 7_000_000_000 + ns, original_len: 9 }, vec![1, 2, 3]));
            assert_eq!((all[1].0.time_ns, all[1].1.len()), (8_000_000_000, 0));
        }
    }
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let good = (1, 2, 60, 60, vec![0; 60]);
    let of = |packets: &[_]| read_all(&capture(false, 0xa1b2_c3d4, 1, packets)).unwrap_err();
    assert_eq!(
        of(&[good.clone(), (1, 2, 0xffff_ffff, 60, vec![0; 20])]),
        "in.pcap: packet 2 at byte 100: a length of 4294967295 bytes; expected at most 262144"
    );
    for (file, part) in [
        (capture(false, 0x0a0d_0d0a, 1, &[]), "byte order"),
        (capture(false, 0x1234_5678, 1, &[]), "begins with"),
        (capture(true, 0xa1b2_c3d4, 101, &[]), "link type 101"),
    ] {
        let error = read_all(&file).unwrap_err();
        assert!(error.starts_with("in.pcap: ") && error.contains(part), "{error}");
    }
}

/// Whatever is missing at the end, the packets before it are read, and the note says where it broke off.
#[test]
fn a_capture_that_breaks_off_is_read_as_far_as_it_goes() {
    let good = (1, 2, 60, 60, vec![0; 60]);
    let classic = capture(false, 0xa1b2_c3d4, 1, &[good.clone(), good]);
    let mut modern = Vec::new();
    next_generation::write_section(&mut modern, "test");
    next_generation::write_interface(&mut modern, "p1", 0);
    let begin = modern.len();
    for _ in 0..2 {
        let direction = next_generation::Direction::Unknown;
        let (bytes, comment, time_ns) = (&[0; 60][..], "", 5);
        let record =
            next_generation::PacketRecord { interface: 0, time_ns, bytes, original_len: 60, direction, comment };
        next_generation::write_packet(&mut modern, &record);
    }
    for (file, begin, each) in [(&classic, 24, 76), (&modern, begin, (modern.len() - begin) / 2)] {
        for len in 0..file.len() {
            let mut reader = Reader::new(&file[..len], Path::new("in.pcap")).unwrap();
            let (mut packet, mut read) = (Vec::new(), 0);
            while reader.next_packet(&mut packet).unwrap().is_some() {
                read += 1;
            }
            let is_at_boundary = len >= begin && (len - begin) % each == 0;
            let is_between_blocks = file[0] == 0x0a && reader.end_note().is_none() && len < begin;
            assert_eq!(reader.end_note().is_some(), !is_at_boundary && !is_between_blocks, "{len} bytes");
            let whole = len.saturating_sub(begin) / each;
            assert!((whole..=whole + usize::from(file[0] == 0x0a)).contains(&read), "{read} of {len} bytes");
        }
    }
    let mut reader = Reader::new(&classic[..120], Path::new("in.pcap")).unwrap();
    while reader.next_packet(&mut Vec::new()).unwrap().is_some() {}
    let note = "the file breaks off at byte 120, within a packet (4 of 60 bytes); packets read before that: 1";
    assert_eq!(reader.end_note(), Some(note));
    assert_eq!(Reader::new(&[][..], Path::new("x")).unwrap().end_note(), Some("the file is empty"));
}

proptest! {
    #[test]
    fn what_is_written_is_read(packets in prop::collection::vec((0u64..4_000_000_000_000_000_000, prop::collection::vec(any::<u8>(), 0..100)), 0..20)) {
        let mut writer = Writer::new(Vec::new()).unwrap();
        packets.iter().for_each(|(time, bytes)| writer.write(*time, bytes).unwrap());
        let all = read_all(&writer.finish().unwrap()).unwrap();
        prop_assert_eq!(all.len(), packets.len());
        for ((record, got), (time, want)) in all.iter().zip(&packets) {
            prop_assert_eq!(got, want);
            prop_assert_eq!((record.time_ns, record.original_len as usize), (time / 1000 * 1000, want.len()));
        }
    }

    /// For any bytes there is a result, no panic, and never more memory than one packet may take.
    #[test]
    fn any_bytes_are_survived(
        head in prop::option::of(prop_oneof![
            Just(capture(false, 0xa1b2_c3d4, 1, &[(1, 2, 4, 4, vec![0; 4])])),
            Just(modern_capture()),
        ]),
        noise in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..200),
        at in 0usize..200,
    ) {
        let mut file = head.unwrap_or_default();
        let at = at.min(file.len());
        file.truncate(at.max(file.len().min(24)));
        file.extend(noise);
        let Ok(mut reader) = Reader::new(&file[..], Path::new("x")) else { return Ok(()) };
        let mut packet = Vec::new();
        while let Ok(Some(_)) = reader.next_packet(&mut packet) {
            prop_assert!(packet.len() <= 262_144);
        }
    }
}

/// A folder with a capture of `flows` UDP flows, `each` packets of each; bytes 42.. number a flow's packets.
fn folder(flows: u8, each: u8) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&folder.path().join("in.pcap")).unwrap();
    for number in 0..each {
        for flow in 0..flows {
            let mut frame = vec![2; 60];
            frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
            frame[20..24].copy_from_slice(&[0, 0, 64, 17]);
            frame[26..34].copy_from_slice(&[10, 0, 0, flow, 20, 0, 0, 1]);
            frame[42] = number;
            writer.write(u64::from(number) * 1000, &frame).unwrap();
        }
    }
    writer.finish().unwrap();
    folder
}

fn config(folder: &tempfile::TempDir, n_rxq: usize, keys: &[(&str, &str)]) -> PortConfig {
    let options = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let base_dir = folder.path().to_owned();
    PortConfig { name: "c".into(), kind: "pcap".into(), n_rxq, options, base_dir, ..PortConfig::default() }
}

#[test]
fn each_flow_comes_in_order_in_one_queue() {
    let folder = folder(50, 5);
    for is_loop in ["true", "false"] {
        let mut pools = Pools::new(128);
        let mut port = crate::open(&config(&folder, 3, &[("rx", "in.pcap"), ("loop", is_loop)]), &mut pools).unwrap();
        let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
        let mut seen: HashMap<u8, (usize, u8)> = HashMap::new();
        for queue in 0..3 {
            let mut rx = port.rx_queue(queue);
            let mut polls = 0;
            while !rx.exhausted() && polls < 20 {
                rx.poll(&mut batch, &mut buffers, &mut tally);
                polls += 1;
                for packet in batch.iter() {
                    let (flow, number) = (packet.bytes()[29], packet.bytes()[42]);
                    let next = seen.entry(flow).or_insert((queue, 0));
                    assert_eq!(*next, (queue, number));
                    next.1 = (number + 1) % 5;
                    assert_ne!(packet.rss_hash, 0);
                }
                buffers.give_batch(&mut batch);
            }
            assert_eq!(rx.exhausted(), is_loop == "false");
        }
        assert_eq!(seen.len(), 50);
        if is_loop == "false" {
            assert_eq!((port.stats().rx_packets, port.stats().rx_bytes), (250, 15_000));
        }
        drop(buffers);
        let pool = pools.of_size(100).unwrap();
        assert_eq!(pool.available(), pool.capacity());
    }
}

#[test]
fn what_cannot_be_handed_over_is_counted_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let packets = [(0, 0, 200, 200, vec![0; 200]), (0, 0, 60, 90, vec![0; 60]), (0, 0, 60, 60, vec![7; 60])];
    let mut file = std::fs::File::create(folder.path().join("in.pcap")).unwrap();
    file.write_all(&capture(true, 0xa1b2_c3d4, 1, &packets)).unwrap();
    drop(file);
    for is_loop in ["false", "true"] {
        let config = PortConfig { mtu: 100, ..config(&folder, 1, &[("rx", "in.pcap"), ("loop", is_loop)]) };
        let mut port = crate::open(&config, &mut Pools::new(64)).unwrap();
        let mut rx = port.rx_queue(0);
        let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
        rx.poll(&mut batch, &mut buffers, &mut tally);
        let rounds = if is_loop == "true" { 32 / 3 } else { 1 };
        assert!(batch.len() >= rounds && batch.iter().all(|packet| packet.bytes() == [7; 60]), "{}", batch.len());
        let dropped = [DropReason::RxOversize, DropReason::RxError].map(|why| tally.dropped(why));
        assert!(dropped.iter().all(|n| (rounds as u64..=rounds as u64 + 1).contains(n)), "{dropped:?}");
        assert_eq!(tally[Counter::Received], dropped[0] + dropped[1]);
        assert_eq!(port.stats().rx_dropped, dropped[0] + dropped[1]);
        buffers.give_batch(&mut batch);
    }
}

#[test]
fn what_is_sent_is_written_with_the_given_time() {
    let folder = folder(1, 1);
    let pool: Arc<dyn FramePool> = Pools::new(64).of_size(1500).unwrap();
    let time = Arc::new(AtomicU64::new(0));
    let path = folder.path().join("out.pcap");
    let mut port = sink(&path, 1500, Arc::clone(&pool), Clock::Given(Arc::clone(&time))).unwrap();
    let mut tx = port.tx_queue(0);
    let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
    for (at, len) in [(1_000_000, 60), (2_000_000, 1515), (3_000_000, 1514)] {
        time.store(at, Relaxed);
        batch.push(buffers.write(&pool, &vec![at as u8; len]).unwrap());
        tx.send(&mut batch, &mut buffers, &mut tally);
    }
    assert_eq!((tally[Counter::Sent], tally.dropped(DropReason::TxOversize)), (2, 1));
    assert_eq!((port.stats().tx_packets, port.stats().tx_bytes, port.stats().tx_dropped), (2, 1574, 1));
    // A reader need not wait for the end of the port.
    port.service();
    assert_eq!(read_all(&std::fs::read(&path).unwrap()).unwrap().len(), 2);
    drop((tx, port));
    let all = read_all(&std::fs::read(&path).unwrap()).unwrap();
    let got: Vec<_> = all.iter().map(|(record, bytes)| (record.time_ns, bytes.len())).collect();
    assert_eq!(got, [(1_000_000, 60), (3_000_000, 1514)]);
}

#[test]
fn a_bad_capture_is_refused_at_the_start() {
    let folder = folder(2, 2);
    let path = folder.path().join("in.pcap");
    let mut file = std::fs::read(&path).unwrap();
    file.pop();
    std::fs::write(folder.path().join("cut.pcap"), file).unwrap();
    std::fs::write(folder.path().join("empty.pcap"), "").unwrap();
    // One that breaks off is played as far as it goes, and says so.
    for (name, is_loop, packets, note) in [
        ("cut.pcap", "false", 3, "cut.pcap: the file breaks off at byte 327, within a packet (59 of 60 bytes)"),
        ("cut.pcap", "true", 3, "within a packet"),
        ("empty.pcap", "false", 0, "empty.pcap: the file is empty"),
    ] {
        let keys = [("rx", name), ("loop", is_loop)];
        let mut port = crate::open(&config(&folder, 1, &keys), &mut Pools::new(64)).unwrap();
        assert!(port.notes()[0].contains(note), "{:?}", port.notes());
        let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
        port.rx_queue(0).poll(&mut batch, &mut buffers, &mut tally);
        assert!(if is_loop == "true" { batch.len() > packets } else { batch.len() == packets }, "{}", batch.len());
        buffers.give_batch(&mut batch);
    }
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    for (keys, want) in [
        (vec![("rx", "pipe")], "pipe: this is not a file but a pipe or device"),
        (vec![("tx", "pipe")], "pipe cannot be written: the pipe has no reader yet"),
        (vec![("rx", "none.pcap")], "none.pcap: cannot be read: No such file"),
        (vec![("rx", ".")], "directory"),
        (vec![("tx", "no/where.pcap")], "no/where.pcap cannot be written: No such file"),
        (vec![("rx", "in.pcap"), ("loop", "maybe")], "expected true or false"),
        (vec![("rx", "in.pcap"), ("rate", "fast")], "expected packets per second"),
        (vec![("loop", "true")], "needs option rx"),
    ] {
        let error = crate::open(&config(&folder, 1, &keys), &mut Pools::new(64)).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("port c: ") && error.contains(want), "{error}");
    }
}
