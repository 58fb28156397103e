// A communicator of some ranks of another one, made over that one's council: without an id, a port
// or a process that serves, whatever way the ranks once found each other.
#pragma once

#include "api/creation.hpp"
#include "transport/council.hpp"

namespace qccl {

// What the config says; NULL: what the parent's has said.
Result<CommWishes> take_wishes(const Comm &parent, const qcclConfig_t *config);
// How long the ranks wait for each other.
std::chrono::nanoseconds timeout_of(const Comm &parent, const CommWishes &wishes);

// Of the circle's members, numbered in its order, this rank among them. Under the parent's gate.
// `how` it is made is what traces show: split or shrink.
Result<std::shared_ptr<Comm>> create_offspring(Comm &parent, Circle &circle,
                                               const CommWishes &wishes, const char *how);

} // namespace qccl
