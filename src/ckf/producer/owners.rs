//! The owners of one hash, in the three bytes of its table entry.

use super::ownership::SourceIdx;
use crate::ckf::hashing::{ExternalId, SequenceHash};

/// Most edges one hash can have.
pub(super) const OWNERS_MAX: u32 = COUNT_MASK;

/// [`Owners`] as a table keeps them.
pub(super) type OwnerBytes = [u8; 3];

/// The owners of one hash in 24 bits: up to three source numbers, or a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owners(u32);

const INLINE: u32 = 1 << 23;
const COUNT_MASK: u32 = INLINE - 1;
/// Sources numbered higher than this many bits say are only counted: a datacenter of more than
/// 126 nodes pays for the others with a lineage entry a key.
const FIELD_BITS: u32 = 7;
const FIELD_MASK: u32 = (1 << FIELD_BITS) - 1;
const FIELDS: u32 = 3;
/// An inline field without a source.
const NOBODY: u32 = FIELD_MASK;

impl Owners {
    pub(super) fn of_bytes([low, middle, high]: OwnerBytes) -> Owners {
        Owners(u32::from_le_bytes([low, middle, high, 0]))
    }

    pub(super) fn to_bytes(self) -> OwnerBytes {
        let [low, middle, high, _] = self.0.to_le_bytes();
        [low, middle, high]
    }

    pub(super) fn counted(count: u32) -> Owners {
        debug_assert!(count <= OWNERS_MAX);
        Owners(count)
    }

    /// Whether the inline form has a field for such an edge.
    #[inline]
    pub(super) fn may_be_inline(source: SourceIdx, id: ExternalId, hash: SequenceHash) -> bool {
        id.0 == hash.0 && source < NOBODY
    }

    /// The form of a hash whose only edge this is.
    pub(super) fn first(source: SourceIdx, id: ExternalId, hash: SequenceHash) -> Owners {
        let nobody = Owners(INLINE | ((1 << (FIELD_BITS * FIELDS)) - 1));
        nobody.with(source, id, hash).unwrap_or(Owners(1))
    }

    /// With one more edge; `None` when the inline form has no place for it.
    pub(super) fn with(
        self,
        source: SourceIdx,
        id: ExternalId,
        hash: SequenceHash,
    ) -> Option<Owners> {
        if !self.is_inline() {
            return Some(Owners::counted(self.0 + 1));
        }
        if !Owners::may_be_inline(source, id, hash) {
            return None;
        }
        let free = (0..FIELDS).find(|field| self.field(*field) == NOBODY)?;
        Some(self.set_field(free, source))
    }

    /// With the inline edge of `source` less; `None` when it was the last.
    pub(super) fn without(self, source: SourceIdx) -> Option<Owners> {
        let field = (0..FIELDS).find(|field| self.field(*field) == source);
        let rest = self.set_field(field.expect("an inline owner"), NOBODY);
        (rest.count() > 0).then_some(rest)
    }

    /// With one counted edge less; `None` when it was the last.
    pub(super) fn without_counted(self) -> Option<Owners> {
        debug_assert!(!self.is_inline());
        (self.0 > 1).then(|| Owners::counted(self.0 - 1))
    }

    pub(super) fn is_inline(self) -> bool {
        self.0 & INLINE != 0
    }

    pub(super) fn count(self) -> u32 {
        if self.is_inline() { self.sources().count() as u32 } else { self.0 }
    }

    /// The inline owners.
    pub(super) fn sources(self) -> impl Iterator<Item = SourceIdx> + Clone {
        let fields = if self.is_inline() { FIELDS } else { 0 };
        (0..fields).map(move |field| self.field(field)).filter(|source| *source != NOBODY)
    }

    pub(super) fn holds_inline(self, source: SourceIdx) -> bool {
        self.sources().any(|owner| owner == source)
    }

    fn field(self, field: u32) -> u32 {
        (self.0 >> (field * FIELD_BITS)) & FIELD_MASK
    }

    fn set_field(self, field: u32, source: u32) -> Owners {
        let shift = field * FIELD_BITS;
        Owners(self.0 & !(FIELD_MASK << shift) | source << shift)
    }
}
