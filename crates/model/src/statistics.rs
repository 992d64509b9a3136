//! Summary figures of many measurements.

/// The median; with an even number of values, the mean of the middle two. `None` without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some((sorted[last / 2] + sorted[sorted.len() / 2]) / 2.0)
}

/// Standard error of `mean` over `values`, as a share of it; 1 if there is only one value, and so no scatter.
pub fn standard_error(values: &[f64], mean: f64) -> f64 {
    let count = values.len() as f64;
    if values.len() < 2 || mean <= 0.0 {
        return 1.0;
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    ((squares / (count - 1.0) / count).sqrt() / mean).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_value_in_the_middle() {
        let medians = [median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0, 2.0, 3.0]), median(Vec::new())];
        assert_eq!(medians, [Some(2.0), Some(2.5), None]);
    }

    #[test]
    fn the_error_of_a_mean_shrinks_with_the_number_of_values() {
        assert_eq!(standard_error(&[0.5], 0.5), 1.0);
        let few = standard_error(&[0.4, 0.6], 0.5);
        let many = standard_error(&[0.4, 0.6].repeat(50), 0.5);
        assert!(many < few / 5.0, "{many} of {few}");
    }
}
