// Calls a function when a thread first touches a page of memory. With that a test writes data at
// one fixed point of another function's work, while that function reads the data. The page is
// forbidden until then. One object at a time may exist, and one thread touches the page.
#pragma once

#include "tests/kit/qtest.hpp"
#include "tests/kit/sanitizer.h"

#include <csignal>
#include <cstdint>
#include <functional>
#include <sys/mman.h>
#include <unistd.h>

namespace qtest {

class FirstTouch {
public:
    // The thread sanitizer hangs when its own look at the memory faults.
    static constexpr bool is_possible = !UNDER_THREAD_SANITIZER;

    // `address` lies in the page, which can be read and written; `act` may touch the page, too.
    FirstTouch(const void *address, std::function<void()> act)
        : page_(page_of(address)), act_(std::move(act)) {
        struct sigaction action {};
        action.sa_sigaction = handle;
        action.sa_flags = SA_SIGINFO | SA_NODEFER;
        present() = this;
        CHECK_EQ(sigaction(SIGSEGV, &action, &before_), 0);
        CHECK_EQ(mprotect(page_, page_bytes(), PROT_NONE), 0);
    }
    ~FirstTouch() {
        allow();
        sigaction(SIGSEGV, &before_, nullptr);
        present() = nullptr;
    }
    FirstTouch(const FirstTouch &) = delete;

    bool has_come() const { return has_come_; }

    static size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
    static void *page_of(const void *address) {
        return reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(address) &
                                        ~uintptr_t{page_bytes() - 1});
    }

private:
    static FirstTouch *&present() {
        static FirstTouch *one = nullptr;
        return one;
    }
    // A touch of another page is a fault of the program: it comes again and ends the program.
    static void handle(int, siginfo_t *info, void *) {
        FirstTouch *const self = present();
        if (self->has_come_ || page_of(info->si_addr) != self->page_) {
            std::signal(SIGSEGV, SIG_DFL);
            return;
        }
        self->has_come_ = true;
        self->allow();
        self->act_();
    }
    void allow() const { mprotect(page_, page_bytes(), PROT_READ | PROT_WRITE); }

    void *const page_;
    const std::function<void()> act_;
    struct sigaction before_ {};
    volatile bool has_come_ = false;
};

} // namespace qtest
