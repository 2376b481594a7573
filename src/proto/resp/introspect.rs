//! What clients ask about commands: COMMAND and its subcommands, and HELP of the containers. All
//! of it is told from the command table.
//!
//! Replies are written in RESP2; their commands' shapes lift them. Key specifications and tips
//! are left empty: first key, last key, step and GETKEYS tell where keys are.

use super::encode;
use super::spec::CommandSpec;
use super::table::{self, GROUPS, ModuleCommands, Rejection};
use crate::proto::args::Args;
use crate::proto::command::{Class, KeySpec, Merge, Routing};
use crate::proto::glob;

/// Answers a request if it asks about commands; false when it does not.
///
/// `spec` is the row found for `args`, `modules` the prefix rule in force.
pub fn answer(
    spec: &CommandSpec,
    args: &Args<'_>,
    modules: &ModuleCommands,
    out: &mut Vec<u8>,
) -> bool {
    match spec.name {
        "command" => infos(top_level().map(Some), out),
        "command|count" => encode::int(out, top_level().count() as i64),
        "command|docs" => docs(args, out),
        "command|info" if args.len() == 2 => infos(top_level().map(Some), out),
        "command|info" => infos(args.tail(2).iter().map(by_full_name), out),
        "command|list" => list(args, out),
        "command|getkeys" => keys(args, modules, false, out),
        "command|getkeysandflags" => keys(args, modules, true, out),
        "help" => help(args, out),
        _ => return false,
    }
    true
}

/// A row and the name of its group.
type Row = (&'static str, &'static CommandSpec);

fn all_rows() -> impl Iterator<Item = Row> {
    GROUPS.iter().flat_map(|(group, rows)| rows.iter().map(|row| (*group, row)))
}

fn top_level() -> impl Iterator<Item = Row> {
    all_rows().filter(|(_, row)| !row.name.contains('|'))
}

fn subcommands(container: &CommandSpec) -> impl Iterator<Item = Row> {
    all_rows().filter(|(_, row)| {
        row.name.strip_prefix(container.name).is_some_and(|rest| rest.starts_with('|'))
    })
}

/// `get`, or `config|get`.
fn by_full_name(name: &[u8]) -> Option<Row> {
    all_rows().find(|(_, row)| row.name.as_bytes().eq_ignore_ascii_case(name))
}

fn infos(rows: impl Iterator<Item = Option<Row>>, out: &mut Vec<u8>) {
    let rows: Vec<Option<Row>> = rows.collect();
    encode::array(out, rows.len());
    for row in rows {
        match row {
            Some(row) => info(row, out),
            None => encode::null_bulk(out),
        }
    }
}

fn info((group, spec): Row, out: &mut Vec<u8>) {
    encode::array(out, 10);
    encode::bulk(out, spec.name.as_bytes());
    encode::int(out, spec.arity.into());
    simples(&flags(spec), out);
    for number in key_range(spec) {
        encode::int(out, number);
    }
    let access = match spec.class {
        Class::Read => "@read",
        Class::Write => "@write",
        Class::Admin => "@admin",
    };
    simples(&[access, &format!("@{}", group.replace('-', ""))], out);
    encode::array(out, 0);
    encode::array(out, 0);
    let subs: Vec<Row> = subcommands(spec).collect();
    encode::array(out, subs.len());
    subs.into_iter().for_each(|sub| info(sub, out));
}

fn simples(words: &[&str], out: &mut Vec<u8>) {
    encode::array(out, words.len());
    words.iter().for_each(|word| encode::simple(out, word.as_bytes()));
}

fn flags(spec: &CommandSpec) -> Vec<&'static str> {
    let mut flags = Vec::new();
    match spec.class {
        Class::Read => flags.push("readonly"),
        Class::Write => flags.push("write"),
        Class::Admin => {}
    }
    // XREAD and XREADGROUP too: they block with an option.
    if spec.routing == Routing::Blocking || spec.routing_by.is_some() {
        flags.push("blocking");
    }
    match spec.keys {
        KeySpec::None | KeySpec::First | KeySpec::Range { .. } => {}
        KeySpec::NumKeys { .. }
        | KeySpec::DestNumKeys
        | KeySpec::Streams
        | KeySpec::FirstAndStore { .. } => flags.push("movablekeys"),
    }
    flags
}

/// First key, last key and step, as far as they are the same for all arguments.
fn key_range(spec: &CommandSpec) -> [i64; 3] {
    match spec.keys {
        KeySpec::None | KeySpec::NumKeys { .. } | KeySpec::Streams => [0, 0, 0],
        KeySpec::First | KeySpec::FirstAndStore { .. } | KeySpec::DestNumKeys => [1, 1, 1],
        KeySpec::Range { first, last, step } => [first.into(), last.into(), step.into()],
    }
}

fn docs(args: &Args<'_>, out: &mut Vec<u8>) {
    let rows: Vec<Row> = match args.len() {
        2 => top_level().collect(),
        _ => args.tail(2).iter().filter_map(by_full_name).collect(),
    };
    encode::array(out, rows.len() * 2);
    for (group, spec) in rows {
        encode::bulk(out, spec.name.as_bytes());
        let subs: Vec<Row> = subcommands(spec).collect();
        encode::array(out, if subs.is_empty() { 4 } else { 6 });
        doc(group, spec, out);
        if !subs.is_empty() {
            encode::bulk(out, b"subcommands");
            encode::array(out, subs.len() * 2);
            for (group, sub) in subs {
                encode::bulk(out, sub.name.as_bytes());
                encode::array(out, 4);
                doc(group, sub, out);
            }
        }
    }
}

fn doc(group: &str, spec: &CommandSpec, out: &mut Vec<u8>) {
    encode::bulk(out, b"summary");
    encode::bulk(out, summary(spec).as_bytes());
    encode::bulk(out, b"group");
    encode::bulk(out, group.as_bytes());
}

/// What this node does with a command, in words.
fn summary(spec: &CommandSpec) -> String {
    let does = match spec.class {
        Class::Read => "Reads",
        Class::Write => "Writes",
        Class::Admin => "Administers",
    };
    let goes = match spec.routing {
        Routing::Refused(why) => return format!("Not offered: {why}"),
        Routing::Node if spec.container => "followed by a subcommand",
        Routing::Node => "answered by this node itself",
        Routing::Keyed => match (spec.merge, one_key(spec)) {
            (Merge::None, true) => "goes to the owners of its key",
            (Merge::None, false) => "goes to the owners of its keys, which must be the same",
            _ => "goes to the owners of its keys, and the answers are joined",
        },
        Routing::LocalStore => "answered by the datastore of this node",
        Routing::AllNodes => "goes to every node",
        Routing::Ring => "asks the whole ring",
        Routing::Blocking => "goes to the owner of its keys and may wait there",
        Routing::Transaction => "part of a transaction",
        Routing::Hangup => "closes the connection",
    };
    format!("{does}; {goes}")
}

fn one_key(spec: &CommandSpec) -> bool {
    match spec.keys {
        KeySpec::First => true,
        KeySpec::Range { first, last, .. } => i16::from(first) == i16::from(last),
        KeySpec::None
        | KeySpec::NumKeys { .. }
        | KeySpec::DestNumKeys
        | KeySpec::Streams
        | KeySpec::FirstAndStore { .. } => false,
    }
}

fn list(args: &Args<'_>, out: &mut Vec<u8>) {
    let is = |i: usize, word: &str| args[i].eq_ignore_ascii_case(word.as_bytes());
    let names: Vec<&str> = match args.len() {
        2 => top_level().map(|(_, row)| row.name).collect(),
        5 if is(2, "filterby") && is(3, "pattern") => all_rows()
            .map(|(_, row)| row.name)
            .filter(|name| glob::matches(&args[4], name.as_bytes()))
            .collect(),
        5 if is(2, "filterby") && is(3, "module") => Vec::new(),
        5 if is(2, "filterby") && is(3, "aclcat") => all_rows()
            .filter(|(group, row)| in_category(group, row, &args[4]))
            .map(|(_, row)| row.name)
            .collect(),
        _ => return encode::error(out, b"ERR syntax error"),
    };
    encode::array(out, names.len());
    names.iter().for_each(|name| encode::bulk(out, name.as_bytes()));
}

fn in_category(group: &str, spec: &CommandSpec, category: &[u8]) -> bool {
    let is = |name: &str| category.eq_ignore_ascii_case(name.as_bytes());
    match spec.class {
        Class::Read if is("read") => true,
        Class::Write if is("write") => true,
        Class::Admin if is("admin") => true,
        _ => is(&group.replace('-', "")),
    }
}

fn keys(args: &Args<'_>, modules: &ModuleCommands, with_flags: bool, out: &mut Vec<u8>) {
    let asked = args.tail(2);
    let spec = match table::find(&asked, modules) {
        Ok(spec) => spec,
        Err(Rejection::Arity(spec)) if spec.keys == KeySpec::None => spec,
        Err(Rejection::Arity(_)) => {
            let text = b"ERR Invalid number of arguments specified for command";
            return encode::error(out, text);
        }
        Err(Rejection::UnknownCommand | Rejection::UnknownSubcommand(_)) => {
            return encode::error(out, b"ERR Invalid command specified");
        }
    };
    if spec.keys == KeySpec::None {
        return encode::error(out, b"ERR The command has no key arguments");
    }
    let found = spec.keys_of(&asked);
    // Scripts and functions may do without.
    let counted = matches!(spec.keys, KeySpec::NumKeys { at: 2, .. });
    let may_have_none = counted && spec.routing == Routing::Keyed;
    if found.len() == 0 && !may_have_none {
        return encode::error(out, b"ERR Invalid arguments specified for command");
    }
    encode::array(out, found.len());
    for (nth, key) in found.enumerate() {
        if !with_flags {
            encode::bulk(out, &asked[key]);
            continue;
        }
        encode::array(out, 2);
        encode::bulk(out, &asked[key]);
        simples(spec.key_uses.of(nth, &asked), out);
    }
}

fn help(args: &Args<'_>, out: &mut Vec<u8>) {
    let Some(container) = table::lookup(&args[0]) else {
        return encode::array(out, 0);
    };
    let name = container.name.to_ascii_uppercase();
    let mut lines =
        vec![format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for (_, sub) in subcommands(container) {
        lines.push(sub.name[name.len() + 1..].to_ascii_uppercase());
        lines.push(format!("    {}.", summary(sub)));
    }
    lines.push("HELP".to_owned());
    lines.push("    Prints this help.".to_owned());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    simples(&lines, out);
}

#[cfg(test)]
mod tests;
