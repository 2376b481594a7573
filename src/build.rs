//! Compiles the relay's messages and service from `relay/relay.proto`, in Rust alone.
//!
//! They go to three folders, so that the machines of `relay` know nothing of gRPC: `messages/`
//! holds plain messages, `service/` and `client/` the two ends of the service over them.

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    // tests/loom builds `ckf` with other atomics.
    println!("cargo::rustc-check-cfg=cfg(loom)");
    #[cfg(feature = "relay")]
    if let Err(error) = relay::compile() {
        println!("cargo::error=src/relay/relay.proto: {error}");
    }
}

#[cfg(feature = "relay")]
mod relay {
    use std::error::Error;
    use std::path::PathBuf;

    use protox::prost_reflect::prost::Message;

    const PROTO: &str = "src/relay/relay.proto";
    const PACKAGE: &str = ".dynamo.kvrelay.v1";

    pub(super) fn compile() -> Result<(), Box<dyn Error>> {
        println!("cargo::rerun-if-changed={PROTO}");
        let out = PathBuf::from(std::env::var("OUT_DIR")?);
        let descriptors = protox::compile([PROTO], ["src"])?;
        std::fs::write(out.join("relay.bin"), descriptors.encode_to_vec())?;
        let folder = |name: &str| -> Result<PathBuf, std::io::Error> {
            let folder = out.join(name);
            std::fs::create_dir_all(&folder)?;
            Ok(folder)
        };
        tonic_prost_build::configure()
            .build_client(false)
            .build_server(false)
            .bytes(".")
            .out_dir(folder("messages")?)
            .compile_fds(descriptors.clone())?;
        tonic_prost_build::configure()
            .build_client(false)
            .extern_path(PACKAGE, "crate::relay::proto")
            .out_dir(folder("service")?)
            .compile_fds(descriptors.clone())?;
        tonic_prost_build::configure()
            .build_server(false)
            .extern_path(PACKAGE, "crate::relay::proto")
            .out_dir(folder("client")?)
            .compile_fds(descriptors)?;
        Ok(())
    }
}
