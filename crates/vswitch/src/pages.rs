//! What memory packets and caches lie in, and what would give them better pages.

use sluice_datapath::CachePages;
use sluice_mem::Pages;

/// The pages of `bytes` bytes of packet buffers.
pub fn of_packets(pages: Pages, bytes: usize) -> String {
    match pages {
        Pages::Huge => pages.name().to_owned(),
        Pages::Transparent | Pages::Small => format!("{} ({})", pages.name(), remedy(bytes)),
    }
}

/// A line on the caches of all PMDs; `None` if none is on.
pub fn of_caches(caches: &[CachePages]) -> Option<String> {
    let worst = caches.iter().map(|cache| cache.pages).max_by_key(|pages| match pages {
        Pages::Huge => 0,
        Pages::Transparent => 1,
        Pages::Small => 2,
    })?;
    let each: Vec<String> = caches
        .iter()
        .map(|CachePages { pmd, cache, resident, .. }| format!("PMD {pmd} {cache} {} KiB", resident.div_ceil(1024)))
        .collect();
    let bytes: usize = caches.iter().map(|cache| cache.resident).sum();
    Some(match worst {
        Pages::Huge | Pages::Transparent => format!("caches: {} in {}", each.join(", "), worst.name()),
        Pages::Small => format!("caches: {} in {} ({})", each.join(", "), worst.name(), remedy(bytes)),
    })
}

fn remedy(bytes: usize) -> String {
    format!("no huge pages are free: `sysctl vm.nr_hugepages={}` before the start", bytes.div_ceil(2 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pages_come_with_what_helps() {
        let cache = |cache, resident, pages| CachePages { pmd: 0, cache, resident, pages };
        let caches = [cache("EMC", 131_072, Pages::Transparent), cache("SMC", 8 << 20, Pages::Transparent)];
        let told = of_caches(&caches).unwrap();
        assert_eq!(told, "caches: PMD 0 EMC 128 KiB, PMD 0 SMC 8192 KiB in transparent huge pages");
        let told = of_caches(&[caches[0], cache("SMC", 8 << 20, Pages::Small)]).unwrap();
        assert!(
            told.ends_with(
                "8192 KiB in 4 KiB pages (no huge pages are free: `sysctl vm.nr_hugepages=5` before the start)"
            ),
            "{told}"
        );
        assert_eq!(of_caches(&[]), None);
        assert_eq!(of_packets(Pages::Huge, 5), "2 MiB huge pages");
        let told = of_packets(Pages::Transparent, (36 << 20) + 1);
        assert!(told.ends_with("`sysctl vm.nr_hugepages=19` before the start)"), "{told}");
    }
}
