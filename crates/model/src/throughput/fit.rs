//! Parameters from observed times: robust least squares of logarithms, deterministic and bounded (`docs/MODEL.md` §7).

use super::linear::Matrix;

/// Residuals beyond this many spreads get no more weight: Huber's constant, 95 % efficiency on clean data (Huber,
/// 1964).
const HUBER: f64 = 1.345;
/// Median absolute deviation to standard deviation, of a normal distribution.
const MEDIAN_TO_DEVIATION: f64 = 1.4826;
/// P90 of a standard normal distribution.
const P90_OF_NORMAL: f64 = 1.2816;
/// Spread of two equal measurements, logarithm: smaller residuals count as equal.
const REPEATED: f64 = 0.01;
/// Step of a derivative, logarithm: far above rounding, far below the measured differences.
const STEP: f64 = 1e-4;
/// The most steps; a fit of ten parameters takes 10 to 40.
const MOST_STEPS: usize = 50;
/// The most times that residuals are weighed again.
const MOST_SPREADS: usize = 20;
/// A step that moves no logarithm by more than this is the last.
const SETTLED: f64 = 1e-4;
/// The number of tried values of a parameter before the descent, evenly between the logarithms of its bounds; and the
/// rounds of all parameters. If another ceiling is the limit, a parameter changes nothing, and its derivative is
/// useless.
const PLACES: usize = 12;
const ROUNDS: usize = 3;
/// Searches: the first from the caller's start, the others from random values within the bounds. One search can be
/// stuck if two parameters must move together.
const SEARCHES: usize = 3;
/// The seed of the other searches: the same question has the same answer.
const SEED: u64 = 6;
/// Damping at the start, its factor after a step, and the value at which no direction is left (Marquardt, 1963).
const DAMPING: f64 = 1e-2;
const DAMPING_FACTOR: f64 = 4.0;
const MOST_DAMPING: f64 = 1e9;

/// A parameter that is fitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Free {
    /// Its name with its unit, for tables.
    pub name: String,
    /// Its start value, above 0.
    pub start: f64,
    /// Its least value.
    pub low: f64,
    /// Its greatest value.
    pub high: f64,
    /// Standard deviation of ln(value / start), if known before the fit: 0.3 is about ± 30 %.
    pub width: Option<f64>,
}

impl Free {
    /// From `start`, at most a factor of 100 away, with unknown deviation.
    pub fn new(name: impl Into<String>, start: f64) -> Self {
        Self { name: name.into(), start, low: start / 100.0, high: start * 100.0, width: None }
    }

    /// Known within this deviation, as a logarithm.
    pub fn within(self, width: f64) -> Self {
        Self { width: Some(width), ..self }
    }

    /// Between these bounds.
    pub fn bounded(self, low: f64, high: f64) -> Self {
        Self { low, high, ..self }
    }
}

/// The result of a fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The parameters, in the given order.
    pub values: Vec<f64>,
    /// Standard deviation of the logarithm of each; infinite if no observation depends on it.
    pub deviations: Vec<f64>,
    /// ln(predicted / observed), in order.
    pub residuals: Vec<f64>,
    /// Standard deviation of the model itself, logarithm: its P10 to P90 holds four of five residuals.
    pub spread: f64,
}

/// Fits `free` so that `model` comes near `observed`, both in the same unit and above 0. The model must give as many
/// values as there are observations, for any values within the bounds. `None` means that it cannot predict a value; it
/// does not count.
///
/// `None` if there is nothing to fit: no observation, or values that are not above 0.
pub fn fit(free: &[Free], observed: &[f64], model: impl Fn(&[f64]) -> Vec<Option<f64>>) -> Option<Fit> {
    let usable = |value: f64| value > 0.0 && value.is_finite();
    let sound = |one: &Free| usable(one.low) && one.low <= one.start && one.start <= one.high && usable(one.high);
    if observed.is_empty() || !observed.iter().copied().all(usable) || !free.iter().all(sound) {
        return None;
    }
    let problem = Problem { free, observed, model };
    let mut at = problem.best();
    problem.put_back(&mut at);
    let residuals = problem.residuals(&at);
    let (curvature, _) = problem.normal_equations(&at, &residuals, spread(&residuals, free.len()));
    Some(Fit {
        deviations: deviations(&curvature, free.len()),
        values: at.iter().map(|value| value.exp()).collect(),
        spread: holding_four_of_five(&residuals, free.len()),
        residuals,
    })
}

/// Robust standard deviation, for `fitted` parameters widened by the degrees of freedom that they took.
fn spread(residuals: &[f64], fitted: usize) -> f64 {
    (size_at(residuals, 0.5) * MEDIAN_TO_DEVIATION * widened(residuals, fitted)).max(REPEATED)
}

/// The standard deviation with which P10 to P90 holds four of five residuals. It is greater than the robust one if
/// there are odd runs: they must not mislead a fit, but they will occur again.
fn holding_four_of_five(residuals: &[f64], fitted: usize) -> f64 {
    spread(residuals, fitted).max(size_at(residuals, 0.8) / P90_OF_NORMAL * widened(residuals, fitted))
}

/// The size that this share of the residuals does not exceed.
fn size_at(residuals: &[f64], share: f64) -> f64 {
    let mut sizes: Vec<f64> = residuals.iter().map(|one| one.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.get((sizes.len() as f64 * share) as usize).copied().unwrap_or(0.0)
}

/// Fitted parameters make residuals too small: this widens them.
fn widened(residuals: &[f64], fitted: usize) -> f64 {
    let free = residuals.len().saturating_sub(fitted).max(1) as f64;
    (residuals.len() as f64 / free).sqrt()
}

fn deviations(curvature: &Matrix, count: usize) -> Vec<f64> {
    // A parameter without influence has no curvature: a small value keeps the others solvable.
    let mut lifted = curvature.clone();
    for at in 0..count {
        lifted.add(at, at, f64::EPSILON.sqrt());
    }
    let inverse = lifted.inverse_diagonal().unwrap_or_else(|| vec![f64::INFINITY; count]);
    let unknown = |at: usize| curvature.at(at, at) <= f64::EPSILON;
    inverse.iter().enumerate().map(|(at, value)| if unknown(at) { f64::INFINITY } else { value.sqrt() }).collect()
}

struct Problem<'a, M> {
    free: &'a [Free],
    observed: &'a [f64],
    model: M,
}

impl<M: Fn(&[f64]) -> Vec<Option<f64>>> Problem<'_, M> {
    /// ln(predicted / observed); 0 without a prediction.
    fn residuals(&self, at: &[f64]) -> Vec<f64> {
        let values: Vec<f64> = at.iter().map(|value| value.exp()).collect();
        let predicted = (self.model)(&values);
        let residual = |(predicted, observed): (&Option<f64>, &f64)| {
            predicted.map_or(0.0, |predicted| (predicted / observed).ln()).clamp(-100.0, 100.0)
        };
        predicted.iter().zip(self.observed).map(residual).collect()
    }

    /// The minimised cost.
    fn cost(&self, at: &[f64], residuals: &[f64], spread: f64) -> f64 {
        let huber = |residual: &f64| {
            let size = (residual / spread).abs();
            if size <= HUBER { size * size } else { HUBER * (2.0 * size - HUBER) }
        };
        let known = |(one, at): (&Free, &f64)| one.width.map_or(0.0, |width| ((at - one.start.ln()) / width).powi(2));
        residuals.iter().map(huber).sum::<f64>() + self.free.iter().zip(at).map(known).sum::<f64>()
    }

    /// JᵀWJ and −JᵀWr, both with the prior knowledge.
    fn normal_equations(&self, at: &[f64], residuals: &[f64], spread: f64) -> (Matrix, Vec<f64>) {
        let count = self.free.len();
        let columns: Vec<Vec<f64>> = (0..count)
            .map(|parameter| {
                let shifted = |by: f64| {
                    let mut moved = at.to_vec();
                    moved[parameter] += by;
                    self.residuals(&moved)
                };
                shifted(STEP).iter().zip(shifted(-STEP)).map(|(above, below)| (above - below) / (2.0 * STEP)).collect()
            })
            .collect();
        let weight = |residual: f64| (HUBER * spread / residual.abs()).min(1.0) / spread.powi(2);
        let (mut matrix, mut right) = (Matrix::zero(count), vec![0.0; count]);
        for (observation, residual) in residuals.iter().enumerate() {
            let weight = weight(*residual);
            for row in 0..count {
                right[row] -= weight * columns[row][observation] * residual;
                for column in 0..count {
                    matrix.add(row, column, weight * columns[row][observation] * columns[column][observation]);
                }
            }
        }
        for (row, one) in self.free.iter().enumerate() {
            if let Some(width) = one.width {
                matrix.add(row, row, 1.0 / width.powi(2));
                right[row] -= (at[row] - one.start.ln()) / width.powi(2);
            }
        }
        (matrix, right)
    }

    /// Absolute residuals, so that an odd observation has little weight, and the prior knowledge.
    fn rough_cost(&self, at: &[f64]) -> f64 {
        let known = |(one, at): (&Free, &f64)| {
            one.width.map_or(0.0, |width| REPEATED * ((at - one.start.ln()) / width).powi(2))
        };
        self.residuals(at).iter().map(|one| one.abs()).sum::<f64>() + self.free.iter().zip(at).map(known).sum::<f64>()
    }

    /// The best of the descents from some searches.
    fn best(&self) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut from: Vec<f64> = self.free.iter().map(|one| one.start.ln()).collect();
        let (mut best, mut lowest) = (from.clone(), f64::INFINITY);
        for _ in 0..SEARCHES {
            let found = self.settle(self.search(from));
            let cost = self.rough_cost(&found);
            if cost < lowest * (1.0 - REPEATED) {
                (best, lowest) = (found, cost);
            }
            from = self.free.iter().map(|one| one.low.ln() + random.f64() * (one.high / one.low).ln()).collect();
        }
        best
    }

    /// Iterates: the spread weighs residuals, and residuals give the spread.
    fn settle(&self, start: Vec<f64>) -> Vec<f64> {
        let (mut at, mut last) = (start, f64::INFINITY);
        for _ in 0..MOST_SPREADS {
            let spread = spread(&self.residuals(&at), 0);
            if (spread / last - 1.0).abs() < REPEATED {
                break;
            }
            at = self.descend(at, spread);
            last = spread;
        }
        at
    }

    /// Sets one parameter after the other to the best of its tried values.
    fn search(&self, start: Vec<f64>) -> Vec<f64> {
        let (mut lowest, mut best) = (self.rough_cost(&start), start);
        for _ in 0..ROUNDS {
            let before = lowest;
            for (parameter, one) in self.free.iter().enumerate() {
                for place in 0..=PLACES {
                    let mut at = best.clone();
                    at[parameter] = one.low.ln() + (one.high / one.low).ln() * place as f64 / PLACES as f64;
                    let there = self.rough_cost(&at);
                    // Only if clearly lower: a parameter without influence stays at its start.
                    if there < lowest * (1.0 - REPEATED) {
                        (best, lowest) = (at, there);
                    }
                }
            }
            if lowest >= before {
                break;
            }
        }
        best
    }

    /// Resets parameters without influence to the caller's start.
    fn put_back(&self, at: &mut Vec<f64>) {
        for (parameter, one) in self.free.iter().enumerate() {
            let mut back = at.clone();
            back[parameter] = one.start.ln();
            if self.residuals(&back) == self.residuals(at) {
                *at = back;
            }
        }
    }

    fn descend(&self, start: Vec<f64>, spread: f64) -> Vec<f64> {
        let mut at = start;
        let mut damping = DAMPING;
        let mut residuals = self.residuals(&at);
        let mut cost = self.cost(&at, &residuals, spread);
        for _ in 0..MOST_STEPS {
            let (matrix, right) = self.normal_equations(&at, &residuals, spread);
            loop {
                let mut damped = matrix.clone();
                for row in 0..at.len() {
                    damped.add(row, row, damping * (1.0 + matrix.at(row, row)));
                }
                let step = damped.solve(&right).unwrap_or_else(|| vec![0.0; at.len()]);
                let bounded = |((at, step), one): ((&f64, &f64), &Free)| (at + step).clamp(one.low.ln(), one.high.ln());
                let next: Vec<f64> = at.iter().zip(&step).zip(self.free).map(bounded).collect();
                let moved = next.iter().zip(&at).map(|(next, at)| (next - at).abs()).fold(0.0, f64::max);
                let there = self.residuals(&next);
                let lower = self.cost(&next, &there, spread);
                if lower < cost {
                    (at, residuals, cost) = (next, there, lower);
                    damping /= DAMPING_FACTOR;
                    if moved < SETTLED {
                        return at;
                    }
                    break;
                }
                damping *= DAMPING_FACTOR;
                if moved < SETTLED || damping > MOST_DAMPING {
                    return at;
                }
            }
        }
        at
    }
}
