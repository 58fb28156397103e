// Turns the standard library's exceptions into errors.
#include "base/exception_boundary.hpp"

#include <new>
#include <system_error>

namespace qccl {

Error describe(const std::exception &thrown) {
    if (dynamic_cast<const std::bad_alloc *>(&thrown))
        return Error::make(Code::system_error, "out of memory");
    const bool is_system = dynamic_cast<const std::system_error *>(&thrown) != nullptr;
    return Error::make(is_system ? Code::system_error : Code::internal_error, "%s", thrown.what());
}

} // namespace qccl
