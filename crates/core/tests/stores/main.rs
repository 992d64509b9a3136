//! Sinks and supplies in a real object store keep what all sinks and supplies promise.
#![allow(clippy::unwrap_used)]

mod object_store {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::time::Duration;

    use fullbore_core::Result;
    use fullbore_core::device::{BucketName, Device, Service};
    use fullbore_core::io::Mode;
    use fullbore_core::sink::{self, Options, Sink};
    use fullbore_core::store::{Encryption, LockMode, ObjectLock, ObjectOptions, Stores};
    use fullbore_core::supply;
    use fullbore_core::testkit::{sink_conforms, supply_conforms};
    use fullbore_test_servers::{ObjectStore, StoreKind, StoreOptions};

    pub(super) fn stores(server: &ObjectStore) -> Stores {
        Stores::new(Duration::from_secs(60), settings(server))
    }

    #[test]
    fn a_sink_and_a_supply_in_a_store_conform() {
        conform(StoreKind::Versitygw, Service::S3);
    }

    /// Sinks and supplies in a bucket of this server.
    pub(super) fn conform(kind: StoreKind, service: Service) {
        let server = ObjectStore::start(kind, &StoreOptions::new());
        server.make_bucket("media");
        let stores = stores(&server);
        let media = BucketName { service, name: "media".to_owned() };
        let next = Cell::new(0);
        let make = |name: &str| -> Result<Box<dyn Sink>> {
            next.set(next.get() + 1);
            let set_id = format!("0192f0c1-2b3a-7c4d-8e5f-{:012}", next.get());
            sink::open(&Device::object(&media, name), Options { stores: stores.clone(), ..Options::new(set_id) })
        };
        let bucket = stores.bucket(&media).unwrap();
        let read_back = |name: &str| match bucket.head(name).unwrap() {
            Some(head) if head.size > 0 => bucket.read(name, 0..head.size, None).unwrap().to_vec(),
            _ => Vec::new(),
        };
        sink_conforms(make, Some(read_back));
        let left: Vec<String> = server.objects("media").into_iter().map(|object| object.key).collect();
        assert!(left.iter().all(|key| key.starts_with("whole-") || key == "twice"), "{left:?}");
        assert_eq!(server.uploads("media"), Vec::new(), "no upload is left unfinished");

        let count = Cell::new(0);
        for depth in [3, 8] {
            supply_conforms(|bytes, pool| {
                count.set(count.get() + 1);
                let name = format!("supply-{}", count.get());
                assert!(bucket.put_new(&name, bytes.to_vec()).unwrap());
                supply::open(&Device::object(&media, &name), pool, depth, Mode::Auto, &stores).unwrap()
            });
        }
    }

    pub(super) fn settings(server: &ObjectStore) -> Vec<(String, String)> {
        server.environment().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    #[test]
    fn unfinished_uploads_and_their_parts_are_listed_page_by_page_and_given_up() {
        for kind in [StoreKind::Versitygw, StoreKind::Minio] {
            let server = ObjectStore::start(kind, &StoreOptions::new());
            server.make_bucket("media");
            let stores = stores(&server);
            let bucket = stores.bucket("media").unwrap();
            let odd = "night/a b+c&<ü>%41=.bore";
            let upload = bucket.begin(odd, "set").unwrap();
            let other = bucket.begin("nightly.bore", "set").unwrap();
            let (sent, answers) = send_two_parts(&bucket, odd, &upload);
            for done in answers {
                done.unwrap();
            }
            let there = bucket.parts(odd, &upload).unwrap().unwrap();
            let shape: Vec<(u32, u64)> = there.iter().map(|part| (part.number, part.size)).collect();
            assert_eq!(shape, sent, "{kind:?}");
            assert!(there.iter().all(|part| !part.tag.is_empty() && part.crc32c.is_some()), "{kind:?}: {there:?}");
            // MinIO lists the uploads of one key only, under that key as the prefix.
            let prefix = if kind == StoreKind::Minio { odd } else { "night/" };
            let found = bucket.unfinished_uploads(prefix).unwrap();
            assert_eq!(found.len(), 1, "{kind:?}: {found:?}");
            assert_eq!((found[0].key.as_str(), &found[0].upload), (odd, &upload));
            assert!(found[0].initiated.is_some_and(|time| time > 1_700_000_000_000_000));
            bucket.abort(odd, &upload).unwrap();
            bucket.abort(odd, &upload).unwrap();
            assert_eq!(bucket.unfinished_uploads(prefix).unwrap(), Vec::new());
            assert_eq!(bucket.parts(odd, &upload).unwrap(), None);
            bucket.abort("nightly.bore", &other).unwrap();
        }
    }

    /// Sends two parts at once; what was sent, by number and size.
    pub(super) fn send_two_parts(
        bucket: &Arc<fullbore_core::store::Bucket>,
        key: &str,
        upload: &fullbore_core::store::Upload,
    ) -> (Vec<(u32, u64)>, Vec<Result<fullbore_core::store::Part>>) {
        let sizes = [(1, 5 << 20), (2, 1000)];
        let (give, take) = std::sync::mpsc::channel();
        for (number, size) in sizes {
            let (of, key, upload, give) = (Arc::clone(bucket), key.to_owned(), upload.clone(), give.clone());
            let work =
                async move { of.write_part(&key, &upload, number as usize - 1, vec![7; size as usize].into()).await };
            std::mem::forget(bucket.start(work, move |done| give.send(done).unwrap()));
        }
        (sizes.to_vec(), take.iter().take(sizes.len()).collect())
    }

    #[test]
    fn more_uploads_than_a_page_holds_are_all_listed() {
        let server = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
        server.make_bucket("media");
        let stores = stores(&server);
        let bucket = stores.bucket("media").unwrap();
        let mut begun: Vec<String> =
            (0..1_005).map(|at| bucket.begin(&format!("many/{}", at / 3), "set").unwrap().0).collect();
        let mut found: Vec<String> =
            bucket.unfinished_uploads("many/").unwrap().into_iter().map(|found| found.upload.0).collect();
        begun.sort();
        found.sort();
        assert_eq!(found, begun);
    }

    #[test]
    fn an_object_that_is_not_kept_as_was_asked_for_is_found_out() {
        let server = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new().versioning());
        server.make_bucket_with_object_lock("media");
        server.client().put("media", "plain", b"neither locked nor encrypted");
        let keeping = |objects: ObjectOptions| {
            let stores = Stores::keeping(Duration::from_secs(60), settings(&server), objects);
            stores.bucket("media").unwrap().check_kept("plain")
        };
        let until = "2099-01-01T00:00:00Z".parse().unwrap();
        let lock = Some(ObjectLock { mode: LockMode::Compliance, until });
        let text = keeping(ObjectOptions { lock, ..ObjectOptions::default() }).unwrap_err().to_string();
        assert!(text.contains("a lock (COMPLIANCE) until 2099") && text.contains("shows none"), "{text}");
        let encryption = Some(Encryption::parse("--sse", "aws:kms").unwrap());
        let text = keeping(ObjectOptions { encryption, ..ObjectOptions::default() }).unwrap_err().to_string();
        assert!(text.contains("ignores --sse") && text.contains("--encrypt-to"), "{text}");
        keeping(ObjectOptions::default()).unwrap();
    }
}

#[cfg(all(feature = "azure", feature = "gcs"))]
mod emulators;
