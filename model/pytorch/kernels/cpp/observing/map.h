// The map of a head's attention: rows of weights, written while they lie in the cache; or, added up, that of all heads.
#pragma once

#include "../interface.h"
#include "../words.h"

namespace HEADLIGHT_NAMESPACE {

class Map {
   public:
    Map(const Observation *observation, int64_t head, int64_t n)
        : all_(observation), slot_(all_ && all_->maps ? all_->head_slots[head] : -1), head_(head), n_(n) {}

    bool wanted() const { return slot_ >= 0; }

    // Whether the weights of all heads are added up.
    bool averaged() const { return wanted() && all_->shares; }

    // The row of a query; negative if it is not selected.
    int64_t row(int64_t query) const { return all_->row_slots ? all_->row_slots[query] : query; }

    // Write a row of weights e before division by `sum`, if it is selected.
    void write(const float *e, float sum, int64_t query) const {
        const int64_t slot = row(query);
        if (slot < 0) return;
        const float inverse = 1 / sum;
        const bool finite = inverse > 0 && inverse <= 1;
        if (all_->finite && !finite) __atomic_store_n(all_->finite, 0, __ATOMIC_RELAXED);
        const int64_t place = (slot_ * all_->map_rows + slot) * n_;
        const Floats by = broadcast(inverse);
        for (int64_t j = 0; j < n_; j += LANES) {
            const Floats p = mul(load_aligned(e + j), by);
            const Mask real = lanes_below(j, n_);
            if (all_->half)
                store_some_as_float16((uint16_t *)all_->maps + place + j, p, real);
            else
                store_some((float *)all_->maps + place + j, p, real);
        }
    }

    // Add this head's share of such a row, of which only keys from `first` to before `last` are not 0.
    void add(const float *e, float sum, int64_t query, int64_t first, int64_t last) const {
        float *sums = (float *)all_->maps + row(query) * n_;
        const Floats by = broadcast(all_->shares[head_] / sum);
        for (int64_t j = first; j < last; j += LANES) {
            const Mask real = lanes_below(j, last);
            store_some(sums + j, fmadd(load_aligned(e + j), by, load_some(sums + j, real)), real);
        }
    }

   private:
    const Observation *all_;
    const int slot_;
    const int64_t head_, n_;
};

}  // namespace HEADLIGHT_NAMESPACE
