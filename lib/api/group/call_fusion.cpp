// Decides which calls are fused and how, and runs them as one: copies their inputs into a shared
// vector, runs the call on the vector, and copies the results to the callers.
#include "api/group/call_fusion.hpp"

#include "api/group/fusion_buffer.hpp"
#include "base/hash.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <utility>

namespace qccl {

// Larger vectors gain little, and peers may read them where they lie (Chunking::zero_copy_bytes).
static constexpr size_t most_bytes_of_a_call = size_t{64} << 10;
// Calls of more kinds than this are no likely mixture; each is compared with all.
static constexpr size_t most_kinds = 16;

// ---- Which calls are fused

namespace {

// An algorithm whose lossless calls `large` can run: both add the ranks' values in the same order,
// wherever in the vector the values are, and `large` is the one of that order for large vectors.
struct AdditionOrder {
    std::string_view algorithm, large;
};

constexpr AdditionOrder addition_orders[] = {
    {.algorithm = "oneshot", .large = "direct"},
    {.algorithm = "direct", .large = "direct"},
    {.algorithm = "doubling", .large = "doubling"},
};

} // namespace

// Returns the algorithm that can run lossless calls of this one, or an empty name. Algorithms with
// the same answer add in the same order.
static std::string_view large_of(std::string_view algorithm) {
    const auto *const order =
        std::ranges::find(addition_orders, algorithm, &AdditionOrder::algorithm);
    return order == std::end(addition_orders) ? std::string_view() : order->large;
}

static bool can_be_fused(Collective collective) {
    return collective == Collective::all_reduce || collective == Collective::all_gather ||
           collective == Collective::reduce_scatter;
}

// Whether a value's code depends on its block alone, also if the last block, which `count` values
// leave incomplete, is filled up (FusedShape).
static bool has_blocks_alone(const Codec &codec, uint64_t count) {
    if (codec.is_lossless()) return true;
    if (codec.draws_noise() || codec.has_whole_buckets()) return false;
    if (codec.rotation != 0 && count % codec.rotation != 0) return false;
    const bool is_complete = codec.bucket == 0 || count % codec.bucket == 0;
    switch (codec.row().kind) {
    case CodecKind::plain:
    case CodecKind::cast:
    case CodecKind::grid:
    case CodecKind::integer:
    case CodecKind::mx:
    case CodecKind::scaled:
    case CodecKind::nvfp4:
    case CodecKind::tbq: return true;
    case CodecKind::minmax: return is_complete || !codec.skips_incomplete;
    case CodecKind::onebit: // scales depend on how many values there are, or on where they lie
    case CodecKind::norm: return is_complete;
    case CodecKind::terngrad:
    case CodecKind::topk:
    case CodecKind::dummy: break;
    }
    return false;
}

static bool is_lossless(const Work &work) {
    return work.codec.is_lossless() && work.inner_codec.is_lossless();
}

static std::optional<FusedForm> find_form(const Program &program) {
    const Work &work = program.work;
    // Operations of the program differ from call to call, and a fused call's values need not begin
    // at a block of exact sums.
    if (!can_be_fused(work.collective) || work.codec.sums_exactly || work.parts || program.guard ||
        program.shared || is_made(work.op) || work.feedback != Feedback::none)
        return std::nullopt;
    if (!has_blocks_alone(work.codec, work.count) ||
        !has_blocks_alone(work.inner_codec, work.count))
        return std::nullopt;
    FusedForm form{.algorithm = work.algorithm,
                   .chunks = program.layout.chunks(),
                   .chunk_count = program.layout.range({}, 0).count};
    if (!is_lossless(work)) form.step = program.layout.grain();
    if (work.collective == Collective::all_gather) {
        // Ranks forward what the owner of a part has encoded.
        form.by = FusedForm::By::any;
        form.algorithm = {};
        return form;
    }
    const std::string_view large = is_lossless(work) ? large_of(work.algorithm) : "";
    if (large.empty()) return form;
    form.by = FusedForm::By::same_order;
    form.algorithm = large;
    if (work.collective == Collective::all_reduce) {
        form.by_chunk = false;
        form.chunks = 1;
        form.chunk_count = work.count;
    }
    return form;
}

// ---- Batches

bool MemoryRanges::is_free(const void *start, size_t bytes) const {
    const auto begin = reinterpret_cast<uintptr_t>(start);
    const auto after = ends_.lower_bound(begin);
    if (after != ends_.end() && after->first - begin < bytes) return false;
    return bytes == 0 || after == ends_.begin() || std::prev(after)->second <= begin;
}

// Ranges that touch become one, because the buffers of many programs lie one behind the other.
void MemoryRanges::add(const void *start, size_t bytes) {
    if (bytes == 0) return;
    const auto begin = reinterpret_cast<uintptr_t>(start), end = begin + bytes;
    auto next = ends_.upper_bound(begin);
    const bool touches = next != ends_.begin() && std::prev(next)->second >= begin;
    const auto range = touches ? std::prev(next) : ends_.emplace_hint(next, begin, end);
    range->second = std::max(range->second, end);
    next = std::next(range);
    while (next != ends_.end() && next->first <= range->second) {
        range->second = std::max(range->second, next->second);
        next = ends_.erase(next);
    }
}

// Ranks on GPUs make the calls one by one, so those of hosts beside them do, too.
FusionBatch::FusionBatch(const Comm &comm, Calls calls)
    : most_bytes_(comm.parts().fusion_bytes), given_(calls),
      takes_others_(most_bytes_ > 0 && !comm.parts().policy.has_gpus() && comm.size() > 1) {}

bool FusionBatch::is_apart_from_others(const ReadyCall &call) const {
    const Program &program = *call.program;
    const Request &request = call.request;
    return written_.is_free(request.send, program.send_bytes) &&
           written_.is_free(request.recv, program.recv_bytes) &&
           read_.is_free(request.recv, program.recv_bytes);
}

void FusionBatch::note_buffers(const ReadyCall &call) {
    read_.add(call.request.send, call.program->send_bytes);
    written_.add(call.request.recv, call.program->recv_bytes);
}

// Most groups have many calls of one shape.
std::optional<FusedForm> FusionBatch::form_of(const ReadyCall &call) const {
    if (!takes_others_) return std::nullopt;
    if (latest_ < calls_.size() && calls_[latest_].latest_program() == call.program.get())
        return calls_[latest_].latest_form();
    const auto form = find_form(*call.program);
    if (!form) return std::nullopt;
    const uint64_t bytes = form->chunks * form->room() * type_bytes(call.program->work.type);
    return bytes <= most_bytes_of_a_call ? form : std::nullopt;
}

bool FusionBatch::join(const ReadyCall &call, size_t number) {
    const auto form = form_of(call);
    if (given_ == Calls::are_apart) {
        if (!form || !join_kind(call, number, *form))
            calls_.emplace_back(call, number, std::nullopt);
        return true;
    }
    if (calls_.empty()) {
        takes_others_ = form.has_value();
        begin_kind(call, number, form);
    } else if (!form || !is_apart_from_others(call) || !join_kind(call, number, *form)) {
        return false;
    }
    note_buffers(call);
    return true;
}

void FusionBatch::begin_kind(const ReadyCall &call, size_t number,
                             const std::optional<FusedForm> &form) {
    latest_ = calls_.size();
    calls_.emplace_back(call, number, form);
    kinds_++;
}

bool FusionBatch::join_kind(const ReadyCall &call, size_t number, const FusedForm &form) {
    const auto takes = [&](FusedCall &kind) { return kind.join(call, number, form, most_bytes_); };
    if (latest_ < calls_.size() && takes(calls_[latest_])) return true;
    const auto found = std::find_if(calls_.rbegin(), calls_.rend(), takes);
    if (found != calls_.rend()) {
        latest_ = static_cast<size_t>(calls_.rend() - found) - 1;
        return true;
    }
    if (kinds_ == most_kinds) return false;
    begin_kind(call, number, form);
    return true;
}

// ---- The fused call

FusedCall::FusedCall(const ReadyCall &first, size_t number, const std::optional<FusedForm> &form)
    : calls_{&first}, takes_others_(form.has_value()), form_(form.value_or(FusedForm())),
      used_(form_.room()), first_(number), last_(number) {}

// Whether calls of two programs may become one call.
bool FusedCall::is_alike(const Program &next, const FusedForm &form) const {
    const Work &mine = work();
    return next.work.collective == mine.collective && next.work.type == mine.type &&
           next.work.caller_type == mine.caller_type && next.work.op == mine.op &&
           form.by == form_.by && form.algorithm == form_.algorithm &&
           form.chunks == form_.chunks && next.work.codec == mine.codec &&
           next.work.inner_codec == mine.inner_codec;
}

bool FusedCall::join(const ReadyCall &next, size_t number, const FusedForm &form,
                     uint64_t most_bytes) {
    if (!takes_others_) return false;
    if (next.program.get() != latest_program() && !is_alike(*next.program, form)) return false;
    const uint64_t used = used_ + form.room();
    if (form.chunks * used * type_bytes(work().type) > most_bytes) return false;
    calls_.push_back(&next);
    form_ = form;
    used_ = used;
    last_ = number;
    return true;
}

// The planner has decided that the calls by themselves are encoded, and the fused call has to be.
Result<ProgramRef> FusedCall::program(Comm &comm) const {
    const CallPolicy &policy = comm.parts().policy;
    ProgramKey key;
    key.collective = work().collective;
    key.type = work().type;
    key.caller_type = work().caller_type;
    key.op = work().op;
    key.count = has_part_per_rank(key.collective) ? chunk_count() : form_.chunks * chunk_count();
    key.codec = work().codec;
    key.codec.min_bytes = 0;
    key.pieces = policy.choose_pieces(policy.traits(key.collective, key.type, key.op, key.count));
    if (form_.by != FusedForm::By::same) {
        QCCL_TRY(ProgramRef planned, comm.program(key));
        if (form_.by == FusedForm::By::any || large_of(planned->work.algorithm) == form_.algorithm)
            return planned;
    }
    QCCL_TRY(key.algorithm, parse_algorithm(form_.algorithm));
    return comm.program(key);
}

static bool has_minima(const Codec &codec) { return codec.row().kind == CodecKind::minmax; }

// The longest wait of the calls; 0 is for ever.
static std::chrono::nanoseconds longest(std::chrono::nanoseconds a, std::chrono::nanoseconds b) {
    constexpr std::chrono::nanoseconds for_ever{0};
    return a == for_ever || b == for_ever ? for_ever : std::max(a, b);
}

// The elements of each chunk of the shared vector. Where values keep the chunks of calls, chunks of
// a vector that is cut end at multiples of the grain.
uint64_t FusedCall::chunk_count() const {
    const bool is_cut = form_.by_chunk && !has_part_per_rank(work().collective);
    return is_cut ? round_up(used_, calls_.front()->program->layout.grain()) : used_;
}

// Ranks may place the blocks of a call differently, so a stride does not decide what is fused.
static bool is_spaced(const ReadyCall &call) { return call.program->work.spacing != 0; }

// What ranks compare of one of the calls.
static uint64_t hash_of(const ReadyCall *call) {
    const uint64_t count = call->program->work.count;
    const uint32_t of_layers = call->request.counts_hash;
    return of_layers == 0 ? count : mixed_hash(of_layers, count);
}

Done FusedCall::run(Comm &comm, const CallStream &stream, uint64_t calls_before) const {
    const ReadyCall &first = *calls_.front();
    Request request = first.request;
    request.calls_before = calls_before;
    if (calls_.size() == 1) return comm.run(first.program, request, stream);
    QCCL_TRY(const ProgramRef program, this->program(comm));
    request.calls = calls_.size();
    request.counts_hash = hash_counts(calls_, hash_of);
    for (const ReadyCall *const each : calls_)
        request.timeout = longest(request.timeout, each->request.timeout);
    const bool has_gaps = form_.by_chunk && !has_part_per_rank(work().collective);
    const bool is_one_spaced =
        std::ranges::any_of(calls_, [](const ReadyCall *each) { return is_spaced(*each); });
    const bool needs_one_vector = has_gaps || is_one_spaced || form_.step > 1 || used_ == 0 ||
                                  program->fast_path || comm.audit();
    return needs_one_vector ? run_on_vector(comm, program, request, stream)
                            : run_on_parts(comm, program, request, stream);
}

namespace {

// A program, and the parts of a call of it.
struct ProgramWithParts {
    ProgramRef program;
    std::vector<CallPart> parts;
};

} // namespace

// The engine finds the values in the buffers of the callers. A stream that holds the program holds
// the parts, too.
Done FusedCall::run_on_parts(Comm &comm, const ProgramRef &program, Request request,
                             const CallStream &stream) const {
    const auto held = std::make_shared<ProgramWithParts>(ProgramWithParts{program, {}});
    held->parts.reserve(calls_.size());
    uint64_t at = 0;
    for (const ReadyCall *const each : calls_) {
        const uint64_t count = each->program->work.count;
        if (count == 0) continue;
        held->parts.push_back({.send = static_cast<const std::byte *>(each->request.send),
                               .recv = static_cast<std::byte *>(each->request.recv),
                               .begin = at,
                               .count = count});
        at += count;
    }
    request.send = held->parts.front().send;
    request.recv = held->parts.front().recv;
    request.parts = held->parts;
    return comm.run(ProgramRef(held, program.get()), request, stream);
}

Done FusedCall::run_on_vector(Comm &comm, const ProgramRef &program, Request request,
                              const CallStream &stream) const {
    const size_t bytes = type_bytes(work().type);
    std::vector<FusedPart> parts;
    parts.reserve(calls_.size());
    uint64_t at = 0;
    for (const ReadyCall *const each : calls_) {
        const Program &own = *each->program;
        const uint64_t count = form_.by_chunk ? own.layout.range({}, 0).count : own.work.count;
        parts.push_back({.send = each->request.send,
                         .recv = each->request.recv,
                         .bytes = own.raw_bytes,
                         .chunk_bytes = count * bytes,
                         .chunk_step = (is_spaced(*each) ? own.work.spacing : count) * bytes,
                         .offset = at * bytes});
        at += round_up(count, form_.step);
    }
    const CollectiveRow &row = row_of(work().collective);
    const auto buffer = std::make_shared<const FusionBuffer>(
        FusedShape{.chunks = form_.chunks,
                   .rank = comm.rank(),
                   .gathers = row.gathers,
                   .scatters = row.scatters,
                   .value_bytes = bytes,
                   .step_bytes = form_.step * bytes,
                   .repeats_last = has_minima(work().codec) || has_minima(work().inner_codec),
                   .keeps_own =
                       work().codec.is_lossless() || work().codec.owner == OwnerKeeps::exact},
        std::move(parts), used_ * bytes, chunk_count() * bytes,
        comm.scratch_memory().begin(form_.chunks * chunk_count() * bytes));
    request.send = buffer->send();
    request.recv = buffer->recv();
    return comm.run_on_copies(program, request, stream, buffer);
}

} // namespace qccl
