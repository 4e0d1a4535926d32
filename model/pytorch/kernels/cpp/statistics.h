// The statistics of a head's attention: sums over the rows of terms that a row's weights give.
#pragma once

#include <cmath>

#include "softmax.h"

// In the order of `STATISTICS` in model/contract.py, whose names they have; docs/api.md defines them.
enum Statistic {
    ENTROPY,
    CONFIDENCE,
    MEAN_DISTANCE,
    SELF,
    PREVIOUS,
    NEXT,
    SPECIAL,
    ARGMAX_SELF,
    ARGMAX_PREVIOUS,
    ARGMAX_NEXT,
    STATISTICS,  // how many there are
};

namespace HEADLIGHT_NAMESPACE {

class Measures {
   public:
    // Add a row of n weights before division by their sum.
    void add(const Row &row, const float *e, int64_t query, int64_t n) {
        const double by = 1 / (double)row.sum;
        const double entropy = std::log((double)row.sum) - row.product * by;
        sums_[ENTROPY] += entropy < 0 ? 0 : entropy;  // rounding may fall below 0; a NaN stays a NaN
        sums_[CONFIDENCE] += by;
        sums_[MEAN_DISTANCE] += row.distance * by;
        sums_[SELF] += e[query] * by;
        if (query > 0) sums_[PREVIOUS] += e[query - 1] * by;
        if (query + 1 < n) sums_[NEXT] += e[query + 1] * by;
        sums_[SPECIAL] += row.special * by;
        count_peak(ARGMAX_SELF, e, query, n, by);
        count_peak(ARGMAX_PREVIOUS, e, query - 1, n, by);
        count_peak(ARGMAX_NEXT, e, query + 1, n, by);
    }

    // Write the means over n rows.
    void write(float *means, int64_t n) const {
        for (int i = 0; i < STATISTICS; i++) means[i] = (float)(sums_[i] / n);
    }

   private:
    // Count a row whose largest weight is at this key, and at no earlier key; the largest eˣ is e⁰ = 1.
    void count_peak(Statistic statistic, const float *e, int64_t key, int64_t n, double by) {
        if (by != by) sums_[statistic] = by;  // a NaN stays a NaN
        if (key < 0 || key >= n || e[key] < 1) return;
        int before = 0;
        for (int64_t j = 0; j < key; j++) before |= e[j] >= 1;
        sums_[statistic] += !before;
    }

    double sums_[STATISTICS] = {};
};

}  // namespace HEADLIGHT_NAMESPACE
