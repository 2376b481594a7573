//! Glob patterns of KEYS and the SCAN family, as `stringmatchlen` of Redis takes them: `*`, `?`,
//! `[a-z]`, `[^...]` and `\` before a literal. Works on bytes, in time linear in practice: only
//! the last star is ever retried.

/// True when all of `text` matches `pattern`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if p < pattern.len() && pattern[p] == b'*' {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        if t == text.len() && p == pattern.len() {
            return true;
        }
        let step = match p < pattern.len() && t < text.len() {
            true => match_one(&pattern[p..], text[t]),
            false => None,
        };
        match (step, retry) {
            (Some(used), _) => {
                p += used;
                t += 1;
            }
            (None, Some((star, from))) if from < text.len() => {
                retry = Some((star, from + 1));
                p = star;
                t = from + 1;
            }
            (None, _) => return false,
        }
    }
}

/// Bytes of `pattern` (not empty, not a star) that match `byte`, or `None`.
fn match_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern[0] {
        b'?' => Some(1),
        b'[' => match_class(pattern, byte),
        b'\\' if pattern.len() >= 2 => (pattern[1] == byte).then_some(2),
        literal => (literal == byte).then_some(1),
    }
}

/// A class in brackets; one that is not closed ends with the pattern.
fn match_class(pattern: &[u8], byte: u8) -> Option<usize> {
    let mut p = 1;
    let negated = pattern.get(p) == Some(&b'^');
    p += usize::from(negated);
    let mut found = false;
    loop {
        match pattern[p..] {
            [] => break,
            [b'\\', escaped, ..] => {
                found |= escaped == byte;
                p += 2;
            }
            [b']', ..] => {
                p += 1;
                break;
            }
            [from, b'-', to, ..] => {
                found |= (from.min(to)..=from.max(to)).contains(&byte);
                p += 3;
            }
            [literal, ..] => {
                found |= literal == byte;
                p += 1;
            }
        }
    }
    (found != negated).then_some(p)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, want) in [
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeello", true),
            ("h*l*o", "hello", true),
            ("*a*b*c", "xaybzc", true),
            ("*a*b*c", "xaybzcd", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hbllo", true),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[\\]]", "]", true),
            ("[abc", "b", true),
            ("a[", "a", false),
            ("\\", "\\", true),
            ("key:*", "key:", true),
            ("a**", "a", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                want,
                "{pattern:?} over {text:?}"
            );
        }
    }

    #[test]
    fn many_stars_do_not_explode() {
        let text = "a".repeat(10_000);
        assert!(!matches("*a*a*a*a*a*a*a*a*a*a*b".as_bytes(), text.as_bytes()));
    }
}
