//! The limit of the last interval, for the display while a job runs.

use fullbore_core::meter::Account;

/// From this share on, a stage is busy most of the time.
const MOST: f64 = 0.5;

/// The work of the stages between two looks.
#[derive(Debug, Clone, PartialEq)]
pub struct Interval {
    /// Name and busy share of each stage, 0…1; `None` if its threads booked nothing.
    pub stages: [(&'static str, Option<f64>); 3],
    /// The busiest stage, if it was busy most of its time.
    pub limit: Option<&'static str>,
}

/// Compares two looks at the accounts of the stages. There is no limit before the first stage begins.
pub fn interval(before: &[(&'static str, Account); 3], now: &[(&'static str, Account); 3]) -> Interval {
    let share = |at: usize| {
        let ((_, before), (name, now)) = (&before[at], &now[at]);
        let busy = now.busy.saturating_sub(before.busy).as_secs_f64();
        let all = now.time().saturating_sub(before.time()).as_secs_f64();
        (*name, (all > 0.0 && !name.is_empty()).then(|| busy / all))
    };
    let stages: [(&'static str, Option<f64>); 3] = std::array::from_fn(share);
    let known = stages.iter().filter_map(|(name, share)| share.map(|share| (*name, share)));
    // One stage alone cannot be compared.
    let several = known.clone().count() > 1;
    let most = known.max_by(|one, other| one.1.total_cmp(&other.1));
    Interval { stages, limit: most.filter(|(_, share)| several && *share >= MOST).map(|(name, _)| name) }
}
