// Runs layers of an encoder in one call: these kernels, with products of our own or by PyTorch between them.
//
// In Python each layer would take some twenty steps, and between any two of them the thread would have to take the
// interpreter lock, for which the threads of a service compete.
#include <cstring>

#include "interface.h"

namespace {

// Products by PyTorch. Their operands and results are tensors.
class PyTorch {
   public:
    explicit PyTorch(const Layers &all) : all_(all) {}

    int begin() {
        const bool found = all_.torch->get_data((Tensor)all_.rounded, &rounded_) == 0 &&
                           all_.torch->get_data((Tensor)all_.mixed, &mixed_) == 0;
        return found ? DONE : BAD_ARGUMENT;
    }

    Tensor input(const float *) const { return (Tensor)all_.rounded; }  // for products of the residual stream
    Tensor mixed() const { return (Tensor)all_.mixed; }
    void *rounded_data() const { return rounded_; }
    void *mixed_data() const { return mixed_; }

    // The result of a product: it owns its tensor.
    class Result {
       public:
        Result(const PyTorch &products, float *) : torch_(*products.all_.torch) {}
        Result(const Result &) = delete;
        Result &operator=(const Result &) = delete;
        ~Result() {
            if (tensor_) torch_.release(tensor_);
        }

        // Become linear(x). Since all shapes fit, it can only fail for a lack of memory.
        int compute(const Linear &linear, Tensor x) {
            Tensor bias = (Tensor)linear.bias;
            const char *algorithm = linear.algorithm;
            const bool done = torch_.linear(x, (Tensor)linear.weight, &bias, linear.activation, nullptr, 0, &algorithm,
                                            &tensor_) == 0 &&
                              torch_.get_data(tensor_, &data_) == 0;
            return done ? DONE : NO_MEMORY;
        }

        Tensor get() const { return tensor_; }
        char *data() const { return static_cast<char *>(data_); }

       private:
        const Torch &torch_;
        Tensor tensor_ = nullptr;
        void *data_ = nullptr;
    };

   private:
    const Layers &all_;
    void *rounded_ = nullptr, *mixed_ = nullptr;
};

// Products of our own. Their operands and results are arrays of the caller.
class Own {
   public:
    explicit Own(const Layers &all) : all_(all) {}

    int begin() { return DONE; }
    const float *input(const float *x) const { return x; }
    const float *mixed() const { return (const float *)all_.mixed; }
    void *rounded_data() const { return nullptr; }
    void *mixed_data() const { return all_.mixed; }

    class Result {
       public:
        Result(const Own &products, float *output) : all_(products.all_), output_(output) {}

        int compute(const Linear &linear, const float *x) {
            const Product product{x,           (const float *)linear.weight, (const float *)linear.bias, output_,
                                  all_.tokens, linear.inputs,                linear.outputs,             linear.own_activation};
            return all_.multiply(&product);
        }

        const float *get() const { return output_; }
        char *data() const { return (char *)output_; }

       private:
        const Layers &all_;
        float *output_;
    };

   private:
    const Layers &all_;
};

template <class Products>
class Run {
   public:
    explicit Run(const Layers &all) : all_(all), products_(all), x_(all.x) {}

    int run() {
        int outcome = products_.begin();
        for (int64_t i = 0; i < all_.count && outcome == DONE; i++) outcome = layer(i);
        return outcome;
    }

   private:
    using Result = typename Products::Result;

    int layer(int64_t i) {
        const Layer &layer = all_.layers[i];
        const bool only_observed = all_.ends_observing && i + 1 == all_.count;
        int outcome = attend(i, layer, only_observed);
        if (outcome != DONE || only_observed) return outcome;

        Result added(products_, all_.narrow);
        if ((outcome = added.compute(layer.output, products_.mixed())) != DONE) return outcome;
        outcome = add_norm(added.data(), layer.attention_gain, layer.attention_bias, all_.stream);
        if (outcome != DONE) return outcome;

        Result inner(products_, all_.wide), outer(products_, all_.narrow);
        if ((outcome = inner.compute(layer.inner, products_.input(x_))) != DONE) return outcome;
        if ((outcome = outer.compute(layer.outer, inner.get())) != DONE) return outcome;
        float *next = all_.states[i] ? all_.states[i] : all_.stream;
        return add_norm(outer.data(), layer.feed_forward_gain, layer.feed_forward_bias, next);
    }

    // Compute queries, keys and values, (T, 3·C) side by side, and attend: into `mixed`, unless only observed.
    int attend(int64_t i, const Layer &layer, bool only_observed) {
        Result qkv(products_, all_.wide);
        const int outcome = qkv.compute(layer.qkv, products_.input(x_));
        if (outcome != DONE) return outcome;
        const int64_t row = all_.size * all_.element;
        if (all_.projections[i]) std::memcpy(all_.projections[i], qkv.data(), all_.tokens * 3 * row);
        if (only_observed && !all_.observations[i]) return DONE;
        Attention attention = *all_.attention;
        attention.q = qkv.data();
        attention.k = qkv.data() + row;
        attention.v = qkv.data() + 2 * row;
        attention.token_stride = 3 * all_.size;
        attention.output = only_observed ? nullptr : products_.mixed_data();
        attention.observations = all_.observations[i];
        return all_.attend(&attention);
    }

    // Add to the residual stream and normalise it: into `output` and, rounded, into `rounded`.
    int add_norm(const void *added, const float *gain, const float *bias, float *output) {
        const Norm norm{x_,     added, gain, bias, output, products_.rounded_data(), all_.tokens,
                        all_.size, all_.epsilon};
        x_ = output;
        return all_.add_norm(&norm);
    }

    const Layers &all_;
    Products products_;
    const float *x_;
};

// Whether our own products of every layer stay within the buffers.
bool fits(const Layers &all) {
    if (!all.wide || !all.narrow || all.element != 4 || all.widest < 3 * all.size) return false;
    for (int64_t i = 0; i < all.count; i++) {
        const Layer &layer = all.layers[i];
        if (layer.qkv.inputs != all.size || layer.qkv.outputs != 3 * all.size) return false;
        if (layer.output.inputs != all.size || layer.output.outputs != all.size) return false;
        if (layer.inner.inputs != all.size || layer.inner.outputs > all.widest) return false;
        if (layer.outer.inputs != layer.inner.outputs || layer.outer.outputs != all.size) return false;
    }
    return true;
}

}  // namespace

const uint32_t headlight_sources = HEADLIGHT_SOURCES;

const int64_t headlight_sizes[9] = {sizeof(Observation), sizeof(Attention), sizeof(Norm),
                                    sizeof(Embedding),   sizeof(Torch),     sizeof(Product),
                                    sizeof(Linear),      sizeof(Layer),     sizeof(Layers)};

int headlight_run_layers(const Layers *all) {
    if (!all || !all->attend || !all->add_norm || !all->attention) return BAD_ARGUMENT;
    if (all->count < 0 || all->tokens < 0 || all->size < 1 || (all->element != 2 && all->element != 4)) return BAD_ARGUMENT;
    if (all->count && !(all->layers && all->states && all->projections && all->observations)) return BAD_ARGUMENT;
    if (!all->x || !all->stream || !all->mixed) return BAD_ARGUMENT;
    if (all->multiply ? !fits(*all) : !all->torch || !all->rounded) return BAD_ARGUMENT;
    if (all->attention->tokens > all->tokens) return BAD_ARGUMENT;
    if (all->attention->heads * all->attention->head_size != all->size) return BAD_ARGUMENT;
    return all->multiply ? Run<Own>(*all).run() : Run<PyTorch>(*all).run();
}
