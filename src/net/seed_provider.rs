//! Asking a seed provider: an HTTP service, or DNS records.
//!
//! An entry that cannot be read is skipped and counted; the rest counts (decision A2).

use std::io;
use std::time::Duration;

use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::RData;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::names::Names;
use crate::config::{DnsRecords, HostPort, Seed, SeedSource};

/// How long a provider may take.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// What the status of a good answer looks like to the reference.
const GOOD_STATUS: u16 = 200;

/// Most fields in the head of an answer.
const FIELDS_MAX: usize = 64;

/// What a provider knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Nodes with their places.
    pub seeds: Vec<Seed>,
    /// Where torc nodes listen whose places are not told.
    pub contacts: Vec<HostPort>,
    /// Entries that make no sense.
    pub skipped: u64,
}

/// Why a provider gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No connection, or it broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The answer is no HTTP.
    #[error("it does not speak HTTP: {0}")]
    Http(#[from] httparse::Error),
    /// It has nothing to say.
    #[error("it answers with status {0}")]
    Status(u16),
    /// The answer never ends.
    #[error("its answer is longer than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
    /// DNS gave no records.
    #[error("{0}")]
    Dns(#[from] NetError),
    /// Nothing in time.
    #[error("no answer within {} s", ANSWER_TIME.as_secs())]
    Silent,
}

/// Asks a provider once. Nodes whose port is not told listen at `peer_port`.
///
/// # Errors
///
/// When it gives no answer; nothing is known then.
pub async fn ask(source: &SeedSource, peer_port: u16, names: &Names) -> Result<Answer, AskError> {
    let asked = async {
        match source {
            SeedSource::Florida { address, request } => {
                let body = get(address, request, names).await?;
                Ok(Answer::of_text(&body))
            }
            SeedSource::Dns { name, records } => look_up(name, *records, peer_port, names).await,
        }
    };
    tokio::time::timeout(ANSWER_TIME, asked).await.unwrap_or(Err(AskError::Silent))
}

impl Answer {
    /// From the text of a seed list: entries separated by `|`.
    fn of_text(text: &str) -> Answer {
        let mut answer = Answer::default();
        for entry in text.split('|').map(str::trim).filter(|entry| !entry.is_empty()) {
            match entry.parse() {
                Ok(seed) => answer.seeds.push(seed),
                Err(error) => {
                    tracing::debug!(%error, "seed provider");
                    answer.skipped += 1;
                }
            }
        }
        answer
    }
}

/// The body of the answer to a request that is sent as it is.
async fn get(address: &HostPort, request: &str, names: &Names) -> Result<String, AskError> {
    let mut stream = names.connect(&address.host, address.port).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    loop {
        let ended = stream.read_buf(&mut bytes).await? == 0;
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(AskError::TooLong);
        }
        if let Some(body) = body(&bytes, ended)? {
            return Ok(String::from_utf8_lossy(body).into_owned());
        }
        if ended {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}

/// The body of an answer once it is whole: as long as the head says, or up to the end.
fn body(bytes: &[u8], ended: bool) -> Result<Option<&[u8]>, AskError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(at) = head.parse(bytes)? else { return Ok(None) };
    if let Some(status) = head.code.filter(|status| *status != GOOD_STATUS) {
        return Err(AskError::Status(status));
    }
    let named = |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case("content-length");
    let length = head.headers.iter().find(named);
    let length = length.and_then(|field| std::str::from_utf8(field.value).ok()?.parse().ok());
    let rest = &bytes[at..];
    Ok(match length {
        Some(length) => rest.get(..length),
        None => ended.then_some(rest),
    })
}

async fn look_up(
    name: &str,
    records: DnsRecords,
    peer_port: u16,
    names: &Names,
) -> Result<Answer, AskError> {
    let at = |host: &str, port| HostPort::new(host.trim_end_matches('.'), port);
    let mut answer = Answer::default();
    match records {
        DnsRecords::Txt => {
            let found = names.records()?.txt_lookup(name).await?;
            let texts = found.answers().iter().filter_map(|record| match &record.data {
                RData::TXT(text) => {
                    Some(String::from_utf8_lossy(&text.txt_data.concat()).into_owned())
                }
                _ => None,
            });
            // Parity: the reference uses the first string of the last record alone.
            answer = Answer::of_text(&texts.collect::<Vec<_>>().join("|"));
        }
        DnsRecords::Addresses => {
            let found = names.addresses(name).await?;
            answer.contacts = found.iter().map(|ip| at(&ip.to_string(), peer_port)).collect();
        }
        DnsRecords::Srv => {
            let found = names.records()?.srv_lookup(name).await?;
            let hosts = found.answers().iter().filter_map(|record| match &record.data {
                RData::SRV(host) => Some(at(&host.target.to_ascii(), host.port)),
                _ => None,
            });
            answer.contacts = hosts.collect();
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_entry_by_entry() {
        let text = "10.0.0.1:8101:r1:dc1:0|nonsense|n2.test:8101:r2:dc1:0,7| |::1:8101:r3:dc1:5\n";
        let answer = Answer::of_text(text);
        let hosts: Vec<String> = answer.seeds.iter().map(|s| s.address.to_string()).collect();
        assert_eq!(hosts, ["10.0.0.1:8101", "n2.test:8101", "[::1]:8101"]);
        assert_eq!((answer.seeds[1].tokens.len(), answer.skipped), (2, 1));
        assert_eq!(Answer::of_text(""), Answer::default());
    }

    #[test]
    fn answers_end_where_they_say_or_with_the_connection() {
        let text = |bytes: &[u8], ended| {
            let body = body(bytes, ended).map_err(|error| error.to_string());
            body.map(|body| body.map(|b| String::from_utf8_lossy(b).into_owned()))
        };
        let open = b"HTTP/1.0 200 OK\r\nServer: x\r\n\r\nabc";
        assert_eq!(text(open, false), Ok(None));
        assert_eq!(text(open, true), Ok(Some("abc".into())));
        let sized = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcdef";
        assert_eq!(text(sized, false), Ok(Some("abc".into())));
        for cut in 0..sized.len() - 3 {
            assert_eq!(text(&sized[..cut], false), Ok(None), "{cut}");
        }
        let missing = text(b"HTTP/1.1 404 Not Found\r\n\r\n", true);
        assert_eq!(missing, Err("it answers with status 404".into()));
        assert!(text(b"\x00\x01\x02\x03\r\n\r\n", true).is_err());
    }
}
