//! The command table: every Redis command this node knows, and all it has to know about it.
//!
//! Rows stand in [`data`], [`node`] and [`modules`], grouped as in Redis's own documentation; the
//! columns are explained at [`CommandSpec`]. The class is by effect. C columns hold what
//! `Netflix/dynomite src/proto/dyn_redis.c` accepts (measured, see `tests/vectors`).

mod data;
mod modules;
mod node;

pub use modules::ModuleCommands;

use super::encode;
use super::spec::{CommandSpec, admin};
use crate::proto::args::Args;
use crate::proto::command::Compare::First as Any;
use crate::proto::command::Routing;

/// The rows under the names of their groups.
pub static GROUPS: &[(&str, &[CommandSpec])] = &[
    ("generic", data::GENERIC),
    ("generic", data::KEYSPACE),
    ("string", data::STRING),
    ("bitmap", data::BITMAP),
    ("hash", data::HASH),
    ("list", data::LIST),
    ("set", data::SET),
    ("sorted-set", data::SORTED_SET),
    ("geo", data::GEO),
    ("hyperloglog", data::HYPERLOGLOG),
    ("stream", data::STREAM),
    ("vector-set", data::VECTOR_SET),
    ("connection", node::CONNECTION),
    ("server", node::SERVER),
    ("cluster", node::CLUSTER_MODE),
    ("pubsub", node::PUB_SUB),
    ("scripting", node::SCRIPTING),
    ("transactions", node::TRANSACTIONS),
    ("torc", node::TORC),
    ("json", modules::JSON),
    ("probabilistic", modules::PROBABILISTIC),
    ("time-series", modules::TIME_SERIES),
];

/// All rows, subcommands included.
pub fn rows() -> impl Iterator<Item = &'static CommandSpec> {
    GROUPS.iter().flat_map(|(_, rows)| rows.iter())
}

/// The row of a command by its name alone, in any case. A container gives its own row.
#[inline]
pub fn lookup(name: &[u8]) -> Option<&'static CommandSpec> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return None;
    }
    probe(hash(name), |row| row.eq_ignore_ascii_case(name))
}

/// The row of `container|sub`, in any case.
pub fn lookup_sub(container: &CommandSpec, sub: &[u8]) -> Option<&'static CommandSpec> {
    if sub.is_empty() || sub.len() > NAME_BYTES_MAX {
        return None;
    }
    let name = container.name.as_bytes();
    probe(hash_sub(hash(name), hash(sub)), |row| {
        row.len() == name.len() + 1 + sub.len()
            && row.starts_with(name)
            && row[name.len()] == b'|'
            && row[name.len() + 1..].eq_ignore_ascii_case(sub)
    })
}

/// The row for a request, and its arity checked. `args` holds at least the name.
///
/// # Errors
/// The request is well framed, but no command: the answer is [`Rejection::write`], and the
/// connection goes on.
#[inline]
pub fn find(args: &Args<'_>, modules: &ModuleCommands) -> Result<&'static CommandSpec, Rejection> {
    let spec = match args.get(0).and_then(lookup) {
        Some(spec) => spec,
        None => modules.find(args).ok_or(Rejection::UnknownCommand)?,
    };
    let spec = if spec.container { sub_of(spec, args)? } else { spec };
    if spec.arity_fits(args.len()) { Ok(spec) } else { Err(Rejection::Arity(spec)) }
}

fn sub_of(spec: &'static CommandSpec, args: &Args<'_>) -> Result<&'static CommandSpec, Rejection> {
    match args.get(1) {
        Some(sub) if sub.eq_ignore_ascii_case(b"help") => Ok(&HELP),
        Some(sub) => lookup_sub(spec, sub).ok_or(Rejection::UnknownSubcommand(spec)),
        None => Ok(spec),
    }
}

/// The subcommand HELP of every container.
pub static HELP: CommandSpec = admin("help", 2, Routing::Node);

/// Why a request is no command.
#[derive(Clone, Copy, Debug)]
pub enum Rejection {
    /// No such command.
    UnknownCommand,
    /// The command has no such subcommand.
    UnknownSubcommand(&'static CommandSpec),
    /// Too few or too many arguments.
    Arity(&'static CommandSpec),
}

impl Rejection {
    /// Writes the error reply in Redis's words; clients look for their beginnings.
    pub fn write(&self, args: &Args<'_>, out: &mut Vec<u8>) {
        let mut text = b"ERR ".to_vec();
        if matches!(self, Rejection::Arity(spec) if spec.name == "exec") {
            // An EXEC that is none ends the transaction.
            text = b"EXECABORT Transaction discarded because of: ".to_vec();
        }
        match self {
            Rejection::UnknownCommand => unknown_command(args, &mut text),
            Rejection::UnknownSubcommand(spec) => {
                text.extend_from_slice(b"unknown subcommand '");
                text.extend_from_slice(quoted(&args[1]));
                text.extend_from_slice(b"'. Try ");
                text.extend_from_slice(spec.name.to_ascii_uppercase().as_bytes());
                text.extend_from_slice(b" HELP.");
            }
            Rejection::Arity(spec) => {
                text.extend_from_slice(b"wrong number of arguments for '");
                if std::ptr::eq(*spec, &HELP) {
                    text.extend_from_slice(&args[0].to_ascii_lowercase());
                    text.push(b'|');
                }
                text.extend_from_slice(spec.name.as_bytes());
                text.extend_from_slice(b"' command");
            }
        }
        encode::error(out, &text);
    }
}

/// Bytes of one word that are quoted in an error at most, and of all arguments together.
const QUOTED_BYTES_MAX: usize = 128;

fn unknown_command(args: &Args<'_>, text: &mut Vec<u8>) {
    text.extend_from_slice(b"unknown command '");
    text.extend_from_slice(quoted(&args[0]));
    text.extend_from_slice(b"', with args beginning with: ");
    let start = text.len();
    for arg in args.tail(1).iter() {
        let room = QUOTED_BYTES_MAX.saturating_sub(text.len() - start);
        if room == 0 {
            break;
        }
        text.push(b'\'');
        let arg = quoted(arg);
        text.extend_from_slice(&arg[..arg.len().min(room)]);
        text.extend_from_slice(b"' ");
    }
}

/// A word as C prints it: up to a NUL, and not too long.
fn quoted(word: &[u8]) -> &[u8] {
    let end = memchr::memchr(0, word).unwrap_or(word.len());
    &word[..end.min(QUOTED_BYTES_MAX)]
}

/// Longest name in the table, containers and subcommands each for itself.
const NAME_BYTES_MAX: usize = 32;

/// Slots of the hash table: a power of two, under a third of them taken.
const SLOTS: usize = 2048;

/// Open addressing over the hash of the name, built by the compiler.
static INDEX: [Option<&CommandSpec>; SLOTS] = index();

#[inline]
fn probe(hash: u64, same: impl Fn(&[u8]) -> bool) -> Option<&'static CommandSpec> {
    let mut slot = slot_of(hash);
    while let Some(row) = INDEX[slot] {
        if same(row.name.as_bytes()) {
            return Some(row);
        }
        slot = (slot + 1) % SLOTS;
    }
    None
}

const fn index() -> [Option<&'static CommandSpec>; SLOTS] {
    let mut slots = [None; SLOTS];
    let mut group = 0;
    while group < GROUPS.len() {
        let rows = GROUPS[group].1;
        let mut row = 0;
        while row < rows.len() {
            let mut slot = slot_of(hash_row(rows[row].name.as_bytes()));
            while slots[slot].is_some() {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot] = Some(&rows[row]);
            row += 1;
        }
        group += 1;
    }
    slots
}

/// The hash of a row's name, which may be `container|sub`.
const fn hash_row(name: &[u8]) -> u64 {
    let mut i = 0;
    while i < name.len() {
        if name[i] == b'|' {
            let (container, rest) = name.split_at(i);
            return hash_sub(hash(container), hash(rest.split_at(1).1));
        }
        i += 1;
    }
    hash(name)
}

/// From the length and at most twelve bytes, with case folded away: names differ there.
#[inline]
const fn hash(name: &[u8]) -> u64 {
    let len = name.len();
    let (head, tail, middle) = if len >= 4 {
        (word(name, 0), word(name, len - 4), word(name, len / 2 - 2))
    } else if len > 0 {
        (name[0] as u32, name[len - 1] as u32, name[len / 2] as u32)
    } else {
        (0, 0, 0)
    };
    let folded = (head as u64 | (tail as u64) << 32) | 0x2020_2020_2020_2020;
    let middle = (middle | 0x2020_2020) as u64;
    (folded ^ (middle << 16) ^ len as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

const fn hash_sub(container: u64, sub: u64) -> u64 {
    (container.rotate_left(23) ^ sub).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline]
const fn slot_of(hash: u64) -> usize {
    (hash >> 53) as usize
}

#[inline]
const fn word(name: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([name[at], name[at + 1], name[at + 2], name[at + 3]])
}

#[cfg(test)]
mod tests;
