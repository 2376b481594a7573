//! A client of the admin port, for the subcommands that ask or order a running node.

use std::io;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use clap::Args;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::{ConfigArgs, Failure};
use crate::config::HostPort;

/// How long a node may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest answer: a ring of thousands of nodes.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Which node to ask.
#[derive(Debug, Args)]
pub(super) struct NodeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The admin port of the running node, in place of a configuration's
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "config")]
    admin: Option<String>,
}

/// Why a node gave no answer.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Silent,
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("{0}")]
    Body(#[from] axum::Error),
    #[error("no such path: {0}")]
    Path(#[from] hyper::http::Error),
}

impl NodeArgs {
    fn address(&self) -> Result<String, Failure> {
        if let Some(address) = &self.admin {
            return Ok(address.clone());
        }
        if !self.config.is_given() {
            return Err(Failure::Usage("which node? -c FILE, or --admin HOST:PORT".into()));
        }
        let HostPort { host, port } = self.config.load()?.stats_listen;
        // A wildcard is an address to listen on, not one to call.
        Ok(match host.as_str() {
            "0.0.0.0" | "*" => HostPort::new("127.0.0.1", port).to_string(),
            "::" => HostPort::new("::1", port).to_string(),
            _ => HostPort::new(&host, port).to_string(),
        })
    }

    /// The body of a page.
    pub(super) fn get(&self, path: &str) -> Result<Vec<u8>, Failure> {
        self.call(Method::GET, path)
    }

    /// The answer to an order.
    pub(super) fn post(&self, path: &str) -> Result<Vec<u8>, Failure> {
        self.call(Method::POST, path)
    }

    fn call(&self, method: Method, path: &str) -> Result<Vec<u8>, Failure> {
        let address = self.address()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::Failed(error.to_string()))?;
        let exchange = exchange(&address, method, path);
        let outcome = runtime.block_on(async {
            tokio::time::timeout(TIMEOUT, exchange).await.unwrap_or(Err(Error::Silent))
        });
        match outcome {
            Ok((status, body)) if status.is_success() => Ok(body),
            Ok((status, body)) => {
                let text = String::from_utf8_lossy(&body).trim().to_owned();
                Err(Failure::Failed(format!("{address}: {text} ({status})")))
            }
            Err(error) => Err(Failure::Failed(format!("{address}: {error}"))),
        }
    }
}

async fn exchange(
    address: &str,
    method: Method,
    path: &str,
) -> Result<(StatusCode, Vec<u8>), Error> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, address)
        .body(Body::empty())?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = to_bytes(Body::new(response.into_body()), BODY_BYTES_MAX).await?;
        Ok((status, body.to_vec()))
    };
    tokio::pin!(connection);
    tokio::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        ended = &mut connection => match ended {
            Ok(()) => answer.await,
            Err(error) => Err(error.into()),
        },
    }
}
