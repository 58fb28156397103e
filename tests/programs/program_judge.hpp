// Judges the reports of the ranks that have played random programs. Used by random_programs.cpp;
// does not block.
#pragma once

#include "program_rank.hpp"

#include <string>
#include <vector>

namespace stress {

// What is wrong with one program.
struct Finding {
    long program; // its number
    std::string text;
    bool may_be_load = false; // a call took too long, and nothing else is wrong
};
// Judges programs of one batch that break no rule. Returns the first finding.
std::vector<Finding> judge_right(const Batch &batch, const BatchStage &stage, bool has_ended);
// Judges a program that breaks a rule, the only one of its batch.
std::vector<Finding> judge_broken(const Batch &batch, const BatchStage &stage, bool has_ended,
                                  double most_s);
// Returns what each rank has reported.
std::string reports_text(const Batch &batch, const BatchStage &stage);

} // namespace stress
