// Which memory of this rank its communicator may lend to peers. What is left at the communicator's
// end is given back. Used under the gate, between calls.
#pragma once

#include "base/log.hpp"
#include "transport/shared_block.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace qccl {

class Registrations {
public:
    Registrations(Transport &transport, const Log &log) : transport_(transport), log_(log) {}

    // A handle for `remove`.
    void *add(SharedBlock &block);
    Done remove(const void *handle);
    void clear() { held_.clear(); }

private:
    // Keeps the block from being freed, and shown to peers, as long as it lives.
    class Registration {
    public:
        Registration(Transport &transport, SharedBlock &block, uint64_t number);
        ~Registration();
        Registration(const Registration &) = delete;
        // What peers can map has room for all that is registered.
        bool has_room() const { return has_room_; }
        void *handle() const;

    private:
        Transport &transport_;
        SharedBlock &block_;
        const uint64_t number_;
        const bool has_room_;
    };

    Transport &transport_;
    const Log &log_;
    bool has_told_ = false; // that there is no room
    std::vector<std::unique_ptr<Registration>> held_;
};

} // namespace qccl
