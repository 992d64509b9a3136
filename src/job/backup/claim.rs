//! The memory of a backup: its plan, and a smaller plan if memory is short and BUFFERCOUNT was not given.

use fullbore_core::Result;
use fullbore_core::plan::{Knobs, Plan};

use super::Request;
use super::resolve::plan_with;
use crate::report::{PoolReport, Report};
use fullbore_core::conduct::Conduct;
use fullbore_core::resources;
use fullbore_core::units::{counted, show_bytes};

/// The plan for families of an expected length in bytes (0: not known yet), after a check that there is enough memory.
/// Reports the memory.
///
/// # Errors
/// Even the smallest plan with the given settings does not fit.
pub(super) fn claimed(
    request: &Request,
    stripes: usize,
    per_family: u64,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Plan> {
    let usual = plan_with(request, &request.knobs, stripes, per_family)?;
    let Err(too_large) = claim(request, &usual, per_family, conduct, report) else { return Ok(usual) };
    let mut smallest = None;
    for knobs in smaller(request, &usual) {
        let plan = plan_with(request, &knobs, stripes, per_family)?;
        if claim(request, &plan, per_family, conduct, report).is_ok() {
            report.note_smaller_plan((plan.buffer_count(), plan.workers), (usual.buffer_count(), usual.workers));
            return Ok(plan);
        }
        smallest = Some(plan);
    }
    let Some(smallest) = smallest else { return Err(too_large) };
    let families = match stripes {
        1 => "1 family".to_owned(),
        stripes => format!("{stripes} families"),
    };
    Err(too_large.noting(&format!(
        "the smallest plan for {families} has {} of {} and {}, but does not fit either",
        counted(smallest.buffer_count() as u64, "buffer"),
        show_bytes(smallest.transfer_size.into()),
        counted(smallest.workers as u64, "worker"),
    )))
}

/// Plans smaller than `usual`, the smallest last; none if BUFFERCOUNT was given. The given settings stay, and so do the
/// readers: a session may already be open for that many.
fn smaller(request: &Request, usual: &Plan) -> Vec<Knobs> {
    let asked = &request.knobs;
    if asked.buffer_count.is_some() {
        return Vec::new();
    }
    let (mut workers, mut found) = (usual.workers, Vec::new());
    loop {
        let least = Plan { workers, ..usual.clone() }.least_buffers(request.is_differential());
        found.push(Knobs { buffer_count: Some(least), workers: Some(workers), ..asked.clone() });
        let fewer = asked.workers.unwrap_or(workers.div_ceil(2));
        if fewer == workers {
            return found;
        }
        workers = fewer;
    }
}

/// Reports the memory of the plan, and refuses it if there is not enough.
fn claim(request: &Request, plan: &Plan, per_family: u64, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let part_bytes = request.part_bytes(plan, per_family, &conduct.stores)?;
    report.pool = PoolReport {
        buffer_count: plan.buffer_count() as u64,
        max_transfer_size: plan.transfer_size.into(),
        bytes: plan.pool_bytes(),
        codec_bytes: plan.codec_bytes,
        part_bytes,
    };
    resources::check_memory(plan.pool_bytes(), plan.buffer_count(), plan.transfer_size, plan.codec_bytes + part_bytes)
}
