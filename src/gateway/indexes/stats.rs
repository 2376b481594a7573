//! Sizes: summed over one complete group, divided by its copies.

use super::unavailable;
use crate::gateway::call::{Call, Outcome, ok};
use crate::gateway::client::{Outbound, index_path};
use crate::gateway::core::Core;
use crate::gateway::error::{Failure, index_not_found};
use crate::gateway::placement::Placement;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// `GET /indexes/{uid}/stats`.
pub(in crate::gateway) async fn index_stats(core: Arc<Core>, call: Call) -> Outcome {
    let name = call.uid()?;
    let uid = core.aliases.resolve(&name).await?.writable(&name)?;
    let placement = core.placement();
    let path = format!("{}/stats", index_path(&uid));
    let Some(answers) = whole_group(&placement, &path, "numberOfDocuments").await else {
        return Err(unavailable().into());
    };
    let mut known = answers.iter().flatten().peekable();
    if known.peek().is_none() {
        return Err(index_not_found(&uid).into());
    }
    Ok(ok(&merge(&core, &placement, known)))
}

/// `GET /stats`.
pub(in crate::gateway) async fn stats(core: Arc<Core>, _: Call) -> Outcome {
    let placement = core.placement();
    let answers: Vec<Value> = match whole_group(&placement, "/stats", "indexes").await {
        Some(answers) => answers.into_iter().flatten().collect(),
        None => return Err(Failure::from(unavailable())),
    };
    let mut uids: Vec<&String> =
        answers.iter().filter_map(|a| a.get("indexes")?.as_object()).flat_map(Map::keys).collect();
    uids.sort_unstable();
    uids.dedup();
    let mut indexes = Map::new();
    for uid in uids {
        let mine = answers.iter().filter_map(|a| a.get("indexes")?.get(uid));
        indexes.insert(uid.clone(), merge(&core, &placement, mine));
    }
    let sum = |name: &str| answers.iter().filter_map(|a| a.get(name)?.as_u64()).sum::<u64>();
    let last = answers.iter().filter_map(|a| a.get("lastUpdate")?.as_str()).max();
    Ok(ok(&json!({"databaseSize": sum("databaseSize"),
        "usedDatabaseSize": sum("usedDatabaseSize"), "lastUpdate": last, "indexes": indexes})))
}

/// The answers of all members of the first group in which all answer; `None` for a member that
/// does not know the index. `field` is one that every answer has.
async fn whole_group(placement: &Placement, path: &str, field: &str) -> Option<Vec<Option<Value>>> {
    for group in placement.topology.group_numbers() {
        let mut asked = tokio::task::JoinSet::new();
        for member in placement.topology.members(group) {
            let (backend, path) = (placement.backend(*member).clone(), path.to_owned());
            asked.spawn(async move { backend.call(Outbound::get(path)).await });
        }
        let mut answers = Vec::new();
        while let Some(result) = asked.join_next().await {
            match result {
                Ok(Ok(reply)) if reply.is_success() => match reply.json() {
                    Some(stats) if stats.get(field).is_some() => answers.push(Some(stats)),
                    _ => break,
                },
                Ok(Ok(reply)) if reply.error_code().as_deref() == Some("index_not_found") => {
                    answers.push(None);
                }
                _ => break,
            }
        }
        if answers.len() == placement.topology.members(group).len() {
            return Some(answers);
        }
    }
    None
}

fn merge<'a>(
    core: &Core,
    placement: &Placement,
    answers: impl Iterator<Item = &'a Value>,
) -> Value {
    let copies = placement.topology.replication_factor() as u64;
    let mut numbers: Map<String, Value> = Map::new();
    let mut fields: Map<String, Value> = Map::new();
    let mut indexing = false;
    let (mut documents, mut bytes) = (0, 0);
    let add = |into: &mut Map<String, Value>, name: &str, count: u64| {
        let sum = into.get(name).and_then(Value::as_u64).unwrap_or(0) + count;
        into.insert(name.to_owned(), json!(sum));
    };
    for answer in answers.filter_map(Value::as_object) {
        for (name, value) in answer {
            if let Some(count) = value.as_u64() {
                add(&mut numbers, name, count);
            }
        }
        indexing |= answer.get("isIndexing") == Some(&Value::Bool(true));
        documents += answer.get("numberOfDocuments").and_then(Value::as_u64).unwrap_or(0);
        bytes += answer.get("rawDocumentDbSize").and_then(Value::as_u64).unwrap_or(0);
        let spread = answer.get("fieldDistribution").and_then(Value::as_object);
        for (name, count) in spread.into_iter().flatten() {
            if !core.settings.reserved.contains(name) {
                add(&mut fields, name, count.as_u64().unwrap_or(0));
            }
        }
    }
    for count in numbers.values_mut().chain(fields.values_mut()) {
        *count = json!(count.as_u64().unwrap_or(0) / copies);
    }
    if numbers.contains_key("avgDocumentSize") {
        numbers.insert("avgDocumentSize".into(), json!(bytes.checked_div(documents).unwrap_or(0)));
    }
    numbers.insert("isIndexing".into(), json!(indexing));
    numbers.insert("fieldDistribution".into(), Value::Object(fields));
    Value::Object(numbers)
}
