// Implements capture.hpp: records the work of capturing streams and makes graphs of the recorded
// work.
#include "kernels/emulated_runtime/capture.hpp"

#include <algorithm>

namespace qccl::emulated {

void Capture::join(const Stream *stream, const Tips &tips) {
    Lane &lane =
        lanes_.try_emplace(stream, Lane{.number = lanes_.size(), .tips = {}}).first->second;
    for (const size_t tip : tips)
        if (std::ranges::find(lane.tips, tip) == lane.tips.end()) lane.tips.push_back(tip);
}

void Capture::add(const Stream *stream, std::function<Outcome()> run) {
    Lane &lane = lanes_.at(stream);
    nodes_.push_back({.run = std::move(run), .after = lane.tips, .lane = lane.number});
    lane.tips = {nodes_.size() - 1};
}

bool Capture::forbids(qcclEmulatedCaptureMode_t own) const {
    if (own == qcclEmulatedCaptureModeRelaxed || mode_ == qcclEmulatedCaptureModeRelaxed)
        return false;
    if (thread_ == std::this_thread::get_id()) return true;
    return own == qcclEmulatedCaptureModeGlobal && mode_ == qcclEmulatedCaptureModeGlobal;
}

Outcome Capture::check_end(const Stream *stream) const {
    if (stream != origin_) return qcclEmulatedErrorStreamCaptureUnmatched;
    if (mode_ != qcclEmulatedCaptureModeRelaxed && thread_ != std::this_thread::get_id())
        return qcclEmulatedErrorStreamCaptureWrongThread;
    return {};
}

Outcome Capture::finish(Graph &graph) {
    if (is_spoilt_) return qcclEmulatedErrorStreamCaptureInvalidated;
    std::vector<bool> leads_back(nodes_.size(), false);
    for (const size_t tip : lanes_.at(origin_).tips) leads_back[tip] = true;
    for (size_t i = nodes_.size(); i-- > 0;) {
        if (!leads_back[i]) return qcclEmulatedErrorStreamCaptureUnjoined;
        for (const size_t before : nodes_[i].after) leads_back[before] = true;
    }
    graph.nodes = nodes_;
    graph.objects = take_objects();
    graph.lanes = lanes_.size();
    return {};
}

} // namespace qccl::emulated
