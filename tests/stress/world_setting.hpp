// Where the ranks of random calls run: how many there are, in threads or processes, and on how many
// hosts. Pure; any thread.
#pragma once

#include "stress_call.hpp"

namespace stress {

// The threads or processes in which the ranks run.
enum class Runner : uint8_t { init_all, threads, processes };
const char *name(Runner runner);

// Where the ranks of a program run. The programs of one setting can follow one another in one
// world.
struct Setting {
    int ranks = 2;
    Runner runner = Runner::init_all;
    int hosts = 1;
    int host_of(int rank) const { return rank * hosts / ranks; }
};
// Draws a setting; if there is a network, about one in `one_in` has several hosts.
Setting draw_setting(Random &random, bool has_network, int one_in);

} // namespace stress
