// Asks hwloc in a thread and keeps the answer. In the exchange, leaders publish texts, other ranks
// read them, and hosts that differ exchange them in pieces.
#include "topology/sources/topology_source.hpp"

#include "base/exception_boundary.hpp"
#include "base/text.hpp"
#include "net/addresses.hpp"
#include "topology/graph.hpp"
#include "topology/job_graph.hpp"
#include "topology/machine_graph.hpp"
#include "topology/sources/calibration_source.hpp"
#include "topology/sources/machine_sources.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include <pthread.h>

namespace qccl {

// ---- This process's machine

namespace {

// Never destroyed, because a process may fork while it ends. The mutex is held while hwloc loads,
// and a fork takes the mutex first, because a child forked meanwhile would find hwloc's own locks
// held for ever.
struct KnownMachine {
    std::mutex mutex;
    MachineRequest question;
    MachineTopologyRef topology;
};

KnownMachine &known_machine() {
    static KnownMachine *const known = [] {
        pthread_atfork([] { known_machine().mutex.lock(); }, [] { known_machine().mutex.unlock(); },
                       [] { known_machine().mutex.unlock(); });
        return new KnownMachine;
    }();
    return *known;
}

MachineTopology with_text(const Graph &graph) {
    MachineTopology topology{.graph = named(graph, ""), .text = {}};
    topology.text = print_graph_text(topology.graph);
    topology.hash = hash_text(topology.text);
    return topology;
}

MachineTopologyRef discover_topology(const MachineRequest &question) {
    DiscoveredMachine machine =
        discover_machine(question.has_gpus ? GpuLinks::asked_for : GpuLinks::left_out);
    NetworkChoice choice = question.network;
    // A setting that names no interface is refused later, when the ranks connect.
    if (const auto endpoints = choose_endpoints(question.interfaces))
        choice.interfaces = interfaces_with(*endpoints);
    MachineTopology topology = with_text(connect_to_network(machine.graph, list_ports(), choice));
    topology.warning = std::move(machine.warning);
    topology.origin = std::move(machine.instead_of_hardware);
    return std::make_shared<const MachineTopology>(std::move(topology));
}

} // namespace

MachineRequest machine_request(const Settings &settings, bool has_gpus) {
    return {.interfaces = settings.socket_interface.value_or(""),
            .network = network_choice(settings),
            .has_gpus = has_gpus};
}

MachineTopologyRef known_machine_topology(const MachineRequest &question) {
    KnownMachine &known = known_machine();
    const std::lock_guard guard(known.mutex);
    return known.question == question ? known.topology : nullptr;
}

void keep_machine_topology(const MachineRequest &question, const MachineTopologyRef &topology) {
    MachineTopology kept = *topology; // without the sentences that were logged by now
    kept.warning.clear();
    kept.origin.clear();
    KnownMachine &known = known_machine();
    const std::lock_guard guard(known.mutex);
    known.question = question;
    known.topology = std::make_shared<const MachineTopology>(std::move(kept));
}

MachineTopologyRef plain_machine_topology(const char *why) {
    MachineTopology topology = with_text(plain_machine(allowed_cpus()));
    topology.warning = std::string("this machine counts as one NUMA node: ") + why;
    return std::make_shared<const MachineTopology>(std::move(topology));
}

Result<MachineTopologyRef> read_machine_topology(std::string text) {
    MachineTopology topology;
    QCCL_TRY(topology.graph, parse_graph_text(text, "the topology from another rank"));
    topology.hash = hash_text(text);
    topology.text = std::move(text);
    return std::make_shared<const MachineTopology>(std::move(topology));
}

void MachineDiscovery::start(const MachineRequest &question) {
    question_ = question;
    found_ = known_machine_topology(question);
    if (found_) return;
    auto thread = ServiceThread::start(topology_thread_name, [this] {
        const Done done = exception_boundary([&]() -> Done {
            const auto start = std::chrono::steady_clock::now();
            const std::lock_guard guard(known_machine().mutex);
            found_ = discover_topology(question_);
            took_ = std::chrono::steady_clock::now() - start;
            return {};
        });
        if (!done) found_ = nullptr;
    });
    if (thread) thread_ = std::move(*thread);
}

MachineTopologyRef MachineDiscovery::finish() {
    thread_.join();
    if (!found_) found_ = plain_machine_topology("there is no memory or no thread to look at it");
    return found_;
}

std::string MachineDiscovery::report() const {
    if (took_.count() == 0) return "known from an earlier communicator";
    return "hwloc " + hwloc_version() + ", in " + print_time(took_);
}

// ---- All ranks' machines

namespace {

constexpr uint32_t no_numa = UINT32_MAX;
constexpr uint64_t most_node_bytes = uint64_t{1} << 20; // of a text; real ones have a few thousand
constexpr uint64_t most_piece = 4096;

uint64_t divided_up(uint64_t bytes, uint64_t parts) { return (bytes + parts - 1) / parts; }

} // namespace

// The text of a machine. Each rank that knows the text gives a part of it.
struct TopologyExchange::SharedText {
    uint64_t bytes = 0;
    std::vector<uint32_t> ranks = {};
    std::string text = {};

    uint64_t share() const { return divided_up(bytes, ranks.size()); }
    // The bytes [begin, end) that a rank gives in a round; `index` counts the ranks that know the
    // text.
    std::pair<uint64_t, uint64_t> part(size_t index, uint64_t round) const {
        const uint64_t end = std::min(bytes, (index + 1) * share());
        const uint64_t begin = std::min(end, index * share() + round * most_piece);
        return {begin, std::min(end, begin + most_piece)};
    }
};

// What a rank tells the others about its machine and its place there. Sent as bytes.
struct TopologyExchange::MachineNote {
    uint64_t hash = 0, bytes = 0; // of the text that the rank knows; 0: none yet
    uint32_t place = 0;           // a vertex of that text's graph
    uint32_t numa = no_numa;
};

TopologyExchange::TopologyExchange(uint32_t rank, std::vector<RankHost> hosts, std::string gpu)
    : rank_(rank), hosts_(std::move(hosts)), gpu_(std::move(gpu)) {
    std::map<uint32_t, uint32_t> first_of; // by host
    for (uint32_t each = 0; each < hosts_.size(); each++)
        leaders_.push_back(first_of.try_emplace(hosts_[each].host, each).first->second);
}

void TopologyExchange::publish(std::span<std::byte> memory) {
    if (node_->text.size() > std::min<uint64_t>(memory.size(), most_node_bytes))
        node_ = plain_machine_topology("its topology is larger than QCCL_ARENA");
    std::memcpy(memory.data(), node_->text.data(), node_->text.size());
}

TopologyExchange::MachineNote TopologyExchange::note() const {
    MachineNote mine;
    if (!node_) return mine;
    mine.hash = node_->hash;
    mine.bytes = node_->text.size();
    mine.place = place_of(node_->graph, allowed_cpus(), gpu_);
    mine.numa = numa_number(node_->graph, mine.place).value_or(no_numa);
    return mine;
}

Done TopologyExchange::gather_notes(const Gather &gather, std::vector<MachineNote> &notes) const {
    const MachineNote mine = note();
    return gather(&mine, notes.data(), sizeof mine);
}

Done TopologyExchange::learn_from(std::span<const std::byte> memory, const MachineNote &of_leader) {
    if (of_leader.bytes > std::min<uint64_t>(memory.size(), most_node_bytes))
        return Error::make(Code::internal_error,
                           "rank %u has a topology of %llu bytes; at most %llu are possible",
                           leaders_[rank_], static_cast<unsigned long long>(of_leader.bytes),
                           static_cast<unsigned long long>(most_node_bytes));
    std::string text(of_leader.bytes, '\0');
    std::memcpy(text.data(), memory.data(), text.size());
    QCCL_TRY(node_, read_machine_topology(std::move(text)));
    return {};
}

// Checks that every rank knows its leader's topology by now.
Done TopologyExchange::check_notes(const std::vector<MachineNote> &notes) const {
    for (uint32_t rank = 0; rank < notes.size(); rank++) {
        const MachineNote &leader = notes[leaders_[rank]];
        if (notes[rank].hash == leader.hash && notes[rank].bytes == leader.bytes &&
            leader.bytes <= most_node_bytes)
            continue;
        return Error::make(Code::internal_error,
                           "rank %u has another topology of its host than rank %u", rank,
                           leaders_[rank])
            .at_rank(rank);
    }
    return {};
}

Done TopologyExchange::gather_texts(const Gather &gather, Texts &texts) const {
    uint64_t share = 0;
    for (const auto &[hash, text] : texts) share = std::max(share, text.share());
    const size_t piece = std::min(share, most_piece);
    std::vector<char> mine(piece), all(piece * hosts_.size());
    const SharedText &own = texts[node_->hash];
    const auto own_index =
        static_cast<size_t>(std::ranges::find(own.ranks, rank_) - own.ranks.begin());
    for (uint64_t round = 0; round < divided_up(share, piece); round++) {
        const auto [begin, end] = own.part(own_index, round);
        std::memcpy(mine.data(), node_->text.data() + begin, end - begin);
        QCCL_TRY(gather(mine.data(), all.data(), piece));
        for (auto &[hash, text] : texts)
            for (size_t i = 0; i < text.ranks.size(); i++) {
                const auto [from, to] = text.part(i, round);
                std::memcpy(text.text.data() + from, all.data() + piece * text.ranks[i], to - from);
            }
    }
    return {};
}

Result<TopologyExchange::Nodes>
TopologyExchange::gather_nodes(const Gather &gather, const std::vector<MachineNote> &notes) const {
    Texts texts;
    for (uint32_t rank = 0; rank < notes.size(); rank++) {
        SharedText &text = texts[notes[rank].hash];
        if (text.ranks.empty()) text.bytes = notes[rank].bytes;
        if (text.bytes != notes[rank].bytes)
            return Error::make(Code::internal_error,
                               "ranks %u and %u have topologies of one hash and of different sizes",
                               text.ranks.front(), rank);
        text.ranks.push_back(rank);
    }
    for (auto &[hash, text] : texts) text.text.resize(text.bytes);
    if (texts.size() > 1) QCCL_TRY(gather_texts(gather, texts));
    Nodes nodes = {{node_->hash, node_}};
    for (auto &[hash, text] : texts) {
        if (nodes.contains(hash)) continue;
        QCCL_TRY(MachineTopologyRef node, read_machine_topology(std::move(text.text)));
        nodes.emplace(hash, std::move(node));
    }
    return nodes;
}

Result<AgreedTopology> TopologyExchange::merge(const std::vector<MachineNote> &notes,
                                               const Nodes &nodes) const {
    std::vector<JobMachine> machines; // by host
    for (uint32_t rank = 0; rank < notes.size(); rank++)
        if (leaders_[rank] == rank)
            machines.push_back({.graph = &nodes.at(notes[rank].hash)->graph,
                                .name = hosts_[rank].name,
                                .rack = hosts_[rank].rack});
    JobGraph job(machines);
    AgreedTopology agreed;
    JobTopology topology;
    for (uint32_t rank = 0; rank < notes.size(); rank++) {
        const MachineNote &note = notes[rank];
        const uint32_t host = hosts_[rank].host;
        if (note.place >= machines[host].graph->vertices().size())
            return Error::make(Code::internal_error, "rank %u is in no part of its host", rank)
                .at_rank(rank);
        topology.places.push_back(job.number_of(host, note.place));
        agreed.numas.push_back(note.numa == no_numa ? std::nullopt : std::optional(note.numa));
    }
    topology.graph = std::move(job).take();
    agreed.job = std::make_shared<const JobTopology>(std::move(topology));
    return agreed;
}

Result<AgreedTopology> TopologyExchange::run(MachineTopologyRef known, std::span<std::byte> own,
                                             std::span<const std::byte> leaders,
                                             const Gather &gather) {
    node_ = std::move(known);
    if (is_leader()) publish(own);
    std::vector<MachineNote> notes(hosts_.size());
    QCCL_TRY(gather_notes(gather, notes));
    const auto has_to_learn = [&](uint32_t rank) {
        return notes[rank].hash != notes[leaders_[rank]].hash;
    };
    bool does_any_learn = false;
    for (uint32_t rank = 0; rank < notes.size(); rank++)
        does_any_learn = does_any_learn || has_to_learn(rank);
    if (does_any_learn) {
        if (has_to_learn(rank_)) QCCL_TRY(learn_from(leaders, notes[leaders_[rank_]]));
        QCCL_TRY(gather_notes(gather, notes));
    }
    QCCL_TRY(check_notes(notes));
    QCCL_TRY(const Nodes nodes, gather_nodes(gather, notes));
    return merge(notes, nodes);
}

// ---- The interface's implementation

namespace {

class GraphLinks final : public JobLinks {
public:
    explicit GraphLinks(std::shared_ptr<const JobTopology> job) : job_(std::move(job)) {}

    RingOrders rings() const override { return rings_of(*job_); }
    void take_remote_link(const Settings &settings, CostModel &cost_model) const override {
        if (const auto link = remote_link(*job_)) apply_link(*link, settings, cost_model);
    }
    SharedLinks shared_links() const override { return qccl::shared_links(*job_); }
    LinkClassOf link_classes() const override { return link_class_of(job_); }

private:
    const std::shared_ptr<const JobTopology> job_;
};

class GraphAgreement final : public TopologyAgreement {
public:
    GraphAgreement(uint32_t rank, std::vector<RankHost> hosts, std::string gpu,
                   MachineRequest question)
        : exchange_(rank, std::move(hosts), std::move(gpu)), question_(std::move(question)) {
        if (exchange_.is_leader()) discovery_.start(question_);
    }

    Result<JoinedTopology> join(std::span<std::byte> own, std::span<const std::byte> leaders,
                                const Gather &gather) override {
        MachineTopologyRef known =
            exchange_.is_leader() ? discovery_.finish() : known_machine_topology(question_);
        QCCL_TRY(AgreedTopology agreed, exchange_.run(std::move(known), own, leaders, gather));
        const MachineTopologyRef &node = exchange_.node();
        keep_machine_topology(question_, node);
        return JoinedTopology{.links = std::make_shared<GraphLinks>(std::move(agreed.job)),
                              .numas = std::move(agreed.numas),
                              .warning = node->warning,
                              .origin = node->origin,
                              .discovery =
                                  exchange_.is_leader() ? discovery_.report() : std::string()};
    }

private:
    TopologyExchange exchange_;
    const MachineRequest question_;
    MachineDiscovery discovery_; // runs on each host's first rank
};

class GraphSource final : public TopologySource {
public:
    std::unique_ptr<TopologyAgreement> begin(uint32_t rank, std::vector<RankHost> hosts,
                                             std::string gpu, const Settings &settings,
                                             bool has_gpus) const override {
        return std::make_unique<GraphAgreement>(rank, std::move(hosts), std::move(gpu),
                                                machine_request(settings, has_gpus));
    }
    Result<FoundCalibration> find_calibration(const Settings &settings) const override {
        return qccl::find_calibration(settings);
    }
};

} // namespace

const TopologySource &topology_source() {
    static const GraphSource source;
    return source;
}

} // namespace qccl
