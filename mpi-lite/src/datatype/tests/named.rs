//! Names and attributes.

use super::*;

#[test]
fn types_have_names_and_attributes_that_duplicates_have_as_their_callbacks_say() {
    use std::sync::Mutex;

    use crate::attribute::Keyval;
    use crate::error::ErrorClass;

    let int = Datatype::from(Predefined::Int);
    let pair = Datatype::contiguous(2, &int).unwrap();
    assert_eq!([int.name(), pair.name()], ["MPI_INT", ""]);
    pair.set_name("pair");
    let deleted = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&deleted);
    let key = Keyval::new(
        |_, value| Ok(Some(Arc::clone(value))),
        move |of: &Datatype, value| {
            told.lock().unwrap().push((of.name(), *value.downcast_ref::<i32>().unwrap()));
            Ok(())
        },
    );
    let local = Keyval::local();
    pair.set_attribute(&key, Arc::new(1)).unwrap();
    pair.set_attribute(&local, Arc::new(2)).unwrap();
    let dup = pair.dup().unwrap();
    assert_eq!(
        (dup.name(), dup.attribute(&key).is_some(), dup.attribute(&local).is_some()),
        (String::new(), true, false)
    );
    dup.set_attribute(&key, Arc::new(3)).unwrap();
    dup.free().unwrap();
    assert_eq!(*deleted.lock().unwrap(), [(String::new(), 1), (String::new(), 3)]);
    let refuses = Keyval::new(|_, _| Err(ErrorClass::Keyval), |_, _| Ok(()));
    pair.set_attribute(&refuses, Arc::new(4)).unwrap();
    assert_eq!(pair.dup(), Err(ErrorClass::Keyval));
    assert_eq!((deleted.lock().unwrap().len(), pair.delete_attribute(&refuses)), (3, Ok(true)));
    pair.clone().free().unwrap();
    assert_eq!(deleted.lock().unwrap()[3..], [("pair".to_owned(), 1)]);
    assert_eq!((pair.attribute(&key).is_some(), int.free()), (false, Err(ErrorClass::Type)));
}
