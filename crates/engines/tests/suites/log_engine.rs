//! The contract of every engine with log backups. An engine implements [`LogEngineUnderTest`] on a real database and
//! calls [`log_engine_conforms`].

use std::fs::File;
use std::io::Seek;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fullbore_core::io::Memory;
use fullbore_core::media::{EngineValue, LogRange, Position, SetKind};
use fullbore_engines::engine::{AppliedLog, LogSession, LogStop, SetEnd, UnpackedLog};
use fullbore_engines::{LogEngine, Options};
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempPath};

/// An engine with a database that the suite changes and backs up.
pub trait LogEngineUnderTest {
    /// The engine.
    fn engine(&self) -> &'static dyn LogEngine;

    /// The database.
    fn url(&self) -> String;

    /// Commits a transaction that `content` shows.
    fn commit(&mut self);

    /// The content of the database.
    fn content(&mut self) -> String;

    /// The content of a copy.
    fn content_of(&self, copy: &Path) -> String;

    /// Copies the database to `copy`, as the restore of a full does. Gives the position of that full.
    fn full(&mut self, copy: &Path) -> Value;

    /// Commits something, and takes away the log that has it.
    fn lose_log(&mut self);

    /// Removes every commit after `back_to`, and starts a new history there. Returns false if the engine cannot do
    /// this.
    fn fail_over(&mut self, back_to: &SetEnd) -> bool {
        let _ = back_to;
        false
    }
}

/// Runs the suite; `make` gives a new database.
///
/// # Panics
/// The engine breaks a rule.
pub fn log_engine_conforms<E: LogEngineUnderTest>(make: impl Fn() -> E) {
    log_sets_lead_from_a_full_to_now(make());
    where_nothing_was_committed_there_is_no_set(make());
    a_lost_log_is_an_error_and_another_base_is_taken(make());
    a_set_is_applied_to_its_predecessor_only(make());
    a_set_is_applied_up_to_a_time(make());
    a_follower_gives_every_commit_once(make());
    after_a_fail_over_the_log_continues_what_both_histories_have(make());
    positions_that_make_no_sense_are_refused(make());
}

/// A log set whose streams are in files.
pub struct Stored {
    streams: Vec<File>,
    position: Position,
    end: SetEnd,
}

impl Stored {
    /// Reads all of a set, then asks for its position.
    pub fn read(engine: &dyn LogEngine, session: &dyn LogSession) -> Self {
        let source = session.source();
        let ids: Vec<u32> = source.streams().iter().map(|stream| stream.id).collect();
        assert!(ids.iter().eq(engine.streams().iter().map(|(id, _)| id)), "a set has the streams of its engine");
        let streams: Vec<File> = ids.iter().map(|_| tempfile::tempfile().unwrap()).collect();
        let mut buffer = Memory::new(1 << 20).unwrap();
        let mut reader = source.reader(0, 1).unwrap();
        while let Some(extent) = reader.next(&mut buffer).unwrap() {
            let stream = ids.iter().position(|id| *id == extent.stream).unwrap();
            streams[stream].write_all_at(&buffer[..extent.length as usize], extent.offset).unwrap();
        }
        let value = EngineValue::from;
        let position = Position {
            first: value(session.first_position().unwrap()),
            checkpoint: EngineValue::default(),
            last: value(session.position().unwrap()),
            log: None,
        };
        Self { streams, position, end: session.end().unwrap() }
    }

    /// The content of the next set after `base`.
    fn next(test: &impl LogEngineUnderTest, base: &SetEnd) -> Self {
        let (engine, bases) = (test.engine(), std::slice::from_ref(base));
        let (taken, session) = engine.open(&test.url(), bases, &Options::default()).unwrap();
        assert_eq!(taken, 0);
        let session = session.expect("something was committed");
        Self::read(engine, &*session)
    }

    /// Applies the set to `copy`, which is at `stands`.
    pub fn apply(
        &self,
        engine: &dyn LogEngine,
        copy: &Path,
        stands: &SetEnd,
        stop_at: Option<i64>,
    ) -> fullbore_core::Result<AppliedLog> {
        let (streams, position) = (&self.streams, &self.position);
        streams.iter().for_each(|mut stream| stream.rewind().unwrap());
        let stop = stop_at.map(LogStop::Time);
        engine.apply(&UnpackedLog { name: "log set", streams, position, database: copy, stands }, stop.as_ref())
    }

    fn range(&self, engine: &dyn LogEngine) -> LogRange {
        let range = engine.range(SetKind::Log, &self.position, None).expect("its own position makes sense");
        let text = serde_json::to_string(&range).unwrap();
        assert_eq!(serde_json::from_str::<LogRange>(&text).unwrap(), range, "media keep it as it is");
        range
    }
}

/// A full in a temporary file, and where it ends.
pub fn full(test: &mut impl LogEngineUnderTest) -> (TempPath, SetEnd) {
    let copy = NamedTempFile::new().unwrap().into_temp_path();
    let position = test.full(&copy);
    let end = test.engine().end(&position).unwrap();
    (copy, end)
}

/// Commits twice, with a log set after each commit, and applies the sets to the database at `copy`, which is at
/// `position`. Gives the content of the database then.
pub fn apply_two_sets(test: &mut impl LogEngineUnderTest, copy: &Path, position: &Value) -> String {
    let engine = test.engine();
    let end = engine.end(position).unwrap();
    test.commit();
    let first = Stored::next(test, &end);
    test.commit();
    let second = Stored::next(test, &first.end);
    assert!(second.apply(engine, copy, &end, None).is_err(), "the first set was left out");
    let stands = first.apply(engine, copy, &end, None).unwrap().stands;
    second.apply(engine, copy, &stands, None).unwrap();
    test.content()
}

fn log_sets_lead_from_a_full_to_now(mut test: impl LogEngineUnderTest) {
    let engine = test.engine();
    let (copy, mut stands) = full(&mut test);
    let mut before: Option<LogRange> = None;
    for commits in [1, 5, 2] {
        (0..commits).for_each(|_| test.commit());
        let set = Stored::next(&test, &stands);
        let range = set.range(engine);
        assert!(range.from <= range.at && range.at <= range.until, "{range:?}");
        if let Some(last) = before.and_then(|range| range.last) {
            assert!(range.continues(&last), "{range:?} does not continue {last:?}");
        }
        let applied = set.apply(engine, &copy, &stands, None).unwrap();
        assert!(!applied.stopped);
        assert_eq!(test.content_of(&copy), test.content());
        assert_eq!(applied.stands.time, set.end.time);
        (stands, before) = (applied.stands, Some(range));
    }
}

fn where_nothing_was_committed_there_is_no_set(mut test: impl LogEngineUnderTest) {
    let (_, end) = full(&mut test);
    let (taken, session) = test.engine().open(&test.url(), &[end], &Options::default()).unwrap();
    assert!(taken == 0 && session.is_none());
}

fn a_lost_log_is_an_error_and_another_base_is_taken(mut test: impl LogEngineUnderTest) {
    let (_, old) = full(&mut test);
    test.lose_log();
    let open = |test: &dyn LogEngineUnderTest, bases: &[SetEnd]| {
        test.engine().open(&test.url(), bases, &Options::default()).map(|(taken, session)| (taken, session.is_some()))
    };
    assert!(open(&test, std::slice::from_ref(&old)).is_err(), "commits are in no log, and nobody says so");
    assert!(open(&test, &[]).is_err());
    let (_, new) = full(&mut test);
    test.commit();
    assert_eq!(open(&test, &[old, new]).unwrap(), (1, true));
}

fn a_set_is_applied_to_its_predecessor_only(mut test: impl LogEngineUnderTest) {
    let engine = test.engine();
    let (copy, end) = full(&mut test);
    test.commit();
    let first = Stored::next(&test, &end);
    test.commit();
    let second = Stored::next(&test, &first.end);
    let untouched = test.content_of(&copy);
    assert!(second.apply(engine, &copy, &end, None).is_err(), "a set was left out, and nobody says so");
    assert_eq!(test.content_of(&copy), untouched);
    let stands = first.apply(engine, &copy, &end, None).unwrap().stands;
    second.apply(engine, &copy, &stands, None).unwrap();
    assert_eq!(test.content_of(&copy), test.content());
}

fn a_set_is_applied_up_to_a_time(mut test: impl LogEngineUnderTest) {
    let engine = test.engine();
    let (copy, end) = full(&mut test);
    let before = test.content();
    test.commit();
    let set = Stored::next(&test, &end);
    let range = set.range(engine);
    let applied = set.apply(engine, &copy, &end, Some(range.from - 1)).unwrap();
    assert!(applied.stopped, "its first commit is later than that");
    assert_eq!(test.content_of(&copy), before);
    let applied = set.apply(engine, &copy, &applied.stands, Some(range.until)).unwrap();
    assert!(!applied.stopped);
    assert_eq!(test.content_of(&copy), test.content());
}

fn a_follower_gives_every_commit_once(mut test: impl LogEngineUnderTest) {
    let engine = test.engine();
    let (copy, end) = full(&mut test);
    let mut follower = engine.follow(&test.url(), &Options::default()).unwrap();
    assert_eq!(follower.join(std::slice::from_ref(&end)).unwrap(), 0);
    assert!(follower.next_set().unwrap().is_none() && !follower.has_news().unwrap());
    let mut stands = end;
    for _ in 0..3 {
        test.commit();
        assert!(follower.has_news().unwrap());
        // It was not stored, and is asked for again.
        drop(follower.next_set().unwrap().unwrap());
        test.commit();
        let expected = test.content();
        let session = follower.next_set().unwrap().unwrap();
        let set = Stored::read(engine, &*session);
        test.commit();
        drop(session);
        follower.shipped(&set.end).unwrap();
        assert!(follower.has_news().unwrap(), "a commit beside a set that is stored belongs to the next one");
        stands = set.apply(engine, &copy, &stands, None).unwrap().stands;
        assert_eq!(test.content_of(&copy), expected);
    }
    let session = follower.next_set().unwrap().unwrap();
    let set = Stored::read(engine, &*session);
    drop(session);
    follower.shipped(&set.end).unwrap();
    set.apply(engine, &copy, &stands, None).unwrap();
    assert_eq!(test.content_of(&copy), test.content());
    assert!(!follower.has_news().unwrap());
}

fn after_a_fail_over_the_log_continues_what_both_histories_have(mut test: impl LogEngineUnderTest) {
    let engine = test.engine();
    let (copy, end) = full(&mut test);
    test.commit();
    let kept = Stored::next(&test, &end);
    test.commit();
    let lost = Stored::next(&test, &kept.end);
    if !test.fail_over(&kept.end) {
        return;
    }
    (0..2).for_each(|_| test.commit());
    let open = |bases: &[SetEnd]| engine.open(&test.url(), bases, &Options::default()).map(|(taken, _)| taken);
    assert!(open(std::slice::from_ref(&lost.end)).is_err(), "what was taken back is in that set");
    assert_eq!(open(&[lost.end.clone(), kept.end.clone()]).unwrap(), 1);
    let new = Stored::next(&test, &kept.end);
    let [kept_range, lost_range, new_range] = [&kept, &lost, &new].map(|set| set.range(engine));
    let last = |range: &LogRange| range.last.clone().unwrap();
    assert!(new_range.continues(&last(&kept_range)) && !new_range.continues(&last(&lost_range)), "{new_range:?}");
    assert_ne!(last(&new_range).history, last(&kept_range).history);
    let stands = kept.apply(engine, &copy, &end, None).unwrap().stands;
    new.apply(engine, &copy, &stands, None).unwrap();
    assert_eq!(test.content_of(&copy), test.content());
}

/// Media may say anything.
fn positions_that_make_no_sense_are_refused(mut test: impl LogEngineUnderTest) {
    let engine = test.engine();
    let (_, end) = full(&mut test);
    test.commit();
    let set = Stored::next(&test, &end);
    assert!(engine.end(&json!("nonsense")).is_err() && engine.end(&json!(null)).is_err());
    for of_set in [&set.position.first, &set.position.last] {
        let good = of_set.value();
        for changed in changed(&good) {
            // It is an error, or the engine does not need that part. It is no panic.
            let _ = engine.end(&changed);
            let value = EngineValue::from(changed);
            let position = Position { first: value.clone(), last: value, ..set.position.clone() };
            let _ = engine.range(SetKind::Log, &position, None);
            let _ = engine.range(SetKind::Full, &position, Some(1));
        }
    }
}

/// The same JSON with one value changed, in every place.
fn changed(json: &Value) -> Vec<Value> {
    let mut all: Vec<Value> =
        vec![json!(null), json!(-1), json!(u64::MAX), json!("x"), json!([]), json!({}), json!([[[1]]])];
    if let Value::Object(fields) = json {
        for (name, value) in fields {
            let with = |value: Value| {
                let mut fields = fields.clone();
                fields.insert(name.clone(), value);
                Value::Object(fields)
            };
            all.extend(changed(value).into_iter().map(with));
        }
    }
    if let Value::Array(items) = json {
        for (at, value) in items.iter().enumerate() {
            let with = |value: Value| {
                let mut items = items.clone();
                items[at] = value;
                Value::Array(items)
            };
            all.extend(changed(value).into_iter().map(with));
        }
    }
    all
}
