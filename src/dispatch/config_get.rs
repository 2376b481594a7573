//! CONFIG GET: what a node says of itself, and of its datastore what clients ask for.

use super::client::ClientId;
use super::gather::Said;
use super::send::Parcel;
use super::slot::Envelope;
use super::task::{Next, Task, Written};
use super::view::{Now, View};
use super::{Dispatcher, Frame, info};
use crate::proto::args::Args;
use crate::proto::glob;
use crate::proto::resp::encode;
use crate::proto::resp::reply::{elements, text};
use crate::proto::resp::spec::CommandSpec;

/// What a datastore that is a server is asked for. It has passwords too, so nothing else is passed
/// on.
const OF_STORE: [&str; 8] = [
    "appendonly",
    "maxmemory",
    "maxmemory-clients",
    "maxmemory-eviction-tenacity",
    "maxmemory-policy",
    "maxmemory-samples",
    "notify-keyspace-events",
    "save",
];

/// Names with their values.
type Values = Vec<(&'static str, String)>;

/// A question to the own datastore, and what the node says besides.
#[derive(Debug)]
pub(super) struct StoreConfig {
    own: Values,
}

impl StoreConfig {
    /// Takes its answer; without one the node says what it knows.
    pub(super) fn take(&mut self, said: &Said<'_>) -> Next {
        let mut values = std::mem::take(&mut self.own);
        let mut theirs = elements(said.bytes().unwrap_or_default());
        while let (Some(name), Some(value)) = (theirs.next(), theirs.next()) {
            let known = OF_STORE.iter().find(|known| text(name) == Some(known.as_bytes()));
            if let (Some(name), Some(value)) = (known, text(value)) {
                values.push((*name, String::from_utf8_lossy(value).into_owned()));
            }
        }
        let mut out = Vec::new();
        write(&values, &mut out);
        Next::Reply(out)
    }
}

impl Dispatcher {
    /// Serves CONFIG GET.
    pub(super) fn serve_config_get(
        &mut self,
        view: &View,
        id: ClientId,
        spec: &'static CommandSpec,
        args: Args<'_>,
        now: Now,
    ) {
        let wanted = |name: &str| {
            let fits =
                |pattern: &[u8]| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes());
            args.tail(2).iter().any(fits)
        };
        let mut own = self.own_config(view);
        own.retain(|(name, _)| wanted(name));
        let envelope = Envelope { shape: spec.shape_of(&args), ..Envelope::default() };
        if self.embedded.is_some() || !OF_STORE.iter().any(|name| wanted(name)) {
            let mut reply = Vec::new();
            write(&own, &mut reply);
            return self.reply_in_turn(id.0, envelope, Said::Reply(&reply), now);
        }
        let part = self.begin_task(id.0, envelope, Task::Config(StoreConfig { own }), now);
        let question = Written::command(args.iter());
        let frame = Frame::Small(&question.bytes);
        let parcel = Parcel { frame: &frame, args: question.args(), stamp: None };
        self.ask_node(view, view.topology.local(), spec, parcel, part, now);
    }

    fn own_config(&self, view: &View) -> Values {
        let settings = &view.settings;
        let mut own = vec![
            ("databases", "1".to_owned()),
            ("maxclients", settings.client_connections_max.to_string()),
            ("proto-max-bulk-len", settings.request.bulk_bytes_max.to_string()),
            ("timeout", settings.idle_timeout_ms.div_ceil(1000).to_string()),
        ];
        if let Some(embedded) = &self.embedded {
            let bytes_max = embedded.report().map_or(0, |report| report.bytes_max);
            own.extend([
                ("appendonly", "no".to_owned()),
                ("maxmemory", bytes_max.to_string()),
                ("maxmemory-policy", info::EVICTION_POLICY.to_owned()),
                ("save", String::new()),
            ]);
        }
        own
    }
}

fn write(values: &Values, out: &mut Vec<u8>) {
    encode::array(out, values.len() * 2);
    for (name, value) in values {
        encode::bulk(out, name.as_bytes());
        encode::bulk(out, value.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::scripted::{Scripted, ring};
    use crate::dispatch::view::Settings;

    fn flat(words: &[&str]) -> String {
        let bulk = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
        format!("*{}\r\n{}", words.len(), words.iter().map(bulk).collect::<String>())
    }

    #[test]
    fn the_datastore_is_asked_for_what_is_its_own_and_tells_no_secrets() {
        let settings = Settings { idle_timeout_ms: 90_000, ..Settings::default() };
        let mut s = Scripted::new(ring(&[("n1", "dc1/r1", 1)]), settings);
        s.send("CONFIG GET timeout");
        assert_eq!(s.replies(), flat(&["timeout", "90"]));
        s.send("CONFIG GET requirepass nosuch");
        assert_eq!(s.replies(), "*0\r\n");
        s.send("CONFIG GET database* sav*");
        assert_eq!(s.sent("store"), ["CONFIG GET database* sav*"]);
        let theirs = ["databases", "16", "save", "60 1", "requirepass", "secret", "masterauth", ""];
        s.answer("store", &flat(&theirs));
        assert_eq!(s.replies(), flat(&["databases", "1", "save", "60 1"]));
        // Where it does not answer, the node says what it knows.
        s.send("config get SAVE databases");
        s.answer("store", "-ERR unknown command 'CONFIG'\r\n");
        assert_eq!(s.replies(), flat(&["databases", "1"]));
    }
}
