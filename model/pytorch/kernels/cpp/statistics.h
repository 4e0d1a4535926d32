// The statistics of a head's attention: sums over the rows of terms that a row's weights give.
#pragma once

#include <cmath>

#include "attention/online.h"

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
        const double by = add(row);
        sums_[SELF] += e[query] * by;
        if (query > 0) sums_[PREVIOUS] += e[query - 1] * by;
        if (query + 1 < n) sums_[NEXT] += e[query + 1] * by;
        count_peak(ARGMAX_SELF, e, query, n, by);
        count_peak(ARGMAX_PREVIOUS, e, query - 1, n, by);
        count_peak(ARGMAX_NEXT, e, query + 1, n, by);
    }

    // Add a row that has seen all of its keys.
    void add(const Seen &seen, int64_t query) {
        const double by = add(seen.row);
        sums_[SELF] += seen.self * by;
        sums_[PREVIOUS] += seen.previous * by;
        sums_[NEXT] += seen.next * by;
        if (by != by)  // a NaN stays a NaN
            for (const Statistic peak : {ARGMAX_SELF, ARGMAX_PREVIOUS, ARGMAX_NEXT}) sums_[peak] = by;
        else if (seen.peak >= 0)
            sums_[seen.peak == query ? ARGMAX_SELF : seen.peak < query ? ARGMAX_PREVIOUS : ARGMAX_NEXT]++;
    }

    // Write the means over n rows.
    void write(float *means, int64_t n) const {
        for (int i = 0; i < STATISTICS; i++) means[i] = (float)(sums_[i] / n);
    }

   private:
    // Add what the sums over a row give; returns the factor that makes its weights sum to 1.
    double add(const Row &row) {
        const double by = 1 / (double)row.sum;
        const double entropy = std::log((double)row.sum) - row.product * by;
        sums_[ENTROPY] += entropy < 0 ? 0 : entropy;  // rounding may fall below 0; a NaN stays a NaN
        sums_[CONFIDENCE] += by;
        sums_[MEAN_DISTANCE] += row.distance * by;
        sums_[SPECIAL] += row.special * by;
        return by;
    }

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
