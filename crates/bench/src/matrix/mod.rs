//! The matrix: a TOML file as a checked value. `docs/BENCH.md` explains each key.

mod axis;
mod own_volumes;
mod parts;
mod read;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore_core::io::read_whole;
use fullbore_core::{Error, Result};
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

pub use axis::Axis;
pub use parts::{Data, DataFrom, Instance, Load};

use super::volume::{Choice, Means, Profile};
use fullbore_core::units;
use read::Location;
use read::Words;

/// Bytes of the longest file that is read.
const FILE_MAX: usize = 1 << 20;
/// Values on one axis, tables of one kind, exclusions.
const MOST_VALUES: usize = 1000;
const MOST_REPETITIONS: u64 = 100;
const MOST_WARM_UPS: u64 = 10;
const MOST_PRICE: f64 = 1e6;
const LONGEST_RUN: Duration = Duration::from_secs(7 * 86_400);
const USUAL_TIMEOUT: Duration = Duration::from_secs(6 * 3600);
/// The name that means no profile and no load.
pub const NONE: &str = "none";

/// The runs, and their number.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// The title of the report.
    pub title: String,
    /// The seed of the order and of generated data.
    pub seed: u64,
    /// Counted rounds.
    pub repetitions: u32,
    /// Rounds before the counted ones.
    pub warm_up: u32,
    /// Whether each run begins with cold caches.
    pub cold: bool,
    /// The factor of sizes and burst credits.
    pub scale: f64,
    /// Whether the machine's raw path is measured beside each backup.
    pub raw_path: bool,
    /// How long a run may take.
    pub timeout: Duration,
    /// The directory for data sets and media.
    pub work: PathBuf,
    /// Other directories for media.
    pub media_directories: Vec<PathBuf>,
    /// For sources that are servers.
    pub password_file: Option<PathBuf>,
    /// The price of an hour of the machine.
    pub price_per_hour: Option<f64>,
    /// The currency of the price.
    pub currency: String,
    /// Databases, by name.
    pub data: BTreeMap<String, Data>,
    /// Values of each axis in the file, and of `operation` and `data`.
    pub axes: BTreeMap<Axis, Vec<String>>,
    /// Combinations to leave out.
    pub exclude: Vec<BTreeMap<Axis, Vec<String>>>,
    /// Volume profiles that the axes name.
    pub volumes: BTreeMap<String, Profile>,
    /// The requested kind of volumes.
    pub volume_choice: Choice,
    /// The kind of volumes on this machine: in process until it is tried.
    pub means: Means,
    /// Instance classes.
    pub instances: BTreeMap<String, Instance>,
    /// Loads.
    pub loads: BTreeMap<String, Load>,
}

/// The file as it is written: `None` stands for a default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    title: Option<String>,
    /// For readers of the file.
    #[serde(rename = "description")]
    _description: Option<IgnoredAny>,
    seed: Option<Spanned<u64>>,
    repetitions: Option<Spanned<u64>>,
    warm_up: Option<Spanned<u64>>,
    cache: Option<Cache>,
    scale: Option<Spanned<f64>>,
    #[serde(default)]
    raw_path: bool,
    timeout: Option<Spanned<String>>,
    work: Option<PathBuf>,
    media_directories: Option<Spanned<Words>>,
    password_file: Option<PathBuf>,
    price_per_hour: Option<Spanned<f64>>,
    currency: Option<String>,
    #[serde(default)]
    data: Tables<parts::DataTable>,
    #[serde(default)]
    axes: AxisWords,
    #[serde(default)]
    exclude: Vec<Spanned<AxisWords>>,
    #[serde(default)]
    volume: Tables<own_volumes::OwnTable>,
    volumes: Option<Volumes>,
    #[serde(default)]
    instance: Tables<parts::InstanceTable>,
    #[serde(default)]
    load: Tables<parts::LoadTable>,
}

/// Tables of one kind, by name.
type Tables<T> = BTreeMap<String, Spanned<T>>;
type AxisWords = BTreeMap<Axis, Spanned<Words>>;

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Cache {
    Drop,
    Keep,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Volumes {
    Block,
    InProcess,
}

impl Matrix {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// It cannot be read, or a part is wrong: with its line, and the right form.
    pub fn load(path: &Path) -> Result<Self> {
        let shown = path.display().to_string();
        let wrong = |why: String| Error::usage(&shown, why, "give a matrix as in docs/BENCH.md");
        // Do not trust the length in the metadata: a device or a pipe has none, and may have no end.
        let bytes = read_whole(path, FILE_MAX).map_err(|e| Error::io("read the matrix", &shown, e).on_named_thing())?;
        let bytes = bytes.ok_or_else(|| wrong(format!("is longer than {}", units::show_bytes(FILE_MAX as u64))))?;
        let text = std::str::from_utf8(&bytes).map_err(|e| wrong(format!("is not text: {e}")))?;
        let stem = path.file_stem().map_or_else(|| "bench".into(), |stem| stem.to_string_lossy().into_owned());
        Self::parse(&shown, &stem, text)
    }

    /// The same for a text; `title` is the title if the text has none.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(file: &str, title: &str, text: &str) -> Result<Self> {
        let place = Location { file, text };
        let file: File = place.read()?;
        let scale = place.within("scale", file.scale, 1e-9..=1.0)?.unwrap_or(1.0);
        let data = parts::data(&place, file.data, scale)?;
        let instances = parts::instances(&place, file.instance)?;
        let loads = parts::loads(&place, file.load)?;
        let own = own_volumes::own_profiles(&place, file.volume)?;
        let names = parts::Names { data: &data, instances: &instances, loads: &loads, volumes: &own };
        let axes = parts::axes(&place, file.axes, &names)?;
        let volumes = parts::used_volumes(&axes, &own)?;
        let repetitions = place.within("repetitions", file.repetitions, 1..=MOST_REPETITIONS)?;
        Ok(Self {
            title: file.title.unwrap_or_else(|| title.to_owned()),
            seed: place.within("seed", file.seed, 0..=i64::MAX as u64)?.unwrap_or(1),
            repetitions: repetitions.unwrap_or(3) as u32,
            warm_up: place.within("warm-up", file.warm_up, 0..=MOST_WARM_UPS)?.unwrap_or(1) as u32,
            cold: file.cache != Some(Cache::Keep),
            volume_choice: match file.volumes {
                None => Choice::WherePossible,
                Some(Volumes::Block) => Choice::Block,
                Some(Volumes::InProcess) => Choice::InProcess,
            },
            means: Means::default(),
            scale,
            raw_path: file.raw_path,
            timeout: place.parsed(file.timeout, timeout)?.unwrap_or(USUAL_TIMEOUT),
            work: file.work.unwrap_or_else(|| "fullbore-bench".into()),
            media_directories: parts::paths(file.media_directories)?,
            password_file: file.password_file,
            price_per_hour: place.within("price-per-hour", file.price_per_hour, 0.0..=MOST_PRICE)?,
            currency: file.currency.unwrap_or_else(|| "USD".into()),
            exclude: parts::exclusions(&place, file.exclude, &axes)?,
            data,
            axes,
            volumes,
            instances,
            loads,
        })
    }
}

fn timeout(text: &str) -> Result<Duration> {
    let time = units::duration("timeout", text)?;
    if time.is_zero() || time > LONGEST_RUN {
        return Err(Error::usage("timeout", format!("`{text}` is out of bounds"), "write 1s to 7d"));
    }
    Ok(time)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SMALL: &str = "[data.a]\nsize = \"4MiB\"\n[axes]\noperation = \"backup\"\n";

    fn refused(text: &str, words: &[&str]) {
        let error = Matrix::parse("m.toml", "m", text).unwrap_err().to_string();
        for word in words.iter().chain(&["m.toml, line ", "hint: "]) {
            assert!(error.contains(word), "`{word}` is not in: {error}");
        }
    }

    #[test]
    fn omitted_settings_have_their_defaults() {
        let matrix = Matrix::parse("m.toml", "m", SMALL).unwrap();
        assert_eq!((matrix.title.as_str(), matrix.repetitions, matrix.warm_up, matrix.cold), ("m", 3, 1, true));
        assert_eq!(matrix.axes[&Axis::Data], ["a"]);
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_the_nearest_one() {
        refused(&format!("{SMALL}strips = [1]\n"), &["line 5", "`strips`", "did you mean `stripes`?"]);
        refused(&format!("repetition = 3\n{SMALL}"), &["line 1", "`repetitions`"]);
        refused("[data.a]\nsise = \"4MiB\"\n[axes]\n", &["line 2", "`data.a`", "`size`"]);
        refused(&format!("{SMALL}[volume.v]\nrates = \"1MiB/s\"\n"), &["line 6", "`rate`"]);
        refused(&format!("{SMALL}[instance.v]\nthread = 1\n"), &["line 6", "`threads`"]);
        refused(&format!("{SMALL}[load.v]\nwriter = 1\n"), &["line 6", "`writers`"]);
        refused(&format!("{SMALL}[[exclude]]\ncodex = \"lz4\"\n"), &["line 6", "`codec`"]);
    }

    #[test]
    fn a_value_is_refused_at_its_own_line_and_by_its_key() {
        refused(&format!("{SMALL}stripes = [\n  1,\n  65,\n]\n"), &["line 7", "stripes", "`65`"]);
        refused(&format!("{SMALL}codec = [\n\"lz4\",\ntrue]\n"), &["line 7", "codec", "a whole number"]);
        refused(&format!("{SMALL}codec = [[\"lz4\"]]\n"), &["line 5", "codec", "a list in a list"]);
        refused(&format!("{SMALL}codec = true\n"), &["line 5", "`axes.codec`", "a list of them"]);
        refused(&format!("{SMALL}[load.v]\nwriters = \"1\"\n"), &["line 6", "`load.v.writers`", "a whole number"]);
        refused(&format!("{SMALL}[load.v]\nseconds = 1\n"), &["line 5", "[load.v]", "connections"]);
        refused(&format!("{SMALL}[volume.v]\nrate = \"1B/s\"\nburst-rate = \"2B/s\"\n"), &["line 5", "[volume.v]"]);
        refused(&format!("load = 3\n{SMALL}"), &["line 1", "`load`", "a table"]);
        refused(&format!("exclude = 3\n{SMALL}"), &["line 1", "`exclude`", "a list"]);
        refused(&format!("raw-path = 1\n{SMALL}"), &["line 1", "`raw-path`", "boolean"]);
    }

    #[test]
    fn every_number_has_bounds() {
        for (line, word) in [
            ("repetitions = 0", "repetitions"),
            ("repetitions = 1000", "1 to 100"),
            ("warm-up = 99", "0 to 10"),
            ("scale = 0", "scale"),
            ("scale = 2.0", "scale"),
            ("seed = -1", "seed"),
            ("timeout = \"90d\"", "timeout"),
            ("price-per-hour = -1", "price-per-hour"),
            ("cache = \"warm\"", "drop, keep"),
            ("volumes = \"loop\"", "block, in-process"),
            ("repetitions = \"3\"", "a whole number"),
        ] {
            refused(&format!("{line}\n{SMALL}"), &["line 1", word]);
        }
        for line in
            ["stripes = 65", "stripes = [1, 0]", "workers = 1000", "codec = \"zip\"", "block-size = 3", "stripes = []"]
        {
            refused(&format!("{SMALL}{line}\n"), &["line 5"]);
        }
        for size in ["1KiB", "900TiB", "much"] {
            refused(&format!("[data.a]\nsize = \"{size}\"\n[axes]\n"), &["line 2"]);
        }
    }

    #[test]
    fn a_name_that_is_not_there_is_refused_with_those_that_are() {
        refused("[data.small]\nsize = \"4MiB\"\n[axes]\ndata = \"smal\"\n", &["line 4", "did you mean `small`?"]);
        refused(&format!("{SMALL}instance = \"large\"\n"), &["line 5", "instance"]);
        refused(&format!("{SMALL}volume = \"gp9-1tb\"\n"), &["line 5", "gp9-1tb"]);
        refused(&format!("{SMALL}load = \"writer\"\n"), &["line 5", "writer"]);
    }

    #[test]
    fn a_matrix_without_data_or_with_a_broken_form_is_refused() {
        refused("[axes]\ncodec = \"lz4\"\n", &["[data.NAME]"]);
        refused("[data.a]\n[axes]\n", &["size", "source"]);
        refused("[data.a]\nsize = \"4MiB\"\nsource = \"sqlite:a\"\n[axes]\n", &["size", "source"]);
        refused("[data.a\n", &["line 1"]);
        refused("data = 3\n", &["line 1", "data"]);
        refused(&format!("{SMALL}[[exclude]]\ncodec = \"lz4\"\n"), &["codec", "not an axis"]);
    }
}
