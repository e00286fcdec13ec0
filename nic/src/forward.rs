//! What a driver that wraps a driver leaves to the one within.

/// Writes methods of [`Nic`](crate::Nic) that ask the driver in a field for the same, so that only what a wrapper changes is to be read.
/// The field comes first, then the methods.
///
/// Those that the trait provides are forwarded only if they are named, and of one that is named nothing that the wrapper means to change
/// is left.
///
/// ```
/// use sidelane_nic::mem::{Config, Fabric};
/// use sidelane_nic::{LinkAddr, Nic, forward};
///
/// /// Shows one frame at a time.
/// struct OneByOne<N>(N);
///
/// impl<N: Nic> Nic for OneByOne<N> {
///     const RELIABLE: bool = N::RELIABLE;
///
///     forward!(0: caps, link, link_back, confirm, unlink, has_unread, tx_slot, tx_slot_before, flush, wait, waker, is_gone, counters, now);
///
///     fn rx_burst(&mut self, budget: usize, each: impl FnMut(&[u8], LinkAddr)) -> usize {
///         self.0.rx_burst(budget.min(1), each)
///     }
/// }
///
/// let nic = OneByOne(Fabric::new(0).nic(Config::default()));
/// assert_eq!(nic.caps().addr, LinkAddr::Mem { node: 0 });
/// ```
#[macro_export]
macro_rules! forward {
    ($nic:tt: $($method:ident),+ $(,)?) => { $($crate::forward!(@$method $nic);)+ };
    (@caps $nic:tt) => {
        #[inline]
        fn caps(&self) -> &$crate::Caps {
            self.$nic.caps()
        }
    };
    (@link $nic:tt) => {
        #[inline]
        fn link(&mut self, to: $crate::LinkAddr) -> Result<$crate::Link, $crate::LinkError> {
            self.$nic.link(to)
        }
    };
    (@link_back $nic:tt) => {
        #[inline]
        fn link_back(&mut self, to: $crate::LinkAddr) -> Result<$crate::Link, $crate::LinkError> {
            self.$nic.link_back(to)
        }
    };
    (@confirm $nic:tt) => {
        #[inline]
        fn confirm(&mut self, link: $crate::Link) {
            self.$nic.confirm(link);
        }
    };
    (@unlink $nic:tt) => {
        #[inline]
        fn unlink(&mut self, link: $crate::Link) {
            self.$nic.unlink(link);
        }
    };
    (@rx_burst $nic:tt) => {
        #[inline]
        fn rx_burst(&mut self, budget: usize, each: impl FnMut(&[u8], $crate::LinkAddr)) -> usize {
            self.$nic.rx_burst(budget, each)
        }
    };
    (@has_unread $nic:tt) => {
        #[inline]
        fn has_unread(&mut self) -> bool {
            self.$nic.has_unread()
        }
    };
    (@tx_slot $nic:tt) => {
        #[inline]
        fn tx_slot(&mut self, link: $crate::Link, len: usize) -> Option<impl $crate::TxSlot + '_> {
            self.$nic.tx_slot(link, len)
        }
    };
    (@tx_slot_before $nic:tt) => {
        #[inline]
        fn tx_slot_before<'a>(
            &'a mut self,
            link: $crate::Link,
            len: usize,
            tail: &'a [u8],
        ) -> Option<impl $crate::TxSlot + 'a> {
            self.$nic.tx_slot_before(link, len, tail)
        }
    };
    (@flush $nic:tt) => {
        #[inline]
        fn flush(&mut self) {
            self.$nic.flush();
        }
    };
    (@wait $nic:tt) => {
        #[inline]
        fn wait(&mut self, deadline: Option<$crate::time::Instant>) -> std::io::Result<()> {
            self.$nic.wait(deadline)
        }
    };
    (@waker $nic:tt) => {
        #[inline]
        fn waker(&mut self) -> std::io::Result<std::task::Waker> {
            self.$nic.waker()
        }
    };
    (@is_gone $nic:tt) => {
        #[inline]
        fn is_gone(&self, link: $crate::Link) -> bool {
            self.$nic.is_gone(link)
        }
    };
    (@counters $nic:tt) => {
        #[inline]
        fn counters(&self) -> $crate::Counters {
            self.$nic.counters()
        }
    };
    (@diagnosis $nic:tt) => {
        #[inline]
        fn diagnosis(&self) -> Option<String> {
            self.$nic.diagnosis()
        }
    };
    (@now $nic:tt) => {
        #[inline]
        fn now(&self) -> $crate::time::Instant {
            self.$nic.now()
        }
    };
}
