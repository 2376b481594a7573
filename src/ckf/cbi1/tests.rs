use super::*;
use crate::ckf::bucket::BucketImage;
use crate::ckf::format::{CkfFormat, FormatError};
use crate::ckf::identity::DcId;
use crate::ckf::vectors;
use proptest::prelude::*;
use serde_json::Value;

fn expected_format(row: &Value) -> CkfFormat {
    let format = &row["expected_format"];
    let seed = vectors::num(&format["seed"]);
    CkfFormat::new(seed, vectors::num(&format["bucket_count"])).unwrap()
}

fn images(row: &Value) -> Vec<BucketImage> {
    let image = |image: &Value| BucketImage {
        bucket: vectors::num(&image["bucket"]) as u32,
        word: vectors::num(&image["value"]),
    };
    vectors::rows(&row["images"]).iter().map(image).collect()
}

#[test]
fn constants_match_the_vectors() {
    let all = vectors::cbi1();
    let constants = &all["constants"];
    let constant = |name: &str| vectors::num(&constants[name]) as usize;
    assert_eq!(constant("header_len"), HEADER_BYTES);
    assert_eq!(constant("snapshot_chunk_buckets"), CHUNK_WORDS_MAX);
    assert_eq!(constant("max_frame_bytes"), FRAME_BYTES_MAX);
    assert_eq!(constant("max_delta_images"), DELTA_IMAGES_MAX);
    let largest_delta = HEADER_BYTES + DELTA_HEAD_BYTES + DELTA_IMAGES_MAX * IMAGE_BYTES;
    assert_eq!(constant("max_delta_frame_bytes"), largest_delta);
    for row in vectors::rows(&all["checksum_examples"]) {
        let sum = checksum(&vectors::bytes(&row["body_hex"]));
        assert_eq!(u64::from(sum), vectors::num(&row["low32"]));
    }
    for row in vectors::rows(&all["bucket_count_rule"]) {
        let accepted = CkfFormat::new(1, vectors::num(&row["bucket_count"])).is_ok();
        assert_eq!(Some(accepted), row["accepted"].as_bool(), "{row}");
    }
}

#[test]
fn accepted_frames_decode_and_encode_to_the_same_bytes() {
    for row in vectors::rows(&vectors::cbi1()["accepted"]) {
        let format = expected_format(row);
        let payload = vectors::bytes(&row["hex"]);
        let decoded = &row["decoded"];
        let num = |name: &str| vectors::num(&decoded[name]);
        let stamp = Stamp { format, dc_id: DcId::new(num("dc_id")), epoch: num("epoch") };
        let mut encoded = Vec::new();
        match decode(&payload, &format).unwrap_or_else(|error| panic!("{row}: {error}")) {
            Frame::Chunk(chunk) => {
                assert_eq!((chunk.dc_id, chunk.epoch), (stamp.dc_id, stamp.epoch));
                assert_eq!(u64::from(chunk.chunk_index), num("chunk_index"));
                assert_eq!(u64::from(chunk.chunk_count), num("chunk_count"));
                assert_eq!(chunk.bucket_offset, num("bucket_offset"));
                let words: Vec<u64> = chunk.words().collect();
                assert_eq!(words, vectors::nums(&decoded["words"]));
                // Our encoder cuts by its own rule, so only whole small tables can be compared.
                if words.len() != format.buckets() {
                    continue;
                }
                encode_chunk(&mut encoded, &stamp, &words, 0).unwrap();
            }
            Frame::Delta(delta) => {
                assert_eq!((delta.dc_id, delta.epoch), (stamp.dc_id, stamp.epoch));
                assert_eq!(delta.base_epoch, num("base_epoch"));
                let found: Vec<BucketImage> = delta.images().collect();
                assert_eq!(found, images(decoded));
                encode_delta(&mut encoded, &stamp, delta.base_epoch, &found).unwrap();
            }
        }
        assert_eq!(encoded, payload, "{}", row["name"]);
    }
}

#[test]
fn rejected_frames_fail_with_the_recorded_error() {
    let all = vectors::cbi1();
    for row in vectors::rows(&all["rejected"]) {
        let error = decode(&vectors::bytes(&row["hex"]), &expected_format(row)).unwrap_err();
        assert_eq!(error.label(), vectors::text(&row["expect_error"]), "{}", row["name"]);
    }
    let format = CkfFormat::new(1, 1 << 20).unwrap();
    let too_long = vec![0; FRAME_BYTES_MAX + 8];
    assert_eq!(decode(&too_long, &format).unwrap_err().label(), "frame_too_large");
}

#[test]
fn the_encoder_refuses_what_no_frame_can_hold() {
    let format = CkfFormat::new(1, 8).unwrap();
    let stamp = Stamp { format, dc_id: DcId::new(1), epoch: 1 };
    let mut out = b"kept".to_vec();
    let image = BucketImage { bucket: 7, word: 1 };
    let too_many = vec![image; DELTA_IMAGES_MAX + 1];
    let refused = [
        encode_delta(&mut out, &stamp, 0, &too_many).unwrap_err(),
        encode_delta(&mut out, &stamp, 0, &[BucketImage { bucket: 8, word: 1 }]).unwrap_err(),
        encode_chunk(&mut out, &stamp, &[0; 7], 0).unwrap_err(),
        encode_chunk(&mut out, &stamp, &[0; 8], 1).unwrap_err(),
        encode_chunk(
            &mut out,
            &Stamp { format: CkfFormat { bucket_count: 6, ..format }, ..stamp },
            &[0; 6],
            0,
        )
        .unwrap_err(),
    ];
    let labels = refused.map(|error| error.label());
    assert_eq!(
        labels,
        [
            "delta_image_count",
            "bucket_index",
            "snapshot_bucket_count",
            "chunk_index",
            "bucket_count"
        ]
    );
    assert_eq!(refused[4], EncodeError::Format(FormatError::BucketCount(6)));
    assert_eq!(out, b"kept");
}

fn nonzero(snapshot: &Snapshot) -> usize {
    snapshot.words.iter().filter(|word| **word != 0).count()
}

#[test]
fn assembly_matches_the_vectors() {
    for row in vectors::rows(&vectors::cbi1()["assembly"]) {
        let format = expected_format(row);
        let mut assembler = Assembler::new(format);
        for step in vectors::rows(&row["steps"]) {
            let payload = vectors::bytes(&step["hex"]);
            let outcome = match decode(&payload, &format) {
                Err(error) => format!("decode:{}", error.label()),
                Ok(frame) => match assembler.push(&frame) {
                    Ok(None) => "need_more".into(),
                    Ok(Some(done)) => {
                        format!("complete:epoch={}:nonzero={}", done.epoch, nonzero(&done))
                    }
                    Err(AssembleError::ChunkSequence) => "chunk_sequence".into(),
                    Err(AssembleError::IncompleteCoverage(_)) => "incomplete_coverage".into(),
                    Err(AssembleError::NoMemory(_)) => "no_memory".into(),
                },
            };
            assert_eq!(outcome, vectors::text(&step["expect"]), "{}", row["name"]);
        }
    }
}

#[test]
fn a_large_snapshot_is_cut_as_recorded() {
    let all = vectors::cbi1();
    let large = &all["large_two_chunk_snapshot"];
    let format = CkfFormat::new(0x5eed, 1 << 20).unwrap();
    let stamp = Stamp { format, dc_id: DcId::new(9), epoch: 6 };
    let mut table = vec![0; format.buckets()];
    (table[0], table[524_289], table[1_048_575]) = (11, 22, 33);
    assert_eq!(chunk_count(format.bucket_count), 2);
    let mut assembler = Assembler::new(format);
    let mut complete = None;
    for (index, row) in vectors::rows(&large["frames"]).iter().enumerate() {
        let mut frame = Vec::new();
        encode_chunk(&mut frame, &stamp, &table, index as u32).unwrap();
        assert_eq!(frame.len() as u64, vectors::num(&row["len"]));
        assert_eq!(frame[..64], vectors::bytes(&row["first_64_bytes_hex"]));
        let hash = xxhash_rust::xxh3::xxh3_64(&frame);
        assert_eq!(hash, vectors::num(&row["xxh3_64_of_whole_frame"]));
        complete = assembler.push(&decode(&frame, &format).unwrap()).unwrap();
    }
    assert_eq!(complete, Some(Snapshot { epoch: 6, words: table }));
}

#[test]
fn every_cut_of_a_frame_is_an_error() {
    for row in vectors::rows(&vectors::cbi1()["accepted"]) {
        let payload = vectors::bytes(&row["hex"]);
        for end in 0..payload.len() {
            assert!(decode(&payload[..end], &expected_format(row)).is_err());
        }
    }
}

proptest! {
    #[test]
    fn deltas_come_back_as_sent(
        seed: u64, dc: u64, base: u64, epoch: u64,
        raw in prop::collection::vec((0u32..64, any::<u64>()), 0..40),
    ) {
        let format = CkfFormat::new(seed, 64).unwrap();
        let stamp = Stamp { format, dc_id: DcId::new(dc), epoch };
        let sent: Vec<BucketImage> =
            raw.into_iter().map(|(bucket, word)| BucketImage { bucket, word }).collect();
        let mut bytes = Vec::new();
        encode_delta(&mut bytes, &stamp, base, &sent).unwrap();
        let Frame::Delta(delta) = decode(&bytes, &format).unwrap() else { panic!("a delta") };
        prop_assert_eq!((delta.dc_id.get(), delta.base_epoch, delta.epoch), (dc, base, epoch));
        prop_assert_eq!(delta.images().collect::<Vec<_>>(), sent);
    }

    #[test]
    fn snapshots_come_back_as_sent(words in prop::collection::vec(any::<u64>(), 16)) {
        let format = CkfFormat::new(3, 16).unwrap();
        let stamp = Stamp { format, dc_id: DcId::new(4), epoch: 5 };
        let mut bytes = Vec::new();
        encode_chunk(&mut bytes, &stamp, &words, 0).unwrap();
        let snapshot = Assembler::new(format).push(&decode(&bytes, &format).unwrap()).unwrap();
        prop_assert_eq!(snapshot, Some(Snapshot { epoch: 5, words }));
    }

    #[test]
    fn flipped_bytes_never_panic(at in 0usize..84, with: u8) {
        let row = &vectors::cbi1()["accepted"][3];
        let format = expected_format(row);
        let mut payload = vectors::bytes(&row["hex"]);
        payload[at] ^= with;
        let _ = decode(&payload, &format).map(|frame| Assembler::new(format).push(&frame).is_ok());
    }
}
