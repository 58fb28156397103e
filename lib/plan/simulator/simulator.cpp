// The event queue never removes a timer: next() skips it if its flow has ended, and sets it again
// if its flow ends later than the timer says. In the event loop, ranks that are idle wake when
// something happens that they may have waited for.
#include "plan/simulator/simulator.hpp"

#include "base/types.hpp"
#include "plan/simulator/fabric.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

namespace qccl {

// ---- Event queue

void Activities::begin(const Event &event, double amount,
                       std::span<const FairShare::LinkShare> uses, double most_rate) {
    const uint32_t number = shares_.begin(uses, most_rate);
    if (number == flows_.size()) flows_.emplace_back();
    ActiveFlow &flow = flows_[number];
    flow = {.event = {event.kind, event.subject, number},
            .stamp = flow.stamp + 1,
            .left = amount,
            .since = now_,
            .timer = std::numeric_limits<double>::infinity()};
    is_settled_ = false;
}

void Activities::end(uint32_t number) {
    flows_[number].stamp++;
    shares_.end(number);
    is_settled_ = false;
}

// The stream keeps its flow, so the rates of other flows on these links do not change.
void Activities::continue_stream(const Event &ended, double bytes) {
    ActiveFlow &flow = flows_[ended.flow];
    flow.left = bytes;
    flow.since = now_;
    flow.end = now_ + bytes / flow.rate;
    set_timer(ended.flow);
}

// Computes rates only once for all changes that happen at the same time.
void Activities::settle() {
    if (is_settled_) return;
    is_settled_ = true;
    shares_.settle([&](uint32_t number) {
        ActiveFlow &flow = flows_[number];
        flow.left -= flow.rate * (now_ - flow.since);
        if (flow.left < 0) flow.left = 0;
        flow.since = now_;
        flow.rate = shares_.rate(number);
        flow.end = now_ + flow.left / flow.rate;
        if (flow.end < flow.timer) set_timer(number);
    });
}

// A timer that has become too early is set again when it expires.
void Activities::set_timer(uint32_t number) {
    ActiveFlow &flow = flows_[number];
    flow.timer = flow.end;
    timers_.push({flow.end, order_++, flow.event, flow.stamp});
}

std::optional<Activities::Event> Activities::next() {
    while (true) {
        if (timers_.empty() || timers_.top().time > now_) settle();
        if (timers_.empty()) return {};
        const Timer timer = timers_.top();
        timers_.pop();
        if (timer.event.flow != no_flow) {
            const ActiveFlow &flow = flows_[timer.event.flow];
            if (flow.stamp != timer.stamp || timer.time != flow.timer) continue;
            if (flow.end > timer.time) {
                set_timer(timer.event.flow);
                continue;
            }
        }
        now_ = timer.time;
        if (timer.event.kind == Kind::task && timer.event.flow != no_flow) end(timer.event.flow);
        return timer.event;
    }
}

// ---- Event loop

namespace {

using Kind = SimulatedSpan::Kind;
constexpr uint32_t none = SimulatedMessage::none;

class Simulator {
public:
    Simulator(const RankClasses &classes, const SimulationOptions &options)
        : classes_(classes), options_(options), calls_(options.lead_in + options.calls) {
        for (const RankClasses::LinkGroup &link : classes.links) {
            activities_.add_link(link.capacity);
            buckets_.add_link(link.capacity, link.burst_bytes, options.burst_share);
        }
        busy_.resize(classes.links.size());
        nodes_.reserve(classes.classes.size());
        for (uint32_t i = 0; i < classes.classes.size(); i++)
            nodes_.emplace_back(SimulatedRank(i, classes.program(i), classes.shape.instances(),
                                              calls_, classes.shape.geometry().lanes));
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
            if (nodes_[node].has_call || nodes_[node].rank.has_more_calls())
                return Error::make(Code::internal_error, "rank %u waits for ever",
                                   classes_.classes[node].first_rank);
        return {};
    }

    Simulation sum_up(const Fabric &fabric) {
        Simulation s;
        s.burst_share = buckets_.least_share(now());
        s.classes = static_cast<uint32_t>(nodes_.size());
        s.geometry = classes_.shape.geometry();
        for (const uint32_t node : classes_.class_of) {
            s.finish_ns.push_back(nodes_[node].finish_ns);
            s.busy_ns.push_back(nodes_[node].busy_ns / calls_);
        }
        const double counted = options_.calls;
        for (uint32_t i = 0; i < nodes_.size(); i++) {
            const SimulatedNode &node = nodes_[i];
            s.wire_bytes = std::max(s.wire_bytes, node.sent_bytes / calls_);
            s.compute_ns = std::max(s.compute_ns, node.busy_ns / calls_);
            s.messages += sent_[i] * classes_.classes[i].ranks / calls_;
            const double took = (node.finish_ns - node.counted_ns) / counted;
            if (i != 0 && took <= s.time_ns) continue;
            s.time_ns = took;
            // Calls overlap, so the path to the end of the last call need not pass the end of the
            // first that counts: what came before cannot be subtracted.
            s.critical = node.path.scaled_to(took);
        }
        for (uint32_t i = 0; i < busy_.size(); i++) {
            const RankClasses::LinkGroup &link = classes_.links[i];
            if (busy_[i] == 0) continue;
            s.links.push_back({.name = link.is_cores ? fabric.cores_name(link.first)
                                                     : fabric.link_name(link.first),
                               .count = link.count,
                               .is_cores = link.is_cores,
                               .busy_ns = busy_[i] / link.capacity / calls_});
        }
        std::stable_sort(s.links.begin(), s.links.end(),
                         [](const auto &a, const auto &b) { return a.busy_ns > b.busy_ns; });
        return s;
    }

private:
    double now() const { return activities_.now(); }
    uint32_t first_rank(uint32_t node) const { return classes_.classes[node].first_rank; }
    const RankClasses::ClassPeer &peer_of(uint32_t node,
                                          const RankProgram::SimulatedTask &task) const {
        return classes_.peer(node, task.peer);
    }
    const RankProgram::SimulatedTask &task_of(const SimulatedNode &node) const {
        return node.rank.program().tasks[node.task.task];
    }

    // The rank may be able to go on; `path` is what led to that.
    void wake(uint32_t number, const PathTimes &path) {
        SimulatedNode &node = nodes_[number];
        if (node.work != SimulatedNode::Work::nothing || node.is_woken) return;
        node.is_woken = true;
        waker_[number] = path;
        woken_.push_back(number);
    }

    void go_on(uint32_t number) {
        end_work(number);
        advance(number);
    }

    void advance(uint32_t number) {
        SimulatedNode &node = nodes_[number];
        while (node.work == SimulatedNode::Work::nothing) {
            if (node.has_call && node.rank.has_ended()) end_call(node);
            const SimulatedNode::Work next = next_work(node);
            if (next == SimulatedNode::Work::nothing) return;
            if (node.since_ns < now()) {
                tell({.kind = Kind::wait, .rank = first_rank(number), .begin_ns = node.since_ns});
                node.path = waker_[number];
                node.since_ns = now();
            }
            node.work = next;
            begin_work(number, node);
        }
    }

    SimulatedNode::Work next_work(SimulatedNode &node) {
        if (node.pieces_ns > 0) return SimulatedNode::Work::receive_pieces;
        if (!node.has_call)
            return node.rank.has_more_calls() ? SimulatedNode::Work::begin_call
                                              : SimulatedNode::Work::nothing;
        const auto choice = node.rank.choose();
        if (!choice) return SimulatedNode::Work::nothing;
        node.task = *choice;
        node.sent = 0;
        return SimulatedNode::Work::task;
    }

    // An idle rank ends its call when the event in `waker_` arrives, so that event's path counts.
    void end_call(SimulatedNode &node) {
        node.has_call = false;
        node.finish_ns = now();
        const auto number = static_cast<size_t>(&node - nodes_.data());
        if (node.since_ns < now()) node.path = waker_[number];
        node.since_ns = now();
        if (node.rank.call() + 1 == options_.lead_in) node.counted_ns = now();
    }

    void begin_work(uint32_t number, SimulatedNode &node) {
        const double cost = cost_of(number, node);
        const RankClasses::Class &own = classes_.classes[number];
        if (cost == 0) return end_work(number);
        if (own.core == RankClasses::none) return activities_.begin_task(number, cost);
        const FairShare::LinkShare use{own.core, own.core_weight};
        busy_[own.core] += cost * own.core_weight;
        activities_.begin_shared_task(number, cost, use);
    }

    double cost_of(uint32_t number, SimulatedNode &node) const {
        if (node.work == SimulatedNode::Work::begin_call) return classes_.call_ns;
        if (node.work == SimulatedNode::Work::receive_pieces)
            return std::exchange(node.pieces_ns, 0);
        const RankProgram::SimulatedTask &task = task_of(node);
        const uint64_t instance = node.rank.instance(node.task.lane);
        if (computes(task.verb)) {
            const auto values = static_cast<double>(classes_.shape.count(task.length, instance));
            return task.chunk_ns + task.ns_per_value * values;
        }
        const RankClasses::ClassPeer &peer = peer_of(number, task);
        const double bytes = bytes_of(task, instance);
        // The message goes in one batch with the one before it.
        const bool is_batched =
            !peer.is_by_reference &&
            task.place_in_series % messages_per_batch(static_cast<uint64_t>(bytes)) != 0;
        if (task.verb == Verb::recv) {
            // The other pieces have been handled already.
            const RankClasses::ClassPeer &sender = classes_.peer(peer.peer_class, peer.number);
            return (is_batched ? 0 : sender.recv.message_ns) +
                   MessagePieces(sender, bytes).last() * sender.recv.byte_ns;
        }
        return (node.sent == 0 && !is_batched ? peer.send.message_ns : 0) +
               MessagePieces(peer, bytes).next(node.sent) * peer.send.byte_ns;
    }

    double bytes_of(const RankProgram::SimulatedTask &task, uint64_t instance) const {
        return static_cast<double>(classes_.shape.bytes(task.length, instance, task.is_inner));
    }

    void end_work(uint32_t number) {
        SimulatedNode &node = nodes_[number];
        const SimulatedNode::Work work = std::exchange(node.work, SimulatedNode::Work::nothing);
        const bool is_task = work == SimulatedNode::Work::task;
        const RankProgram::SimulatedTask *const task = is_task ? &task_of(node) : nullptr;
        const double took = now() - node.since_ns;
        const bool has_computed =
            work == SimulatedNode::Work::begin_call || (task && computes(task->verb));
        (has_computed ? node.path.compute_ns : node.path.handling_ns) += took;
        node.busy_ns += took;
        if (task) tell_task(number, node, *task);
        node.since_ns = now();
        if (work == SimulatedNode::Work::begin_call) node.begin_call();
        if (task) end_task(number, node, *task);
    }

    void end_task(uint32_t number, SimulatedNode &node, const RankProgram::SimulatedTask &task) {
        if (task.verb == Verb::send && !send_piece(number, node, task)) {
            node.work = SimulatedNode::Work::task;
            return begin_work(number, node);
        }
        const uint32_t lane = node.task.lane;
        for (uint32_t i = task.releases_first; i < task.releases_last; i++)
            release(node.rank.origin(lane, node.rank.program().slots[i]), node.path);
        const uint64_t instance = node.rank.instance(lane);
        node.rank.finish(node.task);
        if (options_.progress && (node.rank.is_over(lane) || node.rank.instance(lane) != instance))
            options_.progress(++instances_done_,
                              nodes_.size() * classes_.shape.instances() * calls_);
    }

    // Returns true if it was the last piece.
    bool send_piece(uint32_t number, SimulatedNode &node, const RankProgram::SimulatedTask &task) {
        const RankClasses::ClassPeer &peer = peer_of(number, task);
        const uint64_t instance = node.rank.instance(node.task.lane);
        const double bytes = bytes_of(task, instance);
        const double piece = MessagePieces(peer, bytes).next(node.sent);
        node.sent += piece;
        SimulatedMessage message{
            .from = number,
            .to = peer.peer_class,
            .call = node.rank.call(),
            .task = classes_.program(peer.peer_class).receive_task(peer.number, task.ordinal),
            .instance = instance,
            .bytes = piece,
            .is_last = node.sent == bytes,
            .work_ns = piece * peer.recv.byte_ns,
            .latency_ns = peer.latency_ns +
                          (bytes > static_cast<double>(peer.eager_bytes) ? peer.rendezvous_ns : 0),
            .origin = node.rank.origin(node.task.lane, task.wire),
            .path = node.path,
            .begin_ns = now(),
            .peer = &peer};
        if (message.origin.rank != WireOrigin::nowhere)
            nodes_[message.origin.rank].rank.hold(message.origin.slot);
        const bool is_last = message.is_last;
        if (is_last) {
            node.sent_bytes += static_cast<uint64_t>(bytes);
            sent_[number]++;
        }
        put_on_links(message);
        return is_last;
    }

    std::span<const FairShare::LinkShare> uses_of(const RankClasses::ClassPeer &peer) const {
        return std::span(classes_.uses).subspan(peer.uses_first, peer.uses_last - peer.uses_first);
    }

    void put_on_links(const SimulatedMessage &message) {
        const RankClasses::ClassPeer &peer = *message.peer;
        const uint32_t at = keep(message);
        const auto uses = uses_of(peer);
        if (uses.empty()) return end_wire(at);
        for (const FairShare::LinkShare &use : uses) busy_[use.link] += message.bytes * use.weight;
        const auto number = static_cast<uint32_t>(&peer - classes_.peers.data());
        MessageStream &stream = streams_[number];
        if (stream.first != none) {
            messages_[stream.last].next = at;
            stream.last = at;
            return;
        }
        const double left = buckets_.take(uses, message.bytes, now());
        if (left == 0) return end_wire(at);
        stream.first = stream.last = at;
        buckets_.begin(uses, now());
        activities_.begin_stream(number, left, uses);
    }

    // The first message of the stream has left the links, and the next one follows.
    void pass_on(const Activities::Event &event) {
        MessageStream &stream = streams_[event.subject];
        const uint32_t at = stream.first;
        stream.first = messages_[at].next;
        if (stream.first == none) {
            buckets_.end(uses_of(classes_.peers[event.subject]), now());
            activities_.end_stream(event);
        } else {
            activities_.continue_stream(event, messages_[stream.first].bytes);
        }
        end_wire(at);
    }

    uint32_t keep(const SimulatedMessage &message) {
        if (free_.empty()) {
            free_.push_back(static_cast<uint32_t>(messages_.size()));
            messages_.emplace_back();
        }
        const uint32_t at = free_.back();
        free_.pop_back();
        messages_[at] = message;
        return at;
    }

    // The bytes have left the links. In another host's memory only the receiver needs them.
    void end_wire(uint32_t at) {
        SimulatedMessage &message = messages_[at];
        message.path.wire_ns += now() - message.begin_ns;
        if (!message.peer->is_by_reference) {
            release(message.origin, message.path);
            message.origin = {};
        }
        message.path.latency_ns += message.latency_ns;
        activities_.begin_arrival(at, message.latency_ns);
    }

    void arrive(uint32_t at) {
        const SimulatedMessage message = messages_[at];
        free_.push_back(at);
        tell({.kind = Kind::wire,
              .rank = first_rank(message.from),
              .peer = first_rank(message.to),
              .instance = message.instance,
              .bytes = static_cast<uint64_t>(message.bytes),
              .begin_ns = message.begin_ns});
        SimulatedNode &receiver = nodes_[message.to];
        if (message.is_last)
            receiver.rank.arrive({message.call, message.task, message.instance, message.origin});
        else
            receiver.pieces_ns += message.work_ns;
        wake(message.to, message.path);
    }

    void release(const WireOrigin &origin, const PathTimes &path) {
        if (origin.rank == WireOrigin::nowhere) return;
        if (nodes_[origin.rank].rank.release(origin.slot)) wake(origin.rank, path);
    }

    // Reports a span that ends now.
    void tell(SimulatedSpan span) const {
        span.end_ns = now();
        if (options_.trace && span.end_ns > span.begin_ns) options_.trace(span);
    }

    // Reports the steps of a task one after the other, each with its share of the time.
    void tell_task(uint32_t number, const SimulatedNode &node,
                   const RankProgram::SimulatedTask &task) const {
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
        const auto values = static_cast<double>(classes_.shape.count(task.length, span.instance));
        const double each = task.chunk_ns / (task.pieces_last - task.pieces_first);
        const double scale = (now() - node.since_ns) / (task.chunk_ns + task.ns_per_value * values);
        for (uint32_t i = task.pieces_first; i < task.pieces_last; i++) {
            const RankProgram::ComputeStep &piece = node.rank.program().pieces[i];
            span.verb = piece.verb;
            span.end_ns = span.begin_ns + (each + piece.ns_per_value * values) * scale;
            if (span.end_ns > span.begin_ns) options_.trace(span);
            span.begin_ns = span.end_ns;
        }
    }

    const RankClasses &classes_;
    const SimulationOptions &options_;
    const uint32_t calls_;
    Activities activities_;
    std::vector<SimulatedNode> nodes_;
    std::vector<PathTimes> waker_ = std::vector<PathTimes>(classes_.classes.size());
    std::vector<uint64_t> sent_ = std::vector<uint64_t>(classes_.classes.size());
    TokenBuckets buckets_;     // by link
    std::vector<double> busy_; // by link: bytes carried, or time of cores used
    std::vector<MessageStream> streams_ = std::vector<MessageStream>(classes_.peers.size());
    std::vector<SimulatedMessage> messages_;
    std::vector<uint32_t> free_;
    std::deque<uint32_t> woken_;
    uint64_t instances_done_ = 0;
};

} // namespace

PathTimes PathTimes::scaled_to(double ns) const {
    const double factor = sum() > 0 ? ns / sum() : 0;
    return {.compute_ns = factor * compute_ns,
            .handling_ns = factor * handling_ns,
            .wire_ns = factor * wire_ns,
            .latency_ns = factor * latency_ns};
}

Result<Simulation> simulate(const SimulatedCall &call, const Fabric &fabric,
                            const SimulationOptions &options) {
    QCCL_TRY(const RankClasses classes,
             find_rank_classes(call, fabric, options.merging, options.progress));
    Simulator simulator(classes, options);
    QCCL_TRY(simulator.run());
    return simulator.sum_up(fabric);
}

} // namespace qccl
