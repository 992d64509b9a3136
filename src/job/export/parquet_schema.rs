//! How Parquet stores the columns of a table: physical and logical types.

use std::sync::Arc;

use fullbore_core::{Error, Result};
use fullbore_engines::ColumnKind;
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::errors::ParquetError;
use parquet::schema::types::{Type, TypePtr};

use super::Columns;

/// How a column is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A bit.
    Bool,
    /// An integer of at most 4 bytes: its bits, and whether it has a sign.
    Int(i8, bool),
    /// An integer of 8 bytes.
    Long,
    /// An integer of 8 bytes without sign.
    UnsignedLong,
    /// A decimal number: precision and scale. It has 4, 8 or more bytes.
    Decimal(u8, u8),
    /// A floating-point number of 4 bytes.
    Real,
    /// A floating-point number of 8 bytes.
    Float,
    /// Days.
    Date,
    /// A time of day.
    Time(Unit),
    /// A moment without zone.
    Moment(Unit),
    /// A moment in UTC, and beside it a column with the offset of its zone in minutes.
    Zoned(Unit),
    /// 16 bytes.
    Uuid,
    /// Text.
    Text,
    /// Bytes.
    Binary,
}

/// The unit of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// 1/1000 s.
    Millis,
    /// 1/1,000,000 s.
    Micros,
    /// 1/1,000,000,000 s: moments from 1677 to 2262.
    Nanos,
}

impl Unit {
    /// The coarsest unit with so many digits.
    fn of(digits: u8) -> Self {
        match digits {
            0..=3 => Self::Millis,
            4..=6 => Self::Micros,
            _ => Self::Nanos,
        }
    }

    fn logical(self) -> TimeUnit {
        match self {
            Self::Millis => TimeUnit::MILLIS,
            Self::Micros => TimeUnit::MICROS,
            Self::Nanos => TimeUnit::NANOS,
        }
    }
}

/// The form that is tried first for each column.
pub fn first_forms(columns: &Columns<'_>) -> Vec<Form> {
    columns.iter().map(|column| first_form(column.kind)).collect()
}

fn first_form(kind: ColumnKind) -> Form {
    match kind {
        ColumnKind::Bool => Form::Bool,
        ColumnKind::Byte => Form::Int(8, false),
        ColumnKind::Short => Form::Int(16, true),
        ColumnKind::Int => Form::Int(32, true),
        ColumnKind::Long => Form::Long,
        ColumnKind::UnsignedLong => Form::UnsignedLong,
        ColumnKind::Decimal { precision, scale } => Form::Decimal(precision, scale),
        ColumnKind::Real => Form::Real,
        ColumnKind::Float => Form::Float,
        ColumnKind::Date => Form::Date,
        ColumnKind::Time { digits } => Form::Time(Unit::of(digits)),
        ColumnKind::Moment { digits } => Form::Moment(Unit::of(digits)),
        ColumnKind::ZonedMoment { digits } => Form::Zoned(Unit::of(digits)),
        ColumnKind::Uuid => Form::Uuid,
        ColumnKind::Text | ColumnKind::Any => Form::Text,
        ColumnKind::Binary => Form::Binary,
    }
}

/// The form to try after this one did not hold a value exactly: nanoseconds, microseconds, text.
///
/// # Errors
/// There is no other form.
pub fn next_form(forms: &mut [Form], column: usize) -> Result<()> {
    let next = match forms.get(column) {
        Some(Form::Moment(Unit::Nanos)) => Form::Moment(Unit::Micros),
        Some(Form::Zoned(Unit::Nanos)) => Form::Zoned(Unit::Micros),
        // MySQL has zero dates, and times of more than a day.
        Some(Form::Date | Form::Time(_) | Form::Moment(_) | Form::Zoned(_)) => Form::Text,
        other => {
            let why = format!("a value does not fit into its Parquet column ({other:?})");
            return Err(Error::refused("a table", why, "use --format csv"));
        }
    };
    forms.iter_mut().skip(column).take(1).for_each(|form| *form = next);
    Ok(())
}

/// Bytes of a decimal number with so many digits.
pub fn decimal_bytes(precision: u8) -> i32 {
    // The smallest number of bytes whose range has all numbers of `precision` digits.
    (1..=16).find(|bytes| 10_i128.pow(precision.min(38).into()) - 1 <= i128::MAX >> (128 - 8 * bytes)).unwrap_or(16)
}

/// The schema of a file.
///
/// # Errors
/// The library refuses a type.
pub fn schema(columns: &Columns<'_>, forms: &[Form]) -> Result<TypePtr, ParquetError> {
    let mut fields = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for (column, form) in columns.iter().zip(forms) {
        let repetition = if column.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        fields.push(field(&unique(&mut names, &column.name), *form, repetition)?);
        if let Form::Zoned(_) = form {
            let name = unique(&mut names, &format!("{}_offset_minutes", column.name));
            fields.push(field(&name, Form::Int(16, true), repetition)?);
        }
    }
    Type::group_type_builder("schema").with_fields(fields).build().map(Arc::new)
}

/// The name, with `~` behind it while another column has it.
fn unique(names: &mut Vec<String>, name: &str) -> String {
    let mut name = name.to_owned();
    while names.contains(&name) {
        name.push('~');
    }
    names.push(name.clone());
    name
}

fn field(name: &str, form: Form, repetition: Repetition) -> Result<TypePtr, ParquetError> {
    let (physical, logical, length) = match form {
        Form::Bool => (Physical::BOOLEAN, None, -1),
        Form::Int(32, true) => (Physical::INT32, None, -1),
        Form::Int(bits, sign) => (Physical::INT32, Some(LogicalType::integer(bits, sign)), -1),
        Form::Long => (Physical::INT64, None, -1),
        Form::UnsignedLong => (Physical::INT64, Some(LogicalType::integer(64, false)), -1),
        Form::Decimal(precision, scale) => {
            let logical = LogicalType::decimal(scale.into(), precision.into());
            let (physical, length) = match precision {
                0..=9 => (Physical::INT32, -1),
                10..=18 => (Physical::INT64, -1),
                _ => (Physical::FIXED_LEN_BYTE_ARRAY, decimal_bytes(precision)),
            };
            (physical, Some(logical), length)
        }
        Form::Real => (Physical::FLOAT, None, -1),
        Form::Float => (Physical::DOUBLE, None, -1),
        Form::Date => (Physical::INT32, Some(LogicalType::Date), -1),
        Form::Time(Unit::Millis) => (Physical::INT32, Some(LogicalType::time(false, TimeUnit::MILLIS)), -1),
        Form::Time(unit) => (Physical::INT64, Some(LogicalType::time(false, unit.logical())), -1),
        Form::Moment(unit) => (Physical::INT64, Some(LogicalType::timestamp(false, unit.logical())), -1),
        Form::Zoned(unit) => (Physical::INT64, Some(LogicalType::timestamp(true, unit.logical())), -1),
        Form::Uuid => (Physical::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Uuid), 16),
        Form::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String), -1),
        Form::Binary => (Physical::BYTE_ARRAY, None, -1),
    };
    let mut builder = Type::primitive_type_builder(name, physical).with_repetition(repetition);
    if let (Form::Decimal(precision, scale), true) = (form, logical.is_some()) {
        builder = builder.with_precision(precision.into()).with_scale(scale.into());
    }
    if length >= 0 {
        builder = builder.with_length(length);
    }
    builder.with_logical_type(logical).build().map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_has_the_fewest_bytes_that_hold_all_its_digits() {
        let found: Vec<i32> = [1, 2, 3, 4, 9, 18, 19, 28, 38].into_iter().map(decimal_bytes).collect();
        assert_eq!(found, [1, 1, 2, 2, 4, 8, 9, 12, 16]);
    }
}
