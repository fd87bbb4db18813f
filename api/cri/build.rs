//! Generates messages, client and server of the CRI.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let set = protox::compile(["runtime/v1/api.proto"], ["proto"])?;
    tonic_prost_build::configure().build_transport(false).btree_map(".").include_file("cri.rs").compile_fds(set)?;
    Ok(())
}
