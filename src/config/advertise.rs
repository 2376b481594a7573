//! The address this node tells others.

use super::addr::{Endpoint, HostPort};
use super::model::Config;

/// The address other nodes connect to, and who said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnAddress {
    /// The address.
    pub address: HostPort,
    /// `advertise`, the environment variable, or `dyn_listen`.
    pub source: &'static str,
    /// What a C node with this file and environment would announce instead, in words.
    pub warning: Option<String>,
}

/// No address that others could connect to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "dyn_listen {dyn_listen} is no address that other nodes could connect to; give them one with \
     `advertise: host` or the environment variable {variable}"
)]
pub struct NoOwnAddress {
    dyn_listen: Endpoint,
    variable: &'static str,
}

/// Environment variables that tell the own address, first one first.
const EC2: [&str; 3] = ["EC2_PUBLIC_HOSTNAME", "EC2_PUBLIC_IPV4", "EC2_LOCAL_IPV4"];
const OTHER: [&str; 3] = ["PUBLIC_HOSTNAME", "PUBLIC_IPV4", "LOCAL_IPV4"];

impl Config {
    /// The address to tell other nodes: `advertise`, else the environment, else `dyn_listen`.
    /// `port` is the one peers really reach (`dyn_listen` may say 0); `variable` reads the
    /// environment.
    ///
    /// Parity: `env` chooses the variables, while `src/dyn_util.c` reads the EC2 ones whatever
    /// it says; a difference is a warning.
    ///
    /// # Errors
    ///
    /// When all that is left is a wildcard or a Unix socket.
    pub fn own_address(
        &self,
        port: u16,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<OwnAddress, NoOwnAddress> {
        if let Some(own) = &self.advertise {
            let address = HostPort::new(&own.host, own.port.unwrap_or(port));
            return Ok(OwnAddress { address, source: "advertise", warning: None });
        }
        let first = |names: [&'static str; 3]| {
            names.into_iter().find_map(|n| Some((n, variable(n).filter(|v| !v.is_empty())?)))
        };
        let names = if self.env_is_aws { EC2 } else { OTHER };
        let (chosen, reference) = (first(names), first(EC2));
        let warning = (chosen.as_ref().map(|c| &c.1) != reference.as_ref().map(|r| &r.1))
            .then(|| {
                reference.map(|(name, host)| {
                    format!("a C node would announce {host} from {name}, whatever `env` says")
                })
            })
            .flatten();
        if let Some((source, host)) = chosen {
            return Ok(OwnAddress { address: HostPort::new(&host, port), source, warning });
        }
        match self.dyn_listen.host_port() {
            Some(own) if !own.is_wildcard() => {
                let address = HostPort::new(&own.host, port);
                Ok(OwnAddress { address, source: "dyn_listen", warning })
            }
            Some(_) | None => {
                Err(NoOwnAddress { dyn_listen: self.dyn_listen.clone(), variable: names[0] })
            }
        }
    }
}
