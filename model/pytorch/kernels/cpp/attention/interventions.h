// What interventions change in the attention of one head of a sequence: the scores of its edges, and its outputs.
#pragma once

#include <algorithm>
#include <cmath>

#include "../interface.h"
#include "../softmax.h"

namespace HEADLIGHT_NAMESPACE {

// Whether edges of a head are blocked.
inline bool blocks_edges(const Intervention *all, int64_t head) {
    for (int64_t i = 0; all && i < all->words; i++)
        if (all->heads[head * all->words + i]) return true;
    return false;
}

// Hide the blocked keys, of those from `first` to before `last`, from a query; returns whether none is left.
inline bool hide_blocked(const Intervention &all, int64_t head, int64_t query, float *scores, int64_t first, int64_t last) {
    bool some = false;
    for (int64_t i = 0; i < all.words; i++) {
        const uint32_t sets = all.heads[head * all.words + i] & all.queries[query * all.words + i];
        if (!sets) continue;
        some = true;
        const uint32_t *keys = all.keys + i * all.length;
        for (int64_t key = first; key < last; key++) scores[key] = keys[key] & sets ? -INFINITY : scores[key];
    }
    return some && largest(scores + first, last - first) == -INFINITY;
}

// Give a row without keys the weights 0; its sum is 1, so that they can be divided by it.
inline Row no_weights(float *scores, int64_t columns) {
    std::fill(scores, scores + columns, 0.0f);
    return Row{1, 0, 0, 0};
}

// Replace the outputs of a head, n rows of `size` elements that are `stride` apart, by their mean, and multiply them.
template <class P>
void change_outputs(const Intervention &all, int64_t head, typename P::Element *output, int64_t stride, int64_t n,
                    int64_t size) {
    if (!all.scales || (all.scales[head] == 1 && !all.means[head])) return;
    constexpr int64_t SUMMED = 32;  // rows: longer sums are split into partial sums
    const Floats by = broadcast(all.scales[head]);
    for (int64_t d = 0; d < size; d += LANES) {
        Floats mean = zeros();
        for (int64_t start = 0; all.means[head] && start < n; start += SUMMED) {
            Floats sum = zeros();
            for (int64_t i = start; i < std::min(start + SUMMED, n); i++)
                sum = add(sum, P::load(output + i * stride + d, ALL_LANES));
            mean = add(mean, sum);
        }
        mean = div(mean, broadcast((float)n));
        for (int64_t i = 0; i < n; i++) {
            typename P::Element *place = output + i * stride + d;
            P::store(place, mul(all.means[head] ? mean : P::load(place, ALL_LANES), by));
        }
    }
}

// Whether all reads and writes for a sequence of n tokens stay within the arrays.
inline bool fits(const Intervention &all, int64_t n) {
    if (!all.scales != !all.means || all.words < 0) return false;
    return !all.words || (all.heads && all.queries && all.keys && all.length == n);
}

}  // namespace HEADLIGHT_NAMESPACE
