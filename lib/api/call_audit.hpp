// QCCL_AUDIT: samples of a communicator's calls are encoded beside them, and what that shows is
// written when the last communicator ends that was made from the same one. Nothing of it leaves the
// rank, and nothing depends on it: what goes wrong here ends the audit and no call.
#pragma once

#include "api/comm_trace.hpp"
#include "base/log.hpp"
#include "engine/call_sampler.hpp"
#include "plan/audit.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace qccl {

// The codecs that a setting names: without what does not say how values are encoded (min, guard).
Result<std::vector<Codec>> parse_audited_codecs(const std::string &text);
// Those settings; invalid_argument where they cannot be.
Done check_audit(const Settings &settings);

// What a rank's communicators have found. Any thread.
class AuditCollector {
public:
    AuditCollector(AuditHead head, std::string path, std::shared_ptr<const Log> log)
        : head_(std::move(head)), path_(std::move(path)), log_(std::move(log)) {}
    // Rank 0 of the first communicator prints a table to the log; every rank writes its file, if
    // there is a path for it.
    ~AuditCollector();
    AuditCollector(const AuditCollector &) = delete;

    const std::vector<Codec> &codecs() const { return head_.codecs; }
    void add(std::vector<AuditRow> rows, uint64_t other_calls);

private:
    using Key = std::pair<std::string, AuditedShape>;
    void write() const;

    std::mutex mutex_;
    AuditHead head_;
    const std::string path_;
    const std::shared_ptr<const Log> log_;
    std::map<Key, AuditRow> rows_;
};

struct CommParts;

// Of one communicator; the thread that makes its calls.
class CallAudit {
public:
    // Null where nothing is audited. `parts` outlive the audit.
    static std::unique_ptr<CallAudit> create(const Settings &settings, const TraceOrigin &origin,
                                             const CommParts &parts);
    // Hands on what was found.
    ~CallAudit();
    CallAudit(const CallAudit &) = delete;

    // Around each call; `after` where it has succeeded.
    void before(const Program &program, const Call &call);
    void after(const Program &program, const Call &call);

    const std::shared_ptr<AuditCollector> &collector() const { return collector_; }

private:
    // Of more shapes and tags calls are counted and not looked at.
    static constexpr size_t most_entries = 4096;

    struct Watched {
        AuditEntry entry;
        SampleTurns turns;
    };
    // Finds the entry of a call that is made again without comparing shapes.
    struct Known {
        uint64_t program = 0, tag = 0;
        bool is_set = false;
        Watched *watched = nullptr; // null: not audited
    };
    CallAudit(std::shared_ptr<AuditCollector> collector, std::string name, const CommParts &parts);
    Watched *find(const Program &program, uint64_t tag);
    Watched *add(const Program &program, uint64_t tag);
    Done read_input(const Program &program, const Call &call);
    Done read_result(const Program &program, const Call &call);
    std::vector<AuditRow> rows() const;
    SampleSize size_of(const Work &work) const;

    const std::shared_ptr<AuditCollector> collector_;
    const std::string name_; // of the communicator, for people
    const CommParts &parts_;
    const uint64_t divisor_, unit_;
    CallSampler sampler_;
    std::map<AuditedShape, Watched> watched_;
    std::array<Known, 64> known_;
    Watched *sampled_ = nullptr; // of the call that is under way
    std::vector<SampledLoss> input_loss_, sum_loss_;
    uint64_t other_calls_ = 0;
    bool is_over_ = false; // the GPU cannot be read
};

} // namespace qccl
