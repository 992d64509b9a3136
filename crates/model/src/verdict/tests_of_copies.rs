//! Accounts as copies keep them: families on both sides, and bytes are counted on the media that are read.

use fullbore_core::meter::Stage;

use super::tests::{MIB, evidence, has, known, said, setup, stage};
use super::*;
use crate::throughput::{Buffers, CodecCost};

/// Two families of 500 MiB are read, and written as four of 600 MiB together, with these uses.
fn stages(media: f64, transform: f64, sink: f64) -> Vec<Stage> {
    let read = 500.0 * MIB;
    vec![
        stage("media", read, 2, media),
        stage("transform", 1000.0 * MIB, 2, transform),
        stage("sink", 600.0 * MIB, 4, sink),
    ]
}

/// lz4 to zstd:1, in other families.
fn anew() -> Setup {
    let copying = Copying { anew: true, unpacks: Some("lz4".into()), packs: true, decrypts: false };
    Setup { codec: "zstd:1".into(), copying: Some(copying), ..setup() }
}

fn as_it_is() -> Setup {
    let copying = Copying { unpacks: Some("lz4".into()), ..Copying::default() };
    Setup { buffers: Buffers::Through(24), copying: Some(copying), ..setup() }
}

fn copy(stages: &[Stage], setup: Setup) -> Evidence<'_> {
    Evidence {
        read_from: Some(vec!["from/1".into(), "from/2".into()]),
        plain_bytes: 500.0 * MIB,
        data_share: 2.0,
        setup: Some(setup),
        ..evidence(stages)
    }
}

#[test]
fn each_stage_of_a_copy_can_be_its_limit() {
    for (uses, name) in [((0.97, 0.5, 0.3), "media"), ((0.3, 0.97, 0.5), "transform"), ((0.3, 0.5, 0.97), "sink")] {
        let stages = stages(uses.0, uses.1, uses.2);
        assert_eq!(verdict(&copy(&stages, anew())).unwrap().name, name);
        assert_eq!(verdict(&copy(&stages, as_it_is())).unwrap().name, name);
    }
}

#[test]
fn ceilings_of_a_copy_are_bytes_of_the_media_that_it_reads() {
    let stages = stages(0.25, 0.5, 0.97);
    let verdict = verdict(&copy(&stages, anew())).unwrap();
    assert!(
        (verdict.rate / MIB - 50.0).abs() < 0.1 && (verdict.uses[0].ceiling / MIB - 200.0).abs() < 0.1,
        "{verdict:?}"
    );
}

/// The threads of a stage; one of them is slower than the others.
fn with_a_slow_one(mut stage: Stage, at: usize) -> Stage {
    let threads = &mut stage.threads;
    threads[at].busy = threads[at].time();
    stage
}

#[test]
fn a_slow_device_is_named_on_either_side() {
    let mut read = stages(0.3, 0.2, 0.2);
    read[0] = with_a_slow_one(read[0].clone(), 1);
    let verdict = verdict(&copy(&read, anew())).unwrap();
    assert_eq!((verdict.name, verdict.device.as_deref()), ("one stripe", Some("from/2")));
    let mut written = stages(0.2, 0.2, 0.3);
    written[2] = with_a_slow_one(written[2].clone(), 2);
    let of_target = super::verdict(&copy(&written, as_it_is())).unwrap();
    assert_eq!((of_target.name, of_target.device.as_deref()), ("one stripe", Some("mnt/3")));
    let several_sets =
        Evidence { read_from: Some(Vec::new()), devices: Vec::new(), setup: None, ..copy(&read, anew()) };
    assert_eq!(super::verdict(&several_sets).unwrap().name, "media", "for several sets no device is named");
}

#[test]
fn one_device_on_both_sides_of_a_copy_is_said() {
    let stages = stages(0.6, 0.3, 0.97);
    let why = verdict(&Evidence { one_device: true, ..copy(&stages, anew()) }).unwrap().why;
    assert!(why.ends_with("; source and target share one device"), "{why}");
}

#[test]
fn without_a_key_nobody_works_between_and_the_readers_check() {
    let mut stages = stages(0.97, 0.0, 0.3);
    stages[1] = Stage::of("transform", Vec::new());
    let sealed = Setup { codec: "none".into(), copying: Some(Copying::default()), ..as_it_is() };
    let mut known = known();
    known.path.codecs.push(CodecCost::none());
    let evidence = Evidence { data_share: 0.0, profile: Some(&known), ..copy(&stages, sealed) };
    let verdict = verdict(&evidence).unwrap();
    assert_eq!(verdict.name, "media");
    assert!(
        verdict.why.contains("transform 0 %") && verdict.why.contains("without its key a family is checked"),
        "{verdict:?}"
    );
    assert_eq!(verdict.calibrated.unwrap().name, "target media", "no codec is in its way");
}

#[test]
fn a_copy_is_asked_for_nothing_that_its_flags_cannot_say() {
    let slow_sink = stages(0.2, 0.5, 0.99);
    let known = known();
    let lines = |setup: Setup, stages: &[Stage]| {
        said(&verdict(&Evidence { profile: Some(&known), ..copy(stages, setup) }).unwrap().what_if)
    };
    let of_anew = lines(anew(), &slow_sink);
    assert!(has(&of_anew, "+4 stripes on the same devices → 1.", "×"), "{of_anew:?}");
    let of_as_it_is = lines(Setup { queue_depth: 1, ..as_it_is() }, &slow_sink);
    assert_eq!(of_as_it_is, Vec::<String>::new(), "its families, their codec and their writes are given");
    let slow_source = stages(0.99, 0.2, 0.2);
    let of_anew = lines(anew(), &slow_source);
    assert!(of_anew.iter().all(|line| !line.contains("readers") && !line.contains("BUFFERCOUNT")), "{of_anew:?}");
    let slow_transform = stages(0.2, 0.97, 0.3);
    let more = |lines: &[String]| has(lines, "workers 2 → 4: 1.", "");
    assert!(more(&lines(as_it_is(), &slow_transform)), "{:?}", lines(as_it_is(), &slow_transform));
}

#[test]
fn a_throttle_of_a_copy_counts_the_media_that_are_read_also_of_several_sets() {
    let stages = stages(0.3, 0.5, 0.4);
    let throttled = Evidence { throttle: Some(51.0 * MIB), ..copy(&stages, as_it_is()) };
    let verdict = verdict(&throttled).unwrap();
    assert_eq!(verdict.name, "throttle");
    assert!(verdict.why.starts_with("--throttle 51.0 MiB/s, used to 98 %"), "{}", verdict.why);
    assert!(has(&said(&verdict.what_if), "without --throttle → 1.", "×"), "{:?}", verdict.what_if);
    let several_sets = super::verdict(&Evidence { setup: None, ..throttled }).unwrap();
    assert_eq!((several_sets.name, several_sets.what_if.len()), ("throttle", 0));
}

#[test]
fn another_codec_is_compared_where_blocks_are_packed_anew_and_only_there() {
    let stages = stages(0.2, 0.97, 0.3);
    let mut known = known();
    // A codec that takes a third of the time, and leaves twice as many bytes.
    known.path.codecs[0].pack = known.path.codecs[1].pack / 3.0;
    let lines =
        |setup: Setup| said(&verdict(&Evidence { profile: Some(&known), ..copy(&stages, setup) }).unwrap().what_if);
    let packed = lines(anew());
    assert!(has(&packed, "lz4 instead of zstd:1 → 1.", "larger"), "{packed:?}");
    let kept = Setup { codec: "lz4".into(), ..anew() };
    let copying = Copying { packs: false, ..kept.copying.clone().unwrap() };
    assert!(lines(Setup { copying: Some(copying), ..kept }).iter().all(|line| !line.contains("instead")));
}

#[test]
fn the_calibrated_limit_of_a_copy_counts_both_media_and_all_that_is_done_with_a_block() {
    let stages = stages(0.5, 0.5, 0.99);
    let mut known = known();
    let limit = |known: &CalibratedLimits, setup: Setup| {
        verdict(&Evidence { profile: Some(known), ..copy(&stages, setup) }).unwrap().calibrated
    };
    // Writing 90 MiB/s means reading 75 MiB/s: 600 MiB for 500.
    let of_anew = limit(&known, anew()).unwrap();
    assert_eq!(of_anew.name, "target media");
    assert!((of_anew.rate / MIB - 75.0).abs() < 0.1, "{of_anew:?}");
    assert!((of_anew.share - 500.0 / 10.5 / 75.0).abs() < 1e-6, "all of the job's time counts");
    known.path.database.read.total_rate = 60.0 * MIB;
    assert_eq!(limit(&known, anew()).unwrap().name, "source media");
    // A byte of media is two of the database, which zstd packs at 55 MiB/s and lz4 unpacks at 100 on each of two
    // processors.
    known.path.machine.cores = 2.0;
    known.path.codecs[0].unpack = 1.0 / (100.0 * MIB);
    let of_work = limit(&known, anew()).unwrap();
    assert_eq!(of_work.name, "transform");
    let expected = 2.0 / (2.0 * (1.0 / 55.0 + 1.0 / 100.0));
    assert!((of_work.rate / MIB - expected).abs() < 0.1, "{of_work:?} {expected}");
    assert_eq!(limit(&known, as_it_is()).unwrap().name, "source media", "nothing is packed");
    let copying = Copying { unpacks: Some("gzip:6".into()), ..anew().copying.unwrap() };
    assert_eq!(
        limit(&known, Setup { copying: Some(copying), ..anew() }),
        None,
        "the unpacking of that codec was not measured"
    );
}
