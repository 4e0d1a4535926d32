// Softmax of a row that sees one part of the keys after the other (Milakov & Gimelshein 2018; Dao et al. 2022).
//
// Weights are relative to the largest score so far. Once a part has a larger one, all sums over the parts before are multiplied
// by a factor.
#pragma once

#include <cfloat>

#include "../softmax.h"

namespace HEADLIGHT_NAMESPACE {

// What a row has seen so far. All but the largest score and the sum of the weights is for statistics.
struct Seen {
    float largest = -FLT_MAX;  // not −∞: where all keys so far are hidden, their x is −∞ and not a NaN
    Row row{};
    float previous = 0, self = 0, next = 0;  // weights of the keys around the query, before division by the sum
    int64_t peak = -1;                       // the first key with the largest weight, if it is one of these three

    // Take a part's largest score into account, before the part is added; returns the factor of all sums so far.
    float rise_to(float score, float scale) {
        if (!(score > largest)) return 1;
        const float away = scale * (largest - score), factor = std::exp(away);
        largest = score;
        // Σ eˣ·x, in which x has changed too; at first, `away` may be −∞.
        row.product = factor > 0 ? factor * (row.product + away * row.sum) : 0;
        row.sum *= factor;
        row.distance *= factor;
        row.special *= factor;
        previous *= factor;
        self *= factor;
        next *= factor;
        return factor;
    }

    void add(const Row &part) {
        row.sum += part.sum;
        row.product += part.product;
        row.distance += part.distance;
        row.special += part.special;
    }

    // Note what statistics need of the weights of keys from `first` to before `last`, e[first] being the first; `factor` is
    // that of the sums before.
    void note(const float *e, int64_t first, int64_t last, int64_t query, float factor) {
        if (factor < 1) peak = -1;
        const auto has = [=](int64_t key) { return first <= key && key < last; };
        if (has(query - 1)) previous = e[query - 1];
        if (has(query)) self = e[query];
        if (has(query + 1)) next = e[query + 1];
        if (peak >= 0 || !(factor < 1)) return;  // the largest score so far is one of an earlier part
        for (int64_t key = query - 1; key <= query + 1 && peak < 0; key++)
            if (has(key) && e[key] >= 1 && !std::any_of(e + first, e + key, [](float other) { return other >= 1; })) peak = key;
    }
};

}  // namespace HEADLIGHT_NAMESPACE
