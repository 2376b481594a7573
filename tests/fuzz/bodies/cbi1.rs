//! Any bytes as a filter's payload: a frame of the expected format or an error, and a frame that
//! is accepted encodes to the same bytes again. Its chunks never make more than one table.

use torc::ckf::cbi1::{Assembler, Frame, HEADER_BYTES, Stamp, decode, encode_chunk, encode_delta};
use torc::ckf::format::CkfFormat;
use xxhash_rust::xxh3::xxh3_64;

const SEED: u64 = 7;

/// Runs one input: a byte for the size of the table, one that says whether the header is made good,
/// and a payload.
pub(crate) fn run(input: &[u8]) {
    let [bits, sealed, payload @ ..] = input else { return };
    let mut bytes = payload.to_vec();
    let format = CkfFormat::new(SEED, 2 << (bits % 12)).expect("a format");
    if sealed % 2 == 1 && bytes.len() >= HEADER_BYTES {
        seal(&mut bytes, &format);
    }
    let Ok(frame) = decode(&bytes, &format) else { return };
    let mut again = Vec::new();
    match &frame {
        Frame::Delta(delta) => {
            let stamp = Stamp { format, dc_id: delta.dc_id, epoch: delta.epoch };
            let images: Vec<_> = delta.images().collect();
            assert!(images.iter().all(|image| u64::from(image.bucket) < format.bucket_count));
            encode_delta(&mut again, &stamp, delta.base_epoch, &images).expect("it was decoded");
            assert_eq!(again, bytes);
        }
        Frame::Chunk(chunk) => {
            let mut assembler = Assembler::new(format);
            if let Ok(Some(snapshot)) = assembler.push(&frame) {
                assert_eq!(snapshot.words.len() as u64, format.bucket_count);
                let stamp = Stamp { format, dc_id: chunk.dc_id, epoch: snapshot.epoch };
                encode_chunk(&mut again, &stamp, &snapshot.words, 0).expect("it was decoded");
                assert_eq!(again, bytes);
            }
        }
    }
}

/// Makes a header that is accepted but for what the fuzzer chose of it, so that bodies are reached.
fn seal(bytes: &mut [u8], format: &CkfFormat) {
    bytes[..6].copy_from_slice(b"CBI1\x01\0");
    bytes[8..12].copy_from_slice(&[format.fingerprint_bits, format.slots_per_bucket, 1, 0]);
    bytes[12..20].copy_from_slice(&format.seed.to_le_bytes());
    bytes[20..28].copy_from_slice(&format.bucket_count.to_le_bytes());
    let sum = xxh3_64(&bytes[HEADER_BYTES..]) as u32;
    bytes[44..48].copy_from_slice(&sum.to_le_bytes());
}
