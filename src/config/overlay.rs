//! From files to one tree: the pool under its root key, and an overlay laid over it.

use std::path::Path;

use super::error::{ConfigErrors, Fault, Faults, Sources};
use super::node::{Entry, Node, Value};
use super::parse;

/// Reads the main file: the pool's name and its map.
pub(super) fn read_main(
    sources: &mut Sources,
    path: &Path,
    text: String,
) -> Result<(String, Node), ConfigErrors> {
    let root = read(sources, path, text)?;
    let mut faults = Faults::default();
    let form = "one root key with the settings below it, as in `dyn_o_mite:`";
    let mut entries = match root.value {
        Value::Map(entries) => entries,
        Value::Null | Value::Text(_) | Value::List(_) => {
            let what = format!("expected a pool, found {}", root.describe());
            faults.push(Fault::new(what).at(Some(root.mark)).accepted(form));
            Vec::new()
        }
    };
    for second in entries.iter().skip(1) {
        let what = format!("`{}` would be a second pool", second.key);
        let fault = Fault::new(what).at(Some(second.key_mark)).width(&second.key).accepted(form);
        faults.push(fault.earlier(Some(entries[0].key_mark), "the first begins"));
    }
    faults.settle(sources)?;
    let pool = entries.remove(0);
    Ok((pool.key, pool.node))
}

/// Lays the overlay's keys over the pool. It holds them directly, or below the pool's name.
pub(super) fn apply(
    sources: &mut Sources,
    path: &Path,
    text: String,
    pool_name: &str,
    pool: &mut Node,
) -> Result<(), ConfigErrors> {
    let root = read(sources, path, text)?;
    let (mark, what) = (root.mark, root.describe());
    let over = match root.value {
        Value::Map(mut entries) if entries.len() == 1 && entries[0].key == pool_name => {
            match entries.remove(0).node.value {
                Value::Map(entries) => entries,
                Value::Null | Value::Text(_) | Value::List(_) => Vec::new(),
            }
        }
        Value::Map(entries) => entries,
        Value::Null | Value::Text(_) | Value::List(_) => {
            let mut faults = Faults::default();
            let what = format!("expected settings, found {what}");
            faults.push(Fault::new(what).at(Some(mark)).accepted("a map of settings"));
            return faults.settle(sources);
        }
    };
    if let Value::Map(base) = &mut pool.value {
        lay_over(base, over);
    }
    Ok(())
}

/// Adds settings of the command line that the pool lacks.
pub(super) fn add_absent(
    sources: &mut Sources,
    text: String,
    pool: &mut Node,
) -> Result<(), ConfigErrors> {
    let root = read(sources, Path::new("command line"), text)?;
    if let (Value::Map(base), Value::Map(more)) = (&mut pool.value, root.value) {
        for entry in more {
            if !base.iter().any(|b| b.key == entry.key) {
                base.push(entry);
            }
        }
    }
    Ok(())
}

fn read(sources: &mut Sources, path: &Path, text: String) -> Result<Node, ConfigErrors> {
    let source = sources.add(path, text);
    parse::parse(sources.text(source), source).map_err(|broken| sources.broken(source, broken))
}

/// Maps are merged, everything else is replaced. A key repeated within the overlay stays
/// repeated, so that it is reported.
fn lay_over(base: &mut Vec<Entry>, over: Vec<Entry>) {
    let mut done: Vec<String> = Vec::new();
    for entry in over {
        let found = base.iter_mut().find(|b| b.key == entry.key && !done.contains(&b.key));
        done.push(entry.key.clone());
        let Some(below) = found else {
            base.push(entry);
            continue;
        };
        if let (Value::Map(lower), Value::Map(_)) = (&mut below.node.value, &entry.node.value) {
            if let Value::Map(upper) = entry.node.value {
                lay_over(lower, upper);
            }
        } else {
            *below = entry;
        }
    }
}
