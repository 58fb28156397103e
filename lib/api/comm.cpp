#include "api/comm.hpp"

#include "api/boundary.hpp"

#include <algorithm>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include <unistd.h>

namespace qccl {

static CallRecord record_of(const Program &program, const Call &call) {
    return {static_cast<int32_t>(program.descriptor.collective), call.number, call.tag};
}

static EngineOptions options_of(const CommParts &parts) {
    EngineOptions options;
    if (parts.trace) options.tracer = &parts.trace->tracer();
    if (const DeviceShare *const share = parts.device_share.get()) {
        options.device_outbox = share->outbox();
        options.device_lines = share->lines();
    }
    return options;
}

Comm::Comm(CommParts parts)
    : parts_(std::move(parts)), team_{.size = parts_.transport->size(),
                                      .rank = parts_.transport->rank(),
                                      .places = parts_.places.get()},
      programs_(team_, parts_.cut, parts_.tables),
      engine_(*parts_.transport, parts_.device, options_of(parts_)), guards_(parts_.device),
      registrations_(*parts_.transport, *parts_.log),
      is_watched_(parts_.trace || parts_.log->wants(LogLevel::trace)) {}

// Nobody reads a device's memory that is gone. After a failure nobody says when that is.
static constexpr std::chrono::milliseconds grace_after_failure{50};

Comm::~Comm() {
    queue_.reset();
    if (!engine_.await_readers()) std::this_thread::sleep_for(grace_after_failure);
    parts_.transport->leave();
    if (parts_.trace) parts_.trace->end(*parts_.log);
}

Done Comm::start_queue(const Settings &settings) {
    const bool has_core = parts_.transport->ranks_per_core() <= 1;
    const GpuQueue::Options options{
        .cpu = settings.progress_cpu,
        .spin = settings.spin.value_or(has_core ? ArrivalNaps::usual_spin : ArrivalNaps::Time{})};
    QCCL_TRY(queue_, GpuQueue::create(parts_.device.gpu, options,
                                      [this] { return failure().has_value() || is_closed(); }));
    return {};
}

Done Comm::run(const ProgramRef &program, const Request &request, const CallStream &stream) {
    if (errors_.has_failed()) {
        parts_.transport->ignore_failure();
        return errors_.failure()->error;
    }
    if (queue_) return run_on_gpu(program, request, stream.gpu);
    const bool is_first = turns_.is_idle();
    if (!is_first && turns_.is_running_here())
        return Error::make(Code::invalid_usage,
                           "a collective on a communicator from inside one of its own (in an idle "
                           "or log function)");

    Call call{.send = request.send,
              .recv = request.recv,
              .number = turns_.issue(),
              .noise_seed = request.noise_seed,
              .tag = request.tag,
              .timeout = request.timeout};
    if (parts_.family) parts_.family->issued(team_.rank, call.number);
    if (stream.host) {
        call.queued = queued_now();
        return enqueue(program, call, *stream.host);
    }
    if (!is_first) return take_turn(*program, call, false);
    turns_.skip_to(call.number);
    return execute(*program, call);
}

Result<uint64_t> Comm::gather(Collective call, const void *mine, void *all, size_t bytes,
                              std::chrono::nanoseconds timeout) {
    ProgramKey key;
    key.collective = Collective::all_gather;
    key.type = DataType::uint8;
    key.count = bytes;
    QCCL_TRY(const ProgramRef usual, program(key));
    const auto own = std::make_shared<Program>(*usual);
    // No call of the caller's own must pass for it.
    own->descriptor.collective = call;
    own->fingerprint = own->descriptor.hash();
    if (queue_) return gather_on_gpu(*own, mine, all, bytes, timeout);
    QCCL_TRY(run(own, {.send = mine, .recv = all, .timeout = timeout}, {}));
    return turns_.issued();
}

// The GPU reaches neither what the caller gives nor what it wants.
Result<uint64_t> Comm::gather_on_gpu(const Program &program, const void *mine, void *all,
                                     size_t bytes, std::chrono::nanoseconds timeout) {
    const size_t all_bytes = bytes * size();
    QCCL_TRY(const PinnedMemory send, PinnedMemory::create(parts_.device.gpu, bytes));
    QCCL_TRY(const PinnedMemory recv, PinnedMemory::create(parts_.device.gpu, all_bytes));
    std::memcpy(send.data(), mine, bytes);
    queue_->await_all();
    QCCL_TRY(
        const uint64_t call,
        take_next_turn(program, {.send = send.data(), .recv = recv.data(), .timeout = timeout}, 0));
    std::memcpy(all, recv.data(), all_bytes);
    return call;
}

// Calls get their numbers when they run: a graph may replay one at any time.
Done Comm::run_on_gpu(const ProgramRef &program, const Request &request,
                      const std::optional<GpuStream> &stream) {
    if (is_running_here())
        return Error::make(Code::invalid_usage,
                           "a collective on a communicator from inside one of its own (in an idle "
                           "or log function)");
    if (stream) {
        check_priority(*stream);
        Request queued = request;
        queued.queued = queued_now();
        return queue_->enqueue(*stream,
                               [this, program, queued](const Done &arrived, uint64_t captured) {
                                   run_arrived(*program, queued, arrived, captured);
                               });
    }
    queue_->await_all();
    return outcome(take_next_turn(*program, request, 0));
}

// The caller's stream waits in the middle of the call for streams of the library. Where it is
// served by the same queue of the GPU they stand behind it, and the call waits for itself.
void Comm::check_priority(GpuStream stream) {
    if (has_told_priority_) return;
    const auto is_greatest = parts_.device.gpu->has_greatest_priority(stream);
    if (!is_greatest || !*is_greatest) return; // a stream that is none is refused elsewhere
    has_told_priority_ = true;
    parts_.log->warn(
        "a stream of %s has the greatest priority, which QCCL's own streams have: where "
        "the GPU serves both from one queue, the call never ends. Create it with a "
        "lower priority",
        parts_.device.name());
}

Result<uint64_t> Comm::take_next_turn(const Program &program, const Request &request,
                                      uint64_t captured) {
    const auto number = turns_.await_next();
    if (!number) return ended();
    const Call call{.send = request.send,
                    .recv = request.recv,
                    .number = *number,
                    .captured = parts_.captures_alike ? captured : 0,
                    .noise_seed = request.noise_seed,
                    .tag = request.tag,
                    .queued = captured == 0 ? request.queued : 0, // a graph makes it again
                    .timeout = request.timeout};
    const Done done = contained([&]() -> Done {
        if (parts_.family) parts_.family->issued(team_.rank, *number);
        return execute(program, call);
    });
    turns_.finish(*number, false);
    QCCL_TRY(done);
    return *number;
}

void Comm::run_arrived(const Program &program, const Request &request, const Done &arrived,
                       uint64_t captured) {
    (void)contained([&]() -> Done {
        // After a failure no call is made, so that the stream goes on while a thread holds
        // the calls.
        const auto failure = this->failure();
        if (arrived && !failure) return outcome(take_next_turn(program, request, captured));
        return failed(failure ? failure->error : arrived.error(),
                      {static_cast<int32_t>(program.descriptor.collective), 0, request.tag});
    });
}

Done Comm::enqueue(const ProgramRef &program, const Call &call, Stream &stream) {
    turns_.enqueued();
    const Done enqueued = contained([&]() -> Done {
        stream.enqueue({.run = [self = shared_from_this(), program,
                                call] { return self->take_turn(*program, call, true); },
                        .told = errors_.told_flag()});
        return {};
    });
    if (enqueued) return {};
    // The call has its number and cannot be made: the others would wait for it.
    const Error error = failed(enqueued.error(), record_of(*program, call));
    turns_.forgo();
    return error;
}

Done Comm::take_turn(const Program &program, const Call &call, bool was_enqueued) {
    if (!turns_.await(call.number)) return ended();
    const Done done = execute(program, call);
    turns_.finish(call.number, was_enqueued);
    return done;
}

Error Comm::ended() const {
    if (const auto failure = this->failure()) return failure->error;
    return Error::make(Code::invalid_usage, "the communicator was destroyed before the call");
}

Done Comm::execute(const Program &program, const Call &call) {
    const bool is_guarded = program.guard != nullptr;
    if (is_watched_ && !is_guarded) tell(program, call);
    const Done done = contained([&]() -> Done {
        if (!parts_.inject.empty()) inject(call.number);
        if (audit_ || is_guarded) [[unlikely]]
            return run_audited(program, call);
        return engine_.run(program, call);
    });
    if (!done) return failed(done.error(), record_of(program, call));
    return {};
}

Done Comm::run_audited(const Program &program, const Call &call) {
    if (audit_) audit_->before(program, call);
    QCCL_TRY(program.guard ? run_guarded(program, call) : engine_.run(program, call));
    if (audit_) audit_->after(program, call);
    return {};
}

Done Comm::run_guarded(const Program &program, const Call &call) {
    QCCL_TRY(CallGuards::Use use, guards_.begin(program, call));
    Call guarded = call;
    guarded.sampled_nmse = &use.word;
    if (is_watched_) tell(*use.program, guarded);
    QCCL_TRY(engine_.run(*use.program, guarded));
    return guards_.end(use, guarded, team_.rank == 0 ? parts_.log.get() : nullptr);
}

Error Comm::abandon(Collective collective, const Error &error) {
    return failed(error, {static_cast<int32_t>(collective), 0, 0});
}

Error Comm::failed(const Error &error, const CallRecord &call) {
    // What another rank or thread has found out before is what happened.
    if (!parts_.transport->failure()) fail(located(error, call, team_.rank));
    const bool is_first = !errors_.has_failed();
    errors_.fail(*parts_.transport->failure(), call);
    const RecordedError first = *errors_.failure();
    if (!is_first) return first.error;
    // All ranks know: one says it aloud.
    const char *const who =
        parts_.wishes.name.empty() ? "the communicator" : parts_.wishes.name.c_str();
    if (parts_.transport->is_ours_to_tell())
        parts_.log->warn("%s has failed: %s", who, first.error.text);
    else
        parts_.log->info("%s has failed: %s", who, first.error.text);
    return first.error;
}

void Comm::tell(const Program &program, const Call &call) const {
    if (parts_.trace) parts_.trace->tell(*parts_.log);
    if (!parts_.log->wants(LogLevel::trace)) return;
    const Work &work = program.work;
    const bool is_barrier = work.collective == Collective::barrier;
    parts_.log->trace(
        "%s%scall %" PRIu64 ": %s, count %" PRIu64 ", type %s, op %s, codec %s, algorithm %s, "
        "tag %" PRIu64,
        parts_.wishes.name.c_str(), parts_.wishes.name.empty() ? "" : ": ", call.number,
        name(program.descriptor.collective), work.count, is_barrier ? "none" : name(work.type),
        reduces(work.collective) ? name(work.op) : "none", spec(work.codec).c_str(),
        work.algorithm.c_str(), call.tag);
}

void Comm::inject(uint64_t call) {
    for (const InjectRule &rule : parts_.inject) {
        if (!rule.hits(team_.rank, call)) continue;
        parts_.log->info("QCCL_INJECT: \"%s\" hits rank %" PRIu32 " before its call %" PRIu64,
                         rule.text.c_str(), team_.rank, call);
        if (rule.fault == Fault::kill) kill(getpid(), SIGKILL);
        if (rule.fault == Fault::delay) std::this_thread::sleep_for(rule.delay);
        if (rule.fault == Fault::revoke)
            fail(Error::make(Code::revoked, "rank %u revoked the communicator (QCCL_INJECT)",
                             team_.rank)
                     .at_rank(team_.rank));
    }
}

Result<Turns::Hold> Comm::hold_calls() {
    if (turns_.is_running_here())
        return Error::make(Code::invalid_usage,
                           "a communicator cannot wait for the call that this thread is in (in an "
                           "idle or log function)");
    turns_.await_all();
    if (queue_) queue_->await_all();
    Turns::Hold hold(turns_);
    if (!hold) return failed(ended(), {});
    return Result<Turns::Hold>(std::move(hold));
}

Done Comm::confirm_calls() {
    if (errors_.has_failed()) return errors_.failure()->error;
    const Done confirmed =
        contained([this] { return parts_.transport->confirm_calls(parts_.timeout); });
    if (!confirmed) return failed(confirmed.error(), {});
    return {};
}

Done Comm::finalize() {
    QCCL_TRY(const Turns::Hold hold, hold_calls());
    return confirm_calls();
}

Done Comm::conclude() {
    const auto hold = hold_calls(); // an error where another thread has closed the communicator
    const auto failure = parts_.transport->failure();
    // Of these failures the caller knows enough, and compares nothing.
    const bool is_over = failure && (failure->code != Code::mismatch || errors_.is_told());
    const Done confirmed = is_over ? Done() : hold ? confirm_calls() : Done(hold.error());
    turns_.close();
    // As if the revocation had come before this.
    if (!confirmed && confirmed.error().code == Code::revoked) return {};
    return confirmed;
}

std::optional<RecordedError> Comm::failure() const {
    if (const auto failure = errors_.failure()) return failure;
    if (const auto failure = parts_.transport->failure()) return RecordedError{*failure, {}};
    return std::nullopt;
}

void Comm::tell(const CodecChoice &choice) {
    if (!speaks() || !choice.passed_over) return;
    if (const std::string text = choice.notice(); is_new(text))
        parts_.log->info("%s", text.c_str());
}

void Comm::tell(const Codec &asked, const Program &program) {
    const Codec &codec = program.work.codec;
    if (!program.notice.empty() && team_.rank == 0 && is_new(spec(asked)))
        parts_.log->warn("codec %s: %s; such calls go lossless", spec(asked).c_str(),
                         program.notice.c_str());
    if (codec.is_lossless() || has_told_lossy_ || !speaks()) return;
    has_told_lossy_ = true;
    parts_.log->info("first lossy call of this communicator: codec %s", spec(codec).c_str());
}

void Comm::tell_unused_rules() {
    for (const std::string &sentence : RuleUse::leave(std::move(rule_use_)))
        parts_.log->warn("%s", sentence.c_str());
}

bool Comm::is_new(const std::string &text) {
    if (std::find(told_.begin(), told_.end(), text) != told_.end()) return false;
    told_.push_back(text);
    return true;
}

// Ranks that choose differently fail; otherwise one says it for all.
bool Comm::speaks() const { return team_.rank == 0 && parts_.log->wants(LogLevel::info); }

} // namespace qccl
