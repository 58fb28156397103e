// Flushes standard output and reports what could not be written.
#include "perf/standard_output.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace qccl::perf {

Done flush(std::FILE *out) {
    errno = 0;
    if (std::fflush(out) == 0 && std::ferror(out) == 0) return {};
    // If the buffer was too small for all output, an earlier write may have failed and its reason
    // is lost.
    const char *const reason = errno != 0 ? std::strerror(errno) : "some of it is lost";
    std::clearerr(out);
    return Error::make(Code::system_error, "cannot write standard %s: %s",
                       out == stderr ? "error" : "output", reason);
}

int end_output(const char *program, int status) {
    const Done done = flush(stdout);
    if (done) return status;
    std::fprintf(stderr, "%s: %s\n", program, done.error().text);
    return status != EXIT_SUCCESS ? status : EXIT_FAILURE;
}

} // namespace qccl::perf
