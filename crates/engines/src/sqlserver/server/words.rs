//! The statements that go to the server: BACKUP and RESTORE. Every name and every text of a statement is quoted here, and
//! nowhere else.

use fullbore_core::media::SetKind;
use fullbore_core::units::bytes_of_flag;
use fullbore_core::{Error, Result};

use super::place::Place;
use crate::engine::{BackupOrder, RestoreStep, StopMark};

/// The most characters of NAME and DESCRIPTION.
const LABEL_MAX: [(&str, usize); 3] = [("--name", 128), ("--description", 255), ("--media-name", 128)];
/// The greatest BUFFERCOUNT that fits into an int.
const BUFFERS_MAX: usize = i32::MAX as usize;
/// Characters of the name of a mark.
const MARK_MAX: usize = 128;
/// MAXTRANSFERSIZE to files and to Azure: least, greatest, step.
const TRANSFER: (u64, u64, u64) = (64 << 10, 4 << 20, 64 << 10);
/// The same to S3, where a transfer is a part of an object.
const TRANSFER_S3: (u64, u64, u64) = (5 << 20, 20 << 20, 1 << 20);

/// A name, quoted: `[shop]`.
pub fn name(text: &str) -> String {
    format!("[{}]", text.replace(']', "]]"))
}

/// A text, quoted: `N'it''s'`.
pub fn text(text: &str) -> String {
    format!("N'{}'", text.replace('\'', "''"))
}

/// `DISK = N'…'`, `URL = N'…'`.
pub fn device(place: &Place) -> String {
    match place {
        Place::Disk(path) => format!("DISK = {}", text(path)),
        Place::Url(url) => format!("URL = {}", text(url)),
        Place::Nul => "DISK = N'NUL'".to_owned(),
    }
}

/// The places, one after the other.
pub fn devices(places: &[Place]) -> String {
    places.iter().map(device).collect::<Vec<_>>().join(", ")
}

/// `DATABASE` or `LOG`.
pub fn object(kind: SetKind) -> &'static str {
    match kind {
        SetKind::Full | SetKind::Differential => "DATABASE",
        SetKind::Log => "LOG",
    }
}

/// The statement of a backup of `database` to `files`. `replaces`: the media are written anew (FORMAT, INIT); else
/// nothing that exists is touched.
///
/// # Errors
/// The order has a word or a value that SQL Server does not have. The error names the flag.
pub fn backup(database: &str, files: &[Place], order: &BackupOrder, replaces: bool) -> Result<String> {
    let on_url = files.iter().any(|file| matches!(file, Place::Url(_)));
    let mut options: Vec<String> = vec!["CHECKSUM".into()];
    if order.kind == SetKind::Differential {
        options.push("DIFFERENTIAL".into());
    }
    if order.copy_only {
        options.push("COPY_ONLY".into());
    }
    options.extend(order.compression.as_deref().map(compression).transpose()?);
    if let Some(bytes) = order.block_size {
        options.push(format!("BLOCKSIZE = {}", block_size(bytes)?));
    }
    options.extend(order.buffer_count.map(buffers).transpose()?);
    if let Some(bytes) = order.transfer_size {
        options.push(format!("MAXTRANSFERSIZE = {}", transfer_size(bytes, files)?));
    }
    if order.continue_after_error {
        options.push("CONTINUE_AFTER_ERROR".into());
    }
    for ((flag, most), (word, label)) in LABEL_MAX.into_iter().zip([
        ("NAME", &order.name),
        ("DESCRIPTION", &order.description),
        ("MEDIANAME", &order.media_name),
    ]) {
        if !label.is_empty() {
            options.push(format!("{word} = {}", text(checked_label(flag, label, most)?)));
        }
    }
    options.push(if replaces { "FORMAT" } else { "NOFORMAT" }.into());
    // BACKUP TO URL has no INIT: it never appends.
    if !on_url {
        options.push(if replaces { "INIT" } else { "NOINIT" }.into());
    }
    options.push(format!("STATS = {}", order.stats));
    let (object, database) = (object(order.kind), name(database));
    Ok(format!("BACKUP {object} {database} TO {} WITH {}", devices(files), options.join(", ")))
}

/// The words of a restore, after all checks.
#[derive(Debug, Clone, Default)]
pub struct RestoreWords<'a> {
    /// The files of one media set.
    pub files: &'a [Place],
    /// The position of the set on it.
    pub position: i64,
    /// RESTORE LOG.
    pub is_log: bool,
    /// Other places for files of the database.
    pub moves: &'a [(String, String)],
    /// REPLACE.
    pub replace: bool,
    /// CONTINUE_AFTER_ERROR.
    pub continue_after_error: bool,
    /// BUFFERCOUNT.
    pub buffer_count: Option<usize>,
    /// By the clock of the server: `2026-11-22T10:00:00.000`.
    pub stop_at: Option<String>,
    /// STOPATMARK or STOPBEFOREMARK, with the time of AFTER by the clock of the server.
    pub stop_mark: Option<(&'a StopMark, Option<String>)>,
    /// STANDBY, in the place of RECOVERY and NORECOVERY.
    pub standby: Option<&'a str>,
    /// STATS.
    pub stats: u8,
}

/// The statement of a restore of `database`.
///
/// # Errors
/// A value that SQL Server does not have.
pub fn restore(database: &str, words: &RestoreWords<'_>, step: RestoreStep) -> Result<String> {
    let mut options = vec![format!("FILE = {}", words.position)];
    for (file, path) in words.moves {
        options.push(format!("MOVE {} TO {}", text(file), text(path)));
    }
    if words.replace {
        options.push("REPLACE".into());
    }
    options.push(words.standby.map_or_else(|| recovery(step).into(), |file| format!("STANDBY = {}", text(file))));
    if words.continue_after_error {
        options.push("CONTINUE_AFTER_ERROR".into());
    }
    // RESTORE FROM URL has no BUFFERCOUNT.
    if words.files.iter().any(|file| matches!(file, Place::Url(_))) && words.buffer_count.is_some() {
        return Err(Error::usage("--buffer-count", "RESTORE … FROM URL has no BUFFERCOUNT", "leave it out"));
    }
    options.extend(words.buffer_count.map(buffers).transpose()?);
    options.extend(words.stop_at.as_ref().map(|time| format!("STOPAT = {}", text(time))));
    options.extend(words.stop_mark.as_ref().map(|(mark, after)| stop_mark(mark, after.as_deref())).transpose()?);
    options.push(format!("STATS = {}", words.stats));
    let object = if words.is_log { "LOG" } else { "DATABASE" };
    Ok(format!("RESTORE {object} {} FROM {} WITH {}", name(database), devices(words.files), options.join(", ")))
}

/// STOPATMARK or STOPBEFOREMARK.
fn stop_mark(stop: &StopMark, after: Option<&str>) -> Result<String> {
    let (flag, word) = match stop.before {
        true => ("--stop-before-mark", "STOPBEFOREMARK"),
        false => ("--stop-at-mark", "STOPATMARK"),
    };
    let mark = &stop.mark;
    let is_lsn = mark.get(..4).is_some_and(|begin| begin.eq_ignore_ascii_case("lsn:"));
    if mark.is_empty() || mark.encode_utf16().count() > MARK_MAX || mark.contains('\0') {
        let why = format!("a mark of SQL Server has 1 to {MARK_MAX} characters");
        return Err(Error::usage(flag, why, "write the name of the mark, or lsn: and an LSN"));
    }
    match after {
        Some(_) if is_lsn => Err(Error::usage("--mark-after", "an LSN is one place in the log", "leave it out")),
        Some(time) => Ok(format!("{word} = {} AFTER {}", text(mark), text(time))),
        None => Ok(format!("{word} = {}", text(mark))),
    }
}

/// The statement that opens a database that is restoring.
pub fn recover(database: &str) -> String {
    format!("RESTORE DATABASE {} WITH RECOVERY", name(database))
}

/// `RECOVERY` or `NORECOVERY`.
fn recovery(step: RestoreStep) -> &'static str {
    match step {
        RestoreStep::Recovery => "RECOVERY",
        RestoreStep::NoRecovery => "NORECOVERY",
    }
}

/// The words of `--compression`.
fn compression(text: &str) -> Result<String> {
    let (algorithm, level) = match text.split_once(':') {
        Some((algorithm, level)) => (algorithm, Some(level)),
        None => (text, None),
    };
    let wrong = || {
        let hint = "write none, on, ms_xpress, qat_deflate or zstd; low, medium or high may follow: zstd:high";
        Error::usage("--compression", format!("`{}` is not a compression of SQL Server", one_line(text)), hint)
    };
    let algorithm = match algorithm {
        "none" if level.is_none() => return Ok("NO_COMPRESSION".into()),
        "on" if level.is_none() => return Ok("COMPRESSION".into()),
        "ms_xpress" => "MS_XPRESS",
        "qat_deflate" => "QAT_DEFLATE",
        "zstd" => "ZSTD",
        _ => return Err(wrong()),
    };
    let level = match level {
        None => "",
        Some("low") => ", LEVEL = LOW",
        Some("medium") => ", LEVEL = MEDIUM",
        Some("high") => ", LEVEL = HIGH",
        Some(_) => return Err(wrong()),
    };
    Ok(format!("COMPRESSION (ALGORITHM = {algorithm}{level})"))
}

/// BLOCKSIZE.
///
/// # Errors
/// It is not a power of two from 512 to 65536.
pub fn block_size(bytes: u64) -> Result<u64> {
    match bytes {
        512..=65_536 if bytes.is_power_of_two() => Ok(bytes),
        _ => {
            Err(Error::usage("--block-size", format!("{bytes} is not a BLOCKSIZE"), "use a power of two, 512 to 65536"))
        }
    }
}

/// BUFFERCOUNT.
fn buffers(count: usize) -> Result<String> {
    match count {
        1..=BUFFERS_MAX => Ok(format!("BUFFERCOUNT = {count}")),
        _ => Err(Error::usage("--buffer-count", format!("{count} is not a BUFFERCOUNT"), "use 1 or more")),
    }
}

/// MAXTRANSFERSIZE to these files.
fn transfer_size(bytes: u64, files: &[Place]) -> Result<u64> {
    let to_s3 = files.iter().any(|file| matches!(file, Place::Url(url) if url.starts_with("s3:")));
    let (least, most, step) = if to_s3 { TRANSFER_S3 } else { TRANSFER };
    if (least..=most).contains(&bytes) && bytes.is_multiple_of(step) {
        return Ok(bytes);
    }
    let [least, most, step] = [least, most, step].map(bytes_of_flag);
    let why = format!("{} is not a MAXTRANSFERSIZE for these places", bytes_of_flag(bytes));
    Err(Error::usage("--max-transfer-size", why, format!("use {least} to {most} in steps of {step}")))
}

fn checked_label<'l>(flag: &str, label: &'l str, most: usize) -> Result<&'l str> {
    if label.encode_utf16().count() > most || label.contains('\0') {
        return Err(Error::usage(flag, format!("SQL Server takes at most {most} characters"), "shorten the text"));
    }
    Ok(label)
}

/// A value in a message.
fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '_' } else { letter }).take(40).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn to(texts: &[&str]) -> Vec<Place> {
        texts.iter().map(|text| Place::parse(text).unwrap()).collect()
    }

    #[test]
    fn every_knob_has_its_word() {
        let order = BackupOrder {
            compression: Some("zstd:high".into()),
            copy_only: true,
            continue_after_error: true,
            buffer_count: Some(50),
            transfer_size: Some(4 << 20),
            block_size: Some(65_536),
            name: "it's nightly".into(),
            description: "a ] b".into(),
            stats: 5,
            ..BackupOrder::new(SetKind::Full, Vec::new())
        };
        let files = to(&["server:/a/1.bak", "server:/b/2.bak"]);
        assert_eq!(
            backup("sh]op", &files, &order, false).unwrap(),
            "BACKUP DATABASE [sh]]op] TO DISK = N'/a/1.bak', DISK = N'/b/2.bak' WITH CHECKSUM, COPY_ONLY, COMPRESSION \
             (ALGORITHM = ZSTD, LEVEL = HIGH), BLOCKSIZE = 65536, BUFFERCOUNT = 50, MAXTRANSFERSIZE = 4194304, \
             CONTINUE_AFTER_ERROR, NAME = N'it''s nightly', DESCRIPTION = N'a ] b', NOFORMAT, NOINIT, STATS = 5"
        );
        let plain =
            |kind, to: &[Place], replaces| backup("shop", to, &BackupOrder::new(kind, Vec::new()), replaces).unwrap();
        assert_eq!(
            plain(SetKind::Log, &to(&["s3://h:9000/b/shop.trn"]), false),
            "BACKUP LOG [shop] TO URL = N's3://h:9000/b/shop.trn' WITH CHECKSUM, NOFORMAT, STATS = 10"
        );
        assert_eq!(
            plain(SetKind::Differential, &to(&["nul:"]), true),
            "BACKUP DATABASE [shop] TO DISK = N'NUL' WITH CHECKSUM, DIFFERENTIAL, FORMAT, INIT, STATS = 10"
        );
    }

    #[test]
    fn a_value_that_sql_server_does_not_have_is_an_error_that_names_the_flag() {
        let order = || BackupOrder::new(SetKind::Full, Vec::new());
        let file = to(&["server:/a.bak"]);
        let object = to(&["s3://h/b/k"]);
        for (order, files, flag) in [
            (BackupOrder { compression: Some("lz4".into()), ..order() }, &file, "--compression"),
            (BackupOrder { compression: Some("zstd:3".into()), ..order() }, &file, "--compression"),
            (BackupOrder { compression: Some("none:low".into()), ..order() }, &file, "--compression"),
            (BackupOrder { block_size: Some(1000), ..order() }, &file, "--block-size"),
            (BackupOrder { block_size: Some(131_072), ..order() }, &file, "--block-size"),
            (BackupOrder { buffer_count: Some(0), ..order() }, &file, "--buffer-count"),
            (BackupOrder { transfer_size: Some(8 << 20), ..order() }, &file, "--max-transfer-size"),
            (BackupOrder { transfer_size: Some(4 << 20), ..order() }, &object, "--max-transfer-size"),
            (BackupOrder { name: "n".repeat(129), ..order() }, &file, "--name"),
            (BackupOrder { description: "a\0b".into(), ..order() }, &file, "--description"),
        ] {
            let error = backup("shop", files, &order, false).unwrap_err();
            assert!(error.to_string().contains(flag) && error.exit_kind().exit_code() == 2, "{error}");
        }
        let to_s3 = BackupOrder { transfer_size: Some(20 << 20), ..order() };
        assert!(backup("shop", &object, &to_s3, false).unwrap().contains("MAXTRANSFERSIZE = 20971520"));
    }

    #[test]
    fn a_restore_has_its_words_in_order() {
        let files = to(&["server:/a.trn"]);
        let moves = [("shop_log".to_owned(), r"E:\log\it's.ldf".to_owned())];
        let words = RestoreWords {
            files: &files,
            position: 2,
            is_log: true,
            moves: &moves,
            stop_at: Some("2026-11-22T10:00:00.000".into()),
            buffer_count: Some(8),
            stats: 10,
            ..RestoreWords::default()
        };
        assert_eq!(
            restore("shop", &words, RestoreStep::NoRecovery).unwrap(),
            "RESTORE LOG [shop] FROM DISK = N'/a.trn' WITH FILE = 2, MOVE N'shop_log' TO N'E:\\log\\it''s.ldf', \
             NORECOVERY, BUFFERCOUNT = 8, STOPAT = N'2026-11-22T10:00:00.000', STATS = 10"
        );
        let whole = RestoreWords { replace: true, is_log: false, stop_at: None, moves: &[], ..words };
        let made = restore("shop", &whole, RestoreStep::Recovery).unwrap();
        assert!(made.starts_with("RESTORE DATABASE [shop]") && made.contains("REPLACE, RECOVERY"), "{made}");
        assert_eq!(recover("a]b"), "RESTORE DATABASE [a]]b] WITH RECOVERY");
        let mark = StopMark { mark: "it's done".into(), before: true, after: None };
        let stops = RestoreWords {
            is_log: true,
            replace: false,
            standby: Some("/var/opt/mssql/it's.undo"),
            stop_mark: Some((&mark, Some("2026-11-22T10:00:00.000".into()))),
            ..whole.clone()
        };
        let made = restore("shop", &stops, RestoreStep::Recovery).unwrap();
        let words = "STANDBY = N'/var/opt/mssql/it''s.undo', BUFFERCOUNT = 8, STOPBEFOREMARK = N'it''s done' AFTER \
                     N'2026-11-22T10:00:00.000', STATS = 10";
        assert!(made.ends_with(words), "{made}");
        let lsn = StopMark { mark: "lsn:34000000018400037".into(), before: false, after: None };
        let made = |after| {
            restore("shop", &RestoreWords { stop_mark: Some((&lsn, after)), ..whole.clone() }, RestoreStep::Recovery)
        };
        assert!(made(None).unwrap().contains("STOPATMARK = N'lsn:34000000018400037'"));
        assert!(made(Some("2026-11-22T10:00:00.000".into())).unwrap_err().to_string().contains("--mark-after"));
        let url = to(&["s3://h/b/k"]);
        assert!(restore("shop", &RestoreWords { files: &url, ..whole }, RestoreStep::Recovery).is_err());
    }

    /// The content of a quoted name or text, as T-SQL reads it, and the rest of the statement behind it.
    fn unquoted(statement: &str, close: char) -> (String, &str) {
        let mut content = String::new();
        let mut letters = statement.char_indices().peekable();
        while let Some((at, letter)) = letters.next() {
            if letter != close {
                content.push(letter);
            } else if letters.peek().is_some_and(|(_, next)| *next == close) {
                letters.next();
                content.push(close);
            } else {
                return (content, &statement[at + close.len_utf8()..]);
            }
        }
        panic!("the quote does not end: {statement}");
    }

    proptest! {
        #[test]
        fn no_name_and_no_path_leaves_its_quotes(
            database in any::<String>(),
            path in any::<String>(),
            label in any::<String>(),
        ) {
            let order = BackupOrder { name: label.clone(), ..BackupOrder::new(SetKind::Full, Vec::new()) };
            let files = [Place::Disk(path.clone())];
            if let Ok(statement) = backup(&database, &files, &order, false) {
                let rest = statement.strip_prefix("BACKUP DATABASE [").unwrap();
                let (read, rest) = unquoted(rest, ']');
                prop_assert_eq!(&read, &database);
                let (read, rest) = unquoted(rest.strip_prefix(" TO DISK = N'").unwrap(), '\'');
                prop_assert_eq!(&read, &path);
                let (read, rest) = match rest.strip_prefix(" WITH CHECKSUM, NAME = N'") {
                    Some(rest) => unquoted(rest, '\''),
                    None => (String::new(), rest.strip_prefix(" WITH CHECKSUM").unwrap()),
                };
                prop_assert_eq!(&read, &label);
                prop_assert_eq!(rest, ", NOFORMAT, NOINIT, STATS = 10");
            }
        }

        #[test]
        fn no_place_leaves_its_quotes(text in any::<String>()) {
            if let Ok(place) = Place::parse(&format!("server:/{text}")) {
                let (read, rest) = match device(&place).strip_prefix("DISK = N'") {
                    Some(quoted) => { let (read, rest) = unquoted(quoted, '\''); (read, rest.to_owned()) },
                    None => panic!("not a file"),
                };
                prop_assert_eq!(read, format!("/{text}"));
                prop_assert_eq!(rest, "");
            }
        }
    }
}
