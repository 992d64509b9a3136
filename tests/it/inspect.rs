//! `fullbore inspect` and `fullbore list`.

use crate::world::World;

fn striped() -> World {
    let world = World::with_database();
    let line = "backup sqlite:app.db --to a/ --to b/ --stripes 4 --name nightly --description before-the-upgrade --compression zstd:2";
    world.run(line).done();
    world
}

#[test]
fn the_header_says_what_the_set_is() {
    let world = striped();
    let header = world.run("inspect header --from a --from b --json").done().json();
    let set = &header[0];
    for (field, value) in [("kind", "full"), ("engine", "sqlite"), ("name", "nightly"), ("codec", "zstd:2")] {
        assert_eq!(set[field], value, "{set}");
    }
    let database = std::fs::canonicalize(world.at("app.db")).unwrap();
    assert_eq!(set["database"].as_str(), database.to_str(), "its real path, whatever was typed");
    assert_eq!((set["families"].as_u64(), set["complete"].as_bool()), (Some(4), Some(true)));
    assert_eq!(set["devices"].as_array().unwrap().len(), 4);
    let text = world.run("inspect header --from a --from b").done().text();
    for word in ["full ", "media set", "zstd:2", "4 of 4", "complete"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn the_files_say_what_a_restore_will_make() {
    let world = striped();
    let files = world.run("inspect files --from a --from b --json").done().json();
    let stream = &files[0]["streams"][0];
    let size = std::fs::metadata(world.at("app.db")).unwrap().len();
    assert_eq!((stream["name"].as_str(), stream["size"].as_u64()), (Some("app.db"), Some(size)));
    assert_eq!(files[0]["families"].as_array().unwrap().len(), 4);
    assert!(world.run("inspect files --from a --from b").done().text().contains("app.db"));
    world.run("inspect files --from a").refused(3, "media set", "missing");
}

#[test]
fn names_that_the_header_has_no_room_for_are_refused_before_anything_is_written() {
    let world = World::with_database();
    let long = "x".repeat(3900);
    let backup =
        |flag: &str, to: &str| world.run_with(&["backup", "sqlite:app.db", "--to", to, flag, &long, "--mkdir"]);
    for flag in ["--name", "--description", "--media-name"] {
        let mut line = vec!["backup", "sqlite:app.db", "--to", "long/", "--mkdir"];
        line.extend([flag, long.as_str(), "--name-template", "x.bore"]);
        let more = "y".repeat(300);
        let other = if flag == "--name" { "--description" } else { "--name" };
        line.extend([other, more.as_str()]);
        world.run_with(&line).refused(2, "--media-name", "too long");
        assert!(!world.at("long/x.bore").exists());
    }
    backup("--description", "fits/").done();
    world.run("verify fits/").done();
}

#[test]
fn the_label_has_name_and_description() {
    let text = striped().run("inspect label --from a").text();
    assert!(text.contains("nightly") && text.contains("before-the-upgrade"), "{text}");
}

#[test]
fn a_list_says_what_a_folder_holds_and_what_is_missing() {
    let world = striped();
    world.run("backup sqlite:app.db --to a/whole.bore").done();
    let text = world.run("list --from a --from b").done().text();
    assert!(text.contains("4/4") && text.contains("1/1") && !text.contains("missing"), "{text}");
    let ended = world.run("list --from a").with_code(4);
    assert!(ended.text().contains("2/4") && ended.text().contains("families 2, 4 of 4 missing"), "{}", ended.text());
    let sets = world.run("list --from a --json").with_code(4).json();
    assert_eq!(sets.as_array().unwrap().len(), 2);
}

#[test]
fn a_list_of_a_directory_names_the_host_if_the_media_tell_it() {
    let world = World::with_database();
    world.run("key new --no-recovery k.key").done();
    let on_host = |line: &str| {
        let mut command = crate::program::command(world.folder(), line.split_whitespace());
        command.env("FULLBORE_HOST", "db1.example.com");
        crate::program::run(command).done()
    };
    on_host("backup sqlite:app.db --to a/");
    on_host("backup sqlite:app.db --to b/ --encrypt-to k.key.pub");
    let clear = world.run("list a").done().text();
    assert!(clear.contains(" host ") && clear.contains(" db1.example.com "), "{clear}");
    assert_eq!(world.run("list a --json").done().json()[0]["host"], "db1.example.com");
    assert!(world.run("inspect header a").done().text().contains("host        db1.example.com"));
    let sealed = world.run("list b").done().text();
    assert!(!sealed.contains(" host "), "the host is encrypted: {sealed}");
    assert!(world.run("list b --json").done().json()[0]["host"].is_null());
}

#[test]
fn an_unreadable_family_is_named_in_the_list() {
    let world = striped();
    world.write("a/torn.bore", b"FULLBORE and then nothing");
    world.run("list --from a --from b").with_code(4).says(&["warning: ", "a/torn.bore"]);
}

#[test]
fn control_characters_are_shown_and_not_sent_to_the_terminal() {
    let world = World::with_database();
    let mut backup = crate::program::command(world.folder(), ["backup", "sqlite:app.db", "--to", "a/x\u{1b}[2J.bore"]);
    backup.args(["--name", "red\u{1b}[31m\nmedia set 7", "--description", "bell\u{7}\u{9b}2J\u{202e}"]);
    crate::program::run(backup).done();
    for line in ["list --from a", "inspect header --from a", "inspect label --from a", "inspect files --from a"] {
        let ended = world.run(line).done();
        let text = ended.text() + &ended.err;
        assert!(
            !text.contains(|letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}'),
            "{text:?}"
        );
        assert!(!text.contains("\nmedia set 7"), "{text}");
    }
    world.run("inspect label --from a").done().text().find("red\\u{1b}[31m\\nmedia set 7").unwrap();
    let label = world.run("inspect label --from a --json").done().json();
    assert_eq!(label[0]["name"], "red\u{1b}[31m\nmedia set 7");
}
