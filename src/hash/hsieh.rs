//! Paul Hsieh's SuperFastHash, started at 0 instead of the length.

/// The hash; 0 for an empty key.
///
/// Parity: for an empty key the reference leaves the token unwritten (`dyn_hsieh.c`).
pub(super) fn hsieh(key: &[u8]) -> u32 {
    let (blocks, tail) = key.as_chunks::<4>();
    let mut h = 0u32;
    for &[a, b, c, d] in blocks {
        h = h.wrapping_add(le16(a, b));
        h = h << 16 ^ le16(c, d) << 11 ^ h;
        h = h.wrapping_add(h >> 11);
    }
    h = match *tail {
        [a, b, c] => {
            h = h.wrapping_add(le16(a, b));
            h ^= h << 16;
            h ^= u32::from(c) << 18;
            h.wrapping_add(h >> 11)
        }
        [a, b] => {
            h = h.wrapping_add(le16(a, b));
            h ^= h << 11;
            h.wrapping_add(h >> 17)
        }
        [a] => {
            h = h.wrapping_add(u32::from(a));
            h ^= h << 10;
            h.wrapping_add(h >> 1)
        }
        _ => h,
    };
    h ^= h << 3;
    h = h.wrapping_add(h >> 5);
    h ^= h << 4;
    h = h.wrapping_add(h >> 17);
    h ^= h << 25;
    h.wrapping_add(h >> 6)
}

fn le16(low: u8, high: u8) -> u32 {
    u32::from(u16::from_le_bytes([low, high]))
}
