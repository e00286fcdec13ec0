mod accumulates;
mod behaviour;
mod endings;
mod job;
mod operations;
mod programs;
