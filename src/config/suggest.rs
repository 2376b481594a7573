//! "Did you mean": the nearest known word, or the section a key belongs to.

use super::section::Key;

/// Similarity (Jaro-Winkler, 0 to 1) from which a word is worth suggesting.
const SIMILAR_ENOUGH: f64 = 0.82;

/// The hint for a mistyped word, when one of the known words is near.
pub(super) fn nearest<'w>(word: &str, known: impl Iterator<Item = &'w str>) -> Option<String> {
    let lower = word.to_ascii_lowercase();
    known
        .map(|k| (strsim::jaro_winkler(&lower, &k.to_ascii_lowercase()), k))
        .filter(|(score, _)| *score >= SIMILAR_ENOUGH)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, k)| format!("did you mean `{k}`?"))
}

/// The hint for a key that belongs one level deeper.
pub(super) fn home_of(word: &str, keys: &[Key]) -> Option<String> {
    let home = keys.iter().find(|k| (k.keys)().iter().any(|below| below.name == word))?;
    Some(format!("`{word}` is a key of `{}:`", home.name))
}
