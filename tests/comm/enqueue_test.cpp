// Tests Comm (lib/comm/comm) through the C API: if any allocation fails while a call is enqueued on
// a stream, the caller gets an error, and all work that was enqueued before ends.
#include "tests/kit/qtest.hpp"

#include <qccl/qccl.h>

#include <cstdlib>
#include <new>

#include <unistd.h>

// The number of allocations of this thread that succeed before one fails; negative: all succeed.
static thread_local int granted = -1;

void *operator new(size_t bytes) {
    if (granted >= 0 && granted-- == 0) throw std::bad_alloc();
    if (void *const memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}
// The address sanitizer's does not call the one above.
void *operator new(size_t bytes, const std::nothrow_t &) noexcept {
    try {
        return operator new(bytes);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

namespace {

struct Pair {
    qcclComm_t ranks[2] = {};
    Pair() { CHECK_EQ(qcclCommInitAll(ranks, 2, nullptr), qcclSuccess); }

    qcclResult_t sum(int rank, float &value, qcclStream_t stream) const {
        return qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, ranks[rank], stream);
    }
    // Returns the result of destroying the first rank.
    qcclResult_t destroy() const {
        const qcclResult_t result = qcclCommDestroy(ranks[0]);
        qcclCommDestroy(ranks[1]);
        return result;
    }
};

// Returns false if `grant` allocations were enough to enqueue the call.
bool enqueueing_fails(int grant) {
    const Pair held, starved;
    qcclStream_t queue = nullptr, free = nullptr;
    CHECK_EQ(qcclStreamCreate(&queue), qcclSuccess);
    CHECK_EQ(qcclStreamCreate(&free), qcclSuccess);
    float first = 1, other = 2, waiting = 4, refused = 8;
    // The peer of this call has not come, so the call behind it cannot run before the next call
    // fails.
    CHECK_EQ(held.sum(0, first, queue), qcclSuccess);
    CHECK_EQ(starved.sum(0, waiting, queue), qcclSuccess);
    granted = grant;
    const qcclResult_t result = starved.sum(0, refused, free);
    granted = -1;

    CHECK_EQ(held.sum(1, other, nullptr), qcclSuccess);
    CHECK_EQ(other, 3.0F);
    if (result == qcclSuccess) {
        float values[2] = {16, 32};
        for (float &value : values) CHECK_EQ(starved.sum(1, value, nullptr), qcclSuccess);
        CHECK_EQ(qcclStreamSynchronize(queue), qcclSuccess);
        CHECK_EQ(qcclStreamSynchronize(free), qcclSuccess);
        CHECK_EQ(waiting + refused, 60.0F);
    } else {
        CHECK_EQ(result, qcclSystemError);
        const std::string said = qcclGetLastError(starved.ranks[1]);
        CHECK(said.starts_with("rank 0: all_reduce") && said.ends_with(": out of memory"));
        CHECK_EQ(qcclStreamSynchronize(queue), qcclSystemError);
        CHECK_EQ(qcclStreamSynchronize(free), qcclSuccess);
        CHECK_EQ(qcclCommFinalize(starved.ranks[0]), qcclSystemError);
    }
    CHECK_EQ(starved.destroy(), qcclSuccess);
    CHECK_EQ(held.destroy(), qcclSuccess);
    CHECK_EQ(qcclStreamDestroy(queue), qcclSuccess);
    CHECK_EQ(qcclStreamDestroy(free), qcclSuccess);
    return result != qcclSuccess;
}

} // namespace

static void what_was_enqueued_before_comes_to_its_end() {
    int grant = 0;
    while (enqueueing_fails(grant)) grant++;
    CHECK(grant > 0);
}

int main() {
    alarm(60); // a failing test would hang
    const CMUnitTest tests[] = {QTEST(what_was_enqueued_before_comes_to_its_end)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
