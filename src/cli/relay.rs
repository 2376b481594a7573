//! `torc relay watch`: what a relay says, live.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{Failure, stop_signal};
use crate::ckf::bucket::BucketImage;
use crate::ckf::cbi1::Snapshot;
use crate::config;
use crate::net::clock::{Clock, wall_ms};
use crate::relay::consumer::{CatalogView, LoadView, ReadinessView};
use crate::relay::descriptor::{Descriptor, Role};
use crate::relay::key::ProducerKey;
use crate::relay::topology::state_word;
use crate::relay_client::{Consumer, News, Settings, follow};

/// How often the progress of filters is shown.
const PROGRESS: Duration = Duration::from_secs(1);
/// Windows after which an unchanged load is shown again.
const LOAD_REPEAT: u64 = 10;

/// Look at relays.
#[derive(Debug, Subcommand)]
pub(super) enum RelayCommand {
    /// Follow a relay and show its catalog, readiness, load and filters as they change
    Watch(WatchArgs),
}

#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    /// The relay
    #[arg(value_name = "HOST:PORT")]
    address: String,
    /// Leave the filters alone: they are the bulk of the traffic
    #[arg(long)]
    no_filters: bool,
}

pub(super) fn relay(command: &RelayCommand) -> Result<(), Failure> {
    match command {
        RelayCommand::Watch(args) => watch(args),
    }
}

fn watch(args: &WatchArgs) -> Result<(), Failure> {
    let limits = config::Relay::default();
    let settings = Settings {
        address: args.address.clone(),
        subscriber_id: format!("torc relay watch {}", std::process::id()),
        max_message_bytes: limits.max_message_bytes.as_usize(),
        keepalive_interval: Duration::from_millis(limits.keepalive_interval_ms),
        keepalive_timeout: Duration::from_millis(limits.keepalive_timeout_ms),
        recovery_attempt_timeout: Duration::from_millis(limits.recovery_attempt_timeout_ms),
    };
    let failed = |error: std::io::Error| Failure::Failed(error.to_string());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let watcher = Arc::new(Watcher { filters: !args.no_filters, state: Mutex::default() });
        let stop = stop_signal().map_err(failed)?;
        let consumer = Arc::clone(&watcher);
        tokio::select! {
            () = stop => Ok(()),
            () = follow(settings, consumer, Clock::start()) => {
                Err(Failure::Failed("trying again cannot help".into()))
            }
            () = show_progress(&watcher) => Ok(()),
        }
    })
}

async fn show_progress(watcher: &Watcher) {
    let mut ticks = tokio::time::interval(PROGRESS);
    loop {
        ticks.tick().await;
        let mut state = watcher.state();
        for progress in std::mem::take(&mut state.progress).into_values() {
            let Progress { name, sequence, deltas, images } = progress;
            let head = format!("filter {name}");
            say(&head, &format!("at {sequence}: {deltas} deltas, {images} buckets"));
        }
    }
}

/// Prints what it hears.
struct Watcher {
    filters: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Short names of pools.
    names: HashMap<ProducerKey, String>,
    /// Deltas since the last line, by name.
    progress: BTreeMap<String, Progress>,
    /// The load as it was shown last, and its window.
    load: Option<(u64, String)>,
}

#[derive(Clone, Default)]
struct Progress {
    name: String,
    sequence: u64,
    deltas: u64,
    images: usize,
}

impl Watcher {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, key: &ProducerKey) -> String {
        let known = self.state().names.get(key).cloned();
        known.unwrap_or_else(|| key.pool().dc_id.to_string())
    }

    fn catalog(&self, view: &CatalogView) {
        say(&format!("catalog {}", view.revision), &format!("{} pools", view.pools.len()));
        for pool in &view.pools {
            let name = format!("{}/{}", pool.endpoint.component, pool.endpoint.endpoint);
            more(&describe(pool));
            self.state().names.insert(pool.key, name);
        }
        for pool in &view.quarantined {
            more(&format!("left out: {} ({})", pool.name, pool.fault));
        }
    }

    fn load(&self, view: &LoadView) {
        let mut text = String::new();
        for load in &view.pools {
            let name = self.name(&load.key);
            let (used, total) = (load.used_blocks, load.total_blocks);
            let ranks = format!("{} of {} ranks", load.observed_ranks, load.expected_ranks);
            // Writing to a text cannot fail.
            let _ = match load.is_authoritative() {
                true => write!(text, "{name} {used} of {total} used, {ranks}; "),
                false => write!(text, "{name} not known, {ranks}; "),
            };
        }
        let text = if text.is_empty() { "no pools".into() } else { text };
        let window = view.window.sequence;
        let mut state = self.state();
        let shown = state.load.as_ref();
        if shown.is_some_and(|(at, before)| *before == text && window < at + LOAD_REPEAT) {
            return;
        }
        say(&format!("load {window}"), text.trim_end_matches("; "));
        state.load = Some((window, text));
    }
}

fn readiness(view: &ReadinessView) {
    say(&format!("readiness {}", view.revision), &format!("{} models", view.entries.len()));
    for entry in &view.entries {
        let (state, key) = (state_word(entry.state), &entry.key);
        let mut line = format!("{state}: {}/{}", key.namespace, key.model);
        if !entry.missing.is_empty() {
            line += &format!(", missing {}", roles(&entry.missing));
        }
        if !entry.duplicated.is_empty() {
            line += &format!(", twice {}", roles(&entry.duplicated));
        }
        more(&line);
    }
    for entry in &view.quarantined {
        more(&format!("left out: {} ({})", entry.name, entry.fault));
    }
}

fn describe(pool: &Descriptor) -> String {
    let models: Vec<&str> = pool.registrations.iter().map(|r| r.canonical_id.as_str()).collect();
    let (key, format) = (pool.key.identity(), pool.key.format());
    format!(
        "{}: {} ({}), blocks of {}, {} buckets, life {} generation {}, pool {}",
        pool.endpoint,
        models.join(", "),
        roles(&pool.roles),
        pool.semantics.block_size,
        format.bucket_count,
        key.producer_incarnation,
        key.layout_generation,
        key.pool,
    )
}

fn roles(roles: &[Role]) -> String {
    let word = |role: &Role| match role {
        Role::Unspecified => "unspecified",
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Encode => "encode",
        Role::Aggregated => "aggregated",
        Role::Legacy => "legacy",
    };
    roles.iter().map(word).collect::<Vec<_>>().join("+")
}

impl Consumer for Watcher {
    fn news(&self, news: News) {
        let again = |pause_ms: Option<u64>| match pause_ms {
            Some(pause_ms) => format!("again in {pause_ms} ms"),
            None => "given up".to_owned(),
        };
        match news {
            News::Connected(relay) => {
                let (runtime, life) = (relay.drt_instance_id, relay.incarnation);
                say("connected", &format!("runtime {runtime:016x}, life {life:016x}"));
            }
            News::Catalog(view) => self.catalog(&view),
            News::Readiness(view) => readiness(&view),
            News::Load(view) => self.load(&view),
            News::Serving(_) => {}
            News::PlaneEnded { plane, end, pause_ms } => {
                say(&format!("{} ended", plane.label()), &format!("{end}; {}", again(pause_ms)));
            }
            News::FilterEnded { key, end, pause_ms } => {
                let head = format!("filter {} ended", self.name(&key));
                say(&head, &format!("{end}; {}", again(pause_ms)));
            }
        }
    }

    fn wants(&self, _: &Descriptor) -> Result<(), String> {
        if self.filters { Ok(()) } else { Err("filters are left alone".into()) }
    }

    fn install(&self, key: &ProducerKey, snapshot: Snapshot) -> Result<(), String> {
        let held = snapshot.words.iter().map(|word| occupied(*word)).sum::<u64>();
        let percent = held * 100 / (4 * snapshot.words.len() as u64).max(1);
        let text = format!("snapshot at {}: {held} held, {percent} % full", snapshot.epoch);
        say(&format!("filter {}", self.name(key)), &text);
        Ok(())
    }

    fn apply(
        &self,
        key: &ProducerKey,
        sequence: u64,
        images: Vec<BucketImage>,
    ) -> Result<(), String> {
        let name = self.name(key);
        let mut state = self.state();
        let progress = state.progress.entry(name.clone()).or_default();
        progress.name = name;
        progress.sequence = sequence;
        progress.deltas += 1;
        progress.images += images.len();
        Ok(())
    }

    fn heard(&self, _: &ProducerKey) {}

    fn retire(&self, _: &ProducerKey) {}
}

/// Slots in use of one bucket.
fn occupied(word: u64) -> u64 {
    (0..4).filter(|slot| word >> (16 * slot) & 0xffff != 0).count() as u64
}

/// One line: when, about what, and what.
fn say(about: &str, text: &str) {
    let ms = wall_ms() % 86_400_000;
    let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    println!("{h:02}:{m:02}:{s:02}.{:03}Z {about:<24} {text}", ms % 1_000);
}

/// One more line about the same.
fn more(text: &str) {
    println!("{:13} {:<24} {text}", "", "");
}
