// A transport moves encoded chunks between ranks by reference: the sender sends where bytes lie in
// an outbox, and the receiver gets a view of them and releases it when it has read them. Small
// messages go over eager slots: a rank posts a slot, and any other rank reads it. To publish means
// to show the ranks what call this rank has begun. Used by the engine and by the communicator, on
// the thread that runs the rank's calls; a function that any thread may call says so.
#pragma once

#include "base/call_descriptor.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/shared_memory.hpp"
#include "base/types.hpp"
#include "memory/local_messages.hpp"
#include "memory/message.hpp"
#include "trace/recorder.hpp"
#include "transport/network_module.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>

namespace qccl {

// Where a message from another host is stored: part of this rank's inbox that no rank reads.
// Messages from the same host do not use it.
struct RecvBuffer {
    uint32_t slot = 0; // of the inbox, counted from Transport::slots() on
    std::span<std::byte> memory{};
};

class MessageOwner;
class SurvivorExchange;

// What stays as it is for a transport's life. The caller need not ask for it by virtual calls.
struct TransportTraits {
    uint32_t rank = 0, size = 1;
    // Equal on all ranks of the communicator and almost surely different on another one's.
    uint64_t session = 0;
    // The number of ranks per core where the most ranks share cores. At least 1; equal on all
    // ranks.
    double ranks_per_core = 1;
    // `outbox` is the memory that this rank encodes into; `slots` is the number of slots that the
    // caller may divide it into. The caller decides which bytes belong to a slot. The caller may
    // write a slot while no rank reads the slot and the caller will send it to no further rank.
    std::span<std::byte> outbox{};
    uint32_t slots = 0;
    // Messages from ranks of other hosts lie here, in as many slots again, whose numbers follow
    // those of the outbox. Empty if there are no such ranks.
    std::span<std::byte> inbox{};
    // The memory in which all views lie: outboxes and inboxes of this host's ranks, as this rank
    // has them mapped.
    std::vector<std::span<std::byte>> arenas{};
    size_t eager_slot_bytes = 0;
};

// A whole call of one exchange over eager slots; see Transport::exchange.
class EagerExchange {
public:
    // For Transport::begin.
    const CallShape &shape;
    const CallNumbers numbers;
    const std::chrono::nanoseconds timeout;
    const size_t bytes;                    // that this rank posts
    const std::span<const uint32_t> ranks; // whose slots it reads, in this order

    // Writes this rank's values into its slot.
    virtual void write(std::byte *slot) = 0;
    // The slot is posted.
    virtual void posted() = 0;
    // Called for each of `ranks`, the first one with number 0, when its slot has come. An error
    // ends the call.
    virtual Done read(size_t number, std::span<const std::byte> slot) = 0;

protected:
    EagerExchange(const CallShape &called, const CallNumbers &own, std::chrono::nanoseconds limit,
                  size_t posted_bytes, std::span<const uint32_t> read)
        : shape(called), numbers(own), timeout(limit), bytes(posted_bytes), ranks(read) {}
    ~EagerExchange() = default;
};

// One rank's end of one communicator. Not thread-safe, except the functions that any thread may
// call.
class Transport {
public:
    virtual ~Transport() = default;

    const TransportTraits &traits() const { return traits_; }
    uint32_t rank() const { return traits_.rank; }
    uint32_t size() const { return traits_.size; }
    uint64_t session() const { return traits_.session; }
    double ranks_per_core() const { return traits_.ranks_per_core; }
    std::span<std::byte> outbox() const { return traits_.outbox; }
    uint32_t slots() const { return traits_.slots; }
    std::span<std::byte> inbox() const { return traits_.inbox; }
    size_t eager_slot_bytes() const { return traits_.eager_slot_bytes; }
    // What the bytes travel over, as users read it: "shm", "shm+ucx".
    virtual const char *name() const = 0;

    // Begins a call and publishes its descriptor. `shape` needs no numbers, and `numbers` needs no
    // `earlier`, which this fills in. `timeout` limits each wait for live peers that do not come;
    // 0: no limit. `when`: a call that begins with an eager exchange may publish its descriptor
    // after its eager slot (`after_eager_slot`); readers compare the hashes in the slots' headers
    // and find the descriptor later. Fails if the communicator has failed.
    enum class Publishes : uint8_t { at_once, after_eager_slot };
    virtual Done begin(const CallShape &shape, const CallNumbers &numbers,
                       std::chrono::nanoseconds timeout, Publishes when) = 0;
    // Whether the next call's `begin` would wait for no other rank. Between calls.
    virtual bool can_begin_next() const = 0;
    // Waits until every rank has begun this call. Returns mismatch, with the same text on every
    // rank, if a rank has begun a different call instead. Optional, but if one rank calls this, all
    // ranks do.
    virtual Done await_all() = 0;
    // The same without a wait: returns whether every rank has begun this call.
    virtual Result<bool> have_all_begun() = 0;

    // Returns the hash of the current call and of all calls before it: equal on ranks that have
    // made the same calls, and different in every later call once they have not. Every message and
    // eager slot carries it.
    virtual uint64_t calls_hash() const = 0;

    // Waits, between calls, until every rank has begun the calls that this rank has made, and
    // compares them. (A call in which this rank only sent does not show which call the other ranks
    // made.) `timeout` as for `begin`.
    virtual Done confirm_calls(std::chrono::nanoseconds timeout) = 0;

    // Returns whether no rank reads the slot.
    virtual bool is_free(uint32_t slot) const = 0;
    // Returns memory in place of outbox and inbox, for a call that needs more than they hold; its
    // bytes may have any value. The caller asks between `begin` and the call's first message. By
    // the call's `end` no rank may read a slot. `end` frees the memory; if ranks are on several
    // hosts, it keeps up to most_large_kept bytes of it until large_calls_kept calls in a row have
    // not asked. The error, system_error, says what is missing.
    virtual Result<std::span<std::byte>> overflow(size_t bytes) = 0;
    // Makes `end` keep overflow memory for later calls until this transport ends; a call that needs
    // more makes that memory grow. The thread that runs the calls calls `on_open`, which may be
    // empty, with this rank's memory and with that of each rank of this host: before the transport
    // returns the first view in that memory, and again when the memory has grown and is mapped
    // elsewhere. An error of `on_open` fails the call. Memory stays mapped while `on_open` holds
    // its keeper. Called once, before the first call, on all ranks.
    virtual void keep_overflow(std::function<Done(const MappedMemory &)> on_open) = 0;

    // Sends `view` to `peer`, which becomes one more reader. A received view is forwarded by the
    // same function and released afterwards. Returns false if there is no space at the moment: the
    // caller waits and repeats. Returns peer_lost or the communicator's failure if a remote peer
    // cannot be reached. `with_next`: the caller will soon send that peer another message. A small
    // message to a remote rank is then copied, which frees its slot at once, and sent in one batch
    // with those that follow: with the next message `at_once`, or when the caller calls `progress`,
    // `wait` or `end`.
    enum class Sends : uint8_t { at_once, with_next };
    virtual Result<bool> send(uint32_t peer, MessageTag tag, const MessageView &view,
                              Sends when) = 0;
    // Returns the message if it has come; the view is valid until `release`. A message from another
    // host is stored in `buffer`, and the caller repeats the call with the same buffer until the
    // message has come. Returns mismatch, with the same text on every rank, if the peer is in a
    // different call.
    virtual Result<std::optional<MessageView>> receive(uint32_t peer, MessageTag tag,
                                                       const RecvBuffer &buffer) = 0;
    // Ends this rank's reading of a received view.
    virtual void release(const MessageView &view) = 0;

    // Ends the call: this rank has read all that it will read of the call's messages and eager
    // slots. A rank that waits for the last reader can then tell which rank that is. Waits until
    // all messages to other hosts have left. Fails if the communicator has failed: a rank whose
    // call has failed may have changed memory that other ranks read in place before they had read
    // it, and those ranks may have forwarded results of the changed bytes.
    virtual Done end() = 0;
    // Whether `end` would wait for no message to leave for another host. Like `end`, sends the
    // messages that wait for a next one.
    virtual bool can_end() = 0;

    // Waits until every rank of this host has ended the call or has left, so that no rank reads
    // what this rank sent in it. Between calls; the call's timeout is not meant to limit it.
    virtual Done await_ended(uint64_t call) = 0;

    // The memory of the caller's own that peers read where it lies. The caller exposes and
    // withdraws it and calls `refresh` between calls. What `refer_to` returns may be sent with a
    // view of this rank's outbox, and the caller may change the bytes when no rank reads the view's
    // slot.
    virtual Windows &windows() = 0;

    // Eager slots carry small messages: every rank has slots that all others read, one for each of
    // its latest exchanges. `eager_slot` returns where this rank writes the bytes of its next
    // exchange, aligned to 32 bytes; it waits until every rank has read what the slot held.
    // `post_eager` shows as many bytes to all ranks. `await_eager` waits until `peer` has posted in
    // the same exchange and returns the peer's bytes. They are valid until this rank's next
    // `post_eager`, as are the bytes that this rank wrote. Every rank posts in every exchange, and
    // may leave other ranks' slots unread. A rank that posts few bytes may be some exchanges ahead.
    virtual Result<std::byte *> eager_slot(size_t bytes) = 0;
    virtual void post_eager(size_t bytes) = 0;
    // Waits until every rank has posted in this rank's latest exchange, so that none reads what was
    // exchanged before.
    virtual Done await_latest_exchange() = 0;
    virtual Result<std::span<const std::byte>> await_eager(uint32_t peer) = 0;
    // Whether `eager_slot(bytes)` would return at once, and whether `await_eager(peer)` would after
    // this rank's next `post_eager`. False for peers on other hosts. Between calls.
    virtual bool is_eager_slot_free(size_t bytes) const = 0;
    virtual bool has_next_eager(uint32_t peer) const = 0;
    // Makes a whole call of one exchange, as the functions above do, from `begin` to `end`. A small
    // call feels it if every step is a function and returns a result.
    virtual Done exchange(EagerExchange &call);

    // Waits until something may have changed: spins, yields, then sleeps. The caller first checks
    // everything that it waits for, and finds nothing. `what` names a rank that the caller waits
    // for, for warnings and errors; this rank itself if it waits for a slot. Fails if a peer is
    // lost, the call's time is over, or the communicator has failed. The caller holds a WaitScope
    // as long as it waits for the same thing.
    virtual Done wait(const Wait &what) = 0;
    // Ends the wait; called by WaitScope.
    virtual void wait_done() = 0;
    // Moves messages between hosts, as `wait` does, for a rank that goes on without a wait. One
    // progress costs as much as moving some kilobytes. So a rank need not call it that moves only
    // short messages: it soon waits. Nor need a rank whose receive buffers are all for long
    // messages: `receive` makes progress for those itself, one after the other, so that no message
    // comes before there is a buffer for it. It makes none for other messages, since a rank tries
    // several receives of them in a row.
    static constexpr size_t short_message_bytes = size_t{4} << 10;
    static constexpr size_t long_message_bytes = size_t{16} << 10;
    virtual void progress() = 0;

    // Fails the communicator on every rank that can be reached, and wakes those ranks. The first
    // failure stays. Any thread, any time.
    virtual void fail(const Error &error) = 0;
    // Returns the communicator's failure, if there is one. Any thread, any time.
    virtual std::optional<Error> failure() const = 0;
    virtual bool has_failed() const = 0;
    // The caller knows of the failure and makes another call nevertheless. Ranks that shrink the
    // communicator then wait for this rank no longer than peer_timeout, because it seems not to
    // take part.
    virtual void ignore_failure() = 0;
    // Returns true on one rank of a host only. The caller asks before it shows a failure to a
    // person.
    virtual bool claim_log() = 0;

    // Returns the exchanges that ranks make outside the calls, whether or not the communicator has
    // failed.
    virtual SurvivorExchange &survivor_exchange() = 0;

    // Of a communicator for whose messages there are channels: show to the other ranks that this
    // rank waits in a message, and that it no longer does, for warnings and errors. Any thread.
    virtual void message_waits(const MessageWait &wait, int64_t since_ns, int64_t now_ns) = 0;
    virtual void message_wait_done() = 0;
    // As published_states. Any thread.
    virtual std::vector<RankState> states(int64_t now_ns) const = 0;

    // Says how many bytes a nanosecond the line of a host carries, by which a message between hosts
    // goes eagerly or waits to be pulled. Before the first call; a line without a rate is fast.
    virtual void use_line_rate(double) {}

    // Returns the time that this rank's threads have spent on moving bytes between hosts. Any
    // thread, any time.
    virtual std::chrono::nanoseconds network_time() const { return {}; }

    // Ends this rank's part: it takes part in no further call, and peers that still wait for it are
    // told so.
    virtual void leave() = 0;

protected:
    explicit Transport(TransportTraits traits) : traits_(std::move(traits)) {}

private:
    const TransportTraits traits_;
};

// Ends a rank's wait when the scope ends, also by an error. The wait begins with the first call of
// `wait`. After its end other ranks no longer see this rank wait, and its next wait has its full
// time limit. Inside a transport, `Waiting` is its FailureDetector.
template <class Waiting = Transport> class WaitScope {
public:
    explicit WaitScope(Waiting &waiting) : waiting_(waiting) {}
    WaitScope(const WaitScope &) = delete;
    ~WaitScope() { waiting_.wait_done(); }

private:
    Waiting &waiting_;
};

// The all-gather that the creation of a transport is given: collects `bytes` of every rank in
// `all`, by rank.
using AllGather = std::function<Done(const void *mine, void *all, size_t bytes)>;

// How hosts reach each other, if there are several.
struct RemoteOptions {
    const NetworkModule *network = nullptr;
    // By the module's own names; empty: all that there are.
    std::string transports, devices;
    // Addresses of this host for keepalive connections, the best first. Their ports are chosen.
    std::vector<sockaddr_storage> addresses;
};

struct TransportOptions {
    uint32_t rank = 0;
    uint32_t size = 1;
    size_t outbox_bytes = size_t{16} << 20;     // equal on all ranks; up to most_outbox_bytes
    uint32_t slots = 1024;                      // equal on all ranks
    size_t eager_slot_bytes = size_t{32} << 10; // equal on all ranks
    // The number of each rank's host, by rank; empty: there is one host. Equal on all ranks.
    std::vector<uint32_t> hosts;
    RemoteOptions remote;
    RecordOptions record;
    std::chrono::nanoseconds peer_timeout{std::chrono::seconds(30)};
    // Watches all ranks while the transport is created: an error ends the creation's waits.
    CancelCheck cancel_check;
    std::chrono::nanoseconds warn_after{std::chrono::seconds(30)};
    // How long a wait spins before its first yield. Not set: a usual time, or 0 if ranks outnumber
    // cores.
    std::optional<std::chrono::nanoseconds> spin;
    // Returns the free memory of this host in bytes; empty: as the kernel says.
    std::function<size_t()> free_memory;
    std::function<void(const char *sentence)> warn; // may be empty
    // Gets sentences about the wire-up, for the log; empty: the log wants none.
    std::function<void(const char *sentence)> tell;
    std::function<void()> idle; // called in every long wait; may be empty
    // Of a channel: the communicator whose messages it carries. It outlives the transport.
    MessageOwner *owner = nullptr;
};

// Creates an shm transport: the ranks of one host are processes, or threads that behave like
// separate processes. The memory is one memfd per rank, passed over a socket, so that the memory
// never has a name. Messages between hosts go over a network. All ranks call this; it blocks until
// all have. If all ranks are on one host, an error may be this rank's alone, and the caller tells
// the other ranks; otherwise all ranks return the same error.
Result<std::unique_ptr<Transport>> create_shm_transport(const TransportOptions &options,
                                                        const AllGather &all_gather);
// Creates an inproc transport: all ranks are threads of one process, with the same eager slots,
// mailboxes and outboxes in plain memory. Tests divide the ranks into several hosts. All ranks call
// this; it blocks until all have.
Result<std::unique_ptr<Transport>> create_inproc_transport(const TransportOptions &options,
                                                           const AllGather &all_gather);

} // namespace qccl
