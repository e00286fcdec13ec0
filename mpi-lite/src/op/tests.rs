//! Every operator on every type that it takes, against models that compute one element at a time and in another way.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// The number in these bytes, widened.
fn integer(number: Number, bytes: &[u8]) -> i128 {
    let mut wide = [0; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    let value = i128::from_le_bytes(wide);
    let spare = 128 - 8 * bytes.len() as u32;
    match number {
        Number::U8 | Number::U16 | Number::U32 | Number::U64 => value,
        _ => value << spare >> spare,
    }
}

/// Sixteen bytes; an element keeps as many as it has.
fn integer_model(op: &Op, from: i128, into: i128) -> [u8; 16] {
    let result = match op {
        Op::Sum => from.wrapping_add(into),
        Op::Prod => from.wrapping_mul(into),
        Op::Min => from.min(into),
        Op::Max => from.max(into),
        Op::Band => from & into,
        Op::Bor => from | into,
        Op::Bxor => from ^ into,
        Op::Land => (from != 0 && into != 0).into(),
        Op::Lor => (from != 0 || into != 0).into(),
        Op::Lxor => ((from != 0) ^ (into != 0)).into(),
        Op::Replace => from,
        _ => into,
    };
    result.to_le_bytes()
}

fn float_model(op: &Op, from: f64, into: f64) -> f64 {
    match op {
        Op::Sum => from + into,
        Op::Prod => from * into,
        Op::Min => from.min(into),
        Op::Max => from.max(into),
        Op::Replace => from,
        _ => into,
    }
}

fn encode(number: Number, value: f64) -> Vec<u8> {
    match number {
        Number::F16 => half(value).to_ne_bytes().to_vec(),
        Number::F32 => (value as f32).to_ne_bytes().to_vec(),
        Number::F64 => value.to_ne_bytes().to_vec(),
        Number::F80 => extended(value).to_vec(),
        Number::F128 => quad(value).to_ne_bytes().to_vec(),
        _ => integer_model(&Op::NoOp, 0, value as i128)[..number.size()].to_vec(),
    }
}

/// Small whole numbers, written from the definitions of the formats.
fn half(value: f64) -> u16 {
    let bits = value.to_bits();
    if value == 0.0 {
        return (bits >> 48) as u16;
    }
    let exponent = (bits >> 52 & 0x7ff) as i32 - 1023;
    ((bits >> 63) as u16) << 15 | ((exponent + 15) as u16) << 10 | (bits >> 42 & 0x3ff) as u16
}

fn quad(value: f64) -> u128 {
    let bits = u128::from(value.to_bits());
    if value == 0.0 {
        return bits << 64;
    }
    let exponent = (bits >> 52 & 0x7ff) + 16383 - 1023;
    bits >> 63 << 127 | exponent << 112 | (bits & ((1 << 52) - 1)) << 60
}

fn extended(value: f64) -> [u8; 16] {
    let bits = value.to_bits();
    let sign = (bits >> 63) << 15;
    let (top, mantissa) = match value {
        0.0 => (sign, 0),
        _ => (sign | ((bits >> 52 & 0x7ff) + 16383 - 1023), 1 << 63 | (bits & ((1 << 52) - 1)) << 11),
    };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&mantissa.to_le_bytes());
    bytes[8..10].copy_from_slice(&(top as u16).to_le_bytes());
    bytes
}

fn kinds(wanted: impl Fn(Predefined) -> bool) -> Vec<Predefined> {
    Predefined::ALL.iter().copied().filter(|kind| wanted(*kind)).collect()
}

fn is_float(number: Number) -> bool {
    matches!(number, Number::F16 | Number::F32 | Number::F64 | Number::F80 | Number::F128)
}

fn integers() -> Vec<Predefined> {
    kinds(|kind| matches!(kind.repr(), Repr::One(number) if !is_float(number)))
}

fn floats() -> Vec<Predefined> {
    kinds(|kind| matches!(kind.repr(), Repr::One(number) if is_float(number)))
}

/// Whole numbers whose sums and products every format but binary16 holds exactly; that one overflows beyond 65504.
fn whole() -> impl Strategy<Value = f64> {
    (-200..=200i32).prop_map(f64::from)
}

proptest! {
    #[test]
    fn integers_agree_with_the_model(
        kind in select(integers()),
        op in select(&Op::PREDEFINED[..]),
        values in vec((any::<i128>(), any::<i128>(), any::<[bool; 2]>()), 0..70),
    ) {
        let Repr::One(number) = kind.repr() else { unreachable!() };
        let size = kind.size();
        // Random bits are hardly ever zero, and the logical operators tell only that.
        let values = values.into_iter().map(|(a, b, [c, d])| (if c { a } else { 0 }, if d { b } else { 0 }));
        let (from, into): (Vec<_>, Vec<_>) = values.map(|(a, b)| (a.to_le_bytes(), b.to_le_bytes())).unzip();
        let from: Vec<u8> = from.iter().flat_map(|bytes| bytes[..size].to_vec()).collect();
        let mut into: Vec<u8> = into.iter().flat_map(|bytes| bytes[..size].to_vec()).collect();
        let expected: Vec<u8> = from
            .chunks(size)
            .zip(into.chunks(size))
            .flat_map(|(a, b)| integer_model(&op, integer(number, a), integer(number, b))[..size].to_vec())
            .collect();
        let before = into.clone();
        match op.combine(kind, &mut into, &from) {
            Ok(()) => prop_assert_eq!(into, expected),
            Err(_) => prop_assert!(!op.is_defined_on(kind) && into == before),
        }
    }

    #[test]
    fn floats_agree_with_the_model(
        kind in select(floats()),
        op in select(vec![Op::Sum, Op::Prod, Op::Min, Op::Max, Op::Replace, Op::NoOp]),
        values in vec((whole(), whole()), 0..70),
    ) {
        let Repr::One(number) = kind.repr() else { unreachable!() };
        // 2048 is the last whole number up to which binary16 has all.
        let fits = |value: &f64| number != Number::F16 || value.abs() <= 2048.0;
        let values: Vec<_> = values.into_iter().filter(|(a, b)| fits(&float_model(&op, *a, *b))).collect();
        let from: Vec<u8> = values.iter().flat_map(|(a, _)| encode(number, *a)).collect();
        let mut into: Vec<u8> = values.iter().flat_map(|(_, b)| encode(number, *b)).collect();
        // Products of zero and a negative number are negative zeros in both.
        let expected: Vec<u8> = values.iter().flat_map(|(a, b)| encode(number, float_model(&op, *a, *b))).collect();
        op.combine(kind, &mut into, &from).unwrap();
        prop_assert_eq!(into, expected);
    }

    #[test]
    fn complex_numbers_agree_with_the_model(
        kind in select(kinds(|kind| kind.class() == Class::Complex)),
        product in any::<bool>(),
        values in vec((whole(), whole(), whole(), whole()), 0..40),
    ) {
        let Repr::Complex(part) = kind.repr() else { unreachable!() };
        let scale = if part == Number::F16 { 8.0 } else { 1.0 };
        let values: Vec<_> = values
            .into_iter()
            .map(|(a, b, c, d)| [a, b, c, d].map(|value| (value / scale).trunc() + 1.0))
            .collect();
        let from: Vec<u8> = values.iter().flat_map(|[a, b, _, _]| [encode(part, *a), encode(part, *b)].concat()).collect();
        let mut into: Vec<u8> =
            values.iter().flat_map(|[_, _, c, d]| [encode(part, *c), encode(part, *d)].concat()).collect();
        let expected: Vec<u8> = values
            .iter()
            .flat_map(|[a, b, c, d]| {
                let (re, im) = if product { (a * c - b * d, a * d + b * c) } else { (a + c, b + d) };
                [encode(part, re), encode(part, im)].concat()
            })
            .collect();
        let op = if product { Op::Prod } else { Op::Sum };
        op.combine(kind, &mut into, &from).unwrap();
        prop_assert_eq!(into, expected);
    }

    #[test]
    fn locations_agree_with_the_model(
        kind in select(kinds(|kind| kind.class() == Class::Location)),
        largest in any::<bool>(),
        // Few values, so that equal ones are frequent.
        values in vec((-3..3i32, 0..9i32, -3..3i32, 0..9i32), 0..40),
    ) {
        let Repr::Pair(value, index) = kind.repr() else { unreachable!() };
        let element = |a: i32, i: i32, gap: u8| {
            let mut bytes = vec![gap; kind.extent()];
            bytes[..value.size()].copy_from_slice(&encode(value, a.into()));
            bytes[kind.second_at()..kind.second_at() + index.size()].copy_from_slice(&encode(index, i.into()));
            bytes
        };
        let from: Vec<u8> = values.iter().flat_map(|(a, i, _, _)| element(*a, *i, 0x55)).collect();
        let mut into: Vec<u8> = values.iter().flat_map(|(_, _, b, j)| element(*b, *j, 0xaa)).collect();
        let expected: Vec<u8> = values
            .iter()
            .flat_map(|&(a, i, b, j)| {
                let (v, k) = location_model(largest, (a, i), (b, j));
                element(v, k, 0xaa)
            })
            .collect();
        let op = if largest { Op::Maxloc } else { Op::Minloc };
        op.combine(kind, &mut into, &from).unwrap();
        prop_assert_eq!(into, expected);
    }
}

/// The extreme value, and the smallest index among those that have it.
fn location_model(largest: bool, a: (i32, i32), b: (i32, i32)) -> (i32, i32) {
    let extreme = if largest { a.0.max(b.0) } else { a.0.min(b.0) };
    let index = [a, b].iter().filter(|pair| pair.0 == extreme).map(|pair| pair.1).min();
    (extreme, index.expect("one of the two has it"))
}

#[test]
fn the_operand_that_comes_in_stands_on_the_left() {
    let digits = Op::User(UserOp::new(false, |datatype, count, into, from| {
        assert_eq!((datatype, count), (&Predefined::Uint8.into(), 2));
        into.iter_mut().zip(from).for_each(|(old, new)| *old += 10 * new);
    }));
    let mut into = [1, 2];
    digits.combine(Predefined::Uint8, &mut into, &[3, 4]).unwrap();
    assert_eq!(into, [31, 42]);
    assert!(!digits.is_commutative());
    assert!(Op::User(UserOp::new(true, |_, _, _, _| {})).is_commutative());
    assert_eq!(digits, digits.clone());
    let two = Datatype::contiguous(2, &Predefined::Uint8.into()).unwrap();
    assert!(Op::Sum.combine_any(&two, 1, &mut into, &[3, 4]).is_err());
    assert_ne!(digits, Op::User(UserOp::new(false, |_, _, _, _| {})));
}

/// MPI-4.1 6.9.2, its table of operators and groups of types, one letter an operator as in `Op::PREDEFINED`.
#[test]
fn operators_are_defined_where_the_standard_says() {
    let defined = |kind: Predefined| -> String {
        Op::PREDEFINED.iter().map(|op| if op.is_defined_on(kind) { 'x' } else { '.' }).collect()
    };
    for (kinds, expected) in [
        (&[Predefined::Int, Predefined::UnsignedChar, Predefined::Int64][..], "xxxxxxxxxx..xx"),
        (&[Predefined::Integer, Predefined::Integer16], "xxxxxxx.....xx"),
        (&[Predefined::Float, Predefined::LongDouble, Predefined::Real2], "xxxx........xx"),
        (&[Predefined::Logical, Predefined::CBool, Predefined::Logical16], ".......xxx..xx"),
        (&[Predefined::Complex, Predefined::CxxDoubleComplex], "x..x........xx"),
        (&[Predefined::Byte], "....xxx.....xx"),
        (&[Predefined::Aint, Predefined::Offset, Predefined::Count], "xxxxxxx.....xx"),
        (&[Predefined::FloatInt, Predefined::TwoDoublePrecision], "..........xxxx"),
        (&[Predefined::Char, Predefined::Wchar, Predefined::Character, Predefined::Packed], "............xx"),
    ] {
        for kind in kinds {
            assert_eq!(defined(*kind), expected, "{}", kind.name());
        }
    }
}

#[test]
fn every_defined_pair_of_operator_and_type_combines() {
    for kind in Predefined::ALL {
        for op in &Op::PREDEFINED {
            let mut into = vec![0; 3 * kind.extent()];
            let from = into.clone();
            assert_eq!(op.combine(*kind, &mut into, &from).is_ok(), op.is_defined_on(*kind));
        }
    }
}

/// A NaN never wins against a number that is already there, and nothing panics.
#[test]
fn not_a_number_is_no_trouble() {
    let mut into = 1f64.to_ne_bytes();
    Op::Max.combine(Predefined::Double, &mut into, &f64::NAN.to_ne_bytes()).unwrap();
    assert_eq!(f64::from_ne_bytes(into), 1.0);
}
