use super::*;
use crate::ckf::vectors;
use serde_json::Value;

fn tokens(all: &Value, name: &Value) -> Vec<u32> {
    let set = &all["token_pipeline"]["token_sets"][vectors::text(name)];
    vectors::nums(set).into_iter().map(|token| token as u32).collect()
}

#[test]
fn token_pipeline_matches_the_vectors() {
    let all = vectors::ckf();
    for case in vectors::rows(&all["token_pipeline"]["cases"]) {
        let tokens = tokens(&all, &case["tokens"]);
        let size = vectors::num(&case["block_size"]) as usize;
        let format = [HashFormat::Standard, HashFormat::Eagle]
            .into_iter()
            .find(|format| format.name() == vectors::text(&case["format"]))
            .unwrap();
        let salt = salt_seed(case["lora_name"].as_str(), case["cache_namespace"].as_str());
        assert_eq!(salt, vectors::num(&case["salt_seed"]));
        let blocks: Vec<BlockHash> = block_hashes(&tokens, size, format, salt).collect();
        let expected: Vec<BlockHash> =
            vectors::nums(&case["block_hashes"]).into_iter().map(BlockHash).collect();
        assert_eq!(blocks, expected, "{case}");
        let chain: Vec<u64> = sequence_hashes(blocks.into_iter()).map(|hash| hash.0).collect();
        assert_eq!(chain, vectors::nums(&case["sequence_hashes"]));
    }
}

#[test]
fn format_numbers_match_the_vectors() {
    let all = vectors::ckf();
    let numbers = &all["identities"]["hash_format_identity_version"];
    for format in [HashFormat::Standard, HashFormat::Eagle] {
        assert_eq!(u64::from(format.identity_version()), vectors::num(&numbers[format.name()]));
    }
}

#[test]
fn salts_and_chain_steps_match_the_vectors() {
    let all = vectors::ckf();
    for row in vectors::rows(&all["token_pipeline"]["salt_seeds"]) {
        let seed = salt_seed(row["lora_name"].as_str(), row["cache_namespace"].as_str());
        assert_eq!(seed, vectors::num(&row["seed"]));
    }
    for row in vectors::rows(&all["token_pipeline"]["chain_steps"]) {
        let parent = SequenceHash(vectors::num(&row["parent"]));
        let next = parent.child(BlockHash(vectors::num(&row["block_hash"])));
        assert_eq!(next.0, vectors::num(&row["next"]));
    }
}

#[test]
fn multimodal_rules_match_the_vectors() {
    let all = vectors::ckf();
    let case = &all["token_pipeline"]["multimodal_case"];
    let tokens: Vec<u32> =
        vectors::nums(&case["tokens"]).into_iter().map(|token| token as u32).collect();
    let objects: Vec<Vec<u64>> =
        vectors::rows(&case["block_mm_hashes"]).iter().map(vectors::nums).collect();
    let size = vectors::num(&case["block_size"]) as usize;
    let blocks: Vec<BlockHash> =
        block_hashes_multimodal(&tokens, size, HashFormat::Standard, CHAIN_SEED, &objects)
            .collect();
    let plain: Vec<u64> = blocks.iter().map(|hash| hash.0).collect();
    assert_eq!(plain, vectors::nums(&case["block_hashes"]));
    let chain: Vec<u64> = sequence_hashes(blocks.into_iter()).map(|hash| hash.0).collect();
    assert_eq!(chain, vectors::nums(&case["sequence_hashes"]));

    for row in vectors::rows(&all["token_pipeline"]["mm_identifiers"]) {
        let expected = (!row["hash"].is_null()).then(|| vectors::num(&row["hash"]));
        assert_eq!(multimodal_hash(vectors::text(&row["identifier"])), expected);
    }
    for row in vectors::rows(&all["token_pipeline"]["mm_pad_values"]) {
        let pad = multimodal_pad_value(vectors::num(&row["mm_hash"]));
        assert_eq!(u64::from(pad), vectors::num(&row["pad_value"]));
    }
}

#[test]
fn long_blocks_hash_the_same_on_both_paths() {
    let tokens: Vec<u32> = (0..300).collect();
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    for length in [127, 128, 129, 300] {
        let whole = hash_block(&tokens[..length], &[], 7);
        assert_eq!(whole.0, xxh3_64_with_seed(&bytes[..length * 4], 7));
    }
}

#[test]
fn incomplete_windows_and_empty_sizes_give_nothing() {
    let count = |length: u32, size, format| {
        let tokens: Vec<u32> = (0..length).collect();
        block_hashes(&tokens, size, format, 0).count()
    };
    assert_eq!(count(9, 0, HashFormat::Standard), 0);
    assert_eq!(count(9, 0, HashFormat::Eagle), 0);
    assert_eq!(count(3, 4, HashFormat::Standard), 0);
    assert_eq!(count(4, 4, HashFormat::Eagle), 0);
    assert_eq!(count(5, 4, HashFormat::Eagle), 1);
    assert_eq!(count(9, 4, HashFormat::Standard), 2);
    assert_eq!(count(9, 4, HashFormat::Eagle), 2);
}
