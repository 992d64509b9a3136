//! Backup files of SQL Server through the gateway: replayed as parts, in and out of order, with repeats.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore_engines::sqlserver::configuration::BackupKind;
use fullbore_engines::sqlserver::large_backup::LargeBackup;
use fullbore_engines::sqlserver::page::PAGE;
use fullbore_engines::sqlserver::writer::{FamilyWriter, sample_full, sample_label, sample_set};
use fullbore_test_servers::S3Client;
use serde_json::Value;

use crate::foreign_sets::{how, id};
use crate::gateway::{Gateway, begin, complete, part, prepared, started};
use crate::world::World;

/// Uploads bytes in parts of this length; `order` tells in which order they come. Every third part is sent twice.
fn replay(client: &S3Client, key: &str, bytes: &[u8], length: usize, order: fn(usize) -> Vec<usize>) {
    let parts: Vec<&[u8]> = bytes.chunks(length).collect();
    let id = begin(client, key);
    let mut etags = vec![String::new(); parts.len()];
    for at in order(parts.len()) {
        let number = u32::try_from(at).unwrap() + 1;
        for _ in 0..if at % 3 == 2 { 2 } else { 1 } {
            let answer = client.demand(&part(key, &id, number, parts[at]));
            etags[at] = answer.header("etag").unwrap().to_owned();
        }
    }
    let listed: Vec<(u32, String)> = (1..).zip(etags).collect();
    client.demand(&complete(key, &id, &listed));
    assert!(client.get("nightly", key).as_deref() == Some(bytes), "{key}");
}

fn in_order(count: usize) -> Vec<usize> {
    (0..count).collect()
}

/// Each pair is turned: 1, 0, 3, 2, …
fn in_pairs(count: usize) -> Vec<usize> {
    (0..count).map(|at| if (at ^ 1) < count { at ^ 1 } else { at }).collect()
}

fn backwards(count: usize) -> Vec<usize> {
    (0..count).rev().collect()
}

/// What the sets of the bucket hold, by key.
fn holds(world: &World, key: &str) -> String {
    let listed = world.run("list --repo nightly --json").done().json();
    let is_it = |set: &&Value| set["database"] == key;
    let sets = listed.as_array().unwrap();
    sets.iter().rfind(is_it).unwrap()["holds"].as_str().unwrap_or_default().to_owned()
}

/// The line of the log about a stored object.
fn told(gateway: &Gateway, key: &str) -> String {
    let begin = format!("`{key}`: ");
    gateway.running.says(&begin);
    gateway.running.said().lines().filter(|line| line.contains(&begin)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_backup_file_is_recognised_and_checked_page_by_page_in_whatever_order_its_parts_come() {
    let world = prepared("");
    let gateway = started(&world, "");
    let bytes = sample_full(true);
    for (key, order) in
        [("ordered.bak", in_order as fn(usize) -> Vec<usize>), ("pairs.bak", in_pairs), ("back.bak", backwards)]
    {
        replay(&gateway.client, key, &bytes, 50_000, order);
        let line = told(&gateway, key);
        assert!(line.contains("checked while it was uploaded: no damage was found"), "{line}");
        assert!(line.contains("with a good checksum"), "{line}");
        assert!(holds(&world, key).starts_with("SQL Server backup, family 1 of 1"), "{}", holds(&world, key));
    }
    // A damaged page is stored as it is, and named.
    let mut damaged = bytes.clone();
    let page = damaged.windows(PAGE).position(|page| page[..2] == [1, 1] && page[32] == 3).unwrap_or(40_000);
    damaged[page + 5000] ^= 1;
    replay(&gateway.client, "damaged.bak", &damaged, 50_000, in_order);
    let line = told(&gateway, "damaged.bak");
    assert!(line.contains("DAMAGED in"), "{line}");
    assert!(holds(&world, "damaged.bak").ends_with(", damaged"));
    // Of another object, nothing is said.
    gateway.client.put("nightly", "other", b"TAP");
    assert!(!gateway.running.said().contains("`other`"));
    assert_eq!(holds(&world, "other"), "");
}

#[test]
fn a_part_that_is_sent_again_with_other_bytes_is_read_back_after_storing() {
    let world = prepared("");
    let gateway = started(&world, "");
    let client = &gateway.client;
    let bytes = sample_full(true);
    let (first, rest) = bytes.split_at(60_000);
    let id = begin(client, "k.bak");
    client.demand(&part("k.bak", &id, 1, &rest[..10]));
    let second = client.demand(&part("k.bak", &id, 2, rest)).header("etag").unwrap().to_owned();
    let one = client.demand(&part("k.bak", &id, 1, first)).header("etag").unwrap().to_owned();
    client.demand(&complete("k.bak", &id, &[(1, one), (2, second)]));
    assert!(client.get("nightly", "k.bak") == Some(bytes));
    // The first attempt did not look like a backup file: then nothing is known of it.
    let id = begin(client, "again.bak");
    let bytes = sample_full(true);
    let (first, rest) = bytes.split_at(60_000);
    let mut other = first.to_vec();
    other[50_000] ^= 1;
    client.demand(&part("again.bak", &id, 1, &other));
    let one = client.demand(&part("again.bak", &id, 1, first)).header("etag").unwrap().to_owned();
    let second = client.demand(&part("again.bak", &id, 2, rest)).header("etag").unwrap().to_owned();
    client.demand(&complete("again.bak", &id, &[(1, one), (2, second)]));
    gateway.running.says("read back after it was stored: no damage was found");
    let line = told(&gateway, "again.bak");
    assert!(line.contains("sent again with other bytes"), "{line}");
}

#[test]
fn an_object_whose_beginning_came_late_is_judged_by_its_own_bytes() {
    let world = prepared("");
    let gateway = started(&world, "");
    let client = &gateway.client;
    let (bytes, junk) = (sample_full(true), vec![b'J'; 60_000]);
    let upload = |key: &str, pieces: &[(u32, &[u8])]| {
        let id = begin(client, key);
        let sent: Vec<(u32, String)> = pieces
            .iter()
            .map(|(number, bytes)| {
                (*number, client.demand(&part(key, &id, *number, bytes)).header("etag").unwrap().to_owned())
            })
            .collect();
        client.demand(&complete(key, &id, &sent[sent.len() - 1..]));
    };
    upload("late.bak", &[(1, &junk), (1, &bytes)]);
    upload("second.bak", &[(2, &bytes)]);
    upload("unlisted", &[(1, &bytes), (2, &junk)]);
    upload("replaced", &[(1, &bytes), (1, &junk)]);
    for key in ["late.bak", "second.bak"] {
        gateway.running.says(&format!("`{key}`: SQL Server backup, family 1 of 1"));
        gateway.running.says("read back after it was stored: no damage was found");
    }
    crate::gateway::wait_for(|| told(&gateway, "second.bak").contains("read back after it was stored: no damage"));
    assert!(!told(&gateway, "late.bak").contains("checked while it was uploaded: no damage"));
    // What nobody has seen before the set was written is not in the set.
    assert_eq!(holds(&world, "second.bak"), "");
    for key in ["unlisted", "replaced"] {
        assert_eq!(holds(&world, key), "", "{key}");
        assert!(!gateway.running.said().contains(&format!("`{key}`: SQL")), "{key}");
    }
}

#[test]
fn a_media_set_is_complete_only_with_all_of_its_families() {
    let world = prepared("");
    let gateway = started(&world, "");
    let family =
        |number| FamilyWriter::new(&sample_label(2, number), 512).set(&sample_set(BackupKind::Full, 1)).finish();
    gateway.client.put("nightly", "shop_2.bak", &family(2));
    let line = told(&gateway, "shop_2.bak");
    assert!(line.contains("of 2 families, these are not there yet: 1"), "{line}");
    assert!(holds(&world, "shop_2.bak").ends_with("missing: family 1"), "{}", holds(&world, "shop_2.bak"));
    gateway.client.put("nightly", "shop_1.bak", &family(1));
    assert!(told(&gateway, "shop_1.bak").contains("all families of the media set are there"));
    for key in ["shop_1.bak", "shop_2.bak"] {
        assert!(!holds(&world, key).contains("missing"), "{}", holds(&world, key));
    }
}

/// Part numbers that come twice, and those that are cut off before they come whole.
const REPEATED: [u32; 2] = [2, 6];
const CUT: [u32; 2] = [1, 5];

#[test]
fn a_large_backup_file_in_parts_of_many_sizes_with_cuts_and_repeats_is_checked_and_comes_back() {
    let world = prepared("");
    let gateway = started(&world, "--memory 96MiB");
    let mut bytes = Vec::new();
    let large = LargeBackup { size: 64 << 20, seed: 3, changed: 0, has_checksums: true };
    let written = large.write(&mut bytes).unwrap();
    // SQL Server sends parts of 5 to 20 MiB.
    let lengths = [10, 5, 20, 7, 13].map(|mib| mib << 20);
    let (mut parts, mut left, mut at) = (Vec::new(), &bytes[..], 0);
    while !left.is_empty() {
        let (now, later) = left.split_at(lengths[at % lengths.len()].min(left.len()));
        parts.push(now);
        (left, at) = (later, at + 1);
    }
    for (key, order) in [("ordered.bak", [1, 2, 3, 4, 5, 6]), ("mixed.bak", [2, 1, 4, 3, 6, 5])] {
        assert_eq!(parts.len(), order.len());
        let id = begin(&gateway.client, key);
        let mut sent = BTreeMap::new();
        for number in order {
            let call = part(key, &id, number, parts[number as usize - 1]);
            if CUT.contains(&number) && key == "mixed.bak" {
                let cut = call.clone().rate("4m").patience(Duration::from_millis(300));
                assert!(gateway.client.send(&cut).is_err());
            }
            for _ in 0..1 + usize::from(REPEATED.contains(&number)) {
                sent.insert(number, gateway.client.demand(&call).header("etag").unwrap().to_owned());
            }
        }
        gateway.client.demand(&complete(key, &id, &sent.into_iter().collect::<Vec<_>>()));
        assert!(gateway.client.get("nightly", key).as_deref() == Some(&bytes[..]), "{key}");
        if key == "ordered.bak" {
            let line = told(&gateway, key);
            assert!(line.contains("checked while it was uploaded: no damage was found"), "{line}");
        } else {
            // Cut parts are sent again, which the check in passing cannot follow.
            gateway.running.says("read back after it was stored: no damage was found");
        }
        let pages = format!("{} pages", written.pages);
        assert!(told(&gateway, key).contains(&pages), "{pages}: {}", told(&gateway, key));
    }
}

#[test]
fn uploaded_backup_files_become_sets_and_a_later_full_is_stored_as_the_pages_that_differ() {
    let world = prepared("encrypt-to = [\"k.key.pub\"]\nkey = \"k.key\"");
    world.run("key new k.key --no-recovery").done();
    let gateway = started(&world, "");
    let mut fulls = Vec::new();
    for (changed, key) in [(0, "shop/1.bak"), (500, "shop/2.bak")] {
        let mut bytes = Vec::new();
        LargeBackup { size: 4 << 20, seed: 5, changed, has_checksums: true }.write(&mut bytes).unwrap();
        replay(&gateway.client, key, &bytes, 1_500_000, in_pairs);
        fulls.push(bytes);
    }
    gateway.client.put("nightly", "shop/1.bak", b"replaced by mistake");
    gateway.client.put("nightly", "shop/1.bak", &fulls[0]);
    gateway.client.put("nightly", "shop/readme", b"not a backup file, and longer than a head");
    let header = world.run("inspect header --from uploaded:nightly/shop/1.bak --json").done();
    assert!(header.object()["media_sets"][0]["sets"][0]["header"]["DatabaseName"] == "shop", "{header}");
    world.run("verify --from uploaded:nightly/shop/2.bak").done();
    world.run("restore --from uploaded:nightly/shop/1.bak --into dir:files --mkdir").done();
    assert_eq!(world.names("files"), ["shop", "shop_log"]);
    let line = "copy --from uploaded:nightly/shop/* --to-repo nightly --report json";
    let ways = [how(&world.run(line).done()), how(&world.run(line).done())];
    assert_eq!(ways[0], ["stored whole", "stored as the pages that differ"]);
    assert_eq!(ways[1], ["there already", "there already"]);
    // The client deletes its objects; the sets stay, and give the files back.
    for key in ["shop/1.bak", "shop/2.bak"] {
        gateway.client.delete("nightly", key);
    }
    let sets = world.run("list --repo nightly --json").done().json();
    let sets = sets.as_array().unwrap().iter().filter(|set| set["database"] == "DB1/shop");
    for ((set, bytes), number) in sets.zip(&fulls).zip(1..) {
        world.run(&format!("restore --repo nightly --set {} --into bak:out{number} --mkdir", id(set))).done();
        assert!(world.read(&format!("out{number}/{number}.bak")) == *bytes, "{number}.bak");
    }
    assert!(world.at("out2/2.bak").exists());
    for (from, code, said) in [
        ("uploaded:nightly/shop/none.bak", 2, "has no such object"),
        ("uploaded:nightly/shop/readme", 3, "is not a backup file"),
        ("uploaded:unknown/shop/1.bak", 2, "has no repository"),
        ("uploaded:nightly", 2, "names no key"),
        ("uploaded:nightly/shop/1.bak --from 1.bak", 2, "other places too"),
    ] {
        world.run(&format!("verify --from {from}")).with_code(code).says(&[said]);
    }
}

#[test]
fn genuine_backup_files_pass_in_parts_and_come_back_byte_for_byte() {
    let files = genuine();
    if files.is_empty() {
        return;
    }
    let world = prepared("compression = \"zstd\"");
    let gateway = started(&world, "");
    for (at, path) in files.iter().enumerate() {
        let key = path.file_name().unwrap().to_str().unwrap();
        let bytes = std::fs::read(path).unwrap();
        let order = [in_order as fn(usize) -> Vec<usize>, in_pairs, backwards][at % 3];
        let length = [300_000, 1 << 20, 777_777][at % 3];
        replay(&gateway.client, key, &bytes, length, order);
        let line = told(&gateway, key);
        assert!(line.contains("SQL Server backup"), "{line}");
        assert!(line.contains("no damage was found") || line.contains("DAMAGED"), "{line}");
    }
}

/// The genuine files, if they are on this machine.
fn genuine() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/bak");
    let place = std::env::var_os("FULLBORE_BAK_FILES").map_or(beside, PathBuf::from);
    let mut files: Vec<PathBuf> = std::fs::read_dir(place)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}
