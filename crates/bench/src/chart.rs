//! Charts as SVG text: bars for each configuration, lines over a number, shares of the stages. They are 360 units wide,
//! as a phone is. Colours are in CSS, so that they follow a dark or a light page.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::matrix::Axis;
use super::medians::Row;
use super::tables::groups;
use fullbore_core::units;
use fullbore_model::xml::escaped;

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// The name of its file, without an extension.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The whole image.
    pub svg: String,
}

const WIDTH: f64 = 360.0;
/// The area of the lines: left, right, top, bottom.
const FIELD: (f64, f64, f64, f64) = (44.0, 350.0, 16.0, 196.0);
/// Series that can be told apart by colour.
const COLOURS: usize = 6;
/// Bars in one chart; further ones are in the table.
const MOST_BARS: usize = 40;

const STYLE: &str = "text{font:11px system-ui,sans-serif;fill:currentColor}.muted{opacity:.65}\
                     .axis{stroke:currentColor;opacity:.25}\
.s0{--c:#2563eb}.s1{--c:#ea580c}.s2{--c:#16a34a}.s3{--c:#9333ea}.s4{--c:#0891b2}.s5{--c:#db2777}\
.fill{fill:var(--c)}.line{stroke:var(--c);fill:none;stroke-width:2}svg{color:#1c1917}\
@media(prefers-color-scheme:dark){svg{color:#e7e5e4}.s0{--c:#60a5fa}.s1{--c:#fb923c}.s2{--c:#4ade80}.s3{--c:#c084fc}\
.s4{--c:#22d3ee}.s5{--c:#f472b6}}";

/// All charts of a matrix.
pub fn charts(rows: &[Row]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (number, (group, rows)) in groups(rows).into_iter().enumerate() {
        let rows: Vec<&Row> = rows.into_iter().filter(|row| row.failed.is_none()).collect();
        let number = number + 1;
        if rows.is_empty() {
            continue;
        }
        charts.push(Chart { name: format!("{number}-speed"), title: format!("{group}: MiB/s"), svg: bars(&rows) });
        for axis in
            [Axis::BufferCount, Axis::Stripes, Axis::Devices, Axis::BlockSize, Axis::MaxTransferSize, Axis::Workers]
        {
            let series = series(&rows, axis);
            if series.iter().any(|(_, points)| points.len() > 1) {
                charts.push(Chart {
                    name: format!("{number}-{}", axis.name()),
                    title: format!(
                        "{group}: MiB/s over {}{}",
                        axis.name(),
                        if axis.is_a_size() { " in KiB" } else { "" }
                    ),
                    svg: lines(&series),
                });
            }
        }
        if rows.iter().any(|row| !row.stages.is_empty()) {
            charts.push(Chart {
                name: format!("{number}-stages"),
                title: format!("{group}: how busy each stage was"),
                svg: shares(&rows),
            });
        }
    }
    charts
}

fn image(height: f64, content: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"100%\" role=\"img\">\
         <style>{STYLE}</style>{content}</svg>"
    )
}

/// A bar for each row, with its name above and its speed behind; a thin line from the least to the greatest speed.
fn bars(rows: &[&Row]) -> String {
    let most = rows.iter().map(|row| row.range.1.max(row.mib_per_s)).fold(1e-9, f64::max);
    let room = WIDTH - 70.0;
    let mut content = String::new();
    for (at, row) in rows.iter().take(MOST_BARS).enumerate() {
        let top = at as f64 * 34.0;
        let length = |speed: f64| (speed / most * room).max(1.0);
        let (bar, least, greatest) = (length(row.mib_per_s), length(row.range.0), length(row.range.1));
        let _ = write!(
            content,
            "<text x=\"0\" y=\"{:.0}\">{}</text><rect class=\"s0 fill\" x=\"0\" y=\"{:.0}\" width=\"{bar:.1}\" \
             height=\"12\" rx=\"2\"/>\
             <line class=\"axis\" style=\"opacity:.8\" x1=\"{least:.1}\" x2=\"{greatest:.1}\" y1=\"{:.0}\" y2=\"{:.0}\
             \"/>\
             <text x=\"{:.1}\" y=\"{:.0}\">{:.0}</text>",
            top + 12.0,
            escaped(&row.label()),
            top + 16.0,
            top + 22.0,
            top + 22.0,
            bar.max(greatest) + 6.0,
            top + 26.0,
            row.mib_per_s,
        );
    }
    image(rows.len().min(MOST_BARS) as f64 * 34.0 + 2.0, &content)
}

/// A line of points for each combination of the other axes.
type Series = Vec<(String, Vec<(f64, f64)>)>;

fn series(rows: &[&Row], axis: Axis) -> Series {
    let mut found: Series = Vec::new();
    let differ: Vec<Axis> = Axis::ALL
        .into_iter()
        .filter(|other| {
            *other != axis && rows.windows(2).any(|pair| pair[0].cell.get(*other) != pair[1].cell.get(*other))
        })
        .collect();
    for row in rows {
        let Some(number) = row.cell.get(axis).and_then(|word| number(axis, word)) else { return Vec::new() };
        let words: Vec<&str> = differ.iter().filter_map(|other| row.cell.get(*other)).collect();
        let name = words.join(", ");
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push((number, row.mib_per_s)),
            None => found.push((name, vec![(number, row.mib_per_s)])),
        }
    }
    for (_, points) in &mut found {
        points.sort_by(|left, right| left.0.total_cmp(&right.0));
    }
    found
}

/// A number; on an axis of sizes in KiB, for any unit in the text.
fn number(axis: Axis, word: &str) -> Option<f64> {
    match axis.is_a_size() {
        true => units::bytes(axis.name(), word).ok().map(|bytes| bytes as f64 / 1024.0),
        false => word.parse().ok(),
    }
}

/// Points over a logarithmic axis, joined; the names of the series below, two in a line.
fn lines(series: &Series) -> String {
    let (left, right, top, bottom) = FIELD;
    let points = || series.iter().flat_map(|(_, points)| points);
    let most = points().map(|point| point.1).fold(1e-9, f64::max);
    let (least_x, most_x) =
        points().fold((f64::INFINITY, 0.0_f64), |(least, most), point| (least.min(point.0), most.max(point.0)));
    let span = (most_x / least_x.max(1e-9)).ln().max(1e-9);
    let x = |value: f64| left + (value / least_x.max(1e-9)).ln() / span * (right - left);
    let y = |value: f64| bottom - value / most * (bottom - top);
    let mut content = String::new();
    for share in [0.0, 0.5, 1.0] {
        let at = y(most * share);
        let _ = write!(
            content,
            "<line class=\"axis\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text class=\"muted\" \
             text-anchor=\"end\" x=\"{}\" y=\"{:.1}\">{:.0}</text>",
            left - 4.0,
            at + 4.0,
            most * share
        );
    }
    let ticks: BTreeMap<u64, f64> = points().map(|point| ((point.0 * 1000.0) as u64, point.0)).collect();
    for value in ticks.values() {
        let _ = write!(
            content,
            "<text class=\"muted\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{value}</text>",
            x(*value),
            bottom + 16.0
        );
    }
    for (at, (name, points)) in series.iter().enumerate() {
        let colour = at % COLOURS;
        let path: Vec<String> = points.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
        let _ = write!(content, "<polyline class=\"s{colour} line\" points=\"{}\"/>", path.join(" "));
        for point in points {
            let _ = write!(
                content,
                "<circle class=\"s{colour} fill\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>",
                x(point.0),
                y(point.1)
            );
        }
        let line = bottom + 36.0 + at as f64 * 16.0;
        let _ = write!(
            content,
            "<rect class=\"s{colour} fill\" x=\"{left}\" y=\"{:.1}\" width=\"10\" height=\"10\"/><text x=\"{}\" \
             y=\"{line:.1}\">{}</text>",
            line - 9.0,
            left + 16.0,
            escaped(if name.is_empty() { "all" } else { name })
        );
    }
    image(bottom + 40.0 + series.len() as f64 * 16.0, &content)
}

/// For each row, a bar for each stage: the share of its threads' time in which it was busy.
fn shares(rows: &[&Row]) -> String {
    let (mut content, mut top) = (String::new(), 0.0);
    let room = WIDTH - 130.0;
    for row in rows.iter().take(MOST_BARS) {
        let _ = write!(content, "<text x=\"0\" y=\"{:.0}\">{}</text>", top + 12.0, escaped(&row.label()));
        for (at, (name, share)) in row.stages.iter().enumerate() {
            let line = top + 17.0 + at as f64 * 14.0;
            let _ = write!(
                content,
                "<text class=\"muted\" x=\"8\" y=\"{:.0}\">{}</text><rect class=\"s{} fill\" x=\"80\" y=\"{line:.0}\" \
                 width=\"{:.1}\" height=\"10\" rx=\"2\"/>\
                 <text x=\"{:.1}\" y=\"{:.0}\">{:.0} %</text>",
                line + 9.0,
                escaped(name),
                at % COLOURS,
                (share * room).max(1.0),
                84.0 + share * room,
                line + 9.0,
                share * 100.0
            );
        }
        top += 26.0 + row.stages.len() as f64 * 14.0;
    }
    image(top + 2.0, &content)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::cells::cells;
    use super::super::matrix::Matrix;
    use super::super::medians::{rows, tests::measured};
    use super::*;

    fn drawn() -> Vec<Chart> {
        let (matrix, cells, records) = measured([[12.0; 3], [6.0; 3], [4.5; 3], [13.0; 3]]);
        charts(&rows(&matrix, &cells, &records))
    }

    #[test]
    fn there_are_bars_lines_over_stripes_and_shares_of_stages() {
        let charts = drawn();
        let names: Vec<&str> = charts.iter().map(|chart| chart.name.as_str()).collect();
        assert_eq!(names, ["1-speed", "1-stripes", "1-stages"]);
        assert_eq!(charts[0].svg.matches("<rect").count(), 4);
        assert_eq!((charts[1].svg.matches("<polyline").count(), charts[1].svg.matches("<circle").count()), (2, 4));
        assert!(charts[2].svg.contains("25 %"));
    }

    #[test]
    fn a_chart_scales_to_its_page_and_follows_its_colours() {
        for Chart { svg, .. } in drawn() {
            assert!(
                svg.starts_with("<svg xmlns=") && svg.contains("viewBox=\"0 0 360 ") && svg.ends_with("</svg>"),
                "{svg}"
            );
            assert!(svg.contains("prefers-color-scheme:dark") && svg.contains("currentColor"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        }
    }

    #[test]
    fn sizes_stand_in_their_order_however_they_are_written() {
        let text = "[data.a]\nsize = \"4MiB\"\n[axes]\nblock-size = [\"64KiB\", 4096, 16384]\n";
        let matrix = Matrix::parse("m.toml", "m", text).unwrap();
        let rows = rows(&matrix, &cells(&matrix).unwrap(), &[]);
        let rows: Vec<&Row> = rows.iter().collect();
        let points: Vec<f64> = series(&rows, Axis::BlockSize)[0].1.iter().map(|point| point.0).collect();
        assert_eq!(points, [4.0, 16.0, 64.0]);
    }

    #[test]
    fn equal_numbers_and_no_speed_divide_by_nothing() {
        let svg = lines(&vec![("a".into(), vec![(4.0, 0.0), (4.0, 0.0)])]);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
