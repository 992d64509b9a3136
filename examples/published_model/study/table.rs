//! The published tables: lines of comma-separated values, with their source in the first line.

/// One table.
pub struct Table {
    /// Where it was published, as its file says.
    pub source: &'static str,
    columns: Vec<&'static str>,
    rows: Vec<Vec<&'static str>>,
}

/// One line of a table.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    columns: &'a [&'static str],
    cells: &'a [&'static str],
}

impl Table {
    /// Reads a file of `bench/published`.
    pub fn read(text: &'static str) -> Self {
        let source = text.lines().next().and_then(|line| line.strip_prefix("# Source: ")).unwrap_or("not named");
        let mut lines = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(',').collect());
        Self { source, columns: lines.next().unwrap_or_default(), rows: lines.collect() }
    }

    /// Its lines.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|cells| Row { columns: &self.columns, cells })
    }
}

impl Row<'_> {
    /// A cell's text; empty where nothing was published.
    pub fn text(&self, column: &str) -> &'static str {
        self.columns.iter().position(|name| *name == column).and_then(|at| self.cells.get(at)).copied().unwrap_or("")
    }

    /// A cell's number, if there is one.
    pub fn number(&self, column: &str) -> Option<f64> {
        self.text(column).parse().ok()
    }
}
