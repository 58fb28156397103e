#include "api/creation.hpp"

#include "api/agreement.hpp"
#include "api/boundary.hpp"
#include "api/equipment.hpp"
#include "api/exchange.hpp"
#include "api/job_topology.hpp"
#include "api/own_agreement.hpp"
#include "api/setting_checks.hpp"
#include "base/short_text.hpp"
#include "bootstrap/interfaces.hpp"
#include "topology/job_links.hpp"
#include "transport/headroom.hpp"
#include "transport/network.hpp"

#include <qccl/version.h>

#include <algorithm>
#include <cinttypes>
#include <functional>

namespace qccl {

namespace {

constexpr const char *host_name = "host"; // as a device

// What the transport's waits call: lives as long as the transport, outlives no communicator.
struct Waiting {
    qcclIdle_t idle{};
    std::shared_ptr<Family> family;
    uint32_t rank = 0;
    std::string threads_of_gpus;
    std::function<void(const Error &)> fail; // set once the transport is there

    void operator()() const {
        // Somebody's own function may well make the calls that are missing.
        if (idle.function) return idle.function(idle.context);
        if (!family || !fail) return;
        if (const auto deadlock = family->find_deadlock(rank, threads_of_gpus)) fail(*deadlock);
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
    Creation(Bootstrap &bootstrap, Reach reach, const CommWishes &wishes,
             const Surroundings &surroundings)
        : bootstrap_(bootstrap), reach_(reach), wishes_(wishes), surroundings_(surroundings),
          settings_(surroundings.settings), policy_(policy_of(wishes, surroundings)),
          exchange_(bootstrap), measured_(surroundings.measured) {}

    Exchange &exchange() { return exchange_; }
    // Also warns of what is odd about the settings, on one of the ranks where it is.
    Done compare(const Equipment &equipment);
    Result<std::shared_ptr<Comm>> assemble(Equipment &equipment,
                                           const std::shared_ptr<Family> &family,
                                           const TraceOrigin &origin);

private:
    Result<TransportOptions> transport_options() const;
    Result<FarOptions> far_options() const;
    Result<std::unique_ptr<Transport>> connect(const Equipment &equipment,
                                               const std::shared_ptr<Family> &family);
    // Here and below, null where no rank has a GPU.
    Result<std::unique_ptr<DeviceShare>> share_device(const Equipment &equipment,
                                                      Transport &transport);
    void begin_topology(std::vector<Agreement> all, const Device &device);
    Done learn_what_was_measured(const std::optional<CalibrationFile> &file);
    JobShape shape() const { return {.ranks = policy_.ranks, .hosts = policy_.nodes}; }
    Done agree_on_topology(const Log &log, Transport &transport);
    void tell(const Equipment &equipment, const Transport &transport,
              const DeviceShare *share) const;
    // What the settings leave open included.
    Cut cut_with(const Settings &settings) const;
    Cut cut(Transport &transport, const DeviceShare *share) const;
    Speeds speeds(const Transport &transport, const DeviceShare *share, const Cut &cut) const;
    Tables tables(const Cut &cut, const Speeds &speeds) const;
    std::vector<InjectRule> own_faults() const;
    std::unique_ptr<CommTrace> trace(const Equipment &equipment, const Transport &transport,
                                     const TraceOrigin &origin) const;
    AllGather all_gather() { return std::bind_front(&Exchange::all_gather, &exchange_); }

    Bootstrap &bootstrap_;
    const Reach reach_;
    const CommWishes &wishes_;
    const Surroundings &surroundings_;
    const Settings &settings_;
    CallPolicy policy_;
    Exchange exchange_;
    std::vector<uint32_t> hosts_; // by rank; empty where there is one
    size_t gpus_ = 0;             // ranks that have one
    bool are_on_gpus_alike_ = false;
    bool are_codecs_alike_ = true; // all ranks' kernels are as fast
    double ranks_per_gpu_ = 0;
    CodecRates codec_rates_;                   // of all ranks' processors
    std::shared_ptr<const Measured> measured_; // rank 0's; null: nothing
    std::vector<Agreement> agreements_;        // of all ranks
    NodeQuestion node_question_;
    NodeDiscovery discovery_;                           // of each host's first rank
    std::optional<TopologyExchange> topology_exchange_; // of several ranks
    std::shared_ptr<const JobTopology> topology_;
    std::shared_ptr<const Places> places_;
};

Done Creation::compare(const Equipment &equipment) {
    std::vector<std::string> warnings = settings_.warnings;
    for (std::string &futile : futile_rules(settings_.inject, bootstrap_.size()))
        warnings.push_back(std::move(futile));
    if (is_reproducible(wishes_, settings_) && settings_.oneshot_max_bytes)
        warnings.emplace_back("QCCL_ONESHOT_MAX is not heard: a reproducible communicator chooses "
                              "algorithms by the call alone");
    std::string text;
    for (const std::string &warning : warnings) text.append(warning).append("\n");

    Agreement mine =
        agreement_of(wishes_, settings_, policy_, equipment.host, equipment.device.kernels->tier);
    mine.warnings = hash_text(text);
    mine.has_calibration = equipment.calibration ? 1 : 0;
    std::vector<Agreement> all(bootstrap_.size());
    QCCL_TRY(exchange_.all_gather(&mine, all.data(), sizeof mine));
    if (is_first_to_warn(all, bootstrap_.rank()))
        for (const std::string &warning : warnings) equipment.log->warn("%s", warning.c_str());
    QCCL_TRY(check_agreements(all));
    hosts_ = hosts_of(all);
    gpus_ = gpus_of(all);
    are_on_gpus_alike_ = are_on_gpus_alike(all);
    ranks_per_gpu_ = static_cast<double>(ranks_per_gpu_of(all));
    codec_rates_ = slowest_codec_rates_of(all);
    are_codecs_alike_ = codec_rates_ == all.front().codec_rates;
    const bool is_calibrated = all.front().has_calibration != 0;
    begin_topology(std::move(all), equipment.device);
    policy_.ranks = bootstrap_.size();
    policy_.nodes = hosts_.empty() ? 1 : *std::max_element(hosts_.begin(), hosts_.end()) + 1;
    if (is_calibrated) QCCL_TRY(learn_what_was_measured(equipment.calibration));
    return fit_plan(policy_, surroundings_, bootstrap_.rank() == 0 ? equipment.log.get() : nullptr);
}

// Rank 0 hands out its file's figures, and what it says of jobs of this shape, which few files do.
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

// While the ranks connect, one of each host looks at its machine.
void Creation::begin_topology(std::vector<Agreement> all, const Device &device) {
    agreements_ = std::move(all);
    if (agreements_.size() == 1) return;
    std::vector<RankHost> hosts;
    for (size_t rank = 0; rank < agreements_.size(); rank++)
        hosts.push_back({.host = hosts_.empty() ? 0 : hosts_[rank],
                         .name = host_name_of(agreements_[rank]),
                         .rack = rack_of(agreements_[rank])});
    topology_exchange_.emplace(bootstrap_.rank(), std::move(hosts),
                               device.gpu ? device.gpu->traits().bus_id : std::string());
    node_question_ = node_question(settings_, gpus_ != 0);
    if (topology_exchange_->is_leader()) discovery_.start(node_question_);
}

// A NUMA node that a rank has been given by QCCL_NODE stands.
Done Creation::agree_on_topology(const Log &log, Transport &transport) {
    RingOrders rings;
    if (topology_exchange_) {
        NodeTopologyRef node = topology_exchange_->is_leader()
                                   ? discovery_.finish()
                                   : known_node_topology(node_question_);
        // The leader is the first of the ranks whose memory this one has mapped.
        QCCL_TRY(AgreedTopology agreed,
                 topology_exchange_->run(std::move(node), transport.outbox(),
                                         transport.arenas().front(), all_gather()));
        node = topology_exchange_->node();
        if (!node->warning.empty())
            log.warn("%s", node->warning.c_str());
        else if (!node->origin.empty())
            log.info("topology from %s", node->origin.c_str());
        keep_node_topology(node_question_, node);
        topology_ = std::move(agreed.job);
        if (std::ranges::none_of(agreements_, has_node)) rings = rings_of(*topology_);
        for (size_t rank = 0; rank < agreements_.size(); rank++)
            if (agreed.numas[rank] && !has_node(agreements_[rank]))
                Agreement::set(agreements_[rank].node, std::to_string(*agreed.numas[rank]));
    }
    places_ = places_of(spots_of(agreements_), std::move(rings));
    return {};
}

Result<FarOptions> Creation::far_options() const {
    FarOptions far;
    far.transports = settings_.ucx_transports.value_or("");
    far.devices = settings_.ucx_devices.value_or("");
    QCCL_TRY(const std::vector<Endpoint> here,
             choose_endpoints(settings_.socket_interface.value_or("")));
    for (const Endpoint &endpoint : here)
        far.addresses.push_back(to_socket_address(endpoint).storage);
    QCCL_TRY(check_headroom(hosts_, bootstrap_.rank(), far));
    const auto module = load_network_module(ucx_module_file);
    if (!module)
        return Error::make(
            module.error().code,
            "ranks are on %u hosts (see QCCL_HOSTID), and there is no network: %.350s",
            *std::max_element(hosts_.begin(), hosts_.end()) + 1, module.error().text);
    far.network = *module;
    return far;
}

Result<TransportOptions> Creation::transport_options() const {
    TransportOptions options;
    options.hosts = hosts_;
    if (!hosts_.empty()) {
        QCCL_TRY(options.far, far_options());
    }
    options.rank = bootstrap_.rank();
    options.size = bootstrap_.size();
    const Cut cut = cut_with(settings_);
    options.slots = cut.slots;
    options.outbox_bytes = cut.outbox_bytes;
    options.peer_timeout = wishes_.peer_timeout.value_or(settings_.peer_timeout);
    options.spin = settings_.spin;
    options.record = {.is_kept = settings_.record != record_off,
                      .folder = settings_.record.value_or(""),
                      .communicator = wishes_.name};
    options.prospect = [&bootstrap = bootstrap_] { return bootstrap.check(); };
    return options;
}

Cut Creation::cut_with(const Settings &settings) const {
    const Cut cut = cut_by(settings, bootstrap_.size(), !hosts_.empty());
    return gpus_ == 0 ? cut : cut_for_gpus(settings, cut);
}

Cut Creation::cut(Transport &transport, const DeviceShare *share) const {
    Cut cut = cut_with(settings_);
    cut.outbox_bytes = transport.outbox().size();
    cut.slots = transport.slots();
    cut.inbox_bytes = transport.inbox().size();
    cut.line_bytes = share ? share->lines().line_bytes : transport.line_bytes();
    if (!share) return cut;
    cut.line_exchanges = GpuLines::most_exchanges;
    cut.lending_bytes = UINT64_MAX;
    cut.whole_tiles = wishes_.device != host_name;
    return cut;
}

// Whether the ranks' GPUs reach each other.
bool reaches_gpus(const DeviceShare *share) { return share && !share->outbox().empty(); }

// Where only some ranks have GPUs, the others set the pace.
Speeds Creation::speeds(const Transport &transport, const DeviceShare *share,
                        const Cut &cut) const {
    const bool is_on_host = gpus_ < transport.size();
    Speeds speeds = is_on_host
                        ? speeds_by(settings_, transport.ranks_per_core(), codec_rates_)
                        : gpu_speeds_by(settings_, ranks_per_gpu_,
                                        reaches_gpus(share) ? GpuReach::gpus : GpuReach::host);
    if (const auto link = topology_ ? far_link(*topology_) : std::nullopt)
        take_link(*link, settings_, speeds);
    if (is_on_host && measured_) measured_->figures.apply(settings_, speeds);
    if (!are_codecs_alike_) speeds.codec_rates.slow_down_to(codec_rates_);
    speeds.eager_bytes = cut.line_bytes; // whether QCCL_CHECKSUM lets the call use them or not
    speeds.eager_exchanges = cut.line_exchanges;
    return speeds;
}

Tables Creation::tables(const Cut &cut, const Speeds &speeds) const {
    if (is_reproducible(wishes_, settings_))
        return reproducible_tables(limits_of(cut), limits_of(cut_by({}, bootstrap_.size(), false)));
    Tables tables{.speeds = speeds,
                  .limits = limits_of(cut),
                  .usual_limits = limits_of(cut_with({})),
                  .whole_up_to_bytes = settings_.oneshot_max_bytes};
    if (topology_) tables.links = shared_links(*topology_);
    take_settings(settings_, places_.get(), tables.links);
    if (measured_ && gpus_ == 0 && measured_->job.shape == shape())
        tables.corrections = {measured_, &measured_->job};
    return tables;
}

std::vector<InjectRule> Creation::own_faults() const {
    std::vector<InjectRule> rules;
    for (const InjectRule &rule : settings_.inject)
        if (!rule.rank || *rule.rank == bootstrap_.rank()) rules.push_back(rule);
    return rules;
}

Result<std::unique_ptr<Transport>> Creation::connect(const Equipment &equipment,
                                                     const std::shared_ptr<Family> &family) {
    QCCL_TRY(TransportOptions options, transport_options());
    const auto waiting = std::make_shared<Waiting>(
        Waiting{wishes_.idle, family, options.rank, equipment.device.threads(), {}});
    options.idle = [waiting] { (*waiting)(); };
    options.warn = [log = equipment.log, family](const char *sentence) {
        log->warn("%s%s", sentence, family ? " (ranks of qcclCommInitAll need a thread each)" : "");
    };
    const auto create = reach_ == Reach::process ? create_inproc_transport : create_shm_transport;
    QCCL_TRY(std::unique_ptr<Transport> transport, create(options, all_gather()));
    waiting->fail = [raw = transport.get()](const Error &error) { raw->fail(error); };
    return transport;
}

Result<std::unique_ptr<DeviceShare>> Creation::share_device(const Equipment &equipment,
                                                            Transport &transport) {
    if (gpus_ == 0) return std::unique_ptr<DeviceShare>();
    const bool may_lend = gpus_ == transport.size() && hosts_.empty() && !settings_.checksum;
    return DeviceShare::create(equipment.device.gpu, may_lend, transport, all_gather(),
                               *equipment.log);
}

void Creation::tell(const Equipment &equipment, const Transport &transport,
                    const DeviceShare *share) const {
    const Device &device = equipment.device;
    equipment.log->info("%s%srank %" PRIu32 " of %" PRIu32 " over %s%s, kernels %s",
                        wishes_.name.c_str(), wishes_.name.empty() ? "" : ": ", transport.rank(),
                        transport.size(), transport.name(),
                        reaches_gpus(share) ? " and memory of GPUs" : "",
                        device.gpu ? device.name() : name(device.kernels->tier));
}

std::unique_ptr<CommTrace> Creation::trace(const Equipment &equipment, const Transport &transport,
                                           const TraceOrigin &origin) const {
    LoggedComm comm{.session = transport.session(),
                    .rank = transport.rank(),
                    .node = hosts_,
                    .ranks_per_core = transport.ranks_per_core(),
                    .name = wishes_.name};
    comm.node.resize(transport.size()); // empty: one node
    return CommTrace::create(settings_, origin, std::move(comm), *equipment.log);
}

Result<std::shared_ptr<Comm>> Creation::assemble(Equipment &equipment,
                                                 const std::shared_ptr<Family> &family,
                                                 const TraceOrigin &origin) {
    QCCL_TRY(std::unique_ptr<Transport> transport, connect(equipment, family));
    QCCL_TRY(agree_on_topology(*equipment.log, *transport));
    QCCL_TRY(std::unique_ptr<DeviceShare> share, share_device(equipment, *transport));
    tell(equipment, *transport, share.get());
    std::unique_ptr<CommTrace> traced = trace(equipment, *transport, origin);
    const Cut how = cut(*transport, share.get());
    const Speeds paces = speeds(*transport, share.get(), how);
    const auto comm =
        std::make_shared<Comm>(CommParts{.wishes = wishes_,
                                         .reach = reach_,
                                         .log = std::move(equipment.log),
                                         .transport = std::move(transport),
                                         .device = equipment.device,
                                         .device_share = std::move(share),
                                         .cut = how,
                                         .tables = tables(how, paces),
                                         .places = places_,
                                         .measured = measured_,
                                         .topology = topology_,
                                         .policy = policy_,
                                         .timeout = wishes_.timeout.value_or(settings_.timeout),
                                         .inject = own_faults(),
                                         .trace = std::move(traced),
                                         .family = family,
                                         .captures_alike = are_on_gpus_alike_});
    comm->watch_rules(RuleUse::join(surroundings_.rules, bootstrap_.rank(), bootstrap_.size()));
    comm->audit_calls(CallAudit::create(settings_, origin, comm->parts()));
    if (equipment.device.gpu) QCCL_TRY(comm->start_queue(settings_));
    return comm;
}

} // namespace

Result<std::shared_ptr<Comm>> create_comm(Bootstrap &bootstrap, Reach reach,
                                          const CommWishes &wishes,
                                          const Surroundings &surroundings,
                                          const std::shared_ptr<Family> &family,
                                          const TraceOrigin &origin) {
    QCCL_TRY(greet(bootstrap));
    Creation creation(bootstrap, reach, wishes, surroundings);

    auto equipment = contained([&] { return equip(bootstrap.rank(), wishes, surroundings); });
    QCCL_TRY(creation.exchange().conclude(outcome(equipment)));
    QCCL_TRY(creation.compare(*equipment));

    auto comm = contained([&] { return creation.assemble(*equipment, family, origin); });
    QCCL_TRY(creation.exchange().conclude(outcome(comm)));
    return comm;
}

} // namespace qccl
