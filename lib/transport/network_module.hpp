// A network between hosts, as a table of functions that a module of its own fills and that is
// loaded where it is needed: the library itself links no network library. Moves messages of a short
// head and any number of bytes between numbered peers, those of one pair in the order in which they
// were posted save where bytes are fetched. Knows no ranks' calls and no chunks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qccl {

struct NetworkEnd;    // one rank's end of a network; the module's own
struct NetworkTicket; // bytes of a message that wait at their sender; the module's own

// The bytes of a message may lie in two places.
struct NetworkPart {
    const void *data;
    size_t bytes;
};
inline constexpr size_t most_network_parts = 2;
inline constexpr size_t most_network_head_bytes = 256;
// Messages of at most so many bytes are small: they never wait at their sender.
inline constexpr size_t least_eager_bytes = size_t{8} << 10;

// What happens, told from inside `progress` alone.
struct NetworkEvents {
    void *context;
    // A message has come. Its bytes are gone when this returns; or, where `ticket` is not null,
    // they lie where they are until `discard`, or, where data is null, wait for `fetch` or
    // `discard`.
    void (*came)(void *context, const void *head, size_t head_bytes, const void *data, size_t bytes,
                 NetworkTicket *ticket);
    // What was posted with this token need not lie still any longer, whether or not it has arrived.
    void (*sent)(void *context, uint64_t token);
    // All is there; or, where it is not `whole`, never will be.
    void (*fetched)(void *context, uint64_t token, bool whole);
    // Nothing more goes to the peer or comes from it.
    void (*lost)(void *context, uint32_t peer, const char *why);
};

struct NetworkSettings {
    uint32_t own;            // this end's number among them
    uint32_t peers;          // numbered from 0
    int64_t peer_timeout_ns; // a peer that is silent for longer is lost
    // The module's own names of what may be used; null: whatever there is. None of them lets
    // memory be shared.
    const char *transports;
    const char *devices;
};

struct NetworkModule {
    static constexpr uint32_t current_abi = 3;
    enum class Posted : uint32_t { done, under_way, refused };

    uint32_t abi;
    const char *name; // "ucx"
    // Null: `error` holds the reason.
    NetworkEnd *(*open)(const NetworkSettings *settings, const NetworkEvents *events, char *error,
                        size_t error_bytes);
    void (*close)(NetworkEnd *end);
    // What peers need to reach this end; at most `capacity` bytes of it are written, and all are
    // counted.
    size_t (*address)(NetworkEnd *end, void *out, size_t capacity);
    // Takes a copy. The first message to the peer makes the connection.
    void (*introduce)(NetworkEnd *end, uint32_t peer, const void *address, size_t bytes);
    // The head is copied. The parts lie still until `sent`, unless all is done at once; refused
    // where the peer is lost. What is not welcome waits at its sender, unless it is small.
    Posted (*post)(NetworkEnd *end, uint32_t peer, const void *head, size_t head_bytes,
                   const NetworkPart *parts, size_t part_count, bool is_welcome, uint64_t token);
    // Of bytes that wait. Uses up the ticket; tells of it by `fetched`.
    void (*fetch)(NetworkEnd *end, NetworkTicket *ticket, void *to, size_t bytes, uint64_t token);
    void (*discard)(NetworkEnd *end, NetworkTicket *ticket);
    // False: nothing has happened.
    bool (*progress)(NetworkEnd *end);
    // Becomes readable when there is something to progress, after `arm` has said that there is
    // nothing just now.
    int (*descriptor)(NetworkEnd *end);
    bool (*arm)(NetworkEnd *end);
};

// The one symbol of a module.
inline constexpr const char *network_module_symbol = "qccl_network_module";
using NetworkModuleFunction = const NetworkModule *();

} // namespace qccl
