//! A byte string as the store keeps it: 24 bytes, small ones inside.
//!
//! Keys, string values, list elements, hash fields and set members are all blobs. From
//! [`SHARED_MIN`] on the bytes are a shared [`Bytes`], which the output queue takes without a copy.

use bytes::Bytes;

/// Longest string kept without heap memory.
pub(super) const INLINE_MAX: usize = 22;

/// From this length on a string is shared with the output queue instead of being copied.
pub(super) const SHARED_MIN: usize = 4 * 1024;

/// What the allocator and a `Bytes` handle add to a boxed payload, in bytes.
const BOX_OVERHEAD: usize = 48;

/// An owned byte string.
#[expect(clippy::box_collection, reason = "a vector of its own would make every blob larger")]
#[derive(Clone, Debug)]
pub(super) enum Blob {
    /// Up to [`INLINE_MAX`] bytes.
    Inline { len: u8, bytes: [u8; INLINE_MAX] },
    /// Up to [`SHARED_MIN`] bytes, exactly sized.
    Heap(Box<[u8]>),
    /// A string that APPEND, SETRANGE or SETBIT changes in place.
    Growing(Box<Vec<u8>>),
    /// [`SHARED_MIN`] bytes and more.
    Shared(Box<Bytes>),
}

impl Blob {
    /// A copy of `data` in the form its size asks for.
    pub(super) fn new(data: &[u8]) -> Blob {
        if data.len() <= INLINE_MAX {
            Blob::inline(data)
        } else if data.len() < SHARED_MIN {
            Blob::Heap(data.into())
        } else {
            Blob::Shared(Box::new(Bytes::copy_from_slice(data)))
        }
    }

    fn inline(data: &[u8]) -> Blob {
        let mut bytes = [0; INLINE_MAX];
        bytes[..data.len()].copy_from_slice(data);
        Blob::Inline { len: data.len() as u8, bytes }
    }

    /// Takes over a vector that was built for this value.
    pub(super) fn from_vec(data: Vec<u8>) -> Blob {
        if data.len() < SHARED_MIN {
            Blob::new(&data)
        } else {
            Blob::Shared(Box::new(Bytes::from(data)))
        }
    }

    /// The decimal text of `n`.
    pub(super) fn from_int(n: i64) -> Blob {
        Blob::inline(itoa::Buffer::new().format(n).as_bytes())
    }

    /// Replaces the content, in the same memory when the length did not change.
    pub(super) fn set(&mut self, data: &[u8]) {
        match self {
            Blob::Heap(old) if old.len() == data.len() => old.copy_from_slice(data),
            Blob::Heap(_) | Blob::Inline { .. } | Blob::Growing(_) | Blob::Shared(_) => {
                *self = Blob::new(data)
            }
        }
    }

    /// The bytes.
    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Blob::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Blob::Heap(data) => data,
            Blob::Growing(data) => data,
            Blob::Shared(data) => data,
        }
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// The bytes as a vector that can grow; later edits do not copy again.
    pub(super) fn make_mut(&mut self) -> &mut Vec<u8> {
        if !matches!(self, Blob::Growing(_)) {
            *self = Blob::Growing(Box::new(self.as_slice().to_vec()));
        }
        match self {
            Blob::Growing(data) => data,
            Blob::Inline { .. } | Blob::Heap(_) | Blob::Shared(_) => unreachable!("made above"),
        }
    }

    /// Heap memory in bytes, as accounting counts it.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Blob::Inline { .. } => 0,
            Blob::Heap(data) => data.len(),
            Blob::Growing(data) => BOX_OVERHEAD + data.capacity(),
            Blob::Shared(data) => BOX_OVERHEAD + data.len(),
        }
    }
}

impl Default for Blob {
    fn default() -> Blob {
        Blob::inline(b"")
    }
}

impl PartialEq for Blob {
    fn eq(&self, other: &Blob) -> bool {
        self.as_slice() == other.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_three_words_and_keeps_every_length() {
        assert_eq!(size_of::<Blob>(), 24);
        for len in [0, 1, 22, 23, 100, SHARED_MIN - 1, SHARED_MIN, 100_000] {
            let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let mut blob = Blob::new(&data);
            assert_eq!(blob.as_slice(), data);
            assert_eq!(matches!(blob, Blob::Shared(_)), len >= SHARED_MIN);
            blob.make_mut().push(b'x');
            assert_eq!(blob.len(), len + 1);
            assert_eq!(Blob::from_vec(data.clone()).as_slice(), data);
        }
    }

    #[test]
    fn setting_the_same_length_reuses_the_memory() {
        let mut blob = Blob::new(&[1; 64]);
        let at = blob.as_slice().as_ptr();
        blob.set(&[2; 64]);
        assert_eq!(blob.as_slice().as_ptr(), at);
        assert_eq!(blob.as_slice(), [2; 64]);
        blob.set(b"short");
        assert_eq!(blob.heap_bytes(), 0);
    }
}
