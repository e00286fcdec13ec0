//! What types say that they were made with, and those that are found by what they hold.

use super::*;

#[test]
fn types_say_what_they_were_made_with() {
    use Argument::{Bytes, Count, Integer};
    let (int, double) = (Datatype::from(Predefined::Int), Datatype::from(Predefined::Double));
    let says = |made: Result<Datatype, TypeError>, combiner: i32, arguments: &[Argument], of: &[&Datatype]| {
        let made = made.unwrap();
        assert_eq!((made.made().combiner(), &made.made().arguments()[..]), (combiner, arguments));
        assert!(made.made().datatypes().iter().eq(of.iter().copied()));
    };
    says(Ok(int.clone()), 101, &[], &[]);
    says(Ok(int.dup().unwrap()), 102, &[], &[&int]);
    says(Datatype::contiguous(3, &int), 103, &[Count(3)], &[&int]);
    says(Datatype::vector(3, 2, -4, &int), 104, &[Count(3), Count(2), Count(-4)], &[&int]);
    says(Datatype::hvector(3, 2, 40, &int), 105, &[Count(3), Count(2), Bytes(40)], &[&int]);
    let blocks = [Count(2), Count(1), Count(2), Count(7), Count(0)];
    says(Datatype::indexed(&[1, 2], &[7, 0], &int), 106, &blocks, &[&int]);
    says(Datatype::indexed_block(1, &[7, 0], &int), 108, &[Count(2), Count(1), Count(7), Count(0)], &[&int]);
    says(Datatype::hindexed_block(1, &[8, 0], &int), 109, &[Count(2), Count(1), Bytes(8), Bytes(0)], &[&int]);
    let blocks = [Count(2), Count(1), Count(2), Bytes(16), Bytes(0)];
    says(Datatype::hindexed(&[1, 2], &[16, 0], &int), 107, &blocks, &[&int]);
    says(Datatype::structure(&[1, 2], &[16, 0], &[int.clone(), double.clone()]), 110, &blocks, &[&int, &double]);
    says(
        Datatype::subarray(&[4, 6], &[2, 3], &[1, 0], Order::Fortran, &int),
        111,
        &[Integer(2), Count(4), Count(6), Count(2), Count(3), Count(1), Count(0), Integer(15)],
        &[&int],
    );
    let dimension = |size, distribution, processes| Dimension { size, distribution, processes };
    says(
        Datatype::darray(
            1,
            &[dimension(8, Distribution::Block(None), 2), dimension(6, Distribution::Cyclic(Some(2)), 3)],
            Order::C,
            &int,
        ),
        112,
        &[6, 1, 2]
            .map(Integer)
            .into_iter()
            .chain([8, 6].map(Count))
            .chain([17, 18, 19, 2, 2, 3, 12].map(Integer))
            .collect::<Vec<_>>(),
        &[&int],
    );
    says(int.resized(-4, 12), 116, &[Bytes(-4), Bytes(12)], &[&int]);
    says(Ok(Datatype::f90_integer(9).unwrap()), 115, &[Integer(9)], &[]);
    says(Ok(Datatype::f90_real(Some(7), None).unwrap()), 113, &[Integer(7), Integer(-32766)], &[]);
    says(Ok(Datatype::f90_complex(None, Some(4000)).unwrap()), 114, &[Integer(-32766), Integer(4000)], &[]);
}

#[test]
fn fortrans_numbers_are_found_by_what_they_hold_and_by_their_size() {
    use crate::error::ErrorClass;
    use crate::op::Op;

    let kinds = |of: fn(u32) -> Result<Datatype, ErrorClass>, asked: &[u32]| {
        asked.iter().map(|asked| of(*asked).ok().and_then(|found| found.predefined())).collect::<Vec<_>>()
    };
    let sized =
        |class, sizes: &[usize]| sizes.iter().map(|bytes| Predefined::of_size(class, *bytes)).collect::<Vec<_>>();
    let integers = kinds(Datatype::f90_integer, &[0, 2, 3, 9, 18, 38, 39]);
    let wanted = [1, 1, 2, 4, 8, 16, 3];
    assert_eq!(integers, sized(TypeClass::Integer, &wanted));
    let reals = kinds(|digits| Datatype::f90_real(Some(digits), None), &[6, 7, 16, 34]);
    assert_eq!(reals, sized(TypeClass::Real, &[4, 8, 16, 32]));
    let complex = kinds(|exponent| Datatype::f90_complex(Some(1), Some(exponent)), &[37, 38, 308, 4932]);
    assert_eq!(complex, sized(TypeClass::Complex, &[8, 16, 32, 64]));
    assert_eq!(sized(TypeClass::Real, &[2]), [Some(Predefined::Real2)]);
    assert_eq!(Datatype::f90_real(None, None), Err(ErrorClass::Arg));
    let real = Datatype::f90_real(Some(7), Some(30)).unwrap();
    assert_eq!((Datatype::f90_real(Some(7), Some(30)), real.clone().free()), (Ok(real.clone()), Err(ErrorClass::Type)));
    assert_ne!(real, Datatype::f90_real(Some(7), None).unwrap());
    let mut sum = 1f64.to_ne_bytes();
    Op::Sum.combine_any(&real, 1, &mut sum, &2f64.to_ne_bytes()).unwrap();
    assert_eq!(f64::from_ne_bytes(sum), 3.0);
}

#[test]
fn pairs_are_found_by_value_and_index() {
    use Predefined as P;
    let pairs = [P::FloatInt, P::DoubleInt, P::LongInt, P::TwoInt, P::ShortInt, P::LongDoubleInt];
    let values = [P::Float, P::Double, P::Long, P::Int, P::Short, P::LongDouble];
    assert_eq!(values.map(|value| P::pair(value, P::Int)), pairs.map(Some));
    let fortran = [P::Real, P::DoublePrecision, P::Integer].map(|both| P::pair(both, both));
    assert_eq!(fortran, [P::TwoReal, P::TwoDoublePrecision, P::TwoInteger].map(Some));
    assert_eq!([P::pair(P::Float, P::Long), P::pair(P::Byte, P::Int)], [None; 2]);
}
