//! One connection: a thread that reads requests, carries them out, and writes answers and news.
//!
//! Requests are done one after the other. A peer that does not read its answers stops being read; one that reads nothing
//! for [`STUCK_MAX`] loses the connection. Nobody but this thread ever waits for it.

use crate::controllers::Controller;
use crate::flow_mods::Waiting;
use crate::hub::{Hub, Mailbox, News};
use crate::limits::Limits;
use crate::settings::INACTIVITY_PROBE;
use crate::snoop::Wire;
use crate::stream::Stream;
use crate::switch::Switch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice_ofp::ofpact::PacketInReason;
use sluice_openflow::message::connection::{AsyncKind, Role, RoleReason, RoleStatus};
use sluice_openflow::message::ports::PortStatus;
use sluice_openflow::{Event, Message, Peer, Session, Version};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that are read at once.
const READ_SIZE: usize = 64 << 10;

/// With more than this to be sent, nothing more is read, and statistics wait.
const OUTPUT_MAX: usize = 1 << 20;

/// With more than this to be sent, news are lost.
const OUTPUT_MAX_WITH_NEWS: usize = 4 << 20;

/// A peer that takes nothing for so long loses the connection.
const STUCK_MAX: Duration = Duration::from_secs(30);

/// A peer must say hello within this.
pub(crate) const GREETING_MAX: Duration = Duration::from_secs(10);

/// Why a connection ended.
pub type End = &'static str;

/// A connection.
pub struct Connection {
    pub(crate) switch: Arc<Switch>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) session: Session,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) waiting: Waiting,
    /// Taken out of the mailbox, and not passed on yet.
    news: VecDeque<News>,
    stream: Stream,
    peer: Peer,
    /// Who snoops on the controller.
    wire: Option<Arc<Wire>>,
    /// How many packets the controller gets.
    pub(crate) limits: Option<Limits>,
    /// Bytes of the session's output that have been sent.
    sent: usize,
    last_progress: Instant,
    last_heard: Instant,
    /// A peer that has said nothing for this long is asked for an echo; after as long again the connection ends.
    inactivity_probe: Duration,
    is_probed: bool,
    was_ready: bool,
    /// Whether it wants packets that no rule matches, as the hub knows it.
    wants_misses: bool,
    began: Instant,
}

impl Connection {
    /// Serves who connects to the switch, until the connection ends; why it did.
    pub fn serve_client(stream: Stream, hub: &Arc<Hub>, switch: &Arc<Switch>) -> End {
        Connection::serve(stream, None, hub, switch).0
    }

    /// Serves a controller that the switch connects to; why the connection ended, and whether versions had been settled.
    pub fn serve_controller(
        stream: Stream,
        controller: &Controller,
        hub: &Arc<Hub>,
        switch: &Arc<Switch>,
    ) -> (End, bool) {
        let served = Connection::serve(stream, Some(controller), hub, switch);
        controller.wire.set_role(None);
        served
    }

    fn serve(stream: Stream, controller: Option<&Controller>, hub: &Arc<Hub>, switch: &Arc<Switch>) -> (End, bool) {
        let peer = if controller.is_some() { Peer::Controller } else { Peer::Client };
        let limit = controller.and_then(|controller| controller.settings.rate_limit);
        let Some(mailbox) = hub.join() else { return ("too many connections", false) };
        let now = Instant::now();
        let mut connection = Connection {
            switch: Arc::clone(switch),
            hub: Arc::clone(hub),
            session: Session::new(peer),
            mailbox: Arc::clone(&mailbox),
            waiting: Waiting::default(),
            news: VecDeque::new(),
            stream,
            peer,
            wire: controller.map(|controller| Arc::clone(&controller.wire)),
            limits: limit.map(|limit| Limits::new(limit, switch.now_ms())),
            inactivity_probe: controller.map_or(INACTIVITY_PROBE, |controller| controller.settings.inactivity_probe),
            sent: 0,
            last_progress: now,
            last_heard: now,
            is_probed: false,
            was_ready: false,
            wants_misses: false,
            began: now,
        };
        let why = connection.run();
        connection.want_misses(false);
        connection.end_monitors();
        hub.leave(&mailbox);
        let was_ready = connection.was_ready;
        if let Some(fail_open) = hub.fail_open.as_ref().filter(|_| was_ready && peer == Peer::Controller) {
            fail_open.controller_disconnected();
        }
        match (connection.stream.trouble(), peer) {
            (Some(trouble), Peer::Controller) => tracing::warn!("bridge {}: TLS: {trouble}", hub.bridge),
            (Some(trouble), Peer::Client) => tracing::debug!("bridge {}: TLS: {trouble}", hub.bridge),
            (None, _) => {}
        }
        let lost = mailbox.lost() + connection.limits.as_ref().map_or(0, Limits::lost);
        if lost != 0 {
            tracing::warn!(
                "bridge {}: a controller was too slow, or over its limit, and lost {lost} messages",
                hub.bridge
            );
        }
        (why, was_ready)
    }

    fn run(&mut self) -> End {
        let mut buffer = vec![0; READ_SIZE];
        loop {
            if self.hub.is_ending() {
                return "the bridge has ended";
            }
            if let Err(why) = self.work().and_then(|()| self.write()) {
                return why;
            }
            self.tell_snoopers();
            if self.session.is_closed() && self.unsent() == 0 && !self.stream.wants_write() {
                return "its messages were wrong";
            }
            if let Err(why) = self.wait(true).and_then(|()| self.check_time()) {
                return why;
            }
            match self.read(&mut buffer) {
                Ok(()) => {}
                Err(why) => return why,
            }
        }
    }

    /// Passes on news and carries out what has been asked for.
    fn work(&mut self) -> Result<(), End> {
        self.tell_snoopers();
        loop {
            self.pass_on_news();
            self.send_delayed();
            if self.news.is_empty() && self.unsent() == 0 {
                self.resume_monitors()?;
            }
            self.want_misses(self.session.wants(AsyncKind::PacketIn, PacketInReason::ImplicitMiss as u32));
            if self.unsent() > OUTPUT_MAX {
                self.do_flow_mods();
                return Ok(());
            }
            let event = match self.session.next_event() {
                Some(Event::Request(request, Message::FlowMod(m))) => {
                    self.take_flow_mod(request, m);
                    continue;
                }
                event => event,
            };
            self.do_flow_mods();
            // News of these changes come before the answer to a barrier.
            self.pass_on_news();
            let Some(event) = event else { return Ok(()) };
            match event {
                Event::Ready(version) => self.ready(version),
                Event::Refused(error) => tracing::debug!("bridge {}: a request was refused: {error}", self.hub.bridge),
                Event::Request(request, message) => self.request(&request, message)?,
                Event::Role(request, wish) => self.role(&request, wish),
                Event::Commit(request, commit) => self.commit(&request, &commit)?,
            }
        }
    }

    /// Lets packets that no rule matches come here, or no more.
    fn want_misses(&mut self, wants: bool) {
        if wants == self.wants_misses {
            return;
        }
        self.wants_misses = wants;
        if let Some(send) = self.hub.want_misses(wants) {
            // Without a bridge there are no packets.
            let _ = self.switch.ofproto.send_misses_to_controllers(&self.hub.bridge, send);
            self.switch.hurry();
        }
    }

    fn ready(&mut self, version: Version) {
        tracing::debug!("bridge {}: a peer speaks {version}", self.hub.bridge);
        self.was_ready = true;
        if self.peer == Peer::Controller {
            tracing::info!("bridge {}: connected to a controller, {version}", self.hub.bridge);
            if let Some(fail_open) = &self.hub.fail_open {
                fail_open.controller_connected(&self.switch, &self.hub.bridge);
            }
        }
    }

    /// Reads what has come, unless too much waits to be sent.
    fn read(&mut self, buffer: &mut [u8]) -> Result<(), End> {
        if self.unsent() > OUTPUT_MAX || self.session.is_closed() {
            return Ok(());
        }
        let room = self.session.room().min(buffer.len());
        match self.stream.read(&mut buffer[..room]) {
            Ok(None) => Ok(()),
            Ok(Some(0)) => Err("the peer has gone"),
            Ok(Some(n)) => {
                self.session.push(&buffer[..n]);
                (self.last_heard, self.is_probed) = (Instant::now(), false);
                Ok(())
            }
            Err(_) => Err("the connection broke"),
        }
    }

    /// Passes on what has been said to who snoops, and what role the controller has.
    fn tell_snoopers(&mut self) {
        let Some(wire) = &self.wire else { return };
        wire.set_role(self.session.version().map(|_| self.session.role()));
        self.session.copy(wire.is_tapped());
        let copies = self.session.take_copies();
        if !copies.is_empty() {
            wire.pass_on(&copies);
        }
    }

    fn unsent(&mut self) -> usize {
        self.session.output().len() - self.sent
    }

    fn write(&mut self) -> Result<(), End> {
        if self.stream.flush().is_err() {
            return Err("the connection broke");
        }
        while self.unsent() != 0 {
            match self.stream.write(&self.session.output()[self.sent..]) {
                Ok(None) => break,
                Ok(Some(n)) => {
                    self.sent += n;
                    self.last_progress = Instant::now();
                }
                Err(_) => return Err("the connection broke"),
            }
        }
        // Not after every write: what is left would be moved each time.
        if self.sent == self.session.output().len() || self.sent > OUTPUT_MAX {
            let sent = std::mem::take(&mut self.sent);
            self.session.output().drain(..sent);
        }
        Ok(())
    }

    /// Writes until little enough waits; for answers of many messages.
    pub(crate) fn relieve(&mut self) -> Result<(), End> {
        self.tell_snoopers();
        while self.unsent() > OUTPUT_MAX {
            if self.hub.is_ending() {
                return Err("the bridge has ended");
            }
            self.write()?;
            if self.unsent() > OUTPUT_MAX {
                self.wait(false)?;
                self.check_time()?;
            }
        }
        Ok(())
    }

    /// Waits for something to happen, a second at most.
    fn wait(&mut self, for_news: bool) -> Result<(), End> {
        let unsent = self.unsent();
        let mut wanted = PollFlags::empty();
        if unsent != 0 || self.stream.wants_write() {
            wanted |= PollFlags::OUT;
        }
        if for_news && unsent <= OUTPUT_MAX && !self.session.is_closed() {
            wanted |= PollFlags::IN;
        }
        let mailbox = if for_news && self.news.is_empty() { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = [
            PollFd::new(&self.stream, wanted),
            PollFd::from_borrowed_fd(self.hub.end_fd(), PollFlags::IN),
            PollFd::new(&*self.mailbox, mailbox),
        ];
        let can_read = wanted.contains(PollFlags::IN) && self.stream.has_waiting();
        let packets = self.limits.as_ref().and_then(Limits::wait_ms).unwrap_or(u64::MAX);
        let at_most = Duration::from_millis(if can_read { 0 } else { packets.min(1000) });
        let at_most = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
        match poll(&mut fds, Some(&at_most)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(_) => Err("it could not be waited for"),
        }
    }

    /// Ends connections whose peers are silent or stuck.
    fn check_time(&mut self) -> Result<(), End> {
        let now = Instant::now();
        if self.unsent() == 0 {
            self.last_progress = now;
        } else if now - self.last_progress > STUCK_MAX {
            return Err("the peer does not read its answers");
        }
        if self.session.version().is_none() {
            return if now - self.began > GREETING_MAX { Err("no hello has come") } else { Ok(()) };
        }
        if now - self.last_heard > 2 * self.inactivity_probe {
            return Err("the peer does not answer");
        }
        if now - self.last_heard > self.inactivity_probe && !self.is_probed {
            self.is_probed = true;
            self.session.send(&Message::EchoRequest(Vec::new()));
        }
        Ok(())
    }

    /// Passes on what waits in the mailbox; news of flows only while there is room for them.
    fn pass_on_news(&mut self) {
        if self.news.is_empty() {
            self.news = self.mailbox.take();
        }
        while let Some(news) = self.news.pop_front() {
            let unsent = self.unsent();
            match news {
                News::Updates(_) if unsent > OUTPUT_MAX => return self.news.push_front(news),
                News::Updates(_) | News::Demoted(_) => self.pass_on(news),
                _ if unsent > OUTPUT_MAX_WITH_NEWS => {}
                _ => self.pass_on(news),
            }
        }
    }

    /// Passes on one piece of news.
    pub(crate) fn pass_on(&mut self, news: News) {
        match news {
            News::Packet(packet) => self.packet_in(&packet),
            News::Removed(removed) => self.flow_removed(&removed),
            News::Updates(updates) => self.tell_updates(updates),
            News::Vacancy(event) => self.table_status(&event),
            News::Port(reason, desc) => {
                if self.session.wants(AsyncKind::PortStatus, reason as u32) {
                    let status = PortStatus { reason, desc: (*desc).clone() };
                    self.session.send(&Message::PortStatus(Box::new(status)));
                }
            }
            News::Forwarded(change) => self.request_forward(&change),
            News::Demoted(generation) => {
                self.session.set_role(Role::Secondary);
                let reason = RoleReason::PrimaryRequest;
                if self.session.wants(AsyncKind::RoleStatus, reason as u32) {
                    let status = RoleStatus { role: Role::Secondary, reason, generation };
                    self.session.send(&Message::RoleStatus(status));
                }
            }
        }
    }
}
