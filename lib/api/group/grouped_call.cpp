// Names calls in the words of errors.
#include "api/group/grouped_call.hpp"

namespace qccl {

static std::string name_of(const GroupedCalls &group, const GroupedCall &call) {
    const std::string layer =
        call.layer ? "layers[" + std::to_string(*call.layer) + "]" : std::string();
    if (group.is_inside) return layer;
    return "call " + std::to_string(call.number) + " of the group" +
           (call.layer ? ", " + layer : "");
}

static std::string name_of(const GroupedCalls &group, const GroupedCall &first,
                           const GroupedCall &last, size_t count) {
    if (count == 1) return name_of(group, first);
    const bool are_layers = last.is_layer_of(first);
    const size_t begin = are_layers ? *first.layer : first.number;
    const size_t end = are_layers ? *last.layer : last.number;
    const bool are_all = count == end - begin + 1;
    std::string text = are_all ? "" : std::to_string(count) + " of the ";
    if (are_layers && !group.is_inside)
        text = "call " + std::to_string(first.number) + " of the group, " + text;
    text +=
        (are_layers ? "layers " : "calls ") + std::to_string(begin) + " to " + std::to_string(end);
    return text + (are_layers ? ", fused" : " of the group, fused");
}

static Error reworded_for(const std::string &name, Collective collective, const Error &error) {
    return reworded(error, "%s (%s): %.380s", name.c_str(), qccl::name(collective), error.text);
}

Error GroupedCalls::named(const GroupedCall &call, const Error &error) const {
    return reworded_for(name_of(*this, call), call.collective, error);
}

Error GroupedCalls::named(const GroupedCall &first, const GroupedCall &last, size_t count,
                          const Error &error) const {
    return reworded_for(name_of(*this, first, last, count), first.collective, error);
}

} // namespace qccl
