//! A profile as charts: SVG without scripts, that scale with their page.

use std::fmt::Write;

use crate::tune::profile::{Cell, Order, Place, Profile, Way, rate};
use crate::units::MIB;
use crate::xml::escaped;

/// Units of the drawing, all of it and its margins.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 48.0;
/// Lines of the grid.
const STEPS: u32 = 4;
/// Colours that are told apart also by those who see few (Okabe and Ito, 2008).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// A line of a chart.
struct Line {
    name: String,
    /// How many are under way, MiB/s.
    points: Vec<(u64, f64)>,
}

/// A bar: what, MiB/s, and what stands in it.
struct Bar {
    name: String,
    value: f64,
    inside: String,
}

/// All charts of a profile: a name for a file without its ending, and the SVG.
pub fn charts(profile: &Profile) -> Vec<(String, String)> {
    let mut made = Vec::new();
    for (place, number) in profile.places.iter().zip(1..) {
        for (way, word) in [(Way::Read, "reads"), (Way::Write, "writes")] {
            let lines = depth_lines(place, way);
            let (titled, at_once, under_way) = match (place.is_in_store(), way) {
                (false, _) => (format!("Sequential {word} of one stream"), "files at once", "operations in flight"),
                (true, Way::Write) => ("Puts of one object by part".into(), "objects at once", "parts in flight"),
                (true, Way::Read) => ("Gets of one object by range".into(), "objects at once", "ranges in flight"),
            };
            if !lines.is_empty() {
                let title = format!("{titled}: {}", place.path);
                let chart = line_chart(&title, under_way, &lines);
                made.push((format!("{}-place{number}-{word}", profile.name), chart));
            }
            let bars = stream_bars(place, way);
            if bars.len() > 1 {
                let title = format!("Sequential {word}, {at_once}: {}", place.path);
                made.push((format!("{}-place{number}-{word}-files", profile.name), bar_chart(&title, &bars)));
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
                bar_chart(&format!("Codecs on {most} threads: {word}"), &bars),
            ));
        }
    }
    made
}

/// Cells of one stream by queue depth, a line for each block size.
fn depth_lines(place: &Place, way: Way) -> Vec<Line> {
    let counts =
        |cell: &&Cell| cell.shape.way == way && cell.shape.order == Order::Sequential && cell.shape.streams == 1;
    let cells: Vec<&Cell> = place.cells.iter().filter(counts).collect();
    let mut kinds: Vec<(u64, bool)> = cells.iter().map(|cell| (cell.shape.block_bytes, cell.shape.direct)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let line = |(block, direct): (u64, bool)| {
        let of = cells.iter().filter(|cell| (cell.shape.block_bytes, cell.shape.direct) == (block, direct));
        let mut points: Vec<(u64, f64)> = of.map(|cell| (cell.shape.queue_depth, cell.rate() / MIB)).collect();
        points.sort_by_key(|(depth, _)| *depth);
        let how = if direct || place.is_in_store() { "" } else { ", not direct" };
        Line { name: format!("{}{how}", crate::units::show_bytes(block)), points }
    };
    kinds.into_iter().map(line).collect()
}

/// The usual block and depth, by files at once.
fn stream_bars(place: &Place, way: Way) -> Vec<Bar> {
    let counts = |cell: &&Cell| cell.shape.way == way && cell.shape.order == Order::Sequential;
    let mut fastest: std::collections::BTreeMap<u64, f64> = std::collections::BTreeMap::new();
    for cell in place.cells.iter().filter(counts) {
        let known = fastest.entry(cell.shape.streams).or_insert(0.0);
        *known = known.max(cell.rate() / MIB);
    }
    let bar = |(streams, value)| Bar { name: format!("{streams}"), value, inside: String::new() };
    fastest.into_iter().map(bar).collect()
}

/// A round number not below `value`, which four steps divide well.
fn ceiling(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1.0).log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|round| *round >= value).unwrap_or(10.0 * power)
}

fn begin(title: &str, most: f64) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"100%\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n<title>{title}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n<text x=\"12\" y=\"22\" font-size=\"15\">{title}</text>\n",
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

/// `under_way` says what is counted across.
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

fn bar_chart(title: &str, bars: &[Bar]) -> String {
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
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for svg in [bar_chart("a \"title\" <x>", &bars), line_chart("t", "in flight", &lines)] {
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("viewBox"));
            assert!(!svg.contains("<script") && !svg.contains("NaN"), "{svg}");
        }
        assert!(bar_chart("t", &bars).contains("&lt;a&amp;b&gt;"));
        assert!(line_chart("t", "in flight", &lines).contains("polyline"));
    }
}
