//! The progress line of `log follow`. The job has no end, so the line shows how far it is behind its database.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore::job::follow::{COMMAND, Event};
use fullbore::units::{counted, show_bytes};
use fullbore_core::threads;

use super::{LOOKED, REDRAWN, draw, goes_on};
use crate::cli::args::{How, OutputFlags};
use crate::cli::show::{self, Terminal};

/// The shortest time between plain lines: a follower runs for months.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The display of a follower: its line, and the messages beside it.
pub struct FollowerLine {
    shared: Arc<Shared>,
    stop: Option<(Sender<()>, JoinHandle<()>)>,
}

#[derive(Default)]
struct Shared {
    standing: Mutex<FollowerTotals>,
    /// Where the line is drawn. It is locked during a write, which a terminal may delay. The follower waits for it only
    /// when it has a message.
    terminal: Mutex<Option<Terminal>>,
}

/// The state so far.
#[derive(Debug, Default)]
struct FollowerTotals {
    sets: u64,
    log_bytes: u64,
    stored_bytes: u64,
    /// Everything that was committed before this moment is durable.
    durable_until: Option<Instant>,
    limit: Option<&'static str>,
}

impl FollowerLine {
    /// Starts the display: one line on a terminal, lines with `--progress plain`, and else nothing. Lines would fill
    /// the journal of a service.
    pub fn start(shown: &OutputFlags) -> Self {
        let terminal = match shown.progress {
            _ if shown.quiet => None,
            How::Auto | How::Rich | How::Line => Terminal::on_standard_error(),
            How::Plain | How::Percent | How::None => None,
        };
        let draws = terminal.is_some();
        let shared = Arc::new(Shared { terminal: Mutex::new(terminal), ..Shared::default() });
        if !draws && (shown.quiet || shown.progress != How::Plain) {
            return Self { shared, stop: None };
        }
        let (sender, receiver) = channel();
        let seen = Arc::clone(&shared);
        let thread = threads::start("progress", move || {
            let mut plain = Plain { at: Instant::now(), sets: 0 };
            while goes_on(&receiver, if draws { REDRAWN } else { LOOKED }) {
                seen.show(&mut plain);
            }
        });
        if thread.is_err() {
            show::note("progress is not shown: its thread cannot be started");
        }
        Self { shared, stop: thread.ok().map(|thread| (sender, thread)) }
    }

    /// Notes an event, and prints a message if that is `wanted`.
    pub fn tell(&self, event: &Event, wanted: bool) {
        lock(&self.shared.standing).hear(event);
        if wanted {
            let mut terminal = lock(&self.shared.terminal);
            // The message does not go to the end of the drawn line.
            terminal.iter_mut().for_each(Terminal::clear);
            show::event(event);
        }
    }

    /// Ends the display.
    pub fn stop(self) {
        if let Some((sender, thread)) = self.stop {
            drop(sender);
            let _ = thread.join(); // A panic there is shown by the thread itself.
        }
        lock(&self.shared.terminal).iter_mut().for_each(Terminal::clear);
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last plain line: when it was, and how many sets there were.
struct Plain {
    at: Instant,
    sets: u64,
}

impl Plain {
    /// True if there is news: new sets, or commits that wait for a set.
    fn is_due(&self, now: Instant, standing: &FollowerTotals) -> bool {
        let is_behind = standing.behind(now).is_some_and(|behind| behind >= LINE_EVERY);
        now.saturating_duration_since(self.at) >= LINE_EVERY && (standing.sets > self.sets || is_behind)
    }
}

impl Shared {
    fn show(&self, plain: &mut Plain) {
        let now = Instant::now();
        let (line, sets, is_due) = {
            let standing = lock(&self.standing);
            (standing.line(now), standing.sets, plain.is_due(now, &standing))
        };
        match &mut *lock(&self.terminal) {
            Some(terminal) => {
                let width = terminal.width().saturating_sub(1);
                terminal.draw(&[draw::cut(&line, width)]);
            }
            None if is_due => {
                show::message(&line);
                *plain = Plain { at: now, sets };
            }
            None => {}
        }
    }
}

impl FollowerTotals {
    fn hear(&mut self, event: &Event) {
        match event {
            Event::Shipped(set) => {
                self.sets += 1;
                self.log_bytes += set.log_bytes;
                self.stored_bytes += set.stored_bytes;
                self.limit = set.limit;
            }
            Event::Durable(until) => self.durable_until = Some(*until),
            _ => {}
        }
    }

    /// The greatest age of a commit that is not durable.
    fn behind(&self, now: Instant) -> Option<Duration> {
        self.durable_until.map(|until| now.saturating_duration_since(until))
    }

    fn line(&self, now: Instant) -> String {
        let behind = self.behind(now);
        let behind = behind.map_or_else(String::new, |age| format!(", behind at most {:.1} s", age.as_secs_f64()));
        let limit = self.limit.map_or_else(String::new, |stage| format!(", limit {stage}"));
        let (sets, log, stored) =
            (counted(self.sets, "set"), show_bytes(self.log_bytes), show_bytes(self.stored_bytes));
        format!("{COMMAND}: {sets}, {log} of log, media {stored}{behind}{limit}")
    }
}

#[cfg(test)]
mod tests {
    use fullbore::job::follow::Shipped;

    use super::*;

    fn shipped(limit: Option<&'static str>) -> Event {
        Event::Shipped(Shipped {
            set: "id".into(),
            last: "12:00".into(),
            amount: "3 frames".into(),
            log_bytes: 3 << 20,
            stored_bytes: 1 << 20,
            pace: String::new(),
            limit,
        })
    }

    #[test]
    fn the_line_says_how_far_behind_it_is_and_what_holds_it_up() {
        let (begun, mut standing) = (Instant::now(), FollowerTotals::default());
        assert_eq!(standing.line(begun), "log follow: 0 sets, 0 bytes of log, media 0 bytes");
        standing.hear(&shipped(Some("transform")));
        standing.hear(&Event::Durable(begun));
        let second = Duration::from_secs(1);
        let line = "log follow: 1 set, 3.0 MiB of log, media 1.0 MiB, behind at most 1.0 s, limit transform";
        assert_eq!(standing.line(begun + second), line);
        standing.hear(&shipped(Some("source")));
        standing.hear(&Event::Durable(begun + second));
        let line = "log follow: 2 sets, 6.0 MiB of log, media 2.0 MiB, behind at most 0.5 s, limit source";
        assert_eq!(standing.line(begun + second + second / 2), line);
    }

    #[test]
    fn a_plain_line_comes_seldom_and_when_there_is_something_to_be_said() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let (plain, mut standing) = (Plain { at: begun, sets: 0 }, FollowerTotals::default());
        standing.hear(&Event::Durable(after(19)));
        assert!(!plain.is_due(after(20), &standing), "nothing was committed");
        assert!(plain.is_due(after(30), &standing), "it is ten seconds behind");
        standing.hear(&shipped(None));
        assert!(plain.is_due(after(20), &standing) && !plain.is_due(after(9), &standing));
        assert!(!Plain { at: begun, sets: 1 }.is_due(after(20), &standing), "it was said");
    }
}
