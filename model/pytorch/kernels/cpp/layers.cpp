// Runs layers of an encoder in one call: PyTorch computes the products, these kernels the steps between them.
//
// In Python each layer would take some twenty steps, and between any two of them the thread would have to take the
// interpreter lock, for which the threads of a service compete.
#include <cstring>

#include "interface.h"

namespace {

// Owns a tensor and releases it when it goes out of scope or is replaced.
class Owned {
   public:
    explicit Owned(const Torch &torch) : torch_(torch) {}
    Owned(const Owned &) = delete;
    Owned &operator=(const Owned &) = delete;
    ~Owned() {
        if (tensor_) torch_.release(tensor_);
    }

    // Become linear(x); false on failure, which can only be a lack of memory, since all shapes fit.
    bool compute(const Linear &linear, Tensor x) {
        Tensor bias = linear.bias;
        const char *algorithm = linear.algorithm;
        return torch_.linear(x, linear.weight, &bias, linear.activation, nullptr, 0, &algorithm, &tensor_) == 0 &&
               torch_.get_data(tensor_, &data_) == 0;
    }

    Tensor tensor() const { return tensor_; }
    char *data() const { return static_cast<char *>(data_); }

   private:
    const Torch &torch_;
    Tensor tensor_ = nullptr;
    void *data_ = nullptr;
};

class Run {
   public:
    explicit Run(const Layers &all) : all_(all), x_(all.x) {}

    int run() {
        if (all_.torch->get_data(all_.rounded, &rounded_) || all_.torch->get_data(all_.mixed, &mixed_))
            return BAD_ARGUMENT;
        int outcome = DONE;
        for (int64_t i = 0; i < all_.count && outcome == DONE; i++) outcome = layer(i);
        return outcome;
    }

   private:
    int layer(int64_t i) {
        const Layer &layer = all_.layers[i];
        const bool only_observed = all_.ends_observing && i + 1 == all_.count;
        int outcome = attend(i, layer, only_observed);
        if (outcome != DONE || only_observed) return outcome;

        Owned added(*all_.torch);
        if (!added.compute(layer.output, all_.mixed)) return NO_MEMORY;
        outcome = add_norm(added.data(), layer.attention_gain, layer.attention_bias, all_.stream);
        if (outcome != DONE) return outcome;

        Owned inner(*all_.torch), outer(*all_.torch);
        if (!inner.compute(layer.inner, all_.rounded)) return NO_MEMORY;
        if (all_.activate) outcome = all_.activate((float *)inner.data(), all_.tokens * all_.inner);
        if (outcome != DONE) return outcome;
        if (!outer.compute(layer.outer, inner.tensor())) return NO_MEMORY;
        float *next = all_.states[i] ? all_.states[i] : all_.stream;
        return add_norm(outer.data(), layer.feed_forward_gain, layer.feed_forward_bias, next);
    }

    // Compute queries, keys and values, (T, 3·C) side by side, and attend: into `mixed`, unless only observed.
    int attend(int64_t i, const Layer &layer, bool only_observed) {
        Owned qkv(*all_.torch);
        if (!qkv.compute(layer.qkv, all_.rounded)) return NO_MEMORY;
        const int64_t row = all_.size * all_.element;
        if (all_.projections[i]) std::memcpy(all_.projections[i], qkv.data(), all_.tokens * 3 * row);
        if (only_observed && !all_.observations[i]) return DONE;
        Attention attention = *all_.attention;
        attention.q = qkv.data();
        attention.k = qkv.data() + row;
        attention.v = qkv.data() + 2 * row;
        attention.token_stride = 3 * all_.size;
        attention.output = only_observed ? nullptr : mixed_;
        attention.observations = all_.observations[i];
        return all_.attend(&attention);
    }

    // Add to the residual stream and normalise it: into `output` and, rounded, into `rounded`.
    int add_norm(const void *added, const float *gain, const float *bias, float *output) {
        const Norm norm{x_, added, gain, bias, output, rounded_, all_.tokens, all_.size, all_.epsilon};
        x_ = output;
        return all_.add_norm(&norm);
    }

    const Layers &all_;
    const float *x_;
    void *rounded_ = nullptr, *mixed_ = nullptr;
};

}  // namespace

const uint32_t headlight_sources = HEADLIGHT_SOURCES;

const int64_t headlight_sizes[7] = {sizeof(Observation), sizeof(Attention), sizeof(Norm),  sizeof(Torch),
                                    sizeof(Linear),      sizeof(Layer),     sizeof(Layers)};

int headlight_run_layers(const Layers *all) {
    if (!all || !all->torch || !all->attend || !all->add_norm || !all->attention) return BAD_ARGUMENT;
    if (all->count < 0 || all->tokens < 0 || all->size < 1 || (all->element != 2 && all->element != 4)) return BAD_ARGUMENT;
    if (all->count && !(all->layers && all->states && all->projections && all->observations)) return BAD_ARGUMENT;
    if (all->activate && (all->element != 4 || all->inner < 1)) return BAD_ARGUMENT;
    if (!all->x || !all->stream || !all->rounded || !all->mixed) return BAD_ARGUMENT;
    if (all->attention->tokens > all->tokens) return BAD_ARGUMENT;
    if (all->attention->heads * all->attention->head_size != all->size) return BAD_ARGUMENT;
    return Run(*all).run();
}
