// One rank of a job that a test starts on several hosts and then disturbs: it makes the workload's
// calls on a communicator from the launcher's variables, and reports in a file. On one rank,
// another thread may end the communicator during the calls.
//
//     far_survivor REPORTS CALLS [abort|revoke RANK CALL]
//
// With the last three arguments, rank RANK ends the communicator 0.2 s after CALL calls.
#include "tests/kit/workload.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>

namespace {

using namespace workload;

// Returns the rank from the variables of any launcher.
const char *own_rank_text() {
    for (const char *name : {"RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
        if (const char *text = std::getenv(name)) return text;
    return nullptr;
}

Report *map_report(const char *path, int rank) {
    const int file = open(path, O_RDWR | O_CLOEXEC);
    const size_t bytes = sizeof(Report) * (static_cast<size_t>(rank) + 1);
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return memory == MAP_FAILED ? nullptr : static_cast<Report *>(memory) + rank;
}

// Ends the communicator from a separate thread while its owner is in the middle of calls.
class Ender {
public:
    Ender(const Report &report, qcclComm_t comm, bool aborts, uint64_t after)
        : aborts_(aborts), thread_([&report, comm, aborts, after, this] {
              while (report.calls < after && !is_over_)
                  std::this_thread::sleep_for(std::chrono::microseconds(100));
              if (is_over_) return;
              std::this_thread::sleep_for(std::chrono::milliseconds(200));
              has_ended_ = true;
              result_ = aborts ? qcclCommAbort(comm) : qcclCommRevoke(comm);
          }) {}
    // Returns whether the communicator no longer exists.
    bool join() {
        is_over_ = true;
        thread_.join();
        return has_ended_ && aborts_ && result_ == qcclSuccess;
    }

private:
    const bool aborts_;
    std::atomic<bool> is_over_ = false;
    bool has_ended_ = false;
    qcclResult_t result_ = qcclSuccess;
    std::thread thread_; // last: it uses the others
};

} // namespace

int main(int argc, char **argv) {
    const char *const own = own_rank_text();
    if (argc < 3 || own == nullptr) return 2;
    const int own_rank = std::atoi(own);
    Report *const report = map_report(argv[1], own_rank);
    if (report == nullptr) return 2;
    const uint64_t calls = std::strtoull(argv[2], nullptr, 10);

    qcclComm_t comm = nullptr;
    int size = 0;
    qcclResult_t result = qcclCommInitEnv(&comm, nullptr);
    if (result == qcclSuccess) result = qcclCommCount(comm, &size);
    std::optional<Ender> ender;
    if (result == qcclSuccess && argc == 6 && std::atoi(argv[4]) == own_rank)
        ender.emplace(*report, comm, std::strcmp(argv[3], "abort") == 0,
                      std::strtoull(argv[5], nullptr, 10));
    if (result == qcclSuccess) result = work(*report, comm, own_rank, size, calls, false);
    if (ender && ender->join()) {
        comm = nullptr;
        report->result = result;
    } else {
        note(*report, comm, result);
    }
    report->ended_at = now();
    report->stage = leaving;
    qcclCommDestroy(comm);
    report->ended_at = now();
    report->stage = ended;
    return 0;
}
