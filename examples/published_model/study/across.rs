//! What one part of a table says of another: from the small database to the large one, from gzip to LZ4.

use super::{Cell, Outcome, Study, dbs, rds};

/// A transfer: what was fitted to what, and the predictions of cells that it was not fitted to.
pub struct Transfer {
    /// What is known of the other part.
    pub known: &'static str,
    /// The study that the outcomes belong to.
    pub study: Study,
    /// Predictions.
    pub outcomes: Vec<Outcome>,
}

impl Transfer {
    fn of(known: &'static str, study: Study, learns: impl Fn(&Cell) -> bool, asked: impl Fn(&Cell) -> bool) -> Self {
        let outcomes = study.fit_to(&learns).map_or_else(Vec::new, |fitted| {
            let cells = 0..study.cells.len();
            let foreseen = cells.filter(|at| asked(&study.cells[*at]) && !learns(&study.cells[*at]));
            foreseen.filter_map(|at| study.outcome(&fitted, at)).collect()
        });
        Self { known, study, outcomes }
    }
}

/// From the 1 TB database to the 4 TB one, whose volumes are known by their nominal figures alone; then with one and two of its backups.
pub fn sizes() -> Vec<Transfer> {
    let small = |cell: &Cell| cell.row.starts_with("1 TB");
    let large = |cell: &Cell| cell.row.starts_with("4 TB");
    let plain = |cell: &Cell| cell.row == "4 TB, gp2, plain, 1 file" && cell.column == "backup_8xl";
    let packed = |cell: &Cell| cell.row == "4 TB, io1 30000, compressed, 1 file" && cell.column == "backup_8xl";
    let held = |known: &[(rds::Fitted, f64)]| {
        let held: Vec<(usize, f64)> = known.iter().map(|(which, value)| (*which as usize, *value)).collect();
        rds::study().holding(&held)
    };
    let stored = stored_share_of_small();
    let (used, large_share) = ((rds::Fitted::Used, 1.0), (rds::Fitted::StoredLarge, stored));
    vec![
        Transfer::of("nominal IOPS alone", held(&[used, large_share]), small, large),
        Transfer::of(
            "and one backup: gp2, plain, 1 file",
            held(&[large_share]),
            |cell| small(cell) || plain(cell),
            large,
        ),
        Transfer::of(
            "and a second: io1 30000, compressed, 1 file",
            held(&[]),
            |cell| small(cell) || plain(cell) || packed(cell),
            large,
        ),
    ]
}

/// The stored share that the 1 TB rows speak for: the best guess for another database, as long as nothing is known of it.
fn stored_share_of_small() -> f64 {
    let held = [(rds::Fitted::Used as usize, 1.0), (rds::Fitted::StoredLarge as usize, 1.0)];
    let fitted = rds::study().holding(&held).fit_to(|cell| cell.row.starts_with("1 TB"));
    fitted.map_or(1.0, |fitted| fitted.values[rds::Fitted::StoredSmall as usize])
}

/// From gzip to LZ4, with the stored share of LZ4 as published.
pub fn codecs() -> Vec<Transfer> {
    let gzip = |cell: &Cell| cell.row.starts_with("gzip");
    let lz4 = |cell: &Cell| cell.row.starts_with("lz4");
    let first = |cell: &Cell| cell.row == "lz4, 4 threads" && cell.column == "backup";
    let held = |which: dbs::Fitted| dbs::study().holding(&[(which as usize, f64::INFINITY)]);
    vec![
        Transfer::of(
            "restore, threads held by the stored bytes that they read",
            held(dbs::Fitted::WritePlain),
            |cell| gzip(cell) && cell.column == "restore",
            |cell| lz4(cell) && cell.column == "restore",
        ),
        Transfer::of(
            "restore, threads held by the plain bytes that they write",
            held(dbs::Fitted::ReadStored),
            |cell| gzip(cell) && cell.column == "restore",
            |cell| lz4(cell) && cell.column == "restore",
        ),
        Transfer::of(
            "backup, and LZ4 with 4 threads",
            dbs::study(),
            |cell| (gzip(cell) && cell.column == "backup") || first(cell),
            |cell| lz4(cell) && cell.column == "backup",
        ),
    ]
}
