//! Rows of horizontal bars.

use super::scale::Linear;
use super::{Anchor, Area, COLOURS, Canvas, FONT, LINE, MARGIN, Mark, WIDTH, cut, width_of};

/// Rows of bars over one axis that begins at 0. The name of a row is above its bars. The label of a bar is at the foot
/// of the bar, where no other text and no whisker is.
#[derive(Debug, Clone, Default)]
pub struct Bars<'a> {
    /// The title.
    pub title: &'a str,
    /// Below the chart: where and when its values were measured.
    pub foot: &'a str,
    /// The values of the axis, with their unit.
    pub axis: &'a str,
    /// The least end of the axis, for example 100 for shares in per cent.
    pub end: f64,
    /// The rows.
    pub rows: Vec<BarRow>,
    /// Names of the colours, from colour 0 on.
    pub colours: &'a [&'a str],
    /// What the line over a bar is, if a bar has one.
    pub whisker: &'a str,
}

/// A name and its bars.
#[derive(Debug, Clone, Default)]
pub struct BarRow {
    /// The name.
    pub name: String,
    /// A remark at the end of the line of the name.
    pub remark: String,
    /// The row that stands out.
    pub marked: bool,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Debug, Clone, Default)]
pub struct Bar {
    /// Its label, mostly its value.
    pub label: String,
    /// Its length.
    pub value: f64,
    /// The least and the greatest value: the ends of its whisker.
    pub range: Option<(f64, f64)>,
    /// The number of its colour.
    pub colour: usize,
    /// The bar that stands out.
    pub marked: bool,
}

impl Bar {
    /// The range, if it has a length.
    fn whisker(&self) -> Option<(f64, f64)> {
        self.range.filter(|(least, greatest)| least < greatest)
    }

    fn most(&self) -> f64 {
        self.range.map_or(self.value, |(_, greatest)| greatest.max(self.value))
    }
}

/// Bars in one chart; the table has the other rows.
const MOST_BARS: usize = 60;
/// How much wider bold letters are.
const BOLD: f64 = 1.08;
const THICK: f64 = 13.0;
/// From the top of a bar to the top of the next bar of its row.
const EACH: f64 = 17.0;

impl Bars<'_> {
    /// The image.
    pub fn draw(&self) -> String {
        let mut canvas = Canvas::new(self.title);
        let mut left_over = MOST_BARS;
        let fits = |row: &&BarRow| {
            let fits = row.bars.len() <= left_over;
            left_over = left_over.saturating_sub(row.bars.len());
            fits
        };
        let rows: Vec<&BarRow> = self.rows.iter().take_while(fits).collect();
        let bars = || rows.iter().flat_map(|row| &row.bars);
        if bars().next().is_none() {
            canvas.y += LINE;
            canvas.text((MARGIN, canvas.y), Anchor::Start, "muted", "nothing was measured");
            return canvas.finish(self.title, self.foot);
        }
        let scale = Linear::up_to(bars().map(Bar::most).fold(self.end, f64::max));
        // Bold letters are wider.
        let width = |bar: &Bar| width_of(&bar.label, FONT) * if bar.marked { BOLD } else { 1.0 };
        let widest = bars().map(width).fold(0.0, f64::max);
        let last_tick = scale.ticks().last().map_or(0.0, |(_, text)| width_of(text, FONT));
        let field = Field {
            left: MARGIN + widest.min(WIDTH * 0.45) + 8.0,
            right: WIDTH - MARGIN - last_tick / 2.0,
            scale: &scale,
        };
        rows.iter().for_each(|row| field.row(&mut canvas, row));
        field.axis(&mut canvas, self.axis);
        if rows.len() < self.rows.len() {
            canvas.y += LINE;
            let text = format!("… and {} more in the table", self.rows.len() - rows.len());
            canvas.text((MARGIN, canvas.y), Anchor::Start, "muted", &text);
        }
        let mut entries: Vec<(Mark, String)> =
            self.colours.iter().enumerate().map(|(at, name)| (Mark::Colour(at), (*name).to_owned())).collect();
        if bars().any(|bar| bar.whisker().is_some()) {
            entries.push((Mark::Whisker, self.whisker.to_owned()));
        }
        canvas.legend(&entries);
        canvas.finish(self.title, self.foot)
    }
}

/// The place of the bars.
struct Field<'a> {
    left: f64,
    right: f64,
    scale: &'a Linear,
}

impl Field<'_> {
    fn x(&self, value: f64) -> f64 {
        self.left + self.scale.share(value) * (self.right - self.left)
    }

    fn row(&self, canvas: &mut Canvas, row: &BarRow) {
        if !(row.name.is_empty() && row.remark.is_empty()) {
            canvas.y += LINE;
            let class = if row.marked { "best" } else { "" };
            let remark = width_of(&row.remark, FONT) * BOLD;
            let room = (WIDTH - 2.0 * MARGIN - remark - 10.0) / if row.marked { BOLD } else { 1.0 };
            canvas.text((MARGIN, canvas.y - 3.0), Anchor::Start, class, &cut(&row.name, room));
            canvas.text(
                (WIDTH - MARGIN, canvas.y - 3.0),
                Anchor::End,
                if row.marked { class } else { "muted" },
                &row.remark,
            );
        }
        let top = canvas.y + 1.0;
        let bottom = top + EACH * row.bars.len() as f64 - (EACH - THICK);
        for (value, _) in self.scale.ticks() {
            canvas.line("grid", (self.x(value), top - 1.0), (self.x(value), bottom + 1.0));
        }
        for bar in &row.bars {
            self.bar(canvas, bar);
        }
        canvas.y += 5.0;
    }

    fn bar(&self, canvas: &mut Canvas, bar: &Bar) {
        let top = canvas.y + 1.0;
        let middle = top + THICK / 2.0;
        let class = if bar.marked { "best" } else { "" };
        let label = cut(&bar.label, self.left - MARGIN - 6.0);
        canvas.text((self.left - 6.0, middle + 4.0), Anchor::End, class, &label);
        let area = |right: f64| Area { left: self.left, top, right, bottom: top + THICK };
        canvas.rectangle("track", area(self.right));
        // Also a very short bar is visible.
        let end = self.x(bar.value).max(self.left + 1.0);
        canvas.rectangle(&format!("c{}", bar.colour % COLOURS), area(end));
        if bar.marked {
            canvas.rectangle("outline", area(end));
        }
        if let Some((least, greatest)) = bar.whisker() {
            canvas.whisker("", (self.x(least), middle), (self.x(greatest), middle));
        }
        canvas.y += EACH;
    }

    /// The numbers of the axis, and its title.
    fn axis(&self, canvas: &mut Canvas, title: &str) {
        canvas.y += 12.0;
        let mut free_from = 0.0;
        for (value, text) in self.scale.ticks() {
            let half = width_of(&text, FONT) / 2.0;
            if self.x(value) - half >= free_from {
                canvas.text((self.x(value), canvas.y), Anchor::Middle, "muted", &text);
                free_from = self.x(value) + half + 4.0;
            }
        }
        if !title.is_empty() {
            canvas.y += LINE;
            canvas.text((WIDTH - MARGIN, canvas.y), Anchor::End, "muted", &cut(title, WIDTH - 2.0 * MARGIN));
        }
    }
}
