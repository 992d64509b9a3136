//! Points in time for `--stop-at`. They always have a zone: a local time without one means another moment on another
//! machine.

use fullbore_core::{Error, Result};
use jiff::Timestamp;
use jiff::fmt::temporal::{DateTimeParser, Pieces};
use jiff::tz::{AmbiguousOffset, Disambiguation, OffsetConflict, TimeZone};

const FORMS: &str = "write 2026-11-22T10:00:00+01:00, 2026-11-22 09:00:00Z or 2026-11-22T10:00:00[Europe/Berlin]";

/// A point in time, in microseconds since 1970. `option` is what errors call it.
///
/// # Errors
/// It is not a time, has no zone, or is a local time that occurs twice or never in its zone.
pub fn parse(option: &str, text: &str) -> Result<i64> {
    let wrong = |why: String, hint: String| Error::usage(format!("{option} '{text}'"), why, hint);
    let parser = DateTimeParser::new().disambiguation(Disambiguation::Reject).offset_conflict(OffsetConflict::Reject);
    let text = text.trim();
    if text.contains('[') {
        return match parser.parse_zoned(text) {
            Ok(time) => Ok(time.timestamp().as_microsecond()),
            Err(error) => Err(candidates(text).map_or_else(
                || wrong(format!("this is not a time: {error}"), FORMS.into()),
                |(why, hint)| wrong(why, hint),
            )),
        };
    }
    match parser.parse_timestamp(text) {
        Ok(time) => Ok(time.as_microsecond()),
        Err(error) => Err(match parser.parse_datetime(text) {
            Ok(local) => wrong(
                "the zone is missing, and a local time means another moment on another machine".into(),
                format!("add it: {}Z if this is UTC, else +HH:MM or a zone in brackets. {FORMS}", local),
            ),
            Err(_) => wrong(format!("this is not a time: {error}"), FORMS.into()),
        }),
    }
}

/// Why a local time occurs never or twice in its zone, and the two times that it could mean.
fn candidates(text: &str) -> Option<(String, String)> {
    let pieces = Pieces::parse(text).ok()?;
    let zone: TimeZone = pieces.to_time_zone().ok()??;
    let name = zone.iana_name().unwrap_or("that zone").to_owned();
    let local = pieces.date().to_datetime(pieces.time()?);
    let (before, after, why) = match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Fold { before, after } => (before, after, "clocks were set back, and had this time twice"),
        AmbiguousOffset::Gap { before, after } => (before, after, "clocks were set forward, and never had this time"),
        AmbiguousOffset::Unambiguous { .. } => return None,
    };
    let (first, second) = (local.to_zoned(before.to_time_zone()).ok()?, local.to_zoned(after.to_time_zone()).ok()?);
    let show = |time: jiff::Zoned| time.strftime("%Y-%m-%dT%H:%M:%S%.f%:z").to_string();
    Some((format!("in {name} {why}"), format!("write one of these: {} or {}", show(first), show(second))))
}

/// A point in time for people: UTC, with microseconds if it has any.
pub fn show(micros: i64) -> String {
    Timestamp::from_microsecond(micros).map_or_else(|_| "an unknown time".into(), |time| time.to_string())
}

/// The same, and in the zone of this machine.
pub fn show_with_local(micros: i64) -> String {
    let utc = show(micros);
    let Ok(time) = Timestamp::from_microsecond(micros) else { return utc };
    let zone = TimeZone::system();
    if zone.to_offset(time).is_zero() {
        return utc;
    }
    format!("{utc} ({} here)", time.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S%.f%:z"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn text(micros: Result<i64>) -> String {
        show(micros.unwrap())
    }

    fn refusal(time: &str) -> String {
        let error = parse("--stop-at", time).unwrap_err();
        assert_eq!(error.exit_kind().exit_code(), 2, "{time}");
        error.to_string()
    }

    #[test]
    fn times_with_a_zone_are_understood() {
        for (time, utc) in [
            ("2026-11-22T10:00:00+01:00", "2026-11-22T09:00:00Z"),
            ("2026-11-22 09:00:00Z", "2026-11-22T09:00:00Z"),
            (" 2026-11-22 10:00:00.123456+01:00 ", "2026-11-22T09:00:00.123456Z"),
            ("2026-11-22 10:00:00-0330", "2026-11-22T13:30:00Z"),
            ("2026-11-22T10:00:00[Europe/Berlin]", "2026-11-22T09:00:00Z"),
            ("2026-10-25T02:30:00+02:00[Europe/Berlin]", "2026-10-25T00:30:00Z"),
        ] {
            assert_eq!(text(parse("--stop-at", time)), utc, "{time}");
        }
    }

    #[test]
    fn a_time_without_a_zone_is_refused_with_a_hint() {
        for time in ["2026-11-22T10:00:00", "2026-11-22 10:00"] {
            let text = refusal(time);
            assert!(text.contains("the zone is missing") && text.contains("2026-11-22T10:00:00Z"), "{text}");
        }
    }

    #[test]
    fn a_local_time_that_is_there_twice_is_refused_with_both_candidates() {
        let text = refusal("2026-10-25T02:30:00[Europe/Berlin]");
        assert!(text.contains("2026-10-25T02:30:00+02:00") && text.contains("2026-10-25T02:30:00+01:00"), "{text}");
    }

    #[test]
    fn a_local_time_that_never_was_is_refused() {
        let text = refusal("2026-03-29T02:30:00[Europe/Berlin]");
        assert!(text.contains("never had this time"), "{text}");
    }

    #[test]
    fn an_invalid_time_is_refused() {
        for time in
            ["", "yesterday", "2026-13-01T00:00:00Z", "10:00Z", "2026-11-22T10:00:00[Mars/Olympus]", "[", "2026-11-22"]
        {
            refusal(time);
        }
    }

    #[test]
    fn an_offset_that_its_zone_does_not_have_is_refused() {
        refusal("2026-11-22T10:00:00+05:00[Europe/Berlin]");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
            let _ = parse("--stop-at", &text);
        }

        #[test]
        fn what_is_shown_is_understood(micros in -1_000_000_000_000_000_i64..4_000_000_000_000_000) {
            proptest::prop_assert_eq!(parse("--stop-at", &show(micros)).unwrap(), micros);
        }
    }
}
