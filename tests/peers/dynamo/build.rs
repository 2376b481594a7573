//! Compiles the relay's contract from torc's own file.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = "../../../src/relay";
    println!("cargo::rerun-if-changed={folder}/relay.proto");
    let descriptors = protox::compile(["relay.proto"], [folder])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
