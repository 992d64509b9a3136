//! Hints for a user who works with a repository: they name `--repo` where the hints about media name `--from`.

use fullbore_core::Error;

/// The error of a choice among the sets of a repository: the choice itself does not know where the sets are.
pub(super) fn of_repository(error: Error, repository: &str) -> Error {
    let is_of_files = |thing: &str| ["--from", "--base"].contains(&thing);
    let thing_of = |thing: String| if is_of_files(&thing) { format!("--repo {repository}") } else { thing };
    let hint_of = |hint: String| hint.split("; ").map(|step| of_step(step, repository)).collect::<Vec<_>>().join("; ");
    match error {
        Error::Usage { thing, why, hint } => Error::Usage { thing: thing_of(thing), why, hint: hint_of(hint) },
        Error::Refused { thing, why, hint } => Error::Refused { thing: thing_of(thing), why, hint: hint_of(hint) },
        Error::Incomplete { thing, why, hint } => {
            Error::Incomplete { thing: thing_of(thing), why, hint: hint_of(hint) }
        }
        other => other,
    }
}

/// The error of a repository without a set: nothing there is good.
pub(super) fn without_sets(repository: &str) -> Error {
    let hint = format!(
        "back up into it: `fullbore backup SOURCE --repo {repository}`. If only its records were lost, `fullbore catalog rebuild \
         --repo {repository}` makes them again"
    );
    Error::usage(format!("--repo {repository}"), "holds no backup set", hint)
}

/// One of the next steps in a hint.
fn of_step(step: &str, repository: &str) -> String {
    match step.contains("--from") {
        true => format!("`fullbore list --repo {repository}` shows the sets that are there"),
        false => {
            let step = step.replace(", into the same repository or named with --base", " into the same repository");
            step.replace("`fullbore list`", &format!("`fullbore list --repo {repository}`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_about_media_become_hints_about_the_repository_and_other_steps_stay() {
        for (hint, expected) in [
            (
                "name the families of the full too, with --from",
                "`fullbore list --repo night` shows the sets that are there",
            ),
            (
                "name its families too, with --from; or restore up to that time with --stop-at 'x'",
                "`fullbore list --repo night` shows the sets that are there; or restore up to that time with --stop-at 'x'",
            ),
            (
                "use another set: `fullbore list` shows all sets",
                "use another set: `fullbore list --repo night` shows all sets",
            ),
            (
                "take a full first, into the same repository or named with --base",
                "take a full first into the same repository",
            ),
        ] {
            let error = of_repository(Error::incomplete("full 1", "is not there", hint), "night");
            assert_eq!((error.hint(), error.exit_kind().exit_code()), (expected, 3));
        }
        let refused = of_repository(Error::refused("--from", "several chains", "choose one with --set ID"), "night");
        let without = of_repository(Error::incomplete("--base", "no full was found there", ""), "night");
        assert!(without.to_string().starts_with("--repo night: no full"), "{without}");
        assert_eq!(refused.to_string(), "--repo night: several chains\n  hint: choose one with --set ID");
    }
}
