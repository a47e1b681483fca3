//! Classic pcap files: no more than tcpdump and the replay write.

/// A captured packet.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    pub time_us: u64,
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at {} us: ", self.time_us)?;
        self.bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Every packet of a little-endian, microsecond, Ethernet capture.
pub fn read(bytes: &[u8]) -> Vec<Record> {
    assert_eq!(bytes[..4], 0xa1b2_c3d4_u32.to_le_bytes(), "a little-endian capture in microseconds");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    assert_eq!(word(20), 1, "a capture of Ethernet");
    let mut at = 24;
    let mut out = Vec::new();
    while at < bytes.len() {
        let len = word(at + 8) as usize;
        let time_us = u64::from(word(at)) * 1_000_000 + u64::from(word(at + 4));
        out.push(Record { time_us, bytes: bytes[at + 16..at + 16 + len].to_vec() });
        at += 16 + len;
    }
    out
}

/// A capture of those packets.
pub fn write(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |words: &[u32], bytes: &[u8]| {
        words.iter().for_each(|w| out.extend(w.to_le_bytes()));
        out.extend(bytes);
    };
    put(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1], &[]);
    for record in records {
        let len = record.bytes.len() as u32;
        put(&[(record.time_us / 1_000_000) as u32, (record.time_us % 1_000_000) as u32, len, len], &record.bytes);
    }
    out
}
