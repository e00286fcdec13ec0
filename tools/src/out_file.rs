//! A file that a command writes at its end, and looks at before it begins: what stood in it stays until then. Or standard
//! output, and then what is for people goes beside it.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use crate::interrupt::Unfinished;

/// Where figures go.
#[derive(Debug)]
pub struct OutFile {
    /// As the user has named it.
    named: PathBuf,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// Written beside it, and put in its place by a rename.
    Beside { place: PathBuf, part: PathBuf },
    /// What is no file (a pipe, a terminal), or stands where nothing can be put beside it, is written to.
    Through,
    /// A descriptor of ours (`/dev/fd/3`): whoever opened it may have begun the file that it leads to.
    Descriptor(u32),
    /// `-`: our standard output.
    Output,
}

/// A file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", file.display())]
pub struct WriteError {
    file: PathBuf,
    source: io::Error,
}

impl OutFile {
    /// Finds out whether `file`, or standard output for `-`, can be written, and leaves everything as it is.
    pub fn new(file: &Path) -> Result<Self, WriteError> {
        let failed = |source| WriteError { file: file.to_owned(), source };
        let way = match (descriptor(file), fs::metadata(file)) {
            _ if file.as_os_str() == "-" => Way::Output,
            (Some(1), Ok(_)) => Way::Output,
            (Some(number), Ok(_)) => Way::Descriptor(number),
            (_, Ok(there)) if there.is_dir() => return Err(failed(ErrorKind::IsADirectory.into())),
            (_, Ok(there)) if !there.is_file() => Way::Through,
            (_, Ok(_)) => match Way::beside(fs::canonicalize(file).map_err(failed)?) {
                Err(_) if File::options().write(true).open(file).is_ok() => Way::Through,
                way => way.map_err(failed)?,
            },
            (_, Err(error)) if error.kind() == ErrorKind::NotFound => Way::beside(led_to(file)).map_err(failed)?,
            (_, Err(error)) => return Err(failed(error)),
        };
        Ok(Self { named: file.to_owned(), way })
    }

    /// The same of a file that may not be asked for.
    pub fn new_if_any(file: Option<&PathBuf>) -> Result<Option<Self>, WriteError> {
        file.map(|file| Self::new(file)).transpose()
    }

    /// True when what is written to the one takes the place of what is written to the other, or stands among it.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.way, &other.way) {
            (Way::Beside { place: one, .. }, Way::Beside { place: other, .. }) => one == other,
            (Way::Output, Way::Output) => true,
            (Way::Descriptor(one), Way::Descriptor(other)) => one == other,
            _ => false,
        }
    }

    /// True when nothing else may stand in our standard output.
    pub fn is_output(&self) -> bool {
        matches!(self.way, Way::Output)
    }

    /// Writes all of it.
    pub fn write(&self, text: &str) -> Result<(), WriteError> {
        let written = match &self.way {
            Way::Through => fs::write(&self.named, text),
            Way::Descriptor(_) => {
                File::options().append(true).open(&self.named).and_then(|mut file| file.write_all(text.as_bytes()))
            }
            Way::Output => {
                crate::say(text.trim_end());
                Ok(())
            }
            Way::Beside { place, part } => {
                let part = Unfinished::new(part.clone());
                let write = || {
                    let mut file = File::create_new(part.path())?;
                    file.write_all(text.as_bytes())?;
                    if let Some(former) = fs::symlink_metadata(place).ok().filter(fs::Metadata::is_file) {
                        // Of a user whose file root writes, by `sudo`; nobody else can give one away. By the descriptor: somebody may have put
                        // a link to another's file in its place by now.
                        let _ = fchown(&file, Some(former.uid()), Some(former.gid()));
                        file.set_permissions(former.permissions())?;
                    }
                    fs::rename(part.path(), place)
                };
                write()
            }
        };
        written.map_err(|source| WriteError { file: self.named.clone(), source })
    }
}

/// Prints what is for people: to standard output, or, where one of `files` is that, beside it.
pub fn show<'a>(text: impl Display, files: impl IntoIterator<Item = &'a OutFile>) {
    if files.into_iter().any(OutFile::is_output) { crate::tell(text) } else { crate::say(text) }
}

/// Which descriptor of this process `file` is a name of: `/dev/stdout`, `/dev/fd/3`, and what links to them.
fn descriptor(file: &Path) -> Option<u32> {
    let mut file = file.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = fs::canonicalize(file.parent()?).ok()?;
        if folder == fs::canonicalize("/proc/self/fd").ok()? {
            return file.file_name()?.to_str()?.parse().ok();
        }
        file = folder.join(fs::read_link(&file).ok()?);
    }
    None
}

/// Where a file that is not there yet shall be, by one name for all that lead there.
fn led_to(file: &Path) -> PathBuf {
    let mut file = file.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (Ok(folder), Some(name)) = (fs::canonicalize(folder), file.file_name()) else { break };
        file = folder.join(name);
        match fs::read_link(&file) {
            Ok(to) => file = folder.join(to),
            Err(_) => break,
        }
    }
    file
}

/// As many as the kernel follows (path_resolution(7)).
const LINKS_MAX: usize = 40;

impl Way {
    fn beside(place: PathBuf) -> io::Result<Self> {
        let mut part = place.clone().into_os_string();
        part.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(part);
        // Of a command that was killed and had our number. No link that somebody else has put there is followed.
        let _ = fs::remove_file(&part);
        File::create_new(&part)?;
        fs::remove_file(&part)?;
        Ok(Self::Beside { place, part })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stood_there_stays_until_all_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let file = folder.path().join("out.json");
        let new = OutFile::new(&file).unwrap();
        assert_eq!(names(), 0, "nothing is begun");
        new.write("former").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let again = OutFile::new(&link).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "former");
        again.write("later").unwrap();
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), names()), ("later", 2));
        assert!(link.is_symlink());
    }

    #[test]
    fn one_descriptor_by_two_names_is_one_output() {
        use std::os::fd::AsRawFd;
        let there = tempfile::tempfile().unwrap();
        let of = |folder: &str| OutFile::new(&Path::new(folder).join(there.as_raw_fd().to_string())).unwrap();
        assert!(of("/dev/fd").is_same(&of("/proc/self/fd")));
        assert!(!of("/dev/fd").is_same(&OutFile::new(Path::new("/dev/null")).unwrap()));
    }

    #[test]
    fn a_file_keeps_who_may_read_it_and_a_link_leads_to_a_new_one() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("out.json"), folder.path().join("link"));
        symlink("out.json", &link).unwrap();
        OutFile::new(&link).unwrap().write("new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        OutFile::new(&link).unwrap().write("again").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(link.is_symlink());
    }

    #[test]
    fn a_users_file_that_root_writes_stays_the_users() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.json");
        fs::write(&file, "former").unwrap();
        if std::os::unix::fs::chown(&file, Some(65_534), Some(65_534)).is_err() {
            println!("skipped: not root, who alone can give files away");
            return;
        }
        OutFile::new(&file).unwrap().write("new").unwrap();
        let metadata = fs::metadata(&file).unwrap();
        assert_eq!(
            (metadata.uid(), metadata.gid(), fs::read_to_string(&file).unwrap()),
            (65_534, 65_534, "new".into())
        );
    }

    #[test]
    fn a_link_in_the_place_of_the_part_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("out.json"), folder.path().join("other"));
        fs::write(&other, "precious").unwrap();
        let part = folder.path().join(format!("out.json.{}.part", std::process::id()));
        std::os::unix::fs::symlink(&other, &part).unwrap();
        let out = OutFile::new(&file).unwrap();
        std::os::unix::fs::symlink(&other, &part).unwrap();
        assert!(out.write("text").is_err());
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
        assert!(!part.is_symlink() && !file.exists());
    }

    #[test]
    fn what_a_descriptor_leads_to_is_added_to() {
        use std::os::fd::AsRawFd;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log");
        fs::write(&file, "precious\n").unwrap();
        let opened = File::options().append(true).open(&file).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(format!("/dev/fd/{}", opened.as_raw_fd()), &link).unwrap();
        OutFile::new(&link).unwrap().write("text").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious\ntext");
        assert!(OutFile::new(Path::new("/dev/stdout")).unwrap().is_output());
    }

    #[test]
    fn two_names_of_one_file_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("x"), folder.path().join("link"));
        std::os::unix::fs::symlink("x", &link).unwrap();
        let [one, other, third] = [&file, &link, &folder.path().join("y")].map(|file| OutFile::new(file).unwrap());
        assert!(one.is_same(&other) && !one.is_same(&third));
        // A way about, a link to the folder, and a link to a link.
        let about = folder.path().join("./folder/../x");
        fs::create_dir(folder.path().join("folder")).unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("whole")).unwrap();
        std::os::unix::fs::symlink("link", folder.path().join("chain")).unwrap();
        for name in [about, folder.path().join("whole/x"), folder.path().join("whole/chain")] {
            assert!(one.is_same(&OutFile::new(&name).unwrap()), "{}", name.display());
        }
        OutFile::new(&folder.path().join("chain")).unwrap().write("text").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "links stay");
    }

    #[test]
    fn what_cannot_be_put_in_its_place_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.json");
        let out = OutFile::new(&file).unwrap();
        fs::create_dir(&file).unwrap();
        let error = out.write("text").unwrap_err().to_string();
        assert!(error.contains("cannot write "), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_file_is_written_to_and_what_cannot_be_written_is_told_at_once() {
        OutFile::new(Path::new("/dev/null")).unwrap().write("text").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        for nowhere in ["/proc/no/such/place.json", "/"] {
            let error = OutFile::new(Path::new(nowhere)).unwrap_err().to_string();
            assert!(error.contains(&format!("cannot write {nowhere}")), "{error}");
        }
    }
}
