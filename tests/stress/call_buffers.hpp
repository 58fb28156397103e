// The buffers of one random call on one rank: where its parts lie, what they hold before the call,
// and whether they hold afterwards what they should. Used by the programs that play ranks. A rank
// chooses by itself whether a call is in place, and how far the parts lie from one another.
#pragma once

#include "call_values.hpp"

#include <span>
#include <vector>

namespace stress {

// What one rank takes for another count than its peers do, in a v-form whose counts the ranks know
// for their own parts alone.
struct WrongPart {
    int peer = -1; // -1: none
    bool is_received = false;
};

class CallBuffers {
public:
    CallBuffers(const Call &call, int rank, int ranks, Random &local, WrongPart wrong = {});
    CallBuffers(CallBuffers &&) = default;

    const void *send() const { return send_.empty() ? recv_.data() + shift_ : send_.data(); }
    void *recv() { return recv_.empty() ? send_.data() + shift_ : recv_.data(); }
    // Of the v-forms, in elements.
    const size_t *send_counts() const { return send_counts_.data(); }
    const size_t *send_displs() const { return send_displs_.data(); }
    const size_t *recv_counts() const { return recv_counts_.data(); }
    const size_t *recv_displs() const { return recv_displs_.data(); }
    size_t stride() const { return stride_; }

    // Writes the values again, so that another call can be made with the same buffers.
    void refill();
    // Whether the rank has received what it has to.
    bool are_right() const;
    // Whether the bytes beside the parts are unchanged, and all of a send buffer.
    bool are_intact() const;
    // A number that follows from the received bytes.
    uint64_t hash() const;

private:
    // Elements that lie together. They are elements `first` and on of what rank `of` contributes;
    // or of what all ranks below `covered` contribute, combined.
    struct Part {
        size_t at, count;
        int of, covered;
        size_t first;
    };
    std::vector<Part> sent_parts(WrongPart wrong) const;
    std::vector<Part> received_parts(WrongPart wrong) const;
    void lay_out(std::vector<Part> &parts, Random &local);
    void lay_out_in_place();
    bool can_be_in_place() const;
    size_t first_of(int from, int to) const; // in what `from` contributes
    static size_t end_of(const std::vector<Part> &parts);
    static std::vector<size_t> counts_in(const std::vector<Part> &parts);
    static std::vector<size_t> places_in(const std::vector<Part> &parts);
    // Returns whether all bytes of the buffer that lie in none of the parts are guards.
    bool has_guards(const std::vector<std::byte> &buffer, const std::vector<Part> &parts,
                    size_t shift) const;
    bool has_values(const std::byte *values, const std::vector<Part> &parts) const;
    size_t bytes(size_t count) const { return count * type_row(call_.type).bytes; }

    const Call call_;
    const int rank_, ranks_;
    const CallValues values_;
    std::vector<Part> sent_, received_;
    std::vector<size_t> send_counts_, send_displs_, recv_counts_, recv_displs_;
    size_t stride_ = 0; // 0: parts follow one another
    size_t shift_ = 0;  // in place: bytes from the start of the larger buffer to the smaller one
    std::vector<std::byte> send_, recv_; // one of them is empty for a call in place
};

} // namespace stress
