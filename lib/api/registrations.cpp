// Implements the registration of memory with one communicator.
#include "api/registrations.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace qccl {

namespace {

// A handle is a number that the process gives once, behind 16 bits that no address begins with.
constexpr uint64_t first_number = uint64_t{0x51C4} << 48;
constinit std::atomic<uint64_t> next_number{first_number};

bool was_given(const void *handle) {
    const uint64_t number = reinterpret_cast<uintptr_t>(handle);
    return number >= first_number && number < next_number.load(std::memory_order_relaxed);
}

} // namespace

Registrations::Registration::Registration(Transport &transport, SharedBlock &block, uint64_t number)
    : transport_(transport), block_(block), number_(number),
      has_room_(transport.expose({.base = block.base(), .file = block.file})) {
    std::atomic_ref(block_.registrations).fetch_add(1, std::memory_order_relaxed);
}

Registrations::Registration::~Registration() {
    transport_.withdraw(block_.base());
    std::atomic_ref(block_.registrations).fetch_sub(1, std::memory_order_release);
}

void *Registrations::Registration::handle() const { return reinterpret_cast<void *>(number_); }

void *Registrations::add(SharedBlock &block) {
    held_.push_back(std::make_unique<Registration>(
        transport_, block, next_number.fetch_add(1, std::memory_order_relaxed)));
    if (!held_.back()->has_room() && !std::exchange(has_told_, true))
        log_.info("more blocks of memory are registered than peers map at a time; calls on the "
                  "others copy, as on unregistered memory");
    return held_.back()->handle();
}

Done Registrations::remove(const void *handle) {
    const auto found = std::find_if(held_.begin(), held_.end(),
                                    [=](const auto &held) { return held->handle() == handle; });
    if (found != held_.end()) {
        held_.erase(found);
        return {};
    }
    if (was_given(handle))
        return Error::make(Code::invalid_usage,
                           "handle is %p, which has been deregistered (or qcclCommRegister gave it "
                           "for another communicator)",
                           handle);
    return Error::make(Code::invalid_argument, "handle is %p, which qcclCommRegister did not give",
                       handle);
}

} // namespace qccl
