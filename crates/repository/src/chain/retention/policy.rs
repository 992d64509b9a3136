//! The policy: which restore points the user wants to keep, as written in `fullbore.toml`.

use std::fmt;
use std::time::Duration;

use fullbore_core::{Error, Result};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Deserialize;

use fullbore_core::units;

/// The longest recovery window: a longer one is a typing error.
const LONGEST_WINDOW: Duration = Duration::from_secs(100 * 366 * 86_400);
/// The most places that a rule may have.
const MOST_PLACES: u32 = 100_000;

/// The keys of a policy, as a user writes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct KeepRules {
    /// The newest point of each of the last so many fulls and differentials.
    pub last: Option<u32>,
    /// The newest point of each of so many days.
    pub daily: Option<u32>,
    /// The same for ISO weeks.
    pub weekly: Option<u32>,
    /// The same for months.
    pub monthly: Option<u32>,
    /// The same for years.
    pub yearly: Option<u32>,
    /// Every point of this time: `14d`, `36h`, `2w`.
    pub window: Option<String>,
    /// This number of verified chains stays. Without them, nothing is deleted. Default 1.
    pub min_verified_chains: Option<u32>,
    /// Where days, weeks, months and years begin: `Europe/Berlin`. Default `UTC`.
    pub time_zone: Option<String>,
}

/// A policy that keeps something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub(super) places: [(Rule, u32); 5],
    pub(super) window: Option<Duration>,
    pub(super) min_verified_chains: u32,
    pub(super) time_zone: TimeZone,
}

/// A rule with a number of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The last fulls and differentials.
    Last,
    /// Days.
    Daily,
    /// ISO weeks.
    Weekly,
    /// Months.
    Monthly,
    /// Years.
    Yearly,
}

impl KeepRules {
    /// Checks the keys. `thing` is their section: `[repository.nightly.keep]`.
    ///
    /// # Errors
    /// A usage error: a policy that would keep nothing, an unknown time zone, a number out of bounds.
    pub fn policy(&self, thing: &str) -> Result<Policy> {
        let wrong = |why: String, hint: &str| Err(Error::usage(thing, why, hint));
        let keys = [
            (Rule::Last, self.last),
            (Rule::Daily, self.daily),
            (Rule::Weekly, self.weekly),
            (Rule::Monthly, self.monthly),
            (Rule::Yearly, self.yearly),
        ];
        if let Some((rule, _)) = keys.iter().find(|(_, places)| places.is_some_and(|places| places > MOST_PLACES)) {
            return wrong(format!("`{rule}` is more than {MOST_PLACES}"), "use `window` to keep every point");
        }
        let window = self.window.as_ref().map(|text| units::duration(&format!("{thing} window"), text)).transpose()?;
        if window.is_some_and(|window| window > LONGEST_WINDOW) {
            return wrong("the window is longer than 100 years".into(), "write days: window = \"14d\"");
        }
        let window = window.filter(|window| !window.is_zero());
        let places = keys.map(|(rule, places)| (rule, places.unwrap_or(0)));
        if window.is_none() && places.iter().all(|&(_, places)| places == 0) {
            return wrong(
                "this policy would keep nothing".into(),
                "give one of `last`, `daily`, `weekly`, `monthly`, `yearly` or `window`: last = 7",
            );
        }
        let min_verified_chains = self.min_verified_chains.unwrap_or(1);
        if !(1..=MOST_PLACES).contains(&min_verified_chains) {
            return wrong(
                format!("`min-verified-chains` is {min_verified_chains}"),
                "use at least 1: fullbore removes nothing before a newer chain is verified",
            );
        }
        let name = self.time_zone.as_deref().unwrap_or("UTC");
        let time_zone = TimeZone::get(name).map_err(|e| {
            Error::usage(thing, format!("the time zone `{name}` is unknown: {e}"), "write a name like `Europe/Berlin`")
        })?;
        Ok(Policy { places, window, min_verified_chains, time_zone })
    }
}

impl Policy {
    /// The day of a time in microseconds since 1970. A time out of bounds gives the first or the last day.
    pub(super) fn day(&self, micros: i64) -> Date {
        let edge = if micros < 0 { Timestamp::MIN } else { Timestamp::MAX };
        self.time_zone.to_datetime(Timestamp::from_microsecond(micros).unwrap_or(edge)).date()
    }

    /// When the recovery window begins, microseconds since 1970.
    pub(super) fn window_start(&self, now: i64) -> Option<i64> {
        let micros = i64::try_from(self.window?.as_micros()).unwrap_or(i64::MAX);
        Some(now.saturating_sub(micros))
    }
}

impl Rule {
    /// The period that a day is in: equal for days of the same period.
    pub(super) fn period(self, day: Date) -> Period {
        match self {
            Rule::Last | Rule::Daily => Period::Day(day),
            Rule::Weekly => {
                let week = day.iso_week_date();
                Period::Week(week.year(), week.week())
            }
            Rule::Monthly => Period::Month(day.year(), day.month()),
            Rule::Yearly => Period::Year(day.year()),
        }
    }
}

/// A period of the calendar, shown in ISO 8601 notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Period {
    Day(Date),
    Week(i16, i8),
    Month(i16, i8),
    Year(i16),
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Period::Day(day) => write!(f, "{day}"),
            Period::Week(year, week) => write!(f, "{year}-W{week:02}"),
            Period::Month(year, month) => write!(f, "{year}-{month:02}"),
            Period::Year(year) => write!(f, "{year}"),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::Last => "last",
            Rule::Daily => "daily",
            Rule::Weekly => "weekly",
            Rule::Monthly => "monthly",
            Rule::Yearly => "yearly",
        })
    }
}
