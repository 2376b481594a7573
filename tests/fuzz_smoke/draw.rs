//! Draws inputs from seeds: pieces of them are cut, doubled, swapped and spoilt.

use fastrand::Rng;

/// Longest input, in bytes.
const INPUT_BYTES_MAX: usize = 4_096;

pub struct Draw<'a> {
    rng: Rng,
    seeds: Vec<Vec<u8>>,
    words: &'a [&'a [u8]],
}

impl<'a> Draw<'a> {
    pub fn new(seed: u64, seeds: Vec<Vec<u8>>, words: &'a [&'a [u8]]) -> Draw<'a> {
        Draw { rng: Rng::with_seed(seed), seeds, words }
    }

    pub fn next(&mut self) -> Vec<u8> {
        let mut input = self.seed();
        for _ in 0..self.rng.usize(1..6) {
            self.change(&mut input);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn seed(&mut self) -> Vec<u8> {
        self.seeds[self.rng.usize(..self.seeds.len())].clone()
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.rng.usize(..=input.len());
        match self.rng.u32(0..8) {
            0 => input.truncate(at),
            1 => {
                let end = self.rng.usize(at..=input.len());
                input.drain(at..end);
            }
            2 => {
                let end = self.rng.usize(at..=input.len()).min(at + 64);
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
            3 => {
                let other = self.seed();
                input.truncate(at);
                input.extend_from_slice(&other[self.rng.usize(..=other.len())..]);
            }
            4 => {
                let word = self.words[self.rng.usize(..self.words.len())];
                input.splice(at..at, word.iter().copied());
            }
            5 => {
                // Numbers are what lengths and counts are made of.
                let number = match self.rng.u32(0..4) {
                    0 => self.rng.u64(..).to_string(),
                    1 => format!("-{}", self.rng.u8(..)),
                    2 => (1u64 << self.rng.u32(..64)).to_string(),
                    _ => self.rng.u8(..).to_string(),
                };
                let digits = input[at..].iter().take_while(|b| b.is_ascii_digit()).count();
                input.splice(at..at + digits, number.bytes());
            }
            _ if input.is_empty() => {}
            kind => {
                let at = at.min(input.len() - 1);
                input[at] ^= if kind == 6 { 1 << self.rng.u32(0..8) } else { self.rng.u8(..) };
            }
        }
    }
}

/// The bytes written as `hex`.
pub fn hex_of(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits");
    (0..hex.len() / 2).map(|i| digit(2 * i)).collect()
}

/// What stands between each `begin` and the next quotation mark.
pub fn strings_after<'t>(text: &'t str, begin: &'t str) -> impl Iterator<Item = &'t str> {
    text.split(begin).skip(1).filter_map(|rest| rest.split('"').next())
}
