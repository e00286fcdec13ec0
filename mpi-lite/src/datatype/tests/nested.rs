//! Types within one another.

use super::*;

/// A linked list's types are so: each of a byte or two and the one before.
#[test]
fn types_are_nested_so_deep_as_a_threads_stack_bears_and_no_deeper() {
    // Half of what `std::thread` has: its caller may have taken some.
    let small = std::thread::Builder::new().stack_size(1 << 20);
    small.spawn(nest).unwrap().join().unwrap();
}

fn nest() {
    let byte = Datatype::from(Predefined::Byte);
    // At no regular distance, and of no one length.
    let within = |of: &Datatype, level: usize| {
        let behind = (level * (level + 3)) as isize;
        Datatype::structure(&[1, 1 + level % 2], &[0, behind], &[of.clone(), byte.clone()])
    };
    let deepest = (1..DEPTH_MAX).fold(byte.clone(), |of, level| within(&of, level).unwrap());
    assert_eq!(within(&deepest, 1), Err(TypeError::Depth));
    assert_eq!(deepest.dup(), Err(crate::error::ErrorClass::Type));
    assert_eq!(deepest.resized(0, 1), Err(TypeError::Depth));
    let memory = pattern(deepest.true_extent());
    let (mut packed, mut target) = (vec![0; deepest.size()], vec![0; memory.len()]);
    deepest.pack(&memory, 0, 1, 0, &mut packed).unwrap();
    deepest.unpack(&mut target, 0, 1, 0, &packed).unwrap();
    let mut read = Vec::new();
    deepest.each_run(1, &mut |at, len| read.extend_from_slice(&target[at as usize..at as usize + len]));
    assert_eq!(read, packed);
    let mut external = vec![0; deepest.external_size(1).unwrap()];
    deepest.pack_external(&memory, 0, 1, &mut external).unwrap();
    assert_eq!(external, packed);
    assert_eq!(deepest.elements_in(packed.len()), Some(packed.len()));
    assert_eq!(deepest.element_kind(), Some(Predefined::Byte));
    assert!(format!("{deepest:?}").len() > DEPTH_MAX);
}
