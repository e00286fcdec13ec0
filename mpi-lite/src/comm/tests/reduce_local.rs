#![allow(unsafe_code)] // Raw calls, on memory that the tests own.
//! Operators without communication, and raw calls with them.

use super::*;
use crate::coll::Call;
use crate::datatype::{Datatype, Predefined};
use crate::op::{Op, UserOp};

#[test]
fn each_element_is_combined_with_that_of_the_left_operand() {
    let mut result = [1i32, -2, 3];
    reduce_local(&[10, 20, 30], &mut result, &Op::Sum).unwrap();
    assert_eq!(result, [11, 18, 33]);
    let mut found = [Located::new(3.0f64, 4), Located::new(1.0, 7)];
    reduce_local(&[Located::new(3.0, 2), Located::new(2.0, 0)], &mut found, &Op::Minloc).unwrap();
    assert_eq!(found, [Located::new(3.0, 2), Located::new(1.0, 7)]);
    let left = UserOp::new(false, |_, _, into, from| into.copy_from_slice(from));
    let mut arrays = [[1u8, 2], [3, 4]];
    reduce_local(&[[5, 6], [7, 8]], &mut arrays, &Op::User(left)).unwrap();
    assert_eq!(arrays, [[5, 6], [7, 8]]);
    reduce_local::<i32>(&[], &mut [], &Op::Prod).unwrap();
    assert_eq!(reduce_local(&[1], &mut [1, 2], &Op::Sum), Err(ErrorClass::Count));
    assert_eq!(reduce_local(&[1.0], &mut [2.0], &Op::Band), Err(ErrorClass::Op));
    assert_eq!(reduce_local(&[1], &mut [2], &Op::Replace), Err(ErrorClass::Op));
}

#[test]
fn elements_of_a_type_with_gaps_are_combined_and_the_gaps_stay() {
    let every_second = Datatype::vector(2, 1, 2, &Predefined::Int32.into()).unwrap().resized(0, 16).unwrap();
    let of_two = UserOp::new(true, |datatype, count, into, from| {
        assert_eq!((datatype.extent(), count), (16, 2));
        let number = |bytes: &[u8], at: usize| i32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        for at in [0, 8, 16, 24] {
            let sum = number(into, at) + number(from, at);
            into[at..at + 4].copy_from_slice(&sum.to_ne_bytes());
        }
    });
    let (data, mut result) = ([1, 2, 3, 4, 5, 6, 7], [10i32, 20, 30, 40, 50, 60, 70]);
    // The last gap is behind the memory.
    let (from, into) = (data.as_ptr().cast(), result.as_mut_ptr().cast());
    // SAFETY: all data is in the arrays.
    unsafe {
        reduce_local_raw(from, into, 2, &every_second, &Op::User(of_two)).unwrap();
        // Predefined operators take predefined types.
        assert_eq!(reduce_local_raw(from, into, 2, &every_second, &Op::Sum), Err(ErrorClass::Op));
        let pair = Datatype::contiguous(2, &Predefined::Int32.into()).unwrap();
        reduce_local_raw(from, into, 1, &pair, &Op::Max).unwrap();
    }
    assert_eq!(result, [11, 20, 33, 40, 55, 60, 77]);
}

/// As the C interface calls it.
#[test]
fn raw_calls_name_their_root_and_what_they_reduce_within_a_group_and_between_two() {
    job(5, |comm| {
        let is_left = comm.rank() < 2;
        let part = comm.split(Some(is_left.into()), 0).unwrap().unwrap();
        let between = part.intercomm(0, &comm, if is_left { 2 } else { 0 }, 0).unwrap();
        let (operand, int) = (Operand::from(Datatype::from(Predefined::Int32)), Predefined::Int32.into());
        let sum_to = |of: &Communicator, root: Root| {
            let (mut own, mut sum) = ([comm.rank() as i32 + 1], [0]);
            let call = Call::Reduce { root: of.root(root)?, reduction: operand.reduction(&Op::Sum)? };
            let (given, room) =
                (Elements::at(own.as_mut_ptr().cast(), 1, &int), Elements::at(sum.as_mut_ptr().cast(), 1, &int));
            // SAFETY: both stay until the call is over, when it returns.
            unsafe { of.call_raw(call, Some(given), room, Some((&operand, &Op::Sum))) }.map(|()| sum[0])
        };
        let sum = sum_to(&comm, Root::Rank(3)).unwrap();
        assert!(sum == 15 || comm.rank() != 3);
        let root = match (is_left, between.rank()) {
            (true, 1) => Root::Here,
            (true, _) => Root::Elsewhere,
            (false, _) => Root::Rank(1),
        };
        let sum = sum_to(&between, root).unwrap();
        assert!(sum == 3 + 4 + 5 || root != Root::Here);
        assert_eq!(sum_to(&comm, Root::Here), Err(ErrorClass::Root));
        assert_eq!(sum_to(&between, Root::Rank(3)), Err(ErrorClass::Root));
    });
}
