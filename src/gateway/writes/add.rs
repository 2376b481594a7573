//! `POST` and `PUT documents`.

use super::{Plan, already_done, execute, jobs, once};
use crate::document::batch::{Batch, Documents};
use crate::document::error::DocumentError;
use crate::document::primary_key::resolve;
use crate::gateway::body::off_reactor;
use crate::gateway::call::{Call, Outcome, encode_segment};
use crate::gateway::catalogue::IndexInfo;
use crate::gateway::client::{OutBody, Outbound, index_path};
use crate::gateway::core::Core;
use crate::gateway::counters::count_many;
use crate::gateway::error::{ApiError, Failure};
use crate::gateway::fanout::Unsettled;
use crate::gateway::idempotency::Written;
use crate::gateway::indexes::ensure_index;
use crate::gateway::sessions::session_of;
use crate::gateway::tasks::{Details, TaskKind};
use hyper::Method;
use std::sync::Arc;

const PARAMETERS: [&str; 4] = ["primaryKey", "csvDelimiter", "customMetadata", "skipCreation"];

/// What a request says beside its documents.
struct Request {
    name: String,
    method: Method,
    primary_key: Option<String>,
    metadata: Option<String>,
    skip_creation: Option<String>,
    session: Option<String>,
}

/// Adds, replaces or (with `PUT`) merges documents.
pub(in crate::gateway) async fn add(core: Arc<Core>, mut call: Call) -> Outcome {
    let request = Request {
        name: call.uid()?,
        method: call.method.clone(),
        primary_key: call.parameter("primaryKey").map(str::to_owned),
        metadata: call.parameter("customMetadata").map(str::to_owned),
        skip_creation: call.parameter("skipCreation").map(str::to_owned),
        session: session_of(&call),
    };
    call.only_parameters(&PARAMETERS)?;
    let format = call.document_format()?;
    if let Some(other) = &request.skip_creation
        && !matches!(other.as_str(), "true" | "false")
    {
        let message = format!("Invalid value in parameter `skipCreation`: `{other}`");
        return Err(ApiError::new("bad_request", message).into());
    }
    let body = core.bodies.read(&mut call).await?;
    let raw = body.raw.clone();
    let shared = core.clone();
    let name = request.name.clone();
    once(&core, &call, &name, &raw, async move {
        let bytes_max = shared.settings.body_bytes_max;
        let text = body.text.clone();
        let parsed =
            off_reactor(text.len(), move || Documents::parse(format, text, bytes_max)).await?;
        let written = write(&shared, request, parsed?).await;
        drop(body);
        written
    })
    .await
}

async fn write(
    core: &Arc<Core>,
    request: Request,
    documents: Documents,
) -> Result<Written, Failure> {
    let uid = core.aliases.resolve(&request.name).await?.writable(&request.name)?;
    let placement = core.placement();
    let info = core.catalogue.find(&placement, &uid).await?;
    let own_key = info.as_ref().and_then(|info| info.primary_key.as_deref());
    let requested = request.primary_key.as_deref();
    let key = resolve(own_key, requested, |name| documents.first_has(name))?;
    count_many(&core.counters.documents_received, documents.len() as u64);
    let plan = Plan {
        uid: uid.clone(),
        kind: TaskKind::DocumentAdditionOrUpdate,
        details: Details { received: Some(documents.len() as u64), ..Details::default() },
        metadata: request.metadata.clone(),
        session: request.session.clone(),
        touched: Default::default(),
    };
    if documents.is_empty() {
        return already_done(core, plan).await;
    }
    let batch = Arc::new(route(core, documents, key.clone()).await??);
    if info.is_none() {
        // An alias made elsewhere a moment ago must not become an index.
        let again = core.aliases.resolve_again(&uid).await?.writable(&uid)?;
        if again != uid {
            let message = format!("`{uid}` became an alias just now; send the request again");
            return Err(ApiError::new("miroir_state_unavailable", message).into());
        }
        ensure_index(core, &placement, &uid, Some(&key)).await?;
    } else if info == Some(IndexInfo { primary_key: None }) {
        core.catalogue.settle_primary_key(&uid, &key);
    }
    let plan = Plan { touched: batch.touched(), ..plan };
    let path = documents_path(&uid, &key, &request);
    let targets = placement.targets(&plan.touched);
    let jobs = jobs(targets, Some(Some(key)), |target| {
        let payload = batch.payload(target.shards.clone());
        let body = OutBody::Documents(Box::new(payload));
        vec![Outbound { method: request.method.clone(), path: path.clone(), body }]
    });
    let tracked = core.clone();
    let (index, ids) = (uid.clone(), batch.clone());
    let note = move || tracked.note_written(&index, ids.ids());
    let sent = execute(core, &placement, plan, jobs, note).await;
    let (written, sent) = sent.map_err(Unsettled::into_failure)?;
    core.note_missed_documents(&placement, &uid, &sent, Some(batch.ids())).await;
    Ok(written)
}

/// Judges and routes on a blocking thread when there is much to judge.
async fn route(
    core: &Core,
    documents: Documents,
    key: String,
) -> Result<Result<Batch, DocumentError>, ApiError> {
    let (reserved, shards) = (core.settings.reserved, core.settings.shards);
    let now_ms = core.clock.now_us() / 1_000;
    off_reactor(documents.text_bytes(), move || {
        Batch::route(documents, &key, &reserved, shards, now_ms)
    })
    .await
}

/// Where the documents go, with the client's own parameters and the settled primary key.
fn documents_path(uid: &str, key: &str, request: &Request) -> String {
    let mut path = format!("{}/documents?primaryKey={}", index_path(uid), encode_segment(key));
    let passed = [("customMetadata", &request.metadata), ("skipCreation", &request.skip_creation)];
    for (name, value) in passed {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", encode_segment(value)));
        }
    }
    path
}
