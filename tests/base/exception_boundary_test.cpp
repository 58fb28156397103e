// Tests base/exception_boundary: every exception becomes an error, and returned results pass
// through unchanged.
#include "tests/kit/qtest.hpp"

#include "base/exception_boundary.hpp"

#include <new>
#include <stdexcept>
#include <system_error>
#include <vector>

using namespace qccl;

namespace {

template <class Thrown> Error error_of(const Thrown &thrown) {
    const Done done = exception_boundary([&]() -> Done { throw thrown; });
    CHECK(!done);
    return done.error();
}

void results_pass_through() {
    const auto seven = exception_boundary([]() -> Result<int> { return 7; });
    CHECK_OK(seven);
    CHECK_EQ(*seven, 7);
    const Error own = Error::make(Code::mismatch, "its own").at_rank(3);
    const auto failed = exception_boundary([&]() -> Result<int> { return own; });
    CHECK(!failed);
    CHECK(failed.error().code == Code::mismatch);
    CHECK_EQ(failed.error().rank, 3);
}

void nothing_is_thrown_past_it() {
    const Error memory = error_of(std::bad_alloc());
    CHECK(memory.code == Code::system_error);
    CHECK_EQ(std::string(memory.text), std::string("out of memory"));
    CHECK(error_of(std::bad_array_new_length()).code == Code::system_error);

    const Error system = error_of(std::system_error(EAGAIN, std::generic_category(), "a thread"));
    CHECK(system.code == Code::system_error);
    CHECK_EQ(std::string(system.text), std::string("a thread: Resource temporarily unavailable"));

    const Error length = error_of(std::length_error("vector::resize"));
    CHECK(length.code == Code::internal_error);
    CHECK_EQ(std::string(length.text), std::string("vector::resize"));
    CHECK(error_of(7).code == Code::internal_error);
    CHECK(error_of(7).text[0] != 0);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(results_pass_through),
        QTEST(nothing_is_thrown_past_it),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
