//! Progress as it is seen: lines where standard error is no terminal, a picture on one.

use std::process::Command;

use crate::program;
use crate::world::World;

/// Slow enough to be looked at a few times: about two seconds for the usual database.
const SLOWED: &str = "backup sqlite:app.db --to nul: --throttle 1MiB/s --max-transfer-size 64KiB --compression none";

/// Standard error of a run that succeeded.
fn said(world: &World, line: &str) -> String {
    world.run(line).done().err
}

#[test]
fn plain_lines_name_the_limit_of_their_interval_and_a_picture_needs_a_terminal() {
    let world = World::with_database();
    let rich = said(&world, &format!("{SLOWED} --progress rich --stats 20"));
    let lines: Vec<&str> = rich.lines().filter(|line| line.contains("Z backup: ")).collect();
    assert!(lines.len() >= 2 && lines.iter().all(|line| line.starts_with("20")), "each begins with the time: {rich}");
    assert!(!rich.contains('\x1b'), "{rich}");
    for none in ["--progress none", "--quiet --progress plain"] {
        let none = said(&world, &format!("{SLOWED} {none}"));
        assert!(!none.contains("backup: "), "{none}");
    }
}

/// Runs `fullbore LINE` on a terminal of 80 columns and gives what was sent to it; `None` where there is no `script` (util-linux).
fn on_a_terminal(world: &World, line: &str, environment: &[(&str, &str)]) -> Option<String> {
    if !["/usr/bin/script", "/usr/bin/stty"].iter().all(|path| std::path::Path::new(path).exists()) {
        return None; // Nothing here makes a terminal: not tested.
    }
    let fullbore = program::command(world.folder(), [""; 0]);
    let command = format!("stty cols 80 rows 24; {} {line}", fullbore.get_program().display());
    let mut script = Command::new("/usr/bin/script");
    program::surroundings(&mut script, world.folder());
    script.args(["-q", "-e", "-f", "-c", &command, "sent"]).env("TERM", "xterm").env_remove("NO_COLOR");
    script.envs(environment.iter().copied());
    let ended = script.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    Some(String::from_utf8(ended.stdout).unwrap())
}

#[test]
fn on_a_terminal_the_stages_are_drawn_in_place_and_gone_at_the_end() {
    let world = World::with_database();
    let Some(sent) = on_a_terminal(&world, SLOWED, &[]) else { return };
    for part in ["  source    ", "  transform ", "  sink      ", "MiB/s", "buffers in use", "░"] {
        assert!(sent.contains(part), "{part}: {sent}");
    }
    assert!(sent.contains("\r\x1b[5A"), "six lines are written over from the first one on");
    let (_, end) = sent.rsplit_once("\x1b[J").unwrap();
    assert!(end.starts_with("BACKUP DATABASE: full of "), "nothing of the picture is left: {end}");
}

#[test]
fn the_stages_and_the_buffers_of_a_copy_are_drawn_as_well() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/ --compression none --max-transfer-size 64KiB").done();
    for (to, way) in [("as-it-is", ""), ("anew", "--compression lz4")] {
        let line = format!("copy --from a --to b/{to}/ --mkdir {way} --throttle 1MiB/s --progress rich");
        let Some(sent) = on_a_terminal(&world, &line, &[]) else { return };
        for part in ["  media     ", "  transform ", "  sink      "] {
            assert!(sent.contains(part), "{part}: {sent}");
        }
        assert!(sent.contains("buffers in use") && !sent.contains(" of 0 buffers"), "{sent}");
    }
}

#[test]
fn a_terminal_gets_colours_ages_and_a_table_that_fits_and_no_color_turns_colours_off() {
    let world = World::with_database();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    world.run("backup sqlite:app.db --repo night").done();
    let listed = |environment: &[(&str, &str)]| on_a_terminal(&world, "list --repo night", environment);
    let Some(coloured) = listed(&[]) else { return };
    assert!(coloured.contains(" ago") && coloured.contains("\u{1b}[") && coloured.contains("complete"), "{coloured}");
    let plain = listed(&[("NO_COLOR", "1")]).unwrap();
    assert!(!plain.contains('\u{1b}') && plain.lines().all(|line| line.trim_end().chars().count() <= 80), "{plain}");
    let failed = on_a_terminal(&world, "verify nowhere || true", &[]).unwrap();
    assert!(failed.contains("\u{1b}[31merror:\u{1b}[0m "), "{failed}");
}

#[test]
fn a_dumb_terminal_gets_one_line_and_no_color_means_none() {
    let world = World::with_database();
    let rich = format!("{SLOWED} --progress rich");
    let Some(dumb) = on_a_terminal(&world, &rich, &[("TERM", "dumb")]) else { return };
    assert!(!dumb.contains("buffers in use"), "{dumb}");
    let Some(plain) = on_a_terminal(&world, &rich, &[("NO_COLOR", "1")]) else { return };
    assert!(plain.contains("buffers in use") && !plain.contains("\x1b[1m"), "{plain}");
}

#[test]
fn a_signal_takes_the_picture_away_before_the_error_is_said() {
    let world = World::with_database();
    // Slow enough for any machine, and ended as soon as the picture has come to the file that `script` writes.
    let slow = SLOWED.replace("1MiB/s", "32KiB/s");
    let line = format!(
        "{slow} --progress rich & until grep -q 'buffers in use' sent; do sleep 0.1; done; kill $!; wait $!; true"
    );
    let Some(sent) = on_a_terminal(&world, &line, &[]) else { return };
    let (_, end) = sent.rsplit_once("\x1b[J").unwrap();
    assert!(end.contains("cancelled by SIGTERM") && !end.contains("transform"), "{end}");
}

#[test]
fn a_log_that_is_followed_has_a_line_that_tells_how_far_behind_it_is() {
    let world = crate::log_follow::world();
    let app = crate::log::kept_open(&world);
    app.execute_batch("INSERT INTO ledger VALUES (1, 1, NULL)").unwrap();
    let line = "log follow sqlite:app.db --to a/ --interval 50ms --for 2s";
    let Some(sent) = on_a_terminal(&world, line, &[]) else { return };
    for part in ["log follow: ", " of log, media ", ", behind at most "] {
        assert!(sent.contains(part), "{part}: {sent}");
    }
    let (_, told) = sent.split_once("taken: its log is followed from here").unwrap();
    assert!(told.starts_with("\r\n"), "what happens is told on lines of its own: {sent}");
    let (_, end) = sent.rsplit_once("\x1b[J").unwrap();
    assert!(!end.contains("log follow: "), "nothing of the line is left: {end}");
    let quiet = on_a_terminal(&world, &format!("{line} --full-if-needed --quiet"), &[]).unwrap();
    assert!(!quiet.contains("behind at most"), "{quiet}");
    assert!(!said(&world, &format!("{line} --full-if-needed")).contains("behind at most"), "a service has a journal");
}
