//! The fuzz targets' bodies on inputs drawn from a seed: a slice of what `tests/fuzz` runs for
//! hours. `FUZZ_SEED` and `FUZZ_INPUTS` (of each target) ask for others.

// A test binary has no callers: what its modules share is not public to anybody.
#![allow(unreachable_pub)]

#[path = "../fuzz/bodies/cbi1.rs"]
mod cbi1;
#[path = "../fuzz/bodies/dnode.rs"]
mod dnode;
mod draw;
#[path = "../fuzz/bodies/memcache.rs"]
mod memcache;
#[path = "../fuzz/bodies/resp.rs"]
mod resp;
#[path = "../oracle/steps.rs"]
mod steps;

use draw::{Draw, hex_of};

/// Inputs of each target without `FUZZ_INPUTS`: a second or two of an unoptimised build.
const INPUTS: u64 = 30_000;

/// Inputs like `seeds`, from pieces of them, of `words` and of noise.
fn run(target: fn(&[u8]), seeds: Vec<Vec<u8>>, words: &[&[u8]]) {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seed = number("FUZZ_SEED").unwrap_or(1);
    let inputs = number("FUZZ_INPUTS").unwrap_or(INPUTS);
    println!("FUZZ_SEED={seed}");
    seeds.iter().for_each(|input| target(input));
    let mut draw = Draw::new(seed, seeds, words);
    for _ in 0..inputs {
        let input = draw.next();
        // Printed with the failure, to be made a test of its own.
        let shown = Shown(&input);
        target(&input);
        std::mem::forget(shown);
    }
}

/// Prints an input when the target gives up on it.
struct Shown<'a>(&'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        println!("input: b\"{}\"", self.0.escape_ascii());
    }
}

/// An input behind the byte that says how long its pieces are.
fn in_pieces(bytes: &[u8], step: u8) -> Vec<u8> {
    [&[step], bytes].concat()
}

#[test]
fn resp_requests_and_replies() {
    let mut seeds = Vec::new();
    for line in include_str!("../oracle/lift.txt").lines() {
        let words = line.split(' ');
        let mut request = format!("*{}\r\n", words.clone().count()).into_bytes();
        words.for_each(|w| request.extend(format!("${}\r\n{w}\r\n", w.len()).bytes()));
        seeds.push(in_pieces(&request, 3));
        seeds.push(in_pieces(format!("{line}\r\n").as_bytes(), 7));
    }
    let replies: [&[u8]; 6] = [
        b"*3\r\n$1\r\na\r\n:-5\r\n*2\r\n$-1\r\n+OK\r\n",
        b"*2\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n*-1\r\n",
        b"-WRONGTYPE Operation\r\n",
        b"$0\r\n\r\n",
        b":9223372036854775807\r\n",
        b"*4\r\n$1\r\nb\r\n$3\r\n2.5\r\n$1\r\na\r\n$3\r\ninf\r\n",
    ];
    seeds.extend(replies.map(|reply| in_pieces(reply, 2)));
    let words: [&[u8]; 10] =
        [b"\r\n", b"*", b"$", b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"$0\r\n", b"\"", b"\\x", b"-"];
    run(resp::run, seeds, &words);
}

#[test]
fn memcache_requests_and_replies() {
    let mut seeds: Vec<_> = steps::steps().map(|step| in_pieces(&step, 5)).collect();
    let replies: [&[u8]; 5] = [
        b"VALUE k 0 1\r\nv\r\nVALUE k 7 2 12\r\n\r\n\r\nEND\r\n",
        b"VA 2 s2 t-1 f5 kk c22 O123\r\nhi\r\n",
        b"STAT pid 1\r\nSTAT time 2\r\nEND\r\n",
        b"SERVER_ERROR out of memory storing object\r\n",
        b"NOT_STORED\r\n",
    ];
    seeds.extend(replies.map(|reply| in_pieces(reply, 4)));
    let words: [&[u8]; 14] = [
        b"\r\n", b" ", b"noreply", b"VALUE ", b"END\r\n", b"get ", b"ms ", b"mg ", b" q", b" b",
        b" C1", b"-1", b"\0", b"\x80",
    ];
    run(memcache::run, seeds, &words);
}

#[test]
fn dnode_headers() {
    let seeds: [&[u8]; 4] = [
        b"   $2014$ 1 3 0 1 1 *1 d *22\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        b"   $2014$ 18446744073709551615 255 15 255 0 *5 d;s=1 *0\r\n",
        b"noise $20 $2014$ x    $2014$ 2 4 1 1 1 *6 d;w=2; *65536\r\n",
        b"   $2014$ 7 12 0 1 1 *1 d *70000\r\n",
    ];
    let seeds = seeds.map(|bytes| in_pieces(bytes, 3)).to_vec();
    let words: [&[u8]; 8] =
        [b"$2014$ ", b"   ", b" *", b"\r\n", b"d;s=", b";r=c", b";o=1", b"99999999999999999999"];
    run(dnode::run, seeds, &words);
}

#[test]
fn cbi1_frames() {
    let vectors = include_str!("../vectors/cbi1.json");
    let frame = |hex: &str| [&[1u8, 1][..], &hex_of(hex)].concat();
    let seeds: Vec<_> = draw::strings_after(vectors, "\"hex\": \"")
        .filter(|hex| hex.len() < 8_000)
        .map(frame)
        .collect();
    assert!(seeds.len() > 20, "the vectors have frames");
    let words: [&[u8]; 5] = [b"CBI1", b"\x01\0", b"\x02\0", b"\0\0\0\0", b"\xff\xff\xff\xff"];
    run(cbi1::run, seeds, &words);
}
