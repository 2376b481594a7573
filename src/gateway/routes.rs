//! Paths, methods and who may use them.

use super::call::{Call, Outcome, ok};
use super::client::Outbound;
use super::core::Core;
use super::counters::count;
use super::error::{ApiError, Failure};
use super::sessions::{SESSION_HEADER, session_of};
use super::{admin, indexes, migration, reads, tasks, unserved, writes};
use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use axum::routing::{MethodFilter, MethodRouter};
use hyper::header::HeaderValue;
use serde_json::json;
use std::future::Future;
use std::sync::Arc;

/// Who may use a path.
#[derive(Clone, Copy)]
enum Gate {
    Open,
    Client,
    Admin,
}

const GET: MethodFilter = MethodFilter::GET;
const POST: MethodFilter = MethodFilter::POST;
const PUT: MethodFilter = MethodFilter::PUT;
const PATCH: MethodFilter = MethodFilter::PATCH;
const DELETE: MethodFilter = MethodFilter::DELETE;

/// All routes of a gateway.
pub(super) fn router(core: Arc<Core>) -> Router {
    Routes { core, router: Router::new() }
        .add(Gate::Open, GET, "/health", health)
        .read(GET, "/version", version)
        .read(GET, "/stats", indexes::stats)
        .read(GET, "/tasks", list_tasks)
        .read(GET, "/tasks/{uid}", get_task)
        .read(POST, "/multi-search", reads::multi_search)
        .index_routes()
        .document_routes()
        .admin_routes()
        .unserved_routes()
        .router
}

struct Routes {
    core: Arc<Core>,
    router: Router,
}

impl Routes {
    fn index_routes(self) -> Routes {
        self.read(GET, "/indexes", indexes::list)
            .client(POST, "/indexes", indexes::create)
            .read(GET, "/indexes/{uid}", indexes::get)
            .client(PATCH, "/indexes/{uid}", indexes::update)
            .client(DELETE, "/indexes/{uid}", indexes::delete)
            .read(GET, "/indexes/{uid}/stats", indexes::index_stats)
            .read(GET, "/indexes/{uid}/settings", indexes::read_settings)
            .client(PATCH, "/indexes/{uid}/settings", indexes::write_settings)
            .client(DELETE, "/indexes/{uid}/settings", indexes::write_settings)
            .read(GET, "/indexes/{uid}/settings/{name}", indexes::read_settings)
            .client(PUT, "/indexes/{uid}/settings/{name}", indexes::write_settings)
            .client(PATCH, "/indexes/{uid}/settings/{name}", indexes::write_settings)
            .client(DELETE, "/indexes/{uid}/settings/{name}", indexes::write_settings)
            .read(POST, "/indexes/{uid}/search", reads::search)
            .read(GET, "/indexes/{uid}/search", reads::search_by_query)
            .read(POST, "/indexes/{uid}/facet-search", reads::facet_search)
    }

    fn document_routes(self) -> Routes {
        self.read(GET, "/indexes/{uid}/documents", reads::list)
            .client(POST, "/indexes/{uid}/documents", writes::add)
            .client(PUT, "/indexes/{uid}/documents", writes::add)
            .client(DELETE, "/indexes/{uid}/documents", writes::delete_with_body)
            .read(POST, "/indexes/{uid}/documents/fetch", reads::list_by_body)
            .client(POST, "/indexes/{uid}/documents/delete-batch", writes::delete_batch)
            .client(POST, "/indexes/{uid}/documents/delete", writes::delete_matching)
            .read(GET, "/indexes/{uid}/documents/{id}", reads::fetch)
            .client(DELETE, "/indexes/{uid}/documents/{id}", writes::delete_one)
    }

    fn admin_routes(self) -> Routes {
        self.admin(GET, "/_miroir/aliases", admin::aliases)
            .admin(POST, "/_miroir/aliases", admin::aliases)
            .admin(GET, "/_miroir/aliases/{name}", admin::alias)
            .admin(PUT, "/_miroir/aliases/{name}", admin::alias)
            .admin(DELETE, "/_miroir/aliases/{name}", admin::alias)
            .admin(GET, "/_miroir/topology", admin::topology)
            .admin(GET, "/_miroir/shards", admin::shards)
            .admin(GET, "/_miroir/ready", admin::ready)
            .admin(GET, "/_miroir/migration", migration::status)
            .admin(POST, "/_miroir/migration", migration::start)
            .admin(DELETE, "/_miroir/migration", migration::end)
    }

    fn unserved_routes(self) -> Routes {
        unserved::PATHS.into_iter().fold(self, |routes, (methods, path, instead)| {
            routes.client(methods, path, move |_, call| refuse(call, instead))
        })
    }

    fn client<F, R>(self, method: MethodFilter, path: &str, handler: F) -> Routes
    where
        F: Fn(Arc<Core>, Call) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Outcome> + Send + 'static,
    {
        self.add(Gate::Client, method, path, handler)
    }

    /// A path that changes nothing: it is given up when its time is over.
    fn read<F, R>(self, method: MethodFilter, path: &str, handler: F) -> Routes
    where
        F: Fn(Arc<Core>, Call) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Outcome> + Send + 'static,
    {
        self.client(method, path, move |core, call| {
            let limit = core.settings.request_timeout;
            let work = tokio::time::timeout(limit, handler(core, call));
            async move { work.await.unwrap_or_else(|_| Err(too_late().into())) }
        })
    }

    fn admin<F, R>(self, method: MethodFilter, path: &str, handler: F) -> Routes
    where
        F: Fn(Arc<Core>, Call) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Outcome> + Send + 'static,
    {
        self.add(Gate::Admin, method, path, handler)
    }

    fn add<F, R>(mut self, gate: Gate, method: MethodFilter, path: &str, handler: F) -> Routes
    where
        F: Fn(Arc<Core>, Call) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Outcome> + Send + 'static,
    {
        let core = self.core.clone();
        let serve = move |request: Request| async move {
            let mut session = None;
            let outcome = async {
                let call = Call::read(request).await?;
                count(&core.counters.requests);
                admit(&core, gate, &call)?;
                session = session_of(&call);
                handler(core, call).await
            };
            let outcome = outcome.await;
            let mut response = outcome.unwrap_or_else(IntoResponse::into_response);
            if let Some(name) = session.and_then(|name| HeaderValue::from_str(&name).ok()) {
                response.headers_mut().insert(SESSION_HEADER, name);
            }
            response
        };
        self.router = self.router.route(path, MethodRouter::new().on(method, serve));
        self
    }
}

/// Checks a call's credentials before anything of it is looked at.
fn admit(core: &Core, gate: Gate, call: &Call) -> Result<(), ApiError> {
    let bearer = call.header("authorization").and_then(|header| header.strip_prefix("Bearer "));
    let refused = match gate {
        Gate::Open => None,
        Gate::Client => core.settings.master_key.as_ref().and_then(|key| match bearer {
            None => Some(ApiError::new(
                "missing_authorization_header",
                "The Authorization header is missing. It must use the bearer authorization method.",
            )),
            Some(given) if key.matches(given.trim()) => None,
            Some(_) => Some(ApiError::new("invalid_api_key", "The provided API key is invalid.")),
        }),
        Gate::Admin => {
            let own = core.settings.admin_key.as_ref().or(core.settings.master_key.as_ref());
            own.and_then(|key| {
                let given = call.header("x-admin-key").or(bearer);
                let known = given.is_some_and(|given| key.matches(given.trim()));
                let message = "this path needs the gateway's admin key";
                (!known).then(|| ApiError::new("miroir_invalid_auth", message))
            })
        }
    };
    match refused {
        None => Ok(()),
        Some(error) => {
            count(&core.counters.auth_failures);
            Err(error)
        }
    }
}

async fn refuse(call: Call, instead: &'static str) -> Outcome {
    Err(unserved::refusal(&call.method, &call.target, instead).into())
}

fn too_late() -> ApiError {
    ApiError::new("miroir_timeout", "the backends took too long to answer")
}

async fn health(_: Arc<Core>, _: Call) -> Outcome {
    Ok(ok(&json!({"status": "available"})))
}

/// From any live backend.
async fn version(core: Arc<Core>, _: Call) -> Outcome {
    for backend in core.placement().by_health() {
        if let Ok(reply) = backend.call(Outbound::get("/version")).await
            && reply.is_success()
            && let Some(version) = reply.json().filter(|body| body.get("pkgVersion").is_some())
        {
            return Ok(ok(&version));
        }
    }
    Err(Failure::from(indexes::unavailable()))
}

async fn get_task(core: Arc<Core>, call: Call) -> Outcome {
    let uid = tasks::parse_uid(call.param(0))?;
    let entry = core.tasks.load(uid).await?.ok_or_else(|| tasks::not_found(uid))?;
    Ok(ok(&core.tasks.refresh(&core.placement(), entry).await.view()))
}

async fn list_tasks(core: Arc<Core>, call: Call) -> Outcome {
    Ok(ok(&core.tasks.list(&core.placement(), &call).await?))
}
