// Makes a random program break a rule: gives it a last step with a call that one rank makes
// otherwise, or that no rank can make. Used by random_program.cpp. Pure; any thread.
#pragma once

#include "random_program.hpp"

namespace stress {

// `live`: the communicators that are there when the program's last step is done.
void break_rule(Program &program, Rule rule, const std::vector<int> &live, Random &random);

} // namespace stress
