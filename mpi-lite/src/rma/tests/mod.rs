mod accumulates;
mod behaviour;
mod endings;
mod job;
mod nonsense;
mod operations;
mod programs;
