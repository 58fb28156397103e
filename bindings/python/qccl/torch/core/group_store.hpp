// What the process group needs of torch's store: the keys and values by which its ranks find each
// other. StoreAdapter implements it over c10d::Store; this file keeps torch out of the message
// layer.
//
// Any thread may call every function. `get` blocks until the key is there. Each function throws
// what the store throws.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace qccl_torch {

class GroupStore {
public:
    virtual ~GroupStore() = default;
    virtual void set(const std::string &key, const std::string &value) = 0;
    virtual std::string get(const std::string &key) = 0;
    virtual bool has(const std::string &key) = 0;
    virtual int64_t add(const std::string &key, int64_t value) = 0; // returns the sum
    virtual void remove(const std::string &key) = 0;
    // The same keys over a connection of its own. Some stores let one thread at a time wait for a
    // key, so a thread of the process group must not share the program's connection.
    virtual std::unique_ptr<GroupStore> connect_anew() = 0;
};

} // namespace qccl_torch
