// Prints schedules, and parses them line by line.
#include "schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

namespace qccl {

namespace {

constexpr std::array<const char *, 7> verb_names{"send",   "recv",   "reduce",    "copy",
                                                 "encode", "decode", "decode_add"};
constexpr std::array<const char *, 5> kind_names{"none", "input", "output", "sum", "wire"};

struct FlagName {
    Step::Flag flag;
    const char *name;
};
constexpr FlagName flag_names[] = {
    {Step::finishes, "finishes"},     {Step::joins_next, "joins"}, {Step::releases, "releases"},
    {Step::as_encoded, "as_encoded"}, {Step::stays, "stays"},      {Step::inner, "inner"},
};

void append(std::string &text, const char *word, uint64_t number) {
    text += word;
    text += std::to_string(number);
}

void append(std::string &text, Slot slot, uint32_t slots = 1) {
    text += kind_names[slot.kind];
    append(text, "(", slot.index);
    if (slots != 1) append(text, "..", slot.index + slots - 1);
    text += ")";
}

// Returns the operand that names the chunk; null if there is none.
const Slot *names_chunk(const Step &step) {
    for (const Slot *slot : {&step.dst, &step.src})
        if (!slot->is(SlotKind::none) && !slot->is(SlotKind::wire)) return slot;
    return nullptr;
}

} // namespace

std::string print(const Step &step) {
    std::string text = verb_names[static_cast<size_t>(step.verb)];
    text += " ";
    append(text, step.verb == Verb::send ? step.src : step.dst);
    if (step.verb == Verb::send)
        append(text, " -> ", step.peer);
    else if (step.verb == Verb::recv)
        append(text, " <- ", step.peer);
    else {
        text += accumulates(step.verb) ? " += " : " <- ";
        append(text, step.src, step.sources);
    }
    const Slot *named = names_chunk(step);
    if (!named || named->index != step.chunk) append(text, " chunk ", step.chunk);
    if (step.ordinal != 0) append(text, " #", step.ordinal);
    if (step.has(Step::common)) append(text, " common ", step.peer);
    for (const auto &[flag, name] : flag_names)
        if (step.has(flag)) text.append(" ").append(name);
    return text;
}

Error wrong_step(uint32_t rank, size_t number, const Step &step, const char *reason) {
    return invalid_argument("rank %u, step %zu (%s): %s", rank, number, print(step).c_str(), reason)
        .at_rank(rank);
}

std::string print(const Section &section) {
    const auto &[team, s] = section;
    std::string text;
    append(text, "schedule rank ", team.rank);
    append(text, " of ", team.size);
    append(text, " root ", team.root);
    append(text, " chunks ", s.chunks);
    append(text, " outbox ", s.outbox);
    append(text, " wires ", s.wires);
    text += s.is_placed ? " placed\n" : "\n";
    constexpr size_t number_width = 6;
    for (size_t i = 0; i < s.steps.size(); i++) {
        const std::string number = std::to_string(i);
        text.append(number_width - std::min(number_width, number.size()), ' ');
        text.append(number).append(": ").append(print(s.steps[i])).append("\n");
    }
    return text;
}

namespace {

// One line of input, parsed from the left.
class LineParser {
public:
    LineParser(std::string_view text, size_t number) : rest_(text), number_(number) {
        skip_space();
    }

    bool is_empty() const { return rest_.empty(); }
    bool is_number() const { return !rest_.empty() && is_digit(rest_.front()); }

    // Skips `word` and returns true if `word` comes next and ends there.
    bool take(std::string_view word) {
        if (!rest_.starts_with(word)) return false;
        const bool goes_on =
            rest_.size() > word.size() && is_letter(word.back()) && is_letter(rest_[word.size()]);
        if (goes_on) return false;
        rest_.remove_prefix(word.size());
        skip_space();
        return true;
    }
    Done want(std::string_view word) {
        if (take(word)) return {};
        return refuse("expected", word);
    }
    Result<uint32_t> number(uint32_t most = std::numeric_limits<uint32_t>::max()) {
        uint32_t value = 0;
        const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
        if (error == std::errc::result_out_of_range || (error == std::errc{} && value > most))
            return refuse("number too large:", rest_);
        if (error != std::errc{}) return refuse("expected a number,", "");
        rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
        skip_space();
        return value;
    }
    Error refuse(std::string_view reason, std::string_view detail) const {
        const int shown = static_cast<int>(std::min<size_t>(detail.size(), most_shown));
        const int found = static_cast<int>(std::min<size_t>(rest_.size(), most_shown));
        return invalid_argument("line %zu: %.*s %.*s, at '%.*s'", number_,
                                static_cast<int>(reason.size()), reason.data(), shown,
                                detail.data(), found, rest_.data());
    }

private:
    static constexpr size_t most_shown = 40; // bytes of the input shown in an error

    static bool is_digit(char c) { return c >= '0' && c <= '9'; }
    static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }
    void skip_space() {
        const size_t end = rest_.find_first_not_of(" \t\r");
        rest_.remove_prefix(std::min(end, rest_.size()));
    }

    std::string_view rest_;
    size_t number_;
};

struct ParsedOperand {
    Slot slot;
    uint16_t slots = 1;
};

Result<ParsedOperand> parse_operand(LineParser &line) {
    for (size_t kind = 1; kind < kind_names.size(); kind++) {
        if (!line.take(kind_names[kind])) continue;
        QCCL_TRY(line.want("("));
        QCCL_TRY(const uint32_t first, line.number(Slot::max_index));
        uint32_t last = first;
        if (line.take("..")) {
            QCCL_TRY(last, line.number(Slot::max_index));
        }
        QCCL_TRY(line.want(")"));
        if (last < first || last - first >= std::numeric_limits<uint16_t>::max())
            return line.refuse("a range that ends before it starts or is too long", "");
        return ParsedOperand{{static_cast<SlotKind>(kind), first},
                             static_cast<uint16_t>(last - first + 1)};
    }
    return line.refuse("expected input, output, sum or wire", "");
}

Done parse_operands(LineParser &line, Step &step) {
    QCCL_TRY(const ParsedOperand left, parse_operand(line));
    if (left.slots != 1) return line.refuse("only what is added may be a range", "");
    if (step.verb == Verb::send) {
        step.src = left.slot;
        QCCL_TRY(line.want("->"));
        QCCL_TRY(step.peer, line.number());
        return {};
    }
    step.dst = left.slot;
    QCCL_TRY(line.want(accumulates(step.verb) ? "+=" : "<-"));
    if (step.verb == Verb::recv) {
        QCCL_TRY(step.peer, line.number());
        return {};
    }
    QCCL_TRY(const ParsedOperand right, parse_operand(line));
    if (right.slots != 1 && step.verb != Verb::reduce)
        return line.refuse("only reduce adds a range", "");
    step.src = right.slot;
    step.sources = right.slots;
    return {};
}

Done parse_attributes(LineParser &line, Step &step) {
    const Slot *named = names_chunk(step);
    if (line.take("chunk")) {
        QCCL_TRY(step.chunk, line.number());
    } else if (named) {
        step.chunk = named->index;
    } else {
        return line.refuse("expected the chunk that travels", "");
    }
    if (line.take("#")) {
        QCCL_TRY(step.ordinal, line.number());
    }
    if (computes(step.verb) && line.take("common")) {
        step.flags |= Step::common;
        QCCL_TRY(step.peer, line.number());
    }
    for (const auto &[flag, name] : flag_names)
        if (line.take(name)) step.flags |= flag;
    if (!line.is_empty()) return line.refuse("nothing more is expected", "");
    return {};
}

Result<Step> parse_step(LineParser &line, size_t index) {
    if (line.is_number()) {
        QCCL_TRY(const uint32_t number, line.number());
        if (number != index)
            return line.refuse("the step has another number:", std::to_string(index));
        QCCL_TRY(line.want(":"));
    }
    for (size_t verb = 0; verb < verb_names.size(); verb++) {
        if (!line.take(verb_names[verb])) continue;
        Step step{.verb = static_cast<Verb>(verb)};
        QCCL_TRY(parse_operands(line, step));
        QCCL_TRY(parse_attributes(line, step));
        return step;
    }
    return line.refuse("expected a step", "");
}

// Parses the header after the word "schedule".
Result<Section> parse_header(LineParser &line) {
    Section section;
    const std::pair<const char *, uint32_t *> fields[] = {
        {"rank", &section.team.rank},         {"of", &section.team.size},
        {"root", &section.team.root},         {"chunks", &section.schedule.chunks},
        {"outbox", &section.schedule.outbox}, {"wires", &section.schedule.wires},
    };
    for (const auto &[name, value] : fields) {
        QCCL_TRY(line.want(name));
        QCCL_TRY(*value, line.number(Slot::max_index));
    }
    if (section.team.rank >= section.team.size || section.team.root >= section.team.size)
        return line.refuse("rank and root must be less than the number of ranks", "");
    section.schedule.is_placed = line.take("placed");
    if (!line.is_empty()) return line.refuse("nothing more is expected", "");
    return section;
}

// Without these limits, a section could name slots that its steps never touch, and make others
// reserve memory for them. A rank may have many chunks and wire slots that it does not touch: in a
// gather or a scatter, those of other ranks.
Done check_counts(const Section &section, const LineParser &header) {
    constexpr size_t most_untouched = 4096;
    const size_t steps = section.schedule.steps.size();
    if (section.schedule.chunks > std::max(steps, most_untouched))
        return header.refuse("there are more chunks than steps", "");
    if (section.schedule.outbox > std::max(steps, most_untouched))
        return header.refuse("the outbox has more slots than steps", "");
    if (section.schedule.wires > section.schedule.outbox + 2 * steps)
        return header.refuse("there are more wires than operands", "");
    return {};
}

} // namespace

Result<std::vector<Section>> parse(std::string_view text) {
    std::vector<Section> sections;
    LineParser header("", 0);
    for (size_t number = 1; !text.empty(); number++) {
        const size_t end = std::min(text.find('\n'), text.size());
        LineParser line(text.substr(0, end), number);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.is_empty() || line.take("//")) continue;
        if (line.take("schedule")) {
            if (!sections.empty()) QCCL_TRY(check_counts(sections.back(), header));
            header = line;
            QCCL_TRY(auto section, parse_header(line));
            sections.push_back(std::move(section));
            continue;
        }
        if (sections.empty()) return line.refuse("expected", "schedule");
        auto &steps = sections.back().schedule.steps;
        QCCL_TRY(const Step step, parse_step(line, steps.size()));
        steps.push_back(step);
    }
    if (!sections.empty()) QCCL_TRY(check_counts(sections.back(), header));
    return sections;
}

} // namespace qccl
