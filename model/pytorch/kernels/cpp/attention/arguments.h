// Whether the arguments of attention go together, so that all reads and writes stay within the arrays.
#pragma once

#include <algorithm>

#include "../interface.h"
#include "../observing/thumbnail.h"
#include "interventions.h"

namespace HEADLIGHT_NAMESPACE {

inline bool slots_fit(const int32_t *slots, int64_t count, int64_t below) {
    if (slots == nullptr) return false;
    for (int64_t i = 0; i < count; i++)
        if (slots[i] >= below) return false;
    return true;
}

// Whether the vectors of distances are there, for sequences of up to `longest` tokens.
template <class P>
bool fits(const Distances &all, int64_t longest) {
    if (P::PANEL != BLOCK_VECTORS * LANES || !all.rows || !(all.keys || all.queries)) return false;
    if ((uintptr_t)all.keys % 64 || (uintptr_t)all.queries % 64) return false;
    if (all.length < std::max<int64_t>(1, longest) || all.rows[0] >= all.number || all.rows[2 * all.length - 2] < 0)
        return false;
    for (int64_t i = 1; i < 2 * all.length - 1; i++)
        if (all.rows[i] > all.rows[i - 1]) return false;
    return true;
}

// Whether each of n queries sees a key if the last ones are hidden, and those beyond a window.
inline bool fits(int64_t unattended, int64_t n, int64_t window) {
    return unattended >= 0 && (unattended < n || n == 0) && (window == 0 || unattended <= window);
}

// Whether the prefixes of sequences, of which nothing is observed, are there.
inline bool fits(const Prefix *all, const Attention &attention) {
    if (!attention.causal || attention.distances || attention.unattended || attention.interventions) return false;
    for (int64_t i = 0; i < attention.sequences; i++) {
        if (all[i].length == 0) continue;
        if (all[i].length < 0 || all[i].first < 0 || all[i].first > attention.tokens - all[i].length) return false;
        if (attention.starts[i + 1] == attention.starts[i]) return false;
        if (attention.observations == nullptr) continue;
        const Observation &one = attention.observations[i];
        if (one.statistics || one.maps || one.thumbnails) return false;
    }
    return true;
}

// How many keys a sequence has, with those of its prefix.
inline int64_t keys_of(const Attention &all, int64_t sequence) {
    return all.starts[sequence + 1] - all.starts[sequence] + (all.prefixes ? all.prefixes[sequence].length : 0);
}

inline int64_t longest_of(const Attention &all) {
    int64_t longest = 0;
    for (int64_t i = 0; i < all.sequences; i++) longest = std::max(longest, keys_of(all, i));
    return longest;
}

// Whether all reads and writes stay within the arrays.
template <class P>
bool fits(const Attention &all) {
    constexpr int64_t step = P::HEAD_STEP, per_word = P::PER_WORD;
    if (all.tokens && !(all.q && all.k && all.v)) return false;
    if (!all.starts || all.tokens < 0 || all.sequences < 0 || all.heads < 1) return false;
    if (all.head_size < step || all.head_size % step || all.token_stride < all.heads * all.head_size) return false;
    if (all.token_stride % per_word || all.starts[0] != 0 || all.starts[all.sequences] > all.tokens) return false;
    if (all.kv_heads < 0 || (all.kv_heads && all.heads % all.kv_heads)) return false;
    if (all.window < 0 || all.window > INT64_MAX / 2) return false;
    for (int64_t i = 0; i < all.sequences; i++)
        if (all.starts[i + 1] < all.starts[i]) return false;
    if (all.prefixes && !fits(all.prefixes, all)) return false;
    if (all.distances && !fits<P>(*all.distances, longest_of(all))) return false;
    for (int64_t i = 0; i < all.sequences; i++) {
        const int64_t n = keys_of(all, i);
        if (all.bias && n > all.bias_length) return false;
        if (all.unattended && !fits(all.unattended[i], n, all.window)) return false;
        if (all.interventions && !fits(all.interventions[i], n)) return false;
        if (all.observations == nullptr) continue;
        const Observation &one = all.observations[i];
        if (one.statistics && !(one.special && slots_fit(one.statistic_slots, all.heads, one.statistic_heads)))
            return false;
        if (one.maps && !slots_fit(one.head_slots, all.heads, one.map_heads)) return false;
        if (one.shares && (all.output || !one.maps || one.half || one.statistics || one.thumbnails)) return false;
        if (one.maps && !(one.row_slots ? slots_fit(one.row_slots, n, one.map_rows) : one.map_rows == n))
            return false;
        if (one.thumbnails && !(slots_fit(one.thumbnail_slots, all.heads, one.thumbnail_heads) && cells_fit(one, n)))
            return false;
    }
    return true;
}

}  // namespace HEADLIGHT_NAMESPACE
