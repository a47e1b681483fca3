//! Builds the C shim and says how DPDK is linked.

#[cfg(feature = "dpdk")]
#[path = "build/libraries.rs"]
mod libraries;

fn main() {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=src/shim.c");
    println!("cargo::rerun-if-changed=src/testing.c");
    #[cfg(feature = "dpdk")]
    dpdk();
}

#[cfg(feature = "dpdk")]
fn dpdk() {
    let mut build = cc::Build::new();
    // Of an archive, only what is referred to is linked.
    build.files(["src/shim.c", "src/testing.c"]).opt_level(3).flag("-include").flag("rte_config.h");
    // DPDK's inline functions need SSE4.2; pkg-config names the flag, but not through the `cc` interface.
    if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        build.flag("-march=corei7");
    }
    let includes = libraries::include_paths();
    build.includes(includes).warnings(true).compile("sluice_dpdk_shim");
    // Behind the shim, which refers to them.
    libraries::link();
}
