//! Charts as SVG text, and the HTML page around them: no scripts, no fonts, no other files. [`Bars`] compares rows,
//! [`Plot`] shows points and lines over a number, [`page()`] puts charts and tables on a page.
//!
//! An image is [`WIDTH`] units wide, as a phone is, and grows with its page. Colours follow a light or a dark page.
//! Names are escaped. No font is at hand when the text is made, so widths of texts are estimated, rather too wide.

mod bars;
mod plot;
mod scale;

use std::fmt::Write;

pub use bars::{Bar, BarRow, Bars};
pub use plot::{Axis, Plot, Point, Series};

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// The name of its file, without an extension.
    pub name: String,
    /// Its title, which is in the image too.
    pub title: String,
    /// The whole image.
    pub svg: String,
}

/// Units of the width of an image.
pub const WIDTH: f64 = 400.0;
const MARGIN: f64 = 10.0;
/// Letters of titles, of texts and of the foot.
const HEAD: f64 = 14.0;
const FONT: f64 = 12.0;
const FOOT: f64 = 10.0;
/// From one line of text to the next.
const LINE: f64 = 17.0;
/// Series that differ by colour.
const COLOURS: usize = 6;

/// The colours can be told apart by colour-blind people too (Okabe and Ito, 2008).
const STYLE: &str = "svg{color:#1c1917}.back{fill:#fff}text{font:12px system-ui,sans-serif;fill:currentColor}\
.head{font-size:14px;font-weight:600}.best{font-weight:700}.muted{fill-opacity:.7}.foot{font-size:10px;fill-opacity:.7}\
.grid{stroke:currentColor;stroke-opacity:.18}.track{fill:currentColor;fill-opacity:.06}\
.leader{stroke:currentColor;stroke-opacity:.5}\
.whisker{stroke:currentColor;stroke-width:1.5}.halo{stroke:#fff;stroke-width:4}\
.outline{stroke:currentColor;stroke-width:1.5;fill:none}.line{fill:none;stroke-width:2}.dash{stroke-dasharray:6 3}\
.c0{fill:#0072b2}.c1{fill:#d55e00}.c2{fill:#009e73}.c3{fill:#a5457f}.c4{fill:#b87a00}.c5{fill:#3f8fc4}\
.l0{stroke:#0072b2}.l1{stroke:#d55e00}.l2{stroke:#009e73}.l3{stroke:#a5457f}.l4{stroke:#b87a00}.l5{stroke:#3f8fc4}\
@media(prefers-color-scheme:dark){svg{color:#e7e5e4}.back{fill:#1c1917}.halo{stroke:#1c1917}\
.c0{fill:#3d8fc9}.c1{fill:#f08243}.c2{fill:#2fb892}.c3{fill:#d98dba}.c4{fill:#e6ab3c}.c5{fill:#8fd0f5}\
.l0{stroke:#3d8fc9}.l1{stroke:#f08243}.l2{stroke:#2fb892}.l3{stroke:#d98dba}.l4{stroke:#e6ab3c}.l5{stroke:#8fd0f5}}";

/// Text with the escapes of XML and HTML. Control characters become spaces.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            letter if letter.is_control() => safe.push(' '),
            letter => safe.push(letter),
        }
    }
    safe
}

/// The width of a text in letters of this size, rather too wide.
fn width_of(text: &str, size: f64) -> f64 {
    // Letters of East Asian scripts are as wide as they are high.
    text.chars().map(|letter| size * if letter < '\u{1100}' { 0.6 } else { 1.05 }).sum()
}

/// The text, cut so that it fits.
fn cut(text: &str, width: f64) -> String {
    if width_of(text, FONT) <= width {
        return text.to_owned();
    }
    let mut left = width - width_of("…", FONT);
    let fits = |letter: &char| {
        left -= width_of(letter.encode_utf8(&mut [0; 4]), FONT);
        left >= 0.0
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// The text in lines that fit, broken between words if possible.
fn wrapped(text: &str, size: f64) -> Vec<String> {
    let fits = |text: &str| width_of(text, size) <= WIDTH - 2.0 * MARGIN;
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && !fits(&format!("{line} {word}")) {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        for letter in word.chars() {
            line.push(letter);
            if !fits(&line) {
                line.pop();
                lines.push(std::mem::replace(&mut line, letter.into()));
            }
        }
    }
    lines.extend((!line.is_empty()).then_some(line));
    lines
}

/// Where a text begins, ends or has its middle.
#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// What a legend explains.
#[derive(Clone, Copy)]
enum Mark {
    /// The colour of a series.
    Colour(usize),
    /// The line from the least to the greatest value.
    Whisker,
}

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

/// An image that grows downwards.
struct Canvas {
    content: String,
    /// The lower end of what is drawn.
    y: f64,
}

impl Canvas {
    /// An image with its title.
    fn new(title: &str) -> Self {
        let mut canvas = Self { content: String::new(), y: MARGIN };
        for line in wrapped(title, HEAD) {
            canvas.y += 18.0;
            canvas.text((MARGIN, canvas.y - 4.0), Anchor::Start, "head", &line);
        }
        canvas.y += 4.0;
        canvas
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        // A String takes everything.
        let _ = write!(
            self.content,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = write!(
            self.content,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    fn rectangle(&mut self, class: &str, area: Area) {
        let Area { left, top, right, bottom } = area;
        let (width, height) = ((right - left).max(0.0), (bottom - top).max(0.0));
        let _ = write!(
            self.content,
            "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             rx=\"1.5\"/>"
        );
    }

    /// A line with a short line across each end. A halo separates it from a bar below it. `colour`: its class.
    fn whisker(&mut self, colour: &str, from: (f64, f64), to: (f64, f64)) {
        let (dx, dy) = if from.1 == to.1 { (0.0, 4.0) } else { (4.0, 0.0) };
        let parts = [(from, to)].into_iter().chain([from, to].map(|(x, y)| ((x - dx, y - dy), (x + dx, y + dy))));
        for class in ["halo", &format!("whisker{colour}")] {
            parts.clone().for_each(|(from, to)| self.line(class, from, to));
        }
    }

    /// The legend: as many entries in a line as fit.
    fn legend(&mut self, entries: &[(Mark, String)]) {
        const BEFORE: f64 = 20.0;
        let mut x = MARGIN;
        self.y += 4.0;
        for (at, (mark, text)) in entries.iter().enumerate() {
            let text = cut(text, WIDTH - 2.0 * MARGIN - BEFORE);
            let width = BEFORE + width_of(&text, FONT);
            if at == 0 || x + width > WIDTH - MARGIN {
                (x, self.y) = (MARGIN, self.y + LINE);
            }
            let y = self.y;
            match mark {
                Mark::Colour(at) => {
                    let area = Area { left: x + 2.0, top: y - 9.5, right: x + 13.0, bottom: y + 1.5 };
                    self.rectangle(&format!("c{}", at % COLOURS), area);
                }
                Mark::Whisker => self.whisker("", (x + 1.0, y - 4.0), (x + 14.0, y - 4.0)),
            }
            self.text((x + BEFORE, y), Anchor::Start, "", &text);
            x += width + 14.0;
        }
        self.y += 4.0;
    }

    /// The whole image. `foot` says where and when its values were measured.
    fn finish(mut self, title: &str, foot: &str) -> String {
        for line in wrapped(foot, FOOT) {
            self.y += 14.0;
            self.text((WIDTH - MARGIN, self.y), Anchor::End, "foot", &line);
        }
        let (height, content) = (self.y + MARGIN, self.content);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"100%\" \
             style=\"max-width:40rem\" role=\"img\"><title>{}</title><style>{STYLE}</style><rect class=\"back\" \
             width=\"{WIDTH}\" height=\"{height:.0}\" rx=\"6\"/>{content}</svg>\n",
            escaped(title)
        )
    }
}

/// The style of a page.
const PAGE_STYLE: &str = ":root{color-scheme:light dark;--back:#f5f5f4;--front:#1c1917;--line:#d6d3d1}\
@media(prefers-color-scheme:dark){:root{--back:#0c0a09;--front:#e7e5e4;--line:#44403c}}\
*{box-sizing:border-box}body{margin:0 auto;max-width:80rem;padding:1rem;background:var(--back);color:var(--front);\
font:16px/1.45 system-ui,sans-serif}\
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem}p{margin:.4rem 0;overflow-wrap:anywhere}\
a{color:inherit}.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;\
font-size:.9rem}th,td{padding:.35rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}\
th:first-child,td:first-child{text-align:left}tr.best td{font-weight:700}\
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(22rem,100%),1fr));gap:1rem;margin:1rem 0;align-items:start}\
.charts svg{display:block}details{margin:.6rem 0}summary{cursor:pointer}dt{font-weight:600;margin-top:.6rem}\
dd{margin:.1rem 0}code{font:.8rem/1.5 ui-monospace,monospace;overflow-wrap:anywhere}\
.notes{opacity:.8;font-size:.9rem}";

/// A page. The title is escaped here; `body` is HTML, whose maker has escaped the names in it.
pub fn page(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><title>{title}</title><style>{PAGE_STYLE}</style></head><body>\
         <h1>{title}</h1>{body}</body></html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_keeps_its_letters_and_loses_its_markup_and_control_characters() {
        assert_eq!(escaped("a<b>&\"c\"\n"), "a&lt;b&gt;&amp;&quot;c&quot; ");
    }

    #[test]
    fn a_long_title_is_wrapped_and_a_long_name_is_cut() {
        let path = format!("/a/{}", "long/".repeat(60));
        let lines = wrapped(&format!("Sequential reads of one stream: {path}"), HEAD);
        assert!(lines.len() > 3 && lines.iter().all(|line| width_of(line, HEAD) <= WIDTH - 2.0 * MARGIN), "{lines:?}");
        assert_eq!(lines.concat().replace(' ', ""), format!("Sequentialreadsofonestream:{path}"), "nothing is lost");
        assert_eq!((cut("short", 100.0), cut("eleven long", 50.0)), ("short".into(), "eleve…".into()));
        assert!(wrapped(" \n", HEAD).is_empty());
    }
}
