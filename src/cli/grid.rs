//! A table that fits the terminal: the least important columns are left out first, then long texts wrap.

use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Table, presets};

use super::show::{Colour, value};

/// Columns that a text which may wrap keeps before other columns are left out; and before spared columns are.
const WRAPPED: usize = 36;
const LEAST_WRAPPED: usize = 12;
/// Spaces beside the text of a column.
const PADDING: usize = 2;

/// A column: its head, and how soon it is left out.
pub struct Column {
    head: &'static str,
    /// The highest goes first; 0 always stays.
    rank: u8,
    /// Left out only when texts that wrap have no room.
    spared: bool,
    wraps: bool,
}

impl Column {
    /// A column that always stays.
    pub const fn always(head: &'static str) -> Self {
        Self { head, rank: 0, spared: false, wraps: false }
    }

    /// A column that is left out on a narrow terminal, those of a high `rank` first.
    pub const fn rank(rank: u8, head: &'static str) -> Self {
        Self { head, rank, spared: false, wraps: false }
    }

    /// A column that stays until the texts that wrap have no room, also without the columns of every other rank.
    pub const fn spared(rank: u8, head: &'static str) -> Self {
        Self { head, rank, spared: true, wraps: false }
    }

    /// A column that stays, and whose texts wrap.
    pub const fn wrapping(head: &'static str) -> Self {
        Self { head, rank: 0, spared: false, wraps: true }
    }
}

/// A text of the table.
#[derive(Debug, Clone, Default)]
pub struct Text {
    text: String,
    colour: Option<Colour>,
}

impl<T: Into<String>> From<T> for Text {
    fn from(text: T) -> Self {
        Self { text: text.into(), colour: None }
    }
}

impl Text {
    /// A text in a colour.
    pub fn coloured(text: impl Into<String>, colour: Option<Colour>) -> Self {
        Self { text: text.into(), colour }
    }

    /// True without a text.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    fn cell(&self) -> Cell {
        let cell = Cell::new(value(&self.text));
        match self.colour {
            None => cell,
            Some(Colour::Red) => cell.fg(Color::DarkRed),
            Some(Colour::Yellow) => cell.fg(Color::DarkYellow),
            Some(Colour::Green) => cell.fg(Color::DarkGreen),
        }
    }
}

/// The table, fitted to `width` columns. Without a width, it has every column that is not empty.
pub fn render<const N: usize>(
    columns: &[Column; N],
    rows: &[[Text; N]],
    width: Option<usize>,
    colours: bool,
) -> String {
    let kept = kept_columns(columns, rows, width);
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(kept.iter().map(|&at| columns[at].head));
    for row in rows {
        table.add_row(kept.iter().map(|&at| row[at].cell()));
    }
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(width.min(usize::from(u16::MAX)) as u16);
        for (index, _) in kept.iter().enumerate().filter(|(_, at)| !columns[**at].wraps) {
            table.column_mut(index).map(|column| column.set_constraint(ColumnConstraint::ContentWidth));
        }
    }
    if colours {
        table.enforce_styling()
    } else {
        table.force_no_tty()
    };
    table.trim_fmt()
}

/// The columns that fit. The order of the rows does not change.
fn kept_columns<const N: usize>(columns: &[Column; N], rows: &[[Text; N]], width: Option<usize>) -> Vec<usize> {
    let is_used = |at: &usize| columns[*at].rank == 0 || rows.iter().any(|row| !row[*at].text.is_empty());
    let mut kept: Vec<usize> = (0..N).filter(is_used).collect();
    let Some(width) = width else { return kept };
    let wide = |at: usize, wrapped: usize| {
        let texts = rows.iter().map(|row| row[at].text.chars().count());
        let widest = texts.max().unwrap_or(0).max(columns[at].head.chars().count());
        PADDING + if columns[at].wraps { widest.min(wrapped) } else { widest }
    };
    for (wrapped, spares) in [(WRAPPED, true), (LEAST_WRAPPED, false)] {
        while kept.iter().map(|&at| wide(at, wrapped)).sum::<usize>() > width {
            let may_go = |at: &usize| columns[*at].rank > 0 && !(spares && columns[*at].spared);
            let Some(last) = kept.iter().copied().filter(may_go).max_by_key(|&at| columns[at].rank) else { break };
            kept.retain(|&at| at != last);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] =
        [Column::always("id"), Column::rank(1, "engine"), Column::rank(2, "codec"), Column::wrapping("why")];

    fn shown(width: Option<usize>, colours: bool) -> String {
        let why = "the newest of its week, and a differential is based on it";
        let state = Text::coloured("01a2", Some(Colour::Red));
        render(&COLUMNS, &[[state, "sqlite".into(), "zstd:1".into(), why.into()]], width, colours)
    }

    #[test]
    fn the_least_important_columns_are_left_out_and_long_texts_wrap() {
        let whole = shown(None, false);
        assert!(whole.lines().count() == 2 && whole.contains("zstd:1") && whole.contains("based on it"), "{whole}");
        for (width, has_codec, has_engine) in [(60, true, true), (54, false, true), (44, false, false)] {
            let text = shown(Some(width), false);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
            assert_eq!((text.contains("zstd"), text.contains("sqlite")), (has_codec, has_engine), "{width}: {text}");
            assert!(text.contains("01a2") && text.lines().count() > 2, "{text}");
        }
    }

    #[test]
    fn spared_columns_are_left_out_only_when_a_text_that_wraps_has_no_room() {
        let columns = [
            Column::always("backup set"),
            Column::spared(1, "started"),
            Column::spared(2, "kind"),
            Column::wrapping("database"),
            Column::rank(3, "host"),
        ];
        let database = "/home/me/data/a-long-directory/app.db";
        let row = ["01a2092b-9560", "45 min ago", "differential", database, "db1.example.com"].map(Text::from);
        for (width, heads) in [
            (110, &["started", "kind", "host"][..]),
            (80, &["started", "kind"]),
            (56, &["started", "kind"]),
            (54, &["started"]),
            (40, &[]),
            (30, &[]),
        ] {
            let text = render(&columns, std::slice::from_ref(&row), Some(width), false);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
            for head in ["started", "kind", "host"] {
                assert_eq!(text.contains(head), heads.contains(&head), "{width}, {head}: {text}");
            }
        }
    }

    #[test]
    fn colours_come_only_where_they_are_wanted_and_empty_columns_do_not() {
        assert!(shown(None, true).contains('\u{1b}') && !shown(None, false).contains('\u{1b}'));
        let text = render(&COLUMNS, &[["a".into(), "".into(), "".into(), "".into()]], None, false);
        assert!(!text.contains("engine") && text.contains("why"), "{text}");
    }
}
