//! Wall time as text, UTC, for the log and the statistics.

use time::OffsetDateTime;

/// As `2026-01-31T12:00:00.000Z`.
pub fn date_and_time(at: OffsetDateTime) -> String {
    format!("{:04}-{:02}-{:02}T{}Z", at.year(), u8::from(at.month()), at.day(), time_of_day(at))
}

/// As `12:00:00.000`.
pub fn time_of_day(at: OffsetDateTime) -> String {
    format!("{:02}:{:02}:{:02}.{:03}", at.hour(), at.minute(), at.second(), at.millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_date_1() {
        // `date -u -d @1709251199 +%FT%T`
        let at = OffsetDateTime::from_unix_timestamp(1_709_251_199).unwrap() + time::Duration::milliseconds(7);
        assert_eq!(date_and_time(at), "2024-02-29T23:59:59.007Z");
        assert_eq!(date_and_time(OffsetDateTime::UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
    }
}
