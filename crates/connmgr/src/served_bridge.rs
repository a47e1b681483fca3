//! A bridge that is served: its sockets and controllers, each with its threads. New settings start and end those that
//! differ, and leave the connections of the others alone.

use crate::conn_mgr::ConnMgr;
use crate::connection::Connection;
use crate::controllers::{self, Controller};
use crate::end_signal::EndSignal;
use crate::error::Error;
use crate::fail_open::{self, FailOpen};
use crate::listener::{Listener, Serve};
use crate::serve_context::ServeContext;
use crate::settings::{BridgeSettings, ControllerKind, ControllerSettings};
use crate::switch::Switch;
use crate::target::PassiveTarget;
use crate::{snoop, unix_socket, unix_socket::SocketMode};
use sluice_clock::real_ms;
use sluice_ofp::{
    BUCKET_ALL, FlowCommand, FlowMod, GROUP_ALL, GroupCommand, GroupConfig, GroupMod, METER_ALL, MeterCommand,
    MeterConfig, MeterMod,
};
use sluice_ofproto::FailMode;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the end of a service is waited for, milliseconds.
const END_WITHIN_MS: u64 = 500;

/// A bridge that is served.
pub struct ServedBridge {
    context: ServeContext,
    settings: BridgeSettings,
    /// Where its Unix sockets are.
    directory: PathBuf,
    socket_mode: SocketMode,
    services: Vec<Service>,
}

/// What makes connections.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ServiceKind {
    /// The Unix socket for clients.
    Management,
    /// The Unix socket for snoopers.
    Snooping,
    Listener(PassiveTarget),
    Controller(Box<ControllerSettings>),
}

/// A listener or a controller, with its thread.
struct Service {
    kind: ServiceKind,
    end: Arc<EndSignal>,
    thread: JoinHandle<()>,
    controller: Option<Arc<Controller>>,
    /// The Unix socket it has made.
    socket: Option<PathBuf>,
}

impl ServedBridge {
    /// A bridge without services.
    ///
    /// # Errors
    /// If the system is out of descriptors.
    pub fn new(
        conn_mgr: &Arc<ConnMgr>,
        switch: &Arc<Switch>,
        directory: &Path,
        socket_mode: SocketMode,
    ) -> io::Result<Self> {
        let context = ServeContext {
            conn_mgr: Arc::clone(conn_mgr),
            switch: Arc::clone(switch),
            end: Arc::new(EndSignal::new()?),
            versions: 0,
            is_management: false,
        };
        let settings = BridgeSettings::default();
        Ok(ServedBridge { context, settings, directory: directory.to_owned(), socket_mode, services: Vec::new() })
    }

    /// Serves the bridge as new settings say.
    ///
    /// # Errors
    /// With the first service that cannot be; the others are there.
    pub fn set(&mut self, settings: &BridgeSettings) -> Result<(), Error> {
        let is_new = self.services.is_empty();
        if self.context.versions != settings.versions {
            self.context.versions = settings.versions;
            self.end_all();
        }
        let wanted = wanted(settings);
        let (stay, go) = std::mem::take(&mut self.services).into_iter().partition(|s| wanted.contains(&s.kind));
        self.services = stay;
        go.into_iter().for_each(|service| self.end(service));
        self.take_over(settings, is_new);
        let mut first_error = Ok(());
        for kind in wanted {
            if self.services.iter().any(|service| service.kind == kind) {
                continue;
            }
            match self.start(&kind) {
                Ok(service) => self.services.push(service),
                Err(error) => first_error = first_error.and(Err(error)),
            }
        }
        first_error
    }

    /// Ends the connections to controllers and makes them anew.
    ///
    /// # Errors
    /// As [`ServedBridge::set`].
    pub fn reconnect(&mut self) -> Result<(), Error> {
        let is_controller = |service: &Service| service.controller.is_some();
        let (go, stay) = std::mem::take(&mut self.services).into_iter().partition(is_controller);
        self.services = stay;
        go.into_iter().for_each(|service| self.end(service));
        let settings = self.settings.clone();
        self.set(&settings)
    }

    /// The bridge loses its rules, groups and meters when it gets its first primary controller or loses its last one,
    /// or when it has none and its fail mode changes. Source: Open vSwitch, `connmgr_set_controllers`.
    fn take_over(&mut self, settings: &BridgeSettings, is_new: bool) {
        let ServeContext { conn_mgr, switch, .. } = &self.context;
        let (had, has) = (self.settings.has_primary(), settings.has_primary());
        let changes_mode = self.settings.fail_mode != settings.fail_mode && !has;
        let bridge = &conn_mgr.bridge;
        let standalone = settings.fail_mode == FailMode::Standalone;
        if is_new {
            // A standalone bridge begins with a rule that forwards. That is the controller's to decide.
            if has && standalone {
                fail_open::change_normal_rule(switch, bridge, FlowCommand::DeleteStrict);
            }
        } else if had != has || changes_mode {
            flush(switch, bridge);
            if standalone && !has {
                fail_open::change_normal_rule(switch, bridge, FlowCommand::Add);
            }
        }
        let is_same = has && standalone && (had, self.settings.fail_mode) == (true, FailMode::Standalone);
        if !is_same || is_new {
            let fail_open = (has && standalone).then(|| Arc::new(FailOpen::new(settings)));
            let old = std::mem::replace(&mut *conn_mgr.fail_open.lock(), fail_open);
            if let Some(old) = old {
                old.end(switch, bridge);
            }
        }
        conn_mgr.description.lock().clone_from(&settings.description);
        let mut in_band = conn_mgr.in_band.lock();
        in_band.set(&settings.in_band);
        in_band.run(switch, bridge);
        drop(in_band);
        self.settings = settings.clone();
    }

    fn start(&self, kind: &ServiceKind) -> Result<Service, Error> {
        let bridge = self.context.bridge().to_owned();
        let system = |source| Error::System { bridge: bridge.clone(), source };
        let mut context = self.context.for_another().map_err(system)?;
        context.is_management = *kind == ServiceKind::Management;
        let end = Arc::clone(&context.end);
        let (mut socket, mut controller) = (None, None);
        let thread = match kind {
            ServiceKind::Management | ServiceKind::Snooping => {
                let path = self.socket_path(kind);
                let listener = Listener::Unix(self.listen(&path)?);
                socket = Some(path);
                let serve: Serve =
                    if *kind == ServiceKind::Management { Connection::serve_client } else { snoop::serve };
                listener.start(context, serve)
            }
            ServiceKind::Listener(target) => {
                let failed = |source| Error::Listen { bridge: bridge.clone(), target: target.clone(), source };
                let listener = match target {
                    PassiveTarget::Tcp(address) => Listener::Tcp(TcpListener::bind(address).map_err(failed)?),
                    PassiveTarget::Tls(address) => Listener::Tls(TcpListener::bind(address).map_err(failed)?),
                    PassiveTarget::Unix(path) => {
                        socket = Some(path.clone());
                        Listener::Unix(self.listen(path)?)
                    }
                };
                listener.start(context, Connection::serve_client)
            }
            ServiceKind::Controller(settings) => {
                let new = Arc::new(Controller::new((**settings).clone()));
                self.context.conn_mgr.add_controller(&new);
                controller = Some(Arc::clone(&new));
                controllers::start(new, context)
            }
        };
        if let Some(name) = self.controller_name(kind) {
            tracing::info!(target: "connmgr", "{bridge}: added {name}");
        }
        Ok(Service { kind: kind.clone(), end, thread: thread.map_err(system)?, controller, socket })
    }

    fn listen(&self, path: &Path) -> Result<UnixListener, Error> {
        Ok(unix_socket::listen(path, "OpenFlow socket", self.socket_mode)?)
    }

    fn end(&self, service: Service) {
        if let Some(path) = &service.socket {
            let _ = std::fs::remove_file(path);
        }
        if let Some(controller) = &service.controller {
            self.context.conn_mgr.remove_controller(controller);
        }
        service.end.give();
        self.wait_for(&service);
        if let Some(name) = self.controller_name(&service.kind) {
            tracing::info!(target: "connmgr", "{}: removed {name}", self.context.bridge());
        }
    }

    /// Waits for a service's thread to end. One that connects to a controller or resolves its name may take long: then it
    /// ends later, by itself.
    fn wait_for(&self, service: &Service) {
        let until_ms = real_ms() + END_WITHIN_MS;
        while !service.thread.is_finished() {
            if real_ms() >= until_ms {
                let (bridge, name) = (self.context.bridge(), self.controller_name(&service.kind).unwrap_or_default());
                tracing::info!("bridge {bridge}: waited {END_WITHIN_MS} ms for the thread of {name}; it ends later");
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends all connections and removes the sockets.
    pub fn end_all(&mut self) {
        let services = std::mem::take(&mut self.services);
        // All of them first: the wait for each is then one for all.
        services.iter().for_each(|service| service.end.give());
        services.into_iter().for_each(|service| self.end(service));
    }

    fn socket_path(&self, kind: &ServiceKind) -> PathBuf {
        let [management, snooping] = openflow_sockets(&self.directory, self.context.bridge());
        if *kind == ServiceKind::Snooping { snooping } else { management }
    }

    /// What the log calls it: snoopers are no controllers.
    fn controller_name(&self, kind: &ServiceKind) -> Option<String> {
        let (of, target): (ControllerKind, &dyn fmt::Display) = match kind {
            ServiceKind::Snooping => return None,
            ServiceKind::Management => {
                return Some(format!("service controller \"punix:{}\"", self.socket_path(kind).display()));
            }
            ServiceKind::Listener(target) => (ControllerKind::Service, target),
            ServiceKind::Controller(settings) => (settings.kind, &settings.target),
        };
        Some(format!("{of} controller \"{target}\""))
    }
}

/// The Unix sockets of a bridge in the run directory: for clients, and for snoopers.
pub fn openflow_sockets(directory: &Path, bridge: &str) -> [PathBuf; 2] {
    ["mgmt", "snoop"].map(|extension| directory.join(format!("{bridge}.{extension}")))
}

/// The services of a bridge with these settings.
fn wanted(settings: &BridgeSettings) -> Vec<ServiceKind> {
    let listeners = settings.listeners.iter().map(|target| ServiceKind::Listener(target.clone()));
    let controllers = settings.controllers.iter().map(|c| ServiceKind::Controller(Box::new(c.clone())));
    [ServiceKind::Management, ServiceKind::Snooping].into_iter().chain(listeners).chain(controllers).collect()
}

/// Deletes a bridge's rules, groups and meters.
fn flush(switch: &Switch, bridge: &str) {
    let now_ms = switch.now_ms();
    let rules = switch.ofproto.flow_mod(bridge, &FlowMod::new(FlowCommand::Delete), now_ms).map(drop);
    let groups = GroupMod {
        command: GroupCommand::Delete,
        group: GROUP_ALL,
        command_bucket: BUCKET_ALL,
        config: GroupConfig::default(),
    };
    let groups = switch.ofproto.group_mod(bridge, &groups, now_ms).map(drop);
    let meters = MeterMod { command: MeterCommand::Delete, meter: METER_ALL, config: MeterConfig::default() };
    let meters = switch.ofproto.meter_mod(bridge, &meters, now_ms).map(drop);
    for error in [rules, groups, meters].into_iter().filter_map(Result::err) {
        tracing::info!("bridge {bridge}: {error}");
    }
    switch.revalidate_soon();
}
