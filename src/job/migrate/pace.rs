//! Whether a target keeps up with its source.

use std::time::{Duration, Instant};

use fullbore_engines::engine::Standing;

use super::Event;

/// The lag is judged over this time: within it, a target that keeps up is near its source at least once.
const WINDOW: Duration = Duration::from_secs(10);

/// The pace so far.
pub struct Pace {
    max_lag: Duration,
    near: bool,
    /// When the target was near for the last time.
    last_near: Option<Instant>,
    /// The beginning of the window, and the lag then.
    window: Option<(Instant, Duration)>,
    told_near: bool,
    behind: bool,
}

impl Pace {
    /// A target is near with at most this lag.
    pub fn new(max_lag: Duration) -> Self {
        Self { max_lag, near: false, last_near: None, window: None, told_near: false, behind: false }
    }

    /// Looks at a step, which took so long; gives what is worth a message. A step ends where the log ended when it began.
    pub fn look(&mut self, now: Instant, standing: &Standing, took: Duration) -> Option<Event> {
        let is_short = standing.lag.is_some_and(|lag| lag <= self.max_lag);
        self.near = if standing.at_end { took <= self.max_lag } else { is_short && !standing.is_inside };
        if self.near {
            self.last_near = Some(now);
            self.window = None;
            self.behind = false;
            return (!std::mem::replace(&mut self.told_near, true)).then_some(Event::KeepsUp(*standing));
        }
        let current = standing.lag?;
        let (since, lag) = *self.window.get_or_insert((now, current));
        if now.saturating_duration_since(since) < WINDOW {
            return None;
        }
        self.window = Some((now, current));
        let grows = current >= lag;
        let news = grows && !self.behind;
        self.behind = grows;
        news.then_some(Event::Behind(*standing))
    }

    /// Whether the target was near in the last step.
    pub fn is_near(&self) -> bool {
        self.near
    }

    /// Whether the target was near, and does not fall behind now.
    pub fn keeps_up(&self) -> bool {
        self.last_near.is_some() && !self.behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(100);

    #[test]
    fn a_target_keeps_up_if_it_is_near_once_and_its_lag_does_not_grow() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let lag = |seconds| Standing { lag: Some(Duration::from_secs(seconds)), ..Standing::default() };
        let mut pace = Pace::new(Duration::from_secs(1));
        assert_eq!(pace.look(at(0), &Standing::default(), SHORT), None);
        assert!(!pace.is_near(), "an unknown lag is not near");
        let inside = Standing { lag: Some(Duration::ZERO), is_inside: true, ..Standing::default() };
        assert_eq!(pace.look(at(0), &inside, SHORT), None);
        assert!(!pace.is_near(), "a transaction that is being applied may be large");
        let mut pace = Pace::new(Duration::from_secs(1));
        assert_eq!(pace.look(at(0), &lag(60), SHORT), None);
        assert_eq!(pace.look(at(11), &lag(40), SHORT), None, "it comes nearer");
        assert!(!pace.keeps_up());
        assert!(matches!(pace.look(at(30), &lag(1), SHORT), Some(Event::KeepsUp(_))));
        assert!(pace.keeps_up() && pace.is_near());
        assert_eq!(pace.look(at(31), &lag(5), SHORT), None);
        assert!(pace.keeps_up() && !pace.is_near());
        assert!(matches!(pace.look(at(42), &lag(9), SHORT), Some(Event::Behind(_))));
        assert_eq!(pace.look(at(53), &lag(19), SHORT), None, "it was said");
        assert!(!pace.keeps_up());
        let end = Standing { at_end: true, ..Standing::default() };
        assert_eq!(pace.look(at(60), &end, Duration::from_secs(5)), None);
        assert!(!pace.is_near(), "the source may have logged for five seconds since");
        assert_eq!(pace.look(at(61), &end, SHORT), None);
        assert!(pace.keeps_up());
    }
}
