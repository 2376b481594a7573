//! `/_miroir/`: aliases and what an operator may look at.

use super::aliases::{Resolved, target_of};
use super::call::{Call, Outcome, encode_segment, is_valid_uid, ok, parse_json, uid_message};
use super::client::{Outbound, index_path};
use super::core::Core;
use super::error::ApiError;
use super::reads::is_document;
use super::status;
use crate::document::shard::{ShardId, key_hash, score, shard_for_key};
use crate::document::topology::GroupIdx;
use hyper::Method;
use serde_json::{Value, json};
use std::sync::Arc;

/// `GET` and `POST /_miroir/aliases`.
pub(super) async fn aliases(core: Arc<Core>, mut call: Call) -> Outcome {
    if call.method == Method::GET {
        return Ok(ok(&core.aliases.list().await?));
    }
    let body = core.bodies.read(&mut call).await?;
    let body = parse_json(&body.text)?;
    let name = body.get("name").and_then(Value::as_str).unwrap_or_default();
    if !is_valid_uid(name) {
        return Err(ApiError::new("invalid_index_uid", uid_message(name)).into());
    }
    Ok(ok(&core.aliases.put(name, target_of(&body)?, true).await?))
}

/// `GET`, `PUT` and `DELETE /_miroir/aliases/{name}`.
pub(super) async fn alias(core: Arc<Core>, mut call: Call) -> Outcome {
    let name = call.uid()?;
    let shown = match call.method {
        Method::PUT => {
            let body = core.bodies.read(&mut call).await?;
            core.aliases.put(&name, target_of(&parse_json(&body.text)?)?, false).await?
        }
        Method::DELETE => core.aliases.delete(&name).await?,
        _ => core.aliases.get(&name).await?,
    };
    Ok(ok(&shown))
}

/// `GET /_miroir/topology`.
pub(super) async fn topology(core: Arc<Core>, _: Call) -> Outcome {
    Ok(ok(&status::topology(&core)))
}

/// `GET /_miroir/shards`, with `?index=..&id=..` for one document.
pub(super) async fn shards(core: Arc<Core>, call: Call) -> Outcome {
    let placement = core.placement();
    let topology = &placement.topology;
    let owners = |shard: ShardId| {
        let groups = topology.group_numbers().map(|group: GroupIdx| {
            let owners = topology.owners(shard, group).iter();
            owners.map(|owner| topology.id(*owner)).collect::<Vec<_>>()
        });
        json!({"shard": shard.0, "owners": groups.collect::<Vec<_>>()})
    };
    if let Some(id) = call.parameter("id") {
        let index = call.parameter("index").unwrap_or_default();
        return Ok(ok(&whereabouts(&core, index, id).await?));
    }
    let all: Vec<Value> = (0..topology.shards()).map(|shard| owners(ShardId(shard))).collect();
    Ok(ok(&json!({ "shards": all })))
}

/// The owners of one document, and which of them have it.
async fn whereabouts(core: &Core, index: &str, id: &str) -> Result<Value, ApiError> {
    let uid = match core.aliases.resolve(index).await? {
        Resolved::One(uid) => uid,
        Resolved::Several(_) => {
            let message = format!("`{index}` is an alias of several indexes; name one of them");
            return Err(ApiError::new("bad_request", message));
        }
    };
    let placement = core.placement();
    let topology = &placement.topology;
    let shard = shard_for_key(id, topology.shards());
    let path = format!("{}/documents/{}", index_path(&uid), encode_segment(id));
    let mut groups = Vec::new();
    for group in topology.group_numbers() {
        let mut owners = Vec::new();
        for owner in topology.owners(shard, group) {
            let backend = placement.backend(*owner);
            let has = match backend.call(Outbound::get(path.clone())).await {
                Ok(reply) if reply.is_success() && is_document(reply.text(), shard) => "yes",
                Ok(reply) if reply.status == 404 && reply.error_code().is_some() => "no",
                Ok(_) | Err(_) => "unknown",
            };
            let score = format!("{:016x}", score(shard, &backend.id));
            owners.push(json!({"backend": backend.id, "url": backend.url, "score": score,
                "state": backend.health().as_str(), "has": has,
                "missedWrites": core.is_dirty(&uid, &backend.id, shard)}));
        }
        groups.push(json!({"group": group.0, "owners": owners}));
    }
    Ok(json!({"index": uid, "id": id, "hash": format!("{:016x}", key_hash(id)),
        "shard": shard.0, "shards": topology.shards(), "groups": groups}))
}

/// `GET /_miroir/ready`: whether a write could meet its quorum now.
pub(super) async fn ready(core: Arc<Core>, _: Call) -> Outcome {
    let placement = core.placement();
    let all = crate::document::shard::ShardSet::all(placement.topology.shards());
    let live = |backend| placement.backend(backend).is_live();
    let verdict = crate::document::quorum::judge(&placement.topology, &all, live);
    if !verdict.succeeded() {
        let message = format!("{} shards have no quorum", verdict.lost_shards.len());
        return Err(ApiError::new("miroir_no_quorum", message).into());
    }
    core.aliases.resolve("ready").await?;
    let degraded: Vec<u16> = verdict.degraded_groups.iter().map(|group| group.0).collect();
    Ok(ok(&json!({"status": "ready", "degradedGroups": degraded})))
}
