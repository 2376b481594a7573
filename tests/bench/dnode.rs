//! Micro benches of DNODE frames: headers both ways, and encrypted bodies.
//!
//! `cargo bench --bench dnode`

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use torc::proto::dnode::crypto::{BodyCipher, ChunkCipher, LinkKey};
use torc::proto::dnode::{DATA_PLAIN, HeaderDecoder, HeaderLimits, MsgType, VERSION_C, put_header};

const MBUF_SIZE: usize = 16 * 1024;

fn write(out: &mut Vec<u8>, id: u64) {
    let kind = MsgType::Req.code();
    put_header(out, id, kind, 0, VERSION_C, true, DATA_PLAIN, 33);
}

fn headers(c: &mut Criterion) {
    let mut out = Vec::with_capacity(256);
    let mut id = 1_000_000;
    c.bench_function("dnode/put_header", |b| {
        b.iter(|| {
            out.clear();
            id += 1;
            write(&mut out, black_box(id));
            out.len()
        });
    });
    let mut frame = Vec::new();
    write(&mut frame, 1_234_567);
    let limits = HeaderLimits::default();
    c.bench_function("dnode/decode", |b| {
        b.iter(|| HeaderDecoder::default().decode(black_box(&frame), &limits));
    });
}

fn bodies(c: &mut Criterion) {
    let cipher = ChunkCipher::new(&LinkKey::from_bytes([7; 32]), MBUF_SIZE);
    let mut group = c.benchmark_group("dnode/body");
    for len in [64, 1024, 64 * 1024] {
        let plain = vec![b'x'; len];
        let (mut sealed, mut opened) = (Vec::new(), Vec::new());
        cipher.seal(&plain, &mut sealed);
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("open/{len}"), |b| {
            b.iter(|| {
                opened.clear();
                cipher.open(black_box(&sealed), &mut opened)
            });
        });
        group.bench_function(format!("seal/{len}"), |b| {
            b.iter(|| {
                sealed.clear();
                cipher.seal(black_box(&plain), &mut sealed);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, headers, bodies);
criterion_main!(benches);
