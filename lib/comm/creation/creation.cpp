// Implements the creation of a communicator. Each rank opens its log, its device and its
// calibration; wrong settings are found there, where the other ranks can still learn of them. Then
// all ranks take the same steps together, and a rank that fails tells the others at the next
// exchange.
#include "comm/creation/creation.hpp"

#include "base/exception_boundary.hpp"
#include "base/settings.hpp"
#include "base/text.hpp"
#include "comm/call_reports.hpp"
#include "comm/comm_config.hpp"
#include "comm/creation/child_creation.hpp"
#include "comm/creation/creation_times.hpp"
#include "comm/creation/protocol_offer.hpp"
#include "comm/creation/settings_digest.hpp"
#include "comm/creation/status_all_gather.hpp"
#include "comm/handle_table.hpp"
#include "device/allowed_tiers.hpp"
#include "device/device.hpp"
#include "device/kernel_launcher.hpp"
#include "net/addresses.hpp"
#include "transport/network.hpp"

#include <algorithm>
#include <cinttypes>
#include <functional>

#include <qccl/version.h>

namespace qccl {

// ---- The log

// Calls the C callback, whose levels count from 1.
static void forward_line(LogLevel level, const char *line, void *context) {
    const auto *log = static_cast<const qcclLog_t *>(context);
    log->function(static_cast<int32_t>(level) + 1, line, log->context);
}

Result<std::shared_ptr<const Log>> create_log(const CommConfig &comm_config,
                                              const Settings &settings, uint32_t rank) {
    auto callback = std::make_shared<qcclLog_t>(comm_config.log);
    LogOptions options{
        .level = settings.debug, .file = settings.debug_file, .rank = static_cast<int32_t>(rank)};
    if (callback->function) {
        options.callback = forward_line;
        options.context = callback.get();
        if (options.file == "stderr") options.file.clear(); // the user asked for no file
    }
    QCCL_TRY(std::unique_ptr<Log> log, Log::create(options));
    return std::shared_ptr<const Log>(log.release(),
                                      [callback](const Log *finished) { delete finished; });
}

// ---- What a rank makes before it meets the others

Result<LocalResources> open_local_resources(const Implementations &implementations, uint32_t rank,
                                            const CommConfig &comm_config,
                                            const EnvSettings &env_settings) {
    QCCL_TRY(env_settings.readable);
    QCCL_TRY(env_settings.rules_readable);
    QCCL_TRY(check_settings(comm_config, env_settings));
    QCCL_TRY(outcome(trace_patterns(env_settings.settings)));
    QCCL_TRY(auto log, create_log(comm_config, env_settings.settings, rank));
    QCCL_TRY(const uint32_t tiers, allowed_tiers(env_settings.settings));
    QCCL_TRY(std::string host, host_identity(env_settings.settings));
    // Done here, where the other ranks learn of an error, because handles must not fail for it once
    // the communicator exists.
    QCCL_TRY(outcome(begin_epoch()));
    Device device = host_device(implementations.best_kernels(tiers));
    QCCL_TRY(auto gpu, open_gpu(comm_config.device));
    if (gpu) device = gpu_device(device, std::move(gpu));
    FoundCalibration found;
    if (rank == 0 && !env_settings.is_child) {
        QCCL_TRY(found, implementations.topology->find_calibration(env_settings.settings));
    }
    if (!found.warning.empty()) log->warn("%s", found.warning.c_str());
    if (found.file)
        log->info("calibration from %s", found.path.c_str());
    else if (rank == 0 && !env_settings.is_child && found.warning.empty())
        log->info("no calibration: speeds are estimates until qccl-perf calibrate measures them");
    return LocalResources{std::move(log), std::move(device), std::move(host),
                          std::move(found.file)};
}

// ---- Creation by all ranks

namespace {

constexpr const char *host_device_name = "host"; // name of the device

// What the transport's waits call. It lives as long as the transport, and no longer than the
// communicator.
struct Waiting {
    MessageOwner *owner = nullptr; // as of create_comm
    qcclIdle_t idle{};
    std::shared_ptr<SiblingComms> siblings;
    uint32_t rank = 0;
    std::string threads_of_gpus;
    std::function<void(const Error &)> fail; // set when the transport exists

    void operator()() const {
        if (owner) owner->look();
        // The caller's own function may make the missing calls, so there need not be a deadlock.
        if (idle.function) return idle.function(idle.context);
        if (owner || !siblings || !fail) return;
        if (const auto deadlock = siblings->find_deadlock(rank, threads_of_gpus)) fail(*deadlock);
    }
};

Done greet(Bootstrap &bootstrap) {
    const ProtocolOffer mine{
        .version = QCCL_VERSION, .rank = bootstrap.rank(), .size = bootstrap.size()};
    std::vector<ProtocolOffer> all(bootstrap.size());
    QCCL_TRY(bootstrap.all_gather(&mine, all.data(), sizeof mine));
    return check_offers(all);
}

class Creation {
public:
    Creation(const Implementations &implementations, Bootstrap &bootstrap, Reach reach,
             const CommConfig &comm_config, const EnvSettings &env_settings, MessageOwner *owner)
        : implementations_(implementations), bootstrap_(bootstrap), reach_(reach),
          comm_config_(comm_config), env_settings_(env_settings), settings_(env_settings.settings),
          policy_(policy_of(comm_config, env_settings)), owner_(owner), exchange_(bootstrap),
          measured_(env_settings.measured), who_(log_prefix(comm_config)),
          times_(env_settings.read_at) {
        times_.end("meeting");
    }

    StatusAllGather &exchange() { return exchange_; }
    CreationTimes &times() { return times_; }
    // Ends the last part.
    void tell_times(const Log &log) {
        times_.end("assembling");
        log.info("%screated in %s", who_.c_str(), times_.print().c_str());
    }
    // Compares what must be equal on all ranks. One of the ranks with the same warnings about
    // settings logs them.
    Done compare(const LocalResources &resources);
    Result<std::shared_ptr<Comm>> assemble(LocalResources &resources,
                                           const std::shared_ptr<SiblingComms> &siblings,
                                           const TraceOrigin &origin);

private:
    Result<TransportOptions> transport_options() const;
    Result<RemoteOptions> remote_options() const;
    Result<std::unique_ptr<Transport>> connect(const LocalResources &resources,
                                               const std::shared_ptr<SiblingComms> &siblings);
    // Null, here and below: no rank has a GPU.
    Result<std::unique_ptr<GpuStaging>> create_gpu_staging(const LocalResources &resources,
                                                           Transport &transport);
    void begin_topology(std::vector<SettingsDigest> all, const Device &device);
    Done learn_what_was_measured(const std::optional<CalibrationFile> &file);
    JobShape shape() const { return {.ranks = policy_.ranks, .hosts = policy_.hosts}; }
    Done agree_on_topology(const Log &log, Transport &transport);
    void tell_meeting(const Log &log) const;
    void tell(const LocalResources &resources, const Transport &transport,
              const GpuStaging *staging) const;
    // The result includes what the settings leave open.
    Chunking cut_with(const Settings &settings) const;
    Chunking cut(Transport &transport, const GpuStaging *staging) const;
    CostModel speeds(const Transport &transport, const GpuStaging *staging,
                     const Chunking &cut) const;
    PlannerInputs inputs(const Chunking &cut, const CostModel &speeds) const;
    std::vector<InjectRule> own_faults() const;
    std::unique_ptr<CommTrace> trace(const LocalResources &resources, const Transport &transport,
                                     const TraceOrigin &origin) const;
    AllGather all_gather() { return std::bind_front(&StatusAllGather::all_gather, &exchange_); }

    const Implementations implementations_;
    Bootstrap &bootstrap_;
    const Reach reach_;
    const CommConfig &comm_config_;
    const EnvSettings &env_settings_;
    const Settings &settings_;
    CallPolicy policy_;
    MessageOwner *const owner_;
    StatusAllGather exchange_;
    std::vector<uint32_t> hosts_; // by rank; empty: one host
    size_t gpus_ = 0;             // number of ranks on GPUs
    bool are_on_gpus_alike_ = false;
    bool are_codecs_alike_ = true; // all ranks' kernels are equally fast
    double ranks_per_gpu_ = 0;
    CodecRates codec_rates_;                                // of the slowest rank's processor
    std::shared_ptr<const Measured> measured_;              // rank 0's; null: nothing was measured
    std::vector<SettingsDigest> digests_;                   // by rank
    std::unique_ptr<TopologyAgreement> topology_agreement_; // null: one rank
    std::shared_ptr<const JobLinks> links_;                 // null: one rank
    std::shared_ptr<const RankTopology> places_;
    const std::string who_; // begins lines of the log
    CreationTimes times_;
};

static_assert(sizeof(SettingsDigest) <= StatusAllGather::most_in_one, "one all-gather is enough");

Done Creation::compare(const LocalResources &resources) {
    std::vector<std::string> warnings = settings_.warnings;
    for (std::string &futile : futile_rules(settings_.inject, bootstrap_.size()))
        warnings.push_back(std::move(futile));
    if (is_reproducible(comm_config_, settings_) && settings_.oneshot_max_bytes)
        warnings.emplace_back("QCCL_ONESHOT_MAX is not heard: a reproducible communicator chooses "
                              "algorithms by the call alone");
    std::string text;
    for (const std::string &warning : warnings) text.append(warning).append("\n");

    SettingsDigest mine =
        digest_of(comm_config_, settings_, policy_, resources.host, resources.device.kernels->tier);
    mine.warnings = hash_text(text);
    mine.has_calibration = resources.calibration ? 1 : 0;
    std::vector<SettingsDigest> all(bootstrap_.size());
    QCCL_TRY(exchange_.all_gather(&mine, all.data(), sizeof mine));
    if (is_first_to_warn(all, bootstrap_.rank()))
        for (const std::string &warning : warnings) resources.log->warn("%s", warning.c_str());
    QCCL_TRY(check_digests(all));
    hosts_ = hosts_of(all);
    gpus_ = gpus_of(all);
    are_on_gpus_alike_ = are_on_gpus_alike(all);
    ranks_per_gpu_ = static_cast<double>(ranks_per_gpu_of(all));
    codec_rates_ = slowest_codec_rates_of(all);
    are_codecs_alike_ = codec_rates_ == all.front().codec_rates;
    const bool is_calibrated = all.front().has_calibration != 0;
    begin_topology(std::move(all), resources.device);
    policy_.ranks = bootstrap_.size();
    if (gpus_ != 0) policy_.most_exact_ranks = KernelLauncher::most_sources;
    policy_.hosts = hosts_.empty() ? 1 : *std::max_element(hosts_.begin(), hosts_.end()) + 1;
    if (is_calibrated) QCCL_TRY(learn_what_was_measured(resources.calibration));
    return fit_plan(policy_, env_settings_, bootstrap_.rank() == 0 ? resources.log.get() : nullptr);
}

// Rank 0 hands out the figures of its calibration file, and what the file says of jobs of this
// shape, if it says anything (few files do).
Done Creation::learn_what_was_measured(const std::optional<CalibrationFile> &file) {
    const MeasuredJob *const job = file ? file->of(shape()) : nullptr;
    struct {
        Calibration figures;
        uint64_t has_job = 0;
    } const mine{.figures = file ? file->figures_of(shape()) : Calibration(),
                 .has_job = job ? 1U : 0U};
    QCCL_TRY(const auto first, exchange_.of_rank_0(mine));
    Measured measured{.figures = first.figures, .job = {}};
    if (first.has_job != 0) {
        QCCL_TRY(measured.job, exchange_.of_rank_0(job ? job->counted : Corrections()));
    }
    measured_ = std::make_shared<const Measured>(measured);
    return {};
}

// The first rank of each host discovers its machine while the ranks connect.
void Creation::begin_topology(std::vector<SettingsDigest> all, const Device &device) {
    digests_ = std::move(all);
    if (digests_.size() == 1) return;
    std::vector<RankHost> hosts;
    for (size_t rank = 0; rank < digests_.size(); rank++)
        hosts.push_back({.host = hosts_.empty() ? 0 : hosts_[rank],
                         .name = host_name_of(digests_[rank]),
                         .rack = rack_of(digests_[rank])});
    topology_agreement_ = implementations_.topology->begin(
        bootstrap_.rank(), std::move(hosts),
        device.gpu ? device.gpu->traits().bus_id : std::string(), settings_, gpus_ != 0);
}

// A NUMA node that QCCL_NODE gives a rank takes precedence.
Done Creation::agree_on_topology(const Log &log, Transport &transport) {
    RingOrders rings;
    if (topology_agreement_) {
        // The host's first rank is the first one whose memory this rank has mapped.
        QCCL_TRY(JoinedTopology joined,
                 topology_agreement_->join(transport.outbox(), transport.traits().arenas.front(),
                                           all_gather()));
        if (!joined.warning.empty())
            log.warn("%s", joined.warning.c_str());
        else if (!joined.origin.empty())
            log.info("topology from %s", joined.origin.c_str());
        if (!joined.discovery.empty())
            log.info("%stopology of this host: %s", who_.c_str(), joined.discovery.c_str());
        links_ = std::move(joined.links);
        if (std::ranges::none_of(digests_, has_node)) rings = links_->rings();
        for (size_t rank = 0; rank < digests_.size(); rank++)
            if (joined.numas[rank] && !has_node(digests_[rank]))
                SettingsDigest::set(digests_[rank].node, std::to_string(*joined.numas[rank]));
    }
    places_ = make_rank_topology(locations_of(digests_), std::move(rings));
    return {};
}

Result<RemoteOptions> Creation::remote_options() const {
    RemoteOptions remote;
    remote.transports = settings_.ucx_transports.value_or("");
    remote.devices = settings_.ucx_devices.value_or("");
    QCCL_TRY(const std::vector<Endpoint> here,
             choose_endpoints(settings_.socket_interface.value_or("")));
    for (const Endpoint &endpoint : here)
        remote.addresses.push_back(to_socket_address(endpoint).storage);
    QCCL_TRY(check_headroom(hosts_, bootstrap_.rank(), remote));
    const auto module = load_network_module(ucx_module_file);
    if (!module)
        return Error::make(
            module.error().code,
            "ranks are on %u hosts (see QCCL_HOSTID), and there is no network: %.350s",
            *std::max_element(hosts_.begin(), hosts_.end()) + 1, module.error().text);
    remote.network = *module;
    return remote;
}

Result<TransportOptions> Creation::transport_options() const {
    TransportOptions options;
    options.hosts = hosts_;
    if (!hosts_.empty()) {
        QCCL_TRY(options.remote, remote_options());
    }
    options.rank = bootstrap_.rank();
    options.size = bootstrap_.size();
    const Chunking cut = cut_with(settings_);
    options.slots = cut.slots;
    options.outbox_bytes = cut.outbox_bytes;
    options.peer_timeout = comm_config_.peer_timeout.value_or(settings_.peer_timeout);
    options.spin = settings_.spin;
    options.record = {.is_kept = settings_.record != record_off,
                      .folder = settings_.record.value_or(""),
                      .communicator = comm_config_.name};
    options.cancel_check = [&bootstrap = bootstrap_] { return bootstrap.check(); };
    return options;
}

Chunking Creation::cut_with(const Settings &settings) const {
    const Chunking cut = chunking_by(settings, bootstrap_.size(), !hosts_.empty());
    return gpus_ == 0 ? cut : chunking_for_gpus(settings, cut);
}

Chunking Creation::cut(Transport &transport, const GpuStaging *staging) const {
    Chunking cut = cut_with(settings_);
    cut.outbox_bytes = transport.outbox().size();
    cut.slots = transport.slots();
    cut.inbox_bytes = transport.inbox().size();
    cut.eager_slot_bytes =
        staging ? staging->eager_slots().eager_slot_bytes : transport.eager_slot_bytes();
    if (!staging) return cut;
    cut.eager_exchanges = GpuFastPath::most_exchanges;
    cut.zero_copy_bytes = UINT64_MAX;
    cut.whole_tiles = comm_config_.device != host_device_name;
    return cut;
}

// Whether the ranks' GPUs reach each other's memory.
bool reaches_gpus(const GpuStaging *staging) { return staging && !staging->outbox().empty(); }

// If only some ranks have GPUs, the other ranks set the pace.
CostModel Creation::speeds(const Transport &transport, const GpuStaging *staging,
                           const Chunking &cut) const {
    const bool is_on_host = gpus_ < transport.size();
    CostModel speeds =
        is_on_host ? cost_model_by(settings_, transport.ranks_per_core(), codec_rates_)
                   : gpu_cost_model_by(settings_, ranks_per_gpu_,
                                       reaches_gpus(staging) ? GpuReach::gpus : GpuReach::host);
    if (links_) links_->take_remote_link(settings_, speeds);
    if (is_on_host && measured_) measured_->figures.apply(settings_, speeds);
    if (!are_codecs_alike_) speeds.codec_rates.slow_down_to(codec_rates_);
    speeds.eager_bytes = cut.eager_slot_bytes; // also where QCCL_CHECKSUM forbids eager slots
    speeds.eager_exchanges = cut.eager_exchanges;
    return speeds;
}

PlannerInputs Creation::inputs(const Chunking &cut, const CostModel &speeds) const {
    if (is_reproducible(comm_config_, settings_))
        return reproducible_inputs(limits_of(cut),
                                   limits_of(chunking_by({}, bootstrap_.size(), false)));
    PlannerInputs inputs{.speeds = speeds,
                         .limits = limits_of(cut),
                         .usual_limits = limits_of(cut_with({})),
                         .whole_up_to_bytes = settings_.oneshot_max_bytes};
    if (links_) inputs.links = links_->shared_links();
    take_settings(settings_, places_.get(), inputs.links);
    if (measured_ && gpus_ == 0 && measured_->job.shape == shape())
        inputs.corrections = {measured_, &measured_->job};
    return inputs;
}

std::vector<InjectRule> Creation::own_faults() const {
    std::vector<InjectRule> rules;
    for (const InjectRule &rule : settings_.inject)
        if (!rule.rank || *rule.rank == bootstrap_.rank()) rules.push_back(rule);
    return rules;
}

Result<std::unique_ptr<Transport>>
Creation::connect(const LocalResources &resources, const std::shared_ptr<SiblingComms> &siblings) {
    QCCL_TRY(TransportOptions options, transport_options());
    const auto waiting =
        std::make_shared<Waiting>(Waiting{.owner = owner_,
                                          .idle = comm_config_.idle,
                                          .siblings = siblings,
                                          .rank = options.rank,
                                          .threads_of_gpus = resources.device.threads(),
                                          .fail = {}});
    options.idle = [waiting] { (*waiting)(); };
    options.owner = owner_;
    options.warn = [log = resources.log, siblings](const char *sentence) {
        log->warn("%s%s", sentence,
                  siblings ? " (ranks of qcclCommInitAll need a thread each)" : "");
    };
    if (resources.log->wants(LogLevel::info))
        options.tell = [log = resources.log, who = who_](const char *sentence) {
            log->info("%s%s", who.c_str(), sentence);
        };
    const auto create = reach_ == Reach::threads ? create_inproc_transport : create_shm_transport;
    QCCL_TRY(std::unique_ptr<Transport> transport, create(options, all_gather()));
    waiting->fail = [raw = transport.get()](const Error &error) { raw->fail(error); };
    return transport;
}

Result<std::unique_ptr<GpuStaging>> Creation::create_gpu_staging(const LocalResources &resources,
                                                                 Transport &transport) {
    if (gpus_ == 0) return std::unique_ptr<GpuStaging>();
    const bool has_zero_copy = gpus_ == transport.size() && hosts_.empty() && !settings_.checksum;
    return GpuStaging::create(resources.device.gpu, has_zero_copy, transport, all_gather(),
                              *resources.log);
}

void Creation::tell_meeting(const Log &log) const {
    if (bootstrap_.size() == 1 || !log.wants(LogLevel::info)) return;
    log.info("%srank %" PRIu32 " of %" PRIu32 " has met the others after %s (%s)", who_.c_str(),
             bootstrap_.rank(), bootstrap_.size(), times_.print_first().c_str(),
             bootstrap_.means().c_str());
    if (bootstrap_.rank() == 0)
        log.info("%s%s", who_.c_str(), hosts_text(digests_, hosts_).c_str());
}

void Creation::tell(const LocalResources &resources, const Transport &transport,
                    const GpuStaging *staging) const {
    const Device &device = resources.device;
    resources.log->info("%srank %" PRIu32 " of %" PRIu32 " over %s%s, kernels %s", who_.c_str(),
                        transport.rank(), transport.size(), transport.name(),
                        reaches_gpus(staging) ? " and memory of GPUs" : "",
                        device.gpu ? device.name() : name(device.kernels->tier));
}

std::unique_ptr<CommTrace> Creation::trace(const LocalResources &resources,
                                           const Transport &transport,
                                           const TraceOrigin &origin) const {
    LoggedComm comm{.session = transport.session(),
                    .rank = transport.rank(),
                    .node = hosts_,
                    .ranks_per_core = transport.ranks_per_core(),
                    .name = comm_config_.name};
    comm.node.resize(transport.size()); // an empty list means one node
    return CommTrace::create(settings_, origin, std::move(comm), *resources.log);
}

Result<std::shared_ptr<Comm>> Creation::assemble(LocalResources &resources,
                                                 const std::shared_ptr<SiblingComms> &siblings,
                                                 const TraceOrigin &origin) {
    tell_meeting(*resources.log);
    QCCL_TRY(std::unique_ptr<Transport> transport, connect(resources, siblings));
    times_.end("connecting");
    QCCL_TRY(agree_on_topology(*resources.log, *transport));
    times_.end("topology");
    QCCL_TRY(std::unique_ptr<GpuStaging> staging, create_gpu_staging(resources, *transport));
    if (gpus_ != 0) times_.end("memory of GPUs");
    tell(resources, *transport, staging.get());
    std::unique_ptr<CommTrace> traced = trace(resources, *transport, origin);
    const Chunking how = cut(*transport, staging.get());
    const CostModel cost_model = speeds(*transport, staging.get(), how);
    if (cost_model.is_remote_rate_known()) transport->use_line_rate(cost_model.remote_bytes_per_ns);
    const auto comm = std::make_shared<Comm>(
        CommParts{.comm_config = comm_config_,
                  .reach = reach_,
                  .log = std::move(resources.log),
                  .transport = std::move(transport),
                  .device = resources.device,
                  .gpu_staging = std::move(staging),
                  .cut = how,
                  .inputs = inputs(how, cost_model),
                  .places = places_,
                  .measured = measured_,
                  .links = links_,
                  .implementations = implementations_,
                  .create_child = create_child,
                  .policy = policy_,
                  .timeout = comm_config_.timeout.value_or(settings_.timeout),
                  .fusion_bytes = fusion_bytes_of(comm_config_, settings_),
                  .inject = own_faults(),
                  .trace = std::move(traced),
                  .siblings = siblings,
                  .is_channel = owner_ != nullptr,
                  .captures_alike = are_on_gpus_alike_});
    comm->watch_rules(RuleUse::join(env_settings_.rules, bootstrap_.rank(), bootstrap_.size()));
    comm->audit_calls(CallAudit::create(settings_, origin, comm->parts()));
    if (resources.device.gpu) QCCL_TRY(comm->start_queue(settings_));
    return comm;
}

} // namespace

Result<std::shared_ptr<Comm>> create_comm(const Implementations &implementations,
                                          Bootstrap &bootstrap, Reach reach,
                                          const CommConfig &comm_config,
                                          const EnvSettings &env_settings,
                                          const std::shared_ptr<SiblingComms> &siblings,
                                          const TraceOrigin &origin, MessageOwner *owner) {
    QCCL_TRY(greet(bootstrap));
    Creation creation(implementations, bootstrap, reach, comm_config, env_settings, owner);

    auto resources = exception_boundary([&] {
        return open_local_resources(implementations, bootstrap.rank(), comm_config, env_settings);
    });
    if (!resources) return creation.exchange().conclude(resources.error()).error();
    creation.times().end("settings and device");
    QCCL_TRY(creation.compare(*resources));
    creation.times().end("comparing settings");

    auto comm = exception_boundary([&] { return creation.assemble(*resources, siblings, origin); });
    QCCL_TRY(creation.exchange().conclude(outcome(comm)));
    if (comm) creation.tell_times(*(*comm)->parts().log);
    return comm;
}

} // namespace qccl
