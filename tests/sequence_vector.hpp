// The vectors that ranks of a sequence send, and what they are to receive: small integers, chosen
// so that every sum, partial sum, product and average is exact in every type.
#pragma once

#include "call_sequence.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace sequences {

// The buffers of one call on one rank, with a few bytes behind each that nobody may touch.
class CallBuffers {
public:
    CallBuffers(const Call &call, int rank, int ranks, bool is_in_place);
    const void *send() const;
    void *recv();
    std::span<const std::byte> received() const;
    // Whether a lossless call has left what it should.
    bool are_right() const;
    bool are_intact() const;

private:
    size_t bytes(size_t count) const { return count * type_row(call_.type).bytes; }
    size_t recv_count() const;
    size_t send_count() const;
    int64_t expected(size_t index) const;

    const Call call_;
    const int rank_, ranks_;
    std::vector<std::byte> send_, recv_; // one of them is empty of a call in place
};

} // namespace sequences
