//! Points and lines over a number.

use std::fmt::Write;

use super::scale::{Linear, Logarithmic};
use super::{Anchor, Area, COLOURS, Canvas, FONT, LINE, MARGIN, Mark, WIDTH, cut, width_of};

/// Points and lines. The vertical axis begins at 0.
#[derive(Clone)]
pub struct Plot<'a> {
    /// The title.
    pub title: &'a str,
    /// Below the chart: where and when its values were measured.
    pub foot: &'a str,
    /// The horizontal axis.
    pub x: Axis<'a>,
    /// The values of the vertical axis, with their unit.
    pub y: &'a str,
    /// The points.
    pub series: Vec<Series>,
    /// What the line over a point is, if a point has one.
    pub whisker: &'a str,
}

/// A horizontal axis.
#[derive(Clone, Copy)]
pub enum Axis<'a> {
    /// From 0 to a round number; the title with its unit.
    Linear(&'a str),
    /// From the least to the greatest value, logarithmic; the title, and the text of a value.
    Logarithmic(&'a str, fn(f64) -> String),
}

/// Points of one colour.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// Its name in the legend; no entry if it is empty.
    pub name: String,
    /// A line joins its points.
    pub joined: bool,
    /// The points.
    pub points: Vec<Point>,
}

/// A point.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Point {
    /// The number below.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// The least and the greatest value: the ends of its whisker.
    pub range: Option<(f64, f64)>,
    /// The text beside it.
    pub label: String,
}

impl Point {
    fn whisker(&self) -> Option<(f64, f64)> {
        self.range.filter(|(least, greatest)| least < greatest)
    }

    /// Another point is better: its `x` is not larger, its `y` is not smaller, and they are not equal.
    fn is_beaten_by(&self, other: &Self) -> bool {
        other.x <= self.x && other.y >= self.y && (other.x, other.y) != (self.x, self.y)
    }
}

impl Series {
    /// Two series, for points whose `x` should be small and whose `y` should be large: the points that no other point
    /// beats, joined, and the other points.
    pub fn best_and_others(points: Vec<Point>, best: &str, others: &str) -> Vec<Self> {
        let beaten = |point: &Point| points.iter().any(|other| point.is_beaten_by(other));
        let (mut first, rest): (Vec<Point>, Vec<Point>) = points.iter().cloned().partition(|point| !beaten(point));
        first.sort_by(|one, other| one.x.total_cmp(&other.x));
        let series = |name: &str, joined, points| Self { name: name.into(), joined, points };
        let both = [series(best, true, first), series(others, false, rest)];
        both.into_iter().filter(|series| !series.points.is_empty()).collect()
    }
}

/// Units of the height of the field.
const HEIGHT: f64 = 190.0;
/// The points keep this distance from the sides of the field.
const INSET: f64 = 14.0;
const RADIUS: f64 = 3.5;

impl Plot<'_> {
    /// The image.
    pub fn draw(&self) -> String {
        let mut canvas = Canvas::new(self.title);
        canvas.y += LINE;
        canvas.text((MARGIN, canvas.y - 3.0), Anchor::Start, "muted", &cut(self.y, WIDTH - 2.0 * MARGIN));
        let points = || self.series.iter().flat_map(|series| &series.points);
        let most = points().map(|point| point.range.map_or(point.y, |(_, greatest)| greatest.max(point.y)));
        let scale = Linear::up_to(most.fold(0.0, f64::max));
        let widest = scale.ticks().iter().map(|(_, text)| width_of(text, FONT)).fold(0.0, f64::max);
        let top = canvas.y + 8.0;
        let area = Area { left: MARGIN + widest + 6.0, top, right: WIDTH - MARGIN, bottom: top + HEIGHT };
        let across = match self.x {
            Axis::Linear(_) => Across::Linear(Linear::up_to(points().map(|point| point.x).fold(0.0, f64::max))),
            Axis::Logarithmic(..) => Across::Logarithmic(Logarithmic::over(points().map(|point| point.x))),
        };
        let field = Field { area, across, scale };
        field.lines_of_grid(&mut canvas);
        canvas.y = area.bottom + 18.0;
        field.axis(&mut canvas, &self.x, points());
        for (at, series) in self.series.iter().enumerate() {
            field.series(&mut canvas, at, series, self.aside(at));
        }
        field.labels(&mut canvas, &self.series);
        let named = self.series.iter().enumerate().filter(|(_, series)| !series.name.is_empty());
        let mut entries: Vec<_> = named.map(|(at, series)| (Mark::Colour(at), series.name.clone())).collect();
        if points().any(|point| point.whisker().is_some()) {
            entries.push((Mark::Whisker, self.whisker.to_owned()));
        }
        canvas.legend(&entries);
        canvas.finish(self.title, self.foot)
    }

    /// How far the points of a series are beside their place: over settings, which several series have, whiskers would
    /// cover each other.
    fn aside(&self, at: usize) -> f64 {
        match self.x {
            Axis::Linear(_) => 0.0,
            Axis::Logarithmic(..) => {
                let between = (self.series.len() as f64 - 1.0) / 2.0;
                (at as f64 - between) * (INSET / between.max(1.0)).min(5.0)
            }
        }
    }
}

enum Across {
    Linear(Linear),
    Logarithmic(Logarithmic),
}

/// The place of the points.
struct Field {
    area: Area,
    across: Across,
    scale: Linear,
}

impl Field {
    fn x(&self, value: f64) -> f64 {
        let share = match &self.across {
            Across::Linear(scale) => scale.share(value),
            Across::Logarithmic(scale) => scale.share(value),
        };
        self.area.left + INSET + share * (self.area.right - self.area.left - 2.0 * INSET)
    }

    fn y(&self, value: f64) -> f64 {
        self.area.bottom - self.scale.share(value) * (self.area.bottom - self.area.top)
    }

    fn lines_of_grid(&self, canvas: &mut Canvas) {
        for (value, text) in self.scale.ticks() {
            let y = self.y(value);
            canvas.line("grid", (self.area.left, y), (self.area.right, y));
            canvas.text((self.area.left - 6.0, y + 4.0), Anchor::End, "muted", &text);
        }
    }

    /// The numbers of the horizontal axis as far as there is room, and its title.
    fn axis<'p>(&self, canvas: &mut Canvas, axis: &Axis<'_>, points: impl Iterator<Item = &'p Point>) {
        let (title, ticks) = match (axis, &self.across) {
            (Axis::Linear(title), Across::Linear(scale)) => (title, scale.ticks()),
            (Axis::Linear(title), Across::Logarithmic(_)) => (title, Vec::new()),
            (Axis::Logarithmic(title, shown), _) => {
                let mut values: Vec<f64> = points.map(|point| point.x).collect();
                values.sort_by(f64::total_cmp);
                values.dedup();
                (title, values.into_iter().map(|value| (value, shown(value))).collect())
            }
        };
        let mut free_from = 0.0;
        for (value, text) in ticks {
            let half = width_of(&text, FONT) / 2.0;
            let x = self.x(value).min(WIDTH - half);
            if x - half >= free_from {
                canvas.line("grid", (self.x(value), self.area.bottom), (self.x(value), self.area.bottom + 4.0));
                canvas.text((x, canvas.y), Anchor::Middle, "muted", &text);
                free_from = x + half + 4.0;
            }
        }
        canvas.y += LINE;
        canvas.text((WIDTH - MARGIN, canvas.y), Anchor::End, "muted", &cut(title, WIDTH - 2.0 * MARGIN));
    }

    fn series(&self, canvas: &mut Canvas, at: usize, series: &Series, aside: f64) {
        let colour = at % COLOURS;
        let place = |point: &Point| (self.x(point.x) + aside, self.y(point.y));
        if series.joined && series.points.len() > 1 {
            let dash = if at >= COLOURS { " dash" } else { "" };
            let places = series.points.iter().map(place).map(|(x, y)| format!("{x:.1},{y:.1}"));
            let places = places.collect::<Vec<_>>().join(" ");
            let _ = write!(canvas.content, "<polyline class=\"l{colour} line{dash}\" points=\"{places}\"/>");
        }
        for point in &series.points {
            let (x, y) = place(point);
            if let Some((least, greatest)) = point.whisker() {
                canvas.whisker(&format!(" l{colour}"), (x, self.y(least)), (x, self.y(greatest)));
            }
            let _ = write!(canvas.content, "<circle class=\"c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{RADIUS}\"/>");
        }
    }

    /// The label of each point, as near as there is room. A label without room is left out: the table has it.
    fn labels(&self, canvas: &mut Canvas, series: &[Series]) {
        let points = || series.iter().flat_map(|series| &series.points);
        let place = |point: &Point| (self.x(point.x), self.y(point.y));
        let around = |(x, y): (f64, f64)| Area { left: x - 5.0, top: y - 5.0, right: x + 5.0, bottom: y + 5.0 };
        let of_whisker = |point: &Point| {
            let (least, greatest) = point.whisker()?;
            let x = self.x(point.x);
            Some(Area { left: x - 4.0, top: self.y(greatest), right: x + 4.0, bottom: self.y(least) })
        };
        let mut taken: Vec<Area> =
            points().map(|point| around(place(point))).chain(points().filter_map(of_whisker)).collect();
        for point in points().filter(|point| !point.label.is_empty()) {
            let text = cut(&point.label, (self.area.right - self.area.left) / 2.0);
            let Some((area, down)) = self.free(&taken, place(point), width_of(&text, FONT)) else { continue };
            let (x, y) = place(point);
            if down != 0.0 {
                let side = if area.left > x { area.left - 2.0 } else { area.right + 2.0 };
                canvas.line("leader", (x, y), (side, y + down));
            }
            canvas.text((area.left, area.bottom - 3.0), Anchor::Start, "", &text);
            taken.push(area);
        }
    }

    /// The nearest free place for a text of this width: beside the point, or higher or lower. Also how much lower.
    fn free(&self, taken: &[Area], (x, y): (f64, f64), width: f64) -> Option<(Area, f64)> {
        let steps = (0..12).flat_map(|step| [-13.0 * f64::from(step), 13.0 * f64::from(step)]);
        let places = steps.flat_map(|down| {
            let aside = if down == 0.0 { 7.0 } else { 14.0 };
            [x + aside, x - aside - width].map(|left| (left, down))
        });
        let area = |(left, down): (f64, f64)| {
            (Area { left, top: y + down - 8.0, right: left + width, bottom: y + down + 7.0 }, down)
        };
        places.map(area).find(|(area, _)| self.area.contains(area) && taken.iter().all(|other| !area.meets(other)))
    }
}
