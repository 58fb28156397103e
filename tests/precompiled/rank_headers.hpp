// What tests that run programs on ranks include, precompiled: the engine's headers take longer to
// read than the tests. Other tests would compile longer with it.
#include "test_headers.hpp"

#include "tests/kit/engine_ranks.hpp"
