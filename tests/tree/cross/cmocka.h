/* As much of CMocka as qtest.hpp asks for, for architectures that CMocka is not installed for:
 * tests one after the other, the first failure ends the program. */
#ifndef QCCL_CROSS_CMOCKA_H
#define QCCL_CROSS_CMOCKA_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
    int (*setup)(void **state);
    int (*teardown)(void **state);
    void *initial_state;
};

#define fail_msg(...)                                                                              \
    do {                                                                                           \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fputc('\n', stderr);                                                                       \
        exit(EXIT_FAILURE);                                                                        \
    } while (0)

static inline int cross_run_tests(const struct CMUnitTest *tests, size_t count)
{
    size_t i;
    for (i = 0; i < count; i++) {
        printf("%s\n", tests[i].name);
        fflush(stdout);
        tests[i].test(NULL);
    }
    return 0;
}
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    cross_run_tests(tests, sizeof(tests) / sizeof((tests)[0]))

#endif
