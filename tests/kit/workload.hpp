// What ranks do together while something goes wrong with one of them: calls of all sizes whose
// result is known, and a report that outlives the rank. For tests that inject failures; uses the
// public API alone.
#pragma once

#include <qccl/qccl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <vector>

#include <unistd.h>

namespace workload {

enum RankStage : int32_t { starting, calling, leaving, ended };

// Lies in memory shared with the test's judge, which may be Python: faults_test.py has the same
// layout.
struct Report {
    volatile uint64_t calls; // that have returned with qcclSuccess
    volatile int32_t stage;
    volatile int32_t result;
    volatile int32_t peer;
    volatile int32_t wrong;   // a call succeeded with a wrong result
    volatile double ended_at; // by the steady clock
    char sentence[512];
};
static_assert(sizeof(Report) == 544);

inline double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

struct Shape {
    size_t count;
    const char *codec;
};
// Sizes from one cache line to many segments, lossless and not.
inline constexpr Shape shapes[] = {{1, nullptr},     {300, nullptr}, {5000, "int8"},
                                   {70000, nullptr}, {1000, "int4"}, {600000, "minmax"},
                                   {900000, nullptr}};

// Memory that peers read in place, or a plain vector.
class Values {
public:
    Values(size_t count, bool is_shared) : own_(is_shared ? 0 : count), count_(count) {
        if (is_shared && qcclMemAlloc(&shared_, bytes()) != qcclSuccess) _exit(4);
    }
    float *data() { return shared_ != nullptr ? static_cast<float *>(shared_) : own_.data(); }
    const float &operator[](size_t i) { return data()[i]; }
    void fill(float value) { std::fill_n(data(), count_, value); }
    bool register_with(qcclComm_t comm) {
        void *handle = nullptr;
        return shared_ == nullptr ||
               qcclCommRegister(comm, shared_, bytes(), &handle) == qcclSuccess;
    }

private:
    size_t bytes() const { return count_ * sizeof(float); }

    void *shared_ = nullptr;
    std::vector<float> own_;
    size_t count_;
};

// Rank r sends r + 1 everywhere, so that the sum is known and every codec carries it exactly enough
// to tell right from wrong.
inline bool is_right(Values &values, size_t count, int ranks) {
    const float expected = static_cast<float>(ranks * (ranks + 1)) / 2;
    for (size_t i = 0; i < count; i++)
        if (std::abs(values[i] - expected) > 0.02F * expected) return false;
    return true;
}

inline void note(Report &report, qcclComm_t comm, qcclResult_t result) {
    std::snprintf(report.sentence, sizeof report.sentence, "%s", qcclGetLastError(comm));
    qcclErrorInfo_t info{};
    info.size = sizeof info;
    report.peer = comm != nullptr && qcclGetErrorInfo(comm, &info) == qcclSuccess ? info.peer : -1;
    report.result = result;
}

// Makes `calls` sums, of each shape in turn; the first error ends them.
inline qcclResult_t work(Report &report, qcclComm_t comm, int rank, int ranks, uint64_t calls,
                         bool registers) {
    std::vector<qcclCodec_t> codecs;
    for (const Shape &shape : shapes) {
        qcclCodec_t codec = nullptr;
        if (shape.codec != nullptr && qcclCodecCreate(&codec, shape.codec) != qcclSuccess)
            return qcclInternalError;
        codecs.push_back(codec);
    }
    const size_t largest =
        std::max_element(std::begin(shapes), std::end(shapes), [](auto &a, auto &b) {
            return a.count < b.count;
        })->count;
    Values send(largest, registers), recv(largest, registers);
    if (!send.register_with(comm) || !recv.register_with(comm)) return qcclInternalError;
    report.stage = calling;
    for (uint64_t i = 0; i < calls; i++) {
        const size_t which = i % std::size(shapes);
        qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
        config.codec = codecs[which];
        send.fill(static_cast<float>(rank + 1));
        const qcclResult_t result =
            qcclAllReduceConfig(send.data(), recv.data(), shapes[which].count, qcclFloat32, qcclSum,
                                comm, nullptr, &config);
        // A peer that still reads the buffer, on this host or another, gets a wrong sum.
        send.fill(-1);
        if (result != qcclSuccess) return result;
        if (!is_right(recv, shapes[which].count, ranks)) report.wrong = 1;
        report.calls = i + 1;
    }
    return qcclSuccess;
}

} // namespace workload
