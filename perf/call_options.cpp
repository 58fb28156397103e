// Implements call_options.hpp. Each parser accepts a text and stores the value that the text names.
#include "perf/call_options.hpp"

#include "base/choice.hpp"
#include "base/parse_units.hpp"
#include "base/spec_text.hpp"
#include "perf/perf_arguments.hpp"

#include <CLI/CLI.hpp>

namespace qccl::perf {

static Names with_all(Names names) {
    names.push_back("all");
    return names;
}

Take take_collective(Collective &collective) {
    return [&collective](const std::string &called) -> Done {
        const auto name = parse_collective(called);
        const auto found = name ? name : collective_called(called);
        if (!found)
            return refuse("'%.40s' is none of %s", called.c_str(),
                          listed({collective_names.begin(), collective_names.end()}).c_str());
        collective = *found;
        return {};
    };
}

Take take_algorithm(Algorithm &algorithm) {
    return [&algorithm](const std::string &text) -> Done {
        QCCL_TRY(algorithm, parse_algorithm(text));
        return {};
    };
}

Take take_ops(std::vector<RedOp> &ops) {
    return [&ops](const std::string &text) -> Done {
        if (text == "mulsum") return refuse("'mulsum' is not possible: no operation has a factor");
        const auto op = parse_op(text);
        if (!op && text != "all")
            return no_choice("operation", text, with_all({op_names.begin(), op_names.end()}));
        if (op)
            ops = {*op};
        else
            ops = {RedOp::sum, RedOp::prod, RedOp::max, RedOp::min, RedOp::avg};
        return {};
    };
}

Take take_types(std::optional<std::vector<DataType>> &types) {
    return [&types](const std::string &text) -> Done {
        const auto type = parse_type(text);
        if (!type && text != "all") return no_choice("type", text, with_all(names_of(type_table)));
        std::vector<DataType> all;
        for (const TypeInfo &row : type_table) all.push_back(row.type);
        types = type ? std::vector{*type} : all;
        return {};
    };
}

Take take_root(std::optional<uint32_t> &root, uint32_t most_ranks) {
    return [&root, most_ranks](const std::string &text) -> Done {
        const auto number = parse_count(text);
        if (text != "all" && (!number || *number >= most_ranks))
            return refuse("'%.40s' is no rank, and not all", text.c_str());
        root = number ? std::optional(static_cast<uint32_t>(*number)) : std::nullopt;
        return {};
    };
}

Take take_codecs(std::vector<Codec> &codecs) {
    return [&codecs](const std::string &text) -> Done {
        QCCL_TRY(codecs, parse_codec_list(text));
        if (codecs.empty()) return refuse("names no codec");
        return {};
    };
}

Take take_algorithms(std::vector<std::string> &algorithms) {
    return [&algorithms](const std::string &text) -> Done {
        std::vector<std::string> specs;
        for (const std::string &item : split_specs(text)) {
            specs.push_back(item);
            if (item == "auto") continue;
            QCCL_TRY(const Algorithm algorithm, parse_algorithm(item, "algorithm", {"auto"}));
            specs.back() = spec(algorithm);
        }
        algorithms = specs;
        return {};
    };
}

void add_sizes(CLI::App &app, const SizeOptions &to) {
    static constexpr auto *group = "Sizes";
    add_option(app, group, "-b,--minbytes", "smallest size (32M)", take_bytes(to.min_bytes));
    add_option(app, group, "-e,--maxbytes", "largest size (32M)", take_bytes(to.max_bytes));
    add_option(app, group, "-i,--stepbytes", "added to reach the next size (1M)",
               take_bytes(to.step_bytes));
    add_option(app, group, "-f,--stepfactor", "or multiplied by, if above 1 (1)",
               take_count(to.step_factor, 1, 1U << 30));
}

} // namespace qccl::perf
