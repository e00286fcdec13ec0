mod behaviour;
mod job;
mod programs;
