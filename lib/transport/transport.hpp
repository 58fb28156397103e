// A transport carries encoded chunks between ranks by reference: the sender publishes where bytes
// lie in an outbox, the receiver gets a view of them and says when it has read them. Knows no
// schedules and no codecs.
#pragma once

#include "base/prospect.hpp"
#include "base/result.hpp"
#include "base/types.hpp"
#include "record/call_descriptor.hpp"
#include "record/wait.hpp"
#include "transport/network_module.hpp"
#include "transport/shared_file.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/socket.h>

namespace qccl {

// Names one message of one call: both ends compute it from their schedules.
struct MessageTag {
    uint32_t instance = 0; // which segment's run of the schedule
    uint32_t ordinal = 0;  // Step::ordinal: number of the message from this sender to this receiver
    bool operator==(const MessageTag &) const = default;
};

// Memory of this process in a file that others can map.
struct OwnMemory {
    const std::byte *base = nullptr; // where the file is mapped, whole
    SharedFile file{};               // where its number has come to name another, none is shown
};

// Bytes that lie in a window, which is memory that its owner has shown to its peers and that all of
// them have mapped.
struct Loan {
    const std::byte *data = nullptr; // as this rank sees them; null: there are none
    uint64_t bytes = 0;              // that may be read there
    uint32_t window = 0;             // number, of the owner
};
// The window of memory that is no host's: Transport::use_device_memory.
inline constexpr uint32_t device_window = 1U << 15;

// Where bytes from another host come to lie: part of this rank's inbox, which holds nothing that
// anybody reads. Of bytes from the same host nothing comes there.
struct Room {
    uint32_t slot = 0; // of the inbox, counted from Transport::slots() on
    std::span<std::byte> memory{};
};

// Memory that stays mapped as long as a copy of `keeper` is held.
struct MappedMemory {
    std::shared_ptr<const void> keeper;
    std::span<std::byte> bytes;
};

// Bytes that lie still until every reader has released them.
struct Wire {
    const std::byte *data = nullptr;
    uint64_t bytes = 0;
    uint32_t origin = 0; // the rank in whose outbox, or inbox, they lie
    uint32_t slot = 0;   // the origin's slot
    Loan loan{};         // of the origin: more bytes, which go with these
};

class Council;

// One rank's end of one communicator. Not thread-safe, but for `fail` and `failure`.
class Transport {
public:
    virtual ~Transport() = default;

    virtual const char *name() const = 0;
    virtual uint32_t rank() const = 0;
    virtual uint32_t size() const = 0;
    // A number that is equal on all ranks of the communicator, and hardly on another's.
    virtual uint64_t session() const = 0;
    // Where most ranks share cores: how many of them there are for each. At least 1; equal on all
    // ranks.
    virtual double ranks_per_core() const = 0;

    // Publishes the descriptor of the call that begins now. Fails if the communicator has failed.
    // `timeout` bounds the waits for live peers that do not come; 0 is never.
    // `shape` lacks the numbers, and `numbers` what comes of earlier calls. A call that begins with
    // a line may leave it to the line to say so: readers compare hashes, and find the descriptor
    // behind it.
    enum class Publishes : uint8_t { at_once, after_line };
    virtual Done begin(const CallDescriptor &shape, const CallNumbers &numbers,
                       std::chrono::nanoseconds timeout, Publishes when) = 0;
    // Waits until every rank has begun this call. An error if one means something else by it
    // (mismatch, the same sentence on every rank). Optional, but then all ranks do it.
    virtual Done meet() = 0;

    // Hash of the current call and of all before it: equal on ranks that have made the same calls,
    // and different in every later call once they have not. Every message and line carries it.
    virtual uint64_t calls_hash() const = 0;

    // Between calls: waits until every rank has begun the calls that this rank has made, and
    // compares them, since a call in which this rank only sent says nothing of what the others made
    // of it. `timeout` as for `begin`.
    virtual Done confirm_calls(std::chrono::nanoseconds timeout) = 0;

    // The memory that this rank encodes into, and the number of slots it may be cut into: which
    // bytes a slot has is the caller's affair. A slot may be written while no reader holds it and
    // the caller means to send it to nobody else.
    virtual std::span<std::byte> outbox() = 0;
    virtual uint32_t slots() const = 0;
    // What comes from ranks of other hosts lies here, in as many slots again; empty where there are
    // none. Their numbers follow those of the outbox.
    virtual std::span<std::byte> inbox() = 0;
    virtual bool is_free(uint32_t slot) const = 0;
    // Memory in the place of both, for a call that needs more than they hold; its bytes may have
    // any value. Between `begin` and the call's first message; the call's `end` gives the memory
    // back, and by then no rank may read a slot. The error, system_error, says what is missing.
    virtual Result<std::span<std::byte>> overflow(size_t bytes) = 0;
    // From now on `end` keeps such memory for later calls until this transport ends, and a call
    // that needs more has it grow. The thread that runs the calls calls `on_open`, which may be
    // empty, with this rank's memory and with that of each rank of this host before it gives out
    // the first wire in it, and again when the memory has grown and is mapped elsewhere; the call
    // fails with an error of `on_open`. Memory whose keeper `on_open` holds stays mapped. Once,
    // before the first call, on all ranks.
    virtual void keep_overflow(std::function<Done(const MappedMemory &)> on_open) = 0;

    // Hands `wire` to `peer`, which becomes one more reader; forwarding a received wire is the same
    // call (release it afterwards). False: there is no room just now, wait and repeat.
    // `with_next`: the caller will soon send that peer another message. To a rank of another host
    // a small one is then copied, which frees its slot at once, and goes as one with what follows:
    // with the next message `at_once`, or when the caller calls `progress`, `wait` or `end`.
    enum class Sends : uint8_t { at_once, with_next };
    virtual Result<bool> send(uint32_t peer, MessageTag tag, const Wire &wire, Sends when) = 0;
    // The message if it is there. The view holds until `release`. Once asked for, a message from
    // another host comes to lie in `room`; to be asked for again with the same until it is there.
    // An error if the peer's call is not ours (mismatch, the same sentence on every rank).
    virtual Result<std::optional<Wire>> receive(uint32_t peer, MessageTag tag,
                                                const Room &room) = 0;
    virtual void release(const Wire &wire) = 0;

    // This rank has read all that it will of the call's messages and lines: those who wait for the
    // last reader can tell who that is. Waits for what is still on its way to other hosts. Fails if
    // the communicator has failed: a rank whose call has may have changed what it had lent before
    // others had read it, and passed on what it made of that.
    virtual Done end() = 0;

    // Waits until every rank of this host has ended the call, or has left: nobody reads what this
    // rank gave in it. Between calls; not bounded by the call's timeout.
    virtual Done await_ended(uint64_t call) = 0;

    // Windows: memory of the caller's own that peers read where it lies. A rank shows memory and
    // hides it between calls, as often; the other ranks map it when they next look, and where one
    // of them cannot, it is never lent. What is hidden stays mapped until they look again. False:
    // more is shown by now than there are windows, and what finds none is not lent.
    virtual bool show(const OwnMemory &memory) = 0;
    virtual void hide(const std::byte *base) = 0;
    // At what the others have shown and hidden since the last look: a load for each of them where
    // that is nothing. Between calls.
    virtual void look_at_windows() = 0;
    // The bytes at `data` as a loan, if all of them lie in one window. Then they may go with a wire
    // of this rank's outbox, and may be changed when nobody reads the wire's slot.
    virtual Loan lend(const void *data, size_t bytes) const = 0;

    // Memory of devices that every rank has shown to all others, by rank, as this rank reaches it.
    // Once, before the first call, where all ranks are on one host; loans may lie in it from then
    // on. Nothing reads it here.
    virtual void use_device_memory(std::vector<std::span<std::byte>> by_rank) = 0;
    // All of which wires are parts: the outboxes and inboxes of this host's ranks, as this rank has
    // them mapped.
    virtual std::vector<std::span<std::byte>> arenas() = 0;

    // Small messages: every rank has a line that all others read. `line` gives this rank's to write
    // (aligned to 32; it waits until everyone is done with what it held), `publish` shows its first
    // `bytes`, `await_line` waits until `peer` has published in the same exchange and gives what it
    // published, valid until this rank's next `publish`; so is what this rank wrote. Every rank
    // publishes in every exchange, and may leave lines of others unread.
    virtual size_t line_bytes() const = 0;
    virtual Result<std::byte *> line() = 0;
    virtual void publish(size_t bytes) = 0;
    virtual Result<std::span<const std::byte>> await_line(uint32_t peer) = 0;

    // Waits politely until something may have changed: spins, yields, sleeps. To be called after a
    // look at everything that this rank waits for has found nothing. `what` names a rank that it
    // waits for (named in warnings and errors; this rank itself where it waits for a slot). Fails
    // when a peer is lost, the call's time is over, or the communicator has failed. A wait is over
    // when `receive`, `send` or `await_line` succeeds.
    virtual Done wait(const Wait &what) = 0;
    // Moves what is under way between hosts, which `wait` does too: for a rank that goes on without
    // a wait. A rank all of whose rooms are for long messages need not call it: `receive` looks for
    // those itself, one after the other, so that none comes before there is a place for it. A look
    // costs as much as some kilobytes do, and several receives of short messages are tried in a
    // row.
    static constexpr size_t long_message_bytes = size_t{16} << 10;
    virtual void progress() = 0;
    // What it waited for has come from elsewhere: the wait is over.
    virtual void came() = 0;

    // Fails the communicator on every rank that can be reached and wakes them; the first failure
    // stands. Any thread, any time.
    virtual void fail(const Error &error) = 0;
    virtual std::optional<Error> failure() const = 0;
    // The caller knows of the failure and makes another call all the same: ranks that shrink the
    // communicator wait for it no longer than peer_timeout, as it seems not to come.
    virtual void ignore_failure() = 0;
    // To be asked after a failure before it is shown to a person: true for one rank only.
    virtual bool is_ours_to_tell() = 0;

    // For what the ranks do beside the calls, whether or not the communicator has failed.
    virtual Council &council() = 0;

    // That moving bytes between hosts has taken of this rank's threads. Any thread, any time.
    virtual std::chrono::nanoseconds network_time() const { return {}; }

    // This rank takes part in no further call; peers that still wait for it are told so.
    virtual void leave() = 0;
};

// What creation needs from outside, without knowing who gives it.
using AllGather = std::function<Done(const void *mine, void *all, size_t bytes)>;

// More than the address space of a process has.
inline constexpr uint64_t most_outbox_bytes = uint64_t{1} << 48;

// How hosts are reached, where there are several.
struct FarOptions {
    const NetworkModule *network = nullptr;
    // The module's own names; empty: whatever there is.
    std::string transports, devices;
    // Of this host, the best first, for connections that show that a rank lives; ports are chosen.
    std::vector<sockaddr_storage> addresses;
};

// What this rank records of its calls for those who look from outside (record/record_layout.hpp).
struct RecordOptions {
    bool is_kept = true;
    std::string folder; // where its file gets a name; empty: in memory that ends with the process
    std::string communicator; // its name
};

struct TransportOptions {
    uint32_t rank = 0;
    uint32_t size = 1;
    size_t outbox_bytes = size_t{16} << 20; // equal on all ranks; up to most_outbox_bytes
    uint32_t slots = 1024;                  // equal on all ranks
    size_t line_bytes = size_t{32} << 10;   // equal on all ranks
    // By rank, a number that the ranks of one host share; empty: there is one host. Equal on all
    // ranks.
    std::vector<uint32_t> hosts;
    FarOptions far;
    RecordOptions record;
    std::chrono::nanoseconds peer_timeout{std::chrono::seconds(30)};
    // Of all ranks, while the transport is made.
    Prospect prospect;
    std::chrono::nanoseconds warn_after{std::chrono::seconds(30)};
    // Before the first yield. Obeyed where it is given; else none where ranks outnumber cores.
    std::optional<std::chrono::nanoseconds> spin;
    // Bytes of memory that this host has left; empty: as the kernel says.
    std::function<size_t()> free_memory;
    std::function<void(const char *sentence)> warn; // may be empty
    std::function<void()> idle;                     // called in every long wait; may be empty
};

// shm: ranks of one host are processes (or threads that know nothing of each other); memory is a
// memfd per rank, passed over a socket, so that nothing ever has a name. Between hosts messages go
// over a network.
Result<std::unique_ptr<Transport>> create_shm_transport(const TransportOptions &options,
                                                        const AllGather &all_gather);
// inproc: all ranks are threads of one process; the same lines, mailboxes and outboxes in plain
// memory. Tests make hosts of them.
Result<std::unique_ptr<Transport>> create_inproc_transport(const TransportOptions &options,
                                                           const AllGather &all_gather);

} // namespace qccl
