// Tests cannot() of lib/base/system: an error holds the operating system's reason, and names the
// limit that was reached.
#include "tests/kit/qtest.hpp"

#include "base/system.hpp"

#include <string>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace qccl;

static void an_error_has_its_reason() {
    CHECK(open("/nowhere/file", O_RDONLY) < 0);
    const Error error = cannot("open a file");
    CHECK(error.code == Code::system_error);
    CHECK_EQ(std::string(error.text), "cannot open a file: No such file or directory");
}

static void the_limit_of_open_files_is_named() {
    rlimit before{};
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const int lowest_free = dup(0);
    CHECK(lowest_free >= 0 && close(lowest_free) == 0);
    rlimit none_left = before;
    none_left.rlim_cur = static_cast<rlim_t>(lowest_free);
    CHECK(setrlimit(RLIMIT_NOFILE, &none_left) == 0);
    const int made = dup(0);
    const Error error = cannot("open a file");
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(made < 0);
    CHECK_EQ(std::string(error.text),
             "cannot open a file: Too many open files (the limit of open files, ulimit -n, is " +
                 std::to_string(lowest_free) + ")");
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(an_error_has_its_reason),
        QTEST(the_limit_of_open_files_is_named),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
