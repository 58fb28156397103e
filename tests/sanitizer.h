/* Which sanitizer a test is built with, as GCC and as Clang tell it: few can do what needs the
 * whole address space, or threads in a forked child. */
#ifndef QCCL_TESTS_SANITIZER_H
#define QCCL_TESTS_SANITIZER_H

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ADDRESS_SANITIZER 1
#elif defined(__SANITIZE_THREAD__)
#define UNDER_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNDER_ADDRESS_SANITIZER 1
#elif __has_feature(thread_sanitizer)
#define UNDER_THREAD_SANITIZER 1
#endif
#endif

#endif
