//! The cells of a matrix: the product of its axes without the excluded ones, and their order in each round.

use std::collections::BTreeMap;

use fullbore_core::{Error, Result};

use super::matrix::{Axis, DataFrom, Matrix, NONE};
use super::volume::How;

/// The most cells: more would take too long, and would not fit into a table.
const MOST_CELLS: u64 = 100_000;

/// One combination: a value for each axis of the matrix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell(BTreeMap<Axis, String>);

/// One run of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round {
    /// It is before the counted rounds.
    pub warm_up: bool,
    /// Its number, from 1, among the counted rounds or the warm-ups.
    pub number: u32,
}

impl Cell {
    /// A cell of these values.
    pub fn new(values: BTreeMap<Axis, String>) -> Self {
        Self(values)
    }

    /// Its value on an axis, if the matrix has it.
    pub fn get(&self, axis: Axis) -> Option<&str> {
        self.0.get(&axis).map(String::as_str)
    }

    /// The same, but `None` for the word `none`.
    pub fn named(&self, axis: Axis) -> Option<&str> {
        self.get(axis).filter(|name| *name != NONE)
    }

    /// Its number on an axis.
    pub fn number(&self, axis: Axis) -> Option<usize> {
        self.get(axis).and_then(|word| word.parse().ok()) // Checked when the matrix was read.
    }

    /// A restore.
    pub fn restores(&self) -> bool {
        self.get(Axis::Operation) == Some("restore")
    }

    /// It restores what `backup` writes: they differ in their operation only.
    pub fn restores_the_backup(&self, backup: &Self) -> bool {
        fn settings(cell: &Cell) -> impl Iterator<Item = (&Axis, &String)> {
            cell.0.iter().filter(|(axis, _)| **axis != Axis::Operation)
        }
        self.restores() && !backup.restores() && settings(self).eq(settings(backup))
    }

    /// A differential.
    pub fn is_differential(&self) -> bool {
        self.get(Axis::Kind) == Some("differential")
    }

    /// Media that keep no data.
    pub fn to_nul(&self) -> bool {
        self.get(Axis::Media) == Some("nul")
    }

    /// The price of an hour of its machine.
    pub fn price_per_hour(&self, matrix: &Matrix) -> Option<f64> {
        let class = self.get(Axis::Instance).and_then(|name| matrix.instances.get(name));
        class.and_then(|class| class.price_per_hour).or(matrix.price_per_hour)
    }

    /// How the volume of an axis is made, if it has one.
    pub fn how(&self, matrix: &Matrix, axis: Axis) -> Option<How> {
        let profile = self.named(axis).and_then(|name| matrix.volumes.get(name))?;
        let data = self.get(Axis::Data).and_then(|name| matrix.data.get(name));
        let given = data.is_some_and(|data| matches!(data.from, DataFrom::Source(_)));
        Some(matrix.means.of(profile, given && axis == Axis::Volume && !self.restores()))
    }

    /// It changes its database, or needs it on a volume.
    pub fn works_on_a_copy(&self, matrix: &Matrix) -> bool {
        let on_a_volume = !self.restores() && self.how(matrix, Axis::Volume) == Some(How::Block);
        self.is_differential() || self.named(Axis::Load).is_some() || on_a_volume
    }

    /// The raw path is measured in the same run. This is impossible with a database volume that is emulated in process.
    pub fn measures_the_raw_path(&self, matrix: &Matrix) -> bool {
        let emulated = self.how(matrix, Axis::Volume).is_some_and(|how| how != How::Block);
        matrix.raw_path && !self.restores() && !emulated
    }

    /// All values by name.
    pub fn words(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(axis, word)| (axis.name().to_owned(), word.clone())).collect()
    }

    /// In one line.
    pub fn line(&self) -> String {
        let words = self.0.iter().map(|(axis, word)| match axis {
            Axis::Operation => word.clone(),
            axis => format!("{}={word}", axis.name()),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// The identity of a result: the values, all numbers of their data and volumes, the places, and the program.
    pub fn identity(&self, matrix: &Matrix) -> String {
        let mut text = self.line();
        if let Some(data) = self.get(Axis::Data).and_then(|name| matrix.data.get(name)) {
            text += &match &data.from {
                DataFrom::Source(source) => format!("; source {}", fullbore_engines::without_password(source)),
                DataFrom::Made { full_bytes, bytes, random, seed } => {
                    format!("; made {bytes} of {full_bytes} bytes, {random} random, seed {seed}")
                }
            };
        }
        for axis in [Axis::Volume, Axis::MediaVolume] {
            if let Some(profile) = self.named(axis).and_then(|name| matrix.volumes.get(name)) {
                text += &format!("; {} {}", axis.name(), profile.numbers());
                if self.how(matrix, axis) == Some(How::Block) {
                    text += ", a block device";
                }
            }
        }
        if let Some(class) = self.get(Axis::Instance).and_then(|name| matrix.instances.get(name)) {
            text += &format!("; {:?} threads, {:?} bytes", class.threads, class.memory);
        }
        if let Some(load) = self.named(Axis::Load).and_then(|name| matrix.loads.get(name)) {
            text += &format!("; {} writers, {} readers", load.writers, load.readers);
        }
        if self.measures_the_raw_path(matrix) {
            text += "; raw path measured";
        }
        text += &format!("; in {}", matrix.work.display());
        let media = matrix.media_directories.iter().take(self.number(Axis::Devices).unwrap_or(1));
        if !self.to_nul() {
            media.for_each(|directory| text += &format!("; media in {}", directory.display()));
        }
        text += if matrix.cold { "; cold" } else { "; caches kept" };
        text + "; fullbore " + env!("CARGO_PKG_VERSION")
    }
}

/// All cells in the order of the file: the last axis changes fastest.
///
/// # Errors
/// There are too many, none is left, or one contradicts itself.
pub fn cells(matrix: &Matrix) -> Result<Vec<Cell>> {
    let count = matrix.axes.values().try_fold(1_u64, |count, words| count.checked_mul(words.len() as u64));
    if count.is_none_or(|count| count > MOST_CELLS) {
        let count = count.map_or_else(|| "more than 18 trillion".into(), |count| count.to_string());
        let why = format!("its axes make {count} cells, and the most are {MOST_CELLS}");
        return Err(Error::usage(&matrix.title, why, "take values out of [axes], or make several matrices"));
    }
    let mut cells = vec![Cell(BTreeMap::new())];
    for (axis, words) in &matrix.axes {
        let with = |cell: &Cell, word: &String| {
            let mut cell = cell.clone();
            cell.0.insert(*axis, word.clone());
            cell
        };
        cells = cells.iter().flat_map(|cell| words.iter().map(move |word| with(cell, word))).collect();
    }
    cells.retain(|cell| !matrix.exclude.iter().any(|rule| excludes(rule, cell)));
    if cells.is_empty() {
        return Err(Error::usage(&matrix.title, "every cell is excluded", "take an [[exclude]] out"));
    }
    cells.iter().try_for_each(|cell| check(cell, matrix))?;
    Ok(cells)
}

fn excludes(rule: &BTreeMap<Axis, Vec<String>>, cell: &Cell) -> bool {
    rule.iter().all(|(axis, words)| cell.0.get(axis).is_some_and(|word| words.contains(word)))
}

/// Refuses a cell that contradicts itself.
fn check(cell: &Cell, matrix: &Matrix) -> Result<()> {
    let refuse = |why: &str, hint: &str| Err(Error::usage(format!("the cell `{}`", cell.line()), why, hint));
    let there = cell.get(Axis::Data).and_then(|name| matrix.data.get(name));
    let is_given = there.is_some_and(|data| matches!(data.from, DataFrom::Source(_)));
    if cell.restores() && cell.to_nul() {
        return refuse(
            "nul keeps no data to restore",
            "exclude it: [[exclude]] with operation = \"restore\", media = \"nul\"",
        );
    }
    if cell.to_nul() && cell.named(Axis::MediaVolume).is_some() {
        return refuse("there is no volume under nul", "exclude it, or take media-volume = \"none\" for it");
    }
    if let (Some(devices), Some(stripes)) = (cell.number(Axis::Devices), cell.number(Axis::Stripes))
        && stripes < devices
    {
        return refuse("it has more devices than stripes", "exclude it, or leave one of the two axes out");
    }
    if is_given && cell.is_differential() {
        return refuse(
            "a differential needs a database that may be changed",
            "give its data a size instead of a source",
        );
    }
    if is_given && cell.named(Axis::Load).is_some() {
        return refuse("a load writes to the database", "give its data a size instead of a source");
    }
    Ok(())
}

/// All rounds: first the warm-ups.
pub fn rounds(matrix: &Matrix) -> Vec<Round> {
    let warm_up = (1..=matrix.warm_up).map(|number| Round { warm_up: true, number });
    warm_up.chain((1..=matrix.repetitions).map(|number| Round { warm_up: false, number })).collect()
}

/// The order of the cells in a round: different for each round, the same for the same seed.
pub fn order(count: usize, seed: u64, round: Round) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    // Rounds differ in their number; for warm-ups, it is in the upper half.
    let of_round = u64::from(round.number) | (u64::from(round.warm_up) << 32);
    fastrand::Rng::with_seed(seed ^ of_round.wrapping_mul(0x9E37_79B9_7F4A_7C15)).shuffle(&mut order);
    order
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn matrix(axes: &str) -> Matrix {
        Matrix::parse("m.toml", "m", &format!("[data.a]\nsize = \"4MiB\"\n[axes]\n{axes}")).unwrap()
    }

    #[test]
    fn the_product_is_in_the_order_of_the_axes_and_the_last_turns_fastest() {
        let lines: Vec<String> =
            cells(&matrix("codec = [\"none\", \"lz4\"]\nstripes = [1, 4]")).unwrap().iter().map(Cell::line).collect();
        assert_eq!(
            lines,
            [
                "backup data=a codec=none stripes=1",
                "backup data=a codec=none stripes=4",
                "backup data=a codec=lz4 stripes=1",
                "backup data=a codec=lz4 stripes=4"
            ]
        );
    }

    #[test]
    fn an_exclusion_drops_what_has_all_its_values_and_nothing_else() {
        let text = "codec = [\"none\", \"lz4\"]\nstripes = [1, 4, 8]\n[[exclude]]\ncodec = \"lz4\"\nstripes = [4, 8]\n";
        let left = cells(&matrix(text)).unwrap();
        assert_eq!(left.len(), 4);
        assert!(!left.iter().any(|cell| cell.get(Axis::Codec) == Some("lz4") && cell.number(Axis::Stripes) > Some(1)));
        let all = "codec = [\"none\", \"lz4\"]\n[[exclude]]\ncodec = [\"none\", \"lz4\"]\n";
        assert!(cells(&matrix(all)).unwrap_err().to_string().contains("every cell is excluded"));
    }

    #[test]
    fn a_cell_that_contradicts_itself_is_named() {
        for (axes, why) in [
            ("operation = [\"backup\", \"restore\"]\nmedia = [\"files\", \"nul\"]", "nul keeps no data"),
            ("devices = [1, 4]\nstripes = 2", "more devices than stripes"),
            ("media = \"nul\"\nmedia-volume = \"gp2-1tb\"", "no volume under nul"),
        ] {
            let error = cells(&matrix(axes)).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("the cell `") && error.contains("hint: "), "{error}");
        }
        for axes in ["kind = \"differential\"", "load = \"l\"\n[load.l]\nwriters = 1"] {
            let text = format!("[data.a]\nsource = \"sqlite:app.db\"\n[axes]\n{axes}");
            let given = Matrix::parse("m.toml", "m", &text).unwrap();
            assert!(cells(&given).unwrap_err().to_string().contains("a size instead of a source"));
        }
    }

    #[test]
    fn more_cells_than_can_be_counted_are_refused_before_they_are_made() {
        let numbers = (1..=256).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
        let axes = format!("readers = [{numbers}]\nworkers = [{numbers}]\nqueue-depth = [{numbers}]");
        let error = cells(&matrix(&axes)).unwrap_err().to_string();
        assert!(error.contains("16777216 cells") && error.contains("hint: "), "{error}");
    }

    #[test]
    fn the_order_is_the_same_for_a_seed_and_another_in_each_round() {
        let round = |number| Round { warm_up: false, number };
        let orders: Vec<Vec<usize>> = (1..=3).map(|number| order(40, 7, round(number))).collect();
        assert_eq!(orders[0], order(40, 7, round(1)));
        assert!(orders[0] != orders[1] && orders[1] != orders[2]);
        assert_ne!(orders[0], order(40, 8, round(1)));
        assert_ne!(orders[0], order(40, 7, Round { warm_up: true, number: 1 }));
        for mut order in orders {
            order.sort_unstable();
            assert_eq!(order, (0..40).collect::<Vec<_>>());
        }
    }

    #[test]
    fn warm_up_rounds_come_first_and_are_numbered_for_themselves() {
        let mut matrix = matrix("codec = \"lz4\"");
        (matrix.warm_up, matrix.repetitions) = (1, 2);
        let numbers: Vec<(bool, u32)> = rounds(&matrix).iter().map(|round| (round.warm_up, round.number)).collect();
        assert_eq!(numbers, [(true, 1), (false, 1), (false, 2)]);
    }

    #[test]
    fn a_result_of_other_numbers_belongs_to_another_cell() {
        let identity = |text: &str| {
            let matrix = Matrix::parse("m.toml", "m", text).unwrap();
            cells(&matrix).unwrap()[0].identity(&matrix)
        };
        let mut all = vec![
            identity("[data.a]\nsize = \"4MiB\"\n"),
            identity("[data.a]\nsize = \"8MiB\"\n"),
            identity("[data.a]\nsize = \"4MiB\"\nseed = 2\n"),
            identity("cache = \"keep\"\n[data.a]\nsize = \"4MiB\"\n"),
            identity("[data.a]\nsize = \"4MiB\"\n[axes]\nvolume = \"v\"\n[volume.v]\nrate = \"1MiB/s\"\n"),
            identity("[data.a]\nsize = \"4MiB\"\n[axes]\nvolume = \"v\"\n[volume.v]\nrate = \"2MiB/s\"\n"),
        ];
        let with = |line: &str| identity(&format!("{line}\n[data.a]\nsize = \"4MiB\"\n"));
        all.extend([with("raw-path = true"), with("work = \"w\""), with("media-directories = [\"a\"]")]);
        all.push(with("media-directories = [\"b\"]"));
        assert_eq!(
            with("media-directories = [\"a\"]"),
            with("media-directories = [\"a\", \"b\"]"),
            "it has one device"
        );
        assert!(all[0].ends_with(&format!("; fullbore {}", env!("CARGO_PKG_VERSION"))), "{all:?}");
        let different: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:#?}");
    }
}
