//! Debian's kernel for the guests: downloaded once, never installed.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::QemuError;
use crate::cache;

/// A kernel and its modules.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The bootable image.
    pub image: PathBuf,
    /// Every module there is.
    modules: Vec<PathBuf>,
}

impl Kernel {
    /// The one unpacked in `folder` (with `boot/vmlinuz-*` and `lib/modules`).
    pub fn unpacked(folder: &Path) -> Result<Self, QemuError> {
        let boot = folder.join("boot");
        let images =
            fs::read_dir(&boot).map_err(|error| QemuError::NoKernel(format!("{}: {error}", boot.display())))?;
        let is_image =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"vmlinuz-"));
        let image = images.flatten().map(|entry| entry.path()).find(is_image);
        let image = image.ok_or_else(|| QemuError::NoKernel(format!("no vmlinuz-* in {}/boot", folder.display())))?;
        let mut modules = Vec::new();
        // Merged-/usr packages have the modules below /usr.
        for root in ["lib/modules", "usr/lib/modules"] {
            collect(&folder.join(root), &mut modules);
        }
        Ok(Self { image, modules })
    }

    /// The one in the user's cache, which is filled first if it is empty; `tell` hears about that.
    pub fn cached(tell: impl Fn(&str)) -> Result<Self, QemuError> {
        let cache = cache::folder().map_err(|error| {
            QemuError::NoKernel(format!("no folder to keep one in ({error}); have XDG_CACHE_HOME name one"))
        })?;
        // One at a time: a second command waits for the first one's download.
        let lock = fs::File::open(&cache).map_err(QemuError::file(&cache))?;
        lock.lock().map_err(QemuError::file(&cache))?;
        let unpacked = cache.join(UNPACKED);
        if !unpacked.exists() {
            tell("downloading Debian's kernel for the guests (70 MB, once)");
            fetch(&cache, &unpacked)?;
        }
        let Self { image, modules } = Self::unpacked(&unpacked)?;
        // Where that can't be done the image is as good, but for the time.
        let image = without_compression(&image, unpacked.join("vmlinux")).unwrap_or(image);
        Ok(Self { image, modules })
    }

    /// Modules and all that they need, in the order in which they need each other. What this kernel has no module of is built in.
    pub fn modules(&self, names: &[&str]) -> Result<Vec<Module>, QemuError> {
        with_dependencies(names, |name| self.module(name))
    }

    /// The module's content. `None` when this kernel has no such module.
    fn module(&self, name: &str) -> Result<Option<Vec<u8>>, QemuError> {
        let named = |ending: &str| {
            let is_it = |file: &str| file.strip_suffix(ending).is_some_and(|file| file.replace('-', "_") == name);
            self.modules.iter().find(|path| path.file_name().and_then(OsStr::to_str).is_some_and(is_it))
        };
        if let Some(path) = named(".ko") {
            return fs::read(path).map(Some).map_err(QemuError::file(path));
        }
        // From Debian 13 on.
        let Some(path) = named(".ko.xz") else { return Ok(None) };
        let mut xz = Command::new("xz");
        output(xz.arg("-dc").arg(path), "xz-utils").map(Some)
    }
}

/// A module of the kernel's.
#[derive(Debug, PartialEq, Eq)]
pub struct Module {
    /// As the kernel has it, with `_` where its file may have `-`.
    pub name: String,
    /// The file's.
    pub content: Vec<u8>,
}

/// See [`Kernel::modules`]; `content` is that of a module by its name.
fn with_dependencies(
    names: &[&str],
    content: impl Fn(&str) -> Result<Option<Vec<u8>>, QemuError>,
) -> Result<Vec<Module>, QemuError> {
    let mut sorted: Vec<Module> = Vec::new();
    let mut looked_at: Vec<String> = Vec::new();
    // Without content: to be looked at. With: on top of it is what it needs.
    let mut waiting: Vec<(String, Option<Vec<u8>>)> =
        names.iter().rev().map(|name| (underscored(name), None)).collect();
    while let Some((name, known)) = waiting.pop() {
        if let Some(content) = known {
            sorted.push(Module { name, content });
        } else if !looked_at.contains(&name) {
            looked_at.push(name.clone());
            let Some(content) = content(&name)? else { continue };
            let needed = depends(&content);
            waiting.push((name, Some(content)));
            waiting.extend(needed.into_iter().map(|name| (name, None)));
        }
    }
    Ok(sorted)
}

/// What a module says that it needs: `depends=a,b` among the strings of its section .modinfo (scripts/mod/modpost.c, add_depends).
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|bytes| bytes == KEY) else { return Vec::new() };
    let list = module[at + KEY.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(list).split(',').filter(|name| !name.is_empty()).map(underscored).collect()
}

fn underscored(name: &str) -> String {
    name.replace('-', "_")
}

/// Downloads the package that `linux-image-amd64` stands for, and unpacks what a guest can use of it.
fn fetch(cache: &Path, unpacked: &Path) -> Result<(), QemuError> {
    // Left behind by a command that was killed: we hold the lock, so nobody is at it.
    let part = cache.join("part");
    let _ = fs::remove_dir_all(&part);
    fs::create_dir_all(part.join("tree")).map_err(QemuError::file(&part))?;
    let fetched = fetch_to(&part, unpacked);
    let removed = fs::remove_dir_all(&part).map_err(QemuError::file(&part));
    fetched.and(removed)
}

fn fetch_to(part: &Path, unpacked: &Path) -> Result<(), QemuError> {
    let mut ask = Command::new("apt-cache");
    // Else it names what a package depends on in the user's language.
    ask.args(["depends", "linux-image-amd64"]).env("LC_ALL", "C");
    let depends = output(&mut ask, "apt")?;
    let depends = String::from_utf8_lossy(&depends);
    let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
    let Some(package) = package else {
        let reason =
            "apt knows no package linux-image-amd64 (this is Debian's; `sudo apt-get update` if its lists are empty)";
        return Err(QemuError::NoKernel(reason.into()));
    };
    // Root's downloads would go to a user of their own, who may not write here.
    let options = ["-qq", "-o", "APT::Sandbox::User=root", "download"];
    let mut download = Command::new("apt-get");
    output(download.args(options).arg(format!("linux-image-{package}")).current_dir(part), "apt")?;
    let found = fs::read_dir(part).map_err(QemuError::file(part))?;
    let mut debs =
        found.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "deb"));
    let deb = debs.next().ok_or_else(|| QemuError::NoKernel("apt-get downloaded nothing".into()))?;
    let system = |error| QemuError::System("unpack the kernel", error);
    let mut tar = Command::new("dpkg").arg("--fsys-tarfile").arg(deb).stdout(Stdio::piped()).spawn().map_err(system)?;
    let mut untar = Command::new("tar");
    untar.arg("-x").arg("-C").arg(part.join("tree")).arg("--wildcards").args(WANTED);
    let result = output(untar.stdin(Stdio::from(tar.stdout.take().expect("piped above"))), "tar");
    // It ends with its reader.
    tar.wait().map_err(system)?;
    result?;
    fs::rename(part.join("tree"), unpacked).map_err(QemuError::file(unpacked))
}

/// The kernel of a boot image, unpacked to `file` if it is not there: an emulated guest takes as long to unpack it as to boot.
fn without_compression(image: &Path, file: PathBuf) -> Option<PathBuf> {
    if file.exists() {
        return Some(file);
    }
    let part = file.with_extension("part");
    let content = fs::read(image).ok()?;
    fs::write(&part, payload(&content)?).ok()?;
    // What is no xz fails here.
    let unpacked = output(Command::new("xz").arg("-dc").stdin(fs::File::open(&part).ok()?), "xz-utils");
    let put = unpacked.ok().and_then(|kernel| fs::write(&part, kernel).and_then(|()| fs::rename(&part, &file)).ok());
    if put.is_none() {
        let _ = fs::remove_file(&part);
    }
    put.map(|()| file)
}

/// The compressed kernel in a boot image (Linux, Documentation/arch/x86/boot.rst: `setup_sects`, `payload_offset` and
/// `payload_length`), without the length of what it unpacks to, which is behind it.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    let setup = (usize::from(*image.get(0x1f1)?) + 1) * 512;
    let (start, len) = (setup.checked_add(number(0x248)?)?, number(0x24c)?.checked_sub(4)?);
    (image.get(0x202..0x206)? == b"HdrS").then_some(())?;
    image.get(start..start.checked_add(len)?)
}

/// Its folder in the cache. Another name whenever [`WANTED`] changes: what was unpacked before lacks what is wanted now.
const UNPACKED: &str = "kernel-2";

/// The image, and the folders of the modules that [`super::Model`] and [`super::Binding`] name, and of what those need in any kernel.
const WANTED: [&str; 12] = [
    "./boot/vmlinuz-*",
    "*/kernel/drivers/uio/*",
    // VFIO needs iommufd from 6.2 on. tar fails where nothing is the first that a pattern matches, so this is one for VFIO's own too.
    "*/kernel/drivers/*/*iommu*",
    "*/kernel/drivers/vfio/*",
    "*/kernel/drivers/virtio/*",
    "*/kernel/drivers/net/virtio_net.ko*",
    "*/kernel/drivers/net/net_failover.ko*",
    "*/kernel/drivers/net/vmxnet3/*",
    "*/kernel/drivers/net/ethernet/intel/e1000*",
    "*/kernel/net/core/failover.ko*",
    "*/kernel/virt/lib/*",
    // virtio_net needs dimlib from 6.10 on.
    "*/kernel/lib/*",
];

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect(&entry.path(), into),
            Ok(_) => into.push(entry.path()),
            Err(_) => {}
        }
    }
}

/// What a program prints. Its failure is told with its last words.
fn output(command: &mut Command, package: &'static str) -> Result<Vec<u8>, QemuError> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(QemuError::Program(name, said.lines().last().unwrap_or("without a word").to_owned()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(QemuError::Missing { what: name, package }),
        Err(error) => Err(QemuError::Program(name, error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_after_what_they_need() {
        let content = |name: &str| {
            let depends = match name {
                "virtio_net" => "net_failover,virtio,virtio-ring",
                "net_failover" => "failover",
                "virtio" => "virtio_ring,built_in",
                "failover" | "virtio_ring" => "",
                // No kernel has such ones; they must not keep us for ever.
                "one" => "other",
                "other" => "one",
                _ => return Ok(None),
            };
            Ok(Some(format!("\0license=GPL\0depends={depends}\0name={name}\0").into_bytes()))
        };
        let sorted = |names: &[&str]| -> Vec<String> {
            with_dependencies(names, content).unwrap().into_iter().map(|module| module.name).collect()
        };
        assert_eq!(
            sorted(&["virtio", "virtio-net"]),
            ["virtio_ring", "virtio", "failover", "net_failover", "virtio_net"]
        );
        assert_eq!(sorted(&["built_in"]), [""; 0]);
        assert_eq!(sorted(&["one"]).len(), 2);
        assert_eq!(depends(b"\0depends=a"), ["a"]);
        assert_eq!(depends(b"no module"), [""; 0]);
    }

    #[test]
    fn a_kernel_is_found_in_its_boot_image() {
        let mut image = vec![0; 3 * 512 + 20 + 9 + 4];
        image[0x1f1] = 2;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x250].copy_from_slice(&[20, 0, 0, 0, 13, 0, 0, 0]);
        image[3 * 512 + 20..][..9].copy_from_slice(b"a kernel.");
        assert_eq!(payload(&image), Some(&b"a kernel."[..]));
        for cut in [0, 0x205, 0x24f, image.len() - 5] {
            assert_eq!(payload(&image[..cut]), None, "{cut}");
        }
        for wrong in [[0xff; 8], [0; 8]] {
            image[0x248..0x250].copy_from_slice(&wrong);
            assert_eq!(payload(&image), None, "{wrong:?}");
        }
        assert_eq!(payload(&[0; 1024]), None, "another file");
    }
}
