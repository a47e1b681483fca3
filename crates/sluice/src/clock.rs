//! Wall time as text, UTC, for the statistics.

use time::OffsetDateTime;

/// As `12:00:00.000`.
pub fn time_of_day(at: OffsetDateTime) -> String {
    format!("{:02}:{:02}:{:02}.{:03}", at.hour(), at.minute(), at.second(), at.millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_date_1() {
        // `date -u -d @1709251199 +%T`
        let at = OffsetDateTime::from_unix_timestamp(1_709_251_199).unwrap() + time::Duration::milliseconds(7);
        assert_eq!(time_of_day(at), "23:59:59.007");
    }
}
