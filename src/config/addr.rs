//! Addresses as configuration writes them. Names are not resolved here.
//!
//! Everything is cut at the last colon, so a bare IPv6 address works where a port follows
//! (`::1:8102`); brackets work too (`[::1]:8102`).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;
use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::setting::{Bad, Text, text_settings};

text_settings!(Endpoint, Advertise, ServerAddr);

/// Longest path of a Unix socket: the platform's field has 108 bytes, one ends the text.
const SOCKET_PATH_MAX: usize = 107;

/// A host, name or IP address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// A name, or an IP address without brackets.
    pub host: String,
    /// The port. 0 only where listening on a port of the system's choice is meant.
    pub port: u16,
}

impl HostPort {
    /// From its parts; brackets around the host are dropped.
    pub fn new(host: &str, port: u16) -> HostPort {
        HostPort { host: bare(host).to_owned(), port }
    }

    /// The IP address, when the host is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// True for `0.0.0.0` and `::`.
    pub fn is_wildcard(&self) -> bool {
        self.ip().is_some_and(|ip| ip.is_unspecified())
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.parse::<Ipv6Addr>() {
            Ok(ip) => write!(f, "[{ip}]:{}", self.port),
            Err(_) => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Where to listen, or where a store listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// TCP.
    Tcp(HostPort),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Endpoint {
    /// A TCP endpoint.
    pub fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp(HostPort::new(host, port))
    }

    /// Host and port, when this is TCP.
    pub fn host_port(&self) -> Option<&HostPort> {
        match self {
            Endpoint::Tcp(address) => Some(address),
            Endpoint::Unix(_) => None,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => address.fmt(f),
            Endpoint::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Text for Endpoint {
    fn accepted() -> String {
        "host:port, [ipv6]:port or the path of a Unix socket".into()
    }

    fn parse(text: &str) -> Result<Self, Bad> {
        if text.starts_with('/') {
            return socket_path(text).map(Endpoint::Unix);
        }
        let address = host_port(text, 0)?;
        if address.host == "*" {
            let hint = format!("write 0.0.0.0:{0} or [::]:{0}", address.port);
            return Err(Bad::new("has no host").within(0..1).hint(hint));
        }
        Ok(Endpoint::Tcp(address))
    }

    fn schema() -> Json {
        json!({"type": "string"})
    }
}

/// The address a node tells others: a host, and a port when it differs from the one it listens
/// on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertise {
    /// A name, or an IP address without brackets.
    pub host: String,
    /// The port, when given.
    pub port: Option<u16>,
}

impl Text for Advertise {
    fn accepted() -> String {
        "host, host:port, [ipv6] or [ipv6]:port".into()
    }

    fn parse(text: &str) -> Result<Self, Bad> {
        let whole = bare(text).parse::<IpAddr>().is_ok() || !text.contains(':');
        let (host, port) = if whole {
            (bare(text).to_owned(), None)
        } else {
            let address = host_port(text, 1)?;
            (address.host, Some(address.port))
        };
        match host.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() => {
                Err(Bad::new("is no address that others could connect to"))
            }
            Ok(_) | Err(_) => Ok(Advertise { host, port }),
        }
    }

    fn schema() -> Json {
        json!({"type": "string"})
    }
}

/// The backing store: `host:port:weight [name]` or `/path/socket:weight [name]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddr {
    /// Where it listens.
    pub endpoint: Endpoint,
    /// The name shown in `/info`: as given, else `host:port`, or the host alone for port 11211.
    pub name: String,
}

/// memcached's port, which the reference leaves out of a store's name.
const MEMCACHE_PORT: u16 = 11_211;

impl Text for ServerAddr {
    fn accepted() -> String {
        "host:port:weight [name] or /path/unix_socket:weight [name]".into()
    }

    fn parse(text: &str) -> Result<Self, Bad> {
        let (address, name) = split_name(text);
        let Some((rest, weight)) = address.rsplit_once(':') else {
            return Err(Bad::new("has no port and no weight"));
        };
        if weight.is_empty() || weight.contains('/') {
            return Err(Bad::new("has no weight").hint(format!("write `{address}:1`")));
        }
        let endpoint = if rest.starts_with('/') {
            Endpoint::Unix(socket_path(rest)?)
        } else {
            Endpoint::Tcp(host_port(rest, 1).map_err(|bad| {
                let complete = host_port(address, 1).is_ok();
                if complete { bad.hint(format!("a weight is missing: `{address}:1`")) } else { bad }
            })?)
        };
        let name = match (name, &endpoint) {
            (Some(name), _) => name.to_owned(),
            (None, Endpoint::Tcp(a)) if a.port == MEMCACHE_PORT => a.host.clone(),
            (None, endpoint) => endpoint.to_string(),
        };
        Ok(ServerAddr { endpoint, name })
    }

    fn schema() -> Json {
        json!({"type": "string", "pattern": ":[^:]+$"})
    }
}

/// Splits ` name` off the end.
pub(super) fn split_name(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(' ') {
        Some((rest, name)) => (rest.trim_end(), Some(name)),
        None => (text, None),
    }
}

/// `host:port`, cut at the last colon, with a port of at least `port_min`.
pub(super) fn host_port(text: &str, port_min: u16) -> Result<HostPort, Bad> {
    let Some(colon) = text.rfind(':') else {
        return Err(Bad::new("has no port"));
    };
    let (host, port) = (&text[..colon], &text[colon + 1..]);
    let port = parse_port(port, colon + 1..text.len(), port_min)?;
    check_host(host)?;
    Ok(HostPort::new(host, port))
}

/// A port; `range` is where it stands in the setting's text.
pub(super) fn parse_port(text: &str, range: Range<usize>, min: u16) -> Result<u16, Bad> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u16>() {
        Ok(port) if digits && port >= min => Ok(port),
        Ok(_) | Err(_) => {
            let range = if range.is_empty() { range.start - 1..range.end } else { range };
            Err(Bad::new(format!("has no port from {min} to 65535")).within(range))
        }
    }
}

/// A host that stands at the beginning of the setting's text.
pub(super) fn check_host(host: &str) -> Result<(), Bad> {
    if bare(host).is_empty() {
        return Err(Bad::new("has no host").within(0..host.len().max(1)));
    }
    let bracketed = host.starts_with('[') || host.ends_with(']');
    if (bracketed || host.contains(':')) && bare(host).parse::<Ipv6Addr>().is_err() {
        return Err(Bad::new("has a host that is no IPv6 address").within(0..host.len()));
    }
    if let Some(at) = host.find(char::is_whitespace) {
        return Err(Bad::new("has a blank in its host").within(at..at + 1));
    }
    Ok(())
}

/// Without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host)
}

fn socket_path(text: &str) -> Result<PathBuf, Bad> {
    if text.len() > SOCKET_PATH_MAX {
        return Err(Bad::new(format!("is longer than {SOCKET_PATH_MAX} bytes")));
    }
    Ok(text.into())
}
