//! The checksum of DUMP payloads: CRC-64 with the Jones polynomial, bits reflected, starting at 0.

/// The polynomial 0xad93d23594c935a9 with its bits in reverse order.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

const TABLE: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u64, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// The checksum of `data`.
pub(super) fn checksum(data: &[u8]) -> u64 {
    data.iter().fold(0, |crc, &byte| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_check_value_of_the_polynomial() {
        assert_eq!(super::checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }
}
