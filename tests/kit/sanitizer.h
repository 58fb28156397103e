/* Tells which sanitizer a test is built with (0 or 1), from the macros of GCC and Clang. Tests skip
 * what few sanitizers support: the use of the whole address space, of the last descriptor, or of
 * threads in a forked child. */
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
