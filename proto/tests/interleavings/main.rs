//! What an engine's thread tells the application's, in every interleaving. Without loom there is nothing here: the parts are those of
//! the library, which under loom is empty, since what it stands on has only what loom's models are of.
#![cfg(loom)]

#[path = "../../src/engine/done.rs"]
mod done;
#[path = "../../src/engine/life.rs"]
mod life;
mod models;
