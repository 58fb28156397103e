// Tells a forked child from the process that made a handle, with one load: a page that the kernel
// hands to children zeroed.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <memory>

namespace qccl {

class ForkMark {
public:
    static Result<ForkMark> create();

    bool is_child() const { return *page_ == 0; }

private:
    struct Unmap {
        void operator()(uint8_t *page) const;
    };
    explicit ForkMark(uint8_t *page) : page_(page) {}

    std::unique_ptr<uint8_t, Unmap> page_;
};

// A child's answer to whoever uses a handle of its parent.
inline Error refuse_child(const char *what) {
    return Error::make(Code::invalid_usage,
                       "%s was made before this process was forked; a child may use only what it "
                       "made itself",
                       what);
}

} // namespace qccl
