//! Builds the DPDK shim when the `dpdk` feature asks for it.

fn main() {
    println!("cargo::rerun-if-changed=src/dpdk/shim.c");
    println!("cargo::rerun-if-changed=src/dpdk/testing.c");
    #[cfg(feature = "dpdk")]
    dpdk();
}

#[cfg(feature = "dpdk")]
fn dpdk() {
    let library = match pkg_config::Config::new().atleast_version("22.11").cargo_metadata(true).probe("libdpdk") {
        Ok(library) => library,
        Err(e) => {
            panic!("the feature `dpdk` needs DPDK 22.11 or later (Debian: apt-get install libdpdk-dev pkg-config): {e}")
        }
    };
    let mut build = cc::Build::new();
    // Of an archive, only what is referred to is linked.
    build.files(["src/dpdk/shim.c", "src/dpdk/testing.c"]).opt_level(3).flag("-include").flag("rte_config.h");
    // DPDK's inline functions need SSE4.2; pkg-config names the flag, but not through the `cc` interface.
    if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        build.flag("-march=corei7");
    }
    build.includes(library.include_paths).warnings(true).compile("sluice_dpdk_shim");
}
