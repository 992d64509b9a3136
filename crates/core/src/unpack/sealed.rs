//! Reading an encrypted set without its key: it checks every stored byte, and what the blocks tell of themselves in
//! plain text.
//!
//! It checks the checksums of all headers and bodies, padding, footers, the digest of each family against its footer
//! and the commit record, and the sequence numbers. Only the key can check the inside of the blocks (runs, plain
//! digests, index, manifest) and the footers' MACs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::balance::{Balance, Weights};
use super::block::check_stored;
use super::family::{Family, damage};
use super::parse::{Parsed, Parser};
use super::restore::check_families;
use super::set::MediaSet;
use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::media::{Footer, total};
use crate::meter::{Account, Clock, LiveAccount};
use crate::pool::{self, Pool};
use crate::threads;

/// Reads all of an encrypted set through `input`. Gives the footers of its families, and the account of each one's
/// thread, which `live` shows meanwhile.
///
/// # Errors
/// Damage, with the family and the byte.
pub(crate) fn check_sealed(
    set: &mut MediaSet,
    input: &Arc<Pool>,
    live: &Arc<LiveAccount>,
    halt: &Halt,
) -> Result<(Vec<Footer>, Vec<Account>)> {
    let pool = Arc::clone(input);
    halt.on_stop(move || pool.close());
    let weights = Weights::random();
    let done = Mutex::new((Vec::new(), Vec::new()));
    thread::scope(|scope| {
        let (done, families) = (&done, set.families_mut());
        let start = move || {
            for family in families {
                let number = family.header().family;
                let read = move || {
                    let mut clock = Clock::shown_in(live);
                    let parsed = halt.watch(check_family(family, input, weights, halt, &mut clock));
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.0.extend(parsed.map(|parsed| (number, parsed)));
                    done.1.push((number, clock.account()));
                };
                threads::start_in(scope, &format!("family {number}"), read)?;
            }
            Ok(())
        };
        halt.watch(start());
    });
    halt.finish()?;
    let (mut parsed, mut accounts) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    parsed.sort_by_key(|(family, _)| *family);
    accounts.sort_by_key(|(family, _)| *family);
    let accounts = accounts.into_iter().map(|(_, account)| account).collect();
    let parsed: Vec<Parsed> = parsed.into_iter().map(|(_, parsed)| parsed).collect();
    check_families(set, &parsed)?;
    let mut sequences = Balance::default();
    parsed.iter().for_each(|family| sequences.join(family.sequences));
    let blocks = total(parsed.iter().map(|family| family.footer.block_count));
    (0..blocks).for_each(|number| sequences.take(weights, [number, 0, 0]));
    if !sequences.is_even() {
        let why = "its blocks are not numbered from 0 on, each number once";
        let name = format!("media set {}", set.header().media_set_id);
        return Err(Error::incomplete(name, why, "use another backup set"));
    }
    Ok((parsed.into_iter().map(|parsed| parsed.footer).collect(), accounts))
}

fn check_family(
    family: &mut Family,
    input: &Arc<Pool>,
    weights: Weights,
    halt: &Halt,
    clock: &mut Clock,
) -> Result<Parsed> {
    let device = family.device().to_owned();
    let mut parser = Parser::new(family, None, input, VecDeque::new(), weights)?;
    pool::waited(); // Earlier waits belong to no account.
    while let Some(block) = parser.next()? {
        check_stored(&block.header, &block.bytes).map_err(|flaw| damage(&device, block.offset, flaw))?;
        clock.pass(block.bytes.len() as u64);
        clock.lap_busy_but(pool::waited());
        halt.check()?;
    }
    let parsed = parser.finish()?;
    clock.lap_busy_but(pool::waited());
    Ok(parsed)
}
