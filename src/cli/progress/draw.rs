//! The picture of `--progress rich`: from a view to lines, nothing else.

use fullbore::units::{MIB, counted, show_bytes};

use super::history::View;

/// The longest bar, and the shortest that is worth drawing.
const LONGEST: usize = 40;
const SHORTEST: usize = 5;
/// Columns of a stage's line besides its bar: name, percent, limit.
const BESIDE: usize = 28;
/// Columns of the line of the speed besides its sparkline.
const BESIDE_SPARKS: usize = 44;
/// Below this width only the first line is drawn.
const NARROW: usize = 24;
const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Bold for the stage that is the limit, and back.
const BOLD: (&str, &str) = ("\x1b[1m", "\x1b[0m");

/// Lines of at most `width` - 1 columns, so that no line wraps. A redraw depends on the place of each line.
pub fn picture(view: &View, width: usize, colours: bool) -> Vec<String> {
    let columns = width.saturating_sub(1);
    let mut lines = vec![cut(&heading(view), columns)];
    if width < NARROW {
        return lines;
    }
    let bar = columns.saturating_sub(BESIDE).min(LONGEST);
    for (name, share) in view.interval.stages.iter().filter(|(name, _)| !name.is_empty()) {
        let is_limit = view.interval.limit == Some(name);
        let line = cut(&stage(name, *share, bar, is_limit), columns);
        lines.push(if is_limit && colours { format!("{}{line}{}", BOLD.0, BOLD.1) } else { line });
    }
    lines.push(cut(&speed(view, columns.saturating_sub(BESIDE_SPARKS).min(LONGEST)), columns));
    lines.push(cut(&memory(view), columns));
    lines
}

/// The first `columns` characters.
pub fn cut(text: &str, columns: usize) -> String {
    text.chars().take(columns).collect()
}

/// The percentage that is done; `None` without a total. More than the total is done if the total was an estimate: it is of no use
/// then.
pub fn share(done: u64, total: u64) -> Option<u64> {
    (done <= total).then(|| (done * 100).checked_div(total)).flatten()
}

fn heading(view: &View) -> String {
    let (done, total, stored) = view.bytes;
    let (share, total) = match share(done, total) {
        Some(share) => (format!("{share:3} %  "), format!(" of {}", show_bytes(total))),
        None => (String::new(), String::new()),
    };
    format!("{}  {share}{}{total}, media {}", view.verb, show_bytes(done), show_bytes(stored))
}

fn stage(name: &str, share: Option<f64>, bar: usize, is_limit: bool) -> String {
    let mark = if is_limit { "  limit" } else { "" };
    let drawn = if bar >= SHORTEST { self::bar(share.unwrap_or(0.0), bar) + "  " } else { String::new() };
    let percent = share.map_or_else(|| "    –".to_owned(), |share| format!("{:3.0} %", 100.0 * share));
    format!("  {name:<10}{drawn}{percent}{mark}")
}

fn bar(share: f64, columns: usize) -> String {
    let full = (share.clamp(0.0, 1.0) * columns as f64).round() as usize;
    "█".repeat(full) + &"░".repeat(columns - full)
}

fn speed(view: &View, columns: usize) -> String {
    let sparks = if columns >= SHORTEST { format!("  {}", sparkline(&view.rates, columns)) } else { String::new() };
    let left = match view.left {
        Some((seconds, uncertain)) => format!("  about {} left (± {})", time(seconds), time(uncertain)),
        None => String::new(),
    };
    format!("  {:>6.0} MiB/s{left}{sparks}", view.rate / MIB)
}

/// The last `columns` rates, relative to the greatest.
fn sparkline(rates: &[f64], columns: usize) -> String {
    let shown = &rates[rates.len().saturating_sub(columns)..];
    let most = shown.iter().copied().fold(0.0, f64::max);
    let spark = |rate: &f64| {
        let height = if most > 0.0 { rate / most * (SPARKS.len() - 1) as f64 } else { 0.0 };
        SPARKS[(height.round() as usize).min(SPARKS.len() - 1)]
    };
    shown.iter().map(spark).collect()
}

/// Seconds below two minutes, else minutes, else hours.
fn time(seconds: f64) -> String {
    match seconds {
        _ if seconds < 120.0 => format!("{seconds:.0} s"),
        _ if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

fn memory(view: &View) -> String {
    let pool = &view.pool;
    format!(
        "  memory {} of {} in use ({}), process {}",
        pool.in_use,
        counted(pool.count as u64, "buffer"),
        show_bytes(pool.bytes_in_use),
        show_bytes(view.resident)
    )
}

#[cfg(test)]
mod tests {
    use fullbore_core::meter::PoolUse;
    use fullbore_model::verdict::Interval;

    use super::*;

    fn view() -> View {
        View {
            verb: "backup".into(),
            bytes: (64 << 20, 128 << 20, 32 << 20),
            rate: 317.2 * MIB,
            rates: (0..8).map(f64::from).collect(),
            left: Some((12.3, 1.9)),
            interval: Interval {
                stages: [("source", Some(0.09)), ("transform", Some(1.0)), ("sink", None)],
                limit: Some("transform"),
            },
            pool: PoolUse { in_use: 18, count: 26, bytes_in_use: 18 << 20 },
            resident: 31 << 20,
        }
    }

    #[test]
    fn everything_has_its_place_on_a_wide_terminal() {
        let expected = [
            "backup   50 %  64.0 MiB of 128.0 MiB, media 32.0 MiB",
            "  source    ████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░    9 %",
            "  transform ████████████████████████████████████████  100 %  limit",
            "  sink      ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░      –",
            "     317 MiB/s  about 12 s left (± 2 s)  ▁▂▃▄▅▆▇█",
            "  memory 18 of 26 buffers in use (18.0 MiB), process 31.0 MiB",
        ];
        assert_eq!(picture(&view(), 100, false), expected);
    }

    #[test]
    fn no_line_is_as_wide_as_the_terminal_however_narrow_that_is() {
        for width in 0..120 {
            for line in picture(&view(), width, false) {
                assert!(line.chars().count() < width.max(1), "{width}: {line}");
            }
        }
        assert_eq!(picture(&view(), 10, false), ["backup   "], "one line where there is no room for bars");
    }

    #[test]
    fn only_with_colours_is_the_limit_bold() {
        let lines = picture(&view(), 80, true);
        assert!(lines[2].starts_with("\x1b[1m  transform") && lines[2].ends_with("limit\x1b[0m"), "{}", lines[2]);
        assert!(picture(&view(), 80, false).iter().all(|line| !line.contains('\x1b')));
    }

    #[test]
    fn unknown_values_are_left_out() {
        let nothing = View {
            bytes: (0, 0, 0),
            rates: Vec::new(),
            left: None,
            rate: 0.0,
            interval: Interval { stages: [("", None); 3], limit: None },
            ..view()
        };
        let lines = picture(&nothing, 80, false);
        assert_eq!(lines[0], "backup  0 bytes, media 0 bytes");
        assert_eq!(lines.len(), 3, "no stages before the first has begun: {lines:?}");
    }

    #[test]
    fn a_sparkline_shows_the_last_rates_by_the_greatest_of_them() {
        assert_eq!(sparkline(&[900.0, 0.0, 50.0, 100.0], 3), "▁▅█");
        assert_eq!(sparkline(&[0.0, 0.0], 5), "▁▁");
        assert_eq!(sparkline(&[], 5), "");
    }

    #[test]
    fn long_times_are_told_in_minutes_and_hours() {
        assert_eq!([5.4, 119.0, 600.0, 9000.0].map(time), ["5 s", "119 s", "10 min", "2.5 h"]);
    }
}
