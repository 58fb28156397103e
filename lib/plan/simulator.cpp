#include "plan/simulator.hpp"

#include "plan/activities.hpp"
#include "plan/simulated_rank.hpp"

#include <algorithm>
#include <deque>

namespace qccl {

namespace {

using Kind = SimulatedSpan::Kind;
constexpr uint32_t none = ~uint32_t{0};

struct Message {
    uint32_t from = 0, to = 0; // classes
    uint32_t task = 0;         // of the receiver
    uint64_t instance = 0, bytes = 0;
    WireOrigin origin; // where the bytes lie
    PathTimes path;
    double begin_ns = 0;
    const RankClasses::Peer *peer = nullptr; // the sender's
    uint32_t next = none;                    // of the stream
};

// The messages from one rank to another, in order; the first one is on the links.
struct Stream {
    uint32_t first = none, last = none; // messages
};

// The first rank of a class.
struct Node {
    explicit Node(SimulatedRank r) : rank(std::move(r)) {}

    SimulatedRank rank;
    SimulatedRank::Choice task; // that it does
    bool is_busy = false, is_woken = false;
    PathTimes path;      // until now, or until it had nothing to do
    double since_ns = 0; // that it has been busy, or has not
    double busy_ns = 0, finish_ns = 0;
    uint64_t sent_bytes = 0;
};

class Simulator {
public:
    Simulator(const RankClasses &classes, const SimulationOptions &options)
        : classes_(classes), options_(options) {
        for (const RankClasses::Link &link : classes.links) activities_.add_link(link.capacity);
        busy_.resize(classes.links.size());
        nodes_.reserve(classes.classes.size());
        for (uint32_t i = 0; i < classes.classes.size(); i++)
            nodes_.emplace_back(SimulatedRank(i, classes.program(i), classes.shape.instances()));
    }

    Done run() {
        for (uint32_t node = 0; node < nodes_.size(); node++) wake(node, {});
        while (true) {
            while (!woken_.empty()) {
                const uint32_t node = woken_.front();
                woken_.pop_front();
                nodes_[node].is_woken = false;
                advance(node);
            }
            const auto event = activities_.next();
            if (!event) break;
            switch (event->kind) {
            case Activities::Kind::task: go_on(event->subject); break;
            case Activities::Kind::stream: pass_on(*event); break;
            case Activities::Kind::arrival: arrive(event->subject); break;
            }
        }
        for (uint32_t node = 0; node < nodes_.size(); node++)
            if (!nodes_[node].rank.is_done())
                return Error::make(Code::internal_error, "rank %u waits for ever",
                                   classes_.classes[node].first_rank);
        return {};
    }

    Simulation sum_up(const Fabric &fabric) const {
        Simulation s;
        s.classes = static_cast<uint32_t>(nodes_.size());
        s.geometry = classes_.shape.geometry();
        for (const uint32_t node : classes_.class_of) s.finish_ns.push_back(nodes_[node].finish_ns);
        for (uint32_t i = 0; i < nodes_.size(); i++) {
            const Node &node = nodes_[i];
            s.wire_bytes = std::max(s.wire_bytes, node.sent_bytes);
            s.compute_ns = std::max(s.compute_ns, node.busy_ns);
            s.messages += sent_[i] * classes_.classes[i].ranks;
            if (i != 0 && node.finish_ns <= s.time_ns) continue;
            s.time_ns = node.finish_ns;
            s.critical = node.path;
        }
        for (uint32_t i = 0; i < busy_.size(); i++) {
            const RankClasses::Link &link = classes_.links[i];
            if (busy_[i] == 0) continue;
            s.links.push_back({.name = link.is_cores
                                           ? "host " + std::to_string(link.first) + "'s cores"
                                           : fabric.link_name(link.first),
                               .count = link.count,
                               .is_cores = link.is_cores,
                               .busy_ns = busy_[i] / link.capacity});
        }
        std::stable_sort(s.links.begin(), s.links.end(),
                         [](const auto &a, const auto &b) { return a.busy_ns > b.busy_ns; });
        return s;
    }

private:
    double now() const { return activities_.now(); }
    uint32_t first_rank(uint32_t node) const { return classes_.classes[node].first_rank; }
    const RankClasses::Peer &peer_of(uint32_t node, const RankProgram::Task &task) const {
        return classes_.peer(node, task.peer);
    }
    const RankProgram::Task &task_of(const Node &node) const {
        return node.rank.program().tasks[node.task.task];
    }

    // Something may have become possible for the rank, after what took `path`.
    void wake(uint32_t number, const PathTimes &path) {
        Node &node = nodes_[number];
        if (node.is_busy || node.is_woken) return;
        node.is_woken = true;
        waker_[number] = path;
        woken_.push_back(number);
    }

    void go_on(uint32_t number) {
        end_task(number);
        advance(number);
    }

    void advance(uint32_t number) {
        Node &node = nodes_[number];
        while (!node.is_busy) {
            const auto choice = node.rank.choose();
            if (!choice) return;
            if (node.since_ns < now()) {
                tell({.kind = Kind::wait, .rank = first_rank(number), .begin_ns = node.since_ns});
                node.path = waker_[number];
                node.since_ns = now();
            }
            node.task = *choice;
            node.is_busy = true;
            begin_task(number, node);
        }
    }

    void begin_task(uint32_t number, Node &node) {
        const double cost = cost_of(number, node);
        const RankClasses::Class &own = classes_.classes[number];
        if (cost == 0) return end_task(number);
        if (own.core == RankClasses::none) return activities_.begin_task(number, cost);
        const FairShare::Use use{own.core, own.core_weight};
        busy_[own.core] += cost * own.core_weight;
        activities_.begin_shared_task(number, cost, use);
    }

    double cost_of(uint32_t number, const Node &node) const {
        const RankProgram::Task &task = task_of(node);
        if (computes(task.verb)) {
            const uint64_t instance = node.rank.instance(node.task.lane);
            return task.ns_per_value *
                   static_cast<double>(classes_.shape.count(task.length, instance));
        }
        const RankClasses::Peer &peer = peer_of(number, task);
        if (task.verb == Verb::send) return peer.send_ns;
        return classes_.peer(peer.peer_class, peer.number).recv_ns;
    }

    void end_task(uint32_t number) {
        Node &node = nodes_[number];
        const RankProgram::Task task = task_of(node);
        const uint32_t lane = node.task.lane;
        const double took = now() - node.since_ns;
        (computes(task.verb) ? node.path.compute_ns : node.path.handling_ns) += took;
        node.busy_ns += took;
        tell_task(number, node, task);
        node.since_ns = now();
        node.is_busy = false;
        if (task.verb == Verb::send) send(number, node, task);
        for (uint32_t i = task.releases_first; i < task.releases_last; i++)
            release(node.rank.origin(lane, node.rank.program().slots[i]), node.path);
        const uint64_t instance = node.rank.instance(lane);
        node.rank.finish(node.task);
        if (node.rank.is_done()) node.finish_ns = now();
        if (options_.progress && (node.rank.is_done() || node.rank.instance(lane) != instance))
            options_.progress(++instances_done_, nodes_.size() * classes_.shape.instances());
    }

    void send(uint32_t number, Node &node, const RankProgram::Task &task) {
        const RankClasses::Peer &peer = peer_of(number, task);
        const uint64_t instance = node.rank.instance(node.task.lane);
        Message message{
            .from = number,
            .to = peer.peer_class,
            .task = classes_.program(peer.peer_class).receive_task(peer.number, task.ordinal),
            .instance = instance,
            .bytes = classes_.shape.bytes(task.length, instance, task.is_inner),
            .origin = node.rank.origin(node.task.lane, task.wire),
            .path = node.path,
            .begin_ns = now(),
            .peer = &peer};
        if (message.origin.rank != WireOrigin::nowhere)
            nodes_[message.origin.rank].rank.hold(message.origin.slot);
        node.sent_bytes += message.bytes;
        sent_[number]++;
        const uint32_t at = keep(message);
        const auto uses =
            std::span(classes_.uses).subspan(peer.uses_first, peer.uses_last - peer.uses_first);
        if (uses.empty()) return end_wire(at);
        const auto bytes = static_cast<double>(message.bytes);
        for (const FairShare::Use &use : uses) busy_[use.link] += bytes * use.weight;
        const auto number_of_stream = static_cast<uint32_t>(&peer - classes_.peers.data());
        Stream &stream = streams_[number_of_stream];
        if (stream.first == none) {
            stream.first = at;
            activities_.begin_stream(number_of_stream, bytes, uses);
        } else {
            messages_[stream.last].next = at;
        }
        stream.last = at;
    }

    // The first message of the stream has left the links.
    void pass_on(const Activities::Event &event) {
        Stream &stream = streams_[event.subject];
        const uint32_t at = stream.first;
        stream.first = messages_[at].next;
        if (stream.first == none)
            activities_.end_stream(event);
        else
            activities_.continue_stream(event, static_cast<double>(messages_[stream.first].bytes));
        end_wire(at);
    }

    uint32_t keep(const Message &message) {
        if (free_.empty()) {
            free_.push_back(static_cast<uint32_t>(messages_.size()));
            messages_.emplace_back();
        }
        const uint32_t at = free_.back();
        free_.pop_back();
        messages_[at] = message;
        return at;
    }

    // The bytes have left the links. In another host's memory they are nobody's but the receiver's.
    void end_wire(uint32_t at) {
        Message &message = messages_[at];
        message.path.wire_ns += now() - message.begin_ns;
        if (!message.peer->is_by_reference) {
            release(message.origin, message.path);
            message.origin = {};
        }
        message.path.latency_ns += message.peer->latency_ns;
        activities_.begin_arrival(at, message.peer->latency_ns);
    }

    void arrive(uint32_t at) {
        const Message message = messages_[at];
        free_.push_back(at);
        tell({.kind = Kind::wire,
              .rank = first_rank(message.from),
              .peer = first_rank(message.to),
              .instance = message.instance,
              .bytes = message.bytes,
              .begin_ns = message.begin_ns});
        nodes_[message.to].rank.arrive(message.task, message.instance, message.origin);
        wake(message.to, message.path);
    }

    void release(const WireOrigin &origin, const PathTimes &path) {
        if (origin.rank == WireOrigin::nowhere) return;
        if (nodes_[origin.rank].rank.release(origin.slot)) wake(origin.rank, path);
    }

    // Ends now.
    void tell(SimulatedSpan span) const {
        span.end_ns = now();
        if (options_.trace && span.end_ns > span.begin_ns) options_.trace(span);
    }

    // The steps of a task come one after the other, each with its share of the time.
    void tell_task(uint32_t number, const Node &node, const RankProgram::Task &task) const {
        if (!options_.trace) return;
        SimulatedSpan span{.kind = Kind::handle,
                           .verb = task.verb,
                           .rank = first_rank(number),
                           .instance = node.rank.instance(node.task.lane),
                           .begin_ns = node.since_ns,
                           .end_ns = now()};
        if (!computes(task.verb)) {
            span.peer = first_rank(peer_of(number, task).peer_class);
            span.bytes = classes_.shape.bytes(task.length, span.instance, task.is_inner);
            return tell(span);
        }
        span.kind = Kind::compute;
        const double scale = (now() - node.since_ns) / task.ns_per_value;
        for (uint32_t i = task.pieces_first; i < task.pieces_last; i++) {
            const RankProgram::Piece &piece = node.rank.program().pieces[i];
            span.verb = piece.verb;
            span.end_ns = span.begin_ns + piece.ns_per_value * scale;
            if (span.end_ns > span.begin_ns) options_.trace(span);
            span.begin_ns = span.end_ns;
        }
    }

    const RankClasses &classes_;
    const SimulationOptions &options_;
    Activities activities_;
    std::vector<Node> nodes_;
    std::vector<PathTimes> waker_ = std::vector<PathTimes>(classes_.classes.size());
    std::vector<uint64_t> sent_ = std::vector<uint64_t>(classes_.classes.size());
    std::vector<double> busy_; // of each link, what it has carried
    std::vector<Stream> streams_ = std::vector<Stream>(classes_.peers.size());
    std::vector<Message> messages_;
    std::vector<uint32_t> free_;
    std::deque<uint32_t> woken_;
    uint64_t instances_done_ = 0;
};

} // namespace

Result<Simulation> simulate(const SimulatedCall &call, const Fabric &fabric,
                            const SimulationOptions &options) {
    QCCL_TRY(const RankClasses classes,
             find_rank_classes(call, fabric, options.merging, options.progress));
    Simulator simulator(classes, options);
    QCCL_TRY(simulator.run());
    return simulator.sum_up(fabric);
}

} // namespace qccl
