// Reads lists of a job's tensors from files that the user supplies. Used by qccl-info plan. Any
// thread.
#pragma once

#include "base/result.hpp"
#include "plan/tensor_plan.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace qccl::perf {

// Reads the list that `where` names:
// - a folder: each .npy file in it is a tensor with the name of the file;
// - a pattern of such files, "DIR/*.npy", in which %r means rank 0;
// - a text file ("-": standard input): one tensor per line with name, count and, unless it is
//   float, type, separated by blanks or commas; '#' begins a comment;
// - a JSON file: an array of objects with name, count or shape, and type ("float"), or an object
//   whose `tensors` is such an array.
// Returns the tensors in the order of the file or of the file names. The error (invalid_argument)
// names the file and what is wrong with it.
Result<std::vector<NamedTensor>> read_tensors(const std::string &where);

// Parses the content of a text or JSON file. Trusts none of the bytes.
Result<std::vector<NamedTensor>> parse_tensors(std::string_view text);

} // namespace qccl::perf
