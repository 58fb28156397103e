// Gives the process group's ranks torch's store under the names of GroupStore. Any thread may call
// every function; `get` blocks until the key is there or the store's timeout is over.
#pragma once

#include "core/group_store.hpp"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <utility>

namespace qccl_torch {

class StoreAdapter final : public GroupStore {
public:
    explicit StoreAdapter(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

    void set(const std::string &key, const std::string &value) override { store_->set(key, value); }
    std::string get(const std::string &key) override { return store_->get_to_str(key); }
    bool has(const std::string &key) override { return store_->check({key}); }
    int64_t add(const std::string &key, int64_t value) override { return store_->add(key, value); }
    // Some stores cannot remove keys; they keep them.
    void remove(const std::string &key) override {
        try {
            store_->deleteKey(key);
        } catch (const std::exception &) {}
    }

    std::unique_ptr<GroupStore> connect_anew() override {
        return std::make_unique<StoreAdapter>(store_->clone());
    }

private:
    const c10::intrusive_ptr<c10d::Store> store_;
};

} // namespace qccl_torch
