//! Values of an engine's own: JSON that the format does not look into. It is kept as text, because text takes no more
//! memory than it has bytes.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

/// Most bytes of JSON in one value.
const BYTES_MAX: usize = 16 << 20;
/// Most values inside one: 80,000 files outside the data directory of a server need three each.
const VALUES_MAX: usize = 1 << 18;
/// How deep arrays and objects may be nested.
const DEPTH_MAX: usize = 32;

/// JSON of bounded length, depth and number of values.
#[derive(Clone, PartialEq, Eq)]
pub struct EngineValue(Arc<str>);

impl EngineValue {
    /// The parsed value. It takes far more memory than the text, so keep it no longer than needed.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default() // What this type holds was JSON when it was made.
    }

    /// The JSON.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl From<Value> for EngineValue {
    fn from(value: Value) -> Self {
        Self(value.to_string().into())
    }
}

impl Default for EngineValue {
    fn default() -> Self {
        Value::Null.into()
    }
}

impl fmt::Debug for EngineValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for EngineValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for EngineValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for EngineValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (mut text, values) = (String::new(), Cell::new(0));
        Transcript { text: &mut text, values: &values, depth: 0 }.deserialize(deserializer)?;
        Ok(Self(text.into()))
    }
}

/// Writes one value to `text` while it is read.
struct Transcript<'a> {
    text: &'a mut String,
    values: &'a Cell<usize>,
    depth: usize,
}

impl Transcript<'_> {
    fn write<E: serde::de::Error>(&mut self, json: &str) -> Result<(), E> {
        if self.text.len() + json.len() > BYTES_MAX {
            return Err(E::custom(format!("a value of the engine has more than {BYTES_MAX} bytes")));
        }
        self.text.push_str(json);
        Ok(())
    }

    fn scalar<E: serde::de::Error>(mut self, value: &impl Serialize) -> Result<(), E> {
        let json = serde_json::to_string(value).map_err(E::custom)?;
        self.write(&json)
    }

    /// For a value inside this one.
    fn inner(&mut self) -> Transcript<'_> {
        Transcript { text: self.text, values: self.values, depth: self.depth + 1 }
    }
}

impl<'de> DeserializeSeed<'de> for Transcript<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.values.set(self.values.get() + 1);
        if self.values.get() > VALUES_MAX {
            return Err(D::Error::custom(format!("a value of the engine has more than {VALUES_MAX} values inside")));
        }
        if self.depth > DEPTH_MAX {
            return Err(D::Error::custom(format!("a value of the engine is nested deeper than {DEPTH_MAX} levels")));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Transcript<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.scalar(&())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.scalar(&value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.scalar(&value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.scalar(&value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.scalar(&value)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.scalar(&value)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        self.write("[")?;
        let start = self.text.len();
        loop {
            let before = self.text.len();
            if before > start {
                self.write(",")?;
            }
            if items.next_element_seed(self.inner())?.is_none() {
                self.text.truncate(before);
                return self.write("]");
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        self.write("{")?;
        let mut between = "";
        while let Some(name) = entries.next_key::<String>()? {
            self.write(between)?;
            self.write(&serde_json::to_string(&name).map_err(A::Error::custom)?)?;
            self.write(":")?;
            entries.next_value_seed(self.inner())?;
            between = ",";
        }
        self.write("}")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<EngineValue, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn a_written_value_is_read_unchanged() {
        for json in [
            "null",
            "[]",
            "{}",
            "[ ]",
            "[[],{},[null]]",
            r#" { "a\"b" : [ true, -7, 18446744073709551615, 1.5, "x\u0007\ud83d\ude00" ], "c": {"d": {"e": [1, 2]}} } "#,
        ] {
            let value: Value = serde_json::from_str(json).unwrap();
            let read = read(json).unwrap();
            assert_eq!(read.value(), value, "{json}");
            assert_eq!(read, EngineValue::from(value.clone()), "{json}");
            assert_eq!(serde_json::to_value(&read).unwrap(), value);
            assert_eq!(serde_json::from_value::<EngineValue>(value).unwrap(), read);
        }
        assert_eq!(EngineValue::default().text(), "null");
    }

    #[test]
    fn more_values_bytes_or_levels_than_the_bounds_are_refused() {
        let list = |count: usize| format!("[{}]", vec!["0"; count].join(","));
        read(&list(VALUES_MAX - 1)).unwrap();
        let error = read(&list(VALUES_MAX)).unwrap_err();
        assert!(error.contains("more than 262144 values"), "{error}");
        let nested = |levels: usize| format!("{}0{}", "[".repeat(levels), "]".repeat(levels));
        read(&nested(DEPTH_MAX)).unwrap();
        let error = read(&nested(DEPTH_MAX + 1)).unwrap_err();
        assert!(error.contains("deeper than 32"), "{error}");
        let text = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
        read(&text(BYTES_MAX)).unwrap();
        let error = read(&text(BYTES_MAX + 1)).unwrap_err();
        assert!(error.contains("more than 16777216 bytes"), "{error}");
    }

    #[test]
    fn the_account_of_65_535_files_outside_the_data_directory_is_read() {
        let file = serde_json::json!({ "path": "#outside/mnt/fast/shop/orders_of_a_long_year#p#p2026_11.ibd",
            "was": "/mnt/fast/shop/orders_of_a_long_year#p#p2026_11.ibd" });
        let json = serde_json::json!({ "outside_the_data_directory": vec![file; 65_535] });
        assert_eq!(read(&json.to_string()).unwrap().value(), json);
    }
}
