//! XPRESS Huffman: hostile bytes end in an error or in exactly as many bytes as were asked for, and touch nothing else.
//! The input as plain bytes packs and unpacks to itself.

use std::cell::RefCell;

use fullbore_engines::compressed::xpress::{BLOCK_MAX, Decoder, compress};

const GUARD: usize = 32;

thread_local! {
    static DECODER: RefCell<Decoder> = RefCell::new(Decoder::default());
}

/// One input.
pub fn run(input: &[u8]) {
    let Some((&length, packed)) = input.split_first_chunk::<2>() else { return };
    let length = usize::from(u16::from_le_bytes(length));
    let mut plain = vec![0xA5; length + GUARD];
    let decoded = DECODER.with_borrow_mut(|decoder| decoder.decode(packed, &mut plain[..length]));
    assert!(plain[length..].iter().all(|&byte| byte == 0xA5), "wrote past its output");
    if let Err(error) = decoded {
        assert!(!error.to_string().is_empty());
    }
    let bytes = &packed[..packed.len().min(BLOCK_MAX)];
    let mut again = vec![0; bytes.len()];
    DECODER.with_borrow_mut(|decoder| decoder.decode(&compress(bytes), &mut again)).expect("a packed block unpacks");
    assert!(again == bytes);
}
