// Lists of a job's tensors, as a person hands them to a tool. Any thread.
#pragma once

#include "base/result.hpp"
#include "plan/tensor_plan.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace qccl::perf {

// Reads what `where` names:
//  - a folder: all .npy files in it, a tensor each, which has the file's name;
//  - a pattern of such files, "DIR/*.npy", in which %r stands for rank 0;
//  - a text file ("-": standard input): a tensor a line, its name, count and, if it is not float,
//    type, between blanks or commas; '#' begins a comment;
//  - a JSON file: an array of objects with name, count or shape, and type ("float"), or an object
//    whose `tensors` are such an array.
// In the order of the file, or of the files' names. An error (invalid_argument) names the file and
// what is wrong with it.
Result<std::vector<NamedTensor>> read_tensors(const std::string &where);

// Of a text or JSON file's content. Every byte is hostile.
Result<std::vector<NamedTensor>> parse_tensors(std::string_view text);

} // namespace qccl::perf
