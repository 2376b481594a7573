//! What every message carries besides its content: the marker, the version, who sent it.

use super::proto;

/// "KVR1" read as a number. Absent and zero are the same bytes, and both wrong.
pub const CONTRACT_MARKER: u32 = 0x4B56_5231;
/// The compatibility major of the contract; in responses only.
pub const PROTOCOL_VERSION: u32 = 1;
/// Longest label of a subscriber, in bytes.
pub const SUBSCRIBER_ID_BYTES_MAX: usize = 128;

/// A relay and one life of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RelayId {
    /// The runtime; may survive a restart of the relay in it.
    pub drt_instance_id: u64,
    /// Fresh on every start, never 0.
    pub incarnation: u64,
}

impl From<RelayId> for proto::RelayIdentity {
    fn from(id: RelayId) -> proto::RelayIdentity {
        proto::RelayIdentity {
            drt_instance_id: id.drt_instance_id,
            relay_incarnation: id.incarnation,
        }
    }
}

/// Why nothing of a response may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum EnvelopeFault {
    /// The marker is missing or another one. Not to be retried with this contract.
    #[error("contract marker {0:#010x} instead of {CONTRACT_MARKER:#010x}")]
    ContractMarker(u32),
    /// Another protocol version. Not to be retried with this contract.
    #[error("protocol version {0} instead of {PROTOCOL_VERSION}")]
    ProtocolVersion(u32),
    /// The relay does not say who it is, or calls its life 0.
    #[error("the relay's identity is missing")]
    MissingRelay,
}

impl EnvelopeFault {
    /// Fixed name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            EnvelopeFault::ContractMarker(_) => "contract_marker",
            EnvelopeFault::ProtocolVersion(_) => "protocol_version",
            EnvelopeFault::MissingRelay => "missing_relay",
        }
    }
}

/// A request that carries the marker.
pub trait Request {
    /// Its marker.
    fn marker(&self) -> u32;
    /// The subscriber's label; none where the request has none.
    fn subscriber(&self) -> Option<&str>;
}

/// A response that carries the whole envelope.
pub trait Response {
    /// Its marker.
    fn marker(&self) -> u32;
    /// Its protocol version.
    fn version(&self) -> u32;
    /// Its sender.
    fn relay(&self) -> Option<&proto::RelayIdentity>;
}

/// Why a request is refused before anything else is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RequestFault {
    /// The marker is missing or another one.
    #[error("contract marker {0:#010x} instead of {CONTRACT_MARKER:#010x}")]
    ContractMarker(u32),
    /// The label is empty, too long, or holds control characters.
    #[error(
        "subscriber_id must be 1 to {SUBSCRIBER_ID_BYTES_MAX} bytes without control characters"
    )]
    SubscriberId,
}

/// Checks a request's marker, then its label.
pub fn check_request(request: &impl Request) -> Result<(), RequestFault> {
    if request.marker() != CONTRACT_MARKER {
        return Err(RequestFault::ContractMarker(request.marker()));
    }
    match request.subscriber() {
        Some(label) if !is_subscriber_id(label) => Err(RequestFault::SubscriberId),
        Some(_) | None => Ok(()),
    }
}

/// Whether a text can be the label of a subscriber.
pub fn is_subscriber_id(label: &str) -> bool {
    !label.is_empty()
        && label.len() <= SUBSCRIBER_ID_BYTES_MAX
        && !label.chars().any(char::is_control)
}

/// Checks a response's marker, then its version, then that it names its sender.
pub fn check_response(response: &impl Response) -> Result<RelayId, EnvelopeFault> {
    if response.marker() != CONTRACT_MARKER {
        return Err(EnvelopeFault::ContractMarker(response.marker()));
    }
    if response.version() != PROTOCOL_VERSION {
        return Err(EnvelopeFault::ProtocolVersion(response.version()));
    }
    match response.relay() {
        Some(relay) if relay.relay_incarnation != 0 => Ok(RelayId {
            drt_instance_id: relay.drt_instance_id,
            incarnation: relay.relay_incarnation,
        }),
        Some(_) | None => Err(EnvelopeFault::MissingRelay),
    }
}

macro_rules! requests {
    ($($name:ident: $label:expr),+ $(,)?) => {$(
        impl Request for proto::$name {
            fn marker(&self) -> u32 {
                self.contract_marker
            }

            fn subscriber(&self) -> Option<&str> {
                let label: fn(&proto::$name) -> Option<&str> = $label;
                label(self)
            }
        }
    )+};
}
requests!(
    RelayInfoRequest: |_| None,
    WatchKvPoolCatalogRequest: |request| Some(&request.subscriber_id),
    SubscribeKvPoolRequest: |request| Some(&request.subscriber_id),
    SubscribeServingReadinessRequest: |request| Some(&request.subscriber_id),
    SubscribeKvPoolLoadRequest: |request| Some(&request.subscriber_id),
    SubscribeServingLoadRequest: |request| Some(&request.subscriber_id),
);

macro_rules! responses {
    ($($name:ident),+ $(,)?) => {$(
        impl Response for proto::$name {
            fn marker(&self) -> u32 {
                self.contract_marker
            }

            fn version(&self) -> u32 {
                self.protocol_version
            }

            fn relay(&self) -> Option<&proto::RelayIdentity> {
                self.relay.as_ref()
            }
        }
    )+};
}
responses!(
    RelayInfo,
    KvPoolCatalogUpdate,
    FilterUpdate,
    ServingReadinessUpdate,
    KvPoolLoadUpdate,
    ServingLoadUpdate,
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::vectors;

    fn info(marker: u32, version: u32) -> proto::RelayInfo {
        let relay = RelayId { drt_instance_id: 0, incarnation: 3 };
        proto::RelayInfo {
            protocol_version: version,
            relay: Some(relay.into()),
            contract_marker: marker,
        }
    }

    #[test]
    fn envelopes_match_the_vectors() {
        for row in vectors::rows("envelope") {
            let text = row["contract_marker"].as_str().unwrap().trim_start_matches("0x");
            let marker = u32::from_str_radix(text, 16).unwrap();
            let version = row["protocol_version"].as_u64().unwrap() as u32;
            let outcome = check_response(&info(marker, version));
            let fault = outcome.err().map(|fault| fault.label());
            assert_eq!(fault, row["fault"].as_str(), "{row}");
            assert_eq!(outcome.is_ok(), row["valid"].as_bool().unwrap());
        }
        let mut nameless = info(CONTRACT_MARKER, PROTOCOL_VERSION);
        nameless.relay = None;
        assert_eq!(check_response(&nameless), Err(EnvelopeFault::MissingRelay));
        nameless.relay = Some(proto::RelayIdentity { drt_instance_id: 1, relay_incarnation: 0 });
        assert_eq!(check_response(&nameless), Err(EnvelopeFault::MissingRelay));
    }

    #[test]
    fn a_request_is_refused_for_its_marker_before_its_label() {
        let mut request = proto::WatchKvPoolCatalogRequest::default();
        assert_eq!(check_request(&request), Err(RequestFault::ContractMarker(0)));
        request.contract_marker = CONTRACT_MARKER;
        assert_eq!(check_request(&request), Err(RequestFault::SubscriberId));
        let accepted = ["a", "con sumer/\u{e4}", &"x".repeat(128), " "];
        for label in accepted {
            request.subscriber_id = label.into();
            assert_eq!(check_request(&request), Ok(()), "{label:?}");
        }
        let refused = ["", &"x".repeat(129), &"\u{e4}".repeat(65), "a\nb", "a\u{7f}", "\u{85}"];
        for label in refused {
            request.subscriber_id = label.into();
            assert_eq!(check_request(&request), Err(RequestFault::SubscriberId), "{label:?}");
        }
        let info = proto::RelayInfoRequest { contract_marker: CONTRACT_MARKER };
        assert_eq!(check_request(&info), Ok(()));
    }
}
