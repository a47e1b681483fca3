/* What `ovs-ofctl add-flows` costs a switch that does nothing: a client sends a flow-mod and a barrier, two system calls as ovs-ofctl
 * makes them, and waits for the answer; a server waits, reads and answers. Prints the server's CPU time, by way of waiting:
 *
 *   poll    ppoll of three descriptors, then recv: what a thread needs that also hears news
 *   block   a recv that blocks
 *   spin    recv again and again
 *   brief   recv again up to 20 times, then ppoll
 *
 * cc -O2 -o floor benches/flow_mod_floor.c && ./floor 100000 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FLOW_MOD = 80, BARRIER = 8, BARRIER_REQUEST = 18 };

static void client(int s, long n)
{
    unsigned char flow_mod[FLOW_MOD] = { 1, 14, 0, FLOW_MOD }, barrier[BARRIER] = { 1, BARRIER_REQUEST, 0, BARRIER }, answer[64];
    for (long i = 0; i < n; i++) {
        if (send(s, flow_mod, sizeof flow_mod, 0) < 0 || send(s, barrier, sizeof barrier, 0) < 0)
            exit(1);
        while (recv(s, answer, sizeof answer, MSG_DONTWAIT) < 0) {
            struct pollfd p = { s, POLLIN, 0 };
            poll(&p, 1, -1);
        }
    }
}

static ssize_t receive(int s, unsigned char *to, size_t room, const char *way, struct pollfd *fds)
{
    int tries = !strcmp(way, "brief") ? 20 : 0, spins = !strcmp(way, "spin");
    struct timespec second = { 1, 0 };
    for (;;) {
        int waits = !strcmp(way, "poll") || (!strcmp(way, "brief") && tries-- == 0);
        if (waits)
            ppoll(fds, 3, &second, NULL);
        ssize_t n = recv(s, to, room, !strcmp(way, "block") ? 0 : MSG_DONTWAIT);
        if (n >= 0 || (errno != EAGAIN && !spins))
            return n;
    }
}

static void serve(int s, const char *way)
{
    static unsigned char in[1 << 16];
    struct pollfd fds[3] = { { s, POLLIN, 0 }, { eventfd(0, 0), POLLIN, 0 }, { eventfd(0, 0), POLLIN, 0 } };
    size_t have = 0;
    long flow_mods = 0, reads = 0;
    for (ssize_t n; (n = receive(s, in + have, sizeof in - have, way, fds)) > 0; reads++) {
        size_t at = 0;
        for (have += n; have - at >= 8 && have - at >= in[at + 3]; at += in[at + 3]) {
            unsigned char reply[BARRIER] = { 1, BARRIER_REQUEST + 1, 0, BARRIER };
            if (in[at + 1] != BARRIER_REQUEST)
                flow_mods++;
            else if (send(s, reply, sizeof reply, MSG_NOSIGNAL) < 0)
                return;
        }
        memmove(in, in + at, have -= at);
    }
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    double us = (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
    printf("%-6s %6.2f us a flow-mod, %.2f reads, %.2f waits\n", way, us / flow_mods, (double) reads / flow_mods,
           (double) u.ru_nvcsw / flow_mods);
}

int main(int argc, char **argv)
{
    const char *ways[] = { "poll", "block", "brief", "spin" };
    for (int i = 0; i < 4; i++) {
        int s[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, s))
            return 1;
        if (!fork()) {
            close(s[0]);
            serve(s[1], ways[i]);
            exit(0);
        }
        close(s[1]);
        client(s[0], argc > 1 ? atol(argv[1]) : 100000);
        close(s[0]);
        wait(NULL);
    }
}
