//! The published tables against the model: parameters are fitted to a table without a part of it, and that part is predicted.

pub mod across;
pub mod buffers;
pub mod dbs;
pub mod rds;
pub mod report;
pub mod table;
pub mod words;

use fullbore_model::throughput::{Fit, Free, Interval, Limit, Prediction, factors, fit};

/// One published number.
pub struct Cell {
    /// What was configured.
    pub row: String,
    /// Which of the table's columns.
    pub column: &'static str,
    /// Cells of one group are left out together: those of the same configuration on other machines say almost the same.
    pub group: usize,
    /// Cells of one number are one prediction: the model knows no difference between their machines.
    pub job: usize,
    /// Seconds, as published or from the published rate.
    pub seconds: f64,
}

/// Values of the fitted parameters and a cell's place to what the model says.
pub type Predict = dyn Fn(&[f64], usize) -> Option<Prediction>;

/// A table with the parameters that are to explain it.
pub struct Study {
    /// For headings.
    pub title: &'static str,
    /// Where the numbers were published.
    pub source: &'static str,
    /// Seconds in the unit in which they were published, and its name.
    pub unit: (f64, &'static str),
    /// All numbers.
    pub cells: Vec<Cell>,
    /// What is fitted.
    pub free: Vec<Free>,
    /// The prediction of a cell under values of `free`.
    pub predict: Box<Predict>,
}

/// What is left out of a fit at a time.
#[derive(Clone, Copy, PartialEq)]
pub enum Leave {
    /// Nothing: what the parameters can explain at best.
    Nothing,
    /// The one number that is predicted.
    Cell,
    /// All numbers of its configuration.
    Row,
}

/// One number, published and predicted.
pub struct Outcome {
    /// Which cell of the study.
    pub cell: usize,
    /// Predicted seconds.
    pub seconds: f64,
    /// predicted / published − 1.
    pub error: f64,
    /// P10 to P90, seconds.
    pub interval: Interval,
    /// What the model holds to be the limit.
    pub limit: Limit,
}

impl Study {
    /// The same study with some parameters held at a value instead of fitted.
    pub fn holding(self, held: &[(usize, f64)]) -> Self {
        let held = held.to_vec();
        let is_held = |at: usize| held.iter().find(|(place, _)| *place == at).map(|(_, value)| *value);
        let places: Vec<Option<f64>> = (0..self.free.len()).map(is_held).collect();
        let free = self.free.iter().zip(&places).filter(|(_, held)| held.is_none()).map(|(free, _)| free.clone());
        let (free, predict) = (free.collect(), self.predict);
        let whole = move |values: &[f64], at: usize| {
            let mut fitted = values.iter();
            let all: Option<Vec<f64>> = places.iter().map(|held| held.or_else(|| fitted.next().copied())).collect();
            predict(&all?, at)
        };
        Self { free, predict: Box::new(whole), ..self }
    }

    /// The fit to the cells for which `taken` is true.
    pub fn fit_to(&self, taken: impl Fn(&Cell) -> bool) -> Option<Fit> {
        let chosen: Vec<usize> = (0..self.cells.len()).filter(|at| taken(&self.cells[*at])).collect();
        let observed: Vec<f64> = chosen.iter().map(|at| self.cells[*at].seconds).collect();
        // What was measured on two machines is one prediction.
        let first = |at: &usize| chosen.iter().position(|other| self.cells[*other].job == self.cells[*at].job);
        let firsts: Vec<usize> = chosen.iter().filter_map(first).collect();
        fit(&self.free, &observed, |values| {
            let mut seconds: Vec<Option<f64>> = Vec::with_capacity(chosen.len());
            for (place, at) in chosen.iter().enumerate() {
                let known = firsts[place];
                let foreseen =
                    if known < place { seconds[known] } else { (self.predict)(values, *at).map(|one| one.seconds) };
                seconds.push(foreseen);
            }
            seconds
        })
    }

    /// One cell under what was fitted.
    pub fn outcome(&self, fitted: &Fit, cell: usize) -> Option<Outcome> {
        let foreseen = (self.predict)(&fitted.values, cell)?;
        let error = foreseen.seconds / self.cells[cell].seconds - 1.0;
        let interval = self.interval(fitted, cell)?;
        Some(Outcome { cell, seconds: foreseen.seconds, error, interval, limit: foreseen.limit })
    }

    /// From the uncertainty of each parameter and of the model. Of what the fit was not told anything, all that its bounds allow is possible.
    fn interval(&self, fitted: &Fit, cell: usize) -> Option<Interval> {
        let at_most = |(free, deviation): (&Free, &f64)| deviation.min((free.high / free.low).ln() / 4.0);
        let mut deviations: Vec<f64> = self.free.iter().zip(&fitted.deviations).map(at_most).collect();
        deviations.push(fitted.spread);
        let sample = |factors: Vec<f64>| {
            let bounded = |(at, free): (usize, &Free)| (fitted.values[at] * factors[at]).clamp(free.low, free.high);
            let values: Vec<f64> = self.free.iter().enumerate().map(bounded).collect();
            (self.predict)(&values, cell).map(|foreseen| foreseen.seconds * factors[values.len()])
        };
        Interval::of(factors(&deviations).into_iter().filter_map(sample).collect())
    }

    /// Every cell, predicted from the others.
    pub fn leave_out(&self, leave: Leave) -> Vec<Outcome> {
        let mut known: Option<(usize, Fit)> = None;
        let one = |at: usize| {
            let key = match leave {
                Leave::Nothing => 0,
                Leave::Cell => at,
                Leave::Row => self.cells[at].group,
            };
            if known.as_ref().is_none_or(|(fitted, _)| *fitted != key) {
                let found = match leave {
                    Leave::Nothing => self.fit_to(|_| true),
                    Leave::Cell => self.fit_to(|cell| !std::ptr::eq(cell, &self.cells[at])),
                    Leave::Row => self.fit_to(|cell| cell.group != key),
                };
                known = found.map(|found| (key, found));
            }
            self.outcome(&known.as_ref()?.1, at)
        };
        (0..self.cells.len()).filter_map(one).collect()
    }
}

/// The median of absolute errors of the outcomes whose cell `counts`.
pub fn median_error(study: &Study, outcomes: &[Outcome], counts: impl Fn(&Cell) -> bool) -> f64 {
    let counted = outcomes.iter().filter(|outcome| counts(&study.cells[outcome.cell]));
    let mut errors: Vec<f64> = counted.map(|outcome| outcome.error.abs()).collect();
    errors.sort_by(f64::total_cmp);
    match errors.len() {
        0 => f64::NAN,
        even if even % 2 == 0 => (errors[even / 2 - 1] + errors[even / 2]) / 2.0,
        odd => errors[odd / 2],
    }
}

/// The share of outcomes whose interval holds what was published.
pub fn coverage(study: &Study, outcomes: &[Outcome]) -> f64 {
    let covered = outcomes.iter().filter(|outcome| outcome.interval.covers(study.cells[outcome.cell].seconds)).count();
    covered as f64 / outcomes.len() as f64
}
