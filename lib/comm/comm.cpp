// Implements Comm: runs calls in order on the calling thread and on host streams, waits for them,
// and ends the communicator.
#include "comm/comm.hpp"

#include "base/exception_boundary.hpp"
#include "base/types.hpp"
#include "comm/pair_channels.hpp"

#include <algorithm>
#include <cinttypes>
#include <csignal>
#include <cstring>
#include <thread>

#include <unistd.h>

namespace qccl {

static CallRecord record_of(const Program &program, const Call &call) {
    return {static_cast<int32_t>(program.shape.descriptor().collective), call.number, call.tag};
}

static EngineOptions options_of(const CommParts &parts) {
    EngineOptions options;
    if (parts.trace) options.tracer = &parts.trace->tracer();
    if (const GpuStaging *const staging = parts.gpu_staging.get()) {
        options.device_outbox = staging->outbox();
        options.device_eager_slots = staging->eager_slots();
    }
    return options;
}

Comm::Comm(CommParts parts)
    : parts_(std::move(parts)), team_{.size = parts_.transport->size(),
                                      .rank = parts_.transport->rank(),
                                      .places = parts_.places.get()},
      program_cache_(team_, parts_.cut, parts_.inputs),
      engine_(*parts_.transport, parts_.device, options_of(parts_)), guards_(parts_.device),
      registrations_(*parts_.transport, *parts_.log),
      is_watched_(parts_.trace || parts_.log->wants(LogLevel::trace)),
      pairs_(std::make_unique<PairChannels>(*this)) {}

// Peers may still read this rank's device memory, so the destructor does not free it at once. After
// a failure there is no acknowledgement, and the destructor waits this long.
static constexpr std::chrono::milliseconds grace_after_failure{50};

Comm::~Comm() {
    queue_.reset();
    if (!engine_.await_readers()) std::this_thread::sleep_for(grace_after_failure);
    parts_.transport->leave();
    if (parts_.trace) parts_.trace->end(*parts_.log);
}

template <class Run>
Done Comm::enqueue(const CallRecord &record, Run run, const CallStream &stream) {
    sequencer_.enqueued();
    const Done enqueued = exception_boundary([&]() -> Done {
        stream.host->enqueue({.run = [self = shared_from_this(), call = record.number,
                                      run = std::move(run), settle = stream.settle]() -> Done {
                                  const Done done = self->take_turn(call, true, run);
                                  return settle ? settle(done) : done;
                              },
                              .told = stream.settle ? stream.told : errors_.told_flag()});
        return {};
    });
    if (enqueued) return {};
    // The call has its number and cannot run. The other ranks would wait for it, so it fails the
    // communicator.
    const Error error = failed(enqueued.error(), record);
    sequencer_.forgo();
    return error;
}

Error Comm::refuse_inside() {
    return Error::make(Code::invalid_usage,
                       "a collective on a communicator from inside one of its own (in an idle or "
                       "log function)");
}

template <class Run> Done Comm::take_turn(uint64_t call, bool was_enqueued, Run run) {
    if (!sequencer_.await(call)) return ended();
    const Done done = run();
    sequencer_.finish(call, was_enqueued);
    return done;
}

template <class Run> Done Comm::run_now(const Call &call, bool is_first, Run run) {
    if (!is_first) return take_turn(call.number, false, run);
    sequencer_.skip_to(call.number);
    return run();
}

Done Comm::check_can_call() {
    if (errors_.has_failed()) {
        parts_.transport->ignore_failure();
        return errors_.failure()->error;
    }
    if (!queue_ && !sequencer_.is_idle() && sequencer_.is_running_here()) return refuse_inside();
    return {};
}

Done Comm::run(const ProgramRef &program, const Request &request) {
    const bool is_first = sequencer_.is_idle();
    if (!is_first || errors_.has_failed()) [[unlikely]]
        QCCL_TRY(check_can_call());
    if (queue_) return run_on_gpu(program, request, std::nullopt);
    if (request.state || program->shared) [[unlikely]]
        return run_with_state_or_scales(program, request, {});
    const Call call = next_call(request);
    return run_now(call, is_first, [&] { return execute(*program, call); });
}

Done Comm::run_plain(const ProgramRef &program, const void *send, void *recv, uint64_t noise_seed) {
    if (!is_free_on_host() || errors_.has_failed() || program->shared) [[unlikely]]
        return run(
            program,
            {.send = send, .recv = recv, .timeout = parts_.timeout, .noise_seed = noise_seed});
    const Call call{.send = send,
                    .recv = recv,
                    .number = sequencer_.issue(),
                    .fused_before = fused_away_,
                    .noise_seed = noise_seed,
                    .timeout = parts_.timeout};
    if (parts_.siblings) parts_.siblings->issued(team_.rank, call.number);
    sequencer_.skip_to(call.number);
    return execute(*program, call);
}

Done Comm::run(const ProgramRef &program, const Request &request, const CallStream &stream) {
    if (!stream.host && !stream.gpu) return run(program, request);
    QCCL_TRY(check_can_call());
    if (queue_) return run_on_gpu(program, request, stream.gpu);
    if (request.state || program->shared) return run_with_state_or_scales(program, request, stream);
    Call call = next_call(request);
    call.queued = queued_now();
    return enqueue(
        record_of(*program, call),
        [this, program, op = request.op, call] { return execute(*program, call); }, stream);
}

Done Comm::run_with_state_or_scales(const ProgramRef &program, const Request &request,
                                    const CallStream &stream) {
    return program->shared ? run_with_shared_scales(program, request, stream)
                           : run_with_state(program, request, stream);
}

// The state is free again before the caller can know that the call has ended.
Done Comm::run_with_state(const ProgramRef &program, const Request &request,
                          const CallStream &stream) {
    QCCL_TRY(const std::shared_ptr<StateUse> use, StateUse::begin(request.state));
    const bool is_first = sequencer_.is_idle();
    Call call = next_call(request);
    call.noise_seed = use->seed();
    call.feedback = &use->feedback();
    if (stream.host) call.queued = queued_now();
    const auto run = [this, program, call, use] {
        const Done done = execute(program->at_call(call.feedback->call), call);
        use->finish(done);
        return done;
    };
    if (stream.host) return enqueue(record_of(*program, call), run, stream);
    return run_now(call, is_first, run);
}

Done Comm::run_on_copies(const ProgramRef &program, const Request &request,
                         const CallStream &stream,
                         const std::shared_ptr<const CallCopies> &copies) {
    const bool is_first = sequencer_.is_idle();
    QCCL_TRY(check_can_call());
    Call call = next_call(request);
    if (stream.host) {
        call.queued = queued_now();
        return enqueue(
            record_of(*program, call),
            [this, program, call, copies] { return execute_on_copies(*program, call, *copies); },
            stream);
    }
    return run_now(call, is_first, [&] { return execute_on_copies(*program, call, *copies); });
}

Done Comm::execute_on_copies(const Program &program, const Call &call, const CallCopies &copies) {
    copies.copy_in();
    QCCL_TRY(execute(program, call));
    copies.copy_out();
    return {};
}

Call Comm::next_call(const Request &request) {
    Call call = request.call(sequencer_.issue());
    call.fused_before = fused_away_ + request.calls_before;
    fused_away_ += request.calls - 1;
    if (parts_.siblings) parts_.siblings->issued(team_.rank, call.number);
    return call;
}

bool Comm::can_begin(const Program &program) const {
    const bool is_plain = !is_watched_ && !audit_ && parts_.inject.empty();
    return is_plain && !program.shared && is_free_on_host() && !errors_.has_failed() &&
           engine_.can_begin(program);
}

Result<BegunCallRef> Comm::begin(const ProgramRef &program, const Request &request) {
    auto begun = std::make_shared<BegunCall>();
    begun->program = program;
    begun->op = request.op;
    const Call call = next_call(request);
    begun->record = record_of(*program, call);
    auto flight = exception_boundary([&] { return CallInFlight::begin(engine_, *program, call); });
    if (!flight) {
        sequencer_.skip_to(call.number);
        return failed(flight.error(), begun->record);
    }
    begun->flight = std::move(*flight);
    return begun;
}

Result<bool> Comm::move_on(BegunCall &begun) {
    const auto moved = exception_boundary([&] { return begun.flight->move_on(); });
    if (!moved || begun.has_ended()) sequencer_.skip_to(begun.record.number);
    if (!moved) return failed(moved.error(), begun.record);
    return moved;
}

Done Comm::finish(BegunCall &begun) {
    sequencer_.skip_to(begun.record.number);
    return finish_in_turn(begun);
}

Done Comm::finish_in_turn(BegunCall &begun) {
    const Done done = exception_boundary([&] { return begun.flight->finish(); });
    if (!done) return failed(done.error(), begun.record);
    return {};
}

Done Comm::finish_on(const BegunCallRef &begun, const CallStream &stream) {
    return enqueue(
        begun->record, [this, begun] { return finish_in_turn(*begun); }, stream);
}

Result<uint64_t> Comm::gather(Collective call, const void *mine, void *all, size_t bytes,
                              std::chrono::nanoseconds timeout) {
    ProgramKey key;
    key.collective = Collective::all_gather;
    key.type = DataType::uint8;
    key.count = bytes;
    QCCL_TRY(const ProgramRef usual, program(key));
    const auto own = std::make_shared<Program>(*usual);
    // The descriptor names the library's own call, so that no call of the caller matches it.
    CallDescriptor named = own->shape.descriptor();
    named.collective = call;
    own->shape = named;
    own->own_call = call;
    if (queue_) return gather_on_gpu(*own, mine, all, bytes, timeout);
    QCCL_TRY(run(own, {.send = mine, .recv = all, .timeout = timeout}));
    return sequencer_.issued();
}

Done Comm::execute(const Program &program, const Call &call) {
    const Done done = exception_boundary([&]() -> Done {
        if (!parts_.inject.empty()) inject(call.number);
        if (audit_ || program.guard) [[unlikely]]
            return run_audited(program, call);
        return run_program(program, call);
    });
    if (done) return {};
    log_long_codec(done.error(), program);
    return failed(done.error(), record_of(program, call));
}

Done Comm::run_program(const Program &program, const Call &call) {
    if (is_watched_) [[unlikely]]
        return run_watched(program, call);
    return engine_.run(program, call);
}

Done Comm::run_audited(const Program &program, const Call &call) {
    CallAudit *const audit = program.shared ? nullptr : audit_.get(); // integers lose nothing
    if (audit) audit->before(program, call);
    QCCL_TRY(program.guard ? run_guarded(program, call) : run_program(program, call));
    if (audit) audit->after(program, call);
    return {};
}

Done Comm::run_guarded(const Program &program, const Call &call) {
    QCCL_TRY(CallGuards::GuardedCall use, guards_.begin(program, call));
    Call guarded = call;
    guarded.sampled_nmse = &use.word;
    QCCL_TRY(run_program(*use.program, guarded));
    return guards_.end(use, guarded, team_.rank == 0 ? parts_.log.get() : nullptr);
}

// Returns the codec that traces show.
static std::string codec_text(const Program &program) {
    return program.traced_codec.empty() ? spec(program.work.codec) : program.traced_codec;
}

// The line before the call shows which call a rank was in if its process ends there. A call with
// shared scales sums other values than the caller's, so the lines are of the call that ranks
// compare.
Done Comm::run_watched(const Program &program, const Call &call) {
    if (parts_.trace) parts_.trace->tell(*parts_.log);
    if (!parts_.log->wants(LogLevel::trace)) return engine_.run(program, call);
    const std::string who = log_prefix(parts_.comm_config);
    const CallDescriptor &called = program.shape.descriptor();
    const char *const what = name(called.collective);
    parts_.log->trace("%scall %" PRIu64 " begins: %s", who.c_str(), call.number, what);
    const auto start = std::chrono::steady_clock::now();
    const Done done = exception_boundary([&] { return engine_.run(program, call); });
    const double us = in_seconds(std::chrono::steady_clock::now() - start) * 1e6;
    const bool is_barrier = called.collective == Collective::barrier;
    parts_.log->trace("%scall %" PRIu64 ": %s, count %" PRIu64
                      ", type %s, op %s, codec %s, algorithm %s, tag %" PRIu64 ", %.1f us: %s",
                      who.c_str(), call.number, what, called.count,
                      is_barrier ? "none" : name(called.type),
                      reduces(program.work.collective) ? name(called.op) : "none",
                      codec_text(program).c_str(), program.work.algorithm.c_str(), call.tag, us,
                      done ? "success" : code_text(done.error().code));
    return done;
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

Result<CallSequencer::Hold> Comm::hold_calls() {
    if (sequencer_.is_running_here())
        return Error::make(Code::invalid_usage,
                           "a communicator cannot wait for the call that this thread is in (in an "
                           "idle or log function)");
    sequencer_.await_all();
    if (queue_) queue_->await_all();
    CallSequencer::Hold hold(sequencer_);
    if (!hold) return failed(ended(), {});
    return Result<CallSequencer::Hold>(std::move(hold));
}

Done Comm::confirm_calls() {
    if (errors_.has_failed()) return errors_.failure()->error;
    const Done confirmed =
        exception_boundary([this] { return parts_.transport->confirm_calls(parts_.timeout); });
    if (!confirmed) return failed(confirmed.error(), {});
    return {};
}

PairChannels &Comm::pairs() { return *pairs_; }

void *Comm::register_block(SharedBlock &block) {
    void *const handle = registrations_.add(block);
    pairs_->share(registrations_);
    return handle;
}

Done Comm::deregister(const void *handle) {
    QCCL_TRY(registrations_.remove(handle));
    pairs_->deregister(handle);
    return {};
}

void Comm::deregister_all() {
    registrations_.clear();
    pairs_->deregister_all();
}

Counts Comm::counts() const {
    Counts sum = engine_.counts();
    sum += pairs_->counts();
    return sum;
}

bool Comm::is_busy() const {
    return !sequencer_.is_idle() || (queue_ && !queue_->is_idle()) || pairs_->is_busy();
}

bool Comm::is_running_here() { return sequencer_.is_running_here() || pairs_->is_running_here(); }

void Comm::close() {
    sequencer_.close();
    pairs_->close();
}

Done Comm::finalize() {
    QCCL_TRY(const CallSequencer::Hold hold, hold_calls());
    QCCL_TRY(confirm_calls());
    const Done paired = pairs_->finalize();
    if (!paired) return abandon(Collective::send, paired.error());
    return {};
}

Done Comm::conclude() {
    const auto hold = hold_calls(); // an error if another thread has closed the communicator
    const auto failure = parts_.transport->failure();
    // After a failure nothing is compared, unless it is a mismatch that the caller has not been
    // told.
    const bool is_over = failure && (failure->code != Code::mismatch || errors_.is_told());
    const Done confirmed = is_over ? Done() : hold ? confirm_calls() : Done(hold.error());
    sequencer_.close();
    const bool has_failed = failure.has_value() || !confirmed;
    if (has_failed) pairs_->give_up();
    const Done paired = pairs_->conclude();
    // A revocation at this point counts as one that came earlier.
    if (!confirmed && confirmed.error().code == Code::revoked) return {};
    return has_failed ? confirmed : paired;
}

} // namespace qccl
