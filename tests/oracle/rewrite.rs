//! Rewritten commands against redis-server: what replicas and C peers get must end in the same
//! state, and give the same replies, as the command itself.

use crate::server::{Connection, Server, request};
use torc::proto::args::Args;
use torc::proto::command::{Effect, TowardC};
use torc::proto::resp::reply::elements;
use torc::proto::resp::rewrite;
use torc::proto::resp::spec::CommandSpec;
use torc::proto::resp::table::{self, ModuleCommands};

fn with<T>(line: &str, test: impl FnOnce(&CommandSpec, &Args<'_>) -> T) -> T {
    request(line, |_, args| test(table::find(args, &ModuleCommands::default()).unwrap(), args))
}

fn unix_ms() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed();
    u64::try_from(since.expect("the clock is after 1970").as_millis()).unwrap()
}

/// The content of a store, with the group of its stream. Left out: idle times, which differ by
/// the moment they are asked at, and how many entries a group has read, which no reply tells and
/// XINFO then estimates.
fn state(redis: &mut Connection) -> Vec<String> {
    let text = |reply: &[u8]| reply.escape_ascii().to_string();
    let group = text(&redis.call("XINFO GROUPS x"));
    let mut state = vec![text(&redis.call("DEBUG DIGEST"))];
    state.extend(group.split("$12\\r\\nentries-read").next().map(str::to_owned));
    for entry in elements(&redis.call("XPENDING x g - + 99")) {
        let [id, consumer, _idle, count] = elements(entry).collect::<Vec<_>>()[..] else {
            panic!("{}", text(entry));
        };
        state.push([id, consumer, count].map(text).join(" "));
    }
    state
}

#[test]
fn outcomes_bring_replicas_to_the_same_state() {
    let test = "outcomes_bring_replicas_to_the_same_state";
    let (Some(a), Some(b)) = (Server::redis(test), Server::redis(test)) else { return };
    let (mut first, mut other) = (a.connect(), b.connect());
    let mut run = 0;
    for line in include_str!("rewrite.txt").lines().filter(|line| !line.starts_with('#')) {
        let frames = with(line, |spec, args| {
            let reply = first.call(line);
            let mut frames = Vec::new();
            let count = match spec.effect_of(args) {
                Effect::Verbatim => None,
                Effect::Absolute => {
                    rewrite::absolute(spec, args, unix_ms(), &mut frames).then_some(1)
                }
                Effect::PrimaryFirst => {
                    Some(rewrite::outcome(spec, args, &reply, unix_ms(), &mut frames))
                }
            };
            count.map(|count| (count, frames))
        });
        match frames {
            None => drop(other.call(line)),
            Some((count, frames)) => {
                run += count;
                other.send(&frames);
                for _ in 0..count {
                    let reply = other.reply();
                    assert!(!reply.starts_with(b"-"), "{line}: {}", reply.escape_ascii());
                }
            }
        }
        assert_eq!(state(&mut other), state(&mut first), "{line}");
    }
    assert!(run > 20, "{run}");
}

#[test]
fn scripts_for_c_peers_reply_as_the_command() {
    let test = "scripts_for_c_peers_reply_as_the_command";
    let (Some(a), Some(b)) = (Server::redis(test), Server::redis(test)) else { return };
    let (mut direct, mut store) = (a.connect(), b.connect());
    let mut wrapped = 0;
    for line in include_str!("lift.txt").lines() {
        if line.is_empty() || line.starts_with('#') || line.starts_with('?') {
            continue;
        }
        let (frame, rewritten) = request(line, |frame, args| {
            let Ok(spec) = table::find(args, &ModuleCommands::default()) else {
                return (frame.to_vec(), false);
            };
            let mut out = Vec::new();
            let rewritten = match spec.toward_c_of(args) {
                TowardC::Eval => rewrite::in_script(spec, args, &mut out),
                TowardC::Rewrite => rewrite::renamed(spec, args, &mut out),
                TowardC::AsIs | TowardC::Refuse => false,
            };
            (if rewritten { out } else { frame.to_vec() }, rewritten)
        });
        let theirs = direct.call(line);
        store.send(&frame);
        let ours = store.reply();
        wrapped += usize::from(rewritten);
        // Lua knows one kind of nothing.
        let theirs = theirs.escape_ascii().to_string().replace("*-1\\r", "$-1\\r");
        if !rewritten {
            continue;
        }
        assert_eq!(ours.escape_ascii().to_string(), theirs, "{line}");
    }
    assert!(wrapped > 80, "{wrapped}");
}
