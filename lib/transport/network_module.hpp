// The interface of a network between hosts: a table of functions that a separate module fills. The
// library loads the module where it is needed, so the library itself links no network library. A
// network carries messages, each with a short header and any number of bytes, between numbered
// peers. Messages between two peers arrive in the order in which they were posted, except for bytes
// that are pulled. One thread at a time may use an end.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qccl {

struct NetworkEnd;       // one rank's end of a network; the module defines it
struct RendezvousHandle; // bytes of a message to be pulled or discarded; the module defines it

// A message's bytes may lie in two places.
struct NetworkPart {
    const void *data;
    size_t bytes;
};
inline constexpr size_t most_network_parts = 2;
inline constexpr size_t most_network_head_bytes = 256;
// Messages of at most this many bytes are always eager: they never wait at their sender.
inline constexpr size_t always_eager_bytes = size_t{8} << 10;

// Callbacks for events; only `progress` calls them.
struct NetworkEvents {
    void *context;
    // A message has arrived. If `handle` is null, `data` is valid until the callback returns. If
    // `handle` is not null, `data` stays valid until `discard`; if `data` is null then, the bytes
    // wait at the sender for `pull` or `discard`.
    void (*on_message)(void *context, const void *head, size_t head_bytes, const void *data,
                       size_t bytes, RendezvousHandle *handle);
    // The parts that were posted with this token may change again, whether or not the message has
    // arrived.
    void (*on_sent)(void *context, uint64_t token);
    // The pull has ended. If `whole` is false, the bytes will never arrive.
    void (*on_pulled)(void *context, uint64_t token, bool whole);
    // The peer is lost: nothing more goes to the peer or comes from it.
    void (*on_peer_lost)(void *context, uint32_t peer, const char *why);
};

struct NetworkSettings {
    uint32_t own;            // this end's number among the peers
    uint32_t peers;          // count; peers are numbered from 0
    int64_t peer_timeout_ns; // a peer that is silent for longer is lost
    // The transports and devices that may be used, in the module's own names; null means any. None
    // of them shares memory.
    const char *transports;
    const char *devices;
};

struct NetworkModule {
    static constexpr uint32_t current_abi = 4;
    enum class Posted : uint32_t { done, under_way, refused };

    uint32_t abi;
    const char *name; // "ucx"
    // Returns null on failure; `error` then holds the reason.
    NetworkEnd *(*open)(const NetworkSettings *settings, const NetworkEvents *events, char *error,
                        size_t error_bytes);
    void (*close)(NetworkEnd *end);
    // Writes the address by which peers reach this end, at most `capacity` bytes of it; returns the
    // size of the whole address.
    size_t (*address)(NetworkEnd *end, void *out, size_t capacity);
    // Writes what carries the messages, for the log ("1.13.1: tcp/eth0 tcp/lo"), at most `capacity`
    // bytes of it with a zero at the end.
    void (*describe)(NetworkEnd *end, char *out, size_t capacity);
    // Copies the address. The first message to the peer makes the connection.
    void (*add_peer)(NetworkEnd *end, uint32_t peer, const void *address, size_t bytes);
    // Copies the header. The parts must stay unchanged until `on_sent`, unless the result is
    // `done`; `refused` means that the peer is lost. `may_be_eager` permits the module to send a
    // large message eagerly; without it, a large message waits at the sender until it is pulled.
    Posted (*post)(NetworkEnd *end, uint32_t peer, const void *head, size_t head_bytes,
                   const NetworkPart *parts, size_t part_count, bool may_be_eager, uint64_t token);
    // Pulls bytes that wait at the sender into `to`. Uses up the handle; `on_pulled` reports the
    // end.
    void (*pull)(NetworkEnd *end, RendezvousHandle *handle, void *to, size_t bytes, uint64_t token);
    // Gives up the bytes of a message that came with a handle.
    void (*discard)(NetworkEnd *end, RendezvousHandle *handle);
    // Returns false if nothing has happened beyond the events that it has reported.
    bool (*progress)(NetworkEnd *end);
    // A descriptor that becomes readable when there is something to progress, once `arm` has
    // returned true: nothing to progress just now.
    int (*descriptor)(NetworkEnd *end);
    bool (*arm)(NetworkEnd *end);
};

// The only symbol that a module exports.
inline constexpr const char *network_module_symbol = "qccl_network_module";
using NetworkModuleFunction = const NetworkModule *();

} // namespace qccl
