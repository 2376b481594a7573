//! Names of hosts: looked up whenever they are needed, so a name may begin to exist, or mean
//! another address, while the node runs.
//!
//! Without a configured DNS server the system is asked, so that `/etc/hosts` counts; what is not
//! in its interface (TXT, SRV) goes to the servers of `/etc/resolv.conf`. Lookups run on the
//! control runtime: a slow server never holds a worker. Nothing is cached here.

use std::io;
use std::net::{IpAddr, SocketAddr};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

/// Looks up host names. Clones share one resolver.
#[derive(Clone)]
pub struct Names {
    /// The configured server; without it the system looks addresses up.
    server: Option<TokioResolver>,
    control: Handle,
}

impl Names {
    /// Lookups through `server`, or as the system does; they run on the runtime of `control`.
    ///
    /// # Errors
    ///
    /// When no resolver can be made.
    pub fn new(server: Option<SocketAddr>, control: Handle) -> io::Result<Names> {
        let server = server.map(through).transpose().map_err(io::Error::other)?;
        Ok(Names { server, control })
    }

    /// The addresses of a host; an address is its own. At least one.
    ///
    /// # Errors
    ///
    /// When the name has none, or nobody answers.
    pub async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![ip]);
        }
        let (server, name) = (self.server.clone(), host.to_owned());
        let lookup = self.control.spawn(async move {
            let found: Vec<IpAddr> = match server {
                Some(server) => {
                    server.lookup_ip(name).await.map_err(io::Error::other)?.iter().collect()
                }
                None => tokio::net::lookup_host((name, 0)).await?.map(|a| a.ip()).collect(),
            };
            Ok::<_, io::Error>(found)
        });
        let found = lookup.await.map_err(io::Error::other)??;
        match found.is_empty() {
            true => Err(io::Error::other(format!("{host} has no address"))),
            false => Ok(found),
        }
    }

    /// A connection to a host, whichever of its addresses takes it.
    ///
    /// # Errors
    ///
    /// When there is no address, or none takes it.
    pub async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let found = self.addresses(host).await?;
        let found: Vec<SocketAddr> = found.into_iter().map(|ip| (ip, port).into()).collect();
        TcpStream::connect(&found[..]).await
    }

    /// A resolver for records of other types.
    ///
    /// # Errors
    ///
    /// When the system names no DNS server.
    pub(super) fn records(&self) -> Result<TokioResolver, NetError> {
        match &self.server {
            Some(server) => Ok(server.clone()),
            None => {
                let mut builder = TokioResolver::builder_tokio()?;
                uncached(builder.options_mut());
                builder.build()
            }
        }
    }
}

fn through(server: SocketAddr) -> Result<TokioResolver, NetError> {
    let (mut udp, mut tcp) = (ConnectionConfig::udp(), ConnectionConfig::tcp());
    (udp.port, tcp.port) = (server.port(), server.port());
    let server = NameServerConfig::new(server.ip(), true, vec![udp, tcp]);
    let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
    let provider = TokioRuntimeProvider::default();
    let mut builder = TokioResolver::builder_with_config(config, provider);
    uncached(builder.options_mut());
    builder.build()
}

/// A change must be seen when it is looked for; how often that is, the callers decide.
fn uncached(options: &mut ResolverOpts) {
    options.cache_size = 0;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
}
