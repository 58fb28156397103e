/* Tests jobs on several hosts in which one rank runs under a limit of its
 * process, from almost nothing to enough: either all ranks return an error with
 * a sentence, or all succeed. QTEST_FULL=1 tries every limit. The network with
 * many interfaces is made for the test, where that is allowed. */
#include "tests/api/process_kit.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

enum { peer_timeout_s = 10, fewest = 3, most = 56, most_mib = 180 };

static int hungry;                 /* the limited rank */
static rlim_t allowance;           /* descriptors or bytes beyond those in use */
static int limited;                /* the resource: RLIMIT_... */
static const char *devices = "lo"; /* NULL: all */

static rlim_t used(void)
{
    unsigned long pages = 0;
    FILE *file;
    if (limited == RLIMIT_NOFILE) {
        const int lowest_free = dup(0);
        close(lowest_free);
        return (rlim_t)lowest_free;
    }
    file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1) abort();
    fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void live_within_limits(int rank)
{
    struct rlimit limit;
    char seconds[16];
    if (devices) setenv("QCCL_UCX_DEVICES", devices, 1);
    snprintf(seconds, sizeof seconds, "%d", peer_timeout_s);
    setenv("QCCL_PEER_TIMEOUT", seconds, 1);
    setenv("QCCL_HOSTID", rank < size / 2 ? "first" : "second", 1);
    setenv("QCCL_SOCKET_IFNAME", "lo", 1);
    if (rank != hungry) return;
    getrlimit(limited, &limit);
    limit.rlim_cur = used() + allowance;
    setrlimit(limited, &limit);
}

static qcclResult_t sum(int rank, qcclComm_t comm, shared_t *noted)
{
    static float values[count];
    qcclResult_t result = qcclSuccess;
    int call;
    (void)rank;
    (void)noted;
    for (call = 0; call < 3 && result == qcclSuccess; call++)
        result = qcclAllReduce(values, values, count, qcclFloat32, qcclSum, comm, NULL);
    return result;
}

/* Plays the scenario. Returns whether the limit was high enough. */
static int play_within_limits(const char *part)
{
    const scenario_t scenario = {sum, NULL, 3 * peer_timeout_s, -1, 0, 0, NULL, live_within_limits};
    const double begin = now_s();
    int statuses[size] = {0}, rank, said = 0;
    play(&scenario, statuses);
    if (now_s() - begin > peer_timeout_s + 1) fail_msg("%g s", now_s() - begin);
    for (rank = 0; rank < size; rank++) {
        if (statuses[rank] != 0) fail_msg("rank %d: status %x", rank, (unsigned)statuses[rank]);
        assert_int_equal(shared->ranks[rank].result == qcclSuccess,
                         shared->ranks[0].result == qcclSuccess);
        said += strstr(shared->ranks[rank].sentence, part) != NULL;
    }
    if (shared->ranks[0].result != qcclSuccess && said != size)
        fail_msg("%s", shared->ranks[hungry].sentence);
    return shared->ranks[0].result == qcclSuccess;
}

static void try_limits(int resource, rlim_t first, rlim_t last, rlim_t step, const char *part)
{
    int failures = 0, is_enough = 0;
    limited = resource;
    for (hungry = 0; hungry < size; hungry += size - 1) {
        for (allowance = first; allowance <= last; allowance += step) {
            is_enough = play_within_limits(part);
            failures += !is_enough;
        }
        assert_true(is_enough);
    }
    assert_true(failures > 0);
}

static void descriptors_are_enough_or_missed(void **state)
{
    (void)state;
    try_limits(RLIMIT_NOFILE, fewest, most, getenv("QTEST_FULL") ? 1 : 7, "Too many open files");
}

static void memory_is_enough_or_missed(void **state)
{
    const rlim_t mib = 1 << 20;
    (void)state;
    try_limits(RLIMIT_AS, 0, most_mib * mib, (getenv("QTEST_FULL") ? 2 : 15) * mib, "memory");
}

static void live_apart_within_limits(int rank)
{
    char host[16];
    live_within_limits(rank);
    snprintf(host, sizeof host, "%d", rank);
    setenv("QCCL_HOSTID", host, 1);
}

static qcclResult_t do_nothing(int rank, qcclComm_t comm, shared_t *noted)
{
    (void)rank;
    (void)comm;
    (void)noted;
    return qcclSuccess;
}

/* The limit is high enough for one connection after the other, and too low for
 * all connections at once. */
static void a_limit_that_is_just_enough_is_warned_of(void **state)
{
    const scenario_t scenario = {do_nothing, NULL, 3 * peer_timeout_s,      -1, 0,
                                 0,          NULL, live_apart_within_limits};
    int statuses[size] = {0};
    (void)state;
    limited = RLIMIT_NOFILE;
    hungry = 2;
    allowance = fewest;
    do {
        allowance++;
        play(&scenario, statuses);
    } while (shared->ranks[0].created != qcclSuccess && allowance < most);
    assert_int_equal(shared->ranks[0].created, qcclSuccess);
    assert_int_equal(warnings_with("ulimit -n of "), 1);
    assert_int_equal(shared->ranks[hungry].warnings, 1);
    allowance = most;
    play(&scenario, statuses);
    assert_int_equal(shared->ranks[0].created, qcclSuccess);
    assert_int_equal(warnings_with("ulimit -n of "), 0);
}

enum { without_address = 60, with_address = 12 };

/* Must be the last test, because the process stays in that network. */
static int enter_network_of_many_interfaces(void)
{
    char commands[512];
    snprintf(commands, sizeof commands,
             "exec 2>/dev/null; set -e; ip link set lo up; for i in $(seq %d); do"
             " ip link add a$i type veth peer name b$i;"
             " ip link set a$i addrgenmode none up; ip link set b$i addrgenmode none up;"
             " if [ $i -gt %d ]; then ip addr add 10.1.$i.1/24 dev a$i; fi; done",
             without_address + with_address, without_address);
    return unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/sys", "sysfs", 0, NULL) == 0 && system(commands) == 0;
}

/* UCX opens no descriptor for interfaces that have no address, or that it may
 * not use. */
static void only_interfaces_in_use_count(void **state)
{
    (void)state;
    if (!enter_network_of_many_interfaces()) {
        print_message("skipped: networks can be made by root alone, with iproute2\n");
        return;
    }
    setenv("QCCL_SOCKET_IFNAME", "lo", 1);
    limited = RLIMIT_NOFILE;
    hungry = 0;
    allowance = most;
    assert_true(play_within_limits(""));
    devices = NULL;
    allowance = most + 2 * with_address;
    assert_true(play_within_limits(""));
    allowance = 2 * with_address;
    assert_false(play_within_limits("Too many open files"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_are_enough_or_missed),
        cmocka_unit_test(memory_is_enough_or_missed),
        cmocka_unit_test(a_limit_that_is_just_enough_is_warned_of),
        cmocka_unit_test(only_interfaces_in_use_count),
    };
    return cmocka_run_group_tests(tests, share_memory, NULL);
}
