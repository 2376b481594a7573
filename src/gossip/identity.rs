//! What a place in the ring is called, and where somebody listens.

use std::fmt;

use xxhash_rust::xxh3::Xxh3;

use crate::token::DynToken;

/// A place in the ring of one cluster: whoever holds it owns its arcs. A node that changes its
/// first token takes another slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Datacenter.
    pub dc: String,
    /// Rack, a name inside the datacenter.
    pub rack: String,
    /// The first of the holder's tokens.
    pub token: DynToken,
}

/// A slot in eight bytes: the same on every node. Two slots with one id are taken for the same;
/// at 65,000 slots the odds of that are one in ten billion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u64);

impl Slot {
    /// A slot.
    pub fn new(dc: &str, rack: &str, token: DynToken) -> Slot {
        Slot { dc: dc.to_owned(), rack: rack.to_owned(), token }
    }

    /// Its short name.
    pub fn id(&self) -> SlotId {
        let mut hash = Xxh3::new();
        for part in [&self.dc, &self.rack, &self.token.to_string()] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        SlotId(hash.digest())
    }

    /// Reads the text that `Display` prints; `None` when it is no slot.
    pub fn parse(text: &str) -> Option<Slot> {
        let mut parts = text.rsplitn(3, '/');
        let token = DynToken::parse_config(parts.next()?).ok()?;
        let rack = parts.next().filter(|rack| !rack.is_empty())?;
        let dc = parts.next().filter(|dc| !dc.is_empty())?;
        Some(Slot::new(dc, rack, token))
    }
}

/// `datacenter/rack/token`, as operators write it.
impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.dc, self.rack, self.token)
    }
}

/// Where a node's peer port is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr {
    /// Host name or IP address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Addr {
    /// An address.
    pub fn new(host: &str, port: u16) -> Addr {
        Addr { host: host.to_owned(), port }
    }

    /// Reads the text that `Display` prints; `None` when it is no address.
    pub fn parse(text: &str) -> Option<Addr> {
        let (host, port) = text.rsplit_once(':')?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let port = port.parse().ok().filter(|port| *port > 0)?;
        let host = bare.unwrap_or(host);
        (!host.is_empty() && !host.contains(['/', '@'])).then(|| Addr::new(host, port))
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_have_a_text_and_an_id() {
        let slot = Slot::new("dc1", "r1", DynToken::from_u32(7));
        assert_eq!(slot.to_string(), "dc1/r1/7");
        assert_eq!(Slot::parse("dc1/r1/7"), Some(slot.clone()));
        for bad in ["", "dc1/r1", "dc1/r1/x", "/r1/7", "dc1//7"] {
            assert_eq!(Slot::parse(bad), None, "{bad}");
        }
        let shifted = Slot::new("dc", "1r1", DynToken::from_u32(7));
        assert_ne!(slot.id(), shifted.id());
    }

    #[test]
    fn addresses_print_as_they_are_dialled() {
        assert_eq!(Addr::new("n1.example", 8101).to_string(), "n1.example:8101");
        assert_eq!(Addr::new("::1", 8101).to_string(), "[::1]:8101");
        for text in ["n1.example:8101", "10.0.0.1:1", "[::1]:8101"] {
            assert_eq!(Addr::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", "n1", ":8101", "n1:", "n1:0", "n1:99999", "[]:1", "http://n1:80"] {
            assert_eq!(Addr::parse(bad), None, "{bad}");
        }
    }
}
