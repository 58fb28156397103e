// Tests JsonFile of perf/report/tool_files: the document is valid after every row, and arrives
// whole in files, pipes and devices.
#include "tests/kit/qtest.hpp"
#include "tests/kit/temporary_folder.hpp"

#include "perf/report/tool_files.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace qccl;
using namespace qccl::perf;

static std::string text_of(const std::string &path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

static JsonFile opened(Result<JsonFile> file) {
    CHECK_OK(file);
    return std::move(*file);
}

static void every_row_leaves_a_whole_document() {
    const qtest::TemporaryFolder folder;
    const std::string path = folder / "rows.json";
    JsonFile file = opened(JsonFile::open(path));
    CHECK_OK(file.begin("[", "] so far nothing, and nothing lost"));
    CHECK_EQ(text_of(path), "[] so far nothing, and nothing lost");
    CHECK_OK(file.add("1", "] one"));
    CHECK_EQ(text_of(path), "[\n1] one");
    CHECK_OK(file.add("2", "] two"));
    CHECK_EQ(text_of(path), "[\n1,\n2] two");
    CHECK_OK(file.finish("]"));
    CHECK_EQ(text_of(path), "[\n1,\n2]");
    CHECK_OK(file.deliver());
    CHECK_EQ(text_of(path), "[\n1,\n2]");
}

// The old content of the file stays until `begin`.
static void what_is_there_stays() {
    const qtest::TemporaryFolder folder;
    const std::string path = folder / "rows.json";
    std::ofstream(path) << "results of yesterday, which are long";
    JsonFile file = opened(JsonFile::open(path));
    CHECK_EQ(text_of(path), "results of yesterday, which are long");
    CHECK_OK(file.begin("[", "]"));
    CHECK_EQ(text_of(path), "[]");
}

static void a_new_file_takes_the_next_free_name() {
    const qtest::TemporaryFolder folder;
    const std::string path = folder / "new.json";
    for (const char *expected : {"", ".0", ".1"}) {
        JsonFile file = opened(JsonFile::create(path));
        CHECK_EQ(file.path(), path + expected);
        CHECK_OK(file.begin("{", "}"));
        CHECK_EQ(text_of(path + expected), "{}");
    }
}

static void what_cannot_be_written_is_known_at_once() {
    const qtest::TemporaryFolder folder;
    for (const std::string &path : {folder / "none/rows.json", folder / "."}) {
        for (auto *const open : {JsonFile::open, JsonFile::create}) {
            const auto file = open(path);
            CHECK(!file);
            CHECK(std::string(file.error().text).find(path) != std::string::npos);
        }
        CHECK(!std::filesystem::exists(path + ".0"));
    }
}

// A pipe has no positions, so it receives the document when the document is complete, also from a
// process that did not write the rows itself.
static void a_pipe_receives_it_at_the_end() {
    const qtest::TemporaryFolder folder;
    const std::string path = folder / "pipe";
    CHECK_EQ(mkfifo(path.c_str(), 0600), 0);
    const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
    JsonFile file = opened(JsonFile::open(path));
    const pid_t writer = fork();
    if (writer == 0) {
        (void)file.begin("[", "]");
        (void)file.add("1", "]");
        raise(SIGKILL);
    }
    CHECK_EQ(waitpid(writer, nullptr, 0), writer);
    char text[64];
    CHECK(read(reader, text, sizeof text) < 0 && errno == EAGAIN);
    CHECK_OK(file.deliver());
    const ssize_t got = read(reader, text, sizeof text);
    CHECK_EQ(std::string(text, static_cast<size_t>(got)), "[\n1]");
    close(reader);
}

static void a_full_device_is_said() {
    JsonFile file = opened(JsonFile::open("/dev/full"));
    CHECK_OK(file.begin("[", "]"));
    const Done done = file.deliver();
    CHECK(!done);
    CHECK(std::string(done.error().text).find("No space") != std::string::npos);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(every_row_leaves_a_whole_document),   QTEST(what_is_there_stays),
        QTEST(a_new_file_takes_the_next_free_name), QTEST(what_cannot_be_written_is_known_at_once),
        QTEST(a_pipe_receives_it_at_the_end),       QTEST(a_full_device_is_said),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
