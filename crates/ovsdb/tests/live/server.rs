//! A database server in a private directory, and clients of it.

use serde_json::{Value, json};
use sluice_ovsdb::{
    AtomicType, Changes, Client, Column, Commit, Config, Event, Remote, Replica, Table, Txn, TxnStatus, Uuid,
};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// No case takes seconds on an idle machine; a busy one has time.
const PATIENCE: Duration = Duration::from_secs(60);

pub const DATABASE: &str = "Lab";

/// The schema of the cases: an index, a scalar, an optional, a set, a map and references.
pub fn schema() -> Value {
    let many = |key: Value| json!({"type": {"key": key, "min": 0, "max": "unlimited"}});
    json!({"name": DATABASE, "version": "1.0.0", "tables": {
        "Root": {"isRoot": true, "maxRows": 1, "columns": {
            "next_cfg": {"type": "integer"},
            "cur_cfg": {"type": "integer"},
            "rows": many(json!({"type": "uuid", "refTable": "Row"})),
        }},
        "Row": {"isRoot": true, "indexes": [["name"]], "columns": {
            "name": {"type": "string"},
            "flag": {"type": "boolean"},
            "number": {"type": {"key": {"type": "integer", "maxInteger": 1000}, "min": 0}},
            "numbers": many(json!("integer")),
            "options": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
        }},
    }})
}

/// What clients declare of it.
pub fn tables() -> Vec<Table> {
    let root = [
        Column::scalar("next_cfg", AtomicType::Integer),
        Column::scalar("cur_cfg", AtomicType::Integer).omit_alert(),
        Column::set("rows", AtomicType::Uuid),
    ];
    let row = [
        Column::scalar("name", AtomicType::String),
        Column::scalar("flag", AtomicType::Boolean),
        Column::optional("number", AtomicType::Integer),
        Column::set("numbers", AtomicType::Integer),
        Column::string_map("options"),
    ];
    vec![Table::new("Root", root), Table::new("Row", row)]
}

pub struct Server {
    dir: TempDir,
    socket: PathBuf,
    options: Vec<String>,
    child: Child,
}

impl Server {
    /// A server of an empty database with the cases' schema.
    pub fn start() -> Server {
        Server::with_schema(&schema())
    }

    pub fn with_schema(schema: &Value) -> Server {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), schema);
        let socket = dir.path().join("db.sock");
        Server::launch(dir, socket, vec![])
    }

    /// A server with other options, in a directory where [`create`] has made a database.
    pub fn launch(dir: TempDir, socket: PathBuf, options: Vec<String>) -> Server {
        let child = spawn(dir.path(), &socket, &options);
        let server = Server { dir, socket, options, child };
        server.await_socket();
        server
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn remote(&self) -> String {
        format!("unix:{}", self.socket.display())
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let _ = std::fs::remove_file(&self.socket);
    }

    pub fn restart(&mut self) {
        self.child = spawn(self.dir.path(), &self.socket, &self.options);
        self.await_socket();
    }

    /// Sends a signal by its name.
    pub fn signal(&self, signal: &str) {
        run("kill", &[&format!("-{signal}"), &self.child.id().to_string()]);
    }

    /// What the server wrote to standard error.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    /// Writes a schema's file; its path.
    pub fn schema_file(&self, schema: &Value) -> String {
        let path = self.path("new.ovsschema");
        std::fs::write(&path, schema.to_string()).unwrap();
        path.display().to_string()
    }

    /// Converts the database, as an upgrade of Open vSwitch does.
    pub fn convert(&self, schema: &Value) {
        run("ovsdb-client", &["convert", &self.remote(), &self.schema_file(schema)]);
    }

    pub fn appctl(&self, command: &[&str]) -> String {
        let control = self.path("ctl").display().to_string();
        run("ovs-appctl", &[&["-t", &control], command].concat())
    }

    pub fn config(&self) -> Config {
        Config::new(DATABASE, tables(), Remote::parse_list(&self.remote()).unwrap())
    }

    /// A client that has the contents.
    pub fn client(&self) -> Tester {
        let mut tester = Tester::new(self.config());
        tester.until("the contents", |client| client.session().is_synced());
        tester.client.session_mut().take_changes();
        tester
    }

    fn await_socket(&self) {
        let start = Instant::now();
        while !self.socket.exists() {
            assert!(start.elapsed() < PATIENCE, "no server: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes an empty database.
pub fn create(dir: &Path, schema: &Value) {
    let [database, file] = ["conf.db", "lab.ovsschema"].map(|name| dir.join(name).display().to_string());
    std::fs::write(&file, schema.to_string()).unwrap();
    run("ovsdb-tool", &["create", &database, &file]);
}

fn spawn(dir: &Path, socket: &Path, options: &[String]) -> Child {
    let log = std::fs::File::create(dir.join("log")).unwrap();
    let mut command = Command::new("ovsdb-server");
    command.args(options).arg("--no-chdir").arg("--unixctl").arg(dir.join("ctl"));
    command.arg(format!("--remote=punix:{}", socket.display())).arg(dir.join("conf.db"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

/// Runs a program that must succeed; what it wrote.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A client, its clock, and what it told.
pub struct Tester {
    pub client: Client,
    start: Instant,
    pub events: Vec<Event>,
}

impl Tester {
    pub fn new(config: Config) -> Tester {
        Tester::with_tls(config, None)
    }

    pub fn with_tls(config: Config, tls: Option<std::sync::Arc<rustls::ClientConfig>>) -> Tester {
        Tester { client: Client::new(config, tls).unwrap(), start: Instant::now(), events: Vec::new() }
    }

    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap()
    }

    /// Runs the client once, without waiting.
    pub fn step(&mut self) {
        self.client.run(self.now_ms());
        self.events.extend(std::iter::from_fn(|| self.client.session_mut().next_event()));
    }

    /// Runs the client until something holds.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Client) -> bool) {
        let end = Instant::now() + PATIENCE;
        self.step();
        while !holds(&mut self.client) {
            assert!(Instant::now() < end, "waiting for {what}: {:?}", self.events);
            self.client.wait(self.now_ms(), 100).unwrap();
            self.step();
        }
    }

    /// Runs the client until it tells something; everything before that is forgotten.
    pub fn until_event(&mut self, what: &str, is_it: impl Fn(&Event) -> bool) -> Event {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.events.iter().position(&is_it) {
                return self.events.drain(..=at).next_back().unwrap();
            }
            assert!(Instant::now() < end, "waiting for {what}: {:?}", self.events);
            self.client.wait(self.now_ms(), 100).unwrap();
            self.step();
        }
    }

    /// Commits a transaction; what it came to.
    pub fn commit(&mut self, build: impl FnOnce(&mut Txn)) -> TxnStatus {
        let mut txn = Txn::new();
        build(&mut txn);
        match self.client.session_mut().commit(&txn).unwrap() {
            Commit::Finished(status) => status,
            Commit::Incomplete(id) => {
                self.step();
                let end = self.until_event("the end", |event| matches!(event, Event::Finished(of, _) if *of == id));
                let Event::Finished(_, status) = end else { unreachable!() };
                status
            }
        }
    }

    /// Commits a transaction that must be sent and taken.
    pub fn committed(&mut self, build: impl FnOnce(&mut Txn)) {
        let status = self.commit(build);
        assert!(matches!(status, TxnStatus::Success { .. }), "{status:?}");
    }

    /// Inserts a row; its UUID.
    pub fn insert(&mut self, name: &str) -> Uuid {
        let status = self.commit(|txn| {
            let row = txn.insert("Row");
            txn.set("Row", row, "name", name);
        });
        match status {
            TxnStatus::Success { inserted } => inserted[0].1,
            other => panic!("{other:?}"),
        }
    }

    pub fn replica(&self) -> &Replica {
        self.client.session().replica()
    }

    pub fn changes(&mut self) -> Changes {
        self.client.session_mut().take_changes()
    }

    /// The names of the rows.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.replica().rows("Row").map(|row| row.get::<&str>("name").to_owned()).collect();
        names.sort();
        names
    }
}
