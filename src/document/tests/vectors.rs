//! `tests/vectors/documents.json`: hashes and owners recorded from the reference, rules derived
//! from the document contract.

use crate::document::batch::{Batch, Documents, Format};
use crate::document::covering::cover;
use crate::document::primary_key::{IdProblem, canonical_id, resolve};
use crate::document::quorum::{judge, votes};
use crate::document::reserved::Reserved;
use crate::document::shard::{ShardId, ShardSet, key_hash, rank, score, shard_for_key};
use crate::document::task::{Status, aggregate};
use crate::document::topology::{GroupIdx, Topology};
use crate::ring::Outcome;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn vectors() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/documents.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn rows(vectors: &Value, name: &str) -> Vec<Value> {
    let rows = vectors[name].as_array().unwrap().clone();
    assert!(!rows.is_empty(), "{name}");
    rows
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn number(value: &Value) -> u32 {
    value.as_u64().unwrap() as u32
}

fn topology(row: &Value) -> Topology {
    let groups: Vec<_> = row["groups"].as_array().unwrap().iter().map(strings).collect();
    Topology::new(number(&row["shards"]), number(&row["rf"]) as usize, &groups).unwrap()
}

fn topologies(vectors: &Value) -> BTreeMap<String, Topology> {
    let rows = rows(vectors, "topologies");
    rows.iter().map(|row| (text(&row["name"]).to_owned(), topology(row))).collect()
}

#[test]
fn keys_hash_to_their_shards() {
    let vectors = vectors();
    for row in rows(&vectors, "shard_for_key") {
        let key = text(&row["key"]);
        assert_eq!(key_hash(key).to_string(), text(&row["xxh64_dec"]), "{key:?}");
        for (shards, shard) in row["shard"].as_object().unwrap() {
            let shards = shards.parse().unwrap();
            assert_eq!(shard_for_key(key, shards), ShardId(number(shard)), "{key:?} of {shards}");
        }
    }
}

#[test]
fn scores_and_owners_are_the_references() {
    let vectors = vectors();
    for row in rows(&vectors, "rendezvous_score") {
        let got = score(ShardId(number(&row["shard"])), text(&row["node"]));
        assert_eq!(got.to_string(), text(&row["score_dec"]), "{row}");
    }
    for row in rows(&vectors, "owners") {
        let nodes = strings(&row["nodes"]);
        let ids: Vec<&str> = nodes.iter().map(String::as_str).collect();
        for (shard, owners) in row["owners_by_shard"].as_array().unwrap().iter().enumerate() {
            let ranked = rank(ShardId(shard as u32), &ids);
            let got: Vec<&str> =
                ranked.iter().take(number(&row["rf"]) as usize).map(|i| ids[*i]).collect();
            assert_eq!(json!(got), *owners, "shard {shard} of {nodes:?}");
        }
    }
    let ids = ["node-0", "node-1", "node-2"];
    for (shard, order) in rows(&vectors, "owners_64_shards_3_nodes_full_order").iter().enumerate() {
        let got: Vec<&str> =
            rank(ShardId(shard as u32), &ids).into_iter().map(|i| ids[i]).collect();
        assert_eq!(json!(got), *order, "shard {shard}");
    }
}

#[test]
fn topologies_place_every_shard_and_a_thousand_documents() {
    for row in rows(&vectors(), "topologies") {
        let topology = topology(&row);
        for (shard, targets) in row["write_targets_by_shard"].as_array().unwrap().iter().enumerate()
        {
            let targets_got = topology.write_targets(ShardId(shard as u32));
            let got: Vec<&str> = targets_got.iter().map(|b| topology.id(*b)).collect();
            assert_eq!(json!(got), *targets, "{} shard {shard}", row["name"]);
        }
        for (node, shards) in row["shards_by_node"].as_object().unwrap() {
            let owned = topology.shards_of(topology.find(node).unwrap());
            let got: Vec<u32> = owned.iter().map(|s| s.0).collect();
            assert_eq!(json!(got), *shards, "{} {node}", row["name"]);
        }
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for i in 0..1000 {
            let shard = shard_for_key(&format!("doc-{i}"), topology.shards());
            for target in topology.write_targets(shard) {
                *counts.entry(topology.id(*target)).or_default() += 1;
            }
        }
        let expected = &row["docs_per_node_for_doc-0_to_doc-999"];
        assert_eq!(json!(counts), *expected, "{}", row["name"]);
    }
}

#[test]
fn the_two_rules_give_the_expected_verdicts() {
    let vectors = vectors();
    let topologies = topologies(&vectors);
    for row in rows(&vectors, "quorum") {
        let topology = &topologies[text(&row["topology"])];
        let failing = strings(&row["nodes_failing"]);
        let acked = |b| !failing.iter().any(|id| id == topology.id(b));
        let mut touched = ShardSet::none(topology.shards());
        for shard in row["shards"].as_array().unwrap() {
            touched.insert(ShardId(number(shard)));
        }
        for cell in row["per_shard_group"].as_array().unwrap() {
            let group = GroupIdx(number(&cell["group"]) as u16);
            let votes = votes(topology, ShardId(number(&cell["shard"])), group, &acked);
            assert_eq!(json!(votes.good()), cell["acks"], "{row}");
            assert_eq!(json!(votes.need()), cell["need"], "{row}");
            assert_eq!(json!(votes.outcome() == Outcome::Met), cell["ok"], "{row}");
        }
        let verdict = judge(topology, &touched, acked);
        let expect = &row["expect"];
        assert_eq!(verdict.succeeded(), expect["status"] == 202, "{row}");
        assert_eq!(json!(verdict.degraded_header()), expect["header"], "{row}");
        let mut lost: Vec<u32> = verdict.lost_shards.iter().map(|s| s.0).collect();
        lost.sort_unstable();
        assert_eq!(json!(lost), expect["shards_without_quorum"], "{row}");
        assert_eq!(json!(verdict.pin.map(|g| g.0)), expect["session_pin_group"], "{row}");
        if !expect["degraded_groups"].is_null() {
            let groups: Vec<u16> = verdict.degraded_groups.iter().map(|g| g.0).collect();
            assert_eq!(json!(groups), expect["degraded_groups"], "{row}");
        }
    }
}

#[test]
fn one_payload_per_backend_in_request_order() {
    let vectors = vectors();
    let topologies = topologies(&vectors);
    for row in rows(&vectors, "fanout") {
        let topology = &topologies[text(&row["topology"])];
        let ids = strings(&row["ids_in_request_order"]);
        let body: Vec<Value> = ids.iter().map(|id| json!({ "id": id })).collect();
        let body = Bytes::from(json!(body).to_string());
        let documents = Documents::parse(Format::Json, body, 1 << 20).unwrap();
        let reserved = Reserved::default();
        let batch = Batch::route(documents, "id", &reserved, topology.shards(), 0).unwrap();
        for (id, shard) in batch.ids() {
            assert_eq!(json!(shard.0), row["shard_of"][id.as_ref()]);
        }
        let batch = Arc::new(batch);
        let touched = batch.touched();
        let mut requests = serde_json::Map::new();
        for id in topology.backends() {
            let owned = topology.shards_of(topology.find(id).unwrap());
            if touched.iter().any(|shard| owned.contains(shard)) {
                let mut payload = batch.payload(owned);
                let pieces: Vec<Bytes> = std::iter::from_fn(|| payload.next_piece()).collect();
                let sent: Value = serde_json::from_slice(&pieces.concat()).unwrap();
                requests.insert(id.clone(), sent);
            }
        }
        assert_eq!(json!(requests.len()), row["request_count"]);
        assert_eq!(Value::Object(requests), row["requests"]);
    }
}

#[test]
fn coverings_turn_with_the_query_and_skip_the_dead() {
    let vectors = vectors();
    let topologies = topologies(&vectors);
    for row in rows(&vectors, "covering_with_shard_filter") {
        let topology = &topologies[text(&row["topology"])];
        let down = strings(&row["down"]);
        let group = GroupIdx(number(&row["group"]) as u16);
        let usable = |_, b| !down.iter().any(|id| id == topology.id(b));
        let covering = cover(topology, group, &[], row["query_seq"].as_u64().unwrap(), usable);
        let parts: BTreeMap<&str, Vec<u32>> = covering
            .parts
            .iter()
            .map(|(b, shards)| (topology.id(*b), shards.iter().map(|s| s.0).collect()))
            .collect();
        assert_eq!(json!(parts), row["node_to_shards"], "{row}");
        let uncovered: Vec<u32> = covering.uncovered.iter().map(|s| s.0).collect();
        assert_eq!(json!(uncovered), row["uncovered_shards"], "{row}");
    }
    // The reference names the backends only; ours are the same ones.
    for row in rows(&vectors, "reference_covering_nodes") {
        let topology = &topologies[text(&row["topology"])];
        let group = GroupIdx(number(&row["group"]) as u16);
        let turn = row["query_seq"].as_u64().unwrap();
        let covering = cover(topology, group, &[], turn, |_, _| true);
        let mut got: Vec<&str> = covering.parts.iter().map(|(b, _)| topology.id(*b)).collect();
        got.sort_unstable();
        assert_eq!(json!(got), row["reference_nodes_sorted"], "{row}");
    }
}

#[test]
fn primary_keys_resolve_in_the_stated_order() {
    for row in rows(&vectors(), "primary_key") {
        let keys = strings(&row["first_doc_keys"]);
        let got = resolve(row["index_pk"].as_str(), row["query_pk"].as_str(), |name| {
            keys.iter().any(|key| key == name)
        });
        match got {
            Ok(name) => assert_eq!(json!(name), row["expect"], "{row}"),
            Err(error) => assert_eq!(json!(error.code()), row["error"], "{row}"),
        }
    }
}

#[test]
fn ids_are_canonical_or_refused() {
    for row in rows(&vectors(), "document_id") {
        let json_text = text(&row["json"]);
        let long = |count: usize| format!("\"{}\"", "k".repeat(count));
        let input = match json_text {
            "(field absent)" => continue,
            "\"k\" repeated 511 times" => long(511),
            "\"k\" repeated 512 times" => long(512),
            other => other.to_owned(),
        };
        match canonical_id(&input) {
            Ok(id) if row["canonical"] == "(itself)" => assert_eq!(id, "k".repeat(511)),
            Ok(id) => assert_eq!(json!(id), row["canonical"], "{row}"),
            Err(IdProblem::Missing) => assert_eq!(row["error"], "miroir_primary_key_required"),
            Err(IdProblem::Invalid) => assert_eq!(row["error"], "invalid_document_id", "{row}"),
        }
    }
}

#[test]
fn reserved_names_depend_on_what_is_on() {
    for row in rows(&vectors(), "reserved_fields") {
        let reserved =
            Reserved { anti_entropy: row["anti_entropy"] == true, ttl: row["ttl"] == true };
        assert_eq!(json!(reserved.contains(text(&row["field"]))), row["rejected"], "{row}");
    }
}

#[test]
fn a_task_is_what_its_parts_are() {
    for row in rows(&vectors(), "task_aggregation") {
        let parts = strings(&row["node_statuses"]);
        let got = aggregate(parts.iter().map(|name| Status::parse(name)));
        assert_eq!(json!(got.as_str()), row["task_status"], "{row}");
    }
}
