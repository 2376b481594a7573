//! Micro benches of the client protocols: find requests, look commands up, find replies' ends,
//! lift them to RESP3.
//!
//! `cargo bench --bench resp`

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use torc::proto::args::Args;
use torc::proto::memcache::decode::{McDecoder, McLimits};
use torc::proto::memcache::reply::{McReplyLimits, McReplyScanner};
use torc::proto::resp::decode::{RequestDecoder, RequestLimits};
use torc::proto::resp::reply::{ReplyLimits, ReplyScanner};
use torc::proto::resp::shape::Shape;
use torc::proto::resp::table::{self, ModuleCommands};
use torc::proto::resp::{encode, lift};

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut frame = Vec::new();
    encode::command(&mut frame, words.iter().copied());
    frame
}

fn requests(c: &mut Criterion) {
    let limits = RequestLimits::default();
    let mut spans = Vec::with_capacity(16);
    let set = command(&[b"SET", b"user:0000000042", b"xxxxxxxxxxxxxxxx"]);
    let get = command(&[b"GET", b"user:0000000042"]);
    for (name, frame) in [("set", &set), ("get", &get)] {
        let mut decoder = RequestDecoder::default();
        c.bench_function(&format!("resp/decode/{name}"), |b| {
            b.iter(|| decoder.decode(black_box(frame), &limits, &mut spans));
        });
    }
    let modules = ModuleCommands::default();
    RequestDecoder::default().decode(&set, &limits, &mut spans).unwrap();
    c.bench_function("resp/table/find", |b| {
        b.iter(|| {
            let args = Args::new(black_box(&set), &spans);
            table::find(&args, &modules).map(|spec| (spec.class_of(&args), spec.first_key(&args)))
        });
    });
    let line = b"set user:0000000042 0 0 16\r\nxxxxxxxxxxxxxxxx\r\n";
    let mut decoder = McDecoder::default();
    c.bench_function("memcache/decode/set", |b| {
        b.iter(|| decoder.decode(black_box(line), &McLimits::default(), &mut spans));
    });
}

fn replies(c: &mut Criterion) {
    let limits = ReplyLimits::default();
    let mut scanner = ReplyScanner::default();
    let mut hash = Vec::new();
    encode::array(&mut hash, 20);
    (0..20).for_each(|_| encode::bulk(&mut hash, b"0123456789"));
    let cases: [(&str, &[u8]); 4] = [
        ("ok", b"+OK\r\n"),
        ("int", b":1000\r\n"),
        ("bulk", b"$16\r\nxxxxxxxxxxxxxxxx\r\n"),
        ("array", &hash),
    ];
    for (name, reply) in cases {
        c.bench_function(&format!("resp/scan/{name}"), |b| {
            b.iter(|| scanner.scan(black_box(reply), &limits));
        });
    }
    let mut out = Vec::with_capacity(1024);
    c.bench_function("resp/lift/map", |b| {
        b.iter(|| {
            out.clear();
            lift::lift(black_box(Shape::Map), &hash, &mut out);
            out.len()
        });
    });
    let value = b"VALUE user:0000000042 0 16\r\nxxxxxxxxxxxxxxxx\r\nEND\r\n";
    let mut scanner = McReplyScanner::default();
    c.bench_function("memcache/scan/value", |b| {
        b.iter(|| scanner.scan(black_box(value), &McReplyLimits::default()));
    });
}

criterion_group!(benches, requests, replies);
criterion_main!(benches);
