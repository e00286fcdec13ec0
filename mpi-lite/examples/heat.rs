//! Heat spreads over a plate: each rank has a rectangle of it, and exchanges its border with its neighbours at every step.
//!
//! `cargo build --release --example heat -p sidelane-mpi`, and then `sidelane run -n 4 target/release/examples/heat`. The sum that
//! is printed does not depend on the number of ranks.

use sidelane_mpi::comm::cartesian::{Side, dims_create};
use sidelane_mpi::comm::{Communicator, ErrorClass, Topology};
use sidelane_mpi::op::Op;
use sidelane_mpi::world::{self, WorldError};

fn main() -> Result<(), WorldError> {
    world::run_or_abort(heat)
}

/// Points along each side of the plate.
const POINTS: usize = 240;
const STEPS: usize = 400;

/// A rank's rectangle, with a border of what its neighbours have.
struct Part {
    rows: usize,
    columns: usize,
    points: Vec<f64>,
}

/// Rank 0 says how much heat there is in the end.
pub fn heat(comm: &Communicator) -> Result<(), ErrorClass> {
    let mut sizes = [0, 0];
    dims_create(comm.size(), &mut sizes).expect("any number of ranks makes a grid");
    let sides = sizes.map(|size| Side { size, periodic: false });
    let grid = comm.cartesian(&sides)?.expect("the grid has all ranks");
    let Topology::Cartesian(cartesian) = grid.topology() else { unreachable!("it was made as one") };
    let place = cartesian.coordinates(grid.rank());
    let mut part = Part::new(place[0] as usize, place[1] as usize, sizes.map(|size| size as usize));
    let (above, below) = cartesian.shift(grid.rank(), 0, 1);
    let (left, right) = cartesian.shift(grid.rank(), 1, 1);

    for _ in 0..STEPS {
        let (rows, columns) = (part.rows, part.columns);
        let (first_row, last_row) = (part.row(1), part.row(rows));
        let (first_column, last_column) = (part.column(1), part.column(columns));
        let (mut from_above, mut from_below) = (part.row(0), part.row(rows + 1));
        let (mut from_left, mut from_right) = (part.column(0), part.column(columns + 1));
        // All eight at once. Beyond the plate's edge there is nobody, and the border stays as it is.
        grid.scope(|scope| {
            scope.recv(&mut from_above, above, 0)?;
            scope.recv(&mut from_below, below, 1)?;
            scope.recv(&mut from_left, left, 2)?;
            scope.recv(&mut from_right, right, 3)?;
            scope.send(&last_row, below, 0)?;
            scope.send(&first_row, above, 1)?;
            scope.send(&last_column, right, 2)?;
            scope.send(&first_column, left, 3)?;
            Ok(())
        })?;
        part.set_row(0, &from_above);
        part.set_row(rows + 1, &from_below);
        part.set_column(0, &from_left);
        part.set_column(columns + 1, &from_right);
        part.step();
    }

    let mut sum = [part.sum()];
    grid.allreduce_in_place(&mut sum, &Op::Sum)?;
    if grid.rank() == 0 {
        println!("{STEPS} steps on {} x {} ranks: {:.6} in all", sizes[0], sizes[1], sum[0]);
    }
    Ok(())
}

impl Part {
    /// The rectangle at this place of the grid; the plate's upper edge is hot.
    fn new(row: usize, column: usize, sizes: [usize; 2]) -> Self {
        let share = |index: usize, of: usize| (index + 1) * POINTS / of - index * POINTS / of;
        let (rows, columns) = (share(row, sizes[0]), share(column, sizes[1]));
        let mut part = Self { rows, columns, points: vec![0.0; (rows + 2) * (columns + 2)] };
        if row == 0 {
            part.set_row(0, &vec![1.0; columns + 2]);
        }
        part
    }

    fn row(&self, row: usize) -> Vec<f64> {
        let width = self.columns + 2;
        self.points[row * width..(row + 1) * width].to_vec()
    }

    fn set_row(&mut self, row: usize, points: &[f64]) {
        let width = self.columns + 2;
        self.points[row * width..(row + 1) * width].copy_from_slice(points);
    }

    fn column(&self, column: usize) -> Vec<f64> {
        (0..self.rows + 2).map(|row| self.points[row * (self.columns + 2) + column]).collect()
    }

    /// But its ends, which are no neighbour's of ours: corners come with rows.
    fn set_column(&mut self, column: usize, points: &[f64]) {
        for (row, point) in points.iter().enumerate().take(self.rows + 1).skip(1) {
            self.points[row * (self.columns + 2) + column] = *point;
        }
    }

    /// Each point becomes the mean of its neighbours.
    fn step(&mut self) {
        let width = self.columns + 2;
        let old = self.points.clone();
        for row in 1..=self.rows {
            for column in 1..=self.columns {
                let at = row * width + column;
                self.points[at] = (old[at - width] + old[at + width] + old[at - 1] + old[at + 1]) / 4.0;
            }
        }
    }

    fn sum(&self) -> f64 {
        let width = self.columns + 2;
        (1..=self.rows).map(|row| self.points[row * width + 1..][..self.columns].iter().sum::<f64>()).sum()
    }
}
