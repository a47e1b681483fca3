//! How DPDK is linked: as archives if it has them.
//!
//! A driver asks for the number of its thread whenever it takes or gives back an mbuf. In a shared library that is a call
//! (`__tls_get_addr`) by way of the procedure linkage table, once or twice a packet; in a program that is linked whole it is
//! one load. Packages of a distribution link the shared libraries, so that a mended DPDK reaches them:
//! `SLUICE_DPDK_LINK=shared`.

use std::collections::HashSet;
use std::path::PathBuf;

/// What says how DPDK is linked: `static`, `shared`, or by what there is.
const CHOICE: &str = "SLUICE_DPDK_LINK";

/// The first DPDK that has what the shim uses.
const OLDEST: &str = "22.11";

/// Archives that register themselves when a program starts, with nobody referring to them: drivers of devices, buses and
/// memory pools. DPDK's other drivers (cryptography, compression, events, radio) are not for ports.
const DRIVERS: [&str; 4] = ["rte_bus_", "rte_common_", "rte_mempool_", "rte_net_"];
const OTHER_DRIVERS: [&str; 9] = [
    "rte_baseband_",
    "rte_compress_",
    "rte_crypto_",
    "rte_dma_",
    "rte_event_",
    "rte_ml_",
    "rte_raw_",
    "rte_regex_",
    "rte_vdpa_",
];

/// Where DPDK's headers are.
pub fn include_paths() -> Vec<PathBuf> {
    found(pkg_config().probe("libdpdk")).include_paths
}

/// Tells cargo what to link.
pub fn link() {
    println!("cargo::rerun-if-env-changed={CHOICE}");
    let choice = std::env::var(CHOICE).unwrap_or_default();
    let archives = find("librte_eal.a");
    match (choice.as_str(), archives) {
        ("static" | "", Some(_)) => link_archives(),
        ("shared" | "", _) => _ = found(pkg_config().cargo_metadata(true).probe("libdpdk")),
        ("static", None) => panic!(
            "{CHOICE}=static needs DPDK's archives (librte_eal.a and others), which are not in its library directory"
        ),
        (other, _) => panic!("{CHOICE}={other}: expected `static`, `shared` or nothing"),
    }
}

fn pkg_config() -> pkg_config::Config {
    let mut config = pkg_config::Config::new();
    config.atleast_version(OLDEST).cargo_metadata(false);
    config
}

fn found(library: Result<pkg_config::Library, pkg_config::Error>) -> pkg_config::Library {
    library.unwrap_or_else(|e| {
        panic!("the feature `dpdk` needs DPDK {OLDEST} or later (Debian: apt-get install libdpdk-dev pkg-config): {e}")
    })
}

/// Links the archives that ports need, and the shared libraries that those are made with.
fn link_archives() {
    let library = found(pkg_config().statik(true).probe("libdpdk"));
    println!("cargo::rustc-link-search=native={}", library_dir());
    library.link_paths.iter().for_each(|path| println!("cargo::rustc-link-search=native={}", path.display()));
    // Several drivers name the same library; a library may be named once.
    let mut named = HashSet::new();
    for name in library.libs.iter().filter(|name| named.insert(*name)) {
        // DPDK's own are named by file (`:librte_eal.a`), and drivers come before the libraries that they use.
        match name.strip_prefix(":lib").and_then(|file| file.strip_suffix(".a")) {
            Some(archive) if begins(archive, &DRIVERS) => {
                println!("cargo::rustc-link-lib=static:-bundle,+whole-archive={archive}");
            }
            Some(archive) if begins(archive, &OTHER_DRIVERS) => {}
            Some(archive) => println!("cargo::rustc-link-lib=static:-bundle={archive}"),
            // The shared twin of an archive.
            None if name.starts_with("rte_") => {}
            // Those that no driver refers to are not recorded in the program (`--as-needed`).
            None if find(&format!("lib{name}.so")).is_some() => println!("cargo::rustc-link-lib=dylib={name}"),
            // An archive that only another archive needs.
            None => {}
        }
    }
}

fn begins(name: &str, with: &[&str]) -> bool {
    with.iter().any(|prefix| name.starts_with(prefix))
}

/// The directory of DPDK's libraries.
fn library_dir() -> String {
    pkg_config::get_variable("libdpdk", "libdir")
        .unwrap_or_else(|e| panic!("pkg-config does not say where libdpdk's libraries are: {e}"))
}

/// A library's file, in DPDK's directory or where the compiler looks.
fn find(file: &str) -> Option<PathBuf> {
    let beside = PathBuf::from(library_dir()).join(file);
    if beside.exists() {
        return Some(beside);
    }
    // A compiler repeats a name that it does not find.
    let asked = cc::Build::new().get_compiler().to_command().arg(format!("-print-file-name={file}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(asked.stdout).ok()?.trim());
    (path.is_absolute() && path.exists()).then_some(path)
}
