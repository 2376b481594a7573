//! Control messages: what torc nodes tell each other on control links.
//!
//! A control frame has one of the types 32 to 36, and its body is one RESP bulk string, so that
//! the ordinary framing finds its end. The string holds an envelope (protobuf) with the cluster's
//! name, the wire versions its sender speaks, the message itself, and its HMAC-SHA-256 when the
//! ring has a `cluster.secret`. Unknown fields are skipped, so later versions may add some.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use prost::Message;
use sha2::Sha256;

use super::{MsgType, VERSION_TORC, put_header};

/// The lowest wire version of control messages that this node speaks.
pub const WIRE_LOWEST: u32 = 1;

/// The highest wire version of control messages that this node speaks.
pub const WIRE_HIGHEST: u32 = 1;

/// Keeps the authentication code apart from every other use of the same secret.
const MAC_DOMAIN: &[u8] = b"torc-control/v1";

/// Appends a whole control frame. `data` is the extension field, see [`super::Ext`].
pub fn put_control_frame(
    out: &mut Vec<u8>,
    id: u64,
    kind: MsgType,
    same_dc: bool,
    data: &[u8],
    message: &[u8],
) {
    debug_assert!(kind.is_control());
    let mut body = Vec::new();
    put_control_body(&mut body, message);
    put_header(out, id, kind.code(), 0, VERSION_TORC, same_dc, data, body.len() as u64);
    out.extend_from_slice(&body);
}

/// Appends the body of a control frame: `message` as one bulk string.
pub fn put_control_body(out: &mut Vec<u8>, message: &[u8]) {
    let mut number = itoa::Buffer::new();
    let digits = number.format(message.len()).as_bytes();
    out.reserve(1 + digits.len() + 2 + message.len() + 2);
    out.push(b'$');
    out.extend_from_slice(digits);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(message);
    out.extend_from_slice(b"\r\n");
}

/// The message in the body of a control frame; `None` when the body is no bulk string.
pub fn control_message(body: &[u8]) -> Option<&[u8]> {
    let line = memchr::memmem::find(body, b"\r\n")?;
    let digits = body[..line].strip_prefix(b"$")?;
    let len: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let message = body.get(line + 2..)?.strip_suffix(b"\r\n")?;
    (message.len() == len).then_some(message)
}

/// Why an envelope was not opened. Nothing of the message was used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The bytes are no envelope.
    #[error("malformed control message")]
    Malformed,
    /// The sender belongs to another cluster.
    #[error("the sender belongs to cluster {0:?}")]
    Cluster(String),
    /// There is no wire version both sides speak.
    #[error("the sender speaks wire versions {lowest} to {highest}")]
    Version {
        /// The lowest version the sender speaks.
        lowest: u32,
        /// The highest version the sender speaks.
        highest: u32,
    },
    /// The ring has a secret here, and the message no authentication code.
    #[error("the message is not authenticated, but cluster.secret is set")]
    NotAuthenticated,
    /// The message is authenticated, and this node has no secret.
    #[error("the sender uses a cluster.secret, this node has none")]
    NoSecret,
    /// The authentication code is wrong.
    #[error("the message has a wrong authentication code: is cluster.secret the same everywhere?")]
    WrongCode,
}

/// Packs and checks the envelopes of one cluster. `Debug` does not show the secret.
#[derive(Clone)]
pub struct ControlSeal {
    cluster: String,
    secret: Option<Vec<u8>>,
}

impl ControlSeal {
    /// The seal of a cluster.
    pub fn new(cluster: &str, secret: Option<&[u8]>) -> ControlSeal {
        ControlSeal { cluster: cluster.to_owned(), secret: secret.map(<[u8]>::to_vec) }
    }

    /// The envelope of a message of type `kind`.
    pub fn seal(&self, kind: MsgType, message: Vec<u8>) -> Vec<u8> {
        let mac = match &self.secret {
            Some(secret) => {
                let mac = self.mac(secret, kind, &message).finalize();
                mac.into_bytes().to_vec()
            }
            None => Vec::new(),
        };
        let envelope = Envelope {
            cluster: self.cluster.clone(),
            lowest: WIRE_LOWEST,
            highest: WIRE_HIGHEST,
            message,
            mac,
        };
        envelope.encode_to_vec()
    }

    /// The message in an envelope that came in a frame of type `kind`.
    pub fn open(&self, kind: MsgType, envelope: &[u8]) -> Result<Vec<u8>, SealError> {
        let envelope = Envelope::decode(envelope).map_err(|_| SealError::Malformed)?;
        if envelope.cluster != self.cluster {
            return Err(SealError::Cluster(envelope.cluster));
        }
        if envelope.lowest > WIRE_HIGHEST || envelope.highest < WIRE_LOWEST {
            return Err(SealError::Version { lowest: envelope.lowest, highest: envelope.highest });
        }
        match (&self.secret, envelope.mac.is_empty()) {
            (None, true) => Ok(envelope.message),
            (None, false) => Err(SealError::NoSecret),
            (Some(_), true) => Err(SealError::NotAuthenticated),
            (Some(secret), false) => self
                .mac(secret, kind, &envelope.message)
                .verify_slice(&envelope.mac)
                .map(|()| envelope.message)
                .map_err(|_| SealError::WrongCode),
        }
    }

    fn mac(&self, secret: &[u8], kind: MsgType, message: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
        mac.update(MAC_DOMAIN);
        mac.update(&[kind.code()]);
        mac.update(&(self.cluster.len() as u64).to_le_bytes());
        mac.update(self.cluster.as_bytes());
        mac.update(message);
        mac
    }
}

impl fmt::Debug for ControlSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlSeal")
            .field("cluster", &self.cluster)
            .field("secret", &self.secret.as_ref().map(|_| ".."))
            .finish()
    }
}

/// What a control frame's bulk string holds.
#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(string, tag = "1")]
    cluster: String,
    #[prost(uint32, tag = "2")]
    lowest: u32,
    #[prost(uint32, tag = "3")]
    highest: u32,
    #[prost(bytes = "vec", tag = "4")]
    message: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    mac: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::dnode::{HeaderDecoder, HeaderLimits};

    const GOSSIP: MsgType = MsgType::TorcGossip;

    #[test]
    fn a_frame_holds_one_bulk_string() {
        for len in [0, 1, 9, 10, 70_000] {
            let message = vec![b'm'; len];
            let mut frame = Vec::new();
            put_control_frame(&mut frame, 5, GOSSIP, true, b"d;r=c", &message);
            let limits = HeaderLimits::default();
            let header = HeaderDecoder::default().decode(&frame, &limits);
            let header = header.unwrap().unwrap();
            assert_eq!((header.id, header.msg_type()), (5, GOSSIP));
            assert!(header.plen_binds());
            let body = &frame[header.len..];
            assert_eq!(body.len() as u64, header.plen);
            assert_eq!(control_message(body), Some(&message[..]));
        }
        for bad in ["", "$", "$1\r\n", "$2\r\nx\r\n", "$x\r\nx\r\n", "+OK\r\n"] {
            assert_eq!(control_message(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn envelopes_open_in_their_own_cluster_only() {
        let ours = ControlSeal::new("blue", None);
        let sealed = ours.seal(GOSSIP, b"hello".to_vec());
        assert_eq!(ours.open(GOSSIP, &sealed), Ok(b"hello".to_vec()));
        let other = ControlSeal::new("green", None);
        let refused = other.open(GOSSIP, &sealed);
        assert_eq!(refused, Err(SealError::Cluster("blue".into())));
        assert_eq!(ours.open(GOSSIP, b"\xff\xff"), Err(SealError::Malformed), "noise");
    }

    #[test]
    fn secrets_must_agree() {
        let one = ControlSeal::new("blue", Some(b"one"));
        let two = ControlSeal::new("blue", Some(b"two"));
        let none = ControlSeal::new("blue", None);
        let sealed = one.seal(GOSSIP, b"hello".to_vec());
        assert_eq!(one.open(GOSSIP, &sealed), Ok(b"hello".to_vec()));
        assert_eq!(two.open(GOSSIP, &sealed), Err(SealError::WrongCode));
        assert_eq!(none.open(GOSSIP, &sealed), Err(SealError::NoSecret));
        let open = none.seal(GOSSIP, b"hello".to_vec());
        assert_eq!(one.open(GOSSIP, &open), Err(SealError::NotAuthenticated));
        let as_admin = one.open(MsgType::TorcAdmin, &sealed);
        assert_eq!(as_admin, Err(SealError::WrongCode), "bound to its type");
        let mut damaged = Envelope::decode(&sealed[..]).unwrap();
        damaged.message[0] ^= 1;
        let damaged = damaged.encode_to_vec();
        assert_eq!(one.open(GOSSIP, &damaged), Err(SealError::WrongCode));
        assert!(!format!("{one:?}").contains("one"));
    }

    #[test]
    fn versions_must_overlap_and_new_fields_are_skipped() {
        let ours = ControlSeal::new("blue", None);
        let sealed = ours.seal(GOSSIP, b"hello".to_vec());
        let mut later = Envelope::decode(&sealed[..]).unwrap();
        (later.lowest, later.highest) = (WIRE_HIGHEST, WIRE_HIGHEST + 1);
        let mut bytes = later.encode_to_vec();
        bytes.extend_from_slice(&[0xa2, 0x06, 1, b'x']);
        assert_eq!(ours.open(GOSSIP, &bytes), Ok(b"hello".to_vec()));
        (later.lowest, later.highest) = (WIRE_HIGHEST + 1, WIRE_HIGHEST + 2);
        let refused = ours.open(GOSSIP, &later.encode_to_vec()).unwrap_err();
        assert_eq!(
            refused,
            SealError::Version { lowest: WIRE_HIGHEST + 1, highest: WIRE_HIGHEST + 2 }
        );
    }
}
