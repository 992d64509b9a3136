//! Rows of a set as INSERT statements, for a session with `SET NAMES binary`.

use super::tsv::unescape;
use crate::mysql_family::logical::columns::{CURRENT_END, Column, Form};
use crate::mysql_family::logical::literal;
use crate::mysql_family::logical::names::quoted;

/// A statement ends with the row that makes it longer than this, in bytes.
pub const INSERT: usize = 512 << 10;

/// The beginning of a statement, before the values.
pub fn head(quoted_table: &str, columns: &[Column]) -> String {
    let columns: Vec<String> = columns.iter().map(|column| quoted(&column.name)).collect();
    format!("INSERT INTO {quoted_table} ({}) VALUES ", columns.join(", "))
}

/// A row, without its line end, as the values of a statement.
///
/// # Errors
/// It is not a row of such columns, as a sentence.
pub fn values(columns: &[Column], row: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    out.push(b'(');
    let mut fields = row.split(|byte| *byte == b'\t');
    for (place, column) in columns.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        let field = fields.next().ok_or("a row with too few values")?;
        match unescape(field) {
            None if column.form == Form::RowEnd => out.extend_from_slice(CURRENT_END.as_bytes()),
            None => out.extend_from_slice(b"NULL"),
            Some(value) if value.len() <= literal::SHORT => literal::write(column.form, &value, out)?,
            Some(value) => {
                literal::begin_long(column.form, out)?;
                literal::digits(&value, out);
            }
        }
    }
    out.push(b')');
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_row_becomes_values_and_a_value_never_becomes_a_statement() {
        let of = |(name, data_type)| Column::of(name, data_type).unwrap();
        let columns = [("a`", "int"), ("b", "blob"), ("c", "text")].map(of);
        assert_eq!(head("`t`", &columns), "INSERT INTO `t` (`a```, `b`, `c`) VALUES ");
        let mut out = Vec::new();
        values(&columns, b"-7\t\\0\\\\\t\\N", &mut out).unwrap();
        assert_eq!(out, b"(-7,0x005C,NULL)");
        let mut out = Vec::new();
        let ends = [Column::of("e", "row_end").unwrap()];
        values(&ends, b"\\N", &mut out).unwrap();
        assert_eq!(out, format!("({CURRENT_END})").as_bytes());
        assert!(values(&columns, b"1); DROP\tx\ty", &mut Vec::new()).is_err());
        assert!(values(&columns, b"1\tx", &mut Vec::new()).is_err());
    }
}
