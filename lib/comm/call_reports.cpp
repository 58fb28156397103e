// Implements a communicator's part in its rank's trace and call log; words its planner's choices
// for the log; implements QCCL_AUDIT, which parses its settings, samples calls and writes what the
// samples show; and the process-wide record of rules that have decided calls.
#include "comm/call_reports.hpp"

#include "base/exception_boundary.hpp"
#include "base/system.hpp"
#include "base/text.hpp"
#include "comm/comm.hpp"
#include "comm/handle_table.hpp"
#include "plan/explain.hpp"
#include "trace/trace_service.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include <pthread.h>
#include <qccl/version.h>
#include <unistd.h>

namespace qccl {

// ---- Trace

std::string library_version() {
    return std::to_string(QCCL_VERSION_MAJOR) + "." + std::to_string(QCCL_VERSION_MINOR) + "." +
           std::to_string(QCCL_VERSION_PATCH);
}

Result<TracePatterns> trace_patterns(const Settings &settings) {
    TracePatterns patterns{.trace = settings.trace, .calls = settings.record_calls};
    QCCL_TRY(patterns.check());
    return patterns;
}

std::unique_ptr<CommTrace> CommTrace::create(const Settings &settings, const TraceOrigin &origin,
                                             LoggedComm comm, const Log &log) {
    std::shared_ptr<TraceService> service = origin.service;
    if (!origin.is_child) {
        const TracePatterns patterns{.trace = settings.trace, .calls = settings.record_calls};
        if (patterns.are_empty()) return nullptr;
        auto made = TraceService::create(patterns, comm.rank, comm.ranks(), library_version());
        if (!made) log.warn("calls are not traced: %s", made.error().text);
        if (made) service = std::move(*made);
    }
    if (!service) return nullptr;
    comm.origin = origin.how;
    comm.parent = origin.parent;
    return std::unique_ptr<CommTrace>(new CommTrace(std::move(service), std::move(comm)));
}

void CommTrace::warn(const Log &log) const {
    for (const TraceNotice &notice : service_->take_notices())
        notice.is_warning ? log.warn("%s", notice.text.c_str())
                          : log.info("%s", notice.text.c_str());
}

void CommTrace::end(const Log &log) const {
    service_->detach(tracer_);
    tell(log);
}

// ---- Choices of the planner

namespace {

// Returns the reasons as parts of one line. That a codec was passed over has a line of its own,
// which says what follows from it.
std::string joined(std::string_view reasons) {
    std::string text;
    for (std::string_view reason : words_of(reasons, "\n")) {
        if (reason.ends_with(CodecChoice::consequence))
            reason.remove_suffix(CodecChoice::consequence.size());
        text.append(text.empty() ? "" : "; ").append(reason);
    }
    return text;
}

Result<Explanation> explain_choice(const CommParts &parts, const ProgramKey &key,
                                   const CallNames &names) {
    PlannerInputs inputs = parts.inputs;
    inputs.limits = limits_of(chunking_with(key.pieces, parts.cut));
    const Problem problem{.collective = key.collective,
                          .count = key.count,
                          .ranks = parts.transport->size(),
                          .root = key.root,
                          .type = key.type,
                          .codec = key.codec,
                          .places = parts.places.get()};
    QCCL_TRY(Explanation explanation, explain(problem, inputs, key.forced()));
    if (const auto form = key.v_form()) explanation.set_v_form(*form);
    QCCL_TRY(const CallChoice choice,
             parts.policy.choose(
                 names.codec ? &key.codec : nullptr, names.algorithm ? key.algorithm : Algorithm(),
                 parts.policy.traits(key.collective, key.type, key.op, key.count), key.v_form()));
    explanation.rules = choice.reasons;
    return explanation;
}

// Returns how the values travel: "4 segments in 2 lanes".
std::string cut_of(const Program &program) {
    if (program.fast_path) return "eager slots";
    const Geometry &cut = program.geometry;
    return std::to_string(cut.instances) + (cut.instances == 1 ? " segment in " : " segments in ") +
           std::to_string(cut.lanes) + (cut.lanes == 1 ? " lane" : " lanes");
}

std::string why(const Explanation &explanation) {
    const std::string reason = explanation.reason();
    std::string text = reason.substr(reason.find(": ") + 2); // without the algorithm's name
    std::string codec = explanation.codec_reason();
    codec.resize(std::min(codec.find(';'), codec.size())); // advice follows
    for (const std::string &more : {codec, joined(explanation.rules)})
        if (!more.empty()) text.append("; ").append(more);
    return text;
}

} // namespace

void ChoiceReport::tell(const CommParts &parts, const ProgramKey &key, const Program &program,
                        const CallNames &names) {
    const uint64_t shape = program.shape.fingerprint() ^ program.asked_hash * 0x9E3779B97F4A7C15;
    if (!told_.insert(shape).second) return;
    const auto explanation = explain_choice(parts, key, names);
    if (!explanation) return; // the call runs all the same
    const CollectiveRow &row = row_of(key.called());
    std::string call = row.name;
    if (row.has_values && !key.is_pairwise())
        call.append(", count ").append(std::to_string(program.work.count));
    if (row.has_values) call.append(", type ").append(name(key.type));
    if (row.reduces) call.append(", op ").append(name(key.op));
    if (row.has_root) call.append(", root ").append(std::to_string(key.root));
    if (row.has_values)
        call.append(", ").append(print_bytes(program.raw_bytes)).append(", codec ") +=
            spec(key.codec);
    parts.log->info(
        "%splan for %s: %s, %s, predicted %s; %s", log_prefix(parts.comm_config).c_str(),
        call.c_str(), program.work.algorithm.c_str(), cut_of(program).c_str(),
        print_time(explanation->chosen().cost.time_ns).c_str(), why(*explanation).c_str());
}

// ---- Audit

namespace {

constexpr const char *codecs_setting = "QCCL_AUDIT", *file_setting = "QCCL_AUDIT_FILE";
constexpr size_t most_codecs = 8;
// One value of a call is sampled out of this many times (number of codecs + 1). Each sample is read
// once and encoded by each codec, so the audit takes a hundredth of the time that a lossless call
// in shared memory takes.
constexpr uint64_t divisor_of_codec = 1536;

uint64_t unit_of(std::span<const Codec> codecs) {
    uint64_t unit = 1;
    for (const Codec &codec : codecs) {
        const uint64_t both = std::lcm(unit, codec.unit_values());
        // If a codec's blocks are larger, each run counts as a block by itself.
        if (both <= largest_guarded_bucket) unit = both;
    }
    return unit;
}

AuditedShape shape_of(const Work &work, uint64_t tag) {
    return {.tag = tag,
            .collective = work.collective,
            .type = work.type,
            .op = reduces(work.collective) ? work.op : RedOp::sum,
            .root = work.team.root,
            .count = work.count};
}

} // namespace

Result<std::vector<Codec>> parse_audited_codecs(const std::string &text) {
    auto codecs = parse_codec_list(text);
    if (!codecs) return invalid_argument("%s: %.300s", codecs_setting, codecs.error().text);
    if (codecs->size() > most_codecs)
        return invalid_argument("%s: %zu codecs; at most %zu are possible", codecs_setting,
                                codecs->size(), most_codecs);
    for (Codec &codec : *codecs) {
        if (codec.is_auto() || codec.is_lossless())
            return invalid_argument(
                "%s: %s loses nothing of its own; expected codecs such as int8,int4",
                codecs_setting, spec(codec).c_str());
        if (codec.shares_scales())
            return invalid_argument("%s: what %s loses depends on scales on which ranks agree in a "
                                    "call; expected codecs such as int8,int4",
                                    codecs_setting, spec(codec).c_str());
        codec = codec.without_use();
    }
    return codecs;
}

Done check_audit(const Settings &settings) {
    if (!settings.audit.empty()) QCCL_TRY(outcome(parse_audited_codecs(settings.audit)));
    return outcome(rank_file_path(file_setting, settings.audit_file, 0, 1));
}

void AuditCollector::add(std::vector<AuditRow> rows, uint64_t other_calls) {
    const std::lock_guard guard(mutex_);
    head_.other_calls += other_calls;
    for (AuditRow &row : rows) {
        const Key key{row.comm, row.shape};
        const auto [found, is_new] = rows_.try_emplace(key, row);
        if (!is_new) merge(found->second, row);
    }
}

void AuditCollector::write() const {
    std::vector<AuditRow> rows;
    for (const auto &[key, row] : rows_) rows.push_back(row);
    if (head_.rank == 0) log_->print(audit_table(head_, rows));
    if (path_.empty()) return;
    auto file = GrowingFile::create(path_, "");
    const Done done = file ? file->append(audit_json(head_, rows)) : Done(file.error());
    if (!done)
        log_->warn("%s: %.200s: %.200s", file_setting, path_.c_str(), done.error().text);
    else
        log_->info("audit in %s", file->path().c_str());
}

AuditCollector::~AuditCollector() {
    (void)exception_boundary([this]() -> Done {
        write();
        return {};
    });
}

static std::shared_ptr<AuditCollector> create_collector(const Settings &settings,
                                                        const CommParts &parts) {
    const uint32_t rank = parts.transport->rank(), ranks = parts.transport->size();
    auto codecs = parse_audited_codecs(settings.audit);
    if (!codecs) return nullptr; // creation has refused such a setting
    std::string path;
    if (!settings.audit_file.empty())
        if (auto named = rank_file_path(file_setting, settings.audit_file, rank, ranks))
            path = *named;
    return std::make_shared<AuditCollector>(AuditHead{.rank = rank,
                                                      .ranks = ranks,
                                                      .pid = getpid(),
                                                      .host = host_name(),
                                                      .library = library_version(),
                                                      .codecs = std::move(*codecs)},
                                            std::move(path), parts.log);
}

std::unique_ptr<CallAudit> CallAudit::create(const Settings &settings, const TraceOrigin &origin,
                                             const CommParts &parts) {
    std::shared_ptr<AuditCollector> collector = origin.audit;
    if (!origin.is_child && !settings.audit.empty()) collector = create_collector(settings, parts);
    if (!collector) return nullptr;
    const std::string &name = parts.comm_config.name;
    const uint32_t ranks = parts.transport->size();
    return std::unique_ptr<CallAudit>(new CallAudit(std::move(collector),
                                                    (name.empty() ? origin.how : name) + ", " +
                                                        std::to_string(ranks) +
                                                        (ranks == 1 ? " rank" : " ranks"),
                                                    parts));
}

CallAudit::CallAudit(std::shared_ptr<AuditCollector> collector, std::string name,
                     const CommParts &parts)
    : collector_(std::move(collector)), name_(std::move(name)), parts_(parts),
      divisor_(divisor_of_codec * (1 + collector_->codecs().size())),
      unit_(unit_of(collector_->codecs())), sampler_(parts.device) {}

CallAudit::~CallAudit() {
    (void)exception_boundary([this]() -> Done {
        collector_->add(rows(), other_calls_);
        return {};
    });
}

std::vector<AuditRow> CallAudit::rows() const {
    const Problem usual{.collective = Collective::all_reduce,
                        .count = 0,
                        .ranks = parts_.transport->size(),
                        .root = 0,
                        .type = DataType::float32,
                        .codec = {},
                        .places = planned_places(parts_.places.get(), parts_.inputs)};
    std::vector<AuditRow> rows;
    for (const auto &[shape, watched] : watched_) {
        const CallTraits call =
            parts_.policy.traits(shape.collective, shape.type, shape.op, shape.count);
        auto row = audit_row(shape, watched.entry, collector_->codecs(), usual, parts_.inputs,
                             parts_.policy.choose_algorithm(call).algorithm);
        if (!row) continue; // a codec whose chunks fit no algorithm
        row->comm = name_;
        rows.push_back(std::move(*row));
    }
    return rows;
}

CallAudit::AuditedCall *CallAudit::find(const Program &program, uint64_t tag) {
    // Samples are taken from vectors without gaps. Calls with and without gaps have one
    // fingerprint.
    if (program.work.parts || program.work.spacing != 0) return nullptr;
    constexpr uint64_t golden = 0x9E3779B97F4A7C15; // 2^64 / golden ratio
    const uint64_t hash = (program.shape.fingerprint() ^ tag * golden) * golden;
    AuditLookup &known = known_[hash >> 58];
    if (known.is_set && known.program == program.shape.fingerprint() && known.tag == tag)
        return known.watched;
    known = {program.shape.fingerprint(), tag, true, add(program, tag)};
    return known.watched;
}

CallAudit::AuditedCall *CallAudit::add(const Program &program, uint64_t tag) {
    const AuditedShape shape = shape_of(program.work, tag);
    if (!shape.is_encodable() || program.work.team.size < 2) return nullptr;
    if (const auto found = watched_.find(shape); found != watched_.end()) return &found->second;
    return watched_.size() < most_entries ? &watched_[shape] : nullptr;
}

SampleSize CallAudit::size_of(const Work &work) const {
    return SampleSize::of(vector_count(work.collective, work.count, work.team.size), unit_,
                          divisor_);
}

void CallAudit::before(const Program &program, const Call &call) {
    sampled_ = nullptr;
    if (is_over_) return;
    const Done read = exception_boundary([&]() -> Done {
        AuditedCall *const watched = find(program, call.tag);
        if (!watched) {
            const bool is_programs = row_of(program.shape.descriptor().collective).is_scheduled;
            if (is_programs) other_calls_++;
            return {};
        }
        const Work &work = program.work;
        watched->entry.calls++;
        if (!watched->turns.next(vector_count(work.collective, work.count, work.team.size),
                                 size_of(work), divisor_))
            return {};
        sampled_ = watched;
        return read_input(program, call);
    });
    if (!read) is_over_ = true;
}

// If only the root has values, all ranks hold them afterwards, so only the result is sampled.
Done CallAudit::read_input(const Program &program, const Call &call) {
    const Work &work = program.work;
    if (row_of(work.collective).has_one_source) return {};
    QCCL_TRY(sampler_.read(contribution_of(work, call.send), work.type, size_of(work),
                           sampled_->turns.taken()));
    input_loss_.clear();
    for (const Codec &codec : collector_->codecs()) input_loss_.push_back(sampler_.measure(codec));
    return {};
}

void CallAudit::after(const Program &program, const Call &call) {
    if (is_over_ || !sampled_) return;
    if (!exception_boundary([&] { return read_result(program, call); })) is_over_ = true;
}

Done CallAudit::read_result(const Program &program, const Call &call) {
    const Work &work = program.work;
    const bool has_one_source = row_of(work.collective).has_one_source;
    const bool has_sum = reduces(work.collective) && has_output(work.collective, work.team);
    const SampledArea area{static_cast<const std::byte *>(call.recv), work.count};
    sum_loss_.clear();
    if (has_one_source || has_sum) {
        QCCL_TRY(sampler_.read(area, work.type, size_of(work), sampled_->turns.taken()));
        for (const Codec &codec : collector_->codecs())
            sum_loss_.push_back(sampler_.measure(codec));
    }
    if (has_one_source) std::swap(input_loss_, sum_loss_);
    if (has_one_source) sum_loss_.clear();
    sampled_->entry.add_sample(input_loss_, sum_loss_, work.team.size, work.op == RedOp::avg);
    return {};
}

// ---- Use of rules

namespace {

// Communicators do not know each other, so the process keeps in one place what they share.
struct SharedUses {
    std::mutex mutex;
    std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<RuleUse>> uses; // by epoch and hash
};

SharedUses &shared_uses() {
    // Never destroyed, because communicators may end while the process does.
    static SharedUses *const all = [] {
        pthread_atfork([] { shared_uses().mutex.lock(); }, [] { shared_uses().mutex.unlock(); },
                       [] { shared_uses().mutex.unlock(); });
        return new SharedUses;
    }();
    return *all;
}

// The position of a Rule or of a WatchedRule among all rules.
template <class Each> std::pair<int, uint32_t> place_of(const Each &rule) {
    return {rule.source->order, rule.number};
}

std::string shown(std::string_view text) {
    constexpr size_t most_shown = 120;
    return '"' + shortened(text, most_shown) + '"';
}

} // namespace

RuleUse::RuleUse(const EnvRules &rules) {
    (void)for_each_rule(rules, [this](const Rule &rule) -> Done {
        if (rule.selector.is_unconditional()) return {};
        auto watched = std::make_unique<WatchedRule>();
        watched->source = rule.source;
        watched->number = rule.number;
        watched->text = rule.text;
        watched_.push_back(std::move(watched));
        return {};
    });
    std::sort(watched_.begin(), watched_.end(),
              [](const auto &a, const auto &b) { return place_of(*a) < place_of(*b); });
}

std::shared_ptr<RuleUse> RuleUse::join(const EnvRules &rules, uint32_t rank, uint32_t size) {
    std::shared_ptr<RuleUse> use(new RuleUse(rules));
    if (use->watched_.empty()) return nullptr;
    std::string text;
    for (const auto &watched : use->watched_)
        text.append(watched->source->setting).append(watched->text).append("\n");
    SharedUses &all = shared_uses();
    const std::lock_guard guard(all.mutex);
    std::erase_if(all.uses, [](const auto &each) { return each.second.expired(); });
    // The epoch keeps a forked child from using its parent's record.
    std::weak_ptr<RuleUse> &held = all.uses[{current_epoch(), hash_text(text)}];
    if (auto sharing = held.lock())
        use = std::move(sharing);
    else
        held = use;
    if (size > use->size_ || (size == use->size_ && rank < use->lowest_rank_))
        use->lowest_rank_ = rank;
    use->size_ = std::max(use->size_, size);
    return use;
}

void RuleUse::mark(const Rule &rule) {
    const auto found = std::ranges::lower_bound(
        watched_, place_of(rule), {}, [](const auto &watched) { return place_of(*watched); });
    if (found == watched_.end()) return;
    if (place_of(**found) == place_of(rule))
        (*found)->is_used.store(true, std::memory_order_relaxed);
}

std::vector<std::string> RuleUse::leave(std::shared_ptr<RuleUse> use) {
    if (!use) return {};
    const std::lock_guard guard(shared_uses().mutex); // no communicator joins meanwhile
    const bool is_last = use.use_count() == 1;
    std::vector<std::string> sentences;
    if (is_last && use->lowest_rank_ == 0 && use->has_calls_.load(std::memory_order_relaxed))
        sentences = use->report();
    use.reset();
    return sentences;
}

std::vector<std::string> RuleUse::report() const {
    std::vector<std::string> sentences;
    uint32_t unused_lines = 0;
    const WatchedRule *first_line = nullptr;
    for (const auto &watched : watched_) {
        if (watched->is_used.load(std::memory_order_relaxed)) continue;
        if (watched->source == &plan_setting) {
            if (unused_lines++ == 0) first_line = watched.get();
            continue;
        }
        sentences.push_back(std::string(watched->source->setting) + ": item " +
                            std::to_string(watched->number) + ", " + shown(watched->text) +
                            ", has decided no call of this process");
    }
    if (unused_lines == 1)
        sentences.push_back(std::string(plan_setting.setting) + ": line " +
                            std::to_string(first_line->number) + ", " + shown(first_line->text) +
                            ", has decided no call of this process");
    else if (unused_lines > 1)
        sentences.push_back(std::string(plan_setting.setting) + ": " +
                            std::to_string(unused_lines) +
                            " lines have decided no call of this process, the first is line " +
                            std::to_string(first_line->number) + ", " + shown(first_line->text));
    return sentences;
}

} // namespace qccl
