//! The checksum of a data or log stream in a backup WITH CHECKSUM: the stream CSUM behind it.

use super::page::xor_of_sector;

/// The unit of the checksum, in bytes.
const SECTOR: usize = 512;

/// The checksum of the bytes so far: for each sector, the sum is rotated left by one bit, and the exclusive or of the
/// sector's 32-bit words is added by exclusive or.
#[derive(Debug, Clone, Copy, Default)]
pub struct BackupChecksum(u32);

impl BackupChecksum {
    /// Adds bytes. Only the last of them may be a part of a sector, which counts as if zeros followed.
    pub fn add(&mut self, bytes: &[u8]) {
        let (sectors, rest) = bytes.as_chunks::<SECTOR>();
        for sector in sectors {
            self.0 = self.0.rotate_left(1) ^ xor_of_sector(sector);
        }
        if !rest.is_empty() {
            let mut last = [0; SECTOR];
            last.iter_mut().zip(rest).for_each(|(into, from)| *into = *from);
            self.0 = self.0.rotate_left(1) ^ xor_of_sector(&last);
        }
    }

    /// The checksum, as CSUM has it.
    pub fn value(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_sectors_counts_and_the_split_into_pieces_does_not() {
        let bytes: Vec<u8> = (0..1536_u32).map(|i| (i * 7 % 251) as u8).collect();
        let sum_of = |pieces: &[&[u8]]| {
            let mut sum = BackupChecksum::default();
            pieces.iter().for_each(|piece| sum.add(piece));
            sum.value()
        };
        let whole = sum_of(&[&bytes]);
        assert_eq!(sum_of(&[&bytes[..512], &bytes[512..]]), whole);
        assert_ne!(sum_of(&[&bytes[512..], &bytes[..512]]), whole);
        assert_eq!(sum_of(&[&bytes[..600]]), sum_of(&[&[&bytes[..600], &[0; 424][..]].concat()]));
    }
}
