// The deadlines, warnings and errors of one attempt to join a rendezvous.
#include "bootstrap/join_attempt.hpp"

namespace qccl {

JoinAttempt::JoinAttempt(const std::vector<Endpoint> &endpoints, const RendezvousOptions &options,
                         TimePoint now, bool wants_room)
    : where_(text(endpoints)), options_(options), deadline_(deadline_after(now, options.timeout)),
      wants_room_(wants_room), try_ends_(deadline_),
      tell_at_(deadline_after(now, options.warn_after)) {}

void JoinAttempt::begin_try(std::chrono::nanoseconds longest) {
    try_ends_ = std::min(deadline_, deadline_after(Clock::now(), longest));
}

void JoinAttempt::extend_try(std::chrono::nanoseconds longest) {
    if (try_ends_ == deadline_) return;
    try_ends_ = std::min(deadline_, std::max(try_ends_, Clock::now() + longest));
}

void JoinAttempt::tell() {
    if (Clock::now() < tell_at_) return;
    tell_at_ = TimePoint::max();
    const Error sentence =
        Error::make(Code::timeout, "cannot reach the rendezvous at %s yet: %s (%g s so far)",
                    where_.c_str(), obstacle_.c_str(), in_seconds(options_.warn_after));
    if (options_.warn) options_.warn(sentence.text);
}

Error JoinAttempt::no_answer() const {
    return Error::make(Code::timeout, "the rendezvous at %s gives no answer within %g s",
                       where_.c_str(), in_seconds(options_.timeout));
}

Error JoinAttempt::no_way() const {
    return Error::make(Code::timeout, "cannot reach the rendezvous at %s within %g s: %s",
                       where_.c_str(), in_seconds(options_.timeout), obstacle_.c_str());
}

Error JoinAttempt::no_way(const std::string &lasting_obstacle) const {
    return Error::make(Code::peer_lost, "cannot reach the rendezvous at %s: %s", where_.c_str(),
                       lasting_obstacle.c_str());
}

} // namespace qccl
