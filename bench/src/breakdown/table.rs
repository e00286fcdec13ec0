//! A breakdown as a table for people.

use std::fmt;

use super::{Breakdown, Messages};

impl fmt::Display for Breakdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (white, black) = (self.white_box_ns(), self.black_box_ns);
        writeln!(
            f,
            "Where a half round trip of {} B{} on {} goes, ns (means of {} round trips)",
            self.size,
            if self.messages == Messages::Active { " of Active Messages" } else { "" },
            self.nic,
            self.samples
        )?;
        for part in &self.parts {
            let share = 100.0 * part.ns / white;
            writeln!(f, "  {:<7} {:<41}{:>8.1} {share:>5.1} %", part.layer, part.what, part.ns)?;
        }
        writeln!(f, "  {:<48} {white:>8.1}", "white box: sum of the above")?;
        writeln!(f, "  {:<48} {black:>8.1}", "black box: half round trip without stamps")?;
        let unexplained = black - white;
        writeln!(f, "  {:<48} {unexplained:>+8.1} {:>+5.1} %", "unexplained", 100.0 * unexplained / black)?;
        let lowest = self.parts.iter().map(|part| part.ns).fold(self.doorbell_ns, f64::min);
        if lowest < -NOISE * white {
            writeln!(
                f,
                "Parts below zero: the round trips were too few, or too unlike each other, for any part to be relied on. Let nothing\n\
                 else run meanwhile, or name shorter messages with --sizes."
            )?;
        }
        write!(
            f,
            "The doorbell's call lasts {:.0} ns at the sender, partly while the receiver has the frame already.\n\
             Each round trip is stamped at one border only. A reading of the clock costs {:.1} ns, taken off both boxes; with the\n\
             push into the buffer of stamps, which comes after the round trip, {:.1} ns.",
            self.doorbell_ns, self.clock_ns, self.stamped_ns
        )
    }
}

/// A part may be below zero by this share of the half round trip without a word: our choice, so that what the table shows as next to
/// nothing is not called unreliable. What cannot be relied on is off by far more than a percent.
const NOISE: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::super::{Breakdowns, Part};
    use super::*;
    use crate::ladder::NicKind;

    #[test]
    fn a_page_has_a_chart_of_the_parts() {
        let parts = [("proto", 30.0), ("driver", 70.0)].map(|(layer, ns)| Part { layer, what: "sends", ns }).to_vec();
        let (nic, messages) = (NicKind::Shm, Messages::Plain);
        let (size, samples, doorbell_ns, black_box_ns, clock_ns, stamped_ns) = (8, 9, 1.0, 101.0, 9.5, 12.5);
        let one = Breakdown { nic, messages, size, samples, parts, doorbell_ns, black_box_ns, clock_ns, stamped_ns };
        let page = Breakdowns::new(vec![one.clone(), one]).to_html();
        assert!(page.matches("<svg").count() == 2 && page.matches("<rect").count() == 4, "{page}");
        assert!(page.contains("driver: sends") && page.contains("70 ns") && page.contains("white box"), "{page}");
        assert!(page.contains("costs 9.5 ns") && page.contains("12.5 ns"), "{page}");
    }

    #[test]
    fn parts_that_cannot_be_are_told() {
        let text = |ns: [f64; 2], doorbell_ns| {
            let parts = ns.map(|ns| Part { layer: "driver", what: "lends a buffer", ns }).to_vec();
            let (nic, messages) = (NicKind::Shm, Messages::Plain);
            let times = Breakdown {
                nic,
                messages,
                size: 8,
                samples: 9,
                parts,
                doorbell_ns,
                black_box_ns: 100.0,
                clock_ns: 1.0,
                stamped_ns: 2.0,
            };
            times.to_string()
        };
        for (ns, doorbell_ns, is_told) in [
            ([100.0, -0.5], 9.0, false),
            ([100.0, 0.0], 0.0, false),
            ([120.0, -20.0], 9.0, true),
            ([99.0, 1.0], -9.0, true),
        ] {
            assert_eq!(text(ns, doorbell_ns).contains("Parts below zero"), is_told, "{ns:?} {doorbell_ns}");
        }
    }
}
