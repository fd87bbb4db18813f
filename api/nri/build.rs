//! Generates the messages of NRI.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let set = protox::compile(["api.proto"], ["proto"])?;
    prost_build::Config::new().btree_map(["."]).include_file("nri.rs").compile_fds(set)?;
    Ok(())
}
