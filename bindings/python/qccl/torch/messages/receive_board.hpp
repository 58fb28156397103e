// Matches messages that arrive with receives that the program has posted, by source and tag, each
// in order: MPI's two queues, of posted receives and of unexpected messages.
//
// The Messenger posts, and the threads of the links bring messages. Any thread may call every
// function; none of them blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace qccl_torch {

constexpr int any_source = -1;

// Called once, without a lock held. `error` is null for a message that went well; `source` is the
// rank that sent, or -1.
using Completion = std::function<void(std::exception_ptr error, int source)>;

struct PostedReceive {
    uint64_t number = 0; // of this board
    void *buffer = nullptr;
    size_t bytes = 0;
    int source = any_source;
    int tag = 0;
    Completion done;
};

// A message for which no receive is posted.
struct UnexpectedMessage {
    int source = 0;
    int tag = 0;
    size_t bytes = 0;
    std::optional<uint64_t> request{}; // the message waits at its sender under this number
    std::vector<std::byte> data{};     // else the message itself
};

class ReceiveBoard {
public:
    explicit ReceiveBoard(int own_rank, int ranks) : own_rank_(own_rank), ranks_(ranks) {}

    // Returns the first message that fits the receive. If there is none, keeps the receive, which
    // is moved from. Throws the error of a source that is lost.
    std::optional<UnexpectedMessage> post(PostedReceive &receive);
    // Takes the first receive that fits a message.
    std::optional<PostedReceive> take(int source, int tag);
    // As `take`, and keeps the message if there is none; then the message is moved from.
    std::optional<PostedReceive> take_or_keep(UnexpectedMessage &message);
    // Takes a receive back that no message has matched.
    std::optional<PostedReceive> cancel(uint64_t number);
    // Takes all receives that only `source` could have served: it sends no more, for this reason.
    std::vector<PostedReceive> lose(int source, std::exception_ptr reason);
    std::vector<PostedReceive> take_all();

    uint64_t next_number();
    bool waits_for(int source) const;

private:
    bool has_lost_all() const;

    const int own_rank_, ranks_;
    mutable std::mutex mutex_;
    uint64_t last_number_ = 0;
    std::deque<PostedReceive> posted_;
    std::deque<UnexpectedMessage> unexpected_;
    std::map<int, std::exception_ptr> lost_;
};

} // namespace qccl_torch
