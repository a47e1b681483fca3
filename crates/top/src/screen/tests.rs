use super::*;
use crate::overview::{FlowRow, Overview, PmdRow, PortRow, QueueRow, Totals};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::time::Duration;

fn overview(packets: u64) -> Overview {
    let port = |name: &str| PortRow { name: name.into(), kind: "tap".into(), is_up: true, ..PortRow::default() };
    Overview {
        totals: Totals {
            received: packets,
            passes: packets,
            emc_hits: packets / 2,
            megaflow_hits: packets / 2,
            distributor_hits: packets / 4,
            ..Totals::default()
        },
        ports: vec![
            PortRow { rx_packets: packets, rx_bytes: packets * 60, ..port("p1") },
            PortRow { dropped: packets, is_up: false, ..port("p2") },
        ],
        pmds: vec![PmdRow { core: Some(0), busy_cycles: packets, idle_cycles: packets * 3, ..PmdRow::default() }],
        queues: vec![QueueRow { port: "p1".into(), levels: "emc smc".into(), ..QueueRow::default() }],
        megaflows: 2,
        busiest: vec![
            FlowRow { packets: 1_000_000, text: format!("a, packets:{packets}, bytes:1") },
            FlowRow { packets, text: format!("b, packets:{packets}, bytes:2") },
        ],
    }
}

/// A terminal of that size on which two seconds with five million packets were drawn.
fn drawn(width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    draw(&mut terminal);
    terminal
}

fn draw(terminal: &mut Terminal<TestBackend>) {
    draw_until(&overview(5_001_000), terminal);
}

fn draw_until(now: &Overview, terminal: &mut Terminal<TestBackend>) {
    let before = overview(1000);
    let screen = Screen(Rates::new(&before, now, Duration::from_secs(2)));
    terminal.draw(|frame| frame.render_widget(&screen, frame.area())).unwrap();
}

fn lines(terminal: &Terminal<TestBackend>) -> Vec<String> {
    let buffer = terminal.backend().buffer();
    let line = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(|y| line(y).trim_end().to_owned()).collect()
}

/// The line in which a text stands, and the colour of its first letter.
fn colour_of(terminal: &Terminal<TestBackend>, text: &str) -> Color {
    let (y, x) = lines(terminal)
        .iter()
        .enumerate()
        .find_map(|(y, line)| Some((y, line[..line.find(text)?].chars().count())))
        .unwrap_or_else(|| panic!("no {text}"));
    terminal.backend().buffer()[(x as u16, y as u16)].fg
}

#[test]
fn everything_is_on_a_wide_screen() {
    let want = "\
2.50M pps in  0 pps out  0 dropped/s  0 cycles/packet  2 megaflows
██████████████████████████████████████████████████████████████████████████████████
EMC 50.0 %  SMC 0.0 %  distributor 25.0 %  subtables 25.0 %  upcalls 0.0 %

port link    rx pps    tx pps dropped/s  rx bit/s  tx bit/s type
p1   up       2.50M         0         0     1.20G         0 tap
p2   down         0         0     2.50M         0         0 tap

 PMD  core   busy  megaflows  subtables       EMC in use
   0     0   25 %          0          0           0 of 0

autopilot of queue levels chosen   cycles changes
p1               0 emc smc              -       0

      pps busiest megaflows
    2.50M b, packets:5001000, bytes:2
        0 a, packets:5001000, bytes:1
";
    let terminal = drawn(82, 18);
    assert_eq!(lines(&terminal).join("\n").trim_end(), want.trim_end());
    assert_eq!(colour_of(&terminal, "down"), Color::Red);
    assert_eq!(colour_of(&terminal, "2.50M b"), Color::Reset);
    let bar: Vec<Color> = (0..82).map(|x| terminal.backend().buffer()[(x, 1)].fg).collect();
    let count = |colour| bar.iter().filter(|c| **c == colour).count();
    assert_eq!([Color::Green, Color::Blue, Color::Yellow].map(count), [41, 21, 20], "{bar:?}");
}

#[test]
fn a_narrow_screen_leaves_out_what_matters_least() {
    let lines = lines(&drawn(40, 20));
    assert_eq!(lines[0], "2.50M pps in  0 pps out  0 dropped/s");
    assert!(lines.contains(&"port link    rx pps    tx pps dropped/s".to_owned()), "{lines:?}");
    assert!(lines.contains(&" PMD  core   busy  megaflows  subtables".to_owned()), "{lines:?}");
    assert!(lines.iter().any(|line| line.ends_with("b, packets:5001000, bytes:2")), "{lines:?}");
}

#[test]
fn a_low_screen_shows_some_of_everything_and_says_so() {
    let mut now = overview(5_001_000);
    now.ports.extend((3..9).map(|n| PortRow { name: format!("p{n}"), ..PortRow::default() }));
    let mut terminal = Terminal::new(TestBackend::new(82, 18)).unwrap();
    draw_until(&now, &mut terminal);
    let low = lines(&terminal);
    for part in ["p2   down", "… 6 more", "   0     0   25 %", "emc smc", "2.50M b,", "0 a,"] {
        assert!(low.iter().any(|line| line.contains(part)), "no {part} in {low:#?}");
    }
    let lowest = lines(&drawn(82, 15));
    for part in ["p1   up", "   0     0   25 %", "emc smc", "2.50M b,"] {
        assert!(lowest.iter().any(|line| line.contains(part)), "no {part} in {lowest:#?}");
    }
}

#[test]
fn any_size_can_be_drawn_and_become_another() {
    let mut terminal = drawn(82, 18);
    for (width, height) in [(0, 0), (1, 1), (0, 7), (7, 0), (20, 5), (3, 60), (300, 3), (82, 18)] {
        terminal.backend_mut().resize(width, height);
        draw(&mut terminal);
    }
    assert_eq!(lines(&terminal), lines(&drawn(82, 18)), "nothing is left of the sizes between");
}

#[test]
fn no_section_gets_more_lines_than_it_wants() {
    assert_eq!(shares(10, [5, 1, 9]), [5, 1, 4]);
    assert_eq!(shares(100, [5, 1, 9]), [5, 1, 9]);
    assert_eq!(shares(2, [5, 1, 9]), [1, 1, 0]);
}
