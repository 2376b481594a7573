//! One row of the command table, and the short words rows are written with.
//!
//! A column holds the usual value. Where arguments change it (SET with NX, SORT with STORE, XREAD
//! with BLOCK), the method ending in `_of` looks at them; callers use these.

use super::effect::EffectRule;
use super::key_use::{CHANGES, KeyUse, KeyUses, READS};
use super::shape::{Shape, ShapeRule};
use crate::proto::args::Args;
use crate::proto::command::{Class, Compare, Effect, KeyIndices, KeySpec, Merge, Routing, TowardC};

/// The columns of one command.
#[derive(Clone, Copy, Debug)]
pub struct CommandSpec {
    /// In lower case; subcommands as `container|sub`.
    pub name: &'static str,
    /// Number of arguments with the command name (and the subcommand); negative: at least.
    pub arity: i8,
    /// What it does to the data.
    pub class: Class,
    /// Decides the class where arguments do.
    pub class_by: Option<fn(&Args<'_>) -> Class>,
    /// The C reference's class where it differs, for the compatibility switch.
    pub reference_class: Option<Class>,
    /// Where the keys are.
    pub keys: KeySpec,
    /// What it does to each of them, as clients are told.
    pub key_uses: KeyUses,
    /// Where it goes.
    pub routing: Routing,
    /// Decides the routing where arguments do.
    pub routing_by: Option<fn(&Args<'_>) -> Routing>,
    /// How the answers for its keys are joined.
    pub merge: Merge,
    /// How replicas' answers are compared.
    pub compare: Compare,
    /// What replicas get.
    pub effect: EffectRule,
    /// How many arguments after the name a C peer accepts; `None` when it does not know it.
    pub c_args: Option<(u8, u8)>,
    /// In what form it goes to a C peer otherwise.
    pub c_else: TowardC,
    /// How the reply looks in RESP3.
    pub shape: ShapeRule,
    /// True when it reads keys by patterns (SORT with BY or GET), beside those it names.
    pub patterns: bool,
    /// True for a name that is only followed by subcommands.
    pub container: bool,
}

/// No upper bound for the arguments a C peer accepts.
pub(super) const ANY: u8 = u8::MAX;

const fn row(name: &'static str, arity: i8, class: Class, keys: KeySpec) -> CommandSpec {
    let (routing, c_else) = match keys {
        KeySpec::None => (Routing::Node, TowardC::Refuse),
        _ => (Routing::Keyed, TowardC::Eval),
    };
    CommandSpec {
        name,
        arity,
        class,
        class_by: None,
        reference_class: None,
        keys,
        key_uses: KeyUses::all(if matches!(class, Class::Write) { CHANGES } else { READS }),
        routing,
        routing_by: None,
        merge: Merge::None,
        compare: Compare::Exact,
        effect: EffectRule::Verbatim,
        c_args: None,
        c_else,
        shape: ShapeRule::Is(Shape::Same),
        patterns: false,
        container: false,
    }
}

/// A command that reads keys.
pub(super) const fn read(name: &'static str, arity: i8, keys: KeySpec) -> CommandSpec {
    row(name, arity, Class::Read, keys)
}

/// A command that may write.
pub(super) const fn write(name: &'static str, arity: i8, keys: KeySpec) -> CommandSpec {
    row(name, arity, Class::Write, keys)
}

/// A command that is about a node, a connection or the whole ring.
pub(super) const fn admin(name: &'static str, arity: i8, routing: Routing) -> CommandSpec {
    row(name, arity, Class::Admin, KeySpec::None).to(routing)
}

/// A command that is not offered.
pub(super) const fn refused(name: &'static str, arity: i8, why: &'static str) -> CommandSpec {
    admin(name, arity, Routing::Refused(why))
}

/// A name that is followed by a subcommand.
pub(super) const fn container(name: &'static str) -> CommandSpec {
    CommandSpec { container: true, ..row(name, -2, Class::Admin, KeySpec::None) }
}

/// Columns that differ from the usual.
impl CommandSpec {
    pub(super) const fn to(self, routing: Routing) -> CommandSpec {
        CommandSpec { routing, ..self }
    }

    pub(super) const fn to_by(self, by: fn(&Args<'_>) -> Routing) -> CommandSpec {
        CommandSpec { routing_by: Some(by), ..self }
    }

    /// It does this to all its keys.
    pub(super) const fn uses(self, keys: KeyUse) -> CommandSpec {
        CommandSpec { key_uses: KeyUses::all(keys), ..self }
    }

    /// It does one thing to its first key and another one to the others.
    pub(super) const fn uses_both(self, first: KeyUse, others: KeyUse) -> CommandSpec {
        CommandSpec { key_uses: KeyUses { first, others, by: None }, ..self }
    }

    pub(super) const fn uses_by(self, by: fn(&Args<'_>) -> KeyUse) -> CommandSpec {
        CommandSpec { key_uses: KeyUses { by: Some(by), ..self.key_uses }, ..self }
    }

    pub(super) const fn class_by(self, by: fn(&Args<'_>) -> Class) -> CommandSpec {
        CommandSpec { class_by: Some(by), ..self }
    }

    pub(super) const fn merge(self, merge: Merge) -> CommandSpec {
        CommandSpec { merge, ..self }
    }

    pub(super) const fn cmp(self, compare: Compare) -> CommandSpec {
        CommandSpec { compare, ..self }
    }

    pub(super) const fn fx(self, effect: EffectRule) -> CommandSpec {
        CommandSpec { effect, ..self }
    }

    pub(super) const fn lift(self, shape: Shape) -> CommandSpec {
        CommandSpec { shape: ShapeRule::Is(shape), ..self }
    }

    pub(super) const fn lift_by(self, shape: ShapeRule) -> CommandSpec {
        CommandSpec { shape, ..self }
    }

    /// C peers accept it with this many arguments after the name.
    pub(super) const fn c(self, min: u8, max: u8) -> CommandSpec {
        CommandSpec { c_args: Some((min, max)), ..self }
    }

    /// What C peers get where they do not accept it as it is.
    pub(super) const fn c_else(self, form: TowardC) -> CommandSpec {
        CommandSpec { c_else: form, ..self }
    }

    /// What the C reference takes it for.
    pub(super) const fn reference(self, class: Class) -> CommandSpec {
        CommandSpec { reference_class: Some(class), ..self }
    }

    /// It reads keys by patterns.
    pub(super) const fn patterns(self) -> CommandSpec {
        CommandSpec { patterns: true, ..self }
    }
}

/// The columns for given arguments: those of the whole command, its name included.
impl CommandSpec {
    /// True when `len` arguments are as many as it takes.
    #[inline]
    pub fn arity_fits(&self, len: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { len >= arity } else { len == arity }
    }

    /// Read, write or admin, by effect.
    #[inline]
    pub fn class_of(&self, args: &Args<'_>) -> Class {
        self.class_by.map_or(self.class, |by| by(args))
    }

    /// Read, write or admin, as the C reference takes it.
    pub fn reference_class_of(&self, args: &Args<'_>) -> Class {
        self.reference_class.unwrap_or_else(|| self.class_of(args))
    }

    /// Where it goes.
    #[inline]
    pub fn routing_of(&self, args: &Args<'_>) -> Routing {
        self.routing_by.map_or(self.routing, |by| by(args))
    }

    /// What its replicas get.
    #[inline]
    pub fn effect_of(&self, args: &Args<'_>) -> Effect {
        self.effect.of(args)
    }

    /// In what form it goes to a C peer.
    pub fn toward_c_of(&self, args: &Args<'_>) -> TowardC {
        let given = args.len().saturating_sub(1);
        match self.c_args {
            Some((min, max))
                if given >= usize::from(min) && (max == ANY || given <= usize::from(max)) =>
            {
                TowardC::AsIs
            }
            // Nothing may wait on a shared connection.
            _ if self.routing_of(args) == Routing::Blocking => TowardC::Refuse,
            _ => self.c_else,
        }
    }

    /// How its reply is lifted to RESP3.
    #[inline]
    pub fn shape_of(&self, args: &Args<'_>) -> Shape {
        self.shape.of(args, self.keys)
    }

    /// The places of its keys.
    #[inline]
    pub fn keys_of(&self, args: &Args<'_>) -> KeyIndices {
        self.keys.keys(args)
    }

    /// The place of its first key.
    #[inline]
    pub fn first_key(&self, args: &Args<'_>) -> Option<usize> {
        self.keys.first_key(args)
    }

    /// The patterns by which it reads keys: those of BY and GET with a `*`, which stands for an
    /// element of what is sorted.
    pub fn patterns_of<'a>(&self, args: &Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let options = args.tail(if self.patterns { 2 } else { args.len() });
        options.iter().zip(options.tail(1).iter()).filter_map(|(word, pattern)| {
            let names = word.eq_ignore_ascii_case(b"by") || word.eq_ignore_ascii_case(b"get");
            (names && pattern.contains(&b'*')).then_some(pattern)
        })
    }
}
