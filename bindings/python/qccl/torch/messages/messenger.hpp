// Point-to-point messages of a process group, with tags, from a given rank or from any rank, in any
// order of posting.
//
// Ranks get a link when the first message goes between them. The sender announces itself in the
// store, in the receiver's inbox. A rank looks into its inbox while it waits for a rank with which
// it has no link. When both ranks know of each other, the lower one makes the id of their
// communicator.
//
// Any thread may call every function. None of them blocks but `close`. One thread looks into the
// store; each link has two.
#pragma once

#include "core/communicator.hpp"
#include "core/group_store.hpp"
#include "core/process_identity.hpp"
#include "messages/peer_link.hpp"
#include "messages/receive_board.hpp"

#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace qccl_torch {

class Messenger {
public:
    // `prefix`: of keys in the store, equal on all ranks and used by no other group.
    Messenger(std::shared_ptr<GroupStore> store, std::string prefix, int rank,
              std::vector<ProcessIdentity> processes, CommunicatorSettings settings);
    Messenger(const Messenger &) = delete;
    Messenger &operator=(const Messenger &) = delete;
    ~Messenger();

    // `limit`: how long a small message may wait for room at the peer, see PeerLink.
    void send(const void *data, size_t bytes, int dest, int tag, Milliseconds limit,
              Completion done);
    // Returns the number of the receive, which `cancel` takes.
    uint64_t receive(void *buffer, size_t bytes, int source, int tag, Completion done);
    // Calls the completion of a receive with `reason`, if no message has matched it.
    bool cancel(uint64_t number, std::exception_ptr reason);
    // Sends what is queued for ranks with which a link is connected, for as long as `patience`.
    // Fails what waits, and all later calls. A program that waits for its sends loses none.
    void close(Milliseconds patience);
    // Ends what the links do, and a running `close`.
    void abort();

private:
    PeerLink &link_with(int peer);
    void seek_peers();
    std::vector<PeerLink *> refuse_later_calls();
    void look_for_peers();
    bool needs_peers() const;
    void poll_store();
    void announce_to(int peer);
    void read_inbox();
    void start_links();
    PeerLink::Channels connect_to(int peer, const std::atomic<bool> &is_given_up);
    void fail_if_ended(int peer);
    void fail_unlinked(const std::exception &error);
    std::vector<int> unlinked_peers() const;
    std::string inbox_of(int rank, const std::string &entry) const;
    std::string id_key(int peer) const;

    const std::shared_ptr<GroupStore> given_store_;
    std::unique_ptr<GroupStore> store_; // the seeker's and the links', from the first message on
    const std::string prefix_;
    const int rank_;
    const std::vector<ProcessIdentity> processes_;
    const CommunicatorSettings settings_;
    ReceiveBoard board_;

    mutable std::mutex mutex_;
    std::condition_variable has_changed_;
    std::map<int, std::unique_ptr<PeerLink>> links_; // of peers that a message or an inbox named
    std::set<int> announced_to_, announced_by_;
    int64_t inbox_entries_read_ = 0;
    bool is_new_demand_ = false, is_closed_ = false;
    std::thread seeker_;
};

} // namespace qccl_torch
