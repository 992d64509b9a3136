//! Layers of a restore: blocks of a layer pass when all families have reached it and all lower layers are written.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Result;
use crate::halt::Halt;
use crate::media::{Flaw, broken};

/// How often a parser that waits looks whether the job has ended.
const TICK: Duration = Duration::from_millis(100);

/// The layer under way, the parsers that wait for a higher one, and what of the layer is not written yet.
pub(super) struct Layers {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    layer: u16,
    in_flight: usize,
    /// Parsers that have not reached the end of their families.
    parsers: usize,
    /// How many of them wait for each layer.
    waiting: BTreeMap<u16, usize>,
}

/// A block on its way to the target; dropped when the last of its bytes is there.
pub(super) struct Admitted(Arc<Layers>);

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.in_flight -= 1;
        if state.in_flight == 0 {
            self.0.changed.notify_all();
        }
    }
}

/// A parser among those that must reach a layer before it begins; when it is dropped, it has ended.
pub(super) struct Member(Arc<Layers>);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.lock().parsers -= 1;
        self.0.changed.notify_all();
    }
}

impl Layers {
    /// For the parsers of so many families.
    pub fn new(parsers: usize) -> (Arc<Self>, Vec<Member>) {
        let state = State { layer: 0, in_flight: 0, parsers, waiting: BTreeMap::new() };
        let layers = Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() });
        let members = (0..parsers).map(|_| Member(Arc::clone(&layers))).collect();
        (layers, members)
    }

    /// Lets a block of `layer` through, as soon as its layer is under way.
    ///
    /// # Errors
    /// A flaw when the family goes back to a lower layer; an error when the job ends meanwhile.
    pub fn admit(self: &Arc<Self>, layer: u16, halt: &Halt) -> Result<Result<Admitted, Flaw>> {
        let mut state = self.lock();
        if layer < state.layer {
            return Ok(Err(broken(format!("a block of layer {layer} comes after layer {}", state.layer))));
        }
        if layer > state.layer {
            *state.waiting.entry(layer).or_default() += 1;
            state = self.wait_for(layer, state, halt)?;
        }
        state.in_flight += 1;
        Ok(Ok(Admitted(Arc::clone(self))))
    }

    /// Checks that layer 0 is under way.
    ///
    /// # Errors
    /// A higher layer has begun.
    pub fn check_lowest(&self) -> Result<(), Flaw> {
        match self.lock().layer {
            0 => Ok(()),
            layer => Err(broken(format!("a block of layer 0 comes after layer {layer}"))),
        }
    }

    fn wait_for<'a>(&self, layer: u16, mut state: MutexGuard<'a, State>, halt: &Halt) -> Result<MutexGuard<'a, State>> {
        loop {
            let all_wait = state.waiting.values().sum::<usize>() == state.parsers;
            if let (true, 0, Some((&next, _))) = (all_wait, state.in_flight, state.waiting.first_key_value()) {
                state.layer = next;
                state.waiting.remove(&next);
                self.changed.notify_all();
            }
            if state.layer == layer {
                return Ok(state);
            }
            state = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
            halt.check()?;
        }
    }

    /// Parsers that have not ended, and those of them that wait for a layer.
    pub fn parsers(&self) -> (usize, usize) {
        let state = self.lock();
        (state.parsers, state.waiting.values().sum())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_layer_begins_when_all_families_have_come_to_it_and_all_below_is_written() {
        let (layers, mut members) = Layers::new(2);
        let halt = Halt::new();
        let order = Mutex::new(Vec::new());
        let say = |what: &'static str| order.lock().unwrap().push(what);
        std::thread::scope(|scope| {
            let second = members.pop().unwrap();
            scope.spawn(|| {
                let _second = second;
                let below = layers.admit(0, &halt).unwrap().unwrap();
                let slow = scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(30));
                    say("written");
                    drop(below);
                });
                slow.join().unwrap();
                drop(layers.admit(2, &halt).unwrap().unwrap());
            });
            let _first = members.pop().unwrap();
            let admitted = layers.admit(2, &halt).unwrap().unwrap();
            say("next layer");
            drop(admitted);
        });
        assert_eq!(*order.lock().unwrap(), ["written", "next layer"]);
    }

    #[test]
    fn a_family_that_ends_below_a_layer_holds_nobody_up_and_none_goes_back() {
        let (layers, mut members) = Layers::new(2);
        let halt = Halt::new();
        drop(members.pop());
        drop(layers.admit(3, &halt).unwrap().unwrap());
        assert!(layers.admit(1, &halt).unwrap().is_err());
    }

    #[test]
    fn a_parser_that_waits_ends_with_the_job() {
        let (layers, _members) = Layers::new(2);
        let halt = Halt::new();
        halt.stop(crate::error::Error::Halted);
        assert!(layers.admit(1, &halt).is_err());
    }
}
