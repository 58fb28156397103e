// A communicator: one rank's engine, and the order, the settings and the errors of its calls. Knows
// nothing of how ranks found each other, and takes only calls whose arguments have been checked.
#pragma once

#include "api/call_audit.hpp"
#include "api/call_guards.hpp"
#include "api/comm_errors.hpp"
#include "api/comm_trace.hpp"
#include "api/family.hpp"
#include "api/device_share.hpp"
#include "api/gpu_queue.hpp"
#include "api/memo.hpp"
#include "api/programs.hpp"
#include "api/registrations.hpp"
#include "api/rule_use.hpp"
#include "api/stream.hpp"
#include "api/turns.hpp"
#include "api/wishes.hpp"
#include "base/inject.hpp"
#include "base/log.hpp"
#include "base/settings.hpp"
#include "device/device.hpp"
#include "engine/engine.hpp"
#include "transport/transport.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace qccl {

// Where the ranks are: threads of one process, or processes of one host or more.
enum class Reach : uint8_t { process, host };

struct JobTopology;

// What creation has put together.
struct CommParts {
    CommWishes wishes;
    Reach reach = Reach::host;
    std::shared_ptr<const Log> log;
    std::unique_ptr<Transport> transport;
    Device device;
    std::unique_ptr<DeviceShare> device_share;
    Cut cut;
    Tables tables; // of the planner, equal on all ranks
    // Of the ranks; none: all are in one place.
    std::shared_ptr<const Places> places = nullptr;
    std::shared_ptr<const Measured> measured = nullptr;    // equal on all ranks; null: nothing
    std::shared_ptr<const JobTopology> topology = nullptr; // equal on all ranks; none: of one rank
    CallPolicy policy;                  // what calls get that name nothing themselves
    std::chrono::nanoseconds timeout{}; // 0: never
    std::vector<InjectRule> inject;     // those of this rank
    std::unique_ptr<CommTrace> trace;   // null: none
    std::shared_ptr<Family> family;     // of qcclCommInitAll, else null
    // What one rank captures all capture; else a rank that cannot makes the call by itself.
    bool captures_alike = false;
};

// A call whose arguments have been checked, beside what its program says.
struct Request {
    const void *send = nullptr;
    void *recv = nullptr;
    std::chrono::nanoseconds timeout{};
    uint64_t noise_seed = 0;
    uint64_t tag = 0;
    uint64_t queued = 0; // as Call has it
};

// Where a call is done: now (neither), or in the order of a stream of the host or of the GPU.
struct CallStream {
    StreamRef host{};
    std::optional<GpuStream> gpu;
};

class Comm final : public std::enable_shared_from_this<Comm> {
public:
    explicit Comm(CommParts parts);
    // Once, before the first call, where the device is a GPU.
    Done start_queue(const Settings &settings);
    // Before the first call; null where the environment has no conditions.
    void watch_rules(std::shared_ptr<RuleUse> use) { rule_use_ = std::move(use); }
    // Before the first call; null: they are not.
    void audit_calls(std::unique_ptr<CallAudit> audit) { audit_ = std::move(audit); }
    const CallAudit *audit() const { return audit_.get(); }
    ~Comm();
    Comm(const Comm &) = delete;
    Comm &operator=(const Comm &) = delete;

    uint32_t rank() const { return team_.rank; }
    uint32_t size() const { return team_.size; }
    const CommParts &parts() const { return parts_; }
    // What the caller got; any thread, any time.
    void note(const Error &error) { errors_.note(error, parts_.transport->failure().has_value()); }
    void note_success() { errors_.note_success(); }

    // The rest, up to the next mark, under the gate.
    //
    // Runs the call, or gives it to `stream`. An error before the call has a number leaves the
    // communicator usable; any other has failed it.
    Done run(const ProgramRef &program, const Request &request, const CallStream &stream);
    Result<ProgramRef> program(const ProgramKey &key) { return programs_.get(key); }
    // A call of the library's own, in which every rank gives `bytes` bytes and gets all ranks', and
    // which shows as `call`. Its number, which is equal on all ranks.
    Result<uint64_t> gather(Collective call, const void *mine, void *all, size_t bytes,
                            std::chrono::nanoseconds timeout);
    Memo &memo() { return memo_; }
    Registrations &registrations() { return registrations_; }
    // Ranks that a shrink of this communicator has left out by name, ascending. The others have
    // agreed on more than these have, so that no later shrink can include them.
    const std::vector<uint32_t> &left_out() const { return left_out_; }
    void leave_out(std::vector<uint32_t> ranks) { left_out_ = std::move(ranks); }
    // Of a call that was right and cannot be made here, where there is no memory for it: fails the
    // communicator, because the others would wait for it.
    Error abandon(Collective collective, const Error &error);
    // Waits until nothing that was enqueued is left. As long as the hold lives no graph makes a
    // call here, and this thread may use the transport between calls.
    Result<Turns::Hold> hold_calls();
    // Does so, and then waits for the other ranks to come to the calls that this one has made, and
    // compares them. The error that failed the communicator, if one has.
    Done finalize();
    // Does so before the communicator ends, and closes it. A failure is no error here, unless it is
    // a mismatch that the caller has not been told.
    Done conclude();
    // Tells what a codec that was passed over means for the caller; and which codec the first lossy
    // call has, and that none keeps the budget of `asked`.
    void tell(const CodecChoice &choice);
    void tell(const Codec &asked, const Program &program);
    // Notes that the rule of the environment, if any, has decided a call.
    void note(const Rule *rule) {
        if (rule_use_) rule_use_->note(rule);
    }
    // Once, before the communicator ends: warns of rules that have decided no call of the process,
    // if no other communicator can use them any more.
    void tell_unused_rules();

    // Any thread, any time.
    //
    // Fails the communicator on every rank.
    void fail(const Error &error) { parts_.transport->fail(error); }
    std::optional<RecordedError> failure() const;
    // The caller of this rank has been told of the failure.
    bool is_failure_known() const { return errors_.is_told(); }
    void note_told() { errors_.note_told(); }
    std::optional<RecordedError> last_error() const {
        return errors_.last(parts_.transport->failure());
    }
    bool is_busy() const { return !turns_.is_idle() || (queue_ && !queue_->is_idle()); }
    Counts counts() const { return engine_.counts(); }
    const CallGuards &guards() const { return guards_; }
    // No turn begins afterwards; waits for the one that is running, which is not this thread's.
    void close() { turns_.close(); }
    bool is_closed() { return turns_.is_closed(); }
    bool is_running_here() { return turns_.is_running_here(); }

private:
    Done execute(const Program &program, const Call &call);
    Done run_audited(const Program &program, const Call &call);
    Done run_guarded(const Program &program, const Call &call);
    Done run_on_gpu(const ProgramRef &program, const Request &request,
                    const std::optional<GpuStream> &stream);
    Result<uint64_t> gather_on_gpu(const Program &program, const void *mine, void *all,
                                   size_t bytes, std::chrono::nanoseconds timeout);
    void check_priority(GpuStream stream);
    Error ended() const; // before the call
    // Its number.
    Result<uint64_t> take_next_turn(const Program &program, const Request &request,
                                    uint64_t captured);
    void run_arrived(const Program &program, const Request &request, const Done &arrived,
                     uint64_t captured);
    Done enqueue(const ProgramRef &program, const Call &call, Stream &stream);
    Done take_turn(const Program &program, const Call &call, bool was_enqueued);
    void inject(uint64_t call);
    // Before each call where `is_watched_`.
    void tell(const Program &program, const Call &call) const;
    uint64_t queued_now() const { return parts_.trace ? ticks_now() : 0; }
    bool speaks() const;
    bool is_new(const std::string &text); // and from now on told
    Done confirm_calls();                 // under a hold
    // Fails the communicator for a call that could not be made or finished; gives what stands.
    Error failed(const Error &error, const CallRecord &call);

    const CommParts parts_;
    const Team team_;
    Turns turns_;
    Programs programs_;
    Memo memo_;
    Engine engine_;
    CallGuards guards_;
    std::unique_ptr<CallAudit> audit_;
    std::vector<uint32_t> left_out_;
    std::shared_ptr<RuleUse> rule_use_;
    Registrations registrations_;
    CommErrors errors_;
    const bool is_watched_; // every call is logged or traced
    bool has_told_lossy_ = false;
    bool has_told_priority_ = false;
    std::vector<std::string> told_;   // of codecs that were passed over
    std::unique_ptr<GpuQueue> queue_; // on a GPU
};

} // namespace qccl
