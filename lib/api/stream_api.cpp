// The C functions of host streams, and of requests, by which a program asks or waits for the work
// that a stream had at some point. The functions that wait for a stream's work say so in qccl.h;
// the others do not block.
#include "api/call/entry.hpp"
#include "base/settings.hpp"
#include "comm/boundary.hpp"
#include "comm/handle_table.hpp"
#include "comm/streams.hpp"

#include <span>
#include <vector>

#include <unistd.h>

namespace qccl {

namespace {

// For the C functions of streams, for which NULL and QCCL_STREAM_SYNC have no meaning.
Result<StreamRef> take_real_stream(qcclStream_t handle) {
    QCCL_TRY(StreamRef stream, take_stream(handle));
    if (!stream)
        return invalid_argument("stream is %s, not one from qcclStreamCreate",
                                handle ? "QCCL_STREAM_SYNC" : "NULL");
    return stream;
}

Result<StreamRef> take_stream_to_wait_for(qcclStream_t handle) {
    QCCL_TRY(StreamRef stream, take_real_stream(handle));
    if (stream->is_this_thread())
        return Error::make(Code::invalid_usage,
                           "a stream cannot wait for itself (this is its own thread, in an idle "
                           "or log function)");
    return stream;
}

// ---- Requests

using RequestHandles = HandleTable<HandleRecord<StreamRequest>>;
using RequestRef = RequestHandles::Reference;

constinit RequestHandles request_handles{{.tag = 0x51C6,
                                          .argument = "request",
                                          .unknown = "no qcclRequestRecord made",
                                          .ended = "waited for or freed",
                                          .is_inherited = false}};

// Ends a request that is done, and returns the error that it carries. Of several threads one gets
// that error, and the others are refused.
Done finish(RequestRef &ref, qcclRequest_t &handle) {
    QCCL_TRY(ref.end());
    handle = nullptr;
    return ref->tell();
}

Done check_outside_stream(const StreamRequest &request) {
    if (request.is_done() || !request.is_of_this_thread()) return {};
    return Error::make(Code::invalid_usage,
                       "request: a stream cannot wait for itself (this is its own thread, in an "
                       "idle or log function)");
}

// The requests of an array that are not NULL.
class RequestList {
public:
    // Every error is a refusal: nothing has been waited for.
    static Result<RequestList> take(int count, qcclRequest_t *requests) {
        if (count < 0) return invalid_argument("count is %d, not 0 or more", count);
        if (!requests && count > 0)
            return invalid_argument("requests is NULL, but count is %d", count);
        RequestList list(requests);
        for (int i = 0; i < count; i++) {
            if (!requests[i]) continue;
            auto ref = request_handles.refer(requests[i]);
            if (!ref) return list.of(i, ref.error());
            const Done outside = check_outside_stream(**ref);
            if (!outside) return list.of(i, outside.error());
            list.waiting_.push_back(ref->get());
            list.taken_.push_back({i, std::move(*ref)});
        }
        return Result<RequestList>(std::move(list));
    }

    bool is_empty() const { return taken_.empty(); }
    // Waits for the first that is done. Returns its place in the array, and ends it with its error.
    int await_any(Done &done) {
        StreamRequest::await_any(waiting_);
        for (auto &[i, ref] : taken_)
            if (ref->is_done()) {
                done = end(i, ref);
                return i;
            }
        return none;
    }
    // Waits for all, ends them, and returns the error of the first in the array that has one.
    Done await_all() {
        for (StreamRequest *const each : waiting_) StreamRequest::await_any(std::span(&each, 1));
        Done first;
        for (auto &[i, ref] : taken_) {
            const Done done = end(i, ref);
            requests_[i] = nullptr; // also if another thread has ended it
            if (!done && first) first = done;
        }
        return first;
    }
    static constexpr int none = -1;

private:
    struct ListedRequest {
        int index;
        RequestRef ref;
    };

    explicit RequestList(qcclRequest_t *requests) : requests_(requests) {}
    Done end(int i, RequestRef &ref) {
        const Done done = finish(ref, requests_[i]);
        return done ? done : of(i, done.error());
    }
    static Error of(int i, const Error &error) {
        return reworded(error, "requests[%d]: %.400s", i, error.text);
    }

    qcclRequest_t *requests_;
    std::vector<ListedRequest> taken_;
    std::vector<StreamRequest *> waiting_; // the same requests
};

} // namespace

} // namespace qccl

using namespace qccl;

qcclResult_t qcclStreamCreate(qcclStream_t *stream_out) {
    return guarded([=]() -> Done {
        if (!stream_out) return invalid_argument("stream_out is NULL");
        QCCL_TRY(const Settings settings, read_settings(environ));
        QCCL_TRY(auto stream, Stream::create(settings.progress_cpu));
        QCCL_TRY(*stream_out, stream_handles.add(std::move(stream)));
        return {};
    });
}
QCCL_TWIN(qcclStreamCreate);

qcclResult_t qcclStreamDestroy(qcclStream_t stream) {
    return guarded([=]() -> Done {
        if (!stream) return {};
        QCCL_TRY(StreamRef taken, take_stream_to_wait_for(stream));
        QCCL_TRY(taken.end());
        taken.await_others();
        return {};
    });
}
QCCL_TWIN(qcclStreamDestroy);

qcclResult_t qcclStreamSynchronize(qcclStream_t stream) {
    return guarded([=]() -> Done {
        QCCL_TRY(const StreamRef taken, take_stream_to_wait_for(stream));
        return taken->synchronize();
    });
}
QCCL_TWIN(qcclStreamSynchronize);

qcclResult_t qcclStreamQuery(qcclStream_t stream) {
    return guarded([=]() -> Done {
        QCCL_TRY(const StreamRef taken, take_real_stream(stream));
        return taken->query();
    });
}
QCCL_TWIN(qcclStreamQuery);

qcclResult_t qcclRequestRecord(qcclStream_t stream, qcclRequest_t *request_out) {
    return guarded([=]() -> Done {
        QCCL_TRY(const StreamRef taken, take_real_stream(stream));
        if (!request_out) return invalid_argument("request_out is NULL");
        QCCL_TRY(void *const made, request_handles.add(taken->record()));
        *request_out = static_cast<qcclRequest_t>(made);
        return {};
    });
}
QCCL_TWIN(qcclRequestRecord);

qcclResult_t qcclTest(qcclRequest_t *request, int *is_done) {
    return guarded([=]() -> Done {
        if (!request) return invalid_argument("request is NULL");
        if (!is_done) return invalid_argument("is_done is NULL");
        if (*request) {
            QCCL_TRY(RequestRef taken, request_handles.refer(*request));
            if (!taken->is_done()) {
                *is_done = 0;
                return {};
            }
            const Done done = finish(taken, *request);
            if (!*request) *is_done = 1;
            return done;
        }
        *is_done = 1;
        return {};
    });
}
QCCL_TWIN(qcclTest);

qcclResult_t qcclWait(qcclRequest_t *request) {
    return guarded([=]() -> Done {
        if (!request) return invalid_argument("request is NULL");
        if (!*request) return {};
        QCCL_TRY(RequestRef taken, request_handles.refer(*request));
        QCCL_TRY(check_outside_stream(*taken));
        StreamRequest *const waiting = taken.get();
        StreamRequest::await_any(std::span(&waiting, 1));
        return finish(taken, *request);
    });
}
QCCL_TWIN(qcclWait);

qcclResult_t qcclWaitAny(int count, qcclRequest_t requests[], int *index) {
    return guarded([=]() -> Done {
        if (!index) return invalid_argument("index is NULL");
        QCCL_TRY(RequestList list, RequestList::take(count, requests));
        Done done;
        const int found = list.is_empty() ? RequestList::none : list.await_any(done);
        if (found == RequestList::none || !requests[found]) *index = found;
        return done;
    });
}
QCCL_TWIN(qcclWaitAny);

qcclResult_t qcclWaitAll(int count, qcclRequest_t requests[]) {
    return guarded([=]() -> Done {
        QCCL_TRY(RequestList list, RequestList::take(count, requests));
        return list.await_all();
    });
}
QCCL_TWIN(qcclWaitAll);

qcclResult_t qcclRequestFree(qcclRequest_t request) {
    return guarded([=]() -> Done {
        if (!request) return {};
        QCCL_TRY(RequestRef taken, request_handles.refer(request));
        return taken.end();
    });
}
QCCL_TWIN(qcclRequestFree);
