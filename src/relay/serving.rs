//! The serving-load plane: what pools and models are doing, one window after the other.
//!
//! Gauges are optional on the wire, so that "none" and "unknown" differ: they are there exactly
//! when the view is complete.

use std::collections::HashSet;

use super::descriptor::text;
use super::envelope::{CONTRACT_MARKER, PROTOCOL_VERSION, RelayId};
use super::key::{self, ProducerKey};
use super::load::Window;
use super::topology::EntryKey;
use super::{Fault, proto};

pub use super::proto::DataStatus as Status;

/// Checks what one pool is doing. Its key is checked by the caller.
pub fn check_pool(pool: &proto::PoolServingLoad) -> Result<(), Fault> {
    let load = pool.load.as_ref().ok_or(Fault::MissingField("load"))?;
    let tokens = load.tokens.as_ref().ok_or(Fault::MissingField("tokens"))?;
    pool.deployment.as_ref().ok_or(Fault::MissingField("deployment"))?;
    if load.requests.is_some() {
        return Err(Fault::GaugePresence("requests"));
    }
    let complete = status(load.status)? == Status::Complete;
    gauge(tokens.active_prefill_tokens, complete, "active_prefill_tokens")?;
    gauge(tokens.active_decode_blocks, complete, "active_decode_blocks")?;
    let of_models = [
        (tokens.awaiting_first_token_input_tokens, "awaiting_first_token_input_tokens"),
        (tokens.inflight_input_tokens, "inflight_input_tokens"),
        (tokens.input_tokens_total, "input_tokens_total"),
        (tokens.output_tokens_total, "output_tokens_total"),
    ];
    of_models.into_iter().try_for_each(|(value, name)| gauge(value, false, name))
}

/// Checks what one model is doing. Its key is checked by the caller.
pub fn check_model(model: &proto::ModelServingLoad) -> Result<(), Fault> {
    let load = model.load.as_ref().ok_or(Fault::MissingField("load"))?;
    let requests = load.requests.as_ref().ok_or(Fault::MissingField("requests"))?;
    let tokens = load.tokens.as_ref().ok_or(Fault::MissingField("tokens"))?;
    let deployment = model.deployment.as_ref().ok_or(Fault::MissingField("deployment"))?;
    let complete = status(load.status)? == Status::Complete;
    let gauges = [
        (requests.requests_awaiting_first_token, complete, "requests_awaiting_first_token"),
        (requests.requests_generating, complete, "requests_generating"),
        (tokens.awaiting_first_token_input_tokens, complete, "awaiting_first_token_input_tokens"),
        (tokens.inflight_input_tokens, complete, "inflight_input_tokens"),
        (tokens.input_tokens_total, true, "input_tokens_total"),
        (tokens.output_tokens_total, true, "output_tokens_total"),
        (tokens.active_prefill_tokens, false, "active_prefill_tokens"),
        (tokens.active_decode_blocks, false, "active_decode_blocks"),
    ];
    gauges.into_iter().try_for_each(|(value, wanted, name)| gauge(value, wanted, name))?;
    let mut seen = HashSet::new();
    for pool in &deployment.serving_pools {
        if !seen.insert(key::pool_id(pool)?) {
            return Err(Fault::DuplicateServingPool);
        }
    }
    Ok(())
}

/// The key of a model's entry.
pub fn model_key(model: &proto::ModelServingLoad) -> Result<EntryKey, Fault> {
    Ok(EntryKey {
        namespace: text(&model.namespace, "namespace")?,
        model: text(&model.canonical_model_id, "canonical_model_id")?,
    })
}

/// The entry of a pool about whose requests nothing is known: every live pool is listed.
pub fn unknown_pool(key: &ProducerKey) -> proto::PoolServingLoad {
    proto::PoolServingLoad {
        producer: Some(key.into()),
        load: Some(proto::LoadView {
            requests: None,
            tokens: Some(proto::TokenLoadStats::default()),
            status: Status::Unavailable as i32,
            source_observed_ms: 0,
        }),
        deployment: Some(proto::PoolDeploymentStatus::default()),
    }
}

/// The message of one window. A ring of keys has no requests of models, so it lists its pools
/// alone.
pub fn message(
    relay: RelayId,
    window: &Window,
    pools: impl IntoIterator<Item = proto::PoolServingLoad>,
) -> proto::ServingLoadUpdate {
    proto::ServingLoadUpdate {
        protocol_version: PROTOCOL_VERSION,
        relay: Some(relay.into()),
        window_sequence: window.sequence,
        observed_ms: window.observed_ms,
        window_ms: window.window_ms,
        pools: pools.into_iter().collect(),
        models: Vec::new(),
        contract_marker: CONTRACT_MARKER,
    }
}

fn status(number: i32) -> Result<Status, Fault> {
    match Status::try_from(number) {
        Ok(Status::Unspecified) | Err(_) => Err(Fault::DataStatus(number)),
        Ok(status) => Ok(status),
    }
}

fn gauge(value: Option<u64>, wanted: bool, name: &'static str) -> Result<(), Fault> {
    if value.is_some() == wanted { Ok(()) } else { Err(Fault::GaugePresence(name)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::vectors;

    #[test]
    fn recorded_entries_are_right() {
        let update: proto::ServingLoadUpdate = vectors::message("serving_load_pool_complete");
        assert_eq!(check_pool(&update.pools[0]), Ok(()));
        let update: proto::ServingLoadUpdate =
            vectors::message("serving_load_pool_unavailable_model_degraded");
        assert_eq!(check_pool(&update.pools[0]), Ok(()));
        assert_eq!(check_model(&update.models[0]), Ok(()));
        let key = ProducerKey::try_from(update.pools[0].producer.as_ref().unwrap()).unwrap();
        assert_eq!(unknown_pool(&key), update.pools[0]);
    }

    #[test]
    fn each_presence_is_checked() {
        let update: proto::ServingLoadUpdate = vectors::message("serving_load_pool_complete");
        let pool = update.pools[0].clone();
        let broken = |change: &dyn Fn(&mut proto::LoadView)| {
            let mut pool = pool.clone();
            change(pool.load.as_mut().unwrap());
            check_pool(&pool).unwrap_err()
        };
        let requests = broken(&|load| load.requests = Some(Default::default()));
        assert_eq!(requests, Fault::GaugePresence("requests"));
        let gone = broken(&|load| load.tokens = Some(Default::default()));
        assert_eq!(gone, Fault::GaugePresence("active_prefill_tokens"));
        assert!(!broken(&|load| load.status = 0).is_unsupported());
        assert!(broken(&|load| load.status = 9).is_unsupported());
        let degraded = broken(&|load| load.status = 2);
        assert_eq!(degraded, Fault::GaugePresence("active_prefill_tokens"));
        let extra = broken(&|load| load.tokens.as_mut().unwrap().input_tokens_total = Some(0));
        assert_eq!(extra, Fault::GaugePresence("input_tokens_total"));

        let update: proto::ServingLoadUpdate =
            vectors::message("serving_load_pool_unavailable_model_degraded");
        let mut model = update.models[0].clone();
        let pools = &mut model.deployment.as_mut().unwrap().serving_pools;
        let pool = pools[0].clone();
        pools.push(pool);
        assert_eq!(check_model(&model), Err(Fault::DuplicateServingPool));
        model.load.as_mut().unwrap().status = 1;
        let missing = Fault::GaugePresence("requests_awaiting_first_token");
        assert_eq!(check_model(&model), Err(missing));
        model.namespace = " ns".into();
        assert_eq!(model_key(&model), Err(Fault::InvalidText("namespace")));
    }
}
