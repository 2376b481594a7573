//! A load generator for what redis-benchmark does not do: memcache, and reads mixed with writes.
//! Every reply is checked.
//!
//!     load ADDRESS redis|memcache WRITES_PERCENT CONNECTIONS PIPELINE SIZE REQUESTS
//!
//! Prints requests a second and the batches' latency in ms: `rps,p50,p99`. `scripts/bench` runs
//! it.

// Wall time is what is measured.
#![allow(clippy::disallowed_methods)]

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};

const KEYS: u64 = 10_000;

type Failure = Box<dyn std::error::Error>;

/// What is sent, and how each reply looks.
#[derive(Clone)]
struct Load {
    address: String,
    memcache: bool,
    writes_percent: u64,
    pipeline: u64,
    value: String,
}

impl Load {
    /// One request, and its only right reply.
    fn put(&self, key: u64, write: bool, requests: &mut Vec<u8>, replies: &mut Vec<u8>) {
        let (key, value, size) = (format!("key:{key:012}"), &self.value, self.value.len());
        let (request, reply) = match (self.memcache, write) {
            (false, true) => (
                format!("*3\r\n$3\r\nSET\r\n$16\r\n{key}\r\n${size}\r\n{value}\r\n"),
                "+OK\r\n".to_owned(),
            ),
            (false, false) => {
                (format!("*2\r\n$3\r\nGET\r\n$16\r\n{key}\r\n"), format!("${size}\r\n{value}\r\n"))
            }
            (true, true) => {
                (format!("set {key} 0 0 {size}\r\n{value}\r\n"), "STORED\r\n".to_owned())
            }
            (true, false) => {
                (format!("get {key}\r\n"), format!("VALUE {key} 0 {size}\r\n{value}\r\nEND\r\n"))
            }
        };
        requests.extend(request.bytes());
        replies.extend(reply.bytes());
    }

    /// Sends batches while `left` counts down; returns the time of each in microseconds.
    async fn run(self, seed: u64, left: Rc<Cell<u64>>) -> Result<Vec<u64>, std::io::Error> {
        let mut stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let (mut requests, mut want, mut got) = (Vec::new(), Vec::new(), Vec::new());
        let (mut random, mut times) = (seed, Vec::new());
        while left.get() > 0 {
            let count = self.pipeline.min(left.get());
            left.set(left.get() - count);
            requests.clear();
            want.clear();
            for _ in 0..count {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let draw = random >> 33;
                self.put(
                    draw % KEYS,
                    draw / KEYS % 100 < self.writes_percent,
                    &mut requests,
                    &mut want,
                );
            }
            let start = Instant::now();
            stream.write_all(&requests).await?;
            got.resize(want.len(), 0);
            stream.read_exact(&mut got).await?;
            times.push(start.elapsed().as_micros() as u64);
            if got != want {
                return Err(std::io::Error::other("a wrong reply"));
            }
        }
        Ok(times)
    }

    /// Writes every key once, so that no read misses.
    async fn fill(&self) -> Result<(), std::io::Error> {
        let mut stream = TcpStream::connect(&self.address).await?;
        let (mut requests, mut want, mut got) = (Vec::new(), Vec::new(), Vec::new());
        for first in (0..KEYS).step_by(100) {
            requests.clear();
            want.clear();
            (first..first + 100).for_each(|key| self.put(key, true, &mut requests, &mut want));
            stream.write_all(&requests).await?;
            got.resize(want.len(), 0);
            stream.read_exact(&mut got).await?;
            if got != want {
                return Err(std::io::Error::other("a write was refused"));
            }
        }
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [address, protocol, writes, connections, pipeline, size, requests] = &args[..] else {
        println!("load: seven arguments are needed; scripts/bench gives them");
        return Ok(());
    };
    let load = Load {
        address: address.clone(),
        memcache: protocol == "memcache",
        writes_percent: writes.parse()?,
        pipeline: pipeline.parse()?,
        value: "x".repeat(size.parse()?),
    };
    let (connections, requests): (u64, u64) = (connections.parse()?, requests.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let left = Rc::new(Cell::new(requests));
    let (elapsed, mut times) = LocalSet::new().block_on(&runtime, async {
        load.fill().await?;
        let start = Instant::now();
        let running: Vec<_> = (0..connections)
            .map(|seed| spawn_local(load.clone().run(seed + 1, Rc::clone(&left))))
            .collect();
        let mut times = Vec::new();
        for one in running {
            times.extend(one.await??);
        }
        Ok::<_, Failure>((start.elapsed(), times))
    })?;
    times.sort_unstable();
    let at = |share: f64| times[(times.len() as f64 * share) as usize] as f64 / 1000.0;
    let rate = requests as f64 / elapsed.as_secs_f64();
    println!("{rate:.0},{:.3},{:.3}", at(0.5), at(0.99));
    Ok(())
}
