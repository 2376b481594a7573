//! The configuration file as a tree of texts, before any meaning is given to it.
//!
//! Every scalar is kept as the text that stands in the file: `007`, `0x10`, `no`, `1.50` and
//! tokens of 26 digits arrive unchanged. A node knows where it stands through its [`Mark`].

/// Names one node of one source: enough to find its line and column again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Which file: 0 is the configuration, 1 the overlay.
    pub(super) source: usize,
    /// Place in reading order, keys and values counted alike.
    pub(super) step: u32,
}

/// One value of the file and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(super) mark: Mark,
    pub(super) value: Value,
}

/// What a node holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Nothing after the colon, `~` or `null`.
    Null,
    /// A scalar, exactly as written (without its quotes).
    Text(String),
    /// A list, in block or flow style.
    List(Vec<Node>),
    /// A map in file order; repeated keys are still there.
    Map(Vec<Entry>),
}

/// One `key: value` of a map.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(super) key: String,
    pub(super) key_mark: Mark,
    pub(super) node: Node,
}

impl Node {
    /// What this node is, for messages: `text`, `a list`, `a map`, `nothing`.
    pub(super) fn describe(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The mark of the value at a path of keys; of the deepest key found when the path ends early.
    pub(super) fn find(&self, path: &[&str]) -> Option<Mark> {
        let (first, rest) = path.split_first()?;
        let Value::Map(entries) = &self.value else {
            return None;
        };
        let entry = entries.iter().find(|e| e.key == *first)?;
        Some(entry.node.find(rest).unwrap_or(entry.node.mark))
    }

    /// The node at a path of keys.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        let Value::Map(entries) = &self.value else {
            return None;
        };
        entries.iter().find(|e| e.key == key).map(|e| &e.node)
    }
}
