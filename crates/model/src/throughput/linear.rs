//! Small symmetric systems of equations, for a least-squares fit.

/// A square matrix, row by row.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    side: usize,
    cells: Vec<f64>,
}

impl Matrix {
    /// All zeroes.
    pub fn zero(side: usize) -> Self {
        Self { side, cells: vec![0.0; side * side] }
    }

    /// A cell.
    pub fn at(&self, row: usize, column: usize) -> f64 {
        self.cells[row * self.side + column]
    }

    /// Adds to a cell.
    pub fn add(&mut self, row: usize, column: usize, value: f64) {
        self.cells[row * self.side + column] += value;
    }

    /// The lower triangle L with L·Lᵀ = self; `None` if the matrix is not positive definite.
    fn cholesky(&self) -> Option<Self> {
        let mut lower = Self::zero(self.side);
        for row in 0..self.side {
            for column in 0..=row {
                let before: f64 = (0..column).map(|k| lower.at(row, k) * lower.at(column, k)).sum();
                let rest = self.at(row, column) - before;
                if row == column {
                    if !(rest > 0.0 && rest.is_finite()) {
                        return None;
                    }
                    lower.add(row, row, rest.sqrt());
                } else {
                    lower.add(row, column, rest / lower.at(column, column));
                }
            }
        }
        Some(lower)
    }

    /// x with self · x = right; `None` if the matrix is not positive definite.
    pub fn solve(&self, right: &[f64]) -> Option<Vec<f64>> {
        let lower = self.cholesky()?;
        let mut solution = right.to_vec();
        for row in 0..self.side {
            let before: f64 = (0..row).map(|k| lower.at(row, k) * solution[k]).sum();
            solution[row] = (solution[row] - before) / lower.at(row, row);
        }
        for row in (0..self.side).rev() {
            let behind: f64 = (row + 1..self.side).map(|k| lower.at(k, row) * solution[k]).sum();
            solution[row] = (solution[row] - behind) / lower.at(row, row);
        }
        Some(solution)
    }

    /// The diagonal of the inverse; `None` if the matrix is not positive definite.
    pub fn inverse_diagonal(&self) -> Option<Vec<f64>> {
        (0..self.side)
            .map(|at| {
                let unit: Vec<f64> = (0..self.side).map(|k| f64::from(u8::from(k == at))).collect();
                self.solve(&unit).map(|column| column[at])
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_solved_and_a_singular_one_refused() {
        let mut matrix = Matrix::zero(2);
        for (row, column, value) in [(0, 0, 4.0), (0, 1, 2.0), (1, 0, 2.0), (1, 1, 3.0)] {
            matrix.add(row, column, value);
        }
        let solution = matrix.solve(&[10.0, 9.0]).unwrap();
        assert!((solution[0] - 1.5).abs() < 1e-12 && (solution[1] - 2.0).abs() < 1e-12);
        assert!((matrix.inverse_diagonal().unwrap()[1] - 0.5).abs() < 1e-12);
        matrix.add(1, 1, -2.0);
        assert_eq!(matrix.solve(&[1.0, 1.0]), None);
    }
}
