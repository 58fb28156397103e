// A communicator: one rank's engine, and the order, the settings and the errors of its calls. The C
// functions use it after they have checked their arguments. Comments in the class Comm say from
// which threads its functions may be called; run, gather, hold_calls, finalize and conclude wait
// for other ranks or for streams. comm.cpp implements it, but for calls of GPUs (gpu_calls.cpp),
// calls with shared scales (shared_scales_call.cpp), errors (comm_errors.cpp) and notices in the
// log (comm_notices.cpp).
#pragma once

#include "base/log.hpp"
#include "base/result.hpp"
#include "base/settings.hpp"
#include "comm/call_order.hpp"
#include "comm/call_programs.hpp"
#include "comm/call_reports.hpp"
#include "comm/comm_config.hpp"
#include "comm/comm_errors.hpp"
#include "comm/comm_memory.hpp"
#include "comm/implementations.hpp"
#include "comm/streams.hpp"
#include "device/device.hpp"
#include "device/gpu_shared_vector.hpp"
#include "engine/run/call_in_flight.hpp"
#include "engine/run/engine.hpp"
#include "engine/run/feedback_state.hpp"
#include "fault/survivor_exchange.hpp"
#include "transport/transport.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qccl {

class PairChannels;

// Where the ranks are: threads of one process, or processes on one host or on several.
enum class Reach : uint8_t { threads, processes };

struct ChildOptions {
    const char *how;               // the word that traces show: split, shrink or pair
    uint64_t most_arena_bytes = 0; // limits the child's arena; 0: no limit
    MessageOwner *owner = nullptr; // as of create_comm
};

class Comm;

// Creates a communicator of the group's members, numbered in the group's order; this rank is one of
// them. Requires the parent's entry guard, and blocks until the members have joined.
// `env_settings`: as read_env_settings() gives them. Creation, which is above this room, implements
// it, and hands it to each communicator for its channels.
using CreateChild = Result<std::shared_ptr<Comm>> (*)(Comm &parent, MemberGroup &group,
                                                      const CommConfig &comm_config,
                                                      EnvSettings env_settings,
                                                      const ChildOptions &options);

// What creation puts together for a communicator.
struct CommParts {
    CommConfig comm_config;
    Reach reach = Reach::processes;
    std::shared_ptr<const Log> log;
    std::unique_ptr<Transport> transport;
    Device device;
    std::unique_ptr<GpuStaging> gpu_staging;
    Chunking cut;
    PlannerInputs inputs; // equal on all ranks
    // Where the ranks are; null: all are in one place.
    std::shared_ptr<const RankTopology> places = nullptr;
    std::shared_ptr<const Measured> measured = nullptr; // equal on all ranks; null: none
    std::shared_ptr<const JobLinks> links = nullptr;    // equal on all ranks; null: one rank
    Implementations implementations{};                  // for the communicators made from this one
    CreateChild create_child = nullptr;                 // for channels; null: there are none
    CallPolicy policy;                                  // for calls whose config names nothing
    std::chrono::nanoseconds timeout{};                 // 0: never
    uint64_t fusion_bytes = 0;                          // of calls that may run as one; 0: none may
    std::vector<InjectRule> inject;                     // those of this rank
    std::unique_ptr<CommTrace> trace;                   // null: none
    std::shared_ptr<SiblingComms> siblings;             // of qcclCommInitAll, else null
    bool is_channel = false;                            // as FailureDetector has it
    // True: the ranks capture the same calls. False: a rank that cannot capture makes the call
    // without a graph.
    bool captures_alike = false;
};

// A call whose arguments have been checked: the part that its program does not hold.
struct Request {
    const void *send = nullptr;
    void *recv = nullptr;
    std::chrono::nanoseconds timeout{};
    uint64_t noise_seed = 0;
    uint64_t tag = 0;
    uint64_t queued = 0;                          // as Call::queued
    std::shared_ptr<const CustomOp> op = nullptr; // as Call::op
    StateRef state = nullptr;                     // of a program with feedback
    // Of several calls of the caller that run as one: how many, and as in Call.
    uint64_t calls = 1;
    std::span<const CallPart> parts{};
    uint32_t counts_hash = 0;
    // Of a layer: how many calls of the caller come before it that run after it. Fewer than none
    // (the number wraps): how many run before it that come after it.
    uint64_t calls_before = 0;

    // Returns the call of this number with everything that the request itself says of it.
    Call call(uint64_t number) const {
        return {.send = send,
                .recv = recv,
                .parts = parts,
                .counts_hash = counts_hash,
                .number = number,
                .noise_seed = noise_seed,
                .tag = tag,
                .timeout = timeout,
                .op = op.get()};
    }
};

// Where a call runs: on the calling thread (neither is set), or in a stream of the host or of the
// GPU.
struct CallStream {
    StreamRef host{};
    // Called on the stream's thread with the outcome of a call; the stream keeps what it returns.
    // Empty: the stream keeps the outcome.
    std::function<Done(const Done &outcome)> settle{};
    std::shared_ptr<std::atomic<bool>> told{}; // with `settle`: as WorkItem::told
    std::optional<GpuStream> gpu;
};

// A call that the calling thread moves on between other work.
struct BegunCall {
    ProgramRef program;
    std::shared_ptr<const CustomOp> op;
    CallRecord record;
    std::unique_ptr<CallInFlight> flight;

    bool has_ended() const { return flight->has_ended(); }
};
using BegunCallRef = std::shared_ptr<BegunCall>;

// Copies between the caller's buffers and those that a call uses.
class CallCopies {
public:
    virtual ~CallCopies() = default;
    virtual void copy_in() const = 0;
    virtual void copy_out() const = 0;
};

class Comm final : public std::enable_shared_from_this<Comm> {
public:
    explicit Comm(CommParts parts);
    // Called once, before the first collective, if the device is a GPU.
    Done start_queue(const Settings &settings);
    // Called before the first collective. Null: no rule of the environment has conditions.
    void watch_rules(std::shared_ptr<RuleUse> use) { rule_use_ = std::move(use); }
    // Called before the first collective. Null: calls are not audited.
    void audit_calls(std::unique_ptr<CallAudit> audit) { audit_ = std::move(audit); }
    const CallAudit *audit() const { return audit_.get(); }
    ~Comm();
    Comm(const Comm &) = delete;
    Comm &operator=(const Comm &) = delete;

    uint32_t rank() const { return team_.rank; }
    uint32_t size() const { return team_.size; }
    const CommParts &parts() const { return parts_; }
    // Record what a function returned to the caller. Any thread, any time.
    void note(const Error &error) { errors_.note(error, parts_.transport->failure().has_value()); }
    void note_success() { errors_.note_success(); }

    // The functions from here to the next such comment require the entry guard.
    //
    // Runs the call, or enqueues it on `stream`. An error before the call has a number leaves the
    // communicator usable; any other error has failed it.
    Done run(const ProgramRef &program, const Request &request, const CallStream &stream);
    // The same for a call that the calling thread makes.
    Done run(const ProgramRef &program, const Request &request);
    // The same for a Request that says no more than this.
    Done run_plain(const ProgramRef &program, const void *send, void *recv, uint64_t noise_seed);
    // The same for a call on copies in memory of the host. They are made in the call's turn: the
    // calls before it have ended then, and no later one has begun.
    Done run_on_copies(const ProgramRef &program, const Request &request, const CallStream &stream,
                       const std::shared_ptr<const CallCopies> &copies);
    // Whether a call could run on the calling thread now, with no call before it on a stream.
    bool is_free_on_host() const { return !queue_ && sequencer_.is_idle(); }
    // Whether, besides, a call of the program would wait for no other rank.
    bool can_run_at_once(const Program &program) const {
        return is_free_on_host() && engine_.can_run_at_once(program);
    }
    // Whether `begin` may make a call of the program and would wait for no other rank.
    bool can_begin(const Program &program) const;
    // Makes the call as far as it goes without a wait. The caller moves it on until it has ended,
    // and makes no other call here meanwhile. An error of these functions has failed the
    // communicator, and the call is over.
    Result<BegunCallRef> begin(const ProgramRef &program, const Request &request);
    Result<bool> move_on(BegunCall &begun); // whether it has moved
    Done finish(BegunCall &begun);          // waits until the call has ended
    Done finish_on(const BegunCallRef &begun, const CallStream &stream);
    Result<ProgramRef> program(const ProgramKey &key) { return program_cache_.get(key); }
    // Runs an all-gather of the library's own: every rank gives `bytes` bytes and gets those of all
    // ranks. Traces and errors show it as `call`. Returns the call's number, which is equal on all
    // ranks.
    Result<uint64_t> gather(Collective call, const void *mine, void *all, size_t bytes,
                            std::chrono::nanoseconds timeout);
    // The number of the last call that has begun on this rank.
    uint64_t last_call() const { return sequencer_.issued(); }
    CallCache &call_cache() { return call_cache_; }
    // The channels of sends and receives.
    PairChannels &pairs();
    // Let peers read the block in place, here and in messages, and end that. While no call is under
    // way.
    void *register_block(SharedBlock &block);
    Done deregister(const void *handle);
    void deregister_all();
    Registrations &registrations() { return registrations_; }
    ScratchMemory &scratch_memory() { return scratch_memory_; }
    // Ranks that earlier shrinks of this communicator excluded by name, ascending. Later shrinks
    // cannot include them, because the other ranks have reached agreements without them.
    const std::vector<uint32_t> &left_out() const { return left_out_; }
    void leave_out(std::vector<uint32_t> ranks) { left_out_ = std::move(ranks); }
    // Fails the communicator for a valid call that this rank cannot make, for example for lack of
    // memory, because the other ranks would wait for it. Returns the error that failed the
    // communicator.
    Error abandon(Collective collective, const Error &error);
    // Waits until no enqueued call is left. While the hold lives, no graph makes a call here, and
    // this thread may use the transport between calls.
    Result<CallSequencer::Hold> hold_calls();
    // Waits as hold_calls does, then waits until the other ranks have begun the calls that this
    // rank has made, and compares those calls. Returns the error that failed the communicator, if
    // one has.
    Done finalize();
    // Finalizes the communicator before it ends, and closes it. A failed communicator gives no
    // error here, unless the failure is a mismatch that the caller has not been told.
    Done conclude();
    // Logs once what it means for the caller that a codec was passed over.
    void tell(const CodecChoice &choice);
    // Logs once which codec the first lossy call uses, and that no codec keeps the budget of
    // `asked`.
    void tell(const Codec &asked, const Program &program);
    // Logs once for each shape of call what the planner has chosen, and why.
    void tell_choice(const ProgramKey &key, const Program &program, const CallNames &names);
    // Notes that `rule` of the environment has decided a call; null: no rule has.
    void note(const Rule *rule) {
        if (rule_use_) rule_use_->note(rule);
    }
    // Called once, before the communicator ends. Warns of rules that have decided no call of the
    // process, if no other communicator can use them any more.
    void tell_unused_rules();

    // Any thread may call the functions from here on, at any time.
    //
    // Fails the communicator on every rank.
    void fail(const Error &error) { parts_.transport->fail(error); }
    std::optional<RecordedError> failure() const;
    bool has_failed() const { return errors_.has_failed() || parts_.transport->has_failed(); }
    // Whether this rank's caller has been told of the failure.
    bool is_failure_known() const { return errors_.is_told(); }
    void note_told() { errors_.note_told(); }
    // Set when somebody has been told of the failure.
    const std::shared_ptr<std::atomic<bool>> &told_flag() const { return errors_.told_flag(); }
    std::optional<RecordedError> last_error() const {
        return errors_.last(parts_.transport->failure());
    }
    bool is_busy() const;
    Counts counts() const; // messages included
    const CallGuards &guards() const { return guards_; }
    // No turn begins afterwards. Waits for the current turn, which must not be this thread's.
    void close();
    bool is_closed() { return sequencer_.is_closed(); }
    // Whether this thread is in a call or a message.
    bool is_running_here();

private:
    Done check_can_call();
    static Error refuse_inside();
    Done execute(const Program &program, const Call &call);
    Done run_program(const Program &program, const Call &call);
    // Runs the program and logs the call. Called if is_watched_ is set.
    Done run_watched(const Program &program, const Call &call);
    Done run_audited(const Program &program, const Call &call);
    Done run_guarded(const Program &program, const Call &call);
    Done run_on_gpu(const ProgramRef &program, const Request &request,
                    const std::optional<GpuStream> &stream);
    Result<uint64_t> gather_on_gpu(const Program &program, const void *mine, void *all,
                                   size_t bytes, std::chrono::nanoseconds timeout);
    void check_priority(GpuStream stream);
    Error ended() const; // the error of a call that comes too late
    // Returns the call's number. `use`: of the call's state; null: it has none.
    Result<uint64_t> take_next_turn(const Program &program, const Request &request,
                                    uint64_t captured, StateUse *use);
    // Runs a call with shared scales, which is two calls here: `call`, which has its turn, and the
    // next one, in the same turn. Sets the call's number to that of the last one.
    Done execute_with_shared_scales(const Program &program, Call &call);
    void run_arrived(const Program &program, const Request &request, const Done &arrived,
                     uint64_t captured);
    Done finish_in_turn(BegunCall &begun);
    Call next_call(const Request &request);
    // A call with a state or with shared scales.
    Done run_with_state_or_scales(const ProgramRef &program, const Request &request,
                                  const CallStream &stream);
    Done run_with_state(const ProgramRef &program, const Request &request,
                        const CallStream &stream);
    Done run_with_shared_scales(const ProgramRef &program, const Request &request,
                                const CallStream &stream);
    Done execute_on_copies(const Program &program, const Call &call, const CallCopies &copies);
    // `run` makes the call of the record when its turn comes.
    template <class Run> Done enqueue(const CallRecord &record, Run run, const CallStream &stream);
    template <class Run> Done take_turn(uint64_t call, bool was_enqueued, Run run);
    // For a call of the calling thread. `is_first`: no call was enqueued before it.
    template <class Run> Done run_now(const Call &call, bool is_first, Run run);
    void inject(uint64_t call);
    uint64_t queued_now() const { return parts_.trace ? ticks_now() : 0; }
    bool speaks() const;
    bool is_new(const std::string &text); // false from the second time on
    Done confirm_calls();                 // requires a hold
    // Logs this rank's codec whole if the mismatch shows it shortened.
    void log_long_codec(const Error &error, const Program &program) const;
    // Fails the communicator for a call that could not be made or finished. Returns the error that
    // failed the communicator.
    Error failed(const Error &error, const CallRecord &call);

    const CommParts parts_;
    const Team team_;
    CallSequencer sequencer_;
    ProgramCache program_cache_;
    CallCache call_cache_;
    Engine engine_;
    CallGuards guards_;
    std::unique_ptr<CallAudit> audit_;
    std::vector<uint32_t> left_out_;
    std::shared_ptr<RuleUse> rule_use_;
    Registrations registrations_;
    ScratchMemory scratch_memory_;
    std::unique_ptr<GpuSharedVector> gpu_shared_vector_; // null unless the device is a GPU
    uint64_t fused_away_ = 0;                            // calls that have run as parts of others
    CommErrors errors_;
    const bool is_watched_; // every call is logged or traced
    bool has_told_lossy_ = false;
    bool has_told_priority_ = false;
    std::vector<std::string> told_; // sentences about codecs
    ChoiceReport choices_;
    std::unique_ptr<GpuStreamQueue> queue_; // null unless the device is a GPU
    const std::unique_ptr<PairChannels> pairs_;
};

} // namespace qccl
