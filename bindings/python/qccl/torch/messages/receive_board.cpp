// Searches both queues from the front. They are short: a program has few receives posted at a time.
#include "messages/receive_board.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace qccl_torch {

namespace {

bool fits(const PostedReceive &receive, int source, int tag) {
    return receive.tag == tag && (receive.source == any_source || receive.source == source);
}

template <class Queue, class Predicate> auto take_first(Queue &queue, Predicate fits_queue) {
    std::optional<typename Queue::value_type> taken;
    const auto found = std::find_if(queue.begin(), queue.end(), fits_queue);
    if (found == queue.end()) return taken;
    taken = std::move(*found);
    queue.erase(found);
    return taken;
}

} // namespace

std::optional<UnexpectedMessage> ReceiveBoard::post(PostedReceive &receive) {
    const std::lock_guard lock(mutex_);
    auto message = take_first(unexpected_, [&](const UnexpectedMessage &each) {
        return fits(receive, each.source, each.tag);
    });
    if (message) return message;
    if (const auto lost = lost_.find(receive.source); lost != lost_.end())
        std::rethrow_exception(lost->second);
    if (receive.source == any_source && has_lost_all())
        std::rethrow_exception(lost_.begin()->second);
    posted_.push_back(std::move(receive));
    return {};
}

std::optional<PostedReceive> ReceiveBoard::take(int source, int tag) {
    const std::lock_guard lock(mutex_);
    return take_first(posted_, [&](const PostedReceive &each) { return fits(each, source, tag); });
}

std::optional<PostedReceive> ReceiveBoard::take_or_keep(UnexpectedMessage &message) {
    const std::lock_guard lock(mutex_);
    auto receive = take_first(posted_, [&](const PostedReceive &each) {
        return fits(each, message.source, message.tag);
    });
    if (!receive) unexpected_.push_back(std::move(message));
    return receive;
}

std::optional<PostedReceive> ReceiveBoard::cancel(uint64_t number) {
    const std::lock_guard lock(mutex_);
    return take_first(posted_, [&](const PostedReceive &each) { return each.number == number; });
}

bool ReceiveBoard::has_lost_all() const {
    return static_cast<int>(lost_.size() + lost_.count(own_rank_)) >= ranks_ - 1;
}

std::vector<PostedReceive> ReceiveBoard::lose(int source, std::exception_ptr reason) {
    const std::lock_guard lock(mutex_);
    lost_.emplace(source, std::move(reason));
    const bool takes_any = has_lost_all();
    const auto stays = [&](const PostedReceive &each) {
        return each.source != source && !(takes_any && each.source == any_source);
    };
    const auto first = std::stable_partition(posted_.begin(), posted_.end(), stays);
    std::vector<PostedReceive> taken(std::make_move_iterator(first),
                                     std::make_move_iterator(posted_.end()));
    posted_.erase(first, posted_.end());
    // A request whose data can no longer come serves no receive.
    std::erase_if(unexpected_, [&](const UnexpectedMessage &each) {
        return each.source == source && each.request;
    });
    return taken;
}

std::vector<PostedReceive> ReceiveBoard::take_all() {
    const std::lock_guard lock(mutex_);
    std::vector<PostedReceive> taken(std::make_move_iterator(posted_.begin()),
                                     std::make_move_iterator(posted_.end()));
    posted_.clear();
    return taken;
}

uint64_t ReceiveBoard::next_number() {
    const std::lock_guard lock(mutex_);
    return ++last_number_;
}

bool ReceiveBoard::waits_for(int source) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(posted_.begin(), posted_.end(), [&](const PostedReceive &each) {
        return each.source == any_source || each.source == source;
    });
}

} // namespace qccl_torch
