//! CBI1 frames, read and written: a header of 48 bytes, then words or images, little-endian.

use xxhash_rust::xxh3::xxh3_64;

const HEADER: usize = 48;
const SNAPSHOT: u16 = 1;
const DELTA: u16 = 2;
/// Words of one chunk.
const CHUNK_WORDS: usize = 524_288;

/// What is said of the filter in every frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    pub seed: u64,
    pub buckets: u64,
    pub dc: u64,
}

/// A frame's content.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    Chunk { index: u32, count: u32, first: u64, words: Vec<u64> },
    Delta { base: u64, images: Vec<(u32, u64)> },
}

/// Reads a frame; gives its sequence too. Whatever is not as it must be is a panic.
pub fn read(about: About, bytes: &[u8]) -> (u64, Frame) {
    let u16_at = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(&bytes[..4], b"CBI1");
    assert_eq!((u16_at(4), u16_at(10)), (1, 1), "versions");
    assert_eq!((bytes[8], bytes[9]), (16, 4), "fingerprint bits, slots of a bucket");
    assert_eq!(About { seed: u64_at(12), buckets: u64_at(20), dc: u64_at(28) }, about);
    let body = &bytes[HEADER..];
    assert_eq!(u32_at(44), xxh3_64(body) as u32, "checksum");
    let frame = match u16_at(6) {
        SNAPSHOT => Frame::Chunk {
            index: u32_at(HEADER),
            count: u32_at(HEADER + 4),
            first: u64_at(HEADER + 8),
            words: (HEADER + 16..bytes.len()).step_by(8).map(u64_at).collect(),
        },
        DELTA => {
            let images: Vec<(u32, u64)> = (HEADER + 12..bytes.len())
                .step_by(12)
                .map(|at| (u32_at(at), u64_at(at + 4)))
                .collect();
            assert_eq!(u32_at(HEADER + 8) as usize, images.len());
            Frame::Delta { base: u64_at(HEADER), images }
        }
        other => panic!("a frame of kind {other}"),
    };
    (u64_at(36), frame)
}

/// The chunks of a whole filter.
pub fn chunks(about: About, sequence: u64, words: &[u64]) -> Vec<Vec<u8>> {
    let count = words.len().div_ceil(CHUNK_WORDS) as u32;
    let chunk = |(index, run): (usize, &[u64])| {
        let mut body = (index as u32).to_le_bytes().to_vec();
        body.extend(count.to_le_bytes());
        body.extend(((index * CHUNK_WORDS) as u64).to_le_bytes());
        body.extend(run.iter().flat_map(|word| word.to_le_bytes()));
        frame(about, SNAPSHOT, sequence, &body)
    };
    words.chunks(CHUNK_WORDS).enumerate().map(chunk).collect()
}

/// A change from `base` to the next sequence.
pub fn delta(about: About, base: u64, images: &[(u32, u64)]) -> Vec<u8> {
    let mut body = base.to_le_bytes().to_vec();
    body.extend((images.len() as u32).to_le_bytes());
    for (bucket, word) in images {
        body.extend(bucket.to_le_bytes());
        body.extend(word.to_le_bytes());
    }
    frame(about, DELTA, base + 1, &body)
}

fn frame(about: About, kind: u16, sequence: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"CBI1".to_vec();
    bytes.extend(1u16.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend([16, 4]);
    bytes.extend(1u16.to_le_bytes());
    for number in [about.seed, about.buckets, about.dc, sequence] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend((xxh3_64(body) as u32).to_le_bytes());
    assert_eq!(bytes.len(), HEADER);
    bytes.extend(body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_written() {
        let about = About { seed: 5, buckets: 4, dc: 9 };
        let words = [1, 0, 3, u64::MAX];
        let chunks = chunks(about, 7, &words);
        let chunk = Frame::Chunk { index: 0, count: 1, first: 0, words: words.to_vec() };
        assert_eq!((chunks.len(), read(about, &chunks[0])), (1, (7, chunk)));
        let images = vec![(3, 8), (0, 0)];
        let delta = delta(about, 7, &images);
        assert_eq!(read(about, &delta), (8, Frame::Delta { base: 7, images }));
    }
}
