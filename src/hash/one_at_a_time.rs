//! Bob Jenkins' one-at-a-time.

/// The hash, over signed bytes.
///
/// Parity: the reference reads plain `char`, so its result for bytes above 0x7f depends on the
/// machine (`dyn_one_at_a_time.c`). We give the x86-64 result everywhere.
pub(super) fn one_at_a_time(key: &[u8]) -> u32 {
    let mut h = key.iter().fold(0u32, |h, &b| {
        let h = h.wrapping_add(i32::from(b as i8) as u32);
        let h = h.wrapping_add(h << 10);
        h ^ h >> 6
    });
    h = h.wrapping_add(h << 3);
    h ^= h >> 11;
    h.wrapping_add(h << 15)
}
