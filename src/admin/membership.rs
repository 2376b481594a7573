//! Orders about membership. They are POST only, and only for callers on this machine: a mistake
//! here moves data, and no timeout takes it back.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};

use super::Admin;
use super::dynomite::{Node, done};
use super::reply::{self, DONE};
use super::view::{AdminView, Command};
use crate::gossip::{Addr, Slot};
use crate::net::http::Caller;

pub(super) fn routes<V: AdminView>() -> Router<Arc<Admin<V>>> {
    Router::new()
        .route("/ring/leave", post(leave::<V>))
        .route("/ring/forget/{*slot}", post(forget::<V>))
        .route("/ring/join/{address}", post(join::<V>))
}

async fn leave<V: AdminView>(State(admin): Node<V>, caller: Option<Extension<Caller>>) -> Response {
    match reply::is_here(caller) {
        true => done(&admin, Command::Leave, DONE).await,
        false => reply::not_here(),
    }
}

async fn forget<V: AdminView>(
    State(admin): Node<V>,
    Path(slot): Path<String>,
    caller: Option<Extension<Caller>>,
) -> Response {
    if !reply::is_here(caller) {
        return reply::not_here();
    }
    match Slot::parse(&slot) {
        Some(slot) => done(&admin, Command::Forget(slot), DONE).await,
        None => reply::bad_request("not a slot", "DATACENTER/RACK/FIRST-TOKEN, as in /ring"),
    }
}

async fn join<V: AdminView>(
    State(admin): Node<V>,
    Path(address): Path<String>,
    caller: Option<Extension<Caller>>,
) -> Response {
    if !reply::is_here(caller) {
        return reply::not_here();
    }
    match Addr::parse(&address) {
        Some(address) => done(&admin, Command::Join(address), DONE).await,
        None => reply::bad_request("not an address", "HOST:PORT or [IPV6]:PORT of a peer port"),
    }
}
