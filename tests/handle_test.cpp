// api: a handle that has been destroyed is refused even where nobody has written over its memory.
#include "qtest.hpp"

#include <qccl/qccl.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

// In front of each allocation: what was given back is kept, and as it was.
struct alignas(std::max_align_t) Header {
    Header *next;
};
std::atomic<Header *> kept{nullptr};

} // namespace

void *operator new(size_t bytes) {
    void *const memory = std::malloc(sizeof(Header) + bytes);
    if (!memory) throw std::bad_alloc();
    return static_cast<Header *>(memory) + 1;
}
void operator delete(void *memory) noexcept {
    if (!memory) return;
    Header *const header = static_cast<Header *>(memory) - 1;
    header->next = kept.load();
    while (!kept.compare_exchange_weak(header->next, header)) {}
}
void operator delete(void *memory, size_t) noexcept { operator delete(memory); }

static std::string last_error() { return qcclGetLastError(nullptr); }

static void a_codec() {
    qcclCodec_t codec = nullptr;
    size_t bytes = 0;
    CHECK_EQ(qcclCodecCreate(&codec, "int8"), qcclSuccess);
    CHECK_EQ(qcclCodecMaxEncodedBytes(codec, 1, qcclFloat32, &bytes), qcclSuccess);
    CHECK_EQ(qcclCodecDestroy(codec), qcclSuccess);
    CHECK_EQ(qcclCodecMaxEncodedBytes(codec, 1, qcclFloat32, &bytes), qcclInvalidArgument);
    CHECK_EQ(qcclCodecDestroy(codec), qcclInvalidArgument);
    CHECK(last_error().find("has been destroyed") != std::string::npos);
}

static void a_stream() {
    qcclStream_t stream = nullptr;
    CHECK_EQ(qcclStreamCreate(&stream), qcclSuccess);
    CHECK_EQ(qcclStreamQuery(stream), qcclSuccess);
    CHECK_EQ(qcclStreamDestroy(stream), qcclSuccess);
    CHECK_EQ(qcclStreamQuery(stream), qcclInvalidArgument);
    CHECK_EQ(qcclStreamDestroy(stream), qcclInvalidArgument);
    CHECK(last_error().find("has been destroyed") != std::string::npos);
}

static void a_communicator() {
    for (const auto end : {qcclCommDestroy, qcclCommAbort}) {
        qcclComm_t comm = nullptr;
        CHECK_EQ(qcclCommInitAll(&comm, 1, nullptr), qcclSuccess);
        CHECK_EQ(qcclBarrier(comm, nullptr), qcclSuccess);
        CHECK_EQ(end(comm), qcclSuccess);
        CHECK_EQ(qcclBarrier(comm, nullptr), qcclInvalidArgument);
        CHECK_EQ(qcclCommDestroy(comm), qcclInvalidArgument);
        CHECK(last_error().find("has been destroyed") != std::string::npos);
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_codec),
        QTEST(a_stream),
        QTEST(a_communicator),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
