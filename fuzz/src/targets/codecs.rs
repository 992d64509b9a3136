//! Decoders: hostile bytes end in an error or in exactly as many bytes as were asked for, and touch nothing else.

use std::cell::RefCell;

use fullbore_core::codec::{CodecId, Decoder};

const GUARD: usize = 32;

thread_local! {
    static DECODER: RefCell<Decoder> = RefCell::new(Decoder::new().expect("memory"));
}

/// One input.
pub fn run(input: &[u8]) {
    let Some((&[codec, low, high], stored)) = input.split_first_chunk::<3>() else { return };
    let Some(codec) = CodecId::from_number(codec % 4) else { return };
    let length = usize::from(u16::from_le_bytes([low, high]));
    let mut plain = vec![0xA5; length + GUARD];
    let decoded = DECODER.with_borrow_mut(|decoder| decoder.decode(codec, stored, &mut plain[..length]));
    assert!(plain[length..].iter().all(|&byte| byte == 0xA5), "wrote past its output");
    if let Err(error) = decoded {
        assert!(!error.to_string().is_empty());
    }
}
