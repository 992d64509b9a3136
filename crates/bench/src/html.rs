//! One page with all tables and charts, in one file, readable on a phone. Its only links are to the files beside it.

use super::matrix::Matrix;
use super::medians::Row;
use super::notes::notes;
use super::results::Record;
use super::tables::{groups, table};
use fullbore_model::svg::{self, Chart, escaped};

/// The files beside the page.
const LINKS: &str = "<p class=\"notes\">The numbers: <a href=\"results.csv\">CSV</a>, <a href=\"results.jsonl\">JSON \
                     lines</a>, <a href=\"results.md\">Markdown</a>.</p>";

/// The page.
pub fn page(matrix: &Matrix, rows: &[Row], records: &[Record], charts: &[Chart]) -> String {
    let mut body = format!("<p class=\"notes\">{}</p>{LINKS}", escaped(&super::preamble(matrix, rows, records)));
    for (number, (group, of_group)) in groups(rows).into_iter().enumerate() {
        let (head, lines) = table(matrix, &of_group);
        let cells = |kind: &str, words: &[String]| -> String {
            words.iter().map(|word| format!("<{kind}>{}</{kind}>", escaped(word))).collect()
        };
        let line = |(row, fields): (&&Row, &Vec<String>)| {
            let class = if row.fastest { " class=\"best\"" } else { "" };
            format!("<tr{class}>{}</tr>", cells("td", fields))
        };
        let lines: String = of_group.iter().zip(&lines).map(line).collect();
        body += &format!(
            "<h2>{}</h2><div class=\"scroll\"><table><thead><tr>{}</tr></thead><tbody>{lines}</tbody></table></div>{}",
            escaped(group),
            cells("th", &head),
            commands(&of_group)
        );
        let own = format!("{}-", number + 1);
        let drawn = charts.iter().filter(|chart| chart.name.starts_with(&own));
        body += &format!("<div class=\"charts\">{}</div>", drawn.map(|chart| chart.svg.as_str()).collect::<String>());
    }
    svg::page(&matrix.title, &(body + &list(&notes(rows, records))))
}

/// The command line of each row, folded. Results of earlier versions have none.
fn commands(rows: &[&Row]) -> String {
    let line =
        |row: &&Row| format!("<dt>{}</dt><dd><code>{}</code></dd>", escaped(&row.label()), escaped(&row.command));
    let lines: String = rows.iter().filter(|row| !row.command.is_empty()).map(line).collect();
    if lines.is_empty() {
        lines
    } else {
        format!("<details><summary>Command lines</summary><dl>{lines}</dl></details>")
    }
}

fn list(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let lines: String = notes.iter().map(|note| format!("<li>{}</li>", escaped(note))).collect();
    format!("<h2>Notes</h2><ul class=\"notes\">{lines}</ul>")
}

#[cfg(test)]
mod tests {
    use super::super::{chart, medians};
    use super::*;

    #[test]
    fn a_page_is_whole_needs_nothing_else_and_fits_a_phone() {
        let (mut matrix, cells, mut records) = medians::tests::measured([[12.0; 3], [6.0; 3], [4.5; 3], [13.0; 3]]);
        matrix.title = "<script>alert(1)</script>".into();
        records[2].command = "fullbore backup \"sqlite:/a <b>/app.db\"".into();
        records[0].started_at = "2026-11-25T23:59:00Z".into();
        records[1].started_at = "2026-11-26T00:01:00Z".into();
        records[0].warnings = vec!["a <b> warning".into()];
        records[1].status = "failed".into();
        records[1].error = Some("a <i> child's error".into());
        let rows = medians::rows(&matrix, &cells, &records);
        let text = page(&matrix, &rows, &records, &chart::charts(&rows, ""));
        for words in [
            "width=device-width",
            "<table>",
            "<svg ",
            "~2.7× faster",
            "vs first, paired",
            "a &lt;b&gt; warning",
            "&lt;script&gt;",
            "(2 of 3 rounds)</td>",
            "round 2 failed: a &lt;i&gt; child",
            "<tr class=\"best\"><td>lz4, 1 file, fastest</td>",
            "<dd><code>fullbore backup &quot;sqlite:/a &lt;b&gt;/app.db&quot;</code></dd>",
            "href=\"results.csv\"",
            "2026-11-25 to 2026-11-26, ",
            "href=\"results.jsonl\"",
        ] {
            assert!(text.contains(words), "`{words}` is not in the page");
        }
        for words in ["<script", "src=", "http:", "https:"] {
            assert!(!text.replace("http://www.w3.org/2000/svg", "").contains(words), "`{words}` is in the page");
        }
    }
}
