// The C functions of layer codecs. LayerCodecs measures what candidate codecs lose of a model's
// layers, and keeps the codec that was chosen for each layer; lib/plan chooses. All ranks of a
// communicator take the choice of rank 0, which an all-gather of that communicator brings.
#include "api/call/collective_call.hpp"
#include "api/call/entry.hpp"

#include "base/hash.hpp"
#include "comm/boundary.hpp"
#include "comm/handle_table.hpp"
#include "device/encode_loss.hpp"
#include "plan/layer_codecs.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace qccl {

namespace {

constexpr const char *usual_uniform = "int4";

// Sums of the bits and errors that were noted, by codec. Empty: nothing was.
struct Notes {
    uint64_t number = 0;
    LayerOptions sums = {};

    void add(const Notes &more) {
        number += more.number;
        sums.resize(std::max(sums.size(), more.sums.size()));
        for (size_t i = 0; i < more.sums.size(); i++) {
            sums[i].bits += more.sums[i].bits;
            sums[i].error += more.sums[i].error;
        }
    }
    LayerOptions means() const {
        LayerOptions means = sums;
        for (LayerOption &each : means) {
            each.bits /= static_cast<double>(number);
            each.error /= static_cast<double>(number);
        }
        return means;
    }
};

struct Layer {
    DataType type = DataType::float32;
    uint64_t count = 0;
    // What was noted since the latest decision began, and what that decision goes by, until it has
    // succeeded.
    Notes noted = {}, offered = {};
};

// What ranks tell each other before they take a choice; the bits of each layer follow, and then the
// number of each layer's codec.
struct OfferedChoice {
    uint64_t question = 0; // hash of the layers and the candidates
    LayerOption chosen, uniform;
};

class LayerCodecs {
public:
    LayerCodecs(std::vector<Layer> layers, LayerCandidates candidates, const Kernels &kernels)
        : candidates_(std::move(candidates)), layers_(std::move(layers)), encode_loss_(kernels) {
        choice_.codecs.assign(layers_.size(), candidates_.uniform);
        choice_.bits.assign(layers_.size(), 0);
    }
    ~LayerCodecs() { end_codecs(); }
    LayerCodecs(const LayerCodecs &) = delete;
    LayerCodecs &operator=(const LayerCodecs &) = delete;

    Done make_handles(const Kernels &kernels) {
        for (const Codec &codec : candidates_.codecs) {
            QCCL_TRY(const qcclCodec_t handle, make_codec({codec, &kernels}));
            handles_.push_back(handle);
        }
        return {};
    }

    // May be called more than once.
    void end_codecs() const {
        for (const qcclCodec_t handle : handles_) (void)end_codec(handle);
    }

    size_t size() const { return layers_.size(); }
    size_t layer_bytes(size_t layer) const {
        return layers_[layer].count * type_bytes(layers_[layer].type);
    }

    void note(size_t number, const void *values);
    // `decides`: whether this rank makes the choice; another rank only tells what it chooses from.
    std::vector<std::byte> offer(bool decides);
    void take(const std::byte *offer);
    qcclCodec_t codec(size_t layer);
    std::string describe();

private:
    // The bits that the choice goes by; of a layer of which nothing was known, those of the codec.
    double bits(size_t layer) const {
        const double known = choice_.bits[layer];
        if (known != 0) return known;
        return layer_bits(candidates_.codecs[choice_.codecs[layer]], layers_[layer].type,
                          layers_[layer].count);
    }
    size_t offer_bytes() const {
        return sizeof(OfferedChoice) + size() * (sizeof(double) + sizeof(std::byte));
    }
    // Moves what is noted to what is offered, which it returns.
    std::vector<LayerOptions> take_notes();
    uint64_t question() const;

    const LayerCandidates candidates_;
    std::vector<qcclCodec_t> handles_; // by candidate; owned

    // Nothing that takes long is done under this one. It protects the notes, and the choice; types
    // and counts never change.
    std::mutex mutex_;
    std::vector<Layer> layers_;
    LayerChoice choice_;

    std::mutex measure_mutex_; // protects the members below; taken before the other one
    EncodeLoss encode_loss_;
    uint64_t encodes_ = 0;
};

void LayerCodecs::note(size_t number, const void *values) {
    const std::lock_guard one_at_a_time(measure_mutex_);
    const DataType type = layers_[number].type;
    const uint64_t count = layers_[number].count;
    Notes note{.number = 1};
    encode_loss_.read(type, values, count);
    for (const Codec &codec : candidates_.codecs) {
        const Noise noise{.key = noise_key(codec.seed, 0, 0), .call = encodes_++, .first_index = 0};
        const SampledLoss loss = encode_loss_.measure(codec, noise);
        // No codec decides what a sum makes of values that are not finite.
        if (!std::isfinite(loss.square)) return;
        note.sums.push_back(
            {8 * static_cast<double>(encode_loss_.payload_bytes(codec)), loss.error});
    }
    const std::lock_guard guard(mutex_);
    layers_[number].noted.add(note);
}

std::vector<LayerOptions> LayerCodecs::take_notes() {
    const std::lock_guard guard(mutex_);
    std::vector<LayerOptions> options(size());
    for (size_t i = 0; i < size(); i++) {
        Layer &layer = layers_[i];
        layer.offered.add(std::exchange(layer.noted, {}));
        options[i] = layer.offered.means();
    }
    return options;
}

uint64_t LayerCodecs::question() const {
    uint64_t hash = candidates_.uniform;
    for (const Layer &layer : layers_) {
        hash = mixed_hash(hash, static_cast<uint64_t>(layer.type));
        hash = mixed_hash(hash, layer.count);
    }
    for (const Codec &codec : candidates_.codecs)
        for (const char letter : spec(codec) + ' ')
            hash = mixed_hash(hash, static_cast<unsigned char>(letter));
    return hash;
}

std::vector<std::byte> LayerCodecs::offer(bool decides) {
    std::vector<std::byte> offer(offer_bytes());
    OfferedChoice head{.question = question(), .chosen = {}, .uniform = {}};
    const std::vector<LayerOptions> options = take_notes();
    if (decides) {
        const LayerChoice choice = choose_layer_codecs(options, candidates_.uniform);
        head.chosen = choice.chosen;
        head.uniform = choice.uniform;
        const size_t bits_bytes = size() * sizeof(double);
        std::memcpy(offer.data() + sizeof head, choice.bits.data(), bits_bytes);
        for (size_t i = 0; i < size(); i++)
            offer[sizeof head + bits_bytes + i] = static_cast<std::byte>(choice.codecs[i]);
    }
    std::memcpy(offer.data(), &head, sizeof head);
    return offer;
}

void LayerCodecs::take(const std::byte *offer) {
    const std::lock_guard guard(mutex_);
    OfferedChoice head;
    std::memcpy(&head, offer, sizeof head);
    choice_.chosen = head.chosen;
    choice_.uniform = head.uniform;
    const size_t bits_bytes = size() * sizeof(double);
    std::memcpy(choice_.bits.data(), offer + sizeof head, bits_bytes);
    for (size_t i = 0; i < size(); i++) {
        choice_.codecs[i] = std::to_integer<uint32_t>(offer[sizeof head + bits_bytes + i]);
        layers_[i].offered = {};
    }
}

qcclCodec_t LayerCodecs::codec(size_t layer) {
    const std::lock_guard guard(mutex_);
    return handles_[choice_.codecs[layer]];
}

std::string LayerCodecs::describe() {
    const std::lock_guard guard(mutex_);
    char line[512];
    std::string text;
    double chosen = 0, uniform = choice_.uniform.bits, values = 0;
    for (size_t i = 0; i < size(); i++) {
        const uint32_t codec = choice_.codecs[i];
        const double count = static_cast<double>(layers_[i].count);
        chosen += bits(i);
        if (choice_.bits[i] == 0) uniform += bits(i); // it has the uniform codec
        values += count;
        std::snprintf(line, sizeof line,
                      "layer %zu: count %" PRIu64 ", codec %.300s, %.3f bits a value\n", i,
                      layers_[i].count, spec(candidates_.codecs[codec]).c_str(),
                      count == 0 ? 0 : bits(i) / count);
        text += line;
    }
    const double error = choice_.uniform.error;
    std::snprintf(
        line, sizeof line,
        "all layers: %.3f bits a value, %.3f with %.300s, of whose error they have %.1f %%\n",
        values == 0 ? 0 : chosen / values, values == 0 ? 0 : uniform / values,
        spec(candidates_.codecs[candidates_.uniform]).c_str(),
        error == 0 || !std::isfinite(error) ? 100 : 100 * choice_.chosen.error / error);
    return text + line;
}

using LayerCodecsHandles = HandleTable<HandleRecord<LayerCodecs>>;
using LayerCodecsRef = LayerCodecsHandles::Reference;

constinit LayerCodecsHandles layer_codecs_handles{{.tag = 0x51CA,
                                                   .argument = "layers",
                                                   .unknown = "no qcclLayerCodecsCreate made",
                                                   .ended = "destroyed",
                                                   .is_inherited = false}};

// ---- Arguments

Result<std::vector<Layer>> take_layers(const size_t *counts, size_t nlayers, DataType type) {
    if (nlayers == 0 || nlayers > most_layers)
        return invalid_argument("nlayers is %zu; possible are 1 to %zu", nlayers, most_layers)
            .compared(static_cast<int64_t>(most_layers), static_cast<int64_t>(nlayers));
    if (!counts) return invalid_argument("counts is NULL");
    std::vector<Layer> layers;
    for (size_t i = 0; i < nlayers; i++) {
        QCCL_TRY(check_count("counts", counts[i], type, 1));
        const CodedValues values =
            coded_values(Collective::all_reduce, type, RedOp::sum, counts[i]);
        layers.push_back({.type = values.type, .count = values.count});
    }
    return layers;
}

Result<LayerCandidates> take_candidates(const char *uniform, const char *candidates,
                                        DataType type) {
    std::vector<Codec> codecs = usual_layer_codecs();
    if (candidates) {
        QCCL_TRY(codecs, parse_codec_list(candidates));
    }
    QCCL_TRY(const Codec budget, parse_codec(uniform ? uniform : usual_uniform));
    return layer_candidates(std::move(codecs), budget, type);
}

Result<LayerCodecsRef> take(qcclLayerCodecs_t handle) { return layer_codecs_handles.refer(handle); }

Done check_layer(const LayerCodecs &layers, size_t layer) {
    if (layer < layers.size()) return {};
    return invalid_argument("layer is %zu, but the layers are 0 to %zu", layer, layers.size() - 1)
        .compared(static_cast<int64_t>(layers.size() - 1), static_cast<int64_t>(layer));
}

Done decide(Comm &comm, LayerCodecs &layers) {
    const std::vector<std::byte> mine = layers.offer(comm.rank() == 0);
    std::vector<std::byte> all(mine.size() * comm.size());
    QCCL_TRY(outcome(comm.gather(Collective::all_gather, mine.data(), all.data(), mine.size(),
                                 comm.parts().timeout)));
    const auto question_of = [&](uint32_t rank) {
        OfferedChoice head;
        std::memcpy(&head, all.data() + rank * mine.size(), sizeof head);
        return head.question;
    };
    for (uint32_t rank = 1; rank < comm.size(); rank++)
        if (question_of(rank) != question_of(0))
            return Error::make(Code::mismatch,
                               "rank %" PRIu32
                               " chooses codecs for other layers or from other candidates than "
                               "rank 0",
                               rank)
                .at_rank(static_cast<int32_t>(rank));
    layers.take(all.data());
    return {};
}

} // namespace

} // namespace qccl

using namespace qccl;

qcclResult_t qcclLayerCodecsCreate(qcclLayerCodecs_t *layers_out, const size_t counts[],
                                   size_t nlayers, qcclDataType_t type, const char *uniform,
                                   const char *candidates) {
    return guarded([=]() -> Done {
        if (!layers_out) return invalid_argument("layers_out is NULL");
        QCCL_TRY(const DataType known, take_type(type));
        QCCL_TRY(auto layers, take_layers(counts, nlayers, known));
        QCCL_TRY(auto taken, take_candidates(uniform, candidates, layers.front().type));
        QCCL_TRY(const Kernels *const kernels, usual_kernels());
        const auto made =
            std::make_shared<LayerCodecs>(std::move(layers), std::move(taken), *kernels);
        QCCL_TRY(made->make_handles(*kernels));
        QCCL_TRY(void *const handle, layer_codecs_handles.add(made));
        *layers_out = static_cast<qcclLayerCodecs_t>(handle);
        return {};
    });
}
QCCL_TWIN(qcclLayerCodecsCreate);

qcclResult_t qcclLayerCodecsNote(qcclLayerCodecs_t layers, size_t layer, const void *values) {
    return guarded([=]() -> Done {
        QCCL_TRY(const LayerCodecsRef found, take(layers));
        QCCL_TRY(check_layer(*found, layer));
        QCCL_TRY(check_pointer({"values", values, found->layer_bytes(layer)}));
        found->note(layer, values);
        return {};
    });
}
QCCL_TWIN(qcclLayerCodecsNote);

qcclResult_t qcclLayerCodecsDecide(qcclLayerCodecs_t layers, qcclComm_t comm) {
    if (!comm)
        return guarded([=]() -> Done {
            QCCL_TRY(const LayerCodecsRef found, take(layers));
            found->take(found->offer(true).data());
            return {};
        });
    return inside(comm, [=](Comm &ranks) -> Done {
        QCCL_TRY(const LayerCodecsRef found, take(layers));
        return run_or_abandon(ranks, Collective::all_gather, [&] { return decide(ranks, *found); });
    });
}
QCCL_TWIN(qcclLayerCodecsDecide);

qcclResult_t qcclLayerCodecsGet(qcclLayerCodecs_t layers, size_t layer, qcclCodec_t *codec_out) {
    return guarded([=]() -> Done {
        QCCL_TRY(const LayerCodecsRef found, take(layers));
        QCCL_TRY(check_layer(*found, layer));
        if (!codec_out) return invalid_argument("codec_out is NULL");
        *codec_out = found->codec(layer);
        return {};
    });
}
QCCL_TWIN(qcclLayerCodecsGet);

qcclResult_t qcclLayerCodecsDescribe(qcclLayerCodecs_t layers, char *buffer, size_t *bytes) {
    return guarded([=]() -> Done {
        QCCL_TRY(const LayerCodecsRef found, take(layers));
        if (!bytes) return invalid_argument("bytes is NULL");
        return give_text(found->describe(), buffer, bytes);
    });
}
QCCL_TWIN(qcclLayerCodecsDescribe);

qcclResult_t qcclLayerCodecsDestroy(qcclLayerCodecs_t layers) {
    return guarded([=]() -> Done {
        if (!layers) return {};
        QCCL_TRY(LayerCodecsRef ended, take(layers));
        QCCL_TRY(ended.end());
        ended->end_codecs(); // another thread may still be in a call with the object
        return {};
    });
}
QCCL_TWIN(qcclLayerCodecsDestroy);
