//! A second, slow definition of a correct plan: reachability by trying, rules by their definition. At most 32 sets, one
//! bit for each.

use fullbore_core::media::SetKind;

use super::policy::{Period, Policy, Rule};
use super::{KeepOrDelete, KeptSet, RetentionPlan};

const TOLERANCE: i64 = 5 * 60 * 1_000_000;

/// A small world, by definition.
pub(super) struct Oracle<'a> {
    sets: &'a [KeptSet],
    now: i64,
    /// For each set: all sets that it needs, itself included.
    needs: Vec<u32>,
    /// The latest time of the sets that it needs.
    time: Vec<i64>,
    /// Its chain ends in a full of its database, and no set of it has a tombstone.
    linked: Vec<bool>,
}

impl<'a> Oracle<'a> {
    pub fn new(sets: &'a [KeptSet], now: i64) -> Self {
        assert!(sets.len() <= 32, "a bit for each set");
        let twice = |at: usize| sets.iter().filter(|set| set.backup_set_id == sets[at].backup_set_id).count() > 1;
        let same = |at: usize, base: usize| {
            sets[at].kind != SetKind::Full && sets[at].base == Some(sets[base].backup_set_id) && !twice(base)
        };
        let count = sets.len();
        let direct: Vec<u32> = (0..count)
            .map(|at| (0..count).filter(|&base| same(at, base)).fold(0, |all, base| all | 1 << base))
            .collect();
        // After one round for each set, nothing new can be reached.
        let mut needs: Vec<u32> = (0..count).map(|at| 1 << at).collect();
        for _ in 0..count {
            for at in 0..count {
                needs[at] |= bits(direct[at]).fold(0, |all, base| all | needs[base]);
            }
        }
        let time: Vec<i64> = needs.iter().map(|&all| bits(all).map(|at| sets[at].time()).max().unwrap_or(0)).collect();
        let stands = |at: usize| match sets[at].kind {
            SetKind::Full => true,
            kind => bits(direct[at]).any(|base| {
                sets[base].database == sets[at].database && (kind == SetKind::Log || sets[base].kind == SetKind::Full)
            }),
        };
        let is_ring = |at: usize| bits(direct[at]).any(|base| needs[base] & 1 << at != 0);
        let good = |at: usize| stands(at) && !is_ring(at) && !twice(at) && !sets[at].unfinished && !sets[at].tombstoned;
        let linked = (0..count).map(|at| time[at] <= now + TOLERANCE && bits(needs[at]).all(good)).collect();
        Oracle { sets, now, needs, time, linked }
    }

    fn intact(&self, at: usize) -> bool {
        let bad =
            self.sets[at].failed_at.is_some_and(|failed| self.sets[at].verified_at.is_none_or(|pass| pass <= failed));
        self.sets[at].complete && !bad
    }

    fn is_point(&self, at: usize) -> bool {
        self.linked[at] && bits(self.needs[at]).all(|at| self.intact(at))
    }

    fn is_verified(&self, at: usize) -> bool {
        let passed = |at: usize| self.sets[at].verified_at.is_some_and(|passed| passed <= self.now + TOLERANCE);
        self.is_point(at) && !self.sets[at].copy_only && bits(self.needs[at]).all(passed)
    }

    /// Every commit before this time is in the point: no set that it needs was begun later.
    fn shows(&self, at: usize) -> i64 {
        let begun = |at: usize| self.sets[at].started_at.min(self.sets[at].time());
        bits(self.needs[at]).map(begun).max().unwrap_or(i64::MIN)
    }

    /// True when `one` is a later point than `other`.
    fn later(&self, one: usize, other: usize) -> bool {
        let rank = |at: usize| (self.time[at], self.needs[at].count_ones(), self.sets[at].backup_set_id);
        rank(one) > rank(other)
    }

    /// The points among `candidates` that a rule keeps: the newest of its period, with fewer than `of` newer periods.
    fn asked_by(&self, rule: Rule, of: u32, candidates: &[usize], policy: &Policy) -> u32 {
        let period = |at: usize| match rule {
            Rule::Last => Err(self.backup_of(at)),
            rule => Ok(rule.period(policy.day(self.time[at]))),
        };
        let points: Vec<(usize, Result<Period, usize>)> = candidates.iter().map(|&at| (at, period(at))).collect();
        let is_newest = |point: &&(usize, Result<Period, usize>)| {
            points.iter().all(|other| other.1 != point.1 || !self.later(other.0, point.0))
        };
        let newest: Vec<usize> = points.iter().filter(is_newest).map(|point| point.0).collect();
        let newer = |at: usize| newest.iter().filter(|&&other| self.later(other, at)).count() as u32;
        newest.iter().filter(|&&at| newer(at) < of).fold(0, |all, &at| all | 1 << at)
    }

    /// The full or differential whose logs lead to a point.
    fn backup_of(&self, at: usize) -> usize {
        let no_log = bits(self.needs[at]).filter(|&at| self.sets[at].kind != SetKind::Log);
        no_log.max_by_key(|&at| self.needs[at].count_ones()).unwrap_or(at)
    }

    fn of_database(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.sets.len()).filter(move |&other| self.sets[other].database == self.sets[at].database)
    }

    /// The sets that stay because of the policy or of the set itself, with all that they need.
    fn demanded(&self, policy: &Policy) -> u32 {
        let start = policy.window_start(self.now);
        let by_itself = |at: usize| {
            let set = &self.sets[at];
            let same_id = self.sets.iter().filter(|other| other.backup_set_id == set.backup_set_id).count();
            let locked = set.locked_until.is_some_and(|until| until > self.now);
            let ahead = self.time[at] > self.now + TOLERANCE;
            let in_window = start.is_some_and(|start| self.in_window(at, start));
            same_id > 1 || locked || ahead || in_window || set.leased_by.is_some() || set.unfinished || set.unknown
        };
        let mut demanded = (0..self.sets.len()).filter(|&at| by_itself(at)).fold(0, |all, at| all | 1 << at);
        for at in self.one_of_each_database() {
            demanded |= self.newest_proofs(at, policy);
            for copy_only in [false, true] {
                let alike = |&other: &usize| self.sets[other].copy_only == copy_only;
                let whole: Vec<usize> = self.of_database(at).filter(alike).filter(|&at| self.is_point(at)).collect();
                let linked: Vec<usize> = self.of_database(at).filter(alike).filter(|&at| self.linked[at]).collect();
                for (rule, of) in policy.places.into_iter().filter(|&(_, of)| of > 0) {
                    demanded |= self.asked_by(rule, of, &whole, policy) | self.asked_by(rule, of, &linked, policy);
                }
            }
        }
        self.closed(demanded)
    }

    fn one_of_each_database(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.sets.len()).filter(|&at| self.of_database(at).next() == Some(at))
    }

    fn in_window(&self, at: usize, start: i64) -> bool {
        let anchors = self.of_database(at).filter(|&full| {
            let set = &self.sets[full];
            set.kind == SetKind::Full && !set.copy_only && self.is_point(full) && self.time[full] <= start
        });
        anchors.map(|full| self.time[full]).max().is_none_or(|from| self.time[at] >= from)
    }

    /// The newest verified points of the newest verified fulls in the database of `at`, as many as must stay.
    fn newest_proofs(&self, at: usize, policy: &Policy) -> u32 {
        let verified: Vec<usize> = self.of_database(at).filter(|&at| self.is_verified(at)).collect();
        let root = |at: usize| bits(self.needs[at]).find(|&at| self.sets[at].kind == SetKind::Full);
        let is_tip = |at: usize| verified.iter().all(|&other| root(other) != root(at) || !self.later(other, at));
        let tips: Vec<usize> = verified.iter().copied().filter(|&at| is_tip(at)).collect();
        let newer = |at: usize| tips.iter().filter(|&&other| self.later(other, at)).count() as u32;
        tips.iter().filter(|&&at| newer(at) < policy.min_verified_chains).fold(0, |all, &at| all | 1 << at)
    }

    fn closed(&self, sets: u32) -> u32 {
        bits(sets).fold(0, |all, at| all | self.needs[at])
    }

    /// All that must stay.
    pub fn kept(&self, policy: &Policy) -> u32 {
        let mut kept = self.demanded(policy);
        for one in self.one_of_each_database() {
            let proofs = self.newest_proofs(one, policy);
            let enough = proofs.count_ones() >= policy.min_verified_chains;
            let proved_newer = |at: usize| enough && bits(proofs).any(|proof| self.shows(proof) > self.time[at]);
            kept |= self.of_database(one).filter(|&at| !proved_newer(at)).fold(0, |all, at| all | 1 << at);
        }
        self.closed(kept)
    }

    /// Checks the two rules of the module, and that the plan does exactly what the policy asks for.
    pub fn check(&self, policy: &Policy, plan: &RetentionPlan) -> Result<(), String> {
        let decisions = plan.decisions.iter().enumerate();
        let kept = decisions.fold(0, |all, (at, fate)| if *fate == KeepOrDelete::Delete { all } else { all | 1 << at });
        // Rule 1: retention never removes a set that a kept restore point needs.
        if let Some(at) = bits(kept).find(|&at| self.needs[at] & !kept != 0) {
            return Err(format!("set {at} is kept without what it needs"));
        }
        // Rule 2: a set is deleted only when a newer chain of its database was verified, and this newer chain stays.
        for at in (0..self.sets.len()).filter(|&at| kept & 1 << at == 0) {
            let proof = |newer: &usize| {
                self.is_verified(*newer) && self.shows(*newer) > self.time[at] && self.needs[*newer] & !kept == 0
            };
            if !self.of_database(at).any(|other| proof(&other)) {
                return Err(format!("set {at} goes without a newer verified chain"));
            }
        }
        let expected = self.kept(policy);
        if kept != expected {
            return Err(format!("kept are {kept:b}, and should be {expected:b}"));
        }
        if plan.decisions.iter().any(|fate| matches!(fate, KeepOrDelete::Keep(reasons) if reasons.is_empty())) {
            return Err("a set is kept without a reason".into());
        }
        self.check_order(plan, kept)
    }

    /// After every deletion, each remaining set still has all sets below it.
    fn check_order(&self, plan: &RetentionPlan, kept: u32) -> Result<(), String> {
        let mut remaining = (0..self.sets.len()).fold(0_u32, |all, at| all | 1 << at);
        for &at in &plan.delete {
            if remaining & 1 << at == 0 {
                return Err(format!("set {at} is deleted twice"));
            }
            remaining &= !(1 << at);
            // In a ring, each set depends on each: no order is right, and there is nothing to save.
            let broken = |other: &usize| self.needs[*other] & 1 << at != 0 && self.needs[at] & 1 << *other == 0;
            if let Some(other) = bits(remaining).find(broken) {
                return Err(format!("set {at} is deleted before set {other}, which depends on it"));
            }
        }
        if remaining == kept { Ok(()) } else { Err("the order names other sets than the decisions".into()) }
    }
}

/// The places of the bits that are set.
fn bits(set: u32) -> impl Iterator<Item = usize> {
    let mut left = set;
    std::iter::from_fn(move || {
        let at = left.trailing_zeros();
        left &= left.wrapping_sub(1);
        (at < 32).then_some(at as usize)
    })
}
