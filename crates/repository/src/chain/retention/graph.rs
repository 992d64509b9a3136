//! The graph of sets and their bases. For each set: its effective time, its depth, and whether its chain is there,
//! whole and verified.

use std::collections::HashMap;

use fullbore_core::media::SetKind;

use super::KeptSet;
use crate::chain::CLOCK_TOLERANCE;

/// The sets, and the facts that follow from their edges.
pub(super) struct Graph<'a> {
    pub sets: &'a [KeptSet],
    /// The place of each set's base, if it is there. A full has no base, even if its header names one.
    pub base: Vec<Option<usize>>,
    pub lineage: Vec<Lineage>,
    /// Ids that were given more than once.
    pub twice: Vec<bool>,
}

/// The facts that a set inherits from the sets below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lineage {
    /// The latest time in its chain, itself included: a set is later than its base, whatever the clock said.
    pub time: i64,
    /// The latest beginning in its chain: every commit before it is in the set. A full that took hours is stored after
    /// log sets that began and ended while it ran, but shows less than they do.
    pub shows: i64,
    /// Steps to the end of its chain.
    pub depth: u32,
    /// The end of its chain: its full, if nothing is missing.
    pub root: usize,
    /// The full or differential: itself, or for a log set the one whose log it continues.
    pub backup: usize,
    /// An unbroken chain to a full of the same database, of committed sets without a tombstone.
    pub linked: bool,
    /// Linked, all families of the chain are there, and no set of it is known to be damaged: a restore point.
    pub whole: bool,
    /// Whole, and every set of the chain has passed a verification.
    pub verified: bool,
}

impl<'a> Graph<'a> {
    pub fn new(sets: &'a [KeptSet], now: i64) -> Self {
        let mut places = HashMap::with_capacity(sets.len());
        let mut twice = vec![false; sets.len()];
        for (at, set) in sets.iter().enumerate() {
            if let Some(&first) = places.get(&set.backup_set_id) {
                (twice[first], twice[at]) = (true, true);
            } else {
                places.insert(set.backup_set_id, at);
            }
        }
        // An id that was given twice names no set: both sets are kept, and sets based on them are not linked.
        let base_of = |set: &KeptSet| {
            let id = set.base.filter(|_| set.kind != SetKind::Full)?;
            places.get(&id).copied().filter(|&at| !twice[at])
        };
        let base = sets.iter().map(base_of).collect();
        let mut graph = Graph { sets, base, lineage: Vec::new(), twice };
        graph.lineage = graph.trace(now);
        graph
    }

    /// The order of restore points: later ones are greater. With equal times the deeper is later, and then the id
    /// decides.
    pub fn age(&self, at: usize) -> (i64, u32, uuid::Uuid) {
        (self.lineage[at].time, self.lineage[at].depth, self.sets[at].backup_set_id)
    }

    /// Walks each chain once, down to a full, to a missing base, or into a ring.
    fn trace(&self, now: i64) -> Vec<Lineage> {
        let mut known: Vec<Option<Lineage>> = vec![None; self.sets.len()];
        let mut on_the_way = vec![false; self.sets.len()];
        let mut way = Vec::new();
        for start in 0..self.sets.len() {
            let mut at = Some(start);
            while let Some(next) = at.filter(|&next| known[next].is_none() && !on_the_way[next]) {
                on_the_way[next] = true;
                way.push(next);
                at = self.base[next];
            }
            if let Some(back) = at.filter(|&back| known[back].is_none()) {
                let ring = way.split_off(way.iter().position(|&at| at == back).unwrap_or(way.len()));
                let lineage = self.ring(&ring);
                ring.iter().for_each(|&at| known[at] = Some(lineage));
            }
            while let Some(last) = way.pop() {
                let below = self.base[last].and_then(|base| Some((base, known[base]?)));
                known[last] = Some(self.inherit(last, below, now));
            }
        }
        known.into_iter().flatten().collect()
    }

    /// Sets that are based on each other: all of them get the same lineage, wherever the walk entered the ring.
    fn ring(&self, members: &[usize]) -> Lineage {
        let root = members.iter().copied().min_by_key(|&at| self.sets[at].backup_set_id).unwrap_or_default();
        let time = members.iter().map(|&at| self.sets[at].time()).max().unwrap_or_default();
        let shows = i64::MIN;
        Lineage { time, shows, depth: 0, root, backup: root, linked: false, whole: false, verified: false }
    }

    fn inherit(&self, at: usize, below: Option<(usize, Lineage)>, now: i64) -> Lineage {
        let set = &self.sets[at];
        let own_time = set.time();
        let time = below.map_or(own_time, |(_, below)| below.time.max(own_time));
        let begun = set.started_at.min(own_time);
        let shows = below.map_or(begun, |(_, below)| below.shows.max(begun));
        let stands = match (set.kind, below) {
            (SetKind::Full, _) => true,
            (_, None) => false,
            (SetKind::Differential, Some((base, below))) => {
                below.linked && self.sets[base].kind == SetKind::Full && self.sets[base].database == set.database
            }
            (SetKind::Log, Some((base, below))) => below.linked && self.sets[base].database == set.database,
        };
        let trusted = time <= now.saturating_add(CLOCK_TOLERANCE) && !self.twice[at];
        let linked = stands && trusted && !set.unfinished && !set.tombstoned;
        let whole = linked && set.complete && !set.is_damaged() && below.is_none_or(|(_, below)| below.whole);
        // A verdict from the future proves nothing: its clock was ahead.
        let passed = set.verified_at.is_some_and(|passed| passed <= now.saturating_add(CLOCK_TOLERANCE));
        Lineage {
            time,
            shows,
            depth: below.map_or(0, |(_, below)| below.depth.saturating_add(1)),
            root: below.map_or(at, |(_, below)| below.root),
            backup: below.filter(|_| set.kind == SetKind::Log).map_or(at, |(_, below)| below.backup),
            linked,
            whole,
            verified: whole && passed && below.is_none_or(|(_, below)| below.verified),
        }
    }
}
