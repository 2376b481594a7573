//! Why a call or stream ended: the reason in the trailer, the status it travels with, and what a
//! consumer does about it.

pub use super::proto::RelayErrorReason as Reason;

/// Name of the trailing metadata that carries the reason.
pub const TRAILER: &str = "kv-relay-error-reason";

/// Numbers of gRPC status codes.
pub mod code {
    /// All went well; for a stream that still means it ended.
    pub const OK: i32 = 0;
    /// Malformed request.
    pub const INVALID_ARGUMENT: i32 = 3;
    /// Not there.
    pub const NOT_FOUND: i32 = 5;
    /// A limit.
    pub const RESOURCE_EXHAUSTED: i32 = 8;
    /// Not in this state, or not with this contract.
    pub const FAILED_PRECONDITION: i32 = 9;
    /// tonic's word for a message over the receiver's limit.
    pub const OUT_OF_RANGE: i32 = 11;
    /// No such call there.
    pub const UNIMPLEMENTED: i32 = 12;
    /// A fault of the server.
    pub const INTERNAL: i32 = 13;
    /// Not now.
    pub const UNAVAILABLE: i32 = 14;
}

/// The status a reason travels with.
pub fn code_of(reason: Reason) -> i32 {
    match reason {
        Reason::ContractMismatch
        | Reason::UnsupportedFeature
        | Reason::ProducerChanged
        | Reason::InvalidPublication => code::FAILED_PRECONDITION,
        Reason::InvalidRequest => code::INVALID_ARGUMENT,
        Reason::PoolNotFound => code::NOT_FOUND,
        Reason::ResourceLimit | Reason::SubscriberLagged | Reason::SnapshotProgressTimeout => {
            code::RESOURCE_EXHAUSTED
        }
        Reason::PublicationUnavailable => code::UNAVAILABLE,
        Reason::Internal | Reason::Unspecified => code::INTERNAL,
    }
}

/// The reason a trailer's value names. Unspecified and unknown names are none.
pub fn parse(value: &str) -> Option<Reason> {
    Reason::from_str_name(value).filter(|reason| *reason != Reason::Unspecified)
}

/// What to do when a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reaction {
    /// An upgrade or a repair is needed on one side; asking again changes nothing.
    Stop,
    /// The pool is of a kind we or they do not know: leave it alone, keep the others.
    QuarantinePool,
    /// Forget the replica and look at the catalog before anything else.
    RefreshCatalog,
    /// Forget this stream's state and open it again after a pause.
    Backoff,
    /// The relay has no such plane.
    NoSuchPlane,
    /// A message was larger than this side takes, unless it happens once only.
    LocalLimit,
}

/// What a consumer does about the end of a stream. A clean end (`OK`) is a failure too.
pub fn reaction(status: i32, reason: Option<Reason>) -> Reaction {
    match reason {
        Some(Reason::ContractMismatch | Reason::InvalidRequest) => Reaction::Stop,
        Some(Reason::UnsupportedFeature) => Reaction::QuarantinePool,
        Some(
            Reason::PoolNotFound
            | Reason::ProducerChanged
            | Reason::PublicationUnavailable
            | Reason::InvalidPublication
            | Reason::Internal,
        ) => Reaction::RefreshCatalog,
        Some(
            Reason::ResourceLimit | Reason::SubscriberLagged | Reason::SnapshotProgressTimeout,
        ) => Reaction::Backoff,
        Some(Reason::Unspecified) | None => match status {
            code::FAILED_PRECONDITION | code::NOT_FOUND => Reaction::RefreshCatalog,
            code::INVALID_ARGUMENT => Reaction::Stop,
            code::UNIMPLEMENTED => Reaction::NoSuchPlane,
            code::RESOURCE_EXHAUSTED | code::OUT_OF_RANGE => Reaction::LocalLimit,
            _ => Reaction::Backoff,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::vectors;

    #[test]
    fn trailers_match_the_vectors() {
        let mut known = 0;
        for row in vectors::rows("error_trailers") {
            let value = row["trailer_value"].as_str().unwrap();
            let Some(number) = row["reason_number"].as_i64() else {
                assert_eq!(parse(value), None, "{value}");
                continue;
            };
            known += 1;
            let reason = parse(value).unwrap();
            assert_eq!(i64::from(reason as i32), number);
            assert_eq!(i64::from(code_of(reason)), row["grpc_status"].as_i64().unwrap());
            assert_eq!(row["trailer_key"].as_str(), Some(TRAILER));
            assert_eq!(reason.as_str_name(), value);
        }
        assert_eq!(known, 11);
        assert_eq!(parse("anything"), None);
    }

    #[test]
    fn every_end_has_a_reaction() {
        use Reaction::*;
        let table = [
            (Reason::ContractMismatch, Stop),
            (Reason::InvalidRequest, Stop),
            (Reason::UnsupportedFeature, QuarantinePool),
            (Reason::PoolNotFound, RefreshCatalog),
            (Reason::ProducerChanged, RefreshCatalog),
            (Reason::ResourceLimit, Backoff),
            (Reason::SubscriberLagged, Backoff),
            (Reason::SnapshotProgressTimeout, Backoff),
            (Reason::PublicationUnavailable, RefreshCatalog),
            (Reason::InvalidPublication, RefreshCatalog),
            (Reason::Internal, RefreshCatalog),
        ];
        for (reason, expected) in table {
            assert_eq!(reaction(code_of(reason), Some(reason)), expected, "{reason:?}");
        }
        let without = [
            (code::OK, Backoff),
            (code::UNAVAILABLE, Backoff),
            (code::FAILED_PRECONDITION, RefreshCatalog),
            (code::UNIMPLEMENTED, NoSuchPlane),
            (code::RESOURCE_EXHAUSTED, LocalLimit),
            (code::OUT_OF_RANGE, LocalLimit),
        ];
        for (status, expected) in without {
            assert_eq!(reaction(status, None), expected, "{status}");
            assert_eq!(reaction(status, Some(Reason::Unspecified)), expected, "{status}");
        }
    }
}
