//! Reads OpenFlow messages and writes them again: `reencode DIRECTORY FILE…` reads one message from each file and
//! writes `DIRECTORY/<file's name>` with what the crate makes of it; where it refuses the message, a line `FILE: ERROR`
//! says why.

use sluice_openflow::Message;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, files @ ..] = &arguments[..] else {
        eprintln!("usage: reencode DIRECTORY FILE…");
        return ExitCode::from(2);
    };
    for file in files {
        if let Err(error) = reencode(Path::new(directory), Path::new(file)) {
            eprintln!("{file}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn reencode(directory: &Path, file: &Path) -> std::io::Result<()> {
    let bytes = std::fs::read(file)?;
    match Message::read(&bytes, false) {
        Ok((version, xid, message)) => {
            let name = file.file_name().unwrap_or_default();
            std::fs::write(directory.join(name), message.write(version, xid))
        }
        Err(error) => {
            println!("{}: {error}", file.display());
            Ok(())
        }
    }
}
