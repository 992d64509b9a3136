//! The same in the emulators of Azure and Google, which are not installed everywhere: `tests/servers/install-stores
//! azurite fake-gcs`.

use std::time::Duration;

use fullbore_core::device::{BucketName, Service};
use fullbore_core::store::{Encryption, ObjectOptions, Stores};
use fullbore_test_servers::{ObjectStore, StoreKind, StoreOptions};

use super::object_store::{conform, send_two_parts, stores};

fn media(service: Service) -> BucketName {
    BucketName { service, name: "media".to_owned() }
}

fn server(kind: StoreKind) -> ObjectStore {
    let server = ObjectStore::start(kind, &StoreOptions::new());
    server.make_bucket("media");
    server
}

#[test]
fn a_sink_and_a_supply_in_azure_conform() {
    conform(StoreKind::Azurite, Service::Azure);
}

#[test]
fn blocks_that_are_no_blob_yet_are_found_counted_and_dropped() {
    let server = server(StoreKind::Azurite);
    let stores = stores(&server);
    let bucket = stores.bucket(media(Service::Azure)).unwrap();
    let odd = "night/a b+c&<ü>%41=.bore";
    let upload = bucket.begin(odd, "set").unwrap();
    assert_eq!(bucket.parts(odd, &upload).unwrap(), None);
    bucket.abort(odd, &upload).unwrap();
    let (sent, answers) = send_two_parts(&bucket, odd, &upload);
    let parts: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    let there = bucket.parts(odd, &upload).unwrap().unwrap();
    assert_eq!(there.iter().map(|part| (part.number, part.size)).collect::<Vec<_>>(), sent);
    assert_eq!(bucket.head(odd).unwrap(), None, "nobody sees them");
    assert!(bucket.list("night/").unwrap().is_empty());
    let found = bucket.unfinished_uploads("night/").unwrap();
    assert_eq!(found.iter().map(|found| found.key.as_str()).collect::<Vec<_>>(), [odd]);
    assert_eq!(bucket.parts(odd, &found[0].upload).unwrap().unwrap(), there);
    // Giving up an upload does not need its set; afterwards nothing can be made of its parts.
    bucket.abort(odd, &found[0].upload).unwrap();
    bucket.abort(odd, &upload).unwrap();
    assert_eq!((bucket.unfinished_uploads("").unwrap(), bucket.parts(odd, &upload).unwrap()), (Vec::new(), None));
    assert!((server.objects("media"), server.uploads("media")) == (Vec::new(), Vec::new()));
    let error = bucket.complete(odd, &upload, parts).unwrap_err().to_string();
    assert!(error.contains(odd) && error.contains("is not there"), "{error}");
    assert_eq!(bucket.head(odd).unwrap(), None);
}

#[test]
fn a_blob_that_stands_is_not_touched_when_an_upload_over_it_is_given_up() {
    let server = server(StoreKind::Azurite);
    server.put("media", "app.bore", b"a backup");
    let stores = stores(&server);
    let bucket = stores.bucket(media(Service::Azure)).unwrap();
    let upload = bucket.begin("app.bore", "set").unwrap();
    let (_, answers) = send_two_parts(&bucket, "app.bore", &upload);
    answers.into_iter().for_each(|done| drop(done.unwrap()));
    bucket.abort("app.bore", &upload).unwrap();
    assert_eq!(server.get("media", "app.bore"), b"a backup");
}

#[test]
fn blocks_of_somebody_else_under_the_same_name_are_one_clear_error() {
    let server = server(StoreKind::Azurite);
    server.put_block("media", "app.bore", "QUJD", b"of another program");
    let stores = stores(&server);
    let bucket = stores.bucket(media(Service::Azure)).unwrap();
    let upload = bucket.begin("app.bore", "set").unwrap();
    let (_, answers) = send_two_parts(&bucket, "app.bore", &upload);
    let error = answers.into_iter().find_map(Result::err).unwrap().to_string();
    assert!(error.contains("another program has put blocks") && error.contains("hint"), "{error}");
}

#[test]
fn s3_options_are_refused_by_name_elsewhere() {
    let encryption = Some(Encryption::parse("--sse", "AES256").unwrap());
    let tags = vec![("team".to_owned(), "shop".to_owned())];
    for (flag, objects) in [
        ("--sse", ObjectOptions { encryption, ..ObjectOptions::default() }),
        ("--storage-class", ObjectOptions { storage_class: Some("COOL".into()), ..ObjectOptions::default() }),
        ("--tag", ObjectOptions { tags, ..ObjectOptions::default() }),
        ("--max-parts", ObjectOptions { max_parts: Some(100), ..ObjectOptions::default() }),
    ] {
        let stores = Stores::keeping(Duration::from_secs(60), Vec::new(), objects);
        for service in [Service::Azure, Service::Google] {
            let error = stores.bucket(media(service)).err().unwrap().to_string();
            assert!(error.contains(flag) && error.contains(&media(service).to_string()), "{error}");
        }
    }
}

#[test]
fn a_sink_and_a_supply_in_google_conform() {
    conform(StoreKind::FakeGcs, Service::Google);
}

#[test]
fn uploads_in_google_are_listed_with_their_parts_and_given_up() {
    let server = server(StoreKind::FakeGcs);
    let stores = stores(&server);
    let bucket = stores.bucket(media(Service::Google)).unwrap();
    let odd = "night/a b+c&<ü>%41=.bore";
    let upload = bucket.begin(odd, "set").unwrap();
    let other = bucket.begin("nightly.bore", "set").unwrap();
    let (sent, answers) = send_two_parts(&bucket, odd, &upload);
    let parts: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    let there = bucket.parts(odd, &upload).unwrap().unwrap();
    assert_eq!(there.iter().map(|part| (part.number, part.size)).collect::<Vec<_>>(), sent);
    let found = bucket.unfinished_uploads("night/").unwrap();
    assert_eq!(found.iter().map(|found| (found.key.as_str(), &found.upload)).collect::<Vec<_>>(), [(odd, &upload)]);
    assert_eq!(bucket.head(odd).unwrap(), None, "nobody sees them");
    for _ in 0..2 {
        bucket.abort(odd, &upload).unwrap();
        bucket.abort("nightly.bore", &other).unwrap();
    }
    assert_eq!((bucket.unfinished_uploads("").unwrap(), bucket.parts(odd, &upload).unwrap()), (Vec::new(), None));
    let error = bucket.complete(odd, &upload, parts).unwrap_err().to_string();
    assert!(error.contains(odd) && error.contains("no longer exists"), "{error}");
    assert_eq!(server.objects("media"), Vec::new());
}

#[test]
fn one_of_many_writers_to_a_free_key_wins() {
    for (kind, service) in [(StoreKind::Azurite, Service::Azure), (StoreKind::FakeGcs, Service::Google)] {
        let server = server(kind);
        let stores = stores(&server);
        let bucket = stores.bucket(media(service)).unwrap();
        let won = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..8)
                .map(|writer| {
                    scope.spawn({
                        let bucket = &bucket;
                        move || bucket.put_new("claim", vec![writer; 100]).unwrap()
                    })
                })
                .collect();
            writers.into_iter().filter_map(|writer| writer.join().ok()).filter(|won| *won).count()
        });
        assert_eq!(won, 1, "{kind:?}");
        let kept = bucket.read_small("claim", 1000).unwrap().unwrap();
        assert_eq!((kept.len(), kept.iter().all(|byte| *byte == kept[0])), (100, true));
        let listed = bucket.list("").unwrap();
        // The store's clock, in whole seconds at worst.
        assert!(listed.len() == 1 && listed[0].modified > 1_700_000_000_000_000, "{listed:?}");
        bucket.put("claim", b"over it".to_vec()).unwrap();
        assert_eq!(bucket.read_small("claim", 1000).unwrap().unwrap(), b"over it".as_slice());
        bucket.remove("claim").unwrap();
        bucket.remove("claim").unwrap();
        assert_eq!(bucket.read_small("claim", 1000).unwrap(), None);
    }
}

#[test]
fn an_object_replaced_after_its_listing_is_not_read_in_azure() {
    let server = server(StoreKind::Azurite);
    server.put("media", "app.bore", b"first");
    let stores = stores(&server);
    let bucket = stores.bucket(media(Service::Azure)).unwrap();
    let tag = bucket.head("app.bore").unwrap().unwrap().tag;
    assert_eq!(bucket.read("app.bore", 0..5, tag.clone()).unwrap(), b"first".as_slice());
    server.put("media", "app.bore", b"other");
    let error = bucket.read("app.bore", 0..5, tag).unwrap_err().to_string();
    assert!(error.contains("replaced meanwhile"), "{error}");
}
