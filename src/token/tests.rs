use std::cmp::Ordering;

use num_bigint::BigUint;
use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct File {
    single: Vec<Single>,
    lists: Vec<List>,
    compare: Vec<Pair>,
}

#[derive(Deserialize)]
struct Single {
    text_hex: String,
    sign: i32,
    words: Vec<u32>,
}

#[derive(Deserialize)]
struct List {
    text: String,
    tokens_in_stored_order: Vec<Stored>,
    single_token_variant: Stored,
}

#[derive(Deserialize)]
struct Stored {
    sign: i32,
    words: Vec<u32>,
}

#[derive(Deserialize)]
struct Pair {
    a: Side,
    b: Side,
    cmp: i32,
}

#[derive(Deserialize)]
struct Side {
    sign: i32,
    len_words: usize,
    word0: u32,
}

impl Side {
    /// The vectors vary only the word at index 0, the most significant.
    fn token(&self) -> DynToken {
        let mut words = vec![0; self.len_words];
        words[self.len_words - 1] = self.word0;
        DynToken::from_words(sign_of(self.sign), &words).unwrap()
    }
}

fn sign_of(sign: i32) -> Sign {
    match sign {
        -1 => Sign::Negative,
        0 => Sign::Zero,
        1 => Sign::Positive,
        _ => panic!("no sign: {sign}"),
    }
}

fn vectors() -> File {
    serde_json::from_str(include_str!("../../tests/vectors/tokens.json")).unwrap()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len()).step_by(2);
    pairs.map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn every_text_reads_as_in_the_reference() {
    for row in vectors().single {
        let text = bytes_of(&row.text_hex);
        let token = DynToken::parse_reference(&text);
        let shown = String::from_utf8_lossy(&text).into_owned();
        assert_eq!(token.sign(), sign_of(row.sign), "{shown:?}");
        assert_eq!(token.words(), row.words, "{shown:?}");
    }
}

#[test]
fn configuration_accepts_numbers_only_and_reads_them_like_the_reference() {
    let mut accepted = 0;
    for row in vectors().single {
        let bytes = bytes_of(&row.text_hex);
        let text = std::str::from_utf8(&bytes).unwrap();
        let digits = text.strip_prefix('-').unwrap_or(text);
        let number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let parsed = DynToken::parse_config(text);
        assert_eq!(parsed.is_ok(), number, "{text:?}");
        if let Ok(token) = parsed {
            assert_eq!(token, DynToken::parse_reference(&bytes));
            accepted += 1;
        }
    }
    assert!(accepted > 40);
}

#[test]
fn lists_are_stored_from_the_right_as_in_the_reference() {
    for row in vectors().lists {
        let tokens = DynToken::parse_reference_list(row.text.as_bytes());
        let expected = row
            .tokens_in_stored_order
            .iter()
            .map(|t| DynToken::from_words(sign_of(t.sign), &t.words).unwrap())
            .collect::<Vec<_>>();
        assert_eq!(tokens, expected, "{:?}", row.text);
        let single = &row.single_token_variant;
        let single = DynToken::from_words(sign_of(single.sign), &single.words).unwrap();
        assert_eq!(tokens[0], single, "{:?}", row.text);
    }
}

#[test]
fn comparisons_match_the_reference_but_for_negative_tokens() {
    let mut exceptions = 0;
    for row in vectors().compare {
        let found = row.a.token().cmp(&row.b.token()) as i32;
        if (row.a.sign < 0) == (row.b.sign < 0) {
            assert_eq!(found, row.cmp);
        } else {
            assert_eq!(found, -row.cmp);
            exceptions += 1;
        }
    }
    assert!(exceptions > 0);
}

#[test]
fn refusals_name_the_position() {
    let refused = |text| DynToken::parse_config(text).unwrap_err();
    assert_eq!(refused(""), TokenError::Empty { position: 0 });
    assert_eq!(refused("-"), TokenError::Empty { position: 1 });
    assert_eq!(refused("12 "), TokenError::NotADigit { position: 2, found: ' ' });
    assert_eq!(refused("-1.5"), TokenError::NotADigit { position: 2, found: '.' });
    assert_eq!(refused("１"), TokenError::NotADigit { position: 0, found: '１' });
    assert_eq!(refused("0x10"), TokenError::HexLength { position: 0, digits: 2 });
    assert_eq!(refused("0x1g"), TokenError::NotAHexDigit { position: 3, found: 'g' });
    let long = format!("0x{}", "0".repeat(33));
    assert_eq!(refused(&long), TokenError::HexLength { position: 0, digits: 33 });
    let list = |text| DynToken::parse_config_list(text).unwrap_err().position();
    assert_eq!(list("1, 2"), 2);
    assert_eq!(list("1,,2"), 2);
    assert_eq!(list("12,3x,4"), 4);
    assert_eq!(list("1,"), 2);
}

#[test]
fn lists_of_the_configuration_keep_their_order() {
    let tokens = DynToken::parse_config_list("30,-1,0").unwrap();
    let texts = tokens.iter().map(DynToken::to_string).collect::<Vec<_>>();
    assert_eq!(texts, ["30", "-1", "0"]);
}

#[test]
fn the_odd_tokens_are_ordered() {
    let text = |text| DynToken::parse_config(text).unwrap();
    let wide = text("0x00000000000000000000000000000001");
    let order = [
        text("-0"),
        text("-5"),
        text("-10"),
        text("0"),
        text("00"),
        text("1"),
        text("4294967295"),
        wide,
        text("0x80000000000000000000000000000000"),
    ];
    assert!(order.is_sorted_by(|a, b| a < b));
    assert_eq!(DynToken::from_u128(0), DynToken::ZERO);
    assert_eq!(DynToken::from_u128(0).to_string(), format!("0x{}", "0".repeat(32)));
    let wide_plus_zero = DynToken::from_words(Sign::Positive, &[0; 4]).unwrap();
    assert!(text("4294967295") < wide_plus_zero && wide_plus_zero < wide);
    assert_eq!((wide_plus_zero.as_hash_u128(), text("00").as_hash_u32()), (None, None));
    assert_eq!(DynToken::from_words(Sign::Positive, &[]), None);
    assert_eq!(DynToken::from_words(Sign::Positive, &[1; 5]), None);
}

#[test]
fn long_decimal_texts_are_told_from_plain_numbers() {
    for text in ["0", "007", "-5", "4294967295", "00004294967295", "-00"] {
        assert!(DynToken::text_keeps_value(text), "{text}");
    }
    for text in ["4294967296", "-4294967296", "12345678901", "99999999999999999999999"] {
        assert!(!DynToken::text_keeps_value(text), "{text}");
    }
    assert!(DynToken::text_keeps_value("0x0123456789abcdef0123456789abcdef"));
}

fn any_token() -> impl Strategy<Value = DynToken> {
    let sign = prop_oneof![Just(Sign::Negative), Just(Sign::Zero), Just(Sign::Positive)];
    // Few different words, so that equal prefixes are common.
    let words = prop::collection::vec(prop_oneof![0..3u32, any::<u32>()], 1..=4);
    (sign, words).prop_map(|(sign, words)| DynToken::from_words(sign, &words).unwrap())
}

proptest! {
    #[test]
    fn positive_tokens_of_one_length_compare_as_numbers(
        a in prop::collection::vec(any::<u32>(), 4),
        b in prop::collection::vec(any::<u32>(), 4),
        len in 1..=4usize,
    ) {
        let token = |words: &[u32]| DynToken::from_words(Sign::Positive, &words[..len]).unwrap();
        let number = |words: &[u32]| BigUint::from_slice(&words[..len]);
        prop_assert_eq!(token(&a).cmp(&token(&b)), number(&a).cmp(&number(&b)));
    }

    #[test]
    fn order_is_total_and_agrees_with_equality(
        a in any_token(), b in any_token(), c in any_token(),
    ) {
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        prop_assert_eq!(a == b, a.cmp(&b) == Ordering::Equal);
        if a <= b && b <= c {
            prop_assert!(a <= c);
        }
    }

    #[test]
    fn hash_values_keep_their_order(a: u32, b: u32) {
        let (x, y) = (DynToken::from_u32(a), DynToken::from_u32(b));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert_eq!(x.as_hash_u32(), Some(a));
    }

    #[test]
    fn wide_hash_values_keep_their_order(a: u128, b: u128) {
        let (x, y) = (DynToken::from_u128(a), DynToken::from_u128(b));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert_eq!(x.as_hash_u128(), Some(a));
        prop_assert_eq!(x.as_hash_u32().is_some(), a == 0);
    }

    #[test]
    fn printed_tokens_read_back(word: u32, wide: u128, negative: bool) {
        let sign = if negative { Sign::Negative } else { Sign::Positive };
        let narrow = DynToken::from_words(sign, &[word]).unwrap();
        for token in [narrow, DynToken::from_u32(word), DynToken::from_u128(wide)] {
            let back = DynToken::parse_config(&token.to_string()).unwrap();
            prop_assert_eq!(back, token);
            prop_assert_eq!(back.words().len(), token.words().len());
        }
    }

    #[test]
    fn no_bytes_are_refused_by_the_reference_reading(
        text in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let token = DynToken::parse_reference(&text);
        prop_assert_eq!(token.words().len(), 1);
        DynToken::parse_reference_list(&text);
    }
}
