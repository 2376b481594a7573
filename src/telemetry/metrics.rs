//! `/metrics`: the data path's figures for Prometheus, in the OpenMetrics text form.
//!
//! Nothing is registered for the life of the process: each scrape takes copies of plain
//! counters and encodes them, so several nodes can live in one process (tests) and the data path
//! knows nothing of metrics. A plane adds its own by a [`Collector`] over a copy of its figures.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::dispatch::view::View;
use crate::dispatch::{Counters, Latency};

/// Counters that can fall.
const GAUGES: [&str; 5] = ["clients", "peer_links_in", "upstreams_up", "in_flight", "waiting"];

/// The figures of the data path and the ring at one moment.
#[derive(Debug)]
pub struct NodeMetrics {
    /// All workers together.
    pub counters: Counters,
    /// The snapshot in use.
    pub view: Arc<View>,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Whether the node is ready.
    pub ready: bool,
}

/// The text of a registry.
///
/// # Errors
///
/// Never for a text; the form of the library's interface.
pub fn exposition(registry: &Registry) -> Result<String, fmt::Error> {
    let mut body = String::new();
    text::encode(&mut body, registry)?;
    Ok(body)
}

impl Collector for NodeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        let help = "The build that runs";
        labelled(&mut encoder, "build_info", help, [(version, 1)])?;
        gauge(&mut encoder, "uptime_seconds", "Time since the start", self.uptime_s)?;
        gauge(&mut encoder, "ready", "1 once the node can serve", u64::from(self.ready))?;
        for (name, help, value) in self.counters.each() {
            let help = help.trim_end_matches('.');
            if GAUGES.contains(&name) {
                gauge(&mut encoder, name, help, value)?;
            } else {
                let counter = ConstCounter::new(value);
                let kind = counter.metric_type();
                counter.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
            }
        }
        latency(&mut encoder, &self.counters.latency)?;
        self.ring(&mut encoder)
    }
}

impl NodeMetrics {
    fn ring(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let topology = &self.view.topology;
        let mut peers: BTreeMap<(&str, &str, &str, &str), u64> = BTreeMap::new();
        for peer in topology.peers() {
            let reachable = if peer.reachable { "yes" } else { "no" };
            *peers.entry((peer.dc, peer.rack, peer.state.name(), reachable)).or_default() += 1;
        }
        let samples = peers.into_iter().map(|((dc, rack, state, reachable), count)| {
            let labels =
                [("datacenter", dc), ("rack", rack), ("state", state), ("reachable", reachable)];
            (labels, count)
        });
        let help = "Nodes of the ring, this one included";
        labelled(encoder, "ring_peers", help, samples)?;
        let factor = self.view.settings.timeout_factor;
        gauge(encoder, "timeout_factor", "Factor of all deadlines", factor)
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let gauge = ConstGauge::new(value as i64);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

/// A gauge with a value for each set of labels.
fn labelled<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in samples {
        ConstGauge::new(value as i64).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn latency(encoder: &mut DescriptorEncoder<'_>, latency: &Latency) -> fmt::Result {
    const MICRO: f64 = 1e-6;
    let last = latency.buckets.len() - 1;
    let bound = |i: usize| {
        if i == last { f64::INFINITY } else { (1u64 << i) as f64 * MICRO }
    };
    let buckets: Vec<(f64, u64)> =
        latency.buckets.iter().enumerate().map(|(i, &count)| (bound(i), count)).collect();
    let help = "From the last byte of a request to its reply";
    let mut family = encoder.encode_descriptor(
        "request_latency",
        help,
        Some(&Unit::Seconds),
        MetricType::Histogram,
    )?;
    let (sum, count) = (latency.sum_us as f64 * MICRO, latency.buckets.iter().sum());
    family.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}
