// What the process group needs of torch's store: the keys and values by which its ranks find each
// other. StoreAdapter implements it over c10d::Store; this file keeps torch out of the message
// layer.
//
// Any thread may call every function. `get` blocks until the key is there. Each function throws
// what the store throws.
#pragma once

#include "core/communicator.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

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

    // Looks for a key again and again, first often, then less so. Returns false if it is not there
    // at the deadline. Throws what `check_stop` throws.
    bool await_key(const std::string &key, std::chrono::steady_clock::time_point deadline,
                   const StopCheck &check_stop) {
        auto pause = std::chrono::microseconds(100);
        while (!has(key)) {
            check_stop();
            if (std::chrono::steady_clock::now() >= deadline) return false;
            std::this_thread::sleep_for(pause);
            pause = std::min(2 * pause, std::chrono::microseconds(10000));
        }
        return true;
    }
};

} // namespace qccl_torch
