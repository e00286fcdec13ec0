//! Where a type's bytes are, run by run: for who has to tell another process, which has not got the type.

use super::Datatype;
use super::layout::{Layout, Shape};

impl Datatype {
    /// Calls `each` with the runs of bytes that `count` elements are, in the order in which they are packed: where each begins,
    /// relative to the buffer's address, and its length. The caller has seen that [`Self::span`] does not overflow.
    pub fn each_run(&self, count: usize, each: &mut impl FnMut(isize, usize)) {
        let (layout, extent) = (&self.0.map.layout, self.extent());
        match layout.widened(count, extent) {
            Some(all) => visit(&all, 0, each),
            None => (0..count).for_each(|index| visit(layout, index as isize * extent, each)),
        }
    }
}

fn visit(layout: &Layout, at: isize, each: &mut impl FnMut(isize, usize)) {
    let at = at + layout.at;
    match &layout.shape {
        _ if layout.size == 0 => {}
        Shape::Run => each(at, layout.size),
        Shape::Strided { count, len, stride } => {
            (0..*count).for_each(|index| each(at + index as isize * stride, *len));
        }
        Shape::Blocks { len, places } => places.iter().for_each(|place| each(at + place, *len)),
        Shape::Runs(runs) => {
            let mut begin = 0;
            for run in runs.iter() {
                each(at + run.place, run.end - begin);
                begin = run.end;
            }
        }
        Shape::Repeat { count, stride, body } => {
            (0..*count).for_each(|index| visit(body, at + index as isize * stride, each));
        }
        Shape::Sequence(parts) => parts.iter().for_each(|part| visit(&part.layout, at, each)),
    }
}

#[cfg(test)]
mod tests {
    use crate::datatype::{Datatype, Predefined};

    /// Runs, read in their order, are what packing reads.
    #[test]
    fn runs_are_what_is_packed() {
        let byte = Datatype::from(Predefined::Byte);
        let short = Datatype::from(Predefined::ShortInt);
        let column = Datatype::vector(3, 2, 5, &byte).unwrap();
        let plane = Datatype::hvector(2, 2, 40, &column).unwrap();
        let blocks = Datatype::indexed(&[2, 1, 4], &[7, 0, 20], &byte).unwrap();
        let memory: Vec<u8> = (0..=255).collect();
        let parts = [column.clone(), blocks.clone(), plane.clone()];
        let mixed = Datatype::structure(&[1, 2, 1], &[3, 100, 90], &parts).unwrap();
        for kind in [byte, short, column, plane, blocks, mixed] {
            for count in [0, 1, 2] {
                let mut packed = vec![0; kind.pack_size(count).unwrap()];
                let Ok(_) = kind.pack(&memory, 0, count, 0, &mut packed) else { continue };
                let mut read = Vec::new();
                kind.each_run(count, &mut |at, len| read.extend_from_slice(&memory[at as usize..at as usize + len]));
                assert_eq!(read, packed, "{kind:?}");
            }
        }
    }
}
