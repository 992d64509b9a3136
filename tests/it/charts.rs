//! The charts of `bench` and `calibrate`: texts are apart and inside the image, names stay text, and any data is a chart.

use fullbore_model::svg::{Axis, Bar, BarRow, Bars, Plot, Point, Series, WIDTH, page};

/// A rectangle.
#[derive(Debug, Clone, Copy)]
struct Area {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Area {
    fn meets(&self, other: &Self) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    fn contains(&self, other: &Self) -> bool {
        self.left <= other.left && other.right <= self.right && self.top <= other.top && other.bottom <= self.bottom
    }
}

/// The value of an attribute.
fn attribute<'a>(tag: &'a str, name: &str) -> &'a str {
    let from = tag.find(&format!(" {name}=\"")).unwrap_or_else(|| panic!("{name} in {tag}")) + name.len() + 3;
    tag[from..].split('"').next().unwrap_or_default()
}

fn number(tag: &str, name: &str) -> f64 {
    attribute(tag, name).parse().unwrap_or_else(|e| panic!("{name} in {tag}: {e}"))
}

/// The texts of an image, each with the area that it takes in a usual font.
fn texts(svg: &str) -> Vec<(String, Area)> {
    let of = |tag: &str| {
        let text = tag.split_once('>').and_then(|(_, rest)| rest.split_once('<')).map_or("", |(text, _)| text);
        let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
        let size = match attribute(tag, "class") {
            "head" => 14.0,
            "foot" => 10.0,
            _ => 12.0,
        };
        let (x, y, width) = (number(tag, "x"), number(tag, "y"), 0.57 * size * text.chars().count() as f64);
        let left = match attribute(tag, "text-anchor") {
            "end" => x - width,
            "middle" => x - width / 2.0,
            _ => x,
        };
        let area = Area { left, top: y - 0.75 * size, right: left + width, bottom: y + 0.2 * size };
        (text, area)
    };
    svg.split("<text ").skip(1).map(|tag| of(&format!(" {tag}"))).collect()
}

/// Checks an image: its form, its escapes, its numbers, and that its texts are apart and inside.
#[track_caller]
pub fn check(svg: &str) {
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{svg}");
    assert!(svg.contains("prefers-color-scheme:dark") && svg.contains("currentColor"));
    assert!(!svg.contains("NaN") && !svg.contains("inf\"") && !svg.contains("<script"), "{svg}");
    let opened = |name: &str| svg.matches(&format!("<{name}")).count();
    assert_eq!(opened("text"), svg.matches("</text>").count());
    let height: f64 = attribute(svg, "viewBox").rsplit(' ').next().unwrap_or_default().parse().unwrap_or(0.0);
    let texts = texts(svg);
    let whole = Area { left: 0.0, top: 0.0, right: WIDTH, bottom: height };
    assert!(!texts.is_empty());
    for (at, (text, area)) in texts.iter().enumerate() {
        assert!(whole.contains(area), "`{text}` at {area:?} leaves the image of {whole:?}");
        let met = texts[at + 1..].iter().find(|(_, other)| area.meets(other));
        assert!(met.is_none(), "`{text}` at {area:?} meets {met:?}");
    }
    check_shapes(svg);
}

/// An image has this text.
#[track_caller]
pub fn says(svg: &str, wanted: &str) {
    let texts = texts(svg);
    assert!(texts.iter().any(|(text, _)| text.contains(wanted)), "`{wanted}` is not in {texts:?}");
}

/// No bar and no whisker crosses a text.
#[track_caller]
fn check_shapes(svg: &str) {
    let bars = svg.split("<rect ").skip(1).filter(|tag| tag.starts_with("class=\"c")).map(|tag| {
        let tag = format!(" {tag}");
        let (left, top) = (number(&tag, "x"), number(&tag, "y"));
        Area { left, top, right: left + number(&tag, "width"), bottom: top + number(&tag, "height") }
    });
    let whiskers = svg.split("<line ").skip(1).filter(|tag| tag.starts_with("class=\"whisker")).map(|tag| {
        let tag = format!(" {tag}");
        let [x1, y1, x2, y2] = ["x1", "y1", "x2", "y2"].map(|name| number(&tag, name));
        Area { left: x1.min(x2), top: y1.min(y2), right: x1.max(x2), bottom: y1.max(y2) }
    });
    for shape in bars.chain(whiskers) {
        let met = texts(svg).into_iter().find(|(_, area)| area.meets(&shape));
        assert!(met.is_none(), "{shape:?} crosses {met:?}");
    }
}

fn bar(label: &str, value: f64, range: (f64, f64)) -> Bar {
    Bar { label: label.into(), value, range: Some(range), ..Bar::default() }
}

fn row(name: &str, bars: Vec<Bar>) -> BarRow {
    BarRow { name: name.into(), bars, ..BarRow::default() }
}

fn bars(rows: Vec<BarRow>) -> String {
    let (title, foot, axis) = ("backup, a: speed", "here, 2026-11-26", "MiB/s");
    let (colours, whisker) = (&["backup", "restore"][..], "lowest to highest round");
    Bars { title, foot, axis, rows, colours, whisker, end: 0.0 }.draw()
}

fn plot(x: Axis<'_>, series: Vec<Series>) -> String {
    Plot { title: "speed", foot: "here", x, y: "MiB/s", series, whisker: "lowest to highest round" }.draw()
}

fn points(points: &[(f64, f64)]) -> Vec<Point> {
    let point =
        |(x, y): &(f64, f64)| Point { x: *x, y: *y, range: Some((0.9 * y, 1.1 * y)), label: format!("zstd:{y:.0}") };
    points.iter().map(point).collect()
}

#[test]
fn the_label_of_a_bar_is_at_its_foot_and_a_whisker_has_a_legend() {
    let svg = bars(vec![
        row("none, 1 file", vec![bar("782", 782.0, (300.0, 1990.0)), bar("930", 930.0, (930.0, 930.0))]),
        BarRow {
            marked: true,
            remark: "fastest, 9.00 s".into(),
            ..row("lz4", vec![bar("1200", 1200.0, (1.0, 1300.0))])
        },
    ]);
    check(&svg);
    let texts = texts(&svg);
    let at = |wanted: &str| texts.iter().find(|(text, _)| text == wanted).map(|(_, area)| *area).expect("a text");
    assert!((at("782").right - at("1200").right).abs() < 0.1 && at("782").right < at("1000").left, "{texts:?}");
    for text in ["MiB/s", "backup", "restore", "lowest to highest round", "fastest, 9.00 s", "here, 2026-11-26"] {
        at(text);
    }
    assert_eq!(svg.matches("<line class=\"whisker").count(), 3 * 3, "two bars and the legend");
    let calm = bars(vec![row("none", vec![bar("782", 782.0, (782.0, 782.0))])]);
    assert!(!calm.contains("lowest to highest round") && !calm.contains("<line class=\"whisker\""), "{calm}");
}

#[test]
fn nothing_one_point_and_values_that_are_no_numbers_are_charts_too() {
    let logarithmic = Axis::Logarithmic("queue depth", |value| value.to_string());
    for svg in [
        bars(Vec::new()),
        bars(vec![row("", vec![bar("0", 0.0, (0.0, 0.0))])]),
        bars(vec![row("a", vec![bar("?", f64::NAN, (f64::INFINITY, 0.0))])]),
        plot(logarithmic, Vec::new()),
        plot(logarithmic, vec![Series { points: points(&[(4.0, 0.0), (4.0, 0.0)]), ..Series::default() }]),
        plot(Axis::Linear("%"), vec![Series { points: points(&[(f64::NAN, f64::INFINITY)]), ..Series::default() }]),
    ] {
        check(&svg);
    }
    assert!(bars(Vec::new()).contains("nothing was measured"));
}

#[test]
fn names_stay_text_wherever_they_are() {
    let hostile = "</text><script>\"&";
    let mut named = points(&[(40.0, 100.0)]);
    named[0].label = hostile.into();
    let series = vec![Series { name: hostile.into(), joined: true, points: named }];
    for svg in [
        bars(vec![BarRow { remark: hostile.into(), ..row(hostile, vec![bar(hostile, 1.0, (1.0, 2.0))]) }]),
        Plot { title: hostile, foot: hostile, x: Axis::Linear(hostile), y: hostile, series, whisker: hostile }.draw(),
    ] {
        check(&svg);
        assert!(svg.contains("&lt;/text&gt;&lt;script&gt;&quot;&amp;"), "{svg}");
    }
    assert!(page(hostile, "").contains("<title>&lt;/text&gt;&lt;script&gt;&quot;&amp;</title>"));
}

#[test]
fn labels_of_points_that_are_close_together_move_apart() {
    let close =
        [(41.0, 500.0), (41.5, 505.0), (42.0, 498.0), (42.5, 510.0), (101.0, 800.0), (100.0, 790.0), (1.0, 2.0)];
    let svg = plot(Axis::Linear("% of the database"), vec![Series { points: points(&close), ..Series::default() }]);
    check(&svg);
    let texts = texts(&svg);
    for (_, y) in close {
        assert!(texts.iter().any(|(text, _)| *text == format!("zstd:{y:.0}")), "{y}: {texts:?}");
    }
}

#[test]
fn many_series_have_a_legend_of_several_lines_and_many_values_fewer_numbers_on_the_axis() {
    let of = |name: usize| Series {
        name: format!("zstd:{name}, 4 files"),
        joined: true,
        points: (0..40).map(|x| Point { x: f64::from(x + 1) * 1024.0, y: 9e9, ..Point::default() }).collect(),
    };
    let svg = plot(Axis::Logarithmic("block-size", |bytes| format!("{bytes} bytes")), (0..14).map(of).collect());
    check(&svg);
    assert_eq!((svg.matches("<polyline").count(), svg.matches(" line dash").count()), (14, 8));
    assert!(texts(&svg).iter().filter(|(text, _)| text.ends_with(" bytes")).count() > 2);
}

#[test]
fn a_codec_is_on_the_line_of_the_best_if_no_other_one_is_faster_and_smaller() {
    let two = Series::best_and_others(points(&[(40.0, 300.0), (100.0, 900.0), (60.0, 200.0)]), "best", "others");
    let names = |series: &Series| -> Vec<String> { series.points.iter().map(|point| point.label.clone()).collect() };
    assert_eq!(names(&two[0]), ["zstd:300", "zstd:900"]);
    assert_eq!((names(&two[1]), two[0].joined, two[1].joined), (vec!["zstd:200".to_owned()], true, false));
    assert_eq!(Series::best_and_others(points(&[(1.0, 1.0)]), "best", "others").len(), 1);
    assert!(Series::best_and_others(Vec::new(), "best", "others").is_empty());
}
