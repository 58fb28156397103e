// Which memory of this rank its communicator may lend to peers. What is left at the communicator's
// end is given back. Used under the gate, between calls.
#pragma once

#include "transport/shared_block.hpp"
#include "transport/transport.hpp"

#include <memory>
#include <vector>

namespace qccl {

class Registrations {
public:
    explicit Registrations(Transport &transport) : transport_(transport) {}

    // A handle for `remove`.
    void *add(SharedBlock &block);
    Done remove(const void *handle);
    void clear() { held_.clear(); }

private:
    // Keeps the block from being freed, and shown to peers, as long as it lives.
    class Registration {
    public:
        Registration(Transport &transport, SharedBlock &block);
        ~Registration();
        Registration(const Registration &) = delete;

    private:
        Transport &transport_;
        SharedBlock &block_;
    };

    Transport &transport_;
    std::vector<std::unique_ptr<Registration>> held_;
};

} // namespace qccl
