//! A profile as charts, and the page that shows them all.

use std::collections::BTreeMap;

use fullbore_core::units::{MIB, counted, show_bytes};
use fullbore_model::profile::{Access, Cell, CodecCell, MeasuredPath, Order, Profile, Round, rate};
use fullbore_model::svg::{self, Axis, Bar, BarRow, Bars, Chart, Plot, Point, Series, escaped};

const WHISKER: &str = "lowest to highest round";

/// All charts of a profile.
pub fn charts(profile: &Profile) -> Vec<Chart> {
    let mut made = Vec::new();
    let foot = foot(profile);
    let mut add = |name: String, title: String, draw: &dyn Fn(&str) -> String| {
        made.push(Chart { name: format!("{}-{name}", profile.name), svg: draw(&title), title });
    };
    for (place, number) in profile.places.iter().zip(1..) {
        for (way, word) in [(Access::Read, "reads"), (Access::Write, "writes")] {
            let (titled, at_once, under_way) = match (place.is_in_store(), way) {
                (false, _) => (format!("Sequential {word} of one stream"), "files at once", "operations in flight"),
                (true, Access::Write) => ("Puts of one object by part".into(), "objects at once", "parts in flight"),
                (true, Access::Read) => ("Gets of one object by range".into(), "objects at once", "ranges in flight"),
            };
            // Figures of the page cache are not figures of the device: they are never in the same chart.
            for direct in [true, false] {
                let cells = cells(place, way, direct);
                let (how, ending) = match direct || place.is_in_store() {
                    true => ("", ""),
                    false if place.cells.iter().any(|cell| cell.shape.direct) => {
                        (", through the page cache", "-cached")
                    }
                    false => (", through the page cache", ""),
                };
                let lines = depth_lines(&cells);
                if !lines.is_empty() {
                    let x = Axis::Logarithmic(under_way, |depth| depth.to_string());
                    let title = format!("{titled}{how}: {}", place.path);
                    add(format!("place{number}-{word}{ending}"), title, &|title| {
                        Plot { title, foot: &foot, x, y: "MiB/s", series: lines.clone(), whisker: WHISKER }.draw()
                    });
                }
                let rows = stream_bars(&cells, at_once);
                if rows.len() > 1 {
                    let title = format!("Sequential {word}, {at_once}{how}: {}", place.path);
                    add(format!("place{number}-{word}-files{ending}"), title, &|title| {
                        bars(title, &foot, rows.clone())
                    });
                }
            }
        }
    }
    made.extend(codecs(profile, &foot));
    made
}

/// The page with all charts; each is a link to its file.
pub fn page(profile: &Profile, charts: &[Chart]) -> String {
    let shown = |chart: &Chart| format!("<a href=\"{}.svg\">{}</a>", escaped(&chart.name), chart.svg);
    let body = format!(
        "<p class=\"notes\">{}: {} × {}, Linux {}.</p><div class=\"charts\">{}</div>",
        escaped(&foot(profile)),
        profile.machine.cores,
        escaped(&profile.machine.cpu_model),
        escaped(&profile.machine.kernel),
        charts.iter().map(shown).collect::<String>()
    );
    svg::page(&format!("Calibration: profile {}", profile.name), &body)
}

/// Where and when the values were measured.
fn foot(profile: &Profile) -> String {
    let day = profile.made_at.get(..10).unwrap_or_default();
    format!("profile {} of {}, {day}, fullbore {}", profile.name, profile.machine.host, profile.tool_version)
}

fn bars(title: &str, foot: &str, rows: Vec<BarRow>) -> String {
    Bars { title, foot, axis: "MiB/s", rows, whisker: WHISKER, ..Bars::default() }.draw()
}

/// The codecs on the most threads: how fast they pack and unpack, and how small the result is.
fn codecs(profile: &Profile, foot: &str) -> Vec<Chart> {
    let most = profile.codecs.iter().map(|cell| cell.threads).max().unwrap_or(0);
    let widest = || profile.codecs.iter().filter(move |cell| cell.threads == most);
    if widest().next().is_none() {
        return Vec::new();
    }
    let row = |cell: &CodecCell| BarRow {
        name: cell.codec.clone(),
        remark: format!("{:.0} % stored", 100.0 * cell.stored_share),
        bars: [bar("pack", &cell.pack, 0), bar("unpack", &cell.unpack, 1)].into_iter().flatten().collect(),
        ..BarRow::default()
    };
    let point = |cell: &CodecCell| {
        let (x, y) = (100.0 * cell.stored_share, rate(&cell.pack)? / MIB);
        Some(Point { x, y, range: range(&cell.pack), label: cell.codec.clone() })
    };
    let points = widest().filter_map(point).collect();
    let series = Series::best_and_others(points, "no other codec is faster and smaller", "others");
    let x = Axis::Linear("stored bytes, % of the sample");
    let on = format!("Codecs on {}", counted(most, "thread"));
    let (speed, stored) = (format!("{on}: pack and unpack"), format!("{on}: speed over stored size"));
    let plot = Plot { title: &stored, foot, x, y: "MiB/s of packing", series, whisker: WHISKER }.draw();
    let chart = |name: &str, title: String, svg| Chart { name: format!("{}-{name}", profile.name), title, svg };
    let bars = bars(&speed, foot, widest().map(row).collect());
    vec![chart("codecs", speed, bars), chart("codecs-stored", stored, plot)]
}

/// A bar with its value as the label; none if nothing was measured.
fn bar(what: &str, rounds: &[Round], colour: usize) -> Option<Bar> {
    let value = rate(rounds)? / MIB;
    let label = format!("{what} {value:.0}").trim_start().to_owned();
    Some(Bar { label, value, range: range(rounds), colour, marked: false })
}

/// The slowest and the fastest round in MiB/s.
fn range(rounds: &[Round]) -> Option<(f64, f64)> {
    let rates = rounds.iter().map(|round| round.rate() / MIB);
    let (least, most) = rates.fold((f64::INFINITY, 0.0_f64), |(least, most), rate| (least.min(rate), most.max(rate)));
    (!rounds.is_empty()).then_some((least, most))
}

/// Sequential cells of one way, past the page cache or through it.
fn cells(place: &MeasuredPath, way: Access, direct: bool) -> Vec<&Cell> {
    let counts =
        |cell: &&Cell| cell.shape.way == way && cell.shape.order == Order::Sequential && cell.shape.direct == direct;
    place.cells.iter().filter(counts).collect()
}

/// Cells of one stream by queue depth, a line for each block size.
fn depth_lines(cells: &[&Cell]) -> Vec<Series> {
    let mut lines: BTreeMap<u64, Vec<Point>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.shape.streams == 1) {
        let (x, y) = (cell.shape.queue_depth as f64, cell.rate() / MIB);
        let point = Point { x, y, range: range(&cell.rounds), ..Point::default() };
        lines.entry(cell.shape.block_bytes).or_default().push(point);
    }
    let line = |(block, mut points): (u64, Vec<Point>)| {
        points.sort_by(|left, right| left.x.total_cmp(&right.x));
        Series { name: show_bytes(block), joined: true, points }
    };
    lines.into_iter().map(line).collect()
}

/// The fastest block and depth, by files at once.
fn stream_bars(cells: &[&Cell], at_once: &str) -> Vec<BarRow> {
    let mut fastest: BTreeMap<u64, &Cell> = BTreeMap::new();
    for cell in cells {
        let known = fastest.entry(cell.shape.streams).or_insert(cell);
        if known.rate() < cell.rate() {
            *known = cell;
        }
    }
    let row = |(streams, cell): (u64, &Cell)| BarRow {
        name: format!("{streams} {at_once}"),
        remark: format!("blocks of {}, {} in flight", show_bytes(cell.shape.block_bytes), cell.shape.queue_depth),
        bars: bar("", &cell.rounds, 0).into_iter().collect(),
        ..BarRow::default()
    };
    fastest.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_model::profile::{AccessPattern, Settings, Use};

    #[test]
    fn charts_do_not_mix_page_cache_and_device() {
        let cell = |direct: bool, (queue_depth, streams): (u64, u64), mib: u64| {
            let shape = AccessPattern {
                way: Access::Read,
                order: Order::Sequential,
                block_bytes: 1 << 20,
                queue_depth,
                streams,
                direct,
            };
            let round = Round::of(mib << 20, 1.0);
            Cell { shape, rounds: vec![round] }
        };
        let cells = vec![
            cell(false, (4, 1), 14127),
            cell(true, (4, 1), 2850),
            cell(true, (1, 1), 900),
            cell(true, (4, 2), 2687),
        ];
        let place =
            MeasuredPath { path: "/data/app.db".into(), used: Use::Read, device: Some(1), bytes: 1 << 30, cells };
        let settings = Settings { seconds: 1.0, space_bytes: None, throttle_bytes_per_s: None };
        let profile = Profile { places: vec![place], ..Profile::begin("default", settings) };
        let charts = charts(&profile);
        let names: Vec<&str> = charts.iter().map(|chart| chart.name.as_str()).collect();
        assert_eq!(names, ["default-place1-reads", "default-place1-reads-files", "default-place1-reads-cached"]);
        let [lines, bars, cached] = [0, 1, 2].map(|at: usize| charts[at].svg.as_str());
        assert!(bars.contains(">2850<") && bars.contains(">2687<") && !bars.contains("14127"), "{bars}");
        assert!(bars.contains(">2 files at once<") && lines.contains(">operations in flight<"));
        assert!(cached.contains(", through the page cache: /data/app.db") && !cached.contains(">4000<"), "{cached}");
        assert!([lines, bars, cached].iter().all(|svg| svg.contains(">MiB/s<") && !svg.contains("not direct")));
        let page = page(&profile, &charts);
        assert_eq!(page.matches("<svg ").count(), 3);
        assert!(page.contains("<a href=\"default-place1-reads-cached.svg\">"), "{page}");
    }

    #[test]
    fn codecs_are_shown_on_the_most_threads_with_both_directions_and_their_size() {
        let codec = |name: &str, threads: u64, mib: u64, stored_share: f64| CodecCell {
            codec: name.into(),
            threads,
            stored_share,
            stored_share_error: 0.0,
            context_bytes: 0,
            pack: vec![Round::of(mib << 20, 1.0), Round::of(mib << 20, 2.0), Round::of(mib << 20, 0.5)],
            unpack: vec![Round::of(mib << 21, 1.0)],
        };
        let settings = Settings { seconds: 1.0, space_bytes: None, throttle_bytes_per_s: None };
        let mut profile = Profile::begin("default", settings);
        profile.codecs = vec![codec("lz4", 1, 77, 0.5), codec("lz4", 2, 500, 0.5), codec("<zstd:1>", 2, 300, 0.4)];
        let charts = charts(&profile);
        let names: Vec<&str> = charts.iter().map(|chart| chart.name.as_str()).collect();
        assert_eq!(names, ["default-codecs", "default-codecs-stored"]);
        for text in [">pack 500<", ">unpack 1000<", ">50 % stored<", ">&lt;zstd:1&gt;<", ">lowest to highest round<"] {
            assert!(charts[0].svg.contains(text), "{text}: {}", charts[0].svg);
        }
        assert!(charts[1].svg.contains(">stored bytes, % of the sample<") && !charts[0].svg.contains("pack 77<"));
    }
}
