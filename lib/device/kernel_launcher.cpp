// Implements kernel_launcher.hpp: makes launches of operands.
#include "device/kernel_launcher.hpp"

#include "device/batch.hpp"
#include "device/launch_operands.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace qccl {

using namespace launched;

namespace {

// Returns the accumulator for values of both types, one of which may be the accumulator's type of
// the other.
DataType wider(DataType a, DataType b) {
    return accumulator_of(type_bytes(a) < type_bytes(b) ? b : a);
}

KernelId fold_kernel(DataType accumulator) {
    static_assert(type_table.size() == 22, "a new accumulator needs a kernel");
    switch (accumulator) {
    case DataType::int8: return KernelId::fold_int8;
    case DataType::uint8: return KernelId::fold_uint8;
    case DataType::int32: return KernelId::fold_int32;
    case DataType::uint32: return KernelId::fold_uint32;
    case DataType::int64: return KernelId::fold_int64;
    case DataType::uint64: return KernelId::fold_uint64;
    case DataType::float64: return KernelId::fold_double;
    case DataType::int16: return KernelId::fold_int16;
    case DataType::uint16: return KernelId::fold_uint16;
    case DataType::complex64: return KernelId::fold_complex64;
    case DataType::complex128: return KernelId::fold_complex128;
    case DataType::boolean: return KernelId::fold_boolean;
    case DataType::float_int: return KernelId::fold_float_int;
    case DataType::double_int: return KernelId::fold_double_int;
    case DataType::long_int: return KernelId::fold_long_int;
    case DataType::int_int: return KernelId::fold_int_int;
    case DataType::short_int: return KernelId::fold_short_int;
    default: return KernelId::fold_float;
    }
}

// Returns the kernel that writes sums as values of a codec that is_plain().
KernelId plain_kernel(const Codec &codec, DataType type) {
    const DataType accumulator = accumulator_of(type);
    const bool is_wide = accumulator == DataType::float64;
    if (codec.has_grid())
        return is_wide ? KernelId::fold_dithered_double : KernelId::fold_dithered_float;
    if (codec.rounding != Rounding::stochastic) return fold_kernel(accumulator);
    return is_wide ? KernelId::fold_grouped_double : KernelId::fold_grouped_float;
}

// Returns the kernel that folds sources with dither or rotated ones into the same sink, of that
// codec, if there is one. A lane needs more registers for them than other folds have.
std::optional<KernelId> with_dither(KernelId fold, CodecId sink) {
    const bool may_dither = sink == CodecId::integer || sink == CodecId::minmax;
    switch (fold) {
    case KernelId::fold_float: return KernelId::fold_dithered_float;
    case KernelId::fold_double: return KernelId::fold_dithered_double;
    case KernelId::fold_coded_float:
        return may_dither ? std::optional(KernelId::fold_grouped_float) : std::nullopt;
    case KernelId::fold_dithered_float:
    case KernelId::fold_dithered_double:
    case KernelId::fold_grouped_float:
    case KernelId::fold_grouped_double: return fold; // takes any sources
    default: return std::nullopt;
    }
}

// The kernels that make codes. There is one encode and one measure kernel for fp32 accumulators and
// one for fp64.
struct CodecKernels {
    CodecId codec;
    std::array<KernelId, 2> encode;
    std::optional<std::array<KernelId, 2>> measure; // if a bucket may not lie in a row
};
using enum KernelId;
constexpr CodecKernels codec_kernels[] = {
    {CodecId::integer,
     {encode_integer_float, encode_integer_double},
     {{measure_integer_float, measure_integer_double}}},
    {CodecId::minmax,
     {encode_minmax_float, encode_minmax_double},
     {{measure_minmax_float, measure_minmax_double}}},
    {CodecId::mxfp8e4m3, {encode_mxfp8e4m3_float, encode_mxfp8e4m3_double}, {}},
    {CodecId::mxfp6e2m3, {encode_mxfp6e2m3_float, encode_mxfp6e2m3_double}, {}},
    {CodecId::mxfp4, {encode_mxfp4_float, encode_mxfp4_double}, {}},
    {CodecId::fp8e4m3, {encode_fp8_float, encode_fp8_double}, {}}, // with a block
    {CodecId::fp8e5m2, {encode_fp8_float, encode_fp8_double}, {}},
    {CodecId::nvfp4,
     {encode_nvfp4_float, encode_nvfp4_double},
     {{measure_nvfp4_float, measure_nvfp4_double}}},
    {CodecId::onebit,
     {encode_onebit_float, encode_onebit_double},
     {{measure_onebit_float, measure_onebit_double}}},
    {CodecId::terngrad, {encode_terngrad_float, encode_terngrad_double}, {}},
    {CodecId::norm,
     {encode_norm_float, encode_norm_double},
     {{measure_norm_float, measure_norm_double}}},
    {CodecId::tbq, {encode_tbq_float, encode_tbq_double}, {}},
    {CodecId::topk, {topk_write_float, topk_write_double}, {}}, // behind other steps
    {CodecId::dgc, {topk_write_float, topk_write_double}, {}},
};
// Codecs of which fold_coded_float makes codes of sums if a bucket lies in a row: those that have a
// case in FoldCodedRow (gpu_fold.hpp).
constexpr CodecId folded_codecs[] = {CodecId::integer, CodecId::minmax, CodecId::mxfp8e4m3,
                                     CodecId::mxfp6e2m3, CodecId::mxfp4};

constexpr const CodecKernels *find_kernels(CodecId codec) {
    const auto *const found = std::ranges::find(codec_kernels, codec, &CodecKernels::codec);
    return found == std::end(codec_kernels) ? nullptr : found;
}
static_assert(std::ranges::all_of(codec_table,
                                  [](const CodecRow &row) {
                                      return row.kind == CodecKind::plain || row.cast ||
                                             row.kind == CodecKind::grid ||
                                             row.kind == CodecKind::dummy ||
                                             find_kernels(row.id) != nullptr;
                                  }),
              "a codec has no GPU kernels");
static_assert(std::ranges::none_of(codec_table,
                                   [](const CodecRow &row) {
                                       return row.takes(SpecKey::rotate) &&
                                              row.kind != CodecKind::integer &&
                                              row.kind != CodecKind::minmax;
                                   }),
              "a codec that rotates has no GPU kernels for that");
size_t column_of(DataType type) { return accumulator_of(type) == DataType::float64 ? 1 : 0; }

// Returns the kernel that makes codes of sums, if can_fuse(), and of rotated values.
KernelId coded_kernel(const Codec &codec, DataType type) {
    if (codec.rotation == 0) return fold_coded_float;
    return column_of(type) == 0 ? fold_grouped_float : fold_grouped_double;
}

// Returns true if the lanes of a warp of 32 have whole buckets together (put_fused in
// gpu_operands.hpp).
bool is_in_a_row(const Codec &codec) {
    return std::ranges::find(folded_codecs, codec.id) != std::end(folded_codecs) &&
           std::has_single_bit(codec.bucket) && codec.bucket >= 32 && codec.bucket <= 512;
}

// Returns the sink of a range's coded values. The launch that writes the chunk's end also clears
// the chunk's gaps.
Operand coded_sink(const ChunkRange &range, std::byte *payload) {
    Operand sink = coded(range, payload);
    if (range.begin + range.count == range.whole) set_gaps(sink, *range.codec, *range.layout);
    sink.is_measured = find_kernels(range.codec->id)->measure && !is_in_a_row(*range.codec);
    return sink;
}
bool is_nothing_to_do(const ChunkRange &range, uint64_t count) {
    return count == 0 && range.begin + range.count != range.whole;
}

// Returns the sink of the values that a codec leaves as values. A cast saturates.
Operand plain_sink(const ChunkRange &range, const std::byte *payload) {
    Operand sink = plain(range.codec->plain_type(range.type), plain_start(range, payload));
    sink.saturates = range.codec->is_cast();
    sink.clip = bound_bits(*range.codec);
    sink.is_measured = range.codec->is_relative;
    // A relative bound's step lies behind the values of the whole chunk.
    sink.section[static_cast<size_t>(ChunkPart::scales)] = range.layout->scales;
    return sink;
}

Done check(const Codec &codec) {
    if (KernelLauncher::knows(codec)) return {};
    return invalid_argument("codec: no GPU kernels for \"%s\"", spec(codec).c_str());
}

} // namespace

bool KernelLauncher::knows(const Codec &codec) {
    return codec.is_plain() || codec.row().kind == CodecKind::dummy ||
           find_kernels(codec.id) != nullptr;
}

Done KernelLauncher::encode(const ChunkRange &range, const Noise &noise, DataType in,
                            const void *src, std::byte *payload) {
    const Codec &codec = *range.codec;
    QCCL_TRY(check(codec));
    if (codec.row().kind == CodecKind::dummy)
        return copy(range.type, first_values(range, payload).at, in, src, range.first_values());
    const uint64_t coded_values = coded_count(range), rest = range.count - coded_values;
    if (!codec.is_plain())
        QCCL_TRY(encode_coded(range, noise, plain(in, src), payload, coded_values));
    const Operand sink = plain_sink(range, payload);
    const std::byte *const values = behind(src, in, coded_values);
    // A cast and a grid compute, so that NaN becomes canonical even if the format is the input's.
    if (!codec.is_cast() && !codec.has_grid()) return copy(sink.type, sink.at, in, values, rest);
    if (rest == 0) return {};
    if (codec.is_relative) {
        constexpr KernelId measure[] = {measure_range_float, measure_range_double};
        QCCL_TRY(add({measure[column_of(range.type)]}, rest, {}, sink, {plain(in, values)}));
    }
    return add({plain_kernel(codec, range.type)}, rest, noise_from(range, noise), sink,
               {plain(in, values)});
}

Done KernelLauncher::encode_coded(const ChunkRange &range, const Noise &noise,
                                  const Operand &source, std::byte *payload, uint64_t count) {
    if (is_nothing_to_do(range, count)) return {};
    if (range.codec->row().is_sparse) return encode_kept(range, source, payload);
    const CodecKernels &kernels = *find_kernels(range.codec->id);
    const size_t column = column_of(range.type);
    const Operand sink = coded_sink(range, payload);
    if (range.codec->rotation != 0)
        return add({coded_kernel(*range.codec, range.type)}, count, noise_from(range, noise), sink,
                   {source});
    if (sink.is_measured) QCCL_TRY(add({(*kernels.measure)[column]}, count, {}, sink, {source}));
    return add({kernels.encode[column]}, count, noise_from(range, noise), sink, {source});
}

size_t KernelLauncher::scratch_bytes(const Codec &codec, DataType type, uint64_t count) {
    return codec.row().is_sparse ? TopkScratch(type_bytes(type), count).bytes() : 0;
}

// Each step is a launch of its own, because it reads what all blocks of the previous step have
// written.
Done KernelLauncher::encode_kept(const ChunkRange &range, const Operand &source,
                                 std::byte *payload) {
    if (range.begin != 0 || range.count != range.whole || range.whole >> 32 != 0)
        return Error::make(Code::internal_error,
                           "topk: a GPU encodes whole chunks of less than 2^32 values");
    if (range.whole == 0) return {};
    const TopkScratch layout(type_bytes(range.type), range.whole);
    if (scratch_.size() < layout.bytes() || reinterpret_cast<uintptr_t>(scratch_.data()) % 16 != 0)
        return Error::make(Code::internal_error, "topk: %zu bytes of scratch memory, not %zu",
                           scratch_.size(), static_cast<size_t>(layout.bytes()));
    const Operand sink = coded_sink(range, payload);
    Operand scratch{.codec = sink.codec, .at = scratch_.data()}; // holds no values
    QCCL_TRY(flush());
    QCCL_TRY(put({clear_sums}, layout.sums_end() / sizeof(uint64_t), {},
                 plain(DataType::uint64, scratch.at), {}));
    const auto step = [&](const std::array<KernelId, 2> &kernels, unsigned number) -> Done {
        scratch.bits = static_cast<uint8_t>(number);
        QCCL_TRY(flush());
        return put({kernels[column_of(range.type)]}, range.count, {}, sink, {{source, scratch}});
    };
    // How much of the values the steps read again depends on the values, so one pass over values
    // and payload is counted.
    moved_bytes_ += bytes_of(source, range.count) + bytes_of(sink, range.count);
    QCCL_TRY(step({topk_sample_float, topk_sample_double}, 0));
    for (unsigned turn = 0; turn < 2; turn++)
        QCCL_TRY(step({topk_first_float, topk_first_double}, turn));
    for (unsigned digit = 1; digit < layout.digits.count(); digit++)
        QCCL_TRY(step({topk_digit_float, topk_digit_double}, digit));
    QCCL_TRY(step({topk_count_float, topk_count_double}, 0));
    QCCL_TRY(step({topk_write_float, topk_write_double}, 0));
    return flush();
}

bool KernelLauncher::can_fuse(const Codec &codec, DataType type, bool has_dither) {
    if (codec.is_plain()) return !codec.is_relative; // which measures the sum first
    return find_kernels(codec.id) != nullptr && is_in_a_row(codec) && column_of(type) == 0 &&
           (!has_dither || with_dither(coded_kernel(codec, type), codec.id));
}

Done KernelLauncher::decode_add_encode(const ChunkRange &range, RedOp op, uint32_t divisor,
                                       const std::byte *received, DataType in, const void *src,
                                       const Noise &noise, std::byte *payload) {
    QCCL_TRY(check(*range.codec));
    const uint64_t coded_values = coded_count(range), rest = range.count - coded_values;
    if (!range.codec->is_plain() && !is_nothing_to_do(range, coded_values))
        QCCL_TRY(add({coded_kernel(*range.codec, range.type), op, divisor}, coded_values,
                     noise_from(range, noise), coded_sink(range, payload),
                     {plain(in, src), coded_source(range, received)}));
    if (rest == 0) return {};
    const bool computes = range.codec->is_cast() || range.codec->has_grid();
    const KernelId kernel =
        computes ? plain_kernel(*range.codec, range.type) : fold_kernel(accumulator_of(range.type));
    return add({kernel, op, divisor}, rest, computes ? noise_from(range, noise) : Noise(),
               plain_sink(range, payload),
               {plain(in, behind(src, in, coded_values)),
                plain(range.codec->plain_type(range.type), plain_start(range, received))});
}

// Values that the payload has keep their bits, as a copy does; sums need no such care.
Done KernelLauncher::decode_first(const ChunkRange &range, const std::byte *payload, DataType out,
                                  void *dst) {
    Operand values = first_values(range, payload);
    QCCL_TRY(copy(out, dst, range.type, values.at, values.kept));
    const uint64_t rest = range.count - values.kept;
    if (rest == 0) return {};
    const Operand sink = plain(out, behind(dst, out, values.kept));
    values.kept = 0;
    return add({fold_kernel(accumulator_of(range.type))}, rest, {}, sink, {values});
}

Done KernelLauncher::decode(const ChunkRange &range, const std::byte *payload, DataType out,
                            void *dst) {
    QCCL_TRY(check(*range.codec));
    const uint64_t coded_values = coded_count(range);
    if (range.codec->row().kind == CodecKind::dummy) return decode_first(range, payload, out, dst);
    const DataType plain_type = range.codec->plain_type(range.type);
    // A multiple may be beyond the type's largest number although the value was not.
    if (range.codec->has_grid() && out != plain_type && range.count != 0) {
        Operand sink = plain(out, dst);
        sink.saturates = true;
        return add({fold_kernel(plain_type)}, range.count, {}, sink,
                   {plain(plain_type, plain_start(range, payload))});
    }
    if (coded_values != 0)
        QCCL_TRY(add({fold_kernel(accumulator_of(range.type))}, coded_values, {}, plain(out, dst),
                     {coded_source(range, payload)}));
    return copy(out, behind(dst, out, coded_values), plain_type, plain_start(range, payload),
                range.count - coded_values);
}

Done KernelLauncher::decode_add(const ChunkRange &range, RedOp op, const std::byte *payload,
                                void *accumulator) {
    QCCL_TRY(check(*range.codec));
    const DataType type = accumulator_of(range.type);
    const uint64_t coded_values = coded_count(range);
    const Operand sum = plain(type, accumulator);
    if (coded_values != 0)
        QCCL_TRY(add({fold_kernel(type), op}, coded_values, {}, sum,
                     {sum, coded_source(range, payload)}));
    return reduce(op, type, behind(accumulator, type, coded_values),
                  range.codec->plain_type(range.type), plain_start(range, payload),
                  range.count - coded_values);
}

namespace {

// The sources of a sum as operands of a batch.
struct SumOperands {
    explicit SumOperands(const KernelLauncher::Sum &sum) : count(sum.sources.size()) {
        std::ranges::transform(
            sum.sources, operands.begin(), [](const KernelLauncher::Source &source) {
                if (!source.chunk) return plain(source.type, source.at);
                const ChunkRange &chunk = *source.chunk;
                if (!chunk.codec->is_plain()) return coded_source(chunk, source.at);
                return plain(chunk.codec->plain_type(chunk.type), plain_start(chunk, source.at));
            });
    }
    std::span<const Operand> get() const { return {operands.data(), count}; }

    std::array<Operand, KernelLauncher::most_sources> operands;
    size_t count;
};

} // namespace

Done KernelLauncher::fold(const Sum &sum, DataType accumulator_type, DataType out, void *dst) {
    if (sum.count == 0) return {};
    return add({fold_kernel(accumulator_type), sum.op, sum.divisor}, sum.count, {}, plain(out, dst),
               SumOperands(sum).get());
}

Done KernelLauncher::fold(const Sum &sum, const ChunkRange &range, const Noise &noise,
                          std::byte *payload) {
    QCCL_TRY(check(*range.codec));
    const bool is_plain = range.codec->is_plain();
    if (sum.count == 0 && (is_plain || is_nothing_to_do(range, 0))) return {};
    const KernelId kernel =
        is_plain ? plain_kernel(*range.codec, range.type) : coded_kernel(*range.codec, range.type);
    return add({kernel, sum.op, sum.divisor}, sum.count, noise_from(range, noise),
               is_plain ? plain_sink(range, payload) : coded_sink(range, payload),
               SumOperands(sum).get());
}

Done KernelLauncher::fold_exact(const Sum &sum, DataType out, void *dst) {
    if (sum.count == 0) return {};
    const bool is_wide = accumulator_of(sum.sources[0].type) == DataType::float64;
    return add(
        {is_wide ? KernelId::fold_exact_double : KernelId::fold_exact_float, sum.op, sum.divisor},
        sum.count, {}, plain(out, dst), SumOperands(sum).get());
}

Done KernelLauncher::reduce(RedOp op, DataType accumulator_type, void *accumulator, DataType in,
                            const void *src, size_t count) {
    if (count == 0) return {};
    const Operand sum = plain(accumulator_type, accumulator);
    return add({fold_kernel(accumulator_type), op}, count, {}, sum, {sum, plain(in, src)});
}

Done KernelLauncher::copy(DataType out, void *dst, DataType in, const void *src, size_t count) {
    if (count == 0) return {};
    if (out != in)
        return add({fold_kernel(wider(in, out))}, count, {}, plain(out, dst), {plain(in, src)});
    // Equal types keep their bits. They are moved as words if size and addresses allow: a lane's
    // four words are one access of 16 bytes.
    const size_t bytes = count * type_bytes(out);
    const bool has_words = bytes % sizeof(uint32_t) == 0 &&
                           reinterpret_cast<uintptr_t>(dst) % sizeof(uint32_t) == 0 &&
                           reinterpret_cast<uintptr_t>(src) % sizeof(uint32_t) == 0;
    const DataType words = has_words ? DataType::uint32 : DataType::uint8;
    return add({fold_kernel(words)}, bytes / type_bytes(words), {}, plain(words, dst),
               {plain(words, src)});
}

Done KernelLauncher::divide(DataType accumulator_type, void *accumulator, size_t count,
                            uint32_t ranks) {
    if (count == 0) return {};
    const Operand sum = plain(accumulator_type, accumulator);
    return add({fold_kernel(accumulator_type), RedOp::sum, ranks}, count, {}, sum, {sum});
}

Done KernelLauncher::keep_error(DataType accumulator_type, void *residual, const void *values,
                                const void *decoded, size_t count, uint32_t factor,
                                void *velocity) {
    if (count == 0) return {};
    const bool is_wide = accumulator_type == DataType::float64;
    const std::array sources{plain(accumulator_type, values), plain(accumulator_type, decoded),
                             plain(accumulator_type, velocity)};
    return add({is_wide ? keep_error_double : keep_error_float, RedOp::sum, factor}, count, {},
               plain(accumulator_type, residual), std::span(sources).first(velocity ? 3 : 2));
}

Done KernelLauncher::add_velocity(DataType accumulator_type, void *values, void *velocity,
                                  const void *before, size_t count, uint32_t momentum) {
    if (count == 0) return {};
    const bool is_wide = accumulator_type == DataType::float64;
    return add({is_wide ? add_velocity_double : add_velocity_float, RedOp::sum, momentum}, count,
               {}, plain(accumulator_type, values),
               {plain(accumulator_type, before), plain(accumulator_type, velocity)});
}

// Returns the operand of scales on which ranks agree, or will.
static Operand scales_of_blocks(const uint16_t *scales, uint32_t block) {
    Operand operand = plain(DataType::uint16, scales);
    operand.bucket = block;
    operand.bucket_shift = log2_of(block);
    return operand;
}

Done KernelLauncher::find_scales(uint16_t *scales, DataType in, const void *values, uint64_t count,
                                 uint32_t block, uint32_t limit) {
    if (count == 0) return {};
    constexpr KernelId kernels[] = {shared_scales_float, shared_scales_double};
    Operand sink = scales_of_blocks(scales, block);
    sink.clip = limit;
    return add({kernels[column_of(in)]}, count, {}, sink, {plain(in, values)});
}

Done KernelLauncher::to_integers(float *integers, DataType in, const void *values,
                                 const uint16_t *scales, uint64_t count, uint32_t block,
                                 void *residual) {
    if (count == 0) return {};
    constexpr KernelId kernels[] = {shared_integers_float, shared_integers_double};
    const std::array sources{plain(in, values), scales_of_blocks(scales, block),
                             plain(in, residual)};
    return add({kernels[column_of(in)]}, count, {}, plain(DataType::float32, integers),
               std::span(sources).first(residual ? 3 : 2));
}

Done KernelLauncher::from_integers(DataType out, void *dst, const float *sums,
                                   const uint16_t *scales, uint64_t count, uint32_t block,
                                   uint32_t ranks) {
    if (count == 0) return {};
    constexpr KernelId kernels[] = {shared_values_float, shared_values_double};
    return add({kernels[column_of(out)], RedOp::sum, ranks}, count, {}, plain(out, dst),
               {plain(DataType::float32, sums), scales_of_blocks(scales, block)});
}

Done KernelLauncher::clear(std::byte *memory, size_t words) {
    if (words == 0) return {};
    QCCL_TRY(flush());
    QCCL_TRY(add({clear_sums}, words, {}, plain(DataType::uint64, memory), {}));
    return flush();
}

Done KernelLauncher::add(const Shape &shape, uint64_t count, const Noise &noise,
                         const Operand &sink, std::span<const Operand> sources) {
    moved_bytes_ += bytes_of(sink, count);
    for (const Operand &source : sources) moved_bytes_ += bytes_of(source, count);
    const auto is_rare = [](const Operand &source) {
        return source.is_dithered || source.is_rotated();
    };
    if (std::ranges::none_of(sources, is_rare)) return put(shape, count, noise, sink, sources);
    const std::optional<KernelId> kernel = with_dither(shape.kernel, sink.codec);
    if (!kernel)
        return invalid_argument("codec: no GPU kernel for sums of dithered or rotated values");
    Shape dithered = shape;
    dithered.kernel = *kernel;
    return put(dithered, count, noise, sink, sources);
}

Done KernelLauncher::put(const Shape &shape, uint64_t count, const Noise &noise,
                         const Operand &sink, std::span<const Operand> sources) {
    const auto needed = static_cast<uint32_t>(1 + sources.size());
    if (shape_ != shape || batch_.tensors == Batch::most_tensors ||
        operands_ + needed > Batch::most_operands)
        QCCL_TRY(flush());
    shape_ = shape;
    batch_.tensor[batch_.tensors++] = {.first_source = operands_ + 1,
                                       .sources = static_cast<uint32_t>(sources.size()),
                                       .count = count,
                                       .noise = noise};
    batch_.operand[operands_] = sink;
    std::ranges::copy(sources, &batch_.operand[operands_ + 1]);
    operands_ += needed;
    values_ += count;
    return {};
}

Done KernelLauncher::flush() {
    if (batch_.tensors == 0) return {};
    batch_.op = shape_->op;
    batch_.divisor = shape_->divisor;
    batch_.call = call_;
    const KernelId kernel = shape_->kernel;
    const uint64_t blocks = std::clamp<uint64_t>((values_ + block_values - 1) / block_values, 1,
                                                 most_blocks_.of(kernel));
    const Batch batch = batch_;
    batch_.tensors = 0;
    operands_ = 0;
    values_ = 0;
    return launch_(device_, kernel, static_cast<unsigned>(blocks), batch);
}

// ---- Barrier between GPUs

Done KernelLauncher::launch_barrier(const Barrier &barrier) {
    if (barrier.others.size() > Barrier::most_others)
        return Error::make(Code::internal_error, "%zu GPUs do not meet", barrier.others.size());
    const auto word = [](uint64_t *at) {
        return Operand{.type = DataType::uint64, .at = reinterpret_cast<std::byte *>(at)};
    };
    std::array<Operand, Batch::most_operands> operands;
    operands[0] = word(barrier.met);
    operands[1] = word(barrier.met_on_host);
    std::ranges::transform(barrier.others, operands.begin() + 2, word);
    Operand own = word(barrier.own_words);
    own.coded = barrier.value;
    own.begin = barrier.looks;
    QCCL_TRY(flush());
    QCCL_TRY(add({KernelId::gpu_barrier}, 1, {}, own,
                 std::span(operands).first(2 + barrier.others.size())));
    return flush();
}

Done KernelLauncher::await(const uint64_t *word, uint64_t value) {
    QCCL_TRY(flush());
    batch_.awaited_word = word;
    batch_.awaited = value;
    return {};
}

} // namespace qccl
