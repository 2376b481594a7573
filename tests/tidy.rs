//! The style of the tree, checked: sizes, layers, and what must not appear.

use std::fs;
use std::path::{Path, PathBuf};

/// Top-level modules by layer: a module uses its own layer and lower ones only.
const LAYERS: [&[&str]; 5] = [
    &["token", "hash", "stamp", "ring", "proto", "ckf", "document"],
    &["gossip", "dispatch", "affinity", "relay"],
    &["config", "store"],
    &["net", "gateway", "admin", "telemetry", "relay_server", "relay_client"],
    &["node", "cli"],
];

const FILE_LINES_MAX: usize = 500;
const LINE_COLUMNS_MAX: usize = 100;

struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The top-level module the file belongs to.
    fn module(&self) -> String {
        let first = self.path.components().next().expect("a relative path");
        first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
    }

    fn is_test(&self) -> bool {
        self.path.components().any(|c| c.as_os_str().to_string_lossy().starts_with("test"))
    }

    /// Lines of code with their numbers: no comments, and nothing from the tests at the end on.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(i, line)| (i + 1, line));
        lines
            .take_while(|(_, line)| !line.starts_with("mod tests {"))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    collect(&root, &root, &mut found);
    assert!(found.len() > 100, "the tree was found");
    found
}

fn collect(root: &Path, folder: &Path, into: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(root, &path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).expect("UTF-8");
            let path = path.strip_prefix(root).expect("below the root").to_owned();
            into.push(Source { path, text });
        }
    }
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
}

fn none(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn files_and_lines_are_short() {
    let mut found = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            found.push(format!("{}: {lines} lines", source.name()));
        }
        for (i, line) in source.text.lines().enumerate() {
            // An address cannot be broken.
            if line.chars().count() > LINE_COLUMNS_MAX && !line.contains("://") {
                found.push(format!("{}:{}: a line over 100 columns", source.name(), i + 1));
            }
        }
    }
    none(found);
}

#[test]
fn modules_use_their_own_layer_and_lower_ones_only() {
    let mut found = Vec::new();
    for source in sources() {
        let module = source.module();
        let Some(layer) = layer_of(&module) else {
            if !["lib", "main", "build"].contains(&module.as_str()) {
                found.push(format!("{}: {module} has no layer", source.name()));
            }
            continue;
        };
        for (number, line) in source.code() {
            for used in line.split("crate::").skip(1) {
                let name: String =
                    used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if layer_of(&name).is_some_and(|other| other > layer) {
                    found.push(format!("{}:{number}: {module} uses {name}", source.name()));
                }
            }
        }
    }
    none(found);
}

#[test]
fn cores_know_no_socket_no_clock_and_no_task() {
    const BANNED: [&str; 6] = [
        "tokio::",
        "std::net::Tcp",
        "std::net::Udp",
        "Instant::now",
        "SystemTime::now",
        "async fn",
    ];
    let mut found = Vec::new();
    for source in sources().iter().filter(|s| layer_of(&s.module()).is_some_and(|l| l < 2)) {
        for (number, line) in source.code() {
            for banned in BANNED.iter().filter(|b| line.contains(**b)) {
                found.push(format!("{}:{number}: {banned}", source.name()));
            }
        }
    }
    none(found);
}

#[test]
fn nothing_unfinished_or_unsafe_is_left() {
    const BANNED: [&str; 4] = ["todo!(", "unimplemented!(", "dbg!(", "#[ignore]"];
    let mut found = Vec::new();
    for source in sources() {
        for (number, line) in source.code() {
            for banned in BANNED.iter().filter(|b| line.contains(**b)) {
                found.push(format!("{}:{number}: {banned}", source.name()));
            }
            let lifts = line.contains("unsafe_code") || line.trim_start().starts_with("unsafe ");
            if lifts && source.path != Path::new("ckf/simd.rs") && !source.is_test() {
                found.push(format!("{}:{number}: unsafe code", source.name()));
            }
        }
    }
    none(found);
}
