mod accumulates;
mod behaviour;
mod endings;
mod job;
mod memory;
mod nonsense;
mod operations;
mod programs;
