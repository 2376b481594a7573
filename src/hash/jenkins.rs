//! Bob Jenkins' lookup3, the little-endian word form.

/// The reference's `initval`.
const INITVAL: u32 = 13;

/// lookup3's `c`; 0 for an empty key.
///
/// Parity: for an empty key the reference leaves the token unwritten (`dyn_jenkins.c`).
pub(super) fn jenkins(key: &[u8]) -> u32 {
    if key.is_empty() {
        return 0;
    }
    let start = 0xdead_beef_u32.wrapping_add(key.len() as u32).wrapping_add(INITVAL);
    let mut state = [start; 3];
    // The last 1 to 12 bytes are left for the final step.
    let (blocks, last) = key.split_at((key.len() - 1) / 12 * 12);
    for block in blocks.as_chunks::<12>().0 {
        add(&mut state, block);
        mix(&mut state);
    }
    let mut padded = [0; 12];
    padded[..last.len()].copy_from_slice(last);
    add(&mut state, &padded);
    finish(state)
}

fn add(state: &mut [u32; 3], block: &[u8; 12]) {
    for (part, word) in state.iter_mut().zip(block.as_chunks::<4>().0) {
        *part = part.wrapping_add(u32::from_le_bytes(*word));
    }
}

fn mix(state: &mut [u32; 3]) {
    let [mut a, mut b, mut c] = *state;
    a = a.wrapping_sub(c) ^ c.rotate_left(4);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(6);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(8);
    b = b.wrapping_add(a);
    a = a.wrapping_sub(c) ^ c.rotate_left(16);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(19);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(4);
    b = b.wrapping_add(a);
    *state = [a, b, c];
}

fn finish([mut a, mut b, mut c]: [u32; 3]) -> u32 {
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}
