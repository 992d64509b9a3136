//! Sinks and supplies in a real object store keep what all sinks and supplies promise.
#![allow(clippy::unwrap_used)]

mod object_store {
    use std::cell::Cell;
    use std::time::Duration;

    use fullbore_core::Result;
    use fullbore_core::device::Device;
    use fullbore_core::io::Mode;
    use fullbore_core::sink::{self, Options, Sink};
    use fullbore_core::store::Stores;
    use fullbore_core::supply;
    use fullbore_core::testkit::{sink_conforms, supply_conforms};
    use fullbore_test_servers::{ObjectStore, StoreKind, StoreOptions};

    fn stores(server: &ObjectStore) -> Stores {
        let settings = server.environment().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Stores::new(Duration::from_secs(60), settings)
    }

    #[test]
    fn a_sink_and_a_supply_in_a_store_conform() {
        let server = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
        server.make_bucket("media");
        let stores = stores(&server);
        let next = Cell::new(0);
        let make = |name: &str| -> Result<Box<dyn Sink>> {
            next.set(next.get() + 1);
            let set_id = format!("0192f0c1-2b3a-7c4d-8e5f-{:012}", next.get());
            sink::open(&Device::object("media", name), Options { stores: stores.clone(), ..Options::new(set_id) })
        };
        let bucket = stores.bucket("media").unwrap();
        let read_back = |name: &str| match bucket.head(name).unwrap() {
            Some(head) if head.size > 0 => bucket.read(name, 0..head.size, None).unwrap().to_vec(),
            _ => Vec::new(),
        };
        sink_conforms(make, Some(read_back));
        let left: Vec<String> = server.objects("media").into_iter().map(|object| object.key).collect();
        assert!(left.iter().all(|key| key.starts_with("whole-") || key == "twice"), "{left:?}");
        assert_eq!(server.uploads("media"), Vec::new(), "no upload is left unfinished");

        let count = Cell::new(0);
        supply_conforms(|bytes, pool| {
            count.set(count.get() + 1);
            let name = format!("supply-{}", count.get());
            assert!(bucket.put_new(&name, bytes.to_vec()).unwrap());
            supply::open(&Device::object("media", &name), pool, 3, Mode::Auto, &stores).unwrap()
        });
    }
}
