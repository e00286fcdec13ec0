//! Attributes and names: what a program hangs on communicators, datatypes and windows (MPI-4.1 7.7 and 7.8).

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::adi::lock;
use crate::error::ErrorClass;

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

/// All attributes of one object. Nothing is locked while a callback runs: it may look at them, and change them.
pub struct Attributes<O>(Mutex<Entries<O>>);

/// What one object is called, here only.
#[derive(Debug, Default)]
pub(crate) struct Name(Mutex<String>);

struct Entries<O> {
    all: Vec<Entry<O>>,
    /// Values so far.
    set: u64,
}

struct Entry<O> {
    key: Keyval<O>,
    value: Value,
    /// Which value of the object's.
    number: u64,
    /// Its callback runs, in whatever thread.
    leaving: bool,
}

impl<O> Keyval<O> {
    /// A key whose values are copied and deleted so.
    pub fn new(
        copy: impl Fn(&O, &Value) -> Result<Option<Value>, ErrorClass> + Send + Sync + 'static,
        delete: impl Fn(&O, &Value) -> Result<(), ErrorClass> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Callbacks { copy: Box::new(copy), delete: Box::new(delete) }))
    }

    /// A key whose values stay with their object (`MPI_COMM_NULL_COPY_FN` and its kin).
    pub fn local() -> Self {
        Self::new(|_, _| Ok(None), |_, _| Ok(()))
    }

    /// A key whose values go along, the same (`MPI_COMM_DUP_FN` and its kin).
    pub fn shared() -> Self {
        Self::new(|_, value| Ok(Some(Arc::clone(value))), |_, _| Ok(()))
    }
}

impl<O> Attributes<O> {
    /// None.
    pub const fn new() -> Self {
        Self(Mutex::new(Entries { all: Vec::new(), set: 0 }))
    }

    /// The value under a key.
    pub fn get(&self, key: &Keyval<O>) -> Option<Value> {
        lock(&self.0).all.iter().rev().find(|entry| entry.key == *key).map(|entry| Arc::clone(&entry.value))
    }

    /// Stores a value, after the old one was deleted.
    pub fn set(&self, object: &O, key: &Keyval<O>, value: Value) -> Result<(), ErrorClass> {
        loop {
            self.delete(object, key)?;
            let mut entries = lock(&self.0);
            // Another thread, or the callback, may have set one. One that is leaving is no more.
            if entries.all.iter().all(|entry| entry.key != *key || entry.leaving) {
                entries.push(key.clone(), value);
                return Ok(());
            }
        }
    }

    /// Takes a value out; returns whether there was one. There is none for who comes while another thread takes it out.
    pub fn delete(&self, object: &O, key: &Keyval<O>) -> Result<bool, ErrorClass> {
        self.take_out(object, |entry| entry.key == *key)
    }

    /// What a duplicate of `object` gets. On an error the values copied so far are the caller's to delete, with what it has
    /// of the new object.
    pub fn copied(&self, object: &O) -> (Self, Result<(), ErrorClass>) {
        // One that is leaving is copied as long as there is no other one under its key.
        let all: Vec<_> = {
            let entries = lock(&self.0);
            let newest = entries.all.iter().filter(|entry| !entries.is_replaced(entry));
            newest.map(|entry| (entry.key.clone(), Arc::clone(&entry.value))).collect()
        };
        let copies = Self::new();
        let result = all.into_iter().try_for_each(|(key, value)| {
            if let Some(copy) = (key.0.copy)(object, &value)? {
                lock(&copies.0).push(key, copy);
            }
            Ok(())
        });
        (copies, result)
    }

    /// Has what was [`copied`](Self::copied) for its object, which nobody has seen yet.
    pub fn begin_with(&self, copies: Self) {
        *lock(&self.0) = copies.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    }

    /// Deletes all, the last one set first, which the standard demands of `MPI_COMM_SELF` at the end (MPI-4.1 11.2.4). Ends
    /// at the first error, and keeps the rest.
    pub fn clear(&self, object: &O) -> Result<(), ErrorClass> {
        while self.take_out(object, |_| true)? {}
        Ok(())
    }

    /// Takes the last such one out that nobody else takes out; returns whether there was one. It is there until its callback has agreed.
    fn take_out(&self, object: &O, is_it: impl Fn(&Entry<O>) -> bool) -> Result<bool, ErrorClass> {
        let found = lock(&self.0).all.iter_mut().rev().find(|entry| !entry.leaving && is_it(entry)).map(|entry| {
            entry.leaving = true;
            (entry.key.clone(), Arc::clone(&entry.value), entry.number)
        });
        let Some((key, value, number)) = found else { return Ok(false) };
        let leaving = Leaving { entries: &self.0, number };
        (key.0.delete)(object, &value)?;
        std::mem::forget(leaving);
        lock(&self.0).all.retain(|entry| entry.number != number);
        Ok(true)
    }
}

impl Name {
    pub fn get(&self) -> String {
        lock(&self.0).clone()
    }

    pub fn set(&self, name: &str) {
        name.clone_into(&mut lock(&self.0));
    }
}

impl<O> Entries<O> {
    fn push(&mut self, key: Keyval<O>, value: Value) {
        self.set += 1;
        self.all.push(Entry { key, value, number: self.set, leaving: false });
    }

    /// A newer value is under its key.
    fn is_replaced(&self, entry: &Entry<O>) -> bool {
        self.all.iter().any(|other| other.key == entry.key && other.number > entry.number)
    }
}

/// A value that is being taken out. It stays if its callback refuses, or panics, unless another one has its key by then.
struct Leaving<'a, O> {
    entries: &'a Mutex<Entries<O>>,
    number: u64,
}

impl<O> Drop for Leaving<'_, O> {
    fn drop(&mut self) {
        let mut entries = lock(self.entries);
        let Some(place) = entries.all.iter().position(|entry| entry.number == self.number) else { return };
        if entries.is_replaced(&entries.all[place]) {
            let replaced = entries.all.remove(place);
            // What is dropped may look at them.
            drop(entries);
            drop(replaced);
        } else {
            entries.all[place].leaving = false;
        }
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
        f.debug_list().entries(lock(&self.0).all.iter().map(|entry| entry.key.clone())).finish()
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
        let old = Attributes::new();
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
        let attributes = Attributes::new();
        attributes.set(&"it", &first, Arc::new(1)).unwrap();
        attributes.set(&"it", &second, Arc::new(2)).unwrap();
        attributes.set(&"it", &first, Arc::new(3)).unwrap();
        assert_eq!(*deleted.lock().unwrap(), [("it", 1)]);
        attributes.clear(&"it").unwrap();
        assert_eq!(*deleted.lock().unwrap(), [("it", 1), ("it", 3), ("it", 2)]);
        assert_eq!(attributes.delete(&"it", &first), Ok(false));
    }

    #[test]
    fn of_threads_that_delete_one_value_one_does() {
        let (here, comes) = std::sync::mpsc::channel();
        let (goes, go) = std::sync::mpsc::channel::<()>();
        let (once, go) = (Mutex::new(Some(here)), Mutex::new(go));
        let key = Keyval::<&str>::new(
            |_, _| Ok(None),
            move |_, _| {
                // Only the first one waits.
                if let Some(here) = once.lock().unwrap().take() {
                    here.send(()).unwrap();
                    let _ = go.lock().unwrap().recv();
                }
                Ok(())
            },
        );
        let attributes = Attributes::new();
        attributes.set(&"it", &key, Arc::new(1)).unwrap();
        std::thread::scope(|threads| {
            // Dropped also where this fails, which ends the wait.
            let goes = goes;
            let first = threads.spawn(|| attributes.delete(&"it", &key));
            comes.recv().unwrap();
            assert_eq!(number(&attributes, &key), Some(1), "until it is deleted");
            assert_eq!(attributes.delete(&"it", &key), Ok(false));
            assert_eq!(attributes.clear(&"it"), Ok(()));
            drop(goes);
            assert_eq!(first.join().unwrap(), Ok(true));
        });
        assert_eq!(number(&attributes, &key), None);
    }

    #[test]
    fn callbacks_see_what_is_there_and_may_change_it() {
        type Object = Arc<Attributes<()>>;
        let (other, made) = (Keyval::local(), Keyval::local());
        let object: Object = Arc::default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let key = Keyval::<Object>::new(
            {
                let (seen, other) = (Arc::clone(&seen), other.clone());
                move |object, value| {
                    seen.lock().unwrap().push(object.get(&other).is_some());
                    Ok(Some(Arc::clone(value)))
                }
            },
            {
                let made = made.clone();
                move |object, _| object.set(&(), &made, Arc::new(3))
            },
        );
        let all = Attributes::new();
        object.set(&(), &other, Arc::new(1)).unwrap();
        all.set(&object, &key, Arc::new(2)).unwrap();
        all.copied(&object).1.unwrap();
        assert_eq!(all.delete(&object, &key), Ok(true));
        assert_eq!((&seen.lock().unwrap()[..], object.get(&made).is_some()), (&[true][..], true));
    }

    /// Its deletion is refused, and it is not what stands under its key any more.
    #[test]
    fn a_value_that_was_replaced_does_not_come_back() {
        let (under, all) = (Arc::new(Mutex::new(None)), Arc::new(Attributes::<()>::new()));
        let key = {
            let (under, all) = (Arc::clone(&under), Arc::downgrade(&all));
            Keyval::<()>::new(
                |(), value| Ok(Some(Arc::clone(value))),
                move |(), value| {
                    if value.downcast_ref() != Some(&1) {
                        return Ok(());
                    }
                    let key: Option<Keyval<()>> = lock(&under).clone();
                    all.upgrade().unwrap().set(&(), &key.unwrap(), Arc::new(2))?;
                    assert_eq!(all.upgrade().unwrap().copied(&()).0.0.into_inner().unwrap().all.len(), 1);
                    Err(ErrorClass::Keyval)
                },
            )
        };
        *lock(&under) = Some(key.clone());
        all.set(&(), &key, Arc::new(1)).unwrap();
        assert_eq!(all.delete(&(), &key), Err(ErrorClass::Keyval));
        let now = || all.get(&key).map(|value| *value.downcast_ref::<i32>().unwrap());
        assert_eq!(now(), Some(2));
        assert_eq!(all.delete(&(), &key), Ok(true));
        assert_eq!(now(), None);
        // The key names itself.
        *lock(&under) = None;
    }

    #[test]
    fn a_refused_deletion_keeps_the_value() {
        let stays: Keyval<&str> = Keyval::new(|_, _| Err(ErrorClass::Other), |_, _| Err(ErrorClass::Keyval));
        let attributes = Attributes::new();
        attributes.set(&"it", &stays, Arc::new(1)).unwrap();
        assert_eq!(attributes.set(&"it", &stays, Arc::new(2)), Err(ErrorClass::Keyval));
        assert_eq!(attributes.clear(&"it"), Err(ErrorClass::Keyval));
        assert_eq!(number(&attributes, &stays), Some(1));
        assert_eq!(attributes.copied(&"it").1, Err(ErrorClass::Other));
    }
}
