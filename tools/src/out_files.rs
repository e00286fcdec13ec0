//! The files that a command which measures writes its figures to.

use std::fmt::Display;
use std::path::PathBuf;

use clap::Args;

use crate::out_file::{self, OutFile, WriteError};

/// Where figures go beside the terminal.
#[derive(Clone, Debug, Default, Args)]
pub struct FileArgs {
    /// Write all figures as JSON; `-` to standard output, where then nothing else stands
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page for a browser, `-` as with --json: charts, the tables, and all figures
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// The same, found to be writable.
#[derive(Debug)]
pub struct OutFiles {
    json: Option<OutFile>,
    html: Option<OutFile>,
    csv: Option<OutFile>,
}

/// Figures cannot go where they were to go.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("there is room for one: give different files to --json, --html and --csv")]
    OneOutput,
}

impl OutFiles {
    /// Finds out whether the files can be written, and leaves everything as it is.
    pub fn new(args: &FileArgs, csv: Option<&PathBuf>) -> Result<Self, FilesError> {
        let [json, html, csv] = [args.json.as_ref(), args.html.as_ref(), csv].map(OutFile::new_if_any);
        let files = Self { json: json?, html: html?, csv: csv? };
        let named: Vec<&OutFile> = files.all().collect();
        let is_twice = |(at, file): (usize, &&OutFile)| named[..at].iter().any(|other| other.is_same(file));
        if named.iter().enumerate().any(is_twice) { Err(FilesError::OneOutput) } else { Ok(files) }
    }

    /// Shows what is for people, on standard output unless figures go there.
    pub fn show(&self, text: impl Display) {
        out_file::show(text, self.all());
    }

    /// Writes what was asked for.
    pub fn write(
        &self,
        json: impl FnOnce() -> String,
        html: impl FnOnce() -> String,
        csv: impl FnOnce() -> String,
    ) -> Result<(), WriteError> {
        self.json.as_ref().map_or(Ok(()), |file| file.write(&json()))?;
        self.html.as_ref().map_or(Ok(()), |file| file.write(&html()))?;
        self.csv.as_ref().map_or(Ok(()), |file| file.write(&csv()))
    }

    fn all(&self) -> impl Iterator<Item = &OutFile> {
        [&self.json, &self.html, &self.csv].into_iter().flatten()
    }
}
