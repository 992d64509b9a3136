//! The memory of all requests together. It is fixed at the start. A request that needs more than is left is refused at its
//! beginning, and never in the middle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that is left. A clone is the same budget.
#[derive(Clone)]
pub struct Budget {
    left: Arc<AtomicU64>,
    whole: u64,
}

/// Memory of a request. It goes back when this is dropped, also when the connection ends in the middle.
pub struct Lease {
    budget: Budget,
    bytes: u64,
}

impl Budget {
    /// So many bytes.
    pub fn new(bytes: u64) -> Self {
        Self { left: Arc::new(AtomicU64::new(bytes)), whole: bytes }
    }

    /// All of it.
    pub fn whole(&self) -> u64 {
        self.whole
    }

    /// Bytes that requests hold.
    #[cfg(feature = "testkit")]
    pub fn missing(&self) -> u64 {
        self.whole.saturating_sub(self.left.load(Ordering::Acquire))
    }

    /// Takes memory, if so much is left.
    pub fn take(&self, bytes: u64) -> Option<Lease> {
        let less = |left: u64| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).ok()?;
        Some(Lease { budget: self.clone(), bytes })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_budget_gives_nothing_until_a_lease_is_dropped() {
        let budget = Budget::new(10);
        let first = budget.take(6).unwrap();
        assert!(budget.take(5).is_none());
        let second = budget.take(4).unwrap();
        drop(first);
        assert!(budget.take(7).is_none());
        assert!(budget.take(6).is_some());
        drop(second);
        assert!(budget.take(10).is_some());
    }
}
