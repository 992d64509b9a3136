//! Writes the committed seeds that are made of valid media: `cargo run --example make_seeds` in `fuzz/`.

use std::fs;
use std::path::Path;

use fullbore_core::media::{BLOCK_HEADER, BlockHeader, BlockKind, FOOTER, FamilyHeader};
use fullbore_fuzz::sample;

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let put = |target: &str, name: &str, bytes: &[u8]| {
        fs::create_dir_all(folder.join(target))?;
        fs::write(folder.join(target).join(name), bytes)
    };
    let family = sample("zstd");
    let mut at = FamilyHeader::length(&family).map_err(std::io::Error::other)?;
    put("family_header", "full", &family[..at])?;
    put("family_footer", "commit-record", &family[family.len() - FOOTER..])?;
    loop {
        let header = BlockHeader::decode(&family[at..], 1 << 16).map_err(std::io::Error::other)?;
        let block = &family[at..at + header.block_length()];
        let payload = &block[BLOCK_HEADER + header.prefix_length as usize..];
        match header.kind {
            BlockKind::Data if block.len() < 6000 => put("family_block", "data", block)?,
            BlockKind::Data => {}
            BlockKind::Map => put("family_block", "map", block)?,
            BlockKind::Index => put("family_index", "entries", payload)?,
            BlockKind::Manifest => {
                let mut stored = vec![2];
                stored.extend_from_slice(&(header.plain_length as u16).to_le_bytes());
                stored.extend_from_slice(payload);
                put("codecs", "zstd-manifest", &stored)?;
                let mut plain = vec![0; header.plain_length as usize];
                let mut decoder = fullbore_core::codec::Decoder::new().map_err(std::io::Error::other)?;
                let codec = fullbore_core::codec::CodecId::Zstd;
                decoder.decode(codec, payload, &mut plain).map_err(std::io::Error::other)?;
                put("family_manifest", "full", &plain)?;
            }
            BlockKind::Trailer => {
                put("family_trailer", "one-manifest", payload)?;
                break;
            }
        }
        at += block.len();
    }
    for (name, codec) in [("lz4", 1), ("gzip", 3)] {
        let plain = b"row 1 of the table, row 2 of the table, row 3 of the table, row 4 of the table".repeat(4);
        let mut out = vec![0; 1000];
        let mut encoder = name.parse().and_then(fullbore_core::codec::Encoder::new).map_err(std::io::Error::other)?;
        let length = encoder.encode(&plain, &mut out).map_err(std::io::Error::other)?.unwrap_or(0);
        let head = [&[codec][..], &(plain.len() as u16).to_le_bytes(), &out[..length]].concat();
        put("codecs", name, &head)?;
    }
    let key = fullbore_core::cipher::KeyFile::generate().map_err(std::io::Error::other)?;
    let path = std::env::temp_dir().join(format!("fullbore-seed-{}", std::process::id()));
    key.write_public_new(&path).map_err(std::io::Error::other)?;
    put("key_file", "public", &fs::read(&path)?)?;
    fs::remove_file(&path)?;
    let data_key = fullbore_core::cipher::DataKey::random().map_err(std::io::Error::other)?;
    let records = fullbore_core::cipher::wrap_for(&[key.public().clone()], &data_key, &[7; 16]);
    let sidecar =
        fullbore_core::cipher::Sidecar { media_set_id: [7; 16], records: records.map_err(std::io::Error::other)? };
    put("sidecar", "one-key", &sidecar.to_bytes().map_err(std::io::Error::other)?)
}
