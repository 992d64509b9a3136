#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;

/// The table and the codes of the examples of MS-XCA, section 3.2.
fn example(lengths: &[(usize, u8)], codes: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; TABLE];
    for &(symbol, length) in lengths {
        packed[symbol / 2] |= length << (4 * (symbol % 2));
    }
    packed.extend(codes);
    packed
}

/// The first example: the letters, each once. `packed[48..62]` is `50 55 … 55 45 44 04` in the specification.
fn alphabet() -> Vec<u8> {
    let lengths = (b'a'..=b'z').map(|letter| (letter.into(), if letter < b'w' { 5 } else { 4 })).chain([(256, 4)]);
    let codes =
        [0xD8, 0x52, 0x3E, 0xD7, 0x94, 0x11, 0x5B, 0xE9, 0x19, 0x5F, 0xF9, 0xD6, 0x7C, 0xDF, 0x8D, 0x04, 0, 0, 0, 0];
    example(&lengths.collect::<Vec<_>>(), &codes)
}

/// The second example: `abc`, a hundred times, as three letters and one match of 297 bytes.
fn abc() -> Vec<u8> {
    let lengths = [(97, 3), (98, 3), (99, 2), (256, 2), (287, 2)];
    example(&lengths, &[0xA8, 0xDC, 0x00, 0x00, 0xFF, 0x26, 0x01])
}

fn decoded(packed: &[u8], length: usize) -> Result<Vec<u8>, XpressError> {
    let mut plain = vec![0xEE; length];
    Decoder::default().decode(packed, &mut plain).map(|()| plain)
}

#[test]
fn the_examples_of_the_specification_unpack_to_its_texts() {
    assert_eq!(
        alphabet()[48..62],
        [0x50, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x45, 0x44, 0x04]
    );
    assert_eq!(decoded(&alphabet(), 26).unwrap(), b"abcdefghijklmnopqrstuvwxyz");
    assert_eq!(decoded(&abc(), 300).unwrap(), b"abc".repeat(100));
}

#[test]
fn the_encoder_makes_the_second_example_of_the_specification() {
    assert_eq!(compress(&b"abc".repeat(100)), abc());
}

#[test]
fn a_block_that_ends_too_early_is_truncated() {
    assert_eq!(decoded(&abc()[..TABLE - 1], 300), Err(XpressError::NoTable));
    for length in TABLE..TABLE + 7 {
        assert_eq!(decoded(&abc()[..length], 300), Err(XpressError::Truncated), "{length}");
    }
    // A zero bit is the letter `c` there, so the missing words would unpack to text without an end.
    assert_eq!(decoded(&abc()[..TABLE], 65_536), Err(XpressError::Truncated));
}

#[test]
fn a_block_that_does_not_end_behind_its_last_plain_byte_is_refused() {
    assert_eq!(decoded(&alphabet(), 25), Err(XpressError::TooMuch));
    for more in [&[0][..], &[0, 0], &[1, 2, 3]] {
        assert_eq!(decoded(&[&abc()[..], more].concat(), 300), Err(XpressError::TooMuch));
    }
}

#[test]
fn code_lengths_that_are_not_a_complete_code_are_refused() {
    let of = |lengths: &[(usize, u8)]| decoded(&example(lengths, &[0, 0b0000_1000, 0, 0]), 4);
    for (lengths, what) in [
        (&[][..], "no code"),
        (&[(7, 1)], "one symbol of one bit"),
        (&[(7, 1), (8, 2)], "a code that means nothing"),
        (&[(7, 1), (8, 1), (9, 1)], "a code that means two symbols"),
    ] {
        assert_eq!(of(lengths), Err(XpressError::NotACode), "{what}");
    }
    assert_eq!(of(&[(7, 1), (256, 1)]).unwrap(), [7; 4]);
    let all_of_15_bits: Vec<_> = (0..512).map(|symbol| (symbol, 15)).collect();
    assert_eq!(of(&all_of_15_bits), Err(XpressError::NotACode));
}

#[test]
fn a_match_stays_inside_its_block() {
    // Symbol 256 is a match of 3 bytes at distance 1: the code `1`. The byte `x` is the code `0`.
    let code = [(b'x'.into(), 1), (256, 1)];
    let of = |first_bits: u8, length| decoded(&example(&code, &[0, first_bits, 0, 0]), length);
    assert_eq!(of(0b1000_0000, 8), Err(XpressError::BeforeStart));
    assert_eq!(of(0b0110_0000, 4).unwrap(), *b"xxxx");
    assert_eq!(of(0b0110_0000, 3), Err(XpressError::BehindEnd));
    assert_eq!(decoded(&abc(), 299), Err(XpressError::BehindEnd));
}

#[test]
fn a_long_length_has_its_shortest_form_and_fits_into_a_block() {
    let with_length = |bytes: &[u8]| [&abc()[..TABLE + 4], bytes].concat();
    assert_eq!(decoded(&with_length(&[255, 14, 0]), 300), Err(XpressError::WrongLength));
    assert_eq!(decoded(&with_length(&[255, 0, 0, 14, 0, 0, 0]), 300), Err(XpressError::WrongLength));
    assert_eq!(decoded(&with_length(&[255, 0, 0, 0x26, 1, 0, 0]), 300).unwrap(), b"abc".repeat(100));
    assert_eq!(decoded(&with_length(&[255, 0, 0, 255, 255, 255, 255]), 300), Err(XpressError::BehindEnd));
    assert_eq!(decoded(&with_length(&[255, 0, 0, 255]), 300), Err(XpressError::Truncated));
}

#[test]
fn more_than_65536_plain_bytes_are_never_unpacked() {
    assert_eq!(decoded(&abc(), BLOCK_MAX + 1), Err(XpressError::TooLong));
    let largest = b"0123456789abcdef".repeat(BLOCK_MAX / 16);
    assert_eq!(decoded(&compress(&largest), BLOCK_MAX).unwrap(), largest);
}

#[test]
fn tables_of_an_earlier_block_do_not_leak_into_the_next() {
    let mut decoder = Decoder::default();
    let noise: Vec<u8> = (0..3000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for plain in [&noise[..], b"abcabcabcabc", &[0; 5000], &noise[7..]] {
        let mut out = vec![0; plain.len()];
        decoder.decode(&compress(plain), &mut out).unwrap();
        assert_eq!(out, plain);
    }
}

/// The decoder as section 2.2.4 of the specification has it: a table of 32,768 entries and a window of 32 bits.
fn by_the_book(packed: &[u8], length: usize) -> Option<Vec<u8>> {
    let code_length = |symbol: usize| usize::from(packed[symbol / 2] >> (4 * (symbol % 2)) & 15);
    if packed.len() < TABLE {
        return None;
    }
    let mut table = Vec::new();
    for bits in 1..=15 {
        for symbol in (0..512).filter(|&symbol| code_length(symbol) == bits) {
            table.extend(vec![symbol; 1 << (15 - bits)]);
        }
    }
    if table.len() != 1 << 15 {
        return None;
    }
    let mut at = TABLE;
    let word = |at: &mut usize| {
        let word = packed.get(*at..*at + 2).map(|bytes| u32::from(bytes[0]) | u32::from(bytes[1]) << 8);
        *at += 2;
        word.unwrap_or(0)
    };
    let mut next = word(&mut at) << 16 | word(&mut at);
    let (mut extra, mut plain) = (16_i32, Vec::new());
    while plain.len() < length {
        let mut take = |count: usize, next: &mut u32, at: &mut usize| {
            *next = (u64::from(*next) << count) as u32;
            extra -= count as i32;
            if extra < 0 {
                *next |= word(at) << -extra;
                extra += 16;
            }
        };
        let symbol = table[(next >> 17) as usize];
        take(code_length(symbol), &mut next, &mut at);
        if symbol < 256 {
            plain.push(symbol as u8);
            continue;
        }
        let (mut long, distance_bits) = (symbol % 16, symbol / 16 % 16);
        if long == 15 {
            long = usize::from(*packed.get(at)?);
            at += 1;
            if long == 255 {
                long = usize::from(u16::from_le_bytes(packed.get(at..at + 2)?.try_into().ok()?));
                at += 2;
                if long == 0 {
                    long = u32::from_le_bytes(packed.get(at..at + 4)?.try_into().ok()?) as usize;
                    at += 4;
                }
                long = long.checked_sub(15)?;
            }
            long += 15;
        }
        let distance = (1 << distance_bits) + (u64::from(next) >> (32 - distance_bits)) as usize;
        take(distance_bits, &mut next, &mut at);
        let from = plain.len().checked_sub(distance)?;
        if long + 3 > length - plain.len() {
            return None;
        }
        (from..from + long + 3).for_each(|at| plain.push(plain[at]));
    }
    let end = table[(next >> 17) as usize];
    extra -= code_length(end) as i32;
    at += if extra < 0 { 2 } else { 0 };
    (end == 256 && at == packed.len()).then_some(plain)
}

/// Text, noise and repetitions, as pages of a database have them.
fn pages() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..400),
        (any::<u8>(), 1_usize..9000).prop_map(|(byte, length)| vec![byte; length]),
        ("[a-f]{1,40}", 1_usize..300).prop_map(|(text, times)| text.into_bytes().repeat(times)),
        prop::collection::vec(0_u8..4, 0..3000),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| {
        let mut plain = pieces.concat();
        plain.truncate(BLOCK_MAX);
        plain
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_packed_unpacks_to_the_same_bytes_also_by_the_book(plain in pages()) {
        let packed = compress(&plain);
        prop_assert_eq!(&decoded(&packed, plain.len()).unwrap(), &plain);
        prop_assert_eq!(&by_the_book(&packed, plain.len()).unwrap(), &plain);
    }

    #[test]
    fn hostile_codes_end_in_an_error_or_in_the_bytes_of_the_book(
        plain in pages(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in any::<prop::sample::Index>(),
        longer in 0_usize..2000,
    ) {
        let mut packed = compress(&plain);
        for (place, byte) in changes {
            // The table stays, or nearly every block would be refused for it.
            let codes = &mut packed[TABLE..];
            codes[place.index(codes.len())] = byte;
        }
        packed.truncate(TABLE + cut.index(packed.len() - TABLE) + 1);
        let length = (plain.len() + longer).min(BLOCK_MAX);
        prop_assert_eq!(decoded(&packed, length).ok(), by_the_book(&packed, length));
    }

    #[test]
    fn any_bytes_end_in_an_error_or_in_the_bytes_of_the_book(
        table in prop::collection::vec(any::<u8>(), 0..300), length in 0_usize..3000,
    ) {
        prop_assert_eq!(decoded(&table, length).ok(), by_the_book(&table, length));
    }
}
