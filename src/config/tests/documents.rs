//! Documents that must keep up with the model: reference, schema, examples.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::super::pool::Pool;
use super::super::section::{Key, Section};
use super::*;

const REFERENCE: &str = include_str!("../reference.md");

/// All keys, nested ones as `cluster.name`.
fn key_paths(keys: &[Key], prefix: &str, into: &mut BTreeSet<String>) {
    for key in keys {
        let path = format!("{prefix}{}", key.name);
        key_paths((key.keys)(), &format!("{path}."), into);
        into.insert(path);
    }
}

#[test]
fn the_reference_documents_every_key_and_no_other() {
    let mut known = BTreeSet::new();
    key_paths(Pool::KEYS, "", &mut known);
    let rows = REFERENCE.lines().filter_map(|l| l.strip_prefix("| `")?.split_once('`'));
    let documented: BTreeSet<String> = rows.map(|(key, _)| key.to_owned()).collect();
    assert_eq!(documented, known);
}

#[test]
fn every_key_has_a_description_in_the_schema() {
    fn check(keys: &[Key]) {
        for key in keys {
            assert!(!key.doc.is_empty(), "{} has no documentation", key.name);
            check((key.keys)());
        }
    }
    check(Pool::KEYS);
}

#[test]
fn the_schema_file_is_current() {
    let kept = include_str!("../../../conf/torc.schema.json");
    assert!(kept == json_schema_text(), "run: torc schema > conf/torc.schema.json");
}

fn yaml_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            yaml_files(&path, into);
        } else if path.extension().is_some_and(|e| e == "yml") {
            into.push(path);
        }
    }
}

#[test]
fn the_examples_load_without_warnings() {
    let mut files = Vec::new();
    yaml_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("conf"), &mut files);
    assert!(files.len() >= 8, "{files:?}");
    for file in files {
        let loaded = Config::load(&file, None).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(loaded.warnings, Vec::<String>::new(), "{}", file.display());
    }
}
