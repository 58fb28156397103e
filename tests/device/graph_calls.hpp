// Captures and launches a GPU's graphs in tests, with the driver's functions, which are looked up
// by name: no vendor's header is needed. If the functions are not found, there are no graphs.
#pragma once

#include "real_gpu_kit.hpp"

#include <dlfcn.h>

namespace real_gpu {

class GraphCalls {
public:
    // Looks up the functions for the tested GPU. A capture concerns the calling thread only.
    GraphCalls() {
        if (is_emulated())
            find("libqccl_emulated.so",
                 {"qcclEmulatedStreamBeginCapture", "qcclEmulatedStreamEndCapture", nullptr,
                  "qcclEmulatedGraphInstantiate", "qcclEmulatedGraphLaunch"});
        else if (tested->traits().name.starts_with("cuda"))
            find("libcuda.so.1",
                 {"cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags",
                  nullptr, "cuGraphLaunch", "cuStreamGetCtx", "cuCtxSetCurrent"});
    }
    bool are_there() const { return begin_ && end_ && launch_ && (instantiate_ || with_flags_); }

    // Returns what the stream captures while `body` runs, ready to be launched. The driver's
    // functions have its own types where these have pointers to void; a sanitizer refuses that.
    template <class Body>
    __attribute__((no_sanitize("undefined"))) void *capture(const Stream &stream,
                                                            Body &&body) const {
        constexpr int thread_local_mode = 1;
        use_context_of(stream);
        CHECK_EQ(begin_(stream.get(), thread_local_mode), 0);
        body();
        void *graph = nullptr, *exec = nullptr;
        CHECK_EQ(end_(stream.get(), &graph), 0);
        CHECK_EQ(with_flags_ ? with_flags_(&exec, graph, 0) : instantiate_(&exec, graph), 0);
        return exec;
    }
    __attribute__((no_sanitize("undefined"))) void launch(void *exec, const Stream &stream) const {
        use_context_of(stream);
        CHECK_EQ(launch_(exec, stream.get()), 0);
    }

private:
    // A program's thread has chosen a GPU; a thread of these tests has not.
    __attribute__((no_sanitize("undefined"))) void use_context_of(const Stream &stream) const {
        void *context = nullptr;
        if (!context_of_) return;
        CHECK_EQ(context_of_(stream.get(), &context), 0);
        CHECK_EQ(set_context_(context), 0);
    }

    struct FunctionNames {
        const char *begin, *end, *with_flags, *instantiate, *launch;
        const char *context_of = nullptr, *set_context = nullptr; // a GPU's; the thread's
    };
    template <class Function> static void look_up(void *library, const char *name, Function *&to) {
        if (name) to = reinterpret_cast<Function *>(dlsym(library, name));
    }
    void find(const char *file, const FunctionNames &names) {
        void *const library = dlopen(file, RTLD_NOW);
        if (!library) return;
        look_up(library, names.begin, begin_);
        look_up(library, names.end, end_);
        look_up(library, names.with_flags, with_flags_);
        look_up(library, names.instantiate, instantiate_);
        look_up(library, names.launch, launch_);
        look_up(library, names.context_of, context_of_);
        look_up(library, names.set_context, set_context_);
    }

    int (*begin_)(GpuStream stream, int mode) = nullptr;
    int (*end_)(GpuStream stream, void **graph) = nullptr;
    int (*with_flags_)(void **exec, void *graph, unsigned long long flags) = nullptr;
    int (*instantiate_)(void **exec, void *graph) = nullptr;
    int (*launch_)(void *exec, GpuStream stream) = nullptr;
    int (*context_of_)(GpuStream stream, void **context) = nullptr;
    int (*set_context_)(void *context) = nullptr;
};

} // namespace real_gpu
