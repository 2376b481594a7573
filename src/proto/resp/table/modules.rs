//! Commands of modules.
//!
//! Rows here are those that read, or whose keys are not just the first argument; the rest is
//! taken by the prefix rule of [`ModuleCommands`].

use super::super::spec::{ANY, CommandSpec, read, refused, write};
use crate::proto::args::Args;
use crate::proto::command::KeySpec::{self, DestNumKeys, First, Range};

const PATH_LAST: KeySpec = Range { first: 1, last: -2, step: 1 };
const TRIPLES: KeySpec = Range { first: 1, last: -1, step: 3 };
const BOTH: KeySpec = Range { first: 1, last: 2, step: 1 };

const NO_KEY: &str = "a command without a key to route by is not offered for this module";

pub(super) const JSON: &[CommandSpec] = &[
    write("json.arrappend", -3, First).c(1, ANY),
    read("json.arrindex", -4, First),
    write("json.arrinsert", -5, First).c(1, ANY),
    read("json.arrlen", -2, First).c(1, ANY),
    write("json.arrpop", -2, First),
    write("json.arrtrim", 5, First),
    write("json.clear", -2, First),
    write("json.del", -2, First).c(1, ANY),
    write("json.forget", -2, First),
    read("json.get", -2, First).c(1, ANY),
    write("json.merge", 4, First),
    read("json.mget", -3, PATH_LAST).c(1, ANY),
    write("json.mset", -4, TRIPLES),
    write("json.numincrby", 4, First),
    write("json.nummultby", 4, First),
    read("json.objkeys", -2, First).c(1, ANY),
    read("json.objlen", -2, First).c(1, ANY),
    read("json.resp", -2, First),
    write("json.set", -4, First).c(1, ANY),
    write("json.strappend", -3, First),
    read("json.strlen", -2, First),
    write("json.toggle", 3, First),
    read("json.type", -2, First).c(1, ANY),
];

pub(super) const PROBABILISTIC: &[CommandSpec] = &[
    read("bf.card", 2, First),
    read("bf.exists", 3, First),
    read("bf.info", -2, First),
    read("bf.mexists", -3, First),
    read("bf.scandump", 3, First),
    read("cf.compact", 2, First),
    read("cf.count", 3, First),
    read("cf.exists", 3, First),
    read("cf.info", 2, First),
    read("cf.mexists", -3, First),
    read("cf.scandump", 3, First),
    read("cms.info", 2, First),
    write("cms.merge", -4, DestNumKeys),
    read("cms.query", -3, First),
    read("tdigest.byrank", -3, First),
    read("tdigest.byrevrank", -3, First),
    read("tdigest.cdf", -3, First),
    read("tdigest.info", 2, First),
    read("tdigest.max", 2, First),
    write("tdigest.merge", -4, DestNumKeys),
    read("tdigest.min", 2, First),
    read("tdigest.quantile", -3, First),
    read("tdigest.rank", -3, First),
    read("tdigest.revrank", -3, First),
    read("tdigest.trimmed_mean", 4, First),
    read("topk.count", -3, First),
    read("topk.info", 2, First),
    read("topk.list", -2, First),
    read("topk.query", -3, First),
];

pub(super) const TIME_SERIES: &[CommandSpec] = &[
    write("ts.createrule", -6, BOTH),
    write("ts.deleterule", 3, BOTH),
    read("ts.get", -2, First),
    read("ts.info", -2, First),
    write("ts.madd", -4, TRIPLES),
    refused("ts.mget", -3, NO_KEY),
    refused("ts.mrange", -4, NO_KEY),
    refused("ts.mrevrange", -4, NO_KEY),
    refused("ts.queryindex", -2, NO_KEY),
    read("ts.range", -4, First),
    read("ts.revrange", -4, First),
];

/// The rule for commands that no row knows: those whose name begins with one of these prefixes
/// have their key in the first argument. A setting extends the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleCommands {
    /// In lower case, and whether the command only reads.
    prefixes: Vec<(Vec<u8>, bool)>,
}

/// Name prefixes of the modules that come with Redis 8.
const PREFIXES: [&str; 7] = ["bf.", "cf.", "cms.", "json.", "tdigest.", "topk.", "ts."];

/// What the prefix rule says of a command: one key first, and nothing else known.
static MODULE_WRITE: CommandSpec = write("module command", -2, First);
static MODULE_READ: CommandSpec = read("module command", -2, First);

impl Default for ModuleCommands {
    fn default() -> Self {
        let prefixes = PREFIXES.map(|prefix| (prefix.as_bytes().to_vec(), false)).to_vec();
        ModuleCommands { prefixes }
    }
}

impl ModuleCommands {
    /// Adds a prefix (or a whole name); commands that begin with it write unless `reads`. The
    /// longest one counts, and of the same the last.
    pub fn add(&mut self, prefix: &str, reads: bool) {
        self.prefixes.push((prefix.to_ascii_lowercase().into_bytes(), reads));
    }

    /// The row for a command by its prefix.
    pub(super) fn find(&self, args: &Args<'_>) -> Option<&'static CommandSpec> {
        let name = args.get(0)?;
        let begins = |prefix: &[u8]| {
            name.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix))
        };
        let fitting = self.prefixes.iter().filter(|(prefix, _)| begins(prefix));
        let (_, reads) = fitting.max_by_key(|(prefix, _)| prefix.len())?;
        Some(if *reads { &MODULE_READ } else { &MODULE_WRITE })
    }
}
