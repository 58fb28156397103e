// The vectors that the ranks of a sequence send and are to receive: small integers, chosen so that
// every sum, partial sum, product and average is exact in every type. Used by sequence_rank.cpp.
#pragma once

#include "call_sequence.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace sequences {

// The buffers of one call on one rank. A few guard bytes behind each must not change.
class CallBuffers {
public:
    CallBuffers(const Call &call, int rank, int ranks, bool is_in_place);
    const void *send() const;
    void *recv();
    std::span<const std::byte> received() const;
    // Whether the received values are those of a lossless call.
    bool are_right() const;
    bool are_intact() const;

private:
    size_t bytes(size_t count) const { return count * type_row(call_.type).bytes; }
    size_t recv_count() const;   // 0: this rank has no result
    size_t vector_count() const; // of the receive buffer of a rank that has one
    size_t send_count() const;
    int64_t expected(size_t index) const;

    const Call call_;
    const int rank_, ranks_;
    std::vector<std::byte> send_, recv_; // one of them is empty for a call in place
};

} // namespace sequences
