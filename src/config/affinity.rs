//! `affinity:`: which datacenter holds what, told by filters.

mod blocks;

use serde_json::{Value as Json, json};

use self::blocks::block_domains;
use super::error::{Fault, Faults};
use super::node::{Mark, Node, Value};
use super::numbers::ByteSize;
use super::pool::Pool;
use super::section::section;
use super::setting::Setting;
use super::texts::words;
use super::words::Protocol;
use crate::ckf::digest::Selection;
use crate::ckf::format::{BLOCKS_MAX, bucket_count_for};
use crate::ckf::hashing::HashFormat;

/// Publishers are heard once a second: a shorter time than this makes lanes come and go.
const STALE_MS_MIN: u64 = 3_000;
/// A store is listed less often than this.
const RESCAN_MS_MIN: u64 = 1_000;
/// Bytes of exact state the publisher keeps for one key and owner, at most.
const KEY_STATE_BYTES: u64 = 26;
/// The same for one engine's block, which has a name of its own.
const BLOCK_STATE_BYTES: u64 = 29;
/// Bytes a node keeps for one key of its own.
const MEMBER_BYTES: u64 = 20;

words! {
    /// What the filters are used for: `affinity.mode`.
    pub enum AffinityMode ("is not a mode of affinity") {
        /// Nothing; none are kept.
        Off = "off",
        /// Questions of clients.
        Advise = "advise",
        /// Reads at DC_ONE too.
        Route = "route",
    }
}

words! {
    /// Where values of immutable keys are stored: `affinity.write_replication`.
    pub enum WriteReplication ("is not a way to replicate writes") {
        /// In every datacenter.
        All = "all",
        /// In the writer's.
        LocalDc = "local_dc",
    }
}

words! {
    /// How tokens are cut into blocks: `affinity.domains.hash`.
    pub(super) enum BlockHashing ("is not a way to hash blocks") {
        /// Blocks side by side.
        Standard = "standard",
        /// Neighbours share a token.
        Eagle = "eagle",
    }
}

section! {
    /// `affinity:`: filters of what each datacenter holds.
    pub(super) struct AffinityKeys {
        /// `off`; `advise`: answer TORC.WHERE and the other questions; `route`: read at DC_ONE
        /// where the key is, too. Default: off.
        pub(super) mode: AffinityMode = AffinityMode::Off,
        /// Distinct keys one datacenter holds at most; the same in every datacenter.
        /// Default: 1000000.
        pub(super) expected_keys: u64 = 1_000_000,
        /// `all`; or `local_dc`: values of bucket types that are `immutable` are stored in the
        /// writer's datacenter alone, deletes go everywhere. Default: all.
        pub(super) write_replication: WriteReplication = WriteReplication::All,
        /// Store values of immutable keys that GET or MGET fetched from another datacenter in the
        /// own one too, until they end there. Default: false.
        pub(super) backfill: bool = false,
        /// The name of the node that publishes for its datacenter while it lives. Default: one
        /// that all nodes choose alike.
        pub(super) publisher: Option<String> = None,
        /// A datacenter is not believed after this long without a word from its publisher,
        /// milliseconds. Default: 30000.
        pub(super) stale_after_ms: u64 = 30_000,
        /// The pause between two listings of a store that does not tell of every key, milliseconds.
        /// Default: 60000.
        pub(super) rescan_after_ms: u64 = 60_000,
        /// What the keys mean, as names and values; the same in every datacenter.
        /// Default: the cluster's name.
        pub(super) semantics: Option<IdentityMap> = None,
        /// Who may route by them, as names and values; the same in every datacenter.
        /// Default: the cluster's name.
        pub(super) scope: Option<IdentityMap> = None,
        /// Memory that the filters may need by `expected_keys` and the domains; what is left is for
        /// filters of another size, while datacenters change theirs. Default: 4gb.
        pub(super) memory_max_bytes: ByteSize = ByteSize(4 << 30),
        /// Blocks of tokens that engines tell of with TORC.KV, besides the ring's keys.
        /// Default: none.
        pub(super) domains: Option<Vec<BlockDomainKeys>> = None,
    }
}

section! {
    /// One entry of `affinity.domains`.
    pub(super) struct BlockDomainKeys {
        /// The name commands use, unique in the list.
        pub(super) name: Option<String> = None,
        /// Tokens of one block, as the engines have it.
        pub(super) block_size: Option<u32> = None,
        /// `standard` or `eagle`. Default: standard.
        pub(super) hash: BlockHashing = BlockHashing::Standard,
        /// Distinct blocks one datacenter holds at most. Default: 1000000.
        pub(super) expected_blocks: u64 = 1_000_000,
        /// What the blocks mean (the model), as names and values; the same in every datacenter.
        pub(super) semantics: Option<IdentityMap> = None,
        /// Who may route by them, as names and values. Default: the cluster's name.
        pub(super) scope: Option<IdentityMap> = None,
    }
}

/// Names and values that make an identity.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct IdentityMap(Selection);

impl Setting for IdentityMap {
    fn read(node: &Node, faults: &mut Faults) -> Option<IdentityMap> {
        let accepted = "a map of names and values, 1 to 32 of them";
        let Value::Map(entries) = &node.value else {
            let what = format!("expected names and values, found {}", node.describe());
            faults.push(Fault::new(what).at(Some(node.mark)).accepted(accepted));
            return None;
        };
        let mut pairs = Vec::new();
        for entry in entries {
            pairs.push((entry.key.clone(), String::read(&entry.node, faults)?));
        }
        match Selection::explicit(pairs) {
            Ok(selection) => Some(IdentityMap(selection)),
            Err(error) => {
                faults.push(Fault::new(error.to_string()).at(Some(node.mark)).accepted(accepted));
                None
            }
        }
    }

    fn schema() -> Json {
        json!({
            "type": "object",
            "minProperties": 1,
            "maxProperties": 32,
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        })
    }
}

/// Affinity as the node uses it.
#[derive(Debug, Clone, PartialEq)]
pub struct Affinity {
    /// What the filters are used for.
    pub mode: AffinityMode,
    /// Distinct keys of one datacenter.
    pub expected_keys: u64,
    /// Where values of immutable keys are stored.
    pub write_replication: WriteReplication,
    /// Whether values fetched from elsewhere are stored here too.
    pub backfill: bool,
    /// The node that publishes while it lives; one that all choose alike when absent.
    pub publisher: Option<String>,
    /// A datacenter is not believed after this long without a word, milliseconds.
    pub stale_after_ms: u64,
    /// The pause between two listings of a store that does not tell of every key, milliseconds.
    pub rescan_after_ms: u64,
    /// What the keys mean.
    pub semantics: Selection,
    /// Who may route by them.
    pub scope: Selection,
    /// Memory the filters may need, bytes.
    pub memory_bytes_max: u64,
    /// Engines' blocks.
    pub domains: Vec<BlockDomain>,
}

/// One domain of engines' blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockDomain {
    /// The name commands use.
    pub name: String,
    /// Tokens of one block.
    pub block_size: u32,
    /// How tokens are cut.
    pub hash: HashFormat,
    /// Distinct blocks of one datacenter.
    pub expected_blocks: u64,
    /// What the blocks mean.
    pub semantics: Selection,
    /// Who may route by them.
    pub scope: Selection,
}

impl Affinity {
    /// Bytes that filters and exact state need when everything expected is there, in a ring of
    /// this many datacenters.
    pub fn memory_bytes(&self, datacenters: usize) -> u64 {
        let keys = (self.expected_keys, KEY_STATE_BYTES + MEMBER_BYTES);
        let blocks = self.domains.iter().map(|domain| (domain.expected_blocks, BLOCK_STATE_BYTES));
        let all = std::iter::once(keys).chain(blocks);
        all.map(|(expected, each)| memory_bytes(expected, each, datacenters)).sum()
    }

    /// Bytes that each domain may use for filters of another size, which are there while
    /// datacenters are resized: its part of what is left.
    pub fn resize_bytes_max(&self, datacenters: usize) -> u64 {
        let left = self.memory_bytes_max.saturating_sub(self.memory_bytes(datacenters));
        left / (self.domains.len() as u64 + 1)
    }
}

/// The lanes' table, the publisher's filter, and so many bytes for each that is expected.
fn memory_bytes(expected: u64, each: u64, datacenters: usize) -> u64 {
    let buckets = bucket_count_for(expected).unwrap_or(u64::MAX / 1024);
    let lanes = datacenters.next_power_of_two() as u64;
    (8 * buckets * (lanes + 1)).saturating_add(expected.saturating_mul(each))
}

/// Completes the section and checks it against the pool's other keys. `immutable` tells whether
/// any bucket type is.
pub(super) fn complete(
    pool: &Pool,
    cluster: &str,
    immutable: bool,
    root: &Node,
    faults: &mut Faults,
) -> Affinity {
    let keys = &pool.affinity;
    let at = |path: &[&str]| root.find(path);
    let authority = Selection::explicit([("authority", cluster)]).unwrap_or_else(|error| {
        faults.push(Fault::new(format!("the cluster's name: {error}")));
        Selection::defaults([cluster])
    });
    let map = |given: &Option<IdentityMap>| given.clone().map(|map| map.0);
    let affinity = Affinity {
        mode: keys.mode,
        expected_keys: keys.expected_keys,
        write_replication: keys.write_replication,
        backfill: keys.backfill,
        publisher: keys.publisher.clone(),
        stale_after_ms: keys.stale_after_ms,
        rescan_after_ms: keys.rescan_after_ms,
        semantics: map(&keys.semantics).unwrap_or_else(|| authority.clone()),
        scope: map(&keys.scope).unwrap_or_else(|| authority.clone()),
        memory_bytes_max: keys.memory_max_bytes.as_usize() as u64,
        domains: block_domains(
            keys.domains.as_deref().unwrap_or_default(),
            root,
            faults,
            &authority,
        ),
    };
    check_replication(keys, immutable, root, faults);
    if keys.mode == AffinityMode::Off {
        return affinity;
    }
    let mode = at(&["affinity", "mode"]);
    if pool.datastore.is_none() && pool.data_store == Some(Protocol::Memcache) {
        faults.push(
            Fault::new("affinity needs to hear when keys go, and memcached does not tell")
                .at(mode)
                .accepted("off, with `data_store: 1` and `servers`"),
        );
    } else if keys.mode == AffinityMode::Route && pool.data_store == Some(Protocol::Memcache) {
        faults.push(
            Fault::new("reads of memcache keys are not routed")
                .at(mode)
                .accepted("off or advise, with `data_store: 1`"),
        );
    }
    check_size(&affinity, keys, root, faults);
    affinity
}

/// Values that stay where they were written must be found from elsewhere, and be the only ones of
/// their keys (decision I1).
fn check_replication(keys: &AffinityKeys, immutable: bool, root: &Node, faults: &mut Faults) {
    if keys.write_replication == WriteReplication::All {
        if keys.backfill {
            let what = "`backfill` is for values that stay where they were written";
            let place = root.find(&["affinity", "backfill"]);
            faults.push(
                Fault::new(what).at(place).accepted("`write_replication: local_dc` beside it"),
            );
        }
        return;
    }
    let at = root.find(&["affinity", "write_replication"]);
    if keys.mode != AffinityMode::Route {
        faults.push(
            Fault::new("`local_dc` needs `affinity.mode: route`, or other datacenters miss values")
                .at(at)
                .accepted("all, with any mode"),
        );
    }
    if !immutable {
        faults.push(
            Fault::new("`local_dc` is for bucket types with `immutable: true`, and there is none")
                .at(at)
                .accepted("all; or an entry of `bucket_types` with `immutable: true`"),
        );
    }
}

fn check_size(affinity: &Affinity, keys: &AffinityKeys, root: &Node, faults: &mut Faults) {
    let mark = |key: &str| root.find(&["affinity", key]).or(root.find(&["affinity"]));
    if keys.stale_after_ms < STALE_MS_MIN {
        let what =
            format!("`stale_after_ms` {} is less than three heartbeats", keys.stale_after_ms);
        let accepted = format!("{STALE_MS_MIN} or more");
        faults.push(Fault::new(what).at(mark("stale_after_ms")).accepted(accepted));
    }
    if keys.rescan_after_ms < RESCAN_MS_MIN {
        let what = format!("`rescan_after_ms` {} would keep the store busy", keys.rescan_after_ms);
        let accepted = format!("{RESCAN_MS_MIN} or more");
        faults.push(Fault::new(what).at(mark("rescan_after_ms")).accepted(accepted));
    }
    check_expected("expected_keys", affinity.expected_keys, mark("expected_keys"), faults);
    let blocks = affinity.domains.iter().map(|domain| domain.expected_blocks);
    if blocks.chain([affinity.expected_keys]).any(|n| !(1..=BLOCKS_MAX).contains(&n)) {
        return;
    }
    // A ring of two datacenters is the least that makes use of this.
    let needed = affinity.memory_bytes(2);
    let allowed = affinity.memory_bytes_max;
    if needed > allowed {
        let what = format!("filters of this size need about {} MiB", needed >> 20);
        let accepted = format!("up to `affinity.memory_max_bytes`, which is {} MiB", allowed >> 20);
        let place = root.find(&["affinity", "expected_keys"]).or(root.find(&["affinity"]));
        faults.push(Fault::new(what).at(place).accepted(accepted));
    }
}

/// A filter has room for some, and not for any number.
fn check_expected(key: &str, expected: u64, mark: Option<Mark>, faults: &mut Faults) {
    if !(1..=BLOCKS_MAX).contains(&expected) {
        let what = match expected {
            0 => format!("`{key}` 0 leaves no room for any"),
            _ => format!("`{key}` {expected} is more than the largest filter has room for"),
        };
        faults.push(Fault::new(what).at(mark).accepted(format!("1 to {BLOCKS_MAX}")));
    }
}
