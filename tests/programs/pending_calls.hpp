// The calls that a rank has enqueued on its host streams and not yet waited for: their buffers and
// their requests. Waits for them by each function that can, and checks what they received. Used by
// program_rank.cpp; one thread at a time.
#pragma once

#include "tests/stress/call_buffers.hpp"
#include "rank_report.hpp"

#include <deque>

namespace stress {

// A call, and its buffers if it has some.
struct IssuedCall {
    int comm;
    Call call;
    std::vector<CallBuffers> buffers; // one or none
};

class PendingCalls {
public:
    static constexpr int streams = 2;
    // `equal`: for each communicator, a number that follows from what all of its ranks receive
    // alike.
    PendingCalls(RankReport &report, Random &local);
    PendingCalls(const PendingCalls &) = delete;
    PendingCalls &operator=(const PendingCalls &) = delete;
    ~PendingCalls();

    qcclStream_t stream(int number) const { return streams_[number]; }
    void begin_program(uint64_t *equal) { equal_ = equal; }
    // Takes calls that have been enqueued on the stream.
    void add(int stream, std::vector<IssuedCall> issued);
    void wait_for_some();
    void wait_for_all();
    // Checks what a call that is done has received.
    void check(const IssuedCall &issued);

private:
    struct Entry {
        int stream;
        std::vector<IssuedCall> issued;
        qcclRequest_t request;
    };
    void finish(size_t which, qcclResult_t result, double began);
    void wait_for_any();
    void wait_together();
    void test_until_done(size_t which);
    void synchronize(int stream);

    RankReport &report_;
    Random &local_; // choices in which ranks may differ
    uint64_t *equal_ = nullptr;
    qcclStream_t streams_[streams] = {};
    std::deque<Entry> entries_;
};

} // namespace stress
