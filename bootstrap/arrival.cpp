#include "bootstrap/arrival.hpp"

namespace qccl {

static double in_seconds(std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
}

Arrival::Arrival(const Endpoint &endpoint, const RendezvousOptions &options, TimePoint now)
    : endpoint_(endpoint), options_(options), deadline_(deadline_after(now, options.timeout)),
      tell_at_(deadline_after(now, options.warn_after)) {}

void Arrival::tell(const char *obstacle) {
    if (Clock::now() < tell_at_) return;
    tell_at_ = TimePoint::max();
    const Error sentence =
        Error::make(Code::timeout, "cannot reach the rendezvous at %s yet: %s (%g s so far)",
                    text(endpoint_).c_str(), obstacle, in_seconds(options_.warn_after));
    if (options_.warn) options_.warn(sentence.text);
}

Error Arrival::no_answer() const {
    return Error::make(Code::timeout, "the rendezvous at %s gives no answer within %g s",
                       text(endpoint_).c_str(), in_seconds(options_.timeout));
}

} // namespace qccl
