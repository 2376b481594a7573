//! Figures of the planes beside the data path, in a form `/metrics` takes: plain numbers with
//! a name, a help text and perhaps a label.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::gossip;
use crate::store::StoreCounters;

/// One figure, or one for each value of a label.
#[derive(Clone, Debug)]
pub struct Figure {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    label: Option<&'static str>,
    /// The label's value, empty without one, and the number.
    samples: Vec<(String, u64)>,
}

impl Figure {
    /// A number that only grows.
    pub fn counter(name: &'static str, help: &'static str, value: u64) -> Figure {
        let samples = vec![(String::new(), value)];
        Figure { name, help, kind: MetricType::Counter, label: None, samples }
    }

    /// A number that can fall.
    pub fn gauge(name: &'static str, help: &'static str, value: u64) -> Figure {
        Figure { kind: MetricType::Gauge, ..Figure::counter(name, help, value) }
    }

    /// Numbers that only grow, one for each value of `label`.
    pub fn counters(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        samples: impl IntoIterator<Item = (String, u64)>,
    ) -> Figure {
        let samples = samples.into_iter().collect();
        Figure { name, help, kind: MetricType::Counter, label: Some(label), samples }
    }

    /// Numbers that can fall, one for each value of `label`.
    pub fn gauges(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        samples: impl IntoIterator<Item = (String, u64)>,
    ) -> Figure {
        Figure { kind: MetricType::Gauge, ..Figure::counters(name, help, label, samples) }
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(self.name, self.help, None, self.kind)?;
        for (value, number) in &self.samples {
            let labels: Vec<(&str, &str)> =
                self.label.iter().map(|label| (*label, value.as_str())).collect();
            let sample = match labels.is_empty() {
                true => return self.encode_number(*number, family),
                false => family.encode_family(&labels)?,
            };
            self.encode_number(*number, sample)?;
        }
        Ok(())
    }

    fn encode_number(
        &self,
        number: u64,
        encoder: prometheus_client::encoding::MetricEncoder<'_>,
    ) -> fmt::Result {
        match self.kind {
            MetricType::Counter => ConstCounter::new(number).encode(encoder),
            _ => ConstGauge::new(number as i64).encode(encoder),
        }
    }
}

/// Figures of one moment.
#[derive(Debug)]
pub struct Figures(pub Vec<Figure>);

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|figure| figure.encode(&mut encoder))
    }
}

/// What gossip counted.
pub fn of_gossip(c: &gossip::Counters) -> Vec<Figure> {
    let counter = Figure::counter;
    vec![
        counter("gossip_rounds", "Rounds of gossip between torc nodes", c.rounds),
        counter("gossip_sent", "Gossip messages sent to torc nodes", c.sent),
        counter("gossip_sent_bytes", "Bytes of them", c.sent_bytes),
        counter("gossip_received", "Gossip messages of torc nodes that were used", c.received),
        counter("gossip_received_bytes", "Bytes of them", c.received_bytes),
        counter("gossip_refused", "Messages of another cluster, version or secret", c.refused),
        counter("gossip_malformed", "Malformed messages, records and seeds", c.malformed),
        counter("gossip_merged", "Records taken over from others", c.merged),
        counter("c_gossip_sent", "Tables sent to C nodes", c.c_sent),
        counter("c_gossip_received", "Tables received from C nodes", c.c_received),
        counter("pauses", "Times this process was stopped for more than a second", c.pauses),
    ]
}

/// What the embedded store counted.
pub fn of_store(c: &StoreCounters) -> Vec<Figure> {
    let (counter, gauge) = (Figure::counter, Figure::gauge);
    vec![
        gauge("store_keys", "Keys in the embedded store", c.keys),
        gauge("store_volatile_keys", "Keys with an expiry", c.volatile_keys),
        gauge("store_bytes", "Memory of keys and values", c.bytes),
        counter("store_hits", "Reads that found their key", c.hits),
        counter("store_misses", "Reads that did not", c.misses),
        counter("store_expired", "Keys that went because their time was over", c.expired),
        counter("store_evicted", "Keys that went because of a limit", c.evicted),
        gauge("store_tombstones", "Removed keys whose stamps are remembered", c.tombstones),
    ]
}
