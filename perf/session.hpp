// The QCCL objects of one rank in a measurement: communicator, codecs, buffers. Wraps the C API
// with destructors and Result, and adds nothing to it. Used by qccl-perf. The functions block as
// the C API does.
#pragma once

#include "base/result.hpp"
#include "codec/codec.hpp"
#include "perf/operation.hpp"
#include "perf/perf_arguments.hpp"
#include "perf/rank_device.hpp"

#include <qccl/qccl.h>

#include <memory>
#include <string>
#include <utility>

namespace qccl::perf {

// Returns success, or an error with the code of `result`, the name of the call and the library's
// message.
Done explained(qcclResult_t result, const char *call, qcclComm_t comm = nullptr);

struct CommDestroy {
    void operator()(qcclComm_t comm) const { (void)qcclCommDestroy(comm); }
};
using CommHandle = std::unique_ptr<qcclComm, CommDestroy>;

struct CodecDestroy {
    void operator()(qcclCodec_t codec) const { (void)qcclCodecDestroy(codec); }
};
using CodecHandle = std::unique_ptr<qcclCodec, CodecDestroy>;

Result<CodecHandle> create_codec(const Codec &codec);

// Page-aligned host memory, or memory of the rank's GPU, shifted from its alignment by `offset`
// bytes.
class Buffer {
public:
    static Result<Buffer> create(const RankDevice &device, Buffers kind, size_t bytes,
                                 size_t offset);
    Buffer(Buffer &&other) noexcept;
    Buffer &operator=(Buffer &&) = delete;
    ~Buffer();

    std::byte *data() const { return static_cast<std::byte *>(memory_) + offset_; }
    size_t bytes() const { return bytes_ - offset_; }

private:
    Buffer(std::shared_ptr<Gpu> gpu, Buffers kind, void *memory, size_t bytes, size_t offset)
        : gpu_(std::move(gpu)), kind_(kind), memory_(memory), bytes_(bytes), offset_(offset) {}

    std::shared_ptr<Gpu> gpu_;
    Buffers kind_; // for host memory
    void *memory_;
    size_t bytes_;
    size_t offset_;
};

// A buffer's registration with a communicator. The communicator must outlive it.
class Registered {
public:
    static Result<Registered> create(qcclComm_t comm, const Buffer &buffer);
    Registered(Registered &&other) noexcept
        : comm_(other.comm_), handle_(std::exchange(other.handle_, nullptr)) {}
    Registered &operator=(Registered &&) = delete;
    ~Registered() { (void)qcclCommDeregister(comm_, handle_); }

private:
    Registered(qcclComm_t comm, void *handle) : comm_(comm), handle_(handle) {}

    qcclComm_t comm_;
    void *handle_;
};

// `config` may be null, as in the C API.
Done call_collective(qcclComm_t comm, const Operation &operation, const void *send, void *recv,
                     qcclStream_t stream, const qcclCollConfig_t *config);
// Waits for the calls that the rank has enqueued and returns their result.
Done finish_calls(const RankDevice &device, qcclComm_t comm);

} // namespace qccl::perf
