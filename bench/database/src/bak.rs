//! Writes backups of SQL Server of a given size. The writer is that of the tests: genuine files prove that the reader is
//! right, and the reader proves that the writer is.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use fullbore_engines::compressed::Writer;
use fullbore_engines::sqlserver::large_backup::{LargeBackup, LargeWritten};

/// Bytes of one write.
const WRITE: usize = 1 << 20;
/// A size that makes sense: the system tables need 1 MiB, and SQL Server's files end at 16 TiB.
const SIZES: std::ops::RangeInclusive<u64> = 1 << 20..=16 << 40;

/// What to write.
#[derive(Args)]
pub struct Options {
    /// The file to write.
    path: PathBuf,
    /// Bytes of its pages.
    #[arg(long, default_value = "64MiB", value_parser = crate::parse_size)]
    size: u64,
    /// The rows are a function of this number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A later full of the same database: so many of its pages have other values.
    #[arg(long, default_value = "0%", value_parser = parse_share)]
    changed: u64,
    /// WITH CHECKSUM.
    #[arg(long)]
    checksum: bool,
    /// Also write PATH.packed: the same backup WITH COMPRESSION. The blocks have Huffman codes and no matches, so they are
    /// larger than those of SQL Server.
    #[arg(long)]
    packed: bool,
}

/// Reads `5%` or `2.5%` as 1/10,000.
fn parse_share(text: &str) -> Result<u64, String> {
    let share: f64 = text.trim_end_matches('%').parse().map_err(|_| format!("`{text}` is not a share: write 5%"))?;
    if (0.0..=100.0).contains(&share) {
        Ok((share * 100.0).round() as u64)
    } else {
        Err(format!("`{text}` is not 0% to 100%"))
    }
}

/// Writes the file; gives what it holds as JSON.
///
/// # Errors
/// The size is not one of a database, or a file cannot be written.
pub fn run(options: &Options) -> Result<String> {
    ensure!(SIZES.contains(&options.size), "--size: write 1MiB to 16TiB");
    let backup = LargeBackup {
        size: options.size,
        seed: options.seed,
        changed: options.changed,
        has_checksums: options.checksum,
    };
    let LargeWritten { pages, row_pages, changed_pages, rows } = made(&options.path, |out| Ok(backup.write(out)?))?;
    let mut packed_bytes = 0;
    if options.packed {
        let path = packed_path(&options.path);
        made(&path, |out| Ok(Writer::pack(&mut BufReader::with_capacity(WRITE, File::open(&options.path)?), out)?))?;
        packed_bytes = path.metadata()?.len();
    }
    let bytes = options.path.metadata()?.len();
    Ok(serde_json::json!({
        "bytes": bytes, "pages": pages, "row_pages": row_pages, "changed_pages": changed_pages, "rows": rows,
        "packed_bytes": packed_bytes,
    })
    .to_string())
}

fn packed_path(path: &Path) -> PathBuf {
    let mut packed = path.as_os_str().to_owned();
    packed.push(".packed");
    packed.into()
}

/// Makes a file, and writes it.
fn made<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    let file = File::create(path).with_context(|| format!("make {}", path.display()))?;
    let mut out = BufWriter::with_capacity(WRITE, file);
    let done = write(&mut out).with_context(|| format!("write {}", path.display()))?;
    out.flush().with_context(|| format!("write {}", path.display()))?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_as_parts_of_ten_thousand() {
        assert_eq!((parse_share("5%"), parse_share("2.5"), parse_share("0%")), (Ok(500), Ok(250), Ok(0)));
        for bad in ["", "x%", "101%", "-1%"] {
            assert!(parse_share(bad).is_err(), "{bad} was taken");
        }
    }

    #[test]
    fn a_backup_is_written_with_its_packed_twin() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.bak");
        let options = Options { path: path.clone(), size: 1 << 20, seed: 1, changed: 0, checksum: true, packed: true };
        let written: serde_json::Value = serde_json::from_str(&run(&options)?)?;
        assert_eq!((&written["pages"], &written["row_pages"]), (&128.into(), &64.into()));
        assert!(std::fs::read(&path)?.starts_with(b"TAPE"));
        assert!(std::fs::read(packed_path(&path))?.starts_with(b"MSSQLBAK"));
        assert!(run(&Options { size: 100, ..options }).is_err());
        Ok(())
    }
}
