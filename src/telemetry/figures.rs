//! Figures of the planes beside the data path, in a form `/metrics` takes: plain numbers with
//! a name, a help text and perhaps a label.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::affinity::Affinity;
use crate::affinity::domain::{Domain, ProducerReport};
use crate::affinity::lanes::{Lane, LaneNote};
use crate::affinity::mesh::PlaneReport;
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

/// What the affinity plane did, and the state of its lanes.
pub fn of_affinity(report: &PlaneReport, affinity: &Affinity, now_ms: u64) -> Vec<Figure> {
    let mesh = report.mesh;
    let of_state = |figure: &dyn Fn(&ProducerReport) -> u64| -> Vec<(String, u64)> {
        let domains = affinity.domains();
        let held = domains.filter_map(|domain| {
            domain.producer_report().map(|report| (domain.name().to_owned(), figure(&report)))
        });
        held.collect()
    };
    let domain = "domain";
    let mended = vec![
        ("missed".to_owned(), report.following.mended_missed),
        ("gone".to_owned(), report.following.mended_gone),
    ];
    let mut figures = vec![
        Figure::gauge("affinity_keys_held", "Keys this node tells of", report.held),
        Figure::gauge(
            "affinity_keys_known",
            "1 while this node knows what its store holds",
            u64::from(report.sure),
        ),
        Figure::counter(
            "affinity_relistings",
            "Times its store had to be listed",
            report.following.relistings,
        ),
        Figure::counter(
            "affinity_rescans",
            "Times it was listed while all was well",
            report.following.rescans,
        ),
        Figure::counters("affinity_mended", "Keys a rescan found missed or gone", "what", mended),
        Figure::counter("affinity_messages_sent", "Messages about filters sent", mesh.sent),
        Figure::counter("affinity_bytes_sent", "Bytes of them", mesh.sent_bytes),
        Figure::counter("affinity_messages_received", "The same, received", mesh.received),
        Figure::counter("affinity_bytes_received", "Bytes of them", mesh.received_bytes),
        Figure::counter("affinity_refused", "Messages of another cluster", mesh.refused),
        Figure::counter("affinity_malformed", "Messages that made no sense", mesh.malformed),
        Figure::counter("affinity_dropped", "Messages dropped, link full", report.dropped),
        Figure::counter("affinity_takeovers", "Generations begun here", mesh.takeovers),
        Figure::gauges(
            "affinity_state_keys",
            "Distinct keys or blocks in the exact state kept here",
            domain,
            of_state(&|report| report.sizes.unique_hashes as u64),
        ),
        Figure::counters(
            "affinity_omissions",
            "Keys or blocks left out of a full filter",
            domain,
            of_state(&|report| report.counters.capacity_omissions),
        ),
    ];
    figures.extend(of_lanes(affinity, now_ms));
    figures
}

/// The state of all lanes; labels are `domain/datacenter`.
fn of_lanes(affinity: &Affinity, now_ms: u64) -> Vec<Figure> {
    // A lane that was never heard has no age, one without a filter no load.
    let known = |figure: &dyn Fn(&Domain, u8, &Lane) -> Option<u64>| -> Vec<(String, u64)> {
        let domains = affinity.domains();
        let of_domain = |domain: &Arc<Domain>| {
            let figure = |(number, lane): (u8, &Lane)| {
                let label = format!("{}/{}", domain.name(), lane.dc);
                figure(domain, number, lane).map(|value| (label, value))
            };
            domain.lanes().iter().filter_map(figure).collect::<Vec<_>>()
        };
        domains.flat_map(of_domain).collect()
    };
    let noted = |figure: &dyn Fn(LaneNote) -> u64| known(&|_, _, lane| Some(figure(lane.note())));
    let believed = known(&|domain, number, _| {
        let all = domain.lanes().believed(domain.ready_lanes(), now_ms);
        Some(u64::from(all >> number & 1))
    });
    let age = known(&|_, _, lane| lane.age_ms(now_ms));
    let load = known(&|domain, number, _| Some((domain.lane_load(number)? * 100.0) as u64));
    let (sequence, gaps) = (noted(&|note| note.sequence), noted(&|note| note.gaps));
    let snapshots = noted(&|note| note.snapshots);
    let lane = "lane";
    vec![
        Figure::gauges("affinity_lane_believed", "1 while it is used", lane, believed),
        Figure::gauges("affinity_lane_age_ms", "Since its publisher was heard", lane, age),
        Figure::gauges("affinity_lane_load_percent", "Part of its filter in use", lane, load),
        Figure::gauges("affinity_lane_sequence", "Last change it has", lane, sequence),
        Figure::counters("affinity_lane_gaps", "Times changes were missed", lane, gaps),
        Figure::counters("affinity_lane_snapshots", "Filters fetched", lane, snapshots),
    ]
}
