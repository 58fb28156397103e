// Checks the arguments of a collective call by name, in the order of its parameters, finds its
// codec, algorithm and program, and looks up calls that have been made before.
#include "api/call/collective_call.hpp"

#include "api/call/red_ops.hpp"
#include "api/call/states.hpp"
#include "base/text.hpp"
#include "comm/boundary.hpp"
#include "schedule/shape.hpp"

#include <algorithm>
#include <cinttypes>
#include <optional>
#include <string>

namespace qccl {

static Team team_of(const Comm &comm) { return {.size = comm.size(), .rank = comm.rank()}; }

static Team with_root(Team team, uint32_t root) {
    team.root = root;
    return team;
}

static BufferExtents extents_of(const ProgramKey &key, const Team &caller) {
    const Team team = with_root(caller, key.root);
    const size_t bytes = type_bytes(key.type), block = key.count * bytes;
    if (key.v.parts)
        return {.send_bytes = sent_end(*key.v.parts, team) * bytes,
                .recv_bytes = received_end(*key.v.parts, team) * bytes};
    const size_t step = key.spacing == 0 ? block : key.spacing * bytes;
    const size_t whole = block + (parts_of(key.collective, team.size) - 1) * step;
    const CollectiveRow &row = row_of(key.collective);
    BufferExtents extents{.send_bytes = row.gathers ? block : whole,
                          .recv_bytes = row.scatters ? block : whole};
    if (row.scatters) extents.send_meets = team.rank * step;
    if (row.gathers) extents.recv_meets = team.rank * step;
    if (!has_input(key.collective, team)) extents.send_bytes = 0;
    if (!has_output(key.collective, team)) extents.recv_bytes = 0;
    return extents;
}

static Done check_root(int root, uint32_t size) {
    if (root >= 0 && static_cast<uint32_t>(root) < size) return {};
    return invalid_argument("root is %d, but the ranks are 0 to %" PRIu32, root, size - 1)
        .compared(size - 1, root);
}

static Done take_op_of_call(const CallArguments &given, ProgramKey &key, Request &request) {
    QCCL_TRY(TakenOp taken, take_op(given.op));
    key.op = taken.op;
    request.op = std::move(taken.made);
    if (!takes_op(given.collective, key.op))
        return invalid_argument("op is qcclAvg, which %s does not have",
                                qccl::name(given.collective));
    if (key.op == RedOp::pre_mul_sum && request.op->type != key.type)
        return invalid_argument("op multiplies by a value of %s, but type is %s",
                                qccl::name(request.op->type), qccl::name(key.type));
    return check_op(given.collective, key.type, key.op);
}

// Fills the part of the key that does not depend on configs and rules.
static Result<ProgramKey> take_key(const CallArguments &given, const Team &caller,
                                   Request &request) {
    const uint32_t size = caller.size;
    ProgramKey key;
    key.collective = row_of(given.collective).v_form_of.value_or(given.collective);
    if (!row_of(given.collective).has_values) return key;
    QCCL_TRY(key.type, take_type(given.type));
    if (reduces(given.collective)) QCCL_TRY(take_op_of_call(given, key, request));
    if (row_of(given.collective).has_root) {
        QCCL_TRY(check_root(given.root, size));
        key.root = static_cast<uint32_t>(given.root);
    }
    if (given.parts) {
        QCCL_TRY(key.v.parts,
                 take_parts(given.collective, *given.parts, key.type, with_root(caller, key.root)));
        const uint64_t total = key.v.parts->common_total();
        key.count = key.is_pairwise() ? unknown_part_count : total / size + (total % size != 0);
        return key;
    }
    QCCL_TRY(
        check_count(given.count_name, given.count, key.type, parts_of(given.collective, size)));
    key.count = given.count;
    return key;
}

// Returns the distance of the blocks; 0: they follow one another.
static Result<uint64_t> take_stride(const CallArguments &given, const ProgramKey &key,
                                    uint32_t ranks) {
    QCCL_TRY(const qcclCollConfig_t config, take_config(given.config));
    const uint64_t stride = config.stride;
    if (stride == 0) return uint64_t{0};
    const char *const called = name(given.collective);
    if (given.parts)
        return invalid_argument("config: stride is %" PRIu64
                                ", but the parts of %s lie where displs says",
                                stride, called);
    if (!has_part_per_rank(given.collective))
        return invalid_argument("config: stride is %" PRIu64 ", but %s has no blocks of ranks",
                                stride, called);
    if (stride < key.count)
        return invalid_argument("config: stride is %" PRIu64 ", but a block has %" PRIu64
                                " elements",
                                stride, key.count)
            .compared(static_cast<int64_t>(key.count), static_cast<int64_t>(stride));
    QCCL_TRY(check_count("config: stride", stride, key.type, ranks));
    return key.count == 0 || key.count == stride ? uint64_t{0} : stride;
}

static Result<Algorithm> take_algorithm(const char *text, Collective collective) {
    const std::string who = std::string("config: algorithm of ") + qccl::name(collective);
    const std::string_view word = parted_at(text, ':').before;
    const bool is_known = std::ranges::count(algorithm_table(), word, &AlgorithmRow::name) != 0;
    if (is_known) {
        QCCL_TRY(const Algorithm algorithm, parse_algorithm(text, who));
        if (algorithm.has(collective)) return algorithm;
    }
    // Also of a word that names no algorithm only what the collective has is offered.
    Names possible;
    for (const AlgorithmRow &row : algorithm_table())
        if (Algorithm(row).has(collective)) possible.push_back(row.name);
    return no_choice(who, is_known ? text : word, possible);
}

// A call that is encoded becomes one on the values that the codec sees.
static Done choose_codec(Comm &comm, const CallArguments &given, const qcclCollConfig_t &config,
                         ProgramKey &key) {
    const CodedValues values = coded_values(key.collective, key.type, key.op, key.count);
    const CallPolicy &policy = comm.parts().policy;
    const Codec lossless;
    CodecRef own;
    if (config.codec) {
        QCCL_TRY(own, take_codec(config.codec));
    }
    if (own && key.collective == Collective::barrier)
        return invalid_argument("config: codec is %s, but a barrier has no values to encode",
                                spec(own->codec).c_str());
    QCCL_TRY(const CodecChoice choice,
             policy.choose_codec(own                 ? &own->codec
                                 : given.is_lossless ? &lossless
                                                     : nullptr,
                                 policy.traits(key.collective, values.type, key.op, values.count)));
    comm.tell(choice);
    comm.note(choice.rule);
    key.codec = choice.codec;
    if (key.v.parts && key.codec.guard != 0)
        return invalid_argument("codec is %s, but %s has no guards", spec(key.codec).c_str(),
                                name(key.called()));
    if (key.spacing != 0 && key.codec.guard != 0)
        return invalid_argument("codec is %s, but %s has no guards with a stride",
                                spec(key.codec).c_str(), name(key.called()));
    if (choice.codec.keeps_type()) return {};
    if (values.type != key.type) {
        if (key.v.parts) key.v.parts = in_reals(*key.v.parts, reals_of(key.type));
        key.spacing *= reals_of(key.type);
        key.caller_type = key.type;
    }
    key.type = values.type;
    key.count = values.count;
    return {};
}

static Done choose_algorithm(Comm &comm, const qcclCollConfig_t &config, const CallTraits &call,
                             ProgramKey &key) {
    if (config.algorithm) {
        QCCL_TRY(key.algorithm, take_algorithm(config.algorithm, key.called()));
        return {};
    }
    const AlgorithmChoice choice = comm.parts().policy.choose_algorithm(call, key.v_form());
    comm.note(choice.rule);
    key.algorithm = choice.algorithm;
    return {};
}

// Calls with layers become one call for each of them, whose configs have none.
static Done check_has_no_layers(Collective collective, const qcclCollConfig_t &config) {
    if (config.layers)
        return invalid_argument("config: layers is set, but %s takes none", name(collective));
    if (config.nlayers != 0)
        return invalid_argument("config: nlayers is %zu, but layers is NULL", config.nlayers);
    if (config.layer_min_size != 0)
        return invalid_argument("config: layer_min_size is %" PRIu64 ", but layers is NULL",
                                config.layer_min_size);
    return {};
}

static Done take_call_config(Comm &comm, const CallArguments &given, ProgramKey &key,
                             Request &request, CallNames &names) {
    QCCL_TRY(const qcclCollConfig_t config, take_config(given.config));
    QCCL_TRY(check_has_no_layers(given.collective, config));
    if (config.state) {
        QCCL_TRY(request.state, take_state(config.state));
        QCCL_TRY(check_state(comm, given, key, request.state.get()));
        key.feedback = request.state->shape().feedback;
        key.momentum = request.state->shape().momentum;
    }
    names = {.codec = config.codec != nullptr || given.is_lossless,
             .algorithm = config.algorithm != nullptr};
    QCCL_TRY(const auto timeout, take_timeout("timeout", config.timeout));
    const CallPolicy &policy = comm.parts().policy;
    const CallTraits call = policy.traits(key.collective, key.type, key.op, key.count);
    QCCL_TRY(choose_algorithm(comm, config, call, key));
    const Rule *rule = nullptr;
    key.pieces = policy.choose_pieces(call, &rule);
    comm.note(rule);
    request.timeout = timeout.value_or(comm.parts().timeout);
    request.tag = config.tag;
    QCCL_TRY(choose_codec(comm, given, config, key));
    return check_momentum(key.codec, request.state.get());
}

Result<CallStream> take_call_stream(const Comm &comm, qcclStream_t stream) {
    CallStream where;
    const Gpu *const gpu = comm.parts().device.gpu.get();
    if (!gpu) {
        if (!stream) return where;
        QCCL_TRY(where.host, take_stream(stream));
        return where;
    }
    if (stream == QCCL_STREAM_SYNC) return where;
    // The vendor's runtime dereferences any stream that it is given.
    if (stream_handles.has_tag(stream))
        return invalid_argument(
            "stream is %p, one of qcclStreamCreate, but the communicator's device "
            "is %s, which has streams of its own",
            stream, gpu->traits().name.c_str());
    where.gpu = static_cast<GpuStream>(stream);
    return where;
}

static const char *text_of(GpuPlace::Kind kind) {
    switch (kind) {
    case GpuPlace::Kind::pageable:
    case GpuPlace::Kind::pinned: return "memory of the host";
    case GpuPlace::Kind::gpu: return "memory of another GPU";
    case GpuPlace::Kind::managed: break;
    }
    return "managed memory";
}

static Done check_place(const Gpu &gpu, const Buffer &buffer) {
    if (buffer.bytes == 0) return {};
    const auto is_own = [&](const GpuPlace &place) {
        const bool is_here =
            place.kind == GpuPlace::Kind::gpu && place.number == gpu.traits().number;
        return is_here || place.kind == GpuPlace::Kind::managed;
    };
    QCCL_TRY(const GpuPlace first, gpu.find(buffer.start));
    if (!is_own(first))
        return invalid_argument("%s is %p, %s, but the communicator's device is %s", buffer.name,
                                buffer.start, text_of(first.kind), gpu.traits().name.c_str());
    const auto *const end = static_cast<const std::byte *>(buffer.start) + buffer.bytes;
    QCCL_TRY(const GpuPlace last, gpu.find(end - 1));
    if (is_own(last)) return {};
    return invalid_argument("%s is %p, from where %s has less memory than its %zu bytes",
                            buffer.name, buffer.start, gpu.traits().name.c_str(), buffer.bytes);
}

Done check_place(const Comm &comm, const Buffer &buffer) {
    const Gpu *const gpu = comm.parts().device.gpu.get();
    return gpu ? check_place(*gpu, buffer) : Done();
}

// Refuses buffers that overlap, unless what the call uses of one lies in the gaps of the other:
// blocks with a stride and the parts of a v-form have gaps.
static Done check_overlap(const Buffer &send, const Buffer &recv, const ProgramKey &key,
                          const Team &caller) {
    const Done apart = check_apart(send, recv);
    if (apart || (!key.v.parts && key.spacing == 0)) return apart;
    const Team team = with_root(caller, key.root);
    const size_t bytes = type_bytes(key.type);
    if (key.v.parts) return check_parts_apart(*key.v.parts, team, send, recv, bytes);
    return check_parts_apart(parts_of_blocks(key.collective, key.count, key.spacing, team), team,
                             send, recv, bytes);
}

static bool is_in_place(const CallArguments &given, const BufferExtents &extents) {
    return reinterpret_cast<uintptr_t>(given.send) + extents.send_meets ==
           reinterpret_cast<uintptr_t>(given.recv) + extents.recv_meets;
}

static Done check_buffers(const Comm &comm, const CallArguments &given, const ProgramKey &key,
                          const BufferExtents &extents) {
    const Buffer send{"send", given.send, extents.send_bytes};
    const Buffer recv{"recv", given.recv, extents.recv_bytes};
    QCCL_TRY(check_pointer(send));
    QCCL_TRY(check_pointer(recv));
    if (!is_in_place(given, extents) || key.v.parts)
        QCCL_TRY(check_overlap(send, recv, key, team_of(comm)));
    if (!comm.parts().device.gpu) return {};
    QCCL_TRY(check_place(comm, send));
    return check_place(comm, recv);
}

static Done check_device(const Comm &comm, RedOp op) {
    const Gpu *const gpu = comm.parts().device.gpu.get();
    if (!gpu || !is_custom(op)) return {};
    return invalid_argument("op is a function, which runs on the host, but the communicator's "
                            "device is %s",
                            gpu->traits().name.c_str());
}

// The part of a call that decides its program, and the part of its config that holds for this call
// alone.
namespace {
struct KeyedCall {
    CallKey call_key;
    std::shared_ptr<const CustomOp> op = nullptr;
    std::chrono::nanoseconds timeout{};
    uint64_t tag = 0;
    StateRef state = nullptr;
    // False: the call needs a full check, which also finds what is wrong with it.
    bool can_be_remembered = true;
};
} // namespace

// Returns false if something is wrong with the config.
static bool add_config(KeyedCall &call, const qcclCollConfig_t &given) {
    const auto config = take_config(&given);
    if (!config) return false;
    const auto timeout = take_timeout("timeout", config->timeout);
    if (!timeout || (config->codec && !is_codec(config->codec))) return false;
    if (config->layers || config->nlayers != 0 || config->layer_min_size != 0) return false;
    ConfigKey key{.stride = config->stride, .codec = config->codec};
    if (config->algorithm && !key.set_algorithm(config->algorithm)) return false;
    if (config->state) {
        auto state = take_state(config->state);
        if (!state) return false;
        call.state = std::move(*state);
        key.feedback = call.state->shape().feedback;
        key.momentum = call.state->shape().momentum;
    }
    call.call_key.config = key;
    call.timeout = timeout->value_or(call.timeout);
    call.tag = config->tag;
    return true;
}

// Calls with operations of the same kind run the same program. Returns false if something is wrong
// with the operation.
static bool add_made_op(KeyedCall &call, const CallArguments &given) {
    auto taken = take_op(given.op);
    if (!taken) return false;
    if (taken->op == RedOp::pre_mul_sum && number_in_c(taken->made->type) != given.type)
        return false;
    call.call_key.op = first_made_op + static_cast<int32_t>(taken->op);
    call.op = std::move(taken->made);
    return true;
}

static KeyedCall keyed(const Comm &comm, const CallArguments &given) {
    KeyedCall call{.call_key = {.collective = static_cast<int32_t>(given.collective),
                                .type = given.type,
                                .op = given.op,
                                .root = given.root,
                                .count = given.count,
                                .config = {}},
                   .timeout = comm.parts().timeout};
    call.can_be_remembered = !given.config || add_config(call, *given.config);
    if (call.call_key.config) call.call_key.config->is_lossless = given.is_lossless;
    if (has_made_number(given.op)) [[unlikely]]
        call.can_be_remembered = add_made_op(call, given) && call.can_be_remembered;
    return call;
}

// Returns null if the call does not repeat one that was made lately.
static const CachedCall *find_before(Comm &comm, const CallArguments &given,
                                     const KeyedCall &call) {
    if (!call.can_be_remembered) return nullptr;
    const CachedCall *const before = comm.call_cache().find(call.call_key);
    if (!before || !given.parts) return before;
    const Team team = with_root(team_of(comm), static_cast<uint32_t>(given.root));
    return are_given(*before->parts, *given.parts, team) ? before : nullptr;
}

// What may differ between calls that run the same program.
static Done check_repeated(const Comm &comm, const CallArguments &given, const CachedCall &before,
                           const KeyedCall &call) {
    QCCL_TRY(check_buffers(comm, given, before.key, before.extents));
    return check_state(comm, given, before.key, call.state.get());
}

static Request request_of(const CallArguments &given, const CachedCall &before,
                          const KeyedCall &call) {
    return {.send = given.send,
            .recv = given.recv,
            .timeout = call.timeout,
            .noise_seed = before.key.codec.seed,
            .tag = call.tag,
            .op = call.op,
            .state = call.state};
}

namespace {
struct NewCall {
    ProgramKey key;
    BufferExtents extents;
    ReadyCall ready;
    std::shared_ptr<const VFormParts> parts; // as the caller gave them
};
} // namespace

static Result<NewCall> make_new(Comm &comm, const CallArguments &given) {
    Request request{.send = given.send, .recv = given.recv};
    QCCL_TRY(ProgramKey key, take_key(given, team_of(comm), request));
    const std::shared_ptr<const VFormParts> parts = key.v.parts;
    QCCL_TRY(check_device(comm, key.op));
    QCCL_TRY(key.spacing, take_stride(given, key, comm.size()));
    const BufferExtents extents = extents_of(key, team_of(comm));
    QCCL_TRY(check_buffers(comm, given, key, extents));
    CallNames names;
    QCCL_TRY(take_call_config(comm, given, key, request, names));
    request.noise_seed = key.codec.seed;
    if (is_custom(key.op)) key.caller_type = std::exchange(key.type, carrier_of(key.type));
    QCCL_TRY(const ProgramRef program, comm.program(key));
    comm.tell(key.codec, *program);
    comm.tell_choice(key, *program, names);
    return NewCall{key, extents, {program, request}, parts};
}

Done check_config(Comm &comm, const CallArguments &given) {
    if (!given.config) return {};
    Request request;
    CallNames names;
    QCCL_TRY(ProgramKey key, take_key(given, team_of(comm), request));
    QCCL_TRY(outcome(take_stride(given, key, comm.size())));
    return take_call_config(comm, given, key, request, names);
}

Result<ReadyCall> make_ready(Comm &comm, const CallArguments &given) {
    QCCL_TRY(NewCall made, make_new(comm, given));
    return std::move(made.ready);
}

static Result<ReadyCall> make_and_remember(Comm &comm, const CallArguments &given,
                                           const KeyedCall &call) {
    QCCL_TRY(NewCall made, make_new(comm, given));
    if (call.can_be_remembered)
        comm.call_cache().remember(
            {call.call_key, made.key, made.extents, made.ready.program, made.parts});
    return std::move(made.ready);
}

// A repeated call with the same arguments skips their checks, except those of the buffers.
Result<ReadyCall> find_ready(Comm &comm, const CallArguments &given) {
    const KeyedCall call = keyed(comm, given);
    if (const CachedCall *before = find_before(comm, given, call)) {
        QCCL_TRY(check_repeated(comm, given, *before, call));
        return ReadyCall{before->program, request_of(given, *before, call)};
    }
    return make_and_remember(comm, given, call);
}

// Does not call find_ready, which copies the program's reference: that takes a tenth of a small
// call.
template <class Run> static Done find_and_run(Comm &comm, const CallArguments &given, Run run) {
    const KeyedCall call = keyed(comm, given);
    if (const CachedCall *before = find_before(comm, given, call)) {
        QCCL_TRY(check_repeated(comm, given, *before, call));
        return run(before->program, request_of(given, *before, call));
    }
    QCCL_TRY(const ReadyCall ready, make_and_remember(comm, given, call));
    return run(ready.program, ready.request);
}

static Done run_on_stream(Comm &comm, const CallArguments &given) {
    QCCL_TRY(const CallStream stream, take_call_stream(comm, given.stream));
    return find_and_run(comm, given, [&](const ProgramRef &program, const Request &request) {
        return comm.run(program, request, stream);
    });
}

// What check_buffers finds to be right most of the time.
static bool are_buffers_right(const CallArguments &given, const BufferExtents &extents) {
    const Buffer send{"send", given.send, extents.send_bytes};
    const Buffer recv{"recv", given.recv, extents.recv_bytes};
    return is_there(send) && is_there(recv) &&
           (is_in_place(given, extents) || are_apart(send, recv));
}

// Returns the call that this one repeats; null: it repeats none.
static const CachedCall *find_cached(Comm &comm, const CallArguments &given) {
    if (given.config || given.parts || has_made_number(given.op)) return nullptr;
    const CachedCall *const before = comm.call_cache().find_plain(
        static_cast<int32_t>(given.collective), given.type, given.op, given.root, given.count);
    return before && are_buffers_right(given, before->extents) ? before : nullptr;
}

std::optional<RepeatedCall> find_repeated(Comm &comm, const CallArguments &given) {
    const CachedCall *const before = find_cached(comm, given);
    if (!before) return std::nullopt;
    return RepeatedCall{comm, *before, given.send, given.recv};
}

Done RepeatedCall::run() const {
    return comm.run_plain(before.program, send, recv, before.key.codec.seed);
}

Done run_call(Comm &comm, const CallArguments &given) {
    if (!blocks(given.stream) || comm.parts().device.gpu) return run_on_stream(comm, given);
    if (const CachedCall *const before = find_cached(comm, given)) [[likely]]
        return RepeatedCall{comm, *before, given.send, given.recv}.run();
    return find_and_run(comm, given, [&](const ProgramRef &program, const Request &request) {
        return comm.run(program, request);
    });
}

} // namespace qccl
