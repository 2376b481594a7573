//! CSV documents to JSON objects, as Meilisearch reads them.
//!
//! The first line names the columns. A name may end in `:string`, `:number` or `:boolean`; what
//! follows the last colon is the type only when it is one of these.

use super::error::{DocumentError, PayloadKind};
use super::object::quoted;
use crate::proto::args::Span;

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Number,
    Boolean,
}

struct Column {
    /// The name as JSON, with the colon behind it.
    key: String,
    name: String,
    kind: Kind,
}

/// The records as JSON objects and the place of each. Decoding stops at `bytes_max`, since a wide
/// header is repeated in every object.
///
/// # Errors
/// [`DocumentError::Malformed`] with the record's number, or [`DocumentError::TooLarge`].
pub fn to_objects(
    text: &str,
    delimiter: u8,
    bytes_max: usize,
) -> Result<(String, Vec<Span>), DocumentError> {
    let mut reader = ::csv::ReaderBuilder::new().delimiter(delimiter).from_reader(text.as_bytes());
    let columns: Vec<Column> = reader.headers().map_err(malformed)?.iter().map(column).collect();
    let mut out = String::new();
    let mut spans = Vec::new();
    for (i, record) in reader.records().enumerate() {
        let record = record.map_err(malformed)?;
        let start = out.len();
        write_object(&mut out, &columns, &record).map_err(|reason| malformed_at(i + 1, &reason))?;
        if out.len() > bytes_max {
            return Err(DocumentError::TooLarge(bytes_max));
        }
        spans.push(Span::new(start, out.len()));
    }
    Ok((out, spans))
}

fn column(header: &str) -> Column {
    let (name, kind) = match header.rsplit_once(':') {
        Some((name, "string")) => (name, Kind::Text),
        Some((name, "number")) => (name, Kind::Number),
        Some((name, "boolean")) => (name, Kind::Boolean),
        _ => (header, Kind::Text),
    };
    Column { key: format!("{}:", quoted(name)), name: name.to_owned(), kind }
}

fn write_object(
    out: &mut String,
    columns: &[Column],
    record: &::csv::StringRecord,
) -> Result<(), String> {
    out.push('{');
    for (i, (column, text)) in columns.iter().zip(record).enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(&column.key);
        out.push_str(&value(column, text)?);
    }
    out.push('}');
    Ok(())
}

fn value(column: &Column, text: &str) -> Result<String, String> {
    let trimmed = text.trim();
    match column.kind {
        Kind::Text if text.is_empty() => Ok("null".to_owned()),
        Kind::Text => Ok(quoted(text)),
        Kind::Number | Kind::Boolean if trimmed.is_empty() => Ok("null".to_owned()),
        Kind::Number => number(trimmed)
            .ok_or_else(|| format!("`{trimmed}` in column `{}` is no number", column.name)),
        Kind::Boolean => match trimmed {
            "true" | "false" => Ok(trimmed.to_owned()),
            _ => Err(format!("`{trimmed}` in column `{}` is no boolean", column.name)),
        },
    }
}

fn number(text: &str) -> Option<String> {
    if let Ok(integer) = text.parse::<i64>() {
        return Some(integer.to_string());
    }
    let float = text.parse::<f64>().ok()?;
    serde_json::Number::from_f64(float).map(|number| number.to_string())
}

fn malformed(error: ::csv::Error) -> DocumentError {
    DocumentError::Malformed { kind: PayloadKind::Csv, reason: error.to_string() }
}

fn malformed_at(record: usize, reason: &str) -> DocumentError {
    let reason = format!("record {record}: {reason}");
    DocumentError::Malformed { kind: PayloadKind::Csv, reason }
}
