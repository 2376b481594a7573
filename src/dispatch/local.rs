//! Commands the node answers itself: about the connection, the node and the plan.

use super::Dispatcher;
use super::client::ClientId;
use super::explain::explain;
use super::gather::Said;
use super::plan::Op;
use super::requests::op_of;
use super::sessions::{BAD_NAME, is_printable};
use super::slot::Envelope;
use super::view::{Now, Protocol, View};
use crate::affinity::commands as affinity;
use crate::ckf::ringkey::KeyProtocol;
use crate::proto::args::Args;
use crate::proto::resp::spec::CommandSpec;
use crate::proto::resp::{encode, introspect, table};
use crate::ring::Consistency;

/// The Redis version whose behaviour clients may expect.
pub(super) const REDIS_VERSION: &str = "7.0.15";

impl Dispatcher {
    /// Answers one of the node's own commands.
    pub(super) fn serve_local(
        &mut self,
        view: &View,
        id: ClientId,
        spec: &'static CommandSpec,
        args: Args<'_>,
        now: Now,
    ) {
        self.counters.client_other += 1;
        if spec.name == "torc.local" {
            return self.serve_own_store(view, id, args.tail(1), now);
        }
        if spec.name == "torc.replicas" {
            return self.serve_replicas(view, id, args.tail(1), now);
        }
        if matches!(
            spec.name,
            "info" | "client|info" | "client|kill" | "client|list" | "client|unblock"
        ) {
            return self.serve_roll(view, id, spec, args, now);
        }
        if spec.name == "config|get" {
            return self.serve_config_get(view, id, spec, args, now);
        }
        let mut reply = self.spare();
        let shape = spec.shape_of(&args);
        let resp3_before = self.clients[id.0 as usize].resp3;
        if !introspect::answer(spec, &args, &view.settings.modules, &mut reply) {
            self.local_reply(view, id, spec.name, args, now, &mut reply);
        }
        // HELLO answers in the protocol it switches to, RESET in the one it leaves for.
        let envelope = match spec.name == "hello" || resp3_before {
            true => Envelope { shape, ..Envelope::default() },
            false => Envelope::default(),
        };
        self.reply_in_turn(id.0, envelope, Said::Reply(&reply), now);
        self.recycle(reply);
    }

    fn local_reply(
        &mut self,
        view: &View,
        id: ClientId,
        name: &str,
        args: Args<'_>,
        now: Now,
        out: &mut Vec<u8>,
    ) {
        match name {
            "ping" => match args.len() {
                1 => encode::simple(out, b"PONG"),
                2 => encode::bulk(out, &args[1]),
                _ => encode::error(out, b"ERR wrong number of arguments for 'ping' command"),
            },
            "echo" => encode::bulk(out, &args[1]),
            "quit" => {
                encode::simple(out, b"OK");
                self.clients[id.0 as usize].closing = true;
            }
            "reset" => {
                self.unwatch(id, now);
                self.reset_client(view, id, out);
            }
            "select" => select(&args, out),
            "time" => {
                encode::array(out, 2);
                encode::bulk(out, (now.wall_us / 1_000_000).to_string().as_bytes());
                encode::bulk(out, (now.wall_us % 1_000_000).to_string().as_bytes());
            }
            "auth" => self.auth(view, id, &args, out),
            "hello" => self.hello(view, id, &args, out),
            "cluster" => cluster(&args, out),
            "readonly" | "readwrite" => encode::simple(out, b"OK"),
            "acl|whoami" => encode::bulk(out, b"default"),
            "role" => {
                encode::array(out, 3);
                encode::bulk(out, b"master");
                encode::int(out, 0);
                encode::array(out, 0);
            }
            "wait" => wait(&args, out),
            "waitaof" => {
                encode::array(out, 2);
                encode::int(out, 0);
                encode::int(out, 0);
            }
            "torc.consistency" | "dyno_config:conn_consistency" => {
                self.set_consistency(view, id, &args, out);
            }
            "torc.script" => self.tell_script(&args, out),
            "torc.plan" => self.explain(view, id, &args, now, out),
            _ if affinity::is_command(name) => self.affinity(view, name, &args, now, out),
            _ => match name.strip_prefix("client|") {
                Some(sub) => self.client_command(id, sub, &args, out),
                None => {
                    let text = format!("ERR '{name}' is not supported by this node");
                    encode::error(out, text.as_bytes());
                }
            },
        }
    }

    fn reset_client(&mut self, view: &View, id: ClientId, out: &mut Vec<u8>) {
        let client = &mut self.clients[id.0 as usize];
        client.resp3 = false;
        client.session = None;
        client.multi = None;
        client.trusted = view.settings.client_password.is_none();
        encode::simple(out, b"RESET");
    }

    fn auth(&mut self, view: &View, id: ClientId, args: &Args<'_>, out: &mut Vec<u8>) {
        let (user, password) = match args.len() {
            2 => (None, &args[1]),
            3 => (Some(&args[1]), &args[2]),
            _ => return encode::error(out, b"ERR syntax error"),
        };
        match self.check_password(view, id, user, password) {
            Ok(()) => encode::simple(out, b"OK"),
            Err(text) => encode::error(out, text.as_bytes()),
        }
    }

    fn check_password(
        &mut self,
        view: &View,
        id: ClientId,
        user: Option<&[u8]>,
        password: &[u8],
    ) -> Result<(), &'static str> {
        const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";
        let default_user = user.is_none_or(|u| u == b"default");
        let Some(wanted) = &view.settings.client_password else {
            // Redis lets the default user in with any password when none is set.
            return match user {
                None => Err("ERR AUTH <password> called without any password configured for \
                             the default user. Are you sure your configuration is correct?"),
                Some(_) if default_user => Ok(()),
                Some(_) => Err(WRONG),
            };
        };
        if !default_user || !same_bytes(wanted.as_bytes(), password) {
            return Err(WRONG);
        }
        self.clients[id.0 as usize].trusted = true;
        Ok(())
    }

    fn hello(&mut self, view: &View, id: ClientId, args: &Args<'_>, out: &mut Vec<u8>) {
        let resp3 = match args.get(1) {
            None => self.clients[id.0 as usize].resp3,
            Some(b"2") => false,
            Some(b"3") => true,
            Some(other) if other.iter().all(u8::is_ascii_digit) => {
                return encode::error(out, b"NOPROTO unsupported protocol version");
            }
            Some(_) => {
                let text = b"ERR Protocol version is not an integer or out of range";
                return encode::error(out, text);
            }
        };
        let mut i = 2;
        while let Some(option) = args.get(i) {
            let given = args.len() - i - 1;
            if option.eq_ignore_ascii_case(b"auth") && given >= 2 {
                if let Err(text) = self.check_password(view, id, Some(&args[i + 1]), &args[i + 2]) {
                    return encode::error(out, text.as_bytes());
                }
                i += 3;
            } else if option.eq_ignore_ascii_case(b"setname") && given >= 1 {
                if !is_printable(&args[i + 1]) {
                    return encode::error(out, BAD_NAME);
                }
                self.clients[id.0 as usize].session().name = args[i + 1].to_vec();
                i += 2;
            } else {
                let option = String::from_utf8_lossy(option).into_owned();
                let text = format!("ERR Syntax error in HELLO option '{option}'");
                return encode::error(out, text.as_bytes());
            }
        }
        let client = &mut self.clients[id.0 as usize];
        if !client.trusted {
            let text = b"NOAUTH HELLO must be called with the client already authenticated, \
                otherwise the HELLO AUTH <user> <pass> option can be used to \
                authenticate the client and select the RESP protocol version at the same time";
            return encode::error(out, text);
        }
        client.resp3 = resp3;
        encode::array(out, 14);
        for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
            encode::bulk(out, key.as_bytes());
            encode::bulk(out, value.as_bytes());
        }
        encode::bulk(out, b"proto");
        encode::int(out, if resp3 { 3 } else { 2 });
        encode::bulk(out, b"id");
        encode::int(out, client.number as i64);
        for (key, value) in [("mode", "standalone"), ("role", "master")] {
            encode::bulk(out, key.as_bytes());
            encode::bulk(out, value.as_bytes());
        }
        encode::bulk(out, b"modules");
        encode::array(out, 0);
    }

    fn set_consistency(&mut self, view: &View, id: ClientId, args: &Args<'_>, out: &mut Vec<u8>) {
        let session = self.clients[id.0 as usize].session();
        let level = |text: Option<&[u8]>| {
            std::str::from_utf8(text.unwrap_or_default()).ok()?.parse::<Consistency>().ok()
        };
        match (args.len(), level(args.get(args.len() - 1))) {
            (1, _) => {
                encode::array(out, 2);
                let (read, write) = (session.read, session.write);
                encode::bulk(out, read.unwrap_or(view.read).to_string().as_bytes());
                encode::bulk(out, write.unwrap_or(view.write).to_string().as_bytes());
            }
            (2, Some(level)) => {
                (session.read, session.write) = (Some(level), Some(level));
                encode::simple(out, b"OK");
            }
            (3, Some(level)) if args[1].eq_ignore_ascii_case(b"read") => {
                session.read = Some(level);
                encode::simple(out, b"OK");
            }
            (3, Some(level)) if args[1].eq_ignore_ascii_case(b"write") => {
                session.write = Some(level);
                encode::simple(out, b"OK");
            }
            _ => encode::error(
                out,
                b"ERR expected [READ|WRITE] and one of DC_ONE, DC_QUORUM, DC_SAFE_QUORUM, \
                  DC_EACH_SAFE_QUORUM",
            ),
        }
    }

    /// `TORC.PLAN CMD ARGS...`: where a request would go, and why, one line a fact.
    fn explain(&mut self, view: &View, id: ClientId, args: &Args<'_>, now: Now, out: &mut Vec<u8>) {
        let command = args.tail(1);
        let spec = match table::find(&command, &view.settings.modules) {
            Ok(spec) => spec,
            Err(rejection) => return rejection.write(&command, out),
        };
        let session = self.clients[id.0 as usize].session.as_deref();
        let level = session.and_then(|s| match op_of(view, spec, &command) {
            Op::Read => s.read,
            Op::Write => s.write,
        });
        let lines = explain(view, self.links.standings(), spec, &command, level, now.mono_ms());
        encode::array(out, lines.len());
        for line in lines {
            encode::bulk(out, line.as_bytes());
        }
    }

    /// What the filters say, and what this node's own store knows for sure.
    fn affinity(&self, view: &View, name: &str, args: &Args<'_>, now: Now, out: &mut Vec<u8>) {
        let holds =
            |key: &[u8]| self.embedded.as_ref().map(|store| store.holds(key, now.wall_ms()));
        let protocol = match view.settings.protocol {
            Protocol::Redis => KeyProtocol::Resp,
            Protocol::Memcache => KeyProtocol::Memcache,
        };
        let context = affinity::Context {
            affinity: view.affinity.as_deref(),
            protocol,
            holds: &holds,
            now_ms: now.mono_ms(),
        };
        affinity::execute(&context, name, args, out);
    }
}

fn integer(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn select(args: &Args<'_>, out: &mut Vec<u8>) {
    match integer(&args[1]) {
        Some(0) => encode::simple(out, b"OK"),
        Some(_) => encode::error(out, b"ERR DB index is out of range"),
        None => encode::error(out, b"ERR value is not an integer or out of range"),
    }
}

/// No write is known to be anywhere but where it was answered for.
fn wait(args: &Args<'_>, out: &mut Vec<u8>) {
    match (integer(&args[1]), integer(&args[2])) {
        (None, _) => encode::error(out, b"ERR value is not an integer or out of range"),
        (_, None) => encode::error(out, b"ERR timeout is not an integer or out of range"),
        (_, Some(..0)) => encode::error(out, b"ERR timeout is negative"),
        (Some(_), Some(_)) => encode::int(out, 0),
    }
}

fn cluster(args: &Args<'_>, out: &mut Vec<u8>) {
    if args[1].eq_ignore_ascii_case(b"help") {
        encode::array(out, 1);
        encode::simple(out, b"CLUSTER: the ring is shown by TORC.PLAN and the admin port");
    } else {
        encode::error(out, b"ERR This instance has cluster support disabled");
    }
}

/// Compares without telling by its duration where the first difference is.
fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |d, (x, y)| d | (x ^ y)) == 0
}
