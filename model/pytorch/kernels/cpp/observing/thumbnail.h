// The thumbnail of a head's attention: the largest weight in each cell of rows and columns, found while the rows lie in the
// cache.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../interface.h"
#include "../words.h"

namespace HEADLIGHT_NAMESPACE {

// Rows of one cell are compared number by number; only then are their columns. Rounding keeps the order of numbers, so the
// result is the largest weight as a map would have it.
class Thumbnail {
   public:
    Thumbnail(const Observation *observation, int64_t head)
        : all_(observation), slot_(all_ && all_->thumbnails ? all_->thumbnail_slots[head] : -1) {}

    bool wanted() const { return slot_ >= 0; }

    // The room that it needs for rows of so many columns, in floats.
    int64_t room(int64_t columns) const { return wanted() ? columns : 0; }

    void begin(float *room, int64_t columns) {
        largest_ = room;
        std::fill(largest_, largest_ + columns, 0.0f);
    }

    // Add a row of a query before its division by `sum`, of which `columns` from `first` on are not 0.
    void add(const float *e, float sum, int64_t query, int64_t first, int64_t columns) {
        const int32_t cell = all_->cell_of_row[query];
        if (cell != cell_) finish();
        if (cell < 0) return;
        cell_ = cell;
        first_ = std::min(first_, first);
        last_ = std::max(last_, first + columns);
        const float inverse = 1 / sum;
        finite_ &= inverse <= 1;  // a NaN in a row makes all of it NaN
        const Floats by = broadcast(inverse);
        for (int64_t j = first; j < first + columns; j += LANES)
            store_aligned(largest_ + j, max(mul(load_aligned(e + j), by), load_aligned(largest_ + j)));
    }

    // Write what was found in the cell of the last rows.
    void finish() {
        if (cell_ < 0) return;
        float *cells = all_->thumbnails + (slot_ * all_->row_cells + cell_) * all_->column_cells;
        for (int64_t i = 0; i < all_->spans; i++) {
            const int32_t *span = all_->columns + 3 * i;
            raise(cells + span[0], finite_ ? largest(span[1], span[2]) : NAN);
        }
        std::fill(largest_ + first_, largest_ + last_, 0.0f);
        cell_ = -1;
        first_ = INT64_MAX;
        last_ = 0;
        finite_ = true;
    }

   private:
    float largest(int64_t first, int64_t last) const {
        Floats most = zeros();
        for (int64_t j = first; j < last; j += LANES) most = max(most, load_some(largest_ + j, lanes_below(j, last)));
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
    float *largest_ = nullptr;
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
