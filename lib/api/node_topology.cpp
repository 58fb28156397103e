// Implements what the process knows of its machine: asks hwloc in a thread, and keeps the answer.
#include "api/node_topology.hpp"

#include "base/exception_boundary.hpp"
#include "base/short_text.hpp"
#include "bootstrap/interfaces.hpp"
#include "topology/graph_text.hpp"
#include "topology/hwloc_source.hpp"
#include "topology/hwloc_tree.hpp"

#include <mutex>
#include <utility>

#include <pthread.h>

namespace qccl {

namespace {

// Never destroyed, because a process may fork while it ends. The mutex is held while hwloc loads,
// and a fork takes the mutex first, because a child forked meanwhile would find hwloc's own locks
// held for ever.
struct KnownNode {
    std::mutex mutex;
    NodeQuestion question;
    NodeTopologyRef topology;
};

KnownNode &known_node() {
    static KnownNode *const known = [] {
        pthread_atfork([] { known_node().mutex.lock(); }, [] { known_node().mutex.unlock(); },
                       [] { known_node().mutex.unlock(); });
        return new KnownNode;
    }();
    return *known;
}

NodeTopology with_text(const Graph &graph) {
    NodeTopology topology{.graph = named(graph, ""), .text = {}};
    topology.text = print_graph_text(topology.graph);
    topology.hash = hash_text(topology.text);
    return topology;
}

NodeTopologyRef discover_node(const NodeQuestion &question) {
    DiscoveredMachine machine =
        discover_machine(question.has_gpus ? GpuLinks::asked_for : GpuLinks::left_out);
    NetworkChoice choice = question.network;
    // A setting that names no interface is refused later, when the ranks connect.
    if (const auto endpoints = choose_endpoints(question.interfaces))
        choice.interfaces = interfaces_with(*endpoints);
    NodeTopology topology = with_text(connect_to_network(machine.graph, list_ports(), choice));
    topology.warning = std::move(machine.warning);
    topology.origin = std::move(machine.instead_of_hardware);
    return std::make_shared<const NodeTopology>(std::move(topology));
}

} // namespace

NodeQuestion node_question(const Settings &settings, bool has_gpus) {
    return {.interfaces = settings.socket_interface.value_or(""),
            .network = network_choice(settings),
            .has_gpus = has_gpus};
}

NodeTopologyRef known_node_topology(const NodeQuestion &question) {
    KnownNode &known = known_node();
    const std::lock_guard guard(known.mutex);
    return known.question == question ? known.topology : nullptr;
}

void keep_node_topology(const NodeQuestion &question, const NodeTopologyRef &topology) {
    NodeTopology kept = *topology; // without the sentences that were logged by now
    kept.warning.clear();
    kept.origin.clear();
    KnownNode &known = known_node();
    const std::lock_guard guard(known.mutex);
    known.question = question;
    known.topology = std::make_shared<const NodeTopology>(std::move(kept));
}

NodeTopologyRef plain_node_topology(const char *why) {
    NodeTopology topology = with_text(plain_machine(allowed_cpus()));
    topology.warning = std::string("this machine counts as one NUMA node: ") + why;
    return std::make_shared<const NodeTopology>(std::move(topology));
}

Result<NodeTopologyRef> read_node_topology(std::string text) {
    NodeTopology topology;
    QCCL_TRY(topology.graph, parse_graph_text(text, "the topology from another rank"));
    topology.hash = hash_text(text);
    topology.text = std::move(text);
    return std::make_shared<const NodeTopology>(std::move(topology));
}

void NodeDiscovery::start(const NodeQuestion &question) {
    question_ = question;
    found_ = known_node_topology(question);
    if (found_) return;
    auto thread = ServiceThread::start(topology_thread_name, [this] {
        const Done done = exception_boundary([&]() -> Done {
            const std::lock_guard guard(known_node().mutex);
            found_ = discover_node(question_);
            return {};
        });
        if (!done) found_ = nullptr;
    });
    if (thread) thread_ = std::move(*thread);
}

NodeTopologyRef NodeDiscovery::finish() {
    thread_.join();
    if (!found_) found_ = plain_node_topology("there is no memory or no thread to look at it");
    return found_;
}

} // namespace qccl
