// Tests collectives on buffers of emulated GPUs: they give the slow twin's bytes. Runs the table of
// cases with ranks as threads and as processes, on one to four GPUs of both widths, beside ranks on
// the host, and with checksums. QTEST_FULL=1 runs the whole table, otherwise a pair sample
// that is dealt to these teams.
#include "tests/kit/case_table.hpp"
#include "device_kit.hpp"

#include <array>
#include <cstdio>
#include <functional>

using namespace qtest;

namespace {

using Devices = std::vector<std::string>; // by rank

// One rank's part in the sampled cases, each compared with the slow twin. Every rank runs the same
// cases in the same order.
class RankOfCases {
public:
    RankOfCases(uint32_t rank, const Devices &devices, qcclComm_t comm)
        : rank_(rank), devices_(devices), comm_(comm) {
        const auto gpu = gpu_number(devices[rank]);
        if (!gpu) return;
        CHECK_EMULATED(qcclEmulatedSetDevice(*gpu));
        CHECK_EMULATED(qcclEmulatedStreamCreate(&stream_));
    }
    ~RankOfCases() {
        if (stream_) (void)qcclEmulatedStreamDestroy(stream_);
    }
    RankOfCases(const RankOfCases &) = delete;

    uint64_t run(const DealtCases &cases, size_t team) {
        uint64_t taken = 0;
        return cases.each(team, static_cast<uint32_t>(devices_.size()),
                          [&](const TwinCall &call) { check(call, ++taken); });
    }

    // Runs calls that need more than the smallest arena, for every kind of codec that cannot be
    // cut.
    uint64_t run_large() {
        uint64_t taken = 0;
        for (const char *const codec :
             {"minmax:bucket=all", "topk:ratio=0.9", "int8:block=1073741824", "nvfp4:bucket=all"})
            for (const Collective collective : value_collectives)
                check({.collective = collective,
                       .algorithm = algorithm_for(collective, taken),
                       .codec = *parse_codec(codec),
                       .count = 150000,
                       .ranks = static_cast<uint32_t>(devices_.size())},
                      ++taken);
        return taken;
    }

private:
    static const char *algorithm_for(Collective collective, uint64_t taken) {
        std::vector<const char *> possible;
        for (const char *const name : {"direct", "ring", "tree", "chain", "pairwise", "oneshot"})
            if (parse_algorithm(name)->has(collective)) possible.push_back(name);
        return possible[taken % std::min<size_t>(2, possible.size())];
    }

    void check(TwinCall call, uint64_t taken) {
        // A message's call number, which noise depends on, is that of its channel.
        const bool is_message = call.collective == Collective::send;
        if (is_message && call.codec.rounding != Rounding::nearest) return;
        if (!is_message) call.number = ++number_;
        const bool in_place = taken % 3 == 0;
        const auto inputs =
            make_inputs(call, taken % 5 == 0 ? golden::Kind::few_specials : golden::Kind::spread);
        try {
            const Bytes output =
                run_on_device(call, rank_, comm_, inputs[rank_], in_place, stream_, taken % 2 == 0);
            if (output != slow_twin(call, inputs)[rank_])
                throw Failure{"not the slow twin's bytes"};
        } catch (const Failure &failure) {
            throw Failure{words_of(call, in_place) + ": " + failure.text};
        }
    }

    const uint32_t rank_;
    const Devices &devices_;
    const qcclComm_t comm_;
    qcclEmulatedStream_t stream_ = nullptr;
    uint64_t number_ = 0;
};

using Play = std::function<uint64_t(RankOfCases &)>;

// The teams that the cases of the table are dealt to.
enum class Team : size_t {
    threads_on_one,
    threads_on_two,
    threads_on_four,
    threads_on_three,
    threads_beside_the_host,
    alone,
    processes_on_one,
    processes_on_four,
    processes_beside_the_host,
    threads_with_checksums,
    processes_with_checksums,
    apart,
    counted,
    counted_beside_the_host,
    count
};

Play cases_of(Team team) {
    static const DealtCases cases(static_cast<size_t>(Team::count), false);
    return [team](RankOfCases &rank) { return rank.run(cases, static_cast<size_t>(team)); };
}

void run_as_threads(const Devices &devices, const Play &play) {
    std::vector<const char *> names;
    for (const std::string &device : devices) names.push_back(device.c_str());
    std::vector<uint64_t> taken(devices.size());
    Comms(names).on_each([&](uint32_t rank, qcclComm_t comm) {
        RankOfCases cases(rank, devices, comm);
        taken[rank] = play(cases);
    });
    CHECK(taken[0] > 5 / thinning());
}

struct Report {
    bool is_done;
    std::array<char, 500> text;
};

std::string run_as_one_of(uint32_t rank, const Devices &devices, const qcclUniqueId &id,
                          const Play &play) {
    qcclEmulatedBeginAgain();
    qcclConfig_t config = QCCL_CONFIG_INIT;
    config.device = devices[rank].c_str();
    qcclComm_t comm = nullptr;
    if (qcclCommInitRankConfig(&comm, static_cast<int>(devices.size()), &id, static_cast<int>(rank),
                               &config) != qcclSuccess)
        return qcclGetLastError(nullptr);
    std::string said;
    try {
        RankOfCases cases(rank, devices, comm);
        (void)play(cases);
    } catch (const Failure &failure) {
        said = failure.text;
        (void)qcclCommRevoke(comm);
    }
    if (qcclCommDestroy(comm) != qcclSuccess && said.empty()) said = qcclGetLastError(nullptr);
    return said;
}

void run_as_processes(const Devices &devices, const Play &play) {
    const killable::Reports<Report> reports(static_cast<int>(devices.size()));
    CHECK(reports.are_there());
    LateId id;
    killable::Processes processes;
    for (uint32_t rank = 0; rank < devices.size(); rank++)
        CHECK(processes.start([&] {
            Report &report = reports[static_cast<int>(rank)];
            const std::string said = run_as_one_of(rank, devices, id.await(), play);
            snprintf(report.text.data(), report.text.size(), "%s", said.c_str());
            report.is_done = true;
            _exit(0);
        }));
    id.make();
    for (uint32_t rank = 0; rank < devices.size(); rank++)
        (void)processes.reap(static_cast<int>(rank), [] { return true; });
    for (uint32_t rank = 0; rank < devices.size(); rank++) {
        const Report &report = reports[static_cast<int>(rank)];
        if (!report.is_done || report.text[0] != 0)
            throw Failure{"rank " + std::to_string(rank) + ": " +
                          (report.is_done ? report.text.data() : "it died")};
    }
}

const Devices one_gpu{"emulated:0", "emulated:0"};
const Devices two_gpus{"emulated:0", "emulated:1"};
const Devices four_gpus{"emulated:0", "emulated:1", "emulated:2", "emulated:3"};
const Devices five_ranks{"emulated:1", "emulated:0", "emulated:2", "emulated:0", "emulated:1"};
const Devices mixed{"host", "emulated:1", "emulated:0", "host"};

void threads_on_one_gpu() { run_as_threads(one_gpu, cases_of(Team::threads_on_one)); }
void threads_on_two_gpus() { run_as_threads(two_gpus, cases_of(Team::threads_on_two)); }
void threads_on_four_gpus() { run_as_threads(four_gpus, cases_of(Team::threads_on_four)); }
void threads_that_share_three_gpus() {
    run_as_threads(five_ranks, cases_of(Team::threads_on_three));
}
void threads_beside_the_host() { run_as_threads(mixed, cases_of(Team::threads_beside_the_host)); }
void a_rank_alone() { run_as_threads({"emulated:1"}, cases_of(Team::alone)); }
void processes_on_one_gpu() { run_as_processes(one_gpu, cases_of(Team::processes_on_one)); }
void processes_on_four_gpus() { run_as_processes(four_gpus, cases_of(Team::processes_on_four)); }
void processes_beside_the_host() {
    run_as_processes(mixed, cases_of(Team::processes_beside_the_host));
}

// The host computes the checksums, so payloads are staged through the host.
void checksums_are_of_what_came() {
    setenv("QCCL_CHECKSUM", "1", 1);
    try {
        run_as_threads(two_gpus, cases_of(Team::threads_with_checksums));
        run_as_processes(two_gpus, cases_of(Team::processes_with_checksums));
    } catch (...) {
        unsetenv("QCCL_CHECKSUM");
        throw;
    }
    unsetenv("QCCL_CHECKSUM");
}

// Calls that need more than the outbox are staged through the host.
void memory_for_a_call_is_reached() {
    const auto play = [](RankOfCases &rank) { return rank.run_large(); };
    setenv("QCCL_ARENA", "64K", 1);
    try {
        run_as_threads(two_gpus, play);
        run_as_threads(mixed, play);
        run_as_processes(two_gpus, play);
        run_as_processes(mixed, play);
    } catch (...) {
        unsetenv("QCCL_ARENA");
        throw;
    }
    unsetenv("QCCL_ARENA");
}

void gpus_that_do_not_reach_each_other() {
    qcclEmulatedForbidPeers(1);
    try {
        run_as_threads(two_gpus, cases_of(Team::apart));
    } catch (...) {
        qcclEmulatedForbidPeers(0);
        throw;
    }
    qcclEmulatedForbidPeers(0);
}

void nothing_is_left_behind() {
    const size_t before = count_held();
    run_as_threads(two_gpus, cases_of(Team::counted));
    run_as_threads(mixed, cases_of(Team::counted_beside_the_host));
    CHECK_EQ(count_held(), before);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(processes_on_one_gpu),
        QTEST(processes_on_four_gpus),
        QTEST(processes_beside_the_host),
        QTEST(threads_on_one_gpu),
        QTEST(threads_on_two_gpus),
        QTEST(threads_on_four_gpus),
        QTEST(threads_that_share_three_gpus),
        QTEST(threads_beside_the_host),
        QTEST(a_rank_alone),
        QTEST(checksums_are_of_what_came),
        QTEST(memory_for_a_call_is_reached),
        QTEST(gpus_that_do_not_reach_each_other),
        QTEST(nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
