// The hysteresis between lossless calls and calls with a codec.
#include "plan/guard_state.hpp"

#include <algorithm>

namespace qccl {

GuardState::Change GuardState::note(double nmse, double budget) {
    latest_ = nmse;
    if (!is_lossless_) {
        if (nmse <= budget) return Change::none;
        is_lossless_ = true;
        good_ = 0;
        to_return_ = std::min(to_return_ * 2, most_to_return);
        return Change::falls_back;
    }
    if (nmse == 0) return Change::none;
    // Otherwise an error that moves around the budget would change results from call to call.
    good_ = nmse <= budget / 2 ? good_ + 1 : 0;
    if (good_ < to_return_) return Change::none;
    is_lossless_ = false;
    return Change::returns;
}

} // namespace qccl
