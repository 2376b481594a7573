//! A DNS server on loopback whose answers a test changes.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, SRV, TXT};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};

/// By name in lower case without its last dot.
type Records = Arc<Mutex<BTreeMap<(String, RecordType), Vec<RData>>>>;

/// Answers over UDP until the test ends; what it does not know does not exist.
pub struct Dns {
    pub address: SocketAddr,
    records: Records,
}

impl Dns {
    pub fn start() -> Dns {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = socket.local_addr().expect("its address");
        let records = Records::default();
        let shared = Arc::clone(&records);
        std::thread::spawn(move || {
            let mut buf = [0; 4096];
            while let Ok((len, from)) = socket.recv_from(&mut buf) {
                if let Some(answer) = answer(&buf[..len], &shared) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Dns { address, records }
    }

    pub fn set_address(&self, name: &str, ip: [u8; 4]) {
        self.set(name, RData::A(A::new(ip[0], ip[1], ip[2], ip[3])));
    }

    pub fn set_text(&self, name: &str, text: &str) {
        self.set(name, RData::TXT(TXT::new(vec![text.to_owned()])));
    }

    pub fn set_service(&self, name: &str, host: &str, port: u16) {
        let host = Name::from_str(host).expect("a name");
        self.set(name, RData::SRV(SRV::new(0, 0, port, host)));
    }

    fn set(&self, name: &str, data: RData) {
        let key = (name.to_owned(), data.record_type());
        self.records.lock().unwrap().insert(key, vec![data]);
    }
}

fn answer(question: &[u8], records: &Records) -> Option<Vec<u8>> {
    let mut message = Message::from_vec(question).ok()?;
    let query = message.queries.first()?.clone();
    let known = records.lock().unwrap();
    let name = query.name().to_ascii().trim_end_matches('.').to_lowercase();
    message.metadata.message_type = MessageType::Response;
    message.edns = None;
    match known.get(&(name.clone(), query.query_type())) {
        Some(found) => found.iter().for_each(|data| {
            message.add_answer(Record::from_rdata(query.name().clone(), 0, data.clone()));
        }),
        None if known.keys().any(|(other, _)| *other == name) => {}
        None => message.metadata.response_code = ResponseCode::NXDomain,
    }
    message.to_vec().ok()
}
