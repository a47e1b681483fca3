use super::*;
use crate::strerror;
use tracing::subscriber::with_default;

/// A log whose file is in a directory of its own; nothing goes elsewhere.
struct Fixture {
    log: Log,
    dir: tempfile::TempDir,
}

impl Fixture {
    /// While there is one subscriber only, `tracing` asks that of the thread which changes levels whether anybody wants a
    /// message. In a daemon all threads have the same; here a test that has none would turn off the messages of others.
    fn new() -> Self {
        static ALL_THREADS: std::sync::Once = std::sync::Once::new();
        ALL_THREADS.call_once(|| tracing::subscriber::set_global_default(tracing_subscriber::registry()).unwrap());
        let options = LogOptions { syslog_method: Some(SyslogMethod::Null), ..LogOptions::default() };
        let log = Log::with_options("ovs-vswitchd", &options, Level::Warn).unwrap();
        log.leave_console();
        let dir = tempfile::tempdir().unwrap();
        log.open_file(&dir.path().join("log")).unwrap();
        log.set("PATTERN:file:%c|%p|%m").unwrap();
        Fixture { log, dir }
    }

    /// The lines of the log file behind the one that tells of its opening.
    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join("log")).unwrap();
        text.lines().skip(1).map(str::to_owned).collect()
    }

    /// Runs `messages` with this log as that of the thread.
    fn record(&self, messages: impl FnOnce()) {
        with_default(tracing_subscriber::registry().with(LogLayer(self.log.clone())), messages);
    }

    /// The line of a module in `vlog/list`.
    fn listed(&self, module: &str) -> String {
        let list = self.log.list();
        let line = list.lines().find(|line| line.split_whitespace().next() == Some(module));
        line.unwrap_or_else(|| panic!("{module}: {list}")).to_owned()
    }
}

#[test]
fn messages_go_to_the_file_with_their_module_and_level() {
    let fixture = Fixture::new();
    let path = fixture.dir.path().join("log");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("Z|00001|vlog"), "{text}");
    assert!(text.ends_with(&format!("|INFO|opened log file {}\n", path.display())), "{text}");
    fixture.record(|| {
        tracing::info!(target: "bridge", "bridge br0: added interface {} on port {}", "p1", 1);
        tracing::warn!(target: "dpif", port = 7, "a\nb\n");
        tracing::debug!(target: "bridge", "hidden");
        tracing::error!("of the program");
    });
    fixture.log.emergency("vswitchd", "the end");
    assert_eq!(
        fixture.lines(),
        [
            "bridge|INFO|bridge br0: added interface p1 on port 1",
            "dpif|WARN|a",
            "b",
            " port=7",
            "sluice|ERR|of the program",
            "vswitchd|EMER|the end"
        ]
    );
}

#[test]
fn levels_change_by_module_and_destination() {
    let fixture = Fixture::new();
    assert_eq!(fixture.listed("vconn"), "vconn              OFF       INFO       INFO");
    fixture.log.set("vconn").unwrap();
    assert_eq!(fixture.listed("vconn"), "vconn              DBG        DBG        DBG");
    fixture.log.set("ANY:file:err").unwrap();
    assert_eq!(fixture.listed("vconn"), "vconn              DBG        DBG        ERR");
    assert_eq!(fixture.listed("bridge"), "bridge             OFF       INFO        ERR");
    let before = fixture.log.list();
    fixture.log.set("flow_cache:dbg").unwrap();
    assert_eq!(fixture.log.list(), before, "a crate that logs nothing has a name");
    assert!(fixture.log.set("nonsense:dbg").is_err());
    fixture.log.set("vconn:console:off").unwrap();
    fixture.log.set("vconn:syslog:off").unwrap();
    assert!(!fixture.log.takes("vconn", Level::Warn) && fixture.log.takes("vconn", Level::Err));
    fixture.log.close_file();
    assert!(!fixture.log.takes("vconn", Level::Emer), "a file that is closed takes nothing");
}

#[test]
fn console_lines_are_open_vswitchs_until_the_console_is_left() {
    let options = LogOptions { syslog_method: Some(SyslogMethod::Null), ..LogOptions::default() };
    let log = Log::with_options("ovs-vswitchd", &options, Level::Warn).unwrap();
    assert!(log.list().contains("\nbridge            INFO       INFO       INFO\n"), "{}", log.list());
    assert!(log.list().contains("\nswitch            WARN       INFO       INFO\n"), "{}", log.list());
    log.leave_console();
    assert!(log.list().contains("\nbridge             OFF       INFO       INFO\n"), "{}", log.list());
}

#[test]
fn options_are_those_of_the_command_line() {
    let verbose = ["vconn", "console:emer", "file:warn"].map(|spec| Some(spec.to_owned())).to_vec();
    let options = LogOptions { verbose, ..LogOptions::default() };
    let log = Log::with_options("ovs-vswitchd", &options, Level::Info).unwrap();
    assert!(log.list().contains("\nvconn             EMER        DBG       WARN\n"), "{}", log.list());
    let options = LogOptions { verbose: vec![None], ..LogOptions::default() };
    let log = Log::with_options("ovs-vswitchd", &options, Level::Info).unwrap();
    assert!(log.list().contains("\nswitch             DBG        DBG        DBG\n"), "{}", log.list());
    let options = LogOptions { verbose: vec![Some("x".into())], ..LogOptions::default() };
    let error = Log::with_options("ovs-vswitchd", &options, Level::Info).err().unwrap();
    assert_eq!(error, "processing \"x\": no destination, level, or module \"x\"");
}

/// As the system's log gets them: facility and severity, the number of the line, module, level.
#[test]
fn the_systems_log_gets_lines_with_their_severity() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dev-log");
    let system = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    system.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let options = LogOptions { syslog_method: Some(SyslogMethod::Unix(path)), ..LogOptions::default() };
    let log = Log::with_options("ovs-vswitchd", &options, Level::Off).unwrap();
    let mut line = [0; 200];
    // Behind the module stands the thread's name, unless it is the main one.
    let mut expect = |begin: &str, end: &str| {
        let size = system.recv(&mut line).unwrap();
        let line = String::from_utf8_lossy(&line[..size]);
        assert!(line.starts_with(begin) && line.ends_with(end), "{line}");
    };
    log.write("bridge", Level::Err, "br0 is gone");
    expect("<27>ovs|00001|bridge", "|ERR|br0 is gone");
    log.write("bridge", Level::Dbg, "nobody asked");
    log.write("bridge", Level::Info, "br0 is here");
    expect("<29>ovs|00002|bridge", "|INFO|br0 is here");
    // A system's log that has gone costs the line, nothing else.
    drop(system);
    log.write("bridge", Level::Err, "unheard");
}

#[test]
fn a_rotated_file_is_opened_again() {
    let fixture = Fixture::new();
    let (path, rotated) = (fixture.dir.path().join("log"), fixture.dir.path().join("log.1"));
    fixture.log.reopen_file().unwrap();
    assert_eq!(fixture.lines(), Vec::<String>::new(), "the same file goes on");
    std::fs::rename(&path, &rotated).unwrap();
    fixture.log.reopen_file().unwrap();
    let old = std::fs::read_to_string(&rotated).unwrap();
    assert!(old.ends_with("vlog|INFO|closing log file\n"), "{old}");
    let new = std::fs::read_to_string(&path).unwrap();
    assert_eq!(new, format!("vlog|INFO|opened log file {}\n", path.display()));
    fixture.log.close_file();
    fixture.log.emergency("vswitchd", "nobody sees this");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), new);
    fixture.log.reopen_file().unwrap();
    assert_eq!(fixture.lines(), [new.trim_end()]);
}

#[test]
fn a_file_that_cannot_be_opened_leaves_the_present_one() {
    let fixture = Fixture::new();
    let error = fixture.log.open_file("/nonexistent/log".as_ref()).unwrap_err();
    assert_eq!(error.to_string(), strerror(&io::Error::from_raw_os_error(2)));
    let warning = "vlog|WARN|failed to open /nonexistent/log for logging: No such file or directory";
    assert_eq!(fixture.lines(), [warning]);
    let nowhere = Log::to_console("sluice");
    assert_eq!(nowhere.reopen_file().unwrap_err().to_string(), "Logging to file not configured");
}

#[test]
fn patterns_are_listed_and_set() {
    let fixture = Fixture::new();
    fixture.log.set("PATTERN:console:%m").unwrap();
    assert_eq!(
        fixture.log.list_pattern(),
        "         prefix                            format\n\
         \x20        ------                            ------\n\
         SYSLOG                                     ovs|%05N|%c%T|%p|%m\n\
         CONSOLE  none                              %m\n\
         FILE     none                              %c|%p|%m\n"
    );
    fixture.log.set("PATTERN:ANY:").unwrap();
    assert!(fixture.log.list_pattern().ends_with("\nFILE     none                              \n"));
}

#[test]
fn a_message_that_repeats_is_limited_unless_its_module_is_not() {
    let fixture = Fixture::new();
    let log_thrice = || (0..3).for_each(|_| tracing::warn!(target: "dpif", rate_limit = 2, "again"));
    fixture.record(log_thrice);
    assert_eq!(fixture.lines(), ["dpif|WARN|again"; 2]);
    fixture.log.honour_rate_limits(&["vconn", "dpif"], false).unwrap();
    assert!(fixture.listed("dpif").ends_with("INFO    (rate limiting disabled)"));
    fixture.record(log_thrice);
    assert_eq!(fixture.lines().len(), 5);
    fixture.log.honour_rate_limits(&[], true).unwrap();
    fixture.record(log_thrice);
    assert_eq!(fixture.lines().len(), 5);
    assert_eq!(fixture.log.honour_rate_limits(&["any", "nonsense"], false), Err("unknown module".into()));
    assert!(fixture.listed("vconn").ends_with("(rate limiting disabled)"));
}

#[test]
fn threads_that_do_the_main_threads_work_have_no_name() {
    assert_eq!(thread_label(Some("ctl-conn")), "");
    assert_eq!(thread_label(None), "");
    assert_eq!(thread_label(Some("revalidator1")), "revalidator1");
}
