// Tests read_regular_file() of lib/base/system: files are read whole, and anything else is refused
// in a sentence.
#include "tests/kit/qtest.hpp"
#include "tests/kit/temporary_folder.hpp"

#include "base/system.hpp"

#include <cstdlib>
#include <fstream>

#include <sys/stat.h>

using namespace qccl;

namespace {

std::string folder; // of the tests' files

std::string write(const char *name, const std::string &text) {
    const std::string path = folder + "/" + name;
    std::ofstream(path) << text;
    return path;
}

std::string refusal(const std::string &path, size_t most = 100) {
    const auto text = read_regular_file(path, most);
    CHECK(!text && text.error().code == Code::invalid_argument);
    return text.error().text;
}

} // namespace

static void files_are_read_whole() {
    const std::string long_text(70000, 'x');
    CHECK_EQ(*read_regular_file(write("a", long_text), 70000), long_text);
    CHECK_EQ(*read_regular_file(write("b", ""), 100), "");
    CHECK_EQ(*read_regular_file(write("c", std::string("a\0b", 3)), 3), std::string("a\0b", 3));
}

static void what_is_no_file_is_refused() {
    CHECK_EQ(refusal(folder), "it is a directory, not a file");
    CHECK_EQ(refusal(folder + "/none"), "it cannot be read: No such file or directory");
    CHECK_EQ(refusal("/dev/zero"), "it is no regular file");
    const std::string pipe = folder + "/pipe";
    CHECK_EQ(mkfifo(pipe.c_str(), 0600), 0);
    CHECK_EQ(refusal(pipe), "it is no regular file"); // and the open does not wait for a writer
    CHECK_EQ(refusal(write("huge", std::string(101, 'x'))),
             "it has 101 bytes, more than the 100 possible");
}

int main() {
    const qtest::TemporaryFolder temporary;
    folder = temporary.path();
    const CMUnitTest tests[] = {
        QTEST(files_are_read_whole),
        QTEST(what_is_no_file_is_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
