/* The few calls Sluice makes into DPDK, one a burst.
 *
 * Much of DPDK's fast path is inline functions in headers, and struct rte_mbuf's layout belongs to the library's build;
 * both stay on this side. Rust sees opaque pointers and `struct sluice_packet`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_version.h>

/* One packet, as both sides see it: a `Packet` of crate packet, written and read in place. */
struct sluice_packet {
    uint8_t *data;
    uint32_t len;
    uint16_t headroom;
    uint16_t pool;
    uint64_t mbuf;
    uint32_t rss_hash; /* 0 if the device computed none */
    uint32_t queue;    /* 0 in a received packet */
};

struct sluice_port_conf {
    uint16_t n_rxq, n_txq, n_rxd, n_txd;
    uint16_t mtu; /* 0: leave as it is */
};

struct sluice_port_info {
    uint16_t max_rxq, max_txq, mtu;
    uint8_t mac[6];
};

/* What a device says of itself in the database. */
struct sluice_port_details {
    int32_t numa;
    uint32_t min_rx_bufsize, max_mac_addrs, max_hash_mac_addrs;
    uint32_t link_mbps; /* 0: none */
    uint16_t max_rxq, max_txq, max_vfs, max_vmdq_pools;
    uint8_t is_full_duplex;
    char driver[63], bus[64];
};

_Static_assert(sizeof(struct sluice_port_conf) == 10 && sizeof(struct sluice_port_info) == 12
                   && sizeof(struct sluice_port_details) == 156,
               "as shim.rs has them");

/* Gets DPDK's log, a piece at a time. */
static void (*log_line)(uint32_t level, const char *text, size_t len);

static ssize_t write_log(void *cookie, const char *text, size_t len)
{
    (void) cookie;
    log_line(rte_log_cur_msg_loglevel(), text, len);
    return (ssize_t) len;
}

/* Set for EAL threads that became such (`become_eal_thread`): they give their number back when they end. */
static pthread_key_t registered;

static void unregister(void *set)
{
    (void) set;
    rte_thread_unregister();
}

/* Binds the calling thread to the first of the cores that the arguments name, unless it is to keep those that it has. */
int sluice_eal_init(int argc, char **argv, int keeps_cores, void (*log)(uint32_t, const char *, size_t))
{
    FILE *stream = fopencookie(NULL, "w", (cookie_io_functions_t) { .write = write_log });
    cpu_set_t cores;
    int err;

    log_line = log;
    if (stream) {
        rte_openlog_stream(stream);
    }
    keeps_cores = keeps_cores && pthread_getaffinity_np(pthread_self(), sizeof cores, &cores) == 0;
    err = rte_eal_init(argc, argv) < 0 ? (rte_errno ? rte_errno : EIO) : pthread_key_create(&registered, unregister);
    if (keeps_cores) {
        pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
    }
    return err;
}

const char *sluice_strerror(int err)
{
    return rte_strerror(err);
}

const char *sluice_version(void)
{
    return rte_version();
}

/* What DPDK shows of itself, as text that the caller frees; NULL if there is no memory. `pool` is for the last kind. */
char *sluice_dump(unsigned what, struct rte_mempool *pool, size_t *len)
{
    char *text = NULL;
    FILE *stream = open_memstream(&text, len);
    if (!stream) {
        return NULL;
    }
    switch (what) {
    case 0:
        rte_lcore_dump(stream);
        break;
    case 1:
        rte_log_dump(stream);
        break;
    case 2:
        rte_malloc_dump_stats(stream, NULL);
        break;
    case 3:
        rte_mempool_list_dump(stream);
        break;
    default:
        rte_mempool_dump(stream, pool);
        fprintf(stream, "    count: avail (%u), in use (%u)\n", rte_mempool_avail_count(pool), rte_mempool_in_use_count(pool));
    }
    fclose(stream);
    return text;
}

int sluice_log_set(const char *pattern, uint32_t level)
{
    return rte_log_set_level_pattern(pattern, level);
}

struct rte_mempool *sluice_pool_create(const char *name, unsigned n, uint16_t room)
{
    return rte_pktmbuf_pool_create(name, n, 256, 0, RTE_PKTMBUF_HEADROOM + room, SOCKET_ID_ANY);
}

unsigned sluice_pool_available(struct rte_mempool *pool)
{
    return rte_mempool_avail_count(pool);
}

/* Whether this thread has tried to become an EAL thread. DPDK knows of those that are, but asking a shared library for a
 * thread's variable is a call. One for which there was no number left goes on without a mempool's cache. */
static __thread int has_tried;

/* A mempool's cache is per EAL thread; a PMD thread becomes one at its first burst. The next thread with its number goes on
 * with its cache. */
static __attribute__((noinline, cold)) void try_to_become_eal_thread(void)
{
    has_tried = 1;
    if (rte_lcore_id() == LCORE_ID_ANY && rte_thread_register() == 0) {
        pthread_setspecific(registered, &registered);
    }
}

static inline void become_eal_thread(void)
{
    if (unlikely(!has_tried)) {
        try_to_become_eal_thread();
    }
}

typedef uint64_t __attribute__((may_alias)) packet_word;

/* Writes a packet in four stores: one for each of its eight fields took longest of all. */
static inline void packet_from_mbuf(const struct rte_mbuf *m, uint16_t pool, struct sluice_packet *f)
{
    packet_word *words = (packet_word *) f;
    uint64_t data_off = m->data_off;
    words[0] = (uintptr_t) m->buf_addr + data_off;
    words[1] = m->data_len | data_off << 32 | (uint64_t) pool << 48;
    words[2] = (uintptr_t) m;
    words[3] = m->ol_flags & RTE_MBUF_F_RX_RSS_HASH ? m->hash.rss : 0;
}

/* What `packet_from_mbuf` takes for granted; that the machine is little-endian, too. */
_Static_assert(sizeof(struct sluice_packet) == 32 && offsetof(struct sluice_packet, len) == 8
                   && offsetof(struct sluice_packet, headroom) == 12 && offsetof(struct sluice_packet, pool) == 14
                   && offsetof(struct sluice_packet, mbuf) == 16 && offsetof(struct sluice_packet, rss_hash) == 24
                   && offsetof(struct sluice_packet, queue) == 28 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "a packet's words");

/* Tells an mbuf where its packet begins and ends. Nearly always it knows: reading costs less than three stores. */
static inline struct rte_mbuf *mbuf_from_packet(const struct sluice_packet *f)
{
    struct rte_mbuf *m = (struct rte_mbuf *) (uintptr_t) f->mbuf;
    uint16_t data_off = (uint16_t) (f->data - (uint8_t *) m->buf_addr);
    if (unlikely(m->data_off != data_off || m->data_len != f->len || m->pkt_len != f->len)) {
        m->data_off = data_off;
        m->data_len = (uint16_t) f->len;
        m->pkt_len = f->len;
    }
    return m;
}

/* Where a fresh packet's first byte is, counted from its mbuf: pools are made without private data. */
unsigned sluice_pool_data_at(void)
{
    return sizeof(struct rte_mbuf) + RTE_PKTMBUF_HEADROOM;
}

uint16_t sluice_pool_headroom(void)
{
    return RTE_PKTMBUF_HEADROOM;
}

/* Takes n mbufs; all or none. */
unsigned sluice_pool_take(struct rte_mempool *pool, struct rte_mbuf **out, unsigned n)
{
    become_eal_thread();
    return rte_pktmbuf_alloc_bulk(pool, out, n) == 0 ? n : 0;
}

void sluice_pool_give(void *const *mbufs, unsigned n)
{
    become_eal_thread();
    rte_pktmbuf_free_bulk((struct rte_mbuf **) mbufs, n);
}

static int find_by_name(const char *devargs, uint16_t *port)
{
    char name[RTE_ETH_NAME_MAX_LEN];
    size_t n = strcspn(devargs, ",");
    if (n >= sizeof name) {
        return ENODEV;
    }
    memcpy(name, devargs, n);
    name[n] = '\0';
    return rte_eth_dev_get_port_by_name(name, port) == 0 ? 0 : ENODEV;
}

/* Finds the device that `devargs` names, if DPDK has it. */
int sluice_find(const char *devargs, uint16_t *port)
{
    struct rte_dev_iterator it;
    uint16_t id;

    if (find_by_name(devargs, port) == 0) {
        return 0;
    }
    RTE_ETH_FOREACH_MATCHING_DEV(id, devargs, &it) {
        *port = id;
        rte_eth_iterator_cleanup(&it);
        return 0;
    }
    return ENODEV;
}

/* The same; attaches the device if DPDK has not got it yet. */
int sluice_attach(const char *devargs, uint16_t *port, int *attached)
{
    *attached = 0;
    if (find_by_name(devargs, port) == 0) {
        return 0;
    }
    *attached = rte_dev_probe(devargs) == 0;
    return sluice_find(devargs, port);
}

/* The ports of the same device, at most n of them. */
unsigned sluice_siblings(uint16_t port, uint16_t *out, unsigned n)
{
    unsigned found = 0;
    uint16_t id;
    RTE_ETH_FOREACH_DEV_SIBLING(id, port) {
        if (found < n) {
            out[found++] = id;
        }
    }
    return found;
}

/* Closes a port that nobody uses, and gives its device back. */
int sluice_detach(uint16_t port)
{
    struct rte_eth_dev_info info;
    int err = rte_eth_dev_info_get(port, &info);
    if (err) {
        return -err;
    }
    rte_eth_dev_close(port);
    err = rte_dev_remove(info.device);
    return err < 0 ? -err : 0;
}

int sluice_port_info(uint16_t port, struct sluice_port_info *out)
{
    struct rte_eth_dev_info info;
    struct rte_ether_addr mac;
    int err = rte_eth_dev_info_get(port, &info);
    if (err) {
        return -err;
    }
    out->max_rxq = info.max_rx_queues;
    out->max_txq = info.max_tx_queues;
    if (rte_eth_dev_get_mtu(port, &out->mtu) != 0) {
        out->mtu = RTE_ETHER_MTU;
    }
    memset(out->mac, 0, sizeof out->mac);
    if (rte_eth_macaddr_get(port, &mac) == 0) {
        memcpy(out->mac, mac.addr_bytes, sizeof out->mac);
    }
    return 0;
}

static void copy_text(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%s", text ? text : "");
}

int sluice_port_details(uint16_t port, struct sluice_port_details *out)
{
    struct rte_eth_dev_info info;
    struct rte_eth_link link;
    int err = rte_eth_dev_info_get(port, &info);
    memset(out, 0, sizeof *out);
    if (err) {
        return -err;
    }
    out->numa = rte_eth_dev_socket_id(port);
    out->min_rx_bufsize = info.min_rx_bufsize;
    out->max_mac_addrs = info.max_mac_addrs;
    out->max_hash_mac_addrs = info.max_hash_mac_addrs;
    out->max_rxq = info.max_rx_queues;
    out->max_txq = info.max_tx_queues;
    out->max_vfs = info.max_vfs;
    out->max_vmdq_pools = info.max_vmdq_pools;
    copy_text(out->driver, sizeof out->driver, info.driver_name);
    const char *bus = rte_bus_name(rte_dev_bus(info.device)), *more = rte_dev_bus_info(info.device);
    snprintf(out->bus, sizeof out->bus, "bus_name=%s%s%s", bus, more ? ", " : "", more ? more : "");
    if (rte_eth_link_get_nowait(port, &link) == 0) {
        out->link_mbps = link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : link.link_speed;
        out->is_full_duplex = link.link_duplex == RTE_ETH_LINK_FULL_DUPLEX;
    }
    return 0;
}

int sluice_port_set_link(uint16_t port, int is_up)
{
    return -(is_up ? rte_eth_dev_set_link_up(port) : rte_eth_dev_set_link_down(port));
}

/* Configures and starts a port. On error `*step` names what failed. */
int sluice_port_start(uint16_t port, const struct sluice_port_conf *want, struct rte_mempool *pool, const char **step)
{
    struct rte_eth_dev_info info;
    struct rte_eth_conf conf;
    uint16_t n_rxd = want->n_rxd, n_txd = want->n_txd, now;
    int err;

    memset(&conf, 0, sizeof conf);
    *step = "query the device";
    if ((err = rte_eth_dev_info_get(port, &info)) != 0) {
        return -err;
    }
    /* A device hashes for its queues, or to tell the hash, and only if it knows how: DPDK refuses all other combinations. */
    uint64_t tells_hash = info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_RSS_HASH;
    uint64_t hashed = (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP) & info.flow_type_rss_offloads;
    if (hashed != 0 && (want->n_rxq > 1 || tells_hash != 0)) {
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = hashed;
        conf.rxmode.offloads |= tells_hash;
    }
    /* Without one, DPDK takes 1500, or what the device can do. */
    if (want->mtu) {
        conf.rxmode.mtu = want->mtu;
    } else if (rte_eth_dev_get_mtu(port, &now) == 0 && now <= info.max_mtu) {
        conf.rxmode.mtu = now;
    }
    *step = "configure";
    if ((err = rte_eth_dev_configure(port, want->n_rxq, want->n_txq, &conf)) != 0) {
        return -err;
    }
    if (rte_eth_dev_adjust_nb_rx_tx_desc(port, &n_rxd, &n_txd) != 0) {
        n_rxd = want->n_rxd;
        n_txd = want->n_txd;
    }
    *step = "set up a receive queue of";
    for (uint16_t q = 0; q < want->n_rxq; q++) {
        if ((err = rte_eth_rx_queue_setup(port, q, n_rxd, SOCKET_ID_ANY, NULL, pool)) != 0) {
            return -err;
        }
    }
    *step = "set up a transmit queue of";
    for (uint16_t q = 0; q < want->n_txq; q++) {
        if ((err = rte_eth_tx_queue_setup(port, q, n_txd, SOCKET_ID_ANY, NULL)) != 0) {
            return -err;
        }
    }
    *step = "start";
    if ((err = rte_eth_dev_start(port)) != 0) {
        return -err;
    }
    rte_eth_promiscuous_enable(port); /* virtual devices without the notion refuse: they see everything anyway */
    return 0;
}

void sluice_port_stop(uint16_t port, int detach)
{
    struct rte_eth_dev_info info;
    int known = rte_eth_dev_info_get(port, &info) == 0;
    rte_eth_dev_stop(port);
    rte_eth_dev_close(port);
    if (detach && known) {
        rte_dev_remove(info.device);
    }
}

int sluice_port_link_up(uint16_t port)
{
    struct rte_eth_link link;
    return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

/* rx: packets, bytes, missed + no mbuf, errors; tx: packets, bytes, errors. */
void sluice_port_stats(uint16_t port, uint64_t out[7])
{
    struct rte_eth_stats s;
    memset(&s, 0, sizeof s);
    rte_eth_stats_get(port, &s);
    out[0] = s.ipackets, out[1] = s.ibytes, out[2] = s.imissed + s.rx_nombuf, out[3] = s.ierrors;
    out[4] = s.opackets, out[5] = s.obytes, out[6] = s.oerrors;
}

/* Receives up to n (32 at most) packets, of `pool`. A chained packet is linearised; *dropped counts those too long for
 * that. */
unsigned sluice_rx(uint16_t port, uint16_t queue, uint16_t pool, struct sluice_packet *out, unsigned n, unsigned *dropped)
{
    struct rte_mbuf *bufs[32];
    unsigned kept = 0;

    become_eal_thread();
    uint16_t got = rte_eth_rx_burst(port, queue, bufs, n < 32 ? n : 32);
    for (uint16_t i = 0; i < got; i++) {
        struct rte_mbuf *m = bufs[i];
        if (unlikely(m->nb_segs != 1) && rte_pktmbuf_linearize(m) != 0) {
            rte_pktmbuf_free(m);
            ++*dropped;
            continue;
        }
        packet_from_mbuf(m, pool, &out[kept++]);
    }
    return kept;
}

/* What `sluice_tx` returns if a packet is of another pool. */
#define SLUICE_FOREIGN UINT_MAX

/* Sends n (32 at most) packets of `pool`; returns how many the device took. The rest stay the caller's. If one is of another
 * pool, nothing is sent: the mbufs in front of it say already where their packets begin and end, which harms nothing. */
unsigned sluice_tx(uint16_t port, uint16_t queue, uint16_t pool, const struct sluice_packet *packets, unsigned n)
{
    struct rte_mbuf *bufs[32];
    if (n > 32) {
        n = 32;
    }
    become_eal_thread();
    for (unsigned i = 0; i < n; i++) {
        if (unlikely(packets[i].pool != pool)) {
            return SLUICE_FOREIGN;
        }
        bufs[i] = mbuf_from_packet(&packets[i]);
    }
    return rte_eth_tx_burst(port, queue, bufs, (uint16_t) n);
}
