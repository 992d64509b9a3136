//! An encrypted chain stays encrypted. Without a key, anybody can write a set in clear that names any full as its base.

use fullbore_core::{Error, Result};

use super::{FoundSet, title};

/// Checks the sets of a chain, in the order in which they are restored.
///
/// # Errors
/// A set in clear continues an encrypted one.
pub(super) fn check(chain: &[&FoundSet]) -> Result<()> {
    let Some(first) = chain.iter().position(|set| set.encrypted) else { return Ok(()) };
    chain[first..].iter().find(|set| !set.encrypted).map_or(Ok(()), |set| Err(weaker(set, chain[first])))
}

/// Checks a set against its base, if the base is among `found`. The set passes if a copy of the base is there in clear.
/// It also passes if the set itself is there encrypted: a restore with the key takes that copy.
///
/// # Errors
/// The set is in clear, and its base is encrypted.
pub fn check_against(found: &[FoundSet], set: &FoundSet) -> Result<()> {
    if found.iter().any(|copy| copy.backup_set_id == set.backup_set_id && copy.encrypted) {
        return Ok(());
    }
    let mut bases = found.iter().filter(|base| set.base == Some(base.backup_set_id));
    match bases.next() {
        Some(base) if !set.encrypted && base.encrypted && bases.all(|copy| copy.encrypted) => Err(weaker(set, base)),
        _ => Ok(()),
    }
}

fn weaker(set: &FoundSet, base: &FoundSet) -> Error {
    Error::incomplete(
        title(set),
        format!(
            "is not encrypted, but its base {} is encrypted: anybody could have written this set without any key",
            title(base)
        ),
        format!(
            "restore the other set with --set {}; if you made this set yourself, copy all encrypted sets below it \
             with `fullbore copy --decrypt`, and restore from those copies",
            base.backup_set_id
        ),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fullbore_core::media::SetKind;
    use uuid::Uuid;

    use super::super::{Choice, choose, choose_one};
    use super::*;

    fn set(id: u128, kind: SetKind, base: Option<u128>, encrypted: bool) -> FoundSet {
        FoundSet {
            backup_set_id: Uuid::from_u128(id << 96),
            media_set_id: Uuid::from_u128((id + 100) << 96),
            kind,
            base: base.map(|id| Uuid::from_u128(id << 96)),
            started_at: i64::try_from(id).unwrap(),
            incomplete: None,
            interrupted: false,
            database: None,
            names: Vec::new(),
            log_range: None,
            until_by_store: None,
            encrypted,
        }
    }

    #[test]
    fn a_set_in_clear_on_an_encrypted_one_is_refused_and_each_other_pair_is_not() {
        for (full, differential) in [(true, true), (false, false), (false, true), (true, false)] {
            let found = [set(1, SetKind::Full, None, full), set(2, SetKind::Differential, Some(1), differential)];
            let is_weaker = full && !differential;
            assert_eq!(choose(&found, &Choice::default()).is_err(), is_weaker);
            let of_id = |id: &str| Choice { set: Some(id.into()), ..Choice::default() };
            assert_eq!(choose_one(&found, &of_id("00000002")).is_err(), is_weaker);
            assert_eq!(choose(&found, &of_id("00000001")).unwrap().sets, [0], "the full itself");
            assert_eq!(check_against(&found, &found[1]).is_err(), is_weaker);
        }
        let found = [set(1, SetKind::Full, None, true), set(2, SetKind::Differential, Some(1), false)];
        let error = choose(&found, &Choice::default()).unwrap_err();
        assert_eq!(error.exit_kind(), fullbore_core::error::ExitKind::Damaged);
        let text = error.to_string();
        assert!(text.contains("is not encrypted") && text.contains("copy --decrypt"), "{text}");
    }

    #[test]
    fn a_log_set_in_clear_behind_an_encrypted_chain_is_refused_wherever_it_is() {
        let chain = [
            set(1, SetKind::Full, None, false),
            set(2, SetKind::Log, Some(1), true),
            set(3, SetKind::Log, Some(2), true),
            set(4, SetKind::Log, Some(3), false),
        ];
        check(&chain.iter().take(3).collect::<Vec<_>>()).unwrap();
        assert!(check(&chain.iter().collect::<Vec<_>>()).unwrap_err().to_string().contains("log"));
    }

    #[test]
    fn a_copy_of_the_base_in_clear_is_enough() {
        let differential = set(2, SetKind::Differential, Some(1), false);
        let mut copy = set(1, SetKind::Full, None, false);
        copy.media_set_id = Uuid::from_u128(7);
        check_against(&[set(1, SetKind::Full, None, true), copy], &differential).unwrap();
        check_against(&[], &differential).unwrap();
    }
}
