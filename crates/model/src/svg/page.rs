//! The HTML page around charts and tables: one file without other parts, readable on a phone.

use super::escaped;

const STYLE: &str = ":root{color-scheme:light dark;--back:#f5f5f4;--front:#1c1917;--line:#d6d3d1}\
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
         content=\"width=device-width,initial-scale=1\"><title>{title}</title><style>{STYLE}</style></head><body>\
         <h1>{title}</h1>{body}</body></html>\n"
    )
}
