//! A reply of either protocol version as it came, every type told from every other.

use std::io::{BufReader, Read};

use crate::client::{Client, encode};

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tree {
    /// A line or a string, with its type.
    One(char, Vec<u8>),
    /// A null, with what it is a null of.
    Null(char),
    /// Elements; those of a map are keys and values in turn.
    Many(char, Vec<Tree>),
}

impl Tree {
    pub fn ask(client: &mut Client, words: &[Vec<u8>]) -> Tree {
        client.send(&encode(words)).expect("sent");
        read(&mut BufReader::new(client.stream()))
    }

    /// The same for several commands, all sent before the first is answered.
    pub fn ask_at_once(client: &mut Client, commands: &[Vec<Vec<u8>>]) -> Vec<Tree> {
        let frames: Vec<u8> = commands.iter().flat_map(|words| encode(words)).collect();
        client.send(&frames).expect("sent");
        let mut reader = BufReader::new(client.stream());
        commands.iter().map(|_| read(&mut reader)).collect()
    }

    /// The types of all parts, and how many there are.
    pub fn types(&self) -> Vec<(char, usize)> {
        match self {
            Tree::One(kind, _) | Tree::Null(kind) => vec![(*kind, 0)],
            Tree::Many(kind, parts) => {
                let own = [(*kind, parts.len())];
                own.into_iter().chain(parts.iter().flat_map(Tree::types)).collect()
            }
        }
    }

    /// Its elements in ascending order.
    pub fn sorted(self) -> Tree {
        match self {
            Tree::Many(kind, mut parts) => {
                parts.sort();
                Tree::Many(kind, parts)
            }
            other => other,
        }
    }

    /// Sets and maps in ascending order, told from arrays by a reply of RESP3.
    pub fn ordered_as(&self, like: &Tree) -> Tree {
        let (Tree::Many(kind, parts), Tree::Many(form, likes)) = (self, like) else {
            return self.clone();
        };
        match form {
            '~' => self.clone().sorted(),
            '%' if parts.len() == likes.len() => {
                let mut pairs: Vec<(Tree, Tree)> = parts
                    .chunks(2)
                    .map(|pair| {
                        let at = likes.chunks(2).find(|like| like[0] == pair[0]);
                        let value = at.map_or(pair[1].clone(), |like| pair[1].ordered_as(&like[1]));
                        (pair[0].clone(), value)
                    })
                    .collect();
                pairs.sort();
                let parts = pairs.into_iter().flat_map(|(key, value)| [key, value]).collect();
                Tree::Many(*kind, parts)
            }
            _ if parts.len() == likes.len() => {
                let parts = parts.iter().zip(likes).map(|(part, like)| part.ordered_as(like));
                Tree::Many(*kind, parts.collect())
            }
            _ => self.clone(),
        }
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Tree::One(kind, text) => write!(f, "{kind}{}", text.escape_ascii()),
            Tree::Null(kind) => write!(f, "null {kind}"),
            Tree::Many(kind, parts) => {
                write!(f, "{kind}")?;
                f.debug_list().entries(parts).finish()
            }
        }
    }
}

fn read(from: &mut impl Read) -> Tree {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        from.read_exact(&mut byte).expect("a reply");
        line.push(byte[0]);
    }
    line.truncate(line.len() - 2);
    let kind = char::from(line.remove(0));
    let count = || std::str::from_utf8(&line).ok()?.parse::<i64>().ok();
    match kind {
        '$' | '=' | '*' | '~' | '%' | '>' => {}
        '_' => return Tree::Null('_'),
        _ => return Tree::One(kind, line),
    }
    let Ok(count) = usize::try_from(count().expect("a length")) else { return Tree::Null(kind) };
    match kind {
        '$' | '=' => {
            let mut text = vec![0; count + 2];
            from.read_exact(&mut text).expect("a string");
            text.truncate(count);
            Tree::One(kind, text)
        }
        '%' => Tree::Many(kind, (0..2 * count).map(|_| read(from)).collect()),
        _ => Tree::Many(kind, (0..count).map(|_| read(from)).collect()),
    }
}
