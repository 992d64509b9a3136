//! Three examples below the `--help` of each verb.

use clap::Command;

/// A verb, and its examples: a line that says what for, and a command line.
type Examples = (&'static [&'static str], [(&'static str, &'static str); 3]);

const ALL: [Examples; 30] = [
    (
        &["backup"],
        [
            ("Four stripes on two disks", "backup sqlite:/data/app.db --to /mnt/a/ --to /mnt/b/ --stripes 4"),
            (
                "What changed since a full",
                "backup sqlite:/data/app.db --to /mnt/a/ --kind differential --base /mnt/a --base /mnt/b",
            ),
            ("Into a repository, as it needs it", "backup mariadb://backup@localhost --repo nightly --kind auto"),
        ],
    ),
    (
        &["log", "follow"],
        [
            ("Until Ctrl-C, into a directory", "log follow sqlite:/data/app.db --to /mnt/a/app/ --interval 10s"),
            ("Into a repository", "log follow sqlite:/data/app.db --repo nightly"),
            ("Encrypted", "log follow sqlite:/data/app.db --repo nightly --encrypt-to app.key.pub"),
        ],
    ),
    (
        &["restore"],
        [
            (
                "The newest backup",
                "restore --from /mnt/a --from /mnt/b --latest --into sqlite:/data/copy.db --check full",
            ),
            ("A point in time", "restore --repo nightly --into sqlite:/data/copy.db --stop-at '2026-11-22T10:00:00Z'"),
            ("A server", "restore --from /mnt/a --latest --into dir:/var/lib/mysql-copy --owner mysql"),
        ],
    ),
    (
        &["verify"],
        [
            ("All sets in two directories", "verify /mnt/a /mnt/b"),
            ("The newest set of a database, with a verdict", "verify --repo nightly --database app --latest"),
            ("An encrypted set", "verify /mnt/a --key app.key"),
        ],
    ),
    (
        &["copy"],
        [
            ("Into an object store", "copy --from /mnt/a/ --to s3://bucket/app/"),
            (
                "Into another repository, for another key",
                "copy --repo nightly --to-repo offsite --encrypt-to offsite.pub",
            ),
            ("With another codec", "copy --from /mnt/a/ --to /mnt/b/ --compression zstd:9"),
        ],
    ),
    (
        &["migrate"],
        [
            (
                "Follow the source until Ctrl-C",
                "migrate mysql://root@db1 --into mysql://root@db2 --password-file pw1 --into-password-file pw2",
            ),
            ("Continue, and switch over", "migrate mysql://root@db1 --into mysql://root@db2 --resume --cut-over"),
            ("Out of a repository; again later: what came since", "migrate --repo nightly --into mysql://root@db2"),
        ],
    ),
    (
        &["unpack"],
        [
            ("A compressed backup of SQL Server", "unpack app.bak --to app-plain.bak"),
            (
                "From a store, into a directory that is not there yet",
                "unpack s3://bucket/app.bak --to new/app.bak --mkdir",
            ),
            ("Check every byte, write nothing", "unpack app.bak --to nul:"),
        ],
    ),
    (
        &["export"],
        [
            (
                "All tables of a backup file of SQL Server",
                "export --from app.bak --format parquet --into dir:/data/out",
            ),
            (
                "Some columns of some rows of one table",
                "export --from app.bak --format csv --table dbo.Orders --columns OrderID,Freight --where 'OrderID = 10248' \
                 --into dir:out",
            ),
            (
                "A full and its differential, into one SQLite database",
                "export --from app.bak --from app.dif --format sqlite --into dir:out",
            ),
        ],
    ),
    (
        &["calibrate"],
        [
            ("The path of a backup", "calibrate --read /data/app.db --write /mnt/a --write /mnt/b"),
            ("Two minutes, under a name", "calibrate --read /data/app.db --write /mnt/a --seconds 120 --name night"),
            ("The profiles of this machine", "calibrate --show"),
        ],
    ),
    (
        &["estimate"],
        [
            ("One configuration", "estimate sqlite:/data/app.db --to /mnt/a/ --compression zstd:1"),
            ("Many of them", "estimate sqlite:/data/app.db --to /mnt/a/ --to /mnt/b/ --grid"),
            ("A database that will be larger", "estimate sqlite:/data/app.db --to /mnt/a/ --size 4TB --deadline 2h"),
        ],
    ),
    (
        &["advise"],
        [
            ("The least time, and among equals the least bytes", "advise sqlite:/data/app.db --to /mnt/a/"),
            ("The smallest backup in two hours", "advise sqlite:/data/app.db --to /mnt/a/ --smallest --deadline 2h"),
            ("A quarter of the processors", "advise sqlite:/data/app.db --to /mnt/a/ --cpu-limit 25%"),
        ],
    ),
    (
        &["inspect"],
        [
            ("Which set, how it was written", "inspect header /mnt/a/app.bore"),
            ("Which files are in it", "inspect files /mnt/a --json"),
            ("The label of each stripe", "inspect label /mnt/a"),
        ],
    ),
    (
        &["inspect", "header"],
        [
            ("Every set in a directory", "inspect header /mnt/a"),
            ("In an object store, as JSON", "inspect header s3://bucket/app/ --json"),
            ("The second set of a backup file of SQL Server", "inspect header app.bak --file 2"),
        ],
    ),
    (
        &["inspect", "files"],
        [
            ("The files of a set, and its position", "inspect files /mnt/a/app.bore"),
            ("Of an encrypted set", "inspect files /mnt/a --key app.key"),
            ("Of a backup file of SQL Server", "inspect files app.bak"),
        ],
    ),
    (
        &["inspect", "label"],
        [
            ("The label of each stripe", "inspect label /mnt/a /mnt/b"),
            ("As JSON", "inspect label /mnt/a --json"),
            ("Of a media set of SQL Server", "inspect label shop_1.bak shop_2.bak"),
        ],
    ),
    (
        &["list"],
        [
            ("Directories", "list /mnt/a /mnt/b"),
            ("A repository", "list --repo nightly"),
            ("As JSON", "list --repo nightly --json"),
        ],
    ),
    (
        &["restore-test"],
        [
            ("The newest chain of one database", "restore-test --repo nightly --database app"),
            ("In a directory with room", "restore-test --repo nightly --database app --scratch /var/tmp"),
            ("An encrypted chain", "restore-test --repo nightly --database app --key app.key"),
        ],
    ),
    (
        &["check"],
        [
            ("Is last night good?", "check --repo nightly --max-age 26h"),
            ("And proven within eight days?", "check --repo nightly --max-age 26h --max-unproven 8d"),
            ("Metrics for Prometheus", "check --repo nightly --metrics /var/lib/node_exporter/fullbore.prom"),
        ],
    ),
    (
        &["prune"],
        [
            ("What would be removed", "prune --repo nightly"),
            ("By other rules", "prune --repo nightly --keep-daily 7 --keep-weekly 4 --window 14d"),
            ("Remove it", "prune --repo nightly --confirm"),
        ],
    ),
    (
        &["catalog", "rebuild"],
        [
            ("From the records", "catalog rebuild --repo nightly"),
            ("Records that were lost, from encrypted media", "catalog rebuild --repo nightly --key app.key"),
            ("Of a place without a configuration", "catalog rebuild --repo s3://bucket/nightly/"),
        ],
    ),
    (
        &["tasks"],
        [
            ("What runs now", "tasks --repo nightly"),
            ("As JSON", "tasks --repo nightly --json"),
            ("Of a place without a configuration", "tasks --repo /mnt/a/"),
        ],
    ),
    (
        &["task"],
        [
            ("By a part of its id", "task --repo nightly 3f2a"),
            ("As JSON", "task --repo nightly 3f2a --json"),
            ("Of a place without a configuration", "task --repo /mnt/a/ 3f2a"),
        ],
    ),
    (
        &["cancel"],
        [
            ("By a part of its id", "cancel --repo nightly 3f2a"),
            ("As JSON", "cancel --repo nightly 3f2a --json"),
            ("Of a place without a configuration", "cancel --repo /mnt/a/ 3f2a"),
        ],
    ),
    (
        &["sql"],
        [
            (
                "One statement",
                "sql \"BACKUP DATABASE [shop] TO DISK = '/a/1.bore', DISK = '/b/2.bore' WITH INIT, STATS = 10\"",
            ),
            ("A script", "sql -i nightly.sql"),
            ("The command lines of a script", "sql -i nightly.sql --dry-run"),
        ],
    ),
    (
        &["gateway"],
        [
            ("A bucket", "gateway --repo nightly --tls-cert gateway.crt --tls-key gateway.key --keys gateway.keys"),
            (
                "For 64 stripes of SQL Server",
                "gateway --repo nightly --tls-cert gateway.crt --tls-key gateway.key --keys gateway.keys --memory 2GiB",
            ),
            (
                "Log every request, without secrets",
                "gateway --repo nightly --tls-cert gateway.crt --tls-key gateway.key --keys gateway.keys --trace",
            ),
        ],
    ),
    (
        &["gateway", "cert"],
        [
            ("For one name", "gateway cert /etc/fullbore/tls --host backup1.example.com"),
            ("For a name and an address", "gateway cert tls --host backup1 --host 10.0.0.7"),
            ("For ten years", "gateway cert tls --host backup1 --days 3650"),
        ],
    ),
    (
        &["bench"],
        [
            ("What a matrix would take", "bench bench/matrices/buffers.toml --dry-run"),
            ("Run it", "bench bench/matrices/buffers.toml"),
            ("Continue an interrupted run", "bench bench/matrices/buffers.toml --resume"),
        ],
    ),
    (
        &["key", "new"],
        [
            ("A recovery key, for another machine", "key new recovery.key --no-recovery"),
            ("A key beside it", "key new app.key --recovery recovery.key.pub"),
            ("A key without any recovery", "key new test.key --no-recovery"),
        ],
    ),
    (
        &["key", "rewrap"],
        [
            ("For one more key", "key rewrap --from /mnt/a --key app.key --encrypt-to new.key.pub"),
            (
                "For two more, in an object store",
                "key rewrap --from s3://bucket/app/ --key app.key --encrypt-to new.key.pub --encrypt-to recovery.key.pub",
            ),
            (
                "Stripes on several disks",
                "key rewrap --from '/mnt/a/app*' --from '/mnt/b/app*' --key recovery.key --encrypt-to new.key.pub",
            ),
        ],
    ),
    (&["completions"], [("bash", "completions bash"), ("zsh", "completions zsh"), ("fish", "completions fish")]),
];

/// The command with the examples of its verbs.
pub fn added_to(command: Command) -> Command {
    ALL.iter().fold(command, |command, (verb, examples)| {
        let line = |(what, line): &(&str, &str)| format!("  # {what}\n  fullbore {line}\n");
        add(command, verb, format!("Examples:\n{}", examples.iter().map(line).collect::<String>()))
    })
}

fn add(command: Command, verb: &'static [&'static str], text: String) -> Command {
    match verb {
        [] => command.after_long_help(text),
        [first, rest @ ..] => command.mut_subcommand(first, |command| add(command, rest, text)),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::args::Arguments;

    #[test]
    fn each_verb_has_examples_and_each_example_is_a_valid_command() {
        for (_, examples) in &ALL {
            for (_, line) in examples {
                let words = std::iter::once("fullbore".to_owned()).chain(shlex::split(line).unwrap());
                let parsed = added_to(Arguments::command()).try_get_matches_from(words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
        let mut silent = Vec::new();
        note_silent(&Arguments::command(), "", &mut silent);
        assert_eq!(silent, [""; 0]);
    }

    /// The commands below `command` that do something and have no examples.
    fn note_silent(command: &Command, above: &str, silent: &mut Vec<String>) {
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let path = format!("{above}{}", verb.get_name());
            if !verb.is_subcommand_required_set() && !ALL.iter().any(|(named, _)| named.join(" ") == path) {
                silent.push(path.clone());
            }
            note_silent(verb, &format!("{path} "), silent);
        }
    }
}
