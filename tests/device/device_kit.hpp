// Shared by the tests of collectives on the emulated GPU: calls of the table of cases
// through the C API, in guarded memory of a GPU.
#pragma once

#include "c_calls.hpp"
#include "tests/kit/engine_ranks.hpp"
#include "tests/kit/qtest.hpp"
#include "tests/transport/killable_ranks.hpp"

#include <qccl/emulated.h>
#include <qccl/qccl.h>

#include <atomic>
#include <optional>
#include <string>

namespace qtest {

// Fails unless the emulation's runtime has made the call.
void check_emulated(qcclEmulatedResult_t result, const char *file, int line, const char *call);
#define CHECK_EMULATED(call) qtest::check_emulated((call), __FILE__, __LINE__, #call)

// Returns the number of an emulated GPU; nothing for "host".
std::optional<int> gpu_number(const std::string &device);

// The unique id of ranks that are processes. It is made once all of them have been forked: what is
// forked while another thread allocates, as the rendezvous thread does, waits for ever for the
// address sanitizer's allocator.
class LateId {
public:
    LateId() : slot_(1) { CHECK(slot_.are_there()); }
    void make();
    const qcclUniqueId &await() const;

private:
    struct Slot {
        qcclUniqueId id;
        std::atomic<bool> is_made;
    };
    const killable::Reports<Slot> slot_;
};

// Makes the call on one rank, on that rank's thread: in guarded memory of the stream's GPU, or of
// the host if `stream` is null, in place or not. Returns the received bytes.
Bytes run_on_device(const TwinCall &call, uint32_t rank, qcclComm_t comm, const Bytes &input,
                    bool in_place, qcclEmulatedStream_t stream, bool is_synchronous);

// Returns the number of resources that the runtime holds. Synchronizes all GPUs first, because a
// stream frees memory only when it reaches the request.
size_t count_held();

} // namespace qtest
