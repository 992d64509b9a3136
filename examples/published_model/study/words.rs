//! What is said about the tables, with every figure computed from them.

use super::{Cell, Leave, Study, buffers, dbs, rds};

const MEGABYTE: f64 = 1e6;

/// Least to greatest of some figures of those cells that count.
fn range(study: &Study, counts: impl Fn(&Cell) -> bool, figure: impl Fn(&Cell) -> f64) -> String {
    let chosen: Vec<f64> = study.cells.iter().filter(|cell| counts(cell)).map(figure).collect();
    let (least, greatest) =
        chosen.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), one| (low.min(*one), high.max(*one)));
    if format!("{least:.0}") == format!("{greatest:.0}") {
        format!("{least:.0}")
    } else {
        format!("{least:.0}–{greatest:.0}")
    }
}

fn of(row: &'static str, column: &'static str) -> impl Fn(&Cell) -> bool {
    move |cell| cell.row == row && cell.column.starts_with(column)
}

/// Published MB/s of RDS rows, of the nominal size.
fn rds_rate(study: &Study, row: &'static str, column: &'static str) -> String {
    range(study, of(row, column), |cell| {
        let terabytes = if cell.row.starts_with("1 TB") { 1.0 } else { 4.0 };
        terabytes * rds::TERABYTE / cell.seconds / MEGABYTE
    })
}

fn rds_minutes(study: &Study, row: &'static str, column: &'static str) -> String {
    range(study, of(row, column), |cell| cell.seconds / rds::MINUTE)
}

fn dbs_rate(study: &Study, row: &'static str, column: &'static str, threads: f64) -> f64 {
    let seconds =
        study.cells.iter().find(|cell| cell.row == row && cell.column == column).map_or(f64::NAN, |cell| cell.seconds);
    dbs::PLAIN / seconds / MEGABYTE / threads
}

/// About the RDS table.
pub fn of_rds(study: &Study) -> String {
    let rate = |row, column| rds_rate(study, row, column);
    format!(
        "One path for all rows, both machines, both sizes: files to and from S3, the volume by its *nominal* ceiling (gp2 250 MiB/s; io1 500 MiB/s up to 32,000 IOPS, then 16 KiB for each: AWS's user guide of that time) times one
share, and two stored shares. Buffers: SQL Server's default, four for each file and two for the volume. Two parameters are no speeds:

- *Used share of the 4 TB database.* A backup reads pages that are in use. If both databases are as full as their names say, then a single plain file goes at {} MB/s at 1 TB and at {} at 4 TB, gp2 volumes read {} and {}, io1 {} and {}. All of
  these differ by about the same factor, which is not one of hardware: less of the \"4 TB\" is there to read. With that one number the single-stream rate is the same at both sizes, and all volumes give the same share of their nominal ceiling, also
  the one of 35,000 IOPS, which is faster by what 16 KiB for each operation gives.
- *Bytes that a restore writes.* Restores into the 4 TB database take longer than its backups by a time that is in proportion to the volume's ceiling: pages that are not in the backup seem to be written too (files made at their full size and filled).

These are readings of the numbers, not what AWS says, and they were found by looking at this very table, which leaving numbers out does not undo. That all volumes then give one share of ceilings that are published elsewhere, and a file goes at one rate at both
sizes, could have failed. What the two are worth is below the table. That backups to S3 have SQL Server's buffers for disks is assumed; the medians hardly depend on it (tried: 1, 2 and 16 for each file).
",
        rate("1 TB, gp2, plain, 1 file", "backup"),
        rate("4 TB, gp2, plain, 1 file", "backup"),
        rate("1 TB, gp2, compressed, 4 files", "backup"),
        rate("4 TB, gp2, compressed, 4 files", "backup"),
        rate("1 TB, io1 9000, compressed, 4 files", "backup"),
        rate("4 TB, io1 30000, compressed, 4 files", "backup"),
    )
}

/// About DBS.
pub fn of_dbs(study: &Study) -> String {
    let rate = |row, threads| dbs_rate(study, row, "backup", threads);
    format!(
        "Each thread takes a piece of the data through all steps before the next: buffers = threads, so that \"pool\" as the limit means the threads. Stored shares are the published ones. Backups: codec per thread, one volume. Restores: each thread reads stored bytes
at one rate and writes plain ones at another, whatever the codec. Five parameters are not clearly fewer than twelve numbers: three of them stand against the six backups, two against the six restores.

**The restores hold; the backups alone do not.** gzip falls from {:.1} to {:.1} MB/s a thread between 4 and 16 threads, which asks for a volume that LZ4, with {:.0} MB/s by 8 threads, breaks through; and LZ4 goes {:.2} times as fast with 8 threads as with 4, which no
model of this kind gives. The classes probably differ in more than their threads. Leaving one of three numbers of a codec out then decides which of these contradictions the rest follows.
",
        rate("gzip, 4 threads", 4.0),
        rate("gzip, 16 threads", 16.0),
        rate("lz4, 8 threads", 1.0),
        rate("lz4, 8 threads", 1.0) / rate("lz4, 4 threads", 1.0),
    )
}

/// About BUFFERCOUNT.
pub fn of_buffers(study: &Study) -> String {
    let rate = |row| range(study, of(row, "backup"), |cell| buffers::PLAIN / cell.seconds / MEGABYTE);
    format!(
        "Parameters: one file, compression of one buffer (64 workers, so that buffers are fewer than workers), the volume. The shape is right: 12 buffers are the limit, 1,024 are not, and MAXTRANSFERSIZE changes nothing because no operation has a latency. But
it is three parameters for six numbers, of which the uncompressed one and the one with 1,024 buffers are each the only witness of a parameter: left out, nobody could predict them. That two files are faster than one with 12 buffers ({} and {} MB/s) is not
explained: both are far below what their files can take.
",
        rate("2 files, compressed, 1 MiB, 12 buffers"),
        rate("1 file, compressed, 1 MiB, 12 buffers"),
    )
}

/// What no model of this kind explains.
pub fn not_explained(rds: &Study) -> String {
    let minutes = |row, column| rds_minutes(rds, row, column);
    let rate = |row, column| rds_rate(rds, row, column);
    let fitted = rds.leave_out(Leave::Nothing);
    let error = |row: &'static str, column: &'static str| {
        let counted = fitted.iter().filter(|outcome| of(row, column)(&rds.cells[outcome.cell]));
        let errors: Vec<String> = counted.map(|outcome| format!("{:+.0} %", 100.0 * outcome.error)).collect();
        errors.join(" and ")
    };
    format!(
        "
## What no model of this kind explains

- **RDS, restores on io1 with 9,000 IOPS:** a single plain file takes {} min on 8xlarge and {} on 24xlarge, four take {} and {}, eight {} and {}. A larger machine with the same volume and the same files cannot be slower here; its backups are not.
  Both columns are predicted alike, and their errors have opposite signs. No reason is published.
- **RDS, one file restored:** a single plain file comes at {} MB/s from gp2's restores at 1 TB, at {} from those of io1, at {} and {} at 4 TB. One rate for a file cannot be all of these.
- **RDS, four plain files restored to io1, 4 TB:** {} when fitted to all: four files go faster together than four times one.
- **RDS, eight plain files to S3:** {} and {} MB/s (1 TB and 4 TB), four {} and {}. At 4 TB eight are faster by more than one ceiling for all files allows: {} there when fitted to all.
- **RDS, the compressed single file of the 4 TB database on io1:** the only configuration that shows how well that database compresses, for on gp2 the volume is in the way. Left out, the share is not known, and the predictions of its three numbers are guesses.
- **DBS, LZ4 from 4 to 8 threads:** see above.
- **DBS, logical and log rows:** rows per second of classes whose processors are not named, and a \"Mbit/s\" that cannot be right (see the note in the table). Not predicted.
- **Peak (233 GB in under a minute):** three numbers of three set-ups, none of which differs from another in one thing: there is nothing to predict one from the other with.
- **SQL Server's BLOCKSIZE:** opposite signs on two servers.
- **Burst credit:** none of these volumes has any to show: gp2 of 1.5 TB and more reaches its ceiling in bytes long before that in operations.
",
        minutes("1 TB, io1 9000, plain, 1 file", "restore_8xl"),
        minutes("1 TB, io1 9000, plain, 1 file", "restore_24xl"),
        minutes("1 TB, io1 9000, plain, 4 files", "restore_8xl"),
        minutes("1 TB, io1 9000, plain, 4 files", "restore_24xl"),
        minutes("1 TB, io1 9000, plain, 8 files", "restore_8xl"),
        minutes("1 TB, io1 9000, plain, 8 files", "restore_24xl"),
        rate("1 TB, gp2, plain, 1 file", "restore"),
        rate("1 TB, io1 9000, plain, 1 file", "restore"),
        rate("4 TB, gp2, plain, 1 file", "restore"),
        rate("4 TB, io1 30000, plain, 1 file", "restore"),
        error("4 TB, io1 30000, plain, 4 files", "restore"),
        rate("1 TB, io1 9000, plain, 8 files", "backup"),
        rate("4 TB, io1 30000, plain, 8 files", "backup"),
        rate("1 TB, io1 9000, plain, 4 files", "backup"),
        rate("4 TB, io1 30000, plain, 4 files", "backup"),
        error("4 TB, io1 30000, plain, 8 files", "backup"),
    )
}
