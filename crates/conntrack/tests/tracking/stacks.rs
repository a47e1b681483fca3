//! Two hosts with a real TCP stack each (smoltcp), and a network that loses, repeats and reorders packets before and
//! behind the observer.

use sluice_traffic::SplitMix64;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use std::collections::VecDeque;

/// The client's address, then the server's.
pub const ADDRESSES: [[u8; 4]; 2] = [[10, 0, 1, 2], [10, 0, 2, 2]];
/// The server's port.
pub const SERVER_PORT: u16 = 80;

/// What an interface receives and sends, whole IP packets.
#[derive(Default)]
struct Wire {
    arriving: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
    mtu: usize,
}

struct Arrived(Vec<u8>);
struct Sending<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut bytes = vec![0; len];
        let result = write(&mut bytes);
        self.0.push_back(bytes);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Sending<'_>)> {
        let bytes = self.arriving.pop_front()?;
        Some((Arrived(bytes), Sending(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        Some(Sending(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        (capabilities.medium, capabilities.max_transmission_unit) = (Medium::Ip, self.mtu);
        capabilities
    }
}

/// An interface with one socket, and the program above it.
struct Host {
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    unsent: Vec<u8>,
    received: Vec<u8>,
}

impl Host {
    fn new(address: [u8; 4], seed: u64, buffer: usize, mtu: usize, data: Vec<u8>) -> Self {
        let mut wire = Wire { mtu, ..Wire::default() };
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            let [a, b, c, d] = address;
            addresses.push(IpCidr::new(IpAddress::v4(a, b, c, d), 16)).expect("room for one address");
        });
        let room = || tcp::SocketBuffer::new(vec![0; buffer]);
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(tcp::Socket::new(room(), room()));
        Host { wire, interface, sockets, handle, unsent: data, received: Vec::new() }
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Lets the stack run, and the program above it: it sends all it has, closes, and reads what comes.
    fn poll(&mut self, now: Instant) {
        self.interface.poll(now, &mut self.wire, &mut self.sockets);
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.handle);
        if socket.may_send() && !self.unsent.is_empty() {
            let n = socket.send_slice(&self.unsent).unwrap_or(0);
            self.unsent.drain(..n);
        }
        // Only now: with its last bytes smoltcp sends a FIN that may lie beyond the window, which OVS calls invalid.
        if socket.may_send() && self.unsent.is_empty() && socket.send_queue() == 0 {
            socket.close();
        }
        while socket.can_recv() {
            let received = &mut self.received;
            let read = |bytes: &mut [u8]| (bytes.len(), received.extend_from_slice(bytes));
            if socket.recv(read).is_err() {
                break;
            }
        }
        self.interface.poll(now, &mut self.wire, &mut self.sockets);
    }
}

/// What the hosts do and what the network does to them, all drawn from one seed.
pub struct Conversation {
    hosts: [Host; 2],
    /// What each is to receive.
    expected: [Vec<u8>; 2],
    random: SplitMix64,
    /// Of 256 packets, how many are lost before the observer, how many behind it, and how many are duplicated.
    troubled: u64,
    /// How many of the first packets may be reordered.
    disorder: u64,
}

/// A packet as it is seen between the hosts.
pub struct Sight<'a> {
    pub from_client: bool,
    /// Since the beginning, milliseconds.
    pub at_ms: u64,
    /// From its IP header on.
    pub packet: &'a [u8],
}

/// Longer than any correct conversation takes, in steps of [`STEP_MS`].
const STEPS: u64 = 400_000;
const STEP_MS: u64 = 10;

impl Conversation {
    /// The client's port is given; it connects at once.
    pub fn new(seed: u64, client_port: u16) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut one_of = |choices: &[u64]| choices[random.next_u64() as usize % choices.len()];
        let (troubled, disorder) = (one_of(&[0, 5, 15, 30]), one_of(&[1, 2, 4]));
        let mtu = one_of(&[576, 1280, 1500]) as usize;
        let sizes = [0; 2].map(|_| one_of(&[1, 100, 3000, 20_000, 60_000]) as usize);
        // The last one exceeds the largest window without scaling.
        let buffers = [0; 2].map(|_| one_of(&[600, 4096, 40_000, 200_000]) as usize);
        let expected = [sizes[1], sizes[0]].map(|n| (0..n).map(|i| (i / 7) as u8).collect::<Vec<_>>());
        let mut host = |i: usize| Host::new(ADDRESSES[i], random.next_u64(), buffers[i], mtu, expected[1 - i].clone());
        let mut hosts = [host(0), host(1)];
        hosts[1].socket().listen(SERVER_PORT).expect("a port to listen on");
        let Host { interface, sockets, handle, .. } = &mut hosts[0];
        let [a, b, c, d] = ADDRESSES[1];
        let to = (IpAddress::v4(a, b, c, d), SERVER_PORT);
        sockets.get_mut::<tcp::Socket<'_>>(*handle).connect(interface.context(), to, client_port).expect("a way there");
        Conversation { hosts, expected, random, troubled, disorder }
    }

    /// Runs until both have received everything and nobody sends any more; shows each packet in between. Returns
    /// whether the received data is the data sent.
    #[must_use]
    pub fn play(mut self, mut see: impl FnMut(Sight<'_>)) -> bool {
        let mut silent_ms = 0;
        for step in 1..=STEPS {
            let at_ms = step * STEP_MS;
            let mut is_silent = true;
            for from in 0..2 {
                self.hosts[from].poll(Instant::from_millis(at_ms as i64));
                while let Some(packet) = self.next_from(from) {
                    is_silent = false;
                    if !self.is_troubled() {
                        see(Sight { from_client: from == 0, at_ms, packet: &packet });
                        self.deliver(1 - from, packet);
                    }
                }
            }
            silent_ms = if is_silent { silent_ms + STEP_MS } else { 0 };
            let is_over = |i: usize| self.hosts[i].received.len() >= self.expected[i].len();
            if is_over(0) && is_over(1) && Duration::from_millis(silent_ms) > Duration::from_secs(20) {
                break;
            }
        }
        (0..2).all(|i| self.hosts[i].received == self.expected[i])
    }

    fn is_troubled(&mut self) -> bool {
        self.random.next_u64() % 256 < self.troubled
    }

    fn next_from(&mut self, host: usize) -> Option<Vec<u8>> {
        let which = (self.random.next_u64() % self.disorder) as usize;
        let sent = &mut self.hosts[host].wire.sent;
        sent.remove(which.min(sent.len().checked_sub(1)?))
    }

    /// Behind the observer a packet may also be lost or duplicated.
    fn deliver(&mut self, to: usize, packet: Vec<u8>) {
        if self.is_troubled() {
            return;
        }
        let is_twice = self.is_troubled();
        let arriving = &mut self.hosts[to].wire.arriving;
        arriving.extend(is_twice.then(|| packet.clone()));
        arriving.push_back(packet);
    }
}
