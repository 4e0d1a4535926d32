// The mean over heads of a sequence's softmax weights, some of its rows at a time.
#pragma once

#include "../interface.h"
#include "../shares.h"

namespace HEADLIGHT_NAMESPACE {

template <class P>
class Head;

// Whether the weights of some sequence are to be added up over its heads.
inline bool averages(const Attention &all) {
    for (int64_t i = 0; all.observations && i < all.sequences; i++)
        if (all.observations[i].shares) return true;
    return false;
}

// The keys of a head are laid out anew for each part of the rows: of this many, that takes a twentieth of the time.
constexpr int64_t AVERAGED_ROWS = 256;

// Whether a sequence has such a row from `first` to before `last`.
inline bool has_rows(const Observation &one, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++)
        if (!one.row_slots || one.row_slots[i] >= 0) return true;
    return false;
}

// Each thread adds up all heads of its rows, one after the other, so that sums do not depend on the number of threads.
template <class P>
int average(const Attention *all) {
    return on_every_thread([all] {
        bool whole = true;
        Work work(all->steps);
        P::begin();
        for (int64_t sequence = 0; sequence < all->sequences; sequence++) {
            const Observation &one = all->observations[sequence];
            const int64_t n = one.shares ? all->starts[sequence + 1] - all->starts[sequence] : 0;
            const int64_t parts = (n + AVERAGED_ROWS - 1) / AVERAGED_ROWS;
#pragma omp for schedule(dynamic) nowait
            for (int64_t part = 0; part < parts; part++) {
                const int64_t first = n * part / parts, last = n * (part + 1) / parts;
                for (int64_t head = 0; has_rows(one, first, last) && head < all->heads; head++)
                    if (one.head_slots[head] >= 0) whole = Head<P>(*all, sequence, head).run(work, first, last) && whole;
            }
        }
        P::end();
        return whole ? DONE : NO_MEMORY;
    });
}

}  // namespace HEADLIGHT_NAMESPACE
