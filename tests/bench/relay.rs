//! The relay over real HTTP/2 on loopback: first snapshots, deltas, memory. Clients are a process
//! of their own, so that memory is the server's alone.
//!
//!     cargo bench --bench relay
//!
//! A default pool has 524,288 buckets (4 MiB). Frames are not paced here: queues are long and
//! every batch is a frame.

// Wall time is what is measured.
#![allow(clippy::disallowed_methods)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use torc::affinity::publication::{Cut, Delta, Frame, Subscriber};
use torc::ckf::bucket::BucketImage;
use torc::ckf::digest::{self, Selection};
use torc::ckf::format::CkfFormat;
use torc::ckf::hashing::HashFormat;
use torc::ckf::identity::{IndexerDomainId, PoolId, ProducerIdentity};
use torc::config;
use torc::net::clock::Clock;
use torc::relay::ProducerKey;
use torc::relay::descriptor::{Descriptor, Endpoint, Role, Semantics};
use torc::relay::envelope::{CONTRACT_MARKER, RelayId};
use torc::relay::proto;
use torc::relay_client::grpc::kv_event_relay_client::KvEventRelayClient;
use torc::relay_server::{PoolSource, Relay};

const BUCKETS: u64 = 524_288;
const DELTAS: u64 = 2_000;
/// Batches the producer is ahead; one that is 1,024 ahead of the relay is cut off.
const AHEAD: u64 = 500;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match args.get(1).map(String::as_str) {
        Some("--client") => runtime.block_on(client(&args[2], args[3].parse()?)),
        _ => runtime.block_on(serve()),
    }
}

/// The sequence so far, and who follows it.
type Followed = (u64, Vec<Box<dyn Subscriber>>);

/// A publisher of random words.
#[derive(Clone)]
struct Producer(Arc<Mutex<Followed>>);

fn identity() -> Result<ProducerIdentity, Failure> {
    let map = Selection::explicit([("authority", "bench")])?;
    let indexer_domain = IndexerDomainId {
        cache_semantics: digest::cache_semantics(&map, 2, HashFormat::Standard),
        routing_scope: digest::routing_scope(&map),
    };
    Ok(ProducerIdentity {
        pool: PoolId { indexer_domain, dc_id: digest::dc_id("bench") },
        producer_incarnation: 1,
        layout_generation: 1,
        format: CkfFormat::new(7, BUCKETS)?,
    })
}

impl Producer {
    fn change(&self, images: u32) {
        let mut inner = self.0.lock().expect("nobody panics");
        let base = inner.0;
        inner.0 += 1;
        let image = |i: u32| BucketImage { bucket: i * 7, word: base * 1_000 + u64::from(i) + 1 };
        let images = (0..images).map(image).collect();
        let frame = Frame::Delta(Delta { base, sequence: base + 1, images });
        inner.1.retain_mut(|subscriber| subscriber.take(frame.clone()));
    }
}

impl PoolSource for Producer {
    fn subscribe(&self, subscriber: Box<dyn Subscriber>) -> Option<Cut> {
        let mut inner = self.0.lock().expect("nobody panics");
        inner.1.push(subscriber);
        let words = (0..BUCKETS).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
        Some(Cut { identity: identity().ok()?, sequence: inner.0, words })
    }
}

async fn serve() -> Result<(), Failure> {
    let limits = config::Relay {
        // Half of it may follow each other without a pause.
        publication_queue_capacity: 8 * DELTAS as usize,
        publication_threshold: 1,
        ..config::Relay::default()
    };
    let relay = Relay::new(RelayId { drt_instance_id: 1, incarnation: 1 }, limits, Clock::start());
    let producer = Producer(Arc::default());
    let pool = Descriptor {
        key: ProducerKey::try_from(identity()?)?,
        endpoint: Endpoint {
            namespace: "bench".into(),
            component: "bench".into(),
            endpoint: "dnode".into(),
        },
        registrations: Vec::new(),
        semantics: Semantics { block_size: 2, format: HashFormat::Standard },
        roles: vec![Role::Aggregated],
    };
    relay.publish(pool, Arc::new(producer.clone()))?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let served = Arc::clone(&relay);
    tokio::spawn(served.serve(listener, |_| Vec::new(), std::future::pending()));

    let begun = Instant::now();
    let mut clients = Clients::start(&address, 16)?;
    clients.wait_for("snapshots")?;
    println!("first snapshots of 4 MiB to 16 subscribers: {} ms", begun.elapsed().as_millis());
    for images in [1, 16, 256] {
        let (sent, begun) = (count(&relay), Instant::now());
        for i in 0..DELTAS {
            producer.change(images);
            while count(&relay) + AHEAD < sent + i {
                tokio::task::yield_now().await;
            }
        }
        let frames = settled(&relay, sent).await - sent;
        clients.ask(sent + frames)?;
        clients.wait_for("caught up")?;
        let rate = frames as f64 / begun.elapsed().as_secs_f64();
        println!("deltas of {images} images to 16 subscribers: {rate:.0} frames/s ({frames} sent)");
    }
    drop(clients);
    let before = resident()?;
    let mut clients = Clients::start(&address, 64)?;
    clients.wait_for("snapshots")?;
    let each = resident()?.saturating_sub(before) / 64;
    println!("memory with 64 subscribers: {} KiB, {} KiB each", resident()? / 1024, each / 1024);
    Ok(())
}

fn count(relay: &Relay) -> u64 {
    relay.counters().deltas.load(std::sync::atomic::Ordering::Relaxed)
}

/// Frames made in all, once no more come after those `before`.
async fn settled(relay: &Relay, before: u64) -> u64 {
    let mut last = count(relay);
    loop {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let now = count(relay);
        if now == last && now > before {
            return now;
        }
        last = now;
    }
}

/// Bytes of this process in memory.
fn resident() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split(' ').nth(1).ok_or("statm")?.parse()?;
    Ok(pages * 4096)
}

/// The process of the clients.
struct Clients {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Clients {
    fn start(address: &str, count: usize) -> Result<Clients, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--client", address, &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Clients { child, said })
    }

    fn ask(&mut self, sequence: u64) -> Result<(), Failure> {
        let input = self.child.stdin.as_mut().ok_or("no input")?;
        Ok(writeln!(input, "{sequence}")?)
    }

    fn wait_for(&mut self, what: &str) -> Result<(), Failure> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        if line.trim() == what { Ok(()) } else { Err(format!("clients said {line:?}").into()) }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Subscribes `count` times; says when all have their snapshots, and when all have reached each
/// sequence that is asked for.
async fn client(address: &str, count: usize) -> Result<(), Failure> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let client = KvEventRelayClient::connect(format!("http://{address}")).await?;
        let request = proto::SubscribeKvPoolRequest {
            subscriber_id: "bench".into(),
            expected_producer: Some((&ProducerKey::try_from(identity()?)?).into()),
            contract_marker: CONTRACT_MARKER,
        };
        let mut client = client.max_decoding_message_size(8 << 20);
        let (reached, progress) = tokio::sync::watch::channel(None);
        let mut stream = client.subscribe_kv_pool(request).await?.into_inner();
        tokio::spawn(async move {
            loop {
                match stream.message().await {
                    Ok(Some(frame)) => reached.send_replace(Some(frame.sequence)),
                    Ok(None) => return eprintln!("a stream ended"),
                    Err(status) => return eprintln!("a stream ended: {status}"),
                };
            }
        });
        streams.push(progress);
    }
    for stream in &mut streams {
        stream.wait_for(|reached| reached.is_some()).await?;
    }
    println!("snapshots");
    for line in std::io::stdin().lock().lines() {
        let wanted: u64 = line?.parse()?;
        for stream in &mut streams {
            stream.wait_for(|reached| reached.is_some_and(|at| at >= wanted)).await?;
        }
        println!("caught up");
    }
    Ok(())
}
