/* What a NIC does and no virtual device: for tests, linked into nothing else. */
#include <rte_byteorder.h>
#include <rte_common.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

/* The hash of a packet: its bytes 30 to 33, where an IPv4 destination is. */
static uint16_t hash_each(uint16_t port, uint16_t queue, struct rte_mbuf **bufs, uint16_t n, uint16_t max, void *arg)
{
    RTE_SET_USED(port), RTE_SET_USED(queue), RTE_SET_USED(max), RTE_SET_USED(arg);
    for (uint16_t i = 0; i < n; i++) {
        bufs[i]->hash.rss = rte_be_to_cpu_32(*rte_pktmbuf_mtod_offset(bufs[i], const uint32_t *, 30));
        bufs[i]->ol_flags |= RTE_MBUF_F_RX_RSS_HASH;
    }
    return n;
}

/* Makes a queue of a device hash what it receives. */
int sluice_testing_hash(uint16_t port, uint16_t queue)
{
    return rte_eth_add_rx_callback(port, queue, hash_each, NULL) != NULL ? 0 : -1;
}
