// What streams have been asked for while they captured, as a graph: nodes in the order in which
// they came, each with those that it waits for. Knows no runtime.
#pragma once

#include "kernels/emulated_runtime/workers.hpp"

#include <map>
#include <memory>
#include <thread>
#include <utility>

namespace qccl::emulated {

struct Node {
    std::function<Outcome()> run;
    std::vector<size_t> after;
    size_t lane = 0; // nodes of one stream
};

// Of the program's: ended with the last of what holds it.
struct UserObject {
    UserObject() = default;
    ~UserObject() {
        if (destroy) destroy(object);
    }
    UserObject(const UserObject &) = delete;

    qcclEmulatedHostFn_t destroy = nullptr;
    void *object = nullptr;
};
using UserObjects = std::vector<std::shared_ptr<UserObject>>;

struct Graph {
    std::vector<Node> nodes;
    UserObjects objects;
    size_t lanes = 1;
};

struct GraphExec {
    Graph graph;
    PointPtr last; // launch of it
};

// Where a stream stands in a capture: what its next node waits for.
using Tips = std::vector<size_t>;

class Capture {
public:
    Capture(const Stream *origin, qcclEmulatedCaptureMode_t mode, uint64_t number)
        : number_(number), origin_(origin), mode_(mode), thread_(std::this_thread::get_id()) {
        join(origin, {});
    }

    uint64_t number() const { return number_; }
    void join(const Stream *stream, const Tips &tips);
    void add(const Stream *stream, std::function<Outcome()> run);
    // Empty, to be filled in.
    UserObject &add_object() {
        objects_.push_back(std::make_shared<UserObject>());
        return *objects_.back();
    }
    const Tips &tips(const Stream *stream) const { return lanes_.at(stream).tips; }

    void spoil() { is_spoilt_ = true; }
    bool is_spoilt() const { return is_spoilt_; }
    // Whether a thread, with a mode of its own, must not wait for the GPU meanwhile.
    bool forbids(qcclEmulatedCaptureMode_t own) const;
    // Whether the calling thread may end it there.
    Outcome check_end(const Stream *stream) const;
    // An error where not all that was captured leads back to the first stream.
    // It then holds what was tied to it, and the capture no longer.
    Outcome finish(Graph &graph);
    UserObjects take_objects() { return std::exchange(objects_, {}); }

private:
    struct Lane {
        size_t number = 0;
        Tips tips;
    };

    const uint64_t number_;
    const Stream *origin_;
    qcclEmulatedCaptureMode_t mode_;
    std::thread::id thread_;
    bool is_spoilt_ = false;
    std::vector<Node> nodes_;
    UserObjects objects_;
    std::map<const Stream *, Lane> lanes_;
};

} // namespace qccl::emulated
