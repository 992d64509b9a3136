//! The plan: which sets the rules keep, which sets those need, and whether the rest may be deleted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use fullbore_core::media::SetKind;

use super::KeptSet;
use super::graph::Graph;
use super::policy::{Policy, Rule};
use super::reason::{Reason, short};
use crate::chain::{CLOCK_TOLERANCE, show_time};
use fullbore_core::units::counted;

/// How many sets a warning names.
const NAMED: usize = 5;

/// The decision about a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeepOrDelete {
    /// It stays, for these reasons: at least one.
    Keep(Vec<Reason>),
    /// No set needs it, and a newer chain is verified.
    Delete,
}

/// The decisions about all sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionPlan {
    /// One for each set, in the order in which they were given.
    pub decisions: Vec<KeepOrDelete>,
    /// Places of the sets to delete. A set comes before its base, so that a killed run leaves no chain without its
    /// full. Chain by chain, the oldest first.
    pub delete: Vec<usize>,
    /// Places of the sets whose verdicts allow the deletions: the verified chains that must stay, for each database
    /// with deletions.
    pub proof: Vec<usize>,
    /// Length of the deleted sets.
    pub bytes_freed: u64,
    /// Each database, by its name.
    pub databases: Vec<DatabasePlan>,
    /// What the user should look at.
    pub warnings: Vec<String>,
    /// Databases whose sets stay until a newer chain is verified.
    pub unverified: Vec<String>,
    /// What the user may want to know.
    pub notes: Vec<String>,
}

/// The same of one database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabasePlan {
    /// As in the sets.
    pub database: String,
    /// Sets that stay.
    pub kept: usize,
    /// Sets that go.
    pub deleted: usize,
    /// Length of these.
    pub bytes_freed: u64,
    /// The reason why none of its sets may be deleted although the policy would delete some: exit code 4.
    pub nothing_may_be_deleted: Option<String>,
}

impl RetentionPlan {
    /// A line for each database whose deletions are all refused, with the reason. The run then ends with exit code 4.
    pub fn refusals(&self) -> impl Iterator<Item = &str> {
        self.databases.iter().filter_map(|database| database.nothing_may_be_deleted.as_deref())
    }
}

/// Plans, `now` being microseconds since 1970 by the store's clock.
pub fn plan(sets: &[KeptSet], policy: &Policy, now: i64) -> RetentionPlan {
    let graph = Graph::new(sets, now);
    let mut databases: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, set) in sets.iter().enumerate() {
        databases.entry(&set.database).or_default().push(at);
    }
    let mut planner = Planner { reasons: vec![Vec::new(); sets.len()], notes: Vec::new(), graph, policy, now };
    planner.hold();
    for (name, members) in &mut databases {
        members.sort_unstable_by_key(|&at| Reverse(planner.graph.age(at)));
        planner.ask(name, members);
    }
    // The sets that have a reason, with all sets they need: also across databases, if media claim such a base.
    let wanted = planner.closure();
    let proofs: Vec<Proof> = databases.values().map(|members| planner.prove(members, &wanted)).collect();
    planner.need();
    planner.finish(&databases, &proofs)
}

struct Planner<'a> {
    graph: Graph<'a>,
    policy: &'a Policy,
    now: i64,
    reasons: Vec<Vec<Reason>>,
    notes: Vec<String>,
}

/// The verified chains of a database.
struct Proof {
    have: u32,
    /// Sets that stay only because nothing newer is verified.
    held: usize,
}

impl Planner<'_> {
    /// Reasons that each set has by itself.
    fn hold(&mut self) {
        for (at, set) in self.graph.sets.iter().enumerate() {
            let reasons = &mut self.reasons[at];
            reasons.extend(set.leased_by.clone().map(Reason::LeasedBy));
            reasons.extend(set.locked_until.filter(|&until| until > self.now).map(Reason::LockedUntil));
            reasons.extend(set.unfinished.then_some(Reason::Unfinished));
            reasons.extend(set.unknown.then_some(Reason::Unknown));
            let ahead = self.graph.lineage[at].time > self.now.saturating_add(CLOCK_TOLERANCE);
            reasons.extend(ahead.then_some(Reason::DatedInTheFuture));
            reasons.extend(self.graph.twice[at].then_some(Reason::Twice));
        }
    }

    /// The sets that the policy and the minimum of verified chains keep in one database. Its sets come newest first.
    fn ask(&mut self, name: &str, members: &[usize]) {
        for copy_only in [false, true] {
            // A damaged or incomplete set takes no place from a whole set, but it is not deleted early either.
            for if_whole in [false, true] {
                let counts = |at: &usize| {
                    let lineage = self.graph.lineage[*at];
                    self.graph.sets[*at].copy_only == copy_only && if if_whole { lineage.linked } else { lineage.whole }
                };
                let points: Vec<usize> = members.iter().copied().filter(counts).collect();
                self.give_places(&points, copy_only, if_whole);
            }
        }
        self.open_window(name, members);
        for (place, tip) in (1..).zip(self.verified_tips(members)) {
            self.reasons[tip].push(Reason::VerifiedChain { place, of: self.policy.min_verified_chains });
        }
    }

    /// The newest point of each of the newest periods, for each rule.
    fn give_places(&mut self, points: &[usize], copy_only: bool, if_whole: bool) {
        for (rule, of) in self.policy.places.into_iter().filter(|&(_, of)| of > 0) {
            let mut backups = HashSet::new();
            let (mut taken, mut last) = (0, None);
            for &at in points {
                let lineage = self.graph.lineage[at];
                let period = (rule != Rule::Last).then(|| rule.period(self.policy.day(lineage.time)));
                let is_new = if rule == Rule::Last { backups.insert(lineage.backup) } else { last != period };
                if !is_new {
                    continue;
                }
                if taken == of {
                    break;
                }
                (taken, last) = (taken + 1, period);
                if if_whole && lineage.whole {
                    continue;
                }
                let period = period.map(|period| period.to_string());
                self.reasons[at].push(Reason::Place { rule, place: taken, of, period, copy_only, if_whole });
            }
        }
    }

    /// All sets that are not older than the last whole full at or before the window's start. Without such a full: all
    /// sets.
    fn open_window(&mut self, name: &str, members: &[usize]) {
        let (Some(window), Some(start)) = (self.policy.window, self.policy.window_start(self.now)) else { return };
        let is_anchor = |at: &usize| {
            let (set, lineage) = (&self.graph.sets[*at], self.graph.lineage[*at]);
            set.kind == SetKind::Full && !set.copy_only && lineage.whole
        };
        let anchor = members.iter().copied().filter(is_anchor).find(|&at| self.graph.lineage[at].time <= start);
        if anchor.is_none() {
            let oldest = members.iter().copied().rfind(is_anchor);
            let from =
                oldest.map_or_else(|| "it has none".into(), |at| format!("the oldest is from {}", self.shown_time(at)));
            self.notes.push(format!(
                "the recovery window of {name} is not covered yet: it needs a complete full from {} or before; {from}",
                show_time(start)
            ));
        }
        let from = anchor.map_or(i64::MIN, |at| self.graph.lineage[at].time);
        for &at in members.iter().filter(|&&at| self.graph.lineage[at].time >= from) {
            self.reasons[at].push(Reason::Window(window));
        }
    }

    /// The newest verified point of each of the newest verified fulls, as many as must stay.
    fn verified_tips(&self, members: &[usize]) -> Vec<usize> {
        let mut roots = HashSet::new();
        let proven = |at: &usize| self.graph.lineage[*at].verified && !self.graph.sets[*at].copy_only;
        let newest_first = members.iter().copied().filter(proven);
        let tips = newest_first.filter(|&at| roots.insert(self.graph.lineage[at].root));
        tips.take(self.policy.min_verified_chains as usize).collect()
    }

    /// For each set: does it have a reason, or does a set with a reason depend on it?
    fn closure(&self) -> Vec<bool> {
        let mut kept: Vec<bool> = self.reasons.iter().map(|reasons| !reasons.is_empty()).collect();
        for start in 0..kept.len() {
            let mut at = self.graph.base[start].filter(|_| kept[start]);
            while let Some(base) = at.filter(|&base| !kept[base]) {
                kept[base] = true;
                at = self.graph.base[base];
            }
        }
        kept
    }

    /// Keeps the sets that may not be deleted because no newer chain is verified.
    fn prove(&mut self, members: &[usize], wanted: &[bool]) -> Proof {
        let tips = self.verified_tips(members);
        let (have, need) = (tips.len() as u32, self.policy.min_verified_chains);
        let newest = tips.iter().map(|&tip| self.graph.lineage[tip].shows).max();
        let mut held = 0;
        for &at in members.iter().filter(|&&at| !wanted[at]) {
            let reason = if have < need {
                Reason::TooFewVerifiedChains { have, need }
            } else if newest.is_none_or(|newest| self.graph.lineage[at].time >= newest) {
                Reason::NoNewerVerifiedChain
            } else {
                continue;
            };
            self.reasons[at].push(reason);
            held += 1;
        }
        Proof { have, held }
    }

    /// Adds a reason to each base of kept sets: the set that needs it.
    fn need(&mut self) {
        let kept = self.closure();
        let mut needed: Vec<Option<(usize, usize)>> = vec![None; kept.len()];
        for (at, base) in self.graph.base.iter().enumerate().filter(|&(at, _)| kept[at]) {
            if let Some(base) = *base {
                needed[base] = Some(needed[base].map_or((at, 0), |(first, others)| (first, others + 1)));
            }
        }
        for (base, needed) in needed.into_iter().enumerate() {
            if let Some((at, others)) = needed {
                let set = &self.graph.sets[at];
                self.reasons[base].push(Reason::NeededBy { kind: set.kind, id: set.backup_set_id, others });
            }
        }
    }

    fn finish(mut self, databases: &BTreeMap<&str, Vec<usize>>, proofs: &[Proof]) -> RetentionPlan {
        let (warnings, mut unverified) = (self.doubts(), Vec::new());
        let mut plans = Vec::with_capacity(databases.len());
        for ((name, members), proof) in databases.iter().zip(proofs) {
            let gone = || members.iter().filter(|&&at| self.reasons[at].is_empty());
            let deleted = gone().count();
            plans.push(DatabasePlan {
                database: (*name).to_owned(),
                kept: members.len() - deleted,
                deleted,
                bytes_freed: gone().fold(0, |sum, &at| sum.saturating_add(self.graph.sets[at].bytes)),
                nothing_may_be_deleted: self.refusal(name, proof),
            });
            if proof.held > 0 && proof.have >= self.policy.min_verified_chains {
                unverified.push(format!(
                    "the policy removes {} of {name}, but nothing newer is verified: verify the newest chain first",
                    count(proof.held)
                ));
            }
        }
        let outlived = self.outlived();
        self.notes.extend(self.named("locked for a shorter time than the sets based on them", &|at| outlived[at]));
        let delete = self.order();
        let proof = self.proof(databases);
        let reasons = std::mem::take(&mut self.reasons);
        let fate =
            |reasons: Vec<Reason>| if reasons.is_empty() { KeepOrDelete::Delete } else { KeepOrDelete::Keep(reasons) };
        RetentionPlan {
            decisions: reasons.into_iter().map(fate).collect(),
            delete,
            proof,
            bytes_freed: plans.iter().fold(0, |sum, plan| sum.saturating_add(plan.bytes_freed)),
            databases: plans,
            warnings,
            unverified,
            notes: self.notes,
        }
    }

    /// The verified chains that allow deletions, with all sets below them.
    fn proof(&self, databases: &BTreeMap<&str, Vec<usize>>) -> Vec<usize> {
        let mut proof = BTreeSet::new();
        for members in databases.values().filter(|members| members.iter().any(|&at| self.reasons[at].is_empty())) {
            for tip in self.verified_tips(members) {
                let mut at = Some(tip);
                while let Some(next) = at.filter(|&next| proof.insert(next)) {
                    at = self.graph.base[next];
                }
            }
        }
        proof.into_iter().collect()
    }

    fn refusal(&self, name: &str, proof: &Proof) -> Option<String> {
        let need = self.policy.min_verified_chains;
        let why = match proof.have {
            have if have >= need || proof.held == 0 => return None,
            0 => "none of its chains is verified".to_owned(),
            have => format!("{have} of its chains verified, and {need} must stay"),
        };
        let held = count(proof.held);
        Some(format!("no set of {name} may be removed: {why}; after a good verification, {held} can be removed"))
    }

    /// Chain by chain, the oldest first. In a chain: the deepest first, logs before differentials, newer before older.
    fn order(&self) -> Vec<usize> {
        let mut delete: Vec<usize> = (0..self.reasons.len()).filter(|&at| self.reasons[at].is_empty()).collect();
        let rank = |kind| match kind {
            SetKind::Log => 0,
            SetKind::Differential => 1,
            SetKind::Full => 2,
        };
        delete.sort_by_cached_key(|&at| {
            let (set, lineage) = (&self.graph.sets[at], self.graph.lineage[at]);
            let root = (&self.graph.sets[lineage.root].database, self.graph.age(lineage.root), lineage.root);
            (root, Reverse(lineage.depth), rank(set.kind), Reverse(lineage.time))
        });
        delete
    }

    /// The faults of the given sets, by kind of fault.
    fn doubts(&self) -> Vec<String> {
        let orphan = |at: usize| {
            let set = &self.graph.sets[at];
            set.kind != SetKind::Full && !set.unfinished && !self.graph.twice[at] && self.graph.base[at].is_none()
        };
        let ring = |at: usize| {
            let root = self.graph.lineage[at].root;
            self.graph.sets[root].kind != SetKind::Full && self.graph.base[root].is_some() && root == at
        };
        let faults: [(&str, &dyn Fn(usize) -> bool); 6] = [
            ("damaged by the newest verdict", &|at| self.graph.sets[at].is_damaged()),
            ("incomplete: families are missing or damaged", &|at| {
                !self.graph.sets[at].complete && !self.graph.sets[at].unfinished
            }),
            ("without their base", &orphan),
            ("based on themselves", &ring),
            ("dated in the future, and kept", &|at| self.reasons[at].contains(&Reason::DatedInTheFuture)),
            ("found more than once, and kept", &|at| self.graph.twice[at]),
        ];
        faults.iter().filter_map(|(what, is_at_fault)| self.named(what, is_at_fault)).collect()
    }

    /// For each set: does its lock end before the lock of a set that depends on it? That set is then useless.
    fn outlived(&self) -> Vec<bool> {
        let lock = |at: usize| self.graph.sets[at].locked_until.filter(|&until| until > self.now);
        let mut above: Vec<Option<i64>> = vec![None; self.reasons.len()];
        let mut deepest_first: Vec<usize> = (0..above.len()).collect();
        deepest_first.sort_by_key(|&at| Reverse(self.graph.lineage[at].depth));
        for at in deepest_first {
            if let Some(base) = self.graph.base[at] {
                above[base] = above[base].max(above[at]).max(lock(at));
            }
        }
        above.into_iter().enumerate().map(|(at, above)| above > lock(at)).collect()
    }

    fn named(&self, what: &str, is_at_fault: &dyn Fn(usize) -> bool) -> Option<String> {
        let all: Vec<usize> = (0..self.graph.sets.len()).filter(|&at| is_at_fault(at)).collect();
        let shown: Vec<String> = all.iter().take(NAMED).map(|&at| self.title(at)).collect();
        let more = if all.len() > NAMED { format!(" and {} more", all.len() - NAMED) } else { String::new() };
        (!all.is_empty()).then(|| format!("{what}: {}{more}", shown.join(", ")))
    }

    fn title(&self, at: usize) -> String {
        let set = &self.graph.sets[at];
        format!("{} {} of {} from {}", set.kind, short(set.backup_set_id), set.database, show_time(set.time()))
    }

    fn shown_time(&self, at: usize) -> String {
        show_time(self.graph.lineage[at].time)
    }
}

fn count(sets: usize) -> String {
    counted(sets as u64, "set")
}
