//! Published studies in our terms: one file each.

pub mod chang;
