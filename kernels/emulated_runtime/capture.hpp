// Records the work that capturing streams are given as a graph: nodes in the order in which they
// were added, each with the nodes that it waits for. The emulated runtime uses captures with its
// mutex held.
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
    size_t lane = 0; // nodes of one stream share a lane
};

// An object of the program, which `destroy` ends when the last holder of the object is gone.
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
    PointPtr last; // last launch of the graph
};

// A stream's position in a capture: the nodes that its next node waits for.
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
    // Returns a new empty object, which the caller fills in.
    UserObject &add_object() {
        objects_.push_back(std::make_shared<UserObject>());
        return *objects_.back();
    }
    const Tips &tips(const Stream *stream) const { return lanes_.at(stream).tips; }

    void spoil() { is_spoilt_ = true; }
    bool is_spoilt() const { return is_spoilt_; }
    // Returns true if a thread whose own mode is `own` must not wait for the GPU during the
    // capture.
    bool forbids(qcclEmulatedCaptureMode_t own) const;
    // Returns an error if the calling thread may not end the capture on `stream`.
    Outcome check_end(const Stream *stream) const;
    // Fills `graph` with the nodes and moves the user objects to it. Fails if the capture is
    // spoilt, or if a captured node does not lead back to the first stream; the capture then keeps
    // the objects.
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
