// Runs layers of an encoder in one call.
//
// In Python each layer would take some twenty steps, and between any two of them the thread would have to take the
// interpreter lock, for which the threads of a service compete.
#include <omp.h>

#include <cstdlib>
#include <cstring>

#include "interface.h"
#include "scratch.h"
#include "team.h"

namespace {

// A product.
int multiply(const Layers &all, const Linear &linear, const void *x, void *output, int64_t rows) {
    Product product{linear, x, output, rows, all.progress ? &all.progress->steps : nullptr};
    product.linear.precise = linear.scales && linear.low_panels && (linear.precise || all.precise);
    return all.multiply(&product);
}

// The pass as one thread goes through it.
class Run {
   public:
    Run(const Layers &all, const Member &member) : all_(all), member_(member), tokens_(all.tokens), x_(all.x) {}

    int run() {
        int outcome = all_.count ? begin_attention(all_.layers[0]) : DONE;
        for (int64_t i = 0; i < all_.count && outcome == DONE; i++) {
            outcome = layer(i);
            if (outcome == DONE) member_.finish_layer();
        }
        return outcome;
    }

   private:
    // What a sublayer adds, and the norm of it.
    struct Output {
        const void *x = nullptr;
        const float *gain = nullptr, *bias = nullptr;
    };

    int layer(int64_t i) {
        const Layer &layer = all_.layers[i];
        const bool only_observed = all_.ends_observing && i + 1 == all_.count;
        int outcome = attend(i, layer, only_observed);
        if (outcome != DONE || only_observed) return outcome;
        const bool chooses = all_.chosen && i + 1 == all_.count;
        if (chooses && (outcome = choose()) != DONE) return outcome;
        outcome = transform(i, layer);
        return outcome == DONE && chooses ? spread(all_.states[i] ? all_.states[i] : all_.stream) : outcome;
    }

    // What follows attention.
    int transform(int64_t i, const Layer &layer) {
        int outcome;
        if ((outcome = multiply(layer.output, all_.mixed, all_.narrow)) != DONE) return outcome;
        const Output attended{all_.narrow, layer.attention_output_gain, layer.attention_output_bias};
        outcome = all_.norms_input
                      ? norm(attended, layer.feed_forward_gain, layer.feed_forward_bias, all_.stream, all_.normed)
                      : norm(attended, layer.attention_gain, layer.attention_bias, nullptr, all_.stream);
        if (outcome != DONE) return outcome;

        outcome = layer.experts ? mix(*layer.experts) : feed(layer);
        if (outcome != DONE) return outcome;
        float *next = all_.states[i] ? all_.states[i] : all_.stream;
        const Output fed{all_.narrow, layer.feed_forward_output_gain, layer.feed_forward_output_bias};
        if (!all_.norms_input) return norm(fed, layer.feed_forward_gain, layer.feed_forward_bias, nullptr, next);
        const Layer *after = i + 1 < all_.count ? &layer + 1 : nullptr;
        if (after && after->attention_gain) return norm(fed, after->attention_gain, after->attention_bias, next, all_.normed);
        outcome = norm(fed, nullptr, nullptr, next, nullptr);
        return outcome == DONE && after ? begin_attention(*after) : outcome;
    }

    // Go on with the chosen rows alone, one after the other at the beginning of the buffers.
    int choose() {
        const int64_t width = all_.attention->heads * all_.attention->head_size * all_.element;
        for (int64_t r = 0; r < all_.chosen_count && member_.leads; r++) {
            auto *const mixed = (char *)all_.mixed;
            std::memmove(mixed + r * width, mixed + all_.chosen[r] * width, width);
            std::memmove(all_.stream + r * all_.size, x_ + all_.chosen[r] * all_.size, all_.size * sizeof(float));
        }
        x_ = all_.stream;
        tokens_ = all_.chosen_count;
        return synchronize(DONE);
    }

    // Bring each of the chosen rows of a state to its place.
    int spread(float *state) {
        for (int64_t r = all_.chosen_count - 1; r >= 0 && member_.leads; r--)
            std::memmove(state + all_.chosen[r] * all_.size, state + r * all_.size, all_.size * sizeof(float));
        return synchronize(DONE);
    }

    // Find the input of attention in a layer that the step before it did not normalise: the hidden state, or its norm.
    int begin_attention(const Layer &layer) {
        input_ = x_;
        if (!all_.norms_input) return DONE;
        if (layer.attention_gain) return norm({}, layer.attention_gain, layer.attention_bias, nullptr, all_.normed);
        return all_.rounded ? norm({}, nullptr, nullptr, nullptr, nullptr) : DONE;
    }

    // The feed-forward network, into `narrow`.
    int feed(const Layer &layer) {
        int outcome = multiply(layer.inner, input(), all_.wide);
        if (outcome != DONE) return outcome;
        if (!layer.gated || layer.inner.gated) return multiply(layer.outer, all_.wide, all_.narrow);
        const Gate gate{.x = all_.wide,
                        .output = all_.gated,
                        .tokens = tokens_,
                        .size = layer.outer.inputs,
                        .activation = layer.activation};
        outcome = synchronize(all_.gate(&gate));
        return outcome == DONE ? multiply(layer.outer, all_.gated, all_.narrow) : outcome;
    }

    // The mixture of experts, into `narrow`: each computes its tokens alone.
    int mix(const Experts &experts) {
        const auto *rows = (const char *)input();
        const int64_t size = all_.size, width = size * all_.element;
        int outcome = multiply(experts.router, rows, all_.wide);
        if (outcome == DONE) outcome = synchronize(member_.leads ? route(experts) : DONE);
        for (int64_t e = 0; e < experts.count && outcome == DONE; e++) {
            int64_t count = 0;
            for (int64_t row = 0; row < tokens_; row++) {
                if (all_.shares[row * experts.count + e] == 0) continue;
                if (member_.leads) {
                    std::memcpy((char *)all_.gathered + count * width, rows + row * width, width);
                    all_.rows[count] = row;
                }
                count++;
            }
            outcome = synchronize(DONE);  // the rows are gathered
            if (outcome == DONE) outcome = synchronize(::multiply(all_, experts.first[e], all_.gathered, all_.wide, count));
            if (outcome == DONE) outcome = synchronize(::multiply(all_, experts.second[e], all_.wide, all_.narrow, count));
            const Collection collection{.results = all_.narrow,
                                        .rows = all_.rows,
                                        .shares = all_.shares + e,
                                        .sums = all_.sums,
                                        .count = count,
                                        .size = size,
                                        .experts = experts.count};
            if (outcome == DONE) outcome = synchronize(all_.collect(&collection));
        }
        const Norm rounding{.x = all_.sums, .rounded = all_.narrow, .tokens = tokens_, .size = size};
        return outcome == DONE ? synchronize(all_.add_norm(&rounding)) : outcome;
    }

    // Find the shares of the experts in each token, and begin its sums.
    int route(const Experts &experts) {
        for (int64_t row = 0; row < tokens_; row++)
            std::memcpy(all_.sums + row * all_.size, experts.bias, all_.size * sizeof(float));
        const Routing routing{.logits = all_.wide,
                              .shares = all_.shares,
                              .tokens = tokens_,
                              .experts = experts.count,
                              .chosen = experts.chosen};
        return all_.route(&routing);
    }

    // Compute queries, keys and values side by side, and attend: into `mixed`, unless only observed.
    int attend(int64_t i, const Layer &layer, bool only_observed) {
        auto *const qkv = (char *)all_.wide;
        int outcome = multiply(layer.qkv, input(), qkv);
        if (outcome != DONE) return outcome;
        Attention attention = *all_.attention;
        const int64_t key_heads = attention.kv_heads ? attention.kv_heads : attention.heads;
        const int64_t queries = attention.heads * attention.head_size, keys = key_heads * attention.head_size;
        attention.token_stride = queries + 2 * keys;
        const bool turns = all_.angles && all_.angles[i];
        if (turns || layer.query_gain) {
            const Angles angles = turns ? *all_.angles[i] : Angles{};
            const Rotation rotation{.x = qkv,
                                    .cos = angles.cos,
                                    .sin = angles.sin,
                                    .tokens = all_.tokens,
                                    .stride = attention.token_stride,
                                    .heads = attention.heads + key_heads,
                                    .head_size = attention.head_size,
                                    .pairs = angles.pairs,
                                    .interleaved = angles.interleaved,
                                    .query_gain = layer.query_gain,
                                    .key_gain = layer.key_gain,
                                    .queries = attention.heads,
                                    .epsilon = all_.epsilon};
            if ((outcome = synchronize(all_.rotate(&rotation))) != DONE) return outcome;
        }
        if (all_.projections[i] && member_.leads)
            std::memcpy(all_.projections[i], qkv, all_.tokens * attention.token_stride * all_.element);
        if (only_observed && !all_.observations[i]) return DONE;
        attention.q = qkv;
        attention.k = qkv + queries * all_.element;
        attention.v = qkv + (queries + keys) * all_.element;
        attention.output = only_observed ? nullptr : all_.mixed;
        attention.observations = all_.observations[i];
        attention.window = layer.window;
        attention.bias = all_.biases ? all_.biases[i] : nullptr;
        attention.distances = all_.distances ? all_.distances[i] : nullptr;
        attention.interventions = all_.interventions ? all_.interventions[i] : nullptr;
        attention.steps = all_.progress ? &all_.progress->steps : nullptr;
        return synchronize(all_.attend(&attention));
    }

    // Add to the residual stream, into `sum`, and normalise it, into `output`; each may be null. Products then read
    // `output`, or what was rounded from it. Without both, only the stream is rounded.
    int norm(const Output &added, const float *gain, const float *bias, float *sum, float *output) {
        void *rounded = output || !sum ? all_.rounded : nullptr;
        const Norm norm{.x = x_,
                        .added = added.x,
                        .gain = gain,
                        .bias = bias,
                        .output = output,
                        .rounded = rounded,
                        .tokens = tokens_,
                        .size = all_.size,
                        .epsilon = all_.epsilon,
                        .sum = sum,
                        .rms = all_.rms,
                        .added_gain = added.gain,
                        .added_bias = added.bias};
        if (sum) x_ = sum;
        if (output) input_ = output;
        if (output && !all_.norms_input) x_ = output;
        return synchronize(all_.add_norm(&norm));
    }

    // Multiply all rows.
    int multiply(const Linear &linear, const void *x, void *output) {
        return synchronize(::multiply(all_, linear, x, output, tokens_));
    }

    // What products of the residual stream read.
    const void *input() const { return all_.rounded ? all_.rounded : input_; }

    // Wait for the other threads after a step; returns its outcome on all of them.
    int synchronize(int outcome) { return member_.synchronize(outcome); }

    const Layers &all_;
    Member member_;
    int64_t tokens_;                // rows of the buffers
    const float *x_;               // the residual stream
    const float *input_ = nullptr;  // of the next product
};

// Whether the sizes of a mixture of experts go together, and all stays within the buffers.
bool fits(const Layers &all, const Experts &experts) {
    if (!all.route || !all.collect || !experts.first || !experts.second || !experts.bias) return false;
    if (!all.gathered || !all.sums || !all.shares || !all.rows || experts.count < 1 || experts.chosen < 1) return false;
    if (experts.router.inputs != all.size || experts.router.outputs != experts.count || experts.count > all.widest)
        return false;
    for (int64_t e = 0; e < experts.count; e++) {
        const Linear &first = experts.first[e], &second = experts.second[e];
        if (first.inputs != all.size || first.outputs > all.widest) return false;
        if (second.inputs != first.outputs || second.outputs != all.size) return false;
    }
    return true;
}

// Whether the sizes of a layer go together, and all stays within the buffers.
bool fits(const Layers &all, const Layer &layer) {
    const Attention &attention = *all.attention;
    const int64_t key_heads = attention.kv_heads ? attention.kv_heads : attention.heads;
    const int64_t queries = attention.heads * attention.head_size;
    const int64_t projected = queries + 2 * key_heads * attention.head_size;
    if (layer.qkv.inputs != all.size || layer.qkv.outputs != projected) return false;
    if (layer.output.inputs != queries || layer.output.outputs != all.size) return false;
    if (projected > all.widest) return false;
    if (!layer.feed_forward_gain || !(layer.attention_gain || all.norms_input)) return false;
    if (!layer.query_gain != !layer.key_gain) return false;
    if (layer.experts) return fits(all, *layer.experts);
    if (layer.inner.inputs != all.size || (layer.inner.gated && !layer.gated)) return false;
    const int64_t inner = layer.inner.gated ? layer.inner.outputs / 2 : layer.inner.outputs;
    if (inner > all.widest) return false;
    if (layer.inner.outputs != layer.outer.inputs * (layer.gated ? 2 : 1) || layer.outer.outputs != all.size) return false;
    return !layer.gated || layer.inner.gated || (all.gate && all.gated && layer.outer.inputs <= all.gated_width);
}

bool fits(const Layers &all) {
    if (!all.wide || !all.narrow || (!all.rounded && all.element != 4)) return false;
    if (all.norms_input && !all.normed) return false;
    if (all.chosen && (all.ends_observing || all.chosen_count < 1)) return false;
    for (int64_t r = 0, row = -1; all.chosen && r < all.chosen_count; row = all.chosen[r++])
        if (all.chosen[r] <= row || all.chosen[r] >= all.tokens) return false;
    for (int64_t i = 0; i < all.count; i++) {
        if (!fits(all, all.layers[i])) return false;
        if (((all.angles && all.angles[i]) || all.layers[i].query_gain) && !all.rotate) return false;
    }
    return true;
}

// Run a pass in one parallel region, in which each thread goes through all steps.
int run(const Layers &all) {
    Barrier barrier(omp_get_max_threads());
    if (!barrier.has_room()) return NO_MEMORY;
    int outcome = DONE;
#pragma omp parallel
    {
        const Member member(barrier, all.progress, omp_get_thread_num(), omp_get_num_threads());
        const int found = Run(all, member).run();
        if (member.leads) outcome = found;  // the same on all
    }
    return outcome;
}

// The scratch memory of a thread, which grows on demand. It is in this file because every processor can run what is here.
class Scratch {
   public:
    ~Scratch() { std::free(memory_); }

    char *reserve(size_t bytes) {
        if (bytes > size_) {
            std::free(memory_);
            size_ = (bytes + PAGE - 1) / PAGE * PAGE;
            memory_ = static_cast<char *>(std::aligned_alloc(PAGE, size_));
            if (memory_ == nullptr) size_ = 0;
        }
        return memory_;
    }

   private:
    static constexpr size_t PAGE = 4096;
    char *memory_ = nullptr;
    size_t size_ = 0;
};

}  // namespace

char *reserve_scratch(size_t bytes) {
    static thread_local Scratch scratch;
    return scratch.reserve(bytes);
}

const uint32_t headlight_sources = HEADLIGHT_SOURCES;

int headlight_is_intel() { return is_intel() ? 1 : 0; }

int headlight_arm64_products() { return arm64_products(); }

void headlight_end_threads() { omp_pause_resource(omp_pause_soft, omp_get_initial_device()); }

int headlight_run_layers(const Layers *all) {
    if (!all || !all->multiply || !all->attend || !all->add_norm || !all->attention) return BAD_ARGUMENT;
    if (all->count < 0 || all->tokens < 0 || all->size < 1 || (all->element != 2 && all->element != 4)) return BAD_ARGUMENT;
    if (all->count && !(all->layers && all->states && all->projections && all->observations)) return BAD_ARGUMENT;
    if (!all->x || !all->stream || !all->mixed) return BAD_ARGUMENT;
    if (all->attention->tokens > all->tokens) return BAD_ARGUMENT;
    if (!fits(*all)) return BAD_ARGUMENT;
    if (stops(all->progress)) return STOPPED;
    return run(*all);
}
