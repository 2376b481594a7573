//! The HTTP face of the built-in server.

use super::engine::{Action, Engine};
use super::filter::Filter;
use super::index::Index;
use super::ingest;
use super::search::{facet_search, filtered, project, search};
use super::settings;
use crate::document::primary_key::canonical_delete_id;
use crate::gateway::call::{
    Call, Outcome, accepted, is_valid_uid, kind_of, not_an_object, ok, parse_json, uid_message,
};
use crate::gateway::error::{ApiError, Failure, document_not_found, index_not_found};
use crate::gateway::time::timestamp;
use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::Method;
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Largest request body.
const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The version this server's answers follow.
const VERSION: &str = "1.50.0";

/// One server: its engine, its key, and the bell of its task queue.
#[derive(Clone)]
struct Server {
    engine: Arc<Mutex<Engine>>,
    bell: Arc<Notify>,
    master_key: Option<Arc<str>>,
}

impl Server {
    fn with<T>(&self, work: impl FnOnce(&mut Engine) -> T) -> T {
        work(&mut self.engine.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn index<T>(
        &self,
        uid: &str,
        work: impl FnOnce(&Index, &Engine) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        self.with(|engine| {
            let index = engine.indexes.get(uid).ok_or_else(|| index_not_found(uid))?;
            work(index, engine)
        })
    }

    fn enqueue(&self, call: &Call, uid: &str, action: Action, details: Value) -> Outcome {
        let metadata = call.parameter("customMetadata").map(str::to_owned);
        let summary = self.with(|engine| engine.enqueue(uid, action, details, metadata));
        self.bell.notify_one();
        Ok(accepted(&summary))
    }
}

/// The routes of a server over `engine`. `bell` is rung for every new task; whoever owns the
/// engine runs the queue then. With a master key, everything but `/health` asks for it.
pub fn router(engine: Arc<Mutex<Engine>>, bell: Arc<Notify>, master_key: Option<&str>) -> Router {
    let server = Server { engine, bell, master_key: master_key.map(Arc::from) };
    let on = |method: Method, handler: Handler| route(&server, method, handler);
    Router::new()
        .route("/health", on(Method::GET, |_, _, _| Ok(ok(&json!({"status": "available"})))))
        .route("/version", on(Method::GET, |_, _, _| Ok(ok(&version()))))
        .route("/indexes", on(Method::GET, list_indexes).merge(on(Method::POST, create_index)))
        .route(
            "/indexes/{uid}",
            on(Method::GET, get_index)
                .merge(on(Method::PATCH, update_index))
                .merge(on(Method::DELETE, drop_index)),
        )
        .route("/stats", on(Method::GET, all_stats))
        .route("/indexes/{uid}/stats", on(Method::GET, stats))
        .route("/indexes/{uid}/search", on(Method::POST, post_search))
        .route("/indexes/{uid}/facet-search", on(Method::POST, post_facet_search))
        .route(
            "/indexes/{uid}/settings",
            on(Method::GET, get_settings)
                .merge(on(Method::PATCH, change_settings))
                .merge(on(Method::DELETE, reset_settings)),
        )
        .route(
            "/indexes/{uid}/settings/{name}",
            on(Method::GET, get_setting)
                .merge(on(Method::PUT, set_setting))
                .merge(on(Method::PATCH, set_setting))
                .merge(on(Method::DELETE, reset_setting)),
        )
        .route(
            "/indexes/{uid}/documents",
            on(Method::GET, list_documents)
                .merge(on(Method::POST, add))
                .merge(on(Method::PUT, add))
                .merge(on(Method::DELETE, clear)),
        )
        .route("/indexes/{uid}/documents/fetch", on(Method::POST, fetch))
        .route("/indexes/{uid}/documents/delete-batch", on(Method::POST, delete_batch))
        .route("/indexes/{uid}/documents/delete", on(Method::POST, delete_matching))
        .route(
            "/indexes/{uid}/documents/{id}",
            on(Method::GET, get_document).merge(on(Method::DELETE, delete_document)),
        )
        .route("/tasks", on(Method::GET, list_tasks))
        .route("/tasks/{uid}", on(Method::GET, get_task))
}

type Handler = fn(&Server, &Call, Bytes) -> Outcome;

fn route(server: &Server, method: Method, handler: Handler) -> MethodRouter {
    let server = server.clone();
    let serve = move |request: Request| async move {
        let outcome = answer(&server, request, handler).await;
        outcome.unwrap_or_else(IntoResponse::into_response)
    };
    match method {
        Method::GET => get(serve),
        Method::POST => post(serve),
        Method::PUT => axum::routing::put(serve),
        Method::PATCH => axum::routing::patch(serve),
        _ => delete(serve),
    }
}

async fn answer(server: &Server, request: Request, handler: Handler) -> Result<Response, Failure> {
    let mut call = Call::read(request).await?;
    if call.target != "/health" {
        authorize(server, &call)?;
    }
    let body = Limited::new(call.take_body(), BODY_BYTES_MAX).collect().await;
    let body = body.map_err(|e| ApiError::new("payload_too_large", e.to_string()))?.to_bytes();
    handler(server, &call, body)
}

fn authorize(server: &Server, call: &Call) -> Result<(), ApiError> {
    let Some(key) = &server.master_key else { return Ok(()) };
    let Some(given) = call.header("authorization").and_then(|h| h.strip_prefix("Bearer ")) else {
        let message = "The Authorization header is missing. It must use the bearer authorization \
                       method.";
        return Err(ApiError::new("missing_authorization_header", message));
    };
    if given != key.as_ref() {
        return Err(ApiError::new("invalid_api_key", "The provided API key is invalid."));
    }
    Ok(())
}

fn version() -> Value {
    json!({"commitSha": "built-in", "commitDate": "built-in", "pkgVersion": VERSION})
}

fn index_view(uid: &str, index: &Index) -> Value {
    json!({"uid": uid, "createdAt": timestamp(index.created_us),
        "updatedAt": timestamp(index.updated_us), "primaryKey": index.primary_key})
}

fn list_indexes(server: &Server, call: &Call, _: Bytes) -> Outcome {
    let offset = call.number("offset", "bad_request")?.unwrap_or(0) as usize;
    let limit = call.number("limit", "bad_request")?.unwrap_or(20) as usize;
    Ok(ok(&server.with(|engine| {
        let all = engine.indexes.iter();
        let page: Vec<_> =
            all.skip(offset).take(limit).map(|(uid, index)| index_view(uid, index)).collect();
        json!({"results": page, "offset": offset, "limit": limit,
            "total": engine.indexes.len()})
    })))
}

fn create_index(server: &Server, call: &Call, body: Bytes) -> Outcome {
    let body = parse_json(&body)?;
    let uid = body.get("uid").and_then(Value::as_str);
    let uid = uid.ok_or_else(|| ApiError::new("missing_index_uid", "Missing field `uid`"))?;
    if !is_valid_uid(uid) {
        let message = format!("Invalid value at `.uid`: {}", uid_message(uid));
        return Err(ApiError::new("invalid_index_uid", message).into());
    }
    let key = body.get("primaryKey").and_then(Value::as_str).map(str::to_owned);
    let details = json!({"primaryKey": key});
    server.enqueue(call, uid, Action::Create(key), details)
}

fn get_index(server: &Server, call: &Call, _: Bytes) -> Outcome {
    let uid = call.uid()?;
    Ok(ok(&server.index(&uid, |index, _| Ok(index_view(&uid, index)))?))
}

fn update_index(server: &Server, call: &Call, body: Bytes) -> Outcome {
    let body = parse_json(&body)?;
    let key = body.get("primaryKey").and_then(Value::as_str).map(str::to_owned);
    let details = json!({"primaryKey": key});
    server.enqueue(call, &call.uid()?, Action::Update(key), details)
}

fn drop_index(server: &Server, call: &Call, _: Bytes) -> Outcome {
    server.enqueue(call, &call.uid()?, Action::Drop, json!({"deletedDocuments": null}))
}

fn stats(server: &Server, call: &Call, _: Bytes) -> Outcome {
    Ok(ok(&server.index(&call.uid()?, |index, _| Ok(index_stats(index)))?))
}

fn index_stats(index: &Index) -> Value {
    json!({"numberOfDocuments": index.len(), "rawDocumentDbSize": 0, "avgDocumentSize": 0,
        "isIndexing": false, "numberOfEmbeddings": 0, "numberOfEmbeddedDocuments": 0,
        "fieldDistribution": index.field_distribution()})
}

fn all_stats(server: &Server, _: &Call, _: Bytes) -> Outcome {
    let indexes: Map<String, Value> = server.with(|engine| {
        let indexes = engine.indexes.iter();
        indexes.map(|(uid, index)| (uid.clone(), index_stats(index))).collect()
    });
    Ok(ok(&json!({"databaseSize": 0, "usedDatabaseSize": 0, "lastUpdate": null,
        "indexes": indexes})))
}

fn post_search(server: &Server, call: &Call, body: Bytes) -> Outcome {
    let uid = call.uid()?;
    let body = if body.is_empty() { json!({}) } else { parse_json(&body)? };
    let Value::Object(body) = body else { return Err(not_an_object(&body).into()) };
    let found = server.index(&uid, |index, engine| search(&uid, index, &body, engine.matcher))?;
    Ok(ok(&found))
}

fn post_facet_search(server: &Server, call: &Call, body: Bytes) -> Outcome {
    let uid = call.uid()?;
    let body = parse_json(&body)?;
    let Value::Object(body) = body else { return Err(not_an_object(&body).into()) };
    Ok(ok(&server.index(&uid, |index, _| facet_search(&uid, index, &body))?))
}

fn get_settings(server: &Server, call: &Call, _: Bytes) -> Outcome {
    let all = server.index(&call.uid()?, |index, _| Ok(index.settings.clone()))?;
    Ok(ok(&Value::Object(all)))
}

fn change_settings(server: &Server, call: &Call, body: Bytes) -> Outcome {
    match parse_json(&body)? {
        Value::Object(change) => {
            let unknown = change.keys().find(|name| !settings::defaults().contains_key(*name));
            if let Some(name) = unknown {
                return Err(ApiError::new("bad_request", format!("Unknown field `{name}`")).into());
            }
            let details = Value::Object(change.clone());
            server.enqueue(call, &call.uid()?, Action::Settings(change), details)
        }
        other => Err(not_an_object(&other).into()),
    }
}

fn reset_settings(server: &Server, call: &Call, _: Bytes) -> Outcome {
    let details = Value::Object(settings::defaults());
    server.enqueue(call, &call.uid()?, Action::Settings(settings::defaults()), details)
}

/// A setting that does not exist is a path that does not: 404 with an empty body.
fn setting_name(call: &Call) -> Result<String, Failure> {
    let unknown = || Failure::Forwarded { status: 404, body: Bytes::new() };
    settings::name_of(call.param(1)).ok_or_else(unknown)
}

fn get_setting(server: &Server, call: &Call, _: Bytes) -> Outcome {
    let name = setting_name(call)?;
    let value = server.index(&call.uid()?, |index, _| Ok(index.settings.get(&name).cloned()))?;
    Ok(ok(&value.unwrap_or(Value::Null)))
}

fn set_setting(server: &Server, call: &Call, body: Bytes) -> Outcome {
    let change = Map::from_iter([(setting_name(call)?, parse_json(&body)?)]);
    let details = Value::Object(change.clone());
    server.enqueue(call, &call.uid()?, Action::Settings(change), details)
}

fn reset_setting(server: &Server, call: &Call, _: Bytes) -> Outcome {
    let change = Map::from_iter([(setting_name(call)?, Value::Null)]);
    let details = Value::Object(change.clone());
    server.enqueue(call, &call.uid()?, Action::Settings(change), details)
}

fn add(server: &Server, call: &Call, body: Bytes) -> Outcome {
    call.only_parameters(&["primaryKey", "csvDelimiter", "customMetadata", "skipCreation"])?;
    let documents = ingest::documents(call.document_format()?, &body)?;
    let details = json!({"receivedDocuments": documents.len(), "indexedDocuments": null});
    let primary_key = call.parameter("primaryKey").map(str::to_owned);
    let action = Action::Add { documents, primary_key, merge: call.method == Method::PUT };
    server.enqueue(call, &call.uid()?, action, details)
}

/// Meilisearch ignores the body of this request and clears the index; so does this server.
fn clear(server: &Server, call: &Call, _: Bytes) -> Outcome {
    server.enqueue(call, &call.uid()?, Action::Clear, json!({"deletedDocuments": null}))
}

fn deletion(provided: usize, filter: Option<String>) -> Value {
    json!({"providedIds": provided, "deletedDocuments": null, "originalFilter": filter})
}

fn delete_document(server: &Server, call: &Call, _: Bytes) -> Outcome {
    let action = Action::DeleteIds(vec![call.param(1).to_owned()]);
    server.enqueue(call, &call.uid()?, action, deletion(1, None))
}

fn delete_batch(server: &Server, call: &Call, body: Bytes) -> Outcome {
    let Value::Array(ids) = parse_json(&body)? else {
        let message =
            "Json deserialize error: invalid type: map, expected a sequence at line 1 column 0";
        return Err(ApiError::new("bad_request", message).into());
    };
    let ids: Vec<String> = ids
        .iter()
        .filter_map(|id| canonical_delete_id(&id.to_string()).map(|id| id.into_owned()))
        .collect();
    let details = deletion(ids.len(), None);
    server.enqueue(call, &call.uid()?, Action::DeleteIds(ids), details)
}

fn delete_matching(server: &Server, call: &Call, body: Bytes) -> Outcome {
    let body = parse_json(&body)?;
    let Value::Object(fields) = &body else {
        let message = format!(
            "Invalid value type: expected an object, but found {}: `{body}`",
            kind_of(&body)
        );
        return Err(ApiError::new("bad_request", message).into());
    };
    let Some(filter) = fields.get("filter") else {
        return Err(ApiError::new("missing_document_filter", "Missing field `filter`").into());
    };
    let parsed = Filter::parse(filter).map_err(|e| ApiError::new("invalid_document_filter", e))?;
    let details = deletion(0, Some(filter.to_string()));
    server.enqueue(call, &call.uid()?, Action::DeleteMatching(parsed), details)
}

fn get_document(server: &Server, call: &Call, _: Bytes) -> Outcome {
    call.only_parameters(&["fields", "retrieveVectors"])?;
    let fields = call.parameter("fields").map(names);
    let id = call.param(1);
    let document = server.index(&call.uid()?, |index, _| {
        let document = index.get(id).ok_or_else(|| document_not_found(id))?;
        Ok(project(document, fields.as_deref()))
    })?;
    Ok(ok(&document))
}

fn names(list: &str) -> Vec<String> {
    list.split(',').map(|name| name.trim().to_owned()).collect()
}

fn list_documents(server: &Server, call: &Call, _: Bytes) -> Outcome {
    call.only_parameters(&[
        "offset",
        "limit",
        "fields",
        "retrieveVectors",
        "filter",
        "ids",
        "sort",
    ])?;
    let mut body = Map::new();
    body.insert("offset".into(), json!(call.number("offset", "invalid_document_offset")?));
    body.insert("limit".into(), json!(call.number("limit", "invalid_document_limit")?));
    body.insert("fields".into(), json!(call.parameter("fields").map(names)));
    body.insert("ids".into(), json!(call.parameter("ids").map(names)));
    body.insert("filter".into(), json!(call.parameter("filter")));
    browse(server, &call.uid()?, &body)
}

fn fetch(server: &Server, call: &Call, body: Bytes) -> Outcome {
    match parse_json(&body)? {
        Value::Object(body) => browse(server, &call.uid()?, &body),
        other => Err(not_an_object(&other).into()),
    }
}

fn browse(server: &Server, uid: &str, body: &Map<String, Value>) -> Outcome {
    let number = |name: &str| body.get(name).and_then(Value::as_u64).map(|n| n as usize);
    let offset = number("offset").unwrap_or(0);
    let limit = number("limit").unwrap_or(20);
    let list = |name: &str| body.get(name).and_then(Value::as_array);
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let fields: Option<Vec<String>> = list("fields").map(|list| list.iter().map(text).collect());
    let ids: Option<Vec<String>> = list("ids").map(|list| list.iter().map(text).collect());
    let page = server.index(uid, |index, _| {
        let filter = body.get("filter");
        let mut found = filtered(uid, index, filter, "invalid_document_filter", false)?;
        if let Some(ids) = &ids {
            let wanted: Vec<_> = ids.iter().filter_map(|id| index.get(id)).collect();
            found.retain(|document| wanted.iter().any(|other| std::ptr::eq(*other, *document)));
        }
        let total = found.len();
        let page: Vec<Value> = found
            .into_iter()
            .skip(offset)
            .take(limit)
            .map(|document| project(document, fields.as_deref()))
            .collect();
        Ok(json!({"results": page, "offset": offset, "limit": limit, "total": total}))
    })?;
    Ok(ok(&page))
}

fn get_task(server: &Server, call: &Call, _: Bytes) -> Outcome {
    let text = call.param(0);
    let uid: u64 = text.parse().map_err(|_| {
        let message =
            format!("Task uid `{text}` is invalid. It should only contain numeric characters.");
        ApiError::new("invalid_task_uids", message)
    })?;
    let view = server.with(|engine| engine.task(uid).map(|task| task.view()));
    let missing = || ApiError::new("task_not_found", format!("Task `{uid}` not found."));
    Ok(ok(&view.ok_or_else(missing)?))
}

fn list_tasks(server: &Server, call: &Call, _: Bytes) -> Outcome {
    let limit = call.number("limit", "invalid_task_limit")?.unwrap_or(20) as usize;
    let from = call.number("from", "invalid_task_from")?;
    let among = |name: &str, value: &str| {
        call.parameter(name).is_none_or(|list| names(list).iter().any(|name| name == value))
    };
    let page = server.with(|engine| {
        let matching: Vec<(u64, Value)> = engine
            .tasks()
            .filter(|(_, task)| among("indexUids", task.index_uid()))
            .filter(|(_, task)| among("statuses", task.status.as_str()))
            .filter(|(_, task)| among("types", task.kind))
            .filter(|(uid, _)| from.is_none_or(|from| *uid <= from))
            .map(|(uid, task)| (uid, task.view()))
            .collect();
        let next = matching.get(limit).map(|(uid, _)| *uid);
        let page: Vec<&Value> = matching.iter().take(limit).map(|(_, view)| view).collect();
        json!({"results": page, "total": matching.len(), "limit": limit,
            "from": matching.first().map(|(uid, _)| *uid), "next": next})
    });
    Ok(ok(&page))
}
