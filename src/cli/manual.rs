//! Manual pages and completions, from the same flags as the parser.

use std::path::Path;

use clap::{Command, CommandFactory};
use fullbore::{Error, Result};

use super::args::{Arguments, Completions, Manual};

/// Writes `fullbore.1` and a page for each verb.
pub fn manual(args: &Manual) -> Result<u8> {
    let mut command = super::examples::added_to(Arguments::command());
    command.build();
    write_page(&command, "fullbore", &args.directory)?;
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
        write_page(verb, &format!("fullbore-{}", verb.get_name()), &args.directory)?;
    }
    Ok(0)
}

fn write_page(command: &Command, name: &str, directory: &Path) -> Result<()> {
    let path = directory.join(format!("{name}.1"));
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(command.clone().name(name.to_owned()));
    let written = man.render(&mut page).and_then(|()| std::fs::write(&path, page));
    written.map_err(|e| Error::io("write", path.display().to_string(), e))
}

/// Writes completions to standard output.
pub fn completions(args: &Completions) -> Result<u8> {
    let mut command = Arguments::command();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "fullbore", &mut script);
    super::show::as_it_is(String::from_utf8_lossy(&script).trim_end());
    Ok(0)
}
