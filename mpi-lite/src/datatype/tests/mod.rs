//! Random nested types against a model that keeps every byte's place in a list.

mod contents;
mod model;
mod named;
mod nested;

use proptest::prelude::*;

use super::*;
use model::{Model, Spec, spec};

/// Bytes that differ from their neighbours and from those a page on.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 31 + index / 251) as u8).collect()
}

/// Memory for `count` elements with margins on both sides, and where the elements' address is in it.
fn memory(model: &Model, count: usize) -> (Vec<u8>, usize) {
    let places = model.bytes(count);
    let low = places.iter().copied().min().unwrap_or(0).min(0);
    let high = places.iter().copied().max().map_or(0, |last| last + 1).max(0);
    (pattern((high - low) as usize + 14), (7 - low) as usize)
}

fn packed(model: &Model, count: usize, memory: &[u8], origin: usize) -> Vec<u8> {
    model.bytes(count).iter().map(|place| memory[origin.checked_add_signed(*place).unwrap()]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn bounds_are_those_of_the_type_map(spec in spec()) {
        let Some((datatype, model)) = Spec::build(&spec) else { return Ok(()) };
        let (low, high) = model.bounds();
        prop_assert_eq!((datatype.lower_bound(), datatype.upper_bound()), (low, high));
        prop_assert_eq!(datatype.extent(), high - low);
        let places = model.bytes(1);
        prop_assert_eq!(datatype.size(), places.len());
        let (first, last) = (places.iter().min(), places.iter().max());
        prop_assert_eq!(datatype.true_lower_bound(), first.copied().unwrap_or(0));
        prop_assert_eq!(datatype.true_extent() as isize, first.zip(last).map_or(0, |(first, last)| last + 1 - first));
        prop_assert_eq!(datatype.element_count(), model.map.len());
        let mut kinds: Vec<_> = model.map.iter().map(|entry| entry.0).collect();
        kinds.dedup();
        prop_assert_eq!(datatype.element_kind(), if kinds.len() == 1 { Some(kinds[0]) } else { None });
    }

    #[test]
    fn packing_and_unpacking_go_by_the_type_map(spec in spec(), count in 0..4usize) {
        let Some((datatype, model)) = Spec::build(&spec) else { return Ok(()) };
        let (memory, origin) = memory(&model, count);
        let expected = packed(&model, count, &memory, origin);
        let mut out = vec![0; expected.len()];
        prop_assert_eq!(datatype.pack(&memory, origin, count, 0, &mut out).unwrap(), out.len());
        prop_assert_eq!(&out, &expected);

        let fresh: Vec<u8> = pattern(out.len()).iter().map(|byte| byte ^ 0x5a).collect();
        let mut target = memory.clone();
        prop_assert_eq!(datatype.unpack(&mut target, origin, count, 0, &fresh).unwrap(), fresh.len());
        let mut wanted = memory;
        for (place, byte) in model.bytes(count).iter().zip(&fresh) {
            wanted[origin.checked_add_signed(*place).unwrap()] = *byte;
        }
        prop_assert_eq!(target, wanted);
    }

    #[test]
    fn any_pieces_make_the_whole(spec in spec(), count in 0..4usize, steps in prop::collection::vec(1..30usize, 1..60)) {
        let Some((datatype, model)) = Spec::build(&spec) else { return Ok(()) };
        let (memory, origin) = memory(&model, count);
        let expected = packed(&model, count, &memory, origin);
        let (mut out, mut target, mut reference) = (vec![0; expected.len()], memory.clone(), memory.clone());
        let mut position = 0;
        for step in steps.iter().cycle().take(expected.len() + 1) {
            let end = expected.len().min(position + step);
            let taken = datatype.pack(&memory, origin, count, position, &mut out[position..end]).unwrap();
            prop_assert_eq!(taken, end - position);
            let fresh = pattern(end - position);
            prop_assert_eq!(datatype.unpack(&mut target, origin, count, position, &fresh).unwrap(), taken);
            for (place, byte) in model.bytes(count)[position..end].iter().zip(&fresh) {
                reference[origin.checked_add_signed(*place).unwrap()] = *byte;
            }
            position = end;
        }
        prop_assert_eq!(out, expected);
        prop_assert_eq!(target, reference);
    }

    #[test]
    fn what_is_one_run_is_found_to_be_one(spec in spec(), count in 0..4usize) {
        let Some((datatype, model)) = Spec::build(&spec) else { return Ok(()) };
        let places = model.bytes(count);
        let one_run = places.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        match datatype.contiguous_run(count) {
            Some((_, 0)) => prop_assert!(places.is_empty()),
            Some((at, len)) => prop_assert!(one_run && places[0] == at && places.len() == len),
            None => prop_assert!(!one_run),
        }
    }

    #[test]
    fn external_data_goes_by_the_type_map(spec in spec(), count in 0..3usize) {
        let Some((datatype, model)) = Spec::build(&spec) else { return Ok(()) };
        let (memory, origin) = memory(&model, count);
        let expected: Vec<u8> = model
            .elements(count)
            .flat_map(|(kind, at)| {
                let at = origin.checked_add_signed(at).unwrap();
                let (first, second) = match kind.repr() {
                    Repr::One(number) => (number.size(), 0),
                    Repr::Complex(part) => (part.size(), part.size()),
                    Repr::Pair(value, index) => (value.size(), index.size()),
                };
                let numbers = [(at, first), (at + kind.second_at(), second)];
                numbers.map(|(at, len)| memory[at..at + len].iter().rev().copied().collect::<Vec<_>>()).concat()
            })
            .collect();
        let mut out = vec![0; datatype.external_size(count).unwrap()];
        prop_assert_eq!(datatype.pack_external(&memory, origin, count, &mut out), Ok(expected.len()));
        prop_assert_eq!(&out, &expected);
        // Numbers that share bytes can't all come back.
        let mut places = model.bytes(count);
        places.sort_unstable();
        let shared = places.windows(2).any(|pair| pair[0] == pair[1]);
        let mut target: Vec<u8> = vec![0; memory.len()];
        prop_assert_eq!(datatype.unpack_external(&mut target, origin, count, &out), Ok(out.len()));
        prop_assert!(shared || packed(&model, count, &target, origin) == packed(&model, count, &memory, origin));
    }

    #[test]
    fn elements_are_counted_as_they_come(spec in spec(), count in 0..3usize) {
        let Some((datatype, model)) = Spec::build(&spec) else { return Ok(()) };
        prop_assume!(datatype.size() > 0);
        let (mut ends, mut end) = (vec![0], 0);
        for (kind, _) in model.elements(count) {
            if let Repr::Pair(value, _) = kind.repr() {
                ends.push(end + value.size());
            }
            end += kind.size();
            ends.push(end);
        }
        for bytes in 0..=*ends.last().unwrap() {
            prop_assert_eq!(datatype.elements_in(bytes), ends.iter().position(|end| *end == bytes));
        }
    }
}

/// A double and an int, then a double, received as two pairs, are three elements.
#[test]
fn the_parts_of_pairs_are_counted() {
    let pair = Datatype::from(Predefined::DoubleInt);
    let held = [0, 4, 8, 12, 16, 20, 24].map(|bytes| pair.elements_in(bytes));
    assert_eq!(held, [Some(0), None, Some(1), Some(2), None, Some(3), Some(4)]);
    let of_two = Datatype::contiguous(2, &Predefined::TwoInt.into()).unwrap();
    assert_eq!([8, 12, 20, 22].map(|bytes| of_two.elements_in(bytes)), [Some(2), Some(3), Some(5), None]);
}

/// MPI-5.0 2.5.6 and 5.1.2: displacements are all that `MPI_Aint` holds, also the lowest.
#[test]
fn the_lowest_displacement_is_one() {
    let pair = Predefined::ShortInt.into();
    let lowest = Datatype::hindexed(&[1], &[isize::MIN], &pair).unwrap();
    let pairs = Datatype::contiguous(2, &lowest).unwrap();
    assert_eq!((pairs.size(), pairs.lower_bound(), pairs.extent()), (12, isize::MIN, 16));
    let apart = Datatype::hindexed(&[1, 1], &[isize::MIN, isize::MIN + 40], &pair).unwrap();
    let mut runs = Vec::new();
    pairs.each_run(1, &mut |at, len| runs.push((at - isize::MIN, len)));
    apart.each_run(1, &mut |at, len| runs.push((at - isize::MIN, len)));
    assert_eq!(runs, [(0, 2), (4, 4), (8, 2), (12, 4), (0, 2), (4, 4), (40, 2), (44, 4)]);
}

/// MPI-4.1 example 5.1: `{(double, 0), (char, 8)}` has an extent of 16, and example 5.2's copies stand 16 apart.
#[test]
fn a_struct_is_padded_to_its_alignment() {
    let of = [Predefined::Double.into(), Predefined::Char.into()];
    let pair = Datatype::structure(&[1, 1], &[0, 8], &of).unwrap();
    assert_eq!((pair.size(), pair.extent(), pair.true_extent(), pair.alignment()), (9, 16, 9, 8));
    let three = Datatype::contiguous(3, &pair).unwrap();
    assert_eq!((three.size(), three.extent(), three.true_extent()), (27, 48, 41));
}

#[test]
fn a_column_is_three_numbers_however_it_is_said() {
    let int = Predefined::Int.into();
    let column = Datatype::vector(1000, 1, 1000, &int).unwrap();
    let places: Vec<isize> = (0..1000).map(|row| row * 4000).collect();
    let listed = Datatype::hindexed(&[1; 1000], &places, &int).unwrap();
    let array = Datatype::subarray(&[1000, 1000], &[1000, 1], &[0, 0], Order::C, &int).unwrap();
    let strided = layout::Shape::Strided { count: 1000, len: 4, stride: 4000 };
    for datatype in [column, listed, array] {
        assert_eq!(datatype.0.map.layout.shape, strided, "{datatype:?}");
    }
}

#[test]
fn memory_that_is_too_small_is_not_touched() {
    let every_other = Datatype::vector(4, 1, 2, &Predefined::Int.into()).unwrap();
    let mut memory = [0; 28];
    let packed = [1; 16];
    assert_eq!(every_other.unpack(&mut memory[..27], 0, 1, 0, &packed), Err(OutOfBounds));
    assert_eq!(every_other.unpack(&mut memory, 1, 1, 0, &packed), Err(OutOfBounds));
    assert_eq!(every_other.unpack(&mut memory, 0, 2, 0, &packed), Err(OutOfBounds));
    assert_eq!(every_other.unpack(&mut memory, 0, usize::MAX, 0, &packed), Err(OutOfBounds));
    assert_eq!(memory, [0; 28]);
    assert_eq!(every_other.unpack(&mut memory, 0, 1, 0, &packed), Ok(16));
    let backwards = Datatype::vector(4, 1, -2, &Predefined::Int.into()).unwrap();
    assert_eq!(backwards.pack(&memory, 23, 1, 0, &mut [0; 16]), Err(OutOfBounds));
    assert_eq!(backwards.pack(&memory, 24, 1, 0, &mut [0; 16]), Ok(16));
}

#[test]
fn what_exceeds_the_address_space_is_refused() {
    let int = Predefined::Int.into();
    let overflow = Err(TypeError::Overflow(Overflow));
    assert_eq!(Datatype::contiguous(usize::MAX, &int), overflow);
    assert_eq!(Datatype::contiguous(1 << 62, &int), overflow);
    assert_eq!(Datatype::vector(3, 1, isize::MAX / 4, &int), overflow);
    assert_eq!(Datatype::hindexed(&[1, 1], &[isize::MAX, 0], &int), overflow);
    assert_eq!(int.resized(isize::MAX, 1), overflow);
    assert_eq!(Datatype::subarray(&[1 << 40; 3], &[1; 3], &[0; 3], Order::C, &int), overflow);
    let spread = Datatype::hindexed(&[1, 1], &[isize::MIN, isize::MAX - 4], &int);
    assert_eq!(spread, overflow);
    // All are in one place, but are too many bytes together.
    let double = Predefined::Double.into();
    assert_eq!(Datatype::hvector(1 << 60, 1, 0, &double), overflow);
    let half = Datatype::hvector(1 << 59, 1, 0, &double).unwrap();
    assert_eq!(Datatype::structure(&[1, 1], &[0, 0], &[half.clone(), half]), overflow);
    // Only what the extent is rounded up to is too long.
    let [short, byte] = [Predefined::Short, Predefined::Byte].map(Datatype::from);
    assert_eq!(Datatype::structure(&[1, 1], &[-(1 << 62), (1 << 62) - 2], &[short, byte]), overflow);
}

#[test]
fn what_begins_before_its_buffer_is_out_of_bounds_however_many_there_are() {
    let early = Datatype::hindexed(&[1], &[-4], &Predefined::Int.into()).unwrap().resized(-4, 16).unwrap();
    let (memory, mut packed) = ([7; 64], [0; 8]);
    for count in [1, 2] {
        assert_eq!(early.pack(&memory, 3, count, 0, &mut packed), Err(OutOfBounds));
        assert_eq!(early.pack(&memory, 4, count, 0, &mut packed), Ok(4 * count));
    }
}

/// Blocks and grids may reach beyond what can be counted: the array does not.
#[test]
fn an_array_is_dealt_out_in_blocks_and_to_processes_of_any_number() {
    let int = Datatype::from(Predefined::Int);
    let size_at = |distribution, processes, rank| {
        let dimension = Dimension { size: 10, distribution, processes };
        Datatype::darray(rank, &[dimension], Order::C, &int).map(|datatype| datatype.size() / 4)
    };
    let many = usize::MAX;
    for block in [11, many / 2, many] {
        for distribution in [Distribution::Block(Some(block)), Distribution::Cyclic(Some(block))] {
            for (rank, expected) in [(0, 10), (1, 0), (2, 0)] {
                assert_eq!(size_at(distribution, 3, rank), Ok(expected), "{distribution:?} at {rank}");
            }
        }
    }
    for (distribution, last) in
        [(Distribution::Block(None), 9), (Distribution::Cyclic(None), 9), (Distribution::Cyclic(Some(3)), 3)]
    {
        for (rank, expected) in [(last, 1), (last + 1, 0), (many - 1, 0)] {
            assert_eq!(size_at(distribution, many, rank), Ok(expected), "{distribution:?} at {rank}");
        }
    }
}

#[test]
fn arrays_refuse_what_is_no_part_of_them() {
    let int = Predefined::Int.into();
    let part = |size, part, start| Datatype::subarray(&[9, size], &[9, part], &[0, start], Order::C, &int);
    assert!(part(5, 2, 3).is_ok());
    assert_eq!(part(5, 2, 4), Err(TypeError::Subarray(1)));
    assert_eq!(part(5, 0, 0), Err(TypeError::Subarray(1)));
    let dealt = |distribution, processes, rank| {
        Datatype::darray(rank, &[Dimension { size: 10, distribution, processes }], Order::C, &int)
    };
    assert!(dealt(Distribution::Block(Some(4)), 3, 2).is_ok());
    assert_eq!(dealt(Distribution::Block(Some(3)), 3, 2), Err(TypeError::Distribution(0)));
    assert_eq!(dealt(Distribution::Cyclic(Some(0)), 3, 2), Err(TypeError::Distribution(0)));
    assert_eq!(dealt(Distribution::None, 3, 2), Err(TypeError::Distribution(0)));
    assert_eq!(dealt(Distribution::Cyclic(None), 3, 3), Err(TypeError::Rank));
    assert_eq!(dealt(Distribution::Block(None), 0, 0), Err(TypeError::Distribution(0)));
}

#[test]
fn arrays_of_arguments_that_belong_together_have_one_length() {
    let int = Datatype::from(Predefined::Int);
    let array = |sizes: &[usize], subsizes: &[usize], starts: &[usize]| {
        Datatype::subarray(sizes, subsizes, starts, Order::C, &int)
    };
    let made = [
        array(&[2, 2], &[2], &[0, 0]),
        array(&[2, 2], &[2, 2], &[0]),
        Datatype::indexed(&[1], &[0, 1], &int),
        Datatype::hindexed(&[1, 1], &[0], &int),
        Datatype::structure(&[1, 1], &[0, 4], std::slice::from_ref(&int)),
        Datatype::structure(&[1], &[0, 4], &[int.clone(), int.clone()]),
    ];
    assert!(made.iter().all(|made| *made == Err(TypeError::Lengths)), "{made:?}");
}

/// The table of MPI-4.1 14.5.2 where sizes differ from the machine's, and the bytes of numbers known by heart.
#[test]
fn external_numbers_have_the_sizes_and_bytes_of_the_standard() {
    let external = |kind: Predefined, bytes: &[u8]| {
        let datatype = Datatype::from(kind);
        let mut out = vec![0; datatype.external_size(1).unwrap()];
        datatype.pack_external(bytes, 0, 1, &mut out)?;
        let mut back = vec![0; bytes.len()];
        datatype.unpack_external(&mut back, 0, 1, &out).unwrap();
        assert_eq!(back, bytes, "{}", kind.name());
        Ok(out)
    };
    let (nothing, many) = (Datatype::contiguous(0, &Predefined::Int.into()).unwrap(), isize::MAX as usize);
    assert_eq!(nothing.pack_external(&[], 0, many, &mut []), Ok(0), "at once");
    let int = Datatype::from(Predefined::Int);
    assert_eq!(int.pack_external(&[0; 4], 0, many + 2, &mut [0; 4]), Err(OutOfBounds.into()));
    assert_eq!(external(Predefined::Long, &(-2i64).to_ne_bytes()), Ok(vec![0xff, 0xff, 0xff, 0xfe]));
    assert_eq!(external(Predefined::UnsignedLong, &258u64.to_ne_bytes()), Ok(vec![0, 0, 1, 2]));
    assert_eq!(external(Predefined::Wchar, &0x20acu32.to_ne_bytes()), Ok(vec![0x20, 0xac]));
    let refused = |kind| Err(ExternalError::Conversion(kind));
    assert_eq!(external(Predefined::Long, &(1i64 << 31).to_ne_bytes()), refused(Predefined::Long));
    assert_eq!(external(Predefined::UnsignedLong, &(1u64 << 32).to_ne_bytes()), refused(Predefined::UnsignedLong));
    assert_eq!(external(Predefined::Int64, &258i64.to_ne_bytes()), Ok(vec![0, 0, 0, 0, 0, 0, 1, 2]));
    assert_eq!(external(Predefined::Float, &1f32.to_ne_bytes()), Ok(vec![0x3f, 0x80, 0, 0]));
    if Number::LONG_DOUBLE == Number::F80 {
        // -1.5: sign, exponent of zero, a one and a half.
        let mut bytes = [0; 16];
        bytes[7..10].copy_from_slice(&[0xc0, 0xff, 0xbf]);
        let quad = [0xbf, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(external(Predefined::LongDouble, &bytes), Ok(quad.to_vec()));
    }
    // More room, and more data, than are needed.
    let long = Datatype::from(Predefined::Long);
    assert_eq!(long.pack_external(&[0; 16], 0, 2, &mut [0; 20]), Ok(8));
    assert_eq!(long.unpack_external(&mut [0; 16], 0, 2, &[0; 20]), Ok(8));
    let short = Datatype::from(Predefined::Int).pack_external(&[0; 8], 0, 2, &mut [0; 7]);
    assert_eq!(short, Err(ExternalError::Short));
    let outside = Datatype::from(Predefined::Int).pack_external(&[0; 7], 0, 2, &mut [0; 8]);
    assert_eq!(outside, Err(ExternalError::OutOfBounds(OutOfBounds)));
}

/// What a compiler of C says of the structs.
#[test]
fn predefined_types_have_the_sizes_of_c() {
    #[repr(C)]
    struct ShortInt(i16, i32);
    #[repr(C)]
    struct DoubleInt(f64, i32);
    for (kind, extent) in [
        (Predefined::ShortInt, size_of::<ShortInt>()),
        (Predefined::DoubleInt, size_of::<DoubleInt>()),
        (Predefined::Long, size_of::<libc::c_long>()),
        (Predefined::Wchar, size_of::<libc::wchar_t>()),
    ] {
        assert_eq!(kind.extent(), extent, "{}", kind.name());
    }
    for kind in Predefined::ALL {
        let datatype = Datatype::from(*kind);
        assert_eq!((datatype.size(), datatype.extent()), (kind.size(), kind.extent() as isize), "{}", kind.name());
        assert_eq!(datatype.made(), &Made::Named(*kind));
        assert_eq!(Predefined::from_abi(kind.abi()), Some(*kind));
        assert_eq!(datatype.made().combiner(), 101);
    }
    assert_eq!(Predefined::from_abi(0x200), None);
}
