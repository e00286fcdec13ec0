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
        write!(
            f,
            "The doorbell's call lasts {:.0} ns at the sender, partly while the receiver has the frame already.\n\
             Each round trip is stamped at one border only. A reading of the clock costs {:.1} ns, taken off both boxes.",
            self.doorbell_ns, self.clock_ns
        )
    }
}
