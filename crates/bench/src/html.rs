//! One page with all tables and charts, in one file without other parts, readable on a phone.

use super::chart::Chart;
use super::matrix::Matrix;
use super::medians::Row;
use super::notes::notes;
use super::results::Record;
use super::tables::{groups, table};
use fullbore_model::xml::escaped;

const STYLE: &str = ":root{color-scheme:light dark;--back:#fafaf9;--front:#1c1917;--line:#d6d3d1}\
@media(prefers-color-scheme:dark){:root{--back:#1c1917;--front:#e7e5e4;--line:#44403c}}\
*{box-sizing:border-box}body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--back);color:var(--front);\
font:16px/1.45 system-ui,sans-serif}\
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem}h3{font-size:.95rem;font-weight:600;\
margin:1rem 0 .4rem}p{margin:.4rem 0;overflow-wrap:anywhere}\
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}\
th,td{padding:.35rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}th:first-child,\
td:first-child{text-align:left}\
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(20rem,100%),1fr));gap:1rem 2rem}.charts \
svg{max-width:30rem}.notes{opacity:.8;font-size:.9rem}";

/// The page.
pub fn page(matrix: &Matrix, rows: &[Row], records: &[Record], charts: &[Chart]) -> String {
    let title = escaped(&matrix.title);
    let mut body =
        format!("<h1>{title}</h1><p class=\"notes\">{}</p>", escaped(&super::preamble(matrix, rows, records)));
    for (number, (group, of_group)) in groups(rows).into_iter().enumerate() {
        let (head, lines) = table(matrix, &of_group);
        let cells = |kind: &str, words: &[String]| -> String {
            words.iter().map(|word| format!("<{kind}>{}</{kind}>", escaped(word))).collect()
        };
        let lines: String = lines.iter().map(|fields| format!("<tr>{}</tr>", cells("td", fields))).collect();
        body += &format!(
            "<h2>{}</h2><div class=\"scroll\"><table><thead><tr>{}</tr></thead><tbody>{lines}</tbody></table></div>",
            escaped(group),
            cells("th", &head)
        );
        let own = format!("{}-", number + 1);
        let drawn: String = charts
            .iter()
            .filter(|chart| chart.name.starts_with(&own))
            .map(|chart| format!("<div><h3>{}</h3>{}</div>", escaped(&chart.title), chart.svg))
            .collect();
        body += &format!("<div class=\"charts\">{drawn}</div>");
    }
    body += &list(&notes(rows, records));
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )
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
        records[0].warnings = vec!["a <b> warning".into()];
        records[1].status = "failed".into();
        records[1].error = Some("a <i> child's error".into());
        let rows = medians::rows(&matrix, &cells, &records);
        let text = page(&matrix, &rows, &records, &chart::charts(&rows));
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
        ] {
            assert!(text.contains(words), "`{words}` is not in the page");
        }
        for words in ["<script", "src=", "href=", "http:", "https:"] {
            assert!(!text.replace("http://www.w3.org/2000/svg", "").contains(words), "`{words}` is in the page");
        }
    }
}
