//! What holds of a repository in a directory holds of one in a store. In a module of this name, so that tests with servers are found by it.

mod object_store {
    use fullbore_test_servers::{ObjectStore, StoreKind, StoreOptions};
    use serde_json::Value;

    use crate::database::Shape;
    use crate::program::{self, Ended};
    use crate::world::World;

    const DAY: i64 = 86_400 * 1_000_000;

    fn world(keep: &str) -> (World, ObjectStore) {
        let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
        let text = format!("[repository.night]\nto = [\"s3://media/night/\"]\n[repository.night.keep]\n{keep}\n");
        world.write("fullbore.toml", text.as_bytes());
        let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
        store.make_bucket("media");
        (world, store)
    }

    fn run(world: &World, store: &ObjectStore, line: &str) -> Ended {
        let mut command = program::command(world.folder(), line.split_whitespace());
        command.envs(store.environment());
        program::run(command)
    }

    fn sets(world: &World, store: &ObjectStore) -> Vec<Value> {
        run(world, store, "list --repo night --json").json().as_array().unwrap().clone()
    }

    fn record(store: &ObjectStore, name: &str) -> Value {
        serde_json::from_slice(&store.get("media", &format!("night/.fullbore/{name}"))).unwrap()
    }

    /// Writes a record as somebody else would, and lets this host's catalog forget what it knew.
    fn write_record(world: &World, store: &ObjectStore, name: &str, record: &Value) {
        store.put("media", &format!("night/.fullbore/{name}"), record.to_string().as_bytes());
        let _ = std::fs::remove_dir_all(world.at("state")); // It may not be there.
    }

    #[test]
    fn a_repository_that_was_synced_between_stores_keeps_the_days_of_its_backups() {
        let (world, store) = world("daily = 7");
        for _ in 0..3 {
            run(&world, &store, "backup sqlite:app.db --repo night").done();
        }
        run(&world, &store, "verify --repo night").done();
        let now = jiff::Timestamp::now().as_microsecond();
        // As a sync leaves it after ten days: all objects are of today.
        for (set, days) in sets(&world, &store).iter().zip([6, 5, 4]) {
            let name = format!("sets/{}.json", set["backup_set_id"].as_str().unwrap());
            let mut of_that_day = record(&store, &name);
            of_that_day["started_at"] = (now - days * DAY).into();
            of_that_day["finished_at"] = (now - days * DAY + 1).into();
            write_record(&world, &store, &name, &of_that_day);
        }
        let mut made = record(&store, "repository.json");
        made["stored_at"] = (now - 10 * DAY).into();
        write_record(&world, &store, "repository.json", &made);
        let pruned = run(&world, &store, "prune --repo night --confirm --grace 0s").done();
        pruned.says(&["this repository was copied here"]);
        assert_eq!(sets(&world, &store).len(), 3, "three days, of which each has its place");
    }
}
