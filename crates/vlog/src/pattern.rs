//! What a line of the log looks like. Source: ovs-appctl(8), `vlog/set PATTERN:…`.

use jiff::{Zoned, tz::TimeZone};
use std::fmt::Write as _;

/// What a line tells about its message.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    /// The program.
    pub program: &'a str,
    /// Which message it is, from 1.
    pub number: u64,
    /// The module.
    pub module: &'a str,
    /// The name of the level.
    pub level: &'a str,
    /// Facility and severity as one number, for the system's log.
    pub priority: u32,
    /// When it was logged.
    pub time: jiff::Timestamp,
    /// When the program began.
    pub program_start: jiff::Timestamp,
    /// The thread; empty for the main one.
    pub thread: &'a str,
    /// The text.
    pub text: &'a str,
}

/// How a field is brought to its least width.
#[derive(Clone, Copy)]
struct Field {
    width: usize,
    on_the_left: bool,
    pad: char,
}

/// The time of `%d` and `%D` without braces.
const DEFAULT_TIME: &str = "%Y-%m-%d %H:%M:%S.###";

/// A line for `message`, without the end of line.
pub(crate) fn format(pattern: &str, message: &Message<'_>) -> String {
    let mut line = String::with_capacity(pattern.len() + message.text.len() + 64);
    let mut rest = pattern;
    while let Some((before, behind)) = rest.split_once('%') {
        line += before;
        let (field, behind) = Field::parse(behind);
        let mut letters = behind.chars();
        let Some(letter) = letters.next() else { return line };
        rest = letters.as_str();
        let braces = if matches!(letter, 'c' | 'd' | 'D') { take_braces(&mut rest) } else { None };
        field.add(&mut line, &message.expand(letter, braces));
    }
    line + rest
}

/// What stands in braces at the beginning of `rest`, and takes it away.
fn take_braces<'p>(rest: &mut &'p str) -> Option<&'p str> {
    let inside = rest.strip_prefix('{')?;
    let (inside, behind) = inside.split_once('}').unwrap_or((inside, ""));
    *rest = behind;
    Some(inside)
}

impl Field {
    /// Reads `[-][0][WIDTH]`.
    fn parse(text: &str) -> (Self, &str) {
        let (on_the_left, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
        let (pad, text) = text.strip_prefix('0').map_or((' ', text), |text| ('0', text));
        let letters = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let width = text[..text.len() - letters.len()].parse().unwrap_or(0).min(1024);
        (Field { width, on_the_left, pad }, letters)
    }

    fn add(self, line: &mut String, text: &str) {
        let missing = self.width.saturating_sub(text.len());
        let padding = std::iter::repeat_n(self.pad, missing);
        if self.on_the_left {
            line.push_str(text);
            line.extend(padding);
        } else {
            line.extend(padding);
            line.push_str(text);
        }
    }
}

impl Message<'_> {
    fn expand(&self, letter: char, braces: Option<&str>) -> String {
        match letter {
            'A' => self.program.to_owned(),
            'B' => self.priority.to_string(),
            'c' => self.module.to_owned(),
            'd' => time_text(braces.unwrap_or(DEFAULT_TIME), &self.time.to_zoned(TimeZone::system())),
            'D' => time_text(braces.unwrap_or(DEFAULT_TIME), &self.time.to_zoned(TimeZone::UTC)),
            'E' => rustix::system::uname().nodename().to_string_lossy().into_owned(),
            'm' => self.text.trim_end_matches('\n').to_owned(),
            'N' => self.number.to_string(),
            'n' => "\n".into(),
            'p' => self.level.to_owned(),
            'P' => std::process::id().to_string(),
            'r' => (self.time.as_millisecond() - self.program_start.as_millisecond()).to_string(),
            't' if self.thread.is_empty() => "main".into(),
            't' => self.thread.to_owned(),
            'T' if self.thread.is_empty() => String::new(),
            'T' => format!("({})", self.thread),
            other => other.to_string(),
        }
    }
}

/// The time by a format of strftime(3), in which each `#` stands for a digit of the milliseconds.
fn time_text(format: &str, time: &Zoned) -> String {
    let mut text = String::new();
    // A format that strftime does not know is shown as it is.
    if write!(text, "{}", time.strftime(format)).is_err() {
        format.clone_into(&mut text);
    }
    let milliseconds = format!("{:03}", time.subsec_nanosecond() / 1_000_000);
    let mut digits = milliseconds.chars();
    text.chars().map(|c| if c == '#' { digits.next().unwrap_or('#') } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: Message<'_> = Message {
        program: "ovs-vswitchd",
        number: 7,
        module: "bridge",
        level: "INFO",
        priority: 29,
        time: jiff::Timestamp::constant(1_709_251_199, 7_000_000),
        program_start: jiff::Timestamp::constant(1_709_251_198, 0),
        thread: "",
        text: "bridge br0: 100 % at work\n",
    };

    #[test]
    fn the_file_has_open_vswitchs_lines() {
        let pattern = crate::Destination::File.default_pattern();
        let line = "2024-02-29T23:59:59.007Z|00007|bridge|INFO|bridge br0: 100 % at work";
        assert_eq!(format(pattern, &MESSAGE), line);
        let message = Message { thread: "handler1", ..MESSAGE };
        assert_eq!(format(pattern, &message), line.replace("bridge|I", "bridge(handler1)|I"));
        assert_eq!(format(crate::Destination::Syslog.default_pattern(), &MESSAGE), format!("ovs{}", &line[24..]));
    }

    #[test]
    fn every_letter_stands_for_something() {
        assert_eq!(format("%A %B %t %r%n", &MESSAGE), "ovs-vswitchd 29 main 1007\n");
        assert_eq!(format("%P", &MESSAGE), std::process::id().to_string());
        assert_eq!(format("%E", &MESSAGE).is_empty(), rustix::system::uname().nodename().is_empty());
        assert_eq!(format("%x %%", &MESSAGE), "x %");
        assert_eq!(format("%c{ignored} %D", &MESSAGE), "bridge 2024-02-29 23:59:59.007");
    }

    #[test]
    fn fields_have_a_width() {
        assert_eq!(format("%8p|%-8p|%08N", &MESSAGE), "    INFO|INFO    |00000007");
    }

    #[test]
    fn a_pattern_that_breaks_off_is_no_harm() {
        for pattern in ["%", "%-", "%05", "%D{", "%D{%", "%D{%Q}", "%99999999999999999999m", ""] {
            assert!(format(pattern, &MESSAGE).len() < 2048, "{pattern}");
        }
    }
}
