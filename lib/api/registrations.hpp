// The memory of this rank that its communicator may lend to peers. Registrations that are left at
// the communicator's end are given back. Used inside the entry guard, between calls.
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

    // Registers the block and returns a handle for `remove`.
    void *add(SharedBlock &block);
    // Returns invalid_usage for a handle that was removed or is another communicator's, and
    // invalid_argument for a value that never was a handle.
    Done remove(const void *handle);
    void clear() { held_.clear(); }

private:
    // While it lives, the block is exposed to peers and cannot be freed.
    class Registration {
    public:
        Registration(Transport &transport, SharedBlock &block, uint64_t number);
        ~Registration();
        Registration(const Registration &) = delete;
        // Whether peers can map everything that is registered.
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
    bool has_told_ = false; // that peers cannot map everything
    std::vector<std::unique_ptr<Registration>> held_;
};

} // namespace qccl
