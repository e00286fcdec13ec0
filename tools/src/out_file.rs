//! A file that a command writes at its end, and looks at before it begins: what stood in it stays until then. Or standard
//! output, and then what is for people goes beside it.

use std::fmt::Display;
use std::fs::{self, File};
use std::io;
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
    /// What is no file (`/dev/stdout`, a pipe) is written to.
    Through,
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
    /// Finds out whether `file` can be written, and leaves everything as it is.
    pub fn new(file: &Path) -> Result<Self, WriteError> {
        let failed = |source| WriteError { file: file.to_owned(), source };
        let way = match fs::metadata(file) {
            Ok(there) if there.is_dir() => return Err(failed(io::ErrorKind::IsADirectory.into())),
            Ok(there) if !there.is_file() => Way::Through,
            Ok(_) => Way::beside(fs::canonicalize(file).map_err(failed)?).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Way::beside(file.to_owned()).map_err(failed)?,
            Err(error) => return Err(failed(error)),
        };
        Ok(Self { named: file.to_owned(), way })
    }

    /// The same of a file that may not be asked for, and may be `-`, for standard output.
    pub fn new_if_any(file: Option<&PathBuf>) -> Result<Option<Self>, WriteError> {
        let new = |file: &PathBuf| match file.as_os_str().as_encoded_bytes() {
            b"-" => Ok(Self { named: file.clone(), way: Way::Output }),
            _ => Self::new(file),
        };
        file.map(new).transpose()
    }

    /// True when nothing else may stand in our standard output.
    pub fn is_output(&self) -> bool {
        matches!(self.way, Way::Output)
    }

    /// Writes all of it.
    pub fn write(&self, text: &str) -> Result<(), WriteError> {
        let written = match &self.way {
            Way::Through => fs::write(&self.named, text),
            Way::Output => {
                crate::say(text.trim_end());
                Ok(())
            }
            Way::Beside { place, part } => {
                let part = Unfinished::new(part.clone());
                fs::write(part.path(), text).and_then(|()| fs::rename(part.path(), place))
            }
        };
        written.map_err(|source| WriteError { file: self.named.clone(), source })
    }
}

/// Prints what is for people: to standard output, or, where one of `files` is that, beside it.
pub fn show(text: impl Display, files: &[&Option<OutFile>]) {
    match files.iter().any(|file| file.as_ref().is_some_and(OutFile::is_output)) {
        true => crate::tell(text),
        false => crate::say(text),
    }
}

impl Way {
    fn beside(place: PathBuf) -> io::Result<Self> {
        let mut part = place.clone().into_os_string();
        part.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(part);
        File::create(&part)?;
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
