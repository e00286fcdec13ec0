//! Agreements with crashes at every step: their states alone, whatever order things happen in; and devices over the simulated fabric.

mod agreement;
mod devices;
