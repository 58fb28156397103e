// What the tests of the bootstrap share: ranks as threads that exchange bytes and report how it
// went.
#pragma once

#include "qtest.hpp"
#include "rank_threads.hpp"

#include "bootstrap/bootstraps.hpp"
#include "net/addresses.hpp"

#include <cstdlib>
#include <functional>
#include <vector>

namespace kit {

using namespace qccl;
using namespace std::chrono_literals;

// Returns options on the loopback. The timeout is so long that no prompt end can be its doing.
inline RendezvousOptions options(std::chrono::nanoseconds timeout = 30s) {
    RendezvousOptions some;
    some.interface = "127.0.0.1";
    some.timeout = timeout;
    return some;
}

inline RendezvousOptions options_at(AddressFamily family) {
    RendezvousOptions some = options();
    if (family == AddressFamily::ipv6) some.interface = "::1";
    return some;
}

inline UniqueId make_id(const RendezvousOptions &some = options()) {
    const auto id = create_unique_id(some);
    CHECK_OK(id);
    return *id;
}

// Returns how much longer than usual things may take; runs under valgrind and on slow machines set
// it.
inline double patience() {
    const char *factor = std::getenv("QTEST_PATIENCE");
    return factor ? std::atof(factor) : 1;
}

// Measures in seconds of a machine that runs at its usual speed.
struct Timer {
    Clock::time_point start = Clock::now();
    double seconds() const {
        return std::chrono::duration<double>(Clock::now() - start).count() / patience();
    }
};

// Runs `part` for each rank on a thread of its own; returns the results in rank order.
inline std::vector<Done> crowd(uint32_t size, const std::function<Done(uint32_t)> &part) {
    std::vector<Done> done(size);
    qtest::on_each_thread(size,
                          [&](size_t rank) { done[rank] = part(static_cast<uint32_t>(rank)); });
    return done;
}

// Gathers `bytes` bytes that tell rank and round apart, and compares what it receives.
inline Done exchange(Bootstrap &bootstrap, size_t bytes, uint32_t round) {
    const auto byte_of = [round](uint32_t rank, size_t i) {
        return static_cast<unsigned char>(rank * 31 + round * 7 + i * 3 + i / 251);
    };
    const uint32_t size = bootstrap.size();
    std::vector<unsigned char> mine(bytes), all(bytes * size);
    for (size_t i = 0; i < bytes; i++) mine[i] = byte_of(bootstrap.rank(), i);
    QCCL_TRY(bootstrap.all_gather(mine.data(), all.data(), bytes));
    for (uint32_t rank = 0; rank < size; rank++)
        for (size_t i = 0; i < bytes; i++)
            if (all[rank * bytes + i] != byte_of(rank, i))
                return Error::make(Code::internal_error, "byte %zu of rank %u is wrong", i, rank);
    return {};
}

inline Done join_and_exchange(const UniqueId &id, uint32_t size, uint32_t rank,
                              const RendezvousOptions &some = options()) {
    QCCL_TRY(const auto bootstrap, join_unique_id(id, size, rank, some));
    for (uint32_t round = 0; round < 3; round++) QCCL_TRY(exchange(*bootstrap, 8 + round, round));
    return {};
}

inline bool contains(const Done &done, const std::string &words) {
    return !done && std::string(done.error().text).find(words) != std::string::npos;
}

// Checks that every rank has failed with this code, this rank at fault and these words.
inline void check_all_refused(const std::vector<Done> &done, Code code, int32_t at_fault,
                              const std::string &words) {
    for (const Done &one : done) {
        CHECK(!one);
        if (!contains(one, words))
            throw qtest::Failure{std::string(one.error().text) + " lacks " + words};
        CHECK_EQ(static_cast<int>(one.error().code), static_cast<int>(code));
        CHECK_EQ(one.error().rank, at_fault);
    }
}

} // namespace kit
