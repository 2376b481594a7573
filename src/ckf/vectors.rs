//! Reading the recorded vectors in tests.

use serde_json::Value;

/// `tests/vectors/ckf.json`.
pub(crate) fn ckf() -> Value {
    serde_json::from_str(include_str!("../../tests/vectors/ckf.json")).expect("valid vectors")
}

/// `tests/vectors/cbi1.json`.
pub(crate) fn cbi1() -> Value {
    serde_json::from_str(include_str!("../../tests/vectors/cbi1.json")).expect("valid vectors")
}

/// The rows of an array.
pub(crate) fn rows(value: &Value) -> &[Value] {
    value.as_array().expect("an array")
}

/// A number, written plainly or as `0x` text.
pub(crate) fn num(value: &Value) -> u64 {
    match value {
        Value::String(text) => {
            u64::from_str_radix(text.strip_prefix("0x").expect("0x"), 16).expect("hex")
        }
        other => other.as_u64().expect("a number"),
    }
}

/// A list of numbers.
pub(crate) fn nums(value: &Value) -> Vec<u64> {
    rows(value).iter().map(num).collect()
}

/// Text.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

/// Bytes written as hex.
pub(crate) fn bytes(value: &Value) -> Vec<u8> {
    let text = text(value);
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}
