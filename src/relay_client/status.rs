//! How streams end, in one value: the status and its reason, or a fault found on this side.

use std::fmt;
use std::time::Duration;

use tonic::Status;

use super::connection::ConnectError;
use crate::relay::consumer::{FilterFault, PlaneFault};
use crate::relay::reason::{self, Reaction, Reason, TRAILER};

/// The reason in a status's trailer; none when there is none, or one we do not know.
pub fn relay_error_reason(status: &Status) -> Option<Reason> {
    status.metadata().get(TRAILER)?.to_str().ok().and_then(reason::parse)
}

/// Why a stream, or the connection, ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// Without an error, which is a failure too: what was told is stale.
    Clean,
    /// The relay said why.
    Status {
        /// The gRPC code.
        code: i32,
        /// The reason in the trailer.
        reason: Option<Reason>,
        /// Its words; for people only.
        text: String,
    },
    /// A message could not be taken.
    Plane(PlaneFault),
    /// A frame could not be taken.
    Filter(FilterFault),
    /// The replica did not take it.
    Replica(String),
    /// A message is larger than this side takes, again and again.
    LocalLimit(String),
    /// The state it owes, or the next part of it, did not come for so long.
    Stalled(Duration),
    /// No connection.
    Connect(String),
}

impl End {
    /// What to do about it.
    pub fn reaction(&self) -> Reaction {
        match self {
            End::Clean => reason::reaction(reason::code::OK, None),
            End::Status { code, reason, .. } => reason::reaction(*code, *reason),
            End::Plane(fault) if fault.is_final() => Reaction::Stop,
            End::Filter(FilterFault::Plane(fault)) if fault.is_final() => Reaction::Stop,
            End::LocalLimit(_) => Reaction::Stop,
            End::Plane(_)
            | End::Filter(_)
            | End::Replica(_)
            | End::Stalled(_)
            | End::Connect(_) => Reaction::Backoff,
        }
    }

    /// Whether trying again cannot help.
    pub fn is_final(&self) -> bool {
        self.reaction() == Reaction::Stop
    }

    /// Whether the whole connection is void.
    pub fn voids_connection(&self) -> bool {
        match self {
            End::Plane(fault) | End::Filter(FilterFault::Plane(fault)) => fault.voids_connection(),
            End::Status { reason, .. } => *reason == Some(Reason::ContractMismatch),
            End::Clean
            | End::Filter(_)
            | End::Replica(_)
            | End::LocalLimit(_)
            | End::Stalled(_)
            | End::Connect(_) => false,
        }
    }

    /// Fixed name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            End::Clean => "clean_end",
            End::Status { reason: Some(reason), .. } => reason.as_str_name(),
            End::Status { reason: None, .. } => "status",
            End::Plane(fault) => fault.label(),
            End::Filter(fault) => fault.label(),
            End::Replica(_) => "replica",
            End::LocalLimit(_) => "local_limit",
            End::Stalled(_) => "stalled",
            End::Connect(_) => "connect",
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Clean => f.write_str("the stream ended"),
            End::Status { reason: Some(reason), text, .. } => {
                write!(f, "{}: {text}", reason.as_str_name())
            }
            End::Status { code, reason: None, text } => write!(f, "status {code}: {text}"),
            End::Plane(fault) => fault.fmt(f),
            End::Filter(fault) => fault.fmt(f),
            End::Replica(text) | End::Connect(text) => f.write_str(text),
            End::Stalled(patience) => {
                write!(f, "nothing came for {} ms", patience.as_millis())
            }
            End::LocalLimit(text) => {
                write!(f, "a message is larger than relay.max_message_bytes here: {text}")
            }
        }
    }
}

impl From<Status> for End {
    fn from(status: Status) -> End {
        End::Status {
            code: i32::from(status.code()),
            reason: relay_error_reason(&status),
            text: status.message().to_owned(),
        }
    }
}

impl From<PlaneFault> for End {
    fn from(fault: PlaneFault) -> End {
        End::Plane(fault)
    }
}

impl From<FilterFault> for End {
    fn from(fault: FilterFault) -> End {
        End::Filter(fault)
    }
}

impl From<ConnectError> for End {
    fn from(error: ConnectError) -> End {
        match error {
            ConnectError::Refused(status) => End::from(*status),
            ConnectError::Envelope(fault) => End::Plane(fault.into()),
            ConnectError::Address(_) | ConnectError::Transport(_) => {
                End::Connect(error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::envelope::EnvelopeFault;
    use tonic::metadata::MetadataValue;
    use tonic::{Code, Status};

    fn status(code: Code, trailer: Option<&'static str>) -> Status {
        let mut status = Status::new(code, "words");
        if let Some(trailer) = trailer {
            status.metadata_mut().insert(TRAILER, MetadataValue::from_static(trailer));
        }
        status
    }

    #[test]
    fn reasons_are_read_from_the_trailer_alone() {
        let lagged = "RELAY_ERROR_REASON_SUBSCRIBER_LAGGED";
        let with = status(Code::ResourceExhausted, Some(lagged));
        assert_eq!(relay_error_reason(&with), Some(Reason::SubscriberLagged));
        let unset = status(Code::Internal, Some("RELAY_ERROR_REASON_UNSPECIFIED"));
        assert_eq!(relay_error_reason(&unset), None);
        assert_eq!(relay_error_reason(&status(Code::Internal, Some("other"))), None);
        assert_eq!(relay_error_reason(&status(Code::Internal, None)), None);
    }

    #[test]
    fn a_size_limit_of_this_side_is_told_from_the_relays() {
        let theirs = status(Code::ResourceExhausted, Some("RELAY_ERROR_REASON_RESOURCE_LIMIT"));
        assert_eq!(End::from(theirs).reaction(), Reaction::Backoff);
        let ours = status(Code::ResourceExhausted, None);
        assert_eq!(End::from(ours).reaction(), Reaction::LocalLimit);
        assert_eq!(End::from(status(Code::OutOfRange, None)).reaction(), Reaction::LocalLimit);
        assert!(End::LocalLimit(String::new()).is_final());
    }

    #[test]
    fn another_contract_is_not_tried_again() {
        let marker = End::Plane(PlaneFault::Envelope(EnvelopeFault::ContractMarker(0)));
        assert!(marker.is_final() && marker.voids_connection());
        let changed = End::Filter(FilterFault::Plane(PlaneFault::RelayChanged));
        assert!(!changed.is_final() && changed.voids_connection());
        assert!(!End::Clean.is_final() && !End::Clean.voids_connection());
    }
}
