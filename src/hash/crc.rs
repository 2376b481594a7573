//! The CRC family.

/// The CRC-16/XMODEM polynomial.
const POLYNOMIAL_16: u16 = 0x1021;

const TABLE_16: [u16; 256] = table_16();

/// CRC-16 in a register of 32 bits.
///
/// Parity: the reference never masks the register (`dyn_crc16.c`), so what is shifted out of
/// the lower half stays in the token.
pub(super) fn crc16(key: &[u8]) -> u32 {
    key.iter().fold(0u32, |crc, &b| {
        let row = (crc >> 8) as u8 ^ b;
        crc << 8 ^ u32::from(TABLE_16[usize::from(row)])
    })
}

/// Fifteen bits of the IEEE CRC-32, as memcached clients use it.
pub(super) fn crc32(key: &[u8]) -> u32 {
    crc32a(key) >> 16 & 0x7fff
}

/// The whole IEEE CRC-32.
pub(super) fn crc32a(key: &[u8]) -> u32 {
    crc32fast::hash(key)
}

const fn table_16() -> [u16; 256] {
    let mut table = [0; 256];
    let mut row = 0;
    while row < 256 {
        let mut crc = (row as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            let carry = crc & 0x8000 != 0;
            crc = if carry { crc << 1 ^ POLYNOMIAL_16 } else { crc << 1 };
            bit += 1;
        }
        table[row] = crc;
        row += 1;
    }
    table
}
