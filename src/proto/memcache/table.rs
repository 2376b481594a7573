//! The memcache commands: one row each.

use crate::proto::args::Args;
use crate::proto::command::Class::{self, Admin, Read, Write};
use crate::proto::command::KeySpec::{self, First, None as NoKey, Range};
use crate::proto::command::Routing::{self, AllNodes, Keyed, LocalStore, Node, Refused};
use crate::proto::command::{Compare, Effect, Merge, TowardC};

use super::number;

/// The columns of one command.
#[derive(Clone, Copy, Debug)]
pub struct McCommand {
    /// As it is sent; memcache verbs are lower case only.
    pub name: &'static str,
    /// Fewest and most words of the line, name and `noreply` included.
    pub words: (usize, usize),
    /// What kind of line it is.
    pub form: Form,
    /// Read, write or admin, by effect (GAT writes: it changes when a value expires).
    pub class: Class,
    /// Where the keys are.
    pub keys: KeySpec,
    /// Where it goes.
    pub routing: Routing,
    /// How the answers for several keys are joined.
    pub merge: Merge,
}

/// The form of a command's line, which decides how it is checked and rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `get key*`.
    Get,
    /// `gat exptime key*`.
    GetAndTouch,
    /// `set key flags exptime bytes [noreply]`, then data.
    Store,
    /// `cas key flags exptime bytes unique [noreply]`, then data.
    Cas,
    /// `incr key delta [noreply]`.
    Arithmetic,
    /// `delete key [0] [noreply]`.
    Delete,
    /// `touch key exptime [noreply]`.
    Touch,
    /// `flush_all [exptime] [noreply]`.
    FlushAll,
    /// `verbosity level [noreply]`.
    Verbosity,
    /// `mg key flags*` and the other meta commands without data.
    Meta,
    /// `ms key bytes flags*`, then data.
    MetaSet,
    /// Words without a key.
    Plain,
}

impl Form {
    /// True when a data block follows the line.
    pub fn has_data(self) -> bool {
        matches!(self, Form::Store | Form::Cas | Form::MetaSet)
    }

    /// True for commands whose last word may be `noreply`.
    pub fn takes_noreply(self) -> bool {
        match self {
            Form::Store
            | Form::Cas
            | Form::Arithmetic
            | Form::Delete
            | Form::Touch
            | Form::FlushAll
            | Form::Verbosity => true,
            Form::Get | Form::GetAndTouch | Form::Meta | Form::MetaSet | Form::Plain => false,
        }
    }
}

/// No upper bound for the words of a line.
const MANY: usize = usize::MAX;
/// Words of a meta command at most (memcached: `MFLAG_MAX_OPT_LENGTH` less the end mark).
const META_WORDS_MAX: usize = 19;

const ALL: KeySpec = Range { first: 1, last: -1, step: 1 };
const FROM_SECOND: KeySpec = Range { first: 2, last: -1, step: 1 };

const OPERATOR: &str = "this command is for the operator of the store, not for its clients";

const fn keyed(
    name: &'static str,
    words: (usize, usize),
    form: Form,
    class: Class,
    keys: KeySpec,
) -> McCommand {
    McCommand { name, words, form, class, keys, routing: Keyed, merge: Merge::None }
}

const fn values(name: &'static str, form: Form, class: Class, keys: KeySpec) -> McCommand {
    McCommand { merge: Merge::Values, ..keyed(name, (2, MANY), form, class, keys) }
}

const fn plain(name: &'static str, words: (usize, usize), routing: Routing) -> McCommand {
    McCommand { routing, ..keyed(name, words, Form::Plain, Admin, NoKey) }
}

const fn meta(name: &'static str, class: Class) -> McCommand {
    keyed(name, (2, META_WORDS_MAX), Form::Meta, class, First)
}

/// All commands.
pub static COMMANDS: &[McCommand] = &[
    values("get", Form::Get, Read, ALL),
    values("gets", Form::Get, Read, ALL),
    values("gat", Form::GetAndTouch, Write, FROM_SECOND),
    values("gats", Form::GetAndTouch, Write, FROM_SECOND),
    keyed("set", (5, 6), Form::Store, Write, First),
    keyed("add", (5, 6), Form::Store, Write, First),
    keyed("replace", (5, 6), Form::Store, Write, First),
    keyed("append", (5, 6), Form::Store, Write, First),
    keyed("prepend", (5, 6), Form::Store, Write, First),
    keyed("cas", (6, 7), Form::Cas, Write, First),
    keyed("incr", (3, 4), Form::Arithmetic, Write, First),
    keyed("decr", (3, 4), Form::Arithmetic, Write, First),
    keyed("delete", (2, 4), Form::Delete, Write, First),
    keyed("touch", (3, 4), Form::Touch, Write, First),
    meta("mg", Read),
    McCommand { form: Form::MetaSet, ..meta("ms", Write) },
    meta("md", Write),
    meta("ma", Write),
    keyed("me", (2, MANY), Form::Meta, Read, First),
    plain("mn", (1, MANY), Node),
    McCommand { form: Form::FlushAll, class: Write, ..plain("flush_all", (1, 3), AllNodes) },
    plain("version", (1, MANY), Node),
    McCommand { form: Form::Verbosity, ..plain("verbosity", (2, 3), Node) },
    // The node's own figures; with an argument those of the store.
    plain("stats", (1, MANY), Node),
    plain("quit", (1, MANY), Node),
    plain("cache_memlimit", (1, MANY), Refused(OPERATOR)),
    plain("extstore", (1, MANY), Refused(OPERATOR)),
    plain("lru", (1, MANY), Refused(OPERATOR)),
    plain("lru_crawler", (1, MANY), Refused(OPERATOR)),
    plain("refresh_certs", (1, MANY), Refused(OPERATOR)),
    plain("shutdown", (1, MANY), Refused(OPERATOR)),
    plain("slabs", (1, MANY), Refused(OPERATOR)),
    plain("watch", (1, MANY), Refused(OPERATOR)),
];

/// The row of a command by its name.
#[inline]
pub fn lookup(name: &[u8]) -> Option<&'static McCommand> {
    // The commonest stand first.
    COMMANDS.iter().find(|row| row.name.as_bytes() == name)
}

/// The columns for given arguments: the words of the line, name included.
impl McCommand {
    /// Read, write or admin, by effect.
    pub fn class_of(&self, args: &Args<'_>) -> Class {
        match self.name {
            // A fetch that renews, creates or marks a value for recaching.
            "mg" if meta_flags(args).any(|flag| matches!(flag[0], b'T' | b'N' | b'R')) => Write,
            _ => self.class,
        }
    }

    /// Where it goes.
    pub fn routing_of(&self, args: &Args<'_>) -> Routing {
        match self.name {
            "stats" if args.len() > 1 => LocalStore,
            _ => self.routing,
        }
    }

    /// How replicas' answers are compared. Ids for cas and times differ from store to store.
    pub fn compare_of(&self, args: &Args<'_>) -> Compare {
        match (self.name, self.form) {
            ("gets" | "gats", _) => Compare::Values,
            ("me", _) => Compare::First,
            (_, Form::Meta | Form::MetaSet) => {
                let has = |what: &[u8]| self.meta_flags(args).any(|flag| what.contains(&flag[0]));
                match (has(b"tlhR"), has(b"c")) {
                    (true, _) => Compare::First,
                    (false, true) => Compare::Values,
                    (false, false) => Compare::Exact,
                }
            }
            _ => Compare::Exact,
        }
    }

    /// What replicas get. A read that is `PrimaryFirst` asks for an id that only the store which
    /// gave it knows: it is asked of the replica on which the cas will run.
    pub fn effect_of(&self, args: &Args<'_>) -> Effect {
        match self.name {
            "gets" | "gats" | "cas" | "add" | "replace" => return Effect::PrimaryFirst,
            // One client of the ring makes the value, or makes it anew.
            "mg" if self.meta_flags(args).any(|flag| matches!(flag[0], b'N' | b'R')) => {
                return Effect::PrimaryFirst;
            }
            _ => {}
        }
        match self.form {
            Form::Meta | Form::MetaSet => {
                let depends = |flag: &[u8]| match flag[0] {
                    b'c' | b'C' => true,
                    b'M' => matches!(flag.get(1), Some(b'E' | b'e' | b'R' | b'r')),
                    _ => false,
                };
                if self.meta_flags(args).any(depends) {
                    Effect::PrimaryFirst
                } else if self.expires_relatively(args) {
                    Effect::Absolute
                } else {
                    Effect::Verbatim
                }
            }
            Form::Store | Form::Touch | Form::GetAndTouch => match self.expires_relatively(args) {
                true => Effect::Absolute,
                false => Effect::Verbatim,
            },
            Form::Get
            | Form::Cas
            | Form::Arithmetic
            | Form::Delete
            | Form::FlushAll
            | Form::Verbosity
            | Form::Plain => Effect::Verbatim,
        }
    }

    /// True for a command that sets a time of expiry that counts from now.
    pub fn expires_relatively(&self, args: &Args<'_>) -> bool {
        let exptime = self.exptime_word().and_then(|i| args.get(i));
        let relative = |flag: &[u8]| matches!(flag[0], b'T' | b'N') && is_relative(&flag[1..]);
        exptime.is_some_and(is_relative) || self.meta_flags(args).any(relative)
    }

    /// The word that says when the value expires.
    pub(super) fn exptime_word(&self) -> Option<usize> {
        match self.form {
            Form::Store | Form::Cas => Some(3),
            Form::Touch => Some(2),
            Form::GetAndTouch => Some(1),
            Form::Get
            | Form::Arithmetic
            | Form::Delete
            | Form::FlushAll
            | Form::Verbosity
            | Form::Meta
            | Form::MetaSet
            | Form::Plain => None,
        }
    }

    /// In what form it goes to a C peer, which closes the link at a line it does not know.
    pub fn toward_c_of(&self, args: &Args<'_>) -> TowardC {
        let known = match self.form {
            Form::Get | Form::Store | Form::Cas | Form::Arithmetic | Form::Delete | Form::Touch => {
                true
            }
            Form::GetAndTouch
            | Form::FlushAll
            | Form::Verbosity
            | Form::Meta
            | Form::MetaSet
            | Form::Plain => false,
        };
        // Digits only: a sign closes it too. Times of expiry are always sent in digits.
        let signed = |(i, word): (usize, &[u8])| {
            Some(i) != self.exptime_word() && matches!(word.first(), Some(b'-' | b'+'))
        };
        let signs = match self.form {
            Form::Store | Form::Cas | Form::Arithmetic => {
                args.iter().enumerate().skip(2).any(signed)
            }
            _ => false,
        };
        if known && !signs { TowardC::AsIs } else { TowardC::Refuse }
    }

    /// The flags of a meta command; none of other commands.
    pub(super) fn meta_flags<'a>(
        &self,
        args: &Args<'a>,
    ) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let first = match self.form {
            Form::Meta => 2,
            Form::MetaSet => 3,
            _ => args.len(),
        };
        args.tail(first).iter()
    }
}

/// True for a time of expiry that counts from now.
pub(super) fn is_relative(exptime: &[u8]) -> bool {
    number::i32_of(exptime).is_some_and(|seconds| (1..=RELATIVE_S_MAX).contains(&seconds))
}

/// Longer times are points in time (memcached: `REALTIME_MAXDELTA`), in seconds.
pub(super) const RELATIVE_S_MAX: i32 = 60 * 60 * 24 * 30;

/// The flags of a meta command without data.
fn meta_flags<'a>(args: &Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    args.tail(2).iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::args::Span;

    fn with_args<T>(line: &str, test: impl FnOnce(&McCommand, &Args<'_>) -> T) -> T {
        let mut at = 0;
        let mut spans = Vec::new();
        for word in line.split(' ') {
            spans.push(Span::new(at, at + word.len()));
            at += word.len() + 1;
        }
        let args = Args::new(line.as_bytes(), &spans);
        test(lookup(&args[0]).unwrap(), &args)
    }

    #[test]
    fn rows_are_found_by_their_exact_name() {
        for row in COMMANDS {
            assert_eq!(lookup(row.name.as_bytes()).unwrap().name, row.name);
        }
        for name in [&b"SET"[..], b"", b"ge", b"gett"] {
            assert!(lookup(name).is_none());
        }
    }

    #[test]
    fn flags_decide_class_compare_and_effect() {
        let class = |line| with_args(line, |row, args| row.class_of(args));
        assert_eq!(class("mg k v"), Class::Read);
        assert_eq!(class("mg k v T30"), Class::Write);
        assert_eq!(class("gat 0 k"), Class::Write);
        let compare = |line| with_args(line, |row, args| row.compare_of(args));
        assert_eq!(compare("get a"), Compare::Exact);
        assert_eq!(compare("gets a"), Compare::Values);
        assert_eq!(compare("mg a v"), Compare::Exact);
        assert_eq!(compare("mg a v c"), Compare::Values);
        assert_eq!(compare("mg a v c t"), Compare::First);
        assert_eq!(compare("ms a 1 c"), Compare::Values);
        let effect = |line| with_args(line, |row, args| row.effect_of(args));
        assert_eq!(effect("set a 0 0 1"), Effect::Verbatim);
        assert_eq!(effect("set a 0 -1 1"), Effect::Verbatim);
        assert_eq!(effect("set a 0 30 1"), Effect::Absolute);
        assert_eq!(effect("touch a 2592000"), Effect::Absolute);
        assert_eq!(effect("touch a 2592001"), Effect::Verbatim);
        assert_eq!(effect("gat 30 a b"), Effect::Absolute);
        assert_eq!(effect("add a 0 0 1"), Effect::PrimaryFirst);
        assert_eq!(effect("gets a"), Effect::PrimaryFirst);
        assert_eq!(effect("incr a 1"), Effect::Verbatim);
        assert_eq!(effect("ms a 1 T30"), Effect::Absolute);
        assert_eq!(effect("ms a 1 T30 ME"), Effect::PrimaryFirst);
        assert_eq!(effect("ms a 1 MA"), Effect::Verbatim);
        assert_eq!(effect("md a C5"), Effect::PrimaryFirst);
        assert_eq!(effect("mg a v N30"), Effect::PrimaryFirst);
        assert_eq!(effect("mg a v T30"), Effect::Absolute);
        let form = |line| with_args(line, |row, args| row.toward_c_of(args));
        assert_eq!(form("set a 0 0 1"), TowardC::AsIs);
        assert_eq!(form("set a 0 -1 1"), TowardC::AsIs);
        assert_eq!(form("set a +0 0 1"), TowardC::Refuse);
        assert_eq!(form("mg a v"), TowardC::Refuse);
        let routing = |line| with_args(line, |row, args| row.routing_of(args));
        assert_eq!(routing("stats"), Routing::Node);
        assert_eq!(routing("stats items"), Routing::LocalStore);
    }
}
