use serde::Deserialize;

use super::*;
use crate::token::DynToken;

#[derive(Deserialize)]
struct File {
    hashes: std::collections::BTreeMap<String, Vec<Row>>,
    murmur3_x86_128_intended: Words,
    hash_tag: Tags,
}

#[derive(Deserialize)]
struct Row {
    key_hex: String,
    written: serde_json::Value,
    sign: Option<i32>,
    words: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct Words {
    vectors: Vec<WordsRow>,
}

#[derive(Deserialize)]
struct WordsRow {
    key_hex: String,
    words: Vec<u32>,
}

#[derive(Deserialize)]
struct Tags {
    vectors: Vec<TagRow>,
}

#[derive(Deserialize)]
struct TagRow {
    hash_tag: String,
    key: String,
    hashed_part: String,
}

fn vectors() -> File {
    serde_json::from_str(include_str!("../../tests/vectors/hashes.json")).unwrap()
}

fn unhex(hex: &str) -> Vec<u8> {
    let digit = |b: u8| (b as char).to_digit(16).unwrap() as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

#[test]
fn twelve_hashes_match_the_reference() {
    let file = vectors();
    assert_eq!(file.hashes.len(), HashType::ALL.len());
    let mut compared = 0;
    for hash in HashType::ALL.into_iter().filter(|&hash| hash != HashType::Murmur3) {
        for row in &file.hashes[hash.name()] {
            let key = unhex(&row.key_hex);
            let token = map_hash(hash, &key);
            if row.written == serde_json::Value::Bool(true) {
                let words = row.words.as_ref().unwrap();
                assert_eq!(token.words(), words, "{hash} of {}", row.key_hex);
                assert_eq!(token.sign() as i32 - 1, row.sign.unwrap());
                compared += 1;
            } else {
                // The reference leaves the token of an empty key unwritten.
                assert!(key.is_empty() && token == DynToken::ZERO, "{hash} of {}", row.key_hex);
            }
        }
    }
    assert_eq!(compared, 12 * 68 - 2);
}

#[test]
fn murmur3_fills_the_words_the_reference_leaves_unwritten() {
    let file = vectors();
    assert_eq!(file.murmur3_x86_128_intended.vectors.len(), file.hashes["murmur3"].len());
    for row in file.murmur3_x86_128_intended.vectors {
        let token = map_hash(HashType::Murmur3, &unhex(&row.key_hex));
        // The vectors list the most significant word first.
        let words = token.words().iter().rev().copied().collect::<Vec<_>>();
        assert_eq!(words, row.words, "{}", row.key_hex);
        let print = row.words.iter().map(|word| format!("{word:08x}")).collect::<String>();
        assert_eq!(token.to_string(), format!("0x{print}"));
    }
}

#[test]
fn tags_pick_the_bytes_the_reference_picks() {
    for row in vectors().hash_tag.vectors {
        let tag: HashTag = row.hash_tag.parse().unwrap();
        // An empty pair is the one exception: the whole key counts.
        let expected = if row.hashed_part.is_empty() { &row.key } else { &row.hashed_part };
        assert_eq!(tag.tagged(row.key.as_bytes()), expected.as_bytes(), "{tag} on {}", row.key);
    }
}

#[test]
fn a_key_hasher_hashes_the_tagged_part() {
    let plain = KeyHasher::default();
    let tagged = KeyHasher { tag: Some(HashTag::new(b'{', b'}')), ..plain };
    assert_eq!(plain.hash, HashType::Murmur);
    assert_eq!(plain.token(b"foo"), DynToken::from_u32(3303027599));
    assert_eq!(tagged.token(b"a{foo}b"), plain.token(b"foo"));
    assert_eq!(tagged.token(b"a{}b"), plain.token(b"a{}b"));
    assert_ne!(tagged.token(b"a{foo}b"), plain.token(b"a{foo}b"));
    assert_eq!(tagged.token_of_prefix(b"a{foo}"), Some(plain.token(b"foo")));
    for prefix in ["a", "a{foo", "a{}", "a{}{foo}", "}{"] {
        assert_eq!(tagged.token_of_prefix(prefix.as_bytes()), None, "{prefix}");
    }
    assert_eq!(plain.token_of_prefix(b"{foo}"), None);
}

#[test]
fn names_are_exact() {
    for hash in HashType::ALL {
        assert_eq!(hash.name().parse(), Ok(hash));
        assert_eq!(hash.to_string(), hash.name());
    }
    for text in ["MURMUR", "murmur ", "", "fnv", "murmur2"] {
        let error = text.parse::<HashType>().unwrap_err();
        assert!(error.to_string().contains("one_at_a_time, md5"), "{error}");
    }
}

#[test]
fn a_tag_is_exactly_two_characters() {
    for text in ["", "{", "{}}"] {
        let error = text.parse::<HashTag>().unwrap_err();
        assert!(error.to_string().contains("exactly two"), "{error}");
    }
    assert_eq!("<>".parse::<HashTag>().unwrap().to_string(), "<>");
}

#[test]
fn tokens_stay_below_the_stated_width() {
    for hash in HashType::ALL {
        for i in 0..2000u32 {
            let magnitude = map_hash(hash, &i.to_le_bytes()).magnitude();
            assert!(magnitude.checked_shr(hash.token_bits()).unwrap_or(0) == 0, "{hash}");
        }
    }
}
