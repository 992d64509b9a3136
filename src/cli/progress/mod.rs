//! Progress of a running job on standard error: a small picture on a terminal, one changing line, or
//! plain lines.

mod draw;
mod follower;
mod history;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore::units::{mib_per_s, show_bytes};
use fullbore_core::meter::{Account, Progress};
use fullbore_core::threads;
use fullbore_model::verdict::interval;

use super::args::{How, OutputFlags};
use super::show::{self, Terminal};
pub use follower::FollowerLine;
use history::{History, Moment};

/// How often a terminal is redrawn, and how often a plain line is checked for.
const REDRAWN: Duration = Duration::from_millis(250);
const LOOKED: Duration = Duration::from_millis(500);
/// The interval of the limit on a changing line. With a shorter interval, it would flicker.
const RECENT: Duration = Duration::from_secs(2);

/// The display of one job.
pub struct Display {
    stop: Option<(Sender<()>, JoinHandle<()>)>,
}

/// The form of the display, which depends on standard error.
enum Style {
    Lines,
    Percent,
    OneLine(Terminal),
    Picture(Terminal),
}

impl Style {
    fn of(how: How) -> Self {
        let terminal = Terminal::on_standard_error();
        match (how, terminal) {
            (How::Percent, _) => Self::Percent,
            (How::Auto | How::Rich, Some(terminal)) if terminal.is_able() => Self::Picture(terminal),
            (How::Auto | How::Rich | How::Line, Some(terminal)) => Self::OneLine(terminal),
            _ => Self::Lines,
        }
    }
}

impl Display {
    /// Starts the display, unless the user wants quiet. Without a display, the job still runs.
    pub fn start(verb: &str, shown: &OutputFlags, progress: &Arc<Progress>) -> Self {
        if shown.quiet && shown.progress != How::Percent || shown.progress == How::None {
            return Self::none();
        }
        let (sender, receiver) = channel();
        let (progress, verb, step) = (Arc::clone(progress), verb.to_owned(), u64::from(shown.stats));
        let shape = Style::of(shown.progress);
        let show = move || match shape {
            Style::Lines => lines(&verb, &progress, step, &receiver),
            Style::Percent => percent(&progress, step, &receiver),
            Style::OneLine(terminal) => one_line(&verb, &progress, terminal, &receiver),
            Style::Picture(terminal) => picture(&verb, &progress, terminal, &receiver),
        };
        match threads::start("progress", show) {
            Ok(thread) => Self { stop: Some((sender, thread)) },
            Err(_) => {
                show::note("progress is not shown: its thread cannot be started");
                Self::none()
            }
        }
    }

    /// Shows nothing.
    pub fn none() -> Self {
        Self { stop: None }
    }

    /// Ends the display.
    pub fn stop(self) {
        if let Some((sender, thread)) = self.stop {
            drop(sender);
            let _ = thread.join();
        }
    }
}

fn goes_on(receiver: &Receiver<()>, pause: Duration) -> bool {
    matches!(receiver.recv_timeout(pause), Err(RecvTimeoutError::Timeout))
}

/// A line in steps of `step` percent.
fn lines(verb: &str, progress: &Progress, step: u64, receiver: &Receiver<()>) {
    let (mut begun, mut next, mut before) = (Instant::now(), step, progress.live());
    while goes_on(receiver, LOOKED) {
        let (done, total, stored) = progress.read();
        if done == 0 {
            begun = Instant::now(); // Waiting for a lock and measuring the limit are not the speed of the job.
        }
        let share = (done * 100).checked_div(total).unwrap_or(0);
        if share >= next {
            let now = progress.live();
            show::message(&progress_line(verb, (done, total, stored), begun.elapsed(), limit(&before, &now)));
            // Beyond the total, which was an estimate then, the bytes double from line to line.
            (next, before) = (((share / step + 1) * step).max(if share >= 100 { 2 * share } else { 0 }), now);
        }
    }
}

/// A line for each step of `step` percent, also for the steps of the last moment.
fn percent(progress: &Progress, step: u64, receiver: &Receiver<()>) {
    let mut next = step;
    loop {
        let runs = goes_on(receiver, LOOKED);
        let (done, total, _) = progress.read();
        let most = if runs && done > total { 99 } else { 100 };
        let share = (done * 100).checked_div(total).unwrap_or(0).min(most);
        while next <= share {
            show::line(&format!("{next} percent processed."));
            next += step;
        }
        if !runs {
            return;
        }
    }
}

/// One line, written over and over.
fn one_line(verb: &str, progress: &Progress, mut terminal: Terminal, receiver: &Receiver<()>) {
    let mut history = History::default();
    while goes_on(receiver, REDRAWN) {
        history.add(Moment::now(progress));
        let limit = history.recent(RECENT).limit;
        let (text, width) = (progress_line(verb, progress.read(), history.elapsed(), limit), terminal.width());
        terminal.draw(&[draw::cut(&text, width.saturating_sub(1))]);
    }
    terminal.clear();
}

/// The stages, the speed, the time left and the memory.
fn picture(verb: &str, progress: &Progress, mut terminal: Terminal, receiver: &Receiver<()>) {
    let mut history = History::default();
    while goes_on(receiver, REDRAWN) {
        history.add(Moment::now(progress));
        let lines = draw::picture(&history.view(verb, RECENT), terminal.width(), terminal.colours());
        // On a low terminal, the top lines would scroll away and could not be overwritten.
        let fits = lines.len().min(terminal.height().saturating_sub(1).max(1));
        terminal.draw(&lines[..fits]);
    }
    terminal.clear();
}

fn limit(before: &[(&'static str, Account); 3], now: &[(&'static str, Account); 3]) -> Option<&'static str> {
    interval(before, now).limit
}

fn progress_line(
    verb: &str,
    (done, total, stored): (u64, u64, u64),
    elapsed: Duration,
    limit: Option<&'static str>,
) -> String {
    let speed = mib_per_s(done, elapsed.as_secs_f64());
    let (share, total_shown) = match draw::share(done, total) {
        Some(share) => (format!("{share:3} % "), format!(" of {}", show_bytes(total))),
        None => (String::new(), String::new()),
    };
    let left = if done > 0 && total > done {
        let seconds = elapsed.as_secs_f64() * (total - done) as f64 / done as f64;
        format!(", about {seconds:.0} s left")
    } else {
        String::new()
    };
    let limit = limit.map_or_else(String::new, |stage| format!(", limit {stage}"));
    format!(
        "{verb}: {share}{}{total_shown}, {speed:.0} MiB/s, media {}{left}{limit}",
        show_bytes(done),
        show_bytes(stored)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_ends_with_the_limit_of_its_interval() {
        let line = |limit| progress_line("backup", (64 << 20, 128 << 20, 32 << 20), Duration::from_secs(2), limit);
        let start = "backup:  50 % 64.0 MiB of 128.0 MiB, 32 MiB/s, media 32.0 MiB, about 2 s left";
        assert_eq!(line(Some("transform")), format!("{start}, limit transform"));
        assert_eq!(line(None), start);
    }
}
