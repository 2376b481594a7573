//! The JSON schema of a configuration file, for editors.

use serde_json::{Value as Json, json};

use super::pool::Pool;
use super::setting::Setting;

/// The schema of a whole file: one root key of any name with a pool below it. It describes each
/// key; what keys mean together only [`Config::load`](super::Config::load) can check.
pub fn json_schema() -> Json {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "torc configuration",
        "description": "A pool under its name, customarily dyn_o_mite.",
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": Pool::schema(),
    })
}

/// The schema as text, as it is kept in `conf/torc.schema.json`.
pub fn json_schema_text() -> String {
    format!("{:#}\n", json_schema())
}
