//! Settings of an index: the reserved fields stay filterable and stay out of sight.

use super::{Change, broadcast, ensure_index, first_answer};
use crate::document::object::shorten;
use crate::gateway::call::{Call, Outcome, not_an_object, ok, parse_json};
use crate::gateway::catalogue::{Missed, filterable_path};
use crate::gateway::client::{Outbound, index_path};
use crate::gateway::core::Core;
use crate::gateway::error::{ApiError, Failure};
use crate::gateway::tasks::TaskKind;
use crate::gateway::writes::once;
use hyper::Method;
use serde_json::{Map, Value, json};
use std::sync::Arc;

const FILTERABLE: &str = "filterableAttributes";
const FILTERABLE_SEGMENT: &str = "filterable-attributes";

/// The path below an index, as the client wrote it.
fn settings_path(uid: &str, setting: &str) -> String {
    let base = format!("{}/settings", index_path(uid));
    if setting.is_empty() { base } else { format!("{base}/{setting}") }
}

/// The setting a call names; empty for all of them.
///
/// # Errors
/// The name holds what no setting's name does.
fn setting_of(call: &Call) -> Result<String, ApiError> {
    let setting = call.param(1);
    if setting.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-') {
        return Ok(setting.to_owned());
    }
    Err(ApiError::new("bad_request", format!("`{setting}` is no setting")))
}

/// `GET settings` and `GET settings/{name}`.
pub(in crate::gateway) async fn read_settings(core: Arc<Core>, call: Call) -> Outcome {
    let name = call.uid()?;
    let uid = core.aliases.resolve(&name).await?.writable(&name)?;
    let setting = setting_of(&call)?;
    // A single setting may have any form.
    let makes_sense = |body: &Value| !setting.is_empty() || body.get(FILTERABLE).is_some();
    let body = first_answer(&core, &uid, &settings_path(&uid, &setting), makes_sense).await?;
    let mut value: Value = serde_json::from_slice(&body)
        .map_err(|e| ApiError::new("internal", format!("a backend's settings: {e}")))?;
    if setting == FILTERABLE_SEGMENT {
        value = core.catalogue.without_reserved(&value);
    } else if let Some(list) = value.get(FILTERABLE).filter(|_| setting.is_empty()) {
        value[FILTERABLE] = core.catalogue.without_reserved(list);
    }
    Ok(ok(&value))
}

/// `PATCH`, `PUT` and `DELETE` of settings and of one setting.
pub(in crate::gateway) async fn write_settings(core: Arc<Core>, mut call: Call) -> Outcome {
    let name = call.uid()?;
    let setting = setting_of(&call)?;
    let body = core.bodies.read(&mut call).await?;
    let value = if call.method == Method::DELETE { Value::Null } else { parse_json(&body.text)? };
    check(&core, &setting, &value)?;
    let (shared, method, raw) = (core.clone(), call.method.clone(), body.raw.clone());
    let index = name.clone();
    once(&core, &call, &index, &raw, async move {
        let uid = shared.aliases.resolve(&name).await?.writable(&name)?;
        refuse_unknown(&shared, &uid, &setting).await?;
        let placement = shared.placement();
        ensure_index(&shared, &placement, &uid, None).await?;
        let requests = requests(&shared, &uid, &setting, method, &value);
        let change = Change {
            kind: TaskKind::SettingsUpdate,
            details: details(&setting, value),
            missed: Missed::Settings,
        };
        broadcast(&shared, &uid, requests, change).await
    })
    .await
}

/// A setting no server knows makes no index and changes none.
async fn refuse_unknown(core: &Core, uid: &str, setting: &str) -> Result<(), Failure> {
    if setting.is_empty() {
        return Ok(());
    }
    match first_answer(core, uid, &settings_path(uid, setting), |_| true).await {
        Err(Failure::Forwarded { status: 404, body }) => {
            Err(Failure::Forwarded { status: 404, body })
        }
        // Whether the index is there, and servers can be reached, is seen when it is changed.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Filterable attributes are what the gateway changes, so their form is checked here.
fn check(core: &Core, setting: &str, value: &Value) -> Result<(), Failure> {
    let list = match (setting, value) {
        ("", Value::Null) => return Ok(()),
        ("", Value::Object(fields)) => fields.get(FILTERABLE),
        ("", other) => return Err(not_an_object(other).into()),
        (FILTERABLE_SEGMENT, list) => Some(list),
        _ => None,
    };
    match list {
        None | Some(Value::Null | Value::Array(_)) => Ok(()),
        Some(other) => {
            let reserved = core.settings.reserved.filterable().join(", ");
            let shown = shorten(&other.to_string());
            let message = format!(
                "Invalid value at `.{FILTERABLE}`: expected an array, but found `{shown}` \
                 ({reserved} is added to it)"
            );
            Err(ApiError::new("invalid_settings_filterable_attributes", message).into())
        }
    }
}

/// What backends get: the client's change with the reserved fields put back.
fn requests(core: &Core, uid: &str, setting: &str, method: Method, value: &Value) -> Vec<Outbound> {
    let path = settings_path(uid, setting);
    let put_filterable = |list: &Value| {
        let list = core.catalogue.with_reserved(list);
        Outbound::json(Method::PUT, filterable_path(uid), &list)
    };
    match (setting, value) {
        (FILTERABLE_SEGMENT, list) => vec![put_filterable(list)],
        ("", Value::Object(fields)) => {
            let mut fields = fields.clone();
            if let Some(list) = fields.get_mut(FILTERABLE) {
                *list = core.catalogue.with_reserved(list);
            }
            vec![Outbound::json(method, path, &Value::Object(fields))]
        }
        ("", _) => vec![Outbound::delete(path), put_filterable(&json!([]))],
        _ if method == Method::DELETE => vec![Outbound::delete(path)],
        (_, value) => vec![Outbound::json(method, path, value)],
    }
}

/// The task's details, as Meilisearch shows them.
fn details(setting: &str, value: Value) -> Value {
    if setting.is_empty() {
        return if value.is_null() { json!({}) } else { value };
    }
    let mut words = setting.split('-');
    let mut name = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(word.len().min(1));
        name.push_str(&first.to_ascii_uppercase());
        name.push_str(rest);
    }
    Value::Object(Map::from_iter([(name, value)]))
}
