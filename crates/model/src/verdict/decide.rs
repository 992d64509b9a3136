//! Which stage was the limit: the rules of `docs/VERDICT.md`, in their order.

use fullbore_core::meter::{Account, Stage};

use super::{Direction, Evidence, Limit, Use, Verdict, path, queue, what_if};
use crate::throughput::{self, predict};
use fullbore_core::units::show_bytes;

/// From this use on, a stage is busy most of the time.
pub const MOST: f64 = 0.5;
/// From this use on, a stage is the limit: more buffers would bring little.
pub const FULL: f64 = 0.8;
/// From this use on, threads wait for processors.
const PROCESSORS_FULL: f64 = 0.9;
/// Workers that had a processor for a smaller share of their busy time waited for one.
pub const CLEARLY_COMPUTING: f64 = 0.8;
/// A fixed cost is named if it is at least this share of all fixed costs.
const WORTH_NAMING: f64 = 0.1;
/// The greatest number of costs that are named.
const COSTS_NAMED: usize = 3;
/// The limit is beyond doubt if the others are used for at most this share of it. The truth table counts such cases
/// only.
pub const CLEARLY_LESS: f64 = 0.7;

/// The verdict without its what-if lines.
pub fn decide(evidence: &Evidence<'_>) -> Option<Verdict> {
    if evidence.stages.len() != 3 || evidence.plain_bytes <= 0.0 || evidence.moving_s <= 0.0 {
        return None;
    }
    let uses = uses(evidence);
    let fixed_share = (1.0 - evidence.moving_s / evidence.elapsed_s.max(evidence.moving_s)).max(0.0);
    let (lead, most) = greatest(&uses[..3]);
    let (processors, throttle) = (uses[PROCESSORS].share, uses.get(4).map_or(0.0, |throttle| throttle.share));
    let stripe = slow_stripe(evidence, lead);
    let limit = if fixed_share > MOST {
        Limit::FixedCosts
    } else if throttle >= MOST && throttle > most {
        Limit::Throttle
    } else if processors >= PROCESSORS_FULL && (lead == TRANSFORM || processors > most) {
        Limit::Processor
    } else if is_the_pool(evidence, lead, most) {
        Limit::Pool
    } else if most < MOST {
        Limit::None
    } else if let Some(family) = stripe {
        Limit::Stripe(family)
    } else if queue::shallow(evidence, lead, most, waits_for_buffers(evidence, lead, most)).is_some() {
        Limit::Queue
    } else {
        Limit::Stage(lead)
    };
    let device = match limit {
        Limit::Stripe(family) => families(evidence, lead).and_then(|devices| devices.get(family)).cloned(),
        _ => None,
    };
    let job_rate = evidence.plain_bytes / evidence.elapsed_s.max(evidence.moving_s);
    Some(Verdict {
        limit,
        name: name(limit, &uses),
        why: why(limit, evidence, &uses, device.as_deref(), lead),
        device,
        rate: evidence.plain_bytes / evidence.moving_s,
        fixed_share,
        of_limit: evidence.measured_limit.filter(|limit| *limit > 0.0).map(|limit| job_rate / limit),
        uses,
        calibrated: None,
        one_device: evidence.one_device,
        what_if: Vec::new(),
    })
}

/// The transform's place among the stages.
const TRANSFORM: usize = 1;
/// The processors' place among the uses.
const PROCESSORS: usize = 3;

fn uses(evidence: &Evidence<'_>) -> Vec<Use> {
    let rate = evidence.plain_bytes / evidence.moving_s;
    let of = |name, share: f64| {
        let share = share.clamp(0.0, 1.0);
        Use { name, share, ceiling: rate / share }
    };
    let busiest = |stage: &Stage| path::busiest(stage) / evidence.moving_s;
    let mut uses: Vec<Use> = evidence.stages[..3].iter().map(|stage| of(stage.name, busiest(stage))).collect();
    let elapsed = evidence.elapsed_s.max(evidence.moving_s);
    uses.push(of("processors", evidence.processor_s / (evidence.processors.max(1.0) * elapsed)));
    if let Some(throttle) = evidence.throttle {
        uses.push(of("throttle", rate / throttle));
    }
    uses
}

/// The place of the greatest use, and its share.
fn greatest(uses: &[Use]) -> (usize, f64) {
    let most = uses.iter().enumerate().max_by(|(_, one), (_, other)| one.share.total_cmp(&other.share));
    most.map_or((0, 0.0), |(at, most)| (at, most.share))
}

/// The stage with one thread for each family.
pub fn stage_of_families(direction: Direction) -> usize {
    match direction {
        Direction::Backup => 2,
        Direction::Restore => 0,
    }
}

/// The devices of the stage's threads, if its threads are families.
fn families<'a>(evidence: &'a Evidence<'_>, stage: usize) -> Option<&'a [String]> {
    match &evidence.read_from {
        Some(read_from) if stage == 0 => Some(read_from),
        _ if stage == stage_of_families(evidence.direction) => Some(&evidence.devices),
        _ => None,
    }
}

/// The busiest family, if the others have clearly less to do.
fn slow_stripe(evidence: &Evidence<'_>, lead: usize) -> Option<usize> {
    families(evidence, lead).filter(|devices| devices.len() == evidence.stages[lead].threads.len())?;
    let busy: Vec<f64> = evidence.stages[lead].threads.iter().map(|thread| thread.busy.as_secs_f64()).collect();
    let (at, most) = busy.iter().copied().enumerate().max_by(|one, other| one.1.total_cmp(&other.1))?;
    let others = busy.len().checked_sub(1).filter(|others| *others > 0)?;
    let mean = (busy.iter().sum::<f64>() - most) / others as f64;
    (mean <= CLEARLY_LESS * most).then_some(at)
}

/// True if more buffers would have made the job faster, and no stage was busy nearly all the time. Fewer buffers must
/// also be slower: the verdict and its what-if lines must agree.
fn is_the_pool(evidence: &Evidence<'_>, lead: usize, most: f64) -> bool {
    most < FULL
        && (waits_for_buffers(evidence, lead, most) || has_too_few_buffers(evidence))
        && !what_if::fewer_buffers_are_as_fast(evidence)
}

/// True if the families' devices have fewer operations in flight than they could, because buffers are missing.
fn waits_for_buffers(evidence: &Evidence<'_>, lead: usize, most: f64) -> bool {
    let Some(setup) = &evidence.setup else { return false };
    let first = evidence.stages[0].account;
    let others_wait = match evidence.direction {
        Direction::Backup => first.blocked > first.time() / 2,
        // In a restore, the families are the first stage; they are blocked when the workers are behind.
        Direction::Restore => false,
    };
    let several_at_a_time = setup.in_flight > 1.0 && setup.queue_depth > 1;
    lead == stage_of_families(evidence.direction)
        && most >= MOST
        && several_at_a_time
        && setup.in_flight <= CLEARLY_LESS * setup.queue_depth as f64
        && evidence.throttle.is_none()
        && others_wait
}

/// True if, by the model, there are fewer buffers than the stages could hold at once.
fn has_too_few_buffers(evidence: &Evidence<'_>) -> bool {
    let held_by_pool = || {
        // A profile changes the advice, not the verdict.
        let own = path::of_accounts(evidence)?;
        Some(predict(&own.path, &own.configuration).ok()?.phases.first()?.limit == throughput::Limit::Pool)
    };
    held_by_pool() == Some(true)
}

fn name(limit: Limit, uses: &[Use]) -> &'static str {
    match limit {
        Limit::Stage(at) => uses[at].name,
        Limit::Stripe(_) => "one stripe",
        Limit::Processor => "processor",
        Limit::Throttle => "throttle",
        Limit::Pool => "pool",
        Limit::Queue => "shallow queue",
        Limit::FixedCosts => "fixed costs",
        Limit::None => "none",
    }
}

fn why(limit: Limit, evidence: &Evidence<'_>, uses: &[Use], device: Option<&str>, lead: usize) -> String {
    let shares = |uses: &[Use]| -> String {
        uses.iter().map(|one| format!("{} {:.0} %", one.name, 100.0 * one.share)).collect::<Vec<_>>().join(", ")
    };
    let (stages, processors) = (shares(&uses[..3]), 100.0 * uses[PROCESSORS].share);
    match limit {
        Limit::Stage(_) => {
            let (next, waited) = (next(uses, lead), without_processor(evidence, lead));
            let (sealed, shared) = (checked_where_read(evidence, lead), shared(evidence, lead));
            format!("busy most of its time ({stages}){next}{waited}{sealed}{shared}")
        }
        Limit::Stripe(at) => {
            let threads = &evidence.stages[lead].threads;
            let share = |busy: f64| 100.0 * busy / evidence.moving_s;
            let sum: f64 = threads.iter().map(|thread| thread.busy.as_secs_f64()).sum();
            let own = threads[at].busy.as_secs_f64();
            let others = (sum - own) / (threads.len() - 1) as f64;
            let device = device.unwrap_or("one family");
            format!(
                "`{device}` busy {:.0} % of the time, the other families {:.0} % ({stages})",
                share(own),
                share(others)
            )
        }
        Limit::Processor => format!("all processors busy to {processors:.0} % ({stages})"),
        Limit::Throttle => {
            let rate = evidence.throttle.unwrap_or_default();
            format!("--throttle {}/s, used to {:.0} % ({stages})", show_bytes(rate as u64), 100.0 * uses[4].share)
        }
        Limit::Queue => {
            let numbers = evidence.raw_media.map(|raw| queue::why(evidence, lead, raw)).unwrap_or_default();
            format!("{numbers} ({stages})")
        }
        Limit::Pool => format!("too few buffers to keep a stage busy ({stages})"),
        Limit::FixedCosts => {
            let (elapsed, moving) = (evidence.elapsed_s, evidence.moving_s);
            let fixed = elapsed - moving;
            let named = costs(evidence, fixed);
            format!("{named}{fixed:.3} of {elapsed:.3} s before the first and after the last byte (meanwhile {stages})")
        }
        Limit::None => format!(
            "no stage was busy most of its time: they waited for each other or for a processor \
             ({stages}, processors {processors:.0} %)"
        ),
    }
}

/// True if a known cost is a large enough part of all fixed costs, both in seconds, that a message names it.
pub fn is_worth_naming(cost_s: f64, fixed_s: f64) -> bool {
    cost_s >= WORTH_NAMING * fixed_s
}

/// The known costs before the first and after the last byte, the longest first.
fn costs(evidence: &Evidence<'_>, fixed_s: f64) -> String {
    let mut costs: Vec<_> = evidence.costs.iter().filter(|cost| is_worth_naming(cost.seconds, fixed_s)).collect();
    costs.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    costs.iter().take(COSTS_NAMED).fold(String::new(), |named, cost| format!("{named}{}; ", cost.text))
}

/// The next limit, if this stage were not the limit.
fn next(uses: &[Use], lead: usize) -> String {
    // Workers and processors are one station (docs/MODEL.md §2).
    let other = |at: usize| at != lead && !(lead == TRANSFORM && at == PROCESSORS);
    let others = uses.iter().enumerate().filter(|(at, _)| other(*at)).map(|(_, one)| one);
    match others.max_by(|one, other| one.share.total_cmp(&other.share)) {
        Some(next) if next.share >= 0.01 => {
            format!("; next {}, at {:.1} times this speed", next.name, 1.0 / next.share)
        }
        _ => String::new(),
    }
}

/// A device that is read and written at the same time is slower in each direction than in one alone.
fn shared(evidence: &Evidence<'_>, lead: usize) -> String {
    match (evidence.one_device && lead != TRANSFORM, &evidence.read_from) {
        (false, _) => String::new(),
        (true, None) => "; database and media share one device".to_owned(),
        (true, Some(_)) => "; source and target share one device".to_owned(),
    }
}

/// Without its key, a set has no blocks for the workers: the reading thread of a family also checks it.
fn checked_where_read(evidence: &Evidence<'_>, lead: usize) -> &'static str {
    let sealed = evidence.read_from.is_some() && evidence.stages[TRANSFORM].threads.is_empty();
    if sealed && lead == 0 { "; without its key a family is checked by the thread that reads it" } else { "" }
}

/// The greatest share of their busy time for which the workers can have had a processor: they only compute.
pub fn processor_share(evidence: &Evidence<'_>) -> f64 {
    let busy = evidence.stages[TRANSFORM].account.busy.as_secs_f64();
    // Without processor time, it was not counted.
    if busy > 0.0 && evidence.processor_s > 0.0 { (evidence.processor_s / busy).min(1.0) } else { 1.0 }
}

fn without_processor(evidence: &Evidence<'_>, lead: usize) -> String {
    let had = processor_share(evidence);
    if lead != TRANSFORM || had >= CLEARLY_COMPUTING {
        return String::new();
    }
    let had = 100.0 * had;
    format!("; the workers had a processor for at most {had:.0} % of that: other load, or more workers than processors")
}

/// The work of the stages between two looks.
#[derive(Debug, Clone, PartialEq)]
pub struct Interval {
    /// Name and busy share of each stage, 0…1; `None` if its threads booked nothing.
    pub stages: [(&'static str, Option<f64>); 3],
    /// The busiest stage, if it was busy most of its time.
    pub limit: Option<&'static str>,
}

/// Compares two looks at the accounts of the stages. There is no limit before the first stage begins.
pub fn interval(before: &[(&'static str, Account); 3], now: &[(&'static str, Account); 3]) -> Interval {
    let share = |at: usize| {
        let ((_, before), (name, now)) = (&before[at], &now[at]);
        let busy = now.busy.saturating_sub(before.busy).as_secs_f64();
        let all = now.time().saturating_sub(before.time()).as_secs_f64();
        (*name, (all > 0.0 && !name.is_empty()).then(|| busy / all))
    };
    let stages: [(&'static str, Option<f64>); 3] = std::array::from_fn(share);
    let known = stages.iter().filter_map(|(name, share)| share.map(|share| (*name, share)));
    // One stage alone cannot be compared.
    let several = known.clone().count() > 1;
    let most = known.max_by(|one, other| one.1.total_cmp(&other.1));
    Interval { stages, limit: most.filter(|(_, share)| several && *share >= MOST).map(|(name, _)| name) }
}
