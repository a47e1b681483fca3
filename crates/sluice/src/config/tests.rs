use super::*;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("s.toml"), text)
}

fn error_of(text: &str) -> String {
    let error = parse(text).expect_err(text).to_string();
    assert!(!error.contains('\n'), "more than a line: {error}");
    error
}

/// The reference with what this build lacks taken out.
fn supported_reference() -> String {
    let dpdk = REFERENCE.find("# Only with DPDK ports").unwrap()..REFERENCE.find("[datapath]").unwrap();
    let mut text = REFERENCE.to_owned();
    text.replace_range(dpdk, "");
    text
}

#[test]
fn the_reference_is_the_defaults() {
    let config = parse(&supported_reference()).unwrap();
    let bare = parse("[[bridge]]\nname = \"br0\"").unwrap();
    assert_eq!(config.datapath, bare.datapath);
    assert_eq!(config.switch.pmd_cores, bare.switch.pmd_cores);
    let (said, default) = (&config.bridge[0], &bare.bridge[0]);
    assert_eq!((said.fail_mode, said.mac_age, said.local), (default.fail_mode, default.mac_age, default.local));
    assert_eq!(said.prefixes, default.prefixes);
    let port = &config.bridge[0].port[0];
    assert_eq!((port.mtu, port.n_rxq), (sluice_vswitch::ETHERNET_MTU, 1));
    assert!(port.pmd_rxq_affinity.0.is_empty());
    let dpdk: Config = toml::from_str(REFERENCE).unwrap();
    assert_eq!(dpdk.switch.dpdk, Some(Dpdk::default()));
}

#[test]
fn the_reference_names_every_key_and_explains_it() {
    for (table, start) in [
        ("switch", "[switch]"),
        ("tls", "[switch.tls]"),
        ("dpdk", "[switch.dpdk]"),
        ("datapath", "[datapath]"),
        ("bridge", "[[bridge]]\nname = \"b\""),
        ("table", "[[bridge]]\nname = \"b\"\n[[bridge.table]]\nnumber = 1\nflow-limit = 2"),
        ("sflow", "[[bridge]]\nname = \"b\"\n[bridge.sflow]\ntargets = [\"a\"]"),
        ("mirror", "[[bridge]]\nname = \"b\"\n[[bridge.mirror]]\nname = \"m\""),
        ("port", "[[bridge]]\nname = \"b\"\n[[bridge.port]]\nname = \"p\"\nofport = 1\ntype = \"null\""),
    ] {
        // serde tells what it would have known.
        let error = toml::from_str::<Config>(&format!("{start}\nno-such-key = 1")).unwrap_err();
        let known: Vec<&str> = error.message().split('`').skip(3).step_by(2).collect();
        assert!(!known.is_empty(), "{}", error.message());
        for key in known
            .into_iter()
            .filter(|k| {
                !matches!(
                    (table, *k),
                    ("switch", "tls" | "dpdk") | ("bridge", "port" | "table" | "mirror" | "sflow" | "bond")
                )
            })
            // Explained with output-port, beside which it cannot stand.
            .filter(|k| *k != "output-vlan")
        {
            let written = REFERENCE.lines().position(|line| line.starts_with(&format!("{key} = ")));
            let line = written.unwrap_or_else(|| panic!("--help-config lacks {table}.{key}"));
            let above = REFERENCE.lines().nth(line - 1).unwrap();
            assert!(
                above.starts_with('#')
                    || key == "trunks"
                    || key == "smc"
                    || key == "distributor"
                    || above == "[[bridge]]",
                "{key} is not explained"
            );
        }
    }
}

const BRIDGE: &str = "[[bridge]]\nname = \"br0\"\n";
const PORT: &str = "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\nofport = 1\ntype = \"null\"\n";

/// A line of `[datapath]`, and what is wrong with it.
const DATAPATH_ERRORS: &[(&str, &str)] = &[
    ("emcc = \"on\"", "emcc: unknown field `emcc`, expected one of "),
    ("emc = \"yes\"", "emc: \"yes\" is not a level; expected \"auto\", \"on\" or \"off\""),
    ("emc = true", "emc: true is not a level; expected \"auto\", \"on\" or \"off\""),
    ("smc = \"yes\"", "smc: \"yes\" is not a level; expected \"auto\", \"on\" or \"off\""),
    ("distributor = \"own\"", "distributor: \"own\" is not a level; expected \"auto\", \"on\" or \"off\""),
    ("distributor-table = \"bloom\"", "distributor-table: \"bloom\"; expected \"auto\", \"own\", \"ht\" or \"vbf\""),
    ("vector = \"mmx\"", "vector: \"mmx\" is unknown; this CPU has \"scalar\""),
    ("emc-entries = 0", "emc-entries: \"0\"; expected a number from 1 to 268435456"),
    ("smc-entries = 0", "smc-entries: \"0\"; expected a number from 1 to 268435456"),
    ("emc-insert-inv-prob = -1", "emc-insert-inv-prob: invalid value"),
    ("emc-recirc-threshold = 101", "emc-recirc-threshold: \"101\"; expected a number from 0 to 100"),
    ("distributor-entries = 0", "distributor-entries: \"0\"; expected \"auto\" or a number from 1 to 268435456"),
    ("distributor-vector = \"mmx\"", "distributor-vector: "),
    ("subtable-pruning = \"auto\"", "subtable-pruning: \"auto\"; expected \"on\" or \"off\""),
    ("max-idle = \"10\"", "max-idle: \"10\" is not a duration; expected a number and us, ms, s, m or h"),
    ("flow-memory = \"lots\"", "flow-memory: \"lots\" is not a size"),
    ("governor = \"x\"", "governor: \"x\" is unknown; expected \"auto\", \"off\", \"classic\""),
    ("pmd-rxq-assign = \"x\"", "pmd-rxq-assign: \"x\" is unknown; expected \"cycles\", \"roundrobin\" or \"group\""),
    ("pmd-sleep-max = \"1s\"", "pmd-sleep-max: 1s; expected at most \"10ms\""),
    ("vlan-limit = 3", "vlan-limit: 3; expected 0, 1 or 2 tags"),
];

/// A line of `[switch]`, likewise.
const SWITCH_ERRORS: &[(&str, &str)] = &[
    ("pmd-cores = [1, 1]", "pmd-cores: a core is listed twice"),
    ("pmd-cores = \"1\"", "pmd-cores: invalid type: string \"1\", expected a list in brackets, as in [\"1\"]"),
    ("pmd-cores = 1", "pmd-cores: invalid type: integer `1`, expected a list in brackets, as in [1]"),
    ("user = 7", "user: invalid type: integer `7`, expected a text in quotes, as in \"7\""),
    (
        "metrics = \"9155\"",
        "metrics: \"9155\" is not ADDRESS:PORT; expected an IP address and a port in quotes, as in \"127.0.0.1:9155\"",
    ),
    (
        "metrics = 9155",
        "metrics: 9155 is not ADDRESS:PORT; expected an IP address and a port in quotes, as in \"127.0.0.1:9155\"",
    ),
    ("metrics = [9155]", "metrics: invalid type: sequence, expected an IP address and a port in quotes, as in \"127."),
    ("stop-after = 10", "stop-after: 10 is not a duration; expected a number and us, ms, s, m or h in quotes, as in "),
    ("rule-memory = 64", "rule-memory: 64 is not a size; expected a number and KiB, MiB or GiB in quotes, as in "),
    ("rundir = 1", "rundir: invalid type: integer `1`, expected a path in quotes, as in \"/run/sluice\""),
    ("syslog = \"yes\"", "syslog: invalid type: string \"yes\", expected true or false"),
    ("socket-mode = \"rw\"", "socket-mode: \"rw\" is not a mode; expected octal digits in quotes, as in \"0660\""),
    ("socket-mode = 660", "socket-mode: 660 is not a mode; expected octal digits in quotes, as in \"0660\""),
    ("socket-mode = \"1777\"", "socket-mode: \"1777\" is not a mode"),
    ("port-types = [\"tab\"]", "port-types: \"tab\" is no port type; expected some of generator, "),
    ("stop-after = \"soon\"", "stop-after: \"soon\" is not a duration"),
];

/// A line of `[[bridge]]`, likewise.
const BRIDGE_ERRORS: &[(&str, &str)] = &[
    ("fail-mode = \"open\"", "fail-mode: unknown variant `open`, expected `secure` or `standalone`"),
    ("datapath-id = \"7\"", "datapath-id: \"7\"; expected 16 hexadecimal digits"),
    ("listen = [\"tcp:6653\"]", "listen: \"tcp:6653\"; expected \"ptcp:[PORT][:ADDRESS]\", \"pssl:"),
    ("listen = [\"pssl:\"]", "listen: \"pssl:\" takes [switch.tls] with private-key, certificate and ca-cert"),
    (
        "controllers = [\"ssl:1.2.3.4\"]",
        "controllers: \"ssl:1.2.3.4\" takes [switch.tls] with private-key, certificate",
    ),
    (
        "controllers = [\"udp:192.0.2.1\"]",
        "controllers: \"udp:192.0.2.1\"; expected \"tcp:HOST[:PORT]\", \"ssl:HOST[:PORT]\" or ",
    ),
];

/// A line of `[[bridge.port]]`, likewise.
const PORT_ERRORS: &[(&str, &str)] = &[
    ("mtu = 10", "mtu: 10 bytes; expected 68 to 9216"),
    ("n-rxq = 0", "n-rxq: 0 queues; expected 1 to 64"),
    ("n-rxq = 65", "n-rxq: 65 queues; expected 1 to 64"),
    ("tag = 4095", "tag: VLAN 4095; expected 0 to 4094"),
    ("ofports = 5", "ofports: unknown field `ofports`"),
    ("options = { mac = \"1:2\" }", "options: mac = \"1:2\": expected an Ethernet address such as 02:00:00:00:00:01"),
    ("options = { spede = 1 }", "options.spede: unknown to type null; expected one of "),
    ("options = { mac = [1] }", "options.mac: expected a string, a number or a boolean"),
    (
        "options = 3",
        "options: invalid type: integer `3`, expected a table in braces, as in { mac = \"02:00:00:00:00:01\" }",
    ),
];

#[test]
fn every_key_that_is_wrong_is_named_with_its_line() {
    let tables = [
        (format!("{BRIDGE}[datapath]\n"), "s.toml:4: datapath.", DATAPATH_ERRORS),
        (format!("{BRIDGE}[switch]\n"), "s.toml:4: switch.", SWITCH_ERRORS),
        (BRIDGE.to_owned(), "s.toml:3: bridge[0].", BRIDGE_ERRORS),
        (PORT.to_owned(), "s.toml:7: bridge[0].port[0].", PORT_ERRORS),
    ];
    for (start, place, errors) in tables {
        for (line, expected) in errors {
            let (text, expected) = (format!("{start}{line}\n"), format!("{place}{expected}"));
            let error = error_of(&text);
            assert!(error.starts_with(&expected), "{text}\nexpected {expected}\nbut got  {error}");
        }
    }
}

#[test]
fn a_port_without_what_its_type_requires_is_refused() {
    let error = |kind: &str| error_of(&PORT.replace("\"null\"", &format!("\"{kind}\"")));
    for (kind, expected) in [
        ("vhost-user", "path is missing; expected the Unix socket to meet the frontend at, such as /run/vm1.sock"),
        ("pcap", "rx is missing; expected a capture file to receive from (or tx, one to write into)"),
    ] {
        let error = error(kind);
        assert!(
            error.starts_with("s.toml:") && error.ends_with(&format!("bridge[0].port[0].options: {expected}")),
            "{error}"
        );
    }
}

#[test]
fn a_tunnel_that_cannot_be_is_refused_with_what_was_given_and_an_example() {
    let error = |options: &str| error_of(&PORT.replace("\"null\"", &format!("\"vxlan\"\noptions = {options}")));
    let example = "; expected such as remote_ip = \"192.0.2.1\", key = \"7\" (docs/tunnels.md has all options)";
    for (options, expected) in [
        (
            "{ remote_ip = \"1.2.3\" }",
            "remote_ip = \"1.2.3\": p1: bad vxlan 'remote_ip'; p1: vxlan type requires valid",
        ),
        ("{ remote-ip = \"1.2.3.4\" }", "remote-ip = \"1.2.3.4\": p1: unknown vxlan argument 'remote-ip'; p1: vxlan"),
        ("{}", "nothing: p1: vxlan type requires valid 'remote_ip' argument"),
    ] {
        let error = error(options);
        let place = format!("s.toml:7: bridge[0].port[0].options: {expected}");
        assert!(error.starts_with(&place) && error.ends_with(example), "{error}");
    }
}

/// A configuration in a file, as `--check` reads it.
fn load(text: &str) -> (tempfile::TempDir, Config) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("s.toml");
    std::fs::write(&file, text).unwrap();
    let config = Config::load(&file).unwrap();
    (directory, config)
}

#[test]
fn a_file_that_cannot_be_read_is_told_with_the_key_that_names_it() {
    for key in ["flows", "groups", "meters"] {
        let (_directory, config) = load(&format!("{BRIDGE}fail-mode = \"secure\"\n{key} = \"/no/such.txt\"\n"));
        let error = config.desired().unwrap_err().to_string();
        let expected =
            format!("s.toml:4: bridge[0].{key}: /no/such.txt: cannot be read: No such file or directory (os error 2)");
        assert!(error.ends_with(&expected), "{error}");
    }
}

#[test]
fn a_build_without_dpdk_cannot_open_its_ports() {
    let dpdk = |options: &str| {
        let text = PORT.replace("\"null\"", &format!("\"dpdk\"\n{options}"));
        load(&text).1.check_build().map_err(|error| error.to_string())
    };
    if cfg!(feature = "dpdk") {
        dpdk("options = { devargs = \"net_null0\" }\n").unwrap();
        let error = dpdk("").unwrap_err();
        assert!(
            error
                .ends_with("devargs is missing; expected a device as DPDK names it, such as net_null0 or 0000:01:00.0"),
            "{error}"
        );
    } else {
        let error = dpdk("options = { devargs = \"net_null0\" }\n").unwrap_err();
        assert!(
            error.contains("s.toml:6: bridge[0].port[0].type: \"dpdk\": this sluice was built without DPDK"),
            "{error}"
        );
        assert!(error.ends_with("`cargo build --release --features dpdk`"), "{error}");
    }
    load(PORT).1.check_build().unwrap();
}

#[test]
fn a_patch_port_without_its_other_end_is_warned_of() {
    let patch = |name: &str, peer: &str| {
        let ofport = if name == "a" { 2 } else { 3 };
        format!(
            "[[bridge.port]]\nname = \"{name}\"\nofport = {ofport}\ntype = \"patch\"\noptions = {{ peer = \"{peer}\" }}\n"
        )
    };
    let warnings = |ports: &str| parse(&format!("{PORT}{ports}")).unwrap().warnings();
    // A port that is there is no patch port.
    for peer in ["b", "p1"] {
        let why = format!("peer = \"{peer}\", but no patch port has that name: packets to it are dropped");
        let expected = format!("bridge br0: port a: {why}; name the patch port at the other end");
        assert_eq!(warnings(&patch("a", peer)), [expected]);
    }
    assert!(warnings(&(patch("a", "b") + &patch("b", "a"))).is_empty());
}

#[test]
fn what_is_wrong_between_keys_is_named_with_its_line() {
    let port = |from: &str, to: &str| PORT.replace(from, to);
    let second_port = |name: &str, ofport: u32| {
        format!("{PORT}[[bridge.port]]\nname = \"{name}\"\nofport = {ofport}\ntype = \"null\"\n")
    };
    let cases = [
        ("[switch\n".into(), "s.toml:1: "),
        ("[swich]\n".into(), "s.toml:1: swich: unknown field `swich`, expected one of `switch`, `datapath`, `bridge`"),
        (String::new(), "s.toml: bridge: no bridge; expected at least one [[bridge]]"),
        (
            "[[bridge]]\n".into(),
            "s.toml:1: bridge[0]: missing field `name`; `sluice run --help-config` explains each key",
        ),
        (BRIDGE.replace("br0", "a/b"), "s.toml:2: bridge[0].name: \"a/b\"; expected 1 to 255 visible characters"),
        (BRIDGE.repeat(2), "s.toml:4: bridge[1].name: another bridge is named \"br0\""),
        (port("= 1", "= 65534"), "s.toml:5: bridge[0].port[0].ofport: port number 65534; expected 1 to 65279"),
        (port("type = \"null\"", ""), "s.toml:3: bridge[0].port[0]: missing field `type`"),
        (
            port("null", "nul"),
            "s.toml:6: bridge[0].port[0].type: this build has no port type \"nul\"; expected one of ",
        ),
        (
            format!("{BRIDGE}prefixes = [\"tcp_dst\"]\n"),
            "s.toml:3: bridge[0].prefixes: \"tcp_dst\"; expected up to four of ip_dst, ip_src, ipv6_dst, ipv6_src",
        ),
        (
            format!("{BRIDGE}[[bridge.table]]\nnumber = 254\nflow-limit = 1\n"),
            "s.toml:4: bridge[0].table[0].number: table 254; expected 0 to 253",
        ),
        (
            format!("{BRIDGE}[[bridge.mirror]]\nname = \"m\"\nselect-all = true\noutput-port = \"p9\"\n"),
            "s.toml:6: bridge[0].mirror[0].output-port: bridge br0 has no port \"p9\"",
        ),
        (
            format!("{BRIDGE}[[bridge.mirror]]\nname = \"m\"\noutput-vlan = 7\n"),
            "s.toml:3: bridge[0].mirror[0].select-all: selects no packets; expected select-all = true, ",
        ),
        (
            format!("{BRIDGE}[[bridge.mirror]]\nname = \"m\"\nselect-all = true\noutput-vlan = 5000\n"),
            "s.toml:6: bridge[0].mirror[0].output-vlan: 5000; expected 0 to 4094",
        ),
        (port("null", "patch"), "s.toml:3: bridge[0].port[0].options: a patch port has one option: peer"),
        (port("p1", "br0"), "s.toml:4: bridge[0].port[0].name: another port is named \"br0\""),
        (second_port("p2", 1), "s.toml:9: bridge[0].port[1].ofport: another port of this bridge is number 1"),
        (second_port("p1", 2), "s.toml:8: bridge[0].port[1].name: another port is named \"p1\""),
    ];
    for (text, expected) in cases {
        let error = error_of(&text);
        assert!(error.starts_with(expected), "{text}\nexpected {expected}\nbut got  {error}");
    }
}

#[test]
fn a_tag_with_trunks_is_warned_of() {
    let warnings = |more: &str| parse(&format!("{PORT}{more}")).unwrap().warnings();
    let expected = "bridge br0: port p1: tag makes it an access port, so trunks has no effect; remove one of them";
    assert_eq!(warnings("tag = 10\ntrunks = [20]\n"), [expected]);
    assert!(warnings("tag = 10\n").is_empty() && warnings("trunks = [20]\n").is_empty());
}

#[test]
fn values_have_units() {
    let text = "[[bridge]]\nname = \"b\"\n[datapath]\nmax-idle = \"1.5s\"\nflow-memory = \"64KiB\"\nemc-insert-inv-prob = 20\n[switch]\nstop-after = \"2m\"\n";
    let config = parse(text).unwrap();
    assert_eq!(config.datapath.max_idle.0.as_millis(), 1500);
    assert_eq!(config.datapath.flow_memory, Size(65536));
    assert_eq!(config.datapath.emc_insert_inv_prob, AutoOr::Is(InvProb::OneIn(20)));
    assert_eq!(config.switch.stop_after, Some(Duration::from_secs(120)));
}

#[test]
fn an_unreadable_file_is_named() {
    let error = Config::load(Path::new("/no/such/switch.toml")).unwrap_err().to_string();
    assert_eq!(error, "/no/such/switch.toml: cannot be read: No such file or directory (os error 2)");
}

#[test]
#[cfg(not(feature = "dpdk"))]
fn dpdk_needs_a_build_with_it() {
    let error = error_of("[[bridge]]\nname = \"b\"\n[switch.dpdk]\n");
    assert_eq!(
        error,
        "s.toml:3: switch.dpdk: this build has no DPDK ports; build with --features dpdk, or remove the section"
    );
}

#[test]
fn help_lists_the_options_of_every_port_type() {
    let help = help();
    for kind in sluice_port::PORT_TYPES {
        assert!(help.contains(&format!("# type = \"{}\": {}", kind.name, kind.help)));
        for option in kind.options {
            assert!(help.contains(&format!("#   {:<12} {}\n", option.key, option.help)));
        }
    }
}
