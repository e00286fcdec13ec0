//! Names and attributes of windows (MPI-4.1 7.7.3 and 7.8).

use crate::attribute::{Keyval, Value};
use crate::error::ErrorClass;

use super::Window;

impl Window {
    /// Its name, empty until it is set.
    pub fn name(&self) -> String {
        self.name.get()
    }

    /// Sets its name, here only.
    pub fn set_name(&self, name: &str) {
        self.name.set(name);
    }

    /// What is stored under a key. Windows have no duplicates, so nothing is ever copied.
    pub fn attribute(&self, key: &Keyval<Self>) -> Option<Value> {
        self.attributes.get(key)
    }

    /// Stores a value, after the old one was deleted.
    pub fn set_attribute(&self, key: &Keyval<Self>, value: Value) -> Result<(), ErrorClass> {
        self.attributes.set(self, key, value)
    }

    /// Takes a value out; returns whether there was one.
    pub fn delete_attribute(&self, key: &Keyval<Self>) -> Result<bool, ErrorClass> {
        self.attributes.delete(self, key)
    }

    /// Deletes all, which comes before [`Self::free`]: callbacks may communicate, and so are called while nobody has the device. Ends at the
    /// first error, and keeps the rest.
    pub fn delete_attributes(&self) -> Result<(), ErrorClass> {
        self.attributes.clear(self)
    }
}
