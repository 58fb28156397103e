// Messages in flight while the verifier runs all ranks: a queue for each pair of ranks and
// direction. Used on one thread; nothing blocks. Values are opaque numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qccl {

// A message in flight.
struct Envelope {
    uint32_t value = 0;
    uint32_t origin = 0; // the wire slot, numbered over all ranks, that holds the bytes
    uint32_t rounds = 0; // of the sender
    uint32_t step = 0;   // of the sender
    uint32_t chunk = 0;
    bool is_inner = false; // sent below the outermost tier
    uint32_t next = 0;     // in the queue or in the free list
};

// The content of a wire slot, and the slot of the rank that encoded the content.
struct Parcel {
    static constexpr uint32_t none = ~uint32_t{0};

    uint32_t value = none;
    uint32_t chunk = 0;
    uint32_t origin = none;
    bool stays = false; // no rank may send it
    bool is_inner = false;
};

// All queues share one store, because there are many pairs and few messages in flight.
class MessageQueues {
public:
    explicit MessageQueues(uint32_t ranks) : ranks_(ranks), queues_(size_t{ranks} * ranks) {}

    bool is_empty(uint32_t from, uint32_t to) const { return queue(from, to).first == none; }

    void put(uint32_t from, uint32_t to, const Envelope &envelope) {
        const uint32_t at = allocate();
        store_[at] = envelope;
        store_[at].next = none;
        Queue &q = queues_[size_t{from} * ranks_ + to];
        if (q.first == none)
            q.first = at;
        else
            store_[q.last].next = at;
        q.last = at;
    }

    // Removes the oldest message. The queue must not be empty.
    Envelope take(uint32_t from, uint32_t to) {
        Queue &q = queues_[size_t{from} * ranks_ + to];
        const uint32_t at = q.first;
        q.first = store_[at].next;
        const Envelope envelope = store_[at];
        store_[at].next = free_;
        free_ = at;
        return envelope;
    }

    // Returns a message of this sender that is still in a queue; null if there is none.
    const Envelope *first_from(uint32_t from) const {
        for (uint32_t to = 0; to < ranks_; to++)
            if (!is_empty(from, to)) return &store_[queue(from, to).first];
        return nullptr;
    }

private:
    static constexpr uint32_t none = ~uint32_t{0};

    struct Queue {
        uint32_t first = none;
        uint32_t last = none;
    };

    const Queue &queue(uint32_t from, uint32_t to) const {
        return queues_[size_t{from} * ranks_ + to];
    }
    uint32_t allocate() {
        if (free_ == none) {
            store_.emplace_back();
            return static_cast<uint32_t>(store_.size() - 1);
        }
        const uint32_t at = free_;
        free_ = store_[at].next;
        return at;
    }

    size_t ranks_;
    std::vector<Queue> queues_;
    std::vector<Envelope> store_;
    uint32_t free_ = none;
};

} // namespace qccl
