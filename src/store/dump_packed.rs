//! The compact encodings inside DUMP payloads: listpacks, sets of integers, LZF compression.
//! Sources: `listpack.c`, `intset.c` and `lzf_d.c` of redis 7.0.

/// Elements of a compact encoding, as strings.
pub(super) type Packed = Vec<Vec<u8>>;

/// The elements of a listpack: total bytes and count, then entries, each with its length behind
/// it, then 0xff.
pub(super) fn listpack(data: &[u8]) -> Option<Packed> {
    let (header, mut rest) = data.split_first_chunk::<6>()?;
    if u32::from_le_bytes(*header.first_chunk()?) as usize != data.len() {
        return None;
    }
    let mut items = Vec::new();
    while *rest.first()? != 0xff {
        let (item, used) = entry(rest)?;
        items.push(item);
        rest = rest.get(used + back_len(used)..)?;
    }
    (rest.len() == 1).then_some(items)
}

/// The entry at the start of `data`, and its bytes without the length behind it.
fn entry(data: &[u8]) -> Option<(Vec<u8>, usize)> {
    let first = *data.first()?;
    let string = |head: usize, len: usize| {
        let text = data.get(head..head.checked_add(len)?)?;
        Some((text.to_vec(), head + len))
    };
    let int = |value: i64, used: usize| Some((value.to_string().into_bytes(), used));
    let at = |n: usize| data.get(n).copied().map(i64::from);
    match first {
        0x00..=0x7f => int(first.into(), 1),
        0x80..=0xbf => string(1, usize::from(first & 0x3f)),
        0xc0..=0xdf => {
            let raw = i64::from(first & 0x1f) << 8 | at(1)?;
            // 13 bits with a sign.
            int(raw << 51 >> 51, 2)
        }
        0xe0..=0xef => string(2, (i64::from(first & 0x0f) << 8 | at(1)?) as usize),
        0xf0 => string(5, u32::from_le_bytes(*data.get(1..)?.first_chunk()?) as usize),
        0xf1 => int(i16::from_le_bytes(*data.get(1..)?.first_chunk()?).into(), 3),
        0xf2 => {
            let [a, b, c] = *data.get(1..)?.first_chunk()?;
            int((i32::from_le_bytes([0, a, b, c]) >> 8).into(), 4)
        }
        0xf3 => int(i32::from_le_bytes(*data.get(1..)?.first_chunk()?).into(), 5),
        0xf4 => int(i64::from_le_bytes(*data.get(1..)?.first_chunk()?), 9),
        0xf5..=0xff => None,
    }
}

/// Bytes of the length that stands behind an entry of `len` bytes.
fn back_len(len: usize) -> usize {
    match len {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    }
}

/// The members of a set of integers: bytes a member, count, members.
pub(super) fn intset(data: &[u8]) -> Option<Packed> {
    let (width, rest) = data.split_first_chunk::<4>()?;
    let (count, members) = rest.split_first_chunk::<4>()?;
    let (width, count) = (u32::from_le_bytes(*width) as usize, u32::from_le_bytes(*count) as usize);
    if !matches!(width, 2 | 4 | 8) || members.len() != width.checked_mul(count)? {
        return None;
    }
    let number = |bytes: &[u8]| match *bytes {
        [a, b] => i64::from(i16::from_le_bytes([a, b])),
        [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        _ => i64::from_le_bytes(bytes.try_into().expect("widths are checked")),
    };
    Some(members.chunks(width).map(|m| number(m).to_string().into_bytes()).collect())
}

/// Decompresses LZF to exactly `plain` bytes.
pub(super) fn lzf(mut data: &[u8], plain: usize) -> Option<Vec<u8>> {
    /// From this control byte on a part refers back.
    const REFERENCE: u8 = 1 << 5;
    let mut out = Vec::new();
    while let Some((&control, rest)) = data.split_first() {
        data = rest;
        if control < REFERENCE {
            let (literal, rest) = data.split_at_checked(usize::from(control) + 1)?;
            out.extend_from_slice(literal);
            data = rest;
        } else {
            let mut len = usize::from(control >> 5);
            if len == 7 {
                let (&more, rest) = data.split_first()?;
                len += usize::from(more);
                data = rest;
            }
            let (&low, rest) = data.split_first()?;
            data = rest;
            let back = usize::from(control & 0x1f) << 8 | usize::from(low);
            let from = out.len().checked_sub(back + 1)?;
            // The part may overlap with what it makes, so it is taken byte by byte.
            (from..from + len + 2).for_each(|at| out.push(out[at]));
        }
        if out.len() > plain {
            return None;
        }
    }
    (out.len() == plain).then_some(out)
}
