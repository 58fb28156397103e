// The process group of torch.distributed whose backend is "qccl": a c10d::Backend over QCCL's C
// API.
//
// Collectives on tensors of the host go through one communicator, whose calls a CallQueue makes in
// the program's order. Messages go through a Messenger, whose links have communicators of their
// own. Errors that QCCL reports come as torch.distributed.DistBackendError, wrong arguments as the
// exceptions that torch's other backends raise.
//
// Any thread may call every function. Calls return a Work at once; a call whose `asyncOp` is false
// may return when it is done. No function needs Python's lock; the creation of a group must be
// called without it, and so must calls whose `asyncOp` is false. A forked child is refused, because
// it has neither the threads nor the communicators.
#pragma once

#include "call_steps.hpp"
#include "core/call_queue.hpp"
#include "core/communicator.hpp"
#include "messages/messenger.hpp"
#include "qccl_work.hpp"
#include "tensor_values.hpp"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace qccl_torch {

// The options of one process group, which the program passes as pg_options.
struct QcclOptions final : c10d::Backend::Options {
    explicit QcclOptions(std::chrono::milliseconds limit = kBackendDefaultTimeout)
        : Options("qccl", limit) {}

    std::string codec;     // of reductions of floats: "int4"; "": QCCL_CODEC, else lossless
    std::string algorithm; // "": planned
    std::string name;      // in QCCL's logs and rules; "": the group's name
    bool reproducible = false;
};

class QcclBackend final : public c10d::Backend {
public:
    using WorkRef = c10::intrusive_ptr<c10d::Work>;
    using Tensors = std::vector<at::Tensor>;
    using TensorLists = std::vector<Tensors>;

    // Blocks until all ranks have made theirs, for as long as the options' timeout.
    QcclBackend(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                c10::intrusive_ptr<QcclOptions> options);
    ~QcclBackend() override;

    const std::string getBackendName() const override { return "qccl"; }
    c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
    void setTimeout(std::chrono::milliseconds limit) override;
    c10d::ErrorType getError() override;
    void setSequenceNumberForGroup() override {} // all ranks count from 0
    uint64_t getSequenceNumberForGroup() override { return sequence_number_; }

    // Ends calls on all ranks with an error, and a running shutdown of this rank.
    void abort() override;
    // Waits for the group's calls, and ends it.
    void shutdown() override;
    // Shuts down all groups of the process, and aborts calls that are not done after `patience`.
    static void close_all(Milliseconds patience);

    bool supportsSplitting() const override { return true; }
    c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store> &store,
                                      const std::vector<int> &ranks,
                                      const c10::intrusive_ptr<Options> &opts) override;
    c10::intrusive_ptr<Backend> merge(const c10::intrusive_ptr<c10d::Store> &store,
                                      const c10::intrusive_ptr<Options> &opts, const int &rank,
                                      const int &size) override;

    bool supportsShrinking() const override { return true; }
    // Makes a group of the ranks that are left, which each of them calls. It needs no store.
    c10::intrusive_ptr<Backend> shrink(const std::vector<int64_t> &ranks_to_exclude,
                                       int shrink_flags,
                                       const c10::intrusive_ptr<Options> &opts) override;

    // Collectives between these two are one QCCL group.
    void startCoalescing() override;
    WorkRef endCoalescing() override;

    // ---- reducing_calls.cpp
    WorkRef allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkRef allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkRef allreduce_coalesced(Tensors &tensors,
                                const c10d::AllreduceCoalescedOptions &opts) override;
    WorkRef reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkRef reduce_scatter(Tensors &outputs, TensorLists &inputs,
                           const c10d::ReduceScatterOptions &opts) override;
    WorkRef _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &opts) override;
    WorkRef reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &opts) override;

    // ---- moving_calls.cpp
    WorkRef broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkRef gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &opts) override;
    WorkRef scatter(Tensors &outputs, TensorLists &inputs,
                    const c10d::ScatterOptions &opts) override;
    WorkRef alltoall_base(at::Tensor &output, at::Tensor &input,
                          std::vector<int64_t> &output_splits, std::vector<int64_t> &input_splits,
                          const c10d::AllToAllOptions &opts) override;
    WorkRef alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override;
    WorkRef barrier(const c10d::BarrierOptions &opts) override;
    void monitoredBarrier(const c10d::BarrierOptions &opts, bool waits_for_all_ranks) override;

    // ---- gathering_calls.cpp
    WorkRef allgather(TensorLists &outputs, Tensors &inputs,
                      const c10d::AllgatherOptions &opts) override;
    WorkRef _allgather_base(at::Tensor &output, at::Tensor &input,
                            const c10d::AllgatherOptions &opts) override;
    WorkRef allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &opts) override;
    WorkRef allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts) override;

    // ---- message_calls.cpp
    WorkRef send(Tensors &tensors, int dest, int tag) override;
    WorkRef recv(Tensors &tensors, int source, int tag) override;
    WorkRef recvAnysource(Tensors &tensors, int tag) override;

    struct Resources; // what has threads or communicators
    // A group whose communicator there is already.
    QcclBackend(std::shared_ptr<Resources> resources, c10::intrusive_ptr<QcclOptions> options);

private:
    struct CoalescedCall {
        CallSteps call;
        c10::intrusive_ptr<QcclWork> work;
    };

    static std::shared_ptr<Resources> meet_in(const c10::intrusive_ptr<c10d::Store> &store,
                                              int rank, int size, const QcclOptions &options);
    void check_usable() const;
    Milliseconds limit_for(std::chrono::milliseconds asked) const;
    WorkRef submit(CallSteps call, CallDescription description);
    WorkRef sparse_allreduce(const Tensors &tensors, const c10d::AllreduceOptions &opts);
    Reduction reduction(const c10d::ReduceOp &op, at::ScalarType type) const;
    WorkRef receive(Tensors &tensors, int source, int tag, CallDescription description);
    void add_to_coalesced(const c10::intrusive_ptr<QcclWork> &message);
    void run_later(std::vector<CoalescedCall> calls, bool is_async);
    void end(Milliseconds patience);
    void begin_call() const;

    const c10::intrusive_ptr<QcclOptions> options_;
    std::shared_ptr<Resources> resources_;
    std::atomic<uint64_t> sequence_number_{0};
    std::atomic<int64_t> limit_ms_;

    mutable std::mutex coalescing_mutex_;
    std::optional<std::vector<CoalescedCall>> coalesced_; // between start and end
    std::vector<c10::intrusive_ptr<QcclWork>> coalesced_messages_;
};

} // namespace qccl_torch
