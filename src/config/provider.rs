//! Where a seed provider is asked: `dyn_seed_provider` and its environment variables.
//!
//! Source: `src/seedsprovider/*` of Netflix/dynomite. Parity: the reference cannot ask for
//! addresses (`DYNOMITE_DNS_TYPE=A` queries them and reads the answer as text) and knows no SRV.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde_json::{Value as Json, json};

use super::addr::HostPort;
use super::model::Config;
use super::setting::{Bad, Text, text_settings};
use super::words::SeedProvider;

text_settings!(DnsServer);

/// The port of DNS servers.
const DNS_PORT: u16 = 53;

/// A DNS server, `ip` or `ip:port`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DnsServer(pub SocketAddr);

impl Text for DnsServer {
    fn accepted() -> String {
        "an IP address, ip:port or [ipv6]:port".into()
    }

    fn parse(text: &str) -> Result<DnsServer, Bad> {
        let whole = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DNS_PORT));
        match whole.or_else(|_| text.parse()) {
            Ok(address) if address.port() > 0 => Ok(DnsServer(address)),
            Ok(_) | Err(_) => Err(Bad::new("is no address of a DNS server")),
        }
    }

    fn schema() -> Json {
        json!({"type": "string"})
    }
}

/// What a DNS provider asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnsRecords {
    /// Seed lists as text.
    Txt,
    /// Addresses of nodes, which listen at this node's own peer port.
    Addresses,
    /// Hosts and ports of nodes.
    Srv,
}

/// A seed provider, and how it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeedSource {
    /// An HTTP service.
    Florida {
        /// Where it listens.
        address: HostPort,
        /// The request, as it is sent.
        request: String,
    },
    /// DNS records.
    Dns {
        /// Their name.
        name: String,
        /// Their type.
        records: DnsRecords,
    },
}

/// An environment variable of a seed provider that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the environment variable {name} is `{value}`; accepted: {accepted}")]
pub struct BadVariable {
    name: &'static str,
    value: String,
    accepted: &'static str,
}

/// The request of the reference.
const FLORIDA_REQUEST: &str = "GET /REST/v1/admin/get_seeds HTTP/1.0\r\nHost: 127.0.0.1\r\n\
                               User-Agent: HTMLGET 1.0\r\n\r\n";

impl Config {
    /// The seed provider to ask, if any; `variable` reads the environment.
    ///
    /// # Errors
    ///
    /// When a variable that matters has a value that means nothing.
    pub fn seed_source(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<SeedSource>, BadVariable> {
        let given = |name| variable(name).filter(|value| !value.is_empty());
        Ok(match self.seed_provider {
            SeedProvider::Simple => None,
            SeedProvider::Florida => {
                let host = given("DYNOMITE_FLORIDA_IP").unwrap_or_else(|| "127.0.0.1".into());
                let name = "DYNOMITE_FLORIDA_PORT";
                let port = match given(name) {
                    None => 8080,
                    Some(value) => parse(name, value, "1 to 65535", |port: &u16| *port > 0)?,
                };
                let request = given("DYNOMITE_FLORIDA_REQUEST");
                let request = request.unwrap_or_else(|| FLORIDA_REQUEST.into());
                Some(SeedSource::Florida { address: HostPort::new(&host, port), request })
            }
            SeedProvider::Dns => {
                let name = given("DYNOMITE_DNS_NAME");
                let name = name.unwrap_or_else(|| "_dynomite.ec2-internal".into());
                let kind = "DYNOMITE_DNS_TYPE";
                let records = match given(kind) {
                    None => DnsRecords::Txt,
                    Some(value) => parse(kind, value, "TXT, A, SRV", |_| true)?,
                };
                Some(SeedSource::Dns { name, records })
            }
        })
    }
}

impl FromStr for DnsRecords {
    type Err = ();

    fn from_str(text: &str) -> Result<DnsRecords, ()> {
        match text.to_ascii_uppercase().as_str() {
            "TXT" => Ok(DnsRecords::Txt),
            "A" => Ok(DnsRecords::Addresses),
            "SRV" => Ok(DnsRecords::Srv),
            _ => Err(()),
        }
    }
}

fn parse<T: FromStr>(
    name: &'static str,
    value: String,
    accepted: &'static str,
    good: impl Fn(&T) -> bool,
) -> Result<T, BadVariable> {
    let read = value.parse().ok().filter(good);
    read.ok_or(BadVariable { name, value, accepted })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Texts;

    fn source(provider: &str, env: &[(&str, &str)]) -> Result<Option<SeedSource>, BadVariable> {
        let text = format!(
            "pool:\n  listen: 127.0.0.1:1\n  datastore: embedded\n  tokens: 1\n  \
             dyn_seed_provider: {provider}\n"
        );
        let texts = Texts { file: (Path::new("t.yml"), text), overlay: None, fallback: None };
        let config = Config::from_texts(texts).expect("a configuration").config;
        let find = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string());
        config.seed_source(find)
    }

    #[test]
    fn providers_have_the_references_variables_and_defaults() {
        assert_eq!(source("simple_provider", &[]), Ok(None));
        let Ok(Some(SeedSource::Florida { address, request })) = source("florida_provider", &[])
        else {
            panic!("no florida provider");
        };
        assert_eq!(address, HostPort::new("127.0.0.1", 8080));
        assert!(request.starts_with("GET /REST/v1/admin/get_seeds HTTP/1.0\r\n"));
        let env = [
            ("DYNOMITE_FLORIDA_IP", "10.0.0.9"),
            ("DYNOMITE_FLORIDA_PORT", "81"),
            ("DYNOMITE_FLORIDA_REQUEST", "GET /x HTTP/1.0\r\n\r\n"),
        ];
        let request = "GET /x HTTP/1.0\r\n\r\n".to_owned();
        let address = HostPort::new("10.0.0.9", 81);
        let florida = SeedSource::Florida { address, request };
        assert_eq!(source("florida_provider", &env), Ok(Some(florida)));
        let dns = |name: &str, records| Ok(Some(SeedSource::Dns { name: name.into(), records }));
        assert_eq!(source("dns_provider", &[]), dns("_dynomite.ec2-internal", DnsRecords::Txt));
        for (text, records) in
            [("TXT", DnsRecords::Txt), ("a", DnsRecords::Addresses), ("SRV", DnsRecords::Srv)]
        {
            let env = [("DYNOMITE_DNS_NAME", "ring.test"), ("DYNOMITE_DNS_TYPE", text)];
            assert_eq!(source("dns_provider", &env), dns("ring.test", records));
        }
    }

    #[test]
    fn variables_that_mean_nothing_are_named() {
        let error = source("dns_provider", &[("DYNOMITE_DNS_TYPE", "MX")]).unwrap_err();
        let text = "the environment variable DYNOMITE_DNS_TYPE is `MX`; accepted: TXT, A, SRV";
        assert_eq!(error.to_string(), text);
        for port in ["0", "http", "70000"] {
            assert!(source("florida_provider", &[("DYNOMITE_FLORIDA_PORT", port)]).is_err());
        }
    }

    #[test]
    fn dns_servers_are_addresses() {
        let read = |text| DnsServer::parse(text).map(|server| server.0.to_string()).ok();
        assert_eq!(read("10.0.0.2").as_deref(), Some("10.0.0.2:53"));
        assert_eq!(read("10.0.0.2:5353").as_deref(), Some("10.0.0.2:5353"));
        assert_eq!(read("::1").as_deref(), Some("[::1]:53"));
        assert_eq!(read("[::1]:5353").as_deref(), Some("[::1]:5353"));
        assert_eq!(read("resolver.test"), None);
        assert_eq!(read("10.0.0.2:0"), None);
    }
}
