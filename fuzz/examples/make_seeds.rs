//! Writes the committed seeds that are made of valid media: `cargo run --example make_seeds` in `fuzz/`.

use std::fs;
use std::path::Path;

use fullbore_core::media::{BLOCK_HEADER, BlockHeader, BlockKind, FOOTER, FamilyHeader};
use fullbore_engines::mariadb::redo::framing::seal;
use fullbore_engines::mariadb::redo::header::{Checkpoint, Header};
use fullbore_engines::mariadb::redo::record::put_record;
use fullbore_engines::mariadb::redo::ring::Ring;
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
    put("sidecar", "one-key", &sidecar.to_bytes().map_err(std::io::Error::other)?)?;
    innodb(&put)?;
    compressed(&put)?;
    sqlserver(&put)?;
    sqlserver_tables(&put)?;
    redo(&put)
}

type Put<'a> = &'a dyn Fn(&str, &str, &[u8]) -> std::io::Result<()>;

/// The pages with rows that the tests have from real servers, each behind the flags of its tablespace.
fn innodb(put: Put) -> std::io::Result<()> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/engines/src/mysql_family/innodb/fixtures");
    for (name, dialect) in [
        ("mariadb-full_crc32-plain", 0),
        ("mariadb-full_crc32-pagezip", 0),
        ("mariadb-full_crc32-crypt", 0),
        ("mariadb-crc32-zipcrypt", 0),
        ("mysql-innodb-plain", 1),
        ("mysql-innodb-zip", 1),
    ] {
        let pages = fs::read(fixtures.join(format!("{name}.pages")))?;
        let rows = &pages[pages.len() / 2..];
        put("innodb_page", name, &[&[dialect], &pages[54..58], rows].concat())?;
    }
    let pages = fs::read(fixtures.join("mariadb-full_crc32-crypt.pages"))?;
    put("innodb_page", "head", &[&[0], &pages[54..58], &pages[..4096]].concat())
}

/// A compressed backup of SQL Server, and one block of it.
fn compressed(put: Put) -> std::io::Result<()> {
    use fullbore_engines::compressed::{Writer, xpress};
    let plain = b"row 1 of the table, row 2 of the table; ".repeat(30);
    put("mssqlbak", "one-set", &[&[0][..], &Writer::one_set(&plain).container].concat())?;
    put("mssqlbak", "one-set-put-right", &[&[1][..], &Writer::one_set(&plain[..80]).container].concat())?;
    for (name, plain) in [("rows", &plain[..]), ("zeros", &[0; 4096]), ("letters", b"abcdefghijklmnopqrstuvwxyz")] {
        let length = (plain.len() as u16).to_le_bytes();
        put("xpress", name, &[&length[..], &xpress::compress(plain)].concat())?;
    }
    Ok(())
}

/// Small backups of SQL Server, without pages: a log with a checksum, and a full whose streams are empty.
fn sqlserver(put: Put) -> std::io::Result<()> {
    use fullbore_engines::sqlserver::configuration::BackupKind;
    use fullbore_engines::sqlserver::writer::{FamilyWriter, sample_label, sample_log, sample_set};
    for (name, kind, families, checksum) in
        [("log", BackupKind::Log, 1, true), ("full", BackupKind::Full, 1, false), ("stripe", BackupKind::Log, 2, false)]
    {
        let mut set = sample_set(kind, 1);
        set.configuration.database.has_checksums = checksum;
        set.logs = vec![sample_log(1024), sample_log(0)];
        set.copies = if kind == BackupKind::Full { vec![Vec::new()] } else { Vec::new() };
        put("sqlserver_bak", name, &FamilyWriter::new(&sample_label(families, 1), 512).set(&set).finish())?;
    }
    Ok(())
}

/// Changes to a small database of SQL Server, and rows and values of it.
fn sqlserver_tables(put: Put) -> std::io::Result<()> {
    use fullbore_engines::sqlserver::tables_out::writer::record;
    put("sqlserver_page_record", "unchanged", &[])?;
    // The next page of the first page of orders is the page itself.
    put("sqlserver_page_record", "ring", &[17, 16, 0, 6, 17, 0, 0, 0, 1, 0])?;
    let row = record(&[1, 0, 0, 0], 3, &[1], &[(false, b"abc"), (true, &[5, 0, 1, 0, 3, 0, 12, 0, 3, 0, 0, 0])]);
    put("sqlserver_row_value", "plain", &[&[0][..], &row].concat())?;
    let packed = [&[1, 3, 0x52, 0x03, 0x81][..], b"PALM", &[0xC0, 0x67]].concat();
    put("sqlserver_row_value", "row-compressed", &[&[1][..], &packed].concat())?;
    let anchor = [&[1, 3, 0x80, 0x00][..], b"PALETTE"].concat();
    let head = [&[6, 0, 0, 18, 0, 24, 0][..], &anchor, &[1, 0, 2, 0, 3, b'M']].concat();
    let symbol = [1, 3, 0xC2, 0x03, 0x81, 0, 0xC0, 0x67];
    put("sqlserver_row_value", "page-compressed", &[&[2, head.len() as u8, 0][..], &head, &symbol].concat())?;
    put("sqlserver_row_value", "decimal", &[3, 106, 0, 0, 9, 2, 1, 0x39, 0x30, 0, 0])?;
    put("sqlserver_row_value", "variant", &[3, 98, 0, 0, 0, 0, 56, 1, 7, 0, 0, 0])?;
    put("sqlserver_row_value", "scsu", &[&[3, 231, 80, 0, 0, 0][..], b"\x12\x9C\xBE\xC1\xBA\xB2\xB0"].concat())
}

/// A redo log's head and a few mini-transactions.
fn redo(put: Put) -> std::io::Result<()> {
    let checkpoint = Checkpoint { lsn: 20_000, end_lsn: 20_100 };
    for encrypted in [false, true] {
        let head = [&[1][..], &Header::made(12288, encrypted), &checkpoint.to_bytes()].concat();
        put("mariadb_redo_head", if encrypted { "encrypted" } else { "plain" }, &head)?;
        let ring = Ring::new(12288, 4 << 20).ok_or_else(|| std::io::Error::other("a ring"))?;
        let mut log = vec![u8::from(encrypted), 0];
        for body in [&b"\x05\x00./shop/item.ibd"[..], &[3, 4, 9, 9, 9], &[7; 40]] {
            let mut records = Vec::new();
            put_record(if body.len() > 10 && body[1] == 0 { 0xB0 } else { 0x30 }, body, &mut records);
            let lsn = 12288 + (log.len() - 2) as u64;
            log.extend_from_slice(&seal(&records, lsn, &ring, encrypted.then_some(lsn)));
        }
        put("mariadb_redo_log", if encrypted { "encrypted" } else { "plain" }, &log)?;
    }
    Ok(())
}
