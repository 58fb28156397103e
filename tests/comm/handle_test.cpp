// Tests the handles of the API: an ended handle is refused for the life of the process, and a value
// that was never a handle is refused without dereferencing it.
#include "tests/kit/qtest.hpp"
#include "tests/kit/sanitizer.h"

#include <qccl/qccl.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

struct Use {
    const char *function;
    std::function<qcclResult_t(void *handle)> call;
};

float values[2] = {1, 2}, results[2];
std::byte encoded[256];

std::vector<Use> uses_of_comms() {
    const auto comm = [](void *handle) { return static_cast<qcclComm_t>(handle); };
    return {
        {"Barrier", [=](void *h) { return qcclBarrier(comm(h), nullptr); }},
        {"AllReduce",
         [=](void *h) {
             return qcclAllReduce(values, results, 2, qcclFloat32, qcclSum, comm(h), nullptr);
         }},
        {"Finalize", [=](void *h) { return qcclCommFinalize(comm(h)); }},
        {"Destroy", [=](void *h) { return qcclCommDestroy(comm(h)); }},
        {"Abort", [=](void *h) { return qcclCommAbort(comm(h)); }},
        {"Revoke", [=](void *h) { return qcclCommRevoke(comm(h)); }},
        {"GetAsyncError",
         [=](void *h) {
             qcclResult_t result = qcclSuccess;
             return qcclCommGetAsyncError(comm(h), &result);
         }},
        {"Count",
         [=](void *h) {
             int count = 0;
             return qcclCommCount(comm(h), &count);
         }},
        {"GetErrorInfo",
         [=](void *h) {
             qcclErrorInfo_t info{};
             info.size = sizeof info;
             return qcclGetErrorInfo(comm(h), &info);
         }},
        {"GetStats",
         [=](void *h) {
             qcclCommStats_t stats{};
             stats.size = sizeof stats;
             return qcclCommGetStats(comm(h), &stats);
         }},
        {"Explain",
         [=](void *h) {
             size_t bytes = 0;
             return qcclExplain(comm(h), "all_reduce", nullptr, &bytes);
         }},
        {"Split",
         [=](void *h) {
             qcclComm_t made = nullptr;
             return qcclCommSplit(comm(h), QCCL_SPLIT_NOCOLOR, 0, &made, nullptr);
         }},
        {"Shrink",
         [=](void *h) {
             qcclComm_t made = nullptr;
             return qcclCommShrink(comm(h), nullptr, 0, &made, nullptr, QCCL_SHRINK_ABORT);
         }},
        {"Deregister", [=](void *h) { return qcclCommDeregister(comm(h), nullptr); }},
    };
}

std::vector<Use> uses_of_streams() {
    return {
        {"Query", [](void *h) { return qcclStreamQuery(h); }},
        {"Synchronize", [](void *h) { return qcclStreamSynchronize(h); }},
        {"Destroy", [](void *h) { return qcclStreamDestroy(h); }},
        {"Barrier",
         [](void *h) {
             static qcclComm_t comm = nullptr;
             if (!comm) CHECK_EQ(qcclCommInitAll(&comm, 1, nullptr), qcclSuccess);
             return qcclBarrier(comm, h);
         }},
        {"Encode",
         [](void *h) {
             static qcclCodec_t codec = nullptr;
             if (!codec) CHECK_EQ(qcclCodecCreate(&codec, "int8"), qcclSuccess);
             size_t written = 0;
             return qcclCodecEncode(codec, values, 2, qcclFloat32, encoded, sizeof encoded,
                                    &written, h);
         }},
    };
}

std::vector<Use> uses_of_codecs() {
    const auto codec = [](void *handle) { return static_cast<qcclCodec_t>(handle); };
    return {
        {"MaxEncodedBytes",
         [=](void *h) {
             size_t bytes = 0;
             return qcclCodecMaxEncodedBytes(codec(h), 1, qcclFloat32, &bytes);
         }},
        {"Decode",
         [=](void *h) {
             return qcclCodecDecode(codec(h), encoded, sizeof encoded, results, 2, qcclFloat32,
                                    nullptr);
         }},
        {"Destroy", [=](void *h) { return qcclCodecDestroy(codec(h)); }},
        {"AllReduceConfig",
         [=](void *h) {
             static qcclComm_t comm = nullptr;
             if (!comm) CHECK_EQ(qcclCommInitAll(&comm, 1, nullptr), qcclSuccess);
             qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
             config.codec = codec(h);
             return qcclAllReduceConfig(values, results, 2, qcclFloat32, qcclSum, comm, nullptr,
                                        &config);
         }},
    };
}

void *new_comm() {
    qcclComm_t comm = nullptr;
    CHECK_EQ(qcclCommInitAll(&comm, 1, nullptr), qcclSuccess);
    return comm;
}
void *new_stream() {
    qcclStream_t stream = nullptr;
    CHECK_EQ(qcclStreamCreate(&stream), qcclSuccess);
    return stream;
}
void *new_codec() {
    qcclCodec_t codec = nullptr;
    CHECK_EQ(qcclCodecCreate(&codec, "int8"), qcclSuccess);
    return codec;
}

struct Kind {
    std::vector<Use> uses;
    std::function<void *()> create;
    std::vector<std::function<qcclResult_t(void *)>> ends;
};

std::vector<Kind> kinds() {
    const auto destroy = [](void *h) { return qcclCommDestroy(static_cast<qcclComm_t>(h)); };
    const auto abort = [](void *h) { return qcclCommAbort(static_cast<qcclComm_t>(h)); };
    const auto destroy_codec = [](void *h) {
        return qcclCodecDestroy(static_cast<qcclCodec_t>(h));
    };
    return {{uses_of_comms(), new_comm, {destroy, abort}},
            {uses_of_streams(), new_stream, {qcclStreamDestroy}},
            {uses_of_codecs(), new_codec, {destroy_codec}}};
}

void check_refused(const Kind &kind, void *handle, qcclResult_t expected, const char *part) {
    for (const Use &use : kind.uses) {
        const qcclResult_t result = use.call(handle);
        const std::string said = qcclGetLastError(nullptr);
        if (result != expected || said.find(part) == std::string::npos)
            CHECK_EQ(std::string(use.function) + ": " + said, part);
    }
}

} // namespace

static void one_that_has_ended_is_refused_for_ever() {
    for (const Kind &kind : kinds())
        for (const auto &end : kind.ends) {
            void *const ended = kind.create();
            CHECK_EQ(end(ended), qcclSuccess);
            check_refused(kind, ended, qcclInvalidUsage, "which has been destroyed");
            std::vector<void *> later;
            for (int i = 0; i < 40; i++) {
                later.push_back(kind.create());
                CHECK(later.back() != ended);
                if (i % 2 == 0) CHECK_EQ(end(std::exchange(later.back(), nullptr)), qcclSuccess);
            }
            check_refused(kind, ended, qcclInvalidUsage, "which has been destroyed");
            for (void *const each : later)
                if (each) CHECK_EQ(end(each), qcclSuccess);
        }
}

static void its_last_error_says_so() {
    const auto comm = static_cast<qcclComm_t>(new_comm());
    CHECK_EQ(std::string(qcclGetLastError(comm)), "");
    CHECK_EQ(qcclCommAbort(comm), qcclSuccess);
    CHECK(std::strstr(qcclGetLastError(comm), "has been destroyed or aborted"));
    CHECK_EQ(std::string(qcclGetLastError(reinterpret_cast<qcclComm_t>(values))), "");
}

// Values that a program may have in a variable in place of a handle.
static std::vector<void *> garbage(const Kind &kind) {
    static std::byte zeros[512];
    int on_stack = 0;
    const auto bits_of = [](uintptr_t bits) { return reinterpret_cast<void *>(bits); };
    std::vector<void *> all{&on_stack,
                            zeros,
                            zeros + 1,
                            bits_of(1),
                            bits_of(8),
                            bits_of(4096),
                            bits_of(0xDEADBEEFDEADBEE8),
                            bits_of(~uintptr_t{1}),
                            bits_of(reinterpret_cast<uintptr_t>(&new_comm)),
                            mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
    // A live handle with one bit flipped: a later generation, a slot far away, another kind.
    void *const alive = kind.create();
    for (unsigned bit = 0; bit < 64; bit++) {
        const uintptr_t flipped = reinterpret_cast<uintptr_t>(alive) ^ uintptr_t { 1 } << bit;
        if (bit >= 34 || (bit < 24 && flipped > reinterpret_cast<uintptr_t>(alive)))
            all.push_back(bits_of(flipped));
    }
    std::mt19937_64 random(1);
    for (int i = 0; i < 1000; i++) {
        all.push_back(bits_of(random()));
        all.push_back(bits_of(random() >> 16 & ~uintptr_t{7}));
    }
    return all;
}

static void what_never_was_one_is_not_followed() {
    const std::vector<Kind> all = kinds();
    for (size_t i = 0; i < all.size(); i++) {
        std::vector<void *> wrong = garbage(all[i]);
        wrong.push_back(all[(i + 1) % all.size()].create());
        wrong.push_back(all[(i + 2) % all.size()].create());
        for (void *const each : wrong) check_refused(all[i], each, qcclInvalidArgument, " is 0x");
    }
}

static void a_forked_child_has_codecs_alone() {
    const auto all = kinds();
    std::vector<void *> made;
    for (const Kind &kind : all) made.push_back(kind.create());
    const pid_t child = fork();
    if (child == 0) {
        for (size_t i : {0U, 1U})
            for (const Use &use : all[i].uses)
                if (use.call(made[i]) != qcclInvalidUsage ||
                    !std::strstr(qcclGetLastError(nullptr), "(codecs may be shared)"))
                    _exit(1);
        size_t bytes = 0;
        const auto codec = static_cast<qcclCodec_t>(made[2]);
        if (qcclCodecMaxEncodedBytes(codec, 1, qcclFloat32, &bytes) != qcclSuccess) _exit(2);
        if (qcclCodecDestroy(codec) != qcclSuccess) _exit(3);
        if (qcclCodecDestroy(codec) != qcclInvalidUsage) _exit(4);
#if !UNDER_THREAD_SANITIZER // it fails if a child of a process with threads starts one
        // A handle that the child makes is valid in the child, and not in its own child.
        const qcclStream_t own = new_stream();
        if (qcclStreamQuery(own) != qcclSuccess) _exit(5);
        if (qcclStreamQuery(made[1]) != qcclInvalidUsage) _exit(6);
        if (own == made[1]) _exit(7);
        const pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(qcclStreamQuery(own) != qcclInvalidUsage ||
                  qcclStreamQuery(made[1]) != qcclInvalidUsage);
        int status = -1;
        if (waitpid(grandchild, &status, 0) != grandchild || status != 0) _exit(8);
        if (qcclStreamDestroy(own) != qcclSuccess) _exit(9);
#endif
        _exit(0);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    for (size_t i = 0; i < all.size(); i++) CHECK_EQ(all[i].ends[0](made[i]), qcclSuccess);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(one_that_has_ended_is_refused_for_ever),
        QTEST(its_last_error_says_so),
        QTEST(what_never_was_one_is_not_followed),
        QTEST(a_forked_child_has_codecs_alone),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
