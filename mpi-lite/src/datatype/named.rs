//! Names and attributes of datatypes (MPI-4.1 7.7.4 and 7.8).

use crate::attribute::{Keyval, Value};
use crate::error::ErrorClass;

use super::{Datatype, Made};

impl Datatype {
    /// Its name: that of the standard for a predefined one, else empty until it is set.
    pub fn name(&self) -> String {
        self.0.name.get()
    }

    /// Sets its name, here only.
    pub fn set_name(&self, name: &str) {
        self.0.name.set(name);
    }

    /// What is stored under a key.
    pub fn attribute(&self, key: &Keyval<Self>) -> Option<Value> {
        self.0.attributes.get(key)
    }

    /// Stores a value, after the old one was deleted.
    pub fn set_attribute(&self, key: &Keyval<Self>, value: Value) -> Result<(), ErrorClass> {
        self.0.attributes.set(self, key, value)
    }

    /// Takes a value out; returns whether there was one.
    pub fn delete_attribute(&self, key: &Keyval<Self>) -> Result<bool, ErrorClass> {
        self.0.attributes.delete(self, key)
    }

    /// The same type again, without a name, and with attributes as they are copied (`MPI_Type_dup`). If one is not, those copied so far are
    /// deleted, and there is no duplicate.
    pub fn dup(&self) -> Result<Self, ErrorClass> {
        let made = Made::Dup { of: self.clone() };
        let dup = Self::new(self.0.map.clone(), made).map_err(|_too_deep| ErrorClass::Type)?;
        let (attributes, copied) = self.0.attributes.copied(self);
        if let Err(class) = copied {
            let _ = attributes.clear(self);
            return Err(class);
        }
        dup.0.attributes.begin_with(attributes);
        Ok(dup)
    }

    /// Gives it up: attributes are deleted. What was made of it, or is under way with it, goes on. `Type` of a predefined one.
    pub fn free(self) -> Result<(), ErrorClass> {
        if self.predefined().is_some() { Err(ErrorClass::Type) } else { self.0.attributes.clear(&self) }
    }
}
