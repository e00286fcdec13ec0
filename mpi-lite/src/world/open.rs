//! Opens what is planned.

use sidelane_nic::spec::{OpenError, Spec};
use sidelane_nic::{uring, xdp};

use super::WorldError;
use super::plan::Plan;
use crate::adi::{Config, Port};

/// The ports of a device: for this host first.
pub fn all(plan: &Plan, config: &Config) -> Result<Vec<Port>, WorldError> {
    let on_this_host = config.on_this_host();
    let on_host = plan.on_host.iter().map(|spec| one(spec.clone(), &on_this_host));
    on_host.chain(plan.off_host.iter().map(|spec| one(spec.clone(), config))).collect()
}

/// Another job may have an endpoint of an interface that we count on: then the next one will do.
fn one(mut spec: Spec, config: &Config) -> Result<Port, WorldError> {
    for _ in 0..TRIES_MAX {
        match Port::open(&spec, config) {
            Ok(port) => return Ok(port),
            Err(error) if is_taken(&error) && step(&mut spec) => {}
            Err(error) => return Err(WorldError::Open { spec: spec.to_string(), error }),
        }
    }
    Port::open(&spec, config).map_err(|error| WorldError::Open { spec: spec.to_string(), error })
}

fn is_taken(error: &OpenError) -> bool {
    matches!(
        error,
        OpenError::Uring(uring::OpenError::EndpointTaken { .. }) | OpenError::Xdp(xdp::OpenError::EndpointTaken { .. })
    )
}

/// The next endpoint; false where there is none.
fn step(spec: &mut Spec) -> bool {
    let (Spec::Uring { endpoint, .. } | Spec::Xdp { endpoint, .. }) = spec else { return false };
    *endpoint = endpoint.wrapping_add(1);
    true
}

/// More processes than one host runs.
const TRIES_MAX: usize = 4096;
