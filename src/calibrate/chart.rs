//! A profile as charts: SVG without scripts, which scales with its page.

use std::fmt::Write;

use fullbore_core::units::{MIB, counted, show_bytes};
use fullbore_model::profile::{Access, Cell, MeasuredPath, Order, Profile, rate};
use fullbore_model::xml::escaped;

/// Units of the whole drawing and of its margins.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 48.0;
/// Lines of the grid.
const STEPS: u32 = 4;
/// Colours that colour-blind people can distinguish too (Okabe and Ito, 2008).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// A line of a chart.
struct Line {
    name: String,
    /// Number in flight, MiB/s.
    points: Vec<(u64, f64)>,
}

/// A bar: its name, MiB/s, and the text in it.
struct Bar {
    name: String,
    value: f64,
    inside: String,
}

/// All charts of a profile: a file name without its extension, and the SVG.
pub fn charts(profile: &Profile) -> Vec<(String, String)> {
    let mut made = Vec::new();
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
                    let title = format!("{titled}{how}: {}", place.path);
                    let chart = line_chart(&title, under_way, &lines);
                    made.push((format!("{}-place{number}-{word}{ending}", profile.name), chart));
                }
                let bars = stream_bars(&cells);
                if bars.len() > 1 {
                    let title = format!("Sequential {word}, {at_once}{how}: {}", place.path);
                    let chart = bar_chart(&title, at_once, &bars);
                    made.push((format!("{}-place{number}-{word}-files{ending}", profile.name), chart));
                }
            }
        }
    }
    let most = profile.codecs.iter().map(|cell| cell.threads).max().unwrap_or(0);
    for (packs, word) in [(true, "pack"), (false, "unpack")] {
        let widest = profile.codecs.iter().filter(|cell| cell.threads == most);
        let bars = widest.filter_map(|cell| {
            let value = rate(if packs { &cell.pack } else { &cell.unpack })? / MIB;
            Some(Bar { name: cell.codec.clone(), value, inside: format!("{:.0} % stored", 100.0 * cell.stored_share) })
        });
        let bars: Vec<Bar> = bars.collect();
        if !bars.is_empty() {
            made.push((
                format!("{}-codecs-{word}", profile.name),
                bar_chart(&format!("Codecs on {}: {word}", counted(most, "thread")), "", &bars),
            ));
        }
    }
    made
}

/// Sequential cells of one way, past the page cache or through it.
fn cells(place: &MeasuredPath, way: Access, direct: bool) -> Vec<&Cell> {
    let counts =
        |cell: &&Cell| cell.shape.way == way && cell.shape.order == Order::Sequential && cell.shape.direct == direct;
    place.cells.iter().filter(counts).collect()
}

/// Cells of one stream by queue depth, a line for each block size.
fn depth_lines(cells: &[&Cell]) -> Vec<Line> {
    let of_one = || cells.iter().filter(|cell| cell.shape.streams == 1);
    let mut blocks: Vec<u64> = of_one().map(|cell| cell.shape.block_bytes).collect();
    blocks.sort_unstable();
    blocks.dedup();
    let line = |block: u64| {
        let of = of_one().filter(|cell| cell.shape.block_bytes == block);
        let mut points: Vec<(u64, f64)> = of.map(|cell| (cell.shape.queue_depth, cell.rate() / MIB)).collect();
        points.sort_by_key(|(depth, _)| *depth);
        Line { name: show_bytes(block), points }
    };
    blocks.into_iter().map(line).collect()
}

/// The fastest block and depth, by files at once.
fn stream_bars(cells: &[&Cell]) -> Vec<Bar> {
    let mut fastest: std::collections::BTreeMap<u64, f64> = std::collections::BTreeMap::new();
    for cell in cells {
        let known = fastest.entry(cell.shape.streams).or_insert(0.0);
        *known = known.max(cell.rate() / MIB);
    }
    let bar = |(streams, value)| Bar { name: format!("{streams}"), value, inside: String::new() };
    fastest.into_iter().map(bar).collect()
}

/// A round number not below `value`, divisible into four steps.
fn ceiling(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1.0).log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|round| *round >= value).unwrap_or(10.0 * power)
}

fn begin(title: &str, most: f64) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"100%\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n<title>{title}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"22\" font-size=\"15\">{title}</text>\n",
        title = escaped(title)
    );
    for step in 0..=STEPS {
        let value = most * f64::from(step) / f64::from(STEPS);
        let y = height_of(value, most);
        svg +=
            &format!("<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\n", WIDTH - RIGHT);
        svg += &text(LEFT - 6.0, y + 4.0, "end", &format!("{value:.0}"));
    }
    svg + &text(LEFT, TOP - 12.0, "end", "MiB/s")
}

fn height_of(value: f64, most: f64) -> f64 {
    HEIGHT - BOTTOM - value / most * (HEIGHT - BOTTOM - TOP)
}

fn text(x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n", escaped(text))
}

/// `under_way` is the label of the horizontal axis.
fn line_chart(title: &str, under_way: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = ceiling(points().map(|point| point.1).fold(0.0, f64::max));
    let deepest = points().map(|point| point.0).max().unwrap_or(1).max(2) as f64;
    let across = |depth: u64| LEFT + (depth as f64).log2() / deepest.log2() * (WIDTH - LEFT - RIGHT - 110.0);
    let mut svg = begin(title, most);
    let mut depths: Vec<u64> = points().map(|point| point.0).collect();
    depths.sort_unstable();
    depths.dedup();
    for depth in depths {
        svg += &text(across(depth), HEIGHT - BOTTOM + 18.0, "middle", &depth.to_string());
    }
    svg += &text(LEFT, HEIGHT - 10.0, "start", under_way);
    for ((line, colour), number) in lines.iter().zip(COLOURS.iter().cycle()).zip(0_u32..) {
        let mut along = String::new();
        for (depth, value) in &line.points {
            let (x, y) = (across(*depth), height_of(*value, most));
            let _ = write!(along, "{x:.1},{y:.1} "); // Into a string: it cannot fail.
            svg += &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>\n");
        }
        let along = along.trim_end();
        svg += &format!("<polyline points=\"{along}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n");
        let y = TOP + 18.0 * f64::from(number);
        svg += &format!(
            "<rect x=\"{}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\n",
            WIDTH - 118.0,
            y - 9.0
        );
        svg += &text(WIDTH - 104.0, y, "start", &line.name);
    }
    svg + "</svg>\n"
}

/// `across` is the label of the bars' names.
fn bar_chart(title: &str, across: &str, bars: &[Bar]) -> String {
    let most = ceiling(bars.iter().map(|bar| bar.value).fold(0.0, f64::max));
    let each = (WIDTH - LEFT - RIGHT) / bars.len() as f64;
    let mut svg = begin(title, most);
    for (bar, number) in bars.iter().zip(0_u32..) {
        let (x, y) = (LEFT + each * f64::from(number) + each * 0.15, height_of(bar.value, most));
        let (width, height) = (each * 0.7, HEIGHT - BOTTOM - y);
        let colour = COLOURS[0];
        svg += &format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>\n"
        );
        let middle = x + width / 2.0;
        svg += &text(middle, y - 5.0, "middle", &format!("{:.0}", bar.value));
        svg += &text(middle, HEIGHT - BOTTOM + 18.0, "middle", &bar.name);
        svg += &text(middle, HEIGHT - BOTTOM + 36.0, "middle", &bar.inside);
    }
    svg += &text(LEFT, HEIGHT - 10.0, "start", across);
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_model::profile::{AccessPattern, Round, Settings, Use};

    #[test]
    fn the_scale_of_a_chart_ends_at_a_round_number_above_everything() {
        for (value, end) in [(0.0, 1.0), (1.0, 1.0), (950.0, 1000.0), (1_210.0, 1_600.0), (2_390.0, 2_400.0)] {
            assert!((ceiling(value) - end).abs() < 1e-9, "{value}: {}", ceiling(value));
        }
    }

    #[test]
    fn a_chart_scales_has_no_script_and_shows_names_as_they_are() {
        let bars = [Bar { name: "<a&b>".into(), value: 3.0, inside: String::new() }];
        let lines = [Line { name: "1 MiB".into(), points: vec![(1, 200.0), (4, 400.0)] }];
        for svg in [bar_chart("a \"title\" <x>", "files", &bars), line_chart("t", "in flight", &lines)] {
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("viewBox"));
            assert!(!svg.contains("<script") && !svg.contains("NaN"), "{svg}");
        }
        assert!(bar_chart("t", "files", &bars).contains("&lt;a&amp;b&gt;"));
        assert!(line_chart("t", "in flight", &lines).contains("polyline"));
    }

    #[test]
    fn what_the_page_cache_gave_is_in_no_chart_with_what_the_device_gave() {
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
        let names: Vec<&str> = charts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["default-place1-reads", "default-place1-reads-files", "default-place1-reads-cached"]);
        let [(_, lines), (_, bars), (_, cached)] = &charts[..] else { unreachable!() };
        assert!(bars.contains(">2850<") && bars.contains(">2687<") && !bars.contains("14127"), "{bars}");
        assert!(bars.contains(">files at once<") && lines.contains(">operations in flight<"));
        assert!(cached.contains(", through the page cache: /data/app.db") && !cached.contains(">3200<"), "{cached}");
        assert!([lines, bars, cached].iter().all(|svg| svg.contains(">MiB/s<") && !svg.contains("not direct")));
    }
}
