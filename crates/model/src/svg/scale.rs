//! Scales: from values to places on an axis.

/// Values from 0 to a round number, in round steps.
pub(super) struct Linear {
    step: f64,
    steps: f64,
}

impl Linear {
    /// The scale ends at `most` or above it, after two to five steps.
    pub(super) fn up_to(most: f64) -> Self {
        let most = if most.is_finite() && most > 0.0 { most.max(1e-9) } else { 1.0 };
        let rough = most / 4.0;
        let power = 10_f64.powf(rough.log10().floor());
        // 1e-9: a product of rounded numbers may miss the number by its last digit.
        let round = [1.0, 2.0, 5.0].map(|step| step * power).into_iter().find(|step| *step >= rough * (1.0 - 1e-9));
        let step = round.unwrap_or(10.0 * power);
        Self { step, steps: (most / step - 1e-9).ceil().max(1.0) }
    }

    /// The values of the steps, with the text of each.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let digits = (-(self.step * (1.0 + 1e-9)).log10().floor()).max(0.0) as usize;
        let value = |number: u32| f64::from(number) * self.step;
        (0..=self.steps as u32).map(|number| (value(number), format!("{:.digits$}", value(number)))).collect()
    }

    /// The share of the axis up to a value, 0…1.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = value / (self.step * self.steps);
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Values from the least to the greatest, above 0: a doubling has the same length everywhere.
pub(super) struct Logarithmic {
    least: f64,
    span: f64,
}

impl Logarithmic {
    pub(super) fn over(values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = values
            .map(|value| value.max(1e-9))
            .fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
        Self { least, span: (most / least).ln() }
    }

    /// The share of the axis up to a value, 0…1; the middle if all values are equal.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = (value.max(1e-9) / self.least).ln() / self.span;
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.5 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_ends_at_a_round_number_above_everything_after_a_few_steps() {
        for (most, ticks) in [
            (0.0, vec!["0.0", "0.5", "1.0"]),
            (950.0, vec!["0", "500", "1000"]),
            (1_000.0, vec!["0", "500", "1000"]),
            (1_210.0, vec!["0", "500", "1000", "1500"]),
            (0.7, vec!["0.0", "0.2", "0.4", "0.6", "0.8"]),
            (f64::NAN, vec!["0.0", "0.5", "1.0"]),
        ] {
            let texts: Vec<String> = Linear::up_to(most).ticks().into_iter().map(|(_, text)| text).collect();
            assert_eq!(texts, ticks, "{most}");
        }
        for most in [1e-9, 0.3, 99.9, 100.1, 7e12] {
            let scale = Linear::up_to(most);
            let ticks = scale.ticks();
            assert!((3..=6).contains(&ticks.len()) && ticks[ticks.len() - 1].0 >= most * 0.999, "{most}: {ticks:?}");
            assert!((0.5..=1.0).contains(&scale.share(most)), "{most}");
        }
    }

    #[test]
    fn a_doubling_has_the_same_length_everywhere_and_one_value_is_in_the_middle() {
        let scale = Logarithmic::over([1.0, 2.0, 4.0, 16.0].into_iter());
        let shares = [1.0, 2.0, 4.0, 16.0].map(|value| (scale.share(value) * 100.0).round());
        assert_eq!(shares, [0.0, 25.0, 50.0, 100.0]);
        assert_eq!(Logarithmic::over([8.0, 8.0].into_iter()).share(8.0), 0.5);
        assert_eq!(Logarithmic::over(std::iter::empty()).share(8.0), 0.5);
    }
}
