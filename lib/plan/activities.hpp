// The simulator's event queue: computing tasks, bytes on links, and messages that arrive. The end
// of an activity may move while other activities begin and end. Ranks, streams and messages are
// plain numbers here. Used by the simulator alone; one thread, nothing blocks.
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
        task,   // a task of a rank has ended
        stream, // a message's bytes have left the links; the caller answers with continue_stream or
                // end_stream
        arrival, // a message has reached its receiver
    };
    struct Event {
        Kind kind = Kind::task;
        uint32_t subject = 0;
        uint32_t flow = no_flow; // of a stream, or of a task on shared cores
    };

    void add_link(double capacity) { shares_.add_link(capacity); }

    double now() const { return now_; }
    // Begins a task of a rank that has a core to itself.
    void begin_task(uint32_t rank, double ns) { push({Kind::task, rank}, now_ + ns); }
    // Begins a task of a rank that shares `cores` with others. The rank uses at most one core.
    void begin_shared_task(uint32_t rank, double ns, const FairShare::Use &cores) {
        begin({Kind::task, rank}, ns, std::span(&cores, 1), 1);
    }
    // Begins a stream with its first message. The messages of a stream cross the links one after
    // the other.
    void begin_stream(uint32_t stream, double bytes, std::span<const FairShare::Use> links) {
        begin({Kind::stream, stream}, bytes, links, FairShare::unlimited);
    }
    // After a Kind::stream event: puts the stream's next message on the links, or ends the stream.
    void continue_stream(const Event &ended, double bytes);
    void end_stream(const Event &ended) { end(ended.flow); }
    void begin_arrival(uint32_t message, double ns) { push({Kind::arrival, message}, now_ + ns); }

    // Returns the activity that ends next; now() is then the time of its end. Events of the same
    // time come in the order in which they were begun. Returns nothing if no activity is left.
    std::optional<Event> next();

private:
    struct Timer {
        double time = 0;
        uint64_t order = 0;
        Event event;        // an event with a flow is due when the flow has ended
        uint32_t stamp = 0; // of the flow; flow numbers are reused

        bool operator>(const Timer &other) const {
            return time != other.time ? time > other.time : order > other.order;
        }
    };
    struct Flow {
        Event event;
        uint32_t stamp = 0;
        double left = 0, rate = 0; // as of `since`
        double since = 0, end = 0;
        double timer = 0; // time of the earliest timer that is set
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
    std::vector<Flow> flows_; // by FairShare's flow number
    std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
};

} // namespace qccl
