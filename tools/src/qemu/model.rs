//! NIC models, and the kernel modules that go with them.

use std::fmt;

use clap::ValueEnum;

/// A NIC that QEMU emulates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Model {
    /// Intel 82574L, PCI Express
    E1000e,
    /// Intel 82540EM, PCI
    E1000,
    /// Virtio over PCI
    #[value(name = "virtio-net-pci")]
    VirtioNetPci,
    /// VMware's paravirtual NIC
    Vmxnet3,
}

/// What a guest's NICs are bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Binding {
    /// Userspace I/O: every bus address is open to the program (driver string dpdk:ADDRESS)
    #[value(name = "uio_pci_generic")]
    Uio,
    /// VFIO behind an IOMMU, as a machine of today would be set up (driver string dpdk:ADDRESS)
    #[value(name = "vfio-pci")]
    Vfio,
    /// The kernel's own driver (driver string uring:INTERFACE)
    Kernel,
}

impl Model {
    /// All, in the order of the command line's help.
    pub const ALL: [Self; 4] = [Self::E1000e, Self::E1000, Self::VirtioNetPci, Self::Vmxnet3];

    /// QEMU's name.
    pub fn device(self) -> &'static str {
        match self {
            Self::E1000e => "e1000e",
            Self::E1000 => "e1000",
            Self::VirtioNetPci => "virtio-net-pci",
            Self::Vmxnet3 => "vmxnet3",
        }
    }

    /// Modules of the kernel's driver, without those that they say they need.
    pub fn modules(self) -> &'static [&'static str] {
        match self {
            Self::E1000e => &["e1000e"],
            Self::E1000 => &["e1000"],
            Self::VirtioNetPci => &["virtio_pci", "virtio_net"],
            Self::Vmxnet3 => &["vmxnet3"],
        }
    }

    /// What QEMU must be told so that the device's DMA passes the emulated IOMMU; the others' always does.
    pub fn behind_iommu(self) -> &'static str {
        match self {
            Self::VirtioNetPci => ",iommu_platform=on,disable-legacy=on",
            Self::E1000e | Self::E1000 | Self::Vmxnet3 => "",
        }
    }
}

impl Binding {
    /// Name of the kernel driver to be written to `driver_override`; none for the kernel's own.
    pub fn driver(self) -> Option<&'static str> {
        match self {
            Self::Uio => Some("uio_pci_generic"),
            Self::Vfio => Some("vfio-pci"),
            Self::Kernel => None,
        }
    }

    /// Its modules, likewise.
    pub fn modules(self) -> &'static [&'static str] {
        match self {
            Self::Uio => &["uio_pci_generic"],
            Self::Vfio => &["vfio_iommu_type1", "vfio-pci"],
            Self::Kernel => &[],
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.device())
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.driver().unwrap_or("the kernel's driver"))
    }
}
