// Formats sizes, times and table columns with snprintf().
#include "perf/number_text.hpp"

#include <cstdio>
#include <iterator>

namespace qccl::perf {

std::string fitted(double value, int width) {
    char text[400]; // the largest double has 309 digits
    for (int decimals = 2; decimals >= 0; decimals--)
        if (std::snprintf(text, sizeof text, "%*.*f", width, decimals, value) <= width) return text;
    std::snprintf(text, sizeof text, "%*.*e", width, width >= 7 ? 1 : 0, value);
    return text;
}

std::string memory_text(double bytes) {
    static constexpr const char *units[] = {"B", "KB", "MB", "GB", "TB"};
    double amount = bytes;
    size_t unit = 0;
    for (; amount >= 1024 && unit + 1 < std::size(units); unit++) amount /= 1024;
    char text[400];
    const int decimals = amount < 10 ? 2 : amount < 100 ? 1 : 0;
    std::snprintf(text, sizeof text, "%.*f %s", decimals, amount, units[unit]);
    return text;
}

std::string time_text(double ns) {
    static constexpr const char *units[] = {"ns", "us", "ms", "s"};
    size_t unit = 0;
    // 999.5 would otherwise be printed as 1e+03.
    for (; ns >= 999.5 && unit + 1 < std::size(units); unit++) ns /= 1000;
    char text[400];
    const int decimals = ns < 9.995 ? 2 : ns < 99.95 ? 1 : 0;
    std::snprintf(text, sizeof text, "%.*f %s", decimals, ns, units[unit]);
    return text;
}

} // namespace qccl::perf
