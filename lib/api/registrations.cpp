#include "api/registrations.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace qccl {

Registrations::Registration::Registration(Transport &transport, SharedBlock &block)
    : transport_(transport), block_(block),
      has_room_(transport.show({.base = block.base(), .file = block.file})) {
    std::atomic_ref(block_.registrations).fetch_add(1, std::memory_order_relaxed);
}

Registrations::Registration::~Registration() {
    transport_.hide(block_.base());
    std::atomic_ref(block_.registrations).fetch_sub(1, std::memory_order_release);
}

void *Registrations::add(SharedBlock &block) {
    held_.push_back(std::make_unique<Registration>(transport_, block));
    if (!held_.back()->has_room() && !std::exchange(has_told_, true))
        log_.info("more blocks of memory are registered than peers map at a time; calls on the "
                  "others copy, as on unregistered memory");
    return held_.back().get();
}

Done Registrations::remove(const void *handle) {
    const auto found = std::find_if(held_.begin(), held_.end(),
                                    [=](const auto &held) { return held.get() == handle; });
    if (found == held_.end())
        return Error::make(Code::invalid_argument,
                           "handle is %p, which qcclCommRegister did not give for this "
                           "communicator (or it has been deregistered)",
                           handle);
    held_.erase(found);
    return {};
}

} // namespace qccl
