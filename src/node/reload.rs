//! A configuration that is read again (SIGHUP): what takes effect at once, and what needs a
//! restart.

use super::build;
use super::control::Control;
use super::descriptors;
use crate::config::Config;
use crate::gossip::Seed;

/// What a new configuration changes, as its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Changes {
    /// In effect.
    live: Vec<&'static str>,
    /// Not in effect before a restart.
    restart: Vec<&'static str>,
}

/// Takes the fields that may change over, and tells what differs. A field of [`Config`] that is
/// not listed does not compile, so nobody adds a key without deciding what a reload does with it.
macro_rules! merge {
    (
        $old:ident, $new:ident, $changes:ident,
        live: { $($live:ident: $live_key:literal,)* }
        restart: { $($fixed:ident: $fixed_key:literal,)* }
    ) => {{
        let Config { $($live: _,)* $($fixed: _,)* } = $new;
        let mut merged = $old.clone();
        $(if $old.$live != $new.$live {
            $changes.live.push($live_key);
            merged.$live = $new.$live.clone();
        })*
        $(if $old.$fixed != $new.$fixed {
            $changes.restart.push($fixed_key);
        })*
        merged
    }};
}

/// Keeps the old value of single keys of sections that may change otherwise.
macro_rules! keep {
    ($old:ident, $new:ident, $changes:ident, $($section:ident.$key:ident,)*) => {
        $(if $old.$section.$key != $new.$section.$key {
            $changes.restart.push(concat!(stringify!($section), ".", stringify!($key)));
            $new.$section.$key = $old.$section.$key.clone();
        })*
    };
}

/// The configuration to run on from here, and what it changes. Of keys that need a restart it
/// keeps the old values.
fn merge(old: &Config, mut new: Config) -> (Config, Changes) {
    let mut changes = Changes::default();
    keep!(
        old,
        new,
        changes,
        auth.store_user,
        auth.store_password,
        limits.client_connections,
        limits.buffers_bytes_max,
        limits.idle_timeout_ms,
    );
    let new = &new;
    let merged = merge!(old, new, changes,
        live: {
            timeout_ms: "timeout",
            seeds: "dyn_seeds",
            read_consistency: "read_consistency",
            write_consistency: "write_consistency",
            bucket_types: "bucket_types",
            default_bucket_type: "default_bucket_type",
            read_fallback: "read_fallback",
            allow_flush: "allow_flush",
            keyspace_scope: "keyspace_scope",
            reference_classes: "reference_classes",
            module_commands: "module_commands",
            leave_on_stop: "leave_on_stop",
            auth: "auth.requirepass",
            limits: "limits",
        }
        restart: {
            pool: "the pool's name",
            name: "name",
            listen: "listen",
            dyn_listen: "dyn_listen",
            stats_listen: "stats_listen",
            backlog: "backlog",
            advertise: "advertise",
            env_is_aws: "env",
            datacenter: "datacenter",
            rack: "rack",
            tokens: "tokens",
            hasher: "hash, hash_tag",
            data_store: "data_store",
            store: "servers, datastore",
            store_link: "the keys of connections to the store",
            seed_provider: "dyn_seed_provider",
            peers: "the keys of connections to peers",
            reference_gossip: "enable_gossip, gos_interval",
            read_repairs: "read_repairs_enabled",
            data_dir: "data_dir",
            workers: "workers",
            cluster: "cluster",
            embedded: "embedded",
            affinity: "affinity",
            relay: "relay",
            documents: "documents",
        }
    );
    (merged, changes)
}

impl Control {
    /// Goes on with another configuration, as far as that is possible without a restart.
    pub(super) fn reconfigure(&mut self, mut new: Config) {
        let limits = &mut new.limits;
        limits.client_connections = descriptors::clients_max(limits.client_connections);
        let (merged, changes) = merge(&self.config, new);
        let old = std::mem::replace(&mut self.config, merged);
        let Changes { live, restart } = changes;
        if live.is_empty() && restart.is_empty() {
            tracing::info!("the configuration says what it said");
        }
        if !restart.is_empty() {
            tracing::warn!("in effect after a restart only: {}", restart.join(", "));
        }
        if live.is_empty() {
            return;
        }
        // What an operator set since stays, unless the file says something new about it.
        if old.read_consistency != self.config.read_consistency {
            self.knobs.read = self.config.read_consistency;
        }
        if old.write_consistency != self.config.write_consistency {
            self.knobs.write = self.config.write_consistency;
        }
        let now = self.now();
        if old.seeds != self.config.seeds {
            self.follow_seeds();
        }
        self.membership.ordered(None, &format!("new in the file: {}", live.join(", ")), now);
        self.publish();
    }

    /// Follows what the file and the seed provider say.
    pub(super) fn follow_seeds(&mut self) {
        let filed = self.config.seeds.iter().map(build::seed);
        let seeds: Vec<Seed> = filed.chain(self.provided.iter().cloned()).collect();
        let now = self.now();
        self.membership.update_seeds(seeds, now);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Texts;
    use crate::ring::Consistency;

    fn config(lines: &[&str]) -> Config {
        let mut text = "pool:\n  listen: 127.0.0.1:1\n  servers: 127.0.0.1:2:1\n".to_owned();
        lines.iter().for_each(|line| text += &format!("  {line}\n"));
        let texts = Texts { file: (Path::new("t.yml"), text), overlay: None, fallback: None };
        Config::from_texts(texts).unwrap().config
    }

    #[test]
    fn levels_limits_and_seeds_change_at_once() {
        let old = config(&["tokens: 1"]);
        let new = config(&[
            "tokens: 1",
            "timeout: 700",
            "read_consistency: DC_QUORUM",
            "limits: {client_in_flight: 7}",
            "dyn_seeds: 10.0.0.2:8101:r2:dc1:1",
            "auth: {requirepass: s}",
        ]);
        let (merged, changes) = merge(&old, new.clone());
        let live = ["timeout", "dyn_seeds", "read_consistency", "auth.requirepass", "limits"];
        assert_eq!(changes, Changes { live: live.to_vec(), restart: Vec::new() });
        assert!(merged == new);
        assert_eq!(merge(&new, new.clone()).1, Changes::default());
    }

    #[test]
    fn places_and_listeners_stay_until_a_restart() {
        let old = config(&["tokens: 1"]);
        let new = config(&["tokens: 2", "rack: r9", "workers: 3", "write_consistency: DC_QUORUM"]);
        let (merged, changes) = merge(&old, new);
        assert_eq!(changes.restart, ["rack", "tokens", "workers"]);
        assert_eq!(changes.live, ["write_consistency"]);
        assert_eq!((&merged.rack, &merged.tokens), (&old.rack, &old.tokens));
        assert_eq!(merged.write_consistency, Consistency::DcQuorum);
    }

    #[test]
    fn of_a_section_some_keys_change_and_some_stay() {
        let old =
            config(&["tokens: 1", "auth: {store_password: a}", "limits: {idle_timeout_ms: 5}"]);
        let new = config(&[
            "tokens: 1",
            "auth: {store_password: b, requirepass: c}",
            "limits: {idle_timeout_ms: 6, inline_bytes_max: 9kb}",
        ]);
        let (merged, changes) = merge(&old, new);
        assert_eq!(changes.restart, ["auth.store_password", "limits.idle_timeout_ms"]);
        assert_eq!(changes.live, ["auth.requirepass", "limits"]);
        assert_eq!(merged.auth.store_password.unwrap().expose(), "a");
        assert_eq!(merged.auth.requirepass.unwrap().expose(), "c");
        assert_eq!(merged.limits.idle_timeout_ms, 5);
    }
}
