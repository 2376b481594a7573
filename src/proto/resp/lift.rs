//! Turns a RESP2 reply into the one redis-server sends for the same command on a RESP3
//! connection.
//!
//! Stores and peers speak RESP2; a client that said `HELLO 3` gets maps, sets, doubles, verbatim
//! strings and the one null. What a reply is to become is its command's [`Shape`]; a reply that
//! does not look as its shape expects (an error, a null, another type) is passed on with nothing
//! but its nulls changed. Typed values of scripts (`redis.setresp(3)`) stay in RESP2 form.

use super::encode;
use super::reply::{self, Element};
use super::shape::Shape;

/// Appends `reply`, a whole RESP2 reply, to `out` in its RESP3 form.
pub fn lift(shape: Shape, reply: &[u8], out: &mut Vec<u8>) {
    form(form_of(shape), reply, out);
}

/// Appends the reply of EXEC in its RESP3 form; `shapes` are those of the queued commands.
pub fn lift_exec(shapes: &[Shape], reply: &[u8], out: &mut Vec<u8>) {
    let elements = reply::elements(reply);
    if elements.left() != shapes.len() || shapes.is_empty() {
        return same(reply, out);
    }
    encode::array(out, shapes.len());
    for (element, shape) in elements.zip(shapes) {
        lift(*shape, element, out);
    }
}

/// True when the RESP3 form is surely the same bytes, so that a large value need not be copied.
#[inline]
pub fn is_unchanged(shape: Shape, reply: &[u8]) -> bool {
    match reply.first() {
        Some(b'+' | b'-' | b':') => true,
        Some(b'$') => !matches!(shape, Shape::Double | Shape::Verbatim) && !reply::is_null(reply),
        _ => false,
    }
}

/// What becomes of one part of a reply. Forms are static and finite, so following them is
/// recursion of bounded depth, whatever the reply holds.
enum Form {
    /// Nothing but nulls changes, at every depth.
    Same,
    /// A bulk string becomes a double.
    Double,
    /// A bulk string becomes a verbatim string.
    Verbatim,
    /// An array becomes a set.
    Set,
    /// A flat array of keys and values becomes a map. Values of the named keys have their form,
    /// the others the last one.
    Map(&'static [(&'static str, Form)], &'static Form),
    /// An array of [key, value] becomes a map.
    Entries,
    /// An array of [key, value, ...] becomes a map; each value is the array of what follows.
    Rows,
    /// Each element of an array.
    Each(&'static Form),
    /// The last element of an array.
    Last(&'static Form),
    /// The elements of an array one by one; those behind the listed ones keep theirs.
    Tuple(&'static [Form]),
    /// A flat array becomes an array of pairs; the second of each has the form.
    Pairs(&'static Form),
    /// A bulk string becomes a double, a flat array a map.
    Stat,
}

static SAME: Form = Form::Same;
static DOUBLE: Form = Form::Double;
static MAP: Form = Form::Map(&[], &SAME);
static MAPS: Form = Form::Each(&MAP);
static EACH_DOUBLE: Form = Form::Each(&DOUBLE);
static EACH_COORDINATES: Form = Form::Each(&EACH_DOUBLE);
static SCORED: Form = Form::Last(&DOUBLE);
static EACH_SCORED: Form = Form::Each(&SCORED);
static GROUP: Form = Form::Map(&[("consumers", Form::Each(&MAP))], &SAME);
static FLAG_MAP: Form = Form::Map(&[("flags", Form::Set)], &SAME);
static LIBRARY: Form = Form::Map(&[("functions", Form::Each(&FLAG_MAP))], &SAME);
static HISTOGRAM: Form = Form::Map(&[("histogram_usec", Form::Map(&[], &SAME))], &SAME);
static STAT: Form = Form::Stat;

static STATS: Form = Form::Map(&[], &STAT);
static VERBATIM: Form = Form::Verbatim;
static SET: Form = Form::Set;
static ENTRIES: Form = Form::Entries;
static ENTRY_MAPS: Form = Form::Each(&ENTRIES);
static ROWS: Form = Form::Rows;
static PAIRS: Form = Form::Pairs(&SAME);
static SCORE_PAIRS: Form = Form::Pairs(&DOUBLE);
static KEY_SCORE_PAIRS: Form = Form::Last(&EACH_SCORED);
static GEO_HITS: Form = Form::Each(&EACH_COORDINATES);
static STREAM_FULL: Form = Form::Map(&[("groups", Form::Each(&GROUP))], &SAME);
static LIBRARIES: Form = Form::Each(&LIBRARY);
static MAP_OF_MAPS: Form = Form::Map(
    &[("running_script", Form::Map(&[], &SAME)), ("engines", Form::Map(&[], &MAP))],
    &SAME,
);
static COMMANDS: Form = Form::Each(&COMMAND);
static COMMAND: Form = Form::Tuple(&[
    Form::Same,
    Form::Same,
    Form::Set,
    Form::Same,
    Form::Same,
    Form::Same,
    Form::Set,
    Form::Set,
    Form::Set,
    // Subcommands have none of their own.
    Form::Each(&SUBCOMMAND),
]);
static SUBCOMMAND: Form = Form::Tuple(&[
    Form::Same,
    Form::Same,
    Form::Set,
    Form::Same,
    Form::Same,
    Form::Same,
    Form::Set,
    Form::Set,
    Form::Set,
    Form::Set,
]);
static COMMAND_DOCS: Form = Form::Map(&[], &COMMAND_DOC);
static COMMAND_DOC: Form = Form::Map(&[("subcommands", Form::Map(&[], &MAP))], &SAME);
static KEYS_AND_FLAGS: Form = Form::Each(&KEY_AND_FLAGS);
static KEY_AND_FLAGS: Form = Form::Last(&SET);
static HISTOGRAMS: Form = Form::Map(&[], &HISTOGRAM);

fn form_of(shape: Shape) -> &'static Form {
    match shape {
        Shape::Same => &SAME,
        Shape::Map => &MAP,
        Shape::FlagMap => &FLAG_MAP,
        Shape::Maps => &MAPS,
        Shape::Set => &SET,
        Shape::Double => &DOUBLE,
        Shape::Doubles => &EACH_DOUBLE,
        Shape::Pairs => &PAIRS,
        Shape::ScorePairs => &SCORE_PAIRS,
        Shape::LastScore => &SCORED,
        Shape::KeyScorePairs => &KEY_SCORE_PAIRS,
        Shape::Coordinates => &EACH_COORDINATES,
        Shape::GeoHits => &GEO_HITS,
        Shape::Streams => &ENTRIES,
        Shape::EntryMaps => &ENTRY_MAPS,
        Shape::Rows => &ROWS,
        Shape::StreamFull => &STREAM_FULL,
        Shape::Verbatim => &VERBATIM,
        Shape::Stats => &STATS,
        Shape::FunctionList => &LIBRARIES,
        Shape::MapOfMaps => &MAP_OF_MAPS,
        Shape::Histograms => &HISTOGRAMS,
        Shape::Commands => &COMMANDS,
        Shape::CommandDocs => &COMMAND_DOCS,
        Shape::KeysAndFlags => &KEYS_AND_FLAGS,
    }
}

fn form(form: &Form, reply: &[u8], out: &mut Vec<u8>) {
    match (form, reply.first()) {
        _ if reply::is_null(reply) => encode::null(out),
        (Form::Double | Form::Stat, Some(b'$')) => {
            encode::double(out, reply::text(reply).unwrap_or_default());
        }
        (Form::Verbatim, Some(b'$')) => {
            encode::verbatim(out, reply::text(reply).unwrap_or_default());
        }
        (Form::Same | Form::Double | Form::Verbatim, _) => same(reply, out),
        (_, Some(b'*')) => array(form, reply, out),
        _ => same(reply, out),
    }
}

fn array(kind: &Form, reply: &[u8], out: &mut Vec<u8>) {
    let elements = reply::elements(reply);
    let len = elements.left();
    match kind {
        Form::Set => {
            encode::set(out, len);
            elements.for_each(|element| same(element, out));
        }
        Form::Each(each) => {
            encode::array(out, len);
            elements.for_each(|element| form(each, element, out));
        }
        Form::Last(last) => {
            encode::array(out, len);
            for (i, element) in elements.enumerate() {
                form(if i + 1 == len { last } else { &SAME }, element, out);
            }
        }
        Form::Tuple(forms) => {
            encode::array(out, len);
            for (i, element) in elements.enumerate() {
                form(forms.get(i).unwrap_or(&SAME), element, out);
            }
        }
        Form::Map(named, other) if len.is_multiple_of(2) => map(named, other, elements, out),
        Form::Stat if len.is_multiple_of(2) => map(&[], &SAME, elements, out),
        Form::Pairs(second) if len.is_multiple_of(2) => pairs(second, elements, out),
        Form::Entries if elements.clone().all(|e| reply::elements(e).left() == 2) => {
            encode::map(out, len);
            for element in elements.flat_map(reply::elements) {
                same(element, out);
            }
        }
        Form::Rows if elements.clone().all(|e| reply::elements(e).left() >= 1) => {
            encode::map(out, len);
            for mut row in elements.map(reply::elements) {
                same(row.next().unwrap_or_default(), out);
                encode::array(out, row.left());
                row.for_each(|value| same(value, out));
            }
        }
        Form::Map(..) | Form::Pairs(_) | Form::Stat | Form::Entries | Form::Rows => {
            same(reply, out);
        }
        Form::Same | Form::Double | Form::Verbatim => same(reply, out),
    }
}

fn map(
    named: &'static [(&'static str, Form)],
    other: &'static Form,
    mut elements: reply::Elements<'_>,
    out: &mut Vec<u8>,
) {
    encode::map(out, elements.left() / 2);
    while let (Some(key), Some(value)) = (elements.next(), elements.next()) {
        same(key, out);
        let name = reply::text(key).unwrap_or_default();
        let found = named.iter().find(|(known, _)| known.as_bytes() == name);
        form(found.map_or(other, |(_, form)| form), value, out);
    }
}

fn pairs(second: &Form, mut elements: reply::Elements<'_>, out: &mut Vec<u8>) {
    encode::array(out, elements.left() / 2);
    while let (Some(first), Some(value)) = (elements.next(), elements.next()) {
        encode::array(out, 2);
        same(first, out);
        form(second, value, out);
    }
}

/// Copies a reply of any depth, nulls replaced. Long runs are copied at once.
fn same(reply: &[u8], out: &mut Vec<u8>) {
    if reply.first() != Some(&b'*') {
        return match reply::is_null(reply) {
            true => encode::null(out),
            false => out.extend_from_slice(reply),
        };
    }
    let (mut copied, mut at) = (0, 0);
    while let Some(element) = reply::known(reply, at) {
        at = match element {
            Element::Array { first, .. } => first,
            Element::Whole(end) => {
                if reply::is_null(&reply[at..end]) {
                    out.extend_from_slice(&reply[copied..at]);
                    encode::null(out);
                    copied = end;
                }
                end
            }
            Element::Incomplete { .. } => break,
        };
    }
    out.extend_from_slice(&reply[copied..]);
}

#[cfg(test)]
mod tests;
