//! The values of the configuration that TOML has no type for: durations, sizes, shares.

use serde::de::{self, Deserialize, Deserializer, Visitor};
use sluice_datapath::Level;
use std::fmt;

/// A span of time, written `"10s"`, `"200ms"`, `"50us"` or `"5m"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub std::time::Duration);

/// A number of bytes, written `"256MiB"`, `"64KiB"`, `"1GiB"` or `"4096"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// A share of a whole, above 0 and up to 1, written `0.25` or `"25%"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

/// Permissions of a file, written in octal digits: `"0660"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(pub u16);

/// Which cores poll which receive queues, written `"0:1,2:3"`: queue 0 on core 1, queue 2 on core 3. By queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity(pub std::collections::BTreeMap<usize, usize>);

/// `"auto"`, or a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AutoOr<T> {
    /// Decided by the switch.
    #[default]
    Auto,
    /// Given.
    Is(T),
}

/// How many misses of the exact match cache it takes until one is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvProb {
    /// Written `"adaptive"`.
    Adaptive,
    /// So many, on average.
    OneIn(u32),
}

/// A value that can be given instead of `"auto"`.
pub trait Adaptive: Sized {
    /// What errors say is expected besides `"auto"`.
    const EXPECTED: &'static str;

    /// From a string that is not `"auto"`.
    fn of_text(text: &str) -> Option<Self>;

    /// From a number.
    fn of_number(number: f64) -> Option<Self>;
}

impl Duration {
    /// A span of whole seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Duration(std::time::Duration::from_secs(secs))
    }

    fn of_text(text: &str) -> Option<Self> {
        let (number, unit) = number_and_unit(text)?;
        let nanos_in_unit = match unit {
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" | "min" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        let nanos = number * nanos_in_unit;
        // A century is as good as for ever, and can be added to a clock.
        (nanos <= 3.2e18).then(|| Duration(std::time::Duration::from_nanos(nanos as u64)))
    }
}

/// The number at the start of `text` and what follows it.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    Some((number, text[digits..].trim_start()))
}

/// What the text of a value must be, as errors say it.
struct TextForm {
    what: &'static str,
    expected: &'static str,
}

const DURATION: TextForm =
    TextForm { what: "a duration", expected: "a number and us, ms, s, m or h in quotes, as in \"10s\"" };
const SIZE: TextForm =
    TextForm { what: "a size", expected: "a number and KiB, MiB or GiB in quotes, as in \"256MiB\"" };
const FILE_MODE: TextForm = TextForm { what: "a mode", expected: "octal digits in quotes, as in \"0660\"" };
const LEVEL: TextForm = TextForm { what: "a level", expected: "\"auto\", \"on\" or \"off\"" };
const ADDRESS: TextForm =
    TextForm { what: "ADDRESS:PORT", expected: "an IP address and a port in quotes, as in \"127.0.0.1:9155\"" };

impl TextForm {
    /// Reads a value from its text. A number or a boolean that stands there without quotes is refused with the same words.
    fn read<'de, D, T>(&self, deserializer: D, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
    {
        let text = deserializer.deserialize_any(TextVisitor(self))?;
        parse(&text).ok_or_else(|| self.refusal(format_args!("\"{text}\"")))
    }

    fn refusal<E: de::Error>(&self, value: impl fmt::Display) -> E {
        E::custom(format_args!("{value} is not {}; expected {}", self.what, self.expected))
    }
}

struct TextVisitor<'a>(&'a TextForm);

impl Visitor<'_> for TextVisitor<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<String, E> {
        Err(self.0.refusal(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<String, E> {
        Err(self.0.refusal(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<String, E> {
        Err(self.0.refusal(value))
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DURATION.read(deserializer, Duration::of_text)
    }
}

impl Size {
    fn of_text(text: &str) -> Option<Self> {
        let (number, unit) = number_and_unit(text)?;
        let unit_bytes = match unit {
            "" | "B" => 1u64,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return None,
        };
        let bytes = number * unit_bytes as f64;
        (bytes < (1u64 << 50) as f64).then_some(Size(bytes as u64))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        SIZE.read(deserializer, Size::of_text)
    }
}

impl FileMode {
    fn of_text(text: &str) -> Option<Self> {
        let is_octal = (1..=4).contains(&text.len()) && text.bytes().all(|digit| (b'0'..b'8').contains(&digit));
        u16::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777).map(FileMode)
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        FILE_MODE.read(deserializer, FileMode::of_text)
    }
}

impl std::str::FromStr for Affinity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pairs = text.split(',').filter(|pair| !pair.is_empty()).map(|pair| {
            let (queue, core) = pair.split_once(':')?;
            Some((queue.trim().parse().ok()?, core.trim().parse().ok()?))
        });
        pairs.collect::<Option<_>>().map(Affinity).ok_or_else(|| {
            format!("\"{text}\" does not pin queues; expected QUEUE:CORE, separated by commas, as in \"0:1,1:3\"")
        })
    }
}

impl<'de> Deserialize<'de> for Affinity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Reads a level of the lookup.
///
/// # Errors
/// If it is neither of "auto", "on" and "off".
pub fn level<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Level, D::Error> {
    LEVEL.read(deserializer, |text| text.parse().ok())
}

/// Reads the address of a listener.
///
/// # Errors
/// If it is not an IP address with a port.
pub fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<std::net::SocketAddr>, D::Error> {
    ADDRESS.read(deserializer, |text| text.parse().ok()).map(Some)
}

impl Adaptive for u32 {
    const EXPECTED: &'static str = "a whole number from 0 to 4294967295";

    fn of_text(_: &str) -> Option<Self> {
        None
    }

    fn of_number(number: f64) -> Option<Self> {
        (number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number)).then_some(number as u32)
    }
}

impl Adaptive for InvProb {
    const EXPECTED: &'static str = "\"adaptive\" or a whole number from 0 to 4294967295";

    fn of_text(text: &str) -> Option<Self> {
        (text == "adaptive").then_some(InvProb::Adaptive)
    }

    fn of_number(number: f64) -> Option<Self> {
        u32::of_number(number).map(InvProb::OneIn)
    }
}

impl Adaptive for Share {
    const EXPECTED: &'static str = "a share above 0 and up to 1, or a percentage such as \"25%\"";

    fn of_text(text: &str) -> Option<Self> {
        let percent: f64 = text.strip_suffix('%')?.trim().parse().ok()?;
        Self::of_number(percent / 100.0)
    }

    fn of_number(number: f64) -> Option<Self> {
        (number > 0.0 && number <= 1.0).then_some(Share(number))
    }
}

impl<'de, T: Adaptive> Deserialize<'de> for AutoOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AutoOrVisitor<T>(std::marker::PhantomData<T>);

        impl<T: Adaptive> Visitor<'_> for AutoOrVisitor<T> {
            type Value = AutoOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "\"auto\" or {}", T::EXPECTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                if text == "auto" {
                    return Ok(AutoOr::Auto);
                }
                T::of_text(text).map(AutoOr::Is).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                self.visit_f64(number as f64)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                self.visit_f64(number as f64)
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
                T::of_number(number)
                    .map(AutoOr::Is)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Float(number), &self))
            }
        }

        deserializer.deserialize_any(AutoOrVisitor(std::marker::PhantomData))
    }
}
