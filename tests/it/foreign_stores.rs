//! Backup files of SQL Server in an object store: read from it, taken into it, and given back.

use fullbore_engines::sqlserver::configuration::BackupKind;
use fullbore_engines::sqlserver::writer::{FamilyWriter, sample_extents_of, sample_label, sample_set};
use fullbore_test_servers::{ObjectStore, StoreKind, StoreOptions};

use crate::foreign_sets::{extents, id, set, written};
use crate::program::{self, Ended};
use crate::world::World;

fn run(world: &World, store: &ObjectStore, line: &str) -> Ended {
    let mut command = program::command(world.folder(), line.split_whitespace());
    command.envs(store.environment());
    program::run(command)
}

#[test]
fn media_are_read_from_a_store_taken_into_a_repository_there_and_given_back() {
    let (world, store) = (World::new(), ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new()));
    store.make_bucket("dump");
    store.make_bucket("media");
    world.write("fullbore.toml", b"[repository.night]\nto = [\"s3://media/night/\"]\n");
    let mut fulls = Vec::new();
    for number in 1..3 {
        let mut full = set(BackupKind::Full, number);
        full.copies = vec![extents(40, 20, number.into())];
        fulls.push((format!("full{number}.bak"), written(&full, number)));
    }
    for (family, numbers) in [(1, &[0, 1][..]), (2, &[2, 5])] {
        let mut striped = sample_set(BackupKind::Full, 1);
        striped.copies = vec![sample_extents_of(numbers, &[0, 1, 2, 5])];
        let bytes = FamilyWriter::new(&sample_label(2, family), 512).set(&striped).finish();
        fulls.push((format!("stripe{family}.bak"), bytes));
    }
    for (name, bytes) in &fulls {
        store.client().put("dump", &format!("sql/{name}"), bytes);
    }
    let header = run(&world, &store, "inspect header --from s3://dump/sql/full1.bak --json").done().object();
    assert_eq!(header["media_sets"][0]["sets"][0]["header"]["DatabaseName"], "shop");
    assert!(run(&world, &store, "list s3://dump/sql/").done().text().contains("stripe2.bak"));
    run(&world, &store, "verify s3://dump/sql/").done();
    let done = run(&world, &store, "copy --from s3://dump/sql/ --to-repo night --report json").done();
    assert_eq!(done.object()["copied"].as_array().unwrap().len(), 3, "{done}");
    let again = run(&world, &store, "copy --from s3://dump/sql/ --to-repo night").done();
    assert!(again.err.contains("is there already"), "{again}");
    run(&world, &store, "verify --repo night").done();
    let sets = run(&world, &store, "list --repo night --json").done().json();
    for set in sets.as_array().unwrap() {
        run(&world, &store, &format!("restore --repo night --set {} --into bak:out --mkdir", id(set))).done();
    }
    for (name, bytes) in &fulls {
        assert!(world.read(&format!("out/{name}")) == *bytes, "{name}");
    }
    run(&world, &store, "restore --from s3://dump/sql/full1.bak --into dir:files --mkdir").done();
    assert_eq!(world.names("files"), ["shop", "shop_log"]);
    // The same from files into a prefix, without a repository.
    run(&world, &store, "copy --from out/full1.bak --to s3://media/plain/").done();
    run(&world, &store, "restore --from s3://media/plain/ --into bak:back --mkdir").done();
    assert!(world.read("back/full1.bak") == fulls[0].1);
    let ended = run(&world, &store, "verify s3://dump/sql/stripe1.bak").with_code(3);
    ended.says(&["family 2 of 2"]);
}
