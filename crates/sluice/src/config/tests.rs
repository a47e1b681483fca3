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
    let port = &config.bridge[0].port[0];
    assert_eq!((port.mtu, port.n_rxq), (ETHERNET_MTU, 1));
    let dpdk: Config = toml::from_str(REFERENCE).unwrap();
    assert_eq!(dpdk.switch.dpdk, Some(Dpdk::default()));
}

#[test]
fn the_reference_names_every_key_and_explains_it() {
    for (table, start) in [
        ("switch", "[switch]"),
        ("dpdk", "[switch.dpdk]"),
        ("datapath", "[datapath]"),
        ("bridge", "[[bridge]]\nname = \"b\""),
        ("port", "[[bridge]]\nname = \"b\"\n[[bridge.port]]\nname = \"p\"\nofport = 1\ntype = \"null\""),
    ] {
        // serde tells what it would have known.
        let error = toml::from_str::<Config>(&format!("{start}\nno-such-key = 1")).unwrap_err();
        let known: Vec<&str> = error.message().split('`').skip(3).step_by(2).collect();
        assert!(!known.is_empty(), "{}", error.message());
        for key in known.into_iter().filter(|k| !matches!((table, *k), ("switch", "dpdk") | ("bridge", "port"))) {
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

#[test]
fn every_error_names_line_and_key_in_one_line() {
    let bridge = "[[bridge]]\nname = \"br0\"\n";
    let port = "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\nofport = 1\ntype = \"null\"\n";
    let cases: Vec<(String, &str)> = vec![
        ("[switch\n".into(), "s.toml:1: "),
        ("[swich]\n".into(), "s.toml:1: swich: unknown field `swich`, expected one of `switch`, `datapath`, `bridge`"),
        (
            format!("{bridge}[datapath]\nemcc = \"on\"\n"),
            "s.toml:4: datapath.emcc: unknown field `emcc`, expected one of ",
        ),
        (
            format!("{bridge}[datapath]\nemc = \"yes\"\n"),
            "s.toml:4: datapath.emc: \"yes\" is no level; expected \"auto\", \"on\" or \"off\"",
        ),
        (
            format!("{bridge}[datapath]\nemc = true\n"),
            "s.toml:4: datapath.emc: invalid type: boolean `true`, expected a string",
        ),
        (
            format!("{bridge}[datapath]\nsmc = \"on\"\n"),
            "s.toml:4: datapath.smc: this build has no smc; expected \"auto\" or \"off\"",
        ),
        (
            format!("{bridge}[datapath]\nemc-entries = 1000\n"),
            "s.toml:4: datapath.emc-entries: 1000 entries; expected a power of two",
        ),
        (
            format!("{bridge}[datapath]\nemc-insert-inv-prob = -1\n"),
            "s.toml:4: datapath.emc-insert-inv-prob: invalid value",
        ),
        (
            format!("{bridge}[datapath]\nmax-idle = \"10\"\n"),
            "s.toml:4: datapath.max-idle: \"10\" is no duration; expected a number and us, ms, s, m or h",
        ),
        (
            format!("{bridge}[datapath]\nflow-memory = \"lots\"\n"),
            "s.toml:4: datapath.flow-memory: \"lots\" is no size",
        ),
        (
            format!("{bridge}[datapath]\ngovernor = \"classic\"\n"),
            "s.toml:4: datapath.governor: this build does not have \"classic\"; expected \"auto\" or \"off\"",
        ),
        (
            format!("{bridge}[datapath]\ngovernor = \"x\"\n"),
            "s.toml:4: datapath.governor: \"x\" is unknown; expected \"auto\" or \"off\"",
        ),
        (
            format!("{bridge}[datapath]\nmiss-budget = \"25%\"\n"),
            "s.toml:4: datapath.miss-budget: this build has no budget for misses",
        ),
        (format!("{bridge}[switch]\npmd-cores = []\n"), "s.toml:4: switch.pmd-cores: expected 1 to 128 core numbers"),
        (format!("{bridge}[switch]\npmd-cores = [1, 1]\n"), "s.toml:4: switch.pmd-cores: a core is listed twice"),
        (
            format!("{bridge}[switch]\npmd-cores = \"1\"\n"),
            "s.toml:4: switch.pmd-cores: invalid type: string \"1\", expected a sequence",
        ),
        (format!("{bridge}[switch]\nstop-after = \"soon\"\n"), "s.toml:4: switch.stop-after: \"soon\" is no duration"),
        (String::new(), "s.toml: bridge: no bridge; expected at least one [[bridge]]"),
        (format!("{bridge}{bridge}"), "s.toml:4: bridge[1].name: another bridge is named \"br0\""),
        ("[[bridge]]\n".into(), "s.toml:1: bridge[0]: missing field `name`"),
        (
            "[[bridge]]\nname = \"a/b\"\n".into(),
            "s.toml:2: bridge[0].name: \"a/b\"; expected 1 to 15 visible characters",
        ),
        (
            format!("{bridge}fail-mode = \"open\"\n"),
            "s.toml:3: bridge[0].fail-mode: unknown variant `open`, expected `secure` or `standalone`",
        ),
        (
            format!("{bridge}datapath-id = \"7\"\n"),
            "s.toml:3: bridge[0].datapath-id: \"7\"; expected 16 hexadecimal digits",
        ),
        (
            format!("{bridge}listen = [\"ptcp:6653\"]\n"),
            "s.toml:3: bridge[0].listen: this build does not speak OpenFlow; expected []",
        ),
        (format!("{port}mtu = 10\n"), "s.toml:7: bridge[0].port[0].mtu: 10 bytes; expected 68 to 9216"),
        (format!("{port}n-rxq = 0\n"), "s.toml:7: bridge[0].port[0].n-rxq: 0 queues; expected 1 to 128"),
        (format!("{port}tag = 4095\n"), "s.toml:7: bridge[0].port[0].tag: VLAN 4095; expected 0 to 4094"),
        (
            format!("{bridge}[datapath]\npmd-sleep-max = \"1s\"\n"),
            "s.toml:4: datapath.pmd-sleep-max: expected at most \"10ms\"",
        ),
        (
            port.replace("\"null\"", "\"patch\""),
            "s.toml:3: bridge[0].port[0].options: a patch port has one option: peer",
        ),
        (port.replace("\"p1\"", "\"br0\""), "s.toml:4: bridge[0].port[0].name: another port is named \"br0\""),
        (
            port.replace("\"null\"", "\"nul\""),
            "s.toml:6: bridge[0].port[0].type: this build has no port type \"nul\"; expected one of ",
        ),
        (
            format!("{port}options = {{ spede = 1 }}\n"),
            "s.toml:7: bridge[0].port[0].options.spede: unknown to type null; expected one of ",
        ),
        (
            format!("{port}options = {{ mac = [1] }}\n"),
            "s.toml:7: bridge[0].port[0].options.mac: expected a string, a number or a boolean",
        ),
        (
            format!("{port}options = 3\n"),
            "s.toml:7: bridge[0].port[0].options: invalid type: integer `3`, expected a map",
        ),
        (format!("{port}ofports = 5\n"), "s.toml:7: bridge[0].port[0].ofports: unknown field `ofports`"),
        (
            port.replace("ofport = 1", "ofport = 65534"),
            "s.toml:5: bridge[0].port[0].ofport: port number 65534; expected 1 to 65279",
        ),
        (port.replace("type = \"null\"", ""), "s.toml:3: bridge[0].port[0]: missing field `type`"),
        (
            format!("{port}[[bridge.port]]\nname = \"p2\"\nofport = 1\ntype = \"null\"\n"),
            "s.toml:9: bridge[0].port[1].ofport: another port of this bridge is number 1",
        ),
        (
            format!("{port}[[bridge.port]]\nname = \"p1\"\nofport = 2\ntype = \"null\"\n"),
            "s.toml:8: bridge[0].port[1].name: another port is named \"p1\"",
        ),
    ];
    for (text, expected) in cases {
        let error = error_of(&text);
        assert!(error.starts_with(expected), "{text}\nexpected {expected}\nbut got  {error}");
    }
}

#[test]
fn values_have_units() {
    let text = "[[bridge]]\nname = \"b\"\n[datapath]\nmax-idle = \"1.5s\"\nflow-memory = \"64KiB\"\nemc-insert-inv-prob = 20\n[switch]\nstop-after = \"2m\"\n";
    let config = parse(text).unwrap();
    assert_eq!(config.datapath.max_idle.0.as_millis(), 1500);
    assert_eq!(config.datapath.flow_memory, Size(65536));
    assert_eq!(config.datapath.emc_insert_inv_prob, AutoOr::Is(20));
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
    for kind in sluice_port::KINDS {
        assert!(help.contains(&format!("# type = \"{}\": {}", kind.name, kind.help)));
        for option in kind.options {
            assert!(help.contains(&format!("#   {:<12} {}\n", option.key, option.help)));
        }
    }
}
