//! Attributes: what a program hangs on communicators, windows and datatypes (MPI-4.1 7.7).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::ErrorClass;

/// What is stored under a key. Shared, since a copy may be the same value.
pub type Value = Arc<dyn Any + Send + Sync>;

/// Names an attribute on objects of type `O`. Clones are the same key.
///
/// It lives as long as anything has it, so that a key that was freed still deletes what is stored under it, as the standard
/// demands (MPI-4.1 7.7.2).
pub struct Keyval<O>(Arc<Callbacks<O>>);

struct Callbacks<O> {
    copy: Box<CopyFn<O>>,
    delete: Box<DeleteFn<O>>,
}

/// What becomes of a value when its object is duplicated; `None` is not copied. Gets the old object.
type CopyFn<O> = dyn Fn(&O, &Value) -> Result<Option<Value>, ErrorClass> + Send + Sync;
/// Called before a value is dropped or replaced. An error keeps it.
type DeleteFn<O> = dyn Fn(&O, &Value) -> Result<(), ErrorClass> + Send + Sync;

/// All attributes of one object.
pub struct Attributes<O>(Vec<(Keyval<O>, Value)>);

impl<O> Keyval<O> {
    /// A key whose values are copied and deleted so.
    pub fn new(
        copy: impl Fn(&O, &Value) -> Result<Option<Value>, ErrorClass> + Send + Sync + 'static,
        delete: impl Fn(&O, &Value) -> Result<(), ErrorClass> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Callbacks { copy: Box::new(copy), delete: Box::new(delete) }))
    }

    /// A key whose values stay with their object (`MPI_COMM_NULL_COPY_FN`).
    pub fn local() -> Self {
        Self::new(|_, _| Ok(None), |_, _| Ok(()))
    }

    /// A key whose values go along, the same (`MPI_COMM_DUP_FN`).
    pub fn shared() -> Self {
        Self::new(|_, value| Ok(Some(Arc::clone(value))), |_, _| Ok(()))
    }
}

impl<O> Attributes<O> {
    /// None.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The value under a key.
    pub fn get(&self, key: &Keyval<O>) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// Stores a value, after the old one was deleted.
    pub fn set(&mut self, object: &O, key: &Keyval<O>, value: Value) -> Result<(), ErrorClass> {
        self.delete(object, key)?;
        self.0.push((key.clone(), value));
        Ok(())
    }

    /// Takes a value out; returns whether there was one.
    pub fn delete(&mut self, object: &O, key: &Keyval<O>) -> Result<bool, ErrorClass> {
        let Some(at) = self.0.iter().position(|(known, _)| known == key) else { return Ok(false) };
        (key.0.delete)(object, &self.0[at].1)?;
        self.0.remove(at);
        Ok(true)
    }

    /// What a duplicate of `object` gets. On an error the values copied so far are the caller's to delete, with what it has
    /// of the new object.
    pub fn copied(&self, object: &O) -> (Self, Result<(), ErrorClass>) {
        let mut copies = Self::new();
        for (key, value) in &self.0 {
            match (key.0.copy)(object, value) {
                Ok(Some(copy)) => copies.0.push((key.clone(), copy)),
                Ok(None) => {}
                Err(class) => return (copies, Err(class)),
            }
        }
        (copies, Ok(()))
    }

    /// Deletes all, the last one set first, which the standard demands of `MPI_COMM_SELF` at the end (MPI-4.1 11.2.4). Ends
    /// at the first error, and keeps the rest.
    pub fn clear(&mut self, object: &O) -> Result<(), ErrorClass> {
        while let Some((key, value)) = self.0.last() {
            (key.0.delete)(object, value)?;
            self.0.pop();
        }
        Ok(())
    }
}

impl<O> Clone for Keyval<O> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<O> PartialEq for Keyval<O> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<O> Default for Attributes<O> {
    fn default() -> Self {
        Self::new()
    }
}

impl<O> fmt::Debug for Keyval<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyval").finish_non_exhaustive()
    }
}

impl<O> fmt::Debug for Attributes<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(key, _)| key)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn number(attributes: &Attributes<&'static str>, key: &Keyval<&'static str>) -> Option<i32> {
        attributes.get(key).map(|value| *value.downcast_ref().unwrap())
    }

    #[test]
    fn copies_are_what_the_callback_makes_of_them() {
        let next: Keyval<&str> =
            Keyval::new(|_, value| Ok(Some(Arc::new(value.downcast_ref::<i32>().unwrap() + 1))), |_, _| Ok(()));
        let (local, shared) = (Keyval::local(), Keyval::shared());
        let mut old = Attributes::new();
        for key in [&next, &local, &shared] {
            old.set(&"old", key, Arc::new(7)).unwrap();
        }
        let (new, result) = old.copied(&"old");
        assert_eq!(result, Ok(()));
        assert_eq!([&next, &local, &shared].map(|key| number(&new, key)), [Some(8), None, Some(7)]);
        assert_eq!(number(&old, &next), Some(7));
    }

    #[test]
    fn values_are_deleted_once_and_the_last_first() {
        let deleted = Arc::new(Mutex::new(Vec::new()));
        let key = || {
            let deleted = Arc::clone(&deleted);
            Keyval::<&str>::new(
                |_, _| Ok(None),
                move |object, value| {
                    deleted.lock().unwrap().push((*object, *value.downcast_ref::<i32>().unwrap()));
                    Ok(())
                },
            )
        };
        let (first, second) = (key(), key());
        let mut attributes = Attributes::new();
        attributes.set(&"it", &first, Arc::new(1)).unwrap();
        attributes.set(&"it", &second, Arc::new(2)).unwrap();
        attributes.set(&"it", &first, Arc::new(3)).unwrap();
        assert_eq!(*deleted.lock().unwrap(), [("it", 1)]);
        attributes.clear(&"it").unwrap();
        assert_eq!(*deleted.lock().unwrap(), [("it", 1), ("it", 3), ("it", 2)]);
        assert_eq!(attributes.delete(&"it", &first), Ok(false));
    }

    #[test]
    fn a_refused_deletion_keeps_the_value() {
        let stays: Keyval<&str> = Keyval::new(|_, _| Err(ErrorClass::Other), |_, _| Err(ErrorClass::Keyval));
        let mut attributes = Attributes::new();
        attributes.set(&"it", &stays, Arc::new(1)).unwrap();
        assert_eq!(attributes.set(&"it", &stays, Arc::new(2)), Err(ErrorClass::Keyval));
        assert_eq!(attributes.clear(&"it"), Err(ErrorClass::Keyval));
        assert_eq!(number(&attributes, &stays), Some(1));
        assert_eq!(attributes.copied(&"it").1, Err(ErrorClass::Other));
    }
}
