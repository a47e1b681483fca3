//! Wall time as text, for the log and the statistics.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// A moment of the calendar, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallTime {
    /// Milliseconds since 1970.
    pub ms: u64,
}

impl WallTime {
    /// This moment.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime { ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX) }
    }

    /// Hours, minutes, seconds and milliseconds.
    pub fn time_of_day(self) -> String {
        let (s, ms) = (self.ms / 1000, self.ms % 1000);
        format!("{:02}:{:02}:{:02}.{ms:03}", s / 3600 % 24, s / 60 % 60, s % 60)
    }

    /// Year, month, day. Source: Howard Hinnant, "chrono-compatible low-level date algorithms", civil_from_days.
    fn date(self) -> (u64, u64, u64) {
        let z = self.ms / 86_400_000 + 719_468; // days since 0000-03-01
        let era = z / 146_097; // 400 years
        let day_of_era = z % 146_097;
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        (year_of_era + era * 400 + u64::from(month <= 2), month, day)
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.date();
        write!(f, "{year:04}-{month:02}-{day:02}T{}Z", self.time_of_day())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar_agrees_with_date_1() {
        // `date -u -d @N +%FT%T`
        let known = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_767_225_599, "2025-12-31T23:59:59.000Z"),
            (4_102_444_800, "2100-01-01T00:00:00.000Z"),
        ];
        for (s, text) in known {
            assert_eq!(WallTime { ms: s * 1000 }.to_string(), text);
        }
        assert_eq!(WallTime { ms: 12_345 }.time_of_day(), "00:00:12.345");
    }
}
