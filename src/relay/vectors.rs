//! The recorded vectors of the relay's messages.

use std::fmt::Write as _;

use prost::Message;
use serde_json::Value;

/// The whole file.
pub(super) fn all() -> Value {
    serde_json::from_str(include_str!("../../tests/vectors/relay-messages.json")).unwrap()
}

/// The rows of one list.
pub(super) fn rows(list: &str) -> Vec<Value> {
    all()[list].as_array().unwrap().clone()
}

/// The bytes of a hexadecimal text.
pub(super) fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

/// The hexadecimal text of bytes.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// One recorded message.
pub(super) fn message<M: Message + Default>(name: &str) -> M {
    let rows = rows("messages").into_iter().chain(rows("serving_load_messages"));
    let row = rows.into_iter().find(|row| row["name"] == name);
    M::decode(&bytes(&row.unwrap_or_else(|| panic!("no vector {name}"))["hex"])[..]).unwrap()
}
