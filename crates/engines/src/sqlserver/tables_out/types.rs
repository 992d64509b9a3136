//! The types of columns: how many bytes they have, which cells they give, how T-SQL writes them.

use super::super::super::engine::ColumnKind;

/// The numbers of the types, as `sys.types` has them in `system_type_id`.
pub mod xtype {
    #![allow(missing_docs)]
    pub const IMAGE: u8 = 34;
    pub const TEXT: u8 = 35;
    pub const UNIQUEIDENTIFIER: u8 = 36;
    pub const DATE: u8 = 40;
    pub const TIME: u8 = 41;
    pub const DATETIME2: u8 = 42;
    pub const DATETIMEOFFSET: u8 = 43;
    pub const TINYINT: u8 = 48;
    pub const SMALLINT: u8 = 52;
    pub const INT: u8 = 56;
    pub const SMALLDATETIME: u8 = 58;
    pub const REAL: u8 = 59;
    pub const MONEY: u8 = 60;
    pub const DATETIME: u8 = 61;
    pub const FLOAT: u8 = 62;
    pub const SQL_VARIANT: u8 = 98;
    pub const NTEXT: u8 = 99;
    pub const BIT: u8 = 104;
    pub const DECIMAL: u8 = 106;
    pub const NUMERIC: u8 = 108;
    pub const SMALLMONEY: u8 = 122;
    pub const BIGINT: u8 = 127;
    pub const VARBINARY: u8 = 165;
    pub const VARCHAR: u8 = 167;
    pub const BINARY: u8 = 173;
    pub const CHAR: u8 = 175;
    pub const TIMESTAMP: u8 = 189;
    pub const NVARCHAR: u8 = 231;
    pub const NCHAR: u8 = 239;
    pub const CLR: u8 = 240;
    pub const XML: u8 = 241;
}

/// The type of a stored value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoredType {
    /// Its number: see [`xtype`].
    pub xtype: u8,
    /// The length in bytes, of types that have one.
    pub length: u16,
    /// Digits in all, of decimal numbers.
    pub precision: u8,
    /// Digits behind the point.
    pub scale: u8,
    /// The collation of text.
    pub collation: u32,
}

impl StoredType {
    /// From `ti` and `cid` of `sysrscols`: the number of the type in the lowest byte, then its length, or precision and
    /// scale.
    pub fn from_type_info(info: u32, collation: u32) -> Self {
        let [number, second, third, _] = info.to_le_bytes();
        let (mut precision, mut scale) = (0, 0);
        let mut length = u16::from_le_bytes([second, third]);
        match number {
            xtype::DECIMAL | xtype::NUMERIC => (precision, scale, length) = (second, third, 0),
            xtype::TIME | xtype::DATETIME2 | xtype::DATETIMEOFFSET => (scale, length) = (second, 0),
            _ => {}
        }
        Self { xtype: number, length, precision, scale, collation }
    }

    /// The bytes in the part of fixed length. `None` for other types, and for `bit`, which has one bit.
    pub fn fixed_length(&self) -> Option<usize> {
        Some(match self.xtype {
            xtype::TINYINT => 1,
            xtype::SMALLINT => 2,
            xtype::INT | xtype::REAL | xtype::SMALLDATETIME | xtype::SMALLMONEY => 4,
            xtype::BIGINT | xtype::FLOAT | xtype::MONEY | xtype::DATETIME | xtype::TIMESTAMP => 8,
            xtype::UNIQUEIDENTIFIER => 16,
            xtype::DATE => 3,
            xtype::TIME => time_length(self.scale),
            xtype::DATETIME2 => time_length(self.scale) + 3,
            xtype::DATETIMEOFFSET => time_length(self.scale) + 5,
            xtype::DECIMAL | xtype::NUMERIC => decimal_length(self.precision),
            xtype::CHAR | xtype::NCHAR | xtype::BINARY => self.length.into(),
            _ => return None,
        })
    }

    /// True for types whose values may be outside of their row.
    pub fn is_variable(&self) -> bool {
        use xtype::*;
        matches!(self.xtype, VARCHAR | NVARCHAR | VARBINARY | SQL_VARIANT | XML | CLR | IMAGE | TEXT | NTEXT)
    }

    /// True for types whose row has only a pointer of 16 bytes.
    pub fn is_text_pointer(&self) -> bool {
        matches!(self.xtype, xtype::IMAGE | xtype::TEXT | xtype::NTEXT)
    }

    /// Which cells a column has. `None` if the type is not known.
    pub fn kind(&self) -> Option<ColumnKind> {
        Some(match self.xtype {
            xtype::BIT => ColumnKind::Bool,
            xtype::TINYINT => ColumnKind::Byte,
            xtype::SMALLINT => ColumnKind::Short,
            xtype::INT => ColumnKind::Int,
            xtype::BIGINT => ColumnKind::Long,
            xtype::REAL => ColumnKind::Real,
            xtype::FLOAT => ColumnKind::Float,
            xtype::MONEY => ColumnKind::Decimal { precision: 19, scale: 4 },
            xtype::SMALLMONEY => ColumnKind::Decimal { precision: 10, scale: 4 },
            xtype::DECIMAL | xtype::NUMERIC if (1..=38).contains(&self.precision) && self.scale <= self.precision => {
                ColumnKind::Decimal { precision: self.precision, scale: self.scale }
            }
            xtype::DATE => ColumnKind::Date,
            xtype::SMALLDATETIME => ColumnKind::Moment { digits: 0 },
            xtype::DATETIME => ColumnKind::Moment { digits: 3 },
            xtype::TIME if self.scale <= 7 => ColumnKind::Time { digits: self.scale },
            xtype::DATETIME2 if self.scale <= 7 => ColumnKind::Moment { digits: self.scale },
            xtype::DATETIMEOFFSET if self.scale <= 7 => ColumnKind::ZonedMoment { digits: self.scale },
            xtype::UNIQUEIDENTIFIER => ColumnKind::Uuid,
            xtype::CHAR | xtype::VARCHAR | xtype::TEXT | xtype::NCHAR | xtype::NVARCHAR | xtype::NTEXT => {
                ColumnKind::Text
            }
            xtype::XML => ColumnKind::Text,
            xtype::BINARY | xtype::VARBINARY | xtype::IMAGE | xtype::TIMESTAMP | xtype::CLR => ColumnKind::Binary,
            xtype::SQL_VARIANT => ColumnKind::Any,
            _ => return None,
        })
    }
}

/// Bytes of a time with so many digits behind the point.
pub fn time_length(digits: u8) -> usize {
    match digits {
        0..=2 => 3,
        3 | 4 => 4,
        _ => 5,
    }
}

/// Bytes of a decimal number with so many digits: one for the sign.
fn decimal_length(precision: u8) -> usize {
    match precision {
        0..=9 => 5,
        10..=19 => 9,
        20..=28 => 13,
        _ => 17,
    }
}

/// A type as T-SQL writes it. `length` is that of `syscolpars`: -1 is `max`.
pub fn declared(number: u8, length: i16, precision: u8, scale: u8) -> String {
    let sized = |name: &str, unit: i16| match length {
        -1 => format!("{name}(max)"),
        length => format!("{name}({})", length / unit),
    };
    match number {
        xtype::VARCHAR => sized("varchar", 1),
        xtype::CHAR => sized("char", 1),
        xtype::NVARCHAR => sized("nvarchar", 2),
        xtype::NCHAR => sized("nchar", 2),
        xtype::VARBINARY => sized("varbinary", 1),
        xtype::BINARY => sized("binary", 1),
        xtype::DECIMAL => format!("decimal({precision},{scale})"),
        xtype::NUMERIC => format!("numeric({precision},{scale})"),
        xtype::TIME => format!("time({scale})"),
        xtype::DATETIME2 => format!("datetime2({scale})"),
        xtype::DATETIMEOFFSET => format!("datetimeoffset({scale})"),
        other => NAMES
            .iter()
            .find(|(known, _)| *known == other)
            .map_or_else(|| format!("type {other}"), |(_, name)| (*name).to_owned()),
    }
}

const NAMES: [(u8, &str); 19] = [
    (xtype::IMAGE, "image"),
    (xtype::TEXT, "text"),
    (xtype::NTEXT, "ntext"),
    (xtype::UNIQUEIDENTIFIER, "uniqueidentifier"),
    (xtype::DATE, "date"),
    (xtype::TINYINT, "tinyint"),
    (xtype::SMALLINT, "smallint"),
    (xtype::INT, "int"),
    (xtype::BIGINT, "bigint"),
    (xtype::SMALLDATETIME, "smalldatetime"),
    (xtype::DATETIME, "datetime"),
    (xtype::REAL, "real"),
    (xtype::FLOAT, "float"),
    (xtype::MONEY, "money"),
    (xtype::SMALLMONEY, "smallmoney"),
    (xtype::SQL_VARIANT, "sql_variant"),
    (xtype::BIT, "bit"),
    (xtype::TIMESTAMP, "rowversion"),
    (xtype::XML, "xml"),
];
