//! The affinity commands of clients: arguments in, one RESP2 reply out.
//!
//! ```text
//! TORC.WHERE key [key ...]                       per key: [datacenter, yes | maybe | no | unknown]
//! TORC.PREFIX [DOMAIN name] [BLOCKS] hash ...    per datacenter: [name, depth, age in ms]
//! TORC.PREFIXKEYS key [key ...]                  the same for keys, in order
//! TORC.TOKENS [DOMAIN name] [BLOCK n] [EAGLE] [LORA name] [NAMESPACE name] token ...
//!                                                per block: [block hash, sequence hash]
//! TORC.KV STORED [DOMAIN name] worker rank parent|- id hash [id hash ...]
//! TORC.KV REMOVED [DOMAIN name] worker rank id [id ...]
//! TORC.KV CLEARED [DOMAIN name] worker rank
//! ```
//!
//! Numbers are decimal or `0x` hexadecimal. Hashes of `TORC.PREFIX` are sequence hashes; with
//! `BLOCKS` they are block hashes, which the node chains. In `TORC.KV STORED` an `id` is the
//! engine's name of a block and `hash` the hash of its tokens. Depth and age are null while a
//! datacenter's lane cannot be believed.

use super::Affinity;
use super::domain::{Chain, Domain, Kind, NotTaken};
use super::lanes::{Holding, holding};
use crate::ckf::hashing::{
    self, BlockHash, ExternalId, HashFormat, SequenceHash, block_hashes, salt_seed,
};
use crate::ckf::producer::{EventData, EventError, RouterEvent, Source, StoredBlock};
use crate::ckf::ringkey::{KeyProtocol, ring_key_hash};
use crate::proto::args::Args;
use crate::proto::resp::encode;

/// Why a command is refused. The text is what the client sees.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No affinity on this node.
    #[error("ERR affinity is off on this node; see affinity.mode")]
    Off,
    /// No such domain.
    #[error("ERR no affinity domain '{0}'")]
    NoDomain(String),
    /// This argument is not a number in its range.
    #[error("ERR '{0}' is not {1}")]
    NotANumber(String, &'static str),
    /// An argument is missing, or one too many.
    #[error("ERR syntax error, expected {0}")]
    Syntax(&'static str),
    /// Block size of 0.
    #[error("ERR a block needs at least one token")]
    BlockSize,
    /// Ring keys have no blocks of tokens.
    #[error("ERR domain '{0}' holds ring keys, not blocks of tokens")]
    KeysDomain(String),
    /// The event was refused as a whole.
    #[error("ERR {0}")]
    Event(EventError),
    /// The event could not be taken now.
    #[error("TRYAGAIN {0}")]
    NotTaken(NotTaken),
}

/// What the commands need besides their arguments.
pub struct Context<'a> {
    /// The node's domains, unless affinity is off.
    pub affinity: Option<&'a Affinity>,
    /// The protocol of the node's keys.
    pub protocol: KeyProtocol,
    /// Whether the node's own datastore holds a key, when it can tell at once.
    pub holds: &'a dyn Fn(&[u8]) -> Option<bool>,
    /// Milliseconds on the monotonic clock.
    pub now_ms: u64,
}

/// True for the names [`execute`] answers.
pub fn is_command(name: &str) -> bool {
    matches!(name, "torc.where" | "torc.prefix" | "torc.prefixkeys" | "torc.tokens" | "torc.kv")
}

/// Answers the command `name` (lower case) and appends exactly one reply.
pub fn execute(context: &Context<'_>, name: &str, args: &Args<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    let outcome = match name {
        "torc.where" => where_keys(context, args, out),
        "torc.prefix" => prefix(context, args, out),
        "torc.prefixkeys" => prefix_keys(context, args, out),
        "torc.tokens" => tokens(context, args, out),
        "torc.kv" => engine_event(context, args, out),
        _ => Err(CommandError::Syntax("an affinity command")),
    };
    if let Err(error) = outcome {
        out.truncate(start);
        encode::error(out, error.to_string().as_bytes());
    }
}

type Outcome = Result<(), CommandError>;

fn where_keys(context: &Context<'_>, args: &Args<'_>, out: &mut Vec<u8>) -> Outcome {
    let domain = context.affinity.ok_or(CommandError::Off)?.keys();
    let keys = (1..args.len()).map(|index| &args[index]);
    let hashes: Vec<SequenceHash> =
        keys.clone().map(|key| ring_key_hash(context.protocol, key)).collect();
    let mut masks = vec![0; hashes.len()];
    let believed = domain.probe(&hashes, &mut masks, context.now_ms);
    encode::array(out, hashes.len());
    for (key, mask) in keys.zip(masks) {
        encode::array(out, domain.lanes().iter().len());
        for (number, lane) in domain.lanes().iter() {
            let own = if number == 0 { (context.holds)(key) } else { None };
            let word = match own {
                Some(true) => Holding::Yes,
                Some(false) | None => holding(number, mask, believed),
            };
            encode::array(out, 2);
            encode::bulk(out, lane.dc.as_bytes());
            encode::bulk(out, word.word().as_bytes());
        }
    }
    Ok(())
}

fn prefix(context: &Context<'_>, args: &Args<'_>, out: &mut Vec<u8>) -> Outcome {
    let mut words = Words::new(args);
    let domain = words.domain(context)?;
    let blocks = words.take_word("blocks");
    let hashes = words.rest(|text| number(text, "a 64-bit hash"))?;
    if hashes.is_empty() {
        return Err(CommandError::Syntax("[DOMAIN name] [BLOCKS] hash [hash ...]"));
    }
    if blocks {
        let blocks: Vec<BlockHash> = hashes.into_iter().map(BlockHash).collect();
        write_depths(domain, Chain::Blocks(&blocks), context.now_ms, out);
    } else {
        let chain: Vec<SequenceHash> = hashes.into_iter().map(SequenceHash).collect();
        write_depths(domain, Chain::Sequence(&chain), context.now_ms, out);
    }
    Ok(())
}

fn prefix_keys(context: &Context<'_>, args: &Args<'_>, out: &mut Vec<u8>) -> Outcome {
    let domain = context.affinity.ok_or(CommandError::Off)?.keys();
    let chain: Vec<SequenceHash> =
        (1..args.len()).map(|index| ring_key_hash(context.protocol, &args[index])).collect();
    write_depths(domain, Chain::Sequence(&chain), context.now_ms, out);
    Ok(())
}

fn write_depths(domain: &Domain, chain: Chain<'_>, now_ms: u64, out: &mut Vec<u8>) {
    let depths = domain.depths(chain, now_ms);
    encode::array(out, depths.len());
    for depth in depths {
        encode::array(out, 3);
        encode::bulk(out, depth.dc.as_bytes());
        write_optional(out, depth.blocks.map(i64::from));
        write_optional(out, depth.age_ms.map(|age| i64::try_from(age).unwrap_or(i64::MAX)));
    }
}

fn write_optional(out: &mut Vec<u8>, value: Option<i64>) {
    match value {
        Some(value) => encode::int(out, value),
        None => encode::null_bulk(out),
    }
}

fn tokens(context: &Context<'_>, args: &Args<'_>, out: &mut Vec<u8>) -> Outcome {
    let mut words = Words::new(args);
    let (mut size, mut format) = (None, HashFormat::Standard);
    let (mut lora, mut namespace) = (None, None);
    loop {
        if words.peek_word("domain") {
            let domain = words.domain(context)?;
            let Kind::Blocks { block_size, format: of_domain } = domain.spec().kind else {
                return Err(CommandError::KeysDomain(domain.name().into()));
            };
            (size, format) = (Some(block_size), of_domain);
        } else if words.take_word("block") {
            size = Some(words.number_up_to(u64::from(u32::MAX), "a block size")? as u32);
        } else if words.take_word("eagle") {
            format = HashFormat::Eagle;
        } else if words.take_word("lora") {
            lora = Some(words.text()?);
        } else if words.take_word("namespace") {
            namespace = Some(words.text()?);
        } else {
            break;
        }
    }
    let ids = words.rest(|text| number_up_to(text, u64::from(u32::MAX), "a 32-bit token id"))?;
    let size = match size.or_else(|| default_block_size(context)) {
        Some(0) => return Err(CommandError::BlockSize),
        Some(size) => size as usize,
        None => return Err(CommandError::Syntax("DOMAIN name or BLOCK size, then token ids")),
    };
    let ids: Vec<u32> = ids.into_iter().map(|id| id as u32).collect();
    let salt = salt_seed(lora.as_deref(), namespace.as_deref());
    let blocks: Vec<BlockHash> = block_hashes(&ids, size, format, salt).collect();
    encode::array(out, blocks.len());
    for (block, chain) in blocks.iter().zip(hashing::sequence_hashes(blocks.iter().copied())) {
        encode::array(out, 2);
        encode::bulk(out, block.0.to_string().as_bytes());
        encode::bulk(out, chain.0.to_string().as_bytes());
    }
    Ok(())
}

/// The block size of the domain that is meant when none is named.
fn default_block_size(context: &Context<'_>) -> Option<u32> {
    match context.affinity?.domain(None)?.spec().kind {
        Kind::Blocks { block_size, .. } => Some(block_size),
        Kind::Keys(_) => None,
    }
}

fn engine_event(context: &Context<'_>, args: &Args<'_>, out: &mut Vec<u8>) -> Outcome {
    let mut words = Words::new(args);
    let what = words.text()?.to_ascii_lowercase();
    let domain = words.domain(context)?;
    if let Kind::Keys(_) = domain.spec().kind {
        return Err(CommandError::KeysDomain(domain.name().into()));
    }
    let source = Source {
        worker_id: words.number("a worker id")?,
        dp_rank: words.number_up_to(u64::from(u32::MAX), "a rank")? as u32,
    };
    let (data, blocks) = match what.as_str() {
        "stored" => stored(&mut words)?,
        "removed" => {
            let ids = words.rest(|text| number(text, "a block id"))?;
            let count = ids.len();
            (EventData::Removed(ids.into_iter().map(ExternalId).collect()), count)
        }
        "cleared" => {
            words.end("CLEARED [DOMAIN name] worker rank")?;
            (EventData::Cleared, 0)
        }
        _ => return Err(CommandError::Syntax("STORED, REMOVED or CLEARED")),
    };
    let clears = data == EventData::Cleared;
    let applied = domain
        .tell(&RouterEvent::device(source, data), context.now_ms)
        .map_err(CommandError::NotTaken)?;
    match applied.first_error {
        None | Some(EventError::CapacityExhausted) => {}
        Some(error) => return Err(CommandError::Event(error)),
    }
    if clears {
        encode::simple(out, b"OK");
    } else {
        let taken = blocks as u64 - applied.unknown_removals - applied.omitted;
        encode::int(out, taken as i64);
    }
    Ok(())
}

/// `parent|- id hash [id hash ...]`.
fn stored(words: &mut Words<'_>) -> Result<(EventData, usize), CommandError> {
    let parent = match words.take_word("-") {
        true => None,
        false => Some(ExternalId(words.number("a block id, or - for none")?)),
    };
    let numbers = words.rest(|text| number(text, "a 64-bit number"))?;
    if numbers.is_empty() || !numbers.len().is_multiple_of(2) {
        return Err(CommandError::Syntax(
            "STORED [DOMAIN name] worker rank parent|- id hash [id hash ...]",
        ));
    }
    let block =
        |pair: &[u64]| StoredBlock { id: ExternalId(pair[0]), tokens_hash: BlockHash(pair[1]) };
    let blocks: Vec<StoredBlock> = numbers.chunks_exact(2).map(block).collect();
    let count = blocks.len();
    Ok((EventData::Stored { parent, start_position: None, blocks }, count))
}

/// The arguments behind the command's name, from left to right.
struct Words<'a> {
    args: &'a Args<'a>,
    at: usize,
}

impl<'a> Words<'a> {
    fn new(args: &'a Args<'a>) -> Words<'a> {
        Words { args, at: 1 }
    }

    fn peek_word(&self, word: &str) -> bool {
        self.args.get(self.at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek_word(word);
        self.at += usize::from(found);
        found
    }

    fn next(&mut self) -> Result<&'a [u8], CommandError> {
        let arg = self.args.get(self.at);
        self.at += 1;
        arg.ok_or(CommandError::Syntax("more arguments"))
    }

    fn text(&mut self) -> Result<String, CommandError> {
        Ok(String::from_utf8_lossy(self.next()?).into_owned())
    }

    fn number(&mut self, what: &'static str) -> Result<u64, CommandError> {
        number(self.next()?, what)
    }

    fn number_up_to(&mut self, max: u64, what: &'static str) -> Result<u64, CommandError> {
        number_up_to(self.next()?, max, what)
    }

    /// `[DOMAIN name]`, or the default domain.
    fn domain<'b>(&mut self, context: &Context<'b>) -> Result<&'b Domain, CommandError> {
        let affinity = context.affinity.ok_or(CommandError::Off)?;
        let name = match self.take_word("domain") {
            true => Some(self.next()?),
            false => None,
        };
        affinity.domain(name).map(|domain| &**domain).ok_or_else(|| {
            CommandError::NoDomain(String::from_utf8_lossy(name.unwrap_or_default()).into_owned())
        })
    }

    fn rest<T>(
        &mut self,
        read: impl Fn(&[u8]) -> Result<T, CommandError>,
    ) -> Result<Vec<T>, CommandError> {
        let rest = (self.at..self.args.len()).map(|index| read(&self.args[index]));
        self.at = self.args.len();
        rest.collect()
    }

    fn end(&self, expected: &'static str) -> Outcome {
        if self.at < self.args.len() { Err(CommandError::Syntax(expected)) } else { Ok(()) }
    }
}

fn number(text: &[u8], what: &'static str) -> Result<u64, CommandError> {
    number_up_to(text, u64::MAX, what)
}

/// Decimal digits, or `0x` and hexadecimal ones.
fn number_up_to(text: &[u8], max: u64, what: &'static str) -> Result<u64, CommandError> {
    let read = |text: &[u8]| {
        let text = std::str::from_utf8(text).ok()?;
        let (digits, radix) = match text.strip_prefix("0x") {
            Some(digits) => (digits, 16),
            None => (text, 10),
        };
        // `from_str_radix` would take a sign.
        let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(digits, radix).ok().filter(|value| plain && *value <= max)
    };
    read(text)
        .ok_or_else(|| CommandError::NotANumber(String::from_utf8_lossy(text).into_owned(), what))
}

#[cfg(test)]
mod tests;
