//! The `torc` binary: hands its arguments to the library.

fn main() -> std::process::ExitCode {
    torc::cli::main(std::env::args_os())
}
