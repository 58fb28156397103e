// Tests base/shared_memory: created memory is whole, zero and mapped by others; memory that
// another process could shrink, or that has another size, is refused. Files for others are whole
// too.
#include "tests/kit/forbidden_call.hpp"
#include "tests/kit/qtest.hpp"

#include "base/shared_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace qccl;
using namespace qtest;

namespace {

constexpr size_t bytes = 8192;

FileDescriptor memory_file(int seals) {
    FileDescriptor file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    CHECK_EQ(ftruncate(file.number(), bytes), 0);
    CHECK_EQ(fcntl(file.number(), F_ADD_SEALS, seals), 0);
    return file;
}

// Tries both ways in which a file comes from another process: as a descriptor and by its
// description.
void check_refused(const FileDescriptor &file, size_t expected_bytes) {
    const std::string none_of_ours = "what came as shared memory is none of ours";
    const auto passed = map_shared_memory(file, expected_bytes);
    CHECK(!passed);
    CHECK_EQ(std::string(passed.error().text), none_of_ours);

    auto described = describe(file.number());
    CHECK_OK(described);
    described->bytes = expected_bytes;
    const auto found = map_file_of(getpid(), *described);
    CHECK(!found);
    CHECK_EQ(std::string(found.error().text), none_of_ours);
}

void memory_is_shared_and_zero() {
    const auto file = create_shared_memory(bytes);
    CHECK_OK(file);
    const auto here = map_shared_memory(*file, bytes);
    CHECK_OK(here);
    const auto described = describe(file->number());
    CHECK_OK(described);
    const auto there = map_file_of(getpid(), *described);
    CHECK_OK(there);
    for (size_t i = 0; i < bytes; i++) CHECK(there->base()[i] == std::byte{0});
    std::memset(here->base(), 7, bytes);
    for (size_t i = 0; i < bytes; i++) CHECK(there->base()[i] == std::byte{7});
    // No process can take the memory away again.
    CHECK_EQ(ftruncate(file->number(), 0), -1);
}

void memory_that_may_shrink_is_refused() {
    check_refused(memory_file(0), bytes);
    check_refused(memory_file(F_SEAL_GROW), bytes);
    CHECK_OK(map_shared_memory(memory_file(F_SEAL_SHRINK), bytes));
}

void a_plain_file_is_refused() {
    const std::unique_ptr<FILE, int (*)(FILE *)> plain(std::tmpfile(), std::fclose);
    CHECK(plain != nullptr);
    const FileDescriptor file(dup(fileno(plain.get())));
    CHECK_EQ(ftruncate(file.number(), bytes), 0);
    check_refused(file, bytes);
}

void another_size_is_refused() {
    const auto file = create_shared_memory(bytes);
    CHECK_OK(file);
    check_refused(*file, bytes - 1);
    check_refused(*file, bytes + 4096);
    check_refused(memory_file(F_SEAL_SHRINK), 2 * bytes);
}

// Runs `body` in a child process in which the system call `call` fails with `error`.
void without(uint32_t call, int error, const std::function<void()> &body) {
    const pid_t child = fork();
    if (child != 0) {
        int status = 0;
        waitpid(child, &status, 0);
        CHECK(WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), 0);
        return;
    }
    int status = 1;
    try {
        forbid(call, error);
        body();
        status = 0;
    } catch (const Failure &failure) {
        std::fprintf(stderr, "%s\n", failure.text.c_str());
    }
    _exit(status);
}

// A file is filled if the file system cannot reserve memory, and not if there is too little memory.
void a_file_is_filled_where_nothing_can_be_reserved() {
    without(SYS_fallocate, EOPNOTSUPP, [] {
        constexpr size_t most = (size_t{1} << 20) + 4097;
        const std::unique_ptr<FILE, int (*)(FILE *)> plain(std::tmpfile(), std::fclose);
        CHECK(plain != nullptr);
        CHECK_OK(allocate_file(fileno(plain.get()), most));
        const auto described = describe(fileno(plain.get()));
        CHECK_OK(described);
        CHECK_EQ(described->bytes, most);
        const auto mapped = Mapping::shared(fileno(plain.get()), most);
        CHECK_OK(mapped);
        CHECK(std::all_of(mapped->base(), mapped->base() + most,
                          [](std::byte each) { return each == std::byte{0}; }));
    });
    without(SYS_fallocate, ENOSPC, [] {
        const std::unique_ptr<FILE, int (*)(FILE *)> plain(std::tmpfile(), std::fclose);
        CHECK(!allocate_file(fileno(plain.get()), 4096));
    });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(memory_is_shared_and_zero),
        QTEST(memory_that_may_shrink_is_refused),
        QTEST(a_plain_file_is_refused),
        QTEST(another_size_is_refused),
        QTEST(a_file_is_filled_where_nothing_can_be_reserved),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
