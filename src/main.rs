//! The `torc` binary: arguments, exit codes, hand over to the library.

fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
