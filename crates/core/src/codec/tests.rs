#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::testkit::codec_conforms;

fn all() -> Vec<Compression> {
    let zstd = [-3, -1, 1, 3, 9, 19].map(|level| format!("zstd:{level}"));
    let gzip = [1, 2, 3, 4, 6, 9, 10, 12].map(|level| format!("gzip:{level}"));
    let texts = ["none".to_owned(), "lz4".to_owned()].into_iter().chain(zstd).chain(gzip);
    texts.map(|text| text.parse().unwrap()).collect()
}

#[test]
fn none_conforms() {
    codec_conforms(Compression::None);
}

#[test]
fn lz4_conforms() {
    codec_conforms(Compression::Lz4);
}

#[test]
fn every_zstd_class_conforms() {
    for compression in all().into_iter().filter(|one| one.codec() == CodecId::Zstd) {
        codec_conforms(compression);
    }
}

#[test]
fn every_gzip_class_conforms() {
    for compression in all().into_iter().filter(|one| one.codec() == CodecId::Gzip) {
        codec_conforms(compression);
    }
}

/// So that a build with ISA-L also tests what one without it does.
#[test]
fn libdeflate_makes_the_levels_of_isa_l_too() {
    let text: Vec<u8> = (0..20_000).flat_map(|n| format!("row {n} of the table, ").into_bytes()).collect();
    for level in 1..=3 {
        let Compression::Gzip(level) = format!("gzip:{level}").parse().unwrap() else { panic!("gzip is gzip") };
        let mut stored = vec![0; text.len()];
        let length = gzip::Encoder::libdeflate(level).encode(&text, &mut stored).unwrap().unwrap();
        assert!(length < text.len() / 2, "{length} bytes of {}", text.len());
        let mut plain = vec![0; text.len()];
        Decoder::new().unwrap().decode(CodecId::Gzip, &stored[..length], &mut plain).unwrap();
        assert!(plain == text);
        assert!(gzip::Encoder::libdeflate(level).encode(&text, &mut stored[..length - 1]).unwrap().is_none());
    }
}

#[test]
fn codec_numbers_are_fixed() {
    let numbers: Vec<(u8, &str)> = CodecId::ALL.iter().map(|codec| (codec.number(), codec.name())).collect();
    assert_eq!(numbers, [(0, "none"), (1, "lz4"), (2, "zstd"), (3, "gzip")]);
    for number in 0..=255 {
        assert_eq!(CodecId::from_number(number).map(CodecId::number), (number < 4).then_some(number));
    }
}

#[test]
fn known_streams_of_other_tools_are_read() {
    let plain = [b"fullbore ".repeat(4), b"end.\n".to_vec()].concat();
    // A literal run of 9, a match of 27 at distance 9, the last 5 literals: by hand from the LZ4 block format.
    let lz4 = [&[0x9f][..], b"fullbore ", &[9, 0, 27 - 4 - 15, 0x50], b"end.\n"].concat();
    // RFC 8878: magic, single segment with one byte of size, one last raw block.
    let header = ((plain.len() as u32) << 3 | 1).to_le_bytes();
    let zstd = [&[0x28, 0xb5, 0x2f, 0xfd, 0x20, plain.len() as u8], &header[..3], &plain].concat();
    let mut out = vec![0; plain.len()];
    for (codec, stored) in [(CodecId::Lz4, lz4), (CodecId::Zstd, zstd), (CodecId::None, plain.clone())] {
        out.fill(0);
        Decoder::new().unwrap().decode(codec, &stored, &mut out).unwrap();
        assert_eq!(out, plain, "{codec}");
    }
}

#[test]
fn a_frame_to_be_skipped_is_not_a_block() {
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4];
    assert!(Decoder::new().unwrap().decode(CodecId::Zstd, &skippable, &mut [0; 4]).is_err());
}

#[test]
fn a_frame_that_claims_a_huge_window_or_size_allocates_nothing() {
    // Window descriptor for 3.75 TiB; content size of 2^63: the claims are all there is.
    for claims in [&[0x00, 0xff][..], &[0xe0, 0, 0, 0, 0, 0, 0, 0, 0x80][..]] {
        let stored = [&[0x28, 0xb5, 0x2f, 0xfd], claims, &[1, 0, 0]].concat();
        assert!(Decoder::new().unwrap().decode(CodecId::Zstd, &stored, &mut [0; 4096]).is_err());
    }
}

#[test]
fn zstd_contexts_stay_within_what_memory_says() {
    for compression in all() {
        let Compression::Zstd(level) = compression else { continue };
        let size = 1 << 20;
        let mut context = ::zstd::zstd_safe::CCtx::create();
        context.set_parameter(::zstd::zstd_safe::CParameter::CompressionLevel(level.get())).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let plain: Vec<u8> = (0..size).map(|_| random.u8(b'a'..b'q')).collect();
        let mut out = vec![0; size + (8 << 10)]; // Negative levels leave such letters as they are.
        for length in [size, 1000, size / 2, size] {
            context.compress2(&mut out[..], &plain[..length]).unwrap();
            assert!(context.sizeof() <= memory(compression, size), "{compression}: {} bytes", context.sizeof());
        }
    }
}

fn compressible() -> impl Strategy<Value = Vec<u8>> {
    let run = prop_oneof![
        (any::<u8>(), 0..3000_usize).prop_map(|(byte, length)| vec![byte; length]),
        prop::collection::vec(any::<u8>(), 0..300),
        (prop::collection::vec(any::<u8>(), 1..40), 1..50_usize).prop_map(|(word, times)| word.repeat(times)),
    ];
    prop::collection::vec(run, 0..12).prop_map(|runs| runs.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_was_packed_comes_back(
        compression in prop::sample::select(all()),
        plain in compressible(),
        room in 0..20_000_usize,
    ) {
        let mut out = vec![0; room];
        if let Some(length) = Encoder::new(compression).unwrap().encode(&plain, &mut out).unwrap() {
            prop_assert!(length < plain.len());
            let mut back = vec![1; plain.len()];
            prop_assert!(Decoder::new().unwrap().decode(compression.codec(), &out[..length], &mut back).is_ok());
            prop_assert_eq!(&back, &plain);
        }
    }

    #[test]
    fn anything_may_be_given_to_a_decoder(
        stored in prop::collection::vec(any::<u8>(), 0..600),
        length in 0..5000_usize,
    ) {
        let mut decoder = Decoder::new().unwrap();
        for codec in CodecId::ALL {
            let _ = decoder.decode(codec, &stored, &mut vec![0; length]);
        }
    }
}
