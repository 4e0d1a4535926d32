// The thumbnail of a head's attention: the largest weight in each cell of rows and columns, found while the rows lie in the
// cache.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../interface.h"
#include "../softmax.h"

namespace HEADLIGHT_NAMESPACE {

// Rows of one cell are compared number by number; only then are their columns. Rounding keeps the order of numbers, so the
// result is the largest weight as a map would have it.
//
// A row that sees its keys in parts knows its weights only at the end. Until then the largest score of each span of columns is
// kept: a larger score is a larger weight.
class Thumbnail {
   public:
    Thumbnail(const Observation *observation, int64_t head)
        : all_(observation), slot_(all_ && all_->thumbnails ? all_->thumbnail_slots[head] : -1) {}

    bool wanted() const { return slot_ >= 0; }

    // The room that it needs for rows of so many columns, in floats; `stripe` rows see their keys in parts, or 0.
    int64_t room(int64_t columns, int64_t stripe) const {
        return !wanted() ? 0 : stripe ? (1 + stripe) * padded_spans() : columns;
    }

    void begin(float *room, int64_t columns, int64_t stripe) {
        in_parts_ = stripe > 0;
        width_ = in_parts_ ? padded_spans() : columns;
        largest_ = room;
        scores_ = room + width_;
        std::fill(largest_, largest_ + width_, 0.0f);
    }

    // Add a row of a query before its division by `sum`, of which `columns` from `first` on are not 0.
    void add(const float *e, float sum, int64_t query, int64_t first, int64_t columns) {
        if (!begin_row(query, sum, first, first + columns)) return;
        const Floats by = broadcast(1 / sum);
        for (int64_t j = first; j < first + columns; j += LANES)
            store_aligned(largest_ + j, max(mul(load_aligned(e + j), by), load_aligned(largest_ + j)));
    }

    // Begin some rows that see their keys in parts.
    void begin_rows(int64_t count) { std::fill(scores_, scores_ + count * width_, -INFINITY); }

    // Note the scores of one of them, for keys from `first` to before `last`.
    void note(int64_t row, const float *scores, int64_t first, int64_t last) {
        float *most = scores_ + row * width_;
        for (int64_t i = 0; i < all_->spans; i++) {
            const int32_t *span = all_->columns + 3 * i;
            const int64_t from = std::max<int64_t>(first, span[1]), to = std::min<int64_t>(last, span[2]);
            if (from < to) most[i] = largest(scores, from, to, most[i]);
        }
    }

    // Add one of them, that of a query: `score` is its largest of all, and `sum` that of its weights.
    void add_row(int64_t row, float score, float sum, float scale, int64_t query) {
        if (!begin_row(query, sum, 0, width_)) return;
        const float *most = scores_ + row * width_;
        const Floats by = broadcast(1 / sum);
        for (int64_t i = 0; i < width_; i += LANES) {
            const Floats e = exponential(mul(sub(load_aligned(most + i), broadcast(score)), broadcast(scale)));
            store_aligned(largest_ + i, max(mul(e, by), load_aligned(largest_ + i)));
        }
    }

    // Write what was found in the cell of the last rows.
    void finish() {
        if (cell_ < 0) return;
        float *cells = all_->thumbnails + (slot_ * all_->row_cells + cell_) * all_->column_cells;
        for (int64_t i = 0; i < all_->spans; i++) {
            const int32_t *span = all_->columns + 3 * i;
            const float most = in_parts_ ? largest_[i] : largest(largest_, span[1], span[2], 0);
            raise(cells + span[0], finite_ ? most : NAN);
        }
        std::fill(largest_ + first_, largest_ + last_, 0.0f);
        cell_ = -1;
        first_ = INT64_MAX;
        last_ = 0;
        finite_ = true;
    }

   private:
    // The columns of a row that has a number for each span.
    int64_t padded_spans() const { return rounded_up(all_->spans, LANES); }

    // Begin a row whose numbers from `first` to before `last` are not 0; false if no cell has it.
    bool begin_row(int64_t query, float sum, int64_t first, int64_t last) {
        const int32_t cell = all_->cell_of_row[query];
        if (cell != cell_) finish();
        if (cell < 0) return false;
        cell_ = cell;
        first_ = std::min(first_, first);
        last_ = std::max(last_, last);
        finite_ &= 1 / sum <= 1;  // a NaN in a row makes all of it NaN
        return true;
    }

    // The largest of some numbers, or `least`.
    static float largest(const float *numbers, int64_t first, int64_t last, float least) {
        Floats most = broadcast(least);
        for (int64_t j = first; j < last; j += LANES) {
            const Mask lanes = lanes_below(j, last);
            most = max(most, load_some(numbers + j, lanes), lanes);
        }
        return max_of_lanes(most);
    }

    // Raise a number to x, which is not negative, or make it a NaN if x is one. Threads may do this at the same time: as
    // integers, such numbers are in the same order, NaN last.
    static void raise(float *number, float x) {
        int32_t bits, *place = (int32_t *)number;
        std::memcpy(&bits, &x, sizeof bits);
        int32_t before = __atomic_load_n(place, __ATOMIC_RELAXED);
        while (before < bits &&
               !__atomic_compare_exchange_n(place, &before, bits, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
    }

    const Observation *all_;
    const int slot_;
    int32_t cell_ = -1;
    int64_t first_ = INT64_MAX, last_ = 0;
    bool finite_ = true;
    bool in_parts_ = false;
    int64_t width_ = 0;                           // of the rows below
    float *largest_ = nullptr, *scores_ = nullptr;  // of the rows of a cell, and of each row of a stripe
};

// Whether the cells of n rows and columns are within the thumbnails.
inline bool cells_fit(const Observation &one, int64_t n) {
    if (!one.cell_of_row || (one.spans && !one.columns) || one.spans < 0) return false;
    for (int64_t i = 0; i < n; i++)
        if (one.cell_of_row[i] >= one.row_cells) return false;
    for (int64_t i = 0; i < one.spans; i++) {
        const int32_t *span = one.columns + 3 * i;
        if (span[0] < 0 || span[0] >= one.column_cells || span[1] < 0 || span[1] > span[2] || span[2] > n) return false;
    }
    return true;
}

}  // namespace HEADLIGHT_NAMESPACE
