//! One connection: a thread that reads requests, carries them out, and writes replies and asynchronous messages.
//!
//! Requests are carried out one after the other. While a peer does not read its replies, the connection reads no requests;
//! a peer that reads nothing for [`SEND_TIMEOUT`] is disconnected. No other thread waits for a connection.

use crate::async_msg::AsyncMsg;
use crate::close_reason::CloseReason;
use crate::conn_handle::ConnHandle;
use crate::conn_handle::QUEUE_MAX;
use crate::conn_mgr::ConnMgr;
use crate::conn_origin::ConnOrigin;
use crate::controllers::Controller;
use crate::end_signal::EndSignal;
use crate::fail_open::FailOpen;
use crate::flow_mod_report::FlowModReport;
use crate::flow_mods::PendingFlowMods;
use crate::packet_in_limits::PacketInLimits;
use crate::serve_context::ServeContext;
use crate::settings::INACTIVITY_PROBE;
use crate::stream::Stream;
use crate::switch::Switch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice_clock::heartbeat::Heartbeat;
use sluice_clock::{PollTimer, now_ms};
use sluice_fate::Limit;
use sluice_fate::MemoryShare;
use sluice_ofp::ofpact::PacketInReason;
use sluice_openflow::message::connection::{AsyncKind, Role, RoleReason, RoleStatus};
use sluice_openflow::{Error, Event, Message, Peer, Session, Version};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that are read at once.
const READ_SIZE: usize = 64 << 10;

/// While more than this waits to be sent, no requests are read, and statistics wait.
const OUTPUT_MAX: usize = 1 << 20;

/// While more than this waits to be sent, asynchronous messages are lost.
const OUTPUT_MAX_WITH_ASYNC: usize = 4 << 20;

/// A peer that reads nothing for this long is disconnected, milliseconds.
const SEND_TIMEOUT_MS: u64 = 30_000;

/// A peer must say hello within this, milliseconds.
pub(crate) const HELLO_TIMEOUT_MS: u64 = 10_000;

/// For how long a connection that has just been served looks for the next request before it sleeps. A peer that waits for each reply,
/// as `ovs-ofctl add-flows` does for each rule, sends it within this time, and to wake a thread on an idle core of a virtual machine takes as
/// long. Other threads of the core run meanwhile.
const LINGER: Duration = Duration::from_micros(50);

/// The longest sleep of a connection.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A connection.
pub struct Connection {
    pub(crate) switch: Arc<Switch>,
    pub(crate) conn_mgr: Arc<ConnMgr>,
    pub(crate) session: Session,
    pub(crate) handle: Arc<ConnHandle>,
    pub(crate) pending: PendingFlowMods,
    pub(crate) flow_mod_report: FlowModReport,
    /// Taken from the handle's queue, and not sent yet.
    async_msgs: VecDeque<AsyncMsg>,
    /// Whether it has sent packets since the last barrier.
    pub(crate) has_sent_packets: Cell<bool>,
    /// The memory of its packets that wait for the datapath.
    pub(crate) packet_outs: Arc<MemoryShare>,
    stream: Stream,
    peer: Peer,
    /// The controller that the switch has connected to, if it is one.
    pub(crate) controller: Option<Arc<Controller>>,
    end: Arc<EndSignal>,
    /// Limits of the packet-ins to a controller.
    pub(crate) limits: Option<PacketInLimits>,
    /// Bytes of the session's output that have been sent.
    sent: usize,
    last_progress_ms: u64,
    last_heard_ms: u64,
    /// A peer that has said nothing for this long is asked for an echo; after as long again the connection ends.
    probe_ms: u64,
    is_probed: bool,
    was_ready: bool,
    /// Whether `conn_mgr` counts it among those that want packets which no rule matches.
    wants_misses: bool,
    began_ms: u64,
    /// Wakes it when one of these times has come.
    timer: PollTimer,
    /// Whether it has read something since it last waited.
    has_read: bool,
}

impl Connection {
    /// Serves a client that has connected to the switch, until the connection ends.
    pub fn serve_client(stream: Stream, context: &ServeContext) -> CloseReason {
        Connection::serve(stream, None, context).0
    }

    /// Serves a controller that the switch has connected to, until the connection ends. Also returns whether a version had
    /// been negotiated.
    pub fn serve_controller(
        stream: Stream,
        controller: &Arc<Controller>,
        context: &ServeContext,
    ) -> (CloseReason, bool) {
        Connection::serve(stream, Some(controller), context)
    }

    fn serve(stream: Stream, controller: Option<&Arc<Controller>>, context: &ServeContext) -> (CloseReason, bool) {
        let ServeContext { conn_mgr, switch, end, versions, is_management } = context;
        let peer = if controller.is_some() { Peer::Controller } else { Peer::Client };
        let limit = controller.and_then(|controller| controller.settings.rate_limit);
        let packet_ins_max = controller.map_or(QUEUE_MAX, |controller| controller.settings.queue_size);
        let origin = match controller {
            Some(_) => ConnOrigin::Controller,
            None if *is_management => ConnOrigin::Management,
            None => ConnOrigin::of_listener(stream.peer_address()),
        };
        let Some(handle) = conn_mgr.add_connection(origin, packet_ins_max) else {
            return (CloseReason::TooManyConnections, false);
        };
        let Ok(timer) = PollTimer::new() else {
            conn_mgr.remove_connection(&handle);
            return (CloseReason::PollFailed, false);
        };
        let now_ms = now_ms();
        let probe = controller.map_or(INACTIVITY_PROBE, |controller| controller.settings.inactivity_probe);
        let mut connection = Connection {
            switch: Arc::clone(switch),
            conn_mgr: Arc::clone(conn_mgr),
            session: Session::new(peer, *versions),
            handle: Arc::clone(&handle),
            pending: PendingFlowMods::default(),
            flow_mod_report: FlowModReport::default(),
            async_msgs: VecDeque::new(),
            stream,
            peer,
            controller: controller.cloned(),
            end: Arc::clone(end),
            has_sent_packets: Cell::new(false),
            packet_outs: Arc::new(switch.packet_out_memory.share(origin.is_owners())),
            limits: limit.map(|limit| PacketInLimits::new(limit, switch.now_ms())),
            probe_ms: u64::try_from(probe.as_millis()).ok().filter(|ms| *ms != 0).unwrap_or(u64::MAX),
            sent: 0,
            last_progress_ms: now_ms,
            last_heard_ms: now_ms,
            is_probed: false,
            was_ready: false,
            wants_misses: false,
            began_ms: now_ms,
            timer,
            has_read: false,
        };
        if controller.is_some_and(|controller| !controller.settings.async_messages) {
            connection.session.begin_silent();
        }
        connection.session.use_option_lengths(conn_mgr.tlv_table.lock().lengths());
        connection.session.use_bundle_memory(switch.bundle_memory.share(origin.is_owners()));
        connection.session.log_as(connection.name());
        let reason = connection.run();
        connection.report_flow_mods();
        connection.want_misses(false);
        connection.end_monitors();
        conn_mgr.remove_connection(&handle);
        let was_ready = connection.was_ready;
        if was_ready {
            connection.note_fail_open(|fail_open| fail_open.controller_disconnected());
        }
        match (connection.stream.tls_error(), peer) {
            (Some(error), Peer::Controller) => tracing::warn!("bridge {}: TLS: {error}", conn_mgr.bridge),
            (Some(error), Peer::Client) => tracing::debug!("bridge {}: TLS: {error}", conn_mgr.bridge),
            (None, _) => {}
        }
        let lost = handle.lost() + connection.limits.as_ref().map_or(0, PacketInLimits::lost);
        if lost != 0 {
            tracing::warn!(
                "bridge {}: a controller was too slow, or over its limit, and lost {lost} messages",
                conn_mgr.bridge
            );
        }
        (reason, was_ready)
    }

    fn run(&mut self) -> CloseReason {
        let mut buffer = vec![0; READ_SIZE];
        let heartbeat = Heartbeat::of("openflow-conn");
        loop {
            if self.end.is_given() {
                return CloseReason::BridgeEnded;
            }
            let busy = heartbeat.begin("requests");
            let done = self.work().and_then(|()| self.write());
            // The requests may have removed something, and the answers are on their way.
            if self.has_read {
                self.switch.ofproto.free_removed();
            }
            if let Err(reason) = done {
                return reason;
            }
            drop(busy);
            self.copy_to_snoopers();
            if self.session.is_closed() && self.unsent() == 0 && !self.stream.wants_write() {
                return CloseReason::BadMessages;
            }
            if let Err(reason) = self.wait(true).and_then(|()| self.check_time()) {
                return reason;
            }
            match self.read(&mut buffer) {
                Ok(()) => {}
                Err(reason) => return reason,
            }
        }
    }

    /// Sends asynchronous messages and carries out the requests that have come.
    fn work(&mut self) -> Result<(), CloseReason> {
        self.copy_to_snoopers();
        self.session.expire_bundles(now_ms(), self.switch.bundle_idle_ms());
        if self.flow_mod_report.due_ms().is_some_and(|due_ms| due_ms <= now_ms()) {
            self.report_flow_mods();
        }
        loop {
            self.send_async();
            self.send_delayed();
            if self.async_msgs.is_empty() && self.unsent() == 0 {
                self.resume_monitors()?;
            }
            self.want_misses(self.session.wants(AsyncKind::PacketIn, PacketInReason::ImplicitMiss as u32));
            if self.unsent() > OUTPUT_MAX {
                self.carry_out_flow_mods();
                return Ok(());
            }
            let event = match self.session.next_event() {
                Some(Event::Request(request, Message::FlowMod(m))) => {
                    self.queue_flow_mod(request, m);
                    continue;
                }
                event => event,
            };
            self.carry_out_flow_mods();
            // Asynchronous messages about these changes come before a barrier's reply.
            self.send_async();
            let Some(event) = event else { return Ok(()) };
            match event {
                Event::Ready(version) => self.ready(version),
                Event::Refused(error) => self.log_refusal(error),
                Event::BadVersion(version) => {
                    let expected = self.version() as u8;
                    let text = format!("received OpenFlow version {version:#04x} != expected {expected:02x}");
                    tracing::error!(target: "vconn", "{}: {text}", self.name());
                }
                Event::Request(request, message) => self.request(&request, message)?,
                Event::Role(request, wish) => self.role(&request, wish),
                Event::Commit(request, commit) => self.commit(&request, &commit)?,
            }
        }
    }

    /// Notes whether the connection wants packets that no rule matches.
    fn want_misses(&mut self, wants: bool) {
        if wants == self.wants_misses {
            return;
        }
        self.wants_misses = wants;
        if let Some(send) = self.conn_mgr.want_misses(wants) {
            // The bridge may have been removed: then there are no packets.
            let _ = self.switch.ofproto.send_misses_to_controllers(&self.conn_mgr.bridge, send);
            self.switch.revalidate_soon();
        }
    }

    fn ready(&mut self, version: Version) {
        let ([ours, theirs], number) = (self.session.versions(), version as u8);
        tracing::debug!(
            target: "vconn",
            "{}: negotiated OpenFlow version {number:#04x} (we support {ours}, peer supports {theirs})",
            self.name()
        );
        self.was_ready = true;
        self.copy_to_snoopers();
        if self.peer == Peer::Controller {
            tracing::info!(target: "rconn", "{}<->{}: connected", self.conn_mgr.bridge, self.name());
            let (switch, bridge) = (Arc::clone(&self.switch), self.conn_mgr.bridge.clone());
            self.note_fail_open(|fail_open| fail_open.controller_connected(&switch, &bridge));
        }
    }

    /// The peer's name in the log: of a controller its address, of a client its number.
    fn name(&self) -> String {
        match &self.controller {
            Some(controller) => controller.settings.target.to_string(),
            None => format!("{}#{}", self.stream.kind(), self.handle.number()),
        }
    }

    /// Logs how many flow-mods there were.
    fn report_flow_mods(&mut self) {
        if let Some(text) = self.flow_mod_report.take(now_ms()) {
            tracing::info!(target: "connmgr", "{}<->{}: {text}", self.conn_mgr.bridge, self.name());
        }
    }

    /// Tells the bridge's fail-open mode of this connection, if it is one to a primary controller.
    fn note_fail_open(&self, note: impl FnOnce(&FailOpen)) {
        let is_primary = self.controller.as_ref().is_some_and(|controller| controller.settings.is_primary());
        let fail_open = self.conn_mgr.fail_open.lock().clone();
        if let Some(fail_open) = fail_open.filter(|_| is_primary) {
            note(&fail_open);
        }
    }

    /// Logs why the versions of both ends do not fit.
    fn log_refusal(&self, error: Error) {
        if error == Error::HelloIncompatible {
            let [ours, theirs] = self.session.versions();
            let text = format!("version negotiation failed (we support {ours}, peer supports {theirs})");
            return tracing::warn!(target: "vconn", "{}: {text}", self.name());
        }
        tracing::debug!("bridge {}: a request was refused: {error}", self.conn_mgr.bridge);
    }

    /// Reads what the peer has sent, unless too much waits to be sent to it.
    fn read(&mut self, buffer: &mut [u8]) -> Result<(), CloseReason> {
        if self.unsent() > OUTPUT_MAX || self.session.is_closed() {
            return Ok(());
        }
        let free = self.session.free_space().min(buffer.len());
        match self.stream.read(&mut buffer[..free]) {
            Ok(None) => Ok(()),
            Ok(Some(0)) => Err(CloseReason::PeerClosed),
            Ok(Some(n)) => {
                self.session.push(&buffer[..n]);
                (self.last_heard_ms, self.is_probed, self.has_read) = (now_ms(), false, true);
                Ok(())
            }
            Err(_) => Err(CloseReason::Broken),
        }
    }

    /// Gives snoopers the messages in both directions, and notes the controller's role.
    fn copy_to_snoopers(&mut self) {
        let Some(controller) = &self.controller else { return };
        let role = self.session.version().map(|_| self.session.role());
        controller.note(role, self.is_probed, self.limits.as_ref().map(PacketInLimits::counts));
        self.session.copy(controller.traffic.is_snooped());
        let copies = self.session.take_copies();
        if !copies.is_empty() {
            controller.traffic.copy(&copies);
        }
    }

    fn unsent(&mut self) -> usize {
        self.session.output().len() - self.sent
    }

    fn write(&mut self) -> Result<(), CloseReason> {
        if self.stream.flush().is_err() {
            return Err(CloseReason::Broken);
        }
        while self.unsent() != 0 {
            match self.stream.write(&self.session.output()[self.sent..]) {
                Ok(None) => break,
                Ok(Some(n)) => {
                    self.sent += n;
                    self.last_progress_ms = now_ms();
                }
                Err(_) => return Err(CloseReason::Broken),
            }
        }
        // Not after every write, because the rest would be moved each time.
        if self.sent == self.session.output().len() || self.sent > OUTPUT_MAX {
            let sent = std::mem::take(&mut self.sent);
            self.session.output().drain(..sent);
        }
        Ok(())
    }

    /// Writes until no more than [`OUTPUT_MAX`] waits: called between the messages of a long reply.
    pub(crate) fn drain_output(&mut self) -> Result<(), CloseReason> {
        self.copy_to_snoopers();
        while self.unsent() > OUTPUT_MAX {
            if self.end.is_given() {
                return Err(CloseReason::BridgeEnded);
            }
            self.write()?;
            if self.unsent() > OUTPUT_MAX {
                self.wait(false)?;
                self.check_time()?;
            }
        }
        Ok(())
    }

    /// Waits until the peer reads or has sent something, or there are asynchronous messages; a second at most. In the middle
    /// of a reply only for the peer to read.
    fn wait(&mut self, between_replies: bool) -> Result<(), CloseReason> {
        let unsent = self.unsent();
        let mut wanted = PollFlags::empty();
        if unsent != 0 || self.stream.wants_write() {
            wanted |= PollFlags::OUT;
        }
        if between_replies && unsent <= OUTPUT_MAX && !self.session.is_closed() {
            wanted |= PollFlags::IN;
        }
        let handle = if between_replies && self.async_msgs.is_empty() { PollFlags::IN } else { PollFlags::empty() };
        self.handle.note_bundles(self.session.open_bundles());
        let due_ms = self.due_ms();
        let mut fds = [
            PollFd::new(&self.stream, wanted),
            PollFd::new(&*self.end, PollFlags::IN),
            PollFd::new(&*self.handle, handle),
            PollFd::new(&self.timer, PollFlags::IN),
        ];
        let can_read = wanted.contains(PollFlags::IN) && self.stream.has_buffered();
        let due = self.timer.set(Some(due_ms));
        let at_most = if can_read { Duration::ZERO } else { due.min(SLEEP_MAX) };
        if between_replies && std::mem::take(&mut self.has_read) && !can_read && is_ready_soon(&mut fds) {
            return Ok(());
        }
        let at_most = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
        match poll(&mut fds, Some(&at_most)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(_) => Err(CloseReason::PollFailed),
        }
    }

    /// When a packet may be sent, or what the peer has not done is to be noticed.
    fn due_ms(&mut self) -> u64 {
        let silence = match self.session.version() {
            None => self.began_ms + HELLO_TIMEOUT_MS,
            Some(_) if self.is_probed => self.last_heard_ms.saturating_add(self.probe_ms.saturating_mul(2)),
            Some(_) => self.last_heard_ms.saturating_add(self.probe_ms),
        };
        let silence = silence.saturating_add(1);
        let stuck = (self.unsent() != 0).then_some(self.last_progress_ms + SEND_TIMEOUT_MS + 1);
        let packet = self.limits.as_ref().and_then(PacketInLimits::wait_ms).map(|wait| now_ms() + wait);
        let report = self.flow_mod_report.due_ms();
        let bundle = self.session.bundles_due_ms(self.switch.bundle_idle_ms());
        stuck.into_iter().chain(packet).chain(bundle).chain(report).fold(silence, u64::min)
    }

    /// Ends the connection if its peer is silent or does not read.
    fn check_time(&mut self) -> Result<(), CloseReason> {
        let now_ms = now_ms();
        if self.unsent() == 0 {
            self.last_progress_ms = now_ms;
        } else if now_ms - self.last_progress_ms > SEND_TIMEOUT_MS {
            return Err(CloseReason::SendTimeout);
        }
        if self.session.version().is_none() {
            return if now_ms - self.began_ms > HELLO_TIMEOUT_MS { Err(CloseReason::NoHello) } else { Ok(()) };
        }
        let silence_ms = now_ms - self.last_heard_ms;
        if silence_ms > self.probe_ms.saturating_mul(2) {
            return Err(CloseReason::Inactive);
        }
        if silence_ms > self.probe_ms && !self.is_probed {
            self.is_probed = true;
            self.session.send(&Message::EchoRequest(Vec::new()));
        }
        Ok(())
    }

    /// Sends the queued asynchronous messages. Flow updates wait while much is unsent; the others are lost then.
    pub(crate) fn send_async(&mut self) {
        if self.async_msgs.is_empty() {
            self.async_msgs = self.handle.take();
        }
        while let Some(msg) = self.async_msgs.pop_front() {
            let unsent = self.unsent();
            match msg {
                AsyncMsg::FlowUpdates(_) if unsent > OUTPUT_MAX => return self.async_msgs.push_front(msg),
                AsyncMsg::FlowUpdates(_) | AsyncMsg::Demoted(_) => self.send_async_msg(msg),
                _ if unsent > OUTPUT_MAX_WITH_ASYNC => Limit::AsyncMessages.hit(),
                _ => self.send_async_msg(msg),
            }
        }
    }

    /// Sends an asynchronous message, if the controller wants it.
    pub(crate) fn send_async_msg(&mut self, msg: AsyncMsg) {
        match msg {
            AsyncMsg::PacketIn(packet) => self.packet_in(&packet),
            AsyncMsg::FlowRemoved(removed) => self.flow_removed(&removed),
            AsyncMsg::FlowUpdates(updates) => self.flow_updates(updates),
            AsyncMsg::TableStatus(event) => self.table_status(&event),
            AsyncMsg::PortStatus(change) => self.port_status(&change),
            AsyncMsg::RequestForward(request) => self.request_forward(&request),
            AsyncMsg::Demoted(generation) => {
                self.session.set_role(Role::Secondary);
                // Every controller is told, whatever it asked for. Source: Open vSwitch, `ofconn_send_role_status`.
                if self.version() >= Version::V13 {
                    let (role, reason) = (Role::Secondary, RoleReason::PrimaryRequest);
                    self.session.send(&Message::RoleStatus(RoleStatus { role, reason, generation }));
                }
            }
        }
    }
}

/// Whether one of them is ready within [`LINGER`].
fn is_ready_soon(fds: &mut [PollFd<'_>]) -> bool {
    let sleeps_at = Instant::now() + LINGER;
    loop {
        match poll(fds, Some(&Timespec::default())) {
            Ok(0) if Instant::now() < sleeps_at => std::thread::yield_now(),
            ready => return ready.is_ok_and(|n| n != 0),
        }
    }
}
