//! What every codec must do, whatever it makes of its bytes.

use crate::codec::{CodecId, Compression, DecodeError, Decoder, Encoder, memory};

/// Bytes after each output that a codec may not touch.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xA5;

/// Runs the suite over one [`Compression`].
///
/// # Panics
/// Where the codec breaks a promise: this is a test.
pub fn codec_conforms(compression: Compression) {
    for (name, plain) in samples() {
        let case = format!("{compression}, {name}");
        let Some(stored) = encodes_smaller_or_not_at_all(compression, &plain, &case) else { continue };
        fits_exactly_or_not_at_all(compression, &plain, stored.len(), &case);
        decodes_to_the_exact_length_only(compression.codec(), &stored, &plain, &case);
        refuses_every_shorter_input(compression.codec(), &stored, plain.len(), &case);
        survives_flipped_bits(compression.codec(), &stored, plain.len(), &case);
    }
    survives_random_input(compression.codec());
    one_context_serves_all(compression);
    assert!(memory(compression, 1 << 20) >= memory(Compression::None, 1 << 20), "{compression}: memory");
}

/// Plain bytes of every kind that matters: nothing, little, constant, textual, random, page-like, large.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let mut random = Random(42);
    let noise: Vec<u8> = (0..100_000).map(|_| random.byte()).collect();
    let text: Vec<u8> = (0..20_000).flat_map(|n| format!("row {n} of the table, ").into_bytes()).collect();
    let mut pages = Vec::new();
    for page in 0..64_u32 {
        let start = pages.len();
        pages.extend_from_slice(&page.to_be_bytes());
        pages.resize(start + 2048, 0);
        for cell in 0..40_u32 {
            pages.extend_from_slice(format!("{cell:06}user-{:x}@example.org", random.byte()).as_bytes());
        }
        pages.resize(start + 4096, 0);
    }
    vec![
        ("nothing", Vec::new()),
        ("one byte", vec![7]),
        ("twelve bytes", b"abcabcabcabc".to_vec()),
        ("zeros", vec![0; 1 << 20]),
        ("noise", noise),
        ("text", text),
        ("pages", pages),
    ]
}

/// A few seeded bytes (xorshift64*), so that this suite needs no crate that only tests have.
struct Random(u64);

impl Random {
    fn byte(&mut self) -> u8 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 56) as u8
    }
}

/// `length` bytes to write into, and the guard behind them.
fn guarded(length: usize) -> Vec<u8> {
    vec![GUARD_BYTE; length + GUARD]
}

fn assert_guard(buffer: &[u8], length: usize, case: &str) {
    assert!(buffer[length..].iter().all(|&byte| byte == GUARD_BYTE), "{case}: wrote past its output");
}

fn encode(encoder: &mut Encoder, plain: &[u8], room: usize, case: &str) -> Option<Vec<u8>> {
    let mut out = guarded(room);
    let length = encoder.encode(plain, &mut out[..room]).unwrap_or_else(|error| panic!("{case}: {error}"))?;
    assert_guard(&out, room, case);
    assert!(length <= room, "{case}: {length} bytes in {room}");
    out.truncate(length);
    Some(out)
}

fn decode(decoder: &mut Decoder, codec: CodecId, stored: &[u8], length: usize) -> Result<Vec<u8>, DecodeError> {
    let mut plain = guarded(length);
    let result = decoder.decode(codec, stored, &mut plain[..length]);
    assert_guard(&plain, length, codec.name());
    plain.truncate(length);
    result.map(|()| plain)
}

fn new_encoder(compression: Compression) -> Encoder {
    Encoder::new(compression).expect("a context can be made")
}

fn new_decoder() -> Decoder {
    Decoder::new().expect("a context can be made")
}

fn encodes_smaller_or_not_at_all(compression: Compression, plain: &[u8], case: &str) -> Option<Vec<u8>> {
    let stored = encode(&mut new_encoder(compression), plain, plain.len() * 2 + 1024, case)?;
    assert!(stored.len() < plain.len(), "{case}: did not get smaller");
    let back = decode(&mut new_decoder(), compression.codec(), &stored, plain.len());
    assert!(back.as_deref() == Ok(plain), "{case}: came back changed");
    Some(stored)
}

fn fits_exactly_or_not_at_all(compression: Compression, plain: &[u8], stored: usize, case: &str) {
    let encoder = &mut new_encoder(compression);
    for room in [0, 1, 2, 10, 18, stored / 2, stored - 1, stored, stored + 1, plain.len() - 1, plain.len()] {
        // Some codecs want a little more room than they use at last; what they do return must be right.
        if let Some(stored) = encode(encoder, plain, room, case) {
            let back = decode(&mut new_decoder(), compression.codec(), &stored, plain.len());
            assert!(back.as_deref() == Ok(plain), "{case}: came back changed from an output of {room}");
        } else {
            assert!(room < stored + 64, "{case}: gave up with room for {room} bytes and {stored} needed");
        }
    }
}

fn decodes_to_the_exact_length_only(codec: CodecId, stored: &[u8], plain: &[u8], case: &str) {
    let decoder = &mut new_decoder();
    for length in [0, 1, plain.len() / 2, plain.len() - 1, plain.len() + 1, plain.len() * 2] {
        assert!(decode(decoder, codec, stored, length).is_err(), "{case}: decoded to {length}");
    }
    let longer = [stored, b"\0"].concat();
    assert!(decode(decoder, codec, &longer, plain.len()).is_err(), "{case}: took a byte too many");
    let twice = [stored, stored].concat();
    assert!(decode(decoder, codec, &twice, plain.len() * 2).is_err(), "{case}: took two for one");
    assert_eq!(decode(decoder, codec, stored, plain.len()).as_deref(), Ok(plain), "{case}: after failures");
}

fn refuses_every_shorter_input(codec: CodecId, stored: &[u8], plain: usize, case: &str) {
    let decoder = &mut new_decoder();
    let step = stored.len() / 200 + 1;
    for length in (0..stored.len()).step_by(step).chain([stored.len() - 1]) {
        assert!(decode(decoder, codec, &stored[..length], plain).is_err(), "{case}: decoded {length} bytes");
    }
}

/// A flipped bit may go unnoticed here (checksums find it), but it must do no harm.
fn survives_flipped_bits(codec: CodecId, stored: &[u8], plain: usize, case: &str) {
    let decoder = &mut new_decoder();
    let mut damaged = stored.to_vec();
    let bits = stored.len() * 8;
    for bit in (0..bits.min(256)).chain((256..bits).step_by(bits / 500 + 1)) {
        damaged[bit / 8] ^= 1 << (bit % 8);
        if let Err(error) = decode(decoder, codec, &damaged, plain) {
            assert!(!error.to_string().is_empty(), "{case}: an error without a word");
        }
        damaged[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(decode(decoder, codec, &damaged, plain).is_ok(), "{case}: the context did not recover");
}

fn survives_random_input(codec: CodecId) {
    let decoder = &mut new_decoder();
    let mut random = Random(7);
    for round in 0..500_usize {
        let mut stored: Vec<u8> = (0..round).map(|_| random.byte()).collect();
        let magic: &[u8] = match codec {
            CodecId::Zstd => &[0x28, 0xb5, 0x2f, 0xfd],
            CodecId::Gzip => &[0x1f, 0x8b, 8, 0],
            CodecId::None | CodecId::Lz4 => &[],
        };
        if round % 2 == 0 && stored.len() >= magic.len() {
            stored[..magic.len()].copy_from_slice(magic);
        }
        let _ = decode(decoder, codec, &stored, round * 3);
    }
}

/// A reused context gives the same bytes as a fresh one, also after blocks that did not fit.
fn one_context_serves_all(compression: Compression) {
    let encoder = &mut new_encoder(compression);
    let decoder = &mut new_decoder();
    for _ in 0..2 {
        for (name, plain) in samples() {
            let room = plain.len() + 1024;
            let reused = encode(encoder, &plain, room, name);
            assert_eq!(reused, encode(&mut new_encoder(compression), &plain, room, name), "{compression}, {name}");
            if let Some(stored) = reused {
                let back = decode(decoder, compression.codec(), &stored, plain.len());
                assert!(back.as_deref() == Ok(&plain[..]), "{compression}, {name}: a reused context changed it");
            }
            let _ = encode(encoder, &plain, plain.len() / 50, name);
        }
    }
}
