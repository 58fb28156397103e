/* Which sanitizer a test is built with (0 or 1), as GCC and as Clang tell it: few can do what needs
 * the whole address space, the last descriptor, or threads in a forked child. */
#ifndef QCCL_TESTS_SANITIZER_H
#define QCCL_TESTS_SANITIZER_H

#if defined(__has_feature)
#define UNDER_ADDRESS_SANITIZER __has_feature(address_sanitizer)
#define UNDER_THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ADDRESS_SANITIZER 1
#else
#define UNDER_ADDRESS_SANITIZER 0
#endif
#if defined(__SANITIZE_THREAD__)
#define UNDER_THREAD_SANITIZER 1
#else
#define UNDER_THREAD_SANITIZER 0
#endif
#endif

#endif
