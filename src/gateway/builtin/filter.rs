//! Filters: `=`, `IN [..]`, `AND`, `OR` and parentheses, as text or as nested arrays.

use serde_json::{Map, Value};

/// A filter expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Filter {
    All(Vec<Filter>),
    Any(Vec<Filter>),
    In { attribute: String, values: Vec<String>, equals: bool },
}

/// An attribute that is not filterable, with the text Meilisearch shows.
pub(super) struct NotFilterable {
    pub(super) attribute: String,
    pub(super) place: String,
}

impl Filter {
    /// Reads a filter; `Err` says what is wrong with its grammar.
    pub(super) fn parse(value: &Value) -> Result<Filter, String> {
        match value {
            Value::String(text) if text.trim().is_empty() => {
                Err("Sending an empty filter is forbidden.".to_owned())
            }
            Value::String(text) => parse_text(text),
            Value::Array(parts) => {
                let parts = parts.iter().map(|part| match part {
                    Value::Array(any) => {
                        let any = any.iter().map(Filter::parse).collect::<Result<_, _>>()?;
                        Ok(Filter::Any(any))
                    }
                    other => Filter::parse(other),
                });
                Ok(Filter::All(parts.collect::<Result<_, _>>()?))
            }
            other => Err(format!("expected a string or an array of strings, found `{other}`")),
        }
    }

    pub(super) fn matches(&self, document: &Map<String, Value>) -> bool {
        match self {
            Filter::All(parts) => parts.iter().all(|part| part.matches(document)),
            Filter::Any(parts) => parts.iter().any(|part| part.matches(document)),
            Filter::In { attribute, values, .. } => match document.get(attribute) {
                Some(Value::Array(items)) => {
                    items.iter().any(|item| values.iter().any(|v| equals(item, v)))
                }
                Some(item) => values.iter().any(|v| equals(item, v)),
                None => false,
            },
        }
    }

    /// The first attribute outside `filterable`. `rendered` shows the filter as search does,
    /// quoted; otherwise the place is counted in the text as it came.
    pub(super) fn check(&self, filterable: &[String], rendered: bool) -> Result<(), NotFilterable> {
        match self {
            Filter::All(parts) | Filter::Any(parts) => {
                parts.iter().try_for_each(|part| part.check(filterable, rendered))
            }
            Filter::In { attribute, .. } if filterable.contains(attribute) => Ok(()),
            Filter::In { attribute, .. } => {
                let start = if rendered { 2 } else { 1 };
                let place =
                    format!("{start}:{} {}", start + attribute.len(), self.render(rendered));
                Err(NotFilterable { attribute: attribute.clone(), place })
            }
        }
    }

    fn render(&self, quoted: bool) -> String {
        let show = |text: &str| if quoted { format!("\"{text}\"") } else { text.to_owned() };
        let join = |parts: &[Filter], word: &str| {
            parts.iter().map(|part| part.render(quoted)).collect::<Vec<_>>().join(word)
        };
        match self {
            Filter::All(parts) => join(parts, " AND "),
            Filter::Any(parts) => format!("({})", join(parts, " OR ")),
            Filter::In { attribute, values, equals: true } => {
                format!("{} = {}", show(attribute), show(&values[0]))
            }
            Filter::In { attribute, values, equals: false } => {
                let values: Vec<String> = values.iter().map(|v| show(v)).collect();
                format!("{} IN [{}]", show(attribute), values.join(", "))
            }
        }
    }
}

fn equals(item: &Value, text: &str) -> bool {
    match item {
        Value::String(s) => s.to_lowercase() == text.to_lowercase(),
        Value::Number(n) => text.parse::<f64>().is_ok_and(|v| n.as_f64() == Some(v)),
        Value::Bool(b) => text.eq_ignore_ascii_case(if *b { "true" } else { "false" }),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Quoted(String),
    Sign(char),
}

/// Deepest nesting of parentheses.
const NESTING_MAX: usize = 64;

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

fn parse_text(text: &str) -> Result<Filter, String> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
    let filter = parser.any()?;
    if parser.at < parser.tokens.len() {
        return Err(format!("Found unexpected characters at the end of the filter: `{text}`."));
    }
    Ok(filter)
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut out = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => {}
            '=' | '[' | ']' | '(' | ')' | ',' => out.push(Token::Sign(c)),
            '"' | '\'' => {
                let mut word = String::new();
                loop {
                    match chars.next() {
                        Some(end) if end == c => break,
                        Some('\\') => word.extend(chars.next()),
                        Some(other) => word.push(other),
                        None => return Err(format!("missing closing quote in `{text}`")),
                    }
                }
                out.push(Token::Quoted(word));
            }
            c => {
                let mut word = String::from(c);
                while let Some(&next) = chars.peek() {
                    if next.is_whitespace() || "=[](),\"'".contains(next) {
                        break;
                    }
                    word.push(next);
                    chars.next();
                }
                out.push(Token::Word(word));
            }
        }
    }
    Ok(out)
}

impl Parser {
    fn keyword(&mut self, name: &str) -> bool {
        let found = matches!(self.tokens.get(self.at), Some(Token::Word(w)) if w == name);
        self.at += usize::from(found);
        found
    }

    fn sign(&mut self, sign: char) -> bool {
        let found = self.tokens.get(self.at) == Some(&Token::Sign(sign));
        self.at += usize::from(found);
        found
    }

    fn any(&mut self) -> Result<Filter, String> {
        let mut parts = vec![self.all()?];
        while self.keyword("OR") {
            parts.push(self.all()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Filter::Any(parts) })
    }

    fn all(&mut self) -> Result<Filter, String> {
        let mut parts = vec![self.term()?];
        while self.keyword("AND") {
            parts.push(self.term()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Filter::All(parts) })
    }

    fn term(&mut self) -> Result<Filter, String> {
        if self.sign('(') {
            self.depth += 1;
            if self.depth > NESTING_MAX {
                return Err("too many nested parentheses".to_owned());
            }
            let inner = self.any()?;
            self.depth -= 1;
            return if self.sign(')') { Ok(inner) } else { Err(self.expected("`)`")) };
        }
        let attribute = self.value()?;
        if self.sign('=') {
            return Ok(Filter::In { attribute, values: vec![self.value()?], equals: true });
        }
        if !(self.keyword("IN") && self.sign('[')) {
            return Err(self.expected("`=` or `IN [`"));
        }
        let mut values = Vec::new();
        while !self.sign(']') {
            values.push(self.value()?);
            if !self.sign(',') && self.tokens.get(self.at) != Some(&Token::Sign(']')) {
                return Err(self.expected("`,` or `]`"));
            }
        }
        Ok(Filter::In { attribute, values, equals: false })
    }

    fn value(&mut self) -> Result<String, String> {
        match self.tokens.get(self.at) {
            Some(Token::Word(text) | Token::Quoted(text)) => {
                self.at += 1;
                Ok(text.clone())
            }
            _ => Err(self.expected("a name or a value")),
        }
    }

    fn expected(&self, what: &str) -> String {
        let found = match self.tokens.get(self.at) {
            Some(Token::Word(text) | Token::Quoted(text)) => format!("`{text}`"),
            Some(Token::Sign(sign)) => format!("`{sign}`"),
            None => "the end".to_owned(),
        };
        format!("Was expecting {what}, found {found}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn matches(filter: Value, document: Value) -> bool {
        Filter::parse(&filter).unwrap().matches(document.as_object().unwrap())
    }

    #[test]
    fn expressions_bind_as_written() {
        let document = json!({"g": "A", "n": 3, "t": ["x", "y"], "b": true});
        for (filter, expected) in [
            (json!("g = a"), true),
            (json!("g = b OR n = 3 AND t = y"), true),
            (json!("(g = b OR n = 3) AND t = z"), false),
            (json!("n IN [1, 3]"), true),
            (json!("n IN []"), false),
            (json!("b = true AND g = \"A\""), true),
            (json!("missing = 1"), false),
            (json!(["g = a", ["n = 4", "t = x"]]), true),
            (json!(["g = a", "n = 4"]), false),
        ] {
            assert_eq!(matches(filter.clone(), document.clone()), expected, "{filter}");
        }
    }

    #[test]
    fn broken_filters_are_refused() {
        for text in ["", "g", "g =", "g = a b", "(g = a", "g IN 1", "g IN [1", "g = 'a"] {
            assert!(Filter::parse(&json!(text)).is_err(), "{text}");
        }
        assert!(Filter::parse(&json!(5)).is_err());
        assert!(Filter::parse(&json!("(".repeat(100_000))).is_err());
    }
}
