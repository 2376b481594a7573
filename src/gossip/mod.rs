//! Who is in the ring: a machine without sockets, clock or threads.
//!
//! Torc nodes tell each other who holds which slot, with all tokens, ports and states; nodes of
//! the reference are told what their format can say, and heard with care. Each node judges for
//! itself who is alive.
//!
//! Invariants:
//! - A slot is (datacenter, rack, first token) within one cluster name, and has one holder. Of two
//!   sayings about it the newer one wins, by (generation, version); nobody is rolled back.
//! - Only the holder changes its record, except where it cannot speak: C nodes, and the dead.
//! - Being down is a local verdict ([`Reach`]) and never travels between torc nodes. Heartbeats
//!   do, with their age, so that a one-way partition concerns only the pair it cuts.
//! - Every change is one [`Event`] with its time and cause.
//! - Messages are bounded whatever the size of the ring.
//!
//! Reading order: [`Record`] (what is said), `merge` (which saying wins), [`Detector`] and
//! `member` (who lives), `exchange` (rounds between torc nodes), `c_format` and `c_rules` (the
//! reference), [`Membership`] (the machine).
//!
//! Source for the C side: `Netflix/dynomite` `src/dyn_gossip.c`, as measured.

mod admin;
pub mod c_format;
mod c_rules;
mod detector;
mod event;
mod exchange;
mod identity;
mod join;
mod liveness;
mod member;
mod membership;
mod merge;
mod message;
mod record;
mod seeds;
mod settings;
mod table;
mod time;

#[cfg(test)]
mod tests;

pub use admin::{AttributeError, ForgetError, Standing};
pub use detector::{Detector, DetectorSettings};
pub use event::{Counters, DownCause, Event, EventKind, Source, Transmit};
pub use exchange::{DIGESTS_MAX, FANOUT};
pub use identity::{Addr, Slot, SlotId};
pub use member::{Link, Member, Reach};
pub use membership::{Membership, TOMBSTONE_MS};
pub use message::{ATTRIBUTES_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, TOKENS_MAX};
pub use record::{Claim, Kind, Record};
pub use settings::{
    C_INTERVAL_MS, CSettings, DEVIATION_MIN_MS, GOSSIP_INTERVAL_MS, JOIN_MAX_MS, LocalNode,
    PHI_THRESHOLD, Seed, Settings,
};
pub use table::SLOTS_MAX;
pub use time::Millis;
