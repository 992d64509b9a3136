//! Compressed transactions of MySQL (`binlog_transaction_compression`): one event that holds all others of its group.
//!
//! The format is from MySQL's "Transaction_payload_event" page: fields of type, length and value, then the events.

use fullbore_core::codec::{CodecId, Decoder};

use super::event::{CRC, HEADER, Header, seal};
use crate::mysql_family::connection::take_integer;

/// The most bytes that the events of one transaction have after unpacking.
const UNPACKED_MAX: u64 = 64 << 20;
const END: u64 = 0;
const COMPRESSION: u64 = 2;
const UNPACKED: u64 = 3;
const ZSTD: u64 = 0;
const NONE: u64 = 255;

/// The events in the body of such an event, one after the other, without checksums.
///
/// # Errors
/// It breaks its format.
pub fn events(mut body: &[u8]) -> Result<Vec<u8>, &'static str> {
    const BROKEN: &str = "a compressed transaction has an unknown form";
    let (mut compression, mut unpacked) = (NONE, 0);
    loop {
        let field = take_integer(&mut body).ok_or(BROKEN)?;
        if field == END {
            break;
        }
        let length = take_integer(&mut body).and_then(|length| usize::try_from(length).ok()).ok_or(BROKEN)?;
        let (mut value, rest) = body.split_at_checked(length).ok_or(BROKEN)?;
        body = rest;
        match field {
            COMPRESSION => compression = take_integer(&mut value).ok_or(BROKEN)?,
            UNPACKED => unpacked = take_integer(&mut value).ok_or(BROKEN)?,
            _ => {}
        }
    }
    match compression {
        NONE => Ok(body.to_vec()),
        ZSTD if unpacked <= UNPACKED_MAX => {
            const DAMAGED: &str = "a compressed transaction is damaged";
            let mut plain = vec![0; unpacked as usize];
            let decoded = Decoder::new().ok().ok_or(DAMAGED)?.decode(CodecId::Zstd, body, &mut plain);
            decoded.map(|()| plain).map_err(|_| DAMAGED)
        }
        ZSTD => Err("a compressed transaction is longer than 64 MiB: set binlog_transaction_compression to OFF"),
        _ => Err(BROKEN),
    }
}

/// The next of these events, with a checksum as all others have. `None`: it is cut.
pub fn next_event(rest: &mut &[u8]) -> Option<(Header, Vec<u8>)> {
    let header = Header::read(rest.first_chunk()?);
    let (event, after) = rest.split_at_checked(header.size as usize).filter(|(event, _)| event.len() >= HEADER)?;
    *rest = after;
    let mut event = event.to_vec();
    let size = header.size.checked_add(CRC as u32)?;
    event.get_mut(9..13)?.copy_from_slice(&size.to_le_bytes());
    event.extend_from_slice(&[0; CRC]);
    seal(&mut event);
    Some((Header { size, ..header }, event))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn events_that_are_not_compressed_come_out_and_cut_ones_are_refused() {
        // Size, no compression, unpacked size, end; then the events.
        let body = [1, 1, 3, 2, 3, 0xFC, 255, 0, 3, 1, 3, 0, 9, 8, 7];
        assert_eq!(events(&body).unwrap(), [9, 8, 7]);
        for cut in 0..12 {
            assert!(events(&body[..cut]).is_err(), "{cut}");
        }
        let damaged = [2, 1, 0, 3, 1, 5, 0, 1, 2, 3];
        assert!(events(&damaged).unwrap_err().contains("damaged"));
        let huge = [2, 1, 0, 3, 9, 0xFE, 255, 255, 255, 255, 255, 0, 0, 0, 0];
        assert!(events(&huge).unwrap_err().contains("longer"));
    }
}
