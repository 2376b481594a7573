//! `torc schema`: the JSON schema of a configuration file.

use super::Failure;
use crate::config::json_schema_text;

/// Prints the schema; `conf/torc.schema.json` is this text.
pub(super) fn schema() -> Result<(), Failure> {
    print!("{}", json_schema_text());
    Ok(())
}
