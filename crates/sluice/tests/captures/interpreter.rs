//! Runs packets through flow text the slow and plain way: every rule in turn, one packet at a time, checksums computed
//! from nothing. Knows the words of `tests/captures/rules.txt` and panics on any other.

/// A packet on its way through the tables.
#[derive(Clone)]
pub struct Packet {
    in_port: u16,
    reg0: u32,
    bytes: Vec<u8>,
}

impl Packet {
    pub fn new(in_port: u16, bytes: Vec<u8>) -> Self {
        Packet { in_port, reg0: 0, bytes }
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Where the network header is: behind Ethernet and at most one tag.
    fn l3(&self) -> usize {
        if self.u16(12) == 0x8100 { 18 } else { 14 }
    }

    pub fn ethertype(&self) -> u16 {
        self.u16(self.l3() - 2)
    }

    fn is_ipv4(&self) -> bool {
        self.ethertype() == 0x0800
    }

    pub fn is_later_fragment(&self) -> bool {
        self.is_ipv4() && self.u16(self.l3() + 6) & 0x1fff != 0
    }

    /// Protocol and place of what IP carries; the captures' IPv6 packets have at most a hop-by-hop header.
    fn l4(&self) -> Option<(u8, usize)> {
        let l3 = self.l3();
        match self.ethertype() {
            0x0800 => Some((self.bytes[l3 + 9], l3 + 4 * usize::from(self.bytes[l3] & 15))),
            0x86dd if self.bytes[l3 + 6] == 0 => {
                Some((self.bytes[l3 + 40], l3 + 48 + 8 * usize::from(self.bytes[l3 + 41])))
            }
            0x86dd => Some((self.bytes[l3 + 6], l3 + 40)),
            _ => None,
        }
    }

    /// Source and destination port of an IPv4 packet of that protocol.
    pub fn ports(&self, protocol: u8) -> Option<(u16, u16)> {
        let (found, at) = self.l4()?;
        (self.is_ipv4() && found == protocol && !self.is_later_fragment()).then(|| (self.u16(at), self.u16(at + 2)))
    }

    pub fn icmp6_type(&self) -> Option<u8> {
        let (protocol, at) = self.l4()?;
        (self.ethertype() == 0x86dd && protocol == 58).then(|| self.bytes[at])
    }

    fn is_ipv4_of(&self, protocol: u8) -> bool {
        self.is_ipv4() && self.l4().is_some_and(|(p, _)| p == protocol)
    }

    fn matches(&self, term: &str) -> bool {
        let (name, value) = term.split_once('=').unwrap_or((term, ""));
        let number = || value.trim_start_matches("0x").parse::<u16>().expect("a small number");
        let ports = || self.ports(6).or(self.ports(17));
        match name {
            "priority" | "table" => true,
            "arp" => self.ethertype() == 0x0806,
            "ip" => self.is_ipv4(),
            "tcp" => self.is_ipv4_of(6),
            "udp" => self.is_ipv4_of(17),
            "icmp" => self.is_ipv4_of(1),
            "icmp6" => self.icmp6_type().is_some(),
            "icmp_type" => self.icmp6_type().map(u16::from) == Some(number()),
            "in_port" => self.in_port == number(),
            "reg0" => self.reg0 == number().into(),
            "tp_src" => ports().is_some_and(|(from, _)| from == number()),
            "tp_dst" => ports().is_some_and(|(_, to)| to == number()),
            "nw_frag" => value == "later" && self.is_later_fragment(),
            "nw_dst" => self.is_ipv4() && in_prefix(&self.bytes[self.l3() + 16..self.l3() + 20], value),
            other => panic!("the interpreter does not know the field {other}"),
        }
    }

    /// Applies an edit. `None` if the packet ends here.
    fn edit(&mut self, action: &str) -> Option<()> {
        let (name, value) = action.split_once(':').unwrap_or((action, ""));
        let l3 = self.l3();
        match name {
            "mod_vlan_vid" => {
                let tci: u16 = value.parse().expect("a VLAN id");
                assert_eq!(l3, 14, "the captures have no tags");
                self.bytes.splice(12..12, [0x81, 0, (tci >> 8) as u8, tci as u8]);
            }
            "mod_nw_tos" => self.bytes[l3 + 1] = self.bytes[l3 + 1] & 3 | value.parse::<u8>().expect("a number"),
            "mod_nw_src" => self.bytes[l3 + 12..l3 + 16].copy_from_slice(&address(value)),
            "mod_dl_dst" => {
                let mac: Vec<u8> = value.split(':').map(|b| u8::from_str_radix(b, 16).expect("hex")).collect();
                self.bytes[..6].copy_from_slice(&mac);
            }
            "mod_tp_dst" => {
                let (_, at) = self.l4().expect("a transport header");
                self.bytes[at + 2..at + 4].copy_from_slice(&value.parse::<u16>().expect("a port").to_be_bytes());
            }
            "dec_ttl" => {
                if self.bytes[l3 + 8] <= 1 {
                    return None;
                }
                self.bytes[l3 + 8] -= 1;
            }
            "load" => {
                let number = value.strip_prefix("0x").and_then(|v| v.strip_suffix("->NXM_NX_REG0[]"));
                self.reg0 = number.expect("a load to register 0").parse().expect("a number");
            }
            other => panic!("the interpreter does not know the action {other}"),
        }
        self.fix_checksums();
        Some(())
    }

    fn fix_checksums(&mut self) {
        if !self.is_ipv4() {
            return;
        }
        let l3 = self.l3();
        let (protocol, l4) = self.l4().expect("IPv4 carries something");
        self.put(l3 + 10, 0);
        self.put(l3 + 10, checksum(&[&self.bytes[l3..l4]]));
        let end = l3 + usize::from(self.u16(l3 + 2));
        let place = match protocol {
            17 if !self.is_later_fragment() && self.u16(l4 + 6) != 0 => l4 + 6,
            6 if !self.is_later_fragment() => l4 + 16,
            _ => return,
        };
        self.put(place, 0);
        let pseudo = [&self.bytes[l3 + 12..l3 + 20], &[0, protocol], &((end - l4) as u16).to_be_bytes()].concat();
        let sum = checksum(&[&pseudo, &self.bytes[l4..end]]);
        self.put(place, if sum == 0 && protocol == 17 { 0xffff } else { sum });
    }

    fn put(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// The Internet checksum; each part but the last has an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|p| p.chunks(2));
    let mut sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !sum as u16
}

fn address(text: &str) -> [u8; 4] {
    text.parse::<std::net::Ipv4Addr>().expect("an address").octets()
}

fn in_prefix(bytes: &[u8], prefix: &str) -> bool {
    let (base, length) = prefix.split_once('/').expect("a prefix");
    let shift = 32 - length.parse::<u32>().expect("a length");
    let number = |b: &[u8]| u32::from_be_bytes(b.try_into().expect("four bytes"));
    number(bytes) >> shift == number(&address(base)) >> shift
}

struct Rule {
    table: u8,
    priority: u16,
    terms: Vec<String>,
    actions: Vec<String>,
    hits: u64,
}

/// The tables.
pub struct Interpreter {
    rules: Vec<Rule>,
    ports: Vec<u16>,
}

impl Interpreter {
    pub fn new(text: &str, ports: &[u16]) -> Self {
        let lines = text.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
        Interpreter { rules: lines.map(rule).collect(), ports: ports.to_vec() }
    }

    /// How many packets met each rule, in the order of the text.
    pub fn hits(&self) -> Vec<u64> {
        self.rules.iter().map(|r| r.hits).collect()
    }

    /// What leaves, in order: port and bytes.
    pub fn run(&mut self, mut packet: Packet) -> Vec<(u16, Vec<u8>)> {
        let mut out = Vec::new();
        self.table(0, &mut packet, &mut out);
        out
    }

    fn table(&mut self, table: u8, packet: &mut Packet, out: &mut Vec<(u16, Vec<u8>)>) {
        let hit = |r: &&mut Rule| r.table == table && r.terms.iter().all(|t| packet.matches(t));
        let Some(rule) = self.rules.iter_mut().filter(|r| hit(r)).max_by_key(|r| r.priority) else { return };
        rule.hits += 1;
        for action in rule.actions.clone() {
            if let Some(port) = action.strip_prefix("output:") {
                self.output(port.parse().expect("a port"), packet, out);
            } else if action == "flood" {
                self.ports.iter().for_each(|port| self.output(*port, packet, out));
            } else if action == "resubmit(,1)" {
                self.table(1, packet, out);
            } else if packet.edit(&action).is_none() {
                return;
            }
        }
    }

    /// Nothing goes back where it came from.
    fn output(&self, port: u16, packet: &Packet, out: &mut Vec<(u16, Vec<u8>)>) {
        if port != packet.in_port {
            out.push((port, packet.bytes.clone()));
        }
    }
}

fn rule(line: &str) -> Rule {
    let (matched, actions) = line.split_once(" actions=").expect("a rule has actions");
    let terms: Vec<String> = matched.split(',').map(str::to_owned).collect();
    let number =
        |name: &str| terms.iter().find_map(|t| t.strip_prefix(name)).map(|n| n.parse::<u16>().expect("a number"));
    // The comma inside `resubmit(,1)` parts nothing.
    let actions = actions.replace("(,", "(\u{0}").split(',').map(|a| a.replace('\u{0}', ",")).collect();
    let table = number("table=").unwrap_or(0) as u8;
    Rule { table, priority: number("priority=").expect("a priority"), terms, actions, hits: 0 }
}
