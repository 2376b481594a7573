//! The command table: names to functions, and which arguments are keys.

use crate::proto::args::Args;
use crate::proto::outbuf::OutBuf;

use super::db::Db;
use super::error::{CommandError, CommandResult};
use super::format::parse_i64;

/// What a command does to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It only reads.
    Read,
    /// It writes, but needs no more memory.
    Write,
    /// It may need more memory, so the limits apply.
    Grow,
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// None.
    Keyless,
    /// None are named, but the whole key space is visited.
    Whole,
    /// The first argument.
    One,
    /// The first two.
    Two,
    /// Every argument from this one on.
    From(usize),
    /// The same, one after the other: what others do between two of them may show. Only for
    /// commands whose parts, where keys have several owners, run at different moments anyway.
    Each(usize),
    /// Every second argument.
    Pairs,
    /// This argument says how many keys follow it.
    Counted(usize),
    /// A destination, a number, and so many keys.
    StoreCounted,
    /// The first argument and what follows the word STORE, and what is looked up by patterns.
    Sorted,
    /// The second argument.
    Second,
}

/// A command of the store.
pub(super) struct Command {
    /// Name in lower case, as error texts show it.
    pub(super) name: &'static str,
    /// Number of arguments, the name included; at least so many when negative.
    pub(super) arity: i32,
    pub(super) keys: Keys,
    pub(super) effect: Effect,
    pub(super) run: Run,
}

/// A command's function: appends exactly one reply, or returns an error and appends nothing.
pub(super) type Run = fn(&mut Db<'_>, &Args<'_>, &mut OutBuf) -> CommandResult;

/// A row of the table.
pub(super) const fn row(
    name: &'static str,
    arity: i32,
    keys: Keys,
    effect: Effect,
    run: Run,
) -> Command {
    Command { name, arity, keys, effect, run }
}

impl Command {
    /// Refuses a wrong number of arguments.
    pub(super) fn check_arity(&self, args: &Args<'_>) -> CommandResult {
        let given = args.len() as i32;
        let fits = if self.arity >= 0 { given == self.arity } else { given >= -self.arity };
        if fits { Ok(()) } else { Err(CommandError::Arity(self.name)) }
    }
}

/// Calls `f` with every key of a command. Malformed numbers of keys give none: the command itself
/// refuses them before it looks at a key.
pub(super) fn for_each_key<'a>(keys: Keys, args: &Args<'a>, mut f: impl FnMut(&'a [u8])) {
    let mut each = |from: usize, count: usize, step: usize| {
        args.iter().skip(from).step_by(step).take(count).for_each(&mut f);
    };
    let counted = |at: usize| -> usize {
        let n = args.get(at).and_then(parse_i64).and_then(|n| usize::try_from(n).ok());
        n.filter(|n| *n < args.len() - at).unwrap_or(0)
    };
    match keys {
        Keys::Keyless | Keys::Whole => {}
        Keys::One => each(1, 1, 1),
        Keys::Two => each(1, 2, 1),
        Keys::Second => each(2, 1, 1),
        Keys::From(first) | Keys::Each(first) => each(first, usize::MAX, 1),
        Keys::Pairs => each(1, usize::MAX, 2),
        Keys::Counted(at) => each(at + 1, counted(at), 1),
        Keys::StoreCounted => {
            each(1, 1, 1);
            each(3, counted(2), 1);
        }
        Keys::Sorted => {
            each(1, 1, 1);
            for at in 2..args.len() {
                if args[at].eq_ignore_ascii_case(b"store") {
                    each(at + 1, 1, 1);
                }
            }
        }
    }
}

/// Slots of the table: a power of two, several times the number of commands.
const SLOTS: usize = 1024;

/// An empty slot.
const FREE: u16 = u16::MAX;

/// All commands, found by name in any case.
pub(super) struct CommandTable {
    commands: Vec<&'static Command>,
    slots: Box<[u16; SLOTS]>,
}

impl CommandTable {
    /// A table of the given families' commands.
    pub(super) fn new(families: &[&'static [Command]]) -> CommandTable {
        let commands: Vec<&'static Command> = families.iter().copied().flatten().collect();
        assert!(commands.len() < SLOTS / 2, "more commands than the table is made for");
        let mut slots = Box::new([FREE; SLOTS]);
        for (number, command) in commands.iter().enumerate() {
            let mut slot = slot_of(command.name.as_bytes());
            while slots[slot] != FREE {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot] = number as u16;
        }
        CommandTable { commands, slots }
    }

    /// The command called `name`, in any case.
    #[inline]
    pub(super) fn find(&self, name: &[u8]) -> Option<&'static Command> {
        let mut slot = slot_of(name);
        while self.slots[slot] != FREE {
            let command = self.commands[usize::from(self.slots[slot])];
            if name.eq_ignore_ascii_case(command.name.as_bytes()) {
                return Some(command);
            }
            slot = (slot + 1) % SLOTS;
        }
        None
    }
}

/// Home slot of a name: its first eight bytes without case, and its length.
#[inline]
fn slot_of(name: &[u8]) -> usize {
    let mut head = [0; 8];
    let n = name.len().min(8);
    head[..n].copy_from_slice(&name[..n]);
    let word = (u64::from_le_bytes(head) | 0x2020_2020_2020_2020) ^ name.len() as u64;
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % SLOTS
}
