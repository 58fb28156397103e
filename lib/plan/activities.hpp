// What goes on in the simulator: computing, bytes on links, and messages that arrive, each of which
// ends at a time that may move while others begin and end. Knows ranks, streams and messages as
// numbers only. Used by the simulator alone.
#pragma once

#include "plan/fair_share.hpp"

#include <cstdint>
#include <optional>
#include <queue>
#include <span>
#include <vector>

namespace qccl {

class Activities {
public:
    static constexpr uint32_t no_flow = ~uint32_t{0};
    enum class Kind : uint8_t {
        task,    // of a rank
        stream,  // a message's bytes have left the links: continue_stream or end_stream comes next
        arrival, // of a message
    };
    struct Event {
        Kind kind = Kind::task;
        uint32_t subject = 0;
        uint32_t flow = no_flow; // stream
    };

    void add_link(double capacity) { shares_.add_link(capacity); }

    double now() const { return now_; }
    // Of a rank that has a core to itself.
    void begin_task(uint32_t rank, double ns) { push({Kind::task, rank}, now_ + ns); }
    // Of one that shares cores, of which it can use one.
    void begin_shared_task(uint32_t rank, double ns, const FairShare::Use &cores) {
        begin({Kind::task, rank}, ns, std::span(&cores, 1), 1);
    }
    // Messages of one stream are on the links one after the other.
    void begin_stream(uint32_t stream, double bytes, std::span<const FairShare::Use> links) {
        begin({Kind::stream, stream}, bytes, links, FairShare::unlimited);
    }
    void continue_stream(const Event &ended, double bytes);
    void end_stream(const Event &ended) { end(ended.flow); }
    void begin_arrival(uint32_t message, double ns) { push({Kind::arrival, message}, now_ + ns); }

    // What ends next; the time is then that of its end. Events of the same time come in the order
    // in which they were begun. Nothing: nothing goes on.
    std::optional<Event> next();

private:
    struct Timer {
        double time = 0;
        uint64_t order = 0;
        Event event;        // with a flow it comes when the flow has ended
        uint32_t stamp = 0; // of the flow: numbers are given again

        bool operator>(const Timer &other) const {
            return time != other.time ? time > other.time : order > other.order;
        }
    };
    struct Flow {
        Event event;
        uint32_t stamp = 0;
        double left = 0, rate = 0; // since `since`
        double since = 0, end = 0;
        double timer = 0; // the earliest that is set
    };

    void push(const Event &event, double time) { timers_.push({time, order_++, event}); }
    void begin(const Event &event, double amount, std::span<const FairShare::Use> uses,
               double most_rate);
    void end(uint32_t flow);
    void settle();
    void set_timer(uint32_t number);

    double now_ = 0;
    uint64_t order_ = 0;
    bool is_settled_ = true;
    FairShare shares_;
    std::vector<Flow> flows_; // by FairShare's numbers
    std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
};

} // namespace qccl
